/*
 * See query_heap_scan.h.
 *
 * The join asks for a batch when all rows of the one before have been returned. Where the GPU cannot do one,
 * its local plan has its rows, and all that follow: that begins with the batch, and then goes on with the plan
 * of the outer rows. So no row is there twice, and none is left out.
 */
#include "postgres.h"

#include "commands/explain.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "postgres/query_batch.h"
#include "postgres/query_heap.h"
#include "postgres/query_heap_scan.h"
#include "postgres/query_join.h"
#include "postgres/query_late.h"
#include "postgres/query_records.h"
#include "postgres/query_scan.h"
#include "postgres/reload.h"
#include "postgres/row_reader.h"
#include "postgres/whole.h"

/* Rows of the first batch: a LIMIT above may want few. */
#define ROWS_FIRST 4096

/* ---- the outer rows */

typedef struct batch_state
{
	CustomScanState	  css;
	gstore_row_batch *batch;
	uint32			  at;	 /* the next row of the batch, for the local plan */
	bool			  ended; /* there are no rows behind the batch */
} batch_state;

static PlanState *
child_of(const CustomScanState *node)
{
	return linitial(node->custom_ps);
}

static void
begin_child(CustomScanState *node, EState *estate, int flags)
{
	const CustomScan *plan = (const CustomScan *) node->ss.ps.plan;

	node->custom_ps = list_make1(ExecInitNode(linitial(plan->custom_plans), estate, flags));
}

