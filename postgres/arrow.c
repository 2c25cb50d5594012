/* PostgreSQL's values to Arrow's and back; see arrow.h. */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "postgres/arrow.h"
#include "postgres/store.h"

/* ---- epochs */

static void
report_out_of_range(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
			 errmsg("%s out of range for a table of format 'arrow'", what),
			 errdetail("It ends in the year 294247, infinity aside."),
			 errhint("Use format 'pgstrom' for later ones.")));
}

/*
 * Infinity and -infinity are the greatest and the least number on either side. All dates of PostgreSQL are
 * within Arrow's.
 */
void
gstore_arrow_shift(gstore_form form, void *values, uint64 count)
{
	int32 *days = values;
	int64 *us = values;

	if (form == GSTORE_FORM_DATE)
		for (uint64 i = 0; i < count; i++)
			days[i] += DATE_NOT_FINITE(days[i]) ? 0 : GSTORE_DAYS_1970_TO_2000;
	else if (form == GSTORE_FORM_TIMESTAMP || form == GSTORE_FORM_TIMESTAMPTZ)
		for (uint64 i = 0; i < count; i++)
		{
			if (TIMESTAMP_NOT_FINITE(us[i]))
				continue;
			if (us[i] >= PG_INT64_MAX - GSTORE_US_1970_TO_2000)
				report_out_of_range("timestamp");
			us[i] += GSTORE_US_1970_TO_2000;
		}
}

void
gstore_arrow_shift_back(gstore_form form, void *values, uint64 count)
{
	int32 *days = values;
	int64 *us = values;

	if (form == GSTORE_FORM_DATE)
		for (uint64 i = 0; i < count; i++)
			days[i] -= DATE_NOT_FINITE(days[i]) ? 0 : GSTORE_DAYS_1970_TO_2000;
	else if (form == GSTORE_FORM_TIMESTAMP || form == GSTORE_FORM_TIMESTAMPTZ)
		for (uint64 i = 0; i < count; i++)
			us[i] -= TIMESTAMP_NOT_FINITE(us[i]) ? 0 : GSTORE_US_1970_TO_2000;
}

/* ---- bits */

void
gstore_arrow_to_bits(const uint8 *values, uint64 count, uint8 *bits)
{
	memset(bits, 0, (count + 7) / 8);
	for (uint64 i = 0; i < count; i++)
		bits[i / 8] |= (uint8) ((values[i] != 0) << (i % 8));
}

void
gstore_arrow_from_bits(const uint8 *bits, uint64 skip, uint64 count, uint8 *values)
{
	for (uint64 i = 0; i < count; i++)
		values[i] = bits[(skip + i) / 8] >> ((skip + i) % 8) & 1;
}

/* ---- variable length */

static void
refuse_array(const char *name, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("column \"%s\" of format 'arrow' cannot hold %s", name, why),
			 errhint("Use a table of format 'pgstrom' for such arrays.")));
}

static uint64
elements_of(const ArrayType *array)
{
	return ARR_NDIM(array) == 0 ? 0 : (uint64) ARR_DIMS(array)[0];
}

uint64
gstore_arrow_payload_bytes(const gstore_column *column, const char *name, const struct varlena *body)
{
	const ArrayType *array = (const ArrayType *) body;

	if (column->form != GSTORE_FORM_LIST)
		return VARSIZE_ANY_EXHDR(body);
	if (ARR_NDIM(array) > 1)
		refuse_array(name, "an array of several dimensions");
	if (ARR_NDIM(array) == 1 && ARR_LBOUND(array)[0] != 1)
		refuse_array(name, "an array that does not begin at 1");
	if (elements_of(array) * column->element_width > MaxAllocSize / 2)
		refuse_array(name, "so large an array");
	return elements_of(array) * column->element_width;
}

void
gstore_arrow_payload(const gstore_column *column, const struct varlena *body, uint8 *to)
{
	const ArrayType *array = (const ArrayType *) body;
	const uint32	 width = column->element_width;
	const uint8		*from;
	uint64			 count;

	if (column->form != GSTORE_FORM_LIST)
	{
		memcpy(to, VARDATA_ANY(body), VARSIZE_ANY_EXHDR(body));
		return;
	}
	count = elements_of(array);
	from = (const uint8 *) ARR_DATA_PTR(array);
	if (ARR_NULLBITMAP(array) == NULL)
		memcpy(to, from, count * width);
	else
		for (uint64 i = 0; i < count; i++)
		{
			if (gstore_bit_is_set(ARR_NULLBITMAP(array), i))
			{
				memcpy(to + i * width, from, width);
				from += width;
			}
			else
				memset(to + i * width, 0, width);
		}
	gstore_arrow_shift(column->element_form, to, count);
}

