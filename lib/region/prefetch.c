/* Regions brought to frames by the copy engine.
 *
 * A kernel claims frames, for regions that are in none and that nobody has mapped, and gives their words COPYING. The copies, and a kernel that
 * says where the regions are, follow in the order of the program's stream. A region that is mapped meanwhile is fetched by
 * those who map it, and its word is not COPYING any more: then its frame is free again. So nobody waits for copies.
 *
 * Several at a time would not be told from each other by that bit: a call waits for the one before.
 */
#include <stdlib.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/size.h"
#include "region/region.h"

/* What is to be brought, and where to. entries has room for all of the range; *count: how many there are. */
static gvm_status claim_frames(gvm_collection *c, uint32_t first, uint64_t regions,
                               uint64_t *entries, uint64_t *count)
{
    uint32_t *frames = malloc(regions * sizeof *frames);
    const gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_claim_frames,
        .list = frames,
        .item_bytes = sizeof *frames,
        .first = first,
        .count = regions,
        .back = true,
    };
    uint64_t none;
    gvm_status status;

    if (frames == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %llu regions",
                             (unsigned long long)regions);
    status = gvmi_region_run(c, &task, c->space->device->stream, &none);
    for (uint64_t i = 0; i < regions && status == GVM_OK; i++)
        if (frames[i] != GVM_REGION_NONE)
            entries[(*count)++] = GVM_REGION_IN_FRAME(first + i, frames[i]);
    free(frames);
    return status;
}

/* The context is current. */
static gvm_status submit_copies(gvm_collection *c, const uint64_t *entries, uint64_t count,
                                CUstream stream)
{
    const uint64_t stride = c->table.stride_bytes;
    gvmi_region_copies copies = {.count = 0};
    gvm_status status = GVM_OK;

    for (uint64_t i = 0; i < count && status == GVM_OK; i++) {
        gvmi_region_copies_add(&copies,
                               c->table.address + GVM_REGION_FRAME_OF_ENTRY(entries[i]) * stride,
                               gvmi_region_home(c, GVM_REGION_OF_ENTRY(entries[i])), stride);
        if (copies.count == GVMI_REGION_COPIES_MAX || i == count - 1)
            status = gvmi_region_copies_submit(&copies, stream);
    }
    return status;
}

/* Behind the copies: a kernel that publishes what was claimed. The context is current. */
static gvm_status submit_publishing(gvm_collection *c, uint64_t count, CUstream stream)
{
    const gvmi_region_work work = {
        .table = gvmi_address(gvm_buffer_address(c->meta)),
        .list = gvmi_address(gvm_buffer_address(c->meta)) + c->coming_at,
        .count = count,
    };
    gvm_status status = gvmi_kernel_launch(c->space->device, GVMI_KERNEL_region_publish, &work,
                                           count / 256 + 1, stream);
    CUresult result;

    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuEventRecord(c->brought, stream);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuEventRecord", "cannot record an event");
    return GVM_OK;
}

static gvm_status submit_claimed(gvm_collection *c, const uint64_t *entries, uint64_t count,
                                 CUstream stream)
{
    gvm_status status = gvm_buffer_copy_in(c->meta, c->coming_at, entries, count * sizeof *entries);

    if (status == GVM_OK)
        status = gvmi_device_enter(c->space->device);
    if (status != GVM_OK)
        return status;
    status = submit_copies(c, entries, count, stream);
    if (status == GVM_OK)
        status = submit_publishing(c, count, stream);
    gvmi_device_leave();
    return status;
}

/* After a failure: the frames that were claimed are free again, behind the copies that were submitted. */
static gvm_status give_up_claimed(gvm_collection *c, CUstream stream)
{
    const gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_free_claimed,
        .count = c->frames_max,
    };
    uint64_t none;
    gvm_status status = gvmi_region_wait_for_stream(c->space, stream);

    return status == GVM_OK ? gvmi_region_run(c, &task, c->space->device->stream, &none) : status;
}

static gvm_status claim_and_submit(gvm_collection *c, uint32_t first, uint64_t regions, CUstream stream)
{
    uint64_t *entries = malloc(regions * sizeof *entries), count = 0;
    gvm_status status;

    if (entries == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %llu regions",
                             (unsigned long long)regions);
    status = claim_frames(c, first, regions, entries, &count);
    if (status == GVM_OK && count > 0)
        status = submit_claimed(c, entries, count, stream);
    free(entries);
    return status;
}

/* The copies of the call before are waited for under the lock: its stream had nothing else to do when they were submitted. */
static gvm_status bring_locked(gvm_collection *c, uint32_t first, uint64_t regions, CUstream stream)
{
    gvm_status status = gvmi_region_wait_brought(c);
    gvm_error error;

    if (status == GVM_OK && c->gives_up) /* copies may be behind a stream that is not known any more */
        status = gvm_device_synchronize(c->space->device);
    if (status == GVM_OK && c->gives_up)
        status = give_up_claimed(c, stream);
    if (status != GVM_OK)
        return status;
    status = claim_and_submit(c, first, regions, stream);
    error = gvmi_error_save();
    c->gives_up = status != GVM_OK && give_up_claimed(c, stream) != GVM_OK;
    gvm_error_restore(&error);
    return status;
}

gvm_status gvm_region_prefetch_by_engine(gvm_collection *handle, uint32_t first, uint64_t count,
                                         gvm_stream stream)
{
    GVMI_UNCANCELLED;
    gvm_collection *c;
    bool by_kernel;
    gvm_status status = gvmi_region_check_caller();

    if (status == GVM_OK)
        status = gvmi_collection_hold(handle, &c);
    if (status != GVM_OK)
        return status;
    by_kernel = c->table.columns != 0;
    gvmi_unlock(&c->space->lock);
    if (!gvmi_range_within(first, count, c->table.count))
        status = gvm_error_set(GVM_E_INVALID, "regions %u to %llu leave a collection of %u", first,
                               (unsigned long long)(first + count), c->table.count);
    if (status == GVM_OK)
        status = gvmi_region_wait_for_stream(c->space, stream);
    gvmi_lock(&c->space->lock);
    if (status == GVM_OK && count > 0 && !by_kernel)
        status = bring_locked(c, first, count, stream);
    gvmi_collection_drop(c);
    return status == GVM_OK && by_kernel ? gvm_region_prefetch(handle, first, count, stream) : status;
}
