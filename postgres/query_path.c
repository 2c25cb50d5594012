/*
 * See query_path.h.
 *
 * A grouping step has a path that returns all groups. It has another one, in the query's order, that returns the first
 * groups alone, if the order and HAVING can be compiled for groups and LIMIT is known. A partition has a path for a
 * partial aggregate: the final one is PostgreSQL's, above an Append.
 *
 * The plan's scan tuple has the keys, then the aggregates, and last one column that is always true: the conditions, which are in
 * fdw_scan_tlist alone, as there PostgreSQL keeps what refers to columns of the table. fdw_exprs has their parameters, by
 * which PostgreSQL determines when a plan is to run again, then HAVING, keys and limits of an order, in which PostgreSQL puts references to
 * the scan tuple. HAVING and what is computed of the scan tuple is the executor's, too.
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
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/restrictinfo.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "postgres/compat.h"
#include "postgres/fdw.h"
#include "postgres/qual.h"
#include "postgres/query_join.h"
#include "postgres/query_order.h"
#include "postgres/query_path.h"
#include "postgres/query_word.h"
#include "postgres/settings.h"
#include "postgres/shared.h"

#define LOCAL_GROUPS_FIRST 1024

/* In plan.c's units, which are some 5 us. docs/design/query.md, "Costs", says how they are measured. */
typedef struct device_costs
{
	Cost startup;					/* of a query */
	Cost instruction, group, probe; /* of a row */
	Cost page;						/* of BLCKSZ bytes of columns */
} device_costs;

static const device_costs gpu_costs = {20, 2e-7, 7e-6, 7e-6, 7e-4},
						  software_costs = {150, 0.0008, 0.005, 0.01, 0.02};

/*
 * Of a batch of outer rows: of a query's startup, what it takes beside its rows; of cpu_tuple_cost, for a row that is kept and whose columns are written. Measured on the software
 * GPU, 1e6 rows of a heap joined with 1,000: 0.33 to 0.42 s with all of them returned, of which the heap's scan takes 0.1 s and kernels 0.1 s; a local hash join takes 0.25 s.
 */
#define BATCH_PART	   0.4
#define BATCH_ROW_PART 3.0

static GetForeignPlan_function plan_scan;

/* ---- what the step consists of */

