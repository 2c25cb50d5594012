/* gvmem/rsvm_view.h - numbers of regions, and the table by which kernels find them; for gvmem/rsvm.h and gvmem/device/rsvm.h.
 *
 * Host code and device code include this header; it needs no other of the host's, so that NVRTC takes it.
 */
#ifndef GVMEM_RSVM_VIEW_H
#define GVMEM_RSVM_VIEW_H

#include <gvmem/region_view.h>

/* A region, whichever collection it is in; a collection has that of its first region. */
typedef uint64_t rgn_id;
typedef uint64_t rgn_coll_id;

#define RGN_NONE 0ull

/* What a map is for. */
typedef enum rgn_op {
    rgn_op_readonly = GVM_REGION_READ,
    rgn_op_writeonly = GVM_REGION_WRITE, /* all of the region is written */
    rgn_op_readwrite = GVM_REGION_READWRITE,
} rgn_op;

/* The metadata of a collection, itself a region. */
typedef const struct rgn_coll_data {
    uint64_t num_rgns;
    uint64_t rgn_bytes;
    rgn_id rgns[1]; /* num_rgns */
} * rgn_coll_meta;

/* The rest is for the headers named above. An id is the region's number in its collection, the collection's number
 * above it, and how often that number was given away above both: it is not given to another region. */
#define RSVM_COLLECTIONS_MAX 16384u
#define RSVM_REGION(id) ((uint32_t)(id))
#define RSVM_COLLECTION(id) ((uint32_t)((id) >> 32) & 0xffffu)
#define RSVM_FIRST(id) ((id) & ~0xffffffffull)

typedef struct rsvm_entry {
    gvm_region_view view;
    rgn_coll_id id; /* RGN_NONE: there is no such collection */
    rgn_id meta;    /* RGN_NONE: it has none */
} rsvm_entry;

typedef struct rsvm_table {
    uint64_t error; /* atomic: the first id used by a kernel that no collection has */
    uint64_t reserved[7];
    rsvm_entry entries[RSVM_COLLECTIONS_MAX];
} rsvm_table;

#endif
