/*
 * Links of tokens to areas' objects, at the keeper; see area.h. Which tokens there are, and when they end, is decided by
 * backends and the worker (token.c).
 *
 * The lock of areas guards the list of tokens. The keeper is called without it, for an area that is being linked by this
 * thread (area_state.h, I3): so no two threads change the same link, nor does the area move in between.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/table/manifest.h"
#include "postgres/area_state.h"

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

/* ---- areas that are being linked. The lock is held */

void
gstore_area_begin_linking(gstore_areas *s, area *a)
{
	while (a->linking)
		pthread_cond_wait(&s->not_busy, &s->lock);
	a->linking = true;
}

void
gstore_area_end_linking(gstore_areas *s, area *a)
{
	a->linking = false;
	pthread_cond_broadcast(&s->not_busy);
}

/*
 * With a reference; NULL: there is none. It may be busy, as a move waits before it takes the links along. The lock is given
 * up meanwhile.
 */
static area *
begin_linking(gstore_areas *s, const gstore_store_name *store, const linked *l)
{
	const area key = {.name = *store, .column = l->column, .part = l->part};
	area	 **found, *a;

	while ((found = gstore_area_find(s, &key)) != NULL)
	{
		a = *found;
		if (!a->linking && (a->object != NULL || a->pack != NULL)) /* else it is being made */
		{
			a->linking = true;
			a->refs++;
			return a;
		}
		pthread_cond_wait(&s->not_busy, &s->lock);
	}
	return NULL;
}

/* And gives back the reference. a: NULL is ignored. The lock is given up. */
static void
end_linking(gstore_areas *s, area *a)
{
	if (a != NULL)
		gstore_area_end_linking(s, a);
	pthread_mutex_unlock(&s->lock);
	if (a != NULL)
		gstore_area_unref(s, a);
}

/* ---- tokens. The lock is held */

