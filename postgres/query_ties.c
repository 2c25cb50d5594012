/*
 * See query_ties.h.
 *
 * A *tie* is a run of entries with equal words up to those of a text that is longer than these. Keys before it are
 * equal, so that it is sorted by that key and those behind it.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/sortsupport.h"
#include "utils/typcache.h"

#include "postgres/query_ties.h"
#include "postgres/row_reader.h"

typedef struct sort_key
{
	ExprState	   *value;
	int16			length;
	bool			by_value;
	SortSupportData support;
} sort_key;

struct gstore_ties
{
	const gstore_compiled *compiled;
	Bitmapset			  *columns; /* that keys are of */
	MemoryContext		   context; /* of a tie */
	int					   count;
	sort_key			   keys[FLEXIBLE_ARRAY_MEMBER];
};

typedef struct tied_row
{
	uint64 row;
	Datum *values; /* of the text's key and those behind it */
	bool  *nulls;
} tied_row;

/* What rows are compared by: keys from this one on. */
typedef struct comparison
{
	gstore_ties *ties;
	int			 first;
} comparison;

static void
prepare_key(sort_key *key, const Node *expression, int direction, PlanState *parent)
{
	const Oid		type = getBaseType(exprType(expression));
	TypeCacheEntry *cache = lookup_type_cache(type, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
	const bool		descending = (direction & GSTORE_KEY_DESCENDING) != 0;

	key->value = ExecInitExpr((Expr *) expression, parent);
	get_typlenbyval(type, &key->length, &key->by_value);
	key->support = (SortSupportData){.ssup_cxt = CurrentMemoryContext,
									 .ssup_collation = exprCollation(expression),
									 .ssup_nulls_first = (direction & GSTORE_KEY_NULLS_FIRST) != 0};
	PrepareSortSupportFromOrderingOp(descending ? cache->gt_opr : cache->lt_opr, &key->support);
}

static void
add_columns(gstore_ties *ties, const List *keys, Index relation)
{
	Bitmapset *numbers = NULL;
	int		   number = -1;

	pull_varattnos((Node *) keys, relation, &numbers);
	while ((number = bms_next_member(numbers, number)) >= 0)
		if (number + FirstLowInvalidHeapAttributeNumber > 0)
			ties->columns = bms_add_member(ties->columns, number + FirstLowInvalidHeapAttributeNumber);
}

gstore_ties *
gstore_ties_create(const gstore_compiled *compiled, const List *keys, const List *directions,
				   PlanState *parent)
{
	const int	 count = list_length(keys);
	gstore_ties *ties;

	if (!gstore_query_has_texts(keys))
		return NULL;
	ties = palloc0(offsetof(gstore_ties, keys) + sizeof ties->keys[0] * (Size) count);
	ties->compiled = compiled;
	ties->count = count;
	for (int i = 0; i < count; i++)
		prepare_key(&ties->keys[i], list_nth(keys, i), list_nth_int(directions, i), parent);
	add_columns(ties, keys, ((const Scan *) parent->plan)->scanrelid);
	ties->context = AllocSetContextCreate(CurrentMemoryContext, "gstore ties", ALLOCSET_DEFAULT_SIZES);
	return ties;
}

/* ---- which rows */

/* The place behind the tie that an entry begins; key: by which it is sorted first. An entry alone is none. */
static uint64
end_of_tie(const gstore_ties *ties, const int64 *entries, uint64 words, uint64 count, uint64 at,
		   int *key)
{
	const int64 *first = entries + at * words;
	uint64		 end = at + 1;
	int			 equal;

	if (gstore_query_is_cut(ties->compiled, first, key, &equal))
		while (end < count && memcmp(entries + end * words, first, sizeof *first * (Size) equal) == 0)
			end++;
	return end;
}

uint64
gstore_ties_decided(const gstore_ties *ties, const int64 *entries, uint64 words, uint64 count)
{
	const uint64 last = count == 0 ? 0 : count - 1;
	int			 key, equal;

	if (count == 0 || !gstore_query_is_cut(ties->compiled, entries + last * words, &key, &equal))
		return count;
	while (count > 0 &&
		   memcmp(entries + (count - 1) * words, entries + last * words,
				  sizeof *entries * (Size) equal) == 0)
		count--;
	return count;
}

/* ---- their order */

static int
compare_rows(const void *left, const void *right, void *argument)
{
	const comparison *by = argument;
	const tied_row	 *l = left, *r = right;

	for (int i = 0; i < by->ties->count - by->first; i++)
	{
		const int c = ApplySortComparator(l->values[i], l->nulls[i], r->values[i], r->nulls[i],
										  &by->ties->keys[by->first + i].support);

		if (c != 0)
			return c;
	}
	return l->row < r->row ? -1 : l->row > r->row;
}

static void
evaluate_keys(const gstore_ties *ties, int first, ExprContext *context, tied_row *to)
{
	to->values = palloc(sizeof *to->values * (Size) (ties->count - first));
	to->nulls = palloc(sizeof *to->nulls * (Size) (ties->count - first));
	for (int i = first; i < ties->count; i++)
	{
		const sort_key *key = &ties->keys[i];
		bool			null;
		const Datum		value = ExecEvalExprSwitchContext(key->value, context, &null);

		to->nulls[i - first] = null;
		to->values[i - first] = null ? (Datum) 0 : datumCopy(value, key->by_value, key->length);
	}
}

/* Those of `rows`, at most GSTORE_READER_ROWS. Returns the bytes moved. */
static uint64
read_rows(const gstore_ties *ties, gstore_row_reader *reader, ScanState *scan, int first,
		  tied_row *rows, int count)
{
	TupleTableSlot *slot = scan->ss_ScanTupleSlot;
	ExprContext	   *context = scan->ps.ps_ExprContext;
	uint64			numbers[GSTORE_READER_ROWS], bytes;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < count; i++)
		numbers[i] = rows[i].row;
	bytes = gstore_row_reader_read(reader, numbers, count);
	for (int i = 0; i < count; i++)
	{
		ExecClearTuple(slot);
		gstore_row_reader_fill(reader, rows[i].row, slot);
		ExecStoreVirtualTuple(slot);
		context->ecxt_scantuple = slot;
		evaluate_keys(ties, first, context, &rows[i]);
		ResetExprContext(context);
	}
	ExecClearTuple(slot);
	return bytes;
}

