/*
 * What the current transaction has changed; see pending.h.
 *
 * Changes are undone by going back to marks: numbers of rows, deletions and commands at the time a
 * subtransaction first changed the table. What was written to the store behind the mark is overwritten, or
 * its memory given back when the transaction ends. A writer has a number, another one after it went back, by which
 * the keeper's side knows what lies behind.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "postgres/lost.h"
#include "postgres/memory.h"
#include "postgres/option.h"
#include "postgres/pending_state.h"

gstore_pending		*gstore_pendings;
static MemoryContext context;

gstore_pending *
gstore_pending_find(Oid relation)
{
	gstore_pending *p = gstore_pendings;

	while (p != NULL && p->relation != relation)
		p = p->next;
	return p;
}

static gstore_column *
copy_columns(const gstore_column *columns, int count)
{
	gstore_column *copy = palloc(sizeof(gstore_column) * (Size) Max(count, 1));

	if (count > 0)
		memcpy(copy, columns, sizeof(gstore_column) * (Size) count);
	return copy;
}

/* Before the first change at a nesting level: what to go back to. */
static void
save_state(gstore_pending *p)
{
	const int	  level = GetCurrentTransactionNestLevel();
	MemoryContext old;
	save		 *s;

	if (level == 1 || (p->saves != NULL && p->saves->level >= level))
		return;
	old = MemoryContextSwitchTo(p->context);
	if (p->writer != NULL) /* what outer levels staged must not go with the inner one */
		gstore_flush(p->writer, &p->state);
	s = palloc(sizeof *s);
	*s = (save){.outer = p->saves,
				.level = level,
				.state = p->state,
				.own_store = p->own_store,
				.replaced = p->replaced,
				.retyped = p->retyped,
				.replaced_command = p->replaced_command,
				.base_rows = p->base_rows,
				.mark_count = p->mark_count,
				.first_mark = p->first_mark,
				.deletion_count = p->deletion_count,
				.first_deletion = p->first_deletion,
				.deletion_mark_count = p->deletion_mark_count,
				.changes = p->changes};
	s->state.columns = copy_columns(p->state.columns, p->state.column_count);
	p->saves = s;
	MemoryContextSwitchTo(old);
}

void
gstore_pending_end_writer(gstore_pending *p)
{
	if (p->writer != NULL)
		gstore_writer_free(p->writer);
	p->writer = NULL;
}

void
gstore_pending_follow(gstore_pending *p, Relation relation)
{
	const bool	  was_arrow = p->arrow;
	MemoryContext old;

	p->describe = true;
	p->device = gstore_table_device(p->relation);
	p->arrow = gstore_table_is_arrow(p->relation);
	if (p->arrow == was_arrow && equalTupleDescs(p->desc, RelationGetDescr(relation)))
		return;
	old = MemoryContextSwitchTo(p->context);
	if (p->writer != NULL)
		gstore_flush(p->writer, &p->state);
	gstore_pending_end_writer(p);
	FreeTupleDesc(p->desc);
	p->desc = CreateTupleDescCopyConstr(RelationGetDescr(relation));
	MemoryContextSwitchTo(old);
}

void
gstore_pending_keep_lock(Relation relation)
{
	const ResourceOwner owner = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	PG_TRY();
	{
		LockRelation(relation, ShareUpdateExclusiveLock);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = owner;
	}
	PG_END_TRY();
}

