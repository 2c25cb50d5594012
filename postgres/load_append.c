/*
 * A segment of rows by columns, written behind the rows of a view; see load.h.
 *
 * Bits and offsets pass through this process, as they go on where those of the rows before end. All else is copied to the
 * area, on the device if it is staged, and what not every byte is a value of is read back from there and checked. A
 * statement that fails leaves bytes behind the rows that count, as any writer does.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/ascii.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "postgres/arrow.h"
#include "postgres/load.h"
#include "postgres/load_uniform.h"

#define SEGMENT_ROWS	 (1u << 19)
#define ROWS_A_SEGMENT	 (1u << 16)	 /* of such as the executor has to see */
#define SEGMENT_BYTES	 (64u << 20) /* of offsets, about */
#define VALUE_BYTES_MAX	 (MaxAllocSize / 2)
#define CHECKED_BYTES	 (4u << 20) /* read at a time, but for a value that is larger */
#define ELEMENTS_A_PIECE (4u << 20) /* whose bits are in memory at a time */
#define PIECES_MAX		 2

/* What of a segment this process has of a column. */
typedef struct gstore_load_part
{
	uint8 *validity; /* NULL: no row is NULL */
	uint64 nulls;
	int64 *offsets; /* as the source has them, one more than rows; the same memory for all segments */
} gstore_load_part;

static bool
is_null_column(const gstore_load_field *field)
{
	return field->from == NULL || strcmp(field->from->format, "n") == 0;
}

/* Bytes a row in its area. */
static uint32
stride_of(const gstore_column *column)
{
	return gstore_arrow_is_variable(column) ? sizeof(int64) : gstore_stride(column);
}

uint64
gstore_load_segment_rows(const gstore_loading *load)
{
	const TupleDesc desc = RelationGetDescr(load->relation);
	uint64			width = 1, rows;

	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped && gstore_arrow_is_variable(&load->columns[i]))
			width += sizeof(int64);
	rows = Min(SEGMENT_BYTES / width, SEGMENT_ROWS);
	return (load->by_rows ? Min(rows, ROWS_A_SEGMENT) : rows) / 8 * 8;
}

/* ---- what is read: bits and offsets */

/* Bits [first, first + count), of which the first is the lowest; those behind are 0. */
static uint8 *
read_bitmap(const gstore_loading *load, const gstore_load_buffer *buffer, uint64 first, uint64 count)
{
	const uint32 skip = (uint32) (first % 8);
	const uint64 bytes = (skip + count + 7) / 8;
	uint8		*bits = palloc0(bytes + 1);

	gstore_load_read(load->source, buffer->offset + first / 8, bits, bytes);
	if (skip > 0)
		for (uint64 i = 0; i < bytes; i++)
			bits[i] = (uint8) (bits[i] >> skip | bits[i + 1] << (8 - skip));
	bits[(count + 7) / 8] = 0;
	if (count % 8 != 0)
		bits[count / 8] &= (uint8) ((1u << (count % 8)) - 1);
	return bits;
}

static void
read_validity(const gstore_loading *load, const gstore_load_segment *segment, int index,
			  gstore_load_part *part)
{
	const gstore_load_column *from = load->fields[index].from;

	if (from->validity.bytes == 0)
		return;
	part->validity = read_bitmap(load, &from->validity, segment->first, segment->count);
	part->nulls = segment->count -
		pg_popcount((const char *) part->validity, (int) ((segment->count + 7) / 8));
	if (part->nulls == 0)
		part->validity = NULL;
}

static void
refuse_offsets(const gstore_loading *load, int index)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
			 errmsg("offsets of column \"%s\" are out of order, or beyond its values",
					gstore_load_name(load, index))));
}

static bool
is_rising(const int64 *offsets, uint64 count)
{
	for (uint64 i = 0; i < count; i++)
		if (offsets[i + 1] < offsets[i])
			return false;
	return true;
}

/*
 * In the order of rows: each row begins where the one before ends, also if that was in another segment. Steps of which
 * none is longer than a value can be do not reach around all numbers, so first and last say where all are.
 */
