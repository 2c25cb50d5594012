/*
 * Scanning: batches of rows, the conditions that a whole batch can be put to, rows.
 *
 * All row ranges are cut into units, which are handed out by a counter: this process's own,
 * or one in shared memory for all processes of a parallel scan. Of a unit, the columns that conditions
 * need are read first, and the others only if a row is left. Where conditions name rows by ctid, those
 * rows are read in the place of units.
 *
 * A scan that is to change or to lock its rows takes the writers' lock before it chooses what it sees:
 * of the target of UPDATE or DELETE, and of a table in FOR UPDATE, FOR SHARE and so on. There are no
 * locks of rows.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/sysattr.h"
#include "access/xact.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/pg_list.h"
#include "optimizer/optimizer.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"

#include "postgres/deleted.h"
#include "postgres/fdw.h"
#include "postgres/pending.h"
#include "postgres/qual.h"
#include "postgres/query_async.h"
#include "postgres/query_filter.h"
#include "postgres/reload.h"
#include "postgres/scan.h"
#include "postgres/tid.h"

#define LATE_TRIAL_BATCHES 4 /* before it is known whether reading late pays */

/* What a scan counts, for EXPLAIN. */
typedef struct counts
{
	uint64 batches, bytes, filtered;
} counts;

/*
 * A row range in a parallel scan's shared memory: its columns, and its bitmap if it is here, follow each other in the
 * order of the row ranges, behind shared_scan.
 */
typedef struct shared_row_range
{
	gstore_store_name name;
	uint64			  first, limit, rows, dead_bytes, deleted_at, deleted_bytes;
	int				  column_count;
} shared_row_range;

typedef struct shared_scan
{
	pg_atomic_uint64 next; /* unit */
	pg_atomic_uint64 batches, bytes, filtered;
	uint64			 unit_rows;
	int				 row_range_count;
	shared_row_range row_ranges[GSTORE_ROW_RANGES_MAX];
} shared_scan;

/* What is read, and evaluated on it. */
typedef struct reading
{
	Bitmapset	 *tested; /* columns that conditions need */
	Bitmapset	 *others; /* columns that rows need, without those */
	Bitmapset	 *all;
	Bitmapset	 *bare;	   /* those of all of which only what marks NULLs is needed */
	Bitmapset	 *unseen;  /* those of tested that rows do not need */
	int			 *indexes; /* of the columns that rows need, attribute number - 1 */
	int			  index_count;
	gstore_quals *quals; /* NULL: none */
	ExprState	 *rest;	 /* of a row, beside the plan's own; NULL: nothing */
} reading;

typedef struct scan_state
{
	gstore_ahead   ahead;
	MemoryContext  context;			/* of row ranges and batch */
	reading		   alone, filtered; /* without and with the filter on the GPU */
	const reading *reading;			/* one of both */
	gstore_filter *filter;			/* NULL: none */
	ExprState *gathered_rest; /* of filtered.quals, for rows that it has gathered; NULL: nothing */
	bool	   filter_known;  /* whether it runs, and which rows pass, with the parameters of now */
	uint64	   next_passed;	  /* of rows that have passed it */
	bool	   locks;		  /* of a table whose rows are to be changed or locked */
	bool	   waits;		  /* for that */
	bool	   chosen;		  /* row ranges and unit_rows are known */
	gstore_row_range row_ranges[GSTORE_ROW_RANGES_MAX];
	int				 row_range_count;
	uint64			 unit_rows, next_unit;
	gstore_tids		*tids;						/* NULL: no rows are named by ctid */
	const uint64	*named;						/* the rows; NULL: not evaluated yet */
	uint64 named_count, named_from, named_next; /* those of the batch: [named_from, named_next) */
	int	   named_range;
	shared_scan	   *shared; /* NULL: not parallel, or not any more */
	gstore_batch   *batch;
	gstore_output  *output;
	gstore_deleted *deleted;
	uint32		   *rows; /* of the batch, that are left */
	uint32			row_count, at;
	uint64			late_batches, late_used; /* read late: tried, and how many had a row left */
	counts			counts;
} scan_state;

/*
 * Of the UPDATE or DELETE that the statement is, or one of its WITH queries. INSERT scans what it writes
 * to by another entry of the range table.
 */
