/*
 * INSERT, COPY, UPDATE, DELETE, TRUNCATE.
 *
 * The table's SHARE UPDATE EXCLUSIVE lock is taken before the first row is touched and kept to the end
 * of the transaction: one writer at a time, and readers as many as come.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "optimizer/appendinfo.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "utils/rel.h"

#include "postgres/fdw.h"
#include "postgres/lost.h"
#include "postgres/pending.h"
#include "postgres/progress.h"
#include "postgres/reload.h"

typedef struct modify_state
{
	gstore_pending *pending;
	bool adds, moves; /* what inserted rows may be: new ones, an UPDATE's from another partition */
	AttrNumber tid;	  /* junk attribute */
	AttrNumber row;	  /* the same, of DELETE ... RETURNING; invalid without */
} modify_state;

static const char tid_name[] = "ctid";
/* "wholerow" would be asked of all foreign tables among siblings. */
static const char row_name[] = "gstore_row";

static void
gstoreAddForeignUpdateTargets(PlannerInfo *root, Index relation, RangeTblEntry *entry, Relation table)
{
	Var *tid = makeVar(relation, SelfItemPointerAttributeNumber, TIDOID, -1, InvalidOid, 0);
	Var *row = makeVar(relation, InvalidAttrNumber, RECORDOID, -1, InvalidOid, 0);

	add_row_identity_var(root, tid, relation, tid_name);
	/*
     * What a deleted row was is for us to say: its columns are in no target list. A record, as all tables of
     * an inheritance tree share the column of that name, which has one type.
     */
	if (root->parse->commandType == CMD_DELETE && root->parse->returningList != NIL)
		add_row_identity_var(root, row, relation, row_name);
}

gstore_pending *
gstore_begin_writing(Relation relation)
{
	gstore_pending *pending;

	(void) gstore_reload_await(relation, NULL);
	LockRelation(relation, ShareUpdateExclusiveLock);
	CheckForSerializableConflictIn(relation, NULL, InvalidBlockNumber);
	pending = gstore_pending_begin(relation);
	gstore_check_lost(RelationGetRelid(relation), gstore_pending_state(pending));
	if (!gstore_pending_state(pending)->empty)
		gstore_check_columns(relation, gstore_pending_state(pending));
	return pending;
}

/* Whether the statement does so; a MERGE by one of its actions. */
static bool
changes_by(const ModifyTableState *node, CmdType command)
{
	const ListCell *list, *cell;

	if (node->operation != CMD_MERGE)
		return node->operation == command;
	foreach(list, ((const ModifyTable *) node->ps.plan)->mergeActionLists)
		foreach(cell, (const List *) lfirst(list))
			if (lfirst_node(MergeAction, cell)->commandType == command)
				return true;
	return false;
}

static modify_state *
begin_modify_state(const ModifyTableState *node, ResultRelInfo *result)
{
	modify_state *state = palloc0(sizeof *state);

	state->adds = changes_by(node, CMD_INSERT);
	state->moves = changes_by(node, CMD_UPDATE);
	state->pending = gstore_begin_writing(result->ri_RelationDesc);
	result->ri_FdwState = state;
	return state;
}

