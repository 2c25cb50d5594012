/* gvmem-bench query: the kernels of queries, by the device's clock, beside a plain read of as many bytes.
 *
 * Columns of random numbers lie behind each other: two of doubles, three of integers, and the key, which is drawn anew for each number of groups. Most
 * rows pass the conditions, so that all columns are read. The floor is the library's sum of doubles over as many bytes from the columns' start; both
 * are measured in turns. Groups: one launch over all rows, into a table that is made empty before, beside which that has a figure of its own.
 * Lists: with a bound that one row of LIST_PART passes. Marks of all rows: the program reads nothing, and what is written is what the floor reads.
 */
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "bench/bench.h"
#include "kernels/basic.h"
#include "query/kernels.h"
#include "query/search.h"

#define SECTION "query"
#define ROWS 100000000u
#define ROWS_QUICK 4000000u
#define ROWS_SOFT 60000u
#define PIECE_ROWS (1u << 20) /* drawn at a time */
#define VALUES 1000           /* that columns of integers have */
#define SEED 20u
#define LIST_PART 1000
#define PROGRAM_ROOM 1024 /* of what is put beside the program */
#define FIGURE_NAME_BYTES 80

extern const unsigned char gvmi_image_soft_query_kernels[];
extern const unsigned char *const gvmi_image_cuda_query_kernels;

enum { X, Y, A, B, C, KEY, COLUMNS };
/* What the host writes before each launch. */
typedef struct start {
    const void *data;
    CUdeviceptr at;
    uint64_t bytes;
} start;

typedef enum kernel { BEGIN, SCAN, REDUCE, KERNELS } kernel;

typedef struct setup {
    bench *b;
    CUmodule module;
    CUfunction functions[KERNELS];
    bench_timer timer;
    uint64_t rows;
    CUdeviceptr columns, memory; /* program, error, groups; partial states or slots at `states` */
    CUdeviceptr program_at, error_at, groups_at, states;
    uint32_t threads;
    uint64_t passing; /* rows of the count's condition */
    gquery_program program;
    gquery_shape shape;
    gquery_scan scan;
} setup;

static bool wrong(setup *s, const char *what)
{
    bench_note(s->b, "%s", what);
    s->b->code = TOOL_FAILED;
    return false;
}

/* ---- preparing */

static bool load_kernels(setup *s)
{
    static const char *const names[KERNELS] = {"query_begin", "query_scan", "query_reduce"};
    const unsigned char *image = s->b->info.software ? gvmi_image_soft_query_kernels
                                                     : gvmi_image_cuda_query_kernels;
    bool good;

    if (image == NULL)
        return wrong(s, "this build has no kernels for real GPUs: build it where nvcc is found");
    good = bench_check_driver(s->b, gvmi_cu->cuModuleLoadData(&s->module, image), "cuModuleLoadData");
    for (int i = 0; good && i < KERNELS; i++)
        good = bench_check_driver(s->b,
                                  gvmi_cu->cuModuleGetFunction(&s->functions[i], s->module, names[i]),
                                  "cuModuleGetFunction");
    s->threads = s->b->info.block_threads_max < GQUERY_THREADS ? (uint32_t)s->b->info.block_threads_max
                                                               : GQUERY_THREADS;
    return good && bench_timer_create(s->b, &s->timer);
}

static uint64_t column_at(const setup *s, int column)
{
    return s->columns +
           s->rows * (column <= A ? 8u * (unsigned)column : 16 + 4u * (unsigned)(column - A));
}

static uint32_t drawn(uint64_t row, int column, uint32_t bound)
{
    const uint64_t bits = gvmi_splitmix64(row * COLUMNS + (uint64_t)column) >> 32;

    return (uint32_t)(bits * bound >> 32);
}

static bool fill_integers(setup *s, int column, uint32_t bound)
{
    static int32_t values[PIECE_ROWS];
    bool good = true;

    for (uint64_t first = 0; good && first < s->rows; first += PIECE_ROWS) {
        const uint64_t count = s->rows - first < PIECE_ROWS ? s->rows - first : PIECE_ROWS;

        for (uint64_t i = 0; i < count; i++) {
            values[i] = (int32_t)drawn(first + i, column, bound);
            s->passing += column == A && values[i] >= VALUES / 10;
        }
        good = bench_check_driver(
            s->b, gvmi_cu->cuMemcpyHtoD(column_at(s, column) + first * 4, values, count * 4),
            "cuMemcpyHtoD");
    }
    return good;
}

