/* See query_list.h. */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

#include "postgres/qual.h"
#include "postgres/query_list.h"
#include "postgres/query_word.h"

static int
compare_words(const void *left, const void *right)
{
	const int64 l = *(const int64 *) left, r = *(const int64 *) right;

	return l < r ? -1 : l > r;
}

static int
compare_pairs(const void *left, const void *right)
{
	const int first = compare_words(left, right);

	return first != 0 ? first : compare_words((const int64 *) left + 1, (const int64 *) right + 1);
}

static bool
words_of_element(Datum element, Oid type, int scale, int64 *word)
{
	if (type == NUMERICOID)
		return gstore_decimal_word(element, scale == GSTORE_SCALE_ANY ? 0 : scale, word);
	for (int i = 0; i < gstore_stack_words(type); i++)
		word[i] = gstore_stack_word(element, type, i);
	if (gstore_is_float(type))
		*word = gstore_order_key(*word);
	return true;
}

/*
 * Appends the elements that are not NULL, and that a value of `x` can be, to the program's values, in order.
 * False: there is no room.
 */
static bool
add_list(gstore_emitter *e, Datum array, Oid type, const gstore_emitted *x, uint32 *count,
		 bool *has_null, bool *empty)
{
	gquery_program *p = e->program;
	const uint32	words = (uint32) gstore_stack_words(type);
	ArrayType *values = DatumGetArrayTypeP(array); /* of the type, or of one that is read as it */
	int64	  *to = p->values + p->value_count;
	int16	   length;
	bool	   by_value;
	char	   align;
	Datum	  *elements;
	bool	  *nulls;
	int		   n;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(values, ARR_ELEMTYPE(values), length, by_value, align, &elements, &nulls, &n);
	*count = 0;
	*has_null = false;
	*empty = n == 0;
	for (int i = 0; i < n; i++)
	{
		int64 value[2];

		*has_null |= nulls[i];
		if (nulls[i] || !words_of_element(elements[i], type, x->scale, value))
			continue;
		if (p->value_count + (*count + 1) * words > GQUERY_VALUES_MAX)
			return false;
		memcpy(to + words * (*count)++, value, sizeof *to * words);
	}
	qsort(to, *count, sizeof *to * words, words == 1 ? compare_words : compare_pairs);
	return true;
}

/* The values that are looked for. */
static bool
emit_looked_up(gstore_emitter *e, Node *node, Oid type, gstore_emitted *out)
{
	for (int i = 0; i < gstore_stack_words(type); i++)
		if (!gstore_emit_word(e, node, i, out))
			return false;
	return gstore_equal_types(out, &(gstore_emitted){.type = type});
}

/* In the place of x, which has so many words. */
static bool
emit_unknown_list(gstore_emitter *e, int words, gstore_emitted *out)
{
	out->type = BOOLOID;
	out->nullable = true;
	if (!gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0))
		return false;
	for (; words > 0; words--)
		if (!gstore_emit(e, GQUERY_REPLACE, 0, 0))
			return false;
	return true;
}

bool
gstore_emit_list_end(gstore_emitter *e, bool is_any, bool has_null, bool empty, gstore_emitted *out)
{
	out->nullable = (out->nullable || has_null) && !empty;
	if (empty && !gstore_emit(e, GQUERY_IS_TRUE, 0, 0)) /* the value is false, also of NULL */
		return false;
	if (!empty && has_null && (!gstore_emit(e, GQUERY_NULL, 0, 0) || !gstore_emit(e, GQUERY_OR, 0, 0)))
		return false;
	return is_any || gstore_emit(e, GQUERY_NOT, 0, 0);
}

/* x = ANY(list), and x <> ALL(list), which is the contrary. Of an empty list neither is NULL, nor evaluates x. */
bool
gstore_emit_list(gstore_emitter *e, ScalarArrayOpExpr *s, gstore_emitted *out)
{
	Node	 *list = lsecond(s->args);
	gquery_op op;
	Oid		  left, right;
	Datum	  array;
	bool	  null = false, has_null = true, empty = false, known, raises;
	uint32	  count = 0, first;

	if (!gstore_find_comparison(s->opno, &op) || op != (s->useOr ? GQUERY_EQ : GQUERY_NE) ||
		!gstore_is_row_independent(list))
		return false;
	op_input_types(s->opno, &left, &right);
	if (right == ANYENUMOID)
		right = get_element_type(getBaseType(exprType(list)));
	if (!gstore_is_compiled_type(right) || get_element_type(getBaseType(exprType(list))) != right ||
		!emit_looked_up(e, linitial(s->args), right, out))
		return false;
	first = e->program->value_count; /* behind the lists within x */
	known = gstore_evaluate(e, (Expr *) list, &array, &null, &raises);
	out->raises |= raises;
	if (e->context != NULL && !known)
		return emit_unknown_list(e, gstore_stack_words(right), out);
	if (known && !null && !add_list(e, array, right, out, &count, &has_null, &empty))
		return false;
	e->program->value_count += count * (uint32) gstore_stack_words(right);
	if (gstore_is_float(out->type) && !gstore_emit(e, GQUERY_ORDER_KEY, 0, 0))
		return false;
	out->type = BOOLOID;
	return gstore_emit(e, gstore_stack_words(right) == 1 ? GQUERY_IN : GQUERY_IN_PAIRS, first, count) &&
		gstore_emit_list_end(e, s->useOr, has_null || null, empty, out);
}
