/* appender/feed.c: how much of small and large chunks an appender holds, without history and with one. The test is
 * the kernel (appender_fixture.h); it claims without writing, since what counts is what is committed.
 */
#include <stdatomic.h>

#include "sharing/share.h"
#include "tests/lib/units.h"
#include "tests/unit/appender_fixture.h"

#define LARGE (512 * MIB)
#define SMALL (2 * MIB)
#define RESERVE (1024 * GIB)

static const gvm_appender_options large = {.chunk_bytes = LARGE};

/* ---- a driver that counts handles, and refuses large ones */

static atomic_int small_handles, large_handles;
static atomic_size_t refused_bytes; /* handles of so much and more; 0: none */

static CUresult create_counted(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (refused_bytes != 0 && bytes >= refused_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(bytes < LARGE ? &small_handles : &large_handles, 1);
    return real->cuMemCreate(handle, bytes, prop, flags);
}

static bool start_large(void)
{
    if (!start_on("64GiB", ROW, RESERVE, &large))
        return false;
    table.cuMemCreate = create_counted;
    return true;
}

static bool claim(uint64_t rows_bytes, uint64_t bytes)
{
    gvm_append_place place;

    if (gvm_append_claim(&append, rows_bytes / ROW, bytes, 1, &place) != GVM_APPEND_OK)
        return false;
    gvm_append_publish(&append, place.amount);
    return true;
}

static bool take_and_drop(void)
{
    gvm_buffer *buffer;

    if (gvm_appender_take(appender, &buffer) != GVM_OK)
        return false;
    gvm_buffer_destroy(buffer);
    return true;
}

/* A launch that writes so much, and its buffer, which is destroyed. */
static bool launch_and_drop(uint64_t rows_bytes, uint64_t bytes)
{
    return begin() == GVM_OK && claim(rows_bytes, bytes) && finish() == GVM_OK &&
           result.complete == 1 && take_and_drop();
}

/* A launch that writes nothing. */
static bool begins_with(uint64_t front_bytes, uint64_t back_bytes)
{
    return begin() == GVM_OK && info().front_bytes == front_bytes &&
           info().back_bytes == back_bytes && finish() == GVM_OK;
}

static uint64_t device_bytes(gvm_buffer *buffer)
{
    gvm_buffer_info i = {.struct_size = sizeof i};

    return gvm_buffer_get_info(buffer, &i) == GVM_OK ? i.device_bytes : UINT64_MAX;
}

/* ---- without history */

static int hold_nothing(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start_large());
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(info().front_bytes == SMALL && info().back_bytes == SMALL);
    CHILD_EXPECT(device_bytes(gvm_appender_buffer(appender)) == 2 * SMALL);
    CHILD_EXPECT(info().chunk_bytes == LARGE && info().reserve_bytes == RESERVE);
    CHILD_EXPECT(finish() == GVM_OK && result.commits == 2);
    CHILD_EXPECT(stop());
    return 0;
}

/* By default, too, where the device makes it chunks of 128 MiB: as many as there is room for small ones. */
static int hold_nothing_many_times(void *arg)
{
    enum { MANY = 100 };
    static gvm_appender *many[MANY];
    gvm_append append_of = {.struct_size = sizeof append_of};

    (void)arg;
    CHILD_EXPECT(start_on("2GiB", ROW, RESERVE, &large));
    for (int i = 0; i < MANY; i++) {
        gvm_appender_info of = {.struct_size = sizeof of};

        CHILD_EXPECT(gvm_appender_create(device, 8, 8 * GIB, NULL, &many[i]) == GVM_OK);
        CHILD_EXPECT(gvm_appender_begin(many[i], &append_of) == GVM_OK);
        CHILD_EXPECT(gvm_appender_get_info(many[i], &of) == GVM_OK);
        CHILD_EXPECT(of.front_bytes == SMALL && of.back_bytes == SMALL);
    }
    for (int i = 0; i < MANY; i++)
        gvm_appender_destroy(many[i]);
    CHILD_EXPECT(stop());
    return 0;
}

/* A few rows need no more than what is there, and their buffer has just that. */
static int write_little(void *arg)
{
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(start_large());
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(claim(100 * ROW, 1000));
    CHILD_EXPECT(finish() == GVM_OK && result.commits == 2);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK);
    CHILD_EXPECT(device_bytes(buffer) == 2 * SMALL);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(launch_and_drop(5 * MIB, 0));
    CHILD_EXPECT(begin() == GVM_OK && claim(9 * MIB, 3 * MIB) && finish() == GVM_OK);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK);
    CHILD_EXPECT(device_bytes(buffer) == 32 * MIB + 8 * MIB); /* 2 + 6 + 24, and 2 + 6 */
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* 8 GiB: the ends' first chunks, three more steps to the first 512 MiB, then a large chunk each; what is asked
 * ahead of them are three at most. */
