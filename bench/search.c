/* gvmem-bench search: distances of all rows of a table from a query, as exact search computes them, beside a read of the same bytes; and of a part of the rows from many queries. */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "query/search.h"

#define SECTION "search"
#define BLOCK_THREADS 256
#define REPETITIONS 9
#define QUERIES 1000u
#define POINT_BYTES 3072u /* of a query, at most */
#define MANY_BYTES (QUERIES * (POINT_BYTES + sizeof(double) + sizeof(gquery_list)))

extern const unsigned char gvmi_image_soft_query_search[];
extern const unsigned char *const gvmi_image_cuda_query_search;

static const struct {
    const char *name;
    uint32_t elements, metric, count, stride, query_bytes;
} kinds[] = {
    {"768 float32, L2", GQUERY_ELEMENTS_F32, GQUERY_L2, 768, 3072, 3072},
    {"768 float16, L2", GQUERY_ELEMENTS_F16, GQUERY_L2, 768, 1536, 3072},
    {"768 float16, cosine", GQUERY_ELEMENTS_F16, GQUERY_COSINE, 768, 1536, 3072},
    {"128 float32, inner product", GQUERY_ELEMENTS_F32, GQUERY_INNER, 128, 512, 512},
    {"100 int16, L2", GQUERY_ELEMENTS_I16, GQUERY_L2, 100, 200, 800},
    {"1024 bits, Jaccard", GQUERY_ELEMENTS_BITS, GQUERY_JACCARD, 1024, 128, 128},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

typedef struct search {
    bench *b;
    CUmodule module;
    CUfunction function, nearest, products;
    bench_timer timer;
    unsigned threads, blocks, side;
    uint64_t rows, many_rows;
    gvm_buffer *memory; /* rows, distances, queries, the sums of their squares, their lists */
    uint64_t out_at, query_at, lists_at;
} search;

static bool load(search *s)
{
    const unsigned char *image = s->b->info.software ? gvmi_image_soft_query_search
                                                     : gvmi_image_cuda_query_search;
    int threads = 0, blocks = 0;
    CUresult result;

    if (image == NULL) {
        bench_note(s->b, "this build has no kernels for real GPUs: build it where nvcc is found");
        s->b->code = TOOL_FAILED;
        return false;
    }
    result = gvmi_cu->cuModuleLoadData(&s->module, image);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuModuleGetFunction(&s->function, s->module, "query_distance");
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuModuleGetFunction(&s->nearest, s->module, "query_nearest");
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuModuleGetFunction(&s->products, s->module, "query_products");
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                             s->function);
    s->threads = threads > BLOCK_THREADS ? BLOCK_THREADS : (unsigned)threads;
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, s->function,
                                                                      (int)s->threads, 3072);
    s->blocks = (unsigned)blocks * (unsigned)s->b->info.sm_count;
    s->side = s->b->info.software ? GQUERY_SIDE_SOFT : GQUERY_SIDE_MAX;
    if (result != CUDA_SUCCESS)
        bench_failed_driver(s->b, result, "loading the kernels");
    return result == CUDA_SUCCESS;
}

/* Lists whose bounds are below all distances: the time is that of the distances. */
static bool make_lists(search *s, size_t kind)
{
    const double bound = kinds[kind].metric == GQUERY_INNER ? -1e9 : 1e-3;
    gquery_list *lists = calloc(QUERIES, sizeof *lists);
    bool good = lists != NULL;
    int64_t key;

    memcpy(&key, &bound, sizeof key);
    if (key < 0)
        key ^= INT64_MAX;
    for (uint32_t i = 0; i < QUERIES && good; i++)
        lists[i] = (gquery_list){.words = 2, .bounded = 1, .bound = {key, INT64_MIN}};
    good = good && gvm_buffer_copy_in(s->memory, s->lists_at, lists, QUERIES * sizeof *lists) == GVM_OK;
    free(lists);
    return good;
}

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 32);
}

/* Two float16, a float, or bits; numbers are between 1 and 2. */
static uint32_t draw_word(uint32_t elements, uint64_t *state)
{
    const uint32_t word = draw(state);

    return elements == GQUERY_ELEMENTS_F16   ? 0x3c003c00u | (word & 0x03ff03ffu)
           : elements == GQUERY_ELEMENTS_F32 ? 0x3f800000u | (word & 0x007fffffu)
                                             : word;
}

/* Of a query: beside rows of float16 it is a float with as many bits as these have. */
static uint32_t draw_point_word(uint32_t elements, uint64_t *state)
{
    return elements == GQUERY_ELEMENTS_F16 ? 0x3f800000u | (draw(state) & 0x007fe000u)
                                           : draw_word(elements, state);
}

