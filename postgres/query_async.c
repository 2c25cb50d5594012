/*
 * See query_async.h.
 *
 * Siblings are found when a statement begins, from the tree of its plan's states. A query that was sent and is not asked for ends with its
 * scan: the connection is closed, by which the executor sees it. It never waits for this backend: so a backend can have any number of them,
 * and wait for any one.
 *
 * Few are sent to a device at a time (GSTORE_SENT_MOST), as the executor gives a role a number of turns, and a query that waits for one for
 * long is left to its local plan. The others are sent when an answer was received. Answers that are kept until their scans' turns take a
 * connection and a memory file each, so no more are sent while an Append has GSTORE_KEPT_MOST of them.
 */
#include "postgres.h"

#include "executor/execAsync.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "nodes/nodeFuncs.h"
#include "storage/latch.h"
#include "utils/lsyscache.h"

#include "postgres/compat.h"
#include "postgres/directory.h"
#include "postgres/qual.h"
#include "postgres/query_async.h"

#define GSTORE_KEPT_MOST 16

typedef struct sibling
{
	PlanState		 *child; /* of the parent */
	ForeignScanState *scan;	 /* the same, or below it */
} sibling;

typedef struct gstore_siblings
{
	PlanState *parent;
	int		   count;
	sibling	  *all; /* in the order of the parent's children; no scan: it has none */
} gstore_siblings;

static ExecutorStart_hook_type previous_start;

/* Scans that have begun, in this process. */
static uint64 begun;

void
gstore_ahead_init(gstore_ahead *ahead, gstore_start_scan start, gstore_run *run)
{
	ahead->start = start;
	ahead->run = run;
	begun++;
}

/* ---- siblings */

static bool is_ours(const ForeignScanState *node);

/* What asks its only child for a row each time when it is asked for its own first one. NULL: it does not, or there is none. */
static PlanState *
only_child(PlanState *node)
{
	switch (nodeTag(node))
	{
		case T_SubqueryScanState:
			return ((SubqueryScanState *) node)->subplan;
		case T_ResultState:
			return ((ResultState *) node)->resconstantqual == NULL ? outerPlanState(node) : NULL;
		case T_SortState:
		case T_IncrementalSortState:
		case T_AggState:
		case T_GroupState:
		case T_UniqueState:
		case T_LimitState:
		case T_WindowAggState:
		case T_ProjectSetState:
			return outerPlanState(node);
		default:
			return NULL;
	}
}

static ForeignScanState *
find_scan(PlanState *node)
{
	while (node != NULL && !IsA(node, ForeignScanState))
		node = only_child(node);
	return node != NULL && is_ours((ForeignScanState *) node) ? (ForeignScanState *) node : NULL;
}

static void
note_siblings(PlanState *parent, PlanState **children, int count)
{
	gstore_siblings *out = palloc(sizeof *out);
	int				 found = 0;

	*out = (gstore_siblings){parent, count, palloc(sizeof *out->all * (Size) (count + 1))};
	for (int i = 0; i < count; i++)
	{
		out->all[i] = (sibling){children[i], find_scan(children[i])};
		found += out->all[i].scan != NULL;
	}
	for (int i = 0; i < count && found > 1; i++)
		if (out->all[i].scan != NULL)
			((gstore_ahead *) out->all[i].scan->fdw_state)->siblings = out;
}

/* A walker of plan states: false. */
static bool
find_siblings(PlanState *node, void *nothing)
{
	if (IsA(node, AppendState))
		note_siblings(node, ((AppendState *) node)->appendplans, ((AppendState *) node)->as_nplans);
	else if (IsA(node, MergeAppendState))
		note_siblings(node, ((MergeAppendState *) node)->mergeplans,
					  ((MergeAppendState *) node)->ms_nplans);
	return planstate_tree_walker(node, find_siblings, nothing);
}

static void
gstore_ExecutorStart(QueryDesc *query, int flags)
{
	const uint64  before = begun;
	MemoryContext old;

	if (previous_start != NULL)
		previous_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
	if (begun - before < 2)
		return;
	old = MemoryContextSwitchTo(query->estate->es_query_cxt);
	(void) find_siblings(query->planstate, NULL);
	MemoryContextSwitchTo(old);
}

void
gstore_async_init(void)
{
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = gstore_ExecutorStart;
}

/* ---- sending */

static gstore_ahead *
ahead_of(const ForeignScanState *node)
{
	return node->fdw_state;
}

static bool
is_sent(const ForeignScanState *node)
{
	return ahead_of(node)->run->sent != NULL;
}

/* There will be an event. */
static bool
is_awaited(const ForeignScanState *node)
{
	return is_sent(node) && !gstore_session_is_answered(ahead_of(node)->run->sent);
}

