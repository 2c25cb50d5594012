/*
 * Which values a query needs; see nulls.h.
 *
 * A scan's target list names a column, and not what it is for. So the whole query is looked through: its target list,
 * HAVING and conditions are all that columns are named in, but for queries beside that refer to the table (LATERAL) and
 * for what changes tables. There all values are taken to be needed.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "utils/fmgroids.h"

#include "postgres/nulls.h"

typedef struct search
{
	Index	   relation;
	Bitmapset *valued; /* attribute numbers, as pull_varattnos() has them */
} search;

static bool
is_column(const Node *node)
{
	return node != NULL && IsA(node, Var) && ((const Var *) node)->varattno > 0;
}

/* count(column) */
static bool
counts_column(const Aggref *aggregate)
{
	return aggregate->aggfnoid == F_COUNT_ANY && aggregate->aggdistinct == NIL &&
		aggregate->aggorder == NIL && list_length(aggregate->args) == 1 &&
		is_column((const Node *) linitial_node(TargetEntry, aggregate->args)->expr);
}

static bool
find_valued(Node *node, void *argument)
{
	search *s = argument;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		if ((Index) ((Var *) node)->varno == s->relation && ((Var *) node)->varlevelsup == 0)
			s->valued = bms_add_member(s->valued,
									   ((Var *) node)->varattno - FirstLowInvalidHeapAttributeNumber);
		return false;
	}
	if (IsA(node, Aggref) && counts_column((Aggref *) node))
		return find_valued((Node *) ((Aggref *) node)->aggfilter, s);
	if (IsA(node, NullTest) && !((NullTest *) node)->argisrow &&
		is_column((Node *) ((NullTest *) node)->arg))
		return false;
	return expression_tree_walker(node, find_valued, s);
}

static bool
is_valued(const search *s, AttrNumber number)
{
	return bms_is_member(number - FirstLowInvalidHeapAttributeNumber, s->valued) ||
		bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, s->valued); /* the row */
}

static bool find_in_query(PlannerInfo *root, const RelOptInfo *rel, search *s);

/* A partition, a child, or a part of UNION ALL: the query names the parent's columns. */
static bool
find_in_parent(PlannerInfo *root, const AppendRelInfo *info, search *s)
{
	search	   parent = {.relation = info->parent_relid};
	AttrNumber number = 0;
	ListCell  *cell;

	if (!find_in_query(root, find_base_rel(root, (int) info->parent_relid), &parent))
		return false;
	foreach(cell, info->translated_vars)
	{
		Node *own = lfirst(cell);

		number++;
		if (is_valued(&parent, number) || !is_column(own))
			(void) find_valued(own, s);
	}
	return true;
}

/* False: it cannot be determined. */
static bool
find_in_query(PlannerInfo *root, const RelOptInfo *rel, search *s)
{
	const Query *query = root->parse;

	if (query->commandType != CMD_SELECT || !bms_is_empty(rel->lateral_referencers))
		return false;
	if (rel->reloptkind == RELOPT_OTHER_MEMBER_REL)
		return find_in_parent(root, root->append_rel_array[rel->relid], s);
	(void) find_valued((Node *) query->targetList, s);
	(void) find_valued(query->havingQual, s);
	(void) find_valued((Node *) query->jointree, s);
	return rel->reloptkind == RELOPT_BASEREL;
}

Bitmapset *
gstore_valued_columns(PlannerInfo *root, RelOptInfo *rel, const Bitmapset *rows)
{
	search	   s = {.relation = rel->relid};
	const bool known = find_in_query(root, rel, &s);
	Bitmapset *valued = NULL;
	ListCell  *cell;

	foreach(cell, rel->baserestrictinfo) /* the policies of row security, too */
		(void) find_valued((Node *) lfirst_node(RestrictInfo, cell)->clause, &s);
	for (AttrNumber number = 1; number <= rel->max_attr; number++)
		if (is_valued(&s, number) || (!known && bms_is_member(number, rows)))
			valued = bms_add_member(valued, number);
	return valued;
}
