/* Cases: the threads of a block. Goal: each has the indices of its place, shared memory is one object for each block,
 * barriers hold all threads that have not returned, and blocks that are too large are refused.
 *
 * Blocks are as large as the device's are, 256 threads at most, so that the same cases run on devices of any block and warp
 * size.
 */
#include "tests/conform/execution.h"

#include <string.h>

#define RESULTS_MAX (CONFORM_SCRATCH_BYTES / sizeof(uint64_t))

typedef struct shape {
    unsigned grid[3], block[3];
} shape;

static unsigned volume(const unsigned size[3])
{
    return size[0] * size[1] * size[2];
}

static CUresult try_in(const char *name, const shape *s, unsigned shared_bytes,
                       const conform_block *params)
{
    void *list[] = {(void *)(uintptr_t)params};
    return cu->cuLaunchKernel(kernel(name), s->grid[0], s->grid[1], s->grid[2], s->block[0],
                              s->block[1], s->block[2], shared_bytes, NULL, list, NULL);
}

/* What the threads of the launch have left, in the order of blocks and threads. */
static const uint64_t *results_of(const char *name, const shape *s, unsigned shared_bytes,
                                  const conform_block *asked)
{
    static uint64_t results[RESULTS_MAX];
    conform_block params = *asked;
    const size_t bytes = (size_t)volume(s->grid) * volume(s->block) * sizeof *results;
    params.out = scratch();
    REQUIRE_TRUE(bytes <= sizeof results);
    REQUIRE_OK(try_in(name, s, shared_bytes, &params));
    REQUIRE_OK(cu->cuCtxSynchronize());
    REQUIRE_OK(cu->cuMemcpyDtoH(results, scratch(), bytes));
    return results;
}

static int attribute(CUdevice_attribute which)
{
    int value = 0;
    REQUIRE_OK(cu->cuDeviceGetAttribute(&value, which, machine.device));
    return value;
}

/* A block of these proportions that the device has room for. */
static shape shaped(unsigned blocks, unsigned y, unsigned z)
{
    shape s = {{blocks, 1, 1}, {machine.block_threads, 1, 1}};
    while (z > 1 && s.block[0] % 2 == 0) {
        s.block[0] /= 2, s.block[2] *= 2;
        z /= 2;
    }
    while (y > 1 && s.block[0] % 2 == 0) {
        s.block[0] /= 2, s.block[1] *= 2;
        y /= 2;
    }
    return s;
}

static shape line(unsigned blocks)
{
    return shaped(blocks, 1, 1);
}

/* ---- indices */

static uint64_t packed(unsigned at, const unsigned size[3])
{
    return CONFORM_PACK(at % size[0], at / size[0] % size[1], at / size[0] / size[1]);
}

static uint64_t expected_place(uint32_t what, const shape *s, unsigned block, unsigned thread)
{
    const unsigned threads = volume(s->block), lanes = (unsigned)machine.warp_threads;
    switch (what) {
    case CONFORM_THREAD: return packed(thread, s->block);
    case CONFORM_THREADS: return CONFORM_PACK(s->block[0], s->block[1], s->block[2]);
    case CONFORM_BLOCK: return packed(block, s->grid);
    case CONFORM_BLOCKS: return CONFORM_PACK(s->grid[0], s->grid[1], s->grid[2]);
    case CONFORM_NUMBER: return CONFORM_PACK(thread, threads, 0);
    case CONFORM_LANE: return CONFORM_PACK(thread % lanes, thread / lanes, lanes);
    default: return CONFORM_PACK(block % s->grid[0] * threads + thread, s->grid[0] * threads, 0);
    }
}

static void expect_places(uint32_t what, shape s)
{
    const conform_block params = {.what = what};
    const uint64_t *found = results_of("where", &s, 0, &params);
    const unsigned threads = volume(s.block);
    for (unsigned i = 0; i < volume(s.grid) * threads; i++)
        REQUIRE_U64(found[i], expected_place(what, &s, i / threads, i % threads));
}

CASE(block_of_one_dimension_has_indices)
{
    expect_places(CONFORM_THREAD, line(3));
}

CASE(block_of_two_dimensions_has_indices)
{
    expect_places(CONFORM_THREAD, shaped(3, 4, 1));
    expect_places(CONFORM_THREAD, shaped(2, 16, 1));
}