static bool
is_modified_relation(const ForeignScanState *node)
{
	const ForeignScan *plan = (const ForeignScan *) node->ss.ps.plan;
	const PlannedStmt *statement = node->ss.ps.state->es_plannedstmt;

	return list_member_int(statement->resultRelations, (int) plan->scan.scanrelid);
}

/* How FOR UPDATE and the like would wait; NULL: the scan's rows are not to be locked. */
static const LockWaitPolicy *
lock_policy(const ForeignScanState *node)
{
	const Index		   number = ((const Scan *) node->ss.ps.plan)->scanrelid;
	const ExecRowMark *mark = ExecFindRowMark(node->ss.ps.state, number, true);

	if (mark == NULL || mark->strength == LCS_NONE)
		return NULL;
	if (mark->waitPolicy == LockWaitSkip)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("SKIP LOCKED is not supported for table \"%s\" in GPU memory",
						RelationGetRelationName(node->ss.ss_currentRelation)),
				 errdetail("The table is locked as a whole, so that there are no rows to skip."),
				 errhint("Wait for the lock, or use NOWAIT.")));
	return &mark->waitPolicy;
}

static Bitmapset *
as_set(const List *numbers)
{
	Bitmapset *set = NULL;
	ListCell  *cell;

	foreach(cell, numbers)
		set = bms_add_member(set, lfirst_int(cell));
	return set;
}

/* lists: the columns that rows need, that conditions need, that are bare. */
static void
set_reading(reading *r, const List *lists, int at, List *tested, ForeignScanState *node)
{
	const List *wanted = list_nth(lists, at);
	ListCell   *cell;

	r->indexes = palloc(sizeof(int) * (Size) (list_length(wanted) + 1));
	foreach(cell, wanted)
		r->indexes[r->index_count++] = lfirst_int(cell) - 1;
	r->tested = as_set(list_nth(lists, at + 1));
	r->all = bms_union(as_set(wanted), r->tested);
	r->others = bms_difference(r->all, r->tested);
	r->unseen = bms_difference(r->tested, as_set(wanted));
	r->bare = as_set(list_nth(lists, at + 2));
	if (tested != NIL)
		r->quals = gstore_quals_create(tested, ((const Scan *) node->ss.ps.plan)->scanrelid,
									   &node->ss.ps);
}

/* Where the GPU is to evaluate conditions, a scan that has to do so itself is prepared as well. */
static void
begin_filter(ForeignScanState *node, scan_state *state)
{
	const ForeignScan *plan = (const ForeignScan *) node->ss.ps.plan;
	List			  *clauses = lthird(plan->fdw_exprs), *rest = NIL;
	const List		  *moved = list_nth(plan->fdw_private, 6);
	List			  *tested = list_copy(linitial(plan->fdw_exprs));
	MemoryContext	   old;
	ListCell		  *cell;

	set_reading(&state->filtered, plan->fdw_private, 0, linitial(plan->fdw_exprs), node);
	foreach(cell, clauses)
		if (list_nth_int(moved, foreach_current_index(cell)))
			tested = lappend(tested, lfirst(cell));
		else
			rest = lappend(rest, lfirst(cell));
	set_reading(&state->alone, plan->fdw_private, 3, tested, node);
	state->alone.rest = ExecInitQual(rest, &node->ss.ps);
	old = MemoryContextSwitchTo(state->context);
	state->filter = gstore_filter_create(clauses, plan->scan.scanrelid, state->filtered.all,
										 RelationGetDescr(node->ss.ss_currentRelation), &node->ss.ps);
	state->gathered_rest = ExecInitQual(linitial(plan->fdw_exprs), &node->ss.ps);
	MemoryContextSwitchTo(old);
}

static gstore_start start_scan(ForeignScanState *node, bool unasked);

static void
gstoreBeginForeignScan(ForeignScanState *node, int flags)
{
	const ForeignScan	 *plan = (const ForeignScan *) node->ss.ps.plan;
	const LockWaitPolicy *policy = lock_policy(node);
	scan_state			 *state = palloc0(sizeof *state);

	state->context = AllocSetContextCreate(CurrentMemoryContext, "gstore scan", ALLOCSET_DEFAULT_SIZES);
	if (lthird(plan->fdw_exprs) != NIL)
		begin_filter(node, state);
	else
		set_reading(&state->alone, plan->fdw_private, 0, linitial(plan->fdw_exprs), node);
	state->reading = &state->alone;
	if (lsecond(plan->fdw_exprs) != NIL)
		state->tids = gstore_tids_create(lsecond(plan->fdw_exprs), plan->scan.scanrelid, &node->ss.ps);
	state->locks = policy != NULL || is_modified_relation(node);
	state->waits = policy == NULL || *policy != LockWaitError;
	node->fdw_state = state;
	if (state->filter != NULL && !state->locks)
		gstore_ahead_init(&state->ahead, start_scan, gstore_filter_run_of(state->filter));
}

