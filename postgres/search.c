/*
 * gstore_search(): of each of many vectors the rows of a table that are nearest to it. See docs/gstore_fdw.md, "Many queries at once".
 *
 * The GPU finds the rows for many vectors at a time, and returns them with the values of most columns. The server reads the others by the rows' numbers, and computes
 * their distances. What the GPU cannot do is a statement for each vector, by SPI. Both see what the calling statement sees.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/prep.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_oper.h"
#include "parser/parse_relation.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"

#include "postgres/compat.h"
#include "postgres/option.h"
#include "postgres/qual.h"
#include "postgres/query_compile.h"
#include "postgres/query_records.h"
#include "postgres/query_word.h"
#include "postgres/reload.h"
#include "postgres/scan.h"
#include "postgres/settings.h"
#include "postgres/table.h"
#include "postgres/uniform.h"
#include "postgres/whole.h"

PG_FUNCTION_INFO_V1(gstore_search);

#define QUERIES_MOST   1024		  /* at a time */
#define READ_ROWS	   256		  /* likewise */
#define GATHERED_BYTES (8u << 20) /* of a query's rows */
#define GATHERED_MOST  32		  /* columns, beside vectors */
#define ORDER_WORDS	   3
/* Words of records of query_gather: the key, which values are NULL, the row, values. */
#define RECORD_NULLS	1
#define RECORD_ROW		2
#define RECORD_VALUES	3
#define ROWS_MOST		(1 << 20) /* for each */
#define QUERY_BYTES		4096	  /* of device memory for one, beside its vector and lists, about */
#define LIST_ROWS_LEAST 4096

typedef struct search
{
	Relation	   relation;
	int			   column;	 /* its attribute number */
	Node		  *distance; /* column op $1 */
	Node		  *filter;	 /* NULL: all rows */
	Oid			   query_type;
	Datum		  *queries;
	int			   query_count, k;
	bool		   has_children;
	int			   done; /* queries */
	ReturnSetInfo *result;
	SPIPlanPtr	   plan; /* of one query; NULL: not made yet */
	char		   why[GSTORE_SESSION_WHY_BYTES];
} search;

/* ---- arguments */

static void
refuse_null(FunctionCallInfo fcinfo, int number, const char *name)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument %s of gstore_search() must not be null", name)));
}

/* That the user may read all of its columns, and that no policy has rows for the user alone. */
static void
check_rights(Relation relation)
{
	const Oid id = RelationGetRelid(relation);

	if (pg_class_aclcheck(id, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(id, GetUserId(), ACL_SELECT, ACLMASK_ALL) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(relation->rd_rel->relkind),
					   RelationGetRelationName(relation));
	if (check_enable_rls(id, InvalidOid, false) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gstore_search() does not read table \"%s\", whose row security applies to you",
						RelationGetRelationName(relation)),
				 errhint("SELECT … ORDER BY … LIMIT reads it.")));
}

static Relation
open_table(Oid type)
{
	const Oid id = type_is_rowtype(type) ? get_typ_typrelid(type) : InvalidOid;
	Relation  relation = OidIsValid(id) ? table_open(id, AccessShareLock) : NULL;

	if (relation == NULL ||
		(relation->rd_rel->relkind != RELKIND_FOREIGN_TABLE &&
		 relation->rd_rel->relkind != RELKIND_RELATION &&
		 relation->rd_rel->relkind != RELKIND_PARTITIONED_TABLE))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("the first argument of gstore_search() is of type %s, not of a table's row type",
						format_type_be(type)),
				 errhint("NULL::ft is of the type of rows of table ft.")));
	check_rights(relation);
	return relation;
}

static AttrNumber
find_column(Relation relation, const char *name)
{
	const AttrNumber number = get_attnum(RelationGetRelid(relation), name);

	if (number <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", name,
						RelationGetRelationName(relation))));
	return number;
}

