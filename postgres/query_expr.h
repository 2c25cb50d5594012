/*
 * postgres/query_expr.h - instructions of a program (query/program.h) for one expression: what query_compile.c is made of.
 *
 * Circle: query_choice.c, query_decimal.c, query_distance.c, query_enum.c, query_expr.c, query_list.c, query_text.c and query_time.c call each other, because an expression
 * contains others, of which choices, decimals, distances, lists, texts and times have files of their own.
 */
#ifndef GSTORE_QUERY_EXPR_H
#define GSTORE_QUERY_EXPR_H

#include "postgres.h"

#include "nodes/execnodes.h"
#include "nodes/pg_list.h"

#include "postgres/directory.h"
#include "postgres/query_word.h"
#include "query/program.h"

struct gstore_case;
struct gstore_distances;
struct gstore_emitter;
struct gstore_emitted;

/* Of a stage: an expression that is a value of a group; which: as of gstore_emit_word(). False: it is none, or has no instructions. */
typedef bool (*gstore_emit_group)(struct gstore_emitter *emitter, Node *node, int which,
								  struct gstore_emitted *out);

/*
 * Instructions are emitted in three passes over the same expressions: planning (neither parent nor context), where values that
 * depend on no row are not known; preparing (parent), which keeps their states in `values`; and running (context, view), which
 * evaluates them. An instruction may differ between passes. Where running comes to a value that was not prepared, the local plan runs.
 *
 * To evaluate such a value may raise an error. PostgreSQL does so when the first row comes to it. Where none may, the program has
 * GQUERY_UNKNOWN in its place, and if the executor reports that a row has come there, the query runs again with that value.
 */
#define GSTORE_MET_MAX \
	(64 - GQUERY_JOINS_MAX) /* values that are evaluated because a row has come to them */

/*
 * What a row has come to where the program has GQUERY_UNKNOWN with this number, as a bit of `met`: value i, or the join with inner table i, whose own
 * program has values that are not known. 0: none that is noted.
 */
#define GSTORE_UNKNOWN_JOIN 0x10000
static inline uint64
gstore_met_bit(uint32 number)
{
	if (number >= GSTORE_UNKNOWN_JOIN)
		number = number - GSTORE_UNKNOWN_JOIN + GSTORE_MET_MAX;
	else if (number >= GSTORE_MET_MAX)
		return 0;
	return number < 64 ? UINT64CONST(1) << number : 0;
}

typedef struct gstore_emitter
{
	gquery_program	  *program;
	Index			   relation;
	Oid				   table;	/* the relation's */
	Bitmapset		  *columns; /* attribute numbers that are read */
	List			  *values;
	PlanState		  *parent;
	ExprContext		  *context;
	const gstore_view *view;  /* with joins, one for each table */
	const List		  *joins; /* of gstore_query_join: tables from 1 on */
	const List		  *batch; /* of gstore_query: table 0 is none */
	bool			   batched;
	const Bitmapset	  *unset;	  /* parameters: of gstore_is_plain() */
	int				   guarded;	  /* inside of what is evaluated for some rows alone */
	int				   computing; /* inside of what computes with decimals: NaN is none then */
	bool full_scale; /* of mixed decimals NULL is emitted in place of those with the smaller scale */
	bool   certain;	 /* outside of that, some row comes here, and has raised no error before */
	uint64 met;		 /* bits of gstore_met_bit(): a row has come to it */
	bool   lazy;	 /* rows may be returned before others come here */
	bool   local;	 /* the local plan may not come here though the program does */
	uint64 behind;	 /* bit i: number i of `values` is of one of these alone */
	uint32 unknown;	 /* number of the value that gstore_evaluate() was asked for last */
	uint32 missing;	 /* how often it was not known */
	bool unprepared; /* running: there is a value that was not prepared, so the program is not to run */
	uint32 waiting; /* bit i: the program of inner table i has such values, and no row is known to come to its join */
	bool any_length; /* there is a distance from a value that may have another length, which is an error */
	/* Of gstore_report_refused(): the innermost part that has no instructions; as what, NULL: as a value. Or there is no room for them. */
	Node					*refused;
	const char				*refused_as;
	bool					 full;
	struct gstore_case		*scope;		/* what a CASE compares with */
	struct gstore_distances *distances; /* NULL: there are to be none */
	/* Of a stage, whose rows are groups: */
	gstore_emit_group		emit_group; /* NULL: it is none */
	struct gstore_compiled *groups;
} gstore_emitter;