gstore_pending *
gstore_pending_begin(Relation relation)
{
	gstore_pending *p = gstore_pending_find(RelationGetRelid(relation));
	MemoryContext	own, old;

	if (p != NULL)
	{
		gstore_pending_follow(p, relation);
		return p;
	}
	gstore_check_access();
	gstore_pending_keep_lock(relation);
	if (context == NULL)
		context = AllocSetContextCreate(TopTransactionContext, "gstore pending",
										ALLOCSET_DEFAULT_SIZES);
	own = AllocSetContextCreate(context, "gstore changes", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(own);
	p = palloc0(sizeof *p);
	p->relation = RelationGetRelid(relation);
	p->device = gstore_table_device(p->relation);
	p->arrow = gstore_table_is_arrow(p->relation);
	p->level = GetCurrentTransactionNestLevel();
	p->context = own;
	p->desc = CreateTupleDescCopyConstr(RelationGetDescr(relation));
	gstore_look_alive(p->relation, NULL, GSTORE_DEAD_NOT_WANTED, &p->state);
	p->base_rows = p->state.rows;
	p->state.name.writer_number = p->writer_number = gstore_next_writer_number();
	p->describe = true;
	p->next = gstore_pendings;
	gstore_pendings = p;
	MemoryContextSwitchTo(old);
	return p;
}

/* ---- changes */

/*
 * The table's columns as they are now: those that it has got since are NULL in the rows that are
 * there; of the others, new rows are compressed as is wanted now.
 */
static void
complete_columns(gstore_pending *p)
{
	const int	   natts = p->desc->natts, before = p->state.column_count;
	MemoryContext  scratch, old;
	Relation	   relation;
	gstore_column *now;

	if (!p->describe)
		return;
	scratch = AllocSetContextCreate(CurTransactionContext, "gstore columns", ALLOCSET_SMALL_SIZES);
	relation = RelationIdGetRelation(p->relation);
	old = MemoryContextSwitchTo(scratch);
	now = gstore_describe(relation, p->arrow);
	MemoryContextSwitchTo(old);
	RelationClose(relation);
	for (int i = 0; i < Min(before, natts); i++)
	{
		gstore_column *column = &p->state.columns[i];

		column->left_over = now[i].dropped && (column->left_over || !column->dropped);
		column->dropped = now[i].dropped;
		column->was_pglz |= column->pglz;
		column->pglz = now[i].pglz;
		if (!now[i].dropped)
		{
			column->type = now[i].type;
			column->typmod = now[i].typmod;
			column->precision = now[i].precision;
		}
	}
	if (before < natts)
	{
		gstore_column *columns = copy_columns(now, natts);

		if (before > 0)
			memcpy(columns, p->state.columns, sizeof(gstore_column) * (Size) before);
		if (p->state.columns != NULL)
			pfree(p->state.columns);
		p->state.columns = columns;
		p->state.column_count = natts;
		gstore_fill_new_columns(&p->state, before);
	}
	MemoryContextDelete(scratch);
	p->describe = false;
}

void
gstore_pending_retype(Relation relation)
{
	gstore_pending *p = gstore_pending_begin(relation);
	MemoryContext	old = MemoryContextSwitchTo(p->context);

	save_state(p);
	complete_columns(p);
	p->retyped = true;
	MemoryContextSwitchTo(old);
}

void
gstore_pending_show_types(const gstore_pending *p, gstore_view *view)
{
	if (!p->retyped || view->empty || view->store != p->state.store)
		return;
	for (int i = 0; i < Min(view->column_count, p->state.column_count); i++)
	{
		view->columns[i].type = p->state.columns[i].type;
		view->columns[i].typmod = p->state.columns[i].typmod;
		view->columns[i].precision = p->state.columns[i].precision;
	}
}

static void
need_device(const gstore_pending *p)
{
	if (p->device >= gstore->device_count)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE), errmsg("there is no GPU %d", p->device),
				 errhint("Set the table's option \"pinning\" to one that "
						 "gstore_fdw_keeper_info shows.")));
}

/* One that the transaction references until it ends. */
static dsa_pointer
make_store(gstore_pending *p, bool arrow, gstore_store_name *name)
{
	p->stores = p->stores == NULL
		? MemoryContextAlloc(p->context, sizeof *p->stores)
		: repalloc(p->stores, sizeof *p->stores * (Size) (p->store_count + 1));
	p->stores[p->store_count] = (made_store){gstore_new_store(p->relation, p->device, arrow, name),
											 GetCurrentTransactionNestLevel()};
	return p->stores[p->store_count++].store;
}

dsa_pointer
gstore_make_scratch(gstore_pending *p, bool arrow, gstore_store_name *name)
{
	dsa_pointer store;

	gstore_wait_ready();
	need_device(p);
	store = make_store(p, arrow, name);
	name->writer_number = p->writer_number;
	return store;
}

static bool
needs_store(const gstore_pending *p, dsa_pointer store)
{
	bool needs = p->state.store == store;

	for (const save *s = p->saves; s != NULL; s = s->outer)
		needs |= s->state.store == store;
	return needs;
}

