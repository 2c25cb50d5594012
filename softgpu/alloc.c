/* Memory with an address of its own: cuMemAlloc and managed memory, and the end of every kind.
 *
 * cuMemAlloc memory is a memfd, so that CUDA IPC can hand it out, charged in whole granules. Managed
 * memory is pageable memory of this process, charged to nobody: the software GPU has no page faults
 * to bring it to a device.
 */
#include "softgpu/space.h"

#define ATTACH_HOST 2u /* CU_MEM_ATTACH_HOST */

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) & ~(unit - 1);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    const soft_config *config;
    uint64_t available;
    int device;
    CUresult rc = soft_enter_context(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = soft_charge_free_bytes(device, &available);
    if (rc != CUDA_SUCCESS)
        return rc;
    soft_config_get(&config, NULL);
    if (free_bytes)
        *free_bytes = available;
    if (total_bytes)
        *total_bytes = config->memory_bytes;
    return CUDA_SUCCESS;
}

/* ---- allocate */

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
    soft_range model = {.kind = SOFT_KIND_DEVICE, .origin = SOFT_ORIGIN_ALLOC};
    CUresult rc = soft_enter_owner_unsafe(&model.device, &model.context_id);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    model.span.size_bytes = size;
    model.page_bytes = round_up(size, SOFT_GRANULARITY_BYTES);
    rc = soft_backing_create(&model.backing, SOFT_USE_PLAIN,
                             (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, model.device},
                             CU_MEM_HANDLE_TYPE_NONE, model.page_bytes);
    if (rc == CUDA_SUCCESS)
        rc = soft_range_place(&model, SOFT_GRANULARITY_BYTES);
    if (rc == CUDA_SUCCESS)
        *ptr = model.span.addr;
    return rc;
}

/* Rows begin at multiples of what the real devices align them to, whatever the elements. They may be longer than the
 * largest pitch (CU_DEVICE_ATTRIBUTE_MAX_PITCH): copies of more than one are refused then. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    size_t row, size;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr || !pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    row = round_up(width, SOFT_PITCH_BYTES);
    if (row < width || __builtin_mul_overflow(row, height, &size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    rc = cuMemAlloc_v2(ptr, size);
    if (rc == CUDA_SUCCESS)
        *pitch = row;
    return rc;
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
    soft_range model = {.kind = SOFT_KIND_MANAGED, .origin = SOFT_ORIGIN_ALLOC};
    CUresult rc = soft_enter_owner_unsafe(&model.device, &model.context_id);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (size > INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    model.span.size_bytes = size;
    model.page_bytes = round_up(size, SOFT_GRANULARITY_BYTES);
    model.backing.fd = -1;
    rc = soft_range_place(&model, SOFT_GRANULARITY_BYTES);
    if (rc == CUDA_SUCCESS)
        *ptr = model.span.addr;
    return rc;
}

/* ---- free */

static uint64_t frees_begun, frees_ended; /* under the space lock */

uint64_t soft_frees_begun(bool *queued)
{
    uint64_t begun;
    soft_space_lock_read();
    begun = frees_begun;
    *queued = begun != frees_ended;
    soft_space_unlock();
    return begun;
}

/* Marks the allocation that starts at ptr as ending, so that this thread alone may end it. NULL if
 * there is none. */
static soft_range *claim_range(CUdeviceptr ptr)
{
    soft_range *range;
    soft_space_lock_write();
    range = soft_range_at_locked(ptr);
    if (range && (range->span.addr != ptr || range->ending ||
                  (range->origin != SOFT_ORIGIN_STREAM && range->origin != SOFT_ORIGIN_ALLOC)))
        range = NULL;
    if (range) {
        range->ending = true;
        frees_begun++;
    }
    soft_space_unlock();
    return range;
}

static void unclaim_range(soft_range *range)
{
    soft_space_lock_write();
    range->ending = false;
    frees_ended++;
    soft_space_unlock();
}

static CUresult end_claimed(soft_range *range)
{
    CUresult rc;
    soft_space_lock_write();
    rc = soft_range_end_locked(range);
    if (rc != CUDA_SUCCESS)
        range->ending = false;
    frees_ended++;
    soft_space_unlock();
    return rc;
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    soft_range *range;
    int device;
    CUresult rc = soft_enter_unsafe(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (ptr == 0) /* as free(NULL) */
        return CUDA_SUCCESS;
    range = claim_range(ptr);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    /* Documented: memory of a stream-ordered allocation is freed without waiting. */
    if (range->origin != SOFT_ORIGIN_STREAM) {
        rc = soft_device_drain(range->device);
        if (rc != CUDA_SUCCESS) {
            unclaim_range(range);
            return rc;
        }
    }
    return end_claimed(range);
}

static CUresult end_in_stream(void *arg)
{
    end_claimed(arg);
    return CUDA_SUCCESS;
}

/* Takes memory of cuMemAlloc too, as the real driver does. */
CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
    soft_range *range;
    int device;
    CUresult rc = soft_enter_context(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    range = claim_range(ptr);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    rc = soft_stream_submit(stream, end_in_stream, range);
    if (rc != CUDA_SUCCESS)
        unclaim_range(range);
    return rc;
}
