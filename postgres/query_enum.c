/* See query_enum.h. */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_enum.h"
#include "utils/fmgroids.h"
#include "utils/typcache.h"

#include "postgres/query_enum.h"

static bool
is_wanted(gquery_op op, int compared)
{
	switch (op)
	{
		case GQUERY_LT:
			return compared < 0;
		case GQUERY_LE:
			return compared <= 0;
		case GQUERY_GT:
			return compared > 0;
		default:
			return compared >= 0;
	}
}

uint32
gstore_enum_values(Oid type, Oid value, gquery_op op, int64 *words, uint32 room)
{
	TypeCacheEntry *cache = lookup_type_cache(type, 0);
	Relation		relation = table_open(EnumRelationId, AccessShareLock);
	ScanKeyData		key;
	SysScanDesc		scan;
	HeapTuple		tuple;
	uint32			count = 0;

	ScanKeyInit(&key, Anum_pg_enum_enumtypid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(type));
	scan = systable_beginscan(relation, EnumTypIdLabelIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		const Oid one = ((Form_pg_enum) GETSTRUCT(tuple))->oid;

		if (is_wanted(op, compare_values_of_enum(cache, one, value)) && count++ < room)
		{
			uint32 at = count - 1;

			for (; at > 0 && words[at - 1] > (int64) one; at--)
				words[at] = words[at - 1];
			words[at] = one;
		}
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return count;
}
