/* The extension's entry points: what PostgreSQL loads, and the wrapper's handler. */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "postgres/fdw.h"
#include "postgres/pending.h"
#include "postgres/token.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(gstore_fdw_handler);

void _PG_init(void);

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return; /* CREATE FOREIGN TABLE works; using one says what is missing */
	gstore_worker_init();
	gstore_shared_init();
	gstore_pending_init();
	gstore_token_init();
	gstore_export_init();
	gstore_analyze_init();
	gstore_ddl_init();
}

Datum
gstore_fdw_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	gstore_plan_callbacks(routine);
	gstore_scan_callbacks(routine);
	gstore_modify_callbacks(routine);
	gstore_analyze_callback(routine);
	PG_RETURN_POINTER(routine);
}
