/*
 * See query_compile.h.
 *
 * Conditions, then keys, then aggregates. What several aggregates need of one argument is computed once: an *accumulator* is an
 * argument under a condition, with the words of the state that it is added to. That no value was not NULL is known by a count;
 * where none of the values can be NULL, by a count of rows, which all arguments share, or by the group itself.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_aggregate.h"
#include "nodes/nodeFuncs.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"

#include "postgres/decimal.h"
#include "postgres/qual.h"
#include "postgres/query_compile.h"
#include "postgres/query_distance.h"
#include "postgres/query_expr.h"
#include "postgres/query_join.h"

typedef struct accumulator
{
	Node  *argument;			  /* NULL: rows are counted */
	Node  *filter;				  /* NULL: of all rows */
	uint32 wanted;				  /* a bit for each gquery_aggregate */
	bool   counted;				  /* the number of values is wanted, too */
	uint8  at[GQUERY_AGGREGATES]; /* the first word of each that is wanted */
	int	   count_from; /* whose count is that of values: this one's, or one that counts rows; -1: it is not known, and not 0 */
} accumulator;

typedef enum result_kind
{
	RESULT_COUNT,
	RESULT_VALUE,	 /* of the argument's type */
	RESULT_BIGINT,	 /* from a sum */
	RESULT_NUMERIC,	 /* the same */
	RESULT_QUOTIENT, /* of a sum and a count */
	RESULT_FLOAT,	 /* a sum */
	RESULT_FLOAT_QUOTIENT,
} result_kind;

typedef struct aggregate_function
{
	Oid	  function;
	uint8 aggregate; /* gquery_aggregate */
	uint8 result;
} aggregate_function;

/* What an Aggref is made of. */
typedef struct output
{
	const aggregate_function *function;
	Oid						  type;
	int						  accumulator;
} output;

struct gstore_compiled
{
	gstore_query	 query;
	List			*values;	/* of the emitter */
	int				 key_count; /* of a list: words */
	int				 state_words;
	bool			 raises; /* a condition or a key of a list may */
	Oid				*key_types;
	int				 accumulator_count, output_count;
	accumulator		*accumulators;
	output			*outputs;
	gstore_distances distances;
	gquery_program	*builds; /* of inner tables */
};

/* ---- aggregates by their functions */

