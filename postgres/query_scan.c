/*
 * See query_scan.h.
 *
 * The query runs when its first row is asked for. From then on its rows are the executor's records, or, where it could not
 * run, those of the outer plan: never both.
 */
#include "postgres.h"

#include "commands/explain.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"

#include "postgres/query_async.h"
#include "postgres/query_join.h"
#include "postgres/query_late.h"
#include "postgres/query_order.h"
#include "postgres/query_path.h"
#include "postgres/query_records.h"
#include "postgres/query_scan.h"
#include "postgres/reload.h"
#include "postgres/row_reader.h"
#include "postgres/scan.h"
#include "postgres/whole.h"

/* Joined rows that a run has, about, and how many times as many the next one: a LIMIT above may want few. */
#define ROWS_FIRST	UINT64CONST(4096)
#define ROWS_GROWTH 16

typedef enum phase
{
	PHASE_BEFORE, /* it has not run */
	PHASE_RECORDS,
	PHASE_LOCAL, /* the outer plan has the rows */
} phase;

typedef struct query_state
{
	gstore_ahead	 ahead;
	gstore_query	 query;
	Relation		 relations[GQUERY_TABLES_MAX]; /* the outer one, then the inner ones */
	int				 inner_count;
	gstore_compiled *compiled;
	List			*limits;  /* of ExprState; of groups in an order */
	MemoryContext	 context; /* of a run */
	MemoryContext	 later;	  /* of the latest one that goes on with it */
	phase			 phase;
	bool		   prepared; /* views and request are those of the first run, which has not begun */
	gstore_whole   rows;	 /* as choose_rows() says */
	gstore_view	   views[GQUERY_TABLES_MAX];
	gstore_request request; /* of the latest run */
	gstore_run	   run;
	int64		   after[GQUERY_ENTRY_WORDS_MAX]; /* of that */
	uint64		   wanted; /* rows of the first list that the LIMIT needs; 0: not known */
	gstore_late	  *late;   /* of joined rows; NULL: there are no such columns */
	uint64		   bytes;  /* moved for them, in the runs before */
} query_state;

/* ---- beginning */

static gstore_start start_query(ForeignScanState *node, bool unasked);

