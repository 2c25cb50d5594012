/* See query_decimal.h. */
#include "postgres.h"

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
