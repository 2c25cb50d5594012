/* Chunk handles, and the cache of free ones.
 *
 * cuMemCreate is the slow call of virtual memory management, for host memory very slow
 * (hardware.md: 0.3 s a GiB), so handles that a buffer lets go of are kept for the next one, at
 * most GVMEM_CACHE bytes per tier. What the cache holds is lost to other processes, so it is given
 * back before anybody here is told that the device is full.
 *
 * Only handles that no other process has ever seen come here: a reused handle must not show one
 * buffer's data to another's importers.
 *
 * I1  bytes[t] is the sum over the entries of tier t, and at most limit_bytes.
 * I2  count <= CACHE_ENTRIES_MAX.
 * Lock: rank DEVICE, held for memory operations only; the driver is called outside.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "memory/device.h"

#define CACHE_ENTRIES_MAX 4096 /* 8 GiB of the smallest chunks */

typedef struct free_chunk {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
    uint8_t tier;
    bool shareable;
} free_chunk;

struct gvmi_chunk_cache {
    gvmi_mutex lock;
    uint64_t limit_bytes;
    uint64_t bytes[GVM_TIER_HOST + 1];
    size_t count;
    free_chunk entries[CACHE_ENTRIES_MAX];
};

gvm_status gvmi_chunk_cache_create(gvmi_chunk_cache **out)
{
    uint64_t limit_bytes;
    gvm_status status = gvmi_option_size(GVMI_OPTION_GVMEM_CACHE, &limit_bytes);
    gvmi_chunk_cache *cache;

    if (status != GVM_OK)
        return status;
    cache = calloc(1, sizeof *cache);
    if (cache == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a chunk cache");
    gvmi_mutex_init(&cache->lock, GVMI_RANK_DEVICE);
    cache->limit_bytes = limit_bytes;
    *out = cache;
    return GVM_OK;
}

static free_chunk take_locked(gvmi_chunk_cache *cache, size_t index)
{
    free_chunk taken = cache->entries[index];

    cache->entries[index] = cache->entries[--cache->count];
    cache->bytes[taken.tier] -= taken.bytes;
    return taken;
}

/* An entry that fits, or false. */
static bool cache_take(gvmi_chunk_cache *cache, gvm_tier tier, uint64_t bytes, bool shareable,
                       CUmemGenericAllocationHandle *out)
{
    bool found = false;

    gvmi_lock(&cache->lock);
    for (size_t i = cache->count; i-- > 0 && !found;) {
        const free_chunk *entry = &cache->entries[i];

        if (entry->tier == tier && entry->bytes == bytes && entry->shareable == shareable) {
            *out = take_locked(cache, i).handle;
            found = true;
        }
    }
    gvmi_unlock(&cache->lock);
    return found;
}

static bool cache_put(gvmi_chunk_cache *cache, const free_chunk *chunk)
{
    bool fits;

    gvmi_lock(&cache->lock);
    fits = cache->count < CACHE_ENTRIES_MAX && chunk->bytes <= cache->limit_bytes &&
           cache->bytes[chunk->tier] <= cache->limit_bytes - chunk->bytes;
    if (fits) {
        cache->entries[cache->count++] = *chunk;
        cache->bytes[chunk->tier] += chunk->bytes;
    }
    gvmi_unlock(&cache->lock);
    return fits;
}

void gvmi_chunk_cache_trim(gvmi_chunk_cache *cache, uint64_t keep_bytes)
{
    for (;;) {
        free_chunk taken;
        bool more;

        gvmi_lock(&cache->lock);
        more = cache->count > 0 &&
               cache->bytes[GVM_TIER_DEVICE] + cache->bytes[GVM_TIER_HOST] > keep_bytes;
        if (more)
            taken = take_locked(cache, cache->count - 1);
        gvmi_unlock(&cache->lock);
        if (!more)
            return;
        gvmi_cu->cuMemRelease(taken.handle);
    }
}

uint64_t gvmi_chunk_cache_bytes(gvmi_chunk_cache *cache)
{
    uint64_t bytes;

    gvmi_lock(&cache->lock);
    bytes = cache->bytes[GVM_TIER_DEVICE] + cache->bytes[GVM_TIER_HOST];
    gvmi_unlock(&cache->lock);
    return bytes;
}

void gvmi_chunk_cache_destroy(gvmi_chunk_cache *cache)
{
    gvmi_chunk_cache_trim(cache, 0);
    gvmi_mutex_destroy(&cache->lock);
    free(cache);
}

/* Says how much was wanted and how much there is. */
static gvm_status fail_full(const gvm_device *device, gvm_tier tier, uint64_t bytes, CUresult result)
{
    size_t free_bytes = 0, total_bytes = 0;
    char wanted[32], left[32];

    gvmi_size_text(bytes, wanted);
    if (tier == GVM_TIER_HOST)
        return gvmi_driver_fail_as(GVM_E_NOMEM, result, "cuMemCreate",
                                   "no %s of pinned host memory left", wanted);
    if (gvmi_device_enter(device) == GVM_OK) {
        (void)gvmi_cu->cuMemGetInfo(&free_bytes, &total_bytes);
        gvmi_device_leave();
    }
    return gvmi_driver_fail(result, "cuMemCreate",
                            "device %d has no %s left for a chunk: %s are free; free memory there, "
                            "move buffers to the host tier, or use smaller chunks",
                            device->info.ordinal, wanted, gvmi_size_text(free_bytes, left));
}

gvm_status gvmi_chunk_create(gvm_device *device, gvm_tier tier, uint64_t bytes, bool shareable,
                             CUmemGenericAllocationHandle *out)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                          : CU_MEM_HANDLE_TYPE_NONE,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->info.ordinal},
    };
    CUresult result;

    GVM_ASSERT(tier == GVM_TIER_DEVICE || tier == GVM_TIER_HOST);
    if (tier == GVM_TIER_HOST) {
        prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        prop.location.id = device->host_numa_id;
    }
    if (cache_take(device->cache, tier, bytes, shareable, out))
        return GVM_OK;
    result = gvmi_cu->cuMemCreate(out, bytes, &prop, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && gvmi_chunk_cache_bytes(device->cache) > 0) {
        gvmi_chunk_cache_trim(device->cache, 0);
        result = gvmi_cu->cuMemCreate(out, bytes, &prop, 0);
    }
    if (result == CUDA_SUCCESS)
        return GVM_OK;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return fail_full(device, tier, bytes, result);
    return gvmi_driver_fail(result, "cuMemCreate", "cannot make a chunk on device %d",
                            device->info.ordinal);
}

void gvmi_chunk_release(gvm_device *device, gvm_tier tier, uint64_t bytes, bool shareable,
                        bool keep, CUmemGenericAllocationHandle handle)
{
    const free_chunk chunk = {handle, bytes, (uint8_t)tier, shareable};

    if (!keep || !cache_put(device->cache, &chunk))
        gvmi_cu->cuMemRelease(handle);
}
