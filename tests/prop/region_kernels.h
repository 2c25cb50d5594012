/* What region_ops.c and its kernels have in common: what a region holds, and what a kernel is to do. */
#ifndef PROP_REGION_KERNELS_H
#define PROP_REGION_KERNELS_H

#include <gvmem/region_view.h>

/* Word w of region r: its place above, and below how often the region was written. */
#define REGION_COUNT_BITS 24
#define REGION_WORD(region, w) (((uint64_t)(region) << 44) | ((uint64_t)((w)&0xfffffu) << 24))
#define REGION_COUNT(word) ((word) & ((1ull << REGION_COUNT_BITS) - 1))

#define LINES 8
#define HELD_MAX 3 /* regions that threads have mapped at once */

/* How they map the regions that others use as well. */
enum {
    HOW_PLAIN,
    HOW_ALTERNATE, /* threads: by lanes; warps and blocks: in two steps */
    HOW_MANY,      /* threads: by lanes; warps and blocks: all at once */
    HOW_LINES,     /* threads: by lanes; warps: by a TLB of LINES lines; blocks: in two steps */
    HOW_COUNT,
};

/* Every region of the first collection may be used by all, those of the second belong to groups. */
typedef struct region_params {
    gvm_region_view shared, own;
    uint64_t writes; /* uint32_t for each shared region: how often it was written */
    uint64_t values; /* uint32_t for each region of a group: what it wrote last */
    uint64_t wrong;  /* uint64_t: words that held something else; then the first such place */
    uint64_t seed;
    uint32_t rounds;
    uint32_t by; /* GVM_REGION_BY_... */
    uint32_t held;
    uint32_t groups;
    uint32_t how; /* HOW_... */
    uint32_t reserved;
} region_params;

#endif
