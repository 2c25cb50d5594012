/*
 * postgres/query_async.h - scans of several tables whose queries run at the same time, on one device or on several: children of an
 * Append or a MergeAppend, such as partitions.
 *
 * Under an Append PostgreSQL asks those that are its children for a row before it waits for any of them, and then waits for the first one
 * that has an answer ("Async Foreign Scan" in EXPLAIN). A scan that may raise an error is sent then, and not asked for a row before all children in front of
 * it have no more, as it may never be. Elsewhere, as under a MergeAppend, or where there is a Limit, a Sort or an
 * aggregate between, the first scan that is asked for a row sends the queries of the others before it waits for its own.
 */
#ifndef GSTORE_QUERY_ASYNC_H
#define GSTORE_QUERY_ASYNC_H

#include "postgres.h"

#include "foreign/fdwapi.h"
#include "nodes/execnodes.h"

#include "postgres/query_run.h"

/*
 * Sends the query of a scan of which no row was asked for since it began, or began anew: gstore_run_start(). Where it need not be sent, as
 * the table has no rows, or all is known already, it is not started.
 */
typedef gstore_start (*gstore_start_scan)(ForeignScanState *node, bool unasked);

/* The first member of fdw_state of each of our scans. */
typedef struct gstore_ahead
{
	gstore_start_scan start; /* NULL: there is no query that could be sent before rows are asked for */
	gstore_run		 *run;
	bool refused; /* it is not started, and not tried again before the scan begins anew */
	bool in_turn; /* under an Append: no row is asked for before its turn, as to make one may raise an error */
	struct gstore_siblings *siblings; /* NULL: there are none */
} gstore_ahead;

extern void gstore_ahead_init(gstore_ahead *ahead, gstore_start_scan start, gstore_run *run);

/* Before the scan waits for its query's answer: it and those of its siblings are sent, as far as their devices have room. */
extern void gstore_ahead_begin(ForeignScanState *node);
/* When the answer is there, so that the device has room for another one's. */
extern void gstore_ahead_go_on(ForeignScanState *node);

extern void gstore_async_callbacks(FdwRoutine *routine);
extern void gstore_async_init(void);

#endif
