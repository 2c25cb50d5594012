/* Heaps for PyTorch and CuPy; see plugin.h. Uses the library's public calls alone: the program may
 * use the same library besides. */
#include "lib/plugin/plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/size.h"
#include "lib/plugin/graphs.h"

#define DEVICES_MAX 64
#define TRACE_BUFFER_BYTES (1u << 20)
#define TRACE_LINE_MAX 128
#define LEGACY ((gvm_stream)0x1)     /* CU_STREAM_LEGACY; also NULL */
#define PER_THREAD ((gvm_stream)0x2) /* CU_STREAM_PER_THREAD */
#define UNKNOWN_CAPTURE UINT64_MAX
#define NO_STREAM ((gvm_stream)(intptr_t)-1)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* making heaps; the trace */
static _Atomic(gvm_heap *) heaps[DEVICES_MAX];
static gvm_device *devices[DEVICES_MAX]; /* open, where there is a heap */
static atomic_bool torch_hooked, cupy_streams_known;
static gvm_cupy_calls cupy;
static struct {
    int fd;
    size_t used;
    int64_t start_ns;
    char text[TRACE_BUFFER_BYTES];
} trace; /* while tracing */
static pthread_once_t trace_once = PTHREAD_ONCE_INIT;
static atomic_bool tracing;

static void print_last_error(const char *what)
{
    gvm_error error;

    (void)gvm_error_last(&error);
    fprintf(stderr, "gvmem: %s: %s\n", what, error.text);
}

/* ---- settings */

static const char *setting_value(const char *name)
{
    gvm_setting_info row = {.struct_size = sizeof row};

    for (uint32_t i = 0; gvm_setting_get_info(i, &row) == GVM_OK; i++)
        if (strcmp(row.name, name) == 0)
            return row.value;
    return "";
}

/* False, having said so, if it is no size. */
static bool read_size(const char *name, uint64_t fallback, uint64_t *out)
{
    const char *text = setting_value(name);

    *out = fallback;
    if (text[0] == '\0' || gvmi_size_parse(text, out))
        return true;
    fprintf(stderr, "gvmem: %s is \"%s\": it should be a size, such as 8GiB\n", name, text);
    return false;
}

/* ---- the trace
 *
 * In a buffer of its own: stdio's would be written a second time by a child made by fork() that exits.
 * A child has nothing to record, as its parent's heaps are not for it. */

