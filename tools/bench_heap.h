/* tools/bench_heap.h - the two parts of `gvmem bench heap`.
 *
 *   bench_heap.c        pairs of alloc and free: one thread, sixteen threads
 *   bench_heap_trace.c  replaying what a program allocated and freed
 *
 * A trace is text, a line an event, in the order of time:
 *
 *     # gvmem heap trace 1
 *     a ID BYTES STREAM NS     allocated
 *     f ID BYTES STREAM NS     freed
 *
 * ID is a hexadecimal number that no other live block has (the recorder writes the address), BYTES
 * decimal, STREAM the stream's handle in hexadecimal, NS the time since the start in nanoseconds,
 * which only people look at. Other lines that begin with '#' are comments. The plug-in
 * (heap/plugin/plugin.c) records such traces.
 *
 * Threads: one. Ownership: bench_trace_read() and bench_trace_make() give a trace that is freed with
 * bench_trace_free().
 */
#ifndef TOOLS_BENCH_HEAP_H
#define TOOLS_BENCH_HEAP_H

#include "tools/bench.h"

#define BENCH_TRACE_STREAMS_MAX 64u

typedef struct bench_event {
    uint64_t bytes;
    uint32_t block;  /* its number: [0, blocks_max) */
    uint16_t stream; /* [0, streams) */
    bool is_free;
} bench_event;

typedef struct bench_trace {
    bench_event *events;
    size_t count, capacity;
    uint32_t blocks_max; /* live at once */
    unsigned streams;
    uint64_t stream_handles[BENCH_TRACE_STREAMS_MAX];
    uint64_t peak_bytes; /* requested */
} bench_trace;

/* False, with a complaint, if the file is no trace. */
bool bench_trace_read(const char *path, bench_trace *out);

/* One like those of training a network: layers of weights that stay, activations that the backward
 * pass frees in reverse, workspaces, small tensors everywhere, sizes that change from step to step.
 * About so many bytes at its peak. False: out of memory. */
bool bench_trace_make(uint64_t peak_bytes, unsigned steps, bench_trace *out);
void bench_trace_free(bench_trace *trace);

/* The part of the benchmark that replays one. */
void bench_heap_replay(bench *b);

/* The default pool of the device, made to keep what is freed; false, with a note, without pools. */
bool bench_pool_start(bench *b, CUmemoryPool *pool);
void bench_pool_stop(CUmemoryPool pool);

#endif
