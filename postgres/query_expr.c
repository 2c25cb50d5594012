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
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "postgres/arrow.h"
#include "postgres/form.h"
#include "postgres/qual.h"
#include "postgres/query_batch.h"
#include "postgres/query_calendar.h"
#include "postgres/query_choice.h"
#include "postgres/query_decimal.h"
#include "postgres/query_distance.h"
#include "postgres/query_enum.h"
#include "postgres/query_expr.h"
#include "postgres/query_function.h"
#include "postgres/query_join.h"
#include "postgres/query_list.h"
#include "postgres/query_refused.h"
#include "postgres/query_text.h"
#include "postgres/query_time.h"

/* An expression that depends on no row, and its state while the query is executed. */
typedef struct known_value
{
	Expr	  *expression;
	ExprState *state;
} known_value;

/* ---- emitting */

bool
gstore_emit_instruction(gstore_emitter *e, gquery_instruction instruction)
{
	if (e->program->code_count == GQUERY_CODE_MAX)
	{
		e->full = true;
		return false;
	}
	e->program->code[e->program->code_count++] = instruction;
	return true;
}

bool
gstore_emit(gstore_emitter *e, gquery_op op, uint32 a, uint32 b)
{
	return gstore_emit_instruction(e, (gquery_instruction){.op = (uint16) op, .a = a, .b = (uint16) b});
}

bool
gstore_emit_constant(gstore_emitter *e, int64 word)
{
	return gstore_emit_instruction(
		e, (gquery_instruction){.op = GQUERY_CONSTANT, .value = (uint64) word});
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

/* e->unknown becomes its number, or that of the next one. */
static known_value *
find_value(gstore_emitter *e, Expr *expression)
{
	ListCell *cell;

	e->unknown = 0;
	foreach(cell, e->values)
	{
		if (((known_value *) lfirst(cell))->expression == expression)
			return lfirst(cell);
		e->unknown++;
	}
	return NULL;
}

/* An error that is raised is one that PostgreSQL raises as well. */
static bool
may_evaluate(const gstore_emitter *e, Node *node)
{
	return (e->met & gstore_met_bit(e->unknown)) != 0 || gstore_is_plain(node, e->unset) ||
		(e->guarded == 0 && e->certain);
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
	/* Settings or scales of parameters are others than when values were prepared, and the expression around it had no instructions then. */
	if (e->context != NULL && v == NULL)
		e->unprepared = true;
	*raises = e->unprepared || !may_evaluate(e, (Node *) expression);
	e->missing += *raises;
	if (*raises && (e->local || (e->lazy && e->guarded > 0)))
		e->behind |= gstore_met_bit(e->unknown);
	if (e->context == NULL || *raises)
		return false;
	*value = ExecEvalExprSwitchContext(v->state, e->context, null);
	return true;
}

bool
gstore_emit_null(gstore_emitter *e, gstore_emitted *out)
{
	out->nullable = true;
	out->scale = GSTORE_SCALE_ANY;
	return gstore_emit(e, GQUERY_NULL, 0, 0);
}

static bool
emit_value(gstore_emitter *e, Datum value, gstore_emitted *out)
{
	int64 word;

	if (out->type != NUMERICOID)
		return gstore_emit_constant(e, gstore_stack_word(value, out->type, 0));
	return gstore_number_word(value, &out->scale, &word) &&
		(e->computing == 0 || word != GQUERY_DECIMAL_NAN) && gstore_emit_constant(e, word);
}

static bool
emit_known(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	Datum value;
	bool  null;

	*out = (gstore_emitted){.type = getBaseType(exprType(node)), .nullable = true};
	if (out->type == INTERVALOID && IsA(node, Const) && ((Const *) node)->constisnull)
		return gstore_emit_null(e, out);
	if (!gstore_is_compiled_type(out->type) || !gstore_is_row_independent(node))
		return false;
	if (e->context != NULL && !IsA(node, Const) && find_value(e, (Expr *) node) == NULL)
		return false; /* it had instructions, for which there is no room now */
	if (!gstore_evaluate(e, (Expr *) node, &value, &null, &out->raises))
		return gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0);
	out->nullable = null;
	return null ? gstore_emit_null(e, out) : emit_value(e, value, out);
}

