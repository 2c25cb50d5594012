/*
 * See query_expr.h.
 *
 * PostgreSQL evaluates an arm of AND, OR, CASE and COALESCE only where it must. An arm that can raise an error is therefore put
 * between GQUERY_IF and GQUERY_END; others are evaluated for all rows, which costs less.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "access/transam.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "postgres/arrow.h"
#include "postgres/qual.h"
#include "postgres/query_expr.h"
#include "postgres/query_join.h"

/* What a CASE compares with is evaluated anew for each WHEN. */
typedef struct gstore_case
{
	Node			   *value;
	struct gstore_case *outer;
} gstore_case;

/* An expression that depends on no row, and its state while the query is executed. */
typedef struct known_value
{
	Expr	  *expression;
	ExprState *state;
} known_value;

/* ---- words of the stack */

bool
gstore_is_compiled_type(Oid type)
{
	return gstore_type_family(type) != 0 && type != NUMERICOID;
}

int64
gstore_stack_word(Datum value, Oid type)
{
	double number;
	int64  word;

	switch (type)
	{
		case BOOLOID:
			return DatumGetBool(value);
		case CHAROID:
			return DatumGetUInt8(value);
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
		case DATEOID:
			return DatumGetInt32(value);
		case OIDOID:
			return DatumGetObjectId(value);
		case FLOAT4OID:
			number = DatumGetFloat4(value);
			memcpy(&word, &number, sizeof word);
			return word;
		default: /* float8 is passed by value: its bits */
			return DatumGetInt64(value);
	}
}

Datum
gstore_stack_value(int64 word, Oid type)
{
	double number;

	switch (type)
	{
		case BOOLOID:
			return BoolGetDatum(word != 0);
		case CHAROID:
			return CharGetDatum((char) word);
		case INT2OID:
			return Int16GetDatum((int16) word);
		case INT4OID:
		case DATEOID:
			return Int32GetDatum((int32) word);
		case OIDOID:
			return ObjectIdGetDatum((Oid) word);
		case FLOAT4OID:
			memcpy(&number, &word, sizeof number);
			return Float4GetDatum((float4) number);
		default:
			return Int64GetDatum(word);
	}
}

#define NAN_KEY INT64CONST(0x7ff8000000000000)
#define INF_KEY INT64CONST(0x7ff0000000000000)

int64
gstore_order_key(int64 word)
{
	if ((word & PG_INT64_MAX) > INF_KEY)
		return NAN_KEY;
	if (word == PG_INT64_MIN)
		return 0;
	return word >= 0 ? word : word ^ PG_INT64_MAX;
}

int64
gstore_order_value(int64 key)
{
	return key >= 0 ? key : key ^ PG_INT64_MAX;
}

/* ---- emitting */

static bool
emit_instruction(gstore_emitter *e, gquery_instruction instruction)
{
	if (e->program->code_count == GQUERY_CODE_MAX)
		return false;
	e->program->code[e->program->code_count++] = instruction;
	return true;
}

bool
gstore_emit(gstore_emitter *e, gquery_op op, uint32 a, uint32 b)
{
	return emit_instruction(e, (gquery_instruction){.op = (uint16) op, .a = a, .b = (uint16) b});
}

static bool
emit_constant(gstore_emitter *e, int64 word)
{
	return emit_instruction(e, (gquery_instruction){.op = GQUERY_CONSTANT, .value = (uint64) word});
}

/*
 * Puts what was emitted from `at` on, which leaves one value, between GQUERY_IF and GQUERY_END: for rows where the value below,
 * by `test`, is not decided. The operation of both is within.
 */
