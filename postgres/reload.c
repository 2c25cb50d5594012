/* See reload.h. A load that fails is tried again, later each time, and logged if it fails otherwise than the time before. */
#include "postgres.h"

#include <signal.h>

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "postgres/background.h"
#include "postgres/clock.h"
#include "postgres/directory.h"
#include "postgres/fdw.h"
#include "postgres/lost.h"
#include "postgres/option.h"
#include "postgres/pending.h"
#include "postgres/reload.h"
#include "postgres/scan.h"
#include "postgres/table.h"

#define LOCK_TIMEOUT	 "10s" /* who waits for the rows may hold a lock that the source needs */
#define WAIT_MS			 1000
#define TAKEN_MS		 60000
#define RELOAD_DROP_BITS 4 /* 16 s: DROP DATABASE waits for 5 s */

PGDLLEXPORT void gstore_reload_main(Datum database);

static char *loaded; /* by the try that is under way: said once it has committed */

/* ---- the directory: which tables are due */

/* A version since then ended the loss. */
static bool
is_lost(const gstore_table *table)
{
	return table->lost && !DsaPointerIsValid(table->newest);
}

/* And no loader is at it. */
static bool
is_to_be_loaded(const gstore_table *table)
{
	return is_lost(table) && !gstore_background_is_at(gstore->loaders, table);
}

/* A database with lost tables that are to be tried now. The next try of each of these is delayed. */
static bool
choose_tables_to_load(Oid *database)
{
	const int64		now = gstore_now_ns();
	HASH_SEQ_STATUS scan;
	gstore_table   *table;

	*database = InvalidOid;
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (table->reload_at <= now && is_to_be_loaded(table) &&
			(!OidIsValid(*database) || table->key.database == *database))
		{
			*database = table->key.database;
			table->reload_due = true;
			table->reload_tries++;
			gstore_delay_load(table);
		}
	LWLockRelease(gstore->lock);
	return OidIsValid(*database);
}

/* Tables of this database that were chosen, and with which SQLSTATE the last try of each failed; palloc'd. */
static int
list_due(Oid **relations, int **errors)
{
	HASH_SEQ_STATUS scan;
	gstore_table   *table;
	int				count = 0;

	(void) gstore_dsa();
	*relations = palloc(sizeof(Oid) * (Size) gstore_tables_max);
	*errors = palloc(sizeof(int) * (Size) gstore_tables_max);
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (table->key.database == MyDatabaseId && table->reload_due)
		{
			table->reload_due = false;
			(*errors)[count] = table->reload_error;
			(*relations)[count++] = table->key.relation;
		}
	LWLockRelease(gstore->lock);
	return count;
}

/* Of those that wait for another one of their owner's: this may have been it. The lock is held. */
static void
end_waits(void)
{
	HASH_SEQ_STATUS scan;
	gstore_table   *table;

	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (table->reload_waits)
		{
			table->reload_waits = false;
			table->reload_at = 0;
		}
}

/* It is not this loader's; if no other one is at it, until one has left that is at another one of its owner's. */
static void
note_taken(Oid relation)
{
	gstore_table *table;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	table = gstore_find_table(relation, false);
	if (table != NULL && is_to_be_loaded(table))
	{
		table->reload_waits = gstore_background_is_taken(relation);
		table->reload_tries = Max(table->reload_tries - 1, 0);
		table->reload_at = table->reload_waits ? gstore_deadline_ns(TAKEN_MS) : 0;
	}
	LWLockRelease(gstore->lock);
}

/* tried: it has a source. */
static void
note_outcome(Oid relation, int error, bool tried)
{
	gstore_table *table;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	table = gstore_find_table(relation, false);
	if (table != NULL)
	{
		table->reload_error = error;
		table->reload_waits = false;
		if (error != 0)
			gstore_delay_load(table);
		else if (!tried && is_lost(table))
			table->reload_at = PG_INT64_MAX;
	}
	LWLockRelease(gstore->lock);
	ConditionVariableBroadcast(&gstore->reloaded);
}

