/* See query_compiled.h: keys of ordered lists, which ascend as int64. */
#include "postgres.h"

#include "utils/lsyscache.h"

#include "postgres/query_compiled.h"
#include "postgres/query_enum.h"

static bool
emit_null_as_zero(gstore_emitter *e)
{
	return gstore_emit(e, GQUERY_COPY, 0, 0) && gstore_emit(e, GQUERY_IS_NULL, 0, 0) &&
		gstore_emit(e, GQUERY_IF, 0, 0) && gstore_emit(e, GQUERY_CONSTANT, 0, 0) &&
		gstore_emit(e, GQUERY_REPLACE, 0, 0) && gstore_emit(e, GQUERY_END, 0, 0);
}

/* The word that was emitted last. */
static bool
emit_key_end(gstore_compiled *c, gstore_emitter *e, const gstore_emitted *value, int direction)
{
	c->key_words++;
	return (!type_is_enum(value->type) || gstore_emit_enum_number(e, value->type)) &&
		(!value->nullable || emit_null_as_zero(e)) &&
		(!gstore_is_float(value->type) || gstore_emit(e, GQUERY_ORDER_KEY, 0, 0)) &&
		((direction & GSTORE_KEY_DESCENDING) == 0 || gstore_emit(e, GQUERY_INVERT, 0, 0));
}

/* Whether the value is NULL, if it may be, before the value. */
bool
gstore_emit_list_key(gstore_compiled *c, gstore_emitter *e, Node *key, int direction)
{
	gstore_emitted value;

	if (!gstore_emit_word(e, key, 0, &value))
		return false;
	if (value.nullable)
	{
		if (!gstore_emit(e, GQUERY_IS_NULL, 0, 0) ||
			((direction & GSTORE_KEY_NULLS_FIRST) != 0 && !gstore_emit(e, GQUERY_NOT, 0, 0)) ||
			!gstore_emit_word(e, key, 0, &value))
			return false;
		c->key_words++;
	}
	c->raises |= value.raises;
	if (!emit_key_end(c, e, &value, direction))
		return false;
	for (int i = 1; i < gstore_stack_words(value.type); i++)
		if (!gstore_emit_word(e, key, i, &value) || !emit_key_end(c, e, &value, direction))
			return false;
	return true;
}

bool
gstore_emit_list_keys(gstore_compiled *c, gstore_emitter *e, const List *keys, const List *directions)
{
	const ListCell *key, *direction;

	c->key_words = 0;
	forboth(key, keys, direction, directions)
		if (!gstore_emit_list_key(c, e, lfirst(key), lfirst_int(direction)))
			return false;
	return c->key_words <= GQUERY_KEYS_MAX && gstore_emit(e, GQUERY_EMIT, (uint32) c->key_words, 0);
}
