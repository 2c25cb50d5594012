/*
 * See query_compiled.h: programs over groups, which are the rows of a *stage*.
 *
 * With DISTINCT the first program groups by its argument, too, and the next one adds up the states of what it puts into one group: the words of an
 * accumulator are those of that stage then. The last stage has HAVING and the order of groups.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

#include "postgres/query_compiled.h"
#include "postgres/query_enum.h"

/* ---- stages: what groups have, and their order */

/* Keys, then aggregates; -1: it is none of these. */
static int
place_in_tuple(const gstore_compiled *c, const Node *node)
{
	const int key_count = list_length(c->query.keys);

	if (IsA(node, Var) && ((const Var *) node)->varno == INDEX_VAR)
		return ((const Var *) node)->varattno - 1;
	for (int i = 0; i < key_count; i++)
		if (equal(list_nth(c->query.keys, i), node))
			return i;
	for (int i = 0; i < c->output_count; i++)
		if (equal(list_nth(c->query.aggregates, i), node))
			return key_count + i;
	return -1;
}

/* A word of the groups before: a key, or one of the state behind the keys. */
static bool
emit_group_word(gstore_emitter *e, uint32 number, gquery_form form)
{
	gquery_program *p = e->program;
	uint32			at = 0;

	while (at < p->column_count && p->columns[at].number != number)
		at++;
	if (at == GQUERY_COLUMNS_MAX)
		return false;
	if (at == p->column_count)
		p->columns[p->column_count++] = (gquery_column){
			.table = GQUERY_GROUPS, .number = number, .form = form};
	return gstore_emit(e, GQUERY_LOAD, at, 0);
}

/* The first word of a key, or, behind the last one, of the state. */
static uint32
key_at(const gstore_compiled *c, int key)
{
	uint32 at = 0;

	for (int i = 0; i < key; i++)
		at += (uint32) gstore_stack_words(c->key_types[i]);
	return at;
}

static bool
emit_state_word(const gstore_compiled *c, gstore_emitter *e, uint32 at, gquery_form form)
{
	return emit_group_word(e, key_at(c, list_length(c->query.keys)) + at, form);
}

/* Boolean: whether there were values, by the operator. */
static bool
emit_counted(const gstore_compiled *c, gstore_emitter *e, const gstore_accumulator *a, gquery_op op)
{
	return emit_state_word(c, e, gstore_count_word(a, gstore_counter_of(c, a)), GQUERY_I64) &&
		gstore_emit_constant(e, 0) && gstore_emit(e, op, 0, GQUERY_ORDER_I64);
}

/* GQUERY_ORDER_KEY the other way: a negative key may have the bits of a NaN. */
static bool
emit_key_as_double(gstore_emitter *e)
{
	return gstore_emit(e, GQUERY_COPY, 0, 0) && gstore_emit_constant(e, 0) &&
		gstore_emit(e, GQUERY_LT, 0, GQUERY_ORDER_I64) && gstore_emit(e, GQUERY_IF, 0, 0) &&
		gstore_emit(e, GQUERY_INVERT, 0, 0) && gstore_emit(e, GQUERY_INVERT, 0, 1) &&
		gstore_emit(e, GQUERY_END, 0, 0);
}

/* Where there were values. */
static bool
emit_output_value(const gstore_compiled *c, gstore_emitter *e, const gstore_aggregate *o,
				  gstore_emitted *out)
{
	const gstore_accumulator *a = &c->accumulators[o->accumulator];
	const uint32			  at = a->at[o->function->aggregate];

	out->type = getBaseType(o->type);
	switch ((gstore_result_kind) o->function->result)
	{
		case RESULT_VALUE:
			out->scale = a->scale;
			return emit_state_word(c, e, at, GQUERY_I64) &&
				(!gstore_is_float(out->type) || emit_key_as_double(e)) &&
				(!type_is_enum(out->type) || gstore_emit_enum_value(e));
		case RESULT_BIGINT:
			return emit_state_word(c, e, at, GQUERY_I64);
		case RESULT_FLOAT:
			out->raises = out->type == FLOAT4OID;
			return emit_state_word(c, e, at, GQUERY_F64) &&
				(out->type != FLOAT4OID || gstore_emit(e, GQUERY_F64_TO_F32, 0, 0));
		case RESULT_FLOAT_QUOTIENT:
			out->raises = true;
			return emit_state_word(c, e, at, GQUERY_F64) &&
				emit_state_word(c, e, gstore_count_word(a, gstore_counter_of(c, a)), GQUERY_I64) &&
				gstore_emit(e, GQUERY_I64_TO_F64, 0, 0) &&
				gstore_emit(e, GQUERY_DIVIDE, 0, GQUERY_ARITHMETIC_F64);
		default:
			return false;
	}
}

