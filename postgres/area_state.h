/*
 * postgres/area_state.h - what the files share that area.h is implemented by.
 *
 *   area_object.c  one area: its object, its lease       area_move.c  moved to another object
 *   area_pack.c    small ones, which share an object     area_trim.c  memory given back
 *   link.c         links of tokens to areas              area.c       for commands; all of them
 *
 * I1  an area in its store's tree has an open object, or is packed: then its pack has, in which it has a room; or it is
 *     being made: then it has neither, and is busy. refs counts the commands and threads that use it now; of a pack, the
 *     areas that are packed in it, too.
 * I2  a dropped area is out of its store's tree; the last one that uses it closes it.
 * I3  an area that is busy is used by one thread alone, which makes it, gives back memory of it or moves it; others wait,
 *     but those that make or end its links: a move takes the links along.
 *     An area that is being linked has one thread that makes or ends its links, or takes them along to another object;
 *     others that would do so wait.
 *     A command that waits for an area may be using others of its store. So of each store one thread at a time may wait
 *     until no command uses an area (gstore_area_unpack()).
 * I4  beyond needed_bytes there is nothing of use: what the writer of the latest number has written,
 *     or what gstore_areas_trim() was passed.
 * I5  a packed area has a reference to its pack. A pack is in its store's tree until the store is dropped, also while no
 *     area is packed in it. It is busy while it is made or grows, for which only those wait who want a room.
 * I6  a pack has no link: an area that has one is not packed, nor moved to a pack.
 *
 * One lock guards all of it. The driver and the keeper are called without it: what other threads have to wait for
 * meanwhile is marked (busy, linking, sweeping).
 */
#ifndef GSTORE_AREA_STATE_H
#define GSTORE_AREA_STATE_H

#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "postgres/area.h"

#define GSTORE_CONNECTIONS_MAX 16u
#define GSTORE_ROOM_BYTES	   (64ull << 10)

/* A connection to the keeper: it can have so many objects open. */
typedef struct connection
{
	gvm_client *keeper;
	uint32_t	open;
} connection;

/* Where an area is, from the least on: area_object.c says how large each one is. */
typedef enum area_kind
{
	PACKED,
	SMALL,
	LARGE,
	LARGEST,
	AREA_KINDS
} area_kind;

/* Whose a room of a pack is: GSTORE_ROOM_BYTES each, in this order. */
typedef struct room
{
	uint16_t column;
	uint8_t	 part;
} room;

typedef struct gstore_area
{
	gstore_store_name name; /* writer_number: of its latest writer */
	uint16_t		  column;
	uint8_t			  part;
	area_kind		  kind;
	_Atomic uint32_t  links; /* of tokens to it: written under the lock */
	_Atomic uint32_t  ended; /* how many tokens of it have */
	_Atomic uint32_t hidden; /* of these the first so many: no program has it mapped by one of them any more */
	connection		   *connection;
	gvm_object		   *object; /* NULL: it is packed */
	struct gstore_area *pack;	/* then; and the place in it */
	uint64_t			offset_bytes;
	room			   *rooms; /* of a pack: room_count of them */
	uint32_t			room_count;
	uint64_t			bytes;	   /* committed; of a packed one, its room */
	_Atomic uint64_t needed_bytes; /* written under the lock; what a trim reads meanwhile may be more */
	uint32_t		 refs;
	bool			 dropped, busy, linking;
	bool			 trim; /* it is to give back what it does not need */
	/* In a list that needs no memory so: of a sweep, which has references, or of a drop, where nobody has. */
	struct gstore_area *next_found;
} area;

/* A store that has areas: what concerns one store costs in proportion to its own. */
typedef struct store_areas
{
	gstore_store_name	name;
	void			   *areas;		/* tsearch(3) by column and part */
	struct store_areas *next_found; /* of a drop */
} store_areas;

struct gstore_areas
{
	char path[108];
	/* The first one is for all that is not an area. The count: under the lock; gstore_areas_sever() looks without it. */
	connection		 connections[GSTORE_CONNECTIONS_MAX];
	_Atomic uint32_t connection_count;
	/* Areas, connections, tokens; no call of the driver or the keeper under it. */
	pthread_mutex_t lock;
	pthread_cond_t	not_busy; /* an area, or its links, or the sweep */
	void		   *stores;	  /* tsearch(3) by number: store */
	uint32_t		store_count;
	/* One thread at a time gives back what areas have ahead of need; how much all of them have given back. */
	bool						sweeping;
	_Atomic uint64_t			given_back_bytes;
	struct gstore_linked_token *tokens;
	uint32_t					link_mode;
	_Atomic bool				stop, trims_left;
};

/* ---- area_object.c */

extern const char *const gstore_part_names[];

/* The place of the area that has key's name, column and part; NULL: there is none. The lock is held. */
area **gstore_area_find(gstore_areas *s, const area *key);

/* Another connection, unless another thread makes it first. The lock is held, and given up meanwhile. */
gvm_status gstore_areas_connect(gstore_areas *s);

/* NULL: it has no areas. The lock is held. */
store_areas *gstore_areas_find_store(gstore_areas *s, const gstore_store_name *name);

