/* See directory.h. */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#include "postgres/arrow.h"
#include "postgres/clock.h"
#include "postgres/directory.h"

#define NEW_VERSIONS_MAX	256 /* that may wait for the worker's next look at the clock */
#define VERSION_BYTES_LEAST ((uint64) 1024)
#define VERSIONS_WAIT_MS	3000 /* for the worker, which forgets old ones once a second */
#define VERSIONS_LOOK_MS	10
#define MERGE_AGAIN_MS		10000

static HTAB *tables;

/* ---- set-up */

int gstore_tables_max;

Size
gstore_directory_size(int lost)
{
	gstore_tables_max = Max(gstore_max_relations, lost);
	return hash_estimate_size(gstore_tables_max, sizeof(gstore_table));
}

void
gstore_directory_attach(void)
{
	HASHCTL control = {.keysize = sizeof(gstore_table_key), .entrysize = sizeof(gstore_table)};

	tables = ShmemInitHash("gstore_fdw tables", gstore_tables_max, gstore_tables_max, &control,
						   HASH_ELEM | HASH_BLOBS);
}

/* ---- stores */

/* The lock is held exclusively. */
static void
unref_store(dsa_pointer place)
{
	gstore_store *store = gstore_at(place);

	if (store == NULL || --store->refs > 0)
		return;
	store->next_dead = gstore->dead_stores;
	gstore->dead_stores = place;
}

dsa_pointer
gstore_new_store(Oid relation, int device, bool arrow, gstore_store_name *name)
{
	const dsa_pointer place = dsa_allocate0(gstore_dsa(), sizeof(gstore_store));
	gstore_store	 *store = gstore_at(place);

	store->refs = 1;
	store->arrow = arrow;
	store->name = (gstore_store_name){.database = MyDatabaseId,
									  .table = relation,
									  .store = pg_atomic_fetch_add_u64(&gstore->next_store, 1),
									  .device = device,
									  .epoch = gstore->epoch};
	*name = store->name;
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	store->next = gstore->stores;
	if (DsaPointerIsValid(store->next))
		((gstore_store *) gstore_at(store->next))->previous = place;
	gstore->stores = place;
	LWLockRelease(gstore->lock);
	return place;
}

void
gstore_free_store(dsa_pointer place)
{
	const gstore_store *store = gstore_at(place);
	gstore_store	   *previous = gstore_at(store->previous), *next = gstore_at(store->next);

	*(previous != NULL ? &previous->next : &gstore->stores) = store->next;
	if (next != NULL)
		next->previous = store->previous;
	if (DsaPointerIsValid(store->dead_rows))
		dsa_free(gstore_dsa(), store->dead_rows);
	dsa_free(gstore_dsa(), place);
}

void
gstore_release_store(dsa_pointer place)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	unref_store(place);
	LWLockRelease(gstore->lock);
	gstore_wake_worker();
}

/* ---- tables */

gstore_table *
gstore_find_table_of(gstore_table_key key, bool create)
{
	bool		  found;
	gstore_table *table = hash_search(tables, &key, HASH_FIND, &found);

	/* The hash table itself would grow into what other parts of the server have left. */
	if (!found && create && hash_get_num_entries(tables) < gstore_tables_max)
		table = hash_search(tables, &key, HASH_ENTER_NULL, NULL);
	if (table != NULL && !found)
		*table = (gstore_table){.key = key, .newest = InvalidDsaPointer};
	return table;
}

void
gstore_begin_tables(HASH_SEQ_STATUS *scan)
{
	hash_seq_init(scan, tables);
}

gstore_table *
gstore_find_table(Oid relation, bool create)
{
	return gstore_find_table_of((gstore_table_key){MyDatabaseId, relation}, create);
}

gstore_version *
gstore_find_version(Oid relation, const gstore_view *view)
{
	const gstore_table *table = gstore_find_table(relation, false);
	gstore_version	   *version = table != NULL ? gstore_at(table->newest) : NULL;

	while (version != NULL && (version->revision != view->revision || version->store != view->store))
		version = gstore_at(version->older);
	return version;
}

