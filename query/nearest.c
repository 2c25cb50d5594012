/* See run.h: of each of many queries the k rows that are nearest to it.
 *
 * Which rows count is a bitmap, made before. Then rows go through in slices, of which kernels find the distances from all queries, so that a row is read once for many of
 * them. Each query has a list of k entries and room for as many as a slice has rows; after a slice the first k are left, and the k-th is a bound for those of the next one.
 */
#include <stdlib.h>
#include <string.h>

#include "query/run.h"

#define ENTRY_WORDS 2u
#define ENTRY_BYTES (ENTRY_WORDS * sizeof(int64_t))
#define SLICE_FIRST \
    UINT64_C(4096) /* rows: all of their entries are beneath the bound, as there is none */
#define SLICE_MOST (UINT64_C(256) << 10)
#define SLICE_LEAST UINT64_C(64)
/* Bytes of rows, for each query, in a slice: some ms. */
#define SLICE_BYTES_SOFT (UINT64_C(1) << 28)
#define SLICE_BYTES_GPU (UINT64_C(1) << 36)

typedef struct nearest {
    uint64_t queries, k;
    uint64_t rows;   /* of a slice, at most */
    uint64_t points; /* bytes */
    gquery_nearest launch;
    gquery_shorten shorten;
    uint32_t threads, blocks, product_blocks;
} nearest;

/* ---- memory: queries, their squares, lists, and what is kept of these; entries of both */

static uint64_t slice_rows(const gquery_query *q, const nearest *n)
{
    const gquery_wanted_distance *d = &q->c->query.distances[0];
    const uint64_t most = q->device->info.software ? SLICE_BYTES_SOFT : SLICE_BYTES_GPU;
    const uint64_t fixed = n->points + n->queries * (sizeof(double) + 2 * sizeof(gquery_list) +
                                                     2 * n->k * ENTRY_BYTES);
    const uint64_t scratch = q->c->query.scratch_bytes_max - q->scratch_bytes;
    /* Blocks may take more than is asked for. */
    const uint64_t room = scratch > fixed ? (scratch - fixed) / 4 * 3 / (n->queries * ENTRY_BYTES) : 0;
    uint64_t rows = most / (n->queries * d->stride);

    rows = rows < SLICE_MOST ? rows : SLICE_MOST;
    rows = rows < room ? rows : room;
    return rows > SLICE_LEAST ? rows : SLICE_LEAST;
}

static double square_of(const gquery_wanted_distance *d, const uint8_t *point, uint64_t bytes)
{
    const bool is_float = d->elements == GQUERY_ELEMENTS_F32 || d->elements == GQUERY_ELEMENTS_F16;
    double sum = 0;

    for (uint64_t i = 0; i < bytes && d->elements == GQUERY_ELEMENTS_BITS; i++)
        sum += __builtin_popcount(point[i]);
    for (uint32_t i = 0; i < d->count && d->elements != GQUERY_ELEMENTS_BITS; i++) {
        const double element = is_float ? (double)((const float *)(const void *)point)[i]
                                        : ((const double *)(const void *)point)[i];

        sum += element * element;
    }
    return sum;
}

static void fill_lists(gquery_list *lists, uint64_t entries, uint64_t max, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        lists[i] = (gquery_list){
            .entries = entries + i * max * ENTRY_BYTES, .max = max, .words = ENTRY_WORDS};
}

/* As it is on the device; freed when the query has ended. */
static bool stage(gquery_query *q, const nearest *n, uint64_t bytes)
{
    const gquery_wanted_distance *d = &q->c->query.distances[0];
    const uint64_t each = n->points / n->queries;
    uint8_t *staged = malloc(bytes);

    q->staged = staged;
    if (staged == NULL) {
        gquery_answer(q->answer, GQUERY_NO_ROOM, "53200", "out of memory for the queries");
        return false;
    }
    memcpy(staged, gquery_at(q->c, d->query), n->points);
    for (uint64_t i = 0; i < n->queries; i++)
        ((double *)(void *)(staged + n->points))[i] = square_of(d, staged + i * each, each);
    fill_lists((gquery_list *)(void *)(staged + n->points + n->queries * sizeof(double)),
               q->list.address, n->k + n->rows, n->queries);
    fill_lists((gquery_list *)(void *)(staged + bytes - n->queries * sizeof(gquery_list)),
               q->kept.address, n->k, n->queries);
    return true;
}

