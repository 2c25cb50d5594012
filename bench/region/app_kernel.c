/* Device code of `gvmem-bench region kernels` and `matmul`: kernels with and without regions. Each is written once; whether tiles are
 * mapped or lie in plain memory is known when it is compiled. */
#include <gvmem/device/region.h>

#include "bench/region/apps.h"

#define BINS 256
#define SQUARE 32 /* of a transposed tile, in shared memory */

enum { PLAIN, REGIONS };

GVM_DEVICE void count_wrong(uint64_t out)
{
    if (gvm_thread() == 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)out + BENCH_APP_WRONG, 1);
}

/* The block's tile: NULL if it cannot be mapped. */
GVM_DEVICE void *enter(const bench_app_params *p, int kind, uint32_t array, uint32_t tile,
                       uint32_t access)
{
    void *found = (void *)(uintptr_t)(p->plain[array] + (uint64_t)tile * p->words * sizeof(uint32_t));

    if (kind == PLAIN)
        return found;
    found = gvm_region_map_block(&p->regions[array], tile, access);
    if (found == (void *)0)
        count_wrong(p->out);
    return found;
}

GVM_DEVICE void leave(const bench_app_params *p, int kind, uint32_t array, uint32_t tile)
{
    if (kind == REGIONS)
        gvm_region_unmap_block(&p->regions[array], tile);
}

