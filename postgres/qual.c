/*
 * Conditions on batches; see qual.h.
 *
 * Every value that can be compared has a 64-bit integer key in the order that PostgreSQL sorts its type
 * in, so that each comparison is a range of keys, or all but a range. Decimals are keys of 128 bits themselves, with NaN
 * above all.
 */
#include "postgres.h"

#include <math.h>

#include "access/stratnum.h"
#include "access/transam.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "postgres/decimal.h"
#include "postgres/qual.h"

typedef enum test
{
	TEST_RANGE,
	TEST_NULL,
	TEST_NOT_NULL,
} test;

typedef struct condition
{
	int		   index; /* of the column */
	test	   test;
	int		   strategy; /* of a btree, or ROWCOMPARE_NE */
	Oid		   type;	 /* of the column */
	Oid		   value_type;
	Expr	  *value; /* NULL: boolean, true */
	ExprState *evaluate;
	bool	   evaluated; /* what follows is known */
	bool	   nothing;	  /* passes: the value is NULL, or beyond all */
	bool	   except;	  /* passes what is not in the range */
	int64	   low, high;
	/* Of numeric: */
	int				scale; /* of the column, as it is defined */
	gstore_decimal	decimal_low, decimal_high;
	struct varlena *number; /* the value */
} condition;

struct gstore_quals
{
	int		  count;
	condition conditions[FLEXIBLE_ARRAY_MEMBER];
};

/* ---- what is simple */

int
gstore_type_family(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return 1;
		case FLOAT4OID:
		case FLOAT8OID:
			return 2;
		case DATEOID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case OIDOID:
		case CHAROID:
		case BOOLOID:
		case NUMERICOID:
			return (int) type;
		default:
			return 0;
	}
}

static const Var *
as_column(const Node *node, Index relation)
{
	const Var *var = (const Var *) node;

	return node != NULL && IsA(node, Var) && (Index) var->varno == relation &&
			var->varlevelsup == 0 && var->varattno > 0
		? var
		: NULL;
}

static bool has_outer_value(Node *node, void *argument);

/* Its conditions have its own value. */
static bool
has_outer_value_of_case(CaseExpr *node, void *argument)
{
	ListCell *cell;

	foreach(cell, node->args)
		if (has_outer_value((Node *) lfirst_node(CaseWhen, cell)->result, argument))
			return true;
	return has_outer_value((Node *) node->arg, argument) ||
		has_outer_value((Node *) node->defresult, argument);
}

/* What a CASE that is around the node compares with, or a cast of an array that is around it has of an element: of a row, maybe. */
static bool
has_outer_value(Node *node, void *argument)
{
	if (node == NULL)
		return false;
	if (IsA(node, CaseTestExpr))
		return true;
	if (IsA(node, CaseExpr) && ((CaseExpr *) node)->arg != NULL)
		return has_outer_value_of_case((CaseExpr *) node, argument);
	if (IsA(node, ArrayCoerceExpr))
		return has_outer_value((Node *) ((ArrayCoerceExpr *) node)->arg, argument);
	return expression_tree_walker(node, has_outer_value, argument);
}

bool
gstore_is_row_independent(Node *node)
{
	return !contain_var_clause(node) && !contain_agg_clause(node) &&
		!contain_volatile_functions(node) && !contain_subplans(node) && !has_outer_value(node, NULL);
}

static bool
is_now(const Node *node)
{
	if (IsA(node, FuncExpr))
		return ((const FuncExpr *) node)->funcid == F_NOW ||
			((const FuncExpr *) node)->funcid == F_TRANSACTION_TIMESTAMP ||
			((const FuncExpr *) node)->funcid == F_STATEMENT_TIMESTAMP;
	return IsA(node, SQLValueFunction) &&
		((const SQLValueFunction *) node)->op <= SVFOP_LOCALTIMESTAMP_N;
}

static bool
is_within(int64 value, int64 most)
{
	return value >= -most && value <= most;
}

