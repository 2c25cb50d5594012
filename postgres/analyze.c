/*
 * ANALYZE, by hand or by autoanalyze.c: a sample of rows, and the count of changes from then on.
 *
 * Neighbouring rows are read together, for every command has its price: some thousand runs at random,
 * and of their rows a random choice. A small table is read as a whole.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "commands/vacuum.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/backend_progress.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/sampling.h"

#include "postgres/directory.h"
#include "postgres/fdw.h"
#include "postgres/lost.h"
#include "postgres/pending.h"
#include "postgres/scan.h"

#define RUN_ROWS  1024u
#define RUNS_PART 10 /* as many runs at most as rows are wanted, divided by this */

/* ---- a sample */

typedef struct sample
{
	HeapTuple		  *rows;
	int				   wanted, count;
	double			   seen, skip; /* rows */
	ReservoirStateData reservoir;
} sample;

/* Vitter's algorithm, as heaps are sampled. */
static void
add_to_sample(sample *s, TupleTableSlot *slot)
{
	if (s->count < s->wanted)
		s->rows[s->count++] = ExecCopySlotHeapTuple(slot);
	else
	{
		if (s->skip < 0)
			s->skip = reservoir_get_next_S(&s->reservoir, s->seen, s->wanted);
		if (s->skip <= 0)
		{
			const int victim = (int) ((double) s->wanted *
									  sampler_random_fract(&s->reservoir.randstate));

			heap_freetuple(s->rows[victim]);
			s->rows[victim] = ExecCopySlotHeapTuple(slot);
		}
		s->skip -= 1;
	}
	s->seen += 1;
}

static void
sample_run(sample *s, Relation relation, const gstore_row_range *run, TupleTableSlot *slot,
		   MemoryContext tuples)
{
	gstore_walk *walk = gstore_walk_begin(relation, run, 1);

	while (gstore_walk_next(walk, slot))
	{
		MemoryContext old = MemoryContextSwitchTo(tuples);

		add_to_sample(s, slot);
		MemoryContextSwitchTo(old);
	}
	gstore_walk_end(walk);
}

/* All of the row_range, or runs that a sampler of blocks chooses. */
static void
sample_row_range(sample *s, Relation relation, const gstore_row_range *row_range,
				 TupleTableSlot *slot, MemoryContext tuples)
{
	const uint64	 runs = (row_range->limit - row_range->first + RUN_ROWS - 1) / RUN_ROWS;
	const int		 most = Max(s->wanted / RUNS_PART, 1);
	BlockSamplerData sampler;

	if (runs <= (uint64) most)
	{
		sample_run(s, relation, row_range, slot, tuples);
		return;
	}
	(void) BlockSampler_Init(&sampler, (BlockNumber) Min(runs, MaxBlockNumber), most,
							 pg_prng_uint32(&pg_global_prng_state));
	while (BlockSampler_HasMore(&sampler))
	{
		gstore_row_range run = *row_range;

		vacuum_delay_point();
		run.first = row_range->first + (uint64) BlockSampler_Next(&sampler) * RUN_ROWS;
		run.limit = Min(run.first + RUN_ROWS, row_range->limit);
		sample_run(s, relation, &run, slot, tuples);
	}
}

/* ---- changes since the last ANALYZE: those before it are subtracted once it commits */

/* A table that was analyzed. */
typedef struct analyzed
{
	Oid	   relation;
	uint64 changes; /* up to then */
	double rows;
} analyzed;

static List *all_analyzed; /* in the transaction, and in its context */
static bool columns_alone; /* the statement names columns: the tables are not analyzed as a whole */

void
gstore_analyze_begin(const VacuumStmt *statement)
{
	ListCell *cell;

	columns_alone = false;
	foreach(cell, statement->rels)
		columns_alone |= lfirst_node(VacuumRelation, cell)->va_cols != NIL;
}

/* An ANALYZE of a parent takes samples of its children, and does not change their statistics. */
static bool
is_analyzed_table(Relation relation)
{
	return MyBEEntry != NULL && MyBEEntry->st_progress_command == PROGRESS_COMMAND_ANALYZE &&
		MyBEEntry->st_progress_command_target == RelationGetRelid(relation);
}

