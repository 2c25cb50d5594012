/* gvmem/device/detail/region_create.h - how kernels create regions; for gvmem/device/region.h alone.
 *
 * The host gives numbers of regions that do not exist to the device, in a ring. Those between spare_head and spare_tail are
 * there; positions only grow. A sync reads spare_head, and so knows which exist from then on, and fills the ring again.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_CREATE_H
#define GVMEM_DEVICE_DETAIL_REGION_CREATE_H

#include <gvmem/region_view.h>

#ifdef GVM_KERNEL

/* One thread. A number in the ring is read before it is taken: if another thread takes it, and the host writes another one
 * there, spare_head is not what it was. */
GVM_DEVICE_RARE uint32_t gvm_region_create_one(uint64_t table)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)table;
    const uint32_t *spares = (const uint32_t *)(uintptr_t)t->spares;
    uint64_t head = gvm_load_acquire_u64(&t->spare_head), seen;
    uint32_t region;

    for (; head < gvm_load_acquire_u64(&t->spare_tail); head = seen) {
        region = gvm_load_acquire_u32(&spares[head % GVM_REGION_SEGMENT]);
        seen = gvm_atomic_cas_acquire_u64(&t->spare_head, head, head + 1);
        if (seen == head) {
            (void)gvm_atomic_or_u32(&gvm_region_record_of(t, region)->flags, GVM_REGION_LIVE);
            return region;
        }
    }
    return GVM_REGION_NONE;
}

GVM_DEVICE int gvm_region_create_by(const gvm_region_view *view, uint32_t *region, uint32_t by)
{
    uint64_t created = 0;

    if (gvm_region_rank(by) == 0)
        created = GVM_FAR(gvm_region_create_one)(view->table);
    *region = (uint32_t)gvm_region_tell(by, created);
    return *region != GVM_REGION_NONE;
}

GVM_DEVICE int gvm_region_create_warp(const gvm_region_view *view, uint32_t *region)
{
    return gvm_region_create_by(view, region, GVM_REGION_BY_WARP);
}

GVM_DEVICE int gvm_region_create_block(const gvm_region_view *view, uint32_t *region)
{
    return gvm_region_create_by(view, region, GVM_REGION_BY_BLOCK);
}

#endif /* GVM_KERNEL */
#endif
