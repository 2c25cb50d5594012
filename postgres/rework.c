/*
 * Rows of a table that has been altered: written anew with the defaults of new columns, or checked
 * against new constraints. PostgreSQL does neither for foreign tables.
 */
#include "postgres.h"

#include "catalog/partition.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "parser/parse_coerce.h"
#include "rewrite/rewriteHandler.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "postgres/pending.h"
#include "postgres/progress.h"
#include "postgres/rework.h"
#include "postgres/scan.h"

#define CHECKED_ROWS 16384 /* after so many that are only looked at, progress is reported */

Expr *
gstore_default_of(Relation relation, const Form_pg_attribute a)
{
	Expr *value = (Expr *) build_column_default(relation, a->attnum);

	if (value == NULL && DomainHasConstraints(a->atttypid))
	{
		int32	  typmod = a->atttypmod;
		const Oid base = getBaseTypeAndTypmod(a->atttypid, &typmod);

		value = (Expr *) coerce_to_domain((Node *) makeNullConst(base, typmod, a->attcollation),
										  base, typmod, a->atttypid, COERCION_IMPLICIT,
										  COERCE_IMPLICIT_CAST, -1, false);
	}
	return value;
}

int
gstore_prepare_defaults(Relation relation, const Bitmapset *added, EState *estate, gstore_default **out)
{
	const TupleDesc desc = RelationGetDescr(relation);
	gstore_default *all = palloc0(sizeof *all * (Size) (bms_num_members(added) + 1));
	int				count = 0;

	for (int generated = 0; generated <= 1; generated++)
	{
		int number = -1;

		while ((number = bms_next_member(added, number)) >= 0)
		{
			const Form_pg_attribute a = TupleDescAttr(desc, number - 1);
			Expr				   *value;

			if (a->attisdropped || (a->attgenerated != '\0') != generated)
				continue;
			value = gstore_default_of(relation, a);
			if (value != NULL)
				all[count++] = (gstore_default){.index = number - 1,
												.evaluate = ExecPrepareExpr(value, estate)};
		}
	}
	*out = all;
	return count;
}

void
gstore_set_defaults(const gstore_default *all, int count, TupleTableSlot *slot, EState *estate)
{
	ExprContext *context = GetPerTupleExprContext(estate);

	context->ecxt_scantuple = slot;
	for (int i = 0; i < count; i++)
		slot->tts_values[all[i].index] = ExecEvalExprSwitchContext(all[i].evaluate, context,
																   &slot->tts_isnull[all[i].index]);
}

/* A domain without rules, and a relabelled type, change nothing. */
static bool
changes_value(const Node *coerced, Oid type)
{
	if (IsA(coerced, CaseTestExpr))
		return false;
	if (IsA(coerced, RelabelType))
		return changes_value((Node *) ((const RelabelType *) coerced)->arg, type);
	if (IsA(coerced, CoerceToDomain) && !DomainHasConstraints(type))
		return changes_value((Node *) ((const CoerceToDomain *) coerced)->arg, type);
	return true;
}

