/* Chunk handles, and the cache of free ones.
 *
 * cuMemCreate is the slow call of virtual memory management, for host memory very slow
 * (0.3 s a GiB on an H100), so handles that a buffer releases are kept for the next one, at
 * most GVMEM_CACHE bytes per tier. What the cache holds is lost to other processes, so the library's thread
 * gives the driver what nobody took for KEEP_NS, and all is given back before a call here reports
 * that the device is full. Handles of host memory stay: no other program lacks device memory for them.
 *
 * A buffer that can be exported shows other processes all that its chunks hold. So a handle is used
 * again by the owner whose bytes it holds (device.h), or where every byte of it is written before
 * anybody can be shown it (a move), or by what is never exported. Filling it with zeros instead
 * would wait for kernels that occupy the device, and these may wait for the memory. A new handle
 * comes zeroed from the driver, whose release costs what such a fill does. Handles that another
 * process has seen never come here: it may write to them.
 *
 * Releasing takes the driver 0.3 ms a GiB and more. Where somebody waits for what comes after it,
 * handles beyond the limit are kept, too (GVMI_RELEASE_LATER), until the library's thread gives them to
 * the driver, after LATER_NS: who begins again at once finds them.
 *
 * I1  bytes[t] is the sum over the entries of tier t: at most limit_bytes, but for those to be
 *     released later.
 * I2  count <= CACHE_ENTRIES_MAX.
 * I3  leaving are those handles that were entries and that the driver is about to have, in the order in which they
 *     were taken out: a call that reports that the device is full waits for those that it finds
 *     there, not for later ones.
 * Lock: rank DEVICE, held for memory operations only; the driver is called outside.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "memory/idle.h"

#define CACHE_ENTRIES_MAX 4096 /* 8 GiB of the smallest chunks */
#define KEEP_NS (1000 * GVMI_NS_PER_MS)
#define LATER_NS (2 * GVMI_NS_PER_MS)

typedef struct free_chunk {
    CUmemGenericAllocationHandle handle;
    gvmi_chunk_spec spec;
    int64_t since_ns; /* it is here */
} free_chunk;

/* On the stack of the thread that gives it to the driver. */
typedef struct leaving_chunk {
    TAILQ_ENTRY(leaving_chunk) entry;
    uint64_t number, bytes;
} leaving_chunk;

struct gvmi_chunk_cache {
    gvmi_idle idle; /* first */
    gvmi_mutex lock;
    uint64_t limit_bytes;
    uint64_t bytes[GVM_TIER_HOST + 1];
    TAILQ_HEAD(, leaving_chunk) leaving;
    uint64_t leaving_number; /* of the last */
    pthread_cond_t left;     /* one has left */
    size_t count;
    free_chunk entries[CACHE_ENTRIES_MAX];
};

