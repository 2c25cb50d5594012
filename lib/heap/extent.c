/* All of a heap's memory, lowest address first: blocks, and what is free between them. */
#include "base/address.h"
#include "base/cancel.h"
#include "base/struct.h"
#include "heap/heap.h"

typedef struct walk {
    gvmi_extent_fn *visit;
    void *arg;
    const gvmi_segment *segment;
    uint64_t at;    /* visited up to here */
    uint64_t range; /* where the memory without a gap before it begins; 0: there is none */
} walk;

/* [w->at, end), of the kind that e says. */
static void visit_extent(walk *w, uint64_t end, gvm_heap_extent e)
{
    const gvmi_arena *arena = w->segment->arena;

    if (w->range == 0)
        w->range = w->at;
    if (end > w->at) {
        e.address = gvmi_pointer(w->at);
        e.len_bytes = end - w->at;
        e.range = gvmi_pointer(w->range);
        e.ordered = arena->key != GVMI_HEAP_PLAIN;
        e.stream = e.ordered ? (gvm_stream)(uintptr_t)arena->key : NULL;
        w->visit(&e, w->arg);
    }
    w->at = end;
}

/* What is free up to an address, as far as it has memory. */
static void visit_free(walk *w, uint64_t end)
{
    const gvmi_segment *segment = w->segment;
    const gvm_heap_extent nothing = {.use = GVM_HEAP_USE_FREE, .tag = ""};
    const uint64_t base = segment->base;
    uint64_t at = w->at;

    while (at < end) {
        const uint64_t chunk = (at - base) / segment->chunk_bytes;
        const uint64_t next = gvmi_min(end, base + (chunk + 1) * segment->chunk_bytes);

        if (segment->chunks[chunk].committed) {
            at = next;
            continue;
        }
        if (at > w->at)
            visit_extent(w, at, nothing);
        w->at = at = next;
        w->range = 0;
    }
    if (at > w->at)
        visit_extent(w, at, nothing);
}

/* A tag need not live longer than its block. */
static bool visit_block(gvm_heap *heap, gvmi_block *block, void *arg)
{
    walk *w = arg;
    gvm_heap_extent e = {.tag = ""};

    (void)heap;
    switch (atomic_load(&block->state)) {
    case GVMI_BLOCK_USED:
        e.use = GVM_HEAP_USE_LIVE;
        if (block->tag != NULL)
            e.tag = block->tag;
        break;
    case GVMI_BLOCK_PENDING: e.use = GVM_HEAP_USE_PENDING; break;
    default: e.use = GVM_HEAP_USE_SHELVED; break;
    }
    if (block->state != GVMI_BLOCK_SHELVED)
        e.size_bytes = block->size_bytes;
    visit_free(w, block->address);
    visit_extent(w, block->address + gvmi_block_bytes(block), e);
    return true;
}

void gvmi_heap_visit_extents_locked(gvm_heap *heap, gvmi_extent_fn *visit, void *arg)
{
    walk w = {.visit = visit, .arg = arg};

    for (gvmi_segment *segment = gvmi_heap_next_segment(heap, 0); segment != NULL;
         segment = gvmi_heap_next_segment(heap, segment->base + 1)) {
        w.segment = segment;
        w.at = segment->base;
        w.range = 0;
        (void)gvmi_segment_visit(heap, segment, visit_block, &w);
        visit_free(&w, segment->base + segment->chunk_count * segment->chunk_bytes);
    }
}

typedef struct list {
    gvm_heap_extent *extents;
    size_t capacity, stride_bytes, count;
} list;

static void add_to_list(const gvm_heap_extent *extent, void *arg)
{
    list *l = arg;

    if (l->count < l->capacity)
        gvmi_record_out(l->extents, l->count, l->stride_bytes, extent, sizeof *extent);
    l->count++;
}

gvm_status gvm_heap_list_extents(gvm_heap *handle, size_t capacity, size_t stride_bytes,
                                 gvm_heap_extent *extents, size_t *count)
{
    GVMI_UNCANCELLED;
    list l = {.extents = extents, .capacity = capacity, .stride_bytes = stride_bytes};
    gvm_heap *heap;
    gvm_status status = gvmi_heap_check_room(extents, capacity, stride_bytes, sizeof *extents, count);

    if (status == GVM_OK)
        status = gvmi_heap_hold(handle, &heap);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    gvmi_shelves_own_locked(heap);
    gvmi_heap_visit_extents_locked(heap, add_to_list, &l);
    gvmi_shelves_leave_locked(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    *count = l.count;
    return GVM_OK;
}
