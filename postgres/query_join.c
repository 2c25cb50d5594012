/*
 * See query_join.h.
 *
 * The planner joins two relations at a time, in all orders that it considers. For each pair it is noted how the joined relation can be made, if that
 * is cheaper than what was noted before: the outer relation's plan, and one more inner table. Nothing is offered to the planner
 * here: a path is made of the note by the step above (query_path.c).
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "access/transam.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

#include "postgres/form.h"
#include "postgres/qual.h"
#include "postgres/query_compile.h"
#include "postgres/query_join.h"
#include "postgres/query_path.h"
#include "postgres/query_scan.h"
#include "postgres/settings.h"

/* What an inner table costs, in probes: a row that is read, and one that is entered. A row of the outer table. */
#define READ_PROBES	 0.3
#define ENTER_PROBES 2.0
#define OUTER_PROBES 0.5
/*
 * Rows of the outer table whose matches a GPU looks for at a time. One thread goes through all matches of a row, one after the other: with fewer rows that pass
 * than these the other threads are idle.
 */
#define ROWS_AT_WORK 1e5

/* ---- relations */

static bool
is_table(PlannerInfo *root, const RelOptInfo *rel)
{
	return IS_SIMPLE_REL(rel) && rel->rtekind == RTE_RELATION && rel->fdwroutine != NULL &&
		!root->simple_rte_array[rel->relid]->inh && bms_is_empty(rel->lateral_relids);
}

static List *
filters_of(PlannerInfo *root, const RelOptInfo *rel)
{
	return extract_actual_clauses(gstore_query_order(root, rel->baserestrictinfo), false);
}

const gstore_join_plan *
gstore_join_find(PlannerInfo *root, RelOptInfo *rel)
{
	gstore_join_plan *plan;

	if (rel->reloptkind == RELOPT_JOINREL)
		return rel->fdw_private;
	if (!is_table(root, rel))
		return NULL;
	plan = palloc0(sizeof *plan);
	plan->outer = rel->relid;
	plan->filters = filters_of(root, rel);
	plan->tables = bms_make_singleton((int) rel->relid);
	plan->probes = rel->tuples * OUTER_PROBES;
	return plan;
}

/* ---- pairs */

static bool
find_kind(JoinType type, gquery_join *kind)
{
	switch (type)
	{
		case JOIN_INNER:
			*kind = GQUERY_JOIN_INNER;
			return true;
		case JOIN_LEFT:
			*kind = GQUERY_JOIN_LEFT;
			return true;
		case JOIN_SEMI:
			*kind = GQUERY_JOIN_SEMI;
			return true;
		case JOIN_ANTI:
			*kind = GQUERY_JOIN_ANTI;
			return true;
		default:
			return false;
	}
}

/* Of numeric, with precision; -1: of others. */
static int
scale_of(Node *node)
{
	int32 typmod = exprTypmod(node);
	int	  precision, scale;

	return getBaseTypeAndTypmod(exprType(node), &typmod) == NUMERICOID &&
			gstore_form_decimal(typmod, &precision, &scale)
		? scale
		: -1;
}

/* In words that equal values have alike (floats by GQUERY_ORDER_KEY): decimals of two scales do not. */
static bool
have_equal_words(Node *left, Node *right)
{
	const Oid one = getBaseType(exprType(left)), other = getBaseType(exprType(right));

	return gstore_is_compiled_type(one) && gstore_is_compiled_type(other) &&
		gstore_type_family(one) == gstore_type_family(other) &&
		(one != NUMERICOID || (scale_of(left) >= 0 && scale_of(left) == scale_of(right)));
}

static int
words_of_key(const OpExpr *key)
{
	return gstore_stack_words(getBaseType(exprType(linitial(key->args))));
}

static bool
has_room_for_key(const List *keys, const Expr *key)
{
	const ListCell *cell;
	int				words = words_of_key((const OpExpr *) key);

	foreach(cell, keys)
		words += words_of_key(lfirst_node(OpExpr, cell));
	return words <= GQUERY_KEYS_MAX;
}

/* An expression of the outer side equals one of the inner side. */
static bool
is_key(const RestrictInfo *info, const RelOptInfo *outer, const RelOptInfo *inner)
{
	const OpExpr *o = (const OpExpr *) info->clause;

	if (!IsA(o, OpExpr) || list_length(o->args) != 2 || o->opno >= FirstNormalObjectId ||
		gstore_operator_strategy(o->opno) != BTEqualStrategyNumber ||
		bms_is_empty(info->left_relids) || bms_is_empty(info->right_relids))
		return false;
	return have_equal_words(linitial(o->args), lsecond(o->args)) &&
		((bms_is_subset(info->left_relids, outer->relids) &&
		  bms_is_subset(info->right_relids, inner->relids)) ||
		 (bms_is_subset(info->right_relids, outer->relids) &&
		  bms_is_subset(info->left_relids, inner->relids)));
}

/*
 * Of an inner join all conditions are alike. Those on the pair of another one say what a match is. Others come after
 * it, where columns of the inner table are, if there are any.
 */
