/*
 * postgres/query_compiled.h - what the files share that compile queries with aggregates: query_compile.c, query_stages.c for the programs after the
 * first one, query_order_key.c for keys of ordered lists, and query_result.c for what they return.
 *
 * What several aggregates need of one argument is computed once: an *accumulator* is an argument under a condition, with the words of the
 * state that it is added to. That no value was not NULL is known by a count; where none of the values can be NULL, by a count of rows, which
 * all arguments share, or by the group itself.
 *
 * Circle: query_compile.c and query_stages.c call each other, because values of groups are ordered, filtered and added up as those of rows are.
 */
#ifndef GSTORE_QUERY_COMPILED_H
#define GSTORE_QUERY_COMPILED_H

#include "postgres.h"

#include "fmgr.h"

#include "postgres/query_compile.h"
#include "postgres/query_distance.h"
#include "postgres/query_expr.h"

/* What is added up of an argument. */
typedef enum gstore_summand
{
	SUMMAND_VALUE,
	SUMMAND_SQUARE,
	SUMMAND_DAYS, /* of an interval, whole ones */
} gstore_summand;

typedef struct gstore_accumulator
{
	Node		  *argument; /* NULL: rows are counted */
	gstore_summand summand;
	bool		   distinct; /* of equal values one */
	bool		   merged; /* of a stage: a sum has five words, of its halves: both sums, and how many low halves are negative as int64 */
	bool   full_scale; /* of decimals with the greater one of two scales; they are counted alone */
	Node  *filter;	   /* NULL: of all rows */
	uint32 wanted;	   /* a bit for each gquery_aggregate */
	bool   counted;	   /* the number of values is wanted, too */
	uint8  at[GQUERY_AGGREGATES]; /* the first word of each that is wanted */
	int	   scale;				  /* of decimals */
	bool   mixed; /* there are two: this one, if full_from counts any, and a smaller one */
	int	   low, full_from;
	int	   count_from; /* whose count is that of values: this one's, or one that counts rows; -1: it is not known, and not 0 */
} gstore_accumulator;

typedef enum gstore_result_kind
{
	RESULT_COUNT,
	RESULT_VALUE,	 /* of the argument's type */
	RESULT_BIGINT,	 /* from a sum */
	RESULT_NUMERIC,	 /* the same */
	RESULT_QUOTIENT, /* of a sum and a count */
	RESULT_FLOAT,	 /* a sum */
	RESULT_FLOAT_QUOTIENT,
	RESULT_STATISTIC, /* a final function's, of a count, a sum and a sum of squares */
	RESULT_INTERVAL,  /* from a sum, and one of days */
	RESULT_INTERVAL_QUOTIENT,
} gstore_result_kind;

typedef struct gstore_aggregate_function
{
	Oid		   function;
	uint8	   aggregate; /* gquery_aggregate */
	uint8	   result;
	PGFunction final; /* of RESULT_STATISTIC */
} gstore_aggregate_function;

/* What an Aggref is made of. */
typedef struct gstore_aggregate
{
	const gstore_aggregate_function *function;
	Oid								 type;
	Oid								 argument; /* its type */
	bool							 partial;  /* the state is returned, as query_state.h has it */
	int accumulator, other; /* other: of SUMMAND_SQUARE or SUMMAND_DAYS, if the result needs one */
} gstore_aggregate;

/* A text by which rows are grouped. */
typedef struct gstore_text_key
{
	gquery_wanted_text wanted;
	bool			   trimmed; /* blanks at its end are not shown */
} gstore_text_key;

/* A text that is a key of a list: the key's number, and the entry's words up to its last one. */
typedef struct gstore_list_text
{
	int	 key, end;
	bool descending;
} gstore_list_text;