/* ---- units */

static uint64
units_of(const scan_state *state, const gstore_row_range *s)
{
	return (s->limit - s->first + state->unit_rows - 1) / state->unit_rows;
}

static uint64
unit_rows_of(const scan_state *state, const reading *r)
{
	Bitmapset *valued = bms_difference(r->all, r->bare);
	uint64	   rows = PG_UINT32_MAX;

	for (int i = 0; i < state->row_range_count; i++)
		rows = Min(rows, gstore_rows_at_a_time(&state->row_ranges[i].view, valued));
	bms_free(valued);
	return rows;
}

/* Units as large as the widest row range allows. */
static void
use_reading(ForeignScanState *node, scan_state *state, const reading *r)
{
	const int natts = RelationGetDescr(node->ss.ss_currentRelation)->natts;

	state->reading = r;
	state->batch->bare = r->bare;
	state->batch->unseen = r->unseen;
	state->unit_rows = unit_rows_of(state, r);
	if (state->rows != NULL)
		pfree(state->rows);
	state->rows = NULL;
	if (state->row_range_count > 0)
		state->rows = palloc(sizeof(uint32) * state->unit_rows);
	memset(node->ss.ss_ScanTupleSlot->tts_isnull, true, sizeof(bool) * (Size) natts);
}

/* Ranges are there. */
static void
prepare_scan(ForeignScanState *node, scan_state *state)
{
	const int natts = RelationGetDescr(node->ss.ss_currentRelation)->natts;

	state->batch = gstore_batch_create(natts);
	state->output = gstore_output_create(natts);
	state->deleted = gstore_deleted_create();
	use_reading(node, state, state->reading);
	state->chosen = true;
}

/* The writers' lock, to the end of the transaction. */
static void
lock_table(Relation relation, bool wait)
{
	if (wait)
		LockRelation(relation, ShareUpdateExclusiveLock);
	else if (!ConditionalLockRelation(relation, ShareUpdateExclusiveLock))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on relation \"%s\"", RelationGetRelationName(relation))));
	gstore_pending_keep_lock(relation);
}

/* What a row mark keeps, in ermExtra, from the first row that is asked for. */
typedef struct marked_rows
{
	bool			 are_compared;	  /* with what they are joined with, once more */
	int				 row_range_count; /* -1: not chosen yet */
	gstore_row_range row_ranges[GSTORE_ROW_RANGES_MAX];
} marked_rows;

/*
 * Whether a row may turn out to have been changed when it is locked. Those of tables in GPU memory do not: the
 * scan reads them after their table was locked.
 */
static bool
may_find_changes(const EState *estate)
{
	for (Index i = 0; i < estate->es_range_table_size; i++)
	{
		const ExecRowMark *mark = estate->es_rowmarks[i];

		if (mark != NULL && RowMarkRequiresRowShareLock(mark->markType) &&
			mark->relation->rd_rel->relkind != RELKIND_FOREIGN_TABLE)
			return true;
	}
	return false;
}

static marked_rows *
rows_of(const EState *estate, ExecRowMark *mark)
{
	marked_rows *rows = mark->ermExtra;

	if (rows != NULL)
		return rows;
	rows = MemoryContextAllocZero(GetMemoryChunkContext(mark), sizeof *rows);
	rows->are_compared = mark->strength == LCS_NONE || may_find_changes(estate);
	rows->row_range_count = -1;
	mark->ermExtra = rows;
	return rows;
}

/* Where the statement waited for rows, its own snapshot does not see them. */
static void
publish_snapshot(const ForeignScanState *node, const scan_state *state)
{
	const Index	 number = ((const Scan *) node->ss.ps.plan)->scanrelid;
	ExecRowMark *mark = ExecFindRowMark(node->ss.ps.state, number, true);
	marked_rows *rows;

	if (mark == NULL)
		return;
	rows = rows_of(node->ss.ps.state, mark);
	rows->row_range_count = state->row_range_count;
	memcpy(rows->row_ranges, state->row_ranges, sizeof rows->row_ranges);
}

