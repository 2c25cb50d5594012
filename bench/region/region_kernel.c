/* Device code of `gvmem-bench region`: loops that map, fetch and fault, and the same without regions. */
#include <gvmem/device/region.h>

#include "bench/region/region.h"

#define LOADS_AT_ONCE 4 /* of 16 bytes by each thread */

/* ---- groups of threads */

GVM_DEVICE uint64_t group_threads(uint32_t by)
{
    return by == BENCH_BY_BLOCK ? gvm_block_threads() : by == BENCH_BY_WARP ? gvm_warp_size() : 1;
}

GVM_DEVICE uint64_t group_rank(uint32_t by)
{
    return by == BENCH_BY_BLOCK ? gvm_thread() : by == BENCH_BY_WARP ? gvm_lane() : 0;
}

GVM_DEVICE void *map_by(const gvm_region_view *view, uint32_t region, uint32_t access, uint32_t by)
{
    return by == BENCH_BY_BLOCK   ? gvm_region_map_block(view, region, access)
           : by == BENCH_BY_WARP  ? gvm_region_map_warp(view, region, access)
           : by == BENCH_BY_LANES ? gvm_region_map_lanes(view, region, access)
                                  : gvm_region_map(view, region, access);
}

GVM_DEVICE void unmap_by(const gvm_region_view *view, uint32_t region, uint32_t by)
{
    if (by == BENCH_BY_BLOCK)
        gvm_region_unmap_block(view, region);
    else if (by == BENCH_BY_WARP)
        gvm_region_unmap_warp(view, region);
    else if (by == BENCH_BY_LANES)
        gvm_region_unmap_lanes(view, region);
    else
        gvm_region_unmap(view, region);
}

/* ---- numbers, places, patterns */

/* Number i of an order that meets each of total regions once, total being a power of 2. */
GVM_DEVICE uint64_t jump(uint64_t i, uint64_t total)
{
    const uint64_t mask = total - 1;
    uint32_t half = 1;

    while ((1ull << 2 * half) < total)
        half++;
    i = i * 0x9e3779b1u & mask;
    i ^= i >> half;
    return i * 0x85ebca6bu & mask;
}

GVM_DEVICE uint32_t region_at(const bench_region_params *p, uint64_t i)
{
    return p->list != 0 ? ((const uint32_t *)(uintptr_t)p->list)[p->first + i]
                        : (uint32_t)jump((p->first + i) & (p->total - 1), p->total);
}

GVM_DEVICE uint64_t home_of(const gvm_region_view *view, uint32_t region)
{
    return view->address + ((uint64_t)view->home + region) * view->stride_bytes;
}

GVM_DEVICE uint64_t *out_word(uint64_t out, uint32_t which)
{
    return (uint64_t *)(uintptr_t)out + which;
}

/* What threads of a group read: their part of units of 16 bytes, summed. */
GVM_DEVICE uint64_t sum_units(uint64_t address, uint64_t units, uint64_t rank, uint64_t ranks)
{
    uint64_t a[LOADS_AT_ONCE], b[LOADS_AT_ONCE], sum = 0, i, at;
    uint32_t k;

    for (i = rank; i < units; i += ranks * LOADS_AT_ONCE) {
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++) {
            at = i + k * ranks;
            a[k] = b[k] = 0;
            if (at < units)
                gvm_stream_load_u64x2((const void *)(uintptr_t)(address + 16 * at), &a[k], &b[k]);
        }
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++)
            sum += a[k] + b[k];
    }
    return sum;
}

/* A copy of units of 16 bytes by the threads of a group. */
GVM_DEVICE void copy_units(uint64_t to, uint64_t from, uint64_t units, uint64_t rank, uint64_t ranks)
{
    uint64_t a[LOADS_AT_ONCE], b[LOADS_AT_ONCE], i, at;
    uint32_t k;

    for (i = rank; i < units; i += ranks * LOADS_AT_ONCE) {
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++) {
            at = i + k * ranks;
            if (at < units)
                gvm_stream_load_u64x2((const void *)(uintptr_t)(from + 16 * at), &a[k], &b[k]);
        }
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++) {
            at = i + k * ranks;
            if (at < units)
                gvm_stream_u64x2((void *)(uintptr_t)(to + 16 * at), a[k], b[k]);
        }
    }
}

