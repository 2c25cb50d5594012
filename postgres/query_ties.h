/*
 * postgres/query_ties.h - rows that a list of the first ones (GSTORE_SINK_LIST) has no order of: their texts are longer
 * than the words of its keys, and begin with the same bytes. PostgreSQL's comparison orders them.
 */
#ifndef GSTORE_QUERY_TIES_H
#define GSTORE_QUERY_TIES_H

#include "postgres.h"

#include "nodes/execnodes.h"

#include "postgres/query_compile.h"

#define GSTORE_TIE_ROWS_MOST 65536 /* that begin with the same bytes */

typedef struct gstore_ties gstore_ties;

/* Of a query that was prepared. NULL: its keys are no texts. Lives in the current memory context. */
extern gstore_ties *gstore_ties_create(const gstore_compiled *compiled, const List *keys,
									   const List *directions, PlanState *parent);

/* How many of the entries, which are in order, come before the tie at their end: more rows of it may follow. */
extern uint64
gstore_ties_decided(const gstore_ties *ties, const int64 *entries, uint64 words, uint64 count);

/*
 * Puts the rows of entries into order; the scan's slot is cleared. False: a tie among them has more than
 * GSTORE_TIE_ROWS_MOST, or its keys take more memory than work_mem. What was moved is added to *bytes.
 */
extern bool gstore_ties_sort(gstore_ties *ties, const gstore_view *view, ScanState *scan,
							 int64 *entries, uint64 words, uint64 count, uint64 *bytes);

#endif
