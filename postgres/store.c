/* What a table's columns look like, and rows to columns; see store.h. The way back is in batch.c. */
#include "postgres.h"

#include "access/detoast.h"
#include "access/toast_compression.h"
#include "access/toast_internals.h"
#include "access/tupmacs.h"
#include "foreign/foreign.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "postgres/arrow.h"
#include "postgres/option.h"
#include "postgres/progress.h"
#include "postgres/store.h"
#include "postgres/uniform.h"

#define STAGE_BYTES (1u << 20) /* staged rows are flushed when they are so large, */
#define STAGE_ROWS	32768u	   /* or so many */
#define STAGE_ROWS_FIRST \
	64u /* for which there is memory at first: most transactions write few rows */
#define STAGE_BODIES_KEPT (4u << 20)
#define PIECES_MAX		  7 /* of a column, in one flush */

/* ---- columns */

gstore_column
gstore_describe_column(Relation relation, int index, bool arrow)
{
	const Form_pg_attribute a = TupleDescAttr(RelationGetDescr(relation), index);
	const Oid				table = RelationGetRelid(relation);
	gstore_column			column = {.type = a->atttypid,
									  .typmod = a->atttypmod,
									  .length = a->attlen,
									  .align = a->attalign,
									  .by_value = a->attbyval,
									  .dropped = a->attisdropped,
									  .arrow = arrow,
									  .bodies_bytes = arrow ? 0 : GSTORE_BODY_ALIGN};

	if (a->attisdropped)
		return column;
	gstore_form_describe(&column, NameStr(a->attname), gstore_column_length(table, a->attnum));
	/* Functions of types that are never toasted do not look whether a value is. */
	if (!arrow && !gstore_is_uniform(&column) && TypeIsToastable(a->atttypid))
		column.pglz = gstore_column_is_compressed(table, a->attnum);
	return column;
}

gstore_column *
gstore_describe(Relation relation, bool arrow)
{
	const int	   natts = RelationGetDescr(relation)->natts;
	gstore_column *columns = palloc(sizeof(gstore_column) * (Size) Max(natts, 1));

	for (int i = 0; i < natts; i++)
		columns[i] = gstore_describe_column(relation, i, arrow);
	return columns;
}

bool
gstore_is_same_type(Oid stored, Oid now)
{
	return stored == now ||
		(SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(stored)) && IsBinaryCoercible(stored, now));
}

/* Read with the other type, values mean the same. Packed ones have got the headers of their own type by then. */
static bool
is_same_form(const gstore_column *column, const Form_pg_attribute attribute)
{
	return column->length == attribute->attlen && column->by_value == attribute->attbyval &&
		column->align == attribute->attalign &&
		gstore_is_same_type(column->type, attribute->atttypid);
}

int
gstore_find_other_form(Relation relation, const gstore_view *view)
{
	const TupleDesc desc = RelationGetDescr(relation);

	for (int i = 0; i < Min(desc->natts, view->column_count); i++)
	{
		const Form_pg_attribute a = TupleDescAttr(desc, i);
		const gstore_column	   *c = &view->columns[i];

		if (!a->attisdropped && !c->dropped && !is_same_form(c, a))
			return a->attnum;
	}
	return 0;
}

void
gstore_check_columns(Relation relation, const gstore_view *view)
{
	const int number = gstore_find_other_form(relation, view);

	if (number > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_DATA_TYPE),
				 errmsg("column \"%s\" has another type now than its data in GPU memory",
						NameStr(TupleDescAttr(RelationGetDescr(relation), number - 1)->attname)),
				 errhint("Undo the change of type, or TRUNCATE the table and load it again.")));
}

/* ---- writing */

typedef enum stage_kind
{
	STAGE_NONE, /* dropped */
	STAGE_1,	/* by value, of so many bytes */
	STAGE_2,
	STAGE_4,
	STAGE_8,
	STAGE_FIXED,  /* by reference */
	STAGE_PACKED, /* varlenas of one length, without headers */
	STAGE_VARLENA,
	STAGE_DATE, /* of format 'arrow', which counts from 1970 on, */
	STAGE_TIMESTAMP,
	STAGE_OFFSETS, /* and has where a row's bytes end */
} stage_kind;

