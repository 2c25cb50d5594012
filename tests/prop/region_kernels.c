/* The kernels of region_ops: threads, warps or blocks map regions at random, check each word, and write some. */
#include <gvmem/device/region.h>

#include "tests/prop/region_kernels.h"

GVM_DEVICE uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

GVM_DEVICE void *map_by(const gvm_region_view *view, uint32_t region, uint32_t access, uint32_t by)
{
    return by == GVM_REGION_BY_THREAD ? gvm_region_map(view, region, access)
           : by == GVM_REGION_BY_WARP ? gvm_region_map_warp(view, region, access)
                                      : gvm_region_map_block(view, region, access);
}

GVM_DEVICE void unmap_by(const gvm_region_view *view, uint32_t region, uint32_t by)
{
    if (by == GVM_REGION_BY_THREAD)
        gvm_region_unmap(view, region);
    else if (by == GVM_REGION_BY_WARP)
        gvm_region_unmap_warp(view, region);
    else
        gvm_region_unmap_block(view, region);
}

GVM_DEVICE void complain(const region_params *p, uint32_t region, uint64_t w, uint64_t value)
{
    uint64_t *wrong = (uint64_t *)(uintptr_t)p->wrong;

    if (gvm_atomic_add_u64(wrong, 1) == 0) {
        wrong[1] = region;
        wrong[2] = w;
        wrong[3] = value;
    }
}

/* Each word says where it is, and, as those who write it count up under a lease that others may have too, at most that count. */
GVM_DEVICE void use_shared(const region_params *p, uint32_t region, uint64_t *words, int writes)
{
    const uint64_t count = p->shared.region_bytes / 8;
    uint64_t w, value;

    for (w = gvm_region_rank(p->by); w < count; w += gvm_region_ranks(p->by)) {
        value = writes ? gvm_atomic_add_u64(&words[w], 1) : gvm_load_consume_u64(&words[w]);
        if (value - REGION_COUNT(value) != REGION_WORD(region, w))
            complain(p, region, w, value);
    }
    if (writes && gvm_region_rank(p->by) == 0)
        gvm_atomic_add_u32((uint32_t *)(uintptr_t)p->writes + region, 1);
}

/* A region of this group alone: what it wrote last is there; then it writes another value, all of it. */
GVM_DEVICE void use_own(const region_params *p, uint32_t region, uint32_t value)
{
    const uint64_t count = p->own.region_bytes / 8;
    uint32_t *last = (uint32_t *)(uintptr_t)p->values + region;
    uint64_t *words, w;

    words = (uint64_t *)map_by(&p->own, region, GVM_REGION_READ, p->by);
    for (w = gvm_region_rank(p->by); words != (uint64_t *)0 && w < count; w += gvm_region_ranks(p->by))
        if (words[w] != (REGION_WORD(region, w) | *last))
            complain(p, region, w, words[w]);
    if (words != (uint64_t *)0)
        unmap_by(&p->own, region, p->by);
    words = (uint64_t *)map_by(&p->own, region, GVM_REGION_WRITE, p->by);
    for (w = gvm_region_rank(p->by); words != (uint64_t *)0 && w < count; w += gvm_region_ranks(p->by))
        words[w] = REGION_WORD(region, w) | value;
    if (words != (uint64_t *)0 && gvm_region_rank(p->by) == 0)
        *last = value;
    if (words != (uint64_t *)0)
        unmap_by(&p->own, region, p->by);
}

/* Half of the maps are of an eighth of the regions. */
GVM_DEVICE uint32_t draw_region(uint64_t number, uint32_t count)
{
    const uint32_t few = count / 8 + 1;

    return (uint32_t)((number & 1) != 0 ? (number >> 8) % few : (number >> 8) % count);
}

/* A map in two steps; between them the group maps another region. */
GVM_DEVICE void *map_in_steps(const region_params *p, uint32_t region, uint32_t access)
{
    const uint32_t other = (region + 1) % p->shared.count;
    gvm_region_request request;
    void *found;

    if (p->by == GVM_REGION_BY_WARP)
        found = gvm_region_request_warp(&p->shared, region, access, &request);
    else
        found = gvm_region_request_block(&p->shared, region, access, &request);
    if (map_by(&p->shared, other, GVM_REGION_READ, p->by) == (void *)0)
        complain(p, other, 1, 0);
    unmap_by(&p->shared, other, p->by);
    if (found != (void *)0)
        return found;
    return p->by == GVM_REGION_BY_WARP ? gvm_region_wait_warp(&p->shared, &request)
                                       : gvm_region_wait_block(&p->shared, &request);
}