/* If the relation is the one that is being analyzed, not its parent. */
static void
note_analyzed(Relation relation, double rows)
{
	MemoryContext		old;
	const gstore_table *table;
	analyzed		   *a;

	if (columns_alone || !is_analyzed_table(relation))
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	a = palloc0(sizeof *a);
	a->relation = RelationGetRelid(relation);
	a->rows = rows;
	LWLockAcquire(gstore->lock, LW_SHARED);
	table = gstore_find_table(a->relation, false);
	if (table != NULL)
		a->changes = table->changes;
	LWLockRelease(gstore->lock);
	all_analyzed = lappend(all_analyzed, a);
	MemoryContextSwitchTo(old);
}

static void
subtract_changes(void)
{
	ListCell *cell;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	foreach(cell, all_analyzed)
	{
		const analyzed *a = lfirst(cell);
		gstore_table   *table = gstore_find_table(a->relation, false);

		if (table != NULL)
		{
			table->changes -= Min(a->changes, table->changes);
			table->analyzed_rows = a->rows;
		}
	}
	LWLockRelease(gstore->lock);
}

static void
analyze_xact_callback(XactEvent event, void *argument)
{
	if (event == XACT_EVENT_COMMIT && all_analyzed != NIL)
		subtract_changes();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		all_analyzed = NIL;
}

/* Which of them were the subtransaction's is not known: a table more is analyzed again. */
static void
analyze_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent,
						 void *argument)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		all_analyzed = NIL;
}

void
gstore_analyze_init(void)
{
	RegisterXactCallback(analyze_xact_callback, NULL);
	RegisterSubXactCallback(analyze_subxact_callback, NULL);
}

/* ---- what PostgreSQL calls */

static int
gstoreAcquireSampleRows(Relation relation, int level, HeapTuple *rows, int wanted, double *live,
						double *dead)
{
	sample		  s = {.rows = rows, .wanted = wanted, .skip = -1};
	MemoryContext tuples = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(tuples, "gstore sample", ALLOCSET_DEFAULT_SIZES);
	gstore_row_range row_ranges[GSTORE_ROW_RANGES_MAX];
	TupleTableSlot	*slot;
	int				 count;

	MemoryContextSwitchTo(scratch);
	slot = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsVirtual);
	reservoir_init_selection_state(&s.reservoir, wanted);
	count = gstore_choose_rows(relation, NULL, false, false, row_ranges);
	*live = *dead = 0;
	for (int i = 0; i < count; i++)
	{
		const gstore_row_range *row_range = &row_ranges[i];
		const gstore_pending   *pending = gstore_pending_find(RelationGetRelid(relation));

		sample_row_range(&s, relation, row_range, slot, tuples);
		*live = (double) (pending != NULL ? gstore_pending_state(pending) : &row_range->view)->live_rows;
		*dead = (double) row_range->view.rows - *live;
	}
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextSwitchTo(tuples);
	MemoryContextDelete(scratch);
	note_analyzed(relation, *live);
	ereport(level,
			(errmsg("\"%s\": sampled %.0f of %.0f rows, of which %d are in the sample",
					RelationGetRelationName(relation), s.seen, *live, s.count)));
	return s.count;
}

static bool
gstoreAnalyzeForeignTable(Relation relation, AcquireSampleRowsFunc *function, BlockNumber *pages)
{
	const gstore_pending *pending = gstore_pending_find(RelationGetRelid(relation));
	gstore_view			  view;

	gstore_look(RelationGetRelid(relation), NULL, GSTORE_DEAD_NOT_WANTED, &view);
	if (gstore_report_lost(WARNING, RelationGetRelid(relation),
						   pending != NULL ? gstore_pending_state(pending) : &view))
		return false;
	*function = gstoreAcquireSampleRows;
	*pages = 1; /* 0 would be: never analyzed */
	if (!view.empty)
		*pages += (BlockNumber) Min(
			gstore_data_bytes(view.rows, view.columns, view.column_count) / BLCKSZ, MaxBlockNumber - 1);
	return true;
}

void
gstore_analyze_callback(FdwRoutine *routine)
{
	routine->AnalyzeForeignTable = gstoreAnalyzeForeignTable;
}
