/* Cases: the lanes of a warp. Goal: shuffles and votes give each lane what its mask and width say, whatever lanes are
 * elsewhere, and lanes may wait for each other, as each has a program counter of its own.
 *
 * Launches are of two blocks, whose warps all do the same.
 */
#include "tests/conform/execution.h"

#include <string.h>

#define BLOCKS 2u
#define RESULTS_MAX (CONFORM_SCRATCH_BYTES / sizeof(uint64_t))

static unsigned lanes(void)
{
    return (unsigned)machine.warp_threads;
}

static uint32_t full(void)
{
    return ~0u >> (32 - lanes());
}

static const uint64_t *results_of(const char *name, unsigned threads, const conform_block *asked)
{
    static uint64_t results[RESULTS_MAX];
    conform_block params = *asked;
    void *list[] = {&params};
    const size_t bytes = (size_t)BLOCKS * threads * sizeof *results;
    params.out = scratch();
    REQUIRE_TRUE(bytes <= sizeof results);
    REQUIRE_OK(cu->cuLaunchKernel(kernel(name), BLOCKS, 1, 1, threads, 1, 1, 0, NULL, list, NULL));
    REQUIRE_OK(cu->cuCtxSynchronize());
    REQUIRE_OK(cu->cuMemcpyDtoH(results, scratch(), bytes));
    return results;
}

/* ---- shuffles */

enum { INDEX, UP, DOWN, XOR, WAYS };

/* The lane whose value the lane reads, as the manual of the instruction has it. */
static unsigned source_of(unsigned way, unsigned lane, unsigned n, unsigned width)
{
    const unsigned first = lane & ~(width - 1), last = first + width - 1;
    switch (way) {
    case INDEX: return first + (n & (width - 1));
    case UP: return lane < first + n ? lane : lane - n;
    case DOWN: return lane + n > last ? lane : lane + n;
    default: return (lane ^ n) > last ? lane : lane ^ n;
    }
}

static uint64_t double_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static uint32_t float_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static uint64_t value_of(uint32_t what, unsigned thread)
{
    switch (what % CONFORM_TYPES) {
    case CONFORM_INDEX_U32: return (uint32_t)CONFORM_VALUE(thread);
    case CONFORM_INDEX_U64: return CONFORM_VALUE(thread);
    case CONFORM_INDEX_F64: return double_bits(CONFORM_DOUBLE(thread));
    case CONFORM_INDEX_I32: return (uint64_t)(int64_t)(int32_t)CONFORM_VALUE(thread);
    default: return float_bits((float)CONFORM_DOUBLE(thread));
    }
}

/* Every lane of the mask; of those that read a lane outside of it only that they come to an end. */
static void expect_shuffle(uint32_t what, uint32_t mask, unsigned n, unsigned width)
{
    const conform_block params = {.what = what, .mask = mask, .n = n, .width = width};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("lanes", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++) {
        const unsigned thread = i % threads, lane = thread % lanes();
        const unsigned source = source_of(what / CONFORM_TYPES, lane, n, width);
        if ((mask >> lane & 1) == 0)
            REQUIRE_U64(found[i], CONFORM_NOTHING);
        else if ((mask >> source & 1) != 0)
            REQUIRE_U64(found[i], value_of(what, thread - lane + source));
    }
}

CASE(shuffle_from_each_lane_reaches_all)
{
    for (unsigned n = 0; n < lanes(); n++)
        expect_shuffle(CONFORM_INDEX_U32, full(), n, lanes());
}

CASE(shuffle_index_is_taken_within_the_width)
{
    for (unsigned width = 1; width <= lanes(); width *= 2) {
        expect_shuffle(CONFORM_INDEX_U32, full(), width - 1, width);
        expect_shuffle(CONFORM_INDEX_U32, full(), width, width); /* the first one again */
        expect_shuffle(CONFORM_INDEX_U32, full(), 31, width);
    }
}

CASE(shuffle_up_gives_the_value_of_a_lane_before)
{
    for (unsigned n = 0; n < lanes(); n++)
        expect_shuffle(CONFORM_UP_U32, full(), n, lanes());
}

CASE(shuffle_up_stays_within_the_width)
{
    for (unsigned width = 2; width <= lanes(); width *= 2)
        for (unsigned n = 0; n < width; n++)
            expect_shuffle(CONFORM_UP_U32, full(), n, width);
}

CASE(shuffle_down_gives_the_value_of_a_lane_behind)
{
    for (unsigned n = 0; n < lanes(); n++)
        expect_shuffle(CONFORM_DOWN_U32, full(), n, lanes());
}

