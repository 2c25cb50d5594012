/* query/kernel_products.h - the kernel query_products of search.c, see search.h.
 *
 * A tile's products of rows and queries are found as those of matrices: a thread keeps those of EACH_PRODUCT rows
 * and as many queries in registers, while parts of both, of as many elements as a block's side, go through shared
 * memory; the next part is loaded while one is multiplied.
 *
 * Of floats the distance that follows from a product and two squares is wrong by so much that near rows may lie in
 * another order. So a pair is left out if by its product and the bound of that error it cannot be in its list; one
 * that can has its distance found from its elements. There are few of these, once a list has a bound.
 */
#ifndef GQUERY_KERNEL_PRODUCTS_H
#define GQUERY_KERNEL_PRODUCTS_H

#include "query/search.h"

#define EACH_PRODUCT GQUERY_PRODUCTS_EACH
#define HALF (EACH_PRODUCT / 2) /* a thread's rows lie in two places of a tile, queries too */
/* Of one element: the next one is in other banks. */
#define PRODUCT_STEP (GQUERY_SIDE_MAX * EACH_PRODUCT + 4u)
#define PRODUCT_WORDS (2u * GQUERY_SIDE_MAX * PRODUCT_STEP)

/* An element as a float, or 32 bits. */
typedef union cell {
    float f;
    uint32_t bits;
} cell;

typedef struct cells {
    cell c[HALF];
} __attribute__((aligned(16))) cells; /* one load */

/* Bits 32 * at and on of a row whose size is no multiple of 4 bytes; those behind the last byte are 0. */
GVM_DEVICE_RARE uint32_t unaligned_bits_at(const uint8_t *from, uint32_t bytes, uint32_t at)
{
    uint32_t word = 0, i;

    for (i = 0; i < 4 && 4 * at + i < bytes; i++)
        word |= (uint32_t)from[4 * at + i] << 8 * i;
    return word;
}

/* What this thread loads of a tile: one element of each of these rows, or queries. */
typedef struct own_cells {
    const uint8_t *from; /* element 0 of the first one */
    uint64_t step;       /* bytes to the next one */
    uint32_t count;      /* of which so many are there */
} own_cells;

GVM_DEVICE void find_own_cells(own_cells *f, const matrix *m, uint32_t side)
{
    const uint64_t first = m->first + gvm_thread() / side;

    f->from = m->bytes + first * m->pitch;
    f->step = (uint64_t)side * m->pitch;
    f->count = first >= m->limit ? 0
                                 : (uint32_t)((m->limit - first + side - 1) / side < EACH_PRODUCT
                                                  ? (m->limit - first + side - 1) / side
                                                  : EACH_PRODUCT);
}

GVM_DEVICE cell load_cell(uint32_t elements, const matrix *m, const uint8_t *from, uint32_t at)
{
    cell c;

    if (elements == GQUERY_ELEMENTS_BITS)
        c.bits = m->pitch % 4 == 0 ? ((const uint32_t *)from)[at]
                                   : unaligned_bits_at(from, m->pitch, at);
    else if (elements == GQUERY_ELEMENTS_F16 && !m->is_wide)
        c.f = element_f16(((const uint16_t *)from)[at]);
    else
        c.f = ((const float *)from)[at];
    return c;
}

GVM_DEVICE void load_cells(uint32_t elements, const matrix *m, const own_cells *f, uint32_t at,
                           uint32_t units, cell *out)
{
    const cell none = {0};
    uint32_t i;

    GVM_UNROLL
    for (i = 0; i < EACH_PRODUCT; i++)
        out[i] = i < f->count && at < units ? load_cell(elements, m, f->from + i * f->step, at) : none;
}

GVM_DEVICE void keep_cells(cell *tile, uint32_t side, const cell *from)
{
    cell *to = tile + gvm_thread() % side * PRODUCT_STEP + gvm_thread() / side;
    uint32_t i;

    GVM_UNROLL
    for (i = 0; i < EACH_PRODUCT; i++)
        to[i * side] = from[i];
}

/* Which of a tile's rows a thread's number i is, or of its queries. */
GVM_DEVICE uint32_t place_of(uint32_t side, uint32_t number, uint32_t i)
{
    return i / HALF * HALF * side + number * HALF + i % HALF;
}

GVM_DEVICE void take_cells(const cell *tile, uint32_t side, uint32_t number, cell *out)
{
    uint32_t half, i;

    GVM_UNROLL
    for (half = 0; half < 2; half++) {
        const cells c = *(const cells *)(tile + half * HALF * side + number * HALF);

        GVM_UNROLL
        for (i = 0; i < HALF; i++)
            out[half * HALF + i] = c.c[i];
    }
}

/* Contracted on a GPU: it need not be exact. */
GVM_DEVICE float multiply_add(float a, float b, float sum)
{
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, sum);
#else
    return sum + a * b;
#endif
}

