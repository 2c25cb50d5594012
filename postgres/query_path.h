/* postgres/query_path.h - what the planner is offered of queries on the GPU: grouping, with aggregates, over one table or joined ones.
 *
 * Circle: plan.c, query_filter.c, query_join.c, query_order.c, query_path.c and query_scan.c call each other, because paths on the GPU are weighed against
 * the scan's own, and their plans are those of one kind of node.
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

/* Of a joined relation whose rows are the result: the path of this plan, if its columns can be returned. */
extern void
gstore_query_add_join(PlannerInfo *root, RelOptInfo *joined, struct gstore_join_plan *plan);
/* The same path, if the planner still has it, runs plan->local where the GPU cannot: a path is not kept by its address, as the planner frees those that are no use. */
extern void
gstore_query_set_local(PlannerInfo *root, RelOptInfo *joined, const struct gstore_join_plan *plan);

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
