/*
 * postgres/query_run.h - a compiled query runs over all rows that are seen of a table. Its records: query_records.h.
 */
#ifndef GSTORE_QUERY_RUN_H
#define GSTORE_QUERY_RUN_H

#include "postgres.h"

#include "postgres/query_request.h"

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
	uint64			 next_row, slice_rows;
	gstore_prepared *query; /* of that request, or of one that continues; NULL: it does not go on */
	uint64 met; /* of query_compile.h: values that were not known, and that a row has come to */
	char   why[GSTORE_SESSION_WHY_BYTES];
	gstore_query_counter failure; /* the same as a counter */
	gstore_query_kind	 kind;	  /* of the last request */
	gstore_run_figures	 figures; /* of all requests */
} gstore_run;

/* Of what fails when rows have been returned, so that the local plan cannot begin any more. */
#define GSTORE_REPEAT_HINT \
	"Repeat the statement. With gstore_fdw.gpu_queries off it runs without the GPU."

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

#define GSTORE_WHY_TWO_STORES "rows are in two stores"

/* A request that is not made, of such a kind, is counted. why: literal. False. */
extern bool gstore_run_refuse(gstore_run *run, const gstore_compiled *compiled, const char *why);

/*
 * Of joined rows: those of outer rows behind those whose have been returned, by the same request. Their memory is in this context, which is reset. False: there are
 * none. ERROR if they cannot be made.
 */
extern bool gstore_run_go_on(gstore_run *run, gstore_request *request, MemoryContext context);
/* ERROR, as rows were returned before, and why not is written. */
extern void gstore_run_fail(const gstore_run *run) pg_attribute_noreturn();

/* Records that were not fetched are given up. What EXPLAIN shows stays. */
extern void gstore_run_end(gstore_run *run);

#endif
