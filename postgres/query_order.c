/*
 * See query_order.h.
 *
 * A list has the LIMIT's rows, if it is known, and at least GSTORE_LIST_ROWS; the next one has ten times as many. Entries are keys and row numbers; the columns of rows
 * are read by the numbers, some rows at a time. Conditions that the GPU cannot evaluate are put to these.
 *
 * Of texts the keys are the first bytes: rows that these do not decide are put into order before any is returned (query_ties.h).
 *
 * The outer plan sorts the rows of a local scan. It runs if a list cannot be made; of its rows, those of the lists before are left out then, as
 * among equal ones the GPU has another order.
 */
#include "postgres.h"

#include <math.h>

#include "access/stratnum.h"
#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "optimizer/tlist.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "postgres/fdw.h"
#include "postgres/qual.h"
#include "postgres/query_async.h"
#include "postgres/query_filter.h"
#include "postgres/query_order.h"
#include "postgres/query_path.h"
#include "postgres/query_records.h"
#include "postgres/query_scan.h"
#include "postgres/query_ties.h"
#include "postgres/reload.h"
#include "postgres/row_reader.h"
#include "postgres/scan.h"
#include "postgres/settings.h"
#include "postgres/tid.h"
#include "postgres/whole.h"

#define TIMES_MOST 1000
#define ROW_COST   0.3 /* of a row that is read by its number */
#define TIES_MANY  "too many texts, or too long ones, begin with the same bytes"

/* ---- planning */

/* fdw_private of a path. */
typedef struct order_parts
{
	List *filter;	  /* RestrictInfo: what the GPU evaluates */
	List *keys;		  /* expressions */
	List *directions; /* GSTORE_KEY_... of them */
	List *limits; /* expressions: LIMIT, and OFFSET if there is one; NIL: it is not known before the rows */
	int times; /* so many entries for a row that passes all conditions, about */
} order_parts;

/* Of a joined relation columns of some tables are not there any more. */
static bool
is_returned(const RelOptInfo *rel, const Expr *expression)
{
	ListCell *cell;

	foreach(cell, pull_var_clause((Node *) expression, PVC_INCLUDE_PLACEHOLDERS))
		if (!list_member(rel->reltarget->exprs, lfirst(cell)))
			return false;
	return true;
}

static Expr *
find_sort_member(const EquivalenceClass *ec, const RelOptInfo *rel)
{
	ListCell *cell;

	if (ec->ec_has_volatile)
		return NULL;
	foreach(cell, ec->ec_members)
	{
		const EquivalenceMember *em = lfirst(cell);

		if (!em->em_is_const && !bms_is_empty(em->em_relids) &&
			bms_is_subset(em->em_relids, rel->relids) &&
			(IS_SIMPLE_REL(rel) || is_returned(rel, em->em_expr)))
			return em->em_expr;
	}
	return NULL;
}

/* In the order of the type's own operators. */
bool
gstore_order_fits(const PathKey *key, const Expr *expression, int *direction)
{
	const Oid type = getBaseType(exprType((const Node *) expression));

	*direction = (key->pk_strategy == BTGreaterStrategyNumber ? GSTORE_KEY_DESCENDING : 0) |
		(key->pk_nulls_first ? GSTORE_KEY_NULLS_FIRST : 0);
	return lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY)->btree_opf == key->pk_opfamily;
}

static bool
find_sort_keys(PlannerInfo *root, const RelOptInfo *rel, order_parts *parts)
{
	ListCell *cell;

	foreach(cell, root->query_pathkeys)
	{
		const PathKey *key = lfirst(cell);
		Expr		  *expression = find_sort_member(key->pk_eclass, rel);
		int			   direction;

		if (expression == NULL || !gstore_order_fits(key, expression, &direction))
			return false;
		parts->keys = lappend(parts->keys, expression);
		parts->directions = lappend_int(parts->directions, direction);
	}
	return parts->keys != NIL;
}

