/* lib/plugin/: what PyTorch and CuPy call, found as they find it, and the trace that it leaves.
 *
 * usage: test_heap_plugin LIBRARY CAPTURE-DRIVER
 */
#include "tests/unit/unit.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <gvmem/heap.h>

#include "driver/cuda_abi.h"
#include "lib/plugin/plugin.h"
#include "tests/lib/fixture.h"

static const char *library, *capture_driver;

typedef void *torch_alloc_fn(ssize_t size, int device, void *stream);
typedef void torch_free_fn(void *ptr, ssize_t size, int device, void *stream);
typedef void *plugin_alloc_fn(size_t size, int device, void *stream);
typedef void plugin_free_fn(void *ptr, int device);
typedef void *cupy_alloc_fn(void *param, size_t size, int device);
typedef void cupy_free_fn(void *param, void *ptr, int device);
typedef void hooks_fn(void);

/* PyTorch's set-up. */
static void set_hooks(void *handle)
{
    hooks_fn *hooks_are_set;

    *(void **)&hooks_are_set = dlsym(handle, "gvm_torch_hooks_are_set");
    if (hooks_are_set != NULL)
        hooks_are_set();
}

/* Asked by LeakSanitizer at a process's end. A child made by fork() while threads run cannot stop these to look. */
static bool is_child;
GVM_API int __lsan_is_turned_off(void); /* seen by its library */

int __lsan_is_turned_off(void)
{
    return is_child;
}

/* A child that asks for memory is refused; and one that exits, with all that exit() does, has nothing
 * to add to the trace. */
