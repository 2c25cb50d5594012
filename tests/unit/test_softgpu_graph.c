/* softgpu/capture.c, graph_*.c: what the conformance table cannot hold. Handles that are none any more, contexts that end
 * under captures and graphs, modules that are unloaded under a graph, threads that nobody needs; and random graphs, whose
 * nodes must each run once, behind those before them.
 *
 * Each test is a child with a machine of its own.
 */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "driver/driver.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/unit/softgpu_kernels.h"

extern const unsigned char gvmi_image_soft_softgpu_kernels[];

static CUstream stream;
static CUcontext context;
static const char *given_seed; /* of the random graphs: the program's argument, or NULL */

static bool start(void)
{
    fixture_machine("devices=2,memory=64MiB,sms=2");
    setenv("GVMEM_DRIVER", "soft", 1);
    return gvmi_driver_start() == GVM_OK &&
           gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
           gvmi_cu->cuCtxSetCurrent(context) == CUDA_SUCCESS &&
           gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

static bool begin_capture(void)
{
    return gvmi_cu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS;
}

static CUgraph end_capture(void)
{
    CUgraph graph = NULL;

    (void)gvmi_cu->cuStreamEndCapture(stream, &graph);
    return graph;
}

static bool can_allocate(void)
{
    CUdeviceptr at;

    return gvmi_cu->cuMemAlloc(&at, 4096) == CUDA_SUCCESS && gvmi_cu->cuMemFree(at) == CUDA_SUCCESS;
}

/* ---- handles */

static int use_gone_handles(void *arg)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    CUgraphNodeType type;
    size_t count;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvmi_cu->cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphAddEmptyNode(&node, graph, NULL, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphAddEmptyNode(&node, graph, &node, 1) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuGraphGetNodes(graph, NULL, &count) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuGraphNodeGetType(node, &type) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphExecDestroy(exec) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuGraphLaunch(exec, stream) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuGraphLaunch((CUgraphExec)stream, stream) == CUDA_ERROR_INVALID_VALUE);
    return 0;
}

/* A graph that is being captured is the capture's. */
static int use_graph_of_a_capture(void *arg)
{
    CUstreamCaptureStatus status;
    CUgraphExec exec;
    CUgraph graph;

    (void)arg;
    CHILD_EXPECT(start() && begin_capture());
    CHILD_EXPECT(gvmi_cu->cuStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(end_capture() == graph && gvmi_cu->cuGraphDestroy(graph) == CUDA_SUCCESS);
    return 0;
}

CHILD_TEST(handle_of_a_graph_that_is_gone_is_refused, use_gone_handles)
CHILD_TEST(graph_of_a_capture_is_not_the_programs, use_graph_of_a_capture)

/* ---- ends */

static int destroy_captured_stream(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start() && begin_capture() && !can_allocate());
    CHILD_EXPECT(gvmi_cu->cuStreamDestroy(stream) == CUDA_SUCCESS);
    CHILD_EXPECT(can_allocate()); /* there is no capture any more */
    return 0;
}