static void
remove_table(gstore_table *table)
{
	gstore->record_stale |= table->recorded;
	hash_search(tables, &table->key, HASH_REMOVE, NULL);
}

/* The lock is held. */
static void
list_dead_copy(dsa_pointer place)
{
	gstore_copy *copy = gstore_at(place);

	if (copy == NULL)
		return;
	copy->next_dead = gstore->dead_copies;
	gstore->dead_copies = place;
}

void
gstore_release_copy(dsa_pointer place)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	list_dead_copy(place);
	LWLockRelease(gstore->lock);
	gstore_wake_worker();
}

/* Its part in gstore_fdw.version_memory. Small ones take time: each is looked at once a second. */
static uint64
version_bytes(const gstore_version *version)
{
	return Max(VERSION_BYTES_LEAST,
			   offsetof(gstore_version, columns) + sizeof(gstore_column) * version->column_count +
				   (version->delete_bytes > 0 ? version->delete_bytes
											  : version->delete_count * sizeof(uint64)));
}

static void
count_version(gstore_table *table, const gstore_version *version)
{
	table->version_bytes += version_bytes(version);
	gstore->version_bytes += version_bytes(version);
}

static void
discount_version(gstore_table *table, const gstore_version *version)
{
	table->version_bytes -= version_bytes(version);
	gstore->version_bytes -= version_bytes(version);
}

static void
free_version(gstore_table *table, dsa_pointer place)
{
	gstore_version *version = gstore_at(place);

	discount_version(table, version);
	unref_store(version->store);
	list_dead_copy(version->copy);
	if (DsaPointerIsValid(version->deletes))
		dsa_free(gstore_dsa(), version->deletes);
	dsa_free(gstore_dsa(), place);
}

/* ---- looking */

static bool
is_visible(TransactionId xid, Snapshot snapshot)
{
	if (!TransactionIdIsNormal(xid))
		return true; /* frozen */
	if (TransactionIdIsCurrentTransactionId(xid))
		return true;
	if (snapshot != NULL && XidInMVCCSnapshot(xid, snapshot))
		return false;
	return !TransactionIdIsInProgress(xid) && TransactionIdDidCommit(xid);
}

