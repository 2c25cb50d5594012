/* See query_decimal.h. */
#include "postgres.h"

#include "utils/fmgroids.h"

#include "postgres/query_decimal.h"

#define SCALE_DIGITS_MAX 18 /* a power of ten that 64 bits have */

bool
gstore_scale_up(gquery_program *p, uint32 at, int digits)
{
	gquery_instruction product[] = {
		{.op = GQUERY_CONSTANT, .value = 1},
		{.op = GQUERY_MULTIPLY, .b = GQUERY_ARITHMETIC_DECIMAL},
	};

	if (digits > SCALE_DIGITS_MAX || p->code_count + lengthof(product) > GQUERY_CODE_MAX)
		return false;
	for (int i = 0; i < digits; i++)
		product[0].value *= 10;
	memmove(&p->code[at + lengthof(product)], &p->code[at], sizeof p->code[0] * (p->code_count - at));
	memcpy(&p->code[at], product, sizeof product);
	p->code_count += lengthof(product);
	return true;
}

bool
gstore_align(gquery_program *p, gstore_emitted *left, uint32 left_end, gstore_emitted *right)
{
	const int scale = Max(left->scale, right->scale);

	if (left->scale != GSTORE_SCALE_ANY && right->scale != GSTORE_SCALE_ANY &&
		left->scale != right->scale)
	{
		const int digits = left->scale - right->scale;

		left->mixed = true;
		if (!gstore_scale_up(p, digits < 0 ? left_end : p->code_count, abs(digits)))
			return false;
	}
	left->scale = right->scale = scale;
	left->mixed |= right->mixed;
	return true;
}

gquery_op
gstore_beside(gquery_op op, int64 *word)
{
	switch (op)
	{
		case GQUERY_LT:
		case GQUERY_LE:
			return GQUERY_LE;
		case GQUERY_GT:
		case GQUERY_GE:
			return GQUERY_GT;
		default:
			*word = PG_INT64_MIN; /* no decimal */
			return op;
	}
}

/* ---- functions */

/* Integers: those of 8 bytes have values that are no decimals here. */
static bool
emit_decimal_of_integer(gstore_emitter *e, Node *argument, bool is_wide, gstore_emitted *out)
{
	if (!gstore_emit_expression(e, argument, out))
		return false;
	out->type = NUMERICOID;
	out->scale = 0;
	return !is_wide || gstore_scale_up(e->program, e->program->code_count, 0);
}

/* The least decimal has no positive one beside it. */
static bool
emit_decimal_sign(gstore_emitter *e, Node *argument, gquery_op op, gstore_emitted *out)
{
	return gstore_emit_expression(e, argument, out) && gstore_emit(e, op, 0, GQUERY_ARITHMETIC_I64) &&
		gstore_scale_up(e->program, e->program->code_count, 0);
}

/* PostgreSQL shows no scale below 0, and goes on with the one that it shows. */
static bool
has_own_scale(const gstore_emitted *decimal)
{
	return decimal->scale >= 0 || decimal->scale == GSTORE_SCALE_ANY;
}

static bool
emit_decimal_pair(gstore_emitter *e, List *args, gquery_op op, gstore_emitted *out)
{
	gstore_emitted other;
	uint32		   end;

	if (!gstore_emit_expression(e, linitial(args), out))
		return false;
	end = e->program->code_count;
	if (!gstore_emit_expression(e, lsecond(args), &other) || !has_own_scale(out) ||
		!has_own_scale(&other))
		return false;
	out->nullable |= other.nullable;
	out->raises |= other.raises;
	if (op != GQUERY_MULTIPLY)
	{
		const bool mixed = out->mixed || other.mixed;

		if (!gstore_align(e->program, out, end, &other))
			return false;
		out->mixed = mixed;
	}
	else
	{
		out->mixed |= other.mixed;
		out->scale = out->scale == GSTORE_SCALE_ANY || other.scale == GSTORE_SCALE_ANY
			? GSTORE_SCALE_ANY
			: out->scale + other.scale;
	}
	return gstore_emit(e, op, 0, GQUERY_ARITHMETIC_DECIMAL);
}

static bool
emit_decimal_arithmetic(gstore_emitter *e, Oid function, List *args, gstore_emitted *out)
{
	switch (function)
	{
		case F_NUMERIC_INT2:
		case F_NUMERIC_INT4:
			return emit_decimal_of_integer(e, linitial(args), false, out);
		case F_NUMERIC_INT8:
			return emit_decimal_of_integer(e, linitial(args), true, out);
		case F_NUMERIC_ADD:
			return emit_decimal_pair(e, args, GQUERY_ADD, out);
		case F_NUMERIC_SUB:
			return emit_decimal_pair(e, args, GQUERY_SUBTRACT, out);
		case F_NUMERIC_MUL:
			return emit_decimal_pair(e, args, GQUERY_MULTIPLY, out);
		case F_NUMERIC_UPLUS:
			return gstore_emit_expression(e, linitial(args), out);
		case F_NUMERIC_UMINUS:
			return emit_decimal_sign(e, linitial(args), GQUERY_NEGATE, out);
		case F_NUMERIC_ABS:
		case F_ABS_NUMERIC:
			return emit_decimal_sign(e, linitial(args), GQUERY_ABS, out);
		default:
			return false;
	}
}

bool
gstore_emit_decimal_function(gstore_emitter *e, Oid function, List *args, gstore_emitted *out)
{
	bool done;

	e->computing++;
	done = emit_decimal_arithmetic(e, function, args, out);
	e->computing--;
	return done;
}
