/*
 * See lost.h. The file is written before the first rows of a table are committed, and after tables have lost their
 * entries in the directory: in between it may name tables without rows, which are taken for lost if the
 * server ends then.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/transam.h"
#include "access/xlog.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "utils/lsyscache.h"

#include "postgres/clock.h"
#include "postgres/lost.h"
#include "postgres/option.h"
#include "postgres/token.h"
#include "postgres/window.h"

#define RECORD_PATH		  "gstore.tables"
#define RECORD_MAGIC	  0x31545347u /* "GST1": the file has no more of a store than its table */
#define RECORD_NAME		  0x00ffffffu /* those bytes of it that are the same in every version */
#define RECORD_TABLES_MAX (1 << 20)	  /* the upper limit of gstore_fdw.max_relations */
#define LOAD_DELAY_BITS	  8			  /* at most 256 s between two tries to load a lost table */

typedef struct record_head
{
	uint32	  magic;
	uint32	  count;
	pg_crc32c crc; /* of the keys, which follow */
} record_head;

/* ---- errors */

void
gstore_check_access(void)
{
	gstore_check_loaded();
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access tables in GPU memory during recovery"),
				 errhint("The rows are on the primary server only, as those of unlogged tables are.")));
}

void
gstore_look_alive(Oid relation, Snapshot snapshot, gstore_dead dead, gstore_view *view)
{
	gstore_look(relation, snapshot, dead, view);
	if (view->empty || gstore->ready)
		return;
	gstore_wait_ready();
	gstore_look(relation, snapshot, dead, view);
}

void
gstore_check_lost(Oid relation, const gstore_view *view)
{
	if (view->outdated)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the rows of table \"%s\" in GPU memory were lost after the snapshot of this "
						"statement was taken",
						get_rel_name(relation)),
				 errdetail("The GPU memory keeper was started anew."),
				 errhint("Roll back; a new transaction sees the table without these rows.")));
	(void) gstore_report_lost(ERROR, relation, view);
}

bool
gstore_report_lost(int level, Oid relation, const gstore_view *view)
{
	if (!view->lost || gstore_lost_tables != GSTORE_LOST_ERROR)
		return false;
	ereport(
		level,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("the rows of table \"%s\" in GPU memory were lost", get_rel_name(relation)),
		 errdetail("The GPU memory keeper or the server was started anew."),
		 gstore_table_source(relation) != NULL
			 ? errhint("Set gstore_fdw.wait_for_source = on to wait until it is loaded from its source. "
					   "Where that fails, as the server's log reports, TRUNCATE the table and load it; or "
					   "set gstore_fdw.lost_tables = empty.")
			 : errhint("TRUNCATE the table and load it again; or set gstore_fdw.lost_tables = empty.")));
	return true;
}

static void
log_lost(int count)
{
	if (count > 0)
		ereport(
			LOG,
			(errmsg_plural("%d table in GPU memory has lost its rows",
						   "%d tables in GPU memory have lost their rows", count, count),
			 errhint("gstore_fdw_chunk_info shows them, with \"lost\" true, until they have rows again.")));
}

/* ---- loss */

/* The transaction that noted a loss may have failed: then no snapshot sees it. */
static bool
has_versions(const gstore_table *table)
{
	return DsaPointerIsValid(table->newest) ||
		(TransactionIdIsNormal(table->lost_xid) && !TransactionIdDidCommit(table->lost_xid));
}

uint32
gstore_begin_epoch(bool *lost)
{
	HASH_SEQ_STATUS		scan;
	const gstore_table *table;
	uint32				epoch;

	*lost = false;
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	epoch = ++gstore->epoch;
	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		*lost |= has_versions(table);
	gstore_token_forget(NULL);
	LWLockRelease(gstore->lock);
	return epoch;
}

/* The newest version that is committed says whether there were rows; or one that may yet be. True: there were. */
static bool
lose_versions_of(gstore_table *table, TransactionId xid)
{
	const gstore_version *version = gstore_at(table->newest);
	bool				  rows = false;

	for (; version != NULL; version = gstore_at(version->older))
	{
		rows |= DsaPointerIsValid(version->store);
		if (TransactionIdDidCommit(version->xid))
			break;
	}
	table->lost = rows || (version == NULL && table->lost);
	table->lost_xid = xid;
	table->reload_at = 0;
	table->reload_tries = table->reload_error = 0;
	table->reload_waits = false;
	gstore_forget_versions(table);
	return table->lost;
}

void
gstore_lose_versions(TransactionId xid)
{
	HASH_SEQ_STATUS scan;
	gstore_table   *table;
	int				lost = 0;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (has_versions(table) && lose_versions_of(table, xid))
			lost++;
	LWLockRelease(gstore->lock);
	log_lost(lost);
}

/* ---- the file */

/* Or has lost its rows. */
static bool
has_rows(const gstore_table *table)
{
	for (const gstore_version *v = gstore_at(table->newest); v != NULL; v = gstore_at(v->older))
		if (DsaPointerIsValid(v->store))
			return true;
	return table->lost;
}

static void
note_recorded(const gstore_table_key *keys, int count)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	gstore->record_stale = false;
	for (int i = 0; i < count; i++)
	{
		gstore_table *table = gstore_find_table_of(keys[i], false);

		if (table != NULL)
			table->recorded = true;
		else
			gstore->record_stale = true;
	}
	LWLockRelease(gstore->lock);
}

void
gstore_delay_load(gstore_table *table)
{
	const int delay_s = 1 << Min(table->reload_tries, LOAD_DELAY_BITS);

	table->reload_at = gstore_deadline_ns(delay_s * 1000);
}

/*
 * Of the first that there is place for; returns how many. In the postmaster an ERROR would end the server.
 * restarts: after processes that crashed. It may have been one that loaded: the next load is delayed, so that it does not end all
 * others again at once.
 */
