/* Import: a buffer out of a share.
 *
 * The time from here to the first kernel is what a user of shared memory waits for, and nearly all
 * of it is the driver's: one import and one map a chunk, one set-access for each run of chunks. No
 * other call is made per chunk. Whether memory is of the tier that the share says is therefore
 * asked for the first chunk of each tier alone: that finds an exporter gone wrong. A false
 * statement about a single chunk affects only the figures shown; a false size is refused by
 * cuMemMap.
 */
#include <inttypes.h>
#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/fds.h"
#include "base/size.h"
#include "base/struct.h"
#include "sharing/share.h"

#define IMPORT_FLAGS ((uint32_t)(GVM_IMPORT_READONLY | GVM_IMPORT_SAME_ADDRESS))

/* ---- pieces that update.c uses too */

static gvm_status fail_import(const gvm_share *share, uint32_t index, CUresult result)
{
    static const char call[] = "cuMemImportFromShareableHandle";

    if (gvmi_fds_lack(1))
        return gvmi_share_fail_fds(result, call, share->about.chunk_count);
    switch (result) {
    case CUDA_ERROR_UNKNOWN: /* what the driver says to every fd that is not its own */
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_OPERATING_SYSTEM:
        return gvmi_driver_fail_as(GVM_E_FORMAT, result, call,
                                   "the fd of chunk %u of %u, at offset %#" PRIx64
                                   " of the share, is no memory of the device",
                                   index, share->count, share->chunks[index].offset_bytes);
    case CUDA_ERROR_OUT_OF_MEMORY:
        return gvmi_driver_fail_as(GVM_E_LIMIT, result, call,
                                   "the process has too many chunks: share parts, or use larger chunks");
    default:
        return gvmi_driver_fail(result, call, "cannot import chunk %u of %u", index, share->count);
    }
}

gvm_status gvmi_share_import_chunk(const gvm_share *share, uint32_t index,
                                   CUmemGenericAllocationHandle *out)
{
    CUresult result = gvmi_cu->cuMemImportFromShareableHandle(
        out, (void *)(intptr_t)share->fds[index], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    return result == CUDA_SUCCESS ? GVM_OK : fail_import(share, index, result);
}

void gvmi_share_place_locked(const gvm_share *share, uint32_t index,
                             CUmemGenericAllocationHandle handle, gvm_buffer *buffer)
{
    const gvmi_descriptor_chunk *entry = &share->chunks[index];
    const uint64_t chunk = gvmi_chunk_at(buffer, entry->offset_bytes);

    gvmi_buffer_place_locked(buffer, chunk, (gvm_tier)entry->tier, handle, GVMI_CHUNK_SEEN);
    buffer->chunks[chunk].stamp = entry->stamp;
}

/* Did the driver refuse to map a handle for what it is, not for want of something? The addresses
 * were right. */
static bool is_refused_mapping(const gvm_error *error)
{
    return strcmp(error->native_call, "cuMemMap") == 0 &&
           (error->native_code == CUDA_ERROR_NOT_SUPPORTED ||
            error->native_code == CUDA_ERROR_INVALID_VALUE);
}

gvm_status gvmi_share_settle_locked(gvm_buffer *buffer, uint64_t first, uint64_t end)
{
    gvm_status status = gvmi_buffer_settle_locked(buffer, first, end);
    gvm_error error;
    uint64_t chunk = first;

    if (status == GVM_OK)
        return GVM_OK;
    error = gvmi_error_save();
    if (!is_refused_mapping(&error))
        return status;
    while (chunk < end && (buffer->chunks[chunk].flags & GVMI_CHUNK_UNMAPPED) == 0)
        chunk++; /* the first that is not in place is the one refused */
    return gvmi_fail_native(GVM_E_FORMAT, error.native_code, error.native_call, error.native_name,
                            "the chunk at offset %#" PRIx64 " of the share is not of the %" PRIu64
                            " bytes that the share says",
                            gvmi_chunk_start(buffer, chunk), gvmi_chunk_bytes(buffer, chunk));
}

/* ---- import */

static gvm_status check_tier(const gvmi_descriptor_chunk *entry, CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp prop;
    CUresult result = gvmi_cu->cuMemGetAllocationPropertiesFromHandle(&prop, handle);

    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemGetAllocationPropertiesFromHandle",
                                "cannot look at an imported chunk");
    if ((prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE) != (entry->tier == GVM_TIER_DEVICE))
        return gvm_error_set(
            GVM_E_FORMAT,
            "the chunk at offset %#" PRIx64
            " of the share is in another tier than the share says: location type %d, tier %u",
            entry->offset_bytes, prop.location.type, entry->tier);
    return GVM_OK;
}