static bool
guard(gstore_emitter *e, uint32 at, gquery_op test, gquery_op operation)
{
	const gquery_instruction before[] = {
		{.op = GQUERY_COPY}, {.op = (uint16) test}, {.op = GQUERY_NOT}, {.op = GQUERY_IF}};
	gquery_program *p = e->program;

	if (p->code_count + lengthof(before) > GQUERY_CODE_MAX)
		return false;
	memmove(&p->code[at + lengthof(before)], &p->code[at], sizeof p->code[0] * (p->code_count - at));
	memcpy(&p->code[at], before, sizeof before);
	p->code_count += lengthof(before);
	return gstore_emit(e, operation, 0, 0) && gstore_emit(e, GQUERY_END, 0, 0);
}

/* ---- values that depend on no row */

static known_value *
find_value(gstore_emitter *e, Expr *expression)
{
	ListCell *cell;

	foreach(cell, e->values)
		if (((known_value *) lfirst(cell))->expression == expression)
			return lfirst(cell);
	return NULL;
}

/* An error that is raised is one that PostgreSQL raises as well. */
static bool
may_evaluate(const gstore_emitter *e, Node *node)
{
	return e->evaluates_all || gstore_is_plain(node, e->unset) ||
		(e->guarded == 0 && (e->certain || gstore_is_estimated(e->condition, node)));
}

bool
gstore_evaluate(gstore_emitter *e, Expr *expression, Datum *value, bool *null, bool *raises)
{
	known_value *v;

	*raises = false;
	if (IsA(expression, Const))
	{
		*value = ((Const *) expression)->constvalue;
		*null = ((Const *) expression)->constisnull;
		return true;
	}
	v = find_value(e, expression);
	if (e->parent != NULL && v == NULL)
	{
		v = palloc0(sizeof *v);
		v->expression = expression;
		v->state = ExecInitExpr(expression, e->parent);
		e->values = lappend(e->values, v);
	}
	*raises = !may_evaluate(e, (Node *) expression);
	if (e->context == NULL || *raises)
		return false;
	if (v == NULL)
		elog(ERROR, "a value of a query was not prepared");
	*value = ExecEvalExprSwitchContext(v->state, e->context, null);
	return true;
}

static bool
emit_known(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	Datum value;
	bool  null;

	out->type = getBaseType(exprType(node));
	if (!gstore_is_compiled_type(out->type) || !gstore_is_row_independent(node))
		return false;
	if (e->context != NULL && !IsA(node, Const) && find_value(e, (Expr *) node) == NULL)
		return false; /* it had instructions, for which there is no room now */
	out->nullable = true;
	if (!gstore_evaluate(e, (Expr *) node, &value, &null, &out->raises))
		return gstore_emit(e, GQUERY_UNKNOWN, 0, 0);
	out->nullable = null;
	return null ? gstore_emit(e, GQUERY_NULL, 0, 0)
				: emit_constant(e, gstore_stack_word(value, out->type));
}

/* ---- columns */

static gquery_form
form_of(Oid type, bool arrow)
{
	switch (type)
	{
		case BOOLOID:
			return arrow ? GQUERY_BIT : GQUERY_U8;
		case CHAROID:
			return GQUERY_U8;
		case INT2OID:
			return GQUERY_I16;
		case INT4OID:
		case DATEOID:
			return GQUERY_I32;
		case OIDOID:
			return GQUERY_U32;
		case FLOAT4OID:
			return GQUERY_F32;
		case FLOAT8OID:
			return GQUERY_F64;
		default:
			return GQUERY_I64;
	}
}

static int64
bias_of(Oid type)
{
	if (type == DATEOID)
		return -GSTORE_DAYS_1970_TO_2000;
	return type == TIMESTAMPOID || type == TIMESTAMPTZOID ? -GSTORE_US_1970_TO_2000 : 0;
}

/* The table's number in the program; outer: its rows may be missing. False: it is none of the query's. */
static bool
find_table(const gstore_emitter *e, const Var *var, uint32 *table, bool *outer)
{
	const ListCell *cell;

	*table = 0;
	*outer = false;
	if ((Index) var->varno == e->relation)
		return true;
	foreach(cell, e->joins)
	{
		const gstore_query_join *join = lfirst(cell);

		++*table;
		*outer = join->kind == GQUERY_JOIN_LEFT;
		if ((Index) var->varno == join->relation)
			return true;
	}
	return false;
}

