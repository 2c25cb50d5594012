/* See query_filter.h. */
#include "postgres.h"

#include "executor/tuptable.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "port/pg_bitutils.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "postgres/fdw.h"
#include "postgres/qual.h"
#include "postgres/query_expr.h"
#include "postgres/query_filter.h"
#include "postgres/query_path.h"
#include "postgres/query_records.h"
#include "postgres/whole.h"

#define WORD_BITS	 64
#define FIXED_WORDS	 2	  /* of a record of query_gather: the row, which values are NULL */
#define GATHERED_KIB 8192 /* that may be gathered, if work_mem is less */

struct gstore_filter
{
	gstore_query	 query;
	gstore_compiled *compiled;
	MemoryContext	 context; /* of a run */
	gstore_run		 run;
	bool			 prepared; /* view and request are those of the next run */
	bool			 joined;   /* view is of all its rows */
	gstore_view		 view;
	gstore_request	 request;
	bool			 done;	/* rows are known */
	uint64			*words; /* bit r % 64 of word r / 64: row r passes */
	uint64			 word_count;
	uint64			*gathered; /* NULL: they were not; records of query_gather, whose rows ascend */
	uint64			 gathered_count, at;
	uint64			 passed; /* in all runs */
	bool			 local;	 /* the last run was not there */
	bool			 gathers;
};

/* ---- planning */

static bool
measure(const gstore_query *marks, List *clauses, gstore_query_size *size)
{
	gstore_query query = *marks;

	query.filters = clauses;
	return gstore_query_measure(&query, size);
}

/* What conditions that are not chosen mean for those after them. */
typedef struct left_out
{
	bool  any;
	Index least_level;
} left_out;

static bool
may_precede(PlannerInfo *root, RestrictInfo *info, const gstore_query_size *size, const left_out *left)
{
	return !left->any || (!size->raises && gstore_query_level(root, info) <= left->least_level);
}

static void
leave_out(PlannerInfo *root, RestrictInfo *info, left_out *left)
{
	const Index level = gstore_query_level(root, info);

	left->least_level = left->any ? Min(left->least_level, level) : level;
	left->any = true;
}

List *
gstore_filter_choose(PlannerInfo *root, const RelOptInfo *rel, List *infos, gstore_query_size *size)
{
	gstore_query marks = {
		.sink = GSTORE_SINK_MARKS, .relation = rel->relid, .unset = gstore_unset_planned(root)};
	List	 *chosen = NIL, *clauses = NIL;
	left_out  left = {0};
	ListCell *cell;

	if (rel->rtekind != RTE_RELATION)
		return NIL;
	marks.table = root->simple_rte_array[rel->relid]->relid;
	foreach(cell, gstore_query_order(root, infos))
	{
		RestrictInfo	 *info = lfirst_node(RestrictInfo, cell);
		gstore_query_size one;

		if (info->pseudoconstant) /* a plan node above the scan evaluates it before any row */
			continue;
		if (list_length(chosen) < GQUERY_CODE_MAX &&
			measure(&marks, list_make1(info->clause), &one) && may_precede(root, info, &one, &left) &&
			measure(&marks, list_append_unique_ptr(list_copy(clauses), info->clause), size))
		{
			chosen = lappend(chosen, info);
			clauses = lappend(clauses, info->clause);
		}
		else
			leave_out(root, info, &left);
	}
	if (chosen != NIL)
		(void) measure(&marks, clauses, size);
	return chosen;
}

/* ---- execution */

/* False: there are columns whose values the GPU does not return. */
static bool
choose_gathered(const Bitmapset *columns, TupleDesc descriptor, gstore_query *query)
{
	int number = -1;

	while ((number = bms_next_member(columns, number)) >= 0)
	{
		const Oid type = getBaseType(TupleDescAttr(descriptor, number - 1)->atttypid);

		if (gstore_type_family(type) == 0 || type == NUMERICOID)
			return false;
		query->gathered = lappend_int(query->gathered, number);
		query->gathered_types = lappend_oid(query->gathered_types, type);
	}
	return true;
}

gstore_filter *
gstore_filter_create(List *clauses, Index relation, const Bitmapset *columns, TupleDesc descriptor,
					 PlanState *parent)
{
	gstore_filter *filter = palloc0(sizeof *filter);

	filter->query = (gstore_query){.sink = GSTORE_SINK_MARKS, .relation = relation, .filters = clauses};
	filter->gathers = choose_gathered(columns, descriptor, &filter->query);
	filter->compiled = gstore_query_prepare(&filter->query, parent);
	filter->context = AllocSetContextCreate(CurrentMemoryContext, "gstore filter",
											ALLOCSET_DEFAULT_SIZES);
	return filter;
}

/* The records of a run are the bitmap's words. */
static bool
take_words(gstore_filter *filter, uint64 rows)
{
	uint64 passed = 0;

	filter->words = gstore_run_take(&filter->run, &filter->word_count);
	if (filter->words == NULL)
		return false;
	if (filter->word_count != (rows + WORD_BITS - 1) / WORD_BITS)
		elog(ERROR, "the executor of queries has returned no valid result");
	for (uint64 i = 0; i < filter->word_count; i++)
		passed += (uint64) pg_popcount64(filter->words[i]);
	gstore_query_count(filter->run.kind, GSTORE_QUERY_ROWS_RETURNED, passed);
	filter->passed += passed;
	return true;
}

