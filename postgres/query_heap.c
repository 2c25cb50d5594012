/*
 * See query_heap.h.
 *
 * Every pair of relations that the planner joins is looked at, also where none is a table of ours. A joined
 * relation notes how it can be made, as query_join.c's do; its fdw_private is free, as no wrapper joins it.
 *
 * The local path is made beside the note, pair by pair: a hash join or a nested loop of the note's tables in
 * their order, over the path of the outer rows. So those rows are its outermost, and it can go on with them
 * anywhere.
 *
 * The scan tuple of a plan has what it returns, then the columns of the outer rows, conditions as in
 * query_path.c, and for each inner table a column by which its number in the range table is known.
 */
#include "postgres.h"

#include <math.h>

#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/restrictinfo.h"

#include "postgres/query_heap.h"
#include "postgres/query_heap_scan.h"
#include "postgres/query_join.h"
#include "postgres/query_path.h"
#include "postgres/settings.h"

static set_join_pathlist_hook_type	previous_join_hook;
static create_upper_paths_hook_type previous_upper_hook;

/* ---- the local path */

static bool
is_hash_clause(const RestrictInfo *info, const RelOptInfo *joined, const RelOptInfo *outer,
			   const RelOptInfo *inner, JoinType type)
{
	if (!info->can_join || !OidIsValid(info->hashjoinoperator) ||
		(IS_OUTER_JOIN(type) && RINFO_IS_PUSHED_DOWN(info, joined->relids)))
		return false;
	return (bms_is_subset(info->left_relids, outer->relids) &&
			bms_is_subset(info->right_relids, inner->relids)) ||
		(bms_is_subset(info->left_relids, inner->relids) &&
		 bms_is_subset(info->right_relids, outer->relids));
}

static Path *
join_locally(PlannerInfo *root, RelOptInfo *joined, const RelOptInfo *outer, RelOptInfo *inner,
			 JoinType type, JoinPathExtraData *extra, Path *rows)
{
	List			 *clauses = NIL;
	ListCell		 *cell;
	JoinCostWorkspace costs;
	Path			 *table = inner->cheapest_total_path;

	foreach(cell, extra->restrictlist)
		if (is_hash_clause(lfirst_node(RestrictInfo, cell), joined, outer, inner, type))
			clauses = lappend(clauses, lfirst(cell));
	if (clauses != NIL)
	{
		initial_cost_hashjoin(root, &costs, type, clauses, rows, table, extra, false);
		return (Path *) create_hashjoin_path(root, joined, type, &costs, extra, rows, table, false,
											 extra->restrictlist, NULL, clauses);
	}
	table = (Path *) create_material_path(inner, table);
	initial_cost_nestloop(root, &costs, type, rows, table, extra);
	return (Path *) create_nestloop_path(root, joined, type, &costs, extra, rows, table,
										 extra->restrictlist, NIL, NULL);
}

/* ---- paths */

static Plan *plan_batch(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *targets,
						List *clauses, List *plans);
static Plan *plan_join(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *targets,
					   List *clauses, List *plans);

static const CustomPathMethods batch_path = {"GPU Batch", plan_batch, NULL},
							   join_path = {"GPU Join", plan_join, NULL};

static CustomPath *
make_path(RelOptInfo *rel, PathTarget *target, Path *child, const CustomPathMethods *methods,
		  List *private)
{
	CustomPath *path = makeNode(CustomPath);

	path->path = (Path){.type = T_CustomPath,
						.pathtype = T_CustomScan,
						.parent = rel,
						.pathtarget = target,
						.rows = child->rows};
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->custom_paths = list_make1(child);
	path->custom_private = private;
	path->methods = methods;
	return path;
}

