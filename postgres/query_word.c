/* See query_word.h. */
#include "postgres.h"

#include "port/pg_bswap.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "postgres/qual.h"
#include "postgres/query_word.h"

bool
gstore_is_compiled_type(Oid type)
{
	return gstore_type_family(type) != 0 || type == UUIDOID || type_is_enum(type);
}

int64
gstore_stack_word(Datum value, Oid type, int which)
{
	double number;
	int64  word;

	switch (type)
	{
		case BOOLOID:
			return DatumGetBool(value);
		case CHAROID:
			return DatumGetUInt8(value);
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
		case DATEOID:
			return DatumGetInt32(value);
		case OIDOID:
			return DatumGetObjectId(value);
		case FLOAT4OID:
			number = DatumGetFloat4(value);
			memcpy(&word, &number, sizeof word);
			return word;
		case UUIDOID:
			memcpy(&word, DatumGetUUIDP(value)->data + sizeof word * (Size) which, sizeof word);
			return (int64) pg_bswap64((uint64) word) ^ PG_INT64_MIN;
		case INT8OID:
		case FLOAT8OID: /* passed by value: its bits */
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return DatumGetInt64(value);
		default: /* enums */
			return DatumGetObjectId(value);
	}
}

/* As the difference of two timestamps is. */
static Datum
interval_value(int64 microseconds)
{
	Interval *interval = palloc0(sizeof *interval);

	interval->day = (int32) (microseconds / USECS_PER_DAY);
	interval->time = microseconds % USECS_PER_DAY;
	return IntervalPGetDatum(interval);
}

Datum
gstore_stack_value(int64 word, Oid type, int scale)
{
	double number;

	switch (type)
	{
		case BOOLOID:
			return BoolGetDatum(word != 0);
		case CHAROID:
			return CharGetDatum((char) word);
		case INT2OID:
			return Int16GetDatum((int16) word);
		case INT4OID:
		case DATEOID:
			return Int32GetDatum((int32) word);
		case OIDOID:
			return ObjectIdGetDatum((Oid) word);
		case FLOAT4OID:
			memcpy(&number, &word, sizeof number);
			return Float4GetDatum((float4) number);
		case NUMERICOID:
			return gstore_decimal_value(
				word == GQUERY_DECIMAL_NAN ? GSTORE_DECIMAL_NAN : (gstore_decimal) word, scale);
		case INTERVALOID:
			return interval_value(word);
		default: /* of an enum the lower half (query_enum.h) */
			return gstore_type_family(type) == 0 ? ObjectIdGetDatum((Oid) word) : Int64GetDatum(word);
	}
}

#define NAN_KEY INT64CONST(0x7ff8000000000000)
#define INF_KEY INT64CONST(0x7ff0000000000000)

int64
gstore_order_key(int64 word)
{
	if ((word & PG_INT64_MAX) > INF_KEY)
		return NAN_KEY;
	if (word == PG_INT64_MIN)
		return 0;
	return word >= 0 ? word : word ^ PG_INT64_MAX;
}

int64
gstore_order_value(int64 key)
{
	return key >= 0 ? key : key ^ PG_INT64_MAX;
}

Datum
gstore_uuid_value(int64 first, int64 second)
{
	const uint64 words[] = {pg_bswap64((uint64) (first ^ PG_INT64_MIN)),
							pg_bswap64((uint64) (second ^ PG_INT64_MIN))};
	pg_uuid_t	*uuid = palloc(sizeof *uuid);

	memcpy(uuid->data, words, sizeof uuid->data);
	return UUIDPGetDatum(uuid);
}

Datum
gstore_text_value(const uint64 *words, uint32 count, bool trimmed)
{
	const char *bytes = (const char *) (words + 1);
	uint64		length = words[0];

	if (length > (count - 1) * sizeof(uint64))
		elog(ERROR, "a text from the GPU is too long");
	while (trimmed && length > 0 && bytes[length - 1] == ' ')
		length--;
	return PointerGetDatum(cstring_to_text_with_len(bytes, (int) length));
}

/* ---- decimals */

#define DECIMAL_LIMIT (INT64CONST(1) << 61) /* above all on the stack but NaN */

bool
gstore_decimal_word(Datum numeric, int scale, int64 *word)
{
	gstore_decimal decimal;
	const bool	   exact = gstore_decimal_floor((const struct varlena *) PG_DETOAST_DATUM(numeric),
												scale, &decimal);

	if (decimal == GSTORE_DECIMAL_NAN)
	{
		*word = GQUERY_DECIMAL_NAN;
		return true;
	}
	*word = (int64) Min(Max(decimal, -DECIMAL_LIMIT - 1), DECIMAL_LIMIT - 1);
	return exact && *word == decimal && *word >= -DECIMAL_LIMIT;
}

bool
gstore_number_word(Datum numeric, int *scale, int64 *word)
{
	const Numeric number = DatumGetNumeric(numeric);

	*scale = 0;
	if (numeric_is_inf(number))
		return false;
	if (!numeric_is_nan(number))
		*scale = DatumGetInt32(DirectFunctionCall1(numeric_scale, NumericGetDatum(number)));
	return gstore_decimal_word(NumericGetDatum(number), *scale, word);
}

Datum
gstore_decimal_value(gstore_decimal decimal, int scale)
{
	struct varlena *numeric = palloc(GSTORE_NUMERIC_BYTES);

	gstore_decimal_to_numeric(decimal, scale, numeric);
	return PointerGetDatum(numeric);
}
