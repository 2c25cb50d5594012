/*
 * postgres/background.h - processes that the keeper's worker starts in a database, which it is in none itself: at most one
 * of a kind at a time. Each works through tables, with a transaction for each.
 */
#ifndef GSTORE_BACKGROUND_H
#define GSTORE_BACKGROUND_H

#include "postgres.h"

#include "postmaster/bgworker.h"

typedef struct gstore_background
{
	const char			   *name, *type; /* in pg_stat_activity */
	const char			   *function;	 /* with the database as its argument */
	const char			   *purpose;	 /* "cannot start a process to ..." */
	BackgroundWorkerHandle *handle;		 /* NULL at first */
} gstore_background;

/* ---- for the keeper's worker */

/* The kind's process has not ended. */
extern bool gstore_background_runs(gstore_background *kind);
/* Starts it; a failure is logged. */
extern void gstore_background_start(gstore_background *kind, Oid database);

/* ---- for the process */

/* flags: of BackgroundWorkerInitializeConnectionByOid(). */
extern void gstore_background_connect(Datum database, uint32 flags);

/*
 * Calls work(table) in a transaction. False: somebody has the table's lock. Returns the SQLSTATE of an error, which is logged
 * if it is another than error_before, after what was being done to the table; 0 without one.
 */
extern int
gstore_background_try(bool (*work)(Oid table), Oid table, const char *what, int error_before);

#endif
