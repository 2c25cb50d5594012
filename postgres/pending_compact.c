/* Compaction: rows that are alive are written to a new store; see pending.h. */
#include "postgres.h"

#include "access/xact.h"
#include "commands/tablecmds.h"
#include "executor/executor.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "postgres/pending_state.h"
#include "postgres/progress.h"
#include "postgres/scan.h"

/*
 * A commit that leaves more than half of a store's rows dead, and so many rows in all, writes the others
 * anew: it has deleted as many as it writes, or those before it have.
 */
#define COMPACT_ROWS_LEAST 8192

static void
rewrite_without_deleted(Relation relation, gstore_pending *p)
{
	MemoryContext	 scratch = AllocSetContextCreate(CurrentMemoryContext, "gstore compaction",
													 ALLOCSET_DEFAULT_SIZES);
	MemoryContext	 old = MemoryContextSwitchTo(scratch);
	TupleTableSlot	*slot = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsVirtual);
	gstore_row_range row_ranges[GSTORE_ROW_RANGES_MAX];
	const int		 count = gstore_choose_rows(relation, NULL, false, false, row_ranges);
	gstore_walk		*walk = gstore_walk_begin(relation, row_ranges, count);
	dsa_pointer		 before;

	gstore_progress_begin(GSTORE_COMPACTING, p->relation, walk);
	p->left_memory = true;
	before = gstore_replace(p);
	while (gstore_walk_next(walk, slot))
		gstore_insert(p, slot);
	gstore_progress_end(walk);
	gstore_walk_end(walk);
	gstore_pending_release_store(p, before);
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
	gstore_check_columns(relation, &p->state);
	CheckTableNotInUse(relation, "rewrite"); /* a cursor has the numbers of its rows */
	if (!p->replaced)
		gstore_check_newest(relation, GetActiveSnapshot());
	rewrite_without_deleted(relation, p);
	return rows - p->state.rows;
}

static bool
wants_compaction(const gstore_pending *p)
{
	return !p->state.empty && p->deletion_count > p->first_deletion && p->state.live_rows > 0 &&
		p->state.rows >= COMPACT_ROWS_LEAST && p->state.live_rows < p->state.rows / 2;
}

void
gstore_pending_compact(gstore_pending *p)
{
	MemoryContext old = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	if (!wants_compaction(p))
		return;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(old);
	PG_TRY();
	{
		Relation relation = RelationIdGetRelation(p->relation);

		if (relation != NULL)
		{
			gstore_pending_follow(p, relation); /* an ALTER may have been undone */
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