bool
gstore_arrow_element_bits(const struct varlena *body, uint8 *bits, uint64 at)
{
	const ArrayType *array = (const ArrayType *) body;
	const uint8		*valid = ARR_NULLBITMAP(array);
	const uint64	 count = elements_of(array);
	bool			 any_null = false;

	for (uint64 i = 0; i < count; i++, at++)
	{
		const bool set = gstore_bit_is_set(valid, i);

		if (at % 8 == 0)
			bits[at / 8] = 0;
		bits[at / 8] |= (uint8) (set << (at % 8));
		any_null |= !set;
	}
	return any_null;
}

/* Before `bytes` of a value; nulls: there may be a bitmap. */
static uint64
header_bytes(const gstore_column *column, uint64 bytes, bool nulls)
{
	if (column->form != GSTORE_FORM_LIST)
		return VARHDRSZ;
	if (bytes == 0)
		return sizeof(ArrayType);
	return nulls ? ARR_OVERHEAD_WITHNULLS(1, bytes / column->element_width) : ARR_OVERHEAD_NONULLS(1);
}

uint64
gstore_arrow_decoded_bytes(const gstore_column *column, const int64 *offsets, uint64 count)
{
	const uint32 unit = gstore_arrow_unit(column);
	uint64		 sum = 0;

	if (offsets[0] < 0 || (uint64) offsets[count] * unit > column->bodies_bytes)
		goto corrupted;
	for (uint64 i = 0; i < count; i++)
	{
		const uint64 bytes = (uint64) (offsets[i + 1] - offsets[i]) * unit;

		if (offsets[i + 1] < offsets[i] || bytes > MaxAllocSize)
			goto corrupted;
		sum += TYPEALIGN64(8, header_bytes(column, bytes, column->has_element_nulls) + bytes);
	}
	return sum;
corrupted:
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("offsets of a column in GPU memory are out of order")));
}

/* Elements that are not NULL follow each other in an array. Returns its size. */
static uint64
build_array(const gstore_column *column, const uint8 *data, uint64 bytes, gstore_validity elements,
			ArrayType *array)
{
	const uint32 width = column->element_width;
	const uint64 count = bytes / width;
	uint64		 first_null = 0, header;
	uint8		*to, *valid;

	array->ndim = count > 0 ? 1 : 0;
	array->dataoffset = 0;
	array->elemtype = column->element;
	if (count == 0)
		return sizeof *array;
	ARR_DIMS(array)[0] = (int) count;
	ARR_LBOUND(array)[0] = 1;
	while (first_null < count && (gstore_bit_is_set(elements.bits, elements.skip + first_null)))
		first_null++;
	header = header_bytes(column, bytes, first_null < count);
	to = (uint8 *) array + header;
	if (first_null == count)
	{
		memcpy(to, data, bytes);
		gstore_arrow_shift_back(column->element_form, to, count);
		return header + bytes;
	}
	array->dataoffset = (int32) header;
	valid = (uint8 *) &ARR_LBOUND(array)[1];
	memset(valid, 0, (count + 7) / 8);
	for (uint64 i = 0; i < count; i++)
	{
		if (!gstore_bit_is_set(elements.bits, elements.skip + i))
			continue;
		valid[i / 8] |= (uint8) (1 << (i % 8));
		memcpy(to, data + i * width, width);
		gstore_arrow_shift_back(column->element_form, to, 1);
		to += width;
	}
	return (uint64) (to - (uint8 *) array);
}

void
gstore_arrow_decode(const gstore_column *column, const int64 *offsets, const uint8 *data,
					gstore_validity rows, gstore_validity elements, uint64 count, uint64 *places,
					uint8 *bodies)
{
	const uint32 unit = gstore_arrow_unit(column);
	uint64		 at = 0;

	for (uint64 i = 0; i < count; i++)
	{
		const uint64 from = (uint64) (offsets[i] - offsets[0]);
		uint64		 bytes = (uint64) (offsets[i + 1] - offsets[i]) * unit;
		uint8		*to = bodies + at;

		if (!gstore_bit_is_set(rows.bits, rows.skip + i))
		{
			places[i] = 0;
			continue;
		}
		if (column->form == GSTORE_FORM_LIST)
			bytes = build_array(column, data + from * unit, bytes,
								(gstore_validity){elements.bits, elements.skip + from},
								(ArrayType *) to);
		else
		{
			if (bytes > 0)
				memcpy(to + VARHDRSZ, data + from, bytes);
			bytes += VARHDRSZ;
		}
		SET_VARSIZE(to, bytes);
		places[i] = at + 8;
		at += TYPEALIGN64(8, bytes);
	}
}
