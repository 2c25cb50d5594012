/* Stream-ordered memory and its pools.
 *
 * A pool keeps nothing: what is freed goes back to the device at once. So it is an account, a limit, and the list of
 * who may access what came from it. Its memory cannot be handed to other processes, and is anonymous.
 *
 * Lock: pools are guarded by the space lock, as the ranges that refer to them. */
#include <stdlib.h>
#include <string.h>

#include "softgpu/engine.h"
#include "softgpu/space.h"

#define DRAINS_MAX 1000 /* before the call fails for want of memory */

#define POOL_BY_DEFAULT(i) \
    { \
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, i}, \
        .refs = 1, .reuse = {1, 1, 1}, .access = {[i] = SOFT_ACCESS_READWRITE}, \
    }
#define POOLS_BY_DEFAULT(i) \
    POOL_BY_DEFAULT(i), POOL_BY_DEFAULT((i) + 1), POOL_BY_DEFAULT((i) + 2), POOL_BY_DEFAULT((i) + 3)

static CUmemoryPool pools; /* those that were created */
static struct CUmemPoolHandle_st default_pools[SOFT_DEVICES_MAX] = {
    POOLS_BY_DEFAULT(0),
    POOLS_BY_DEFAULT(4),
    POOLS_BY_DEFAULT(8),
    POOLS_BY_DEFAULT(12),
};
static CUmemoryPool current_pools[SOFT_DEVICES_MAX]; /* NULL: the default one */

/* ---- finding */

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

/* Takes the lock for a call on the pool; without it on failure. */
static CUresult lock_pool(CUmemoryPool pool)
{
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    soft_space_lock_write();
    if (is_pool_locked(pool))
        return CUDA_SUCCESS;
    soft_space_unlock();
    return CUDA_ERROR_INVALID_VALUE;
}

static CUmemoryPool current_pool_locked(int device)
{
    return current_pools[device] ? current_pools[device] : &default_pools[device];
}

static CUresult answer_pool(CUmemoryPool *out, CUdevice dev, bool by_default)
{
    const soft_config *config;
    CUresult rc = soft_enter();
    if (rc == CUDA_SUCCESS && !out)
        rc = CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS)
        rc = soft_enter_device(dev, &config);
    if (rc != CUDA_SUCCESS)
        return rc;
    soft_space_lock_read();
    *out = by_default ? &default_pools[dev] : current_pool_locked(dev);
    soft_space_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
    return answer_pool(pool, dev, true);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    CUresult rc = answer_pool(pool, dev, false);
    return rc == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : rc; /* as the real driver */
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    const soft_config *config;
    CUresult rc = soft_enter_device(dev, &config);
    if (rc == CUDA_ERROR_INVALID_DEVICE)
        rc = CUDA_ERROR_INVALID_VALUE; /* as the real driver */
    if (rc == CUDA_SUCCESS)
        rc = lock_pool(pool);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (pool->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        pool->location.type != CU_MEM_LOCATION_TYPE_DEVICE || pool->location.id != dev)
        rc = CUDA_ERROR_INVALID_VALUE;
    else
        current_pools[dev] = pool;
    soft_space_unlock();
    return rc;
}

/* ---- life */

/* A managed pool cannot be shared, and a host pool neither. */
static CUresult check_props(const CUmemPoolProps *props)
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
    rc = check_props(props);
    if (rc != CUDA_SUCCESS)
        return rc;
    created = calloc(1, sizeof *created);
    if (!created)
        return CUDA_ERROR_OUT_OF_MEMORY;
    created->type = props->allocType;
    created->location = props->location;
    created->refs = 1;
    created->max_bytes = props->maxSize;
    for (int i = 0; i < 3; i++)
        created->reuse[i] = 1;
    if (created->type == CU_MEM_ALLOCATION_TYPE_MANAGED)
        memset(created->access, SOFT_ACCESS_READWRITE, sizeof created->access);
    else if (created->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        created->access[created->location.id] = SOFT_ACCESS_READWRITE;
    else
        created->access[SOFT_ACCESSOR_CPU] = SOFT_ACCESS_READWRITE;
    soft_space_lock_write();
    created->next = pools;
    pools = created;
    soft_space_unlock();
    *pool = created;
    return CUDA_SUCCESS;
}

