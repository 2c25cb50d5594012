/* See run.h: distances of vectors from a query, which the program loads as it loads columns.
 *
 * Each launch of the scan comes after launches that compute the distances of its rows, into memory that the next
 * one uses again. So launches have a bound of rows, by which what one has written is still in the cache of a GPU
 * when the scan reads it, and which a batch is a multiple of.
 */
#include <string.h>

#include "query/run.h"

#define FLOAT4_TYPE 700
#define FLOAT8_TYPE 701
#define INT2_TYPE 21
/* Of vectors, in the first batch: some ms. */
#define BATCH_BYTES_SOFT (UINT64_C(64) << 20)
#define BATCH_BYTES_GPU (UINT64_C(16) << 30)
#define LAUNCH_ROWS (UINT64_C(4) << 20)
#define VECTOR_MAX (UINT32_C(1) << 23) /* elements, or bits: of 1 MiB */

/* ---- checks */

static uint32_t point_bytes(const gquery_wanted_distance *w)
{
    const uint32_t bytes = w->elements == GQUERY_ELEMENTS_BITS ? w->stride
                           : w->elements == GQUERY_ELEMENTS_F32 || w->elements == GQUERY_ELEMENTS_F16
                               ? w->count * 4
                               : w->count * 8;

    return (bytes + 15) / 16 * 16;
}

/* Bytes of a vector; 0: there are no such elements, or vectors would be too long. */
static uint64_t vector_bytes(const gquery_wanted_distance *w)
{
    static const uint8_t sizes[] = {
        [GQUERY_ELEMENTS_F32] = 4, [GQUERY_ELEMENTS_F16] = 2, [GQUERY_ELEMENTS_F64] = 8, [GQUERY_ELEMENTS_I16] = 2};

    if (w->count == 0 || w->count > VECTOR_MAX)
        return 0;
    if (w->elements == GQUERY_ELEMENTS_BITS)
        return (w->count + 7) / 8;
    return w->elements < sizeof sizes ? (uint64_t)w->count * sizes[w->elements] : 0;
}

static bool has_metric(const gquery_wanted_distance *w)
{
    const bool of_bits = w->metric == GQUERY_HAMMING || w->metric == GQUERY_JACCARD;

    return w->metric < GQUERY_METRICS && of_bits == (w->elements == GQUERY_ELEMENTS_BITS);
}

static bool is_named(const gquery_window *w, const gquery_column *c)
{
    return c->number < w->distance_count && c->form == GQUERY_F64;
}

/* The program of a search has no distance. */
static bool is_nearest(const gquery_query *q)
{
    const gquery_window *w = &q->c->query;

    for (uint32_t i = 0; i < w->program.column_count; i++)
        if (w->program.columns[i].table == GQUERY_DISTANCE)
            return false;
    return w->nearest <= GQUERY_NEAREST_MAX && w->distance_count == 1 && q->shape.marked &&
           w->list_max > 0 && w->list_max <= GQUERY_LIST_MAX;
}

bool gquery_distances_check(gquery_query *q)
{
    const gquery_window *w = &q->c->query;

    if (w->distance_count > GQUERY_DISTANCES_MAX)
        return gquery_refuse(q, "too many distances");
    if (w->nearest > 0 && !is_nearest(q))
        return gquery_refuse(q, "there is no such search");
    for (uint32_t i = 0; i < w->program.column_count; i++)
        if (w->program.columns[i].table == GQUERY_DISTANCE && !is_named(w, &w->program.columns[i]))
            return gquery_refuse(q, "a column is of no distance");
    for (uint32_t i = 0; i < w->distance_count; i++) {
        const gquery_wanted_distance *d = &w->distances[i];

        if (d->table != 0 || vector_bytes(d) == 0 || d->stride != vector_bytes(d) || !has_metric(d))
            return gquery_refuse(q, "there is no such distance");
        if (d->query.bytes != point_bytes(d) * (w->nearest > 0 ? w->nearest : UINT64_C(1)) ||
            gquery_at(q->c, d->query) == NULL)
            return gquery_refuse(q, "the vector of a distance is not in the file");
    }
    return true;
}

static bool has_elements(const gquery_wanted_distance *w, const gvm_table_column *c)
{
    switch (w->elements) {
    case GQUERY_ELEMENTS_F32: return c->element == FLOAT4_TYPE;
    case GQUERY_ELEMENTS_F16: return c->uniform == GVM_TABLE_VECTOR && c->element == 0;
    case GQUERY_ELEMENTS_F64: return c->element == FLOAT8_TYPE;
    case GQUERY_ELEMENTS_I16: return c->element == INT2_TYPE;
    default: return true;
    }
}

bool gquery_distance_fits(const gquery_query *q, const gquery_wanted_distance *wanted,
                          const gvm_table_column *column)
{
    const bool of_bits = wanted->elements == GQUERY_ELEMENTS_BITS;

    if (column->absent)
        return true;
    return (of_bits ? column->uniform == GVM_TABLE_BITS
                    : column->uniform == GVM_TABLE_VECTOR || column->uniform == GVM_TABLE_ELEMENTS) &&
           has_elements(wanted, column) && column->count == wanted->count &&
           column->width == wanted->stride &&
           column->values_bytes / wanted->stride >= q->attached->info.rows;
}

