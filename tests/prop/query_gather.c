/* Rows whose bits are 1 in a bitmap, as a list, and their values, beside what the CPU finds. See query/gather.h.
 *
 *     query_gather [CASES [SEED]]
 *
 * Goal: the list has all of these rows and no other, ascending, whatever parts the bitmap has; records have the values that columns have in
 * these rows, of all forms; so they have of rows of several tables, with vectors behind them. Method: random bitmaps, of few ones and of many, random columns with and without NULLs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "driver/driver.h"
#include "query/gather.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"

#define CASES 300u
#define ROWS_MAX 20480u
#define COLUMNS_MAX 5u
#define TABLES_MAX 3u
#define VECTOR_WORDS_MAX (2 * COLUMNS_MAX) /* the values of all columns, as vectors */
#define WORDS_AT 0u
#define COUNTS_AT (WORDS_AT + ROWS_MAX / 8 + 64)
#define ROWS_AT (COUNTS_AT + ROWS_MAX / 32 * 8 + 64)
#define VALUES_AT (ROWS_AT + ROWS_MAX * 8)
#define NULLS_AT (VALUES_AT + COLUMNS_MAX * ROWS_MAX * 16)
#define OUT_AT (NULLS_AT + COLUMNS_MAX * (ROWS_MAX / 8 + 8))
#define BYTES (OUT_AT + ROWS_MAX * (2 + COLUMNS_MAX + VECTOR_WORDS_MAX) * 8)

extern const unsigned char gvmi_image_soft_query_gather[];
extern const unsigned char *const gvmi_image_cuda_query_gather;

static gvm_device *device;
static gvm_device_info info = {.struct_size = sizeof info};
static CUmodule module;
static CUfunction count_kernel, list_kernel, gather_kernel;
static gvm_buffer *memory;
static uint64_t state, base;
static uint8_t *mirror; /* of the memory */
static char problem[256];

#define WRONG(...) (snprintf(problem, sizeof problem, __VA_ARGS__), false)

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

static bool launch(CUfunction function, void *params)
{
    void *arguments[] = {params};
    const unsigned blocks = 1 + (unsigned)draw(4);
    const unsigned threads = (unsigned)info.warp_size * (1 + (unsigned)draw(2));
    const CUresult result = gvmi_cu->cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, NULL,
                                                    arguments, NULL);
    const CUresult after = result == CUDA_SUCCESS ? gvmi_cu->cuStreamSynchronize(NULL) : result;

    return after == CUDA_SUCCESS ||
           WRONG("launch of %u blocks of %u threads: CUresult %d", blocks, threads, (int)after);
}

static bool upload(void)
{
    return gvm_buffer_copy_in(memory, 0, mirror, BYTES) == GVM_OK || WRONG("copy in");
}

static bool download(void)
{
    return gvm_buffer_copy_out(mirror, memory, 0, BYTES) == GVM_OK || WRONG("copy out");
}

/* ---- one case */

static bool bit_at(uint64_t at, uint64_t row)
{
    return mirror[at + row / 8] >> row % 8 & 1;
}

static void draw_bits(uint64_t at, uint64_t rows, uint64_t one_of)
{
    for (uint64_t row = 0; row < rows; row++)
        if (draw(one_of) == 0)
            mirror[at + row / 8] |= (uint8_t)(1 << row % 8);
}

static gquery_marks draw_marks(uint64_t rows)
{
    gquery_marks m = {.words = base + WORDS_AT,
                      .counts = base + COUNTS_AT,
                      .rows = base + ROWS_AT,
                      .word_count = (rows + 31) / 32,
                      .each = 1 + (uint32_t)draw(100)};

    m.parts = (uint32_t)((m.word_count + m.each - 1) / m.each);
    draw_bits(WORDS_AT, rows, draw(2) == 0 ? 1 + draw(3) : 1 + draw(5000));
    return m;
}

static gquery_gather draw_columns(uint64_t rows)
{
    gquery_gather g = {.rows = base + ROWS_AT,
                       .out = base + OUT_AT,
                       .tables = 1,
                       .columns = (uint32_t)draw(COLUMNS_MAX + 1)};

    for (uint32_t c = 0; c < g.columns; c++) {
        const uint64_t values = VALUES_AT + (uint64_t)c * ROWS_MAX * 16;
        const uint64_t nulls = NULLS_AT + (uint64_t)c * (ROWS_MAX / 8 + 8);
        const uint64_t how = draw(8);

        g.forms[c] = (uint32_t)draw(GQUERY_TEXT_BODIES + 1u);
        if (g.forms[c] == GQUERY_TEXT_BODIES) /* texts are not gathered */
            g.forms[c] = GQUERY_DECIMAL_HIGH;
        g.biases[c] = g.forms[c] == GQUERY_I32 || g.forms[c] == GQUERY_I64
                          ? (int64_t)draw(3) * 10957 - 10957
                          : 0;
        g.sources[c].values = how == 0 ? 0 : base + values;
        g.sources[c].nulls = how <= 2 ? 0 : base + nulls;
        for (uint64_t i = 0; i < 2 * rows; i++) {
            const uint64_t v = draw(10) == 0 ? (draw(2) == 0 ? INT64_MAX : (uint64_t)INT64_MIN)
                                             : random_next(&state);

            memcpy(mirror + values + 8 * i, &v, 8);
        }
        draw_bits(nulls, rows, 1 + draw(3));
    }
    return g;
}

