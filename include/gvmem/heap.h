/* gvmem/heap.h - malloc for device memory: many blocks out of few driver calls, or pieces of their own.
 *
 * A heap reserves addresses a gigabyte at a time, cuts blocks out of them, and puts memory only under
 * what was asked for. Freed memory is used again, and given back to the driver when it was not needed for a while, or
 * when there is more of it than the program wants kept. When the device is full, every allocation of the
 * process is served first from what the process's heaps keep free. Blocks of more than 14 KiB begin at multiples of
 * 16 KiB and take multiples of it. Smaller ones begin at multiples of 256 bytes: the heap cuts 64 or 128 KiB into cells of
 * one size. A cell has a multiple of 256 bytes up to 2 KiB, above one of four sizes to a doubling, so rounding loses 255
 * bytes or a fifth of the cell at most. gvm_heap_alloc_aligned() gives blocks of any size at larger multiples.
 *
 *     gvm_heap_create(device, NULL, &heap);
 *     gvm_heap_alloc(heap, 20 << 20, &ptr);      takes 20 MiB, not 32
 *     gvm_heap_free(heap, ptr);
 *
 * Streams: what gvm_heap_alloc() gives may be used at once, by any work. What
 * gvm_heap_alloc_async() gives belongs to a stream: it may be memory that earlier work of that
 * stream still uses, so only work that is ordered behind it may touch it. gvm_heap_free() requires all
 * work on the block to be over, as free(3) does; gvm_heap_free_async() requires it to be ordered
 * before the call, on the stream named, or over. Before a stream that
 * was used here is destroyed, gvm_heap_stream_end() must be called. Do not
 * allocate or free for a stream under capture (gvm_device_get_capture()) in a heap that other work uses: a graph uses
 * its blocks at each launch. A capture has a heap of its own that keeps all its memory (GVM_HEAP_KEEP) and is
 * destroyed after the graph, as in python/src/pools.h.
 * Where blocks are freed on the legacy default stream the library may record an event there at any time, which ends a
 * capture of a stream made without CU_STREAM_NON_BLOCKING: call gvm_heap_stream_end(heap, NULL) before such a
 * capture, and allocate no block on that stream until it has ended.
 *
 * Kinds: memory of the device; pinned memory of the host, which the device reaches at the same
 * address; and managed memory, whose pages the driver moves to the processor that touches them. The managed
 * heaps of a process together never grow beyond the device's free memory, because beyond it the
 * driver may stop the whole device.
 *
 * Threads: any thread may call. Requests up to 1 MiB are mostly served by a shelf that belongs to
 * the thread: without a lock, a system call, or a cache line that others write. A thread that ends
 * gives its shelf back. Larger ones and the rest go through one lock for each heap, which is held while memory is
 * committed (and what was committed of a request that cannot be met is taken back), and never while free memory is given
 * back, or while a stream or a kernel is waited for. A child made by fork() cannot use its parent's heaps.
 * Ownership: the caller owns a heap and ends it with gvm_heap_destroy(), and a block until it is
 * freed, and a piece until gvm_free(). A heap keeps its device alive.
 * Errors that any call here may return besides those listed: GVM_E_FOREIGN (the heap is unknown,
 * destroyed or the parent process's, or the pointer is not the start of a live block of it: a second
 * free returns that, too), GVM_E_NOMEM (host memory), GVM_E_LOST (the context is broken),
 * GVM_E_DRIVER (the driver refused for a reason without a code of its own).
 *
 * Giving pinned or managed memory back to the system waits for all kernels that run (cuMemHostUnregister, cuMemFree;
 * cuMemFree also on devices without virtual memory management). So heaps of these kinds do it only in
 * gvm_heap_trim(), in a request that finds memory short, and at their end; until then they keep what they have,
 * whatever keep_bytes and the limit say. No call that frees waits for a kernel.
 *
 * Pinned memory comes in pieces of 16 MiB, or one of its own for a block of more than 8 MiB, each registered with the driver
 * at once: no block crosses two, which calls that copy or fill (cuMemcpy..., cuMemset...) would refuse.
 *
 * Pieces: gvm_alloc(), gvm_alloc_pitch() and gvm_free() need no heap, and no size when freeing. They are for few and large ones, in place of
 * cuMemCreate and cuMemMap by hand: each piece is a buffer that is committed whole, of 2 MiB at least, with the bandwidth of
 * cuMemAlloc memory; gvm_alloc_buffer() finds that buffer, to move, seal, grant or share the piece.
 *
 * Semantics: malloc(3), and for streams CUDA Driver API, "Stream Ordered Memory Allocator".
 */
