/* What the copy engine does: dirty regions that are written home ahead of need, by the library's thread; and regions that are brought.
 *
 * A kernel writes six regions. Four of these, 1 to 4, are a batch when the sixth is mapped: as fewer than 4 frames in front of the hand have been looked
 * at, it goes on with the eighth after the one that the sixth gets. The test keeps the thread from it, or waits for it, as it wants to see a batch that is not copied yet, or is.
 */
#include "tests/unit/region_fixture.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "memory/background.h"

#define WRITTEN 6u
#define FIRST 1u /* of the batch */
#define END 5u
#define BATCH (END - FIRST)
#define NEW 1000u /* what a kernel adds to a region's number */

/* The library's thread copies nothing from now on, or again. */
static void hold_copies(void)
{
    gvmi_serve_leave(&collection->cleaner.served);
}

static void release_copies(void)
{
    gvmi_serve_join(&collection->cleaner.served);
    gvmi_background_call();
}

static void wait_for_copies(uint64_t batch)
{
    const gvm_region_table *t = (const gvm_region_table *)(uintptr_t)view.table;

    while (gvm_load_acquire_u64(&t->cleaning.copied) < batch)
        sched_yield();
}

static bool start_up_to(uint32_t flags, uint32_t clean_high)
{
    gvm_space_options options = gvm_space_options_init();
    gvm_collection_options details = gvm_collection_options_init();

    options.flags = flags;
    details.policy = GVM_REGION_CLOCK; /* the hand looks at a frame at a time */
    details.clean_low = 50;
    details.clean_high = clean_high;
    return start_with(options, details);
}

static bool start(uint32_t flags)
{
    return start_up_to(flags, 100);
}

/* A kernel. */
static bool write_region(uint32_t region, uint32_t value)
{
    uint32_t *at = gvm_region_map(&view, region, GVM_REGION_READWRITE);

    if (at == NULL)
        return false;
    *at = value;
    gvm_region_unmap(&view, region);
    return true;
}

static bool read_region(uint32_t region, uint32_t value)
{
    const uint32_t *at = gvm_region_map(&view, region, GVM_REGION_READ);
    bool fine = at != NULL && *at == value;

    if (at != NULL)
        gvm_region_unmap(&view, region);
    return fine;
}

static bool make_batch(void)
{
    for (uint32_t i = 0; i < WRITTEN; i++)
        if (!write_region(i, NEW + i))
            return false;
    return true;
}

static uint64_t word_of(uint32_t region)
{
    return gvm_load_acquire_u64((const uint64_t *)(uintptr_t)view.words + region);
}

static bool has(uint32_t region, uint64_t flags)
{
    return (word_of(region) & (GVM_REGION_COPYING | GVM_REGION_DIRTY | GVM_REGION_LISTED)) == flags;
}

static uint32_t count_copying(void)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < COUNT; i++)
        count += (word_of(i) & GVM_REGION_COPYING) != 0;
    return count;
}

static uint32_t at_home(uint32_t region)
{
    return *(const uint32_t *)(uintptr_t)gvmi_region_home(collection, region);
}

static gvm_collection_info info(void)
{
    gvm_collection_info out = {.struct_size = sizeof out};

    if (gvm_collection_get_info(collection, &out) != GVM_OK)
        out.written = UINT64_MAX;
    return out;
}

static bool cpu_reads(uint32_t region, uint32_t value)
{
    void *pointer;

    return gvm_region_map_cpu(collection, region, GVM_REGION_READ, &pointer) == GVM_OK &&
           *(const uint32_t *)pointer == value && gvm_region_unmap_cpu(collection, region) == GVM_OK;
}

