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
#include "nodes/pathnodes.h"

/* Types of one family compare with each other; 0: values are not compared here. */
extern int gstore_type_family(Oid type);
/* How PostgreSQL's own operators compare: a btree's strategy, or ROWCOMPARE_NE; InvalidStrategy: otherwise. */
extern int gstore_operator_strategy(Oid operator);
/* Its value is one for a whole scan. */
extern bool gstore_is_row_independent(Node *node);

/*
 * To evaluate such a value raises no error. unset: parameters (PARAM_EXEC) that subqueries set once they are needed.
 */
extern bool gstore_is_plain(const Node *node, const Bitmapset *unset);
/* In planning, as they are then; and while a query is executed, as they are now. */
extern const Bitmapset *gstore_unset_planned(const PlannerInfo *root);
extern const Bitmapset *gstore_unset_now(const ExprContext *context);

typedef struct gstore_quals gstore_quals;

/* Planning: whether a scan of the relation can evaluate the clause; before clauses, too, that PostgreSQL evaluates first. */
extern bool gstore_qual_is_simple(Expr *clause, Index relation);
extern bool gstore_qual_is_movable(Expr *clause, Index relation, const Bitmapset *unset);

/* Of clauses that are simple. Lives in the current memory context. */
extern gstore_quals *gstore_quals_create(List *clauses, Index relation, PlanState *parent);

/* Parameters have changed: the values to compare with are evaluated anew. */
extern void gstore_quals_reset(gstore_quals *quals);

/*
 * Keeps of rows (their places in the batch, ascending) those that meet every condition; returns how
 * many. The columns in question have been read. A value is evaluated, by the context, when a row comes to its condition.
 */
extern uint32 gstore_quals_select(gstore_quals *quals, ExprContext *context, const gstore_batch *batch,
								  const gstore_view *view, uint32 *rows, uint32 count);

#endif
