/*
 * postgres/tid.h - conditions that name rows by ctid, so that a scan looks at those rows alone.
 *
 * They are: ctid = value, and ctid = ANY (array), where value and array depend on no row. Several of them
 * name the rows that each of them names.
 */
#ifndef GSTORE_TID_H
#define GSTORE_TID_H

#include "postgres.h"

#include "nodes/execnodes.h"

typedef struct gstore_tids gstore_tids;

/* Planning: whether the clause is such a condition on the relation. */
extern bool gstore_names_rows(Expr *clause, Index relation);

/* Of clauses that are. Lives in the current memory context. */
extern gstore_tids *gstore_tids_create(List *clauses, Index relation, PlanState *parent);

/*
 * The row numbers that are named, as the values are now: ascending, each once. Returns how many; they are
 * good until the next call.
 */
extern uint64 gstore_tids_evaluate(gstore_tids *tids, ExprContext *context, const uint64 **rows);

#endif