static bool children_leave(torch_alloc_fn *torch_alloc)
{
    int status = -1;
    pid_t pid;

    fflush(stdout); /* the test's own, and nothing else: what the plug-in has stays where it is */
    pid = fork();
    if (pid == 0) {
        is_child = true;
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
        exit(torch_alloc(100000, 0, NULL) == NULL ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static int use_plugin(void *arg)
{
    void *handle = dlopen(library, RTLD_NOW), *ptr, *other;
    torch_alloc_fn *torch_alloc;
    torch_free_fn *torch_free;
    plugin_alloc_fn *plugin_alloc;
    plugin_free_fn *plugin_free;

    (void)arg;
    CHILD_EXPECT(handle != NULL);
    *(void **)&torch_alloc = dlsym(handle, "gvm_torch_alloc");
    *(void **)&torch_free = dlsym(handle, "gvm_torch_free");
    *(void **)&plugin_alloc = dlsym(handle, "gvm_plugin_alloc");
    *(void **)&plugin_free = dlsym(handle, "gvm_plugin_free");
    CHILD_EXPECT(torch_alloc && torch_free && plugin_alloc && plugin_free);
    set_hooks(handle);
    CHILD_EXPECT((ptr = torch_alloc(100000, 0, NULL)) != NULL);
    CHILD_EXPECT((other = plugin_alloc(5 << 20, 0, NULL)) != NULL);
    CHILD_EXPECT(children_leave(torch_alloc));
    torch_free(ptr, 100000, 0, NULL);
    CHILD_EXPECT(torch_alloc(100000, 0, NULL) == ptr); /* of the same stream, at once */
    torch_free(ptr, 100000, 0, NULL);
    plugin_free(other, 0);
    torch_free(NULL, 0, 0, NULL);
    CHILD_EXPECT(torch_alloc(0, 0, NULL) == NULL);
    CHILD_EXPECT(plugin_alloc(0, 0, NULL) == NULL);
    CHILD_EXPECT(torch_alloc(5, -1, NULL) == NULL);
    CHILD_EXPECT(torch_alloc(5, 1000, NULL) == NULL);
    fflush(NULL);
    CHILD_EXPECT(dlclose(handle) == 0);
    return 0;
}

CHILD_TEST(plugin_serves_torch_and_cupy, use_plugin)

static int record_trace(void *arg)
{
    setenv("GVMEM_HEAP_TRACE", arg, 1);
    return use_plugin(NULL);
}

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
    assert_child_succeeds(record_trace, path);
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

static int be_limited(void *arg)
{
    torch_alloc_fn *torch_alloc;
    void *handle;

    (void)arg;
    setenv("GVMEM_HEAP_LIMIT", "4MiB", 1);
    handle = dlopen(library, RTLD_NOW);
    CHILD_EXPECT(handle != NULL);
    *(void **)&torch_alloc = dlsym(handle, "gvm_torch_alloc");
    set_hooks(handle);
    CHILD_EXPECT(torch_alloc(3 << 20, 0, NULL) != NULL);
    CHILD_EXPECT(torch_alloc(3 << 20, 0, NULL) == NULL);
    return 0;
}

static int be_misset(void *arg)
{
    torch_alloc_fn *torch_alloc;
    void *handle;

    (void)arg;
    setenv("GVMEM_HEAP_KEEP", "much", 1);
    handle = dlopen(library, RTLD_NOW);
    CHILD_EXPECT(handle != NULL);
    *(void **)&torch_alloc = dlsym(handle, "gvm_torch_alloc");
    set_hooks(handle);
    CHILD_EXPECT(torch_alloc(3 << 20, 0, NULL) == NULL);
    return 0;
}

/* After 192 MiB at once, 96 MiB again and again: what is not needed goes, or stays. */
static int keep_for(void *arg)
{
    torch_alloc_fn *torch_alloc;
    torch_free_fn *torch_free;
    gvm_heap *(*heap_of)(int device);
    gvm_status (*get_info)(gvm_heap * heap, gvm_heap_info * info);
    gvm_heap_info info = {.struct_size = sizeof info};
    const bool decays = strcmp(arg, "0") == 0;
    void *handle;

    setenv("GVMEM_HEAP_DECAY", arg, 1);
    end_child_after(60);
    handle = dlopen(library, RTLD_NOW);
    CHILD_EXPECT(handle != NULL);
    *(void **)&torch_alloc = dlsym(handle, "gvm_torch_alloc");
    *(void **)&torch_free = dlsym(handle, "gvm_torch_free");
    *(void **)&heap_of = dlsym(handle, "gvm_plugin_heap");
    *(void **)&get_info = dlsym(handle, "gvm_heap_get_info");
    set_hooks(handle);
    do {
        for (ssize_t mib = 192, i = 0; i < 20; mib = 96, i++) {
            void *ptr = torch_alloc(mib << 20, 0, NULL);

            CHILD_EXPECT(ptr != NULL);
            torch_free(ptr, mib << 20, 0, NULL);
        }
        pause_ms(50);
        CHILD_EXPECT(get_info(heap_of(0), &info) == GVM_OK);
    } while (decays && info.decommits == 0);
    return decays || info.decommits == 0 ? 0 : 1;
}

static void settings_are_heeded(void **state)
{
    assert_int_equal(run_in_child(keep_for, "0", true), 0);
    assert_int_equal(run_in_child(keep_for, "1000000", true), 0);
    (void)state;
    assert_int_equal(run_in_child(be_limited, NULL, true), 0);
    assert_int_equal(run_in_child(be_misset, NULL, true), 0);
}

/* ---- streams and graphs */

typedef struct pool {
    unsigned long long first, second;
} pool;

/* The plug-in and the driver under it, whose streams wait for a word. */
static struct {
    torch_alloc_fn *alloc;
    torch_free_fn *free;
    plugin_alloc_fn *plugin_alloc;
    plugin_free_fn *plugin_free;
    cupy_alloc_fn *cupy_alloc;
    cupy_free_fn *cupy_free;
    void (*cupy_set_calls)(const gvm_cupy_calls *calls);
    void (*record_stream)(void *ptr, void *stream);
    void (*pool_begin)(int device, pool id, const void *filter);
    void (*pool_end)(int device, pool id);
    void (*pool_release)(int device, pool id);
    CUresult (*ctx_retain)(CUcontext *ctx, CUdevice device);
    CUresult (*ctx_set)(CUcontext ctx);
    CUresult (*stream_create)(CUstream *stream, unsigned flags);
    CUresult (*synchronize)(CUstream stream);
    CUresult (*host_alloc)(void **ptr, size_t bytes, unsigned flags);
    CUresult (*get_access)(unsigned long long *flags, const CUmemLocation *at, CUdeviceptr address);
    CUresult (*wait_value)(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags);
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
    void *plugin;
    uint32_t *gate;
    CUstream a, b, c;
} p;

static bool load_all(void)
{
    void *driver;
    CUcontext context;

    setenv("GVMEM_DRIVER", capture_driver, 1);
    p.plugin = dlopen(library, RTLD_NOW);
    driver = dlopen(capture_driver, RTLD_NOW);
    if (p.plugin == NULL || driver == NULL)
        return false;
#define FIND(handle, member, name) (*(void **)&p.member = dlsym(handle, name)) != NULL
    if (!(FIND(p.plugin, alloc, "gvm_torch_alloc") && FIND(p.plugin, free, "gvm_torch_free") &&
          FIND(p.plugin, plugin_alloc, "gvm_plugin_alloc") &&
          FIND(p.plugin, plugin_free, "gvm_plugin_free") &&
          FIND(p.plugin, cupy_alloc, "gvm_cupy_alloc") && FIND(p.plugin, cupy_free, "gvm_cupy_free") &&
          FIND(p.plugin, cupy_set_calls, "gvm_cupy_set_calls") &&
          FIND(p.plugin, record_stream, "gvm_torch_record_stream") &&
          FIND(p.plugin, pool_begin, "gvm_torch_pool_begin") &&
          FIND(p.plugin, pool_end, "gvm_torch_pool_end") &&
          FIND(p.plugin, pool_release, "gvm_torch_pool_release") &&
          FIND(driver, ctx_retain, "cuDevicePrimaryCtxRetain") &&
          FIND(driver, ctx_set, "cuCtxSetCurrent") && FIND(driver, stream_create, "cuStreamCreate") &&
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
    (void)p.plugin_alloc(1, 0, NULL); /* starts the driver */
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

static int use_two_streams(void *arg)
{
    void *x, *y, *z;

    (void)arg;
    CHILD_EXPECT(load_all());
    CHILD_EXPECT((x = p.plugin_alloc(1 << 20, 0, p.a)) != NULL && hold(p.a, 1));
    p.plugin_free(x, 0); /* work is under way */
    CHILD_EXPECT((y = p.plugin_alloc(1 << 20, 0, p.b)) != NULL && y != x);
    CHILD_EXPECT((z = p.plugin_alloc(1 << 20, 0, p.c)) != NULL && z != x && z != y);
    CHILD_EXPECT(p.plugin_alloc(1 << 20, 0, p.a) == x); /* behind that work */
    CHILD_EXPECT(p.plugin_alloc(1 << 20, 0, CU_STREAM_PER_THREAD) == NULL);
    CHILD_EXPECT(p.cupy_alloc(NULL, 1 << 20, 0) == NULL); /* no calls, so no stream */
    CHILD_EXPECT(p.alloc(1 << 20, 0, p.a) == NULL);       /* no hooks */
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
        found = p.alloc(1 << 20, 0, stream) == ptr || found;
    return found;
}

static int use_recorded(void *arg)
{
    void *x, *y;

    (void)arg;
    CHILD_EXPECT(load_all());
    set_hooks(p.plugin);
    CHILD_EXPECT((x = p.alloc(1 << 20, 0, p.a)) != NULL);
    p.record_stream(x, p.b);
    p.record_stream(x, p.c);
    p.record_stream(x, p.b);
    CHILD_EXPECT(hold(p.b, 1) && hold(p.c, 2));
    p.free(x, 1 << 20, 0, p.a);
    CHILD_EXPECT(!serves(x, p.a));
    CHILD_EXPECT((y = p.alloc(1 << 20, 0, p.a)) != NULL);
    CHILD_EXPECT(hold(CU_STREAM_PER_THREAD, 1));
    p.record_stream(y, CU_STREAM_PER_THREAD); /* refused: which one is not known */
    p.free(y, 1 << 20, 0, p.a);
    CHILD_EXPECT(serves(y, p.a));
    open_gate(1);
    CHILD_EXPECT(p.synchronize(p.b) == CUDA_SUCCESS);
    CHILD_EXPECT(!serves(x, p.a)); /* c has work still */
    open_gate(2);
    CHILD_EXPECT(p.synchronize(p.c) == CUDA_SUCCESS);
    (void)p.alloc(5 << 20, 0, p.a); /* takes the lock: what has passed is free */
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
    const pool first = {1, 0}, second = {2, 0};
    void *eager, *used, *temporary, *again, *output, *other;

    (void)arg;
    CHILD_EXPECT(load_all());
    set_hooks(p.plugin);
    CHILD_EXPECT((eager = p.alloc(1 << 20, 0, p.a)) != NULL &&
                 (used = p.alloc(1 << 20, 0, p.b)) != NULL);
    p.record_stream(used, p.a);
    p.pool_begin(0, first, NULL);
    CHILD_EXPECT(begin_capture(p.a));
    p.free(eager, 1 << 20, 0, p.a);
    p.free(used, 1 << 20, 0, p.b); /* an event of a captured stream would tell nothing: later */
    CHILD_EXPECT(!serves(used, p.b));
    CHILD_EXPECT((temporary = p.alloc(1 << 20, 0, p.a)) != NULL && temporary != eager);
    p.free(temporary, 1 << 20, 0, p.a);
    CHILD_EXPECT((again = p.alloc(1 << 20, 0, p.a)) == temporary); /* within the capture */
    CHILD_EXPECT((output = p.alloc(1 << 20, 0, p.a)) != NULL && output != temporary);
    p.free(again, 1 << 20, 0, p.a);
    CHILD_EXPECT(end_capture(p.a));
    p.pool_end(0, first);
    CHILD_EXPECT(!serves(temporary, p.a)); /* the graph uses it whenever it is launched */
    p.free(output, 1 << 20, 0, p.a);
    CHILD_EXPECT(!serves(output, p.a));
    CHILD_EXPECT(serves(used, p.b));
    p.pool_begin(0, second, NULL);
    CHILD_EXPECT(begin_capture(p.a));
    CHILD_EXPECT((other = p.alloc(1 << 20, 0, p.a)) != NULL && other != temporary && other != output);
    CHILD_EXPECT(!serves(temporary, p.a) && !serves(output, p.a));
    CHILD_EXPECT(end_capture(p.a));
    p.pool_end(0, second);
    p.pool_release(0, first);
    p.pool_release(0, second); /* blocks of it live */
    p.free(other, 1 << 20, 0, p.a);
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
    CHILD_EXPECT((ptr = p.plugin_alloc(1 << 20, 0, NULL)) != NULL);
    CHILD_EXPECT(p.plugin_alloc(1 << 20, 0, CU_STREAM_LEGACY) != NULL);
    p.plugin_free(ptr, 0);
    CHILD_EXPECT(*p.asked == 0);
    CHILD_EXPECT((ptr = p.plugin_alloc(1 << 20, 0, p.a)) != NULL);
    p.plugin_free(ptr, 0);
    CHILD_EXPECT(*p.asked == 1);
    return 0;
}

static void driver_is_asked_for_captures_of_streams_that_can_be(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(ask_for_captures, NULL, false), 0);
}

/* ---- CuPy */

/* What CuPy and Python tell, and what is asked of them. */
static struct {
    gvm_stream current;
    int kept;  /* answers keep() */
    int keeps; /* calls of it */
    int gil;   /* 1: held */
    int releases;
} cupy = {.kept = 1, .gil = 1};

static gvm_stream current_stream(void)
{
    return cupy.gil == 1 ? cupy.current : (gvm_stream)(intptr_t)-1;
}

static int keep(gvm_stream stream)
{
    cupy.keeps++;
    return cupy.gil == 1 && stream == cupy.current && cupy.kept;
}

static void *release_gil(void)
{
    cupy.gil--;
    cupy.releases++;
    return &cupy;
}

static void take_gil(void *thread)
{
    cupy.gil += thread == &cupy;
}

static int use_cupy(void *arg)
{
    const gvm_cupy_calls calls = {current_stream, keep, release_gil, take_gil};
    void *x, *y;

    (void)arg;
    CHILD_EXPECT(load_all());
    p.cupy_set_calls(&calls);
    CHILD_EXPECT((x = p.cupy_alloc(NULL, 1 << 20, 0)) != NULL && cupy.keeps == 0); /* the legacy stream */
    cupy.current = p.a;
    CHILD_EXPECT((y = p.cupy_alloc(NULL, 1 << 20, 0)) != NULL && cupy.keeps == 1);
    p.cupy_free(NULL, x, 0);
    p.cupy_free(NULL, y, 0);
    CHILD_EXPECT(p.cupy_alloc(NULL, 1 << 20, 0) == y && cupy.keeps == 1);
    cupy.current = p.b;
    CHILD_EXPECT(p.cupy_alloc(NULL, 1 << 20, 0) != y && cupy.keeps == 2);
    CHILD_EXPECT(cupy.gil == 1 && cupy.releases == 6);
    CHILD_EXPECT(p.cupy_alloc(NULL, 0, 0) == NULL);
    p.cupy_free(NULL, NULL, 0);
    CHILD_EXPECT(cupy.gil == 1 && cupy.releases == 6);
    cupy.current = p.c;
    cupy.kept = 0;
    CHILD_EXPECT(p.cupy_alloc(NULL, 1 << 20, 0) == NULL && cupy.keeps == 3);
    cupy.kept = 1;
    CHILD_EXPECT(p.cupy_alloc(NULL, 1 << 20, 0) != NULL && cupy.keeps == 4);
    cupy.current = (gvm_stream)(intptr_t)-1; /* CuPy failed */
    CHILD_EXPECT(p.cupy_alloc(NULL, 1 << 20, 0) == NULL && cupy.keeps == 4 && cupy.gil == 1);
    cupy.current = CU_STREAM_PER_THREAD;
    CHILD_EXPECT(p.cupy_alloc(NULL, 1 << 20, 0) == NULL && cupy.gil == 1);
    return 0;
}

static void block_for_cupy_is_of_its_current_stream_which_is_kept(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(use_cupy, NULL, false), 0);
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
    set_hooks(p.plugin);
    CHILD_EXPECT(begin_capture(p.a));
    CHILD_EXPECT((x = p.alloc(1 << 20, 0, p.a)) != NULL);
    p.record_stream(x, p.b);
    p.free(x, 1 << 20, 0, p.a);
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
    void *ptr = begin_capture(p.a) ? p.alloc(1 << 20, 0, p.a) : NULL;

    return end_capture(p.a) ? ptr : NULL;
}

static int release_pools(void *arg)
{
    const pool first = {1, 0}, second = {2, 0}, third = {3, 0}, fourth = {4, 0};
    void *of_either, *live, *gone;

    (void)arg;
    CHILD_EXPECT(load_all());
    set_hooks(p.plugin);
    p.pool_begin(0, first, NULL);
    p.pool_begin(0, second, NULL);
    CHILD_EXPECT((of_either = capture_block()) != NULL);
    p.pool_end(0, first);
    p.pool_end(0, second);
    p.free(of_either, 1 << 20, 0, p.a);
    p.pool_release(0, first);
    p.pool_release(0, second);
    CHILD_EXPECT(access_of(of_either, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    p.pool_begin(0, third, NULL);
    CHILD_EXPECT((live = capture_block()) != NULL);
    p.pool_end(0, third);
    p.pool_release(0, third);
    CHILD_EXPECT(access_of(live, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    p.free(live, 1 << 20, 0, p.a);
    CHILD_EXPECT(access_of(live, 0) == -1);

    p.pool_begin(0, third, NULL);
    CHILD_EXPECT((gone = capture_block()) != NULL);
    p.pool_end(0, third);
    p.free(gone, 1 << 20, 0, p.a);
    p.pool_begin(0, fourth, NULL); /* another capture, which an end of the heap would spoil */
    p.pool_release(0, third);
    CHILD_EXPECT(access_of(gone, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    p.pool_end(0, fourth);
    CHILD_EXPECT(access_of(gone, 0) == -1);
    return 0;
}

static void heap_of_a_graph_ends_with_its_pool_and_blocks(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(release_pools, NULL, false), 0);
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
    return p.alloc(WORDS * 4, 0, stream);
}

static void free_words(void *ptr, CUstream stream)
{
    p.free(ptr, WORDS * 4, 0, stream);
}

/* A graph with a temporary that is freed, and an output that has its value. */
static CUgraphExec graph_of(unsigned value, pool id, void **output)
{
    void *temporary;
    CUgraphExec exec;

    p.pool_begin(0, id, NULL);
    if (!begin_capture(p.a) || (temporary = alloc_words(p.a)) == NULL || !fill(temporary, value, p.a) ||
        (*output = alloc_words(p.a)) == NULL || !copy(*output, temporary, p.a))
        return NULL;
    free_words(temporary, p.a);
    exec = end_graph(p.a);
    p.pool_end(0, id);
    return exec;
}

/* The second graph keeps its output when the first is launched, whose temporary was free. */
static int use_two_graphs(void *arg)
{
    const pool first = {1, 0}, second = {2, 0};
    CUgraphExec one, two;
    void *of_one, *of_two;

    (void)arg;
    CHILD_EXPECT(load_all());
    set_hooks(p.plugin);
    CHILD_EXPECT((one = graph_of(3, first, &of_one)) != NULL);
    CHILD_EXPECT((two = graph_of(5, second, &of_two)) != NULL);
    CHILD_EXPECT(run_graph(two, p.a) && last_word(of_two) == 5);
    CHILD_EXPECT(run_graph(one, p.a) && last_word(of_one) == 3 && last_word(of_two) == 5);
    return 0;
}

/* Blocks taken after a capture, and filled, lie in no temporary of the graph. */
static int use_eager_beside_graph(void *arg)
{
    const pool id = {1, 0};
    void *others[16], *output;
    CUgraphExec exec;

    (void)arg;
    CHILD_EXPECT(load_all());
    set_hooks(p.plugin);
    CHILD_EXPECT((exec = graph_of(3, id, &output)) != NULL);
    for (unsigned i = 0; i < 16; i++)
        CHILD_EXPECT((others[i] = alloc_words(p.a)) != NULL && fill(others[i], 100 + i, p.a));
    CHILD_EXPECT(run_graph(exec, p.a) && last_word(output) == 3);
    for (unsigned i = 0; i < 16; i++)
        CHILD_EXPECT(last_word(others[i]) == 100 + i);
    return 0;
}

static bool fork_to(CUstream to, CUstream from)
{
    CUevent event;

    return p.event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           p.record(event, from) == CUDA_SUCCESS && p.wait_event(to, event, 0) == CUDA_SUCCESS;
}

/* A side stream of the capture reads a block long after the first stream freed it and took others. */
static int use_graph_with_side_stream(void *arg)
{
    const pool id = {1, 0};
    void *shared, *far, *later;
    CUgraphExec exec;

    (void)arg;
    CHILD_EXPECT(load_all());
    set_hooks(p.plugin);
    p.pool_begin(0, id, NULL);
    CHILD_EXPECT(begin_capture(p.a) && (shared = alloc_words(p.a)) != NULL && fill(shared, 1, p.a));
    CHILD_EXPECT(fork_to(p.b, p.a));
    p.record_stream(shared, p.b);
    CHILD_EXPECT(hold(p.b, 1) && (far = alloc_words(p.b)) != NULL && copy(far, shared, p.b));
    free_words(shared, p.a);
    CHILD_EXPECT((later = alloc_words(p.a)) != NULL && fill(later, 9, p.a));
    CHILD_EXPECT(fork_to(p.a, p.b) && (exec = end_graph(p.a)) != NULL);
    p.pool_end(0, id);
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
    set_hooks(p.plugin);
    CHILD_EXPECT((source = alloc_words(p.a)) != NULL && fill(source, 3, p.a) && fork_to(p.b, p.a));
    CHILD_EXPECT(hold(p.b, 1) && (far = alloc_words(p.b)) != NULL && copy(far, source, p.b));
    p.record_stream(source, p.b);
    free_words(source, p.a);
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
    CHILD_EXPECT((temporary = p.plugin_alloc(600 << 20, 0, p.a)) != NULL);
    p.plugin_free(temporary, 0);
    CHILD_EXPECT(end_capture(p.a));
    CHILD_EXPECT(p.plugin_alloc(600 << 20, 0, p.b) == NULL);
    CHILD_EXPECT(access_of(temporary, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return 0;
}

static void memory_of_a_graph_stays_on_shortage(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(fill_after_graph, NULL, true), 0);
}

/* Device 1 has a heap later than device 0, and than a graph there. */
static int use_two_devices(void *arg)
{
    void *here, *there, *early, *late;

    (void)arg;
    choose_machine(2);
    CHILD_EXPECT(load_all());
    set_hooks(p.plugin);
    CHILD_EXPECT((here = p.alloc(1 << 20, 0, p.a)) != NULL && access_of(here, 1) == 0);
    CHILD_EXPECT((early = capture_block()) != NULL && access_of(early, 1) == 0);
    CHILD_EXPECT((there = p.alloc(1 << 20, 1, NULL)) != NULL);
    CHILD_EXPECT((late = capture_block()) != NULL);
    CHILD_EXPECT(access_of(here, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHILD_EXPECT(access_of(there, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHILD_EXPECT(access_of(late, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHILD_EXPECT(access_of(early, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return 0;
}

static void blocks_are_reached_by_all_devices_in_use(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(use_two_devices, NULL, false), 0);
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
    set_hooks(p.plugin);
    for (int i = 0; i < BLOCKS; i++) {
        CHILD_EXPECT((blocks[i] = p.alloc(1 << 20, 0, p.a)) != NULL);
        p.record_stream(blocks[i], p.b);
    }
    CHILD_EXPECT(begin_capture(p.b));
    *p.asked = 0;
    for (int i = 0; i < BLOCKS - 1; i++)
        p.free(blocks[i], 1 << 20, 0, p.a);
    CHILD_EXPECT(!serves(blocks[0], p.a) && *p.asked <= ASKS * BLOCKS);
    CHILD_EXPECT(end_capture(p.b) && begin_capture(p.b));
    p.free(blocks[BLOCKS - 1], 1 << 20, 0, p.a);
    CHILD_EXPECT(!serves(blocks[0], p.a) &&
                 *p.asked <= ASKS * BLOCKS); /* the next capture, of the same stream */
    CHILD_EXPECT(end_capture(p.b));
    for (int i = 0; i < BLOCKS; i++) /* takes the lock: a few of those that wait are looked at */
        p.free(p.alloc(5 << 20, 0, p.a), 5 << 20, 0, p.a);
    for (int i = 0; i < BLOCKS; i++) {
        void *again = p.alloc(1 << 20, 0, p.a);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plugin_serves_torch_and_cupy),
        cmocka_unit_test(trace_has_a_line_for_each_event),
        cmocka_unit_test(settings_are_heeded),
        cmocka_unit_test(block_of_a_busy_stream_goes_to_no_other),
        cmocka_unit_test(block_of_recorded_streams_waits_for_all_of_them),
        cmocka_unit_test(block_of_a_graph_goes_to_no_other_work),
        cmocka_unit_test(graphs_and_streams_keep_what_they_computed),
        cmocka_unit_test(frees_that_wait_for_a_capture_cost_a_look_each),
        cmocka_unit_test(driver_is_asked_for_captures_of_streams_that_can_be),
        cmocka_unit_test(block_for_cupy_is_of_its_current_stream_which_is_kept),
        cmocka_unit_test(block_of_a_graph_that_other_streams_use_serves_once),
        cmocka_unit_test(heap_of_a_graph_ends_with_its_pool_and_blocks),
        cmocka_unit_test(memory_of_a_graph_stays_on_shortage),
        cmocka_unit_test(blocks_are_reached_by_all_devices_in_use),
    };

    if (argc != 3)
        return 2;
    library = argv[1];
    capture_driver = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