/* Of the entries of one, only their rows are put into order: their keys are not needed any more. False: gstore_ties_sort(). */
static bool
sort_tie(gstore_ties *ties, const gstore_view *view, ScanState *scan, int first, int64 *entries,
		 uint64 words, int count, uint64 *bytes)
{
	gstore_row_reader *reader = gstore_row_reader_create(
		view, RelationGetDescr(scan->ss_currentRelation)->natts, ties->columns, NULL);
	const int  at_a_time = gstore_row_reader_most(reader);
	comparison by = {.ties = ties, .first = first};
	tied_row  *rows = palloc(sizeof *rows * (Size) count);

	for (int i = 0; i < count; i++)
		rows[i].row = (uint64) entries[((uint64) i + 1) * words - 1];
	for (int i = 0; i < count; i += at_a_time)
	{
		*bytes += read_rows(ties, reader, scan, first, rows + i, Min(count - i, at_a_time));
		if (MemoryContextMemAllocated(ties->context, true) > (Size) work_mem * 1024)
			return false;
	}
	qsort_arg(rows, (Size) count, sizeof *rows, compare_rows, &by);
	for (int i = 0; i < count; i++)
		entries[((uint64) i + 1) * words - 1] = (int64) rows[i].row;
	return true;
}

bool
gstore_ties_sort(gstore_ties *ties, const gstore_view *view, ScanState *scan, int64 *entries,
				 uint64 words, uint64 count, uint64 *bytes)
{
	uint64 end;
	int	   key;
	bool   sorted = true;

	for (uint64 at = 0; at < count && sorted; at = end)
	{
		MemoryContext old;

		end = end_of_tie(ties, entries, words, count, at, &key);
		if (end - at > GSTORE_TIE_ROWS_MOST)
			return false;
		if (end - at == 1)
			continue;
		old = MemoryContextSwitchTo(ties->context);
		sorted = sort_tie(ties, view, scan, key, entries + at * words, words, (int) (end - at), bytes);
		MemoryContextSwitchTo(old);
		MemoryContextReset(ties->context);
	}
	return sorted;
}
