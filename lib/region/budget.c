/* How the budget of a space is divided into frames.
 *
 * A collection with a budget of its own gets that, as far as the space has it left: where such budgets are more than the space's together, those
 * that have frames keep them, and of the others the newest collection comes first. Each of the others gets a chunk of its buffer, so that a small one beside large
 * ones has frames as well; what is left they share by size, and none gets more than it has regions. Memory comes and goes
 * in whole chunks, from the front. What shrinks does so first, so that the sum never passes the budget.
 */
#include "base/size.h"
#include "memory/idle.h"
#include "region/region.h"

/* Of a collection with a budget of its own: whole chunks. Less than a chunk is all that it needs, or nothing. */
static uint64_t own_bytes(const gvm_collection *c)
{
    return c->budget_bytes >= c->frames_max * c->table.stride_bytes
               ? c->front_bytes
               : gvmi_round_down(c->budget_bytes, c->buffer->layout.chunk_bytes);
}

/* The others have this before they share. No chunk is in front where a region is larger than the budget. */
static uint64_t first_bytes(const gvm_collection *c)
{
    return gvmi_min(c->front_bytes, c->buffer->layout.chunk_bytes);
}

/* What is left for collections without a budget of their own besides their first chunks, and what these could use. */
static uint64_t left_for_shares(const gvm_space *space, uint64_t *needed)
{
    uint64_t left = space->budget_bytes;
    const gvm_collection *c;

    *needed = 0;
    LIST_FOREACH(c, &space->collections, entry)
    {
        const bool shares = c->budget_bytes == 0;

        left -= gvmi_min(left, shares ? first_bytes(c) : own_bytes(c));
        *needed += shares ? c->front_bytes - first_bytes(c) : 0;
    }
    return left;
}

/* How many bytes a collection should have. */
static uint64_t share_bytes(const gvm_collection *c, uint64_t left, uint64_t needed)
{
    const uint64_t first = first_bytes(c), more = c->front_bytes - first;

    if (c->budget_bytes != 0)
        return own_bytes(c);
    if (needed <= left)
        return c->front_bytes;
    return first + gvmi_round_down((uint64_t)((double)left * ((double)more / (double)needed)),
                                   c->buffer->layout.chunk_bytes);
}

static uint64_t frames_in(const gvm_collection *c, uint64_t bytes)
{
    return gvmi_min((bytes - gvmi_min(bytes, c->front_at)) / c->table.stride_bytes, c->frames_max);
}

/* The collection is not cleaned meanwhile. */
static gvm_status empty_frames(gvm_collection *c, uint64_t bytes, CUstream stream)
{
    const uint64_t frames = frames_in(c, bytes);
    const uint64_t had = frames_in(c, c->committed_bytes);
    const gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_retire_frames,
        .first = frames,
        .count = had - frames,
        .by_warp = true,
    };
    uint64_t mapped;
    gvm_status status;

    c->table.frame_count = (uint32_t)gvmi_min(c->table.frame_count, frames); /* also if it fails half-way */
    status = gvmi_region_run(c, &task, stream, &mapped);
    if (status != GVM_OK)
        return status;
    if (mapped > 0)
        return GVM_OK;
    status = gvmi_buffer_decommit(c->buffer, bytes, c->committed_bytes - bytes, GVMI_RELEASE_KEEP,
                                  true);
    if (status == GVM_OK) {
        c->space->committed_bytes -= c->committed_bytes - bytes;
        c->committed_bytes = bytes;
    }
    return status;
}

/* Empties the frames beyond the share, and gives their memory back if all of them are empty. */
static gvm_status take_frames(gvm_collection *c, uint64_t bytes, CUstream stream)
{
    gvm_status status = gvmi_region_wait_brought(c);

    if (status != GVM_OK)
        return status;
    status = gvmi_region_cleaner_stop(c, stream);
    if (status == GVM_OK)
        status = empty_frames(c, bytes, stream);
    return gvmi_region_cleaner_resume(c, status);
}

/* Chunk by chunk, as far as the device has memory and the budget allows. *missing: what it has not. */
static gvm_status commit_frames(gvm_collection *c, uint64_t bytes, uint64_t *missing)
{
    const uint64_t chunk_bytes = c->buffer->layout.chunk_bytes;
    gvm_space *space = c->space;
    gvm_status status = GVM_OK;

    while (status == GVM_OK && c->committed_bytes < bytes &&
           space->budget_bytes - space->committed_bytes >= chunk_bytes) {
        status = gvmi_buffer_commit(c->buffer, c->committed_bytes, chunk_bytes);
        if (status == GVM_OK) {
            c->committed_bytes += chunk_bytes;
            space->committed_bytes += chunk_bytes;
        }
    }
    if (status != GVM_E_NOSPACE)
        return status;
    *missing += bytes - c->committed_bytes;
    return GVM_OK;
}

/* Gives a collection frames up to its share; those that were taken out of use and kept their memory are used again. */
static gvm_status give_frames(gvm_collection *c, uint64_t bytes, CUstream stream, uint64_t *missing)
{
    gvm_status status = commit_frames(c, bytes, missing);
    const uint64_t frames = frames_in(c, gvmi_min(c->committed_bytes, bytes));
    const gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_open_frames,
        .first = c->table.frame_count,
        .count = frames - gvmi_min(frames, c->table.frame_count),
    };
    uint64_t left;

    if (status != GVM_OK || task.count == 0)
        return status;
    status = gvmi_region_run(c, &task, stream, &left);
    if (status == GVM_OK)
        c->table.frame_count = (uint32_t)frames;
    return status;
}

static gvm_status divide_locked(gvm_space *space, CUstream stream, uint64_t *missing)
{
    uint64_t needed;
    const uint64_t left = left_for_shares(space, &needed);
    gvm_status status = GVM_OK;
    gvm_collection *c;

    LIST_FOREACH(c, &space->collections, entry)
    {
        const uint64_t bytes = share_bytes(c, left, needed);

        if (status == GVM_OK && c->committed_bytes > bytes)
            status = take_frames(c, bytes, stream);
    }
    LIST_FOREACH(c, &space->collections, entry)
    {
        if (status == GVM_OK)
            status = give_frames(c, share_bytes(c, left, needed), stream, missing);
    }
    return status;
}

gvm_status gvmi_space_divide(gvm_space *space, CUstream stream)
{
    gvmi_shortage shortage = {0};
    uint64_t missing;
    gvm_status status;
    bool has_changed;

    do {
        missing = 0;
        gvmi_lock(&space->lock);
        status = divide_locked(space, stream, &missing);
        has_changed = space->has_changed;
        space->has_changed = has_changed && missing > 0;
        gvmi_unlock(&space->lock);
    } while (status == GVM_OK && has_changed && missing > 0 &&
             gvmi_idle_retry(space->device, missing, &shortage));
    return status;
}
