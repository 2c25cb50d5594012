/* See shared.h. */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "postgres/shared.h"

#define DSA_BYTES	 (256 * 1024) /* of dynamic shared memory that is there from the start */
#define WINDOW_ALIGN 4096

gstore_shared	*gstore;
static void		*dsa_place;
static uint8	*windows_place;
static dsa_area *dsa;

/* ---- set-up */

static Size
head_size(void)
{
	return MAXALIGN(offsetof(gstore_shared, windows) + sizeof(gstore_window) * (Size) gstore_windows);
}

static Size
windows_size(void)
{
	return (Size) gstore_windows * gstore_window_kb * 1024 + WINDOW_ALIGN;
}

Size
gstore_shared_size(void)
{
	return head_size() + windows_size() + DSA_BYTES;
}

static void
init_shared_memory(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche(GSTORE_TRANCHE);
	uint64		  run;

	memset(gstore, 0, head_size());
	gstore->lock = &locks[0].lock;
	gstore->record_lock = &locks[2].lock;
	/* Names of one run of the server are not names of another: the clock may be set back between them. */
	if (!pg_strong_random(&run, sizeof run))
		ereport(FATAL, (errmsg("gstore_fdw: cannot read random bytes")));
	pg_atomic_init_u64(&gstore->next_store, run >> 21 << 20);
	pg_atomic_init_u64(&gstore->next_writer_number, GSTORE_NO_WRITER + 1);
	ConditionVariableInit(&gstore->ready_changed);
	ConditionVariableInit(&gstore->reloaded);
	ConditionVariableInit(&gstore->window_freed);
	SpinLockInit(&gstore->windows_lock);
	for (int i = 0; i < gstore_windows; i++)
		gstore->free[gstore->free_count++] = (uint16) i;
	if (sem_init(&gstore->queue.posted, 1, 0) != 0)
		ereport(FATAL, (errmsg("gstore_fdw: cannot make a semaphore: %m")));
}

bool
gstore_shared_attach(void)
{
	bool known, found;

	gstore = ShmemInitStruct("gstore_fdw", head_size(), &known);
	if (!known)
		init_shared_memory();
	windows_place = ShmemInitStruct("gstore_fdw windows", windows_size(), &found);
	dsa_place = ShmemInitStruct("gstore_fdw dsa", DSA_BYTES, &found);
	if (!found)
	{
		dsa = dsa_create_in_place(dsa_place, DSA_BYTES,
								  GetNamedLWLockTranche(GSTORE_TRANCHE)[1].lock.tranche, NULL);
		dsa_pin(dsa);
		dsa_detach(dsa);
		dsa = NULL;
	}
	return known;
}

uint8 *
gstore_window_bytes(uint32 window)
{
	return (uint8 *) TYPEALIGN(WINDOW_ALIGN, windows_place) + (Size) window * gstore_window_kb * 1024;
}

dsa_area *
gstore_dsa(void)
{
	if (dsa == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		dsa = dsa_attach_in_place(dsa_place, NULL);
		dsa_pin_mapping(dsa);
		MemoryContextSwitchTo(old);
	}
	return dsa;
}

void *
gstore_at(dsa_pointer place)
{
	return DsaPointerIsValid(place) ? dsa_get_address(gstore_dsa(), place) : NULL;
}

void
gstore_wake_worker(void)
{
	Latch *latch = gstore->worker_latch;

	if (latch != NULL)
		SetLatch(latch);
}

const char *
gstore_keeper_hint(void)
{
	if (gstore->problem[0] == '\0')
		return "It is being started: repeat the statement in a few seconds.";
	if (gstore->no_driver)
		return "Install the NVIDIA driver, or for the software GPU the package gvmem-softgpu. "
			   "It is tried again without a restart.";
	return gstore_keeper_path[0] != '\0'
		? "A gvmem-keeper must listen at that socket and let in this server's user, "
		  "by its --socket-mode; or change gstore_fdw.keeper and restart the server."
		: "It is tried again without a restart. If a budget is the reason, change "
		  "gstore_fdw.device_memory or gstore_fdw.host_memory and restart the server.";
}
