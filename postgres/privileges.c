/* See privileges.h. */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_table.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "postgres/privileges.h"

#define EXPORT_WAIT_MS 5000
#define QUERY_WAIT_MS  2000 /* there is the local plan */

bool
gstore_privileges(Oid relation, uint32 *privileges)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	bool	  null;
	Datum	  list;

	if (!HeapTupleIsValid(tuple))
		return false;
	*privileges = hash_bytes_uint32(((Form_pg_class) GETSTRUCT(tuple))->relowner);
	list = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relacl, &null);
	if (!null)
	{
		const Acl *acl = DatumGetAclP(list);

		*privileges = hash_combine(*privileges, hash_bytes((const unsigned char *) acl, VARSIZE(acl)));
	}
	ReleaseSysCache(tuple);
	return true;
}

/* ---- the lock: of pg_foreign_table, as no table has the OID 0 */

void
gstore_lock_privileges(void)
{
	LockDatabaseObject(ForeignTableRelationId, InvalidOid, 0, ExclusiveLock);
}

void
gstore_unlock_privileges(LOCKMODE mode)
{
	UnlockDatabaseObject(ForeignTableRelationId, InvalidOid, 0, mode);
}

static bool
has_shared(void)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ForeignTableRelationId, InvalidOid, 0);
	return LockHeldByMe(&tag, ShareLock);
}

/*
 * In the lock's queue, so that commits that follow one another do not keep it from others. PostgreSQL takes who has waited for
 * long out of the queue before it raises the error; the lock may have been granted at the same moment.
 */
static bool
share_within(int limit_ms)
{
	const int	  lock_timeout = LockTimeout;
	MemoryContext context = CurrentMemoryContext;

	LockTimeout = lock_timeout > 0 ? Min(lock_timeout, limit_ms) : limit_ms;
	PG_TRY();
	{
		LockDatabaseObject(ForeignTableRelationId, InvalidOid, 0, ShareLock);
	}
	PG_CATCH();
	{
		LockTimeout = lock_timeout;
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	LockTimeout = lock_timeout;
	return has_shared();
}

#define CHANGING \
	"another transaction changes privileges of tables in GPU memory, and its commit has not ended"

bool
gstore_share_privileges(Oid relation, bool waits, gstore_answer *refused)
{
	if (waits)
	{
		LockDatabaseObject(ForeignTableRelationId, InvalidOid, 0, ShareLock);
		return true;
	}
	if (share_within(refused != NULL ? QUERY_WAIT_MS : EXPORT_WAIT_MS))
		return true;
	if (refused == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("cannot export table \"%s\": " CHANGING, get_rel_name(relation)),
				 errhint("Try again later. pg_stat_activity shows what that commit waits for.")));
	refused->status = GVM_E_TIMEOUT;
	strlcpy(refused->text, CHANGING, sizeof refused->text);
	return false;
}

/* ---- this transaction's changes */

static enum
{
	UNCHANGED,
	GRANTED,
	TAKEN_AWAY
} privileges_changed;

void
gstore_note_privileges(bool granted)
{
	if (!granted)
		privileges_changed = TAKEN_AWAY;
	else if (privileges_changed == UNCHANGED)
		privileges_changed = GRANTED;
}

bool
gstore_privileges_changed(void)
{
	return privileges_changed != UNCHANGED;
}

/* If it has not changed the table at all, another one has noted what it granted and was rolled back after that. */
bool
gstore_look_at_privileges(Oid relation, uint32 *privileges, bool *accept)
{
	const bool there = gstore_privileges(relation, privileges);
	HeapTuple  tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));

	*accept = there &&
		(privileges_changed == GRANTED ||
		 !TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)));
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return there;
}

static void
privileges_xact_callback(XactEvent event, void *argument)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE: /* the lock would be held until it is committed, and exports wait for it */
			if (privileges_changed != UNCHANGED)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has changed privileges of tables in GPU memory"),
						 errhint("Use COMMIT.")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			privileges_changed = UNCHANGED;
			break;
		default:
			break;
	}
}

void
gstore_privileges_init(void)
{
	RegisterXactCallback(privileges_xact_callback, NULL);
}
