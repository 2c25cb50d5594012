/* query/kernel_tensor.h - products of rows and queries of floats by tensor cores, for query_products; see kernel_products.h.
 *
 * On GPUs of compute capability 8.0 and later, for rows that begin at multiples of 16 bytes and are multiples of 16
 * bytes long. Elements are multiplied as float16, where rows are of these, or as TF32, to which they are rounded; sums
 * are floats.
 *
 * A tile has TENSOR_SIDE rows and as many queries, a warp the sums of TENSOR_ROWS of them and TENSOR_QUERIES in its
 * registers. TENSOR_PART bytes of each row and each query at a time go through shared memory. The instructions for
 * float16 and TF32 take the same bytes of a row, 32 of them, so all but the instruction is one code.
 */
#ifndef GQUERY_KERNEL_TENSOR_H
#define GQUERY_KERNEL_TENSOR_H

#define TENSOR_SIDE (GQUERY_SIDE_MAX * EACH_PRODUCT)
#define TENSOR_ROWS 32u
#define TENSOR_QUERIES 64u
#define TENSOR_ACROSS (TENSOR_SIDE / TENSOR_QUERIES) /* warps beside each other */
#define TENSOR_PART 64u
#define TENSOR_PIECES 2u /* of 16 bytes, of a part, that a thread loads: half of a row's */
#define TENSOR_WORDS (TENSOR_SIDE * TENSOR_PART / 4)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

/* What a thread has loaded of a row or query. Queries are floats beside rows of float16, too: `wide`. */
typedef struct tensor_pieces {
    uint32_t words[TENSOR_PIECES * 8];
} tensor_pieces;

/* Of rows 16 * m and on and queries 8 * n and on: those of row lane / 4, two queries from lane % 4 * 2 on; and of row
 * lane / 4 + 8. */
typedef struct tensor_sums {
    float of[TENSOR_ROWS / 16][TENSOR_QUERIES / 8][4];
} tensor_sums;

/* Where 16 bytes of a tile's row are kept, in words. Those of eight rows are in different banks. */
GVM_DEVICE uint32_t tensor_place(uint32_t row, uint32_t piece)
{
    return (row * TENSOR_PART + (piece ^ row / 2 % 4) * 16) / 4;
}

/* The row of a tile of which this thread loads, in both matrices, and its first piece. */
GVM_DEVICE uint32_t tensor_row(void)
{
    return gvm_thread() / 2;
}

GVM_DEVICE uint32_t tensor_piece(void)
{
    return gvm_thread() % 2 * TENSOR_PIECES;
}

/* bytes: of a row, without what makes it wide. Behind the last row, and behind a row's end, there are zeros. */
GVM_DEVICE void tensor_load(const matrix *m, int wide, uint32_t bytes, uint32_t part, tensor_pieces *out)
{
    const uint64_t row = m->first + tensor_row();
    const uint8_t *from = m->bytes + row * m->pitch;
    uint32_t i, k;

    GVM_UNROLL
    for (i = 0; i < TENSOR_PIECES; i++) {
        const uint32_t at = part + (tensor_piece() + i) * 16;
        const int is_there = row < m->limit && at < bytes;

        GVM_UNROLL
        for (k = 0; k < (wide ? 2 : 1); k++) {
            const uint4 none = {0, 0, 0, 0};
            const uint4 found = is_there ? *(const uint4 *)(from + (wide ? 2 * at + 16 * k : at))
                                         : none;
            uint32_t *words = out->words + (wide ? 8 * i + 4 * k : 4 * i);

            words[0] = found.x;
            words[1] = found.y;
            words[2] = found.z;
            words[3] = found.w;
        }
    }
}

GVM_DEVICE uint32_t as_tf32(uint32_t bits)
{
    uint32_t rounded;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(as_float(bits)));
    return rounded;
}

GVM_DEVICE uint32_t as_halves(uint32_t low, uint32_t high)
{
    uint32_t both;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(as_float(high)), "f"(as_float(low)));
    return both;
}