static void
grow_dead_bitmap(gstore_view *view, uint64 bytes)
{
	if (bytes <= view->dead_bytes)
		return;
	bytes = Max(view->rows / 8 + 1, bytes);
	if (view->dead == NULL)
		view->dead = MemoryContextAllocExtended(CurrentMemoryContext, bytes,
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	else
	{
		view->dead = repalloc_huge(view->dead, bytes);
		memset(view->dead + view->dead_bytes, 0, bytes - view->dead_bytes);
	}
	view->dead_bytes = bytes;
}

void
gstore_view_delete(gstore_view *view, uint64 row)
{
	grow_dead_bitmap(view, row / 8 + 1);
	view->dead[row / 8] |= (uint8) (1 << (row % 8));
}

void
gstore_view_delete_all(gstore_view *view, const gstore_rowset *rows)
{
	if (rows->count == 0)
		return;
	grow_dead_bitmap(view, gstore_rowset_limit(rows) / 8);
	gstore_rowset_mark(rows, view->dead);
}

/* A version's deletions, in a bitmap that reaches as far. */
static void
mark_deletes(const gstore_version *version, uint8 *dead)
{
	const void *deletes = gstore_at(version->deletes);

	if (version->delete_bytes > 0)
		for (uint64 i = 0; i < version->delete_bytes; i++)
			dead[i] |= ((const uint8 *) deletes)[i];
	else
		for (uint64 i = 0; i < version->delete_count; i++)
		{
			const uint64 row = ((const uint64 *) deletes)[i];

			dead[row / 8] |= (uint8) (1 << (row % 8));
		}
}

/* What versions from this one on deleted, and what was deleted before it. */
static void
copy_dead(gstore_view *view, const gstore_version *version)
{
	const gstore_store *store = gstore_at(version->store);

	if (DsaPointerIsValid(store->dead_rows))
	{
		grow_dead_bitmap(view, store->dead_bytes);
		memcpy(view->dead, gstore_at(store->dead_rows), store->dead_bytes);
	}
	for (const gstore_version *v = version; v != NULL && v->store == version->store;
		 v = gstore_at(v->older))
		if (v->delete_count > 0)
		{
			grow_dead_bitmap(view, view->rows / 8 + 1);
			mark_deletes(v, view->dead);
		}
}

/* Without dead rows. */
static void
copy_version(gstore_view *view, const gstore_version *version)
{
	const gstore_store *store = gstore_at(version->store);

	*view = (gstore_view){.empty = store == NULL, .xid = version->xid, .revision = version->revision};
	if (store == NULL)
		return;
	view->store = version->store;
	view->name = store->name;
	view->arrow = store->arrow;
	view->rows = version->rows;
	view->live_rows = version->live_rows;
	view->column_count = (int) version->column_count;
	view->columns = palloc(sizeof(gstore_column) * version->column_count);
	memcpy(view->columns, version->columns, sizeof(gstore_column) * version->column_count);
}

void
gstore_look(Oid relation, Snapshot snapshot, gstore_dead dead, gstore_view *view)
{
	const gstore_table	 *table;
	const gstore_version *version = NULL;

	memset(view, 0, sizeof *view);
	view->empty = true;
	if (gstore == NULL)
		return;
	(void) gstore_dsa();
	LWLockAcquire(gstore->lock, LW_SHARED);
	table = gstore_find_table(relation, false);
	if (table != NULL)
		for (version = gstore_at(table->newest); version != NULL; version = gstore_at(version->older))
			if (is_visible(version->xid, snapshot))
				break;
	if (version != NULL)
		copy_version(view, version);
	else if (table != NULL)
	{
		view->lost = table->lost;
		view->outdated = snapshot != NULL && TransactionIdIsValid(table->lost_xid) &&
			!is_visible(table->lost_xid, snapshot);
	}
	if (!view->empty && dead == GSTORE_DEAD_ANYWHERE && version->deleted_bytes > 0)
	{
		view->deleted_at = version->deleted_at;
		view->deleted_bytes = version->deleted_bytes;
	}
	else if (!view->empty && dead != GSTORE_DEAD_NOT_WANTED)
		copy_dead(view, version);
	LWLockRelease(gstore->lock);
}

int
gstore_newer_versions(Oid relation, Snapshot snapshot, TransactionId **xids)
{
	const gstore_table *table;
	int					count = 0, capacity = 16;

	*xids = palloc(sizeof(TransactionId) * (Size) capacity);
	(void) gstore_dsa();
	LWLockAcquire(gstore->lock, LW_SHARED);
	table = gstore_find_table(relation, false);
	if (table != NULL)
		for (const gstore_version *v = gstore_at(table->newest); v != NULL; v = gstore_at(v->older))
		{
			if (is_visible(v->xid, snapshot))
				break;
			if (count == capacity)
				*xids = repalloc(*xids, sizeof(TransactionId) * (Size) (capacity *= 2));
			(*xids)[count++] = v->xid;
		}
	LWLockRelease(gstore->lock);
	if (count == 0)
		pfree(*xids);
	return count;
}

/* ---- changing */

static void
free_unlinked(dsa_pointer place)
{
	const gstore_version *version = gstore_at(place);

	if (DsaPointerIsValid(version->deletes))
		dsa_free(gstore_dsa(), version->deletes);
	dsa_free(gstore_dsa(), place);
}

/* As a list or as a bitmap, whichever is smaller. False: no memory. */
static bool
keep_deletes(gstore_version *version, const gstore_rowset *deletes)
{
	const uint64 bitmap_bytes = gstore_rowset_limit(deletes) / 8;
	const bool	 is_list = deletes->count <= bitmap_bytes / sizeof(uint64);
	const uint64 bytes = is_list ? deletes->count * sizeof(uint64) : bitmap_bytes;

	version->deletes = dsa_allocate_extended(gstore_dsa(), bytes,
											 DSA_ALLOC_HUGE | DSA_ALLOC_NO_OOM | DSA_ALLOC_ZERO);
	if (!DsaPointerIsValid(version->deletes))
		return false;
	version->delete_count = deletes->count;
	version->delete_bytes = is_list ? 0 : bytes;
	if (is_list)
		gstore_rowset_list(deletes, gstore_at(version->deletes));
	else
		gstore_rowset_mark(deletes, gstore_at(version->deletes));
	return true;
}

/*
 * In dynamic shared memory, not in the table's list yet. Where a new segment is needed and cannot be made, that may be an ERROR of
 * the system's.
 */
static dsa_pointer
make_version(const gstore_view *state, const gstore_rowset *deletes)
{
	const int			 column_count = state->empty ? 0 : state->column_count;
	const Size			 columns_size = sizeof(gstore_column) * (Size) column_count;
	gstore_version		 made = {.xid = GetTopTransactionId(),
								 .column_count = (uint32) column_count,
								 .store = InvalidDsaPointer,
								 .deletes = InvalidDsaPointer};
	const bool			 enough = deletes == NULL || keep_deletes(&made, deletes);
	volatile dsa_pointer place = InvalidDsaPointer;

	PG_TRY();
	{
		if (enough)
			place = dsa_allocate_extended(gstore_dsa(),
										  offsetof(gstore_version, columns) + columns_size,
										  DSA_ALLOC_NO_OOM | DSA_ALLOC_ZERO);
	}
	PG_FINALLY();
	{
		if (!DsaPointerIsValid(place) && DsaPointerIsValid(made.deletes))
			dsa_free(gstore_dsa(), made.deletes);
	}
	PG_END_TRY();
	if (!DsaPointerIsValid(place))
		ereport(
			ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of shared memory for changes of a table"),
			 deletes == NULL
				 ? 0
				 : errdetail("The table would have %llu rows that were deleted and not yet compacted.",
							 (unsigned long long) deletes->count),
			 errhint("Call gstore_fdw_compact() for the table, or give the server more dynamic shared "
					 "memory (/dev/shm).")));
	if (!state->empty)
	{
		made.store = state->store;
		made.rows = state->rows;
		made.live_rows = state->live_rows;
		memcpy(((gstore_version *) gstore_at(place))->columns, state->columns, columns_size);
	}
	memcpy(gstore_at(place), &made, offsetof(gstore_version, columns));
	return place;
}

