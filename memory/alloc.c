/* Memory by the piece: a buffer that is committed whole, known by its address. */
#include <gvmem/alloc.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "memory/buffer.h"

/* The largest chunk with which rounding up wastes at most a sixteenth: few handles, little waste.
 */
static uint64_t piece_chunk_bytes(uint64_t size_bytes)
{
    uint64_t chunk_bytes = GVM_CHUNK_BYTES_MAX;

    while (chunk_bytes > GVM_CHUNK_BYTES_MIN &&
           gvmi_round_up(size_bytes, chunk_bytes) - size_bytes > size_bytes / 16)
        chunk_bytes /= 2;
    return chunk_bytes;
}

gvm_status gvm_alloc(gvm_device *device, void **out, size_t size_bytes)
{
    GVMI_UNCANCELLED;
    gvm_buffer_options options = {.struct_size = sizeof options};
    gvm_buffer *buffer;
    uint64_t address;
    gvm_status status;

    if (out == NULL || size_bytes == 0 || size_bytes > GVMI_SPAN_BYTES_MAX)
        return gvmi_fail(GVM_E_INVALID, "cannot allocate %zu bytes, or out is NULL", size_bytes);
    options.chunk_bytes = piece_chunk_bytes(size_bytes);
    status = gvm_buffer_create(device, size_bytes, &options, &buffer);
    if (status != GVM_OK)
        return status;
    status = gvm_buffer_commit(buffer, 0, size_bytes);
    if (status != GVM_OK)
        goto fail_destroy;
    address = gvm_buffer_address(buffer);
    status = gvmi_registry_add(GVMI_KIND_PIECE, address, buffer);
    if (status != GVM_OK)
        goto fail_destroy;
    *out = (void *)(uintptr_t)address;
    return GVM_OK;

fail_destroy:
    gvm_buffer_destroy(buffer);
    return status;
}

gvm_status gvm_free(void *ptr)
{
    GVMI_UNCANCELLED;
    void *buffer;
    gvm_status status;

    if (ptr == NULL)
        return GVM_OK;
    status = gvmi_registry_remove(GVMI_KIND_PIECE, gvmi_key(ptr), &buffer);
    if (status == GVM_OK)
        gvm_buffer_destroy(buffer);
    return status;
}

gvm_status gvm_alloc_buffer(const void *ptr, gvm_buffer **out)
{
    GVMI_UNCANCELLED;
    void *buffer;
    gvm_status status;

    if (out == NULL)
        return gvmi_fail(GVM_E_INVALID, "out is NULL");
    status = gvmi_registry_hold(GVMI_KIND_PIECE, gvmi_key(ptr), &buffer);
    if (status != GVM_OK)
        return status;
    gvmi_registry_drop(GVMI_KIND_PIECE, gvmi_key(ptr));
    *out = buffer;
    return GVM_OK;
}