/* The column's place in the program. False: there is no room, or an older version of the table has another type. */
static bool
find_column(gstore_emitter *e, const Var *var, Oid type, uint32 *at, bool *nullable)
{
	gquery_program		*p = e->program;
	const gstore_view	*view;
	const gstore_column *stored = NULL;
	uint32				 table;
	bool				 outer, arrow;

	if (!find_table(e, var, &table, &outer))
		return false;
	view = e->view == NULL ? NULL : &e->view[table];
	arrow = view != NULL && view->arrow;
	if (view != NULL && var->varattno <= view->column_count && !view->columns[var->varattno - 1].dropped)
		stored = &view->columns[var->varattno - 1];
	if (stored != NULL && getBaseType(stored->type) != type)
		return false;
	*nullable = stored == NULL || stored->has_nulls || outer;
	for (*at = 0; *at < p->column_count; (*at)++)
		if (p->columns[*at].table == table && p->columns[*at].number == (uint32) var->varattno)
			return true;
	if (*at == GQUERY_COLUMNS_MAX)
		return false;
	p->columns[p->column_count++] = (gquery_column){.table = table,
													.number = (uint32) var->varattno,
													.type = type,
													.form = form_of(type, arrow),
													.bias = arrow ? bias_of(type) : 0};
	if (table == 0)
		e->columns = bms_add_member(e->columns, var->varattno);
	return true;
}

static bool
is_column(const gstore_emitter *e, const Node *node)
{
	const Var *var = (const Var *) node;
	uint32	   table;
	bool	   outer;

	return IsA(node, Var) && var->varlevelsup == 0 && var->varattno > 0 &&
		find_table(e, var, &table, &outer);
}

static bool
emit_column(gstore_emitter *e, const Var *var, gstore_emitted *out)
{
	uint32 at;

	out->type = getBaseType(var->vartype);
	out->raises = false;
	return is_column(e, (const Node *) var) && gstore_is_compiled_type(out->type) &&
		find_column(e, var, out->type, &at, &out->nullable) && gstore_emit(e, GQUERY_LOAD, at, 0);
}

/* ---- operators and functions */

/* Two values of one family of types. */
static bool
emit_pair(gstore_emitter *e, Node *left, Node *right, gstore_emitted *out)
{
	gstore_emitted other;

	if (!gstore_emit_expression(e, left, out) || !gstore_emit_expression(e, right, &other) ||
		gstore_type_family(out->type) != gstore_type_family(other.type))
		return false;
	out->nullable |= other.nullable;
	out->raises |= other.raises;
	return true;
}

static gquery_order
order_of(Oid type)
{
	return gstore_is_float(type) ? GQUERY_ORDER_F64 : GQUERY_ORDER_I64;
}

static bool
find_comparison(Oid operator, gquery_op * op)
{
	if (operator>= FirstNormalObjectId)
		return false;
	switch (gstore_operator_strategy(operator))
	{
		case BTLessStrategyNumber:
			*op = GQUERY_LT;
			return true;
		case BTLessEqualStrategyNumber:
			*op = GQUERY_LE;
			return true;
		case BTEqualStrategyNumber:
			*op = GQUERY_EQ;
			return true;
		case BTGreaterEqualStrategyNumber:
			*op = GQUERY_GE;
			return true;
		case BTGreaterStrategyNumber:
			*op = GQUERY_GT;
			return true;
		case ROWCOMPARE_NE:
			*op = GQUERY_NE;
			return true;
		default:
			return false;
	}
}