static void
choose_snapshot(ForeignScanState *node, scan_state *state)
{
	const Relation relation = node->ss.ss_currentRelation;
	const Snapshot own = node->ss.ps.state->es_snapshot;
	MemoryContext  old = MemoryContextSwitchTo(state->context);
	const Snapshot snapshot = gstore_register_snapshot(relation, own, node->ss.ps.state);

	gstore_note_read(relation, snapshot);
	if (state->locks)
		lock_table(relation, state->waits);
	state->row_range_count = gstore_choose_rows(relation, snapshot, state->locks,
												state->tids == NULL, state->row_ranges);
	if (snapshot != own)
		publish_snapshot(node, state);
	UnregisterSnapshot(snapshot);
	prepare_scan(node, state);
	MemoryContextSwitchTo(old);
}

/* The next unit's row range and rows; NULL: there is none. */
static const gstore_row_range *
next_scan_unit(scan_state *state, uint64 *first, uint64 *count)
{
	uint64 unit = state->shared != NULL ? pg_atomic_fetch_add_u64(&state->shared->next, 1)
										: state->next_unit++;

	for (int i = 0; i < state->row_range_count; i++)
	{
		const gstore_row_range *s = &state->row_ranges[i];

		if (unit < units_of(state, s))
		{
			*first = s->first + unit * state->unit_rows;
			*count = Min(state->unit_rows, s->limit - *first);
			return s;
		}
		unit -= units_of(state, s);
	}
	return NULL;
}

static const gstore_row_range *
row_range_of(const scan_state *state, uint64 row)
{
	for (int i = 0; i < state->row_range_count; i++)
		if (row >= state->row_ranges[i].first && row < state->row_ranges[i].limit)
			return &state->row_ranges[i];
	return NULL;
}

/*
 * The same of the rows that are named: as many of them as are no further apart than a unit is long. A range after the other, as
 * rows of two stores may have the same number.
 */
static const gstore_row_range *
next_named_rows(scan_state *state, uint64 *first, uint64 *count)
{
	for (; state->named_range < state->row_range_count; state->named_range++, state->named_next = 0)
	{
		const gstore_row_range *s = &state->row_ranges[state->named_range];
		uint64					next = state->named_next;

		while (next < state->named_count &&
			   (state->named[next] < s->first || state->named[next] >= s->limit))
			next++;
		if (next == state->named_count)
			continue;
		state->named_from = next;
		*first = state->named[next];
		while (next < state->named_count &&
			   state->named[next] < Min(*first + state->unit_rows, s->limit))
			next++;
		*count = state->named[next - 1] - *first + 1;
		state->named_next = next;
		return s;
	}
	return NULL;
}

/* The same of the rows that have passed the filter on the GPU. */
static const gstore_row_range *
next_passed_rows(scan_state *state, uint64 *first, uint64 *count)
{
	const gstore_row_range *s;
	uint64					row = gstore_filter_next(state->filter, state->next_passed), limit;

	s = row_range_of(state, row);
	if (s == NULL)
		return NULL;
	limit = Min(row + state->unit_rows, s->limit);
	*first = row;
	*count = 1;
	state->next_passed = limit;
	for (; row < limit; row = gstore_filter_next(state->filter, row + 1))
		*count = row - *first + 1;
	return s;
}

static const gstore_row_range *
next_rows(scan_state *state, uint64 *first, uint64 *count)
{
	if (state->reading == &state->filtered)
		return next_passed_rows(state, first, count);
	return state->tids != NULL ? next_named_rows(state, first, count)
							   : next_scan_unit(state, first, count);
}

/* Deleted rows are not among them. */
static void
list_passed_rows(scan_state *state)
{
	const uint64 first = state->batch->first, limit = first + state->batch->count;
	uint32		 count = 0;

	for (uint64 row = first; row < limit; row = gstore_filter_next(state->filter, row + 1))
		state->rows[count++] = (uint32) (row - first);
	state->row_count = count;
}

static void
list_live_rows(scan_state *state, const gstore_view *view)
{
	const uint64 first = state->batch->first, count = state->batch->count;
	const uint8 *dead = gstore_deleted_bits(state->deleted, view, first, count);
	uint32		 live = 0;

	if (state->tids != NULL)
		for (uint64 i = state->named_from; i < state->named_next; i++)
		{
			if (!gstore_is_deleted(dead, first, state->named[i]))
				state->rows[live++] = (uint32) (state->named[i] - first);
		}
	else if (dead == NULL)
		for (; live < count; live++)
			state->rows[live] = live;
	else
		for (uint32 i = 0; i < count; i++)
		{
			state->rows[live] = i;
			live += !gstore_is_deleted(dead, first, first + i);
		}
	state->row_count = live;
}