#ifndef GVMEM_HEAP_H
#define GVMEM_HEAP_H

#include <gvmem/buffer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_heap gvm_heap;

/* Every block of more than 14 KiB begins at a multiple of this, and takes a multiple of it. */
#define GVM_HEAP_UNIT_BYTES (16ull << 10)

#define GVM_HEAP_ALIGNMENT_MAX (2ull << 20) /* that gvm_heap_alloc_aligned() can be asked for */

typedef enum gvm_heap_kind {
    GVM_HEAP_DEVICE = 0,
    GVM_HEAP_HOST = 1,
    GVM_HEAP_MANAGED = 2,
} gvm_heap_kind;

enum {
    /* Blocks are never to be exported: saves the driver the bookkeeping; see GVM_BUFFER_UNSHARED. */
    GVM_HEAP_UNSHARED = 1u << 0,
    /* Memory stays where it is, on shortage too, until gvm_heap_trim() or the heap's end: for blocks that work uses
     * after they are freed, as a graph does. With keep_bytes and decay_ms 0 only. */
    GVM_HEAP_KEEP = 1u << 1,
};

/* Asked when a request cannot be met: wanted_bytes more would have to be committed. No lock is
 * held: it may free blocks, of this heap or of others, and trim; it must not destroy the heap.
 * Returns non-zero if it is worth trying again; after 64 times the request fails all the same. */
typedef int (*gvm_heap_exhausted)(gvm_heap *heap, uint64_t wanted_bytes, void *arg);

/* A request that finds memory short may wait for streams. This is called before it does, with begins 1, and afterwards, with begins 0, in the
 * thread of the request, any number of times. The heap holds no lock then. It is for programs that hold a lock of their own around requests, and
 * let it go meanwhile. It may call gvm_heap_get_info() and set the heap's limit, and nothing else of the heap. */
typedef void (*gvm_heap_waits)(gvm_heap *heap, int begins, void *arg);

/* Zero means default in every other member. */
typedef struct gvm_heap_options {
    size_t struct_size; /* in: sizeof(gvm_heap_options) */
    gvm_heap_kind kind;
    uint32_t flags; /* GVM_HEAP_... */
    uint64_t limit_bytes; /* of committed memory; 0 and GVM_BYTES_UNLIMITED: what the device, or the host, has */
    /* Most idle memory that is kept, however long nobody asks for it. With 0 the library's thread gives memory back that
     * was idle while requests asked for twice the committed bytes, and for decay_ms at least. Where there are hardly any
     * requests it gives back what was idle for two to three seconds. Before a new peak, idle memory beyond 1/32 of what
     * is committed (64 MiB at least) goes first. GVM_BYTES_NONE: none is kept. GVM_BYTES_UNLIMITED: all, until memory is
     * short. Heaps of pinned and managed memory keep all. */
    uint64_t keep_bytes;
    /* Most that a thread's shelf holds; 0: 8 MiB; GVM_BYTES_NONE: no shelves; what is more than just below 1 GiB
     * counts as that, GVM_BYTES_UNLIMITED too. A shelf that was not used for a second or two is emptied. */
    uint64_t shelf_bytes;
    gvm_heap_exhausted exhausted; /* NULL: requests fail at once */
    void *exhausted_arg;
    /* With keep_bytes 0: what is free is kept at least so long, in milliseconds, however much is asked for meanwhile.
     * Longer holds more memory and commits less anew: for a training whose steps differ in size, a time of many steps. */
    uint32_t decay_ms;
    gvm_heap_waits waits; /* or NULL */
    void *waits_arg;
} gvm_heap_options;