/* Of a table that was lost: it has been loaded, is being, or is to be, and no try has failed. */
static bool
loads_from_source(Oid relation)
{
	const gstore_table *table;
	bool				loads;

	LWLockAcquire(gstore->lock, LW_SHARED);
	table = gstore_find_table(relation, false);
	loads = table != NULL && table->reload_error == 0 && table->reload_at != PG_INT64_MAX;
	LWLockRelease(gstore->lock);
	return loads && gstore_table_source(relation) != NULL;
}

/* No try for some seconds, and no loader. */
void
gstore_reload_stop(Oid database)
{
	HASH_SEQ_STATUS scan;
	gstore_table   *table;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	for (int i = 0; i < GSTORE_WORKING_MOST; i++)
		if (gstore->loaders[i].pid != 0 && gstore->loaders[i].database == database)
			(void) kill(gstore->loaders[i].pid, SIGTERM);
	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (table->key.database == database)
		{
			table->reload_tries = Max(table->reload_tries, RELOAD_DROP_BITS);
			table->reload_waits = false;
			gstore_delay_load(table);
		}
	LWLockRelease(gstore->lock);
}

/* ---- the keeper's worker */

static bool
is_loading(void)
{
	bool any = false;

	LWLockAcquire(gstore->lock, LW_SHARED);
	for (int i = 0; i < GSTORE_WORKING_MOST; i++)
		any |= OidIsValid(gstore->loaders[i].relation);
	LWLockRelease(gstore->lock);
	return any;
}

/* InvalidOid: none is at the table. */
static Oid
owner_of_load(Oid database, Oid relation)
{
	Oid owner = InvalidOid;

	LWLockAcquire(gstore->lock, LW_SHARED);
	for (int i = 0; i < GSTORE_WORKING_MOST; i++)
		if (gstore->loaders[i].database == database && gstore->loaders[i].relation == relation)
			owner = gstore->loaders[i].owner;
	LWLockRelease(gstore->lock);
	return owner;
}

/* Others may wait for such a lock, too: PostgreSQL takes that of CREATE TRIGGER or ATTACH PARTITION before it asks for rights. */
static bool
may_act_as(int pid, Oid owner)
{
	const PGPROC *proc = BackendPidGetProc(pid);
	const Oid	  role = proc != NULL ? proc->roleId : InvalidOid;

	return OidIsValid(role) && OidIsValid(owner) && is_member_of_role(role, owner);
}

static void
end_loader_at(Oid database, Oid relation)
{
	LWLockAcquire(gstore->lock, LW_SHARED);
	for (int i = 0; i < GSTORE_WORKING_MOST; i++)
		if (gstore->loaders[i].database == database && gstore->loaders[i].relation == relation)
			(void) kill(gstore->loaders[i].pid, SIGTERM);
	LWLockRelease(gstore->lock);
}

/*
 * Of those at tables that their owner waits to drop, truncate or alter, as a source need not end. Who waits to write rows does wait:
 * else a load would end by the first of many writers.
 */
static void
end_loaders_in_the_way(void)
{
	MemoryContext before = CurrentMemoryContext;
	LockData	 *locks;

	if (!is_loading())
		return;
	StartTransactionCommand();
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *l = &locks->locks[i];

		if (l->locktag.locktag_type == LOCKTAG_RELATION && l->waitLockMode > ShareUpdateExclusiveLock &&
			may_act_as(l->pid, owner_of_load(l->locktag.locktag_field1, l->locktag.locktag_field2)))
			end_loader_at(l->locktag.locktag_field1, l->locktag.locktag_field2);
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(before);
}

/* Tables of one may be recorded: it was dropped without the library, or on the primary of this server. */
static bool
is_database(Oid database)
{
	MemoryContext before = CurrentMemoryContext;
	bool		  is;

	StartTransactionCommand();
	is = SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database));
	CommitTransactionCommand();
	MemoryContextSwitchTo(before);
	return is;
}

void
gstore_reload_look(void)
{
	static gstore_background loader = {.name = "GPU memory loader",
									   .type = "gstore_fdw loader",
									   .function = "gstore_reload_main",
									   .purpose = "load tables from their sources"};
	Oid						 database;

	end_loaders_in_the_way();
	/* pg_upgrade does not carry over transactions that begin now. */
	if (!gstore_background_has_place(&loader) || RecoveryInProgress() || IsBinaryUpgrade ||
		!choose_tables_to_load(&database))
		return;
	if (is_database(database))
		gstore_background_start(&loader, database);
	else
		gstore_forget_database(database);
}

