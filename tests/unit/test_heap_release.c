/* heap/: what a heap gives back, when, and for what it waits. On the software GPU.
 *
 * A stream is held by a function of the program, which a thread lets go only when it has done what must not wait for
 * the stream: where that does wait, nothing goes on, and the alarm ends the child.
 */
#include "heap/heap.h"
#include "tests/unit/heap_fixture.h"

#include <pthread.h>

#include "base/clock.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

static CUstream busy; /* held */
static void *on_it;   /* a block that was freed on it */

static void end_child(void)
{
    gvm_heap_destroy(heap);
    gvmi_cu->cuStreamDestroy(busy);
    gvm_device_close(device);
}

/* ---- no call that frees waits for a kernel */

static int free_while_a_kernel_runs(void *arg)
{
    const gvm_heap_options options = {
        .struct_size = sizeof options, .kind = *(gvm_heap_kind *)arg, .keep_bytes = GVM_BYTES_NONE};
    void *at[3];

    CHILD_EXPECT(start_child(&options));
    busy = make_stream();
    for (int i = 0; i < 3; i++)
        CHILD_EXPECT(gvm_heap_alloc(heap, 65 * MIB, &at[i]) == GVM_OK);
    hold_stream(busy);
    CHILD_EXPECT(gvm_heap_free(heap, at[0]) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free_async(heap, at[1], NULL) == GVM_OK);
    CHILD_EXPECT(gvm_heap_resize(heap, at[2], 1) == GVM_OK);
    CHILD_EXPECT(gvm_heap_reset(heap) == GVM_OK);
    CHILD_EXPECT(gvm_heap_check(heap) == GVM_OK);
    let_go(busy);
    CHILD_EXPECT(gvm_heap_trim(heap, 0) == GVM_OK);
    CHILD_EXPECT(info().committed_bytes == 0);
    end_child();
    return 0;
}

static void free_of_host_and_managed_memory_waits_for_no_kernel(void **state)
{
    gvm_heap_kind kinds[] = {GVM_HEAP_HOST, GVM_HEAP_MANAGED};

    (void)state;
    for (size_t i = 0; i < 2; i++)
        assert_child_succeeds(free_while_a_kernel_runs, &kinds[i]);
}

/* ---- who waits for a stream lets others in */

static int call_trim(void)
{
    return gvm_heap_trim(heap, 0) == GVM_OK;
}

static int call_alloc_when_short(void)
{
    void *ptr;

    return gvm_heap_alloc(heap, 90 * MIB, &ptr) == GVM_OK;
}

static int call_stream_end(void)
{
    return gvm_heap_stream_end(heap, busy) == GVM_OK;
}

static atomic_bool waiting; /* the call has let the lock go at least once */

static CUresult query_and_tell(CUevent event)
{
    const CUresult result = real->cuEventQuery(event);

    if (result == CUDA_ERROR_NOT_READY)
        atomic_store(&waiting, true);
    return result;
}

static void *use_the_heap_then_let_go(void *arg)
{
    void *small = NULL, *large = NULL;
    bool good;

    (void)arg;
    while (!atomic_load(&waiting))
        sched_yield();
    good = gvm_heap_alloc(heap, UNIT, &small) == GVM_OK &&
           gvm_heap_alloc(heap, 5 * MIB, &large) == GVM_OK && gvm_heap_free(heap, large) == GVM_OK &&
           gvm_heap_free(heap, small) == GVM_OK && gvm_heap_check(heap) == GVM_OK;
    atomic_store(&gate, true);
    return good ? heap : NULL;
}

static int wait_beside_others(void *arg)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .limit_bytes = 100 * MIB};
    pthread_t thread;
    void *foreign, *good;

    CHILD_EXPECT(start_child(&options));
    busy = make_stream();
    CHILD_EXPECT(gvm_heap_alloc_async(heap, 30 * MIB, NULL, busy, &on_it) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, 20 * MIB, &foreign) == GVM_OK);
    hold_stream(busy);
    CHILD_EXPECT(gvm_heap_free_async(heap, on_it, busy) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free_async(heap, foreign, busy) == GVM_OK);
    table.cuEventQuery = query_and_tell;
    CHILD_EXPECT(pthread_create(&thread, NULL, use_the_heap_then_let_go, NULL) == 0);
    CHILD_EXPECT((*(int (**)(void))arg)());
    CHILD_EXPECT(pthread_join(thread, &good) == 0 && good == heap);
    table.cuEventQuery = real->cuEventQuery;
    CHILD_EXPECT(gvm_heap_check(heap) == GVM_OK);
    end_child();
    return 0;
}