/* Of any relation: without joins so far. NULL: its rows depend on others. */
static gstore_join_plan *
begin_plan(const PlannerInfo *root, RelOptInfo *rel)
{
	Path			 *child = rel->cheapest_total_path;
	gstore_join_plan *plan;
	CustomPath		 *batch;

	if (child == NULL || child->param_info != NULL || !bms_is_empty(rel->lateral_relids))
		return NULL;
	batch = make_path(rel, rel->reltarget, child, &batch_path, NIL);
	batch->path.startup_cost = child->startup_cost;
	batch->path.total_cost = child->total_cost;
	plan = palloc0(sizeof *plan);
	plan->rows = rel;
	plan->tables = bms_intersect(rel->relids, root->all_baserels);
	plan->local = (Path *) batch;
	return plan;
}

/* How the relation is made, of which the outer side of a join is; NULL: it is not made on the GPU. */
static const gstore_join_plan *
noted_plan(const RelOptInfo *rel)
{
	return rel->reloptkind == RELOPT_JOINREL && rel->fdwroutine == NULL ? rel->fdw_private : NULL;
}

/* Of joined rows, those that records have; others are the outer rows'. */
static List *
inner_columns(const gstore_join_plan *plan, const List *exprs)
{
	return list_difference(exprs, plan->rows->reltarget->exprs);
}

/* The columns that a plan returns, and what becomes of rows. */
static List *
make_private(const gstore_join_plan *plan, List *outputs, gstore_query_sink sink)
{
	return list_make3((List *) plan, outputs, makeInteger((int) sink));
}

/* With the values of columns, or without. False: it cannot be compiled. */
static bool
measure_rows(PlannerInfo *root, const gstore_join_plan *plan, List *columns, gstore_query_size *size)
{
	gstore_query query = gstore_join_query(root, plan);

	query.sink = GSTORE_SINK_ROWS;
	query.keys = columns;
	return gstore_query_measure(&query, size);
}

/* False: it cannot be compiled. */
static bool
set_costs(PlannerInfo *root, gstore_join_plan *plan, const RelOptInfo *joined, CustomPath *path)
{
	gstore_query_size size;
	const Path		 *child = plan->rows->cheapest_total_path;

	if (!measure_rows(root, plan, NIL, &size))
		return false;
	path->path.rows = joined->rows;
	path->path.startup_cost = child->startup_cost + gstore_query_builds_cost(root, plan) +
		joined->reltarget->cost.startup;
	path->path.total_cost = path->path.startup_cost + child->total_cost - child->startup_cost +
		gstore_query_batches_cost(root, plan, joined->rows, &size, false) +
		joined->rows * (cpu_tuple_cost * GSTORE_JOINED_ROW_PART + joined->reltarget->cost.per_tuple);
	plan->total = path->path.total_cost;
	return true;
}

static void
add_join_path(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
			  JoinType type, JoinPathExtraData *extra)
{
	const gstore_join_plan *before, *noted;
	gstore_join_plan	   *plan;
	gstore_query_size		size;
	CustomPath			   *path;

	if (previous_join_hook != NULL)
		previous_join_hook(root, joined, outer, inner, type, extra);
	if (inner->fdwroutine == NULL || joined->fdwroutine != NULL || IS_OTHER_REL(joined) ||
		root->hasPseudoConstantQuals || !gstore_join_is_offered(root, joined))
		return;
	noted = noted_plan(joined);
	before = noted_plan(outer) != NULL ? noted_plan(outer) : begin_plan(root, outer);
	plan = gstore_join_extend(root, before, joined, outer, inner, type, extra->restrictlist);
	if (plan == NULL)
		return;
	plan->local = join_locally(root, joined, outer, inner, type, extra, before->local);
	path = make_path(joined, joined->reltarget, plan->local, &join_path,
					 make_private(plan, joined->reltarget->exprs, GSTORE_SINK_ROWS));
	if (!set_costs(root, plan, joined, path) || (noted != NULL && noted->total <= plan->total))
		return;
	joined->fdw_private = plan;
	if (gstore_join_hides(root, plan, joined->reltarget->exprs) ||
		!measure_rows(root, plan, inner_columns(plan, joined->reltarget->exprs), &size))
		return;
	path->path.total_cost += joined->rows * cpu_tuple_cost * GSTORE_LATE_ROW_PART * size.late;
	add_path(joined, (Path *) path);
}