/* ---- the loader */

static void
set_loader_option(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

static int
count_columns(const char *query)
{
	SPIPlanPtr		  plan = SPI_prepare(query, 0, NULL);
	CachedPlanSource *source;
	int				  count;

	if (plan == NULL || list_length(SPI_plan_get_plan_sources(plan)) != 1)
		elog(ERROR, "no query: %s", query);
	source = linitial(SPI_plan_get_plan_sources(plan));
	count = source->resultDesc != NULL ? source->resultDesc->natts : 0;
	SPI_freeplan(plan);
	return count;
}

/* Of the first columns that can be given values, as many as the query has; without generated ones the list is left out. */
static char *
list_columns_of_insert(Relation relation, const char *source)
{
	const TupleDesc desc = RelationGetDescr(relation);
	StringInfoData	list;
	int				left;

	if (desc->constr == NULL || !desc->constr->has_generated_stored)
		return "";
	initStringInfo(&list);
	left = count_columns(source);
	for (int i = 0; i < desc->natts && left > 0; i++)
	{
		const Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || column->attgenerated != '\0')
			continue;
		appendStringInfo(&list, "%s%s", list.len == 0 ? " (" : ", ",
						 quote_identifier(NameStr(column->attname)));
		left--;
	}
	appendStringInfoString(&list, list.len == 0 ? "" : ")");
	return list.data;
}

/*
 * As the owner, who may be anybody: the query can change neither the role nor settings of this process. A lost table that
 * it reads is an error, so that tables that depend on each other are loaded in the right order, if late.
 */
static uint64
insert_rows(Relation relation, const char *source)
{
	const int level = NewGUCNestLevel();
	char	 *text;
	uint64	  rows;
	Oid		  user;
	int		  context;

	set_loader_option("lock_timeout", LOCK_TIMEOUT);
	set_loader_option("search_path", "pg_catalog, pg_temp");
	set_loader_option("gstore_fdw.lost_tables", "error");
	set_loader_option("gstore_fdw.wait_for_source", "off");
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(relation->rd_rel->relowner, context | SECURITY_RESTRICTED_OPERATION);
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	text = psprintf("INSERT INTO %s%s OVERRIDING SYSTEM VALUE %s",
					quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
											   RelationGetRelationName(relation)),
					list_columns_of_insert(relation, source), source);
	pgstat_report_activity(STATE_RUNNING, text);
	if (SPI_execute(text, false, 0) != SPI_OK_INSERT)
		elog(ERROR, "no INSERT: %s", text);
	rows = SPI_processed;
	SPI_finish();
	PopActiveSnapshot();
	SetUserIdAndSecContext(user, context);
	AtEOXact_GUC(false, level);
	return rows;
}

static void
note_loaded(Relation relation, uint64 rows)
{
	MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);

	loaded = psprintf("loaded " UINT64_FORMAT
					  " rows into table \"%s\" in GPU memory of database \"%s\" from its source",
					  rows,
					  quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
												 RelationGetRelationName(relation)),
					  get_database_name(MyDatabaseId));
	MemoryContextSwitchTo(before);
}

/* False: somebody writes the table, whose rows may be there then. */
static bool
load_table(Oid table)
{
	Relation	relation;
	const char *source = NULL;
	gstore_view view;

	if (!ConditionalLockRelationOid(table, ShareUpdateExclusiveLock))
		return false;
	relation = try_relation_open(table, NoLock);
	if (relation == NULL)
	{
		/* It was dropped where nobody saw it: without the library, or just before the server ended. */
		gstore_forget_lost(table);
		return true;
	}
	gstore_look(table, NULL, GSTORE_DEAD_NOT_WANTED, &view);
	if (view.lost && gstore_is_table(table))
		source = gstore_table_source(table);
	if (source != NULL)
	{
		/* It has lost nothing any more, if there are no rows, too. */
		gstore_truncate(gstore_pending_begin(relation));
		note_loaded(relation, insert_rows(relation, source));
	}
	relation_close(relation, NoLock);
	return true;
}

