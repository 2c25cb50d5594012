/* See query_decimal.h. */
#include "postgres.h"

#include "utils/fmgroids.h"

#include "postgres/form.h"
#include "postgres/query_decimal.h"

#define SCALE_DIGITS_MAX 18 /* a power of ten that 64 bits have */
#define TOWARDS_0		 (-1)

static uint64
power_of_ten(int digits)
{
	uint64 power = 1;

	while (digits-- > 0)
		power *= 10;
	return power;
}

bool
gstore_scale_up(gquery_program *p, uint32 at, int digits)
{
	gquery_instruction product[] = {
		{.op = GQUERY_CONSTANT},
		{.op = GQUERY_MULTIPLY, .b = GQUERY_ARITHMETIC_DECIMAL},
	};

	if (digits > SCALE_DIGITS_MAX || p->code_count + lengthof(product) > GQUERY_CODE_MAX)
		return false;
	product[0].value = power_of_ten(digits);
	memmove(&p->code[at + lengthof(product)], &p->code[at], sizeof p->code[0] * (p->code_count - at));
	memcpy(&p->code[at], product, sizeof product);
	p->code_count += lengthof(product);
	return true;
}

/* Of a value that is one of both, whose greatest scale is `scale`. */
static void
unite_scales(gstore_emitted *left, const gstore_emitted *right, int scale)
{
	const int all[] = {left->scale, right->scale, left->mixed ? left->low : scale,
					   right->mixed ? right->low : scale};
	int		  low = scale;

	for (Size i = 0; i < lengthof(all); i++)
		if (all[i] != GSTORE_SCALE_ANY && all[i] != scale)
			low = low == scale || low == all[i] ? all[i] : GSTORE_SCALE_SEVERAL;
	left->mixed = low != scale;
	left->low = low;
	left->absorbed |= right->absorbed;
}