/* gvm_heap_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_heap_options)

/* A row of statistics: blocks of more than half of and up to block_bytes. */
typedef struct gvm_heap_order {
    uint64_t block_bytes;
    uint64_t blocks;       /* given out */
    uint64_t shelf_blocks; /* on shelves, or waiting for a stream */
} gvm_heap_order;

#define GVM_HEAP_ORDERS 17 /* 16 KiB, and less, to 1 GiB, and more */

/* A snapshot. All figures are of one moment. */
typedef struct gvm_heap_info {
    size_t struct_size;            /* in: sizeof(gvm_heap_info) */
    uint64_t requested_bytes;      /* what live blocks were asked for */
    uint64_t requested_peak_bytes; /* may miss up to 4 MiB a thread */
    uint64_t block_bytes;          /* what live blocks take: requests, rounded up */
    uint64_t shelf_bytes;          /* of free blocks on shelves */
    uint64_t pending_bytes;        /* freed, waiting for a stream that is not the block's own */
    uint64_t committed_bytes;      /* memory held */
    uint64_t committed_peak_bytes;
    uint64_t idle_bytes;    /* of that: chunks that no block uses */
    uint64_t address_bytes; /* reserved */
    uint64_t limit_bytes;   /* GVM_BYTES_UNLIMITED: none */
    uint64_t blocks;        /* live */
    uint64_t commits;       /* calls to put memory behind addresses, since creation */
    uint64_t decommits;     /* and to take it away */
    uint64_t exhausted;     /* times that a request found too little and had to make room */
    uint32_t segments;
    uint32_t streams; /* that have addresses of their own, with or without blocks there */
    gvm_heap_kind kind;
    int32_t ordinal; /* the device */
    gvm_heap_order orders[GVM_HEAP_ORDERS];
    uint64_t slab_bytes; /* cut into cells for small blocks; the other figures count each cell in use as a block */
    uint64_t slab_free_bytes; /* of that: in no cell, or in one that is free and on no shelf */
    uint64_t slabs;
} gvm_heap_info;

/* A live block. */
typedef struct gvm_heap_block {
    void *address;
    uint64_t size_bytes; /* as requested */
    const char *tag;     /* "" if none was given */
} gvm_heap_block;

/* Live blocks of one tag. */
typedef struct gvm_heap_usage {
    const char *tag;
    uint64_t blocks;
    uint64_t size_bytes; /* as requested */
} gvm_heap_usage;

typedef enum gvm_heap_use {
    GVM_HEAP_USE_FREE = 0,
    GVM_HEAP_USE_LIVE = 1,
    GVM_HEAP_USE_SHELVED = 2, /* free, on the shelf of a thread */
    GVM_HEAP_USE_PENDING = 3, /* freed, waiting for a stream that is not the block's own */
} gvm_heap_use;

/* Memory of a heap: a block, or what is free between two. */
typedef struct gvm_heap_extent {
    void *address;
    uint64_t len_bytes;  /* what the block takes */
    uint64_t size_bytes; /* as requested; 0 if it is free */
    const char *tag;     /* of a live block; "" if none was given */
    void *range;         /* where the memory begins that goes on to here without a gap */
    gvm_stream stream;   /* to which it belongs, or NULL */
    uint32_t ordered; /* 1: stream is meant, NULL being the legacy default stream; 0: it is no stream's */
    gvm_heap_use use;
} gvm_heap_extent;

/* Makes an empty heap. options may be NULL.
 *
 * GVM_E_INVALID  unknown kind or flags, GVM_HEAP_KEEP with keep_bytes or decay_ms, wrong struct_size, out is NULL
 * GVM_E_NOTSUP   the device cannot do this kind of memory */
