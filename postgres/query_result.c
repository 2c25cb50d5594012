/* See query_compile.h: results of groups, of aggregates, and of joined rows, from the records that the executor returns. */
#include "postgres.h"

#include <math.h>

#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "postgres/decimal.h"
#include "postgres/query_compiled.h"
#include "postgres/query_state.h"

static const uint64 *
state_of(const gstore_compiled *c, const uint64 *record)
{
	return record + c->entry_words + 1 + c->key_words;
}

/* How many values an aggregate had; at least that it was not 0. */
static int64
count_of(const gstore_compiled *c, const gstore_accumulator *a, const uint64 *state)
{
	const gstore_accumulator *from = gstore_counter_of(c, a);

	return from == NULL ? 1 : (int64) state[gstore_count_word(a, from)];
}

static gstore_decimal
sum_of(const gstore_accumulator *a, const uint64 *state)
{
	const uint64		   *words = state + a->at[GQUERY_SUM_I64];
	const unsigned __int128 sum = (unsigned __int128) words[1] << 64 | words[0];

	return (gstore_decimal) (a->merged ? sum + ((unsigned __int128) (words[2] + words[4]) << 64) : sum);
}

/* Where no value has the greater scale, the digits behind the smaller one are 0. */
static Datum
numeric_of(const gstore_compiled *c, const gstore_accumulator *a, const uint64 *state)
{
	gstore_decimal sum = sum_of(a, state);
	int			   scale = a->scale;

	if (!gstore_decimal_fits(sum, GSTORE_DECIMAL_PRECISION_MAX))
		elog(ERROR, "a sum from the GPU is out of range");
	if (a->mixed && count_of(c, &c->accumulators[a->full_from], state) == 0)
		for (; scale > a->low; scale--)
			sum /= 10;
	return gstore_decimal_value(sum, scale);
}

static Datum
bigint_of(gstore_decimal sum)
{
	if (sum < PG_INT64_MIN || sum > PG_INT64_MAX)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE), errmsg("bigint out of range")));
	return Int64GetDatum((int64) sum);
}

/* As PostgreSQL adds intervals up: days and times by themselves. */
static Datum
interval_of(const gstore_compiled *c, const gstore_aggregate *o, const uint64 *state)
{
	const gstore_decimal days = sum_of(&c->accumulators[o->other], state);
	const gstore_decimal time = sum_of(&c->accumulators[o->accumulator], state) - days * USECS_PER_DAY;
	Interval			*interval = palloc0(sizeof *interval);

	if (days < PG_INT32_MIN || days > PG_INT32_MAX || time < PG_INT64_MIN || time > PG_INT64_MAX)
		ereport(ERROR, (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("interval out of range")));
	interval->day = (int32) days;
	interval->time = (int64) time;
	return IntervalPGetDatum(interval);
}

static double
float_sum_of(const gstore_accumulator *a, const uint64 *state)
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
value_of(const gstore_aggregate *o, const gstore_accumulator *a, const uint64 *state)
{
	const int	aggregate = o->function->aggregate;
	const int64 word = (int64) state[a->at[aggregate]];

	return gstore_stack_value(gstore_is_float(o->type) ? gstore_order_value(word) : word, o->type,
							  a->scale);
}

/* PostgreSQL may take an average's state for that of a variance of the same values: it has the squares if there is one. */
static Datum
state_of_floats(const gstore_accumulator *a, int64 count, const uint64 *state)
{
	const uint64 *words = state + a->at[GQUERY_MOMENTS_F64];
	double		  values[4], sum, square, squares;

	if ((a->wanted & 1u << GQUERY_MOMENTS_F64) == 0)
		return gstore_state_of_floats(count, float_sum_of(a, state), get_float8_nan());
	memcpy(values, words, sizeof values);
	sum = (a->wanted & 1u << GQUERY_SUM_F64) != 0 ? float_sum_of(a, state)
												  : values[1] * (double) count + values[2];
	square = values[2] * values[2];
	/* The square may be infinite; the quotient is at most the sum of squares. */
	squares = values[3] -
		(isinf(square) ? values[2] / (double) count * values[2] : square / (double) count);
	if (isfinite(squares) && isinf(sum))
		float_overflow_error(); /* of numbers, as PostgreSQL adds them up, too */
	if (!isfinite(squares))
		squares = get_float8_nan();
	return gstore_state_of_floats(count, sum, squares < 0 ? 0 : squares);
}

