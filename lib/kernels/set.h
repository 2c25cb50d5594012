/* kernels/set.h - what kernels/ hangs on a device. For load.c and launch.c alone.
 *
 * I1  a kernel's function is NULL until the kernel is ready; it is published last, and then nothing
 *     of it changes.
 * I2  a slot is free, or belongs to one call; a slot whose call could not wait for its stream stays
 *     taken, as the device may still write it.
 */
#ifndef GVMI_KERNELS_SET_H
#define GVMI_KERNELS_SET_H

#include "kernels/kernels.h"

typedef struct gvmi_kernel_entry {
    CUfunction function; /* atomic */
    unsigned block_threads;
    unsigned blocks_max; /* what the device runs at once */
} gvmi_kernel_entry;

/* A slot is a word on the device and a word of pinned host memory. They come GVMI_SLOTS at a time;
 * a call takes one. */
#define GVMI_SLOTS 64u
#define GVMI_SLOT_BYTES 64u /* a cache line each */
#define GVMI_SLABS_MAX 1024u

typedef struct gvmi_slab {
    CUdeviceptr device;
    gvmi_pinned host;
    uint64_t taken; /* one bit a slot */
} gvmi_slab;

struct gvmi_kernel_set {
    gvmi_mutex lock; /* GVMI_RANK_KERNELS: the slabs */
    CUmodule modules[GVMI_IMAGE_COUNT];
    gvmi_kernel_entry kernels[GVMI_KERNEL_COUNT];
    uint32_t slab_count;
    gvmi_slab slabs[GVMI_SLABS_MAX];
};

/* The device's set, made when first asked for; the kernel's entry, its image loaded when first
 * asked for. */
gvm_status gvmi_kernel_set_get(gvm_device *device, struct gvmi_kernel_set **out);
gvm_status gvmi_kernel_entry_get(gvm_device *device, gvmi_kernel kernel, const gvmi_kernel_entry **out);

/* kernels/launch.c: frees the slabs; the context is current, or was reset. */
void gvmi_result_slabs_free(const gvm_device *device, struct gvmi_kernel_set *set);

/* The text of GVMI_KERNELS. */
extern const char *const gvmi_kernel_names[GVMI_KERNEL_COUNT];

#endif