static bool
has_exec_parameter(Node *node, void *ignored)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		return ((Param *) node)->paramkind != PARAM_EXTERN;
	return expression_tree_walker(node, has_exec_parameter, ignored);
}

static bool
is_known_limit(Node *node)
{
	return !contain_var_clause(node) && !contain_volatile_functions(node) &&
		!contain_subplans(node) && !has_exec_parameter(node, NULL);
}

List *
gstore_find_limits(const Query *query)
{
	if (query->limitCount == NULL || !is_known_limit(query->limitCount))
		return NIL;
	if (query->limitOffset == NULL)
		return list_make1(query->limitCount);
	return is_known_limit(query->limitOffset) ? list_make2(query->limitCount, query->limitOffset) : NIL;
}

/* True: a LIMIT is for this order. */
static bool
find_limits(const PlannerInfo *root, order_parts *parts)
{
	const Query *query = root->parse;

	if (query->limitCount == NULL || query->groupClause != NIL || query->groupingSets != NIL ||
		query->distinctClause != NIL || query->hasAggs || query->hasWindowFuncs ||
		query->hasTargetSRFs || query->havingQual != NULL || query->setOperations != NULL)
		return false;
	parts->limits = gstore_find_limits(query);
	return true;
}

bool
gstore_order_find(PlannerInfo *root, const RelOptInfo *rel, List **keys, List **directions, List **limits)
{
	order_parts parts = {0};

	if (!gstore_gpu_order || root->query_pathkeys == NIL || !find_limits(root, &parts) ||
		!find_sort_keys(root, rel, &parts))
		return false;
	*keys = parts.keys;
	*directions = parts.directions;
	*limits = parts.limits;
	return true;
}

/* What the local plan's rows have can be put into a row of the table: columns, ctid and tableoid. */
static bool
has_plain_target(const RelOptInfo *rel)
{
	ListCell *cell;

	foreach(cell, rel->reltarget->exprs)
	{
		const Var *var = lfirst(cell);

		if (!IsA(var, Var) ||
			(var->varattno <= 0 && var->varattno != SelfItemPointerAttributeNumber &&
			 var->varattno != TableOidAttributeNumber))
			return false;
	}
	return true;
}

/* Attribute numbers of the local plan's columns. Once there is a plan, the target may be another one: that above the scan. */
static List *
numbers_of(const PathTarget *target)
{
	List	 *numbers = NIL;
	ListCell *cell;

	foreach(cell, target->exprs)
		numbers = lappend_int(numbers, lfirst_node(Var, cell)->varattno);
	return numbers;
}

/*
 * The local plan's rows have their ctid, by which they are known. Marked as needed, as a plan node above the scan, of a pseudoconstant
 * condition, would otherwise be given the table's columns alone.
 */
static void
add_ctid(PlannerInfo *root, RelOptInfo *rel, Path *local)
{
	PathTarget *target = copy_pathtarget(rel->reltarget);
	Relids	   *needed = &rel->attr_needed[SelfItemPointerAttributeNumber - rel->min_attr];

	*needed = bms_add_member(*needed, 0);
	local->pathtarget = target;
	if (list_member_int(numbers_of(target), SelfItemPointerAttributeNumber))
		return;
	add_column_to_pathtarget(target,
							 (Expr *) makeVar((int) rel->relid, SelfItemPointerAttributeNumber,
											  TIDOID, -1, InvalidOid, 0),
							 0);
	set_pathtarget_cost_width(root, target);
}

/* One table of ours, or partitions of one, whose rows are not locked. */
static bool
is_unlocked_table(const PlannerInfo *root, const RelOptInfo *rel)
{
	return root->parse->commandType == CMD_SELECT && root->parse->rowMarks == NIL &&
		root->rowMarks == NIL && rel->rtekind == RTE_RELATION && bms_is_empty(rel->lateral_relids) &&
		has_plain_target(rel) && bms_membership(root->all_baserels) == BMS_SINGLETON;
}

