/*
 * What the current transaction has changed; see pending.h.
 *
 * Changes are undone by going back to marks: numbers of rows, deletions and commands at the time a
 * subtransaction first changed the table. What was written to the store behind the mark is overwritten, or
 * its memory given back when the transaction ends. A writer has a turn, another one after it went back, by which
 * the keeper's side knows what lies behind.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/tablecmds.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "postgres/lost.h"
#include "postgres/memory.h"
#include "postgres/option.h"
#include "postgres/pending.h"
#include "postgres/progress.h"
#include "postgres/scan.h"

/*
 * A commit that leaves more than half of a store's rows dead, and so many rows in all, writes the others
 * anew: it has deleted as many as it writes, or those before it have.
 */
#define COMPACT_ROWS_LEAST 8192

/* The rows from this one on were made by this command. */
typedef struct command_mark
{
	CommandId command;
	uint64	  rows;
} command_mark;

/*
 * The deletions from this one on were made at this command, by the statement that began at that one: the
 * commands of triggers and functions within a statement move the transaction's on.
 */
typedef struct deletion_mark
{
	CommandId command, statement;
	uint64	  deletions;
} deletion_mark;

/* What a subtransaction goes back to. */
typedef struct save
{
	struct save *outer;
	int			 level;
	gstore_view	 state; /* columns are a copy of its own */
	bool		 own_store;
	bool		 replaced;
	CommandId	 replaced_command;
	uint64		 base_rows;
	int			 mark_count, first_mark;
	uint64		 deletion_count, first_deletion;
	int			 deletion_mark_count;
	uint64		 changes;
} save;

struct gstore_pending
{
	gstore_pending *next;
	Oid				relation;
	int				device;
	bool			arrow;	 /* the table's format */
	int				level;	 /* of the subtransaction that made this, and has the lock */
	MemoryContext	context; /* of everything that is here */
	TupleDesc		desc;
	gstore_view		state;	   /* with our changes */
	bool			own_store; /* state.store was made by us, and is referenced by us */
	bool			replaced;  /* the committed content does not count any more */
	CommandId		replaced_command;
	uint64			base_rows;	 /* ours come after them */
	uint64			changes;	 /* rows that statements inserted, updated and deleted */
	bool			versioned;	 /* a version was added for it */
	bool			describe;	 /* the table may look different since the last statement */
	uint64			turn;		 /* of the writer */
	bool			wrote;		 /* rows, perhaps */
	bool			left_memory; /* rows were undone, or written anew */
	gstore_writer  *writer;
	command_mark   *marks;
	int				mark_count, mark_capacity, first_mark;
	uint64 *deletions; /* row numbers, in the order of commands; from the first on: of state.store */
	uint64	deletion_count, deletion_capacity, first_deletion;
	deletion_mark *deletion_marks;
	int			   deletion_mark_count, deletion_mark_capacity;
	gstore_rowset *deleted; /* the deletions from the first on; NULL: there was none yet */
	dsa_pointer	  *stores;	/* all that we made */
	int			   store_count;
	save		  *saves;
};

static gstore_pending *all;
static MemoryContext   context;

gstore_pending *
gstore_pending_find(Oid relation)
{
	gstore_pending *p = all;

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

/* The table has been altered since: what is staged goes out in the old form. */
static void
follow_table(gstore_pending *p, Relation relation)
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
	{
		gstore_flush(p->writer, &p->state);
		gstore_writer_free(p->writer);
		p->writer = NULL;
	}
	FreeTupleDesc(p->desc);
	p->desc = CreateTupleDescCopy(RelationGetDescr(relation));
	MemoryContextSwitchTo(old);
}

