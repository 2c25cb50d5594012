/*
 * postgres/whole.h - all rows that a snapshot sees of a table, as those of one store but for some that bitmaps name: for
 * processes that attach the table by a token.
 */
#ifndef GSTORE_WHOLE_H
#define GSTORE_WHOLE_H

#include "postgres.h"

#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "postgres/call.h"
#include "postgres/scan.h"
#include "postgres/token.h"

typedef enum gstore_whole
{
	GSTORE_WHOLE_NONE, /* there is no row */
	GSTORE_WHOLE_ROWS,
	GSTORE_WHOLE_TWO_STORES, /* they are of two stores, and were not to be copied */
} gstore_whole;

/*
 * The rows [0, out->rows) of a store, and those of them that are not seen; out is empty but for GSTORE_WHOLE_ROWS. Lives in the
 * current memory context. copied: rows of two stores are written to a third one, each time, which goes with the transaction.
 */
extern gstore_whole
gstore_whole_choose(Relation relation, Snapshot snapshot, bool copied, gstore_view *out);

/*
 * The same of ranges that were chosen, whose rows keep their numbers. False: they are of two stores.
 */
extern bool gstore_whole_join(const gstore_row_range *ranges, int count, gstore_view *out);

/*
 * The same for a process that attaches the table now: with a token, and the bitmaps in the forms that it takes. False: there
 * is no room for a token, as *refused says; if that is NULL, ERROR.
 */
extern bool gstore_whole_export(Relation relation, gstore_view *view, gstore_export_kind kind,
								gstore_call_table *out, gstore_answer *refused);

#endif
