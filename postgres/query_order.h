/*
 * postgres/query_order.h - the rows of a table in an order, the first ones first, where a query has a LIMIT:
 * the GPU makes a list of the first rows, then of those behind them, as long as more are asked for.
 */
#ifndef GSTORE_QUERY_ORDER_H
#define GSTORE_QUERY_ORDER_H

#include "postgres.h"

#include "commands/explain.h"
#include "foreign/fdwapi.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"

/* A list has the LIMIT's rows, if it is known, but for these bounds; the next one so many times as many. */
#define GSTORE_LIST_ROWS	   64
#define GSTORE_LIST_ROWS_MOST  (UINT64CONST(1) << 20)
#define GSTORE_LIST_ROWS_TIMES 10

/* Of the list behind one of so many. */
static inline uint64
gstore_list_next_max(uint64 max)
{
	return Min(max * GSTORE_LIST_ROWS_TIMES, GSTORE_LIST_ROWS_MOST);
}

/*
 * Planning: adds the path, if there is one. local: a path of the same rows in any order, which is no other
 * relation's, and which add_path() has not been called with.
 */
extern void gstore_order_add_path(PlannerInfo *root, RelOptInfo *rel, Path *local);

/*
 * The plan of such a path. columns_of: attribute numbers that rows need, if the scan evaluates these
 * conditions; and those that are bare.
 */
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

/*
 * Of a relation whose rows are the query's, keys in the query's order, their GSTORE_KEY_..., and
 * gstore_find_limits(). False: there is no LIMIT, or not for that order. And what all its rows cost in their
 * order, by lists of this cost that become longer.
 */
extern bool gstore_order_find(PlannerInfo *root, const RelOptInfo *rel, List **keys,
							  List **directions, List **limits);
extern Cost gstore_order_cost(const PlannerInfo *root, const RelOptInfo *rel, Cost list);

/* Whether the GPU has the values of an expression in the order that the key asks for; and then its GSTORE_KEY_... */
extern bool gstore_order_fits(const PathKey *key, const Expr *expression, int *direction);

/*
 * LIMIT, and OFFSET if there is one, as expressions that are known before the rows; NIL: there are none. Their
 * sum, from states of these: rows that are returned at most; 0: all of them, or none.
 */
extern List	 *gstore_find_limits(const Query *query);
extern uint64 gstore_evaluate_limits(const List *limits, ExprContext *context);
/* To evaluate them may raise an error. */
extern bool gstore_limits_may_raise(const List *limits);

extern void gstore_explain_order(const ForeignScanState *node, const List *keys,
								 const List *directions, ExplainState *es);

/* Their execution. */
extern void gstore_order_callbacks(FdwRoutine *routine);

#endif
