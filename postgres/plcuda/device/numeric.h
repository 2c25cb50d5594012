/*
 * postgres/plcuda/device/numeric.h - numeric: PostgreSQL's form to integers of 128 bits, and to integers and floating point.
 *
 * PostgreSQL's form is a header of 16 bits, in its long form also a weight of 16, and digits to the base of 10000: digit i counts
 * 10000^(weight - i). It may begin at any address, and any bytes may be there.
 */
#ifndef PLCUDA_DEVICE_NUMERIC_H
#define PLCUDA_DEVICE_NUMERIC_H

#include <gvmem/device/kernel.h>

#include "../slots.h"

typedef __int128		  plcuda_int128;
typedef unsigned __int128 plcuda_uint128;

#define PLCUDA_NUMERIC_DIGITS 38 /* of a finite one, at most */

/* exponent: 0 to 38 */
GVM_DEVICE_RARE plcuda_uint128
plcuda_power_of_10(int32_t exponent)
{
	plcuda_uint128 power = 1, square = 10;

	for (; exponent > 0; exponent >>= 1, square *= square)
		if (exponent & 1)
			power *= square;
	return power;
}

/* The integer of a finite numeric. */
GVM_DEVICE plcuda_int128
plcuda_numeric_value(const pg_numeric_t *n)
{
	return (plcuda_int128) ((plcuda_uint128) (uint64_t) n->high << 64 | n->low);
}

/* value / 10^scale; as a result it is to have 38 digits at most. */
GVM_DEVICE pg_numeric_t
plcuda_make_numeric(plcuda_int128 value, int32_t scale)
{
	pg_numeric_t n = {0};

	n.low = (uint64_t) value;
	n.high = (int64_t) (value >> 64);
	n.scale = (short) scale;
	return n;
}

/* ---- PostgreSQL's form */

typedef struct plcuda_digits
{
	const unsigned char *at;
	int32_t				 count, weight, scale;
	int					 negative, kind; /* plcuda_numeric_kind */
} plcuda_digits;

GVM_DEVICE uint32_t
plcuda_load_16(const unsigned char *at)
{
	return at[0] | (uint32_t) at[1] << 8;
}

GVM_DEVICE plcuda_digits
plcuda_find_digits(const char *value, uint32_t length)
{
	const unsigned char *at = (const unsigned char *) value;
	const uint32_t		 header = length >= 2 ? plcuda_load_16(at) : 0xc000; /* nonsense: NaN */
	plcuda_digits		 d = {0, 0, 0, 0, 0, PLCUDA_NUMERIC_FINITE};

	if ((header & 0xc000) == 0xc000 || ((header & 0xc000) != 0x8000 && length < 4))
		d.kind = (header & 0xf000) == 0xd000 ? PLCUDA_NUMERIC_INFINITY
			: (header & 0xf000) == 0xf000	 ? PLCUDA_NUMERIC_MINUS_INFINITY
											 : PLCUDA_NUMERIC_NAN;
	else if ((header & 0xc000) == 0x8000)
	{
		d.negative = (header & 0x2000) != 0;
		d.scale = (int32_t) (header >> 7 & 0x3f);
		d.weight = (int32_t) (header & 0x3f) - (header & 0x40 ? 64 : 0);
		d.at = at + 2;
		d.count = (int32_t) ((length - 2) / 2);
	}
	else
	{
		d.negative = (header & 0xc000) == 0x4000;
		d.scale = (int32_t) (header & 0x3fff);
		d.weight = (short) plcuda_load_16(at + 2);
		d.at = at + 4;
		d.count = (int32_t) ((length - 4) / 2);
	}
	return d;
}

/* *sum * 10^exponent + digit; 0: that has more than 38 digits. exponent: 0 to 38 */
GVM_DEVICE int
plcuda_append_digit(plcuda_uint128 *sum, int32_t exponent, uint32_t digit)
{
	const plcuda_uint128 limit = plcuda_power_of_10(PLCUDA_NUMERIC_DIGITS);

	if (*sum >= plcuda_power_of_10(PLCUDA_NUMERIC_DIGITS - exponent))
		return 0;
	*sum = *sum * plcuda_power_of_10(exponent) + digit;
	return *sum < limit;
}