/* Adds to a word what is not there often. */
GVM_DEVICE void count_if(uint64_t out, uint32_t which, int yes)
{
    if (yes)
        gvm_atomic_add_u64(out_word(out, which), 1);
}

/* ---- filling homes */

GVM_KERNEL(region_fill, bench_region_params, p)
{
    const uint64_t units = p.view.stride_bytes / 16, all = units * p.count;
    uint64_t i;

    for (i = gvm_thread_global(); i < all; i += gvm_thread_count()) {
        const uint64_t region = p.first + i / units, w = i % units * 2;

        gvm_stream_u64x2((void *)(uintptr_t)(home_of(&p.view, (uint32_t)region) + 8 * w),
                         BENCH_REGION_WORD(region, w), BENCH_REGION_WORD(region, w + 1));
    }
}

/* ---- maps that hit */

/* One round: what the first atomic returned, or the address. */
GVM_DEVICE uint64_t map_once(const bench_region_params *p, uint32_t region, uint32_t by)
{
    uint64_t *word = (uint64_t *)(uintptr_t)p->words + region;
    uint64_t found = 0;

    if (p->kind == BENCH_MAPS_REGION) {
        found = (uint64_t)(uintptr_t)map_by(&p->view, region, GVM_REGION_READ, by);
        unmap_by(&p->view, region, by);
    } else if (group_rank(by) == 0 && p->kind == BENCH_MAPS_BARE) {
        found = gvm_atomic_add_u64(word, 1);
        gvm_atomic_add_u64(word, 0 - 1ull);
    } else if (group_rank(by) == 0) {
        found = gvm_atomic_add_acquire_u64(word, 1);
        gvm_add_release_u64(word, 0 - 1ull);
    }
    return found;
}

/* Rounds over p->total regions. Which comes next depends on what the round before found, so that no two rounds of
 * a group overlap, as none would whose data is used. */
GVM_DEVICE void map_rounds(const bench_region_params *p, uint32_t by)
{
    const uint64_t group = gvm_thread_global() / group_threads(by);
    uint64_t at = group * 2654435761u, found = 0;
    uint32_t round;

    for (round = 0; round < p->rounds; round++) {
        found = map_once(p, (uint32_t)(at & (p->total - 1)), by);
        at += 1 + (found >> 63);
    }
    if (p->kind == BENCH_MAPS_REGION && group_rank(by) == 0)
        count_if(p->out, BENCH_OUT_WRONG, found == 0);
}

GVM_KERNEL(region_maps_threads, bench_region_params, p)
{
    map_rounds(&p, BENCH_BY_THREAD);
}

GVM_KERNEL(region_maps_lanes, bench_region_params, p)
{
    map_rounds(&p, BENCH_BY_LANES);
}

GVM_KERNEL(region_maps_warps, bench_region_params, p)
{
    map_rounds(&p, BENCH_BY_WARP);
}

/* ---- fetching */

/* Groups map regions that are not there, and look at one word of each. */
GVM_KERNEL(region_fetch, bench_region_params, p)
{
    const uint64_t groups = gvm_thread_count() / group_threads(p.by);
    uint64_t i;

    for (i = gvm_thread_global() / group_threads(p.by); i < p.count; i += groups) {
        const uint32_t region = region_at(&p, i);
        const uint64_t *found = (const uint64_t *)map_by(&p.view, region, p.access, p.by);
        const uint64_t w = region % (p.view.region_bytes / 8);

        if (group_rank(p.by) == 0)
            count_if(p.out, BENCH_OUT_WRONG,
                     found == (const uint64_t *)0 || found[w] != BENCH_REGION_WORD(region, w));
        if (found != (const uint64_t *)0)
            unmap_by(&p.view, region, p.by);
    }
}

/* The same regions, read where they are at home. */
GVM_KERNEL(region_read_homes, bench_region_params, p)
{
    const uint64_t groups = gvm_thread_count() / group_threads(p.by);
    uint64_t i, sum = 0;

    for (i = gvm_thread_global() / group_threads(p.by); i < p.count; i += groups)
        sum += sum_units(home_of(&p.view, region_at(&p, i)), p.view.stride_bytes / 16,
                         group_rank(p.by), group_threads(p.by));
    if (sum == 0x123456789abcdefu) /* so that the loads are not left out */
        gvm_atomic_add_u64(out_word(p.out, BENCH_OUT_SUM), sum);
}

