/* See query_function.h. */
#include "postgres.h"

#include "nodes/primnodes.h"
#include "utils/fmgroids.h"

#include "postgres/query_function.h"
#include "postgres/query_word.h"

/* clang-format off */
#define ARITHMETIC(name, kind) \
	{F_##name##PL, GQUERY_ADD, kind}, {F_##name##MI, GQUERY_SUBTRACT, kind}, \
	{F_##name##MUL, GQUERY_MULTIPLY, kind}, {F_##name##DIV, GQUERY_DIVIDE, kind}
#define SIGNS(name, kind) \
	{F_##name##UP, 0, 0}, {F_##name##UM, GQUERY_NEGATE, kind}, {F_##name##ABS, GQUERY_ABS, kind}, \
	{F_ABS_##name, GQUERY_ABS, kind}
#define REMAINDERS(name, kind) \
	{F_##name##MOD, GQUERY_MODULO, kind}, {F_MOD_##name##_##name, GQUERY_MODULO, kind}
#define BITS(name, width) \
	{F_##name##AND, GQUERY_FUNCTION, GQUERY_BITS_AND}, {F_##name##OR, GQUERY_FUNCTION, GQUERY_BITS_OR}, \
	{F_##name##XOR, GQUERY_FUNCTION, GQUERY_BITS_XOR}, {F_##name##NOT, GQUERY_INVERT, 0}, \
	{F_##name##SHL, GQUERY_FUNCTION, GQUERY_SHIFT_LEFT, width}, {F_##name##SHR, GQUERY_FUNCTION, GQUERY_SHIFT_RIGHT, width}

static const gstore_number_function functions[] = {
	ARITHMETIC(INT2, GQUERY_ARITHMETIC_I16), SIGNS(INT2, GQUERY_ARITHMETIC_I16), REMAINDERS(INT2, GQUERY_ARITHMETIC_I16),
	ARITHMETIC(INT4, GQUERY_ARITHMETIC_I32), SIGNS(INT4, GQUERY_ARITHMETIC_I32), REMAINDERS(INT4, GQUERY_ARITHMETIC_I32),
	ARITHMETIC(INT24, GQUERY_ARITHMETIC_I32), ARITHMETIC(INT42, GQUERY_ARITHMETIC_I32),
	ARITHMETIC(INT8, GQUERY_ARITHMETIC_I64), SIGNS(INT8, GQUERY_ARITHMETIC_I64), REMAINDERS(INT8, GQUERY_ARITHMETIC_I64),
	ARITHMETIC(INT28, GQUERY_ARITHMETIC_I64), ARITHMETIC(INT82, GQUERY_ARITHMETIC_I64),
	ARITHMETIC(INT48, GQUERY_ARITHMETIC_I64), ARITHMETIC(INT84, GQUERY_ARITHMETIC_I64),
	ARITHMETIC(FLOAT4, GQUERY_ARITHMETIC_F32), SIGNS(FLOAT4, GQUERY_ARITHMETIC_F32),
	ARITHMETIC(FLOAT8, GQUERY_ARITHMETIC_F64), SIGNS(FLOAT8, GQUERY_ARITHMETIC_F64),
	ARITHMETIC(FLOAT48, GQUERY_ARITHMETIC_F64), ARITHMETIC(FLOAT84, GQUERY_ARITHMETIC_F64),
	BITS(INT2, 16), BITS(INT4, 32), BITS(INT8, 64),
	{F_ROUND_FLOAT8, GQUERY_FUNCTION, GQUERY_ROUND_F64}, {F_DROUND, GQUERY_FUNCTION, GQUERY_ROUND_F64},
	{F_TRUNC_FLOAT8, GQUERY_FUNCTION, GQUERY_TRUNCATE_F64}, {F_DTRUNC, GQUERY_FUNCTION, GQUERY_TRUNCATE_F64},
	{F_FLOOR_FLOAT8, GQUERY_FUNCTION, GQUERY_FLOOR_F64}, {F_CEIL_FLOAT8, GQUERY_FUNCTION, GQUERY_CEILING_F64},
	{F_CEILING_FLOAT8, GQUERY_FUNCTION, GQUERY_CEILING_F64}, {F_SIGN_FLOAT8, GQUERY_FUNCTION, GQUERY_SIGN_F64},
	{F_SQRT_FLOAT8, GQUERY_FUNCTION, GQUERY_SQRT_F64}, {F_DSQRT, GQUERY_FUNCTION, GQUERY_SQRT_F64},
	/* of dates and timestamps */
	{F_DATE_PLI, GQUERY_FUNCTION, GQUERY_ADD_DAYS}, {F_DATE_MII, GQUERY_FUNCTION, GQUERY_SUBTRACT_DAYS},
	{F_DATE_MI, GQUERY_FUNCTION, GQUERY_DAYS_BETWEEN}, {F_TIMESTAMP_MI, GQUERY_FUNCTION, GQUERY_TIME_BETWEEN},
	{F_TIMESTAMPTZ_MI, GQUERY_FUNCTION, GQUERY_TIME_BETWEEN},
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

const gstore_number_function *
gstore_find_function(Oid function)
{
	for (Size i = 0; i < lengthof(functions); i++)
		if (functions[i].function == function)
			return &functions[i];
	return NULL;
}

/* Of integers by a constant other than 0 and -1. */
static bool
divides_safely(const gstore_number_function *f, List *args)
{
	const Const *divisor = llast(args);
	int64		 word;

	if (f->b >= GQUERY_ARITHMETIC_F32 || !IsA(divisor, Const) || divisor->constisnull)
		return false;
	word = gstore_stack_word(divisor->constvalue, divisor->consttype, 0);
	return word != 0 && word != -1;
}

bool
gstore_can_raise(const gstore_number_function *f, List *args)
{
	switch (f->op)
	{
		case GQUERY_DIVIDE:
		case GQUERY_MODULO:
			return !divides_safely(f, args);
		case 0:
		case GQUERY_I64_TO_F64:
		case GQUERY_I64_TO_F32:
		case GQUERY_INVERT:
			return false;
		case GQUERY_FUNCTION:
			return gquery_function_may_raise(f->b);
		case GQUERY_NEGATE:
		case GQUERY_ABS:
			return f->b < GQUERY_ARITHMETIC_F32;
		default:
			return true;
	}
}
