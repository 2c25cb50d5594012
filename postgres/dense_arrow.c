/*
 * The copy of a table of format 'arrow': buffers behind a head that says where they are (gvmem/gstore_arrow.h).
 *
 * Without dead rows, each buffer is copied on the device, as it is. With them, the others pass through a
 * writer as in a compaction, but to the copy.
 */
#include "postgres.h"

#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include <gvmem/gstore_arrow.h>

#include "postgres/arrow.h"
#include "postgres/dense.h"
#include "postgres/scan.h"

#define OFFSETS_AT_A_TIME 65536u

/* Which table's column it is, by its place in the copy. */
static int
index_of(const gstore_arrow_column *to)
{
	return to->attnum - 1;
}

static bool
is_stored(const gstore_dense *d, int index)
{
	return index < d->view->column_count && !d->view->columns[index].dropped;
}

/*
 * Columns as they shall be in the copy, without bodies: in the form in which the store has them; those that it does
 * not have are all NULL.
 */
static gstore_column *
columns_of_copy(const gstore_dense *d)
{
	gstore_column *columns = gstore_describe(d->relation, true);

	for (int i = 0; i < RelationGetDescr(d->relation)->natts; i++)
	{
		if (is_stored(d, i) && !columns[i].dropped)
		{
			columns[i] = d->view->columns[i];
			columns[i].bodies_bytes = 0;
		}
		else
			columns[i].has_nulls = true;
	}
	return columns;
}

/* ---- sizes */

static uint64
arrow_body_bytes(const gstore_dense *d, int index)
{
	const gstore_column *column = &d->view->columns[index];
	int64				*offsets;
	uint64				 sum = 0;

	if (d->view->dead == NULL)
		return column->bodies_bytes;
	offsets = MemoryContextAlloc(d->scratch, sizeof *offsets * (OFFSETS_AT_A_TIME + 1));
	for (uint64 first = 0; first < d->view->rows; first += OFFSETS_AT_A_TIME)
	{
		const uint64	   count = Min(OFFSETS_AT_A_TIME, d->view->rows - first);
		const gstore_piece piece = {.column = (uint16) (index + 1),
									.part = GSTORE_VALUES,
									.offset_bytes = first * sizeof *offsets,
									.bytes = (count + 1) * sizeof *offsets,
									.local = offsets};

		CHECK_FOR_INTERRUPTS();
		gstore_transfer(GSTORE_READ, &d->view->name, &piece, 1);
		for (uint64 i = 0; i < count; i++)
			if (!gstore_view_is_dead(d->view, first + i))
				sum += (uint64) (offsets[i + 1] - offsets[i]);
	}
	pfree(offsets);
	return sum * gstore_arrow_unit(column);
}

static gstore_arrow_buffer
place_buffer(gstore_dense *d, uint64 bytes)
{
	const gstore_arrow_buffer buffer = {.offset = d->end, .bytes = bytes};

	if (bytes == 0)
		return (gstore_arrow_buffer){0};
	d->end = TYPEALIGN64(GSTORE_ARROW_ALIGN, d->end + bytes);
	return buffer;
}

static void
lay_out_column(gstore_dense *d, gstore_column *column, gstore_arrow_column *to)
{
	const int index = index_of(to);

	gstore_arrow_format(column, to->format);
	gstore_arrow_element_format(column, to->element_format);
	to->validity = place_buffer(d, gstore_part_bytes(column, GSTORE_NULLS, d->items));
	if (!gstore_arrow_is_variable(column))
	{
		to->values = place_buffer(d, gstore_part_bytes(column, GSTORE_VALUES, d->items));
		if (gstore_has_elements(column))
			to->elements = d->items * column->count;
		return;
	}
	to->offsets = place_buffer(d, gstore_part_bytes(column, GSTORE_VALUES, d->items));
	column->bodies_bytes = is_stored(d, index) ? arrow_body_bytes(d, index) : 0;
	to->values = place_buffer(d, column->bodies_bytes);
	to->element_validity = place_buffer(d, gstore_part_bytes(column, GSTORE_ELEMENT_NULLS, d->items));
	if (column->form == GSTORE_FORM_LIST)
		to->elements = to->values.bytes / column->element_width;
}