/* Others find some that are left; who has many gets no more until then. The lock is held. */
static bool
has_share(Oid owner, int *count, int *left)
{
	const int			all = (int) hash_get_num_entries(tables);
	HASH_SEQ_STATUS		scan;
	const gstore_table *table;

	*count = 0;
	*left = gstore_tables_max - all;
	if (all / GSTORE_TABLES_A_FREE_ONE < *left) /* also if one owner has all of them */
		return true;
	hash_seq_init(&scan, tables);
	while ((table = hash_seq_search(&scan)) != NULL)
		*count += table->owner == owner;
	return *count / GSTORE_TABLES_A_FREE_ONE < *left;
}

/* Of the versions of an owner's tables that newer ones follow. The lock is held. */
static uint64
sum_old_versions(Oid owner)
{
	uint64				sum = 0;
	HASH_SEQ_STATUS		scan;
	const gstore_table *table;

	hash_seq_init(&scan, tables);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (table->owner == owner && DsaPointerIsValid(table->newest))
			sum += table->version_bytes - version_bytes(gstore_at(table->newest));
	return sum;
}

/* An empty version of a table that is empty would say nothing. */
static bool
says_something(Oid relation, const gstore_view *state)
{
	const gstore_table	 *table;
	const gstore_version *newest;
	bool				  something = true;

	(void) gstore_dsa();
	if (!state->empty)
		return true;
	LWLockAcquire(gstore->lock, LW_SHARED);
	table = gstore_find_table(relation, false);
	newest = table != NULL ? gstore_at(table->newest) : NULL;
	if (table == NULL || newest != NULL) /* a lost table without a version may have rows to be loaded */
		something = newest != NULL && DsaPointerIsValid(newest->store);
	LWLockRelease(gstore->lock);
	return something;
}

