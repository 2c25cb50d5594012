/* Pools: heaps in the place of a framework's allocator.
 *
 * A pool is memory of a device that no other pool uses. The first of a device has what nobody names a pool for. Others have
 * the numbers that a framework gives them: what it takes between pools_begin() and pools_end(), on streams that
 * the filter takes, is theirs; of several that are begun it is the latest one's, whichever was made first. Numbers have as many users as pools_retain() and pools_begin() have counted; when the last has
 * called pools_release(), and no block is left, the memory goes back.
 *
 * Graphs: a graph uses the addresses of its capture whenever it is launched, those of blocks that were freed, too. So what is
 * taken while its stream is captured comes from a heap of the pool that keeps all its memory, and serves nothing but
 * captures into this pool: graphs that share a pool replay in the order of their captures, and never at the same time. Captures
 * without a pool have one of their own, which stays until the process ends. The end of a pool waits for its device, which ends
 * captures of streams there, so none ends while any pool is begun. A capture into no pool that was begun is not known: the end
 * of a pool, of whichever device, may end it.
 *
 * Streams: a block is used by the work of the stream that it was taken for, and serves that stream again at once. A stream that
 * pools_use() names besides is waited for by an event, recorded when the block is freed; while one of these
 * streams is captured, where an event would be part of the graph, the free is put off.
 *
 * Threads: any thread may call; a filter is called with the lock held, and must call nothing of this. Blocks are found by their address. In a child made by fork() of a process that has
 * used pools nothing is given, and frees do nothing.
 *
 * This file is C and C++, and needs no other: the allocator for PyTorch (gvmem/torch_allocator.cpp) is compiled against it on the
 * user's machine. Calls that return int return a gvm_status: 0 is success, and error() has the text of what else happened.
 */
#ifndef GVMEM_PYTHON_POOLS_H
#define GVMEM_PYTHON_POOLS_H

#include <stddef.h>
#include <stdint.h>

enum { POOLS_NO_SPACE = 21 }; /* GVM_E_NOSPACE: the one failure that frameworks tell from others */

typedef struct pool_id {
    unsigned long long first, second; /* both 0: the first pool of a device; or any, where that is said */
} pool_id;

typedef struct pool_filter {
    int (*takes)(void *arg, void *stream);
    void (*drop)(void *arg); /* it is not called any more */
    void *arg;
} pool_filter;

/* As PyTorch counts. */
typedef struct pool_count {
    int64_t current, peak, allocated, freed;
} pool_count;

enum {
    POOLS_ALL,
    POOLS_SMALL,
    POOLS_LARGE,
    POOLS_SIZES
}; /* all; those of up to 1 MiB; those above */

typedef struct pool_stats {
    pool_count blocks[POOLS_SIZES];
    pool_count bytes[POOLS_SIZES]; /* in multiples of 512 */
    pool_count requested_bytes[POOLS_SIZES];
    int64_t held_bytes,
        held_peak_bytes;   /* of memory; the peak of several pools is that of each, added up */
    int64_t pending_bytes; /* freed, waiting for streams */
    int64_t segments;      /* ranges of addresses */
    int64_t commits, decommits;
    int64_t retries, failures;
    int64_t idle_bytes; /* of held ones: nothing uses them */
} pool_stats;

typedef enum pool_use { POOL_FREE, POOL_LIVE, POOL_SHELVED, POOL_PENDING } pool_use;

/* A block, or what is free between two. */
typedef struct pool_extent {
    int device;
    pool_id pool;
    void *address;
    void *range; /* where the memory begins that goes on to here without a gap */
    void *stream;
    uint64_t bytes;           /* that it takes */
    uint64_t requested_bytes; /* of a live one */
    pool_use use;
} pool_extent;

typedef struct pool_block {
    void *address;
    void *stream;
    uint64_t requested_bytes;
    int device;
    pool_id pool;
} pool_block;

typedef struct pool_calls {
    size_t struct_bytes; /* sizeof(pool_calls) */
    const char *(*error)(void);
    int (*alloc)(int device, uint64_t bytes, void *stream, void **out);
    int (*free)(void *address);
    int (*use)(void *address, void *stream);
    int (*find)(void *address, pool_block *out);              /* the block that begins there */
    int (*begin)(int device, pool_id id, pool_filter filter); /* the filter is dropped in any case */
    int (*end)(int device, pool_id id);
    int (*retain)(int device, pool_id id);
    int (*release)(int device, pool_id id);
    int (*users)(int device, pool_id id);
    int (*trim)(int device, pool_id id); /* device -1: all; of {0, 0}: of all pools */
    int (*set_limit)(int device,
                     uint64_t bytes); /* of all its pools together, within what pools_choose() has said */
    int (*grant)(int device, int peer); /* the peer reaches what is the device's */
    int (*stats)(int device, pool_stats *out);
    int (*reset_peaks)(int device);
    int (*reset_counts)(int device);
    int (*walk)(pool_id id, void (*each)(void *arg, const pool_extent *extent),
                void *arg); /* {0, 0}: all pools */
} pool_calls;

#ifndef __cplusplus
#define POOLS_DECAY_NONE UINT32_MAX

typedef struct pools_options {
    uint64_t limit_bytes, keep_bytes; /* as gvm_heap_options; 0: the defaults, or what was said before */
    uint32_t decay_ms;                /* likewise; POOLS_DECAY_NONE: 0 is said */
} pools_options;

extern const pool_calls pools;

/* pools.alloc() for streams that may be destroyed at any time. The block is not kept for its stream: before a block that was freed
 * is used again, the work of the streams that pools.use() named has ended, or all work of the device if it named none. A free waits for all work
 * of the device where one of them is captured, too. Within a capture it is pools.alloc(), but what is freed with another stream of it stays the graph's. */
int pools_alloc_unordered(int device, uint64_t bytes, void *stream, void **out);

/* No live block is a stream's, and nobody gives it work any more: it may be destroyed once this succeeds. What was freed on it serves
 * others then. GVM_E_TIMEOUT: it has work still; it is not waited for. */
int pools_stream_end(void *stream);

/* For devices whose first block is still to come. What is 0 stays as an earlier call has said; how much is kept and
 * for how long are one option: the later one counts. */
void pools_choose(const pools_options *options);
#endif
#endif
