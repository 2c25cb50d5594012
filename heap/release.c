/* What is given back of the chunks that nobody uses.
 *
 * The driver takes 24 us a chunk and more for it, and where memory is pinned or managed waits for all kernels that
 * run. So the chunks are first taken out of use, a few at a time (they are LEAVING), and the driver is called
 * without the heap's lock.
 */
#include "base/assert.h"
#include "base/error.h"
#include "heap/heap.h"

#define RUNS_MAX 16 /* that leave at once */
#define RESERVE_BYTES_LEAST (64 * GVMI_MIB)
#define RESERVE_SHARE 16 /* of what is committed */

/* Chunks that leave. detached: with all of their segment. */
typedef struct run {
    gvmi_segment *segment;
    uint64_t first, end;
    bool detached, gone;
} run;

typedef struct run_list {
    run runs[RUNS_MAX];
    size_t count;
    uint64_t wanted_bytes, bytes; /* wanted: in all */
} run_list;

static bool is_full(const run_list *list)
{
    return list->count == RUNS_MAX || list->bytes >= list->wanted_bytes;
}

/* ---- choosing */

/* The highest idle chunk below end; chunk_count if there is none. */
static uint64_t highest_idle(const gvmi_segment *segment, uint64_t end)
{
    for (uint64_t word = (end + 63) / 64; word-- > 0;) {
        uint64_t bits = segment->idle[word];

        if (end < (word + 1) * 64)
            bits &= (1ull << end % 64) - 1;
        if (bits != 0)
            return word * 64 + 63 - (uint64_t)__builtin_clzll(bits);
    }
    return segment->chunk_count;
}

static bool may_go(const gvmi_segment *segment, const gvmi_arena *arena, uint64_t index)
{
    return (segment->idle[index / 64] >> index % 64 & 1) != 0 &&
           segment->chunks[index].idle_since <= arena->passed;
}

/* From the top of a segment. What has no memory has no addresses either, in heaps that are whole. */
static void choose_in_segment_locked(gvm_heap *heap, const gvmi_arena *arena, gvmi_segment *segment,
                                     run_list *list)
{
    uint64_t end = segment->chunk_count;

    while (!is_full(list) && segment->idle_count > 0) {
        const uint64_t last = highest_idle(segment, end);
        const uint64_t most = (list->wanted_bytes - list->bytes - 1) / segment->chunk_bytes + 1;
        run *r = &list->runs[list->count];
        uint64_t first = last;

        if (last == segment->chunk_count)
            return;
        end = last;
        if (!may_go(segment, arena, last))
            continue;
        while (heap->kind != GVM_HEAP_HOST && first > 0 && last + 1 - first < most &&
               may_go(segment, arena, first - 1))
            first--;
        *r = (run){.segment = segment, .first = first, .end = last + 1, .detached = heap->whole};
        list->count++;
        list->bytes += (last + 1 - first) * segment->chunk_bytes;
        if (heap->whole) {
            gvmi_segment_detach_locked(heap, segment);
            heap->leaving_bytes += segment->chunk_bytes;
            return;
        }
        gvmi_chunks_part_locked(heap, segment, first, last + 1);
        end = first;
    }
}

static void choose_in_arena_locked(gvm_heap *heap, gvmi_arena *arena, run_list *list)
{
    if (!gvmi_arena_has_idle(arena))
        return;
    if (arena != &heap->plain) {
        (void)gvmi_arena_fence_locked(arena, 0);
        if (arena->reaped == arena->passed + 1)
            return;
    }
    for (size_t i = arena->count; i-- > 0 && !is_full(list);)
        choose_in_segment_locked(heap, arena, arena->segments[i], list);
    if (arena != &heap->plain && !is_full(list)) /* all that may go goes */
        arena->reaped = arena->passed + 1;
}