CASE(shuffle_down_stays_within_the_width)
{
    for (unsigned width = 2; width <= lanes(); width *= 2)
        for (unsigned n = 0; n < width; n++)
            expect_shuffle(CONFORM_DOWN_U32, full(), n, width);
}

CASE(shuffle_xor_exchanges_lanes)
{
    for (unsigned n = 0; n < lanes(); n++)
        expect_shuffle(CONFORM_XOR_U32, full(), n, lanes());
}

/* Beyond its part of the warp a lane reads those before it, and of those behind it its own. */
CASE(shuffle_xor_beyond_the_width_reads_parts_before)
{
    for (unsigned width = 1; width <= lanes(); width *= 2)
        for (unsigned n = 1; n < lanes(); n *= 2)
            expect_shuffle(CONFORM_XOR_U32, full(), n, width);
}

CASE(shuffle_of_u64_keeps_all_bits)
{
    for (unsigned n = 0; n < lanes(); n++)
        for (unsigned way = 0; way < WAYS; way++)
            expect_shuffle(CONFORM_INDEX_U64 + CONFORM_TYPES * way, full(), n, lanes());
}

CASE(shuffle_of_f64_keeps_all_bits)
{
    for (unsigned n = 0; n < lanes(); n++)
        for (unsigned way = 0; way < WAYS; way++)
            expect_shuffle(CONFORM_INDEX_F64 + CONFORM_TYPES * way, full(), n, lanes());
}

CASE(shuffle_of_i32_keeps_all_bits)
{
    for (unsigned n = 0; n < lanes(); n++)
        for (unsigned way = 0; way < WAYS; way++)
            expect_shuffle(CONFORM_INDEX_I32 + CONFORM_TYPES * way, full(), n, lanes());
}

CASE(shuffle_of_f32_keeps_all_bits)
{
    for (unsigned n = 0; n < lanes(); n++)
        for (unsigned way = 0; way < WAYS; way++)
            expect_shuffle(CONFORM_INDEX_F32 + CONFORM_TYPES * way, full(), n, lanes());
}

CASE(shuffle_by_lanes_of_even_number)
{
    for (unsigned way = 0; way < WAYS; way++)
        for (unsigned n = 0; n < lanes(); n += 2)
            expect_shuffle(CONFORM_INDEX_U32 + CONFORM_TYPES * way, full() & 0x55555555u, n, lanes());
}

CASE(shuffle_by_lanes_of_odd_number_gives_u64)
{
    for (unsigned way = 1; way < WAYS; way++)
        for (unsigned n = 0; n < lanes(); n += 2)
            expect_shuffle(CONFORM_INDEX_U64 + CONFORM_TYPES * way, full() & 0xaaaaaaaau, n, lanes());
}

CASE(shuffle_by_the_upper_half)
{
    const uint32_t upper = full() & ~(full() >> lanes() / 2);
    for (unsigned way = 0; way < WAYS; way++)
        for (unsigned n = 0; n < lanes(); n++)
            expect_shuffle(CONFORM_INDEX_F64 + CONFORM_TYPES * way, upper, n, lanes());
}

CASE(shuffle_by_one_lane_gives_its_own)
{
    for (unsigned lane = 0; lane < lanes(); lane++)
        expect_shuffle(CONFORM_INDEX_U32, 1u << lane, lane, lanes());
}

CASE(shuffle_by_any_subset)
{
    uint32_t mask = 0x9e3779b9u;
    for (unsigned i = 0; i < 30; i++) {
        mask = mask * 1664525 + 1013904223;
        for (unsigned way = 0; way < WAYS; way++)
            expect_shuffle(CONFORM_INDEX_U32 + CONFORM_TYPES * way, full() & (mask ^ mask >> 13),
                           i % lanes(), lanes());
    }
}

CASE(shuffle_source_may_differ_between_lanes)
{
    const unsigned threads = machine.block_threads;
    for (unsigned n = 0; n < lanes(); n++) {
        const conform_block params = {
            .what = CONFORM_INDEX_OWN, .mask = full(), .n = n, .width = lanes()};
        const uint64_t *found = results_of("lanes", threads, &params);
        for (unsigned i = 0; i < BLOCKS * threads; i++) {
            const unsigned thread = i % threads, lane = thread % lanes();
            REQUIRE_U64(found[i], (uint32_t)CONFORM_VALUE(thread - lane + (5 * lane + n) % lanes()));
        }
    }
}

