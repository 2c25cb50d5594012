/* Kernels of the library that work on the table of a collection; what the host passes to them and they to it. */
#include <stdlib.h>

#include "base/address.h"
#include "base/error.h"
#include "base/size.h"
#include "memory/idle.h"
#include "region/region.h"

#define LIST_AT 256u /* in the desk, behind the result */
#define THREADS_ABOUT 256u

/* ---- numbers */

gvm_status gvmi_region_numbers_reserve(gvmi_region_numbers *list, uint64_t count)
{
    const uint64_t capacity = gvmi_max(gvmi_max(2 * list->capacity, count), 64);
    uint32_t *numbers;

    if (count <= list->capacity)
        return GVM_OK;
    numbers = realloc(list->numbers, capacity * sizeof *numbers);
    if (numbers == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a list of regions");
    list->numbers = numbers;
    list->capacity = capacity;
    return GVM_OK;
}

gvm_status gvmi_region_numbers_add(gvmi_region_numbers *list, uint32_t number)
{
    gvm_status status = gvmi_region_numbers_reserve(list, list->count + 1);

    if (status == GVM_OK)
        list->numbers[list->count++] = number;
    return status;
}

/* ---- the desk */

static gvm_status extend_desk(gvm_space *space, uint64_t bytes)
{
    gvmi_region_desk *desk = &space->desk;
    gvm_status status;

    if (bytes <= desk->committed_bytes)
        return GVM_OK;
    bytes = gvmi_pow2_up(bytes);
    status = gvm_buffer_commit(desk->buffer, 0, bytes);
    if (status == GVM_OK)
        desk->committed_bytes = bytes;
    return status;
}

/* ---- kernels */

/* The context is current. */
static gvm_status launch_task(gvm_collection *c, const gvmi_region_task *task, CUstream stream)
{
    gvm_device *device = c->space->device;
    const uint64_t desk = gvmi_address(gvm_buffer_address(c->space->desk.buffer));
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

gvm_status gvmi_region_run(gvm_collection *c, const gvmi_region_task *task, CUstream stream,
                           uint64_t *left)
{
    gvm_buffer *desk = c->space->desk.buffer;
    const uint64_t none = 0;
    gvm_status status = extend_desk(c->space, LIST_AT + task->bytes);

    *left = 0;
    if (status == GVM_OK)
        status = gvm_buffer_copy_in(desk, 0, &none, sizeof none);
    if (status == GVM_OK && task->list != NULL)
        status = gvm_buffer_copy_in(desk, LIST_AT, task->list, task->bytes);
    if (status == GVM_OK)
        status = gvmi_device_enter(c->space->device);
    if (status != GVM_OK)
        return status;
    status = launch_task(c, task, stream);
    gvmi_device_leave();
    if (status == GVM_OK && task->back)
        status = gvm_buffer_copy_out(task->list, desk, LIST_AT, task->bytes);
    if (status == GVM_OK)
        status = gvm_buffer_copy_out(left, desk, 0, sizeof *left);
    return status;
}

gvm_status gvmi_region_read_table(gvm_collection *c, gvm_region_table *out)
{
    return gvm_buffer_copy_out(out, c->meta, 0, sizeof *out);
}