static void wait_for_a_stream_lets_others_in(void **state)
{
    int (*calls[])(void) = {call_trim, call_alloc_when_short, call_stream_end};

    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        assert_child_succeeds(wait_beside_others, &calls[i]);
}

/* A block that is still live when its stream ends has been used on it all the same; what was idle has passed. */
static int end_the_stream_of_a_live_block(void *arg)
{
    pthread_t thread;
    void *good;

    (void)arg;
    CHILD_EXPECT(start_child(NULL));
    busy = make_stream();
    CHILD_EXPECT(gvm_heap_alloc_async(heap, 30 * MIB, NULL, busy, &on_it) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free_async(heap, on_it, busy) == GVM_OK);
    CHILD_EXPECT(gvm_heap_trim(heap, UINT64_MAX) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc_async(heap, 30 * MIB, NULL, busy, &on_it) == GVM_OK);
    hold_stream(busy);
    table.cuEventQuery = query_and_tell;
    CHILD_EXPECT(pthread_create(&thread, NULL, use_the_heap_then_let_go, NULL) == 0);
    CHILD_EXPECT(gvm_heap_stream_end(heap, busy) == GVM_OK);
    CHILD_EXPECT(atomic_load(&gate)); /* and not before */
    CHILD_EXPECT(pthread_join(thread, &good) == 0 && good == heap);
    table.cuEventQuery = real->cuEventQuery;
    CHILD_EXPECT(gvm_heap_free(heap, on_it) == GVM_OK && gvm_heap_check(heap) == GVM_OK);
    end_child();
    return 0;
}

CHILD_TEST(end_of_a_stream_waits_for_its_work_on_live_blocks, end_the_stream_of_a_live_block)

/* ---- the driver's calls are made without the lock */

/* What needs no new memory: that is put behind addresses, and taken away, one call after the other. */
static void *use_committed_memory(void *arg)
{
    void *ptr = NULL;

    (void)arg;
    return gvm_heap_alloc(heap, 3 * UNIT, &ptr) == GVM_OK && gvm_heap_free(heap, ptr) == GVM_OK &&
                   gvm_heap_check(heap) == GVM_OK
               ? heap
               : NULL;
}

static CUresult unmap_beside_others(CUdeviceptr address, size_t bytes)
{
    pthread_t thread;
    void *good = NULL;

    if (pthread_create(&thread, NULL, use_committed_memory, NULL) != 0 ||
        pthread_join(thread, &good) != 0 || good != heap)
        return CUDA_ERROR_UNKNOWN;
    return real->cuMemUnmap(address, bytes);
}

static int give_back_beside_others(void *arg)
{
    void *small, *ptr;

    (void)arg;
    CHILD_EXPECT(start_child(NULL));
    CHILD_EXPECT(gvm_heap_alloc(heap, UNIT, &small) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, 30 * MIB, &ptr) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free(heap, ptr) == GVM_OK);
    table.cuMemUnmap = unmap_beside_others;
    CHILD_EXPECT(gvm_heap_trim(heap, 0) == GVM_OK);
    table.cuMemUnmap = real->cuMemUnmap;
    CHILD_EXPECT(gvm_heap_check(heap) == GVM_OK);
    gvm_heap_destroy(heap);
    gvm_device_close(device);
    return 0;
}

CHILD_TEST(memory_goes_back_without_the_lock, give_back_beside_others)

/* ---- a stream that is captured */

