/*
 * See query_path.h.
 *
 * The plan's scan tuple has the keys, then the aggregates, and last one column that is always true: the conditions, which are in
 * fdw_scan_tlist alone, as there PostgreSQL keeps what refers to columns of the table. fdw_exprs has their parameters, by
 * which PostgreSQL determines when a plan is to run again. HAVING and what is computed of the scan tuple is the executor's.
 *
 * The outer plan makes the same tuple here, of the rows of the local scan: it runs if the GPU cannot.
 */
#include "postgres.h"

#include <math.h>

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/prep.h"
#include "optimizer/restrictinfo.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "postgres/fdw.h"
#include "postgres/qual.h"
#include "postgres/query_join.h"
#include "postgres/query_path.h"
#include "postgres/settings.h"
#include "postgres/shared.h"

/*
 * Of plan.c's units, which are some 5 us. Measured: the software GPU by the processor time of queries over 1e6 rows, 3 to 8 ns an
 * instruction and 50 ns for a row's group; an H100 by docs/kernels.md.
 */
typedef struct device_costs
{
	Cost   instruction, group, probe; /* of a row */
	double bytes;					  /* that one unit reads */
} device_costs;

static const device_costs gpu_costs = {2e-7, 2e-6, 4e-6, 12e6},
						  software_costs = {0.0008, 0.005, 0.01, 4e5};

static GetForeignPlan_function plan_scan;

/* ---- what the step consists of */

typedef struct parts
{
	const gstore_join_plan *join;
	gstore_query			query;
	PathTarget			   *target; /* keys and aggregates: the scan tuple */
	List				   *having;
} parts;

/* Collects aggregates. True: there is something else that is made of rows. */
static bool
find_aggregates(Node *node, void *argument)
{
	parts *p = argument;

	if (node == NULL || list_member(p->query.keys, node))
		return false;
	if (IsA(node, Aggref))
	{
		p->query.aggregates = list_append_unique(p->query.aggregates, node);
		return false;
	}
	if (IsA(node, Var) || IsA(node, PlaceHolderVar) || IsA(node, GroupingFunc))
		return true;
	return expression_tree_walker(node, find_aggregates, argument);
}

static List *
group_clause(const PlannerInfo *root)
{
#if PG_VERSION_NUM >= 160000
	return root->processed_groupClause;
#else
	return root->parse->groupClause;
#endif
}

/* By PostgreSQL's order_qual_clauses(): security levels, then costs, and the order in which they were written. */
typedef struct ordered_clause
{
	RestrictInfo *info;
	Index		  level;
	Cost		  cost;
} ordered_clause;

static bool
comes_before(const ordered_clause *one, const ordered_clause *other)
{
	return one->level < other->level || (one->level == other->level && one->cost < other->cost);
}

static Cost
cost_of_clause(PlannerInfo *root, RestrictInfo *info)
{
	QualCost cost;

	cost_qual_eval_node(&cost, (Node *) info, root);
	return cost.per_tuple;
}

Index
gstore_query_level(PlannerInfo *root, RestrictInfo *info)
{
	return info->leakproof && cost_of_clause(root, info) < 10 * cpu_operator_cost
		? 0
		: info->security_level;
}

List *
gstore_query_order(PlannerInfo *root, List *infos)
{
	ordered_clause *all = palloc(sizeof *all * (Size) (list_length(infos) + 1));
	int				count = 0;
	List		   *out = NIL;
	ListCell	   *cell;

	foreach(cell, infos)
	{
		RestrictInfo  *info = lfirst_node(RestrictInfo, cell);
		ordered_clause one = {info, gstore_query_level(root, info), cost_of_clause(root, info)};
		int			   at = count++;

		for (; at > 0 && comes_before(&one, &all[at - 1]); at--)
			all[at] = all[at - 1];
		all[at] = one;
	}
	for (int i = 0; i < count; i++)
		out = lappend(out, all[i].info);
	return out;
}

static bool
find_keys(PlannerInfo *root, parts *p)
{
	ListCell *cell;

	foreach(cell, group_clause(root))
	{
		const SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Expr				  *key = (Expr *) get_sortgroupclause_expr((SortGroupClause *) clause,
																	   root->processed_tlist);

		if (!clause->hashable)
			return false;
		p->query.keys = lappend(p->query.keys, key);
		add_column_to_pathtarget(p->target, key, clause->tleSortGroupRef);
	}
	return p->query.keys != NIL || root->parse->groupClause == NIL;
}

