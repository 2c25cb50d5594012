/* CUDA IPC: 64-byte handles of cuMemAlloc memory, for programs that know nothing of gvmem.
 *
 * A copy belongs to this process alone and is constant once made, so it needs no lock. An opened
 * handle does: the driver counts openings of one handle and returns the same address each time, and
 * that count and the one kept here must move together.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/share.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "base/struct.h"
#include "memory/buffer.h"
#include "memory/idle.h"

struct gvm_ipc {
    gvm_device *device; /* referenced */
    CUdeviceptr address;
    uint64_t len_bytes;
    CUipcMemHandle handle;
};

_Static_assert(sizeof(gvm_ipc_handle) == sizeof(CUipcMemHandle), "the handle is CUDA's");

/* ---- export */

static gvm_status check_support(const gvm_device *device)
{
    if (device->info.share_ipc)
        return GVM_OK;
    return gvm_error_set(GVM_E_NOTSUP, "device %d has no CUDA IPC", device->info.ordinal);
}

/* The driver cuts small allocations out of blocks of 2 MiB, and a handle shows the whole block to who
 * opens it. So a copy has whole blocks to itself. */
static uint64_t whole_blocks(uint64_t len_bytes)
{
    return gvmi_round_up(len_bytes, GVM_CHUNK_BYTES_MIN);
}

static gvm_status allocate_ipc_memory(gvm_device *device, uint64_t len_bytes, CUdeviceptr *out)
{
    char size[32];
    CUresult result = gvmi_device_alloc(device, out, whole_blocks(len_bytes));

    if (result == CUDA_SUCCESS)
        return GVM_OK;
    return gvmi_driver_fail(
        result, "cuMemAlloc",
        "cannot allocate %s on device %d for a copy: export less, or free memory there",
        gvmi_size_text(len_bytes, size), device->info.ordinal);
}

/* From an offset on to the end of the last block. */
static gvm_status submit_zeros(const gvm_ipc *ipc, uint64_t from)
{
    const uint64_t bytes = whole_blocks(ipc->len_bytes) - from;
    CUresult result = CUDA_SUCCESS;

    if (bytes > 0)
        result = gvmi_cu->cuMemsetD8Async(ipc->address + from, 0, bytes, ipc->device->stream);
    if (result == CUDA_SUCCESS)
        return GVM_OK;
    return gvmi_driver_fail(result, "cuMemsetD8Async", "cannot fill %" PRIu64 " bytes with zeros",
                            bytes);
}

static gvm_status submit_copy(gvm_buffer *buffer, uint64_t offset_bytes, const gvm_ipc *ipc)
{
    gvm_status status = submit_zeros(ipc, ipc->len_bytes);

    if (status != GVM_OK)
        return status;
    for (uint64_t done = 0, run; done < ipc->len_bytes; done += run) {
        const uint64_t from = offset_bytes + done;
        CUresult result;

        run = gvmi_buffer_run(buffer, from, ipc->len_bytes - done);
        result = gvmi_cu->cuMemcpyDtoDAsync(ipc->address + done, buffer->address + from, run,
                                            buffer->device->stream);
        if (result != CUDA_SUCCESS)
            return gvmi_driver_fail(result, "cuMemcpyDtoDAsync", "cannot copy %" PRIu64 " bytes", run);
    }
    return GVM_OK;
}

static gvm_status finish_copy(const gvm_device *device, gvm_status status)
{
    /* Also after a failure: what was submitted must be over before the copy can be freed. */
    CUresult result = gvmi_cu->cuStreamSynchronize(device->stream);

    if (result != CUDA_SUCCESS && status == GVM_OK)
        status = gvmi_driver_fail(result, "cuStreamSynchronize", "copying on device %d failed",
                                  device->info.ordinal);
    return status;
}

static gvm_status make_handle(gvm_ipc *ipc)
{
    const CUresult result = gvmi_cu->cuIpcGetMemHandle(&ipc->handle, ipc->address);

    if (result == CUDA_SUCCESS)
        return GVM_OK;
    return gvmi_driver_fail(result, "cuIpcGetMemHandle", "cannot make a handle on device %d",
                            ipc->device->info.ordinal);
}