CASE(block_of_three_dimensions_has_indices)
{
    expect_places(CONFORM_THREAD, shaped(3, 4, 2));
    expect_places(CONFORM_THREAD, shaped(2, 2, 8));
}

CASE(block_of_odd_sizes_has_indices)
{
    const unsigned most = machine.block_threads;
    expect_places(CONFORM_THREAD, (shape){{2, 1, 1}, {most < 3 ? 1 : 3, most < 15 ? 1 : 5, 1}});
    expect_places(CONFORM_THREAD,
                  (shape){{2, 1, 1}, {most < 60 ? 1 : 5, most < 60 ? 1 : 3, most < 4 ? 1 : 4}});
}

CASE(block_may_lie_along_y)
{
    expect_places(CONFORM_THREAD, (shape){{2, 1, 1}, {1, machine.block_threads, 1}});
}

CASE(block_may_lie_along_z)
{
    const unsigned most = (unsigned)attribute(4 /* MAX_BLOCK_DIM_Z */);
    expect_places(CONFORM_THREAD, (shape){{2, 1, 1}, {1, 1, most < 64 ? most : 64}});
}

CASE(block_sizes_are_those_of_the_launch)
{
    expect_places(CONFORM_THREADS, line(2));
    expect_places(CONFORM_THREADS, shaped(2, 4, 2));
}

CASE(block_of_two_dimensional_grid_has_indices)
{
    shape s = line(5);
    s.grid[1] = 3;
    expect_places(CONFORM_BLOCK, s);
}

CASE(block_of_three_dimensional_grid_has_indices)
{
    shape s = line(2);
    s.grid[1] = 3;
    s.grid[2] = 4;
    expect_places(CONFORM_BLOCK, s);
}

/* So many that one SM has several of them in a row. */
CASE(block_of_large_grid_has_indices)
{
    expect_places(CONFORM_BLOCK, (shape){{7, 41, 5}, {1, 1, 1}});
}

CASE(block_has_the_sizes_of_its_grid)
{
    shape s = shaped(4, 2, 2);
    s.grid[1] = 2;
    s.grid[2] = 3;
    expect_places(CONFORM_BLOCKS, s);
}

CASE(block_numbers_its_threads_x_then_y_then_z)
{
    expect_places(CONFORM_NUMBER, shaped(2, 4, 2));
    expect_places(CONFORM_NUMBER, shaped(2, 8, 1));
}

CASE(block_makes_warps_in_the_order_of_its_threads)
{
    expect_places(CONFORM_LANE, line(2));
    expect_places(CONFORM_LANE, shaped(2, 4, 4));
}

CASE(block_may_end_within_a_warp)
{
    const unsigned lanes = (unsigned)machine.warp_threads, threads = machine.block_threads - lanes / 2;
    expect_places(CONFORM_LANE, (shape){{3, 1, 1}, {threads, 1, 1}});
    expect_places(CONFORM_NUMBER, (shape){{3, 1, 1}, {threads, 1, 1}});
}

CASE(block_threads_are_numbered_through_the_launch)
{
    expect_places(CONFORM_GLOBAL, line(20));
    expect_places(CONFORM_GLOBAL, shaped(20, 4, 2));
}

CASE(block_of_one_thread_is_a_block)
{
    const shape s = {{7, 1, 1}, {1, 1, 1}};
    for (uint32_t what = CONFORM_THREAD; what <= CONFORM_GLOBAL; what++)
        expect_places(what, s);
}

/* ---- how large a block may be */

static CUresult try_block(unsigned x, unsigned y, unsigned z)
{
    const conform_block params = {.out = scratch(), .what = CONFORM_NUMBER};
    const shape s = {{1, 1, 1}, {x, y, z}};
    return try_in("where", &s, 0, &params);
}

CASE(block_limits_fit_each_other)
{
    const int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    EXPECT_TRUE(attribute(2 /* MAX_BLOCK_DIM_X */) == most);
    EXPECT_TRUE(attribute(3 /* MAX_BLOCK_DIM_Y */) == most);
    EXPECT_TRUE(attribute(4 /* MAX_BLOCK_DIM_Z */) == (most < 64 ? most : 64));
    EXPECT_TRUE(attribute(39 /* MAX_THREADS_PER_MULTIPROCESSOR */) >= most);
    EXPECT_U64(most % machine.warp_threads, 0);
    EXPECT_TRUE(most / machine.warp_threads <= 32);
    EXPECT_TRUE((machine.warp_threads & (machine.warp_threads - 1)) == 0);
}

