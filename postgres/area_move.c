/*
 * Areas move to another object, or to their pack and out of it.
 *
 * The new object gets the name in the place of the old one, and who has that open keeps it: rows that are there do not
 * change. An area moves when it outgrows what it has, and back when little of it is left to be of use, but not to the pack
 * while a token has a link to it, as the driver shares whole chunks. It also moves before a write when a token has ended by
 * which others have it mapped: what comes is not for them.
 */
#include <stdlib.h>

#include "postgres/area_state.h"
#include "postgres/cuda.h"

/* Gives it what the other has of use, and then, if it has an object of its own, the name. */
static gvm_status
fill_area(gstore_areas *s, area *a, const gstore_use *from, uint64_t needed, gvm_stream stream)
{
	gstore_use to = {.area = a};
	char	   name[GVM_NAME_BYTES_MAX];
	int		   result;
	gvm_status status = a->kind == PACKED ? GVM_OK : gstore_area_grow(s, a, needed);

	if (status == GVM_OK)
		status = gstore_area_acquire(&to);
	if (status != GVM_OK)
		return status;
	result = gstore_cu.cuMemcpyDtoDAsync(to.address, from->address,
										 from->area->bytes < a->bytes ? from->area->bytes : a->bytes,
										 stream);
	if (result == 0)
		/* A command that finds the area finds the rows. */
		result = gstore_cu.cuStreamSynchronize(stream);
	status = gstore_area_end_lease(&to);
	if (result != 0)
		return gvm_driver_error(result, "cuMemcpyDtoDAsync", "cannot copy a column");
	if (status != GVM_OK || a->kind == PACKED)
		return status;
	gstore_area_name(a, name);
	return gvm_object_publish(a->object, name, GVM_PUBLISH_REPLACE | GVM_PUBLISH_PRIVATE);
}

/*
 * Puts an area of the kind in the place of that in use, which the caller still uses: *out, with a reference. The caller
 * is the only one that changes the area. Errors: gstore_area_move_busy().
 */