static gstore_start
start(ForeignScanState *node, bool unasked)
{
	gstore_ahead *ahead = ahead_of(node);
	gstore_start  started = GSTORE_NOT_STARTED;

	if (ahead->start != NULL && !ahead->refused)
		started = ahead->start(node, unasked);
	ahead->refused = started == GSTORE_NOT_STARTED;
	return started;
}

/* Whether the parent will ask it for rows: not if it has left it out. */
static bool
is_valid(const gstore_siblings *siblings, int i)
{
	const AppendState *append = (const AppendState *) siblings->parent;

	if (IsA(siblings->parent, MergeAppendState))
		return bms_is_member(i, ((const MergeAppendState *) siblings->parent)->ms_valid_subplans);
	return bms_is_member(i, append->as_valid_subplans) ||
		bms_is_member(i, append->as_valid_asyncplans);
}

/* With the parameters of now: a node that was told of others, and has not begun anew, would do so when it is asked for a row. */
static bool
is_current(const sibling *s)
{
	PlanState *node = s->child;

	for (; node != &s->scan->ss.ps; node = only_child(node))
		if (node->chgParam != NULL)
			return false;
	if (node->chgParam != NULL && s->child != node)
		return false;
	return true;
}

/* To look at the rows would raise an error, and it may be that none is asked for. */
static bool
reads_lost_table(const ForeignScanState *node)
{
	EState			*estate = node->ss.ps.state;
	const Bitmapset *tables = gstore_scan_relids((const ForeignScan *) node->ss.ps.plan);
	int				 i = -1;

	while ((i = bms_next_member(tables, i)) >= 0)
	{
		const RangeTblEntry *entry = exec_rt_fetch((Index) i, estate);
		gstore_view			 view;

		if (entry->rtekind != RTE_RELATION)
			continue;
		gstore_look(entry->relid, estate->es_snapshot, GSTORE_DEAD_NOT_WANTED, &view);
		if (view.lost || view.outdated)
			return true;
	}
	return false;
}

static void
send_sibling(const sibling *s)
{
	PlanState	 *node = &s->scan->ss.ps;
	MemoryContext old;

	if (!is_current(s) || reads_lost_table(s->scan))
		return;
	if (node->chgParam != NULL)
	{
		old = MemoryContextSwitchTo(node->state->es_query_cxt);
		ExecReScan(node);
		MemoryContextSwitchTo(old);
	}
	if (!is_sent(s->scan))
		(void) start(s->scan, true);
}

static void
send_siblings(const ForeignScanState *node)
{
	const gstore_siblings *siblings = ahead_of(node)->siblings;

	for (int i = 0; i < siblings->count; i++)
		if (siblings->all[i].scan != NULL && siblings->all[i].scan != node && is_valid(siblings, i))
			send_sibling(&siblings->all[i]);
}

void
gstore_ahead_begin(ForeignScanState *node)
{
	if (ahead_of(node)->siblings == NULL)
		return;
	(void) start(node, false);
	send_siblings(node);
}

void
gstore_ahead_go_on(ForeignScanState *node)
{
	if (ahead_of(node)->siblings != NULL)
		send_siblings(node);
}

/* ---- under an Append */

static TupleTableSlot *
next_row(ForeignScanState *node)
{
	return node->ss.ps.ExecProcNodeReal(&node->ss.ps); /* who asks counts the row */
}

static bool
is_leaky(Oid function, void *nothing)
{
	return !get_func_leakproof(function);
}

/* A walker. All rows of partial aggregates are asked for, as others are made of them. */
static bool
may_raise(Node *node, void *unset)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
		case T_CaseTestExpr:
			return false;
		case T_Aggref:
			return !DO_AGGSPLIT_SKIPFINAL(((const Aggref *) node)->aggsplit);
		case T_List:
		case T_TargetEntry:
		case T_BoolExpr:
		case T_NullTest:
		case T_BooleanTest:
		case T_CaseExpr:
		case T_CaseWhen:
		case T_CoalesceExpr:
			break;
		default:
			if (gstore_is_plain(node, unset))
				return false;
			if (!IsA(node, RelabelType) && !IsA(node, ArrayExpr) && !IsA(node, FuncExpr) &&
				!IsA(node, OpExpr) && !IsA(node, DistinctExpr) && !IsA(node, NullIfExpr) &&
				!IsA(node, ScalarArrayOpExpr))
				return true;
	}
	return check_functions_in_node(node, is_leaky, NULL) ||
		expression_tree_walker(node, may_raise, unset);
}

/* Before its first row. */
static void
note_turn(ForeignScanState *node)
{
	const ForeignScan *scan = (const ForeignScan *) node->ss.ps.plan;
	List *all = list_make4(scan->scan.plan.targetlist, scan->scan.plan.qual, scan->fdw_exprs,
						   scan->fdw_scan_tlist);
	gstore_ahead *ahead = ahead_of(node);

	ahead->refused = reads_lost_table(node);
	ahead->in_turn = ahead->refused ||
		may_raise((Node *) all, (void *) gstore_unset_now(node->ss.ps.ps_ExprContext));
	list_free(all);
}