static double square_of(size_t kind, const uint8_t *query)
{
    double sum = 0;

    for (uint32_t at = 0; at < kinds[kind].query_bytes; at += 4) {
        uint32_t bits;
        float number;

        memcpy(&bits, query + at, sizeof bits);
        memcpy(&number, query + at, sizeof number);
        sum += kinds[kind].elements == GQUERY_ELEMENTS_BITS ? (double)__builtin_popcount(bits)
                                                            : (double)number * (double)number;
    }
    return sum;
}

/* All rows are those that many queries meet, again and again. */
static bool repeat_rows(search *s, size_t kind)
{
    const uint64_t all_bytes = s->rows * kinds[kind].stride;
    bool good = true;

    for (uint64_t bytes = s->many_rows * kinds[kind].stride; bytes < all_bytes && good; bytes *= 2)
        good = gvm_buffer_copy(s->memory, bytes, s->memory, 0,
                               bytes < all_bytes - bytes ? bytes : all_bytes - bytes) == GVM_OK;
    return good;
}

/* Rows, queries, and the squares of these. Where sums are of doubles, bits are any. */
static bool make_products(search *s, size_t kind)
{
    const uint64_t row_bytes = s->many_rows * kinds[kind].stride, query_bytes = QUERIES * POINT_BYTES;
    const uint64_t most = row_bytes > query_bytes ? row_bytes : query_bytes;
    uint32_t *words = malloc(most + 4);
    double squares[QUERIES];
    uint64_t state = 1;
    bool good = words != NULL;

    for (uint64_t at = 0; at < row_bytes / 4 && good; at++)
        words[at] = draw_word(kinds[kind].elements, &state);
    good = good && gvm_buffer_copy_in(s->memory, 0, words, row_bytes / 4 * 4) == GVM_OK &&
           repeat_rows(s, kind);
    for (uint64_t at = 0; at < query_bytes / 4 && good; at++)
        words[at] = draw_point_word(kinds[kind].elements, &state);
    for (uint32_t i = 0; i < QUERIES && good; i++)
        squares[i] = square_of(kind, (const uint8_t *)words + i * (uint64_t)kinds[kind].query_bytes);
    good = good && gvm_buffer_copy_in(s->memory, s->query_at, words, query_bytes) == GVM_OK &&
           gvm_buffer_copy_in(s->memory, s->query_at + query_bytes, squares, sizeof squares) == GVM_OK;
    free(words);
    return good;
}

static bool make_rows(search *s, size_t kind)
{
    const uint64_t values_bytes = s->rows * kinds[kind].stride;
    uint64_t bytes;

    s->out_at = (values_bytes + 255) / 256 * 256;
    s->query_at = s->out_at + s->rows * sizeof(double);
    s->lists_at = s->query_at + QUERIES * (POINT_BYTES + sizeof(double));
    bytes = s->query_at + MANY_BYTES;
    if (gvm_buffer_create(s->b->device, bytes, NULL, &s->memory) == GVM_OK &&
        gvm_buffer_commit(s->memory, 0, bytes) == GVM_OK &&
        gvm_kernel_fill_random_f64(s->b->device, gvm_buffer_address(s->memory), s->lists_at / 8, 0,
                                   1, NULL) == GVM_OK &&
        make_lists(s, kind) &&
        (!gquery_has_products(kinds[kind].elements, kinds[kind].metric) || make_products(s, kind)))
        return true;
    bench_failed(s->b, "making rows");
    return false;
}

static bool time_distances(search *s, size_t kind, double *us)
{
    const uint64_t base = (uint64_t)(uintptr_t)gvm_buffer_address(s->memory);
    gquery_distance p = {.values = base,
                         .query = base + s->query_at,
                         .out = base + s->out_at,
                         .limit = s->rows,
                         .query_square = 1,
                         .stride = kinds[kind].stride,
                         .count = kinds[kind].count,
                         .query_bytes = kinds[kind].query_bytes,
                         .elements = kinds[kind].elements,
                         .metric = kinds[kind].metric,
                         .lanes = gquery_lanes(kinds[kind].stride, s->b->info.software)};
    void *arguments[] = {&p};
    CUresult result;

    if (!bench_timer_start(s->b, &s->timer))
        return false;
    result = gvmi_cu->cuLaunchKernel(s->function, s->blocks, 1, 1, s->threads, 1, 1, p.query_bytes,
                                     s->timer.stream, arguments, NULL);
    if (result != CUDA_SUCCESS)
        bench_failed_driver(s->b, result, "launching");
    return result == CUDA_SUCCESS && bench_timer_stop(s->b, &s->timer, us);
}

