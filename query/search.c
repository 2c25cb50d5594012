/* Exact search: distances of rows of one length from a query, and the first entries of a list in their order.
 *
 * A row is read by so many threads that each has a part of 16 bytes at a time; their sums are added up in a fixed order. Floats are summed as
 * floats by each thread, and by all as doubles.
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

GVM_DEVICE double distance_of(const gquery_distance *p, uint32_t elements, uint32_t metric,
                              const sums *s)
{
    const double sum = elements == GQUERY_ELEMENTS_BITS ? s->bits : s->d;

    switch (metric) {
    case GQUERY_L2: return sqrt(sum);
    case GQUERY_INNER: return -sum;
    case GQUERY_COSINE: {
        const double similarity = sum / sqrt(s->d_square * p->query_square);

        return 1 - (similarity > 1 ? 1 : similarity < -1 ? -1 : similarity);
    }
    case GQUERY_JACCARD: return s->bits == 0 ? 1 : 1 - sum / s->bits_of_both;
    default: return sum;
    }
}

/* ---- rows */

/* Where the pieces of the query are: piece `p` of unit `u`, a unit being what a thread loads of a row at a time. In shared memory first pieces are
 * beside each other, so that threads that read these at the same time read from all banks. */
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

    s->d += s->f;
    s->d_square += s->f_square;
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

GVM_DEVICE void find_distances(const gquery_distance *p, uint32_t elements, uint32_t metric,
                               const query_view *query)
{
    const uint32_t rows_of_warp = gvm_warp_size() / p->lanes, lane = gvm_lane() % p->lanes;
    const uint64_t step = gvm_thread_count() / gvm_warp_size() * rows_of_warp;
    uint64_t base = p->first + gvm_thread_global() / gvm_warp_size() * rows_of_warp;

    for (; base < p->limit; base += step) {
        const uint64_t row = base + gvm_lane() / p->lanes;
        sums s = {0, 0, 0, 0, 0, 0};

        if (row < p->limit)
            add_row(p, elements, metric, &s, bytes_at(p->values) + row * p->stride, query, lane);
        add_up(p, elements, metric, &s);
        if (row < p->limit && lane == 0)
            ((double *)(uintptr_t)p->out)[row - p->first] = distance_of(p, elements, metric, &s);
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

/* Finds a digit of the bound: that of the k-th candidate. *k becomes its number among those that have this digit as well. By one thread. */
GVM_DEVICE uint32_t digit_of(const uint32_t *counts, uint64_t *k)
{
    uint32_t digit = 0;

    while (counts[digit] < *k)
        *k -= counts[digit++];
    return digit;
}

GVM_KERNEL(query_select, gquery_select, p)
{
    gquery_list *list = (gquery_list *)(uintptr_t)p.from;
    const uint64_t count = entry_count(list);
    GVM_SHARED(uint32_t, counts, DIGITS);
    GVM_SHARED(int64_t, bound, GQUERY_ENTRY_WORDS_MAX);
    GVM_SHARED(uint64_t, found, 2); /* the word so far, k */
    prefix at = {0, 0, 0};
    uint64_t i;

    if (p.k == 0 || p.k > count)
        return;
    if (gvm_thread() == 0) {
        found[0] = 0;
        found[1] = p.k;
    }
    for (; at.words < list->words; at.digits = (at.digits + 1) % 8) {
        const uint32_t shift = 56 - 8 * at.digits;

        for (i = gvm_thread(); i < DIGITS; i += gvm_block_threads())
            counts[i] = 0;
        gvm_block_sync();
        at.word = found[0];
        for (i = gvm_thread(); i < count; i += gvm_block_threads()) {
            const int64_t *entry = entry_at(list, i);

            if (is_candidate(entry, &at, bound))
                gvm_atomic_add_u32(&counts[ordered(entry[at.words]) >> shift & (DIGITS - 1)], 1);
        }
        gvm_block_sync();
        if (gvm_thread() == 0) {
            found[0] |= (uint64_t)digit_of(counts, &found[1]) << shift;
            if (at.digits == 7) {
                bound[at.words] = (int64_t)(found[0] ^ 1ull << 63);
                found[0] = 0;
            }
        }
        gvm_block_sync();
        at.words += at.digits == 7;
    }
    for (i = gvm_thread(); i < list->words; i += gvm_block_threads())
        list->bound[i] = bound[i];
    if (gvm_thread() == 0)
        list->bounded = 1;
}

GVM_DEVICE int is_within(const gquery_list *list, const int64_t *entry)
{
    uint32_t w;

    for (w = 0; w < list->words && list->bounded; w++)
        if (entry[w] != list->bound[w])
            return entry[w] < list->bound[w];
    return 1;
}

GVM_KERNEL(query_keep, gquery_select, p)
{
    const gquery_list *from = (const gquery_list *)(uintptr_t)p.from;
    gquery_list *to = (gquery_list *)(uintptr_t)p.to;
    uint64_t i, place;
    uint32_t w;

    for (i = gvm_thread_global(); i < entry_count(from); i += gvm_thread_count()) {
        const int64_t *entry = entry_at(from, i);

        if (!is_within(from, entry))
            continue;
        place = gvm_atomic_add_u64(&to->count, 1);
        for (w = 0; w < from->words && place < to->max; w++)
            ((int64_t *)(uintptr_t)to->entries)[place * to->words + w] = entry[w];
    }
    for (i = gvm_thread_global(); i < GQUERY_ENTRY_WORDS_MAX; i += gvm_thread_count())
        to->bound[i] = from->bound[i];
    if (gvm_thread_global() == 0)
        to->bounded = from->bounded;
}
