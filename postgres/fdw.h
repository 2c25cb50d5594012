/* postgres/fdw.h - the foreign data wrapper's callbacks, by the file that has them. */
#ifndef GSTORE_FDW_H
#define GSTORE_FDW_H

#include "postgres.h"

#include "foreign/fdwapi.h"
#include "nodes/pathnodes.h"
#include "storage/itemptr.h"

/* A row's number as a ctid. */
#define GSTORE_ROWS_PER_BLOCK 32768u

static inline void
gstore_row_to_tid(uint64 row, ItemPointer tid)
{
	ItemPointerSet(tid, (BlockNumber) (row / GSTORE_ROWS_PER_BLOCK),
				   (OffsetNumber) (row % GSTORE_ROWS_PER_BLOCK + 1));
}

static inline uint64
gstore_tid_to_row(ItemPointer tid)
{
	return (uint64) ItemPointerGetBlockNumberNoCheck(tid) * GSTORE_ROWS_PER_BLOCK +
		ItemPointerGetOffsetNumberNoCheck(tid) - 1;
}

/* The path of one process without the GPU, for a plan that runs if the GPU cannot. */
extern Path *gstore_plan_alone(PlannerInfo *root, RelOptInfo *rel);

extern void	 gstore_plan_callbacks(FdwRoutine *routine);   /* plan.c */
extern void	 gstore_scan_callbacks(FdwRoutine *routine);   /* scan.c */
extern void	 gstore_analyze_callback(FdwRoutine *routine); /* analyze.c */
extern void	 gstore_modify_callbacks(FdwRoutine *routine); /* modify.c */
extern void	 gstoreExecForeignTruncate(List *relations, DropBehavior behavior, bool restart);
extern void	 gstore_analyze_begin(const VacuumStmt *statement); /* analyze.c: it is about to run */
extern void	 gstore_analyze_init(void);
extern Datum gstore_fdw_handler(PG_FUNCTION_ARGS); /* fdw.c */
extern void	 gstore_ddl_init(void);				   /* ddl.c */
extern void	 gstore_worker_init(void);			   /* worker.c */

#endif