static bool fill_columns(setup *s)
{
    if (!bench_check_driver(s->b, gvmi_cu->cuMemAlloc(&s->columns, s->rows * 32), "cuMemAlloc"))
        return false;
    if (gvm_kernel_fill_random_f64(s->b->device, gvmi_pointer(s->columns), 2 * s->rows, 0, SEED,
                                   NULL) != GVM_OK)
        return bench_failed(s->b, "filling columns"), false;
    return fill_integers(s, A, VALUES) && fill_integers(s, B, VALUES) && fill_integers(s, C, VALUES);
}

/* ---- programs */

static void emit(setup *s, gquery_op op, uint32_t a, uint16_t b, uint64_t value)
{
    s->program.code[s->program.code_count++] = (gquery_instruction){(uint16_t)op, b, a, value};
}

static void begin_program(setup *s, uint32_t state_words)
{
    memset(&s->program, 0, sizeof s->program);
    s->program.column_count = COLUMNS;
    s->program.state_words = state_words;
    for (int i = 0; i < COLUMNS; i++)
        s->program.columns[i].form = i < A ? GQUERY_F64 : GQUERY_I32;
}

static void emit_filter(setup *s, uint32_t column, gquery_op op, uint64_t value)
{
    emit(s, GQUERY_LOAD, column, 0, 0);
    emit(s, GQUERY_CONSTANT, 0, 0, value);
    emit(s, op, 0, GQUERY_ORDER_I64, 0);
    emit(s, GQUERY_FILTER, 0, 0, 0);
}

static void write_count(setup *s)
{
    begin_program(s, 1);
    emit_filter(s, A, GQUERY_GE, VALUES / 10);
    emit(s, GQUERY_AGGREGATE, 0, GQUERY_COUNT_ROWS, 0);
}

static void write_sum(setup *s)
{
    begin_program(s, 1);
    emit_filter(s, A, GQUERY_GE, VALUES / 10);
    emit_filter(s, B, GQUERY_LT, VALUES - VALUES / 10);
    emit_filter(s, C, GQUERY_NE, 7);
    emit(s, GQUERY_LOAD, X, 0, 0);
    emit(s, GQUERY_LOAD, Y, 0, 0);
    emit(s, GQUERY_MULTIPLY, 0, GQUERY_ARITHMETIC_F64, 0);
    emit(s, GQUERY_AGGREGATE, 0, GQUERY_SUM_F64, 0);
}

static void write_groups(setup *s, bool of_integers)
{
    begin_program(s, of_integers ? 3 : 2);
    emit(s, GQUERY_LOAD, KEY, 0, 0);
    emit(s, GQUERY_GROUP, 1, 0, 0);
    emit(s, GQUERY_AGGREGATE, 0, GQUERY_COUNT_ROWS, 0);
    emit(s, GQUERY_LOAD, of_integers ? A : X, 0, 0);
    emit(s, GQUERY_AGGREGATE, 1, of_integers ? GQUERY_SUM_I64 : GQUERY_SUM_F64, 0);
}

/* all: without a filter. */
static void write_mark(setup *s, bool all)
{
    begin_program(s, 0);
    if (!all)
        emit_filter(s, A, GQUERY_GE, VALUES / 10);
    emit(s, GQUERY_MARK, 0, 0, 0);
}

static void write_list(setup *s)
{
    begin_program(s, 0);
    emit_filter(s, A, GQUERY_GE, VALUES / 10);
    emit(s, GQUERY_LOAD, X, 0, 0);
    emit(s, GQUERY_ORDER_KEY, 0, 0, 0);
    emit(s, GQUERY_EMIT, 1, 0, 0);
}