static bool
split_conditions(PlannerInfo *root, const RelOptInfo *joined, const RelOptInfo *outer,
				 const RelOptInfo *inner, List *infos, gstore_query_join *join)
{
	List	 *others = NIL, *matches = NIL;
	ListCell *cell;

	foreach(cell, infos)
	{
		RestrictInfo *info = lfirst_node(RestrictInfo, cell);
		const bool	  is_late = RINFO_IS_PUSHED_DOWN(info, joined->relids);
		const bool	  after = join->kind == GQUERY_JOIN_INNER ||
			(join->kind == GQUERY_JOIN_LEFT && is_late);

		if (info->pseudoconstant || (join->kind == GQUERY_JOIN_ANTI && is_late))
			return false;
		if ((join->kind == GQUERY_JOIN_INNER || !after) && is_key(info, outer, inner) &&
			has_room_for_key(join->keys, info->clause))
			join->keys = lappend(join->keys, info->clause);
		else if (after)
			others = lappend(others, info);
		else
			matches = lappend(matches, info);
	}
	join->matches = extract_actual_clauses(gstore_query_order(root, matches), false);
	join->conditions = extract_actual_clauses(gstore_query_order(root, others), false);
	return true;
}

/* Whether the parts that it has so far can be compiled. */
static bool
is_compiled(PlannerInfo *root, const gstore_join_plan *plan)
{
	const gstore_query query = {.relation = plan->outer,
								.filters = plan->filters,
								.joins = plan->joins,
								.unset = gstore_unset_planned(root)};
	gstore_query_size  size;

	return gstore_query_measure(&query, &size);
}

static gstore_join_plan *
make_plan(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
		  gquery_join kind, List *infos)
{
	const gstore_join_plan *before = gstore_join_find(root, outer);
	gstore_join_plan	   *plan;
	gstore_query_join	   *join;
	double					matches;

	if (before == NULL || !is_table(root, inner) || list_length(before->joins) == GQUERY_JOINS_MAX)
		return NULL;
	join = palloc0(sizeof *join);
	join->relation = inner->relid;
	join->kind = kind;
	if (!split_conditions(root, joined, outer, inner, infos, join))
		return NULL;
	join->filters = filters_of(root, inner);
	plan = palloc(sizeof *plan);
	*plan = *before;
	plan->joins = lappend(list_copy(before->joins), join);
	plan->tables = bms_add_member(bms_copy(before->tables), (int) inner->relid);
	plan->probes += outer->rows + inner->tuples * READ_PROBES + inner->rows * ENTER_PROBES;
	matches = join->keys == NIL ? outer->rows * inner->rows : joined->rows;
	if (matches > outer->rows)
		plan->probes += matches *
			Max(1, ROWS_AT_WORK / clamp_row_est(root->simple_rel_array[plan->outer]->rows));
	return plan;
}

bool
gstore_join_has_gpu(const Path *path)
{
	switch (nodeTag(path))
	{
		case T_ForeignPath:
			return !IS_SIMPLE_REL(path->parent);
		case T_ProjectionPath:
			return gstore_join_has_gpu(((const ProjectionPath *) path)->subpath);
		case T_MaterialPath:
			return gstore_join_has_gpu(((const MaterialPath *) path)->subpath);
		case T_MemoizePath:
			return gstore_join_has_gpu(((const MemoizePath *) path)->subpath);
		case T_UniquePath:
			return gstore_join_has_gpu(((const UniquePath *) path)->subpath);
		case T_GatherPath:
			return gstore_join_has_gpu(((const GatherPath *) path)->subpath);
		case T_GatherMergePath:
			return gstore_join_has_gpu(((const GatherMergePath *) path)->subpath);
		case T_SortPath:
		case T_IncrementalSortPath: /* which begins with the other */
			return gstore_join_has_gpu(((const SortPath *) path)->subpath);
		case T_NestPath:
		case T_MergePath:
		case T_HashPath: /* these begin with a JoinPath */
			return gstore_join_has_gpu(((const JoinPath *) path)->outerjoinpath) ||
				gstore_join_has_gpu(((const JoinPath *) path)->innerjoinpath);
		default:
			return false;
	}
}

/* Of the paths of the pairs so far. A path that was offered, and is still there, runs the cheapest one if the GPU cannot. */
static void
note_local(PlannerInfo *root, RelOptInfo *joined, gstore_join_plan *plan)
{
	Path *local;

	if (plan == NULL)
		return;
	local = GetExistingLocalJoinPath(joined);
	if (local == NULL || gstore_join_has_gpu(local) ||
		(plan->local != NULL && plan->local->total_cost <= local->total_cost))
		return;
	plan->local = local;
	gstore_query_set_local(root, joined, plan);
}

