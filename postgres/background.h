/*
 * postgres/background.h - processes that the keeper's worker starts in a database, which it is in none itself: a few of
 * a kind at a time. Each works through tables, with a transaction for each. What it runs may be an owner's, and take for ever:
 * no two of a kind are at tables of the same owner, so that one owner has one of them.
 */
#ifndef GSTORE_BACKGROUND_H
#define GSTORE_BACKGROUND_H

#include "postgres.h"

#include "postmaster/bgworker.h"

#include "postgres/shared.h"

typedef struct gstore_background
{
	const char			   *name, *type;				  /* in pg_stat_activity */
	const char			   *function;					  /* with the database as its argument */
	const char			   *purpose;					  /* "cannot start a process to ..." */
	BackgroundWorkerHandle *handles[GSTORE_WORKING_MOST]; /* NULL at first */
} gstore_background;

/* ---- for the keeper's worker */

/* One more may be started: fewer than GSTORE_WORKING_MOST have not ended. */
extern bool gstore_background_has_place(gstore_background *kind);
/* Starts it; a failure is logged. */
extern void gstore_background_start(gstore_background *kind, Oid database);
/* One of the list is at the table. The directory's lock is held. */
extern bool gstore_background_is_at(const gstore_working *list, const gstore_table *table);

/* ---- for the process */

/*
 * flags: of BackgroundWorkerInitializeConnectionByOid(). list: of the kind, where the process is until it ends. end_waits is called, with
 * the directory's lock held, when the process leaves a table, also by ending, that has kept another process from one of its owner's;
 * it may be NULL.
 */
extern void gstore_background_connect(Datum database, uint32 flags, gstore_working *list,
									  void (*end_waits)(void));

#define GSTORE_BACKGROUND_TAKEN (-1)

/*
 * Calls work(table) in a transaction. False: somebody has the table's lock. Returns the SQLSTATE of an error, which is logged
 * if it is another than error_before, after what was being done to the table; 0 without one. GSTORE_BACKGROUND_TAKEN: it was
 * not called, as another process of the kind is at the table, or at one of the same owner.
 */
extern int
gstore_background_try(bool (*work)(Oid table), Oid table, const char *what, int error_before);

/* After GSTORE_BACKGROUND_TAKEN: it still is, and end_waits of the other process comes. The directory's lock is held. */
extern bool gstore_background_is_taken(Oid table);

#endif
