/* Which rows a statement sees, and rows from batches; see scan.h. */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/predicate.h"
#include "storage/proc.h"
#include "utils/memutils.h"

#include "postgres/deleted.h"
#include "postgres/lost.h"
#include "postgres/pending.h"
#include "postgres/scan.h"

/* ---- which rows */

static int
add_row_range(gstore_row_range *row_ranges, int count, const gstore_view *view, uint64 first,
			  uint64 limit)
{
	if (view->empty || limit <= first)
		return count;
	row_ranges[count] = (gstore_row_range){*view, first, limit};
	return count + 1;
}

static void
check_revision(const gstore_view *now, const gstore_view *seen)
{
	if (IsolationUsesXactSnapshot() && now->revision != seen->revision)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent update")));
}

/* Another transaction may have committed between the snapshot and the lock. */
static void
refresh_view_for_writer(Relation relation, Snapshot snapshot, gstore_view *view)
{
	gstore_view seen;

	gstore_look_alive(RelationGetRelid(relation), snapshot, GSTORE_DEAD_NOT_WANTED, &seen);
	gstore_look(RelationGetRelid(relation), NULL, GSTORE_DEAD_ANYWHERE, view);
	check_revision(view, &seen);
	view->outdated = seen.outdated;
}

void
gstore_check_newest(Relation relation, Snapshot snapshot)
{
	gstore_view seen, now;

	gstore_look(RelationGetRelid(relation), snapshot, GSTORE_DEAD_NOT_WANTED, &seen);
	gstore_look(RelationGetRelid(relation), NULL, GSTORE_DEAD_NOT_WANTED, &now);
	check_revision(&now, &seen);
}

/* Tables that the leader's transaction has locked as writers do. A worker's leader changes and locks nothing while that lives. */
static List *
find_leaders_tables(void)
{
	const LOCKMASK writing = LOCKBIT_ON(ShareUpdateExclusiveLock) | LOCKBIT_ON(ShareRowExclusiveLock) |
		LOCKBIT_ON(ExclusiveLock) | LOCKBIT_ON(AccessExclusiveLock);
	const MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	const LockData	   *locks = GetLockStatusData();
	List			   *tables = NIL;

	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *l = &locks->locks[i];

		if (l->locktag.locktag_type == LOCKTAG_RELATION && l->locktag.locktag_field1 == MyDatabaseId &&
			l->leaderPid == MyProc->lockGroupLeader->pid && (l->holdMask & writing) != 0)
			tables = list_append_unique_oid(tables, l->locktag.locktag_field2);
	}
	MemoryContextSwitchTo(old);
	return tables;
}

/*
 * What a transaction has changed is known to its backend alone: a statement of a function that runs in a parallel worker would not
 * see it. The workers of a scan are told by their leader, and do not come here.
 */
static void
check_parallel(Relation relation)
{
	static List *tables = NIL;
	static bool	 found = false;

	if (!IsParallelWorker())
		return;
	if (!found)
		tables = find_leaders_tables();
	found = true;
	if (list_member_oid(tables, RelationGetRelid(relation)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("foreign table \"%s\" cannot be read in a parallel worker after the transaction has changed or locked it",
						RelationGetRelationName(relation)),
				 errhint("Declare the function that reads it PARALLEL RESTRICTED.")));
}

int
gstore_choose_rows(Relation relation, Snapshot snapshot, bool locked, bool all,
				   gstore_row_range row_ranges[GSTORE_ROW_RANGES_MAX])
{
	const CommandId before = snapshot != NULL ? snapshot->curcid : InvalidCommandId;
	gstore_pending *pending = gstore_pending_find(RelationGetRelid(relation));
	const bool		replaced = pending != NULL && gstore_pending_replaced(pending, before);
	gstore_view		view;
	int				count = 0;

	gstore_check_access();
	check_parallel(relation);
	if (pending != NULL && gstore_pending_has_forgotten(pending, before))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("foreign table \"%s\" was rewritten after the snapshot of this statement was taken",
						RelationGetRelationName(relation)),
				 errhint("Read it in a later statement.")));
	if (locked && !replaced)
		refresh_view_for_writer(relation, snapshot, &view);
	else
		gstore_look_alive(RelationGetRelid(relation), snapshot, GSTORE_DEAD_ANYWHERE, &view);
	if (all && !replaced)
		gstore_deleted_provide(RelationGetRelid(relation), &view);
	if (pending != NULL && !replaced)
	{
		gstore_pending_mark_deleted(pending, before, &view);
		gstore_pending_show_types(pending, &view);
	}
	if (!replaced)
	{
		if (snapshot != NULL)
			gstore_check_lost(RelationGetRelid(relation), &view);
		if (!view.empty)
			gstore_check_columns(relation, &view);
		count = add_row_range(row_ranges, count, &view, 0, view.rows);
	}
	if (pending != NULL)
	{
		uint64		first, limit;
		gstore_view own = *gstore_pending_rows(pending, before, &first, &limit);

		if (!own.empty)
		{
			gstore_check_columns(relation, &own);
			own.columns = memcpy(palloc(sizeof(gstore_column) * (Size) Max(own.column_count, 1)),
								 own.columns, sizeof(gstore_column) * (Size) own.column_count);
		}
		own.dead = NULL;
		own.dead_bytes = 0;
		gstore_pending_mark_deleted(pending, before, &own);
		count = add_row_range(row_ranges, count, &own, first, limit);
	}
	return count;
}