/* Room for the program and so many words of states or slots. */
static bool put_program(setup *s, uint64_t words)
{
    char problem[128];
    gquery_tests tests;

    if (!gquery_check(&s->program, &s->shape, problem))
        return wrong(s, problem);
    tests = gquery_fuse(&s->program);
    if (!bench_check_driver(
            s->b, gvmi_cu->cuMemAlloc(&s->memory, sizeof s->program + PROGRAM_ROOM + words * 8),
            "cuMemAlloc"))
        return false;
    s->program_at = s->memory;
    s->error_at = s->memory + (sizeof s->program + 127) / 64 * 64;
    s->groups_at = s->error_at + 64;
    s->states = s->groups_at + 512;
    s->scan = (gquery_scan){.program = s->program_at,
                            .limit = s->rows,
                            .error = s->error_at,
                            .groups = s->shape.grouped ? s->groups_at : 0,
                            .partial = s->states,
                            .depth = s->shape.depth,
                            .tests = tests,
                            .state_words = s->program.state_words,
                            .keys = s->shape.keys};
    for (int i = 0; i < COLUMNS; i++)
        s->scan.sources[i] = gquery_source_at(&s->program.columns[i], column_at(s, i), 0);
    return bench_check_driver(s->b,
                              gvmi_cu->cuMemcpyHtoD(s->program_at, &s->program, sizeof s->program),
                              "cuMemcpyHtoD") &&
           bench_check_driver(s->b, gvmi_cu->cuMemsetD8Async(s->error_at, 0, 64, s->timer.stream),
                              "cuMemsetD8Async");
}

static void drop_program(setup *s)
{
    if (s->memory != 0)
        gvmi_cu->cuMemFree(s->memory);
    s->memory = 0;
}

/* ---- launches */

static bool launch(setup *s, kernel which, uint32_t blocks, uint64_t shared_bytes, void *params)
{
    void *arguments[] = {params};

    return bench_check_driver(s->b,
                              gvmi_cu->cuLaunchKernel(s->functions[which], blocks, 1, 1, s->threads,
                                                      1, 1, (unsigned)shared_bytes, s->timer.stream,
                                                      arguments, NULL),
                              "cuLaunchKernel");
}

/* As the executor does: on the software GPU there are no groups in shared memory. */
static uint64_t set_shared(setup *s)
{
    int block = 0, multiprocessor = 0;
    CUdevice device;

    if (!s->b->info.software && gvmi_cu->cuDeviceGet(&device, s->b->info.ordinal) == CUDA_SUCCESS &&
        gvmi_cu->cuDeviceGetAttribute(&block, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                      device) == CUDA_SUCCESS &&
        gvmi_cu->cuDeviceGetAttribute(&multiprocessor,
                                      CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
                                      device) == CUDA_SUCCESS)
        gquery_set_local(&s->scan, s->threads, (uint64_t)block, (uint64_t)multiprocessor);
    return gquery_shared_bytes(&s->scan, s->threads);
}

/* As many as the device runs at once. */
static uint32_t scan_blocks(setup *s, uint64_t shared_bytes)
{
    int blocks = 0;

    if (!bench_check_driver(s->b,
                            gvmi_cu->cuFuncSetAttribute(
                                s->functions[SCAN], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                (int)shared_bytes),
                            "cuFuncSetAttribute") ||
        !bench_check_driver(s->b,
                            gvmi_cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(
                                &blocks, s->functions[SCAN], (int)s->threads, shared_bytes),
                            "cuOccupancyMaxActiveBlocksPerMultiprocessor"))
        return 0;
    return (uint32_t)blocks * (uint32_t)s->b->info.sm_count;
}

static bool time_floor(setup *s, uint64_t bytes, double *us)
{
    gvmi_sum_params sum = {s->columns, bytes / 8, 0};
    uint64_t value;
    gvmi_result result;
    gvm_status status = gvmi_result_begin(s->b->device, 0, s->timer.stream, &result);
    bool timed = false;

    if (status == GVM_OK) {
        sum.result = result.words.device;
        timed = bench_timer_start(s->b, &s->timer);
        status = gvmi_kernel_launch(s->b->device, GVMI_KERNEL_sum_f64, &sum,
                                    bytes / (GVMI_TILE_WORDS * 8) + 1, s->timer.stream);
        timed = timed && status == GVM_OK && bench_timer_stop(s->b, &s->timer, us);
        status = gvmi_result_end(s->b->device, &result, status, &value);
    }
    if (status != GVM_OK)
        bench_failed(s->b, "summing the columns");
    return timed && status == GVM_OK;
}

static bool is_reduced(const setup *s)
{
    return !s->shape.grouped && s->program.state_words > 0;
}