static int release_while_captured(void *arg)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = GVM_BYTES_NONE};
    CUgraph graph;
    size_t nodes = 1;
    void *ptr;

    (void)arg;
    CHILD_EXPECT(start_child(&options));
    busy = make_stream();
    CHILD_EXPECT(gvm_heap_alloc_async(heap, 30 * MIB, NULL, busy, &ptr) == GVM_OK);
    CHILD_EXPECT(real->cuStreamBeginCapture(busy, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHILD_EXPECT(gvm_heap_free_async(heap, ptr, busy) == GVM_OK);
    CHILD_EXPECT(gvm_heap_trim(heap, 0) == GVM_OK);
    CHILD_EXPECT(info().committed_bytes == 30 * MIB);
    CHILD_EXPECT(gvm_heap_stream_end(heap, busy) == GVM_E_INVALID);
    CHILD_EXPECT(real->cuStreamEndCapture(busy, &graph) == CUDA_SUCCESS);
    CHILD_EXPECT(real->cuGraphGetNodes(graph, NULL, &nodes) == CUDA_SUCCESS && nodes == 0);
    CHILD_EXPECT(real->cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHILD_EXPECT(gvm_heap_trim(heap, 0) == GVM_OK);
    CHILD_EXPECT(info().committed_bytes == 0);
    end_child();
    return 0;
}

CHILD_TEST(capture_of_a_stream_is_left_alone, release_while_captured)

static void *open_the_gate_late(void *unused)
{
    (void)unused;
    pause_ms(50);
    atomic_store(&gate, true);
    return NULL;
}

/* The driver refuses to wait for a context while a stream of it is captured. */
static int destroy_beside_capture(void *arg)
{
    CUstream captured;
    pthread_t thread;
    void *ptr;

    (void)arg;
    CHILD_EXPECT(start_child(NULL));
    busy = make_stream();
    captured = make_stream();
    CHILD_EXPECT(gvm_heap_alloc_async(heap, 30 * MIB, NULL, busy, &ptr) == GVM_OK);
    hold_stream(busy);
    CHILD_EXPECT(gvmi_device_enter(device) == GVM_OK);
    CHILD_EXPECT(real->cuMemsetD8Async((uintptr_t)ptr, 1, 30 * MIB, busy) == CUDA_SUCCESS);
    CHILD_EXPECT(real->cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    gvmi_device_leave();
    CHILD_EXPECT(pthread_create(&thread, NULL, open_the_gate_late, NULL) == 0);
    gvm_heap_destroy(heap);
    CHILD_EXPECT(atomic_load(&gate));
    CHILD_EXPECT(pthread_join(thread, NULL) == 0);
    CHILD_EXPECT(real->cuStreamDestroy(captured) == CUDA_SUCCESS);
    CHILD_EXPECT(real->cuStreamSynchronize(busy) == CUDA_SUCCESS);
    return 0;
}

CHILD_TEST(heap_that_is_destroyed_beside_a_capture_waits_for_its_streams, destroy_beside_capture)

/* ---- what is given back, and when */

static uint64_t committed(void)
{
    check();
    return info().committed_bytes / MIB;
}

/* Takes and frees so many MiB. */
static void pass(uint64_t mib)
{
    release(alloc(mib * MIB));
}

/* An interval is as long as 384 MiB asked for, twice what is committed. */
static void memory_idle_for_an_interval_goes(void **state)
{
    (void)state;
    pass(192); /* in the first interval nothing was idle from the start */
    for (int i = 0; i < 5; i++)
        pass(96);
    assert_int_equal(committed(), 192);
    pass(96); /* the second ends: 96 MiB were idle all through it */
    assert_int_equal(committed(), 96);
    for (int i = 0; i < 12; i++)
        pass(96);
    assert_int_equal(committed(), 96);
}

static void memory_that_was_free_for_less_than_the_decay_stays(void **state)
{
    gvm_heap_options options = {.struct_size = sizeof options, .decay_ms = UINT32_MAX};
    int passes = 0;

    (void)state;
    remake(&options);
    pass(192);
    for (int i = 0; i < 20; i++)
        pass(96);
    assert_int_equal(committed(), 192);
    options.decay_ms = 1;
    remake(&options);
    pass(192);
    for (; committed() > 96 && passes < 10000; passes++)
        pass(96);
    assert_int_equal(committed(), 96);
}

/* Neither intervals nor a shortage of the heap's own take what a graph may use. */
static void memory_of_a_heap_that_keeps_stays(void **state)
{
    const gvm_heap_options options = {
        .struct_size = sizeof options, .flags = GVM_HEAP_KEEP, .limit_bytes = 240 * MIB};
    void *at[3], *ptr;

    (void)state;
    remake(&options);
    pass(192);
    for (int i = 0; i < 20; i++)
        pass(96);
    assert_int_equal(committed(), 192);
    remake(&options);
    for (int i = 0; i < 3; i++)
        at[i] = alloc(60 * MIB);
    release(at[1]); /* a hole that is too small */
    fails_with(gvm_heap_alloc(heap, 100 * MIB, &ptr), GVM_E_NOSPACE, "limit");
    assert_int_equal(committed(), 180);
}

/* The next tick never comes: what the end of an interval leaves over goes at once. */
static int end_an_interval_beside_the_thread(void *arg)
{
    void *ptr;

    (void)arg;
    CHILD_EXPECT(start_child(NULL));
    gvmi_heap_threadless = false;
    heap->tick_ns = GVMI_NEVER_NS;
    for (uint64_t mib = 192, i = 0; i < 7; mib = 96, i++)
        CHILD_EXPECT(gvm_heap_alloc(heap, mib * MIB, &ptr) == GVM_OK &&
                     gvm_heap_free(heap, ptr) == GVM_OK);
    while (info().committed_bytes > 96 * MIB) /* or the alarm */
        pause_ms(1);
    gvm_heap_destroy(heap);
    gvm_device_close(device);
    return 0;
}

CHILD_TEST(memory_goes_when_its_interval_ends, end_an_interval_beside_the_thread)

static void memory_needed_in_every_interval_stays(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        pass(192);
        pass(48);
        assert_int_equal(committed(), 192);
    }
    assert_int_equal(info().commits, 1);
}

/* A hole of 100 MiB is too small for the next block. 64 MiB are kept in any case. */
static void new_peak_has_idle_memory_first(void **state)
{
    void *at[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        at[i] = alloc(100 * MIB);
    release(at[1]);
    alloc(150 * MIB);
    assert_int_equal(committed(), 414);
    assert_int_equal(info().committed_peak_bytes, 414 * MIB);
    assert_int_equal(info().idle_bytes, 64 * MIB);
}

static void keep_bytes_that_are_set_are_kept_through_intervals(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = 96 * MIB};

    (void)state;
    remake(&options);
    pass(200);
    assert_int_equal(committed(), 96);
    for (int i = 0; i < 100; i++)
        pass(8);
    assert_int_equal(committed(), 96);
}

/* ---- by time */

#define SECOND_NS (1000 * GVMI_NS_PER_MS)

static int64_t decay(int64_t now_ns)
{
    return gvmi_heap_idle_calls.decay(&heap->idle, now_ns);
}

static void memory_of_a_heap_in_which_nothing_happens_goes(void **state)
{
    int64_t next_ns, tick_ns;

    (void)state;
    pass(320);
    tick_ns = heap->tick_ns;
    assert_int_equal(decay(tick_ns - 1), tick_ns);
    assert_int_equal(decay(tick_ns), tick_ns + SECOND_NS); /* the first interval began without idle memory */
    assert_int_equal(committed(), 320);
    tick_ns += SECOND_NS;
    next_ns = decay(tick_ns);
    for (uint64_t left = 320 - 64; left > 0; left -= 64) { /* 64 MiB a step */
        assert_int_equal(next_ns, tick_ns);
        assert_int_equal(committed(), left);
        next_ns = decay(next_ns);
    }
    assert_int_equal(committed(), 0);
    assert_int_equal(decay(tick_ns + SECOND_NS), GVMI_NEVER_NS);
    assert_int_equal(heap->tick_ns, 0);
    pass(320);
    assert_true(heap->tick_ns > 0);
}

static void memory_of_a_busy_heap_does_not_go_by_time(void **state)
{
    int64_t at_ns;

    (void)state;
    pass(320);
    at_ns = heap->tick_ns;
    for (int i = 0; i < 10; i++, at_ns += SECOND_NS) {
        pass(16);
        assert_int_equal(decay(at_ns), at_ns + SECOND_NS);
        assert_int_equal(committed(), 320);
    }
}

static void decay_waits_for_no_stream(void **state)
{
    void *ptr = NULL;
    int64_t at_ns;

    (void)state;
    busy = make_stream();
    assert_int_equal(gvm_heap_alloc_async(heap, 10 * MIB, NULL, busy, &ptr), GVM_OK);
    hold_stream(busy);
    assert_int_equal(gvm_heap_free_async(heap, ptr, busy), GVM_OK);
    at_ns = heap->tick_ns;
    for (int i = 0; i < 4; i++, at_ns += SECOND_NS)
        assert_true(decay(at_ns) > at_ns);
    assert_int_equal(committed(), 10);
    let_go(busy);
    (void)decay(at_ns);
    assert_int_equal(committed(), 0);
    assert_int_equal(gvm_heap_stream_end(heap, busy), GVM_OK);
    gvmi_cu->cuStreamDestroy(busy);
}

static void *call_decay(void *arg)
{
    (void)arg;
    return decay(1) > 1 ? heap : NULL;
}

/* Who has the lock may wait for what the library's thread does. */
static int decay_beside_the_lock(void *arg)
{
    pthread_t thread;
    void *good;

    (void)arg;
    CHILD_EXPECT(start_child(NULL));
    gvmi_lock(&heap->lock);
    CHILD_EXPECT(pthread_create(&thread, NULL, call_decay, NULL) == 0);
    CHILD_EXPECT(pthread_join(thread, &good) == 0 && good == heap);
    gvmi_unlock(&heap->lock);
    gvm_heap_destroy(heap);
    gvm_device_close(device);
    return 0;
}

CHILD_TEST(decay_waits_for_no_lock, decay_beside_the_lock)

/* Every block of the shelf is in another chunk. */
static void shelf_that_is_not_used_gives_back(void **state)
{
    enum { COUNT = 40, A_CHUNK = CHUNK / UNIT };
    static void *at[COUNT * A_CHUNK];
    const gvm_heap_options options = {.struct_size = sizeof options, .shelf_bytes = COUNT * UNIT};
    void *last;
    int64_t at_ns;

    (void)state;
    remake(&options);
    for (int i = 0; i < COUNT * A_CHUNK; i++)
        at[i] = alloc(UNIT);
    last = alloc(UNIT);
    for (int i = 0; i < COUNT * A_CHUNK; i++)
        if (i % A_CHUNK != 0)
            release(at[i]);
    at_ns = heap->tick_ns;
    assert_int_equal(gvm_heap_trim(heap, UINT64_MAX), GVM_OK);
    for (int i = 0; i < COUNT * A_CHUNK; i += A_CHUNK)
        release(at[i]);
    assert_int_equal(info().shelf_bytes, COUNT * UNIT);
    assert_int_equal(committed(), 2 * COUNT + 2);
    for (int i = 0; i < 20; i++, at_ns += SECOND_NS)
        (void)decay(at_ns);
    assert_int_equal(info().shelf_bytes, 0);
    assert_int_equal(committed(), 2);
    assert_int_equal(decay(at_ns), GVMI_NEVER_NS);
    release(last); /* after nothing has happened for long */
    assert_int_equal(info().shelf_bytes, UNIT);
    assert_true(heap->tick_ns > 0);
    check();
}

/* What a shelf held goes in steps: between two of them more than keep_bytes is idle, and nothing is wrong. */
static void check_between_steps_finds_nothing(void **state)
{
    const gvm_heap_options options = {
        .struct_size = sizeof options, .keep_bytes = GVM_BYTES_NONE, .shelf_bytes = 512 * MIB};
    void *at[128];
    int64_t at_ns;

    (void)state;
    remake(&options);
    for (int i = 0; i < 128; i++)
        at[i] = alloc(MIB);
    for (int i = 0; i < 128; i++)
        release(at[i]);
    at_ns = heap->tick_ns;
    for (int ticks = 0; info().shelf_bytes > 0 && ticks < 3; ticks++, at_ns += SECOND_NS)
        (void)decay(at_ns);
    assert_int_equal(committed(), 64);
    check();
    (void)decay(at_ns - SECOND_NS);
    assert_int_equal(committed(), 0);
    check();
}

/* ---- large blocks */

static void large_freed_block_serves_other_sizes(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = GVM_BYTES_UNLIMITED};

    (void)state;
    remake(&options);
    for (uint64_t mib = 530; mib <= 1024; mib += 38) {
        pass(mib);
        assert_true(committed() <= mib + mib / 16);
    }
    pass(600);
    assert_int_equal(info().segments, 1);
    pass(1100); /* its addresses are too short */
    assert_int_equal(info().segments, 2);
    pass(800);
    assert_int_equal(info().segments, 2);
    remake(&options);
    pass(1100);
    pass(600); /* about half of it */
    assert_int_equal(info().segments, 1);
}

/* ---- shortage */

static void request_that_fits_in_smaller_chunks_succeeds(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .limit_bytes = 130 * MIB};
    void *held, *ptr = NULL;

    (void)state;
    SKIP_ON_GPU("it takes all but the last chunk of the device");
    held = alloc(100 * MIB);
    assert_int_equal(gvm_heap_alloc(heap, memory_free_bytes(device) - 2 * MIB, &ptr), GVM_OK);
    assert_true(memory_free_bytes(device) <= 2 * MIB);
    check();
    release(ptr);
    release(held);
    remake(&options);
    assert_int_equal(gvm_heap_alloc(heap, 129 * MIB, &ptr), GVM_OK);
    assert_int_equal(committed(), 130);
}