/* Of 16 bytes. */
static uint64_t half_of(uint32_t form, uint64_t at)
{
    uint64_t number = 0;

    if (form == GQUERY_DECIMAL || form == GQUERY_DECIMAL_HIGH) {
        memcpy(&number, mirror + at + (form == GQUERY_DECIMAL_HIGH ? 8 : 0), 8);
        return number;
    }
    for (uint64_t i = 0; i < 8; i++)
        number = number << 8 | mirror[at + (form == GQUERY_UUID_LOW ? 8 : 0) + i];
    return number ^ UINT64_C(1) << 63;
}

#define AS(type) (memcpy(&v_##type, mirror + at + row * sizeof v_##type, sizeof v_##type), v_##type)

/* The value of the row as program.h has it on the stack. */
static uint64_t value_of(const gquery_gather *g, uint32_t c, uint64_t row)
{
    const uint64_t at = g->sources[c].values - base, bias = (uint64_t)g->biases[c];
    int16_t v_int16_t;
    int32_t v_int32_t;
    uint32_t v_uint32_t;
    int64_t v_int64_t;
    float v_float;
    double wide;
    uint64_t bits;

    if (g->forms[c] >= GQUERY_DECIMAL)
        return half_of(g->forms[c], at + 16 * row);
    switch (g->forms[c]) {
    case GQUERY_BIT: return bit_at(at, row);
    case GQUERY_U8: return mirror[at + row];
    case GQUERY_I16: return (uint64_t)(int64_t)AS(int16_t);
    case GQUERY_U32: return AS(uint32_t);
    case GQUERY_I32:
        (void)AS(int32_t);
        return v_int32_t == INT32_MAX || v_int32_t == INT32_MIN ? (uint64_t)(int64_t)v_int32_t
                                                                : (uint64_t)(int64_t)v_int32_t + bias;
    case GQUERY_F32:
        wide = (double)AS(float);
        memcpy(&bits, &wide, 8);
        return bits;
    default:
        (void)AS(int64_t);
        return v_int64_t == INT64_MAX || v_int64_t == INT64_MIN ? (uint64_t)v_int64_t
                                                                : (uint64_t)v_int64_t + bias;
    }
}

static bool is_null(const gquery_gather *g, uint32_t c, uint64_t row)
{
    return g->sources[c].nulls == 0 ? g->sources[c].values == 0
                                    : !bit_at(g->sources[c].nulls - base, row);
}

static bool check_record(const gquery_gather *g, uint64_t at, uint64_t row)
{
    const uint64_t *record = (const uint64_t *)(mirror + OUT_AT) + at * (2 + g->columns);
    uint64_t nulls = 0;

    if (record[0] != row)
        return WRONG("record %llu is of row %llu, not %llu", (unsigned long long)at,
                     (unsigned long long)record[0], (unsigned long long)row);
    for (uint32_t c = 0; c < g->columns; c++) {
        const bool null = is_null(g, c, row);
        const uint64_t wanted = null || g->sources[c].values == 0 ? 0 : value_of(g, c, row);

        nulls |= (uint64_t)null << c;
        if (record[2 + c] != wanted)
            return WRONG("row %llu, form %u: %llx, not %llx", (unsigned long long)row, g->forms[c],
                         (unsigned long long)record[2 + c], (unsigned long long)wanted);
    }
    return record[1] == nulls || WRONG("row %llu: other NULLs", (unsigned long long)row);
}

static bool check_records(const gquery_gather *g, uint64_t rows)
{
    uint64_t at = 0;

    for (uint64_t row = 0; row < rows; row++)
        if (bit_at(WORDS_AT, row) && !check_record(g, at++, row))
            return false;
    return at == g->count ||
           WRONG("%llu rows, not %llu", (unsigned long long)g->count, (unsigned long long)at);
}

/* ---- rows of several tables, of which each column is one's */

static void draw_joined(gquery_gather *g, uint64_t rows)
{
    uint64_t *numbers = (uint64_t *)(mirror + ROWS_AT);

    g->tables = 1 + (uint32_t)draw(TABLES_MAX);
    g->count = draw(ROWS_MAX / g->tables);
    g->skipped = (uint32_t)draw(2);
    for (uint64_t i = 0; i < g->count * g->tables; i++)
        numbers[i] = draw(8) == 0 ? UINT64_MAX : draw(rows);
    for (uint32_t c = 0; c < g->columns; c++)
        g->sources[c].table = (uint32_t)draw(g->tables);
    for (uint32_t c = 0; c < g->columns; c++)
        if (draw(8) == 0) {
            g->forms[c] = GQUERY_ROW_NUMBER;
            g->biases[c] = 0;
            g->sources[c].values = g->rows;
            g->sources[c].nulls = 0;
        }
    g->vectors = (gquery_source){.values = base + VALUES_AT, .table = (uint32_t)draw(g->tables)};
    g->vector_bytes = draw(3) == 0 ? 0 : (uint32_t)draw(8 * VECTOR_WORDS_MAX + 1);
    g->vector_words = (g->vector_bytes + 7) / 8;
}