/*
 * The whole table is locked first and looked at then; a writer adds its version first and looks for
 * such locks then (pending.c): one of the two finds the other.
 */
void
gstore_note_read(Relation relation, Snapshot snapshot)
{
	TransactionId *xids;
	int			   count;

	if (!CheckForSerializableConflictOutNeeded(relation, snapshot))
		return;
	gstore_check_loaded();
	PredicateLockRelation(relation, snapshot);
	count = gstore_newer_versions(RelationGetRelid(relation), snapshot, &xids);
	for (int i = 0; i < count; i++)
		CheckForSerializableConflictOut(relation, xids[i], snapshot);
	if (count > 0)
		pfree(xids);
}

/* ---- rows from batches */

typedef enum value_kind
{
	VALUE_ABSENT, /* not in the store: NULL */
	VALUE_1,	  /* by value, of so many bytes */
	VALUE_2,
	VALUE_4,
	VALUE_8,
	VALUE_FIXED, /* by reference */
	VALUE_VARLENA,
	VALUE_BARE,			/* not read: NULL by the bitmap, or one that stands for all */
	VALUE_BARE_OFFSETS, /* the same by the offset */
} value_kind;

typedef struct source
{
	int			 index;
	value_kind	 kind;
	uint32		 width;
	const uint8 *values;
	const uint8 *nulls;	 /* NULL: none is NULL */
	const uint8 *bodies; /* where offset 0 would be */
} source;

struct gstore_output
{
	char  *stand_in; /* for bare values: nothing looks at it, but it may be copied with its row */
	uint32 stand_in_width;
	uint64 null_skip; /* bits before the batch's first row */
	int	   count;
	source sources[FLEXIBLE_ARRAY_MEMBER];
};

gstore_output *
gstore_output_create(int columns)
{
	return palloc0(offsetof(gstore_output, sources) + sizeof(source) * (Size) columns);
}

static value_kind
kind_of_value(const gstore_column *column, bool bare)
{
	if (bare)
		return gstore_is_variable(column) && !gstore_is_arrow(column) ? VALUE_BARE_OFFSETS : VALUE_BARE;
	if (gstore_is_variable(column))
		return VALUE_VARLENA;
	if (!column->by_value)
		return VALUE_FIXED;
	switch (column->length)
	{
		case 1:
			return VALUE_1;
		case 2:
			return VALUE_2;
		case 4:
			return VALUE_4;
		default:
			return VALUE_8;
	}
}

/* As a value of variable length it is empty. */
static void
ensure_null_value(gstore_output *output, uint32 width)
{
	if (width <= output->stand_in_width)
		return;
	output->stand_in = palloc0(width);
	output->stand_in_width = width;
	SET_VARSIZE(output->stand_in, VARHDRSZ);
}

void
gstore_output_begin(gstore_output *output, const gstore_batch *batch, const gstore_view *view,
					const int *indexes, int count)
{
	output->null_skip = batch->first - batch->nulls_from;
	output->count = count;
	for (int i = 0; i < count; i++)
	{
		const int index = indexes[i];
		source	 *s = &output->sources[i];

		*s = (source){.index = index};
		if (index >= view->column_count || view->columns[index].dropped)
			continue;
		s->kind = kind_of_value(&view->columns[index], bms_is_member(index + 1, batch->bare));
		s->width = gstore_width(&view->columns[index]);
		if (s->kind >= VALUE_BARE)
			ensure_null_value(output, Max(s->width, VARHDRSZ));
		s->values = batch->columns[index].values;
		s->nulls = batch->columns[index].nulls;
		if (batch->columns[index].bodies != NULL)
			s->bodies = batch->columns[index].bodies - batch->columns[index].bodies_from;
	}
}

