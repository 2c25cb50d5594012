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

/* The enum's values that are less than `value`, or what else op says, ascending; how many there are, of which the first `room` are written. */
static uint32
list_values(Oid type, Oid value, gquery_op op, int64 *words, uint32 room)
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

bool
gstore_emit_enum_order(gstore_emitter *e, const gstore_emitted *left, Node *right, gquery_op op,
					   gstore_emitted *other)
{
	gquery_program *p = e->program;
	const uint32	first = p->value_count;
	Datum			value;
	bool			null;
	uint32			count;

	*other = (gstore_emitted){.type = left->type, .nullable = true};
	if (!gstore_evaluate(e, (Expr *) right, &value, &null, &other->raises))
		return gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0) &&
			gstore_emit(e, GQUERY_EQ, 0, GQUERY_ORDER_I64);
	if (null)
		return gstore_emit(e, GQUERY_NULL, 0, 0) && gstore_emit(e, GQUERY_EQ, 0, GQUERY_ORDER_I64);
	other->nullable = false;
	count = list_values(left->type, DatumGetObjectId(value), op, p->values + first,
						GQUERY_VALUES_MAX - first);
	p->value_count += Min(count, GQUERY_VALUES_MAX - first);
	return count <= GQUERY_VALUES_MAX - first && gstore_emit(e, GQUERY_IN, first, count);
}