gstore_pending *
gstore_pending_begin(Relation relation)
{
	gstore_pending *p = gstore_pending_find(RelationGetRelid(relation));
	MemoryContext	own, old;

	if (p != NULL)
	{
		follow_table(p, relation);
		return p;
	}
	gstore_check_access();
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
	p->desc = CreateTupleDescCopy(RelationGetDescr(relation));
	gstore_look_alive(p->relation, NULL, false, &p->state);
	if (!p->state.empty)
		gstore_check_columns(relation, &p->state);
	p->base_rows = p->state.rows;
	p->state.name.turn = p->turn = gstore_next_turn();
	p->describe = true;
	p->next = all;
	all = p;
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
	Relation	   relation;
	gstore_column *now;

	if (!p->describe)
		return;
	relation = RelationIdGetRelation(p->relation);
	now = gstore_describe(relation, p->arrow);
	RelationClose(relation);
	for (int i = 0; i < Min(before, natts); i++)
	{
		gstore_column *column = &p->state.columns[i];

		column->left_over = now[i].dropped && (column->left_over || !column->dropped);
		column->dropped = now[i].dropped;
		column->pglz = now[i].pglz;
		if (!now[i].dropped)
		{
			column->type = now[i].type;
			column->typmod = now[i].typmod;
		}
	}
	if (before < natts)
	{
		if (before > 0)
			memcpy(now, p->state.columns, sizeof(gstore_column) * (Size) before);
		p->state.columns = now;
		p->state.column_count = natts;
		gstore_fill_new_columns(&p->state, before);
	}
	else
		pfree(now);
	p->describe = false;
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

static void
need_store(gstore_pending *p)
{
	if (p->state.empty)
	{
		gstore_wait_ready();
		need_device(p);
		p->stores = p->stores == NULL
			? palloc(sizeof(dsa_pointer))
			: repalloc(p->stores, sizeof(dsa_pointer) * (Size) (p->store_count + 1));
		p->state.store = gstore_new_store(p->relation, p->device, p->arrow, &p->state.name);
		p->state.name.turn = p->turn;
		p->state.arrow = p->arrow;
		p->stores[p->store_count++] = p->state.store;
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
reserve_deletion(gstore_pending *p)
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
	reserve_deletion(p);
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
gstore_truncate(gstore_pending *p)
{
	save_state(p);
	if (p->writer != NULL)
		gstore_writer_forget(p->writer);
	p->state.empty = true;
	p->state.lost = false;
	p->state.store = InvalidDsaPointer;
	p->state.rows = p->state.live_rows = p->base_rows = 0;
	p->own_store = false;
	p->replaced = true;
	p->replaced_command = GetCurrentCommandId(true);
	p->first_mark = p->mark_count;
	p->first_deletion = p->deletion_count;
	if (p->deleted != NULL)
		gstore_rowset_clear(p->deleted);
}

/* ---- what a scan of the same transaction sees */

bool
gstore_pending_replaced(const gstore_pending *p, CommandId before)
{
	return p->replaced && p->replaced_command < before;
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

/* ---- ends of transactions */

static bool
is_changed(const gstore_pending *p)
{
	return p->replaced || p->own_store || p->state.rows > p->base_rows ||
		p->deletion_count > p->first_deletion;
}

/* ---- compaction */

static void
rewrite_without_deleted(Relation relation, gstore_pending *p)
{
	MemoryContext	scratch = AllocSetContextCreate(CurrentMemoryContext, "gstore compaction",
													ALLOCSET_DEFAULT_SIZES);
	MemoryContext	old = MemoryContextSwitchTo(scratch);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsVirtual);
	gstore_segment	segments[GSTORE_SEGMENTS_MAX];
	const int		count = gstore_choose_rows(relation, NULL, false, segments);
	gstore_walk	   *walk = gstore_walk_begin(relation, segments, count);

	gstore_progress_begin(GSTORE_COMPACTING, p->relation, walk);
	p->left_memory = true;
	gstore_truncate(p);
	while (gstore_walk_next(walk, slot))
		gstore_insert(p, slot);
	gstore_progress_end(walk);
	gstore_walk_end(walk);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scratch);
}

/* Columns that were dropped since the rows were written, or before rows that came later. */
static bool
has_dropped_data(const gstore_pending *p)
{
	for (int i = 0; i < Min(p->state.column_count, p->desc->natts); i++)
		if (TupleDescAttr(p->desc, i)->attisdropped &&
			(!p->state.columns[i].dropped || p->state.columns[i].left_over))
			return true;
	return false;
}

uint64
gstore_compact(Relation relation)
{
	gstore_pending *p;
	uint64			rows;

	LockRelation(relation, ShareUpdateExclusiveLock);
	p = gstore_pending_begin(relation);
	rows = p->state.rows;
	if (p->state.empty || (rows == p->state.live_rows && !has_dropped_data(p)))
		return 0;
	CheckTableNotInUse(relation, "rewrite"); /* a cursor has the numbers of its rows */
	rewrite_without_deleted(relation, p);
	return rows - p->state.rows;
}

static bool
wants_compaction(const gstore_pending *p)
{
	return !p->state.empty && p->deletion_count > p->first_deletion && p->state.live_rows > 0 &&
		p->state.rows >= COMPACT_ROWS_LEAST && p->state.live_rows < p->state.rows / 2;
}

/*
 * If there is no memory for a second store, the first one must do: in a subtransaction, so that a
 * failure leaves the table as it is.
 */
static void
compact_if_possible(gstore_pending *p)
{
	MemoryContext old = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(old);
	PG_TRY();
	{
		Relation relation = RelationIdGetRelation(p->relation);

		if (relation != NULL)
		{
			follow_table(p, relation); /* an ALTER may have been undone */
			rewrite_without_deleted(relation, p);
			if (p->writer != NULL)
				gstore_flush(p->writer, &p->state);
			RelationClose(relation);
		}
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(old);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(old);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(old);
		CurrentResourceOwner = owner;
		if (error->sqlerrcode != ERRCODE_OUT_OF_MEMORY &&
			error->sqlerrcode != ERRCODE_PROGRAM_LIMIT_EXCEEDED)
			ReThrowError(error);
		ereport(DEBUG1, (errmsg_internal("cannot compact a table in GPU memory: %s", error->message)));
		FreeErrorData(error);
	}
	PG_END_TRY();
}

/* ---- commit */

/* The version is there already: a reader either sees it, or had locked the table before. */
static void
note_write(const gstore_pending *p)
{
	Relation relation;

	if (!IsolationIsSerializable())
		return;
	relation = RelationIdGetRelation(p->relation);
	if (relation == NULL)
		return; /* dropped */
	CheckForSerializableConflictIn(relation, NULL, InvalidBlockNumber);
	RelationClose(relation);
}

/* One that was made and deleted by the same transaction is deleted all the same: its row is there. */
static void
commit_table(gstore_pending *p)
{
	const gstore_rowset *deleted = NULL;
	bool				 recorded;

	if (p->writer != NULL)
		gstore_flush(p->writer, &p->state);
	if (!is_changed(p))
		return;
	if (wants_compaction(p))
		compact_if_possible(p);
	if (!p->state.empty && p->state.live_rows == 0)
	{
		p->state.empty = true; /* nothing is left: the memory can go */
		p->state.store = InvalidDsaPointer;
	}
	if (!p->state.empty && p->deletion_count > p->first_deletion)
		deleted = p->deleted;
	gstore_add_version(p->relation, &p->state, deleted, p->changes, &recorded);
	p->versioned = true;
	if (!recorded)
		gstore_record_tables(ERROR);
	note_write(p);
}

/* Rows that were only added leave an older version, which can wait: worker.c looks once a second. */
static bool
needs_background_trim(const gstore_pending *p)
{
	return p->replaced || p->store_count > 0 || p->deletion_count > 0;
}

static void
forget_all(bool committed)
{
	bool wake = false;

	/* Before our lock and our stores go: who comes next waits for what a thread is at, as does the drop. */
	if (all != NULL)
		gstore_leave_begun(NULL);
	for (gstore_pending *p = all; p != NULL; p = p->next)
	{
		if (!committed && p->versioned)
			gstore_remove_version(p->relation, GetTopTransactionIdIfAny());
		if (p->wrote && (!committed || p->left_memory))
			gstore_ask_trim(p->relation, p->turn);
		for (int i = 0; i < p->store_count; i++)
			gstore_release_store(p->stores[i]);
		wake |= needs_background_trim(p);
	}
	if (wake)
		gstore_wake_worker();
	all = NULL;
	context = NULL; /* goes with the transaction's own */
}

static void
refuse_prepare(void)
{
	for (gstore_pending *p = all; p != NULL; p = p->next)
		if (is_changed(p))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has changed a table in GPU memory"),
					 errhint("Use COMMIT: such tables do not outlive the server.")));
}

