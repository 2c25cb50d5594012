/*
 * postgres/plcuda/device/numeric.h - numerics to double, correctly rounded, and to integers.
 *
 * A number is first made digits of base 10000, as PostgreSQL has them. They are multiplied or divided by powers of 2 until the part
 * before the point has the bits of a double and more; what is then behind the point only decides how it is rounded.
 */
#ifndef PLCUDA_DEVICE_NUMERIC_H
#define PLCUDA_DEVICE_NUMERIC_H

#include "order.h"

#define PLCUDA_DIGIT_BASE 10000u
/*
 * Of digits of base 10000: a number with more before the point is beyond double; one with more zeros behind it is below the half of its
 * least one. A number half-way between two doubles has fewer than 770 decimal digits. So what is behind 200 digits decides nothing,
 * but that it is not 0.
 */
#define PLCUDA_WHOLE_DIGITS_MAX 80
#define PLCUDA_ZERO_DIGITS_MAX	90
#define PLCUDA_DIGITS_KEPT		200
#define PLCUDA_DIGITS_MAX		(PLCUDA_ZERO_DIGITS_MAX + PLCUDA_DIGITS_KEPT + 1)

/* The first `point` digits are before the point. */
typedef struct plcuda_digits
{
	unsigned short digit[PLCUDA_DIGITS_MAX];
	int32_t		   count, point;
	char		   negative, huge; /* huge: too large for digits, and for double */
} plcuda_digits;

typedef enum plcuda_rounding
{
	PLCUDA_OUT_OF_RANGE,
	PLCUDA_ROUNDED,
	PLCUDA_EXACT
} plcuda_rounding;

/* ---- numbers of 128 bits, without a sign */

typedef struct plcuda_u128
{
	uint64_t low, high;
} plcuda_u128;

/* Divides, and returns the remainder. */
GVM_DEVICE uint32_t
plcuda_u128_divide(plcuda_u128 *v, uint32_t by)
{
	const uint64_t a = (v->high % by) << 32 | v->low >> 32;
	const uint64_t b = (a % by) << 32 | (v->low & 0xffffffff);

	v->high /= by;
	v->low = (a / by) << 32 | b / by;
	return (uint32_t) (b % by);
}

/* v * by + plus. False: it is not below 2^128. */
GVM_DEVICE int
plcuda_u128_multiply_add(plcuda_u128 *v, uint32_t by, uint32_t plus)
{
	const uint64_t a = (v->low & 0xffffffff) * by + plus;
	const uint64_t b = (v->low >> 32) * by + (a >> 32);
	const uint64_t c = (v->high & 0xffffffff) * by + (b >> 32);
	const uint64_t d = (v->high >> 32) * by + (c >> 32);

	v->low = b << 32 | (a & 0xffffffff);
	v->high = d << 32 | (c & 0xffffffff);
	return d >> 32 == 0;
}

/* ---- digits */

/* Puts the next digit behind the others, or remembers that there was one. Leading zeros only move the point. */
GVM_DEVICE void
plcuda_add_digit(plcuda_digits *d, uint32_t digit)
{
	if (d->count == 0 && digit == 0)
	{
		d->point--;
		return;
	}
	if (d->count == PLCUDA_DIGITS_KEPT)
	{
		d->digit[d->count] = (unsigned short) (d->digit[d->count] | (digit != 0));
		return;
	}
	d->digit[d->count++] = (unsigned short) digit;
}

/* Zeros on either side, so that the point is between digits. */
GVM_DEVICE void
plcuda_finish_digits(plcuda_digits *d)
{
	int32_t i, zeros = d->point < 0 ? -d->point : 0;

	if (d->count == PLCUDA_DIGITS_KEPT && d->digit[d->count] != 0)
		d->count++;
	d->huge = d->count > 0 && d->point > PLCUDA_WHOLE_DIGITS_MAX;
	if (d->huge)
		return;
	if (d->count == 0 || zeros > PLCUDA_ZERO_DIGITS_MAX)
	{
		/* 0, or so small that it is rounded to it: then a digit says that it is not 0. */
		zeros = d->count > 0 ? PLCUDA_ZERO_DIGITS_MAX : 0;
		d->count = d->count > 0;
		d->point = -zeros;
	}
	for (i = d->count; zeros > 0 && i-- > 0;)
		d->digit[i + zeros] = d->digit[i];
	for (i = 0; i < zeros; i++)
		d->digit[i] = 0;
	d->count += zeros;
	for (; d->count < d->point; d->count++)
		d->digit[d->count] = 0;
	d->point = d->point < 0 ? 0 : d->point;
}

