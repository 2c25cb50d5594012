/*
 * postgres/dense.h - copies of tables in one piece of device memory, while they are made.
 *
 * dense.c says when and by whom; the layouts are in gvmem/gstore_kds.h and gvmem/gstore_arrow.h.
 *
 * Circle: dense.c and dense_arrow.c call each other, because dense_arrow.c is the part of dense.c for one format, and puts
 * bytes to the copy by the functions that dense.c has for the other one.
 */
#ifndef GSTORE_DENSE_H
#define GSTORE_DENSE_H

#include "postgres.h"

#include "utils/rel.h"

#include "postgres/directory.h"
#include "postgres/window.h"

typedef struct gstore_dense
{
	Relation		   relation;
	const gstore_view *view;
	gstore_far		   far;
	dsa_pointer		   record;
	uint64			   items; /* rows that are not dead */
	void			  *head;  /* of head_bytes; written last */
	uint64			   head_bytes;
	uint64			   end; /* of what is laid out so far, at last of everything */
	MemoryContext	   scratch;
} gstore_dense;

/* What a copy shows of the columns beside their values, as a number: another one after an ALTER that it would show. */
extern uint64 gstore_dense_definition(Relation relation);

/* The record of the version's copy, if that shows the columns as they are defined now. */
extern bool gstore_dense_find(Relation relation, const gstore_view *view, gstore_copy *out);

/*
 * ERROR if no copy can be made of the version: this transaction has altered columns, which a ROLLBACK undoes, but not
 * the copy; or the store has one in another form than the table's.
 */
extern void gstore_dense_check(Relation relation, const gstore_view *view);

/*
 * How long a copy of what the view shows is; 0: without rows there is none. Of a view without its bitmap of dead
 * rows bodies count whole. The store has columns in the table's form.
 */
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