/* What a heap keeps idle is had by whatever else runs short: a buffer, and another heap; of a heap that keeps, nothing. */
static void idle_memory_is_had_by_others_on_shortage(void **state)
{
    const gvm_heap_options all = {.struct_size = sizeof all, .keep_bytes = GVM_BYTES_UNLIMITED};
    const gvm_heap_options keep = {.struct_size = sizeof keep, .flags = GVM_HEAP_KEEP};
    const uint64_t half = memory_free_bytes(device) / 2;
    gvm_buffer *buffer;
    gvm_heap *other;
    void *ptr = NULL;

    (void)state;
    assert_int_equal(gvm_heap_create(device, NULL, &other), GVM_OK);
    assert_int_equal(gvm_buffer_create(device, half, NULL, &buffer), GVM_OK);
    for (int i = 0; i < 3; i++) {
        remake(i < 2 ? &all : &keep);
        release(alloc(half + half / 2));
        if (i == 0)
            assert_int_equal(gvm_heap_alloc(other, half, &ptr), GVM_OK);
        else
            assert_int_equal(gvm_buffer_commit(buffer, 0, half), i == 1 ? GVM_OK : GVM_E_NOSPACE);
        if (i == 0)
            assert_int_equal(gvm_heap_free(other, ptr), GVM_OK);
        else
            assert_int_equal(gvm_buffer_decommit(buffer, 0, half), GVM_OK);
        check();
    }
    assert_int_equal(info().idle_bytes, info().committed_bytes);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(gvm_buffer_commit(buffer, 0, half), GVM_OK);
    gvm_buffer_destroy(buffer);
    gvm_heap_destroy(other);
}

