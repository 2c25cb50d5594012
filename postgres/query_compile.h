/*
 * postgres/query_compile.h - PostgreSQL's expressions over a table's rows as a program for the GPU (query/program.h).
 *
 * Compiled are expressions of the types of gstore_is_compiled_type() with PostgreSQL's own operators and functions: those of query_function.c,
 * query_decimal.c, query_calendar.c and query_distance.c, and what query_expr.c has of operators and choices, lists (query_list.h), and conditions on texts (query_text.h). What depends on no row
 * and has no instruction is evaluated once, before the rows or when one has come to it. An expression may raise an error only for rows
 * that PostgreSQL evaluates it for.
 */
#ifndef GSTORE_QUERY_COMPILE_H
#define GSTORE_QUERY_COMPILE_H

#include "postgres.h"

#include "nodes/execnodes.h"
#include "nodes/pg_list.h"

#include "postgres/directory.h"
#include "postgres/query_stats.h"
#include "query/wire.h"

/* What becomes of the rows that pass. */
typedef enum gstore_query_sink
{
	GSTORE_SINK_GROUPS,
	GSTORE_SINK_MARKS,		/* a bitmap of them */
	GSTORE_SINK_LIST,		/* the first ones in an order */
	GSTORE_SINK_NEAREST,	/* of each of several points the ones nearest to it */
	GSTORE_SINK_ROWS,		/* joined rows, with the values of columns */
	GSTORE_SINK_FIRST_ROWS, /* the first joined rows in an order */
} gstore_query_sink;

#define GSTORE_KEY_DESCENDING  1
#define GSTORE_KEY_NULLS_FIRST 2

/* A query over one relation, or over that joined with others. */
typedef struct gstore_query
{
	gstore_query_sink sink;
	Index			  relation; /* in the range table; 0: batched */
	/*
	 * The relation's rows are a batch (query_batch.h), whose columns are these expressions; of joined rows keys are of inner tables alone, and records
	 * begin with the row's number.
	 */
	bool  batched;
	List *batch;
	Oid table; /* the relation's; gstore_query_prepare() finds it in the range table, if it is not said */
	List *filters; /* boolean expressions, in the order in which PostgreSQL evaluates them */
	List *keys; /* of groups: none: all rows are one group, also if there is no row. Of joined rows: Var */
	List *directions; /* of a list's keys: GSTORE_KEY_... */
	List *aggregates; /* of Aggref */
	/*
	 * Of marked rows: attribute numbers and base types of columns whose values are wanted of them; of the nearest ones
	 * also their numbers, before these, and vectors.
	 */
	List *gathered, *gathered_types;
	bool  gathers_vectors;
	List *joins; /* of gstore_query_join (query_join.h), in their order, behind the filters */
	/*
	 * Of groups: the first ones in an order, of those that meet conditions; NIL: all of them, in any order. Expressions consist of
	 * keys and aggregates: as they are, or, in a plan, Var of INDEX_VAR, keys before aggregates. Of the first joined rows: expressions of columns.
	 */
	List *order, *order_directions;
	List *having;
	/* Of GSTORE_SINK_NEAREST: an operator of a column and any value, in whose place the points are; none of these is null. */
	Node			*distance;
	const Datum		*points;
	int				 point_count;
	const Bitmapset *unset; /* planning: gstore_unset_planned() */
} gstore_query;

/* What the planner is told of a query that can be compiled. */
typedef struct gstore_query_size
{
	int				  instructions;
	Bitmapset		 *columns; /* attribute numbers */
	bool			  raises;  /* a condition, or a list's key, may raise an error */
	gstore_query_kind kind;
	List			 *numbered; /* for each text by which rows are grouped, its relation */
	int				  late;		/* of joined rows: tables with columns of gstore_query_late() */
} gstore_query_size;

/* False: it cannot be compiled. */
extern bool gstore_query_measure(const gstore_query *query, gstore_query_size *size);

/* Of a query that is executed, with its values that depend on no row. Lives in the current memory context, as what follows. */
typedef struct gstore_compiled gstore_compiled;

