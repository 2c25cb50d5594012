/*
 * The type reggstore: the OID of a table in GPU memory, written by name; as regclass, but input takes
 * no other relation. Output takes any number, so that what was stored can always be printed.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "fmgr.h"
#include "libpq/pqformat.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "postgres/fdw.h"
#include "postgres/table.h"

PG_FUNCTION_INFO_V1(gstore_reggstore_in);
PG_FUNCTION_INFO_V1(gstore_reggstore_out);
PG_FUNCTION_INFO_V1(gstore_reggstore_recv);
PG_FUNCTION_INFO_V1(gstore_reggstore_send);

/* A number without a relation passes: it may be of a table that was dropped, in a dump. */
Datum
gstore_reggstore_in(PG_FUNCTION_ARGS)
{
	const Oid relation = DatumGetObjectId(DirectFunctionCall1(regclassin, PG_GETARG_DATUM(0)));

	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)))
		gstore_check_table(relation);
	PG_RETURN_OID(relation);
}

Datum
gstore_reggstore_out(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall1(regclassout, PG_GETARG_DATUM(0));
}

Datum
gstore_reggstore_recv(PG_FUNCTION_ARGS)
{
	const Oid relation = (Oid) pq_getmsgint((StringInfo) PG_GETARG_POINTER(0), sizeof(Oid));

	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)))
		gstore_check_table(relation);
	PG_RETURN_OID(relation);
}

Datum
gstore_reggstore_send(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall1(oidsend, PG_GETARG_DATUM(0));
}