static void
check_offsets(const gstore_loading *load, int index, const int64 *offsets, uint64 count)
{
	const gstore_column *column = &load->columns[index];
	gstore_load_field	*field = &load->fields[index];
	const uint64		 limit = column->form == GSTORE_FORM_LIST ? field->from->elements
																  : field->from->values.bytes;
	uint64				 longest = 0;

	for (uint64 i = 0; i < count; i++)
		longest = Max(longest, (uint64) offsets[i + 1] - (uint64) offsets[i]);
	if (offsets[0] < 0 || (uint64) offsets[count] > limit ||
		(field->end != PG_UINT64_MAX && field->end != (uint64) offsets[0]))
		refuse_offsets(load, index);
	if (longest > VALUE_BYTES_MAX / gstore_arrow_unit(column) ||
		(column->form == GSTORE_FORM_LIST && longest > MaxArraySize))
	{
		if (!is_rising(offsets, count))
			refuse_offsets(load, index);
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a value of column \"%s\" has more than %d MiB",
						gstore_load_name(load, index), (int) (VALUE_BYTES_MAX >> 20))));
	}
	field->end = (uint64) offsets[count];
}

static void
read_offsets(const gstore_loading *load, const gstore_load_segment *segment, int index,
			 gstore_load_part *part)
{
	const gstore_load_field *field = &load->fields[index];
	const uint64			 count = segment->count + 1;
	const uint64 at = field->from->offsets.offset + segment->first * field->offset_bytes;

	if (part->offsets == NULL)
		part->offsets = MemoryContextAllocHuge(load->context,
											   (gstore_load_segment_rows(load) + 1) * sizeof(int64));
	if (field->offset_bytes == sizeof(int64))
		gstore_load_read(load->source, at, part->offsets, count * sizeof(int64));
	else
	{ /* from the upper half of the memory to all of it */
		int32 *narrow = (int32 *) part->offsets + count;

		gstore_load_read(load->source, at, narrow, count * sizeof(int32));
		for (uint64 i = 0; i < count; i++)
			part->offsets[i] = narrow[i];
	}
	check_offsets(load, index, part->offsets, segment->count);
}

static bool
has_null_with_bytes(const gstore_load_part *part, uint64 count)
{
	if (part->validity == NULL)
		return false;
	for (uint64 i = 0; i < count; i++)
		if (!gstore_bit_is_set(part->validity, i) && part->offsets[i] != part->offsets[i + 1])
			return true;
	return false;
}

void
gstore_load_read_segment(gstore_loading *load, gstore_load_segment *segment)
{
	const TupleDesc desc = RelationGetDescr(load->relation);

	if (load->parts == NULL)
	{
		load->parts = MemoryContextAllocZero(load->context,
											 sizeof *load->parts * (Size) Max(desc->natts, 1));
		load->bytes = MemoryContextAlloc(load->context, CHECKED_BYTES);
	}
	segment->parts = load->parts;
	segment->ragged = false;
	for (int i = 0; i < desc->natts; i++)
	{
		gstore_load_part *part = &segment->parts[i];

		if (TupleDescAttr(desc, i)->attisdropped || is_null_column(&load->fields[i]))
			continue;
		part->validity = NULL;
		part->nulls = 0;
		read_validity(load, segment, i, part);
		if (!gstore_arrow_is_variable(&load->columns[i]))
			continue;
		read_offsets(load, segment, i, part);
		segment->ragged |= has_null_with_bytes(part, segment->count);
	}
}

/* ---- checks of values */

