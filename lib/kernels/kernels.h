/* kernels/kernels.h - device code of the library: which there is, and how it is launched.
 *
 * An image is one file in the dialect of gvmem/device/kernel.h, built as a fatbin and as a shared
 * object, both embedded in the library. Adding one is a row in GVMI_IMAGES, a row in GVMI_KERNELS
 * for each of its kernels, and a word in kernels/meson.build. Images are loaded once per device,
 * when the first of their kernels is asked for.
 */
#ifndef GVMI_KERNELS_KERNELS_H
#define GVMI_KERNELS_KERNELS_H

#include "memory/device.h"

/* clang-format off */

/* X(NAME): kernels/NAME.c, or as kernels/meson.build says */
#define GVMI_IMAGES(X) \
    X(basic) \
    X(region)

/* X(image, name) */
#define GVMI_KERNELS(X) \
    X(basic, fill_random_f64) \
    X(basic, sum_f64) \
    X(basic, checksum) \
    X(basic, compare) \
    X(region, region_resolve) \
    X(region, region_resolve_large) \
    X(region, region_release) \
    X(region, region_prefetch) \
    X(region, region_evict) \
    X(region, region_set_policy) \
    X(region, region_clean) \
    X(region, region_stop_cleaning) \
    X(region, region_claim_frames) \
    X(region, region_publish) \
    X(region, region_free_claimed) \
    X(region, region_retire_frames) \
    X(region, region_open_frames) \
    X(region, region_apply) \
    X(region, region_drop) \
    X(region, region_check) \
    X(region, region_collect) \
    X(region, region_unlist)

/* clang-format on */

#define GVMI_IMAGE_ENUMERATOR(name) GVMI_IMAGE_##name,
typedef enum gvmi_image { GVMI_IMAGES(GVMI_IMAGE_ENUMERATOR) GVMI_IMAGE_COUNT } gvmi_image;
#undef GVMI_IMAGE_ENUMERATOR

#define GVMI_KERNEL_ENUMERATOR(image, name) GVMI_KERNEL_##name,
typedef enum gvmi_kernel { GVMI_KERNELS(GVMI_KERNEL_ENUMERATOR) GVMI_KERNEL_COUNT } gvmi_kernel;
#undef GVMI_KERNEL_ENUMERATOR

/* Queues a kernel on a stream: as many blocks as it has work for, but no more than the device runs
 * at once, so that a kernel strides over its work and its blocks end together. params is the
 * kernel's one argument, copied before the call returns. The device is held and its context
 * current. Loads the image if need be; otherwise does not block.
 *
 * GVM_E_NOTSUP (no code for this device), GVM_E_NOMEM, GVM_E_NOSPACE, GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_kernel_launch(gvm_device *device, gvmi_kernel kernel, const void *params,
                              uint64_t blocks, CUstream stream);

/* Loads all kernels of an image, so that their launches need no memory and take no lock. The device is held and its context
 * current; no lock is held.
 *
 * As gvmi_kernel_launch() */
gvm_status gvmi_kernels_load(gvm_device *device, gvmi_image image);

/* ---- results: one 64-bit word that a kernel leaves for the host
 *
 *     gvmi_result_begin(device, 0, stream, &result);     takes a word, queues making it 0
 *     params.result = result.words.device; gvmi_kernel_launch(...);
 *     gvmi_result_end(device, &result, status, &value);  waits for the stream, gives the word back
 */
typedef struct gvmi_result {
    gvmi_words words;
    CUstream stream;
} gvmi_result;

/* GVM_E_INVALID  the stream is being captured into a graph */
gvm_status gvmi_result_begin(gvm_device *device, uint8_t byte, CUstream stream, gvmi_result *out);

/* Must follow every begin that succeeded, with the status of what came between: if that is a
 * failure, it is passed on. */
gvm_status gvmi_result_end(gvm_device *device, const gvmi_result *result, gvm_status status,
                           uint64_t *value);

#endif