/* As the instruction takes them. */
GVM_DEVICE void tensor_keep(uint32_t elements, int wide, const tensor_pieces *from, uint32_t *tile)
{
    uint32_t i, k;

    GVM_UNROLL
    for (i = 0; i < TENSOR_PIECES; i++) {
        uint32_t words[4];

        GVM_UNROLL
        for (k = 0; k < 4; k++)
            words[k] = wide ? as_halves(from->words[8 * i + 2 * k], from->words[8 * i + 2 * k + 1])
                       : elements == GQUERY_ELEMENTS_F32 ? as_tf32(from->words[4 * i + k])
                                                         : from->words[4 * i + k];
        *(uint4 *)(tile + tensor_place(tensor_row(), tensor_piece() + i)) = make_uint4(
            words[0], words[1], words[2], words[3]);
    }
}

/* Of the elements that a thread has loaded of a row. */
GVM_DEVICE float tensor_square(uint32_t elements, const tensor_pieces *from, float sum)
{
    uint32_t i;

    GVM_UNROLL
    for (i = 0; i < TENSOR_PIECES * 4; i++) {
        const uint32_t word = from->words[i];

        if (elements == GQUERY_ELEMENTS_F32) {
            sum = multiply_add(as_float(word), as_float(word), sum);
        } else {
            const float low = element_f16(word & 0xffff), high = element_f16(word >> 16);

            sum = multiply_add(high, high, multiply_add(low, low, sum));
        }
    }
    return sum;
}

/* Four matrices of 8 rows of 16 bytes: lane 8 * i + r has the address of row r of matrix i. */
GVM_DEVICE void load_matrices(const uint32_t *at, uint32_t *out)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(at))
                 : "memory");
}

