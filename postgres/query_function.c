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
			return false;
		case GQUERY_NEGATE:
		case GQUERY_ABS:
			return f->b < GQUERY_ARITHMETIC_F32;
		default:
			return true;
	}
}