static void
refuse_value(const gstore_loading *load, int index)
{
	const Form_pg_attribute a = TupleDescAttr(RelationGetDescr(load->relation), index);
	const gstore_form		form = load->columns[index].form;

	ereport(ERROR,
			(errcode(form == GSTORE_FORM_DECIMAL ? ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE
						 : form == GSTORE_FORM_BITS || form == GSTORE_FORM_VECTOR
						 ? ERRCODE_INVALID_BINARY_REPRESENTATION
						 : ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
			 errmsg("value out of range for column \"%s\" of type %s", NameStr(a->attname),
					format_type_be(a->atttypid))));
}

static bool
is_date(int32 days)
{
	const int64 since_2000 = (int64) days - GSTORE_DAYS_1970_TO_2000;

	return DATE_NOT_FINITE(days) || IS_VALID_DATE(since_2000);
}

static bool
is_timestamp(int64 us)
{
	return TIMESTAMP_NOT_FINITE(us) ||
		(us >= PG_INT64_MIN + GSTORE_US_1970_TO_2000 &&
		 IS_VALID_TIMESTAMP(us - GSTORE_US_1970_TO_2000));
}

static bool
is_checked_form(gstore_form form)
{
	return form == GSTORE_FORM_DATE || form == GSTORE_FORM_TIME || form == GSTORE_FORM_TIMESTAMP ||
		form == GSTORE_FORM_TIMESTAMPTZ;
}

/* Values of rows or elements from `first` on, of which those count that have their bits set. */
static void
check_values(const gstore_loading *load, int index, gstore_form form, const void *values,
			 uint64 count, const uint8 *valid, uint64 first)
{
	const int32 *days = values;
	const int64 *us = values;
	bool		 good = true;

	for (uint64 i = 0; i < count; i++)
		if (gstore_bit_is_set(valid, first + i))
			good &= form == GSTORE_FORM_DATE ? is_date(days[i])
				: form == GSTORE_FORM_TIME	 ? us[i] >= 0 && us[i] <= USECS_PER_DAY
											 : is_timestamp(us[i]);
	if (!good)
		refuse_value(load, index);
}

static void
check_chars(const gstore_loading *load, int index, const uint8 *bytes, uint64 count)
{
	const int32 most = load->fields[index].max_chars;

	if (most >= 0 && count > (uint64) most &&
		pg_mbstrlen_with_len((const char *) bytes, (int) count) > most)
		ereport(ERROR,
				(errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				 errmsg("value too long for type character varying(%d)", most)));
}

/* Without zero bytes. Most texts are, and then no row begins within a character. */
static bool
is_ascii(const uint8 *bytes, uint64 count)
{
	const uint64 most = (uint64) (1 << 30);

	for (; count >= sizeof(uint64);)
	{
		const uint64 some = Min(count, most) / sizeof(uint64) * sizeof(uint64);

		if (!is_valid_ascii(bytes, (int) some))
			return false;
		bytes += some;
		count -= some;
	}
	for (uint64 i = 0; i < count; i++)
		if (bytes[i] == 0 || bytes[i] > 0x7f)
			return false;
	return true;
}

/* In UTF-8, all rows at once: they are right one by one if none begins within a character. */
static bool
is_utf8(const uint8 *bytes, const int64 *offsets, uint64 count)
{
	const uint64 all = (uint64) (offsets[count] - offsets[0]);

	if (all > PG_INT32_MAX ||
		pg_encoding_verifymbstr(PG_UTF8, (const char *) bytes, (int) all) != (int) all)
		return false;
	for (uint64 i = 0; i < count; i++)
		if (offsets[i] != offsets[i + 1] && (bytes[offsets[i] - offsets[0]] & 0xc0) == 0x80)
			return false;
	return true;
}

/*
 * Rows from `first` on, one behind the other; valid: which of them are not NULL. If they are not right all together, the
 * function that checks one knows what to say.
 */
static void
check_texts(const gstore_loading *load, int index, const uint8 *bytes, const int64 *offsets,
			uint64 count, const uint8 *valid, uint64 first)
{
	const int  encoding = GetDatabaseEncoding();
	const bool good = is_ascii(bytes, (uint64) (offsets[count] - offsets[0])) ||
		(encoding == PG_UTF8 && is_utf8(bytes, offsets, count));

	for (uint64 i = 0; i < count && !good; i++)
		if (gstore_bit_is_set(valid, first + i))
			(void) pg_verify_mbstr(encoding, (const char *) bytes + (offsets[i] - offsets[0]),
								   (int) (offsets[i + 1] - offsets[i]), false);
	for (uint64 i = 0; i < count && load->fields[index].max_chars >= 0; i++)
		if (gstore_bit_is_set(valid, first + i))
			check_chars(load, index, bytes + (offsets[i] - offsets[0]),
						(uint64) (offsets[i + 1] - offsets[i]));
}

/* ---- what is written */

/* Where a run of bytes goes. */
typedef struct place
{
	gstore_loading *load;
	gstore_view	   *state;
	int				index;
	gstore_part		part;
} place;

static void
write_pieces(const place *to, gstore_piece *pieces, int count)
{
	if (count > 0)
		gstore_transfer(GSTORE_WRITE, &to->state->name, pieces, count);
}

static gstore_piece
piece_of(const place *to, uint64 at, uint64 bytes, void *local)
{
	return (gstore_piece){.column = (uint16) (to->index + 1),
						  .part = (uint8) to->part,
						  .offset_bytes = at,
						  .bytes = bytes,
						  .local = local};
}

/* Of a column, from what is staged: where its values go, or what its offsets count. False: it has none. */
static bool
find_staged(const place *to, const gstore_load_segment *segment, gstore_piece *piece)
{
	const gstore_load_column *from = to->load->fields[to->index].from;
	const gstore_column		 *column = &to->state->columns[to->index];
	const gstore_load_part	 *part = &segment->parts[to->index];
	const uint32			  width = stride_of(column), unit = gstore_arrow_unit(column);

	if (column->form == GSTORE_FORM_BOOL)
		return false;
	*piece = (gstore_piece){.column = (uint16) (to->index + 1),
							.part = GSTORE_VALUES,
							.offset_bytes = to->state->rows * width,
							.bytes = segment->count * width,
							.staged = true,
							.from = from->values.offset + segment->first * width};
	if (gstore_arrow_is_variable(column))
	{
		piece->part = GSTORE_BODIES;
		piece->offset_bytes = column->bodies_bytes;
		piece->bytes = (uint64) (part->offsets[segment->count] - part->offsets[0]) * unit;
		piece->from = from->values.offset + (uint64) part->offsets[0] * unit;
	}
	return piece->bytes > 0;
}

/* On the device, all columns at once. */
static void
put_staged(gstore_loading *load, const gstore_load_segment *segment, gstore_view *state)
{
	const TupleDesc desc = RelationGetDescr(load->relation);
	gstore_piece   *pieces = palloc(sizeof *pieces * (Size) Max(desc->natts, 1));
	gstore_far		far = {.copy = load->source->name.store};
	int				count = 0;

	if (load->source->name.epoch != state->name.epoch)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("the GPU memory keeper was started anew during the load"),
				 errhint("Call gstore_load_begin() anew, and write the rows again.")));
	for (int i = 0; i < desc->natts; i++)
	{
		const place to = {load, state, i, GSTORE_VALUES};

		if (!TupleDescAttr(desc, i)->attisdropped && !is_null_column(&load->fields[i]))
			count += find_staged(&to, segment, &pieces[count]);
	}
	if (count > 0)
		gstore_transfer_far(GSTORE_WRITE, &state->name, &far, pieces, count);
}

