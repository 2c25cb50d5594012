/* Types, and their values as kernels have them: slots. */
#include "postgres/plcuda/plcuda.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/tupmacs.h"
#include "catalog/dependency.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "parser/parse_coerce.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/varbit.h"

#include "postgres/arrow.h"
#include "postgres/decimal.h"

#define VECTOR_DIMENSIONS_MAX 16000
#define HALF_EXPONENT		  0x7c00 /* of a float16 that is infinite, or NaN */

/* ---- types */

#define SLOT(slot) \
	.slot_bytes = sizeof(slot), .slot_align = __alignof__(slot), .isnull_at = offsetof(slot, isnull)
#define POINTER(slot, at, counted_more, counted_bits, may_be_0)                           \
	{                                                                                     \
		.value = offsetof(slot, at), .length = offsetof(slot, length),                    \
		.isnull = offsetof(slot, isnull), .more = (counted_more), .bits = (counted_bits), \
		.optional = (may_be_0)                                                            \
	}
#define VALUE(type, text, slot, bytes)                                                          \
	{                                                                                           \
		.oid = (type), .name = (text), .kind = PLCUDA_KIND_VALUE, .length = (bytes), SLOT(slot) \
	}
#define BYTES(type, text, slot, which, unit, may_be_0)                            \
	{                                                                             \
		.oid = (type), .name = (text), .kind = (which), .length = -1, SLOT(slot), \
		.pointer_count = 1, .pointers = {                                         \
			POINTER(slot, value, 0, unit, may_be_0)                               \
		}                                                                         \
	}
#define ARRAY(type, of, text, bytes)                                                             \
	{                                                                                            \
		.oid = (type), .element = (of), .name = (text), .kind = PLCUDA_KIND_ARRAY, .length = -1, \
		.element_bytes = (bytes), SLOT(pg_array_t), .pointer_count = 2, .pointers = {            \
			POINTER(pg_array_t, value, offsetof(pg_array_t, packed), (bytes) *8, 0),             \
			POINTER(pg_array_t, nulls, offsetof(pg_array_t, nulls_from), 1, 1)                   \
		}                                                                                        \
	}

static const plcuda_type types[] = {
	VALUE(BOOLOID, "bool", pg_bool_t, 1),
	VALUE(CHAROID, "char", pg_char_t, 1),
	VALUE(INT2OID, "int2", pg_int2_t, 2),
	VALUE(INT4OID, "int4", pg_int4_t, 4),
	VALUE(INT8OID, "int8", pg_int8_t, 8),
	VALUE(FLOAT4OID, "float4", pg_float4_t, 4),
	VALUE(FLOAT8OID, "float8", pg_float8_t, 8),
	VALUE(OIDOID, "oid", pg_oid_t, 4),
	VALUE(MONEYOID, "money", pg_money_t, 8),
	VALUE(DATEOID, "date", pg_date_t, 4),
	VALUE(TIMEOID, "time", plcuda_time_t, 8),
	VALUE(TIMETZOID, "timetz", pg_timetz_t, 12),
	VALUE(TIMESTAMPOID, "timestamp", pg_timestamp_t, 8),
	VALUE(TIMESTAMPTZOID, "timestamptz", pg_timestamptz_t, 8),
	VALUE(INTERVALOID, "interval", pg_interval_t, 16),
	VALUE(UUIDOID, "uuid", pg_uuid_t, 16),
	VALUE(POINTOID, "point", pg_point_t, 16),
	BYTES(TEXTOID, "text", pg_text_t, PLCUDA_KIND_BYTES, 8, 0),
	BYTES(VARCHAROID, "text", pg_text_t, PLCUDA_KIND_BYTES, 8, 0),
	BYTES(BPCHAROID, "text", pg_text_t, PLCUDA_KIND_BYTES, 8, 0),
	BYTES(BYTEAOID, "bytea", pg_bytea_t, PLCUDA_KIND_BYTES, 8, 0),
	BYTES(BITOID, "varbit", pg_varbit_t, PLCUDA_KIND_BITS, 1, 0),
	BYTES(VARBITOID, "varbit", pg_varbit_t, PLCUDA_KIND_BITS, 1, 0),
	BYTES(NUMERICOID, "numeric", pg_numeric_t, PLCUDA_KIND_NUMERIC, 8, 1),
	ARRAY(BOOLARRAYOID, BOOLOID, "bool_array", 1),
	ARRAY(INT2ARRAYOID, INT2OID, "int2_array", 2),
	ARRAY(INT4ARRAYOID, INT4OID, "int4_array", 4),
	ARRAY(INT8ARRAYOID, INT8OID, "int8_array", 8),
	ARRAY(FLOAT4ARRAYOID, FLOAT4OID, "float4_array", 4),
	ARRAY(FLOAT8ARRAYOID, FLOAT8OID, "float8_array", 8),
	ARRAY(OIDARRAYOID, OIDOID, "oid_array", 4),
	ARRAY(DATEARRAYOID, DATEOID, "date_array", 4),
	ARRAY(TIMEARRAYOID, TIMEOID, "time_array", 8),
	ARRAY(TIMESTAMPARRAYOID, TIMESTAMPOID, "timestamp_array", 8),
	ARRAY(TIMESTAMPTZARRAYOID, TIMESTAMPTZOID, "timestamptz_array", 8),
	ARRAY(UUIDARRAYOID, UUIDOID, "uuid_array", 16),
};