/* A distance with which no date or time of now is out of range. */
static bool
is_short(const Const *shift)
{
	const int		days = 1000 * 366;
	const Interval *span;

	if (shift->constisnull)
		return true;
	if (shift->consttype == INT4OID)
		return is_within(DatumGetInt32(shift->constvalue), days);
	span = DatumGetIntervalP(shift->constvalue);
	return is_within(span->month, 1000 * 12) && is_within(span->day, days) &&
		is_within(span->time, days * USECS_PER_DAY);
}

/* now() - interval '1 day' and so on. */
static bool
is_near_now(const OpExpr *o)
{
	switch (get_opcode(o->opno))
	{
		case F_TIMESTAMPTZ_PL_INTERVAL:
		case F_TIMESTAMPTZ_MI_INTERVAL:
		case F_TIMESTAMP_PL_INTERVAL:
		case F_TIMESTAMP_MI_INTERVAL:
		case F_DATE_PL_INTERVAL:
		case F_DATE_MI_INTERVAL:
		case F_DATE_PLI:
		case F_DATE_MII:
			return is_now(linitial(o->args)) && IsA(lsecond(o->args), Const) &&
				is_short(lsecond_node(Const, o->args));
		default:
			return false;
	}
}

bool
gstore_is_plain(const Node *node, const Bitmapset *unset)
{
	ListCell *cell;

	switch (nodeTag(node))
	{
		case T_Const:
			return true;
		case T_Param:
			return ((const Param *) node)->paramkind != PARAM_EXEC ||
				!bms_is_member(((const Param *) node)->paramid, unset);
		case T_RelabelType:
			return gstore_is_plain((const Node *) ((const RelabelType *) node)->arg, unset);
		case T_ArrayExpr:
			foreach(cell, ((const ArrayExpr *) node)->elements)
				if (!gstore_is_plain(lfirst(cell), unset))
					return false;
			return true;
		case T_OpExpr:
			return is_near_now((const OpExpr *) node);
		default:
			return is_now(node);
	}
}

const Bitmapset *
gstore_unset_planned(const PlannerInfo *root)
{
	Bitmapset *out = NULL;
	ListCell  *plan, *parameter;

	for (; root != NULL; root = root->parent_root)
		foreach(plan, root->init_plans)
			foreach(parameter, lfirst_node(SubPlan, plan)->setParam)
				out = bms_add_member(out, lfirst_int(parameter));
	return out;
}

const Bitmapset *
gstore_unset_now(const ExprContext *context)
{
	const PlannedStmt *statement = context->ecxt_estate->es_plannedstmt; /* NULL: of no statement */
	const int		   count = statement != NULL ? list_length(statement->paramExecTypes) : 0;
	Bitmapset		  *out = NULL;

	for (int i = 0; i < count; i++)
		if (context->ecxt_param_exec_vals[i].execPlan != NULL)
			out = bms_add_member(out, i);
	return out;
}

int
gstore_operator_strategy(Oid operator)
{
	List *all = get_op_btree_interpretation(operator);
	int	  strategy;

	if (all == NIL)
		return InvalidStrategy;
	strategy = ((OpBtreeInterpretation *) linitial(all))->strategy;
	list_free_deep(all);
	return strategy;
}

static int
commuted_strategy(int strategy)
{
	switch (strategy)
	{
		case BTLessStrategyNumber:
			return BTGreaterStrategyNumber;
		case BTLessEqualStrategyNumber:
			return BTGreaterEqualStrategyNumber;
		case BTGreaterStrategyNumber:
			return BTLessStrategyNumber;
		case BTGreaterEqualStrategyNumber:
			return BTLessEqualStrategyNumber;
		default:
			return strategy;
	}
}

