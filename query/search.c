/* Exact search: distances of rows of one length from a query, and the first entries of a list in their order.
 *
 * A row is read by so many threads that each has a part of 16 bytes at a time; their sums are added up in a fixed
 * order. Floats are summed as floats by each thread, and by all as doubles; where such sums are out of range, all of
 * it is summed as doubles once more.
 */
#include <gvmem/device/kernel.h>

#if !defined(__CUDACC__)
#include <math.h>
#endif

#include "query/kernel_values.h"
#include "query/search.h"

#define DIGITS 256u

GVM_DEVICE const uint8_t *bytes_at(uint64_t address)
{
    return (const uint8_t *)(uintptr_t)address;
}

/* ---- elements */

GVM_DEVICE float as_float(uint32_t bits)
{
    union {
        uint32_t bits;
        float number;
    } f;

    f.bits = bits;
    return f.number;
}

GVM_DEVICE float element_f16(uint32_t half)
{
#if defined(__CUDA_ARCH__)
    float number;

    asm("{ .reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(number) : "h"((uint16_t)half));
    return number;
#else
    const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 1023;

    if (exponent == 0) /* zero, or subnormal */
        return (sign != 0 ? -0x1p-24f : 0x1p-24f) * (float)fraction;
    return as_float(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13);
#endif
}

/* ---- sums: elements and metric are constants where these are inlined */

typedef struct sums {
    float f, f_square;
    double d, d_square;
    uint32_t bits, bits_of_both;
} sums;

#define ADD_ELEMENT(name, type, sum, square) \
    GVM_DEVICE void name(uint32_t metric, sums *s, type x, type q) \
    { \
        const type d = x - q; \
\
        if (metric == GQUERY_L2) { \
            s->sum += d * d; \
        } else if (metric == GQUERY_L1) { \
            s->sum += d < 0 ? -d : d; \
        } else { \
            s->sum += x * q; \
            if (metric == GQUERY_COSINE) \
                s->square += x * x; \
        } \
    }

ADD_ELEMENT(add_float, float, f, f_square)
ADD_ELEMENT(add_double, double, d, d_square)

GVM_DEVICE void add_bits(uint32_t metric, sums *s, uint32_t x, uint32_t q)
{
    s->bits += gvm_count_ones(metric == GQUERY_HAMMING ? x ^ q : x & q);
    if (metric == GQUERY_JACCARD)
        s->bits_of_both += gvm_count_ones(x | q);
}

/* Element `at` of a row that begins at `row`, which is aligned to an element. */
GVM_DEVICE void add_one(uint32_t elements, uint32_t metric, sums *s, const uint8_t *row,
                        const uint8_t *query, uint32_t at)
{
    switch (elements) {
    case GQUERY_ELEMENTS_F32:
        add_float(metric, s, ((const float *)row)[at], ((const float *)query)[at]);
        break;
    case GQUERY_ELEMENTS_F16:
        add_float(metric, s, element_f16(((const uint16_t *)row)[at]), ((const float *)query)[at]);
        break;
    case GQUERY_ELEMENTS_F64:
        add_double(metric, s, ((const double *)row)[at], ((const double *)query)[at]);
        break;
    case GQUERY_ELEMENTS_I16:
        add_double(metric, s, ((const int16_t *)row)[at], ((const double *)query)[at]);
        break;
    default: add_bits(metric, s, row[at], query[at]);
    }
}

/* 16 bytes of the query, as shared memory has them. */
typedef union piece {
    struct {
        uint64_t first, second;
    } __attribute__((aligned(16))) words; /* one load */
    float f[4];
    double d[2];
    uint32_t bits[4];
} piece;

/* How many pieces of the query belong to 8 bytes of a row; of GQUERY_ELEMENTS_F32, _F64 and _BITS half a piece does. */
GVM_DEVICE uint32_t pieces_of_word(uint32_t elements)
{
    return elements == GQUERY_ELEMENTS_I16 ? 2 : 1;
}

GVM_DEVICE int is_half_piece(uint32_t elements)
{
    return elements != GQUERY_ELEMENTS_I16 && elements != GQUERY_ELEMENTS_F16;
}

/* 8 bytes of a row; half: which half of the piece is theirs, if it is one. */
GVM_DEVICE void add_word(uint32_t elements, uint32_t metric, sums *s, uint64_t word, const piece *q,
                         uint32_t half)
{
    uint32_t i;

    switch (elements) {
    case GQUERY_ELEMENTS_F32:
        add_float(metric, s, as_float((uint32_t)word), q[0].f[2 * half]);
        add_float(metric, s, as_float((uint32_t)(word >> 32)), q[0].f[2 * half + 1]);
        break;
    case GQUERY_ELEMENTS_F16:
        GVM_UNROLL
        for (i = 0; i < 4; i++)
            add_float(metric, s, element_f16((uint32_t)(word >> 16 * i) & 0xffff), q[0].f[i]);
        break;
    case GQUERY_ELEMENTS_F64: add_double(metric, s, to_double(word), q[0].d[half]); break;
    case GQUERY_ELEMENTS_I16:
        GVM_UNROLL
        for (i = 0; i < 4; i++)
            add_double(metric, s, (int16_t)(word >> 16 * i), q[i / 2].d[i % 2]);
        break;
    default:
        add_bits(metric, s, (uint32_t)word, q[0].bits[2 * half]);
        add_bits(metric, s, (uint32_t)(word >> 32), q[0].bits[2 * half + 1]);
    }
}

GVM_DEVICE int has_floats(uint32_t elements)
{
    return elements == GQUERY_ELEMENTS_F32 || elements == GQUERY_ELEMENTS_F16;
}

/* A term that is subnormal as a float is wrong by at most 2^-150. So a sum of this or more for each of its terms is wrong by no
 * more than its rounding. */
#define TERM_LEAST 0x1p-120

/* Also if it is NaN. */
GVM_DEVICE int is_out_of_range(double sum, double least)
{
    return !(fabs(sum) >= least && fabs(sum) < INFINITY);
}

/* Whether sums of floats lack what is too small or too large for a float: they are to be found by add_doubles(). */
GVM_DEVICE int are_out_of_range(uint32_t elements, uint32_t metric, uint32_t count, const sums *s)
{
    const double least = metric == GQUERY_L1 ? 0 : count * TERM_LEAST; /* differences do not become subnormal */

    return has_floats(elements) && (is_out_of_range(s->d, least) ||
                                    (metric == GQUERY_COSINE && is_out_of_range(s->d_square, least)));
}

/* Of elements lane, lane + lanes ... of a row of floats. */
GVM_DEVICE_RARE sums add_doubles(uint32_t elements, uint32_t metric, uint32_t count, const uint8_t *row,
                                 const uint8_t *query, uint32_t lane, uint32_t lanes)
{
    sums s = {0, 0, 0, 0, 0, 0};
    uint32_t i;

    for (i = lane; i < count; i += lanes)
        add_double(metric, &s,
                   elements == GQUERY_ELEMENTS_F32 ? ((const float *)row)[i]
                                                   : element_f16(((const uint16_t *)row)[i]),
                   ((const float *)query)[i]);
    return s;
}

GVM_DEVICE double distance_of(uint32_t elements, uint32_t metric, const sums *s, double query_square)
{
    const double sum = elements == GQUERY_ELEMENTS_BITS ? s->bits : s->d;

    switch (metric) {
    case GQUERY_L2: return sqrt(sum);
    case GQUERY_INNER: return -sum;
    case GQUERY_COSINE: {
        const double similarity = sum / sqrt(s->d_square * query_square);

        return 1 - (similarity > 1 ? 1 : similarity < -1 ? -1 : similarity);
    }
    case GQUERY_JACCARD: return s->bits == 0 ? 1 : 1 - sum / s->bits_of_both;
    default: return sum;
    }
}

/* ---- rows */

/* Where the pieces of the query are: piece `p` of unit `u`, a unit being what a thread loads of a row at a time. In
 * shared memory first pieces are beside each other, so that threads that read these at the same time read from all
 * banks. */
typedef struct query_view {
    const uint8_t *bytes;
    uint32_t piece_step, unit_step;
} query_view;

/* Words of 8 bytes that a thread loads at a time; 0: it loads elements. */
GVM_DEVICE uint32_t unit_words(uint32_t stride)
{
    return stride % 16 == 0 ? 2 : stride % 8 == 0 ? 1 : 0;
}

GVM_DEVICE uint32_t unit_pieces(uint32_t elements, uint32_t words)
{
    return is_half_piece(elements) ? 1 : words * pieces_of_word(elements);
}

/* A thread's part of a row at a time: so many units are loaded before the first one is used. */
#define AT_ONCE 4

typedef struct unit {
    uint64_t first, second;
} unit;

GVM_DEVICE void load_unit(unit *u, const uint64_t *row, uint32_t number, uint32_t words)
{
    if (words == 2)
        gvm_stream_load_u64x2(row + 2 * number, &u->first, &u->second);
    else
        u->first = row[number];
}

GVM_DEVICE void add_unit(uint32_t elements, uint32_t metric, sums *s, const unit *u,
                         const query_view *q, uint32_t number, uint32_t words)
{
    const uint8_t *at = q->bytes + number * q->unit_step;
    const uint32_t pieces = unit_pieces(elements, words), each = pieces_of_word(elements);
    piece found[4];
    uint32_t i;

    if (words == 1 && is_half_piece(elements))
        found[0].words.first = *(const uint64_t *)at;
    GVM_UNROLL
    for (i = 0; i < pieces && (words == 2 || !is_half_piece(elements)); i++)
        found[i].words = ((const piece *)(at + i * q->piece_step))->words;
    add_word(elements, metric, s, u->first, found, 0);
    if (words == 2)
        add_word(elements, metric, s, u->second, is_half_piece(elements) ? found : found + each, 1);
}

GVM_DEVICE void add_units(const gquery_distance *p, uint32_t elements, uint32_t metric, sums *s,
                          const uint64_t *row, const query_view *q, uint32_t lane, uint32_t words)
{
    const uint32_t units = p->stride / 8 / words;
    unit loaded[AT_ONCE];
    uint32_t i, k;

    for (i = lane; i + (AT_ONCE - 1) * p->lanes < units; i += AT_ONCE * p->lanes) {
        GVM_UNROLL
        for (k = 0; k < AT_ONCE; k++)
            load_unit(&loaded[k], row, i + k * p->lanes, words);
        GVM_UNROLL
        for (k = 0; k < AT_ONCE; k++)
            add_unit(elements, metric, s, &loaded[k], q, i + k * p->lanes, words);
    }
    for (; i < units; i += p->lanes) {
        load_unit(&loaded[0], row, i, words);
        add_unit(elements, metric, s, &loaded[0], q, i, words);
    }
}

/* This thread's part of a row. */
GVM_DEVICE void add_row(const gquery_distance *p, uint32_t elements, uint32_t metric, sums *s,
                        const uint8_t *row, const query_view *q, uint32_t lane)
{
    uint32_t i;

    if (unit_words(p->stride) == 2)
        add_units(p, elements, metric, s, (const uint64_t *)row, q, lane, 2);
    else if (unit_words(p->stride) == 1)
        add_units(p, elements, metric, s, (const uint64_t *)row, q, lane, 1);
    else
        for (i = lane; i < (elements == GQUERY_ELEMENTS_BITS ? p->stride : p->count); i += p->lanes)
            add_one(elements, metric, s, row, q->bytes, i);
}

/* Over the threads of a row; all of the warp are here. */
GVM_DEVICE void add_up(const gquery_distance *p, uint32_t elements, uint32_t metric, sums *s)
{
    const uint32_t all = gvm_warp_mask(), warp = gvm_warp_size();
    uint32_t step;

    for (step = 1; step < p->lanes; step *= 2) {
        if (elements == GQUERY_ELEMENTS_BITS)
            s->bits += gvm_warp_shuffle_xor_u32(all, s->bits, step, warp);
        else
            s->d += gvm_warp_shuffle_xor_f64(all, s->d, step, warp);
        if (metric == GQUERY_JACCARD)
            s->bits_of_both += gvm_warp_shuffle_xor_u32(all, s->bits_of_both, step, warp);
        if (metric == GQUERY_COSINE)
            s->d_square += gvm_warp_shuffle_xor_f64(all, s->d_square, step, warp);
    }
}

/* Of rows whose sums of floats are out of range; row: NULL behind the last one. All of the warp are here. */
GVM_DEVICE void add_up_again(const gquery_distance *p, uint32_t elements, uint32_t metric, sums *s,
                             const uint8_t *row, uint32_t lane)
{
    const int again = row != NULL && are_out_of_range(elements, metric, p->count, s);
    sums exact = {0, 0, 0, 0, 0, 0};

    if (!(p->lanes == 1 ? again : gvm_warp_any(gvm_warp_mask(), again)))
        return;
    if (again)
        exact = add_doubles(elements, metric, p->count, row, bytes_at(p->query), lane, p->lanes);
    add_up(p, elements, metric, &exact);
    if (again)
        *s = exact;
}

GVM_DEVICE void find_distances(const gquery_distance *p, uint32_t elements, uint32_t metric,
                               const query_view *query)
{
    const uint32_t rows_of_warp = gvm_warp_size() / p->lanes, lane = gvm_lane() % p->lanes;
    const uint64_t step = gvm_thread_count() / gvm_warp_size() * rows_of_warp;
    uint64_t base = p->first + gvm_thread_global() / gvm_warp_size() * rows_of_warp;

    for (; base < p->limit; base += step) {
        const uint64_t row = base + gvm_lane() / p->lanes;
        const uint8_t *values = bytes_at(p->values) + row * p->stride;
        sums s = {0, 0, 0, 0, 0, 0};

        if (row < p->limit)
            add_row(p, elements, metric, &s, values, query, lane);
        s.d += s.f;
        s.d_square += s.f_square;
        add_up(p, elements, metric, &s);
        if (has_floats(elements))
            add_up_again(p, elements, metric, &s, row < p->limit ? values : NULL, lane);
        if (row < p->limit && lane == 0)
            ((double *)(uintptr_t)p->out)[row - p->first] = distance_of(elements, metric, &s,
                                                                        p->query_square);
    }
}

/* The metric becomes a constant. */
GVM_DEVICE void find_by_metric(const gquery_distance *p, uint32_t elements, const query_view *query)
{
    switch (p->metric) {
    case GQUERY_L2: find_distances(p, elements, GQUERY_L2, query); break;
    case GQUERY_INNER: find_distances(p, elements, GQUERY_INNER, query); break;
    case GQUERY_COSINE: find_distances(p, elements, GQUERY_COSINE, query); break;
    default: find_distances(p, elements, GQUERY_L1, query);
    }
}

/* As it is, or in shared memory in the order of query_view. */
GVM_DEVICE query_view view_query(const gquery_distance *p)
{
    const uint32_t words = unit_words(p->stride), pieces = unit_pieces(p->elements, words);
    const uint32_t units = pieces == 0 ? 0 : p->query_bytes / sizeof(piece) / pieces;
    const piece *from = (const piece *)(uintptr_t)p->query;
    piece *kept = (piece *)gvm_shared();
    query_view q = {(const uint8_t *)from, sizeof(piece), pieces * (uint32_t)sizeof(piece)};
    uint32_t i;

    if (is_half_piece(p->elements) && words == 1)
        q.unit_step = sizeof(piece) / 2;
    if (p->query_bytes > GQUERY_SEARCH_SHARED_BYTES)
        return q;
    for (i = gvm_thread(); i < (p->query_bytes + sizeof(piece) - 1) / sizeof(piece);
         i += gvm_block_threads())
        kept[pieces > 1 && i < units * pieces ? i % pieces * units + i / pieces : i].words = from[i].words;
    gvm_block_sync();
    q.bytes = (const uint8_t *)kept;
    if (pieces > 1) {
        q.piece_step = units * (uint32_t)sizeof(piece);
        q.unit_step = sizeof(piece);
    }
    return q;
}

GVM_KERNEL(query_distance, gquery_distance, p)
{
    const query_view query = view_query(&p);

    switch (p.elements) {
    case GQUERY_ELEMENTS_F32: find_by_metric(&p, GQUERY_ELEMENTS_F32, &query); break;
    case GQUERY_ELEMENTS_F16: find_by_metric(&p, GQUERY_ELEMENTS_F16, &query); break;
    case GQUERY_ELEMENTS_F64: find_by_metric(&p, GQUERY_ELEMENTS_F64, &query); break;
    case GQUERY_ELEMENTS_I16: find_by_metric(&p, GQUERY_ELEMENTS_I16, &query); break;
    default:
        if (p.metric == GQUERY_HAMMING)
            find_distances(&p, GQUERY_ELEMENTS_BITS, GQUERY_HAMMING, &query);
        else
            find_distances(&p, GQUERY_ELEMENTS_BITS, GQUERY_JACCARD, &query);
    }
}

/* ---- the first entries of a list */

GVM_DEVICE const int64_t *entry_at(const gquery_list *list, uint64_t i)
{
    return (const int64_t *)(uintptr_t)list->entries + i * list->words;
}

GVM_DEVICE uint64_t entry_count(const gquery_list *list)
{
    return list->count < list->max ? list->count : list->max;
}

/* A word as an unsigned number in the same order. */
GVM_DEVICE uint64_t ordered(int64_t word)
{
    return (uint64_t)word ^ 1ull << 63;
}

/* The bound so far: `words` whole words, and the first `digits` digits of the next. Entries that begin so are candidates. */
typedef struct prefix {
    uint64_t word;
    uint32_t words, digits;
} prefix;

GVM_DEVICE int is_candidate(const int64_t *entry, const prefix *p, const int64_t *bound)
{
    uint32_t w;

    for (w = 0; w < p->words; w++)
        if (entry[w] != bound[w])
            return 0;
    return p->digits == 0 ||
           ordered(entry[p->words]) >> (64 - 8 * p->digits) == p->word >> (64 - 8 * p->digits);
}

/* Finds a digit of the bound: that of the k-th candidate. *k becomes its number among those that have this digit as
 * well. By one thread. */
GVM_DEVICE uint32_t digit_of(const uint32_t *counts, uint64_t *k)
{
    uint32_t digit = 0;

    while (counts[digit] < *k)
        *k -= counts[digit++];
    return digit;
}

/* What a block that looks for a bound has in shared memory. */
typedef struct search_state {
    uint32_t *counts; /* DIGITS */
    int64_t *bound;   /* GQUERY_ENTRY_WORDS_MAX */
    uint64_t *found;  /* the word so far, k */
} search_state;

/* The bound of the list becomes its k-th entry; it has so many. By all threads of the block. */
GVM_DEVICE void find_bound(gquery_list *list, uint64_t k, const search_state *s)
{
    const uint64_t count = entry_count(list);
    prefix at = {0, 0, 0};
    uint64_t i;

    if (gvm_thread() == 0) {
        s->found[0] = 0;
        s->found[1] = k;
    }
    for (; at.words < list->words; at.digits = (at.digits + 1) % 8) {
        const uint32_t shift = 56 - 8 * at.digits;

        for (i = gvm_thread(); i < DIGITS; i += gvm_block_threads())
            s->counts[i] = 0;
        gvm_block_sync();
        at.word = s->found[0];
        for (i = gvm_thread(); i < count; i += gvm_block_threads()) {
            const int64_t *entry = entry_at(list, i);

            if (is_candidate(entry, &at, s->bound))
                gvm_atomic_add_u32(&s->counts[ordered(entry[at.words]) >> shift & (DIGITS - 1)], 1);
        }
        gvm_block_sync();
        if (gvm_thread() == 0) {
            s->found[0] |= (uint64_t)digit_of(s->counts, &s->found[1]) << shift;
            if (at.digits == 7) {
                s->bound[at.words] = (int64_t)(s->found[0] ^ 1ull << 63);
                s->found[0] = 0;
            }
        }
        gvm_block_sync();
        at.words += at.digits == 7;
    }
    for (i = gvm_thread(); i < list->words; i += gvm_block_threads())
        list->bound[i] = s->bound[i];
    if (gvm_thread() == 0)
        list->bounded = 1;
}

#define SEARCH_STATE(name) \
    GVM_SHARED(uint32_t, name##_counts, DIGITS); \
    GVM_SHARED(int64_t, name##_bound, GQUERY_ENTRY_WORDS_MAX); \
    GVM_SHARED(uint64_t, name##_found, 2); \
    const search_state name = {name##_counts, name##_bound, name##_found}

GVM_KERNEL(query_select, gquery_select, p)
{
    gquery_list *list = (gquery_list *)(uintptr_t)p.from;
    SEARCH_STATE(state);

    if (p.k > 0 && p.k <= entry_count(list))
        find_bound(list, p.k, &state);
}

GVM_DEVICE int is_within(const gquery_list *list, const int64_t *entry)
{
    uint32_t w;

    for (w = 0; w < list->words && list->bounded; w++)
        if (entry[w] != list->bound[w])
            return entry[w] < list->bound[w];
    return 1;
}

GVM_DEVICE void append_entry(gquery_list *list, const int64_t *entry)
{
    const uint64_t place = gvm_atomic_add_u64(&list->count, 1);
    uint32_t w;

    for (w = 0; w < list->words && place < list->max; w++)
        ((int64_t *)(uintptr_t)list->entries)[place * list->words + w] = entry[w];
}

GVM_KERNEL(query_keep, gquery_select, p)
{
    const gquery_list *from = (const gquery_list *)(uintptr_t)p.from;
    gquery_list *to = (gquery_list *)(uintptr_t)p.to;
    uint64_t i;

    for (i = gvm_thread_global(); i < entry_count(from); i += gvm_thread_count())
        if (is_within(from, entry_at(from, i)))
            append_entry(to, entry_at(from, i));
    for (i = gvm_thread_global(); i < GQUERY_ENTRY_WORDS_MAX; i += gvm_thread_count())
        to->bound[i] = from->bound[i];
    if (gvm_thread_global() == 0)
        to->bounded = from->bounded;
}

/* ---- many queries: a block has a tile of rows and one of queries, so many of their elements at a time, in shared
 * memory, from where each thread takes EACH of both and adds to the sums of their pairs. */

#define EACH GQUERY_NEAREST_EACH
#define CHUNK 16u        /* elements */
#define STEP (CHUNK + 1) /* so that threads beside each other read from different banks */
#define TILE_WORDS (GQUERY_SIDE_MAX * EACH * STEP)

/* Where rows or queries lie. */
typedef struct matrix {
    const uint8_t *bytes;
    uint64_t first, limit;
    uint32_t pitch;
    int is_wide; /* queries: float or double */
} matrix;

/* from: NULL behind the last row or query. */
GVM_DEVICE void fill_cell(uint32_t elements, double *tile, uint32_t cell, const matrix *m,
                          const uint8_t *from, uint32_t at, uint32_t count)
{
    const int is_there = from != NULL && at < count;

    switch (elements) {
    case GQUERY_ELEMENTS_F32:
        ((float *)tile)[cell] = is_there ? ((const float *)from)[at] : 0;
        break;
    case GQUERY_ELEMENTS_F16:
        ((float *)tile)[cell] = !is_there    ? 0
                                : m->is_wide ? ((const float *)from)[at]
                                             : element_f16(((const uint16_t *)from)[at]);
        break;
    case GQUERY_ELEMENTS_F64: tile[cell] = is_there ? ((const double *)from)[at] : 0; break;
    default:
        tile[cell] = !is_there    ? 0
                     : m->is_wide ? ((const double *)from)[at]
                                  : ((const int16_t *)from)[at];
    }
}

GVM_DEVICE void fill_tile(const gquery_nearest *p, uint32_t elements, double *tile, const matrix *m,
                          uint32_t part)
{
    uint32_t i;

    for (i = gvm_thread(); i < p->side * EACH * CHUNK; i += gvm_block_threads()) {
        const uint64_t row = m->first + i / CHUNK;

        fill_cell(elements, tile, i / CHUNK * STEP + i % CHUNK, m,
                  row < m->limit ? m->bytes + row * m->pitch : NULL, part + i % CHUNK, p->count);
    }
}

GVM_DEVICE void add_cells(uint32_t elements, uint32_t metric, sums *s, const double *rows,
                          uint32_t row, const double *queries, uint32_t query)
{
    switch (elements) {
    case GQUERY_ELEMENTS_F32:
    case GQUERY_ELEMENTS_F16:
        add_float(metric, s, ((const float *)rows)[row], ((const float *)queries)[query]);
        break;
    default: add_double(metric, s, rows[row], queries[query]);
    }
}

/* Rows are y, y + side ... of the tile, queries x, x + side ... */
GVM_DEVICE void add_tiles(uint32_t elements, uint32_t metric, uint32_t side, sums *s,
                          const double *rows, const double *queries)
{
    const uint32_t x = gvm_thread() % side, y = gvm_thread() / side;
    uint32_t c, i, k;

    for (c = 0; c < CHUNK; c++) {
        GVM_UNROLL
        for (i = 0; i < EACH; i++) {
            GVM_UNROLL
            for (k = 0; k < EACH; k++)
                add_cells(elements, metric, &s[i * EACH + k], rows, (y + side * i) * STEP + c,
                          queries, (x + side * k) * STEP + c);
        }
    }
}

GVM_DEVICE int has_bit(uint64_t bitmap, uint64_t row)
{
    return bitmap == 0 || (bytes_at(bitmap)[row / 8] >> row % 8 & 1) != 0;
}

GVM_DEVICE void append_pair(const gquery_nearest *p, uint64_t row, uint64_t query, double distance)
{
    gquery_list *list = (gquery_list *)(uintptr_t)p->lists + query;
    const int64_t entry[2] = {(int64_t)order_key(to_bits(distance), 0), (int64_t)row};
    uint64_t place;

    if (!is_within(list, entry))
        return;
    place = gvm_atomic_add_u64(&list->count, 1);
    if (place >= list->max)
        return;
    ((int64_t *)(uintptr_t)list->entries)[2 * place] = entry[0];
    ((int64_t *)(uintptr_t)list->entries)[2 * place + 1] = entry[1];
}

/* The distance that follows from a pair's sums. */
GVM_DEVICE void append_distance(const gquery_nearest *p, uint32_t elements, uint32_t metric,
                                uint64_t row, uint64_t query, sums s)
{
    s.d += s.f;
    s.d_square += s.f_square;
    if (are_out_of_range(elements, metric, p->count, &s))
        s = add_doubles(elements, metric, p->count, bytes_at(p->values) + row * p->stride,
                        bytes_at(p->queries) + query * p->query_bytes, 0, 1);
    append_pair(
        p, row, query,
        distance_of(elements, metric, &s, ((const double *)(uintptr_t)p->query_squares)[query]));
}

GVM_DEVICE void append_pairs(const gquery_nearest *p, uint32_t elements, uint32_t metric, sums *s,
                             const matrix *rows, const matrix *queries)
{
    const uint32_t x = gvm_thread() % p->side, y = gvm_thread() / p->side;
    uint32_t i, k;

    GVM_UNROLL
    for (i = 0; i < EACH; i++) {
        const uint64_t row = rows->first + y + p->side * i;
        const int counts = row < rows->limit && has_bit(p->marked, row) && has_bit(p->nulls, row);

        GVM_UNROLL
        for (k = 0; k < EACH; k++) {
            const uint64_t query = queries->first + x + p->side * k;

            if (counts && query < queries->limit)
                append_distance(p, elements, metric, row, query, s[i * EACH + k]);
        }
    }
}

#include "query/kernel_products.h"

GVM_DEVICE void find_pairs(const gquery_nearest *p, uint32_t elements, uint32_t metric,
                           double *row_tile, double *query_tile)
{
    const uint32_t each = p->side * EACH;
    const uint64_t across = (p->query_count + each - 1) / each;
    const uint64_t tiles = (p->limit - p->first + each - 1) / each * across;
    matrix rows = {bytes_at(p->values), 0, p->limit, p->stride, 0};
    matrix queries = {bytes_at(p->queries), 0, p->query_count, p->query_bytes, 1};
    uint64_t tile;
    uint32_t part, i;

    for (tile = gvm_block(); tile < tiles; tile += gvm_block_count()) {
        sums s[EACH * EACH];

        rows.first = p->first + tile / across * each;
        queries.first = tile % across * each;
        GVM_UNROLL
        for (i = 0; i < EACH * EACH; i++) {
            s[i].f = s[i].f_square = 0;
            s[i].d = s[i].d_square = 0;
            s[i].bits = s[i].bits_of_both = 0;
        }
        for (part = 0; part < p->count; part += CHUNK) {
            fill_tile(p, elements, row_tile, &rows, part);
            fill_tile(p, elements, query_tile, &queries, part);
            gvm_block_sync();
            add_tiles(elements, metric, p->side, s, row_tile, query_tile);
            gvm_block_sync();
        }
        append_pairs(p, elements, metric, s, &rows, &queries);
    }
}

/* The metric becomes a constant. */
GVM_DEVICE void find_pairs_by_metric(const gquery_nearest *p, uint32_t elements, double *row_tile,
                                     double *query_tile)
{
    switch (p->metric) {
    case GQUERY_L2: find_pairs(p, elements, GQUERY_L2, row_tile, query_tile); break;
    case GQUERY_INNER: find_pairs(p, elements, GQUERY_INNER, row_tile, query_tile); break;
    case GQUERY_COSINE: find_pairs(p, elements, GQUERY_COSINE, row_tile, query_tile); break;
    default: find_pairs(p, elements, GQUERY_L1, row_tile, query_tile);
    }
}

GVM_KERNEL(query_nearest, gquery_nearest, p)
{
    GVM_SHARED(double, row_tile, TILE_WORDS);
    GVM_SHARED(double, query_tile, TILE_WORDS);

    switch (p.elements) {
    case GQUERY_ELEMENTS_F32:
        find_pairs_by_metric(&p, GQUERY_ELEMENTS_F32, row_tile, query_tile);
        break;
    case GQUERY_ELEMENTS_F16:
        find_pairs_by_metric(&p, GQUERY_ELEMENTS_F16, row_tile, query_tile);
        break;
    case GQUERY_ELEMENTS_F64:
        find_pairs_by_metric(&p, GQUERY_ELEMENTS_F64, row_tile, query_tile);
        break;
    default: find_pairs_by_metric(&p, GQUERY_ELEMENTS_I16, row_tile, query_tile);
    }
}

GVM_KERNEL_BOUNDED(query_products, gquery_nearest, p, GQUERY_SIDE_MAX *GQUERY_SIDE_MAX, 2)
{
    GVM_SHARED(cells, row_tiles, PRODUCT_WORDS / HALF);
    GVM_SHARED(cells, query_tiles, PRODUCT_WORDS / HALF);

    switch (p.elements) {
    case GQUERY_ELEMENTS_F32:
        find_products(&p, GQUERY_ELEMENTS_F32, row_tiles->c, query_tiles->c);
        break;
    case GQUERY_ELEMENTS_F16:
        find_products(&p, GQUERY_ELEMENTS_F16, row_tiles->c, query_tiles->c);
        break;
    default: find_products(&p, GQUERY_ELEMENTS_BITS, row_tiles->c, query_tiles->c);
    }
}

/* Entries up to the bound, into `kept`. By all threads of the block. */
GVM_DEVICE void keep_entries(const gquery_list *from, gquery_list *kept)
{
    uint64_t i;

    if (gvm_thread() == 0)
        kept->count = 0;
    gvm_block_sync();
    for (i = gvm_thread(); i < entry_count(from); i += gvm_block_threads())
        if (is_within(from, entry_at(from, i)))
            append_entry(kept, entry_at(from, i));
    gvm_block_sync();
}

GVM_KERNEL(query_shorten, gquery_shorten, p)
{
    gquery_list *list = (gquery_list *)(uintptr_t)p.lists + gvm_block();
    gquery_list *kept = (gquery_list *)(uintptr_t)p.kept + gvm_block();
    int64_t *entries = (int64_t *)(uintptr_t)kept->entries;
    const int is_long = entry_count(list) > p.k;
    SEARCH_STATE(state);
    uint64_t i;

    if (is_long)
        find_bound(list, p.k, &state);
    gvm_block_sync();
    if (!is_long && !p.last)
        return;
    keep_entries(list, kept);
    for (i = gvm_thread(); i < kept->count * list->words; i += gvm_block_threads())
        ((int64_t *)(uintptr_t)list->entries)[i] = entries[i];
    for (i = kept->count * kept->words + gvm_thread(); i < kept->max * kept->words && p.last;
         i += gvm_block_threads())
        entries[i] = -1;
    if (gvm_thread() == 0)
        list->count = kept->count;
}