static gvm_heap *hoard; /* has what is free on the device, and keeps it idle */
static void *hoarded;
static uint64_t passed_bytes;

static int free_hoarded(gvm_heap *which, uint64_t wanted_bytes, void *arg)
{
    (void)which, (void)arg;
    passed_bytes = wanted_bytes;
    return gvm_heap_free(hoard, hoarded) == GVM_OK;
}

/* It is the growth that has to fit the limit, which the callback is passed. */
static void resize_has_idle_memory_of_other_heaps(void **state)
{
    const gvm_heap_options keep = {.struct_size = sizeof keep, .keep_bytes = GVM_BYTES_UNLIMITED};
    const gvm_heap_options options = {
        .struct_size = sizeof options, .limit_bytes = 300 * MIB, .exhausted = free_hoarded};
    gvm_device_info device_info = {.struct_size = sizeof device_info};
    void *at;

    (void)state;
    SKIP_ON_GPU("a heap takes all of the device");
    remake(&options);
    at = alloc(200 * MIB);
    assert_int_equal(gvm_heap_create(device, &keep, &hoard), GVM_OK);
    assert_int_equal(gvm_device_trim(device, 0), GVM_OK);
    assert_int_equal(gvm_device_get_info(device, &device_info), GVM_OK);
    assert_int_equal(gvm_heap_alloc(hoard, device_info.free_bytes, &hoarded), GVM_OK);
    assert_int_equal(gvm_heap_resize(heap, at, 240 * MIB), GVM_OK);
    assert_int_equal(passed_bytes, 40 * MIB);
    check();
    gvm_heap_destroy(hoard);
}

