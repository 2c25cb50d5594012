/* See background.h. */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "postgres/background.h"
#include "postgres/table.h"

static gstore_working *working_list, *working; /* of this process's kind; its own place there */
static Oid			   wanted_owner;		   /* of the table that was tried last */
static void (*end_waits)(void);

static BackgroundWorkerHandle **
find_place(gstore_background *kind)
{
	for (int i = 0; i < GSTORE_WORKING_MOST; i++)
		if (kind->handles[i] == NULL)
			return &kind->handles[i];
	return NULL;
}

bool
gstore_background_has_place(gstore_background *kind)
{
	for (int i = 0; i < GSTORE_WORKING_MOST; i++)
	{
		pid_t pid;

		if (kind->handles[i] == NULL || GetBackgroundWorkerPid(kind->handles[i], &pid) != BGWH_STOPPED)
			continue;
		pfree(kind->handles[i]);
		kind->handles[i] = NULL;
	}
	return find_place(kind) != NULL;
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
	if (!RegisterDynamicBackgroundWorker(&worker, find_place(kind)))
		ereport(LOG,
				(errmsg("GPU memory keeper: cannot start a process to %s", kind->purpose),
				 errhint("Raise max_worker_processes.")));
}

bool
gstore_background_is_at(const gstore_working *list, const gstore_table *table)
{
	for (int i = 0; i < GSTORE_WORKING_MOST; i++)
		if (list[i].database == table->key.database && list[i].relation == table->key.relation)
			return true;
	return false;
}

/* ---- the process */

/* The directory's lock is held. */
static void
leave_table_locked(void)
{
	if (working->awaited && end_waits != NULL)
		end_waits();
	working->relation = working->owner = InvalidOid;
	working->awaited = false;
}

static void
leave_table(void)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	leave_table_locked();
	LWLockRelease(gstore->lock);
}

static void
leave_list(int code, Datum argument)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	leave_table_locked();
	*working = (gstore_working){0};
	LWLockRelease(gstore->lock);
}

/* False: there is no place, as those that the keeper's worker started before it was started anew itself have not ended. */
static bool
enter_list(gstore_working *list)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	for (int i = 0; i < GSTORE_WORKING_MOST && working == NULL; i++)
		if (list[i].pid == 0)
			working = &list[i];
	if (working != NULL)
		*working = (gstore_working){.pid = MyProcPid, .database = MyDatabaseId};
	LWLockRelease(gstore->lock);
	working_list = list;
	return working != NULL;
}

void
gstore_background_connect(Datum database, uint32 flags, gstore_working *list, void (*waits)(void))
{
	end_waits = waits;
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(database), InvalidOid, flags);
	/* It would hold for a part of the commit (commit_limit.h). */
	SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	/* What a database sets for its users. */
	SetConfigOption("default_transaction_read_only", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET, PGC_S_OVERRIDE);
	if (!enter_list(list))
		proc_exit(0);
	before_shmem_exit(leave_list, (Datum) 0);
}

/* Another process is at it, or at one of its owner's. The directory's lock is held. */
static bool
is_taken(Oid table, Oid owner)
{
	for (int i = 0; i < GSTORE_WORKING_MOST; i++)
	{
		gstore_working *w = &working_list[i];

		if (w->database == MyDatabaseId && w->relation == table)
			return true;
		if (OidIsValid(owner) && w->owner == owner)
		{
			w->awaited = true;
			return true;
		}
	}
	return false;
}

static bool
take_table(Oid table)
{
	bool taken;

	wanted_owner = gstore_owner_of(table);
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	taken = is_taken(table, wanted_owner);
	if (!taken)
	{
		working->relation = table;
		working->owner = wanted_owner;
	}
	LWLockRelease(gstore->lock);
	return !taken;
}

bool
gstore_background_is_taken(Oid table)
{
	return is_taken(table, wanted_owner);
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
	volatile int error = 0;

	StartTransactionCommand();
	PG_TRY();
	{
		CHECK_FOR_INTERRUPTS();
		name = describe_table(table); /* in the catch there are no catalogs */
		if (!take_table(table))
			error = GSTORE_BACKGROUND_TAKEN;
		else if (!work(table))
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
	leave_table();
	MemoryContextSwitchTo(old);
	pgstat_report_stat(false);
	return error;
}
