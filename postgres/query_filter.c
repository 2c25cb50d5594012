/* See query_filter.h. */
#include "postgres.h"

#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "postgres/qual.h"
#include "postgres/query_filter.h"
#include "postgres/query_path.h"
#include "postgres/query_run.h"
#include "postgres/whole.h"

#define WORD_BITS 64

struct gstore_filter
{
	gstore_query	 query;
	gstore_compiled *compiled;
	MemoryContext	 context; /* of a run */
	gstore_run		 run;
	bool			 done;	/* rows are known */
	uint64			*words; /* bit r % 64 of word r / 64: row r passes */
	uint64			 word_count;
	uint64			 passed; /* in all runs */
	bool			 local;	 /* the last run was not there */
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
	const gstore_query marks = {
		.sink = GSTORE_SINK_MARKS, .relation = rel->relid, .unset = gstore_unset_planned(root)};
	List	 *chosen = NIL, *clauses = NIL;
	left_out  left = {0};
	ListCell *cell;

	if (rel->rtekind != RTE_RELATION)
		return NIL;
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

gstore_filter *
gstore_filter_create(List *clauses, Index relation, PlanState *parent)
{
	gstore_filter *filter = palloc0(sizeof *filter);

	filter->query = (gstore_query){.sink = GSTORE_SINK_MARKS, .relation = relation, .filters = clauses};
	filter->compiled = gstore_query_prepare(&filter->query, parent);
	filter->context = AllocSetContextCreate(CurrentMemoryContext, "gstore filter",
											ALLOCSET_DEFAULT_SIZES);
	return filter;
}

/* The records of a run are the bitmap's words. */
static bool
take_words(gstore_filter *filter, uint64 rows)
{
	filter->words = gstore_run_take(&filter->run, &filter->word_count);
	if (filter->words == NULL)
		return false;
	if (filter->word_count != (rows + WORD_BITS - 1) / WORD_BITS)
		elog(ERROR, "the executor of queries has returned no valid result");
	for (uint64 i = 0; i < filter->word_count; i++)
		filter->passed += (uint64) pg_popcount64(filter->words[i]);
	return true;
}

static bool
run_filter(gstore_filter *filter, Relation relation, const gstore_row_range *ranges, int count,
		   ExprContext *context)
{
	gstore_view	   view;
	gstore_request request = {filter->compiled, context, relation, &view};

	filter->run.place = "nowhere, as the table has no rows";
	if (count == 0)
		return true;
	strlcpy(filter->run.why, "rows are in two stores", sizeof filter->run.why);
	if (!gstore_whole_join(ranges, count, &view))
		return false;
	return gstore_run_begin(&filter->run, &request) && take_words(filter, view.rows);
}

bool
gstore_filter_run(gstore_filter *filter, Relation relation, const gstore_row_range *ranges,
				  int count, ExprContext *context)
{
	MemoryContext old;

	gstore_run_end(&filter->run);
	MemoryContextReset(filter->context);
	filter->words = NULL;
	filter->word_count = 0;
	old = MemoryContextSwitchTo(filter->context);
	filter->done = run_filter(filter, relation, ranges, count, context);
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

bool
gstore_filter_has(const gstore_filter *filter, uint64 row)
{
	return row / WORD_BITS < filter->word_count &&
		(filter->words[row / WORD_BITS] >> (row % WORD_BITS) & 1) != 0;
}

void
gstore_filter_explain(const gstore_filter *filter, ExplainState *es)
{
	gstore_run_explain(&filter->run, filter->local ? "by the scan" : NULL, NULL, es);
	ExplainPropertyInteger("GPU Rows Passed", NULL, (int64) filter->passed, es);
}