/* Of elements by value, without NULL, which lie one behind the other. */
static void
copy_rows(search *s, ArrayType *array, int width, Size length)
{
	const Size bytes = (Size) width * length;

	for (int i = 0; i < s->query_count; i++)
	{
		ArrayType *row = palloc(ARR_OVERHEAD_NONULLS(1) + bytes);

		SET_VARSIZE(row, ARR_OVERHEAD_NONULLS(1) + bytes);
		row->ndim = 1;
		row->dataoffset = 0;
		row->elemtype = ARR_ELEMTYPE(array);
		ARR_DIMS(row)[0] = width;
		ARR_LBOUND(row)[0] = 1;
		memcpy(ARR_DATA_PTR(row), ARR_DATA_PTR(array) + (Size) i * bytes, bytes);
		s->queries[i] = PointerGetDatum(row);
	}
}

static void
construct_rows(search *s, ArrayType *array, int width)
{
	const Oid element = ARR_ELEMTYPE(array);
	int16	  length;
	bool	  by_value, *nulls;
	char	  align;
	Datum	 *elements;
	int		  count, one = 1;

	get_typlenbyvalalign(element, &length, &by_value, &align);
	deconstruct_array(array, element, length, by_value, align, &elements, &nulls, &count);
	for (int i = 0; i < s->query_count; i++)
		s->queries[i] = PointerGetDatum(construct_md_array(elements + i * width, nulls + i * width,
														   1, &width, &one, element, length,
														   by_value, align));
}

/* Each row of a matrix, or the array, where vectors are arrays themselves. */
static void
split_matrix(search *s, ArrayType *array)
{
	const Oid element = ARR_ELEMTYPE(array);
	int16	  length;
	bool	  by_value;
	char	  align;
	int		  count, width;

	if (ARR_NDIM(array) > 2)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("vectors of gstore_search() are rows of an array of two dimensions")));
	get_typlenbyvalalign(element, &length, &by_value, &align);
	count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	width = ARR_NDIM(array) == 2 ? ARR_DIMS(array)[1] : count;
	s->query_type = get_array_type(element);
	s->query_count = count == 0 ? 0 : count / width;
	s->queries = palloc(sizeof(Datum) * (Size) (s->query_count + 1));
	if (by_value && !array_contains_nulls(array))
		copy_rows(s, array, width, (Size) length);
	else
		construct_rows(s, array, width);
}

static void
split_array(search *s, ArrayType *array)
{
	int16 length;
	bool  by_value, *nulls;
	char  align;

	s->query_type = ARR_ELEMTYPE(array);
	get_typlenbyvalalign(s->query_type, &length, &by_value, &align);
	deconstruct_array(array, s->query_type, length, by_value, align, &s->queries, &nulls,
					  &s->query_count);
	for (int i = 0; i < s->query_count; i++)
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("vectors of gstore_search() must not be null")));
}

/* column op $1 */
static void
make_distance(search *s, const Form_pg_attribute column, const char *name)
{
#if PG_VERSION_NUM >= 160000
	List *names = stringToQualifiedNameList(name, NULL);
#else
	List *names = stringToQualifiedNameList(name);
#endif
	ParseState *state = make_parsestate(NULL);
	Var *var = makeVar(1, column->attnum, column->atttypid, column->atttypmod, column->attcollation, 0);
	Param *value = makeNode(Param);

	value->paramkind = PARAM_EXTERN;
	value->paramid = 1;
	value->paramtype = s->query_type;
	value->paramtypmod = -1;
	value->paramcollid = get_typcollation(s->query_type);
	value->location = -1;
	s->distance = (Node *) make_op(state, names, (Node *) var, (Node *) value, NULL, -1);
	assign_expr_collations(state, s->distance);
	free_parsestate(state);
	if (exprType(s->distance) != FLOAT8OID || expression_returns_set(s->distance) ||
		contain_mutable_functions(s->distance))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("operator %s is no distance", name),
				 errhint("A distance is immutable, and of type double precision.")));
}

/* The columns of all tables, which only a list of columns can have: transformExpr() would take it for a name. */
static bool
is_star(const Node *node)
{
	return IsA(node, ColumnRef) && IsA(linitial(((const ColumnRef *) node)->fields), A_Star);
}

