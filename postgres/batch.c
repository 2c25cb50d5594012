/* Columns to batches of rows; see store.h. */
#include "postgres.h"

#include "utils/memutils.h"

#include "postgres/arrow.h"
#include "postgres/store.h"
#include "postgres/uniform.h"

#define BATCH_ROWS		 65536u /* read at a time, at most */
#define BATCH_ROWS_LEAST 64u
#define BATCH_BYTES		 (1u << 19)	 /* about what a processor's cache holds */
#define BATCH_BYTES_MOST (64u << 20) /* as long as rows are not larger */

typedef enum buffer_kind
{
	BUFFER_VALUES,
	BUFFER_NULLS,
	BUFFER_BODIES,
	BUFFER_OFFSETS, /* of format 'arrow': what the area has, before it is decoded */
	BUFFER_DATA,	/* and of uniform columns */
	BUFFER_ELEMENT_NULLS,
	BUFFER_KINDS,
} buffer_kind;

/* Kept from batch to batch: fresh memory for each would cost more than filling it. */
typedef struct gstore_buffer
{
	uint8 *bytes;
	uint64 capacity;
} gstore_buffer;

gstore_batch *
gstore_batch_create(int columns)
{
	gstore_batch *batch = palloc0(sizeof *batch);
	const Size	  count = (Size) Max(columns, 1);

	batch->columns = palloc0(sizeof(gstore_batch_column) * count);
	batch->buffers = palloc0(sizeof(gstore_buffer) * count * BUFFER_KINDS);
	batch->context = AllocSetContextCreate(CurrentMemoryContext, "gstore batch",
										   ALLOCSET_DEFAULT_SIZES);
	return batch;
}

static uint8 *
batch_buffer(gstore_batch *batch, int index, buffer_kind kind, uint64 bytes)
{
	gstore_buffer *b = &batch->buffers[index * BUFFER_KINDS + (int) kind];

	if (b->capacity < bytes)
	{
		if (b->bytes != NULL)
			pfree(b->bytes);
		b->bytes = NULL;
		b->capacity = 0;
		b->bytes = MemoryContextAllocHuge(batch->context, bytes + bytes / 8);
		b->capacity = bytes + bytes / 8;
	}
	return b->bytes;
}

static bool
has_column(const gstore_view *view, int number)
{
	return number <= view->column_count && !view->columns[number - 1].dropped;
}

uint64
gstore_rows_at_a_time(const gstore_view *view, const Bitmapset *wanted)
{
	uint64 width = 1;
	int	   number = -1;

	while ((number = bms_next_member(wanted, number)) >= 0)
		if (has_column(view, number))
		{
			const gstore_column *column = &view->columns[number - 1];

			width += gstore_width(column);
			if (gstore_is_uniform(column))
				width += gstore_stride(column);
			if (gstore_is_variable(column) && view->rows > 0)
				width += column->bodies_bytes / view->rows;
		}
	if (width > BATCH_BYTES_MOST / BATCH_ROWS_LEAST)
		return Max(BATCH_BYTES_MOST / width, 1);
	return Max(Min(BATCH_ROWS, BATCH_BYTES / width), BATCH_ROWS_LEAST);
}

/*
 * Bodies are in the order of their rows, so those of a run of rows are one run of bytes: from the
 * first offset of the batch to that of the row behind it, or to the end of all. Only where that row is
 * NULL, the length of the last body must be asked for. next: that row's offset; NULL: no such row.
 */
static uint64
end_of_bodies(const gstore_view *view, int index, uint64 last, const uint64 *next)
{
	union
	{
		struct varlena body;
		uint8		   bytes[GSTORE_BODY_ALIGN]; /* no shorter one is stored */
	} head;
	const gstore_piece piece = {.column = (uint16) (index + 1),
								.part = GSTORE_BODIES,
								.offset_bytes = last,
								.bytes = sizeof head.bytes,
								.local = head.bytes};

	if (next == NULL)
		return view->columns[index].bodies_bytes;
	if (*next != 0)
		return *next;
	gstore_transfer(GSTORE_READ, &view->name, &piece, 1);
	return piece.offset_bytes + TYPEALIGN(GSTORE_BODY_ALIGN, VARSIZE_ANY(&head.body));
}

static void
add_plain_values(gstore_batch *batch, int index, const gstore_view *view, gstore_piece *piece)
{
	const gstore_column *column = &view->columns[index];
	const uint32		 width = gstore_width(column);
	uint64				 rows = batch->count;

	if (gstore_is_variable(column) && batch->first + rows < view->rows)
		rows++; /* where the last body ends */
	batch->columns[index].values = batch_buffer(batch, index, BUFFER_VALUES, rows * width);
	*piece = (gstore_piece){.column = (uint16) (index + 1),
							.part = GSTORE_VALUES,
							.offset_bytes = batch->first * width,
							.bytes = rows * width,
							.local = (void *) batch->columns[index].values};
}

