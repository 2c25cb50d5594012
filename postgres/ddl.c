/*
 * DROP and ALTER: the memory of a table goes with the table, at commit; rows follow what is altered, or
 * the ALTER is refused.
 *
 * PostgreSQL alters foreign tables without a thought for rows. Each statement's alterations are noted
 * while it runs, by the hook that is called for every object, and looked at when it is through: the
 * catalog shows the table as it shall be then, the store's columns show how it was.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_database.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "postgres/compat.h"
#include "postgres/fdw.h"
#include "postgres/option.h"
#include "postgres/pending.h"
#include "postgres/privileges.h"
#include "postgres/reload.h"
#include "postgres/spread.h"
#include "postgres/table.h"

/* What one statement altered about one table. */
typedef struct altered
{
	Oid		   relation;
	Bitmapset *added;	  /* columns */
	Bitmapset *nullable;  /* columns that were altered, and could be NULL before */
	List	  *checks;	  /* names of constraints that are new, or valid from now on */
	bool	   partition; /* it has become one */
	bool	   options;	  /* the table's are */
	bool	   was_arrow; /* its format before that */
} altered;

/* A column that was altered, of any relation, as it was before. */
typedef struct attribute
{
	Oid		   relation;
	AttrNumber number;
	Oid		   type;
	int32	   typmod;
} attribute;

/* Of the statement that runs, in its memory. */
typedef struct alterations
{
	struct alterations *outer;
	MemoryContext		context;
	List			   *tables;		 /* of altered */
	List			   *attributes;	 /* of attribute */
	List			   *constraints; /* OIDs of new ones, which cannot be looked up yet */
	List			   *relations;	 /* the same of tables */
	List			   *children;	 /* tables that have got a parent */
} alterations;

static object_access_hook_type	previous_access;
static ProcessUtility_hook_type previous_utility;
static alterations			   *current;
static Oid						dropped_database; /* by this transaction */

/* ---- DROP */

static void
drop_table(Oid relation)
{
	gstore_pending *pending;
	gstore_view		view;
	Relation		table;

	if (!gstore_is_table(relation))
		return;
	/* A session that ends drops its temporary tables, and cannot be cancelled any more: it waits for nothing here. Tokens end with their stores. */
	if (!proc_exit_inprogress)
		gstore_note_privileges(false);
	gstore_look(relation, NULL, GSTORE_DEAD_NOT_WANTED, &view);
	if (view.empty && !view.lost && gstore_pending_find(relation) == NULL)
		return;
	table = relation_open(relation, NoLock); /* DROP holds the strongest */
	pending = gstore_pending_begin(table);
	gstore_truncate(pending);
	gstore_pending_dropped(pending);
	relation_close(table, NoLock);
}

/* No session is connected to the database, so no snapshot needs its versions. */
static void
ddl_xact_callback(XactEvent event, void *argument)
{
	if (event == XACT_EVENT_COMMIT && OidIsValid(dropped_database))
		gstore_forget_database(dropped_database);
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
		dropped_database = InvalidOid;
}

/* ---- ALTER: what is altered */

static altered *
note_table(Oid relation)
{
	altered	 *a;
	ListCell *cell;

	foreach(cell, current->tables)
	{
		a = lfirst(cell);
		if (a->relation == relation)
			return a;
	}
	a = palloc0(sizeof *a);
	a->relation = relation;
	current->tables = lappend(current->tables, a);
	return a;
}

/* The catalog does not show yet what it has become. */
static void
note_attribute(Oid relation, AttrNumber number)
{
	attribute *a = palloc(sizeof *a);
	Oid		   collation;

	a->relation = relation;
	a->number = number;
	get_atttypetypmodcoll(relation, number, &a->type, &a->typmod, &collation);
	current->attributes = lappend(current->attributes, a);
}

/* By the catalog, which does not show yet what is being altered. */
static bool
is_nullable(Oid relation, int number)
{
	HeapTuple tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relation),
									  Int16GetDatum((int16) number));
	bool	  nullable = true;

	if (HeapTupleIsValid(tuple))
	{
		nullable = !((Form_pg_attribute) GETSTRUCT(tuple))->attnotnull;
		ReleaseSysCache(tuple);
	}
	return nullable;
}

