/* base/clock.h - deadlines and durations on CLOCK_MONOTONIC. */
#ifndef GVMI_BASE_CLOCK_H
#define GVMI_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define GVMI_NS_PER_MS 1000000ll
#define GVMI_NEVER_NS INT64_MAX /* a deadline that does not come */

static inline int64_t gvmi_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 * GVMI_NS_PER_MS + now.tv_nsec;
}

static inline int64_t gvmi_now_us(void)
{
    return gvmi_now_ns() / 1000;
}

static inline int64_t gvmi_deadline_ns(int64_t in_ms)
{
    return gvmi_now_ns() + in_ms * GVMI_NS_PER_MS;
}

#endif
