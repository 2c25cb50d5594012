/* Chunks of one buffer at addresses of another one, too: the driver maps a handle as often as it is asked to. */
#include <stdlib.h>

#include "base/error.h"
#include "memory/buffer.h"

/* A reference of its own to each of the first so many chunks. */
static gvm_status retain_chunks_locked(const gvm_buffer *source, uint64_t count,
                                       CUmemGenericAllocationHandle *handles, uint64_t *retained)
{
    for (uint64_t i = 0; i < count; i++) {
        const gvmi_chunk *chunk = &source->chunks[i];
        CUresult result;

        if (chunk->tier != GVM_TIER_HOST || (chunk->flags & GVMI_CHUNK_UNMAPPED) != 0)
            return gvm_error_set(GVM_E_ABSENT, "chunk %llu of %llu is not mapped in host memory",
                                 (unsigned long long)i, (unsigned long long)count);
        result = gvmi_cu->cuMemRetainAllocationHandle(
            &handles[i], (void *)(uintptr_t)gvmi_chunk_address(source, i));
        if (result != CUDA_SUCCESS)
            return gvmi_driver_fail(result, "cuMemRetainAllocationHandle",
                                    "cannot map a chunk at another address");
        (*retained)++;
    }
    return GVM_OK;
}

/* Takes over the handles. */
static gvm_status place_chunks_locked(gvm_buffer *buffer, uint64_t first,
                                      const CUmemGenericAllocationHandle *handles, uint64_t count)
{
    gvm_status status;

    for (uint64_t i = 0; i < count; i++)
        gvmi_buffer_place_locked(buffer, first + i, GVM_TIER_HOST, handles[i], GVMI_CHUNK_SEEN);
    status = gvmi_buffer_settle_locked(buffer, first, first + count);
    if (status == GVM_OK)
        gvmi_buffer_keep_fresh_locked(buffer, first, first + count);
    else
        gvmi_buffer_undo_fresh_locked(buffer, first, first + count);
    return status;
}

gvm_status gvmi_buffer_alias(gvm_buffer *buffer, uint64_t first, gvm_buffer *source, uint64_t count)
{
    CUmemGenericAllocationHandle *handles = malloc(count * sizeof *handles);
    uint64_t retained = 0;
    gvm_status status;

    if (handles == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %llu handles of chunks",
                             (unsigned long long)count);
    gvmi_lock(&source->lock);
    status = gvmi_buffer_writable_locked(source);
    if (status == GVM_OK)
        status = retain_chunks_locked(source, count, handles, &retained);
    gvmi_unlock(&source->lock);
    if (status == GVM_OK) {
        gvmi_lock(&buffer->lock);
        status = place_chunks_locked(buffer, first, handles, count);
        gvmi_unlock(&buffer->lock);
    } else {
        while (retained > 0)
            gvmi_cu->cuMemRelease(handles[--retained]);
    }
    free(handles);
    return status;
}
