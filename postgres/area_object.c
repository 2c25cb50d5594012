/*
 * One area: its place in the tree of its store, its object at the keeper, its lease; see area_state.h. And the connections
 * that objects are opened by.
 *
 * An area that needs little is packed (area_pack.c). One that needs more begins with small chunks, as many tables are
 * small, and grows by an eighth of what it needs. Once it needs more it moves to an object with larger chunks
 * (area_move.c), as what a chunk costs does not depend on its size, and an object keeps the addresses that it was made with.
 */
#include <stdio.h>
#include <stdlib.h>

#include "postgres/area_state.h"

#define AHEAD_PART		   8u			  /* an area grows by this part of what it needs, */
#define AHEAD_MAX_BYTES	   (1ull << 30)	  /* at most by so much */
#define PACK_RESERVE_BYTES (512ull << 20) /* for four areas of each of 2048 columns */
#define LEASE_WAIT_MS	   30000		  /* while the keeper moves the area */
#define STAGED_WAIT_MS \
	2000 /* while the program that writes it has a lease: others wait for the command's thread */

/*
 * What areas with objects of their own have. Where there is no memory to move on, an area stays up to reserve_bytes, and
 * tries again whenever it grows. One that is large takes up to 128 times as many addresses as memory: columns of 384 GiB in
 * all, each just beyond a limit here, take the 48 TiB in which objects have the same address in every process.
 */
typedef struct kind_sizes
{
	uint64_t chunk_bytes;
	uint64_t usual_bytes; /* one that needs more moves on */
	uint64_t reserve_bytes;
} kind_sizes;

static const kind_sizes sizes_of[AREA_KINDS] = {
	[SMALL] = {2ull << 20, 256ull << 20, 1ull << 30},
	[LARGE] = {32ull << 20, 8ull << 30, 32ull << 30},
	[LARGEST] = {512ull << 20, 1ull << 40, 1ull << 40},
};

/* ---- names and order */

/* Of one store. Its manifest comes last, and so is dropped last: who finds its token stale finds no column any more. */
static int
compare_areas(const void *left, const void *right)
{
	const area *a = left, *b = right;
	int			order = (a->part == GSTORE_MANIFEST) - (b->part == GSTORE_MANIFEST);

	if (order == 0)
		order = (a->column > b->column) - (a->column < b->column);
	return order != 0 ? order : (a->part > b->part) - (a->part < b->part);
}

static int
compare_stores(const void *left, const void *right)
{
	return gstore_compare_stores(&((const store_areas *) left)->name,
								 &((const store_areas *) right)->name);
}

const char *const gstore_part_names[] = {"values",		  "nulls", "bodies",  "manifest",
										 "element_nulls", "pack",  "deleted", "staged"};

void
gstore_area_name(const area *a, char text[GVM_NAME_BYTES_MAX])
{
	char path[GSTORE_STORE_PATH_BYTES];

	gstore_store_path(&a->name, path);
	snprintf(text, GVM_NAME_BYTES_MAX, "%s/%u.%s", path, a->column, gstore_part_names[a->part]);
}

/* ---- connections */

gvm_status
gstore_areas_connect(gstore_areas *s)
{
	const uint32_t count = s->connection_count;
	gvm_client	  *keeper = NULL;
	gvm_status	   status;

	if (count == GSTORE_CONNECTIONS_MAX)
		return gvm_error_set(GVM_E_LIMIT,
							 "columns in GPU memory have %u parts, which is the most: drop tables",
							 (unsigned) (GSTORE_CONNECTIONS_MAX * GVM_OBJECTS_OPEN_MAX));
	pthread_mutex_unlock(&s->lock);
	status = gvm_client_connect(s->path, &keeper);
	pthread_mutex_lock(&s->lock);
	if (s->connection_count != count)
	{
		pthread_mutex_unlock(&s->lock);
		gvm_client_close(keeper);
		pthread_mutex_lock(&s->lock);
		return GVM_OK;
	}
	if (status != GVM_OK)
		return status;
	s->connections[count].keeper = keeper;
	s->connection_count++;
	if (atomic_load(&s->stop)) /* the thread that stores it reads the count afterwards */
		gvm_client_abort(keeper);
	return GVM_OK;
}

