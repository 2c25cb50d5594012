/* See call.h. */
#include "postgres.h"

#include "access/parallel.h"
#include "access/relation.h"
#include "fmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "postgres/call.h"
#include "postgres/reload.h"
#include "postgres/scan.h"
#include "postgres/table.h"
#include "postgres/whole.h"

static void
open_table(Oid oid, gstore_call_table *out)
{
	Relation	relation;
	Snapshot	snapshot;
	gstore_view view;

	memset(out, 0, sizeof *out);
	gstore_check_readable(oid);
	if (!ActiveSnapshotSet())
		elog(ERROR, "a table was passed to a function without a snapshot");
	if (IsParallelWorker())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a table cannot be passed to a function on the GPU in a parallel worker"),
				 errhint("Declare the function PARALLEL UNSAFE, as it is by default.")));
	relation = try_relation_open(oid, AccessShareLock);
	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", oid)));
	gstore_wait_ready();
	snapshot = gstore_register_snapshot(relation, GetActiveSnapshot(), NULL);
	gstore_note_read(relation, snapshot);
	if (gstore_whole_choose(relation, snapshot, true, &view) == GSTORE_WHOLE_ROWS)
		(void) gstore_whole_export(relation, &view, GSTORE_EXPORT_CALL, out, NULL);
	UnregisterSnapshot(snapshot);
	relation_close(relation, NoLock);
}

void
gstore_call_init(void)
{
	static const gstore_call_api api = {GSTORE_CALL_VERSION, open_table, gstore_wait_ready};

	*find_rendezvous_variable(GSTORE_CALL_VARIABLE) = (void *) &api;
}
