/*
 * See decimal.h.
 *
 * A numeric on disk is a header of 16 bits, in its long form also a weight of 16, and digits to the base of 10000, from the
 * first one that is not 0 to the last one. Digit i counts 10000^(weight - i).
 */
#include "postgres.h"

#include "postgres/compat.h"
#include "postgres/decimal.h"

#define BASE		10000u
#define BASE_DIGITS 4
#define DIGITS_MAX	12 /* of a decimal, to that base, where its point is not between two of them */

/* The header. */
#define KIND_MASK		  0xC000
#define KIND_NEGATIVE	  0x4000 /* of the long form, as positive numbers have 0 */
#define KIND_SHORT		  0x8000
#define KIND_SPECIAL	  0xC000
#define SPECIAL_MASK	  0xF000 /* all of it: -infinity */
#define SPECIAL_NAN		  0xC000
#define SHORT_NEGATIVE	  0x2000
#define SHORT_SCALE_SHIFT 7
#define SHORT_SCALE_MAX	  63
#define SHORT_WEIGHT_MASK 0x007F /* a signed number */
#define SHORT_WEIGHT_MIN  (-64)
#define SHORT_WEIGHT_MAX  63

typedef unsigned __int128 magnitude;

typedef struct parts
{
	bool		 negative;
	int			 weight, count;
	const uint8 *digits; /* may not be aligned */
} parts;

static const uint64 powers[] = {
	UINT64CONST(1),
	UINT64CONST(10),
	UINT64CONST(100),
	UINT64CONST(1000),
	UINT64CONST(10000),
	UINT64CONST(100000),
	UINT64CONST(1000000),
	UINT64CONST(10000000),
	UINT64CONST(100000000),
	UINT64CONST(1000000000),
	UINT64CONST(10000000000),
	UINT64CONST(100000000000),
	UINT64CONST(1000000000000),
	UINT64CONST(10000000000000),
	UINT64CONST(100000000000000),
	UINT64CONST(1000000000000000),
	UINT64CONST(10000000000000000),
	UINT64CONST(100000000000000000),
	UINT64CONST(1000000000000000000),
	UINT64CONST(10000000000000000000),
};

#define POWERS_MAX ((int) lengthof(powers) - 1)

/* exponent: 0 to 38 */
static magnitude
power_of_10(int exponent)
{
	if (exponent <= POWERS_MAX)
		return powers[exponent];
	return (magnitude) powers[POWERS_MAX] * powers[exponent - POWERS_MAX];
}

bool
gstore_decimal_fits(gstore_decimal decimal, int precision)
{
	const gstore_decimal limit = (gstore_decimal) power_of_10(precision);

	return decimal == GSTORE_DECIMAL_NAN || (decimal > -limit && decimal < limit);
}

/* ---- from numeric */

static uint16
load_16(const uint8 *from)
{
	uint16 value;

	memcpy(&value, from, sizeof value);
	return value;
}

/* False: it is infinite, if it is not NaN. */
static bool
take_apart(const struct varlena *numeric, parts *out, bool *nan)
{
	const uint8 *at = (const uint8 *) VARDATA(numeric);
	const int	 bytes = (int) VARSIZE(numeric) - VARHDRSZ;
	const uint16 header = bytes >= 2 ? load_16(at) : SPECIAL_MASK;

	*nan = (header & SPECIAL_MASK) == SPECIAL_NAN;
	*out = (parts){.negative = (header & SPECIAL_MASK) == SPECIAL_MASK};
	if ((header & KIND_MASK) == KIND_SPECIAL)
		return *nan;
	if ((header & KIND_MASK) == KIND_SHORT)
	{
		const int weight = header & SHORT_WEIGHT_MASK;

		out->negative = (header & SHORT_NEGATIVE) != 0;
		out->weight = weight > SHORT_WEIGHT_MAX ? weight - (SHORT_WEIGHT_MASK + 1) : weight;
		out->digits = at + 2;
		out->count = (bytes - 2) / 2;
		return true;
	}
	if (bytes < 4)
		return false;
	out->negative = (header & KIND_MASK) == KIND_NEGATIVE;
	out->weight = (int16) load_16(at + 2);
	out->digits = at + 4;
	out->count = (bytes - 4) / 2;
	return true;
}

/* *sum * 10^exponent + digit; false: that has more than 38 digits. */
static bool
append(magnitude *sum, int exponent, uint32 digit)
{
	const magnitude limit = power_of_10(GSTORE_DECIMAL_PRECISION_MAX);

	if (*sum >= power_of_10(GSTORE_DECIMAL_PRECISION_MAX - exponent))
		return false;
	*sum = *sum * power_of_10(exponent) + digit;
	return *sum < limit;
}

