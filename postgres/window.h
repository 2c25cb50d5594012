/*
 * postgres/window.h - a backend's way to the columns: commands through a window.
 *
 * A request collects ranges and executes them when it is full or asked to. Windows are taken for
 * the time of one command only, so nobody holds one while waiting for another. A write that was
 * begun has its window until its process looks at the answer, be that after hours: so at most half
 * of the windows are lent in this way.
 */
#ifndef GSTORE_WINDOW_H
#define GSTORE_WINDOW_H

#include "postgres/shared.h"

/* How many bytes one command can carry. */
extern uint64 gstore_window_size(void);

/* One range, and where its bytes are in this process. */
typedef struct gstore_piece
{
	uint16 column;
	uint8  part;
	uint64 offset_bytes;
	uint64 bytes;
	void  *local; /* READ: filled; WRITE: copied from; NULL with WRITE: fill with byte */
	uint8  byte;
	uint64 to;	   /* COPY_TAKE: offset in the copy */
	bool   staged; /* WRITE: the bytes are those from this offset on of what is staged: */
	uint64 from;
} gstore_piece;

/* What commands on copies, on foreign memory and on what is staged (command.h) are about. */
typedef struct gstore_far
{
	uint64 copy, copy_bytes;
	uint8  handle[GSTORE_HANDLE_BYTES];
	uint32 owner;
} gstore_far;

/*
 * Does all of it, in as many commands as it takes. ERROR on failure, on cancel and terminate; then
 * what a WRITE did is undefined, and what changes the store's areas next waits until it is over.
 */
extern void gstore_transfer(gstore_verb verb, const gstore_store_name *store,
							const gstore_piece *pieces, int count);

/* To a write that was begun. All zeros at first. */
typedef struct gstore_answer
{
	int32		   status; /* gvm_status, of the latest one that is through */
	char		   text[GSTORE_ERROR_BYTES];
	uint16		   short_column; /* as in a window */
	uint64		   short_bytes;
	gstore_budgets budgets;
} gstore_answer;

/*
 * As gstore_transfer() of a WRITE, but the last of its commands may be under way yet when this returns;
 * its outcome goes to the answer, which must stay where it is until gstore_await() or gstore_settle().
 * There is one at a time: whatever else of this process goes through a window waits for it first.
 */
extern void gstore_write_begin(const gstore_store_name *store, const gstore_piece *pieces,
							   int count, gstore_answer *answer);

/* Until nothing that was begun is under way. ERROR on cancel and terminate alone: it stays so then. */
extern void gstore_await(void);

/* ERROR with what the answer to a write to the store says. */
extern void gstore_answer_fail(const gstore_store_name *store, const gstore_answer *answer)
	pg_attribute_noreturn();

/*
 * gstore_transfer() for the other verbs; at least one command, also without pieces. COPY_MAKE fills far->handle.
 * Of the store, COPY_TAKE looks at all, the others at device and epoch.
 */
extern void gstore_transfer_far(gstore_verb verb, const gstore_store_name *store, gstore_far *far,
								const gstore_piece *pieces, int count);

/* The same, but what the service refuses goes to *refused, which need not be zeros: then false. NULL: ERROR. */
extern bool gstore_try_transfer(gstore_verb verb, const gstore_store_name *store, gstore_far *far,
								const gstore_piece *pieces, int count, gstore_answer *refused);

/*
 * Gives up the write that was begun, if its outcome goes to this answer; NULL: whatever it is. It is not carried
 * out if no thread has taken it; else the next write to the store waits for it. Cannot fail.
 */
extern void gstore_leave_begun(const gstore_answer *answer);
/* The same, if it is one to this store. */
extern void gstore_leave_begun_to(uint64 store);

/*
 * After a FATAL: ends the command that this process waits for. One that a thread has taken is left, but for
 * FOREIGN_WRITE, for which it waits, without interrupts.
 */
extern void gstore_settle(void);

/*
 * A service thread is yet to end a command that its backend has left: that changes areas of the store, makes links of the
 * token, makes the copy or writes to it.
 */
extern bool gstore_has_left_change(const gstore_store_name *name);
extern bool gstore_has_left_link(const uint8 secret[GSTORE_SECRET_BYTES]);
extern bool gstore_has_left_copy(uint64 copy);

/* For the worker: of a window that nobody has. Any thread may call it. */
extern void gstore_window_give_back(uint32 window);

/* ERROR (55000) if the server was started without the extension. */
extern void gstore_check_loaded(void);

/* Waits until the keeper serves; ERROR after gstore_fdw.start_timeout. */
extern void gstore_wait_ready(void);

#endif
