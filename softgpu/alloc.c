/* Memory with an address of its own: cuMemAlloc, managed and stream-ordered memory, pools.
 *
 * cuMemAlloc memory is a memfd, so that CUDA IPC can hand it out; stream-ordered memory, which
 * cannot be handed out, is anonymous. Both are charged in whole granules. Managed memory is
 * pageable memory of this process, charged to nobody: the software GPU has no page faults to bring
 * it to a device.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/space.h"

#define ATTACH_HOST 2u  /* CU_MEM_ATTACH_HOST */
#define DRAINS_MAX 1000 /* before the call fails for want of memory */

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
    CUresult rc = soft_enter_unsafe(&model.device);
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

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
    soft_range model = {.kind = SOFT_KIND_MANAGED, .origin = SOFT_ORIGIN_ALLOC};
    CUresult rc = soft_enter_unsafe(&model.device);
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

static CUresult do_nothing(void *arg)
{
    (void)arg;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t size, CUstream stream)
{
    soft_range model = {.kind = SOFT_KIND_DEVICE, .origin = SOFT_ORIGIN_STREAM};
    CUresult rc = soft_enter_context(&model.device);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* The memory is there at once, earlier than the stream asks for it; what is queued is only the
     * question whether there is one. */
    rc = soft_stream_submit(stream, do_nothing, NULL);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (size == 0) { /* no error here, unlike in cuMemAlloc */
        *ptr = 0;
        return CUDA_SUCCESS;
    }
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, model.device};

    model.span.size_bytes = size;
    model.page_bytes = round_up(size, SOFT_GRANULARITY_BYTES);
    rc = soft_backing_charge(&model.backing, here, model.page_bytes);
    /* Memory whose free is still queued counts as free for what comes behind it. Other threads may take
     * what a drain has brought, and free it again. */
    for (int drains = 0; rc == CUDA_ERROR_OUT_OF_MEMORY && drains < DRAINS_MAX; drains++) {
        rc = soft_device_drain(model.device);
        if (rc == CUDA_SUCCESS)
            rc = soft_backing_charge(&model.backing, here, model.page_bytes);
    }
    if (rc == CUDA_SUCCESS)
        rc = soft_range_place(&model, SOFT_GRANULARITY_BYTES);
    if (rc == CUDA_SUCCESS)
        *ptr = model.span.addr;
    return rc;
}

/* ---- free */

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
    if (range)
        range->ending = true;
    soft_space_unlock();
    return range;
}

static void unclaim_range(soft_range *range)
{
    soft_space_lock_write();
    range->ending = false;
    soft_space_unlock();
}

static CUresult end_claimed(soft_range *range)
{
    CUresult rc;
    soft_space_lock_write();
    rc = soft_range_end_locked(range);
    if (rc != CUDA_SUCCESS)
        range->ending = false;
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

/* ---- pools: they exist, so that a program can find out which kinds do */

struct CUmemPoolHandle_st {
    CUmemoryPool next;
    uint64_t release_threshold_bytes; /* stored and returned; memory goes back at once all the same */
};

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static CUmemoryPool pools;
static struct CUmemPoolHandle_st default_pools[SOFT_DEVICES_MAX];

/* A managed pool cannot be shared, and a host pool neither. */
static CUresult check_pool(const CUmemPoolProps *props)
{
    const soft_config *config;
    soft_config_get(&config, NULL);
    if (!props || (props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        (props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ||
         props->location.type == CU_MEM_LOCATION_TYPE_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED &&
        props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    switch (props->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return props->location.id >= 0 && props->location.id < config->device_count
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST: return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return props->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_INVALID: /* "none": where a managed pool's memory is depends on who uses it */
        return props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    CUmemoryPool created;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    rc = check_pool(props);
    if (rc != CUDA_SUCCESS)
        return rc;
    created = malloc(sizeof *created);
    if (!created)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&pool_lock);
    created->next = pools;
    pools = created;
    pthread_mutex_unlock(&pool_lock);
    *pool = created;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUmemoryPool *link, found;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    pthread_mutex_lock(&pool_lock);
    for (link = &pools; *link && *link != pool; link = &(*link)->next)
        ;
    found = *link;
    if (found)
        *link = found->next;
    pthread_mutex_unlock(&pool_lock);
    free(found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool is_pool_locked(CUmemoryPool pool)
{
    for (int i = 0; i < SOFT_DEVICES_MAX; i++)
        if (pool == &default_pools[i])
            return true;
    for (CUmemoryPool known = pools; known; known = known->next)
        if (known == pool)
            return true;
    return false;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
    const soft_config *config;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    soft_config_get(&config, NULL);
    if (dev < 0 || dev >= config->device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = &default_pools[dev];
    return CUDA_SUCCESS;
}

/* Figures of use are not kept: a soft pool holds nothing but what is allocated. */
static CUresult reach_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value, bool set)
{
    bool known;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pool_lock);
    known = is_pool_locked(pool);
    if (known && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        if (set)
            memcpy(&pool->release_threshold_bytes, value, sizeof pool->release_threshold_bytes);
        else
            memcpy(value, &pool->release_threshold_bytes, sizeof pool->release_threshold_bytes);
    }
    pthread_mutex_unlock(&pool_lock);
    if (!known)
        return CUDA_ERROR_INVALID_VALUE;
    return attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    return reach_attribute(pool, attribute, value, true);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    return reach_attribute(pool, attribute, value, false);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    bool known;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    (void)keep; /* nothing is kept */
    pthread_mutex_lock(&pool_lock);
    known = is_pool_locked(pool);
    pthread_mutex_unlock(&pool_lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