uint64_t gvmi_chunk_owner_new(void)
{
    static uint64_t last = GVMI_OWNER_ANY;

    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

static free_chunk remove_entry_locked(gvmi_chunk_cache *cache, size_t index)
{
    free_chunk taken = cache->entries[index];

    cache->entries[index] = cache->entries[--cache->count];
    cache->bytes[taken.spec.tier] -= taken.spec.bytes;
    return taken;
}

static bool entry_fits_spec(const gvmi_chunk_spec *entry, const gvmi_chunk_spec *wanted)
{
    return entry->tier == wanted->tier && entry->bytes == wanted->bytes &&
           entry->shareable == wanted->shareable &&
           (wanted->owner == GVMI_OWNER_ANY || entry->owner == wanted->owner ||
            entry->owner == GVMI_OWNER_NONE);
}

/* An entry that fits, or false. */
static bool cache_take(gvmi_chunk_cache *cache, const gvmi_chunk_spec *wanted,
                       CUmemGenericAllocationHandle *out)
{
    bool found = false;

    gvmi_lock(&cache->lock);
    for (size_t i = cache->count; i-- > 0 && !found;) {
        if (entry_fits_spec(&cache->entries[i].spec, wanted)) {
            *out = remove_entry_locked(cache, i).handle;
            found = true;
        }
    }
    gvmi_unlock(&cache->lock);
    return found;
}

/* later: beyond the limit as well. */
static bool cache_put(gvmi_chunk_cache *cache, free_chunk *chunk, bool later)
{
    const uint64_t bytes = chunk->spec.bytes;
    bool room;

    chunk->since_ns = gvmi_now_ns();
    gvmi_lock(&cache->lock);
    room = cache->count < CACHE_ENTRIES_MAX &&
           (later || (bytes <= cache->limit_bytes &&
                      cache->bytes[chunk->spec.tier] <= cache->limit_bytes - bytes));
    if (room) {
        cache->entries[cache->count++] = *chunk;
        cache->bytes[chunk->spec.tier] += bytes;
    }
    gvmi_unlock(&cache->lock);
    if (room && (later || chunk->spec.tier == GVM_TIER_DEVICE))
        gvmi_idle_wake(&cache->idle, chunk->since_ns + (later ? LATER_NS : KEEP_NS));
    return room;
}

/* Gives one entry to the driver, without the lock meanwhile. */
static void release_entry_locked(gvmi_chunk_cache *cache, size_t index)
{
    const free_chunk taken = remove_entry_locked(cache, index);
    leaving_chunk leaving = {.number = ++cache->leaving_number, .bytes = taken.spec.bytes};

    TAILQ_INSERT_TAIL(&cache->leaving, &leaving, entry);
    gvmi_unlock(&cache->lock);
    gvmi_cu->cuMemRelease(taken.handle);
    gvmi_lock(&cache->lock);
    TAILQ_REMOVE(&cache->leaving, &leaving, entry);
    pthread_cond_broadcast(&cache->left);
}

/* Is one of the first so many still on its way? */
static bool is_leaving_locked(const gvmi_chunk_cache *cache, uint64_t number)
{
    const leaving_chunk *first = TAILQ_FIRST(&cache->leaving);

    return first != NULL && first->number <= number;
}

static uint64_t entries_bytes_locked(const gvmi_chunk_cache *cache)
{
    return cache->bytes[GVM_TIER_DEVICE] + cache->bytes[GVM_TIER_HOST];
}

void gvmi_chunk_cache_trim(gvmi_chunk_cache *cache, uint64_t keep_bytes)
{
    uint64_t number;

    gvmi_lock(&cache->lock);
    number = cache->leaving_number;
    while (entries_bytes_locked(cache) > keep_bytes)
        release_entry_locked(cache, cache->count - 1);
    while (is_leaving_locked(cache, number))
        pthread_cond_wait(&cache->left, &cache->lock.mutex);
    gvmi_unlock(&cache->lock);
}

/* Of a tier beyond its limit the largest entry, since small ones serve many; CACHE_ENTRIES_MAX: none. */
static size_t find_beyond_locked(const gvmi_chunk_cache *cache)
{
    size_t chosen = CACHE_ENTRIES_MAX;

    for (size_t i = 0; i < cache->count; i++)
        if (cache->bytes[cache->entries[i].spec.tier] > cache->limit_bytes &&
            (chosen == CACHE_ENTRIES_MAX ||
             cache->entries[i].spec.bytes >= cache->entries[chosen].spec.bytes))
            chosen = i;
    return chosen;
}

/* Of device memory the entry that has been here longest, or CACHE_ENTRIES_MAX. */
static size_t find_oldest_locked(const gvmi_chunk_cache *cache)
{
    size_t chosen = CACHE_ENTRIES_MAX;

    for (size_t i = 0; i < cache->count; i++)
        if (cache->entries[i].spec.tier == GVM_TIER_DEVICE &&
            (chosen == CACHE_ENTRIES_MAX || cache->entries[i].since_ns < cache->entries[chosen].since_ns))
            chosen = i;
    return chosen;
}

/* One entry for the driver. */
static int64_t decay_chunk_cache(gvmi_idle *idle, int64_t now_ns)
{
    gvmi_chunk_cache *cache = (gvmi_chunk_cache *)idle;
    int64_t next_ns = now_ns;
    size_t chosen;

    gvmi_lock(&cache->lock);
    chosen = find_beyond_locked(cache);
    if (chosen == CACHE_ENTRIES_MAX) {
        chosen = find_oldest_locked(cache);
        next_ns = chosen < CACHE_ENTRIES_MAX ? cache->entries[chosen].since_ns + KEEP_NS
                                             : GVMI_NEVER_NS;
    }
    if (next_ns <= now_ns)
        release_entry_locked(cache, chosen);
    gvmi_unlock(&cache->lock);
    return next_ns;
}

static void flush_chunk_cache(gvmi_idle *idle)
{
    gvmi_chunk_cache_trim((gvmi_chunk_cache *)idle, 0);
}

uint64_t gvmi_chunk_cache_bytes(gvmi_chunk_cache *cache)
{
    const leaving_chunk *leaving;
    uint64_t bytes;

    gvmi_lock(&cache->lock);
    bytes = entries_bytes_locked(cache);
    TAILQ_FOREACH(leaving, &cache->leaving, entry)
    bytes += leaving->bytes;
    gvmi_unlock(&cache->lock);
    return bytes;
}

gvm_status gvmi_chunk_cache_create(gvm_device *device, gvmi_chunk_cache **out)
{
    static const gvmi_idle_calls calls = {.decay = decay_chunk_cache, .flush = flush_chunk_cache};
    uint64_t limit_bytes;
    gvm_status status = gvmi_option_size(GVMI_OPTION_GVMEM_CACHE, &limit_bytes);
    gvmi_chunk_cache *cache;

    if (status != GVM_OK)
        return status;
    cache = calloc(1, sizeof *cache);
    if (cache == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a chunk cache");
    gvmi_mutex_init(&cache->lock, GVMI_RANK_DEVICE);
    pthread_cond_init(&cache->left, NULL);
    TAILQ_INIT(&cache->leaving);
    cache->limit_bytes = limit_bytes;
    gvmi_idle_join(device, &cache->idle, &calls);
    *out = cache;
    return GVM_OK;
}

void gvmi_chunk_cache_destroy(gvmi_chunk_cache *cache)
{
    gvmi_idle_leave(&cache->idle);
    gvmi_chunk_cache_trim(cache, 0);
    pthread_cond_destroy(&cache->left);
    gvmi_mutex_destroy(&cache->lock);
    free(cache);
}

/* Says how much was wanted and how much there is. */
static gvm_status fail_full(const gvm_device *device, gvm_tier tier, uint64_t bytes, CUresult result)
{
    char wanted[32], left[32];

    gvmi_size_text(bytes, wanted);
    if (tier == GVM_TIER_HOST)
        return gvmi_driver_fail_as(GVM_E_NOMEM, result, "cuMemCreate",
                                   "no %s of pinned host memory left", wanted);
    return gvmi_driver_fail(result, "cuMemCreate",
                            "device %d has no %s left for a chunk: %s are free; free memory there, "
                            "move buffers to the host tier, or use smaller chunks",
                            device->info.ordinal, wanted,
                            gvmi_size_text(gvmi_device_free_bytes(device), left));
}

gvm_status gvmi_chunk_create(gvm_device *device, const gvmi_chunk_spec *spec,
                             CUmemGenericAllocationHandle *out)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = spec->shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                : CU_MEM_HANDLE_TYPE_NONE,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->info.ordinal},
        .allocFlags = {.gpuDirectRDMACapable = spec->tier == GVM_TIER_DEVICE && device->rdma},
    };
    CUresult result;

    GVM_ASSERT(spec->tier == GVM_TIER_DEVICE || spec->tier == GVM_TIER_HOST);
    if (spec->tier == GVM_TIER_HOST) {
        prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        prop.location.id = device->host_numa_id;
    }
    if (cache_take(device->cache, spec, out))
        return GVM_OK;
    result = gvmi_cu->cuMemCreate(out, spec->bytes, &prop, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* with an empty cache, too: it may have been full just now */
        gvmi_chunk_cache_trim(device->cache, 0);
        result = gvmi_cu->cuMemCreate(out, spec->bytes, &prop, 0);
    }
    if (result == CUDA_SUCCESS)
        return GVM_OK;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return fail_full(device, (gvm_tier)spec->tier, spec->bytes, result);
    return gvmi_driver_fail(result, "cuMemCreate", "cannot make a chunk on device %d",
                            device->info.ordinal);
}