static void choose_locked(gvm_heap *heap, run_list *list)
{
    for (gvmi_arena *arena = heap->arenas; arena != NULL && !is_full(list); arena = arena->next)
        choose_in_arena_locked(heap, arena, list);
    if (!is_full(list))
        choose_in_arena_locked(heap, &heap->plain, list);
}

/* ---- giving back */

static void give_to_driver(gvm_heap *heap, run_list *list)
{
    for (run *r = list->runs; r < list->runs + list->count; r++) {
        r->gone = r->detached || gvmi_backing_decommit(heap, r->segment, r->first, r->end) == GVM_OK;
        if (r->detached)
            gvmi_backing_close(heap, r->segment);
    }
}

/* False: the driver has refused one. */
static bool finish_locked(gvm_heap *heap, const run_list *list)
{
    bool good = true;

    for (const run *r = list->runs; r < list->runs + list->count; r++) {
        heap->decommits += r->gone;
        if (r->detached) {
            heap->leaving_bytes -= r->segment->chunk_bytes;
            gvmi_segment_keep_locked(heap, r->segment);
        } else if (r->gone) {
            gvmi_chunks_gone_locked(heap, r->segment, r->first, r->end);
        } else {
            gvmi_chunks_stay_locked(heap, r->segment, r->first, r->end);
            ((gvmi_arena *)r->segment->arena)->reaped = 0;
            good = false;
        }
    }
    if (heap->leaving_bytes == 0)
        pthread_cond_broadcast(&heap->left);
    gvmi_arena_close_empty_locked(&heap->plain, false);
    for (gvmi_arena *arena = heap->arenas; arena != NULL; arena = arena->next)
        gvmi_arena_close_empty_locked(arena, false);
    return good;
}

/* Lets the lock go. False: the driver has refused one. */
static bool give_back(gvm_heap *heap, run_list *list)
{
    gvmi_unlock(&heap->lock);
    give_to_driver(heap, list);
    gvmi_lock(&heap->lock);
    return finish_locked(heap, list);
}

uint64_t gvmi_heap_release(gvm_heap *heap, uint64_t bytes)
{
    uint64_t given = 0;
    gvm_error error;

    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_HEAP));
    if (bytes == 0 || heap->idle_bytes == 0)
        return 0;
    error = gvmi_error_save();
    heap->stuck = false;
    while (given < bytes && !heap->stuck) {
        run_list list = {.wanted_bytes = bytes - given};

        choose_locked(heap, &list);
        if (list.count == 0)
            break;
        heap->stuck = !give_back(heap, &list);
        given += list.bytes;
    }
    gvmi_error_restore(&error);
    return given;
}

void gvmi_heap_await_leaving(gvm_heap *heap)
{
    while (heap->leaving_bytes > 0)
        pthread_cond_wait(&heap->left, &heap->lock.mutex);
}

/* ---- the reserve */

uint64_t gvmi_heap_reserve(const gvm_heap *heap)
{
    if (heap->reserve_bytes != 0)
        return heap->reserve_bytes;
    return heap->committed_bytes / RESERVE_SHARE > RESERVE_BYTES_LEAST
               ? heap->committed_bytes / RESERVE_SHARE
               : RESERVE_BYTES_LEAST;
}

void gvmi_heap_settle(gvm_heap *heap)
{
    if (heap->slow_release)
        return;
    /* A reserve that is a share of what is committed shrinks with it. */
    while (heap->idle_bytes > gvmi_heap_reserve(heap) &&
           gvmi_heap_release(heap, heap->idle_bytes - gvmi_heap_reserve(heap)) > 0)
        ;
}

void gvmi_heap_empty_shelves_locked(gvm_heap *heap)
{
    gvmi_shelves_claim_locked(heap);
    for (gvmi_shelf *shelf = heap->shelves; shelf != NULL; shelf = shelf->next)
        gvmi_shelf_empty_locked(shelf, 0);
    gvmi_shelves_release_locked(heap);
}
