/* The calls that move blocks: alloc, free, resize, and what is asked of one block.
 *
 * Each tries the thread's own shelf first, and takes the heap's lock only if that does not do. To
 * own a shelf also keeps its heap, so the short way needs no registry.
 */
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/text.h"
#include "heap/heap.h"

#define TELL_BYTES (4 * (int64_t)GVMI_MIB) /* a shelf keeps to itself, of what is requested */
/* What an empty shelf takes besides the block that is wanted: units of such blocks, or cells. */
#define REFILL_UNITS 8u
#define REFILL_CELLS 16u

#define LIKELY(condition) __builtin_expect(!!(condition), 1)

static inline void begin_block_use(gvmi_block *block, uint64_t size_bytes, const char *tag)
{
    atomic_store_explicit(&block->size_bytes, size_bytes, memory_order_relaxed);
    atomic_store_explicit(&block->tag, tag, memory_order_relaxed);
    atomic_store_explicit(&block->state, GVMI_BLOCK_USED, memory_order_release);
}

static inline bool end_block_use(gvmi_block *block, uint32_t next_state)
{
    uint32_t used = GVMI_BLOCK_USED;

    return atomic_compare_exchange_strong_explicit(&block->state, &used, next_state,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static inline uint64_t block_size_bytes(gvmi_block *block)
{
    return atomic_load_explicit(&block->size_bytes, memory_order_relaxed);
}

static inline uint32_t block_bin(gvmi_block *block)
{
    return atomic_load_explicit(&block->bin, memory_order_relaxed);
}

static inline void shelf_note(gvmi_shelf *shelf, int64_t more)
{
    shelf->requested += more;
    if (!LIKELY(shelf->requested < TELL_BYTES && shelf->requested > -TELL_BYTES))
        gvmi_shelf_tell(shelf);
}

static inline gvmi_block *shelf_take(gvmi_shelf *shelf, uint32_t bin)
{
    gvmi_block *block = shelf->bins[bin];

    if (block != NULL) {
        shelf->bins[bin] = block->next;
        shelf->counts[bin]--;
        shelf->bytes -= gvmi_bin_bytes[bin];
    }
    return block;
}

/* ---- allocating */

static gvm_status check_size(uint64_t size_bytes)
{
    char most[32];

    return size_bytes > 0 && size_bytes <= GVMI_HEAP_BYTES_MAX
               ? GVM_OK
               : gvm_error_set(GVM_E_INVALID, "a block has 1 byte to %s, not %llu bytes",
                               gvmi_size_text(GVMI_HEAP_BYTES_MAX, most),
                               (unsigned long long)size_bytes);
}

/* What failed for want of memory; other failures are not cured by making room. */
static bool is_short(gvm_status status)
{
    return status == GVM_E_NOSPACE || status == GVM_E_NOMEM;
}

/* One request that finds memory short; zero at first. */
typedef struct room {
    gvmi_shortage shortage;
    unsigned callbacks;
} room;

/* What others of the process keep idle on the device. */
static uint64_t reclaim_process_memory(gvm_heap *heap, uint64_t wanted_bytes, bool may_wait)
{
    uint64_t given;

    gvmi_unlock(&heap->lock);
    given = gvmi_idle_reclaim(heap->device, wanted_bytes, may_wait);
    gvmi_lock(&heap->lock);
    return given;
}

/* Is it worth trying again? Asked without the lock. */
static bool call_shortage_callback(gvm_heap *heap, room *r, uint64_t wanted_bytes)
{
    int again;

    if (heap->exhausted == NULL || r->callbacks++ >= GVMI_HEAP_CALLBACKS_MAX)
        return false;
    gvmi_unlock(&heap->lock);
    again = heap->exhausted(heap, wanted_bytes, heap->exhausted_arg);
    gvmi_lock(&heap->lock);
    return again;
}

/* Says that the request begins to wait, or has waited. Called without the lock. */
static void call_waits(gvm_heap *heap, bool begins)
{
    gvm_error error;

    if (heap->request_waits == NULL)
        return;
    error = gvmi_error_save();
    gvmi_unlock(&heap->lock);
    heap->request_waits(heap, begins, heap->request_waits_arg);
    gvmi_lock(&heap->lock);
    gvm_error_restore(&error);
}

/* One more round to make room: what is free at once; what is free once streams have passed it (or kernels have ended,
 * where the driver waits for those), as long as that gives something; what the program frees. False: there is none
 * left. The lock is released meanwhile. */
static bool make_room(gvm_heap *heap, room *r, uint64_t wanted_bytes)
{
    const bool at_limit = heap->committed_bytes + wanted_bytes > heap->limit_bytes;
    const bool first = r->shortage.rounds == 0;
    bool may_wait;
    uint64_t given = 0;

    if (first)
        heap->times_exhausted++;
    if (!gvmi_shortage_lasts(&r->shortage) && !call_shortage_callback(heap, r, wanted_bytes))
        return false;
    gvmi_heap_empty_shelves_locked(heap);
    gvmi_heap_poll_locked(heap);
    may_wait = !first && gvmi_heap_await_streams(heap, r->shortage.until_ns) &&
               gvmi_now_ns() < r->shortage.until_ns;
    if (!first || !heap->whole) {
        if (!heap->keeps)
            given = gvmi_heap_release(heap, UINT64_MAX, GVMI_RELEASE_KEEP);
        gvmi_heap_await_leaving(heap);
    }
    if (heap->whole) /* the failed try itself may have left it */
        given = 0;
    if (!at_limit && heap->kind != GVM_HEAP_HOST)
        given += reclaim_process_memory(heap, wanted_bytes, may_wait);
    gvmi_shortage_note(&r->shortage, given);
    return true;
}

static bool free_memory_for_request(gvm_heap *heap, room *r, uint64_t wanted_bytes)
{
    bool more;

    call_waits(heap, true);
    more = make_room(heap, r, wanted_bytes);
    call_waits(heap, false);
    return more;
}

/* Once: idle memory goes before memory reaches a new peak. */
static bool purge_idle_chunks(gvm_heap *heap, gvmi_request *request)
{
    const uint64_t bytes = request->purge_bytes;

    request->purge_bytes = 0;
    request->may_purge = false;
    if (bytes > 0)
        (void)gvmi_heap_release(heap, bytes, GVMI_RELEASE_KEEP);
    return bytes > 0;
}

/* Says what was wanted and what there is. A device that is full is so for the last chunk that was tried: in place of the
 * error of that stands what is free without those before. */
static gvm_status fail_short(gvm_heap *heap, gvm_status status, uint64_t wanted_bytes)
{
    gvm_error error = gvmi_error_save();
    const bool full = heap->kind != GVM_HEAP_HOST && error.native_code == CUDA_ERROR_OUT_OF_MEMORY;
    char wanted[32], committed[32], requested[32], left[32], why[sizeof error.text];
    const int64_t asked = heap->requested_bytes;

    memcpy(why, error.text, sizeof why);
    gvmi_size_text(wanted_bytes, wanted);
    gvmi_size_text(heap->committed_bytes, committed);
    gvmi_size_text(asked > 0 ? (uint64_t)asked : 0, requested);
    if (full)
        gvmi_text_print(why, sizeof why,
                        "%.12s are free on device %d: free memory there, or move buffers to the host tier",
                        gvmi_size_text(gvmi_device_free_bytes(heap->device) +
                                           gvmi_chunk_cache_bytes(heap->device->cache),
                                       left),
                        heap->device->info.ordinal);
    gvmi_text_print(error.text, sizeof error.text,
                    "no memory for a block of %.12s: the heap has committed %.12s for %.12s requested; %s",
                    wanted, committed, requested, why);
    gvm_error_restore(&error);
    return status;
}

static gvm_status take_block(gvm_heap *heap, uint64_t key, gvmi_request *request, gvmi_block **out)
{
    gvmi_arena *arena;
    gvm_status status = gvmi_stream_arena_locked(heap, key, &arena);

    return status == GVM_OK ? gvmi_heap_take_locked(heap, arena, request, out) : status;
}

/* An empty bin is filled as far as that costs nothing. */
static void refill_shelf_bin(gvm_heap *heap, gvmi_shelf *shelf, uint32_t bin)
{
    uint32_t more = gvmi_is_cell_bin(bin) ? REFILL_CELLS : REFILL_UNITS / (bin - GVMI_CELL_BINS);

    for (; more > 0 && shelf->bytes + gvmi_bin_bytes[bin] <= shelf->limit_bytes; more--) {
        gvmi_block *block = gvmi_heap_take_cheap_locked(heap, shelf->arena, bin);

        if (block == NULL)
            return;
        atomic_store_explicit(&block->state, GVMI_BLOCK_SHELVED, memory_order_relaxed);
        gvmi_shelf_put(shelf, block, bin);
    }
}

/* From the thread's shelf after all (there was none, or it was not at the front), or a new one, and
 * some more for the shelf. */
static gvm_status take_for_shelf(gvm_heap *heap, uint64_t key, gvmi_request *request, gvmi_block **out)
{
    gvmi_arena *arena;
    gvmi_shelf *shelf;
    gvm_status status = gvmi_stream_arena_locked(heap, key, &arena);

    if (status != GVM_OK)
        return status;
    shelf = gvmi_shelf_get_locked(heap, arena);
    if (shelf == NULL)
        return gvmi_heap_take_locked(heap, arena, request, out);
    gvmi_shelf_own_locked(shelf);
    gvmi_shelf_awake(shelf);
    *out = shelf_take(shelf, request->bin);
    if (*out == NULL) {
        status = gvmi_heap_take_locked(heap, arena, request, out);
        if (status == GVM_OK)
            refill_shelf_bin(heap, shelf, request->bin);
    }
    gvmi_shelf_leave(shelf);
    return status;
}

static gvm_status alloc_slowly(gvm_heap *handle, uint64_t size_bytes, uint64_t alignment_bytes,
                               const char *tag, uint64_t key, void **out)
{
    GVMI_UNCANCELLED; /* here, as what is quicker comes to no cancellation point */
    gvmi_request request;
    gvmi_block *block = NULL;
    gvm_heap *heap;
    room r = {0};
    uint64_t waiting;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = check_size(size_bytes);
    if (status != GVM_OK)
        return status;
    status = gvmi_heap_hold(handle, &heap);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    waiting = heap->pending_bytes;
    gvmi_heap_poll_locked(heap);
    request = gvmi_heap_request(size_bytes, alignment_bytes);
    request.may_purge = !heap->bounded && !heap->whole && !heap->keeps;
    do {
        request.smaller = r.shortage.rounds > 0;
        status = !request.smaller && request.bin != 0 ? take_for_shelf(heap, key, &request, &block)
                                                      : take_block(heap, key, &request, &block);
    } while (is_short(status) &&
             (purge_idle_chunks(heap, &request) ||
              free_memory_for_request(heap, &r, request.units << GVMI_HEAP_UNIT_SHIFT)));
    if (status == GVM_OK) {
        *out = gvmi_pointer(block->address);
        gvmi_heap_note_requested(heap, (int64_t)size_bytes);
        begin_block_use(block, size_bytes, tag);
    } else if (is_short(status)) {
        fail_short(heap, status, size_bytes);
    }
    if (heap->pending_bytes != waiting ||
        r.shortage.rounds > 0) /* what came free may be beyond what is kept */
        gvmi_heap_settle(heap);
    gvmi_heap_settle_asked(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return status;
}

/* bin: that of size_bytes and alignment_bytes. */
static inline gvm_status alloc_block(gvm_heap *handle, uint64_t size_bytes, uint64_t alignment_bytes,
                                     uint32_t bin, const char *tag, uint64_t key, void **out)
{
    gvmi_shelf *shelf = gvmi_shelf_mine;

    if (!LIKELY(bin != 0 && out != NULL))
        return alloc_slowly(handle, size_bytes, alignment_bytes, tag, key, out);
    if (!LIKELY(shelf != NULL && shelf->handle == handle && shelf->key == key))
        shelf = gvmi_shelf_seek(handle, key);
    if (LIKELY(shelf != NULL && gvmi_shelf_own(shelf))) {
        gvmi_block *block = shelf_take(shelf, bin);

        if (LIKELY(block != NULL)) {
            *out = gvmi_pointer(block->address);
            shelf_note(shelf, (int64_t)size_bytes);
            begin_block_use(block, size_bytes, tag);
            gvmi_shelf_leave(shelf);
            return GVM_OK;
        }
        gvmi_shelf_leave(shelf);
    }
    return alloc_slowly(handle, size_bytes, alignment_bytes, tag, key, out);
}

gvm_status gvm_heap_alloc(gvm_heap *heap, size_t size_bytes, void **out)
{
    return alloc_block(heap, size_bytes, 1, gvmi_heap_bin(size_bytes), NULL, GVMI_HEAP_PLAIN, out);
}

gvm_status gvm_heap_alloc_tagged(gvm_heap *heap, size_t size_bytes, const char *tag, void **out)
{
    return alloc_block(heap, size_bytes, 1, gvmi_heap_bin(size_bytes), tag, GVMI_HEAP_PLAIN, out);
}

gvm_status gvm_heap_alloc_async(gvm_heap *heap, size_t size_bytes, const char *tag,
                                gvm_stream stream, void **out)
{
    return alloc_block(heap, size_bytes, 1, gvmi_heap_bin(size_bytes), tag, gvmi_stream_key(stream),
                       out);
}

static gvm_status alloc_aligned(gvm_heap *heap, uint64_t size_bytes, uint64_t alignment_bytes,
                                const char *tag, uint64_t key, void **out)
{
    if (!gvmi_is_pow2(alignment_bytes) || alignment_bytes > GVM_HEAP_ALIGNMENT_MAX)
        return gvm_error_set(GVM_E_INVALID,
                             "a block's alignment is a power of two of at most 2 MiB, not %llu bytes",
                             (unsigned long long)alignment_bytes);
    return alloc_block(heap, size_bytes, alignment_bytes,
                       gvmi_heap_request(size_bytes, alignment_bytes).bin, tag, key, out);
}

gvm_status gvm_heap_alloc_aligned(gvm_heap *heap, size_t size_bytes, size_t alignment_bytes,
                                  const char *tag, void **out)
{
    return alloc_aligned(heap, size_bytes, alignment_bytes, tag, GVMI_HEAP_PLAIN, out);
}

gvm_status gvm_heap_alloc_aligned_async(gvm_heap *heap, size_t size_bytes, size_t alignment_bytes,
                                        const char *tag, gvm_stream stream, void **out)
{
    return alloc_aligned(heap, size_bytes, alignment_bytes, tag, gvmi_stream_key(stream), out);
}

/* ---- freeing */

/* The live block at an address; NULL if there is none. */
static gvmi_block *live_block(gvm_heap *heap, const void *ptr, gvmi_segment **segment)
{
    gvmi_block *block = gvmi_heap_find(heap, gvmi_key(ptr), segment);

    return block != NULL && atomic_load_explicit(&block->state, memory_order_acquire) == GVMI_BLOCK_USED
               ? block
               : NULL;
}

/* What a free may do, by whose work is to be waited for. */
enum { FREE_NOW, FREE_ON_STREAM };

/* Streams that a free waits for besides that of the block. */
typedef struct stream_list {
    const gvm_stream *streams;
    size_t count;
} stream_list;

/* own: the key of the block's arena. */
static inline bool is_ordered(uint64_t own, int mode, uint64_t key)
{
    return mode == FREE_NOW || (key != GVMI_HEAP_PLAIN && own == key);
}

/* Has the shelf room for one more block? */
static inline bool has_room(const gvmi_shelf *shelf, uint32_t bin)
{
    return bin != 0 && shelf->bytes + gvmi_bin_bytes[bin] <= shelf->limit_bytes;
}

/* As gvmi_heap_find(). Most blocks lie where the last one did; a segment's struct lasts as long as the heap. */
static inline gvmi_block *find_from_shelf(gvmi_shelf *shelf, uint64_t address, gvmi_segment **out)
{
    gvmi_block *block;

    *out = shelf->segment;
    if (LIKELY(*out != NULL && gvmi_segment_find(*out, address, &block)))
        return block;
    block = gvmi_heap_find(shelf->heap, address, out);
    if (block != NULL)
        shelf->segment = *out;
    return block;
}

/* On a shelf of the thread's: 1 done, 0 not here, but perhaps on that of the arena returned, -1 no
 * shelf of this heap will do. */
static inline int free_to_shelf(gvmi_shelf *shelf, const void *ptr, int mode, uint64_t key,
                                const gvmi_arena **of)
{
    gvmi_segment *segment;
    gvmi_block *block;
    uint32_t bin;
    int done = -1;

    if (!gvmi_shelf_own(shelf))
        return -1;
    block = find_from_shelf(shelf, gvmi_key(ptr), &segment);
    if (LIKELY(block != NULL)) {
        *of = atomic_load_explicit(&segment->arena, memory_order_relaxed);
        if (*of != shelf->arena) {
            done = 0;
        } else if (LIKELY(is_ordered(shelf->key, mode, key) && has_room(shelf, bin = block_bin(block)) &&
                          end_block_use(block, GVMI_BLOCK_SHELVED))) {
            /* Asked again, now that nobody else can change it: if the pointer is stale, another
             * block may have come in between. Then the slow way decides. */
            if (LIKELY(block->address == gvmi_key(ptr) && block_bin(block) == bin &&
                       atomic_load_explicit(&segment->arena, memory_order_relaxed) == shelf->arena)) {
                gvmi_shelf_put(shelf, block, bin);
                shelf_note(shelf, -(int64_t)block_size_bytes(block));
                done = 1;
            } else {
                atomic_store_explicit(&block->state, GVMI_BLOCK_USED, memory_order_release);
            }
        }
    }
    gvmi_shelf_leave(shelf);
    return done;
}

/* The block is the caller's, its state SHELVED. */
static void shelve_block(gvm_heap *heap, gvmi_block *block, gvmi_arena *arena)
{
    const uint32_t bin = block->bin;
    gvmi_shelf *shelf = bin != 0 ? gvmi_shelf_get_locked(heap, arena) : NULL;
    const uint64_t bytes = gvmi_bin_bytes[bin];

    if (shelf == NULL || bytes > heap->shelf_bytes) {
        gvmi_heap_give_locked(heap, block);
        return;
    }
    gvmi_shelf_own_locked(shelf);
    gvmi_shelf_awake(shelf);
    if (shelf->bytes + bytes > shelf->limit_bytes)
        gvmi_shelf_empty_locked(shelf, (shelf->limit_bytes - bytes) / 2);
    gvmi_shelf_put(shelf, block, bin);
    gvmi_shelf_leave(shelf);
}

static gvm_status free_locked(gvm_heap *heap, void *ptr, int mode, uint64_t key, stream_list after)
{
    gvmi_segment *segment;
    gvmi_block *block = live_block(heap, ptr, &segment);
    gvmi_arena *arena;
    gvm_status status;

    if (block == NULL)
        return gvmi_heap_fail_foreign(ptr);
    arena = segment->arena;
    if (is_ordered(arena->key, mode, key)) {
        if (!end_block_use(block, GVMI_BLOCK_SHELVED)) /* another thread has just put it on its shelf */
            return gvmi_heap_fail_foreign(ptr);
        gvmi_heap_note_requested(heap, -(int64_t)block_size_bytes(block));
        shelve_block(heap, block, arena);
        return GVM_OK;
    }
    if (!end_block_use(block, GVMI_BLOCK_PENDING))
        return gvmi_heap_fail_foreign(ptr);
    status = gvmi_heap_delay_locked(heap, block, after.streams, after.count);
    if (status != GVM_OK) {
        atomic_store_explicit(&block->state, GVMI_BLOCK_USED, memory_order_release);
        return status;
    }
    gvmi_heap_note_requested(heap, -(int64_t)block_size_bytes(block));
    heap->pending_bytes += gvmi_block_bytes(block);
    heap->order_pending[gvmi_heap_row(gvmi_block_bytes(block))]++;
    return GVM_OK;
}

static gvm_status free_slowly(gvm_heap *handle, void *ptr, int mode, uint64_t key, stream_list after)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;
    gvm_status status = gvmi_heap_hold(handle, &heap);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    gvmi_heap_poll_locked(heap);
    status = free_locked(heap, ptr, mode, key, after);
    gvmi_heap_settle(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return status;
}

static inline gvm_status free_live_block(gvm_heap *handle, void *ptr, int mode, uint64_t key,
                                         gvm_stream stream)
{
    const gvmi_arena *of = NULL;

    if (ptr == NULL)
        return GVM_OK;
    for (gvmi_shelf *shelf = gvmi_shelf_mine; shelf != NULL; shelf = shelf->mine) {
        int done;

        if (shelf->handle != handle || (of != NULL && shelf->arena != of))
            continue;
        done = free_to_shelf(shelf, ptr, mode, key, &of);
        if (LIKELY(done > 0))
            return GVM_OK;
        if (done < 0)
            break;
    }
    return free_slowly(handle, ptr, mode, key, (stream_list){&stream, 1});
}

gvm_status gvm_heap_free(gvm_heap *heap, void *ptr)
{
    return free_live_block(heap, ptr, FREE_NOW, GVMI_HEAP_PLAIN, NULL);
}

gvm_status gvm_heap_free_async(gvm_heap *heap, void *ptr, gvm_stream stream)
{
    return free_live_block(heap, ptr, FREE_ON_STREAM, gvmi_stream_key(stream), stream);
}

gvm_status gvm_heap_free_after(gvm_heap *heap, void *ptr, const gvm_stream *streams, size_t count)
{
    if (streams == NULL && count > 0)
        return gvm_error_set(GVM_E_INVALID, "streams is NULL, and %zu are to be waited for", count);
    if (ptr == NULL)
        return GVM_OK;
    if (count == 0)
        return gvm_heap_free(heap, ptr);
    /* The key of no stream: an event of each is waited for, also of the block's own. */
    return free_slowly(heap, ptr, FREE_ON_STREAM, GVMI_HEAP_PLAIN, (stream_list){streams, count});
}

/* ---- one block */

/* The block is out of USED meanwhile: a free of it beside this one, which is the program's mistake,
 * must not put it on a shelf half way. more_bytes: out, by which it is to grow. */
static gvm_status resize_block_locked(gvm_heap *heap, void *ptr, uint64_t size_bytes,
                                      uint64_t *more_bytes)
{
    const uint64_t units = gvmi_heap_units(size_bytes);
    gvmi_segment *segment;
    gvmi_block *block = live_block(heap, ptr, &segment);
    gvm_status status = GVM_OK;

    if (block == NULL || !end_block_use(block, GVMI_BLOCK_RESIZING))
        return gvmi_heap_fail_foreign(ptr);
    *more_bytes = units > block->units ? (units - block->units) << GVMI_HEAP_UNIT_SHIFT : 0;
    if (gvmi_is_cell_bin(block->bin))
        status = size_bytes <= gvmi_block_bytes(block)
                     ? GVM_OK
                     : gvm_error_set(GVM_E_ADDRESS,
                                     "a small block cannot grow beyond the %llu bytes that it takes: "
                                     "allocate a larger one, copy and free",
                                     (unsigned long long)gvmi_block_bytes(block));
    else if (units != block->units)
        status = gvmi_heap_refit_locked(heap, block, units);
    if (status == GVM_OK) {
        gvmi_heap_note_requested(heap, (int64_t)size_bytes - (int64_t)block_size_bytes(block));
        atomic_store_explicit(&block->size_bytes, size_bytes, memory_order_relaxed);
    }
    atomic_store_explicit(&block->state, GVMI_BLOCK_USED, memory_order_release);
    return status;
}

gvm_status gvm_heap_resize(gvm_heap *handle, void *ptr, size_t size_bytes)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;
    room r = {0};
    uint64_t more_bytes = 0;
    gvm_status status;

    status = check_size(size_bytes);
    if (status != GVM_OK)
        return status;
    status = gvmi_heap_hold(handle, &heap);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    do /* anew: others may have had the lock */
        status = resize_block_locked(heap, ptr, size_bytes, &more_bytes);
    while (is_short(status) && free_memory_for_request(heap, &r, more_bytes));
    if (is_short(status))
        fail_short(heap, status, size_bytes);
    gvmi_heap_settle(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return status;
}

gvm_status gvm_heap_get_size(gvm_heap *handle, const void *ptr, size_t *size_bytes)
{
    gvmi_segment *segment;
    gvmi_block *block;
    gvm_heap *heap;
    gvm_status status;

    if (size_bytes == NULL)
        return gvm_error_set(GVM_E_INVALID, "size_bytes is NULL");
    status = gvmi_heap_hold(handle, &heap);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock); /* not beside a resize */
    block = live_block(heap, ptr, &segment);
    if (block != NULL)
        *size_bytes = block_size_bytes(block);
    else
        status = gvmi_heap_fail_foreign(ptr);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return status;
}

gvm_status gvm_heap_locate(gvm_heap *handle, const void *ptr, gvm_buffer **buffer, uint64_t *offset_bytes)
{
    gvmi_segment *segment;
    gvmi_block *block;
    gvm_heap *heap;
    gvm_status status;

    if (buffer == NULL || offset_bytes == NULL)
        return gvm_error_set(GVM_E_INVALID, "buffer or offset_bytes is NULL");
    status = gvmi_heap_hold(handle, &heap);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    block = live_block(heap, ptr, &segment);
    if (heap->kind != GVM_HEAP_DEVICE) {
        status = gvm_error_set(GVM_E_NOTSUP, "only heaps of device memory are made of buffers");
    } else if (block == NULL) {
        status = gvmi_heap_fail_foreign(ptr);
    } else {
        *buffer = segment->buffer;
        *offset_bytes = gvmi_key(ptr) - segment->base;
    }
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return status;
}
