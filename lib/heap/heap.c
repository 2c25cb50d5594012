/* Heaps: creation, end, and what concerns all of one. */
#include "heap/heap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/struct.h"

#define SHELF_BYTES_DEFAULT (8 * GVMI_MIB)
#define SHELF_BYTES_MAX (GVMI_GIB - GVM_HEAP_UNIT_BYTES)

/* ---- handles
 *
 * A child made by fork() has the heaps' pages, but no driver that works, and locks and shelves may be held by
 * threads that it does not have. So it forgets its shelves, with which every short way begins,
 * and the long ways end at gvmi_heap_hold(), because the registry forgets the parent's objects. */

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void reset_heaps_in_child(void)
{
    gvmi_shelf_mine = NULL;
}

static void watch_heap_forks(void)
{
    /* Without memory for it a child is not protected from itself. */
    (void)pthread_atfork(NULL, NULL, reset_heaps_in_child);
}

gvm_status gvmi_heap_hold(const gvm_heap *handle, gvm_heap **out)
{
    void *object;
    const gvm_status status = gvmi_registry_hold(GVMI_KIND_HEAP, gvmi_key(handle), &object);

    *out = object;
    return status;
}

void gvmi_heap_drop(gvm_heap *heap)
{
    gvmi_registry_drop(GVMI_KIND_HEAP, gvmi_key(heap));
}

gvm_status gvmi_heap_fail_foreign(const void *ptr)
{
    return gvm_error_set(GVM_E_FOREIGN,
                         "no live block of the heap begins at %p (freed already, inside of a block, or "
                         "from elsewhere)",
                         ptr);
}

/* ---- creation */