static void
gstoreBeginForeignModify(ModifyTableState *node, ResultRelInfo *result, List *private, int index,
						 int flags)
{
	modify_state *state;

	if ((flags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	state = begin_modify_state(node, result);
	gstore_progress_begin(node->operation == CMD_INSERT ? GSTORE_INSERTING : GSTORE_UPDATING,
						  RelationGetRelid(result->ri_RelationDesc), state);
	if (node->operation != CMD_INSERT)
	{
		state->tid = ExecFindJunkAttributeInTlist(outerPlanState(node)->plan->targetlist, tid_name);
		if (!AttributeNumberIsValid(state->tid))
			elog(ERROR, "could not find junk column %s", tid_name);
		if (node->operation == CMD_DELETE && ((ModifyTable *) node->ps.plan)->returningLists != NIL)
			state->row = ExecFindJunkAttributeInTlist(outerPlanState(node)->plan->targetlist, row_name);
	}
}

static void
gstoreBeginForeignInsert(ModifyTableState *node, ResultRelInfo *result)
{
	if (result->ri_FdwState != NULL) /* of an UPDATE that changes rows of the partition, too */
		return;
	/* COPY has no plan; the other caller is an INSERT into a partitioned table. */
	gstore_progress_begin(node->ps.plan == NULL ? GSTORE_COPYING : GSTORE_INSERTING,
						  RelationGetRelid(result->ri_RelationDesc), begin_modify_state(node, result));
}

static void
gstoreEndForeignModify(EState *estate, ResultRelInfo *result)
{
	if (result->ri_FdwState == NULL)
		return;
	gstore_await(); /* others want the window */
	gstore_progress_end(result->ri_FdwState);
}

/*
 * PostgreSQL leaves the constraints of foreign tables to the wrapper. routed:
 * the row came here because it belongs to this partition.
 */
static void
check_row(EState *estate, ResultRelInfo *result, TupleTableSlot *slot, bool routed)
{
	const Relation relation = result->ri_RelationDesc;

	if (relation->rd_att->constr != NULL)
		ExecConstraints(result, slot, estate);
	if (relation->rd_rel->relispartition && !routed)
		(void) ExecPartitionCheck(result, slot, estate, true);
}

/* Likewise the policies that a partitioned table has for its partitions. */
static void
check_policies(EState *estate, ResultRelInfo *result, TupleTableSlot *slot, WCOKind kind)
{
	if (result->ri_WithCheckOptions != NIL)
		ExecWithCheckOptions(kind, result, slot, estate);
}

static bool
is_routed(const ResultRelInfo *result)
{
	return result->ri_RootResultRelInfo != NULL &&
		(result->ri_TrigDesc == NULL || !result->ri_TrigDesc->trig_insert_before_row);
}

/* With the ctid that RETURNING may ask for. */
static void
write_slot(const modify_state *state, TupleTableSlot *slot)
{
	gstore_insert(state->pending, slot);
	gstore_row_to_tid(gstore_pending_state(state->pending)->rows - 1, &slot->tts_tid);
	/* RETURNING xmin and the like would show what else a tuple has in the place of these fields. */
	if (TTS_IS_HEAPTUPLE(slot) && ((HeapTupleTableSlot *) slot)->tuple != NULL)
	{
		HeapTupleHeader header;

		ExecMaterializeSlot(slot); /* it may be a trigger's */
		header = ((HeapTupleTableSlot *) slot)->tuple->t_data;
		HeapTupleHeaderSetXmin(header, InvalidTransactionId);
		HeapTupleHeaderSetXmax(header, InvalidTransactionId);
		HeapTupleHeaderSetCmin(header, InvalidTransactionId);
	}
}

static TupleTableSlot *
gstoreExecForeignInsert(EState *estate, ResultRelInfo *result, TupleTableSlot *slot,
						TupleTableSlot *plan)
{
	modify_state *state = result->ri_FdwState;

	/* Whether a MERGE that does both has moved this row or added it is not known here: both policies hold. */
	if (state->moves)
		check_policies(estate, result, slot, WCO_RLS_UPDATE_CHECK);
	if (state->adds)
		check_policies(estate, result, slot, WCO_RLS_INSERT_CHECK);
	check_row(estate, result, slot, is_routed(result));
	write_slot(state, slot);
	gstore_count_change(state->pending);
	return slot;
}

/*
 * The row that the plan found; false: this statement deleted it already, as a join met it twice. verb: for the
 * error that all tables have for a row that was changed by a trigger or a function within the statement.
 */
static bool
remove_row(const EState *estate, const modify_state *state, TupleTableSlot *plan, const char *verb)
{
	bool		null;
	const Datum tid = ExecGetJunkAttribute(plan, state->tid, &null);
	uint64		row;

	if (null)
		elog(ERROR, "%s is NULL", tid_name);
	row = gstore_tid_to_row((ItemPointer) DatumGetPointer(tid));
	if (gstore_delete(state->pending, row, estate->es_output_cid))
	{
		gstore_count_change(state->pending);
		return true;
	}
	if (gstore_was_deleted_within(state->pending, row, estate->es_output_cid))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("tuple to be %s was already modified by an operation triggered by the current command",
						verb),
				 errhint("Consider using an AFTER trigger instead of a BEFORE trigger to propagate changes to "
						 "other rows.")));
	return false;
}

