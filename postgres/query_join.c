/*
 * See query_join.h.
 *
 * The planner joins two relations at a time, in all orders that it considers. For each pair it is noted how the
 * joined relation can be made, if that is cheaper than what was noted before: the outer relation's plan, and
 * one more inner table. query_path.c makes the paths of the note: one that returns joined rows at once, and those of
 * the steps above, as grouping, once the planner comes to them.
 */
#include "postgres.h"

#include <math.h>

#include "access/stratnum.h"
#include "access/transam.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

#include "postgres/form.h"
#include "postgres/memory.h"
#include "postgres/pending.h"
#include "postgres/qual.h"
#include "postgres/query_compile.h"
#include "postgres/query_join.h"
#include "postgres/query_path.h"
#include "postgres/query_refused.h"
#include "postgres/query_scan.h"
#include "postgres/settings.h"

/* What an inner table costs, in probes: a row that is read, and one that is entered. A row of the outer table. */
#define READ_PROBES	 0.3
#define ENTER_PROBES 2.0
#define OUTER_PROBES 0.5
/*
 * Rows of the outer table whose matches a GPU looks for at a time. One thread goes through all matches of a
 * row, one after the other: with fewer rows that pass than these the other threads are idle.
 */
#define ROWS_AT_WORK 1e5

static void gstoreGetForeignJoinPaths(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer,
									  RelOptInfo *inner, JoinType type, JoinPathExtraData *extra);

/* ---- relations */