/* Their number times 10^scale, rounded half away from zero. 0: it has more than 38 digits. */
GVM_DEVICE_RARE int
plcuda_sum_digits(const plcuda_digits *d, int32_t scale, plcuda_uint128 *sum, int *exact)
{
	int32_t exponent = 4 * d->weight + scale; /* of the digit, to the base of 10 */
	int32_t i;
	int		up = 0;

	*sum = 0;
	*exact = 1;
	for (i = 0; i < d->count; i++, exponent -= 4)
	{
		const uint32_t digit = plcuda_load_16(d->at + 2 * i);
		const int32_t  behind = exponent >= 0 ? 0 : exponent > -4 ? -exponent : 4;
		const uint32_t unit = (uint32_t) plcuda_power_of_10(behind);

		if (digit > 9999 || !plcuda_append_digit(sum, 4 - behind, digit / unit))
			return 0;
		if (digit % unit != 0)
			*exact = 0;
		if (exponent < 0 && exponent >= -4)
			up = digit % unit >= unit / 2;
		if (exponent < -4 && !*exact)
			break;
	}
	if (i == d->count)
		exponent += 4;
	if (*sum > 0 && exponent > 0 &&
		(exponent > PLCUDA_NUMERIC_DIGITS || !plcuda_append_digit(sum, exponent, 0)))
		return 0;
	*sum += (uint32_t) up;
	return *sum < plcuda_power_of_10(PLCUDA_NUMERIC_DIGITS);
}

/* The numeric whose form is there: finite, if it has no more than 38 digits. */
GVM_DEVICE_RARE pg_numeric_t
plcuda_read_numeric(const char *value, uint32_t length)
{
	const plcuda_digits d = plcuda_find_digits(value, length);
	plcuda_uint128		sum = 0;
	pg_numeric_t		n = {0};
	int					exact = 1;

	if (d.kind == PLCUDA_NUMERIC_FINITE && plcuda_sum_digits(&d, d.scale, &sum, &exact) && exact)
		return plcuda_make_numeric(d.negative ? -(plcuda_int128) sum : (plcuda_int128) sum, d.scale);
	n.kind = (char) (d.kind == PLCUDA_NUMERIC_FINITE ? PLCUDA_NUMERIC_LONG : d.kind);
	n.value = value;
	n.length = length;
	return n;
}

/* ---- integers */

/*
 * The number times 10^scale, rounded as PostgreSQL does: half away from zero. 0: it is NULL, not finite, or that has more than 38
 * digits, and *out is not set.
 */
GVM_DEVICE_RARE int
plcuda_numeric_to_int128(const pg_numeric_t *n, int32_t scale, plcuda_int128 *out)
{
	const plcuda_int128 value = plcuda_numeric_value(n);
	plcuda_uint128		sum = value < 0 ? -(plcuda_uint128) value : (plcuda_uint128) value;
	int					negative = value < 0, exact;

	if (n->isnull)
		return 0;
	if (n->kind == PLCUDA_NUMERIC_LONG)
	{
		const plcuda_digits d = plcuda_find_digits(n->value, n->length);

		if (!plcuda_sum_digits(&d, scale, &sum, &exact))
			return 0;
		negative = d.negative;
	}
	else if (n->kind != PLCUDA_NUMERIC_FINITE)
		return 0;
	else if (n->scale <= scale)
	{
		if (sum > 0 &&
			(scale - n->scale > PLCUDA_NUMERIC_DIGITS ||
			 !plcuda_append_digit(&sum, scale - n->scale, 0)))
			return 0;
	}
	else if (n->scale - scale > PLCUDA_NUMERIC_DIGITS)
		sum = 0;
	else
	{
		const plcuda_uint128 unit = plcuda_power_of_10(n->scale - scale);

		sum = sum / unit + (sum % unit >= unit / 2);
	}
	*out = negative ? -(plcuda_int128) sum : (plcuda_int128) sum;
	return 1;
}