/* The byte of a bitmap in which the rows flushed last ended, and the next ones go on. */
typedef struct tail
{
	uint64 row; /* the next one; 0: not known */
	uint8  byte;
} tail;

typedef struct stage
{
	stage_kind kind;
	uint32	   width;
	uint32	   length;
	bool	   any_null, any_element_null;
	bool	   is_bits; /* values become bits */
	uint8	  *values;	/* of writer->allocated rows */
	uint8	  *nulls;	/* fixed length: a bit for each of them */
	uint8	  *bodies;
	uint64	   bodies_used, bodies_capacity;
	uint8	  *element_bits; /* of lists: a bit for each element in the bodies */
	uint64	   element_bits_capacity;
	tail	   values_tail, nulls_tail, elements_tail;
} stage;

struct gstore_writer
{
	MemoryContext context;
	/* Of values that are decompressed or compressed; emptied with every flush. */
	MemoryContext scratch;
	TupleDesc	  desc;
	uint64		  first; /* row number of the first one staged */
	/* Rows: staged; that stages have memory for; before a flush. */
	uint32	count, allocated, capacity;
	uint64	body_bytes;	  /* of all stages */
	uint64 *bodies_first; /* by column: the bodies area's end before the first staged row */
	stage  *stages;
	MemoryContextCallback before_end;
	gstore_answer		  answer;	   /* to the write that was begun last, */
	uint64				  begun_store; /* of rows of this store; 0: they do not count any more */
	uint64				  begun_first; /* from this one on */
	gstore_sink			  sink;		   /* NULL: to the store */
	void				 *sink_argument;
};

static void
empty_stages(gstore_writer *writer)
{
	for (int i = 0; i < writer->desc->natts; i++)
	{
		stage *s = &writer->stages[i];

		s->any_null = s->any_element_null = false;
		s->bodies_used = 0;
		if (s->bodies_capacity > STAGE_BODIES_KEPT)
		{
			pfree(s->bodies);
			s->bodies = NULL;
			s->bodies_capacity = 0;
		}
	}
	writer->count = 0;
	writer->body_bytes = 0;
	MemoryContextReset(writer->scratch);
}

static stage_kind
kind_of_stage(const Form_pg_attribute attribute, const gstore_column *column)
{
	if (attribute->attisdropped)
		return STAGE_NONE;
	switch (column->form)
	{
		case GSTORE_FORM_DATE:
			return STAGE_DATE;
		case GSTORE_FORM_TIMESTAMP:
		case GSTORE_FORM_TIMESTAMPTZ:
			return STAGE_TIMESTAMP;
		case GSTORE_FORM_UTF8:
		case GSTORE_FORM_BINARY:
		case GSTORE_FORM_LIST:
			return STAGE_OFFSETS;
		default:
			break;
	}
	if (gstore_is_uniform(column))
		return STAGE_PACKED;
	if (attribute->attlen < 0)
		return STAGE_VARLENA;
	if (!attribute->attbyval)
		return STAGE_FIXED;
	switch (attribute->attlen)
	{
		case 1:
			return STAGE_1;
		case 2:
			return STAGE_2;
		case 4:
			return STAGE_4;
		default:
			return STAGE_8;
	}
}

static uint32
stage_width(stage_kind kind, const gstore_column *column)
{
	return kind == STAGE_OFFSETS ? sizeof(int64) : gstore_stride(column);
}

/* The answer to a write that is under way has its place in the writer. */
static void
leave_begun(void *argument)
{
	gstore_leave_begun(&((const gstore_writer *) argument)->answer);
}

