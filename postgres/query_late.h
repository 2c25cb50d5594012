/*
 * postgres/query_late.h - columns of joined rows that records do not have the values of (query_compile.h, gstore_query_late()): texts, and all other
 * types that programs do not have. They are read by the numbers of rows.
 */
#ifndef GSTORE_QUERY_LATE_H
#define GSTORE_QUERY_LATE_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "postgres/query_compile.h"

typedef struct gstore_late gstore_late;

/* keys: Var, of gstore_query.keys; a relation and a view for each table. NULL: there are none. Lives in the current memory context, as the views do. */
extern gstore_late *gstore_late_create(const gstore_compiled *compiled, const List *keys,
									   const Relation *relations, const gstore_view *views);

/* Reads those of records of so many words, GSTORE_READER_ROWS at most. */
extern void gstore_late_read(gstore_late *late, const uint64 *records, int words, int count);

/* One of these records: its values among those of all keys, which live until the next ones are read. */
extern void gstore_late_fill(gstore_late *late, const uint64 *record, Datum *values, bool *nulls);

/* That were moved, of all. */
extern uint64 gstore_late_bytes(const gstore_late *late);

#endif
