/*
 * postgres/query_stats.h - what queries have done on the GPU, and why others have not, since the server's start
 * or the last reset: counters in shared memory, for the view gstore_fdw_queries; and
 * of a plan node's queries, for EXPLAIN.
 */
#ifndef GSTORE_QUERY_STATS_H
#define GSTORE_QUERY_STATS_H

#include "postgres.h"

#include "commands/explain.h"

#include "query/wire.h"

typedef enum gstore_query_kind
{
	GSTORE_QUERY_FILTER,
	GSTORE_QUERY_AGGREGATE,
	GSTORE_QUERY_JOIN,
	GSTORE_QUERY_ORDER,
	GSTORE_QUERY_SEARCH, /* in the order of distances */
	GSTORE_QUERY_KINDS,
} gstore_query_kind;

/* In the order of the view's columns. */
typedef enum gstore_query_counter
{
	GSTORE_QUERIES, /* that the GPU has done; what it has then returned may still be fetched */
	GSTORE_QUERY_ROWS_READ,
	GSTORE_QUERY_BYTES_READ,
	GSTORE_QUERY_ROWS_RETURNED,
	GSTORE_QUERY_KERNEL_NS,
	GSTORE_QUERY_RERUNS, /* runs that ended at a value that was not known yet, and began again: query_compile.h's met */
	/* Those that it has not done. Without the GPU: */
	GSTORE_QUERY_NO_ROOM, /* of memory */
	GSTORE_QUERY_ROW_ERRORS,
	GSTORE_QUERY_DECIMALS,		/* one has more than 62 bits */
	GSTORE_QUERY_UNAVAILABLE,	/* no executor, device, keeper, lease or memory file */
	GSTORE_QUERY_LOST,			/* the executor has ended */
	GSTORE_QUERY_DEVICE_ERRORS, /* a call of the driver or the system has failed there */
	/*
	 * Too large a program, rows in two stores, tables on several devices, rows that would take a kernel too
	 * long, a text that is too long for a key.
	 */
	GSTORE_QUERY_UNSUPPORTED,
	/* With an error: */
	GSTORE_QUERY_CANCELLED,
	GSTORE_QUERY_FAILED,
	GSTORE_QUERY_COUNTERS,
} gstore_query_counter;

extern Size gstore_query_stats_size(void);
extern void gstore_query_stats_attach(void *place, bool found); /* at server start */

extern void gstore_query_count(gstore_query_kind kind, gstore_query_counter counter, uint64 more);

/* Of a plan node's queries, for EXPLAIN. */
typedef struct gstore_run_figures
{
	uint64		records;
	gquery_cost cost;
	const char *place; /* where the last one ran; NULL: there was none */
} gstore_run_figures;

/* Adds what a query has cost, to the counters too. */
extern void
gstore_query_add_cost(gstore_query_kind kind, gstore_run_figures *figures, const gquery_cost *cost);

/* local: what ran in the place of the last one, and why; NULL: nothing did. label: what records are; NULL: not shown. */
extern void gstore_query_explain(const gstore_run_figures *figures, const char *local,
								 const char *why, const char *label, ExplainState *es);

#endif