static int write_much(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start_large());
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(claim(8 * GIB, 0));
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(result.commits >= 20 && result.commits <= 23);
    CHILD_EXPECT(atomic_load(&small_handles) == 6);
    CHILD_EXPECT(atomic_load(&large_handles) >= 15);
    CHILD_EXPECT(stop());
    return 0;
}

/* The ends of a reservation that is filled are chunks as any. */
static int fill_all(void *arg)
{
    const gvm_appender_options options = {.chunk_bytes = 16 * MIB};

    (void)arg;
    CHILD_EXPECT(start_on("256MiB", ROW, 64 * MIB, &options));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(claim(30 * MIB, 0) && claim(0, 9 * MIB) && claim(24 * MIB, 0));
    CHILD_EXPECT(claim(ROW, MIB - ROW));
    CHILD_EXPECT(!claim(ROW, 0));
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.reason == GVM_E_LIMIT);
    CHILD_EXPECT(result.rows * ROW + result.data_bytes == 64 * MIB);
    CHILD_EXPECT(stop());
    return 0;
}

/* A budget of one chunk serves both ends while they need no more of it; and one end alone has all of it. */
static int share_one_chunk(void *arg)
{
    const gvm_appender_options options = {.chunk_bytes = 64 * MIB, .budget_bytes = 64 * MIB};

    (void)arg;
    CHILD_EXPECT(start_on("256MiB", ROW, 1024 * MIB, &options));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(claim(3 * MIB, 0) && claim(0, 5 * MIB));
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(info().front_bytes == 8 * MIB && info().back_bytes == 8 * MIB);
    CHILD_EXPECT(take_and_drop());
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(claim(64 * MIB, 0) && !claim(ROW, 0));
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.reason == GVM_E_LIMIT);
    CHILD_EXPECT(info().front_bytes == 64 * MIB && info().back_bytes == 0);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- with history */

/* What the launch before wrote is there when the next begins, in one commit an end. */
static int begin_as_before(void *arg)
{
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(start_large());
    CHILD_EXPECT(launch_and_drop(300 * MIB, 40 * MIB));
    CHILD_EXPECT(begins_with(LARGE, 128 * MIB) && result.commits == 2);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK); /* nothing was written */
    CHILD_EXPECT(device_bytes(buffer) == 0);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(begins_with(SMALL, SMALL));
    CHILD_EXPECT(stop());
    return 0;
}

/* However much that was: no more than one large chunk. And what comes next is asked for when an eighth of that is
 * used, else of the smallest. */
static int begin_large(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start_large());
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(append.ahead_rows_min == SMALL / 8 * 7 / ROW);
    CHILD_EXPECT(finish() == GVM_OK);
    CHILD_EXPECT(launch_and_drop(3 * GIB, 0));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(info().front_bytes == LARGE && info().back_bytes == SMALL);
    CHILD_EXPECT(append.ahead_rows_min == LARGE / 8 * 7 / ROW);
    CHILD_EXPECT(append.ahead_units_min == SMALL / 8 * 7 >> append.unit_shift);
    CHILD_EXPECT(finish() == GVM_OK && result.commits == 2);
    CHILD_EXPECT(stop());
    return 0;
}

/* The first launch begins as one after a launch that wrote what is expected; the second by what the first wrote. */
static int begin_as_expected(void *arg)
{
    gvm_appender_options options = large;

    (void)arg;
    options.expected_bytes = 40 * MIB;
    CHILD_EXPECT(start_on("4GiB", ROW, RESERVE, &options));
    CHILD_EXPECT(begins_with(128 * MIB, 128 * MIB) && result.commits == 2);
    CHILD_EXPECT(take_and_drop());
    CHILD_EXPECT(begins_with(SMALL, SMALL));
    CHILD_EXPECT(stop());
    return 0;
}

/* What a launch wrote is counted from where it began. */
static int count_from_its_begin(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start_large());
    CHILD_EXPECT(begin() == GVM_OK && claim(100 * MIB, 0) && finish() == GVM_OK);
    CHILD_EXPECT(begin() == GVM_OK && claim(4 * MIB, 3 * MIB) && finish() == GVM_OK);
    CHILD_EXPECT(take_and_drop());
    CHILD_EXPECT(begins_with(8 * MIB, 8 * MIB));
    CHILD_EXPECT(stop());
    return 0;
}

