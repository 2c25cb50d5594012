/* Cases: events. Goal: an event is the point in a stream where it was recorded last, and tells time
 * between two such points. */
#include "tests/conform/execution.h"

CASE(event_unrecorded_is_done)
{
    CUevent event = take_event(CU_EVENT_DEFAULT);
    EXPECT_OK(cu->cuEventQuery(event));
    EXPECT_OK(cu->cuEventSynchronize(event));
}

CASE(event_is_pending_behind_work)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    serve_start(stream);
    EXPECT_OK(cu->cuEventRecord(event, stream));
    EXPECT(cu->cuEventQuery(event), CUDA_ERROR_NOT_READY);
    pause_ms(3);
    EXPECT(cu->cuEventQuery(event), CUDA_ERROR_NOT_READY);
    serve_stop();
    EXPECT_OK(cu->cuEventSynchronize(event));
    EXPECT_OK(cu->cuEventQuery(event));
}

CASE(event_covers_only_work_before_it)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    conform_touch touch = {scratch(), 1, 0};
    launch("touch", 1, &touch, stream);
    EXPECT_OK(cu->cuEventRecord(event, stream));
    serve_start(stream);
    EXPECT_OK(cu->cuEventSynchronize(event));
    EXPECT_U64(serve_read(scratch()), 1);
    EXPECT_TRUE(serve_runs());
}

CASE(event_recorded_again_forgets_the_first)
{
    CUstream busy = take_stream(CU_STREAM_NON_BLOCKING), stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    EXPECT_OK(cu->cuEventRecord(event, stream));
    EXPECT_OK(cu->cuEventSynchronize(event));
    serve_start(busy);
    EXPECT_OK(cu->cuEventRecord(event, busy));
    EXPECT(cu->cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cu->cuEventRecord(event, stream));
    EXPECT_OK(cu->cuEventSynchronize(event));
    EXPECT_TRUE(serve_runs());
}

CASE(event_synchronize_waits_for_the_work)
{
    static const unsigned flags[] = {CU_EVENT_DEFAULT, CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING,
                                     CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING};
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *word = take_host(64);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&at, word, 0));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        CUevent event = take_event(flags[i]);
        conform_slow slow = {at, 5000000};
        *word = 0;
        launch("slow", 1, &slow, stream);
        EXPECT_OK(cu->cuEventRecord(event, stream));
        EXPECT_OK(cu->cuEventSynchronize(event));
        EXPECT_U64(__atomic_load_n(word, __ATOMIC_ACQUIRE), 1);
    }
}

CASE(event_times_a_kernel)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent start = take_event(CU_EVENT_DEFAULT), end = take_event(CU_EVENT_DEFAULT);
    conform_slow slow = {scratch(), 20000000};
    float ms = -1;
    EXPECT_OK(cu->cuEventRecord(start, stream));
    launch("slow", 1, &slow, stream);
    EXPECT_OK(cu->cuEventRecord(end, stream));
    EXPECT_OK(cu->cuEventSynchronize(end));
    EXPECT_OK(cu->cuEventElapsedTime(&ms, start, end));
    EXPECT_TRUE(ms > 19.0f && ms < 2000.0f);
    EXPECT_OK(cu->cuEventElapsedTime(&ms, end, start));
    EXPECT_TRUE(ms < -19.0f && ms > -2000.0f);
    EXPECT_OK(cu->cuEventElapsedTime(&ms, end, end));
    EXPECT_TRUE(ms >= 0.0f && ms <= 0.0f);
}

CASE(event_elapsed_time_needs_times)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent timed = take_event(CU_EVENT_DEFAULT), other = take_event(CU_EVENT_DEFAULT);
    CUevent untimed = take_event(CU_EVENT_DISABLE_TIMING);
    float ms = 0;
    EXPECT_OK(cu->cuEventRecord(timed, stream));
    EXPECT_OK(cu->cuEventRecord(untimed, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT(cu->cuEventElapsedTime(&ms, timed, untimed), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cu->cuEventElapsedTime(&ms, timed, other), CUDA_ERROR_INVALID_HANDLE); /* never recorded */
    EXPECT(cu->cuEventElapsedTime(NULL, timed, timed), CUDA_ERROR_INVALID_HANDLE);
    serve_start(stream);
    EXPECT_OK(cu->cuEventRecord(other, stream));
    EXPECT(cu->cuEventElapsedTime(&ms, timed, other), CUDA_ERROR_NOT_READY);
}

/* cuda.h of CUDA 13 has the second one. */
CASE(event_elapsed_time_has_two_entry_points)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent start = take_event(CU_EVENT_DEFAULT), end = take_event(CU_EVENT_DEFAULT);
    CUevent untimed = take_event(CU_EVENT_DISABLE_TIMING);
    float ms = -1, same = -2;
    EXPECT_OK(cu->cuEventRecord(start, stream));
    EXPECT_OK(cu->cuEventRecord(end, stream));
    EXPECT_OK(cu->cuEventRecord(untimed, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_OK(cu->cuEventElapsedTime(&ms, start, end));
    EXPECT_OK(cu->cuEventElapsedTime_v2(&same, start, end));
    EXPECT_TRUE(ms >= 0 && ms <= same && same <= ms);
    EXPECT(cu->cuEventElapsedTime_v2(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
}

CASE(event_in_the_legacy_stream_covers_blocking_ones)
{
    CUstream busy = take_stream(CU_STREAM_DEFAULT);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    serve_start(busy);
    EXPECT_OK(cu->cuEventRecord(event, NULL));
    EXPECT(cu->cuEventQuery(event), CUDA_ERROR_NOT_READY);
    serve_stop();
    EXPECT_OK(cu->cuEventSynchronize(event));
}

CASE(event_destroyed_while_pending_is_fine)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DEFAULT);
    serve_start(stream);
    EXPECT_OK(cu->cuEventRecord(event, stream));
    drop(OWN_EVENT, (uintptr_t)event);
    EXPECT_TRUE(serve_runs());
}

CASE(event_create_bad_arguments_refused)
{
    CUevent event = NULL;
    EXPECT_INVALID(cu->cuEventCreate(NULL, 0));
    EXPECT_INVALID(cu->cuEventCreate(&event, 0x100));
    EXPECT_TRUE(event == NULL);
}

CASE(event_null_refused)
{
    EXPECT(cu->cuEventQuery(NULL), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cu->cuEventRecord(NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cu->cuEventSynchronize(NULL), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cu->cuEventDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
}

/* Not seen on a machine with two real devices yet. */
CASE(event_of_another_device_cannot_be_recorded)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent there;
    use_device(1);
    there = take_event(CU_EVENT_DISABLE_TIMING);
    use_device(0);
    EXPECT_ANY(cu->cuEventRecord(there, stream), CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_CONTEXT);
}