/* A transition state, where that is not what a result is made of, too. */
static Datum
partial_of(const gstore_compiled *c, const gstore_aggregate *o, const gstore_accumulator *a,
		   const uint64 *state)
{
	gstore_moments m = {.count = count_of(c, a, state)};

	if (gstore_is_float(o->argument))
		return state_of_floats(a, m.count, state);
	m.sum = sum_of(a, state);
	if (o->function->result == RESULT_STATISTIC)
	{
		m.squares = sum_of(&c->accumulators[o->other], state);
		return o->argument == INT8OID ? gstore_state_of_numeric(&m) : gstore_state_of_poly(&m);
	}
	return o->argument == INT8OID
		? gstore_state_of_int8_sum(&m)
		: gstore_state_of_int4_avg(m.count, DatumGetInt64(bigint_of(m.sum)));
}

static Datum
statistic_of(const gstore_compiled *c, const gstore_aggregate *o, const gstore_accumulator *a,
			 const uint64 *state, bool *null)
{
	PGFunction deserialize = o->argument == INT8OID ? numeric_deserialize : numeric_poly_deserialize;

	return gstore_state_final(partial_of(c, o, a, state),
							  gstore_is_float(o->argument) ? NULL : deserialize, o->function->final,
							  null);
}

static Datum
output_of(const gstore_compiled *c, const gstore_aggregate *o, const uint64 *state, bool *null)
{
	const gstore_accumulator *a = &c->accumulators[o->accumulator];
	const int64				  count = count_of(c, a, state);

	*null = false;
	if (o->function->result == RESULT_COUNT)
		return Int64GetDatum(count);
	*null = count == 0;
	if (*null)
		return (Datum) 0;
	if (gstore_returns_state(o))
		return partial_of(c, o, a, state);
	switch ((gstore_result_kind) o->function->result)
	{
		case RESULT_BIGINT:
			return bigint_of(sum_of(a, state));
		case RESULT_STATISTIC:
			return statistic_of(c, o, a, state, null);
		case RESULT_NUMERIC:
			return numeric_of(c, a, state);
		case RESULT_QUOTIENT:
			return DirectFunctionCall2(numeric_div, numeric_of(c, a, state),
									   NumericGetDatum(int64_to_numeric(count)));
		case RESULT_INTERVAL:
			return interval_of(c, o, state);
		case RESULT_INTERVAL_QUOTIENT:
			return DirectFunctionCall2(interval_div, interval_of(c, o, state),
									   Float8GetDatum((double) count));
		case RESULT_FLOAT:
			return float_of(float_sum_of(a, state), o->type);
		case RESULT_FLOAT_QUOTIENT:
			/* PostgreSQL begins with 0, as it does not with sum(): the average of -0 alone is 0 */
			return Float8GetDatum((0.0 + float_sum_of(a, state)) / (double) count);
		default:
			return value_of(o, a, state);
	}
}

static Datum
key_of(const gstore_compiled *c, int key, const int64 *words)
{
	const Oid type = c->key_types[key];

	if (type == UUIDOID)
		return gstore_uuid_value(words[0], words[1]);
	if (gstore_key_words(c, type) == 2)
		return gstore_decimal_value(
			(gstore_decimal) ((unsigned __int128) words[1] << 64 | (uint64) words[0]),
			c->key_scales[key]);
	return gstore_stack_value(words[0], type, c->key_scales[key]);
}

void
gstore_query_result(const gstore_compiled *c, const uint64 *record, const uint32 *text_words,
					Datum *values, bool *nulls)
{
	const uint64 *nulls_of = record + c->entry_words, *texts = record + gstore_query_record_words(c);
	int			  word = 0, text = 0;

	for (int i = 0; i < c->key_count; i++)
	{
		if (c->key_late[i] != 0)
			continue;
		nulls[i] = (*nulls_of >> word & 1) != 0;
		if (gstore_is_text(c->key_types[i]))
		{
			values[i] = gstore_text_value(texts, text_words[text], c->texts[text].trimmed);
			texts += text_words[text++];
		}
		else if (!nulls[i])
			values[i] = key_of(c, i, (const int64 *) &nulls_of[1 + word]);
		word += gstore_key_words(c, c->key_types[i]);
	}
	for (int i = 0; i < c->output_count; i++)
		values[c->key_count + i] = output_of(c, &c->outputs[i], state_of(c, record),
											 &nulls[c->key_count + i]);
}

int
gstore_query_late(const gstore_compiled *c, int key)
{
	return c->key_late[key];
}

bool
gstore_query_row(const gstore_compiled *c, const uint64 *record, int table, uint64 *row)
{
	if (c->query.sink == GSTORE_SINK_FIRST_ROWS)
	{
		*row = record[c->row_words[table]];
		return *row != PG_UINT64_MAX;
	}
	record += c->entry_words;
	*row = record[1 + c->row_words[table]];
	return (record[0] >> c->row_words[table] & 1) == 0;
}