/* Where there is no memory for that, there is for the smallest chunk; what is needed comes chunk by chunk. */
static int begin_as_before_poor(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start_large());
    CHILD_EXPECT(launch_and_drop(300 * MIB, 0));
    CHILD_EXPECT(gvm_device_trim(device, 0) == GVM_OK);
    atomic_store(&refused_bytes, 90 * MIB);
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(info().front_bytes == SMALL);
    CHILD_EXPECT(claim(30 * MIB, 0) && !claim(3 * MIB, 0));
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.reason == GVM_E_NOSPACE);
    CHILD_EXPECT(result.rows == 30 * MIB / ROW && info().front_bytes == 32 * MIB);
    CHILD_EXPECT(stop());
    return 0;
}

/* What it had ready and did not use goes where memory is needed, chunks of all sizes. */
static int give_way(void *arg)
{
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(start_on("768MiB", ROW, RESERVE, &large));
    CHILD_EXPECT(launch_and_drop(300 * MIB, 0));
    CHILD_EXPECT(begin() == GVM_OK && claim(ROW, 0) && finish() == GVM_OK);
    CHILD_EXPECT(info().front_bytes == LARGE && info().back_bytes == SMALL);
    CHILD_EXPECT(gvm_buffer_create(device, 700 * MIB, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 640 * MIB) == GVM_OK);
    CHILD_EXPECT(info().front_bytes == SMALL && info().back_bytes == 0);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- the buffer that was taken */

/* Fills both ends of what is committed with numbers, across the edges of chunks. */
static bool number(gvm_buffer *buffer, uint64_t offset, uint64_t bytes, uint32_t from, bool write)
{
    uint32_t *words = malloc(bytes);
    bool good = words != NULL;

    for (uint64_t i = 0; good && write && i < bytes / 4; i++)
        words[i] = from + (uint32_t)i;
    good = good && (write ? gvm_buffer_copy_in(buffer, offset, words, bytes)
                          : gvm_buffer_copy_out(words, buffer, offset, bytes)) == GVM_OK;
    for (uint64_t i = 0; good && i < bytes / 4; i++)
        good = words[i] == from + (uint32_t)i;
    free(words);
    return good;
}

static gvm_tier tier_at(gvm_buffer *buffer, uint64_t offset)
{
    gvm_tier tier = GVM_TIER_ABSENT;

    return gvm_buffer_get_tier(buffer, offset, &tier) == GVM_OK ? tier : (gvm_tier)77;
}

static int use_taken(void *arg)
{
    const gvm_appender_options options = {.chunk_bytes = 64 * MIB};
    gvm_buffer *buffer, *imported;
    gvm_share_info about = {.struct_size = sizeof about};
    gvm_share *share;

    (void)arg;
    CHILD_EXPECT(start_on("512MiB", ROW, 512 * MIB, &options));
    CHILD_EXPECT(begin() == GVM_OK && claim(33 * MIB, 9 * MIB) && finish() == GVM_OK);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK);
    CHILD_EXPECT(number(buffer, 0, 33 * MIB, 1, true));
    CHILD_EXPECT(number(buffer, 503 * MIB, 9 * MIB, 77, true));
    CHILD_EXPECT(gvm_buffer_move(buffer, 3 * MIB, 6 * MIB, GVM_TIER_HOST) == GVM_OK); /* 6 and 24 */
    CHILD_EXPECT(tier_at(buffer, 0) == GVM_TIER_DEVICE && tier_at(buffer, 2 * MIB) == GVM_TIER_HOST);
    CHILD_EXPECT(tier_at(buffer, 32 * MIB - 1) == GVM_TIER_HOST);
    CHILD_EXPECT(tier_at(buffer, 32 * MIB) == GVM_TIER_DEVICE);
    CHILD_EXPECT(number(buffer, 0, 33 * MIB, 1, false));
    CHILD_EXPECT(gvm_share_export(buffer, 0, 0, &share) == GVM_OK);
    CHILD_EXPECT(share->about.version == GVMI_DESCRIPTOR_VERSION_GRADED);
    CHILD_EXPECT(gvm_share_get_info(share, &about) == GVM_OK);
    CHILD_EXPECT(about.chunk_count == 7 && about.committed_bytes == (64 + 32) * MIB);
    CHILD_EXPECT(gvm_share_import(device, share, NULL, &imported) == GVM_OK);
    CHILD_EXPECT(number(imported, 0, 33 * MIB, 1, false));
    CHILD_EXPECT(number(imported, 503 * MIB, 9 * MIB, 77, false));
    CHILD_EXPECT(gvmi_buffer_check(imported));
    gvm_share_destroy(share);
    /* A part, then more of it. */
    gvm_buffer_destroy(imported);
    CHILD_EXPECT(gvm_buffer_decommit(buffer, 0, 8 * MIB) == GVM_OK);
    CHILD_EXPECT(device_bytes(buffer) == (32 + 32) * MIB);
    CHILD_EXPECT(gvm_share_export(buffer, 503 * MIB, 0, &share) == GVM_OK);
    CHILD_EXPECT(share->about.span_offset_bytes == 480 * MIB);
    CHILD_EXPECT(gvm_share_import(device, share, NULL, &imported) == GVM_OK);
    gvm_share_destroy(share);
    CHILD_EXPECT(number(imported, 23 * MIB, 9 * MIB, 77, false));
    CHILD_EXPECT(gvm_buffer_decommit(buffer, 504 * MIB, 6 * MIB) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(buffer, 503 * MIB, 0, &share) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_update(imported, share) == GVM_OK);
    CHILD_EXPECT(tier_at(imported, 23 * MIB) == GVM_TIER_DEVICE);
    CHILD_EXPECT(tier_at(imported, 24 * MIB) == GVM_TIER_ABSENT);
    CHILD_EXPECT(tier_at(imported, 30 * MIB) == GVM_TIER_DEVICE);
    CHILD_EXPECT(gvmi_buffer_check(imported));
    gvm_share_destroy(share);
    gvm_buffer_destroy(imported);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* Shares of other buffers are what they were: libraries that know no graded ends take them. */
static int share_as_ever(void *arg)
{
    gvm_buffer *buffer;
    gvm_share *share;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * MIB, NULL));
    CHILD_EXPECT(gvm_buffer_create(device, 64 * MIB, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 1) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(buffer, 0, 0, &share) == GVM_OK);
    CHILD_EXPECT(share->about.version == GVMI_DESCRIPTOR_VERSION);
    gvm_share_destroy(share);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

