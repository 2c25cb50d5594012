/* Update: an imported buffer, brought up to date by a later share.
 *
 * A chunk that the share has and the buffer lacks has come; one with another stamp in the share was
 * replaced (descriptor.h). What lies beyond the span is not part of it and stays. Of a whole share,
 * gvm_buffer_update(), a chunk that the buffer has within the span and the share lacks has gone; a
 * patch, gvmi_share_patch(), lacks what it does not list.
 *
 * All or nothing: every new handle is imported before the buffer changes; what is replaced keeps
 * its old handle until the new one is in place; what has gone goes last. Only an unmap that fails
 * there cannot be taken back. The buffer then keeps its old generation, so the same share may be
 * tried again.
 *
 * A seal that a patch brings does not touch what is mapped: kernels may be reading there, and on a real
 * device (H100) they fault while the driver changes rights. Chunks that are mapped later are read-only.
 *
 * A patch is in two steps, since its owner waits for the memory that is replaced: the old handles go
 * as soon as all of them are unmapped, and the new ones are mapped after that.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/cancel.h"
#include "base/error.h"
#include "sharing/share.h"

#define UNSETTLED (GVMI_CHUNK_UNMAPPED | GVMI_CHUNK_STALE)

/* A chunk that has come or was replaced. */
typedef struct change {
    uint64_t chunk;    /* of the buffer */
    uint32_t entry;    /* of the share */
    gvmi_chunk before; /* taken out of the buffer; absent if there was none */
    CUmemGenericAllocationHandle handle;
} change;

typedef struct update {
    const gvm_share *share;
    gvm_buffer *buffer;
    change *changes;
    uint32_t count;    /* of changes */
    uint32_t imported; /* so many have their handle */
    uint32_t placed;   /* and so many gave it to the buffer */
    uint64_t first;    /* what is touched: chunks [first, end) of the buffer */
    uint64_t end;
    bool seal;         /* the share brings a seal */
    bool in_place;     /* which takes rights from what is mapped, too */
    gvm_access access; /* before it */
} update;

static gvm_status check_share_source_locked(const gvmi_descriptor *about, const gvm_buffer *buffer)
{
    const gvmi_layout layout = gvmi_descriptor_layout(about);

    if (!buffer->imported)
        return gvm_error_set(GVM_E_INVALID,
                             "the buffer was not imported: only imported ones are updated");
    if (memcmp(about->buffer_id, buffer->id, sizeof buffer->id) != 0 ||
        layout.chunk_bytes != buffer->layout.chunk_bytes ||
        layout.graded_bytes != buffer->layout.graded_bytes ||
        memcmp(about->device_uuid, buffer->device->info.uuid, sizeof about->device_uuid) != 0)
        return gvm_error_set(GVM_E_INVALID, "the share is of another buffer than the one imported");
    if (about->span_offset_bytes != buffer->source_offset_bytes)
        return gvm_error_set(GVM_E_INVALID,
                             "the share begins at offset %" PRIu64
                             " of the owner's buffer, what was imported at %" PRIu64,
                             about->span_offset_bytes, buffer->source_offset_bytes);
    if (about->generation < buffer->source_generation)
        return gvm_error_set(GVM_E_INVALID,
                             "the share is older than the buffer: generation %" PRIu64 ", not %" PRIu64,
                             about->generation, buffer->source_generation);
    if (about->span_len_bytes > buffer->reserve_bytes)
        return gvm_error_set(GVM_E_ADDRESS,
                             "the share spans %" PRIu64 " bytes and the buffer reserves %" PRIu64
                             ": import it anew, or with more reserve_bytes",
                             about->span_len_bytes, buffer->reserve_bytes);
    return GVM_OK;
}

static gvm_status find_changes(update *u)
{
    if (u->share->count == 0)
        return GVM_OK;
    u->changes = calloc(u->share->count, sizeof *u->changes);
    if (u->changes == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for an update of %u chunks",
                             u->share->count);
    for (uint32_t i = 0; i < u->share->count; i++) {
        const gvmi_descriptor_chunk *entry = &u->share->chunks[i];
        const uint64_t index = gvmi_chunk_at(u->buffer, entry->offset_bytes);
        const gvmi_chunk *chunk = &u->buffer->chunks[index];

        if (chunk->tier == GVM_TIER_ABSENT || chunk->stamp != entry->stamp)
            u->changes[u->count++] = (change){.chunk = index, .entry = i};
    }
    return GVM_OK;
}

static gvm_status import_changes(update *u)
{
    gvm_status status = GVM_OK;

    while (u->imported < u->count && status == GVM_OK) {
        status = gvmi_share_import_chunk(u->share, u->changes[u->imported].entry,
                                         &u->changes[u->imported].handle);
        if (status == GVM_OK)
            u->imported++;
    }
    return status;
}

static bool is_update_chunk_mapped(const gvmi_chunk *chunk)
{
    return chunk->tier != GVM_TIER_ABSENT && (chunk->flags & GVMI_CHUNK_UNMAPPED) == 0;
}

