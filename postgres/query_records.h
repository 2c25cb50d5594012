/*
 * postgres/query_records.h - the records of a run come piece by piece.
 */
#ifndef GSTORE_QUERY_RECORDS_H
#define GSTORE_QUERY_RECORDS_H

#include "postgres.h"

#include "postgres/query_run.h"

/* Of a session that has answered the request, which is the run's from now on: the first piece, and where the request goes on. ERROR if these are not valid. */
extern void gstore_run_receive(gstore_run *run, gstore_session *session,
							   const gstore_request *request, gstore_record_shape shape);

/* The records that are there are not needed any more. */
extern void gstore_run_forget(gstore_run *run);

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

#endif