/* Their OIDs are found by their names. */
static const plcuda_type reggstore = {
	.name = "reggstore", .kind = PLCUDA_KIND_TABLE, SLOT(pg_reggstore_t)};
static const plcuda_type any_enum = {
	.name = "enum", .kind = PLCUDA_KIND_ENUM, .length = 4, SLOT(pg_enum_t)};
static const plcuda_type vector = BYTES(InvalidOid, "vector", pg_vector_t, PLCUDA_KIND_VECTOR, 32, 0);
static const plcuda_type halfvec = BYTES(InvalidOid, "halfvec", pg_halfvec_t, PLCUDA_KIND_HALFVEC,
										 16, 0);

static const struct
{
	const char		  *name, *extension;
	const plcuda_type *type;
} of_extensions[] = {
	{"reggstore", "gstore_fdw", &reggstore},
	{"vector", "vector", &vector},
	{"halfvec", "vector", &halfvec},
};

/* What was found last, of each. The lists of an extension's members are read once. */
static Oid found[lengthof(of_extensions)];

static void
forget_found(Datum arg, int cache, uint32 hash)
{
	memset(found, 0, sizeof found);
}

static const plcuda_type *
find_of_extension(Oid oid, const char *name)
{
	static bool registered = false;

	if (!registered)
		CacheRegisterSyscacheCallback(TYPEOID, forget_found, (Datum) 0);
	registered = true;
	for (Size i = 0; i < lengthof(of_extensions); i++)
		if (strcmp(of_extensions[i].name, name) == 0)
		{
			const Oid extension = get_extension_oid(of_extensions[i].extension, true);

			if (found[i] != oid &&
				(!OidIsValid(extension) || getExtensionOfObject(TypeRelationId, oid) != extension))
				continue;
			found[i] = oid;
			return of_extensions[i].type;
		}
	return NULL;
}

const plcuda_type *
plcuda_find_type(Oid oid)
{
	const Oid		   base = getBaseType(oid);
	const plcuda_type *type = NULL;
	HeapTuple		   tuple;

	for (Size i = 0; i < lengthof(types); i++)
		if (types[i].oid == base)
			return &types[i];
	if (base < FirstNormalObjectId)
		return NULL;
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(base));
	if (!HeapTupleIsValid(tuple))
		return NULL;
	if (((Form_pg_type) GETSTRUCT(tuple))->typtype == TYPTYPE_ENUM)
		type = &any_enum;
	else if (((Form_pg_type) GETSTRUCT(tuple))->typtype == TYPTYPE_BASE)
		type = find_of_extension(base, NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname));
	ReleaseSysCache(tuple);
	return type;
}

uint32
plcuda_type_code(Oid base)
{
	const plcuda_type *type = base < FirstNormalObjectId ? NULL : plcuda_find_type(base);

	if (type == NULL)
		return base;
	switch (type->kind)
	{
		case PLCUDA_KIND_VECTOR:
			return PLCUDA_VECTOR;
		case PLCUDA_KIND_HALFVEC:
			return PLCUDA_HALFVEC;
		case PLCUDA_KIND_ENUM:
			return PLCUDA_ENUM;
		default:
			return base;
	}
}

