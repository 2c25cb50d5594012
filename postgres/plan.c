/* What the planner asks: sizes, paths, plans. */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "postgres/arrow.h"
#include "postgres/fdw.h"
#include "postgres/nulls.h"
#include "postgres/pending.h"
#include "postgres/qual.h"
#include "postgres/query_filter.h"
#include "postgres/query_order.h"
#include "postgres/query_path.h"
#include "postgres/settings.h"
#include "postgres/tid.h"

/*
 * Costs, in units of which a row that is made and counted takes 0.0075, some 40 ns. Measured on the software GPU with two
 * cores, 1e4 to 5e6 rows, and light and heavy aggregates; docs/design/gstore.md has the figures.
 */
#define SCAN_STARTUP_COST	10.0
#define ROW_COST_PART		0.5 /* of cpu_tuple_cost: there is no page to look into, no tuple to deform */
#define TEST_COST_PART		0.04 /* of cpu_operator_cost, for what is evaluated on whole columns */
#define BYTES_PER_PAGE_COST 16384.0
/*
 * PostgreSQL divides by the number of processes. Half of the gain is lost here, as those that copy for the backends
 * need processors as well.
 */
#define PARALLEL_GAIN_PART 0.5
/* Of parallel_setup_cost, for each worker: one has its first rows 3 ms after the plan begins, a second one 3 ms later. */
#define WORKER_COST_PART 0.5

/* What a scan moves and evaluates, of rows that it looks at. */
typedef struct scan_work
{
	double		met;	/* rows */
	double		bytes;	/* of the columns that are read */
	Cost		tested; /* of a row, for what the scan evaluates */
	QualCost	rest;
	Selectivity selectivity; /* of what the scan evaluates, among them */
} scan_work;

/* What get_size leaves for get_paths. */
typedef struct plan_info
{
	bool	  named; /* rows are named by ctid: the scan looks at no others */
	bool	  locks; /* the statement locks or changes rows */
	scan_work alone;
	List	 *filter; /* what the GPU can evaluate: */
	Cost	  filter_cost;
	scan_work filtered; /* of the rows that have passed there */
} plan_info;

static uint64
bytes_of(const gstore_view *view, const Bitmapset *wanted)
{
	uint64 bytes = 0;
	int	   number = -1;

	while ((number = bms_next_member(wanted, number)) >= 0)
		if (number <= view->column_count)
		{
			const gstore_column *column = &view->columns[number - 1];

			for (int part = GSTORE_VALUES; part <= GSTORE_ELEMENT_NULLS; part++)
				bytes += gstore_part_bytes(column, (gstore_part) part, view->rows);
		}
	return bytes;
}

/*
 * The columns that rows must have: those that are needed above the scan, and by conditions that it does
 * not evaluate. (A target list that the planner made of the whole table says nothing.)
 */
static Bitmapset *
columns_of(RelOptInfo *rel, Oid relation, List *clauses)
{
	Bitmapset *attributes = NULL, *wanted = NULL;
	Relation   table = table_open(relation, NoLock);
	const int  natts = RelationGetDescr(table)->natts;
	bool	   whole;

	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &attributes);
	pull_varattnos((Node *) clauses, rel->relid, &attributes);
	whole = bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, attributes);
	for (AttrNumber n = 1; n <= natts; n++)
		if (!TupleDescAttr(RelationGetDescr(table), n - 1)->attisdropped &&
			(whole || bms_is_member(n - FirstLowInvalidHeapAttributeNumber, attributes)))
			wanted = bms_add_member(wanted, n);
	table_close(table, NoLock);
	return wanted;
}

/* Which columns a scan reads, and what of them. */
typedef struct needs
{
	Bitmapset *rows;   /* rows must have them */
	Bitmapset *tested; /* by conditions that the scan evaluates */
	Bitmapset *bare;   /* of both, those of which is read no more than what marks NULLs */
} needs;

