/* What an appender gives back: unmapped at once, given to the driver by the library's thread, and
 * there for any call that needs memory meanwhile. The driver's release is behind a door.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/lib/fixture.h"
#include "tests/unit/appender_fixture.h"

#define WRITTEN 6      /* chunks */
#define AHEAD_MIN 4    /* chunks that are committed when the kernel ends, and hold nothing */
#define PATIENCE 10000 /* ms */

static atomic_bool shut;             /* the door */
static atomic_int only;              /* the release that is to wait at it; 0: all */
static gvm_appender *_Atomic begins; /* whose begin opens the door */
static atomic_int begun, done;       /* releases */
static atomic_int creates, refused;  /* calls that ask for memory; those told that there is none */
static atomic_int unmaps, unmap_that_fails; /* 0: none */

static bool comes_to(atomic_int *count, int value)
{
    for (int waited = 0; atomic_load(count) < value && waited < PATIENCE; waited++)
        pause_ms(1);
    return atomic_load(count) >= value;
}

/* A begin may come while the thread is at the door: it is not to be kept there. */
static bool is_starting(void)
{
    const gvm_appender *beginner = atomic_load(&begins);

    return beginner != NULL && __atomic_load_n(&beginner->feed.starting, __ATOMIC_RELAXED);
}

static CUresult release_behind_door(CUmemGenericAllocationHandle handle)
{
    const int number = atomic_fetch_add(&begun, 1) + 1;
    const bool waits = atomic_load(&only) == 0 || atomic_load(&only) == number;
    CUresult code;

    for (int waited = 0; waits && atomic_load(&shut) && !is_starting() && waited < PATIENCE; waited++)
        pause_ms(1);
    code = real->cuMemRelease(handle);
    atomic_fetch_add(&done, 1);
    return code;
}

static CUresult create_counted(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    const CUresult code = real->cuMemCreate(handle, bytes, prop, flags);

    atomic_fetch_add(&creates, 1);
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        atomic_fetch_add(&refused, 1);
    return code;
}

static CUresult alloc_counted(CUdeviceptr *address, size_t bytes)
{
    const CUresult code = real->cuMemAlloc(address, bytes);

    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        atomic_fetch_add(&refused, 1);
    return code;
}

static CUresult unmap_or_fail(CUdeviceptr address, size_t bytes)
{
    if (atomic_fetch_add(&unmaps, 1) + 1 == atomic_load(&unmap_that_fails))
        return CUDA_ERROR_UNKNOWN;
    return real->cuMemUnmap(address, bytes);
}

/* Opens the door once somebody was told that the device is full, and a little later. */
static void *open_when_refused(void *unused)
{
    (void)unused;
    (void)comes_to(&refused, 1);
    pause_ms(20);
    atomic_store(&shut, false);
    return NULL;
}

static void *open_soon(void *unused)
{
    (void)unused;
    pause_ms(50);
    atomic_store(&shut, false);
    return NULL;
}

static gvm_device_info device_info(void)
{
    gvm_device_info i = {.struct_size = sizeof i};

    if (gvm_device_get_info(device, &i) != GVM_OK)
        abort();
    return i;
}

static bool becomes(uint64_t cached_bytes)
{
    for (int waited = 0; waited < PATIENCE; waited++) {
        if (device_info().cached_bytes == cached_bytes)
            return true;
        pause_ms(1);
    }
    return false;
}

/* Fills the appender until there is memory ahead. */
static bool fill_more(void)
{
    gvm_append_place place;

    if (begin() != GVM_OK)
        return false;
    for (int i = 0; i < WRITTEN; i++)
        if (write_place(CHUNK / ROW, 0, 0, &place) != GVM_APPEND_OK)
            return false;
    for (int waited = 0; info().front_bytes < (WRITTEN + AHEAD_MIN) * CHUNK; waited++) {
        if (waited == PATIENCE)
            return false;
        pause_ms(1);
    }
    return finish() == GVM_OK && result.complete;
}

/* A process that keeps so many bytes of free chunks, with a full appender. The door is open. */
static bool fill(const char *cache)
{
    setenv("GVMEM_CACHE", cache, 1);
    if (!start(ROW, 1024 * CHUNK, NULL) || !fill_more())
        return false;
    table.cuMemRelease = release_behind_door;
    table.cuMemCreate = create_counted;
    table.cuMemAlloc = alloc_counted;
    table.cuMemUnmap = unmap_or_fail;
    return true;
}

