/* gvmem/device/detail/region_tlb.h - the lines in shared memory of a gvm_region_tlb; for gvmem/device/region.h alone.
 *
 * A line's key is its number of maps, above it how often it was filled, and above that the number of its region, plus 1. It is
 * changed by compare-and-swap. A warp reads a line's word before it adds a map: if the key has not changed by then, the word is the region's. (After
 * it another warp may take back the map, whose own then takes its place, and the line be filled for another region.) A line with a
 * region has one reference in the table, from when it was filled until it is filled again or the TLB ends. A map that finds no line has a
 * reference of its own. An unmap takes back a map of a line if one has the region mapped, else a reference. Which of them that is does not matter: the
 * maps of a block are as many as its lines' and those without a line, so while there is one the table has a reference.
 *
 * That no line has the region mapped must be true at one time, and the lanes look at the lines at different times: maps may
 * move to a line that was seen and from one that was not. A warp that takes back a map of a line adds to unmaps before: if that has not
 * changed since before the look, there was such a time, since of the maps there were, the caller's is the one that nobody else takes back.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_TLB_H
#define GVMEM_DEVICE_DETAIL_REGION_TLB_H

#include <gvmem/region_view.h>

#ifdef GVM_KERNEL

#define GVM_REGION_LINE_MAPS 0xffffu
#define GVM_REGION_LINE_FILL (1u << 16)

/* fills: with other bits of a key, which do not count. */
GVM_DEVICE uint64_t gvm_region_line_key(uint32_t region, uint64_t fills, uint32_t maps)
{
    return ((uint64_t)region + 1) << 32 | ((uint32_t)fills & ~GVM_REGION_LINE_MAPS) | maps;
}

GVM_DEVICE uint32_t gvm_region_line_maps(uint64_t key)
{
    return (uint32_t)key & GVM_REGION_LINE_MAPS;
}

/* GVM_REGION_NONE: no region. */
GVM_DEVICE uint32_t gvm_region_line_region(uint64_t key)
{
    return (uint32_t)(key >> 32) - 1;
}

/* The key of a line that a warp is filling: of a region that there cannot be, mapped. */
#define GVM_REGION_LINE_FILLING gvm_region_line_key(GVM_REGION_NONE - 1, 0, 1)

GVM_DEVICE void gvm_region_tlb_begin(gvm_region_tlb *tlb, const gvm_region_view *view,
                                     gvm_region_line *lines, uint32_t count)
{
    uint32_t i;

    if (gvm_thread() == 0) {
        tlb->view = view;
        tlb->lines = lines;
        tlb->count = count;
        gvm_store_release_u64(&tlb->unmaps, 0);
    }
    for (i = gvm_thread(); i < count; i += gvm_block_threads())
        gvm_store_release_u64(&lines[i].key, 0);
    gvm_block_sync();
}

GVM_DEVICE void gvm_region_tlb_end(gvm_region_tlb *tlb)
{
    uint32_t i, region;

    gvm_block_sync();
    for (i = gvm_thread(); i < tlb->count; i += gvm_block_threads()) {
        region = gvm_region_line_region(gvm_load_acquire_u64(&tlb->lines[i].key));
        if (region != GVM_REGION_NONE)
            gvm_region_drop(tlb->view, region, 1);
        gvm_store_release_u64(&tlb->lines[i].key, 0);
    }
    gvm_block_sync();
}

/* What the lanes of a warp look for. */
enum { GVM_REGION_LINE_OF, GVM_REGION_LINE_MAPPED, GVM_REGION_LINE_IDLE };

GVM_DEVICE int gvm_region_line_is(uint64_t key, uint32_t region, uint32_t what)
{
    return what == GVM_REGION_LINE_IDLE
               ? gvm_region_line_maps(key) == 0
               : gvm_region_line_region(key) == region &&
                     (what == GVM_REGION_LINE_OF || gvm_region_line_maps(key) != 0);
}

