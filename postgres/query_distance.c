/* See query_distance.h. */
#include "postgres.h"

#include <math.h>

#include "catalog/dependency.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/varbit.h"

#include "postgres/form.h"
#include "postgres/option.h"
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
	bool	   array; /* it is none of pgvector's */
} distance;

/* ---- which distance */

static const struct
{
	const char *operator, * function; /* of the extension "vector"; of ours */
	uint32		metric;
	bool		of_bits;
} metrics[] = {{"<->", "gstore_l2_distance", GQUERY_L2, false},
			   {"<#>", "gstore_negative_inner_product", GQUERY_INNER, false},
			   {"<=>", "gstore_cosine_distance", GQUERY_COSINE, false},
			   {"<+>", "gstore_l1_distance", GQUERY_L1, false},
			   {"<~>", "gstore_hamming_distance", GQUERY_HAMMING, true},
			   {"<%>", "gstore_jaccard_distance", GQUERY_JACCARD, true}};

static bool
is_of(Oid class, Oid object, const char *wanted)
{
	const Oid	extension = getExtensionOfObject(class, object);
	const char *name = OidIsValid(extension) ? get_extension_name(extension) : NULL;

	return name != NULL && strcmp(name, wanted) == 0;
}

/* pgvector's operators have their names; ours are by their functions, whatever they are called. */
static bool
find_metric(const Node *node, bool of_bits, uint32 *metric)
{
	const Oid operator= IsA(node, OpExpr) ? ((const OpExpr *) node)->opno : InvalidOid;
	const Oid	function = OidIsValid(operator) ? get_opcode(operator)
												: ((const FuncExpr *) node)->funcid;
	const bool	of_vector = OidIsValid(operator) && is_of(OperatorRelationId, operator, "vector");
	const char *name;

	if (!of_vector && !is_of(ProcedureRelationId, function, "gstore_fdw"))
		return false;
	name = of_vector ? get_opname(operator) : get_func_name(function);
	for (Size i = 0; name != NULL && i < lengthof(metrics); i++)
		if (metrics[i].of_bits == of_bits &&
			strcmp(of_vector ? metrics[i].operator: metrics[i].function, name) == 0)
		{
			*metric = metrics[i].metric;
			return true;
		}
	return false;
}

static bool
find_elements(const gstore_column *column, uint32 *elements)
{
	if (column->form == GSTORE_FORM_BITS)
		*elements = GQUERY_ELEMENTS_BITS;
	else if (column->form != GSTORE_FORM_VECTOR && column->form != GSTORE_FORM_ARRAY)
		return false;
	else if (column->element_form == GSTORE_FORM_HALF)
		*elements = GQUERY_ELEMENTS_F16;
	else if (column->element == FLOAT4OID)
		*elements = GQUERY_ELEMENTS_F32;
	else if (column->element == FLOAT8OID)
		*elements = GQUERY_ELEMENTS_F64;
	else if (column->element == INT2OID)
		*elements = GQUERY_ELEMENTS_I16;
	else
		return false;
	return true;
}

/* The column as a store of the table has it. */
static bool
describe(const gstore_emitter *e, const Var *var, distance *out)
{
	gstore_column column = {
		.type = var->vartype, .typmod = var->vartypmod, .length = get_typlen(var->vartype)};

	if (column.length >= 0)
		return false;
	gstore_form_describe(&column, "", gstore_column_length(e->table, var->varattno));
	out->type = getBaseType(var->vartype);
	out->count = column.count;
	out->array = column.form == GSTORE_FORM_ARRAY;
	return find_elements(&column, &out->elements);
}

static bool
is_column(const gstore_emitter *e, const Node *node)
{
	const Var *var = (const Var *) node;

	return IsA(node, Var) && (Index) var->varno == e->relation && var->varlevelsup == 0 &&
		var->varattno > 0;
}

static List *
arguments_of(const Node *node)
{
	if (IsA(node, OpExpr) && ((const OpExpr *) node)->opno >= FirstNormalObjectId)
		return ((const OpExpr *) node)->args;
	if (IsA(node, FuncExpr) && ((const FuncExpr *) node)->funcid >= FirstNormalObjectId)
		return ((const FuncExpr *) node)->args;
	return NIL;
}

