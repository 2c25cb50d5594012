/*
 * See row_reader.h.
 *
 * Rows whose numbers follow each other are a batch.
 */
#include "postgres.h"

#include "postgres/row_reader.h"

struct gstore_row_reader
{
	MemoryContext		context;
	const gstore_view  *view;
	int					natts;
	const Bitmapset	   *columns, *bare;
	int				   *indexes; /* attribute numbers - 1 */
	int					index_count;
	gstore_batch	   *batches[GSTORE_READER_ROWS]; /* ascending; NULL: not made yet */
	int					count;						 /* of these, that were read */
	const gstore_batch *filled;						 /* that `output` is of */
	gstore_output	   *output;
};

gstore_row_reader *
gstore_row_reader_create(const gstore_view *view, int natts, const Bitmapset *columns,
						 const Bitmapset *bare)
{
	gstore_row_reader *reader = palloc0(sizeof *reader);
	int				   number = -1;

	reader->context = CurrentMemoryContext;
	reader->view = view;
	reader->natts = natts;
	reader->columns = columns;
	reader->bare = bare;
	reader->indexes = palloc(sizeof(int) * (Size) (bms_num_members(columns) + 1));
	while ((number = bms_next_member(columns, number)) >= 0)
		reader->indexes[reader->index_count++] = number - 1;
	reader->output = gstore_output_create(natts);
	return reader;
}

int
gstore_row_reader_most(const gstore_row_reader *reader)
{
	Bitmapset *valued = bms_difference(reader->columns, reader->bare);
	const int  most = (int) Min(GSTORE_READER_ROWS, gstore_rows_at_a_time(reader->view, valued));

	bms_free(valued);
	return most;
}

static int
compare_rows(const void *left, const void *right)
{
	const uint64 l = *(const uint64 *) left, r = *(const uint64 *) right;

	return l < r ? -1 : l > r;
}

static void
add_batch(gstore_row_reader *reader, uint64 first, uint64 count)
{
	gstore_batch **batch = &reader->batches[reader->count++];

	if (*batch == NULL)
	{
		*batch = gstore_batch_create(reader->natts);
		(*batch)->bare = reader->bare;
	}
	gstore_batch_move(*batch, first, count);
}

uint64
gstore_row_reader_read(gstore_row_reader *reader, uint64 *rows, int count)
{
	MemoryContext old = MemoryContextSwitchTo(reader->context);
	uint64		  moved;
	int			  at = 0;

	qsort(rows, (Size) count, sizeof *rows, compare_rows);
	if (count > 0 && rows[count - 1] >= reader->view->rows)
		elog(ERROR, "the executor of queries has returned no valid result");
	reader->count = 0;
	reader->filled = NULL;
	while (at < count)
	{
		const uint64 first = rows[at];

		while (at + 1 < count && rows[at + 1] <= rows[at] + 1)
			at++;
		add_batch(reader, first, rows[at++] + 1 - first);
	}
	moved = gstore_read_batches(reader->batches, reader->count, reader->view, reader->columns);
	MemoryContextSwitchTo(old);
	return moved;
}

/* The last one that does not begin behind the row. */
static const gstore_batch *
find_batch(const gstore_row_reader *reader, uint64 row)
{
	int low = 0, high = reader->count;

	while (high - low > 1)
	{
		const int middle = (low + high) / 2;

		if (reader->batches[middle]->first <= row)
			low = middle;
		else
			high = middle;
	}
	return reader->batches[low];
}

void
gstore_row_reader_fill(gstore_row_reader *reader, uint64 row, TupleTableSlot *slot)
{
	const gstore_batch *batch = find_batch(reader, row);
	MemoryContext		old = MemoryContextSwitchTo(reader->context);

	if (batch != reader->filled)
		gstore_output_begin(reader->output, batch, reader->view, reader->indexes, reader->index_count);
	MemoryContextSwitchTo(old);
	reader->filled = batch;
	memset(slot->tts_isnull, true, sizeof(bool) * (Size) slot->tts_tupleDescriptor->natts);
	gstore_output_fill(reader->output, row - batch->first, slot);
}