gstore_writer *
gstore_writer_create(TupleDesc desc, const gstore_column *columns)
{
	MemoryContext  context = AllocSetContextCreate(CurrentMemoryContext, "gstore writer",
												   ALLOCSET_DEFAULT_SIZES);
	MemoryContext  old = MemoryContextSwitchTo(context);
	gstore_writer *writer = palloc0(sizeof *writer);
	uint64		   width = 1;

	writer->context = context;
	writer->before_end = (MemoryContextCallback){.func = leave_begun, .arg = writer};
	MemoryContextRegisterResetCallback(context, &writer->before_end);
	writer->scratch = AllocSetContextCreate(context, "gstore values", ALLOCSET_DEFAULT_SIZES);
	writer->desc = CreateTupleDescCopy(desc);
	writer->stages = palloc0(sizeof(stage) * (Size) Max(desc->natts, 1));
	writer->bodies_first = palloc0(sizeof(uint64) * (Size) Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		const Form_pg_attribute a = TupleDescAttr(desc, i);
		stage				   *s = &writer->stages[i];

		s->kind = kind_of_stage(a, &columns[i]);
		if (s->kind == STAGE_NONE)
			continue;
		s->width = stage_width(s->kind, &columns[i]);
		s->length = a->attlen < 0 ? s->width : (uint32) a->attlen;
		s->is_bits = columns[i].form == GSTORE_FORM_BOOL;
		width += s->width;
	}
	writer->capacity = (uint32) Max(Min(STAGE_BYTES / width, STAGE_ROWS), 8) / 8 * 8;
	writer->allocated = Min(writer->capacity, STAGE_ROWS_FIRST);
	for (int i = 0; i < desc->natts; i++)
	{
		stage *s = &writer->stages[i];

		if (s->kind == STAGE_NONE)
			continue;
		s->values = palloc((Size) writer->allocated * s->width);
		s->nulls = palloc(writer->allocated / 8);
	}
	MemoryContextSwitchTo(old);
	return writer;
}

void
gstore_writer_free(gstore_writer *writer)
{
	MemoryContextDelete(writer->context);
}

static pg_noinline void
grow_rows(gstore_writer *writer)
{
	const uint32 allocated = Min(writer->capacity, 4 * writer->allocated);

	for (int i = 0; i < writer->desc->natts; i++)
	{
		stage *s = &writer->stages[i];

		if (s->kind == STAGE_NONE)
			continue;
		s->values = repalloc_huge(s->values, (Size) allocated * s->width);
		s->nulls = repalloc(s->nulls, allocated / 8);
	}
	writer->allocated = allocated;
}

static pg_noinline void
grow_bodies(gstore_writer *writer, stage *s, uint64 bytes)
{
	const uint64 capacity = Max(Max(2 * s->bodies_capacity, s->bodies_used + bytes), 8192);

	s->bodies = s->bodies == NULL ? MemoryContextAllocHuge(writer->context, capacity)
								  : repalloc_huge(s->bodies, capacity);
	s->bodies_capacity = capacity;
}

/* One that is not plainly here: in a TOAST table, expanded, compressed, or to be compressed. */
static pg_noinline const struct varlena *
flatten_value(gstore_writer *writer, const gstore_column *column, struct varlena *value)
{
	MemoryContext	old = MemoryContextSwitchTo(writer->scratch);
	struct varlena *body = value;

	if (!column->pglz || !VARATT_IS_COMPRESSED(value) ||
		toast_get_compression_id(value) != TOAST_PGLZ_COMPRESSION_ID)
	{
		body = detoast_attr(value);
		if (column->pglz)
		{
			const Datum squeezed = toast_compress_datum(PointerGetDatum(body), TOAST_PGLZ_COMPRESSION);

			if (DatumGetPointer(squeezed) != NULL)
				body = (struct varlena *) DatumGetPointer(squeezed);
		}
	}
	MemoryContextSwitchTo(old);
	return body;
}

/* Of an array whose elements, of so many bytes, come next. */
static void
stage_element_bits(gstore_writer *writer, stage *s, const gstore_column *column,
				   const struct varlena *body, uint64 bytes)
{
	const uint64 first = s->bodies_used / column->element_width;
	const uint64 needed = (first + bytes / column->element_width + 7) / 8;

	if (needed > s->element_bits_capacity)
	{
		const uint64 capacity = Max(needed + needed / 2, 1024);

		s->element_bits = s->element_bits == NULL ? MemoryContextAllocHuge(writer->context, capacity)
												  : repalloc_huge(s->element_bits, capacity);
		s->element_bits_capacity = capacity;
	}
	if (gstore_arrow_element_bits(body, s->element_bits, first))
		s->any_element_null = true;
}

