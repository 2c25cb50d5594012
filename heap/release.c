/* What is given back of the chunks that nobody uses.
 *
 * How: the driver takes 24 us a chunk and more for it, and where memory is pinned or managed waits for all kernels
 * that run. So the chunks are first taken out of use, a few at a time (they are LEAVING), and the driver is called
 * without the heap's lock.
 *
 * When: with a reserve that the program has set, as soon as there is more. Else what was idle all through a window goes,
 * in the library's thread. A window ends when requests have asked for twice what is committed, or at a tick
 * of the clock when little was asked for since the last, but not before decay_ns. Before memory reaches a new peak what is idle goes, too
 * (chunk.c). On shortage all of it goes, of every heap (memory/idle.h).
 */
#include <stddef.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "heap/heap.h"

#define RUNS_MAX 16 /* that leave at once */
#define RESERVE_BYTES_LEAST (64 * GVMI_MIB)
#define RESERVE_SHARE 32   /* of what is committed */
#define WINDOW_PERCENT 200 /* asked for, of what is committed */
#define TICK_NS (1000 * GVMI_NS_PER_MS)
#define BUSY_NS (10 * GVMI_NS_PER_MS)
#define STEP_BYTES \
    (64 * GVMI_MIB) /* that the library's thread gives back in one go: under a millisecond */

bool gvmi_heap_threadless;

/* Chunks that leave. detached: with all of their segment. */
typedef struct run {
    gvmi_segment *segment;
    uint64_t first, end, bytes;
    bool detached, gone;
} run;

typedef struct run_list {
    run runs[RUNS_MAX];
    size_t count;
    uint64_t wanted_bytes, bytes; /* wanted: in all */
    gvmi_release how;
    bool may_wait;
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
        *r = (run){.segment = segment,
                   .first = first,
                   .end = last + 1,
                   .bytes = (last + 1 - first) * segment->chunk_bytes,
                   .detached = heap->whole};
        list->count++;
        list->bytes += r->bytes;
        if (heap->whole) {
            gvmi_segment_detach_locked(heap, segment);
            heap->leaving_bytes += r->bytes;
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
        r->gone = r->detached || gvmi_backing_decommit(heap, r->segment, r->first, r->end,
                                                       list->how, list->may_wait) == GVM_OK;
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
            heap->leaving_bytes -= r->bytes;
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

static uint64_t gone_bytes(const run_list *list)
{
    uint64_t bytes = 0;

    for (const run *r = list->runs; r < list->runs + list->count; r++)
        if (r->gone)
            bytes += r->bytes;
    return bytes;
}

/* Lets the lock go. False: the driver has refused one. */
static bool give_back(gvm_heap *heap, run_list *list)
{
    gvmi_unlock(&heap->lock);
    give_to_driver(heap, list);
    gvmi_lock(&heap->lock);
    return finish_locked(heap, list);
}

uint64_t gvmi_heap_release(gvm_heap *heap, uint64_t bytes, gvmi_release how, bool may_wait)
{
    uint64_t given = 0;
    gvm_error error;

    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_HEAP));
    if (bytes == 0 || heap->idle_bytes == 0)
        return 0;
    error = gvmi_error_save();
    heap->stuck = false;
    while (given < bytes && !heap->stuck) {
        run_list list = {.wanted_bytes = bytes - given, .how = how, .may_wait = may_wait};

        choose_locked(heap, &list);
        if (list.count == 0)
            break;
        heap->stuck = !give_back(heap, &list);
        given += gone_bytes(&list);
    }
    gvmi_error_restore(&error);
    return given;
}

void gvmi_heap_await_leaving(gvm_heap *heap)
{
    while (heap->leaving_bytes > 0)
        pthread_cond_wait(&heap->left, &heap->lock.mutex);
}

/* ---- when */

uint64_t gvmi_heap_reserve(const gvm_heap *heap)
{
    if (heap->reserve_bytes != 0)
        return heap->reserve_bytes;
    return heap->committed_bytes / RESERVE_SHARE > RESERVE_BYTES_LEAST
               ? heap->committed_bytes / RESERVE_SHARE
               : RESERVE_BYTES_LEAST;
}

/* What is to be given back now. */
static uint64_t due_bytes(const gvm_heap *heap)
{
    if (heap->slow_release || heap->keeps)
        return 0;
    if (heap->reserve_bytes != 0)
        return heap->idle_bytes > heap->reserve_bytes ? heap->idle_bytes - heap->reserve_bytes : 0;
    return heap->surplus_bytes < heap->idle_low_bytes ? heap->surplus_bytes : heap->idle_low_bytes;
}

/* At most so many bytes of it. */
static uint64_t release_due(gvm_heap *heap, uint64_t most_bytes, bool may_wait)
{
    const uint64_t due = due_bytes(heap);
    const uint64_t given = gvmi_heap_release(heap, due < most_bytes ? due : most_bytes,
                                             GVMI_RELEASE_KEEP, may_wait);

    heap->surplus_bytes -= given < heap->surplus_bytes ? given : heap->surplus_bytes;
    return given;
}

/* False: it has not lasted long enough. */
static bool end_window_locked(gvm_heap *heap)
{
    if (heap->decay_ns != 0) {
        const int64_t now_ns = gvmi_now_ns();

        if (now_ns - heap->window_ns < heap->decay_ns)
            return false;
        heap->window_ns = now_ns;
    }
    heap->surplus_bytes = heap->idle_low_bytes;
    heap->idle_low_bytes = heap->idle_bytes;
    heap->window_asked_bytes = heap->asked_bytes;
    return true;
}