GVM_API GVM_CHECKED gvm_status gvm_heap_create(gvm_device *device, const gvm_heap_options *options,
                                               gvm_heap **out);

/* Gives a block of at least size_bytes, contents undefined. The second form names what it is for;
 * the text is kept by pointer and must outlive the block (NULL: no tag).
 *
 * GVM_E_INVALID   size_bytes is 0 or above 32 TiB, or out is NULL
 * GVM_E_NOSPACE   too little memory is free, or the heap's limit is reached, after what is free has
 *                 been given back (on a full device that of the whole process), smaller chunks have been tried,
 *                 streams have been waited for that freed blocks (some 10 s at most, since their work may itself
 *                 wait for the caller), and the callback
 *                 has been called; the error text has the figures. For host memory GVM_E_NOMEM.
 * GVM_E_ADDRESS   the address space is used up
 * GVM_E_LIMIT     the process has too many mappings
 * GVM_E_SYSTEM    the system has no random numbers for a segment's identity
 *
 * Nothing changes by a failure, but that a heap of pinned memory may have committed some of what was missing. May
 * block on the driver (about 40 us a chunk, of 2 MiB in small heaps and 16 MiB in others); waits for streams only
 * when memory is short. */
GVM_API GVM_CHECKED gvm_status gvm_heap_alloc(gvm_heap *heap, size_t size_bytes, void **out);
GVM_API GVM_CHECKED gvm_status gvm_heap_alloc_tagged(gvm_heap *heap, size_t size_bytes,
                                                     const char *tag, void **out);

/* Gives a block to work of a stream. Streams do not share memory with each other: each has segments
 * of its own until gvm_heap_stream_end(). stream NULL is the legacy default stream; on the
 * per-thread default stream (CU_STREAM_PER_THREAD) this is gvm_heap_alloc_tagged().
 *
 * Errors as gvm_heap_alloc(). */
GVM_API GVM_CHECKED gvm_status gvm_heap_alloc_async(gvm_heap *heap, size_t size_bytes,
                                                    const char *tag, gvm_stream stream, void **out);

/* The same at an address that is a multiple of alignment_bytes, a power of two up to GVM_HEAP_ALIGNMENT_MAX. Alignments
 * up to 256 change nothing, as every block has them. Only small blocks whose size is no multiple of alignment_bytes take more
 * memory than by the calls above: the next larger size of cells that is a multiple, or 16 KiB. Requests for more than 16 KiB as
 * alignment_bytes are served through the heap's lock.
 *
 * GVM_E_INVALID  alignment_bytes is no power of two or too large
 * GVM_E_ADDRESS  managed or cuMemAlloc memory of a block of more than 32 MiB, where the driver gave other addresses:
 *                it is idle memory of the heap then
 * and the errors of gvm_heap_alloc() */
GVM_API GVM_CHECKED gvm_status gvm_heap_alloc_aligned(gvm_heap *heap, size_t size_bytes,
                                                      size_t alignment_bytes, const char *tag,
                                                      void **out);
GVM_API GVM_CHECKED gvm_status gvm_heap_alloc_aligned_async(gvm_heap *heap, size_t size_bytes,
                                                            size_t alignment_bytes, const char *tag,
                                                            gvm_stream stream, void **out);

/* Frees a block on which no work is under way. NULL is a success. */
GVM_API gvm_status gvm_heap_free(gvm_heap *heap, void *ptr);

/* Frees a block when the work that is on the stream now is done. On the stream that it was
 * allocated for that costs nothing; on another one, or for a block of gvm_heap_alloc(), an event is
 * recorded. NULL is a success.
 *
 * GVM_E_INVALID  an event would have to be recorded, and the stream is being captured into a graph, or is the legacy default stream
 *                while one that waits for it is: the block stays, and the capture goes on
 * GVM_E_NOSPACE  the driver has no memory for an event; the block stays */
