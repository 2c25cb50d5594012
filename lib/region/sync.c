/* What both sides exchange: gvm_space_sync(). */
#include <stdlib.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "region/region.h"

/* ---- what kernels did wrong */

static const char *describe(uint32_t code)
{
    switch (code) {
    case GVM_REGION_NO_SUCH: return "does not exist";
    case GVM_REGION_SPOILT: return "was unmapped more often than mapped, or mapped 4194304 times";
    case GVM_REGION_LATE: return "was not brought in time by the threads that had begun to";
    case GVM_REGION_OVERWRITTEN: return "was written, and not mapped to be written";
    case GVM_REGION_NOT_WHOLE:
        return "needs blocks of whole warps, and its block has another number of threads";
    case GVM_REGION_NOT_MAPPED: return "was unmapped and had not been mapped";
    default: return "was used in an unknown way";
    }
}

/* The first error of kernels since the last sync; it is forgotten. */
static gvm_status take_error(gvm_collection *c, const gvm_region_table *table)
{
    const uint32_t code = (uint32_t)table->error, region = (uint32_t)(table->error >> 32);
    const uint64_t none = 0;
    gvm_status status;

    if (code == GVM_REGION_OK)
        return GVM_OK;
    status = gvm_buffer_copy_in(c->meta, offsetof(gvm_region_table, error), &none, sizeof none);
    if (status != GVM_OK)
        return status;
    if (code == GVM_REGION_OTHER_LAYOUT)
        return gvm_error_set(GVM_E_VERSION,
                             "a kernel that uses regions was compiled with headers of another "
                             "version of libgvmem: compile it again");
    return gvm_error_set(code == GVM_REGION_LATE ? GVM_E_TIMEOUT : GVM_E_INVALID,
                         "region %u of a collection of %u, used by a kernel, %s", region,
                         c->table.count, describe(code));
}

/* ---- from the CPU to kernels */

static void fill_changes(const gvm_collection *c, gvmi_region_change *changes)
{
    for (uint64_t i = 0; i < c->changed.count; i++) {
        const uint32_t region = c->changed.numbers[i];

        changes[i] = (gvmi_region_change){
            .region = region,
            .version = c->regions[region].version,
            .live = (c->regions[region].flags & GVMI_REGION_LIVE) != 0,
        };
    }
}

/* Those that kernels have mapped stay in the list. */
static uint64_t keep_undone(gvm_collection *c, const gvmi_region_change *changes)
{
    uint64_t kept = 0;

    for (uint64_t i = 0; i < c->changed.count; i++) {
        if (changes[i].done == 0)
            c->changed.numbers[kept++] = changes[i].region;
        else if (changes[i].live == 0)
            gvmi_region_number_free(c, changes[i].region);
        else
            c->regions[changes[i].region].flags &= (uint16_t) ~(GVMI_REGION_CHANGED | GVMI_REGION_NEW);
    }
    c->changed.count = kept;
    return kept;
}

static gvm_status send_changes(gvm_collection *c, CUstream stream, uint64_t *undone)
{
    gvmi_region_change *changes;
    gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_apply,
        .count = c->changed.count,
        .item_bytes = sizeof *changes,
        .back = true,
        .by_warp = c->table.sums != 0,
    };
    uint64_t left;
    gvm_status status;

    if (task.count == 0)
        return GVM_OK;
    task.list = changes = malloc(task.count * sizeof *changes);
    if (changes == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %llu changes",
                             (unsigned long long)task.count);
    fill_changes(c, changes);
    status = gvmi_region_cleaner_stop(c, stream);
    if (status == GVM_OK)
        status = gvmi_region_run(c, &task, stream, &left);
    if (status == GVM_OK)
        *undone += keep_undone(c, changes);
    status = gvmi_region_cleaner_resume(c, status);
    free(changes);
    return status;
}

/* ---- from kernels to the CPU */

/* The CPU's own change of a region wins, and is applied by the next sync if not by this one. Others that have the homes look anew in any
 * case: the kernel's data may have been written home. */
static void note_far(gvm_collection *c, const gvmi_region_change *change)
{
    gvmi_region *region = &c->regions[change->region];

    if (c->homes != NULL)
        gvmi_region_note_untold(c, change->region);
    if ((region->flags & (GVMI_REGION_CHANGED | GVMI_REGION_WRITING)) != 0) {
        if (c->torn == 0 && (region->flags & (GVMI_REGION_LIVE | GVMI_REGION_NEW)) == GVMI_REGION_LIVE) {
            c->torn = change->region + 1;
            c->torn_by = "by the CPU, or another process or space, and by a kernel";
        }
        return;
    }
    if ((int32_t)(change->version - region->version) > 0)
        region->version = change->version;
    if ((region->flags & GVMI_REGION_FAR) == 0)
        gvmi_region_numbers_add(&c->far, change->region);
    region->flags |= GVMI_REGION_FAR;
}

