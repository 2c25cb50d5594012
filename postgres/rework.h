/* postgres/rework.h - values that rows get by the table's definition. */
#ifndef GSTORE_REWORK_H
#define GSTORE_REWORK_H

#include "postgres.h"

#include "executor/executor.h"
#include "nodes/bitmapset.h"
#include "utils/rel.h"

/* What a column has where nothing is said; NULL: NULL. A domain may forbid that. */
extern Expr *gstore_default_of(Relation relation, const Form_pg_attribute attribute);

typedef struct gstore_default
{
	int		   index;
	ExprState *evaluate;
} gstore_default;

/* Those of columns (attribute numbers) that have one; generated ones come last, for they see the others. */
extern int gstore_prepare_defaults(Relation relation, const Bitmapset *columns, EState *estate,
								   gstore_default **out);
extern void
gstore_set_defaults(const gstore_default *all, int count, TupleTableSlot *slot, EState *estate);

/*
 * What makes a value of the column's type from one of the type below its domains, without a length; NULL: it is one already.
 * The value is that of the expression's CASE. ERROR where it is too long, or not within the domain.
 */
extern Expr *gstore_coercion_of(const Form_pg_attribute attribute);

#endif
