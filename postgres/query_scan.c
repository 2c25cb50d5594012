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

#include "postgres/query_path.h"
#include "postgres/query_scan.h"
#include "postgres/query_session.h"
#include "postgres/scan.h"
#include "postgres/settings.h"
#include "postgres/whole.h"

typedef enum phase
{
	PHASE_BEFORE, /* it has not run */
	PHASE_RECORDS,
	PHASE_LOCAL, /* the outer plan has the rows */
} phase;

typedef struct query_state
{
	gstore_query	 query;
	Relation		 relation;
	gstore_compiled *compiled;
	MemoryContext	 context; /* of a run */
	phase			 phase;
	gstore_session	*session; /* while there are more records than these; NULL: there are not */
	const uint64	*records;
	uint64			 count, at; /* of these; the next one */
	uint64			 left;		/* of the others */
	bool			 fetched;	/* those before are gone */
	char			 why[GSTORE_SESSION_WHY_BYTES];
	/* Of all runs, for EXPLAIN. */
	uint64		groups;
	gquery_cost cost;
	const char *place; /* where the last one was; NULL: there was none */
} query_state;

/* The callbacks of scans. */
static FdwRoutine scans;

static bool
is_query(const ForeignScanState *node)
{
	return gstore_is_query_plan(node->ss.ps.plan);
}

/* ---- beginning */

