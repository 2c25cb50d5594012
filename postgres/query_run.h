/*
 * postgres/query_run.h - a compiled query runs over all rows that are seen of a table, and its records come piece by piece.
 */
#ifndef GSTORE_QUERY_RUN_H
#define GSTORE_QUERY_RUN_H

#include "postgres.h"

#include "commands/explain.h"
#include "utils/relcache.h"

#include "postgres/directory.h"
#include "postgres/query_batch.h"
#include "postgres/query_compile.h"
#include "postgres/query_session.h"

/* What is to run: with the parameters of now, over the rows of a view (whole.h), and those of inner tables. */
typedef struct gstore_request
{
	gstore_compiled	 *compiled;
	ExprContext		 *context;
	Relation		  relation;
	gstore_row_batch *batch; /* in the relation's place; NULL: there is none */
	gstore_view		 *view;	 /* inner_count more are behind it; without rows, there are none */
	/* Of a list: so many of its first entries, of those after this one, which has so many words; NULL: from the first one on. */
	uint64		 list_max;
	const int64 *after;
	int			 after_words;
	/* Of marked rows and of the nearest ones: if no more than these pass, a list of them with the values of gstore_query.gathered. */
	uint64			gather_max;
	uint32			nearest; /* points of a search, list_max rows each; 0: it is none */
	const Relation *inner;	 /* with joins */
	int				inner_count;
	/*
	 * Of joined rows: from this row of the outer table on, 0 or gstore_run.next_row, with its slice_rows. They may end where there are
	 * list_max of them.
	 */
	uint64 first_row, slice_rows;
	bool   continues; /* of a list: a longer one may be made of the same query, with `after` */
	bool   unasked; /* of gstore_run_start(): no row may be asked for, so that no value may be evaluated that may raise an error */
} gstore_request;

typedef struct compiled_query compiled_query;

typedef struct gstore_run
{
	gstore_session *sent; /* by gstore_run_start(): the answer is not taken yet; NULL: there is none */
	gstore_session *session; /* while there are more records than these; NULL: there are not */
	const uint64   *records;
	uint64			count, at; /* of these; the next one */
	uint64			left;	   /* of the others */
	int				words;
	uint32			text_words[GQUERY_KEYS_MAX]; /* of these, of texts */
	bool			gathered; /* records are rows that passed, with their values: query/gather.h */
	bool			fetched;  /* those before are gone */
	/* Of joined rows: where the same request goes on; 0: it has all of them. */
	uint64			next_row, slice_rows;
	compiled_query *query; /* of that request, or of one that continues; NULL: it does not go on */
	uint64 met; /* of query_compile.h: values that were not known, and that a row has come to */
	char   why[GSTORE_SESSION_WHY_BYTES];
	gstore_query_counter failure; /* the same as a counter */
	gstore_query_kind	 kind;	  /* of the last request */
	/* Of all runs, for EXPLAIN. */
	uint64		total; /* records */
	gquery_cost cost;
	const char *place; /* where the last one was; NULL: there was none */
} gstore_run;

/* Queries that a backend sends to a device before they are asked for rows. The executor runs one while the other one's answer is taken. */
#define GSTORE_SENT_MOST 2

typedef enum gstore_start
{
	GSTORE_STARTED,
	GSTORE_START_LATER, /* GSTORE_SENT_MOST of others have been sent to the device, and were not answered */
	GSTORE_NOT_STARTED, /* gstore_run_begin() says why */
} gstore_start;

/*
 * Sends the query and does not wait: gstore_run_begin() takes the answer, for the same request, which then need not be unasked. Until that,
 * gstore_run_end() gives it up. From it on to gstore_run_begin() memory contexts are as they are for that. Of a run that was started: nothing.
 */
extern gstore_start gstore_run_start(gstore_run *run, const gstore_request *request);

/*
 * True: the first records are there. False: it cannot run, and why not is written. What it has taken lives in the current memory
 * context. ERROR also of a value that depends on no row, when a row has come to it.
 */
extern bool gstore_run_begin(gstore_run *run, const gstore_request *request);

/* Bytes that hash tables of the session's role may have on a GPU and on the host, by gstore_fdw.gpu_join_memory. */
extern uint64 gstore_join_memory(void);

/* A request that is not made, of such a kind, is counted. why: literal. False. */
extern bool gstore_run_refuse(gstore_run *run, const gstore_compiled *compiled, const char *why);

/* The records that are there are not needed any more. */
extern void gstore_run_forget(gstore_run *run);

/*
 * Of joined rows: those of outer rows behind those whose have been returned, by the same request. Their memory is in this context, which is reset. False: there are
 * none. ERROR if they cannot be made.
 */
extern bool gstore_run_go_on(gstore_run *run, gstore_request *request, MemoryContext context);
/* ERROR, as rows were returned before, and why not is written. */
extern void gstore_run_fail(const gstore_run *run) pg_attribute_noreturn();

/* The next piece takes the place of the one before. False: there is none. ERROR if it cannot be fetched. */
extern bool gstore_run_fetch(gstore_run *run);
/* Of a run with a session, likewise. False: it cannot be fetched, and why not is written; the session has ended. */
extern bool gstore_run_try_fetch(gstore_run *run);

/*
 * All records in one array, in the current memory context; the run has none any more. NULL: they cannot be fetched, and why not is written.
 */
extern uint64 *gstore_run_take(gstore_run *run, uint64 *count);
/* Records of so many words, in the order of the first ones, as int64. */
extern void gstore_sort_records(uint64 *records, uint64 count, int record_words, int words);
/* All records, in that order; they are the run's. False, as above. */
extern bool gstore_run_sort(gstore_run *run, int words);

/* Records that were not fetched are given up. What EXPLAIN shows stays. */
extern void gstore_run_end(gstore_run *run);

/* local: what ran in the place of the last run; NULL: nothing did. label: what records are; NULL: not shown. */
extern void
gstore_run_explain(const gstore_run *run, const char *local, const char *label, ExplainState *es);

#endif