/* In the device's context; buffer NULL: with zeros. On failure nothing is left. */
static gvm_status fill_ipc_copy(gvm_buffer *buffer, uint64_t offset_bytes, gvm_ipc *ipc)
{
    gvm_error error;
    gvm_status status = allocate_ipc_memory(ipc->device, ipc->len_bytes, &ipc->address);

    if (status != GVM_OK)
        return status;
    status = make_handle(ipc);
    if (status == GVM_OK)
        status = finish_copy(ipc->device, buffer != NULL ? submit_copy(buffer, offset_bytes, ipc)
                                                         : submit_zeros(ipc, 0));
    if (status != GVM_OK)
        goto fail_free_copy;
    return GVM_OK;

fail_free_copy:
    error = gvmi_error_save();
    gvmi_cu->cuMemFree(ipc->address);
    gvm_error_restore(&error);
    return status;
}

static gvm_status check_ipc_source_locked(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes)
{
    gvm_status status = gvmi_buffer_ready_locked(buffer, offset_bytes, len_bytes);

    if (status == GVM_OK)
        status = check_support(buffer->device);
    if (status == GVM_OK && !buffer->imported && buffer->owner == GVMI_OWNER_ANY)
        status = gvm_error_set(GVM_E_NOTSUP,
                               "the buffer was created GVM_BUFFER_UNSHARED, and its memory may "
                               "hold other buffers' bytes: create it without");
    return status;
}

/* Without the buffer's lock while the driver copies. */
static gvm_status export_copy(gvm_buffer *buffer, uint64_t offset_bytes, gvm_ipc *ipc)
{
    gvmi_use use = {.buffer = buffer};
    gvm_status status;

    if (ipc->len_bytes == 0 && offset_bytes < buffer->reserve_bytes)
        ipc->len_bytes = buffer->reserve_bytes - offset_bytes;
    status = gvmi_buffer_chunk_range(buffer, offset_bytes, ipc->len_bytes, &use.first, &use.end);
    if (status != GVM_OK)
        return status;
    gvmi_use_begin_shared(&use, &use);
    status = check_ipc_source_locked(buffer, offset_bytes, ipc->len_bytes);
    gvmi_unlock(&buffer->lock);
    if (status == GVM_OK)
        status = gvmi_device_enter(ipc->device);
    if (status == GVM_OK) {
        status = fill_ipc_copy(buffer, offset_bytes, ipc);
        gvmi_device_leave();
    }
    gvmi_use_end(&use);
    return status;
}

static void free_copy(gvm_ipc *ipc)
{
    gvm_error error = gvmi_error_save();

    if (ipc->address != 0 && gvmi_device_enter(ipc->device) == GVM_OK) {
        gvmi_cu->cuMemFree(ipc->address);
        gvmi_device_leave();
    }
    gvmi_device_release(ipc->device);
    gvmi_registry_retire(ipc);
    gvm_error_restore(&error);
}

gvm_status gvm_ipc_export(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes, gvm_ipc **out)
{
    GVMI_UNCANCELLED;
    gvmi_shortage shortage = {0};
    gvm_buffer *buffer;
    gvm_ipc *ipc;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_buffer_hold(handle, &buffer);
    if (status != GVM_OK)
        return status;
    ipc = calloc(1, sizeof *ipc);
    if (ipc == NULL) {
        status = gvm_error_set(GVM_E_NOMEM, "out of host memory for a copy");
        goto fail_drop;
    }
    ipc->device = buffer->device;
    ipc->len_bytes = len_bytes;
    gvmi_device_retain(ipc->device);
    do
        status = export_copy(buffer, offset_bytes, ipc);
    while (status == GVM_E_NOSPACE &&
           gvmi_idle_retry(ipc->device, whole_blocks(ipc->len_bytes), &shortage));
    if (status != GVM_OK) {
        ipc->address = 0;
        goto fail_free;
    }
    status = gvmi_registry_add(GVMI_KIND_IPC, gvmi_key(ipc), ipc);
    if (status != GVM_OK)
        goto fail_free;
    gvmi_buffer_drop(buffer);
    *out = ipc;
    return GVM_OK;

fail_free:
    free_copy(ipc);
fail_drop:
    gvmi_buffer_drop(buffer);
    return status;
}

static gvm_status create_ipc_export(gvm_ipc *ipc)
{
    gvm_status status = check_support(ipc->device);

    if (status == GVM_OK)
        status = gvmi_device_enter(ipc->device);
    if (status != GVM_OK)
        return status;
    status = fill_ipc_copy(NULL, 0, ipc);
    gvmi_device_leave();
    return status;
}

