/* What the cases about captures and graphs share. */
#include "tests/conform/graphs.h"

void take_capture(CUstream stream, CUstreamCaptureMode mode)
{
    REQUIRE_OK(cu->cuStreamBeginCapture(stream, mode));
    own(OWN_CAPTURE, (uintptr_t)stream, 0);
}

CUgraph end_capture(CUstream stream)
{
    CUgraph graph = NULL;
    disown(OWN_CAPTURE, (uintptr_t)stream);
    REQUIRE_OK(cu->cuStreamEndCapture(stream, &graph));
    REQUIRE_TRUE(graph != NULL);
    own(OWN_GRAPH, (uintptr_t)graph, 0);
    return graph;
}

CUresult try_end_capture(CUstream stream)
{
    CUgraph graph = (CUgraph)(uintptr_t)1;
    CUresult result = cu->cuStreamEndCapture(stream, &graph);
    disown(OWN_CAPTURE, (uintptr_t)stream);
    if (result == CUDA_SUCCESS)
        EXPECT_OK(cu->cuGraphDestroy(graph));
    else
        EXPECT_TRUE(graph == NULL);
    EXPECT_U64(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    return result;
}

void conform_capture_end(CUstream stream)
{
    CUgraph graph = NULL;
    if (cu->cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS)
        EXPECT_OK(cu->cuGraphDestroy(graph));
}

CUstreamCaptureStatus capture_status(CUstream stream)
{
    CUstreamCaptureStatus status = -1;
    EXPECT_OK(cu->cuStreamIsCapturing(stream, &status));
    return status;
}

void expect_spoilt(CUstream stream)
{
    EXPECT_U64(capture_status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT(try_end_capture(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    touch(63, 630, stream);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch_word(63)), 630);
}

void expect_intact(CUstream stream)
{
    EXPECT_U64(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_OK(try_end_capture(stream));
}

CUgraph take_graph(void)
{
    CUgraph graph = NULL;
    REQUIRE_OK(cu->cuGraphCreate(&graph, 0));
    own(OWN_GRAPH, (uintptr_t)graph, 0);
    return graph;
}

CUgraphExec take_exec(CUgraph graph)
{
    CUgraphExec exec = NULL;
    REQUIRE_OK(cu->cuGraphInstantiate(&exec, graph, 0));
    own(OWN_EXEC, (uintptr_t)exec, 0);
    return exec;
}

size_t node_count(CUgraph graph)
{
    size_t count = 0;
    REQUIRE_OK(cu->cuGraphGetNodes(graph, NULL, &count));
    return count;
}

size_t edge_count(CUgraph graph)
{
    size_t count = 0;
    REQUIRE_OK(cu->cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    return count;
}

CUgraphNodeType node_type(CUgraph graph, size_t index)
{
    CUgraphNode nodes[16];
    CUgraphNodeType type = -1;
    size_t count = 16;
    REQUIRE_OK(cu->cuGraphGetNodes(graph, nodes, &count));
    REQUIRE_TRUE(index < count);
    REQUIRE_OK(cu->cuGraphNodeGetType(nodes[index], &type));
    return type;
}

void run_graph(CUgraphExec exec, CUstream stream)
{
    REQUIRE_OK(cu->cuGraphLaunch(exec, stream));
    REQUIRE_OK(cu->cuStreamSynchronize(stream));
}

CUresult try_touch(unsigned index, uint32_t value, CUstream stream)
{
    conform_touch params = {scratch_word(index), value, 0};
    return try_launch("touch", 1, &params, stream);
}

void touch(unsigned index, uint32_t value, CUstream stream)
{
    REQUIRE_OK(try_touch(index, value, stream));
}
