/*
 * postgres/query_path.h - what the planner is offered of queries on the GPU: grouping, with aggregates, over one
 * table or joined ones, and joined rows.
 *
 * Circle: plan.c, query_filter.c, query_join.c, query_order.c, query_path.c and query_scan.c call each other,
 * because paths on the GPU are weighed against the scan's own, and their plans are those of one kind of node.
 */
#ifndef GSTORE_QUERY_PATH_H
#define GSTORE_QUERY_PATH_H

#include "postgres.h"

#include "foreign/fdwapi.h"
#include "nodes/pathnodes.h"

#include "postgres/query_compile.h"

/* GetForeignUpperPaths, and GetForeignPlan of such paths, in front of the one that is there. */
extern void gstore_query_path_callbacks(FdwRoutine *routine);

/*
 * Conditions in the order in which PostgreSQL evaluates them (order_qual_clauses()), and the security level by which one has its
 * place: it may not be evaluated for rows that one of a lower level has not passed.
 */
extern List *gstore_query_order(PlannerInfo *root, List *infos);
extern Index gstore_query_level(PlannerInfo *root, RestrictInfo *info);

/* What one run costs of a query over a relation, without its results. */
extern Cost gstore_query_run_cost(PlannerInfo *root, const RelOptInfo *rel,
								  const gstore_query_size *size, bool grouped);

struct gstore_join_plan;

/*
 * Of cpu_tuple_cost, for a joined row that is returned. Measured on the software GPU, 1e6 rows of three
 * columns: 0.39 us each beside the kernels' time, where a local hash join with its scans takes 0.3 us a row and
 * is estimated at 0.0217.
 */
#define GSTORE_JOINED_ROW_PART 2.0
/*
 * Likewise, of each table for whose row columns are read by its number. Measured there: 0.05 us where numbers
 * follow each other, 0.3 us where they do not; a device takes longer for small copies.
 */
#define GSTORE_LATE_ROW_PART 10.0

/* Of a join whose outer rows are batches: what comes before the first one; and what follows, without what is returned. */
extern Cost gstore_query_builds_cost(PlannerInfo *root, const struct gstore_join_plan *plan);
extern Cost gstore_query_batches_cost(PlannerInfo *root, const struct gstore_join_plan *plan,
									  double joined_rows, const gstore_query_size *size, bool grouped);

/* Of a joined relation whose rows are the result: the path of this plan, if its columns can be returned. */
extern void
gstore_query_add_join(PlannerInfo *root, RelOptInfo *joined, struct gstore_join_plan *plan);
/*
 * The same path, if the planner still has it, runs plan->local where the GPU cannot: a path is not kept by its
 * address, as the planner frees those that are no use.
 */
extern void
gstore_query_set_local(PlannerInfo *root, RelOptInfo *joined, const struct gstore_join_plan *plan);

/* A grouping step over joined rows, UPPERREL_GROUP_AGG or UPPERREL_DISTINCT, whose groups another step combines. */
typedef struct gstore_partial
{
	PathTarget		 *target;			/* keys, then aggregates, as the other step has them */
	PathTarget		 *whole;			/* of the other step */
	List			 *clauses, *having; /* of the step as a whole */
	gstore_query_size size;
	double			  groups;
	Path			 *local;
} gstore_partial;

/* False: there is none, or not on the GPU. */
extern bool gstore_query_partial(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input,
								 RelOptInfo *grouped, const GroupPathExtraData *extra,
								 const struct gstore_join_plan *join, gstore_partial *out);

/* Of a local plan, which runs seldom. */
extern void gstore_begin_with_few_groups(Plan *plan);

/* Parameters of an expression, which are added to argument, a List **. A walker of expressions: false. */
extern bool gstore_collect_parameters(Node *node, void *argument);

/* What a plan is for; `plan` is one of such a path. */
extern void gstore_query_of_plan(const ForeignScan *plan, gstore_query *query);

/* LIMIT and OFFSET above groups in an order. */
extern List *gstore_query_limits(const ForeignScan *plan);

static inline bool
gstore_is_query_plan(const Plan *plan)
{
	return ((const Scan *) plan)->scanrelid == 0;
}

#endif