static int reset_under_capture(void *arg)
{
    CUstream side;
    CUevent event;

    (void)arg;
    CHILD_EXPECT(start() && gvmi_cu->cuStreamCreate(&side, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuEventCreate(&event, 0) == CUDA_SUCCESS && begin_capture());
    CHILD_EXPECT(gvmi_cu->cuEventRecord(event, stream) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamWaitEvent(side, event, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(can_allocate());
    CHILD_EXPECT(end_capture() == NULL);
    return 0;
}

static int reset_under_graph(void *arg)
{
    CUgraphExec exec = NULL;
    CUdeviceptr at;
    CUgraph graph;

    (void)arg;
    CHILD_EXPECT(start() && gvmi_cu->cuMemAlloc(&at, 4096) == CUDA_SUCCESS && begin_capture());
    CHILD_EXPECT(gvmi_cu->cuMemsetD8Async(at, 1, 4096, stream) == CUDA_SUCCESS);
    CHILD_EXPECT((graph = end_capture()) != NULL);
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphLaunch(exec, NULL) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(NULL) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphDestroy(graph) == CUDA_SUCCESS);
    return 0;
}

/* The image stays as long as a graph, an executable graph or a launch has its kernel. */
static int unload_under_graph(void *arg)
{
    CUDA_KERNEL_NODE_PARAMS params;
    softgpu_append_params none = {.rows = 0};
    void *arguments[] = {&none};
    CUgraphExec exec = NULL;
    CUgraphNode node;
    size_t count = 1;
    CUmodule module;
    CUfunction function;
    CUgraph graph;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvmi_cu->cuModuleLoadData(&module, gvmi_image_soft_softgpu_kernels) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuModuleGetFunction(&function, module, "softgpu_append") == CUDA_SUCCESS);
    CHILD_EXPECT(begin_capture());
    CHILD_EXPECT(gvmi_cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT((graph = end_capture()) != NULL);
    CHILD_EXPECT(gvmi_cu->cuModuleUnload(module) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphGetNodes(graph, &node, &count) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphKernelNodeGetParams(node, &params) == CUDA_SUCCESS);
    CHILD_EXPECT(params.func == NULL && params.kernelParams != NULL);
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphDestroy(graph) == CUDA_SUCCESS);
    for (int i = 0; i < 3; i++)
        CHILD_EXPECT(gvmi_cu->cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(stream) == CUDA_SUCCESS);
    return 0;
}

/* ---- contexts that were created */

/* Makes a context current, with a kernel that does nothing without rows. */
static bool create_context(CUcontext *made, CUfunction *function, CUdevice device)
{
    CUmodule module;

    return gvmi_cu->cuCtxCreate(made, NULL, 0, device) == CUDA_SUCCESS &&
           gvmi_cu->cuModuleLoadData(&module, gvmi_image_soft_softgpu_kernels) == CUDA_SUCCESS &&
           gvmi_cu->cuModuleGetFunction(function, module, "softgpu_append") == CUDA_SUCCESS;
}

static softgpu_append_params no_rows;
static void *no_rows_arguments[] = {&no_rows};

static CUDA_KERNEL_NODE_PARAMS one_thread(CUfunction function, void **arguments)
{
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = function,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = arguments,
    };
}

static bool make_kernel_graph(CUgraph *graph, CUgraphNode *node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    return gvmi_cu->cuGraphCreate(graph, 0) == CUDA_SUCCESS &&
           gvmi_cu->cuGraphAddKernelNode(node, *graph, NULL, 0, params) == CUDA_SUCCESS;
}