/* Its memory stays; a device whose pool it was has its default one again. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUmemoryPool *link;
    CUresult rc = lock_pool(pool);
    if (rc != CUDA_SUCCESS)
        return rc;
    for (link = &pools; *link && *link != pool; link = &(*link)->next)
        ;
    if (!*link) {
        rc = CUDA_ERROR_INVALID_VALUE; /* a default pool */
    } else {
        *link = pool->next;
        for (int i = 0; i < SOFT_DEVICES_MAX; i++)
            if (current_pools[i] == pool)
                current_pools[i] = NULL;
        soft_pool_unref_locked(pool);
    }
    soft_space_unlock();
    return rc;
}

/* ---- attributes and access */

static CUresult get_attribute_locked(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    const uint64_t figures[] = {pool->release_threshold_bytes, pool->reserved_bytes,
                                pool->reserved_high_bytes, pool->used_bytes, pool->used_high_bytes};
    if (attribute < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
        attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        memcpy(value, &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES],
               sizeof(int));
    else
        memcpy(value, &figures[attribute - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD], sizeof(uint64_t));
    return CUDA_SUCCESS;
}

/* The highest figures of use can be set to 0 only: from here on they are those of now. */
static CUresult set_attribute_locked(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value)
{
    uint64_t bytes;
    if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
        attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        memcpy(&pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], value,
               sizeof(int));
        return CUDA_SUCCESS;
    }
    if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD &&
        attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && attribute != CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&bytes, value, sizeof bytes);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->release_threshold_bytes = bytes;
    else if (bytes != 0)
        return CUDA_ERROR_INVALID_VALUE;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        pool->used_high_bytes = pool->used_bytes;
    else
        pool->reserved_high_bytes = pool->reserved_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult rc = value ? lock_pool(pool) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = set_attribute_locked(pool, attribute, value);
    soft_space_unlock();
    return rc;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult rc = value ? lock_pool(pool) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = get_attribute_locked(pool, attribute, value);
    soft_space_unlock();
    return rc;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    CUresult rc = lock_pool(pool);
    (void)keep; /* nothing is kept */
    if (rc == CUDA_SUCCESS)
        soft_space_unlock();
    return rc;
}

static CUresult find_accessor(const CUmemLocation *location, int *accessor)
{
    const soft_config *config;
    soft_config_get(&config, NULL);
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        *accessor = location->id;
        return location->id >= 0 && location->id < config->device_count ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_DEVICE;
    }
    *accessor = SOFT_ACCESSOR_CPU;
    return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* May the pool's memory be accessed so? The device that it is on always has it, and the CPU never has what is
 * on a device. */