static bool
take_comparison(OpExpr *op, Index relation, condition *out)
{
	Node	  *left, *right;
	const Var *column;
	Oid		   types[2];
	bool	   swapped = false;
	int		   precision;

	if (list_length(op->args) != 2 || op->opno >= FirstNormalObjectId)
		return false;
	left = linitial(op->args);
	right = lsecond(op->args);
	op_input_types(op->opno, &types[0], &types[1]);
	column = as_column(left, relation);
	if (column == NULL)
	{
		column = as_column(right, relation);
		right = left;
		swapped = true;
	}
	if (column == NULL || column->vartype != types[swapped] || gstore_type_family(types[0]) == 0 ||
		gstore_type_family(types[0]) != gstore_type_family(types[1]) ||
		!gstore_is_row_independent(right))
		return false;
	if (column->vartype == NUMERICOID &&
		!gstore_form_decimal(column->vartypmod, &precision, &out->scale))
		return false;
	out->strategy = gstore_operator_strategy(op->opno);
	if (out->strategy == InvalidStrategy)
		return false;
	if (swapped)
		out->strategy = commuted_strategy(out->strategy);
	out->index = column->varattno - 1;
	out->test = TEST_RANGE;
	out->type = column->vartype;
	out->value_type = types[!swapped];
	out->value = (Expr *) right;
	return true;
}

static bool
take_boolean(const Var *column, bool wanted, condition *out)
{
	if (column == NULL || column->vartype != BOOLOID)
		return false;
	out->index = column->varattno - 1;
	out->test = TEST_RANGE;
	out->type = out->value_type = BOOLOID;
	out->strategy = wanted ? BTEqualStrategyNumber : ROWCOMPARE_NE;
	out->value = NULL;
	return true;
}

static bool
take_null_test(const NullTest *test, Index relation, condition *out)
{
	const Var *column = as_column((const Node *) test->arg, relation);

	if (column == NULL || test->argisrow)
		return false;
	out->index = column->varattno - 1;
	out->test = test->nulltesttype == IS_NULL ? TEST_NULL : TEST_NOT_NULL;
	return true;
}

static bool
as_condition(Expr *clause, Index relation, condition *out)
{
	memset(out, 0, sizeof *out);
	switch (nodeTag(clause))
	{
		case T_OpExpr:
			return take_comparison((OpExpr *) clause, relation, out);
		case T_NullTest:
			return take_null_test((const NullTest *) clause, relation, out);
		case T_Var:
			return take_boolean(as_column((const Node *) clause, relation), true, out);
		case T_BoolExpr:
			return is_notclause(clause) &&
				take_boolean(as_column((const Node *) get_notclausearg(clause), relation), false, out);
		default:
			return false;
	}
}

bool
gstore_qual_is_simple(Expr *clause, Index relation)
{
	condition ignored;

	return as_condition(clause, relation, &ignored);
}

bool
gstore_qual_is_movable(Expr *clause, Index relation, const Bitmapset *unset)
{
	condition c;

	return as_condition(clause, relation, &c) &&
		(c.value == NULL || gstore_is_plain((Node *) c.value, unset));
}

gstore_quals *
gstore_quals_create(List *clauses, Index relation, PlanState *parent)
{
	gstore_quals *quals = palloc0(offsetof(gstore_quals, conditions) +
								  sizeof(condition) * (Size) list_length(clauses));
	ListCell	 *cell;

	foreach(cell, clauses)
	{
		condition *c = &quals->conditions[quals->count++];

		if (!as_condition(lfirst(cell), relation, c))
			elog(ERROR, "a condition has changed since planning");
		if (c->value != NULL)
			c->evaluate = ExecInitExpr(c->value, parent);
	}
	return quals;
}

/* ---- values to keys */

/* As float8_cmp_internal orders: NaN is equal to itself and above all, -0 equals 0. */
static inline int64
float_key(double value)
{
	int64 bits;

	if (unlikely(isnan(value)))
		return PG_INT64_MAX;
	memcpy(&bits, &value, sizeof bits);
	return bits >= 0 ? bits : -(bits & PG_INT64_MAX);
}

static int64
key_of(Datum value, Oid type)
{
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
		case DATEOID:
			return DatumGetInt32(value);
		case FLOAT4OID:
			return float_key((double) DatumGetFloat4(value));
		case FLOAT8OID:
			return float_key(DatumGetFloat8(value));
		case OIDOID:
			return DatumGetObjectId(value);
		case CHAROID:
			return DatumGetUInt8(value);
		case BOOLOID:
			return DatumGetBool(value);
		default:
			return DatumGetInt64(value);
	}
}