static void
begin_query(ForeignScanState *node, int flags)
{
	query_state *state = palloc0(sizeof *state);
	ListCell	*cell;

	gstore_query_of_plan((const ForeignScan *) node->ss.ps.plan, &state->query);
	state->relations[0] = ExecOpenScanRelation(node->ss.ps.state, state->query.relation, flags);
	foreach(cell, state->query.joins)
		state->relations[1 + state->inner_count++] = ExecOpenScanRelation(
			node->ss.ps.state, ((const gstore_query_join *) lfirst(cell))->relation, flags);
	node->fdw_state = state;
	if ((flags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	state->compiled = gstore_query_prepare(&state->query, &node->ss.ps);
	state->limits = ExecInitExprList(gstore_query_limits((const ForeignScan *) node->ss.ps.plan),
									 &node->ss.ps);
	state->context = AllocSetContextCreate(CurrentMemoryContext, "gstore query",
										   ALLOCSET_DEFAULT_SIZES);
	state->later = AllocSetContextCreate(CurrentMemoryContext, "gstore query, later rows",
										 ALLOCSET_DEFAULT_SIZES);
	gstore_ahead_init(&state->ahead, start_query, &state->run);
}

/* ---- running */

/* Whether rows are the result, and not groups. */
static bool
returns_rows(const query_state *state)
{
	return state->query.sink == GSTORE_SINK_ROWS || state->query.sink == GSTORE_SINK_FIRST_ROWS;
}

/* Whether these come by lists, the first ones first. */
static bool
has_lists(const query_state *state)
{
	return state->query.sink == GSTORE_SINK_FIRST_ROWS;
}

/* A table without rows has one group, if there are no keys. */
static void
take_nothing(query_state *state)
{
	state->run.words = gstore_query_record_words(state->compiled);
	state->run.records = palloc0(sizeof(uint64) * (Size) state->run.words);
	state->run.count = state->query.keys == NIL && !returns_rows(state);
	state->run.figures.records += state->run.count;
	state->run.figures.place = "nowhere, as the table has no rows";
}

/* So many of the first groups are returned, at most; all of them without a LIMIT. So many rows are in the first list. */
static uint64
count_wanted(const ForeignScanState *node, query_state *state)
{
	const uint64 limit = gstore_evaluate_limits(state->limits, node->ss.ps.ps_ExprContext);

	state->wanted = limit;
	if (has_lists(state))
		return Min(Max(limit, GSTORE_LIST_ROWS), GSTORE_LIST_ROWS_MOST);
	return limit > 0 ? limit : PG_UINT64_MAX;
}

/* GSTORE_WHOLE_NONE: the outer table has no rows. Inner ones may have none. */
static gstore_whole
choose_rows(const query_state *state, Snapshot snapshot, gstore_view *views)
{
	gstore_whole rows;

	for (int i = 0; i <= state->inner_count; i++)
		gstore_note_read(state->relations[i], snapshot);
	rows = gstore_whole_choose(state->relations[0], snapshot, false, &views[0]);
	for (int i = 1; i <= state->inner_count && rows == GSTORE_WHOLE_ROWS; i++)
		if (gstore_whole_choose(state->relations[i], snapshot, false, &views[i]) ==
			GSTORE_WHOLE_TWO_STORES)
			rows = GSTORE_WHOLE_TWO_STORES;
	return rows;
}

/* In state->context. */
static void
prepare_query(ForeignScanState *node, query_state *state)
{
	Snapshot snapshot;

	if (state->prepared)
		return;
	snapshot = gstore_register_snapshots(state->relations, 1 + state->inner_count, node->ss.ps.state);
	state->rows = choose_rows(state, snapshot, state->views);
	UnregisterSnapshot(snapshot);
	state->request = (gstore_request){.compiled = state->compiled,
									  .context = node->ss.ps.ps_ExprContext,
									  .relation = state->relations[0],
									  .view = state->views,
									  .inner = state->relations + 1,
									  .inner_count = state->inner_count,
									  .continues = has_lists(state)};
	if (state->query.order != NIL || state->query.having != NIL)
		state->request.list_max = count_wanted(node, state);
	else if (returns_rows(state))
		state->request.list_max = ROWS_FIRST;
	state->prepared = true;
}

static gstore_start
start_query(ForeignScanState *node, bool unasked)
{
	query_state	 *state = node->fdw_state;
	MemoryContext old;
	gstore_start  started = GSTORE_NOT_STARTED;

	if (state->phase != PHASE_BEFORE || (unasked && gstore_limits_may_raise(state->limits)))
		return started;
	old = MemoryContextSwitchTo(state->context);
	prepare_query(node, state);
	state->request.unasked = unasked;
	if (state->rows == GSTORE_WHOLE_ROWS)
		started = gstore_run_start(&state->run, &state->request);
	MemoryContextSwitchTo(old);
	return started;
}

static bool
run_prepared(query_state *state)
{
	if (!gstore_query_is_prepared(state->compiled))
		return gstore_run_refuse(&state->run, state->compiled,
								 "it has no instructions for the settings of now, as TimeZone");
	if (state->rows == GSTORE_WHOLE_NONE)
	{
		take_nothing(state);
		return true;
	}
	if (state->rows == GSTORE_WHOLE_TWO_STORES)
		return gstore_run_refuse(&state->run, state->compiled, GSTORE_WHY_TWO_STORES);
	state->request.unasked = false;
	if (!gstore_run_begin(&state->run, &state->request))
		return false;
	if (returns_rows(state))
		state->late = gstore_late_create(state->compiled, state->query.keys, state->relations,
										 state->views);
	return state->query.order == NIL ||
		gstore_run_sort(&state->run,
						has_lists(state) ? state->run.words
										 : gstore_query_entry_words(state->compiled));
}

static void
end_run(query_state *state)
{
	gstore_run_end(&state->run);
	state->bytes += state->late == NULL ? 0 : gstore_late_bytes(state->late);
	state->late = NULL;
	MemoryContextReset(state->context);
	MemoryContextReset(state->later);
	state->phase = PHASE_BEFORE;
	state->prepared = state->ahead.refused = false;
}

static void
run_query(ForeignScanState *node, query_state *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	bool		  done;

	gstore_ahead_begin(node);
	prepare_query(node, state);
	done = run_prepared(state);
	MemoryContextSwitchTo(old);
	if (!done)
		end_run(state);
	gstore_ahead_go_on(node);
	state->phase = done ? PHASE_RECORDS : PHASE_LOCAL;
}

/* ---- rows */

/* A list of the joined rows behind the last one of the list before: now it is an error if it cannot be made. It has more rows, or as many, if there is no room for more. */
static bool
make_next_list(query_state *state)
{
	const uint64 before = state->request.list_max;
	const Size	 words = (Size) state->run.words;

	if (state->run.count == 0 || state->run.count < before)
		return false;
	CHECK_FOR_INTERRUPTS();
	memcpy(state->after, state->run.records + (state->run.count - 1) * words, sizeof(int64) * words);
	gstore_run_forget(&state->run);
	state->request.after = state->after;
	state->request.after_words = (int) words;
	state->request.must_run = true;
	state->request.list_max = gstore_list_next_max(before);
	if (!gstore_run_begin(&state->run, &state->request))
	{
		state->request.list_max = before;
		if (!gstore_run_begin(&state->run, &state->request))
			gstore_run_fail(&state->run);
	}
	if (!gstore_run_sort(&state->run, state->run.words))
		gstore_run_fail(&state->run);
	return true;
}

/* Joined rows behind those that have been returned. */
static bool
go_on(query_state *state)
{
	if (has_lists(state))
		return make_next_list(state);
	state->request.list_max *= ROWS_GROWTH;
	return gstore_run_go_on(&state->run, &state->request, state->later);
}

static bool
next_record(query_state *state)
{
	MemoryContext old;
	bool		  more = true;

	if (state->run.at < state->run.count)
		return true;
	gstore_late_restart(state->late);
	old = MemoryContextSwitchTo(state->context);
	while (more && state->run.at == state->run.count)
		more = gstore_run_fetch(&state->run) || go_on(state);
	MemoryContextSwitchTo(old);
	return more;
}

static int
count_columns(const query_state *state)
{
	return list_length(state->query.keys) + list_length(state->query.aggregates);
}

static TupleTableSlot *
store_tuple(TupleTableSlot *slot, int count)
{
	for (int i = count; i < slot->tts_tupleDescriptor->natts; i++) /* the conditions are true of all */
	{
		slot->tts_values[i] = BoolGetDatum(true);
		slot->tts_isnull[i] = false;
	}
	return ExecStoreVirtualTuple(slot);
}

/* The outer plan's memory must outlast the row. */
static TupleTableSlot *
next_local_row(ForeignScanState *node, TupleTableSlot *slot)
{
	MemoryContext	old = MemoryContextSwitchTo(node->ss.ps.state->es_query_cxt);
	TupleTableSlot *row = ExecProcNode(outerPlanState(node));
	int				count;

	MemoryContextSwitchTo(old);
	if (TupIsNull(row))
		return slot;
	slot_getallattrs(row); /* a Sort may have more behind them */
	count = count_columns((query_state *) node->fdw_state);
	memcpy(slot->tts_values, row->tts_values, sizeof(Datum) * (Size) count);
	memcpy(slot->tts_isnull, row->tts_isnull, sizeof(bool) * (Size) count);
	return store_tuple(slot, count);
}

static TupleTableSlot *
iterate_query(ForeignScanState *node)
{
	query_state	   *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	const uint64   *record;

	ExecClearTuple(slot);
	if (state->phase == PHASE_BEFORE)
		run_query(node, state);
	if (state->phase == PHASE_LOCAL)
		return next_local_row(node, slot);
	if (!next_record(state))
		return slot;
	record = state->run.records + state->run.at * (uint64) state->run.words;
	gstore_query_result(state->compiled, record, state->run.text_words, slot->tts_values,
						slot->tts_isnull);
	if (state->late != NULL)
		gstore_late_fill(state->late, &state->run, slot->tts_values, slot->tts_isnull);
	state->run.at++;
	return store_tuple(slot, count_columns(state));
}

/*
 * Where somebody has changed a row meanwhile that the statement is to change, PostgreSQL executes the plan once more, and may ask
 * here, in place of for the next row, whether the slot has one.
 */
static bool
recheck_query(ForeignScanState *node, TupleTableSlot *slot)
{
	MemoryContext old = MemoryContextSwitchTo(node->ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
	const bool	  found = !TupIsNull(iterate_query(node));

	MemoryContextSwitchTo(old);
	return found;
}

/* With the same parameters the rows are the same; PostgreSQL itself begins anew with the outer plan. */
static void
rescan_query(ForeignScanState *node)
{
	query_state *state = node->fdw_state;

	if (node->ss.ps.chgParam == NULL && state->phase == PHASE_LOCAL)
		return;
	if (node->ss.ps.chgParam == NULL && state->phase == PHASE_RECORDS && !state->run.fetched)
	{
		state->run.at = 0;
		gstore_late_restart(state->late);
	}
	else
		end_run(state);
}

static void
end_query(ForeignScanState *node)
{
	query_state *state = node->fdw_state;

	if (state == NULL || state->context == NULL)
		return;
	end_run(state);
	MemoryContextDelete(state->later);
	MemoryContextDelete(state->context);
}

/* ---- EXPLAIN */

void
gstore_explain_expressions(const PlanState *node, const char *label, List *expressions, ExplainState *es)
{
	List	 *context, *texts = NIL;
	ListCell *cell;

	if (expressions == NIL)
		return;
	context = set_deparse_context_plan(es->deparse_cxt, node->plan, NIL);
	foreach(cell, expressions)
		texts = lappend(texts,
						deparse_expression(lfirst(cell), context,
										   es->verbose || list_length(es->rtable) > 1, false));
	ExplainPropertyList(label, texts, es);
}

static void
explain_query(ForeignScanState *node, ExplainState *es)
{
	const query_state *state = node->fdw_state;
	StringInfoData	   text;

	initStringInfo(&text);
	appendStringInfo(&text, "%s %s", returns_rows(state) ? "join of" : "aggregate on",
					 RelationGetRelationName(state->relations[0]));
	for (int i = 0; i < state->inner_count; i++)
		appendStringInfo(&text, ", %s", RelationGetRelationName(state->relations[1 + i]));
	ExplainPropertyText("GPU", text.data, es);
	gstore_explain_expressions(&node->ss.ps, "GPU Filter", state->query.filters, es);
	gstore_join_explain(&node->ss.ps, state->query.joins, es);
	if (!returns_rows(state))
		gstore_explain_expressions(&node->ss.ps, "GPU Group Key", state->query.keys, es);
	gstore_explain_expressions(&node->ss.ps, "GPU Aggregate", state->query.aggregates, es);
	gstore_explain_expressions(&node->ss.ps, "GPU Having", state->query.having, es);
	if (state->query.order != NIL)
		gstore_explain_order(node, state->query.order, state->query.order_directions, es);
	if (!gstore_scan_has_figures(&node->ss.ps, es))
		return;
	gstore_query_explain(&state->run.figures, state->phase == PHASE_LOCAL ? "by the local plan" : NULL,
						 state->run.why, returns_rows(state) ? "GPU Joined Rows" : "GPU Groups", es);
	if (state->late != NULL)
		ExplainPropertyInteger("Bytes Moved", NULL,
							   (int64) (state->bytes + gstore_late_bytes(state->late)), es);
}

/* ---- which of them */

/* The callbacks of a table's scan, and of what has some in their place. */
static FdwRoutine scans, queries, orders;

static const FdwRoutine *
callbacks_of(const ForeignScanState *node)
{
	const Plan *plan = node->ss.ps.plan;

	if (gstore_is_query_plan(plan))
		return &queries;
	return gstore_is_order_plan(plan) ? &orders : &scans;
}

static void
gstoreBeginForeignScan(ForeignScanState *node, int flags)
{
	callbacks_of(node)->BeginForeignScan(node, flags);
}

static TupleTableSlot *
gstoreIterateForeignScan(ForeignScanState *node)
{
	return callbacks_of(node)->IterateForeignScan(node);
}

static bool
gstoreRecheckForeignScan(ForeignScanState *node, TupleTableSlot *slot)
{
	const FdwRoutine *callbacks = callbacks_of(node);

	return callbacks->RecheckForeignScan == NULL || callbacks->RecheckForeignScan(node, slot);
}

static void
gstoreReScanForeignScan(ForeignScanState *node)
{
	callbacks_of(node)->ReScanForeignScan(node);
}

static void
gstoreEndForeignScan(ForeignScanState *node)
{
	callbacks_of(node)->EndForeignScan(node);
}

static void
gstoreExplainForeignScan(ForeignScanState *node, ExplainState *es)
{
	callbacks_of(node)->ExplainForeignScan(node, es);
}

static void
gstoreShutdownForeignScan(ForeignScanState *node)
{
	const FdwRoutine *callbacks = callbacks_of(node);

	if (callbacks->ShutdownForeignScan != NULL)
		callbacks->ShutdownForeignScan(node);
}

void
gstore_query_scan_callbacks(FdwRoutine *routine)
{
	scans = *routine;
	queries.BeginForeignScan = begin_query;
	queries.IterateForeignScan = iterate_query;
	queries.RecheckForeignScan = recheck_query;
	queries.ReScanForeignScan = rescan_query;
	queries.EndForeignScan = end_query;
	queries.ExplainForeignScan = explain_query;
	gstore_order_callbacks(&orders);
	routine->BeginForeignScan = gstoreBeginForeignScan;
	routine->IterateForeignScan = gstoreIterateForeignScan;
	routine->RecheckForeignScan = gstoreRecheckForeignScan;
	routine->ReScanForeignScan = gstoreReScanForeignScan;
	routine->EndForeignScan = gstoreEndForeignScan;
	routine->ExplainForeignScan = gstoreExplainForeignScan;
	routine->ShutdownForeignScan = gstoreShutdownForeignScan;
}
