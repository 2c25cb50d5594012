/* See query_compiled.h: keys of ordered lists, which ascend as int64. */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

#include "postgres/query_compiled.h"
#include "postgres/query_enum.h"
#include "postgres/query_refused.h"
#include "postgres/query_text.h"

#define TEXT_WORDS_MOST 4

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

/* ---- texts: as many of their first bytes as there is room for */

static bool
is_text(const Node *key)
{
	return gstore_is_text(getBaseType(exprType(key)));
}

bool
gstore_query_has_texts(const List *keys)
{
	const ListCell *cell;

	foreach(cell, keys)
		if (is_text(lfirst(cell)))
			return true;
	return false;
}

/* Of each of them, if all keys may be NULL. */
static int
count_text_words(const List *keys)
{
	int				others = 0, texts = 0;
	const ListCell *cell;

	foreach(cell, keys)
	{
		const Oid type = getBaseType(exprType(lfirst(cell)));

		if (gstore_is_text(type))
			texts++;
		else
			others += 1 + gstore_stack_words(type);
	}
	if (texts == 0)
		return 0;
	return Min(Max((GQUERY_KEYS_MAX - others) / texts - 1, 1), TEXT_WORDS_MOST);
}

static bool
emit_text_key(gstore_compiled *c, gstore_emitter *e, Node *key, int direction, int number, int words)
{
	const bool descending = (direction & GSTORE_KEY_DESCENDING) != 0;
	bool	   nullable;

	if (c->query.sink != GSTORE_SINK_LIST || c->list_text_count == GQUERY_KEYS_MAX ||
		!gstore_emit_text_word(e, key, -1, &nullable))
		return gstore_refuse(e, key, "has no order there");
	if (nullable && (direction & GSTORE_KEY_NULLS_FIRST) != 0 && !gstore_emit(e, GQUERY_NOT, 0, 0))
		return false;
	for (int i = 0; i < words; i++)
		if (!gstore_emit_text_word(e, key, i, &nullable) ||
			(descending && !gstore_emit(e, GQUERY_INVERT, 0, 0)))
			return false;
	c->key_words += nullable + words;
	c->list_texts[c->list_text_count++] = (gstore_list_text){number, c->key_words, descending};
	return true;
}

/* A text that ends before its words do has zeros there. */
bool
gstore_query_is_cut(const gstore_compiled *c, const int64 *entry, int *key, int *equal)
{
	for (int i = 0; i < c->list_text_count; i++)
	{
		const gstore_list_text *text = &c->list_texts[i];
		const int64				last = entry[text->end - 1];

		if (((text->descending ? ~last : last) & 0xff) != 0)
		{
			*key = text->key;
			*equal = text->end;
			return true;
		}
	}
	return false;
}

/* ---- all */

bool
gstore_emit_list_keys(gstore_compiled *c, gstore_emitter *e, const List *keys, const List *directions)
{
	const int		words = count_text_words(keys);
	const ListCell *key, *direction;

	c->key_words = c->list_text_count = 0;
	forboth(key, keys, direction, directions)
		if (is_text(lfirst(key)) ? !emit_text_key(c, e, lfirst(key), lfirst_int(direction),
												  foreach_current_index(key), words)
								 : !gstore_emit_list_key(c, e, lfirst(key), lfirst_int(direction)))
			return false;
	return c->key_words <= GQUERY_KEYS_MAX && gstore_emit(e, GQUERY_EMIT, (uint32) c->key_words, 0);
}