static int clean_and_evict(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(0) && make_batch());
    wait_for_copies(1);
    for (uint32_t i = 0; i < WRITTEN; i++)
        if (i >= FIRST && i < END)
            CHILD_EXPECT(has(i, GVM_REGION_COPYING) && at_home(i) == NEW + i);
        else
            CHILD_EXPECT(has(i, GVM_REGION_DIRTY | GVM_REGION_LISTED) && at_home(i) == i);
    hold_copies();
    for (uint32_t i = WRITTEN; i < FRAMES + END; i++) /* two free frames, then those of 0 to 4 */
        CHILD_EXPECT(read_region(i, i));
    for (uint32_t i = 0; i < END; i++)
        CHILD_EXPECT((word_of(i) & GVM_REGION_PLACE) == 0 && at_home(i) == NEW + i);
    CHILD_EXPECT(info().cleaned == BATCH && info().written == 1 && info().evicted == END);
    release_copies();
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < WRITTEN; i++)
        CHILD_EXPECT(cpu_reads(i, NEW + i));
    return stop() ? 0 : 1;
}

/* Before it is copied, and after. */
static int write_meanwhile(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(0));
    hold_copies();
    CHILD_EXPECT(make_batch() && has(1, GVM_REGION_COPYING) && has(2, GVM_REGION_COPYING));
    CHILD_EXPECT(read_region(1, NEW + 1) && has(1, GVM_REGION_COPYING));
    CHILD_EXPECT(write_region(1, 7));
    CHILD_EXPECT(has(1, GVM_REGION_COPYING | GVM_REGION_DIRTY | GVM_REGION_LISTED));
    release_copies();
    wait_for_copies(1);
    CHILD_EXPECT(write_region(2, 8) && at_home(2) == NEW + 2);
    hold_copies();
    CHILD_EXPECT(read_region(6, 6)); /* it ends the batch */
    CHILD_EXPECT(has(1, GVM_REGION_DIRTY | GVM_REGION_LISTED) &&
                 has(2, GVM_REGION_DIRTY | GVM_REGION_LISTED));
    CHILD_EXPECT(has(3, 0) && info().cleaned == BATCH);
    release_copies();
    for (uint32_t i = 7; i < COUNT; i++)
        CHILD_EXPECT(read_region(i, i));
    CHILD_EXPECT(read_region(1, 7) && read_region(2, 8) && read_region(3, NEW + 3));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && cpu_reads(1, 7) && cpu_reads(2, 8));
    return stop() ? 0 : 1;
}

/* Nobody waits for the thread: a region finds another frame, or none. */
static int need_frames_meanwhile(void *arg)
{
    const uint32_t others[] = {0, 5, 6, 7};
    const void *found;

    (void)arg;
    CHILD_EXPECT(start(0));
    hold_copies();
    CHILD_EXPECT(make_batch());
    for (uint32_t i = 0; i < 4; i++)
        CHILD_EXPECT(gvm_region_map(&view, others[i], GVM_REGION_READ) != NULL);
    found = gvm_region_map(&view, 8, GVM_REGION_READ);
    CHILD_EXPECT(found != NULL && is_remote(found));
    gvm_region_unmap(&view, 8);
    for (uint32_t i = FIRST; i < END; i++)
        CHILD_EXPECT(read_region(i, NEW + i) && has(i, GVM_REGION_COPYING));
    release_copies();
    wait_for_copies(1);
    found = gvm_region_map(&view, 8, GVM_REGION_READ);
    CHILD_EXPECT(found != NULL && !is_remote(found));
    gvm_region_unmap(&view, 8);
    for (uint32_t i = 0; i < 4; i++)
        gvm_region_unmap(&view, others[i]);
    return stop() ? 0 : 1;
}