/* ---- into slots */

void
plcuda_null_to_slot(const plcuda_type *type, void *slot)
{
	memset(slot, 0, type->slot_bytes);
	((uint8 *) slot)[type->isnull_at] = 1;
}

/* In place of an address, before it is known. */
static const void *
offset_address(Size offset)
{
	return (const void *) (uintptr_t) offset;
}

static bool
is_by_value(const plcuda_type *type)
{
	return type->length <= (int16) sizeof(Datum);
}

static void
value_to_slot(const plcuda_type *type, Datum value, void *slot)
{
	union
	{
		char  bytes[sizeof(Datum)];
		Datum aligned;
	} copy;

	if (is_by_value(type))
		store_att_byval(copy.bytes, value, type->length);
	memcpy(slot, is_by_value(type) ? copy.bytes : DatumGetPointer(value), (Size) type->length);
}

static void
bytes_to_slot(Datum value, void *slot, plcuda_bytes *pointed)
{
	struct varlena *body = PG_DETOAST_DATUM_PACKED(value);
	const pg_text_t typed = {.length = (uint32) VARSIZE_ANY_EXHDR(body)};

	*pointed = (plcuda_bytes){VARDATA_ANY(body), typed.length};
	memcpy(slot, &typed, sizeof typed);
}

static void
bits_to_slot(Datum value, void *slot, plcuda_bytes *pointed)
{
	const VarBit	 *body = DatumGetVarBitP(value);
	const pg_varbit_t typed = {.length = (uint32) VARBITLEN(body)};

	*pointed = (plcuda_bytes){VARBITS(body), VARBITBYTES(body)};
	memcpy(slot, &typed, sizeof typed);
}

/* Both have a number of 16 bits, and 16 others, in front of their elements. */
static void
vector_to_slot(const plcuda_type *type, Datum value, void *slot, plcuda_bytes *pointed)
{
	const struct varlena *body = PG_DETOAST_DATUM(value);
	const Size			  width = type->pointers[0].bits / 8;
	pg_vector_t			  typed = {.length = *(const uint16 *) VARDATA(body)};

	if (VARSIZE(body) != VARHDRSZ + 2 * sizeof(uint16) + typed.length * width)
		elog(ERROR, "a vector of %u dimensions has %u bytes", typed.length, VARSIZE(body));
	*pointed = (plcuda_bytes){VARDATA(body) + 2 * sizeof(uint16), typed.length * width};
	memcpy(slot, &typed, sizeof typed);
}

/* Numbers of PostgreSQL's own form that have up to 38 digits are integers for kernels. */
static void
numeric_to_slot(Datum value, void *slot, plcuda_bytes *pointed)
{
	const Numeric		  number = DatumGetNumeric(value);
	const struct varlena *body = (const struct varlena *) number;
	pg_numeric_t		  typed = {.kind = PLCUDA_NUMERIC_FINITE};
	gstore_decimal		  decimal;
	int					  scale;

	if (numeric_is_nan(number))
		typed.kind = PLCUDA_NUMERIC_NAN;
	else if (numeric_is_inf(number))
		typed.kind = DatumGetBool(DirectFunctionCall2(
						 numeric_gt, value, DirectFunctionCall1(int8_numeric, Int64GetDatum(0))))
			? PLCUDA_NUMERIC_INFINITY
			: PLCUDA_NUMERIC_MINUS_INFINITY;
	else
	{
		scale = DatumGetInt32(DirectFunctionCall1(numeric_scale, value));
		if (gstore_decimal_floor(body, scale, &decimal) &&
			gstore_decimal_fits(decimal, GSTORE_DECIMAL_PRECISION_MAX))
		{
			typed.scale = (short) scale;
			typed.low = (uint64) decimal;
			typed.high = (int64) (decimal >> 64);
		}
		else
		{
			const Size bytes = VARSIZE(body) - VARHDRSZ;
			char	  *copy = palloc0(PLCUDA_GATHERED_AT + bytes);

			memcpy(copy + PLCUDA_GATHERED_AT, VARDATA(body), bytes);
			typed.kind = PLCUDA_NUMERIC_LONG;
			typed.length = (uint32) bytes;
			typed.value = offset_address(PLCUDA_GATHERED_AT);
			*pointed = (plcuda_bytes){copy, PLCUDA_GATHERED_AT + bytes};
		}
	}
	memcpy(slot, &typed, sizeof typed);
}