/* ---- groups */

/* Of each batch by themselves; PostgreSQL combines them. */
static void
add_group_path(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *grouped,
			   const GroupPathExtraData *extra)
{
	const AggSplit split = stage == UPPERREL_DISTINCT ? AGGSPLIT_SIMPLE : AGGSPLIT_FINAL_DESERIAL;
	const gstore_join_plan *plan = noted_plan(input);
	const Path			   *child;
	gstore_partial			step;
	AggClauseCosts			costs = {0};
	CustomPath			   *path;

	if (plan == NULL || !gstore_query_partial(root, stage, input, grouped, extra, plan, &step))
		return;
	path = make_path(grouped, step.target, step.local, &join_path,
					 make_private(plan, step.target->exprs, GSTORE_SINK_GROUPS));
	child = plan->rows->cheapest_total_path;
	path->path.rows = clamp_row_est(
		Min(input->rows, step.groups * ceil(plan->rows->rows / GQUERY_BATCH_ROWS_MAX)));
	path->path.startup_cost = child->startup_cost + gstore_query_builds_cost(root, plan);
	path->path.total_cost = path->path.startup_cost + child->total_cost - child->startup_cost +
		gstore_query_batches_cost(root, plan, input->rows, &step.size, step.clauses != NIL) +
		path->path.rows * cpu_tuple_cost;
	if (split != AGGSPLIT_SIMPLE) /* otherwise there are no aggregates */
		get_agg_clause_costs(root, split, &costs);
	add_path(grouped,
			 (Path *) create_agg_path(root, grouped, (Path *) path, step.whole,
									  step.clauses != NIL ? AGG_HASHED : AGG_PLAIN, split,
									  step.clauses, step.having, &costs, step.groups));
}

static void
add_upper_path(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *output,
			   void *extra)
{
	if (previous_upper_hook != NULL)
		previous_upper_hook(root, stage, input, output, extra);
	if ((stage == UPPERREL_GROUP_AGG || stage == UPPERREL_DISTINCT) && gstore_gpu_queries &&
		gstore_gpu_aggregates && gstore_gpu_joins)
		add_group_path(root, stage, input, output, extra);
}

/* ---- plans */

static CustomScan *
make_scan(const CustomPath *path, List *targets, List *plans, const CustomScanMethods *methods)
{
	CustomScan *scan = makeNode(CustomScan);

	scan->scan.plan.targetlist = targets;
	scan->flags = path->flags;
	scan->custom_plans = plans;
	scan->methods = methods;
	return scan;
}

static List *
add_columns(List *tuple, const List *exprs)
{
	const ListCell *cell;

	foreach(cell, exprs)
		tuple = lappend(tuple,
						makeTargetEntry(copyObject(lfirst(cell)),
										(AttrNumber) (list_length(tuple) + 1), NULL, false));
	return tuple;
}

static Plan *
plan_batch(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *targets, List *clauses,
		   List *plans)
{
	CustomScan *scan = make_scan(path, targets, plans, &gstore_heap_batch_scan);

	scan->custom_scan_tlist = add_columns(NIL, path->path.pathtarget->exprs);
	return (Plan *) scan;
}

static List *
table_columns(const gstore_join_plan *plan)
{
	List	 *out = NIL;
	ListCell *cell;

	foreach(cell, plan->joins)
		out = lappend(out,
					  makeVar((int) ((const gstore_query_join *) lfirst(cell))->relation,
							  TableOidAttributeNumber, OIDOID, -1, InvalidOid, 0));
	return out;
}

static Bitmapset *
varnos_of(const List *columns)
{
	Bitmapset	   *tables = NULL;
	const ListCell *cell;

	foreach(cell, columns)
		tables = bms_add_member(tables, lfirst_node(Var, cell)->varno);
	return tables;
}

/*
 * Of each column that is returned: where it is in outer rows; -1: in records. The executor cannot tell, as
 * PostgreSQL takes placeholders for what they hold.
 */