static bool take_memory(gquery_query *q, nearest *n)
{
    const gquery_wanted_distance *d = &q->c->query.distances[0];
    const uint64_t squares = n->queries * sizeof(double), lists = n->queries * sizeof(gquery_list);
    const uint64_t bytes = n->points + squares + 2 * lists;

    if (!gquery_take_block(q, bytes, &q->distances) ||
        !gquery_take_block(q, n->queries * n->k * ENTRY_BYTES, &q->kept) ||
        !gquery_take_block(q, n->queries * (n->k + n->rows) * ENTRY_BYTES, &q->list) ||
        !stage(q, n, bytes))
        return false;
    n->launch = (gquery_nearest){.values = q->vectors[0].launch.values,
                                 .nulls = q->vectors[0].nulls,
                                 .marked = q->marked.address,
                                 .queries = q->distances.address,
                                 .query_squares = q->distances.address + n->points,
                                 .lists = q->distances.address + n->points + squares,
                                 .query_count = n->queries,
                                 .stride = d->stride,
                                 .count = d->count,
                                 .query_bytes = (uint32_t)(n->points / n->queries),
                                 .elements = d->elements,
                                 .metric = d->metric,
                                 .side = q->device->info.software ? GQUERY_SIDE_SOFT : GQUERY_SIDE_MAX};
    n->shorten = (gquery_shorten){.lists = n->launch.lists, .kept = n->launch.lists + lists, .k = n->k};
    n->threads = n->launch.side * n->launch.side;
    return gquery_count_resident(q, q->device->nearest, n->threads, 0, &n->blocks) &&
           gquery_count_resident(q, q->device->products, n->threads, 0, &n->product_blocks) &&
           gquery_check_call(
               q, gvmi_cu->cuMemcpyHtoDAsync(q->distances.address, q->staged, bytes, q->lane->stream),
               "cuMemcpyHtoDAsync");
}

/* ---- slices */

/* Products skip nothing while lists have no bounds, as they have had k rows at most. Of bits there is no other kernel. */
static bool is_by_products(const nearest *n)
{
    const gquery_nearest *p = &n->launch;

    return gquery_has_products(p->elements, p->metric) &&
           (p->first > n->k || p->elements == GQUERY_ELEMENTS_BITS);
}

static bool launch_pairs(gquery_query *q, const nearest *n)
{
    const bool by_products = is_by_products(n);
    const uint64_t each = n->launch.side * (by_products ? GQUERY_PRODUCTS_EACH : GQUERY_NEAREST_EACH);
    const uint64_t tiles = (n->launch.limit - n->launch.first + each - 1) / each *
                           ((n->queries + each - 1) / each);
    const uint64_t blocks = by_products ? n->product_blocks : n->blocks;

    return gquery_launch(q, by_products ? q->device->products : q->device->nearest,
                         tiles < blocks ? tiles : blocks, n->threads, 0, &n->launch);
}

static bool run_slice(gquery_query *q, nearest *n, uint64_t first, uint64_t limit)
{
    n->launch.first = first;
    n->launch.limit = limit;
    n->shorten.last = limit == q->c->query.tables[0].rows;
    return gquery_batch_begin(q) && launch_pairs(q, n) &&
           gquery_launch(q, q->device->shorten, n->queries, q->device->select_threads, 0, &n->shorten) &&
           gquery_batch_end(q, 0);
}

static bool run_slices(gquery_query *q, nearest *n)
{
    const uint64_t rows = q->c->query.tables[0].rows;
    uint64_t slice = SLICE_FIRST < n->rows ? SLICE_FIRST : n->rows;

    for (uint64_t first = 0; first < rows;) {
        const uint64_t limit = rows - first < slice ? rows : first + slice;

        if (!run_slice(q, n, first, limit))
            return false;
        (void)gquery_batch_adapt(q, limit - first); /* its time counts */
        if (gquery_batch_look(q) != GQUERY_SCANNED)
            return false;
        slice = slice * 2 < n->rows ? slice * 2 : n->rows;
        first = limit;
    }
    return true;
}

/* Entries, or, if they are few enough and there is room, records with the values of their rows. */
static bool write_results(gquery_query *q, const nearest *n)
{
    const uint64_t entries = n->queries * n->k;
    const uint32_t words = gquery_gathered_words(q);

    gquery_give_block(q, &q->list);
    if (entries > q->c->query.gather_max ||
        gquery_scratch_size(entries * words * sizeof(uint64_t)) > gquery_room(q))
        return gquery_write_block(q, &q->kept, entries, ENTRY_WORDS, false);
    return gquery_take_block(q, entries * words * sizeof(uint64_t), &q->gathered) &&
           gquery_gather_values(q, &q->kept, entries, 2, 0) &&
           gquery_write_block(q, &q->gathered, entries, words, true);
}

bool gquery_run_nearest(gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    const uint64_t rows = w->tables[0].rows;
    nearest n = {.queries = w->nearest,
                 .k = w->list_max < rows ? w->list_max : rows,
                 .points = w->distances[0].query.bytes};

    if (rows == 0 || q->vectors[0].launch.values == 0)
        return gquery_write_records(q, NULL, 0, ENTRY_WORDS);
    if (!gquery_mark(q))
        return false;
    n.rows = slice_rows(q, &n);
    return take_memory(q, &n) && run_slices(q, &n) && write_results(q, &n);
}