static needs
needs_of(PlannerInfo *root, RelOptInfo *rel, Oid relation, List *tested, List *rest)
{
	needs	   out = {.rows = columns_of(rel, relation, rest)};
	Bitmapset *attributes = NULL;
	int		   number = -1;

	pull_varattnos((Node *) tested, rel->relid, &attributes);
	while ((number = bms_next_member(attributes, number)) >= 0)
		out.tested = bms_add_member(out.tested, number + FirstLowInvalidHeapAttributeNumber);
	out.bare = bms_difference(bms_union(out.rows, out.tested),
							  gstore_valued_columns(root, rel, out.rows));
	return out;
}

static double
bytes_to_move(const gstore_view *view, const needs *needed)
{
	const Bitmapset *all = bms_union(needed->rows, needed->tested);
	uint64			 bytes = bytes_of(view, bms_difference(all, needed->bare));
	int				 number = -1;

	while ((number = bms_next_member(needed->bare, number)) >= 0)
		if (number <= view->column_count)
		{
			const gstore_column *column = &view->columns[number - 1];

			bytes += gstore_part_bytes(
				column,
				gstore_is_variable(column) && !gstore_is_arrow(column) ? GSTORE_VALUES : GSTORE_NULLS,
				view->rows);
		}
	return (double) bytes;
}

static List *
as_list(const Bitmapset *set)
{
	List *list = NIL;
	int	  number = -1;

	while ((number = bms_next_member(set, number)) >= 0)
		list = lappend_int(list, number);
	return list;
}

/*
 * All comparisons that qualify are leakproof, so that row security does not forbid it either. Where an error may be raised by a value that one
 * compares with, it does not come before others that PostgreSQL evaluates first, if the conditions are in that order.
 */
static void
split_restrictions(const PlannerInfo *root, const RelOptInfo *rel, List *infos, List **named,
				   List **tested, List **rest)
{
	const Bitmapset *unset = gstore_unset_planned(root);
	ListCell		*cell;

	*named = *tested = *rest = NIL;
	foreach(cell, infos)
	{
		RestrictInfo *info = lfirst(cell);

		if (!info->pseudoconstant && gstore_names_rows(info->clause, rel->relid))
			*named = lappend(*named, info);
		else if (!info->pseudoconstant && gstore_qual_is_simple(info->clause, rel->relid) &&
				 (*rest == NIL || gstore_qual_is_movable(info->clause, rel->relid, unset)))
			*tested = lappend(*tested, info);
		else
			*rest = lappend(*rest, info);
	}
}

/* For each whether it is one of the others. */
static List *
which_are(const List *infos, const List *others)
{
	List	 *out = NIL;
	ListCell *cell;

	foreach(cell, infos)
		out = lappend_int(out, list_member_ptr(others, lfirst(cell)));
	return out;
}

static scan_work
work_of(PlannerInfo *root, RelOptInfo *rel, Oid relation, const gstore_view *view, List *tested,
		List *rest, double met)
{
	const needs needed = needs_of(root, rel, relation, extract_actual_clauses(tested, false),
								  extract_actual_clauses(rest, false));
	scan_work	out = {.met = met};

	out.bytes = view->empty ? 0 : bytes_to_move(view, &needed);
	out.tested = (double) list_length(tested) * cpu_operator_cost * TEST_COST_PART;
	out.selectivity = clauselist_selectivity(root, tested, 0, JOIN_INNER, NULL);
	cost_qual_eval(&out.rest, rest, root);
	return out;
}

/* Batches without a row that has passed are not read. */
static double
read_share(const gstore_view *view, const Bitmapset *wanted, double passed)
{
	const double units = (double) view->rows / (double) gstore_rows_at_a_time(view, wanted);

	return view->empty ? 0 : Min(1.0, passed / Max(units, 1.0));
}

static void
plan_filter(PlannerInfo *root, RelOptInfo *rel, Oid relation, const gstore_view *view, plan_info *info)
{
	List			 *named, *tested, *rest;
	gstore_query_size size;
	double			  passed;

	if (!gstore_gpu_queries || !gstore_gpu_filters)
		return;
	info->filter = gstore_filter_choose(root, rel, rel->baserestrictinfo, &size);
	if (info->filter == NIL)
		return;
	split_restrictions(root, rel, list_difference_ptr(rel->baserestrictinfo, info->filter), &named,
					   &tested, &rest);
	info->filter_cost = gstore_query_run_cost(root, rel, &size, false);
	passed = clamp_row_est(rel->tuples *
						   clauselist_selectivity(root, info->filter, 0, JOIN_INNER, NULL));
	info->filtered = work_of(root, rel, relation, view, tested, rest, passed);
	info->filtered.bytes *= read_share(
		view, columns_of(rel, relation, extract_actual_clauses(rest, false)), passed);
}

