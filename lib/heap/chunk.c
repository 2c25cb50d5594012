/* Chunks: which have users, and so memory.
 *
 * A chunk that loses its last user becomes idle, in an idle number of the heap. What becomes of idle chunks is
 * release.c's. Those of a stream's arena may still be in use by the stream's work, so before they leave the stream
 * has to pass a stream mark that was set after that idle number.
 */
#include "base/assert.h"
#include "base/error.h"
#include "heap/heap.h"

/* ---- idle and leaving */

static void set_idle(gvm_heap *heap, gvmi_segment *segment, uint64_t index, bool idle)
{
    const uint64_t bit = 1ull << index % 64;

    GVM_ASSERT(((segment->idle[index / 64] & bit) != 0) != idle);
    segment->idle[index / 64] ^= bit;
    if (idle) {
        segment->idle_count++;
        heap->idle_bytes += segment->chunk_bytes;
    } else {
        segment->idle_count--;
        heap->idle_bytes -= segment->chunk_bytes;
        heap->idle_low_bytes = gvmi_min(heap->idle_low_bytes, heap->idle_bytes);
    }
}

static void become_idle(gvm_heap *heap, gvmi_segment *segment, uint64_t index)
{
    gvmi_arena *arena = segment->arena;

    segment->chunks[index].idle_since = arena->idled = ++heap->idle_number;
    set_idle(heap, segment, index, true);
}

bool gvmi_arena_has_idle(const gvmi_arena *arena)
{
    for (size_t i = 0; i < arena->count; i++)
        if (arena->segments[i]->idle_count > 0)
            return true;
    return false;
}

void gvmi_chunk_come_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t index)
{
    segment->chunks[index].committed = true;
    segment->committed_count++;
    heap->committed_bytes += segment->chunk_bytes;
    heap->committed_peak_bytes = gvmi_max(heap->committed_peak_bytes, heap->committed_bytes);
    become_idle(heap, segment, index);
}

/* The units of chunks that nobody uses are all free. */
static void free_units(gvmi_segment *segment, uint64_t first, uint64_t end, bool free)
{
    if (!segment->lone)
        (free ? gvmi_buddy_free : gvmi_buddy_take)(segment->buddy,
                                                   (uint32_t)first * segment->chunk_units,
                                                   (uint32_t)end * segment->chunk_units);
}

void gvmi_chunks_part_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        set_idle(heap, segment, i, false);
        segment->chunks[i].leaving = true;
    }
    segment->leaving_count += end - first;
    heap->leaving_bytes += (end - first) * segment->chunk_bytes;
    free_units(segment, first, end, false);
}

void gvmi_chunks_stay_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        segment->chunks[i].leaving = false;
        set_idle(heap, segment, i, true); /* since when it was */
    }
    segment->leaving_count -= end - first;
    heap->leaving_bytes -= (end - first) * segment->chunk_bytes;
    free_units(segment, first, end, true);
}

void gvmi_chunks_gone_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    gvmi_chunks_stay_locked(heap, segment, first, end);
    for (uint64_t i = first; i < end; i++) {
        segment->chunks[i].committed = false;
        set_idle(heap, segment, i, false);
    }
    segment->committed_count -= end - first;
    heap->committed_bytes -= (end - first) * segment->chunk_bytes;
}

/* ---- users */

gvm_status gvmi_heap_check_limit(const gvm_heap *heap, uint64_t more_bytes, uint64_t idle_bytes)
{
    /* What is idle beyond a limit that was lowered waits to be given back, and is nobody's. */
    const uint64_t used_bytes = more_bytes > 0 ? heap->committed_bytes
                                               : heap->committed_bytes - heap->idle_bytes;
    const uint64_t wanted_bytes = more_bytes > 0 ? more_bytes : idle_bytes;
    char more[32], used[32], limit[32];

    if (wanted_bytes == 0 ||
        (used_bytes <= heap->limit_bytes && wanted_bytes <= heap->limit_bytes - used_bytes))
        return GVM_OK;
    return gvm_error_set(GVM_E_NOSPACE,
                         "%s more than the %s in use would pass the heap's limit of %s: free blocks or raise "
                         "the limit",
                         gvmi_size_text(wanted_bytes, more), gvmi_size_text(used_bytes, used),
                         gvmi_size_text(heap->limit_bytes, limit));
}