/* What empties a table that has rows, or may have, is not refused: memory is given back by it. The lock is held. */
static bool
has_version_room(Oid owner, bool empty)
{
	const uint64 limit = (uint64) gstore_version_memory_mb * 1024 * 1024;

	return empty || gstore_version_memory_mb < 0 || gstore->version_bytes <= limit ||
		sum_old_versions(owner) <= limit;
}

/* Old versions that no snapshot needs are to be forgotten first. */
static void
wait_for_version_room(Oid owner, bool empty)
{
	const int64 deadline = gstore_deadline_ns(VERSIONS_WAIT_MS);
	bool		room, woken = false;

	for (;;)
	{
		LWLockAcquire(gstore->lock, LW_SHARED);
		room = has_version_room(owner, empty);
		LWLockRelease(gstore->lock);
		if (room)
			return;
		if (gstore_now_ns() >= deadline)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("versions of an owner's tables in GPU memory are limited to %d MiB",
							gstore_version_memory_mb),
					 errdetail("Old versions of tables of role \"%s\" take more, and open snapshots may see them.",
							   GetUserNameFromId(owner, true)),
					 errhint("pg_stat_activity.backend_xmin, pg_prepared_xacts and pg_replication_slots show old snapshots. "
							 "End these, or have gstore_fdw.version_memory raised.")));
		if (!woken)
			gstore_wake_worker();
		woken = true;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, VERSIONS_LOOK_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
fail_table(Oid owner, int count, int left)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 left == 0 ? errmsg("too many tables are in GPU memory")
					   : errmsg("role \"%s\" has %d tables in GPU memory, its share of %d",
								GetUserNameFromId(owner, true), count, gstore_tables_max),
			 left == 0 ? 0
					   : errdetail("A role may have %d times as many as are free, and %d are free.",
								   GSTORE_TABLES_A_FREE_ONE, left),
			 errhint("Drop or TRUNCATE tables that have or had rows, or raise gstore_fdw.max_relations, which is %d, "
					 "and restart the server, which empties all tables.",
					 gstore_max_relations)));
}

void
gstore_add_version(Oid relation, Oid owner, const gstore_view *state, const gstore_rowset *deletes,
				   uint64 changes, bool *recorded)
{
	dsa_pointer		place;
	gstore_version *version;
	gstore_table   *table;
	const bool		unbounded = !OidIsValid(owner) || superuser_arg(owner);
	bool			many, shared = true;
	int				count = 0, left = 0;

	*recorded = true;
	if (!says_something(relation, state))
		return;
	wait_for_version_room(owner, state->empty);
	place = make_version(state, deletes);
	version = gstore_at(place);
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	if (!state->empty && state->name.epoch != gstore->epoch)
	{
		LWLockRelease(gstore->lock);
		free_unlinked(place);
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("the GPU memory keeper was started anew during the transaction"),
				 errhint("Repeat the transaction once its tables are loaded.")));
	}
	table = gstore_find_table(relation, false);
	if (table == NULL)
		shared = unbounded || has_share(owner, &count, &left);
	if (table == NULL && shared)
		table = gstore_find_table(relation, true);
	if (table == NULL)
	{
		LWLockRelease(gstore->lock);
		free_unlinked(place);
		fail_table(owner, count, shared ? 0 : left);
	}
	if (!state->empty)
		((gstore_store *) gstore_at(version->store))->refs++;
	version->older = table->newest;
	version->revision = ++table->revisions;
	version->changes = changes;
	table->changes += changes;
	table->newest = place;
	if (OidIsValid(owner))
		table->owner = owner;
	count_version(table, version);
	many = ++gstore->new_versions % NEW_VERSIONS_MAX == 0;
	*recorded = table->recorded || state->empty;
	LWLockRelease(gstore->lock);
	if (many)
		gstore_wake_worker();
}

void
gstore_remove_version(Oid relation, TransactionId xid)
{
	gstore_table *table;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	table = gstore_find_table(relation, false);
	if (table != NULL && DsaPointerIsValid(table->newest))
	{
		const dsa_pointer	  newest = table->newest;
		const gstore_version *version = gstore_at(newest);

		if (TransactionIdEquals(version->xid, xid))
		{
			table->newest = version->older;
			table->changes -= Min(version->changes, table->changes);
			free_version(table, newest);
		}
	}
	LWLockRelease(gstore->lock);
}

