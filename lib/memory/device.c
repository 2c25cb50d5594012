/* Devices: opening, what they can do, their context. */
#include "memory/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/options.h"
#include "base/registry.h"
#include "base/struct.h"

#define DEVICES_MAX 64
#define ROW_BYTES_MIN 512 /* the least that rows of a piece are aligned to */

/* Under lock: the devices that are alive, by ordinal. Opening is rare and slow, so one lock held
 * across driver calls is enough. */
static gvmi_mutex lock = GVMI_MUTEX_INIT(GVMI_RANK_START);
static gvm_device *alive[DEVICES_MAX];

void (*gvmi_kernels_unload)(gvm_device *device);

gvm_status gvm_device_count(int32_t *count)
{
    GVMI_UNCANCELLED;
    gvm_status status;
    int found;
    CUresult result;

    if (count == NULL)
        return gvm_error_set(GVM_E_INVALID, "count is NULL");
    status = gvmi_driver_start();
    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuDeviceGetCount(&found);
    /* It is initialised once for each process, and the driver does not survive fork(). */
    if (result == CUDA_ERROR_NOT_INITIALIZED)
        return gvmi_driver_fail(result, "cuDeviceGetCount",
                                "cannot count devices: the driver was not initialised in this process; a child "
                                "made by fork() after its parent used a GPU must exec a program");
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuDeviceGetCount", "cannot count devices");
    *count = found < DEVICES_MAX ? found : DEVICES_MAX;
    return GVM_OK;
}

/* ---- what a device is */

static gvm_status read_attribute(CUdevice cu, CUdevice_attribute attribute, const char *name, int *out)
{
    CUresult result = gvmi_cu->cuDeviceGetAttribute(out, attribute, cu);

    if (result == CUDA_SUCCESS)
        return GVM_OK;
    /* A driver older than the attribute does not know it: what it stands for is not there. */
    *out = 0;
    if (result == CUDA_ERROR_INVALID_VALUE)
        return GVM_OK;
    return gvmi_driver_fail(result, "cuDeviceGetAttribute", "cannot read %s of device %d", name, cu);
}

static gvm_status read_attributes(gvm_device *device)
{
    gvm_device_info *info = &device->info;
    int vmm, fd, host, fabric, ipc, rdma, alignment;
    const struct {
        CUdevice_attribute attribute;
        const char *name;
        int *out;
    } rows[] = {
#define ROW(name, out) {CU_DEVICE_ATTRIBUTE_##name, #name, out}
        ROW(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &vmm),
        ROW(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &fd),
        ROW(HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &host),
        ROW(HANDLE_TYPE_FABRIC_SUPPORTED, &fabric),
        ROW(GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, &rdma),
        ROW(IPC_EVENT_SUPPORTED, &ipc), /* the test that cuIpcGetMemHandle's manual gives */
        ROW(HOST_NUMA_ID, &device->host_numa_id),
        ROW(TEXTURE_ALIGNMENT, &alignment), /* what cuMemAllocPitch aligns rows to */
        ROW(COMPUTE_CAPABILITY_MAJOR, &info->compute_major),
        ROW(COMPUTE_CAPABILITY_MINOR, &info->compute_minor),
        ROW(MULTIPROCESSOR_COUNT, &info->sm_count),
        ROW(WARP_SIZE, &info->warp_size),
        ROW(MAX_THREADS_PER_BLOCK, &info->block_threads_max),
        ROW(ASYNC_ENGINE_COUNT, &info->copy_engines),
#undef ROW
    };
    bool vmm_wanted;
    gvm_status status = gvmi_option_bool(GVMI_OPTION_GVMEM_VMM, &vmm_wanted);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == GVM_OK; i++)
        status = read_attribute(device->cu, rows[i].attribute, rows[i].name, rows[i].out);
    if (status != GVM_OK)
        return status;
    info->vmm = vmm != 0 && vmm_wanted;
    info->share_fd = info->vmm && fd != 0;
    info->host_tier = info->vmm && host != 0;
    info->fabric = fabric != 0;
    device->rdma = info->vmm && rdma != 0;
    device->row_bytes = alignment > ROW_BYTES_MIN ? (uint64_t)alignment : ROW_BYTES_MIN;
    info->share_ipc = ipc != 0;
    if (device->host_numa_id < 0) /* no NUMA on this machine: node 0 is all there is */
        device->host_numa_id = 0;
    return GVM_OK;
}