static gvm_status import_locked(const gvm_share *share, gvm_buffer *buffer)
{
    const gvmi_descriptor_chunk *last = &share->chunks[share->count - 1];
    const uint64_t end = gvmi_chunk_at(buffer, last->offset_bytes) + 1;
    uint32_t tiers_checked = 0;
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < share->count && status == GVM_OK; i++) {
        const uint32_t tier = 1u << share->chunks[i].tier;
        CUmemGenericAllocationHandle handle;

        status = gvmi_share_import_chunk(share, i, &handle);
        if (status != GVM_OK)
            return status;
        gvmi_share_place_locked(share, i, handle, buffer);
        if ((tiers_checked & tier) == 0)
            status = check_tier(&share->chunks[i], handle);
        tiers_checked |= tier;
    }
    if (status == GVM_OK)
        status = gvmi_share_settle_locked(buffer, 0, end);
    gvmi_buffer_keep_fresh_locked(buffer, 0, end);
    return status;
}

static gvm_status check_device(const gvmi_descriptor *about, const gvm_device *device)
{
    char theirs[GVMI_UUID_TEXT_BYTES], ours[GVMI_UUID_TEXT_BYTES];

    if (memcmp(about->device_uuid, device->info.uuid, sizeof about->device_uuid) != 0)
        return gvm_error_set(GVM_E_OTHERDEVICE,
                             "the memory is on %s, device %d is %s: open the device with that UUID",
                             gvmi_uuid_text(about->device_uuid, theirs), device->info.ordinal,
                             gvmi_uuid_text(device->info.uuid, ours));
    if (!device->info.vmm)
        return gvm_error_set(GVM_E_NOTSUP,
                             "device %d has no virtual memory management: shared memory cannot be mapped",
                             device->info.ordinal);
    return GVM_OK;
}

static gvm_status read_import_options(const gvm_import_options *options,
                                      const gvmi_descriptor *about, gvm_import_options *full)
{
    char wanted[32], least[32];

    if (!gvmi_struct_in(full, sizeof *full, options, sizeof *full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    if ((full->flags & ~IMPORT_FLAGS) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown import flags %#x", (unsigned)full->flags);
    if (full->reserved != 0)
        return gvm_error_set(GVM_E_INVALID, "reserved is %u among the import options, not 0",
                             (unsigned)full->reserved);
    if (full->reserve_bytes == 0)
        full->reserve_bytes = about->span_len_bytes;
    if (full->reserve_bytes < about->span_len_bytes)
        return gvm_error_set(GVM_E_INVALID, "reserve_bytes is %s and the share spans %s",
                             gvmi_size_text(full->reserve_bytes, wanted),
                             gvmi_size_text(about->span_len_bytes, least));
    return GVM_OK;
}

gvm_status gvmi_share_make_buffer(const gvmi_descriptor *about, gvm_device *device,
                                  const gvm_import_options *options, gvmi_range *range,
                                  gvm_buffer **out)
{
    const bool graded = (about->flags & GVMI_DESCRIPTOR_GRADED) != 0;
    const gvmi_buffer_spec spec = {
        .reserve_bytes = options->reserve_bytes,
        .chunk_bytes = about->chunk_bytes,
        .graded = graded,
        .owner_reserve_bytes = graded ? about->reserve_bytes : 0,
        .skip_bytes = graded ? about->span_offset_bytes : 0,
        .address = options->flags & GVM_IMPORT_SAME_ADDRESS
                       ? about->exporter_address + about->span_offset_bytes
                       : 0,
        .range = range,
    };
    gvm_buffer *buffer;
    gvm_status status = check_device(about, device);

    if (status == GVM_OK)
        status = gvmi_buffer_new(device, &spec, &buffer);
    if (status != GVM_OK)
        return status;
    buffer->imported = true;
    buffer->sealed = (about->flags & GVMI_DESCRIPTOR_SEALED) != 0;
    if (buffer->sealed || (options->flags & GVM_IMPORT_READONLY) != 0)
        buffer->access = GVM_ACCESS_READ;
    memcpy(buffer->id, about->buffer_id, sizeof buffer->id);
    buffer->source_offset_bytes = about->span_offset_bytes;
    buffer->source_generation = about->generation;
    *out = buffer;
    return GVM_OK;
}

static gvm_status import_share(const gvm_share *share, gvm_device *device,
                               const gvm_import_options *options, gvm_buffer **out)
{
    gvm_import_options full;
    gvm_buffer *buffer;
    gvm_status status = read_import_options(options, &share->about, &full);

    if (status == GVM_OK)
        status = gvmi_share_make_buffer(&share->about, device, &full, NULL, &buffer);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&buffer->lock);
    status = import_locked(share, buffer);
    gvmi_unlock(&buffer->lock);
    if (status == GVM_OK)
        status = gvmi_buffer_publish(buffer);
    if (status == GVM_OK)
        *out = buffer;
    else
        gvmi_buffer_free(buffer);
    return status;
}

gvm_status gvm_share_import(gvm_device *device_handle, const gvm_share *handle,
                            const gvm_import_options *options, gvm_buffer **out)
{
    GVMI_UNCANCELLED;
    gvm_share *share;
    gvm_device *device;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_share_hold(handle, &share);
    if (status != GVM_OK)
        return status;
    status = gvmi_device_hold(device_handle, &device);
    if (status == GVM_OK) {
        status = import_share(share, device, options, out);
        gvmi_device_release(device);
    }
    gvmi_share_drop(share);
    return status;
}