/* PostgreSQL plans no scan of one that it has proven to have no rows: nothing of it is known. */
static bool
is_table(PlannerInfo *root, RelOptInfo *rel)
{
	return IS_SIMPLE_REL(rel) && rel->rtekind == RTE_RELATION && rel->fdwroutine != NULL &&
		rel->fdwroutine->GetForeignJoinPaths == gstoreGetForeignJoinPaths && !IS_DUMMY_REL(rel) &&
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

	if (IS_JOIN_REL(rel))
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

gstore_query
gstore_join_query(PlannerInfo *root, const gstore_join_plan *plan)
{
	return (gstore_query){.relation = plan->outer,
						  .batched = plan->rows != NULL,
						  .batch = plan->rows == NULL ? NIL : plan->rows->reltarget->exprs,
						  .filters = plan->filters,
						  .joins = plan->joins,
						  .unset = gstore_unset_planned(root)};
}

/* Whether the parts that it has so far can be compiled. */
static bool
is_compiled(PlannerInfo *root, const gstore_join_plan *plan)
{
	gstore_query	  query = gstore_join_query(root, plan);
	gstore_query_size size;

	return gstore_query_measure(&query, &size);
}

/* Of semi and anti joins: what is not known of a row behind them is which inner row it was. */
static Relids
hidden_tables(const gstore_join_plan *plan)
{
	Relids	  hidden = NULL;
	ListCell *cell;

	foreach(cell, plan->joins)
	{
		const gstore_query_join *join = lfirst(cell);

		if (join->kind == GQUERY_JOIN_SEMI || join->kind == GQUERY_JOIN_ANTI)
			hidden = bms_add_member(hidden, (int) join->relation);
	}
	return hidden;
}

bool
gstore_join_hides(PlannerInfo *root, const gstore_join_plan *plan, const List *expressions)
{
	return bms_overlap(pull_varnos(root, (Node *) expressions), hidden_tables(plan));
}

/* What equals it behind the outer side's joins, and is not hidden there. NULL: nothing. */
static Expr *
find_shown(const EquivalenceClass *ec, Node *expression, const RelOptInfo *outer, Relids hidden)
{
	ListCell *cell;

	foreach(cell, ec->ec_members)
	{
		const EquivalenceMember *member = lfirst(cell);

		if (!member->em_is_const && !member->em_is_child &&
			bms_is_subset(member->em_relids, outer->relids) && !bms_overlap(member->em_relids, hidden) &&
			exprType((Node *) member->em_expr) == exprType(expression))
			return member->em_expr;
	}
	return NULL;
}

/* A condition without hidden columns: PostgreSQL takes any of equal ones for it. NULL: there is none. */
static RestrictInfo *
show(PlannerInfo *root, RestrictInfo *info, const RelOptInfo *outer, Relids hidden)
{
	RestrictInfo *shown;
	OpExpr		 *o;
	ListCell	 *cell;

	if (!bms_overlap(info->clause_relids, hidden))
		return info;
	if (info->parent_ec == NULL || !IsA(info->clause, OpExpr))
		return NULL;
	shown = makeNode(RestrictInfo);
	*shown = *info;
	shown->clause = (Expr *) (o = copyObject((OpExpr *) info->clause));
	foreach(cell, o->args)
	{
		if (bms_overlap(pull_varnos(root, lfirst(cell)), hidden))
			lfirst(cell) = find_shown(info->parent_ec, lfirst(cell), outer, hidden);
		if (lfirst(cell) == NULL)
			return NULL;
	}
	shown->left_relids = pull_varnos(root, linitial(o->args));
	shown->right_relids = pull_varnos(root, lsecond(o->args));
	shown->clause_relids = bms_union(shown->left_relids, shown->right_relids);
	return shown;
}

/* False: a condition cannot be evaluated. */
static bool
show_all(PlannerInfo *root, List *infos, const RelOptInfo *outer, Relids hidden, List **shown)
{
	ListCell *cell;

	*shown = NIL;
	foreach(cell, infos)
	{
		RestrictInfo *info = show(root, lfirst_node(RestrictInfo, cell), outer, hidden);

		if (info == NULL)
			return false;
		*shown = lappend(*shown, info);
	}
	return true;
}

static Cost
probes_of_build(const RelOptInfo *inner)
{
	return inner->tuples * READ_PROBES + inner->rows * ENTER_PROBES;
}

/* As query/hash.c has it: two slots for each row that is entered, and a number for each one there is. */
static double
hash_bytes_of(const gstore_query_join *join, const RelOptInfo *inner)
{
	const ListCell *cell;
	int				words = 0;

	foreach(cell, join->keys)
		words += words_of_key(lfirst_node(OpExpr, cell));
	return inner->rows * 2 * sizeof(uint64) * (1 + Max(words, 1)) +
		Max(inner->tuples, 0) * sizeof(uint32);
}

/* Within the role's limit, as far as that can be said before. */
static bool
has_memory(const gstore_join_plan *plan)
{
	const uint64 most = gstore_join_memory();

	if (plan->hash_bytes <= (double) most)
		return true;
	gstore_report_reason(psprintf(
		"hash tables of a join would have %.0f MB, and gstore_fdw.gpu_join_memory allows %llu MB",
		ceil(plan->hash_bytes / 1048576), (unsigned long long) most >> 20));
	return false;
}

Cost
gstore_join_builds(PlannerInfo *root, const gstore_join_plan *plan, bool own)
{
	Cost	  probes = 0;
	ListCell *cell;

	foreach(cell, plan->joins)
	{
		const Index relation = ((const gstore_query_join *) lfirst(cell))->relation;

		if (!own || gstore_pending_find(root->simple_rte_array[relation]->relid) != NULL)
			probes += probes_of_build(find_base_rel(root, (int) relation));
	}
	return probes;
}

static double
count_outer(PlannerInfo *root, const gstore_join_plan *plan)
{
	return (plan->rows != NULL ? plan->rows : root->simple_rel_array[plan->outer])->rows;
}

gstore_join_plan *
gstore_join_extend(PlannerInfo *root, const gstore_join_plan *before, RelOptInfo *joined,
				   RelOptInfo *outer, RelOptInfo *inner, JoinType type, List *infos)
{
	gstore_join_plan  *plan;
	gstore_query_join *join;
	gquery_join		   kind;
	double			   matches;

	if (before == NULL || !find_kind(type, &kind) || !is_table(root, inner) ||
		list_length(before->joins) == GQUERY_JOINS_MAX ||
		!show_all(root, infos, outer, hidden_tables(before), &infos))
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
	plan->probes += outer->rows + probes_of_build(inner);
	matches = join->keys == NIL ? outer->rows * inner->rows : joined->rows;
	if (matches > outer->rows)
		plan->probes += matches * Max(1, ROWS_AT_WORK / clamp_row_est(count_outer(root, plan)));
	plan->hash_bytes += hash_bytes_of(join, inner);
	return has_memory(plan) ? plan : NULL;
}

bool
gstore_join_is_offered(const PlannerInfo *root, const RelOptInfo *joined)
{
	return gstore_gpu_queries && gstore_gpu_joins && IS_JOIN_REL(joined) &&
		root->parse->commandType == CMD_SELECT && root->parse->rowMarks == NIL &&
		root->rowMarks == NIL && bms_is_empty(joined->lateral_relids);
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

	if (!gstore_join_is_offered(root, joined))
		return;
	plan = gstore_join_extend(root, gstore_join_find(root, outer), joined, outer, inner, type,
							  extra->restrictlist);
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

/* No expression of a query has a constant in an AND: what is computed above the join is not taken for one of these. */
static int
add_list(List **expressions, List *list)
{
	List *all = lappend(copyObject(list), makeBoolConst(true, false));

	if (list != NIL)
		*expressions = lappend(*expressions, makeBoolExpr(AND_EXPR, all, -1));
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
	List *all;

	if (!is_there)
		return NIL;
	all = list_copy(list_nth_node(BoolExpr, expressions, (*at)++)->args);
	return list_truncate(all, list_length(all) - 1);
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
gstore_join_explain(const PlanState *node, const List *joins, ExplainState *es)
{
	static const char *const kinds[GQUERY_JOIN_KINDS] = {"inner", "left", "semi", "anti"};
	const ListCell			*cell;
	List					*context, *texts = NIL;

	if (joins == NIL)
		return;
	context = set_deparse_context_plan(es->deparse_cxt, node->plan, NIL);
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