void
gstore_reload_main(Datum database)
{
	Oid *tables;
	int *errors;
	int	 count;

	gstore_background_connect(database, BGWORKER_BYPASS_ALLOWCONN, gstore->loaders, end_waits);
	count = list_due(&tables, &errors);
	for (int i = 0; i < count; i++)
	{
		const int  error = gstore_background_try(load_table, tables[i], "loading from its source",
												 errors[i]);
		const bool tried = loaded != NULL;

		if (tried)
		{
			if (error == 0)
				ereport(LOG, (errmsg_internal("%s", loaded)));
			pfree(loaded);
			loaded = NULL;
		}
		if (error == GSTORE_BACKGROUND_TAKEN)
			note_taken(tables[i]);
		else
			note_outcome(tables[i], error, tried);
	}
}

/* ---- who waits for the rows */

/* snapshot: NULL: now. */
static bool
sees_loss(Oid relation, Snapshot snapshot)
{
	gstore_view view;

	gstore_look(relation, snapshot, GSTORE_DEAD_NOT_WANTED, &view);
	return view.lost;
}

static bool
is_awaited(Oid relation)
{
	return sees_loss(relation, NULL) && loads_from_source(relation);
}

/* The rows have come since, and are not those that this transaction has replaced. */
static bool
misses_load(Oid relation, Snapshot snapshot)
{
	const gstore_pending *pending = gstore_pending_find(relation);

	return (pending == NULL || !gstore_pending_replaced(pending, snapshot->curcid)) &&
		sees_loss(relation, snapshot) && !sees_loss(relation, NULL) && loads_from_source(relation);
}

bool
gstore_reload_await(Relation relation, Snapshot snapshot)
{
	const Oid oid = RelationGetRelid(relation);
	bool	  writes;

	if (!gstore_wait_for_source || RecoveryInProgress()) /* where nothing is loaded */
		return false;
	writes = gstore_pending_find(oid) != NULL ||
		CheckRelationLockedByMe(relation, ShareUpdateExclusiveLock, true);
	while (!writes && is_awaited(oid)) /* the loader would wait for a writer */
	{
		ConditionVariablePrepareToSleep(&gstore->reloaded);
		if (is_awaited(oid))
			(void) ConditionVariableTimedSleep(&gstore->reloaded, WAIT_MS, PG_WAIT_EXTENSION);
		ConditionVariableCancelSleep();
		CHECK_FOR_INTERRUPTS();
	}
	return snapshot != NULL && misses_load(oid, snapshot);
}

/* A statement's snapshot of a table whose rows were lost when it began, or that it has waited to change. Lives in the statement's memory. */
typedef struct waited_table
{
	const EState *estate;
	Oid			  relation;
	char *snapshot; /* that sees rows which have come since, serialized; NULL: the statement's own */
	struct waited_table	 *next;
	MemoryContextCallback ending;
} waited_table;

static waited_table *waited_tables;

static void
forget_waited(void *argument)
{
	waited_table **at = &waited_tables;

	while (*at != argument)
		at = &(*at)->next;
	*at = (*at)->next;
}

/* snapshot: NULL: its own. */
static void
note_waited(EState *estate, Oid relation, Snapshot snapshot)
{
	waited_table *w = MemoryContextAllocZero(estate->es_query_cxt, sizeof *w);

	w->estate = estate;
	w->relation = relation;
	if (snapshot != NULL)
	{
		w->snapshot = MemoryContextAlloc(estate->es_query_cxt, EstimateSnapshotSpace(snapshot));
		SerializeSnapshot(snapshot, w->snapshot);
	}
	w->next = waited_tables;
	waited_tables = w;
	w->ending = (MemoryContextCallback){.func = forget_waited, .arg = w};
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &w->ending);
}

static const waited_table *
find_waited(const EState *estate, Oid relation)
{
	const waited_table *w = waited_tables;

	while (w != NULL && (w->estate != estate || w->relation != relation))
		w = w->next;
	return w;
}

/* To be copied at once. In a parallel plan's leader, which chooses for its workers, GetLatestSnapshot() is an error. */
static Snapshot
latest_snapshot(void)
{
	static SnapshotData data = {.snapshot_type = SNAPSHOT_MVCC};

	return IsInParallelMode() ? GetSnapshotData(&data) : GetLatestSnapshot();
}

/* A part of a statement may be executed once more. */
static EState *
statement_of(EState *estate)
{
	while (estate != NULL && estate->es_epq_active != NULL)
		estate = estate->es_epq_active->parentestate;
	return estate;
}