/* Elements one behind the other whether they are NULL or not, then a bitmap of those that are not. */
static plcuda_bytes
spread_elements(const ArrayType *array, Size count, Size width)
{
	const bits8 *bits = ARR_NULLBITMAP(array);
	const char	*from = ARR_DATA_PTR(array);
	const Size	 bytes = count * width + (count + 7) / 8;
	char		*to = palloc0(bytes);

	for (Size i = 0; i < count; i++)
		if ((bits[i / 8] >> (i % 8) & 1) != 0)
		{
			memcpy(to + i * width, from, width);
			from += width;
		}
	memcpy(to + count * width, bits, (count + 7) / 8);
	return (plcuda_bytes){to, bytes};
}

static void
array_to_slot(const plcuda_type *type, Datum value, void *slot, plcuda_bytes *pointed)
{
	const ArrayType *array = DatumGetArrayTypeP(value);
	const int		 dimensions = ARR_NDIM(array);
	const Size		 count = (Size) ArrayGetNItems(dimensions, ARR_DIMS(array));
	const Size		 width = type->element_bytes;
	pg_array_t		 typed = {.length = (uint32) count, .dimensions = (uint32) dimensions};

	if (ARR_ELEMTYPE(array) != type->element)
		elog(ERROR, "an array has elements of type %u in place of %u", ARR_ELEMTYPE(array),
			 type->element);
	for (int i = 0; i < dimensions; i++)
	{
		typed.dims[i] = ARR_DIMS(array)[i];
		typed.base[i] = ARR_LBOUND(array)[i] - 1;
	}
	*pointed = (plcuda_bytes){ARR_DATA_PTR(array), count * width};
	if (ARR_HASNULL(array) && count > 0)
	{
		*pointed = spread_elements(array, count, width);
		typed.nulls = offset_address(count * width);
	}
	memcpy(slot, &typed, sizeof typed);
}

void
plcuda_datum_to_slot(const plcuda_type *type, Datum value, void *slot, plcuda_bytes *pointed)
{
	memset(slot, 0, type->slot_bytes);
	*pointed = (plcuda_bytes){NULL, 0};
	switch (type->kind)
	{
		case PLCUDA_KIND_VALUE:
		case PLCUDA_KIND_ENUM:
			value_to_slot(type, value, slot);
			break;
		case PLCUDA_KIND_BYTES:
			bytes_to_slot(value, slot, pointed);
			break;
		case PLCUDA_KIND_BITS:
			bits_to_slot(value, slot, pointed);
			break;
		case PLCUDA_KIND_VECTOR:
		case PLCUDA_KIND_HALFVEC:
			vector_to_slot(type, value, slot, pointed);
			break;
		case PLCUDA_KIND_NUMERIC:
			numeric_to_slot(value, slot, pointed);
			break;
		case PLCUDA_KIND_ARRAY:
			array_to_slot(type, value, slot, pointed);
			break;
		case PLCUDA_KIND_TABLE:
			elog(ERROR, "type %s has no values for kernels", type->name);
	}
}

/* ---- out of slots: nothing that a kernel has written is trusted */

static void
fail_result(const plcuda_type *type, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_EXTERNAL_ROUTINE_INVOCATION_EXCEPTION),
			 errmsg("the function has returned no valid value of type %s: %s", type->name, why)));
}

/* What a pointer of the slot leads to. */
static const char *
find_bytes(const plcuda_type *type, int pointer, const void *slot, plcuda_bytes pointed, Size bytes)
{
	uint64 at;

	memcpy(&at, (const char *) slot + type->pointers[pointer].value, sizeof at);
	if (bytes == 0)
		return "";
	if (at > pointed.count || bytes > pointed.count - at)
		fail_result(type, "it lies beyond what was returned");
	return (const char *) pointed.at + at;
}

static void
check_date(const plcuda_type *type, int32 date)
{
	if (!DATE_NOT_FINITE(date) && !IS_VALID_DATE(date))
		fail_result(type, "a date is out of range");
}

static void
check_timestamp(const plcuda_type *type, int64 timestamp)
{
	if (!TIMESTAMP_NOT_FINITE(timestamp) && !IS_VALID_TIMESTAMP(timestamp))
		fail_result(type, "a timestamp is out of range");
}