static gvm_status read_identity(gvm_device *device)
{
    gvm_device_info *info = &device->info;
    CUuuid uuid;
    size_t total;
    CUresult result = gvmi_cu->cuDeviceGetName(info->name, sizeof info->name, device->cu);

    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuDeviceGetName", "cannot read the name of device %d",
                                info->ordinal);
    result = gvmi_cu->cuDeviceGetUuid(&uuid, device->cu);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuDeviceGetUuid", "cannot read the UUID of device %d",
                                info->ordinal);
    result = gvmi_cu->cuDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id, device->cu);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuDeviceGetPCIBusId",
                                "cannot read the bus id of device %d", info->ordinal);
    result = gvmi_cu->cuDeviceTotalMem(&total, device->cu);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuDeviceTotalMem", "cannot read the memory of device %d",
                                info->ordinal);
    memcpy(info->uuid, uuid.bytes, sizeof info->uuid);
    info->total_bytes = total;
    return GVM_OK;
}

static gvm_status read_granularity(gvm_device *device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->info.ordinal},
                                .allocFlags = {.gpuDirectRDMACapable = device->rdma}};
    size_t granularity = 0;
    CUresult result;

    if (!device->info.vmm)
        return GVM_OK;
    result = gvmi_cu->cuMemGetAllocationGranularity(&granularity, &prop,
                                                    CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemGetAllocationGranularity",
                                "cannot read the granularity of device %d", device->info.ordinal);
    device->info.granularity_bytes = granularity;
    return GVM_OK;
}

static gvm_status read_info(gvm_device *device)
{
    gvm_driver_info driver = {.struct_size = sizeof driver};
    gvm_status status = gvm_driver_get_info(&driver);

    device->info.software = driver.software;
    if (status == GVM_OK)
        status = read_attributes(device);
    if (status == GVM_OK)
        status = read_identity(device);
    if (status == GVM_OK)
        status = read_granularity(device);
    return status;
}

/* ---- opening and closing */

/* In the device's context. */
static gvm_status create_streams(gvm_device *device)
{
    CUresult result = gvmi_cu->cuStreamCreate(&device->stream, CU_STREAM_NON_BLOCKING);

    if (result == CUDA_SUCCESS) {
        result = gvmi_cu->cuStreamCreate(&device->words_stream, CU_STREAM_NON_BLOCKING);
        if (result == CUDA_SUCCESS)
            return GVM_OK;
        gvmi_cu->cuStreamDestroy(device->stream);
    }
    return gvmi_driver_fail(result, "cuStreamCreate", "cannot make a stream on device %d",
                            device->info.ordinal);
}

static gvm_status start_context(gvm_device *device)
{
    CUresult result = gvmi_cu->cuDevicePrimaryCtxRetain(&device->context, device->cu);
    unsigned long long id = 0;
    gvm_status status = GVM_OK;

    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuDevicePrimaryCtxRetain",
                                "cannot make a context on device %d", device->info.ordinal);
    result = gvmi_cu->cuCtxGetId(device->context, &id);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED)
        status = gvmi_driver_fail(result, "cuCtxGetId", "cannot identify the context of device %d",
                                  device->info.ordinal);
    device->context_id = id;
    if (status == GVM_OK)
        status = gvmi_device_enter(device);
    if (status == GVM_OK) {
        status = create_streams(device);
        gvmi_device_leave();
    }
    if (status != GVM_OK)
        gvmi_cu->cuDevicePrimaryCtxRelease(device->cu);
    return status;
}

/* What other folders attached to the device is released first: it may be using the rest. */
static void unload_device_parts(gvm_device *device)
{
    if (device->kernels != NULL)
        gvmi_kernels_unload(device);
    gvmi_words_destroy(device, &device->results);
    gvmi_words_destroy(device, &device->appends);
    gvmi_words_destroy(device, &device->cleanings);
    gvmi_words_destroy(device, &device->callbacks);
}

static void stop_context(gvm_device *device)
{
    bool entered;

    if (gvmi_device_enter_to_free(device, &entered)) {
        gvmi_cu->cuStreamDestroy(device->stream);
        gvmi_cu->cuStreamDestroy(device->words_stream);
    }
    if (entered)
        gvmi_device_leave();
    gvmi_cu->cuDevicePrimaryCtxRelease(device->cu);
}

