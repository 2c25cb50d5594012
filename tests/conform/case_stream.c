/* Cases: streams.
 *
 * Goal: what is in one stream happens in order, what is in two may happen at once, the legacy
 * stream stands between the two kinds, and nothing but the calls that say so waits.
 */
#include <string.h>

#include "tests/conform/execution.h"

static void touch(unsigned index, uint32_t value, CUstream stream)
{
    conform_touch params = {scratch_word(index), value, 0};
    launch("touch", 1, &params, stream);
}

/* ---- capture */

/* Of the calling thread. What a driver does with other values is not checked: it takes some, and
 * crashes at NULL. */
CASE(stream_capture_mode_is_exchanged)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_OK(cu->cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_U64(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu->cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_U64(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* ---- order within a stream */

CASE(stream_runs_in_order)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    for (uint32_t i = 1; i <= 300; i++)
        touch(0, i, stream);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch()), 300);
}

CASE(stream_orders_kernels_copies_and_sets)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr first = take_alloc(MIB), second = take_alloc(MIB);
    conform_fill fill = {first, MIB / 4, 13, 0};
    conform_range sum = {second, scratch(), MIB / 4};
    uint64_t *host = take_host(sizeof *host);
    for (int round = 0; round < 5; round++) {
        fill.first = 13 + (uint32_t)round;
        launch("fill", 16, &fill, stream);
        EXPECT_OK(cu->cuMemcpyDtoDAsync(second, first, MIB, stream));
        EXPECT_OK(cu->cuMemsetD8Async(first, 0, MIB, stream));
        EXPECT_OK(cu->cuMemsetD8Async(scratch(), 0, sizeof *host, stream));
        launch("sum", 16, &sum, stream);
        EXPECT_OK(cu->cuMemcpyDtoHAsync(host, scratch(), sizeof *host, stream));
        EXPECT_OK(cu->cuStreamSynchronize(stream));
        EXPECT_U64(*host, sum_of_fill(MIB / 4, 13 + (uint32_t)round));
    }
}

CASE(stream_query_tells_busy_from_done)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cu->cuStreamQuery(stream));
    serve_start(stream);
    EXPECT(cu->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    touch(0, 4, stream);
    EXPECT_TRUE(stays_busy(stream));
    EXPECT_U64(serve_read(scratch()), 0);
    serve_stop();
    EXPECT_OK(cu->cuStreamQuery(stream));
    EXPECT_U64(read_word(scratch()), 4);
}

CASE(stream_synchronize_of_empty_returns)
{
    EXPECT_OK(cu->cuStreamSynchronize(take_stream(CU_STREAM_DEFAULT)));
    EXPECT_OK(cu->cuStreamSynchronize(NULL));
    EXPECT_OK(cu->cuStreamSynchronize(CU_STREAM_LEGACY));
    EXPECT_OK(cu->cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT_OK(cu->cuStreamQuery(NULL));
    EXPECT_OK(cu->cuStreamQuery(CU_STREAM_PER_THREAD));
}

/* ---- two streams */

CASE(stream_non_blocking_runs_beside_another)
{
    CUstream busy = take_stream(CU_STREAM_NON_BLOCKING), stream = take_stream(CU_STREAM_NON_BLOCKING);
    serve_start(busy);
    touch(0, 5, stream);
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_U64(serve_read(scratch()), 5);
    EXPECT_TRUE(serve_runs());
}

CASE(stream_blocking_runs_beside_another)
{
    CUstream busy = take_stream(CU_STREAM_DEFAULT), stream = take_stream(CU_STREAM_DEFAULT);
    serve_start(busy);
    touch(0, 5, stream);
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_TRUE(serve_runs());
}

CASE(stream_legacy_waits_for_blocking)
{
    CUstream busy = take_stream(CU_STREAM_DEFAULT);
    serve_start(busy);
    touch(0, 6, NULL);
    EXPECT_TRUE(stays_busy(NULL));
    EXPECT_U64(serve_read(scratch()), 0);
    serve_stop();
    EXPECT_OK(cu->cuStreamSynchronize(CU_STREAM_LEGACY));
    EXPECT_U64(read_word(scratch()), 6);
}

CASE(stream_blocking_waits_for_legacy)
{
    CUstream stream = take_stream(CU_STREAM_DEFAULT);
    serve_start(NULL);
    touch(0, 7, stream);
    EXPECT_TRUE(stays_busy(stream));
    EXPECT_U64(serve_read(scratch()), 0);
    serve_stop();
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch()), 7);
}

CASE(stream_blocking_waits_for_legacy_work_between)
{
    CUstream busy = take_stream(CU_STREAM_DEFAULT), stream = take_stream(CU_STREAM_DEFAULT);
    serve_start(busy);
    touch(0, 1, NULL);   /* behind busy */
    touch(1, 2, stream); /* behind the legacy stream, so behind busy too */
    EXPECT_TRUE(stays_busy(stream));
    serve_stop();
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_TRUE(words_are(scratch(), 2, 1, 1));
}