/* One that can have one more object open, which is counted. The lock is held, and may be given up meanwhile. */
static gvm_status
find_connection(gstore_areas *s, connection **out)
{
	for (;;)
	{
		gvm_status status;

		for (uint32_t i = 0; i < s->connection_count; i++)
			if (s->connections[i].open < GVM_OBJECTS_OPEN_MAX)
			{
				*out = &s->connections[i];
				(*out)->open++;
				return GVM_OK;
			}
		status = gstore_areas_connect(s);
		if (status != GVM_OK)
			return status;
	}
}

gvm_client *
gstore_areas_keeper(gstore_areas *s)
{
	return s->connections[0].keeper;
}

/* ---- objects */

uint64_t
gstore_area_chunk_bytes(const area *a)
{
	return sizes_of[a->kind].chunk_bytes;
}

uint64_t
gstore_area_most_bytes(area_kind kind)
{
	return sizes_of[kind].reserve_bytes;
}

area_kind
gstore_area_kind_for(const area *a, uint64_t needed)
{
	area_kind kind = SMALL;

	if (needed <= GSTORE_ROOM_BYTES && a->part != GSTORE_MANIFEST && a->part != GSTORE_PACK &&
		a->part != GSTORE_STAGED && a->links == 0)
		return PACKED;
	while (kind < LARGEST && needed > sizes_of[kind].usual_bytes)
		kind++;
	return kind;
}

static uint64_t
reserve_bytes(const area *a)
{
	return a->part == GSTORE_PACK ? PACK_RESERVE_BYTES : sizes_of[a->kind].reserve_bytes;
}

uint64_t
gstore_area_grown_bytes(const area *a, uint64_t needed, bool ahead)
{
	const kind_sizes *sizes = &sizes_of[a->kind];
	const uint64_t most = needed <= sizes->usual_bytes ? sizes->usual_bytes : sizes->reserve_bytes;
	const uint64_t part = needed / AHEAD_PART < AHEAD_MAX_BYTES ? needed / AHEAD_PART : AHEAD_MAX_BYTES;
	const uint64_t bytes = gstore_round_up(needed + (ahead ? part : 0), sizes->chunk_bytes);

	return bytes <= most ? bytes : most;
}

void
gstore_area_free(gstore_areas *s, area *a)
{
	const gvm_error error = gstore_last_error();

	if (a == NULL)
		return;
	if (a->pack != NULL)
		gstore_area_unref(s, a->pack);
	gvm_object_close(a->object);
	if (a->connection != NULL)
	{
		pthread_mutex_lock(&s->lock);
		a->connection->open--;
		pthread_mutex_unlock(&s->lock);
	}
	free(a->rooms);
	free(a);
	gvm_error_restore(&error);
}

gvm_status
gstore_area_create_object(gstore_areas *s, area *a, bool named)
{
	const gvm_object_options options = {.struct_size = sizeof options,
										.chunk_bytes = gstore_area_chunk_bytes(a),
										.size_bytes = a->bytes,
										.device = a->name.device,
										.mode = 0600,
										.flags = GVM_OBJECT_UNTRACKED};
	char					 name[GVM_NAME_BYTES_MAX];
	gvm_object				*object = NULL;
	connection				*place;
	gvm_status				 status = find_connection(s, &place);

	if (status != GVM_OK)
		return status;
	gstore_area_name(a, name);
	pthread_mutex_unlock(&s->lock);
	status = gvm_object_create(place->keeper, named ? name : NULL, reserve_bytes(a), &options, &object);
	pthread_mutex_lock(&s->lock);
	if (status == GVM_OK)
	{
		a->connection = place;
		a->object = object;
	}
	else
	{
		place->open--;
	}
	return status;
}

void
gstore_area_set_bytes(gstore_areas *s, area *a, uint64_t bytes)
{
	pthread_mutex_lock(&s->lock);
	a->bytes = bytes;
	pthread_mutex_unlock(&s->lock);
}

gvm_status
gstore_area_grow(gstore_areas *s, area *a, uint64_t needed)
{
	uint64_t   bytes = gstore_area_grown_bytes(a, needed, true);
	gvm_status status = gvm_object_grow(a->object, bytes);

	if (status == GVM_E_NOSPACE)
	{
		bytes = gstore_area_grown_bytes(a, needed, false);
		status = gvm_object_grow(a->object, bytes);
	}
	if (status == GVM_OK)
		gstore_area_set_bytes(s, a, bytes);
	return status;
}

static gvm_object *
object_of(const area *a)
{
	return a->pack != NULL ? a->pack->object : a->object;
}