static void trim_gives_memory_back_to_the_device(void **state)
{
    const gvm_heap_options unshared = {.struct_size = sizeof unshared, .flags = GVM_HEAP_UNSHARED};
    uint64_t before;

    (void)state;
    assert_int_equal(gvm_device_trim(device, 0), GVM_OK);
    before = memory_free_bytes(device);
    pass(240);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(memory_free_bytes(device), before);
    pass(100);
    assert_int_equal(gvmi_heap_idle_calls.reclaim(&heap->idle, UINT64_MAX, false), 100 * MIB);
    assert_true(memory_free_bytes(device) < before); /* in the cache */
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(memory_free_bytes(device), before);
    remake(&unshared); /* whose free chunks are anybody's */
    pass(240);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(memory_free_bytes(device), before);
}

/* Of blocks that shelves held what is beyond keep_bytes goes, too. */
static void shortage_leaves_no_more_than_keep_bytes(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = 2 * CHUNK};
    void *at[8];

    (void)state;
    remake(&options);
    for (int i = 0; i < 8; i++)
        at[i] = alloc(MIB);
    for (int i = 0; i < 8; i++)
        release(at[i]);
    assert_int_equal(info().shelf_bytes, 8 * MIB);
    assert_int_equal(gvmi_heap_idle_calls.reclaim(&heap->idle, 1, false), 2 * CHUNK);
    assert_int_equal(info().idle_bytes, 2 * CHUNK);
    check();
}

