/* Chunks: which have users, and so memory; the reserve of those that have memory and no users.
 *
 * A chunk that loses its last user becomes idle, at a tick of its arena's clock. Idle chunks beyond
 * the reserve go back to the driver, highest address first. Those of a stream's arena may still be
 * in use by the stream's work, so before they go the stream has to pass a fence that was set after
 * that tick; until it has they stay, and the next call looks again.
 */
#include "base/assert.h"
#include "base/error.h"
#include "heap/heap.h"

#define RESERVE_BYTES_LEAST (64 * GVMI_MIB)
#define RESERVE_SHARE 16 /* of what is committed */

/* ---- users */

static void set_idle(gvm_heap *heap, gvmi_segment *segment, uint64_t index, bool idle)
{
    const uint64_t bit = 1ull << index % 64;

    GVM_ASSERT(((segment->idle[index / 64] & bit) != 0) != idle);
    segment->idle[index / 64] ^= bit;
    if (idle) {
        gvmi_arena *arena = segment->arena;

        segment->chunks[index].idle_since = ++arena->clock;
        segment->idle_count++;
        heap->idle_bytes += segment->chunk_bytes;
    } else {
        segment->idle_count--;
        heap->idle_bytes -= segment->chunk_bytes;
    }
}

gvm_status gvmi_heap_check_limit(const gvm_heap *heap, uint64_t more_bytes)
{
    char more[32], committed[32], limit[32];

    if (heap->limit_bytes == 0 || (heap->committed_bytes <= heap->limit_bytes &&
                                   more_bytes <= heap->limit_bytes - heap->committed_bytes))
        return GVM_OK;
    return gvmi_fail(GVM_E_NOSPACE,
                     "%s more would pass the heap's limit of %s, of which %s are committed: free "
                     "blocks or raise the limit",
                     gvmi_size_text(more_bytes, more), gvmi_size_text(heap->limit_bytes, limit),
                     gvmi_size_text(heap->committed_bytes, committed));
}

static void note_committed(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        segment->chunks[i].committed = true;
        set_idle(heap, segment, i, true);
    }
    segment->committed_count += end - first;
    heap->committed_bytes += (end - first) * segment->chunk_bytes;
    if (heap->committed_bytes > heap->committed_peak_bytes)
        heap->committed_peak_bytes = heap->committed_bytes;
}

static void note_decommitted(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        segment->chunks[i].committed = false;
        set_idle(heap, segment, i, false);
    }
    segment->committed_count -= end - first;
    heap->committed_bytes -= (end - first) * segment->chunk_bytes;
}

/* The end of the run of chunks from first on that have memory, or have none, at most end. */
static uint64_t run_end(const gvmi_segment *segment, uint64_t first, uint64_t end)
{
    uint64_t i = first;

    while (i < end && segment->chunks[i].committed == segment->chunks[first].committed)
        i++;
    return i;
}

static gvm_status commit_missing(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    const uint64_t since = ((gvmi_arena *)segment->arena)->clock;
    uint64_t missing = 0, i;
    gvm_status status;

    for (i = first; i < end; i++)
        missing += !segment->chunks[i].committed;
    if (missing == 0)
        return GVM_OK;
    status = gvmi_heap_check_limit(heap, missing * segment->chunk_bytes);
    for (i = first; i < end && status == GVM_OK;) {
        const uint64_t run = run_end(segment, i, end);

        if (!segment->chunks[i].committed) {
            status = gvmi_backing_commit(heap, segment, i, run);
            heap->commits++;
            if (status == GVM_OK)
                note_committed(heap, segment, i, run);
        }
        if (status == GVM_OK)
            i = run;
    }
    if (status == GVM_OK)
        return GVM_OK;
    /* Nobody has used what came before the failure: it can go at once. */
    gvm_error error = gvmi_error_save();

    for (uint64_t j = first; j < i; j++)
        if (segment->chunks[j].committed && segment->chunks[j].users == 0 &&
            segment->chunks[j].idle_since > since) {
            if (gvmi_backing_decommit(heap, segment, j, j + 1) != GVM_OK)
                heap->stuck = true;
            else
                note_decommitted(heap, segment, j, j + 1);
        }
    gvmi_error_restore(&error);
    return status;
}