#define RESERVING_TEST(name, child) CHILD_TEST_NOT_VALGRIND(name, child, VALGRIND_ADDRESSES)

RESERVING_TEST(appender_begun_and_empty_holds_the_smallest_chunks, hold_nothing)
RESERVING_TEST(appender_begun_and_empty_leaves_room_for_many, hold_nothing_many_times)
RESERVING_TEST(appender_with_a_few_rows_holds_little, write_little)
RESERVING_TEST(appender_of_a_large_result_has_large_chunks_after_few_commits, write_much)
CHILD_TEST(appender_graded_is_filled_to_the_last_byte, fill_all)
CHILD_TEST(budget_of_one_chunk_serves_both_ends, share_one_chunk)
RESERVING_TEST(begin_has_what_the_launch_before_wrote, begin_as_before)
RESERVING_TEST(begin_after_a_large_launch_has_one_large_chunk, begin_large)
RESERVING_TEST(begin_has_what_the_first_launch_is_expected_to_write, begin_as_expected)
RESERVING_TEST(begin_counts_what_the_last_launch_alone_wrote, count_from_its_begin)
RESERVING_TEST(begin_on_a_full_device_has_the_smallest_chunk, begin_as_before_poor)
RESERVING_TEST(appender_gives_back_small_chunks_and_large_on_a_full_device, give_way)
CHILD_TEST(buffer_taken_with_graded_ends_is_used_as_any, use_taken)
CHILD_TEST(share_of_an_ungraded_buffer_has_the_first_version, share_as_ever)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appender_begun_and_empty_holds_the_smallest_chunks),
        cmocka_unit_test(appender_begun_and_empty_leaves_room_for_many),
        cmocka_unit_test(appender_with_a_few_rows_holds_little),
        cmocka_unit_test(appender_of_a_large_result_has_large_chunks_after_few_commits),
        cmocka_unit_test(appender_graded_is_filled_to_the_last_byte),
        cmocka_unit_test(budget_of_one_chunk_serves_both_ends),
        cmocka_unit_test(begin_has_what_the_launch_before_wrote),
        cmocka_unit_test(begin_after_a_large_launch_has_one_large_chunk),
        cmocka_unit_test(begin_has_what_the_first_launch_is_expected_to_write),
        cmocka_unit_test(begin_counts_what_the_last_launch_alone_wrote),
        cmocka_unit_test(begin_on_a_full_device_has_the_smallest_chunk),
        cmocka_unit_test(appender_gives_back_small_chunks_and_large_on_a_full_device),
        cmocka_unit_test(buffer_taken_with_graded_ends_is_used_as_any),
        cmocka_unit_test(share_of_an_ungraded_buffer_has_the_first_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