void
gstore_output_fill(const gstore_output *output, uint64 place, TupleTableSlot *slot)
{
	const uint64 bit = place + output->null_skip;

	for (int i = 0; i < output->count; i++)
	{
		const source *s = &output->sources[i];
		Datum		 *value = &slot->tts_values[s->index];
		bool		 *null = &slot->tts_isnull[s->index];

		*null = s->nulls != NULL && (s->nulls[bit / 8] >> (bit % 8) & 1) == 0;
		switch (s->kind)
		{
			case VALUE_ABSENT:
				*null = true;
				break;
			case VALUE_1:
				*value = CharGetDatum(((const char *) s->values)[place]);
				break;
			case VALUE_2:
				*value = Int16GetDatum(((const int16 *) s->values)[place]);
				break;
			case VALUE_4:
				*value = Int32GetDatum(((const int32 *) s->values)[place]);
				break;
			case VALUE_8:
				*value = Int64GetDatum(((const int64 *) s->values)[place]);
				break;
			case VALUE_FIXED:
				*value = PointerGetDatum(s->values + place * s->width);
				break;
			case VALUE_VARLENA:
			{
				const uint64 offset = ((const uint64 *) s->values)[place];

				*null = offset == 0;
				*value = PointerGetDatum(s->bodies + offset);
				break;
			}
			case VALUE_BARE:
				*value = PointerGetDatum(output->stand_in);
				break;
			case VALUE_BARE_OFFSETS:
				*null = ((const uint64 *) s->values)[place] == 0;
				*value = PointerGetDatum(output->stand_in);
		}
	}
}

/* ---- whole tables */

struct gstore_walk
{
	MemoryContext			context;
	const gstore_row_range *row_ranges;
	int						count, at;
	uint64					row; /* next */
	Bitmapset			   *wanted;
	int					   *indexes;
	int						index_count;
	gstore_batch		   *batch;
	gstore_output		   *output;
	gstore_deleted		   *deleted;
	const uint8			   *dead; /* of the batch */
};

gstore_walk *
gstore_walk_begin(Relation relation, const gstore_row_range *row_ranges, int count)
{
	const TupleDesc desc = RelationGetDescr(relation);
	MemoryContext	context = AllocSetContextCreate(CurrentMemoryContext, "gstore walk",
													ALLOCSET_DEFAULT_SIZES);
	MemoryContext	old = MemoryContextSwitchTo(context);
	gstore_walk	   *walk = palloc0(sizeof *walk);

	walk->context = context;
	walk->row_ranges = row_ranges;
	walk->count = count;
	walk->row = count > 0 ? row_ranges[0].first : 0;
	walk->indexes = palloc(sizeof(int) * (Size) Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped)
		{
			walk->indexes[walk->index_count++] = i;
			walk->wanted = bms_add_member(walk->wanted, i + 1);
		}
	walk->batch = gstore_batch_create(desc->natts);
	walk->output = gstore_output_create(desc->natts);
	walk->deleted = gstore_deleted_create();
	MemoryContextSwitchTo(old);
	return walk;
}

bool
gstore_walk_next(gstore_walk *walk, TupleTableSlot *slot)
{
	ExecClearTuple(slot);
	while (walk->at < walk->count)
	{
		const gstore_row_range *s = &walk->row_ranges[walk->at];
		const uint64			row = walk->row;

		if (row >= s->limit)
		{
			walk->at++;
			walk->row = walk->at < walk->count ? walk->row_ranges[walk->at].first : 0;
			walk->batch->count = 0;
			continue;
		}
		if (row >= walk->batch->first + walk->batch->count || walk->batch->count == 0)
		{
			CHECK_FOR_INTERRUPTS();
			(void) gstore_read(walk->batch, &s->view, walk->wanted, row, s->limit - row);
			walk->dead = gstore_deleted_bits(walk->deleted, &s->view, row, walk->batch->count);
			gstore_output_begin(walk->output, walk->batch, &s->view, walk->indexes, walk->index_count);
		}
		walk->row++;
		if (gstore_is_deleted(walk->dead, walk->batch->first, row))
			continue;
		memset(slot->tts_isnull, true, sizeof(bool) * (Size) slot->tts_tupleDescriptor->natts);
		gstore_output_fill(walk->output, row - walk->batch->first, slot);
		ExecStoreVirtualTuple(slot);
		return true;
	}
	return false;
}

void
gstore_walk_end(gstore_walk *walk)
{
	MemoryContextDelete(walk->context);
}
