/* Cases: graphs that a program builds. Goal: nodes are what they were said to be, come behind what they were said to come
 * behind, and can be listed.
 */
#include <string.h>

#include "tests/conform/graphs.h"

static CUDA_KERNEL_NODE_PARAMS kernel_params(const char *name, unsigned blocks, void **list)
{
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = kernel(name),
        .gridDimX = blocks,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = machine.block_threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = list,
    };
}

static CUgraphNode add_touch(CUgraph graph, const CUgraphNode *deps, size_t count, unsigned index,
                             uint32_t value)
{
    conform_touch params = {scratch_word(index), value, 0};
    void *list[] = {&params};
    CUDA_KERNEL_NODE_PARAMS node = kernel_params("touch", 1, list);
    CUgraphNode added = NULL;
    REQUIRE_OK(cu->cuGraphAddKernelNode(&added, graph, deps, count, &node));
    return added;
}

static CUDA_MEMCPY3D device_copy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .WidthInBytes = size,
        .Height = 1,
        .Depth = 1,
    };
}

CASE(graph_create_bad_arguments_refused)
{
    CUgraph graph = NULL;
    EXPECT_INVALID(cu->cuGraphCreate(NULL, 0));
    EXPECT_INVALID(cu->cuGraphCreate(&graph, 1));
    EXPECT_TRUE(graph == NULL);
}

CASE(graph_of_each_kind_of_node_runs_in_order)
{
    CUgraph graph = take_graph();
    CUgraphNode set = NULL, touched, copy = NULL;
    const CUDA_MEMSET_NODE_PARAMS zero = {scratch(), 0, 9, 4, 4, 1};
    const CUDA_MEMCPY3D move = device_copy(scratch() + 64, scratch(), 16);
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cu->cuGraphAddMemsetNode(&set, graph, NULL, 0, &zero, machine.context));
    touched = add_touch(graph, &set, 1, 1, 77);
    EXPECT_OK(cu->cuGraphAddMemcpyNode(&copy, graph, &touched, 1, &move, machine.context));
    run_graph(take_exec(graph), stream);
    EXPECT_U64(read_word(scratch() + 64), 9);
    EXPECT_U64(read_word(scratch() + 68), 77);
    EXPECT_U64(read_word(scratch() + 72), 9);
}

CASE(graph_lists_its_nodes)
{
    CUgraph graph = take_graph();
    CUgraphNode first = add_touch(graph, NULL, 0, 0, 1), second = add_touch(graph, &first, 1, 0, 2),
                nodes[3];
    size_t count = 1;
    EXPECT_U64(node_count(graph), 2);
    EXPECT_OK(cu->cuGraphGetNodes(graph, nodes, &count));
    EXPECT_U64(count, 1);
    EXPECT_TRUE(nodes[0] == first || nodes[0] == second);
    count = 3;
    EXPECT_OK(cu->cuGraphGetNodes(graph, nodes, &count));
    EXPECT_U64(count, 2);
    EXPECT_TRUE(nodes[0] != nodes[1] && nodes[2] == NULL);
    EXPECT_INVALID(cu->cuGraphGetNodes(graph, nodes, NULL));
    EXPECT_INVALID(cu->cuGraphGetNodes(NULL, nodes, &count));
}

CASE(graph_lists_its_edges)
{
    CUgraph graph = take_graph();
    CUgraphNode nodes[3], from[4], to[4];
    CUgraphEdgeData data[4];
    size_t count = 4;
    nodes[0] = add_touch(graph, NULL, 0, 0, 1);
    nodes[1] = add_touch(graph, nodes, 1, 1, 2);
    nodes[2] = add_touch(graph, nodes, 2, 2, 3);
    EXPECT_U64(edge_count(graph), 3);
    EXPECT_OK(cu->cuGraphGetEdges(graph, from, to, data, &count));
    EXPECT_U64(count, 3);
    for (size_t i = 0; i < 3; i++)
        EXPECT_TRUE((from[i] == nodes[0] && (to[i] == nodes[1] || to[i] == nodes[2])) ||
                    (from[i] == nodes[1] && to[i] == nodes[2]));
    EXPECT_INVALID(cu->cuGraphGetEdges(graph, from, NULL, NULL, &count));
}

static void nothing(void *arg)
{
    (void)arg;
}

