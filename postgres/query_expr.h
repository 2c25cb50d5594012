/*
 * postgres/query_expr.h - instructions of a program (query/program.h) for one expression: what query_compile.c is made of.
 */
#ifndef GSTORE_QUERY_EXPR_H
#define GSTORE_QUERY_EXPR_H

#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/execnodes.h"
#include "nodes/pg_list.h"

#include "postgres/directory.h"
#include "query/program.h"

struct gstore_case;
struct gstore_distances;

/*
 * Instructions are emitted in three passes over the same expressions: planning (neither parent nor context), where values that
 * depend on no row are not known; preparing (parent), which keeps their states in `values`; and running (context, view), which
 * evaluates them. An instruction may differ between passes, and which values there are does not.
 *
 * To evaluate such a value may raise an error. PostgreSQL does so when the first row comes to it. Where none may, the program has
 * GQUERY_UNKNOWN in its place, and if the executor reports that a row has come there, the query runs again with evaluates_all.
 */
typedef struct gstore_emitter
{
	gquery_program			*program;
	Index					 relation;
	Bitmapset				*columns; /* attribute numbers that are read */
	List					*values;
	PlanState				*parent;
	ExprContext				*context;
	const gstore_view		*view;	  /* with joins, one for each table */
	const List				*joins;	  /* of gstore_query_join: tables from 1 on */
	const Bitmapset			*unset;	  /* parameters: of gstore_is_plain() */
	int						 guarded; /* inside of what is evaluated for some rows alone */
	bool					 certain; /* outside of that, some row comes here */
	bool					 evaluates_all;
	Node					*condition; /* the one that is emitted; NULL: none is */
	struct gstore_case		*scope;		/* what a CASE compares with */
	struct gstore_distances *distances; /* NULL: there are to be none */
} gstore_emitter;

/* The value that instructions leave on the stack. */
typedef struct gstore_emitted
{
	Oid	 type;	   /* below any domain */
	bool nullable; /* it may be NULL */
	bool raises;   /* an error may be raised on the way to it */
} gstore_emitted;

/* False: there are no instructions for the expression, or no room for them. */
extern bool gstore_emit_expression(gstore_emitter *emitter, Node *node, gstore_emitted *out);
extern bool gstore_emit(gstore_emitter *emitter, gquery_op op, uint32 a, uint32 b);

/*
 * An expression that depends on no row. True: its value is known in this pass. raises: it is not, and to evaluate it may raise an
 * error.
 */
extern bool
gstore_evaluate(gstore_emitter *emitter, Expr *expression, Datum *value, bool *null, bool *raises);

/* Of a type that can be on the stack. */
extern bool gstore_is_compiled_type(Oid type);

static inline bool
gstore_is_float(Oid type)
{
	return type == FLOAT4OID || type == FLOAT8OID;
}

/* A value as the stack has it, and back. */
extern int64 gstore_stack_word(Datum value, Oid type);
extern Datum gstore_stack_value(int64 word, Oid type);
/* GQUERY_ORDER_KEY of a double as the stack has it; it is its own inverse, but that all NaNs are one, and -0 is 0. */
extern int64 gstore_order_key(int64 word);
/* The double of a key. */
extern int64 gstore_order_value(int64 key);

#endif
