/* Cases: what captures refuse. Goal: what a graph could not repeat is refused with the error that says why, and makes the
 * capture invalid, where it does; what has nothing to do with a capture goes on beside it.
 */
#include "tests/conform/graphs.h"

static const CUstreamCaptureMode modes[] = {
    CU_STREAM_CAPTURE_MODE_GLOBAL,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CU_STREAM_CAPTURE_MODE_RELAXED,
};
#define MODES (sizeof modes / sizeof modes[0])

static CUstream capturing(CUstreamCaptureMode mode)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    take_capture(stream, mode);
    return stream;
}

/* An event that was recorded in the capture. */
static CUevent captured_event(CUstream stream)
{
    CUevent event = take_event(CU_EVENT_DEFAULT);
    REQUIRE_OK(cu->cuEventRecord(event, stream));
    return event;
}

/* ---- begin and end */

CASE(capture_of_the_legacy_stream_refused)
{
    EXPECT(cu->cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
           CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cu->cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED),
           CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_U64(capture_status(NULL), CU_STREAM_CAPTURE_STATUS_NONE);
}

CASE(capture_begun_twice_refused)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    expect_intact(stream);
}

CASE(capture_of_unknown_mode_refused)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_INVALID(cu->cuStreamBeginCapture(stream, -1));
    EXPECT_INVALID(cu->cuStreamBeginCapture(stream, 3));
    EXPECT_U64(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

CASE(capture_ended_before_it_began_refused)
{
    CUgraph graph = NULL;
    EXPECT(cu->cuStreamEndCapture(take_stream(CU_STREAM_DEFAULT), &graph), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(cu->cuStreamEndCapture(NULL, &graph), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(cu->cuStreamEndCapture(take_stream(CU_STREAM_DEFAULT), NULL), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_TRUE(graph == NULL);
}

CASE(capture_ended_in_a_joined_stream_refused)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL),
             side = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    EXPECT_OK(cu->cuStreamWaitEvent(side, captured_event(stream), 0));
    EXPECT(cu->cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    EXPECT_TRUE(graph == NULL);
    EXPECT(try_end_capture(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_U64(capture_status(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

struct ending {
    CUstream stream;
    CUgraph graph;
    CUresult result;
};

static void end_there(void *arg)
{
    struct ending *ending = arg;
    ending->result = cu->cuStreamEndCapture(ending->stream, &ending->graph);
}

/* The wrong thread's call is an error, and ends the capture all the same. */
CASE(capture_ended_by_another_thread_gives_no_graph)
{
    struct ending ending = {.stream = capturing(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)};
    in_thread(end_there, &ending);
    EXPECT(ending.result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT_TRUE(ending.graph == NULL);
    EXPECT_U64(capture_status(ending.stream), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT(try_end_capture(ending.stream), CUDA_ERROR_ILLEGAL_STATE);
    touch(0, 18, ending.stream);
    EXPECT_OK(cu->cuStreamSynchronize(ending.stream));
    EXPECT_U64(read_word(scratch()), 18);
}

/* That it is invalid counts before the thread does, and this call, too, ends it. */
CASE(capture_that_is_invalid_ended_by_another_thread)
{
    struct ending ending = {.stream = capturing(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)};
    EXPECT(cu->cuStreamQuery(ending.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    in_thread(end_there, &ending);
    EXPECT(ending.result, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_TRUE(ending.graph == NULL);
    EXPECT(try_end_capture(ending.stream), CUDA_ERROR_ILLEGAL_STATE);
}

CASE(capture_relaxed_ends_in_another_thread)
{
    struct ending ending = {.stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED)};
    in_thread(end_there, &ending);
    disown(OWN_CAPTURE, (uintptr_t)ending.stream);
    EXPECT_OK(ending.result);
    EXPECT_OK(cu->cuGraphDestroy(ending.graph));
}

CASE(capture_with_unjoined_work_refused)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL),
             side = take_stream(CU_STREAM_NON_BLOCKING);
    touch(0, 1, stream);
    EXPECT_OK(cu->cuStreamWaitEvent(side, captured_event(stream), 0));
    touch(1, 2, side);
    EXPECT(try_end_capture(stream), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_U64(capture_status(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

CASE(capture_with_work_behind_the_join_refused)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL),
             side = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cu->cuStreamWaitEvent(side, captured_event(stream), 0));
    touch(0, 1, side);
    EXPECT_OK(cu->cuStreamWaitEvent(stream, captured_event(side), 0));
    touch(1, 2, side);
    EXPECT(try_end_capture(stream), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

CASE(capture_that_is_invalid_takes_nothing)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUevent event = captured_event(stream);
    EXPECT(cu->cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(try_touch(0, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cu->cuMemsetD8Async(scratch(), 1, 4, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cu->cuEventRecord(event, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_INVALID(cu->cuStreamWaitEvent(take_stream(CU_STREAM_NON_BLOCKING), event, 0));
    expect_spoilt(stream);
}

CASE(capture_stream_destroyed_succeeds)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    disown(OWN_CAPTURE, (uintptr_t)stream);
    disown(OWN_STREAM, (uintptr_t)stream);
    EXPECT_OK(cu->cuStreamDestroy(stream));
}

/* ---- waits and questions */

CASE(capture_stream_synchronize_refused)
{
    for (size_t i = 0; i < MODES; i++) {
        CUstream stream = capturing(modes[i]);
        touch(0, 1, stream);
        EXPECT(cu->cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_spoilt(stream);
    }
}

CASE(capture_stream_query_refused)
{
    for (size_t i = 0; i < MODES; i++) {
        CUstream stream = capturing(modes[i]);
        EXPECT(cu->cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_spoilt(stream);
    }
}

CASE(capture_context_synchronize_refused)
{
    for (size_t i = 0; i < MODES; i++) {
        CUstream stream = capturing(modes[i]);
        EXPECT(cu->cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_spoilt(stream);
    }
}

CASE(capture_event_query_refused)
{
    for (size_t i = 0; i < MODES; i++) {
        CUstream stream = capturing(modes[i]);
        EXPECT(cu->cuEventQuery(captured_event(stream)), CUDA_ERROR_CAPTURED_EVENT);
        expect_spoilt(stream);
    }
}

CASE(capture_event_synchronize_refused)
{
    for (size_t i = 0; i < MODES; i++) {
        CUstream stream = capturing(modes[i]);
        EXPECT(cu->cuEventSynchronize(captured_event(stream)), CUDA_ERROR_CAPTURED_EVENT);
        expect_spoilt(stream);
    }
}

/* To ask is refused, and the capture goes on. */
CASE(capture_event_tells_no_time)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUevent first = captured_event(stream), second = captured_event(stream);
    float ms;
    EXPECT(cu->cuEventElapsedTime(&ms, first, second), CUDA_ERROR_CAPTURED_EVENT);
    expect_intact(stream);
}

CASE(capture_event_outlives_the_capture)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUevent event = captured_event(stream);
    end_capture(stream);
    EXPECT_INVALID(cu->cuEventQuery(event));
    EXPECT_INVALID(cu->cuStreamWaitEvent(stream, event, 0));
    EXPECT_INVALID(cu->cuEventSynchronize(event));
    EXPECT_OK(cu->cuEventRecord(event, stream));
    EXPECT_OK(cu->cuEventSynchronize(event));
    EXPECT_OK(cu->cuEventQuery(event));
}

CASE(capture_event_of_an_ended_capture_tells_no_time)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUevent first = captured_event(stream), second = captured_event(stream);
    float ms;
    end_capture(stream);
    EXPECT_INVALID(cu->cuEventElapsedTime(&ms, first, second));
}

/* Outside of a capture this is an error and no more. */
CASE(capture_event_of_an_ended_capture_in_the_next_one)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUevent event = captured_event(stream);
    end_capture(stream);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_INVALID(cu->cuStreamWaitEvent(stream, event, 0));
    expect_spoilt(stream);
}

CASE(capture_event_of_an_invalid_capture)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUevent event = captured_event(stream);
    EXPECT(cu->cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_INVALID(cu->cuEventQuery(event));
    EXPECT(cu->cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_spoilt(stream);
}

CASE(capture_event_of_an_invalid_capture_in_another_one)
{
    CUstream first = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstream second = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUevent event = captured_event(first);
    EXPECT(cu->cuStreamQuery(first), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_INVALID(cu->cuStreamWaitEvent(second, event, 0));
    expect_spoilt(second);
    expect_spoilt(first);
}

/* ---- calls that a mode forbids */

struct unsafe {
    CUstreamCaptureMode mode; /* of the thread that calls */
    CUstream other;           /* that is not captured */
    CUevent event;            /* recorded there */
    CUevent unrecorded;
    CUgraph graph;
    CUgraphExec exec; /* NULL: the call has destroyed it */
    CUgraphExec made; /* by the call; NULL: nothing */
    void (*call)(struct unsafe *unsafe);
    CUresult result;
};

static void call_alloc(struct unsafe *unsafe)
{
    CUdeviceptr at = 0;
    unsafe->result = cu->cuMemAlloc(&at, 4096);
    if (unsafe->result == CUDA_SUCCESS)
        unsafe->result = cu->cuMemFree(at);
}

static void call_host_alloc(struct unsafe *unsafe)
{
    void *at = NULL;
    unsafe->result = cu->cuMemHostAlloc(&at, 4096, 0);
    if (unsafe->result == CUDA_SUCCESS)
        unsafe->result = cu->cuMemFreeHost(at);
}

static void call_load(struct unsafe *unsafe)
{
    CUmodule module = NULL;
    unsafe->result = cu->cuModuleLoadData(&module, conform_image);
    if (unsafe->result == CUDA_SUCCESS)
        unsafe->result = cu->cuModuleUnload(module);
}

static void call_synchronize(struct unsafe *unsafe)
{
    unsafe->result = cu->cuStreamSynchronize(unsafe->other);
}

static void call_query(struct unsafe *unsafe)
{
    unsafe->result = cu->cuStreamQuery(unsafe->other);
}

static void call_event_query(struct unsafe *unsafe)
{
    unsafe->result = cu->cuEventQuery(unsafe->event);
}

static void call_unrecorded_query(struct unsafe *unsafe)
{
    unsafe->result = cu->cuEventQuery(unsafe->unrecorded);
}

static void call_unrecorded_synchronize(struct unsafe *unsafe)
{
    unsafe->result = cu->cuEventSynchronize(unsafe->unrecorded);
}

static void call_instantiate(struct unsafe *unsafe)
{
    unsafe->result = cu->cuGraphInstantiate(&unsafe->made, unsafe->graph, 0);
}

static void call_in_mode(void *arg)
{
    struct unsafe *unsafe = arg;
    CUstreamCaptureMode mode = unsafe->mode;
    unsafe->result = cu->cuCtxSetCurrent(machine.context);
    if (unsafe->result == CUDA_SUCCESS)
        unsafe->result = cu->cuThreadExchangeStreamCaptureMode(&mode);
    if (unsafe->result != CUDA_SUCCESS)
        return;
    unsafe->call(unsafe);
    (void)cu->cuThreadExchangeStreamCaptureMode(&mode);
}

/* What the calls need is made before the capture begins. */
static struct unsafe take_unsafe(void (*call)(struct unsafe *unsafe), CUstreamCaptureMode thread)
{
    struct unsafe unsafe = {.mode = thread, .call = call};
    unsafe.other = take_stream(CU_STREAM_NON_BLOCKING);
    unsafe.event = take_event(CU_EVENT_DISABLE_TIMING);
    unsafe.unrecorded = take_event(CU_EVENT_DISABLE_TIMING);
    unsafe.graph = take_graph();
    unsafe.exec = take_exec(unsafe.graph);
    REQUIRE_OK(cu->cuEventRecord(unsafe.event, unsafe.other));
    REQUIRE_OK(cu->cuEventSynchronize(unsafe.event));
    return unsafe;
}

/* The call, in the thread that captures or in another, is refused and spoils the capture, or does neither. */
static void expect_unsafe(void (*call)(struct unsafe *unsafe), CUstreamCaptureMode capture,
                          CUstreamCaptureMode thread, bool elsewhere, bool refused)
{
    struct unsafe unsafe = take_unsafe(call, thread);
    const CUgraphExec exec = unsafe.exec;
    CUstream stream = capturing(capture);
    if (elsewhere)
        in_thread(call_in_mode, &unsafe);
    else
        call_in_mode(&unsafe);
    if (!unsafe.exec)
        disown(OWN_EXEC, (uintptr_t)exec);
    if (unsafe.made)
        own(OWN_EXEC, (uintptr_t)unsafe.made, 0);
    if (refused) {
        EXPECT(unsafe.result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_spoilt(stream);
    } else {
        EXPECT_OK(unsafe.result);
        expect_intact(stream);
    }
}

#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

CASE(capture_global_forbids_allocating)
{
    expect_unsafe(call_alloc, GLOBAL, GLOBAL, false, true);
}

CASE(capture_global_forbids_allocating_to_other_threads)
{
    expect_unsafe(call_alloc, GLOBAL, GLOBAL, true, true);
}

CASE(capture_thread_local_forbids_allocating)
{
    expect_unsafe(call_alloc, LOCAL, GLOBAL, false, true);
    expect_unsafe(call_alloc, LOCAL, LOCAL, false, true);
}

CASE(capture_thread_local_lets_other_threads_allocate)
{
    expect_unsafe(call_alloc, LOCAL, GLOBAL, true, false);
}

CASE(capture_relaxed_forbids_nothing)
{
    expect_unsafe(call_alloc, RELAXED, GLOBAL, false, false);
    expect_unsafe(call_alloc, RELAXED, GLOBAL, true, false);
}

CASE(capture_leaves_thread_local_threads_alone)
{
    expect_unsafe(call_alloc, GLOBAL, LOCAL, true, false);
    expect_unsafe(call_alloc, GLOBAL, LOCAL, false, true);
}

CASE(capture_leaves_relaxed_threads_alone)
{
    static void (*const calls[])(struct unsafe *) = {
        call_alloc, call_host_alloc, call_load, call_synchronize, call_query, call_event_query};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        expect_unsafe(calls[i], GLOBAL, RELAXED, false, false);
        expect_unsafe(calls[i], GLOBAL, RELAXED, true, false);
    }
}

CASE(capture_global_forbids_waiting_for_other_streams)
{
    expect_unsafe(call_synchronize, GLOBAL, GLOBAL, true, true);
    expect_unsafe(call_query, GLOBAL, GLOBAL, true, true);
    expect_unsafe(call_synchronize, LOCAL, GLOBAL, true, false);
    expect_unsafe(call_query, LOCAL, GLOBAL, true, false);
}

/* What PyTorch's watchdog of collectives met, before it relaxed its mode. */
CASE(capture_global_forbids_asking_for_events)
{
    expect_unsafe(call_event_query, GLOBAL, GLOBAL, true, true);
    expect_unsafe(call_event_query, GLOBAL, LOCAL, true, false);
}

/* Outside of captures such an event is done. */
CASE(capture_forbids_asking_for_unrecorded_events)
{
    expect_unsafe(call_unrecorded_query, GLOBAL, GLOBAL, false, true);
    expect_unsafe(call_unrecorded_synchronize, GLOBAL, GLOBAL, false, true);
    expect_unsafe(call_unrecorded_query, GLOBAL, GLOBAL, true, true);
    expect_unsafe(call_unrecorded_query, LOCAL, GLOBAL, false, true);
    expect_unsafe(call_unrecorded_query, LOCAL, GLOBAL, true, false);
    expect_unsafe(call_unrecorded_query, RELAXED, GLOBAL, false, false);
}

CASE(capture_global_forbids_instantiating)
{
    expect_unsafe(call_instantiate, GLOBAL, GLOBAL, false, true);
    expect_unsafe(call_instantiate, GLOBAL, GLOBAL, true, true);
    expect_unsafe(call_instantiate, GLOBAL, LOCAL, true, false);
    expect_unsafe(call_instantiate, GLOBAL, RELAXED, false, false);
}

CASE(capture_thread_local_forbids_instantiating)
{
    expect_unsafe(call_instantiate, LOCAL, GLOBAL, false, true);
    expect_unsafe(call_instantiate, LOCAL, GLOBAL, true, false);
    expect_unsafe(call_instantiate, RELAXED, GLOBAL, false, false);
}

static void call_graph_create(struct unsafe *unsafe)
{
    CUgraph graph = NULL;
    unsafe->result = cu->cuGraphCreate(&graph, 0);
    if (unsafe->result == CUDA_SUCCESS)
        unsafe->result = cu->cuGraphDestroy(graph);
}

static void call_graph_add(struct unsafe *unsafe)
{
    CUgraphNode node = NULL;
    unsafe->result = cu->cuGraphAddEmptyNode(&node, unsafe->graph, NULL, 0);
}

static void call_graph_update(struct unsafe *unsafe)
{
    CUgraphExecUpdateResultInfo info;
    unsafe->result = cu->cuGraphExecUpdate(unsafe->exec, unsafe->graph, &info);
}

static void call_graph_upload(struct unsafe *unsafe)
{
    unsafe->result = cu->cuGraphUpload(unsafe->exec, unsafe->other);
}

static void call_graph_launch(struct unsafe *unsafe)
{
    unsafe->result = cu->cuGraphLaunch(unsafe->exec, unsafe->other);
}

static void call_exec_destroy(struct unsafe *unsafe)
{
    unsafe->result = cu->cuGraphExecDestroy(unsafe->exec);
    if (unsafe->result == CUDA_SUCCESS)
        unsafe->exec = NULL;
}

CASE(capture_global_lets_other_graphs_be_built_and_launched)
{
    static void (*const calls[])(struct unsafe *) = {
        call_graph_create, call_graph_add, call_graph_update, call_graph_upload, call_graph_launch};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        expect_unsafe(calls[i], GLOBAL, GLOBAL, false, false);
}

/* What was not destroyed is still there, and the end of the case destroys it. */
CASE(capture_global_forbids_destroying_executable_graphs)
{
    expect_unsafe(call_exec_destroy, GLOBAL, GLOBAL, false, true);
    expect_unsafe(call_exec_destroy, GLOBAL, LOCAL, true, false);
    expect_unsafe(call_exec_destroy, GLOBAL, RELAXED, false, false);
    expect_unsafe(call_exec_destroy, LOCAL, GLOBAL, true, false);
    expect_unsafe(call_exec_destroy, RELAXED, GLOBAL, false, false);
}

CASE(capture_global_forbids_pinned_memory_and_modules)
{
    expect_unsafe(call_host_alloc, GLOBAL, GLOBAL, false, true);
    expect_unsafe(call_load, GLOBAL, GLOBAL, false, true);
}

/* It is not one of the calls that a mode forbids. */
CASE(capture_global_lets_virtual_memory_be_created)
{
    const CUmemAllocationProp prop = device_prop();
    CUmemGenericAllocationHandle handle = 0;
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    REQUIRE_OK(cu->cuMemCreate(&handle, machine.granule, &prop, 0));
    expect_intact(stream);
    EXPECT_OK(cu->cuMemRelease(handle));
}

/* A real driver makes nodes of them; the software GPU does not. */
CASE(capture_of_stream_ordered_memory_observed)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUdeviceptr at = 0;
    CUresult result = cu->cuMemAllocAsync(&at, 4096, stream);
    EXPECT_ANY(result, CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (result == CUDA_SUCCESS)
        EXPECT_OK(cu->cuMemFreeAsync(at, stream));
    EXPECT_ANY(try_end_capture(stream), CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* A graph that is launched is no node of another. */
CASE(capture_of_a_graph_launch_refused)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraphExec empty, touching;
    touch(0, 1, stream);
    touching = take_exec(end_capture(stream));
    empty = take_exec(take_graph());
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cu->cuGraphLaunch(empty, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_spoilt(stream);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cu->cuGraphLaunch(touching, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_spoilt(stream);
}

/* ---- the legacy stream */

static CUstream capturing_blocking(void)
{
    CUstream stream = take_stream(CU_STREAM_DEFAULT);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    return stream;
}

CASE(capture_of_blocking_stream_refuses_legacy_kernels)
{
    CUstream stream = capturing_blocking();
    EXPECT(try_touch(0, 1, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_spoilt(stream);
    EXPECT_U64(read_word(scratch()), 0);
}

CASE(capture_of_blocking_stream_refuses_copies_without_stream)
{
    uint32_t word = 1;
    CUstream stream = capturing_blocking();
    EXPECT(cu->cuMemcpyHtoD(scratch(), &word, sizeof word), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_spoilt(stream);
    stream = capturing_blocking();
    EXPECT(cu->cuMemsetD8(scratch(), 1, 4), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_spoilt(stream);
}

CASE(capture_of_blocking_stream_refuses_legacy_events)
{
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    CUstream stream = capturing_blocking();
    EXPECT(cu->cuEventRecord(event, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_spoilt(stream);
}

CASE(capture_of_blocking_stream_is_no_status_of_the_legacy_one)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUstream stream = capturing_blocking();
    EXPECT(cu->cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT(cu->cuStreamGetCaptureInfo(CU_STREAM_LEGACY, &status, &id, NULL, NULL, NULL, NULL),
           CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_intact(stream);
}

CASE(capture_of_non_blocking_stream_lets_the_legacy_one_run)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_U64(capture_status(NULL), CU_STREAM_CAPTURE_STATUS_NONE);
    touch(0, 12, NULL);
    expect_intact(stream);
    EXPECT_U64(read_word(scratch()), 12);
}

CASE(capture_cannot_fork_to_the_legacy_stream)
{
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cu->cuStreamWaitEvent(NULL, captured_event(stream), 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT(try_end_capture(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* ---- events across the boundary */

CASE(capture_that_waits_for_work_outside_refused)
{
    CUstream outside = take_stream(CU_STREAM_NON_BLOCKING), stream;
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    touch(0, 1, outside);
    REQUIRE_OK(cu->cuEventRecord(event, outside));
    stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cu->cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    expect_spoilt(stream);
}

CASE(capture_that_waits_for_unrecorded_event_passes)
{
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu->cuStreamWaitEvent(stream, event, 0));
    expect_intact(stream);
}

CASE(capture_that_waits_for_another_capture_refused)
{
    CUstream first = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstream second = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cu->cuStreamWaitEvent(second, captured_event(first), 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    EXPECT(try_end_capture(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(try_end_capture(second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