Expr *
gstore_coercion_of(const Form_pg_attribute a)
{
	const Oid	  base = getBaseType(a->atttypid);
	CaseTestExpr *value = makeNode(CaseTestExpr);
	Node		 *coerced;

	value->typeId = base;
	value->typeMod = -1;
	value->collation = a->attcollation;
	coerced = coerce_to_target_type(NULL, (Node *) value, base, a->atttypid, a->atttypmod,
									COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
	if (coerced == NULL)
		elog(ERROR, "cannot coerce values of type %u to %u", base, a->atttypid);
	return changes_value(coerced, a->atttypid) ? (Expr *) coerced : NULL;
}

/* A rule that rows are checked against, ready to be evaluated. */
typedef struct rule
{
	const char *name; /* of a CHECK; NULL: the bounds of a partition */
	ExprState  *condition;
} rule;

static rule *
prepare_rules(Relation relation, const gstore_rules *rules, EState *estate, int *count)
{
	const TupleConstr *constraints = RelationGetDescr(relation)->constr;
	const int		   checks = constraints != NULL ? constraints->num_check : 0;
	rule			  *all = palloc0(sizeof *all * (Size) (checks + 1));

	*count = 0;
	for (int i = 0; i < checks; i++)
	{
		ListCell *cell;

		foreach(cell, rules->checks)
			if (strcmp(lfirst(cell), constraints->check[i].ccname) == 0)
			{
				all[(*count)++] = (rule){
					.name = constraints->check[i].ccname,
					.condition = ExecPrepareExpr(stringToNode(constraints->check[i].ccbin), estate)};
				break;
			}
	}
	if (rules->partition && RelationGetPartitionQual(relation) != NIL)
		all[(*count)++] = (rule){
			.condition = ExecPrepareCheck(RelationGetPartitionQual(relation), estate)};
	return all;
}

static void
check_nulls(Relation relation, const Bitmapset *not_null, TupleTableSlot *slot)
{
	int number = -1;

	while ((number = bms_next_member(not_null, number)) >= 0)
		if (slot->tts_isnull[number - 1])
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("column \"%s\" of relation \"%s\" contains null values",
							NameStr(TupleDescAttr(RelationGetDescr(relation), number - 1)->attname),
							RelationGetRelationName(relation)),
					 errtablecol(relation, number)));
}

static void
check_rules(Relation relation, const rule *all, int count, TupleTableSlot *slot, EState *estate)
{
	ExprContext *econtext = GetPerTupleExprContext(estate);

	econtext->ecxt_scantuple = slot;
	for (int i = 0; i < count; i++)
	{
		if (ExecCheck(all[i].condition, econtext))
			continue;
		if (all[i].name == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("partition constraint of relation \"%s\" is violated by some row",
							RelationGetRelationName(relation)),
					 errtable(relation)));
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("check constraint \"%s\" of relation \"%s\" is violated by some row",
						all[i].name, RelationGetRelationName(relation)),
				 errtableconstraint(relation, all[i].name)));
	}
}

void
gstore_rework(Relation relation, const gstore_rules *rules)
{
	const TupleDesc	 desc = RelationGetDescr(relation);
	EState			*estate = CreateExecutorState();
	MemoryContext	 old = MemoryContextSwitchTo(estate->es_query_cxt);
	TupleTableSlot	*slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	gstore_row_range row_ranges[GSTORE_ROW_RANGES_MAX];
	const int		 row_range_count = gstore_choose_rows(relation, NULL, false, false, row_ranges);
	gstore_walk		*walk = gstore_walk_begin(relation, row_ranges, row_range_count);
	gstore_pending	*pending = NULL;
	dsa_pointer		 before = InvalidDsaPointer;
	uint64			 checked = 0;
	gstore_default	*defaults;
	const int		 count = gstore_prepare_defaults(relation, rules->added, estate, &defaults);
	int				 rule_count;
	const rule		*all = prepare_rules(relation, rules, estate, &rule_count);

	if (count > 0)
	{
		pending = gstore_pending_begin(relation);
		before = gstore_replace(pending);
	}
	slot->tts_tableOid = RelationGetRelid(relation); /* conditions and defaults may use it */
	gstore_progress_begin(GSTORE_ALTERING, RelationGetRelid(relation), walk);
	while (gstore_walk_next(walk, slot))
	{
		gstore_set_defaults(defaults, count, slot, estate);
		check_nulls(relation, rules->not_null, slot);
		check_rules(relation, all, rule_count, slot, estate);
		if (pending != NULL)
			gstore_insert(pending, slot);
		else if (++checked % CHECKED_ROWS == 0)
			gstore_progress_add(RelationGetRelid(relation), CHECKED_ROWS, 0);
		ResetPerTupleExprContext(estate);
	}
	gstore_progress_end(walk);
	gstore_walk_end(walk);
	if (pending != NULL)
		gstore_pending_release_store(pending, before);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextSwitchTo(old);
	FreeExecutorState(estate);
}