static void
begin_query(ForeignScanState *node, int flags)
{
	query_state *state = palloc0(sizeof *state);

	gstore_query_of_plan((const ForeignScan *) node->ss.ps.plan, &state->query);
	state->relation = ExecOpenScanRelation(node->ss.ps.state, state->query.relation, flags);
	node->fdw_state = state;
	if ((flags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	state->compiled = gstore_query_prepare(&state->query, &node->ss.ps);
	state->context = AllocSetContextCreate(CurrentMemoryContext, "gstore query",
										   ALLOCSET_DEFAULT_SIZES);
}

/* ---- running */

/* The results' next piece. Other than what is said of the first one, it is an error if it is not as it was said to be. */
static void
take_piece(query_state *state)
{
	const gquery_window *window = gstore_session_window(state->session);
	const uint32		 words = window->record_words;
	const gquery_span	 span = window->records;
	const uint64		 count = span.bytes / (words * sizeof(uint64) + (words == 0));

	if (words != (uint32) gstore_query_record_words(state->compiled) ||
		span.bytes % (words * sizeof(uint64)) != 0 || count > state->left ||
		(count == 0 && state->left > 0))
		elog(ERROR, "the executor of queries has returned no valid result");
	state->records = gstore_session_copy(state->session, span);
	state->count = count;
	state->at = 0;
	state->left -= count;
	if (state->left > 0)
		return;
	gstore_session_end(state->session, false);
	state->session = NULL;
}

static void
add_cost(query_state *state, const gquery_cost *cost)
{
	state->cost.rows += cost->rows;
	state->cost.read_bytes += cost->read_bytes;
	state->cost.host_bytes += cost->host_bytes;
	state->cost.kernel_ns += cost->kernel_ns;
	state->cost.total_ns += cost->total_ns;
	state->cost.scratch_bytes = Max(state->cost.scratch_bytes, cost->scratch_bytes);
}

static void
fill_window(gquery_window *window, const gquery_program *program, const gstore_call_table *rows)
{
	const uint64  at = TYPEALIGN(GQUERY_ALIGN, sizeof *window);
	gquery_table *table = &window->tables[0];

	memset(window, 0, sizeof *window);
	window->magic = GQUERY_MAGIC;
	window->version = GQUERY_VERSION;
	window->used = at + rows->dead_bytes;
	window->table_count = 1;
	strlcpy(table->token, rows->token, sizeof table->token);
	table->rows = rows->rows;
	table->dead = (gquery_span){at, rows->dead_bytes};
	table->deleted_at = rows->deleted_at;
	table->deleted_bytes = rows->deleted_bytes;
	if (rows->dead_bytes > 0)
		memcpy((uint8 *) window + at, rows->dead, rows->dead_bytes);
	window->program = *program;
	window->scratch_bytes_max = (uint64) gstore_gpu_query_memory_mb * 1024 * 1024;
}

/* True: the first records are there. */
static bool
run_there(query_state *state, gstore_view *view, const gquery_program *program)
{
	gstore_call_table rows;
	gquery_cost		  cost;
	gstore_session	 *session;

	gstore_whole_export(state->relation, view, GSTORE_EXPORT_QUERY, &rows);
	session = gstore_session_begin(view->name.device,
								   TYPEALIGN(GQUERY_ALIGN, sizeof(gquery_window)) + rows.dead_bytes,
								   state->why);
	if (session == NULL)
		return false;
	fill_window(gstore_session_window(session), program, &rows);
	if (!gstore_session_run(session, GQUERY_RUN, state->why))
		return false;
	cost = gstore_session_window(session)->cost;
	add_cost(state, &cost);
	state->session = session;
	state->left = gstore_session_window(session)->record_count;
	state->groups += state->left;
	state->fetched = false;
	take_piece(state);
	return true;
}

/* A table without rows has one group, if there are no keys. */
static void
take_nothing(query_state *state)
{
	state->records = palloc0(sizeof(uint64) * (Size) gstore_query_record_words(state->compiled));
	state->count = state->query.keys == NIL;
	state->groups += state->count;
	state->place = "nowhere, as the table has no rows";
}

/* Sums that PostgreSQL may refuse are left to it, as far as that is known before a row is returned. */
static bool
is_doubtful(const query_state *state)
{
	const int words = gstore_query_record_words(state->compiled);

	for (uint64 i = 0; i < state->count; i++)
		if (gstore_query_is_doubtful(state->compiled, state->records + i * words))
			return true;
	return false;
}

static bool
run_for_snapshot(ForeignScanState *node, query_state *state, Snapshot snapshot)
{
	gquery_program *program = palloc(sizeof *program);
	gstore_view		view;

	gstore_note_read(state->relation, snapshot);
	if (!gstore_whole_choose(state->relation, snapshot, &view))
	{
		take_nothing(state);
		return true;
	}
	strlcpy(state->why, "too many instructions or values", sizeof state->why);
	if (!gstore_query_compile(state->compiled, node->ss.ps.ps_ExprContext, &view, program))
		return false;
	gstore_wait_ready();
	if (!run_there(state, &view, program))
		return false;
	state->place = "on the GPU";
	if (!is_doubtful(state))
		return true;
	strlcpy(state->why, "a sum is infinite", sizeof state->why);
	return false;
}

static void
end_run(query_state *state)
{
	if (state->session != NULL)
		gstore_session_end(state->session, state->left > 0);
	state->session = NULL;
	state->records = NULL;
	state->count = state->at = state->left = 0;
	MemoryContextReset(state->context);
	state->phase = PHASE_BEFORE;
}

static void
run_query(ForeignScanState *node, query_state *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	const Snapshot snapshot = gstore_register_snapshot(state->relation, node->ss.ps.state->es_snapshot);
	const bool	   done = run_for_snapshot(node, state, snapshot);

	UnregisterSnapshot(snapshot);
	MemoryContextSwitchTo(old);
	if (!done)
		end_run(state);
	state->phase = done ? PHASE_RECORDS : PHASE_LOCAL;
}

/* ---- rows */

static bool
next_record(query_state *state)
{
	MemoryContext old;

	if (state->at < state->count)
		return true;
	if (state->session == NULL)
		return false;
	CHECK_FOR_INTERRUPTS();
	old = MemoryContextSwitchTo(state->context);
	pfree((void *) state->records);
	state->records = NULL;
	state->fetched = true;
	if (!gstore_session_run(state->session, GQUERY_FETCH, state->why))
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("the results of a query on the GPU cannot be fetched: %s", state->why)));
	take_piece(state);
	MemoryContextSwitchTo(old);
	return true;
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
	slot_getallattrs(row);
	count = row->tts_tupleDescriptor->natts;
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
	record = state->records + state->at++ * (uint64) gstore_query_record_words(state->compiled);
	gstore_query_result(state->compiled, record, slot->tts_values, slot->tts_isnull);
	return store_tuple(slot, list_length(state->query.keys) + list_length(state->query.aggregates));
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
	if (node->ss.ps.chgParam == NULL && state->phase == PHASE_RECORDS && !state->fetched)
		state->at = 0;
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
	MemoryContextDelete(state->context);
}

