/* tests/unit/softgpu_kernels.h - the argument of the kernel in softgpu_kernels.c. */
#ifndef SOFTGPU_KERNELS_H
#define SOFTGPU_KERNELS_H

#include <stdint.h>

/* watch: one thread reads words from address on, again and again, until the word at stop is no
 * longer 0 or limit_ns have passed. It tells at out: 1 when it has begun, 2 when it has ended. */
typedef struct softgpu_watch_params {
    uint64_t address;
    uint64_t words;
    uint64_t stop, out; /* each of a uint32_t in pinned memory */
    uint64_t limit_ns;
} softgpu_watch_params;

#endif
