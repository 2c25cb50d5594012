/* gvmem/region_view.h - what a kernel needs to map regions.
 *
 * gvm_collection_get_view() (gvmem/region.h) fills in a view. It is passed by value inside the kernel's argument, to the
 * functions of gvmem/device/region.h, and is good until the collection is destroyed.
 *
 * Host code and device code include this header; it needs no other, so that NVRTC takes it.
 */
#ifndef GVMEM_REGION_VIEW_H
#define GVMEM_REGION_VIEW_H

#include <gvmem/device/detail/types.h>

/* The number of no region. */
#define GVM_REGION_NONE 0xffffffffu

/* What a map is for. */
enum {
    GVM_REGION_READ = 1,
    GVM_REGION_WRITE = 2,
    GVM_REGION_READWRITE = 3,
};

enum {
    GVM_REGION_VIEW_CHECKED = 1, /* the space has GVM_SPACE_CHECK */
};

typedef struct gvm_region_view {
    uint64_t address;      /* of slot 0: slot s is at address + s * stride_bytes */
    uint64_t stride_bytes; /* between slots, a multiple of 16 */
    uint64_t region_bytes;
    uint32_t count; /* of regions, which have the numbers below it */
    uint32_t home;  /* the slot in host memory that is the home of region 0 */
    uint32_t flags; /* GVM_REGION_VIEW_... */
    uint32_t reserved;
    /* The rest is for gvmem/device/detail/region.h. */
    uint64_t words, table;
} gvm_region_view;

#endif