static void
note_altered(ObjectAccessType access, Oid class, Oid object, int part)
{
	MemoryContext old = MemoryContextSwitchTo(current->context);

	if (class == RelationRelationId && part > 0 && access == OAT_POST_ALTER)
		note_attribute(object, (AttrNumber) part);
	if (class == RelationRelationId && part > 0 && gstore_is_table(object))
	{
		altered *a = note_table(object);

		if (access == OAT_POST_CREATE)
			a->added = bms_add_member(a->added, part);
		else if (is_nullable(object, part))
			a->nullable = bms_add_member(a->nullable, part);
	}
	else if (class == ForeignTableRelationId && access == OAT_POST_ALTER && gstore_is_table(object))
	{
		altered *a = note_table(object);

		if (!a->options)
			/* The catalog does not show the new ones yet. */
			a->was_arrow = gstore_table_is_arrow(object);
		a->options = true;
	}
	else if (class == RelationRelationId && part == 0 && access == OAT_POST_CREATE)
		current->relations = lappend_oid(current->relations, object);
	else if (class == ConstraintRelationId)
		current->constraints = lappend_oid(current->constraints, object);
	else if (class == InheritsRelationId && access == OAT_POST_ALTER)
		current->children = lappend_oid(current->children, object);
	MemoryContextSwitchTo(old);
}

static void
gstore_object_access(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
	if (previous_access != NULL)
		previous_access(access, class, object, part, argument);
	if (access == OAT_DROP && class == RelationRelationId && part == 0)
		drop_table(object);
	else if (access == OAT_DROP && class == DatabaseRelationId)
		dropped_database = object;
	else if (access == OAT_POST_ALTER && class == RelationRelationId && part == 0 &&
			 gstore_is_table(object))
		gstore_note_privileges(false); /* it may have another owner */
	if (current != NULL && (access == OAT_POST_CREATE || access == OAT_POST_ALTER))
		note_altered(access, class, object, part);
}

/* ---- ALTER: what follows */

static void
check_options(const altered *a, Relation table, const gstore_view *state)
{
	static const char hint[] = "TRUNCATE the table first, or load the rows into a new table.";

	if (gstore_table_device(a->relation) != state->name.device)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change option \"pinning\" of table \"%s\": it has rows on device %d",
						RelationGetRelationName(table), state->name.device),
				 errhint("%s", hint)));
	if (a->was_arrow != gstore_table_is_arrow(a->relation))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change option \"format\" of table \"%s\": it has rows in format '%s'",
						RelationGetRelationName(table), a->was_arrow ? "arrow" : "pgstrom"),
				 errhint("%s", hint)));
}

/* Every value of the old type is one of the new type, with the same bytes in the same places. */
static bool
is_widened_type(const gstore_column *column, const gstore_column *now)
{
	if (!gstore_form_is_same(column, now))
		return false;
	if (column->type == now->type && column->typmod == now->typmod)
		return true;
	if (column->length != now->length || column->by_value != now->by_value || column->align != now->align)
		return false;
	if (!gstore_is_same_type(column->type, now->type))
		return false;
	if (now->form == GSTORE_FORM_DECIMAL)
		return now->precision >= column->precision;
	return now->typmod == -1 ||
		(now->type == VARCHAROID && column->typmod >= 0 && now->typmod >= column->typmod);
}

static void
check_compression(Relation table)
{
	const TupleDesc desc = RelationGetDescr(table);

	if (!gstore_table_is_arrow(RelationGetRelid(table)))
		return;
	for (int i = 0; i < desc->natts; i++)
	{
		const Form_pg_attribute a = TupleDescAttr(desc, i);

		if (!a->attisdropped && gstore_column_is_compressed(RelationGetRelid(table), a->attnum))
			ereport(
				ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of table \"%s\" cannot be compressed in format 'arrow'",
						NameStr(a->attname), RelationGetRelationName(table)),
				 errhint("Leave out the column's option \"compression\", or use format 'pgstrom'.")));
	}
}

/* ERROR if a column has a length that its type cannot have. */
static void
check_lengths(Relation table)
{
	for (int i = 0; i < RelationGetDescr(table)->natts; i++)
		(void) gstore_describe_column(table, i, false);
}

