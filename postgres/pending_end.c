/* Ends of transactions and subtransactions that have changed tables; see pending.h. */
#include "postgres.h"

#include "access/xact.h"
#include "storage/predicate.h"
#include "utils/memutils.h"

#include "postgres/commit_limit.h"
#include "postgres/directory.h"
#include "postgres/lost.h"
#include "postgres/memory.h"
#include "postgres/pending_state.h"
#include "postgres/shared.h"
#include "postgres/table.h"
#include "postgres/window.h"

static bool
is_changed(const gstore_pending *p)
{
	return p->replaced || p->retyped || p->own_store || p->state.rows > p->base_rows ||
		p->deletion_count > p->first_deletion;
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
	gstore_pending_compact(p);
	if (!p->state.empty && p->state.live_rows == 0)
	{
		p->state.empty = true; /* nothing is left: the memory can go */
		p->state.store = InvalidDsaPointer;
	}
	if (!p->state.empty && p->deletion_count > p->first_deletion)
		deleted = p->deleted;
	gstore_add_version(p->relation, gstore_owner_of(p->relation), &p->state, deleted, p->changes,
					   &recorded);
	p->versioned = true;
	if (!recorded)
		(void) gstore_record_tables(ERROR);
	note_write(p);
}

/* Rows that were only added leave an older version, which can wait: the worker looks once a second. */
static bool
needs_background_trim(const gstore_pending *p)
{
	return p->replaced || p->store_count > 0 || p->deletion_count > 0;
}

static bool committing; /* versions were added: what is dropped from here on adds its own */

void
gstore_pending_dropped(gstore_pending *p)
{
	if (committing)
		commit_table(p);
}

static void
forget_all(bool committed)
{
	bool wake = false;

	/* Before our lock and our stores go: who comes next waits for what a thread is at, as does the drop. */
	if (gstore_pendings != NULL)
		gstore_leave_begun(NULL);
	for (gstore_pending *p = gstore_pendings; p != NULL; p = p->next)
	{
		if (!committed && p->versioned)
			gstore_remove_version(p->relation, GetTopTransactionIdIfAny());
		if (p->wrote && (!committed || p->left_memory))
			gstore_ask_trim(p->relation, p->writer_number);
		for (int i = 0; i < p->store_count; i++)
			gstore_release_store(p->stores[i].store);
		wake |= needs_background_trim(p);
	}
	if (wake)
		gstore_wake_worker();
	gstore_pendings_forget();
	committing = false;
}

static void
refuse_prepare(void)
{
	for (gstore_pending *p = gstore_pendings; p != NULL; p = p->next)
		if (is_changed(p))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has changed a table in GPU memory"),
					 errhint("Use COMMIT: such tables do not outlive the server.")));
}

static void
commit_tables(void)
{
	for (gstore_pending *p = gstore_pendings; p != NULL; p = p->next)
		commit_table(p);
}

static void
pending_xact_callback(XactEvent event, void *argument)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			if (gstore_pendings != NULL)
				gstore_commit_limited(commit_tables);
			committing = true;
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
	const dsa_pointer undone = p->state.store;
	save			 *s = p->saves;

	undo_deletions(p, s);
	if (p->state.store != s->state.store)
		gstore_pending_end_writer(p);
	if (p->state.columns != NULL)
		pfree(p->state.columns);
	p->state = s->state;
	p->state.name.writer_number = p->writer_number = gstore_next_writer_number();
	p->left_memory = true;
	if (p->writer != NULL)
		gstore_writer_back_to(p->writer, &p->state);
	p->own_store = s->own_store;
	p->replaced = s->replaced;
	p->retyped = s->retyped;
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
	pfree(s);
	gstore_pending_release_store(p, undone);
}

/* The state at the begin of a subtransaction that is part of an outer one, which has its own. */
static void
drop_saved_state(gstore_pending *p)
{
	save			 *s = p->saves;
	const dsa_pointer saved = s->state.store;

	p->saves = s->outer;
	pfree(s->state.columns);
	pfree(s);
	gstore_pending_release_store(p, saved);
}

/*
 * What a subtransaction was the first to change is free for others when it is undone, for its lock goes
 * with it: what is known of the table's content is outdated.
 */
static void
forget_undone(int level)
{
	for (gstore_pending **link = &gstore_pendings, *p; (p = *link) != NULL;)
	{
		if (p->level < level)
		{
			link = &p->next;
			continue;
		}
		if (p->writer != NULL)
			gstore_writer_free(p->writer);
		if (p->wrote)
			gstore_ask_trim(p->relation, p->writer_number);
		for (int i = 0; i < p->store_count; i++)
			gstore_release_store(p->stores[i].store);
		*link = p->next;
		MemoryContextDelete(p->context);
	}
}

/* Releases the other stores that the aborted subtransaction made, as for an ALTER or a load that failed. */
static void
release_undone_stores(gstore_pending *p, int level)
{
	for (int i = p->store_count; i-- > 0;)
		if (p->stores[i].level >= level)
		{
			const gstore_store *store = gstore_at(p->stores[i].store);

			gstore_leave_begun_to(store->name.store);
			gstore_pending_release_store(p, p->stores[i].store);
		}
}

static void
pending_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent,
						 void *argument)
{
	const int level = GetCurrentTransactionNestLevel();

	if (event == SUBXACT_EVENT_ABORT_SUB)
		forget_undone(level);
	for (gstore_pending *p = gstore_pendings; p != NULL; p = p->next)
	{
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			p->level = Min(p->level, level - 1);
		while (p->saves != NULL && p->saves->level >= level)
		{
			if (event == SUBXACT_EVENT_ABORT_SUB)
				restore_saved_state(p);
			else if (event != SUBXACT_EVENT_COMMIT_SUB)
				break;
			else if (level == 2 || (p->saves->outer != NULL && p->saves->outer->level >= level - 1))
				drop_saved_state(p);
			else
			{
				p->saves->level = level - 1;
				break;
			}
		}
		if (event == SUBXACT_EVENT_ABORT_SUB)
			release_undone_stores(p, level);
		for (int i = 0; event == SUBXACT_EVENT_COMMIT_SUB && i < p->store_count; i++)
			p->stores[i].level = Min(p->stores[i].level, level - 1);
	}
}

void
gstore_pending_init(void)
{
	RegisterXactCallback(pending_xact_callback, NULL);
	RegisterSubXactCallback(pending_subxact_callback, NULL);
}
