/* Cases: captures that go well. Goal: what is submitted to a captured stream runs when the graph is launched, as often as
 * that is, in the order in which the streams would have run it.
 */
#include <string.h>

#include "tests/conform/graphs.h"

CASE(capture_runs_nothing_until_launched)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec exec;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(0, 7, stream);
    exec = take_exec(end_capture(stream));
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(read_word(scratch()), 0);
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 7);
    write_word(scratch(), 0);
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 7);
}

CASE(capture_status_follows_the_capture)
{
    CUstream stream = take_stream(CU_STREAM_DEFAULT), other = take_stream(CU_STREAM_DEFAULT);
    EXPECT_U64(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_U64(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_U64(capture_status(other), CU_STREAM_CAPTURE_STATUS_NONE);
    end_capture(stream);
    EXPECT_U64(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_INVALID(cu->cuStreamIsCapturing(stream, NULL));
}

static cuuint64_t capture_number(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    REQUIRE_OK(cu->cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL));
    REQUIRE_U64(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    return id;
}

CASE(capture_number_is_its_own)
{
    CUstream first = take_stream(CU_STREAM_NON_BLOCKING), second = take_stream(CU_STREAM_NON_BLOCKING);
    cuuint64_t one, two;
    take_capture(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
    take_capture(second, CU_STREAM_CAPTURE_MODE_GLOBAL);
    one = capture_number(first);
    two = capture_number(second);
    EXPECT_TRUE(one != two);
    end_capture(first);
    end_capture(second);
    take_capture(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_TRUE(capture_number(first) != one && capture_number(first) != two);
}

CASE(capture_info_gives_graph_and_nodes)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureStatus status = -1;
    CUgraphNodeType type = -1;
    const CUgraphNode *deps = NULL;
    CUgraph graph = NULL;
    size_t count = 9;
    EXPECT_OK(cu->cuStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, NULL));
    EXPECT_U64(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_INVALID(cu->cuStreamGetCaptureInfo(stream, NULL, NULL, NULL, NULL, NULL, NULL));
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu->cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &deps, NULL, &count));
    EXPECT_U64(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_U64(count, 0);
    EXPECT_U64(node_count(graph), 0);
    touch(0, 1, stream);
    EXPECT_OK(cu->cuMemsetD8Async(scratch(), 0, 64, stream));
    EXPECT_OK(cu->cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &deps, NULL, &count));
    REQUIRE_U64(count, 1);
    EXPECT_OK(cu->cuGraphNodeGetType(deps[0], &type));
    EXPECT_U64(type, CU_GRAPH_NODE_TYPE_MEMSET);
    EXPECT_U64(node_count(graph), 2);
    EXPECT_TRUE(end_capture(stream) == graph);
}

CASE(capture_of_nothing_gives_an_empty_graph)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    graph = end_capture(stream);
    EXPECT_U64(node_count(graph), 0);
    EXPECT_U64(edge_count(graph), 0);
    run_graph(take_exec(graph), stream);
}

CASE(capture_of_the_per_thread_stream_works)
{
    CUgraphExec exec;
    take_capture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(0, 8, CU_STREAM_PER_THREAD);
    exec = take_exec(end_capture(CU_STREAM_PER_THREAD));
    run_graph(exec, CU_STREAM_PER_THREAD);
    EXPECT_U64(read_word(scratch()), 8);
}

CASE(capture_in_order_keeps_order)
{
    enum { STEPS = 100 };
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (uint32_t i = 1; i <= STEPS; i++)
        touch(0, i, stream);
    graph = end_capture(stream);
    EXPECT_U64(node_count(graph), STEPS);
    EXPECT_U64(edge_count(graph), STEPS - 1);
    run_graph(take_exec(graph), stream);
    EXPECT_U64(read_word(scratch()), STEPS);
}

CASE(capture_of_copies_and_sets_repeats_them)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *from = take_host(4096), *to = take_host(4096);
    CUdeviceptr first = scratch(), second = scratch() + 4096;
    CUgraphExec exec;
    CUgraph graph;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu->cuMemcpyHtoDAsync(first, from, 4096, stream));
    EXPECT_OK(cu->cuMemcpyDtoDAsync(second, first, 4096, stream));
    EXPECT_OK(cu->cuMemsetD32Async(second, 5, 1, stream));
    EXPECT_OK(cu->cuMemcpyDtoHAsync(to, second, 4096, stream));
    graph = end_capture(stream);
    REQUIRE_U64(node_count(graph), 4);
    EXPECT_U64(node_type(graph, 0), CU_GRAPH_NODE_TYPE_MEMCPY);
    EXPECT_U64(node_type(graph, 2), CU_GRAPH_NODE_TYPE_MEMSET);
    exec = take_exec(graph);
    for (unsigned round = 0; round < 3; round++) {
        pattern_write(from, 4096, round);
        run_graph(exec, stream);
        EXPECT_U64(to[0], 5);
        EXPECT_TRUE(memcmp(from + 1, to + 1, 4092) == 0);
    }
}