/* Of many_rows from all queries. */
static bool time_many(search *s, size_t kind, double *us)
{
    const uint64_t base = (uint64_t)(uintptr_t)gvm_buffer_address(s->memory);
    const bool by_products = gquery_has_products(kinds[kind].elements, kinds[kind].metric);
    const CUfunction kernel = by_products ? s->products : s->nearest;
    const uint64_t each = s->side * (by_products ? GQUERY_PRODUCTS_EACH : GQUERY_NEAREST_EACH);
    const uint64_t tiles = (s->many_rows + each - 1) / each * ((QUERIES + each - 1) / each);
    gquery_nearest p = {.values = base,
                        .queries = base + s->query_at,
                        .query_squares = base + s->query_at + QUERIES * POINT_BYTES,
                        .lists = base + s->lists_at,
                        .limit = s->many_rows,
                        .query_count = QUERIES,
                        .stride = kinds[kind].stride,
                        .count = kinds[kind].count,
                        .query_bytes = kinds[kind].query_bytes,
                        .elements = kinds[kind].elements,
                        .metric = kinds[kind].metric,
                        .side = s->side};
    void *arguments[] = {&p};
    int blocks = 0;
    CUresult result = gvmi_cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, kernel, (int)(s->side * s->side), 0);
    const uint64_t resident = (uint64_t)blocks * (uint64_t)s->b->info.sm_count;

    if (!bench_timer_start(s->b, &s->timer))
        return false;
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuLaunchKernel(kernel, (unsigned)(tiles < resident ? tiles : resident), 1,
                                         1, s->side * s->side, 1, 1, 0, s->timer.stream, arguments,
                                         NULL);
    if (result != CUDA_SUCCESS)
        bench_failed_driver(s->b, result, "launching");
    return result == CUDA_SUCCESS && bench_timer_stop(s->b, &s->timer, us);
}

static bool time_read(search *s, size_t kind, double *us)
{
    uint64_t checksum;

    if (!bench_timer_start(s->b, &s->timer))
        return false;
    if (gvm_kernel_checksum(s->b->device, gvm_buffer_address(s->memory),
                            s->rows * kinds[kind].stride, s->timer.stream, &checksum) != GVM_OK) {
        bench_failed(s->b, "reading");
        return false;
    }
    return bench_timer_stop(s->b, &s->timer, us);
}

static bool measure(search *s, size_t kind)
{
    bench_samples distances = {0}, reads = {0}, many = {0};
    const uint64_t bytes = s->rows * kinds[kind].stride;
    double us = 0, read_us, found_us, many_us;

    for (int i = -1; i < REPETITIONS; i++) { /* the first warms up */
        if (!time_distances(s, kind, &us))
            return false;
        if (i >= 0)
            bench_add(&distances, us);
        if (!time_read(s, kind, &us))
            return false;
        if (i >= 0)
            bench_add(&reads, us);
        if (!time_many(s, kind, &us))
            return false;
        if (i >= 0)
            bench_add(&many, us);
    }
    found_us = bench_record(s->b, SECTION, kinds[kind].name, "us", bytes, kinds[kind].stride,
                            &distances);
    read_us = bench_record(s->b, SECTION, bench_text(s->b, "%s, a read", kinds[kind].name), "us",
                           bytes, kinds[kind].stride, &reads);
    many_us = bench_record(s->b, SECTION,
                           bench_text(s->b, "%s, %llu rows from %u queries", kinds[kind].name,
                                      (unsigned long long)s->many_rows, QUERIES),
                           "us", s->many_rows * kinds[kind].stride, kinds[kind].stride, &many);
    fprintf(s->b->text, "  %-28s %12.1f %12.1f %10.1f %8.2f %12.1f\n", kinds[kind].name, found_us,
            read_us, (double)bytes / found_us / 1e3, read_us / found_us,
            (double)s->many_rows * QUERIES * kinds[kind].count / many_us / 1e3);
    return true;
}

void bench_search(bench *b)
{
    search s = {.b = b,
                .rows = b->info.software ? (b->quick ? 2000 : 50000)
                        : b->quick       ? 1000000
                                         : 10000000};
    bool good;

    s.many_rows = s.rows / (b->info.software ? 500 : 50);
    good = load(&s) && bench_timer_create(b, &s.timer);

    if (good)
        fprintf(b->text,
                "\ndistances of %llu rows, and of %llu from %u queries (medians)\n  %-28s %12s %12s %10s %8s %12s\n",
                (unsigned long long)s.rows, (unsigned long long)s.many_rows, QUERIES, "", "us",
                "a read, us", "GB/s", "ratio", "1e9 terms/s");
    for (size_t kind = 0; kind < KINDS && good; kind++) {
        good = make_rows(&s, kind) && measure(&s, kind);
        gvm_buffer_destroy(s.memory);
        s.memory = NULL;
    }
    bench_timer_destroy(&s.timer);
    if (s.module != NULL)
        gvmi_cu->cuModuleUnload(s.module);
}
