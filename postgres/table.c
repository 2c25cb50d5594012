/* See table.h. */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "postgres/compat.h"
#include "postgres/table.h"

static PGFunction our_handler;

void
gstore_table_init(PGFunction handler)
{
	our_handler = handler;
}

/* By the handler's name first: another wrapper's handler is not to be loaded for a look. */
static bool
is_our_handler(Oid function)
{
	HeapTuple tuple;
	FmgrInfo  info;
	bool	  named = false;

	if (!OidIsValid(function))
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (HeapTupleIsValid(tuple))
	{
		bool		null;
		const Datum source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &null);

		named = !null && strcmp(TextDatumGetCString(source), "gstore_fdw_handler") == 0;
		ReleaseSysCache(tuple);
	}
	if (!named)
		return false;
	fmgr_info(function, &info);
	return info.fn_addr == our_handler;
}

bool
gstore_is_table(Oid relation)
{
	if (get_rel_relkind(relation) != RELKIND_FOREIGN_TABLE)
		return false;
	return is_our_handler(
		GetForeignDataWrapper(GetForeignServer(GetForeignTable(relation)->serverid)->fdwid)->fdwhandler);
}

bool
gstore_is_server(const char *name)
{
	const ForeignServer *server = GetForeignServerByName(name, true);

	return server != NULL && is_our_handler(GetForeignDataWrapper(server->fdwid)->fdwhandler);
}

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

bool
gstore_is_owner(Oid relation)
{
	return object_ownercheck(RelationRelationId, relation, GetUserId());
}

Oid
gstore_owner_of(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid		  owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}