/* The only thing that SELECT with this text returns. What PL/pgSQL has for expressions is what one SELECT may have behind its first word. */
static Node *
parse_expression(const char *text)
{
	const List *statements = gstore_parse(text, RAW_PARSE_PLPGSQL_EXPR, "filter of gstore_search()");
	const SelectStmt *select = castNode(SelectStmt, linitial_node(RawStmt, statements)->stmt);
	SelectStmt		 *plain = makeNode(SelectStmt);
	const ResTarget	 *target;

	plain->targetList = select->targetList;
	target = list_length(plain->targetList) == 1 ? linitial(plain->targetList) : NULL;
	if (target == NULL || !equal(plain, select) || target->name != NULL ||
		target->indirection != NIL || is_star(target->val))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the filter of gstore_search() is no expression: \"%s\"", text)));
	return target->val;
}

/* As CHECK has it: of columns of the table, immutable, without subqueries. */
static void
make_filter(search *s, const char *text)
{
	ParseState		   *state = make_parsestate(NULL);
	ParseNamespaceItem *item = addRangeTableEntryForRelation(state, s->relation, AccessShareLock,
															 NULL, false, true);

	addNSItemToQuery(state, item, true, true, true);
	s->filter = transformExpr(state, parse_expression(text), EXPR_KIND_CHECK_CONSTRAINT);
	s->filter = coerce_to_boolean(state, s->filter, "filter");
	assign_expr_collations(state, s->filter);
	if (list_length(state->p_rtable) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("the filter of gstore_search() refers to another table")));
	free_parsestate(state);
	if (contain_mutable_functions(s->filter))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("functions in the filter of gstore_search() must be immutable")));
}

static void
put_row(search *s, int query, Datum distance, bool null, Datum row)
{
	Datum values[] = {Int32GetDatum(query + 1), distance, row};
	bool  nulls[] = {false, null, false};

	tuplestore_putvalues(s->result->setResult, s->result->setDesc, values, nulls);
}

/* ---- on the GPU */

/* What queries [first, limit) need while they run. */
typedef struct gpu_search
{
	search		*s;
	int			 first, limit;
	EState		*estate;
	gstore_view	 view;
	gstore_query query;
	gstore_run	 run;
	/* Records of whole queries, and their order: of each the distance's key, the row, and which record it is. */
	uint64 *records, *order;
	uint64	each, room, count; /* records of a query; that there is room for; that are there */
	/* To return rows: */
	ParamListInfo	parameters;
	ExprState	   *distance;
	TupleTableSlot *slot;
	uint8		   *vector_value;
	gstore_output  *output; /* of columns that records do not have */
	Bitmapset	   *columns;
	int			   *indexes, index_count;
	gstore_batch   *batches[READ_ROWS];
} gpu_search;

/* Columns whose values records have; others are read by the rows' numbers. */
static void
choose_gathered(gpu_search *g)
{
	const TupleDesc descriptor = RelationGetDescr(g->s->relation);

	for (int i = 0; i < descriptor->natts; i++)
	{
		const Form_pg_attribute column = TupleDescAttr(descriptor, i);
		const Oid type = column->attisdropped ? InvalidOid : getBaseType(column->atttypid);

		if (!OidIsValid(type) || type == NUMERICOID || gstore_type_family(type) == 0 ||
			list_length(g->query.gathered) == GATHERED_MOST)
			continue;
		g->query.gathered = lappend_int(g->query.gathered, i + 1);
		g->query.gathered_types = lappend_oid(g->query.gathered_types, type);
	}
}

/* If those of a query take little memory. */
static bool
may_gather(const gpu_search *g)
{
	const gstore_column *column = &g->view.columns[g->s->column - 1];
	const uint64		 words = (uint64) list_length(g->query.gathered) + RECORD_VALUES;

	return g->s->column <= g->view.column_count && !column->dropped && gstore_is_uniform(column) &&
		(uint64) g->s->k * (gstore_stride(column) + words * sizeof(uint64)) <= GATHERED_BYTES;
}

