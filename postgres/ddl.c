/* DROP and ALTER: the memory of a table goes with the table, at commit; rows follow what is altered, or
 * the ALTER is refused.
 *
 * PostgreSQL alters foreign tables without a thought for rows. Each statement's alterations are noted
 * while it runs, by the hook that is called for every object, and looked at when it is through: the
 * catalog shows the table as it shall be then, the store's columns show how it was.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_database.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "parser/parse_coerce.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "postgres/fdw.h"
#include "postgres/option.h"
#include "postgres/pending.h"

/* What one statement altered about one table. */
typedef struct altered {
    Oid relation;
    Bitmapset *added; /* columns */
    bool columns;     /* some column is different */
    char *format;     /* before, if options are different; NULL: they are not */
} altered;

/* Of the statement that runs, in its memory. */
typedef struct notes {
    struct notes *outer;
    MemoryContext context;
    List *tables;      /* of altered */
    List *constraints; /* OIDs of new ones, which cannot be looked up yet */
} notes;

static object_access_hook_type previous_access;
static ProcessUtility_hook_type previous_utility;
static notes *current;
static Oid dropped_database; /* by this transaction */

/* By the handler's name first: another wrapper's handler is not to be called, or loaded, for a look. */
static bool is_our_handler(Oid function)
{
    HeapTuple tuple;
    bool named = false;

    if (!OidIsValid(function))
        return false;
    tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (HeapTupleIsValid(tuple)) {
        bool null;
        const Datum source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &null);

        named = !null && strcmp(TextDatumGetCString(source), "gstore_fdw_handler") == 0;
        ReleaseSysCache(tuple);
    }
    return named && GetFdwRoutine(function)->ExecForeignTruncate == gstore_truncate_callback;
}

bool gstore_is_table(Oid relation)
{
    if (get_rel_relkind(relation) != RELKIND_FOREIGN_TABLE)
        return false;
    return is_our_handler(
        GetForeignDataWrapper(GetForeignServer(GetForeignTable(relation)->serverid)->fdwid)->fdwhandler);
}

/* ---- DROP */

static void drop_table(Oid relation)
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

/* Nobody is connected to the database, so no snapshot needs its versions. */
static void at_transaction_end(XactEvent event, void *argument)
{
    if (event == XACT_EVENT_COMMIT && OidIsValid(dropped_database))
        gstore_forget_database(dropped_database);
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
        dropped_database = InvalidOid;
}

/* ---- ALTER: notes */

static char *format_of(Oid relation)
{
    ListCell *cell;

    foreach (cell, GetForeignTable(relation)->options) {
        DefElem *option = lfirst(cell);

        if (strcmp(option->defname, "format") == 0)
            return pstrdup(defGetString(option));
    }
    return pstrdup("pgstrom");
}

static altered *note_table(Oid relation)
{
    altered *a;
    ListCell *cell;

    foreach (cell, current->tables) {
        a = lfirst(cell);
        if (a->relation == relation)
            return a;
    }
    a = palloc0(sizeof *a);
    a->relation = relation;
    current->tables = lappend(current->tables, a);
    return a;
}

static void note(ObjectAccessType access, Oid class, Oid object, int part)
{
    MemoryContext old = MemoryContextSwitchTo(current->context);

    if (class == RelationRelationId && part > 0 && gstore_is_table(object)) {
        altered *a = note_table(object);

        if (access == OAT_POST_CREATE)
            a->added = bms_add_member(a->added, part);
        else
            a->columns = true;
    } else if (class == ForeignTableRelationId && access == OAT_POST_ALTER && gstore_is_table(object)) {
        altered *a = note_table(object);

        if (a->format == NULL)
            a->format = format_of(object); /* the catalog does not show the new ones yet */
    } else if (class == ConstraintRelationId)
        current->constraints = lappend_oid(current->constraints, object);
    MemoryContextSwitchTo(old);
}

static void on_access(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
    if (previous_access != NULL)
        previous_access(access, class, object, part, argument);
    if (access == OAT_DROP && class == RelationRelationId && part == 0)
        drop_table(object);
    else if (access == OAT_DROP && class == DatabaseRelationId) {
        (void)gstore_area(); /* what can fail does so now */
        dropped_database = object;
    } else if (current != NULL && (access == OAT_POST_CREATE || access == OAT_POST_ALTER))
        note(access, class, object, part);
}

/* ---- ALTER: what follows */

static void check_options(const altered *a, Relation table, const gstore_view *state)
{
    static const char hint[] = "TRUNCATE the table first, or load the rows into a new table.";

    if (gstore_table_device(a->relation) != state->name.device)
        ereport(ERROR,
                (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                 errmsg("cannot change option \"pinning\" of table \"%s\": it has rows on device %d",
                        RelationGetRelationName(table), state->name.device),
                 errhint("%s", hint)));
    if (pg_strcasecmp(a->format, format_of(a->relation)) != 0)
        ereport(ERROR,
                (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                 errmsg("cannot change option \"format\" of table \"%s\": it has rows in format '%s'",
                        RelationGetRelationName(table), a->format),
                 errhint("%s", hint)));
}

