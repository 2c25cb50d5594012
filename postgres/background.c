/* See background.h. */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "postgres/background.h"

bool
gstore_background_runs(gstore_background *kind)
{
	pid_t pid;

	if (kind->handle == NULL)
		return false;
	if (GetBackgroundWorkerPid(kind->handle, &pid) != BGWH_STOPPED)
		return true;
	pfree(kind->handle);
	kind->handle = NULL;
	return false;
}

void
gstore_background_start(gstore_background *kind, Oid database)
{
	BackgroundWorker worker = {.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
							   .bgw_start_time = BgWorkerStart_RecoveryFinished,
							   .bgw_restart_time = BGW_NEVER_RESTART,
							   .bgw_main_arg = ObjectIdGetDatum(database),
							   .bgw_notify_pid = MyProcPid};

	strlcpy(worker.bgw_name, kind->name, BGW_MAXLEN);
	strlcpy(worker.bgw_type, kind->type, BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "gstore_fdw", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, kind->function, BGW_MAXLEN);
	if (!RegisterDynamicBackgroundWorker(&worker, &kind->handle))
		ereport(LOG,
				(errmsg("GPU memory keeper: cannot start a process to %s", kind->purpose),
				 errhint("Raise max_worker_processes.")));
}

void
gstore_background_connect(Datum database, uint32 flags)
{
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(database), InvalidOid, flags);
}

/* For the log. */
static const char *
describe_table(Oid table)
{
	const char *name = get_rel_name(table);

	return name != NULL
		? quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), name)
		: psprintf("%u", table);
}

int
gstore_background_try(bool (*work)(Oid table), Oid table, const char *what, int error_before)
{
	MemoryContext old = CurrentMemoryContext;
	const char *volatile name = "";
	int error = 0;

	StartTransactionCommand();
	PG_TRY();
	{
		CHECK_FOR_INTERRUPTS();
		name = describe_table(table); /* in the catch there are no catalogs */
		if (!work(table))
			error = ERRCODE_LOCK_NOT_AVAILABLE;
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		error = geterrcode();
		if (error != error_before)
		{
			errcontext("%s table \"%s\" in GPU memory", what, name);
			EmitErrorReport();
		}
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	pgstat_report_stat(false);
	return error;
}
