/* What the planner asks: sizes, paths, plans. */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "postgres/fdw.h"
#include "postgres/store.h"

#define SCAN_STARTUP_COST 10.0
#define ROW_COST_PART 0.5 /* of cpu_tuple_cost: there is no page to look into, no tuple to deform */
#define BYTES_PER_PAGE_COST 65536.0

/* Live rows of the newest version, and the bytes of the columns that are read. */
static void get_size(PlannerInfo *root, RelOptInfo *rel, Oid relation)
{
    gstore_view view;

    gstore_look(relation, ActiveSnapshotSet() ? GetActiveSnapshot() : NULL, false, &view);
    rel->tuples = (double)view.live_rows;
    rel->pages = (BlockNumber)Min((double)view.rows * 64 / BLCKSZ + 1, (double)MaxBlockNumber);
    set_baserel_size_estimates(root, rel);
}

static void get_paths(PlannerInfo *root, RelOptInfo *rel, Oid relation)
{
    const Cost startup = SCAN_STARTUP_COST + rel->baserestrictcost.startup;
    const Cost bytes = rel->tuples * (double)rel->reltarget->width / BYTES_PER_PAGE_COST * seq_page_cost;
    const Cost run = bytes + rel->tuples *
                                 (cpu_tuple_cost * ROW_COST_PART + rel->baserestrictcost.per_tuple);

    add_path(rel, (Path *)create_foreignscan_path(root, rel, NULL, rel->rows, startup, startup + run,
                                                  NIL, rel->lateral_relids, NULL, NIL));
}

/* The attribute numbers that the scan must fill, of the target list and of the conditions. */
static List *wanted_columns(PlannerInfo *root, RelOptInfo *rel, Oid relation, List *targets,
                            List *clauses)
{
    Bitmapset *attributes = NULL;
    List *wanted = NIL;
    Relation table = table_open(relation, NoLock);
    const int natts = RelationGetDescr(table)->natts;
    bool whole;

    pull_varattnos((Node *)rel->reltarget->exprs, rel->relid, &attributes);
    pull_varattnos((Node *)targets, rel->relid, &attributes);
    pull_varattnos((Node *)clauses, rel->relid, &attributes);
    whole = bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, attributes);
    for (AttrNumber n = 1; n <= natts; n++)
        if (!TupleDescAttr(RelationGetDescr(table), n - 1)->attisdropped &&
            (whole || bms_is_member(n - FirstLowInvalidHeapAttributeNumber, attributes)))
            wanted = lappend_int(wanted, n);
    table_close(table, NoLock);
    return wanted;
}

static ForeignScan *get_plan(PlannerInfo *root, RelOptInfo *rel, Oid relation, ForeignPath *path,
                             List *targets, List *clauses, Plan *outer)
{
    List *actual = extract_actual_clauses(clauses, false);

    return make_foreignscan(targets, actual, rel->relid, NIL,
                            list_make1(wanted_columns(root, rel, relation, targets, actual)), NIL,
                            NIL, outer);
}

void gstore_plan_callbacks(FdwRoutine *routine)
{
    routine->GetForeignRelSize = get_size;
    routine->GetForeignPaths = get_paths;
    routine->GetForeignPlan = get_plan;
}
