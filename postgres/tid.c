/* Conditions on ctid; see tid.h. */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "lib/qunique.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "postgres/fdw.h"
#include "postgres/tid.h"

/* The other side of a condition. */
typedef struct tid_value
{
	ExprState *state;
	bool	   is_array;
} tid_value;

struct gstore_tids
{
	MemoryContext context;
	uint64		 *rows;
	uint64		  capacity;
	int			  count;
	tid_value	  values[FLEXIBLE_ARRAY_MEMBER];
};

/* ---- planning */

static bool
is_ctid(const Node *node, Index relation)
{
	const Var *var = (const Var *) node;

	return IsA(node, Var) && (Index) var->varno == relation && var->varlevelsup == 0 &&
		var->varattno == SelfItemPointerAttributeNumber;
}

/* The other side of the comparison; NULL: the clause names no rows. */
static Expr *
value_of(Expr *clause, Index relation, bool *is_array)
{
	List *args;
	Node *value;

	*is_array = IsA(clause, ScalarArrayOpExpr);
	if (*is_array && ((ScalarArrayOpExpr *) clause)->opno == TIDEqualOperator &&
		((ScalarArrayOpExpr *) clause)->useOr)
		args = ((ScalarArrayOpExpr *) clause)->args;
	else if (IsA(clause, OpExpr) && ((OpExpr *) clause)->opno == TIDEqualOperator)
		args = ((OpExpr *) clause)->args;
	else
		return NULL;
	if (is_ctid(linitial(args), relation))
		value = lsecond(args);
	else if (!*is_array && is_ctid(lsecond(args), relation))
		value = linitial(args);
	else
		return NULL;
	if (contain_var_clause(value) || contain_volatile_functions(value) || contain_subplans(value))
		return NULL;
	return (Expr *) value;
}

bool
gstore_names_rows(Expr *clause, Index relation)
{
	bool ignored;

	return value_of(clause, relation, &ignored) != NULL;
}

/* ---- execution */

gstore_tids *
gstore_tids_create(List *clauses, Index relation, PlanState *parent)
{
	gstore_tids *tids = palloc0(offsetof(gstore_tids, values) +
								sizeof(tid_value) * (Size) list_length(clauses));
	ListCell	*cell;

	tids->context = CurrentMemoryContext;
	foreach(cell, clauses)
	{
		tid_value *v = &tids->values[tids->count++];
		Expr	  *value = value_of(lfirst(cell), relation, &v->is_array);

		if (value == NULL)
			elog(ERROR, "a condition has changed since planning");
		v->state = ExecInitExpr(value, parent);
	}
	return tids;
}

/* A ctid that no row can have is left out. */
static uint64
add_tid_row(uint64 *rows, uint64 count, Datum value)
{
	ItemPointer		   tid = (ItemPointer) DatumGetPointer(value);
	const OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(tid);

	if (offset < 1 || offset > GSTORE_ROWS_PER_BLOCK)
		return count;
	rows[count] = gstore_tid_to_row(tid);
	return count + 1;
}

static int
compare_rows(const void *a, const void *b)
{
	const uint64 left = *(const uint64 *) a, right = *(const uint64 *) b;

	return (left > right) - (left < right);
}

/* Appends the rows that one condition names, sorted; returns how many. */
static uint64
name_rows(gstore_tids *tids, uint64 used, const tid_value *v, ExprContext *context)
{
	bool   null, *nulls = NULL;
	Datum  value = ExecEvalExprSwitchContext(v->state, context, &null), *values = &value;
	int	   value_count = 1;
	uint64 count = 0;

	if (null)
		return 0;
	if (v->is_array)
		deconstruct_array(DatumGetArrayTypeP(value), TIDOID, sizeof(ItemPointerData), false,
						  TYPALIGN_SHORT, &values, &nulls, &value_count);
	if (used + (uint64) value_count > tids->capacity)
	{
		const uint64 capacity = 2 * (used + (uint64) value_count);

		tids->rows = tids->rows == NULL
			? MemoryContextAllocHuge(tids->context, sizeof *tids->rows * capacity)
			: repalloc_huge(tids->rows, sizeof *tids->rows * capacity);
		tids->capacity = capacity;
	}
	for (int i = 0; i < value_count; i++)
		if (nulls == NULL || !nulls[i])
			count = add_tid_row(tids->rows + used, count, values[i]);
	if (count > 1)
	{
		qsort(tids->rows + used, count, sizeof *tids->rows, compare_rows);
		count = qunique(tids->rows + used, count, sizeof *tids->rows, compare_rows);
	}
	return count;
}

/* Of the first rows, those that are among the others, too. */
static uint64
intersect_rows(uint64 *rows, uint64 count, const uint64 *others, uint64 other_count)
{
	uint64 kept = 0, at = 0;

	for (uint64 i = 0; i < count; i++)
	{
		while (at < other_count && others[at] < rows[i])
			at++;
		if (at < other_count && others[at] == rows[i])
			rows[kept++] = rows[i];
	}
	return kept;
}

uint64
gstore_tids_evaluate(gstore_tids *tids, ExprContext *context, const uint64 **rows)
{
	MemoryContext old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
	uint64		  count = name_rows(tids, 0, &tids->values[0], context);

	for (int i = 1; i < tids->count && count > 0; i++)
	{
		const uint64 more = name_rows(tids, count, &tids->values[i], context);

		count = intersect_rows(tids->rows, count, tids->rows + count, more);
	}
	MemoryContextSwitchTo(old);
	*rows = tids->rows;
	return count;
}
