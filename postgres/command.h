/*
 * postgres/command.h - what backends ask the GPU memory keeper for, in shared memory.
 *
 * Plain C, for both sides: backends (window.c) are PostgreSQL processes, service threads (service.c)
 * include nothing of PostgreSQL. A window belongs to one backend at a time, from taking it to the end of
 * its command; the command's state says which side has it:
 *
 *     IDLE -> POSTED (backend) -> TAKEN -> DONE (service thread) -> IDLE (backend)
 *             POSTED -> IDLE (backend): it gives up, and the command is never carried out
 *                       TAKEN -> LEFT (backend): it gives up; the thread gives the window back. What comes
 *                                next to the same store, token or copy waits (window.h). Not FOREIGN_WRITE
 *
 * Only the side that has it touches the command and the window's bytes: the service thread while it
 * is TAKEN or LEFT, nobody while it is POSTED, else the backend. From POSTED and TAKEN each side goes on by
 * compare-and-exchange, so that one of them does.
 */
#ifndef GSTORE_COMMAND_H
#define GSTORE_COMMAND_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#define GSTORE_RANGES_MAX	256u
#define GSTORE_WINDOWS_MAX	256u
#define GSTORE_ERROR_BYTES	200
#define GSTORE_HANDLE_BYTES 64 /* of a CUipcMemHandle */
#define GSTORE_SECRET_BYTES 16 /* of a token */

typedef enum gstore_part
{
	GSTORE_VALUES,
	GSTORE_NULLS,
	GSTORE_BODIES,
	GSTORE_MANIFEST,	  /* of column 0: what tokens lead to (keeper/table/manifest.h) */
	GSTORE_ELEMENT_NULLS, /* of format 'arrow': as NULLS, of the elements of lists */
	GSTORE_PACK,		  /* of column 0: where areas are that are small (area_pack.c) */
	GSTORE_DELETED,		  /* of column 0: bitmaps of deleted rows (deleted.h) */
	GSTORE_STAGED, /* of column 0 of a store of no table: what a program writes that is to be loaded */
} gstore_part;

typedef enum gstore_verb
{
	GSTORE_READ,  /* areas -> window */
	GSTORE_WRITE, /* window -> areas, which grow as needed */

	/* Copies: memory of cuMemAlloc that other programs open by a handle; `copy` says which. */
	GSTORE_COPY_MAKE,  /* copy_bytes of it, zeroed; returns the handle */
	GSTORE_COPY_WRITE, /* window -> copy */
	GSTORE_COPY_TAKE,  /* areas -> copy, on the device: window_bytes is the offset in the copy */

	/*
     * Memory of another program, by its handle; it stays open for `copy`, which names the caller's
     * business, until GSTORE_FOREIGN_CLOSE or a few seconds without a command.
     */
	GSTORE_FOREIGN_READ,  /* memory -> window */
	GSTORE_FOREIGN_WRITE, /* window -> memory */
	GSTORE_FOREIGN_CLOSE,

	/* Before tokens are made, as it may take long; it gives nobody a right: */
	GSTORE_UNPACK_BYTES, /* adds to copy_bytes what these areas would take with objects of their own; there is so much */
	GSTORE_UNPACK, /* gives them these objects (area.h) */

	/* Tokens (token.h); the first GSTORE_SECRET_BYTES of `handle` are the secret. */
	GSTORE_LINK, /* others who know it may open the first `bytes` of these areas; returns `owner` */
	GSTORE_UNLINK, /* no area of the store may be opened by it any more */

	GSTORE_STAGE, /* makes the part STAGED of the store, with `bytes` of zeros; others may write what they open of it */
} gstore_verb;

typedef enum gstore_command_state
{
	GSTORE_IDLE,
	GSTORE_POSTED,
	GSTORE_TAKEN,
	GSTORE_LEFT,
	GSTORE_DONE,
} gstore_command_state;

typedef enum gstore_source
{
	GSTORE_FROM_WINDOW,
	GSTORE_FROM_BYTE, /* the window is not read, every byte is that of `byte` */
	GSTORE_FROM_STAGED, /* nor then: window_bytes is the offset in the part STAGED of the store numbered `copy` */
} gstore_source;