/*
 * Reads a part of a column, to be checked: what is staged from the copy in the table's area, a file from the file.
 * store_part() writes the latter once it was checked.
 */
static void
fetch_part(const place *to, uint64 at, uint64 from, void *bytes, uint64 count)
{
	gstore_piece piece = piece_of(to, at, count, bytes);

	if (to->load->source->staged)
		gstore_transfer(GSTORE_READ, &to->state->name, &piece, 1);
	else
		gstore_load_read(to->load->source, from, bytes, count);
}

static void
store_part(const place *to, uint64 at, void *bytes, uint64 count)
{
	gstore_piece piece = piece_of(to, at, count, bytes);

	if (!to->load->source->staged)
		write_pieces(to, &piece, 1);
}

static bool
is_text(const gstore_loading *load, int index)
{
	const gstore_form form = load->columns[index].form;

	return form == GSTORE_FORM_UTF8 ||
		((form == GSTORE_FORM_BINARY || form == GSTORE_FORM_BYTES) &&
		 getBaseType(load->columns[index].type) != BYTEAOID);
}

/* Elements of uniform rows from `first` of the segment on: none of a row that is not NULL may be. */
static void
check_elements_there(const place *to, const gstore_load_segment *segment, uint64 first, uint64 count)
{
	const gstore_load_part	 *part = &segment->parts[to->index];
	const gstore_load_column *from = to->load->fields[to->index].from;
	const uint64			  each = to->state->columns[to->index].count;
	uint8 *bits = read_bitmap(to->load, &from->element_validity, (segment->first + first) * each,
							  count * each);

	for (uint64 row = 0; row < count; row++)
		for (uint64 i = 0; i < each && gstore_bit_is_set(part->validity, first + row); i++)
			if (!gstore_bit_is_set(bits, row * each + i))
				ereport(ERROR,
						(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						 errmsg("column \"%s\" with the option \"length\" cannot hold arrays with NULL",
								gstore_load_name(to->load, to->index))));
	pfree(bits);
}

