/*
 * Packs: the object that small areas of a store share. An area that needs little has its place there, always the same
 * one for the life of the store, so that a command that still reads there finds the same rows. gstore_area_make(), for
 * areas of any kind, is here: it may place an area in a pack, and makes packs.
 */
#include <stdlib.h>

#include "postgres/area_state.h"

/* ---- the room of an area. The lock is held, and given up while the keeper is asked. */

/* The store's, with a reference, and not busy. */
static gvm_status
find_pack(gstore_areas *s, const gstore_store_name *store, area **out)
{
	area   key = {.name = *store, .part = GSTORE_PACK, .kind = SMALL};
	area **found;

	while ((found = gstore_area_find(s, &key)) != NULL && (*found)->busy)
		pthread_cond_wait(&s->not_busy, &s->lock);
	if (found != NULL)
	{
		*out = *found;
		(*out)->refs++;
		return GVM_OK;
	}
	key.bytes = gstore_area_chunk_bytes(&key);
	return gstore_area_make(s, &key, out);
}

static gvm_status
grow_pack(gstore_areas *s, area *pack, uint64_t bytes)
{
	gvm_status status;

	pack->busy = true;
	pthread_mutex_unlock(&s->lock);
	status = gvm_object_grow(pack->object, bytes);
	pthread_mutex_lock(&s->lock);
	if (status == GVM_OK)
		pack->bytes = bytes;
	gstore_area_end_making(s, pack);
	return status;
}

static gvm_status
add_room(gstore_areas *s, area *pack, const area *a)
{
	const uint64_t end = (pack->room_count + 1) * GSTORE_ROOM_BYTES;
	room		  *rooms = realloc(pack->rooms, (pack->room_count + 1) * sizeof *rooms);
	gvm_status	   status = GVM_OK;

	if (rooms == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for a column");
	pack->rooms = rooms;
	if (end > pack->bytes)
		status = grow_pack(s, pack, gstore_round_up(end, gstore_area_chunk_bytes(pack)));
	if (status == GVM_OK)
		rooms[pack->room_count++] = (room){.column = a->column, .part = a->part};
	return status;
}

/* Always the same one. */
static gvm_status
take_room(gstore_areas *s, area *a)
{
	area	  *pack = NULL;
	gvm_status status = find_pack(s, &a->name, &pack);
	uint32_t   i = 0;

	if (status != GVM_OK)
		return status;
	while (i < pack->room_count &&
		   (pack->rooms[i].column != a->column || pack->rooms[i].part != a->part))
		i++;
	if (i == pack->room_count)
		status = add_room(s, pack, a);
	if (status != GVM_OK)
	{
		const gvm_error error = gstore_last_error();

		pthread_mutex_unlock(&s->lock);
		gstore_area_unref(s, pack);
		gvm_error_restore(&error);
		pthread_mutex_lock(&s->lock);
		return status;
	}
	a->pack = pack; /* with the reference */
	a->offset_bytes = i * GSTORE_ROOM_BYTES;
	a->bytes = GSTORE_ROOM_BYTES;
	return GVM_OK;
}

gvm_status
gstore_area_make_place(gstore_areas *s, area *a, bool named)
{
	return a->kind == PACKED ? take_room(s, a) : gstore_area_create_object(s, a, named);
}

gvm_status
gstore_area_make(gstore_areas *s, const area *described, area **out)
{
	area	  *made = calloc(1, sizeof *made);
	gvm_status status;

	if (made == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for a column");
	*made = *described;
	made->refs = 1;
	status = gstore_area_add(s, made);
	if (status == GVM_OK)
		status = gstore_area_make_place(s, made, true);
	if (status != GVM_OK)
	{
		gstore_area_discard(s, made);
		pthread_mutex_lock(&s->lock);
		return status;
	}
	gstore_area_end_making(s, made);
	*out = made;
	return GVM_OK;
}
