/*
 * postgres/row_reader.h - columns of rows that are known by their numbers in a view: some hundred rows at a
 * time, by commands for all of them.
 */
#ifndef GSTORE_ROW_READER_H
#define GSTORE_ROW_READER_H

#include "postgres.h"

#include "postgres/scan.h"

#define GSTORE_READER_ROWS 256 /* at a time, at most */

typedef struct gstore_row_reader gstore_row_reader;

/*
 * Of the columns with these attribute numbers, of which those in `bare` are told to be NULL or not alone. Lives
 * in the current memory context, as the view and both sets do at least as long.
 */
extern gstore_row_reader *gstore_row_reader_create(const gstore_view *view, int natts,
												   const Bitmapset *columns, const Bitmapset *bare);

/* How many rows may be read at a time: GSTORE_READER_ROWS, or fewer of long ones, so that they have room, as in scans. */
extern int gstore_row_reader_most(const gstore_row_reader *reader);

/*
 * Reads so many rows at most, in any order, some more than once; they are put into order. What was
 * read before is gone. Returns the bytes moved. ERROR if the view has no such row.
 */
extern uint64 gstore_row_reader_read(gstore_row_reader *reader, uint64 *rows, int count);

/* One of them into a slot of the table, with no other columns. What the slot refers to lives until others are read. */
extern void gstore_row_reader_fill(gstore_row_reader *reader, uint64 row, TupleTableSlot *slot);

#endif