/* Values of rows of one length, so many at a time as are checked together. */
static void
put_uniform(const place *to, const gstore_load_segment *segment)
{
	const gstore_load_column *from = to->load->fields[to->index].from;
	const gstore_column		 *column = &to->state->columns[to->index];
	const uint8				 *valid = segment->parts[to->index].validity;
	const uint32			  width = column->stride;
	const uint64			  most = Max(CHECKED_BYTES / width, 1);
	const bool				  checked = gstore_load_uniform_is_checked(column) ||
		is_checked_form(column->element_form);
	const bool sparse = gstore_has_elements(column) && from->element_validity.bytes > 0;
	uint8	  *bytes = to->load->bytes;

	for (uint64 first = 0; first < segment->count; first += most)
	{
		const uint64 some = Min(most, segment->count - first);
		const uint64 at = (to->state->rows + first) * width;

		CHECK_FOR_INTERRUPTS();
		if (sparse)
			check_elements_there(to, segment, first, some);
		if (to->load->source->staged && !checked)
			continue;
		fetch_part(to, at, from->values.offset + (segment->first + first) * width, bytes, some * width);
		for (uint64 row = 0; row < some && checked; row++)
			if (!gstore_bit_is_set(valid, first + row))
				continue;
			else if (is_checked_form(column->element_form))
				check_values(to->load, to->index, column->element_form, bytes + row * width,
							 column->count, NULL, 0);
			else if (is_text(to->load, to->index))
				check_texts(to->load, to->index, bytes + row * width, (int64[]){0, width}, 1, NULL, 0);
			else if (!gstore_load_uniform_is_value(column, bytes + row * width))
				refuse_value(to->load, to->index);
		store_part(to, at, bytes, some * width);
	}
}

/* Values of `width` bytes each; form: of those that are checked. valid: which of them count, from bit 0 on. */
static void
put_values(const place *to, uint64 at, uint64 from, uint64 count, uint32 width, gstore_form form,
		   const uint8 *valid)
{
	const uint64 most = Max(CHECKED_BYTES / width, 1);
	const bool	 checked = is_checked_form(form);
	void		*bytes = to->load->bytes;

	if (to->load->source->staged && !checked)
		return;
	for (uint64 first = 0; first < count; first += most)
	{
		const uint64 some = Min(most, count - first);

		CHECK_FOR_INTERRUPTS();
		fetch_part(to, at + first * width, from + first * width, bytes, some * width);
		if (checked)
			check_values(to->load, to->index, form, bytes, some, valid, first);
		store_part(to, at + first * width, bytes, some * width);
	}
}

/* Texts, so many rows at a time that they are whole, and few. */
static void
put_texts(const place *to, uint64 at, uint64 from, const gstore_load_part *part, uint64 count)
{
	const int64 *offsets = part->offsets;
	uint64		 capacity = CHECKED_BYTES;
	uint8		*bytes = to->load->bytes;

	for (uint64 first = 0, last; first < count; first = last)
	{
		const uint64 skip = (uint64) (offsets[first] - offsets[0]);
		uint64		 some;

		CHECK_FOR_INTERRUPTS();
		last = first + 1;
		while (last < count && (uint64) (offsets[last + 1] - offsets[first]) <= capacity)
			last++;
		some = (uint64) (offsets[last] - offsets[first]);
		if (some > capacity)
		{
			if (bytes != to->load->bytes)
				pfree(bytes);
			capacity = some; /* of a value so large that it has memory of its own */
			bytes = palloc(capacity);
		}
		if (some == 0)
			continue;
		fetch_part(to, at + skip, from + skip, bytes, some);
		check_texts(to->load, to->index, bytes, offsets + first, last - first, part->validity, first);
		store_part(to, at + skip, bytes, some);
	}
}

