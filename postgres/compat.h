/* postgres/compat.h - what differs between the releases of PostgreSQL that this is written for. */
#ifndef GSTORE_COMPAT_H
#define GSTORE_COMPAT_H

#include "postgres.h"

#include "nodes/plannodes.h"

/*
 * 17 and 18 changed what foreign tables and scans are made with, among others create_foreignscan_path(), a
 * backend's number and vacuum_delay_point().
 */
#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 170000
#error "gstore_fdw is for PostgreSQL 15 and 16: name the pg_config of one of them in PG_CONFIG="
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h" /* a part of the one above until then */
#else
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "utils/acl.h"

/* For the two kinds of objects that are asked about, with the name that 16 has for all kinds. */
static inline bool
object_ownercheck(Oid class, Oid object, Oid role)
{
	Assert(class == RelationRelationId || class == DatabaseRelationId);
	return class == RelationRelationId ? pg_class_ownercheck(object, role)
									   : pg_database_ownercheck(object, role);
}
#endif

/* Its tables' numbers in the range table; of outer joins, which 16 counts among fs_relids, there are none. */
static inline const Bitmapset *
gstore_scan_relids(const ForeignScan *plan)
{
#if PG_VERSION_NUM >= 160000
	return plan->fs_base_relids;
#else
	return plan->fs_relids;
#endif
}

/*
 * Of the server's header for locales, which includes ICU's where the server has ICU: packages of servers and their headers do not
 * all bring those along.
 */
extern bool lc_collate_is_c(Oid collation);
extern bool lc_ctype_is_c(Oid collation);

#endif
