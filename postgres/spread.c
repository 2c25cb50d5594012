/* See spread.h. */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "commands/tablecmds.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"

#include <gvmem/gvmem.h>

#include "postgres/option.h"
#include "postgres/shared.h"
#include "postgres/spread.h"
#include "postgres/table.h"

static bool
has_pinning(const List *options)
{
	const ListCell *cell;

	foreach(cell, options)
		if (strcmp(lfirst_node(DefElem, cell)->defname, "pinning") == 0)
			return true;
	return false;
}

/* Its partitions on each GPU. */
static void
count_partitions(List *tables, int counts[GVM_KEEPER_DEVICES_MAX])
{
	ListCell *cell;

	foreach(cell, tables)
		if (gstore_is_table(lfirst_oid(cell)))
			counts[gstore_table_device(lfirst_oid(cell))]++;
}

static Oid
find_root(Oid parent)
{
	List *ancestors = get_rel_relispartition(parent) ? get_partition_ancestors(parent) : NIL;

	return ancestors != NIL ? llast_oid(ancestors) : parent;
}

/* The parent is locked: none of its partitions comes or goes. */
static int
choose_device(Oid parent)
{
	int counts[GVM_KEEPER_DEVICES_MAX] = {0}, all[GVM_KEEPER_DEVICES_MAX] = {0}, chosen = 0;

	count_partitions(find_inheritance_children(parent, NoLock), counts);
	count_partitions(find_all_inheritors(find_root(parent), NoLock, NULL), all);
	for (int device = 1; device < gstore->device_count; device++)
		if (counts[device] < counts[chosen] ||
			(counts[device] == counts[chosen] && all[device] < all[chosen]))
			chosen = device;
	return chosen;
}

PlannedStmt *
gstore_spread_partition(PlannedStmt *statement)
{
	CreateForeignTableStmt *create = (CreateForeignTableStmt *) statement->utilityStmt;
	Oid						parent;

	if (!IsA(create, CreateForeignTableStmt) || create->base.partbound == NULL || gstore == NULL ||
		!gstore->ready || gstore->device_count < 2 || XactReadOnly ||
		has_pinning(create->options) || !gstore_is_server(create->servername))
		return statement;
	if (create->base.if_not_exists &&
		OidIsValid(get_relname_relid(create->base.relation->relname,
									 RangeVarGetCreationNamespace(create->base.relation))))
		return statement;
	/* As the statement itself does, but nobody waits for the lock who is refused afterwards. */
	parent = RangeVarGetRelidExtended(linitial_node(RangeVar, create->base.inhRelations),
									  AccessExclusiveLock, RVR_MISSING_OK,
									  RangeVarCallbackOwnsRelation, NULL);
	if (!OidIsValid(parent))
		return statement;
	statement = copyObject(statement);
	create = (CreateForeignTableStmt *) statement->utilityStmt;
	create->options = lappend(
		create->options,
		makeDefElem("pinning", (Node *) makeString(psprintf("%d", choose_device(parent))), -1));
	return statement;
}
