/* The kernel of similarity.c: how much each fingerprint of a table has in common with one.
 *
 * It reads a column smallint[] as PostgreSQL stores it, in the memory of the server's table: `values` has
 * the place of each row's array in `bodies` (gvmem/table.h). Every thread takes rows in turn; rows
 * that are NULL, or have another length than the query, get no result.
 */
#include <gvmem/device/kernel.h>

#define WORDS 16 /* of 64 bits: 64 smallint */
#define ARRAY_BYTES \
    24 /* before the elements: header, dimensions, NULLs, type, length, lower bound */
#define NOTHING UINT32_MAX

/* The same in similarity.c. */
typedef struct similarity_params {
    uint64_t values, bodies, bodies_bytes;
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
    const uint64_t body_bytes = ARRAY_BYTES + 8 * WORDS;
    result *results = (result *)p.results;

    for (uint64_t row = gvm_thread_global(); row < p.rows; row += gvm_thread_count()) {
        const uint64_t at = values[row];
        result r = {NOTHING, NOTHING};

        if (at != 0 && at < p.bodies_bytes && body_bytes <= p.bodies_bytes - at &&
            *(const uint32_t *)(p.bodies + at) == body_bytes * 4) {
            const uint64_t *words = (const uint64_t *)(p.bodies + at + ARRAY_BYTES);

            r.both = r.either = 0;
            for (int i = 0; i < WORDS; i++) {
                r.both += count_bits(words[i] & p.query[i]);
                r.either += count_bits(words[i] | p.query[i]);
            }
        }
        results[row] = r;
    }
}