/* What an UPDATE, DELETE or MERGE changes is read as it is after the lock, so the statement's other scans of it see that, too. */
static bool
is_changed_by(const EState *statement, Oid relation)
{
	const PlannedStmt *plan = statement->es_plannedstmt;
	ListCell		  *cell;

	if (plan == NULL || (plan->commandType == CMD_INSERT && !plan->hasModifyingCTE))
		return false;
	foreach(cell, plan->resultRelations)
		if (exec_rt_fetch((Index) lfirst_int(cell), (EState *) statement)->relid == relation)
			return true;
	return false;
}

static bool
has_newer_version(Oid relation, Snapshot snapshot)
{
	gstore_view seen, newest;

	gstore_look(relation, snapshot, GSTORE_DEAD_NOT_WANTED, &seen);
	gstore_look(relation, NULL, GSTORE_DEAD_NOT_WANTED, &newest);
	return seen.empty != newest.empty || seen.revision != newest.revision;
}

/* Of a table that nothing is noted of. */
static Snapshot
await_snapshot(Relation relation, Snapshot snapshot, EState *statement)
{
	const Oid oid = RelationGetRelid(relation);
	Snapshot  latest = NULL;

	if (gstore_reload_await(relation, snapshot))
	{
		if (IsolationUsesXactSnapshot())
			gstore_fail_reloaded();
		latest = latest_snapshot();
	}
	else if (statement != NULL && !IsolationUsesXactSnapshot() && is_changed_by(statement, oid) &&
			 has_newer_version(oid, snapshot))
		latest = latest_snapshot();
	if (statement != NULL && (latest != NULL || (gstore_wait_for_source && sees_loss(oid, snapshot))))
		note_waited(statement, oid, latest);
	return latest != NULL ? latest : snapshot;
}

static Snapshot
register_command(Snapshot snapshot, CommandId command)
{
	const Snapshot registered = RegisterSnapshot(snapshot);

	registered->curcid = command;
	return registered;
}

Snapshot
gstore_register_snapshot(Relation relation, Snapshot snapshot, EState *estate)
{
	EState			   *statement = statement_of(estate);
	const waited_table *waited = find_waited(statement, RelationGetRelid(relation));
	Snapshot			chosen = snapshot;

	if (waited == NULL)
		chosen = await_snapshot(relation, snapshot, statement);
	else if (waited->snapshot != NULL)
		chosen = RestoreSnapshot(waited->snapshot);
	return register_command(chosen, snapshot->curcid);
}

/* The newest one is noted first. */
static const waited_table *
find_newest(const EState *statement, const Relation *relations, int count)
{
	for (const waited_table *w = waited_tables; w != NULL; w = w->next)
		for (int i = 0; i < count && w->estate == statement && w->snapshot != NULL; i++)
			if (relations[i] != NULL && RelationGetRelid(relations[i]) == w->relation)
				return w;
	return NULL;
}

Snapshot
gstore_register_snapshots(const Relation *relations, int count, EState *estate)
{
	const Snapshot		own = estate->es_snapshot;
	const waited_table *newest;

	for (int i = 0; i < count; i++)
		if (relations[i] != NULL)
			UnregisterSnapshot(gstore_register_snapshot(relations[i], own, estate));
	newest = find_newest(statement_of(estate), relations, count);
	return register_command(newest != NULL ? RestoreSnapshot(newest->snapshot) : own, own->curcid);
}

void
gstore_fail_reloaded(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update"),
			 errdetail("The table was loaded from its source.")));
}

void
gstore_look_now(Oid relation, gstore_dead dead, gstore_view *view)
{
	Relation table;

	gstore_check_access();
	table = table_open(relation, AccessShareLock);
	gstore_note_read(table, GetActiveSnapshot());
	gstore_look(relation, GetActiveSnapshot(), dead, view);
	if ((view->lost || view->outdated) && gstore_wait_for_source &&
		gstore_reload_await(table, GetActiveSnapshot()))
	{
		if (IsolationUsesXactSnapshot())
			gstore_fail_reloaded();
		gstore_look(relation, NULL, dead, view);
	}
	table_close(table, AccessShareLock);
	gstore_check_lost(relation, view);
}