/* Rows' offsets, counted on from where the column ends: in their place, which is used for nothing else afterwards. */
static void
put_offsets(const place *to, int64 *offsets, uint64 count)
{
	const gstore_column *column = &to->state->columns[to->index];
	const int64	 move = (int64) (column->bodies_bytes / gstore_arrow_unit(column)) - offsets[0];
	gstore_piece pieces[2];
	int			 used = 0;

	for (uint64 i = 1; i <= count; i++)
		offsets[i] += move;
	if (to->state->rows == 0) /* where the first row begins */
		pieces[used++] = piece_of(to, 0, sizeof *offsets, NULL);
	pieces[used++] = piece_of(to, (to->state->rows + 1) * sizeof *offsets, count * sizeof *offsets,
							  offsets + 1);
	write_pieces(to, pieces, used);
}

/* Bits of rows, or of elements. */
static void
put_bits(const place *to, uint64 first, uint64 count, uint8 *bits, bool there)
{
	gstore_piece pieces[PIECES_MAX];
	const int used = gstore_add_bits(to->state, to->index, to->part, first, count, bits, there, pieces);

	write_pieces(to, pieces, used);
	pfree(pieces[used - 1].local); /* a copy of the bits, shifted */
}

static uint8 *
make_bits(uint64 count, bool set)
{
	uint8 *bits = palloc((count + 7) / 8 + 1);

	memset(bits, set ? 0xff : 0, (count + 7) / 8 + 1);
	return bits;
}

/* True: the column has a bitmap from now on. */
static bool
put_validity(const place *column, const gstore_load_part *part, uint64 count)
{
	const bool	there = column->state->columns[column->index].has_nulls;
	const place to = {column->load, column->state, column->index, GSTORE_NULLS};
	uint8	   *bits = part->validity;

	if (bits == NULL && !there)
		return false;
	put_bits(&to, to.state->rows, count, bits != NULL ? bits : make_bits(count, true), there);
	return true;
}

/* Bits of elements [first, first + count), of which those of NULL rows become 0. */
static void
clear_elements(const gstore_load_part *part, uint64 rows, uint8 *bits, uint64 first, uint64 count)
{
	for (uint64 row = 0; row < rows; row++)
	{
		const uint64 begin = Max((uint64) part->offsets[row], first);
		const uint64 end = Min((uint64) part->offsets[row + 1], first + count);

		for (uint64 i = begin; i < end && !gstore_bit_is_set(part->validity, row); i++)
			bits[(i - first) / 8] &= (uint8) ~(1u << ((i - first) % 8));
	}
}

/*
 * Elements of a segment's rows, to the column's end. Their number has no bound that memory for all bits could have, so
 * the bits pass in pieces. True: the column has a bitmap of elements from now on.
 */
static bool
put_elements(const place *column, const gstore_load_part *part, uint64 rows)
{
	const uint64			  first = (uint64) part->offsets[0], end = (uint64) part->offsets[rows];
	const gstore_load_column *from = column->load->fields[column->index].from;
	const gstore_column		 *stored = &column->state->columns[column->index];
	const place	 nulls = {column->load, column->state, column->index, GSTORE_ELEMENT_NULLS};
	const place	 values = {column->load, column->state, column->index, GSTORE_BODIES};
	const uint32 width = stored->element_width;
	const bool	 clear = has_null_with_bytes(part, rows);
	const bool	 sparse = from->element_validity.bytes > 0 || clear || stored->has_element_nulls;
	bool		 there = stored->has_element_nulls;

	for (uint64 at = first, some; at < end; at += some)
	{
		uint8 *bits = NULL;

		some = Min(end - at, ELEMENTS_A_PIECE);
		CHECK_FOR_INTERRUPTS();
		if (sparse)
			bits = from->element_validity.bytes > 0
				? read_bitmap(column->load, &from->element_validity, at, some)
				: make_bits(some, true);
		if (clear)
			clear_elements(part, rows, bits, at, some);
		put_values(&values, stored->bodies_bytes + (at - first) * width,
				   from->values.offset + at * width, some, width, stored->element_form, bits);
		if (!sparse)
			continue;
		put_bits(&nulls, stored->bodies_bytes / width + (at - first), some, bits, there);
		pfree(bits);
		there = true;
	}
	return there;
}