CASE(block_longer_than_x_allows_refused)
{
    EXPECT_INVALID(try_block((unsigned)attribute(2 /* MAX_BLOCK_DIM_X */) + 1, 1, 1));
    EXPECT_INVALID(try_block(~0u, 1, 1));
}

CASE(block_longer_than_y_allows_refused)
{
    EXPECT_INVALID(try_block(1, (unsigned)attribute(3 /* MAX_BLOCK_DIM_Y */) + 1, 1));
    EXPECT_INVALID(try_block(1, ~0u, 1));
}

CASE(block_longer_than_z_allows_refused)
{
    EXPECT_INVALID(try_block(1, 1, (unsigned)attribute(4 /* MAX_BLOCK_DIM_Z */) + 1));
    EXPECT_INVALID(try_block(1, 1, ~0u));
}

CASE(block_whose_product_is_too_large_refused)
{
    const unsigned most = (unsigned)attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    const unsigned deep = (unsigned)attribute(4 /* MAX_BLOCK_DIM_Z */);
    EXPECT_INVALID(try_block(most, most < 2 ? 2 : most, 1));
    EXPECT_INVALID(try_block(most / 2 + 1, 2, 1));
    EXPECT_INVALID(try_block(1, most / deep + 1, deep < 2 ? 2 : deep));
    EXPECT_INVALID(try_block(65536, 65536, 1)); /* 2^32 */
}

CASE(block_without_threads_in_one_dimension_refused)
{
    EXPECT_INVALID(try_block(0, 1, 1));
    EXPECT_INVALID(try_block(4, 0, 1));
    EXPECT_INVALID(try_block(2, 2, 0));
    EXPECT_INVALID(try_block(0, 0, 0));
}

CASE(block_refused_leaves_the_context_usable)
{
    const conform_block params = {.what = CONFORM_THREAD};
    const shape s = line(1);
    EXPECT_INVALID(try_block(~0u, ~0u, ~0u));
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(results_of("where", &s, 0, &params)[0], 0);
}

CASE(block_of_most_threads_runs)
{
    const unsigned most = (unsigned)attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    expect_places(CONFORM_NUMBER, (shape){{2, 1, 1}, {most, 1, 1}});
    expect_places(CONFORM_NUMBER, (shape){{2, 1, 1}, {1, most, 1}});
    if (most % 4 == 0)
        expect_places(CONFORM_NUMBER, (shape){{2, 1, 1}, {most / 4, 2, 2}});
}

CASE(block_limit_of_a_function_is_within_the_device)
{
    const int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    int threads = 0;
    EXPECT_OK(
        cu->cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel("where")));
    EXPECT_TRUE(threads >= (int)machine.block_threads && threads <= most);
}

/* A block that cannot be is no error. */
CASE(block_occupancy_of_too_many_threads_is_none)
{
    const int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    int blocks = 7;
    EXPECT_OK(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel("where"), most + 1, 0));
    EXPECT_U64(blocks, 0);
}

CASE(block_occupancy_falls_with_its_size)
{
    const int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    int small = 0, large = 0;
    EXPECT_OK(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&small, kernel("where"), 1, 0));
    EXPECT_OK(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&large, kernel("where"), most, 0));
    EXPECT_TRUE(large >= 1 && small >= large);
}

/* ---- shared memory */

static uint64_t expected_shared(uint32_t what, unsigned block, unsigned thread, unsigned threads)
{
    uint64_t value = what == CONFORM_DYNAMIC ? 0 : block * 2000 + threads - 1 - thread;
    if (what != CONFORM_STATIC)
        value += (uint64_t)(block * 3000 + (thread + 1) % threads) << 32;
    return value;
}

static void expect_shared(uint32_t what, shape s)
{
    const conform_block params = {.what = what};
    const unsigned threads = volume(s.block);
    const uint64_t *found = results_of("shared", &s, what == CONFORM_STATIC ? 0 : threads * 4, &params);
    for (unsigned i = 0; i < volume(s.grid) * threads; i++)
        REQUIRE_U64(found[i], expected_shared(what, i / threads, i % threads, threads));
}

