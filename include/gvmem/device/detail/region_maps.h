/* gvmem/device/detail/region_maps.h - maps by lanes, of lists, in two steps, and ahead of use; for gvmem/device/region.h alone.
 *
 * Each is made of the maps in gvmem/device/detail/region.h, and counts the same references.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_MAPS_H
#define GVMEM_DEVICE_DETAIL_REGION_MAPS_H

#include <gvmem/device/detail/region.h>

#ifdef GVM_KERNEL

/* ---- by lanes */

/* A warp maps a region for which count references are taken: with one of them, so that it is seen to be the only one
 * that uses a region at its home, and then the others. Returns RESIDENT and the slot, or 0 without any. */
GVM_DEVICE_RARE uint64_t gvm_region_map_for_lanes(uint64_t table, uint32_t region, uint32_t access,
                                                  uint32_t count)
{
    const gvm_region_table *t = (const gvm_region_table *)(uintptr_t)table;
    uint64_t word;

    if (gvm_lane() == 0 && count > 1)
        gvm_add_release_u64(gvm_region_word(t, region), 0 - (count - 1) * GVM_REGION_REFERENCE);
    word = gvm_region_map_slowly_warp(table, region, access);
    if (gvm_lane() == 0 && count > 1 && word != 0)
        gvm_atomic_add_u64(gvm_region_word(t, region), (count - 1) * GVM_REGION_REFERENCE);
    gvm_warp_sync();
    return word;
}

/* The regions that missing lanes name, one after the other. peers: the lanes that have this lane's region. */
GVM_DEVICE_RARE uint64_t gvm_region_map_missing(uint64_t table, uint32_t region, uint32_t access,
                                                uint32_t missing, uint32_t peers, uint64_t word)
{
    GVM_NO_UNROLL
    for (; missing != 0; missing &= missing - 1) {
        const uint32_t leader = gvm_warp_first(missing);
        const uint64_t found = gvm_region_map_for_lanes(
            table, gvm_warp_get_u32(region, leader), gvm_warp_get_u32(access, leader),
            gvm_count_ones(gvm_warp_get_u32(peers, leader)));

        if ((peers >> leader & 1) != 0)
            word = found;
    }
    return word;
}

GVM_DEVICE void *gvm_region_map_lanes(const gvm_region_view *view, uint32_t region, uint32_t access)
{
    const uint32_t peers = gvm_warp_match_u32(~0u, region), leader = gvm_warp_first(peers);
    const uint32_t read = gvm_warp_ballot(~0u, (access & GVM_REGION_READ) != 0) & peers;
    const uint32_t written = gvm_warp_ballot(~0u, (access & GVM_REGION_WRITE) != 0) & peers;
    const int exists = region < view->count;
    uint32_t missing;
    uint64_t word = 0;

    access = (read != 0 ? GVM_REGION_READ : 0) | (written != 0 ? GVM_REGION_WRITE : 0);
    if (gvm_lane() == leader && exists)
        word = gvm_atomic_add_acquire_u64((uint64_t *)(uintptr_t)view->words + region,
                                          gvm_count_ones(peers) * GVM_REGION_REFERENCE + GVM_REGION_USE);
    else if (gvm_lane() == leader && region != GVM_REGION_NONE)
        (void)GVM_FAR(gvm_region_refuse)(view->table, region);
    word = gvm_warp_get_u64(word, leader);
    gvm_warp_sync();
    missing = gvm_warp_ballot(~0u, exists && !gvm_region_is_hit(word, access) && gvm_lane() == leader);
    if (missing != 0)
        word = GVM_FAR(gvm_region_map_missing)(view->table, region, access, missing, peers, word);
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
    for (k = 0; k < i && !all; k++) {
        if (pointers[k] != (void *)0)
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
        request->found = gvm_region_miss(view->table, request->region, request->access, by);
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

GVM_DEVICE void gvm_region_prefetch_by(const gvm_region_view *view, uint32_t region, uint32_t by)
{
    uint64_t absent = 0;

    if (gvm_region_rank(by) == 0)
        absent = (uint64_t)gvm_region_is_absent(view, region);
    if (gvm_region_tell(by, absent) != 0 &&
        (gvm_region_map_as(view, region, GVM_REGION_READ, by) & GVM_REGION_RESIDENT) != 0)
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
