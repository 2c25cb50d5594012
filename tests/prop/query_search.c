/* Distances of rows from a query, the rows nearest to many, and the first entries of lists, beside what the CPU finds. See query/search.h.
 *
 *     query_search [CASES [SEED]]
 *
 * Goal: each distance is within its bound of the exact one, whatever the elements, their number and where rows begin; the bound
 * of a list is the entry that sorting finds; no row that is left out of the nearest ones is nearer than one of these, beyond the bounds of both,
 * or an earlier equal one. Method: random rows and queries, some with infinities, NaN, zeros and
 * subnormals, some so small or large that floats cannot hold their squares; sums in long double on the CPU. Lists have few different words, so that many begin alike.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "driver/driver.h"
#include "query/search.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"

#ifdef __SANITIZE_THREAD__ /* 4 minutes for as many as below */
#define CASES 100u
#else
#define CASES 300u
#endif
#define ROWS_MAX 300u
#define COUNT_MAX 3000u
#define ENTRIES_MAX 5000u
#define VALUES_AT 0u
#define VALUES_BYTES (ROWS_MAX * COUNT_MAX * 8u)
#define QUERY_AT VALUES_BYTES
#define OUT_AT (QUERY_AT + COUNT_MAX * 8u)
#define BYTES (OUT_AT + ROWS_MAX * 8u + 4096u)
#define FLOAT_ERROR 0x1p-23

extern const unsigned char gvmi_image_soft_query_search[];
extern const unsigned char *const gvmi_image_cuda_query_search;

static gvm_device *device;
static gvm_device_info info = {.struct_size = sizeof info};
static CUmodule module;
static CUfunction distance_kernel, select_kernel, keep_kernel, nearest_kernel, products_kernel,
    shorten_kernel;
static gvm_buffer *memory;
static uint64_t state, base;
static unsigned warp;
static uint8_t *mirror; /* of the memory */
static char problem[512];

#define WRONG(...) (snprintf(problem, sizeof problem, __VA_ARGS__), false)

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

static bool launch(CUfunction function, unsigned blocks, unsigned threads, unsigned shared, void *params)
{
    void *arguments[] = {params};
    const CUresult result = gvmi_cu->cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared,
                                                    NULL, arguments, NULL);
    const CUresult after = result == CUDA_SUCCESS ? gvmi_cu->cuStreamSynchronize(NULL) : result;

    return after == CUDA_SUCCESS || WRONG("launch: CUresult %d", (int)after);
}

static bool upload(void)
{
    return gvm_buffer_copy_in(memory, 0, mirror, BYTES) == GVM_OK || WRONG("copy in");
}

static bool download(void)
{
    return gvm_buffer_copy_out(mirror, memory, 0, BYTES) == GVM_OK || WRONG("copy out");
}

/* ---- distances */

typedef struct drawn {
    gquery_distance p;
    uint32_t rows, size;   /* bytes of an element */
    bool special, repeats; /* repeats: half of the rows are those of earlier ones */
    double row_scale, query_scale;
} drawn;