CASE(shared_static_is_one_object_for_a_block)
{
    expect_shared(CONFORM_STATIC, line(1));
    expect_shared(CONFORM_STATIC, shaped(1, 4, 2));
}

CASE(shared_static_differs_between_blocks)
{
    expect_shared(CONFORM_STATIC, line((unsigned)RESULTS_MAX / machine.block_threads));
}

CASE(shared_dynamic_is_one_object_for_a_block)
{
    expect_shared(CONFORM_DYNAMIC, line(1));
    expect_shared(CONFORM_DYNAMIC, line((unsigned)RESULTS_MAX / machine.block_threads));
}

CASE(shared_static_and_dynamic_do_not_overlap)
{
    expect_shared(CONFORM_BOTH, line(16));
    expect_shared(CONFORM_BOTH, shaped(16, 2, 4));
}

CASE(shared_dynamic_has_its_last_word)
{
    const conform_block params = {.what = CONFORM_LAST_WORD, .n = 10 * KIB};
    const shape s = line(4);
    const uint64_t *found = results_of("shared", &s, 40 * KIB, &params);
    for (unsigned i = 0; i < 4 * machine.block_threads; i++)
        REQUIRE_U64(found[i], i / machine.block_threads + 77);
}

/* ---- atomic operations on it */

static uint64_t double_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static void expect_gathered(uint32_t what, uint32_t n, uint64_t expected)
{
    const conform_block params = {.what = what, .n = n};
    const shape s = line(8);
    const uint64_t *found = results_of("gather", &s, 0, &params);
    for (unsigned i = 0; i < 8 * machine.block_threads; i++)
        REQUIRE_U64(found[i], expected);
}

/* 1 + 2 + ... of each thread's number + 1 */
static uint64_t sum_of_numbers(void)
{
    return (uint64_t)machine.block_threads * (machine.block_threads + 1) / 2;
}

CASE(shared_atomic_add_of_u32_is_exact)
{
    expect_gathered(CONFORM_ADD_U32, 50, 50 * sum_of_numbers());
}

CASE(shared_atomic_add_of_u64_is_exact)
{
    expect_gathered(CONFORM_ADD_U64, 50, (50 * sum_of_numbers()) << 33);
}

CASE(shared_atomic_add_of_f64_is_exact)
{
    expect_gathered(CONFORM_ADD_F64, 50, double_bits(25. * (double)sum_of_numbers()));
}

/* Each sum on the way is exact. */
CASE(shared_atomic_add_of_f32_is_exact)
{
    const float sum = 25.f * (float)sum_of_numbers();
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    expect_gathered(CONFORM_ADD_F32, 50, bits);
}

/* The word beside it stays as it was. */
CASE(shared_atomic_min_of_u32_keeps_the_least)
{
    expect_gathered(CONFORM_MIN_U32, 10,
                    0xffffffffull << 32 | (1000000 - 10ull * (machine.block_threads - 1)));
}

CASE(shared_atomic_max_of_u32_keeps_the_greatest)
{
    expect_gathered(CONFORM_MAX_U32, 10, 1000000 + 10ull * (machine.block_threads - 1));
}

CASE(shared_atomic_min_keeps_the_least)
{
    expect_gathered(CONFORM_MIN_U64, 10, 1000000 - 10ull * (machine.block_threads - 1));
}

CASE(shared_atomic_max_keeps_the_greatest)
{
    expect_gathered(CONFORM_MAX_U64, 10, 1000000 + 10ull * (machine.block_threads - 1));
}

CASE(shared_atomic_cas_of_u32_counts)
{
    expect_gathered(CONFORM_CAS_U32, 20, 20ull * machine.block_threads);
}

CASE(shared_atomic_cas_of_u64_counts)
{
    expect_gathered(CONFORM_CAS_U64, 20, 60ull * machine.block_threads);
}

CASE(shared_atomic_exchange_gives_each_value_once)
{
    const conform_block params = {.what = CONFORM_EXCHANGE, .n = 1};
    const shape s = line(1);
    const uint64_t *found = results_of("gather", &s, 0, &params);
    uint64_t sum = found[0] >> 20;
    for (unsigned i = 0; i < machine.block_threads; i++)
        sum += found[i] & 0xfffff;
    EXPECT_U64(sum, sum_of_numbers());
}