static int
mark_tables_lost(const gstore_table_key *keys, int count, int restarts)
{
	for (int i = 0; i < count; i++)
	{
		gstore_table *table = gstore_find_table_of(keys[i], true);

		if (table == NULL)
		{
			ereport(LOG,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("file \"%s\" names %d tables, and there is place for %d", RECORD_PATH,
							count, i),
					 errdetail("The others in GPU memory that had rows are not shown as lost."),
					 errhint("Raise gstore_fdw.max_relations.")));
			return i;
		}
		table->lost = table->recorded = true;
		table->lost_xid = FrozenTransactionId;
		table->reload_tries = restarts;
		if (restarts > 0)
			gstore_delay_load(table);
	}
	return count;
}

static uint32
checksum_keys(const gstore_table_key *keys, uint32 count)
{
	pg_crc32c crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, keys, sizeof *keys * count);
	FIN_CRC32C(crc);
	return crc;
}

static bool
write_all(int fd, const void *bytes, size_t size)
{
	errno = 0;
	if (write(fd, bytes, size) == (ssize_t) size)
		return true;
	if (errno == 0)
		errno = ENOSPC;
	return false;
}

static bool
write_record(const gstore_table_key *keys, uint32 count, int level)
{
	static const char temporary[] = RECORD_PATH ".tmp";
	const record_head head = {RECORD_MAGIC, count, checksum_keys(keys, count)};
	const int		  fd = OpenTransientFile(temporary, O_WRONLY | O_CREAT | O_TRUNC | PG_BINARY);
	bool			  written;

	if (fd < 0)
	{
		ereport(level,
				(errcode_for_file_access(), errmsg("could not create file \"%s\": %m", temporary)));
		return false;
	}
	written = write_all(fd, &head, sizeof head) && write_all(fd, keys, sizeof *keys * count);
	if (!written)
		ereport(level,
				(errcode_for_file_access(), errmsg("could not write file \"%s\": %m", temporary)));
	if (CloseTransientFile(fd) != 0 && written)
	{
		ereport(level,
				(errcode_for_file_access(), errmsg("could not close file \"%s\": %m", temporary)));
		return false;
	}
	if (!written)
		return false;
	return durable_rename(temporary, RECORD_PATH, level) == 0;
}

/* What the file is to name. The other tables are marked as not recorded, so that their next rows have the file written again. */
static int
list_tables_with_rows(gstore_table_key *keys)
{
	HASH_SEQ_STATUS scan;
	gstore_table   *table;
	int				count = 0;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	gstore_begin_tables(&scan);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (has_rows(table))
			keys[count++] = table->key;
		else
		{
			gstore->record_stale |= table->recorded; /* until the file is written */
			table->recorded = false;
		}
	LWLockRelease(gstore->lock);
	return count;
}

bool
gstore_record_tables(int level)
{
	gstore_table_key *keys = palloc(sizeof *keys * (Size) gstore_tables_max);
	int				  count;
	bool			  written;

	(void) gstore_dsa();
	LWLockAcquire(gstore->record_lock, LW_EXCLUSIVE);
	count = list_tables_with_rows(keys);
	written = write_record(keys, (uint32) count, level);
	if (written)
		note_recorded(keys, count);
	LWLockRelease(gstore->record_lock);
	pfree(keys);
	return written;
}

/* NULL: it is of another version, or not as it was written. */
static gstore_table_key *
read_keys(int fd, int *count, bool *other_version)
{
	gstore_table_key *keys;
	record_head		  head;
	size_t			  bytes;

	if (read(fd, &head, sizeof head) != sizeof head)
		return NULL;
	*other_version = head.magic != RECORD_MAGIC &&
		(head.magic & RECORD_NAME) == (RECORD_MAGIC & RECORD_NAME);
	if (head.magic != RECORD_MAGIC || head.count > RECORD_TABLES_MAX)
		return NULL;
	bytes = sizeof *keys * head.count;
	keys = palloc(bytes + 1);
	if (read(fd, keys, bytes + 1) != (ssize_t) bytes || checksum_keys(keys, head.count) != head.crc)
	{
		pfree(keys);
		return NULL;
	}
	*count = (int) head.count;
	return keys;
}

/* NULL: there is none, or none that can be read, which is reported at that level. */
static gstore_table_key *
read_record(int level, int *count)
{
	const int		  fd = OpenTransientFile(RECORD_PATH, O_RDONLY | PG_BINARY);
	gstore_table_key *keys;
	bool			  other_version = false;

	*count = 0;
	if (fd < 0)
	{
		if (errno != ENOENT)
			ereport(level,
					(errcode_for_file_access(), errmsg("could not open file \"%s\": %m", RECORD_PATH)));
		return NULL;
	}
	keys = read_keys(fd, count, &other_version);
	CloseTransientFile(fd);
	if (keys == NULL)
		ereport(level,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 other_version ? errmsg("file \"%s\" is of another version of gstore_fdw", RECORD_PATH)
							   : errmsg("file \"%s\" is damaged", RECORD_PATH),
				 errdetail("Tables in GPU memory that had rows are not shown as lost.")));
	return keys;
}

int
gstore_count_recorded(void)
{
	int				  count;
	gstore_table_key *keys = read_record(DEBUG1, &count);

	if (keys != NULL)
		pfree(keys);
	return count;
}

void
gstore_read_record(void)
{
	static int		  restarts; /* the postmaster's, which makes shared memory anew */
	int				  count;
	gstore_table_key *keys = read_record(LOG, &count);

	if (keys != NULL)
	{
		log_lost(mark_tables_lost(keys, count, restarts));
		pfree(keys);
	}
	restarts++;
}