/* ---- the horizon */

static bool
ensure_dead_bitmap(gstore_store *store, uint64 bytes)
{
	dsa_pointer grown;

	if (store->dead_bytes >= bytes)
		return true;
	bytes = Max(bytes, store->dead_bytes + store->dead_bytes / 2);
	grown = dsa_allocate_extended(gstore_dsa(), bytes,
								  DSA_ALLOC_HUGE | DSA_ALLOC_NO_OOM | DSA_ALLOC_ZERO);
	if (!DsaPointerIsValid(grown))
		return false;
	if (DsaPointerIsValid(store->dead_rows))
	{
		memcpy(gstore_at(grown), gstore_at(store->dead_rows), store->dead_bytes);
		dsa_free(gstore_dsa(), store->dead_rows);
	}
	store->dead_rows = grown;
	store->dead_bytes = bytes;
	return true;
}

/* A version's deletions become the store's. False, or an ERROR of the system: no memory; then they stay where they are. */
static bool
merge_deletes(gstore_table *table, gstore_version *version)
{
	gstore_store *store = gstore_at(version->store);

	if (version->delete_count == 0)
		return true;
	/* Before it, as it may end by an ERROR, with what the server keeps of a segment that could not be made. */
	if (gstore_now_ns() < table->merge_ns)
		return false;
	table->merge_ns = gstore_deadline_ns(MERGE_AGAIN_MS);
	if (!ensure_dead_bitmap(store, version->rows / 8 + 1))
		return false;
	table->merge_ns = 0;
	mark_deletes(version, gstore_at(store->dead_rows));
	store->dead_count += version->delete_count;
	dsa_free(gstore_dsa(), version->deletes);
	discount_version(table, version);
	version->deletes = InvalidDsaPointer;
	version->delete_count = version->delete_bytes = 0;
	count_version(table, version);
	return true;
}

/* Versions older than the newest one that everybody sees are needed by nobody. */
static void
forget_old_versions(gstore_table *table, TransactionId horizon)
{
	gstore_version *version;

	if (table->gone)
	{
		gstore_forget_versions(table);
		remove_table(table);
		return;
	}
	version = gstore_at(table->newest);
	if (TransactionIdIsNormal(table->lost_xid) && TransactionIdPrecedes(table->lost_xid, horizon) &&
		TransactionIdDidCommit(table->lost_xid))
		table->lost_xid = FrozenTransactionId;
	if (version == NULL && !table->lost && !TransactionIdIsNormal(table->lost_xid))
	{
		remove_table(table);
		return;
	}
	while (version != NULL &&
		   !(TransactionIdPrecedes(version->xid, horizon) && TransactionIdDidCommit(version->xid)) &&
		   TransactionIdIsNormal(version->xid))
		version = gstore_at(version->older);
	if (version == NULL)
		return;
	for (gstore_version *v = version; v != NULL; v = gstore_at(v->older))
		if (DsaPointerIsValid(v->store) && v->store == version->store && !merge_deletes(table, v))
			return;
	version->xid = FrozenTransactionId;
	table->lost = false;
	table->lost_xid = InvalidTransactionId;
	while (DsaPointerIsValid(version->older))
	{
		const dsa_pointer older = version->older;

		version->older = ((gstore_version *) gstore_at(older))->older;
		free_version(table, older);
	}
	if (!DsaPointerIsValid(version->store) && gstore_at(table->newest) == version)
	{
		free_version(table, table->newest);
		table->newest = InvalidDsaPointer;
		remove_table(table);
	}
}

void
gstore_forget_old_versions(gstore_table_key key, TransactionId horizon)
{
	gstore_table *table;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	table = gstore_find_table_of(key, false);
	if (table != NULL)
		forget_old_versions(table, horizon);
	LWLockRelease(gstore->lock);
}

