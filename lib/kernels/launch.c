/* Launching kernels, and the words through which they answer.
 *
 * A result word lives on the device, where atomic operations work, and is copied to pinned memory
 * in the order of the stream. Nothing is allocated or freed per call.
 */
#include "base/assert.h"
#include "base/error.h"
#include "kernels/set.h"
#include "memory/idle.h"

gvm_status gvmi_kernel_launch(gvm_device *device, gvmi_kernel kernel, const void *params,
                              uint64_t blocks, CUstream stream)
{
    const gvmi_kernel_entry *entry;
    void *arguments[] = {(void *)(uintptr_t)params}; /* the driver reads it only */
    unsigned grid;
    CUresult result;
    gvm_status status = gvmi_kernel_entry_get(device, kernel, &entry);

    if (status != GVM_OK)
        return status;
    grid = blocks < entry->blocks_max ? (unsigned)blocks : entry->blocks_max;
    result = gvmi_cu->cuLaunchKernel(entry->function, grid > 0 ? grid : 1, 1, 1,
                                     entry->block_threads, 1, 1, 0, stream, arguments, NULL);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuLaunchKernel", "cannot launch kernel %s on device %d",
                                gvmi_kernel_names[kernel], device->info.ordinal);
    return GVM_OK;
}

/* ---- slots */

/* One more slab, at the end of the array: slots keep their numbers. If there is no host memory for it, its device
 * memory stays for the next try: to free it would wait for all kernels, with the lock held. */
static gvm_status add_slab_locked(gvm_device *device, struct gvmi_kernel_set *set)
{
    gvmi_slab *slab = &set->slabs[set->slab_count];
    CUdeviceptr address;
    gvm_status status;
    CUresult result;

    if (set->slab_count == GVMI_SLABS_MAX)
        return gvmi_fail(GVM_E_LIMIT, "%u kernels of device %d are waited for at once",
                         GVMI_SLABS_MAX * GVMI_SLOTS, device->info.ordinal);
    if (slab->device == 0) {
        result = gvmi_device_alloc(device, &address, GVMI_SLOTS * GVMI_SLOT_BYTES);
        if (result != CUDA_SUCCESS)
            return gvmi_driver_fail(result, "cuMemAlloc", "no device memory for results of kernels");
        slab->device = address;
    }
    status = gvmi_pinned_create(GVMI_SLOTS * GVMI_SLOT_BYTES, "results of kernels", &slab->host);
    set->slab_count += status == GVM_OK;
    return status;
}

static gvm_status take_slot_locked(gvm_device *device, struct gvmi_kernel_set *set, gvmi_result *out)
{
    gvmi_slab *slab;
    gvm_status status;
    uint32_t index = 0, bit;

    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_KERNELS));
    while (index < set->slab_count && set->slabs[index].taken == UINT64_MAX)
        index++;
    if (index == set->slab_count) {
        status = add_slab_locked(device, set);
        if (status != GVM_OK)
            return status;
    }
    slab = &set->slabs[index];
    bit = (uint32_t)__builtin_ctzll(~slab->taken);
    slab->taken |= 1ull << bit;
    out->slot = index * GVMI_SLOTS + bit;
    out->address = slab->device + bit * GVMI_SLOT_BYTES;
    out->host = (uint64_t *)(void *)((char *)slab->host.host + bit * GVMI_SLOT_BYTES);
    return GVM_OK;
}

static void give_slot(struct gvmi_kernel_set *set, uint32_t slot)
{
    gvmi_lock(&set->lock);
    set->slabs[slot / GVMI_SLOTS].taken &= ~(1ull << slot % GVMI_SLOTS);
    gvmi_unlock(&set->lock);
}

void gvmi_result_slabs_free(const gvm_device *device, struct gvmi_kernel_set *set)
{
    for (uint32_t i = 0; i < GVMI_SLABS_MAX && set->slabs[i].device != 0; i++) {
        if (!gvmi_device_was_reset(device))
            gvmi_cu->cuMemFree(set->slabs[i].device);
        if (i < set->slab_count)
            gvmi_pinned_destroy(device, &set->slabs[i].host);
    }
}

/* ---- results */

gvm_status gvmi_result_begin(gvm_device *device, uint8_t byte, CUstream stream, gvmi_result *out)
{
    gvmi_shortage shortage = {0};
    struct gvmi_kernel_set *set;
    CUresult result;
    gvm_status status = gvmi_kernel_set_get(device, &set);

    if (status != GVM_OK)
        return status;
    out->stream = stream;
    do {
        gvmi_lock(&set->lock);
        status = take_slot_locked(device, set, out);
        gvmi_unlock(&set->lock);
    } while (status == GVM_E_NOSPACE &&
             gvmi_idle_retry(device, GVMI_SLOTS * GVMI_SLOT_BYTES, &shortage));
    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuMemsetD8Async(out->address, byte, sizeof(uint64_t), stream);
    if (result == CUDA_SUCCESS)
        return GVM_OK;
    status = gvmi_driver_fail(result, "cuMemsetD8Async",
                              "cannot queue work on a stream of device %d", device->info.ordinal);
    give_slot(set, out->slot);
    return status;
}

gvm_status gvmi_result_end(gvm_device *device, const gvmi_result *result, gvm_status status,
                           uint64_t *value)
{
    CUresult copied = CUDA_SUCCESS, waited;

    if (status == GVM_OK) {
        copied = gvmi_cu->cuMemcpyDtoHAsync(result->host, result->address, sizeof(uint64_t),
                                            result->stream);
        if (copied != CUDA_SUCCESS)
            status = gvmi_driver_fail(copied, "cuMemcpyDtoHAsync",
                                      "cannot fetch the result of a kernel");
    }
    /* After a failure too: whatever was queued may still write to the slot. */
    waited = gvmi_cu->cuStreamSynchronize(result->stream);
    if (waited != CUDA_SUCCESS && status == GVM_OK)
        status = gvmi_driver_fail(waited, "cuStreamSynchronize",
                                  "a kernel failed on device %d: is everything it reads committed?",
                                  device->info.ordinal);
    if (status == GVM_OK)
        *value = *result->host;
    if (waited == CUDA_SUCCESS)
        give_slot(device->kernels, result->slot);
    return status;
}