/* The number, rounded half away from zero. 0: it is NULL, or no bigint. */
GVM_DEVICE int
plcuda_numeric_to_int8(const pg_numeric_t *n, int64_t *out)
{
	plcuda_int128 value;

	if (!plcuda_numeric_to_int128(n, 0, &value) || value != (int64_t) value)
		return 0;
	*out = (int64_t) value;
	return 1;
}

/* ---- floating point: exact arithmetic, rounded once */

#define PLCUDA_BIG_WORDS 132 /* 10^1124 * 2^64, and more than 200 digits to the base of 10000 */
#define PLCUDA_BIG_DIGITS \
	200 /* as many decide how any number is rounded, and whether others follow */

typedef struct plcuda_big
{
	uint32_t words[PLCUDA_BIG_WORDS]; /* the lowest one first; that of count - 1 is not 0 */
	uint32_t count;
	int		 more; /* the number is greater than that, by less than 1 */
} plcuda_big;

GVM_DEVICE_RARE void
plcuda_big_multiply(plcuda_big *b, uint32_t by, uint32_t plus)
{
	uint64_t carry = plus;
	uint32_t i;

	for (i = 0; i < b->count; i++, carry >>= 32)
	{
		carry += (uint64_t) b->words[i] * by;
		b->words[i] = (uint32_t) carry;
	}
	if (carry > 0 && b->count < PLCUDA_BIG_WORDS)
		b->words[b->count++] = (uint32_t) carry;
}

GVM_DEVICE_RARE void
plcuda_big_divide(plcuda_big *b, uint32_t by)
{
	uint64_t rest = 0;
	uint32_t i;

	for (i = b->count; i-- > 0; rest %= by)
	{
		rest = rest << 32 | b->words[i];
		b->words[i] = (uint32_t) (rest / by);
	}
	while (b->count > 0 && b->words[b->count - 1] == 0)
		b->count--;
	if (rest > 0)
		b->more = 1;
}

/* b * 2^(32 * words) */
GVM_DEVICE void
plcuda_big_shift(plcuda_big *b, uint32_t words)
{
	uint32_t i;

	if (words > PLCUDA_BIG_WORDS - b->count)
		words = PLCUDA_BIG_WORDS - b->count;
	for (i = b->count; i-- > 0;)
		b->words[i + words] = b->words[i];
	for (i = 0; i < words; i++)
		b->words[i] = 0;
	b->count += words;
}

/* The double nearest to top * 2^exponent, top with its highest bit set; more: and a bit above that. */
GVM_DEVICE double
plcuda_round_to_double(uint64_t top, int32_t exponent, int more)
{
	const int32_t  first = exponent + 63;							  /* of the highest bit */
	const int32_t  drop = first >= -1022 ? 11 : 11 + (-1022 - first); /* bits */
	const uint64_t half = (uint64_t) 1 << 63, rest = drop <= 64 ? top << (64 - drop) : 0;
	union
	{
		uint64_t bits;
		double	 value;
	} out;

	out.bits = drop < 64 ? top >> drop : 0;
	if (rest > half || (rest == half && (more || (out.bits & 1) != 0)))
		out.bits++;
	if (first >= -1022)
		out.bits += (uint64_t) (first + 1022) << 52; /* with the leading 1 of the mantissa: + 1023 */
	if (first > 1023 || out.bits > (uint64_t) 0x7ff << 52)
		out.bits = (uint64_t) 0x7ff << 52;
	return out.value;
}

/* b * 10^exponent, at most 1124 below 0. */
GVM_DEVICE_RARE double
plcuda_big_to_double(plcuda_big *b, int32_t exponent)
{
	uint32_t shifted = 0, i, lead = 0;
	uint64_t top = 0;

	if (b->count == 0)
		return 0;
	for (; exponent >= 9; exponent -= 9)
		plcuda_big_multiply(b, 1000000000u, 0);
	for (; exponent > 0; exponent--)
		plcuda_big_multiply(b, 10, 0);
	if (exponent < 0)
	{
		/* 10 is less than 2^(107/32): what is left has two words, and the top three of it are read */
		const uint32_t wanted = (uint32_t) (-exponent) * 107 / 1024 + 4;

		if (wanted > b->count)
			shifted = wanted - b->count;
		plcuda_big_shift(b, shifted);
	}
	for (; exponent <= -9; exponent += 9)
		plcuda_big_divide(b, 1000000000u);
	for (; exponent < 0; exponent++)
		plcuda_big_divide(b, 10);
	while (b->words[b->count - 1] << lead >> 31 == 0)
		lead++;
	for (i = 0; i < 3; i++) /* the highest 64 bits */
	{
		const uint32_t word = b->count > i ? b->words[b->count - 1 - i] : 0;

		if (i < 2)
			top = top << 32 | word;
		else if (lead > 0)
		{
			top = top << lead | word >> (32 - lead);
			if (word << lead != 0)
				b->more = 1;
		}
		else if (word != 0)
			b->more = 1;
	}
	for (i = 0; i + 3 < b->count; i++)
		if (b->words[i] != 0)
			b->more = 1;
	return plcuda_round_to_double(
		top, ((int32_t) b->count - 2 - (int32_t) shifted) * 32 - (int32_t) lead, b->more);
}