/* The lanes of the mask exchange with their neighbours n times, the others once. */
CASE(shuffle_in_two_branches_at_once)
{
    const uint32_t low = full() & 0x33333333u;
    const unsigned threads = machine.block_threads;
    if (lanes() < 4)
        skip("warps of fewer than four lanes");
    for (unsigned n = 0; n < 6; n++) {
        const conform_block params = {.what = CONFORM_HALVES, .mask = low, .n = n};
        const uint64_t *found = results_of("lanes", threads, &params);
        for (unsigned i = 0; i < BLOCKS * threads; i++) {
            const unsigned thread = i % threads, lane = thread % lanes();
            const bool turned = (low >> lane & 1) == 0 || n % 2 == 1;
            REQUIRE_U64(found[i], (uint32_t)CONFORM_VALUE(turned ? thread ^ 1 : thread));
        }
    }
}

/* ---- sums by shuffles */

CASE(shuffle_butterfly_sums_the_warp)
{
    const conform_block params = {.what = CONFORM_BUTTERFLY, .mask = full(), .n = 9};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("lanes", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++) {
        const unsigned first = i % threads / lanes() * lanes();
        REQUIRE_U64(found[i], lanes() * (first + 9) + lanes() * (lanes() - 1) / 2);
    }
}

static uint64_t sum_up_to(unsigned thread, unsigned n)
{
    uint64_t sum = 0;
    for (unsigned t = thread / lanes() * lanes(); t <= thread; t++)
        sum += t + n;
    return sum;
}

CASE(shuffle_scan_sums_the_lanes_before)
{
    const conform_block params = {.what = CONFORM_SCAN, .mask = full(), .n = 1};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("lanes", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++)
        REQUIRE_U64(found[i], sum_up_to(i % threads, 1));
}

static void expect_before(uint32_t what)
{
    const conform_block params = {.what = what, .mask = full(), .n = 3};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("lanes", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++) {
        const unsigned thread = i % threads, last = thread | (lanes() - 1);
        REQUIRE_U64(found[i], CONFORM_PACK(sum_up_to(thread, 3) - (thread + 3), sum_up_to(last, 3), 0));
    }
}

CASE(warp_sum_before_of_u32)
{
    expect_before(CONFORM_BEFORE_U32);
}

CASE(warp_sum_before_of_u64)
{
    expect_before(CONFORM_BEFORE_U64);
}

CASE(warp_rank_counts_the_lanes_before)
{
    static const uint32_t says[] = {0, ~0u, 1, 0x80000000u, 0x12345678u, 0xaaaaaaaau};
    const unsigned threads = machine.block_threads;
    for (size_t k = 0; k < sizeof says / sizeof *says; k++) {
        const conform_block params = {.what = CONFORM_RANK, .mask = full(), .n = says[k]};
        const uint64_t *found = results_of("lanes", threads, &params);
        for (unsigned i = 0; i < BLOCKS * threads; i++) {
            const uint32_t before = (1u << i % threads % lanes()) - 1;
            REQUIRE_U64(found[i], CONFORM_PACK(__builtin_popcount(says[k] & before),
                                               __builtin_popcount(says[k] & full()), 0));
        }
    }
}

/* ---- votes */

static const uint32_t patterns[] = {0,           ~0u,         1,           2,          0x80000000u,
                                    0x12345678u, 0x55555555u, 0xffff0000u, 0x7fffffffu};
#define PATTERNS (sizeof patterns / sizeof *patterns)

static uint64_t vote_of(uint32_t what, uint32_t mask, uint32_t says)
{
    return what == CONFORM_BALLOT ? mask & says
           : what == CONFORM_ANY  ? (mask & says) != 0
                                  : (mask & says) == mask;
}

static void expect_votes(uint32_t what, uint32_t mask)
{
    const unsigned threads = machine.block_threads;
    for (size_t k = 0; k < PATTERNS; k++) {
        const conform_block params = {.what = what, .mask = mask, .n = patterns[k]};
        const uint64_t *found = results_of("lanes", threads, &params);
        for (unsigned i = 0; i < BLOCKS * threads; i++)
            REQUIRE_U64(found[i], (mask >> i % threads % lanes() & 1) == 0
                                      ? CONFORM_NOTHING
                                      : vote_of(what, mask, patterns[k]));
    }
}

CASE(vote_ballot_has_a_bit_for_each_lane)
{
    expect_votes(CONFORM_BALLOT, full());
}

CASE(vote_any_is_true_if_one_lane_says_so)
{
    expect_votes(CONFORM_ANY, full());
}

CASE(vote_all_is_true_if_each_lane_says_so)
{
    expect_votes(CONFORM_ALL, full());
}

CASE(vote_ballot_of_a_subset_has_no_other_bits)
{
    expect_votes(CONFORM_BALLOT, full() & 0x0f0f0f0fu);
    expect_votes(CONFORM_BALLOT, 1);
}

CASE(vote_any_of_a_subset_ignores_others)
{
    expect_votes(CONFORM_ANY, full() & 0x99999999u);
}