/* All of them are the same both ways. */
static bool
find_distance(const gstore_emitter *e, const Node *node, distance *out)
{
	const List *args = arguments_of(node);
	Node	   *left, *right;

	if (list_length(args) != 2)
		return false;
	left = linitial(args);
	right = lsecond(args);
	out->column = (const Var *) (is_column(e, left) ? left : right);
	out->value = (Expr *) (is_column(e, left) ? right : left);
	return is_column(e, (const Node *) out->column) &&
		exprType((const Node *) out->value) == out->column->vartype &&
		gstore_is_row_independent((Node *) out->value) && describe(e, out->column, out) &&
		find_metric(node, out->elements == GQUERY_ELEMENTS_BITS, &out->metric);
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

static double
element_of(const distance *d, const char *elements, uint32 i)
{
	float  real;
	double number;
	int16  integer;

	switch (d->elements)
	{
		case GQUERY_ELEMENTS_F32:
			memcpy(&real, elements + i * sizeof real, sizeof real);
			return real;
		case GQUERY_ELEMENTS_F64:
			memcpy(&number, elements + i * sizeof number, sizeof number);
			return number;
		default:
			memcpy(&integer, elements + i * sizeof integer, sizeof integer);
			return integer;
	}
}

static bool
append_array(const distance *d, const struct varlena *value, gquery_wanted_distance *w, StringInfo out)
{
	const ArrayType *array = (const ArrayType *) value;

	if (ARR_NDIM(array) != 1 || ARR_DIMS(array)[0] != (int64) d->count ||
		array_contains_nulls(unconstify(ArrayType *, array)))
		return false;
	if (d->elements == GQUERY_ELEMENTS_F32)
		appendBinaryStringInfo(out, ARR_DATA_PTR(array), (int) (d->count * sizeof(float)));
	for (uint32 i = 0; i < d->count; i++)
	{
		const double element = element_of(d, ARR_DATA_PTR(array), i);

		w->query_square += element * element;
		if (d->elements != GQUERY_ELEMENTS_F32)
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
append_elements(const distance *d, const struct varlena *value, gquery_wanted_distance *w,
				StringInfo out)
{
	if (d->elements == GQUERY_ELEMENTS_BITS)
		return append_bits(d, value, out);
	return d->array ? append_array(d, value, w, out) : append_vector(d, value, w, out);
}

static bool
append_point(const distance *d, Datum datum, gquery_wanted_distance *w, StringInfo out)
{
	const struct varlena *value = PG_DETOAST_DATUM(datum);
	const int			  at = out->len;

	if (!append_elements(d, value, w, out))
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
		case GQUERY_ELEMENTS_I16:
			return d->count * 2;
		case GQUERY_ELEMENTS_F64:
			return d->count * 8;
		default:
			return d->count * 4;
	}
}

/* The store of the view has it in this form. */
static bool
is_stored(const gstore_emitter *e, const distance *d, bool *nullable)
{
	const gstore_column *column;
	uint32				 elements;

	*nullable = true;
	if (e->view == NULL || d->column->varattno > e->view->column_count)
		return true;
	column = &e->view->columns[d->column->varattno - 1];
	if (column->dropped)
		return true;
	*nullable = column->has_nulls;
	return getBaseType(column->type) == d->type && column->count == d->count &&
		find_elements(column, &elements) && elements == d->elements;
}

static gquery_wanted_distance
wanted_of(const distance *d)
{
	return (gquery_wanted_distance){.number = (uint32) d->column->varattno,
									.type = d->type,
									.elements = d->elements,
									.metric = d->metric,
									.stride = stride_of(d),
									.count = d->count};
}

static bool
add_distance(gstore_emitter *e, Node *node, const distance *d, Datum value, bool known)
{
	gstore_distances	   *all = e->distances;
	gquery_program		   *p = e->program;
	gquery_wanted_distance *w = &all->wanted[all->count];

	if (all->count == GQUERY_DISTANCES_MAX || p->column_count == GQUERY_COLUMNS_MAX)
		return false;
	*w = wanted_of(d);
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

	if (e->distances == NULL || e->joins != NIL || !find_distance(e, node, &d) ||
		!is_stored(e, &d, &out->nullable))
		return false;
	out->type = FLOAT8OID;
	e->any_length |= !IsA(d.value, Const);
	known = gstore_evaluate(e, d.value, &value, &null, &out->raises);
	if (e->context != NULL && !known)
		return gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0);
	if (null)
	{
		out->nullable = true;
		return gstore_emit(e, GQUERY_NULL, 0, 0);
	}
	while (at < e->distances->count && !equal(e->distances->nodes[at], node))
		at++;
	if (at == e->distances->count && !add_distance(e, node, &d, value, known))
		return false;
	return gstore_emit(e, GQUERY_LOAD, e->distances->columns[at], 0);
}

bool
gstore_describe_nearest(gstore_emitter *e, Node *node, const Datum *points, int count)
{
	gstore_distances	   *all = e->distances;
	gquery_wanted_distance *w = &all->wanted[0];
	distance				d;
	bool					nullable;

	if (all->count > 0 || !find_distance(e, node, &d) || !IsA(d.value, Param) ||
		!is_stored(e, &d, &nullable))
		return false; /* another value is made of the points */
	*w = wanted_of(&d);
	for (int i = 0; i < count && e->view != NULL; i++)
		if (!append_point(&d, points[i], w, &all->queries))
			return false;
	w->query = (gquery_span){0, (uint64) all->queries.len};
	all->count = 1;
	return true;
}
