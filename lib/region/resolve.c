/* Lists of regions for kernels that cannot map: they are mapped, unmapped and brought by kernels of the library. */
#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/size.h"
#include "region/region.h"

#define THREADS_ABOUT 256u
#define LARGE_BYTES (16 * GVMI_KIB) /* from here on a region of a list is mapped by a block */
#define WARPS_WANTED 16u            /* by each multiprocessor */
#define ENTRIES_MAX \
    8u /* for each warp at the same time: with more there are too few to decide while others copy */

static gvm_status check_list(const uint32_t *regions, uint64_t count, uint32_t access)
{
    if (regions == NULL && count > 0)
        return gvm_error_set(GVM_E_INVALID, "regions is NULL");
    if (access < GVM_REGION_READ || access > GVM_REGION_READWRITE)
        return gvm_error_set(GVM_E_INVALID,
                             "access %u is none of GVM_REGION_READ, WRITE, READWRITE", access);
    return GVM_OK;
}

/* A short list is spread over all processors; a long one has an entry for each lane. */
static uint32_t entries_at_once(const gvm_device *device, uint64_t count)
{
    const uint64_t warps = (uint64_t)device->info.sm_count * WARPS_WANTED;
    const uint64_t most = gvmi_min(ENTRIES_MAX, (uint64_t)device->info.warp_size);

    return (uint32_t)gvmi_max(1, gvmi_min(count / warps, most));
}

/* How many blocks a kernel has work for, and how many entries each of their warps takes at once. */
static uint64_t share_out(const gvm_collection *c, gvmi_kernel kernel, gvmi_region_list *list)
{
    const gvm_device *device = c->space->device;
    const uint64_t warp_size = (uint64_t)device->info.warp_size;

    if (kernel == GVMI_KERNEL_region_resolve_large)
        return list->count * (c->table.shares != 0 ? c->table.stride_bytes / GVM_REGION_PIECE : 1);
    list->at_once = kernel == GVMI_KERNEL_region_release   ? (uint32_t)warp_size
                    : kernel == GVMI_KERNEL_region_resolve ? entries_at_once(device, list->count)
                                                           : 1;
    return list->count / list->at_once * warp_size / THREADS_ABOUT + 1;
}

/* Launches a kernel over a list. Nothing is waited for, and the space is not locked: the stream may be captured. */
static gvm_status launch_list(gvm_collection *handle, gvmi_kernel kernel, gvmi_region_list *list,
                              CUstream stream)
{
    gvm_collection *c;
    gvm_device *device;
    gvm_status status = gvm_collection_get_view(handle, &list->view);

    if (status == GVM_OK)
        status = gvmi_collection_hold(handle, &c);
    if (status != GVM_OK)
        return status;
    gvmi_unlock(&c->space->lock);
    device = c->space->device;
    if (kernel == GVMI_KERNEL_region_resolve && c->table.stride_bytes >= LARGE_BYTES)
        kernel = GVMI_KERNEL_region_resolve_large;
    status = gvmi_device_enter(device);
    if (status == GVM_OK) {
        if (list->count > 0)
            status = gvmi_kernel_launch(device, kernel, list, share_out(c, kernel, list), stream);
        gvmi_device_leave();
    }
    gvmi_lock(&c->space->lock);
    gvmi_collection_drop(c);
    return status;
}

gvm_status gvm_region_resolve(gvm_collection *collection, const uint32_t *regions, uint64_t count,
                              uint32_t access, uint32_t *slots, void **addresses, gvm_stream stream)
{
    GVMI_UNCANCELLED;
    gvmi_region_list list = {
        .regions = gvmi_address(regions),
        .slots = gvmi_address(slots),
        .addresses = gvmi_address(addresses),
        .count = count,
        .access = access,
    };
    gvm_status status = check_list(regions, count, access);

    return status == GVM_OK ? launch_list(collection, GVMI_KERNEL_region_resolve, &list, stream)
                            : status;
}

gvm_status gvm_region_release(gvm_collection *collection, const uint32_t *regions, uint64_t count,
                              const uint32_t *slots, gvm_stream stream)
{
    GVMI_UNCANCELLED;
    gvmi_region_list list = {
        .regions = gvmi_address(regions),
        .slots = gvmi_address(slots),
        .count = count,
    };
    gvm_status status = check_list(regions, count, GVM_REGION_READ);

    return status == GVM_OK ? launch_list(collection, GVMI_KERNEL_region_release, &list, stream)
                            : status;
}

/* A kernel over a range of regions, with a warp for each. */
static gvm_status launch_range(gvm_collection *collection, gvmi_kernel kernel, uint32_t first,
                               uint64_t count, gvm_stream stream)
{
    gvmi_region_list list = {.first = first, .count = count, .access = GVM_REGION_READ};
    gvm_region_view view;
    gvm_status status = gvm_collection_get_view(collection, &view);

    if (status == GVM_OK && !gvmi_range_within(first, count, view.count))
        status = gvm_error_set(GVM_E_INVALID, "regions %u to %llu leave a collection of %u", first,
                               (unsigned long long)(first + count), view.count);
    return status == GVM_OK ? launch_list(collection, kernel, &list, stream) : status;
}

gvm_status gvm_region_prefetch(gvm_collection *collection, uint32_t first, uint64_t count,
                               gvm_stream stream)
{
    GVMI_UNCANCELLED;
    return launch_range(collection, GVMI_KERNEL_region_prefetch, first, count, stream);
}

gvm_status gvm_region_evict(gvm_collection *collection, uint32_t first, uint64_t count, gvm_stream stream)
{
    GVMI_UNCANCELLED;
    return launch_range(collection, GVMI_KERNEL_region_evict, first, count, stream);
}
