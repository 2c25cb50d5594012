/* See query_time.h. */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "nodes/nodeFuncs.h"
#include "utils/date.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "postgres/qual.h"
#include "postgres/query_calendar.h"
#include "postgres/query_decimal.h"
#include "postgres/query_time.h"
#include "postgres/query_word.h"

#define DAYS_OF_MONTH 30 /* where intervals are compared */

static bool
is_time(Oid type)
{
	return type == DATEOID || type == TIMESTAMPOID || type == TIMESTAMPTZOID;
}

bool
gstore_are_times(Oid left, Oid right)
{
	return left == INTERVALOID ? right == INTERVALOID
							   : left != right && is_time(left) && is_time(right);
}

/* ---- what is compared with a value that depends on no row */

/* As PostgreSQL compares intervals. False: 64 bits do not have it. */
static bool
span_word(const Interval *interval, int64 *word)
{
	const int64 days = (int64) interval->month * DAYS_OF_MONTH + interval->day;

	return !pg_mul_s64_overflow(days, USECS_PER_DAY, word) &&
		!pg_add_s64_overflow(*word, interval->time, word);
}

/* What a timestamp, or, of TIMESTAMPTZOID, one with a time zone, is compared with. False: it is beyond all timestamps. */
static bool
timestamp_word(Oid left, Oid type, Datum value, int64 *word)
{
	int	  overflow = 0;
	int64 offset;

	if (type == DATEOID && left == TIMESTAMPOID)
		*word = date2timestamp_opt_overflow(DatumGetDateADT(value), &overflow);
	else if (type == DATEOID)
		*word = date2timestamptz_opt_overflow(DatumGetDateADT(value), &overflow);
	else if (left == TIMESTAMPTZOID)
		*word = timestamp2timestamptz_opt_overflow(DatumGetTimestamp(value), &overflow);
	else
	{
		*word = DatumGetTimestampTz(value);
		if (!gstore_find_offset(1, &offset))
			return false;
		return TIMESTAMP_NOT_FINITE(*word) || !pg_add_s64_overflow(*word, offset, word);
	}
	return overflow == 0;
}

/* When a date begins. False: no timestamp has it. */
static bool
begin_of_date(Oid type, DateADT date, TimestampTz *begin)
{
	int overflow = 0;

	*begin = type == TIMESTAMPOID ? date2timestamp_opt_overflow(date, &overflow)
								  : date2timestamptz_opt_overflow(date, &overflow);
	return overflow == 0;
}

/* What a date is compared with in the place of a timestamp. One day may begin when the next one does, where a time zone has left it out. */
static bool
date_word(Oid type, Datum value, gquery_op *op, int64 *word)
{
	const Timestamp t = DatumGetTimestamp(value);
	TimestampTz		before, begin, end;
	DateADT			date;

	if (TIMESTAMP_NOT_FINITE(t))
	{
		*word = TIMESTAMP_IS_NOBEGIN(t) ? DATEVAL_NOBEGIN : DATEVAL_NOEND;
		return true;
	}
	date = DatumGetDateADT(
		DirectFunctionCall1(type == TIMESTAMPOID ? timestamp_date : timestamptz_date, value));
	if (!begin_of_date(type, date - 1, &before) || !begin_of_date(type, date, &begin) ||
		!begin_of_date(type, date + 1, &end) || begin > t || end <= t || before >= begin)
		return false;
	*word = date;
	if (begin != t)
		*op = gstore_beside(*op, word);
	return true;
}

static bool
compared_word(Oid left, Oid type, Datum value, gquery_op *op, int64 *word)
{
	if (left == INTERVALOID)
		return span_word(DatumGetIntervalP(value), word);
	return left == DATEOID ? date_word(type, value, op, word)
						   : timestamp_word(left, type, value, word);
}

static bool
emit_known_compared(gstore_emitter *e, Oid left, Node *right, gquery_op op, gstore_emitted *other)
{
	Datum value;
	bool  null;
	int64 word;

	*other = (gstore_emitted){.nullable = true};
	if (!gstore_evaluate(e, (Expr *) right, &value, &null, &other->raises))
		return gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0) &&
			gstore_emit(e, op, 0, GQUERY_ORDER_I64);
	if (null)
		return gstore_emit(e, GQUERY_NULL, 0, 0) && gstore_emit(e, op, 0, GQUERY_ORDER_I64);
	other->nullable = false;
	return compared_word(left, getBaseType(exprType(right)), value, &op, &word) &&
		gstore_emit_constant(e, word) && gstore_emit(e, op, 0, GQUERY_ORDER_I64);
}

/* ---- two values of rows */