/* What a column of the view is with the segment. */
static void
put_variable(const place *to, const gstore_load_part *part, uint64 count, gstore_column *now)
{
	const gstore_load_column *from = to->load->fields[to->index].from;
	const place				  bodies = {to->load, to->state, to->index, GSTORE_BODIES};
	const uint64			  first = (uint64) part->offsets[0];
	const uint64			  bytes = (uint64) part->offsets[count] - first;

	if (now->form == GSTORE_FORM_LIST)
		now->has_element_nulls = put_elements(to, part, count);
	else if (is_text(to->load, to->index) && bytes > 0)
		put_texts(&bodies, now->bodies_bytes, from->values.offset + first, part, count);
	else
		put_values(&bodies, now->bodies_bytes, from->values.offset + first, bytes, 1,
				   GSTORE_FORM_BINARY, NULL);
	put_offsets(to, part->offsets, count);
	now->bodies_bytes += bytes * gstore_arrow_unit(now);
}

static void
put_column(const place *to, const gstore_load_segment *segment, gstore_column *now)
{
	const gstore_load_column *from = to->load->fields[to->index].from;
	const gstore_load_part	 *part = &segment->parts[to->index];
	const uint32			  width = stride_of(now);

	now->has_nulls = put_validity(to, part, segment->count);
	if (gstore_arrow_is_variable(now))
		put_variable(to, part, segment->count, now);
	else if (now->form == GSTORE_FORM_BOOL)
		put_bits(to, to->state->rows, segment->count,
				 read_bitmap(to->load, &from->values, segment->first, segment->count), true);
	else if (gstore_is_uniform(now))
		put_uniform(to, segment);
	else
		put_values(to, to->state->rows * width, from->values.offset + segment->first * width,
				   segment->count, width, now->form, part->validity);
}

/* A column of nothing but NULL. */
static void
put_nulls(const place *to, uint64 count, gstore_column *now)
{
	const gstore_load_part part = {.validity = make_bits(count, false)};
	gstore_piece		   piece;

	now->has_nulls = put_validity(to, &part, count);
	if (gstore_arrow_is_variable(now))
		put_offsets(to,
					MemoryContextAllocExtended(CurrentMemoryContext, (count + 1) * sizeof(int64),
											   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO),
					count);
	else if (now->form == GSTORE_FORM_BOOL)
		put_bits(to, to->state->rows, count, part.validity, true);
	else
	{
		piece = piece_of(to, to->state->rows * stride_of(now), count * stride_of(now), NULL);
		write_pieces(to, &piece, 1);
	}
}

static void
check_not_null(const gstore_loading *load, int index, uint64 nulls)
{
	const Form_pg_attribute a = TupleDescAttr(RelationGetDescr(load->relation), index);

	if (a->attnotnull && nulls > 0 && !load->by_rows)
		ereport(ERROR,
				(errcode(ERRCODE_NOT_NULL_VIOLATION),
				 errmsg("null value in column \"%s\" of relation \"%s\" violates not-null constraint",
						NameStr(a->attname), RelationGetRelationName(load->relation)),
				 errtablecol(load->relation, index + 1)));
}

uint64
gstore_load_append(gstore_loading *load, const gstore_load_segment *segment, gstore_view *state)
{
	const TupleDesc desc = RelationGetDescr(load->relation);
	gstore_column  *now = palloc(sizeof *now * (Size) Max(desc->natts, 1));
	const uint64	before = gstore_data_bytes(state->rows, state->columns, desc->natts);

	memcpy(now, state->columns, sizeof *now * (Size) desc->natts);
	if (load->source->staged)
		put_staged(load, segment, state);
	for (int i = 0; i < desc->natts; i++)
	{
		const place to = {load, state, i, GSTORE_VALUES};
		const bool	is_null = is_null_column(&load->fields[i]);

		if (TupleDescAttr(desc, i)->attisdropped)
			continue;
		CHECK_FOR_INTERRUPTS();
		check_not_null(load, i, is_null ? segment->count : segment->parts[i].nulls);
		if (is_null)
			put_nulls(&to, segment->count, &now[i]);
		else
			put_column(&to, segment, &now[i]);
	}
	memcpy(state->columns, now, sizeof *now * (Size) desc->natts);
	state->rows += segment->count;
	state->live_rows += segment->count;
	return gstore_data_bytes(state->rows, state->columns, desc->natts) - before;
}