static void
check_types(Relation table, const gstore_view *state)
{
	const TupleDesc desc = RelationGetDescr(table);

	for (int i = 0; i < Min(desc->natts, state->column_count); i++)
	{
		const Form_pg_attribute a = TupleDescAttr(desc, i);
		const gstore_column	   *c = &state->columns[i];
		const gstore_column		now = gstore_describe_column(table, i, c->arrow);

		if (a->attisdropped || is_widened_type(c, &now))
			continue;
		if (c->type == now.type && c->typmod == now.typmod)
			ereport(
				ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change option \"length\" of column \"%s\" of table \"%s\": the table has rows",
						NameStr(a->attname), RelationGetRelationName(table)),
				 errhint("Add a column with the option, UPDATE it from this one and drop this one; or TRUNCATE the table first.")));
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot change the type of column \"%s\" of table \"%s\" from %s to %s: the table has rows",
					NameStr(a->attname), RelationGetRelationName(table),
					format_type_extended(c->type, c->typmod,
										 FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_ALLOW_INVALID),
					format_type_with_typemod(a->atttypid, a->atttypmod)),
			 errhint("Add a column of the new type, UPDATE it from this one and drop this one; or TRUNCATE the table first.")));
	}
}

static bool
has_other_types(Relation table, const gstore_view *state)
{
	const TupleDesc desc = RelationGetDescr(table);

	for (int i = 0; i < Min(desc->natts, state->column_count); i++)
		if (!TupleDescAttr(desc, i)->attisdropped &&
			TupleDescAttr(desc, i)->atttypid != state->columns[i].type)
			return true;
	return false;
}

/* The table is known to have no NULL there. What this transaction has written may not have come that far. */
static bool
is_without_nulls(const gstore_view *state, bool pending, int number)
{
	return !pending && number <= state->column_count &&
		!gstore_is_variable(&state->columns[number - 1]) && !state->columns[number - 1].has_nulls;
}

/* Rows that must get a value, or may break a rule, which they did not before. */
static bool
needs_rework(const altered *a, Relation table, const gstore_view *state, bool pending,
			 gstore_rules *rules)
{
	const TupleDesc desc = RelationGetDescr(table);
	int				number = -1;

	*rules = (gstore_rules){.added = a->added, .checks = a->checks, .partition = a->partition};
	if (rules->partition)
		rules->partition = !PartConstraintImpliedByRelConstraint(table,
																 RelationGetPartitionQual(table));
	for (int n = 1; n <= desc->natts; n++)
		if (TupleDescAttr(desc, n - 1)->attnotnull &&
			(bms_is_member(n, a->added) ||
			 (bms_is_member(n, a->nullable) && !is_without_nulls(state, pending, n))))
			rules->not_null = bms_add_member(rules->not_null, n);
	if (!bms_is_empty(rules->not_null) || rules->checks != NIL || rules->partition)
		return true;
	while ((number = bms_next_member(a->added, number)) >= 0)
	{
		const Form_pg_attribute column = TupleDescAttr(desc, number - 1);

		if (column->atthasdef || column->attidentity != '\0' ||
			get_typtype(column->atttypid) == TYPTYPE_DOMAIN)
			return true;
	}
	return false;
}

static void
apply_alteration(const altered *a)
{
	Relation		table = try_relation_open(a->relation, NoLock);
	gstore_pending *pending = gstore_pending_find(a->relation);
	gstore_rules	rules;
	gstore_view		state;

	if (table == NULL)
		return;
	check_compression(table);
	check_lengths(table);
	gstore_look(a->relation, NULL, GSTORE_DEAD_NOT_WANTED, &state);
	if (pending != NULL)
		state = *gstore_pending_state(pending);
	if (!state.empty && state.live_rows > 0)
	{
		if (a->options)
			check_options(a, table, &state);
		check_types(table, &state);
		if (needs_rework(a, table, &state, pending != NULL, &rules))
			gstore_rework(table, &rules);
		if (pending != NULL || (pending = gstore_pending_find(a->relation)) != NULL)
			state = *gstore_pending_state(pending);
		if (has_other_types(table, &state))
			gstore_pending_retype(table);
	}
	else if (!state.empty && pending != NULL)
		gstore_truncate(pending); /* all rows are deleted: the next ones may be of any form */
	relation_close(table, NoLock);
}

/*
 * ERROR if one of our tables has a column of the type, or of a type made of it. The values in it are not rewritten, so
 * they would be read as what they are not. PostgreSQL itself refuses it for tables, and in some minor releases
 * for foreign ones.
 */
static void
refuse_users(Oid type, Oid altered_relation)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	check_stack_depth();
	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(TypeRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(type));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		const FormData_pg_depend *user = (const FormData_pg_depend *) GETSTRUCT(tuple);

		if (user->classid == TypeRelationId)
			refuse_users(user->objid, altered_relation); /* an array, a domain, a range */
		else if (user->classid == RelationRelationId && user->objsubid > 0)
		{
			if (gstore_is_table(user->objid))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot alter type \"%s\" because column \"%s.%s\" uses it",
								get_rel_name(altered_relation), get_rel_name(user->objid),
								get_attname(user->objid, (AttrNumber) user->objsubid, false))));
			if (OidIsValid(get_rel_type_id(user->objid)))
				refuse_users(get_rel_type_id(user->objid), altered_relation);
		}
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}