static void
count_batch(scan_state *state, uint64 bytes, uint64 filtered)
{
	bytes += gstore_deleted_moved(state->deleted);
	state->counts.batches++;
	state->counts.bytes += bytes;
	state->counts.filtered += filtered;
	if (state->shared != NULL)
	{
		pg_atomic_fetch_add_u64(&state->shared->batches, 1);
		pg_atomic_fetch_add_u64(&state->shared->bytes, (int64) bytes);
		pg_atomic_fetch_add_u64(&state->shared->filtered, (int64) filtered);
	}
}

/*
 * The columns that rows need besides those of the conditions, in a second command if any row is left;
 * or in the first one, where there is nearly always one.
 */
static bool
reads_late(const scan_state *state)
{
	return state->reading->quals != NULL && !bms_is_empty(state->reading->others) &&
		(state->late_batches < LATE_TRIAL_BATCHES || state->late_used * 10 < state->late_batches * 9);
}

static gstore_start
start_scan(ForeignScanState *node, bool unasked)
{
	scan_state *state = node->fdw_state;

	if (state->filter_known)
		return GSTORE_NOT_STARTED;
	if (!state->chosen)
		choose_snapshot(node, state);
	return gstore_filter_start(state->filter, node->ss.ss_currentRelation, state->row_ranges,
							   state->row_range_count, node->ss.ps.ps_ExprContext, unasked);
}

/* What conditions need before the first row. */
static void
begin_rows(ForeignScanState *node, scan_state *state)
{
	ExprContext *context = node->ss.ps.ps_ExprContext;

	if (state->filter != NULL && !state->filter_known)
	{
		bool done;

		gstore_ahead_begin(node);
		done = gstore_filter_run(state->filter, node->ss.ss_currentRelation, state->row_ranges,
								 state->row_range_count, context);
		gstore_ahead_go_on(node);
		use_reading(node, state, done ? &state->filtered : &state->alone);
		state->filter_known = true;
	}
	if (state->tids != NULL && state->named == NULL)
	{
		state->named_count = gstore_tids_evaluate(state->tids, context, &state->named);
		state->named_next = state->named_range = 0;
	}
}

/* Of a batch whose rows are listed: its columns, and those rows that conditions leave. */
static void
read_batch(ForeignScanState *node, scan_state *state, const gstore_view *view)
{
	const reading *r = state->reading;
	const bool	   late = reads_late(state);
	const uint32   live = state->row_count;
	uint64		   bytes;

	bytes = gstore_read_columns(state->batch, view, late ? r->tested : r->all);
	if (r->quals != NULL)
		state->row_count = gstore_quals_select(r->quals, node->ss.ps.ps_ExprContext, state->batch,
											   view, state->rows, live);
	if (late)
	{
		state->late_batches++;
		if (state->row_count > 0)
		{
			state->late_used++;
			bytes += gstore_read_columns(state->batch, view, r->others);
		}
	}
	count_batch(state, bytes, live - state->row_count);
}

/* Reads the next unit that has rows. */
static bool
next_batch(ForeignScanState *node, scan_state *state)
{
	const gstore_row_range *s;
	uint64					first, count;

	do
	{
		CHECK_FOR_INTERRUPTS();
		s = next_rows(state, &first, &count);
		if (s == NULL)
			return false;
		gstore_batch_move(state->batch, first, count);
		if (state->reading == &state->filtered)
			list_passed_rows(state);
		else
			list_live_rows(state, &s->view);
		if (state->row_count > 0) /* not all of them are deleted */
			read_batch(node, state, &s->view);
	} while (state->row_count == 0);
	gstore_output_begin(state->output, state->batch, &s->view, state->reading->indexes,
						state->reading->index_count);
	state->at = 0;
	return true;
}

/* ---- rows */

static bool
takes_gathered(const scan_state *state)
{
	return state->reading == &state->filtered && gstore_filter_has_gathered(state->filter);
}

