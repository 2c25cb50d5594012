/* postgres/spread.h - on which GPU a new partition is, where its options do not say so. */
#ifndef GSTORE_SPREAD_H
#define GSTORE_SPREAD_H

#include "postgres.h"

#include "nodes/plannodes.h"

/*
 * Of CREATE FOREIGN TABLE … PARTITION OF without the option "pinning", of a table of ours: a copy that has it. It names the GPU that has the
 * fewest partitions of the same parent; of several such the one that has the fewest of the whole partitioned table, or the first. Other statements as they are.
 */
extern PlannedStmt *gstore_spread_partition(PlannedStmt *statement);

#endif