static bool
run_program(gpu_search *g, gstore_compiled *compiled)
{
	const gstore_request request = {.compiled = compiled,
									.context = GetPerTupleExprContext(g->estate),
									.relation = g->s->relation,
									.view = &g->view,
									.list_max = (uint64) g->s->k,
									.gather_max = g->query.gathers_vectors ? PG_UINT64_MAX : 0,
									.nearest = (uint32) (g->limit - g->first)};

	if (gstore_run_begin(&g->run, &request))
		return true;
	strlcpy(g->s->why, g->run.why, sizeof g->s->why);
	return false;
}

/* False: it is not for the GPU, or the GPU cannot now. */
static bool
find_rows(gpu_search *g)
{
	search		  *s = g->s;
	const Snapshot snapshot = GetActiveSnapshot();
	PlanState	  *parent = (PlanState *) makeNode(ResultState);
	gstore_whole   rows;

	g->query = (gstore_query){.sink = GSTORE_SINK_NEAREST,
							  .relation = 1,
							  .table = RelationGetRelid(s->relation),
							  .distance = s->distance,
							  .points = s->queries + g->first,
							  .point_count = g->limit - g->first};
	if (s->filter != NULL)
		g->query.filters = make_ands_implicit((Expr *) canonicalize_qual(
			(Expr *) expression_planner((Expr *) copyObject(s->filter)), false));
	gstore_note_read(s->relation, snapshot);
	rows = gstore_whole_choose(s->relation, snapshot, false, &g->view);
	if (rows == GSTORE_WHOLE_NONE)
		return true;
	if (rows == GSTORE_WHOLE_TWO_STORES)
	{
		strlcpy(s->why, GSTORE_WHY_TWO_STORES, sizeof s->why);
		gstore_query_count(GSTORE_QUERY_SEARCH, GSTORE_QUERY_UNSUPPORTED, 1);
		return false;
	}
	parent->state = g->estate;
	choose_gathered(g);
	g->query.gathers_vectors = may_gather(g);
	return run_program(g, gstore_query_prepare(&g->query, parent));
}

static void
begin_rows(gpu_search *g)
{
	const TupleDesc descriptor = RelationGetDescr(g->s->relation);

	g->parameters = makeParamList(1);
	g->parameters->params[0] = (ParamExternData){.pflags = PARAM_FLAG_CONST, .ptype = g->s->query_type};
	g->distance = ExecInitExprWithParams(expression_planner((Expr *) copyObject(g->s->distance)),
										 g->parameters);
	GetPerTupleExprContext(g->estate)->ecxt_param_list_info = g->parameters;
	g->slot = MakeSingleTupleTableSlot(descriptor, &TTSOpsVirtual);
	g->output = gstore_output_create(descriptor->natts);
	g->indexes = palloc(sizeof(int) * (Size) (descriptor->natts + 1));
	if (g->run.gathered)
		g->vector_value = palloc(gstore_uniform_width(&g->view.columns[g->s->column - 1]));
	for (int i = 0; i < descriptor->natts; i++)
		if (!TupleDescAttr(descriptor, i)->attisdropped &&
			!(g->run.gathered && (i + 1 == g->s->column || list_member_int(g->query.gathered, i + 1))))
		{
			g->columns = bms_add_member(g->columns, i + 1);
			g->indexes[g->index_count++] = i;
		}
	for (int i = 0; i < READ_ROWS && g->index_count > 0; i++)
		g->batches[i] = gstore_batch_create(descriptor->natts);
}

/* Values that the record has, into the slot. */
static void
put_gathered(gpu_search *g, const uint64 *record)
{
	const uint64   *value = record + RECORD_VALUES;
	const ListCell *number, *type;
	int				bit = 1; /* the first one is the row's number */

	forboth(number, g->query.gathered, type, g->query.gathered_types)
	{
		const int at = lfirst_int(number) - 1;

		g->slot->tts_isnull[at] = (record[RECORD_NULLS] >> bit++ & 1) != 0;
		g->slot->tts_values[at] = gstore_stack_value((int64) *value++, lfirst_oid(type), 0);
	}
	gstore_uniform_restore(&g->view.columns[g->s->column - 1], (const uint8 *) value, 1,
						   g->vector_value);
	g->slot->tts_values[g->s->column - 1] = PointerGetDatum(g->vector_value);
	g->slot->tts_isnull[g->s->column - 1] = false;
}