CASE(vote_all_of_a_subset_ignores_others)
{
    expect_votes(CONFORM_ALL, full() & 0x66666667u);
}

/* Which other lanes run at the same instruction is nowhere promised. */
CASE(vote_active_has_the_lane_itself)
{
    const conform_block params = {.what = CONFORM_ACTIVE, .mask = full() & 0x77777777u};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("lanes", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++) {
        const unsigned lane = i % threads % lanes();
        if ((params.mask >> lane & 1) != 0) {
            REQUIRE_TRUE((found[i] >> lane & 1) != 0);
            REQUIRE_U64(found[i] & ~(uint64_t)params.mask, 0);
        }
    }
}

CASE(vote_of_a_warp_that_is_not_full)
{
    const unsigned there = lanes() - lanes() / 2, threads = machine.block_threads - lanes() / 2;
    const conform_block params = {.what = CONFORM_BALLOT, .mask = full() >> (lanes() - there), .n = ~0u};
    const uint64_t *found = results_of("lanes", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++)
        REQUIRE_U64(found[i], i % threads % lanes() < there ? params.mask : CONFORM_NOTHING);
}

static void expect_returned(uint32_t stay, uint32_t named)
{
    const conform_block params = {.what = CONFORM_RETURNED, .mask = stay, .n = named};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("lanes", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++)
        REQUIRE_U64(found[i], (stay >> i % threads % lanes() & 1) != 0 ? stay : CONFORM_NOTHING);
}

CASE(vote_among_those_that_have_not_returned)
{
    expect_returned(full() & 0x5555aaaau, full() & 0x5555aaaau);
    expect_returned(1, 1);
}

CASE(vote_mask_may_name_lanes_that_have_returned)
{
    expect_returned(full() & 0x0ff00ff1u, full());
    expect_returned(full() & 0x11111111u, ~0u);
}

/* Lane i votes in rounds 0 to i, with those that are still there. */
CASE(vote_in_a_loop_that_lanes_leave)
{
    const conform_block params = {.what = CONFORM_LOOP, .mask = full()};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("lanes", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++) {
        const uint64_t rounds = i % threads % lanes() + 1;
        REQUIRE_U64(found[i], rounds * lanes() - rounds * (rounds - 1) / 2);
    }
}

/* ---- order between lanes */

static uint64_t sum_of_rounds(unsigned thread, unsigned step, unsigned rounds)
{
    const unsigned lane = thread % lanes();
    const uint64_t next = lane + step < lanes() ? thread + step : thread - lane + lane % step;
    return next * 1000 * rounds + (uint64_t)rounds * (rounds - 1) / 2;
}

CASE(warp_sync_orders_words_of_its_lanes)
{
    const conform_block params = {.what = CONFORM_WARP_SYNC, .n = 100};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("shared", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++)
        REQUIRE_U64(found[i], sum_of_rounds(i % threads, 1, 100));
}

CASE(warp_sync_by_masks_in_two_branches)
{
    const conform_block params = {.what = CONFORM_BRANCH_SYNC, .n = 30};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("shared", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++)
        REQUIRE_U64(found[i], sum_of_rounds(i % threads, 2, 30 + i % threads % lanes() % 2));
}

static void expect_spin(uint32_t what, uint32_t n)
{
    const conform_block params = {.what = what, .n = n};
    const unsigned threads = machine.block_threads;
    const uint64_t *found = results_of("spin", threads, &params);
    for (unsigned i = 0; i < BLOCKS * threads; i++)
        REQUIRE_U64(found[i], 1);
}

CASE(lanes_take_a_lock_in_turns)
{
    if (machine.block_threads < 2)
        skip("blocks of one thread");
    expect_spin(CONFORM_LOCK_TWO, 100);
}

CASE(lanes_of_all_warps_take_a_lock)
{
    expect_spin(CONFORM_LOCK_ALL, 3);
}

CASE(lanes_send_a_word_to_and_fro)
{
    expect_spin(CONFORM_PING_PONG, 30);
}

CASE(lanes_wait_for_the_lane_before)
{
    expect_spin(CONFORM_WAIT_LOWER, 3);
}

CASE(lanes_wait_for_the_lane_behind)
{
    expect_spin(CONFORM_WAIT_HIGHER, 3);
}

CASE(lanes_go_by_tickets)
{
    expect_spin(CONFORM_TICKETS, 2);
}

CASE(lanes_in_one_branch_wait_for_those_in_the_other)
{
    expect_spin(CONFORM_BRANCH, 5);
}

CASE(warps_wait_for_another_of_their_block)
{
    expect_spin(CONFORM_WARPS, 5);
}