/* ---- memory */

/* How many rows a launch has, and the first batch. */
static void bound_rows(gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    const uint64_t most = q->device->info.software ? BATCH_BYTES_SOFT : BATCH_BYTES_GPU;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < w->distance_count; i++)
        bytes += w->distances[i].stride;
    while (q->unit > GQUERY_SLICE_LEAST && q->unit * bytes > most)
        q->unit = gquery_half_rows(q->unit);
    q->launch_rows = q->unit < LAUNCH_ROWS ? q->unit : LAUNCH_ROWS;
    /* What is left is for groups or a list. */
    while (q->launch_rows > GQUERY_SLICE_LEAST &&
           q->launch_rows * w->distance_count * sizeof(double) > w->scratch_bytes_max / 4)
        q->launch_rows = gquery_half_rows(q->launch_rows);
}

static bool send_point(gquery_query *q, const gquery_wanted_distance *w, uint64_t to, uint64_t *staged)
{
    const void *bytes = gquery_at(q->c, w->query);
    uint8_t *pinned = q->lane->host + GQUERY_POINTS_AT + *staged;

    if (w->query.bytes <= GQUERY_POINTS_BYTES - *staged) {
        memcpy(pinned, bytes, w->query.bytes);
        bytes = pinned;
        *staged += w->query.bytes;
    }
    return gquery_check_call(q, gvmi_cu->cuMemcpyHtoDAsync(to, bytes, w->query.bytes, q->lane->stream),
                             "cuMemcpyHtoDAsync");
}

static bool prepare_launch(gquery_query *q, const gquery_wanted_distance *w, gquery_vectors *v)
{
    v->launch = (gquery_distance){.values = v->launch.values,
                                  .query_square = w->query_square,
                                  .stride = w->stride,
                                  .count = w->count,
                                  .query_bytes = (uint32_t)w->query.bytes,
                                  .elements = w->elements,
                                  .metric = w->metric,
                                  .lanes = gquery_lanes(w->stride, q->device->info.software)};
    v->shared_bytes = w->query.bytes <= GQUERY_SEARCH_SHARED_BYTES ? (uint32_t)w->query.bytes : 0;
    return gquery_count_resident(q, q->device->distance, q->device->threads, v->shared_bytes,
                                 &v->blocks);
}

bool gquery_distances_prepare(gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    const uint64_t rows = w->tables[0].rows;
    uint64_t bytes = 0, points = 0, staged = 0, at;

    if (w->distance_count == 0 || rows == 0)
        return true;
    bound_rows(q);
    for (uint32_t i = 0; i < w->distance_count; i++)
        points += w->distances[i].query.bytes;
    bytes = (rows < q->launch_rows ? rows : q->launch_rows) * sizeof(double);
    if (!gquery_take_block(q, points + bytes * w->distance_count, &q->distances))
        return false;
    at = q->distances.address;
    for (uint32_t i = 0; i < w->distance_count; i++) {
        if (!prepare_launch(q, &w->distances[i], &q->vectors[i]) ||
            !send_point(q, &w->distances[i], at, &staged))
            return false;
        q->vectors[i].launch.query = at;
        q->vectors[i].launch.out = q->distances.address + points + i * bytes;
        at += w->distances[i].query.bytes;
    }
    return true;
}

/* ---- launches */

/* Kernels find row r at values + 8 * r. */
static void set_sources(gquery_query *q, uint64_t first)
{
    const gquery_program *p = &q->c->query.program;

    for (uint32_t i = 0; i < p->column_count; i++)
        if (p->columns[i].table == GQUERY_DISTANCE) {
            const gquery_vectors *v = &q->vectors[p->columns[i].number];

            q->scan.sources[i] = v->launch.values == 0
                                     ? gquery_source_at(&p->columns[i], 0, 0)
                                     : gquery_source_at(&p->columns[i],
                                                        v->launch.out - sizeof(double) * first,
                                                        v->nulls);
        }
}

bool gquery_distances_launch(gquery_query *q, uint64_t first, uint64_t limit)
{
    if (q->stage > 0 || q->c->query.nearest > 0)
        return true;
    for (uint32_t i = 0; i < q->c->query.distance_count; i++) {
        gquery_vectors *v = &q->vectors[i];
        const uint64_t threads = (limit - first) * v->launch.lanes;
        const uint64_t blocks = (threads + q->device->threads - 1) / q->device->threads;

        v->launch.first = first;
        v->launch.limit = limit;
        if (v->launch.values != 0 && first < limit &&
            !gquery_launch(q, q->device->distance, blocks < v->blocks ? blocks : v->blocks,
                           q->device->threads, v->shared_bytes, &v->launch))
            return false;
    }
    set_sources(q, first);
    return true;
}