/* batch: with the columns that the record does not have; NULL: there are none. */
static void
return_row(gpu_search *g, uint64 number, const gstore_batch *batch)
{
	const TupleDesc descriptor = g->slot->tts_tupleDescriptor;
	const int		query = g->s->done + (int) (number / g->each);
	ExprContext	   *context = GetPerTupleExprContext(g->estate);
	MemoryContext	old;
	Datum			distance;
	bool			null;

	ExecClearTuple(g->slot);
	memset(g->slot->tts_isnull, true, sizeof(bool) * (Size) descriptor->natts);
	if (g->run.gathered)
		put_gathered(g, g->records + number * (uint64) g->run.words);
	if (batch != NULL)
	{
		gstore_output_begin(g->output, batch, &g->view, g->indexes, g->index_count);
		gstore_output_fill(g->output, 0, g->slot);
	}
	ExecStoreVirtualTuple(g->slot);
	g->parameters->params[0].value = g->s->queries[query];
	context->ecxt_scantuple = g->slot;
	old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
	distance = ExecEvalExpr(g->distance, context, &null);
	put_row(g->s, query, distance, null,
			HeapTupleGetDatum(heap_form_tuple(descriptor, g->slot->tts_values, g->slot->tts_isnull)));
	MemoryContextSwitchTo(old);
	ResetExprContext(context);
}

/* So many in the order, READ_ROWS at most. */
static void
return_rows(gpu_search *g, const uint64 *order, int count)
{
	if (g->index_count > 0)
	{
		for (int i = 0; i < count; i++)
			gstore_batch_move(g->batches[i], order[i * ORDER_WORDS + 1], 1);
		(void) gstore_read_batches(g->batches, count, &g->view, g->columns);
	}
	for (int i = 0; i < count; i++)
		return_row(g, order[i * ORDER_WORDS + 2], g->index_count > 0 ? g->batches[i] : NULL);
}

/* The order of those that are there, by query, distance and row, without those that are none. How many. */
static uint64
order_records(gpu_search *g)
{
	uint64 found = 0;

	for (uint64 at = 0; at < g->count; at += g->each)
	{
		const uint64 before = found;

		for (uint64 i = at; i < at + g->each; i++)
		{
			const uint64 *record = g->records + i * (uint64) g->run.words;
			const bool	  is_none = g->run.gathered ? (record[RECORD_NULLS] & 1) != 0
													: record[1] == PG_UINT64_MAX;
			const uint64  row = record[g->run.gathered ? RECORD_ROW : 1];

			if (is_none)
				continue;
			if (row >= g->view.rows)
				elog(ERROR, "the executor of queries has returned no valid result");
			memcpy(&g->order[ORDER_WORDS * found++], (uint64[]){record[0], row, i},
				   ORDER_WORDS * sizeof(uint64));
		}
		gstore_sort_records(g->order + ORDER_WORDS * before, found - before, ORDER_WORDS, 2);
	}
	return found;
}

static void
return_queries(gpu_search *g)
{
	const uint64 found = order_records(g);

	for (uint64 at = 0; at < found; at += READ_ROWS)
	{
		CHECK_FOR_INTERRUPTS();
		return_rows(g, g->order + ORDER_WORDS * at, (int) Min(READ_ROWS, found - at));
	}
	gstore_query_count(g->run.kind, GSTORE_QUERY_ROWS_RETURNED, found);
	g->s->done += (int) (g->count / g->each);
	g->count = 0;
}

/* All records, of as many whole queries at a time as have READ_ROWS rows. False: the next ones cannot be fetched. */
static bool
return_all(gpu_search *g)
{
	const Size words = (Size) g->run.words;

	do
		for (gstore_run *run = &g->run; run->at < run->count;)
		{
			const uint64 more = Min(g->room - g->count, run->count - run->at);

			memcpy(g->records + g->count * words, run->records + run->at * words,
				   sizeof(uint64) * words * more);
			g->count += more;
			run->at += more;
			if (g->count == g->room)
				return_queries(g);
		}
	while (g->run.session != NULL && gstore_run_try_fetch(&g->run));
	if (g->s->done + (int) (g->count / g->each) < g->limit)
	{
		strlcpy(g->s->why, g->run.why, sizeof g->s->why);
		return false;
	}
	return_queries(g);
	return true;
}