bool
gstore_align(gquery_program *p, gstore_emitted *left, uint32 left_end, gstore_emitted *right)
{
	const int scale = Max(left->scale, right->scale);

	if (left->scale != GSTORE_SCALE_ANY && right->scale != GSTORE_SCALE_ANY &&
		left->scale != right->scale)
	{
		const int digits = left->scale - right->scale;

		if (!gstore_scale_up(p, digits < 0 ? left_end : p->code_count, abs(digits)))
			return false;
	}
	unite_scales(left, right, scale);
	left->scale = right->scale = scale;
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

bool
gstore_emit_full_scale(gstore_emitter *e, uint32 left, uint32 left_end, uint32 right,
					   gstore_emitted *one, gstore_emitted *other)
{
	gquery_program *p = e->program;
	gstore_emitted *lower = one->scale < other->scale ? one : other;

	if (!e->full_scale || one->scale == GSTORE_SCALE_ANY || other->scale == GSTORE_SCALE_ANY ||
		one->scale == other->scale)
		return true;
	if (lower == other)
		p->code_count = right;
	else
	{
		memmove(&p->code[left + 1], &p->code[left_end], sizeof p->code[0] * (p->code_count - left_end));
		p->code[left] = (gquery_instruction){.op = GQUERY_NULL};
		p->code_count -= left_end - left - 1;
	}
	lower->scale = GSTORE_SCALE_ANY;
	lower->mixed = false;
	lower->nullable = true;
	return lower == one || gstore_emit(e, GQUERY_NULL, 0, 0);
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

/* PostgreSQL's scale of a sum is the greater one of both. */
static void
scale_of_sum(gstore_emitted *out, const gstore_emitted *one, const gstore_emitted *other)
{
	const gstore_emitted *varies = one->mixed ? one : other;
	const int			  least = one->mixed ? other->scale : one->scale;

	out->absorbed = one->absorbed || other->absorbed;
	out->mixed = one->mixed || other->mixed;
	if (!out->mixed)
		return;
	out->low = one->mixed && other->mixed ? GSTORE_SCALE_SEVERAL : Max(varies->low, least);
	if (least < varies->scale || (one->mixed && other->mixed))
		return;
	out->mixed = false;
	out->absorbed = true;
}

/* Of a product it is the sum of both. */
static void
scale_of_product(gstore_emitted *out, const gstore_emitted *other)
{
	const gstore_emitted *varies = out->mixed ? out : other;
	const int			  more = out->mixed ? other->scale : out->scale;
	const bool several = (out->mixed && other->mixed) || varies->low == GSTORE_SCALE_SEVERAL;

	out->scale = out->scale == GSTORE_SCALE_ANY || other->scale == GSTORE_SCALE_ANY
		? GSTORE_SCALE_ANY
		: out->scale + other->scale;
	out->low = several ? GSTORE_SCALE_SEVERAL : varies->low + more;
	out->mixed = (out->mixed || other->mixed) && out->scale != GSTORE_SCALE_ANY;
	out->absorbed |= other->absorbed;
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
		const gstore_emitted one = *out, second = other;

		if (!gstore_align(e->program, out, end, &other))
			return false;
		scale_of_sum(out, &one, &second);
	}
	else
		scale_of_product(out, &other);
	out->raises |= op == GQUERY_MODULO;
	return gstore_emit(e, op, 0,
					   op == GQUERY_MODULO ? GQUERY_ARITHMETIC_I64 : GQUERY_ARITHMETIC_DECIMAL);
}

/* Of the value that was emitted last and a power of ten. False: no word has that. */
static bool
emit_quotient(gstore_emitter *e, gquery_function function, int digits)
{
	return digits <= SCALE_DIGITS_MAX &&
		gstore_emit_instruction(e,
								(gquery_instruction){.op = GQUERY_FUNCTION,
													 .b = (uint16) function,
													 .value = power_of_ten(digits)});
}

/* Towards 0. */
static bool
emit_truncated(gstore_emitter *e, int digits)
{
	return digits <= SCALE_DIGITS_MAX && gstore_emit_constant(e, (int64) power_of_ten(digits)) &&
		gstore_emit(e, GQUERY_DIVIDE, 0, GQUERY_ARITHMETIC_I64);
}

/* Its digits become so many, whatever they are: none of its values is left out where others have fewer. */
static bool
emit_argument(gstore_emitter *e, Node *argument, gstore_emitted *out)
{
	const bool full_scale = e->full_scale;
	bool	   done;

	e->full_scale = false;
	done = gstore_emit_expression(e, argument, out);
	e->full_scale = full_scale;
	out->mixed = out->absorbed = false;
	return done && has_own_scale(out);
}

/* To so many digits behind the point; below 0: before it. function: gquery_function, or TOWARDS_0. */
static bool
emit_rounded(gstore_emitter *e, Node *argument, int function, int digits, gstore_emitted *out)
{
	int fewer;

	if (!emit_argument(e, argument, out))
		return false;
	if (out->scale == GSTORE_SCALE_ANY)
		return true;
	fewer = out->scale - digits;
	out->scale = Max(digits, 0);
	if (fewer <= 0)
		return gstore_scale_up(e->program, e->program->code_count, -fewer);
	if (function == TOWARDS_0 ? !emit_truncated(e, fewer)
							  : !emit_quotient(e, (gquery_function) function, fewer))
		return false;
	return digits >= 0 || gstore_scale_up(e->program, e->program->code_count, -digits);
}

/* round() and trunc() with a constant number of digits. */
static bool
emit_rounded_to(gstore_emitter *e, List *args, int function, gstore_emitted *out)
{
	const Const *constant = lsecond(args);
	int32		 digits;

	if (!IsA(constant, Const) || constant->constisnull)
		return false;
	digits = DatumGetInt32(constant->constvalue);
	return digits >= -SCALE_DIGITS_MAX && digits <= SCALE_DIGITS_MAX &&
		emit_rounded(e, linitial(args), function, digits, out);
}

/* numeric(p, s) of it. */
static bool
emit_coerced(gstore_emitter *e, List *args, gstore_emitted *out)
{
	const Const *typmod = lsecond(args);
	int			 precision, scale;

	if (!IsA(typmod, Const) || typmod->constisnull ||
		!gstore_form_decimal(DatumGetInt32(typmod->constvalue), &precision, &scale) ||
		!emit_rounded(e, linitial(args), GQUERY_ROUND_I64, scale, out))
		return false;
	out->raises = true;
	return out->scale == GSTORE_SCALE_ANY || precision > SCALE_DIGITS_MAX ||
		emit_quotient(e, GQUERY_WITHIN_I64, precision);
}

static bool
emit_sign_of_decimal(gstore_emitter *e, Node *argument, gstore_emitted *out)
{
	if (!emit_argument(e, argument, out))
		return false;
	out->scale = 0;
	return gstore_emit(e, GQUERY_FUNCTION, 0, GQUERY_SIGN_I64);
}

/* A double that is a quotient of two that doubles have is the nearest one to the decimal, as PostgreSQL's is. */
static bool
emit_double_of_decimal(gstore_emitter *e, Node *argument, gstore_emitted *out)
{
	if (!emit_argument(e, argument, out))
		return false;
	out->type = FLOAT8OID;
	return emit_quotient(e, GQUERY_RATIO_F64, out->scale == GSTORE_SCALE_ANY ? 0 : out->scale);
}

static bool
emit_integer_of_decimal(gstore_emitter *e, Node *argument, Oid type, gstore_emitted *out)
{
	if (!emit_rounded(e, argument, GQUERY_ROUND_I64, 0, out))
		return false;
	*out = (gstore_emitted){.type = type, .nullable = out->nullable, .raises = true};
	return type == INT8OID || gstore_emit(e, type == INT4OID ? GQUERY_TO_I32 : GQUERY_TO_I16, 0, 0);
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
		case F_INT2_NUMERIC:
			return emit_integer_of_decimal(e, linitial(args), INT2OID, out);
		case F_INT4_NUMERIC:
			return emit_integer_of_decimal(e, linitial(args), INT4OID, out);
		case F_INT8_NUMERIC:
			return emit_integer_of_decimal(e, linitial(args), INT8OID, out);
		case F_NUMERIC_ADD:
			return emit_decimal_pair(e, args, GQUERY_ADD, out);
		case F_NUMERIC_SUB:
			return emit_decimal_pair(e, args, GQUERY_SUBTRACT, out);
		case F_NUMERIC_MUL:
			return emit_decimal_pair(e, args, GQUERY_MULTIPLY, out);
		case F_NUMERIC_MOD:
		case F_MOD_NUMERIC_NUMERIC:
			return emit_decimal_pair(e, args, GQUERY_MODULO, out);
		case F_ROUND_NUMERIC_INT4:
			return emit_rounded_to(e, args, GQUERY_ROUND_I64, out);
		case F_TRUNC_NUMERIC_INT4:
			return emit_rounded_to(e, args, TOWARDS_0, out);
		case F_NUMERIC_NUMERIC_INT4:
			return emit_coerced(e, args, out);
		case F_FLOOR_NUMERIC:
			return emit_rounded(e, linitial(args), GQUERY_FLOOR_I64, 0, out);
		case F_CEIL_NUMERIC:
		case F_CEILING_NUMERIC:
			return emit_rounded(e, linitial(args), GQUERY_CEILING_I64, 0, out);
		case F_SIGN_NUMERIC:
			return emit_sign_of_decimal(e, linitial(args), out);
		case F_FLOAT8_NUMERIC:
			return emit_double_of_decimal(e, linitial(args), out);
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