GVM_DEVICE_RARE double
plcuda_digits_to_double(const plcuda_digits *d)
{
	plcuda_big b;
	int32_t	   first = 0, i;

	b.count = 0;
	b.more = 0;
	while (first < d->count && plcuda_load_16(d->at + 2 * first) == 0)
		first++;
	if (first == d->count || d->weight - first < -82)
		return 0;
	if (d->weight - first > 78)
		return plcuda_round_to_double((uint64_t) 1 << 63, 1024, 0);
	for (i = first; i < d->count; i++)
	{
		const uint32_t digit = plcuda_load_16(d->at + 2 * i);

		if (i < first + PLCUDA_BIG_DIGITS)
			plcuda_big_multiply(&b, 10000, digit);
		else if (digit != 0)
			b.more = 1;
	}
	i = d->count < first + PLCUDA_BIG_DIGITS ? d->count : first + PLCUDA_BIG_DIGITS;
	return plcuda_big_to_double(&b, 4 * (d->weight - (i - 1)));
}

GVM_DEVICE_RARE double
plcuda_integer_to_double(plcuda_uint128 value, int32_t scale)
{
	plcuda_big b;

	b.count = 0;
	b.more = 0;
	for (; value > 0; value >>= 32)
		b.words[b.count++] = (uint32_t) value;
	if (scale > PLCUDA_NUMERIC_DIGITS + 324)
		return 0;
	if (scale < -308 && b.count > 0)
		return plcuda_round_to_double((uint64_t) 1 << 63, 1024, 0);
	return plcuda_big_to_double(&b, -scale);
}

/* The nearest double precision, half to even: infinite beyond its greatest one, 0 below the least; NaN of NULL. */
GVM_DEVICE double
plcuda_numeric_to_float8(const pg_numeric_t *n)
{
	const double		infinity = plcuda_round_to_double((uint64_t) 1 << 63, 1024, 0);
	const plcuda_int128 value = plcuda_numeric_value(n);
	/* Powers of ten that are exact: one division or product is rounded once. */
	const double powers[] = {1e0,  1e1,	 1e2,  1e3,	 1e4,  1e5,	 1e6,  1e7,	 1e8,  1e9,	 1e10, 1e11,
							 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
	double		 result;

	if (n->isnull || n->kind == PLCUDA_NUMERIC_NAN)
		return infinity - infinity;
	if (n->kind == PLCUDA_NUMERIC_INFINITY)
		return infinity;
	if (n->kind == PLCUDA_NUMERIC_MINUS_INFINITY)
		return -infinity;
	if (n->kind == PLCUDA_NUMERIC_LONG)
	{
		const plcuda_digits d = plcuda_find_digits(n->value, n->length);

		result = plcuda_digits_to_double(&d);
		return d.negative ? -result : result;
	}
	if (value >= -((int64_t) 1 << 53) && value <= (int64_t) 1 << 53 && n->scale >= -22 && n->scale <= 22)
		return n->scale >= 0 ? (double) (int64_t) value / powers[n->scale]
							 : (double) (int64_t) value * powers[-n->scale];
	result = plcuda_integer_to_double(value < 0 ? -(plcuda_uint128) value : (plcuda_uint128) value,
									  n->scale);
	return value < 0 ? -result : result;
}

#endif