/* For format 'arrow': the bytes alone, one behind the other. Returns where they end, as offsets count. */
static int64
stage_payload(gstore_writer *writer, stage *s, gstore_column *column, int index, Datum value)
{
	const struct varlena *body = (const struct varlena *) DatumGetPointer(value);
	uint64				  bytes;

	if (VARATT_IS_EXTENDED(body) &&
		(!VARATT_IS_SHORT(body) || VARATT_IS_EXTERNAL(body) || column->form == GSTORE_FORM_LIST))
		body = flatten_value(writer, column, (struct varlena *) DatumGetPointer(value));
	bytes = gstore_arrow_payload_bytes(column, NameStr(TupleDescAttr(writer->desc, index)->attname),
									   body);
	if (s->bodies_used + bytes > s->bodies_capacity)
		grow_bodies(writer, s, bytes);
	if (bytes > 0)
		gstore_arrow_payload(column, body, s->bodies + s->bodies_used);
	if (bytes > 0 && column->form == GSTORE_FORM_LIST)
		stage_element_bits(writer, s, column, body, bytes);
	s->bodies_used += bytes;
	writer->body_bytes += bytes;
	column->bodies_bytes += bytes;
	return (int64) (column->bodies_bytes / gstore_arrow_unit(column));
}

/* A value in a row of a heap mostly has a short header. */
static void
stage_uniform(gstore_writer *writer, const gstore_column *column, int index, Datum value, uint8 *to)
{
	struct varlena *body = (struct varlena *) DatumGetPointer(value);
	const char	   *name = NameStr(TupleDescAttr(writer->desc, index)->attname);
	union
	{
		uint8  bytes[VARATT_SHORT_MAX + VARHDRSZ];
		uint64 alignment;
	} plain;

	if (!VARATT_IS_EXTENDED(body))
		gstore_uniform_strip(column, name, body, to);
	else if (VARATT_IS_SHORT(body) && !VARATT_IS_EXTERNAL(body))
	{
		const Size bytes = VARSIZE_SHORT(body) - VARHDRSZ_SHORT;

		SET_VARSIZE(plain.bytes, VARHDRSZ + bytes);
		memcpy(plain.bytes + VARHDRSZ, VARDATA_SHORT(body), bytes);
		gstore_uniform_strip(column, name, (const struct varlena *) plain.bytes, to);
	}
	else
		gstore_uniform_strip(column, name, flatten_value(writer, column, body), to);
}

/* Returns the offset of the body. */
static inline uint64
stage_body(gstore_writer *writer, stage *s, gstore_column *column, Datum value)
{
	const struct varlena *body = (const struct varlena *) DatumGetPointer(value);
	const uint64		  at = column->bodies_bytes;
	const bool is_short = VARATT_IS_SHORT(body) && !VARATT_IS_EXTERNAL(body) && !column->pglz;
	uint64	   bytes, aligned;
	uint8	  *to;

	if (!is_short && (!VARATT_IS_4B_U(body) || column->pglz))
		body = flatten_value(writer, column, (struct varlena *) DatumGetPointer(value));
	bytes = is_short ? VARSIZE_SHORT(body) - VARHDRSZ_SHORT + VARHDRSZ : VARSIZE(body);
	aligned = TYPEALIGN(GSTORE_BODY_ALIGN, bytes);
	if (s->bodies_used + aligned > s->bodies_capacity)
		grow_bodies(writer, s, aligned);
	to = s->bodies + s->bodies_used;
	*(uint64 *) (to + aligned - GSTORE_BODY_ALIGN) = 0; /* what aligns the next one */
	if (is_short)
	{
		SET_VARSIZE(to, bytes);
		memcpy(to + VARHDRSZ, VARDATA_SHORT(body), bytes - VARHDRSZ);
	}
	else
		memcpy(to, body, bytes);
	s->bodies_used += aligned;
	writer->body_bytes += aligned;
	column->bodies_bytes += aligned;
	return at;
}

