/* What is given back of the chunks that nobody uses.
 *
 * How: the driver takes 24 us a chunk and more for it, and where memory is pinned or managed waits for all kernels
 * that run. So the chunks are first taken out of use, a few at a time (they are LEAVING), and the driver is called
 * without the heap's lock.
 *
 * When: with keep_bytes that the program has set, as soon as there is more. Else what was idle all through an interval goes,
 * in the library's thread. An interval ends when requests have asked for twice what is committed, or at a tick
 * of the clock when little was asked for since the last, but not before decay_ns. Before memory reaches a new peak what is idle goes, too
 * (chunk.c). On shortage all of it goes, of every heap (memory/idle.h).
 */
#include <stddef.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "heap/heap.h"
#include "memory/background.h"

#define INTERVAL_PERCENT 200 /* asked for, of what is committed */
#define TICK_NS (1000 * GVMI_NS_PER_MS)
#define BUSY_NS (10 * GVMI_NS_PER_MS)
#define LOCKED_NS GVMI_NS_PER_MS /* a request holds the lock */
#define NAP_NS (GVMI_NS_PER_MS / 10)
#define STEP_BYTES \
    (64 * GVMI_MIB) /* that the library's thread gives back in one go: under a millisecond */

bool gvmi_heap_threadless;

static bool is_full(const gvmi_leaving_list *list)
{
    return list->count == GVMI_HEAP_LEAVING_MAX || list->bytes >= list->wanted_bytes;
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

static bool is_releasable_chunk(const gvmi_segment *segment, const gvmi_arena *arena, uint64_t index)
{
    return (segment->idle[index / 64] >> index % 64 & 1) != 0 &&
           segment->chunks[index].idle_since <= arena->passed;
}

/* From the top of a segment. What has no memory has no addresses either, in heaps that are whole. */
static void choose_in_segment_locked(gvm_heap *heap, const gvmi_arena *arena, gvmi_segment *segment,
                                     gvmi_leaving_list *list)
{
    uint64_t end = segment->chunk_count;

    while (!is_full(list) && segment->idle_count > 0) {
        const uint64_t last = highest_idle(segment, end);
        const uint64_t most = (list->wanted_bytes - list->bytes - 1) / segment->chunk_bytes + 1;
        gvmi_leaving *r = &list->runs[list->count];
        uint64_t first = last;

        if (last == segment->chunk_count)
            return;
        end = last;
        if (!is_releasable_chunk(segment, arena, last))
            continue;
        while (first > 0 && last + 1 - first < most && is_releasable_chunk(segment, arena, first - 1))
            first--;
        *r = (gvmi_leaving){.segment = segment,
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

static void choose_in_arena_locked(gvm_heap *heap, gvmi_arena *arena, gvmi_leaving_list *list)
{
    if (!gvmi_arena_has_idle(arena))
        return;
    if (arena != &heap->plain) {
        (void)gvmi_arena_mark_locked(arena, 0);
        if (arena->reaped == arena->passed + 1)
            return;
    }
    for (size_t i = arena->count; i-- > 0 && !is_full(list);)
        choose_in_segment_locked(heap, arena, arena->segments[i], list);
    if (arena != &heap->plain && !is_full(list)) /* all that may go goes */
        arena->reaped = arena->passed + 1;
}

static void choose_locked(gvm_heap *heap, gvmi_leaving_list *list)
{
    for (gvmi_arena *arena = heap->arenas; arena != NULL && !is_full(list); arena = arena->next)
        choose_in_arena_locked(heap, arena, list);
    if (!is_full(list))
        choose_in_arena_locked(heap, &heap->plain, list);
}

/* ---- giving back */

static void give_to_driver(gvm_heap *heap, gvmi_leaving_list *list)
{
    for (gvmi_leaving *r = list->runs; r < list->runs + list->count; r++) {
        r->gone = r->detached || gvmi_backing_decommit(r->segment, r->first, r->end, list->how,
                                                       list->may_wait) == GVM_OK;
        if (r->detached)
            gvmi_backing_close(heap, r->segment);
    }
}

/* False: the driver has refused one. */
static bool finish_leaving_locked(gvm_heap *heap, const gvmi_leaving_list *list)
{
    bool good = true;

    for (const gvmi_leaving *r = list->runs; r < list->runs + list->count; r++) {
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

/* What was due, or may have been, has been given back. */
static void count_due_locked(gvm_heap *heap, uint64_t bytes)
{
    heap->surplus_bytes -= gvmi_min(bytes, heap->surplus_bytes);
}

static uint64_t sum_released_bytes(const gvmi_leaving_list *list)
{
    uint64_t bytes = 0;

    for (const gvmi_leaving *r = list->runs; r < list->runs + list->count; r++)
        if (r->gone)
            bytes += r->bytes;
    return bytes;
}

/* Lets the lock go. False: the driver has refused one. */
static bool give_list_to_driver(gvm_heap *heap, gvmi_leaving_list *list)
{
    gvmi_unlock(&heap->lock);
    give_to_driver(heap, list);
    gvmi_lock(&heap->lock);
    return finish_leaving_locked(heap, list);
}

uint64_t gvmi_heap_release(gvm_heap *heap, uint64_t bytes, gvmi_release how)
{
    uint64_t given = 0;
    gvm_error error;

    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_HEAP));
    if (bytes == 0 || heap->idle_bytes == 0)
        return 0;
    error = gvmi_error_save();
    heap->stuck = false;
    while (given < bytes && !heap->stuck) {
        gvmi_leaving_list list = {.wanted_bytes = bytes - given, .how = how, .may_wait = true};

        choose_locked(heap, &list);
        if (list.count == 0)
            break;
        heap->stuck = !give_list_to_driver(heap, &list);
        given += sum_released_bytes(&list);
    }
    gvm_error_restore(&error);
    return given;
}

/* ---- without waiting for the lock */

/* Naps and tries again for so long. */
static bool lock_with_timeout(gvm_heap *heap, int64_t timeout_ns)
{
    const int64_t deadline_ns = gvmi_now_ns() + timeout_ns;
    bool locked;

    while (!(locked = gvmi_try_lock(&heap->lock)) && gvmi_now_ns() < deadline_ns)
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    return locked;
}

static void finish_quick_locked(gvm_heap *heap)
{
    if (!atomic_load_explicit(&heap->quick_done, memory_order_acquire))
        return;
    atomic_store_explicit(&heap->quick_done, false, memory_order_relaxed);
    heap->stuck = !finish_leaving_locked(heap, &heap->quick);
    count_due_locked(heap, sum_released_bytes(&heap->quick));
}

/* One list of about so many bytes. Reports the bytes given back. False: the lock could not be taken
 * again in time, and is not held. Calls of a holder that do not wait are made one after the other
 * (memory/idle.h). */
static bool release_quickly(gvm_heap *heap, uint64_t bytes, int64_t timeout_ns, uint64_t *given)
{
    const gvm_error error = gvmi_error_save();

    *given = 0;
    finish_quick_locked(heap);
    if (bytes == 0 || heap->idle_bytes == 0)
        return true;
    heap->quick = (gvmi_leaving_list){.wanted_bytes = bytes, .how = GVMI_RELEASE_KEEP};
    choose_locked(heap, &heap->quick);
    if (heap->quick.count == 0) {
        gvm_error_restore(&error);
        return true;
    }
    gvmi_unlock(&heap->lock);
    give_to_driver(heap, &heap->quick);
    gvm_error_restore(&error);
    *given = sum_released_bytes(&heap->quick);
    atomic_store_explicit(&heap->quick_done, true, memory_order_release);
    if (!lock_with_timeout(heap, timeout_ns))
        return false;
    finish_quick_locked(heap);
    return true;
}

void gvmi_heap_await_leaving(gvm_heap *heap)
{
    for (finish_quick_locked(heap); heap->leaving_bytes > 0; finish_quick_locked(heap))
        (void)gvmi_wait_until(&heap->left, &heap->lock, gvmi_now_ns() + BUSY_NS);
}

/* ---- when */

static uint64_t bytes_beyond(uint64_t bytes, uint64_t most)
{
    return bytes > most ? bytes - most : 0;
}

/* What is to be given back now. */
static uint64_t due_bytes(const gvm_heap *heap)
{
    uint64_t due, limit;

    if (heap->whole || heap->keeps)
        return 0;
    /* The limit may have been lowered. */
    limit = gvmi_min(heap->idle_bytes, bytes_beyond(heap->committed_bytes, heap->limit_bytes));
    due = heap->bounded ? bytes_beyond(heap->idle_bytes, heap->keep_bytes)
                        : gvmi_min(heap->surplus_bytes, heap->idle_low_bytes);
    return gvmi_max(due, limit);
}

static void release_due(gvm_heap *heap)
{
    const uint64_t given = gvmi_heap_release(heap, due_bytes(heap), GVMI_RELEASE_KEEP);

    count_due_locked(heap, given);
}

/* False: it has not lasted long enough. */
static bool end_interval_locked(gvm_heap *heap)
{
    if (heap->decay_ns != 0) {
        const int64_t now_ns = gvmi_now_ns();

        if (now_ns - heap->interval_ns < heap->decay_ns)
            return false;
        heap->interval_ns = now_ns;
    }
    heap->surplus_bytes = heap->idle_low_bytes;
    heap->idle_low_bytes = heap->idle_bytes;
    heap->interval_asked_bytes = heap->asked_bytes;
    return true;
}

/* Has the library's thread look at the heap in a second, and at once if something is due. */
static void wake_locked(gvm_heap *heap)
{
    const uint64_t due = due_bytes(heap);

    if (!heap->holds || heap->whole ||
        (heap->tick_ns != 0 && due == 0 && !gvmi_background_is_missing()))
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
    if (heap->bounded || gvmi_heap_threadless) {
        release_due(heap);
        heap->unsettled = false;
    }
    wake_locked(heap);
}

void gvmi_heap_settle_asked(gvm_heap *heap)
{
    const uint64_t least = heap->committed_bytes > GVMI_HEAP_IDLE_LEAST ? heap->committed_bytes
                                                                        : GVMI_HEAP_IDLE_LEAST;

    if (heap->asked_bytes - heap->interval_asked_bytes >= least / 100 * INTERVAL_PERCENT &&
        end_interval_locked(heap))
        gvmi_heap_settle(heap);
    else if (heap->tick_ns == 0 || gvmi_background_is_missing())
        wake_locked(heap);
}

void gvmi_heap_empty_shelves_locked(gvm_heap *heap)
{
    gvmi_shelves_own_locked(heap);
    for (gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL; shelf = LIST_NEXT(shelf, entry))
        gvmi_shelf_empty_locked(shelf, 0);
    gvmi_shelves_leave_locked(heap);
    heap->unsettled = true;
}

/* ---- as a holder of idle memory */

static gvm_heap *heap_of(gvmi_idle *idle)
{
    return (gvm_heap *)((char *)idle - offsetof(gvm_heap, idle));
}

/* A shelf that is as it was a second ago gives back what it holds. Empty and asleep it is no reason for a tick: the
 * next block for it comes through the lock. True: it is awake. */
static bool drain_unused_shelf_locked(gvmi_shelf *shelf)
{
    bool awake;

    gvmi_shelf_own_locked(shelf);
    if (shelf->bytes == shelf->seen_bytes && shelf->requested == shelf->seen_requested &&
        !shelf->asleep) {
        gvmi_shelf_empty_locked(shelf, 0);
        shelf->asleep = true;
        shelf->limit_bytes = 0;
    }
    shelf->seen_bytes = shelf->bytes;
    shelf->seen_requested = shelf->requested;
    awake = !shelf->asleep;
    gvmi_shelf_leave(shelf);
    return awake;
}

/* Once a second, while there may be something to give back. An interval ends, too, where little is asked for. */
static void run_heap_tick_locked(gvm_heap *heap, int64_t now_ns)
{
    bool more = heap->wait_count > 0;

    for (gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL; shelf = LIST_NEXT(shelf, entry))
        more = drain_unused_shelf_locked(shelf) || more;
    if (heap->asked_bytes - heap->tick_asked_bytes <= heap->committed_bytes / GVMI_HEAP_IDLE_PART)
        (void)end_interval_locked(heap);
    heap->tick_asked_bytes = heap->asked_bytes;
    more = more || (!heap->bounded ? heap->idle_bytes > 0 : due_bytes(heap) > 0);
    heap->tick_ns = more ? now_ns + TICK_NS : 0;
}

/* Never waits for the lock: who has it may be committing gigabytes, and a kernel may be waiting for the thread. */
static int64_t decay_heap(gvmi_idle *idle, int64_t now_ns)
{
    gvm_heap *heap = heap_of(idle);
    uint64_t due, given;
    int64_t next_ns;

    if (!gvmi_try_lock(&heap->lock))
        return now_ns + LOCKED_NS;
    gvmi_heap_poll_locked(heap);
    if (heap->tick_ns != 0 && now_ns >= heap->tick_ns)
        run_heap_tick_locked(heap, now_ns);
    next_ns = heap->tick_ns != 0 ? heap->tick_ns : GVMI_NEVER_NS;
    due = due_bytes(heap);
    if (!release_quickly(heap, gvmi_min(due, STEP_BYTES), 0, &given))
        return now_ns + BUSY_NS;
    if (given > 0)
        next_ns = now_ns;
    else if (due_bytes(heap) > 0 && now_ns + BUSY_NS < next_ns) /* its streams are busy */
        next_ns = now_ns + BUSY_NS;
    heap->unsettled = due_bytes(heap) > 0;
    gvmi_unlock(&heap->lock);
    return next_ns;
}

/* Waits for the lock a moment: there may be nobody else to ask. */
static uint64_t reclaim_quickly(gvm_heap *heap, uint64_t wanted_bytes)
{
    uint64_t given = 0, more;

    if (heap->whole || !lock_with_timeout(heap, BUSY_NS))
        return 0;
    gvmi_heap_empty_shelves_locked(heap);
    gvmi_heap_poll_locked(heap);
    /* What the shelves held may be more than is wanted, and than the heap keeps. */
    wanted_bytes = gvmi_max(wanted_bytes, due_bytes(heap));
    do {
        if (!release_quickly(heap, wanted_bytes - given, BUSY_NS, &more)) {
            if (!gvmi_heap_threadless)
                gvmi_idle_wake(&heap->idle, gvmi_now_ns()); /* finishes it */
            return given + more;
        }
        given += more;
    } while (more > 0 && given < wanted_bytes);
    heap->unsettled = due_bytes(heap) > 0;
    wake_locked(heap);
    gvmi_unlock(&heap->lock);
    return given;
}

static uint64_t reclaim_heap_chunks(gvmi_idle *idle, uint64_t wanted_bytes, bool may_wait)
{
    gvm_heap *heap = heap_of(idle);
    uint64_t given = 0;

    if (!may_wait)
        return reclaim_quickly(heap, wanted_bytes);
    gvmi_lock(&heap->lock);
    gvmi_heap_empty_shelves_locked(heap);
    gvmi_heap_poll_locked(heap);
    given = gvmi_heap_release(heap, gvmi_max(wanted_bytes, due_bytes(heap)), GVMI_RELEASE_KEEP);
    if (given < wanted_bytes) {
        (void)gvmi_heap_await_streams(heap, idle->until_ns);
        given += gvmi_heap_release(heap, gvmi_max(wanted_bytes - given, due_bytes(heap)),
                                   GVMI_RELEASE_KEEP);
    }
    gvmi_heap_await_leaving(heap);
    heap->unsettled = due_bytes(heap) > 0;
    wake_locked(heap);
    gvmi_unlock(&heap->lock);
    return given;
}

const gvmi_idle_calls gvmi_heap_idle_calls = {.reclaim = reclaim_heap_chunks, .decay = decay_heap};
