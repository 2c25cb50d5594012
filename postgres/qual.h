/*
 * postgres/qual.h - simple conditions, evaluated on the columns of a batch before any row is made.
 *
 * Simple are: column op value, where op is a comparison (= <> < <= > >=) of integers, decimals, floats, dates,
 * times, oid, "char" or boolean and the value depends on no row; column IS [NOT] NULL; a boolean column
 * and its negation. Everything else stays with the executor.
 */
#ifndef GSTORE_QUAL_H
#define GSTORE_QUAL_H

#include "postgres/store.h"

#include "nodes/execnodes.h"

/* Types of one family compare with each other; 0: values are not compared here. */
extern int gstore_type_family(Oid type);
/* How PostgreSQL's own operators compare: a btree's strategy, or ROWCOMPARE_NE; InvalidStrategy: otherwise. */
extern int gstore_operator_strategy(Oid operator);
/* Its value is one for a whole scan. */
extern bool gstore_is_row_independent(Node *node);

typedef struct gstore_quals gstore_quals;

/* Planning: whether a scan of the relation can evaluate the clause. */
extern bool gstore_qual_is_simple(Expr *clause, Index relation);

/* Of clauses that are simple. Lives in the current memory context. */
extern gstore_quals *gstore_quals_create(List *clauses, Index relation, PlanState *parent);

/* The values to compare with, as they are now. */
extern void gstore_quals_evaluate(gstore_quals *quals, ExprContext *context);

/*
 * Keeps of rows (their places in the batch, ascending) those that meet every condition; returns how
 * many. The columns in question have been read.
 */
extern uint32 gstore_quals_select(const gstore_quals *quals, const gstore_batch *batch,
								  const gstore_view *view, uint32 *rows, uint32 count);

#endif
