/* kernels/set.h - what kernels/ hangs on a device. For load.c and launch.c alone.
 *
 * I1  a kernel's function is NULL until the kernel is ready; it is published last, and then nothing
 *     of it changes.
 */
#ifndef GVMI_KERNELS_SET_H
#define GVMI_KERNELS_SET_H

#include "kernels/kernels.h"

typedef struct gvmi_kernel_entry {
    CUfunction function; /* atomic */
    unsigned block_threads;
    unsigned blocks_max; /* what the device runs at once */
} gvmi_kernel_entry;

struct gvmi_kernel_set {
    CUmodule modules[GVMI_IMAGE_COUNT];
    gvmi_kernel_entry kernels[GVMI_KERNEL_COUNT];
};

/* The kernel's entry; its image is loaded when first asked for. */
gvm_status gvmi_kernel_entry_get(gvm_device *device, gvmi_kernel kernel, const gvmi_kernel_entry **out);

/* The text of GVMI_KERNELS. */
extern const char *const gvmi_kernel_names[GVMI_KERNEL_COUNT];

#endif
