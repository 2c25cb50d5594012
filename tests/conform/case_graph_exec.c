/* Cases: executable graphs. Goal: a launch is one piece of work in its stream, launches of one executable graph follow each
 * other, what does not wait for each other runs at once, and what was changed counts from the next launch on.
 */
#include <string.h>

#include "tests/conform/graphs.h"

static uint64_t read_long(CUdeviceptr at)
{
    uint64_t value = 0;
    REQUIRE_OK(cu->cuMemcpyDtoH(&value, at, sizeof value));
    return value;
}

/* An executable graph of one node that was captured, and the graph. */
static CUgraphExec touching(unsigned index, uint32_t value, CUgraph *graph)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(index, value, stream);
    *graph = end_capture(stream);
    return take_exec(*graph);
}

static CUgraphNode only_node(CUgraph graph)
{
    CUgraphNode node = NULL;
    size_t count = 1;
    REQUIRE_OK(cu->cuGraphGetNodes(graph, &node, &count));
    return node;
}

/* ---- order */

CASE(exec_launched_many_times_runs_as_often)
{
    enum { LAUNCHES = 200 };
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    conform_count count = {scratch(), 0};
    CUgraphExec exec;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch("count", 3, &count, stream);
    launch("count", 2, &count, stream);
    exec = take_exec(end_capture(stream));
    for (int i = 0; i < LAUNCHES; i++)
        EXPECT_OK(cu->cuGraphLaunch(exec, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_long(scratch()), 5ull * LAUNCHES * machine.block_threads);
}

CASE(exec_waits_for_its_stream)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUgraphExec exec = touching(0, 5, &graph);
    serve_start(stream);
    EXPECT_OK(cu->cuGraphLaunch(exec, stream));
    EXPECT_TRUE(stays_busy(stream));
    EXPECT_U64(serve_read(scratch()), 0);
    serve_stop();
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch()), 5);
}

struct gate {
    uint32_t open, reached;
};

static void pass_gate(void *arg)
{
    struct gate *gate = arg;
    uint64_t end = now_ms() + CONFORM_SOON_MS;
    __atomic_add_fetch(&gate->reached, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&gate->open, __ATOMIC_ACQUIRE) && now_ms() < end)
        pause_ms(1);
}

/* An executable graph that waits for the gate, then writes 1 to word 0. */
static CUgraphExec gated(struct gate *gate)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    memset(gate, 0, sizeof *gate);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    REQUIRE_OK(cu->cuLaunchHostFunc(stream, pass_gate, gate));
    touch(0, 1, stream);
    return take_exec(end_capture(stream));
}

CASE(exec_holds_up_what_is_behind_it)
{
    static struct gate gate;
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), other = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec exec = gated(&gate);
    EXPECT_OK(cu->cuGraphLaunch(exec, stream));
    touch(0, 2, stream);
    touch(1, 3, other);
    EXPECT_TRUE(ends_soon(other));
    EXPECT_TRUE(stays_busy(stream));
    __atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch()), 2);
}

CASE(exec_launches_follow_each_other_in_any_streams)
{
    static struct gate gate;
    CUstream first = take_stream(CU_STREAM_NON_BLOCKING), second = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec exec = gated(&gate);
    EXPECT_OK(cu->cuGraphLaunch(exec, first));
    EXPECT_OK(cu->cuGraphLaunch(exec, second));
    EXPECT_TRUE(stays_busy(second));
    EXPECT_TRUE(__atomic_load_n(&gate.reached, __ATOMIC_ACQUIRE) <= 1);
    __atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
    EXPECT_OK(cu->cuStreamSynchronize(second));
    EXPECT_U64(gate.reached, 2);
}

CASE(exec_in_the_legacy_stream_waits_for_blocking_ones)
{
    CUstream busy = take_stream(CU_STREAM_DEFAULT);
    CUgraph graph;
    CUgraphExec exec = touching(0, 8, &graph);
    serve_start(busy);
    EXPECT_OK(cu->cuGraphLaunch(exec, NULL));
    EXPECT_TRUE(stays_busy(NULL));
    serve_stop();
    EXPECT_OK(cu->cuStreamSynchronize(NULL));
    EXPECT_U64(read_word(scratch()), 8);
}