bool
gstore_decimal_floor(const struct varlena *numeric, int scale, gstore_decimal *out)
{
	const magnitude limit = power_of_10(GSTORE_DECIMAL_PRECISION_MAX);
	magnitude		sum = 0;
	parts			p;
	bool			nan, exact = true, good = take_apart(numeric, &p, &nan);
	int				exponent; /* of the digit, to the base of 10, in the decimal */

	if (nan)
	{
		*out = GSTORE_DECIMAL_NAN;
		return true;
	}
	exponent = BASE_DIGITS * p.weight + scale;
	for (int i = 0; i < p.count && good; i++, exponent -= BASE_DIGITS)
	{
		const uint32 digit = load_16(p.digits + 2 * i);
		const int behind = Min(Max(-exponent, 0), BASE_DIGITS); /* of its 4 digits, behind the last one */

		exact &= digit % (uint32) powers[behind] == 0;
		good = digit < BASE && append(&sum, BASE_DIGITS - behind, digit / (uint32) powers[behind]);
	}
	exponent += BASE_DIGITS;
	if (good && sum > 0 && exponent > 0)
		good = exponent <= GSTORE_DECIMAL_PRECISION_MAX && append(&sum, exponent, 0);
	if (!good)
	{
		sum = limit;
		exact = false;
	}
	*out = p.negative ? -(gstore_decimal) sum - (good && !exact) : (gstore_decimal) sum;
	return exact;
}

/* ---- to numeric */

/* Its digits to the base of 10000, the last one first; returns how many. */
static int
split(magnitude number, uint16 *digits)
{
	int count = 0;

	while (number > PG_UINT64_MAX)
	{
		const uint64 group = powers[4 * BASE_DIGITS];
		uint64		 low = (uint64) (number % group);

		number /= group;
		for (int i = 0; i < 4; i++, low /= BASE)
			digits[count++] = (uint16) (low % BASE);
	}
	for (uint64 rest = (uint64) number; rest > 0; rest /= BASE)
		digits[count++] = (uint16) (rest % BASE);
	return count;
}

static void
put_together(const parts *p, const uint16 *digits, int scale, struct varlena *numeric)
{
	uint8 *const at = (uint8 *) VARDATA(numeric);
	const bool	 is_short = scale <= SHORT_SCALE_MAX && p->weight <= SHORT_WEIGHT_MAX &&
		p->weight >= SHORT_WEIGHT_MIN;
	const int head = is_short ? 2 : 4;
	uint16	  header, digit;

	if (is_short)
		header = (uint16) (KIND_SHORT | (p->negative ? SHORT_NEGATIVE : 0) |
						   scale << SHORT_SCALE_SHIFT | (p->weight & SHORT_WEIGHT_MASK));
	else
	{
		const int16 weight = (int16) p->weight;

		header = (uint16) ((p->negative ? KIND_NEGATIVE : 0) | scale);
		memcpy(at + 2, &weight, sizeof weight);
	}
	memcpy(at, &header, sizeof header);
	for (int i = 0; i < p->count; i++)
	{
		digit = digits[p->count - 1 - i];
		memcpy(at + head + 2 * i, &digit, sizeof digit);
	}
	SET_VARSIZE(numeric, VARHDRSZ + head + 2 * p->count);
}

void
gstore_decimal_to_numeric(gstore_decimal decimal, int scale, struct varlena *numeric)
{
	uint16	  digits[DIGITS_MAX], *last = digits;
	magnitude number = decimal < 0 ? -(magnitude) decimal : (magnitude) decimal;
	/* The last digit to the base of 10000 ends with so many zeros that the decimal does not have. */
	const int zeros = ((-scale % BASE_DIGITS) + BASE_DIGITS) % BASE_DIGITS;
	const int weight = (-scale - zeros) / BASE_DIGITS;
	parts	  p = {.negative = decimal < 0};

	if (decimal == GSTORE_DECIMAL_NAN)
	{
		const uint16 header = SPECIAL_NAN;

		memcpy(VARDATA(numeric), &header, sizeof header);
		SET_VARSIZE(numeric, VARHDRSZ + sizeof header);
		return;
	}
	if (zeros > 0)
	{
		const uint64 part = powers[BASE_DIGITS - zeros];

		digits[0] = (uint16) ((uint64) (number % part) * powers[zeros]);
		p.count = 1 + split(number / part, digits + 1);
	}
	else
		p.count = split(number, digits);
	p.weight = weight + p.count - 1;
	while (p.count > 0 && digits[p.count - 1] == 0) /* the only one */
	{
		p.count--;
		p.weight--;
	}
	while (p.count > 0 && *last == 0)
	{
		last++;
		p.count--;
	}
	if (p.count == 0)
		p.weight = 0;
	put_together(&p, last, Max(scale, 0), numeric);
}
