/* See query_batch.h. */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "postgres/form.h"
#include "postgres/query_batch.h"
#include "postgres/query_word.h"

/* Also where work_mem is less: batches of few rows cost as much as those of many. */
#define BATCH_KB_LEAST 8192

struct gstore_row_batch
{
	MemoryContext	context; /* of tuples */
	TupleTableSlot *slot;
	uint64			shown; /* the row in the slot; count: none */
	Size			bytes;
	uint32			count;
	MinimalTuple	tuples[GQUERY_BATCH_ROWS_MAX];
};

gstore_row_batch *
gstore_row_batch_create(TupleDesc rows)
{
	gstore_row_batch *batch = palloc(sizeof *batch);

	batch->context = AllocSetContextCreate(CurrentMemoryContext, "gstore batch",
										   ALLOCSET_DEFAULT_SIZES);
	batch->slot = MakeSingleTupleTableSlot(rows, &TTSOpsMinimalTuple);
	batch->bytes = batch->shown = batch->count = 0;
	return batch;
}

void
gstore_row_batch_clear(gstore_row_batch *batch)
{
	ExecClearTuple(batch->slot);
	MemoryContextReset(batch->context);
	batch->bytes = batch->shown = batch->count = 0;
}

bool
gstore_row_batch_add(gstore_row_batch *batch, TupleTableSlot *row, uint32 most)
{
	MemoryContext old = MemoryContextSwitchTo(batch->context);
	MinimalTuple  tuple = ExecCopySlotMinimalTuple(row);

	MemoryContextSwitchTo(old);
	batch->tuples[batch->count++] = tuple;
	batch->bytes += tuple->t_len;
	batch->shown = batch->count;
	return batch->count < Min(most, GQUERY_BATCH_ROWS_MAX) &&
		batch->bytes < (Size) Max(work_mem, BATCH_KB_LEAST) * 1024;
}

uint32
gstore_row_batch_count(const gstore_row_batch *batch)
{
	return batch->count;
}

TupleTableSlot *
gstore_row_batch_row(gstore_row_batch *batch, uint64 number)
{
	if (number >= batch->count)
		elog(ERROR, "the executor of queries has returned no valid result");
	if (number != batch->shown)
	{
		ExecStoreMinimalTuple(batch->tuples[number], batch->slot, false);
		slot_getallattrs(batch->slot);
		batch->shown = number;
	}
	return batch->slot;
}

/* ---- columns */

static int
list_columns(const gquery_program *program, const gquery_column **columns)
{
	int count = 0;

	for (uint32 i = 0; i < program->column_count; i++)
		if (program->columns[i].table == 0)
			columns[count++] = &program->columns[i];
	return count;
}

uint64
gstore_row_batch_bytes(const gstore_row_batch *batch, const gquery_program *program)
{
	const gquery_column *columns[GQUERY_COLUMNS_MAX];

	return (uint64) list_columns(program, columns) * GQUERY_BATCH_BYTES((uint64) batch->count);
}

/* False: a decimal that the stack has not, or that cannot be computed with. */
static bool
word_of(const gquery_column *column, Datum value, int scale, int64 *word)
{
	if (column->type != NUMERICOID)
	{
		*word = !OidIsValid(column->type)
			? 0
			: gstore_stack_word(value, column->type, (int) column->number % 2);
		return true;
	}
	*word = 0;
	if (VARSIZE_ANY_EXHDR(DatumGetPointer(value)) == 0) /* a placeholder: only NULL is asked for */
		return true;
	return gstore_decimal_word(value, scale, word) && *word != GQUERY_DECIMAL_NAN;
}

static int
scale_of(const gstore_row_batch *batch, const gquery_column *column)
{
	const FormData_pg_attribute *a = TupleDescAttr(batch->slot->tts_tupleDescriptor,
												   (int) column->number / 2);
	int32						 typmod = a->atttypmod;
	int							 precision, scale = 0;

	if (column->type != NUMERICOID)
		return 0;
	(void) getBaseTypeAndTypmod(a->atttypid, &typmod);
	if (!gstore_form_decimal(typmod, &precision, &scale))
		elog(ERROR, "a decimal of outer rows has no scale");
	return scale;
}

static void
set_bit(uint8 *bits, uint64 at)
{
	bits[at / 8] |= (uint8) (1u << at % 8);
}

bool
gstore_row_batch_write(gstore_row_batch *batch, const gquery_program *program, uint8 *to)
{
	const gquery_column *columns[GQUERY_COLUMNS_MAX];
	const int			 count = list_columns(program, columns);
	const uint64		 pitch = GQUERY_BATCH_PITCH((uint64) batch->count),
				 bytes = GQUERY_BATCH_BYTES((uint64) batch->count);
	int scales[GQUERY_COLUMNS_MAX];

	memset(to, 0, bytes * (uint64) count);
	for (int c = 0; c < count; c++)
		scales[c] = scale_of(batch, columns[c]);
	for (uint32 row = 0; row < batch->count; row++)
	{
		const TupleTableSlot *slot = gstore_row_batch_row(batch, row);

		for (int c = 0; c < count; c++)
		{
			const int at = (int) columns[c]->number / 2;
			int64	 *words = (int64 *) (to + bytes * (uint64) c);

			if (slot->tts_isnull[at])
				continue;
			if (!word_of(columns[c], slot->tts_values[at], scales[c], &words[row]))
				return false;
			set_bit((uint8 *) (words + pitch), row);
		}
	}
	return true;
}