struct gstore_compiled
{
	gstore_query query;
	bool		 prepared; /* all that follows is known */
	List		*values;   /* of the emitter */
	uint64		 behind;   /* the same */
	bool		 outdated; /* the latest run came to a value that was not prepared */
	int			 key_count, key_words;
	int			 distinct_words; /* of the first program's keys: the last ones */
	int			 entry_words;	 /* of groups in an order: those before a group's */
	int			 state_words;
	bool		 raises; /* a condition or a key of a list may */
	Oid			*key_types;
	int			*key_scales;
	/* Of joined rows: 1 + the table of a column that is read by its row's number; 0: records have its values. */
	int			   *key_late;
	int				late_count; /* of these tables */
	int				row_words[GQUERY_TABLES_MAX]; /* of each: which word of the records' keys has the row; of a list's entries, which word */
	int				text_count;
	gstore_text_key texts[GQUERY_KEYS_MAX + 1]; /* of keys that are texts, in their order; one is being made */
	int				list_text_count;
	gstore_list_text	list_texts[GQUERY_KEYS_MAX];
	int					accumulator_count, output_count;
	int					distinct_at; /* its gstore_accumulator */
	gstore_accumulator *accumulators;
	gstore_aggregate   *outputs;
	gstore_distances	distances;
	Node			   *distinct; /* the argument of DISTINCT; NULL: there is none */
	int					stage_count;
	gquery_program	   *stages; /* NULL: there are none */
	uint32				gathered[GQUERY_COLUMNS_MAX];
	int					gathered_count;
	bool				gathers;
	gquery_program	   *builds; /* of inner tables */
};

/* The accumulator whose count says how many values one had; NULL: it is not known, and not 0. */
static inline const gstore_accumulator *
gstore_counter_of(const gstore_compiled *c, const gstore_accumulator *a)
{
	if (a->argument == NULL)
		return a;
	return a->count_from < 0 ? NULL : &c->accumulators[a->count_from];
}

static inline uint32
gstore_count_word(const gstore_accumulator *a, const gstore_accumulator *counter)
{
	return counter->at[counter == a && a->argument != NULL ? GQUERY_COUNT : GQUERY_COUNT_ROWS];
}

/* A transition state is returned that is not what a result is made of, too. */
static inline bool
gstore_returns_state(const gstore_aggregate *o)
{
	return o->partial && o->function->result >= RESULT_NUMERIC && o->function->result != RESULT_FLOAT;
}

/* Words of records that a key has: decimals are not on the stack, where joined rows are sent. */
static inline int
gstore_key_words(const gstore_compiled *c, Oid type)
{
	return c->query.sink == GSTORE_SINK_ROWS && type == NUMERICOID ? 2 : gstore_stack_words(type);
}

/* A program is not cleared: most of it has no meaning. */
static inline void
gstore_start_program(gquery_program *program)
{
	program->column_count = program->code_count = program->value_count = program->state_words = 0;
}

/* ---- query_compile.c */

extern bool
gstore_emit_filters(gstore_compiled *compiled, gstore_emitter *emitter, const List *filters);
/* The value on the stack, of this type, goes to each of the words that are wanted of it. */
extern bool gstore_emit_words(gstore_emitter *emitter, gstore_accumulator *accumulator, Oid type);
/* Whether the executor accepts it. */
extern bool gstore_check_program(const gquery_program *program);

/* ---- query_order_key.c */

/* Values for GQUERY_EMIT, by which the key's ascend as the direction (GSTORE_KEY_...) has it; they are added to key_words. */
extern bool
gstore_emit_list_key(gstore_compiled *compiled, gstore_emitter *emitter, Node *key, int direction);
/* Of all keys, and GQUERY_EMIT. */
extern bool gstore_emit_list_keys(gstore_compiled *compiled, gstore_emitter *emitter,
								  const List *keys, const List *directions);

/* ---- query_stages.c */

/* Of the groups of the emitter's program: the programs after it. */
extern bool gstore_emit_stages(gstore_compiled *compiled, gstore_emitter *emitter);

#endif
