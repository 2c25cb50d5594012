/* bench/heap.h - the parts of `gvmem-bench heap`.
 *
 *   heap.c         pairs of alloc and free: one thread, sixteen threads
 *   heap_pool.c    what is measured: heaps, the driver's pool, pools of others
 *   heap_replay.c  replaying what a program allocated and freed (heap_trace.h)
 */
#ifndef BENCH_HEAP_H
#define BENCH_HEAP_H

#include "bench/bench.h"
#include "bench/heap_trace.h"
#include "bench/pool.h"

/* One of what is compared. */
typedef struct bench_subject {
    const char *name;
    gvm_heap *heap;                 /* or NULL */
    const bench_foreign_pool *pool; /* of a library; both NULL: the driver's pool */
    CUmemoryPool driver_pool;
    CUstream stream;
    bool ordered; /* by the stream */
} bench_subject;

/* False: it has no memory for that, or the call failed. */
bool bench_take(const bench_subject *s, uint64_t bytes, CUstream stream, void **out);
bool bench_give(const bench_subject *s, void *ptr, uint64_t bytes, CUstream stream);

/* Complains. Other pools may want more than the device has; that is their figure, not a failure. */
void bench_subject_failed(bench *b, const bench_subject *s);

/* What a subject holds of the device's memory; and gives back what of it is free. */
uint64_t bench_committed_bytes(const bench_subject *s);
void bench_give_back(bench *b, const bench_subject *s);

/* The default pool of the device, made to keep what is freed; false, with a note, without pools. */
bool bench_driver_pool_start(bench *b, CUmemoryPool *pool);
void bench_driver_pool_stop(CUmemoryPool pool);

/* Loads b->pool_paths, once; those that cannot be used are said to be, and left out. */
size_t bench_load_pools(bench *b, const bench_foreign_pool **out);

/* The trace to replay: b->trace_path, or a made-up one. False, with a complaint, if there is none. */
bool bench_heap_trace(bench *b, heap_trace *out);

/* The part of the benchmark that replays one. */
void bench_heap_replay(bench *b, const heap_trace *trace);

#endif