CASE(stream_non_blocking_ignores_legacy)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    serve_start(NULL);
    touch(0, 8, stream);
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_U64(serve_read(scratch()), 8);
    EXPECT_TRUE(serve_runs());
}

CASE(stream_legacy_ignores_non_blocking)
{
    serve_start(take_stream(CU_STREAM_NON_BLOCKING));
    touch(0, 9, NULL);
    EXPECT_TRUE(ends_soon(NULL));
    EXPECT_OK(cu->cuStreamSynchronize(NULL));
    EXPECT_U64(serve_read(scratch()), 9);
    EXPECT_TRUE(serve_runs());
}

CASE(stream_legacy_is_busy_while_a_blocking_one_is)
{
    serve_start(take_stream(CU_STREAM_DEFAULT));
    EXPECT(cu->cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
}

/* ---- the stream of each thread */

CASE(stream_per_thread_is_blocking)
{
    serve_start(CU_STREAM_PER_THREAD);
    touch(0, 3, NULL);
    EXPECT_TRUE(stays_busy(NULL));
    serve_stop();
    EXPECT_OK(cu->cuStreamSynchronize(NULL));
    EXPECT_U64(read_word(scratch()), 3);
}

struct own_stream_work {
    CUdeviceptr at;
    CUresult context, set, wait;
};

static void set_in_own_stream(void *arg)
{
    struct own_stream_work *work = arg;
    work->context = cu->cuCtxSetCurrent(machine.context);
    work->set = cu->cuMemsetD32Async(work->at, 12, 1, CU_STREAM_PER_THREAD);
    work->wait = cu->cuStreamSynchronize(CU_STREAM_PER_THREAD);
}

CASE(stream_per_thread_differs_between_threads)
{
    struct own_stream_work work = {scratch(), CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS};
    serve_start(CU_STREAM_PER_THREAD);
    in_thread(set_in_own_stream, &work);
    EXPECT_OK(work.context);
    EXPECT_OK(work.set);
    EXPECT_OK(work.wait);
    EXPECT_TRUE(serve_runs());
    EXPECT_U64(serve_read(scratch()), 12);
}

/* ---- events between streams */

CASE(stream_wait_event_holds_the_stream)
{
    CUstream busy = take_stream(CU_STREAM_NON_BLOCKING), stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    serve_start(busy);
    EXPECT_OK(cu->cuEventRecord(event, busy));
    EXPECT_OK(cu->cuStreamWaitEvent(stream, event, 0));
    touch(0, 10, stream);
    EXPECT_TRUE(stays_busy(stream));
    EXPECT_U64(serve_read(scratch()), 0);
    serve_stop();
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_U64(read_word(scratch()), 10);
}

CASE(stream_wait_event_unrecorded_passes)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cu->cuStreamWaitEvent(stream, take_event(CU_EVENT_DISABLE_TIMING), 0));
    touch(0, 11, stream);
    EXPECT_TRUE(ends_soon(stream));
}

CASE(stream_wait_event_means_the_record_before_it)
{
    CUstream busy = take_stream(CU_STREAM_NON_BLOCKING), stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    EXPECT_OK(cu->cuEventRecord(event, stream));
    EXPECT_OK(cu->cuStreamWaitEvent(stream, event, 0)); /* of itself: nothing to wait for */
    serve_start(busy);
    EXPECT_OK(cu->cuEventRecord(event, busy)); /* too late for the wait above */
    touch(0, 12, stream);
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_TRUE(serve_runs());
}

CASE(stream_wait_event_outlives_the_event)
{
    CUstream busy = take_stream(CU_STREAM_NON_BLOCKING), stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    serve_start(busy);
    EXPECT_OK(cu->cuEventRecord(event, busy));
    EXPECT_OK(cu->cuStreamWaitEvent(stream, event, 0));
    drop(OWN_EVENT, (uintptr_t)event);
    touch(0, 13, stream);
    EXPECT_TRUE(stays_busy(stream));
    serve_stop();
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_U64(read_word(scratch()), 13);
}

CASE(stream_wait_event_between_devices)
{
    CUstream busy, stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;
    conform_touch params = {0, 14, 0};
    use_device(1);
    busy = take_stream(CU_STREAM_NON_BLOCKING);
    event = take_event(CU_EVENT_DISABLE_TIMING);
    serve_start(busy);
    EXPECT_OK(cu->cuEventRecord(event, busy));
    use_device(0);
    params.address = scratch();
    EXPECT_OK(cu->cuStreamWaitEvent(stream, event, 0));
    launch("touch", 1, &params, stream);
    EXPECT_TRUE(stays_busy(stream));
    serve_stop();
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_U64(read_word(scratch()), 14);
}

/* ---- functions on the host */

struct host_call {
    uint32_t *word; /* pinned */
    uint32_t seen;
    uint32_t calls;
    uint32_t go; /* from the case: the function may return */
    CUresult inside;
};

static void note_word(void *arg)
{
    struct host_call *call = arg;
    call->seen = __atomic_load_n(call->word, __ATOMIC_ACQUIRE);
    __atomic_store_n(call->word, 200, __ATOMIC_RELEASE);
    __atomic_add_fetch(&call->calls, 1, __ATOMIC_RELEASE);
}