void
gstore_pending_release_store(gstore_pending *p, dsa_pointer store)
{
	if (!DsaPointerIsValid(store) || needs_store(p, store))
		return;
	for (int i = 0; i < p->store_count; i++)
		if (p->stores[i].store == store)
		{
			p->stores[i] = p->stores[--p->store_count];
			gstore_release_store(store);
			return;
		}
}

bool
gstore_pending_has_made(const gstore_pending *p, dsa_pointer store)
{
	for (int i = 0; i < p->store_count; i++)
		if (p->stores[i].store == store)
			return true;
	return false;
}

static void
need_store(gstore_pending *p)
{
	if (p->state.empty)
	{
		gstore_wait_ready();
		need_device(p);
		gstore_pending_end_writer(p); /* columns may have other options than those of the store before */
		p->state.store = make_store(p, p->arrow, &p->state.name);
		p->state.name.writer_number = p->writer_number;
		p->state.arrow = p->arrow;
		p->own_store = true;
		p->state.empty = p->state.lost = false;
		p->state.rows = p->state.live_rows = p->base_rows = 0;
		p->state.column_count = 0;
		p->describe = true;
	}
	complete_columns(p);
}

static void
mark_command(gstore_pending *p)
{
	const CommandId now = GetCurrentCommandId(true);

	if (p->mark_count > p->first_mark && p->marks[p->mark_count - 1].command == now)
		return;
	if (p->mark_count == p->mark_capacity)
	{
		p->mark_capacity = Max(16, 2 * p->mark_capacity);
		p->marks = p->marks == NULL
			? palloc(sizeof(command_mark) * (Size) p->mark_capacity)
			: repalloc_huge(p->marks, sizeof(command_mark) * (Size) p->mark_capacity);
	}
	p->marks[p->mark_count++] = (command_mark){now, p->state.rows};
}

gstore_view *
gstore_append_begin(gstore_pending *p)
{
	MemoryContext old;

	save_state(p);
	p->wrote = true;
	old = MemoryContextSwitchTo(p->context);
	need_store(p);
	if (p->writer != NULL)
		gstore_flush(p->writer, &p->state);
	mark_command(p);
	MemoryContextSwitchTo(old);
	return &p->state;
}

void
gstore_insert(gstore_pending *p, TupleTableSlot *slot)
{
	MemoryContext old;

	save_state(p);
	p->wrote = true;
	old = MemoryContextSwitchTo(p->context);
	need_store(p);
	if (p->writer == NULL)
		p->writer = gstore_writer_create(p->desc, p->state.columns);
	mark_command(p);
	MemoryContextSwitchTo(old);
	gstore_write_row(p->writer, &p->state, slot);
}

/* For one more deletion and its mark. What needs memory comes first, so that a deletion is noted wholly or not. */
static void
allocate_deletion(gstore_pending *p)
{
	if (p->deletion_mark_count == p->deletion_mark_capacity)
	{
		const int  capacity = Max(16, 2 * p->deletion_mark_capacity);
		const Size bytes = sizeof(deletion_mark) * (Size) capacity;

		p->deletion_marks = p->deletion_marks == NULL ? MemoryContextAllocHuge(p->context, bytes)
													  : repalloc_huge(p->deletion_marks, bytes);
		p->deletion_mark_capacity = capacity;
	}
	if (p->deletion_count == p->deletion_capacity)
	{
		const uint64 capacity = Max(64, 2 * p->deletion_capacity);

		p->deletions = p->deletions == NULL
			? MemoryContextAllocHuge(p->context, sizeof(uint64) * capacity)
			: repalloc_huge(p->deletions, sizeof(uint64) * capacity);
		p->deletion_capacity = capacity;
	}
}

static void
note_deletion(gstore_pending *p, uint64 row, CommandId now, CommandId statement)
{
	const int count = p->deletion_mark_count;

	if (count == 0 || p->deletion_marks[count - 1].command != now ||
		p->deletion_marks[count - 1].statement != statement)
		p->deletion_marks[p->deletion_mark_count++] = (deletion_mark){now, statement,
																	  p->deletion_count};
	p->deletions[p->deletion_count++] = row;
	p->state.live_rows--;
}

