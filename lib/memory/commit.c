/* Putting memory behind addresses and taking it away. */
#include "base/cancel.h"
#include "base/error.h"
#include "memory/buffer.h"
#include "memory/idle.h"

/* Only the owner of the memory, and only before sealing. */
static gvm_status check_owner_locked(const gvm_buffer *buffer)
{
    if (buffer->imported)
        return gvm_error_set(GVM_E_IMPORTED,
                             "the buffer was imported: only its owner commits and decommits");
    if (buffer->sealed)
        return gvm_error_set(GVM_E_SEALED, "the buffer is sealed");
    return GVM_OK;
}

static gvm_status commit_locked(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes)
{
    uint64_t first, end;
    gvm_status status = gvmi_buffer_chunk_range(buffer, offset_bytes, len_bytes, &first, &end);

    if (status == GVM_OK)
        status = check_owner_locked(buffer);
    if (status == GVM_OK && buffer->vmm) /* the fallback is committed whole from the start */
        status = gvmi_buffer_commit_tier_locked(buffer, first, end, GVM_TIER_DEVICE);
    return status;
}

gvm_status gvmi_buffer_commit(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes)
{
    gvm_buffer *buffer;
    gvm_status status = gvmi_buffer_hold(handle, &buffer);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&buffer->lock);
    status = commit_locked(buffer, offset_bytes, len_bytes);
    gvmi_unlock(&buffer->lock);
    gvmi_buffer_drop(buffer);
    return status;
}

gvm_status gvm_buffer_commit(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_shortage shortage = {0};
    gvm_buffer *buffer;
    gvm_status status = gvmi_buffer_hold(handle, &buffer);

    if (status != GVM_OK)
        return status;
    do
        status = gvmi_buffer_commit(buffer, offset_bytes, len_bytes);
    while (status == GVM_E_NOSPACE &&
           gvmi_idle_retry(buffer->device, len_bytes + buffer->layout.chunk_bytes, &shortage));
    gvmi_buffer_drop(buffer);
    return status;
}

bool gvmi_buffer_try_commit(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes,
                            gvm_status *status)
{
    gvm_buffer *buffer;
    bool tried;

    *status = gvmi_buffer_hold(handle, &buffer);
    if (*status != GVM_OK)
        return true;
    tried = gvmi_try_lock(&buffer->lock);
    if (tried) {
        *status = commit_locked(buffer, offset_bytes, len_bytes);
        gvmi_unlock(&buffer->lock);
    }
    gvmi_buffer_drop(buffer);
    return tried;
}

/* The chunks wholly inside a range; *end is *first when there is none. */
static void whole_chunks_within(const gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes,
                                uint64_t *first, uint64_t *end)
{
    *first = gvmi_layout_touched(&buffer->layout, offset_bytes);
    *end = gvmi_chunk_at(buffer, offset_bytes + len_bytes);
    if (*end < *first)
        *end = *first;
}

static gvm_status check_decommit_locked(const gvm_buffer *buffer)
{
    const gvm_status status = check_owner_locked(buffer);

    if (status == GVM_OK && !buffer->vmm)
        return gvm_error_set(GVM_E_NOTSUP,
                             "device %d has no virtual memory management: destroy the buffer instead",
                             buffer->device->info.ordinal);
    return status;
}

static gvm_status decommit_chunks(gvm_buffer *buffer, uint64_t first, uint64_t end,
                                  gvmi_release how, bool may_wait)
{
    uint64_t bytes;
    gvmi_use use;
    gvm_status status;

    if (may_wait)
        gvmi_use_begin_exclusive(buffer, first, end, &use);
    else if (!gvmi_use_try_exclusive(buffer, first, end, &use))
        return gvm_error_set(GVM_E_TIMEOUT, "another thread is using the buffer");
    bytes = gvmi_buffer_committed_bytes(buffer);
    status = check_decommit_locked(buffer);
    if (status == GVM_OK)
        status = gvmi_buffer_vacate_as_locked(buffer, first, end, how);
    if (bytes != gvmi_buffer_committed_bytes(buffer))
        buffer->generation++;
    gvmi_use_end_locked(&use);
    gvmi_unlock(&buffer->lock);
    return status;
}

gvm_status gvmi_buffer_decommit(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes,
                                gvmi_release how, bool may_wait)
{
    gvm_buffer *buffer;
    uint64_t first, end;
    gvm_status status = gvmi_buffer_hold(handle, &buffer);

    if (status != GVM_OK)
        return status;
    status = gvmi_buffer_chunk_range(buffer, offset_bytes, len_bytes, &first, &end);
    if (status == GVM_OK) {
        whole_chunks_within(buffer, offset_bytes, len_bytes, &first, &end);
        status = decommit_chunks(buffer, first, end, how, may_wait);
    }
    gvmi_buffer_drop(buffer);
    return status;
}

gvm_status gvm_buffer_decommit(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes)
{
    GVMI_UNCANCELLED;

    return gvmi_buffer_decommit(buffer, offset_bytes, len_bytes, GVMI_RELEASE_KEEP, true);
}
