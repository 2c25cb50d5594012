/* See query_distance.h. */
#include "postgres.h"

#include <math.h>

#include "catalog/dependency.h"
#include "catalog/pg_operator.h"
#include "commands/extension.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"
#include "utils/varbit.h"

#include "postgres/form.h"
#include "postgres/qual.h"
#include "postgres/query_distance.h"

#define POINT_ALIGN 16

/* What pgvector's vector and halfvec begin with. */
typedef struct vector_head
{
	int32 header; /* of a varlena */
	int16 count;
	int16 unused;
} vector_head;

typedef struct distance
{
	const Var *column;
	Expr	  *value;
	uint32	   metric, elements;
	Oid		   type;
	uint32	   count;
} distance;

/* ---- which distance */

static bool
find_metric(Oid operator, bool of_bits, uint32 *metric)
{
	static const struct
	{
		const char *name;
		uint32		metric;
		bool		of_bits;
	} metrics[] = {{"<->", GQUERY_L2, false},	  {"<#>", GQUERY_INNER, false},
				   {"<=>", GQUERY_COSINE, false}, {"<+>", GQUERY_L1, false},
				   {"<~>", GQUERY_HAMMING, true}, {"<%>", GQUERY_JACCARD, true}};
	const Oid	extension = getExtensionOfObject(OperatorRelationId, operator);
	const char *name = get_opname(operator);

	if (!OidIsValid(extension) || name == NULL || strcmp(get_extension_name(extension), "vector") != 0)
		return false;
	for (Size i = 0; i < lengthof(metrics); i++)
		if (metrics[i].of_bits == of_bits && strcmp(metrics[i].name, name) == 0)
		{
			*metric = metrics[i].metric;
			return true;
		}
	return false;
}

/* The column as a store of the table has it. */
static bool
describe(const Var *var, distance *out)
{
	gstore_column column = {
		.type = var->vartype, .typmod = var->vartypmod, .length = get_typlen(var->vartype)};

	if (column.length >= 0)
		return false;
	gstore_form_describe(&column, "", 0);
	out->type = getBaseType(var->vartype);
	out->count = column.count;
	if (column.form == GSTORE_FORM_BITS)
		out->elements = GQUERY_ELEMENTS_BITS;
	else if (column.form == GSTORE_FORM_VECTOR)
		out->elements = column.element_form == GSTORE_FORM_HALF ? GQUERY_ELEMENTS_F16
																: GQUERY_ELEMENTS_F32;
	else
		return false;
	return true;
}

static bool
is_column(const gstore_emitter *e, const Node *node)
{
	const Var *var = (const Var *) node;

	return IsA(node, Var) && (Index) var->varno == e->relation && var->varlevelsup == 0 &&
		var->varattno > 0;
}

/* All of them are the same both ways. */
static bool
find_distance(const gstore_emitter *e, Node *node, distance *out)
{
	const OpExpr *operator=(const OpExpr *) node;
	Node		 *left, *right;

	if (!IsA(node, OpExpr) || operator->opno<FirstNormalObjectId || list_length(operator->args) != 2)
		return false;
	left = linitial(operator->args);
	right = lsecond(operator->args);
	out->column = (const Var *) (is_column(e, left) ? left : right);
	out->value = (Expr *) (is_column(e, left) ? right : left);
	return is_column(e, (const Node *) out->column) &&
		exprType((const Node *) out->value) == out->column->vartype &&
		gstore_is_row_independent((Node *) out->value) && describe(out->column, out) &&
		find_metric(operator->opno, out->elements == GQUERY_ELEMENTS_BITS, &out->metric);
}

/* ---- the value, as kernels read it */

static float
float_of_half(uint16 half)
{
	const uint32 exponent = half >> 10 & 31, fraction = half & 1023;
	const float	 sign = (half & 0x8000) != 0 ? -1 : 1;

	if (exponent == 0)
		return sign * ldexpf((float) fraction, -24);
	return sign * ldexpf((float) (fraction + 1024), (int) exponent - 25);
}