GVM_DEVICE void add_tensor_product(uint32_t elements, float *sum, const uint32_t *a, const uint32_t *b)
{
    if (elements == GQUERY_ELEMENTS_F16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The first of this warp's rows in a tile, and of its queries. */
GVM_DEVICE uint32_t tensor_first_row(void)
{
    return gvm_thread() / 32 / TENSOR_ACROSS * TENSOR_ROWS;
}

GVM_DEVICE uint32_t tensor_first_query(void)
{
    return gvm_thread() / 32 % TENSOR_ACROSS * TENSOR_QUERIES;
}

GVM_DEVICE void tensor_multiply(uint32_t elements, const uint32_t *rows, const uint32_t *queries,
                                tensor_sums *s)
{
    const uint32_t lane = gvm_thread() % 32;
    const uint32_t row = tensor_first_row() + lane % 16, row_piece = lane / 16;
    const uint32_t query = tensor_first_query() + lane / 16 * 8 + lane % 8, query_piece = lane / 8 % 2;
    uint32_t step, m, n;

    GVM_UNROLL
    for (step = 0; step < TENSOR_PART / 32; step++) {
        uint32_t a[TENSOR_ROWS / 16][4], b[4];

        GVM_UNROLL
        for (m = 0; m < TENSOR_ROWS / 16; m++)
            load_matrices(rows + tensor_place(row + 16 * m, 2 * step + row_piece), a[m]);
        GVM_UNROLL
        for (n = 0; n < TENSOR_QUERIES / 8; n += 2) {
            load_matrices(queries + tensor_place(query + 8 * n, 2 * step + query_piece), b);
            GVM_UNROLL
            for (m = 0; m < TENSOR_ROWS / 16; m++) {
                add_tensor_product(elements, s->of[m][n], a[m], b);
                add_tensor_product(elements, s->of[m][n + 1], a[m], b + 2);
            }
        }
    }
}

/* Limits of a tile's rows and queries, in shared memory. */
typedef struct tensor_limits {
    limit of_rows[TENSOR_SIDE], of_queries[TENSOR_SIDE];
} tensor_limits;

/* square: this thread's half of its row's. TF32 has 11 bits of an element: with both rounded a product is wrong by
 * 2^-10 of itself, and the sum of products by half of that share of the squares. */
GVM_DEVICE void find_tensor_limits(const gquery_nearest *p, uint32_t elements, float square,
                                   uint64_t first_query, tensor_limits *out)
{
    const double error = error_of(p) + (elements == GQUERY_ELEMENTS_F32 ? 0x1.01p-11 : 0);
    const uint64_t query = first_query + gvm_thread();
    const double both = (double)square +
                        gvm_warp_shuffle_xor_f32(gvm_warp_mask(), square, 1, gvm_warp_size());

    if (gvm_thread() % 2 == 0)
        out->of_rows[tensor_row()] = limit_of_row(p, both, error);
    if (gvm_thread() < TENSOR_SIDE)
        out->of_queries[gvm_thread()] = limit_of_list(p, query < p->query_count ? query : first_query,
                                                      error);
}

/* Which of this thread's sums belong to pairs that may be in their lists: bit 32 * m + 4 * n + i. */
GVM_DEVICE uint64_t find_tensor_pairs(const tensor_limits *limits, const tensor_sums *s)
{
    const uint32_t row = tensor_first_row() + gvm_thread() % 32 / 4;
    const uint32_t query = tensor_first_query() + gvm_thread() % 4 * 2;
    uint64_t found = 0;
    uint32_t m, n, i;

    GVM_UNROLL
    for (n = 0; n < TENSOR_QUERIES / 8; n++) {
        GVM_UNROLL
        for (m = 0; m < TENSOR_ROWS / 16; m++) {
            GVM_UNROLL
            for (i = 0; i < 4; i++)
                if (may_be_near(s->of[m][n][i], limits->of_rows[row + 16 * m + i / 2 * 8],
                                limits->of_queries[query + 8 * n + i % 2]))
                    found |= 1ull << (32 * m + 4 * n + i);
        }
    }
    return found;
}

GVM_DEVICE void append_tensor_pairs(const gquery_nearest *p, uint64_t found, const matrix *rows,
                                    const matrix *queries)
{
    const uint64_t first_row = rows->first + tensor_first_row() + gvm_thread() % 32 / 4;
    const uint64_t first_query = queries->first + tensor_first_query() + gvm_thread() % 4 * 2;

    for (; found != 0; found &= found - 1) {
        const uint32_t at = (uint32_t)__ffsll((long long)found) - 1, i = at % 4;
        const uint64_t row = first_row + at / 32 * 16 + i / 2 * 8;
        const uint64_t query = first_query + at % 32 / 4 * 8 + i % 2;

        if (row < rows->limit && query < queries->limit)
            append_candidate(p, row, query);
    }
}

GVM_DEVICE void find_tensor_tile(const gquery_nearest *p, uint32_t elements, const matrix *rows,
                                 const matrix *queries, uint32_t *row_tiles, uint32_t *query_tiles)
{
    const int wide = elements == GQUERY_ELEMENTS_F16;
    const uint32_t bytes = p->count * (wide ? 2 : 4);
    tensor_limits *limits = (tensor_limits *)row_tiles;
    tensor_pieces of_row, of_query;
    tensor_sums s = {0};
    uint32_t part, now = 0;
    uint64_t found;
    float square = 0;

    tensor_load(rows, 0, bytes, 0, &of_row);
    tensor_load(queries, wide, bytes, 0, &of_query);
    for (part = 0; part < bytes; part += TENSOR_PART, now ^= TENSOR_WORDS) {
        square = tensor_square(elements, &of_row, square);
        tensor_keep(elements, 0, &of_row, row_tiles + now);
        tensor_keep(elements, wide, &of_query, query_tiles + now);
        gvm_block_sync();
        tensor_load(rows, 0, bytes, part + TENSOR_PART, &of_row);
        tensor_load(queries, wide, bytes, part + TENSOR_PART, &of_query);
        tensor_multiply(elements, row_tiles + now, query_tiles + now, &s);
    }
    gvm_block_sync();
    find_tensor_limits(p, elements, square, queries->first, limits);
    gvm_block_sync();
    found = find_tensor_pairs(limits, &s);
    gvm_block_sync();
    append_tensor_pairs(p, found, rows, queries);
}

/* Of floats, in tiles of that many rows and queries. */
GVM_DEVICE int has_tensor_tiles(const gquery_nearest *p, uint32_t elements)
{
    const uint32_t bytes = p->count * (elements == GQUERY_ELEMENTS_F16 ? 2u : 4u);

    return elements != GQUERY_ELEMENTS_BITS && p->side == GQUERY_SIDE_MAX &&
           (bytes | p->stride | p->query_bytes | p->values | p->queries) % 16 == 0;
}

#else

GVM_DEVICE int has_tensor_tiles(const gquery_nearest *p, uint32_t elements)
{
    (void)p;
    (void)elements;
    return 0;
}

GVM_DEVICE void find_tensor_tile(const gquery_nearest *p, uint32_t elements, const matrix *rows,
                                 const matrix *queries, uint32_t *row_tiles, uint32_t *query_tiles)
{
    (void)p;
    (void)elements;
    (void)rows;
    (void)queries;
    (void)row_tiles;
    (void)query_tiles;
}

#endif

#endif