GVM_DEVICE void add_product(uint32_t elements, cell *sum, cell a, cell b)
{
    if (elements == GQUERY_ELEMENTS_BITS)
        sum->bits += gvm_count_ones(a.bits & b.bits);
    else
        sum->f = multiply_add(a.f, b.f, sum->f);
}

/* products[i][k], and the squares of the rows. */
typedef struct products {
    cell of[EACH_PRODUCT][EACH_PRODUCT], squares[EACH_PRODUCT];
} products;

GVM_DEVICE void multiply(uint32_t elements, uint32_t side, const cell *rows, const cell *queries,
                         products *s)
{
    const uint32_t x = gvm_thread() % side, y = gvm_thread() / side;
    uint32_t c, i, k;

    GVM_NO_UNROLL
    for (c = 0; c < side; c++) {
        cell a[EACH_PRODUCT], b[EACH_PRODUCT];

        take_cells(rows + c * PRODUCT_STEP, side, y, a);
        take_cells(queries + c * PRODUCT_STEP, side, x, b);
        GVM_UNROLL
        for (i = 0; i < EACH_PRODUCT; i++) {
            add_product(elements, &s->squares[i], a[i], a[i]);
            GVM_UNROLL
            for (k = 0; k < EACH_PRODUCT; k++)
                add_product(elements, &s->of[i][k], a[i], b[k]);
        }
    }
}

GVM_DEVICE double distance_of_key(int64_t key)
{
    return to_double((uint64_t)(key >= 0 ? key : key ^ INT64_MAX));
}

/* A pair is left out if its product is less than row.factor * query.factor + row.least + query.least. */
typedef struct limit {
    float factor, least;
} limit;

/* If the squares of a row or query add up to this or more, sums of its products may overflow: no pair of it is skipped. */
#define SQUARE_MOST 1e37

/* Nor if the root of the sum is wrong, which lacks squares that are too small for a float. */
GVM_DEVICE int has_limit(const gquery_nearest *p, double square)
{
    return square < SQUARE_MOST && !(p->metric == GQUERY_COSINE && square < p->count * TERM_LEAST);
}

/* What the error of a product is at most, as a share of the sum of both squares, and more. The error of a sum of n
 * products of floats is at most n * 2^-24 of the sum of their magnitudes; the product has one, the square of the
 * row, and the distance that add_one() finds. */
GVM_DEVICE double error_of(const gquery_nearest *p)
{
    return p->elements == GQUERY_ELEMENTS_BITS ? 0x1p-20 : (p->count + 16) * 0x1p-22;
}

/* error: as error_of(), of how products were found. */
GVM_DEVICE limit limit_of_row(const gquery_nearest *p, double square, double error)
{
    limit of = {0, 0};
    double least = -square * error;

    switch (p->metric) {
    case GQUERY_COSINE: of.factor = (float)sqrt(square); break;
    case GQUERY_JACCARD: of.factor = (float)square; break;
    case GQUERY_INNER: break;
    default: least += square / 2; /* GQUERY_L2, GQUERY_HAMMING */
    }
    of.least = (float)(has_limit(p, square) ? least : -INFINITY);
    return of;
}

/* most: the greatest distance of the query's list. */
GVM_DEVICE limit limit_of_query(const gquery_nearest *p, double square, double most, double error)
{
    limit of = {0, 0};
    double least = -square * error - p->count * 0x1p-140; /* for products that are no normal numbers */

    switch (p->metric) {
    case GQUERY_COSINE: of.factor = (float)((1 - most) * sqrt(square)); break;
    case GQUERY_JACCARD:
        of.factor = (float)((1 - most) / (2 - most));
        least += (1 - most) / (2 - most) * square - error;
        break;
    case GQUERY_INNER: least -= most; break;
    case GQUERY_L2: least += (square - most * most) / 2; break;
    default: least += (square - most) / 2 - error; /* GQUERY_HAMMING */
    }
    of.least = (float)(has_limit(p, square) ? least : -INFINITY);
    return of;
}

GVM_DEVICE limit limit_of_list(const gquery_nearest *p, uint64_t query, double error)
{
    const gquery_list *list = (const gquery_list *)(uintptr_t)p->lists + query;
    const limit none = {0, -INFINITY};

    if (!list->bounded)
        return none;
    return limit_of_query(p, ((const double *)(uintptr_t)p->query_squares)[query],
                          distance_of_key(list->bound[0]), error);
}

/* Also if the product is NaN. */
GVM_DEVICE int may_be_near(float product, limit of_row, limit of_query)
{
    return !(product < multiply_add(of_row.factor, of_query.factor, of_row.least + of_query.least));
}

/* A pair that may be in the list: its distance is found from its elements. */
GVM_DEVICE_RARE void append_candidate(const gquery_nearest *p, uint64_t row, uint64_t query)
{
    const uint32_t elements = p->elements;
    const uint8_t *values = bytes_at(p->values) + row * p->stride;
    const uint8_t *point = bytes_at(p->queries) + query * p->query_bytes;
    const uint32_t units = elements == GQUERY_ELEMENTS_BITS ? (p->count + 7) / 8 : p->count;
    sums s = {0, 0, 0, 0, 0, 0};
    uint32_t at;

    if (!has_bit(p->marked, row) || !has_bit(p->nulls, row))
        return;
    for (at = 0; at < units; at++)
        add_one(elements, p->metric, &s, values, point, at);
    append_distance(p, elements, p->metric, row, query, s);
}