static void
check_time(const plcuda_type *type, int64 time)
{
	if (time < 0 || time > USECS_PER_DAY)
		fail_result(type, "a time is out of range");
}

/* Makes any byte a boolean; other types are checked. value: aligned */
static void
check_value(const plcuda_type *type, Oid oid, void *value)
{
	switch (oid)
	{
		case BOOLOID:
			*(char *) value = *(char *) value != 0;
			break;
		case DATEOID:
			check_date(type, *(int32 *) value);
			break;
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			check_timestamp(type, *(int64 *) value);
			break;
		case TIMEOID:
			check_time(type, *(int64 *) value);
			break;
		case TIMETZOID:
			check_time(type, ((plcuda_timetz *) value)->time);
			if (((plcuda_timetz *) value)->zone <= -TZDISP_LIMIT ||
				((plcuda_timetz *) value)->zone >= TZDISP_LIMIT)
				fail_result(type, "a time zone is out of range");
			break;
		default:
			break;
	}
}

static Datum
slot_to_value(const plcuda_type *type, const void *slot)
{
	char *copy = palloc0((Size) Max(type->length, (int16) sizeof(Datum)));

	memcpy(copy, slot, (Size) type->length);
	check_value(type, type->oid, copy);
	return fetch_att(copy, is_by_value(type), type->length);
}

static Datum
slot_to_enum(const plcuda_type *type, Oid oid, const void *slot)
{
	pg_enum_t typed;
	HeapTuple tuple;
	bool	  same;

	memcpy(&typed, slot, sizeof typed);
	tuple = SearchSysCache1(ENUMOID, ObjectIdGetDatum(typed.value));
	same = HeapTupleIsValid(tuple) && ((Form_pg_enum) GETSTRUCT(tuple))->enumtypid == getBaseType(oid);
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!same)
		fail_result(type, psprintf("%u is no label of %s", typed.value, format_type_be(oid)));
	return ObjectIdGetDatum(typed.value);
}

/* Of so many bytes behind the header. */
static struct varlena *
make_varlena(const plcuda_type *type, Size bytes)
{
	struct varlena *made;

	if (bytes > MaxAllocSize - VARHDRSZ)
		fail_result(type, "it has more than 1 GB");
	made = palloc(VARHDRSZ + bytes);
	SET_VARSIZE(made, VARHDRSZ + bytes);
	return made;
}

static Datum
slot_to_bytes(const plcuda_type *type, const void *slot, plcuda_bytes pointed)
{
	struct varlena *result;
	pg_text_t		typed;
	const char	   *bytes;

	memcpy(&typed, slot, sizeof typed);
	bytes = find_bytes(type, 0, slot, pointed, typed.length);
	result = make_varlena(type, typed.length);
	/* Copied before it is checked: the worker can still write to it. */
	memcpy(VARDATA(result), bytes, typed.length);
	if (type->oid != BYTEAOID)
		(void) pg_verifymbstr(VARDATA(result), (int) typed.length, false);
	return PointerGetDatum(result);
}

static Datum
slot_to_bits(const plcuda_type *type, const void *slot, plcuda_bytes pointed)
{
	pg_varbit_t typed;
	VarBit	   *result;
	const char *bytes;
	Size		count;

	memcpy(&typed, slot, sizeof typed);
	if (typed.length > VARBITMAXLEN)
		fail_result(type, "it has too many bits");
	count = ((Size) typed.length + BITS_PER_BYTE - 1) / BITS_PER_BYTE;
	bytes = find_bytes(type, 0, slot, pointed, count);
	result = (VarBit *) make_varlena(type, sizeof(int32) + count);
	VARBITLEN(result) = (int32) typed.length;
	memcpy(VARBITS(result), bytes, count);
	if (count > 0)
		VARBITS(result)[count - 1] &= (bits8) (BITMASK << VARBITPAD(result));
	return VarBitPGetDatum(result);
}