static void
follow_attribute(const attribute *a)
{
	Oid	  type, collation;
	int32 typmod;

	if (!SearchSysCacheExists2(ATTNUM, ObjectIdGetDatum(a->relation), Int16GetDatum(a->number)))
		return; /* dropped since */
	get_atttypetypmodcoll(a->relation, a->number, &type, &typmod, &collation);
	if ((type != a->type || typmod != a->typmod) && OidIsValid(get_rel_type_id(a->relation)))
		refuse_users(get_rel_type_id(a->relation), a->relation);
}

/* CHECKs of our tables, and those that were declared valid. */
static void
follow_constraint(Oid constraint)
{
	HeapTuple		   tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Form_pg_constraint c;

	if (!HeapTupleIsValid(tuple))
		return;
	c = (Form_pg_constraint) GETSTRUCT(tuple);
	if (c->contype == CONSTRAINT_CHECK && c->convalidated && OidIsValid(c->conrelid) &&
		gstore_is_table(c->conrelid))
	{
		altered *a = note_table(c->conrelid);

		a->checks = lappend(a->checks, pstrdup(NameStr(c->conname)));
	}
	ReleaseSysCache(tuple);
}

static void
note_partitions(Oid top)
{
	List	 *all = find_all_inheritors(top, NoLock, NULL);
	ListCell *cell;

	foreach(cell, all)
		if (get_rel_relispartition(lfirst_oid(cell)) && gstore_is_table(lfirst_oid(cell)))
			note_table(lfirst_oid(cell))->partition = true;
}

/*
 * A new partition, one of our tables or partitioned itself; and the default one, which may no longer
 * have what belongs there.
 */
static void
apply_child_alteration(Oid child)
{
	Oid other;

	if (!get_rel_relispartition(child))
		return;
	other = get_default_partition_oid(get_partition_parent(child, false));
	note_partitions(child);
	if (OidIsValid(other) && other != child)
		note_partitions(other);
}

static void
follow_new_table(Oid relation)
{
	Relation table;

	if (!gstore_is_table(relation))
		return;
	table = relation_open(relation, NoLock);
	check_compression(table);
	check_lengths(table);
	relation_close(table, NoLock);
}

static void
apply_alterations(void)
{
	ListCell *cell;

	if (current->tables == NIL && current->constraints == NIL && current->relations == NIL &&
		current->children == NIL && current->attributes == NIL)
		return;
	CommandCounterIncrement(); /* see what the statement did */
	foreach(cell, current->attributes)
		follow_attribute(lfirst(cell));
	foreach(cell, current->constraints)
		follow_constraint(lfirst_oid(cell));
	foreach(cell, current->children)
		apply_child_alteration(lfirst_oid(cell));
	foreach(cell, current->relations)
		follow_new_table(lfirst_oid(cell));
	PushActiveSnapshot(GetTransactionSnapshot());
	UpdateActiveSnapshotCommandId();
	foreach(cell, current->tables)
		apply_alteration(lfirst(cell));
	PopActiveSnapshot();
	CommandCounterIncrement();
}

/* DETACH PARTITION, which has no other commands beside it: the CHECK that it leaves says what was so before. */
static bool
is_detaching(const AlterTableStmt *statement)
{
	return linitial_node(AlterTableCmd, statement->cmds)->subtype == AT_DetachPartition;
}

static bool
can_alter(const Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_AlterTableStmt:
			return !is_detaching((const AlterTableStmt *) statement);
		case T_AlterTableMoveAllStmt:
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
			return true;
		default:
			return false;
	}
}

/* ---- GRANT, REVOKE, DROP OWNED: there is no hook for privileges. Commits that may have changed some make others wait. */