/* Appends the point. False: it has another length. */
static bool
append_vector(const distance *d, const struct varlena *value, gquery_wanted_distance *w, StringInfo out)
{
	const vector_head *head = (const vector_head *) value;
	const char		  *elements = (const char *) (head + 1);

	if (head->count != (int64) d->count)
		return false;
	for (uint32 i = 0; i < d->count; i++)
	{
		float  element;
		uint16 half;

		if (d->elements == GQUERY_ELEMENTS_F16)
		{
			memcpy(&half, elements + i * sizeof half, sizeof half);
			element = float_of_half(half);
		}
		else
			memcpy(&element, elements + i * sizeof element, sizeof element);
		w->query_square += (double) element * (double) element;
		appendBinaryStringInfo(out, (const char *) &element, sizeof element);
	}
	return true;
}

static bool
append_bits(const distance *d, const struct varlena *value, StringInfo out)
{
	const VarBit *bits = (const VarBit *) value;

	if (VARBITLEN(bits) != (int64) d->count)
		return false;
	appendBinaryStringInfo(out, (const char *) VARBITS(bits), (int) VARBITBYTES(bits));
	return true;
}

static bool
append_point(const distance *d, Datum datum, gquery_wanted_distance *w, StringInfo out)
{
	const struct varlena *value = PG_DETOAST_DATUM(datum);
	const int			  at = out->len;

	if (d->elements == GQUERY_ELEMENTS_BITS ? !append_bits(d, value, out)
											: !append_vector(d, value, w, out))
		return false;
	while (out->len % POINT_ALIGN != 0)
		appendStringInfoChar(out, '\0');
	w->query = (gquery_span){(uint64) at, (uint64) (out->len - at)};
	return true;
}

/* ---- emitting */

static uint32
stride_of(const distance *d)
{
	switch (d->elements)
	{
		case GQUERY_ELEMENTS_BITS:
			return (d->count + 7) / 8;
		case GQUERY_ELEMENTS_F16:
			return d->count * 2;
		default:
			return d->count * 4;
	}
}

/* The store of the view has it in this form. */
static bool
is_stored(const gstore_emitter *e, const distance *d, bool *nullable)
{
	const gstore_column *column;

	*nullable = true;
	if (e->view == NULL || d->column->varattno > e->view->column_count)
		return true;
	column = &e->view->columns[d->column->varattno - 1];
	if (column->dropped)
		return true;
	*nullable = column->has_nulls;
	return getBaseType(column->type) == d->type && column->count == d->count &&
		(column->form == GSTORE_FORM_VECTOR || column->form == GSTORE_FORM_BITS);
}

static bool
add_distance(gstore_emitter *e, Node *node, const distance *d, Datum value, bool known)
{
	gstore_distances	   *all = e->distances;
	gquery_program		   *p = e->program;
	gquery_wanted_distance *w = &all->wanted[all->count];

	if (all->count == GQUERY_DISTANCES_MAX || p->column_count == GQUERY_COLUMNS_MAX)
		return false;
	*w = (gquery_wanted_distance){.number = (uint32) d->column->varattno,
								  .type = d->type,
								  .elements = d->elements,
								  .metric = d->metric,
								  .stride = stride_of(d),
								  .count = d->count};
	if (known && !append_point(d, value, w, &all->queries))
		return false;
	all->nodes[all->count] = node;
	all->columns[all->count] = p->column_count;
	p->columns[p->column_count++] = (gquery_column){
		.table = GQUERY_DISTANCE, .number = (uint32) all->count, .type = FLOAT8OID, .form = GQUERY_F64};
	all->count++;
	e->columns = bms_add_member(e->columns, d->column->varattno);
	return true;
}

bool
gstore_emit_distance(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	distance d;
	Datum	 value = 0;
	bool	 known, null = false;
	int		 at = 0;

	if (e->distances == NULL || !find_distance(e, node, &d) || !is_stored(e, &d, &out->nullable))
		return false;
	out->type = FLOAT8OID;
	known = gstore_evaluate(e, d.value, &value, &null, &out->raises);
	if (e->context != NULL && !known)
		return gstore_emit(e, GQUERY_UNKNOWN, 0, 0);
	if (null)
	{
		out->nullable = true;
		return gstore_emit(e, GQUERY_NULL, 0, 0);
	}
	while (at < e->distances->count && e->distances->nodes[at] != node)
		at++;
	if (at == e->distances->count && !add_distance(e, node, &d, value, known))
		return false;
	return gstore_emit(e, GQUERY_LOAD, e->distances->columns[at], 0);
}
