/* See whole.h. */
#include "postgres.h"

#include "executor/tuptable.h"
#include "utils/rel.h"

#include "postgres/deleted.h"
#include "postgres/pending.h"
#include "postgres/scan.h"
#include "postgres/whole.h"

/* ---- the rows: one store that has all rows which the snapshot sees, and a bitmap of those that it does not see */

static void
mark_range(gstore_view *view, uint64 first, uint64 limit)
{
	if (first >= limit)
		return;
	gstore_view_delete(view, limit - 1); /* the bitmap grows */
	for (; first < limit && first % 8 != 0; first++)
		gstore_view_delete(view, first);
	if (first / 8 < limit / 8)
		memset(view->dead + first / 8, 0xff, limit / 8 - first / 8);
	for (first = Max(first, limit / 8 * 8); first < limit; first++)
		gstore_view_delete(view, first);
}

/*
 * Rows that are committed, and the transaction's own ones behind them, of the same store. Between them may be those of others
 * that the snapshot does not see.
 */
static void
join_ranges(const gstore_row_range *ranges, int count, gstore_view *out)
{
	const gstore_row_range *last = &ranges[count - 1];
	uint64					seen = 0;

	*out = last->view;
	out->rows = last->limit;
	if (count > 1)
	{
		out->dead = ranges[0].view.dead;
		out->dead_bytes = ranges[0].view.dead_bytes;
		out->deleted_at = ranges[0].view.deleted_at;
		out->deleted_bytes = ranges[0].view.deleted_bytes;
		seen = ranges[0].limit;
		for (uint64 row = last->first; last->view.dead != NULL && row < last->limit; row++)
			if (gstore_view_is_dead(&last->view, row))
				gstore_view_delete(out, row);
	}
	mark_range(out, seen, last->first);
}

/*
 * A snapshot that is older than another transaction's TRUNCATE or rewriting sees rows of the store before it, beside own ones
 * in the new store: all are written to a third one, which goes with the transaction.
 */
static void
copy_ranges(Relation relation, const gstore_row_range *ranges, int count, gstore_view *out)
{
	gstore_pending *pending = gstore_pending_find(RelationGetRelid(relation));
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsVirtual);
	gstore_walk	   *walk = gstore_walk_begin(relation, ranges, count);
	gstore_writer  *writer;

	*out = (gstore_view){.arrow = ranges[count - 1].view.arrow,
						 .column_count = RelationGetDescr(relation)->natts};
	out->columns = gstore_describe(relation, out->arrow);
	out->store = gstore_make_scratch(pending, out->arrow, &out->name);
	writer = gstore_writer_create(RelationGetDescr(relation), out->columns);
	while (gstore_walk_next(walk, slot))
		gstore_write_row(writer, out, slot);
	gstore_flush(writer, out);
	gstore_writer_free(writer);
	gstore_walk_end(walk);
	ExecDropSingleTupleTableSlot(slot);
}

static bool
are_of_two_stores(const gstore_row_range *ranges, int count)
{
	return count == 2 && ranges[0].view.store != ranges[1].view.store;
}

bool
gstore_whole_join(const gstore_row_range *ranges, int count, gstore_view *out)
{
	gstore_row_range own[GSTORE_ROW_RANGES_MAX];

	if (are_of_two_stores(ranges, count))
		return false;
	for (int i = 0; i < count; i++) /* bitmaps of its own: they are written to */
	{
		own[i] = ranges[i];
		if (own[i].view.dead != NULL)
			own[i].view.dead = memcpy(
				MemoryContextAllocHuge(CurrentMemoryContext, own[i].view.dead_bytes),
				own[i].view.dead, own[i].view.dead_bytes);
	}
	join_ranges(own, count, out);
	return true;
}

gstore_whole
gstore_whole_choose(Relation relation, Snapshot snapshot, bool copied, gstore_view *out)
{
	gstore_row_range ranges[GSTORE_ROW_RANGES_MAX];
	const int		 count = gstore_choose_rows(relation, snapshot, false, true, ranges);

	*out = (gstore_view){0};
	if (count > 0 && !are_of_two_stores(ranges, count))
		join_ranges(ranges, count, out);
	else if (count > 0 && copied)
		copy_ranges(relation, ranges, count, out);
	else if (count > 0)
		return GSTORE_WHOLE_TWO_STORES;
	return out->rows > 0 ? GSTORE_WHOLE_ROWS : GSTORE_WHOLE_NONE;
}

/* ---- what the caller is given */

/* Adds the deleted rows that are on the device to the bitmap of the view: they are few. */
static void
read_deleted(gstore_view *view)
{
	const uint64 rows = Min(view->rows, 8 * view->deleted_bytes);
	const uint64 bytes = Max(view->deleted_bytes, view->dead_bytes);
	uint8		*all = MemoryContextAllocExtended(CurrentMemoryContext, bytes,
												  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	if (view->dead_bytes > 0)
		memcpy(all, view->dead, view->dead_bytes);
	/* With the bits of view->dead, as far as it reaches. */
	memcpy(all, gstore_deleted_bits(gstore_deleted_create(), view, 0, rows), (rows + 7) / 8);
	view->dead = all;
	view->dead_bytes = bytes;
	view->deleted_bytes = 0; /* they are in it, also for the next time */
}

bool
gstore_whole_export(Relation relation, gstore_view *view, gstore_export_kind kind,
					gstore_call_table *out, gstore_answer *refused)
{
	const gstore_pending *pending = gstore_pending_find(RelationGetRelid(relation));
	const bool			  own = pending != NULL && gstore_pending_has_made(pending, view->store);

	memset(out, 0, sizeof *out);
	out->token = gstore_export_rows(relation, view, own, kind, refused);
	if (out->token == NULL)
		return false;
	out->rows = view->rows;
	if (gstore_links_deleted(view))
	{
		out->deleted_at = view->deleted_at;
		out->deleted_bytes = view->deleted_bytes;
	}
	else if (view->deleted_bytes > 0)
		read_deleted(view);
	out->dead = view->dead;
	out->dead_bytes = view->dead_bytes;
	return true;
}