/* False: there is no row any more. */
static bool
next_row(ForeignScanState *node, scan_state *state, TupleTableSlot *slot)
{
	uint32 place;

	if (state->at == state->row_count)
	{
		MemoryContext old;
		bool		  more;

		if (!state->chosen)
			choose_snapshot(node, state);
		old = MemoryContextSwitchTo(state->context);
		begin_rows(node, state);
		more = !takes_gathered(state) && next_batch(node, state);
		MemoryContextSwitchTo(old);
		if (!more)
		{
			state->at = state->row_count = 0;
			return takes_gathered(state) && gstore_filter_take(state->filter, slot);
		}
	}
	place = state->rows[state->at++];
	gstore_output_fill(state->output, place, slot);
	gstore_row_to_tid(state->batch->first + place, &slot->tts_tid);
	ExecStoreVirtualTuple(slot);
	return true;
}

/* What the GPU was to evaluate, and did not, or was not put to a batch. */
static bool
passes_rest(ForeignScanState *node, const scan_state *state, TupleTableSlot *slot)
{
	ExprContext *context = node->ss.ps.ps_ExprContext;
	ExprState	*rest = takes_gathered(state) ? state->gathered_rest : state->reading->rest;
	bool		 passes;

	if (rest == NULL)
		return true;
	context->ecxt_scantuple = slot;
	passes = ExecQual(rest, context);
	if (!passes)
	{
		InstrCountFiltered1(node, 1);
		ResetExprContext(context);
	}
	return passes;
}

static TupleTableSlot *
gstoreIterateForeignScan(ForeignScanState *node)
{
	scan_state	   *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

	do
		ExecClearTuple(slot);
	while (next_row(node, state, slot) && !passes_rest(node, state, slot));
	return slot;
}

static void
reset_quals(const reading *r)
{
	if (r->quals != NULL)
		gstore_quals_reset(r->quals);
}

static void
gstoreReScanForeignScan(ForeignScanState *node)
{
	scan_state *state = node->fdw_state;

	if (state->filter != NULL && node->ss.ps.chgParam != NULL)
	{
		state->filter_known = false;
		gstore_filter_forget(state->filter);
	}
	if (state->filter != NULL)
		gstore_filter_rewind(state->filter);
	state->ahead.refused = false;
	reset_quals(&state->alone);
	reset_quals(&state->filtered);
	state->named = NULL;
	state->next_unit = state->next_passed = 0;
	state->at = state->row_count = 0;
}

static void
gstoreEndForeignScan(ForeignScanState *node)
{
	scan_state *state = node->fdw_state;

	if (state != NULL)
		MemoryContextDelete(state->context);
}

/*
 * ---- rows again, by their ctid
 *
 * PostgreSQL asks for a row that a scan has returned when it would lock it, by the mark's type, and when it puts
 * the conditions of a join to the new state of a row of another table, that somebody has changed meanwhile.
 */

static RowMarkType
gstoreGetForeignRowMarkType(RangeTblEntry *entry, LockClauseStrength strength)
{
	switch (strength)
	{
		case LCS_NONE:
			return ROW_MARK_REFERENCE;
		case LCS_FORKEYSHARE:
			return ROW_MARK_KEYSHARE;
		case LCS_FORSHARE:
			return ROW_MARK_SHARE;
		case LCS_FORNOKEYUPDATE:
			return ROW_MARK_NOKEYEXCLUSIVE;
		case LCS_FORUPDATE:
			return ROW_MARK_EXCLUSIVE;
	}
	return ROW_MARK_COPY; /* not reached */
}

/* Chooses as the scan did. */
static void
choose_marked_snapshot(const EState *estate, const ExecRowMark *mark, marked_rows *rows)
{
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(rows));

	rows->row_range_count = gstore_choose_rows(mark->relation, estate->es_snapshot,
											   mark->strength != LCS_NONE, false, rows->row_ranges);
	MemoryContextSwitchTo(old);
}

static void
fetch_row(const ExecRowMark *mark, const marked_rows *rows, uint64 row, TupleTableSlot *slot)
{
	for (int i = 0; i < rows->row_range_count; i++)
	{
		const gstore_row_range *s = &rows->row_ranges[i], alone = {s->view, row, row + 1};
		gstore_walk			   *walk;

		if (row < s->first || row >= s->limit)
			continue;
		walk = gstore_walk_begin(mark->relation, &alone, 1);
		if (gstore_walk_next(walk, slot))
		{
			slot->tts_tableOid = RelationGetRelid(mark->relation);
			gstore_row_to_tid(row, &slot->tts_tid);
			ExecMaterializeSlot(slot);
		}
		gstore_walk_end(walk);
	}
}

