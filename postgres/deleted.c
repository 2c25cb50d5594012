/*
 * Bitmaps of deleted rows on the device; see deleted.h.
 *
 * One process at a time writes a bitmap of a table, under a lock that nobody waits for. It takes the first place between the
 * bitmaps that versions have, and the version has it when it is written. So one that is cancelled or ends leaves nothing
 * behind, but perhaps a write that a service thread carries out later: the next write to the store waits for that, as ever.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "catalog/pg_foreign_table.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/memutils.h"

#include <gvmem/status.h>

#include "postgres/deleted.h"
#include "postgres/window.h"

/* Of fewer rows to copy the bits from the directory costs less than to read them from the device. */
#define ROWS_LEAST 8192
/* At a time, of a store: snapshots may hold versions for long, whose bitmaps nobody will read. */
#define BITMAPS_MAX	 4
#define BITMAP_ALIGN 64

/* Read at a time: twice as much each time while rows follow each other. */
#define READ_BYTES_LEAST 1024
#define READ_BYTES_MOST	 (128 * 1024)

/* ---- writing */

static bool
lock_bitmaps(Oid relation, LOCKTAG *tag)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, ForeignTableRelationId, relation, 2);
	return LockAcquire(tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

static bool
overlaps(const gstore_version *v, dsa_pointer store, uint64 at, uint64 bytes)
{
	return v->store == store && v->deleted_bytes > 0 && v->deleted_at < at + bytes &&
		at < v->deleted_at + v->deleted_bytes;
}

/* The first place of so many bytes that no version's bitmap has. False: there are as many as there may be. The lock is held. */
static bool
find_place(Oid relation, dsa_pointer store, uint64 bytes, uint64 *at)
{
	const gstore_table *table = gstore_find_table(relation, false);
	int					count = 0;
	bool				moved;

	for (const gstore_version *v = gstore_at(table->newest); v != NULL; v = gstore_at(v->older))
		count += v->store == store && v->deleted_bytes > 0;
	*at = 0;
	do
	{
		moved = false;
		for (const gstore_version *v = gstore_at(table->newest); v != NULL; v = gstore_at(v->older))
			if (overlaps(v, store, *at, bytes))
			{
				*at = TYPEALIGN64(BITMAP_ALIGN, v->deleted_at + v->deleted_bytes);
				moved = true;
			}
	} while (moved);
	return count < BITMAPS_MAX;
}

/* False: the bitmap is there already, or cannot be. */
static bool
choose_place(Oid relation, gstore_view *view, uint64 bytes, uint64 *at)
{
	const gstore_version *version;
	bool				  found = false;

	LWLockAcquire(gstore->lock, LW_SHARED);
	version = gstore_find_version(relation, view);
	if (version != NULL && version->deleted_bytes > 0)
	{
		view->deleted_at = version->deleted_at;
		view->deleted_bytes = version->deleted_bytes;
	}
	else if (version != NULL)
		found = find_place(relation, view->store, bytes, at);
	LWLockRelease(gstore->lock);
	return found;
}

/* From now on the version has it, and so has the view. */
static void
note_bitmap(Oid relation, gstore_view *view, uint64 at, uint64 bytes)
{
	gstore_version *version;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	version = gstore_find_version(relation, view);
	if (version != NULL)
	{
		version->deleted_at = view->deleted_at = at;
		version->deleted_bytes = view->deleted_bytes = bytes;
	}
	LWLockRelease(gstore->lock);
}

static bool
write_bitmap(const gstore_view *view, uint64 at, uint64 bytes)
{
	const gstore_piece piece = {
		.part = GSTORE_DELETED, .offset_bytes = at, .bytes = bytes, .local = view->dead};
	gstore_answer answer;

	if (gstore_try_transfer(GSTORE_WRITE, &view->name, NULL, &piece, 1, &answer))
		return true;
	ereport(DEBUG1, (errmsg_internal("cannot keep deleted rows in GPU memory: %s", answer.text)));
	return false;
}

void
gstore_deleted_provide(Oid relation, gstore_view *view)
{
	const uint64 bytes = (view->rows + 7) / 8;
	LOCKTAG		 tag;
	uint64		 at;

	/* A parallel worker's lock would not keep out others of its group; who left a write is not waited for. */
	if (view->empty || view->dead == NULL || view->deleted_bytes > 0 || view->rows < ROWS_LEAST ||
		IsParallelWorker() || gstore_has_left_change(&view->name) || !lock_bitmaps(relation, &tag))
		return;
	if (choose_place(relation, view, bytes, &at) && write_bitmap(view, at, bytes))
		note_bitmap(relation, view, at, bytes);
	LockRelease(&tag, ExclusiveLock, false);
	if (view->deleted_bytes > 0)
	{
		pfree(view->dead);
		view->dead = NULL;
		view->dead_bytes = 0;
	}
}

/* ---- reading */

struct gstore_deleted
{
	MemoryContext	   context;
	const gstore_view *view;		 /* whose bits are here; NULL: nobody's */
	uint64			   first, limit; /* bytes of its bitmap */
	uint64			   at_a_time;
	uint8			  *bits; /* of READ_BYTES_MOST, or more where a batch has more */
	uint64			   capacity;
	uint64			   moved;
};

gstore_deleted *
gstore_deleted_create(void)
{
	gstore_deleted *deleted = palloc0(sizeof *deleted);

	deleted->context = CurrentMemoryContext;
	return deleted;
}

/* So that [first, limit) is here. */
static void
read_deleted_bits(gstore_deleted *d, const gstore_view *view, uint64 first, uint64 limit)
{
	const bool	 follows = d->view == view && first >= d->first && first <= d->limit + d->at_a_time;
	gstore_piece piece = {.part = GSTORE_DELETED, .offset_bytes = view->deleted_at + first};

	d->view = NULL;
	d->at_a_time = follows ? Min(2 * d->at_a_time, READ_BYTES_MOST) : READ_BYTES_LEAST;
	limit = Min(Max(limit, first + d->at_a_time), view->deleted_bytes);
	if (d->capacity < limit - first)
	{
		if (d->bits != NULL)
			pfree(d->bits);
		d->bits = NULL;
		d->capacity = Max(limit - first, READ_BYTES_MOST);
		d->bits = MemoryContextAlloc(d->context, d->capacity);
	}
	piece.bytes = limit - first;
	piece.local = d->bits;
	gstore_transfer(GSTORE_READ, &view->name, &piece, 1);
	for (uint64 i = first; i < Min(limit, view->dead_bytes); i++)
		d->bits[i - first] |= view->dead[i];
	d->view = view;
	d->first = first;
	d->limit = limit;
	d->moved += limit - first;
}

const uint8 *
gstore_deleted_bits(gstore_deleted *d, const gstore_view *view, uint64 first, uint64 count)
{
	const uint64 from = first / 8, to = (first + count + 7) / 8;

	if (view->deleted_bytes == 0)
		return view->dead != NULL ? view->dead + from : NULL;
	if (d->view != view || from < d->first || to > d->limit)
		read_deleted_bits(d, view, from, to);
	return d->bits + (from - d->first);
}

uint64
gstore_deleted_moved(gstore_deleted *d)
{
	const uint64 moved = d->moved;

	d->moved = 0;
	return moved;
}