static void
begin_stages(gstore_writer *writer, const gstore_view *state)
{
	writer->first = state->rows;
	for (int i = 0; i < writer->desc->natts; i++)
		writer->bodies_first[i] = state->columns[i].bodies_bytes;
}

static void flush_rows(gstore_writer *writer, gstore_view *state, bool wait);

void
gstore_write_row(gstore_writer *writer, gstore_view *state, TupleTableSlot *slot)
{
	const int	 natts = writer->desc->natts;
	const uint32 at = writer->count;

	slot_getallattrs(slot);
	if (at == 0)
		begin_stages(writer, state);
	if (at == writer->allocated)
		grow_rows(writer);
	for (int i = 0; i < natts; i++)
	{
		stage	   *s = &writer->stages[i];
		const bool	null = slot->tts_isnull[i];
		const Datum value = null ? (Datum) 0 : slot->tts_values[i];

		switch (s->kind)
		{
			case STAGE_NONE:
				continue;
			case STAGE_1:
				s->values[at] = DatumGetUInt8(value);
				break;
			case STAGE_2:
				((uint16 *) s->values)[at] = DatumGetUInt16(value);
				break;
			case STAGE_4:
				((uint32 *) s->values)[at] = DatumGetUInt32(value);
				break;
			case STAGE_8:
				((uint64 *) s->values)[at] = DatumGetUInt64(value);
				break;
			case STAGE_DATE:
				((uint32 *) s->values)[at] = DatumGetUInt32(value);
				gstore_arrow_shift(GSTORE_FORM_DATE, (uint32 *) s->values + at, 1);
				break;
			case STAGE_TIMESTAMP:
				((uint64 *) s->values)[at] = DatumGetUInt64(value);
				gstore_arrow_shift(GSTORE_FORM_TIMESTAMP, (uint64 *) s->values + at, 1);
				break;
			case STAGE_FIXED:
				memset(s->values + (Size) at * s->width, 0, s->width);
				if (!null)
					memcpy(s->values + (Size) at * s->width, DatumGetPointer(value), s->length);
				break;
			case STAGE_PACKED:
				if (null)
					memset(s->values + (Size) at * s->width, 0, s->width);
				else
					stage_uniform(writer, &state->columns[i], i, value,
								  s->values + (Size) at * s->width);
				break;
			case STAGE_VARLENA:
				((uint64 *) s->values)[at] = null ? 0
												  : stage_body(writer, s, &state->columns[i], value);
				continue; /* offset 0 is NULL enough */
			case STAGE_OFFSETS:
				((int64 *) s->values)[at] = null
					? (int64) (state->columns[i].bodies_bytes / gstore_arrow_unit(&state->columns[i]))
					: stage_payload(writer, s, &state->columns[i], i, value);
				break;
		}
		if (at % 8 == 0)
			s->nulls[at / 8] = 0xff;
		if (null)
		{
			s->nulls[at / 8] &= (uint8) ~(1u << (at % 8));
			s->any_null = true;
		}
	}
	writer->count++;
	state->rows++;
	state->live_rows++;
	if (writer->count == writer->capacity || writer->body_bytes >= STAGE_BYTES)
		flush_rows(writer, state, false);
}

/*
 * Bits of what is staged, rows or elements [first, first + count), shifted so that they begin in the middle
 * of a byte as the area has it; *bytes of them. The bits before the first one are what they are in the
 * store: there: it has some.
 */
static uint8 *
shifted_bits(const gstore_view *state, int index, gstore_part part, uint64 first, uint64 count,
			 uint8 *from, tail *end, bool there, uint64 *bytes)
{
	const uint32 shift = (uint32) (first % 8);
	uint8		*to;
	uint8		 head = 0xff;

	*bytes = (shift + count + 7) / 8;
	to = palloc0(*bytes + 1);
	if (shift > 0 && there && end->row == first)
		head = end->byte;
	else if (shift > 0 && there)
	{
		const gstore_piece piece = {.column = (uint16) (index + 1),
									.part = (uint8) part,
									.offset_bytes = first / 8,
									.bytes = 1,
									.local = &head};

		gstore_transfer(GSTORE_READ, &state->name, &piece, 1);
	}
	for (uint64 i = 0; i < (count + 7) / 8; i++)
	{ /* what is staged stays: a flush that fails comes again */
		const uint8 bits = i < count / 8 ? from[i] : (uint8) (from[i] & ((1u << (count % 8)) - 1));

		to[i] |= (uint8) (bits << shift);
		to[i + 1] |= (uint8) (bits >> (8 - shift));
	}
	if (shift > 0)
		to[0] |= (uint8) (head & ((1 << shift) - 1));
	*end = (tail){.row = first + count, .byte = to[*bytes - 1]};
	return to;
}