/* Copies that were ended and that no transaction knows. */
void
gstore_forget_ended_copies(TransactionId horizon)
{
	dsa_pointer *place = &gstore->ended_copies;
	gstore_copy *copy;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	while ((copy = gstore_at(*place)) != NULL)
	{
		const dsa_pointer over = *place;

		if (TransactionIdPrecedes(copy->ended, horizon))
		{
			*place = copy->next_dead;
			list_dead_copy(over);
		}
		else
			place = &copy->next_dead;
	}
	LWLockRelease(gstore->lock);
}

void
gstore_forget_versions(gstore_table *table)
{
	while (DsaPointerIsValid(table->newest))
	{
		const dsa_pointer newest = table->newest;

		table->newest = ((gstore_version *) gstore_at(newest))->older;
		free_version(table, newest);
	}
}

void
gstore_forget_lost(Oid relation)
{
	gstore_table *table;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	table = gstore_find_table(relation, false);
	if (table != NULL && table->lost && !DsaPointerIsValid(table->newest))
		remove_table(table);
	LWLockRelease(gstore->lock);
}

void
gstore_forget_database(Oid database)
{
	HASH_SEQ_STATUS scan;
	gstore_table   *table;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, tables);
	while ((table = hash_seq_search(&scan)) != NULL)
		table->gone |= table->key.database == database;
	LWLockRelease(gstore->lock);
	gstore_wake_worker();
}

/* ---- for views */

/* newer: the version that follows; NULL: none does. */
static void
describe_version(const gstore_table *table, const gstore_version *version,
				 const gstore_version *newer, gstore_version_info *info)
{
	const gstore_store *store = gstore_at(version->store);

	*info = (gstore_version_info){.key = table->key,
								  .revision = version->revision,
								  .xmin = version->xid,
								  .xmax = newer != NULL ? newer->xid : InvalidTransactionId};
	copy_version(&info->view, version);
	if (store == NULL)
		return;
	info->device = store->name.device;
	if (DsaPointerIsValid(version->copy))
	{
		const gstore_copy *copy = gstore_at(version->copy);

		info->copy_bytes = copy->bytes;
		info->copy_definition = copy->definition;
	}
	info->sized = store->sized && (newer == NULL || newer->store != version->store);
	info->committed_bytes = store->committed_bytes;
}

int
gstore_list_tables(bool (*wanted)(const gstore_table *), gstore_table_key **out)
{
	HASH_SEQ_STATUS		scan;
	const gstore_table *table;
	int					count = 0;

	if (gstore == NULL)
		return 0;
	(void) gstore_dsa();
	*out = palloc(sizeof **out * (Size) gstore_tables_max);
	LWLockAcquire(gstore->lock, LW_SHARED);
	hash_seq_init(&scan, tables);
	while ((table = hash_seq_search(&scan)) != NULL)
		if (wanted == NULL || wanted(table))
			(*out)[count++] = table->key;
	LWLockRelease(gstore->lock);
	return count;
}

/* The lock is held. */
static gstore_version_info *
describe_versions(const gstore_table *table, int *count)
{
	int					  capacity = 64;
	gstore_version_info	 *all = palloc(sizeof *all * (Size) capacity);
	const gstore_version *newer = NULL;

	for (const gstore_version *v = gstore_at(table->newest); v != NULL; v = gstore_at(v->older))
	{
		if (*count == capacity - 1)
			all = repalloc_huge(all, sizeof *all * (Size) (capacity *= 2));
		describe_version(table, v, newer, &all[(*count)++]);
		newer = v;
	}
	if (table->lost)
		all[(*count)++] = (gstore_version_info){.key = table->key,
												.xmin = table->lost_xid,
												.xmax = newer != NULL ? newer->xid : InvalidTransactionId,
												.view = {.empty = true, .lost = true}};
	return all;
}

int
gstore_list_versions(gstore_table_key key, gstore_version_info **out)
{
	const gstore_table *table;
	int					count = 0;

	(void) gstore_dsa();
	LWLockAcquire(gstore->lock, LW_SHARED);
	table = gstore_find_table_of(key, false);
	if (table != NULL)
		*out = describe_versions(table, &count);
	LWLockRelease(gstore->lock);
	return count;
}