/* Puts the cast of a value between instructions. */
static bool
cast_time(gstore_emitter *e, uint32 at, Oid from, Oid to)
{
	gquery_program	  *p = e->program;
	gquery_instruction cast = {.op = GQUERY_FIELD,
							   .b = GQUERY_TO_TIMESTAMP |
								   (from == DATEOID ? GQUERY_OF_DATE : GQUERY_OF_TIMESTAMP) << 8};
	int64			   offset = 0;

	if (to == TIMESTAMPTZOID && !gstore_find_offset(from == DATEOID ? 1 : -1, &offset))
		return false;
	if (from == to)
		return true;
	if (p->code_count == GQUERY_CODE_MAX)
		return false;
	cast.value = (uint64) offset;
	memmove(&p->code[at + 1], &p->code[at], sizeof p->code[0] * (p->code_count - at));
	p->code[at] = cast;
	p->code_count++;
	return true;
}

bool
gstore_emit_time_compared(gstore_emitter *e, const gstore_emitted *left, uint32 left_end,
						  Node *right, gquery_op op, gstore_emitted *other)
{
	Oid to;

	if (gstore_is_row_independent(right))
		return emit_known_compared(e, left->type, right, op, other);
	if (!gstore_emit_expression(e, right, other))
		return false;
	to = left->type == TIMESTAMPTZOID || other->type == TIMESTAMPTZOID ? TIMESTAMPTZOID : TIMESTAMPOID;
	return (left->type == INTERVALOID ||
			(cast_time(e, e->program->code_count, other->type, to) &&
			 cast_time(e, left_end, left->type, to))) &&
		gstore_emit(e, op, 0, GQUERY_ORDER_I64);
}

/* ---- sums */

static const struct
{
	Oid	 function, type;
	bool subtracts;
} sums[] = {
	{F_DATE_PL_INTERVAL, DATEOID, false},
	{F_DATE_MI_INTERVAL, DATEOID, true},
	{F_TIMESTAMP_PL_INTERVAL, TIMESTAMPOID, false},
	{F_TIMESTAMP_MI_INTERVAL, TIMESTAMPOID, true},
	{F_TIMESTAMPTZ_PL_INTERVAL, TIMESTAMPTZOID, false},
	{F_TIMESTAMPTZ_MI_INTERVAL, TIMESTAMPTZOID, true},
};

static bool
emit_added(gstore_emitter *e, gquery_function function, int64 added, int64 offset)
{
	return added == 0 ||
		(gstore_emit_constant(e, added) &&
		 gstore_emit_instruction(e,
								 (gquery_instruction){.op = GQUERY_FUNCTION,
													  .b = (uint16) function,
													  .value = (uint64) offset}));
}

/* Months, then days, then the time, as PostgreSQL adds them up. A day has 24 hours where local time is always as far from UTC. */
static bool
emit_interval_added(gstore_emitter *e, const Interval *interval, bool subtracts, bool is_local)
{
	const int64 sign = subtracts ? -1 : 1;
	int64		offset = 0, days;

	if (interval->time == PG_INT64_MIN || pg_mul_s64_overflow(interval->day, USECS_PER_DAY, &days))
		return false;
	if (is_local && (interval->month != 0 || interval->day != 0) && !gstore_find_offset(1, &offset))
		return false;
	return emit_added(e, GQUERY_ADD_MONTHS, sign * interval->month, offset) &&
		emit_added(e, GQUERY_ADD_TIME, sign * days, 0) &&
		emit_added(e, GQUERY_ADD_TIME, sign * interval->time, 0);
}

static bool
emit_sum(gstore_emitter *e, int which, List *args, gstore_emitted *out)
{
	Expr *interval = lsecond(args);
	Datum value;
	bool  null, raises;

	if (!gstore_is_row_independent((Node *) interval) ||
		!gstore_emit_expression(e, linitial(args), out))
		return false;
	if (sums[which].type == DATEOID && !cast_time(e, e->program->code_count, DATEOID, TIMESTAMPOID))
		return false;
	out->type = sums[which].type == DATEOID ? TIMESTAMPOID : sums[which].type;
	out->nullable = out->raises = true;
	if (!gstore_evaluate(e, interval, &value, &null, &raises))
		return gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0) && gstore_emit(e, GQUERY_REPLACE, 0, 0);
	if (null)
		return gstore_emit(e, GQUERY_NULL, 0, 0) && gstore_emit(e, GQUERY_REPLACE, 0, 0);
	return emit_interval_added(e, DatumGetIntervalP(value), sums[which].subtracts,
							   out->type == TIMESTAMPTZOID);
}

/* ---- fields of intervals that are differences */

static bool
emit_by_constant(gstore_emitter *e, gquery_op op, int64 by)
{
	return gstore_emit_constant(e, by) && gstore_emit(e, op, 0, GQUERY_ARITHMETIC_I64);
}

