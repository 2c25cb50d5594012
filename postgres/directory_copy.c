/* See directory.h: copies of versions. */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "postgres/directory.h"

/* The lock is held. */
static uint64
sum_copies(Oid owner)
{
	uint64 sum = 0;

	for (const gstore_copy *c = gstore_at(gstore->copies); c != NULL; c = gstore_at(c->next))
		if (c->owner == owner)
			sum += c->bytes;
	return sum;
}

static void
fail_copy(uint64 bytes, uint64 others)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("device memory for copies under CUDA handles is limited to %d MiB a role",
					gstore_copy_memory_mb),
			 errdetail("With these %llu KiB role \"%s\" would have %llu KiB.",
					   (unsigned long long) (bytes + 1023) / 1024,
					   GetUserNameFromId(GetSessionUserId(), false),
					   (unsigned long long) (bytes + others + 1023) / 1024),
			 errhint("A copy is freed after a change of its table, when no transaction sees the rows of before any more, "
					 "or by gstore_revoke_all(). Or have gstore_fdw.copy_memory raised.")));
}

/* Those of a table's versions; NULL: there is none. The lock is held. */
static uint64
sum_copies_of(const gstore_table *table, Oid owner)
{
	uint64 sum = 0;

	for (const gstore_version *v = table != NULL ? gstore_at(table->newest) : NULL; v != NULL;
		 v = gstore_at(v->older))
	{
		const gstore_copy *copy = gstore_at(v->copy);

		if (copy != NULL && copy->owner == owner)
			sum += copy->bytes;
	}
	return sum;
}

/* The lock is held exclusively. */
static void
end_copy(gstore_version *version, TransactionId ended)
{
	gstore_copy *copy = gstore_at(version->copy);

	if (copy == NULL)
		return;
	copy->ended = ended;
	copy->next_dead = gstore->ended_copies;
	gstore->ended_copies = version->copy;
	version->copy = InvalidDsaPointer;
}

/* Of a table's versions; NULL: there is none. The lock is held exclusively. */
static void
end_copies(const gstore_table *table, TransactionId ended)
{
	for (gstore_version *v = table != NULL ? gstore_at(table->newest) : NULL; v != NULL;
		 v = gstore_at(v->older))
		end_copy(v, ended);
}

dsa_pointer
gstore_new_copy(Oid replaced, uint64 *id, uint64 definition, uint64 bytes)
{
	const TransactionId ended = OidIsValid(replaced) ? GetTopTransactionId() : InvalidTransactionId;
	const dsa_pointer	place = dsa_allocate0(gstore_dsa(), sizeof(gstore_copy));
	gstore_copy		   *copy = gstore_at(place);
	const gstore_table *table;
	uint64				others;
	bool				room;

	copy->id = *id = pg_atomic_fetch_add_u64(&gstore->next_store, 1);
	copy->owner = GetSessionUserId();
	copy->epoch = gstore->epoch;
	copy->definition = definition;
	copy->bytes = bytes;
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	table = OidIsValid(replaced) ? gstore_find_table(replaced, false) : NULL;
	others = sum_copies(copy->owner) - sum_copies_of(table, copy->owner);
	room = gstore_copy_memory_mb < 0 || bytes + others <= (uint64) gstore_copy_memory_mb * 1024 * 1024;
	if (room)
	{
		copy->next = gstore->copies;
		gstore->copies = place;
		end_copies(table, ended);
	}
	else
		dsa_free(gstore_dsa(), place);
	LWLockRelease(gstore->lock);
	if (!room)
		fail_copy(bytes, others);
	return place;
}

void
gstore_free_copy(dsa_pointer place)
{
	const gstore_copy *copy = gstore_at(place);
	dsa_pointer		  *link = &gstore->copies;

	while (*link != place)
		link = &((gstore_copy *) gstore_at(*link))->next;
	*link = copy->next;
	dsa_free(gstore_dsa(), place);
}

void
gstore_end_copies(Oid relation)
{
	/* One that snapshots taken later see the end of. */
	const TransactionId ended = GetTopTransactionId();
	const gstore_table *table;

	(void) gstore_dsa();
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	table = gstore_find_table(relation, false);
	end_copies(table, ended);
	LWLockRelease(gstore->lock);
	gstore_wake_worker();
}

static bool
has_copies(const gstore_table *table)
{
	if (table->key.database != MyDatabaseId)
		return false;
	for (const gstore_version *v = gstore_at(table->newest); v != NULL; v = gstore_at(v->older))
		if (DsaPointerIsValid(v->copy))
			return true;
	return false;
}

/* The catalog is not looked at under the lock. */
void
gstore_follow_copies(bool (*privileges_of)(Oid relation, uint32 *privileges, bool *accept))
{
	const TransactionId ended = GetTopTransactionId();
	gstore_table_key   *all;
	const int			count = gstore_list_tables(has_copies, &all);

	for (int i = 0; i < count; i++)
	{
		uint32				privileges = 0;
		bool				accept = false;
		const bool			there = privileges_of(all[i].relation, &privileges, &accept);
		const gstore_table *table;

		LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
		table = gstore_find_table(all[i].relation, false);
		for (gstore_version *v = table != NULL ? gstore_at(table->newest) : NULL; v != NULL;
			 v = gstore_at(v->older))
		{
			gstore_copy *copy = gstore_at(v->copy);

			if (copy != NULL && accept)
				copy->privileges = privileges;
			else if (copy != NULL && !(there && copy->privileges == privileges))
				end_copy(v, ended);
		}
		LWLockRelease(gstore->lock);
	}
	pfree(all);
	gstore_wake_worker();
}

bool
gstore_get_copy(Oid relation, const gstore_view *view, gstore_copy *out)
{
	const gstore_version *version;
	const gstore_copy	 *copy = NULL;

	(void) gstore_dsa();
	LWLockAcquire(gstore->lock, LW_SHARED);
	version = gstore_find_version(relation, view);
	if (version != NULL)
		copy = gstore_at(version->copy);
	if (copy != NULL)
		*out = *copy;
	LWLockRelease(gstore->lock);
	return copy != NULL;
}

bool
gstore_hang_copy(Oid relation, const gstore_view *view, dsa_pointer place, uint32 privileges,
				 const uint8 handle[GSTORE_HANDLE_BYTES])
{
	gstore_copy	   *copy = gstore_at(place);
	gstore_version *version;
	bool			hung = false;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	version = gstore_find_version(relation, view);
	if (version != NULL && !DsaPointerIsValid(version->copy))
	{
		memcpy(copy->handle, handle, GSTORE_HANDLE_BYTES);
		copy->privileges = privileges;
		version->copy = place;
		hung = true;
	}
	LWLockRelease(gstore->lock);
	return hung;
}