static void
set_range(condition *c, int64 key)
{
	c->low = PG_INT64_MIN;
	c->high = PG_INT64_MAX;
	c->except = c->strategy == ROWCOMPARE_NE;
	switch (c->strategy)
	{
		case BTLessStrategyNumber:
			c->nothing = key == PG_INT64_MIN;
			c->high = c->nothing ? key : key - 1;
			break;
		case BTLessEqualStrategyNumber:
			c->high = key;
			break;
		case BTGreaterEqualStrategyNumber:
			c->low = key;
			break;
		case BTGreaterStrategyNumber:
			c->nothing = key == PG_INT64_MAX;
			c->low = c->nothing ? key : key + 1;
			break;
		default:
			c->low = c->high = key;
	}
}

#define KEY_OF_NAN ((gstore_decimal) ~((unsigned __int128) 1 << 127))

static inline gstore_decimal
decimal_key(gstore_decimal decimal)
{
	return decimal == GSTORE_DECIMAL_NAN ? KEY_OF_NAN : decimal;
}

/* What is compared with may lie between two decimals. */
static void
set_decimal_range(condition *c)
{
	gstore_decimal key;
	const bool	   exact = gstore_decimal_floor(c->number, c->scale, &key);

	key = decimal_key(key);
	c->decimal_low = -KEY_OF_NAN - 1;
	c->decimal_high = KEY_OF_NAN;
	c->except = c->strategy == ROWCOMPARE_NE;
	switch (c->strategy)
	{
		case BTLessStrategyNumber:
			c->decimal_high = key - exact;
			break;
		case BTLessEqualStrategyNumber:
			c->decimal_high = key;
			break;
		case BTGreaterEqualStrategyNumber:
			c->decimal_low = key + !exact;
			break;
		case BTGreaterStrategyNumber:
			c->nothing = key == KEY_OF_NAN;
			c->decimal_low = c->nothing ? key : key + 1;
			break;
		default:
			c->decimal_low = key + !exact; /* an empty range, if there is no such decimal */
			c->decimal_high = key;
	}
}

static void
set_number(condition *c, Datum value, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);

	if (c->number != NULL)
		pfree(c->number);
	c->number = PG_DETOAST_DATUM_COPY(value);
	MemoryContextSwitchTo(old);
	set_decimal_range(c);
}

static void
evaluate_condition(condition *c, ExprContext *context, MemoryContext lasting)
{
	bool  null = false;
	Datum value = BoolGetDatum(true);

	c->evaluated = true;
	if (c->test != TEST_RANGE)
		return;
	if (c->evaluate != NULL)
		value = ExecEvalExprSwitchContext(c->evaluate, context, &null);
	c->nothing = null;
	if (null)
		return;
	if (c->type == NUMERICOID)
		set_number(c, value, lasting);
	else
		set_range(c, key_of(value, c->value_type));
}

void
gstore_quals_reset(gstore_quals *quals)
{
	for (int i = 0; i < quals->count; i++)
		quals->conditions[i].evaluated = false;
}

/* ---- selecting */

/* Without a branch: how many pass cannot be predicted. */
#define KEEP_IF(test)                  \
	for (uint32 i = 0; i < count; i++) \
	{                                  \
		const uint32 row = rows[i];    \
                                       \
		rows[kept] = row;              \
		kept += (test) ? 1u : 0u;      \
	}

static uint32
keep_by_null(const gstore_batch *batch, const gstore_view *view, int index, bool null, uint32 *rows,
			 uint32 count)
{
	const gstore_batch_column *c = &batch->columns[index];
	uint32					   kept = 0;

	if (index >= view->column_count || view->columns[index].dropped)
		return null ? count : 0;
	if (gstore_is_variable(&view->columns[index]) && c->values != NULL)
	{
		const uint64 *offsets = (const uint64 *) c->values;

		KEEP_IF((offsets[row] == 0) == null)
	}
	else if (c->nulls != NULL)
	{
		const uint64 skip = batch->first - batch->nulls_from;

		KEEP_IF((c->nulls[(row + skip) / 8] >> ((row + skip) % 8) & 1) != (int) null)
	}
	else
		return null ? 0 : count;
	return kept;
}