/*
 * The server ends a statement's time limit before it commits. Here a commit may have to wait, so the limit
 * goes on: nothing is committed yet, and an ERROR is as good as any before.
 */
static void
commit_tables(void)
{
	const bool limited = all != NULL && StatementTimeout > 0 && !get_timeout_active(STATEMENT_TIMEOUT);

	if (limited)
		enable_timeout_at(
			STATEMENT_TIMEOUT,
			TimestampTzPlusMilliseconds(GetCurrentStatementStartTimestamp(), StatementTimeout));
	for (gstore_pending *p = all; p != NULL; p = p->next)
		commit_table(p);
	if (limited)
	{
		disable_timeout(STATEMENT_TIMEOUT, true);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
pending_xact_callback(XactEvent event, void *argument)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			commit_tables();
			break;
		case XACT_EVENT_PRE_PREPARE:
			refuse_prepare();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PREPARE: /* changed nothing, but may have made stores */
			forget_all(true);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			forget_all(false);
			break;
	}
}

/* The set of deletions as it was; the list is cut by the caller. The same store has the same first. */
static void
undo_deletions(gstore_pending *p, const save *s)
{
	if (p->deleted == NULL)
		return;
	if (p->first_deletion == s->first_deletion)
	{
		for (uint64 i = s->deletion_count; i < p->deletion_count; i++)
			gstore_rowset_remove(p->deleted, p->deletions[i]);
		return;
	}
	gstore_rowset_clear(p->deleted);
	for (uint64 i = s->first_deletion; i < s->deletion_count; i++)
		(void) gstore_rowset_add(p->deleted, p->deletions[i]);
}