/* Keys are evaluated before conditions that the GPU does not: they must not raise an error then. */
static bool
measure(const PlannerInfo *root, const RelOptInfo *rel, const order_parts *parts,
		gstore_query_size *size)
{
	gstore_query query = {.sink = GSTORE_SINK_LIST,
						  .relation = rel->relid,
						  .table = root->simple_rte_array[rel->relid]->relid,
						  .keys = parts->keys,
						  .directions = parts->directions,
						  .unset = gstore_unset_planned(root)};

	if (!gstore_query_measure(&query, size) ||
		(size->raises && list_length(parts->filter) < list_length(rel->baserestrictinfo)))
		return false;
	query.filters = extract_actual_clauses(parts->filter, false);
	return gstore_query_measure(&query, size);
}

Cost
gstore_order_cost(const PlannerInfo *root, const RelOptInfo *rel, Cost list)
{
	const double first = Max(root->limit_tuples, GSTORE_LIST_ROWS);
	const double lists = rel->rows > first ? 1 + log(rel->rows / first) / log(GSTORE_LIST_ROWS_TIMES)
										   : 1;

	return lists * list;
}

/*
 * What cost_sort() takes too much for the first of many rows, those of each worker where there may be some: it has each row compared log2(2 limit)
 * times, but nearly all are compared once, with the last of the list. A list on the GPU costs as much more, or it would be chosen where the sort is faster.
 */
static Cost
find_sort_excess(const RelOptInfo *rel, double limit)
{
	const Path	*path = rel->partial_pathlist != NIL ? linitial(rel->partial_pathlist) : NULL;
	const double rows = path != NULL ? path->rows : rel->rows;
	double		 depth, comparisons;

	if (limit < 1 || rows <= 2 * limit)
		return 0;
	depth = log2(2 * limit);
	comparisons = rows + limit * depth * (1 + log(rows / limit)); /* rows in random order */
	return 2 * cpu_operator_cost * Max(rows * depth - comparisons, 0);
}

void
gstore_order_add_path(PlannerInfo *root, RelOptInfo *rel, Path *local)
{
	order_parts		  parts = {0};
	gstore_query_size size;
	QualCost		  rest;
	Selectivity		  passing;
	Cost			  startup, rows, excess;
	Path			 *sorted;
	List			 *others;

	if (!gstore_gpu_queries || root->query_pathkeys == NIL || !is_unlocked_table(root, rel) ||
		!find_limits(root, &parts) || !find_sort_keys(root, rel, &parts))
		return;
	parts.filter = gstore_filter_choose(root, rel, rel->baserestrictinfo, &size);
	if (!measure(root, rel, &parts, &size) ||
		!(size.kind == GSTORE_QUERY_SEARCH ? gstore_gpu_search : gstore_gpu_order))
		return;
	others = list_difference_ptr(rel->baserestrictinfo, parts.filter);
	cost_qual_eval(&rest, others, root);
	passing = clauselist_selectivity(root, others, 0, JOIN_INNER, NULL);
	parts.times = (int) ceil(1 / Max(passing, 1.0 / TIMES_MOST));
	startup = gstore_query_run_cost(root, rel, &size, false) + rest.startup +
		rel->reltarget->cost.startup;
	rows = rel->rows *
		(parts.times * (ROW_COST + rest.per_tuple) + cpu_tuple_cost + rel->reltarget->cost.per_tuple);
	excess = find_sort_excess(rel, root->limit_tuples);
	add_ctid(root, rel, local);
	sorted = (Path *) create_sort_path(root, rel, local, root->query_pathkeys, root->limit_tuples);
	local = (Path *) create_foreignscan_path(
		root, rel, NULL, rel->rows, startup + excess,
		rest.startup + rel->reltarget->cost.startup + gstore_order_cost(root, rel, startup) +
			excess + rows,
		root->query_pathkeys, NULL, sorted,
		lappend(list_make5(parts.filter, parts.keys, parts.directions, parts.limits,
						   list_make1_int(parts.times)),
				numbers_of(sorted->pathtarget)));
	local->parallel_safe = false;
	add_path(rel, local);
}

