/* See query_join.h: instructions of joins. */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"

#include "postgres/query_join.h"

static bool
emit_conditions(gstore_emitter *e, const List *conditions, bool *raises)
{
	const ListCell *cell;
	gstore_emitted	condition;

	foreach(cell, conditions)
	{
		if (!gstore_emit_expression(e, lfirst(cell), &condition) ||
			!gstore_emit(e, GQUERY_FILTER, 0, 0))
			return false;
		*raises |= condition.raises;
	}
	return true;
}

/* Whether it has a column of the relation. */
static bool
is_of_table(Node *node, void *relation)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return (Index) ((Var *) node)->varno == *(Index *) relation;
	return expression_tree_walker(node, is_of_table, relation);
}

static bool
emit_key(gstore_emitter *e, Node *node, bool *raises, int *words)
{
	gstore_emitted key;
	int			   which = 0;

	do
	{
		if (!gstore_emit_word(e, node, which, &key) ||
			(gstore_is_float(key.type) && !gstore_emit(e, GQUERY_ORDER_KEY, 0, 0)))
			return false;
		++*words;
		*raises |= key.raises;
	} while (++which < gstore_stack_words(key.type));
	return true;
}

/* One side of each key. Where there is none all rows have the same one, so that each matches all others. */
static bool
emit_keys(gstore_emitter *e, const gstore_query_join *join, bool inner, bool *raises, int *words)
{
	const ListCell *cell;

	*words = 0;
	foreach(cell, join->keys)
	{
		const OpExpr *o = lfirst_node(OpExpr, cell);
		Index		  relation = join->relation;
		const bool	  is_left = is_of_table(linitial(o->args), &relation) == inner;

		if (!emit_key(e, is_left ? linitial(o->args) : lsecond(o->args), raises, words))
			return false;
	}
	return *words > 0 || (++*words, gstore_emit_constant(e, 0));
}

/* Behind one that is not true PostgreSQL evaluates none of them. */
static Node *
all_true(const List *conditions)
{
	const ListCell *cell;
	List		   *tests = NIL;

	foreach(cell, conditions)
	{
		BooleanTest *test = makeNode(BooleanTest);

		test->arg = lfirst(cell);
		test->booltesttype = IS_TRUE;
		test->location = -1;
		tests = lappend(tests, test);
	}
	return (Node *) make_ands_explicit(tests);
}

/* What is a match of the table, beside its keys. */
static bool
emit_matches(gstore_emitter *e, const gstore_query_join *join, uint32 number, bool *raises)
{
	gstore_emitted condition;

	if (!gstore_emit_expression(e, all_true(join->matches), &condition) ||
		!gstore_emit(e, GQUERY_MATCH, number, 0))
		return false;
	*raises |= condition.raises;
	e->program->code[e->program->code_count - 1].value = (uint64) join->kind | GQUERY_JOIN_CONDITION;
	return true;
}

bool
gstore_join_leaves_out(const List *joins)
{
	const ListCell *cell;

	foreach(cell, joins)
	{
		const gstore_query_join *join = lfirst(cell);

		if (join->kind == GQUERY_JOIN_INNER || join->kind == GQUERY_JOIN_SEMI)
			return true;
	}
	return false;
}

/* The first row here has the values of the inner table's program evaluated, if one of that comes to them. */
static bool
emit_waiting(gstore_emitter *e, uint32 number)
{
	return (e->waiting >> number & 1) == 0 ||
		(gstore_emit(e, GQUERY_UNKNOWN, GSTORE_UNKNOWN_JOIN + number, 0) &&
		 gstore_emit(e, GQUERY_FILTER, 0, 0));
}

/* PostgreSQL evaluates nothing of it where the inner table has no rows, or, in a nested loop, evaluates it beside each of them. */
static bool
emit_outer_keys(gstore_emitter *e, const gstore_query_join *join, bool *raises, int *words)
{
	bool done;

	e->local = true;
	done = emit_keys(e, join, false, raises, words);
	e->local = false;
	return done;
}

bool
gstore_join_emit(gstore_emitter *e, const List *joins, bool *raises)
{
	const ListCell *cell;
	uint32			number = 0;
	int				words;

	e->certain &= joins == NIL; /* no row may have a match */
	foreach(cell, joins)
	{
		const gstore_query_join *join = lfirst(cell);

		if (!emit_waiting(e, number) || !emit_outer_keys(e, join, raises, &words) ||
			!gstore_emit(e, GQUERY_PROBE, ++number, (uint32) words))
			return false;
		e->program->code[e->program->code_count - 1].value = (uint64) join->kind |
			(join->matches != NIL ? GQUERY_JOIN_CONDITION : 0);
		if ((join->matches != NIL && !emit_matches(e, join, number, raises)) ||
			!emit_conditions(e, join->conditions, raises))
			return false;
	}
	return true;
}

static bool
leave_out_all(gquery_program *p)
{
	const gquery_instruction before[] = {{.op = GQUERY_CONSTANT, .value = false},
										 {.op = GQUERY_FILTER}};

	if (p->code_count + lengthof(before) > GQUERY_CODE_MAX)
		return false;
	memmove(&p->code[lengthof(before)], p->code, sizeof p->code[0] * p->code_count);
	memcpy(p->code, before, sizeof before);
	p->code_count += lengthof(before);
	return true;
}

bool
gstore_join_emit_build(gstore_emitter *e, const gstore_query_join *join, bool asked, bool *raises)
{
	int words;

	return emit_conditions(e, join->filters, raises) && emit_keys(e, join, true, raises, &words) &&
		gstore_emit(e, GQUERY_BUILD, (uint32) words, 0) &&
		(asked || e->missing == 0 || leave_out_all(e->program));
}
