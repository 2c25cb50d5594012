/* Loading device code, once per device and image.
 *
 * The software GPU takes the shared object, a real one the fatbin. A lock of rank KERNELS is held
 * while the driver loads: it is taken by nobody who holds a table lock, and holding it keeps a
 * second thread from loading the same image. Launching takes no lock.
 */
#include <gvmem/kernels.h>

#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "kernels/set.h"
#include "memory/idle.h"

/* Made by kernels/embed.py. A build without nvcc has no fatbins: their arrays are then NULL. */
#define IMAGE_DECLARE(name) \
    extern const unsigned char gvmi_image_soft_##name[]; \
    extern const unsigned char *const gvmi_image_cuda_##name; \
    extern const char gvmi_image_architectures_##name[];
GVMI_IMAGES(IMAGE_DECLARE)
#undef IMAGE_DECLARE

/* What a block may have besides what the device and the kernel allow: enough to hide latency, few
 * enough that several fit an SM. */
#define BLOCK_THREADS_WANTED 256

#define IMAGE_BYTES_ABOUT (16ull << 20) /* on the device */

const char *const gvmi_kernel_names[GVMI_KERNEL_COUNT] = {
#define KERNEL_NAME(image, name) #name,
    GVMI_KERNELS(KERNEL_NAME)
#undef KERNEL_NAME
};

static const gvmi_image image_of[GVMI_KERNEL_COUNT] = {
#define KERNEL_IMAGE(image, name) GVMI_IMAGE_##image,
    GVMI_KERNELS(KERNEL_IMAGE)
#undef KERNEL_IMAGE
};

static gvmi_mutex load_lock = GVMI_MUTEX_INIT(GVMI_RANK_KERNELS);

static const unsigned char *image_bytes(const gvm_device *device, gvmi_image image)
{
    switch (image) {
#define IMAGE_CASE(name) \
    case GVMI_IMAGE_##name: \
        return device->info.software ? gvmi_image_soft_##name : gvmi_image_cuda_##name;
        GVMI_IMAGES(IMAGE_CASE)
#undef IMAGE_CASE
    case GVMI_IMAGE_COUNT: break;
    }
    __builtin_unreachable();
}

const char *gvm_kernel_architectures(void)
{
    return gvmi_image_architectures_basic; /* all images are built for the same */
}

static void unload_kernel_set(gvm_device *device)
{
    struct gvmi_kernel_set *set = device->kernels;

    const bool entered = gvmi_device_enter(device) == GVM_OK;

    device->kernels = NULL;
    for (int i = 0; i < GVMI_IMAGE_COUNT && entered; i++)
        if (set->modules[i] != NULL)
            gvmi_cu->cuModuleUnload(set->modules[i]);
    if (entered)
        gvmi_device_leave();
    free(set);
}

static gvm_status get_kernel_set(gvm_device *device, struct gvmi_kernel_set **out)
{
    struct gvmi_kernel_set *set = __atomic_load_n(&device->kernels, __ATOMIC_ACQUIRE);

    if (set == NULL) {
        gvmi_lock(&load_lock);
        set = device->kernels;
        if (set == NULL && (set = calloc(1, sizeof *set)) != NULL) {
            if (gvmi_kernels_unload == NULL) /* written once, before there is a set to unload */
                gvmi_kernels_unload = unload_kernel_set;
            __atomic_store_n(&device->kernels, set, __ATOMIC_RELEASE);
        }
        gvmi_unlock(&load_lock);
    }
    if (set == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for the kernels of device %d",
                             device->info.ordinal);
    *out = set;
    return GVM_OK;
}