/* Outside of a capture the source would have been read when the call returned. */
CASE(capture_of_pageable_copies_moves_at_launch)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    static uint32_t from[1024], to[1024];
    CUgraphExec exec;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu->cuMemcpyHtoDAsync(scratch(), from, sizeof from, stream));
    EXPECT_OK(cu->cuMemcpyDtoHAsync(to, scratch(), sizeof to, stream));
    exec = take_exec(end_capture(stream));
    for (unsigned round = 1; round < 4; round++) {
        pattern_write(from, sizeof from, round);
        run_graph(exec, stream);
        EXPECT_TRUE(pattern_holds(to, sizeof to, round));
    }
}

CASE(capture_takes_kernel_parameters_by_value)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    conform_touch params = {scratch(), 41, 0};
    CUgraphExec exec;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch("touch", 1, &params, stream);
    params = (conform_touch){0, 0, 0};
    exec = take_exec(end_capture(stream));
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 41);
}

static void count_call(void *arg)
{
    __atomic_add_fetch((uint32_t *)arg, 1, __ATOMIC_RELEASE);
}

CASE(capture_of_host_function_calls_it_at_each_launch)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    static uint32_t calls;
    CUgraphExec exec;
    CUgraph graph;
    calls = 0;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu->cuLaunchHostFunc(stream, count_call, &calls));
    graph = end_capture(stream);
    EXPECT_U64(node_type(graph, 0), CU_GRAPH_NODE_TYPE_HOST);
    exec = take_exec(graph);
    EXPECT_U64(calls, 0);
    for (int i = 0; i < 3; i++)
        run_graph(exec, stream);
    EXPECT_U64(calls, 3);
}

CASE(capture_of_stream_values_writes_at_launch)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu->cuStreamWriteValue32(stream, scratch(), 17, CU_STREAM_WRITE_VALUE_DEFAULT));
    EXPECT_OK(cu->cuStreamWaitValue32(stream, scratch(), 17, CU_STREAM_WAIT_VALUE_EQ));
    graph = end_capture(stream);
    EXPECT_U64(node_type(graph, 0), CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    EXPECT_U64(read_word(scratch()), 0);
    run_graph(take_exec(graph), stream);
    EXPECT_U64(read_word(scratch()), 17);
}

/* What the stream held before is no part of it. */
CASE(capture_leaves_earlier_work_running)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *gate = take_host(64);
    CUgraph graph;
    *gate = 0;
    EXPECT_OK(cu->cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    touch(0, 3, stream);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(1, 4, stream);
    graph = end_capture(stream);
    EXPECT_U64(node_count(graph), 1);
    EXPECT(cu->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch()), 3);
    EXPECT_U64(read_word(scratch_word(1)), 0);
}

/* ---- several streams */

/* Another stream joins the capture of the first. */
static void fork_capture(CUstream from, CUstream to)
{
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    REQUIRE_OK(cu->cuEventRecord(event, from));
    REQUIRE_OK(cu->cuStreamWaitEvent(to, event, 0));
}

CASE(capture_fork_and_join_by_events)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), side = take_stream(CU_STREAM_NON_BLOCKING);
    conform_range sum = {scratch(), scratch() + 64, 3};
    CUgraphNode from[8], to[8];
    CUgraphEdgeData data[8];
    size_t count = 8;
    CUgraph graph;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(0, 1, stream);
    fork_capture(stream, side);
    EXPECT_U64(capture_status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_U64(capture_number(side), capture_number(stream));
    touch(1, 20, side);
    touch(2, 300, stream);
    fork_capture(side, stream);
    launch("sum", 1, &sum, stream);
    graph = end_capture(stream);
    EXPECT_U64(capture_status(side), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_U64(node_count(graph), 4);
    EXPECT_OK(cu->cuGraphGetEdges(graph, from, to, data, &count));
    EXPECT_U64(count, 4);
    EXPECT_TRUE(from[0] == from[1] && to[2] == to[3]);
    EXPECT_U64(data[0].type, 0);
    run_graph(take_exec(graph), stream);
    EXPECT_U64(read_word(scratch() + 64), 321);
}

/* The side stream's work comes behind the first stream's work before the fork, and no later one. */
CASE(capture_fork_orders_what_it_says)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), side = take_stream(CU_STREAM_NON_BLOCKING);
    conform_range peek = {scratch(), scratch_word(1), 1};
    CUgraphExec exec;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(0, 6, stream);
    fork_capture(stream, side);
    launch("peek", 1, &peek, side);
    fork_capture(side, stream);
    touch(0, 9, stream); /* behind the look */
    exec = take_exec(end_capture(stream));
    for (int i = 0; i < 20; i++) {
        run_graph(exec, stream);
        EXPECT_U64(read_word(scratch_word(1)), 6);
        EXPECT_U64(read_word(scratch()), 9);
    }
}