/* A batch that is not copied yet is given up, and never copied. */
static int map_on_the_cpu(void *arg)
{
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start(0));
    hold_copies();
    CHILD_EXPECT(make_batch() && gvm_space_sync(space, NULL) == GVM_OK && has(1, GVM_REGION_COPYING));
    CHILD_EXPECT(gvm_region_map_cpu(collection, 1, GVM_REGION_READWRITE, &pointer) == GVM_OK);
    CHILD_EXPECT(*(uint32_t *)pointer == NEW + 1 && has(1, 0) && info().cleaned == 0);
    release_copies();
    *(uint32_t *)pointer = 9;
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 1) == GVM_OK);
    for (uint32_t i = 10; i < COUNT; i++) /* other batches follow */
        CHILD_EXPECT(write_region(i, NEW + i));
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && read_region(1, 9));
    for (uint32_t i = 10; i < COUNT; i++)
        CHILD_EXPECT(cpu_reads(i, NEW + i));
    CHILD_EXPECT(cpu_reads(1, 9) && info().written >= WRITTEN);
    return stop() ? 0 : 1;
}

/* One that is copied is ended: the CPU's data is not copied over. */
static int map_on_the_cpu_later(void *arg)
{
    void *pointer;

    (void)arg;
    CHILD_EXPECT(start(0) && make_batch());
    wait_for_copies(1);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && has(1, GVM_REGION_COPYING));
    CHILD_EXPECT(gvm_region_map_cpu(collection, 1, GVM_REGION_READWRITE, &pointer) == GVM_OK);
    CHILD_EXPECT(*(uint32_t *)pointer == NEW + 1 && has(1, 0));
    CHILD_EXPECT(info().cleaned == BATCH && info().written == WRITTEN - BATCH);
    *(uint32_t *)pointer = 9;
    CHILD_EXPECT(gvm_region_unmap_cpu(collection, 1) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK && read_region(1, 9) && cpu_reads(1, 9));
    return stop() ? 0 : 1;
}

/* A sync deletes a region of a batch, which is given up. */
static int sync_meanwhile(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(0));
    hold_copies();
    CHILD_EXPECT(make_batch() && has(1, GVM_REGION_COPYING) &&
                 gvm_region_delete(collection, 1) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK &&
                 gvm_region_map(&view, 1, GVM_REGION_READ) == NULL);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && has(2, GVM_REGION_DIRTY));
    for (uint32_t i = 6; i <= 10; i++)
        CHILD_EXPECT(write_region(i, i));
    CHILD_EXPECT(count_copying() > 0); /* the next batch */
    release_copies();
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    for (uint32_t i = 0; i < WRITTEN; i++)
        CHILD_EXPECT(i == 1 || cpu_reads(i, NEW + i));
    return stop() ? 0 : 1;
}

static int destroy_meanwhile(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(0));
    hold_copies();
    CHILD_EXPECT(make_batch() && has(1, GVM_REGION_COPYING));
    release_copies();
    gvm_collection_destroy(collection);
    return stop() ? 0 : 1;
}

static int clean_in_check_mode(void *arg)
{
    uint32_t *at;

    (void)arg;
    CHILD_EXPECT(start(GVM_SPACE_CHECK) && make_batch());
    wait_for_copies(1);
    CHILD_EXPECT(read_region(6, 6) && has(1, 0) && gvm_space_sync(space, NULL) == GVM_OK);
    at = gvm_region_map(&view, 1, GVM_REGION_READ);
    CHILD_EXPECT(at != NULL && *at == NEW + 1);
    *at = 1;
    gvm_region_unmap(&view, 1);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_E_INVALID && last_error_has("region 1 "));
    return stop() ? 0 : 1;
}

/* Then frames are looked at one by one. */
static int clean_up_to_half(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start_up_to(0, 50));
    hold_copies();
    CHILD_EXPECT(make_batch() && count_copying() == 1);
    release_copies();
    return stop() ? 0 : 1;
}

static bool dump_has(const char *text)
{
    static char out[8192];
    FILE *file = fmemopen(out, sizeof out, "w");
    const bool fine = gvm_space_dump(space, file) == GVM_OK;

    fclose(file);
    return fine && strstr(out, text) != NULL;
}

static int dump_meanwhile(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(0));
    hold_copies();
    CHILD_EXPECT(make_batch() && dump_has("GPU cleaning  v2 "));
    release_copies();
    wait_for_copies(1);
    CHILD_EXPECT(read_region(6, 6) && !dump_has("cleaning") && dump_has("GPU shared    v2 "));
    return stop() ? 0 : 1;
}