/* The device forgets entries when the CPU's side has them: if anything fails in between, the next sync has them again. */
static gvm_status collect(gvm_collection *c, gvmi_region_change *changes, uint64_t count, CUstream stream)
{
    gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_collect,
        .list = changes,
        .item_bytes = sizeof *changes,
        .first = c->collected,
        .count = count,
        .back = true,
    };
    uint64_t left;
    gvm_status status = gvmi_region_numbers_make_room(&c->far, count);

    if (status == GVM_OK && c->homes != NULL)
        status = gvmi_region_numbers_make_room(&c->untold, count);
    if (status == GVM_OK)
        status = gvmi_region_run(c, &task, stream, &left);
    if (status != GVM_OK)
        return status;
    for (uint64_t i = 0; i < count; i++)
        if (changes[i].region <
            c->table.count) /* not GVM_REGION_NONE, nor what a kernel of the program has written there */
            note_far(c, &changes[i]);
    task = (gvmi_region_task){
        .kernel = GVMI_KERNEL_region_unlist,
        .first = c->collected,
        .count = count,
    };
    status = gvmi_region_run(c, &task, stream, &left);
    if (status == GVM_OK)
        c->collected += count;
    return status;
}

static gvm_status fetch_changes(gvm_collection *c, uint64_t end, CUstream stream)
{
    enum { AT_ONCE = 65536 };
    const uint64_t room = 1ull << c->table.change_shift;
    gvmi_region_change *changes;
    gvm_status status = GVM_OK;

    if (end - c->collected > room) /* after failures: the device has forgotten those before */
        c->collected = end - room;
    if (end == c->collected)
        return GVM_OK;
    changes = calloc(gvmi_min(end - c->collected, AT_ONCE), sizeof *changes);
    if (changes == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for changes of regions");
    while (status == GVM_OK && c->collected < end)
        status = collect(c, changes, gvmi_min(end - c->collected, AT_ONCE), stream);
    free(changes);
    return status;
}

/* ---- check mode */

static gvm_status check_frames(gvm_collection *c, CUstream stream)
{
    const gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_check,
        .count = c->table.frame_count,
        .by_warp = true,
    };
    uint64_t left;

    return c->table.sums != 0 ? gvmi_region_run(c, &task, stream, &left) : GVM_OK;
}

static gvm_status take_torn(gvm_collection *c)
{
    const uint32_t region = c->torn - 1;

    if (c->torn == 0)
        return GVM_OK;
    c->torn = 0;
    if (c->table.sums == 0)
        return GVM_OK;
    return gvm_error_set(GVM_E_TORN, "region %u of a collection of %u was written %s between two syncs",
                         region, c->table.count, c->torn_by);
}

/* ---- all */

/* What kernels have written is collected first: what the CPU has written, too, is not forgotten yet. */
static gvm_status sync_collection(gvm_collection *c, CUstream stream, bool take_errors, uint64_t *undone)
{
    uint64_t mapped = 0;
    gvm_region_table table;
    gvm_status status = check_frames(c, stream);

    if (status == GVM_OK)
        status = gvmi_region_read_table(c, &table);
    if (status == GVM_OK) {
        gvmi_region_learn_created(c, &table);
        status = fetch_changes(c, table.change_count, stream);
    }
    if (status == GVM_OK && c->homes != NULL)
        status = gvmi_homes_exchange(c, stream, &mapped);
    *undone += mapped;
    if (status == GVM_OK)
        status = send_changes(c, stream, undone);
    if (status == GVM_OK && take_errors)
        status = take_error(c, &table);
    if (status == GVM_OK && take_errors)
        status = take_torn(c);
    return status == GVM_OK ? gvmi_homes_failure(c) : status;
}

/* All collections, whatever a kernel did wrong in one. What it did in others stays for the next sync. */
static gvm_status sync_collections_locked(gvm_space *space, CUstream stream, uint64_t *undone)
{
    gvm_status status, first = GVM_OK;
    gvm_error error = {0};
    gvm_collection *c;

    LIST_FOREACH(c, &space->collections, entry)
    {
        status = sync_collection(c, stream, first == GVM_OK, undone);
        if (status != GVM_OK && first == GVM_OK) {
            first = status;
            error = gvmi_error_save();
        }
    }
    if (first != GVM_OK)
        gvm_error_restore(&error);
    return first;
}

static gvm_status sync_space(gvm_space *space, CUstream stream)
{
    uint64_t undone = 0;
    gvm_status status, divided;
    gvm_error error;

    gvmi_homes_ask(space);
    gvmi_lock(&space->lock);
    status = sync_collections_locked(space, stream, &undone);
    if (status == GVM_OK)
        status = gvmi_callback_take_error(space->callbacks);
    gvmi_unlock(&space->lock);
    error = gvmi_error_save();
    divided = gvmi_space_divide(space, stream);
    if (status != GVM_OK) {
        gvm_error_restore(&error);
        return status;
    }
    if (divided == GVM_OK && undone > 0)
        return gvm_error_set(
            GVM_E_TIMEOUT,
            "kernels have %llu regions mapped that are to be exchanged: sync again when they are unmapped",
            (unsigned long long)undone);
    return divided;
}

gvm_status gvm_space_sync(gvm_space *handle, gvm_stream stream)
{
    GVMI_UNCANCELLED;
    gvm_space *space;
    gvm_status status = gvmi_region_check_caller();

    if (status == GVM_OK)
        status = gvmi_space_hold(handle, &space);
    if (status != GVM_OK)
        return status;
    gvmi_unlock(&space->lock);
    status = gvmi_region_wait_for_stream(space, stream);
    if (status == GVM_OK)
        status = sync_space(space, space->device->stream);
    gvmi_registry_drop(GVMI_KIND_SPACE, gvmi_key(space));
    return status;
}
