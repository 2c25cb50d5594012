/* heap/: idle memory is had by others whatever the heap is doing, and nobody who must not wait for its lock does. On the
 * software GPU.
 *
 * A call that waits for ever stops its child by the alarm.
 */
#include "heap/heap.h"
#include "tests/unit/heap_fixture.h"

#include <pthread.h>

#include "base/clock.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define PATIENCE 10000 /* ms */

static atomic_bool inside; /* the driver's call that a test waits for is made */
static atomic_bool done;   /* another thread's call has returned */

static void wait_for(atomic_bool *flag, int at_most_ms)
{
    for (int waited = 0; !atomic_load(flag) && waited < at_most_ms; waited++)
        pause_ms(1);
}

/* ---- a heap that is being destroyed */

static void *destroy_heap(void *unused)
{
    (void)unused;
    gvm_heap_destroy(heap);
    return NULL;
}

static CUresult synchronize_and_tell(void)
{
    atomic_store(&inside, true);
    return real->cuCtxSynchronize();
}

/* Nearly all of the device is idle in the heap. */
static uint64_t fill_and_free(void)
{
    const uint64_t bytes = memory_free_bytes(device) / 16 * 13;
    void *ptr;

    return gvm_heap_alloc(heap, bytes, &ptr) == GVM_OK && gvm_heap_free(heap, ptr) == GVM_OK ? bytes
                                                                                             : 0;
}

static int allocate_while_it_waits(void *arg)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = GVM_BYTES_UNLIMITED};
    CUstream busy;
    pthread_t destroyer;
    uint64_t bytes;
    void *ptr, *piece;

    (void)arg;
    CHILD_EXPECT(start_child(&options));
    busy = make_stream();
    CHILD_EXPECT(gvm_heap_alloc_async(heap, MIB, NULL, busy, &ptr) == GVM_OK);
    CHILD_EXPECT((bytes = fill_and_free()) > 0 && memory_free_bytes(device) < bytes);
    hold_stream(busy);
    table.cuCtxSynchronize = synchronize_and_tell;
    CHILD_EXPECT(pthread_create(&destroyer, NULL, destroy_heap, NULL) == 0);
    wait_for(&inside, PATIENCE);
    CHILD_EXPECT(gvm_alloc(device, bytes, &piece) == GVM_OK);
    let_go(busy);
    CHILD_EXPECT(pthread_join(destroyer, NULL) == 0);
    CHILD_EXPECT(gvm_free(piece) == GVM_OK);
    gvmi_cu->cuStreamDestroy(busy);
    gvm_device_close(device);
    return 0;
}

CHILD_TEST(destroyed_heap_gives_idle_memory_while_it_waits, allocate_while_it_waits)

static void *allocate_piece(void *bytes)
{
    static void *piece;
    const bool good = gvm_alloc(device, *(uint64_t *)bytes, &piece) == GVM_OK &&
                      gvm_free(piece) == GVM_OK;

    atomic_store(&done, true);
    return good ? bytes : NULL;
}

/* The first time lets another thread find the device full, which is refused at once or waits. */
static CUresult unmap_late(CUdeviceptr address, size_t bytes)
{
    if (!atomic_exchange(&inside, true))
        wait_for(&done, 300);
    return real->cuMemUnmap(address, bytes);
}

static int allocate_while_it_closes(void *arg)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = GVM_BYTES_UNLIMITED};
    pthread_t destroyer, allocator;
    uint64_t bytes;
    void *good;

    (void)arg;
    CHILD_EXPECT(start_child(&options));
    CHILD_EXPECT((bytes = fill_and_free()) > 0 && memory_free_bytes(device) < bytes);
    table.cuMemUnmap = unmap_late;
    CHILD_EXPECT(pthread_create(&destroyer, NULL, destroy_heap, NULL) == 0);
    wait_for(&inside, PATIENCE);
    CHILD_EXPECT(pthread_create(&allocator, NULL, allocate_piece, &bytes) == 0);
    CHILD_EXPECT(pthread_join(allocator, &good) == 0 && good == &bytes);
    CHILD_EXPECT(pthread_join(destroyer, NULL) == 0);
    gvm_device_close(device);
    return 0;
}

CHILD_TEST(destroyed_heap_is_waited_for_while_it_closes, allocate_while_it_closes)

/* ---- the heap's lock is held over a commit */

static atomic_bool committed, may_end;

static CUresult create_late(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (!atomic_exchange(&committed, true))
        wait_for(&may_end, PATIENCE * 10);
    return real->cuMemCreate(handle, bytes, prop, flags);
}

static void *commit_for_long(void *unused)
{
    void *ptr;

    (void)unused;
    return gvm_heap_alloc(heap, 600 * MIB, &ptr) == GVM_OK ? heap : NULL;
}

static pthread_t committer;

static CUresult unmap_beside_commit(CUdeviceptr address, size_t bytes)
{
    if (!atomic_exchange(&inside, true)) {
        if (pthread_create(&committer, NULL, commit_for_long, NULL) != 0)
            return CUDA_ERROR_UNKNOWN;
        wait_for(&committed, PATIENCE);
    }
    return real->cuMemUnmap(address, bytes);
}

static bool end_commit(void)
{
    void *good;

    atomic_store(&may_end, true);
    return pthread_join(committer, &good) == 0 && good == heap;
}

