/* See query_choice.h. */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

#include "postgres/qual.h"
#include "postgres/query_choice.h"
#include "postgres/query_decimal.h"
#include "postgres/query_enum.h"
#include "postgres/query_refused.h"

/* What a CASE compares with is evaluated anew for each WHEN. */
typedef struct gstore_case
{
	Node			   *value;
	struct gstore_case *outer;
} gstore_case;

/* From the WHEN at that place on: the rest is in the ELSE of the one before. */
static bool
emit_whens(gstore_emitter *e, CaseExpr *c, int at, gstore_emitted *out)
{
	CaseWhen	  *when;
	gstore_emitted condition, rest;
	uint32		   start, end, rest_start;

	if (at == list_length(c->args))
	{
		if (c->defresult != NULL)
			return gstore_emit_expression(e, (Node *) c->defresult, out);
		*out = (gstore_emitted){.type = getBaseType(c->casetype)};
		return gstore_emit_null(e, out);
	}
	when = list_nth_node(CaseWhen, c->args, at);
	if (!gstore_emit_expression(e, (Node *) when->expr, &condition) || !gstore_emit(e, GQUERY_IF, 0, 0))
		return false;
	start = e->program->code_count;
	if (!gstore_emit_expression(e, (Node *) when->result, out))
		return false;
	end = e->program->code_count;
	rest_start = end + 1;
	if (!gstore_emit(e, GQUERY_ELSE, 0, 0) || !emit_whens(e, c, at + 1, &rest))
		return false;
	if (out->type == NUMERICOID &&
		(!gstore_emit_full_scale(e, start, end, rest_start, out, &rest) ||
		 !gstore_align(e->program, out, end, &rest)))
		return false;
	out->nullable |= rest.nullable;
	out->raises |= condition.raises || rest.raises;
	return gstore_emit(e, GQUERY_END, 0, 0);
}

static bool
emit_case(gstore_emitter *e, CaseExpr *c, gstore_emitted *out)
{
	gstore_case scope = {(Node *) c->arg, e->scope};
	bool		done;

	e->guarded++;
	if (c->arg != NULL)
		e->scope = &scope;
	done = emit_whens(e, c, 0, out);
	e->scope = scope.outer;
	e->guarded--;
	out->type = getBaseType(c->casetype);
	return done;
}

Node *
gstore_case_value(const gstore_emitter *e)
{
	return e->scope == NULL ? NULL : e->scope->value;
}

static bool
emit_case_value(gstore_emitter *e, gstore_emitted *out)
{
	gstore_case *scope = e->scope;
	bool		 done;

	if (scope == NULL)
		return false;
	e->scope = scope->outer;
	done = gstore_emit_expression(e, scope->value, out);
	e->scope = scope;
	return done;
}

static bool
emit_coalesce(gstore_emitter *e, CoalesceExpr *c, gstore_emitted *out)
{
	ListCell *cell;

	if (!gstore_emit_expression(e, linitial(c->args), out))
		return false;
	for_each_from(cell, c->args, 1)
	{
		gstore_emitted one;
		uint32		   start;
		bool		   done;

		if (!gstore_emit(e, GQUERY_COPY, 0, 0) || !gstore_emit(e, GQUERY_IS_NULL, 0, 0) ||
			!gstore_emit(e, GQUERY_IF, 0, 0))
			return false;
		out->absorbed |= out->mixed; /* with NULL in its place this argument would be taken */
		e->guarded++;
		start = e->program->code_count;
		done = gstore_emit_expression(e, lfirst(cell), &one) &&
			(one.type != NUMERICOID ||
			 ((one.scale <= out->scale || gstore_refuse(e, (Node *) c, GSTORE_SCALES_DIFFER)) &&
			  gstore_emit_full_scale(e, 0, 0, start, out, &one) &&
			  gstore_align(e->program, out, 0, &one)));
		e->guarded--;
		if (!done || !gstore_emit(e, GQUERY_REPLACE, 0, 0) || !gstore_emit(e, GQUERY_END, 0, 0))
			return false;
		out->nullable &= one.nullable;
		out->raises |= one.raises;
	}
	out->type = getBaseType(c->coalescetype);
	return true;
}

static bool
emit_null_if(gstore_emitter *e, NullIfExpr *n, gstore_emitted *out)
{
	const bool	   full_scale = e->full_scale;
	gstore_emitted is_equal;
	gquery_op	   op;
	bool		   done;

	if (!gstore_find_comparison(n->opno, &op) || op != GQUERY_EQ ||
		!gstore_emit_expression(e, linitial(n->args), out) || !gstore_emit(e, GQUERY_COPY, 0, 0))
		return false;
	e->full_scale = false;
	done = gstore_emit_compared(e, *out, lsecond(n->args), GQUERY_EQ, &is_equal);
	e->full_scale = full_scale;
	if (!done)
		return false;
	out->nullable = true;
	out->raises |= is_equal.raises;
	return gstore_emit(e, GQUERY_IF, 0, 0) && gstore_emit(e, GQUERY_NULL, 0, 0) &&
		gstore_emit(e, GQUERY_REPLACE, 0, 0) && gstore_emit(e, GQUERY_END, 0, 0);
}

/* An argument of GREATEST or LEAST, as a number in the order of its type. */
static bool
emit_ordered(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	return gstore_emit_expression(e, node, out) &&
		(!type_is_enum(out->type) || gstore_emit_enum_number(e, out->type));
}

/* The first one stays, or the next one takes its place. */
static bool
emit_min_max(gstore_emitter *e, MinMaxExpr *m, gstore_emitted *out)
{
	const bool is_least = m->op == IS_LEAST;
	uint32	   function;
	ListCell  *cell;

	if (!emit_ordered(e, linitial(m->args), out) || gstore_stack_words(out->type) != 1 ||
		(gstore_type_family(out->type) == 0 && !type_is_enum(out->type)))
		return false;
	if (gstore_is_float(out->type))
		function = is_least ? GQUERY_LEAST_F64 : GQUERY_GREATEST_F64;
	else
		function = is_least ? GQUERY_LEAST_I64 : GQUERY_GREATEST_I64;
	for_each_from(cell, m->args, 1)
	{
		const uint32   end = e->program->code_count;
		gstore_emitted one;

		if (!emit_ordered(e, lfirst(cell), &one) || one.type != out->type ||
			(one.type == NUMERICOID && !gstore_align(e->program, out, end, &one)) ||
			!gstore_emit(e, GQUERY_FUNCTION, 0, function))
			return false;
		out->nullable &= one.nullable;
		out->raises |= one.raises;
	}
	/* Not what find_full_scale() counts: a value of the smaller scale is no NULL here. */
	out->absorbed |= out->mixed;
	return !type_is_enum(out->type) || gstore_emit_enum_value(e);
}

bool
gstore_emit_choice(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	switch (nodeTag(node))
	{
		case T_CaseExpr:
			return emit_case(e, (CaseExpr *) node, out);
		case T_CaseTestExpr:
			return emit_case_value(e, out);
		case T_CoalesceExpr:
			return emit_coalesce(e, (CoalesceExpr *) node, out);
		case T_NullIfExpr:
			return emit_null_if(e, (NullIfExpr *) node, out);
		case T_MinMaxExpr:
			return emit_min_max(e, (MinMaxExpr *) node, out);
		default:
			return false;
	}
}
