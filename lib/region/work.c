/* Kernels of the library that work on the table of a collection; what the host passes to them and they to it. */
#include <stdlib.h>

#include "base/address.h"
#include "base/error.h"
#include "base/size.h"
#include "memory/serve.h"
#include "region/region.h"

#define LIST_AT 256u /* in the desk, behind the result */
#define THREADS_ABOUT 256u

/* ---- numbers */

gvm_status gvmi_region_numbers_make_room(gvmi_region_numbers *list, uint64_t more)
{
    uint64_t capacity = list->capacity > 0 ? list->capacity : 64;
    uint32_t *numbers;

    if (list->capacity - list->count >= more)
        return GVM_OK;
    while (capacity - list->count < more)
        capacity *= 2;
    numbers = realloc(list->numbers, capacity * sizeof *numbers);
    if (numbers == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a list of regions");
    list->numbers = numbers;
    list->capacity = capacity;
    return GVM_OK;
}

void gvmi_region_numbers_add(gvmi_region_numbers *list, uint32_t number)
{
    list->numbers[list->count++] = number;
}

gvm_status gvmi_region_numbers_make(gvm_collection *c, uint64_t unused_count)
{
    c->regions = calloc(c->table.count, sizeof *c->regions);
    if (c->regions == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %u regions", c->table.count);
    c->live_count = c->table.count - unused_count;
    for (uint64_t i = 0; i < c->live_count; i++)
        c->regions[i].flags = GVMI_REGION_LIVE;
    if (gvmi_region_numbers_make_room(&c->unused, unused_count) != GVM_OK)
        return GVM_E_NOMEM;
    for (uint64_t i = c->table.count; i > c->live_count; i--) /* the lowest is used first */
        gvmi_region_numbers_add(&c->unused, (uint32_t)(i - 1));
    return GVM_OK;
}

void gvmi_region_note_change(gvm_collection *c, uint32_t region)
{
    if ((c->regions[region].flags & GVMI_REGION_CHANGED) == 0)
        gvmi_region_numbers_add(&c->changed, region);
    c->regions[region].version++;
    c->regions[region].flags |= GVMI_REGION_CHANGED;
}

void gvmi_region_note_untold(gvm_collection *c, uint32_t region)
{
    if ((c->regions[region].flags & GVMI_REGION_UNTOLD) == 0)
        gvmi_region_numbers_add(&c->untold, region);
    c->regions[region].flags |= GVMI_REGION_UNTOLD;
}

/* ---- kernels */

/* In a callback that a kernel waits for, which may occupy the device. */
gvm_status gvmi_region_check_caller(void)
{
    if (!gvmi_kernel_waits)
        return GVM_OK;
    return gvm_error_set(GVM_E_INVALID,
                         "a callback that a kernel waits for cannot wait for kernels of regions");
}

/* The context is current. */
static gvm_status launch_task(gvm_collection *c, const gvmi_region_task *task, CUstream stream)
{
    gvm_device *device = c->space->device;
    const uint64_t desk = gvmi_address(gvm_buffer_address(c->space->desk));
    const gvmi_region_work work = {
        .table = gvmi_address(gvm_buffer_address(c->meta)),
        .list = desk + LIST_AT,
        .first = task->first,
        .count = task->count,
        .result = desk,
    };
    const uint64_t threads = task->by_warp ? task->count * (uint64_t)device->info.warp_size
                                           : task->count;
    gvm_status status = gvmi_kernel_launch(device, task->kernel, &work, threads / THREADS_ABOUT + 1,
                                           stream);
    CUresult result;

    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuStreamSynchronize(stream);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuStreamSynchronize", "a kernel failed on device %d",
                                device->info.ordinal);
    return GVM_OK;
}

/* What fits the desk at once. */
static gvm_status run_piece(gvm_collection *c, const gvmi_region_task *task, CUstream stream,
                            uint64_t *left)
{
    const uint64_t none = 0, bytes = task->list != NULL ? task->count * task->item_bytes : 0;
    gvm_buffer *desk = c->space->desk;
    uint64_t result;
    gvm_status status = gvmi_region_check_caller();

    if (status == GVM_OK)
        status = gvm_buffer_copy_in(desk, 0, &none, sizeof none);
    if (status == GVM_OK && bytes > 0)
        status = gvm_buffer_copy_in(desk, LIST_AT, task->list, bytes);
    if (status == GVM_OK)
        status = gvmi_device_enter(c->space->device);
    if (status != GVM_OK)
        return status;
    status = launch_task(c, task, stream);
    gvmi_device_leave();
    if (status == GVM_OK && task->back)
        status = gvm_buffer_copy_out(task->list, desk, LIST_AT, bytes);
    if (status == GVM_OK)
        status = gvm_buffer_copy_out(&result, desk, 0, sizeof result);
    if (status == GVM_OK)
        *left += result;
    return status;
}

gvm_status gvmi_region_run(gvm_collection *c, const gvmi_region_task *task, CUstream stream,
                           uint64_t *left)
{
    const uint64_t at_once = task->list != NULL ? (GVMI_REGION_DESK_BYTES - LIST_AT) / task->item_bytes
                                                : UINT64_MAX;
    gvmi_region_task piece = *task;
    uint64_t done = 0;
    gvm_status status;

    *left = 0;
    do {
        piece.first = task->first + done;
        piece.count = gvmi_min(task->count - done, at_once);
        piece.list = task->list != NULL ? (char *)task->list + done * task->item_bytes : NULL;
        status = run_piece(c, &piece, stream, left);
        done += piece.count;
    } while (status == GVM_OK && done < task->count);
    return status;
}

gvm_status gvmi_region_wait_for_stream(const gvm_space *space, CUstream stream)
{
    gvm_status status = gvmi_device_enter(space->device);
    CUresult result;

    if (status != GVM_OK)
        return status;
    if (gvmi_stream_is_captured(stream)) {
        status = gvmi_stream_fail_captured(stream);
    } else {
        result = gvmi_cu->cuStreamSynchronize(stream);
        if (result != CUDA_SUCCESS)
            status = gvmi_driver_fail(result, "cuStreamSynchronize", "a kernel failed on device %d",
                                      space->device->info.ordinal);
    }
    gvmi_device_leave();
    return status;
}

gvm_status gvmi_region_read_table(gvm_collection *c, gvm_region_table *out)
{
    return gvm_buffer_copy_out(out, c->meta, 0, sizeof *out);
}
