/* All blocks, lowest address first: lists, usage by tag, reset. */
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/struct.h"
#include "heap/heap.h"

/* ---- walking */

static bool visit_slab(gvm_heap *heap, gvmi_slab *slab, gvmi_visit *visit, void *arg)
{
    for (uint32_t i = 0; i < slab->count; i++)
        if (slab->cells[i].state != GVMI_BLOCK_NONE && !visit(heap, &slab->cells[i], arg))
            return false;
    return true;
}

bool gvmi_segment_visit(gvm_heap *heap, const gvmi_segment *segment, gvmi_visit *visit, void *arg)
{
    const uint64_t units = segment->lone ? 1 : segment->bytes >> GVMI_HEAP_UNIT_SHIFT;

    for (uint64_t word = 0; word < (units + 63) / 64; word++)
        for (uint64_t bits = segment->starts[word]; bits != 0; bits &= bits - 1) {
            gvmi_block *block = &segment->blocks[word * 64 + (uint64_t)__builtin_ctzll(bits)];

            if (block->state == GVMI_BLOCK_SLAB ? !visit_slab(heap, block->slab, visit, arg)
                                                : !visit(heap, block, arg))
                return false;
        }
    return true;
}

gvmi_segment *gvmi_heap_next_segment(const gvm_heap *heap, uint64_t from)
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

static void visit_all(gvm_heap *heap, gvmi_visit *visit, void *arg)
{
    for (gvmi_segment *segment = gvmi_heap_next_segment(heap, 0);
         segment != NULL && gvmi_segment_visit(heap, segment, visit, arg);
         segment = gvmi_heap_next_segment(heap, segment->base + 1))
        ;
}

/* ---- reset */

static bool give_visited(gvm_heap *heap, gvmi_block *block, void *arg)
{
    (void)arg;
    if (block->state == GVMI_BLOCK_USED)
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
    visit_all(heap, give_visited, NULL);
    atomic_store(&heap->requested_bytes, 0);
    gvmi_shelves_leave_locked(heap);
    gvmi_heap_settle(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return GVM_OK;
}

/* ---- lists */

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
    if (block->state != GVMI_BLOCK_USED)
        return true;
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
    visit_all(heap, list_visited, l);
    if (l->sums != NULL && l->count <= l->capacity)
        sum_list(l);
    gvmi_shelves_leave_locked(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    return GVM_OK;
}

gvm_status gvmi_heap_check_room(const void *records, size_t capacity, size_t stride_bytes,
                                size_t record_bytes, const size_t *count)
{
    if (count == NULL || (records == NULL && capacity > 0))
        return gvm_error_set(GVM_E_INVALID, "count is NULL, or there is no room for %zu records",
                             capacity);
    if (capacity > 0 && !gvmi_stride_is_good(stride_bytes, record_bytes))
        return gvm_error_set(GVM_E_INVALID, "records of %zu bytes cannot be %zu bytes apart",
                             record_bytes, stride_bytes);
    return GVM_OK;
}

gvm_status gvm_heap_list(gvm_heap *heap, size_t capacity, size_t stride_bytes,
                         gvm_heap_block *blocks, size_t *count)
{
    GVMI_UNCANCELLED;
    list l = {.blocks = blocks, .capacity = capacity, .stride_bytes = stride_bytes};
    gvm_status status = gvmi_heap_check_room(blocks, capacity, stride_bytes, sizeof *blocks, count);

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
    gvm_status status = gvmi_heap_check_room(usages, capacity, stride_bytes, sizeof *usages, count);

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