static bool
emit_output(const gstore_compiled *c, gstore_emitter *e, const gstore_aggregate *o, gstore_emitted *out)
{
	const gstore_accumulator *a = &c->accumulators[o->accumulator];

	*out = (gstore_emitted){.type = INT8OID, .nullable = gstore_counter_of(c, a) != NULL};
	if (o->function->result == RESULT_COUNT)
	{
		out->nullable = false;
		return emit_state_word(c, e, gstore_count_word(a, gstore_counter_of(c, a)), GQUERY_I64);
	}
	if (!out->nullable)
		return emit_output_value(c, e, o, out);
	return gstore_emit(e, GQUERY_NULL, 0, 0) && emit_counted(c, e, a, GQUERY_GT) &&
		gstore_emit(e, GQUERY_IF, 0, 0) && emit_output_value(c, e, o, out) &&
		gstore_emit(e, GQUERY_REPLACE, 0, 0) && gstore_emit(e, GQUERY_END, 0, 0);
}

/* Decimals are not computed with, as one may be NaN. */
static bool
emit_group_value(gstore_emitter *e, Node *node, int which, gstore_emitted *out)
{
	const gstore_compiled *c = e->groups;
	const int			   key_count = list_length(c->query.keys), place = place_in_tuple(c, node);

	if (place < 0 || (e->computing > 0 && getBaseType(exprType(node)) == NUMERICOID))
		return false;
	if (place >= key_count)
		return emit_output(c, e, &c->outputs[place - key_count], out);
	if (gstore_is_text(c->key_types[place])) /* the group has its number alone */
		return false;
	*out = (gstore_emitted){
		.type = c->key_types[place], .nullable = true, .scale = c->key_scales[place]};
	return emit_group_word(e, key_at(c, place) + (uint32) which, GQUERY_I64);
}

/* A sum of 128 bits: its high half, then its low one without a sign. Where there were no values it is 0. */
static bool
emit_wide_key(gstore_compiled *c, gstore_emitter *e, const gstore_aggregate *o, int direction)
{
	const gstore_accumulator *a = &c->accumulators[o->accumulator];
	const uint32			  at = a->at[GQUERY_SUM_I64];
	const bool				  descending = (direction & GSTORE_KEY_DESCENDING) != 0;

	if (a->merged)
		return false;
	if (gstore_counter_of(c, a) != NULL)
	{
		c->key_words++;
		if (!emit_counted(c, e, a, (direction & GSTORE_KEY_NULLS_FIRST) != 0 ? GQUERY_NE : GQUERY_EQ))
			return false;
	}
	c->key_words += 2;
	return emit_state_word(c, e, at + 1, GQUERY_I64) &&
		(!descending || gstore_emit(e, GQUERY_INVERT, 0, 0)) &&
		emit_state_word(c, e, at, GQUERY_I64) && gstore_emit(e, GQUERY_INVERT, 0, 1) &&
		(!descending || gstore_emit(e, GQUERY_INVERT, 0, 0));
}

static bool
emit_order_key(gstore_compiled *c, gstore_emitter *e, Node *key, int direction)
{
	const int place = place_in_tuple(c, key) - list_length(c->query.keys);

	if (place >= 0 && c->outputs[place].function->result == RESULT_NUMERIC)
		return emit_wide_key(c, e, &c->outputs[place], direction);
	return gstore_emit_list_key(c, e, key, direction);
}

static bool
emit_order(gstore_compiled *c, gstore_emitter *e)
{
	const int key_words = c->key_words;
	ListCell *key, *direction;

	c->key_words = 0;
	forboth(key, c->query.order, direction, c->query.order_directions)
		if (!emit_order_key(c, e, lfirst(key), lfirst_int(direction)))
			return false;
	if (c->query.order == NIL) /* a list has a key */
	{
		c->key_words = 1;
		if (!gstore_emit_constant(e, 0))
			return false;
	}
	c->entry_words = c->key_words + 1;
	c->key_words = key_words;
	return c->entry_words <= GQUERY_KEYS_MAX + 1 &&
		gstore_emit(e, GQUERY_EMIT, (uint32) c->entry_words - 1, 0);
}