/* Takes it out of the tree of stores, without its areas. The lock is held. */
void gstore_store_areas_free(gstore_areas *s, store_areas *of);

/* Of its object, at the keeper. */
void	 gstore_area_name(const area *a, char text[GVM_NAME_BYTES_MAX]);
uint64_t gstore_area_chunk_bytes(const area *a);
/* The most that an area of the kind can have. */
uint64_t gstore_area_most_bytes(area_kind kind);

/* Where the area is if it is made now for so many bytes. */
area_kind gstore_area_kind_for(const area *a, uint64_t needed);

/* An object of its own, of a->bytes; named: readers find it. The lock is held, and given up meanwhile. */
gvm_status gstore_area_create_object(gstore_areas *s, area *a, bool named);

/*
 * add: into the tree of its store, busy for the caller; a store that has no areas yet comes into the tree of stores, and
 * stays until it is dropped. end_making: the area has its place, and others may use it. discard: it could not be
 * made, and goes with the caller's reference. The lock is held; discard gives it up at its end.
 */
gvm_status gstore_area_add(gstore_areas *s, area *a);
void	   gstore_area_end_making(gstore_areas *s, area *a);
void	   gstore_area_discard(gstore_areas *s, area *a);

/*
 * Rows come one behind the other: where a new writer begins, what lies behind is of one that was undone. The
 * lock is held.
 */
void gstore_area_note_written(area *a, uint64_t writer_number, const gstore_range *range);

/* What it has if it is to have so much; ahead: of need, by a part of it. */
uint64_t gstore_area_grown_bytes(const area *a, uint64_t needed, bool ahead);

/* Its object, ahead of need where there is memory, as much as is needed where there is not. */
gvm_status gstore_area_grow(gstore_areas *s, area *a, uint64_t needed);
void	   gstore_area_set_bytes(gstore_areas *s, area *a, uint64_t bytes);

/* A lease for the use of an area that the caller has a reference to; and its end. */
gvm_status gstore_area_acquire(gstore_use *use);
gvm_status gstore_area_end_lease(gstore_use *use);

/* Gives back a reference. */
void gstore_area_unref(gstore_areas *s, area *a);

/* One that nobody uses. NULL is ignored; the error that the caller has stays. */
void gstore_area_free(gstore_areas *s, area *a);

/* ---- area_pack.c */

/* An object of its own, as gstore_area_create_object(), or a room: its kind says which. */
gvm_status gstore_area_make_place(gstore_areas *s, area *a, bool named);

/*
 * A new area as the one described, whose name, column, part, kind and bytes are set, with its place and a reference.
 * For the first packed one of a store the pack is made so, too. The lock is held, and given up meanwhile.
 */
gvm_status gstore_area_make(gstore_areas *s, const area *described, area **out);

/* ---- area_move.c */

/*
 * Puts an area of the kind in the place of this one, which is busy for the caller. The caller has not entered the device.
 *
 * GVM_E_ABSENT   it was dropped
 * GVM_E_TIMEOUT  it was to be packed, and was linked meanwhile
 */
gvm_status gstore_area_move_busy(gstore_areas *s, area *a, area_kind kind);

/*
 * Gives an area of the store an object of its own: it is about to have links. Until it has one it may be packed again.
 * One export of a store at a time calls it.
 */
gvm_status
gstore_area_unpack(gstore_areas *s, const gstore_store_name *store, const gstore_range *range);

/* May a process have it mapped that is not to see what is written from now on? The keeper is asked. */
bool gstore_area_is_shown(area *a);

/* What a writer of rows has written comes one behind the other there, up to what the newest version needs. */
static inline bool
gstore_part_is_of_rows(uint8_t part)
{
	return part != GSTORE_MANIFEST && part != GSTORE_DELETED && part != GSTORE_STAGED;
}

/* ---- for walks */

/* Once for each node of a walk, in the tree's order. */
static inline bool
gstore_is_in_order(VISIT visit)
{
	return visit == postorder || visit == leaf;
}

static inline int
gstore_compare_stores(const gstore_store_name *a, const gstore_store_name *b)
{
	return (a->store > b->store) - (a->store < b->store);
}

/* ---- link.c */

/*
 * Waits until nobody else makes or ends links of the area, or takes them along. The lock is held, and given up meanwhile;
 * the area may be dropped then, or another one be in its place.
 */
void gstore_area_begin_linking(gstore_areas *s, area *a);
void gstore_area_end_linking(gstore_areas *s, area *a);

/*
 * An area that the caller is linking has another object, that of to: its links go there, and so do those who open it by
 * a token from now on. One that cannot be linked is gone for them.
 */
void gstore_areas_relink(gstore_areas *s, const area *to);

/*
 * Makes the link of a range. *packed: there is none, as the area has to be unpacked first. Errors and *owner:
 * gstore_areas_link().
 */
gvm_status gstore_area_link(gstore_areas *s, const gstore_store_name *store,
							const uint8_t secret[GSTORE_SECRET_BYTES], const gstore_range *range,
							uint32_t *owner, bool *packed);

/* Of a store that goes; NULL: of all. */
void gstore_areas_forget_tokens(gstore_areas *s, const gstore_store_name *name);

#endif
