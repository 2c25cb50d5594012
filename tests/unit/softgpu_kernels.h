/* tests/unit/softgpu_kernels.h - the arguments of the kernels in softgpu_kernels.c. */
#ifndef SOFTGPU_KERNELS_H
#define SOFTGPU_KERNELS_H

#include <stdint.h>

#include <gvmem/append.h>

/* watch: one thread reads words from address on, again and again, until the word at stop is no
 * longer 0 or limit_ns have passed. It tells at out: 1 when it has begun, 2 when it has ended. */
typedef struct softgpu_watch_params {
    uint64_t address;
    uint64_t words;
    uint64_t stop, out; /* each of a uint32_t in pinned memory */
    uint64_t limit_ns;
} softgpu_watch_params;

/* append: one thread appends rows, each of which begins with its number. */
typedef struct softgpu_append_params {
    gvm_append append;
    uint64_t rows;
} softgpu_append_params;

#endif