/*
 * fdw_exprs: keys, what the GPU evaluates, what is evaluated on rows, limits. fdw_private: columns of rows, bare ones, directions, attribute
 * numbers of the outer plan's columns, order_parts.times.
 */
ForeignScan *
gstore_order_plan(PlannerInfo *root, RelOptInfo *rel, Oid relation, ForeignPath *path,
				  List *targets, List *clauses, Plan *outer, gstore_columns_of columns_of)
{
	List *infos = list_difference_ptr(clauses, linitial(path->fdw_private));
	List *rest = extract_actual_clauses(infos, false), *filter, *wanted, *bare;

	filter = extract_actual_clauses(list_difference_ptr(clauses, infos), false);
	columns_of(root, rel, relation, rest, &wanted, &bare);
	return make_foreignscan(
		targets, NIL, rel->relid,
		list_make4(lsecond(path->fdw_private), filter, rest, lfourth(path->fdw_private)),
		list_make5(wanted, bare, lthird(path->fdw_private), list_nth(path->fdw_private, 5),
				   list_nth(path->fdw_private, 4)),
		NIL, list_concat_copy(filter, rest), outer);
}

/* ---- beginning */

typedef enum phase
{
	PHASE_BEFORE, /* no list was made */
	PHASE_LIST,
	PHASE_LOCAL, /* the outer plan has the rows */
} phase;

typedef struct order_state
{
	gstore_ahead	 ahead;
	gstore_query	 query;
	gstore_compiled *compiled;
	ExprState		*rest;	  /* conditions, of rows; NULL: none */
	List			*limits;  /* of ExprState */
	MemoryContext	 context; /* of what follows */
	phase			 phase;
	gstore_run		 run;
	const char *local; /* what the outer plan has done, as EXPLAIN says it; NULL: it has not run */
	uint8 *listed; /* bitmap of the view's rows: those of the lists before; NULL: there are none */
	bool   prepared; /* what follows is known of the first list, which is not made yet */
	gstore_whole	   rows;
	gstore_view		   view;
	uint64			   times;  /* order_parts.times */
	uint64			   wanted; /* entries that the LIMIT needs, about; 0: not known */
	int64			  *entries;
	uint64			   words, count, max, at;		  /* of the list; max: that were asked for */
	bool			   last;						  /* it has all rows behind those before */
	int64			   after[GQUERY_ENTRY_WORDS_MAX]; /* its last entry */
	gstore_ties		  *ties;						  /* NULL: keys decide, but for equal ones */
	Bitmapset		  *columns, *bare;
	gstore_row_reader *reader;	/* NULL: not made yet */
	uint64			   read_to; /* entries that were read */
	uint64			   bytes;	/* moved */
} order_state;

static gstore_start start_order(ForeignScanState *node, bool unasked);