/*
 * An empty slot: the row is not to be locked, as this transaction has changed it since the scan began; so it is
 * for all tables. The table is locked already, where its rows are to be.
 */
static void
gstoreRefetchForeignRow(EState *estate, ExecRowMark *mark, Datum rowid, TupleTableSlot *slot,
						bool *updated)
{
	const uint64 row = gstore_tid_to_row((ItemPointer) DatumGetPointer(rowid));
	marked_rows *rows = rows_of(estate, mark);

	ExecClearTuple(slot);
	if (mark->strength != LCS_NONE && gstore_pending_has_deleted(RelationGetRelid(mark->relation), row))
		return;
	if (!rows->are_compared)
	{
		ExecStoreAllNullTuple(slot); /* nothing looks at it */
		return;
	}
	if (rows->row_range_count < 0)
		choose_marked_snapshot(estate, mark, rows);
	fetch_row(mark, rows, row, slot);
}

/* ---- parallel scans: the leader says what is seen, and all take units of it */

static bool
gstoreIsForeignScanParallelSafe(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *entry)
{
	return true;
}

static Size
gstoreEstimateDSMForeignScan(ForeignScanState *node, ParallelContext *context)
{
	scan_state *state = node->fdw_state;
	Size		size = MAXALIGN(sizeof(shared_scan));

	if (!state->chosen)
		choose_snapshot(node, state);
	for (int i = 0; i < state->row_range_count; i++)
		size += MAXALIGN(sizeof(gstore_column) * (Size) state->row_ranges[i].view.column_count) +
			MAXALIGN(state->row_ranges[i].view.dead_bytes);
	return size;
}

static void
gstoreInitializeDSMForeignScan(ForeignScanState *node, ParallelContext *context, void *place)
{
	scan_state	*state = node->fdw_state;
	shared_scan *shared = place;
	uint8		*to = (uint8 *) place + MAXALIGN(sizeof *shared);

	pg_atomic_init_u64(&shared->next, 0);
	pg_atomic_init_u64(&shared->batches, 0);
	pg_atomic_init_u64(&shared->bytes, 0);
	pg_atomic_init_u64(&shared->filtered, 0);
	shared->unit_rows = state->unit_rows;
	shared->row_range_count = state->row_range_count;
	for (int i = 0; i < state->row_range_count; i++)
	{
		const gstore_row_range *s = &state->row_ranges[i];
		const Size				columns = sizeof(gstore_column) * (Size) s->view.column_count;

		shared->row_ranges[i] = (shared_row_range){.name = s->view.name,
												   .first = s->first,
												   .limit = s->limit,
												   .rows = s->view.rows,
												   .dead_bytes = s->view.dead_bytes,
												   .deleted_at = s->view.deleted_at,
												   .deleted_bytes = s->view.deleted_bytes,
												   .column_count = s->view.column_count};
		memcpy(to, s->view.columns, columns);
		to += MAXALIGN(columns);
		if (s->view.dead_bytes > 0)
			memcpy(to, s->view.dead, s->view.dead_bytes);
		to += MAXALIGN(s->view.dead_bytes);
	}
	state->shared = shared;
}

static void
gstoreReInitializeDSMForeignScan(ForeignScanState *node, ParallelContext *context, void *place)
{
	pg_atomic_write_u64(&((shared_scan *) place)->next, 0);
}

static void
gstoreInitializeWorkerForeignScan(ForeignScanState *node, shm_toc *toc, void *place)
{
	scan_state	 *state = node->fdw_state;
	shared_scan	 *shared = place;
	uint8		 *from = (uint8 *) place + MAXALIGN(sizeof *shared);
	MemoryContext old = MemoryContextSwitchTo(state->context);

	state->row_range_count = shared->row_range_count;
	for (int i = 0; i < shared->row_range_count; i++)
	{
		const shared_row_range *s = &shared->row_ranges[i];

		state->row_ranges[i] = (gstore_row_range){.view = {.name = s->name,
														   .rows = s->rows,
														   .column_count = s->column_count,
														   .columns = (gstore_column *) from,
														   .dead_bytes = s->dead_bytes,
														   .deleted_at = s->deleted_at,
														   .deleted_bytes = s->deleted_bytes},
												  .first = s->first,
												  .limit = s->limit};
		from += MAXALIGN(sizeof(gstore_column) * (Size) s->column_count);
		if (s->dead_bytes > 0)
			state->row_ranges[i].view.dead = from;
		from += MAXALIGN(s->dead_bytes);
	}
	prepare_scan(node, state);
	Assert(state->unit_rows == shared->unit_rows);
	state->shared = shared;
	MemoryContextSwitchTo(old);
}

