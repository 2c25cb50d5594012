/* Regions that the CPU maps. */
#include <stdlib.h>
#include <string.h>

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

/* Those that are home are GVM_REGION_NONE in the list. */
static void keep_far(gvm_collection *c, const uint32_t *left)
{
    uint64_t kept = 0;

    for (uint64_t i = 0; i < c->far.count; i++) {
        if (left[i] == GVM_REGION_NONE)
            c->regions[c->far.numbers[i]].flags &= (uint16_t)~GVMI_REGION_FAR;
        else
            c->far.numbers[kept++] = left[i];
    }
    c->far.count = kept;
}

gvm_status gvmi_region_bring_home(gvm_collection *c, CUstream stream, uint64_t *mapped)
{
    const uint64_t bytes = c->far.count * sizeof *c->far.numbers;
    uint32_t *left = malloc(bytes);
    gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_clean,
        .list = left,
        .item_bytes = sizeof *left,
        .count = c->far.count,
        .back = true,
        .by_warp = true,
    };
    gvm_status status;

    if (left == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %llu regions to be written home",
                             (unsigned long long)c->far.count);
    memcpy(left, c->far.numbers, bytes);
    status = gvmi_region_cleaner_stop(c, stream);
    if (status == GVM_OK)
        status = gvmi_region_run(c, &task, stream, mapped);
    if (status == GVM_OK)
        keep_far(c, left);
    status = gvmi_region_cleaner_resume(c, status);
    free(left);
    return status;
}

/* All that are far, as they would be one after the other; the others of them may be mapped by kernels. */
static gvm_status bring_region_home(gvm_collection *c, uint32_t region)
{
    uint64_t mapped;
    gvm_status status = gvmi_region_bring_home(c, c->space->device->stream, &mapped);

    if (status == GVM_OK && (c->regions[region].flags & GVMI_REGION_FAR) != 0)
        return gvm_error_set(GVM_E_TIMEOUT,
                             "kernels have region %u mapped, which they have written: map it again when it is "
                             "unmapped",
                             region);
    return status;
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
        status = bring_region_home(c, region);
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
    if (r->maps == 1 && (r->flags & GVMI_REGION_WRITING) != 0) {
        status = gvmi_region_numbers_make_room(&c->changed, 1);
        if (status == GVM_OK && c->homes != NULL)
            status = gvmi_region_numbers_make_room(&c->untold, 1);
    }
    if (status != GVM_OK)
        return status;
    if (--r->maps == 0 && (r->flags & GVMI_REGION_WRITING) != 0) {
        r->flags &= (uint16_t)~GVMI_REGION_WRITING;
        gvmi_region_note_change(c, region);
        if (c->homes != NULL)
            gvmi_region_note_untold(c, region);
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