GVM_API gvm_status gvm_heap_free_async(gvm_heap *heap, void *ptr, gvm_stream stream);

/* Frees a block when the work that is now on all of the streams is done, besides what is on the stream
 * that it was allocated for: for blocks that several streams have used, also of other devices. count may be 0. Streams must not be
 * destroyed. NULL for ptr is a success.
 *
 * GVM_E_INVALID  streams is NULL, and count is not 0; or one of them is captured, as for gvm_heap_free_async()
 * GVM_E_NOSPACE  the driver has no memory for an event; the block stays */
GVM_API gvm_status gvm_heap_free_after(gvm_heap *heap, void *ptr, const gvm_stream *streams,
                                       size_t count);

/* Makes a block larger or smaller where it is; what it holds stays. It grows within its last 16 KiB,
 * and beyond as far as the addresses behind it are free (and their memory is not just being given back): there is no
 * promise that they are. One of up to 14 KiB grows within what it takes, and not beyond. Work on what
 * is cut off must be over, as for gvm_heap_free(): it may be another block's at once.
 *
 * GVM_E_INVALID  size_bytes is 0 or above 32 TiB
 * GVM_E_ADDRESS  there is no room behind the block: allocate, copy and free
 * and the errors of gvm_heap_alloc() */
GVM_API GVM_CHECKED gvm_status gvm_heap_resize(gvm_heap *heap, void *ptr, size_t size_bytes);

/* What was asked for when the block was allocated or resized.
 *
 * GVM_E_INVALID  size_bytes is NULL */
GVM_API GVM_CHECKED gvm_status gvm_heap_get_size(gvm_heap *heap, const void *ptr, size_t *size_bytes);

/* The buffer in which a block is, and where: to export (gvm_share_export()) and to find it in what
 * another process imported. The buffer belongs to the heap: it must not be destroyed, moved, sealed
 * or decommitted by others. Neighbours in the block's chunks are exported with it, and what earlier
 * blocks of this heap left in them and in the block; never what other heaps or buffers held. Data that
 * an importer must not see belongs in another heap, or is overwritten before its block is freed.
 *
 * GVM_E_INVALID  buffer or offset_bytes is NULL
 * GVM_E_NOTSUP   the heap is not of device memory */
GVM_API GVM_CHECKED gvm_status gvm_heap_locate(gvm_heap *heap, const void *ptr, gvm_buffer **buffer,
                                               uint64_t *offset_bytes);

/* Says that a stream is about to be destroyed, or that its memory may be used by others: waits for
 * its work, and what belongs to it belongs to nobody from then on. If no block was allocated for it, only what was on the stream when blocks
 * were freed behind it is waited for. Other threads may allocate while it
 * waits. An unknown stream is a success.
 *
 * GVM_E_INVALID  the stream is being captured into a graph */
GVM_API GVM_CHECKED gvm_status gvm_heap_stream_end(gvm_heap *heap, gvm_stream stream);

/* The same, if the stream's work is over within timeout_ms. With GVM_TRY it looks once, by an event that it records then: a GPU takes some
 * microseconds to pass one on a stream that has no work, so that takes a millisecond.
 *
 * GVM_E_TIMEOUT  the stream has work still: what belongs to it still does
 * GVM_E_INVALID  the stream is being captured into a graph, or timeout_ms is below GVM_FOREVER */
GVM_API GVM_CHECKED gvm_status gvm_heap_stream_end_within(gvm_heap *heap, gvm_stream stream,
                                                          int timeout_ms);

/* Gives memory that no live block uses back to the driver until at most keep_bytes of it are held:
 * shelves of all threads, what is kept idle, and what the process keeps of this heap's in its cache of free chunks (of a
 * heap with GVM_HEAP_UNSHARED gvm_device_trim() gives that back). Waits for streams that freed blocks, as long as it takes;
 * other threads may allocate and free meanwhile. Memory of a stream that is being captured into a
 * graph stays. */