static bool
take_gathered(gstore_filter *filter, uint64 rows)
{
	const uint64 words = (uint64) filter->run.words;
	uint64		 next = 0;

	filter->gathered = gstore_run_take(&filter->run, &filter->gathered_count);
	if (filter->gathered == NULL)
		return false;
	for (uint64 i = 0; i < filter->gathered_count; i++)
	{
		const uint64 row = filter->gathered[i * words];

		if (row < next || row >= rows)
			elog(ERROR, "the executor of queries has returned no valid result");
		next = row + 1;
	}
	filter->passed += filter->gathered_count;
	filter->at = 0;
	return true;
}

/* The most rows whose values are wanted in the place of a bitmap: more take longer than to read columns, or too much memory. */
static uint64
gather_max(const gstore_filter *filter, uint64 rows)
{
	const uint64 words = FIXED_WORDS + (uint64) list_length(filter->query.gathered);
	const uint64 bytes = (uint64) Max(work_mem, GATHERED_KIB) * 1024;

	return Min(rows / (4 * words), bytes / (sizeof(uint64) * words));
}

/* In filter->context. */
static void
prepare_filter(gstore_filter *filter, Relation relation, const gstore_row_range *ranges, int count,
			   ExprContext *context)
{
	if (filter->prepared)
		return;
	gstore_filter_forget(filter);
	filter->request = (gstore_request){
		.compiled = filter->compiled, .context = context, .relation = relation, .view = &filter->view};
	filter->joined = count > 0 && gstore_whole_join(ranges, count, &filter->view);
	if (filter->joined && filter->gathers)
		filter->request.gather_max = gather_max(filter, filter->view.rows);
	filter->prepared = true;
}

static bool
run_filter(gstore_filter *filter, int count)
{
	filter->run.figures.place = "nowhere, as the table has no rows";
	if (count == 0)
		return true;
	if (!filter->joined)
		return gstore_run_refuse(&filter->run, filter->compiled, GSTORE_WHY_TWO_STORES);
	filter->request.unasked = false;
	if (!gstore_run_begin(&filter->run, &filter->request))
		return false;
	return filter->run.gathered ? take_gathered(filter, filter->view.rows)
								: take_words(filter, filter->view.rows);
}

gstore_start
gstore_filter_start(gstore_filter *filter, Relation relation, const gstore_row_range *ranges,
					int count, ExprContext *context, bool unasked)
{
	MemoryContext old = MemoryContextSwitchTo(filter->context);
	gstore_start  started = GSTORE_NOT_STARTED;

	prepare_filter(filter, relation, ranges, count, context);
	filter->request.unasked = unasked;
	if (filter->joined)
		started = gstore_run_start(&filter->run, &filter->request);
	MemoryContextSwitchTo(old);
	return started;
}

void
gstore_filter_forget(gstore_filter *filter)
{
	gstore_run_end(&filter->run);
	MemoryContextReset(filter->context);
	filter->words = filter->gathered = NULL;
	filter->word_count = filter->gathered_count = 0;
	filter->prepared = false;
}

gstore_run *
gstore_filter_run_of(gstore_filter *filter)
{
	return &filter->run;
}

bool
gstore_filter_run(gstore_filter *filter, Relation relation, const gstore_row_range *ranges,
				  int count, ExprContext *context)
{
	MemoryContext old = MemoryContextSwitchTo(filter->context);

	prepare_filter(filter, relation, ranges, count, context);
	filter->done = run_filter(filter, count);
	filter->prepared = false;
	MemoryContextSwitchTo(old);
	filter->local = !filter->done;
	return filter->done;
}

uint64
gstore_filter_next(const gstore_filter *filter, uint64 row)
{
	for (uint64 at = row / WORD_BITS; at < filter->word_count; at++)
	{
		const uint64 word = filter->words[at] &
			(at == row / WORD_BITS ? ~UINT64CONST(0) << (row % WORD_BITS) : ~UINT64CONST(0));

		if (word != 0)
			return at * WORD_BITS + (uint64) pg_rightmost_one_pos64(word);
	}
	return UINT64_MAX;
}

/* ---- rows that were gathered */

bool
gstore_filter_has_gathered(const gstore_filter *filter)
{
	return filter->done && filter->gathered != NULL;
}

bool
gstore_filter_take(gstore_filter *filter, TupleTableSlot *slot)
{
	const int	  words = FIXED_WORDS + list_length(filter->query.gathered);
	const uint64 *record = filter->gathered + filter->at * (uint64) words;
	ListCell	 *number, *type;
	int			  i = 0;

	if (filter->at == filter->gathered_count)
		return false;
	memset(slot->tts_isnull, true, sizeof(bool) * (Size) slot->tts_tupleDescriptor->natts);
	forboth(number, filter->query.gathered, type, filter->query.gathered_types)
	{
		const int at = lfirst_int(number) - 1;

		slot->tts_isnull[at] = (record[1] >> i & 1) != 0;
		slot->tts_values[at] = gstore_stack_value((int64) record[FIXED_WORDS + i++],
												  lfirst_oid(type), 0);
	}
	gstore_row_to_tid(record[0], &slot->tts_tid);
	ExecStoreVirtualTuple(slot);
	filter->at++;
	return true;
}

void
gstore_filter_rewind(gstore_filter *filter)
{
	filter->at = 0;
}

void
gstore_filter_explain(const gstore_filter *filter, ExplainState *es)
{
	gstore_query_explain(&filter->run.figures, filter->local ? "by the scan" : NULL,
						 filter->run.why, NULL, es);
	ExplainPropertyInteger("GPU Rows Passed", NULL, (int64) filter->passed, es);
	if (filter->gathered_count > 0)
		ExplainPropertyInteger("GPU Rows Gathered", NULL, (int64) filter->gathered_count, es);
}
