/* postgres/autoanalyze.h - ANALYZE of tables whose rows have changed, as autovacuum does it for its own tables.
 *
 * Each table counts, in the directory, the rows that were changed since its last ANALYZE. Beyond autovacuum's threshold the
 * keeper's worker starts a background worker in the database, one at a time. It gives way to others that wait for its lock.
 */
#ifndef GSTORE_AUTOANALYZE_H
#define GSTORE_AUTOANALYZE_H

#include "nodes/parsenodes.h"
#include "utils/rel.h"

/* For the keeper's worker, now and then: starts what is due. */
extern void gstore_autoanalyze_look(void);

/* A statement is about to run: if it names columns, the tables are not analyzed as a whole. */
extern void gstore_autoanalyze_follow(const VacuumStmt *statement);
/* A sample of the relation was taken, which has so many rows. If it is the one that is being analyzed, not its parent, and
 * the transaction commits, then the changes up to now count no more. */
extern void gstore_autoanalyze_note(Relation relation, double rows);

extern void gstore_autoanalyze_init(void);

#endif
