/*
 * postgres/query_heap.h - joins on the GPU whose outer rows are of no table of ours, but whatever PostgreSQL makes, in batches
 * (docs/design/query-joins.md): what the planner is offered.
 *
 * A plan is of two nodes: the join, whose only child is the local plan of the same step; and within that, as
 * the outermost plan, the node that has the outer rows.
 *
 * Circle: query_heap.c and query_heap_scan.c call each other, because a plan has the states that it is executed
 * by, and they what it has encoded.
 */
#ifndef GSTORE_QUERY_HEAP_H
#define GSTORE_QUERY_HEAP_H

#include "postgres.h"

#include "nodes/extensible.h"

#include "postgres/query_compile.h"

/* Hooks of the planner, which call those that are there. */
extern void gstore_heap_init(void);

/*
 * What a plan of a join is for. Of its scan tuple the first columns are what it returns, which are those of the
 * local plan: of each the place in outer rows; -1: in records.
 */
extern const List *gstore_heap_of_plan(const CustomScan *plan, gstore_query *query);

#endif