/* clang-format off */
#define OF_INTEGERS(name, aggregate, result) \
	{F_##name##_INT2, aggregate, result}, {F_##name##_INT4, aggregate, result}, {F_##name##_INT8, aggregate, result}
#define EXTREMES(name, aggregate) \
	OF_INTEGERS(name, aggregate, RESULT_VALUE), \
	{F_##name##_FLOAT4, aggregate, RESULT_VALUE}, {F_##name##_FLOAT8, aggregate, RESULT_VALUE}, \
	{F_##name##_OID, aggregate, RESULT_VALUE}, {F_##name##_DATE, aggregate, RESULT_VALUE}, \
	{F_##name##_TIME, aggregate, RESULT_VALUE}, {F_##name##_TIMESTAMP, aggregate, RESULT_VALUE}, \
	{F_##name##_TIMESTAMPTZ, aggregate, RESULT_VALUE}

static const aggregate_function functions[] = {
	{F_COUNT_, GQUERY_COUNT_ROWS, RESULT_COUNT}, {F_COUNT_ANY, GQUERY_COUNT, RESULT_COUNT},
	{F_SUM_INT2, GQUERY_SUM_I64, RESULT_BIGINT}, {F_SUM_INT4, GQUERY_SUM_I64, RESULT_BIGINT},
	{F_SUM_INT8, GQUERY_SUM_I64, RESULT_NUMERIC}, OF_INTEGERS(AVG, GQUERY_SUM_I64, RESULT_QUOTIENT),
	{F_SUM_FLOAT4, GQUERY_SUM_F64, RESULT_FLOAT}, {F_SUM_FLOAT8, GQUERY_SUM_F64, RESULT_FLOAT},
	{F_AVG_FLOAT4, GQUERY_SUM_F64, RESULT_FLOAT_QUOTIENT}, {F_AVG_FLOAT8, GQUERY_SUM_F64, RESULT_FLOAT_QUOTIENT},
	EXTREMES(MIN, GQUERY_MIN_I64), EXTREMES(MAX, GQUERY_MAX_I64),
	{F_BOOL_AND, GQUERY_AND_I64, RESULT_VALUE}, {F_EVERY, GQUERY_AND_I64, RESULT_VALUE}, {F_BOOL_OR, GQUERY_OR_I64, RESULT_VALUE},
	OF_INTEGERS(BIT_AND, GQUERY_AND_I64, RESULT_VALUE), OF_INTEGERS(BIT_OR, GQUERY_OR_I64, RESULT_VALUE),
	OF_INTEGERS(BIT_XOR, GQUERY_XOR_I64, RESULT_VALUE),
};
/* clang-format on */

static const aggregate_function *
find_aggregate(const Aggref *a)
{
	if (a->aggkind != AGGKIND_NORMAL || a->aggdistinct != NIL || a->aggorder != NIL ||
		a->aggdirectargs != NIL || a->aggvariadic || a->agglevelsup != 0 ||
		a->aggsplit != AGGSPLIT_SIMPLE || list_length(a->args) > 1)
		return NULL;
	for (Size i = 0; i < lengthof(functions); i++)
		if (functions[i].function == a->aggfnoid)
			return &functions[i];
	return NULL;
}

static int
find_accumulator(gstore_compiled *c, Node *argument, Node *filter)
{
	for (int i = 0; i < c->accumulator_count; i++)
		if (equal(c->accumulators[i].argument, argument) && equal(c->accumulators[i].filter, filter))
			return i;
	c->accumulators[c->accumulator_count] = (accumulator){
		.argument = argument, .filter = filter, .count_from = -1};
	return c->accumulator_count++;
}

static bool
add_output(gstore_compiled *c, const Aggref *aggregate)
{
	output		*o = &c->outputs[c->output_count++];
	Node		*argument = NULL;
	accumulator *a;

	o->function = find_aggregate(aggregate);
	if (o->function == NULL)
		return false;
	if (aggregate->args != NIL)
		argument = (Node *) linitial_node(TargetEntry, aggregate->args)->expr;
	o->type = aggregate->aggtype;
	o->accumulator = find_accumulator(c, argument, (Node *) aggregate->aggfilter);
	a = &c->accumulators[o->accumulator];
	if (o->function->aggregate == GQUERY_COUNT || o->function->result == RESULT_QUOTIENT ||
		o->function->result == RESULT_FLOAT_QUOTIENT)
		a->counted = true;
	if (o->function->aggregate != GQUERY_COUNT)
		a->wanted |= 1u << o->function->aggregate;
	return true;
}

static bool
plan_outputs(gstore_compiled *c)
{
	ListCell *cell;

	c->accumulator_count = c->output_count = 0;
	foreach(cell, c->query.aggregates)
		if (!add_output(c, lfirst_node(Aggref, cell)))
			return false;
	return true;
}

/* ---- instructions */

/* The value on the stack goes to each of the words that are wanted of it. */
static bool
emit_words(gstore_emitter *e, accumulator *a, bool is_float)
{
	uint32 left = a->wanted;

	for (int i = 0; i < GQUERY_AGGREGATES; i++)
	{
		const bool	 is_key = is_float && (i == GQUERY_MIN_I64 || i == GQUERY_MAX_I64);
		const uint32 at = e->program->state_words, words = i == GQUERY_SUM_I64 ? 2 : 1;

		if ((left & 1u << i) == 0)
			continue;
		left &= ~(1u << i);
		if (at + words > GQUERY_STATE_MAX || (left != 0 && !gstore_emit(e, GQUERY_COPY, 0, 0)) ||
			(is_key && !gstore_emit(e, GQUERY_ORDER_KEY, 0, 1)) ||
			!gstore_emit(e, GQUERY_AGGREGATE, at, (uint32) i))
			return false;
		a->at[i] = (uint8) at;
		e->program->state_words = at + words;
	}
	return true;
}

/* How it is known how many values there were, once it is known whether some are NULL. */
static void
choose_count(gstore_compiled *c, accumulator *a, bool nullable)
{
	if (!nullable && !a->counted && c->query.keys != NIL && a->filter == NULL)
		return;
	if (nullable)
	{
		a->wanted |= 1u << GQUERY_COUNT;
		a->count_from = (int) (a - c->accumulators);
		return;
	}
	a->count_from = find_accumulator(c, NULL, a->filter);
	c->accumulators[a->count_from].wanted |= 1u << GQUERY_COUNT_ROWS;
}

static bool
emit_argument(gstore_compiled *c, gstore_emitter *e, accumulator *a)
{
	const uint32   before = e->program->code_count;
	gstore_emitted value;

	if (!gstore_emit_expression(e, a->argument, &value))
		return false;
	choose_count(c, a, value.nullable || value.raises);
	if (a->wanted != 0)
		return emit_words(e, a, gstore_is_float(value.type));
	e->program->code_count = before; /* rows alone are counted */
	return true;
}

static bool
emit_accumulator(gstore_compiled *c, gstore_emitter *e, accumulator *a)
{
	gstore_emitted condition;
	bool		   done;

	if (a->filter != NULL &&
		(!gstore_emit_expression(e, a->filter, &condition) || !gstore_emit(e, GQUERY_IF, 0, 0)))
		return false;
	e->guarded += a->filter != NULL;
	done = a->argument != NULL ? emit_argument(c, e, a) : emit_words(e, a, false);
	e->guarded -= a->filter != NULL;
	return done && (a->filter == NULL || gstore_emit(e, GQUERY_END, 0, 0));
}

/* Those that count rows come last: others add to what is wanted of them. */
static bool
emit_accumulators(gstore_compiled *c, gstore_emitter *e)
{
	for (int i = 0; i < c->accumulator_count; i++)
		if (c->accumulators[i].argument != NULL && !emit_accumulator(c, e, &c->accumulators[i]))
			return false;
	for (int i = 0; i < c->accumulator_count; i++)
		if (c->accumulators[i].argument == NULL && !emit_accumulator(c, e, &c->accumulators[i]))
			return false;
	return true;
}

/* PostgreSQL has one group of 0 and -0, and one of all NaNs, and shows the first of them: doubles are no keys here. */
static bool
emit_keys(gstore_compiled *c, gstore_emitter *e)
{
	gstore_emitted key;
	ListCell	  *cell;

	c->key_count = 0;
	if (list_length(c->query.keys) > GQUERY_KEYS_MAX)
		return false;
	foreach(cell, c->query.keys)
	{
		if (!gstore_emit_expression(e, lfirst(cell), &key) || gstore_is_float(key.type))
			return false;
		c->key_types[c->key_count++] = key.type;
	}
	return c->key_count == 0 || gstore_emit(e, GQUERY_GROUP, (uint32) c->key_count, 0);
}

static bool
emit_filters(gstore_compiled *c, gstore_emitter *e)
{
	gstore_emitted condition;
	ListCell	  *cell;

	c->raises = false;
	foreach(cell, c->query.filters)
	{
		e->condition = lfirst(cell);
		if (!gstore_emit_expression(e, e->condition, &condition) ||
			!gstore_emit(e, GQUERY_FILTER, 0, 0))
			return false;
		c->raises |= condition.raises;
		e->certain = false;
	}
	e->condition = NULL;
	return true;
}

/* ---- keys of lists, which ascend as int64: whether the value is NULL, if it may be, before the value */

static bool
emit_null_as_zero(gstore_emitter *e)
{
	return gstore_emit(e, GQUERY_COPY, 0, 0) && gstore_emit(e, GQUERY_IS_NULL, 0, 0) &&
		gstore_emit(e, GQUERY_IF, 0, 0) && gstore_emit(e, GQUERY_CONSTANT, 0, 0) &&
		gstore_emit(e, GQUERY_REPLACE, 0, 0) && gstore_emit(e, GQUERY_END, 0, 0);
}

static bool
emit_key(gstore_emitter *e, Node *key, gstore_emitted *out)
{
	return gstore_emit_distance(e, key, out) || gstore_emit_expression(e, key, out);
}

static bool
emit_list_key(gstore_compiled *c, gstore_emitter *e, Node *key, int direction)
{
	gstore_emitted value;

	if (!emit_key(e, key, &value))
		return false;
	if (value.nullable)
	{
		if (!gstore_emit(e, GQUERY_IS_NULL, 0, 0) ||
			((direction & GSTORE_KEY_NULLS_FIRST) != 0 && !gstore_emit(e, GQUERY_NOT, 0, 0)) ||
			!emit_key(e, key, &value) || !emit_null_as_zero(e))
			return false;
		c->key_count++;
	}
	c->key_count++;
	c->raises |= value.raises;
	return (!gstore_is_float(value.type) || gstore_emit(e, GQUERY_ORDER_KEY, 0, 0)) &&
		((direction & GSTORE_KEY_DESCENDING) == 0 || gstore_emit(e, GQUERY_INVERT, 0, 0));
}

static bool
emit_list_keys(gstore_compiled *c, gstore_emitter *e)
{
	ListCell *key, *direction;

	c->key_count = 0;
	c->distances.count = 0;
	initStringInfo(&c->distances.queries);
	e->distances = &c->distances;
	forboth(key, c->query.keys, direction, c->query.directions)
		if (!emit_list_key(c, e, lfirst(key), lfirst_int(direction)))
			return false;
	return c->key_count <= GQUERY_KEYS_MAX && gstore_emit(e, GQUERY_EMIT, (uint32) c->key_count, 0);
}

static bool
emit_sink(gstore_compiled *c, gstore_emitter *e)
{
	switch (c->query.sink)
	{
		case GSTORE_SINK_MARKS:
			return gstore_emit(e, GQUERY_MARK, 0, 0);
		case GSTORE_SINK_LIST:
			return emit_list_keys(c, e);
		default:
			return plan_outputs(c) && emit_keys(c, e) && emit_accumulators(c, e);
	}
}

static void
start_program(gquery_program *program)
{
	program->column_count = program->code_count = program->value_count = program->state_words = 0;
}

static bool
check_program(const gquery_program *program)
{
	gquery_shape shape;
	char		 problem[128];

	if (gquery_check(program, &shape, problem))
		return true;
	elog(DEBUG1, "a query is not for the GPU: %s", problem);
	return false;
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
		gstore_emitter			 build = {.program = &c->builds[i],
										  .relation = join->relation,
										  .values = e->values,
										  .parent = e->parent,
										  .context = e->context,
										  .unset = e->unset,
										  .evaluates_all = e->evaluates_all,
										  .view = e->view == NULL ? NULL : e->view + 1 + i};
		bool					 done;

		start_program(build.program);
		done = gstore_join_emit_build(&build, join, &c->raises) && check_program(build.program);
		e->values = build.values;
		if (!done)
			return false;
	}
	return true;
}

static bool
emit_query(gstore_compiled *c, gstore_emitter *e)
{
	gquery_program *p = e->program;

	start_program(p);
	e->relation = c->query.relation;
	e->joins = c->query.joins;
	if (!emit_filters(c, e) || !gstore_join_emit(e, c->query.joins, &c->raises) || !emit_sink(c, e))
		return false;
	c->state_words = (int) p->state_words;
	return check_program(p) && emit_builds(c, e);
}

/* ---- the passes */

/* Of each aggregate two accumulators at most, as one that counts rows may come with it. */
static gstore_compiled *
create_compiled(const gstore_query *query)
{
	const Size		 count = (Size) list_length(query->aggregates);
	gstore_compiled *c = palloc0(sizeof *c);

	c->query = *query;
	c->accumulators = palloc0(sizeof *c->accumulators * (2 * count + 1));
	c->outputs = palloc0(sizeof *c->outputs * (count + 1));
	c->key_types = palloc0(sizeof *c->key_types * (Size) (list_length(query->keys) + 1));
	if (query->joins != NIL)
		c->builds = palloc(sizeof *c->builds * (Size) list_length(query->joins));
	return c;
}

bool
gstore_query_measure(const gstore_query *query, gstore_query_size *size)
{
	gstore_compiled *c = create_compiled(query);
	gstore_emitter	 e = {.program = palloc(sizeof(gquery_program)), .unset = query->unset};
	const bool		 done = emit_query(c, &e);

	*size = (gstore_query_size){(int) e.program->code_count, e.columns, c->raises};
	pfree(e.program);
	if (c->builds != NULL)
		pfree(c->builds);
	return done;
}

gstore_compiled *
gstore_query_prepare(const gstore_query *query, PlanState *parent)
{
	gstore_compiled *c = create_compiled(query);
	gstore_emitter	 e = {.program = palloc(sizeof(gquery_program)), .parent = parent};

	(void) emit_query(c, &e);
	c->values = e.values;
	pfree(e.program);
	return c;
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
gstore_query_compile(gstore_compiled *c, ExprContext *context, const gstore_view *views,
					 bool evaluates_all, gquery_program *program)
{
	gstore_emitter e = {.program = program,
						.values = c->values,
						.context = context,
						.view = views,
						.unset = gstore_unset_now(context),
						.certain = has_row(&views[0]),
						.evaluates_all = evaluates_all};

	return emit_query(c, &e);
}

int
gstore_query_builds(const gstore_compiled *c, const gquery_program **builds)
{
	*builds = c->builds;
	return list_length(c->query.joins);
}

int
gstore_query_record_words(const gstore_compiled *c)
{
	return 1 + c->key_count + c->state_words;
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

/* ---- results */

static const uint64 *
state_of(const gstore_compiled *c, const uint64 *record)
{
	return record + 1 + c->key_count;
}

/* How many values an aggregate had; at least that it was not 0. */
static int64
count_of(const gstore_compiled *c, const accumulator *a, const uint64 *state)
{
	const accumulator *from = a->count_from < 0 ? NULL : &c->accumulators[a->count_from];

	if (a->argument == NULL)
		return (int64) state[a->at[GQUERY_COUNT_ROWS]];
	if (from == NULL)
		return 1;
	return (int64) state[from->at[from == a ? GQUERY_COUNT : GQUERY_COUNT_ROWS]];
}

static gstore_decimal
sum_of(const accumulator *a, const uint64 *state)
{
	const uint64 *words = state + a->at[GQUERY_SUM_I64];

	return (gstore_decimal) (((unsigned __int128) words[1] << 64) | words[0]);
}

static Datum
numeric_of(gstore_decimal sum)
{
	struct varlena *numeric = palloc(GSTORE_NUMERIC_BYTES);

	if (!gstore_decimal_fits(sum, GSTORE_DECIMAL_PRECISION_MAX))
		elog(ERROR, "a sum from the GPU is out of range");
	gstore_decimal_to_numeric(sum, 0, numeric);
	return PointerGetDatum(numeric);
}

static Datum
bigint_of(gstore_decimal sum)
{
	if (sum < PG_INT64_MIN || sum > PG_INT64_MAX)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE), errmsg("bigint out of range")));
	return Int64GetDatum((int64) sum);
}

static double
float_sum_of(const accumulator *a, const uint64 *state)
{
	double sum;

	memcpy(&sum, &state[a->at[GQUERY_SUM_F64]], sizeof sum);
	return sum;
}

static Datum
float_of(double sum, Oid type)
{
	if (type != FLOAT4OID)
		return Float8GetDatum(sum);
	if (isinf((float4) sum) && !isinf(sum))
		float_overflow_error();
	return Float4GetDatum((float4) sum);
}

static Datum
value_of(const output *o, const accumulator *a, const uint64 *state)
{
	const int	aggregate = o->function->aggregate;
	const int64 word = (int64) state[a->at[aggregate]];

	return gstore_stack_value(gstore_is_float(o->type) ? gstore_order_value(word) : word, o->type);
}

static Datum
output_of(const gstore_compiled *c, const output *o, const uint64 *state, bool *null)
{
	const accumulator *a = &c->accumulators[o->accumulator];
	const int64		   count = count_of(c, a, state);

	*null = false;
	if (o->function->result == RESULT_COUNT)
		return Int64GetDatum(count);
	*null = count == 0;
	if (*null)
		return (Datum) 0;
	switch ((result_kind) o->function->result)
	{
		case RESULT_BIGINT:
			return bigint_of(sum_of(a, state));
		case RESULT_NUMERIC:
			return numeric_of(sum_of(a, state));
		case RESULT_QUOTIENT:
			return DirectFunctionCall2(numeric_div, numeric_of(sum_of(a, state)),
									   NumericGetDatum(int64_to_numeric(count)));
		case RESULT_FLOAT:
			return float_of(float_sum_of(a, state), o->type);
		case RESULT_FLOAT_QUOTIENT:
			/* PostgreSQL begins with 0, as it does not with sum(): the average of -0 alone is 0 */
			return Float8GetDatum((0.0 + float_sum_of(a, state)) / (double) count);
		default:
			return value_of(o, a, state);
	}
}

void
gstore_query_result(const gstore_compiled *c, const uint64 *record, Datum *values, bool *nulls)
{
	for (int i = 0; i < c->key_count; i++)
	{
		nulls[i] = (record[0] >> i & 1) != 0;
		values[i] = gstore_stack_value((int64) record[1 + i], c->key_types[i]);
	}
	for (int i = 0; i < c->output_count; i++)
		values[c->key_count + i] = output_of(c, &c->outputs[i], state_of(c, record),
											 &nulls[c->key_count + i]);
}