static gvm_status load_image_locked(gvm_device *device, struct gvmi_kernel_set *set, gvmi_image image)
{
    const unsigned char *bytes = image_bytes(device, image);
    CUresult result;

    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_KERNELS));
    if (set->modules[image] != NULL)
        return GVM_OK;
    if (bytes == NULL)
        return gvm_error_set(GVM_E_NOTSUP,
                             "this build has no kernels for real GPUs: build it where nvcc is found");
    result = gvmi_cu->cuModuleLoadData(&set->modules[image], bytes);
    if (result == CUDA_SUCCESS)
        return GVM_OK;
    set->modules[image] = NULL;
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU)
        return gvmi_fail_native(
            GVM_E_NOTSUP, (int)result, "cuModuleLoadData", "CUDA_ERROR_NO_BINARY_FOR_GPU",
            "this build has no kernels for compute capability %d.%d of device %d",
            device->info.compute_major, device->info.compute_minor, device->info.ordinal);
    return gvmi_driver_fail(result, "cuModuleLoadData", "cannot load kernels on device %d",
                            device->info.ordinal);
}

/* How large a block may be, in whole warps, and how many of them the device runs at once. */
static gvm_status measure_kernel(const gvm_device *device, const char *name, CUfunction function,
                                 gvmi_kernel_entry *entry)
{
    int threads, blocks, warp = device->info.warp_size > 0 ? device->info.warp_size : 1;
    CUresult result = gvmi_cu->cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                                  function);

    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuFuncGetAttribute",
                                "cannot read the block size of kernel %s", name);
    if (threads > BLOCK_THREADS_WANTED)
        threads = BLOCK_THREADS_WANTED;
    threads = threads < warp ? warp : threads - threads % warp;
    result = gvmi_cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, 0);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                                "cannot read the occupancy of kernel %s", name);
    if (blocks < 1)
        blocks = 1;
    entry->block_threads = (unsigned)threads;
    entry->blocks_max = (unsigned)blocks *
                        (unsigned)(device->info.sm_count > 0 ? device->info.sm_count : 1);
    return GVM_OK;
}

static gvm_status load_kernel_locked(gvm_device *device, struct gvmi_kernel_set *set, gvmi_kernel kernel)
{
    gvmi_kernel_entry *entry = &set->kernels[kernel];
    gvmi_image image = image_of[kernel];
    CUfunction function;
    CUresult result;
    gvm_status status;

    if (entry->function != NULL)
        return GVM_OK;
    status = load_image_locked(device, set, image);
    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuModuleGetFunction(&function, set->modules[image], gvmi_kernel_names[kernel]);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuModuleGetFunction", "there is no kernel %s for device %d",
                                gvmi_kernel_names[kernel], device->info.ordinal);
    status = measure_kernel(device, gvmi_kernel_names[kernel], function, entry);
    if (status == GVM_OK)
        __atomic_store_n(&entry->function, function, __ATOMIC_RELEASE);
    return status;
}

gvm_status gvmi_kernel_entry_get(gvm_device *device, gvmi_kernel kernel, const gvmi_kernel_entry **out)
{
    struct gvmi_kernel_set *set = NULL;
    gvm_status status = get_kernel_set(device, &set);

    if (status != GVM_OK)
        return status;
    if (__atomic_load_n(&set->kernels[kernel].function, __ATOMIC_ACQUIRE) == NULL) {
        gvmi_shortage shortage = {0};

        do {
            gvmi_lock(&load_lock);
            status = load_kernel_locked(device, set, kernel);
            gvmi_unlock(&load_lock);
        } while (status == GVM_E_NOSPACE && gvmi_idle_retry(device, IMAGE_BYTES_ABOUT, &shortage));
    }
    *out = &set->kernels[kernel];
    return status;
}

gvm_status gvmi_kernels_load(gvm_device *device, gvmi_image image)
{
    const gvmi_kernel_entry *entry;
    gvm_status status = GVM_OK;

    for (int kernel = 0; kernel < GVMI_KERNEL_COUNT && status == GVM_OK; kernel++)
        if (image_of[kernel] == image)
            status = gvmi_kernel_entry_get(device, (gvmi_kernel)kernel, &entry);
    return status;
}
