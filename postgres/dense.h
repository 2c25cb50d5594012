/* postgres/dense.h - copies of tables in one piece of device memory, while they are made.
 *
 * dense.c says when and by whom; the layouts are in kds.h and arrow_copy.h.
 */
#ifndef GSTORE_DENSE_H
#define GSTORE_DENSE_H

#include "postgres.h"

#include "utils/rel.h"

#include "postgres/window.h"

typedef struct gstore_dense {
    Relation relation;
    const gstore_view *view;
    gstore_far far;
    dsa_pointer record;
    uint64 items; /* rows that are not dead */
    void *head;   /* of head_bytes; written last */
    uint64 head_bytes;
    uint64 end; /* of what is laid out so far, at last of everything */
    MemoryContext scratch;
} gstore_dense;

/* How long a copy of what the view shows is; 0: without rows there is none. Of a view without its bitmap of dead
 * rows bodies count whole. */
extern uint64 gstore_dense_length(Relation relation, const gstore_view *view);

/* Bytes to the copy. */
extern void gstore_dense_put(gstore_dense *d, uint64 offset, const void *bytes, uint64 count);
/* From an area to the copy, on the device. */
extern void gstore_dense_put_area(gstore_dense *d, int index, gstore_part part, uint64 from,
                                  uint64 to, uint64 count);

/* Of format 'arrow': sets head, head_bytes and end; and all the rest, when the copy is made and zero. */
extern void gstore_dense_lay_out_arrow(gstore_dense *d);
extern void gstore_dense_fill_arrow(gstore_dense *d);

#endif