/* ---- faults, one after the other by one group, each timed: in ns to out[i] */

GVM_KERNEL(region_faults, bench_region_params, p)
{
    uint64_t i, start_ns;

    if (gvm_thread_global() >= group_threads(p.by))
        return;
    for (i = 0; i < p.count; i++) {
        const uint32_t region = region_at(&p, i);
        void *found;

        start_ns = gvm_clock_ns();
        found = map_by(&p.view, region, p.access, p.by);
        if (group_rank(p.by) == 0)
            ((uint64_t *)(uintptr_t)p.out)[i] = found != (void *)0 ? gvm_clock_ns() - start_ns : 0;
        if (found != (void *)0)
            unmap_by(&p.view, region, p.by);
    }
}

GVM_KERNEL(region_copy_homes, bench_region_params, p)
{
    uint64_t i, start_ns;

    if (gvm_thread_global() >= group_threads(p.by))
        return;
    for (i = 0; i < p.count; i++) {
        start_ns = gvm_clock_ns();
        copy_units(p.scratch, home_of(&p.view, region_at(&p, i)), p.view.stride_bytes / 16,
                   group_rank(p.by), group_threads(p.by));
        if (p.by == BENCH_BY_BLOCK)
            gvm_block_sync();
        else
            gvm_warp_sync();
        if (group_rank(p.by) == 0)
            ((uint64_t *)(uintptr_t)p.out)[i] = gvm_clock_ns() - start_ns;
    }
}

/* ---- lists of items */

/* Nothing: what a launch costs. */
GVM_KERNEL(region_nothing, bench_region_params, p)
{
    if (p.count != 0 && p.out == 0)
        gvm_pause();
}

/* Does each slot hold its region? */
GVM_KERNEL(region_check_slots, bench_region_params, p)
{
    const uint32_t *slots = (const uint32_t *)(uintptr_t)p.slots;
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count()) {
        const uint32_t region = region_at(&p, i);
        const uint64_t w = region % (p.view.region_bytes / 8);
        const uint64_t at = p.view.address + slots[i] * p.view.stride_bytes + 8 * w;

        count_if(p.out, BENCH_OUT_WRONG,
                 slots[i] == GVM_REGION_NONE ||
                     *(const uint64_t *)(uintptr_t)at != BENCH_REGION_WORD(region, w));
    }
}

/* One block for each request, as serving engines write it: hit test, LRU and copies from host memory. */

/* Items that are there get their slot; the others' places in the list are collected. */
GVM_DEVICE void test_items(const bench_items_params *p, uint32_t *missed, uint32_t *miss_count)
{
    const uint32_t *items = (const uint32_t *)(uintptr_t)p->items + (uint64_t)gvm_block() * p->count;
    uint32_t *slots = (uint32_t *)(uintptr_t)p->slots + (uint64_t)gvm_block() * p->count;
    uint32_t i;

    for (i = gvm_thread(); i < p->count; i += gvm_block_threads()) {
        const uint32_t slot = ((const uint32_t *)(uintptr_t)p->slot_of)[items[i]];

        slots[i] = slot;
        if (slot != GVM_REGION_NONE)
            ((uint32_t *)(uintptr_t)p->used)[slot] = p->step;
        else
            missed[gvm_atomic_add_u32(miss_count, 1)] = i;
    }
}

/* How many of the block's threads before this one say yes, and how many of all. */
GVM_DEVICE uint32_t rank_in_block(int yes, uint32_t *counts, uint32_t *all)
{
    uint32_t in_warp, rank = gvm_warp_rank(yes, &in_warp), w;

    if (gvm_lane() == 0)
        counts[gvm_warp()] = in_warp;
    gvm_block_sync();
    *all = 0;
    for (w = 0; w < gvm_block_threads() / gvm_warp_size(); w++) {
        if (w < gvm_warp())
            rank += counts[w];
        *all += counts[w];
    }
    gvm_block_sync();
    return rank;
}

/* The order of the request's slots after this step: those that were not used, then those that were, then the victims, which are
 * the first that were not used. */