/* Decades count from year 0, which is 1 BC; the others have no 0 either, and end with their last year. */
bool
gstore_emit_years(gstore_emitter *e, int years)
{
	const gquery_instruction floor = {
		.op = GQUERY_FUNCTION, .b = GQUERY_FLOOR_I64, .value = (uint64) years};

	if (!gstore_emit(e, GQUERY_COPY, 0, 0))
		return false;
	if (years == 10)
		return gstore_emit_constant(e, 0) && gstore_emit(e, GQUERY_LT, 0, GQUERY_ORDER_I64) &&
			gstore_emit(e, GQUERY_ADD, 0, GQUERY_ARITHMETIC_I64) && gstore_emit_instruction(e, floor);
	return gstore_emit(e, GQUERY_FUNCTION, 0, GQUERY_SIGN_I64) &&
		emit_by_constant(e, GQUERY_MULTIPLY, years - 1) &&
		gstore_emit(e, GQUERY_ADD, 0, GQUERY_ARITHMETIC_I64) &&
		emit_by_constant(e, GQUERY_DIVIDE, years);
}

/* An integer, or, of a second and an epoch, microseconds. Days are what is whole of 24 hours. */
static bool
emit_interval_field(gstore_emitter *e, gquery_field field)
{
	switch (field)
	{
		case GQUERY_DAY:
			return emit_by_constant(e, GQUERY_DIVIDE, USECS_PER_DAY);
		case GQUERY_HOUR:
			return emit_by_constant(e, GQUERY_MODULO, USECS_PER_DAY) &&
				emit_by_constant(e, GQUERY_DIVIDE, USECS_PER_HOUR);
		case GQUERY_MINUTE:
			return emit_by_constant(e, GQUERY_MODULO, USECS_PER_HOUR) &&
				emit_by_constant(e, GQUERY_DIVIDE, USECS_PER_MINUTE);
		case GQUERY_SECOND:
			return emit_by_constant(e, GQUERY_MODULO, USECS_PER_MINUTE);
		case GQUERY_EPOCH: /* it may have too many digits */
			return gstore_scale_up(e->program, e->program->code_count, 0);
		default:
			return false;
	}
}

static bool
emit_double_constant(gstore_emitter *e, double value, gquery_op op)
{
	return gstore_emit_constant(e, gstore_stack_word(Float8GetDatum(value), FLOAT8OID, 0)) &&
		gstore_emit(e, op, 0, GQUERY_ARITHMETIC_F64);
}

/* PostgreSQL adds the seconds of days to those of the time. */
static bool
emit_double_epoch(gstore_emitter *e)
{
	return gstore_emit(e, GQUERY_COPY, 0, 0) && emit_by_constant(e, GQUERY_MODULO, USECS_PER_DAY) &&
		gstore_emit(e, GQUERY_I64_TO_F64, 0, 0) &&
		emit_double_constant(e, (double) USECS_PER_SEC, GQUERY_DIVIDE) &&
		gstore_emit(e, GQUERY_COPY, 1, 0) && emit_by_constant(e, GQUERY_DIVIDE, USECS_PER_DAY) &&
		gstore_emit(e, GQUERY_I64_TO_F64, 0, 0) &&
		emit_double_constant(e, (double) SECS_PER_DAY, GQUERY_MULTIPLY) &&
		gstore_emit(e, GQUERY_ADD, 0, GQUERY_ARITHMETIC_F64) && gstore_emit(e, GQUERY_REPLACE, 0, 0);
}

static bool
emit_field(gstore_emitter *e, List *args, bool is_double, gstore_emitted *out)
{
	gquery_field field;
	int			 years;

	if (!gstore_find_field(linitial(args), false, &field, &years) ||
		!gstore_emit_expression(e, lsecond(args), out) || out->type != INTERVALOID)
		return false;
	if (is_double)
	{
		out->type = FLOAT8OID;
		if (field == GQUERY_EPOCH)
			return emit_double_epoch(e);
		return field != GQUERY_SECOND && emit_interval_field(e, field) &&
			gstore_emit(e, GQUERY_I64_TO_F64, 0, 0);
	}
	out->type = NUMERICOID;
	out->scale = field == GQUERY_SECOND || field == GQUERY_EPOCH ? GSTORE_USECS_DIGITS : 0;
	return emit_interval_field(e, field);
}

bool
gstore_emit_time_function(gstore_emitter *e, Oid function, List *args, gstore_emitted *out)
{
	for (Size i = 0; i < lengthof(sums); i++)
		if (sums[i].function == function)
			return emit_sum(e, (int) i, args, out);
	if (function == F_EXTRACT_TEXT_INTERVAL || function == F_DATE_PART_TEXT_INTERVAL)
		return emit_field(e, args, function == F_DATE_PART_TEXT_INTERVAL, out);
	return false;
}