static CUresult check_access(const struct CUmemPoolHandle_st *pool, const CUmemAccessDesc *desc)
{
    bool on_device = pool->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    int accessor;
    CUresult rc = find_accessor(&desc->location, &accessor);
    if (rc != CUDA_SUCCESS)
        return rc;
    if ((desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
         desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ||
        pool->type == CU_MEM_ALLOCATION_TYPE_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    if (accessor == SOFT_ACCESSOR_CPU && on_device)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && on_device &&
        accessor != pool->location.id && !soft_is_peer(accessor, pool->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        accessor == (on_device ? pool->location.id : SOFT_ACCESSOR_CPU))
        return on_device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* All or nothing. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count)
{
    CUresult rc = desc && count > 0 ? lock_pool(pool) : CUDA_ERROR_INVALID_VALUE;
    int accessor;
    if (rc != CUDA_SUCCESS)
        return rc;
    for (size_t i = 0; i < count && rc == CUDA_SUCCESS; i++)
        rc = check_access(pool, &desc[i]);
    for (size_t i = 0; i < count && rc == CUDA_SUCCESS; i++) {
        rc = find_accessor(&desc[i].location, &accessor);
        pool->access[accessor] = (uint8_t)desc[i].flags;
    }
    soft_space_unlock();
    return rc;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    int accessor;
    CUresult rc = flags && location ? lock_pool(pool) : CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = find_accessor(location, &accessor);
    if (rc == CUDA_SUCCESS)
        *flags = pool->access[accessor];
    soft_space_unlock();
    return rc == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : rc; /* unlike setting it */
}

/* ---- allocate */

static uint64_t whole_granules(uint64_t bytes)
{
    return (bytes + SOFT_GRANULARITY_BYTES - 1) & ~(SOFT_GRANULARITY_BYTES - 1);
}

/* Enters the allocation into the pool's account, with a reference for it. */
static CUresult book_locked(CUmemoryPool pool, const soft_range *model)
{
    if (pool->max_bytes > 0 && (model->page_bytes > pool->max_bytes ||
                                pool->reserved_bytes > pool->max_bytes - model->page_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->refs++;
    pool->used_bytes += model->span.size_bytes;
    pool->reserved_bytes += model->page_bytes;
    return CUDA_SUCCESS;
}

static void unbook(const soft_range *model)
{
    soft_space_lock_write();
    model->pool->used_bytes -= model->span.size_bytes;
    model->pool->reserved_bytes -= model->page_bytes;
    soft_pool_unref_locked(model->pool);
    soft_space_unlock();
}

/* Memory whose free is still queued counts as free for what comes behind it. Other threads may take what a drain
 * has brought, and free it again. Where no free was queued while the memory was short nothing is waited for: what
 * the device has to do may wait for this thread. */
static CUresult charge_model(soft_range *model, CUmemLocation location)
{
    CUresult rc = soft_backing_charge(&model->backing, location, model->page_bytes);
    bool queued = true, still_queued;
    uint64_t begun = 0;
    for (int drains = 0; rc == CUDA_ERROR_OUT_OF_MEMORY && drains < DRAINS_MAX; drains++) {
        if (!queued && soft_frees_begun(&still_queued) == begun)
            break;
        begun = soft_frees_begun(&queued);
        rc = queued ? soft_device_drain(model->device) : CUDA_SUCCESS;
        if (rc == CUDA_SUCCESS)
            rc = soft_backing_charge(&model->backing, location, model->page_bytes);
    }
    return rc;
}

/* Puts memory behind what was booked; gives the booking back on failure. */
static CUresult place_booked(soft_range *model, CUdeviceptr *ptr)
{
    CUresult rc = CUDA_SUCCESS;
    if (model->kind == SOFT_KIND_MANAGED)
        model->backing.fd = -1;
    else
        rc = charge_model(model, model->pool->location);
    if (rc == CUDA_SUCCESS)
        rc = soft_range_place(model, SOFT_GRANULARITY_BYTES);
    if (rc == CUDA_SUCCESS)
        *ptr = model->span.addr;
    else
        unbook(model);
    return rc;
}

static CUresult do_nothing(void *arg)
{
    (void)arg;
    return CUDA_SUCCESS;
}

/* pool NULL: that of the stream's device. */
static CUresult allocate_in_stream(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream)
{
    soft_range model = {.origin = SOFT_ORIGIN_STREAM};
    CUresult rc = soft_stream_device(stream, &model.device);
    /* The memory is there at once, earlier than the stream asks for it; what is queued is only the question whether
     * there is one. */
    if (rc == CUDA_SUCCESS)
        rc = soft_stream_submit(stream, do_nothing, NULL);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (size == 0) { /* no error here, unlike in cuMemAlloc */
        *ptr = 0;
        return CUDA_SUCCESS;
    }
    model.span.size_bytes = size;
    model.page_bytes = whole_granules(size);
    soft_space_lock_write();
    model.pool = pool ? pool : current_pool_locked(model.device);
    rc = is_pool_locked(model.pool) ? book_locked(model.pool, &model) : CUDA_ERROR_INVALID_VALUE;
    soft_space_unlock();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (model.pool->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        model.device = model.pool->location.id;
    model.kind = model.pool->type == CU_MEM_ALLOCATION_TYPE_MANAGED         ? SOFT_KIND_MANAGED
                 : model.pool->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? SOFT_KIND_DEVICE
                                                                            : SOFT_KIND_HOST;
    return place_booked(&model, ptr);
}

static CUresult allocate_async(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream)
{
    int device;
    CUresult rc = soft_enter_context(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr)
        return CUDA_ERROR_INVALID_VALUE;
    return size > INT64_MAX ? CUDA_ERROR_OUT_OF_MEMORY : allocate_in_stream(ptr, size, pool, stream);
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t size, CUstream stream)
{
    return allocate_async(ptr, size, NULL, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream)
{
    return pool ? allocate_async(ptr, size, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}