GVM_DEVICE void order_slots(const bench_items_params *p, uint32_t *victims, uint32_t *counts,
                            uint32_t misses)
{
    const uint64_t at = (uint64_t)gvm_block() * p->slot_count;
    const uint32_t *before = (const uint32_t *)(uintptr_t)p->order[p->step % 2] + at;
    uint32_t *after = (uint32_t *)(uintptr_t)p->order[(p->step + 1) % 2] + at;
    const uint32_t rest = p->slot_count - p->count; /* that are neither used nor victims */
    uint32_t i, idle_count = 0, all;

    for (i = 0; i < p->slot_count; i += gvm_block_threads()) {
        const uint32_t mine = i + gvm_thread();
        const int there = mine < p->slot_count;
        const uint32_t slot = there ? before[mine] : 0;
        const int idle = there && ((const uint32_t *)(uintptr_t)p->used)[slot] != p->step;
        const uint32_t rank = idle_count + rank_in_block(idle, counts, &all);
        const uint32_t others = mine - rank; /* used ones before this one */

        if (idle && rank < misses) {
            victims[rank] = slot;
            after[p->slot_count - misses + rank] = slot;
        } else if (idle) {
            after[rank - misses] = slot;
        } else if (there) {
            after[rest + others] = slot;
        }
        idle_count += all;
    }
}

/* Each warp brings items to the slots of victims. */
GVM_DEVICE void copy_items(const bench_items_params *p, const uint32_t *missed,
                           const uint32_t *victims, uint32_t misses)
{
    const uint32_t *items = (const uint32_t *)(uintptr_t)p->items + (uint64_t)gvm_block() * p->count;
    uint32_t *slots = (uint32_t *)(uintptr_t)p->slots + (uint64_t)gvm_block() * p->count;
    uint32_t *slot_of = (uint32_t *)(uintptr_t)p->slot_of, *item_of = (uint32_t *)(uintptr_t)p->item_of;
    uint32_t j;

    for (j = gvm_warp(); j < misses; j += gvm_block_threads() / gvm_warp_size()) {
        const uint32_t slot = victims[j], item = items[missed[j]];

        copy_units(p->cache + slot * p->stride_bytes, p->homes + item * p->stride_bytes,
                   p->stride_bytes / 16, gvm_lane(), gvm_warp_size());
        if (gvm_lane() != 0)
            continue;
        if (item_of[slot] != GVM_REGION_NONE)
            slot_of[item_of[slot]] = GVM_REGION_NONE;
        item_of[slot] = item;
        slot_of[item] = slot;
        slots[missed[j]] = slot;
        ((uint32_t *)(uintptr_t)p->used)[slot] = p->step;
    }
}

GVM_KERNEL(items_one_block, bench_items_params, p)
{
    GVM_SHARED(uint32_t, missed, BENCH_ITEMS_MAX);
    GVM_SHARED(uint32_t, victims, BENCH_ITEMS_MAX);
    GVM_SHARED(uint32_t, counts, 32);
    GVM_SHARED(uint32_t, miss_count, 1);

    if (gvm_thread() == 0)
        gvm_atomic_exchange_u32(miss_count, 0);
    gvm_block_sync();
    test_items(&p, missed, miss_count);
    gvm_block_sync();
    order_slots(&p, victims, counts, gvm_load_acquire_u32(miss_count));
    gvm_block_sync();
    copy_items(&p, missed, victims, gvm_load_acquire_u32(miss_count));
}

/* ---- experts */

/* Which regions the layer reads: known when its kernels run, not before. */
GVM_KERNEL(experts_route, bench_experts_params, p)
{
    const uint64_t token = gvm_load_acquire_u64((const uint64_t *)(uintptr_t)p.token);
    const uint32_t *chosen = (const uint32_t *)(uintptr_t)p.trace +
                             (token * p.layers + p.layer) * p.chosen;
    uint32_t i;

    for (i = (uint32_t)gvm_thread_global(); i < p.chosen * p.pieces; i += (uint32_t)gvm_thread_count())
        ((uint32_t *)(uintptr_t)p.list)[i] = chosen[i / p.pieces] * p.pieces + i % p.pieces;
}