/* Live rows of the version that would be read, with those of this transaction. */
static void
gstoreGetForeignRelSize(PlannerInfo *root, RelOptInfo *rel, Oid relation)
{
	plan_info	   *info = palloc0(sizeof *info);
	gstore_pending *pending = gstore_pending_find(relation);
	List		   *named, *tested, *rest;
	Bitmapset	   *everything;
	gstore_view		view;
	double			met;

	gstore_look(relation, ActiveSnapshotSet() ? GetActiveSnapshot() : NULL, GSTORE_DEAD_NOT_WANTED,
				&view);
	if (pending != NULL)
		view = *gstore_pending_state(pending);
	rel->tuples = (double) view.live_rows;
	everything = bms_add_range(NULL, 1, Max(view.column_count, 1));
	rel->pages = (BlockNumber) Min(view.empty ? 0 : bytes_of(&view, everything) / BLCKSZ + 1,
								   MaxBlockNumber);
	set_baserel_size_estimates(root, rel);
	split_restrictions(root, rel, rel->baserestrictinfo, &named, &tested, &rest);
	info->named = named != NIL;
	info->locks = root->rowMarks != NIL || root->parse->commandType == CMD_UPDATE ||
		root->parse->commandType == CMD_DELETE;
	met = info->named
		? clamp_row_est(rel->tuples * clauselist_selectivity(root, named, 0, JOIN_INNER, NULL))
		: rel->tuples;
	info->alone = work_of(root, rel, relation, &view, tested, rest, met);
	if (rel->tuples > 0)
		info->alone.bytes *= Min(met / rel->tuples, 1.0);
	if (!info->named)
		plan_filter(root, rel, relation, &view, info);
	rel->fdw_private = info;
}

/*
 * Whether an Append may ask for rows before it needs them (query_async.c): of joins and aggregates, and of scans with conditions on the GPU or
 * first rows, as those have a query. Not where rows are locked: partitions that no row is needed of are not to be locked.
 */
static bool
gstoreIsForeignPathAsyncCapable(ForeignPath *path)
{
	return !IS_SIMPLE_REL(path->path.parent) ||
		(path->fdw_private != NIL && !((const plan_info *) path->path.parent->fdw_private)->locks);
}

/* What a partial path's rows are divided by, as for every table. */
static double
divisor_of(int workers)
{
	const double leader = parallel_leader_participation ? Max(1.0 - 0.3 * workers, 0.0) : 0.0;

	return workers > 0 ? workers + leader : 1.0;
}

/* Moving is shared by all processes: there is one device. workers: 0 of a path for one process. filter: what the GPU evaluates before. */
static ForeignPath *
make_path(PlannerInfo *root, RelOptInfo *rel, int workers, List *filter)
{
	const plan_info *info = rel->fdw_private;
	const scan_work *work = filter != NIL ? &info->filtered : &info->alone;
	const double	 divisor = divisor_of(workers);
	const Cost startup = SCAN_STARTUP_COST + work->rest.startup + rel->reltarget->cost.startup +
		workers * WORKER_COST_PART * parallel_setup_cost + (filter != NIL ? info->filter_cost : 0);
	const double left = work->met * work->selectivity;
	const Cost	 processor = work->met * work->tested +
		left * (cpu_tuple_cost * ROW_COST_PART + work->rest.per_tuple) +
		rel->rows * rel->reltarget->cost.per_tuple;
	const Cost run = work->bytes / BYTES_PER_PAGE_COST * seq_page_cost +
		processor / (1.0 + (divisor - 1.0) * PARALLEL_GAIN_PART);

	return create_foreignscan_path(root, rel, NULL, clamp_row_est(rel->rows / divisor), startup,
								   startup + run, NIL, rel->lateral_relids, NULL, filter);
}

