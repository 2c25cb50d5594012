/* Export: a share out of a buffer.
 *
 * The buffer's lock is held throughout, so a share shows the buffer at one moment, with one
 * generation. Marking the chunks as seen and stamping them comes last: after a failure the buffer
 * is as it was.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/fds.h"
#include "sharing/share.h"

static gvm_status check_exportable(const gvm_buffer *buffer)
{
    if (buffer->imported) /* the driver would answer CUDA_ERROR_INVALID_VALUE */
        return gvm_error_set(GVM_E_IMPORTED, "the buffer was imported: pass its memory on by sending "
                                             "the share that it was imported from");
    if (!buffer->vmm || !buffer->device->info.share_fd)
        return gvm_error_set(GVM_E_NOTSUP,
                             "device %d cannot export memory as fds: gvm_ipc_export() shares a copy",
                             buffer->device->info.ordinal);
    if (!buffer->shareable)
        return gvm_error_set(GVM_E_NOTSUP,
                             "the buffer was created GVM_BUFFER_UNSHARED: create it without");
    return GVM_OK;
}

static gvm_status count_present(const gvm_buffer *buffer, uint64_t first, uint64_t end, uint32_t *out)
{
    uint64_t count = 0;

    for (uint64_t i = first; i < end; i++)
        count += buffer->chunks[i].tier != GVM_TIER_ABSENT;
    if (count == 0)
        return gvm_error_set(GVM_E_ABSENT,
                             "nothing is committed in the range: there is no memory to share");
    if (count > GVMI_SHARE_CHUNKS_MAX)
        return gvm_error_set(GVM_E_LIMIT,
                             "a share has at most %u chunks, not %" PRIu64
                             ": share parts, or use larger chunks",
                             GVMI_SHARE_CHUNKS_MAX, count);
    *out = (uint32_t)count;
    return GVM_OK;
}

static void describe_export(const gvm_buffer *buffer, uint64_t first, uint64_t end,
                            uint32_t chunk_count, gvmi_descriptor *about)
{
    gvmi_descriptor_init(about);
    about->chunk_count = chunk_count;
    about->flags = buffer->sealed ? GVMI_DESCRIPTOR_SEALED : 0;
    if (buffer->layout.graded_bytes != 0) {
        about->version = GVMI_DESCRIPTOR_VERSION_GRADED;
        about->flags |= GVMI_DESCRIPTOR_GRADED;
    }
    memcpy(about->device_uuid, buffer->device->info.uuid, sizeof about->device_uuid);
    memcpy(about->buffer_id, buffer->id, sizeof about->buffer_id);
    about->generation = buffer->generation;
    about->exporter_address = buffer->address;
    about->reserve_bytes = buffer->reserve_bytes;
    about->chunk_bytes = buffer->layout.chunk_bytes;
    about->span_offset_bytes = gvmi_chunk_start(buffer, first);
    about->span_len_bytes = gvmi_chunks_bytes(buffer, first, end);
}

static gvm_status export_chunk(const gvm_buffer *buffer, const gvmi_chunk *chunk,
                               uint64_t offset_bytes, gvm_share *share)
{
    int fd = -1;
    CUresult result = gvmi_cu->cuMemExportToShareableHandle(
        &fd, chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

    if (result != CUDA_SUCCESS && gvmi_fds_lack(1))
        return gvmi_share_fail_fds(result, "cuMemExportToShareableHandle", share->about.chunk_count);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemExportToShareableHandle",
                                "cannot export the chunk at offset %#" PRIx64, offset_bytes);
    /* Drivers differ in whether it is close-on-exec at birth; a fork and exec of another thread
     * just now is not to be helped. */
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    share->chunks[share->count] = (gvmi_descriptor_chunk){
        .offset_bytes = offset_bytes,
        .stamp = chunk->flags & GVMI_CHUNK_SEEN ? chunk->stamp : buffer->generation,
        .tier = chunk->tier == GVM_TIER_HOST ? GVM_TIER_HOST : GVM_TIER_DEVICE,
    };
    share->fds[share->count++] = fd;
    return GVM_OK;
}

static gvm_status export_chunks(const gvm_buffer *buffer, uint64_t first, uint64_t end, gvm_share *share)
{
    gvm_status status = GVM_OK;

    for (uint64_t i = first; i < end && status == GVM_OK; i++)
        if (buffer->chunks[i].tier != GVM_TIER_ABSENT)
            status = export_chunk(buffer, &buffer->chunks[i], gvmi_chunks_bytes(buffer, first, i),
                                  share);
    return status;
}

static void mark_chunks_exported(gvm_buffer *buffer, const gvm_share *share)
{
    for (uint32_t i = 0; i < share->count; i++) {
        const uint64_t offset_bytes = share->about.span_offset_bytes + share->chunks[i].offset_bytes;
        gvmi_chunk *chunk = &buffer->chunks[gvmi_chunk_at(buffer, offset_bytes)];

        chunk->stamp = share->chunks[i].stamp;
        chunk->flags |= GVMI_CHUNK_SEEN;
    }
}

static gvm_status export_locked(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes,
                                gvm_share *share)
{
    uint64_t first, end;
    uint32_t count = 0;
    gvm_status status;

    if (len_bytes == 0 && offset_bytes < buffer->reserve_bytes)
        len_bytes = buffer->reserve_bytes - offset_bytes;
    status = gvmi_buffer_chunk_range(buffer, offset_bytes, len_bytes, &first, &end);
    if (status == GVM_OK)
        status = check_exportable(buffer);
    if (status == GVM_OK)
        status = gvmi_buffer_settle_locked(buffer, first, end);
    if (status == GVM_OK)
        status = count_present(buffer, first, end, &count);
    if (status == GVM_OK)
        status = gvmi_share_grow(share, count);
    if (status != GVM_OK)
        return status;
    describe_export(buffer, first, end, count, &share->about);
    status = export_chunks(buffer, first, end, share);
    if (status == GVM_OK)
        mark_chunks_exported(buffer, share);
    return status;
}

gvm_status gvm_share_export(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes,
                            gvm_share **out)
{
    GVMI_UNCANCELLED;
    gvm_buffer *buffer;
    gvm_share *share;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_buffer_hold(handle, &buffer);
    if (status != GVM_OK)
        return status;
    status = gvmi_share_new(&share);
    if (status != GVM_OK)
        goto fail_drop;
    gvmi_lock(&buffer->lock);
    status = export_locked(buffer, offset_bytes, len_bytes, share);
    gvmi_unlock(&buffer->lock);
    gvmi_buffer_drop(buffer);
    if (status == GVM_OK)
        return gvmi_share_publish(share, out);
    gvmi_share_free(share);
    return status;

fail_drop:
    gvmi_buffer_drop(buffer);
    return status;
}