static int
add_values(const gstore_writer *writer, const gstore_view *state, int index, gstore_piece *pieces)
{
	stage		*s = &writer->stages[index];
	gstore_piece piece = {.column = (uint16) (index + 1),
						  .part = GSTORE_VALUES,
						  .offset_bytes = writer->first * s->width,
						  .bytes = (uint64) writer->count * s->width,
						  .local = s->values};
	int			 count = 0;

	if (s->is_bits)
	{
		uint8 *bits = palloc((writer->count + 7) / 8);

		gstore_arrow_to_bits(s->values, writer->count, bits);
		piece.offset_bytes = writer->first / 8;
		piece.local = shifted_bits(state, index, GSTORE_VALUES, writer->first, writer->count, bits,
								   &s->values_tail, true, &piece.bytes);
	}
	else if (s->kind == STAGE_OFFSETS)
	{
		if (writer->first == 0) /* where the first row begins */
			pieces[count++] = (gstore_piece){
				.column = piece.column, .part = GSTORE_VALUES, .bytes = s->width, .byte = 0};
		piece.offset_bytes += s->width;
	}
	pieces[count++] = piece;
	return count;
}

/* A null bitmap's bits of what is staged, of which any is NULL now; there: the bitmap is in the store. */
static int
add_bitmap(const gstore_view *state, int index, gstore_part part, uint64 first, uint64 count,
		   uint8 *staged, tail *end, bool there, gstore_piece *pieces)
{
	const uint16 number = (uint16) (index + 1);
	int			 used = 0;
	uint64		 bytes;
	uint8		*bits = shifted_bits(state, index, part, first, count, staged, end, there, &bytes);

	if (!there && first >= 8) /* nobody before was NULL */
		pieces[used++] = (gstore_piece){
			.column = number, .part = (uint8) part, .bytes = first / 8, .byte = 0xff};
	pieces[used++] = (gstore_piece){
		.column = number, .part = (uint8) part, .offset_bytes = first / 8, .bytes = bytes, .local = bits};
	return used;
}

int
gstore_add_bits(const gstore_view *state, int index, gstore_part part, uint64 first, uint64 count,
				uint8 *bits, bool there, gstore_piece *pieces)
{
	tail end = {0};

	return add_bitmap(state, index, part, first, count, bits, &end, there, pieces);
}

static int
add_nulls(const gstore_writer *writer, const gstore_view *state, int index, gstore_piece *pieces)
{
	const gstore_column *column = &state->columns[index];
	stage				*s = &writer->stages[index];
	int					 count = 0;

	if (s->kind != STAGE_VARLENA && (column->has_nulls || s->any_null))
		count += add_bitmap(state, index, GSTORE_NULLS, writer->first, writer->count, s->nulls,
							&s->nulls_tail, column->has_nulls, pieces);
	if (s->bodies_used > 0 && (column->has_element_nulls || s->any_element_null))
		count += add_bitmap(state, index, GSTORE_ELEMENT_NULLS,
							writer->bodies_first[index] / column->element_width,
							s->bodies_used / column->element_width, s->element_bits,
							&s->elements_tail, column->has_element_nulls, &pieces[count]);
	return count;
}

/* Rows that could not be written are not there: a statement that needs them fails, until they are undone. */
static void
check_written(const gstore_writer *writer, const gstore_view *state)
{
	gstore_await();
	if (writer->answer.status != GVM_OK && state->name.store == writer->begun_store &&
		state->rows > writer->begun_first)
		gstore_answer_fail(&state->name, &writer->answer);
}