/* Foreign tables of any wrapper. */
static List *
list_foreign_tables(void)
{
	Relation	catalog = table_open(ForeignTableRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	List	   *all = NIL;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		all = lappend_oid(all, ((const FormData_pg_foreign_table *) GETSTRUCT(tuple))->ftrelid);
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return all;
}

/* Whether it is one of ours whose privileges the user may change; others change nothing, with no more than a warning. */
static bool
may_change_privileges(Oid relation)
{
	return gstore_is_table(relation) &&
		pg_class_aclmask(relation, GetUserId(), ACL_GRANT_OPTION_FOR(ACL_ALL_RIGHTS_RELATION),
						 ACLMASK_ANY) != ACL_NO_RIGHTS;
}

static bool
may_change_in_schema(const char *name)
{
	const Oid schema = LookupExplicitNamespace(name, true);
	List	 *all = list_foreign_tables();
	ListCell *cell;

	foreach(cell, all)
		if (get_rel_namespace(lfirst_oid(cell)) == schema && may_change_privileges(lfirst_oid(cell)))
			return true;
	return false;
}

static bool
may_have_changed(const GrantStmt *statement)
{
	ListCell *cell;

	if (statement->objtype != OBJECT_TABLE)
		return false;
	foreach(cell, statement->objects)
		if (statement->targtype == ACL_TARGET_OBJECT
				? may_change_privileges(RangeVarGetRelid(lfirst(cell), NoLock, true))
				: may_change_in_schema(strVal(lfirst(cell))))
			return true;
	return false;
}

/* Tables that it has dropped are noted by themselves. */
static bool
has_changed_some(void)
{
	ListCell *cell;
	List	 *all;

	CommandCounterIncrement(); /* see what the statement did */
	all = list_foreign_tables();
	foreach(cell, all)
	{
		HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(lfirst_oid(cell)));
		bool	  changed = false;

		if (HeapTupleIsValid(tuple))
		{
			changed = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
			ReleaseSysCache(tuple);
		}
		if (changed && gstore_is_table(lfirst_oid(cell)))
			return true;
	}
	return false;
}

/* DROP OWNED or GRANT. */
static void
note_privileges(const Node *statement)
{
	if (IsA(statement, DropOwnedStmt) && has_changed_some())
		gstore_note_privileges(false);
	else if (IsA(statement, GrantStmt) && may_have_changed((const GrantStmt *) statement))
		gstore_note_privileges(((const GrantStmt *) statement)->is_grant);
}

static void
run_utility(PlannedStmt *statement, const char *text, bool read_only, ProcessUtilityContext context,
			ParamListInfo params, QueryEnvironment *environment, DestReceiver *destination,
			QueryCompletion *completion)
{
	/* Of others the statement's memory may be gone afterwards: a procedure may end its transaction. */
	const Node *changing = IsA(statement->utilityStmt, DropOwnedStmt) ||
			IsA(statement->utilityStmt, GrantStmt)
		? statement->utilityStmt
		: NULL;

	(previous_utility != NULL ? previous_utility : standard_ProcessUtility)(
		statement, text, read_only, context, params, environment, destination, completion);
	if (changing != NULL)
		note_privileges(changing);
}

/* Who may not drop it is refused by the statement itself. */
static void
end_loader(const DropdbStmt *statement)
{
	const Oid database = get_database_oid(statement->dbname, true);

	if (OidIsValid(database) && object_ownercheck(DatabaseRelationId, database, GetUserId()))
		gstore_reload_stop(database);
}

static void
gstore_ProcessUtility(PlannedStmt *statement, const char *text, bool read_only,
					  ProcessUtilityContext context, ParamListInfo params,
					  QueryEnvironment *environment, DestReceiver *destination,
					  QueryCompletion *completion)
{
	alterations mine = {.outer = current, .context = CurrentMemoryContext};

	if (IsA(statement->utilityStmt, DropdbStmt))
		end_loader((const DropdbStmt *) statement->utilityStmt);
	if (IsA(statement->utilityStmt, VacuumStmt))
		gstore_analyze_begin((const VacuumStmt *) statement->utilityStmt);
	statement = gstore_spread_partition(statement);

	/*
     * Only what can alter our tables: VACUUM and the like end transactions as they please. Parts of an ALTER, as
     * the options of a column that it adds, are handled at the end of the whole statement: until then the rows are
     * in the form that they had before it.
     */
	if (!can_alter(statement->utilityStmt) ||
		(current != NULL && context == PROCESS_UTILITY_SUBCOMMAND))
	{
		run_utility(statement, text, read_only, context, params, environment, destination, completion);
		return;
	}
	current = &mine;
	PG_TRY();
	{
		run_utility(statement, text, read_only, context, params, environment, destination, completion);
		apply_alterations();
	}
	PG_FINALLY();
	{
		current = mine.outer;
	}
	PG_END_TRY();
}

void
gstore_ddl_init(void)
{
	previous_access = object_access_hook;
	object_access_hook = gstore_object_access;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = gstore_ProcessUtility;
	RegisterXactCallback(ddl_xact_callback, NULL);
}
