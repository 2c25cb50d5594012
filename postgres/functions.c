/*
 * SQL functions on one table. gstore_fdw_format, _nitems, _nattrs and _rawsize describe the
 * revision that the statement's snapshot has, without changes of its own transaction, and need SELECT on the table, as reading it would;
 * gstore_fdw_compact rewrites it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "postgres/compat.h"
#include "postgres/dense.h"
#include "postgres/fdw.h"
#include "postgres/option.h"
#include "postgres/pending.h"
#include "postgres/reload.h"
#include "postgres/table.h"

PG_FUNCTION_INFO_V1(gstore_fdw_format);
PG_FUNCTION_INFO_V1(gstore_fdw_nitems);
PG_FUNCTION_INFO_V1(gstore_fdw_nattrs);
PG_FUNCTION_INFO_V1(gstore_fdw_rawsize);
PG_FUNCTION_INFO_V1(gstore_fdw_compact);

/* The table's option; also of a table without rows. */
Datum
gstore_fdw_format(PG_FUNCTION_ARGS)
{
	const Oid relation = PG_GETARG_OID(0);

	gstore_check_readable(relation);
	PG_RETURN_TEXT_P(cstring_to_text(gstore_table_is_arrow(relation) ? "arrow" : "pgstrom"));
}

Datum
gstore_fdw_nitems(PG_FUNCTION_ARGS)
{
	gstore_view view;

	gstore_check_readable(PG_GETARG_OID(0));
	gstore_look_now(PG_GETARG_OID(0), GSTORE_DEAD_NOT_WANTED, &view);
	PG_RETURN_INT64((int64) view.live_rows);
}

/* With the dropped ones, whose places in attribute numbers remain. */
Datum
gstore_fdw_nattrs(PG_FUNCTION_ARGS)
{
	const Oid relation = PG_GETARG_OID(0);
	HeapTuple tuple;
	int64	  count;

	gstore_check_readable(relation);
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relation);
	count = ((Form_pg_class) GETSTRUCT(tuple))->relnatts;
	ReleaseSysCache(tuple);
	PG_RETURN_INT64(count);
}

/* Of the copy that gstore_export_ipchandle() has made, or would make; fails as that does. */
Datum
gstore_fdw_rawsize(PG_FUNCTION_ARGS)
{
	const Oid	oid = PG_GETARG_OID(0);
	Relation	relation;
	gstore_view view;
	gstore_copy copy;
	uint64		bytes = 0;

	gstore_check_readable(oid);
	relation = relation_open(oid, AccessShareLock);
	gstore_look_now(oid, GSTORE_DEAD_HERE, &view);
	if (!view.empty && view.live_rows > 0)
	{
		gstore_dense_check(relation, &view);
		if (gstore_dense_find(relation, &view, &copy))
			bytes = copy.bytes;
		else
			bytes = gstore_dense_length(relation, &view);
	}
	relation_close(relation, AccessShareLock);
	PG_RETURN_INT64((int64) bytes);
}

/* Returns how many deleted rows are gone by it. As VACUUM, it is the owner's to run. */
Datum
gstore_fdw_compact(PG_FUNCTION_ARGS)
{
	const Oid oid = PG_GETARG_OID(0);
	Relation  relation;
	uint64	  rows;

	PreventCommandIfReadOnly("gstore_fdw_compact()");
	gstore_check_table(oid);
	if (!gstore_is_owner(oid))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_FOREIGN_TABLE, get_rel_name(oid));
	relation = relation_open(oid, ShareUpdateExclusiveLock);
	rows = gstore_compact(relation);
	relation_close(relation, NoLock);
	PG_RETURN_INT64((int64) rows);
}