static bool
find_parts(PlannerInfo *root, const RelOptInfo *input, const RelOptInfo *grouped,
		   const GroupPathExtraData *extra, parts *p)
{
	ListCell *cell;

	p->query.relation = p->join->outer;
	p->query.joins = p->join->joins;
	p->query.filters = p->join->filters;
	p->query.unset = gstore_unset_planned(root);
	p->target = create_empty_pathtarget();
	p->having = (List *) extra->havingQual;
	if (root->parse->hasTargetSRFs || !find_keys(root, p) ||
		find_aggregates((Node *) grouped->reltarget->exprs, p) ||
		find_aggregates((Node *) p->having, p))
		return false;
	foreach(cell, p->query.aggregates)
		add_column_to_pathtarget(p->target, lfirst(cell), 0);
	set_pathtarget_cost_width(root, p->target);
	return true;
}

/* ---- paths */

/* Of one table of ours without children, or joined ones, whose rows are not locked; a pseudoconstant condition is a plan node above a scan. */
static bool
is_simple(PlannerInfo *root, const RelOptInfo *input)
{
	const Query *query = root->parse;

	return query->commandType == CMD_SELECT && query->groupingSets == NIL && query->rowMarks == NIL &&
		root->rowMarks == NIL && bms_is_empty(input->lateral_relids) && !root->hasPseudoConstantQuals;
}

static double
count_groups(PlannerInfo *root, const parts *p, double rows)
{
	if (p->query.keys == NIL)
		return 1;
	return estimate_num_groups(root, p->query.keys, rows, NULL, NULL);
}

static Path *
make_local_path(PlannerInfo *root, RelOptInfo *input, RelOptInfo *grouped, const parts *p, double groups)
{
	Path *local = p->join->joins == NIL ? gstore_plan_alone(root, input) : input->cheapest_total_path;
	AggClauseCosts costs = {0};

	get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &costs);
	return (Path *) create_agg_path(root, grouped, local, p->target,
									p->query.keys != NIL ? AGG_HASHED : AGG_PLAIN, AGGSPLIT_SIMPLE,
									group_clause(root), NIL, &costs, groups);
}

static double
row_bytes(const RelOptInfo *input, PlannerInfo *root, const Bitmapset *columns)
{
	const Oid relation = root->simple_rte_array[input->relid]->relid;
	double	  bytes = 0;
	int		  number = -1;

	while ((number = bms_next_member(columns, number)) >= 0)
	{
		const int16 length = get_typlen(get_atttype(relation, (AttrNumber) number));

		bytes += length > 0 ? length : get_attavgwidth(relation, (AttrNumber) number);
	}
	return bytes;
}

static device_costs
costs_of_device(void)
{
	const Cost all = gstore_gpu_instruction_cost;

	if (all >= 0)
		return (device_costs){all, all, all, INFINITY};
	return gstore->software ? software_costs : gpu_costs;
}

Cost
gstore_query_run_cost(PlannerInfo *root, const RelOptInfo *rel, const gstore_query_size *size,
					  bool grouped)
{
	const device_costs costs = costs_of_device();
	Cost			   row;

	row = size->instructions * costs.instruction + row_bytes(rel, root, size->columns) / costs.bytes;
	if (grouped)
		row += costs.group;
	return gstore_gpu_startup_cost + rel->tuples * row;
}

/* Where rows have several matches, all of them go through the instructions behind the joins. */
static Cost
cost_of_run(PlannerInfo *root, const RelOptInfo *input, const parts *p, const gstore_query_size *size)
{
	const RelOptInfo  *outer = find_base_rel(root, (int) p->query.relation);
	const device_costs costs = costs_of_device();
	const double	   more = Max(input->rows - outer->tuples, 0);

	return gstore_query_run_cost(root, outer, size, p->query.keys != NIL) +
		(p->query.joins == NIL ? 0 : p->join->probes * costs.probe) +
		more * size->instructions * costs.instruction;
}

