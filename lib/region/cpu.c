/* Regions that the CPU maps. */
#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "region/region.h"

static gvm_status check_region(const gvm_collection *c, uint32_t region, uint32_t access)
{
    if (region >= c->table.count || (c->regions[region].flags & GVMI_REGION_LIVE) == 0)
        return gvm_error_set(GVM_E_INVALID, "there is no region %u in a collection of %u", region,
                             c->table.count);
    if (access < GVM_REGION_READ || access > GVM_REGION_READWRITE)
        return gvm_error_set(GVM_E_INVALID,
                             "access %u is none of GVM_REGION_READ, WRITE, READWRITE", access);
    return GVM_OK;
}

/* What kernels had written by the last sync comes home. */
static gvm_status bring_home(gvm_collection *c)
{
    gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_clean,
        .list = c->far.numbers,
        .item_bytes = sizeof *c->far.numbers,
        .count = c->far.count,
        .by_warp = true,
    };
    uint64_t mapped;
    gvm_status status = gvmi_region_cleaner_stop(c, c->space->device->stream);

    if (status == GVM_OK)
        status = gvmi_region_run(c, &task, c->space->device->stream, &mapped);
    status = gvmi_region_cleaner_resume(c, status);
    if (status != GVM_OK)
        return status;
    if (mapped > 0)
        return gvm_error_set(GVM_E_TIMEOUT,
                             "kernels have %llu regions mapped that they have written: map it again when they "
                             "are unmapped",
                             (unsigned long long)mapped);
    for (uint64_t i = 0; i < c->far.count; i++)
        c->regions[c->far.numbers[i]].flags &= (uint16_t)~GVMI_REGION_FAR;
    c->far.count = 0;
    return GVM_OK;
}

static gvm_status map_region(gvm_collection *c, uint32_t region, uint32_t access, void **pointer)
{
    gvmi_region *r;
    gvm_status status = check_region(c, region, access);

    if (status != GVM_OK)
        return status;
    r = &c->regions[region];
    if (r->maps == UINT16_MAX)
        return gvm_error_set(GVM_E_LIMIT, "the CPU has region %u mapped %u times", region, r->maps);
    if ((r->flags & GVMI_REGION_FAR) !=
        0) /* to write, too: a frame that is dirty may be written home at any time */
        status = bring_home(c);
    if (status != GVM_OK)
        return status;
    r->maps++;
    if ((access & GVM_REGION_WRITE) != 0)
        r->flags |= GVMI_REGION_WRITING;
    *pointer = gvmi_pointer(gvmi_region_home(c, region));
    return GVM_OK;
}

gvm_status gvm_region_map_cpu(gvm_collection *handle, uint32_t region, uint32_t access, void **pointer)
{
    GVMI_UNCANCELLED;
    gvm_collection *c;
    gvm_status status;

    if (pointer == NULL)
        return gvm_error_set(GVM_E_INVALID, "pointer is NULL");
    status = gvmi_collection_hold(handle, &c);
    if (status != GVM_OK)
        return status;
    status = map_region(c, region, access, pointer);
    gvmi_collection_drop(c);
    return status;
}

static gvm_status unmap_region(gvm_collection *c, uint32_t region)
{
    gvmi_region *r = region < c->table.count ? &c->regions[region] : NULL;
    gvm_status status = GVM_OK;

    if (r == NULL || r->maps == 0)
        return gvm_error_set(GVM_E_INVALID, "the CPU has not mapped region %u of a collection of %u",
                             region, c->table.count);
    if (r->maps == 1 && (r->flags & (GVMI_REGION_WRITING | GVMI_REGION_CHANGED)) == GVMI_REGION_WRITING)
        status = gvmi_region_numbers_reserve(&c->changed, 1);
    if (status != GVM_OK)
        return status;
    if (--r->maps == 0 && (r->flags & GVMI_REGION_WRITING) != 0) {
        if ((r->flags & GVMI_REGION_CHANGED) == 0)
            gvmi_region_numbers_add(&c->changed, region);
        r->version++;
        r->flags = (uint16_t)((r->flags | GVMI_REGION_CHANGED) & ~GVMI_REGION_WRITING);
    }
    return GVM_OK;
}

gvm_status gvm_region_unmap_cpu(gvm_collection *handle, uint32_t region)
{
    GVMI_UNCANCELLED;
    gvm_collection *c;
    gvm_status status = gvmi_collection_hold(handle, &c);

    if (status != GVM_OK)
        return status;
    status = unmap_region(c, region);
    gvmi_collection_drop(c);
    return status;
}
