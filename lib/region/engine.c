/* Copies of regions by the copy engine, several in one call of the driver. */
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
