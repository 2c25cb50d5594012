/* bench/heap_trace.h - what a program allocated and freed: reading it, and making it up.
 *
 * A trace is text, a line an event, in the order of time:
 *
 *     # gvmem heap trace 1
 *     a ID BYTES STREAM [NS]     allocated
 *     f ID BYTES STREAM [NS]     freed
 *
 * ID is a hexadecimal number that no other live block has (the recorder writes the address), BYTES
 * decimal, STREAM the stream's handle in hexadecimal, NS the time since the start in nanoseconds,
 * which only people look at. Other lines that begin with '#' are comments. A file whose name ends in
 * ".gz" is read through gzip(1). Python's allocators (python/src/pools_trace.c) record such traces;
 * bench/record-heap-trace.py makes them small.
 *
 * Threads: one. Ownership: heap_trace_read() and heap_trace_make() give a trace that is freed with
 * heap_trace_free().
 */
#ifndef BENCH_HEAP_TRACE_H
#define BENCH_HEAP_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_TRACE_STREAMS_MAX 64u

typedef struct heap_event {
    uint64_t bytes;
    uint32_t block;  /* its number: [0, blocks_max) */
    uint16_t stream; /* [0, streams) */
    bool is_free;
} heap_event;

typedef struct heap_trace {
    heap_event *events;
    size_t count, capacity;
    uint32_t blocks_max; /* live at once */
    unsigned streams;
    uint64_t stream_handles[HEAP_TRACE_STREAMS_MAX];
    uint64_t peak_bytes; /* requested */
} heap_trace;

/* False, with a complaint, if the file is no trace. */
bool heap_trace_read(const char *path, heap_trace *out);

/* One like those of training a network: layers of weights that stay, activations that the backward
 * pass frees in reverse, workspaces, small tensors everywhere, sizes that change from step to step.
 * About so many bytes at its peak. False: out of memory. */
bool heap_trace_make(uint64_t peak_bytes, unsigned steps, heap_trace *out);
void heap_trace_free(heap_trace *trace);

#endif