CASE(stream_host_function_runs_in_order)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    struct host_call call = {.word = take_host(64)};
    CUdeviceptr word = 0;
    conform_touch before = {0, 100, 0};
    conform_range after = {0, scratch(), 1};
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&word, call.word, 0));
    before.address = after.address = word;
    *call.word = 0;
    launch("touch", 1, &before, stream);
    EXPECT_OK(cu->cuLaunchHostFunc(stream, note_word, &call));
    launch("peek", 1, &after, stream);
    REQUIRE_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(call.calls, 1);
    EXPECT_U64(call.seen, 100);
    EXPECT_U64(read_word(scratch()), 200);
}

static void wait_to_go(void *arg)
{
    struct host_call *call = arg;
    uint64_t end = now_ms() + CONFORM_SOON_MS;
    __atomic_store_n(&call->calls, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&call->go, __ATOMIC_ACQUIRE) && now_ms() < end)
        pause_ms(1);
}

CASE(stream_host_function_holds_only_its_stream)
{
    static struct host_call call;
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), other = take_stream(CU_STREAM_NON_BLOCKING);
    memset(&call, 0, sizeof call);
    EXPECT_OK(cu->cuLaunchHostFunc(stream, wait_to_go, &call));
    touch(0, 15, stream);
    touch(1, 16, other);
    EXPECT_TRUE(ends_soon(other));
    EXPECT_TRUE(stays_busy(stream));
    EXPECT_U64(read_word(scratch_word(0)), 0);
    __atomic_store_n(&call.go, 1, __ATOMIC_RELEASE);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch_word(0)), 15);
}

static void try_inside(void *arg)
{
    struct host_call *call = arg;
    size_t free_now, total;
    call->inside = cu->cuMemGetInfo(&free_now, &total);
}

CASE(stream_host_function_may_not_call_cuda)
{
    static struct host_call call;
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cu->cuLaunchHostFunc(stream, try_inside, &call));
    REQUIRE_OK(cu->cuStreamSynchronize(stream));
    EXPECT(call.inside, CUDA_ERROR_NOT_PERMITTED);
    EXPECT_INVALID(cu->cuLaunchHostFunc(stream, NULL, &call));
}

/* ---- creation, destruction, bad arguments */

CASE(stream_destroy_lets_its_work_finish)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *word = take_host(64);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&at, word, 0));
    *word = 0;
    REQUIRE_OK(cu->cuStreamWaitValue32(stream, at, 1, CU_STREAM_WAIT_VALUE_EQ));
    touch(0, 17, stream);
    drop(OWN_STREAM, (uintptr_t)stream); /* returns, though the stream is held up */
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(read_word(scratch()), 17);
}

CASE(stream_with_priority_works)
{
    static const int priorities[] = {0, -1, -1000, 1000}; /* the last two are clamped */
    for (size_t i = 0; i < sizeof priorities / sizeof *priorities; i++) {
        CUstream stream = NULL;
        REQUIRE_OK(cu->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priorities[i]));
        own(OWN_STREAM, (uintptr_t)stream, 0);
        touch((unsigned)i, 50 + (uint32_t)i, stream);
        EXPECT_OK(cu->cuStreamSynchronize(stream));
    }
    EXPECT_TRUE(words_are(scratch(), 4, 50, 1));
}

CASE(stream_create_bad_arguments_refused)
{
    CUstream stream = NULL;
    EXPECT_INVALID(cu->cuStreamCreate(NULL, CU_STREAM_DEFAULT));
    EXPECT_INVALID(cu->cuStreamCreate(&stream, 0x80));
    EXPECT_INVALID(cu->cuStreamCreateWithPriority(&stream, 0x80, 0));
    EXPECT_TRUE(stream == NULL);
}

CASE(stream_special_ones_cannot_be_destroyed)
{
    EXPECT(cu->cuStreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cu->cuStreamDestroy(CU_STREAM_LEGACY), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cu->cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cu->cuStreamWaitEvent(take_stream(0), NULL, 0), CUDA_ERROR_INVALID_HANDLE);
}

CASE(stream_many_work_at_once)
{
    enum { STREAMS = 48 };
    CUstream streams[STREAMS];
    for (unsigned i = 0; i < STREAMS; i++)
        streams[i] = take_stream(CU_STREAM_NON_BLOCKING);
    for (uint32_t round = 0; round < 4; round++)
        for (unsigned i = 0; i < STREAMS; i++)
            touch(i, round * 1000 + i, streams[i]);
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_TRUE(words_are(scratch(), STREAMS, 3000, 1));
}

/* Not seen on a machine with two real devices yet. */
CASE(stream_of_another_device_refused_for_kernels)
{
    CUstream there;
    conform_touch params = {scratch(), 1, 0};
    use_device(1);
    there = take_stream(CU_STREAM_NON_BLOCKING);
    use_device(0);
    EXPECT_ANY(try_launch("touch", 1, &params, there), CUDA_ERROR_INVALID_HANDLE,
               CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cu->cuStreamSynchronize(there));
    EXPECT_U64(read_word(scratch()), 0);
}