static void
add_query_path(PlannerInfo *root, RelOptInfo *input, RelOptInfo *grouped, const parts *p,
			   const gstore_query_size *size)
{
	const double groups = count_groups(root, p, input->rows);
	const double rows = clamp_row_est(groups *
									  clauselist_selectivity(root, p->having, 0, JOIN_INNER, NULL));
	const Cost	 startup = cost_of_run(root, input, p, size);
	QualCost	 having;
	ForeignPath *path;

	cost_qual_eval(&having, p->having, root);
	path = create_foreign_upper_path(
		root, grouped, grouped->reltarget, rows, startup + having.startup,
		startup + having.startup + groups * (cpu_tuple_cost + having.per_tuple) +
			rows * grouped->reltarget->cost.per_tuple,
		NIL, make_local_path(root, input, grouped, p, groups),
		list_make3((List *) p->join, p->target, p->having));
	path->path.parallel_safe = false;
	add_path(grouped, (Path *) path);
}

static void
gstoreGetForeignUpperPaths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input,
						   RelOptInfo *grouped, void *extra)
{
	parts			  p = {0};
	gstore_query_size size;

	if (stage != UPPERREL_GROUP_AGG || !gstore_gpu_queries || !gstore_gpu_aggregates ||
		!is_simple(root, input))
		return;
	p.join = gstore_join_find(root, input);
	if (p.join != NULL && bms_equal(p.join->tables, root->all_baserels) &&
		find_parts(root, input, grouped, extra, &p) && gstore_query_measure(&p.query, &size))
		add_query_path(root, input, grouped, &p, &size);
}

/* ---- plans */

static bool
collect_parameters(Node *node, void *argument)
{
	List **parameters = argument;

	if (node == NULL)
		return false;
	if (IsA(node, Param))
		*parameters = list_append_unique(*parameters, node);
	return expression_tree_walker(node, collect_parameters, argument);
}

/* Keys and aggregates; conditions as further columns, each an AND also of one condition, as they are no keys. */
static List *
make_scan_tuple(const PathTarget *target, List *conditions)
{
	List	 *out = NIL;
	ListCell *cell;

	foreach(cell, target->exprs)
		out = lappend(out,
					  makeTargetEntry(copyObject(lfirst(cell)), (AttrNumber) (list_length(out) + 1),
									  NULL, false));
	foreach(cell, conditions)
		out = lappend(out,
					  makeTargetEntry(lfirst(cell), (AttrNumber) (list_length(out) + 1), NULL, true));
	return out;
}

static ForeignScan *
gstoreGetForeignPlan(PlannerInfo *root, RelOptInfo *rel, Oid relation, ForeignPath *path,
					 List *targets, List *clauses, Plan *outer)
{
	List *numbers, *conditions = NIL, *having, *tuple, *parameters = NIL;

	if (rel->reloptkind != RELOPT_UPPER_REL)
		return plan_scan(root, rel, relation, path, targets, clauses, outer);
	numbers = gstore_join_encode(linitial(path->fdw_private), &conditions);
	having = lthird(path->fdw_private);
	tuple = make_scan_tuple(lsecond(path->fdw_private), conditions);
	(void) collect_parameters((Node *) tuple, &parameters);
	return make_foreignscan(targets, having, 0, parameters, list_make1(numbers), tuple, NIL, outer);
}

void
gstore_query_path_callbacks(FdwRoutine *routine)
{
	plan_scan = routine->GetForeignPlan;
	routine->GetForeignPlan = gstoreGetForeignPlan;
	routine->GetForeignUpperPaths = gstoreGetForeignUpperPaths;
	gstore_join_callbacks(routine);
}

static const Bitmapset *
tables_of(const ForeignScan *plan)
{
#if PG_VERSION_NUM >= 160000
	return plan->fs_base_relids;
#else
	return plan->fs_relids;
#endif
}

void
gstore_query_of_plan(const ForeignScan *plan, gstore_query *query)
{
	List			*conditions = NIL;
	ListCell		*cell;
	gstore_join_plan join;

	*query = (gstore_query){0};
	foreach(cell, plan->fdw_scan_tlist)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (entry->resjunk)
			conditions = lappend(conditions, entry->expr);
		else if (IsA(entry->expr, Aggref))
			query->aggregates = lappend(query->aggregates, entry->expr);
		else
			query->keys = lappend(query->keys, entry->expr);
	}
	gstore_join_decode(linitial(plan->fdw_private), tables_of(plan), conditions, &join);
	query->relation = join.outer;
	query->filters = join.filters;
	query->joins = join.joins;
}
