/* Memory that areas do not need goes back to the keeper; see area.h. */
#include <stdlib.h>

#include "postgres/area_state.h"

/* ---- giving back */

/* Where it would be if it were made now, with some way to go before it moves again. */
static area_kind
kind_wanted(const area *a)
{
	return gstore_area_kind_for(a, 2 * a->needed_bytes);
}

/* Packing an object that others have mapped would free nothing. */
static area_kind
kind_possible(area *a)
{
	const area_kind wanted = kind_wanted(a);

	return wanted == PACKED && gstore_area_is_shown(a) ? SMALL : wanted;
}

static bool
has_chunks_ahead(const area *a)
{
	return gstore_round_up(a->needed_bytes, gstore_area_chunk_bytes(a)) < a->bytes;
}

/* Manifests are a ring, packs have rooms, bitmaps have places, what is staged is others': all of it is of use. */
static bool
has_slack(const area *a)
{
	return gstore_part_is_of_rows(a->part) && a->part != GSTORE_PACK && a->kind != PACKED &&
		(has_chunks_ahead(a) || kind_wanted(a) < a->kind);
}

static bool
is_wanted(const area *a, bool trimmed)
{
	return has_slack(a) && (a->trim || !trimmed);
}

/* One walk over areas. Those that may give something back come into the list, each with a reference. */
typedef struct sweep
{
	bool  trimmed; /* only of those that are to be trimmed */
	bool  left;	   /* such a one is in use, just now */
	area *first, **end;
} sweep;

static void
find_slack(const void *node, VISIT visit, void *closure)
{
	area  *a = *(area *const *) node;
	sweep *all = closure;

	if (!gstore_is_in_order(visit) || !is_wanted(a, all->trimmed))
		return;
	if (a->refs > 0)
	{
		all->left |= a->trim;
		return;
	}
	a->refs++;
	a->next_found = NULL;
	*all->end = a;
	all->end = &a->next_found;
}

static void
find_slack_of_store(const void *node, VISIT visit, void *closure)
{
	if (gstore_is_in_order(visit))
		twalk_r((*(store_areas *const *) node)->areas, find_slack, closure);
}

/*
 * Of an area that is busy for this thread. Somebody outside may have a lease on it, or the keeper be moving it:
 * then it keeps all. To small chunks again, or to its room, it goes where there is memory for that. Returns how many bytes
 * went.
 */
static uint64_t
shrink_area(gstore_areas *s, area *a)
{
	const uint64_t before = a->bytes;
	area_kind	   kind;

	if (has_chunks_ahead(a))
	{
		const uint64_t bytes = gstore_round_up(a->needed_bytes, gstore_area_chunk_bytes(a));

		if (gvm_object_shrink(a->object, bytes) != GVM_OK)
			return 0;
		gstore_area_set_bytes(s, a, bytes);
	}
	kind = kind_possible(a);
	if (kind < a->kind && gstore_area_move_busy(s, a, kind) == GVM_OK)
		return before;
	return before - a->bytes;
}

/*
 * Has an area of the sweep's list give back what it does not need, unless somebody uses it by now,
 * and releases it.
 */
static void
shrink_found(gstore_areas *s, area *a, sweep *all)
{
	bool mine, trim;

	pthread_mutex_lock(&s->lock);
	mine = a->refs == 1 && !a->dropped && is_wanted(a, all->trimmed);
	trim = mine && a->trim;
	a->trim &= !mine; /* it may be set again meanwhile */
	a->busy |= mine;
	pthread_mutex_unlock(&s->lock);
	if (mine)
		s->given_back_bytes += shrink_area(s, a);
	pthread_mutex_lock(&s->lock);
	a->busy &= !mine;
	a->trim |= trim && has_chunks_ahead(a);
	all->left |= a->trim && !a->dropped;
	pthread_cond_broadcast(&s->not_busy);
	pthread_mutex_unlock(&s->lock);
	gstore_area_unref(s, a);
}

/* of: NULL: all stores. Each area is tried once. Waits for the sweep of another thread. */
static void
release_slack(gstore_areas *s, const gstore_store_name *of, bool trimmed)
{
	sweep			   all = {.trimmed = trimmed, .end = &all.first};
	const store_areas *one;

	pthread_mutex_lock(&s->lock);
	while (s->sweeping)
		pthread_cond_wait(&s->not_busy, &s->lock);
	s->sweeping = true;
	if (of == NULL)
		twalk_r(s->stores, find_slack_of_store, &all);
	else if ((one = gstore_areas_find_store(s, of)) != NULL)
		twalk_r(one->areas, find_slack, &all);
	pthread_mutex_unlock(&s->lock);
	for (area *a = all.first, *next; a != NULL; a = next)
	{
		next = a->next_found;
		shrink_found(s, a, &all);
	}
	pthread_mutex_lock(&s->lock);
	s->sweeping = false;
	pthread_cond_broadcast(&s->not_busy);
	pthread_mutex_unlock(&s->lock);
	if (all.left)
		atomic_store(&s->trims_left, true);
}

/* What another thread gives back meanwhile counts, too: it is there for the caller as well. */
uint64_t
gstore_areas_give_back(gstore_areas *s)
{
	const uint64_t before = atomic_load(&s->given_back_bytes);

	release_slack(s, NULL, false);
	return atomic_load(&s->given_back_bytes) - before;
}

void
gstore_areas_trim_again(gstore_areas *s)
{
	if (atomic_exchange(&s->trims_left, false))
		release_slack(s, NULL, true);
}

typedef struct trim
{
	const gstore_store_name *name;
	const gstore_extent		*extents;
	uint32_t				 count;
} trim;

static int
compare_extents(const void *left, const void *right)
{
	const gstore_extent *a = left, *b = right;
	const int			 order = (a->column > b->column) - (a->column < b->column);

	return order != 0 ? order : (a->part > b->part) - (a->part < b->part);
}

static void
note_needed(const void *node, VISIT visit, void *closure)
{
	area			   *a = *(area *const *) node;
	const trim		   *to = closure;
	const gstore_extent key = {.column = a->column, .part = a->part}, *extent;

	if (!gstore_is_in_order(visit) || a->name.writer_number > to->name->writer_number ||
		!gstore_part_is_of_rows(a->part))
		return;
	extent = bsearch(&key, to->extents, to->count, sizeof key, compare_extents);
	a->needed_bytes = extent != NULL ? extent->bytes : 0;
	a->trim = has_slack(a);
}

void
gstore_areas_trim(gstore_areas *s, const gstore_store_name *name, const gstore_extent *extents,
				  uint32_t count)
{
	trim			   to = {.name = name, .extents = extents, .count = count};
	const store_areas *of;

	pthread_mutex_lock(&s->lock);
	of = gstore_areas_find_store(s, name);
	if (of != NULL)
		twalk_r(of->areas, note_needed, &to);
	pthread_mutex_unlock(&s->lock);
	release_slack(s, name, true);
}