CASE(graph_nodes_have_types)
{
    CUgraph graph = take_graph();
    CUevent event = take_event(CU_EVENT_DISABLE_TIMING);
    const CUDA_HOST_NODE_PARAMS host = {nothing, NULL};
    CUgraphNode node = NULL;
    CUgraphNodeType type = -1;
    EXPECT_OK(cu->cuGraphNodeGetType(add_touch(graph, NULL, 0, 0, 1), &type));
    EXPECT_U64(type, CU_GRAPH_NODE_TYPE_KERNEL);
    EXPECT_OK(cu->cuGraphAddHostNode(&node, graph, NULL, 0, &host));
    EXPECT_OK(cu->cuGraphNodeGetType(node, &type));
    EXPECT_U64(type, CU_GRAPH_NODE_TYPE_HOST);
    EXPECT_OK(cu->cuGraphAddEmptyNode(&node, graph, &node, 1));
    EXPECT_OK(cu->cuGraphNodeGetType(node, &type));
    EXPECT_U64(type, CU_GRAPH_NODE_TYPE_EMPTY);
    EXPECT_OK(cu->cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
    EXPECT_OK(cu->cuGraphNodeGetType(node, &type));
    EXPECT_U64(type, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    EXPECT_OK(cu->cuGraphAddEventWaitNode(&node, graph, NULL, 0, event));
    EXPECT_OK(cu->cuGraphNodeGetType(node, &type));
    EXPECT_U64(type, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    EXPECT_INVALID(cu->cuGraphNodeGetType(NULL, &type));
    EXPECT_INVALID(cu->cuGraphNodeGetType(node, NULL));
}

CASE(graph_dependency_outside_of_it_refused)
{
    CUgraph graph = take_graph(), other = take_graph();
    CUgraphNode stranger = add_touch(other, NULL, 0, 0, 1), node = NULL;
    EXPECT_INVALID(cu->cuGraphAddEmptyNode(&node, graph, &stranger, 1));
    EXPECT_INVALID(cu->cuGraphAddEmptyNode(&node, graph, NULL, 1));
    EXPECT_INVALID(cu->cuGraphAddEmptyNode(NULL, graph, NULL, 0));
    EXPECT_INVALID(cu->cuGraphAddEmptyNode(&node, NULL, NULL, 0));
    EXPECT_TRUE(node == NULL);
    EXPECT_U64(node_count(graph), 0);
}

CASE(graph_node_bad_arguments_refused)
{
    CUgraph graph = take_graph();
    CUgraphNode node = NULL;
    void *list[1] = {NULL};
    CUDA_KERNEL_NODE_PARAMS launched = kernel_params("touch", 0, list);
    const CUDA_MEMSET_NODE_PARAMS odd = {scratch(), 0, 9, 3, 4, 1};
    const CUDA_HOST_NODE_PARAMS none = {NULL, NULL};
    EXPECT_INVALID(cu->cuGraphAddKernelNode(&node, graph, NULL, 0, &launched));
    EXPECT_INVALID(cu->cuGraphAddKernelNode(&node, graph, NULL, 0, NULL));
    EXPECT_INVALID(cu->cuGraphAddMemsetNode(&node, graph, NULL, 0, &odd, machine.context));
    EXPECT_INVALID(cu->cuGraphAddHostNode(&node, graph, NULL, 0, &none));
    EXPECT_TRUE(node == NULL);
    EXPECT_U64(node_count(graph), 0);
}

CASE(graph_copies_rows)
{
    enum { PITCH = 512, WIDTH = 100, ROWS = 7, PLANES = 2 };
    static unsigned char from[PITCH * ROWS * PLANES], to[sizeof from];
    CUdeviceptr there = take_alloc(sizeof from);
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = take_graph();
    CUgraphNode in = NULL, out = NULL;
    CUDA_MEMCPY3D box = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = from,
        .srcPitch = PITCH,
        .srcHeight = ROWS,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = there,
        .dstPitch = WIDTH,
        .dstHeight = ROWS,
        .WidthInBytes = WIDTH,
        .Height = ROWS,
        .Depth = PLANES,
    };
    CUDA_MEMCPY3D back = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = there,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = to,
        .WidthInBytes = WIDTH * ROWS * PLANES,
        .Height = 1,
        .Depth = 1,
    };
    pattern_write(from, sizeof from, 3);
    EXPECT_OK(cu->cuGraphAddMemcpyNode(&in, graph, NULL, 0, &box, machine.context));
    EXPECT_OK(cu->cuGraphAddMemcpyNode(&out, graph, &in, 1, &back, machine.context));
    run_graph(take_exec(graph), stream);
    for (size_t row = 0; row < ROWS * PLANES; row++)
        EXPECT_TRUE(memcmp(to + row * WIDTH, from + row * PITCH, WIDTH) == 0);
}

CASE(graph_sets_rows)
{
    const CUDA_MEMSET_NODE_PARAMS rows = {scratch(), 64, 0x1234, 2, 8, 3};
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = take_graph();
    CUgraphNode node = NULL;
    EXPECT_OK(cu->cuGraphAddMemsetNode(&node, graph, NULL, 0, &rows, machine.context));
    run_graph(take_exec(graph), stream);
    for (unsigned row = 0; row < 3; row++) {
        EXPECT_U64(read_word(scratch() + 64 * row + 12), 0x12341234);
        EXPECT_U64(read_word(scratch() + 64 * row + 16), 0);
    }
    EXPECT_U64(read_word(scratch() + 192), 0);
}

CASE(graph_kernel_parameters_are_returned)
{
    CUgraph graph = take_graph();
    CUgraphNode node = add_touch(graph, NULL, 0, 3, 33), empty = NULL;
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    EXPECT_OK(cu->cuGraphKernelNodeGetParams(node, &params));
    EXPECT_TRUE(params.func == kernel("touch"));
    EXPECT_U64(params.gridDimX, 1);
    EXPECT_U64(params.blockDimX, machine.block_threads);
    EXPECT_U64(params.sharedMemBytes, 0);
    REQUIRE_TRUE(params.kernelParams != NULL);
    EXPECT_U64(((conform_touch *)params.kernelParams[0])->value, 33);
    EXPECT_OK(cu->cuGraphAddEmptyNode(&empty, graph, NULL, 0));
    EXPECT_INVALID(cu->cuGraphKernelNodeGetParams(empty, &params));
}

CASE(graph_kernel_parameters_are_changed_for_later_instances)
{
    CUgraph graph = take_graph();
    CUgraphNode node = add_touch(graph, NULL, 0, 0, 1);
    conform_touch other = {scratch_word(1), 2, 0};
    void *list[] = {&other};
    CUDA_KERNEL_NODE_PARAMS params = kernel_params("touch", 1, list);
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec before = take_exec(graph);
    EXPECT_OK(cu->cuGraphKernelNodeSetParams(node, &params));
    run_graph(before, stream);
    EXPECT_U64(read_word(scratch()), 1);
    EXPECT_U64(read_word(scratch_word(1)), 0);
    run_graph(take_exec(graph), stream);
    EXPECT_U64(read_word(scratch_word(1)), 2);
}

CASE(graph_records_and_waits_for_events)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), busy = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent gate = take_event(CU_EVENT_DISABLE_TIMING), done = take_event(CU_EVENT_DISABLE_TIMING);
    CUgraph graph = take_graph();
    CUgraphNode wait = NULL, touched, record = NULL;
    CUgraphExec exec;
    EXPECT_OK(cu->cuGraphAddEventWaitNode(&wait, graph, NULL, 0, gate));
    touched = add_touch(graph, &wait, 1, 0, 6);
    EXPECT_OK(cu->cuGraphAddEventRecordNode(&record, graph, &touched, 1, done));
    exec = take_exec(graph);
    serve_start(busy);
    EXPECT_OK(cu->cuEventRecord(gate, busy));
    EXPECT_OK(cu->cuGraphLaunch(exec, stream));
    EXPECT(cu->cuEventQuery(done), CUDA_ERROR_NOT_READY);
    EXPECT_U64(serve_read(scratch()), 0);
    serve_stop();
    EXPECT_OK(cu->cuEventSynchronize(done));
    EXPECT_U64(read_word(scratch()), 6);
}

CASE(graph_many_are_made_and_destroyed)
{
    for (int i = 0; i < 200; i++) {
        CUgraph graph = NULL;
        CUgraphExec exec = NULL;
        REQUIRE_OK(cu->cuGraphCreate(&graph, 0));
        add_touch(graph, NULL, 0, 0, 1);
        REQUIRE_OK(cu->cuGraphInstantiate(&exec, graph, 0));
        REQUIRE_OK(cu->cuGraphDestroy(graph));
        REQUIRE_OK(cu->cuGraphExecDestroy(exec));
    }
}

CASE(graph_null_refused)
{
    size_t count = 0;
    EXPECT_INVALID(cu->cuGraphDestroy(NULL));
    EXPECT_INVALID(cu->cuGraphGetNodes(NULL, NULL, &count));
}
