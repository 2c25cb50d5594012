/*
 * postgres/plcuda/device/values.h - columns of types of fixed length, bits, numeric, vectors, arrays.
 *
 * Part of device.h. Whatever bytes a column has, no others are read. docs/plcuda.md describes each function.
 */
#ifndef PLCUDA_DEVICE_VALUES_H
#define PLCUDA_DEVICE_VALUES_H

#include "../device.h"
#include "numeric.h"

/* ---- dates of format 'arrow', which count from 1970 */

#define PLCUDA_DAYS_1970_TO_2000 10957
#define PLCUDA_US_1970_TO_2000	 (PLCUDA_DAYS_1970_TO_2000 * (int64_t) 86400000000)

GVM_DEVICE int32_t
plcuda_date_of(int32_t value, int from_1970)
{
	return !from_1970 || value == 0x7fffffff || value == -0x7fffffff - 1
		? value
		: (int32_t) ((uint32_t) value - PLCUDA_DAYS_1970_TO_2000);
}

GVM_DEVICE int64_t
plcuda_timestamp_of(int64_t value, int from_1970)
{
	return !from_1970 || value == 0x7fffffffffffffff || value == -0x7fffffffffffffff - 1
		? value
		: (int64_t) ((uint64_t) value - (uint64_t) PLCUDA_US_1970_TO_2000);
}

#define PLCUDA_AS_IT_IS(value, from_1970) (value)

/* ---- types of fixed length, and their arrays */

#define PLCUDA_GET_OF(name, value_type, number_of_type, convert)                                    \
	GVM_DEVICE pg_##name##_t plcuda_get_##name(const plcuda_table *t, int32_t number, uint64_t row) \
	{                                                                                               \
		const plcuda_column *c = plcuda_find_value(t, number, row, number_of_type);                 \
		pg_##name##_t		 r = {0};                                                               \
		r.isnull = c == 0;                                                                          \
		if (c != 0)                                                                                 \
			r.value = convert(((const value_type *) (const void *) c->values)[row], t->arrow != 0); \
		return r;                                                                                   \
	}