GVM_API GVM_CHECKED gvm_status gvm_heap_trim(gvm_heap *heap, uint64_t keep_bytes);

/* Gives a peer device access to all blocks, those there are and those to come, or takes it away
 * (GVM_ACCESS_NONE), as gvm_buffer_grant() does for a buffer: also what is committed later then takes the driver some more
 * time. While this call runs, no copy of the heap's buffers may depend on a kernel that waits for a thread which allocates
 * from the heap.
 *
 * GVM_E_INVALID   access is no gvm_access, or peer is the heap's own device
 * GVM_E_LIMIT     the heap is granted to 31 peers already, or the driver has too many mappings
 * GVM_E_NOTSUP    the devices cannot reach each other, there is no virtual memory management, or the heap is not of
 *                 device memory (memory of the other kinds is reachable by every device) */
GVM_API GVM_CHECKED gvm_status gvm_heap_grant(gvm_heap *heap, gvm_device *peer, gvm_access access);

/* Sets another limit; GVM_BYTES_UNLIMITED is none, and with 0 nothing more is committed. Of what is committed beyond it, idle memory goes back: at once where keep_bytes is set,
 * else by the library's thread, and no new block is placed in it until then. What blocks use stays until it is free, and goes then.
 * Heaps that keep what is idle (GVM_HEAP_KEEP, and those of pinned and managed memory) keep it, unused beyond the limit. */
GVM_API GVM_CHECKED gvm_status gvm_heap_set_limit(gvm_heap *heap, uint64_t limit_bytes);

/* Frees all blocks at once, as if by gvm_heap_free(). No other thread may be using them. */
GVM_API GVM_CHECKED gvm_status gvm_heap_reset(gvm_heap *heap);

/* Fills in info.
 *
 * GVM_E_INVALID  info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_heap_get_info(gvm_heap *heap, gvm_heap_info *info);

/* Lists live blocks, lowest address first: up to capacity of them, each stride_bytes behind the one before
 * (sizeof(gvm_heap_block): records may grow), and how many there are in *count. blocks may be NULL if capacity is 0. What
 * is left before gvm_heap_destroy() are leaks.
 *
 * GVM_E_INVALID  count is NULL, or capacity is not 0, and blocks is NULL or stride_bytes is no size of a record */
GVM_API GVM_CHECKED gvm_status gvm_heap_list(gvm_heap *heap, size_t capacity, size_t stride_bytes,
                                             gvm_heap_block *blocks, size_t *count);

/* The same by tag, most bytes first. Tags are compared as texts. Those in the results, here and
 * of gvm_heap_list(), are the program's own: each lives as long as it was promised to, as one of
 * its blocks at least. Stops the other threads' allocations meanwhile.
 *
 * GVM_E_INVALID  as gvm_heap_list() */
GVM_API GVM_CHECKED gvm_status gvm_heap_get_usage(gvm_heap *heap, size_t capacity, size_t stride_bytes,
                                                  gvm_heap_usage *usages, size_t *count);

/* Lists all memory that the heap holds, lowest address first, of one moment: extents follow each other without a gap in
 * each range, and together have info.committed_bytes. Otherwise as gvm_heap_list(); tags as of
 * gvm_heap_get_usage().
 *
 * GVM_E_INVALID  as gvm_heap_list() */
GVM_API GVM_CHECKED gvm_status gvm_heap_list_extents(gvm_heap *heap, size_t capacity,
                                                     size_t stride_bytes, gvm_heap_extent *extents,
                                                     size_t *count);

/* Writes the same to a file in the format of PyTorch's memory snapshots, for the page memory_viz of pytorch.org and PyTorch's
 * own tools: each range is a segment, each extent a block of it; a tag, of which 4 KiB at most are written, is in the place of
 * stack frames. Blocks on shelves are inactive. There is no history of events. A file at path is replaced, and is not whole
 * if the call fails. The file takes about 40 bytes for each extent, and 20 and the tag more for one with a tag; the call takes up to
 * three times that of host memory.
 *
 * GVM_E_INVALID  path is NULL
 * GVM_E_SYSTEM   the file cannot be written
 * Semantics: torch.cuda.memory._snapshot(), as a pickle. */