/* ---- barriers */

/* What exchange_in_rounds() of the kernels adds up. */
static uint64_t sum_of_rounds(unsigned thread, unsigned step, unsigned threads, uint32_t rounds)
{
    const uint64_t next = thread + step < threads ? thread + step : thread % step;
    return next * 1000 * rounds + (uint64_t)rounds * (rounds - 1) / 2;
}

static void expect_rounds(uint32_t what, shape s, uint32_t rounds)
{
    const conform_block params = {.what = what, .n = rounds};
    const unsigned threads = volume(s.block);
    const uint64_t *found = results_of("shared", &s, 0, &params);
    for (unsigned i = 0; i < volume(s.grid) * threads; i++)
        REQUIRE_U64(found[i], sum_of_rounds(i % threads, 1, threads, rounds));
}

CASE(barrier_in_a_loop_orders_each_round)
{
    expect_rounds(CONFORM_ROUNDS, line(4), 100);
    expect_rounds(CONFORM_ROUNDS, shaped(4, 4, 2), 10);
}

CASE(barrier_of_a_block_that_ends_within_a_warp)
{
    const unsigned lanes = (unsigned)machine.warp_threads;
    expect_rounds(CONFORM_ROUNDS, (shape){{4, 1, 1}, {machine.block_threads - lanes / 2, 1, 1}}, 20);
}

CASE(barrier_of_one_thread_passes)
{
    expect_rounds(CONFORM_ROUNDS, (shape){{3, 1, 1}, {1, 1, 1}}, 20);
}

CASE(barrier_of_most_threads_orders_each_round)
{
    const unsigned most = (unsigned)attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    expect_rounds(CONFORM_ROUNDS, (shape){{2, 1, 1}, {most, 1, 1}}, 20);
}

CASE(barrier_makes_the_write_of_any_thread_seen)
{
    const uint32_t rounds = 3 * machine.block_threads;
    const conform_block params = {.what = CONFORM_WRITERS, .n = rounds};
    const shape s = line(2);
    const uint64_t *found = results_of("shared", &s, 0, &params);
    for (unsigned i = 0; i < 2 * machine.block_threads; i++)
        REQUIRE_U64(found[i], (uint64_t)rounds * (rounds + 1) / 2);
}

CASE(barrier_counts_warps_that_returned)
{
    const conform_block params = {.what = CONFORM_EXIT_WARPS, .n = 20};
    const shape s = line(2);
    const unsigned lanes = (unsigned)machine.warp_threads, threads = machine.block_threads;
    const uint64_t *found = results_of("shared", &s, 0, &params);
    /* A lane whose next thread has returned reads what nobody has written; only that it returns is known. */
    for (unsigned i = 0; i < 2 * threads; i++) {
        const unsigned t = i % threads, next = (t + 1) % threads;
        if (t / lanes % 2 == 1)
            REQUIRE_U64(found[i], CONFORM_NOTHING);
        else if (next / lanes % 2 == 0)
            REQUIRE_U64(found[i], sum_of_rounds(t, 1, threads, 20));
        else
            REQUIRE_TRUE(found[i] != CONFORM_NOTHING);
    }
}

CASE(barrier_counts_lanes_that_returned)
{
    const conform_block params = {.what = CONFORM_EXIT_LANES, .n = 20};
    const shape s = line(2);
    const unsigned lanes = (unsigned)machine.warp_threads, threads = machine.block_threads;
    const uint64_t *found = results_of("shared", &s, 0, &params);
    for (unsigned i = 0; i < 2 * threads; i++)
        if (i % threads % lanes % 2 == 1)
            REQUIRE_U64(found[i], CONFORM_NOTHING);
        else
            REQUIRE_U64(found[i], sum_of_rounds(i % threads, 2, threads, 20));
}

CASE(barrier_counts_threads_that_return_one_by_one)
{
    const uint32_t rounds = machine.block_threads;
    const conform_block params = {.what = CONFORM_EXIT_LATER, .n = rounds};
    const shape s = line(2);
    const uint64_t *found = results_of("shared", &s, 0, &params);
    for (unsigned i = 0; i < 2 * machine.block_threads; i++) {
        const uint64_t seen = i % machine.block_threads +
                              1; /* in round r thread r writes r + 1, and returns */
        REQUIRE_U64(found[i], seen * (seen + 1) / 2);
    }
}