CASE(exec_is_waited_for_by_events)
{
    static struct gate gate;
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    CUgraphExec exec = gated(&gate);
    EXPECT_OK(cu->cuGraphLaunch(exec, stream));
    EXPECT_OK(cu->cuEventRecord(event, stream));
    EXPECT(cu->cuEventQuery(event), CUDA_ERROR_NOT_READY);
    __atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
    EXPECT_OK(cu->cuEventSynchronize(event));
    EXPECT_U64(read_word(scratch()), 1);
}

/* ---- branches */

#define MEET_LIMIT_NS 5000000000ull

CASE(exec_branches_of_kernels_run_at_once)
{
    conform_meet params = {scratch(), scratch() + 8, MEET_LIMIT_NS, 2, 50};
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), side = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_OK(cu->cuEventRecord(event, stream));
    EXPECT_OK(cu->cuStreamWaitEvent(side, event, 0));
    launch("meet", 1, &params, stream);
    launch("meet", 1, &params, side);
    EXPECT_OK(cu->cuEventRecord(event, side));
    EXPECT_OK(cu->cuStreamWaitEvent(stream, event, 0));
    run_graph(take_exec(end_capture(stream)), stream);
    EXPECT_U64(read_long(scratch() + 8), 2);
}

static void meet_on_host(void *arg)
{
    struct gate *gate = arg;
    uint64_t end = now_ms() + CONFORM_SOON_MS;
    __atomic_add_fetch(&gate->reached, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&gate->reached, __ATOMIC_ACQUIRE) < 2 && now_ms() < end)
        pause_ms(1);
    if (__atomic_load_n(&gate->reached, __ATOMIC_ACQUIRE) == 2)
        __atomic_add_fetch(&gate->open, 1, __ATOMIC_RELEASE);
}

/* The manual lets a driver call host functions one after the other, as an H200 does; the software GPU calls both at once. */
CASE(exec_branches_of_host_functions_observed)
{
    static struct gate gate;
    const CUDA_HOST_NODE_PARAMS params = {meet_on_host, &gate};
    CUgraph graph = take_graph();
    CUgraphNode node = NULL;
    memset(&gate, 0, sizeof gate);
    EXPECT_OK(cu->cuGraphAddHostNode(&node, graph, NULL, 0, &params));
    EXPECT_OK(cu->cuGraphAddHostNode(&node, graph, NULL, 0, &params));
    run_graph(take_exec(graph), take_stream(CU_STREAM_NON_BLOCKING));
    EXPECT_U64(gate.reached, 2);
    observe("host functions of two branches %s", gate.open == 2 ? "run at once" : "do not meet");
}

/* ---- life */

CASE(exec_outlives_its_graph)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUgraphExec exec = touching(0, 4, &graph);
    drop(OWN_GRAPH, (uintptr_t)graph);
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 4);
}

CASE(exec_destroyed_while_it_runs_finishes)
{
    static struct gate gate;
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec exec = gated(&gate);
    EXPECT_OK(cu->cuGraphLaunch(exec, stream));
    drop(OWN_EXEC, (uintptr_t)exec);
    __atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch()), 1);
}

CASE(exec_stream_destroyed_after_launch_finishes)
{
    static struct gate gate;
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec exec = gated(&gate);
    EXPECT_OK(cu->cuGraphLaunch(exec, stream));
    drop(OWN_STREAM, (uintptr_t)stream);
    __atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(read_word(scratch()), 1);
}

CASE(exec_is_uploaded_before_launch)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUgraphExec exec = touching(0, 3, &graph);
    EXPECT_OK(cu->cuGraphUpload(exec, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch()), 0);
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 3);
}

CASE(exec_made_with_parameters_tells_the_result)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, stream, NULL, -1};
    CUgraphExec exec = NULL;
    CUgraph graph;
    touching(0, 2, &graph);
    EXPECT_OK(cu->cuGraphInstantiateWithParams(&exec, graph, &params));
    own(OWN_EXEC, (uintptr_t)exec, 0);
    EXPECT_U64(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    EXPECT_TRUE(params.hErrNode_out == NULL);
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 2);
}

CASE(exec_of_nothing_refused)
{
    CUgraphExec exec = NULL;
    EXPECT_INVALID(cu->cuGraphInstantiate(&exec, NULL, 0));
    EXPECT_INVALID(cu->cuGraphInstantiate(NULL, take_graph(), 0));
    EXPECT_INVALID(cu->cuGraphInstantiate(&exec, take_graph(), 1ull << 40));
    EXPECT_INVALID(cu->cuGraphLaunch(NULL, NULL));
    EXPECT_INVALID(cu->cuGraphUpload(NULL, NULL));
    EXPECT_INVALID(cu->cuGraphExecDestroy(NULL));
    EXPECT_TRUE(exec == NULL);
}

