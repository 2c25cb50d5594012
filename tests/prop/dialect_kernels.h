/* tests/prop/dialect_kernels.h - the argument of the kernel of dialect.c. */
#ifndef DIALECT_KERNELS_H
#define DIALECT_KERNELS_H

#include <stdint.h>

/* What a thread gets to know from the others of its warp. */
typedef struct dialect_answer {
    uint32_t same,
        same_of_half; /* lanes whose number has the same two lowest bits, of all and of every second */
    uint32_t first_same, reserved;
    uint32_t rank, yes;             /* of those whose number is odd */
    uint32_t before_u32, total_u32; /* of the numbers' lower halves */
    uint64_t before_u64, total_u64; /* of the numbers */
    uint32_t first_u32, next_u32;   /* lower halves: lane 0's, and that of the lane behind it */
    uint64_t first_u64, next_u64;   /* the same of the whole numbers */
    uint64_t streamed, streamed_pair[2], loaded_pair[2];
    uint64_t changed,
        before[4]; /* a word, after operations that keep an order, and before each that says so */
    uint32_t flags, flags_before;
} dialect_answer;

typedef struct dialect_params {
    uint64_t numbers; /* a uint64_t a thread of the launch */
    uint64_t answers; /* a dialect_answer a thread, at a multiple of 16 */
} dialect_params;

#endif