static bool
search_on_gpu(search *s, int first, int limit)
{
	const uint64 queries = (uint64) (limit - first);
	gpu_search	 g = {.s = s, .first = first, .limit = limit, .estate = CreateExecutorState()};
	bool		 done = find_rows(&g);

	if (done && g.run.figures.records > 0)
	{
		g.each = g.run.figures.records / queries;
		if (g.run.figures.records % queries != 0 || g.each > (uint64) s->k)
			elog(ERROR, "the executor of queries has returned no valid result");
		g.room = g.each * Max(READ_ROWS / g.each, 1);
		g.records = MemoryContextAllocHuge(CurrentMemoryContext,
										   sizeof(uint64) * g.room * (Size) g.run.words);
		g.order = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint64) * g.room * ORDER_WORDS);
		begin_rows(&g);
		done = return_all(&g);
		ExecDropSingleTupleTableSlot(g.slot);
	}
	gstore_run_end(&g.run);
	FreeExecutorState(g.estate);
	return done;
}

/* So many queries at a time as the setting has memory for. */
static int
queries_at_a_time(const search *s)
{
	const uint64 memory = (uint64) gstore_gpu_query_memory_mb * 1024 * 1024;
	const uint64 bytes = VARSIZE_ANY(DatumGetPointer(s->queries[0])) * UINT64CONST(4) +
		QUERY_BYTES + ((uint64) s->k * 3 + LIST_ROWS_LEAST) * 2 * sizeof(uint64);

	return (int) Min(Max(memory / bytes, 1), QUERIES_MOST);
}

