/*
 * postgres/query_batch.h - rows of a plan, kept by their numbers, which a query on the GPU has in the place of its outer table
 * (docs/design/query-joins.md).
 */
#ifndef GSTORE_QUERY_BATCH_H
#define GSTORE_QUERY_BATCH_H

#include "postgres.h"

#include "executor/tuptable.h"

#include "query/wire.h"

typedef struct gstore_row_batch gstore_row_batch;

/* gquery_column.number of an expression of the rows, of which there may be two words. */
static inline int
gstore_row_batch_number(int expression, int which)
{
	return 2 * expression + which;
}

/* Without rows. Lives in the current memory context. */
extern gstore_row_batch *gstore_row_batch_create(TupleDesc rows);
extern void				 gstore_row_batch_clear(gstore_row_batch *batch);

/* Adds a row. False: the batch is full then, as it has `most`, or takes work_mem, 8 MiB at least. */
extern bool	  gstore_row_batch_add(gstore_row_batch *batch, TupleTableSlot *row, uint32 most);
extern uint32 gstore_row_batch_count(const gstore_row_batch *batch);
/* Of a row, all values; they live until the batch is cleared, the slot until the next call. ERROR if there is no such row. */
extern TupleTableSlot *gstore_row_batch_row(gstore_row_batch *batch, uint64 number);

/* Columns of table 0 of a program, as gquery_window.batch has them. */
extern uint64 gstore_row_batch_bytes(const gstore_row_batch *batch, const gquery_program *program);
/* False: a value has no word. */
extern bool gstore_row_batch_write(gstore_row_batch *batch, const gquery_program *program, uint8 *to);

#endif