/* Has the library's thread look at the heap in a second, and at once if something is due. */
static void wake_locked(gvm_heap *heap)
{
    const uint64_t due = due_bytes(heap);

    if (!heap->holds || heap->slow_release || (heap->tick_ns != 0 && due == 0))
        return;
    if (heap->tick_ns == 0) {
        heap->tick_ns = gvmi_now_ns() + TICK_NS;
        heap->tick_asked_bytes = heap->asked_bytes;
    }
    if (!gvmi_heap_threadless)
        gvmi_idle_wake(&heap->idle, due > 0 ? gvmi_now_ns() : heap->tick_ns);
}

void gvmi_heap_settle(gvm_heap *heap)
{
    if (heap->reserve_bytes != 0 || gvmi_heap_threadless)
        (void)release_due(heap, UINT64_MAX, true);
    wake_locked(heap);
}

void gvmi_heap_settle_asked(gvm_heap *heap)
{
    const uint64_t least = heap->committed_bytes > RESERVE_BYTES_LEAST ? heap->committed_bytes
                                                                       : RESERVE_BYTES_LEAST;

    if (heap->asked_bytes - heap->window_asked_bytes >= least / 100 * WINDOW_PERCENT &&
        end_window_locked(heap)) {
        gvmi_heap_settle(heap);
    } else if (heap->tick_ns == 0) {
        wake_locked(heap);
    }
}

void gvmi_heap_empty_shelves_locked(gvm_heap *heap)
{
    gvmi_shelves_claim_locked(heap);
    for (gvmi_shelf *shelf = heap->shelves; shelf != NULL; shelf = shelf->next)
        gvmi_shelf_empty_locked(shelf, 0);
    gvmi_shelves_release_locked(heap);
}

/* ---- as a holder of idle memory */

static gvm_heap *heap_of(gvmi_idle *idle)
{
    return (gvm_heap *)((char *)idle - offsetof(gvm_heap, idle));
}

/* A shelf that is as it was a second ago gives back what it holds. Empty and asleep it is no reason for a tick: the
 * next block for it comes through the lock. True: it is awake. */
static bool look_at_shelf_locked(gvmi_shelf *shelf)
{
    bool awake;

    gvmi_shelf_claim_locked(shelf);
    if (shelf->bytes == shelf->seen_bytes && shelf->requested == shelf->seen_requested &&
        !shelf->asleep) {
        gvmi_shelf_empty_locked(shelf, 0);
        shelf->asleep = true;
        shelf->limit_bytes = 0;
    }
    shelf->seen_bytes = shelf->bytes;
    shelf->seen_requested = shelf->requested;
    awake = !shelf->asleep;
    gvmi_shelf_release(shelf);
    return awake;
}

/* Once a second, while there may be something to give back. A window ends, too, where little is asked for. */
static void tick_locked(gvm_heap *heap, int64_t now_ns)
{
    bool more = heap->wait_count > 0;

    for (gvmi_shelf *shelf = heap->shelves; shelf != NULL; shelf = shelf->next)
        more = look_at_shelf_locked(shelf) || more;
    if (heap->asked_bytes - heap->tick_asked_bytes <= heap->committed_bytes / RESERVE_SHARE)
        (void)end_window_locked(heap);
    heap->tick_asked_bytes = heap->asked_bytes;
    more = more || (heap->reserve_bytes == 0 ? heap->idle_bytes > 0 : due_bytes(heap) > 0);
    heap->tick_ns = more ? now_ns + TICK_NS : 0;
}

/* Never waits: who has the lock may be committing gigabytes, and a kernel may be waiting for the thread. */
static int64_t decay(gvmi_idle *idle, int64_t now_ns)
{
    gvm_heap *heap = heap_of(idle);
    int64_t next_ns;

    if (!gvmi_try_lock(&heap->lock))
        return now_ns + BUSY_NS;
    gvmi_heap_poll_locked(heap);
    if (heap->tick_ns != 0 && now_ns >= heap->tick_ns)
        tick_locked(heap, now_ns);
    next_ns = heap->tick_ns != 0 ? heap->tick_ns : GVMI_NEVER_NS;
    if (due_bytes(heap) > 0 && release_due(heap, STEP_BYTES, false) > 0)
        next_ns = now_ns;
    else if (due_bytes(heap) > 0 && now_ns + BUSY_NS < next_ns) /* its streams are busy */
        next_ns = now_ns + BUSY_NS;
    gvmi_unlock(&heap->lock);
    return next_ns;
}

static uint64_t reclaim(gvmi_idle *idle, uint64_t wanted_bytes, bool may_wait)
{
    gvm_heap *heap = heap_of(idle);
    uint64_t given = 0;

    if (heap->slow_release && !may_wait)
        return 0;
    gvmi_lock(&heap->lock);
    gvmi_heap_empty_shelves_locked(heap);
    gvmi_heap_poll_locked(heap);
    given = gvmi_heap_release(heap, wanted_bytes, GVMI_RELEASE_KEEP, may_wait);
    if (may_wait && given < wanted_bytes) {
        gvmi_heap_await_streams(heap);
        given += gvmi_heap_release(heap, wanted_bytes - given, GVMI_RELEASE_KEEP, true);
    }
    gvmi_heap_await_leaving(heap);
    gvmi_unlock(&heap->lock);
    return given;
}

const gvmi_idle_calls gvmi_heap_idle_calls = {reclaim, decay};