/* The value that instructions leave on the stack. */
typedef struct gstore_emitted
{
	Oid	 type; /* below any domain. Of a uuid the value is that of the first half, which tells whether it is NULL */
	bool nullable; /* it may be NULL */
	bool raises;   /* PostgreSQL may raise an error on the way to it */
	bool mixed; /* a decimal that PostgreSQL has with this scale in some rows, with a smaller one in others */
	int	 low;	   /* mixed: that scale; GSTORE_SCALE_SEVERAL: there are several */
	bool absorbed; /* some operand of it is mixed, and it has one scale nevertheless */
	int	 scale;	   /* of a decimal; GSTORE_SCALE_ANY: it is NULL */
} gstore_emitted;

#define GSTORE_SCALE_ANY	 PG_INT32_MIN
#define GSTORE_SCALE_SEVERAL PG_INT32_MAX

/* False: there are no instructions for the expression, or no room for them. */
extern bool gstore_emit_expression(gstore_emitter *emitter, Node *node, gstore_emitted *out);
/* Which of the values of the stack that the expression's value has (gstore_stack_words()). */
extern bool gstore_emit_word(gstore_emitter *emitter, Node *node, int which, gstore_emitted *out);
extern bool gstore_emit(gstore_emitter *emitter, gquery_op op, uint32 a, uint32 b);

/* The place of a column of the table among those of the program. False: as is said of find_column(). */
extern bool gstore_emit_gathered(gstore_emitter *emitter, int number, Oid type, uint32 *at);
/* Likewise of any table, of what is a column alone. which: as of gstore_emit_word(). */
extern bool gstore_emit_joined(gstore_emitter *emitter, const Node *node, int which, uint32 *at,
							   gstore_emitted *out);
/* The table of what is a column alone, of any type: its number in the program. False: it is none. */
extern bool gstore_find_row(const gstore_emitter *emitter, const Node *node, uint32 *table);

/*
 * An expression that depends on no row. True: its value is known in this pass. raises: it is not, and to evaluate it may raise an
 * error.
 */
extern bool
gstore_evaluate(gstore_emitter *emitter, Expr *expression, Datum *value, bool *null, bool *raises);

extern bool gstore_emit_constant(gstore_emitter *emitter, int64 word);
extern bool gstore_emit_instruction(gstore_emitter *emitter, gquery_instruction instruction);

extern bool gstore_emit_null(gstore_emitter *emitter, gstore_emitted *out);
/* Compares the value that was emitted last with one of the same family of types. op: GQUERY_EQ to GQUERY_DISTINCT. */
extern bool gstore_emit_compared(gstore_emitter *emitter, gstore_emitted left, Node *right,
								 gquery_op op, gstore_emitted *out);

/* ---- of query_choice.c */

/* What the CASE compares with that is around the expression; NULL: there is none. */
extern Node *gstore_case_value(const gstore_emitter *emitter);

/* ---- of query_text.c */

/* The place of an expression's column of texts; numbered: GQUERY_NUMBERED, or 0; nullable: it may be NULL. False: it is none, or as is said of find_column(). */
extern bool
gstore_find_text(gstore_emitter *emitter, const Node *node, int numbered, uint32 *at, bool *nullable);

/* ---- of query_list.c */

/* GQUERY_EQ to GQUERY_GE: how one of PostgreSQL's own operators compares. */
extern bool gstore_find_comparison(Oid operator, gquery_op * op);
/* Values compare on the stack. */
extern bool gstore_equal_types(const gstore_emitted *left, const gstore_emitted *right);

#endif