CASE(exec_that_faults_breaks_its_context)
{
    CUdeviceptr hole = take_range(machine.granule);
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    conform_touch params = {hole, 1, 0};
    CUgraphExec exec;
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch("touch", 1, &params, stream);
    touch(0, 1, stream);
    exec = take_exec(end_capture(stream));
    EXPECT_OK(cu->cuGraphLaunch(exec, stream));
    EXPECT(cu->cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cu->cuGraphLaunch(exec, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    abandon_all();
}

/* ---- changes */

CASE(exec_kernel_parameters_count_from_the_next_launch)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    conform_touch other = {scratch_word(1), 61, 0};
    void *list[] = {&other};
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraph graph;
    CUgraphExec exec = touching(0, 60, &graph);
    EXPECT_OK(cu->cuGraphKernelNodeGetParams(only_node(graph), &params));
    params.kernelParams = list;
    params.extra = NULL;
    run_graph(exec, stream);
    EXPECT_OK(cu->cuGraphExecKernelNodeSetParams(exec, only_node(graph), &params));
    EXPECT_U64(read_word(scratch_word(1)), 0);
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 60);
    EXPECT_U64(read_word(scratch_word(1)), 61);
    run_graph(take_exec(graph), stream); /* the graph itself is what it was */
    EXPECT_INVALID(cu->cuGraphExecKernelNodeSetParams(exec, only_node(graph), NULL));
}

CASE(exec_set_parameters_count_from_the_next_launch)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    const CUDA_MEMSET_NODE_PARAMS before = {scratch(), 0, 1, 4, 2, 1},
                                  after = {scratch() + 64, 0, 2, 4, 2, 1};
    CUgraph graph = take_graph();
    CUgraphNode node = NULL;
    CUgraphExec exec;
    EXPECT_OK(cu->cuGraphAddMemsetNode(&node, graph, NULL, 0, &before, machine.context));
    exec = take_exec(graph);
    EXPECT_OK(cu->cuGraphExecMemsetNodeSetParams(exec, node, &after, machine.context));
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 0);
    EXPECT_U64(read_word(scratch() + 64), 2);
}

CASE(exec_copy_parameters_count_from_the_next_launch)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = scratch(),
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = scratch() + 64,
        .WidthInBytes = 4,
        .Height = 1,
        .Depth = 1,
    };
    CUgraph graph = take_graph();
    CUgraphNode node = NULL;
    CUgraphExec exec;
    write_word(scratch(), 5);
    write_word(scratch_word(1), 6);
    EXPECT_OK(cu->cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, machine.context));
    exec = take_exec(graph);
    copy.srcDevice = scratch_word(1);
    EXPECT_OK(cu->cuGraphExecMemcpyNodeSetParams(exec, node, &copy, machine.context));
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch() + 64), 6);
}

CASE(exec_is_updated_with_a_graph_of_the_same_shape)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExecUpdateResultInfo info = {-1, NULL, NULL};
    CUgraph graph, other;
    CUgraphExec exec = touching(0, 1, &graph);
    touching(1, 2, &other);
    EXPECT_OK(cu->cuGraphExecUpdate(exec, other, &info));
    EXPECT_U64(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 0);
    EXPECT_U64(read_word(scratch_word(1)), 2);
}

CASE(exec_is_not_updated_with_a_graph_of_another_shape)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExecUpdateResultInfo info = {-1, NULL, NULL};
    CUgraph graph, longer, other = take_graph();
    CUgraphNode node = NULL;
    CUgraphExec exec = touching(0, 1, &graph);
    take_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    touch(1, 2, stream);
    touch(1, 3, stream);
    longer = end_capture(stream);
    EXPECT(cu->cuGraphExecUpdate(exec, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_U64(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    EXPECT_TRUE(info.errorNode == NULL);
    EXPECT_OK(cu->cuGraphAddEmptyNode(&node, other, NULL, 0));
    EXPECT(cu->cuGraphExecUpdate(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_U64(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    EXPECT_TRUE(info.errorNode == node);
    run_graph(exec, stream);
    EXPECT_U64(read_word(scratch()), 1);
    EXPECT_U64(read_word(scratch_word(1)), 0);
}
