/* See load_uniform.h. */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/lsyscache.h"

#include "postgres/decimal.h"
#include "postgres/load_uniform.h"

#define HALF_EXPONENT 0x7c00u /* all bits set: infinite, or NaN */

bool
gstore_load_uniform_is_checked(const gstore_column *column)
{
	switch (column->form)
	{
		case GSTORE_FORM_DECIMAL:
		case GSTORE_FORM_VECTOR:
			return true;
		case GSTORE_FORM_BITS:
			return column->count % 8 != 0;
		case GSTORE_FORM_BYTES:
			return getBaseType(column->type) != BYTEAOID;
		default:
			return false;
	}
}

/* pgvector refuses what is not finite. */
static bool
is_finite(const gstore_column *column, const uint8 *bytes)
{
	for (uint32 i = 0; i < column->count; i++)
	{
		uint16 half;
		float4 number;

		if (column->element_form == GSTORE_FORM_HALF)
		{
			memcpy(&half, bytes + i * sizeof half, sizeof half);
			if ((half & HALF_EXPONENT) == HALF_EXPONENT)
				return false;
			continue;
		}
		memcpy(&number, bytes + i * sizeof number, sizeof number);
		if (!isfinite(number))
			return false;
	}
	return true;
}

bool
gstore_load_uniform_is_value(const gstore_column *column, const uint8 *bytes)
{
	switch (column->form)
	{
		case GSTORE_FORM_DECIMAL:
			return gstore_decimal_fits(gstore_decimal_load(bytes), column->precision);
		case GSTORE_FORM_VECTOR:
			return is_finite(column, bytes);
		case GSTORE_FORM_BITS: /* the bits behind the last one are 0 */
			return (bytes[column->stride - 1] & (0xff >> column->count % 8)) == 0 ||
				column->count % 8 == 0;
		default:
			return true;
	}
}
