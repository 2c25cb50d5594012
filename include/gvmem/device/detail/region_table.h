/* gvmem/device/detail/region_table.h - the table of regions, as host and device see it; for gvmem/device/detail/region.h and the
 * library alone. The states of a region's word, their transitions and the invariants are in docs/design/region.md.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_TABLE_H
#define GVMEM_DEVICE_DETAIL_REGION_TABLE_H

#include <gvmem/callback_view.h>
#include <gvmem/region_view.h>

/* ---- the table, as the host makes it */

/* The word of a region. References lie below CROWDED, whose bit says that there are too many, or that a region
 * was unmapped more often than mapped: such a word is left alone. */
#define GVM_REGION_REFERENCE 1ull
#define GVM_REGION_REFERENCES 0x7fffffull
#define GVM_REGION_CROWDED (1ull << 22)
#define GVM_REGION_COPYING \
    (1ull << 23) /* the copy engine copies it home, or brings it; one that is in a frame stays there meanwhile */
#define GVM_REGION_RESIDENT (1ull << 24)
#define GVM_REGION_DIRTY (1ull << 25)
#define GVM_REGION_BUSY (1ull << 26)
#define GVM_REGION_REMOTE (1ull << 27)
#define GVM_REGION_LISTED (1ull << 28) /* in a frame, DIRTY, and in the list of changes */
#define GVM_REGION_SLOT_SHIFT 29
#define GVM_REGION_SLOT_BITS 27
#define GVM_REGION_SLOT_MASK (((1ull << GVM_REGION_SLOT_BITS) - 1) << GVM_REGION_SLOT_SHIFT)
#define GVM_REGION_USE_SHIFT 56
#define GVM_REGION_USE (1ull << GVM_REGION_USE_SHIFT)
#define GVM_REGION_PLACE \
    (GVM_REGION_COPYING | GVM_REGION_RESIDENT | GVM_REGION_DIRTY | GVM_REGION_REMOTE | \
     GVM_REGION_LISTED | GVM_REGION_SLOT_MASK)

/* The record of a region. */
typedef struct gvm_region_record {
    uint32_t version; /* how often it was changed, as far as this side knows */
    uint32_t flags;
} gvm_region_record;
enum {
    GVM_REGION_LIVE = 1,    /* it exists */
    GVM_REGION_CHANGED = 2, /* it is in the list of changes, or about to be */
    GVM_REGION_COUNTED = 4, /* and the list's count says so */
};

/* An entry of the list of changes: the region's number, and above it which lap of the list wrote it, modulo 32. The list has
 * room for at least twice the regions, since those of a lap that a sync has taken may come again while it takes the others. */
#define GVM_REGION_ENTRY_REGION \
    ((1u << GVM_REGION_SLOT_BITS) - 1) /* all bits: a sync has taken the entry */

/* The record of a frame. */
typedef struct gvm_region_frame {
    uint32_t owner; /* the region's number + 1; 0: free; GVM_REGION_RETIRED: it has no memory */
    uint32_t seen; /* its uses as of the last look of the hand, and what the policy notes: region_policy.h */
} gvm_region_frame;

#define GVM_REGION_RETIRED 0xffffffffu
#define GVM_REGION_COMING 0xfffffffeu /* the copy engine is to bring a region there */

/* The most numbers that kernels have to create regions, and the callback that gives more. */
#define GVM_REGION_SEGMENT 4096u
#define GVM_REGION_GIVE 0u

/* The checksum of what is in a frame, in check mode. The thread that has the region BUSY may touch it, and those that act with it. */
typedef struct gvm_region_sum {
    uint64_t known; /* as of when the frame was last equal to the home; 0: not known */
    uint64_t found; /* what threads are adding up */
} gvm_region_sum;

/* The copy of a large region, of which others take pieces. */
typedef struct gvm_region_share {
    uint64_t job;  /* what is copied where */
    uint32_t left; /* atomic: pieces that nobody has taken, as a number with a sign; above 0 only while the copy is open */
    uint32_t done; /* atomic: pieces that are copied */
} gvm_region_share;

#define GVM_REGION_PIECE (64u << 10) /* bytes; regions of two pieces or more are shared */

#define GVM_REGION_POISON \
    0xdeaddeaddeaddeadull /* in frames that are free, and that a write-only map gives, in check mode */

/* What a kernel did wrong; the first is kept for the host, with the region's number above it. */
enum {
    GVM_REGION_OK = 0,
    GVM_REGION_NO_SUCH = 1,
    GVM_REGION_SPOILT = 2, /* CROWDED for longer than a thread waits */
    GVM_REGION_LATE = 3,   /* BUSY for longer than a thread waits */
    GVM_REGION_NOT_MAPPED = 4,
    GVM_REGION_OVERWRITTEN = 5, /* and was not mapped to be written */
    GVM_REGION_OTHER_LAYOUT = 6, /* the kernel was compiled with headers of another version than the library's */
    GVM_REGION_NOT_WHOLE = 7, /* a warp of the block has lanes without threads */
};

