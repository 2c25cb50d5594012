/* Areas for commands, and all areas together; see area.h. */
#include <stdio.h>
#include <stdlib.h>

#include "postgres/area_state.h"

#define UNPACK_TRIES_MAX 8 /* of one range */

/* ---- life */

gvm_status
gstore_areas_create(const char *path, uint32_t link_mode, gstore_areas **out)
{
	gstore_areas *s = calloc(1, sizeof *s);
	gvm_status	  status;

	if (s == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for the service");
	snprintf(s->path, sizeof s->path, "%s", path);
	s->link_mode = link_mode;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->not_busy, NULL);
	pthread_mutex_lock(&s->lock);
	status = gstore_areas_connect(s);
	pthread_mutex_unlock(&s->lock);
	if (status == GVM_OK)
		*out = s;
	else
		gstore_areas_destroy(s);
	return status;
}

void
gstore_areas_sever(gstore_areas *s)
{
	atomic_store(&s->stop, true);
	for (uint32_t i = 0; i < s->connection_count; i++)
		gvm_client_abort(s->connections[i].keeper);
}

void
gstore_areas_destroy(gstore_areas *s)
{
	const gvm_error error = gstore_last_error();

	if (s == NULL)
		return;
	(void) gstore_areas_drop(s, NULL);
	for (uint32_t i = 0; i < s->connection_count; i++)
		gvm_client_close(s->connections[i].keeper);
	pthread_cond_destroy(&s->not_busy);
	pthread_mutex_destroy(&s->lock);
	free(s);
	gvm_error_restore(&error);
}

/* ---- areas for commands */

/* With chunks for the range, or a room, and a reference. The lock is held, and given up meanwhile. */
static gvm_status
make_area(gstore_areas *s, const area *key, uint64_t end, area **out)
{
	area made = *key;

	made.kind = gstore_area_kind_for(&made, end);
	made.bytes = end <= gstore_area_most_bytes(LARGEST) ? gstore_area_grown_bytes(&made, end, false)
														: 0;
	return gstore_area_make(s, &made, out);
}

gvm_status
gstore_area_use(gstore_areas *s, const gstore_store_name *store, const gstore_range *range,
				bool write, gstore_use *out)
{
	const area key = {.name = *store, .column = range->column, .part = range->part};
	gvm_status status = GVM_OK;
	area	 **found, *a = NULL;

	pthread_mutex_lock(&s->lock);
	while ((found = gstore_area_find(s, &key)) != NULL && (*found)->busy)
		pthread_cond_wait(&s->not_busy, &s->lock);
	if (found != NULL)
	{
		a = *found;
		a->refs++;
	}
	else if (write)
	{
		status = make_area(s, &key, range->offset_bytes + range->bytes, &a);
	}
	else
	{
		status = gvm_error_set(GVM_E_ABSENT, "the table has no such data");
	}
	if (status == GVM_OK && write)
		gstore_area_note_written(a, store->writer_number, range);
	pthread_mutex_unlock(&s->lock);
	if (status != GVM_OK)
		return status;
	*out = (gstore_use){.area = a};
	status = gstore_area_acquire(out);
	if (status != GVM_OK)
	{
		gstore_area_unref(s, a);
		*out = (gstore_use){0};
	}
	return status;
}

gvm_status
gstore_area_stage(gstore_areas *s, const gstore_store_name *store, uint64_t bytes)
{
	area	   key = {.name = *store, .part = GSTORE_STAGED, .needed_bytes = bytes};
	area	  *made;
	gvm_status status;

	if (bytes > gstore_area_most_bytes(LARGEST))
		return gvm_error_set(GVM_E_LIMIT, "memory for rows that are loaded at once can have %llu GiB",
							 (unsigned long long) (gstore_area_most_bytes(LARGEST) >> 30));
	key.kind = gstore_area_kind_for(&key, bytes);
	key.bytes = gstore_round_up(bytes, gstore_area_chunk_bytes(&key));
	pthread_mutex_lock(&s->lock);
	status = gstore_area_make(s, &key, &made);
	pthread_mutex_unlock(&s->lock);
	if (status == GVM_OK)
		gstore_area_unref(s, made);
	return status;
}