/* 100 MiB are idle, and due, the lock is free; it is taken while the driver has the first of them. */
static bool start_beside_commit(void)
{
    void *ptr;
    const gvm_heap_options options = {.struct_size = sizeof options};

    if (!start_child(&options) || gvm_heap_alloc(heap, 100 * MIB, &ptr) != GVM_OK ||
        gvm_heap_free(heap, ptr) != GVM_OK)
        return false;
    heap->surplus_bytes = heap->idle_low_bytes = heap->idle_bytes;
    if (gvm_device_trim(device, 0) != GVM_OK)
        return false;
    table.cuMemUnmap = unmap_beside_commit;
    table.cuMemCreate = create_late;
    return true;
}

static int decay_beside_commit(void *arg)
{
    int64_t now_ns;

    (void)arg;
    CHILD_EXPECT(start_beside_commit());
    now_ns = gvmi_now_ns();
    CHILD_EXPECT(gvmi_heap_idle_calls.decay(&heap->idle, now_ns) > now_ns);
    CHILD_EXPECT(atomic_load(&committed));
    CHILD_EXPECT(gvmi_heap_idle_calls.decay(&heap->idle, now_ns) > now_ns);
    CHILD_EXPECT(gvmi_heap_idle_calls.reclaim(&heap->idle, UINT64_MAX, false) == 0);
    CHILD_EXPECT(end_commit() && gvm_heap_check(heap) == GVM_OK);
    CHILD_EXPECT(heap->leaving_bytes == 64 * MIB);
    (void)gvmi_heap_idle_calls.decay(&heap->idle, now_ns);
    CHILD_EXPECT(heap->leaving_bytes == 0 && gvm_heap_check(heap) == GVM_OK);
    CHILD_EXPECT(info().committed_bytes - info().idle_bytes <= 608 * MIB);
    gvm_heap_destroy(heap);
    gvm_device_close(device);
    return 0;
}

CHILD_TEST(decay_does_not_wait_for_a_commit, decay_beside_commit)

static gvm_status trim(void)
{
    return gvm_heap_trim(heap, 0);
}

static gvm_status destroy(void)
{
    gvm_heap_destroy(heap);
    return GVM_OK;
}

/* What a reclaim has begun is finished by who waits for it. */
static int reclaim_beside_commit(void *arg)
{
    CHILD_EXPECT(start_beside_commit());
    CHILD_EXPECT(gvmi_heap_idle_calls.reclaim(&heap->idle, UINT64_MAX, false) == 100 * MIB);
    CHILD_EXPECT(atomic_load(&committed));
    CHILD_EXPECT(end_commit() && gvm_heap_check(heap) == GVM_OK);
    CHILD_EXPECT(heap->leaving_bytes == 100 * MIB);
    CHILD_EXPECT((*(gvm_status(**)(void))arg)() == GVM_OK);
    if (*(gvm_status(**)(void))arg == trim) {
        CHILD_EXPECT(heap->leaving_bytes == 0 && gvm_heap_check(heap) == GVM_OK);
        gvm_heap_destroy(heap);
    }
    gvm_device_close(device);
    return 0;
}

static void reclaim_that_must_not_wait_does_not_wait_for_a_commit(void **state)
{
    gvm_status (*calls[])(void) = {trim, destroy};

    (void)state;
    for (size_t i = 0; i < 2; i++)
        assert_child_succeeds(reclaim_beside_commit, &calls[i]);
}

/* ---- addresses */

static void use_stream(CUstream stream)
{
    void *ptr = NULL;

    assert_int_equal(gvm_heap_alloc_async(heap, MIB, NULL, stream, &ptr), GVM_OK);
    assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
}

static void streams_one_after_the_other_use_the_same_segment(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        CUstream stream = make_stream();

        use_stream(stream);
        assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
        gvmi_cu->cuStreamDestroy(stream);
        assert_int_equal(info().address_bytes, GIB);
        assert_int_equal(info().committed_bytes, CHUNK);
        check();
    }
    assert_int_equal(info().commits, 1);
}

/* What the stream has taken over leaves as what was its own does: after it. */
static void memory_taken_over_by_a_stream_goes_back(void **state)
{
    void *ptr = NULL;
    CUstream stream;

    (void)state;
    release(alloc(40 * MIB));
    stream = make_stream();
    assert_int_equal(gvm_heap_alloc_async(heap, MIB, NULL, stream, &ptr), GVM_OK);
    assert_int_equal(info().segments, 1);
    assert_int_equal(info().committed_bytes, 40 * MIB);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().committed_bytes, CHUNK);
    assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    gvmi_cu->cuStreamDestroy(stream);
    check();
}

static void streams_beside_each_other_leave_one_segment(void **state)
{
    enum { COUNT = 5 };
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = GVM_BYTES_NONE};
    CUstream streams[COUNT];

    (void)state;
    remake(&options);
    for (int i = 0; i < COUNT; i++)
        use_stream(streams[i] = make_stream());
    assert_int_equal(info().segments, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(gvm_heap_stream_end(heap, streams[i]), GVM_OK);
        gvmi_cu->cuStreamDestroy(streams[i]);
    }
    assert_int_equal(info().committed_bytes, 0);
    assert_int_equal(info().segments, 1);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().segments, 0);
    check();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroyed_heap_gives_idle_memory_while_it_waits),
        cmocka_unit_test(destroyed_heap_is_waited_for_while_it_closes),
        cmocka_unit_test(decay_does_not_wait_for_a_commit),
        cmocka_unit_test(reclaim_that_must_not_wait_does_not_wait_for_a_commit),
        TEST(streams_one_after_the_other_use_the_same_segment),
        TEST(memory_taken_over_by_a_stream_goes_back),
        TEST(streams_beside_each_other_leave_one_segment),
    };

    fixture_machine_default("memory=1GiB,sms=2");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