/* The changes from first on whose chunks lie side by side and are mapped, or not, like the first;
 * returns the end. */
static uint32_t find_run(const update *u, uint32_t first)
{
    const gvmi_chunk *chunks = u->buffer->chunks;
    uint32_t end = first + 1;

    while (end < u->count && u->changes[end].chunk == u->changes[end - 1].chunk + 1 &&
           is_update_chunk_mapped(&chunks[u->changes[end].chunk]) ==
               is_update_chunk_mapped(&chunks[u->changes[first].chunk]))
        end++;
    return end;
}

/* Makes a chunk that is not mapped absent, without releasing its handle. */
static void make_chunk_absent(gvm_buffer *buffer, change *c)
{
    gvmi_chunk *chunk = &buffer->chunks[c->chunk];

    if (chunk->tier != GVM_TIER_ABSENT)
        *gvmi_buffer_count_of(buffer, chunk) -= gvmi_chunk_bytes(buffer, c->chunk);
    c->before = *chunk;
    memset(chunk, 0, sizeof *chunk);
}

/* Run by run, since the driver charges unmapping by the call. */
static gvm_status place_changes(update *u)
{
    gvm_buffer *buffer = u->buffer;

    while (u->placed < u->count) {
        const uint64_t chunk = u->changes[u->placed].chunk;
        const uint32_t run_end = find_run(u, u->placed);

        if (is_update_chunk_mapped(&buffer->chunks[chunk])) {
            CUresult result = gvmi_cu->cuMemUnmap(
                gvmi_chunk_address(buffer, chunk),
                gvmi_chunks_bytes(buffer, chunk, chunk + run_end - u->placed));

            if (result != CUDA_SUCCESS)
                return gvmi_driver_fail(result, "cuMemUnmap",
                                        "cannot take replaced chunks from their addresses");
        }
        for (; u->placed < run_end; u->placed++) {
            change *c = &u->changes[u->placed];

            make_chunk_absent(buffer, c);
            gvmi_share_place_locked(u->share, c->entry, c->handle, buffer);
        }
    }
    return GVM_OK;
}

/* in_place: also of what is mapped already. */
static void set_access(gvm_buffer *buffer, bool sealed, gvm_access access, bool in_place)
{
    if (buffer->access != access && in_place)
        for (uint64_t i = 0; i < buffer->chunk_count; i++)
            if (buffer->chunks[i].tier != GVM_TIER_ABSENT)
                buffer->chunks[i].flags |= GVMI_CHUNK_STALE;
    buffer->sealed = sealed;
    buffer->access = access;
}

static void release_chunk_handle(const gvm_buffer *buffer, uint64_t chunk, gvm_tier tier,
                                 CUmemGenericAllocationHandle handle)
{
    const gvmi_chunk_spec spec = gvmi_buffer_chunk_spec(buffer, chunk, tier);

    gvmi_chunk_release(buffer->device, &spec, GVMI_RELEASE_NOW, handle);
}

/* Puts the old memory back where it was. */
static void restore_old_chunk(gvm_buffer *buffer, const change *c)
{
    if (c->before.tier == GVM_TIER_ABSENT)
        return;
    /* A broken driver would not unmap the new memory. */
    if (buffer->chunks[c->chunk].tier != GVM_TIER_ABSENT) {
        release_chunk_handle(buffer, c->chunk, (gvm_tier)c->before.tier, c->before.handle);
        return;
    }
    gvmi_buffer_place_locked(buffer, c->chunk, (gvm_tier)c->before.tier, c->before.handle,
                             GVMI_CHUNK_SEEN);
    buffer->chunks[c->chunk].stamp = c->before.stamp;
}

/* The buffer as it was. What the driver does not map again now, the buffer's next call does. */
static void roll_back(update *u)
{
    gvm_buffer *buffer = u->buffer;
    gvm_error error = gvmi_error_save();

    gvmi_buffer_undo_fresh_locked(buffer, u->first, u->end);
    for (uint32_t i = 0; i < u->placed; i++)
        restore_old_chunk(buffer, &u->changes[i]);
    gvmi_buffer_keep_fresh_locked(buffer, u->first, u->end);
    for (uint32_t i = u->placed; i < u->imported; i++)
        release_chunk_handle(buffer, u->changes[i].chunk,
                             (gvm_tier)u->share->chunks[u->changes[i].entry].tier,
                             u->changes[i].handle);
    if (u->seal)
        set_access(buffer, false, u->access, u->in_place);
    (void)gvmi_buffer_settle_locked(buffer, u->first, u->end);
    gvm_error_restore(&error);
}

static void release_replaced(update *u)
{
    gvmi_buffer_keep_fresh_locked(u->buffer, u->first, u->end);
    for (uint32_t i = 0; i < u->count; i++)
        if (u->changes[i].before.tier != GVM_TIER_ABSENT)
            release_chunk_handle(u->buffer, u->changes[i].chunk,
                                 (gvm_tier)u->changes[i].before.tier, u->changes[i].before.handle);
}