static int create_with(uint32_t low, uint32_t high, uint64_t width_bytes, gvm_region_policy policy)
{
    gvm_collection_options options = gvm_collection_options_init();
    gvm_collection *made;

    options.clean_low = low;
    options.clean_high = high;
    options.shape.width_bytes = width_bytes;
    options.policy = policy;
    if (gvm_collection_create(space, 4, width_bytes == 0 ? 4096 : 0, &options, &made) != GVM_OK)
        return 0;
    gvm_collection_destroy(made);
    return 1;
}

static int create_with_watermarks(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(0));
    CHILD_EXPECT(create_with(30, 0, 0, GVM_REGION_CLOCK) && create_with(100, 100, 0, GVM_REGION_NFU));
    CHILD_EXPECT(create_with(80, 0, 0, GVM_REGION_FIFO) && create_with(10, 20, 0, GVM_REGION_STATIC));
    CHILD_EXPECT(!create_with(30, 20, 0, GVM_REGION_CLOCK) && last_error_has("watermarks"));
    CHILD_EXPECT(!create_with(101, 0, 0, GVM_REGION_CLOCK) && last_error_has("watermarks"));
    CHILD_EXPECT(!create_with(30, 101, 0, GVM_REGION_CLOCK) && last_error_has("watermarks"));
    CHILD_EXPECT(!create_with(0, 20, 0, GVM_REGION_CLOCK) && last_error_has("watermarks"));
    CHILD_EXPECT(!create_with(30, 60, 16, GVM_REGION_CLOCK) && last_error_has("shape"));
    return stop() ? 0 : 1;
}

/* ---- brought */

static bool is_in_frame(uint32_t region)
{
    return (word_of(region) & (GVM_REGION_RESIDENT | GVM_REGION_REMOTE | GVM_REGION_BUSY)) ==
           GVM_REGION_RESIDENT;
}

static uint32_t count_in_frames(uint32_t first, uint32_t end)
{
    uint32_t count = 0;

    for (uint32_t i = first; i < end; i++)
        count += is_in_frame(i);
    return count;
}