/* One piece of one area. */
typedef struct gstore_range
{
	uint16_t column; /* attribute number */
	uint8_t	 part;	 /* gstore_part */
	uint8_t	 source; /* gstore_source: of a WRITE */
	uint8_t	 byte;
	uint8_t	 reserved[3];
	uint64_t offset_bytes; /* in the area */
	uint64_t window_bytes; /* offset in the window */
	uint64_t bytes;
} gstore_range;

typedef struct gstore_store_name
{
	uint32_t database, table; /* OIDs; table 0: of no table, but of a token of gstore_load_begin() */
	uint64_t store;			  /* never used twice, nor after a restart of the server */
	int32_t	 device;		  /* ordinal */
	uint32_t epoch;			  /* of the keeper in which it was made */
	/* Later writers of the store have higher numbers; 0: a reader. */
	uint64_t writer_number;
} gstore_store_name;

/* What the names of a store's objects begin with. */
#define GSTORE_STORE_PATH_BYTES 96

static inline void
gstore_store_path(const gstore_store_name *name, char text[GSTORE_STORE_PATH_BYTES])
{
	snprintf(text, GSTORE_STORE_PATH_BYTES, "/gstore/%u/%u/%llu", (unsigned) name->database,
			 (unsigned) name->table, (unsigned long long) name->store);
}

/* What the names begin with by which a token's areas are opened. */
#define GSTORE_LINK_PATH_BYTES (8 + 2 * GSTORE_SECRET_BYTES + 1)

static inline void
gstore_link_path(const uint8_t secret[GSTORE_SECRET_BYTES], char text[GSTORE_LINK_PATH_BYTES])
{
	int length = snprintf(text, GSTORE_LINK_PATH_BYTES, "/gstore/");

	for (int i = 0; i < (int) GSTORE_SECRET_BYTES; i++)
		length += snprintf(text + length, (size_t) (GSTORE_LINK_PATH_BYTES - length), "%02x",
						   secret[i]);
}

/* What there is, and how much of it is used. */
typedef struct gstore_budgets
{
	uint64_t device_bytes, device_used_bytes; /* of the store's device; 0: not known */
	uint64_t host_bytes, host_used_bytes;
} gstore_budgets;

typedef struct gstore_window
{
	_Atomic uint32_t  state;  /* gstore_command_state */
	_Atomic uint64_t  number; /* of the command: later ones have higher numbers */
	gstore_verb		  verb;
	gstore_store_name name;
	uint32_t		  range_count;
	gstore_range	  ranges[GSTORE_RANGES_MAX];
	uint64_t		  copy, copy_bytes;
	uint8_t			  handle[GSTORE_HANDLE_BYTES];
	uint32_t		  owner;  /* of the areas, a user id, as the keeper has it */
	int32_t			  status; /* DONE: gvm_status */
	char			  text[GSTORE_ERROR_BYTES];
	uint16_t		  short_column; /* GVM_E_NOSPACE: attribute number, */
	uint64_t		  short_bytes;	/* how large one of its areas was to be; 0: no area was, */
	gstore_budgets	  budgets;		/* and what there was then */
	void			 *latch;		/* the backend's; woken when DONE */
} gstore_window;

/*
 * The queue: the windows that are POSTED, in the order of their numbers. Any backend posts, any service thread takes. A
 * process that is stopped in between holds up its own command alone.
 */
typedef struct gstore_queue
{
	sem_t			 posted;	 /* a hint to look: threads look until they find nothing */
	_Atomic uint32_t left_count; /* windows that are LEFT, or about to be */
	_Atomic uint64_t numbers;
} gstore_queue;

/* Posts the command of a window. */
static inline void
gstore_queue_put(gstore_queue *queue, gstore_window *window)
{
	atomic_store(&window->number, atomic_fetch_add(&queue->numbers, 1));
	atomic_store(&window->state, GSTORE_POSTED);
	sem_post(&queue->posted);
}

#endif
