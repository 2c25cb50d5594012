/* Lists of regions for kernels that cannot map: they are mapped, unmapped and brought by kernels of the library. */
#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/size.h"
#include "region/region.h"

#define THREADS_ABOUT 256u

static gvm_status check_list(const uint32_t *regions, uint64_t count, uint32_t access)
{
    if (regions == NULL && count > 0)
        return gvm_error_set(GVM_E_INVALID, "regions is NULL");
    if (access < GVM_REGION_READ || access > GVM_REGION_READWRITE)
        return gvm_error_set(GVM_E_INVALID,
                             "access %u is none of GVM_REGION_READ, WRITE, READWRITE", access);
    return GVM_OK;
}

/* Launches a kernel over a list, with a warp or a thread for each entry. Nothing is waited for, and the space is not locked: the stream may be captured. */
static gvm_status launch_list(gvm_collection *handle, gvmi_kernel kernel, gvmi_region_list *list,
                              bool by_warp, CUstream stream)
{
    gvm_collection *c;
    uint64_t threads = list->count;
    gvm_device *device;
    gvm_status status = gvm_collection_get_view(handle, &list->view);

    if (status == GVM_OK)
        status = gvmi_collection_hold(handle, &c);
    if (status != GVM_OK)
        return status;
    gvmi_unlock(&c->space->lock);
    device = c->space->device;
    status = gvmi_device_enter(device);
    if (status == GVM_OK) {
        if (by_warp)
            threads *= (uint64_t)device->info.warp_size;
        if (list->count > 0)
            status = gvmi_kernel_launch(device, kernel, list, threads / THREADS_ABOUT + 1, stream);
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

    return status == GVM_OK ? launch_list(collection, GVMI_KERNEL_region_resolve, &list, true, stream)
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

    return status == GVM_OK
               ? launch_list(collection, GVMI_KERNEL_region_release, &list, false, stream)
               : status;
}

gvm_status gvm_region_prefetch(gvm_collection *collection, uint32_t first, uint64_t count,
                               gvm_stream stream)
{
    GVMI_UNCANCELLED;
    gvmi_region_list list = {.first = first, .count = count, .access = GVM_REGION_READ};
    gvm_region_view view;
    gvm_status status = gvm_collection_get_view(collection, &view);

    if (status == GVM_OK && !gvmi_range_within(first, count, view.count))
        status = gvm_error_set(GVM_E_INVALID, "regions %u to %llu leave a collection of %u", first,
                               (unsigned long long)(first + count), view.count);
    return status == GVM_OK
               ? launch_list(collection, GVMI_KERNEL_region_prefetch, &list, true, stream)
               : status;
}
