/* kernels/basic.h - the arguments of the kernels in basic.c, as host and device see them.
 *
 * Addresses are numbers on both sides. result points at one 64-bit word of device memory that the
 * host has set before the launch.
 */
#ifndef GVMI_KERNELS_BASIC_H
#define GVMI_KERNELS_BASIC_H

#include <stdint.h>

/* What one block works through at a time, in words of 8 bytes: 16 KiB. Launch no more blocks than
 * there are tiles. */
#define GVMI_TILE_WORDS 2048u

/* fill_random_f64 */
typedef struct gvmi_fill_params {
    uint64_t address;
    uint64_t count;
    uint64_t first_index;
    uint64_t seed;
} gvmi_fill_params;

/* sum_f64: result, first 0, is the sum of count doubles */
typedef struct gvmi_sum_params {
    uint64_t address;
    uint64_t count;
    uint64_t result;
} gvmi_sum_params;

/* checksum: result, first 0, is the sum over the words without the term for the length */
typedef struct gvmi_checksum_params {
    uint64_t address;
    uint64_t len_bytes;
    uint64_t result;
} gvmi_checksum_params;

/* compare: result, first UINT64_MAX, is the offset of the first byte that differs */
typedef struct gvmi_compare_params {
    uint64_t address_a;
    uint64_t address_b;
    uint64_t len_bytes;
    uint64_t result;
} gvmi_compare_params;

/* The mixing function of the generator SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable
 * pseudorandom number generators", OOPSLA 2014): a bijection on 64 bits in which every input bit
 * reaches every output bit. */
#if defined(__CUDACC__)
__device__
#endif
    static inline uint64_t
    gvmi_splitmix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