gvm_status gvmi_chunks_use_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    const uint64_t from = first / segment->chunk_units, to = (end - 1) / segment->chunk_units + 1;
    gvm_status status = commit_missing(heap, segment, from, to);

    if (status != GVM_OK)
        return status;
    for (uint64_t i = from; i < to; i++)
        if (segment->chunks[i].users++ == 0)
            set_idle(heap, segment, i, false);
    return GVM_OK;
}

void gvmi_chunks_leave_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    const uint64_t from = first / segment->chunk_units, to = (end - 1) / segment->chunk_units + 1;

    for (uint64_t i = from; i < to; i++) {
        GVM_ASSERT(segment->chunks[i].users > 0);
        if (--segment->chunks[i].users == 0)
            set_idle(heap, segment, i, true);
    }
}

/* ---- giving back */

uint64_t gvmi_heap_reserve(const gvm_heap *heap)
{
    if (heap->reserve_bytes != 0)
        return heap->reserve_bytes;
    return heap->committed_bytes / RESERVE_SHARE > RESERVE_BYTES_LEAST
               ? heap->committed_bytes / RESERVE_SHARE
               : RESERVE_BYTES_LEAST;
}

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

/* Gives back from the top of a segment; false if the driver refused. */
static bool reap_segment(gvm_heap *heap, gvmi_arena *arena, gvmi_segment *segment, uint64_t keep_bytes)
{
    uint64_t end = segment->chunk_count;

    while (heap->idle_bytes > keep_bytes && segment->idle_count > 0) {
        const uint64_t last = highest_idle(segment, end);
        uint64_t first = last, most = (heap->idle_bytes - keep_bytes - 1) / segment->chunk_bytes + 1;

        if (last == segment->chunk_count)
            return true;
        end = last;
        if (!may_go(segment, arena, last))
            continue;
        while (heap->kind != GVM_HEAP_HOST && first > 0 && last + 1 - first < most &&
               may_go(segment, arena, first - 1))
            first--;
        if (heap->whole) { /* what has no memory has no addresses either */
            gvmi_segment_close_locked(heap, segment);
            heap->decommits++;
            return true;
        }
        if (gvmi_backing_decommit(heap, segment, first, last + 1) != GVM_OK) {
            heap->stuck = true;
            return false;
        }
        heap->decommits++;
        note_decommitted(heap, segment, first, last + 1);
        end = first;
    }
    return true;
}

static bool reap_arena(gvm_heap *heap, gvmi_arena *arena, uint64_t keep_bytes)
{
    bool good = true;

    for (size_t i = arena->count; i-- > 0 && good && heap->idle_bytes > keep_bytes;)
        if (arena->segments[i]->idle_count > 0)
            good = reap_segment(heap, arena, arena->segments[i], keep_bytes);
    gvmi_arena_close_empty_locked(arena, false);
    return good;
}

static bool has_idle(const gvmi_arena *arena)
{
    for (size_t i = 0; i < arena->count; i++)
        if (arena->segments[i]->idle_count > 0)
            return true;
    return false;
}

uint64_t gvmi_heap_reap_locked(gvm_heap *heap, uint64_t keep_bytes, bool wait)
{
    const uint64_t before = heap->committed_bytes;
    gvm_error error;

    if (heap->idle_bytes <= keep_bytes)
        return 0;
    error = gvmi_error_save();
    heap->stuck = false;
    for (gvmi_arena *arena = heap->arenas; arena != NULL && heap->idle_bytes > keep_bytes;
         arena = arena->next)
        if (has_idle(arena)) {
            (void)gvmi_arena_fence_locked(arena, wait);
            if (arena->reaped == arena->passed + 1)
                continue;
            if (!reap_arena(heap, arena, keep_bytes))
                break;
            if (heap->idle_bytes > keep_bytes) /* all that may go went */
                arena->reaped = arena->passed + 1;
        }
    if (heap->idle_bytes > keep_bytes)
        (void)reap_arena(heap, &heap->plain, keep_bytes);
    gvmi_error_restore(&error);
    return before - heap->committed_bytes;
}

void gvmi_heap_keep_reserve_locked(gvm_heap *heap)
{
    /* A reserve that is a share of what is committed shrinks with it. */
    while (heap->idle_bytes > gvmi_heap_reserve(heap) &&
           gvmi_heap_reap_locked(heap, gvmi_heap_reserve(heap), false) > 0)
        ;
}