static void
begin_order(ForeignScanState *node, int flags)
{
	const ForeignScan *plan = (const ForeignScan *) node->ss.ps.plan;
	order_state		  *state = palloc0(sizeof *state);
	ListCell		  *cell;

	node->fdw_state = state;
	state->query = (gstore_query){.sink = GSTORE_SINK_LIST,
								  .relation = plan->scan.scanrelid,
								  .keys = linitial(plan->fdw_exprs),
								  .directions = lthird(plan->fdw_private),
								  .filters = lsecond(plan->fdw_exprs)};
	if ((flags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	state->compiled = gstore_query_prepare(&state->query, &node->ss.ps);
	state->ties = gstore_ties_create(state->compiled, state->query.keys, state->query.directions,
									 &node->ss.ps);
	state->rest = ExecInitQual(lthird(plan->fdw_exprs), &node->ss.ps);
	state->limits = ExecInitExprList(lfourth(plan->fdw_exprs), &node->ss.ps);
	state->times = (uint64) linitial_int(list_nth(plan->fdw_private, 4));
	foreach(cell, (List *) linitial(plan->fdw_private))
		state->columns = bms_add_member(state->columns, lfirst_int(cell));
	foreach(cell, (List *) lsecond(plan->fdw_private))
		state->bare = bms_add_member(state->bare, lfirst_int(cell));
	/* Conditions see it, too; PostgreSQL sets it in rows that have passed them. */
	node->ss.ss_ScanTupleSlot->tts_tableOid = RelationGetRelid(node->ss.ss_currentRelation);
	state->context = AllocSetContextCreate(CurrentMemoryContext, "gstore order",
										   ALLOCSET_DEFAULT_SIZES);
	gstore_ahead_init(&state->ahead, start_order, &state->run);
}

static void
end_lists(order_state *state)
{
	gstore_run_end(&state->run);
	MemoryContextReset(state->context);
	state->reader = NULL;
	state->entries = NULL;
	state->listed = NULL;
	state->count = state->at = state->max = state->read_to = 0;
	state->prepared = state->ahead.refused = false;
	state->phase = PHASE_BEFORE;
}

/* ---- lists */

/* As LIMIT has it: NULL and what is negative, which is an error there, are none. */
uint64
gstore_evaluate_limits(const List *limits, ExprContext *context)
{
	uint64	  rows = 0;
	ListCell *cell;

	foreach(cell, limits)
	{
		bool  null;
		int64 value = DatumGetInt64(ExecEvalExprSwitchContext(lfirst(cell), context, &null));

		if (null && cell == list_head(limits))
			return 0;
		if (!null && value > 0)
			rows += (uint64) value; /* of two int64: it fits */
	}
	return rows;
}

bool
gstore_limits_may_raise(const List *limits)
{
	ListCell *cell;

	foreach(cell, limits)
	{
		const Node *limit = (const Node *) ((const ExprState *) lfirst(cell))->expr;

		if (IsA(limit, FuncExpr) && ((const FuncExpr *) limit)->funcid == F_INT8_INT4)
			limit = linitial(((const FuncExpr *) limit)->args);
		if (!IsA(limit, Const) && !IsA(limit, Param))
			return true;
	}
	return false;
}

static uint64
row_at(const order_state *state, uint64 at)
{
	return (uint64) state->entries[(at + 1) * state->words - 1];
}

/* Of the run: its entries, in their order. Those at the end whose order is not decided without others behind them are left out. */
static bool
take_entries(ForeignScanState *node, order_state *state)
{
	uint64	rows;
	uint64 *entries = gstore_run_take(&state->run, &rows);

	state->words = (uint64) state->run.words;
	state->entries = (int64 *) entries;
	if (entries == NULL)
		return false;
	if (rows > state->max)
		elog(ERROR, "the executor of queries has returned no valid result");
	gstore_sort_records(entries, rows, state->run.words, state->run.words);
	for (uint64 i = 0; i < rows; i++)
		if (row_at(state, i) >= state->view.rows)
			elog(ERROR, "the executor of queries has returned no valid result");
	state->last = rows < state->max;
	if (state->ties != NULL && !state->last)
		rows = gstore_ties_decided(state->ties, state->entries, state->words, rows);
	if (rows > 0)
		memcpy(state->after, state->entries + (rows - 1) * state->words, sizeof(int64) * state->words);
	state->count = rows;
	state->at = state->read_to = 0;
	return state->ties == NULL ||
		gstore_ties_sort(state->ties, &state->view, &node->ss, state->entries, state->words, rows,
						 &state->bytes) ||
		gstore_run_refuse(&state->run, state->compiled, TIES_MANY);
}

/* after: of the last entry before; NULL: the first list. */
static gstore_request
request_of(ForeignScanState *node, order_state *state, const int64 *after)
{
	return (gstore_request){.compiled = state->compiled,
							.context = node->ss.ps.ps_ExprContext,
							.relation = node->ss.ss_currentRelation,
							.view = &state->view,
							.list_max = state->max,
							.continues = true,
							.after = after,
							.after_words = (int) state->words};
}

static bool
make_list(ForeignScanState *node, order_state *state, const int64 *after)
{
	const gstore_request request = request_of(node, state, after);

	return gstore_run_begin(&state->run, &request) && take_entries(node, state);
}

/* Where it would have no row that is decided it is longer. */
static bool
make_decided_list(ForeignScanState *node, order_state *state, const int64 *after)
{
	while (make_list(node, state, after))
	{
		if (state->count > 0 || state->last)
			return true;
		if (state->max > GSTORE_TIE_ROWS_MOST / GSTORE_LIST_ROWS_TIMES)
			return gstore_run_refuse(&state->run, state->compiled, TIES_MANY);
		pfree(state->entries);
		state->entries = NULL;
		state->max *= GSTORE_LIST_ROWS_TIMES;
	}
	return false;
}

/* In state->context. */
static void
prepare_lists(ForeignScanState *node, order_state *state)
{
	const Relation relation = node->ss.ss_currentRelation;
	EState		  *estate = node->ss.ps.state;
	Snapshot	   snapshot;

	if (state->prepared)
		return;
	snapshot = gstore_register_snapshot(relation, estate->es_snapshot, estate);
	gstore_note_read(relation, snapshot);
	state->rows = gstore_whole_choose(relation, snapshot, false, &state->view);
	UnregisterSnapshot(snapshot);
	state->wanted = state->times *
		Min(gstore_evaluate_limits(state->limits, node->ss.ps.ps_ExprContext), GSTORE_LIST_ROWS_MOST);
	state->prepared = true;
}

static uint64
first_max(const order_state *state)
{
	return Min(Max(state->wanted, GSTORE_LIST_ROWS), GSTORE_LIST_ROWS_MOST);
}

static gstore_start
start_order(ForeignScanState *node, bool unasked)
{
	order_state	  *state = node->fdw_state;
	MemoryContext  old;
	gstore_request request;
	gstore_start   started = GSTORE_NOT_STARTED;

	if (state->phase != PHASE_BEFORE || (unasked && gstore_limits_may_raise(state->limits)))
		return started;
	old = MemoryContextSwitchTo(state->context);
	prepare_lists(node, state);
	request = request_of(node, state, NULL);
	request.list_max = first_max(state);
	request.unasked = unasked;
	if (state->rows == GSTORE_WHOLE_ROWS)
		started = gstore_run_start(&state->run, &request);
	MemoryContextSwitchTo(old);
	return started;
}

/* False: the outer plan is to run. */
static bool
make_first_list(ForeignScanState *node, order_state *state)
{
	gstore_ahead_begin(node);
	prepare_lists(node, state);
	state->run.figures.place = "nowhere, as the table has no rows";
	if (state->rows == GSTORE_WHOLE_NONE)
		return true;
	if (state->rows == GSTORE_WHOLE_TWO_STORES)
		return gstore_run_refuse(&state->run, state->compiled, GSTORE_WHY_TWO_STORES);
	state->max = first_max(state);
	return make_decided_list(node, state, NULL);
}

static void
begin_lists(ForeignScanState *node, order_state *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	const bool	  done = make_first_list(node, state);

	MemoryContextSwitchTo(old);
	if (!done)
		end_lists(state);
	gstore_ahead_go_on(node);
	state->local = done ? NULL : "by the local plan";
	state->phase = done ? PHASE_LIST : PHASE_LOCAL;
}

/* The list's rows are among those of the lists before. */
static void
note_listed(order_state *state)
{
	if (state->listed == NULL)
		state->listed = MemoryContextAllocExtended(state->context, state->view.rows / 8 + 1,
												   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint64 at = 0; at < state->count; at++)
		state->listed[row_at(state, at) / 8] |= (uint8) (1 << row_at(state, at) % 8);
}

/* The outer plan has the rest. */
static void
leave_lists(order_state *state)
{
	gstore_run_end(&state->run);
	state->count = state->at = 0;
	state->local = "on the GPU, then by the local plan";
	state->phase = PHASE_LOCAL;
}

/* False: the list that ends here was the last one. */
static bool
make_next_list(ForeignScanState *node, order_state *state)
{
	int64		  after[GQUERY_ENTRY_WORDS_MAX];
	MemoryContext old;

	if (state->last)
		return false;
	memcpy(after, state->after, sizeof after);
	note_listed(state);
	pfree(state->entries);
	state->entries = NULL;
	state->max = gstore_list_next_max(state->max);
	old = MemoryContextSwitchTo(state->context);
	if (!make_decided_list(node, state, after))
		leave_lists(state);
	MemoryContextSwitchTo(old);
	return state->count > 0;
}

/* ---- rows */

/* The columns of the next rows: of no more than the LIMIT needs, at first. */
static void
read_rows(ForeignScanState *node, order_state *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	const uint64  most = state->at < state->wanted ? state->wanted - state->at : GSTORE_LIST_ROWS;
	uint64		  rows[GSTORE_READER_ROWS];

	if (state->reader == NULL)
		state->reader = gstore_row_reader_create(&state->view,
												 RelationGetDescr(node->ss.ss_currentRelation)->natts,
												 state->columns, state->bare);
	state->read_to = state->at +
		Min(Min(most, (uint64) gstore_row_reader_most(state->reader)), state->count - state->at);
	for (uint64 at = state->at; at < state->read_to; at++)
		rows[at - state->at] = row_at(state, at);
	state->bytes += gstore_row_reader_read(state->reader, rows, (int) (state->read_to - state->at));
	MemoryContextSwitchTo(old);
}

static bool
next_listed_row(ForeignScanState *node, order_state *state, TupleTableSlot *slot)
{
	CHECK_FOR_INTERRUPTS();
	if (state->at == state->count && (state->max == 0 || !make_next_list(node, state)))
		return false;
	if (state->at >= state->read_to)
		read_rows(node, state);
	gstore_row_reader_fill(state->reader, row_at(state, state->at), slot);
	gstore_row_to_tid(row_at(state, state->at), &slot->tts_tid);
	state->at++;
	ExecStoreVirtualTuple(slot);
	return true;
}

static bool
passes_rest(ForeignScanState *node, const order_state *state, TupleTableSlot *slot)
{
	ExprContext *context = node->ss.ps.ps_ExprContext;
	bool		 passes;

	if (state->rest == NULL)
		return true;
	context->ecxt_scantuple = slot;
	passes = ExecQual(state->rest, context);
	if (!passes)
	{
		InstrCountFiltered1(node, 1);
		ResetExprContext(context);
	}
	return passes;
}

/* A value of the outer plan's row, as one of the table's. */
static void
store_value(TupleTableSlot *slot, int number, Datum value, bool null)
{
	if (number > 0)
	{
		slot->tts_values[number - 1] = value;
		slot->tts_isnull[number - 1] = null;
	}
	else if (number == SelfItemPointerAttributeNumber)
		slot->tts_tid = *(ItemPointer) DatumGetPointer(value);
}

/* False: there is no row any more. */
static bool
read_local_row(ForeignScanState *node, TupleTableSlot *slot)
{
	const ForeignScan *plan = (const ForeignScan *) node->ss.ps.plan;
	MemoryContext	   old = MemoryContextSwitchTo(node->ss.ps.state->es_query_cxt);
	TupleTableSlot	  *row = ExecProcNode(outerPlanState(node));
	const List		  *numbers = lfourth(plan->fdw_private);
	ListCell		  *cell;

	MemoryContextSwitchTo(old);
	if (TupIsNull(row))
		return false;
	slot_getallattrs(row);
	memset(slot->tts_isnull, true, sizeof(bool) * (Size) slot->tts_tupleDescriptor->natts);
	foreach(cell, numbers)
		store_value(slot, lfirst_int(cell), row->tts_values[foreach_current_index(cell)],
					row->tts_isnull[foreach_current_index(cell)]);
	return true;
}

static bool
was_listed(const order_state *state, uint64 row)
{
	return state->listed != NULL && row < state->view.rows &&
		(state->listed[row / 8] >> (row % 8) & 1) != 0;
}

static TupleTableSlot *
next_local_row(ForeignScanState *node, const order_state *state, TupleTableSlot *slot)
{
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!read_local_row(node, slot))
			return slot;
	} while (was_listed(state, gstore_tid_to_row(&slot->tts_tid)));
	return ExecStoreVirtualTuple(slot);
}

