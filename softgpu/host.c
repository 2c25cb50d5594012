/* Pinned host memory. The devices reach it at the address the CPU has it at. It counts against the
 * instance's host limit; it is not really locked, because the software GPU has no copy engine that
 * would need that. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softgpu/space.h"

#define HOST_ALLOC_FLAGS \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)
#define REGISTER_FLAGS_REFUSED 12u /* IOMEMORY and READ_ONLY: no device here has the means */

static const CUmemLocation host_location = {CU_MEM_LOCATION_TYPE_HOST, 0};

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Kernels of any device may be using the memory. Another device's context may be broken: that is
 * its own affair. */
static CUresult drain_all(int current)
{
    const soft_config *config;
    CUresult rc = CUDA_SUCCESS;
    soft_config_get(&config, NULL);
    for (int device = 0; device < config->device_count; device++) {
        CUresult drained = soft_device_drain(device);
        if (device == current)
            rc = drained;
    }
    return rc;
}

/* The range that starts at addr, if it is of that origin and nobody is ending it. */
static soft_range *find_host_range_locked(CUdeviceptr addr, soft_origin origin)
{
    soft_range *range = soft_range_at_locked(addr);
    return range && range->span.addr == addr && range->origin == origin && !range->ending ? range
                                                                                          : NULL;
}

/* Marks the range as ending, waits for the devices and ends it. It is looked up again after the
 * wait: a registration may have been found stale meanwhile. */
static CUresult drain_and_end(int device, CUdeviceptr addr, soft_origin origin, CUresult unknown)
{
    soft_range *range;
    uint64_t id = 0;
    CUresult rc;
    soft_space_lock_write();
    range = find_host_range_locked(addr, origin);
    if (range) {
        id = range->buffer_id;
        range->ending = true;
    }
    soft_space_unlock();
    if (!range)
        return unknown;

    rc = drain_all(device);
    soft_space_lock_write();
    range = soft_range_at_locked(addr);
    if (range && range->buffer_id == id) {
        if (rc == CUDA_SUCCESS)
            rc = soft_range_end_locked(range);
        if (rc != CUDA_SUCCESS)
            range->ending = false;
    }
    soft_space_unlock();
    return rc;
}

/* ---- allocated here */

CUresult cuMemHostAlloc(void **ptr, size_t size, unsigned int flags)
{
    soft_range model = {.kind = SOFT_KIND_HOST, .origin = SOFT_ORIGIN_HOST};
    CUresult rc = soft_enter_owner_unsafe(&model.device, &model.context_id);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr || (flags & ~(unsigned int)HOST_ALLOC_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size == 0) { /* no error here, unlike in cuMemAlloc */
        *ptr = NULL;
        return CUDA_SUCCESS;
    }
    if (size > INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    model.span.size_bytes = size;
    model.page_bytes = (size + page_size() - 1) & ~(page_size() - 1);
    rc = soft_backing_charge(&model.backing, host_location, model.page_bytes);
    if (rc == CUDA_SUCCESS)
        rc = soft_range_place(&model, page_size());
    if (rc == CUDA_SUCCESS)
        *ptr = soft_pages_pointer(model.span.addr);
    return rc;
}

CUresult cuMemFreeHost(void *ptr)
{
    int device;
    CUresult rc = soft_enter_unsafe(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr) /* as free(NULL) */
        return CUDA_SUCCESS;
    return drain_and_end(device, (CUdeviceptr)(uintptr_t)ptr, SOFT_ORIGIN_HOST,
                         CUDA_ERROR_INVALID_VALUE);
}

/* ---- the program's own */

/* Is every page of the range there? */
static bool is_mapped(CUdeviceptr addr, uint64_t size_bytes)
{
    unsigned char resident[1024];
    CUdeviceptr at = addr & ~(page_size() - 1), end = addr + size_bytes;
    while (at < end) {
        uint64_t step = sizeof resident * page_size();
        if (step > end - at)
            step = end - at;
        if (mincore(soft_pages_pointer(at), step, resident) != 0 && errno != EAGAIN)
            return false;
        at += step;
    }
    return true;
}

CUresult cuMemHostRegister_v2(void *ptr, size_t size, unsigned int flags)
{
    soft_range model = {.kind = SOFT_KIND_HOST, .origin = SOFT_ORIGIN_REGISTER};
    CUdeviceptr addr = (CUdeviceptr)(uintptr_t)ptr, end;
    CUresult rc = soft_enter_owner_unsafe(&model.device, &model.context_id);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr || size == 0 || __builtin_add_overflow(addr, size, &end) ||
        (flags & ~(REGISTER_FLAGS | REGISTER_FLAGS_REFUSED)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & REGISTER_FLAGS_REFUSED)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_mapped(addr, size))
        return CUDA_ERROR_INVALID_VALUE;
    model.span = (soft_span){addr, size};
    rc = soft_backing_charge(&model.backing, host_location, size);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = soft_range_add(&model);
    if (rc != CUDA_SUCCESS)
        soft_backing_destroy(&model.backing);
    return rc;
}

/* An address that is something else, or lies within a registration, is a bad argument; one that is
 * nothing was not registered. */
CUresult cuMemHostUnregister(void *ptr)
{
    CUdeviceptr addr = (CUdeviceptr)(uintptr_t)ptr;
    int device;
    CUresult rc = soft_enter_unsafe(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr)
        return CUDA_ERROR_INVALID_VALUE;
    return drain_and_end(device, addr, SOFT_ORIGIN_REGISTER,
                         soft_space_kind(addr) == SOFT_KIND_NONE ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
                                                                 : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *dptr, void *ptr, unsigned int flags)
{
    int device;
    CUresult rc = soft_enter_context(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!dptr || !ptr || flags != 0 || soft_space_kind((CUdeviceptr)(uintptr_t)ptr) != SOFT_KIND_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *dptr = (CUdeviceptr)(uintptr_t)ptr;
    return CUDA_SUCCESS;
}