/* Adds the piece that has the bodies of the rows that have been read; false: they are all NULL. */
static bool
add_bodies(gstore_batch *batch, int index, const gstore_view *view, gstore_piece *piece)
{
	gstore_batch_column *c = &batch->columns[index];
	const uint64		*offsets = (const uint64 *) c->values;
	uint64				 first = 0, last = batch->count, end;

	while (first < batch->count && offsets[first] == 0)
		first++;
	if (first == batch->count)
		return false;
	while (offsets[last - 1] == 0)
		last--;
	end = end_of_bodies(view, index, offsets[last - 1],
						batch->first + batch->count < view->rows ? &offsets[batch->count] : NULL);
	c->bodies_from = offsets[first];
	if (end <= c->bodies_from)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("offsets of a column in GPU memory are out of order")));
	c->bodies = batch_buffer(batch, index, BUFFER_BODIES, end - c->bodies_from);
	*piece = (gstore_piece){.column = (uint16) (index + 1),
							.part = GSTORE_BODIES,
							.offset_bytes = c->bodies_from,
							.bytes = end - c->bodies_from,
							.local = (void *) c->bodies};
	return true;
}

static void
add_uniform_values(gstore_batch *batch, int index, const gstore_view *view, gstore_piece *piece)
{
	const gstore_column *column = &view->columns[index];
	gstore_batch_column *c = &batch->columns[index];
	const uint32		 stride = gstore_stride(column);

	if (!bms_is_member(index + 1, batch->unseen))
		c->values = batch_buffer(batch, index, BUFFER_VALUES, batch->count * gstore_width(column));
	c->uniform = batch_buffer(batch, index, BUFFER_DATA, batch->count * stride);
	*piece = (gstore_piece){.column = (uint16) (index + 1),
							.part = GSTORE_VALUES,
							.offset_bytes = batch->first * stride,
							.bytes = batch->count * stride,
							.local = (void *) c->uniform};
}

/* ---- of format 'arrow': read as the areas have it, then brought into the form that batches have */

static void
add_arrow_values(gstore_batch *batch, int index, const gstore_view *view, gstore_piece *piece)
{
	const gstore_column *column = &view->columns[index];
	gstore_batch_column *c = &batch->columns[index];
	const uint64		 first = batch->first, count = batch->count;
	const uint32		 width = gstore_width(column);

	*piece = (gstore_piece){.column = (uint16) (index + 1), .part = GSTORE_VALUES};
	c->values = batch_buffer(batch, index, BUFFER_VALUES, count * width);
	if (gstore_arrow_is_variable(column))
	{
		piece->offset_bytes = first * sizeof(int64);
		piece->bytes = (count + 1) * sizeof(int64);
		piece->local = batch_buffer(batch, index, BUFFER_OFFSETS, piece->bytes);
	}
	else if (column->form == GSTORE_FORM_BOOL)
	{
		piece->offset_bytes = first / 8;
		piece->bytes = (first + count + 7) / 8 - first / 8;
		piece->local = batch_buffer(batch, index, BUFFER_OFFSETS, piece->bytes);
	}
	else
	{
		piece->offset_bytes = first * width;
		piece->bytes = count * width;
		piece->local = (void *) c->values;
	}
}

static int64 *
offsets_of(const gstore_batch *batch, int index)
{
	return (int64 *) batch->buffers[index * BUFFER_KINDS + BUFFER_OFFSETS].bytes;
}

/* Returns how many pieces. */
static int
add_arrow_bodies(gstore_batch *batch, int index, const gstore_view *view, gstore_piece *pieces)
{
	const gstore_column *column = &view->columns[index];
	const int64			*offsets = offsets_of(batch, index);
	const uint32		 unit = gstore_arrow_unit(column);
	gstore_batch_column *c = &batch->columns[index];
	gstore_piece data = {.column = (uint16) (index + 1), .part = GSTORE_BODIES}, nulls = data;
	uint64		 first, last;

	c->bodies_from = GSTORE_BODY_ALIGN;
	c->bodies = batch_buffer(batch, index, BUFFER_BODIES,
							 gstore_arrow_decoded_bytes(column, offsets, batch->count));
	first = (uint64) offsets[0];
	last = (uint64) offsets[batch->count];
	if (first == last)
		return 0;
	data.offset_bytes = first * unit;
	data.bytes = (last - first) * unit;
	data.local = batch_buffer(batch, index, BUFFER_DATA, data.bytes);
	pieces[0] = data;
	if (!column->has_element_nulls)
		return 1;
	nulls.part = GSTORE_ELEMENT_NULLS;
	nulls.offset_bytes = first / 8;
	nulls.bytes = (last + 7) / 8 - first / 8;
	nulls.local = batch_buffer(batch, index, BUFFER_ELEMENT_NULLS, nulls.bytes);
	pieces[1] = nulls;
	return 2;
}