/* ---- peers */

static gvm_device *second;

static CUresult copy_to_second(void *block)
{
    CUdeviceptr there = 0;
    CUresult result;

    assert_int_equal(gvmi_device_enter(second), GVM_OK);
    assert_int_equal(gvmi_cu->cuMemAlloc(&there, MIB), CUDA_SUCCESS);
    result = gvmi_cu->cuMemcpyDtoDAsync(there, (CUdeviceptr)(uintptr_t)block, MIB, NULL);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuCtxSynchronize();
    gvmi_cu->cuMemFree(there);
    gvmi_device_leave();
    return result;
}

static void blocks_of_a_granted_heap_are_reached_by_a_peer(void **state)
{
    void *before, *of_a_stream, *after, *lone;

    (void)state;
    skip_without_peer();
    before = alloc(20 * MIB);
    assert_int_equal(gvm_heap_alloc_async(heap, 20 * MIB, NULL, NULL, &of_a_stream), GVM_OK);
    assert_int_equal(gvm_device_open(1, &second), GVM_OK);
    assert_int_not_equal(copy_to_second(before), CUDA_SUCCESS);
    assert_int_not_equal(copy_to_second(of_a_stream), CUDA_SUCCESS);
    assert_int_equal(gvm_heap_grant(heap, second, GVM_ACCESS_READWRITE), GVM_OK);
    after = alloc(20 * MIB);
    lone = alloc(600 * MIB);
    assert_int_equal(copy_to_second(before), CUDA_SUCCESS);
    assert_int_equal(copy_to_second(of_a_stream), CUDA_SUCCESS);
    assert_int_equal(copy_to_second(after), CUDA_SUCCESS);
    assert_int_equal(copy_to_second(lone), CUDA_SUCCESS);
    assert_int_equal(gvm_heap_grant(heap, second, GVM_ACCESS_NONE), GVM_OK);
    assert_int_not_equal(copy_to_second(after), CUDA_SUCCESS);
    assert_int_equal(gvm_heap_grant(heap, second, GVM_ACCESS_READ), GVM_OK);
    gvm_device_close(second); /* the heap keeps it */
    release(lone);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(gvm_device_open(1, &second), GVM_OK);
    assert_int_equal(copy_to_second(alloc(700 * MIB)), CUDA_SUCCESS);
    gvm_device_close(second);
    check();
}

