/*
 * Links of tokens to areas' objects, at the keeper; see area.h. Which tokens there are, and when they end, is decided by
 * backends and the worker (token.c).
 *
 * Everything here but gstore_areas_link() and its kind is called with the tokens' lock held.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres/area_state.h"

#define UNPACK_TRIES_MAX 8 /* of one range */

/* What of a store may be opened by a token. */
typedef struct linked
{
	uint16_t column;
	uint8_t	 part;
	uint64_t bytes;
} linked;

typedef struct gstore_linked_token
{
	struct gstore_linked_token *next;
	gstore_store_name			name;
	uint8_t						secret[GSTORE_SECRET_BYTES];
	uint32_t					count, places;
	linked					   *all;
} token;

/* ---- making */

static void
name_link(const token *t, const linked *l, char text[GVM_NAME_BYTES_MAX])
{
	char path[GSTORE_LINK_PATH_BYTES];

	gstore_link_path(t->secret, path);
	snprintf(text, GVM_NAME_BYTES_MAX, "%s/%u.%s", path, l->column, gstore_part_names[l->part]);
}

static token *
find_token(gstore_areas *s, const uint8_t secret[GSTORE_SECRET_BYTES])
{
	token *t = s->tokens;

	while (t != NULL && memcmp(t->secret, secret, sizeof t->secret) != 0)
		t = t->next;
	return t;
}

static token *
make_token(gstore_areas *s, const gstore_store_name *store, const uint8_t secret[GSTORE_SECRET_BYTES])
{
	token *t = calloc(1, sizeof *t);

	if (t == NULL)
		return NULL;
	t->name = *store;
	memcpy(t->secret, secret, sizeof t->secret);
	t->next = s->tokens;
	s->tokens = t;
	return t;
}

static bool
is_linked(const token *t, const linked *l)
{
	for (uint32_t i = 0; i < t->count; i++)
		if (t->all[i].column == l->column && t->all[i].part == l->part)
			return true;
	return false;
}

/* a: the area. */
static gvm_status
add_linked(gstore_areas *s, token *t, const linked *l, area *a)
{
	if (is_linked(t, l)) /* by a command that failed later, and is tried again */
		return GVM_OK;
	if (t->count == t->places)
	{
		const uint32_t places = t->places + GSTORE_RANGES_MAX;
		linked		  *all = realloc(t->all, places * sizeof *all);

		if (all == NULL)
			return gvm_error_set(GVM_E_NOMEM, "out of host memory for a token");
		t->all = all;
		t->places = places;
	}
	t->all[t->count++] = *l;
	pthread_mutex_lock(&s->lock);
	a->links++;
	pthread_mutex_unlock(&s->lock);
	return GVM_OK;
}

static gvm_status
link_area(gstore_areas *s, const token *t, const linked *l, gvm_object *object)
{
	char name[GVM_NAME_BYTES_MAX];

	name_link(t, l, name);
	return gvm_object_link(object, name, s->link_mode, l->bytes);
}

/* With a reference. It may be busy, as a move waits for the tokens' lock, and then takes the links along. */
static area *
find_area(gstore_areas *s, const token *t, const linked *l)
{
	const area key = {.name = t->name, .column = l->column, .part = l->part};
	area	 **found, *a = NULL;

	pthread_mutex_lock(&s->lock);
	while ((found = gstore_area_find(s, &key)) != NULL && (*found)->object == NULL &&
		   (*found)->pack == NULL)
		pthread_cond_wait(&s->not_busy, &s->lock); /* it is being made */
	if (found != NULL)
	{
		a = *found;
		a->refs++;
	}
	pthread_mutex_unlock(&s->lock);
	return a;
}

/* *packed: it has to be unpacked first. */
static gvm_status
link_range(gstore_areas *s, token *t, const gstore_range *range, uint32_t *owner, bool *packed)
{
	gvm_object_info info = {.struct_size = sizeof info};
	const linked	l = {.column = range->column, .part = range->part, .bytes = range->bytes};
	area		   *a = find_area(s, t, &l);
	gvm_status		status = GVM_OK;

	if (a == NULL)
		return gvm_error_set(GVM_E_ABSENT, "the table has no such data");
	*packed = a->kind == PACKED;
	if (!*packed)
		status = add_linked(s, t, &l, a); /* first: what is in the list may be missing at the keeper */
	if (status == GVM_OK && !*packed)
		status = link_area(s, t, &l, a->object);
	if (status == GVM_OK && l.part == GSTORE_MANIFEST)
	{ /* each token has one; *owner as others see it */
		status = gvm_object_get_info(a->object, &info);
		*owner = info.owner_uid;
	}
	gstore_area_unref(s, a);
	return status;
}