static void
write_pieces(gstore_writer *writer, const gstore_view *state, const gstore_piece *pieces, int count,
			 bool wait)
{
	uint64 bytes = 0;

	if (writer->sink != NULL)
	{
		writer->sink(writer->sink_argument, pieces, count);
		return;
	}
	if (wait)
		gstore_transfer(GSTORE_WRITE, &state->name, pieces, count);
	else
	{
		writer->answer.status = GVM_OK;
		writer->begun_store = state->name.store;
		writer->begun_first = writer->first;
		gstore_write_begin(&state->name, pieces, count, &writer->answer);
	}
	for (int i = 0; i < count; i++)
		bytes += pieces[i].bytes;
	gstore_progress_add(state->name.table, writer->count, bytes);
}

/* wait: until the rows are in the store. Without, the next flush does. */
static void
flush_rows(gstore_writer *writer, gstore_view *state, bool wait)
{
	const int	  natts = writer->desc->natts;
	gstore_piece *pieces;
	int			  count = 0;
	MemoryContext scratch, old;

	if (writer->sink == NULL)
		check_written(writer, state);
	if (writer->count == 0)
		return;
	scratch = AllocSetContextCreate(CurrentMemoryContext, "gstore flush", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(scratch);
	pieces = palloc(sizeof(gstore_piece) * PIECES_MAX * (Size) Max(natts, 1));
	for (int i = 0; i < natts; i++)
	{
		stage *s = &writer->stages[i];

		if (s->kind == STAGE_NONE)
			continue;
		count += add_values(writer, state, i, &pieces[count]);
		if (s->bodies_used > 0)
			pieces[count++] = (gstore_piece){.column = (uint16) (i + 1),
											 .part = GSTORE_BODIES,
											 .offset_bytes = writer->bodies_first[i],
											 .bytes = s->bodies_used,
											 .local = s->bodies};
		count += add_nulls(writer, state, i, &pieces[count]);
	}
	write_pieces(writer, state, pieces, count, wait);
	for (int i = 0; i < natts; i++)
	{
		state->columns[i].has_nulls |= writer->stages[i].any_null &&
			writer->stages[i].kind != STAGE_VARLENA;
		state->columns[i].has_element_nulls |= writer->stages[i].any_element_null;
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scratch);
	empty_stages(writer);
}

void
gstore_flush(gstore_writer *writer, gstore_view *state)
{
	flush_rows(writer, state, true);
}

void
gstore_writer_redirect(gstore_writer *writer, gstore_sink sink, void *argument)
{
	writer->sink = sink;
	writer->sink_argument = argument;
}

void
gstore_writer_forget(gstore_writer *writer)
{
	empty_stages(writer);
	for (int i = 0; i < writer->desc->natts; i++)
	{
		stage *s = &writer->stages[i];

		s->values_tail.row = s->nulls_tail.row = s->elements_tail.row = 0;
	}
}

void
gstore_writer_back_to(gstore_writer *writer, const gstore_view *state)
{
	gstore_writer_forget(writer);
	if (state->name.store == writer->begun_store && state->rows <= writer->begun_first)
		writer->begun_store = 0;
}

void
gstore_fill_new_columns(gstore_view *state, int first)
{
	gstore_piece *pieces;
	int			  count = 0;

	if (state->rows == 0 || first >= state->column_count)
		return;
	pieces = palloc(sizeof(gstore_piece) * 2 * (Size) (state->column_count - first));
	for (int i = first; i < state->column_count; i++)
	{
		gstore_column *column = &state->columns[i];

		if (column->dropped)
			continue;
		column->has_nulls = !gstore_is_variable(column) || gstore_is_arrow(column);
		for (int part = GSTORE_VALUES; part <= GSTORE_NULLS; part++)
		{
			const uint64 bytes = gstore_part_bytes(column, (gstore_part) part, state->rows);

			if (bytes > 0)
				pieces[count++] = (gstore_piece){
					.column = (uint16) (i + 1), .part = (uint8) part, .bytes = bytes};
		}
	}
	gstore_transfer(GSTORE_WRITE, &state->name, pieces, count);
	pfree(pieces);
}