/* Another number for each change of what is above or below: a kernel is compiled with its headers, and loaded by any program. */
#define GVM_REGION_LAYOUT 1u

/* The regions that are written home together ahead of need: region_clean.h. */
#define GVM_REGION_BATCH 256u
typedef struct gvm_region_cleaning {
    uint64_t turn;    /* atomic: how many batches there were, and GVM_REGION_CLEAN_... below */
    uint64_t copied;  /* the copy engine has copied so many; written by it alone */
    uint64_t at;      /* the hand's position up to which frames were looked at */
    uint64_t written; /* regions of all batches */
    uint64_t count;   /* atomic: of the batch */
    uint64_t mail;    /* address of gvm_region_mail in host memory */
    uint64_t list;    /* address of the batch, GVM_REGION_IN_FRAME() each */
    uint64_t padding[9];
} gvm_region_cleaning;

/* cleaning.turn: the number of batches so far, and below it one of these. */
#define GVM_REGION_TURN_SHIFT 2
#define GVM_REGION_TURN_PHASE 3u
enum {
    GVM_REGION_CLEAN_IDLE,
    GVM_REGION_CLEAN_ACTING,  /* threads make a batch, or end it */
    GVM_REGION_CLEAN_BATCH,   /* the batch is the host's until it is copied */
    GVM_REGION_CLEAN_STOPPED, /* by the host */
};

/* From kernels to the host. */
typedef struct gvm_region_mail {
    uint64_t turn;  /* the batch below is complete; atomic */
    uint64_t count; /* of it */
    uint64_t list[GVM_REGION_BATCH];
} gvm_region_mail;

/* A region and a frame as an entry of a list. */
#define GVM_REGION_IN_FRAME(region, frame) ((uint64_t)(region) << 32 | (frame))
#define GVM_REGION_OF_ENTRY(entry) ((uint32_t)((entry) >> 32))
#define GVM_REGION_FRAME_OF_ENTRY(entry) ((uint32_t)(entry))

/* Of a collection, in device memory. Counters are of all kernels since it was made. */
typedef struct gvm_region_table {
    uint64_t layout; /* GVM_REGION_LAYOUT; this and the next are at the beginning in all layouts */
    uint64_t error;  /* atomic: code, and the region's number above it */
    uint64_t address, stride_bytes, region_bytes;
    uint64_t words, records, frames,
        changes; /* addresses of arrays: uint64_t, gvm_region_record, gvm_region_frame, uint32_t (1 << change_shift) */
    uint32_t count, home;
    uint32_t frame_count; /* atomic: frames below it may have memory */
    uint32_t policy;      /* atomic: gvm_region_policy */
    uint64_t wait_ns;
    uint64_t sums; /* address of an array for the frames: gvm_region_sum; 0: not in check mode */
    gvm_region_shape shape;
    uint32_t columns, rows; /* windows beside and below each other in a slice; 0: no shape */
    uint32_t change_shift;  /* the list of changes has 1 << change_shift entries */
    uint32_t clean_low,
        clean_high; /* watermarks in percent of the frames; 0: no cleaning (region_clean.h) */
    uint32_t reserved;
    uint64_t change_count; /* atomic: of entries so far */
    uint64_t spares; /* address of a ring of numbers, uint32_t each, that kernels may give to regions */
    uint64_t spare_head, spare_tail; /* atomic */
    uint64_t spare_asked,
        spare_refused;   /* atomic: threads that found none; those of them that are told so */
    uint64_t collection; /* what the host knows it by */
    gvm_callback_view callbacks; /* of the space */
    uint64_t shares; /* address of an array for the regions: gvm_region_share; 0: regions are small, or in check mode */
    uint64_t padding;
    uint64_t fetched, written, evicted, remote;
    uint64_t padding2[12];
    uint64_t hand;  /* atomic, in a cache line of its own with: */
    uint64_t fresh; /* atomic: how many frames were looked at since frames became free last */
    uint64_t padding3[14];
    gvm_region_cleaning cleaning;
} gvm_region_table;

/* Where the window of a region begins, from the beginning of the array on. */
#define GVM_REGION_WINDOW_AT(t, region) \
    ((region) % (t)->columns * (t)->shape.width_bytes + \
     (region) / (t)->columns % (t)->rows * ((t)->shape.height * (t)->shape.row_pitch_bytes) + \
     (region) / (t)->columns / (t)->rows * ((t)->shape.depth * (t)->shape.slice_pitch_bytes))

#endif