static uint64_t ahead_bytes(void)
{
    return info().front_bytes + info().back_bytes - WRITTEN * CHUNK;
}

/* Bytes that a buffer has. */
static uint64_t bytes_of(gvm_buffer *buffer)
{
    gvm_buffer_info have = {.struct_size = sizeof have};

    return gvm_buffer_get_info(buffer, &have) == GVM_OK ? have.device_bytes : 0;
}

/* take() ends while the driver has released nothing. */
static int be_quick(void *arg)
{
    gvm_buffer *buffer;
    uint64_t ahead;

    (void)arg;
    CHILD_EXPECT(fill("0"));
    ahead = ahead_bytes();
    atomic_store(&shut, true);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK);
    CHILD_EXPECT(atomic_load(&done) == 0 && device_info().cached_bytes == ahead);
    CHILD_EXPECT(bytes_of(buffer) == WRITTEN * CHUNK);
    atomic_store(&shut, false);
    CHILD_EXPECT(becomes(0) && atomic_load(&done) == (int)(ahead / CHUNK));
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* The next begin finds its first chunks among what is on its way. */
static int be_reused(void *arg)
{
    gvm_append_place place;
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(fill("0"));
    atomic_store(&shut, true);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK);
    atomic_store(&creates, 0);
    atomic_store(&begins, appender);
    CHILD_EXPECT(begin() == GVM_OK && write_place(1, 1, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(info().front_bytes == CHUNK && info().back_bytes == CHUNK);
    CHILD_EXPECT(atomic_load(&creates) == 0);
    atomic_store(&shut, false);
    CHILD_EXPECT(finish() == GVM_OK);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(becomes(0));
    CHILD_EXPECT(stop());
    return 0;
}

/* All that is free on the device, for chunks that are not of the appender's kind. */
static gvm_buffer *buffer_for_all(uint64_t *bytes)
{
    const gvm_buffer_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK, .flags = GVM_BUFFER_UNSHARED};
    gvm_buffer *all = NULL;

    *bytes = (device_info().free_bytes + device_info().cached_bytes) / CHUNK * CHUNK;
    return gvm_buffer_create(device, *bytes, &options, &all) == GVM_OK ? all : NULL;
}

/* A thread that finds the device full waits for what the thread is just giving back. */
static int be_waited_for(void *arg)
{
    gvm_buffer *buffer, *all;
    pthread_t opener;
    uint64_t bytes;

    (void)arg;
    CHILD_EXPECT(fill("0"));
    atomic_store(&shut, true);
    atomic_store(&only, 1);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK && comes_to(&begun, 1));
    CHILD_EXPECT((all = buffer_for_all(&bytes)) != NULL);
    CHILD_EXPECT(pthread_create(&opener, NULL, open_when_refused, NULL) == 0);
    CHILD_EXPECT(gvm_buffer_commit(all, 0, bytes) == GVM_OK);
    CHILD_EXPECT(device_info().free_bytes < CHUNK && device_info().cached_bytes == 0);
    CHILD_EXPECT(atomic_load(&refused) > 0);
    pthread_join(opener, NULL);
    gvm_buffer_destroy(all);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* The same for memory that is no chunk. */
static int be_waited_for_by_alloc(void *arg)
{
    CUdeviceptr address;
    gvm_buffer *buffer;
    pthread_t opener;
    CUresult code;

    (void)arg;
    CHILD_EXPECT(fill("0"));
    atomic_store(&shut, true);
    atomic_store(&only, 1);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK && comes_to(&begun, 1));
    CHILD_EXPECT(pthread_create(&opener, NULL, open_when_refused, NULL) == 0);
    CHILD_EXPECT(gvmi_device_enter(device) == GVM_OK);
    code = gvmi_device_alloc(device, &address, device_info().free_bytes + device_info().cached_bytes);
    CHILD_EXPECT(code == CUDA_SUCCESS && atomic_load(&refused) > 0);
    CHILD_EXPECT(real->cuMemFree(address) == CUDA_SUCCESS);
    gvmi_device_leave();
    pthread_join(opener, NULL);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* The device is full, and is not any more when the caller hears of it: the cache is empty then. */
static CUresult create_told_late(CUmemGenericAllocationHandle *handle, size_t bytes,
                                 const CUmemAllocationProp *prop, unsigned long long flags)
{
    const CUresult code = create_counted(handle, bytes, prop, flags);

    if (code == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_store(&shut, false);
        (void)becomes(0);
    }
    return code;
}