static gvm_status
move_area(gstore_areas *s, const gstore_use *from, area_kind kind, uint64_t needed,
		  gvm_stream stream, area **out)
{
	area	  *old = from->area, *made = calloc(1, sizeof *made), **place;
	gvm_status status;

	if (made == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for a column");
	*made = (area){.name = old->name, .column = old->column, .part = old->part, .kind = kind, .refs = 1};
	pthread_mutex_lock(&s->lock);
	status = old->dropped ? gvm_error_set(GVM_E_ABSENT, "the table was dropped")
						  : gstore_area_make_place(s, made, false);
	pthread_mutex_unlock(&s->lock);
	if (status == GVM_OK)
		status = fill_area(s, made, from, needed, stream);
	if (status != GVM_OK)
	{
		gstore_area_free(s, made);
		return status;
	}
	pthread_mutex_lock(&s->lock);
	gstore_area_begin_linking(s, old);
	if (kind == PACKED && old->links > 0)
	{
		gstore_area_end_linking(s, old);
		pthread_mutex_unlock(&s->lock);
		gstore_area_free(s, made);
		return gvm_error_set(GVM_E_TIMEOUT, "a token has a link to the column");
	}
	pthread_mutex_unlock(&s->lock);
	gstore_areas_relink(s, made);
	pthread_mutex_lock(&s->lock);
	made->needed_bytes = old->needed_bytes;
	made->trim = old->trim;
	made->links = old->links;
	place = gstore_area_find(s, old);
	if (place != NULL && *place == old)
		*place = made; /* it compares the same */
	else
		made->dropped = true;
	old->dropped = true;
	gstore_area_end_linking(s, old);
	pthread_mutex_unlock(&s->lock);
	*out = made;
	return GVM_OK;
}

gvm_status
gstore_area_move_busy(gstore_areas *s, area *a, area_kind kind)
{
	gstore_use	use = {.area = a};
	gvm_device *device;
	area	   *made;
	gvm_status	status = gstore_area_acquire(&use), ended;

	if (status != GVM_OK)
		return status;
	status = gvm_device_open(a->name.device, &device);
	if (status == GVM_OK)
	{
		status = gvm_device_push_context(device);
		if (status == GVM_OK)
		{
			status = move_area(s, &use, kind, a->needed_bytes, NULL, &made);
			gvm_device_pop_context();
			if (status == GVM_OK)
				gstore_area_unref(s, made);
		}
		gvm_device_close(device);
	}
	ended = gstore_area_end_lease(&use);
	return status != GVM_OK ? status : ended;
}

static gvm_status
move_used_area(gstore_areas *s, gstore_use *use, area_kind kind, uint64_t needed, gvm_stream stream)
{
	gstore_use to = {0};
	gvm_status status = move_area(s, use, kind, needed, stream, &to.area);

	if (status != GVM_OK)
		return status;
	(void) gstore_area_release(s, use); /* nothing on the stream uses it any more */
	*use = to;
	return gstore_area_acquire(use);
}

bool
gstore_area_is_shown(area *a)
{
	const uint32_t	ended = atomic_load(&a->ended);
	gvm_object_info info = {.struct_size = sizeof info};

	if (ended == atomic_load(&a->hidden))
		return false;
	if (gvm_object_get_info(a->object, &info) != GVM_OK || info.foreign)
		return true;
	atomic_store(&a->hidden, ended); /* a token that has ended since the keeper was asked counts next time */
	return false;
}

gvm_status
gstore_area_provide(gstore_areas *s, gstore_use *use, const gstore_range *range, gvm_stream stream)
{
	const uint64_t end = range->offset_bytes + range->bytes;
	area_kind	   kind;
	uint64_t	   needed;

	if (end > gstore_area_most_bytes(LARGEST))
		return gvm_error_set(GVM_E_LIMIT, "a column can have %llu GiB",
							 (unsigned long long) (gstore_area_most_bytes(LARGEST) >> 30));
	pthread_mutex_lock(&s->lock);
	gstore_area_note_written(use->area, 0, range);
	needed = use->area->needed_bytes;
	kind = gstore_area_kind_for(use->area, needed);
	pthread_mutex_unlock(&s->lock);
	if (kind < use->area->kind)
		kind = use->area->kind;
	if (gstore_area_is_shown(use->area))
		return move_used_area(s, use, kind, needed, stream);
	if (end <= use->area->bytes)
		return GVM_OK;
	if (kind > use->area->kind)
	{
		const gvm_status status = move_used_area(s, use, kind, end, stream);

		if (status == GVM_OK || use->lease.mode == 0 || use->area->kind == PACKED ||
			end > gstore_area_most_bytes(use->area->kind))
			return status;
	}
	return gstore_area_grow(s, use->area, end);
}

/* ---- out of the pack */

/*
 * Until an area has an object of its own, or is gone; with the lock. *out: NULL, or one that is packed, busy for the
 * caller. Another one may take its place while the commands end that use it.
 */
static void
find_packed(gstore_areas *s, const area *key, area **out)
{
	area **found;

	*out = NULL;
	while ((found = gstore_area_find(s, key)) != NULL)
	{
		area *a = *found;

		if (a->busy)
		{
			pthread_cond_wait(&s->not_busy, &s->lock);
			continue;
		}
		if (a->kind != PACKED)
			return;
		a->busy = true;
		a->refs++;
		while (a->refs > 1)
			pthread_cond_wait(&s->not_busy, &s->lock);
		if (!a->dropped)
		{
			*out = a;
			return;
		}
		pthread_mutex_unlock(&s->lock);
		gstore_area_unref(s, a);
		pthread_mutex_lock(&s->lock);
	}
}

gvm_status
gstore_area_unpack(gstore_areas *s, const gstore_store_name *store, const gstore_range *range)
{
	const area key = {.name = *store, .column = range->column, .part = range->part};
	gvm_status status;
	area	  *a, **found;

	pthread_mutex_lock(&s->lock);
	find_packed(s, &key, &a);
	pthread_mutex_unlock(&s->lock);
	if (a == NULL)
		return GVM_OK;
	status = gstore_area_move_busy(s, a, SMALL);
	pthread_mutex_lock(&s->lock);
	found = gstore_area_find(s, &key);
	if (found != NULL)
		(*found)->trim = true; /* it goes back if it gets no link */
	a->busy = false;
	pthread_cond_broadcast(&s->not_busy);
	pthread_mutex_unlock(&s->lock);
	gstore_area_unref(s, a);
	return status;
}