static int instantiate_without_context(void *arg)
{
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec = NULL, before = NULL;
    CUcontext created;
    CUfunction function;
    CUgraphNode node;
    CUgraph graph;

    (void)arg;
    CHILD_EXPECT(start() && create_context(&created, &function, 1));
    params = one_thread(function, no_rows_arguments);
    CHILD_EXPECT(make_kernel_graph(&graph, &node, &params));
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&before, graph, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(created) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHILD_EXPECT(gvmi_cu->cuGraphExecUpdate(before, graph, &info) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHILD_EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR);
    CHILD_EXPECT(create_context(&created, &function, 0)); /* the same entry of the table */
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHILD_EXPECT(gvmi_cu->cuGraphLaunch(before, NULL) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return 0;
}

static int update_to_another_context(void *arg)
{
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec = NULL;
    CUcontext first, second;
    CUfunction function;
    CUgraphNode node, other_node;
    CUgraph graph, other;

    (void)arg;
    CHILD_EXPECT(start() && create_context(&first, &function, 0));
    params = one_thread(function, no_rows_arguments);
    CHILD_EXPECT(make_kernel_graph(&graph, &node, &params));
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(first) == CUDA_SUCCESS);
    CHILD_EXPECT(create_context(&second, &function, 1)); /* the same entry of the table */
    params = one_thread(function, no_rows_arguments);
    CHILD_EXPECT(make_kernel_graph(&other, &other_node, &params));
    CHILD_EXPECT(gvmi_cu->cuGraphKernelNodeSetParams(node, &params) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuGraphExecKernelNodeSetParams(exec, node, &params) ==
                 CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuGraphExecUpdate(exec, other, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHILD_EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
    CHILD_EXPECT(gvmi_cu->cuGraphLaunch(exec, NULL) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHILD_EXPECT(gvmi_cu->cuCtxSynchronize() == CUDA_SUCCESS);
    return 0;
}

/* The kernel is of another device than the stream, and ends by itself. */
static int reset_beside_a_part(void *arg)
{
    static _Atomic uint32_t words[2], memory[2];
    softgpu_watch_params watch = {
        .address = (uintptr_t)memory,
        .words = 1,
        .stop = (uintptr_t)&words[0],
        .out = (uintptr_t)&words[1],
        .limit_ns = 300000000,
    };
    void *arguments[] = {&watch};
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphExec exec = NULL;
    CUcontext created;
    CUfunction function;
    CUmodule module;
    CUgraphNode node;
    CUgraph graph;

    (void)arg;
    CHILD_EXPECT(start() && gvmi_cu->cuCtxCreate(&created, NULL, 0, 1) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuModuleLoadData(&module, gvmi_image_soft_softgpu_kernels) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuModuleGetFunction(&function, module, "softgpu_watch") == CUDA_SUCCESS);
    params = one_thread(function, arguments);
    CHILD_EXPECT(make_kernel_graph(&graph, &node, &params));
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamDestroy(stream) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    for (int ms = 0; ms < 10000 && atomic_load(&words[1]) == 0; ms++)
        pause_ms(1);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CHILD_EXPECT(atomic_load(&words[1]) == 2);
    CHILD_EXPECT(gvmi_cu->cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(context) == CUDA_SUCCESS && can_allocate());
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(created) == CUDA_SUCCESS);
    return 0;
}

CHILD_TEST(graph_of_a_destroyed_context_is_refused, instantiate_without_context)
CHILD_TEST(update_to_another_context_in_the_same_entry_is_refused, update_to_another_context)
CHILD_TEST(reset_waits_for_parts_of_its_graphs_on_other_devices, reset_beside_a_part)

CHILD_TEST(capture_ends_with_its_stream, destroy_captured_stream)
CHILD_TEST(capture_ends_with_its_context, reset_under_capture)
CHILD_TEST(graph_of_a_context_that_was_reset_is_refused, reset_under_graph)
CHILD_TEST(graph_keeps_an_unloaded_module, unload_under_graph)

/* ---- random graphs */

enum { NODES = 60, LAUNCHES = 5, BEFORE_MAX = 4 };

typedef struct step {
    atomic_uint runs;
    unsigned before[BEFORE_MAX]; /* numbers of earlier steps */
    size_t before_count;
} step;

static step steps[NODES];
static atomic_uint wrong;

/* Has run as often as those before it, less one: they have run for this launch. */
static void run_step(void *arg)
{
    step *self = arg;
    const unsigned runs = atomic_load(&self->runs) + 1;

    for (size_t i = 0; i < self->before_count; i++)
        if (atomic_load(&steps[self->before[i]].runs) != runs)
            atomic_fetch_add(&wrong, 1);
    atomic_store(&self->runs, runs);
}

static bool is_before(const step *self, unsigned number)
{
    for (size_t i = 0; i < self->before_count; i++)
        if (self->before[i] == number)
            return true;
    return false;
}

static bool build_random(CUgraph graph, uint64_t *seed)
{
    CUgraphNode nodes[NODES], deps[BEFORE_MAX];

    for (unsigned n = 0; n < NODES; n++) {
        step *s = &steps[n];
        const CUDA_HOST_NODE_PARAMS params = {run_step, s};
        const size_t wanted = n > 0 ? random_next(seed) % (BEFORE_MAX + 1) : 0;

        atomic_store(&s->runs, 0);
        s->before_count = 0;
        for (size_t i = 0; i < wanted; i++) {
            const unsigned before = (unsigned)(random_next(seed) % n);

            if (!is_before(s, before)) {
                deps[s->before_count] = nodes[before];
                s->before[s->before_count++] = before;
            }
        }
        if (gvmi_cu->cuGraphAddHostNode(&nodes[n], graph, deps, s->before_count, &params) != CUDA_SUCCESS)
            return false;
    }
    return true;
}

static unsigned thread_count(void)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned count = 0;

    while (tasks != NULL && readdir(tasks) != NULL)
        count++;
    if (tasks != NULL)
        closedir(tasks);
    return count;
}

static int run_random_graphs(void *arg)
{
    uint64_t seed = *(const uint64_t *)arg;
    unsigned threads = 0;

    CHILD_EXPECT(start());
    for (int round = 0; round < 20; round++) {
        CUgraphExec exec = NULL;
        CUgraph graph = NULL;

        CHILD_EXPECT(gvmi_cu->cuGraphCreate(&graph, 0) == CUDA_SUCCESS && build_random(graph, &seed));
        CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
        for (int i = 0; i < LAUNCHES; i++)
            CHILD_EXPECT(gvmi_cu->cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(stream) == CUDA_SUCCESS);
        for (unsigned n = 0; n < NODES; n++)
            CHILD_EXPECT(atomic_load(&steps[n].runs) == LAUNCHES);
        CHILD_EXPECT(atomic_load(&wrong) == 0);
        CHILD_EXPECT(gvmi_cu->cuGraphExecDestroy(exec) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuGraphDestroy(graph) == CUDA_SUCCESS);
        threads = thread_count() > threads ? thread_count() : threads;
    }
    CHILD_EXPECT(threads < 2 * NODES); /* workers of graphs that are gone serve later ones */
    return 0;
}

static void nodes_run_once_and_behind_those_before_them(void **state)
{
    uint64_t seed = random_seed(given_seed);

    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    assert_child_succeeds(run_random_graphs, &seed);
}

/* ---- many dependencies */

enum { MANY = 20000, SIDES = 100 };

static CUgraphNode many[MANY + 1], from[MANY + 1], to[MANY + 1];

static int depend_on_many(void *arg)
{
    CUgraph graph = NULL, other = NULL;
    CUgraphNode foreign, last, kept;
    size_t count = MANY + 1;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvmi_cu->cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphCreate(&other, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphAddEmptyNode(&foreign, other, NULL, 0) == CUDA_SUCCESS);
    for (int i = 0; i < MANY; i++)
        CHILD_EXPECT(gvmi_cu->cuGraphAddEmptyNode(&many[i], graph, NULL, 0) == CUDA_SUCCESS);
    kept = many[MANY - 1];
    many[MANY - 1] = many[0];
    CHILD_EXPECT(gvmi_cu->cuGraphAddEmptyNode(&last, graph, many, MANY) == CUDA_ERROR_INVALID_VALUE);
    many[MANY - 1] = foreign;
    CHILD_EXPECT(gvmi_cu->cuGraphAddEmptyNode(&last, graph, many, MANY) == CUDA_ERROR_INVALID_VALUE);
    many[MANY - 1] = kept;
    CHILD_EXPECT(gvmi_cu->cuGraphAddEmptyNode(&last, graph, many, MANY) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphGetEdges(graph, from, to, NULL, &count) == CUDA_SUCCESS);
    CHILD_EXPECT(count == MANY);
    for (int i = 0; i < MANY; i++)
        CHILD_EXPECT(from[i] == many[i] && to[i] == last);
    CHILD_EXPECT(gvmi_cu->cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphDestroy(other) == CUDA_SUCCESS);
    return 0;
}

/* A stream waits for each of many twice; its next node comes behind each once. The last one is not waited for if join is
 * false. */
static CUresult capture_sides(CUdeviceptr at, bool join, CUgraph *graph)
{
    CUstreamCaptureStatus status;
    CUevent event, begun;
    CUresult result = gvmi_cu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    size_t count = 0;

    result |= gvmi_cu->cuEventCreate(&begun, 0) | gvmi_cu->cuEventCreate(&event, 0);
    result |= gvmi_cu->cuMemsetD8Async(at, 1, 16, stream) | gvmi_cu->cuEventRecord(begun, stream);
    for (int i = 0; i < SIDES; i++) {
        CUstream side;

        result |= gvmi_cu->cuStreamCreate(&side, CU_STREAM_NON_BLOCKING);
        result |= gvmi_cu->cuStreamWaitEvent(side, begun, 0) |
                  gvmi_cu->cuMemsetD8Async(at, 1, 16, side) | gvmi_cu->cuEventRecord(event, side);
        if (i < SIDES - 1 || join)
            result |= gvmi_cu->cuStreamWaitEvent(stream, event, 0) |
                      gvmi_cu->cuStreamWaitEvent(stream, event, 0);
    }
    result |= gvmi_cu->cuStreamGetCaptureInfo(stream, &status, NULL, graph, NULL, NULL, &count);
    if (result != CUDA_SUCCESS || count != SIDES + (size_t)join)
        return CUDA_ERROR_UNKNOWN;
    return gvmi_cu->cuStreamEndCapture(stream, graph);
}

static int join_many_streams(void *arg)
{
    size_t nodes = 0, edges = 0;
    CUgraph graph = NULL;
    CUdeviceptr at;

    (void)arg;
    CHILD_EXPECT(start() && gvmi_cu->cuMemAlloc(&at, 4096) == CUDA_SUCCESS);
    CHILD_EXPECT(capture_sides(at, false, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHILD_EXPECT(capture_sides(at, true, &graph) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphGetNodes(graph, NULL, &nodes) == CUDA_SUCCESS && nodes == SIDES + 1);
    CHILD_EXPECT(gvmi_cu->cuGraphGetEdges(graph, NULL, NULL, NULL, &edges) == CUDA_SUCCESS &&
                 edges == SIDES);
    return 0;
}

CHILD_TEST(node_depends_on_many_others_once_each, depend_on_many)
CHILD_TEST(capture_waits_for_many_streams_once_each, join_many_streams)

/* ---- threads that the system refuses */

static void count_run(void *runs)
{
    atomic_fetch_add((atomic_int *)runs, 1);
}

static int run_out_of_threads(void *arg)
{
    enum { BRANCHES = 6 };
    static atomic_int runs;
    CUDA_HOST_NODE_PARAMS params = {count_run, &runs};
    struct rlimit limit, none;
    CUgraphExec exec = NULL;
    CUgraphNode node;
    CUgraph graph = NULL;
    unsigned threads;

    (void)arg;
    if (SANITIZED)
        return 0;
    CHILD_EXPECT(start() && gvmi_cu->cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    for (int i = 0; i < BRANCHES; i++)
        CHILD_EXPECT(gvmi_cu->cuGraphAddHostNode(&node, graph, NULL, 0, &params) == CUDA_SUCCESS);
    threads = thread_count();
    CHILD_EXPECT(getrlimit(RLIMIT_AS, &limit) == 0);
    none = (struct rlimit){0, limit.rlim_max};
    CHILD_EXPECT(setrlimit(RLIMIT_AS, &none) == 0);
    CHILD_EXPECT(gvmi_cu->cuLaunchHostFunc(stream, count_run, &runs) == CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHILD_EXPECT(exec == NULL && atomic_load(&runs) == 0 && thread_count() == threads);
    CHILD_EXPECT(gvmi_cu->cuLaunchHostFunc(stream, count_run, &runs) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHILD_EXPECT(atomic_load(&runs) == BRANCHES + 1 && thread_count() >= threads + BRANCHES);
    return 0;
}

CHILD_TEST_NOT_VALGRIND(calls_fail_whole_where_no_thread_can_be_made, run_out_of_threads,
                        "it needs address space of its own")

/* What the manual says of cuMemcpy3D(): a row has its offset and width in the pitch, a plane its rows in the height. */
static int add_boxes(void *arg)
{
    CUDA_MEMCPY3D box[7];
    CUdeviceptr at;
    CUgraph graph;
    CUgraphNode node;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvmi_cu->cuMemAlloc(&at, 4096) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    box[0] = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = at,
                             .srcXInBytes = 8,
                             .srcY = 1,
                             .srcPitch = 64,
                             .srcHeight = 4,
                             .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                             .dstDevice = at + 2048,
                             .dstXInBytes = 8,
                             .dstY = 1,
                             .dstPitch = 64,
                             .dstHeight = 4,
                             .WidthInBytes = 56,
                             .Height = 3,
                             .Depth = 2};
    for (int i = 1; i < 7; i++)
        box[i] = box[0];
    box[1].srcXInBytes++;
    box[2].dstXInBytes++;
    box[3].srcY++;
    box[4].dstY++;
    box[5].srcZ = (size_t)1 << 56; /* of 256 bytes each */
    box[6].dstZ = (size_t)1 << 56;
    for (int i = 0; i < 7; i++)
        CHILD_EXPECT(gvmi_cu->cuGraphAddMemcpyNode(&node, graph, NULL, 0, &box[i], context) ==
                     (i == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
    return 0;
}

CHILD_TEST(box_that_leaves_its_rows_is_refused, add_boxes)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handle_of_a_graph_that_is_gone_is_refused),
        cmocka_unit_test(graph_of_a_capture_is_not_the_programs),
        cmocka_unit_test(graph_of_a_destroyed_context_is_refused),
        cmocka_unit_test(update_to_another_context_in_the_same_entry_is_refused),
        cmocka_unit_test(reset_waits_for_parts_of_its_graphs_on_other_devices),
        cmocka_unit_test(capture_ends_with_its_stream),
        cmocka_unit_test(capture_ends_with_its_context),
        cmocka_unit_test(graph_of_a_context_that_was_reset_is_refused),
        cmocka_unit_test(graph_keeps_an_unloaded_module),
        cmocka_unit_test(nodes_run_once_and_behind_those_before_them),
        cmocka_unit_test(node_depends_on_many_others_once_each),
        cmocka_unit_test(capture_waits_for_many_streams_once_each),
        cmocka_unit_test(calls_fail_whole_where_no_thread_can_be_made),
        cmocka_unit_test(box_that_leaves_its_rows_is_refused),
    };

    given_seed = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