void
gstore_dense_lay_out_arrow(gstore_dense *d)
{
	const TupleDesc	   desc = RelationGetDescr(d->relation);
	gstore_column	  *columns = columns_of_copy(d);
	gstore_arrow_head *head;

	d->head_bytes = sizeof *head + sizeof gstore_arrow_columns(head)[0] * (Size) desc->natts;
	d->head = head = palloc0(d->head_bytes);
	for (int i = 0; i < desc->natts; i++)
	{
		const Form_pg_attribute a = TupleDescAttr(desc, i);
		gstore_arrow_column	   *to = &gstore_arrow_columns(head)[head->ncols];

		if (a->attisdropped)
			continue;
		head->ncols++;
		to->attnum = a->attnum;
		to->atttypid = a->atttypid;
		to->atttypmod = a->atttypmod;
		strlcpy(to->name, NameStr(a->attname), sizeof to->name);
	}
	d->head_bytes = sizeof *head + sizeof gstore_arrow_columns(head)[0] * head->ncols;
	d->end = TYPEALIGN64(GSTORE_ARROW_ALIGN, d->head_bytes);
	for (uint32 i = 0; i < head->ncols; i++)
		lay_out_column(d, &columns[index_of(&gstore_arrow_columns(head)[i])],
					   &gstore_arrow_columns(head)[i]);
	head->length = d->end;
	head->nitems = d->items;
	head->version = GSTORE_ARROW_VERSION;
	head->format = GSTORE_ARROW_COPY;
	head->head_bytes = sizeof *head;
	head->column_bytes = sizeof gstore_arrow_columns(head)[0];
	head->table_oid = RelationGetRelid(d->relation);
}

/* ---- contents */

static const gstore_arrow_buffer *
arrow_buffer_of(const gstore_arrow_column *c, gstore_part part)
{
	switch (part)
	{
		case GSTORE_NULLS:
			return &c->validity;
		case GSTORE_ELEMENT_NULLS:
			return &c->element_validity;
		case GSTORE_BODIES:
			return &c->values;
		default:
			return c->offsets.bytes > 0 ? &c->offsets : &c->values;
	}
}

static void
copy_areas(gstore_dense *d)
{
	const gstore_arrow_head *head = d->head;

	for (uint32 i = 0; i < head->ncols; i++)
	{
		const int index = index_of(&gstore_arrow_columns(head)[i]);

		if (!is_stored(d, index))
			continue; /* zeros are NULLs, and offsets of nothing */
		for (int part = GSTORE_VALUES; part <= GSTORE_ELEMENT_NULLS; part++)
		{
			const uint64 bytes = gstore_part_bytes(&d->view->columns[index], (gstore_part) part,
												   d->items);

			if (bytes > 0)
				gstore_dense_put_area(
					d, index, (gstore_part) part, 0,
					arrow_buffer_of(&gstore_arrow_columns(head)[i], (gstore_part) part)->offset,
					bytes);
		}
	}
}

/* What a writer flushes. */
static void
put_pieces(void *argument, const gstore_piece *pieces, int count)
{
	gstore_dense			*d = argument;
	const gstore_arrow_head *head = d->head;
	uint32					 at = 0;

	for (int i = 0; i < count; i++)
	{
		const gstore_piece		  *p = &pieces[i];
		const gstore_arrow_buffer *to;

		/* Pieces are in the order of columns. */
		while (gstore_arrow_columns(head)[at].attnum != p->column)
			at++;
		to = arrow_buffer_of(&gstore_arrow_columns(head)[at], (gstore_part) p->part);
		if (p->offset_bytes + p->bytes > to->bytes)
			elog(ERROR, "rows do not fit the copy of \"%s\"", RelationGetRelationName(d->relation));
		if (p->local != NULL) /* otherwise zeros, which are there */
			gstore_dense_put(d, to->offset + p->offset_bytes, p->local, p->bytes);
	}
}

static void
copy_live_rows(gstore_dense *d)
{
	const TupleDesc		   desc = RelationGetDescr(d->relation);
	const gstore_row_range row_range = {.view = *d->view, .first = 0, .limit = d->view->rows};
	gstore_view			   state = {
				   .name = d->view->name, .column_count = desc->natts, .columns = columns_of_copy(d)};
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	gstore_writer  *writer = gstore_writer_create(desc, state.columns);
	gstore_walk	   *walk = gstore_walk_begin(d->relation, &row_range, 1);

	gstore_writer_redirect(writer, put_pieces, d);
	while (gstore_walk_next(walk, slot))
		gstore_write_row(writer, &state, slot);
	gstore_flush(writer, &state);
	gstore_walk_end(walk);
	gstore_writer_free(writer);
	ExecDropSingleTupleTableSlot(slot);
}

void
gstore_dense_fill_arrow(gstore_dense *d)
{
	MemoryContext old = MemoryContextSwitchTo(d->scratch);

	if (d->view->dead == NULL)
		copy_areas(d);
	else
		copy_live_rows(d);
	MemoryContextSwitchTo(old);
	MemoryContextReset(d->scratch);
}