#define KEEP_IN_RANGE(type, key)                                                    \
	{                                                                               \
		const type *values = (const type *) batch->columns[c->index].values;        \
                                                                                    \
		KEEP_IF(((key(values[row]) >= low) & (key(values[row]) <= high)) != except) \
		break;                                                                      \
	}

#define SAME_KEY(value) ((int64) (value))

static uint32
keep_in_range(const condition *c, const gstore_batch *batch, uint32 *rows, uint32 count)
{
	const int64 low = c->low, high = c->high;
	const int	except = c->except;
	uint32		kept = 0;

	switch (c->type)
	{
		case BOOLOID:
		case CHAROID:
			KEEP_IN_RANGE(uint8, SAME_KEY)
		case INT2OID:
			KEEP_IN_RANGE(int16, SAME_KEY)
		case INT4OID:
		case DATEOID:
			KEEP_IN_RANGE(int32, SAME_KEY)
		case OIDOID:
			KEEP_IN_RANGE(uint32, SAME_KEY)
		case FLOAT4OID:
			KEEP_IN_RANGE(float, float_key)
		case FLOAT8OID:
			KEEP_IN_RANGE(double, float_key)
		default:
			KEEP_IN_RANGE(int64, SAME_KEY)
	}
	return kept;
}

/* Of a store whose form is another one than the table's: an older snapshot reads it. */
static bool
passes_number(const condition *c, const gstore_column *column, const gstore_batch *batch, uint32 row)
{
	union
	{
		uint8		   bytes[GSTORE_NUMERIC_BYTES];
		struct varlena head;
		uint64		   alignment;
	} numeric;
	Datum value;
	int	  compared;

	if (column->form == GSTORE_FORM_DECIMAL)
	{
		gstore_decimal_to_numeric(gstore_decimal_load(batch->columns[c->index].uniform +
													  (uint64) row * GSTORE_DECIMAL_BYTES),
								  column->scale, &numeric.head);
		value = PointerGetDatum(&numeric.head);
	}
	else
		value = gstore_value(batch, column, c->index, batch->first + row);
	compared = DatumGetInt32(DirectFunctionCall2(numeric_cmp, value, PointerGetDatum(c->number)));
	switch (c->strategy)
	{
		case BTLessStrategyNumber:
			return compared < 0;
		case BTLessEqualStrategyNumber:
			return compared <= 0;
		case BTGreaterEqualStrategyNumber:
			return compared >= 0;
		case BTGreaterStrategyNumber:
			return compared > 0;
		case ROWCOMPARE_NE:
			return compared != 0;
		default:
			return compared == 0;
	}
}

static uint32
keep_numbers(const condition *c, const gstore_column *column, const gstore_batch *batch,
			 uint32 *rows, uint32 count)
{
	const uint8			*values = batch->columns[c->index].uniform;
	const gstore_decimal low = c->decimal_low, high = c->decimal_high;
	const bool			 except = c->except;
	uint32				 kept = 0;

	if (column->form == GSTORE_FORM_DECIMAL && column->scale == c->scale)
		for (uint32 i = 0; i < count; i++)
		{
			const uint32		 row = rows[i];
			const gstore_decimal key = decimal_key(
				gstore_decimal_load(values + (uint64) row * GSTORE_DECIMAL_BYTES));

			rows[kept] = row;
			kept += ((key >= low) & (key <= high)) != except ? 1u : 0u;
		}
	else
		KEEP_IF(passes_number(c, column, batch, row))
	return kept;
}

uint32
gstore_quals_select(gstore_quals *quals, ExprContext *context, const gstore_batch *batch,
					const gstore_view *view, uint32 *rows, uint32 count)
{
	for (int i = 0; i < quals->count && count > 0; i++)
	{
		condition *c = &quals->conditions[i];

		if (!c->evaluated)
			evaluate_condition(c, context, GetMemoryChunkContext(quals));
		if (c->nothing)
			return 0;
		count = keep_by_null(batch, view, c->index, c->test == TEST_NULL, rows, count);
		if (c->test != TEST_RANGE || count == 0)
			continue;
		count = c->type == NUMERICOID ? keep_numbers(c, &view->columns[c->index], batch, rows, count)
									  : keep_in_range(c, batch, rows, count);
	}
	return count;
}
