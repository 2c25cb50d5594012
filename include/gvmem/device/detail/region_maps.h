/* gvmem/device/detail/region_maps.h - maps by lanes, of lists, in two steps, and ahead of use; for gvmem/device/region.h alone.
 *
 * Each is made of the maps in gvmem/device/detail/region.h, and counts the same references.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_MAPS_H
#define GVMEM_DEVICE_DETAIL_REGION_MAPS_H

#include <gvmem/device/detail/region.h>

#ifdef GVM_KERNEL

/* ---- by lanes */

/* Two copies at the same time, as those of small regions have few loads each. */
GVM_DEVICE_RARE void gvm_region_copy_two(const gvm_region_table *t, uint64_t job, uint64_t other)
{
    const uint64_t skip = gvm_lane() * 16, base = t->address + skip;
    uint64_t from = base + gvm_region_job_from(job) * t->stride_bytes,
             to = base + gvm_region_job_to(job) * t->stride_bytes,
             other_from = base + gvm_region_job_from(other) * t->stride_bytes,
             other_to = base + gvm_region_job_to(other) * t->stride_bytes, a, b, c, d;
    int32_t left = (int32_t)(t->stride_bytes - skip);

    GVM_NO_UNROLL
    for (; left > 0; left -= 16 * (int32_t)gvm_warp_size()) {
        gvm_stream_load_u64x2((const void *)(uintptr_t)from, &a, &b);
        gvm_stream_load_u64x2((const void *)(uintptr_t)other_from, &c, &d);
        gvm_stream_u64x2((void *)(uintptr_t)to, a, b);
        gvm_stream_u64x2((void *)(uintptr_t)other_to, c, d);
        from += 16 * gvm_warp_size();
        to += 16 * gvm_warp_size();
        other_from += 16 * gvm_warp_size();
        other_to += 16 * gvm_warp_size();
    }
}

#define GVM_REGION_SMALL 2048 /* bytes: from here on a warp has enough loads for one copy */

/* What the lanes of a set have to do is done by the whole warp. */
GVM_DEVICE_RARE void gvm_region_do_for_lanes(gvm_region_table *t, uint64_t job, uint32_t set)
{
    uint64_t first, second;

    gvm_warp_sync();
    GVM_NO_UNROLL
    while (set != 0) {
        first = gvm_warp_get_u64(job, gvm_warp_first(set));
        set &= set - 1;
        second = set != 0 ? gvm_warp_get_u64(job, gvm_warp_first(set)) : 0;
        if ((first & second & GVM_REGION_COPY) != 0 && t->stride_bytes < GVM_REGION_SMALL &&
            t->columns == 0 && t->sums == 0) {
            gvm_region_copy_two(t, first, second);
            set &= set - 1;
        } else {
            gvm_region_do(t, first, GVM_REGION_BY_WARP);
        }
    }
    gvm_warp_sync();
}

/* Each of a warp's lanes that misses maps a region, all at the same time; no two the same. count: the references that it has
 * taken, 0 for lanes that do not miss. It maps with one of them, so that a region that is used at its home is seen to have no other,
 * and takes the others again. word: as before it took them. Returns what gvm_region_map_slowly() does. */
GVM_DEVICE_RARE uint64_t gvm_region_map_missing(uint64_t table, uint32_t region, uint32_t access,
                                                uint32_t count, uint64_t word)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)table;
    uint64_t job = count != 0 ? 0 : GVM_REGION_DONE;
    gvm_region_search s;
    uint32_t set;

    if (count > 1)
        gvm_add_release_u64(gvm_region_word(t, region), 0 - (count - 1) * GVM_REGION_REFERENCE);
    gvm_region_begin_map(&s, region, access, word);
    if (count != 0 && !gvm_region_is_whole(GVM_REGION_BY_WARP))
        job = gvm_region_fail(t, region, GVM_REGION_NOT_WHOLE);
    GVM_NO_UNROLL
    while (gvm_warp_ballot(~0u, (job & GVM_REGION_DONE) == 0) != 0) {
        if ((job & GVM_REGION_DONE) == 0)
            job = gvm_region_step(t, &s);
        set = gvm_warp_ballot(~0u, job != 0 && (job & GVM_REGION_DONE) == 0);
        if (set != 0)
            gvm_region_do_for_lanes(t, job, set);
    }
    if (count > 1 && job != GVM_REGION_DONE)
        gvm_atomic_add_u64(gvm_region_word(t, s.region), (count - 1) * GVM_REGION_REFERENCE);
    return job & ~GVM_REGION_DONE;
}

