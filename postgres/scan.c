/* Reading a table: the version that the statement sees, its rows in batches.
 *
 * A scan is over at most two segments: the rows of a committed version, and those that this transaction
 * has added behind.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "postgres/fdw.h"
#include "postgres/pending.h"

typedef struct segment {
    gstore_view view;
    uint64 first, limit;
} segment;

typedef struct scan_state {
    MemoryContext context; /* of segments and batch */
    Bitmapset *wanted;
    int *indexes; /* of the wanted columns, attribute number - 1 */
    int index_count;
    bool target; /* of UPDATE or DELETE */
    bool begun;
    segment segments[2];
    int segment_count, at;
    uint64 row; /* next */
    gstore_batch *batch;
    uint64 batches, bytes; /* for EXPLAIN */
} scan_state;

static bool is_target(const ForeignScanState *node)
{
    const ForeignScan *plan = (const ForeignScan *)node->ss.ps.plan;
    const PlannedStmt *statement = node->ss.ps.state->es_plannedstmt;

    return (statement->commandType == CMD_UPDATE || statement->commandType == CMD_DELETE) &&
           list_member_int(statement->resultRelations, (int)plan->scan.scanrelid);
}

static void begin(ForeignScanState *node, int flags)
{
    const ForeignScan *plan = (const ForeignScan *)node->ss.ps.plan;
    scan_state *state = palloc0(sizeof *state);
    ListCell *cell;

    state->indexes = palloc(sizeof(int) * (Size)(list_length(linitial(plan->fdw_private)) + 1));
    foreach (cell, (List *)linitial(plan->fdw_private)) {
        state->wanted = bms_add_member(state->wanted, lfirst_int(cell));
        state->indexes[state->index_count++] = lfirst_int(cell) - 1;
    }
    state->target = is_target(node);
    state->context = AllocSetContextCreate(CurrentMemoryContext, "gstore scan", ALLOCSET_DEFAULT_SIZES);
    node->fdw_state = state;
}

/* ---- which rows */

static void add_segment(scan_state *state, const gstore_view *view, uint64 first, uint64 limit)
{
    if (!view->empty && limit > first)
        state->segments[state->segment_count++] = (segment){*view, first, limit};
}

/* The lock is held. Somebody may have committed between the snapshot and the lock. */
static void look_as_target(Relation relation, Snapshot snapshot, gstore_view *view)
{
    gstore_view seen;

    gstore_look(RelationGetRelid(relation), snapshot, false, &seen);
    gstore_look(RelationGetRelid(relation), NULL, true, view);
    if (IsolationUsesXactSnapshot() && view->revision != seen.revision)
        ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                        errmsg("could not serialize access due to concurrent update")));
}

static void choose_rows(ForeignScanState *node, scan_state *state)
{
    const Relation relation = node->ss.ss_currentRelation;
    const Snapshot snapshot = node->ss.ps.state->es_snapshot;
    const CommandId before = snapshot->curcid;
    gstore_pending *pending;
    gstore_view view;
    bool replaced = false;

    if (state->target) {
        LockRelation(relation, ShareUpdateExclusiveLock);
        look_as_target(relation, snapshot, &view);
    } else
        gstore_look(RelationGetRelid(relation), snapshot, true, &view);
    if (!view.empty)
        gstore_check_columns(relation, &view);
    pending = gstore_pending_find(RelationGetRelid(relation));
    if (pending != NULL) {
        replaced = gstore_pending_replaced(pending, before);
        if (!replaced)
            gstore_pending_bury(pending, before, &view);
    }
    if (!replaced)
        add_segment(state, &view, 0, view.rows);
    if (pending != NULL) {
        uint64 first, limit;
        gstore_view own = *gstore_pending_rows(pending, before, &first, &limit);

        own.dead = NULL;
        own.dead_bytes = 0;
        gstore_pending_bury(pending, before, &own);
        add_segment(state, &own, first, limit);
    }
}

static void begin_rows(ForeignScanState *node, scan_state *state)
{
    MemoryContext old = MemoryContextSwitchTo(state->context);

    state->batch = gstore_batch_create(RelationGetDescr(node->ss.ss_currentRelation)->natts);
    choose_rows(node, state);
    state->row = state->segment_count > 0 ? state->segments[0].first : 0;
    state->begun = true;
    MemoryContextSwitchTo(old);
}

/* ---- rows */

static void fill_slot(const scan_state *state, const segment *s, uint64 row, TupleTableSlot *slot)
{
    for (int i = 0; i < state->index_count; i++) {
        const int index = state->indexes[i];
        const gstore_column *column = &s->view.columns[index];

        if (index >= s->view.column_count || column->dropped ||
            gstore_is_null(state->batch, column, index, row))
            slot->tts_isnull[index] = true;
        else {
            slot->tts_isnull[index] = false;
            slot->tts_values[index] = gstore_value(state->batch, column, index, row);
        }
    }
}

static TupleTableSlot *iterate(ForeignScanState *node)
{
    scan_state *state = node->fdw_state;
    TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

    if (!state->begun)
        begin_rows(node, state);
    ExecClearTuple(slot);
    while (state->at < state->segment_count) {
        const segment *s = &state->segments[state->at];
        const uint64 row = state->row;

        if (row >= s->limit) {
            state->at++;
            if (state->at < state->segment_count)
                state->row = state->segments[state->at].first;
            state->batch->count = 0;
            continue;
        }
        if (row >= state->batch->first + state->batch->count || row < state->batch->first) {
            CHECK_FOR_INTERRUPTS();
            state->bytes += gstore_read(state->batch, &s->view, state->wanted, row, s->limit - row);
            state->batches++;
        }
        state->row++;
        if (gstore_view_is_dead(&s->view, row))
            continue;
        memset(slot->tts_isnull, true, sizeof(bool) * (Size)slot->tts_tupleDescriptor->natts);
        fill_slot(state, s, row, slot);
        gstore_row_to_tid(row, &slot->tts_tid);
        return ExecStoreVirtualTuple(slot);
    }
    return slot;
}

static void rescan(ForeignScanState *node)
{
    scan_state *state = node->fdw_state;

    if (!state->begun)
        return;
    state->at = 0;
    state->row = state->segment_count > 0 ? state->segments[0].first : 0;
    state->batch->count = 0;
}

static void end(ForeignScanState *node)
{
    scan_state *state = node->fdw_state;

    if (state != NULL)
        MemoryContextDelete(state->context);
}

static void explain(ForeignScanState *node, ExplainState *es)
{
    const scan_state *state = node->fdw_state;

    ExplainPropertyInteger("Columns Read", NULL,
                           list_length(linitial(((ForeignScan *)node->ss.ps.plan)->fdw_private)), es);
    if (es->analyze && state != NULL) {
        ExplainPropertyInteger("Batches", NULL, (int64)state->batches, es);
        ExplainPropertyInteger("Bytes Moved", NULL, (int64)state->bytes, es);
    }
}

void gstore_scan_callbacks(FdwRoutine *routine)
{
    routine->BeginForeignScan = begin;
    routine->IterateForeignScan = iterate;
    routine->ReScanForeignScan = rescan;
    routine->EndForeignScan = end;
    routine->ExplainForeignScan = explain;
}
