/*
 * postgres/query_order.h - the rows of a table in an order, the first ones first, where a query has a LIMIT: the GPU makes a list of the first
 * rows, then of those behind them, as long as more are asked for.
 */
#ifndef GSTORE_QUERY_ORDER_H
#define GSTORE_QUERY_ORDER_H

#include "postgres.h"

#include "foreign/fdwapi.h"
#include "nodes/pathnodes.h"

/*
 * Planning: adds the path, if there is one. local: a path of the same rows in any order, which is no other relation's, and which add_path() has
 * not been called with.
 */
extern void gstore_order_add_path(PlannerInfo *root, RelOptInfo *rel, Path *local);

/* The plan of such a path. columns_of: attribute numbers that rows need, if the scan evaluates these conditions; and those that are bare. */
typedef void (*gstore_columns_of)(PlannerInfo *root, RelOptInfo *rel, Oid relation, List *rest,
								  List **wanted, List **bare);
extern ForeignScan *
gstore_order_plan(PlannerInfo *root, RelOptInfo *rel, Oid relation, ForeignPath *path,
				  List *targets, List *clauses, Plan *outer, gstore_columns_of columns_of);

/* Of the scans of a table, those alone have an outer plan: what runs if the GPU cannot. */
static inline bool
gstore_is_order_plan(const Plan *plan)
{
	return ((const Scan *) plan)->scanrelid > 0 && plan->lefttree != NULL;
}

/* Their execution. */
extern void gstore_order_callbacks(FdwRoutine *routine);

#endif