GVM_DEVICE void *gvm_region_map_lanes(const gvm_region_view *view, uint32_t region, uint32_t access)
{
    const uint32_t peers = gvm_warp_match_u32(~0u, region), leader = gvm_warp_first(peers);
    const uint32_t read = gvm_warp_ballot(~0u, (access & GVM_REGION_READ) != 0) & peers;
    const uint32_t written = gvm_warp_ballot(~0u, (access & GVM_REGION_WRITE) != 0) & peers;
    const int leads = gvm_lane() == leader, exists = region < view->count;
    uint64_t word = 0;
    int misses;

    access = (read != 0 ? GVM_REGION_READ : 0) | (written != 0 ? GVM_REGION_WRITE : 0);
    if (leads && exists)
        word = gvm_atomic_add_acquire_u64((uint64_t *)(uintptr_t)view->words + region,
                                          gvm_count_ones(peers) * GVM_REGION_REFERENCE + GVM_REGION_USE);
    else if (leads && region != GVM_REGION_NONE)
        (void)GVM_FAR(gvm_region_refuse)(view->table, region);
    misses = leads && exists && !gvm_region_is_hit(word, access);
    if (gvm_warp_ballot(~0u, misses) != 0) {
        const uint64_t found = GVM_FAR(gvm_region_map_missing)(
            view->table, region, access, misses ? gvm_count_ones(peers) : 0, word);

        word = misses ? found : word;
    }
    word = gvm_warp_get_u64(word, leader);
    gvm_warp_sync();
    return exists ? gvm_region_pointer(view, word) : (void *)0;
}

GVM_DEVICE void gvm_region_unmap_lanes(const gvm_region_view *view, uint32_t region)
{
    uint32_t peers;

    gvm_warp_sync();
    peers = gvm_warp_match_u32(~0u, region);
    if (gvm_lane() == gvm_warp_first(peers) && region != GVM_REGION_NONE)
        gvm_region_drop(view, region, gvm_count_ones(peers));
}

/* ---- lists */

GVM_DEVICE int gvm_region_map_many_by(const gvm_region_view *view, const uint32_t *regions,
                                      uint32_t count, uint32_t access, void **pointers, uint32_t by)
{
    int all = 1;
    uint32_t i, k;

    for (i = 0; i < count && all; i++) {
        pointers[i] = (void *)0;
        if (regions[i] == GVM_REGION_NONE)
            continue;
        pointers[i] = gvm_region_pointer(view, gvm_region_map_as(view, regions[i], access, by));
        all = pointers[i] != (void *)0;
    }
    for (k = 0; k < count && !all; k++) {
        if (k < i && pointers[k] != (void *)0)
            gvm_region_unmap_as(view, regions[k], by);
        pointers[k] = (void *)0;
    }
    return all;
}

GVM_DEVICE int gvm_region_map_many_warp(const gvm_region_view *view, const uint32_t *regions,
                                        uint32_t count, uint32_t access, void **pointers)
{
    return gvm_region_map_many_by(view, regions, count, access, pointers, GVM_REGION_BY_WARP);
}

GVM_DEVICE int gvm_region_map_many_block(const gvm_region_view *view, const uint32_t *regions,
                                         uint32_t count, uint32_t access, void **pointers)
{
    return gvm_region_map_many_by(view, regions, count, access, pointers, GVM_REGION_BY_BLOCK);
}

/* ---- in two steps */

