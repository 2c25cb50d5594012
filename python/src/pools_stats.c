/* What is told of pools: figures, and their memory block by block. */
#include <stdlib.h>
#include <string.h>

#include "pools_state.h"

typedef struct sums {
    pool_stats *stats;
    int64_t lifetime_peak_bytes;
} sums;

static gvm_status sum_heap(const pool *p, gvm_heap *heap, void *arg)
{
    gvm_heap_info info = {.struct_size = sizeof info};
    sums *s = arg;
    gvm_status status = gvm_heap_get_info(heap, &info);

    (void)p;
    if (status != GVM_OK)
        return status;
    s->stats->held_bytes += (int64_t)info.committed_bytes;
    s->lifetime_peak_bytes += (int64_t)info.committed_peak_bytes;
    s->stats->pending_bytes += (int64_t)info.pending_bytes;
    s->stats->segments += info.segments;
    s->stats->commits += (int64_t)info.commits;
    s->stats->decommits += (int64_t)info.decommits;
    s->stats->retries += (int64_t)info.exhausted;
    s->stats->idle_bytes += (int64_t)info.idle_bytes;
    return GVM_OK;
}

int pools_stats_of(int device, pool_stats *out)
{
    device_state *d = &pools_devices[device];
    sums s = {.stats = out};
    gvm_status status = pools_check_device(device);

    if (status != GVM_OK)
        return (int)status;
    pthread_mutex_lock(&pools_lock);
    *out = d->counted;
    pthread_mutex_unlock(&pools_lock);
    status = pools_for_heaps(device, (pool_id){0, 0}, true, sum_heap, &s);
    pthread_mutex_lock(&pools_lock);
    if (s.lifetime_peak_bytes > d->lifetime_peak_bytes)
        d->held_peak_bytes = s.lifetime_peak_bytes;
    if (out->held_bytes > d->held_peak_bytes)
        d->held_peak_bytes = out->held_bytes;
    out->held_peak_bytes = d->held_peak_bytes;
    pthread_mutex_unlock(&pools_lock);
    return (int)status;
}

int pools_reset_peaks(int device)
{
    pool_stats stats, *counted;
    sums s = {.stats = &stats};
    gvm_status status = pools_check_device(device);

    if (status != GVM_OK)
        return (int)status;
    memset(&stats, 0, sizeof stats);
    status = pools_for_heaps(device, (pool_id){0, 0}, true, sum_heap, &s);
    counted = &pools_devices[device].counted;
    pthread_mutex_lock(&pools_lock);
    for (int size = 0; size < POOLS_SIZES; size++) {
        counted->blocks[size].peak = counted->blocks[size].current;
        counted->bytes[size].peak = counted->bytes[size].current;
        counted->requested_bytes[size].peak = counted->requested_bytes[size].current;
    }
    pools_devices[device].held_peak_bytes = stats.held_bytes;
    pools_devices[device].lifetime_peak_bytes = s.lifetime_peak_bytes;
    pthread_mutex_unlock(&pools_lock);
    return (int)status;
}

static void reset_count(pool_count *count)
{
    count->allocated = count->freed = 0;
}

int pools_reset_counts(int device)
{
    const gvm_status status = pools_check_device(device);
    pool_stats *counted;

    if (status != GVM_OK)
        return (int)status;
    counted = &pools_devices[device].counted;
    pthread_mutex_lock(&pools_lock);
    for (int size = 0; size < POOLS_SIZES; size++) {
        reset_count(&counted->blocks[size]);
        reset_count(&counted->bytes[size]);
        reset_count(&counted->requested_bytes[size]);
    }
    counted->failures = 0;
    pthread_mutex_unlock(&pools_lock);
    return 0;
}

typedef struct walk {
    void (*each)(void *arg, const pool_extent *extent);
    void *arg;
} walk;

static gvm_status walk_heap(const pool *p, gvm_heap *heap, void *arg)
{
    const walk *w = arg;
    gvm_heap_extent *extents = NULL;
    size_t count = 0, capacity;
    gvm_status status;

    do { /* until there is room for all */
        gvm_heap_extent *grown;

        capacity = count + count / 8 + 64;
        grown = realloc(extents, capacity * sizeof *extents);
        if (grown == NULL) {
            free(extents);
            return gvm_error_set(GVM_E_NOMEM, "out of host memory for a list of blocks");
        }
        extents = grown;
        status = gvm_heap_list_extents(heap, capacity, sizeof *extents, extents, &count);
    } while (status == GVM_OK && count > capacity);
    for (size_t i = 0; i < count && status == GVM_OK; i++) {
        const gvm_heap_extent *e = &extents[i];
        const pool_extent extent = {.device = p->device,
                                    .pool = p->id,
                                    .address = e->address,
                                    .range = e->range,
                                    .stream = e->stream,
                                    .bytes = e->len_bytes,
                                    .requested_bytes = e->size_bytes,
                                    .use = (pool_use)e->use};

        w->each(w->arg, &extent);
    }
    free(extents);
    return status;
}

int pools_walk(pool_id id, void (*each)(void *arg, const pool_extent *extent), void *arg)
{
    walk w = {each, arg};
    gvm_status status = pools_check_device(0);

    for (int i = 0; i < DEVICES_MAX && status == GVM_OK; i++)
        if (pools_devices[i].device != NULL)
            status = pools_for_heaps(i, id, true, walk_heap, &w);
    return (int)status;
}
