/*
 * postgres/load.h - columns in Arrow's layout, appended to a table (docs/design/gstore.md, "Loading").
 *
 *   load.c         the SQL functions; what is staged, and files
 *   load_source.c  the bytes
 *   load_match.c   which column goes where, and whether it can
 *   load_append.c  a segment of rows, checked and written behind the rows of a view
 *   load_rows.c    a segment as rows, where the executor has to see them
 *
 * The source of the bytes is somebody else's, who may change them at any time: what is used is a copy, and what is
 * checked is that copy.
 */
#ifndef GSTORE_LOAD_H
#define GSTORE_LOAD_H

#include "postgres.h"

#include "executor/executor.h"
#include "utils/rel.h"

#include "postgres/load_batch.h"
#include "postgres/pending.h"

/* Where the bytes come from. */
typedef struct gstore_load_source
{
	uint64			  bytes;
	bool			  staged; /* they are on the device, part STAGED of this store: */
	gstore_store_name name;
	int				  file; /* otherwise */
	const char		 *path;
} gstore_load_source;

/* ---- load_source.c */

/* Of a file, without an ERROR. False: errno says why; 0: it has become shorter. */
extern bool
gstore_load_try_file(const gstore_load_source *source, uint64 offset, void *to, uint64 bytes);
extern void gstore_load_fail_file(const gstore_load_source *source) pg_attribute_noreturn();
/* ERROR if they cannot be read. */
extern void gstore_load_read(const gstore_load_source *source, uint64 offset, void *to, uint64 bytes);

/* A column of the table, and where its values come from. */
typedef struct gstore_load_field
{
	const gstore_load_column *from;			/* NULL: there is none, and every row is NULL */
	uint32					  offset_bytes; /* of an offset: 4 or 8 */
	int32					  max_chars;	/* of varchar(n); -1: any */
	uint64					  end;			/* the offset where the segment before ends */
} gstore_load_field;

typedef struct gstore_loading
{
	Relation				  relation;
	const gstore_load_source *source;
	const gstore_load_batch	 *batch;
	gstore_column *columns; /* of the table, by attribute number - 1, as format 'arrow' describes them */
	gstore_load_field		*fields;  /* the same */
	Bitmapset				*missing; /* attribute numbers that no column comes for */
	bool					 by_rows; /* the executor has to see all rows */
	gstore_pending			*pending;
	struct gstore_load_rows *rows;	  /* NULL: it has seen none yet */
	struct gstore_load_part *parts;	  /* NULL: no segment was read yet; memory for all of them, */
	uint8					*bytes;	  /* and for what is checked of one */
	MemoryContext			 context; /* of the statement */
	MemoryContext			 scratch; /* of a segment */
} gstore_loading;

/* ---- load_match.c */

/* Sets columns, fields, missing and by_rows. ERROR if the columns are not the table's, or the user may not give them. */
extern void gstore_load_match(gstore_loading *load);

/* A column's name in the encoding of the database; those of a gstore_load_column are UTF-8. */
static inline const char *
gstore_load_name(const gstore_loading *load, int index)
{
	return NameStr(TupleDescAttr(RelationGetDescr(load->relation), index)->attname);
}
/* Fields for the next batch of the same columns. ERROR if buffers are not as long as they must be. */
extern void gstore_load_check_batch(gstore_loading *load);

/* ---- load_append.c */

/* A segment: rows [first, first + count) of the batch; first is a multiple of 8. */
typedef struct gstore_load_segment
{
	uint64					 first, count;
	struct gstore_load_part *parts; /* by attribute number - 1 */
	bool ragged; /* a row is NULL that has bytes: such rows are not written as they are */
} gstore_load_segment;

/* So many rows at a time. */
extern uint64 gstore_load_segment_rows(const gstore_loading *load);
/* Bitmaps and offsets, checked; in load->scratch. */
extern void gstore_load_read_segment(gstore_loading *load, gstore_load_segment *segment);
/* Writes it behind the view's rows, checks what has to be, and moves the view on. Returns the bytes written. */
extern uint64
gstore_load_append(gstore_loading *load, const gstore_load_segment *segment, gstore_view *state);

/* ---- load_rows.c */

/* Inserts it row by row. */
extern void gstore_load_insert(gstore_loading *load, const gstore_load_segment *segment);
extern void gstore_load_rows_end(gstore_loading *load);

#endif