static Datum
slot_to_vector(const plcuda_type *type, const void *slot, plcuda_bytes pointed)
{
	const Size		width = type->pointers[0].bits / 8;
	struct varlena *result;
	uint16			head[2] = {0, 0};
	pg_vector_t		typed;
	char		   *elements;

	memcpy(&typed, slot, sizeof typed);
	if (typed.length < 1 || typed.length > VECTOR_DIMENSIONS_MAX)
		fail_result(type, psprintf("it has %u dimensions", typed.length));
	head[0] = (uint16) typed.length;
	result = make_varlena(type, sizeof head + typed.length * width);
	elements = VARDATA(result) + sizeof head;
	memcpy(VARDATA(result), head, sizeof head);
	memcpy(elements, find_bytes(type, 0, slot, pointed, typed.length * width), typed.length * width);
	for (uint32 i = 0; i < typed.length; i++)
		if (type == &vector ? !isfinite(((const float *) elements)[i])
							: (((const uint16 *) elements)[i] & HALF_EXPONENT) == HALF_EXPONENT)
			fail_result(type, "an element is NaN or infinite");
	return PointerGetDatum(result);
}

/* By PostgreSQL's own function for what comes over a connection, which checks all of it. */
static Datum
receive_numeric(const plcuda_type *type, const char *bytes, Size count)
{
	StringInfoData message;
	const Size	   all = count / sizeof(uint16);
	uint16		  *words, header;
	Size		   head;

	if (all > PG_UINT16_MAX) /* the header is among them; a number of PostgreSQL's has fewer than 40000 */
		fail_result(type, "it has too many digits");
	words = palloc(count + 1);
	memcpy(words, bytes, count);
	header = all >= 2 ? words[0] : 0xc000;
	if ((header & 0xc000) == 0xc000)
		fail_result(type, "it is not in PostgreSQL's form");
	head = (header & 0x8000) == 0 ? 2 : 1;
	initStringInfo(&message);
	pq_sendint16(&message, (uint16) (all - head));
	if (head == 2)
	{
		pq_sendint16(&message, words[1]);
		pq_sendint16(&message, header & 0x4000);
		pq_sendint16(&message, header & 0x3fff);
	}
	else
	{
		pq_sendint16(&message, (uint16) ((header & 0x3f) - (header & 0x40)));
		pq_sendint16(&message, (header & 0x2000) << 1);
		pq_sendint16(&message, header >> 7 & 0x3f);
	}
	for (Size i = head; i < all; i++)
		pq_sendint16(&message, words[i]);
	return DirectFunctionCall3(numeric_recv, PointerGetDatum(&message),
							   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

static Datum
slot_to_numeric(const plcuda_type *type, const void *slot, plcuda_bytes pointed)
{
	static const char *const special[] = {
		[PLCUDA_NUMERIC_NAN] = "NaN", [PLCUDA_NUMERIC_INFINITY] = "Infinity", [PLCUDA_NUMERIC_MINUS_INFINITY] = "-Infinity"};
	pg_numeric_t	typed;
	gstore_decimal	decimal;
	struct varlena *result;

	memcpy(&typed, slot, sizeof typed);
	switch (typed.kind)
	{
		case PLCUDA_NUMERIC_FINITE:
			break;
		case PLCUDA_NUMERIC_NAN:
		case PLCUDA_NUMERIC_INFINITY:
		case PLCUDA_NUMERIC_MINUS_INFINITY:
			return DirectFunctionCall3(numeric_in, CStringGetDatum(special[(int) typed.kind]),
									   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
		case PLCUDA_NUMERIC_LONG:
			return receive_numeric(type, find_bytes(type, 0, slot, pointed, typed.length),
								   typed.length);
		default:
			fail_result(type, psprintf("its kind is %d", typed.kind));
	}
	decimal = (gstore_decimal) ((unsigned __int128) (uint64) typed.high << 64 | typed.low);
	if (decimal == GSTORE_DECIMAL_NAN || !gstore_decimal_fits(decimal, GSTORE_DECIMAL_PRECISION_MAX))
		fail_result(type, "it has more than 38 digits");
	if (typed.scale < -NUMERIC_MAX_PRECISION || typed.scale > NUMERIC_MAX_PRECISION)
		fail_result(type, psprintf("its scale is %d", typed.scale));
	result = palloc(GSTORE_NUMERIC_BYTES);
	gstore_decimal_to_numeric(decimal, typed.scale, result);
	return PointerGetDatum(result);
}

/* ---- arrays out of slots */

static void
check_array(const plcuda_type *type, pg_array_t *a)
{
	uint64 count = 1;

	if (a->length > MaxArraySize)
		fail_result(type, psprintf("it has %u elements", a->length));
	if (a->dimensions == 0 || a->length == 0)
	{
		a->dimensions = a->length > 0;
		a->dims[0] = (int32) a->length;
	}
	if (a->dimensions > PLCUDA_DIMENSIONS_MAX)
		fail_result(type, psprintf("it has %u dimensions", a->dimensions));
	for (uint32 i = 0; i < a->dimensions && count <= MaxArraySize; i++)
		count *= a->dims[i] > 0 ? (uint64) a->dims[i] : 0;
	if (a->dimensions > 0 && count != a->length)
		fail_result(type, psprintf("%u elements are not as many as its dimensions say", a->length));
	if (a->packed > 0 || -(int64) a->packed > a->length || a->nulls_from < 0)
		fail_result(type, "its NULLs are not valid");
}

/* A bitmap that begins with its first element; NULL: no element is NULL. *live: how many are not. */
static bits8 *
copy_nulls(const plcuda_type *type, const void *slot, plcuda_bytes pointed, const pg_array_t *a,
		   Size *live)
{
	const Size	 count = a->length;
	const uint8 *from;
	bits8		*to;

	*live = count;
	if (a->nulls == NULL || count == 0)
		return NULL;
	from = (const uint8 *) find_bytes(type, 1, slot, pointed, (count + (Size) a->nulls_from + 7) / 8);
	to = palloc0((count + 7) / 8);
	*live = 0;
	for (Size i = 0; i < count; i++)
	{
		const Size bit = (Size) a->nulls_from + i;

		if ((from[bit / 8] >> (bit % 8) & 1) == 0)
			continue;
		to[i / 8] |= (bits8) (1 << (i % 8));
		++*live;
	}
	return *live < count ? to : NULL;
}

/* In place; values that count from 1970 are made to count from 2000. */
static void
check_elements(const plcuda_type *type, char *elements, Size live, bool from_1970)
{
	for (Size i = 0; i < live; i++, elements += type->element_bytes)
	{
		if (from_1970 && type->element == DATEOID)
			*(int32 *) elements -= DATE_NOT_FINITE(*(int32 *) elements) ? 0 : GSTORE_DAYS_1970_TO_2000;
		else if (from_1970 && (type->element == TIMESTAMPOID || type->element == TIMESTAMPTZOID))
			*(int64 *) elements -= TIMESTAMP_NOT_FINITE(*(int64 *) elements) ? 0
																			 : GSTORE_US_1970_TO_2000;
		check_value(type, type->element, elements);
	}
}

/* Those that are not NULL, one behind the other. */
static void
copy_elements(const plcuda_type *type, const char *from, const pg_array_t *a, const bits8 *bits,
			  Size live, char *to)
{
	const Size width = type->element_bytes;

	if (bits == NULL || a->packed != 0)
		memcpy(to, from, live * width);
	else
		for (Size i = 0; i < a->length; i++)
			if ((bits[i / 8] >> (i % 8) & 1) != 0)
			{
				memcpy(to, from + i * width, width);
				to += width;
			}
}

static Datum
slot_to_array(const plcuda_type *type, const void *slot, plcuda_bytes pointed)
{
	const Size	width = type->element_bytes;
	pg_array_t	a;
	ArrayType  *array;
	const char *from;
	bits8	   *bits;
	Size		live, head, stored;
	int			dims[PLCUDA_DIMENSIONS_MAX], bounds[PLCUDA_DIMENSIONS_MAX];

	memcpy(&a, slot, sizeof a);
	check_array(type, &a);
	if (a.length == 0)
		return PointerGetDatum(construct_empty_array(type->element));
	bits = copy_nulls(type, slot, pointed, &a, &live);
	stored = (Size) ((int64) a.length + a.packed);
	if (a.packed != 0 && stored != live)
		fail_result(type, "its NULLs are not valid");
	from = find_bytes(type, 0, slot, pointed, stored * width);
	for (uint32 i = 0; i < a.dimensions; i++)
	{
		dims[i] = a.dims[i];
		bounds[i] = (int) ((uint32) a.base[i] + 1);
	}
	ArrayCheckBounds((int) a.dimensions, dims, bounds);
	head = bits == NULL ? ARR_OVERHEAD_NONULLS(a.dimensions)
						: ARR_OVERHEAD_WITHNULLS(a.dimensions, (int) a.length);
	if (head + live * width > MaxAllocSize)
		fail_result(type, "it has more than 1 GB");
	array = palloc0(head + live * width);
	SET_VARSIZE(array, head + live * width);
	array->ndim = (int) a.dimensions;
	array->dataoffset = bits == NULL ? 0 : (int32) head;
	array->elemtype = type->element;
	memcpy(ARR_DIMS(array), dims, a.dimensions * sizeof(int));
	memcpy(ARR_LBOUND(array), bounds, a.dimensions * sizeof(int));
	if (bits != NULL)
		memcpy(ARR_LBOUND(array) + a.dimensions, bits, (a.length + 7) / 8);
	copy_elements(type, from, &a, bits, live, ARR_DATA_PTR(array));
	check_elements(type, ARR_DATA_PTR(array), live, a.from_1970 != 0);
	return PointerGetDatum(array);
}

static Datum
slot_to_base(const plcuda_type *type, Oid oid, const void *slot, plcuda_bytes pointed)
{
	switch (type->kind)
	{
		case PLCUDA_KIND_VALUE:
			return slot_to_value(type, slot);
		case PLCUDA_KIND_ENUM:
			return slot_to_enum(type, oid, slot);
		case PLCUDA_KIND_BYTES:
			return slot_to_bytes(type, slot, pointed);
		case PLCUDA_KIND_BITS:
			return slot_to_bits(type, slot, pointed);
		case PLCUDA_KIND_VECTOR:
		case PLCUDA_KIND_HALFVEC:
			return slot_to_vector(type, slot, pointed);
		case PLCUDA_KIND_NUMERIC:
			return slot_to_numeric(type, slot, pointed);
		case PLCUDA_KIND_ARRAY:
			return slot_to_array(type, slot, pointed);
		case PLCUDA_KIND_TABLE:
			break;
	}
	return (Datum) 0;
}

void
plcuda_find_coercion(Oid base, int32 typmod, FmgrInfo *coercion)
{
	Oid function;

	if (typmod >= 0 && find_typmod_coercion_function(base, &function) != COERCION_PATH_NONE)
		fmgr_info(function, coercion);
}

static Datum
coerce_value(FmgrInfo *coercion, int32 typmod, Datum value)
{
	return FunctionCall3(coercion, value, Int32GetDatum(typmod), BoolGetDatum(false));
}

/* Of an array the function is that of its elements, which are changed in place. */
Datum
plcuda_coerce(const plcuda_type *type, FmgrInfo *coercion, int32 typmod, Datum value)
{
	const int  width = (int) type->element_bytes;
	ArrayType *array;

	if (type->kind != PLCUDA_KIND_ARRAY)
		return coerce_value(coercion, typmod, value);
	array = DatumGetArrayTypeP(value);
	for (char *at = ARR_DATA_PTR(array); at < (char *) array + VARSIZE(array); at += width)
		store_att_byval(at, coerce_value(coercion, typmod, fetch_att(at, true, width)), width);
	return PointerGetDatum(array);
}

/* A value of its base type becomes one of the domain, or an error. */
static Datum
make_domain(const plcuda_type *type, Oid domain, Datum value, bool null)
{
	int32	  typmod = -1;
	const Oid base = getBaseTypeAndTypmod(domain, &typmod);
	FmgrInfo  coercion = {.fn_oid = InvalidOid};

	if (!null)
		plcuda_find_coercion(base, typmod, &coercion);
	if (coercion.fn_oid != InvalidOid)
		value = plcuda_coerce(type, &coercion, typmod, value);
	domain_check(value, null, domain, NULL, NULL);
	return value;
}

Datum
plcuda_slot_to_datum(const plcuda_type *type, Oid oid, const void *slot, plcuda_bytes pointed,
					 bool *null)
{
	Datum value = (Datum) 0;

	*null = ((const uint8 *) slot)[type->isnull_at] != 0;
	if (!*null)
		value = slot_to_base(type, oid, slot, pointed);
	return oid != type->oid && get_typtype(oid) == TYPTYPE_DOMAIN
		? make_domain(type, oid, value, *null)
		: value;
}
