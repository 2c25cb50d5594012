/*
 * postgres/query_late.h - columns of joined rows that records do not have the values of (query_compile.h,
 * gstore_query_late()): texts, and all other types that programs do not have. They are read by the numbers of
 * rows.
 */
#ifndef GSTORE_QUERY_LATE_H
#define GSTORE_QUERY_LATE_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "postgres/query_compile.h"
#include "postgres/query_run.h"

typedef struct gstore_late gstore_late;

/*
 * keys: Var, of gstore_query.keys; a relation and a view for each table. NULL: there are none. Lives in the
 * current memory context, as the views do.
 */
extern gstore_late *gstore_late_create(const gstore_compiled *compiled, const List *keys,
									   const Relation *relations, const gstore_view *views);

/*
 * The run's next record: its values among those of all keys, which live until later ones are filled. They are
 * read with those of the records behind it.
 */
extern void gstore_late_fill(gstore_late *late, const gstore_run *run, Datum *values, bool *nulls);

/* The run has other records, or begins with the same ones again. NULL: nothing. */
extern void gstore_late_restart(gstore_late *late);

/* That were moved, of all. */
extern uint64 gstore_late_bytes(const gstore_late *late);

#endif
