/* Types, and their values as kernels have them: slots. */
#include "postgres/plcuda/plcuda.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "catalog/dependency.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

/* ---- types */

#define SLOT(type) sizeof(type), __alignof__(type), offsetof(type, isnull)
#define VALUE(oid, name, type)                                                                 \
	{                                                                                          \
		oid, name, PLCUDA_KIND_VALUE, (int16) sizeof(((const type *) NULL)->value), SLOT(type) \
	}
#define BYTES(oid, name, type)                       \
	{                                                \
		oid, name, PLCUDA_KIND_BYTES, -1, SLOT(type) \
	}

static const plcuda_type types[] = {
	VALUE(BOOLOID, "bool", pg_bool_t),		 VALUE(INT2OID, "int2", pg_int2_t),
	VALUE(INT4OID, "int4", pg_int4_t),		 VALUE(INT8OID, "int8", pg_int8_t),
	VALUE(FLOAT4OID, "float4", pg_float4_t), VALUE(FLOAT8OID, "float8", pg_float8_t),
	BYTES(TEXTOID, "text", pg_text_t),		 BYTES(BYTEAOID, "bytea", pg_bytea_t),
};
static const plcuda_type reggstore = {InvalidOid, "reggstore", PLCUDA_KIND_TABLE, 0,
									  SLOT(pg_reggstore_t)};

static bool
is_reggstore(Oid type)
{
	const Oid extension = get_extension_oid("gstore_fdw", true);
	HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	bool	  same = HeapTupleIsValid(tuple) &&
		strcmp(NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname), "reggstore") == 0;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return same && OidIsValid(extension) && getExtensionOfObject(TypeRelationId, type) == extension;
}

const plcuda_type *
plcuda_find_type(Oid oid)
{
	for (size_t i = 0; i < lengthof(types); i++)
		if (types[i].oid == oid)
			return &types[i];
	return is_reggstore(oid) ? &reggstore : NULL;
}

/* ---- into slots */

void
plcuda_null_to_slot(const plcuda_type *type, void *slot)
{
	memset(slot, 0, type->slot_bytes);
	((uint8 *) slot)[type->isnull_at] = 1;
}

bool
plcuda_slot_is_null(const plcuda_type *type, const void *slot)
{
	return ((const uint8 *) slot)[type->isnull_at] != 0;
}

static void
value_to_slot(const plcuda_type *type, Datum value, void *slot)
{
	union
	{
		char  bytes[sizeof(Datum)];
		Datum aligned;
	} copy;

	store_att_byval(copy.bytes, value, type->length);
	memcpy(slot, copy.bytes, (Size) type->length);
}

static void
bytes_to_slot(Datum value, void *slot, plcuda_bytes *pointed)
{
	struct varlena *body = PG_DETOAST_DATUM_PACKED(value);
	const pg_text_t typed = {.length = (uint32) VARSIZE_ANY_EXHDR(body)};

	pointed->at = VARDATA_ANY(body);
	pointed->count = typed.length;
	memcpy(slot, &typed, sizeof typed);
}

void
plcuda_datum_to_slot(const plcuda_type *type, Datum value, void *slot, plcuda_bytes *pointed)
{
	memset(slot, 0, type->slot_bytes);
	*pointed = (plcuda_bytes){NULL, 0};
	if (type->kind == PLCUDA_KIND_BYTES)
		bytes_to_slot(value, slot, pointed);
	else if (type->kind == PLCUDA_KIND_VALUE)
		value_to_slot(type, value, slot);
}

/* ---- out of slots */

static Datum
slot_to_value(const plcuda_type *type, const void *slot)
{
	union
	{
		char  bytes[sizeof(Datum)];
		Datum aligned;
	} copy;

	memcpy(copy.bytes, slot, (Size) type->length);
	if (type->oid == BOOLOID)
		return BoolGetDatum(copy.bytes[0] != 0);
	return fetch_att(copy.bytes, true, type->length);
}

static Datum
slot_to_bytes(const plcuda_type *type, const void *slot, plcuda_bytes pointed)
{
	pg_text_t typed;
	Datum	  result;

	memcpy(&typed, slot, sizeof typed);
	if (pointed.count != typed.length)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_INVOCATION_EXCEPTION),
				 errmsg("the GPU worker has returned no valid result")));
	/* Copied before it is checked: the worker can still write to it. */
	result = PointerGetDatum(cstring_to_text_with_len(pointed.at, (int) pointed.count));
	if (type->oid == TEXTOID)
		(void) pg_verifymbstr(VARDATA_ANY(result), (int) pointed.count, false);
	return result;
}

Datum
plcuda_slot_to_datum(const plcuda_type *type, const void *slot, plcuda_bytes pointed, bool *null)
{
	*null = plcuda_slot_is_null(type, slot);
	if (*null)
		return (Datum) 0;
	return type->kind == PLCUDA_KIND_BYTES ? slot_to_bytes(type, slot, pointed)
										   : slot_to_value(type, slot);
}