/* False, having said so, if not all of it could be written. */
static bool flush_trace_locked(void)
{
    const size_t all = trace.used;

    trace.used = 0;
    for (size_t done = 0; done < all;) {
        const ssize_t n = write(trace.fd, trace.text + done, all - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            fprintf(stderr, "gvmem: GVMEM_HEAP_TRACE: not all of it was written: %s\n",
                    strerror(errno));
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

static void reset_plugin_in_child(void)
{
    pthread_mutex_init(&lock, NULL); /* its owner may be a thread that is not here */
    gvmi_plugin_graphs_forget();
    if (atomic_exchange(&tracing, false))
        close(trace.fd);
}

__attribute__((constructor)) static void watch_plugin_forks(void)
{
    (void)pthread_atfork(NULL, NULL, reset_plugin_in_child);
}

static void open_trace(void)
{
    const char *path = setting_value("GVMEM_HEAP_TRACE");

    if (path[0] == '\0')
        return;
    trace.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (trace.fd < 0) {
        fprintf(stderr, "gvmem: GVMEM_HEAP_TRACE: cannot write %s: %s\n", path, strerror(errno));
        return;
    }
    trace.start_ns = gvmi_now_ns();
    trace.used = (size_t)snprintf(trace.text, TRACE_LINE_MAX, "# gvmem heap trace 1\n");
    atomic_store(&tracing, true);
}

__attribute__((destructor)) static void close_trace(void)
{
    pthread_mutex_lock(&lock);
    if (atomic_exchange(&tracing, false)) {
        (void)flush_trace_locked();
        close(trace.fd);
    }
    pthread_mutex_unlock(&lock);
}

static void trace_event(char kind, const void *ptr, uint64_t bytes, gvm_stream stream)
{
    GVMI_UNCANCELLED;
    int64_t now_ns;

    if (!atomic_load_explicit(&tracing, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    now_ns = gvmi_now_ns();
    if (trace.used > sizeof trace.text - TRACE_LINE_MAX && !flush_trace_locked()) {
        atomic_store(&tracing, false);
        close(trace.fd);
    }
    if (atomic_load(&tracing))
        trace.used += (size_t)snprintf(
            trace.text + trace.used, TRACE_LINE_MAX, "%c %llx %llu %llx %lld\n", kind,
            (unsigned long long)(uintptr_t)ptr, (unsigned long long)bytes,
            (unsigned long long)(uintptr_t)stream, (long long)(now_ns - trace.start_ns));
    pthread_mutex_unlock(&lock);
}

/* ---- heaps */

/* Frameworks let devices reach each other's memory without informing the allocator: so heaps of
 * devices that can do. */
static void grant_to(gvm_heap *heap, gvm_device *peer)
{
    const gvm_status status = gvm_heap_grant(heap, peer, GVM_ACCESS_READWRITE);

    if (status != GVM_OK && status != GVM_E_NOTSUP)
        print_last_error("another device does not reach a heap");
}

static void grant_to_all(gvm_heap *heap, int ordinal)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        if (i != ordinal && atomic_load_explicit(&heaps[i], memory_order_acquire) != NULL)
            grant_to(heap, devices[i]);
}

static gvm_heap *make_heap_locked(int ordinal)
{
    gvm_heap_options options = {.struct_size = sizeof options};
    gvm_device *device;
    gvm_heap *heap = NULL;
    uint64_t decay_ms;

    if (!read_size("GVMEM_HEAP_DECAY", 0, &decay_ms) ||
        !read_size("GVMEM_HEAP_KEEP", 0, &options.keep_bytes) ||
        !read_size("GVMEM_HEAP_LIMIT", 0, &options.limit_bytes))
        return NULL;
    if (options.keep_bytes == 0 && setting_value("GVMEM_HEAP_KEEP")[0] != '\0')
        options.keep_bytes = GVM_BYTES_NONE;
    options.decay_ms = decay_ms < UINT32_MAX ? (uint32_t)decay_ms : UINT32_MAX;
    if (gvm_device_open(ordinal, &device) != GVM_OK) {
        print_last_error("no heap");
        return NULL;
    }
    if (gvm_heap_create(device, &options, &heap) == GVM_OK) {
        devices[ordinal] = device;
        grant_to_all(heap, ordinal);
        for (int i = 0; i < DEVICES_MAX; i++)
            if (atomic_load(&heaps[i]) != NULL)
                grant_to(atomic_load(&heaps[i]), device);
        return heap;
    }
    print_last_error("no heap");
    gvm_device_close(device);
    return NULL;
}

static gvm_heap *find_or_make_heap(int device)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;

    pthread_once(&trace_once, open_trace);
    pthread_mutex_lock(&lock);
    heap = atomic_load(&heaps[device]);
    if (heap == NULL) {
        atomic_store_explicit(&heaps[device], heap = make_heap_locked(device), memory_order_release);
        gvmi_plugin_captures_grant(grant_to_all); /* now that captures to come find the heap */
    }
    pthread_mutex_unlock(&lock);
    return heap;
}

gvm_heap *gvm_plugin_heap(int device)
{
    gvm_heap *heap;

    if (device < 0 || device >= DEVICES_MAX)
        return NULL;
    heap = atomic_load_explicit(&heaps[device], memory_order_acquire);
    return heap != NULL ? heap : find_or_make_heap(device);
}

/* ---- blocks */

/* False, with the error printed, if it is not known. The legacy stream, which most programs use,
 * cannot be captured. */
static bool find_capture(int device, gvm_stream stream, uint64_t *id)
{
    *id = 0;
    if (stream == NULL || stream == LEGACY)
        return true;
    if (gvm_device_get_capture(devices[device], stream, id) == GVM_OK)
        return true;
    print_last_error("cannot tell whether a stream is captured into a graph");
    return false;
}

/* A block that other streams have used. An event of a stream that is captured would say nothing of the
 * work that the stream had before, so the free waits for the capture's end. */
static void free_used_block(gvmi_plugin_use *use)
{
    for (size_t i = 0; i < use->count; i++) {
        uint64_t id;

        if (!find_capture(use->device, use->streams[i], &id))
            id = UNKNOWN_CAPTURE;
        if (id != 0) {
            use->capture_id = id;
            use->captured = use->streams[i];
            gvmi_plugin_late_add(use);
            return;
        }
    }
    if (gvm_heap_free_after(gvm_plugin_heap(use->device), use->ptr, use->streams, use->count) != GVM_OK)
        print_last_error("a block cannot be freed");
    free(use);
}

static bool has_ended(const gvmi_plugin_use *use)
{
    uint64_t id;

    return find_capture(use->device, use->captured, &id) && id != use->capture_id;
}

static void free_ended_uses(void)
{
    gvmi_plugin_use *use = gvmi_plugin_late_take(has_ended);

    while (use != NULL) {
        gvmi_plugin_use *next = use->next;

        free_used_block(use);
        use = next;
    }
}

static void *alloc_plugin_block(uint64_t bytes, int device, gvm_stream stream, const char *tag)
{
    gvm_heap *heap = gvm_plugin_heap(device);
    void *ptr = NULL;
    uint64_t capture_id;

    if (bytes == 0 || heap == NULL)
        return NULL;
    if (stream == PER_THREAD) {
        fprintf(stderr, "gvmem: no block for the per-thread default stream, which is another stream in each "
                        "thread: use streams that the program makes\n");
        return NULL;
    }
    free_ended_uses();
    if (!find_capture(device, stream, &capture_id))
        return NULL;
    if (capture_id != 0)
        heap = gvmi_plugin_capture_heap(devices[device], device, capture_id, grant_to_all);
    if (heap == NULL || gvm_heap_alloc_async(heap, bytes, tag, stream, &ptr) != GVM_OK)
        print_last_error(tag);
    else
        trace_event('a', ptr, bytes, stream);
    return ptr;
}

/* own: the stream is that of the block; else it is the heap that knows it. */
static void free_plugin_block(void *ptr, uint64_t size, int device, gvm_stream stream, bool own,
                              const char *tag)
{
    gvm_heap *heap = gvm_plugin_heap(device);
    gvmi_plugin_use *use;
    size_t bytes = size;

    if (ptr == NULL || heap == NULL)
        return;
    /* Before it is free: then another thread may be given it, and its line must come later. */
    if (atomic_load_explicit(&tracing, memory_order_relaxed) &&
        (gvm_heap_get_size(heap, ptr, &bytes) == GVM_OK || bytes > 0))
        trace_event('f', ptr, bytes, stream);
    use = gvmi_plugin_use_take(ptr);
    if (use != NULL && !gvmi_plugin_capture_free(device, ptr, true)) {
        use->device = device;
        free_used_block(use);
    } else if (use != NULL) {
        free(use);
    } else {
        gvm_status status = own ? gvm_heap_free_async(heap, ptr, stream) : gvm_heap_free(heap, ptr);

        if (status != GVM_OK &&
            (status != GVM_E_FOREIGN || !gvmi_plugin_capture_free(device, ptr, false)))
            print_last_error(tag);
    }
    free_ended_uses();
}

/* ---- PyTorch */

void gvm_torch_hooks_are_set(void)
{
    atomic_store(&torch_hooked, true);
}

void *gvm_torch_alloc(ssize_t size, int device, gvm_stream stream)
{
    if (size <= 0)
        return NULL;
    if (!atomic_load_explicit(&torch_hooked, memory_order_relaxed)) {
        fprintf(stderr,
                "gvmem: no block for PyTorch, which would not tell what other streams use and which "
                "graphs end: set its hooks, as use_in_torch() of examples/gvmem_plugin.py does\n");
        return NULL;
    }
    return alloc_plugin_block((uint64_t)size, device, stream, "torch");
}

void gvm_torch_free(void *ptr, ssize_t size, int device, gvm_stream stream)
{
    free_plugin_block(ptr, size > 0 ? (uint64_t)size : 0, device, stream, true, "torch");
}

void gvm_torch_record_stream(void *ptr, gvm_stream stream)
{
    GVMI_UNCANCELLED;

    if (ptr == NULL)
        return;
    if (stream == PER_THREAD)
        fprintf(stderr, "gvmem: it is not noted that the per-thread default stream uses a block, because that is "
                        "another stream in each thread: use streams that the program makes\n");
    else if (!gvmi_plugin_use_add(ptr, stream))
        fprintf(stderr, "gvmem: out of host memory: it is not noted that a stream uses a block\n");
}

void gvm_torch_pool_begin(int device, gvm_torch_pool pool, const void *filter)
{
    GVMI_UNCANCELLED;

    (void)filter; /* which streams: those that are captured, which is asked of the driver */
    gvmi_plugin_pool_begin(device, pool);
}

void gvm_torch_pool_end(int device, gvm_torch_pool pool)
{
    GVMI_UNCANCELLED;

    gvmi_plugin_pool_end(device, pool);
}

void gvm_torch_pool_release(int device, gvm_torch_pool pool)
{
    GVMI_UNCANCELLED;

    gvmi_plugin_pool_release(device, pool);
}

/* ---- others, which pass the stream */

void *gvm_plugin_alloc(size_t size, int device, gvm_stream stream)
{
    return alloc_plugin_block(size, device, stream, "block");
}

void gvm_plugin_free(void *ptr, int device)
{
    free_plugin_block(ptr, 0, device, NULL, false, "block");
}

/* ---- CuPy */

void gvm_cupy_set_calls(const gvm_cupy_calls *calls)
{
    cupy = *calls;
    atomic_store_explicit(&cupy_streams_known, true, memory_order_release);
}

/* A stream that was not kept may be destroyed, and another get its handle. False: it is not kept. */
static bool keep_stream(gvm_stream stream)
{
    static _Thread_local gvm_stream last;

    if (stream == NULL || stream == last)
        return true;
    if (stream == NO_STREAM || cupy.keep(stream) == 0)
        return false;
    last = stream;
    return true;
}

void *gvm_cupy_alloc(void *param, size_t size, int device)
{
    gvm_stream stream;
    void *ptr, *thread;

    (void)param;
    if (size == 0)
        return NULL;
    if (!atomic_load_explicit(&cupy_streams_known, memory_order_acquire)) {
        fprintf(stderr, "gvmem: no block for CuPy, whose current stream is not known: call gvm_cupy_set_calls(), as "
                        "use_in_cupy() of examples/gvmem_plugin.py does\n");
        return NULL;
    }
    stream = cupy.current_stream();
    if (!keep_stream(stream)) {
        fprintf(stderr, "gvmem: no block for CuPy: its current stream cannot be kept\n");
        return NULL;
    }
    thread = cupy.release_gil();
    ptr = alloc_plugin_block(size, device, stream, "cupy");
    cupy.take_gil(thread);
    return ptr;
}

void gvm_cupy_free(void *param, void *ptr, int device)
{
    void *thread;

    (void)param;
    if (ptr == NULL || !atomic_load_explicit(&cupy_streams_known, memory_order_acquire))
        return;
    thread = cupy.release_gil();
    gvm_plugin_free(ptr, device);
    cupy.take_gil(thread);
}