static gvm_status read_heap_options(const gvm_heap_options *options, gvm_heap *heap)
{
    gvm_heap_options full;

    if (!gvmi_struct_in(&full, sizeof full, options, sizeof full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    if ((int)full.kind < GVM_HEAP_DEVICE || full.kind > GVM_HEAP_MANAGED)
        return gvm_error_set(GVM_E_INVALID, "unknown kind of heap %d", (int)full.kind);
    if ((full.flags & ~(uint32_t)(GVM_HEAP_UNSHARED | GVM_HEAP_KEEP)) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown heap flags %#x", (unsigned)full.flags);
    if ((full.flags & GVM_HEAP_KEEP) != 0 && (full.keep_bytes != 0 || full.decay_ms != 0))
        return gvm_error_set(GVM_E_INVALID,
                             "a heap with GVM_HEAP_KEEP gives nothing back: keep_bytes (%llu) and decay_ms "
                             "(%u) must be 0",
                             (unsigned long long)full.keep_bytes, (unsigned)full.decay_ms);
    heap->kind = full.kind;
    heap->unshared = (full.flags & GVM_HEAP_UNSHARED) != 0;
    heap->keeps = (full.flags & GVM_HEAP_KEEP) != 0;
    heap->limit_bytes = gvmi_amount(full.limit_bytes, GVM_BYTES_UNLIMITED);
    heap->bounded = full.keep_bytes != 0;
    heap->keep_bytes = gvmi_amount(full.keep_bytes, 0);
    heap->shelf_bytes = gvmi_min(gvmi_amount(full.shelf_bytes, SHELF_BYTES_DEFAULT), SHELF_BYTES_MAX);
    heap->decay_ns = (int64_t)full.decay_ms * GVMI_NS_PER_MS;
    heap->interval_ns = gvmi_now_ns();
    heap->exhausted = full.exhausted;
    heap->exhausted_arg = full.exhausted_arg;
    heap->request_waits = full.waits;
    heap->request_waits_arg = full.waits_arg;
    return GVM_OK;
}

gvm_status gvm_heap_create(gvm_device *device, const gvm_heap_options *options, gvm_heap **out)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    heap = gvmi_heap_calloc_line(sizeof *heap);
    if (heap == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a heap");
    heap->plain.heap = heap;
    heap->plain.key = GVMI_HEAP_PLAIN;
    heap->plain.passed = UINT64_MAX;
    status = read_heap_options(options, heap);
    if (status != GVM_OK)
        goto fail_free;
    status = gvmi_device_hold(device, &heap->device);
    if (status != GVM_OK)
        goto fail_free;
    status = gvmi_backing_probe(heap);
    if (status == GVM_OK)
        status = gvmi_heap_table_create(heap);
    if (status != GVM_OK)
        goto fail_release;
    heap->owner = gvmi_chunk_owner_new();
    gvmi_mutex_init(&heap->lock, GVMI_RANK_HEAP);
    gvmi_cond_init(&heap->left);
    pthread_once(&fork_once, watch_heap_forks);
    status = gvmi_registry_add(GVMI_KIND_HEAP, gvmi_key(heap), heap);
    if (status != GVM_OK)
        goto fail_destroy_table;
    heap->holds = heap->kind != GVM_HEAP_HOST && !heap->keeps;
    if (heap->holds)
        gvmi_idle_join(heap->device, &heap->idle, &gvmi_heap_idle_calls);
    *out = heap;
    return GVM_OK;

fail_destroy_table:
    pthread_cond_destroy(&heap->left);
    gvmi_mutex_destroy(&heap->lock);
    gvmi_heap_table_destroy(heap);
fail_release:
    gvmi_device_release(heap->device);
fail_free:
    free(heap);
    return status;
}

/* ---- end */

/* The work of streams may still be on blocks. One wait for each device that reaches them: a stream that was destroyed must
 * not be touched any more. Where a block was freed behind a stream of another context there is an event. */
static void wait_for_streams(gvm_heap *heap)
{
    bool used;

    gvmi_lock(&heap->lock);
    used = heap->arenas != NULL || heap->wait_count > 0;
    gvmi_unlock(&heap->lock);
    if (used)
        gvmi_device_drain(heap->device);
    for (uint32_t i = 0; i < heap->grant_count && used; i++)
        gvmi_device_drain(heap->grants[i].peer);
    gvmi_lock(&heap->lock);
    gvmi_heap_await_pending_locked(heap);
    gvmi_unlock(&heap->lock);
}

void gvm_heap_destroy(gvm_heap *handle)
{
    GVMI_UNCANCELLED;
    void *object;
    gvm_heap *heap;
    gvm_error error;

    if (handle == NULL || gvmi_heap_hold(handle, &heap) != GVM_OK)
        return;
    gvmi_heap_drop(heap);
    if (gvmi_registry_remove(GVMI_KIND_HEAP, gvmi_key(handle), &object) != GVM_OK)
        return; /* another thread has ended it */
    error = gvmi_error_save();
    wait_for_streams(heap);
    /* It stays a holder of idle memory until it has none, so that no call reports meanwhile that
     * the device is full. Nobody else is in the heap but threads that end, which wait for their
     * shelves. */
    gvmi_lock(&heap->lock);
    gvmi_heap_await_leaving(heap);
    gvmi_shelves_own_locked(heap);
    gvmi_shelves_end_locked(heap, NULL);
    gvmi_arena_close_locked(&heap->plain);
    for (gvmi_arena *arena = heap->arenas; arena != NULL; arena = arena->next)
        gvmi_arena_close_locked(arena);
    gvmi_slabs_free(heap);
    gvmi_streams_free(heap);
    gvmi_unlock(&heap->lock);
    if (heap->holds)
        gvmi_idle_leave(&heap->idle);
    free(heap->plain.segments);
    gvmi_segments_free(heap->spare_usual);
    gvmi_segments_free(heap->spare_lone);
    gvmi_heap_table_destroy(heap);
    gvmi_chunk_owner_end(heap->device, heap->owner);
    while (heap->grant_count > 0)
        gvmi_device_release(heap->grants[--heap->grant_count].peer);
    gvmi_device_release(heap->device);
    pthread_cond_destroy(&heap->left);
    gvmi_mutex_destroy(&heap->lock);
    gvmi_registry_retire(heap);
    gvm_error_restore(&error);
}

/* ---- streams, trim, limit */

gvm_status gvm_heap_stream_end(gvm_heap *handle, gvm_stream stream)
{
    GVMI_UNCANCELLED;

    return gvm_heap_stream_end_within(handle, stream, GVM_FOREVER);
}

gvm_status gvm_heap_stream_end_within(gvm_heap *handle, gvm_stream stream, int timeout_ms)
{
    GVMI_UNCANCELLED;
    const int64_t until_ns = timeout_ms == GVM_FOREVER ? GVMI_NEVER_NS : gvmi_deadline_ns(timeout_ms);
    gvm_heap *heap;
    gvm_status status = gvmi_check_timeout(timeout_ms);

    if (status == GVM_OK)
        status = gvmi_heap_hold(handle, &heap);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    status = gvmi_heap_end_stream(heap, gvmi_stream_key(stream), until_ns);
    gvmi_heap_settle(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return status;
}

gvm_status gvm_heap_trim(gvm_heap *handle, uint64_t keep_bytes)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;
    gvm_status status = gvmi_heap_hold(handle, &heap);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    gvmi_heap_empty_shelves_locked(heap);
    (void)gvmi_heap_await_streams(heap, GVMI_NEVER_NS);
    if (heap->idle_bytes > keep_bytes)
        (void)gvmi_heap_release(heap, heap->idle_bytes - keep_bytes, GVMI_RELEASE_NOW);
    gvmi_heap_settle(heap); /* what shelves gave back may be beyond it */
    gvmi_heap_await_leaving(heap);
    gvmi_arena_close_empty_locked(&heap->plain, true);
    for (gvmi_arena *arena = heap->arenas; arena != NULL; arena = arena->next)
        gvmi_arena_close_empty_locked(arena, true);
    gvmi_slabs_free_spare_locked(heap);
    gvmi_unlock(&heap->lock);
    gvmi_chunk_owner_end(heap->device, heap->owner); /* what went to the cache before, too */
    gvmi_heap_drop(heap);
    return GVM_OK;
}

gvm_status gvm_heap_set_limit(gvm_heap *handle, uint64_t limit_bytes)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;
    gvm_status status = gvmi_heap_hold(handle, &heap);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    heap->limit_bytes = limit_bytes;
    gvmi_heap_settle(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return GVM_OK;
}

/* ---- questions */

static void count_shelves(const gvm_heap *heap, gvm_heap_info *info,
                          uint64_t shelf_blocks[GVMI_HEAP_ORDERS])
{
    for (const gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL;
         shelf = LIST_NEXT(shelf, entry)) {
        info->shelf_bytes += shelf->bytes;
        for (uint32_t bin = 1; bin < GVMI_HEAP_BINS; bin++)
            shelf_blocks[gvmi_heap_row(gvmi_bin_bytes[bin])] += shelf->counts[bin];
    }
}

static void fill_info(gvm_heap *heap, gvm_heap_info *info)
{
    int64_t requested;

    for (gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL; shelf = LIST_NEXT(shelf, entry))
        gvmi_shelf_tell(shelf);
    requested = heap->requested_bytes;
    *info = (gvm_heap_info){
        .requested_bytes = requested > 0 ? (uint64_t)requested : 0,
        .requested_peak_bytes = heap->requested_peak_bytes,
        .pending_bytes = heap->pending_bytes,
        .committed_bytes = heap->committed_bytes,
        .committed_peak_bytes = heap->committed_peak_bytes,
        .idle_bytes = heap->idle_bytes,
        .address_bytes = heap->address_bytes,
        .limit_bytes = heap->limit_bytes,
        .commits = heap->commits,
        .decommits = heap->decommits,
        .exhausted = heap->times_exhausted,
        .segments = heap->segment_count,
        .kind = heap->kind,
        .ordinal = heap->device->info.ordinal,
        .slab_bytes = heap->slab_bytes,
        .slab_free_bytes = heap->slab_free_bytes,
        .slabs = heap->slab_count,
    };
    for (const gvmi_arena *arena = heap->arenas; arena != NULL; arena = arena->next)
        info->streams += arena->count > 0;
    for (unsigned i = 0; i < GVMI_HEAP_ORDERS; i++)
        info->orders[i].shelf_blocks = heap->order_pending[i];
    uint64_t shelf_blocks[GVMI_HEAP_ORDERS] = {0};

    count_shelves(heap, info, shelf_blocks);
    for (unsigned i = 0; i < GVMI_HEAP_ORDERS; i++) {
        info->orders[i].block_bytes = GVM_HEAP_UNIT_BYTES << i;
        info->orders[i].shelf_blocks += shelf_blocks[i];
        info->orders[i].blocks = heap->order_blocks[i] - info->orders[i].shelf_blocks;
        info->blocks += info->orders[i].blocks;
    }
    info->block_bytes = heap->held_bytes - info->shelf_bytes - info->pending_bytes;
}

gvm_status gvm_heap_get_info(gvm_heap *handle, gvm_heap_info *info)
{
    GVMI_UNCANCELLED;
    gvm_heap_info full;
    gvm_heap *heap;
    gvm_status status = gvmi_heap_hold(handle, &heap);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    gvmi_shelves_own_locked(heap);
    fill_info(heap, &full);
    gvmi_shelves_leave_locked(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    if (!gvmi_struct_out(info, &full, sizeof full, offsetof(gvm_heap_info, slab_bytes)))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}