/* Begin, scan, and where there are sums of one group reduce, each by itself. */
static bool time_query(setup *s, uint32_t blocks, uint64_t shared_bytes, const start *before,
                       double us[KERNELS])
{
    gquery_begin begin = {.program = s->program_at,
                          .partial = s->states,
                          .groups = s->scan.groups,
                          .count = blocks,
                          .keys = s->shape.keys,
                          .state_words = s->program.state_words};
    gquery_reduce reduce = {s->program_at, s->states, s->error_at, blocks, s->program.state_words};

    if (before != NULL &&
        !bench_check_driver(s->b, gvmi_cu->cuMemcpyHtoD(before->at, before->data, before->bytes),
                            "cuMemcpyHtoD"))
        return false;
    return bench_timer_start(s->b, &s->timer) && launch(s, BEGIN, blocks, 0, &begin) &&
           bench_timer_stop(s->b, &s->timer, &us[BEGIN]) && bench_timer_start(s->b, &s->timer) &&
           launch(s, SCAN, blocks, shared_bytes, &s->scan) &&
           bench_timer_stop(s->b, &s->timer, &us[SCAN]) &&
           (!is_reduced(s) || (bench_timer_start(s->b, &s->timer) && launch(s, REDUCE, 1, 0, &reduce) &&
                               bench_timer_stop(s->b, &s->timer, &us[REDUCE])));
}

/* ---- figures */

/* bytes: that the program reads; before: or NULL. */
static bool measure(setup *s, const char *name, uint64_t bytes, const start *before)
{
    const int warm_up = 2, repetitions = s->b->quick || s->b->info.software ? 3 : 15;
    const uint64_t shared_bytes = set_shared(s);
    const uint32_t blocks = scan_blocks(s, shared_bytes);
    bench_samples kernels[KERNELS] = {0}, floors = {0};
    double us[KERNELS] = {0}, floor_us, scan, floor;

    for (int i = 0; i < warm_up + repetitions; i++) {
        if (blocks == 0 || !time_floor(s, bytes, &floor_us) ||
            !time_query(s, blocks, shared_bytes, before, us))
            return false;
        if (i < warm_up)
            continue;
        bench_add(&floors, floor_us);
        for (int k = 0; k < KERNELS; k++)
            bench_add(&kernels[k], us[k]);
    }
    floor = bench_record(s->b, SECTION, bench_text(s->b, "%s, plain read", name), "us", bytes, 0,
                         &floors);
    scan = bench_record(s->b, SECTION, name, "us", bytes, 0, &kernels[SCAN]);
    bench_record(s->b, SECTION, bench_text(s->b, "%s, before", name), "us", bytes, 0, &kernels[BEGIN]);
    if (is_reduced(s))
        bench_record(s->b, SECTION, bench_text(s->b, "%s, reduction", name), "us", bytes, 0,
                     &kernels[REDUCE]);
    bench_record_value(s->b, SECTION, bench_text(s->b, "%s, of the plain read's rate", name),
                       "ratio", bytes, 0, floor / scan);
    fprintf(s->b->text, "  %-32s %10.1f %10.1f %8.3f %10.1f %10.1f\n", name, scan, floor, floor / scan,
            bench_median(&kernels[BEGIN]), is_reduced(s) ? bench_median(&kernels[REDUCE]) : 0.0);
    return true;
}

static bool measure_one_group(setup *s, const char *name, uint64_t bytes, uint64_t expected)
{
    const uint64_t blocks_max = (uint64_t)s->b->info.sm_count * 64;
    uint64_t value = 0;
    const bool good = put_program(s, blocks_max * s->program.state_words) &&
                      measure(s, name, bytes, NULL) &&
                      bench_check_driver(s->b, gvmi_cu->cuMemcpyDtoH(&value, s->states, sizeof value),
                                         "cuMemcpyDtoH");

    drop_program(s);
    return good && (expected == 0 || value == expected || wrong(s, "a count is wrong"));
}