bool
gstore_area_is(const gstore_use *use, const gstore_range *range)
{
	return use->area->column == range->column && use->area->part == range->part;
}

uint64_t
gstore_area_bytes(const gstore_use *use)
{
	return use->area->bytes;
}

/* ---- tokens */

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

		if (status == GVM_OK)
			status = gstore_area_link(s, store, secret, range, owner, &packed);
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

/* ---- ends and sizes of all areas of a store */

/* Areas to free, in order; and the stores they were of. */
typedef struct found
{
	area		*first, **end;
	store_areas *stores;
} found;

/* What somebody uses, its last command closes. */
static void
drop_area(const void *node, VISIT visit, void *closure)
{
	area  *a = *(area *const *) node;
	found *all = closure;

	if (!gstore_is_in_order(visit))
		return;
	a->dropped = true;
	if (a->refs > 0)
		return;
	a->next_found = NULL;
	*all->end = a;
	all->end = &a->next_found;
}

static void
drop_areas(store_areas *of, found *all)
{
	twalk_r(of->areas, drop_area, all);
	of->next_found = all->stores;
	all->stores = of;
}

static void
drop_store(const void *node, VISIT visit, void *closure)
{
	if (gstore_is_in_order(visit))
		drop_areas(*(store_areas *const *) node, closure);
}

/*
 * Memory that a program has staged is free at once, also while it has it open, unless it keeps a lease. False: it does, and the
 * store is to be dropped later.
 */
static bool
empty_staged(gstore_areas *s, const gstore_store_name *name)
{
	const area key = {.name = *name, .part = GSTORE_STAGED};
	gvm_status status;
	area	 **place, *a;

	pthread_mutex_lock(&s->lock);
	place = gstore_area_find(s, &key);
	a = place != NULL ? *place : NULL;
	if (a != NULL)
		a->refs++;
	pthread_mutex_unlock(&s->lock);
	if (a == NULL)
		return true;
	status = gvm_object_shrink(a->object, 0);
	gstore_area_unref(s, a);
	return status != GVM_E_TIMEOUT && status != GVM_E_LIMIT;
}

bool
gstore_areas_drop(gstore_areas *s, const gstore_store_name *name)
{
	found all = {.end = &all.first};

	if (name != NULL && !empty_staged(s, name))
		return false;
	pthread_mutex_lock(&s->lock);
	if (name == NULL)
	{
		twalk_r(s->stores, drop_store, &all);
	}
	else
	{
		store_areas *of = gstore_areas_find_store(s, name);

		if (of != NULL)
			drop_areas(of, &all);
	}
	for (store_areas *of = all.stores, *next; of != NULL; of = next)
	{
		next = of->next_found;
		gstore_store_areas_free(s, of);
	}
	pthread_mutex_unlock(&s->lock);
	for (area *a = all.first, *next; a != NULL; a = next)
	{
		next = a->next_found;
		gstore_area_free(s, a);
	}
	gstore_areas_forget_tokens(s, name);
	return true;
}

static void
add_area_size(const void *node, VISIT visit, void *closure)
{
	const area *a = *(area *const *) node;

	if (gstore_is_in_order(visit) && a->kind != PACKED)
		*(uint64_t *) closure += a->bytes;
}

/* closure: the place for the next one. */
static void
add_store_size(const void *node, VISIT visit, void *closure)
{
	const store_areas  *of = *(store_areas *const *) node;
	gstore_store_size **next = closure;

	if (!gstore_is_in_order(visit))
		return;
	**next = (gstore_store_size){.store = of->name.store};
	twalk_r(of->areas, add_area_size, &(*next)->bytes);
	++*next;
}

gvm_status
gstore_areas_sizes(gstore_areas *s, gstore_store_size **out, uint32_t *count)
{
	gstore_store_size *all, *next;

	pthread_mutex_lock(&s->lock);
	next = all = calloc((size_t) s->store_count + 1, sizeof *all);
	if (all != NULL)
		twalk_r(s->stores, add_store_size, &next);
	pthread_mutex_unlock(&s->lock);
	if (all == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for sizes of tables");
	*out = all;
	*count = (uint32_t) (next - all);
	return GVM_OK;
}
