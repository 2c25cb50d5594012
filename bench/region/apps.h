/* bench/region/apps.h - the arguments of the kernels in app_kernel.c. Addresses are numbers.
 *
 * Ten kernels work on arrays of words of 4 bytes, A and B, which they read, and C, which they write. An array is cut into tiles, each
 * a region or a part of plain memory; a block maps the tiles that it works on. Floats are small whole numbers, or quarters, so that
 * all sums are exact.
 */
#ifndef BENCH_REGION_APPS_H
#define BENCH_REGION_APPS_H

#include <gvmem/device/kernel.h>
#include <gvmem/region_view.h>

enum { BENCH_APP_A, BENCH_APP_B, BENCH_APP_C, BENCH_APP_ARRAYS };

#define BENCH_APP_CENTRES 16u /* of k-means */
#define BENCH_APP_ROW 32u     /* entries of a row of the sparse matrix */
#define BENCH_APP_STRIP 512u  /* columns of hotspot's grid */

typedef struct bench_app_params {
    gvm_region_view regions[BENCH_APP_ARRAYS];
    uint64_t plain[BENCH_APP_ARRAYS];
    uint64_t small; /* what a kernel has besides its arrays: uint32_t, or uint64_t; zeros at first */
    uint64_t small_words;
    uint64_t out;    /* uint64_t: BENCH_APP_... */
    uint32_t tiles;  /* of an array */
    uint32_t words;  /* of a tile, a square of a power of 2 */
    uint32_t across; /* tiles beside each other, where an array is a matrix or has rows */
    uint32_t step;
    uint32_t floats; /* the arrays are filled with these */
    uint32_t reserved;
} bench_app_params;

enum { BENCH_APP_DIGEST, BENCH_APP_WRONG, BENCH_APP_WORDS };

/* Word i of an array, as it is filled. */
GVM_DEVICE uint32_t bench_app_word(uint32_t array, uint64_t i)
{
    uint64_t z = (i * BENCH_APP_ARRAYS + array + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 29) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(z >> 32);
}

GVM_DEVICE float bench_app_float(uint32_t array, uint64_t i)
{
    return (float)(bench_app_word(array, i) % 64);
}

GVM_DEVICE uint64_t bench_app_mix(uint64_t i, uint32_t word)
{
    uint64_t z = (i << 32 ^ word) * 0x9e3779b97f4a7c15u;

    return (z ^ z >> 32) * 0x94d049bb133111ebu;
}

/* The square of the distance of a point from the one whose nearest neighbour is looked for. */
GVM_DEVICE uint32_t bench_app_distance(uint32_t a, uint32_t b)
{
    const uint32_t x = a % 8192 - 1234, y = b % 8192 - 4321;

    return x * x + y * y;
}

/* The nearest of the centres of k-means. */
GVM_DEVICE uint32_t bench_app_centre_of(uint32_t x, uint32_t y)
{
    uint32_t i, best = ~0u, at = 0;

    for (i = 0; i < BENCH_APP_CENTRES; i++) {
        const uint32_t dx = x - i * 37 % 256, dy = y - i * 101 % 256;

        if (dx * dx + dy * dy < best) {
            best = dx * dx + dy * dy;
            at = i;
        }
    }
    return at;
}

/* Matrix multiply: C = A * B, all n * n floats. A is one region, B and C are windows of these sizes. */
#define BENCH_MATMUL_TILE 64u /* rows and columns of C that a block computes */
#define BENCH_MATMUL_THREADS 256u
#define BENCH_MATMUL_DEPTH 8u /* columns of A in shared memory */

typedef struct bench_matmul_params {
    gvm_region_view a, b, c;
    uint64_t plain_a, plain_b, plain_c;
    uint32_t n, chunk; /* chunk: rows of a window of B */
    uint32_t ahead;    /* windows of B are brought so many columns of windows ahead */
    uint32_t reserved;
    uint64_t out; /* BENCH_APP_... */
} bench_matmul_params;

#endif