static TupleTableSlot *
iterate_order(ForeignScanState *node)
{
	order_state	   *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

	ExecClearTuple(slot);
	if (state->phase == PHASE_BEFORE)
		begin_lists(node, state);
	if (state->phase == PHASE_LIST)
		do
			ExecClearTuple(slot);
		while (next_listed_row(node, state, slot) && !passes_rest(node, state, slot));
	return state->phase == PHASE_LOCAL ? next_local_row(node, state, slot) : slot;
}

/* PostgreSQL itself begins anew with the outer plan. */
static void
rescan_order(ForeignScanState *node)
{
	order_state *state = node->fdw_state;

	if (node->ss.ps.chgParam == NULL && state->phase == PHASE_LOCAL && state->listed == NULL)
		return;
	end_lists(state);
}

static void
end_order(ForeignScanState *node)
{
	order_state *state = node->fdw_state;

	if (state == NULL || state->context == NULL)
		return;
	end_lists(state);
	MemoryContextDelete(state->context);
}

/* ---- EXPLAIN */

/* As of a Sort node: what is not the default of ASC or DESC is said. */
void
gstore_explain_order(const ForeignScanState *node, const List *keys, const List *directions,
					 ExplainState *es)
{
	List *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, NIL), *texts = NIL;
	const ListCell *key, *direction;

	forboth(key, keys, direction, directions)
	{
		const bool	descending = (lfirst_int(direction) & GSTORE_KEY_DESCENDING) != 0;
		const bool	nulls_first = (lfirst_int(direction) & GSTORE_KEY_NULLS_FIRST) != 0;
		const char *text = deparse_expression(lfirst(key), context,
											  es->verbose || list_length(es->rtable) > 1, false);

		texts = lappend(texts,
						psprintf("%s%s%s", text, descending ? " DESC" : "",
								 nulls_first == descending ? ""
									 : nulls_first		   ? " NULLS FIRST"
														   : " NULLS LAST"));
	}
	ExplainPropertyList("GPU Sort Key", texts, es);
}

static void
explain_order(ForeignScanState *node, ExplainState *es)
{
	const ForeignScan *plan = (const ForeignScan *) node->ss.ps.plan;
	const order_state *state = node->fdw_state;

	ExplainPropertyText(
		"GPU", psprintf("order on %s", RelationGetRelationName(node->ss.ss_currentRelation)), es);
	gstore_explain_order(node, state->query.keys, state->query.directions, es);
	gstore_explain_expressions(&node->ss.ps, "GPU Filter", state->query.filters, es);
	gstore_explain_expressions(&node->ss.ps, "Row Filter", lthird(plan->fdw_exprs), es);
	if (!gstore_scan_has_figures(&node->ss.ps, es))
		return;
	gstore_query_explain(&state->run.figures, state->local, state->run.why, "GPU Rows Listed", es);
	ExplainPropertyInteger("Bytes Moved", NULL, (int64) state->bytes, es);
}

void
gstore_order_callbacks(FdwRoutine *routine)
{
	routine->BeginForeignScan = begin_order;
	routine->IterateForeignScan = iterate_order;
	routine->ReScanForeignScan = rescan_order;
	routine->EndForeignScan = end_order;
	routine->ExplainForeignScan = explain_order;
}