/* Every value of the old type is one of the new type, with the same bytes. */
static bool takes_all(const gstore_column *column, const Form_pg_attribute attribute)
{
    if (column->type == attribute->atttypid && column->typmod == attribute->atttypmod)
        return true;
    if (column->length != attribute->attlen || column->by_value != attribute->attbyval ||
        column->align != attribute->attalign)
        return false;
    if (column->type != attribute->atttypid && !IsBinaryCoercible(column->type, attribute->atttypid))
        return false;
    return attribute->atttypmod == -1 || (attribute->atttypid == VARCHAROID && column->typmod >= 0 &&
                                          attribute->atttypmod >= column->typmod);
}

static void check_types(Relation table, const gstore_view *state)
{
    const TupleDesc desc = RelationGetDescr(table);

    for (int i = 0; i < Min(desc->natts, state->column_count); i++) {
        const Form_pg_attribute a = TupleDescAttr(desc, i);
        const gstore_column *c = &state->columns[i];

        if (!a->attisdropped && !takes_all(c, a))
            ereport(
                ERROR,
                (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                 errmsg("cannot change the type of column \"%s\" of table \"%s\" from %s to %s: the table has rows",
                        NameStr(a->attname), RelationGetRelationName(table),
                        format_type_with_typemod(c->type, c->typmod),
                        format_type_with_typemod(a->atttypid, a->atttypmod)),
                 errhint("Add a column of the new type, UPDATE it from this one and drop this one; or TRUNCATE the table first.")));
    }
}

/* Rows that must get a value, or may break a rule, which they did not before. */
static bool needs_rework(const altered *a, Relation table)
{
    const TupleDesc desc = RelationGetDescr(table);
    int number = -1;

    if (a->columns && desc->constr != NULL &&
        (desc->constr->has_not_null || desc->constr->num_check > 0))
        return true;
    while ((number = bms_next_member(a->added, number)) >= 0) {
        const Form_pg_attribute column = TupleDescAttr(desc, number - 1);

        if (column->atthasdef || column->attnotnull || column->attidentity != '\0' ||
            get_typtype(column->atttypid) == TYPTYPE_DOMAIN)
            return true;
    }
    return false;
}

static void follow(const altered *a)
{
    Relation table = try_relation_open(a->relation, NoLock);
    gstore_pending *pending = gstore_pending_find(a->relation);
    gstore_view state;

    if (table == NULL)
        return;
    gstore_look(a->relation, NULL, false, &state);
    if (pending != NULL)
        state = *gstore_pending_state(pending);
    if (!state.empty && state.live_rows > 0) {
        if (a->format != NULL)
            check_options(a, table, &state);
        check_types(table, &state);
        if (needs_rework(a, table))
            gstore_rework(table, a->added);
    }
    relation_close(table, NoLock);
}

/* CHECKs of our tables, and those that were declared valid. */
static void follow_constraint(Oid constraint)
{
    HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
    Form_pg_constraint c;

    if (!HeapTupleIsValid(tuple))
        return;
    c = (Form_pg_constraint)GETSTRUCT(tuple);
    if (c->contype == CONSTRAINT_CHECK && c->convalidated && OidIsValid(c->conrelid) &&
        gstore_is_table(c->conrelid))
        note_table(c->conrelid)->columns = true;
    ReleaseSysCache(tuple);
}

static void follow_all(void)
{
    ListCell *cell;

    if (current->tables == NIL && current->constraints == NIL)
        return;
    CommandCounterIncrement(); /* see what the statement did */
    foreach (cell, current->constraints)
        follow_constraint(lfirst_oid(cell));
    PushActiveSnapshot(GetTransactionSnapshot());
    UpdateActiveSnapshotCommandId();
    foreach (cell, current->tables)
        follow(lfirst(cell));
    PopActiveSnapshot();
    CommandCounterIncrement();
}

static bool can_alter(const Node *statement)
{
    switch (nodeTag(statement)) {
    case T_AlterTableStmt:
    case T_AlterTableMoveAllStmt:
    case T_AlterDomainStmt: return true;
    default: return false;
    }
}

static void run(PlannedStmt *statement, const char *text, bool read_only,
                ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *environment,
                DestReceiver *destination, QueryCompletion *completion)
{
    (previous_utility != NULL ? previous_utility : standard_ProcessUtility)(
        statement, text, read_only, context, params, environment, destination, completion);
}

static void on_utility(PlannedStmt *statement, const char *text, bool read_only,
                       ProcessUtilityContext context, ParamListInfo params,
                       QueryEnvironment *environment, DestReceiver *destination,
                       QueryCompletion *completion)
{
    notes mine = {.outer = current, .context = CurrentMemoryContext};

    /* Only what can alter our tables: VACUUM and the like end transactions as they please. */
    if (!can_alter(statement->utilityStmt)) {
        run(statement, text, read_only, context, params, environment, destination, completion);
        return;
    }
    current = &mine;
    PG_TRY();
    {
        run(statement, text, read_only, context, params, environment, destination, completion);
        follow_all();
    }
    PG_FINALLY();
    {
        current = mine.outer;
    }
    PG_END_TRY();
}

void gstore_ddl_init(void)
{
    previous_access = object_access_hook;
    object_access_hook = on_access;
    previous_utility = ProcessUtility_hook;
    ProcessUtility_hook = on_utility;
    RegisterXactCallback(at_transaction_end, NULL);
}