static void
restore_saved_state(gstore_pending *p)
{
	save *s = p->saves;

	undo_deletions(p, s);
	p->state = s->state;
	p->state.name.turn = p->turn = gstore_next_turn();
	p->left_memory = true;
	if (p->writer != NULL)
		gstore_writer_back_to(p->writer, &p->state);
	p->own_store = s->own_store;
	p->replaced = s->replaced;
	p->replaced_command = s->replaced_command;
	p->base_rows = s->base_rows;
	p->mark_count = s->mark_count;
	p->first_mark = s->first_mark;
	p->deletion_count = s->deletion_count;
	p->first_deletion = s->first_deletion;
	p->deletion_mark_count = s->deletion_mark_count;
	p->changes = s->changes;
	p->describe = true; /* columns that were added since are to be added again */
	p->saves = s->outer;
}

/*
 * What a subtransaction was the first to change is free for others when it is undone, for its lock goes
 * with it: what is known of the table's content does not hold any more.
 */
static void
forget_undone(int level)
{
	for (gstore_pending **link = &all, *p; (p = *link) != NULL;)
	{
		if (p->level < level)
		{
			link = &p->next;
			continue;
		}
		if (p->writer != NULL)
			gstore_writer_leave(p->writer);
		if (p->wrote)
			gstore_ask_trim(p->relation, p->turn);
		for (int i = 0; i < p->store_count; i++)
			gstore_release_store(p->stores[i]);
		*link = p->next;
		MemoryContextDelete(p->context);
	}
}

static void
pending_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent,
						 void *argument)
{
	const int level = GetCurrentTransactionNestLevel();

	if (event == SUBXACT_EVENT_ABORT_SUB)
		forget_undone(level);
	for (gstore_pending *p = all; p != NULL; p = p->next)
	{
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			p->level = Min(p->level, level - 1);
		while (p->saves != NULL && p->saves->level >= level)
		{
			if (event == SUBXACT_EVENT_ABORT_SUB)
				restore_saved_state(p);
			else if (event != SUBXACT_EVENT_COMMIT_SUB)
				break;
			else if (p->saves->outer != NULL && p->saves->outer->level >= level - 1)
				p->saves = p->saves->outer;
			else
			{
				p->saves->level = level - 1;
				break;
			}
		}
	}
}

void
gstore_pending_init(void)
{
	RegisterXactCallback(pending_xact_callback, NULL);
	RegisterSubXactCallback(pending_subxact_callback, NULL);
}