/* Of high * 2^64 + low, divided by 10^scale, which may be below 0. */
GVM_DEVICE_RARE void
plcuda_decimal_to_digits(uint64_t low, int64_t high, int32_t scale, plcuda_digits *out)
{
	const int32_t  rest = scale & 3; /* decimal digits in the last one of base 10000 */
	const uint32_t power = rest == 0 ? 1 : rest == 1 ? 10 : rest == 2 ? 100 : 1000;
	unsigned short reversed[12];
	plcuda_u128	   v = {low, (uint64_t) high};
	int32_t		   count = 0;

	out->negative = high < 0;
	if (high < 0)
	{
		v.low = ~low + 1;
		v.high = ~(uint64_t) high + (v.low == 0);
	}
	if (rest != 0)
		reversed[count++] = (unsigned short) (plcuda_u128_divide(&v, power) *
											  (PLCUDA_DIGIT_BASE / power));
	for (; v.low != 0 || v.high != 0; count++)
		reversed[count] = (unsigned short) plcuda_u128_divide(&v, PLCUDA_DIGIT_BASE);
	out->count = 0;
	out->digit[PLCUDA_DIGITS_KEPT] = 0;
	out->point = count - (scale - rest) / 4 - (rest != 0);
	while (count > 0)
		plcuda_add_digit(out, reversed[--count]);
	plcuda_finish_digits(out);
}

GVM_DEVICE uint32_t
plcuda_read_u16(const char *from)
{
	return (unsigned char) from[0] | (uint32_t) (unsigned char) from[1] << 8;
}

/*
 * Of PostgreSQL's form, without the header of a varlena: a word with the sign and, if its highest bit is set, the power of the first
 * digit, or else a second word with that power; then digits, of base 10000. False: it is not a finite number.
 */
GVM_DEVICE_RARE int
plcuda_varlena_to_digits(const char *value, uint32_t length, plcuda_digits *out)
{
	const uint32_t head = length >= 2 ? plcuda_read_u16(value) : 0xc000;
	uint32_t	   at = (head & 0x8000) != 0 ? 2 : 4;
	int32_t		   power;

	if ((head & 0xc000) == 0xc000 || length < at)
		return 0;
	if ((head & 0x8000) != 0)
		power = (int32_t) (head & 0x3f) - ((head & 0x40) != 0 ? 64 : 0);
	else
		power = (int32_t) plcuda_read_u16(value + 2) - ((value[3] & 0x80) != 0 ? 65536 : 0);
	out->negative = (head & ((head & 0x8000) != 0 ? 0x2000 : 0x4000)) != 0;
	out->count = 0;
	out->digit[PLCUDA_DIGITS_KEPT] = 0;
	out->point = power + 1;
	for (; at + 2 <= length; at += 2)
		plcuda_add_digit(out, plcuda_read_u16(value + at));
	plcuda_finish_digits(out);
	return 1;
}

/* ---- to double */

#define PLCUDA_STEP_BITS 9	  /* of powers of 2 */
#define PLCUDA_U64_LEAD	 1844 /* five digits that begin with less are below 2^64 */

/* Divides what is before the point until it is below 2^64: by so many bits. *rest: something is behind the point then. */
GVM_DEVICE int32_t
plcuda_shrink_whole(plcuda_digits *d, uint64_t *whole, int *rest)
{
	int32_t	 first = 0, bits = 0, i;
	uint32_t carry;

	while (first < d->point && d->digit[first] == 0)
		first++;
	while (d->point - first > 5 || (d->point - first == 5 && d->digit[first] >= PLCUDA_U64_LEAD))
	{
		for (i = first, carry = 0; i < d->point; i++)
		{
			carry = carry * PLCUDA_DIGIT_BASE + d->digit[i];
			d->digit[i] = (unsigned short) (carry >> PLCUDA_STEP_BITS);
			carry &= (1u << PLCUDA_STEP_BITS) - 1;
		}
		*rest |= carry != 0;
		bits += PLCUDA_STEP_BITS;
		while (first < d->point && d->digit[first] == 0)
			first++;
	}
	for (*whole = 0; first < d->point; first++)
		*whole = *whole * PLCUDA_DIGIT_BASE + d->digit[first];
	for (i = d->point; i < d->count && bits > 0; i++)
		*rest |= d->digit[i] != 0;
	return bits;
}

