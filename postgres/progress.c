/*
 * Progress of statements, in shared memory; see progress.h.
 *
 * A place is written by its backend alone. `changes` is odd while it writes; a reader for which it was
 * odd, or has changed since, copies the place again.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "postgres/progress.h"

#define TRIES_MAX 1000

typedef struct place
{
	pg_atomic_uint32	 changes;
	gstore_progress_info info;
} place;

static place	  *places;
static const void *owner; /* NULL: no statement of this backend is shown */
static int		   owner_level;

Size
gstore_progress_size(void)
{
	return mul_size(sizeof(place), (Size) MaxBackends);
}

static place *
own_progress_slot(void)
{
	const int number = MyBackendId - 1;

	return places != NULL && number >= 0 && number < MaxBackends ? &places[number] : NULL;
}

static void
begin_change(place *p)
{
	pg_atomic_write_u32(&p->changes, pg_atomic_read_u32(&p->changes) + 1);
	pg_write_barrier();
}

static void
end_change(place *p)
{
	pg_write_barrier();
	pg_atomic_write_u32(&p->changes, pg_atomic_read_u32(&p->changes) + 1);
}

static void
clear_progress(void)
{
	place *p = own_progress_slot();

	if (owner == NULL || p == NULL)
		return;
	owner = NULL;
	begin_change(p);
	p->info.command = GSTORE_NOTHING;
	end_change(p);
}

static void
progress_xact_callback(XactEvent event, void *argument)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		clear_progress();
}

static void
progress_subxact_callback(SubXactEvent event, SubTransactionId id, SubTransactionId parent,
						  void *argument)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && owner_level >= GetCurrentTransactionNestLevel())
		clear_progress();
}

void
gstore_progress_attach(void *at, bool found)
{
	places = at;
	if (!found)
		for (int i = 0; i < MaxBackends; i++)
		{
			pg_atomic_init_u32(&places[i].changes, 0);
			places[i].info.command = GSTORE_NOTHING;
		}
	RegisterXactCallback(progress_xact_callback, NULL);
	RegisterSubXactCallback(progress_subxact_callback, NULL);
}

void
gstore_progress_begin(gstore_progress_command command, Oid relation, const void *statement)
{
	place *p = own_progress_slot();

	if (owner != NULL || p == NULL)
		return;
	owner = statement;
	owner_level = GetCurrentTransactionNestLevel();
	begin_change(p);
	p->info = (gstore_progress_info){.pid = MyProcPid,
									 .database = MyDatabaseId,
									 .relation = relation,
									 .user = GetUserId(),
									 .command = command,
									 .started = GetCurrentTimestamp()};
	end_change(p);
}

void
gstore_progress_add(Oid relation, uint64 rows, uint64 bytes)
{
	place *p = own_progress_slot();

	if (owner == NULL || p->info.relation != relation)
		return;
	begin_change(p);
	p->info.rows += rows;
	p->info.bytes += bytes;
	end_change(p);
}

void
gstore_progress_end(const void *statement)
{
	if (owner == statement)
		clear_progress();
}

/* False: nothing is under way there. */
static bool
read_place(place *p, gstore_progress_info *info)
{
	for (int i = 0; i < TRIES_MAX; i++)
	{
		const uint32 before = pg_atomic_read_u32(&p->changes);

		pg_read_barrier();
		*info = p->info;
		pg_read_barrier();
		if (before % 2 == 0 && pg_atomic_read_u32(&p->changes) == before)
			return info->command != GSTORE_NOTHING;
	}
	return false; /* its process ended in the middle of a change */
}

int
gstore_list_progress(gstore_progress_info **out)
{
	int count = 0;

	*out = palloc(sizeof **out * (Size) MaxBackends);
	for (int i = 0; places != NULL && i < MaxBackends; i++)
		if (read_place(&places[i], &(*out)[count]))
			count++;
	return count;
}
