/* Heaps for PyTorch and CuPy; see plugin.h. Uses the library's public calls alone: the program may
 * use the same library besides. */
#include "heap/plugin/plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/size.h"

#define DEVICES_MAX 64
#define TRACE_BUFFER_BYTES (1u << 20)
#define TRACE_LINE_MAX 128

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* making heaps; the trace */
static _Atomic(gvm_heap *) heaps[DEVICES_MAX];
static struct {
    int fd;
    size_t used;
    struct timespec start;
    char text[TRACE_BUFFER_BYTES];
} trace; /* while tracing */
static pthread_once_t trace_once = PTHREAD_ONCE_INIT;
static atomic_bool tracing;

static void complain(const char *what)
{
    gvm_error error;

    (void)gvm_error_last(&error);
    fprintf(stderr, "gvmem: %s: %s\n", what, error.text);
}

/* ---- settings */

static const char *setting(const char *name)
{
    gvm_setting row;

    for (uint32_t i = 0; gvm_setting_get(i, &row) == GVM_OK; i++)
        if (strcmp(row.name, name) == 0)
            return row.value;
    return "";
}

/* False, having said so, if it is no size. */
static bool read_size(const char *name, uint64_t fallback, uint64_t *out)
{
    const char *text = setting(name);

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

static void after_fork_in_child(void)
{
    pthread_mutex_init(&lock, NULL); /* its owner may be a thread that is not here */
    if (atomic_exchange(&tracing, false))
        close(trace.fd);
}

__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

static void open_trace(void)
{
    const char *path = setting("GVMEM_HEAP_TRACE");

    if (path[0] == '\0')
        return;
    trace.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (trace.fd < 0) {
        fprintf(stderr, "gvmem: GVMEM_HEAP_TRACE: cannot write %s: %s\n", path, strerror(errno));
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &trace.start);
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

static void record(char kind, const void *ptr, uint64_t bytes, gvm_stream stream)
{
    GVMI_UNCANCELLED;
    struct timespec now;

    if (!atomic_load_explicit(&tracing, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (trace.used > sizeof trace.text - TRACE_LINE_MAX && !flush_trace_locked()) {
        atomic_store(&tracing, false);
        close(trace.fd);
    }
    if (atomic_load(&tracing))
        trace.used += (size_t)snprintf(trace.text + trace.used, TRACE_LINE_MAX,
                                       "%c %llx %llu %llx %lld\n", kind,
                                       (unsigned long long)(uintptr_t)ptr, (unsigned long long)bytes,
                                       (unsigned long long)(uintptr_t)stream,
                                       (long long)(now.tv_sec - trace.start.tv_sec) * 1000000000 +
                                           now.tv_nsec - trace.start.tv_nsec);
    pthread_mutex_unlock(&lock);
}

/* ---- heaps */

static gvm_heap *make_heap_locked(int ordinal)
{
    gvm_heap_options options = {.struct_size = sizeof options};
    gvm_device *device;
    gvm_heap *heap = NULL;

    if (!read_size("GVMEM_HEAP_RESERVE", UINT64_MAX, &options.reserve_bytes) ||
        !read_size("GVMEM_HEAP_LIMIT", 0, &options.limit_bytes))
        return NULL;
    if (options.reserve_bytes == 0) /* to gvm_heap_create() that means the default */
        options.reserve_bytes = 1;
    if (gvm_device_open(ordinal, &device) != GVM_OK) {
        complain("no heap");
        return NULL;
    }
    if (gvm_heap_create(device, &options, &heap) == GVM_OK)
        return heap; /* the opening is kept with it */
    complain("no heap");
    gvm_device_close(device);
    return NULL;
}

gvm_heap *gvm_plugin_heap(int device)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;

    if (device < 0 || device >= DEVICES_MAX)
        return NULL;
    heap = atomic_load_explicit(&heaps[device], memory_order_acquire);
    if (heap != NULL)
        return heap;
    pthread_once(&trace_once, open_trace);
    pthread_mutex_lock(&lock);
    heap = atomic_load(&heaps[device]);
    if (heap == NULL)
        atomic_store_explicit(&heaps[device], heap = make_heap_locked(device), memory_order_release);
    pthread_mutex_unlock(&lock);
    return heap;
}

static void *take(uint64_t bytes, int device, gvm_stream stream, const char *tag)
{
    gvm_heap *heap = gvm_plugin_heap(device);
    void *ptr = NULL;

    if (bytes == 0 || heap == NULL)
        return NULL;
    if (gvm_heap_alloc_async(heap, bytes, tag, stream, &ptr) != GVM_OK)
        complain(tag);
    else
        record('a', ptr, bytes, stream);
    return ptr;
}

static void give(void *ptr, int device, gvm_stream stream, const char *tag)
{
    gvm_heap *heap = gvm_plugin_heap(device);
    size_t bytes = 0;

    if (ptr == NULL || heap == NULL)
        return;
    /* Before it is free: then another thread may be given it, and its line must come later. */
    if (atomic_load_explicit(&tracing, memory_order_relaxed) &&
        gvm_heap_size(heap, ptr, &bytes) == GVM_OK)
        record('f', ptr, bytes, stream);
    if (gvm_heap_free_async(heap, ptr, stream) != GVM_OK)
        complain(tag);
}

/* ---- PyTorch and CuPy */

void *gvm_torch_alloc(ssize_t size, int device, gvm_stream stream)
{
    return size > 0 ? take((uint64_t)size, device, stream, "torch") : NULL;
}

void gvm_torch_free(void *ptr, ssize_t size, int device, gvm_stream stream)
{
    (void)size;
    give(ptr, device, stream, "torch");
}

void *gvm_cupy_alloc(void *param, size_t size, int device)
{
    (void)param;
    return take(size, device, NULL, "cupy");
}

void gvm_cupy_free(void *param, void *ptr, int device)
{
    (void)param;
    give(ptr, device, NULL, "cupy");
}
