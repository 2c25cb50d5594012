/* postgres/query_scan.h - plan nodes that run on the GPU (query_path.h): their execution. */
#ifndef GSTORE_QUERY_SCAN_H
#define GSTORE_QUERY_SCAN_H

#include "postgres.h"

#include "commands/explain.h"
#include "foreign/fdwapi.h"

/*
 * The callbacks of scans, for plans that are none of a table's scan or are in an order (query_order.h), in
 * front of those that are there.
 */
extern void gstore_query_scan_callbacks(FdwRoutine *routine);

/* Of a plan's node; none are not shown. */
extern void gstore_explain_expressions(const PlanState *node, const char *label, List *expressions,
									   ExplainState *es);

#endif