bool
gstore_delete(gstore_pending *p, uint64 row, CommandId statement)
{
	CommandId now;

	if (p->state.empty)
		return false;
	now = GetCurrentCommandId(true);
	save_state(p);
	if (p->deleted == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(p->context);

		p->deleted = gstore_rowset_create();
		MemoryContextSwitchTo(old);
	}
	allocate_deletion(p);
	if (!gstore_rowset_add(p->deleted, row))
		return false;
	note_deletion(p, row, now, statement);
	return true;
}

/* Looks through what commands within the statement deleted alone, which is mostly nothing. */
bool
gstore_was_deleted_within(const gstore_pending *p, uint64 row, CommandId statement)
{
	uint64 limit = p->deletion_count;

	for (int i = p->deletion_mark_count; i > 0 && p->deletion_marks[i - 1].command >= statement; i--)
	{
		const deletion_mark *mark = &p->deletion_marks[i - 1];

		for (uint64 d = mark->deletions; mark->statement != statement && d < limit; d++)
			if (p->deletions[d] == row)
				return true;
		limit = mark->deletions;
	}
	return false;
}

bool
gstore_pending_has_deleted(Oid relation, uint64 row)
{
	const gstore_pending *p = gstore_pending_find(relation);

	return p != NULL && p->deleted != NULL && gstore_rowset_has(p->deleted, row);
}

void
gstore_count_change(gstore_pending *p)
{
	p->changes++;
}

void
gstore_count_changes(gstore_pending *p, uint64 rows)
{
	p->changes += rows;
}

dsa_pointer
gstore_replace(gstore_pending *p)
{
	const dsa_pointer before = p->state.store;

	save_state(p);
	if (p->versioned) /* dropped at the commit, by ON COMMIT DROP of a temporary parent */
	{
		gstore_remove_version(p->relation, GetTopTransactionIdIfAny());
		p->versioned = false;
	}
	gstore_pending_end_writer(p);
	p->state.empty = true;
	p->state.lost = false;
	p->state.store = InvalidDsaPointer;
	p->state.rows = p->state.live_rows = p->base_rows = 0;
	p->own_store = false;
	p->replaced_command = GetCurrentCommandId(true);
	if (!p->replaced)
		p->first_replaced_command = p->replaced_command;
	p->replaced = true;
	p->first_mark = p->mark_count;
	p->first_deletion = p->deletion_count;
	if (p->deleted != NULL)
		gstore_rowset_clear(p->deleted);
	return before;
}

void
gstore_truncate(gstore_pending *p)
{
	gstore_pending_release_store(p, gstore_replace(p));
}

/* ---- what a scan of the same transaction sees */

bool
gstore_pending_replaced(const gstore_pending *p, CommandId before)
{
	return p->replaced && p->replaced_command < before;
}

bool
gstore_pending_has_forgotten(const gstore_pending *p, CommandId before)
{
	return p->replaced && p->replaced_command >= before &&
		(p->first_replaced_command < before || (p->mark_count > 0 && p->marks[0].command < before) ||
		 (p->deletion_mark_count > 0 && p->deletion_marks[0].command < before));
}

const gstore_view *
gstore_pending_state(const gstore_pending *p)
{
	return &p->state;
}

const gstore_view *
gstore_pending_rows(gstore_pending *p, CommandId before, uint64 *first, uint64 *limit)
{
	if (p->writer != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(p->context);

		gstore_flush(p->writer, &p->state);
		MemoryContextSwitchTo(old);
	}
	*first = p->base_rows;
	*limit = p->state.rows;
	for (int i = p->first_mark; i < p->mark_count; i++)
		if (p->marks[i].command >= before)
		{
			*limit = p->marks[i].rows;
			break;
		}
	return &p->state;
}

void
gstore_pending_mark_deleted(const gstore_pending *p, CommandId before, gstore_view *view)
{
	uint64 limit = p->deletion_count;

	if (p->state.empty || p->state.name.store != view->name.store)
		return;
	for (int i = p->deletion_mark_count; i > 0 && p->deletion_marks[i - 1].command >= before; i--)
		limit = p->deletion_marks[i - 1].deletions;
	if (limit == p->deletion_count && p->deleted != NULL)
		gstore_view_delete_all(view, p->deleted);
	else
		for (uint64 i = p->first_deletion; i < limit; i++)
			gstore_view_delete(view, p->deletions[i]);
}

/* ---- the end */

void
gstore_pendings_forget(void)
{
	gstore_pendings = NULL;
	context = NULL; /* goes with the transaction's own */
}