/*
 * A worker by itself does not know what its leader's transaction has changed; in a parallel
 * scan the leader passes it on.
 */
static void
add_path_alone(PlannerInfo *root, RelOptInfo *rel, List *filter)
{
	ForeignPath *path = make_path(root, rel, 0, filter);

	path->path.parallel_safe = false;
	add_path(rel, (Path *) path);
}

Path *
gstore_plan_alone(PlannerInfo *root, RelOptInfo *rel)
{
	ForeignPath *path = make_path(root, rel, 0, NIL);

	path->path.parallel_safe = false;
	return (Path *) path;
}

static void
gstoreGetForeignPaths(PlannerInfo *root, RelOptInfo *rel, Oid relation)
{
	const plan_info *info = rel->fdw_private;
	int				 workers = 0;

	add_path_alone(root, rel, NIL);
	if (info->filter != NIL)
		add_path_alone(root, rel, info->filter);
	if (info->named)
		return;
	if (rel->consider_parallel && bms_is_empty(rel->lateral_relids))
		workers = compute_parallel_worker(rel, rel->pages, -1, max_parallel_workers_per_gather);
	if (workers > 0)
	{
		ForeignPath *path = make_path(root, rel, workers, NIL);

		path->path.parallel_aware = true;
		path->path.parallel_workers = workers;
		add_partial_path(rel, (Path *) path);
	}
	gstore_order_add_path(root, rel, gstore_plan_alone(root, rel));
}

static List *
columns_as_lists(PlannerInfo *root, RelOptInfo *rel, Oid relation, List *tested, List *rest)
{
	const needs needed = needs_of(root, rel, relation, tested, rest);

	return list_make3(as_list(needed.rows), as_list(needed.tested), as_list(needed.bare));
}

static void
columns_of_order(PlannerInfo *root, RelOptInfo *rel, Oid relation, List *rest, List **wanted,
				 List **bare)
{
	const needs needed = needs_of(root, rel, relation, NIL, rest);

	*wanted = as_list(needed.rows);
	*bare = as_list(needed.bare);
}

/*
 * fdw_exprs: what the scan evaluates, what names rows, what the GPU evaluates. fdw_private: columns of a scan; and, if the GPU
 * evaluates something, of one that must evaluate that itself, and of each of these conditions whether it does so before rows are made.
 */
static ForeignScan *
gstoreGetForeignPlan(PlannerInfo *root, RelOptInfo *rel, Oid relation, ForeignPath *path,
					 List *targets, List *clauses, Plan *outer)
{
	List *filter, *named, *tested, *rest, *all_tested, *all_rest, *columns;

	if (path->fdw_outerpath != NULL)
		return gstore_order_plan(root, rel, relation, path, targets, clauses, outer, columns_of_order);
	split_restrictions(root, rel, clauses, &named, &all_tested, &all_rest);
	named = extract_actual_clauses(named, false);
	filter = list_difference_ptr(clauses, list_difference_ptr(clauses, path->fdw_private));
	tested = extract_actual_clauses(list_difference_ptr(all_tested, filter), false);
	rest = extract_actual_clauses(list_difference_ptr(all_rest, filter), false);
	columns = columns_as_lists(root, rel, relation, tested, rest);
	if (filter != NIL)
	{
		columns = list_concat(columns,
							  columns_as_lists(root, rel, relation,
											   extract_actual_clauses(all_tested, false),
											   extract_actual_clauses(all_rest, false)));
		columns = lappend(columns, which_are(filter, all_tested));
	}
	filter = extract_actual_clauses(filter, false);
	return make_foreignscan(targets, rest, rel->relid, list_make3(tested, named, filter), columns,
							NIL, list_concat_copy(list_concat_copy(tested, named), filter), outer);
}

void
gstore_plan_callbacks(FdwRoutine *routine)
{
	routine->GetForeignRelSize = gstoreGetForeignRelSize;
	routine->GetForeignPaths = gstoreGetForeignPaths;
	routine->GetForeignPlan = gstoreGetForeignPlan;
	routine->IsForeignPathAsyncCapable = gstoreIsForeignPathAsyncCapable;
}
