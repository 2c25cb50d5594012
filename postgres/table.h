/* postgres/table.h - a relation by its OID: whether it is a table of ours, and what the user may. */
#ifndef GSTORE_TABLE_H
#define GSTORE_TABLE_H

#include "postgres.h"

#include "fmgr.h"

/* handler: of the foreign data wrapper. When the library is loaded. */
extern void gstore_table_init(PGFunction handler);

/* Is it a foreign table of ours? */
extern bool gstore_is_table(Oid relation);

/* Is it a foreign server of ours? False also if there is none. */
extern bool gstore_is_server(const char *name);

/* ERROR if there is no such relation (42P01), or it is no table of ours (42809). */
extern void gstore_check_table(Oid relation);

/* The same, and that the user may SELECT from it (42501). */
extern void gstore_check_readable(Oid relation);

/* Is the user the table's owner, or a member of it? */
extern bool gstore_is_owner(Oid relation);

/* InvalidOid: there is no such relation (any more). */
extern Oid gstore_owner_of(Oid relation);

#endif