static int be_gone_meanwhile(void *arg)
{
    gvm_buffer *buffer, *all;
    uint64_t bytes;
    int last;

    (void)arg;
    CHILD_EXPECT(fill("0"));
    last = (int)(ahead_bytes() / CHUNK);
    atomic_store(&shut, true);
    atomic_store(&only, last);
    table.cuMemCreate = create_told_late;
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK && comes_to(&begun, last));
    CHILD_EXPECT((all = buffer_for_all(&bytes)) != NULL);
    CHILD_EXPECT(gvm_buffer_commit(all, 0, bytes) == GVM_OK && atomic_load(&refused) == 1);
    gvm_buffer_destroy(all);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* Who waits for what is leaving does not wait for what begins to leave meanwhile. Of host memory, which no clock gives
 * back. */
static const gvmi_chunk_spec host_chunk = {.bytes = CHUNK, .tier = GVM_TIER_HOST};
static CUmemGenericAllocationHandle later_handle;
static pthread_t later_trimmer;

static void *trim(void *unused)
{
    (void)unused;
    return gvm_device_trim(device, 0) == GVM_OK ? &done : NULL;
}

static CUresult release_and_start_another(CUmemGenericAllocationHandle handle)
{
    const int number = atomic_fetch_add(&begun, 1) + 1;
    CUresult code;

    if (number == 1) {
        gvmi_chunk_release(device, &host_chunk, GVMI_RELEASE_KEEP, later_handle);
        if (pthread_create(&later_trimmer, NULL, trim, NULL) != 0 || !comes_to(&begun, 2))
            return CUDA_ERROR_UNKNOWN;
    }
    for (int waited = 0; number == 2 && atomic_load(&shut) && waited < PATIENCE; waited++)
        pause_ms(1);
    code = real->cuMemRelease(handle);
    atomic_fetch_add(&done, 1);
    return code;
}

static int be_trimmed_beside(void *arg)
{
    CUmemGenericAllocationHandle handle;
    void *good;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL) && gvm_device_trim(device, 0) == GVM_OK);
    CHILD_EXPECT(gvmi_chunk_create(device, &host_chunk, &handle) == GVM_OK &&
                 gvmi_chunk_create(device, &host_chunk, &later_handle) == GVM_OK);
    gvmi_chunk_release(device, &host_chunk, GVMI_RELEASE_KEEP, handle);
    table.cuMemRelease = release_and_start_another;
    atomic_store(&shut, true);
    CHILD_EXPECT(gvm_device_trim(device, 0) == GVM_OK);
    CHILD_EXPECT(atomic_load(&begun) == 2 && atomic_load(&done) == 1);
    CHILD_EXPECT(device_info().cached_bytes == CHUNK);
    atomic_store(&shut, false);
    CHILD_EXPECT(pthread_join(later_trimmer, &good) == 0 && good != NULL);
    CHILD_EXPECT(device_info().cached_bytes == 0);
    CHILD_EXPECT(stop());
    return 0;
}

/* What the driver does not unmap stays, and counts; the rest goes. */
static int be_half_refused(void *arg)
{
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(fill("0"));
    for (int failing = 1; failing <= 2; failing++) { /* the front, the back */
        atomic_store(&unmap_that_fails, atomic_load(&unmaps) + failing);
        gvmi_append_feed_trim(appender, true);
        CHILD_EXPECT(gvmi_appender_check(appender) && ahead_bytes() > 0 && becomes(0));
        CHILD_EXPECT((info().back_bytes > 0) == (failing == 2));
        CHILD_EXPECT(gvm_appender_reset(appender) == GVM_OK && fill_more());
    }
    atomic_store(&unmap_that_fails, atomic_load(&unmaps) + 1);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK);
    CHILD_EXPECT(bytes_of(buffer) > WRITTEN * CHUNK && becomes(0));
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* Releases that are put off while the thread releases others are made, too, after an appender has gone. */
static int be_two(void *arg)
{
    const gvm_appender_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    gvm_buffer *buffer, *other;
    gvm_appender *first;

    (void)arg;
    CHILD_EXPECT(fill("0"));
    first = appender;
    CHILD_EXPECT(gvm_appender_create(device, ROW, 1024 * CHUNK, &options, &appender) == GVM_OK);
    CHILD_EXPECT(fill_more());
    atomic_store(&shut, true);
    CHILD_EXPECT(gvm_appender_take(first, &buffer) == GVM_OK && comes_to(&begun, 1));
    CHILD_EXPECT(gvm_appender_take(appender, &other) == GVM_OK);
    gvm_appender_destroy(first);
    CHILD_EXPECT(atomic_load(&done) == 0 && device_info().cached_bytes > 0);
    atomic_store(&shut, false);
    CHILD_EXPECT(becomes(0));
    gvm_buffer_destroy(buffer);
    gvm_buffer_destroy(other);
    CHILD_EXPECT(stop());
    return 0;
}