gvm_status
gstore_area_acquire(gstore_use *use)
{
	const gvm_acquire_options options = {.struct_size = sizeof options, .hint = GVM_HINT_SCAN};
	const int wait_ms = use->area->part == GSTORE_STAGED ? STAGED_WAIT_MS : LEASE_WAIT_MS;
	/* For writing, too: rows come behind those that others read (GVM_OBJECT_UNTRACKED). */
	const gvm_status status = gvm_object_acquire(object_of(use->area), GVM_LEASE_READ, &options,
												 wait_ms, &use->lease);

	if (status == GVM_E_TIMEOUT && wait_ms == STAGED_WAIT_MS)
		return gvm_error_set(GVM_E_TIMEOUT,
							 "the program that wrote the rows still has a lease on them");
	use->address = status == GVM_OK ? (uintptr_t) use->lease.address + use->area->offset_bytes : 0;
	return status;
}

gvm_status
gstore_area_end_lease(gstore_use *use)
{
	return gvm_object_release(object_of(use->area), &use->lease);
}

/* ---- areas in use */

void
gstore_area_unref(gstore_areas *s, area *a)
{
	bool last;

	pthread_mutex_lock(&s->lock);
	last = --a->refs == 0 && a->dropped;
	if (a->busy)
		pthread_cond_broadcast(&s->not_busy);
	pthread_mutex_unlock(&s->lock);
	if (last)
		gstore_area_free(s, a);
}

void
gstore_area_note_written(area *a, uint64_t writer_number, const gstore_range *range)
{
	const uint64_t end = range->offset_bytes + range->bytes;

	if (writer_number > a->name.writer_number && gstore_part_is_of_rows(a->part))
	{
		a->name.writer_number = writer_number;
		a->needed_bytes = range->offset_bytes;
		a->trim = false;
	}
	if (end > a->needed_bytes)
		a->needed_bytes = end;
}

/* ---- the trees of stores */

store_areas *
gstore_areas_find_store(gstore_areas *s, const gstore_store_name *name)
{
	const store_areas key = {.name = *name};
	store_areas		**found = tfind(&key, &s->stores, compare_stores);

	return found != NULL ? *found : NULL;
}

area **
gstore_area_find(gstore_areas *s, const area *key)
{
	const store_areas *of = gstore_areas_find_store(s, &key->name);

	return of != NULL ? tfind(key, &of->areas, compare_areas) : NULL;
}

/* NULL: out of memory. The lock is held. */
static store_areas *
make_store(gstore_areas *s, const gstore_store_name *name)
{
	store_areas *made = calloc(1, sizeof *made);

	if (made == NULL)
		return NULL;
	made->name = *name;
	if (tsearch(made, &s->stores, compare_stores) == NULL)
	{
		free(made);
		return NULL;
	}
	s->store_count++;
	return made;
}

gvm_status
gstore_area_add(gstore_areas *s, area *a)
{
	store_areas *of = gstore_areas_find_store(s, &a->name);

	if (of == NULL)
		of = make_store(s, &a->name);
	if (of == NULL || tsearch(a, &of->areas, compare_areas) == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for a column");
	a->busy = true;
	return GVM_OK;
}

void
gstore_area_end_making(gstore_areas *s, area *a)
{
	a->busy = false;
	pthread_cond_broadcast(&s->not_busy);
}

void
gstore_area_discard(gstore_areas *s, area *a)
{
	const gvm_error error = gstore_last_error();
	area		  **place = gstore_area_find(s, a);

	if (place != NULL && *place == a)
		tdelete(a, &gstore_areas_find_store(s, &a->name)->areas, compare_areas);
	a->dropped = true;
	gstore_area_end_making(s, a);
	pthread_mutex_unlock(&s->lock);
	gstore_area_unref(s, a);
	gvm_error_restore(&error);
}

static void
keep_tree_node(void *node)
{
	(void) node;
}

void
gstore_store_areas_free(gstore_areas *s, store_areas *of)
{
	tdelete(of, &s->stores, compare_stores);
	s->store_count--;
	tdestroy(of->areas, keep_tree_node);
	free(of);
}

/* ---- ends of use */

gvm_status
gstore_area_release(gstore_areas *s, gstore_use *use)
{
	const bool		 leased = use->lease.mode != 0;
	const gvm_status status = leased ? gstore_area_end_lease(use) : GVM_OK;

	gstore_area_unref(s, use->area);
	*use = (gstore_use){0};
	return status;
}