PLCUDA_GET_OF(int2, short, PLCUDA_INT2, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(int4, int32_t, PLCUDA_INT4, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(int8, int64_t, PLCUDA_INT8, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(float4, float, PLCUDA_FLOAT4, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(float8, double, PLCUDA_FLOAT8, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(char, char, PLCUDA_CHAR, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(oid, uint32_t, PLCUDA_OID, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(money, int64_t, PLCUDA_MONEY, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(date, int32_t, PLCUDA_DATE, plcuda_date_of)
PLCUDA_GET_OF(time, int64_t, PLCUDA_TIME, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(timetz, plcuda_timetz, PLCUDA_TIMETZ, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(timestamp, int64_t, PLCUDA_TIMESTAMP, plcuda_timestamp_of)
PLCUDA_GET_OF(timestamptz, int64_t, PLCUDA_TIMESTAMPTZ, plcuda_timestamp_of)
PLCUDA_GET_OF(interval, plcuda_interval, PLCUDA_INTERVAL, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(uuid, plcuda_uuid, PLCUDA_UUID, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(point, plcuda_point, PLCUDA_POINT, PLCUDA_AS_IT_IS)
PLCUDA_GET_OF(enum, uint32_t, PLCUDA_ENUM, PLCUDA_AS_IT_IS)
#undef PLCUDA_GET_OF

/* ---- bits, numeric, vectors */

#define PLCUDA_POWER_38_HIGH 0x4b3b4ca85a86c47au /* 10^38 */
#define PLCUDA_POWER_38_LOW	 0x098a224000000000u

GVM_DEVICE uint32_t
plcuda_load_32(const char *from)
{
	const unsigned char *at = (const unsigned char *) from;

	return at[0] | (uint32_t) at[1] << 8 | (uint32_t) at[2] << 16 | (uint32_t) at[3] << 24;
}

/* bit varying as well as bit. */
GVM_DEVICE pg_varbit_t
plcuda_get_varbit(const plcuda_table *t, int32_t number, uint64_t row)
{
	const plcuda_column *c = plcuda_find_value(t, number, row, PLCUDA_VARBIT);
	pg_varbit_t			 r = {0, 0, 1};
	pg_text_t			 body = plcuda_read_bytes(t, c, row);

	if (body.isnull)
		return r;
	if (c->uniform_bytes > 0)
		r.length = c->count;
	else if (body.length < 4 || plcuda_load_32(body.value) > 0x7ffffff8 ||
			 (plcuda_load_32(body.value) + 7) / 8 > body.length - 4)
	{
		plcuda_raise_in(t->state, "XX001", "a value of bits lies beyond its column");
		return r;
	}
	else
	{
		r.length = plcuda_load_32(body.value);
		body.value += 4;
	}
	r.value = (const unsigned char *) body.value;
	r.isnull = 0;
	return r;
}

/*
 * The number in PostgreSQL's form, times 10^scale, as an integer without a sign; scale is how many digits are shown behind the
 * point. 0: it has more than 38 digits.
 */
GVM_DEVICE_RARE int
plcuda_sum_digits(const char *value, uint32_t length, plcuda_u128 *sum, int32_t *scale)
{
	const uint32_t head = plcuda_read_u16(value), at = (head & 0x8000) != 0 ? 2 : 4;
	const uint32_t units[] = {10000, 1000, 100, 10};
	int32_t	 power = (head & 0x8000) != 0 ? (int32_t) (head & 0x3f) - ((head & 0x40) != 0 ? 64 : 0)
										  : (short) plcuda_read_u16(value + 2);
	uint32_t i;

	*scale = (int32_t) ((head & 0x8000) != 0 ? head >> 7 & 0x3f : head & 0x3fff);
	power = 4 * power + *scale; /* to the base of 10, of the digit */
	for (i = at; i + 2 <= length; i += 2, power -= 4)
	{
		const uint32_t digit = plcuda_read_u16(value + i);
		const uint32_t unit = power >= 0 ? 10000 : power > -4 ? units[-power] : 1;

		if (digit % (10000 / unit) != 0 || !plcuda_u128_multiply_add(sum, unit, digit / (10000 / unit)))
			return 0;
	}
	for (power += 4; power > 0 && (sum->low != 0 || sum->high != 0); power--)
		if (!plcuda_u128_multiply_add(sum, 10, 0))
			return 0;
	return sum->high < PLCUDA_POWER_38_HIGH ||
		(sum->high == PLCUDA_POWER_38_HIGH && sum->low < PLCUDA_POWER_38_LOW);
}

/* From PostgreSQL's form. With more than 38 digits it is PLCUDA_NUMERIC_LONG. */
GVM_DEVICE_RARE pg_numeric_t
plcuda_read_numeric(const char *value, uint32_t length)
{
	const uint32_t head = length >= 2 ? plcuda_read_u16(value) : 0xc000; /* not valid: NaN */
	plcuda_u128	   sum = {0, 0};
	pg_numeric_t   n = {0};
	int32_t		   scale = 0;

	if ((head & 0xc000) == 0xc000 || ((head & 0x8000) == 0 && length < 4))
		n.kind = (head & 0xf000) == 0xd000 ? PLCUDA_NUMERIC_INFINITY
			: (head & 0xf000) == 0xf000	   ? PLCUDA_NUMERIC_MINUS_INFINITY
										   : PLCUDA_NUMERIC_NAN;
	else if (plcuda_sum_digits(value, length, &sum, &scale))
	{
		const int negative = (head & ((head & 0x8000) != 0 ? 0x2000 : 0x4000)) != 0;

		n.low = negative ? ~sum.low + 1 : sum.low;
		n.high = (int64_t) (negative ? ~sum.high + (sum.low == 0) : sum.high);
		n.scale = (short) scale;
	}
	else
	{
		n.kind = PLCUDA_NUMERIC_LONG;
		n.value = value;
		n.length = length;
	}
	return n;
}

GVM_DEVICE pg_numeric_t
plcuda_get_numeric(const plcuda_table *t, int32_t number, uint64_t row)
{
	const plcuda_column *c = plcuda_find_value(t, number, row, PLCUDA_NUMERIC);
	const pg_text_t		 body = plcuda_read_bytes(t, c, row);
	pg_numeric_t		 r = {0};

	r.isnull = 1;
	if (body.isnull)
		return r;
	if (c->uniform_bytes == 0)
		return plcuda_read_numeric(body.value, body.length);
	r.isnull = 0;
	r.low = ((const uint64_t *) (const void *) body.value)[0];
	r.high = ((const int64_t *) (const void *) body.value)[1];
	r.scale = (short) c->scale;
	if (r.low == 0 && r.high == -0x7fffffffffffffff - 1)
		r.kind = PLCUDA_NUMERIC_NAN;
	return r;
}

/* value / 10^scale */
GVM_DEVICE pg_numeric_t
plcuda_make_numeric(int64_t value, int32_t scale)
{
	pg_numeric_t n = {0};

	n.low = (uint64_t) value;
	n.high = value >> 63;
	n.scale = (short) scale;
	return n;
}

/* Digits of a number that is finite; 0: it is not, or NULL. */
GVM_DEVICE int
plcuda_numeric_to_digits(const pg_numeric_t *n, plcuda_digits *d)
{
	if (n->isnull || (n->kind != PLCUDA_NUMERIC_FINITE && n->kind != PLCUDA_NUMERIC_LONG))
		return 0;
	if (n->kind == PLCUDA_NUMERIC_LONG)
		return plcuda_varlena_to_digits(n->value, n->length, d);
	plcuda_decimal_to_digits(n->low, n->high, n->scale, d);
	return 1;
}

/* The nearest double precision, half to even: infinite beyond its greatest one, 0 below the least; NaN of NULL. */
GVM_DEVICE_RARE double
plcuda_numeric_to_float8(const pg_numeric_t *n)
{
	const double  infinity = plcuda_round_to_f64(1, 1024, 0);
	plcuda_digits d;

	if (plcuda_numeric_to_digits(n, &d))
		return plcuda_digits_to_f64(&d);
	if (!n->isnull && n->kind == PLCUDA_NUMERIC_INFINITY)
		return infinity;
	return !n->isnull && n->kind == PLCUDA_NUMERIC_MINUS_INFINITY ? -infinity : infinity - infinity;
}

/* The number, rounded half away from zero as by SQL's cast. 0: it is NULL, or no bigint. */
GVM_DEVICE_RARE int
plcuda_numeric_to_int8(const pg_numeric_t *n, int64_t *out)
{
	plcuda_digits d;
	uint64_t	  low;
	int64_t		  high;

	if (!plcuda_numeric_to_digits(n, &d) ||
		plcuda_digits_to_i128(&d, &low, &high) == PLCUDA_OUT_OF_RANGE || high != (int64_t) low >> 63)
		return 0;
	*out = (int64_t) low;
	return 1;
}

/* Elements of a vector: of so many bytes each. In PostgreSQL's form behind their number, of 16 bits, and 16 others. */
GVM_DEVICE pg_text_t
plcuda_get_elements(const plcuda_table *t, int32_t number, uint64_t row, uint32_t type, uint32_t width)
{
	const plcuda_column *c = plcuda_find_value(t, number, row, type);
	const pg_text_t		 none = {0, 0, 1};
	pg_text_t			 body = plcuda_read_bytes(t, c, row);

	if (body.isnull)
		return none;
	if (c->uniform_bytes > 0)
		body.length = c->count;
	else if (body.length < 4 || (uint64_t) (uintptr_t) body.value % width != 0 ||
			 plcuda_read_u16(body.value) > (body.length - 4) / width)
	{
		plcuda_raise_in(t->state, "XX001", "a vector lies beyond its column");
		return none;
	}
	else
	{
		body.length = plcuda_read_u16(body.value);
		body.value += 4;
	}
	return body;
}

GVM_DEVICE pg_vector_t
plcuda_get_vector(const plcuda_table *t, int32_t number, uint64_t row)
{
	const pg_text_t found = plcuda_get_elements(t, number, row, PLCUDA_VECTOR, 4);
	pg_vector_t		r = {(const float *) (const void *) found.value, found.length, found.isnull};

	return r;
}

GVM_DEVICE pg_halfvec_t
plcuda_get_halfvec(const plcuda_table *t, int32_t number, uint64_t row)
{
	const pg_text_t found = plcuda_get_elements(t, number, row, PLCUDA_HALFVEC, 2);
	pg_halfvec_t r = {(const unsigned short *) (const void *) found.value, found.length, found.isnull};

	return r;
}

/* The same value: each float16 is a float. */
GVM_DEVICE float
plcuda_half_to_float(unsigned short half)
{
	const uint32_t sign = (uint32_t) (half & 0x8000) << 16, exponent = half >> 10 & 31,
				   fraction = half & 0x3ffu;
	union
	{
		uint32_t bits;
		float	 value;
	} out;

	if (exponent == 0)
	{
		out.value = (float) fraction / 16777216.0f; /* 2^24 */
		out.bits |= sign;
	}
	else
		out.bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
	return out.value;
}

/* ---- arrays */

/* PostgreSQL's form of an array: offsets count from the header of the varlena, of which 4 bytes are not here. */
GVM_DEVICE_RARE int
plcuda_read_array(const pg_text_t *body, uint32_t element, uint32_t width, pg_array_t *r)
{
	const uint32_t head = 12, ndim = body->length < head ? ~0u : plcuda_load_32(body->value);
	const uint32_t offset = ndim == ~0u ? 0 : plcuda_load_32(body->value + 4);
	uint64_t	   count = ndim > 0, at;
	uint32_t	   i, missing = 0;

	if (ndim > PLCUDA_DIMENSIONS_MAX || plcuda_load_32(body->value + 8) != element ||
		body->length < head + 8 * ndim)
		return 0;
	for (i = 0; i < ndim; i++)
	{
		r->dims[i] = (int32_t) plcuda_load_32(body->value + head + 4 * i);
		r->base[i] = (int32_t) (plcuda_load_32(body->value + head + 4 * (ndim + i)) - 1);
		count *= (uint64_t) (r->dims[i] > 0 ? r->dims[i] : 0);
		if (count > 0x7ffffff)
			return 0;
	}
	at = head + 8 * ndim;
	if (offset != 0)
	{
		if ((count + 7) / 8 > body->length - at)
			return 0;
		r->nulls = (const unsigned char *) body->value + at;
		for (i = 0; i < count; i++)
			missing += (r->nulls[i / 8] >> (i % 8) & 1) == 0;
		at += (count + 7) / 8;
	}
	at = (at + 4 + 7) / 8 * 8 - 4; /* behind a header the elements are aligned */
	if (count > missing && (at > body->length || (count - missing) * width > body->length - at))
		return 0;
	r->value = body->value + at;
	r->length = (uint32_t) count;
	r->packed = -(int32_t) missing;
	r->dimensions = ndim;
	return 1;
}

/* A list of format 'arrow'. */
GVM_DEVICE int
plcuda_read_list(const plcuda_column *c, uint64_t row, uint32_t width, pg_array_t *r)
{
	const int64_t *offsets = (const int64_t *) (const void *) c->values;
	const int64_t  from = offsets[row], end = offsets[row + 1];

	if (from < 0 || end < from || end - from > 0x7ffffff || (uint64_t) end > c->bodies_bytes / width)
		return 0;
	r->value = c->bodies + (uint64_t) from * width;
	r->length = (uint32_t) (end - from);
	if (c->element_nulls != 0)
	{
		r->nulls = (const unsigned char *) c->element_nulls + from / 8;
		r->nulls_from = (int32_t) (from % 8);
	}
	return 1;
}

GVM_DEVICE pg_array_t
plcuda_get_any_array(const plcuda_table *t, int32_t number, uint64_t row, uint32_t type,
					 uint32_t element, uint32_t width)
{
	const plcuda_column *c = plcuda_find_value(t, number, row, type);
	pg_array_t			 r = {0};
	pg_text_t			 body;
	int					 good = 1;

	r.isnull = 1;
	if (c == 0)
		return r;
	if (c->uniform_bytes > 0)
	{
		r.value = c->values + row * c->uniform_bytes;
		r.length = c->count;
	}
	else if (t->arrow && element != PLCUDA_BOOL)
		good = plcuda_read_list(c, row, width, &r);
	else
	{
		body = plcuda_read_bytes(t, c, row);
		if (body.isnull)
			return r;
		good = plcuda_read_array(&body, element, width, &r);
	}
	if (!good)
	{
		plcuda_raise_in(t->state, "XX001", "an array lies beyond its column");
		r.length = 0;
		return r;
	}
	r.isnull = 0;
	r.from_1970 = (char) (t->arrow &&
						  (element == PLCUDA_DATE || element == PLCUDA_TIMESTAMP ||
						   element == PLCUDA_TIMESTAMPTZ));
	if (r.dimensions == 0 && r.length > 0)
	{
		r.dimensions = 1;
		r.dims[0] = (int32_t) r.length;
	}
	return r;
}

/* Where element i is among those at value; -1: it is NULL, or there is none. */
GVM_DEVICE int64_t
plcuda_find_element(const unsigned char *nulls, int32_t nulls_from, uint32_t length, int32_t packed,
					uint32_t i)
{
	const uint64_t bit = (uint64_t) (int64_t) nulls_from + i;
	int64_t		   at = i;

	if (i >= length || (nulls != 0 && (nulls[bit / 8] >> (bit % 8) & 1) == 0))
		return -1;
	if (nulls != 0 && packed != 0)
	{
		uint64_t n = bit - i;

		for (at = 0; n < bit; n++)
			at += nulls[n / 8] >> (n % 8) & 1;
	}
	return at;
}

/*
 * plcuda_get_NAME_array() is a value of a column, plcuda_NAME_element() an element of an array, counted from 0; NULL where there is
 * none.
 */
#define PLCUDA_ARRAY_OF(name, value_type, number_of_type, element, convert)                       \
	GVM_DEVICE pg_##name##_array_t plcuda_get_##name##_array(const plcuda_table *t,               \
															 int32_t number, uint64_t row)        \
	{                                                                                             \
		const pg_array_t	a = plcuda_get_any_array(t, number, row, number_of_type, element,     \
													 (uint32_t) sizeof(value_type));              \
		pg_##name##_array_t r = {0};                                                              \
		uint32_t			i;                                                                    \
		r.value = (const value_type *) a.value;                                                   \
		r.nulls = a.nulls;                                                                        \
		r.length = a.length;                                                                      \
		r.packed = a.packed;                                                                      \
		r.dimensions = a.dimensions;                                                              \
		for (i = 0; i < PLCUDA_DIMENSIONS_MAX; i++)                                               \
		{                                                                                         \
			r.dims[i] = a.dims[i];                                                                \
			r.base[i] = a.base[i];                                                                \
		}                                                                                         \
		r.nulls_from = a.nulls_from;                                                              \
		r.from_1970 = a.from_1970;                                                                \
		r.isnull = a.isnull;                                                                      \
		return r;                                                                                 \
	}                                                                                             \
	GVM_DEVICE pg_##name##_t plcuda_##name##_element(const pg_##name##_array_t *a, uint32_t i)    \
	{                                                                                             \
		const int64_t at = plcuda_find_element(a->nulls, a->nulls_from, a->length, a->packed, i); \
		pg_##name##_t r = {0};                                                                    \
		r.isnull = at < 0;                                                                        \
		if (at >= 0)                                                                              \
			r.value = convert(a->value[at], a->from_1970);                                        \
		return r;                                                                                 \
	}
PLCUDA_ARRAY_OF(bool, char, PLCUDA_BOOL_ARRAY, PLCUDA_BOOL, PLCUDA_AS_IT_IS)
PLCUDA_ARRAY_OF(int2, short, PLCUDA_INT2_ARRAY, PLCUDA_INT2, PLCUDA_AS_IT_IS)
PLCUDA_ARRAY_OF(int4, int32_t, PLCUDA_INT4_ARRAY, PLCUDA_INT4, PLCUDA_AS_IT_IS)
PLCUDA_ARRAY_OF(int8, int64_t, PLCUDA_INT8_ARRAY, PLCUDA_INT8, PLCUDA_AS_IT_IS)
PLCUDA_ARRAY_OF(float4, float, PLCUDA_FLOAT4_ARRAY, PLCUDA_FLOAT4, PLCUDA_AS_IT_IS)
PLCUDA_ARRAY_OF(float8, double, PLCUDA_FLOAT8_ARRAY, PLCUDA_FLOAT8, PLCUDA_AS_IT_IS)
PLCUDA_ARRAY_OF(oid, uint32_t, PLCUDA_OID_ARRAY, PLCUDA_OID, PLCUDA_AS_IT_IS)
PLCUDA_ARRAY_OF(date, int32_t, PLCUDA_DATE_ARRAY, PLCUDA_DATE, plcuda_date_of)
PLCUDA_ARRAY_OF(time, int64_t, PLCUDA_TIME_ARRAY, PLCUDA_TIME, PLCUDA_AS_IT_IS)
PLCUDA_ARRAY_OF(timestamp, int64_t, PLCUDA_TIMESTAMP_ARRAY, PLCUDA_TIMESTAMP, plcuda_timestamp_of)
PLCUDA_ARRAY_OF(timestamptz, int64_t, PLCUDA_TIMESTAMPTZ_ARRAY, PLCUDA_TIMESTAMPTZ, plcuda_timestamp_of)
PLCUDA_ARRAY_OF(uuid, plcuda_uuid, PLCUDA_UUID_ARRAY, PLCUDA_UUID, PLCUDA_AS_IT_IS)
#undef PLCUDA_ARRAY_OF

#endif
