/*
 * postgres/reload.h - tables with the option "source", whose rows are loaded again after they were lost.
 *
 * The keeper's worker starts background workers in databases that have lost tables, a few at a time, and one for an owner. They run
 * INSERT INTO table source for each that has the option, as the table's owner, in a security-restricted operation.
 */
#ifndef GSTORE_RELOAD_H
#define GSTORE_RELOAD_H

#include "nodes/execnodes.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

#include "postgres/directory.h"

/* For the keeper's worker, each second: starts what is due, and ends loads of tables that somebody waits to drop, truncate or alter. */
extern void gstore_reload_look(void);

/*
 * Waits for the table's rows, if the setting says so and this transaction does not write the table. True: they have come, since the
 * snapshot was taken, which may be NULL.
 */
extern bool gstore_reload_await(Relation relation, Snapshot snapshot);

/*
 * The snapshot, registered; or, of a statement that waits for the table's rows, a newer one with the same command, if they have come
 * since: as a writer that has waited, it sees them at READ COMMITTED. So do all scans of the table that have the same estate; NULL:
 * there are no others. The same of a table that the statement changes, once it has been locked.
 */
extern Snapshot gstore_register_snapshot(Relation relation, Snapshot snapshot, EState *estate);
/* Likewise the statement's, one for several tables, which sees the rows of all; NULL among these is none. */
extern Snapshot gstore_register_snapshots(const Relation *relations, int count, EState *estate);

/* ERROR (40001): of a statement that has waited, with a snapshot that does not see the rows and must be kept. */
extern void gstore_fail_reloaded(void) pg_attribute_noreturn();

/*
 * The revision that the statement sees, of a table that was checked; waits for its rows if the setting says so. What the
 * transaction itself has changed is not part of a revision before its commit.
 */
extern void gstore_look_now(Oid relation, gstore_dead dead, gstore_view *view);

/* The database is about to be dropped: the workers that are in it end. */
extern void gstore_reload_stop(Oid database);

#endif
