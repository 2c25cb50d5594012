/*
 * postgres/lost.h - tables whose rows were lost with the keeper or the server, and the epochs between losses.
 *
 * A file in the data directory names the tables that have rows. At server start it says whose rows went with the
 * server's last run.
 */
#ifndef GSTORE_LOST_H
#define GSTORE_LOST_H

#include "postgres/directory.h"

/* ERROR if the server has no rows of tables, being a standby (0A000) or without the keeper (55000). */
extern void gstore_check_access(void);

/*
 * gstore_look(), which waits for the keeper if there are rows: while none serves, the directory may be of one that is
 * gone.
 */
extern void gstore_look_alive(Oid relation, Snapshot snapshot, gstore_dead dead, gstore_view *view);

/* ERROR (55000) if the rows that the view is without were lost, and the statement is not to see an empty table. */
extern void gstore_check_lost(Oid relation, const gstore_view *view);

/* The same as a warning, for ANALYZE, which leaves such a table out. True: it was given. */
extern bool gstore_report_lost(int level, Oid relation, const gstore_view *view);

/*
 * For the worker: the keeper is gone, or a new one begins. From here on no transaction adds a version with a store of
 * before. Returns the new epoch; *lost: there are versions, and gstore_lose_versions() is to be called.
 */
extern uint32 gstore_begin_epoch(bool *lost);
/* Forgets all versions, and notes which tables had rows. xid: of a transaction that ends after this. */
extern void gstore_lose_versions(TransactionId xid);

/* Writes the file anew, durably. level: of failures; then false, and a file that was stale stays so. */
extern bool gstore_record_tables(int level);

/* The next try to load the table from its source: 2, 4, ... 256 s from now, by how many there were. The directory's lock is held. */
extern void gstore_delay_load(gstore_table *table);

/* How many tables it names; in the postmaster. */
extern int gstore_count_recorded(void);
/* Reads it, in the postmaster. */
extern void gstore_read_record(void);

#endif
