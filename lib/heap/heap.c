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
#define SHELF_BYTES_MAX (GVMI_GIB - GVM_HEAP_UNIT_BYTES) /* so that a bin's count fits 16 bits */

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

/* The work of streams may still be on blocks. One wait for all: a stream that was destroyed must not
 * be touched any more. */
static void wait_for_streams(gvm_heap *heap)
{
    bool used;

    gvmi_lock(&heap->lock);
    used = heap->arenas != NULL || heap->wait_count > 0;
    gvmi_unlock(&heap->lock);
    if (used)
        gvmi_device_drain(heap->device);
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

/* ---- streams, trim, limit, reset */

gvm_status gvm_heap_stream_end(gvm_heap *handle, gvm_stream stream)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;
    gvm_status status = gvmi_heap_hold(handle, &heap);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    status = gvmi_heap_end_stream(heap, gvmi_stream_key(stream));
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

/* ---- walking */

typedef bool visit_fn(gvm_heap *heap, gvmi_block *block, void *arg); /* false: enough */

static bool visit_segment(gvm_heap *heap, const gvmi_segment *segment, visit_fn *visit, void *arg)
{
    const uint64_t units = segment->lone ? 1 : segment->bytes >> GVMI_HEAP_UNIT_SHIFT;

    for (uint64_t word = 0; word < (units + 63) / 64; word++)
        for (uint64_t bits = segment->starts[word]; bits != 0; bits &= bits - 1) {
            gvmi_block *block = &segment->blocks[word * 64 + (uint64_t)__builtin_ctzll(bits)];

            if (block->state == GVMI_BLOCK_USED && !visit(heap, block, arg))
                return false;
        }
    return true;
}

/* The lowest segment at or above an address, of all arenas. */
static gvmi_segment *next_segment(const gvm_heap *heap, uint64_t from)
{
    gvmi_segment *next = NULL;

    for (const gvmi_arena *arena = &heap->plain; arena != NULL;
         arena = arena == &heap->plain ? heap->arenas : arena->next)
        for (size_t i = 0; i < arena->count; i++)
            if (arena->segments[i]->base >= from &&
                (next == NULL || arena->segments[i]->base < next->base))
                next = arena->segments[i];
    return next;
}

/* Visits live blocks, lowest address first. Nothing changes the heap. */
static void visit_live(gvm_heap *heap, visit_fn *visit, void *arg)
{
    for (gvmi_segment *segment = next_segment(heap, 0);
         segment != NULL && visit_segment(heap, segment, visit, arg);
         segment = next_segment(heap, segment->base + 1))
        ;
}

static bool give_visited(gvm_heap *heap, gvmi_block *block, void *arg)
{
    (void)arg;
    gvmi_heap_give_locked(heap, block);
    return true;
}

gvm_status gvm_heap_reset(gvm_heap *handle)
{
    GVMI_UNCANCELLED;
    gvm_heap *heap;
    gvm_status status = gvmi_heap_hold(handle, &heap);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    gvmi_heap_empty_shelves_locked(heap);
    gvmi_shelves_own_locked(heap);
    visit_live(heap, give_visited, NULL);
    atomic_store(&heap->requested_bytes, 0);
    gvmi_shelves_leave_locked(heap);
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
        for (uint32_t units = 1; units <= GVMI_HEAP_SHELF_UNITS; units++)
            shelf_blocks[gvmi_heap_row(units)] += shelf->counts[units];
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
        .pending_bytes = heap->pending_units << GVMI_HEAP_UNIT_SHIFT,
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
    info->block_bytes = (heap->held_units << GVMI_HEAP_UNIT_SHIFT) - info->shelf_bytes -
                        info->pending_bytes;
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
    if (!gvmi_struct_out(info, &full, sizeof full, sizeof full))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}

typedef struct list {
    gvm_heap_block *blocks;
    size_t capacity, stride_bytes, count;
    gvm_heap_usage *sums; /* wanted, too, unless NULL: room for as many */
    size_t tags;
} list;

static bool list_visited(gvm_heap *heap, gvmi_block *block, void *arg)
{
    const gvm_heap_block record = {
        .address = gvmi_pointer(block->address),
        .size_bytes = block->size_bytes,
        .tag = block->tag != NULL ? block->tag : "",
    };
    list *l = arg;

    (void)heap;
    if (l->count < l->capacity)
        gvmi_record_out(l->blocks, l->count, l->stride_bytes, &record, sizeof record);
    l->count++;
    return true;
}

static int compare_tags(const void *a, const void *b)
{
    return strcmp(((const gvm_heap_block *)a)->tag, ((const gvm_heap_block *)b)->tag);
}

static int compare_usages(const void *a, const void *b)
{
    const gvm_heap_usage *x = a, *y = b;

    if (x->size_bytes != y->size_bytes)
        return x->size_bytes < y->size_bytes ? 1 : -1;
    return strcmp(x->tag, y->tag);
}

/* Sums sorted blocks in place: usages are no longer than blocks. Returns how many tags there are. */
static size_t sum_tags(const gvm_heap_block *blocks, size_t count, gvm_heap_usage *usages)
{
    size_t tags = 0;

    for (size_t i = 0; i < count; i++) {
        if (tags == 0 || strcmp(usages[tags - 1].tag, blocks[i].tag) != 0)
            usages[tags++] = (gvm_heap_usage){.tag = blocks[i].tag};
        usages[tags - 1].blocks++;
        usages[tags - 1].size_bytes += blocks[i].size_bytes;
    }
    return tags;
}

/* The texts are read while nothing changes the heap: a tag need only live as long as its blocks. */
static void sum_list(list *l)
{
    qsort(l->blocks, l->count, sizeof *l->blocks, compare_tags);
    l->tags = sum_tags(l->blocks, l->count, l->sums);
    qsort(l->sums, l->tags, sizeof *l->sums, compare_usages);
}

/* All live blocks, of one moment. */
static gvm_status list_all(gvm_heap *handle, list *l)
{
    gvm_heap *heap;
    gvm_status status = gvmi_heap_hold(handle, &heap);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    gvmi_shelves_own_locked(heap);
    visit_live(heap, list_visited, l);
    if (l->sums != NULL && l->count <= l->capacity)
        sum_list(l);
    gvmi_shelves_leave_locked(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return GVM_OK;
}

static gvm_status check_room(const void *records, size_t capacity, size_t stride_bytes,
                             size_t record_bytes, const size_t *count)
{
    if (count == NULL || (records == NULL && capacity > 0))
        return gvm_error_set(GVM_E_INVALID, "count is NULL, or there is no room for %zu records",
                             capacity);
    if (capacity > 0 && !gvmi_stride_is_good(stride_bytes, record_bytes))
        return gvm_error_set(GVM_E_INVALID, "a record of %zu bytes is not one every %zu bytes",
                             record_bytes, stride_bytes);
    return GVM_OK;
}

gvm_status gvm_heap_list(gvm_heap *heap, size_t capacity, size_t stride_bytes,
                         gvm_heap_block *blocks, size_t *count)
{
    GVMI_UNCANCELLED;
    list l = {.blocks = blocks, .capacity = capacity, .stride_bytes = stride_bytes};
    gvm_status status = check_room(blocks, capacity, stride_bytes, sizeof *blocks, count);

    if (status == GVM_OK)
        status = list_all(heap, &l);
    if (status == GVM_OK)
        *count = l.count;
    return status;
}

gvm_status gvm_heap_get_usage(gvm_heap *heap, size_t capacity, size_t stride_bytes,
                              gvm_heap_usage *usages, size_t *count)
{
    GVMI_UNCANCELLED;
    list l = {.stride_bytes = sizeof *l.blocks};
    gvm_status status = check_room(usages, capacity, stride_bytes, sizeof *usages, count);

    if (status != GVM_OK)
        return status;
    do { /* until the room is enough: blocks may have come meanwhile */
        l.capacity = l.count + 16;
        l.count = 0;
        free(l.blocks);
        free(l.sums);
        l.blocks = malloc(l.capacity * sizeof *l.blocks);
        l.sums = malloc(l.capacity * sizeof *l.sums);
        status = l.blocks != NULL && l.sums != NULL
                     ? list_all(heap, &l)
                     : gvm_error_set(GVM_E_NOMEM, "out of host memory for a list of blocks");
    } while (status == GVM_OK && l.count > l.capacity);
    if (status == GVM_OK) {
        *count = l.tags;
        for (size_t i = 0; i < l.tags && i < capacity; i++)
            gvmi_record_out(usages, i, stride_bytes, &l.sums[i], sizeof l.sums[i]);
    }
    free(l.sums);
    free(l.blocks);
    return status;
}
