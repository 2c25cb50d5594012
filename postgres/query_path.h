/* postgres/query_path.h - what the planner is offered of queries on the GPU: grouping, with aggregates, over one table. */
#ifndef GSTORE_QUERY_PATH_H
#define GSTORE_QUERY_PATH_H

#include "postgres.h"

#include "foreign/fdwapi.h"

#include "postgres/query_compile.h"

/* GetForeignUpperPaths, and GetForeignPlan of such paths, in front of the one that is there. */
extern void gstore_query_path_callbacks(FdwRoutine *routine);

/* What a plan is for; `plan` is one of such a path. */
extern void gstore_query_of_plan(const ForeignScan *plan, gstore_query *query);

static inline bool
gstore_is_query_plan(const Plan *plan)
{
	return ((const Scan *) plan)->scanrelid == 0;
}

#endif
