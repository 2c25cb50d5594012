/*
 * SQL functions on one table. gstore_fdw_format, _nitems, _nattrs and _rawsize describe the
 * revision that the statement sees, and need SELECT on the table, as reading it would;
 * gstore_fdw_compact rewrites it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "postgres/compat.h"
#include "postgres/dense.h"
#include "postgres/fdw.h"
#include "postgres/functions.h"
#include "postgres/lost.h"
#include "postgres/option.h"
#include "postgres/pending.h"
#include "postgres/reload.h"

PG_FUNCTION_INFO_V1(gstore_fdw_format);
PG_FUNCTION_INFO_V1(gstore_fdw_nitems);
PG_FUNCTION_INFO_V1(gstore_fdw_nattrs);
PG_FUNCTION_INFO_V1(gstore_fdw_rawsize);
PG_FUNCTION_INFO_V1(gstore_fdw_compact);

void
gstore_check_table(Oid relation)
{
	const char *name = get_rel_name(relation);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relation)));
	if (!gstore_is_table(relation))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("\"%s\" is not a table in GPU memory", name),
				 errdetail("It is not a foreign table of the wrapper gstore_fdw."),
				 get_rel_relkind(relation) == RELKIND_PARTITIONED_TABLE
					 ? errhint("Give its partitions one by one.")
					 : 0));
}

void
gstore_check_readable(Oid relation)
{
	AclResult result;

	gstore_check_table(relation);
	result = pg_class_aclcheck(relation, GetUserId(), ACL_SELECT);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FOREIGN_TABLE, get_rel_name(relation));
}

void
gstore_look_now(Oid relation, bool want_dead, gstore_view *view)
{
	gstore_check_access();
	gstore_look(relation, GetActiveSnapshot(), want_dead, view);
	if ((view->lost || view->outdated) && gstore_wait_for_source)
	{
		const Relation table = table_open(relation, AccessShareLock);

		if (gstore_reload_await(table) && IsolationUsesXactSnapshot())
			gstore_fail_reloaded();
		table_close(table, AccessShareLock);
		if (!IsolationUsesXactSnapshot())
			gstore_look(relation, NULL, want_dead, view);
	}
	gstore_check_lost(relation, view);
}

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
	gstore_look_now(PG_GETARG_OID(0), false, &view);
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
	gstore_look_now(oid, true, &view);
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

bool
gstore_is_owner(Oid relation)
{
	return object_ownercheck(RelationRelationId, relation, GetUserId());
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