CASE(capture_fork_without_work_needs_no_join)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), side = take_stream(CU_STREAM_NON_BLOCKING);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(0, 1, stream);
    fork_capture(stream, side);
    touch(1, 2, stream);
    EXPECT_U64(node_count(end_capture(stream)), 2);
    EXPECT_U64(capture_status(side), CU_STREAM_CAPTURE_STATUS_NONE);
    touch(2, 3, side);
    EXPECT_OK(cu->cuStreamSynchronize(side));
    EXPECT_U64(read_word(scratch_word(2)), 3);
}

CASE(capture_fork_of_a_fork_joins)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), side = take_stream(CU_STREAM_NON_BLOCKING);
    CUstream far = take_stream(CU_STREAM_NON_BLOCKING);
    conform_count count = {scratch(), 0};
    uint64_t *total = take_host(64);
    CUgraphExec exec;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    fork_capture(stream, side);
    fork_capture(side, far);
    for (int i = 0; i < 3; i++) {
        launch("count", 1, &count, stream);
        launch("count", 1, &count, side);
        launch("count", 1, &count, far);
    }
    fork_capture(far, stream);
    fork_capture(side, stream);
    EXPECT_OK(cu->cuMemcpyDtoHAsync(total, scratch(), sizeof *total, stream));
    exec = take_exec(end_capture(stream));
    run_graph(exec, stream);
    EXPECT_U64(*total, 9ull * machine.block_threads);
}

CASE(capture_waits_for_its_own_event)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(0, 1, stream);
    fork_capture(stream, stream);
    touch(0, 2, stream);
    graph = end_capture(stream);
    EXPECT_U64(node_count(graph), 2);
    EXPECT_U64(edge_count(graph), 1);
}

/* No graph is instantiated before both have ended: see capture_global_forbids_instantiating. */
CASE(capture_of_two_streams_at_once_gives_two_graphs)
{
    CUstream first = take_stream(CU_STREAM_NON_BLOCKING), second = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graphs[2];
    CUgraphExec one, two;
    take_capture(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
    take_capture(second, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(0, 1, first);
    touch(1, 2, second);
    graphs[0] = end_capture(first);
    graphs[1] = end_capture(second);
    one = take_exec(graphs[0]);
    two = take_exec(graphs[1]);
    run_graph(two, first);
    EXPECT_U64(read_word(scratch()), 0);
    EXPECT_U64(read_word(scratch_word(1)), 2);
    run_graph(one, second);
    EXPECT_U64(read_word(scratch()), 1);
}

CASE(capture_forks_to_another_device)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), there;
    conform_touch params = {0, 23, 0};
    CUevent event;
    CUgraphExec exec;
    use_device(1);
    there = take_stream(CU_STREAM_NON_BLOCKING);
    event = take_event(CU_EVENT_DISABLE_TIMING);
    params.address = scratch();
    write_word(scratch(), 0);
    use_device(0);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(0, 22, stream);
    fork_capture(stream, there);
    use_device(1);
    launch("touch", 1, &params, there);
    REQUIRE_OK(cu->cuEventRecord(event, there));
    use_device(0);
    REQUIRE_OK(cu->cuStreamWaitEvent(stream, event, 0));
    exec = take_exec(end_capture(stream));
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 22);
    use_device(1);
    EXPECT_U64(read_word(scratch()), 23);
}

/* ---- external events: nodes that record and wait when the graph runs */

CASE(capture_records_external_event_at_launch)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    CUgraph graph;
    EXPECT(cu->cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL),
           CUDA_ERROR_ILLEGAL_STATE);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(0, 1, stream);
    EXPECT_OK(cu->cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    graph = end_capture(stream);
    EXPECT_U64(node_type(graph, 1), CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    EXPECT_OK(cu->cuEventQuery(event)); /* not recorded yet */
    EXPECT_OK(cu->cuGraphLaunch(take_exec(graph), stream));
    EXPECT_OK(cu->cuEventSynchronize(event));
    EXPECT_U64(read_word(scratch()), 1);
}

CASE(capture_alone_waits_for_external_events)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    EXPECT(cu->cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_ILLEGAL_STATE);
}

CASE(capture_waits_for_external_event_at_launch)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), busy = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    CUgraph graph;
    CUgraphExec exec;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu->cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    touch(0, 5, stream);
    graph = end_capture(stream);
    EXPECT_U64(node_type(graph, 0), CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    exec = take_exec(graph);
    serve_start(busy);
    EXPECT_OK(cu->cuEventRecord(event, busy));
    EXPECT_OK(cu->cuGraphLaunch(exec, stream));
    EXPECT_TRUE(stays_busy(stream));
    EXPECT_U64(serve_read(scratch()), 0);
    serve_stop();
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_U64(read_word(scratch()), 5);
}