CUresult gvmi_device_alloc(const gvm_device *device, CUdeviceptr *out, size_t bytes)
{
    CUresult result = gvmi_cu->cuMemAlloc(out, bytes);

    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    gvmi_chunk_cache_trim(device->cache, 0);
    return gvmi_cu->cuMemAlloc(out, bytes);
}

void gvmi_chunk_owner_end(gvm_device *device, uint64_t owner)
{
    gvmi_chunk_cache *cache = device->cache;

    if (owner == GVMI_OWNER_ANY)
        return;
    gvmi_lock(&cache->lock);
    /* From the end, anew after each: others may change the entries while the lock is released. */
    for (size_t i = cache->count; i-- > 0;) {
        gvmi_chunk_spec *spec = &cache->entries[i].spec;

        if (spec->owner != owner)
            continue;
        spec->owner = GVMI_OWNER_ANY;
        if (spec->tier == GVM_TIER_DEVICE) {
            release_entry_locked(cache, i);
            i = cache->count;
        }
    }
    gvmi_unlock(&cache->lock);
}

void gvmi_chunk_release(gvm_device *device, const gvmi_chunk_spec *spec, gvmi_release how,
                        CUmemGenericAllocationHandle handle)
{
    const bool later = how == GVMI_RELEASE_LATER || how == GVMI_RELEASE_UNUSED;
    free_chunk chunk = {.handle = handle, .spec = *spec};

    /* What is never exported may have had a chunk with others' bytes. */
    if (how == GVMI_RELEASE_UNUSED && spec->owner != GVMI_OWNER_ANY)
        chunk.spec.owner = GVMI_OWNER_NONE;
    if (how == GVMI_RELEASE_NOW || !cache_put(device->cache, &chunk, later))
        gvmi_cu->cuMemRelease(handle);
}
