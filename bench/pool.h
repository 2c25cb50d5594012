/* bench/pool.h - another allocator, for `gvmem-bench heap --pool FILE` to measure.
 *
 * FILE is a shared library with the functions below, by their names. bench/pools/ has such for
 * PyTorch's caching allocator and RMM's pool.
 *
 * Threads: open and trim are called by one thread, the others by many at once; the device's primary
 * context is current in all of them.
 * Ownership: texts that are returned stay valid.
 */
#ifndef BENCH_POOL_H
#define BENCH_POOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* Before all else. NULL, or why the pool cannot be used. */
const char *bench_pool_open(int device);

/* What it is, for the record. */
const char *bench_pool_name(void);

/* In the order of a stream (a CUstream). NULL: out of memory, or any other failure. */
void *bench_pool_alloc(size_t bytes, void *stream);
void bench_pool_free(void *ptr, size_t bytes, void *stream);

/* What the pool holds of the device's memory, used or not. */
uint64_t bench_pool_committed_bytes(void);

/* Gives back what is not used, as far as the pool can. */
void bench_pool_trim(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

/* The same, found in a library. */
typedef struct bench_foreign_pool {
    const char *(*open)(int device);
    const char *(*name)(void);
    void *(*alloc)(size_t bytes, void *stream);
    void (*free)(void *ptr, size_t bytes, void *stream);
    uint64_t (*committed_bytes)(void);
    void (*trim)(void);
} bench_foreign_pool;

#endif