/* The shared memory is about to go; what others counted in it is wanted yet. */
static void
gstoreShutdownForeignScan(ForeignScanState *node)
{
	scan_state *state = node->fdw_state;

	if (state == NULL || state->shared == NULL)
		return;
	if (!IsParallelWorker())
		state->counts = (counts){.batches = pg_atomic_read_u64(&state->shared->batches),
								 .bytes = pg_atomic_read_u64(&state->shared->bytes),
								 .filtered = pg_atomic_read_u64(&state->shared->filtered)};
	state->shared = NULL;
	state->next_unit = UINT64_MAX / 2; /* this process has had its part */
}

/* ---- EXPLAIN */

static void
explain_columns(const ForeignScanState *node, const List *numbers, ExplainState *es)
{
	const TupleDesc desc = RelationGetDescr(node->ss.ss_currentRelation);
	List		   *names = NIL;
	ListCell	   *cell;

	foreach(cell, numbers)
		names = lappend(names, NameStr(TupleDescAttr(desc, lfirst_int(cell) - 1)->attname));
	if (names == NIL && es->format == EXPLAIN_FORMAT_TEXT)
		ExplainPropertyText("Columns Read", "none", es);
	else
		ExplainPropertyList("Columns Read", names, es);
}

static void
explain_quals(const ForeignScanState *node, const char *label, List *quals, ExplainState *es)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	List		*context;

	if (quals == NIL)
		return;
	context = set_deparse_context_plan(es->deparse_cxt, &plan->scan.plan, NIL);
	ExplainPropertyText(label,
						deparse_expression((Node *) make_ands_explicit(quals), context,
										   es->verbose || list_length(es->rtable) > 1, false),
						es);
}

static void
gstoreExplainForeignScan(ForeignScanState *node, ExplainState *es)
{
	const scan_state  *state = node->fdw_state;
	const ForeignScan *plan = (const ForeignScan *) node->ss.ps.plan;
	const List		  *wanted = linitial(plan->fdw_private), *tested = lsecond(plan->fdw_private);

	explain_quals(node, "TID Cond", lsecond(plan->fdw_exprs), es);
	explain_quals(node, "GPU Filter", lthird(plan->fdw_exprs), es);
	explain_quals(node, "Scan Filter", linitial(plan->fdw_exprs), es);
	explain_columns(node, list_concat_unique_int(list_copy(wanted), tested), es);
	if (!gstore_scan_has_figures(&node->ss.ps, es) || state == NULL)
		return;
	if (linitial(plan->fdw_exprs) != NIL)
		ExplainPropertyInteger("Rows Removed by Scan Filter", NULL, (int64) state->counts.filtered, es);
	ExplainPropertyInteger("Batches", NULL, (int64) state->counts.batches, es);
	ExplainPropertyInteger("Bytes Moved", NULL, (int64) state->counts.bytes, es);
	if (state->filter != NULL)
		gstore_filter_explain(state->filter, es);
}

void
gstore_scan_callbacks(FdwRoutine *routine)
{
	routine->BeginForeignScan = gstoreBeginForeignScan;
	routine->IterateForeignScan = gstoreIterateForeignScan;
	routine->ReScanForeignScan = gstoreReScanForeignScan;
	routine->EndForeignScan = gstoreEndForeignScan;
	routine->ExplainForeignScan = gstoreExplainForeignScan;
	routine->GetForeignRowMarkType = gstoreGetForeignRowMarkType;
	routine->RefetchForeignRow = gstoreRefetchForeignRow;
	routine->IsForeignScanParallelSafe = gstoreIsForeignScanParallelSafe;
	routine->EstimateDSMForeignScan = gstoreEstimateDSMForeignScan;
	routine->InitializeDSMForeignScan = gstoreInitializeDSMForeignScan;
	routine->ReInitializeDSMForeignScan = gstoreReInitializeDSMForeignScan;
	routine->InitializeWorkerForeignScan = gstoreInitializeWorkerForeignScan;
	routine->ShutdownForeignScan = gstoreShutdownForeignScan;
}