/* op: GQUERY_EQ to GQUERY_DISTINCT, of an operator that compares. */
static bool
emit_comparison(gstore_emitter *e, List *args, gquery_op op, gstore_emitted *out)
{
	if (list_length(args) != 2 || !emit_pair(e, linitial(args), lsecond(args), out) ||
		!gstore_emit(e, op, 0, order_of(out->type)))
		return false;
	out->nullable = out->nullable && op != GQUERY_DISTINCT;
	out->type = BOOLOID;
	return true;
}

/* Functions of numbers. op 0: the value is the same on the stack. */
typedef struct number_function
{
	Oid	   function;
	uint16 op, b;
} number_function;

/* clang-format off */
#define ARITHMETIC(name, kind) \
	{F_##name##PL, GQUERY_ADD, kind}, {F_##name##MI, GQUERY_SUBTRACT, kind}, \
	{F_##name##MUL, GQUERY_MULTIPLY, kind}, {F_##name##DIV, GQUERY_DIVIDE, kind}
#define SIGNS(name, kind) \
	{F_##name##UP, 0, 0}, {F_##name##UM, GQUERY_NEGATE, kind}, {F_##name##ABS, GQUERY_ABS, kind}, \
	{F_ABS_##name, GQUERY_ABS, kind}
#define REMAINDERS(name, kind) \
	{F_##name##MOD, GQUERY_MODULO, kind}, {F_MOD_##name##_##name, GQUERY_MODULO, kind}

static const number_function number_functions[] = {
	ARITHMETIC(INT2, GQUERY_ARITHMETIC_I16), SIGNS(INT2, GQUERY_ARITHMETIC_I16), REMAINDERS(INT2, GQUERY_ARITHMETIC_I16),
	ARITHMETIC(INT4, GQUERY_ARITHMETIC_I32), SIGNS(INT4, GQUERY_ARITHMETIC_I32), REMAINDERS(INT4, GQUERY_ARITHMETIC_I32),
	ARITHMETIC(INT24, GQUERY_ARITHMETIC_I32), ARITHMETIC(INT42, GQUERY_ARITHMETIC_I32),
	ARITHMETIC(INT8, GQUERY_ARITHMETIC_I64), SIGNS(INT8, GQUERY_ARITHMETIC_I64), REMAINDERS(INT8, GQUERY_ARITHMETIC_I64),
	ARITHMETIC(INT28, GQUERY_ARITHMETIC_I64), ARITHMETIC(INT82, GQUERY_ARITHMETIC_I64),
	ARITHMETIC(INT48, GQUERY_ARITHMETIC_I64), ARITHMETIC(INT84, GQUERY_ARITHMETIC_I64),
	ARITHMETIC(FLOAT4, GQUERY_ARITHMETIC_F32), SIGNS(FLOAT4, GQUERY_ARITHMETIC_F32),
	ARITHMETIC(FLOAT8, GQUERY_ARITHMETIC_F64), SIGNS(FLOAT8, GQUERY_ARITHMETIC_F64),
	ARITHMETIC(FLOAT48, GQUERY_ARITHMETIC_F64), ARITHMETIC(FLOAT84, GQUERY_ARITHMETIC_F64),
	/* casts, named RESULT_ARGUMENT */
	{F_INT4_INT2, 0, 0}, {F_INT8_INT2, 0, 0}, {F_INT8_INT4, 0, 0}, {F_INT8_OID, 0, 0}, {F_INT4_BOOL, 0, 0},
	{F_INT2_INT4, GQUERY_TO_I16, 0}, {F_INT2_INT8, GQUERY_TO_I16, 0}, {F_INT4_INT8, GQUERY_TO_I32, 0},
	{F_FLOAT8_FLOAT4, 0, 0}, {F_FLOAT4_FLOAT8, GQUERY_F64_TO_F32, 0},
	{F_FLOAT8_INT2, GQUERY_I64_TO_F64, 0}, {F_FLOAT8_INT4, GQUERY_I64_TO_F64, 0}, {F_FLOAT8_INT8, GQUERY_I64_TO_F64, 0},
	{F_FLOAT4_INT2, GQUERY_I64_TO_F32, 0}, {F_FLOAT4_INT4, GQUERY_I64_TO_F32, 0}, {F_FLOAT4_INT8, GQUERY_I64_TO_F32, 0},
	{F_INT2_FLOAT4, GQUERY_F64_TO_I16, 0}, {F_INT2_FLOAT8, GQUERY_F64_TO_I16, 0},
	{F_INT4_FLOAT4, GQUERY_F64_TO_I32, 0}, {F_INT4_FLOAT8, GQUERY_F64_TO_I32, 0},
	{F_INT8_FLOAT4, GQUERY_F64_TO_I64, 0}, {F_INT8_FLOAT8, GQUERY_F64_TO_I64, 0},
};
/* clang-format on */

static const number_function *
find_function(Oid function)
{
	for (Size i = 0; i < lengthof(number_functions); i++)
		if (number_functions[i].function == function)
			return &number_functions[i];
	return NULL;
}

/* Of integers by a constant other than 0 and -1. */
static bool
divides_safely(const number_function *f, List *args)
{
	const Const *divisor = llast(args);
	int64		 word;

	if (f->b >= GQUERY_ARITHMETIC_F32 || !IsA(divisor, Const) || divisor->constisnull)
		return false;
	word = gstore_stack_word(divisor->constvalue, divisor->consttype);
	return word != 0 && word != -1;
}

static bool
can_raise(const number_function *f, List *args)
{
	switch (f->op)
	{
		case GQUERY_DIVIDE:
		case GQUERY_MODULO:
			return !divides_safely(f, args);
		case 0:
		case GQUERY_I64_TO_F64:
		case GQUERY_I64_TO_F32:
			return false;
		case GQUERY_NEGATE:
		case GQUERY_ABS:
			return f->b < GQUERY_ARITHMETIC_F32;
		default:
			return true;
	}
}

static bool
emit_function(gstore_emitter *e, Oid function, Oid result, List *args, gstore_emitted *out)
{
	const number_function *f = find_function(function);
	ListCell			  *cell;
	gstore_emitted		   all = {.type = getBaseType(result)};

	if (f == NULL)
		return false;
	foreach(cell, args)
	{
		gstore_emitted one;

		if (!gstore_emit_expression(e, lfirst(cell), &one))
			return false;
		all.nullable |= one.nullable;
		all.raises |= one.raises;
	}
	all.raises |= can_raise(f, args);
	*out = all;
	return f->op == 0 || gstore_emit(e, (gquery_op) f->op, 0, f->b);
}

static bool
emit_operator(gstore_emitter *e, OpExpr *o, gstore_emitted *out)
{
	gquery_op op;

	if (find_comparison(o->opno, &op))
		return emit_comparison(e, o->args, op, out);
	return emit_function(e, OidIsValid(o->opfuncid) ? o->opfuncid : get_opcode(o->opno),
						 o->opresulttype, o->args, out);
}

/* ---- lists */

static int
compare_words(const void *left, const void *right)
{
	const int64 l = *(const int64 *) left, r = *(const int64 *) right;

	return l < r ? -1 : l > r;
}

/* Appends the elements that are not NULL to the program's values, in order. False: there is no room. */
static bool
add_list(gstore_emitter *e, Datum array, Oid type, uint32 *count, bool *has_null, bool *empty)
{
	gquery_program *p = e->program;
	int64		   *to = p->values + p->value_count;
	int16			length;
	bool			by_value;
	char			align;
	Datum		   *elements;
	bool		   *nulls;
	int				n;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(DatumGetArrayTypeP(array), type, length, by_value, align, &elements, &nulls, &n);
	*count = 0;
	*has_null = false;
	*empty = n == 0;
	for (int i = 0; i < n; i++)
	{
		int64 word;

		*has_null |= nulls[i];
		if (nulls[i])
			continue;
		if (p->value_count + *count == GQUERY_VALUES_MAX)
			return false;
		word = gstore_stack_word(elements[i], type);
		to[(*count)++] = gstore_is_float(type) ? gstore_order_key(word) : word;
	}
	qsort(to, *count, sizeof *to, compare_words);
	return true;
}

/* In the place of x. */
static bool
emit_unknown_list(gstore_emitter *e, gstore_emitted *out)
{
	out->type = BOOLOID;
	out->nullable = true;
	return gstore_emit(e, GQUERY_UNKNOWN, 0, 0) && gstore_emit(e, GQUERY_REPLACE, 0, 0);
}

/* x = ANY(list), and x <> ALL(list), which is the contrary. Of an empty list neither is NULL, nor evaluates x. */
static bool
emit_list(gstore_emitter *e, ScalarArrayOpExpr *s, gstore_emitted *out)
{
	Node	 *list = lsecond(s->args);
	gquery_op op;
	Oid		  left, right;
	Datum	  array;
	bool	  null = false, has_null = true, empty = false, known, raises;
	uint32	  count = 0, first;

	if (!find_comparison(s->opno, &op) || op != (s->useOr ? GQUERY_EQ : GQUERY_NE) ||
		!gstore_is_row_independent(list))
		return false;
	op_input_types(s->opno, &left, &right);
	if (!gstore_is_compiled_type(right) || get_element_type(getBaseType(exprType(list))) != right)
		return false;
	if (!gstore_emit_expression(e, linitial(s->args), out) ||
		gstore_type_family(out->type) != gstore_type_family(right))
		return false;
	first = e->program->value_count; /* behind the lists within x */
	known = gstore_evaluate(e, (Expr *) list, &array, &null, &raises);
	out->raises |= raises;
	if (e->context != NULL && !known)
		return emit_unknown_list(e, out);
	if (known && !null && !add_list(e, array, right, &count, &has_null, &empty))
		return false;
	e->program->value_count += count;
	if (gstore_is_float(out->type) && !gstore_emit(e, GQUERY_ORDER_KEY, 0, 0))
		return false;
	out->type = BOOLOID;
	if (!gstore_emit(e, GQUERY_IN, first, count))
		return false;
	out->nullable = (out->nullable || has_null || null) && !empty;
	if (empty) /* the value is false, also of NULL */
		return gstore_emit(e, GQUERY_IS_TRUE, 0, 0) && (s->useOr || gstore_emit(e, GQUERY_NOT, 0, 0));
	if (has_null || null)
		if (!gstore_emit(e, GQUERY_NULL, 0, 0) || !gstore_emit(e, GQUERY_OR, 0, 0))
			return false;
	return s->useOr || gstore_emit(e, GQUERY_NOT, 0, 0);
}

/* ---- logic */

static bool
emit_junction(gstore_emitter *e, List *args, gquery_op operation, gstore_emitted *out)
{
	const gquery_op decided = operation == GQUERY_AND ? GQUERY_IS_FALSE : GQUERY_IS_TRUE;
	gstore_emitted	one;
	ListCell	   *cell;

	if (!gstore_emit_expression(e, linitial(args), out))
		return false;
	for_each_from(cell, args, 1)
	{
		const uint32 at = e->program->code_count;
		bool		 done;

		e->guarded++;
		done = gstore_emit_expression(e, lfirst(cell), &one);
		e->guarded--;
		if (!done || !(one.raises ? guard(e, at, decided, operation) : gstore_emit(e, operation, 0, 0)))
			return false;
		out->nullable |= one.nullable;
		out->raises |= one.raises;
	}
	return true;
}

static bool
emit_boolean(gstore_emitter *e, BoolExpr *b, gstore_emitted *out)
{
	if (b->boolop == NOT_EXPR)
		return gstore_emit_expression(e, linitial(b->args), out) && gstore_emit(e, GQUERY_NOT, 0, 0);
	return emit_junction(e, b->args, b->boolop == AND_EXPR ? GQUERY_AND : GQUERY_OR, out);
}

static bool
emit_null_test(gstore_emitter *e, NullTest *test, gstore_emitted *out)
{
	Var	  *var = (Var *) test->arg;
	uint32 at;

	if (test->argisrow)
		return false;
	if (is_column(e, (Node *) var))
	{
		const Oid type = getBaseType(var->vartype);

		out->raises = false;
		if (!gstore_is_compiled_type(type) || !find_column(e, var, type, &at, &out->nullable) ||
			!gstore_emit(e, GQUERY_LOAD_NULL, at, 0))
			return false;
	}
	else if (!gstore_emit_expression(e, (Node *) test->arg, out) ||
			 !gstore_emit(e, GQUERY_IS_NULL, 0, 0))
		return false;
	out->type = BOOLOID;
	out->nullable = false;
	return test->nulltesttype == IS_NULL || gstore_emit(e, GQUERY_NOT, 0, 0);
}

static bool
emit_boolean_test(gstore_emitter *e, BooleanTest *test, gstore_emitted *out)
{
	static const struct
	{
		gquery_op op;
		bool	  negated;
	} tests[] = {
		[IS_TRUE] = {GQUERY_IS_TRUE, false},	[IS_NOT_TRUE] = {GQUERY_IS_TRUE, true},
		[IS_FALSE] = {GQUERY_IS_FALSE, false},	[IS_NOT_FALSE] = {GQUERY_IS_FALSE, true},
		[IS_UNKNOWN] = {GQUERY_IS_NULL, false}, [IS_NOT_UNKNOWN] = {GQUERY_IS_NULL, true},
	};

	if (!gstore_emit_expression(e, (Node *) test->arg, out))
		return false;
	out->nullable = false;
	return gstore_emit(e, tests[test->booltesttype].op, 0, 0) &&
		(!tests[test->booltesttype].negated || gstore_emit(e, GQUERY_NOT, 0, 0));
}

/* ---- choices */

/* From the WHEN at that place on: the rest is in the ELSE of the one before. */
static bool
emit_whens(gstore_emitter *e, CaseExpr *c, int at, gstore_emitted *out)
{
	CaseWhen	  *when;
	gstore_emitted condition, rest;

	if (at == list_length(c->args))
	{
		if (c->defresult != NULL)
			return gstore_emit_expression(e, (Node *) c->defresult, out);
		*out = (gstore_emitted){.type = getBaseType(c->casetype), .nullable = true};
		return gstore_emit(e, GQUERY_NULL, 0, 0);
	}
	when = list_nth_node(CaseWhen, c->args, at);
	if (!gstore_emit_expression(e, (Node *) when->expr, &condition) ||
		!gstore_emit(e, GQUERY_IF, 0, 0) || !gstore_emit_expression(e, (Node *) when->result, out) ||
		!gstore_emit(e, GQUERY_ELSE, 0, 0) || !emit_whens(e, c, at + 1, &rest))
		return false;
	out->nullable |= rest.nullable;
	out->raises |= condition.raises || rest.raises;
	return gstore_emit(e, GQUERY_END, 0, 0);
}

static bool
emit_case(gstore_emitter *e, CaseExpr *c, gstore_emitted *out)
{
	gstore_case scope = {(Node *) c->arg, e->scope};
	bool		done;

	e->guarded++;
	if (c->arg != NULL)
		e->scope = &scope;
	done = emit_whens(e, c, 0, out);
	e->scope = scope.outer;
	e->guarded--;
	out->type = getBaseType(c->casetype);
	return done;
}

static bool
emit_case_value(gstore_emitter *e, gstore_emitted *out)
{
	gstore_case *scope = e->scope;
	bool		 done;

	if (scope == NULL)
		return false;
	e->scope = scope->outer;
	done = gstore_emit_expression(e, scope->value, out);
	e->scope = scope;
	return done;
}

static bool
emit_coalesce(gstore_emitter *e, CoalesceExpr *c, gstore_emitted *out)
{
	ListCell *cell;

	if (!gstore_emit_expression(e, linitial(c->args), out))
		return false;
	for_each_from(cell, c->args, 1)
	{
		gstore_emitted one;
		bool		   done;

		if (!gstore_emit(e, GQUERY_COPY, 0, 0) || !gstore_emit(e, GQUERY_IS_NULL, 0, 0) ||
			!gstore_emit(e, GQUERY_IF, 0, 0))
			return false;
		e->guarded++;
		done = gstore_emit_expression(e, lfirst(cell), &one);
		e->guarded--;
		if (!done || !gstore_emit(e, GQUERY_REPLACE, 0, 0) || !gstore_emit(e, GQUERY_END, 0, 0))
			return false;
		out->nullable &= one.nullable;
		out->raises |= one.raises;
	}
	out->type = getBaseType(c->coalescetype);
	return true;
}

static bool
emit_null_if(gstore_emitter *e, NullIfExpr *n, gstore_emitted *out)
{
	gstore_emitted other;
	gquery_op	   op;

	if (!find_comparison(n->opno, &op) || op != GQUERY_EQ ||
		!gstore_emit_expression(e, linitial(n->args), out) || !gstore_emit(e, GQUERY_COPY, 0, 0) ||
		!gstore_emit_expression(e, lsecond(n->args), &other) ||
		gstore_type_family(out->type) != gstore_type_family(other.type))
		return false;
	out->nullable = true;
	out->raises |= other.raises;
	return gstore_emit(e, GQUERY_EQ, 0, order_of(out->type)) && gstore_emit(e, GQUERY_IF, 0, 0) &&
		gstore_emit(e, GQUERY_NULL, 0, 0) && gstore_emit(e, GQUERY_REPLACE, 0, 0) &&
		gstore_emit(e, GQUERY_END, 0, 0);
}

/* ---- all */

static bool
emit_node(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	gquery_op op;

	switch (nodeTag(node))
	{
		case T_Var:
			return emit_column(e, (Var *) node, out);
		case T_RelabelType:
			return gstore_emit_expression(e, (Node *) ((RelabelType *) node)->arg, out) &&
				out->type == getBaseType(((RelabelType *) node)->resulttype);
		case T_OpExpr:
			return emit_operator(e, (OpExpr *) node, out);
		case T_FuncExpr:
			return emit_function(e, ((FuncExpr *) node)->funcid, ((FuncExpr *) node)->funcresulttype,
								 ((FuncExpr *) node)->args, out);
		case T_DistinctExpr:
			return find_comparison(((DistinctExpr *) node)->opno, &op) && op == GQUERY_EQ &&
				emit_comparison(e, ((DistinctExpr *) node)->args, GQUERY_DISTINCT, out);
		case T_ScalarArrayOpExpr:
			return emit_list(e, (ScalarArrayOpExpr *) node, out);
		case T_BoolExpr:
			return emit_boolean(e, (BoolExpr *) node, out);
		case T_NullTest:
			return emit_null_test(e, (NullTest *) node, out);
		case T_BooleanTest:
			return emit_boolean_test(e, (BooleanTest *) node, out);
		case T_CaseExpr:
			return emit_case(e, (CaseExpr *) node, out);
		case T_CaseTestExpr:
			return emit_case_value(e, out);
		case T_CoalesceExpr:
			return emit_coalesce(e, (CoalesceExpr *) node, out);
		case T_NullIfExpr:
			return emit_null_if(e, (NullIfExpr *) node, out);
		default:
			return false;
	}
}

/* Instructions first: they raise an error where PostgreSQL does. */
bool
gstore_emit_expression(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	const uint32 code = e->program->code_count, values = e->program->value_count;

	check_stack_depth();
	if (!IsA(node, Const) && !IsA(node, Param) && emit_node(e, node, out))
		return true;
	e->program->code_count = code;
	e->program->value_count = values;
	return emit_known(e, node, out);
}