static double half_value(uint16_t half)
{
    const int exponent = half >> 10 & 31;
    const double fraction = half & 1023, sign = (half & 0x8000) != 0 ? -1 : 1;

    if (exponent == 31)
        return fraction == 0 ? sign * INFINITY : NAN;
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

static double draw_number(bool special, double scale)
{
    switch (special ? draw(12) : 12) {
    case 0: return NAN;
    case 1: return INFINITY;
    case 2: return 0x1p-140;
    case 3: return -0.0;
    default: return ((double)(int64_t)draw(2001) / 100 - 10) * scale;
    }
}

/* Of numbers that are normal as floats, or nearly so. */
static double draw_scale(void)
{
    return draw(2) == 0 ? 1 : ldexp(1, (int)draw(270) - 146);
}

static uint16_t draw_half(const drawn *d)
{
    const uint64_t bits = random_next(&state);

    return (uint16_t)((bits & 0x83ff) | (d->special ? bits & 0x7c00 : (10 + bits % 10) << 10));
}

static void draw_element(const drawn *d, uint8_t *at)
{
    const double number = draw_number(d->special, d->row_scale);
    const float narrow = (float)number;
    const uint64_t bits = random_next(&state);
    const uint16_t half = draw_half(d);

    switch (d->p.elements) {
    case GQUERY_ELEMENTS_F32: memcpy(at, &narrow, 4); break;
    case GQUERY_ELEMENTS_F64: memcpy(at, &number, 8); break;
    case GQUERY_ELEMENTS_F16: memcpy(at, &half, 2); break;
    default: memcpy(at, &bits, d->size);
    }
}

/* Of a row, or, as numbers are wider there, of the query. */
static double element(const drawn *d, const uint8_t *row, uint32_t i, bool of_query)
{
    float narrow;
    double wide;
    int16_t integer;
    uint16_t half;

    switch (of_query && d->p.elements == GQUERY_ELEMENTS_I16   ? GQUERY_ELEMENTS_F64
            : of_query && d->p.elements == GQUERY_ELEMENTS_F16 ? GQUERY_ELEMENTS_F32
                                                               : d->p.elements) {
    case GQUERY_ELEMENTS_F32: memcpy(&narrow, row + 4 * i, 4); return narrow;
    case GQUERY_ELEMENTS_F64: memcpy(&wide, row + 8 * i, 8); return wide;
    case GQUERY_ELEMENTS_F16: memcpy(&half, row + 2 * i, 2); return half_value(half);
    case GQUERY_ELEMENTS_I16: memcpy(&integer, row + 2 * i, 2); return integer;
    default: return row[i / 8] >> (7 - i % 8) & 1;
    }
}

/* halves: of floats that are float16s, too, where rows are of these. */
static void draw_query(drawn *d, uint8_t *query, bool halves)
{
    const bool wide = d->p.elements == GQUERY_ELEMENTS_F64 || d->p.elements == GQUERY_ELEMENTS_I16;

    d->p.query_square = 0;
    for (uint32_t i = 0; i < d->p.count; i++) {
        const double number = halves && d->p.elements == GQUERY_ELEMENTS_F16
                                  ? half_value(draw_half(d))
                                  : draw_number(d->special, d->query_scale);
        const float narrow = (float)number;

        if (wide)
            memcpy(query + 8 * i, &number, 8);
        else
            memcpy(query + 4 * i, &narrow, 4);
        d->p.query_square += wide ? number * number : (double)narrow * narrow;
    }
    d->p.query_bytes = (d->p.count * (wide ? 8 : 4) + 15) / 16 * 16;
}

/* Bits behind the last one are 0, in rows and in the query. */
static void draw_bits(drawn *d, uint8_t *at, uint32_t bytes)
{
    memset(at, 0, bytes);
    for (uint32_t i = 0; i < d->p.count; i++)
        at[i / 8] |= (uint8_t)((draw(3) == 0) << (7 - i % 8));
}

static void draw_rows(drawn *d)
{
    static const uint32_t sizes[] = {4, 2, 8, 2, 0};

    memset(d, 0, sizeof *d);
    d->p.elements = (uint32_t)draw(GQUERY_ELEMENTS);
    d->p.metric = (uint32_t)(d->p.elements == GQUERY_ELEMENTS_BITS ? GQUERY_HAMMING + draw(2)
                                                                   : draw(GQUERY_HAMMING));
    d->p.count = 1 + (uint32_t)draw(draw(2) == 0 ? 40 : draw(2) == 0 ? 1000 : COUNT_MAX);
    if (draw(2) == 0)
        d->p.count = (d->p.count + 127) / 128 * 128 < COUNT_MAX ? (d->p.count + 127) / 128 * 128 : 128;
    d->size = sizes[d->p.elements];
    d->p.stride = d->size == 0 ? (d->p.count + 7) / 8 : d->size * d->p.count;
    d->special = draw(8) == 0;
    d->repeats = draw(4) == 0;
    d->row_scale = draw(3) == 0 ? draw_scale() : 1;
    d->query_scale = draw(2) == 0 ? d->row_scale : draw_scale();
    d->rows = (uint32_t)draw(ROWS_MAX + 1);
    d->p.first = d->rows == 0 ? 0 : draw(d->rows);
    d->p.limit = d->rows;
    d->p.lanes = draw(2) == 0 ? 1u << draw(4) : gquery_lanes(d->p.stride, false);
    if (d->p.lanes > warp)
        d->p.lanes = warp;
    for (uint32_t r = 0; r < d->rows; r++)
        if (d->size == 0)
            draw_bits(d, mirror + VALUES_AT + r * d->p.stride, d->p.stride);
        else
            for (uint32_t i = 0; i < d->p.count; i++)
                draw_element(d, mirror + VALUES_AT + r * d->p.stride + i * d->size);
    for (uint32_t r = 1; r < d->rows && d->repeats; r++)
        memmove(mirror + VALUES_AT + r * d->p.stride,
                mirror + VALUES_AT + (draw(2) == 0 ? draw(r) : r) * d->p.stride, d->p.stride);
    d->p.query_bytes = (d->p.stride + 15) / 16 * 16;
    if (d->size == 0)
        draw_bits(d, mirror + QUERY_AT, d->p.query_bytes);
    else
        draw_query(d, mirror + QUERY_AT, false);
    d->p.values = base + VALUES_AT;
    d->p.query = base + QUERY_AT;
    d->p.out = base + OUT_AT;
}

/* The exact distance, and by how much another one may differ. */
static double expect(const drawn *d, uint32_t r, const uint8_t *query, double *bound)
{
    const uint8_t *row = mirror + VALUES_AT + r * d->p.stride;
    long double sum = 0, square = 0, size = 0, both = 0;
    const double unit = d->p.elements == GQUERY_ELEMENTS_F32 || d->p.elements == GQUERY_ELEMENTS_F16
                            ? FLOAT_ERROR
                            : 0x1p-50;

    for (uint32_t i = 0; i < d->p.count; i++) {
        const long double x = element(d, row, i, false), q = element(d, query, i, true);
        const long double term = d->p.metric == GQUERY_L2        ? (x - q) * (x - q)
                                 : d->p.metric == GQUERY_L1      ? fabsl(x - q)
                                 : d->p.metric == GQUERY_HAMMING ? (long double)(x != q)
                                                                 : x * q;
        sum += term;
        size += fabsl(term);
        square += x * x;
        both += x + q - x * q;
    }
    *bound = (double)(size * unit * (8 + d->p.count / 4.0L));
    switch (d->p.metric) {
    case GQUERY_L2: *bound = sum > 0 ? *bound / sqrt((double)sum) : 0; return sqrt((double)sum);
    case GQUERY_INNER: return (double)-sum;
    case GQUERY_COSINE:
        *bound = (double)(*bound / sqrtl(square * (long double)d->p.query_square)) +
                 unit * (8 + d->p.count / 4.0);
        return (double)(1 - sum / sqrtl(square * (long double)d->p.query_square));
    case GQUERY_JACCARD: return sum == 0 ? 1 : (double)(1 - sum / both);
    default: return (double)sum;
    }
}

static bool is_near(double found, double wanted, double bound)
{
    if (isnan(wanted))
        return isnan(found);
    return found == wanted || fabs(found - wanted) <= bound || !isfinite(bound);
}

static bool check_distances(void)
{
    drawn d;

    draw_rows(&d);
    if (!upload() ||
        !launch(distance_kernel, 1 + (unsigned)draw(4), warp * (1 + (unsigned)draw(2)),
                d.p.query_bytes <= GQUERY_SEARCH_SHARED_BYTES ? d.p.query_bytes : 0, &d.p) ||
        !download())
        return false;
    for (uint32_t r = (uint32_t)d.p.first; r < d.rows; r++) {
        double found, bound;
        const double wanted = expect(&d, r, mirror + QUERY_AT, &bound);

        memcpy(&found, mirror + OUT_AT + 8 * (r - d.p.first), 8);
        if (!is_near(found, wanted, bound))
            return WRONG(
                "elements %u, metric %u, count %u, row %u: %.17g instead of %.17g, more than %g away",
                d.p.elements, d.p.metric, d.p.count, r, found, wanted, bound);
    }
    return true;
}

/* ---- the rows nearest to many queries, all of it behind the rows */

#define QUERIES_MAX 20u
#define ELEMENTS_MAX 30000u /* of all rows: the exact distances from each query take time */
#define POINTS_AT (1u << 20)
#define SQUARES_AT (2u << 20)
#define MARKED_AT (SQUARES_AT + 65536u)
#define NULLS_AT (MARKED_AT + 4096u)
#define LISTS_AT (SQUARES_AT + 131072u)
#define KEPT_LISTS_AT (LISTS_AT + 65536u)
#define ENTRIES_AT (3u << 20)
#define KEPT_AT (4u << 20)

typedef struct many {
    drawn d;
    gquery_nearest p;
    uint64_t k;
    bool has_nulls;
} many;

static bool counts(const many *m, uint64_t row)
{
    return (mirror[MARKED_AT + row / 8] >> row % 8 & 1) != 0 &&
           (!m->has_nulls || (mirror[NULLS_AT + row / 8] >> row % 8 & 1) != 0);
}

static void draw_lists(const many *m)
{
    gquery_list *lists = (gquery_list *)(mirror + LISTS_AT);
    gquery_list *kept = (gquery_list *)(mirror + KEPT_LISTS_AT);
    const uint64_t max = m->k + m->d.rows;

    for (uint64_t i = 0; i < m->p.query_count; i++) {
        lists[i] = (gquery_list){.entries = base + ENTRIES_AT + i * max * 16, .max = max, .words = 2};
        kept[i] = (gquery_list){.entries = base + KEPT_AT + i * m->k * 16, .max = m->k, .words = 2};
    }
}

static void draw_many(many *m)
{
    drawn *d = &m->d;

    memset(m, 0, sizeof *m);
    do
        draw_rows(d);
    while ((uint64_t)d->rows * d->p.count > ELEMENTS_MAX ||
           (uint64_t)d->rows * d->p.stride > POINTS_AT);
    m->k = 1 + draw(ROWS_MAX);
    m->has_nulls = draw(2) == 0;
    m->p = (gquery_nearest){.values = base + VALUES_AT,
                            .nulls = m->has_nulls ? base + NULLS_AT : 0,
                            .marked = base + MARKED_AT,
                            .queries = base + POINTS_AT,
                            .query_squares = base + SQUARES_AT,
                            .lists = base + LISTS_AT,
                            .query_count = 1 + draw(QUERIES_MAX),
                            .stride = d->p.stride,
                            .count = d->p.count,
                            .query_bytes = d->p.query_bytes,
                            .elements = d->p.elements,
                            .metric = d->p.metric,
                            .side = info.software  ? 1u << draw(4)
                                    : draw(2) == 0 ? GQUERY_SIDE_MAX /* tensor cores */
                                                   : 1u << draw(5)};
    for (uint64_t i = 0; i < m->p.query_count; i++) {
        uint8_t *query = mirror + POINTS_AT + i * d->p.query_bytes;

        memset(query, 0, d->p.query_bytes);
        if (d->size == 0) {
            draw_bits(d, query, d->p.query_bytes);
            d->p.query_square = 0;
            for (uint32_t b = 0; b < d->p.query_bytes; b++)
                d->p.query_square += __builtin_popcount(query[b]);
        } else {
            draw_query(d, query, true);
        }
        memcpy(mirror + SQUARES_AT + 8 * i, &d->p.query_square, 8);
    }
    for (uint32_t i = 0; i < ROWS_MAX / 8 + 1; i++) {
        mirror[MARKED_AT + i] = (uint8_t)(random_next(&state) | random_next(&state));
        mirror[NULLS_AT + i] = (uint8_t)(random_next(&state) | random_next(&state));
    }
    draw_lists(m);
}

static bool run_many(const many *m)
{
    gquery_shorten shorten = {base + LISTS_AT, base + KEPT_LISTS_AT, m->k, 0};
    uint64_t first = 0;

    do {
        const bool by_products = gquery_has_products(m->p.elements, m->p.metric) &&
                                 (m->p.elements == GQUERY_ELEMENTS_BITS || draw(2) == 0);
        gquery_nearest p = m->p;

        p.first = first;
        p.limit = first = draw(2) == 0 ? m->d.rows : first + draw(m->d.rows - first + 1);
        shorten.last = first == m->d.rows;
        if ((p.first < p.limit && !launch(by_products ? products_kernel : nearest_kernel,
                                          1 + (unsigned)draw(4), p.side * p.side, 0, &p)) ||
            !launch(shorten_kernel, (unsigned)p.query_count, warp, 0, &shorten))
            return false;
    } while (first < m->d.rows);
    return true;
}

/* That of an entry, by GQUERY_ORDER_KEY. */
static double distance_of_entry(const int64_t *entry)
{
    const int64_t bits = entry[0] >= 0 ? entry[0] : entry[0] ^ INT64_MAX;
    double distance;

    memcpy(&distance, &bits, 8);
    return distance;
}

/* The entries of one query, of which `seen` are the rows; *most: the greatest distance. */
static bool check_entries(const many *m, const uint8_t *query, const int64_t *entries, bool *seen,
                          double *most, double *most_bound)
{
    uint64_t wanted = 0, found = 0;

    for (uint64_t r = 0; r < m->d.rows; r++)
        wanted += counts(m, r);
    for (; found < m->k && entries[2 * found + 1] != -1; found++) {
        const uint64_t row = (uint64_t)entries[2 * found + 1];
        const double distance = distance_of_entry(entries + 2 * found);
        double bound, exact;

        if (row >= m->d.rows || !counts(m, row) || seen[row])
            return WRONG("row %llu is not wanted", (unsigned long long)row);
        seen[row] = true;
        exact = expect(&m->d, (uint32_t)row, query, &bound);
        if (!is_near(distance, exact, bound))
            return WRONG("row %llu: %.17g instead of %.17g", (unsigned long long)row, distance, exact);
        if (found == 0 || isnan(distance) || distance > *most) {
            *most = distance;
            *most_bound = bound;
        }
    }
    return found == (wanted < m->k ? wanted : m->k) ||
           WRONG("%llu rows of %llu, k %llu", (unsigned long long)found, (unsigned long long)wanted,
                 (unsigned long long)m->k);
}

/* Of equal rows the first ones are nearest. */
static bool check_repeats(const many *m, const bool *seen)
{
    const uint8_t *rows = mirror + VALUES_AT;

    for (uint32_t r = 0; r < m->d.rows; r++)
        for (uint32_t later = r + 1; later < m->d.rows && m->d.repeats && counts(m, r) && !seen[r];
             later++)
            if (seen[later] &&
                memcmp(rows + r * m->d.p.stride, rows + later * m->d.p.stride, m->d.p.stride) == 0)
                return WRONG("row %u is there and not %u, which is equal", later, r);
    return true;
}

static bool check_query(many *m, uint64_t i)
{
    const uint8_t *query = mirror + POINTS_AT + i * m->d.p.query_bytes;
    bool seen[ROWS_MAX + 1] = {false};
    double most = INFINITY, most_bound = 0;

    memcpy(&m->d.p.query_square, mirror + SQUARES_AT + 8 * i, 8);
    if (!check_entries(m, query, (const int64_t *)(mirror + KEPT_AT) + i * m->k * 2, seen, &most,
                       &most_bound) ||
        !check_repeats(m, seen))
        return false;
    for (uint32_t r = 0; r < m->d.rows; r++) {
        double bound;
        const double exact = expect(&m->d, r, query, &bound);

        if (counts(m, r) && !seen[r] &&
            (exact + bound < most - most_bound || (isnan(most) && !isnan(exact))))
            return WRONG("row %u is nearer, %.17g, than %.17g", r, exact, most);
    }
    return true;
}

static bool check_nearest(void)
{
    many m;

    draw_many(&m);
    if (!upload() || !run_many(&m) || !download())
        return false;
    for (uint64_t i = 0; i < m.p.query_count; i++)
        if (!check_query(&m, i)) {
            char why[sizeof problem];

            snprintf(why, sizeof why, "%s", problem);
            return WRONG("elements %u, metric %u, count %u, query %llu: %.300s", m.d.p.elements,
                         m.d.p.metric, m.d.p.count, (unsigned long long)i, why);
        }
    return true;
}

/* ---- lists */

static uint32_t compared_words;

static int compare_entries(const void *one, const void *other)
{
    const int64_t *a = one, *b = other;

    for (uint32_t w = 0; w < compared_words; w++)
        if (a[w] != b[w])
            return a[w] < b[w] ? -1 : 1;
    return 0;
}

/* Two lists, behind each other, and their entries. */
static bool check_list(void)
{
    static int64_t sorted[ENTRIES_MAX * GQUERY_ENTRY_WORDS_MAX];
    gquery_list *lists = (gquery_list *)mirror;
    int64_t *entries = (int64_t *)(mirror + 4096);
    const uint32_t words = 1 + (uint32_t)draw(GQUERY_ENTRY_WORDS_MAX);
    const uint64_t count = 1 + draw(ENTRIES_MAX), k = 1 + draw(count + 1), max = count + draw(2);
    const uint64_t second = 4096 + ENTRIES_MAX * sizeof sorted[0] * GQUERY_ENTRY_WORDS_MAX;
    gquery_select select = {base, base + sizeof(gquery_list), k};

    memset(lists, 0, 2 * sizeof *lists);
    lists[0] = (gquery_list){.entries = base + 4096,
                             .count = count + draw(3),
                             .max = max < count ? count : max,
                             .words = words};
    if (lists[0].count > count) /* some were left out */
        lists[0].max = count;
    lists[1] = (gquery_list){.entries = base + second, .max = ENTRIES_MAX, .words = words};
    for (uint64_t i = 0; i < count * words; i++)
        entries[i] = i % words == words - 1 ? (int64_t)(i / words)
                     : draw(3) == 0         ? (int64_t)random_next(&state)
                                            : (int64_t)draw(3) - 1;
    memcpy(sorted, entries, count * words * 8);
    compared_words = words;
    qsort(sorted, count, words * 8, compare_entries);
    if (!upload() || !launch(select_kernel, 1, warp * 2, 0, &select) ||
        !launch(keep_kernel, 3, warp, 0, &select) || !download())
        return false;
    if (k > count)
        return (lists[0].bounded == 0 && lists[1].count == count) ||
               WRONG("a list of %llu entries has a bound", (unsigned long long)count);
    if (lists[0].bounded == 0 || memcmp(lists[0].bound, sorted + (k - 1) * words, words * 8) != 0)
        return WRONG("the bound is not entry %llu of %llu, of %u words", (unsigned long long)k,
                     (unsigned long long)count, words);
    qsort(mirror + second, lists[1].count < ENTRIES_MAX ? lists[1].count : 0, words * 8,
          compare_entries);
    return (lists[1].count == k && lists[1].bounded == 1 &&
            memcmp(lists[1].bound, lists[0].bound, words * 8) == 0 &&
            memcmp(mirror + second, sorted, k * words * 8) == 0) ||
           WRONG("%llu entries were kept of %llu, or others", (unsigned long long)lists[1].count,
                 (unsigned long long)k);
}

/* ---- the test */

static bool open_device(void)
{
    if (!device_open_with_kernels(gvmi_image_soft_query_search, gvmi_image_cuda_query_search,
                                  &device, &info, &module))
        return false;
    if (module == NULL)
        return true;
    if (gvmi_cu->cuModuleGetFunction(&distance_kernel, module, "query_distance") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&select_kernel, module, "query_select") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&keep_kernel, module, "query_keep") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&nearest_kernel, module, "query_nearest") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&products_kernel, module, "query_products") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&shorten_kernel, module, "query_shorten") != CUDA_SUCCESS ||
        gvm_buffer_create(device, 16 * MIB, NULL, &memory) != GVM_OK ||
        gvm_buffer_commit(memory, 0, 16 * MIB) != GVM_OK)
        return false;
    warp = (unsigned)info.warp_size;
    base = gvmi_address(gvm_buffer_address(memory));
    mirror = calloc(1, BYTES);
    return mirror != NULL;
}

static void run(const char *name, bool (*check)(void), uint64_t cases, uint64_t seed)
{
    bool good = true;
    uint64_t i;

    for (i = 0; i < cases && good; i++)
        good = check();
    if (!good)
        printf("# case %llu of seed %llu: %s\n", (unsigned long long)i, (unsigned long long)seed,
               problem);
    tap_result(good, "%s (%llu cases, seed %llu)", name, (unsigned long long)i,
               (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 0) : CASES;
    const uint64_t seed = random_seed(argc > 2 ? argv[2] : NULL);

    state = seed;
    fixture_machine_default("memory=256MiB,warp=%u", draw(2) == 0 ? 32 : 8);
    if (!open_device())
        tap_bail_out("there is no device");
    if (module == NULL)
        return tap_skip_all("this build has no kernels for real GPUs");
    run("distances_are_within_their_bounds", check_distances, cases, seed);
    run("no_row_is_nearer_than_the_nearest", check_nearest, cases, seed);
    run("bound_of_a_list_is_the_entry_that_sorting_finds", check_list, cases, seed);
    free(mirror);
    gvm_buffer_destroy(memory);
    gvm_device_close(device);
    return tap_finish();
}