static void
name_link(const uint8_t secret[GSTORE_SECRET_BYTES], const linked *l, char text[GVM_NAME_BYTES_MAX])
{
	char path[GSTORE_LINK_PATH_BYTES];

	gstore_link_path(secret, path);
	if (l->part == GSTORE_STAGED)
		snprintf(text, GVM_NAME_BYTES_MAX, "%s%s", path, GVMI_LOAD_LINK);
	else
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

/* NULL: it has none. */
static linked *
find_linked(const token *t, uint16_t column, uint8_t part)
{
	for (uint32_t i = 0; i < t->count; i++)
		if (t->all[i].column == column && t->all[i].part == part)
			return &t->all[i];
	return NULL;
}

/* a: the area. */
static gvm_status
add_linked(gstore_areas *s, const gstore_store_name *store,
		   const uint8_t secret[GSTORE_SECRET_BYTES], const linked *l, area *a)
{
	token *t = find_token(s, secret);

	if (t == NULL)
		t = make_token(s, store, secret);
	if (t != NULL && find_linked(t, l->column, l->part) != NULL)
		return GVM_OK; /* by a command that failed later, and is tried again */
	if (t != NULL && t->count == t->places)
	{
		const uint32_t places = t->places + GSTORE_RANGES_MAX;
		linked		  *all = realloc(t->all, places * sizeof *all);

		if (all != NULL)
		{
			t->all = all;
			t->places = places;
		}
	}
	if (t == NULL || t->count == t->places)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for a token");
	t->all[t->count++] = *l;
	a->links++;
	return GVM_OK;
}

/* a: the area; NULL: it is gone. Without links it may be packed again. */
static void
remove_linked(gstore_areas *s, token *t, const linked *l, area *a)
{
	linked *found = find_linked(t, l->column, l->part);

	if (found == NULL)
		return;
	*found = t->all[--t->count];
	if (a == NULL)
		return;
	atomic_fetch_add(&a->ended, 1);
	if (--a->links == 0)
	{
		a->trim = true;
		atomic_store(&s->trims_left, true);
	}
}

/* ---- making links */

/* At the keeper. */
static gvm_status
link_object(gstore_areas *s, const uint8_t secret[GSTORE_SECRET_BYTES], const linked *l,
			gvm_object *object)
{
	char name[GVM_NAME_BYTES_MAX];

	name_link(secret, l, name);
	return gvm_object_link(object, name,
						   l->part == GSTORE_STAGED ? s->link_mode | s->link_mode >> 1 : s->link_mode,
						   l->bytes);
}

gvm_status
gstore_area_link(gstore_areas *s, const gstore_store_name *store,
				 const uint8_t secret[GSTORE_SECRET_BYTES], const gstore_range *range,
				 uint32_t *owner, bool *packed)
{
	gvm_object_info info = {.struct_size = sizeof info};
	const linked	l = {.column = range->column, .part = range->part, .bytes = range->bytes};
	gvm_status		status = GVM_OK;
	area		   *a;

	pthread_mutex_lock(&s->lock);
	a = begin_linking(s, store, &l);
	*packed = a != NULL && a->kind == PACKED;
	if (a == NULL)
		status = gvm_error_set(GVM_E_ABSENT, "the table has no such data");
	else if (!*packed)
		status = add_linked(s, store, secret, &l,
							a); /* first: what is in the list may be missing at the keeper */
	pthread_mutex_unlock(&s->lock);
	if (status == GVM_OK && !*packed)
		status = link_object(s, secret, &l, a->object);
	if (status == GVM_OK && (l.part == GSTORE_MANIFEST || l.part == GSTORE_STAGED))
	{ /* each token has one of them; *owner as others see it */
		status = gvm_object_get_info(a->object, &info);
		*owner = info.owner_uid;
	}
	pthread_mutex_lock(&s->lock);
	end_linking(s, a);
	return status;
}

/* The links of an area in the list's order; while it is being linked none is added. False: there are not so many. */
static bool
find_link_of(gstore_areas *s, const area *a, uint32_t number, uint8_t secret[GSTORE_SECRET_BYTES],
			 linked *out)
{
	const linked *found = NULL;
	const token	 *t;

	pthread_mutex_lock(&s->lock);
	for (t = s->tokens; t != NULL; t = t->next)
	{
		found = gstore_compare_stores(&t->name, &a->name) == 0 ? find_linked(t, a->column, a->part)
															   : NULL;
		if (found != NULL && number-- == 0)
			break;
	}
	if (t != NULL)
	{
		memcpy(secret, t->secret, sizeof t->secret);
		*out = *found;
	}
	pthread_mutex_unlock(&s->lock);
	return t != NULL;
}

void
gstore_areas_relink(gstore_areas *s, const area *to)
{
	uint8_t secret[GSTORE_SECRET_BYTES];
	linked	l;

	for (uint32_t i = 0; find_link_of(s, to, i, secret, &l); i++)
		(void) link_object(s, secret, &l, to->object);
}

/* ---- ending */

/* The token's last link. *over: it has none, or there is no such token any more. */
static gvm_status
unlink_last(gstore_areas *s, const uint8_t secret[GSTORE_SECRET_BYTES], bool *over)
{
	char			  name[GVM_NAME_BYTES_MAX];
	gstore_store_name store;
	token			 *t;
	linked			  l;
	area			 *a;
	gvm_status		  status;

	pthread_mutex_lock(&s->lock);
	t = find_token(s, secret);
	*over = t == NULL || t->count == 0;
	if (*over)
	{
		if (t != NULL)
			free_token(s, t);
		pthread_mutex_unlock(&s->lock);
		return GVM_OK;
	}
	l = t->all[t->count - 1];
	store = t->name;
	a = begin_linking(s, &store, &l); /* the token may be gone then */
	pthread_mutex_unlock(&s->lock);
	name_link(secret, &l, name);
	status = gvm_object_unlink(gstore_areas_keeper(s), name);
	if (status == GVM_E_ABSENT) /* links of an object that is gone are gone with it */
		status = GVM_OK;
	pthread_mutex_lock(&s->lock);
	t = find_token(s, secret);
	if (t != NULL && status == GVM_OK)
		remove_linked(s, t, &l, a);
	end_linking(s, a);
	return status;
}

gvm_status
gstore_areas_unlink(gstore_areas *s, const uint8_t secret[GSTORE_SECRET_BYTES])
{
	gvm_status status;
	bool	   over;

	do
		status = unlink_last(s, secret, &over);
	while (status == GVM_OK && !over);
	return status;
}

void
gstore_areas_forget_tokens(gstore_areas *s, const gstore_store_name *name)
{
	pthread_mutex_lock(&s->lock);
	for (token *t = s->tokens, *next; t != NULL; t = next)
	{
		next = t->next;
		if (name == NULL || gstore_compare_stores(&t->name, name) == 0)
			free_token(s, t);
	}
	pthread_mutex_unlock(&s->lock);
}
