/*
 * postgres/autoanalyze.h - ANALYZE of tables whose rows have changed, as autovacuum does it for its own tables.
 *
 * Each table counts, in the directory, the rows that were changed since its last ANALYZE. Beyond autovacuum's threshold the
 * keeper's worker starts a background worker in the database, one at a time. It gives way to others that wait for its lock.
 */
#ifndef GSTORE_AUTOANALYZE_H
#define GSTORE_AUTOANALYZE_H

/* For the keeper's worker, now and then: starts what is due. */
extern void gstore_autoanalyze_look(void);

#endif