uint64_t
gstore_areas_unpack_bytes(gstore_areas *s, const gstore_store_name *store,
						  const gstore_range *ranges, uint32_t count)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < count && i < GSTORE_RANGES_MAX; i++)
	{
		const area key = {
			.name = *store, .column = ranges[i].column, .part = ranges[i].part, .kind = SMALL};
		area **found = gstore_area_find(s, &key);

		if (found != NULL && (*found)->kind == PACKED)
			bytes += gstore_area_chunk_bytes(&key);
	}
	pthread_mutex_unlock(&s->lock);
	return bytes;
}

gvm_status
gstore_areas_unpack(gstore_areas *s, const gstore_store_name *store, const gstore_range *ranges,
					uint32_t count)
{
	gvm_status status = GVM_OK;

	for (uint32_t i = 0; i < count && i < GSTORE_RANGES_MAX && status == GVM_OK; i++)
		status = gstore_area_unpack(s, store, &ranges[i]);
	return status;
}

/* While memory is short, others may pack it again before it has its link. */
static gvm_status
unpack_and_link(gstore_areas *s, const gstore_store_name *store,
				const uint8_t secret[GSTORE_SECRET_BYTES], const gstore_range *range, uint32_t *owner)
{
	for (int i = 0; i < UNPACK_TRIES_MAX; i++)
	{
		gvm_status status = gstore_area_unpack(s, store, range);
		bool	   packed = false;
		token	  *t;

		if (status != GVM_OK)
			return status;
		pthread_mutex_lock(&s->tokens_lock);
		t = find_token(s, secret);
		if (t == NULL)
			t = make_token(s, store, secret);
		status = t != NULL ? link_range(s, t, range, owner, &packed)
						   : gvm_error_set(GVM_E_NOMEM, "out of host memory for a token");
		pthread_mutex_unlock(&s->tokens_lock);
		if (!packed)
			return status;
	}
	return gvm_error_set(GVM_E_NOSPACE, "memory is short: the column was packed again %d times",
						 UNPACK_TRIES_MAX);
}

gvm_status
gstore_areas_link(gstore_areas *s, const gstore_store_name *store,
				  const uint8_t secret[GSTORE_SECRET_BYTES], const gstore_range *ranges,
				  uint32_t count, uint32_t *owner)
{
	gvm_status status = GVM_OK;

	if (count > GSTORE_RANGES_MAX)
		count = GSTORE_RANGES_MAX;
	for (uint32_t i = 0; i < count && status == GVM_OK; i++)
		status = unpack_and_link(s, store, secret, &ranges[i], owner);
	return status;
}

/* One that cannot be linked is gone for them. */
void
gstore_areas_relink(gstore_areas *s, const area *a)
{
	for (token *t = s->tokens; t != NULL; t = t->next)
		for (uint32_t i = 0; gstore_compare_stores(&t->name, &a->name) == 0 && i < t->count; i++)
			if (t->all[i].column == a->column && t->all[i].part == a->part)
				(void) link_area(s, t, &t->all[i], a->object);
}

/* ---- ending */

static void
free_token(gstore_areas *s, token *t)
{
	token **place = &s->tokens;

	while (*place != t)
		place = &(*place)->next;
	*place = t->next;
	free(t->all);
	free(t);
}

/* An area without links may be packed again. */
static void
note_ended(gstore_areas *s, const token *t, const linked *l)
{
	const area key = {.name = t->name, .column = l->column, .part = l->part};
	area	 **found;

	pthread_mutex_lock(&s->lock);
	found = gstore_area_find(s, &key);
	if (found != NULL)
	{
		area *a = *found;

		atomic_store(&a->ended, true);
		if (--a->links == 0)
		{
			a->trim = true;
			atomic_store(&s->trims_left, true);
		}
	}
	pthread_mutex_unlock(&s->lock);
}

/* Links of an object that is gone are gone with it. */
gvm_status
gstore_areas_unlink(gstore_areas *s, const uint8_t secret[GSTORE_SECRET_BYTES])
{
	gvm_status status = GVM_OK;
	token	  *t;

	pthread_mutex_lock(&s->tokens_lock);
	t = find_token(s, secret);
	while (t != NULL && t->count > 0 && status == GVM_OK)
	{
		char name[GVM_NAME_BYTES_MAX];

		name_link(t, &t->all[t->count - 1], name);
		status = gvm_object_unlink(gstore_areas_keeper(s), name);
		if (status == GVM_E_ABSENT)
			status = GVM_OK;
		if (status == GVM_OK)
			note_ended(s, t, &t->all[--t->count]);
	}
	if (t != NULL && status == GVM_OK)
		free_token(s, t);
	pthread_mutex_unlock(&s->tokens_lock);
	return status;
}

void
gstore_areas_forget_tokens(gstore_areas *s, const gstore_store_name *name)
{
	pthread_mutex_lock(&s->tokens_lock);
	for (token *t = s->tokens, *next; t != NULL; t = next)
	{
		next = t->next;
		if (name == NULL || gstore_compare_stores(&t->name, name) == 0)
			free_token(s, t);
	}
	pthread_mutex_unlock(&s->tokens_lock);
}
