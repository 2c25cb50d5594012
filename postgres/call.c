/* See call.h. */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "fmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "postgres/call.h"
#include "postgres/deleted.h"
#include "postgres/pending.h"
#include "postgres/reload.h"
#include "postgres/scan.h"
#include "postgres/table.h"
#include "postgres/token.h"
#include "postgres/window.h"

/* The rows of a transaction's own changes are of a store that others do not see, or in this process alone. */
static void
check_unchanged(Relation relation)
{
	if (gstore_pending_find(RelationGetRelid(relation)) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot pass table \"%s\" to a function on the GPU: this transaction has changed it",
						RelationGetRelationName(relation)),
				 errhint("COMMIT first.")));
}

/* As scan.c: a statement that has waited for rows sees them at READ COMMITTED. */
static Snapshot
choose_snapshot(Relation relation)
{
	if (!gstore_reload_await(relation))
		return GetActiveSnapshot();
	if (IsolationUsesXactSnapshot())
		gstore_fail_reloaded();
	return GetLatestSnapshot();
}

static void
open_table(Oid oid, gstore_call_table *out)
{
	gstore_row_range ranges[GSTORE_ROW_RANGES_MAX];
	Relation		 relation;
	Snapshot		 snapshot;

	memset(out, 0, sizeof *out);
	gstore_check_readable(oid);
	if (!ActiveSnapshotSet())
		elog(ERROR, "a table was passed to a function without a snapshot");
	relation = try_relation_open(oid, AccessShareLock);
	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", oid)));
	gstore_wait_ready();
	check_unchanged(relation);
	snapshot = RegisterSnapshot(choose_snapshot(relation));
	gstore_note_read(relation, snapshot);
	if (gstore_choose_rows(relation, snapshot, false, false, ranges) > 0)
	{
		const gstore_view *view = &ranges[0].view;

		out->token = gstore_export_rows(relation, view, false, true);
		out->rows = view->rows;
		out->dead = gstore_deleted_bits(gstore_deleted_create(), view, 0, view->rows);
		out->dead_bytes = view->deleted_bytes > 0 ? (view->rows + 7) / 8 : view->dead_bytes;
	}
	UnregisterSnapshot(snapshot);
	relation_close(relation, NoLock);
}

void
gstore_call_init(void)
{
	static const gstore_call_api api = {GSTORE_CALL_VERSION, open_table, gstore_wait_ready};

	*find_rendezvous_variable(GSTORE_CALL_VARIABLE) = (void *) &api;
}
