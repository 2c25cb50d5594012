/*
 * postgres/decimal.h - numeric(p, s) with p <= 38 as decimals: the number times 10^s, a signed integer of 16 bytes,
 * little-endian, as Arrow's decimal128. The least one, -2^127, is NaN.
 *
 * PostgreSQL exports no way to the digits of a numeric. So decimal.c has their form on disk, which pg_upgrade relies on:
 * it is the same in all releases since 9.1.
 */
#ifndef GSTORE_DECIMAL_H
#define GSTORE_DECIMAL_H

#include "postgres.h"

#define GSTORE_DECIMAL_BYTES		 16
#define GSTORE_DECIMAL_PRECISION_MAX 38
#define GSTORE_NUMERIC_BYTES		 32 /* of the numeric of any decimal, at most; a multiple of 8 */

typedef __int128 gstore_decimal pg_attribute_aligned(MAXIMUM_ALIGNOF); /* as palloc aligns */

#define GSTORE_DECIMAL_NAN ((gstore_decimal) ((unsigned __int128) 1 << 127))

static inline gstore_decimal
gstore_decimal_load(const uint8 *from)
{
	gstore_decimal decimal;

	memcpy(&decimal, from, sizeof decimal); /* which may not be aligned */
	return decimal;
}

/* NaN, or of so many digits at most. */
extern bool gstore_decimal_fits(gstore_decimal decimal, int precision);

/*
 * The greatest decimal of the scale that is not above the number; true: it is equal. numeric: with a header of 4 bytes. Of one
 * that is beyond all of 38 digits, or infinite, 10^38 or -10^38. NaN is a decimal.
 */
extern bool gstore_decimal_floor(const struct varlena *numeric, int scale, gstore_decimal *out);
/* Writes at most GSTORE_NUMERIC_BYTES, as PostgreSQL itself writes the number. */
extern void gstore_decimal_to_numeric(gstore_decimal decimal, int scale, struct varlena *numeric);

#endif
