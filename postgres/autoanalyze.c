/*
 * See autoanalyze.h.
 *
 * The worker has PROC_IS_AUTOVACUUM among the flags of its process. By that the server takes it for a worker of autovacuum's:
 * who has waited for its lock for deadlock_timeout cancels it, and DROP DATABASE and the like end it.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_node.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "postgres/autoanalyze.h"
#include "postgres/background.h"
#include "postgres/clock.h"
#include "postgres/directory.h"
#include "postgres/fdw.h"
#include "postgres/table.h"

PGDLLEXPORT void gstore_autoanalyze_main(Datum database);

/* ---- the directory: which tables are due */

static bool
has_changed(const gstore_table *table)
{
	return DsaPointerIsValid(table->newest) &&
		(double) table->changes > autovacuum_anl_thresh + autovacuum_anl_scale * table->analyzed_rows;
}

/*
 * A database with tables that are due. All of it that have changed are tried now, unless another process is at one of their owner's,
 * and not again before autovacuum would.
 */
static bool
choose_table_to_analyze(Oid *database)
{
	const int64		now = gstore_now_ns();
	HASH_SEQ_STATUS scan;
	gstore_table   *table;

	*database = InvalidOid;
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (has_changed(table) && table->analyze_at <= now &&
			!gstore_background_is_at(gstore->analyzers, table))
			*database = table->key.database;
	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (table->key.database == *database && has_changed(table))
			table->analyze_at = now + autovacuum_naptime * 1000 * GSTORE_NS_PER_MS;
	LWLockRelease(gstore->lock);
	return OidIsValid(*database);
}

/* Those of this database; palloc'd. */
static int
list_changed(Oid **relations)
{
	HASH_SEQ_STATUS		scan;
	const gstore_table *table;
	int					count = 0;

	*relations = palloc(sizeof(Oid) * (Size) gstore_tables_max);
	LWLockAcquire(gstore->lock, LW_SHARED);
	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (table->key.database == MyDatabaseId && has_changed(table))
			(*relations)[count++] = table->key.relation;
	LWLockRelease(gstore->lock);
	return count;
}

/* The keeper's worker does not know what the catalog has, as of an ANALYZE before the server's last start. */
static bool
is_analyze_due(Relation relation)
{
	gstore_table *table;
	bool		  due = false;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	table = gstore_find_table(RelationGetRelid(relation), false);
	if (table != NULL)
	{
		table->analyzed_rows = Max((double) relation->rd_rel->reltuples, 0.0);
		due = has_changed(table);
	}
	LWLockRelease(gstore->lock);
	return due;
}

/* ---- the keeper's worker */

void
gstore_autoanalyze_look(void)
{
	static gstore_background analyzer = {.name = "GPU memory analyzer",
										 .type = "gstore_fdw analyzer",
										 .function = "gstore_autoanalyze_main",
										 .purpose = "analyze tables"};
	Oid						 database;

	if (IsBinaryUpgrade)
		return; /* pg_upgrade does not carry over transactions that begin now */
	if (gstore_background_has_place(&analyzer) && AutoVacuumingActive() && !RecoveryInProgress() &&
		choose_table_to_analyze(&database))
		gstore_background_start(&analyzer, database);
}

/* ---- the worker in the database */

static void
mark_as_autovacuum(void)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	MyProc->statusFlags |= PROC_IS_AUTOVACUUM;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/* Functions of statistics on expressions run as the table's owner, in a security-restricted operation: ANALYZE sees to it. */
static void
analyze_table(Oid table, const char *name)
{
	const TimestampTz start = GetCurrentTimestamp();
	VacuumStmt		 *statement = makeNode(VacuumStmt);

	statement->rels = list_make1(makeVacuumRelation(NULL, table, NIL));
	pgstat_report_activity(STATE_RUNNING, psprintf("automatic ANALYZE %s", name));
	PortalContext = CurrentMemoryContext; /* what memory ANALYZE uses goes with the transaction */
	PushActiveSnapshot(GetTransactionSnapshot());
	ExecVacuum(make_parsestate(NULL), statement, true);
	PopActiveSnapshot();
	if (Log_autovacuum_min_duration >= 0 &&
		TimestampDifferenceExceeds(start, GetCurrentTimestamp(), Log_autovacuum_min_duration))
		ereport(LOG,
				(errmsg("automatic analyze of table \"%s\" in GPU memory of database \"%s\"", name,
						get_database_name(MyDatabaseId))));
}

static bool
analyze_if_due(Oid table)
{
	Relation	relation;
	const char *name = NULL;

	if (!ConditionalLockRelationOid(table, ShareUpdateExclusiveLock))
		return false;
	relation = try_relation_open(table, NoLock);
	if (relation == NULL)
		return true;
	if (gstore_is_table(table) && is_analyze_due(relation))
		name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
										  RelationGetRelationName(relation));
	relation_close(relation, NoLock);
	if (name != NULL)
		analyze_table(table, name);
	return true;
}

void
gstore_autoanalyze_main(Datum database)
{
	static const char *const settings[][2] = {
		{"search_path", ""},
		{"lock_timeout", "0"},
		{"default_transaction_isolation", "read committed"},
		{"track_activities", "on"}}; /* analyze.c sees by it which table that is */
	Oid *tables;
	int	 count;

	gstore_background_connect(database, BGWORKER_BYPASS_ALLOWCONN, gstore->analyzers, NULL);
	mark_as_autovacuum();
	for (int i = 0; i < (int) lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	count = list_changed(&tables);
	for (int i = 0; i < count; i++)
		(void) gstore_background_try(analyze_if_due, tables[i], "automatic ANALYZE of", 0);
}