gvm_status gvm_ipc_create(gvm_device *handle, uint64_t size_bytes, gvm_ipc **out)
{
    GVMI_UNCANCELLED;
    gvmi_shortage shortage = {0};
    gvm_device *device;
    gvm_ipc *ipc;
    gvm_status status;

    if (out == NULL || size_bytes == 0 || size_bytes > UINT64_MAX - GVM_CHUNK_BYTES_MIN)
        return gvm_error_set(GVM_E_INVALID,
                             "cannot make memory of %" PRIu64
                             " bytes: the size is 0 or too large, or out is NULL",
                             size_bytes);
    status = gvmi_device_hold(handle, &device);
    if (status != GVM_OK)
        return status;
    ipc = calloc(1, sizeof *ipc);
    if (ipc == NULL) {
        gvmi_device_release(device);
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for an IPC handle");
    }
    ipc->device = device;
    ipc->len_bytes = size_bytes;
    do
        status = create_ipc_export(ipc);
    while (status == GVM_E_NOSPACE && gvmi_idle_retry(device, whole_blocks(size_bytes), &shortage));
    if (status != GVM_OK)
        ipc->address = 0;
    else
        status = gvmi_registry_add(GVMI_KIND_IPC, gvmi_key(ipc), ipc);
    if (status != GVM_OK) {
        free_copy(ipc);
        return status;
    }
    *out = ipc;
    return GVM_OK;
}

gvm_status gvm_ipc_get_info(const gvm_ipc *handle, gvm_ipc_info *info)
{
    GVMI_UNCANCELLED;
    gvm_ipc_info full;
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_IPC, gvmi_key(handle), &object);
    const gvm_ipc *ipc = object;

    if (status != GVM_OK)
        return status;
    full = (gvm_ipc_info){.address = gvmi_pointer(ipc->address), .size_bytes = ipc->len_bytes};
    memcpy(full.handle.bytes, ipc->handle.reserved, sizeof full.handle.bytes);
    gvmi_registry_drop(GVMI_KIND_IPC, gvmi_key(handle));
    if (!gvmi_struct_out(info, &full, sizeof full, sizeof full))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}

void gvm_ipc_destroy(gvm_ipc *ipc)
{
    GVMI_UNCANCELLED;
    void *object;

    if (ipc != NULL && gvmi_registry_remove(GVMI_KIND_IPC, gvmi_key(ipc), &object) == GVM_OK)
        free_copy(object);
}

/* ---- open */

/* Memory of another process at an address of this one. */
typedef struct opened {
    gvm_device *device; /* referenced once for each opening */
    uint64_t openings;
} opened;

/* Ranked as the lock of one buffer: held across driver calls, and never together with such a lock.
 * */
static gvmi_mutex openings_lock = GVMI_MUTEX_INIT(GVMI_RANK_BUFFER);

/* The entry of an address if it was opened on this device, or NULL. The lock keeps it alive; without the lock it is known only
 * whether there was one. */
static opened *find_opened(const gvm_device *device, uint64_t address)
{
    void *object;
    bool is_there;
    gvm_error error = gvmi_error_save();

    if (gvmi_registry_hold(GVMI_KIND_IPC_OPEN, address, &object) != GVM_OK) {
        gvm_error_restore(&error);
        return NULL;
    }
    is_there = ((opened *)object)->device == device;
    gvmi_registry_drop(GVMI_KIND_IPC_OPEN, address);
    return is_there ? object : NULL;
}

static gvm_status count_opening_locked(gvm_device *device, uint64_t address)
{
    opened *entry = find_opened(device, address);
    gvm_status status;

    if (entry == NULL) {
        entry = calloc(1, sizeof *entry);
        if (entry == NULL)
            return gvm_error_set(GVM_E_NOMEM, "out of host memory for an opened handle");
        entry->device = device;
        status = gvmi_registry_add(GVMI_KIND_IPC_OPEN, address, entry);
        if (status != GVM_OK) {
            free(entry);
            return status;
        }
    }
    gvmi_device_retain(device);
    entry->openings++;
    return GVM_OK;
}

