/* DROP, and what follows from it: the memory of a table goes with the table, at commit. */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "postgres/fdw.h"
#include "postgres/option.h"
#include "postgres/pending.h"

static object_access_hook_type previous;

bool gstore_is_table(Oid relation)
{
    return get_rel_relkind(relation) == RELKIND_FOREIGN_TABLE &&
           GetFdwRoutineByRelId(relation)->ExecForeignTruncate == gstore_truncate_callback;
}

static void drop(Oid relation)
{
    gstore_view view;
    Relation table;

    if (!gstore_is_table(relation))
        return;
    gstore_look(relation, NULL, false, &view);
    if (view.empty && gstore_pending_find(relation) == NULL)
        return;
    table = relation_open(relation, NoLock); /* DROP holds the strongest */
    gstore_truncate(gstore_pending_begin(table));
    relation_close(table, NoLock);
}

static void on_access(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
    if (previous != NULL)
        previous(access, class, object, part, argument);
    if (access == OAT_DROP && class == RelationRelationId && part == 0)
        drop(object);
}

void gstore_ddl_init(void)
{
    previous = object_access_hook;
    object_access_hook = on_access;
}
