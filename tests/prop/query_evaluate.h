/* tests/prop/query_evaluate.h - query programs, run on the CPU a row at a time: what the kernels are checked against.
 *
 * Threads: one. */
#ifndef PROP_QUERY_EVALUATE_H
#define PROP_QUERY_EVALUATE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "query/program.h"
#include "query/search.h"

#define ROWS_MAX 3000u
#define BODIES_MAX (96u << 10)

/* A column on the host. Without values all are NULL, without nulls none is. */
typedef struct host_column {
    _Alignas(16) uint8_t values[ROWS_MAX * 16];
    uint8_t nulls[ROWS_MAX / 8 + 1];
    bool has_values, has_nulls;
    /* Of texts, as in gquery_source; those of GQUERY_TEXT_FIXED are in values. */
    _Alignas(8) uint8_t bodies[BODIES_MAX];
    uint64_t bytes;
} host_column;

/* The table's rows; bitmaps of those that are not seen, with so many bits. */
typedef struct host_table {
    uint64_t rows;
    host_column columns[GQUERY_COLUMNS_MAX];
    uint8_t dead[2][ROWS_MAX / 8 + 1];
    uint64_t dead_rows[2];
} host_table;

/* A sum of doubles: of those that are finite, and of their sizes, of which a part is what another order may differ by. */
typedef struct double_sum {
    long double sum, size;
    uint64_t count;
    bool has_nan, has_up, has_down, has_zero; /* other than -0 */
} double_sum;

typedef struct host_group {
    uint32_t nulls;
    uint64_t keys[GQUERY_KEYS_MAX];
    uint64_t state[GQUERY_STATE_MAX];
    double_sum sums[GQUERY_STATE_MAX];
} host_group;

typedef struct host_result {
    uint32_t errors; /* bit e: a row has raised error e */
    uint32_t group_count, entry_count;
    host_group groups[ROWS_MAX];
    uint8_t marked[ROWS_MAX / 8 + 4];                  /* whole words, by GQUERY_MARK */
    int64_t entries[ROWS_MAX][GQUERY_ENTRY_WORDS_MAX]; /* by GQUERY_EMIT, as rows are */
} host_result;

typedef struct host_text {
    const uint8_t *bytes; /* NULL: it is compressed */
    uint64_t count;
} host_text;

/* Of a row that is not NULL. False: it is not within the column. */
bool query_read_text(const host_column *column, uint32_t form, uint64_t row, host_text *out);

/* GQUERY_FUNCTION of values that are not NULL. *error: set where it raises one. */
uint64_t query_function(uint32_t function, uint64_t x, uint64_t y, uint64_t value, uint32_t *error);

/* The program has been accepted, and has `keys` values of GQUERY_GROUP or GQUERY_EMIT, or 0. */
void query_evaluate(const gquery_program *program, const host_table *table, uint32_t keys,
                    host_result *result);

static inline double double_of(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint64_t bits_of(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

#endif