/* ---- EXPLAIN */

static void
explain_list(const ForeignScanState *node, const char *label, List *expressions, ExplainState *es)
{
	List	 *context, *texts = NIL;
	ListCell *cell;

	if (expressions == NIL)
		return;
	context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, NIL);
	foreach(cell, expressions)
		texts = lappend(texts,
						deparse_expression(lfirst(cell), context,
										   es->verbose || list_length(es->rtable) > 1, false));
	ExplainPropertyList(label, texts, es);
}

static void
explain_run(const query_state *state, ExplainState *es)
{
	if (state->phase == PHASE_LOCAL)
		ExplainPropertyText("Ran", psprintf("by the local plan: %s", state->why), es);
	else if (state->place != NULL)
		ExplainPropertyText("Ran", state->place, es);
	ExplainPropertyInteger("GPU Rows Read", NULL, (int64) state->cost.rows, es);
	ExplainPropertyInteger("GPU Groups", NULL, (int64) state->groups, es);
	ExplainPropertyInteger("GPU Bytes Read", NULL, (int64) state->cost.read_bytes, es);
	if (es->timing)
		ExplainPropertyFloat("GPU Kernel Time", "ms", (double) state->cost.kernel_ns / 1e6, 3, es);
}

static void
explain_query(ForeignScanState *node, ExplainState *es)
{
	const query_state *state = node->fdw_state;

	ExplainPropertyText("GPU",
						psprintf("aggregate on %s", RelationGetRelationName(state->relation)), es);
	explain_list(node, "GPU Filter", state->query.filters, es);
	explain_list(node, "GPU Group Key", state->query.keys, es);
	explain_list(node, "GPU Aggregate", state->query.aggregates, es);
	if (es->analyze)
		explain_run(state, es);
}

/* ---- which of both */

static void
gstoreBeginForeignScan(ForeignScanState *node, int flags)
{
	(is_query(node) ? begin_query : scans.BeginForeignScan)(node, flags);
}

static TupleTableSlot *
gstoreIterateForeignScan(ForeignScanState *node)
{
	return (is_query(node) ? iterate_query : scans.IterateForeignScan)(node);
}

static bool
gstoreRecheckForeignScan(ForeignScanState *node, TupleTableSlot *slot)
{
	return !is_query(node) || recheck_query(node, slot);
}

static void
gstoreReScanForeignScan(ForeignScanState *node)
{
	(is_query(node) ? rescan_query : scans.ReScanForeignScan)(node);
}

static void
gstoreEndForeignScan(ForeignScanState *node)
{
	(is_query(node) ? end_query : scans.EndForeignScan)(node);
}

static void
gstoreExplainForeignScan(ForeignScanState *node, ExplainState *es)
{
	(is_query(node) ? explain_query : scans.ExplainForeignScan)(node, es);
}

static void
gstoreShutdownForeignScan(ForeignScanState *node)
{
	if (!is_query(node))
		scans.ShutdownForeignScan(node);
}

void
gstore_query_scan_callbacks(FdwRoutine *routine)
{
	scans = *routine;
	routine->BeginForeignScan = gstoreBeginForeignScan;
	routine->IterateForeignScan = gstoreIterateForeignScan;
	routine->RecheckForeignScan = gstoreRecheckForeignScan;
	routine->ReScanForeignScan = gstoreReScanForeignScan;
	routine->EndForeignScan = gstoreEndForeignScan;
	routine->ExplainForeignScan = gstoreExplainForeignScan;
	routine->ShutdownForeignScan = gstoreShutdownForeignScan;
}