GVM_API GVM_CHECKED gvm_status gvm_heap_save_snapshot(gvm_heap *heap, const char *path);

/* Walks the whole heap and checks its invariants; for tests, and to find out what has written to memory that is
 * not its own. Stops the other threads' allocations meanwhile.
 *
 * GVM_E_INVALID  one does not hold; the error text says which and where */
GVM_API GVM_CHECKED gvm_status gvm_heap_check(gvm_heap *heap);

/* Ends a heap and all its blocks. Waits for the work of its streams, by a wait for the whole context of its device, and of each
 * that has access (gvm_heap_grant()), which ends captures of streams there; other work that uses blocks, and that of streams
 * in contexts of the program's own, is the caller's to end first. NULL and unknown pointers are ignored. */
GVM_API void gvm_heap_destroy(gvm_heap *heap);

/* ---- pieces: each with memory of its own, of no heap */

/* Allocates size_bytes of device memory, aligned to 2 MiB, contents undefined. Chunks are as large
 * as they can be while the rounding stays within one sixteenth of the size (or one chunk of 2 MiB);
 * smaller, where the device is too full for that. Like gvm_buffer_commit() it has idle memory of the
 * process given back before it fails, and waits about 10 s at most for streams.
 *
 * GVM_E_INVALID  size_bytes is 0 or too large, or out is NULL
 * GVM_E_FOREIGN  the device is not open
 * GVM_E_NOSPACE  the device has too little free memory
 * GVM_E_NOMEM    out of host memory
 * GVM_E_ADDRESS, GVM_E_LIMIT, GVM_E_SYSTEM, GVM_E_DRIVER, GVM_E_LOST  as gvm_buffer_create() and
 *     gvm_buffer_commit() */
GVM_API GVM_CHECKED gvm_status gvm_alloc(gvm_device *device, size_t size_bytes, void **out);

/* Allocates rows of width_bytes each, as gvm_alloc() does, that begin *pitch_bytes apart: a multiple of what the device
 * aligns rows to (512 bytes on all that there are), so that threads which read along a row touch no more of memory than
 * they must, and calls that copy rows (cuMemcpy2D) take it at their full speed. Byte x of row y is at *out + y *
 * *pitch_bytes + x; what lies between the rows is the program's too. gvm_free() frees it.
 *
 * GVM_E_INVALID  width_bytes or rows is 0, or they are too large together, or out or pitch_bytes is NULL
 * All others as gvm_alloc(): GVM_E_FOREIGN, GVM_E_NOSPACE, GVM_E_NOMEM, GVM_E_ADDRESS, GVM_E_LIMIT, GVM_E_SYSTEM,
 *     GVM_E_DRIVER, GVM_E_LOST
 * Semantics: CUDA Driver API, cuMemAllocPitch. */
GVM_API GVM_CHECKED gvm_status gvm_alloc_pitch(gvm_device *device, uint64_t width_bytes,
                                               uint64_t rows, void **out, uint64_t *pitch_bytes);

/* Frees what gvm_alloc() or gvm_alloc_pitch() returned. NULL is a success. Does not wait for kernels: end the work that
 * uses the memory first.
 *
 * GVM_E_FOREIGN  the pointer is not the start of a piece, or was freed already */
GVM_API gvm_status gvm_free(void *ptr);

/* The buffer behind a piece; it stays owned by the piece and must not be destroyed.
 *
 * GVM_E_INVALID  out is NULL
 * GVM_E_FOREIGN  the pointer is not the start of a piece, or was freed already */
GVM_API GVM_CHECKED gvm_status gvm_alloc_buffer(const void *ptr, gvm_buffer **out);

#ifdef __cplusplus
}
#endif
#endif