/* The warp looks for a line: of the region, with or without maps, or any without. Returns its number and key, or count. */
GVM_DEVICE_RARE uint32_t gvm_region_find_line(const gvm_region_tlb *tlb, uint32_t region,
                                              uint32_t what, uint64_t *key)
{
    uint32_t i, hits, at;
    uint64_t seen;

    GVM_NO_UNROLL
    for (i = 0; i < tlb->count; i += gvm_warp_size()) {
        at = i + gvm_lane();
        seen = at < tlb->count ? gvm_load_acquire_u64(&tlb->lines[at].key) : GVM_REGION_LINE_FILLING;
        hits = gvm_warp_ballot(~0u, gvm_region_line_is(seen, region, what));
        if (hits != 0) {
            *key = gvm_warp_get_u64(seen, gvm_warp_first(hits));
            return i + gvm_warp_first(hits);
        }
    }
    return tlb->count;
}

/* The leader takes a line to fill it, adds a map, or takes one back, if the key is still that. */
GVM_DEVICE int gvm_region_take_line(gvm_region_line *line, uint64_t key)
{
    uint64_t taken = 0;

    if (gvm_lane() == 0)
        taken = gvm_atomic_cas_acquire_u64_block(&line->key, key, GVM_REGION_LINE_FILLING) == key;
    return gvm_region_tell(GVM_REGION_BY_WARP, taken) != 0;
}

/* The line's word, or 0. */
GVM_DEVICE uint64_t gvm_region_add_map(gvm_region_line *line, uint64_t key)
{
    uint64_t word = 0;

    if (gvm_lane() == 0 && gvm_load_acquire_u64(&line->key) == key) {
        word = gvm_load_acquire_u64(&line->word);
        if (gvm_atomic_cas_acquire_u64_block(&line->key, key, key + 1) != key)
            word = 0;
    }
    return gvm_region_tell(GVM_REGION_BY_WARP, word);
}

GVM_DEVICE int gvm_region_release_line(gvm_region_line *line, uint64_t key)
{
    uint64_t released = 0;

    if (gvm_lane() == 0)
        released = gvm_atomic_cas_release_u64_block(&line->key, key, key - 1) == key;
    return gvm_region_tell(GVM_REGION_BY_WARP, released) != 0;
}

/* gvm_region_map_warp() and _unmap_warp() for functions that are called by GVM_FAR themselves: with another such call in them the
 * compiler would take them for recursive. */
GVM_DEVICE_RARE uint64_t gvm_region_map_near(const gvm_region_view *view, uint32_t region,
                                             uint32_t access)
{
    uint64_t word = 0;

    if (region >= view->count)
        return gvm_lane() == 0 ? gvm_region_refuse(view->table, region) : 0;
    if (gvm_lane() == 0)
        word = gvm_atomic_add_acquire_u64((uint64_t *)(uintptr_t)view->words + region,
                                          GVM_REGION_REFERENCE + GVM_REGION_USE);
    word = gvm_region_tell(GVM_REGION_BY_WARP, word);
    return gvm_region_is_hit(word, access)
               ? word
               : gvm_region_map_slowly_warp(view->table, region, access, word);
}

GVM_DEVICE_RARE void gvm_region_unmap_near(const gvm_region_view *view, uint32_t region)
{
    gvm_warp_sync();
    if (gvm_lane() != 0)
        return;
    if (region >= view->count)
        (void)gvm_region_refuse(view->table, region);
    else if ((view->flags & GVM_REGION_VIEW_CHECKED) != 0)
        gvm_region_drop_checked(view->table, region, 1);
    else
        gvm_add_release_u64((uint64_t *)(uintptr_t)view->words + region, 0 - GVM_REGION_REFERENCE);
}