static bool measure_groups(setup *s, uint32_t count, bool of_integers)
{
    gquery_groups groups = {.mask = 1}, after = {0};
    start before = {&groups, 0, sizeof groups};
    char name[FIGURE_NAME_BYTES];
    bool good;

    write_groups(s, of_integers);
    groups.slot_words = 2 + s->program.state_words;
    while (groups.mask + 1 < 2 * (uint64_t)count)
        groups.mask = 2 * groups.mask + 1;
    groups.max = (groups.mask + 1) / 2;
    snprintf(name, sizeof name, "%u groups, count and sum of %s", (unsigned)count,
             of_integers ? "integers" : "doubles");
    good = fill_integers(s, KEY, count) && put_program(s, (groups.mask + 1) * groups.slot_words);
    groups.slots = s->states;
    before.at = s->groups_at;
    good = good &&
           measure(s, bench_text(s->b, "%s", name), s->rows * (of_integers ? 8 : 12), &before) &&
           bench_check_driver(s->b, gvmi_cu->cuMemcpyDtoH(&after, s->groups_at, sizeof after),
                              "cuMemcpyDtoH");
    drop_program(s);
    if (good && (after.full != 0 || after.count == 0 || after.count > count))
        return wrong(s, "the number of groups is wrong");
    return good;
}

static bool count_marks(setup *s, uint64_t expected)
{
    const uint64_t bytes = (s->rows + 31) / 32 * 4;
    uint32_t *words = malloc(bytes);
    uint64_t count = 0;
    const bool good = words != NULL &&
                      bench_check_driver(s->b, gvmi_cu->cuMemcpyDtoH(words, s->states, bytes),
                                         "cuMemcpyDtoH");

    for (uint64_t i = 0; good && i < bytes / 4; i++)
        count += (uint64_t)__builtin_popcount(words[i]);
    free(words);
    return good && (count == expected || wrong(s, "a number of marks is wrong"));
}

static bool measure_marks(setup *s, const char *name, bool all)
{
    bool good;

    write_mark(s, all);
    good = put_program(s, s->rows / 64 + 1);
    s->scan.marked = s->states;
    good = good && measure(s, name, all ? s->rows / 8 : s->rows * 4, NULL) &&
           count_marks(s, all ? s->rows : s->passing);
    drop_program(s);
    return good;
}

/* Entries up to the bound are a part of those that pass the filter, give or take half of it. */
static bool measure_list(setup *s)
{
    const uint64_t expected = s->passing / LIST_PART;
    const double bound = 1.0 / LIST_PART;
    gquery_list list = {.max = expected * 2, .words = 2, .bounded = 1, .bound = {0, INT64_MAX}};
    start before = {&list, 0, sizeof list};
    bool good;

    memcpy(list.bound, &bound, sizeof bound);
    write_list(s);
    good = put_program(s, list.max * list.words);
    list.entries = s->states;
    s->scan.list = before.at = s->groups_at;
    good = good && measure(s, "filter and emit, few within bound", s->rows * 12, &before) &&
           bench_check_driver(s->b, gvmi_cu->cuMemcpyDtoH(&list, s->groups_at, sizeof list),
                              "cuMemcpyDtoH");
    drop_program(s);
    return good && ((list.count > expected / 2 && list.count < expected * 3 / 2) ||
                    wrong(s, "a number of entries is wrong"));
}

static void measure_queries(setup *s)
{
    static const uint32_t counts[] = {8, 100, 10000, 1000000, 10000000};
    bool good;

    fprintf(s->b->text,
            "\nqueries over %llu rows, us (median)\n"
            "  %-32s %10s %10s %8s %10s %10s\n",
            (unsigned long long)s->rows, "", "kernel", "plain read", "ratio", "before", "reduction");
    write_count(s);
    good = measure_one_group(s, "count, filter on one column", s->rows * 4, s->passing);
    write_sum(s);
    good = good && measure_one_group(s, "sum of products, three filters", s->rows * 28, 0);
    good = good && measure_marks(s, "filter and mark", false) &&
           measure_marks(s, "mark of all rows", true) && measure_list(s);
    for (size_t i = 0; good && i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i] <= s->rows / 2)
            good = measure_groups(s, counts[i], false) && measure_groups(s, counts[i], true);
}

void bench_query(bench *b)
{
    setup *s = calloc(1, sizeof *s);

    if (s == NULL) {
        bench_note(b, "out of memory");
        b->code = TOOL_FAILED;
        return;
    }
    s->b = b;
    s->rows = b->info.software ? ROWS_SOFT : b->quick ? ROWS_QUICK : ROWS;
    if (load_kernels(s) && fill_columns(s))
        measure_queries(s);
    if (s->columns != 0)
        gvmi_cu->cuMemFree(s->columns);
    bench_timer_destroy(&s->timer);
    if (s->module != NULL)
        gvmi_cu->cuModuleUnload(s->module);
    free(s);
}