/* The statement that follows has the tile as an array of that type. */
#define WITH(type, name, array, tile, access) \
    for (type *name = (type *)enter(p, kind, array, tile, access), *name##_left = name; \
         name##_left != (type *)0; leave(p, kind, array, tile), name##_left = (type *)0)
#define READ(type, name, array, tile) WITH(const type, name, array, tile, GVM_REGION_READ)
#define WRITE(type, name, array, tile) WITH(type, name, array, tile, GVM_REGION_WRITE)
#define EACH_TILE(i, count) for (i = gvm_block(); i < (count); i += gvm_block_count())
#define EACH_WORD(j) for (j = gvm_thread(); j < p->words; j += gvm_block_threads())

GVM_DEVICE uint64_t *small_u64(const bench_app_params *p)
{
    return (uint64_t *)(uintptr_t)p->small;
}

/* ---- the ten */

GVM_DEVICE void triad(const bench_app_params *p, int kind)
{
    uint32_t i, j;

    EACH_TILE(i, p->tiles)
    READ(float, a, BENCH_APP_A, i)
    READ(float, b, BENCH_APP_B, i)
    WRITE(float, c, BENCH_APP_C, i)
    EACH_WORD(j)
    c[j] = a[j] + 3 * b[j];
}

GVM_DEVICE void reduction(const bench_app_params *p, int kind)
{
    uint64_t sum = 0;
    uint32_t i, j;

    EACH_TILE(i, p->tiles)
    READ(uint32_t, a, BENCH_APP_A, i)
    EACH_WORD(j)
    sum += a[j];
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_u64(small_u64(p), sum);
}

/* The sum of v over the threads before this one; *total over the block. */
GVM_DEVICE uint32_t sum_before(uint32_t v, uint32_t *sums, uint32_t *total)
{
    uint32_t in_warp, before = gvm_warp_before_u32(v, &in_warp), w;

    if (gvm_lane() == 0)
        sums[gvm_warp()] = in_warp;
    gvm_block_sync();
    *total = 0;
    for (w = 0; w < gvm_block_threads() / gvm_warp_size(); w++) {
        if (w < gvm_warp())
            before += sums[w];
        *total += sums[w];
    }
    gvm_block_sync();
    return before;
}

/* Step 0: the sums of tiles; 1: what comes before each tile; 2: what comes before each word. */
GVM_DEVICE void scan(const bench_app_params *p, int kind)
{
    GVM_SHARED(uint32_t, sums, 32);
    uint32_t *before = (uint32_t *)(uintptr_t)p->small, i, j, sum, total;

    if (p->step == 1) {
        for (i = 0, sum = 0; gvm_block() == 0 && i < p->tiles; i += gvm_block_threads(), sum += total) {
            const uint32_t at = i + gvm_thread(), mine = at < p->tiles ? before[at] : 0;
            const uint32_t found = sum + sum_before(mine, sums, &total);

            if (at < p->tiles)
                before[at] = found;
        }
        return;
    }
    EACH_TILE(i, p->tiles)
    READ(uint32_t, a, BENCH_APP_A, i)
    {
        if (p->step == 0) {
            sum = 0;
            EACH_WORD(j)
            sum += a[j];
            (void)sum_before(sum, sums, &total);
            if (gvm_thread() == 0)
                before[i] = total;
            continue;
        }
        sum = before[i];
        WRITE(uint32_t, c, BENCH_APP_C, i)
        for (j = 0; j < p->words; j += gvm_block_threads(), sum += total) {
            const uint32_t at = j + gvm_thread(), mine = at < p->words ? a[at] : 0;
            const uint32_t found = sum + sum_before(mine, sums, &total);

            if (at < p->words)
                c[at] = found;
        }
    }
}

GVM_DEVICE void histogram(const bench_app_params *p, int kind)
{
    GVM_SHARED(uint32_t, bins, BINS);
    uint32_t i, j, k;

    for (j = gvm_thread(); j < BINS; j += gvm_block_threads())
        bins[j] = 0;
    gvm_block_sync();
    EACH_TILE(i, p->tiles)
    READ(uint32_t, a, BENCH_APP_A, i)
    EACH_WORD(j)
    {
        const uint32_t word = a[j];

        GVM_UNROLL
        for (k = 0; k < 4; k++)
            gvm_atomic_add_u32(&bins[word >> 8 * k & 0xff], 1);
    }
    gvm_block_sync();
    for (j = gvm_thread(); j < BINS; j += gvm_block_threads())
        gvm_atomic_add_u64(&small_u64(p)[j], gvm_atomic_add_u32(&bins[j], 0));
}

/* Tile (row, column) becomes tile (column, row). */
GVM_DEVICE void transpose(const bench_app_params *p, int kind)
{
    GVM_SHARED(uint32_t, square, SQUARE * (SQUARE + 1));
    uint32_t i, j, x, y, side = SQUARE;

    while (side * side < p->words)
        side *= 2;
    EACH_TILE(i, p->tiles)
    READ(uint32_t, a, BENCH_APP_A, i)
    WRITE(uint32_t, c, BENCH_APP_C, i % p->across * p->across + i / p->across)
    for (y = 0; y < side; y += SQUARE)
        for (x = 0; x < side; x += SQUARE) {
            for (j = gvm_thread(); j < SQUARE * SQUARE; j += gvm_block_threads())
                square[j / SQUARE * (SQUARE + 1) + j % SQUARE] = a[(y + j / SQUARE) * side + x + j % SQUARE];
            gvm_block_sync();
            for (j = gvm_thread(); j < SQUARE * SQUARE; j += gvm_block_threads())
                c[(x + j / SQUARE) * side + y + j % SQUARE] = square[j % SQUARE * (SQUARE + 1) + j / SQUARE];
            gvm_block_sync();
        }
}

/* A grid of temperatures, cut into strips of rows, and heat that comes to each cell. Border cells have themselves for neighbours. */
GVM_DEVICE void hotspot(const bench_app_params *p, int kind)
{
    const uint32_t last = p->words - BENCH_APP_STRIP;
    uint32_t i, j;

    EACH_TILE(i, p->tiles)
    READ(float, above, BENCH_APP_A, i > 0 ? i - 1 : i)
    READ(float, below, BENCH_APP_A, i + 1 < p->tiles ? i + 1 : i)
    READ(float, a, BENCH_APP_A, i)
    READ(float, b, BENCH_APP_B, i)
    WRITE(float, c, BENCH_APP_C, i)
    EACH_WORD(j)
    {
        const uint32_t x = j % BENCH_APP_STRIP;
        const float up = j != x ? a[j - BENCH_APP_STRIP] : i > 0 ? above[last + x] : a[j];
        const float down = j < last ? a[j + BENCH_APP_STRIP] : i + 1 < p->tiles ? below[x] : a[j];
        const float left = x > 0 ? a[j - 1] : a[j];
        const float right = x + 1 < BENCH_APP_STRIP ? a[j + 1] : a[j];

        c[j] = ((up + down) + (left + right)) * 0.25f + b[j];
    }
}

/* The cheapest way through the rows of A up to each column: a row each step, from B to C and back. */
GVM_DEVICE void pathfinder(const bench_app_params *p, int kind)
{
    const uint32_t from = p->step % 2 == 0 ? BENCH_APP_B : BENCH_APP_C,
                   to = BENCH_APP_B + BENCH_APP_C - from;
    uint32_t i, j;

    EACH_TILE(i, p->across)
    READ(uint32_t, a, BENCH_APP_A, p->step * p->across + i)
    READ(uint32_t, before, from, i > 0 ? i - 1 : i)
    READ(uint32_t, behind, from, i + 1 < p->across ? i + 1 : i)
    READ(uint32_t, b, from, i)
    WRITE(uint32_t, c, to, i)
    EACH_WORD(j)
    {
        const uint32_t left = j > 0 ? b[j - 1] : i > 0 ? before[p->words - 1] : b[j];
        const uint32_t right = j + 1 < p->words ? b[j + 1] : i + 1 < p->across ? behind[0] : b[j];
        const uint32_t least = left < right ? left : right;

        c[j] = a[j] % 16 + (least < b[j] ? least : b[j]);
    }
}

/* The point (a, b) that is nearest to a target: its distance, and above that its number, inverted, so that the largest is wanted. */
GVM_DEVICE void nearest(const bench_app_params *p, int kind)
{
    uint64_t best = 0, key;
    uint32_t i, j;

    EACH_TILE(i, p->tiles)
    READ(uint32_t, a, BENCH_APP_A, i)
    READ(uint32_t, b, BENCH_APP_B, i)
    EACH_WORD(j)
    {
        key = ~((uint64_t)bench_app_distance(a[j], b[j]) << 32 | (i * p->words + j));
        best = key > best ? key : best;
    }
    if (best > gvm_load_consume_u64(small_u64(p)))
        gvm_atomic_max_u64(small_u64(p), best);
}

/* Which of the centres is nearest to the point (a, b); and how many points and what sums of coordinates each has. */
GVM_DEVICE void kmeans(const bench_app_params *p, int kind)
{
    GVM_SHARED(uint64_t, sums, 3 * BENCH_APP_CENTRES);
    uint32_t i, j, at;

    for (j = gvm_thread(); j < 3 * BENCH_APP_CENTRES; j += gvm_block_threads())
        sums[j] = 0;
    gvm_block_sync();
    EACH_TILE(i, p->tiles)
    READ(uint32_t, a, BENCH_APP_A, i)
    READ(uint32_t, b, BENCH_APP_B, i)
    WRITE(uint32_t, c, BENCH_APP_C, i)
    EACH_WORD(j)
    {
        at = bench_app_centre_of(a[j] % 256, b[j] % 256);
        c[j] = at;
        gvm_atomic_add_u64(&sums[3 * at], 1);
        gvm_atomic_add_u64(&sums[3 * at + 1], a[j] % 256);
        gvm_atomic_add_u64(&sums[3 * at + 2], b[j] % 256);
    }
    gvm_block_sync();
    for (j = gvm_thread(); j < 3 * BENCH_APP_CENTRES; j += gvm_block_threads())
        gvm_atomic_add_u64(&small_u64(p)[j], gvm_atomic_add_u64(&sums[j], 0));
}

/* Rows of as many entries: their columns in A, their values in B. small has the products, and behind them the vector. */
GVM_DEVICE void sparse(const bench_app_params *p, int kind)
{
    float *product = (float *)(uintptr_t)p->small;
    const uint32_t rows = p->words / BENCH_APP_ROW, all = p->tiles * rows;
    const float *vector = product + all;
    uint32_t i, row, j, step;

    EACH_TILE(i, p->tiles)
    READ(uint32_t, a, BENCH_APP_A, i)
    READ(uint32_t, b, BENCH_APP_B, i)
    for (row = gvm_warp(); row < rows; row += gvm_block_threads() / gvm_warp_size()) {
        float sum = 0;

        for (j = row * BENCH_APP_ROW + gvm_lane(); j < (row + 1) * BENCH_APP_ROW; j += gvm_warp_size())
            sum += (float)(b[j] % 64) * vector[a[j] % all];
        for (step = gvm_warp_size() / 2; step > 0; step /= 2)
            sum += gvm_warp_down_f32(sum, step);
        if (gvm_lane() == 0)
            product[i * rows + row] = sum;
    }
}

/* ---- filling and comparing */

/* All arrays in plain memory; and the vector of the sparse matrix. */
GVM_KERNEL(app_fill, bench_app_params, p)
{
    const uint64_t words = (uint64_t)p.tiles * p.words;
    uint64_t i;
    uint32_t array;

    for (array = BENCH_APP_A; array <= BENCH_APP_B; array++)
        for (i = gvm_thread_global(); i < words; i += gvm_thread_count())
            if (p.floats)
                ((float *)(uintptr_t)p.plain[array])[i] = bench_app_float(array, i);
            else
                ((uint32_t *)(uintptr_t)p.plain[array])[i] = bench_app_word(array, i);
}

GVM_KERNEL(app_fill_vector, bench_app_params, p)
{
    uint64_t i;

    for (i = gvm_thread_global(); i < p.small_words / 2; i += gvm_thread_count())
        ((float *)(uintptr_t)p.small)[p.small_words / 2 + i] = bench_app_float(BENCH_APP_C, i);
}

/* A digest of array p.step. */
GVM_DEVICE void digest(const bench_app_params *p, int kind)
{
    uint64_t sum = 0;
    uint32_t i, j;

    EACH_TILE(i, p->tiles)
    READ(uint32_t, c, p->step, i)
    EACH_WORD(j)
    sum += bench_app_mix((uint64_t)i * p->words + j, c[j]);
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)p->out + BENCH_APP_DIGEST, sum);
}