/* The warp is the one that fills the line: what was there is unmapped, the region mapped. */
GVM_DEVICE uint64_t gvm_region_fill_line(const gvm_region_view *view, gvm_region_line *line,
                                         uint64_t key, uint32_t region, uint32_t access)
{
    uint64_t word;

    if (gvm_region_line_region(key) != GVM_REGION_NONE)
        gvm_region_unmap_near(view, gvm_region_line_region(key));
    word = gvm_region_map_near(view, region, access);
    word &= GVM_REGION_RESIDENT | GVM_REGION_REMOTE | GVM_REGION_SLOT_MASK;
    if (gvm_lane() == 0) {
        gvm_store_release_u64(&line->word, word | access);
        gvm_store_release_u64(&line->key,
                              word != 0 ? gvm_region_line_key(region, key + GVM_REGION_LINE_FILL, 1)
                                        : gvm_region_line_key(GVM_REGION_NONE, key, 0));
    }
    gvm_warp_sync();
    return word;
}

/* How often maps of lines were taken back; to all lanes the same. */
GVM_DEVICE uint64_t gvm_region_tlb_unmaps(const gvm_region_tlb *tlb)
{
    uint64_t unmaps = 0;

    if (gvm_lane() == 0)
        unmaps = gvm_load_acquire_u64(&tlb->unmaps);
    return gvm_region_tell(GVM_REGION_BY_WARP, unmaps);
}

/* Takes back a map of a line, or a reference. */
GVM_DEVICE_RARE void gvm_region_tlb_unmap_as(gvm_region_tlb *tlb, uint32_t region)
{
    uint64_t key = 0, unmaps;
    uint32_t line;

    gvm_warp_sync();
    while (region < tlb->view->count) { /* a larger number may be that of a line that is being filled */
        unmaps = gvm_region_tlb_unmaps(tlb);
        line = gvm_region_find_line(tlb, region, GVM_REGION_LINE_MAPPED, &key);
        if (line == tlb->count && gvm_region_tlb_unmaps(tlb) == unmaps)
            break;
        if (line == tlb->count)
            continue;
        if (gvm_lane() == 0)
            gvm_add_release_u64_block(&tlb->unmaps, 1);
        if (gvm_region_release_line(&tlb->lines[line], key))
            return;
    }
    gvm_region_unmap_near(tlb->view, region);
}

/* A line that has the region, for what is wanted; its word, or 0. */
GVM_DEVICE uint64_t gvm_region_enter_line(gvm_region_tlb *tlb, uint32_t region, uint32_t access)
{
    uint64_t key = 0, word;
    uint32_t line;

    for (;;) {
        line = gvm_region_find_line(tlb, region, GVM_REGION_LINE_OF, &key);
        if (line == tlb->count || gvm_region_line_maps(key) == GVM_REGION_LINE_MAPS)
            return 0;
        word = gvm_region_add_map(&tlb->lines[line], key);
        if (word == 0)
            continue;
        if ((access & ~word & GVM_REGION_WRITE) == 0)
            return word;
        gvm_region_tlb_unmap_as(tlb, region);
        return 0;
    }
}

GVM_DEVICE_RARE uint64_t gvm_region_tlb_map_as(gvm_region_tlb *tlb, uint32_t region, uint32_t access)
{
    uint64_t key = 0, word = 0;
    uint32_t line;

    if (region < tlb->view->count) {
        word = gvm_region_enter_line(tlb, region, access);
        if (word != 0)
            return word;
        line = gvm_region_find_line(tlb, region, GVM_REGION_LINE_IDLE, &key);
        if (line < tlb->count && gvm_region_take_line(&tlb->lines[line], key))
            return gvm_region_fill_line(tlb->view, &tlb->lines[line], key, region, access);
    }
    return gvm_region_map_near(tlb->view, region, access);
}

GVM_DEVICE void *gvm_region_tlb_map_warp(gvm_region_tlb *tlb, uint32_t region, uint32_t access)
{
    return gvm_region_pointer(tlb->view, GVM_FAR(gvm_region_tlb_map_as)(tlb, region, access));
}

GVM_DEVICE void gvm_region_tlb_unmap_warp(gvm_region_tlb *tlb, uint32_t region)
{
    GVM_FAR(gvm_region_tlb_unmap_as)(tlb, region);
}

#endif /* GVM_KERNEL */
#endif