/* What the program has written by itself is shown to no other buffer, which another process may be shown. */
static int be_written_by_hand(void *arg)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    static uint8_t bytes[2 * CHUNK];
    gvm_buffer *taken, *other;
    uint64_t nonzero = 0;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK && finish() == GVM_OK && info().front_bytes == CHUNK);
    CHILD_EXPECT(gvm_buffer_fill(gvm_appender_buffer(appender), 0, CHUNK, &(uint8_t){0x5a}, 1) ==
                 GVM_OK);
    CHILD_EXPECT(gvm_appender_take(appender, &taken) == GVM_OK && bytes_of(taken) == 0);
    CHILD_EXPECT(gvm_buffer_create(device, sizeof bytes, &options, &other) == GVM_OK &&
                 gvm_buffer_commit(other, 0, sizeof bytes) == GVM_OK &&
                 gvm_buffer_copy_out(bytes, other, 0, sizeof bytes) == GVM_OK);
    for (size_t i = 0; i < sizeof bytes; i++)
        nonzero += bytes[i] != 0;
    CHILD_EXPECT(nonzero == 0);
    gvm_buffer_destroy(other);
    gvm_buffer_destroy(taken);
    CHILD_EXPECT(stop());
    return 0;
}

/* With the device the thread goes, in the middle of a release, and leaves nothing behind; an appender
 * that goes waits for nothing. */
static int be_closed(void *arg)
{
    gvm_buffer *buffer;
    pthread_t opener;

    (void)arg;
    CHILD_EXPECT(fill("0"));
    atomic_store(&shut, true);
    atomic_store(&only, 1);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK && comes_to(&begun, 1));
    gvm_appender_destroy(appender);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(atomic_load(&done) == WRITTEN && device_info().cached_bytes > 0);
    CHILD_EXPECT(pthread_create(&opener, NULL, open_soon, NULL) == 0);
    gvm_device_close(device);
    pthread_join(opener, NULL);
    gvmi_driver_install(real);
    CHILD_EXPECT(gvmi_check_held().handles == 0 && gvmi_check_violations() == 0);
    return 0;
}

CHILD_TEST(take_does_not_wait_for_the_drivers_release, be_quick)
CHILD_TEST(next_begin_reuses_what_is_leaving, be_reused)
CHILD_TEST(full_device_waits_for_what_is_leaving, be_waited_for)
CHILD_TEST(allocation_waits_for_what_is_leaving, be_waited_for_by_alloc)
CHILD_TEST(trim_does_not_wait_for_what_begins_to_leave_later, be_trimmed_beside)
CHILD_TEST(device_full_a_moment_ago_is_tried_again, be_gone_meanwhile)
CHILD_TEST(chunks_that_stay_mapped_still_count, be_half_refused)
CHILD_TEST(debt_that_grows_while_it_is_paid_is_paid, be_two)
CHILD_TEST(buffer_that_the_program_had_is_shown_to_no_other, be_written_by_hand)
CHILD_TEST(closed_device_leaves_nothing_to_release, be_closed)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(take_does_not_wait_for_the_drivers_release),
        cmocka_unit_test(next_begin_reuses_what_is_leaving),
        cmocka_unit_test(full_device_waits_for_what_is_leaving),
        cmocka_unit_test(allocation_waits_for_what_is_leaving),
        cmocka_unit_test(trim_does_not_wait_for_what_begins_to_leave_later),
        cmocka_unit_test(device_full_a_moment_ago_is_tried_again),
        cmocka_unit_test(chunks_that_stay_mapped_still_count),
        cmocka_unit_test(debt_that_grows_while_it_is_paid_is_paid),
        cmocka_unit_test(buffer_that_the_program_had_is_shown_to_no_other),
        cmocka_unit_test(closed_device_leaves_nothing_to_release),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
