/*
 * postgres/privileges.h - owner and privileges of tables, as tokens and CUDA handles were made under them.
 *
 * docs/design/gstore.md, "Tokens".
 */
#ifndef GSTORE_PRIVILEGES_H
#define GSTORE_PRIVILEGES_H

#include "postgres.h"

#include "storage/lockdefs.h"

#include "postgres/window.h"

/* Owner and privileges of a table, as a number. False: there is no such table (any more). */
extern bool gstore_privileges(Oid relation, uint32 *privileges);

/*
 * Against changes of privileges: who exports shares it from looking at privileges to when what it made can be found; who has
 * changed some locks it (ExclusiveLock) to the end of its transaction.
 */
extern void gstore_lock_privileges(void);
/*
 * Waits a few seconds for a commit that changes some, or, if so said, for as long as it takes. False: that commit goes on, as
 * *refused says, for who has another way; if that is NULL, ERROR.
 */
extern bool gstore_share_privileges(Oid relation, bool waits, gstore_answer *refused);
extern void gstore_unlock_privileges(LOCKMODE mode);

/*
 * The transaction has granted privileges, or taken some away, changed an owner, dropped a table: its commit
 * ends the tokens and CUDA handles of the tables that are concerned.
 */
extern void gstore_note_privileges(bool granted);
extern bool gstore_privileges_changed(void);

/*
 * As gstore_privileges(), at this commit. *accept: what was made before is not to end for it, as this transaction has
 * taken none away.
 */
extern bool gstore_look_at_privileges(Oid relation, uint32 *privileges, bool *accept);

extern void gstore_privileges_init(void);

#endif
