/* The kernel of similarity.c: how much each fingerprint of a table has in common with one.
 *
 * A column bit(1024) is a matrix in GPU memory, 128 bytes a row (gvmem/table.h), and is read there. Every thread takes rows in
 * turn; rows that are NULL get no result.
 */
#include <gvmem/device/kernel.h>

#define WORDS 16 /* of 64 bits */
#define NOTHING UINT32_MAX

/* The same in similarity.c. */
typedef struct similarity_params {
    uint64_t values, nulls; /* of the column; nulls is 0 where there is no NULL */
    uint64_t rows;
    uint64_t query[WORDS];
    uint64_t results; /* of struct result, one a row */
} similarity_params;

typedef struct result {
    uint32_t both, either; /* bits that are set */
} result;

GVM_DEVICE uint32_t count_bits(uint64_t w)
{
    w -= w >> 1 & 0x5555555555555555u;
    w = (w & 0x3333333333333333u) + (w >> 2 & 0x3333333333333333u);
    w = (w + (w >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (uint32_t)(w * 0x0101010101010101u >> 56);
}

GVM_KERNEL(similarity, similarity_params, p)
{
    const uint64_t *values = (const uint64_t *)p.values;
    const uint8_t *nulls = (const uint8_t *)p.nulls;
    result *results = (result *)p.results;

    for (uint64_t row = gvm_thread_global(); row < p.rows; row += gvm_thread_count()) {
        result r = {NOTHING, NOTHING};

        if (nulls == 0 || nulls[row / 8] >> row % 8 & 1) {
            r.both = r.either = 0;
            for (uint64_t i = 0; i < WORDS; i++) {
                r.both += count_bits(values[row * WORDS + i] & p.query[i]);
                r.either += count_bits(values[row * WORDS + i] | p.query[i]);
            }
        }
        results[row] = r;
    }
}