#define APP_KERNEL(function) \
    GVM_KERNEL(function##_plain, bench_app_params, p) \
    { \
        function(&p, PLAIN); \
    } \
    GVM_KERNEL_BOUNDED(function##_regions, bench_app_params, p, 256, 8) \
    { \
        function(&p, REGIONS); \
    }
APP_KERNEL(triad)
APP_KERNEL(reduction)
APP_KERNEL(scan)
APP_KERNEL(histogram)
APP_KERNEL(transpose)
APP_KERNEL(hotspot)
APP_KERNEL(pathfinder)
APP_KERNEL(nearest)
APP_KERNEL(kmeans)
APP_KERNEL(sparse)
APP_KERNEL(digest)

/* ---- matrix multiply, with tiles of A and B in shared memory */

#define TILE BENCH_MATMUL_TILE
#define DEPTH BENCH_MATMUL_DEPTH
#define EACH 4 /* rows and columns of a thread */

/* Small whole numbers: sums of their products are exact. which: 0 A, 1 B. */
GVM_DEVICE float element(uint32_t which, uint32_t row, uint32_t column)
{
    return (float)((row * 31 + column * 17 + (row ^ column) + which) % 11) - 5;
}

GVM_KERNEL(matmul_fill, bench_matmul_params, p)
{
    uint64_t i;

    for (i = gvm_thread_global(); i < (uint64_t)p.n * p.n; i += gvm_thread_count()) {
        ((float *)(uintptr_t)p.plain_a)[i] = element(0, (uint32_t)(i / p.n), (uint32_t)(i % p.n));
        ((float *)(uintptr_t)p.plain_b)[i] = element(1, (uint32_t)(i / p.n), (uint32_t)(i % p.n));
    }
}

/* The thread's number, computed anew for each k: what follows from it would take registers over all calls in a loop otherwise. */
GVM_DEVICE uint32_t thread_at(uint32_t k)
{
#ifdef __CUDACC__
    return (uint32_t)gvm_hide_u64(gvm_thread() | (uint64_t)k << 32);
#else
    (void)k;
    return gvm_thread();
#endif
}

#define ROWS_AT_ONCE (BENCH_MATMUL_THREADS / DEPTH) /* of A that the block's threads load */
#define B_ROWS_AT_ONCE (BENCH_MATMUL_THREADS / TILE)

/* The thread's part of the next DEPTH columns of the tile's rows of A, and rows of its columns of B. */
GVM_DEVICE void load_tiles(const float *a, uint32_t a_pitch, const float *b, uint32_t b_pitch,
                           float *a_tile, float *b_tile, uint32_t thread)
{
    uint32_t i;

    GVM_UNROLL
    for (i = 0; i < TILE / ROWS_AT_ONCE; i++)
        a_tile[thread % DEPTH * (TILE + 1) + thread / DEPTH + i * ROWS_AT_ONCE] =
            a[i * ROWS_AT_ONCE * a_pitch];
    GVM_UNROLL
    for (i = 0; i < DEPTH / B_ROWS_AT_ONCE; i++)
        b_tile[thread + i * BENCH_MATMUL_THREADS] = b[i * B_ROWS_AT_ONCE * b_pitch];
}

GVM_DEVICE void multiply_tiles(const float *a_tile, const float *b_tile, float sums[EACH][EACH],
                               uint32_t thread)
{
    const uint32_t row = thread / (TILE / EACH) * EACH, column = thread % (TILE / EACH);
    uint32_t k, y, x;

    GVM_UNROLL
    for (k = 0; k < DEPTH; k++) {
        GVM_UNROLL
        for (y = 0; y < EACH; y++) {
            GVM_UNROLL
            for (x = 0; x < EACH; x++)
                sums[y][x] += a_tile[k * (TILE + 1) + row + y] *
                              b_tile[k * TILE + column + x * (TILE / EACH)];
        }
    }
}

/* A window of B, times as many columns of A. */
GVM_DEVICE void multiply_window(const bench_matmul_params *p, const float *a, const float *b,
                                uint32_t b_pitch, float sums[EACH][EACH], uint32_t k)
{
    const uint32_t thread = thread_at(k);
    GVM_SHARED(float, a_tile, DEPTH *(TILE + 1));
    GVM_SHARED(float, b_tile, DEPTH *TILE);
    uint32_t left;

    a += (uint64_t)(thread / DEPTH) * p->n + thread % DEPTH;
    b += (uint64_t)(thread / TILE) * b_pitch + thread % TILE;
    GVM_NO_UNROLL
    for (left = p->chunk; left > 0; left -= DEPTH, a += DEPTH, b += DEPTH * b_pitch) {
        load_tiles(a, p->n, b, b_pitch, a_tile, b_tile, thread);
        gvm_block_sync();
        multiply_tiles(a_tile, b_tile, sums, thread);
        gvm_block_sync();
    }
}

GVM_DEVICE void store_tile(float *c, uint32_t pitch, float sums[EACH][EACH])
{
    const uint32_t row = gvm_thread() / (TILE / EACH) * EACH, column = gvm_thread() % (TILE / EACH);
    uint32_t y, x;

    GVM_UNROLL
    for (y = 0; y < EACH; y++) {
        GVM_UNROLL
        for (x = 0; x < EACH; x++)
            c[(uint64_t)(row + y) * pitch + column + x * (TILE / EACH)] = sums[y][x];
    }
}

GVM_DEVICE uint32_t pitch_of(const gvm_region_view *view, const void *address)
{
    return (uint32_t)(gvm_region_pitch(view, address) / sizeof(float));
}

/* The row and the column of the block's tile. Blocks go down the columns, so that all that run at once need few windows of B. */
GVM_DEVICE uint32_t tile_row(const bench_matmul_params *p)
{
    return gvm_block() % (p->n / TILE);
}

GVM_DEVICE uint32_t tile_column(const bench_matmul_params *p)
{
    return gvm_block() / (p->n / TILE);
}

GVM_DEVICE void multiply_plain(const bench_matmul_params *p)
{
    const uint64_t row = tile_row(p) * TILE, column = tile_column(p) * TILE;
    const float *a = (const float *)(uintptr_t)p->plain_a + row * p->n;
    const float *b = (const float *)(uintptr_t)p->plain_b + column;
    float sums[EACH][EACH] = {{0}};
    uint32_t k;

    GVM_NO_UNROLL
    for (k = 0; k < p->n; k += p->chunk)
        multiply_window(p, a + k, b + (uint64_t)k * p->n, p->n, sums, k);
    store_tile((float *)(uintptr_t)p->plain_c + row * p->n + column, p->n, sums);
}

/* The first block of a column brings the windows of a later one meanwhile. */
GVM_DEVICE void multiply_regions(const bench_matmul_params *p)
{
    const uint32_t across = p->n / TILE, row = tile_row(p), column = tile_column(p);
    const uint32_t end = p->b.count;
    uint32_t ahead = row == 0 && column + p->ahead < across ? p->ahead : end, window, wrong = 1;
    const float *a = (const float *)gvm_region_map_block(&p->a, 0, GVM_REGION_READ);
    float sums[EACH][EACH] = {{0}};

    if (a != (const float *)0)
        a += (uint64_t)row * TILE * p->n;
    GVM_NO_UNROLL
    for (window = column; window < end && a != (const float *)0; window += across, a += p->chunk) {
        if (ahead < end)
            gvm_region_prefetch_block(&p->b, window + ahead);
        GVM_REGION_SCOPE_BLOCK(const float *, b, &p->b, window, GVM_REGION_READ)
            multiply_window(p, a, b, pitch_of(&p->b, b), sums, window);
    }
    window = row * across + column;
    GVM_REGION_SCOPE_BLOCK(float *, c, &p->c, window, GVM_REGION_WRITE) {
        store_tile(c, pitch_of(&p->c, c), sums);
        wrong = a == (const float *)0;
    }
    if (wrong)
        count_wrong(p->out);
    if (a != (const float *)0)
        gvm_region_unmap_block(&p->a, 0);
}

GVM_KERNEL(matmul_plain, bench_matmul_params, p)
{
    multiply_plain(&p);
}

/* As many blocks as without regions: what does not fit into registers over a map is kept in memory over it. */
GVM_KERNEL_BOUNDED(matmul_regions, bench_matmul_params, p, BENCH_MATMUL_THREADS, 6)
{
    multiply_regions(&p);
}

/* Of C in plain memory; a whole product may be checked by it. */
GVM_KERNEL(matmul_digest, bench_matmul_params, p)
{
    uint64_t i, sum = 0;

    for (i = gvm_thread_global(); i < (uint64_t)p.n * p.n; i += gvm_thread_count())
        sum += bench_app_mix(i, (uint32_t)(int32_t)((const float *)(uintptr_t)p.plain_c)[i]);
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.out + BENCH_APP_DIGEST, sum);
}