static void
search_many(search *s)
{
	const int	  most = queries_at_a_time(s);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gstore search",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	while (s->done < s->query_count)
	{
		const int limit = Min(s->done + most, s->query_count);

		if (!search_on_gpu(s, s->done, limit))
			break;
		s->done = limit;
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* ---- by statements */

static void
set_text_option(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* Constants of the filter are written down and read again: neither may depend on the session's settings. */
static void
prepare_statement(search *s)
{
	const int	level = NewGUCNestLevel();
	List	   *context = deparse_context_for("t", RelationGetRelid(s->relation));
	const char *name = quote_qualified_identifier(
		get_namespace_name(RelationGetNamespace(s->relation)), RelationGetRelationName(s->relation));
	Oid			types[] = {s->query_type, INT4OID};
	const char *distance, *column, *filter;

	set_text_option("datestyle", "ISO");
	set_text_option("intervalstyle", "postgres");
	set_text_option("extra_float_digits", "3");
	distance = deparse_expression(s->distance, context, true, false);
	column = deparse_expression(linitial(((OpExpr *) s->distance)->args), context, true, false);
	filter = s->filter != NULL ? deparse_expression(s->filter, context, true, false) : "true";
	s->plan = SPI_prepare(
		psprintf("SELECT (t.*)::%s, %s FROM %s t WHERE %s IS NOT NULL AND (%s) ORDER BY 2 LIMIT $2",
				 name, distance, name, column, filter),
		2, types);
	if (s->plan == NULL)
		elog(ERROR, "a search cannot be prepared: %s", SPI_result_code_string(SPI_result));
	AtEOXact_GUC(true, level);
}

static void
search_by_statement(search *s, int query)
{
	Datum values[] = {s->queries[query], Int32GetDatum(s->k)};

	if (s->plan == NULL)
		prepare_statement(s);
	if (SPI_execute_plan(s->plan, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "a search has failed: %s", SPI_result_code_string(SPI_result));
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		const HeapTuple tuple = SPI_tuptable->vals[i];
		bool			null;
		const Datum		row = SPI_getbinval(tuple, SPI_tuptable->tupdesc, 1, &null);
		const Datum		distance = SPI_getbinval(tuple, SPI_tuptable->tupdesc, 2, &null);

		put_row(s, query, distance, null, row);
	}
	SPI_freetuptable(SPI_tuptable);
}

static void
search_one_by_one(search *s)
{
	SPI_connect();
	for (int i = s->done; i < s->query_count; i++)
		search_by_statement(s, i);
	SPI_finish();
}

/* ---- the function */

/* That the user may execute the functions that it calls, which PostgreSQL sees as it prepares to evaluate it here. */
static void
check_functions(const Node *expression)
{
	(void) ExecInitExpr(expression_planner((Expr *) copyObject(expression)), NULL);
}

static void
begin_search(FunctionCallInfo fcinfo, search *s)
{
	static const char *const names[] = {"ft", "vector_column", "queries", "k", "operator"};
	AttrNumber				 number;
	ArrayType				*queries;
	Form_pg_attribute		 column;

	for (int i = 1; i < (int) lengthof(names); i++)
		refuse_null(fcinfo, i, names[i]);
	InitMaterializedSRF(fcinfo, 0);
	s->result = (ReturnSetInfo *) fcinfo->resultinfo;
	s->relation = open_table(get_fn_expr_argtype(fcinfo->flinfo, 0));
	number = find_column(s->relation, NameStr(*PG_GETARG_NAME(1)));
	s->column = number;
	column = TupleDescAttr(RelationGetDescr(s->relation), number - 1);
	queries = PG_GETARG_ARRAYTYPE_P(2);
	if (OidIsValid(get_base_element_type(column->atttypid)))
		split_matrix(s, queries);
	else
		split_array(s, queries);
	s->k = PG_GETARG_INT32(3);
	if (s->k < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k of gstore_search() must not be negative")));
	make_distance(s, column, text_to_cstring(PG_GETARG_TEXT_PP(4)));
	if (!PG_ARGISNULL(5))
		make_filter(s, text_to_cstring(PG_GETARG_TEXT_PP(5)));
	check_functions(s->distance);
	check_functions(s->filter);
}

/*
 * The calling statement's snapshot; or, if it has waited for rows of the table, its partitions or children, the newer one that sees
 * them: for the GPU and for all statements.
 */
static void
push_snapshot(search *s)
{
	const List *tables = find_all_inheritors(RelationGetRelid(s->relation), AccessShareLock, NULL);
	Relation   *ours = palloc(sizeof(Relation) * (Size) list_length(tables));
	const ListCell *cell;
	Snapshot		snapshot;
	int				count = 0;

	s->has_children = list_length(tables) > 1;
	foreach(cell, tables)
		if (gstore_is_table(lfirst_oid(cell)))
			ours[count++] = table_open(lfirst_oid(cell), NoLock);
	snapshot = gstore_register_snapshots(ours, count, s->result->econtext->ecxt_estate);
	PushActiveSnapshot(snapshot);
	UnregisterSnapshot(snapshot);
	while (count > 0)
		table_close(ours[--count], NoLock);
}

/* False: s->why not. */
static bool
is_for_gpu(search *s)
{
	const char *why = "";

	if (!gstore_gpu_queries || !gstore_gpu_search || s->k > ROWS_MOST ||
		!gstore_is_table(RelationGetRelid(s->relation)))
		why = "it is no table in GPU memory, or gstore_fdw.gpu_queries or gpu_search is off";
	else if (s->has_children)
		why = "the table has children";
	else if (get_typlen(s->query_type) != -1)
		why = "it has no vectors of this type";
	strlcpy(s->why, why, sizeof s->why);
	return *why == '\0';
}

Datum
gstore_search(PG_FUNCTION_ARGS)
{
	search s = {0};

	begin_search(fcinfo, &s);
	if (s.k > 0 && s.query_count > 0)
	{
		push_snapshot(&s);
		if (is_for_gpu(&s))
			search_many(&s);
		elog(DEBUG1, "gstore_search: %d of %d vectors on the GPU%s%s", s.done, s.query_count,
			 s.done < s.query_count ? "; others not: " : "", s.done < s.query_count ? s.why : "");
		if (s.done < s.query_count)
			search_one_by_one(&s);
		PopActiveSnapshot();
	}
	table_close(s.relation, NoLock);
	return (Datum) 0;
}