/* PostgreSQL moves rows from partitions that it stores itself alone. */
static void
check_stays(EState *estate, ResultRelInfo *result, TupleTableSlot *slot)
{
	const Relation relation = result->ri_RelationDesc;

	if (result->ri_RootResultRelInfo == NULL || !relation->rd_rel->relispartition ||
		ExecPartitionCheck(result, slot, estate, false))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot move a row from table \"%s\" in GPU memory to another partition",
					RelationGetRelationName(relation)),
			 errhint("DELETE the row, and INSERT it into \"%s\".",
					 RelationGetRelationName(result->ri_RootResultRelInfo->ri_RelationDesc))));
}

static TupleTableSlot *
gstoreExecForeignUpdate(EState *estate, ResultRelInfo *result, TupleTableSlot *slot,
						TupleTableSlot *plan)
{
	modify_state *state = result->ri_FdwState;

	check_stays(estate, result, slot);
	check_policies(estate, result, slot, WCO_RLS_UPDATE_CHECK);
	check_row(estate, result, slot, false);
	if (!remove_row(estate, state, plan, "updated"))
		return NULL;
	write_slot(state, slot);
	return slot;
}

static TupleTableSlot *
gstoreExecForeignDelete(EState *estate, ResultRelInfo *result, TupleTableSlot *slot,
						TupleTableSlot *plan)
{
	modify_state *state = result->ri_FdwState;

	if (!remove_row(estate, state, plan, "deleted"))
		return NULL;
	if (AttributeNumberIsValid(state->row))
	{
		bool		null;
		const Datum row = ExecGetJunkAttribute(plan, state->row, &null);

		if (null)
			elog(ERROR, "%s is NULL", row_name);
		ExecStoreHeapTupleDatum(row, slot);
		slot->tts_tid = *(ItemPointer) DatumGetPointer(ExecGetJunkAttribute(plan, state->tid, &null));
	}
	return slot;
}

static int
gstoreIsForeignRelUpdatable(Relation relation)
{
	return (1 << CMD_INSERT) | (1 << CMD_UPDATE) | (1 << CMD_DELETE);
}

void
gstoreExecForeignTruncate(List *relations, DropBehavior behavior, bool restart)
{
	ListCell *cell;

	foreach(cell, relations)
		gstore_truncate(gstore_pending_begin(lfirst(cell)));
}

void
gstore_modify_callbacks(FdwRoutine *routine)
{
	routine->AddForeignUpdateTargets = gstoreAddForeignUpdateTargets;
	routine->BeginForeignModify = gstoreBeginForeignModify;
	routine->BeginForeignInsert = gstoreBeginForeignInsert;
	routine->EndForeignModify = gstoreEndForeignModify;
	routine->EndForeignInsert = gstoreEndForeignModify;
	routine->ExecForeignInsert = gstoreExecForeignInsert;
	/*
     * No batches: PostgreSQL would copy each row twice to gather them, and rows are gathered here, by
     * column, in any case. INSERT ... SELECT is three times as fast without.
     */
	routine->ExecForeignUpdate = gstoreExecForeignUpdate;
	routine->ExecForeignDelete = gstoreExecForeignDelete;
	routine->IsForeignRelUpdatable = gstoreIsForeignRelUpdatable;
	routine->ExecForeignTruncate = gstoreExecForeignTruncate;
}