GVM_DEVICE int has_lines(const region_params *p)
{
    return p->how == HOW_LINES && p->by == GVM_REGION_BY_WARP;
}

GVM_DEVICE void *map_shared(const region_params *p, gvm_region_tlb *tlb, uint32_t region, uint32_t access)
{
    if (has_lines(p))
        return gvm_region_tlb_map_warp(tlb, region, access);
    if (p->how == HOW_PLAIN)
        return map_by(&p->shared, region, access, p->by);
    return p->by == GVM_REGION_BY_THREAD ? gvm_region_map_lanes(&p->shared, region, access)
                                         : map_in_steps(p, region, access);
}

GVM_DEVICE void unmap_shared(const region_params *p, gvm_region_tlb *tlb, uint32_t region)
{
    if (has_lines(p))
        gvm_region_tlb_unmap_warp(tlb, region);
    else if (p->by == GVM_REGION_BY_THREAD && p->how != HOW_PLAIN)
        gvm_region_unmap_lanes(&p->shared, region);
    else
        unmap_by(&p->shared, region, p->by);
}

GVM_DEVICE void prefetch_shared(const region_params *p, uint32_t region)
{
    if (p->by == GVM_REGION_BY_WARP)
        gvm_region_prefetch_warp(&p->shared, region);
    else if (p->by == GVM_REGION_BY_BLOCK)
        gvm_region_prefetch_block(&p->shared, region);
}

/* All but the leader come late to the unmap, and still use the region: it is not unmapped before they come. */
GVM_DEVICE void use_late(const region_params *p, uint32_t region, const uint64_t *words)
{
    const uint64_t w = gvm_region_rank(p->by) % (p->shared.region_bytes / 8);
    uint64_t value;
    int i;

    if (words == (const uint64_t *)0 || gvm_region_rank(p->by) == 0)
        return;
    for (i = 0; i < 3; i++) {
        gvm_pause();
        value = gvm_load_consume_u64(&words[w]);
        if (value - REGION_COUNT(value) != REGION_WORD(region, w))
            complain(p, region, w, value);
    }
}

GVM_DEVICE void map_and_use(const region_params *p, gvm_region_tlb *tlb, const uint32_t *held,
                            uint32_t access, void **found)
{
    uint32_t i;

    if (p->how == HOW_MANY && p->by == GVM_REGION_BY_WARP)
        (void)gvm_region_map_many_warp(&p->shared, held, p->held, access, found);
    else if (p->how == HOW_MANY && p->by == GVM_REGION_BY_BLOCK)
        (void)gvm_region_map_many_block(&p->shared, held, p->held, access, found);
    else
        for (i = 0; i < p->held; i++)
            found[i] = map_shared(p, tlb, held[i], access);
    for (i = 0; i < p->held; i++)
        if (found[i] != (void *)0)
            use_shared(p, held[i], (uint64_t *)found[i], access != GVM_REGION_READ);
        else
            complain(p, held[i], 0, 0);
}

GVM_KERNEL(region_ops, region_params, p)
{
    GVM_SHARED(gvm_region_line, lines, LINES);
    GVM_SHARED(gvm_region_tlb, tlb, 1);
    const uint64_t group = gvm_thread_global() / (p.by == GVM_REGION_BY_THREAD ? 1
                                                  : p.by == GVM_REGION_BY_WARP ? gvm_warp_size()
                                                                               : gvm_block_threads());
    uint32_t held[HELD_MAX], round, i, k;
    void *found[HELD_MAX];
    uint64_t number;

    if (has_lines(&p))
        gvm_region_tlb_begin(tlb, &p.shared, lines, LINES);
    for (round = 0; round < p.rounds; round++) {
        number = mix(p.seed ^ mix(group * 4096 + round));
        if (number % 8 == 0)
            prefetch_shared(&p, draw_region(mix(number), p.shared.count));
        for (i = 0; i < p.held; i++)
            held[i] = draw_region(mix(number + i), p.shared.count);
        map_and_use(&p, tlb, held, (number >> 32 & 3) == 0 ? GVM_REGION_READWRITE : GVM_REGION_READ,
                    found);
        number = mix(p.seed + group * 8191 + round);
        if (group < p.groups)
            use_own(&p, (uint32_t)(group + p.groups * (number % (p.own.count / p.groups))),
                    (uint32_t)(number >> 40) % (1u << REGION_COUNT_BITS));
        for (i = 0; i < p.held; i++) {
            k = (i + round) % p.held;
            use_late(&p, held[k], (const uint64_t *)found[k]);
            unmap_shared(&p, tlb, held[k]);
        }
    }
    if (has_lines(&p))
        gvm_region_tlb_end(tlb);
}