static void
begin_batch(CustomScanState *node, EState *estate, int flags)
{
	batch_state *state = (batch_state *) node;

	begin_child(node, estate, flags);
	if ((flags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		state->batch = gstore_row_batch_create(node->ss.ss_ScanTupleSlot->tts_tupleDescriptor);
}

/* Takes the next rows in the place of those that are there. False: there are none. */
static bool
read_batch(batch_state *state, uint32 most)
{
	bool more = !state->ended;

	gstore_row_batch_clear(state->batch);
	while (more)
	{
		TupleTableSlot *row = ExecProcNode(child_of(&state->css));

		state->ended = TupIsNull(row);
		more = !state->ended && gstore_row_batch_add(state->batch, row, most);
	}
	return gstore_row_batch_count(state->batch) > 0;
}

/* Of the local plan: a row of the batch, or one behind it. */
static TupleTableSlot *
next_outer_row(ScanState *node)
{
	batch_state	   *state = (batch_state *) node;
	TupleTableSlot *slot = node->ss_ScanTupleSlot, *row = NULL;

	ExecClearTuple(slot);
	if (state->at < gstore_row_batch_count(state->batch))
		row = gstore_row_batch_row(state->batch, state->at++);
	else if (!state->ended)
		row = ExecProcNode(child_of(&state->css));
	state->ended |= row == NULL || TupIsNull(row);
	if (row == NULL || TupIsNull(row))
		return slot;
	slot_getallattrs(row);
	memcpy(slot->tts_values, row->tts_values, sizeof(Datum) * (Size) slot->tts_tupleDescriptor->natts);
	memcpy(slot->tts_isnull, row->tts_isnull, sizeof(bool) * (Size) slot->tts_tupleDescriptor->natts);
	return ExecStoreVirtualTuple(slot);
}

/* Where PostgreSQL executes a plan once more, as a row has been changed, it asks here in place of for the next row. */
static bool
recheck_outer_row(ScanState *node, TupleTableSlot *slot)
{
	return !TupIsNull(next_outer_row(node));
}

static TupleTableSlot *
execute_batch(CustomScanState *node)
{
	return ExecScan(&node->ss, next_outer_row, recheck_outer_row);
}

static void
rescan_child(CustomScanState *node)
{
	PlanState *child = child_of(node);

	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(child, node->ss.ps.chgParam);
	if (child->chgParam == NULL)
		ExecReScan(child);
}

static void
rescan_batch(CustomScanState *node)
{
	batch_state *state = (batch_state *) node;

	gstore_row_batch_clear(state->batch);
	state->at = 0;
	state->ended = false;
	rescan_child(node);
}

static void
end_node(CustomScanState *node)
{
	ExecEndNode(child_of(node));
}

static const CustomExecMethods batch_methods = {
	.CustomName = "GPU Batch",
	.BeginCustomScan = begin_batch,
	.ExecCustomScan = execute_batch,
	.ReScanCustomScan = rescan_batch,
	.EndCustomScan = end_node,
};

/* ---- the join */

typedef enum phase
{
	PHASE_BEFORE, /* no row has been asked for */
	PHASE_BATCHES,
	PHASE_LOCAL, /* the local plan has the rows */
} phase;

typedef struct join_state
{
	CustomScanState css;
	batch_state	   *outer;
	gstore_query	query;
	int				outputs;
	int	  *places; /* of these: in the outer row; below 0: they are of records, in their order */
	Datum *values; /* of a record */
	bool  *nulls;
	gstore_compiled *compiled;
	Relation		 relations[GQUERY_TABLES_MAX]; /* the inner ones, behind none */
	int				 inner_count;
	MemoryContext	 context;	  /* of all batches */
	MemoryContext	 run_context; /* of a batch's first run */
	MemoryContext	 later;		  /* of the latest one that goes on with it */
	phase			 phase;
	uint32			 rows_most;	 /* of the next batch */
	int64			 batches;	 /* that the GPU has done; for EXPLAIN */
	bool			 two_stores; /* which a table's rows are of: they are not in its view */
	gstore_view		 views[GQUERY_TABLES_MAX];
	gstore_view	   run_views[GQUERY_TABLES_MAX]; /* the same, and what a run adds in its context */
	gstore_request request;
	gstore_run	   run;
	gstore_late	  *late; /* of a batch's joined rows; NULL: there are no such columns */
} join_state;

static bool
returns_rows(const join_state *state)
{
	return state->query.sink == GSTORE_SINK_ROWS;
}

/* Within the local plan. */
static batch_state *
find_batch(const CustomScanState *node)
{
	PlanState *plan = child_of(node);

	while (!IsA(plan, CustomScanState) || ((CustomScanState *) plan)->methods != &batch_methods)
		plan = outerPlanState(plan);
	return (batch_state *) plan;
}

static void
set_places(join_state *state, const List *places)
{
	const ListCell *cell;

	state->outputs = list_length(places);
	state->places = palloc(sizeof *state->places * (Size) (state->outputs + 1));
	state->values = palloc(sizeof *state->values * (Size) (state->outputs + 1));
	state->nulls = palloc(sizeof *state->nulls * (Size) (state->outputs + 1));
	foreach(cell, places)
		state->places[foreach_current_index(cell)] = lfirst_int(cell);
}

static void
begin_join(CustomScanState *node, EState *estate, int flags)
{
	join_state *state = (join_state *) node;
	ListCell   *cell;

	begin_child(node, estate, flags);
	set_places(state, gstore_heap_of_plan((const CustomScan *) node->ss.ps.plan, &state->query));
	foreach(cell, state->query.joins)
		state->relations[1 + state->inner_count++] = ExecOpenScanRelation(
			estate, ((const gstore_query_join *) lfirst(cell))->relation, flags);
	if ((flags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	state->outer = find_batch(node);
	state->compiled = gstore_query_prepare(&state->query, &node->ss.ps);
	state->context = AllocSetContextCreate(CurrentMemoryContext, "gstore batches",
										   ALLOCSET_DEFAULT_SIZES);
	state->run_context = AllocSetContextCreate(CurrentMemoryContext, "gstore query",
											   ALLOCSET_DEFAULT_SIZES);
	state->later = AllocSetContextCreate(CurrentMemoryContext, "gstore query, later rows",
										 ALLOCSET_DEFAULT_SIZES);
}

/* ---- running */

/* Of all batches. */
static void
choose_views(join_state *state)
{
	MemoryContext  old = MemoryContextSwitchTo(state->context);
	const Snapshot snapshot = gstore_register_snapshots(state->relations, 1 + state->inner_count,
														state->css.ss.ps.state);

	state->two_stores = false;
	for (int i = state->inner_count; i > 0; i--)
	{
		gstore_whole rows;

		gstore_note_read(state->relations[i], snapshot);
		rows = gstore_whole_choose(state->relations[i], snapshot, false, &state->views[i]);
		if (rows == GSTORE_WHOLE_ROWS)
			state->views[0].name.device = state->views[i].name.device;
		state->two_stores |= rows == GSTORE_WHOLE_TWO_STORES;
	}
	UnregisterSnapshot(snapshot);
	MemoryContextSwitchTo(old);
}

static bool
run_batch(join_state *state)
{
	MemoryContext old;
	bool		  done;

	if (state->two_stores)
		return gstore_run_refuse(&state->run, state->compiled, GSTORE_WHY_TWO_STORES);
	old = MemoryContextSwitchTo(state->run_context);
	state->views[0].rows = state->views[0].live_rows = gstore_row_batch_count(state->outer->batch);
	memcpy(state->run_views, state->views, sizeof state->views);
	state->request = (gstore_request){.compiled = state->compiled,
									  .context = state->css.ss.ps.ps_ExprContext,
									  .batch = state->outer->batch,
									  .view = state->run_views,
									  .inner = state->relations + 1,
									  .inner_count = state->inner_count};
	done = gstore_run_begin(&state->run, &state->request);
	if (done && returns_rows(state)) /* no column of an outer row is one of these */
		state->late = gstore_late_create(state->compiled, state->query.keys, state->relations,
										 state->run_views);
	MemoryContextSwitchTo(old);
	return done;
}

static void
forget_run(join_state *state)
{
	gstore_run_forget(&state->run);
	state->late = NULL;
	MemoryContextReset(state->later);
	MemoryContextReset(state->run_context);
}

/* False: there are no more rows, or the local plan has them. */
static bool
next_batch(join_state *state)
{
	forget_run(state);
	if (!read_batch(state->outer, state->rows_most))
		return false;
	state->rows_most = GQUERY_BATCH_ROWS_MAX;
	if (run_batch(state))
	{
		state->batches++;
		return true;
	}
	state->phase = PHASE_LOCAL;
	return false;
}

static bool
fetch_piece(join_state *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->run_context);
	const bool	  fetched = gstore_run_fetch(&state->run);

	MemoryContextSwitchTo(old);
	return fetched;
}

static bool
next_record(join_state *state)
{
	bool more = state->phase == PHASE_BATCHES;

	if (more && state->run.at == state->run.count)
		gstore_late_restart(state->late);
	while (more && state->run.at == state->run.count)
		more = fetch_piece(state) || gstore_run_go_on(&state->run, &state->request, state->later) ||
			next_batch(state);
	return more;
}

/* ---- rows */

/* The columns behind those that are returned have no meaning. */
static TupleTableSlot *
store_tuple(const join_state *state, TupleTableSlot *slot)
{
	for (int i = state->outputs; i < slot->tts_tupleDescriptor->natts; i++)
		slot->tts_isnull[i] = true;
	return ExecStoreVirtualTuple(slot);
}

static TupleTableSlot *
next_local_row(join_state *state, TupleTableSlot *slot)
{
	TupleTableSlot *row = ExecProcNode(child_of(&state->css));

	if (TupIsNull(row))
		return slot;
	slot_getallattrs(row);
	memcpy(slot->tts_values, row->tts_values, sizeof(Datum) * (Size) state->outputs);
	memcpy(slot->tts_isnull, row->tts_isnull, sizeof(bool) * (Size) state->outputs);
	return store_tuple(state, slot);
}

/* Of joined rows a record begins with the number of the outer row. */
static TupleTableSlot *
make_tuple(join_state *state, TupleTableSlot *slot)
{
	const uint64 *record = state->run.records + state->run.at * (uint64) state->run.words;
	MemoryContext old = MemoryContextSwitchTo(state->css.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
	TupleTableSlot *row = returns_rows(state) ? gstore_row_batch_row(state->outer->batch, record[0])
											  : NULL;
	int				next = 0;

	gstore_query_result(state->compiled, record, state->run.text_words, state->values, state->nulls);
	MemoryContextSwitchTo(old);
	if (state->late != NULL)
		gstore_late_fill(state->late, &state->run, state->values, state->nulls);
	state->run.at++;
	for (int i = 0; i < state->outputs; i++)
	{
		const int place = state->places[i];

		slot->tts_values[i] = place >= 0 ? row->tts_values[place] : state->values[next];
		slot->tts_isnull[i] = place >= 0 ? row->tts_isnull[place] : state->nulls[next];
		next += place < 0;
	}
	return store_tuple(state, slot);
}

static TupleTableSlot *
next_row(ScanState *node)
{
	join_state	   *state = (join_state *) node;
	TupleTableSlot *slot = node->ss_ScanTupleSlot;

	ExecClearTuple(slot);
	if (state->phase == PHASE_BEFORE)
	{
		choose_views(state);
		state->phase = PHASE_BATCHES;
		state->rows_most = returns_rows(state) ? ROWS_FIRST : GQUERY_BATCH_ROWS_MAX;
	}
	if (next_record(state))
		return make_tuple(state, slot);
	return state->phase == PHASE_LOCAL ? next_local_row(state, slot) : slot;
}

static bool
recheck_row(ScanState *node, TupleTableSlot *slot)
{
	return !TupIsNull(next_row(node));
}

static TupleTableSlot *
execute_join(CustomScanState *node)
{
	return ExecScan(&node->ss, next_row, recheck_row);
}

static void
end_runs(join_state *state)
{
	gstore_run_end(&state->run);
	state->late = NULL;
	MemoryContextReset(state->later);
	MemoryContextReset(state->run_context);
	MemoryContextReset(state->context);
	state->phase = PHASE_BEFORE;
}

/*
 * Nodes between the join and the outer rows would have these begin anew when they are asked for rows, which may
 * be never, or in the middle of a batch; and an aggregate's hash table, of which no row has been asked for or
 * whose rows are the same, not at all. So each of them is told that what is below has changed, by a parameter
 * that there is not.
 */
static void
rescan_join(CustomScanState *node)
{
	join_state *state = (join_state *) node;
	const int	none = list_length(node->ss.ps.state->es_plannedstmt->paramExecTypes);
	PlanState  *last = &state->outer->css.ss.ps, *plan;

	end_runs(state);
	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(child_of(node), node->ss.ps.chgParam);
	for (plan = child_of(node); plan != last; plan = outerPlanState(plan))
		plan->chgParam = bms_add_member(plan->chgParam, none);
	last->chgParam = bms_add_member(last->chgParam, none);
	for (plan = child_of(node); plan != last; plan = outerPlanState(plan))
		ExecReScan(plan);
	ExecReScan(last);
}

static void
end_join(CustomScanState *node)
{
	join_state *state = (join_state *) node;

	if (state->context != NULL)
		end_runs(state);
	end_node(node);
}

/* ---- EXPLAIN */

static void
explain_join(CustomScanState *node, List *ancestors, ExplainState *es)
{
	const join_state *state = (const join_state *) node;
	const PlanState	 *plan = &node->ss.ps;
	StringInfoData	  text;

	initStringInfo(&text);
	appendStringInfo(&text, "%s rows", returns_rows(state) ? "join of" : "aggregate on");
	for (int i = 0; i < state->inner_count; i++)
		appendStringInfo(&text, ", %s", RelationGetRelationName(state->relations[1 + i]));
	ExplainPropertyText("GPU", text.data, es);
	gstore_join_explain(plan, state->query.joins, es);
	if (!returns_rows(state))
		gstore_explain_expressions(plan, "GPU Group Key", state->query.keys, es);
	gstore_explain_expressions(plan, "GPU Aggregate", state->query.aggregates, es);
	if (gstore_scan_has_figures(plan, es))
	{
		ExplainPropertyInteger("GPU Batches", NULL, state->batches, es);
		gstore_query_explain(&state->run.figures,
							 state->phase == PHASE_LOCAL ? "by the local plan" : NULL, state->run.why,
							 returns_rows(state) ? "GPU Joined Rows" : "GPU Groups", es);
	}
}

static const CustomExecMethods join_methods = {
	.CustomName = "GPU Join",
	.BeginCustomScan = begin_join,
	.ExecCustomScan = execute_join,
	.ReScanCustomScan = rescan_join,
	.EndCustomScan = end_join,
	.ExplainCustomScan = explain_join,
};

/* ---- states */

static Node *
create_state(Size bytes, const CustomExecMethods *methods)
{
	CustomScanState *css = palloc0(bytes);

	NodeSetTag(css, T_CustomScanState);
	css->methods = methods;
	return (Node *) css;
}

static Node *
create_batch_state(CustomScan *plan)
{
	return create_state(sizeof(batch_state), &batch_methods);
}

static Node *
create_join_state(CustomScan *plan)
{
	return create_state(sizeof(join_state), &join_methods);
}

const CustomScanMethods gstore_heap_batch_scan = {"GPU Batch", create_batch_state},
						gstore_heap_join_scan = {"GPU Join", create_join_state};