/* The consumer: reads all bytes of all experts of the layer at the speed of the memory. */
GVM_KERNEL(experts_use, bench_experts_params, p)
{
    const uint32_t *slots = (const uint32_t *)(uintptr_t)p.slots;
    const uint32_t units = (uint32_t)(p.region_bytes / 16), all = units * p.chosen * p.pieces;
    const uint32_t threads = (uint32_t)gvm_thread_count();
    uint64_t a[LOADS_AT_ONCE], b[LOADS_AT_ONCE], sum = 0;
    uint32_t i, at, k;

    for (i = (uint32_t)gvm_thread_global(); i < all; i += threads * LOADS_AT_ONCE) {
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++) {
            a[k] = b[k] = 0;
            at = i + k * threads;
            if (at < all && slots[at / units] != GVM_REGION_NONE)
                gvm_stream_load_u64x2((const void *)(uintptr_t)(p.address +
                                                                slots[at / units] * p.stride_bytes +
                                                                16ull * (at % units)),
                                      &a[k], &b[k]);
        }
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++)
            sum += a[k] + b[k];
    }
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_u64(out_word(p.out, BENCH_OUT_SUM), sum);
}

GVM_KERNEL(experts_next, bench_experts_params, p)
{
    if (gvm_thread_global() == 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.token, 1);
}

/* ---- changes */

/* Blocks change each region of an order, and do nothing for p.rounds ns after each. out: ns of all maps. */
GVM_KERNEL(region_update, bench_region_params, p)
{
    const uint64_t units = p.view.region_bytes / 16;
    uint64_t i, k, a, b, start_ns, spent_ns = 0;

    for (i = gvm_block(); i < p.count; i += gvm_block_count()) {
        const uint32_t region = region_at(&p, i);
        unsigned char *found;

        start_ns = gvm_clock_ns();
        found = (unsigned char *)gvm_region_map_block(&p.view, region, p.access);
        spent_ns += gvm_clock_ns() - start_ns;
        if (gvm_thread() == 0)
            count_if(p.out, BENCH_OUT_WRONG, found == (unsigned char *)0);
        if (found == (unsigned char *)0)
            continue;
        for (k = gvm_thread(); k < units; k += gvm_block_threads()) {
            gvm_stream_load_u64x2(found + 16 * k, &a, &b);
            gvm_stream_u64x2(found + 16 * k, a + 1, b + 1);
        }
        gvm_region_unmap_block(&p.view, region);
        start_ns = gvm_clock_ns();
        while (gvm_clock_ns() - start_ns < p.rounds)
            gvm_pause();
    }
    if (gvm_thread() == 0)
        gvm_atomic_add_u64(out_word(p.out, BENCH_OUT_SUM), spent_ns);
}

/* Each thread computes for a while, and touches no memory. */
GVM_KERNEL(region_compute, bench_region_params, p)
{
    uint64_t sum = gvm_thread_global();
    uint32_t i;

    GVM_NO_UNROLL
    for (i = 0; i < p.rounds; i++)
        sum = sum * 0x9e3779b97f4a7c15u + i;
    if (sum == 0x123456789abcdefu) /* so that it is not left out */
        gvm_atomic_add_u64(out_word(p.out, BENCH_OUT_SUM), sum);
}

/* ---- traces */

/* Blocks take the trace's maps in their order, and read what they map. */
GVM_KERNEL(region_trace, bench_region_params, p)
{
    GVM_SHARED(uint64_t, taken, 1);
    uint64_t i, sum = 0;

    for (;;) {
        uint32_t region;
        void *found;

        if (gvm_thread() == 0)
            taken[0] = gvm_atomic_add_u64(out_word(p.out, BENCH_OUT_CURSOR), 1);
        gvm_block_sync();
        i = taken[0];
        gvm_block_sync();
        if (i >= p.count)
            break;
        region = region_at(&p, i);
        found = gvm_region_map_block(&p.view, region, p.access);
        if (gvm_thread() == 0) {
            count_if(p.out, BENCH_OUT_WRONG, found == (void *)0);
            count_if(p.out, BENCH_OUT_REMOTE,
                     found != (void *)0 && gvm_region_slot(&p.view, found) >= p.view.home);
        }
        if (found == (void *)0)
            continue;
        sum += sum_units((uint64_t)(uintptr_t)found, p.view.region_bytes / 16, gvm_thread(),
                         gvm_block_threads());
        gvm_region_unmap_block(&p.view, region);
    }
    gvm_atomic_add_u64(out_word(p.out, BENCH_OUT_SUM), sum);
}
