/* See spread.h. */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"

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

/* The parent is locked: no partition comes or goes. */
static int
choose_device(Oid parent)
{
	int		  counts[GVM_KEEPER_DEVICES_MAX] = {0}, chosen = 0;
	ListCell *cell;

	foreach(cell, find_inheritance_children(parent, NoLock))
		if (gstore_is_table(lfirst_oid(cell)))
			counts[gstore_table_device(lfirst_oid(cell))]++;
	for (int device = 1; device < gstore->device_count; device++)
		if (counts[device] < counts[chosen])
			chosen = device;
	return chosen;
}

PlannedStmt *
gstore_spread_partition(PlannedStmt *statement)
{
	CreateForeignTableStmt *create = (CreateForeignTableStmt *) statement->utilityStmt;
	Oid						parent;

	if (!IsA(create, CreateForeignTableStmt) || create->base.partbound == NULL || gstore == NULL ||
		!gstore->ready || gstore->device_count < 2 || has_pinning(create->options) ||
		!gstore_is_server(create->servername))
		return statement;
	/* As the statement itself does. */
	parent = RangeVarGetRelid(linitial_node(RangeVar, create->base.inhRelations),
							  ShareUpdateExclusiveLock, true);
	if (!OidIsValid(parent))
		return statement;
	statement = copyObject(statement);
	create = (CreateForeignTableStmt *) statement->utilityStmt;
	create->options = lappend(
		create->options,
		makeDefElem("pinning", (Node *) makeString(psprintf("%d", choose_device(parent))), -1));
	return statement;
}