/* ---- columns */

static gquery_form
form_of_text(const gstore_column *stored, bool arrow)
{
	if (stored != NULL && gstore_is_uniform(stored))
		return GQUERY_TEXT_FIXED;
	return arrow ? GQUERY_TEXT_OFFSETS : GQUERY_TEXT_BODIES;
}

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
		case NUMERICOID:
			return GQUERY_DECIMAL;
		case UUIDOID:
			return GQUERY_UUID_HIGH;
		default:
			return type_is_enum(type) ? GQUERY_U32 : GQUERY_I64;
	}
}

static int64
bias_of(const gstore_emitter *e, Oid type, bool arrow)
{
	if (type == NUMERICOID)
		return e->computing > 0;
	if (!arrow)
		return 0;
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
	if (e->batched ? list_member(e->batch, var) : (Index) var->varno == e->relation)
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

/* Of the view that the emitter has of a table. NULL: there is none yet, or the column is not stored. */
static const gstore_column *
stored_column(const gstore_emitter *e, uint32 table, int number)
{
	const gstore_view *view = e->view == NULL ? NULL : &e->view[table];

	return view != NULL && number <= view->column_count && !view->columns[number - 1].dropped
		? &view->columns[number - 1]
		: NULL;
}

/* False: it is not stored as decimals of the scale that the type says. */
static bool
find_scale(const gstore_column *stored, const Var *var, int *scale)
{
	int32 typmod = var->vartypmod;
	int	  precision;

	(void) getBaseTypeAndTypmod(var->vartype, &typmod);
	return gstore_form_decimal(typmod, &precision, scale) &&
		(stored == NULL || (stored->form == GSTORE_FORM_DECIMAL && stored->scale == *scale));
}

static int
number_in_list(const List *list, const void *node)
{
	const ListCell *cell;

	foreach(cell, list)
		if (equal(lfirst(cell), node))
			return foreach_current_index(cell);
	return -1;
}

/* The place of a column of a batch in the program: the value's words as the stack has them; InvalidOid: which rows are NULL alone. */
static bool
place_batch_column(gstore_emitter *e, const Var *var, Oid type, int which, uint32 *at)
{
	gquery_program	   *p = e->program;
	const gquery_column column = {
		.number = (uint32) gstore_row_batch_number(number_in_list(e->batch, var), which),
		.type = type,
		.form = gstore_is_float(type) ? GQUERY_F64 : GQUERY_I64};

	if (OidIsValid(type) && !gstore_is_compiled_type(type))
		return false;
	for (*at = 0; *at < p->column_count; (*at)++)
		if (p->columns[*at].table == 0 && p->columns[*at].number == column.number &&
			p->columns[*at].type == type)
			return true;
	if (*at == GQUERY_COLUMNS_MAX)
		return false;
	p->columns[p->column_count++] = column;
	return true;
}

/* The place of a column in the program. False: there is no room, or an older version of the table has another type. */
static bool
add_column(gstore_emitter *e, const gquery_column *column, uint32 *at)
{
	const gstore_column *stored = stored_column(e, column->table, (int) column->number);
	gquery_program		*p = e->program;

	if (stored != NULL && getBaseType(stored->type) != column->type)
		return false;
	for (*at = 0; *at < p->column_count; (*at)++)
		if (p->columns[*at].table == column->table && p->columns[*at].number == column->number &&
			p->columns[*at].form == column->form && p->columns[*at].bias == column->bias)
			return true;
	if (*at == GQUERY_COLUMNS_MAX)
		return false;
	p->columns[p->column_count++] = *column;
	return true;
}

/* Of one whose values are read. False: as above, or programs have no such type. */
static bool
place_column(gstore_emitter *e, uint32 table, int number, Oid type, int which, uint32 *at)
{
	const bool			 arrow = e->view != NULL && e->view[table].arrow;
	const gstore_column *stored = stored_column(e, table, number);
	const gquery_column	 column = {.table = table,
								   .number = (uint32) number,
								   .type = type,
								   .form = gstore_is_text(type) ? form_of_text(stored, arrow)
																: form_of(type, arrow) + (uint32) which,
								   .bias = gstore_is_text(type) ? which : bias_of(e, type, arrow)};

	if ((!gstore_is_compiled_type(type) && !gstore_is_text(type)) || !add_column(e, &column, at))
		return false;
	if (table == 0)
		e->columns = bms_add_member(e->columns, number);
	return true;
}

/* Of an expression's column. which: of a uuid, the half; of a text 0, or gquery_numbered. */
static bool
find_column(gstore_emitter *e, const Var *var, int which, uint32 *at, gstore_emitted *out)
{
	const gstore_column *stored;
	uint32				 table;
	bool				 outer;

	if (!find_table(e, var, &table, &outer))
		return false;
	stored = stored_column(e, table, var->varattno);
	*out = (gstore_emitted){.type = getBaseType(var->vartype),
							.nullable = outer || stored == NULL || stored->has_nulls};
	if (out->type == NUMERICOID && !find_scale(stored, var, &out->scale))
		return false;
	return e->batched && table == 0 ? place_batch_column(e, var, out->type, which, at)
									: place_column(e, table, var->varattno, out->type, which, at);
}

/* Of one of any type, of which nothing is read but which rows are NULL: by a bitmap, or where variable lengths lie in format 'pgstrom'. */
static bool
place_nulls(gstore_emitter *e, const Var *var, uint32 *at)
{
	gquery_column column = {.number = (uint32) var->varattno, .type = getBaseType(var->vartype)};
	const gstore_column *stored;
	bool				 outer;

	if (!find_table(e, var, &column.table, &outer))
		return false;
	if (e->batched && column.table == 0)
		return place_batch_column(e, var, InvalidOid, 0, at);
	stored = stored_column(e, column.table, var->varattno);
	column.form = stored != NULL && gstore_is_variable(stored) && !gstore_is_arrow(stored)
		? GQUERY_TEXT_BODIES
		: GQUERY_U8;
	return add_column(e, &column, at);
}

bool
gstore_emit_gathered(gstore_emitter *e, int number, Oid type, uint32 *at)
{
	return place_column(e, 0, number, type, 0, at);
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

bool
gstore_find_row(const gstore_emitter *e, const Node *node, uint32 *table)
{
	bool outer;

	return is_column(e, node) && find_table(e, (const Var *) node, table, &outer);
}

bool
gstore_emit_joined(gstore_emitter *e, const Node *node, int which, uint32 *at, gstore_emitted *out)
{
	return is_column(e, node) && !gstore_is_text(getBaseType(((const Var *) node)->vartype)) &&
		find_column(e, (const Var *) node, which, at, out);
}

static bool
emit_column(gstore_emitter *e, const Var *var, gstore_emitted *out)
{
	uint32 at;

	return gstore_emit_joined(e, (const Node *) var, 0, &at, out) &&
		gstore_emit(e, GQUERY_LOAD, at, 0);
}

bool
gstore_find_text(gstore_emitter *e, const Node *node, int numbered, uint32 *at, bool *nullable)
{
	gstore_emitted out;
	bool		   found;

	found = e->emit_group == NULL && is_column(e, node) &&
		gstore_is_text(getBaseType(((const Var *) node)->vartype)) &&
		find_column(e, (const Var *) node, numbered, at, &out);
	/* 'pgstrom' has no bitmap of them */
	*nullable = found && (out.nullable || e->program->columns[*at].form == GQUERY_TEXT_BODIES);
	return found;
}

/* ---- decimals */

/* With what depends on no row: it has the column's scale then, whatever its own is. */
static bool
emit_compared_number(gstore_emitter *e, const gstore_emitted *left, Node *number, gquery_op op,
					 gstore_emitted *out)
{
	const int scale = left->scale == GSTORE_SCALE_ANY ? 0 : left->scale;
	Datum	  value;
	bool	  null;
	int64	  word;

	*out = (gstore_emitted){.nullable = true};
	if (!gstore_evaluate(e, (Expr *) number, &value, &null, &out->raises))
		return gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0) &&
			gstore_emit(e, op, 0, GQUERY_ORDER_I64);
	if (null)
		return gstore_emit(e, GQUERY_NULL, 0, 0) && gstore_emit(e, op, 0, GQUERY_ORDER_I64);
	out->nullable = false;
	if (!gstore_decimal_word(value, scale, &word))
		op = gstore_beside(op, &word);
	return gstore_emit_constant(e, word) && gstore_emit(e, op, 0, GQUERY_ORDER_I64);
}

/* ---- operators and functions */

static gquery_order
order_of(Oid type)
{
	return gstore_is_float(type) ? GQUERY_ORDER_F64 : GQUERY_ORDER_I64;
}

bool
gstore_find_comparison(Oid operator, gquery_op * op)
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

static gquery_op
commuted(gquery_op op)
{
	switch (op)
	{
		case GQUERY_LT:
			return GQUERY_GT;
		case GQUERY_LE:
			return GQUERY_GE;
		case GQUERY_GT:
			return GQUERY_LT;
		case GQUERY_GE:
			return GQUERY_LE;
		default:
			return op;
	}
}

bool
gstore_equal_types(const gstore_emitted *left, const gstore_emitted *right)
{
	const int family = gstore_type_family(left->type);

	return family != 0 ? family == gstore_type_family(right->type) : left->type == right->type;
}

/* Two values of rows. */
static bool
emit_enums_compared(gstore_emitter *e, const gstore_emitted *left, Node *right, gquery_op op,
					gstore_emitted *other)
{
	return gstore_emit_enum_number(e, left->type) && gstore_emit_expression(e, right, other) &&
		gstore_equal_types(left, other) && gstore_emit_enum_number(e, other->type) &&
		gstore_emit(e, op, 0, GQUERY_ORDER_I64);
}

bool
gstore_emit_compared(gstore_emitter *e, gstore_emitted left, Node *right, gquery_op op,
					 gstore_emitted *out)
{
	const uint32   left_end = e->program->code_count;
	gstore_emitted other;

	if (left.type == NUMERICOID && gstore_is_row_independent(right))
	{
		if (!emit_compared_number(e, &left, right, op, &other))
			return false;
	}
	else if (left.type == UUIDOID)
		return false;
	else if (gstore_are_times(left.type, getBaseType(exprType(right))))
	{
		if (!gstore_emit_time_compared(e, &left, left_end, right, op, &other))
			return false;
	}
	else if (gstore_type_family(left.type) == 0 && op >= GQUERY_LT && op <= GQUERY_GE)
	{
		if (gstore_is_row_independent(right) ? !gstore_emit_enum_order(e, &left, right, op, &other)
											 : !emit_enums_compared(e, &left, right, op, &other))
			return false;
	}
	else if (!gstore_emit_expression(e, right, &other) || !gstore_equal_types(&left, &other) ||
			 (left.type == NUMERICOID && !gstore_align(e->program, &left, left_end, &other)) ||
			 !gstore_emit(e, op, 0, order_of(left.type)))
		return false;
	*out = (gstore_emitted){.type = BOOLOID,
							.nullable = (left.nullable || other.nullable) && op != GQUERY_DISTINCT,
							.raises = left.raises || other.raises};
	return true;
}

static bool
emit_words_compared(gstore_emitter *e, List *args, int which, gquery_op op, gstore_emitted *out)
{
	gstore_emitted other;

	if (!gstore_emit_word(e, linitial(args), which, out) ||
		!gstore_emit_word(e, lsecond(args), which, &other) || out->type != other.type)
		return false;
	out->nullable |= other.nullable;
	out->raises |= other.raises;
	return gstore_emit(e, op, 0, GQUERY_ORDER_I64);
}

/* The first words decide, or the second ones if those are equal. */
static bool
emit_uuid_comparison(gstore_emitter *e, List *args, gquery_op op, gstore_emitted *out)
{
	const bool has_order = op >= GQUERY_LT && op <= GQUERY_GE;
	const bool is_less = op == GQUERY_LT || op == GQUERY_LE;

	if (has_order && !emit_words_compared(e, args, 0, is_less ? GQUERY_LT : GQUERY_GT, out))
		return false;
	if (!emit_words_compared(e, args, 0, has_order ? GQUERY_EQ : op, out) ||
		!emit_words_compared(e, args, 1, op, out) ||
		!gstore_emit(e, has_order || op == GQUERY_EQ ? GQUERY_AND : GQUERY_OR, 0, 0))
		return false;
	*out = (gstore_emitted){
		.type = BOOLOID, .nullable = out->nullable && op != GQUERY_DISTINCT, .raises = out->raises};
	return !has_order || gstore_emit(e, GQUERY_OR, 0, 0);
}

/* Of types for which the right one is an argument of the instruction, if it depends on no row. */
static bool
takes_known(Oid left, Oid right)
{
	return left == NUMERICOID || gstore_type_family(left) == 0 || gstore_are_times(left, right);
}

/* Of an operator that compares. */
static bool
emit_comparison(gstore_emitter *e, List *args, gquery_op op, gstore_emitted *out)
{
	Node		  *left, *right;
	gstore_emitted value;

	if (list_length(args) != 2)
		return false;
	left = linitial(args);
	right = lsecond(args);
	if (getBaseType(exprType(left)) == UUIDOID)
		return emit_uuid_comparison(e, args, op, out);
	if (takes_known(getBaseType(exprType(left)), getBaseType(exprType(right))) &&
		gstore_is_row_independent(left) && !gstore_is_row_independent(right))
	{
		left = right;
		right = linitial(args);
		op = commuted(op);
	}
	return gstore_emit_expression(e, left, &value) && gstore_emit_compared(e, value, right, op, out);
}

/* Numbers are decimals; microseconds since 1970 may have too many digits. */
static bool
emit_field(gstore_emitter *e, const gstore_calendar *c, Oid result, gstore_emitted *out)
{
	const gquery_instruction field = {
		.op = GQUERY_FIELD, .b = (uint16) (c->what | c->of << 8), .value = (uint64) c->offset};

	if (!gstore_emit_expression(e, c->argument, out) || !gstore_emit_instruction(e, field) ||
		(c->years != 0 && !gstore_emit_years(e, c->years)))
		return false;
	out->type = result;
	out->scale = c->scale;
	out->raises |= c->what >= GQUERY_TO_DATE || c->offset != 0;			  /* out of range */
	out->nullable |= c->what < GQUERY_TO_DATE && c->of != GQUERY_OF_TIME; /* of an infinite value */
	if (c->what == GQUERY_EPOCH && !gstore_scale_up(e->program, e->program->code_count, 0))
		return false;
	if (c->divisor == 0)
		return true;
	return gstore_emit(e, GQUERY_I64_TO_F64, 0, 0) &&
		(c->divisor == 1 ||
		 (gstore_emit_constant(e, gstore_stack_word(Float8GetDatum((double) c->divisor), FLOAT8OID, 0)) &&
		  gstore_emit(e, GQUERY_DIVIDE, 0, GQUERY_ARITHMETIC_F64)));
}

static bool
emit_function(gstore_emitter *e, Oid function, Oid result, List *args, gstore_emitted *out)
{
	const gstore_number_function *f = gstore_find_function(function);
	ListCell					 *cell;
	gstore_emitted				  all = {.type = getBaseType(result)};
	gstore_calendar				  calendar;

	if (f == NULL && gstore_find_calendar(function, args, &calendar))
		return emit_field(e, &calendar, getBaseType(result), out);
	if (f == NULL)
		return gstore_emit_time_function(e, function, args, out) ||
			gstore_emit_decimal_function(e, function, args, out);
	foreach(cell, args)
	{
		gstore_emitted one;

		if (!gstore_emit_expression(e, lfirst(cell), &one))
			return false;
		all.nullable |= one.nullable;
		all.raises |= one.raises;
	}
	all.raises |= gstore_can_raise(f, args);
	*out = all;
	return f->op == 0 ||
		gstore_emit_instruction(e, (gquery_instruction){.op = f->op, .b = f->b, .value = f->value});
}

static bool
emit_operator(gstore_emitter *e, OpExpr *o, gstore_emitted *out)
{
	gquery_op op;

	if (gstore_find_comparison(o->opno, &op))
		return emit_comparison(e, o->args, op, out);
	return emit_function(e, OidIsValid(o->opfuncid) ? o->opfuncid : get_opcode(o->opno),
						 o->opresulttype, o->args, out);
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
		const bool is_loaded = gstore_is_compiled_type(getBaseType(var->vartype)) &&
			find_column(e, var, 0, &at, out);

		if ((!is_loaded && !place_nulls(e, var, &at)) || !gstore_emit(e, GQUERY_LOAD_NULL, at, 0))
			return false;
	}
	else if (!gstore_emit_expression(e, (Node *) test->arg, out) ||
			 !gstore_emit(e, GQUERY_IS_NULL, 0, 0))
		return false;
	*out = (gstore_emitted){.type = BOOLOID, .raises = out->raises};
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
			return gstore_emit_distance(e, node, out) || gstore_emit_text(e, node, out) ||
				emit_operator(e, (OpExpr *) node, out);
		case T_FuncExpr:
			return gstore_emit_distance(e, node, out) || gstore_emit_text(e, node, out) ||
				emit_function(e, ((FuncExpr *) node)->funcid, ((FuncExpr *) node)->funcresulttype,
							  ((FuncExpr *) node)->args, out);
		case T_DistinctExpr:
			return gstore_emit_text(e, node, out) ||
				(gstore_find_comparison(((DistinctExpr *) node)->opno, &op) && op == GQUERY_EQ &&
				 emit_comparison(e, ((DistinctExpr *) node)->args, GQUERY_DISTINCT, out));
		case T_ScalarArrayOpExpr:
			return gstore_emit_text(e, node, out) ||
				gstore_emit_list(e, (ScalarArrayOpExpr *) node, out);
		case T_BoolExpr:
			return emit_boolean(e, (BoolExpr *) node, out);
		case T_NullTest:
			return emit_null_test(e, (NullTest *) node, out);
		case T_BooleanTest:
			return emit_boolean_test(e, (BooleanTest *) node, out);
		default:
			return gstore_emit_choice(e, node, out);
	}
}

