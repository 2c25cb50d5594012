/* base/assert.h - three strengths of doubt.
 *
 *   GVM_ASSERT       a programmer's error; debug builds stop, release builds do not look
 *   GVM_ASSERT_SLOW  the same for walks over whole structures (the _check() functions); only with
 *                    -DGVMI_SLOW_ASSERTS
 *   GVM_CHECK        what comes from another process or the driver; always looked at, and never
 *                    stops: use it as a condition
 */
#ifndef GVMI_BASE_ASSERT_H
#define GVMI_BASE_ASSERT_H

#include <assert.h>

#define GVM_ASSERT(condition) assert(condition)

#ifdef GVMI_SLOW_ASSERTS
#define GVM_ASSERT_SLOW(condition) assert(condition)
#else
#define GVM_ASSERT_SLOW(condition) ((void)0)
#endif

#define GVM_CHECK(condition) __builtin_expect(!!(condition), 1)

#endif
