/* Regions that come and go: numbers of those that do not exist, which the host keeps or has given to the device. */
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
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
    gvmi_lock(&c->numbers);
    gvmi_region_numbers_add(&c->unused, region);
    gvmi_unlock(&c->numbers);
    c->deleted_count--;
    c->regions[region].flags &= GVMI_REGION_FAR;
}

/* ---- those of the device */

void gvmi_region_learn_created(gvm_collection *c, const gvm_region_table *table)
{
    gvmi_region_numbers *given = &c->given;
    uint64_t count;

    gvmi_lock(&c->numbers);
    count = gvmi_min(table->spare_head - c->given_head, given->count);
    for (uint64_t i = 0; i < count; i++)
        c->regions[given->numbers[i]].flags |= GVMI_REGION_LIVE;
    c->live_count += count;
    c->given_head += count;
    given->count -= count;
    if (count > 0)
        memmove(given->numbers, given->numbers + count, given->count * sizeof *given->numbers);
    gvmi_unlock(&c->numbers);
}

/* The next segment is given: up to so many. */
static gvm_status give_segment_locked(gvm_collection *c, uint64_t most, uint64_t *count)
{
    const uint64_t next = gvmi_min(most, GVM_REGION_SEGMENT);
    const gvm_status status = gvmi_region_numbers_make_room(&c->given, next);

    if (status != GVM_OK)
        return status;
    for (uint64_t i = 0; i < next; i++)
        gvmi_region_numbers_add(&c->given, c->unused.numbers[--c->unused.count]);
    *count = next;
    return GVM_OK;
}

gvm_status gvmi_region_give_first(gvm_collection *c, const uint32_t **numbers, uint64_t *count)
{
    gvm_status status;

    gvmi_lock(&c->numbers);
    status = give_segment_locked(c, c->unused.count / 2, count);
    gvmi_unlock(&c->numbers);
    *numbers = c->given.numbers;
    return status;
}

/* The library's thread alone writes it. A kernel that reads it meanwhile, as its call was late, sees another turn afterwards. */
static uint64_t write_page(gvm_space *space, const uint32_t *numbers, uint64_t count)
{
    gvm_callback_mail *mail = space->callbacks->mail;

    (void)__atomic_exchange_n(&mail->page_turn, 0, __ATOMIC_ACQ_REL); /* what follows is not written before */
    memcpy(mail->page, numbers, count * sizeof *numbers);
    __atomic_store_n(&mail->page_turn, ++space->page_turns, __ATOMIC_RELEASE);
    return space->page_turns;
}

/* The numbers from a position of the ring on. A segment whose answer came too late for the kernel is given again. */
static gvm_status find_numbers_locked(gvm_collection *c, uint64_t position,
                                      const uint32_t **numbers, uint64_t *count)
{
    const uint64_t at = position - c->given_head;
    gvm_status status = GVM_OK;

    if (at > c->given.count || c->given.count - at > GVM_REGION_SEGMENT)
        return gvm_error_set(
            GVM_E_INVALID, "a kernel creates region %llu of a collection of which it has %llu",
            (unsigned long long)position, (unsigned long long)(c->given_head + c->given.count));
    *count = c->given.count - at;
    if (*count == 0) /* one at least, if there is one */
        status = give_segment_locked(c, (c->unused.count + 1) / 2, count);
    *numbers = c->given.numbers + at;
    return status;
}

/* The callback: a kernel has found the ring of a collection empty. */
static gvm_status give_to_kernel(void *context, gvm_callback_args *args)
{
    gvm_space *space = context;
    gvm_collection *c;
    const uint32_t *numbers;
    uint64_t count = 0;
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_COLLECTION, args->words[0], &object);

    if (status != GVM_OK)
        return status;
    c = object;
    gvmi_lock(&c->numbers);
    status = c->space == space
                 ? find_numbers_locked(c, args->words[1], &numbers, &count)
                 : gvm_error_set(GVM_E_FOREIGN,
                                 "a kernel creates regions in another space than its own");
    if (status == GVM_OK && count > 0)
        args->words[1] = write_page(space, numbers, count);
    gvmi_unlock(&c->numbers);
    gvmi_registry_drop(GVMI_KIND_COLLECTION, args->words[0]);
    args->words[0] = count;
    return status;
}

gvm_status gvmi_region_make_callbacks(gvm_space *space)
{
    const gvm_status status = gvmi_callback_make(space->device, space->wait_ns, &space->callbacks);

    if (status == GVM_OK)
        gvmi_callback_set(space->callbacks, GVM_REGION_GIVE, 0, give_to_kernel, space);
    return status;
}

gvm_status gvmi_region_serve_callbacks_locked(gvm_space *space)
{
    const gvm_status status = space->has_callbacks ? GVM_OK : gvmi_callback_serve(space->callbacks);

    space->has_callbacks |= status == GVM_OK;
    return status;
}

void gvmi_region_end_callbacks(gvm_space *space)
{
    gvmi_callback_close(space->callbacks);
    gvmi_callback_unmake(space->callbacks);
    free(space->callbacks);
}

/* ---- creation and deletion by the host */

/* A number that no region has, or GVM_E_LIMIT. */
static gvm_status take_unused(gvm_collection *c, uint32_t *region)
{
    gvm_status status = GVM_OK;

    gvmi_lock(&c->numbers);
    if (c->unused.count > 0)
        *region = c->unused.numbers[--c->unused.count];
    else
        status = gvm_error_set(
            GVM_E_LIMIT,
            "all %u regions of a collection exist, are deleted until the next sync, or are left "
            "to kernels to create (%llu)",
            c->table.count, (unsigned long long)c->given.count);
    gvmi_unlock(&c->numbers);
    return status;
}

static gvm_status create_region(gvm_collection *c, uint32_t *region)
{
    gvm_status status = gvmi_region_numbers_make_room(&c->changed, 1);

    if (status == GVM_OK)
        status = take_unused(c, region);
    if (status != GVM_OK)
        return status;
    gvmi_region_note_change(c, *region);
    c->live_count++;
    c->regions[*region].flags |= GVMI_REGION_LIVE | GVMI_REGION_NEW;
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

/* Room for what is deleted now and before: the sync that frees the numbers cannot fail. */
static gvm_status reserve_unused(gvm_collection *c)
{
    gvm_status status;

    gvmi_lock(&c->numbers);
    status = gvmi_region_numbers_make_room(&c->unused, c->deleted_count + 1);
    gvmi_unlock(&c->numbers);
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
    status = gvmi_region_serve_callbacks_locked(c->space); /* kernels may have its number */
    if (status == GVM_OK)
        status = reserve_unused(c);
    if (status == GVM_OK)
        status = gvmi_region_numbers_make_room(&c->changed, 1);
    if (status != GVM_OK)
        return status;
    gvmi_region_note_change(c, region);
    c->deleted_count++;
    c->live_count--;
    r->flags &= GVMI_REGION_FAR | GVMI_REGION_CHANGED;
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
