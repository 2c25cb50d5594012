/* postgres/scan.h - which rows a statement sees, as row ranges of stores. */
#ifndef GSTORE_SCAN_H
#define GSTORE_SCAN_H

#include "commands/explain.h"
#include "executor/instrument.h"

#include "postgres/store.h"

/* Of what was committed, and of what this transaction added behind. */
#define GSTORE_ROW_RANGES_MAX 2

typedef struct gstore_row_range
{
	gstore_view view;
	uint64		first, limit; /* rows */
} gstore_row_range;

/*
 * Those that the snapshot sees, with what this transaction changed before the snapshot's command;
 * snapshot NULL: all that is committed, and all of this transaction. locked: the rows are to be changed or
 * locked; the caller holds the writers' lock, and all that is committed is seen (or the statement fails,
 * at REPEATABLE READ and above, if the snapshot does not see it). all: every row is to be read, which is worth a bitmap
 * of deleted rows on the device (deleted.h). Returns how many.
 */
extern int gstore_choose_rows(Relation relation, Snapshot snapshot, bool locked, bool all,
							  gstore_row_range row_ranges[GSTORE_ROW_RANGES_MAX]);

/* At REPEATABLE READ and above an ERROR (40001) if more is committed than the snapshot sees. The caller holds the writers' lock. */
extern void gstore_check_newest(Relation relation, Snapshot snapshot);

/* Every row of the ranges, in their order, as virtual tuples: for what looks at whole tables. */
typedef struct gstore_walk gstore_walk;

extern gstore_walk *
gstore_walk_begin(Relation relation, const gstore_row_range *row_ranges, int count);
/* False at the end. What the slot refers to lives until the next call. */
extern bool gstore_walk_next(gstore_walk *walk, TupleTableSlot *slot);
extern void gstore_walk_end(gstore_walk *walk);

/* One batch as the slots of its rows. Of a bare column any value stands for those that are not NULL. */
typedef struct gstore_output gstore_output;

extern gstore_output *gstore_output_create(int columns);
/* Of which columns (attribute number - 1), after the batch was read. */
extern void gstore_output_begin(gstore_output *output, const gstore_batch *batch,
								const gstore_view *view, const int *indexes, int count);
extern void gstore_output_fill(const gstore_output *output, uint64 place, TupleTableSlot *slot);

/* Whether EXPLAIN says what it did: as of PostgreSQL's own nodes not of one that was never executed, but in formats for programs. */
static inline bool
gstore_scan_has_figures(const PlanState *node, const ExplainState *es)
{
	return es->analyze && (es->format != EXPLAIN_FORMAT_TEXT || node->instrument->nloops > 0);
}

/* SERIALIZABLE: notes what a reader did not see, and who has read what is about to change. */
extern void gstore_note_read(Relation relation, Snapshot snapshot);

#endif
