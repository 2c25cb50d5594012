/* See column.h. */
#include "postgres.h"

#include "access/tupmacs.h"

#include "postgres/column.h"
#include "postgres/form.h"
#include "postgres/uniform.h"

uint32
gstore_width(const gstore_column *column)
{
	if (gstore_is_uniform(column))
		return gstore_uniform_width(column);
	return column->length < 0 ? sizeof(uint64)
							  : (uint32) att_align_nominal(column->length, column->align);
}

uint32
gstore_stride(const gstore_column *column)
{
	return gstore_is_uniform(column) ? column->stride : gstore_width(column);
}

static uint64
values_bytes(const gstore_column *c, uint64 rows)
{
	if (gstore_arrow_is_variable(c))
		return (rows + 1) * sizeof(int64);
	if (c->form == GSTORE_FORM_BOOL)
		return (rows + 7) / 8;
	return rows * gstore_stride(c);
}

uint64
gstore_part_bytes(const gstore_column *c, gstore_part part, uint64 rows)
{
	switch (part)
	{
		case GSTORE_VALUES:
			return values_bytes(c, rows);
		case GSTORE_BODIES:
			return gstore_is_variable(c) ? c->bodies_bytes : 0;
		case GSTORE_NULLS:
			return c->has_nulls && (!gstore_is_variable(c) || gstore_is_arrow(c)) ? (rows + 7) / 8 : 0;
		case GSTORE_ELEMENT_NULLS:
			return c->has_element_nulls ? (c->bodies_bytes / gstore_arrow_unit(c) + 7) / 8 : 0;
		default:
			return 0;
	}
}

uint64
gstore_data_bytes(uint64 rows, const gstore_column *columns, int column_count)
{
	uint64 sum = 0;

	for (int i = 0; i < column_count; i++)
	{
		if (columns[i].dropped)
			continue;
		for (int part = GSTORE_VALUES; part <= GSTORE_ELEMENT_NULLS; part++)
			sum += gstore_part_bytes(&columns[i], (gstore_part) part, rows);
	}
	return sum;
}
