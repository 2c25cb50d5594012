/* Values of one length, without headers and with them; see uniform.h. */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/varbit.h"

#include "postgres/arrow.h"
#include "postgres/decimal.h"
#include "postgres/uniform.h"

/* What pgvector's types have in front of their elements. */
typedef struct vector_head
{
	int32 header;
	int16 dimensions;
	int16 unused;
} vector_head;

static uint32
head_bytes(const gstore_column *column)
{
	switch (column->form)
	{
		case GSTORE_FORM_ARRAY:
			return ARR_OVERHEAD_NONULLS(1);
		case GSTORE_FORM_VECTOR:
			return sizeof(vector_head);
		case GSTORE_FORM_BITS:
			return VARBITHDRSZ + VARHDRSZ;
		default:
			return VARHDRSZ;
	}
}

uint32
gstore_uniform_width(const gstore_column *column)
{
	if (column->form == GSTORE_FORM_DECIMAL)
		return GSTORE_NUMERIC_BYTES;
	return (uint32) TYPEALIGN(8, head_bytes(column) + column->stride);
}

/* ---- into areas */

static void
report_other_length(const gstore_column *column, const char *name, int code, uint64 found,
					const char *unit)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg("column \"%s\" holds values of %u %s, not of %llu", name, column->count, unit,
					(unsigned long long) found),
			 errdetail("Values of one length lie one behind the other in GPU memory.")));
}

static void
report_array(const char *name, int code, const char *what)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg("column \"%s\" with the option \"length\" cannot hold %s", name, what),
			 errhint("Each array has as many elements as the option says, from index 1 on.")));
}

static const uint8 *
elements_of_array(const gstore_column *column, const char *name, const struct varlena *body)
{
	const ArrayType *array = (const ArrayType *) body;
	const int		 dimensions = ARR_NDIM(array);

	if (dimensions > 1)
		report_array(name, ERRCODE_ARRAY_SUBSCRIPT_ERROR, "an array of several dimensions");
	if (dimensions == 0 || (uint32) ARR_DIMS(array)[0] != column->count)
		report_other_length(column, name, ERRCODE_ARRAY_SUBSCRIPT_ERROR,
							dimensions == 0 ? 0 : (uint64) ARR_DIMS(array)[0], "elements");
	if (ARR_LBOUND(array)[0] != 1)
		report_array(name, ERRCODE_ARRAY_SUBSCRIPT_ERROR, "an array that does not begin at 1");
	if (array_contains_nulls(unconstify(ArrayType *, array)))
		report_array(name, ERRCODE_NULL_VALUE_NOT_ALLOWED, "an array with a NULL element");
	return (const uint8 *) ARR_DATA_PTR(array);
}

static const uint8 *
elements_of_vector(const gstore_column *column, const char *name, const struct varlena *body)
{
	const vector_head *head = (const vector_head *) body;

	if (VARSIZE(body) < sizeof *head || (uint16) head->dimensions != column->count ||
		VARSIZE(body) != sizeof *head + column->stride)
		report_other_length(column, name, ERRCODE_DATA_EXCEPTION,
							VARSIZE(body) < sizeof *head ? 0 : (uint64) (uint16) head->dimensions,
							"dimensions");
	return (const uint8 *) (head + 1);
}

static void
strip_numeric(const gstore_column *column, const char *name, const struct varlena *body, uint8 *to)
{
	gstore_decimal decimal;

	if (!gstore_decimal_floor(body, column->scale, &decimal) ||
		!gstore_decimal_fits(decimal, column->precision))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE), errmsg("numeric field overflow"),
				 errdetail("Column \"%s\" holds numbers of precision %u and scale %d.", name,
						   column->precision, column->scale)));
	memcpy(to, &decimal, sizeof decimal);
}

void
gstore_uniform_strip(const gstore_column *column, const char *name, const struct varlena *body,
					 uint8 *to)
{
	const uint8 *from;

	switch (column->form)
	{
		case GSTORE_FORM_DECIMAL:
			strip_numeric(column, name, body, to);
			return;
		case GSTORE_FORM_BITS:
			if ((uint32) VARBITLEN(body) != column->count)
				report_other_length(column, name, ERRCODE_STRING_DATA_LENGTH_MISMATCH,
									(uint64) VARBITLEN(body), "bits");
			from = VARBITS(body);
			break;
		case GSTORE_FORM_ARRAY:
			from = elements_of_array(column, name, body);
			break;
		case GSTORE_FORM_VECTOR:
			from = elements_of_vector(column, name, body);
			break;
		default:
			if (VARSIZE(body) - VARHDRSZ != column->count)
				report_other_length(column, name, ERRCODE_STRING_DATA_LENGTH_MISMATCH,
									VARSIZE(body) - VARHDRSZ, "bytes");
			from = (const uint8 *) VARDATA(body);
	}
	memcpy(to, from, column->stride);
	if (column->arrow)
		gstore_arrow_shift(column->element_form, to, column->count);
}

/* ---- into batches */

static void
write_head(const gstore_column *column, uint8 *to)
{
	ArrayType	*array = (ArrayType *) to;
	vector_head *vector = (vector_head *) to;

	SET_VARSIZE(to, head_bytes(column) + column->stride);
	switch (column->form)
	{
		case GSTORE_FORM_ARRAY:
			array->ndim = 1;
			array->dataoffset = 0;
			array->elemtype = column->element;
			ARR_DIMS(array)[0] = (int) column->count;
			ARR_LBOUND(array)[0] = 1;
			break;
		case GSTORE_FORM_VECTOR:
			vector->dimensions = (int16) column->count;
			vector->unused = 0;
			break;
		case GSTORE_FORM_BITS:
			VARBITLEN(to) = (int32) column->count;
			break;
		default:
			break;
	}
}

void
gstore_uniform_restore(const gstore_column *column, const uint8 *uniform, uint64 count, uint8 *values)
{
	const uint32 stride = column->stride, head = head_bytes(column),
				 width = gstore_uniform_width(column);

	if (column->form == GSTORE_FORM_DECIMAL)
	{
		for (uint64 i = 0; i < count; i++)
			gstore_decimal_to_numeric(gstore_decimal_load(uniform + i * stride), column->scale,
									  (struct varlena *) (values + i * width));
		return;
	}
	for (uint64 i = 0; i < count; i++, uniform += stride, values += width)
	{
		write_head(column, values);
		memcpy(values + head, uniform, stride);
		memset(values + head + stride, 0, width - head - stride);
		if (column->arrow)
			gstore_arrow_shift_back(column->element_form, values + head, column->count);
	}
}