static int bring(void *arg)
{
    CUstream stream;

    (void)arg;
    CHILD_EXPECT(start(0) && gvm_device_push_context(device) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_EXPECT(gvm_region_prefetch_by_engine(collection, 3, 4, stream) == GVM_OK);
    CHILD_EXPECT(gvm_region_prefetch_by_engine(collection, 3, 6, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, stream) == GVM_OK && gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(count_in_frames(0, COUNT) == 6 && count_in_frames(3, 9) == 6 && info().fetched == 6);
    for (uint32_t i = 3; i < 9; i++)
        CHILD_EXPECT(read_region(i, i));
    CHILD_EXPECT(info().fetched == 6);
    CHILD_EXPECT(gvm_region_prefetch_by_engine(collection, 0, COUNT, stream) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, stream) == GVM_OK && count_in_frames(0, COUNT) == FRAMES);
    for (uint32_t i = 0; i < COUNT; i++)
        CHILD_EXPECT(read_region(i, i));
    hold_copies(); /* what is dirty stays */
    for (uint32_t i = 0; i < FRAMES; i++)
        CHILD_EXPECT(write_region(i, i));
    CHILD_EXPECT(gvm_region_prefetch_by_engine(collection, 20, 8, stream) == GVM_OK);
    CHILD_EXPECT(gvm_space_sync(space, stream) == GVM_OK && count_in_frames(20, 28) == 0);
    release_copies();
    CHILD_EXPECT(gvm_region_prefetch_by_engine(collection, COUNT - 1, 2, stream) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_region_prefetch_by_engine(collection, 0, 0, stream) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuStreamDestroy(stream) == CUDA_SUCCESS);
    return stop() ? 0 : 1;
}

static bool run_on_list(gvmi_kernel kernel, void *list, uint64_t item_bytes, uint64_t first,
                        uint64_t count)
{
    const gvmi_region_task task = {.kernel = kernel,
                                   .list = list,
                                   .item_bytes = item_bytes,
                                   .first = first,
                                   .count = count,
                                   .back = list != NULL};
    uint64_t none;

    return gvmi_region_run(collection, &task, device->stream, &none) == GVM_OK;
}

static uint32_t count_frames(uint32_t owner)
{
    const gvm_region_table *t = (const gvm_region_table *)(uintptr_t)view.table;
    uint32_t count = 0;

    for (uint32_t i = 0; i < FRAMES; i++)
        count += gvm_load_acquire_u32(&gvm_region_frame_of(t, i)->owner) == owner;
    return count;
}

/* What is copied is out of date, then: region 0 was written and evicted, 1 is in a frame, 2 was written at its home. */
static int map_before_it_is_brought(void *arg)
{
    gvm_collection_options details = gvm_collection_options_init();
    uint32_t frames[5];
    uint64_t entries[5];
    uint32_t *found;

    (void)arg;
    details.policy = GVM_REGION_CLOCK;
    CHILD_EXPECT(start_with(gvm_space_options_init(), details)); /* not cleaned */
    CHILD_EXPECT(run_on_list(GVMI_KERNEL_region_claim_frames, frames, sizeof *frames, 0, 5));
    CHILD_EXPECT(count_frames(GVM_REGION_COMING) == 5 && has(0, GVM_REGION_COPYING) &&
                 dump_has("GPU coming "));
    for (uint32_t i = 0; i < 5; i++) {
        entries[i] = GVM_REGION_IN_FRAME(i, frames[i]);
        *(uint32_t *)(uintptr_t)(view.address + frames[i] * view.stride_bytes) = i;
    }
    CHILD_EXPECT(write_region(0, 77) && !has(0, GVM_REGION_COPYING));
    for (uint32_t i = 10; i < 16; i++)
        CHILD_EXPECT(read_region(i, i));
    CHILD_EXPECT((word_of(0) & GVM_REGION_PLACE) == 0 && at_home(0) == 77);
    for (uint32_t i = 10; i < 13; i++) /* all that are left */
        CHILD_EXPECT(gvm_region_map(&view, i, GVM_REGION_READ) != NULL);
    found = gvm_region_map(&view, 2, GVM_REGION_READWRITE);
    CHILD_EXPECT(found != NULL && is_remote(found));
    *found = 78;
    gvm_region_unmap(&view, 2);
    for (uint32_t i = 10; i < 13; i++)
        gvm_region_unmap(&view, i);
    CHILD_EXPECT(read_region(1, 1) && is_in_frame(1));
    CHILD_EXPECT(run_on_list(GVMI_KERNEL_region_publish, entries, sizeof *entries, 0, 4));
    CHILD_EXPECT(count_frames(GVM_REGION_COMING) == 1 && count_frames(0) == 3);
    CHILD_EXPECT(!is_in_frame(0) && !is_in_frame(2) && is_in_frame(3) && count_frames(2) == 1);
    CHILD_EXPECT(run_on_list(GVMI_KERNEL_region_free_claimed, NULL, 0, 0, FRAMES));
    CHILD_EXPECT(count_frames(GVM_REGION_COMING) == 0 && count_frames(0) == 4 && !is_in_frame(4));
    CHILD_EXPECT(read_region(0, 77) && read_region(2, 78) && read_region(3, 3) && read_region(4, 4));
    return stop() ? 0 : 1;
}

/* ---- the order of a batch's publication */

static gvm_region_table *watched;
static gvm_region_mail *closed_mail;
static volatile uint64_t phase_of_first_store;

static void note_first_store(int signal)
{
    (void)signal;
    phase_of_first_store = watched->cleaning.turn & GVM_REGION_TURN_PHASE;
    (void)mprotect(closed_mail, sizeof *closed_mail, PROT_READ | PROT_WRITE);
}

/* While a thread may still store to the mail nobody else ends the batch, and so none makes the next one. */
static int publish_to_a_closed_mail(void *arg)
{
    const struct sigaction action = {.sa_handler = note_first_store};
    const uint64_t turn = 5;

    (void)arg;
    CHILD_EXPECT(start(0));
    hold_copies();
    watched = (gvm_region_table *)(uintptr_t)view.table;
    closed_mail = mmap(NULL, sizeof *closed_mail, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHILD_EXPECT(closed_mail != MAP_FAILED && sigaction(SIGSEGV, &action, NULL) == 0);
    phase_of_first_store = GVM_REGION_CLEAN_IDLE;
    watched->cleaning.turn = turn << GVM_REGION_TURN_SHIFT | GVM_REGION_CLEAN_ACTING;
    watched->cleaning.count = 3;
    watched->cleaning.mail = (uint64_t)(uintptr_t)closed_mail;
    gvm_region_clean_publish(watched);
    CHILD_EXPECT(phase_of_first_store == GVM_REGION_CLEAN_ACTING);
    CHILD_EXPECT(closed_mail->turn == turn + 1 && closed_mail->count == 3);
    CHILD_EXPECT(watched->cleaning.turn ==
                 ((turn + 1) << GVM_REGION_TURN_SHIFT | GVM_REGION_CLEAN_BATCH));
    return 0;
}

CHILD_TEST(region_cleaned_is_evicted_without_a_write, clean_and_evict)
CHILD_TEST(region_written_while_it_is_cleaned_is_dirty_again, write_meanwhile)
CHILD_TEST(frames_of_a_batch_are_not_taken_and_nobody_waits, need_frames_meanwhile)
CHILD_TEST(batch_that_is_not_copied_is_given_up_for_a_cpu_map, map_on_the_cpu)
CHILD_TEST(batch_that_is_copied_ends_at_a_cpu_map, map_on_the_cpu_later)
CHILD_TEST(sync_deletes_a_region_of_a_batch, sync_meanwhile)
CHILD_TEST(collection_is_destroyed_with_a_batch, destroy_meanwhile)
CHILD_TEST_NOT_VALGRIND(batch_is_the_hosts_after_all_stores_to_the_mail, publish_to_a_closed_mail,
                        VALGRIND_FAULT)
CHILD_TEST(check_mode_knows_what_was_cleaned, clean_in_check_mode)
CHILD_TEST(batch_ends_at_the_high_watermark, clean_up_to_half)
CHILD_TEST(dump_shows_what_is_being_cleaned, dump_meanwhile)
CHILD_TEST(regions_brought_by_the_copy_engine_are_hits, bring)
CHILD_TEST(region_mapped_before_it_is_brought_is_not_out_of_date, map_before_it_is_brought)
CHILD_TEST(collection_with_wrong_watermarks_is_refused, create_with_watermarks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(region_cleaned_is_evicted_without_a_write),
        cmocka_unit_test(region_written_while_it_is_cleaned_is_dirty_again),
        cmocka_unit_test(frames_of_a_batch_are_not_taken_and_nobody_waits),
        cmocka_unit_test(batch_that_is_not_copied_is_given_up_for_a_cpu_map),
        cmocka_unit_test(batch_that_is_copied_ends_at_a_cpu_map),
        cmocka_unit_test(sync_deletes_a_region_of_a_batch),
        cmocka_unit_test(collection_is_destroyed_with_a_batch),
        cmocka_unit_test(batch_is_the_hosts_after_all_stores_to_the_mail),
        cmocka_unit_test(check_mode_knows_what_was_cleaned),
        cmocka_unit_test(batch_ends_at_the_high_watermark),
        cmocka_unit_test(dump_shows_what_is_being_cleaned),
        cmocka_unit_test(regions_brought_by_the_copy_engine_are_hits),
        cmocka_unit_test(region_mapped_before_it_is_brought_is_not_out_of_date),
        cmocka_unit_test(collection_with_wrong_watermarks_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
