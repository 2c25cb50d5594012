/* Writes the trace; see pools_trace.h. In a buffer of its own: stdio's would be written a second time by a child made by fork() that
 * exits. */
#include "pools_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 20)
#define LINE_MAX_BYTES 128

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all that follows */
static struct {
    int fd;
    size_t used;
    int64_t start_ns;
    char text[BUFFER_BYTES];
} trace; /* while tracing */
static atomic_bool tracing;

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* False, having said so, if not all of it could be written. */
static bool flush_locked(void)
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

void pools_trace_forget(void)
{
    pthread_mutex_init(&lock, NULL); /* its owner may be a thread that is not here */
    if (atomic_exchange(&tracing, false))
        close(trace.fd);
}

void pools_trace_open(const char *path)
{
    if (path[0] == '\0' || atomic_load(&tracing))
        return;
    trace.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (trace.fd < 0) {
        fprintf(stderr, "gvmem: GVMEM_HEAP_TRACE: cannot write %s: %s\n", path, strerror(errno));
        return;
    }
    trace.start_ns = now_ns();
    trace.used = (size_t)snprintf(trace.text, LINE_MAX_BYTES, "# gvmem heap trace 1\n");
    atomic_store(&tracing, true);
}

__attribute__((destructor)) static void close_trace(void)
{
    pthread_mutex_lock(&lock);
    if (atomic_exchange(&tracing, false)) {
        (void)flush_locked();
        close(trace.fd);
    }
    pthread_mutex_unlock(&lock);
}

void pools_trace_event(char kind, const void *address, uint64_t bytes, const void *stream)
{
    if (!atomic_load_explicit(&tracing, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    if (trace.used > sizeof trace.text - LINE_MAX_BYTES && !flush_locked()) {
        atomic_store(&tracing, false);
        close(trace.fd);
    }
    if (atomic_load(&tracing))
        trace.used += (size_t)snprintf(
            trace.text + trace.used, LINE_MAX_BYTES, "%c %llx %llu %llx %lld\n", kind,
            (unsigned long long)(uintptr_t)address, (unsigned long long)bytes,
            (unsigned long long)(uintptr_t)stream, (long long)(now_ns() - trace.start_ns));
    pthread_mutex_unlock(&lock);
}
