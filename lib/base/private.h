/* base/private.h - what libgvmem-keeper and the executor of queries (query/) use of libgvmem besides the public calls.
 *
 * Functions declared with GVMI_API are exported under a version node that names the very version of the
 * library, so that the loader refuses those of different versions. Nobody else may use
 * them.
 */
#ifndef GVMI_BASE_PRIVATE_H
#define GVMI_BASE_PRIVATE_H

#define GVMI_API __attribute__((visibility("default")))

#endif
