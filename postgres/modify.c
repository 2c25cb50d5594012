/* INSERT, COPY, UPDATE, DELETE, TRUNCATE.
 *
 * The table's SHARE UPDATE EXCLUSIVE lock is taken before the first row is touched and kept to the end
 * of the transaction: one writer at a time, and readers as many as come.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "optimizer/appendinfo.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#include "postgres/fdw.h"
#include "postgres/pending.h"

#define BATCH_ROWS 1000

typedef struct modify_state {
    gstore_pending *pending;
    AttrNumber tid; /* junk attribute */
} modify_state;

static const char tid_name[] = "ctid";

static void add_update_targets(PlannerInfo *root, Index relation, RangeTblEntry *entry, Relation table)
{
    Var *tid = makeVar(relation, SelfItemPointerAttributeNumber, TIDOID, -1, InvalidOid, 0);

    add_row_identity_var(root, tid, relation, tid_name);
}

static modify_state *begin_any(ResultRelInfo *result)
{
    const Relation relation = result->ri_RelationDesc;
    modify_state *state = palloc0(sizeof *state);

    LockRelation(relation, ShareUpdateExclusiveLock);
    state->pending = gstore_pending_begin(relation);
    result->ri_FdwState = state;
    return state;
}

static void begin_modify(ModifyTableState *node, ResultRelInfo *result, List *private, int index,
                         int flags)
{
    modify_state *state;

    if ((flags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
        return;
    state = begin_any(result);
    if (node->operation != CMD_INSERT) {
        state->tid = ExecFindJunkAttributeInTlist(outerPlanState(node)->plan->targetlist, tid_name);
        if (!AttributeNumberIsValid(state->tid))
            elog(ERROR, "could not find junk column %s", tid_name);
    }
}

static void begin_insert(ModifyTableState *node, ResultRelInfo *result)
{
    (void)begin_any(result);
}

/* Nobody else does: to PostgreSQL, constraints of foreign tables are somebody else's business. */
static void check_row(EState *estate, ResultRelInfo *result, TupleTableSlot *slot)
{
    if (result->ri_RelationDesc->rd_att->constr != NULL)
        ExecConstraints(result, slot, estate);
}

static TupleTableSlot *insert(EState *estate, ResultRelInfo *result, TupleTableSlot *slot,
                              TupleTableSlot *plan)
{
    modify_state *state = result->ri_FdwState;

    check_row(estate, result, slot);
    gstore_insert(state->pending, slot);
    return slot;
}

static TupleTableSlot **insert_batch(EState *estate, ResultRelInfo *result, TupleTableSlot **slots,
                                     TupleTableSlot **plans, int *count)
{
    for (int i = 0; i < *count; i++)
        (void)insert(estate, result, slots[i], plans[i]);
    return slots;
}

static int batch_size(ResultRelInfo *result)
{
    /* Rows that triggers or RETURNING look at go one by one. */
    if (result->ri_projectReturning != NULL ||
        (result->ri_TrigDesc != NULL &&
         (result->ri_TrigDesc->trig_insert_before_row || result->ri_TrigDesc->trig_insert_after_row)))
        return 1;
    return BATCH_ROWS;
}

/* The row that the plan found; false: this statement deleted it already. */
static bool remove_row(modify_state *state, TupleTableSlot *plan)
{
    bool null;
    const Datum tid = ExecGetJunkAttribute(plan, state->tid, &null);

    if (null)
        elog(ERROR, "%s is NULL", tid_name);
    return gstore_delete(state->pending, gstore_tid_to_row((ItemPointer)DatumGetPointer(tid)));
}

static TupleTableSlot *update(EState *estate, ResultRelInfo *result, TupleTableSlot *slot,
                              TupleTableSlot *plan)
{
    modify_state *state = result->ri_FdwState;

    check_row(estate, result, slot);
    if (!remove_row(state, plan))
        return NULL;
    gstore_insert(state->pending, slot);
    return slot;
}

static TupleTableSlot *delete (EState *estate, ResultRelInfo *result, TupleTableSlot *slot,
                               TupleTableSlot *plan)
{
    return remove_row(result->ri_FdwState, plan) ? slot : NULL;
}

static int updatable(Relation relation)
{
    return (1 << CMD_INSERT) | (1 << CMD_UPDATE) | (1 << CMD_DELETE);
}

void gstore_truncate_callback(List *relations, DropBehavior behavior, bool restart)
{
    ListCell *cell;

    foreach (cell, relations)
        gstore_truncate(gstore_pending_begin(lfirst(cell)));
}

void gstore_modify_callbacks(FdwRoutine *routine)
{
    routine->AddForeignUpdateTargets = add_update_targets;
    routine->BeginForeignModify = begin_modify;
    routine->BeginForeignInsert = begin_insert;
    routine->ExecForeignInsert = insert;
    routine->ExecForeignBatchInsert = insert_batch;
    routine->GetForeignModifyBatchSize = batch_size;
    routine->ExecForeignUpdate = update;
    routine->ExecForeignDelete = delete;
    routine->IsForeignRelUpdatable = updatable;
    routine->ExecForeignTruncate = gstore_truncate_callback;
}