typedef struct parts
{
	const gstore_join_plan *join;
	gstore_query			query;
	List				   *clauses; /* SortGroupClause: of the keys */
	PathTarget			   *target;	 /* keys and aggregates: the scan tuple */
	List				   *having;
	AggSplit				split; /* of the aggregates */
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

static List *
distinct_clause(const PlannerInfo *root)
{
#if PG_VERSION_NUM >= 160000
	return root->processed_distinctClause;
#else
	return root->parse->distinctClause;
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

/* Of a partition they are expressions of its own columns. */
static Expr *
find_key(const PathTarget *target, Index number)
{
	ListCell *cell;

	foreach(cell, target->exprs)
		if (get_pathtarget_sortgroupref(target, foreach_current_index(cell)) == number)
			return lfirst(cell);
	return NULL;
}

/* A text that is mostly too long for a key. */
static bool
is_long(const PlannerInfo *root, Node *key)
{
	ListCell *cell;

	if (!gstore_is_text(getBaseType(exprType(key))))
		return false;
	foreach(cell,
			pull_var_clause(
				key, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_RECURSE_PLACEHOLDERS))
	{
		const Var *var = lfirst_node(Var, cell);

		if (get_attavgwidth(root->simple_rte_array[var->varno]->relid, var->varattno) >
			GQUERY_NUMBERED_BYTES + VARHDRSZ)
			return true;
	}
	return false;
}

/* The argument of DISTINCT is a key, too. */
static bool
is_long_distinct(const PlannerInfo *root, const Aggref *aggregate)
{
	return aggregate->aggdistinct != NIL &&
		is_long(root, (Node *) linitial_node(TargetEntry, aggregate->args)->expr);
}

static bool
find_group_keys(const PlannerInfo *root, const PathTarget *target, parts *p)
{
	ListCell *cell;

	foreach(cell, p->clauses)
	{
		const SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Expr				  *key = find_key(target, clause->tleSortGroupRef);

		if (key == NULL || !clause->hashable || is_long(root, (Node *) key))
			return false;
		p->query.keys = lappend(p->query.keys, key);
		add_column_to_pathtarget(p->target, key, clause->tleSortGroupRef);
	}
	return true;
}

/* As a partial step has it. */
static Aggref *
as_split(Aggref *aggregate, AggSplit split)
{
	if (aggregate->aggsplit != split)
	{
		aggregate = copyObject(aggregate);
		mark_partial_aggref(aggregate, split);
	}
	return aggregate;
}

static bool
find_parts(PlannerInfo *root, const PathTarget *target, parts *p)
{
	ListCell *cell;

	p->query = gstore_join_query(root, p->join);
	if (!p->query.batched)
		p->query.table = root->simple_rte_array[p->join->outer]->relid;
	p->target = create_empty_pathtarget();
	if (root->parse->hasTargetSRFs || !find_group_keys(root, target, p) ||
		find_aggregates((Node *) target->exprs, p) || find_aggregates((Node *) p->having, p))
		return false;
	foreach(cell, p->query.aggregates)
	{
		if (is_long_distinct(root, lfirst_node(Aggref, cell)))
			return false;
		lfirst(cell) = as_split(lfirst_node(Aggref, cell), p->split);
		add_column_to_pathtarget(p->target, lfirst(cell), 0);
	}
	set_pathtarget_cost_width(root, p->target);
	return true;
}

/* ---- paths */

/* DISTINCT within aggregates: the local plan sorts. */
static bool
can_sort(const PlannerInfo *root, const RelOptInfo *input)
{
	return !IS_OTHER_REL(input) &&
		(root->parse->groupClause == NIL || grouping_is_sortable(root->parse->groupClause));
}

/* It has all that the query reads, or partitions of all of it. */
static bool
is_whole(const PlannerInfo *root, const RelOptInfo *rel)
{
	return bms_is_subset(root->all_baserels, IS_OTHER_REL(rel) ? rel->top_parent_relids : rel->relids);
}

/* Of rows that are not locked; a pseudoconstant condition is a plan node above a scan. */
static bool
is_unlocked_input(PlannerInfo *root, const RelOptInfo *input)
{
	const Query *query = root->parse;

	if (root->numOrderedAggs > 0 && !can_sort(root, input))
		return false;
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

/* The step's input without joins on the GPU. */
static Path *
local_rows(PlannerInfo *root, RelOptInfo *input, const gstore_join_plan *join)
{
	Path *rows = input->cheapest_total_path;

	if (join->joins == NIL)
		return gstore_plan_alone(root, input);
	return join->rows != NULL || (join->local != NULL && gstore_join_has_gpu(rows))
		? (Path *) create_projection_path(root, input, join->local, rows->pathtarget)
		: rows;
}

static Path *
make_local_path(PlannerInfo *root, RelOptInfo *input, RelOptInfo *grouped, const parts *p, double groups)
{
	const bool	   sorted = root->numOrderedAggs > 0;
	AggClauseCosts costs = {0};
	Path		  *rows = local_rows(root, input, p->join);

	get_agg_clause_costs(root, p->split, &costs);
	if (sorted && root->group_pathkeys != NIL) /* those of keys, and, in 16, of DISTINCT */
		rows = (Path *) create_sort_path(root, input, rows, root->group_pathkeys, -1);
	return (Path *) create_agg_path(root, grouped, rows, p->target,
									p->query.keys == NIL ? AGG_PLAIN
										: sorted		 ? AGG_SORTED
														 : AGG_HASHED,
									p->split, p->clauses, NIL, &costs, groups);
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

static void
apply_setting(Cost *cost, double setting)
{
	if (setting >= 0)
		*cost = setting;
}

static device_costs
costs_of_device(void)
{
	const Cost	 all = gstore_gpu_instruction_cost;
	device_costs costs = gstore->software ? software_costs : gpu_costs;

	if (all >= 0)
		costs = (device_costs){costs.startup, all, all, all, 0};
	apply_setting(&costs.startup, gstore_gpu_startup_cost);
	apply_setting(&costs.group, gstore_gpu_group_cost);
	apply_setting(&costs.probe, gstore_gpu_probe_cost);
	apply_setting(&costs.page, gstore_gpu_page_cost);
	return costs;
}

Cost
gstore_query_run_cost(PlannerInfo *root, const RelOptInfo *rel, const gstore_query_size *size,
					  bool grouped)
{
	const device_costs costs = costs_of_device();
	Cost			   row;

	row = size->instructions * costs.instruction +
		row_bytes(rel, root, size->columns) / BLCKSZ * costs.page;
	if (grouped)
		row += costs.group;
	return costs.startup + rel->tuples * row;
}

/* Rows of texts by which rows are grouped: a text has to be found as a group has. */
static double
count_numbered(PlannerInfo *root, const List *relations)
{
	double	  rows = 0;
	ListCell *cell;

	foreach(cell, relations)
		rows += Max(find_base_rel(root, lfirst_int(cell))->tuples, 0);
	return rows;
}

/* Where rows have several matches, all of them go through the instructions behind the joins. */
static Cost
cost_of_run(PlannerInfo *root, const RelOptInfo *input, const parts *p, const gstore_query_size *size)
{
	const RelOptInfo  *outer = find_base_rel(root, (int) p->query.relation);
	const device_costs costs = costs_of_device();
	const double	   more = Max(input->rows - outer->tuples, 0);

	return gstore_query_run_cost(root, outer, size,
								 p->query.sink == GSTORE_SINK_GROUPS && p->query.keys != NIL) +
		(p->query.joins == NIL ? 0 : p->join->probes * costs.probe) +
		more * size->instructions * costs.instruction +
		count_numbered(root, size->numbered) * costs.group;
}

Cost
gstore_query_batches_cost(PlannerInfo *root, const gstore_join_plan *plan, double joined_rows,
						  const gstore_query_size *size, bool grouped)
{
	const device_costs costs = costs_of_device();
	const double	   rows = plan->rows->rows, batches = ceil(rows / GQUERY_BATCH_ROWS_MAX);

	return batches * (BATCH_PART * costs.startup + count_numbered(root, size->numbered) * costs.group) +
		rows * (BATCH_ROW_PART * cpu_tuple_cost + (grouped ? costs.group : 0)) +
		Max(rows, joined_rows) * size->instructions * costs.instruction +
		(plan->probes - gstore_join_builds(root, plan, false) +
		 (batches - 1) * gstore_join_builds(root, plan, true)) *
		costs.probe;
}

Cost
gstore_query_builds_cost(PlannerInfo *root, const gstore_join_plan *plan)
{
	const device_costs costs = costs_of_device();

	return costs.startup + gstore_join_builds(root, plan, false) * costs.probe;
}

/* Of the grouping step, for paths above it. Its own path is not among these: add_path() frees a path that is no use. */
typedef struct grouping
{
	parts  parts;
	Path  *local; /* what runs if the GPU cannot */
	double rows;
	Cost   startup;
} grouping;

static void
remember_grouping(RelOptInfo *grouped, const grouping *g)
{
	grouped->fdw_private = palloc(sizeof *g);
	memcpy(grouped->fdw_private, g, sizeof *g);
}

/* fdw_private of a path. */
enum
{
	PRIVATE_JOIN,
	PRIVATE_TARGET,
	PRIVATE_QUALS,	/* HAVING, on rows */
	PRIVATE_HAVING, /* on groups, and their order */
	PRIVATE_ORDER,
	PRIVATE_DIRECTIONS,
	PRIVATE_LIMITS,
};

static List *
make_private(const parts *p, List *limits)
{
	return list_concat(list_make4((List *) p->join, p->target, p->having, p->query.having),
					   list_make3(p->query.order, p->query.order_directions, limits));
}

static void
add_query_path(PlannerInfo *root, RelOptInfo *input, RelOptInfo *grouped, PathTarget *target,
			   const parts *p, const gstore_query_size *size)
{
	const double groups = count_groups(root, p, input->rows);
	const double rows = clamp_row_est(groups *
									  clauselist_selectivity(root, p->having, 0, JOIN_INNER, NULL));
	const Cost	 startup = cost_of_run(root, input, p, size);
	Path *const	 local = make_local_path(root, input, grouped, p, groups);
	QualCost	 having;
	ForeignPath *path;

	cost_qual_eval(&having, p->having, root);
	path = create_foreign_upper_path(root, grouped, target, rows, startup + having.startup,
									 startup + having.startup +
										 groups * (cpu_tuple_cost + having.per_tuple) +
										 rows * target->cost.per_tuple,
									 NIL, local, make_private(p, NIL));
	path->path.parallel_safe = false;
	add_path(grouped, (Path *) path);
	remember_grouping(grouped, &(grouping){*p, local, rows, startup});
}

/* ---- joined rows */

/* What runs if the GPU cannot, in the same order. */
static Path *
local_join(PlannerInfo *root, RelOptInfo *joined, const gstore_join_plan *plan, List *pathkeys)
{
	return pathkeys == NIL || plan->local == NULL
		? plan->local
		: (Path *) create_sort_path(root, joined, plan->local, pathkeys, root->limit_tuples);
}

static void
add_join_path(PlannerInfo *root, RelOptInfo *joined, const parts *p, List *pathkeys, List *limits)
{
	const PathTarget *target = joined->reltarget;
	gstore_query_size size;
	ForeignPath		 *path;
	Cost			  run, row;

	if (!gstore_query_measure(&p->query, &size))
		return;
	run = cost_of_run(root, joined, p, &size);
	row = cpu_tuple_cost * (GSTORE_JOINED_ROW_PART + GSTORE_LATE_ROW_PART * size.late) +
		target->cost.per_tuple;
	path = create_foreign_join_path(root, joined, NULL, joined->rows, run + target->cost.startup,
									(pathkeys == NIL ? run : gstore_order_cost(root, joined, run)) +
										target->cost.startup + joined->rows * row,
									pathkeys, NULL, local_join(root, joined, p->join, pathkeys),
									make_private(p, limits));
	path->path.parallel_safe = false;
	add_path(joined, (Path *) path);
}

void
gstore_query_add_join(PlannerInfo *root, RelOptInfo *joined, gstore_join_plan *plan)
{
	parts p = {.join = plan, .target = joined->reltarget};
	List *limits;

	p.query = (gstore_query){.sink = GSTORE_SINK_ROWS,
							 .relation = plan->outer,
							 .filters = plan->filters,
							 .joins = plan->joins,
							 .keys = joined->reltarget->exprs,
							 .unset = gstore_unset_planned(root)};
	if (plan->local == NULL || root->hasPseudoConstantQuals ||
		gstore_join_hides(root, plan, joined->reltarget->exprs))
		return;
	add_join_path(root, joined, &p, NIL, NIL);
	p.query.sink = GSTORE_SINK_FIRST_ROWS;
	if (is_whole(root, joined) &&
		gstore_order_find(root, joined, &p.query.order, &p.query.order_directions, &limits))
		add_join_path(root, joined, &p, root->query_pathkeys, limits);
}

void
gstore_query_set_local(PlannerInfo *root, RelOptInfo *joined, const gstore_join_plan *plan)
{
	ListCell *cell;

	foreach(cell, joined->pathlist)
	{
		ForeignPath *path = lfirst(cell);

		if (IsA(path, ForeignPath) && path->fdw_private != NIL &&
			list_nth(path->fdw_private, PRIVATE_JOIN) == plan)
			path->fdw_outerpath = local_join(root, joined, plan, path->path.pathkeys);
	}
}

/* ---- groups in an order */

/* What gives a path in an order its keys: of the parts, or made of them. */
static Expr *
find_sorted_output(const PathKey *key, const PathTarget *target, int *direction)
{
	ListCell *cell;

	foreach(cell, key->pk_eclass->ec_members)
	{
		const EquivalenceMember *em = lfirst(cell);
		parts					 found = {0};

		found.query.keys = target->exprs; /* aggregates are among them */
		if (!em->em_is_const && !em->em_is_child && !key->pk_eclass->ec_has_volatile &&
			!find_aggregates((Node *) em->em_expr, &found) && found.query.aggregates == NIL &&
			gstore_order_fits(key, em->em_expr, direction))
			return em->em_expr;
	}
	return NULL;
}

static bool
find_order(PlannerInfo *root, parts *p)
{
	ListCell *cell;

	foreach(cell, root->sort_pathkeys)
	{
		int	  direction;
		Expr *key = find_sorted_output(lfirst(cell), p->target, &direction);

		if (key == NULL)
			return false;
		p->query.order = lappend(p->query.order, key);
		p->query.order_directions = lappend_int(p->query.order_directions, direction);
	}
	return p->query.order != NIL;
}

/* Nothing that is above the groups alone is to be evaluated for them. */
static bool
is_made_of(const PathTarget *target, const parts *p)
{
	parts found = {0};

	found.query.keys = p->target->exprs;
	return !find_aggregates((Node *) target->exprs, &found) && found.query.aggregates == NIL;
}

static void
add_order_path(PlannerInfo *root, RelOptInfo *grouped, RelOptInfo *ordered)
{
	const PathTarget *target = root->upper_targets[UPPERREL_ORDERED];
	const grouping	 *g = grouped->fdw_private;
	List			 *limits = gstore_find_limits(root->parse);
	gstore_query_size size;
	parts			  p;
	ForeignPath		 *path;
	Path			 *local;

	if (g == NULL || limits == NIL || root->parse->limitOption != LIMIT_OPTION_COUNT)
		return;
	p = g->parts;
	if (p.query.keys == NIL)
		return;
	p.query.having = p.having;
	if (!find_order(root, &p) || !is_made_of(target, &p) || !gstore_query_measure(&p.query, &size))
		return;
	local = (Path *) create_sort_path(root, ordered, g->local, root->sort_pathkeys, -1);
	path = create_foreign_upper_path(
		root, ordered, (PathTarget *) target, g->rows, g->startup + target->cost.startup,
		g->startup + target->cost.startup + g->rows * (cpu_tuple_cost + target->cost.per_tuple),
		root->sort_pathkeys, local, make_private(&p, limits));
	path->path.parallel_safe = false;
	add_path(ordered, (Path *) path);
}

/* Where all keys are constants that PostgreSQL leaves out, there is no group of no rows, for all that. */
static bool
has_all_keys(const PlannerInfo *root, const parts *p)
{
	return p->clauses != NIL || root->parse->groupClause == NIL;
}

/* What the step returns; NULL: it is no grouping. DISTINCT groups by all that is returned. */
static PathTarget *
choose_step(const PlannerInfo *root, UpperRelationKind stage, const RelOptInfo *input,
			const RelOptInfo *grouped, const GroupPathExtraData *extra, parts *p)
{
	switch (stage)
	{
		case UPPERREL_PARTIAL_GROUP_AGG: /* HAVING is the final step's */
			p->clauses = group_clause(root);
			p->split = AGGSPLIT_INITIAL_SERIAL;
			return IS_OTHER_REL(input) && has_all_keys(root, p) ? grouped->reltarget : NULL;
		case UPPERREL_GROUP_AGG:
			p->clauses = group_clause(root);
			p->having = (List *) extra->havingQual;
			return has_all_keys(root, p) ? grouped->reltarget : NULL;
		case UPPERREL_DISTINCT:
			p->clauses = distinct_clause(root);
			return p->clauses != NIL && !root->parse->hasDistinctOn
				? root->upper_targets[UPPERREL_DISTINCT]
				: NULL;
		default:
			return NULL;
	}
}

/* With HAVING, or, if that has no instructions, without. */
static bool
measure(parts *p, gstore_query_size *size)
{
	p->query.having = p->query.keys != NIL ? p->having : NIL;
	if (p->query.having != NIL && gstore_query_measure(&p->query, size))
		return true;
	p->query.having = NIL;
	return gstore_query_measure(&p->query, size);
}

static void
gstoreGetForeignUpperPaths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input,
						   RelOptInfo *grouped, void *extra)
{
	parts			  p = {0};
	gstore_query_size size;
	PathTarget		 *target;

	if (!gstore_gpu_queries || !gstore_gpu_aggregates)
		return;
	if (stage == UPPERREL_ORDERED && gstore_gpu_order && IS_UPPER_REL(input))
		add_order_path(root, input, grouped);
	target = choose_step(root, stage, input, grouped, extra, &p);
	if (target == NULL || !is_unlocked_input(root, input))
		return;
	p.join = gstore_join_find(root, input);
	if (p.join != NULL && is_whole(root, input) && find_parts(root, target, &p) && measure(&p, &size))
		add_query_path(root, input, grouped, target, &p, &size);
}

bool
gstore_query_partial(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input,
					 RelOptInfo *grouped, const GroupPathExtraData *extra,
					 const gstore_join_plan *join, gstore_partial *out)
{
	parts		p = {.join = join};
	PathTarget *target = choose_step(root, stage, input, grouped, extra, &p);

	p.split = AGGSPLIT_INITIAL_SERIAL;
	if (target == NULL || !is_unlocked_input(root, input) || root->numOrderedAggs > 0 ||
		root->hasNonPartialAggs || root->hasNonSerialAggs || !is_whole(root, input) ||
		!find_parts(root, target, &p) || !gstore_query_measure(&p.query, &out->size))
		return false;
	out->target = p.target;
	out->whole = target;
	out->clauses = p.clauses;
	out->having = p.having;
	out->groups = count_groups(root, &p, input->rows);
	out->local = make_local_path(root, input, grouped, &p, out->groups);
	return true;
}

/* ---- plans */

bool
gstore_collect_parameters(Node *node, void *argument)
{
	List **parameters = argument;

	if (node == NULL)
		return false;
	if (IsA(node, Param))
		*parameters = list_append_unique(*parameters, node);
	return expression_tree_walker(node, gstore_collect_parameters, argument);
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

/*
 * PostgreSQL makes hash tables of groups when the statement begins, as large as the planner's estimate: of a million groups that takes longer than
 * the GPU needs for the query. This plan runs seldom; its tables grow if it does.
 */
void
gstore_begin_with_few_groups(Plan *plan)
{
	if (plan == NULL)
		return;
	if (IsA(plan, Agg))
		((Agg *) plan)->numGroups = Min(((Agg *) plan)->numGroups, LOCAL_GROUPS_FIRST);
	gstore_begin_with_few_groups(plan->lefttree);
	gstore_begin_with_few_groups(plan->righttree);
}

static ForeignScan *
gstoreGetForeignPlan(PlannerInfo *root, RelOptInfo *rel, Oid relation, ForeignPath *path,
					 List *targets, List *clauses, Plan *outer)
{
	const int sink = !IS_JOIN_REL(rel) ? GSTORE_SINK_GROUPS
		: path->path.pathkeys == NIL   ? GSTORE_SINK_ROWS
									   : GSTORE_SINK_FIRST_ROWS;
	List *private = path->fdw_private, *numbers, *conditions = NIL, *tuple, *parameters = NIL;

	if (IS_SIMPLE_REL(rel))
		return plan_scan(root, rel, relation, path, targets, clauses, outer);
	gstore_begin_with_few_groups(outer);
	numbers = gstore_join_encode(list_nth(private, PRIVATE_JOIN), &conditions);
	tuple = make_scan_tuple(list_nth(private, PRIVATE_TARGET), conditions);
	(void) gstore_collect_parameters((Node *) tuple, &parameters);
	return make_foreignscan(
		targets, list_nth(private, PRIVATE_QUALS), 0,
		list_make4(parameters, list_nth(private, PRIVATE_HAVING), list_nth(private, PRIVATE_ORDER),
				   list_nth(private, PRIVATE_LIMITS)),
		list_make3(numbers, list_nth(private, PRIVATE_DIRECTIONS), list_make1_int(sink)), tuple,
		NIL, outer);
}

void
gstore_query_path_callbacks(FdwRoutine *routine)
{
	plan_scan = routine->GetForeignPlan;
	routine->GetForeignPlan = gstoreGetForeignPlan;
	routine->GetForeignUpperPaths = gstoreGetForeignUpperPaths;
	gstore_join_callbacks(routine);
}

/* References to the scan tuple become what they refer to. */
static Node *
resolve(Node *node, void *keys)
{
	if (node != NULL && IsA(node, Var) && ((Var *) node)->varno == INDEX_VAR)
		return copyObject(list_nth(keys, ((Var *) node)->varattno - 1));
	return expression_tree_mutator(node, resolve, keys);
}

void
gstore_query_of_plan(const ForeignScan *plan, gstore_query *query)
{
	List			*conditions = NIL;
	ListCell		*cell;
	gstore_join_plan join;

	*query = (gstore_query){.sink = (gstore_query_sink) linitial_int(lthird(plan->fdw_private)),
							.having = lsecond(plan->fdw_exprs),
							.order = lthird(plan->fdw_exprs),
							.order_directions = lsecond(plan->fdw_private)};
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
	gstore_join_decode(linitial(plan->fdw_private), gstore_scan_relids(plan), conditions, &join);
	if (query->sink == GSTORE_SINK_FIRST_ROWS)
		query->order = (List *) resolve((Node *) query->order, query->keys);
	query->relation = join.outer;
	query->filters = join.filters;
	query->joins = join.joins;
}

/* They are evaluated before there is a scan tuple, which PostgreSQL has put references to in place of a parameter that is a key. */
List *
gstore_query_limits(const ForeignScan *plan)
{
	List	 *tuple = NIL;
	ListCell *cell;

	foreach(cell, plan->fdw_scan_tlist)
		tuple = lappend(tuple, lfirst_node(TargetEntry, cell)->expr);
	return (List *) resolve((Node *) lfourth(plan->fdw_exprs), tuple);
}