/* Whether it is not asked for a row yet: others in front of it may have more. */
static bool
is_kept(const AsyncRequest *request)
{
	const AppendState *append = (const AppendState *) request->requestor;
	int				   i = -1;

	if (!ahead_of((const ForeignScanState *) request->requestee)->in_turn)
		return false;
	if (!append->as_syncdone)
		return true;
	while ((i = bms_next_member(append->as_valid_asyncplans, i)) >= 0 && i < request->request_index)
	{
		const AsyncRequest *before = append->as_asyncrequests[i];

		if (!before->request_complete || !TupIsNull(before->result))
			return true;
	}
	return false;
}

/* Of the same Append: one of ours, of which there will be an event. */
static bool
is_other_awaited(const AppendState *append)
{
	int i = -1;

	while ((i = bms_next_member(append->as_valid_asyncplans, i)) >= 0)
	{
		const AsyncRequest	   *request = append->as_asyncrequests[i];
		const ForeignScanState *node = (const ForeignScanState *) request->requestee;

		if (request->callback_pending && is_ours(node) && is_awaited(node))
			return true;
	}
	return false;
}

static bool
has_kept_many(const AppendState *append)
{
	int count = 0, i = -1;

	while (count < GSTORE_KEPT_MOST && (i = bms_next_member(append->as_valid_asyncplans, i)) >= 0)
	{
		const ForeignScanState *node = (const ForeignScanState *) append->as_asyncrequests[i]->requestee;

		count += is_ours(node) && is_sent(node) && !is_awaited(node);
	}
	return count == GSTORE_KEPT_MOST;
}

static gstore_start
start_request(const AsyncRequest *request, bool kept)
{
	ForeignScanState *node = (ForeignScanState *) request->requestee;

	if (kept && !is_sent(node) && has_kept_many((const AppendState *) request->requestor))
		return GSTORE_START_LATER;
	return start(node, kept);
}

static bool
is_to_wait(const AsyncRequest *request, gstore_start started)
{
	return is_awaited((const ForeignScanState *) request->requestee) ||
		(started == GSTORE_START_LATER && is_other_awaited((const AppendState *) request->requestor));
}

static void
gstoreForeignAsyncRequest(AsyncRequest *request)
{
	ForeignScanState *node = (ForeignScanState *) request->requestee;
	gstore_start	  started;
	bool			  kept;

	if (!ahead_of(node)->refused)
		note_turn(node);
	kept = is_kept(request);
	started = start_request(request, kept);
	if (kept || is_to_wait(request, started))
		ExecAsyncRequestPending(request);
	else
		ExecAsyncRequestDone(request, next_row(node));
}

static void
gstoreForeignAsyncNotify(AsyncRequest *request)
{
	ForeignScanState *node = (ForeignScanState *) request->requestee;

	if (is_kept(request))
	{
		gstore_session_await(ahead_of(node)->run->sent, ahead_of(node)->run->why);
		ExecAsyncRequestPending(request);
	}
	else
		ExecAsyncRequestDone(request, next_row(node));
}

/* Where nothing else is to be waited for that gives its device room, as other statements of this backend have taken it. */
static void
complete(AsyncRequest *request)
{
	request->callback_pending = false;
	gstoreForeignAsyncNotify(request);
	ExecAsyncResponse(request);
	if (request->requestee->instrument != NULL)
		InstrUpdateTupleCount(request->requestee->instrument, TupIsNull(request->result) ? 0.0 : 1.0);
}

static void
gstoreForeignAsyncConfigureWait(AsyncRequest *request)
{
	ForeignScanState  *node = (ForeignScanState *) request->requestee;
	const AppendState *append = (const AppendState *) request->requestor;
	const bool		   kept = is_kept(request);
	const gstore_start started = start_request(request, kept);

	/* Not where a child in front has just been completed, whose row may be all that is wanted: without an event there is no wait. */
	if (is_awaited(node) && !bms_is_empty(append->as_needrequest))
		return;
	if (is_awaited(node))
		AddWaitEventToSet(append->as_eventset, WL_SOCKET_READABLE,
						  gstore_session_socket(ahead_of(node)->run->sent), NULL, request);
	else if (!kept && !is_to_wait(request, started))
		complete(request);
}

static bool
is_ours(const ForeignScanState *node)
{
	return node->fdwroutine != NULL &&
		node->fdwroutine->ForeignAsyncNotify == gstoreForeignAsyncNotify &&
		node->fdw_state != NULL && ahead_of(node)->start != NULL;
}

void
gstore_async_callbacks(FdwRoutine *routine)
{
	routine->ForeignAsyncRequest = gstoreForeignAsyncRequest;
	routine->ForeignAsyncConfigureWait = gstoreForeignAsyncConfigureWait;
	routine->ForeignAsyncNotify = gstoreForeignAsyncNotify;
}
