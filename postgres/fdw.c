/* The extension's entry points: what PostgreSQL loads, and the wrapper's handler. */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "postgres/call.h"
#include "postgres/directory.h"
#include "postgres/fdw.h"
#include "postgres/lost.h"
#include "postgres/pending.h"
#include "postgres/privileges.h"
#include "postgres/progress.h"
#include "postgres/query_async.h"
#include "postgres/query_heap.h"
#include "postgres/query_path.h"
#include "postgres/query_scan.h"
#include "postgres/query_stats.h"
#include "postgres/settings.h"
#include "postgres/table.h"
#include "postgres/token.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(gstore_fdw_handler);

static shmem_request_hook_type previous_request;
static shmem_startup_hook_type previous_startup;

void _PG_init(void);

static void
request_shared_memory(void)
{
	if (previous_request != NULL)
		previous_request();
	RequestAddinShmemSpace(gstore_shared_size() + gstore_progress_size() + gstore_query_stats_size() +
						   gstore_directory_size(gstore_count_recorded()));
	RequestNamedLWLockTranche(GSTORE_TRANCHE, GSTORE_LOCKS);
}

static void
start_shared_memory(void)
{
	void *place;
	bool  found, known;

	if (previous_startup != NULL)
		previous_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	known = gstore_shared_attach();
	place = ShmemInitStruct("gstore_fdw progress", gstore_progress_size(), &found);
	gstore_progress_attach(place, found);
	place = ShmemInitStruct("gstore_fdw queries", gstore_query_stats_size(), &found);
	gstore_query_stats_attach(place, found);
	gstore_directory_attach();
	if (!known)
		gstore_read_record();
	LWLockRelease(AddinShmemInitLock);
}

static void
hook_shared_memory(void)
{
	previous_request = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_startup = shmem_startup_hook;
	shmem_startup_hook = start_shared_memory;
}

void
_PG_init(void)
{
	gstore_table_init(gstore_fdw_handler);
	if (!process_shared_preload_libraries_in_progress)
	{
		/* CREATE FOREIGN TABLE works; using one says what is missing. */
		gstore_gpu_queries = false;
		return;
	}
	gstore_settings_init();
	gstore_worker_init();
	hook_shared_memory();
	gstore_token_follow_init();
	gstore_pending_init();
	gstore_privileges_init();
	gstore_token_init();
	gstore_export_init();
	gstore_call_init();
	gstore_analyze_init();
	gstore_ddl_init();
	gstore_heap_init();
	gstore_async_init();
}

Datum
gstore_fdw_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	gstore_plan_callbacks(routine);
	gstore_scan_callbacks(routine);
	gstore_modify_callbacks(routine);
	gstore_analyze_callback(routine);
	gstore_query_path_callbacks(routine);
	gstore_query_scan_callbacks(routine);
	gstore_async_callbacks(routine);
	PG_RETURN_POINTER(routine);
}