/* Takes away what lies in the span and not in the share, gap by gap. */
static gvm_status unmap_absent_chunks(update *u)
{
    const gvmi_descriptor *about = &u->share->about;
    uint64_t next = 0;
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < u->share->count && status == GVM_OK; i++) {
        const uint64_t chunk = gvmi_chunk_at(u->buffer, u->share->chunks[i].offset_bytes);

        status = gvmi_buffer_vacate_locked(u->buffer, next, chunk);
        next = chunk + 1;
    }
    if (status == GVM_OK)
        status = gvmi_buffer_vacate_locked(u->buffer, next,
                                           gvmi_chunk_at(u->buffer, about->span_len_bytes));
    return status;
}

static void take_seal(update *u)
{
    gvm_buffer *buffer = u->buffer;

    u->access = buffer->access;
    u->seal = (u->share->about.flags & GVMI_DESCRIPTOR_SEALED) != 0 && !buffer->sealed;
    if (!u->seal)
        return;
    set_access(buffer, true, GVM_ACCESS_READ, u->in_place);
    if (u->in_place) {
        u->first = 0;
        u->end = buffer->chunk_count;
    }
}

/* Brings in what has come and what was replaced, and the seal; settle: to its place, too. The range
 * to be touched is set. */
static gvm_status change_locked(update *u, bool settle)
{
    gvm_status status = import_changes(u);

    if (status == GVM_OK)
        status = place_changes(u);
    if (status == GVM_OK)
        take_seal(u);
    if (status == GVM_OK && settle)
        status = gvmi_share_settle_locked(u->buffer, u->first, u->end);
    if (status == GVM_OK)
        release_replaced(u);
    else
        roll_back(u);
    return status;
}

static gvm_status update_locked(update *u)
{
    gvm_buffer *buffer = u->buffer;
    const gvmi_descriptor *about = &u->share->about;
    gvm_status status = check_share_source_locked(about, buffer);

    if (status == GVM_OK)
        status = find_changes(u);
    if (status != GVM_OK)
        return status;
    u->end = buffer->chunk_count;
    status = change_locked(u, true);
    if (status != GVM_OK)
        return status;
    status = unmap_absent_chunks(u);
    if (status == GVM_OK && (about->generation > buffer->source_generation || u->count > 0))
        buffer->generation++;
    if (status == GVM_OK)
        buffer->source_generation = about->generation;
    return status;
}

gvm_status gvm_buffer_update(gvm_buffer *buffer_handle, const gvm_share *share_handle)
{
    GVMI_UNCANCELLED;
    update u = {.in_place = true};
    gvm_share *share;
    gvmi_use use;
    gvm_status status = gvmi_share_hold(share_handle, &share);

    if (status != GVM_OK)
        return status;
    status = gvmi_buffer_hold(buffer_handle, &u.buffer);
    if (status == GVM_OK) {
        u.share = share;
        gvmi_use_begin_exclusive(u.buffer, 0, u.buffer->chunk_count, &use);
        status = update_locked(&u);
        gvmi_use_end_locked(&use);
        gvmi_unlock(&u.buffer->lock);
        free(u.changes);
        gvmi_buffer_drop(u.buffer);
    }
    gvmi_share_drop(share);
    return status;
}

/* Touches no more chunks than it must: a buffer may have millions, and patches come often. */
static gvm_status patch_locked(update *u)
{
    gvm_status status = find_changes(u);

    if (status != GVM_OK)
        return status;
    if (u->count > 0) {
        u->first = u->changes[0].chunk;
        u->end = u->changes[u->count - 1].chunk + 1;
    }
    status = change_locked(u, false);
    if (status == GVM_OK && (u->count > 0 || u->seal))
        u->buffer->generation++;
    return status;
}

gvm_status gvmi_share_patch(const gvm_share *share, gvm_buffer *buffer, gvmi_patch *out)
{
    update u = {.share = share, .buffer = buffer};
    gvm_status status;

    GVM_ASSERT(share->about.chunk_bytes == buffer->layout.chunk_bytes);
    gvmi_lock(&buffer->lock);
    status = patch_locked(&u);
    gvmi_unlock(&buffer->lock);
    if (status == GVM_OK) {
        *out = (gvmi_patch){.first = u.first, .end = u.end};
        for (uint32_t i = 0; i < u.count; i++)
            out->replaced |= u.changes[i].before.tier != GVM_TIER_ABSENT;
    }
    free(u.changes);
    return status;
}

gvm_status gvmi_share_settle_patch(gvm_buffer *buffer, gvmi_patch *patch, uint64_t chunks)
{
    uint64_t end;
    gvm_status status;

    gvmi_lock(&buffer->lock);
    while (patch->first < patch->end && (buffer->chunks[patch->first].flags & UNSETTLED) == 0)
        patch->first++;
    end = patch->end - patch->first < chunks ? patch->end : patch->first + chunks;
    status = gvmi_share_settle_locked(buffer, patch->first, end);
    gvmi_unlock(&buffer->lock);
    if (status == GVM_OK)
        patch->first = end;
    return status;
}
