/* See query_late.h. */
#include "postgres.h"

#include "executor/tuptable.h"
#include "utils/rel.h"

#include "postgres/query_late.h"
#include "postgres/row_reader.h"

typedef struct late_table
{
	Bitmapset		  *columns;
	gstore_row_reader *reader; /* NULL: it has none of the columns */
	TupleTableSlot	  *slot;
} late_table;

struct gstore_late
{
	const gstore_compiled *compiled;
	const List			  *keys;
	late_table			   tables[GQUERY_TABLES_MAX];
	int					   at_a_time;
	uint64				   read_to; /* records of the run before this one have been read */
	uint64				   bytes;
};

static int
number_of(const List *keys, int key)
{
	return list_nth_node(Var, keys, key)->varattno;
}

/* False: there is none. */
static bool
find_columns(gstore_late *late)
{
	bool found = false;

	for (int i = 0; i < list_length(late->keys); i++)
	{
		const int table = gstore_query_late(late->compiled, i) - 1;

		if (table < 0)
			continue;
		late->tables[table].columns = bms_add_member(late->tables[table].columns,
													 number_of(late->keys, i));
		found = true;
	}
	return found;
}

gstore_late *
gstore_late_create(const gstore_compiled *compiled, const List *keys, const Relation *relations,
				   const gstore_view *views)
{
	gstore_late *late = palloc0(sizeof *late);

	late->compiled = compiled;
	late->keys = keys;
	late->at_a_time = GSTORE_READER_ROWS;
	if (!find_columns(late))
		return NULL;
	for (int i = 0; i < GQUERY_TABLES_MAX; i++)
	{
		late_table *t = &late->tables[i];

		if (t->columns == NULL)
			continue;
		t->slot = MakeTupleTableSlot(CreateTupleDescCopy(RelationGetDescr(relations[i])),
									 &TTSOpsVirtual);
		t->reader = gstore_row_reader_create(&views[i], RelationGetDescr(relations[i])->natts,
											 t->columns, NULL);
		late->at_a_time = Min(late->at_a_time, gstore_row_reader_most(t->reader));
	}
	return late;
}

static void
read_records(gstore_late *late, const uint64 *records, int words, int count)
{
	uint64 rows[GSTORE_READER_ROWS];

	for (int i = 0; i < GQUERY_TABLES_MAX; i++)
	{
		int found = 0;

		if (late->tables[i].reader == NULL)
			continue;
		for (int at = 0; at < count; at++)
			found += gstore_query_row(late->compiled, records + at * words, i, &rows[found]);
		late->bytes += gstore_row_reader_read(late->tables[i].reader, rows, found);
	}
}

/* False: the table has no row in it. */
static bool
fill_row(const gstore_late *late, const uint64 *record, int table)
{
	uint64 row;

	if (!gstore_query_row(late->compiled, record, table, &row))
		return false;
	gstore_row_reader_fill(late->tables[table].reader, row, late->tables[table].slot);
	return true;
}

void
gstore_late_fill(gstore_late *late, const gstore_run *run, Datum *values, bool *nulls)
{
	const uint64 *record = run->records + run->at * (uint64) run->words;
	const uint64  count = Min((uint64) late->at_a_time, run->count - run->at);
	bool		  is_there[GQUERY_TABLES_MAX];

	if (run->at >= late->read_to)
	{
		read_records(late, record, run->words, (int) count);
		late->read_to = run->at + count;
	}
	for (int i = 0; i < GQUERY_TABLES_MAX; i++)
		is_there[i] = late->tables[i].reader != NULL && fill_row(late, record, i);
	for (int i = 0; i < list_length(late->keys); i++)
	{
		const int			  table = gstore_query_late(late->compiled, i) - 1;
		const TupleTableSlot *slot = table < 0 ? NULL : late->tables[table].slot;

		if (table < 0)
			continue;
		nulls[i] = !is_there[table] || slot->tts_isnull[number_of(late->keys, i) - 1];
		if (!nulls[i])
			values[i] = slot->tts_values[number_of(late->keys, i) - 1];
	}
}

void
gstore_late_restart(gstore_late *late)
{
	if (late != NULL)
		late->read_to = 0;
}

uint64
gstore_late_bytes(const gstore_late *late)
{
	return late->bytes;
}
