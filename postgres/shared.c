/* See shared.h. */
#include "postgres.h"

#include "access/transam.h"
#include "access/tupmacs.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "postgres/arrow.h"
#include "postgres/lost.h"
#include "postgres/progress.h"
#include "postgres/shared.h"
#include "postgres/token.h"

#define AREA_BYTES	 (256 * 1024) /* of dynamic shared memory that is there from the start */
#define WINDOW_ALIGN 4096

gstore_shared	*gstore;
static void		*area_place;
static uint8	*windows_place;
static dsa_area *area;

static shmem_request_hook_type previous_request;
static shmem_startup_hook_type previous_startup;

/* ---- set-up */

static Size
shared_size(void)
{
	return MAXALIGN(offsetof(gstore_shared, windows) + sizeof(gstore_window) * (Size) gstore_windows);
}

static Size
windows_size(void)
{
	return (Size) gstore_windows * gstore_window_kb * 1024 + WINDOW_ALIGN;
}

static void
gstore_shmem_request(void)
{
	if (previous_request != NULL)
		previous_request();
	RequestAddinShmemSpace(shared_size() + windows_size() + AREA_BYTES + gstore_progress_size() +
						   gstore_directory_size());
	RequestNamedLWLockTranche("gstore_fdw", 3);
}

static void
init_shared_memory(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche("gstore_fdw");
	uint64		  run;

	memset(gstore, 0, shared_size());
	gstore->lock = &locks[0].lock;
	gstore->record_lock = &locks[2].lock;
	/* Names of one run of the server are not names of another: the clock may be set back between them. */
	if (!pg_strong_random(&run, sizeof run))
		ereport(FATAL, (errmsg("gstore_fdw: cannot read random bytes")));
	pg_atomic_init_u64(&gstore->next_store, run >> 21 << 20);
	pg_atomic_init_u64(&gstore->next_turn, GSTORE_NO_TURN + 1);
	ConditionVariableInit(&gstore->ready_changed);
	ConditionVariableInit(&gstore->reloaded);
	ConditionVariableInit(&gstore->window_freed);
	SpinLockInit(&gstore->windows_lock);
	for (int i = 0; i < gstore_windows; i++)
		gstore->free[gstore->free_count++] = (uint16) i;
	if (sem_init(&gstore->queue.posted, 1, 0) != 0)
		ereport(FATAL, (errmsg("gstore_fdw: cannot make a semaphore: %m")));
}

static void
gstore_shmem_startup(void)
{
	void *progress;
	bool  found, known;

	if (previous_startup != NULL)
		previous_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	gstore = ShmemInitStruct("gstore_fdw", shared_size(), &known);
	if (!known)
		init_shared_memory();
	windows_place = ShmemInitStruct("gstore_fdw windows", windows_size(), &found);
	area_place = ShmemInitStruct("gstore_fdw area", AREA_BYTES, &found);
	if (!found)
	{
		area = dsa_create_in_place(area_place, AREA_BYTES,
								   GetNamedLWLockTranche("gstore_fdw")[1].lock.tranche, NULL);
		dsa_pin(area);
		dsa_detach(area);
		area = NULL;
	}
	progress = ShmemInitStruct("gstore_fdw progress", gstore_progress_size(), &found);
	gstore_progress_attach(progress, found);
	gstore_directory_attach();
	if (!known)
		gstore_read_record();
	LWLockRelease(AddinShmemInitLock);
}

void
gstore_shared_init(void)
{
	previous_request = shmem_request_hook;
	shmem_request_hook = gstore_shmem_request;
	previous_startup = shmem_startup_hook;
	shmem_startup_hook = gstore_shmem_startup;
}

uint8 *
gstore_window_bytes(uint32 window)
{
	return (uint8 *) TYPEALIGN(WINDOW_ALIGN, windows_place) + (Size) window * gstore_window_kb * 1024;
}

dsa_area *
gstore_area(void)
{
	if (area == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		area = dsa_attach_in_place(area_place, NULL);
		dsa_pin_mapping(area);
		MemoryContextSwitchTo(old);
	}
	return area;
}

void *
gstore_at(dsa_pointer place)
{
	return DsaPointerIsValid(place) ? dsa_get_address(gstore_area(), place) : NULL;
}

void
gstore_wake_worker(void)
{
	Latch *latch = gstore->worker_latch;

	if (latch != NULL)
		SetLatch(latch);
}
