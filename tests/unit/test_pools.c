/* python/src/pools.c: what frameworks of Python call, loaded as they load it, and the trace that it leaves.
 *
 * usage: test_pools LIBRARY CAPTURE-DRIVER
 */
#include "tests/unit/pools_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "driver/cuda_abi.h"
#include "tests/lib/fixture.h"

static const char *capture_driver;

/* Asked by LeakSanitizer at a process's end. A child made by fork() while threads run cannot stop these to look. */
static bool is_child;
GVM_API int __lsan_is_turned_off(void); /* seen by its library */

int __lsan_is_turned_off(void)
{
    return is_child;
}

/* A child that asks for memory is refused; and one that exits, with all that exit() does, has nothing
 * to add to the trace. */
static bool children_leave(void *live)
{
    int status = -1;
    pid_t pid;

    fflush(stdout); /* the test's own, and nothing else: what the pools have stays where it is */
    pid = fork();
    if (pid == 0) {
        is_child = true;
        exit(take(100000, 0, NULL) == NULL && give(live) ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* As one of multiprocessing is, whose parent has not used a GPU. */
static bool child_of_an_idle_process_is_served(void)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        void *ptr = take(100000, 0, NULL);

        _exit(ptr != NULL && give(ptr) ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static int use_pools(void *path)
{
    void (*open_trace)(const char *path), *ptr, *other;
    pool_block found;

    CHILD_EXPECT(load_pools());
    CHILD_EXPECT(child_of_an_idle_process_is_served());
    *(void **)&open_trace = dlsym(loaded, "pools_trace_open");
    open_trace(path != NULL ? path : "");
    CHILD_EXPECT((ptr = take(100000, 0, NULL)) != NULL);
    CHILD_EXPECT((other = take(5 << 20, 0, NULL)) != NULL);
    CHILD_EXPECT(calls->find(other, &found) == 0 && found.requested_bytes == 5 << 20 &&
                 found.device == 0);
    CHILD_EXPECT(calls->find((char *)other + 256, &found) != 0);
    CHILD_EXPECT(children_leave(ptr));
    CHILD_EXPECT(give(ptr));
    CHILD_EXPECT(take(100000, 0, NULL) == ptr); /* of the same stream, at once */
    CHILD_EXPECT(give(ptr) && !give(ptr));
    CHILD_EXPECT(give(other) && give(NULL));
    CHILD_EXPECT(take(0, 0, NULL) == NULL);
    CHILD_EXPECT(take(5, -1, NULL) == NULL);
    CHILD_EXPECT(take(5, 1000, NULL) == NULL);
    fflush(NULL);
    CHILD_EXPECT(dlclose(loaded) == 0);
    return 0;
}

CHILD_TEST(blocks_are_given_and_taken_back, use_pools)

static void trace_has_a_line_for_each_event(void **state)
{
    static const char kinds[] = "aafaff";
    static const unsigned long long sizes[] = {100000, 5 << 20, 100000, 100000, 100000, 5 << 20};
    char path[] = "/tmp/gvmem-heap-trace-XXXXXX", line[128];
    unsigned long long ids[6], bytes, stream, ns, last = 0;
    int fd = mkstemp(path);
    FILE *file;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_child_succeeds(use_pools, path);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "# gvmem heap trace 1\n");
    for (int i = 0; i < 6; i++) {
        char kind;

        assert_non_null(fgets(line, sizeof line, file));
        assert_int_equal(sscanf(line, "%c %llx %llu %llx %llu", &kind, &ids[i], &bytes, &stream, &ns),
                         5);
        assert_int_equal(kind, kinds[i]);
        assert_int_equal(bytes, sizes[i]);
        assert_int_equal(stream, 0);
        assert_true(ns >= last);
        last = ns;
    }
    assert_null(fgets(line, sizeof line, file));
    assert_true(ids[0] == ids[2] && ids[2] == ids[3] && ids[3] == ids[4] && ids[1] == ids[5] &&
                ids[0] != ids[1]);
    fclose(file);
    unlink(path);
}

static atomic_bool grants_fail;

/* Likewise. */
GVM_API gvm_status gvm_heap_grant(gvm_heap *heap, gvm_device *peer, gvm_access access)
{
    gvm_status (*call)(gvm_heap *, gvm_device *, gvm_access);

    *(void **)&call = dlsym(loaded, "gvm_heap_grant");
    return atomic_load(&grants_fail) ? GVM_E_DRIVER : call(heap, peer, access);
}

/* ---- streams and graphs */

/* The driver under the pools, whose streams wait for a word. */
static struct {
    CUresult (*ctx_retain)(CUcontext *ctx, CUdevice device);
    CUresult (*ctx_set)(CUcontext ctx);
    CUresult (*stream_create)(CUstream *stream, unsigned flags);
    CUresult (*stream_destroy)(CUstream stream);
    CUresult (*synchronize)(CUstream stream);
    CUresult (*host_alloc)(void **ptr, size_t bytes, unsigned flags);
    CUresult (*get_access)(unsigned long long *flags, const CUmemLocation *at, CUdeviceptr address);
    CUresult (*wait_value)(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags);
    CUresult (*is_captured)(CUstream stream, CUstreamCaptureStatus *status);
    CUresult (*begin)(CUstream stream, CUstreamCaptureMode mode);
    CUresult (*end)(CUstream stream, CUgraph *graph);
    CUresult (*graph_destroy)(CUgraph graph);
    CUresult (*instantiate)(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
    CUresult (*launch)(CUgraphExec exec, CUstream stream);
    CUresult (*set)(CUdeviceptr at, unsigned value, size_t count, CUstream stream);
    CUresult (*copy)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
    CUresult (*copy_out)(void *to, CUdeviceptr from, size_t bytes);
    CUresult (*event_create)(CUevent *event, unsigned flags);
    CUresult (*record)(CUevent event, CUstream stream);
    CUresult (*wait_event)(CUstream stream, CUevent event, unsigned flags);
    unsigned *asked;
    uint32_t *gate;
    CUstream a, b, c;
} p;

static bool load_all(void)
{
    void *driver;
    CUcontext context;

    setenv("GVMEM_DRIVER", capture_driver, 1);
    driver = dlopen(capture_driver, RTLD_NOW);
    if (!load_pools() || driver == NULL)
        return false;
#define FIND(handle, member, name) (*(void **)&p.member = dlsym(handle, name)) != NULL
    if (!(FIND(driver, is_captured, "cuStreamIsCapturing") &&
          FIND(driver, ctx_retain, "cuDevicePrimaryCtxRetain") &&
          FIND(driver, ctx_set, "cuCtxSetCurrent") && FIND(driver, stream_create, "cuStreamCreate") &&
          FIND(driver, stream_destroy, "cuStreamDestroy_v2") &&
          FIND(driver, synchronize, "cuStreamSynchronize") &&
          FIND(driver, host_alloc, "cuMemHostAlloc") && FIND(driver, get_access, "cuMemGetAccess") &&
          FIND(driver, wait_value, "cuStreamWaitValue32_v2") &&
          FIND(driver, begin, "cuStreamBeginCapture_v2") &&
          FIND(driver, end, "cuStreamEndCapture") && FIND(driver, graph_destroy, "cuGraphDestroy") &&
          FIND(driver, instantiate, "cuGraphInstantiateWithFlags") &&
          FIND(driver, launch, "cuGraphLaunch") && FIND(driver, set, "cuMemsetD32Async") &&
          FIND(driver, copy, "cuMemcpyDtoDAsync_v2") && FIND(driver, copy_out, "cuMemcpyDtoH_v2") &&
          FIND(driver, event_create, "cuEventCreate") && FIND(driver, record, "cuEventRecord") &&
          FIND(driver, wait_event, "cuStreamWaitEvent") && FIND(driver, asked, "capture_asked")))
        return false;
#undef FIND
    choose((pools_options){.decay_ms = 1000000}); /* blocks are where they were, however slow the machine is */
    (void)give(take(1, 0, NULL));                 /* starts the driver */
    return p.ctx_retain(&context, 0) == CUDA_SUCCESS && p.ctx_set(context) == CUDA_SUCCESS &&
           p.stream_create(&p.a, 0) == CUDA_SUCCESS && p.stream_create(&p.b, 0) == CUDA_SUCCESS &&
           p.stream_create(&p.c, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           p.host_alloc((void **)&p.gate, 4096, 0) == CUDA_SUCCESS;
}

/* A stream has work until the gate holds the value. */
static bool hold(CUstream stream, uint32_t value)
{
    return p.wait_value(stream, (CUdeviceptr)(uintptr_t)p.gate, value, CU_STREAM_WAIT_VALUE_EQ) ==
           CUDA_SUCCESS;
}

static void open_gate(uint32_t value)
{
    __atomic_store_n(p.gate, value, __ATOMIC_SEQ_CST);
}

static int takes_captured(void *arg, void *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    (void)arg;
    return p.is_captured(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static void drop(void *arg)
{
    ++*(int *)arg;
}

static int takes_stream(void *own, void *stream)
{
    return own == stream;
}

static void drop_nothing(void *arg)
{
    (void)arg;
}

static int dropped;

static bool begin(pool_id id)
{
    return calls->begin(0, id, (pool_filter){takes_captured, drop, &dropped}) == 0;
}

static bool end(pool_id id)
{
    const int before = dropped;

    return calls->end(0, id) == 0 && dropped == before + 1;
}

static bool release(pool_id id)
{
    return calls->release(0, id) == 0;
}

/* As PyTorch does. */
static bool begin_capture(CUstream stream)
{
    return p.begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS;
}

static bool end_capture(CUstream stream)
{
    CUgraph graph;

    return p.end(stream, &graph) == CUDA_SUCCESS && p.graph_destroy(graph) == CUDA_SUCCESS;
}

static bool fork_to(CUstream to, CUstream from)
{
    CUevent event;

    return p.event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           p.record(event, from) == CUDA_SUCCESS && p.wait_event(to, event, 0) == CUDA_SUCCESS;
}

static int use_two_streams(void *arg)
{
    void *x, *y, *z;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT((x = take(1 << 20, 0, p.a)) != NULL && hold(p.a, 1));
    CHILD_EXPECT(give(x)); /* work is under way */
    CHILD_EXPECT((y = take(1 << 20, 0, p.b)) != NULL && y != x);
    CHILD_EXPECT((z = take(1 << 20, 0, p.c)) != NULL && z != x && z != y);
    CHILD_EXPECT(take(1 << 20, 0, p.a) == x); /* behind that work */
    CHILD_EXPECT(take(1 << 20, 0, CU_STREAM_PER_THREAD) == NULL);
    open_gate(1);
    return p.synchronize(p.a) == CUDA_SUCCESS ? 0 : 1;
}

static void block_of_a_busy_stream_goes_to_no_other(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(use_two_streams, NULL, false), 0);
}

/* Is the address given out on the stream, now or for any other request of its size? */
static bool serves(const void *ptr, CUstream stream)
{
    bool found = false;

    for (int i = 0; i < 8; i++)
        found = take(1 << 20, 0, stream) == ptr || found;
    return found;
}

static int use_recorded(void *arg)
{
    void *x, *y;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT((x = take(1 << 20, 0, p.a)) != NULL);
    (void)calls->use(x, p.b);
    (void)calls->use(x, p.c);
    (void)calls->use(x, p.b);
    CHILD_EXPECT(hold(p.b, 1) && hold(p.c, 2));
    (void)give(x);
    CHILD_EXPECT(!serves(x, p.a));
    CHILD_EXPECT((y = take(1 << 20, 0, p.a)) != NULL);
    CHILD_EXPECT(hold(CU_STREAM_PER_THREAD, 1));
    (void)calls->use(y, CU_STREAM_PER_THREAD); /* refused: which one is not known */
    (void)give(y);
    CHILD_EXPECT(serves(y, p.a));
    open_gate(1);
    CHILD_EXPECT(p.synchronize(p.b) == CUDA_SUCCESS);
    CHILD_EXPECT(!serves(x, p.a)); /* c has work still */
    open_gate(2);
    CHILD_EXPECT(p.synchronize(p.c) == CUDA_SUCCESS);
    (void)take(5 << 20, 0, p.a); /* takes the lock: what has passed is free */
    CHILD_EXPECT(serves(x, p.a));
    return 0;
}

static void block_of_recorded_streams_waits_for_all_of_them(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(use_recorded, NULL, false), 0);
}

static int use_graphs(void *arg)
{
    const pool_id first = {1, 0}, second = {2, 0};
    void *eager, *used, *temporary, *again, *output, *other;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT((eager = take(1 << 20, 0, p.a)) != NULL && (used = take(1 << 20, 0, p.b)) != NULL);
    (void)calls->use(used, p.a);
    CHILD_EXPECT(begin(first));
    CHILD_EXPECT(begin_capture(p.a));
    (void)give(eager);
    (void)give(used); /* an event of a captured stream would tell nothing: later */
    CHILD_EXPECT(!serves(used, p.b));
    CHILD_EXPECT((temporary = take(1 << 20, 0, p.a)) != NULL && temporary != eager);
    (void)give(temporary);
    CHILD_EXPECT((again = take(1 << 20, 0, p.a)) == temporary); /* within the capture */
    CHILD_EXPECT((output = take(1 << 20, 0, p.a)) != NULL && output != temporary);
    (void)give(again);
    CHILD_EXPECT(end_capture(p.a));
    CHILD_EXPECT(end(first));
    CHILD_EXPECT(!serves(temporary, p.a)); /* the graph uses it whenever it is launched */
    (void)give(output);
    CHILD_EXPECT(!serves(output, p.a));
    CHILD_EXPECT(serves(used, p.b));
    CHILD_EXPECT(begin(second));
    CHILD_EXPECT(begin_capture(p.a));
    CHILD_EXPECT((other = take(1 << 20, 0, p.a)) != NULL && other != temporary && other != output);
    CHILD_EXPECT(!serves(temporary, p.a) && !serves(output, p.a));
    CHILD_EXPECT(end_capture(p.a));
    CHILD_EXPECT(end(second));
    CHILD_EXPECT(release(first));
    CHILD_EXPECT(release(second)); /* blocks of it live */
    (void)give(other);
    return 0;
}

static void block_of_a_graph_goes_to_no_other_work(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(use_graphs, NULL, false), 0);
}

/* The legacy stream cannot be captured; and while a stream that it waits for is, the driver has no answer. */
static int ask_for_captures(void *arg)
{
    void *ptr;

    (void)arg;
    CHILD_EXPECT(load_all());
    *p.asked = 0;
    CHILD_EXPECT((ptr = take(1 << 20, 0, NULL)) != NULL);
    CHILD_EXPECT(take(1 << 20, 0, CU_STREAM_LEGACY) != NULL);
    CHILD_EXPECT(give(ptr));
    CHILD_EXPECT(*p.asked == 0);
    CHILD_EXPECT((ptr = take(1 << 20, 0, p.a)) != NULL);
    CHILD_EXPECT(give(ptr));
    CHILD_EXPECT(*p.asked == 1);
    return 0;
}

static void driver_is_asked_for_captures_of_streams_that_can_be(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(ask_for_captures, NULL, false), 0);
}

static void *take_unordered(CUstream stream)
{
    int (*alloc)(int device, uint64_t bytes, void *stream, void **out);
    void *ptr;

    *(void **)&alloc = dlsym(loaded, "pools_alloc_unordered");
    return alloc(0, 1 << 20, stream, &ptr) == 0 ? ptr : NULL;
}

/* The stream of a capture that is over is gone, and its block is freed with another one. */
static int destroy_captured_stream(void *arg)
{
    void *x;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT(begin_capture(p.a) && (x = take_unordered(p.a)) != NULL && end_capture(p.a));
    CHILD_EXPECT(p.stream_destroy(p.a) == CUDA_SUCCESS);
    (void)calls->use(x, p.b);
    *p.asked = 0;
    CHILD_EXPECT(give(x) && *p.asked == 1); /* of b */
    CHILD_EXPECT(take(1 << 20, 0, NULL) != NULL && *p.asked == 1);
    return 0;
}

/* Blocks of no stream are freed within a capture, with its stream and with none: it goes on, and they serve others at once. */
static int free_in_capture(void *arg)
{
    void *freed[2], *again;

    (void)arg;
    CHILD_EXPECT(load_all());
    for (int i = 0; i < 2; i++)
        CHILD_EXPECT((freed[i] = take_unordered(p.a)) != NULL);
    CHILD_EXPECT(begin_capture(p.a));
    (void)calls->use(freed[0], p.a);
    CHILD_EXPECT(give(freed[0]) && give(freed[1]));
    CHILD_EXPECT(end_capture(p.a) && p.stream_destroy(p.a) == CUDA_SUCCESS);
    *p.asked = 0;
    for (int i = 0; i < 2; i++)
        CHILD_EXPECT((again = take_unordered(p.b)) == freed[0] || again == freed[1]);
    CHILD_EXPECT(*p.asked == 2); /* of b */
    return 0;
}

/* One that was taken in the capture, and is freed with another stream of it. */
static int free_with_side_stream(void *arg)
{
    void *shared, *later;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT(begin_capture(p.a) && (shared = take_unordered(p.a)) != NULL && fork_to(p.b, p.a));
    (void)calls->use(shared, p.b);
    CHILD_EXPECT(give(shared) && (later = take_unordered(p.a)) != NULL && later != shared);
    CHILD_EXPECT(fork_to(p.a, p.b) && end_capture(p.a) && p.stream_destroy(p.b) == CUDA_SUCCESS);
    *p.asked = 0;
    CHILD_EXPECT(give(later) && *p.asked == 0);
    return 0;
}

static void stream_that_may_be_gone_is_not_asked(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(destroy_captured_stream, NULL, false), 0);
    assert_int_equal(run_in_child(free_in_capture, NULL, false), 0);
    assert_int_equal(run_in_child(free_with_side_stream, NULL, false), 0);
}

/* CU_MEM_ACCESS_FLAGS_PROT_... of a block for a device; -1: there is no memory at the address. */
static int access_of(const void *ptr, int device)
{
    const CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    unsigned long long flags = 0;
    const CUresult result = p.get_access(&flags, &where, (CUdeviceptr)(uintptr_t)ptr);

    return result == CUDA_SUCCESS ? (int)flags : -1;
}

/* A block of a graph is used by other streams within it: their order with later blocks is not known. */
static int use_graph_of_two_streams(void *arg)
{
    void *x;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT(begin_capture(p.a));
    CHILD_EXPECT((x = take(1 << 20, 0, p.a)) != NULL);
    (void)calls->use(x, p.b);
    (void)give(x);
    CHILD_EXPECT(!serves(x, p.a));
    CHILD_EXPECT(end_capture(p.a));
    return 0;
}

static void block_of_a_graph_that_other_streams_use_serves_once(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(use_graph_of_two_streams, NULL, false), 0);
}

/* A block of a capture of its own. */
static void *capture_block(void)
{
    void *ptr = begin_capture(p.a) ? take(1 << 20, 0, p.a) : NULL;

    return end_capture(p.a) ? ptr : NULL;
}

static int release_pools(void *arg)
{
    const pool_id first = {1, 0}, second = {2, 0}, third = {3, 0}, fourth = {4, 0};
    void *of_either, *live, *gone;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT(begin(first));
    CHILD_EXPECT(begin(second));
    CHILD_EXPECT((of_either = capture_block()) != NULL);
    CHILD_EXPECT(end(first));
    CHILD_EXPECT(end(second));
    (void)give(of_either);
    CHILD_EXPECT(release(first));
    CHILD_EXPECT(access_of(of_either, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE); /* it is the later one's */
    CHILD_EXPECT(release(second));
    CHILD_EXPECT(access_of(of_either, 0) == -1);

    CHILD_EXPECT(begin(third));
    CHILD_EXPECT((live = capture_block()) != NULL);
    CHILD_EXPECT(end(third));
    CHILD_EXPECT(release(third));
    CHILD_EXPECT(access_of(live, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    (void)give(live);
    CHILD_EXPECT(access_of(live, 0) == -1);

    CHILD_EXPECT(begin(third));
    CHILD_EXPECT((gone = capture_block()) != NULL);
    CHILD_EXPECT(end(third));
    (void)give(gone);
    CHILD_EXPECT(begin(fourth)); /* another capture, which an end of the heap would spoil */
    CHILD_EXPECT(release(third));
    CHILD_EXPECT(access_of(gone, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHILD_EXPECT(end(fourth));
    CHILD_EXPECT(access_of(gone, 0) == -1);
    return 0;
}

static void heap_of_a_graph_ends_with_its_pool_and_blocks(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(release_pools, NULL, false), 0);
}

/* Pools are made before they are begun, in any order. */
static int nest_pools(void *arg)
{
    const pool_id inner = {0, 1}, outer = {0, 2};
    const pool_filter filter = {takes_stream, drop_nothing, NULL};
    pool_block found;
    void *ptr;

    (void)arg;
    CHILD_EXPECT(load_pools());
    CHILD_EXPECT(calls->retain(0, inner) == 0 && calls->retain(0, outer) == 0);
    CHILD_EXPECT(calls->begin(0, outer, filter) == 0 && calls->begin(0, inner, filter) == 0);
    CHILD_EXPECT((ptr = take(1000, 0, NULL)) != NULL && calls->find(ptr, &found) == 0);
    CHILD_EXPECT(found.pool.second == 1);
    CHILD_EXPECT(calls->end(0, inner) == 0);
    CHILD_EXPECT((ptr = take(1000, 0, NULL)) != NULL && calls->find(ptr, &found) == 0);
    CHILD_EXPECT(found.pool.second == 2);
    return 0;
}

static void pool_begun_last_is_asked_first(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(nest_pools, NULL, false), 0);
}

/* ---- what PyTorch does with graphs (tests/gpu/python_torch.py), launched */

enum { WORDS = 1 << 18 };

static bool fill(void *ptr, unsigned value, CUstream stream)
{
    return p.set((CUdeviceptr)(uintptr_t)ptr, value, WORDS, stream) == CUDA_SUCCESS;
}

static bool copy(void *to, const void *from, CUstream stream)
{
    return p.copy((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, WORDS * 4, stream) ==
           CUDA_SUCCESS;
}

static unsigned last_word(const void *ptr)
{
    unsigned word = 0;

    (void)p.copy_out(&word, (CUdeviceptr)(uintptr_t)ptr + (WORDS - 1) * 4, 4);
    return word;
}

static CUgraphExec end_graph(CUstream stream)
{
    CUgraphExec exec = NULL;
    CUgraph graph;

    if (p.end(stream, &graph) != CUDA_SUCCESS || p.instantiate(&exec, graph, 0) != CUDA_SUCCESS)
        return NULL;
    return p.graph_destroy(graph) == CUDA_SUCCESS ? exec : NULL;
}

static bool run_graph(CUgraphExec exec, CUstream stream)
{
    return p.launch(exec, stream) == CUDA_SUCCESS && p.synchronize(stream) == CUDA_SUCCESS;
}

static void *alloc_words(CUstream stream)
{
    return take(WORDS * 4, 0, stream);
}

/* A graph with a temporary that is freed, and an output that has its value. */
static CUgraphExec graph_of(unsigned value, pool_id id, void **output)
{
    void *temporary;
    CUgraphExec exec;

    if (!begin(id) || !begin_capture(p.a) || (temporary = alloc_words(p.a)) == NULL ||
        !fill(temporary, value, p.a) || (*output = alloc_words(p.a)) == NULL ||
        !copy(*output, temporary, p.a) || !give(temporary))
        return NULL;
    exec = end_graph(p.a);
    return end(id) ? exec : NULL;
}

/* The second graph keeps its output when the first is launched, whose temporary was free. */
static int use_two_graphs(void *arg)
{
    const pool_id first = {1, 0}, second = {2, 0};
    CUgraphExec one, two;
    void *of_one, *of_two;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT((one = graph_of(3, first, &of_one)) != NULL);
    CHILD_EXPECT((two = graph_of(5, second, &of_two)) != NULL);
    CHILD_EXPECT(run_graph(two, p.a) && last_word(of_two) == 5);
    CHILD_EXPECT(run_graph(one, p.a) && last_word(of_one) == 3 && last_word(of_two) == 5);
    return 0;
}

/* Blocks taken after a capture, and filled, lie in no temporary of the graph. */
static int use_eager_beside_graph(void *arg)
{
    const pool_id id = {1, 0};
    void *others[16], *output;
    CUgraphExec exec;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT((exec = graph_of(3, id, &output)) != NULL);
    for (unsigned i = 0; i < 16; i++)
        CHILD_EXPECT((others[i] = alloc_words(p.a)) != NULL && fill(others[i], 100 + i, p.a));
    CHILD_EXPECT(run_graph(exec, p.a) && last_word(output) == 3);
    for (unsigned i = 0; i < 16; i++)
        CHILD_EXPECT(last_word(others[i]) == 100 + i);
    return 0;
}

/* A side stream of the capture reads a block long after the first stream freed it and took others. */
static int use_graph_with_side_stream(void *arg)
{
    const pool_id id = {1, 0};
    void *shared, *far, *later;
    CUgraphExec exec;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT(begin(id));
    CHILD_EXPECT(begin_capture(p.a) && (shared = alloc_words(p.a)) != NULL && fill(shared, 1, p.a));
    CHILD_EXPECT(fork_to(p.b, p.a));
    (void)calls->use(shared, p.b);
    CHILD_EXPECT(hold(p.b, 1) && (far = alloc_words(p.b)) != NULL && copy(far, shared, p.b));
    (void)give(shared);
    CHILD_EXPECT((later = alloc_words(p.a)) != NULL && fill(later, 9, p.a));
    CHILD_EXPECT(fork_to(p.a, p.b) && (exec = end_graph(p.a)) != NULL);
    CHILD_EXPECT(end(id));
    CHILD_EXPECT(p.launch(exec, p.a) == CUDA_SUCCESS);
    pause_ms(20); /* what does not wait for the gate is over, or the test finds nothing */
    open_gate(1);
    CHILD_EXPECT(p.synchronize(p.a) == CUDA_SUCCESS);
    CHILD_EXPECT(last_word(far) == 1 && last_word(later) == 9);
    return 0;
}

/* Without a capture: a stream reads what another has freed. */
static int use_recorded_beside_others(void *arg)
{
    void *source, *far, *later[8];

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT((source = alloc_words(p.a)) != NULL && fill(source, 3, p.a) && fork_to(p.b, p.a));
    CHILD_EXPECT(hold(p.b, 1) && (far = alloc_words(p.b)) != NULL && copy(far, source, p.b));
    (void)calls->use(source, p.b);
    (void)give(source);
    for (int i = 0; i < 8; i++)
        CHILD_EXPECT((later[i] = alloc_words(p.a)) != NULL && fill(later[i], 9, p.a));
    CHILD_EXPECT(p.synchronize(p.a) == CUDA_SUCCESS);
    open_gate(1);
    CHILD_EXPECT(p.synchronize(p.b) == CUDA_SUCCESS && last_word(far) == 3);
    return 0;
}

static void graphs_and_streams_keep_what_they_computed(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(use_two_graphs, NULL, false), 0);
    assert_int_equal(run_in_child(use_eager_beside_graph, NULL, false), 0);
    assert_int_equal(run_in_child(use_graph_with_side_stream, NULL, false), 0);
    assert_int_equal(run_in_child(use_recorded_beside_others, NULL, false), 0);
}

static void choose_machine(int devices)
{
    unsetenv("GVMEM_SOFTGPU");
    fixture_machine_default("devices=%d,memory=1GiB,sms=1", devices); /* the driver is the test's */
}

/* A graph's temporary takes more than half of the device: what comes later does not fit. */
static int fill_after_graph(void *arg)
{
    void *temporary;

    (void)arg;
    choose_machine(1);
    CHILD_EXPECT(load_all());
    CHILD_EXPECT(begin_capture(p.a));
    CHILD_EXPECT((temporary = take(600 << 20, 0, p.a)) != NULL);
    CHILD_EXPECT(give(temporary));
    CHILD_EXPECT(end_capture(p.a));
    CHILD_EXPECT(take(600 << 20, 0, p.b) == NULL);
    CHILD_EXPECT(access_of(temporary, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return 0;
}

static void memory_of_a_graph_stays_on_shortage(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(fill_after_graph, NULL, true), 0);
}

/* What device 0 has given before it was said that device 1 reaches it, a graph's block, too, and what it gives after. */
static int use_two_devices(void *arg)
{
    void *here, *there, *early, *late;

    (void)arg;
    choose_machine(2);
    CHILD_EXPECT(load_all());
    CHILD_EXPECT((here = take(1 << 20, 0, p.a)) != NULL && access_of(here, 1) == 0);
    CHILD_EXPECT((early = capture_block()) != NULL && access_of(early, 1) == 0);
    CHILD_EXPECT((there = take(1 << 20, 1, NULL)) != NULL);
    CHILD_EXPECT(calls->grant(0, 1) == 0 && calls->grant(1, 0) == 0 && calls->grant(0, 0) == 0);
    atomic_store(&grants_fail, true); /* of one that is there already: it stays */
    CHILD_EXPECT(calls->grant(0, 1) != 0);
    atomic_store(&grants_fail, false);
    CHILD_EXPECT((late = capture_block()) != NULL);
    CHILD_EXPECT(access_of(here, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHILD_EXPECT(access_of(there, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHILD_EXPECT(access_of(late, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHILD_EXPECT(access_of(early, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return 0;
}

static void blocks_are_reached_by_devices_that_were_granted_it(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(use_two_devices, NULL, false), 0);
}

static _Atomic gvm_status frees_fail; /* with it */

/* Likewise. */
GVM_API gvm_status gvm_heap_free_after(gvm_heap *heap, void *ptr, const gvm_stream *streams, size_t count)
{
    gvm_status (*call)(gvm_heap *, void *, const gvm_stream *, size_t);

    *(void **)&call = dlsym(loaded, "gvm_heap_free_after");
    return atomic_load(&frees_fail) != GVM_OK ? atomic_load(&frees_fail)
                                              : call(heap, ptr, streams, count);
}

/* A stream of device 1; what is current stays. */
static CUstream make_stream_of_another_device(void)
{
    CUcontext here, there;
    CUstream stream;

    return p.ctx_retain(&here, 0) == CUDA_SUCCESS && p.ctx_retain(&there, 1) == CUDA_SUCCESS &&
                   p.ctx_set(there) == CUDA_SUCCESS &&
                   p.stream_create(&stream, 0) == CUDA_SUCCESS && p.ctx_set(here) == CUDA_SUCCESS
               ? stream
               : NULL;
}

static int use_stream_of_another_device(void *arg)
{
    pool_block found;
    CUstream far;
    void *x;

    (void)arg;
    choose_machine(2);
    CHILD_EXPECT(load_all() && (far = make_stream_of_another_device()) != NULL);
    CHILD_EXPECT((x = take(1 << 20, 0, p.a)) != NULL && calls->use(x, far) == 0 && hold(far, 1));
    atomic_store(&frees_fail, GVM_E_DRIVER); /* then it is the caller's still */
    CHILD_EXPECT(!give(x) && calls->find(x, &found) == 0);
    atomic_store(&frees_fail, GVM_OK);
    CHILD_EXPECT(give(x) && calls->find(x, &found) != 0);
    CHILD_EXPECT(!serves(x, p.a));
    open_gate(1);
    CHILD_EXPECT(p.synchronize(far) == CUDA_SUCCESS && serves(x, p.a));
    return 0;
}

/* One that waited for a capture is tried again, and nobody else's; in a context that is lost there is nothing to wait for. */
static int fail_to_free(void *arg)
{
    pool_block found;
    void *x;

    (void)arg;
    CHILD_EXPECT(load_all() && (x = take(1 << 20, 0, p.a)) != NULL && calls->use(x, p.b) == 0);
    CHILD_EXPECT(begin_capture(p.b) && give(x) && end_capture(p.b));
    atomic_store(&frees_fail, GVM_E_DRIVER);
    CHILD_EXPECT(give(take(5 << 20, 0, p.a)) && calls->find(x, &found) != 0);
    atomic_store(&frees_fail, GVM_OK);
    CHILD_EXPECT(give(take(5 << 20, 0, p.a)) && serves(x, p.a));
    atomic_store(&frees_fail, GVM_E_LOST);
    CHILD_EXPECT((x = take(2 << 20, 0, p.a)) != NULL && calls->use(x, p.b) == 0 && give(x));
    return 0;
}

static void block_of_a_stream_of_another_device_waits_for_it(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(use_stream_of_another_device, NULL, false), 0);
    assert_int_equal(run_in_child(fail_to_free, NULL, false), 0);
}

/* Frees that wait for a capture cost a look each, however many they are; they are freed once it has ended, though
 * another has begun on the same stream. */
static int free_many_late(void *arg)
{
    enum {
        BLOCKS = 500,
        ASKS = 5
    }; /* each: at the free, what waits; twice more after the capture */
    static void *blocks[BLOCKS];

    (void)arg;
    CHILD_EXPECT(load_all());
    for (int i = 0; i < BLOCKS; i++) {
        CHILD_EXPECT((blocks[i] = take(1 << 20, 0, p.a)) != NULL);
        (void)calls->use(blocks[i], p.b);
    }
    CHILD_EXPECT(begin_capture(p.b));
    *p.asked = 0;
    for (int i = 0; i < BLOCKS - 1; i++)
        (void)give(blocks[i]);
    CHILD_EXPECT(!serves(blocks[0], p.a) && *p.asked <= ASKS * BLOCKS);
    CHILD_EXPECT(end_capture(p.b) && begin_capture(p.b));
    (void)give(blocks[BLOCKS - 1]);
    CHILD_EXPECT(!serves(blocks[0], p.a) &&
                 *p.asked <= ASKS * BLOCKS); /* the next capture, of the same stream */
    CHILD_EXPECT(end_capture(p.b));
    CHILD_EXPECT(give(take(5 << 20, 0, p.a)) && p.synchronize(p.b) == CUDA_SUCCESS);
    for (int i = 0; i < BLOCKS; i++) /* takes the lock: a few of those that wait are looked at */
        (void)give(take(5 << 20, 0, p.a));
    for (int i = 0; i < BLOCKS; i++) {
        void *again = take(1 << 20, 0, p.a);
        int at = 0;

        while (at < BLOCKS && blocks[at] != again)
            at++;
        CHILD_EXPECT(at < BLOCKS); /* each serves again, and once */
        blocks[at] = NULL;
    }
    return 0;
}

static void frees_that_wait_for_a_capture_cost_a_look_each(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(free_many_late, NULL, false), 0);
}

/* ---- a limit */

static atomic_bool has_waited;
static _Thread_local bool is_waiter;

/* In the place of the library's, for what is loaded: says when a request has waited. */
GVM_API gvm_status gvm_heap_alloc_async(gvm_heap *heap, size_t size_bytes, const char *tag,
                                        gvm_stream stream, void **out)
{
    gvm_status (*call)(gvm_heap *, size_t, const char *, gvm_stream, void **), status;

    *(void **)&call = dlsym(loaded, "gvm_heap_alloc_async");
    status = call(heap, size_bytes, tag, stream, out);
    if (is_waiter)
        atomic_store(&has_waited, true);
    return status;
}

static void *take_twelve(void *unused)
{
    (void)unused;
    is_waiter = true;
    return take(12 << 20, 0, p.b);
}

static int64_t count_retries(void)
{
    pool_stats stats;

    return calls->stats(0, &stats) == 0 ? stats.retries : -1;
}

/* Of 16 MiB a pool had 12, which it waits for: what it freed is used by a stream with work. The first pool has the others meanwhile. */
static int wait_within_limit(void *arg)
{
    const pool_id other = {7, 0};
    pthread_t waiter;
    void *of_other;

    (void)arg;
    end_child_after(60);
    CHILD_EXPECT(load_all() && calls->set_limit(0, 16 << 20) == 0);
    CHILD_EXPECT(calls->begin(0, other, (pool_filter){takes_stream, drop_nothing, p.b}) == 0);
    CHILD_EXPECT(take(1 << 20, 0, p.a) != NULL && (of_other = take(12 << 20, 0, p.b)) != NULL);
    CHILD_EXPECT(calls->use(of_other, p.c) == 0 && hold(p.c, 1) && give(of_other));
    CHILD_EXPECT(pthread_create(&waiter, NULL, take_twelve, NULL) == 0);
    while (count_retries() == 0)
        pause_ms(1);
    CHILD_EXPECT(take(1 << 20, 0, p.a) != NULL && !atomic_load(&has_waited));
    CHILD_EXPECT(calls->set_limit(0, 16 << 20) == 0 && !atomic_load(&has_waited));
    open_gate(1);
    CHILD_EXPECT(pthread_join(waiter, &of_other) == 0 && of_other != NULL);
    return 0;
}

static void request_that_waits_within_a_limit_holds_up_no_other(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(wait_within_limit, NULL, false), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_given_and_taken_back),
        cmocka_unit_test(trace_has_a_line_for_each_event),
        cmocka_unit_test(block_of_a_busy_stream_goes_to_no_other),
        cmocka_unit_test(block_of_recorded_streams_waits_for_all_of_them),
        cmocka_unit_test(block_of_a_graph_goes_to_no_other_work),
        cmocka_unit_test(graphs_and_streams_keep_what_they_computed),
        cmocka_unit_test(frees_that_wait_for_a_capture_cost_a_look_each),
        cmocka_unit_test(driver_is_asked_for_captures_of_streams_that_can_be),
        cmocka_unit_test(stream_that_may_be_gone_is_not_asked),
        cmocka_unit_test(block_of_a_graph_that_other_streams_use_serves_once),
        cmocka_unit_test(heap_of_a_graph_ends_with_its_pool_and_blocks),
        cmocka_unit_test(pool_begun_last_is_asked_first),
        cmocka_unit_test(memory_of_a_graph_stays_on_shortage),
        cmocka_unit_test(blocks_are_reached_by_devices_that_were_granted_it),
        cmocka_unit_test(request_that_waits_within_a_limit_holds_up_no_other),
        cmocka_unit_test(block_of_a_stream_of_another_device_waits_for_it),
    };

    if (argc != 3)
        return 2;
    library = argv[1];
    capture_driver = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
