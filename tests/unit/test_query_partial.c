/* query/kernel_partial.h: rows of joins, of which a block may have any number between two reviews. */
#include "tests/unit/unit.h"

#define GQUERY_JOINED 1
#include <gvmem/device/kernel.h>

#include "query/kernel_partial.h"

#define ROWS 200000u /* more than a thread's note has bits for */
#define STATES GQUERY_LOCAL_STATES(GQUERY_LOCAL_MANY, GQUERY_LOCAL_FEWER)

static uint64_t shared[1024];
static gvm_soft_thread alone = {.threads = 1,
                                .warp_size = 1,
                                .size = {1, 1, 1},
                                .grid = {1, 1, 1},
                                .shared = shared,
                                .shared_bytes = sizeof shared};
static const gquery_program program = {
    .code_count = 2,
    .state_words = 1,
    .code = {{.op = GQUERY_GROUP, .a = 1}, {.op = GQUERY_AGGREGATE, .b = GQUERY_COUNT_ROWS}}};
static const uint64_t key = 7;
static const row_keys keys = {&key, 1, 1, 0};

/* One group by one key, with a count. */
static gquery_scan begin_block(void)
{
    const gquery_scan scan = {.program = (uint64_t)(uintptr_t)&program,
                              .depth = 1,
                              .state_words = 1,
                              .keys = 1,
                              .local_groups = GQUERY_LOCAL_MANY,
                              .local_copies = GQUERY_LOCAL_FEWER,
                              .local_keys_at = STATES,
                              .local_tags_at = STATES + GQUERY_LOCAL_MANY,
                              .local_tiles = 16};

    gvm_soft_current = &alone;
    local_begin(&scan);
    return scan;
}

static void hits_of_a_thread_beyond_its_note_are_all_counted(void **state)
{
    const gquery_scan scan = begin_block();
    machine m = {.local = 0};

    (void)state;
    for (uint32_t i = 0; i < ROWS; i++)
        assert_int_not_equal(find_local(&scan, &m, &keys), 0);
    assert_int_equal(local_counts(&scan)[COUNT_HITS] + m.local / LOCAL_HIT, ROWS);
}

static void rows_beyond_what_counts_have_bits_for_are_no_hits_before_a_review(void **state)
{
    const gquery_scan scan = begin_block();
    machine m = {.local = 0};
    uint32_t hits = 0;

    (void)state;
    local_counts(&scan)[COUNT_HITS] = LOCAL_HITS_MAX;
    while (hits < ROWS && find_local(&scan, &m, &keys) != 0)
        hits++;
    assert_in_range(hits, 1, UINT16_MAX);
    assert_int_equal(local_counts(&scan)[COUNT_HITS], LOCAL_HITS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_of_a_thread_beyond_its_note_are_all_counted),
        cmocka_unit_test(rows_beyond_what_counts_have_bits_for_are_no_hits_before_a_review),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
