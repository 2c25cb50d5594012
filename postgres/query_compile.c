/*
 * See query_compile.h.
 *
 * Conditions, then keys, then aggregates.
 */
#include "postgres.h"

#include "catalog/pg_aggregate.h"
#include "datatype/timestamp.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

#include "postgres/form.h"
#include "postgres/qual.h"
#include "postgres/query_compiled.h"
#include "postgres/query_enum.h"
#include "postgres/query_join.h"
#include "postgres/query_refused.h"
#include "postgres/query_text.h"

/* ---- aggregates by their functions */

/* clang-format off */
#define OF_INTEGERS(name, aggregate, result) \
	{F_##name##_INT2, aggregate, result}, {F_##name##_INT4, aggregate, result}, {F_##name##_INT8, aggregate, result}
#define STATISTICS(name, poly, wide) \
	{F_##name##_INT2, GQUERY_SUM_I64, RESULT_STATISTIC, poly}, {F_##name##_INT4, GQUERY_SUM_I64, RESULT_STATISTIC, poly}, \
	{F_##name##_INT8, GQUERY_SUM_I64, RESULT_STATISTIC, wide}
#define STATISTICS_OF_FLOATS(name, final) \
	{F_##name##_FLOAT4, GQUERY_MOMENTS_F64, RESULT_STATISTIC, final}, {F_##name##_FLOAT8, GQUERY_MOMENTS_F64, RESULT_STATISTIC, final}
#define EXTREMES(name, aggregate) \
	OF_INTEGERS(name, aggregate, RESULT_VALUE), \
	{F_##name##_FLOAT4, aggregate, RESULT_VALUE}, {F_##name##_FLOAT8, aggregate, RESULT_VALUE}, \
	{F_##name##_OID, aggregate, RESULT_VALUE}, {F_##name##_DATE, aggregate, RESULT_VALUE}, \
	{F_##name##_TIME, aggregate, RESULT_VALUE}, {F_##name##_TIMESTAMP, aggregate, RESULT_VALUE}, \
	{F_##name##_TIMESTAMPTZ, aggregate, RESULT_VALUE}, {F_##name##_INTERVAL, aggregate, RESULT_VALUE}

static const gstore_aggregate_function functions[] = {
	{F_COUNT_, GQUERY_COUNT_ROWS, RESULT_COUNT}, {F_COUNT_ANY, GQUERY_COUNT, RESULT_COUNT},
	{F_SUM_INT2, GQUERY_SUM_I64, RESULT_BIGINT}, {F_SUM_INT4, GQUERY_SUM_I64, RESULT_BIGINT},
	{F_SUM_INT8, GQUERY_SUM_I64, RESULT_NUMERIC}, OF_INTEGERS(AVG, GQUERY_SUM_I64, RESULT_QUOTIENT),
	{F_SUM_FLOAT4, GQUERY_SUM_F64, RESULT_FLOAT}, {F_SUM_FLOAT8, GQUERY_SUM_F64, RESULT_FLOAT},
	{F_AVG_FLOAT4, GQUERY_SUM_F64, RESULT_FLOAT_QUOTIENT}, {F_AVG_FLOAT8, GQUERY_SUM_F64, RESULT_FLOAT_QUOTIENT},
	EXTREMES(MIN, GQUERY_MIN_I64), EXTREMES(MAX, GQUERY_MAX_I64),
	{F_MIN_ANYENUM, GQUERY_MIN_I64, RESULT_VALUE}, {F_MAX_ANYENUM, GQUERY_MAX_I64, RESULT_VALUE},
	{F_BOOL_AND, GQUERY_AND_I64, RESULT_VALUE}, {F_EVERY, GQUERY_AND_I64, RESULT_VALUE}, {F_BOOL_OR, GQUERY_OR_I64, RESULT_VALUE},
	OF_INTEGERS(BIT_AND, GQUERY_AND_I64, RESULT_VALUE), OF_INTEGERS(BIT_OR, GQUERY_OR_I64, RESULT_VALUE),
	OF_INTEGERS(BIT_XOR, GQUERY_XOR_I64, RESULT_VALUE),
	{F_SUM_INTERVAL, GQUERY_SUM_I64, RESULT_INTERVAL}, {F_AVG_INTERVAL, GQUERY_SUM_I64, RESULT_INTERVAL_QUOTIENT},
	{F_SUM_NUMERIC, GQUERY_SUM_I64, RESULT_NUMERIC}, {F_AVG_NUMERIC, GQUERY_SUM_I64, RESULT_QUOTIENT},
	{F_MIN_NUMERIC, GQUERY_MIN_I64, RESULT_VALUE}, {F_MAX_NUMERIC, GQUERY_MAX_I64, RESULT_VALUE},
	STATISTICS(VAR_POP, numeric_poly_var_pop, numeric_var_pop), STATISTICS(VAR_SAMP, numeric_poly_var_samp, numeric_var_samp),
	STATISTICS(VARIANCE, numeric_poly_var_samp, numeric_var_samp), STATISTICS(STDDEV, numeric_poly_stddev_samp, numeric_stddev_samp),
	STATISTICS_OF_FLOATS(VAR_POP, float8_var_pop), STATISTICS_OF_FLOATS(VAR_SAMP, float8_var_samp), STATISTICS_OF_FLOATS(VARIANCE, float8_var_samp),
	STATISTICS_OF_FLOATS(STDDEV, float8_stddev_samp), STATISTICS_OF_FLOATS(STDDEV_POP, float8_stddev_pop), STATISTICS_OF_FLOATS(STDDEV_SAMP, float8_stddev_samp),
	STATISTICS(STDDEV_POP, numeric_poly_stddev_pop, numeric_stddev_pop), STATISTICS(STDDEV_SAMP, numeric_poly_stddev_samp, numeric_stddev_samp),
};
/* clang-format on */

static const gstore_aggregate_function *
find_aggregate(const Aggref *a)
{
	if (a->aggkind != AGGKIND_NORMAL || a->aggorder != NIL || a->aggdirectargs != NIL ||
		a->aggvariadic || a->agglevelsup != 0 ||
		(a->aggsplit != AGGSPLIT_SIMPLE && a->aggsplit != AGGSPLIT_INITIAL_SERIAL) ||
		list_length(a->args) > 1)
		return NULL;
	for (Size i = 0; i < lengthof(functions); i++)
		if (functions[i].function == a->aggfnoid)
			return &functions[i];
	return NULL;
}

/* Its result depends on how often a value is there. */
static bool
is_distinct(const gstore_aggregate_function *function, const Aggref *a)
{
	return a->aggdistinct != NIL && function->aggregate != GQUERY_MIN_I64 &&
		function->aggregate != GQUERY_MAX_I64 && function->aggregate != GQUERY_AND_I64 &&
		function->aggregate != GQUERY_OR_I64;
}

static int
find_accumulator(gstore_compiled *c, Node *argument, Node *filter, gstore_summand summand)
{
	for (int i = 0; i < c->accumulator_count; i++)
		if (equal(c->accumulators[i].argument, argument) &&
			equal(c->accumulators[i].filter, filter) && c->accumulators[i].summand == summand &&
			!c->accumulators[i].distinct && !c->accumulators[i].full_scale)
			return i;
	c->accumulators[c->accumulator_count] = (gstore_accumulator){
		.argument = argument, .filter = filter, .summand = summand, .count_from = -1};
	return c->accumulator_count++;
}

/* Its result needs the number of values. */
static bool
is_counted(const gstore_aggregate *o)
{
	switch ((gstore_result_kind) o->function->result)
	{
		case RESULT_COUNT:
			return o->function->aggregate == GQUERY_COUNT;
		case RESULT_NUMERIC:
			return o->partial;
		case RESULT_QUOTIENT:
		case RESULT_FLOAT_QUOTIENT:
		case RESULT_STATISTIC:
		case RESULT_INTERVAL_QUOTIENT:
			return true;
		default:
			return false;
	}
}

/* Its result needs another sum of the same values. */
static bool
has_other(const gstore_aggregate *o)
{
	return o->function->result >= RESULT_STATISTIC;
}

/* All are of the same values, without a condition. */
static bool
add_distinct(gstore_compiled *c, gstore_aggregate *o, Node *argument, const Node *filter)
{
	gstore_accumulator *a;

	if (filter != NULL || o->partial || (c->distinct != NULL && !equal(c->distinct, argument)) ||
		(o->function->aggregate != GQUERY_COUNT && o->function->aggregate != GQUERY_SUM_I64) ||
		has_other(o))
		return false;
	if (c->distinct == NULL)
		c->distinct_at = c->accumulator_count++;
	c->distinct = argument;
	o->accumulator = c->distinct_at;
	a = &c->accumulators[o->accumulator];
	*a = (gstore_accumulator){.argument = argument,
							  .distinct = true,
							  .wanted = a->wanted | 1u << GQUERY_COUNT | 1u << o->function->aggregate,
							  .count_from = o->accumulator};
	return true;
}

/* A column of a type that is not on the stack. */
static bool
is_other_column(const Node *node)
{
	int32 typmod = exprTypmod(node);
	Oid	  type = getBaseTypeAndTypmod(exprType(node), &typmod);
	int	  precision, scale;

	return IsA(node, Var) &&
		(!gstore_is_compiled_type(type) ||
		 (type == NUMERICOID && !gstore_form_decimal(typmod, &precision, &scale)));
}

/* Its values are not read to be counted: rows are, where it is not NULL. */
static Node *
count_not_null(Node *column, Node *filter)
{
	NullTest *test = makeNode(NullTest);

	test->arg = (Expr *) column;
	test->nulltesttype = IS_NOT_NULL;
	test->location = -1;
	return filter == NULL ? (Node *) test
						  : (Node *) makeBoolExpr(AND_EXPR, list_make2(filter, test), -1);
}

static bool
add_output(gstore_compiled *c, const Aggref *aggregate)
{
	gstore_aggregate   *o = &c->outputs[c->output_count++];
	Node			   *argument = NULL, *filter = (Node *) aggregate->aggfilter;
	gstore_accumulator *a;

	o->function = find_aggregate(aggregate);
	if (o->function == NULL)
		return false;
	if (aggregate->args != NIL)
		argument = (Node *) linitial_node(TargetEntry, aggregate->args)->expr;
	o->type = aggregate->aggtype;
	o->argument = argument != NULL ? getBaseType(exprType(argument)) : InvalidOid;
	o->partial = aggregate->aggsplit != AGGSPLIT_SIMPLE;
	/* digits behind the point are counted there, and an interval's parts are not those of a difference */
	if (gstore_returns_state(o) && (o->argument == NUMERICOID || o->argument == INTERVALOID))
		return false;
	if (is_distinct(o->function, aggregate))
		return add_distinct(c, o, argument, filter);
	if (o->function->aggregate == GQUERY_COUNT && is_other_column(argument))
	{
		filter = count_not_null(argument, filter);
		argument = NULL;
	}
	o->accumulator = find_accumulator(c, argument, filter, SUMMAND_VALUE);
	a = &c->accumulators[o->accumulator];
	if (argument == NULL)
		a->wanted |= 1u << GQUERY_COUNT_ROWS;
	else if (is_counted(o))
		a->counted = true;
	if (o->function->aggregate != GQUERY_COUNT)
		a->wanted |= 1u << o->function->aggregate;
	if (!has_other(o) || o->function->aggregate == GQUERY_MOMENTS_F64)
		return true;
	o->other = find_accumulator(
		c, argument, filter, o->function->result == RESULT_STATISTIC ? SUMMAND_SQUARE : SUMMAND_DAYS);
	c->accumulators[o->other].wanted |= 1u << o->function->aggregate;
	return true;
}

/* Of each aggregate four at most: one of squares, one that counts rows, and one that counts values of the greater scale may come with it. */
static Size
count_accumulators(const gstore_query *query)
{
	return 4 * (Size) list_length(query->aggregates) + 1;
}

static bool
plan_outputs(gstore_compiled *c, gstore_emitter *e)
{
	ListCell *cell;

	c->accumulator_count = c->output_count = 0;
	c->distinct = NULL;
	memset(c->accumulators, 0, sizeof *c->accumulators * count_accumulators(&c->query));
	foreach(cell, c->query.aggregates)
		if (!add_output(c, lfirst_node(Aggref, cell)))
			return gstore_refuse(e, lfirst(cell), NULL);
	return true;
}

/* ---- instructions */

/* A number in the order of the type's values. */
static bool
emit_extreme(gstore_emitter *e, Oid type)
{
	if (gstore_is_float(type))
		return gstore_emit(e, GQUERY_ORDER_KEY, 0, 1);
	return !type_is_enum(type) || gstore_emit_enum_number(e, type);
}

bool
gstore_emit_words(gstore_emitter *e, gstore_accumulator *a, Oid type)
{
	uint32 left = a->wanted;

	for (int i = 0; i < GQUERY_AGGREGATES; i++)
	{
		const bool	 is_extreme = i == GQUERY_MIN_I64 || i == GQUERY_MAX_I64;
		const uint32 at = e->program->state_words, words = gquery_aggregate_words((uint32) i);

		if ((left & 1u << i) == 0)
			continue;
		left &= ~(1u << i);
		if (at + words > GQUERY_STATE_MAX || (left != 0 && !gstore_emit(e, GQUERY_COPY, 0, 0)) ||
			(is_extreme && !emit_extreme(e, type)) ||
			!gstore_emit(e, GQUERY_AGGREGATE, at, (uint32) i))
			return false;
		a->at[i] = (uint8) at;
		e->program->state_words = at + words;
	}
	return true;
}

/* Values with the greater one of two scales are counted: without any, a sum has the smaller one. */
static bool
find_full_scale(gstore_compiled *c, gstore_emitter *e, gstore_accumulator *a, const gstore_emitted *value)
{
	int i = 0;

	if (value->low == GSTORE_SCALE_SEVERAL || value->absorbed || a->summand != SUMMAND_VALUE ||
		a->wanted != 1u << GQUERY_SUM_I64)
		return gstore_refuse(e, a->argument, GSTORE_SCALES_DIFFER);
	while (i < c->accumulator_count &&
		   !(c->accumulators[i].full_scale && equal(c->accumulators[i].argument, a->argument) &&
			 equal(c->accumulators[i].filter, a->filter)))
		i++;
	if (i == c->accumulator_count)
		c->accumulators[c->accumulator_count++] = (gstore_accumulator){
			.argument = a->argument, .filter = a->filter, .full_scale = true, .count_from = i};
	a->mixed = true;
	a->full_from = i;
	a->low = value->low;
	return true;
}

/* How it is known how many values there were, once it is known whether some are NULL. */
static void
choose_count(gstore_compiled *c, gstore_accumulator *a, bool nullable)
{
	if (!nullable && !a->counted && c->query.keys != NIL && a->filter == NULL)
		return;
	if (nullable)
	{
		a->wanted |= 1u << GQUERY_COUNT;
		a->count_from = (int) (a - c->accumulators);
		return;
	}
	a->count_from = find_accumulator(c, NULL, a->filter, SUMMAND_VALUE);
	c->accumulators[a->count_from].wanted |= 1u << GQUERY_COUNT_ROWS;
}

static bool
emit_summand(gstore_emitter *e, gstore_summand summand)
{
	if (summand == SUMMAND_DAYS)
		return gstore_emit_constant(e, USECS_PER_DAY) &&
			gstore_emit(e, GQUERY_DIVIDE, 0, GQUERY_ARITHMETIC_I64);
	return gstore_emit(e, GQUERY_COPY, 0, 0) &&
		gstore_emit(e, GQUERY_MULTIPLY, 0, GQUERY_ARITHMETIC_I64);
}

static bool
emit_argument(gstore_compiled *c, gstore_emitter *e, gstore_accumulator *a)
{
	const uint32   before = e->program->code_count;
	const bool	   is_sum = a->full_scale || (a->wanted & 1u << GQUERY_SUM_I64) != 0;
	gstore_emitted value;
	bool		   done;

	e->computing += is_sum;
	e->full_scale = a->full_scale;
	done = gstore_emit_expression(e, a->argument, &value);
	e->full_scale = false;
	e->computing -= is_sum;
	if (!done || (value.mixed && a->wanted != 0 && !find_full_scale(c, e, a, &value)))
		return false;
	a->scale = value.scale == GSTORE_SCALE_ANY ? 0 : value.scale;
	if (a->summand != SUMMAND_VALUE) /* of values that are counted without it */
		return emit_summand(e, a->summand) && gstore_emit_words(e, a, value.type);
	choose_count(c, a, a->full_scale || value.nullable || value.raises);
	if (a->wanted != 0)
		return gstore_emit_words(e, a, value.type);
	e->program->code_count = before; /* rows alone are counted */
	return true;
}

static bool
emit_accumulator(gstore_compiled *c, gstore_emitter *e, gstore_accumulator *a)
{
	gstore_emitted condition;
	bool		   done;

	if (a->filter != NULL &&
		(!gstore_emit_expression(e, a->filter, &condition) || !gstore_emit(e, GQUERY_IF, 0, 0)))
		return false;
	e->guarded += a->filter != NULL;
	done = a->argument != NULL ? emit_argument(c, e, a) : gstore_emit_words(e, a, InvalidOid);
	e->guarded -= a->filter != NULL;
	return done && (a->filter == NULL || gstore_emit(e, GQUERY_END, 0, 0));
}

/* Those that count rows come last: others add to what is wanted of them. */
static bool
emit_accumulators(gstore_compiled *c, gstore_emitter *e)
{
	for (int i = 0; i < c->accumulator_count; i++)
		if (c->accumulators[i].argument != NULL && !c->accumulators[i].distinct &&
			!emit_accumulator(c, e, &c->accumulators[i]))
			return false;
	for (int i = 0; i < c->accumulator_count; i++)
		if (c->accumulators[i].argument == NULL && !emit_accumulator(c, e, &c->accumulators[i]))
			return false;
	return true;
}

/* A text's number. */
static bool
emit_text_word(gstore_emitter *e, Node *key, int *words, gstore_emitted *out, gstore_text_key *text)
{
	text->wanted.key = (uint32) (*words)++;
	out->type = getBaseType(exprType(key));
	return gstore_emit_text_key(e, key, &text->wanted.column, &text->trimmed) ||
		gstore_refuse(e, key, "is no key of groups there");
}

/* Of one key; they are added to `words`. text: what is known of it, if it is one. */
static bool
emit_key_words(gstore_emitter *e, Node *key, int *words, gstore_emitted *out, gstore_text_key *text)
{
	int count = 0;

	if (gstore_is_text(getBaseType(exprType(key))))
		return emit_text_word(e, key, words, out, text);

	do
	{
		if (!gstore_emit_word(e, key, count++, out))
			return false;
		if (out->mixed)
			return gstore_refuse(e, key, GSTORE_SCALES_DIFFER);
	} while (count < gstore_stack_words(out->type));
	*words += count;
	return true;
}

/* Doubles are counted: the key tells equal ones. */
static bool
emit_distinct_key(gstore_compiled *c, gstore_emitter *e)
{
	gstore_accumulator *a = &c->accumulators[c->distinct_at];
	const bool			is_sum = (a->wanted & 1u << GQUERY_SUM_I64) != 0;
	gstore_emitted		key = {0};
	gstore_text_key		ignored;
	bool				done;

	e->computing += is_sum;
	done = emit_key_words(e, c->distinct, &c->distinct_words, &key, &ignored);
	e->computing -= is_sum;
	if (!done)
		return false;
	a->scale = key.scale == GSTORE_SCALE_ANY ? 0 : key.scale;
	return !gstore_is_float(key.type) || gstore_emit(e, GQUERY_ORDER_KEY, 0, 0);
}

/* PostgreSQL has one group of 0 and -0, and one of all NaNs, and shows the first of them: doubles are no keys here. */
static bool
emit_keys(gstore_compiled *c, gstore_emitter *e)
{
	gstore_emitted key = {0};
	ListCell	  *cell;
	int			   words = 0;

	c->key_count = c->distinct_words = c->text_count = 0;
	foreach(cell, c->query.keys)
	{
		if (words == GQUERY_KEYS_MAX ||
			!emit_key_words(e, lfirst(cell), &words, &key, &c->texts[c->text_count]))
			return false;
		if (gstore_is_float(key.type))
			return gstore_refuse(e, lfirst(cell), "is no key of groups there");
		c->text_count += gstore_is_text(key.type);
		c->key_scales[c->key_count] = key.scale == GSTORE_SCALE_ANY ? 0 : key.scale;
		c->key_types[c->key_count++] = key.type;
	}
	c->key_words = words;
	if (c->distinct != NULL && !emit_distinct_key(c, e))
		return false;
	words += c->distinct_words;
	return words <= GQUERY_KEYS_MAX && (words == 0 || gstore_emit(e, GQUERY_GROUP, (uint32) words, 0));
}

bool
gstore_emit_filters(gstore_compiled *c, gstore_emitter *e, const List *filters)
{
	gstore_emitted condition;
	ListCell	  *cell;

	foreach(cell, filters)
	{
		if (!gstore_emit_expression(e, lfirst(cell), &condition) ||
			!gstore_emit(e, GQUERY_FILTER, 0, 0))
			return false;
		c->raises |= condition.raises || e->any_length;
		e->certain = false;
	}
	return true;
}

/*
 * Conditions of the outer table. late: one with a value that is not known, and those after it. They come behind the joins where these leave out
 * rows, so that the value is evaluated for a joined row alone.
 */
static bool
emit_outer_filters(gstore_compiled *c, gstore_emitter *e, List **late)
{
	const bool waits = e->context != NULL && gstore_join_leaves_out(c->query.joins);
	ListCell  *cell;

	*late = NIL;
	e->certain &= !waits;
	foreach(cell, c->query.filters)
	{
		const uint32 code = e->program->code_count, values = e->program->value_count;
		const uint32 missing = e->missing;

		if (!gstore_emit_filters(c, e, list_make1(lfirst(cell))))
			return false;
		if (waits && e->missing > missing)
		{
			e->program->code_count = code;
			e->program->value_count = values;
			*late = list_copy_tail(c->query.filters, foreach_current_index(cell));
			return true;
		}
	}
	return true;
}

/* ---- what becomes of rows */

/* They are columns of the program that no instruction loads. */
static bool
add_gathered(gstore_compiled *c, gstore_emitter *e)
{
	ListCell *number, *type;

	forboth(number, c->query.gathered, type, c->query.gathered_types)
		if (c->gathered_count == GQUERY_COLUMNS_MAX ||
			!gstore_emit_gathered(e, lfirst_int(number), lfirst_oid(type),
								  &c->gathered[c->gathered_count++]))
			return false;
	return true;
}

static bool
emit_nearest(gstore_compiled *c, gstore_emitter *e)
{
	c->key_words = 1;
	c->gathered[0] = GQUERY_GATHER_ROW;
	c->gathered_count = 1;
	c->gathers = e->view != NULL && c->query.gathers_vectors && add_gathered(c, e);
	return gstore_describe_nearest(e, c->query.distance, c->query.points, c->query.point_count) &&
		gstore_emit(e, GQUERY_MARK, 0, 0);
}

/* A column of joined rows. */
static bool
add_key_column(gstore_compiled *c, gstore_emitter *e, Node *key)
{
	gstore_emitted value = {0};
	int			   which = 0;
	uint32		   at;

	do
	{
		const bool is_decimal = value.type == NUMERICOID;

		if (c->key_words == GQUERY_COLUMNS_MAX ||
			!gstore_emit_joined(e, key, is_decimal ? 0 : which, &at, &value))
			return gstore_refuse(e, key, "is not returned of joined rows there");
		c->gathered[c->key_words++] = is_decimal ? at | GQUERY_GATHER_HIGH : at;
	} while (++which < gstore_key_words(c, value.type));
	c->key_scales[c->key_count] = value.scale;
	c->key_types[c->key_count++] = value.type;
	return true;
}

/* One that is read by its row's number. */
static bool
add_late_column(gstore_compiled *c, const gstore_emitter *e, const Node *key)
{
	uint32 table;

	if (!gstore_find_row(e, key, &table))
		return false;
	c->key_late[c->key_count++] = 1 + (int) table;
	return true;
}

static bool
add_key(gstore_compiled *c, gstore_emitter *e, Node *key)
{
	const int words = c->key_words;

	c->key_late[c->key_count] = 0;
	if (add_key_column(c, e, key))
		return true;
	c->key_words = words;
	return add_late_column(c, e, key);
}

/* Numbers of rows of this table, behind the values, if a column needs them. */
static bool
add_row_words(gstore_compiled *c, int table)
{
	for (int i = 0; i < c->key_count; i++)
		if (c->key_late[i] == 1 + table)
		{
			if (c->key_words == GQUERY_COLUMNS_MAX)
				return false;
			c->gathered[c->key_words] = (uint32) table | GQUERY_GATHER_ROW;
			c->row_words[table] = c->key_words++;
			c->late_count++;
			return true;
		}
	return true;
}

static bool
emit_rows(gstore_compiled *c, gstore_emitter *e)
{
	ListCell *cell;

	c->key_count = c->key_words = c->late_count = 0;
	c->entry_words = c->query.batched; /* the row's number */
	c->gathers = true;
	foreach(cell, c->query.keys)
		if (!add_key(c, e, lfirst(cell)))
			return false;
	for (int table = 0; table <= list_length(c->query.joins); table++)
		if (!add_row_words(c, table))
			return false;
	return gstore_emit(e, GQUERY_APPEND, 0, 0);
}

/* Entries have the rows of all tables behind the keys. */
static bool
emit_first_rows(gstore_compiled *c, gstore_emitter *e)
{
	const int joins = list_length(c->query.joins);
	ListCell *cell;

	c->key_count = 0;
	foreach(cell, c->query.keys)
		if (!add_late_column(c, e, lfirst(cell)))
			return false;
	if (!gstore_emit_list_keys(c, e, c->query.order, c->query.order_directions))
		return false;
	for (int table = 0; table <= joins; table++)
		c->row_words[table] = c->key_words + table;
	c->late_count = 1 + joins;
	c->key_words += joins;
	return true;
}

static bool
emit_sink(gstore_compiled *c, gstore_emitter *e)
{
	switch (c->query.sink)
	{
		case GSTORE_SINK_FIRST_ROWS:
			return emit_first_rows(c, e);
		case GSTORE_SINK_ROWS:
			return emit_rows(c, e);
		case GSTORE_SINK_MARKS:
			c->gathered_count = 0;
			c->gathers = e->view != NULL && add_gathered(c, e);
			return gstore_emit(e, GQUERY_MARK, 0, 0);
		case GSTORE_SINK_LIST:
			return gstore_emit_list_keys(c, e, c->query.keys, c->query.directions);
		case GSTORE_SINK_NEAREST:
			return emit_nearest(c, e);
		default:
			return plan_outputs(c, e) && emit_keys(c, e) && emit_accumulators(c, e);
	}
}

bool
gstore_check_program(const gquery_program *program)
{
	gquery_shape shape;
	char		 problem[128];

	if (gquery_check(program, &shape, problem))
		return true;
	elog(DEBUG1, "a query is not for the GPU: %s", problem);
	return false;
}

/* A row of the tables before does, so that an inner table's own program may be evaluated. */
static bool
comes_to_join(const gstore_compiled *c, const gstore_emitter *e, int i)
{
	return e->context == NULL || (i == 0 && c->query.filters == NIL && e->certain) ||
		(e->met & gstore_met_bit(GSTORE_UNKNOWN_JOIN + (uint32) i)) != 0;
}

/* Each inner table's own program: of its rows as table 0. */
static bool
emit_builds(gstore_compiled *c, gstore_emitter *e)
{
	ListCell *cell;

	foreach(cell, c->query.joins)
	{
		const gstore_query_join *join = lfirst(cell);
		const int				 i = foreach_current_index(cell);
		const bool				 asked = comes_to_join(c, e, i);
		gstore_emitter			 build = {.program = &c->builds[i],
										  .relation = join->relation,
										  .values = e->values,
										  .parent = e->parent,
										  .context = e->context,
										  .unset = e->unset,
										  .met = e->met,
										  .lazy = e->lazy,
										  .view = e->view == NULL ? NULL : e->view + 1 + i};
		bool					 done;

		gstore_start_program(build.program);
		done = gstore_join_emit_build(&build, join, asked, &c->raises) &&
			gstore_check_program(build.program);
		e->values = build.values;
		e->behind |= build.behind;
		e->unprepared |= build.unprepared;
		if (!asked && build.missing > 0)
			e->waiting |= 1u << i;
		if (!done)
		{
			e->relation = join->relation;
			e->table = InvalidOid;
			e->full |= build.full;
			return gstore_refuse(e, build.refused, build.refused_as);
		}
	}
	return true;
}

/* ---- the whole */

static bool
emit_query(gstore_compiled *c, gstore_emitter *e)
{
	gquery_program *p = e->program;
	List		   *late;

	gstore_start_program(p);
	c->distances.count = 0;
	initStringInfo(&c->distances.queries);
	e->distances = &c->distances;
	e->relation = c->query.relation;
	e->table = c->query.table;
	e->joins = c->query.joins;
	e->batch = c->query.batch;
	e->batched = c->query.batched;
	e->lazy = c->query.sink == GSTORE_SINK_MARKS || c->query.sink == GSTORE_SINK_ROWS;
	c->raises = false;
	if (!emit_builds(c, e) || !emit_outer_filters(c, e, &late) ||
		!gstore_join_emit(e, c->query.joins, &c->raises) || !gstore_emit_filters(c, e, late) ||
		!emit_sink(c, e))
		return false;
	c->state_words = (int) p->state_words;
	return gstore_check_program(p) && gstore_emit_stages(c, e);
}

/* ---- the passes */

static gstore_compiled *
create_compiled(const gstore_query *query)
{
	const Size		 count = (Size) list_length(query->aggregates);
	gstore_compiled *c = palloc0(sizeof *c);

	c->query = *query;
	c->accumulators = palloc0(sizeof *c->accumulators * count_accumulators(query));
	c->outputs = palloc0(sizeof *c->outputs * (count + 1));
	c->key_types = palloc0(sizeof *c->key_types * (Size) (list_length(query->keys) + 1));
	c->key_scales = palloc0(sizeof *c->key_scales * (Size) (list_length(query->keys) + 1));
	c->key_late = palloc0(sizeof *c->key_late * (Size) (list_length(query->keys) + 1));
	if (query->joins != NIL)
		c->builds = palloc(sizeof *c->builds * (Size) list_length(query->joins));
	return c;
}

/* The relations of texts that have numbers, one for each. */
static List *
list_numbered(const gstore_query *query, const gquery_program *program)
{
	List *out = NIL;

	for (uint32 i = 0; i < program->column_count; i++)
	{
		const gquery_column		*column = &program->columns[i];
		const gstore_query_join *join = column->table == 0 || column->table > GQUERY_JOINS_MAX
			? NULL
			: list_nth(query->joins, (int) column->table - 1);

		if (gquery_is_numbered(column))
			out = lappend_int(out, (int) (join == NULL ? query->relation : join->relation));
	}
	return out;
}

bool
gstore_query_measure(const gstore_query *query, gstore_query_size *size)
{
	gstore_compiled *c = create_compiled(query);
	gstore_emitter	 e = {.program = palloc(sizeof(gquery_program)), .unset = query->unset};
	const bool		 done = emit_query(c, &e);

	if (!done)
		gstore_report_refused(&e);
	*size = (gstore_query_size){
		(int) e.program->code_count,	 e.columns,	   c->raises, gstore_query_kind_of(c),
		list_numbered(query, e.program), c->late_count};
	pfree(e.program);
	if (c->builds != NULL)
		pfree(c->builds);
	if (c->stages != NULL)
		pfree(c->stages);
	return done;
}

gstore_compiled *
gstore_query_prepare(const gstore_query *query, PlanState *parent)
{
	gstore_compiled *c = create_compiled(query);
	gstore_emitter	 e = {.program = palloc(sizeof(gquery_program)), .parent = parent};

	if (!OidIsValid(query->table) && !query->batched)
		c->query.table = exec_rt_fetch(query->relation, parent->state)->relid;
	c->prepared = emit_query(c, &e);
	c->values = e.values;
	pfree(e.program);
	return c;
}

bool
gstore_query_is_prepared(const gstore_compiled *c)
{
	return c->prepared;
}

/* False: none is seen, or it is not known, as the bitmap of those that are deleted for all is on the device. */
static bool
has_row(const gstore_view *view)
{
	uint64 row = 0;

	if (view->rows > 8 * Max(view->dead_bytes, view->deleted_bytes))
		return true;
	if (view->deleted_bytes > 0)
		return view->dead_bytes == 0 && view->live_rows > 0;
	while (row + 8 <= view->rows && view->dead[row / 8] == 0xff)
		row += 8;
	while (row < view->rows && gstore_view_is_dead(view, row))
		row++;
	return row < view->rows;
}

bool
gstore_query_compile(gstore_compiled *c, ExprContext *context, const gstore_view *views, bool asked,
					 uint64 met, gquery_program *program)
{
	gstore_emitter e = {.program = program,
						.values = c->values,
						.context = context,
						.view = views,
						.unset = gstore_unset_now(context),
						.certain = asked && has_row(&views[0]),
						.met = met};
	const bool	   done = c->prepared && emit_query(c, &e) && !e.unprepared;

	c->behind = e.behind;
	c->outdated = e.unprepared;
	return done;
}

bool
gstore_query_is_outdated(const gstore_compiled *c)
{
	return c->outdated;
}

uint64
gstore_query_behind(const gstore_compiled *c)
{
	return c->behind;
}

int
gstore_query_builds(const gstore_compiled *c, const gquery_program **builds)
{
	*builds = c->builds;
	return list_length(c->query.joins);
}

gstore_query_kind
gstore_query_kind_of(const gstore_compiled *c)
{
	if (c->query.joins != NIL)
		return GSTORE_QUERY_JOIN;
	switch (c->query.sink)
	{
		case GSTORE_SINK_GROUPS:
			return GSTORE_QUERY_AGGREGATE;
		case GSTORE_SINK_MARKS:
			return GSTORE_QUERY_FILTER;
		case GSTORE_SINK_LIST:
			return c->distances.count > 0 ? GSTORE_QUERY_SEARCH : GSTORE_QUERY_ORDER;
		case GSTORE_SINK_NEAREST:
			return GSTORE_QUERY_SEARCH;
		case GSTORE_SINK_ROWS:
		case GSTORE_SINK_FIRST_ROWS:
			break;
	}
	return GSTORE_QUERY_JOIN;
}

int
gstore_query_record_words(const gstore_compiled *c)
{
	return c->entry_words + 1 + c->key_words + c->state_words;
}

bool
gstore_query_gathered(const gstore_compiled *c, const uint32 **places, int *count, int *vector_words)
{
	*places = c->gathered;
	*count = c->query.sink == GSTORE_SINK_ROWS ? c->key_words : c->gathered_count;
	*vector_words = c->query.gathers_vectors ? (int) (c->distances.wanted[0].stride + 7) / 8 : 0;
	return c->gathers;
}

int
gstore_query_entry_words(const gstore_compiled *c)
{
	return c->entry_words;
}

int
gstore_query_stages(const gstore_compiled *c, const gquery_program **stages)
{
	*stages = c->stages;
	return c->stage_count;
}

int
gstore_query_distances(const gstore_compiled *c, const gquery_wanted_distance **wanted,
					   const void **queries, Size *bytes)
{
	*wanted = c->distances.wanted;
	*queries = c->distances.queries.data;
	*bytes = (Size) c->distances.queries.len;
	return c->distances.count;
}

int
gstore_query_texts(const gstore_compiled *c, gquery_wanted_text *texts)
{
	for (int i = 0; i < c->text_count; i++)
		texts[i] = c->texts[i].wanted;
	return c->text_count;
}
