/* What litmus.c and its kernel have in common. */
#ifndef PROP_LITMUS_KERNELS_H
#define PROP_LITMUS_KERNELS_H

#include <stdint.h>

#define LITMUS_WORDS 256u /* of the data: 1 KiB */

/* The word: readers below, then a bit of the writer, and a version above. */
#define LITMUS_READERS 0xffffffull
#define LITMUS_BUSY (1ull << 24)
#define LITMUS_VERSION_SHIFT 32

typedef struct litmus_params {
    uint64_t word; /* uint64_t, on the device */
    uint64_t data; /* LITMUS_WORDS of uint32_t, on the device or in host memory: each is the version */
    uint64_t done;  /* uint32_t: the writer has ended */
    uint64_t reads; /* uint64_t: how often the data was read */
    uint64_t wrong; /* uint64_t: words that were not the version */
    uint32_t rounds, reserved;
} litmus_params;

#endif