static bool check_vector(const gquery_gather *g, const uint64_t *words, uint64_t row)
{
    uint8_t wanted[8 * VECTOR_WORDS_MAX] = {0};

    if (row != UINT64_MAX)
        memcpy(wanted, mirror + VALUES_AT + row * g->vector_bytes, g->vector_bytes);
    return memcmp(words, wanted, g->vector_words * sizeof *words) == 0 ||
           WRONG("row %llu: another vector of %u bytes", (unsigned long long)row, g->vector_bytes);
}

static bool check_joined(const gquery_gather *g)
{
    const uint64_t *numbers = (const uint64_t *)(mirror + ROWS_AT);
    const uint64_t *record = (const uint64_t *)(mirror + OUT_AT);

    for (uint64_t i = 0; i < g->count; i++, numbers += g->tables) {
        uint64_t nulls = 0;

        if (g->skipped == 0 && *record++ != numbers[0])
            return WRONG("record %llu is of another row", (unsigned long long)i);
        for (uint32_t c = 0; c < g->columns; c++) {
            const uint64_t row = numbers[g->sources[c].table];
            const bool null = row == UINT64_MAX || is_null(g, c, row);
            const uint64_t wanted = null || g->sources[c].values == 0  ? 0
                                    : g->forms[c] == GQUERY_ROW_NUMBER ? row
                                                                       : value_of(g, c, row);

            nulls |= (uint64_t)null << c;
            if (record[1 + c] != wanted)
                return WRONG("joined row %llu, form %u: %llx, not %llx", (unsigned long long)i,
                             g->forms[c], (unsigned long long)record[1 + c],
                             (unsigned long long)wanted);
        }
        if (record[0] != nulls)
            return WRONG("joined row %llu: other NULLs", (unsigned long long)i);
        record += 1 + g->columns;
        if (!check_vector(g, record, numbers[g->vectors.table]))
            return false;
        record += g->vector_words;
    }
    return true;
}

static bool check(void)
{
    const uint64_t rows = 1 + draw(ROWS_MAX);
    uint64_t *counts = (uint64_t *)(mirror + COUNTS_AT), total = 0;
    gquery_marks m;
    gquery_gather g;

    memset(mirror, 0, BYTES);
    m = draw_marks(rows);
    g = draw_columns(rows);
    if (!upload() || !launch(count_kernel, &m) || !download())
        return false;
    for (uint32_t i = 0; i < m.parts; i++) {
        const uint64_t ones = counts[i];

        counts[i] = total;
        total += ones;
    }
    g.count = total;
    if (!upload() || !launch(list_kernel, &m) || !launch(gather_kernel, &g) || !download() ||
        !check_records(&g, rows))
        return false;
    draw_joined(&g, rows);
    return upload() && launch(gather_kernel, &g) && download() && check_joined(&g);
}

/* ---- the test */

static bool open_device(void)
{
    if (!device_open_with_kernels(gvmi_image_soft_query_gather, gvmi_image_cuda_query_gather,
                                  &device, &info, &module))
        return false;
    if (module == NULL)
        return true;
    if (gvmi_cu->cuModuleGetFunction(&count_kernel, module, "query_count_marks") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&list_kernel, module, "query_list_marks") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&gather_kernel, module, "query_gather") != CUDA_SUCCESS ||
        gvm_buffer_create(device, 16 * MIB, NULL, &memory) != GVM_OK ||
        gvm_buffer_commit(memory, 0, 16 * MIB) != GVM_OK)
        return false;
    base = gvmi_address(gvm_buffer_address(memory));
    mirror = malloc(BYTES);
    return mirror != NULL;
}

int main(int argc, char **argv)
{
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 0) : CASES;
    const uint64_t seed = random_seed(argc > 2 ? argv[2] : NULL);
    bool good = true;
    uint64_t i;

    _Static_assert(BYTES <= 16 * MIB, "the buffer has room for all");
    state = seed;
    fixture_machine_default("memory=256MiB,warp=%u", 1u << draw(6));
    if (!open_device())
        tap_bail_out("there is no device");
    if (module == NULL)
        return tap_skip_all("this build has no kernels for real GPUs");
    for (i = 0; i < cases && good; i++)
        good = check();
    if (!good)
        printf("# case %llu of seed %llu: %s\n", (unsigned long long)i, (unsigned long long)seed,
               problem);
    tap_result(good, "rows_that_pass_are_listed_with_their_values (%llu cases, seed %llu)",
               (unsigned long long)i, (unsigned long long)seed);
    free(mirror);
    gvm_buffer_destroy(memory);
    gvm_device_close(device);
    return tap_finish();
}