/* found: bit EACH_PRODUCT * i + k of this thread's pairs. */
GVM_DEVICE void append_found(const gquery_nearest *p, uint64_t found, const matrix *rows,
                             const matrix *queries)
{
    const uint32_t x = gvm_thread() % p->side, y = gvm_thread() / p->side;
    uint32_t at;

    for (at = 0; found != 0; at++, found >>= 1) {
        const uint64_t row = rows->first + place_of(p->side, y, at / EACH_PRODUCT);
        const uint64_t query = queries->first + place_of(p->side, x, at % EACH_PRODUCT);

        if ((found & 1) != 0 && row < rows->limit && query < queries->limit)
            append_candidate(p, row, query);
    }
}

GVM_DEVICE void append_products(const gquery_nearest *p, uint32_t elements, const products *s,
                                const matrix *rows, const matrix *queries)
{
    const double error = error_of(p);
    limit of_rows[EACH_PRODUCT];
    uint64_t found = 0;
    uint32_t i, k;

    GVM_UNROLL
    for (i = 0; i < EACH_PRODUCT; i++)
        of_rows[i] = limit_of_row(
            p, elements == GQUERY_ELEMENTS_BITS ? s->squares[i].bits : (double)s->squares[i].f, error);
    GVM_UNROLL
    for (k = 0; k < EACH_PRODUCT; k++) {
        const uint64_t query = queries->first + place_of(p->side, gvm_thread() % p->side, k);
        const limit of_query = limit_of_list(p, query < queries->limit ? query : queries->first, error);

        GVM_UNROLL
        for (i = 0; i < EACH_PRODUCT; i++) {
            const float product = elements == GQUERY_ELEMENTS_BITS ? (float)s->of[i][k].bits
                                                                   : s->of[i][k].f;

            found |= (uint64_t)may_be_near(product, of_rows[i], of_query) << (EACH_PRODUCT * i + k);
        }
    }
    append_found(p, found, rows, queries);
}

#include "query/kernel_tensor.h"

GVM_DEVICE void multiply_tile(const gquery_nearest *p, uint32_t elements, const matrix *rows,
                              const matrix *queries, cell *row_tiles, cell *query_tiles, products *s)
{
    const uint32_t units = elements == GQUERY_ELEMENTS_BITS ? (p->count + 31) / 32 : p->count;
    const uint32_t at = gvm_thread() % p->side, half = PRODUCT_WORDS / 2;
    cell row_cells[EACH_PRODUCT], query_cells[EACH_PRODUCT];
    own_cells of_rows, of_queries;
    uint32_t part, now = 0;

    find_own_cells(&of_rows, rows, p->side);
    find_own_cells(&of_queries, queries, p->side);
    load_cells(elements, rows, &of_rows, at, units, row_cells);
    load_cells(elements, queries, &of_queries, at, units, query_cells);
    for (part = 0; part < units; part += p->side, now ^= half) {
        keep_cells(row_tiles + now, p->side, row_cells);
        keep_cells(query_tiles + now, p->side, query_cells);
        gvm_block_sync();
        load_cells(elements, rows, &of_rows, part + p->side + at, units, row_cells);
        load_cells(elements, queries, &of_queries, part + p->side + at, units, query_cells);
        multiply(elements, p->side, row_tiles + now, query_tiles + now, s);
    }
    gvm_block_sync();
}

GVM_DEVICE void find_tile(const gquery_nearest *p, uint32_t elements, const matrix *rows,
                          const matrix *queries, cell *row_tiles, cell *query_tiles)
{
    products s = {0};

    multiply_tile(p, elements, rows, queries, row_tiles, query_tiles, &s);
    append_products(p, elements, &s, rows, queries);
}

GVM_DEVICE void find_products(const gquery_nearest *p, uint32_t elements, cell *row_tiles,
                              cell *query_tiles)
{
    const uint32_t each = p->side * EACH_PRODUCT;
    const uint64_t across = (p->query_count + each - 1) / each;
    const uint64_t tiles = (p->limit - p->first + each - 1) / each * across;
    matrix rows = {bytes_at(p->values), 0, p->limit, p->stride, 0};
    matrix queries = {bytes_at(p->queries), 0, p->query_count, p->query_bytes, 1};
    uint64_t tile;

    for (tile = gvm_block(); tile < tiles; tile += gvm_block_count()) {
        rows.first = p->first + tile / across * each;
        queries.first = tile % across * each;
        if (has_tensor_tiles(p, elements))
            find_tensor_tile(p, elements, &rows, &queries, &row_tiles->bits, &query_tiles->bits);
        else
            find_tile(p, elements, &rows, &queries, row_tiles, query_tiles);
    }
}

#endif
