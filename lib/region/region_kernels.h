/* region/region_kernels.h - the arguments of the kernels in region_kernels.c, as host and device see them. Addresses are numbers. */
#ifndef GVMI_REGION_REGION_KERNELS_H
#define GVMI_REGION_REGION_KERNELS_H

#include <gvmem/region_view.h>

/* region_resolve, region_resolve_large, region_release, region_prefetch, region_evict */
typedef struct gvmi_region_list {
    gvm_region_view view;
    uint64_t regions;          /* uint32_t each */
    uint64_t slots, addresses; /* uint32_t and uint64_t each; 0: not wanted */
    uint64_t first, count;
    uint32_t access;
    uint32_t at_once; /* entries that a warp has at the same time */
} gvmi_region_list;

/* A change of a region, as one side passes it to the other. */
typedef struct gvmi_region_change {
    uint32_t region, version;
    uint32_t live; /* to the device: it exists from now on, or not any more */
    uint32_t done; /* from the device: not while it is mapped */
} gvmi_region_change;

/* region_clean, region_stop_cleaning, region_claim_frames, region_publish, region_free_claimed, region_set_policy, region_retire_frames,
 * region_open_frames, region_apply, region_drop, region_check, region_collect, region_unlist */
typedef struct gvmi_region_work {
    uint64_t table;
    uint64_t list; /* of regions, or of changes */
    uint64_t first, count;
    uint64_t result; /* word, first 0: how many were mapped, and left alone */
} gvmi_region_work;

#endif
