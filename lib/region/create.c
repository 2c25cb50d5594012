/* Regions that come and go: numbers of those that do not exist, which the host keeps or has given to the device. */
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/size.h"
#include "region/region.h"

static void clear_home(const gvm_collection *c, uint32_t region)
{
    const gvm_region_shape *shape = &c->table.shape;
    char *home = gvmi_pointer(gvmi_region_home(c, region));

    if (c->table.columns == 0) {
        memset(home, 0, c->table.stride_bytes);
        return;
    }
    for (uint64_t z = 0; z < shape->depth; z++)
        for (uint64_t y = 0; y < shape->height; y++)
            memset(home + z * shape->slice_pitch_bytes + y * shape->row_pitch_bytes, 0,
                   shape->width_bytes);
}

/* gvm_region_delete() has made room for it. Its home is as at first. */
void gvmi_region_number_free(gvm_collection *c, uint32_t region)
{
    clear_home(c, region);
    gvmi_region_numbers_add(&c->unused, region);
    c->deleted_count--;
    c->regions[region].flags &= GVMI_REGION_FAR;
}

/* ---- those of the device */

void gvmi_region_learn_created(gvm_collection *c, const gvm_region_table *table)
{
    for (; c->given_head < table->spare_head; c->given_head++) {
        c->regions[c->given[c->given_head % GVM_REGION_SEGMENT]].flags |= GVMI_REGION_LIVE;
        c->live_count++;
    }
}

/* The host keeps half of what is left. */
gvm_status gvmi_region_give(gvm_collection *c, CUstream stream)
{
    const uint64_t has = c->given_tail - c->given_head;
    const uint64_t wanted = gvmi_min((c->unused.count + has) / 2, GVM_REGION_SEGMENT);
    uint32_t numbers[GVM_REGION_SEGMENT];
    const gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_give,
        .list = numbers,
        .first = c->given_tail,
        .count = wanted - gvmi_min(wanted, has),
        .item_bytes = sizeof *numbers,
    };
    uint64_t given;
    gvm_status status;

    if (task.count == 0)
        return GVM_OK;
    for (uint64_t i = 0; i < task.count; i++)
        numbers[i] = c->unused.numbers[c->unused.count - 1 - i];
    status = gvmi_region_run(c, &task, stream, &given);
    if (status != GVM_OK)
        return status;
    for (uint64_t i = 0; i < task.count; i++)
        c->given[c->given_tail++ % GVM_REGION_SEGMENT] = numbers[i];
    c->unused.count -= task.count;
    return GVM_OK;
}

/* ---- creation and deletion by the host */

static gvm_status create_region(gvm_collection *c, uint32_t *region)
{
    const uint64_t left = c->unused.count;
    gvm_status status;

    if (left == 0)
        return gvm_error_set(GVM_E_LIMIT,
                             "all %u regions of a collection exist, are deleted until the next sync, or are left "
                             "to kernels to create (%llu)",
                             c->table.count, (unsigned long long)(c->given_tail - c->given_head));
    status = gvmi_region_numbers_reserve(&c->changed, 1);
    if (status != GVM_OK)
        return status;
    *region = c->unused.numbers[left - 1];
    gvmi_region_numbers_add(&c->changed, *region);
    c->unused.count--;
    c->live_count++;
    c->regions[*region].version++;
    c->regions[*region].flags |= GVMI_REGION_LIVE | GVMI_REGION_CHANGED;
    return GVM_OK;
}

gvm_status gvm_region_create(gvm_collection *handle, uint32_t *region)
{
    GVMI_UNCANCELLED;
    gvm_collection *c;
    gvm_status status;

    if (region == NULL)
        return gvm_error_set(GVM_E_INVALID, "region is NULL");
    status = gvmi_collection_hold(handle, &c);
    if (status != GVM_OK)
        return status;
    status = create_region(c, region);
    gvmi_collection_drop(c);
    return status;
}

static gvm_status delete_region(gvm_collection *c, uint32_t region)
{
    gvmi_region *r = region < c->table.count ? &c->regions[region] : NULL;
    gvm_status status;

    if (r == NULL || (r->flags & GVMI_REGION_LIVE) == 0)
        return gvm_error_set(GVM_E_INVALID, "there is no region %u in a collection of %u", region,
                             c->table.count);
    if (c->homes != NULL)
        return gvm_error_set(
            GVM_E_NOTSUP,
            "region %u has its home in an object that others have, too: it cannot be deleted", region);
    if (r->maps > 0)
        return gvm_error_set(GVM_E_INVALID, "the CPU has region %u mapped: unmap it first", region);
    status = gvmi_region_numbers_reserve(&c->unused, c->deleted_count + 1);
    if (status == GVM_OK)
        status = gvmi_region_numbers_reserve(&c->changed, 1);
    if (status != GVM_OK)
        return status;
    if ((r->flags & GVMI_REGION_CHANGED) == 0)
        gvmi_region_numbers_add(&c->changed, region);
    c->deleted_count++;
    c->live_count--;
    r->version++;
    r->flags = (uint16_t)((r->flags & GVMI_REGION_FAR) | GVMI_REGION_CHANGED);
    return GVM_OK;
}

gvm_status gvm_region_delete(gvm_collection *handle, uint32_t region)
{
    GVMI_UNCANCELLED;
    gvm_collection *c;
    gvm_status status = gvmi_collection_hold(handle, &c);

    if (status != GVM_OK)
        return status;
    status = delete_region(c, region);
    gvmi_collection_drop(c);
    return status;
}