static bool
emit_instructions(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	if (e->emit_group != NULL && e->emit_group(e, node, 0, out))
		return true;
	return !IsA(node, Const) && !IsA(node, Param) && emit_node(e, node, out);
}

/* Instructions first: they raise an error where PostgreSQL does. */
bool
gstore_emit_expression(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	const uint32 code = e->program->code_count, values = e->program->value_count;
	Node		*refused = e->refused;
	const bool	 full_scale = e->full_scale;
	bool		 done;

	check_stack_depth();
	*out = (gstore_emitted){0};
	e->full_scale &= getBaseType(exprType(node)) ==
		NUMERICOID; /* not of what it is computed from otherwise */
	done = emit_instructions(e, node, out);
	if (!done)
	{
		e->program->code_count = code;
		e->program->value_count = values;
		done = emit_known(e, node, out);
	}
	e->full_scale = full_scale;
	if (done)
	{
		e->refused = refused;
		e->certain &= !out->raises;
	}
	else
		gstore_note_refused(e, node);
	return done;
}

/* The second word is one of a column, or depends on no row. */
bool
gstore_emit_word(gstore_emitter *e, Node *node, int which, gstore_emitted *out)
{
	Datum  value;
	bool   null;
	uint32 at;

	if (getBaseType(exprType(node)) != UUIDOID)
		return gstore_emit_expression(e, node, out);
	if (e->emit_group != NULL && e->emit_group(e, node, which, out))
		return true;
	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	if (is_column(e, node))
		return find_column(e, (Var *) node, which, &at, out) && gstore_emit(e, GQUERY_LOAD, at, 0);
	if (!gstore_is_row_independent(node))
		return false;
	*out = (gstore_emitted){.type = UUIDOID, .nullable = true};
	if (!gstore_evaluate(e, (Expr *) node, &value, &null, &out->raises))
		return gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0);
	out->nullable = null;
	return null ? gstore_emit_null(e, out)
				: gstore_emit_constant(e, gstore_stack_word(value, UUIDOID, which));
}