static gvm_status device_create(int32_t ordinal, gvm_device **out)
{
    gvm_device *device = calloc(1, sizeof *device);
    gvm_status status;
    CUresult result;

    if (device == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a device");
    device->info.ordinal = ordinal;
    result = gvmi_cu->cuDeviceGet(&device->cu, ordinal);
    if (result != CUDA_SUCCESS) {
        status = gvmi_driver_fail(result, "cuDeviceGet", "cannot get device %d", ordinal);
        goto fail_free;
    }
    status = read_info(device);
    if (status != GVM_OK)
        goto fail_free;
    status = gvmi_chunk_cache_create(device, &device->cache);
    if (status != GVM_OK)
        goto fail_free;
    status = start_context(device);
    if (status != GVM_OK)
        goto fail_destroy_cache;
    status = gvmi_registry_add(GVMI_KIND_DEVICE, gvmi_key(device), device);
    if (status != GVM_OK)
        goto fail_stop_context;
    gvmi_words_init(&device->results);
    gvmi_words_init(&device->appends);
    gvmi_words_init(&device->cleanings);
    gvmi_words_init(&device->callbacks);
    *out = device;
    return GVM_OK;

fail_stop_context:
    stop_context(device);
fail_destroy_cache:
    gvmi_chunk_cache_destroy(device->cache);
fail_free:
    free(device);
    return status;
}

gvm_status gvm_device_open(int32_t ordinal, gvm_device **out)
{
    GVMI_UNCANCELLED;
    gvm_status status;
    int32_t count;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvm_device_count(&count);
    if (status != GVM_OK)
        return status;
    if (ordinal < 0 || ordinal >= count)
        return gvm_error_set(GVM_E_NODEVICE, "no device %d: there are %d, numbered from 0",
                             (int)ordinal, (int)count);
    gvmi_lock(&lock);
    if (alive[ordinal] != NULL && gvmi_device_was_reset(alive[ordinal]))
        alive[ordinal] = NULL; /* who has it may still close it; what is opened now is another */
    if (alive[ordinal] == NULL)
        status = device_create(ordinal, &alive[ordinal]);
    else if (alive[ordinal]->openings == 0) /* closed, kept alive by buffers: make its handle known again */
        status = gvmi_registry_add(GVMI_KIND_DEVICE, gvmi_key(alive[ordinal]), alive[ordinal]);
    if (status == GVM_OK) {
        alive[ordinal]->openings++;
        gvmi_device_retain(alive[ordinal]);
        *out = alive[ordinal];
    }
    gvmi_unlock(&lock);
    return status;
}

static void release_locked(gvm_device *device)
{
    gvm_error error = gvmi_error_save();

    if (__atomic_sub_fetch(&device->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (alive[device->info.ordinal] == device)
        alive[device->info.ordinal] = NULL;
    unload_device_parts(device);
    gvmi_chunk_cache_destroy(device->cache);
    stop_context(device);
    gvmi_registry_retire(device);
    gvm_error_restore(&error);
}

static bool is_open(const gvm_device *device)
{
    void *object;

    if (gvmi_registry_hold(GVMI_KIND_DEVICE, gvmi_key(device), &object) != GVM_OK)
        return false;
    gvmi_registry_drop(GVMI_KIND_DEVICE, gvmi_key(device));
    return true;
}

/* Asked without the lock first: in a child made by fork(), where the parent's devices are unknown, a thread that the child does
 * not have may hold it for ever. */
void gvm_device_close(gvm_device *device)
{
    GVMI_UNCANCELLED;
    void *object;

    if (device == NULL || !is_open(device))
        return;
    gvmi_lock(&lock);
    if (is_open(device)) {
        if (--device->openings == 0)
            gvmi_registry_remove(GVMI_KIND_DEVICE, gvmi_key(device), &object);
        release_locked(device);
    }
    gvmi_unlock(&lock);
}

gvm_status gvmi_device_hold(const gvm_device *handle, gvm_device **out)
{
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_DEVICE, gvmi_key(handle), &object);

    if (status != GVM_OK)
        return status;
    gvmi_device_retain(object);
    gvmi_registry_drop(GVMI_KIND_DEVICE, gvmi_key(handle));
    *out = object;
    return GVM_OK;
}

void gvmi_device_retain(gvm_device *device)
{
    __atomic_fetch_add(&device->references, 1, __ATOMIC_RELAXED);
}

void gvmi_device_release(gvm_device *device)
{
    uint32_t seen = __atomic_load_n(&device->references, __ATOMIC_RELAXED);

    /* Only the last reference needs the lock: it takes the device out of the table. */
    while (seen > 1)
        if (__atomic_compare_exchange_n(&device->references, &seen, seen - 1, true,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            return;
    gvmi_lock(&lock);
    release_locked(device);
    gvmi_unlock(&lock);
}

gvm_status gvm_device_push_context(gvm_device *handle)
{
    GVMI_UNCANCELLED;
    gvm_device *device;
    gvm_status status = gvmi_device_hold(handle, &device);

    if (status != GVM_OK)
        return status;
    status = gvmi_device_enter(device);
    gvmi_device_release(device);
    return status;
}

void gvm_device_pop_context(void)
{
    gvmi_device_leave();
}

/* ---- questions to an open device */

gvm_status gvm_device_get_info(gvm_device *handle, gvm_device_info *info)
{
    GVMI_UNCANCELLED;
    gvm_device_info full;
    gvm_device *device;
    size_t free_bytes, total_bytes;
    CUresult result;
    gvm_status status = gvmi_device_hold(handle, &device);

    if (status != GVM_OK)
        return status;
    full = device->info;
    full.cached_bytes = gvmi_chunk_cache_bytes(device->cache);
    status = gvmi_device_enter(device);
    if (status == GVM_OK) {
        result = gvmi_cu->cuMemGetInfo(&free_bytes, &total_bytes);
        gvmi_device_leave();
        if (result == CUDA_SUCCESS)
            full.free_bytes = free_bytes;
        else
            status = gvmi_driver_fail(result, "cuMemGetInfo",
                                      "cannot read the free memory of device %d",
                                      device->info.ordinal);
    }
    gvmi_device_release(device);
    if (status == GVM_OK && !gvmi_struct_out(info, &full, sizeof full, sizeof full))
        status = gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return status;
}

gvm_status gvm_device_synchronize(gvm_device *handle)
{
    GVMI_UNCANCELLED;
    gvm_device *device;
    CUresult result;
    gvm_status status = gvmi_device_hold(handle, &device);

    if (status != GVM_OK)
        return status;
    status = gvmi_device_enter(device);
    if (status == GVM_OK) {
        result = gvmi_cu->cuCtxSynchronize();
        gvmi_device_leave();
        if (result != CUDA_SUCCESS)
            status = gvmi_driver_fail(result, "cuCtxSynchronize", "work on device %d failed",
                                      device->info.ordinal);
    }
    gvmi_device_release(device);
    return status;
}

/* With the device's context current, which the per-thread default stream is found by. No other mode of captures is
 * needed: the driver lets this be asked in every one. */
static CUresult query_capture(const gvm_device *device, gvm_stream stream,
                              CUstreamCaptureStatus *state, cuuint64_t *id)
{
    CUcontext current = NULL;
    CUresult result = gvmi_cu->cuCtxGetCurrent(&current);
    const bool entered = result == CUDA_SUCCESS && current != device->context;

    if (entered)
        result = gvmi_cu->cuCtxPushCurrent(device->context);
    if (result != CUDA_SUCCESS)
        return result;
    result = gvmi_cu->cuStreamGetCaptureInfo(stream, state, id, NULL, NULL, NULL, NULL);
    if (entered)
        (void)gvmi_cu->cuCtxPopCurrent(&current);
    return result;
}

gvm_status gvm_device_get_capture(gvm_device *handle, gvm_stream stream, uint64_t *capture_id)
{
    GVMI_UNCANCELLED;
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    gvm_device *device;
    CUresult result;
    gvm_status status;

    if (capture_id == NULL)
        return gvm_error_set(GVM_E_INVALID, "capture_id is NULL");
    status = gvmi_device_hold(handle, &device);
    if (status != GVM_OK)
        return status;
    if (gvmi_device_was_reset(device)) {
        status = gvmi_device_fail_reset(device);
    } else if (stream != NULL && stream != CU_STREAM_LEGACY) { /* the legacy stream cannot be captured */
        result = query_capture(device, stream, &state, &id);
        if (result == CUDA_ERROR_NOT_SUPPORTED)
            status = gvmi_driver_fail_as(GVM_E_NOTSUP, result, "cuStreamGetCaptureInfo",
                                         "the driver does not tell captures apart: CUDA 12.3 brings it");
        else if (result == CUDA_ERROR_INVALID_HANDLE)
            status = gvmi_driver_fail_as(GVM_E_INVALID, result, "cuStreamGetCaptureInfo",
                                         "there is no stream %p", (void *)stream);
        else if (result != CUDA_SUCCESS)
            status = gvmi_driver_fail(result, "cuStreamGetCaptureInfo",
                                      "cannot tell whether stream %p is captured", (void *)stream);
    }
    if (status == GVM_OK)
        *capture_id = state == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : id;
    gvmi_device_release(device);
    return status;
}

gvm_status gvm_device_trim(gvm_device *handle, uint64_t keep_bytes)
{
    GVMI_UNCANCELLED;
    gvm_device *device;
    gvm_status status = gvmi_device_hold(handle, &device);

    if (status != GVM_OK)
        return status;
    gvmi_chunk_cache_trim(device->cache, keep_bytes);
    gvmi_device_release(device);
    return GVM_OK;
}
