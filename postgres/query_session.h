/*
 * postgres/query_session.h - this backend's connections to executors of queries (query/wire.h).
 *
 * A query has a connection of its own until its results are fetched. Some are kept for the next queries. Where there is none to be
 * had, that is no error: the query has a local plan.
 */
#ifndef GSTORE_QUERY_SESSION_H
#define GSTORE_QUERY_SESSION_H

#include "postgres.h"

#include "postgres/query_stats.h"
#include "query/wire.h"

typedef struct gstore_session gstore_session;

#define GSTORE_SESSION_WHY_BYTES 256

/*
 * For a query on the device, with so many bytes in its memory file. It ends with the current memory context, at the latest: an
 * ERROR or a cancel closes the connection, by which the query ends. NULL: there is none, and why not is written.
 */
extern gstore_session *
gstore_session_begin(int device, Size bytes, char why[GSTORE_SESSION_WHY_BYTES]);
/* The window, at the file's start: of which the rest is the caller's, up to the bytes. */
extern gquery_window *gstore_session_window(gstore_session *session);

/*
 * Sends the window's query, which then runs while this backend does something else; its answer makes the socket readable. How many
 * of this backend have been sent to the device, and were not answered yet, as far as it knows.
 */
extern void gstore_session_send(gstore_session *session);
extern int	gstore_session_socket(const gstore_session *session);
/* Waits for the answer, for gstore_session_run() to take: room for another one's query. Whether that was done. */
extern void gstore_session_await(gstore_session *session, char why[GSTORE_SESSION_WHY_BYTES]);
extern bool gstore_session_is_answered(const gstore_session *session);
extern int	gstore_session_count_sent(int device);

/*
 * Runs the window's query, if it was not sent before, or another verb, and waits for the answer. True: results are in the window. False: the query cannot run there, and why not is
 * written; the session has ended. So it is where a row raises an error: PostgreSQL reports it, if it evaluates that at all.
 */
extern bool
gstore_session_run(gstore_session *session, gquery_verb verb, char why[GSTORE_SESSION_WHY_BYTES]);

/* By what the last run of a session that has ended has failed; GQUERY_E_NONE: by something else, which the counter is of. */
extern uint32				gstore_session_raised(const gstore_session *session);
extern gstore_query_counter gstore_session_failure(const gstore_session *session);

/* A copy of what a span is of, palloc'd. ERROR if it is not within the file. */
extern void *gstore_session_copy(gstore_session *session, gquery_span span);

/*
 * more: there are results that were not fetched. A query that was sent and has no answer is given up, by the end of the connection. NULL
 * is ignored.
 */
extern void gstore_session_end(gstore_session *session, bool more);

#endif