CASE(barrier_joins_branches_of_different_length)
{
    const conform_block params = {.what = CONFORM_BRANCHES};
    const shape s = line(4);
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("shared", &s, 0, &params);
    for (unsigned i = 0; i < 4 * threads; i++) {
        const unsigned t = threads - 1 - i % threads;
        REQUIRE_U64(found[i], t % 3 == 0 ? 2 * t : t % 3 == 1);
    }
}

/* ---- sums of a block */

CASE(block_sum_is_that_of_all_its_warps)
{
    const unsigned lanes = (unsigned)machine.warp_threads;
    const conform_block params = {.what = CONFORM_SUM_U64};
    for (unsigned threads = lanes; threads <= machine.block_threads; threads += lanes) {
        const shape s = {{2, 1, 1}, {threads, 1, 1}};
        const uint64_t *found = results_of("shared", &s, 0, &params);
        uint64_t sum = 0;
        for (unsigned t = 0; t < threads; t++)
            sum += CONFORM_VALUE(t);
        REQUIRE_U64(found[0], sum);
        REQUIRE_U64(found[threads], sum);
    }
}

CASE(block_sum_of_doubles_is_exact)
{
    const conform_block params = {.what = CONFORM_SUM_F64};
    const shape s = shaped(2, 2, 2);
    const uint64_t *found = results_of("shared", &s, 0, &params);
    double sum = 0;
    for (unsigned t = 0; t < machine.block_threads; t++)
        sum += CONFORM_DOUBLE(t);
    EXPECT_U64(found[0], double_bits(sum));
    EXPECT_U64(found[machine.block_threads], double_bits(sum));
}

/* ---- all blocks at once */

static CUresult meet(const shape *s, uint32_t rounds)
{
    conform_block params = {.out = scratch(), .what = CONFORM_GRID, .n = rounds};
    void *list[] = {&params};
    return cu->cuLaunchCooperativeKernel(kernel("shared"), s->grid[0], s->grid[1], s->grid[2],
                                         s->block[0], s->block[1], s->block[2], 0, NULL, list);
}

static void expect_meeting(shape s)
{
    static uint64_t found[RESULTS_MAX];
    const size_t threads = (size_t)volume(s.grid) * volume(s.block);
    const uint32_t rounds = 10;
    REQUIRE_TRUE(threads < RESULTS_MAX);
    REQUIRE_OK(cu->cuMemsetD8(scratch(), 0, CONFORM_SCRATCH_BYTES));
    REQUIRE_OK(meet(&s, rounds));
    REQUIRE_OK(cu->cuCtxSynchronize());
    REQUIRE_OK(cu->cuMemcpyDtoH(found, scratch(), threads * sizeof *found));
    for (size_t i = 0; i < threads; i++) /* 0 + 2 + 4 ... */
        REQUIRE_U64(found[i], (uint64_t)rounds * (rounds - 1));
}

static unsigned cooperative_blocks(void)
{
    int each = 0;
    REQUIRE_OK(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel("shared"),
                                                               (int)machine.block_threads, 0));
    unsigned blocks = (unsigned)(each * machine.sm_count);
    const unsigned most = (unsigned)(RESULTS_MAX - 1) / machine.block_threads;
    return blocks < most ? blocks : most;
}

CASE(cooperative_blocks_of_many_threads_meet)
{
    expect_meeting(line(cooperative_blocks()));
}

CASE(cooperative_blocks_of_three_dimensions_meet)
{
    shape s = shaped(1, 2, 2);
    s.grid[1] = cooperative_blocks();
    expect_meeting(s);
}

CASE(cooperative_blocks_that_are_too_large_refused)
{
    const unsigned most = (unsigned)attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    const shape s = {{1, 1, 1}, {most + 1, 1, 1}}, none = {{1, 1, 1}, {1, 0, 1}};
    EXPECT_INVALID(meet(&s, 1));
    EXPECT_INVALID(meet(&none, 1));
    EXPECT_OK(cu->cuCtxSynchronize());
}
