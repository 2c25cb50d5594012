/* Rows of a table that has been altered: written anew with the defaults of new columns, or held against
 * new constraints. PostgreSQL does neither for foreign tables. */
#include "postgres.h"

#include "executor/executor.h"
#include "rewrite/rewriteHandler.h"
#include "utils/memutils.h"

#include "postgres/pending.h"
#include "postgres/scan.h"

typedef struct default_value {
    int index;
    bool generated;
    ExprState *evaluate;
} default_value;

/* Those of columns that have one; generated ones come last, for they see the others. */
static int prepare_defaults(Relation relation, const Bitmapset *added, EState *estate,
                            default_value **out)
{
    const TupleDesc desc = RelationGetDescr(relation);
    default_value *all = palloc0(sizeof *all * (Size)(bms_num_members(added) + 1));
    int count = 0;

    for (int generated = 0; generated <= 1; generated++) {
        int number = -1;

        while ((number = bms_next_member(added, number)) >= 0) {
            const Form_pg_attribute a = TupleDescAttr(desc, number - 1);
            Expr *value;

            if (a->attisdropped || (a->attgenerated != '\0') != generated)
                continue;
            value = (Expr *)build_column_default(relation, number);
            if (value != NULL)
                all[count++] = (default_value){.index = number - 1,
                                               .generated = generated,
                                               .evaluate = ExecPrepareExpr(value, estate)};
        }
    }
    *out = all;
    return count;
}

static void set_defaults(const default_value *all, int count, TupleTableSlot *slot, EState *estate)
{
    ExprContext *context = GetPerTupleExprContext(estate);

    context->ecxt_scantuple = slot;
    for (int i = 0; i < count; i++)
        slot->tts_values[all[i].index] = ExecEvalExprSwitchContext(all[i].evaluate, context,
                                                                   &slot->tts_isnull[all[i].index]);
}

void gstore_rework(Relation relation, const Bitmapset *added)
{
    const TupleDesc desc = RelationGetDescr(relation);
    EState *estate = CreateExecutorState();
    MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
    TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
    ResultRelInfo *result = makeNode(ResultRelInfo);
    gstore_segment segments[GSTORE_SEGMENTS_MAX];
    const int segment_count = gstore_choose_rows(relation, NULL, false, segments);
    gstore_walk *walk = gstore_walk_begin(relation, segments, segment_count);
    gstore_pending *pending = NULL;
    default_value *defaults;
    const int count = prepare_defaults(relation, added, estate, &defaults);

    InitResultRelInfo(result, relation, 0, NULL, 0);
    if (count > 0) {
        pending = gstore_pending_begin(relation);
        gstore_truncate(pending);
    }
    while (gstore_walk_next(walk, slot)) {
        set_defaults(defaults, count, slot, estate);
        if (desc->constr != NULL)
            ExecConstraints(result, slot, estate);
        if (pending != NULL)
            gstore_insert(pending, slot);
        ResetPerTupleExprContext(estate);
    }
    gstore_walk_end(walk);
    ExecDropSingleTupleTableSlot(slot);
    MemoryContextSwitchTo(old);
    FreeExecutorState(estate);
}
