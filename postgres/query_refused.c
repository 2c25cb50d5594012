/* See query_refused.h. */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"

#include "postgres/query_refused.h"
#include "postgres/query_word.h"

/* Its name, where the emitter knows the relation. */
static char *
describe_column(const gstore_emitter *e, const Var *var)
{
	char	   *type = format_type_with_typemod(var->vartype, var->vartypmod);
	const char *name = (Index) var->varno == e->relation && OidIsValid(e->table)
		? get_attname(e->table, var->varattno, true)
		: NULL;

	return name == NULL ? psprintf("a column of type %s", type)
						: psprintf("column %s of type %s", quote_identifier(name), type);
}

static char *
describe(const gstore_emitter *e, Node *node)
{
	switch (nodeTag(node))
	{
		case T_Var:
			return describe_column(e, (Var *) node);
		case T_OpExpr:
		case T_DistinctExpr:
			return psprintf("operator %s", format_operator(((OpExpr *) node)->opno));
		case T_ScalarArrayOpExpr:
			return psprintf("operator %s with a list",
							format_operator(((ScalarArrayOpExpr *) node)->opno));
		case T_FuncExpr:
			return psprintf("function %s", format_procedure(((FuncExpr *) node)->funcid));
		case T_Aggref:
			return psprintf("aggregate %s%s", format_procedure(((Aggref *) node)->aggfnoid),
							((Aggref *) node)->aggdistinct != NIL ? " with its DISTINCT" : "");
		case T_CaseExpr:
			return psprintf("CASE of type %s", format_type_be(exprType(node)));
		case T_CoalesceExpr:
			return psprintf("COALESCE of type %s", format_type_be(exprType(node)));
		default:
			return psprintf("an expression of type %s", format_type_be(exprType(node)));
	}
}

bool
gstore_refuse(gstore_emitter *e, Node *node, const char *as)
{
	e->refused = node;
	e->refused_as = as;
	return false;
}

void
gstore_note_refused(gstore_emitter *e, Node *node)
{
	if (e->refused == NULL && !(IsA(node, Var) && gstore_is_text(getBaseType(exprType(node)))))
		(void) gstore_refuse(e, node, NULL);
}

static char *
reason_of(const gstore_emitter *e)
{
	if (e->full)
		return psprintf("it has more than %d instructions", GQUERY_CODE_MAX);
	if (e->refused == NULL)
		return NULL;
	return psprintf("%s %s", describe(e, e->refused),
					e->refused_as == NULL ? "is not computed there" : e->refused_as);
}

void
gstore_report_reason(const char *reason)
{
	static uint32	   last;
	static TimestampTz last_at;
	uint32			   hash;

	hash = string_hash(reason, strlen(reason) + 1);
	if (hash == last && last_at == GetCurrentStatementStartTimestamp())
		return;
	last = hash;
	last_at = GetCurrentStatementStartTimestamp();
	ereport(DEBUG1, (errmsg_internal("not for the GPU: %s", reason)));
}

void
gstore_report_refused(const gstore_emitter *e)
{
	const char *reason = message_level_is_interesting(DEBUG1) ? reason_of(e) : NULL;

	if (reason != NULL)
		gstore_report_reason(reason);
}
