/* See query_enum.h. */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_enum.h"
#include "utils/fmgroids.h"

#include "postgres/query_enum.h"

#define VALUES_FIRST 64 /* for which there is room at first */
#define OID_BITS	 32

typedef struct enum_value
{
	float4 order;
	Oid	   oid;
} enum_value;

static int
compare_order(const void *left, const void *right)
{
	const float4 l = ((const enum_value *) left)->order, r = ((const enum_value *) right)->order;

	return l < r ? -1 : l > r;
}

static int
compare_oid(const void *left, const void *right)
{
	const uint32 l = (uint32) * (const uint64 *) left, r = (uint32) * (const uint64 *) right;

	return l < r ? -1 : l > r;
}

/* Those that there are now, in their order: rows that are seen have no others. */
static enum_value *
read_values(Oid type, uint32 *count)
{
	uint32		room = VALUES_FIRST;
	enum_value *values = palloc(sizeof *values * room);
	Relation	relation = table_open(EnumRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	*count = 0;
	ScanKeyInit(&key, Anum_pg_enum_enumtypid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(type));
	scan = systable_beginscan(relation, EnumTypIdLabelIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		const Form_pg_enum one = (Form_pg_enum) GETSTRUCT(tuple);

		if (*count == room)
			values = repalloc(values, sizeof *values * (room *= 2));
		values[(*count)++] = (enum_value){one->enumsortorder, one->oid};
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	qsort(values, *count, sizeof *values, compare_order);
	return values;
}

/* ---- beside a value that depends on no row */

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
	uint32			  total, count = 0, place = 0;
	const enum_value *values = read_values(type, &total);

	while (place < total && values[place].oid != value)
		place++;
	for (uint32 i = 0; i < total; i++)
	{
		const int64 one = values[i].oid;

		if (is_wanted(op, i < place ? -1 : i > place) && count++ < room)
		{
			uint32 at = count - 1;

			for (; at > 0 && words[at - 1] > one; at--)
				words[at] = words[at - 1];
			words[at] = one;
		}
	}
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

/* ---- as numbers */

bool
gstore_emit_enum_number(gstore_emitter *e, Oid type)
{
	gquery_program	 *p = e->program;
	const uint32	  first = p->value_count;
	uint32			  count, in_order = 1;
	const enum_value *values = read_values(type, &count);

	while (in_order < count && values[in_order - 1].oid < values[in_order].oid)
		in_order++;
	if (in_order >= count) /* as nearly always, unless values were put between others */
		return true;
	if (count > GQUERY_VALUES_MAX - first)
		return false;
	for (uint32 i = 0; i < count; i++)
		p->values[first + i] = (int64) ((uint64) i << OID_BITS | values[i].oid);
	qsort(&p->values[first], count, sizeof p->values[0], compare_oid);
	p->value_count += count;
	return gstore_emit_instruction(e,
								   (gquery_instruction){.op = GQUERY_FUNCTION,
														.b = GQUERY_FIND_I64,
														.value = first | (uint64) count << 32});
}

bool
gstore_emit_enum_value(gstore_emitter *e)
{
	return gstore_emit_constant(e, PG_UINT32_MAX) &&
		gstore_emit(e, GQUERY_FUNCTION, 0, GQUERY_BITS_AND);
}