/* Of the state before: the two halves of sums. */
static bool
emit_merged_sum(gstore_emitter *e, uint32 number, uint32 at)
{
	return emit_group_word(e, number, GQUERY_I64) &&
		gstore_emit(e, GQUERY_AGGREGATE, at, GQUERY_SUM_I64) &&
		emit_group_word(e, number + 1, GQUERY_I64) &&
		gstore_emit(e, GQUERY_AGGREGATE, at + 2, GQUERY_SUM_I64) &&
		emit_group_word(e, number, GQUERY_I64) && gstore_emit_constant(e, 0) &&
		gstore_emit(e, GQUERY_LT, 0, GQUERY_ORDER_I64) && gstore_emit(e, GQUERY_IF, 0, 0) &&
		gstore_emit(e, GQUERY_AGGREGATE, at + 4, GQUERY_COUNT_ROWS) &&
		gstore_emit(e, GQUERY_END, 0, 0);
}

/* Counts are added up, too, in the first of a sum's words. */
static bool
emit_merged(gstore_emitter *e, gstore_accumulator *a, uint32 keys)
{
	for (uint32 i = 0; i < GQUERY_AGGREGATES; i++)
	{
		const bool	 is_sum = i == GQUERY_SUM_I64, is_count = i <= GQUERY_COUNT;
		const uint32 number = keys + a->at[i], at = e->program->state_words;

		if ((a->wanted & 1u << i) == 0)
			continue;
		if (i == GQUERY_MOMENTS_F64) /* has no instruction that adds up states */
			return false;
		e->program->state_words += is_sum ? 5 : is_count ? 2 : 1;
		if (e->program->state_words > GQUERY_STATE_MAX)
			return false;
		a->merged |= is_sum;
		a->at[i] = (uint8) at;
		if (is_sum ? !emit_merged_sum(e, number, at)
				   : !emit_group_word(e, number, i == GQUERY_SUM_F64 ? GQUERY_F64 : GQUERY_I64) ||
					!gstore_emit(e, GQUERY_AGGREGATE, at, is_count ? GQUERY_SUM_I64 : i))
			return false;
	}
	return true;
}

/* The last key of the groups before is DISTINCT's argument, whose first word tells whether it is NULL. */
static bool
emit_distinct(gstore_compiled *c, gstore_emitter *e)
{
	const uint32 keys = (uint32) c->key_words;

	for (uint32 k = 0; k < keys; k++)
		if (!emit_group_word(e, k, GQUERY_I64))
			return false;
	if (keys > 0 && !gstore_emit(e, GQUERY_GROUP, keys, 0))
		return false;
	for (int i = 0; i < c->accumulator_count; i++)
	{
		gstore_accumulator *a = &c->accumulators[i];

		if (a->distinct ? !emit_group_word(e, keys, GQUERY_I64) || !gstore_emit_words(e, a, InvalidOid)
						: !emit_merged(e, a, keys + (uint32) c->distinct_words))
			return false;
	}
	c->state_words = (int) e->program->state_words;
	return true;
}

static bool
emit_ordered(gstore_compiled *c, gstore_emitter *e)
{
	bool done;

	e->lazy = true;
	done = gstore_emit_filters(c, e, c->query.having);
	e->lazy = false;
	return done && emit_order(c, e);
}

static bool
emit_stage(gstore_compiled *c, gstore_emitter *e, bool (*emit)(gstore_compiled *, gstore_emitter *))
{
	gquery_program *first = e->program;
	bool			done;

	if (c->stages == NULL)
		c->stages = palloc(sizeof *c->stages * GQUERY_STAGES_MAX);
	e->program = &c->stages[c->stage_count++];
	gstore_start_program(e->program);
	e->relation = 0;
	e->joins = NIL;
	e->certain = false; /* there may be no groups */
	e->emit_group = emit_group_value;
	e->groups = c;
	done = emit(c, e) && gstore_check_program(e->program);
	e->emit_group = NULL;
	e->program = first;
	return done;
}

/* ---- all of them */

bool
gstore_emit_stages(gstore_compiled *c, gstore_emitter *e)
{
	c->stage_count = 0;
	if (c->query.sink == GSTORE_SINK_FIRST_ROWS) /* its order is not one of groups */
		return true;
	return (c->distinct == NULL || emit_stage(c, e, emit_distinct)) &&
		((c->query.order == NIL && c->query.having == NIL) || emit_stage(c, e, emit_ordered));
}