static int accesses_left;

static CUresult fail_one_set(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    return accesses_left-- != 0 ? real->cuMemSetAccess(address, bytes, desc, count)
                                : CUDA_ERROR_UNKNOWN;
}

static void grant_that_fails_half_way_changes_nothing(void **state)
{
    const gvm_heap_options host = {.struct_size = sizeof host, .kind = GVM_HEAP_HOST};
    void *usual, *lone;

    (void)state;
    skip_without_peer();
    usual = alloc(3 * MIB);
    lone = alloc(600 * MIB);
    assert_int_equal(gvm_device_open(1, &second), GVM_OK);
    fails_with(gvm_heap_grant(heap, device, GVM_ACCESS_READ), GVM_E_INVALID, "own device");
    fails_with(gvm_heap_grant(heap, second, (gvm_access)77), GVM_E_INVALID, "access 77");
    table.cuMemSetAccess = fail_one_set;
    accesses_left = 1;
    assert_int_equal(gvm_heap_grant(heap, second, GVM_ACCESS_READ), GVM_E_DRIVER);
    table.cuMemSetAccess = real->cuMemSetAccess;
    assert_int_equal(heap->grant_count, 0);
    assert_int_not_equal(copy_to_second(usual), CUDA_SUCCESS);
    assert_int_not_equal(copy_to_second(lone), CUDA_SUCCESS);
    release(usual);
    assert_int_equal(gvm_heap_grant(heap, second, GVM_ACCESS_READ), GVM_OK);
    assert_int_equal(copy_to_second(lone), CUDA_SUCCESS);
    remake(&host);
    assert_int_equal(gvm_heap_grant(heap, second, GVM_ACCESS_READ), GVM_E_NOTSUP);
    gvm_device_close(second);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_of_host_and_managed_memory_waits_for_no_kernel),
        cmocka_unit_test(wait_for_a_stream_lets_others_in),
        cmocka_unit_test(end_of_a_stream_waits_for_its_work_on_live_blocks),
        cmocka_unit_test(memory_goes_back_without_the_lock),
        cmocka_unit_test(capture_of_a_stream_is_left_alone),
        cmocka_unit_test(heap_that_is_destroyed_beside_a_capture_waits_for_its_streams),
        cmocka_unit_test(memory_goes_when_its_interval_ends),
        cmocka_unit_test(decay_waits_for_no_lock),
        TEST(memory_idle_for_an_interval_goes),
        TEST(memory_that_was_free_for_less_than_the_decay_stays),
        TEST(memory_of_a_heap_that_keeps_stays),
        TEST(memory_needed_in_every_interval_stays),
        TEST(new_peak_has_idle_memory_first),
        TEST(keep_bytes_that_are_set_are_kept_through_intervals),
        TEST(memory_of_a_heap_in_which_nothing_happens_goes),
        TEST(memory_of_a_busy_heap_does_not_go_by_time),
        TEST(decay_waits_for_no_stream),
        TEST(shelf_that_is_not_used_gives_back),
        TEST(check_between_steps_finds_nothing),
        TEST(large_freed_block_serves_other_sizes),
        TEST(request_that_fits_in_smaller_chunks_succeeds),
        TEST(idle_memory_is_had_by_others_on_shortage),
        TEST(resize_has_idle_memory_of_other_heaps),
        TEST(trim_gives_memory_back_to_the_device),
        TEST(shortage_leaves_no_more_than_keep_bytes),
        TEST(blocks_of_a_granted_heap_are_reached_by_a_peer),
        TEST(grant_that_fails_half_way_changes_nothing),
    };

    fixture_machine_default("devices=2,memory=2560MiB,sms=2");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