static void
gstoreGetForeignJoinPaths(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer,
						  RelOptInfo *inner, JoinType type, JoinPathExtraData *extra)
{
	gstore_join_plan *noted = joined->fdw_private, *plan;
	gquery_join		  kind;

	if (!gstore_gpu_queries || !gstore_gpu_joins || joined->reloptkind != RELOPT_JOINREL ||
		root->parse->commandType != CMD_SELECT || root->parse->rowMarks != NIL ||
		root->rowMarks != NIL || !bms_is_empty(joined->lateral_relids) || !find_kind(type, &kind))
		return;
	plan = make_plan(root, joined, outer, inner, kind, extra->restrictlist);
	if (plan == NULL || (noted != NULL && plan->probes >= noted->probes) || !is_compiled(root, plan))
	{
		note_local(root, joined, noted);
		return;
	}
	plan->local = noted == NULL ? NULL : noted->local;
	joined->fdw_private = plan;
	note_local(root, joined, plan);
	gstore_query_add_join(root, joined, plan);
}

void
gstore_join_callbacks(FdwRoutine *routine)
{
	routine->GetForeignJoinPaths = gstoreGetForeignJoinPaths;
}

/* ---- plans: range table indexes change after planning, and so tables are numbered by their order */

static int
rank_of(const Bitmapset *tables, Index relation)
{
	int rank = 0, member = -1;

	while ((member = bms_next_member(tables, member)) >= 0 && member < (int) relation)
		rank++;
	return rank;
}

static Index
table_at(const Bitmapset *tables, int rank)
{
	int member = bms_next_member(tables, -1);

	while (rank-- > 0 && member >= 0)
		member = bms_next_member(tables, member);
	if (member < 0)
		elog(ERROR, "a plan of a join has other tables than its own");
	return (Index) member;
}

static int
add_list(List **expressions, List *list)
{
	if (list != NIL)
		*expressions = lappend(*expressions, makeBoolExpr(AND_EXPR, copyObject(list), -1));
	return list != NIL;
}

List *
gstore_join_encode(const gstore_join_plan *plan, List **expressions)
{
	List	 *numbers = list_make1_int(rank_of(plan->tables, plan->outer));
	ListCell *cell;

	numbers = lappend_int(numbers, add_list(expressions, plan->filters));
	foreach(cell, plan->joins)
	{
		const gstore_query_join *join = lfirst(cell);

		numbers = lappend_int(numbers, rank_of(plan->tables, join->relation));
		numbers = lappend_int(numbers, (int) join->kind);
		numbers = lappend_int(numbers, add_list(expressions, join->keys));
		numbers = lappend_int(numbers, add_list(expressions, join->filters));
		numbers = lappend_int(numbers, add_list(expressions, join->matches));
		numbers = lappend_int(numbers, add_list(expressions, join->conditions));
	}
	return numbers;
}

static List *
next_list(const List *expressions, int *at, bool is_there)
{
	return is_there ? list_nth_node(BoolExpr, expressions, (*at)++)->args : NIL;
}

void
gstore_join_decode(const List *numbers, const Bitmapset *tables, List *expressions,
				   gstore_join_plan *plan)
{
	int at = 0;

	*plan = (gstore_join_plan){.outer = table_at(tables, linitial_int(numbers))};
	plan->filters = next_list(expressions, &at, lsecond_int(numbers) != 0);
	for (int i = 2; i + 5 < list_length(numbers); i += 6)
	{
		gstore_query_join *join = palloc0(sizeof *join);

		join->relation = table_at(tables, list_nth_int(numbers, i));
		join->kind = (gquery_join) list_nth_int(numbers, i + 1);
		join->keys = next_list(expressions, &at, list_nth_int(numbers, i + 2) != 0);
		join->filters = next_list(expressions, &at, list_nth_int(numbers, i + 3) != 0);
		join->matches = next_list(expressions, &at, list_nth_int(numbers, i + 4) != 0);
		join->conditions = next_list(expressions, &at, list_nth_int(numbers, i + 5) != 0);
		plan->joins = lappend(plan->joins, join);
	}
}

/* ---- EXPLAIN */

void
gstore_join_explain(const ForeignScanState *node, const List *joins, ExplainState *es)
{
	static const char *const kinds[GQUERY_JOIN_KINDS] = {"inner", "left", "semi", "anti"};
	const ListCell			*cell;
	List					*context, *texts = NIL;

	if (joins == NIL)
		return;
	context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, NIL);
	foreach(cell, joins)
	{
		const gstore_query_join *join = lfirst(cell);
		List					*on = list_concat_copy(join->keys, join->matches);

		texts = lappend(texts,
						psprintf("%s %s", kinds[join->kind],
								 on == NIL ? "of all rows"
										   : deparse_expression((Node *) make_ands_explicit(on),
																context, true, false)));
	}
	ExplainPropertyList("GPU Join", texts, es);
	foreach(cell, joins)
		gstore_explain_expressions(node, "GPU Inner Filter",
								   ((const gstore_query_join *) lfirst(cell))->filters, es);
	foreach(cell, joins)
		gstore_explain_expressions(node, "GPU Join Filter",
								   ((const gstore_query_join *) lfirst(cell))->conditions, es);
}
