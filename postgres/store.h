/*
 * postgres/store.h - columns of a store: rows in, batches of columns out.
 *
 * The layout is in docs/design/gstore.md.
 */
#ifndef GSTORE_STORE_H
#define GSTORE_STORE_H

#include "postgres.h"

#include "executor/tuptable.h"
#include "nodes/bitmapset.h"
#include "utils/rel.h"

#include "postgres/directory.h"
#include "postgres/form.h"
#include "postgres/window.h"

#define GSTORE_BODY_ALIGN 8u /* of bodies; the first one's offset */

/* ---- what a table's columns look like now */

/* arrow: as a store of that format has them. */
extern gstore_column *gstore_describe(Relation relation, bool arrow);

/* The same of one of them, by its index. */
extern gstore_column gstore_describe_column(Relation relation, int index, bool arrow);

/* Whether values of a stored type, which may be gone, are the same as those of the column's type now. */
extern bool gstore_is_same_type(Oid stored, Oid now);

/* The first column (attribute number) that the store has in another form than the table's; 0: there is none. */
extern int gstore_find_other_form(Relation relation, const gstore_view *view);
/* ERROR if there is one. */
extern void gstore_check_columns(Relation relation, const gstore_view *view);

/* ---- writing */

typedef struct gstore_writer gstore_writer;

/*
 * Stages rows behind state->rows, which grows, as do the columns' marks in it; nothing is sure to be in
 * the store before it is flushed: what could not be written fails the next flush, and every other until
 * the caller has gone back behind it. Has a context of its own in the current memory context: a write that is under
 * way when that goes, or it is freed, is given up.
 */
extern gstore_writer *gstore_writer_create(TupleDesc desc, const gstore_column *columns);
extern void gstore_write_row(gstore_writer *writer, gstore_view *state, TupleTableSlot *slot);
extern void gstore_writer_free(gstore_writer *writer);
extern void gstore_flush(gstore_writer *writer, gstore_view *state);
/* Forgets rows that are only staged. */
extern void gstore_writer_forget(gstore_writer *writer);
/* The same, and those behind state->rows; with what they did to state undone by the caller. */
extern void gstore_writer_back_to(gstore_writer *writer, const gstore_view *state);
/*
 * Flushes go there instead of to the store. Its first row is 0; of columns that have NULLs, has_nulls is set
 * from the start.
 */
typedef void (*gstore_sink)(void *argument, const gstore_piece *pieces, int count);
extern void gstore_writer_redirect(gstore_writer *writer, gstore_sink sink, void *argument);
/*
 * Adds the pieces that write bits of rows or elements [first, first + count) to an area, of which the first is bits[0]'s
 * lowest; there: the area has those before, which are set otherwise. Returns how many pieces, at most two; palloc'd.
 */
extern int gstore_add_bits(const gstore_view *state, int index, gstore_part part, uint64 first,
						   uint64 count, uint8 *bits, bool there, gstore_piece *pieces);
/* Columns from this index on were added to the table: the rows that are there have NULL in them. */
extern void gstore_fill_new_columns(gstore_view *state, int first);

/* ---- reading */

typedef struct gstore_batch_column
{
	const uint8 *values;  /* NULL: it is bare, and `nulls` marks it; or unseen */
	const uint8 *nulls;	  /* NULL: none is NULL. Its first bit is that of row `nulls_from` */
	const uint8 *bodies;  /* the byte at offset bodies_from of the area */
	const uint8 *uniform; /* of uniform columns: what the area has. Their `values` have headers */
	uint64		 bodies_from;
} gstore_batch_column;

typedef struct gstore_batch
{
	uint64 first, count; /* rows */
	uint64 nulls_from;
	const Bitmapset *unseen; /* of the others, columns that are not in rows: values of uniform ones get no headers */
	const Bitmapset		 *bare;	   /* columns of which no more is read than which rows are NULL */
	gstore_batch_column	 *columns; /* by attribute number - 1; only those read are filled */
	struct gstore_buffer *buffers;
	MemoryContext		  context;
} gstore_batch;

extern gstore_batch *gstore_batch_create(int columns);

/*
 * Reads rows from first on, at most count and as many as are handy at a time, of the columns whose
 * attribute numbers are in wanted. What the batch had before is gone. Returns the bytes moved.
 */
extern uint64 gstore_read(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted,
						  uint64 first, uint64 count);

/* The same in steps: which rows, then columns of them, some now and some later. */
extern uint64 gstore_rows_at_a_time(const gstore_view *view, const Bitmapset *wanted);
extern void	  gstore_batch_move(gstore_batch *batch, uint64 first, uint64 count);
extern uint64
gstore_read_columns(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted);
/* The same of several batches at once, which is a command for all of them. */
extern uint64 gstore_read_batches(gstore_batch *const *batches, int count, const gstore_view *view,
								  const Bitmapset *wanted);

static inline bool
gstore_is_null(const gstore_batch *batch, const gstore_column *column, int index, uint64 row)
{
	const gstore_batch_column *c = &batch->columns[index];

	if (gstore_is_variable(column))
		return ((const uint64 *) c->values)[row - batch->first] == 0;
	if (c->nulls == NULL)
		return false;
	return (c->nulls[(row - batch->nulls_from) / 8] >> ((row - batch->nulls_from) % 8) & 1) == 0;
}

/* Of a row that is not NULL there. Points into the batch if by reference. */
static inline Datum
gstore_value(const gstore_batch *batch, const gstore_column *column, int index, uint64 row)
{
	const gstore_batch_column *c = &batch->columns[index];
	const uint64			   at = row - batch->first;

	if (gstore_is_variable(column))
		return PointerGetDatum(c->bodies + (((const uint64 *) c->values)[at] - c->bodies_from));
	if (!column->by_value)
		return PointerGetDatum(c->values + at * gstore_width(column));
	switch (column->length)
	{
		case 1:
			return CharGetDatum(((const char *) c->values)[at]);
		case 2:
			return Int16GetDatum(((const int16 *) c->values)[at]);
		case 4:
			return Int32GetDatum(((const int32 *) c->values)[at]);
		default:
			return Int64GetDatum(((const int64 *) c->values)[at]);
	}
}

#endif
