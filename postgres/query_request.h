/*
 * postgres/query_request.h - what is to run, compiled, and written with its tables' tokens into the memory file of a session.
 */
#ifndef GSTORE_QUERY_REQUEST_H
#define GSTORE_QUERY_REQUEST_H

#include "postgres.h"

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
	bool   must_run;  /* rows have been returned, and no local plan has the others */
	bool   unasked; /* of gstore_run_start(): no row may be asked for, so that no value may be evaluated that may raise an error */
} gstore_request;

/* A request, compiled, and the memory that it may have. */
typedef struct gstore_prepared gstore_prepared;

/* Without a program yet. Lives in the current memory context. */
extern gstore_prepared *gstore_request_create(void);

/*
 * Compiled, if it is not yet, or other values were met (query_compile.h) then; the session's window is filled. NULL: it cannot run, and why not is
 * written, in words and as a counter.
 */
extern gstore_session *
gstore_request_prepare(const gstore_request *request, gstore_prepared *query, uint64 met,
					   char why[GSTORE_SESSION_WHY_BYTES], gstore_query_counter *failure);

/* Of what has been prepared: words of its records, but those of texts; of gathered rows, 0: they are not to be gathered. */
typedef struct gstore_record_shape
{
	int words, gathered_words, texts;
} gstore_record_shape;

extern gstore_record_shape gstore_request_shape(const gstore_prepared *query);

#endif
