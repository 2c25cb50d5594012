/* The kernels of region_processes: a warp for each region writes it, or reads it. */
#include <gvmem/device/region.h>

#include "tests/proc/region_process_kernels.h"

GVM_DEVICE uint32_t first_region(void)
{
    return gvm_block() * (gvm_block_threads() / gvm_warp_size()) + gvm_warp();
}

GVM_DEVICE uint32_t region_step(void)
{
    return gvm_block_count() * (gvm_block_threads() / gvm_warp_size());
}

/* Reads what it is to change in every other region, and writes all of the others. */
GVM_KERNEL(process_write, process_params, p)
{
    uint32_t region;
    uint64_t *units, i;

    for (region = first_region(); region < p.view.count; region += region_step()) {
        if (!p.all && writer_of(p.round, region, p.parties, p.owned) != p.self)
            continue;
        units = (uint64_t *)gvm_region_map_warp(
            &p.view, region, region % 2 == 0 ? GVM_REGION_READWRITE : GVM_REGION_WRITE);
        if (units == (uint64_t *)0)
            continue;
        for (i = gvm_lane(); i < p.view.region_bytes / UNIT_BYTES; i += gvm_warp_size()) {
            units[2 * i] = p.round;
            units[2 * i + 1] = UNIT_PLACE(region, i);
        }
        gvm_region_unmap_warp(&p.view, region);
    }
}

GVM_DEVICE void complain(const process_params *p, uint32_t region, uint64_t i, uint64_t round)
{
    uint64_t *wrong = (uint64_t *)(uintptr_t)p->wrong;

    if (gvm_atomic_add_u64(wrong, 1) == 0) {
        wrong[1] = region;
        wrong[2] = i;
        wrong[3] = round;
    }
}

GVM_KERNEL(process_check, process_params, p)
{
    uint64_t *digests = (uint64_t *)(uintptr_t)p.digests;
    const uint64_t *units;
    uint64_t i, sum;
    uint32_t place, region, low, high;

    for (place = first_region(); place < p.view.count; place += region_step()) {
        region = p.backward ? p.view.count - 1 - place : place;
        low = ((const uint32_t *)(uintptr_t)p.low)[region];
        high = ((const uint32_t *)(uintptr_t)p.high)[region];
        units = (const uint64_t *)gvm_region_map_warp(&p.view, region, GVM_REGION_READ);
        if (units == (const uint64_t *)0) {
            complain(&p, region, 0, 0);
            continue;
        }
        sum = 0;
        for (i = gvm_lane(); i < p.view.region_bytes / UNIT_BYTES; i += gvm_warp_size()) {
            sum += mix_round(units[2 * i], (uint32_t)i);
            if (units[2 * i] < low || units[2 * i] > high || units[2 * i + 1] != UNIT_PLACE(region, i))
                complain(&p, region, i, units[2 * i]);
        }
        gvm_atomic_add_u64(&digests[region], sum);
        gvm_region_unmap_warp(&p.view, region);
    }
}