/* Multiplies until what is before the point has at least 55 bits, or all there are: by so many bits. */
GVM_DEVICE int32_t
plcuda_grow_whole(plcuda_digits *d, uint64_t *whole, int *rest)
{
	int32_t	 bits = 0, i;
	uint32_t carry;

	for (;;)
	{
		while (d->count > d->point && d->digit[d->count - 1] == 0)
			d->count--;
		if (d->count == d->point || *whole >> 54 != 0)
			break;
		for (i = d->count, carry = 0; i-- > d->point;)
		{
			carry += (uint32_t) d->digit[i] << PLCUDA_STEP_BITS;
			d->digit[i] = (unsigned short) (carry % PLCUDA_DIGIT_BASE);
			carry /= PLCUDA_DIGIT_BASE;
		}
		*whole = (*whole << PLCUDA_STEP_BITS) + carry;
		bits += PLCUDA_STEP_BITS;
	}
	*rest |= d->count > d->point;
	return bits;
}

/* whole * 2^exponent and a rest below that, rounded half to even. */
GVM_DEVICE double
plcuda_round_to_f64(uint64_t whole, int32_t exponent, int rest)
{
	plcuda_bits out;
	int32_t		length = 0, cut;

	while (length < 64 && whole >> length != 0)
		length++;
	cut = length - 53;
	if (exponent + cut < -1074)
		cut = -1074 - exponent; /* of a subnormal number fewer bits are kept */
	out.u64 = cut >= 64 || whole == 0 ? 0 : cut > 0 ? whole >> cut : whole << -cut;
	if (cut > 0 && cut <= 64 && (whole >> (cut - 1) & 1) != 0 &&
		(rest || (out.u64 & 1) != 0 || (whole & (((uint64_t) 1 << (cut - 1)) - 1)) != 0))
		out.u64++;
	if (out.u64 >> 52 != 0)
	{
		/* The leading bit adds 1 to the exponent, and so does a carry. */
		if (exponent + cut > 971)
			out.u64 = 0x7ff0000000000000u;
		else
			out.u64 += (uint64_t) (exponent + cut + 1074) << 52;
	}
	return out.f64;
}

/* Beyond double it is infinite. The digits are overwritten. */
GVM_DEVICE_RARE double
plcuda_digits_to_f64(plcuda_digits *d)
{
	uint64_t whole;
	int32_t	 exponent;
	int		 rest = 0;
	double	 r;

	if (d->huge)
		r = plcuda_round_to_f64(1, 1024, 0);
	else
	{
		exponent = plcuda_shrink_whole(d, &whole, &rest);
		if (exponent == 0)
			exponent = -plcuda_grow_whole(d, &whole, &rest);
		r = plcuda_round_to_f64(whole, exponent, rest);
	}
	return d->negative ? -r : r;
}

/* ---- to integers: halves are rounded away from 0, as by SQL's casts */

/* Written only if it is in range. */
GVM_DEVICE_RARE plcuda_rounding
plcuda_digits_to_i128(const plcuda_digits *d, uint64_t *low, int64_t *high)
{
	plcuda_u128		v = {0, 0};
	plcuda_rounding r = PLCUDA_EXACT;
	int32_t			i;

	if (d->huge)
		return PLCUDA_OUT_OF_RANGE;
	for (i = 0; i < d->point; i++)
		if (!plcuda_u128_multiply_add(&v, PLCUDA_DIGIT_BASE, d->digit[i]))
			return PLCUDA_OUT_OF_RANGE;
	for (i = d->point; i < d->count; i++)
		if (d->digit[i] != 0)
			r = PLCUDA_ROUNDED;
	if (d->point < d->count && d->digit[d->point] >= PLCUDA_DIGIT_BASE / 2 &&
		!plcuda_u128_multiply_add(&v, 1, 1))
		return PLCUDA_OUT_OF_RANGE;
	if (v.high > PLCUDA_SIGN_64 - !d->negative || (v.high == PLCUDA_SIGN_64 && v.low != 0))
		return PLCUDA_OUT_OF_RANGE;
	*low = d->negative ? ~v.low + 1 : v.low;
	*high = (int64_t) (d->negative ? ~v.high + (v.low == 0) : v.high);
	return r;
}

#endif