static void
decode_arrow(gstore_batch *batch, int index, const gstore_view *view)
{
	const gstore_column *column = &view->columns[index];
	const gstore_buffer *buffers = &batch->buffers[index * BUFFER_KINDS];
	const uint64		 skip = batch->first - batch->nulls_from;
	gstore_batch_column *c = &batch->columns[index];

	if (gstore_arrow_is_variable(column))
		gstore_arrow_decode(
			column, offsets_of(batch, index), buffers[BUFFER_DATA].bytes,
			(gstore_validity){c->nulls, skip},
			(gstore_validity){column->has_element_nulls ? buffers[BUFFER_ELEMENT_NULLS].bytes : NULL,
							  (uint64) offsets_of(batch, index)[0] % 8},
			batch->count, (uint64 *) c->values, (uint8 *) c->bodies);
	else if (column->form == GSTORE_FORM_BOOL)
		gstore_arrow_from_bits(buffers[BUFFER_OFFSETS].bytes, skip, batch->count, (uint8 *) c->values);
	else
		gstore_arrow_shift_back(column->form, (void *) c->values, batch->count);
}

static uint64
fetch_pieces(const gstore_view *view, const gstore_piece *pieces, int count)
{
	uint64 moved = 0;

	if (count == 0)
		return 0;
	gstore_transfer(GSTORE_READ, &view->name, pieces, count);
	for (int i = 0; i < count; i++)
		moved += pieces[i].bytes;
	return moved;
}

/* Adds the pieces of values, or offsets, and NULLs. Returns how many. */
static int
add_values(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted, gstore_piece *pieces)
{
	const uint64 first = batch->first, count = batch->count;
	int			 used = 0, number = -1;

	while ((number = bms_next_member(wanted, number)) >= 0)
	{
		gstore_batch_column *c = &batch->columns[number - 1];
		const gstore_column *column = &view->columns[number - 1];

		memset(c, 0, sizeof *c);
		if (!has_column(view, number))
			continue;
		if (bms_is_member(number, batch->bare) &&
			(!gstore_is_variable(column) || gstore_is_arrow(column)))
			; /* the bitmap is enough; else the offsets are */
		else if (gstore_is_uniform(column))
			add_uniform_values(batch, number - 1, view, &pieces[used++]);
		else if (gstore_is_arrow(column))
			add_arrow_values(batch, number - 1, view, &pieces[used++]);
		else
			add_plain_values(batch, number - 1, view, &pieces[used++]);
		if (gstore_part_bytes(column, GSTORE_NULLS, view->rows) > 0)
		{
			const uint64 bytes = (first + count + 7) / 8 - first / 8;

			c->nulls = batch_buffer(batch, number - 1, BUFFER_NULLS, bytes);
			pieces[used++] = (gstore_piece){.column = (uint16) number,
											.part = GSTORE_NULLS,
											.offset_bytes = first / 8,
											.bytes = bytes,
											.local = (void *) c->nulls};
		}
	}
	return used;
}

/* The same of bodies, where offsets were read. */
static int
add_all_bodies(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted,
			   gstore_piece *pieces)
{
	int used = 0, number = -1;

	while ((number = bms_next_member(wanted, number)) >= 0)
	{
		if (!has_column(view, number) || !gstore_is_variable(&view->columns[number - 1]) ||
			bms_is_member(number, batch->bare))
			continue;
		if (gstore_is_arrow(&view->columns[number - 1]))
			used += add_arrow_bodies(batch, number - 1, view, &pieces[used]);
		else
			used += add_bodies(batch, number - 1, view, &pieces[used]);
	}
	return used;
}

static void
decode_columns(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted)
{
	int number = -1;

	while ((number = bms_next_member(wanted, number)) >= 0)
	{
		gstore_batch_column *c = &batch->columns[number - 1];

		if (!has_column(view, number) || bms_is_member(number, batch->bare))
			continue;
		if (c->uniform != NULL && c->values != NULL)
			gstore_uniform_restore(&view->columns[number - 1], c->uniform, batch->count,
								   (uint8 *) c->values);
		else if (c->uniform == NULL && gstore_is_arrow(&view->columns[number - 1]))
			decode_arrow(batch, number - 1, view);
	}
}

uint64
gstore_read_batches(gstore_batch *const *batches, int count, const gstore_view *view,
					const Bitmapset *wanted)
{
	gstore_piece *pieces = palloc_extended(sizeof(gstore_piece) * 2 * (Size) count *
											   (Size) (bms_num_members(wanted) + 1),
										   MCXT_ALLOC_HUGE);
	int			  used = 0;
	uint64		  moved;

	for (int i = 0; i < count; i++)
		used += add_values(batches[i], view, wanted, &pieces[used]);
	moved = fetch_pieces(view, pieces, used);
	used = 0;
	for (int i = 0; i < count; i++)
		used += add_all_bodies(batches[i], view, wanted, &pieces[used]);
	moved += fetch_pieces(view, pieces, used);
	for (int i = 0; i < count; i++)
		decode_columns(batches[i], view, wanted);
	pfree(pieces);
	return moved;
}

uint64
gstore_read_columns(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted)
{
	return gstore_read_batches(&batch, 1, view, wanted);
}

void
gstore_batch_move(gstore_batch *batch, uint64 first, uint64 count)
{
	batch->first = first;
	batch->nulls_from = first / 8 * 8;
	batch->count = count;
}

uint64
gstore_read(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted, uint64 first,
			uint64 count)
{
	gstore_batch_move(batch, first, Min(count, gstore_rows_at_a_time(view, wanted)));
	return gstore_read_columns(batch, view, wanted);
}