/* The end of the run of chunks from first on that have memory, or have none, at most end. */
static uint64_t run_end(const gvmi_segment *segment, uint64_t first, uint64_t end)
{
    uint64_t i = first;

    while (i < end && segment->chunks[i].committed == segment->chunks[first].committed)
        i++;
    return i;
}

static gvm_status commit_run(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end)
{
    gvm_status status = gvmi_backing_commit(segment, first, end);

    heap->commits++;
    for (uint64_t i = first; i < end && status == GVM_OK; i++)
        gvmi_chunk_come_locked(heap, segment, i);
    return status;
}

/* Nobody has used what became idle after an idle number, so it can go at once, under the lock: others' copies wait for no more
 * than its commit did. Unless that would wait for kernels. */
static void undo_commits(gvm_heap *heap, gvmi_segment *segment, uint64_t first, uint64_t end,
                         uint64_t idle_number)
{
    const gvm_error error = gvmi_error_save();

    for (uint64_t i = first; i < end && !heap->whole; i++) {
        if (!segment->chunks[i].committed || segment->chunks[i].users > 0 ||
            segment->chunks[i].idle_since <= idle_number)
            continue;
        gvmi_chunks_part_locked(heap, segment, i, i + 1);
        if (gvmi_backing_decommit(segment, i, i + 1, GVMI_RELEASE_KEEP, true) == GVM_OK) {
            gvmi_chunks_gone_locked(heap, segment, i, i + 1);
        } else {
            gvmi_chunks_stay_locked(heap, segment, i, i + 1);
            heap->stuck = true;
        }
    }
    gvm_error_restore(&error);
}

/* Idle bytes that stay when memory reaches a new peak. */
static uint64_t idle_kept_bytes(const gvm_heap *heap)
{
    if (heap->bounded)
        return heap->keep_bytes;
    return gvmi_max(heap->committed_bytes / GVMI_HEAP_IDLE_PART, GVMI_HEAP_IDLE_LEAST);
}

/* So that a new peak of memory is one of blocks, too, idle memory beyond what is kept goes first. */
static bool wants_purge(const gvm_heap *heap, uint64_t missing_bytes, gvmi_request *request)
{
    const uint64_t kept = idle_kept_bytes(heap);

    if (request == NULL || !request->may_purge || heap->idle_bytes <= kept ||
        heap->committed_bytes + missing_bytes <= heap->committed_peak_bytes)
        return false;
    request->purge_bytes = gvmi_min(heap->idle_bytes - kept, missing_bytes);
    return true;
}

static gvm_status commit_missing(gvm_heap *heap, gvmi_segment *segment, uint64_t first,
                                 uint64_t end, gvmi_request *request)
{
    const uint64_t idle_number = heap->idle_number;
    uint64_t missing = 0, idle = 0, i;
    gvm_status status;

    for (i = first; i < end; i++) {
        missing += !segment->chunks[i].committed;
        idle += segment->chunks[i].committed && segment->chunks[i].users == 0;
    }
    if (missing > 0 && wants_purge(heap, missing * segment->chunk_bytes, request))
        return GVM_E_NOSPACE;
    status = gvmi_heap_check_limit(heap, missing * segment->chunk_bytes, idle * segment->chunk_bytes);
    if (status != GVM_OK || missing == 0)
        return status;
    for (i = first; i < end && status == GVM_OK;) {
        const uint64_t run = run_end(segment, i, end);

        if (!segment->chunks[i].committed)
            status = commit_run(heap, segment, i, run);
        if (status == GVM_OK)
            i = run;
    }
    if (status != GVM_OK)
        undo_commits(heap, segment, first, i, idle_number);
    return status;
}

gvm_status gvmi_chunks_use_locked(gvm_heap *heap, gvmi_segment *segment, uint64_t first,
                                  uint64_t end, gvmi_request *request)
{
    const uint64_t from = first / segment->chunk_units, to = (end - 1) / segment->chunk_units + 1;
    gvm_status status = commit_missing(heap, segment, from, to, request);

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
            become_idle(heap, segment, i);
    }
}