static List *
find_places(const List *outputs, const List *batch, gstore_query_sink sink)
{
	List		   *places = NIL;
	const ListCell *output, *cell;

	foreach(output, outputs)
	{
		int place = -1;

		if (sink == GSTORE_SINK_ROWS)
			foreach(cell, batch)
				if (equal(lfirst(cell), lfirst(output)))
					place = foreach_current_index(cell);
		places = lappend_int(places, place);
	}
	return places;
}

/*
 * Of outer rows, what columns in conditions and keys are to be found among: a placeholder is none of them, also
 * where it holds such a column.
 */
static List *
hide_placeholders(const List *batch)
{
	List		   *out = NIL;
	const ListCell *cell;

	foreach(cell, batch)
	{
		Node *node = lfirst(cell);

		out = lappend(out,
					  IsA(node, PlaceHolderVar)
						  ? (Node *) makeNullConst(exprType(node), exprTypmod(node), exprCollation(node))
						  : node);
	}
	return out;
}

static Plan *
plan_join(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *targets, List *clauses, List *plans)
{
	CustomScan		*scan = make_scan(path, targets, plans, &gstore_heap_join_scan);
	gstore_join_plan plan = *(gstore_join_plan *) linitial(path->custom_private);
	List			*outputs = lsecond(path->custom_private), *conditions = NIL, *tuple, *numbers;
	List			*tables = table_columns(&plan), *batch = plan.rows->reltarget->exprs;
	const int		 sink = intVal(lthird(path->custom_private));

	gstore_begin_with_few_groups(linitial(plans));
	plan.tables = varnos_of(tables);
	numbers = gstore_join_encode(&plan, &conditions);
	tuple = add_columns(add_columns(NIL, outputs), hide_placeholders(batch));
	scan->custom_scan_tlist = add_columns(add_columns(tuple, conditions), tables);
	(void) gstore_collect_parameters((Node *) scan->custom_scan_tlist, &scan->custom_exprs);
	scan->custom_private = list_make3(
		numbers, list_make4_int(sink, list_length(outputs), list_length(batch), list_length(tables)),
		find_places(outputs, batch, (gstore_query_sink) sink));
	return (Plan *) scan;
}

static List *
exprs_between(const List *tuple, int first, int limit)
{
	List *out = NIL;

	for (int i = first; i < limit; i++)
		out = lappend(out, list_nth_node(TargetEntry, tuple, i)->expr);
	return out;
}

const List *
gstore_heap_of_plan(const CustomScan *plan, gstore_query *query)
{
	const List *tuple = plan->custom_scan_tlist, *counts = lsecond(plan->custom_private),
			   *places = lthird(plan->custom_private);
	const int outputs = lsecond_int(counts), conditions_at = outputs + lthird_int(counts),
			  tables_at = list_length(tuple) - lfourth_int(counts);
	List			*columns = exprs_between(tuple, 0, outputs);
	ListCell		*cell;
	gstore_join_plan join;

	*query = (gstore_query){.sink = (gstore_query_sink) linitial_int(counts),
							.batched = true,
							.batch = exprs_between(tuple, outputs, conditions_at)};
	foreach(cell, columns)
		if (IsA(lfirst(cell), Aggref))
			query->aggregates = lappend(query->aggregates, lfirst(cell));
		else if (list_nth_int(places, foreach_current_index(cell)) < 0)
			query->keys = lappend(query->keys, lfirst(cell));
	gstore_join_decode(linitial(plan->custom_private),
					   varnos_of(exprs_between(tuple, tables_at, list_length(tuple))),
					   exprs_between(tuple, conditions_at, tables_at), &join);
	query->joins = join.joins;
	return places;
}

void
gstore_heap_init(void)
{
	previous_join_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = add_join_path;
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = add_upper_path;
	RegisterCustomScanMethods(&gstore_heap_join_scan);
	RegisterCustomScanMethods(&gstore_heap_batch_scan);
}
