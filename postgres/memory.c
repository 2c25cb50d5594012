/* See memory.h. */
#include "postgres.h"

#include "postgres/directory.h"
#include "postgres/memory.h"
#include "postgres/settings.h"
#include "postgres/token.h"
#include "postgres/window.h"

/* ---- memory that no version needs */

uint64
gstore_next_writer_number(void)
{
	return pg_atomic_fetch_add_u64(&gstore->next_writer_number, 1);
}

/* NULL: the table has no rows. The lock is held. */
static gstore_store *
newest_store(const gstore_table *table)
{
	const gstore_version *newest = table != NULL ? gstore_at(table->newest) : NULL;

	return newest != NULL ? gstore_at(newest->store) : NULL;
}

void
gstore_ask_trim(Oid relation, uint64 writer_number)
{
	gstore_store *store;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	store = newest_store(gstore_find_table(relation, false));
	if (store != NULL)
		store->trim_writer = Max(store->trim_writer, writer_number);
	LWLockRelease(gstore->lock);
	if (store != NULL)
		gstore_wake_worker();
}

/* A column that was dropped keeps what it has: the transaction that says so may be undone yet. */
static gstore_extent *
list_extents(const gstore_version *version, uint32 *count)
{
	gstore_extent *all = palloc(sizeof *all * (GSTORE_ELEMENT_NULLS + 1) * (version->column_count + 1));

	*count = 0;
	for (uint32 i = 0; i < version->column_count; i++)
		for (int part = GSTORE_VALUES; part <= GSTORE_ELEMENT_NULLS; part++)
		{
			const uint64 bytes = gstore_part_bytes(&version->columns[i], (gstore_part) part,
												   version->rows);

			if (bytes > 0)
				all[(*count)++] = (gstore_extent){
					.column = (uint16) (i + 1), .part = (uint8) part, .bytes = bytes};
		}
	return all;
}

/* A command that comes late would take the memory anew: such a store is for a later call. */
bool
gstore_next_trim(gstore_store_name *name, gstore_extent **extents, uint32 *count)
{
	HASH_SEQ_STATUS		scan;
	const gstore_table *table;
	bool				found = false;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	gstore_begin_tables(&scan);
	while (!found && (table = hash_seq_search(&scan)) != NULL)
	{
		gstore_store *store = newest_store(table);

		if (store == NULL || store->trim_writer == 0 || gstore_has_left_change(&store->name))
			continue;
		*name = store->name;
		name->writer_number = store->trim_writer;
		*extents = list_extents(gstore_at(table->newest), count);
		store->trim_writer = 0;
		found = true;
		hash_seq_term(&scan);
	}
	LWLockRelease(gstore->lock);
	return found;
}

/* ---- what is dead */

/* A command that comes late would make the store's areas anew: such a store stays on the list. */
bool
gstore_next_dead_store(gstore_store_name *name)
{
	dsa_pointer	 *link = &gstore->dead_stores, place;
	gstore_store *store;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	while ((store = gstore_at(*link)) != NULL && gstore_has_left_change(&store->name))
		link = &store->next_dead;
	if (store != NULL)
	{
		place = *link;
		*name = store->name;
		*link = store->next_dead;
		gstore_token_forget(name);
		gstore_free_store(place);
	}
	LWLockRelease(gstore->lock);
	return store != NULL;
}

/* One that a command is yet to make, or to fill, stays on the list. */
bool
gstore_next_dead_copy(uint64 *id, uint32 *epoch)
{
	dsa_pointer *link = &gstore->dead_copies, place;
	gstore_copy *copy;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	while ((copy = gstore_at(*link)) != NULL && gstore_has_left_copy(copy->id))
		link = &copy->next_dead;
	if (copy != NULL)
	{
		place = *link;
		*id = copy->id;
		*epoch = copy->epoch;
		*link = copy->next_dead;
		gstore_free_copy(place);
	}
	LWLockRelease(gstore->lock);
	return copy != NULL;
}

/* ---- memory that there is */

static int
compare_sizes(const void *left, const void *right)
{
	const gstore_store_size *a = left, *b = right;

	return (a->store > b->store) - (a->store < b->store);
}

void
gstore_note_report(const gstore_report *report, const gstore_store_size *sizes, uint32 size_count)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	gstore->report = *report;
	for (gstore_store *store = gstore_at(gstore->stores); store != NULL; store = gstore_at(store->next))
	{
		const gstore_store_size	 key = {.store = store->name.store};
		const gstore_store_size *size = bsearch(&key, sizes, size_count, sizeof key, compare_sizes);

		if (size == NULL)
			continue;
		store->sized = true;
		store->committed_bytes = size->bytes;
	}
	LWLockRelease(gstore->lock);
}

uint64
gstore_join_memory(void)
{
	uint64 bytes = PG_UINT64_MAX;

	if (gstore_gpu_join_memory_mb >= 0)
		return (uint64) gstore_gpu_join_memory_mb * 1024 * 1024;
	LWLockAcquire(gstore->lock, LW_SHARED);
	for (uint32 i = 0; i < gstore->report.device_count; i++)
		bytes = Min(bytes, gstore->report.devices[i].budget_bytes);
	if (gstore->report.device_count > 0)
		bytes = (bytes + gstore->report.host_budget_bytes) / 2;
	LWLockRelease(gstore->lock);
	return bytes;
}