extern gstore_compiled *gstore_query_prepare(const gstore_query *query, PlanState *parent);

/* False: it could not be compiled then, as in a kept plan after a change of TimeZone: it has no records. */
extern bool gstore_query_is_prepared(const gstore_compiled *compiled);

/*
 * The program for the rows of a view, with the parameters of now; with joins, of one view for each table, the outer one first.
 * met: bit i of those numbers of values which a row has come to that were not known (GQUERY_E_UNKNOWN): they are evaluated, too. False: it cannot
 * be compiled after all, as a list is too long, or it was not prepared. asked: otherwise it is not certain that PostgreSQL comes to any row.
 */
extern bool
gstore_query_compile(gstore_compiled *compiled, ExprContext *context, const gstore_view *views,
					 bool asked, uint64 met, gquery_program *program);

/* Of the program that was compiled last: of its values that were not known, bit i of those that a row may come to behind all rows that are asked for. */
extern uint64 gstore_query_behind(const gstore_compiled *compiled);

/* The latest gstore_query_compile() came to a value that was not prepared, as settings or scales of parameters were others then. */
extern bool gstore_query_is_outdated(const gstore_compiled *compiled);

/* Of the program that was compiled last: those of its inner tables; how many. */
extern int gstore_query_builds(const gstore_compiled *compiled, const gquery_program **builds);

/* Of the program that was compiled last: the texts of its groups; how many, GQUERY_KEYS_MAX at most. */
extern int gstore_query_texts(const gstore_compiled *compiled, gquery_wanted_text *texts);

/*
 * Values of a record (query/wire.h) of the program that was compiled last: keys, then aggregates. text_words: words of its texts, which are behind its others. ERROR as
 * PostgreSQL raises it.
 */
extern void gstore_query_result(const gstore_compiled *compiled, const uint64 *record,
								const uint32 *text_words, Datum *values, bool *nulls);

/*
 * Of joined rows, columns whose values records do not have, but the numbers of their rows: 1 + the table of a key; 0: gstore_query_result() has its value. And the row of a
 * table that has such columns; false: it has none.
 */
extern int gstore_query_late(const gstore_compiled *compiled, int key);
extern bool
gstore_query_row(const gstore_compiled *compiled, const uint64 *record, int table, uint64 *row);

/*
 * A record's words but those of texts, after the program was compiled. Of a list: keys, by which entries ascend as int64, then the row, or those of all tables. Of groups, those
 * of a state without any row are 0, for gstore_query_result(); of groups in an order such an entry is before them.
 */
extern int gstore_query_record_words(const gstore_compiled *compiled);

/* Keys of a list: one is a text. */
extern bool gstore_query_has_texts(const List *keys);
/*
 * Of an entry of the list that was compiled last: one of its texts is longer than its words are. key: the number of
 * the first such key; equal: entries with as many equal words begin with the same bytes there, and have the same
 * keys before.
 */
extern bool
gstore_query_is_cut(const gstore_compiled *compiled, const int64 *entry, int *key, int *equal);

/* Of a list that has distances in it: GSTORE_QUERY_SEARCH. */
extern gstore_query_kind gstore_query_kind_of(const gstore_compiled *compiled);
/* Of the program that was compiled last: distances that it loads, and the values that they are from; spans are within `queries`. */
extern int
gstore_query_distances(const gstore_compiled *compiled, const gquery_wanted_distance **wanted,
					   const void **queries, Size *bytes);

/*
 * Of the program that was compiled last: the places of query.gathered, or of joined rows' values, among its columns, as gquery_window.gather has them, and words of a vector.
 * False: there is no room for all of them.
 */
extern bool gstore_query_gathered(const gstore_compiled *compiled, const uint32 **places,
								  int *count, int *vector_words);
/* Programs of the groups that were found, of the one that was compiled last. */
extern int gstore_query_stages(const gstore_compiled *compiled, const gquery_program **stages);
/* Words of a record by which records have their order; 0: they have none. */
extern int gstore_query_entry_words(const gstore_compiled *compiled);

#endif
