/* heap/: what a heap gives back, when, and for what it waits. On the software GPU.
 *
 * A stream is held by a function of the program, which a thread lets go only when it has done what must not wait for
 * the stream: where that does wait, nothing goes on, and the alarm ends the child.
 */
#include "heap/heap.h"
#include "tests/unit/heap_stand.h"

#include <pthread.h>

static CUstream busy; /* held */
static void *on_it;   /* a block that was freed on it */

static bool start_child(const gvm_heap_options *options)
{
    void *state;

    alarm(20);
    if (begin(&state) != 0)
        return false;
    remake(options);
    return true;
}

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
        .struct_size = sizeof options, .kind = *(gvm_heap_kind *)arg, .reserve_bytes = 1};
    void *at[3];

    CHILD_EXPECT(start_child(&options));
    busy = make_stream();
    for (int i = 0; i < 3; i++)
        CHILD_EXPECT(gvm_heap_alloc(heap, 65 * GVMI_MIB, &at[i]) == GVM_OK);
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

    return gvm_heap_alloc(heap, 90 * GVMI_MIB, &ptr) == GVM_OK;
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
           gvm_heap_alloc(heap, 5 * GVMI_MIB, &large) == GVM_OK && gvm_heap_free(heap, large) == GVM_OK &&
           gvm_heap_free(heap, small) == GVM_OK && gvm_heap_check(heap) == GVM_OK;
    atomic_store(&gate, true);
    return good ? heap : NULL;
}

static int wait_beside_others(void *arg)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .limit_bytes = 100 * GVMI_MIB};
    pthread_t thread;
    void *foreign, *good;

    CHILD_EXPECT(start_child(&options));
    busy = make_stream();
    CHILD_EXPECT(gvm_heap_alloc_async(heap, 30 * GVMI_MIB, NULL, busy, &on_it) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, 20 * GVMI_MIB, &foreign) == GVM_OK);
    hold_stream(busy);
    CHILD_EXPECT(gvm_heap_free_async(heap, on_it, busy) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free_async(heap, foreign, busy) == GVM_OK);
    table.cuEventQuery = query_and_tell;
    CHILD_EXPECT(pthread_create(&thread, NULL, use_the_heap_then_let_go, NULL) == 0);
    CHILD_EXPECT((*(int (**)(void))arg)());
    CHILD_EXPECT(pthread_join(thread, &good) == 0 && good == heap);
    table = *real;
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
    CHILD_EXPECT(gvm_heap_alloc(heap, 30 * GVMI_MIB, &ptr) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free(heap, ptr) == GVM_OK);
    table.cuMemUnmap = unmap_beside_others;
    CHILD_EXPECT(gvm_heap_trim(heap, 0) == GVM_OK);
    table = *real;
    CHILD_EXPECT(gvm_heap_check(heap) == GVM_OK);
    gvm_heap_destroy(heap);
    gvm_device_close(device);
    return 0;
}

static void memory_goes_back_without_the_lock(void **state)
{
    (void)state;
    assert_child_succeeds(give_back_beside_others, NULL);
}

/* ---- a stream that is captured */

static CUstreamCaptureStatus capturing;
static int recorded;

static CUresult tell_capture(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                             const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count)
{
    (void)graph, (void)nodes, (void)edges, (void)count;
    *status = stream == busy ? capturing : CU_STREAM_CAPTURE_STATUS_NONE;
    *id = 1;
    return CUDA_SUCCESS;
}

static CUresult count_records(CUevent event, CUstream stream)
{
    recorded += stream == busy;
    return real->cuEventRecord(event, stream);
}

static int release_while_captured(void *arg)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .reserve_bytes = 1};
    void *ptr;

    (void)arg;
    CHILD_EXPECT(start_child(&options));
    busy = make_stream();
    CHILD_EXPECT(gvm_heap_alloc_async(heap, 30 * GVMI_MIB, NULL, busy, &ptr) == GVM_OK);
    table.cuStreamGetCaptureInfo = tell_capture;
    table.cuEventRecord = count_records;
    capturing = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CHILD_EXPECT(gvm_heap_free_async(heap, ptr, busy) == GVM_OK);
    CHILD_EXPECT(gvm_heap_trim(heap, 0) == GVM_OK);
    CHILD_EXPECT(info().committed_bytes == 30 * GVMI_MIB);
    CHILD_EXPECT(gvm_heap_stream_end(heap, busy) == GVM_E_INVALID);
    CHILD_EXPECT(recorded == 0);
    capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CHILD_EXPECT(gvm_heap_trim(heap, 0) == GVM_OK);
    CHILD_EXPECT(info().committed_bytes == 0);
    table = *real;
    end_child();
    return 0;
}

static void capture_of_a_stream_is_left_alone(void **state)
{
    (void)state;
    assert_child_succeeds(release_while_captured, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_of_host_and_managed_memory_waits_for_no_kernel),
        cmocka_unit_test(wait_for_a_stream_lets_others_in),
        cmocka_unit_test(memory_goes_back_without_the_lock),
        cmocka_unit_test(capture_of_a_stream_is_left_alone),
    };
    char machine[96];

    snprintf(machine, sizeof machine, "devices=2,memory=4GiB,sms=2,instance=release-%d", (int)getpid());
    setenv("GVMEM_SOFTGPU", machine, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