GVM_DEVICE void *gvm_region_request_by(const gvm_region_view *view, uint32_t region,
                                       uint32_t access, gvm_region_request *request, uint32_t by)
{
    uint64_t word = gvm_region_count_map(view, region, by);

    request->region = GVM_REGION_NONE;
    request->access = access;
    request->found = 0;
    if (region < view->count && gvm_region_is_hit(word, access))
        request->found = word & (GVM_REGION_RESIDENT | GVM_REGION_SLOT_MASK);
    else if (region < view->count)
        request->region = region;
    return gvm_region_pointer(view, request->found);
}

GVM_DEVICE void *gvm_region_wait_by(const gvm_region_view *view, gvm_region_request *request,
                                    uint32_t by)
{
    if (request->region != GVM_REGION_NONE)
        request->found = gvm_region_miss(
            view->table, request->region, request->access,
            gvm_load_acquire_u64((const uint64_t *)(uintptr_t)view->words + request->region) -
                GVM_REGION_REFERENCE - GVM_REGION_USE,
            by);
    request->region = GVM_REGION_NONE;
    return gvm_region_pointer(view, request->found);
}

GVM_DEVICE void *gvm_region_request_warp(const gvm_region_view *view, uint32_t region,
                                         uint32_t access, gvm_region_request *request)
{
    return gvm_region_request_by(view, region, access, request, GVM_REGION_BY_WARP);
}

GVM_DEVICE void *gvm_region_wait_warp(const gvm_region_view *view, gvm_region_request *request)
{
    return gvm_region_wait_by(view, request, GVM_REGION_BY_WARP);
}

GVM_DEVICE void *gvm_region_request_block(const gvm_region_view *view, uint32_t region,
                                          uint32_t access, gvm_region_request *request)
{
    return gvm_region_request_by(view, region, access, request, GVM_REGION_BY_BLOCK);
}

GVM_DEVICE void *gvm_region_wait_block(const gvm_region_view *view, gvm_region_request *request)
{
    return gvm_region_wait_by(view, request, GVM_REGION_BY_BLOCK);
}

/* ---- ahead of use */

/* Is there anything to bring? Not what is in a frame, is on its way to one, or does not exist. */
GVM_DEVICE int gvm_region_is_absent(const gvm_region_view *view, uint32_t region)
{
    const gvm_region_table *t = (const gvm_region_table *)(uintptr_t)view->table;
    const uint64_t word = region < view->count ? gvm_load_acquire_u64(gvm_region_word(t, region)) : 0;

    if (region >= view->count || (word & (GVM_REGION_BUSY | GVM_REGION_CROWDED)) != 0)
        return 0;
    return (word & (GVM_REGION_RESIDENT | GVM_REGION_REMOTE)) != GVM_REGION_RESIDENT &&
           (gvm_load_acquire_u32(&gvm_region_record_of(t, region)->flags) & GVM_REGION_LIVE) != 0;
}

/* A second use is counted after the fetch, so that LIRS does not have the region on trial: others that come before it is used would evict it. */
GVM_DEVICE void gvm_region_prefetch_by(const gvm_region_view *view, uint32_t region, uint32_t by)
{
    uint64_t absent = 0;

    if (gvm_region_rank(by) == 0)
        absent = (uint64_t)gvm_region_is_absent(view, region);
    if (gvm_region_tell(by, absent) == 0 ||
        (gvm_region_map_as(view, region, GVM_REGION_READ, by) & GVM_REGION_RESIDENT) == 0)
        return;
    if (gvm_region_rank(by) == 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)view->words + region, GVM_REGION_USE);
    gvm_region_unmap_as(view, region, by);
}

GVM_DEVICE void gvm_region_prefetch_warp(const gvm_region_view *view, uint32_t region)
{
    gvm_region_prefetch_by(view, region, GVM_REGION_BY_WARP);
}

GVM_DEVICE void gvm_region_prefetch_block(const gvm_region_view *view, uint32_t region)
{
    gvm_region_prefetch_by(view, region, GVM_REGION_BY_BLOCK);
}

#endif /* GVM_KERNEL */
#endif
