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

/* Which region leaves its frame when another needs one: gvmem/region.h. */
typedef enum gvm_region_policy {
    GVM_REGION_LIRS = 0, /* one that was used once, or whose uses are far apart: approximates LIRS, in groups of 8 frames */
    GVM_REGION_CLOCK = 1,  /* one that was not mapped for a while */
    GVM_REGION_LRU = 2,    /* the least recently used of 8 frames, roughly */
    GVM_REGION_FIFO = 3,   /* the one that came first */
    GVM_REGION_NFU = 4,    /* one that was seldom mapped ("not frequently used") */
    GVM_REGION_STATIC = 5, /* none: what came first stays, the others are used at their homes */
} gvm_region_policy;

enum {
    GVM_REGION_VIEW_CHECKED = 1, /* the space has GVM_SPACE_CHECK */
    GVM_REGION_VIEW_SHAPED = 2, /* regions have a gvm_region_shape: slots from home on are windows, which lie elsewhere */
};

/* The shape of regions that are windows of an array of two or three dimensions. Their homes together are the array: region 0
 * is its first width_bytes of height rows in depth slices, region 1 the next width_bytes of these rows, and so on; where the
 * rows end the next height rows follow, and where the slices end the next depth slices. In a frame the rows of a region lie one
 * behind the other: gvm_region_pitch() of gvmem/device/region.h says which it is. All but height and depth are multiples of 16. */
typedef struct gvm_region_shape {
    uint64_t width_bytes; /* 0: none, each region is one piece */
    uint32_t height;      /* rows of a region; 0: 1 */
    uint32_t depth;       /* slices of a region; 0: 1 */
    uint64_t row_pitch_bytes; /* from one row of the array to the next; 0: as much as all regions beside each other need */
    uint64_t slice_pitch_bytes; /* from one slice of the array to the next; 0: as much as all regions below each other need */
} gvm_region_shape;

typedef struct gvm_region_view {
    uint64_t address; /* of slot 0: slot s is at address + s * stride_bytes; see GVM_REGION_VIEW_SHAPED */
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
