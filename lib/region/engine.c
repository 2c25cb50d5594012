/* Copies of regions by the copy engine, several in one call of the driver; and the event behind those of a prefetch. */
#include "base/error.h"
#include "region/region.h"

void gvmi_region_copies_add(gvmi_region_copies *list, uint64_t dst, uint64_t src, uint64_t bytes)
{
    const size_t last = list->count - 1;

    if (list->count > 0 && list->dsts[last] + list->sizes[last] == dst &&
        list->srcs[last] + list->sizes[last] == src) {
        list->sizes[last] += bytes;
        return;
    }
    list->dsts[list->count] = dst;
    list->srcs[list->count] = src;
    list->sizes[list->count++] = bytes;
}

/* The driver takes no batch, or is older than that call. */
static CUresult copy_each(const gvmi_region_copies *list, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < list->count && result == CUDA_SUCCESS; i++)
        result = gvmi_cu->cuMemcpyAsync(list->dsts[i], list->srcs[i], list->sizes[i], stream);
    return result;
}

/* A kernel may write to a source meanwhile. */
static CUresult copy_batch(gvmi_region_copies *list, CUstream stream)
{
    CUmemcpyAttributes attributes = {
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE,
    };
    size_t first = 0;

    return gvmi_cu->cuMemcpyBatchAsync(list->dsts, list->srcs, list->sizes, list->count,
                                       &attributes, &first, 1, stream);
}

gvm_status gvmi_region_copies_submit(gvmi_region_copies *list, CUstream stream)
{
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (list->count > 0 && stream != NULL && stream != CU_STREAM_LEGACY)
        result = copy_batch(list, stream);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        result = copy_each(list, stream);
    list->count = 0;
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemcpyBatchAsync", "cannot copy regions");
    return GVM_OK;
}

/* ---- what is brought */

gvm_status gvmi_region_brought_begin(gvm_collection *c)
{
    gvm_status status = gvmi_device_enter(c->space->device);
    CUresult result;

    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuEventCreate(&c->brought, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        c->brought = NULL;
        status = gvmi_driver_fail(result, "cuEventCreate", "cannot make an event");
    }
    gvmi_device_leave();
    return status;
}

gvm_status gvmi_region_wait_brought(const gvm_collection *c)
{
    gvm_status status = gvmi_device_enter(c->space->device);
    CUresult result;

    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuEventSynchronize(c->brought);
    if (result != CUDA_SUCCESS)
        status = gvmi_driver_fail(result, "cuEventSynchronize", "regions cannot be brought to frames");
    gvmi_device_leave();
    return status;
}

void gvmi_region_brought_end(gvm_collection *c)
{
    bool entered;

    if (c->brought == NULL || !gvmi_device_enter_to_free(c->space->device, &entered))
        return;
    gvmi_cu->cuEventDestroy(c->brought);
    if (entered)
        gvmi_device_leave();
}