static gvm_status fail_open(const gvm_device *device, CUresult result)
{
    switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT: /* what a process gets for a handle that it made itself */
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_MAP_FAILED:
        return gvmi_driver_fail_as(
            GVM_E_INVALID, result, "cuIpcOpenMemHandle",
            "the handle is not valid on device %d: its memory was freed, is elsewhere, or belongs to this "
            "very process",
            device->info.ordinal);
    default:
        return gvmi_driver_fail(result, "cuIpcOpenMemHandle", "cannot open the handle on device %d",
                                device->info.ordinal);
    }
}

static gvm_status open_locked(gvm_device *device, const gvm_ipc_handle *handle, void **address)
{
    CUipcMemHandle copy;
    CUdeviceptr opened_at;
    CUresult result;
    gvm_status status = gvmi_device_enter(device);

    if (status != GVM_OK)
        return status;
    memcpy(copy.reserved, handle->bytes, sizeof copy.reserved);
    result = gvmi_cu->cuIpcOpenMemHandle(&opened_at, copy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result == CUDA_SUCCESS) {
        status = count_opening_locked(device, opened_at);
        if (status != GVM_OK)
            gvmi_cu->cuIpcCloseMemHandle(opened_at);
    } else {
        status = fail_open(device, result);
    }
    gvmi_device_leave();
    if (status == GVM_OK)
        *address = gvmi_pointer(opened_at);
    return status;
}

gvm_status gvm_ipc_open(gvm_device *device_handle, const gvm_ipc_handle *handle, void **address)
{
    GVMI_UNCANCELLED;
    gvm_device *device;
    gvm_status status;

    if (handle == NULL || address == NULL)
        return gvm_error_set(GVM_E_INVALID, "%s is NULL", handle == NULL ? "handle" : "address");
    status = gvmi_device_hold(device_handle, &device);
    if (status != GVM_OK)
        return status;
    status = check_support(device);
    if (status == GVM_OK) {
        gvmi_lock(&openings_lock);
        status = open_locked(device, handle, address);
        gvmi_unlock(&openings_lock);
    }
    gvmi_device_release(device);
    return status;
}

/* Whatever the driver returns, the opening is over: a second could only do worse. After a reset of the context the mapping has
 * gone with it, and another may have the address.
 * The caller has a reference of its own to the device, so the opening's is never the last here. */
static gvm_status close_locked(gvm_device *device, uint64_t address, opened *entry)
{
    const bool gone = gvmi_device_was_reset(device);
    gvm_status status = gone ? GVM_OK : gvmi_device_enter(device);
    void *object;

    if (status != GVM_OK) /* nothing has happened yet: it may be closed again */
        return status;
    if (!gone) {
        const CUresult result = gvmi_cu->cuIpcCloseMemHandle(address);

        gvmi_device_leave();
        if (result != CUDA_SUCCESS)
            status = gvmi_driver_fail(result, "cuIpcCloseMemHandle",
                                      "closing the memory at %#" PRIx64 " failed", address);
    }
    if (--entry->openings == 0 && gvmi_registry_remove(GVMI_KIND_IPC_OPEN, address, &object) == GVM_OK)
        free(object);
    gvmi_device_release(device);
    return status;
}

static gvm_status fail_not_opened(const gvm_device *handle, uint64_t address)
{
    gvm_device *device;
    gvm_status status = gvmi_device_hold(handle, &device);

    if (status != GVM_OK)
        return status;
    status = gvm_error_set(GVM_E_FOREIGN, "no handle was opened at %#" PRIx64 " on device %d",
                           address, device->info.ordinal);
    gvmi_device_release(device);
    return status;
}

/* The opening keeps the device, which may have been closed since. In a child made by fork() there is no opening, and the lock may
 * be held for good. */
gvm_status gvm_ipc_close(gvm_device *device, void *pointer)
{
    GVMI_UNCANCELLED;
    const uint64_t address = gvmi_address(pointer);
    gvm_status status = GVM_OK;
    opened *entry;

    if (find_opened(device, address) == NULL)
        return fail_not_opened(device, address);
    gvmi_lock(&openings_lock);
    entry = find_opened(device, address);
    if (entry != NULL) {
        gvmi_device_retain(device);
        status = close_locked(device, address, entry);
    }
    gvmi_unlock(&openings_lock);
    if (entry == NULL)
        return fail_not_opened(device, address);
    gvmi_device_release(device);
    return status;
}
