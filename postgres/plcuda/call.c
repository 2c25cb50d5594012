/* A call: arguments into the window, the result out of it. */
#include "postgres/plcuda/plcuda.h"

#include "access/relation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "executor/tstoreReceiver.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lockdefs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "postgres/compat.h"

/* ---- functions that directives name: of the same arguments, with the caller's rights */

void
plcuda_check_execute(Oid function)
{
#if PG_VERSION_NUM >= 160000
	const AclResult rights = object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);
#else
	const AclResult rights = pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);
#endif

	if (rights != ACLCHECK_OK)
		aclcheck_error(rights, OBJECT_FUNCTION, get_func_name(function));
}

static Datum
call_helper(Oid function, const plcuda_function *f, FunctionCallInfo fcinfo, bool *null)
{
	const int		 nargs = get_func_nargs(function); /* none, or those of f */
	FunctionCallInfo call = palloc0(SizeForFunctionCallInfo(f->nargs));
	FmgrInfo		 info;
	Datum			 result;

	check_stack_depth(); /* a plcuda function may name others in its turn */
	plcuda_check_execute(function);
	fmgr_info(function, &info);
	InitFunctionCallInfoData(*call, &info, (short) nargs,
							 fcinfo == NULL ? InvalidOid : fcinfo->fncollation, NULL, NULL);
	*null = true;
	for (int i = 0; i < nargs; i++)
	{
		call->args[i] = fcinfo->args[i];
		if (info.fn_strict && call->args[i].isnull)
			return (Datum) 0;
	}
	result = FunctionCallInvoke(call);
	*null = call->isnull;
	return result;
}

static uint64
evaluate_size(const plcuda_size *size, const char *what, int64 least, const plcuda_function *f,
			  FunctionCallInfo fcinfo)
{
	int64 value = size->value;

	if (OidIsValid(size->function))
	{
		bool  null;
		Datum result = call_helper(size->function, f, fcinfo, &null);

		if (null)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s is NULL, as function %s returns it", what,
							get_func_name(size->function))));
		value = get_func_rettype(size->function) == INT4OID ? DatumGetInt32(result)
															: DatumGetInt64(result);
	}
	if (value < least)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least %lld, not %lld", what, (long long) least,
						(long long) value)));
	return (uint64) value;
}

/* Evaluated once, as the function may be a volatile one. */
static uint64
evaluate_size_to(uint64 most, const plcuda_size *size, const char *what, const plcuda_function *f,
				 FunctionCallInfo fcinfo)
{
	const uint64 value = evaluate_size(size, what, 0, f, fcinfo);

	return Min(value, most);
}

/* What it returns is compiled: neither the caller's search_path nor temporary tables must choose what it reads. */
static Datum
call_include(Oid function, const plcuda_function *f, FunctionCallInfo fcinfo, bool *null)
{
	const int	level = NewGUCNestLevel();
	const char *schema = get_namespace_name(get_func_namespace(function));
	const char *path = psprintf("%s, pg_temp",
								schema == NULL ? "pg_catalog" : quote_identifier(schema));
	Datum		text;

	(void) set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
							 0, false);
	text = call_helper(function, f, fcinfo, null);
	AtEOXact_GUC(true, level);
	return text;
}

const char *
plcuda_call_text(const plcuda_function *f, FunctionCallInfo fcinfo)
{
	List	 *texts = NIL;
	ListCell *cell;

	foreach(cell, f->includes)
	{
		const Oid function = lfirst_oid(cell);
		bool	  null;
		Datum	  result;

		if (fcinfo == NULL && get_func_nargs(function) > 0)
			return NULL;
		result = call_include(function, f, fcinfo, &null);
		if (null)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("the text to be included is NULL, as function %s returns it",
							get_func_name(function))));
		texts = lappend(texts, TextDatumGetCString(result));
	}
	return texts == NIL ? f->text : plcuda_include_texts(f, texts);
}

static void
check_sanity(const plcuda_function *f, FunctionCallInfo fcinfo)
{
	bool null;

	if (OidIsValid(f->sanity_check) &&
		(!DatumGetBool(call_helper(f->sanity_check, f, fcinfo, &null)) || null))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function %s, the sanity check of \"%s\", does not allow these arguments",
						get_func_name(f->sanity_check), f->name)));
}

/* ---- the request: first its sizes, then its bytes */

#define PARTS_MAX (2 * PLCUDA_TABLES_MAX + PLCUDA_ARGUMENTS_MAX + 2)

typedef struct request
{
	plcuda_window window; /* to be copied */
	Size		  bytes;  /* of the file */
	Oid			  tables[PLCUDA_TABLES_MAX];
	const void	 *parts[PARTS_MAX];
	plcuda_span	  spans[PARTS_MAX];
	int			  count;
} request;

static plcuda_span
add_part(request *r, const void *bytes, Size len)
{
	const plcuda_span span = {r->bytes, len};

	r->parts[r->count] = bytes;
	r->spans[r->count++] = span;
	r->bytes += PLCUDA_ROUND_UP(len);
	return span;
}

static plcuda_span
add_columns(request *r, Oid table, List *names)
{
	Relation			  relation = relation_open(table, AccessShareLock);
	const TupleDesc		  desc = RelationGetDescr(relation);
	plcuda_wanted_column *columns = palloc0(sizeof *columns * (Size) Max(desc->natts, 1));
	const int			  count = desc->natts;
	ListCell			 *cell;

	for (int i = 0; i < count; i++)
	{
		const Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->attisdropped)
			continue;
		strlcpy(columns[i].name, NameStr(attribute->attname), sizeof columns[i].name);
		columns[i].type = names == NIL ? getBaseType(attribute->atttypid) : PLCUDA_UNREAD;
	}
	foreach(cell, names)
	{
		const AttrNumber number = get_attnum(table, lfirst(cell));

		if (number < 1 || number > count)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("table \"%s\" has no column \"%s\", which #plcuda_columns names",
							RelationGetRelationName(relation), (const char *) lfirst(cell))));
		columns[number - 1].type = getBaseType(TupleDescAttr(desc, number - 1)->atttypid);
	}
	for (int i = 0; i < count; i++)
		columns[i].code = columns[i].type == PLCUDA_UNREAD ? PLCUDA_UNREAD
														   : plcuda_type_code(columns[i].type);
	relation_close(relation, NoLock);
	return add_part(r, columns, sizeof *columns * (Size) count);
}

/* Once in a call: where rows of two stores are copied, another opening copies them again and ends the token of the first one. */
static void
open_table(request *r, Oid table, plcuda_wanted_table *wanted)
{
	gstore_call_table opened;

	for (uint32 i = 0; i < r->window.table_count; i++)
		if (r->tables[i] == table)
		{
			*wanted = r->window.tables[i];
			return;
		}
	plcuda_gstore()->open_table(table, &opened);
	if (opened.token != NULL)
		strlcpy(wanted->token, opened.token, sizeof wanted->token);
	wanted->rows = opened.rows;
	wanted->deleted_at = opened.deleted_at;
	wanted->deleted_bytes = opened.deleted_bytes;
	if (opened.dead != NULL)
		wanted->dead = add_part(r, opened.dead, opened.dead_bytes);
}

static uint32
add_table(request *r, Oid table, List *names)
{
	const uint32 number = r->window.table_count;

	if (number == PLCUDA_TABLES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a plcuda function takes at most %d tables", PLCUDA_TABLES_MAX)));
	open_table(r, table, &r->window.tables[number]);
	r->window.tables[number].columns = add_columns(r, table, names);
	r->tables[number] = table;
	return r->window.table_count++;
}

static void
add_argument(request *r, const plcuda_type *type, List *names, Datum value, bool null)
{
	plcuda_argument *argument = &r->window.arguments[r->window.argument_count++];
	plcuda_bytes	 pointed;

	argument->kind = PLCUDA_ARGUMENT_PLAIN;
	if (null)
		plcuda_null_to_slot(type, argument->slot);
	else if (type->kind == PLCUDA_KIND_TABLE)
	{
		argument->kind = PLCUDA_ARGUMENT_TABLE;
		argument->table = add_table(r, DatumGetObjectId(value), names);
	}
	else
	{
		plcuda_datum_to_slot(type, value, argument->slot, &pointed);
		if (type->pointer_count > 0)
		{
			argument->kind = PLCUDA_ARGUMENT_BYTES;
			argument->bytes = add_part(r, pointed.at, pointed.count);
			argument->pointer_count = type->pointer_count;
			memcpy(argument->pointers, type->pointers, sizeof argument->pointers);
		}
	}
}

/* *kernel becomes the one whose sizes are being evaluated: their functions may ask about it (inspect.c). */
static void
add_kernels(request *r, const plcuda_function *f, FunctionCallInfo fcinfo, int *kernel)
{
	const uint64 most = (uint64) plcuda_buffer_mb * 1024 * 1024;

	for (int i = 0; i < PLCUDA_KERNELS; i++)
	{
		const plcuda_block *block = &f->blocks[i];

		if (!block->present)
			continue;
		*kernel = i;
		r->window.kernels[i] = (plcuda_kernel){
			.present = 1,
			.threads = evaluate_size(&block->threads, "num_threads", 1, f, fcinfo),
			.block_threads = (uint32) evaluate_size_to(65536, &block->block_threads,
													   "kernel_blocksz", f, fcinfo),
			.shared_block_bytes = evaluate_size_to(PG_INT32_MAX, &block->shared_block,
												   "shmem_blocksz", f, fcinfo),
			.shared_thread_bytes = evaluate_size_to(PG_INT32_MAX, &block->shared_thread,
													"shmem_unitsz", f, fcinfo)};
	}
	*kernel = PLCUDA_MAIN;
	r->window.results_bytes = evaluate_size(&f->results, "results_bufsz", 0, f, fcinfo);
	r->window.workbuf_bytes = evaluate_size(&f->workbuf, "working_bufsz", 0, f, fcinfo);
	if (r->window.results_bytes > most || r->window.workbuf_bytes > most - r->window.results_bytes)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("results of %llu and a work buffer of %llu bytes are more than plcuda.buffer_memory, %d MB",
						(unsigned long long) r->window.results_bytes,
						(unsigned long long) r->window.workbuf_bytes, plcuda_buffer_mb),
				 errhint("Raise plcuda.buffer_memory, or use smaller buffers.")));
	if (f->row.set || r->window.appends_bytes)
		r->window.append_bytes = Max(most - r->window.results_bytes - r->window.workbuf_bytes,
									 PLCUDA_APPEND_BYTES_MIN);
}

static void
add_result(request *r, const plcuda_row *row)
{
	const Size		pointer_bytes = sizeof(plcuda_pointer) * (Size) row->pointer_count;
	char		   *nulls = palloc(row->bytes);
	plcuda_pointer *pointers = palloc(Max(pointer_bytes, 1));

	plcuda_null_row(row, nulls);
	plcuda_list_pointers(row, pointers);
	r->window.row_bytes = row->bytes;
	r->window.returns_set = row->set;
	r->window.row = add_part(r, nulls, row->bytes);
	r->window.pointers = add_part(r, pointers, pointer_bytes);
}

static void
evaluate_kernels(request *r, const plcuda_function *f, FunctionCallInfo fcinfo, const char *text)
{
	const plcuda_evaluated *before = plcuda_evaluated_now;
	plcuda_evaluated		now = {f, text, PLCUDA_MAIN};

	PG_TRY();
	{
		plcuda_evaluated_now = &now;
		add_kernels(r, f, fcinfo, &now.kernel);
	}
	PG_FINALLY();
	{
		plcuda_evaluated_now = before;
	}
	PG_END_TRY();
}

static request *
make_request(const plcuda_function *f, FunctionCallInfo fcinfo, const char *text)
{
	request *r = palloc0(sizeof *r);

	r->bytes = PLCUDA_TEXT_AT + PLCUDA_ROUND_UP(strlen(text) + 1);
	/* An included text may append bytes as well. */
	r->window.appends_bytes = f->appends_bytes ||
		(f->includes != NIL && strstr(text, "plcuda_append_bytes") != NULL);
	evaluate_kernels(r, f, fcinfo, text);
	for (int i = 0; i < f->nargs; i++)
		add_argument(r, f->arguments[i], f->columns[i], fcinfo->args[i].value, fcinfo->args[i].isnull);
	add_result(r, &f->row);
	return r;
}

/* ---- the result, which is not checked yet */

/* Rows that have been announced, one after the other. */
typedef struct row_reader
{
	const plcuda_row *row;
	plcuda_window	 *window;
	uint64			  left;
	char			 *copy; /* of a row: the worker can still write to the window */
	Datum			 *values;
	bool			 *nulls;
} row_reader;

static row_reader
begin_rows(const plcuda_row *row, plcuda_window *window)
{
	const Size columns = (Size) Max(row->count, 1);
	row_reader r = {row,
					window,
					1,
					palloc(row->bytes),
					palloc(sizeof(Datum) * columns),
					palloc(sizeof(bool) * columns)};

	if (row->set)
		memcpy(&r.left, &window->row_count, sizeof r.left);
	return r;
}

/* How many rows the window has; *rows and *bytes are checked. */
static uint64
open_piece(row_reader *r, plcuda_bytes *rows, plcuda_bytes *bytes)
{
	uint64 count;

	*rows = plcuda_call_bytes(&r->window->rows);
	*bytes = plcuda_call_bytes(&r->window->bytes);
	count = rows->count / r->row->bytes;
	if (rows->count % r->row->bytes != 0 || count > r->left || (count == 0 && r->left > 0))
		plcuda_fail_result();
	r->left -= count;
	return count;
}

static void
read_row(row_reader *r, plcuda_bytes rows, uint64 number, plcuda_bytes bytes)
{
	memcpy(r->copy, (const char *) rows.at + number * r->row->bytes, r->row->bytes);
	plcuda_row_to_datums(r->row, r->copy, bytes, r->values, r->nulls);
}

static Datum
take_result(const plcuda_row *row, plcuda_window *window, bool *null)
{
	row_reader	 r = begin_rows(row, window);
	plcuda_bytes rows, bytes;

	if (open_piece(&r, &rows, &bytes) != 1)
		plcuda_fail_result();
	read_row(&r, rows, 0, bytes);
	*null = false;
	if (row->composite)
		return HeapTupleGetDatum(heap_form_tuple(row->desc, r.values, r.nulls));
	if (row->count == 0)
		return (Datum) 0; /* void */
	*null = r.nulls[0];
	return r.values[0];
}

/* Each row is made in a context of its own: values of many rows are more than memory may hold. */
static void
take_set(const plcuda_row *row, plcuda_window *window, Tuplestorestate *store)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "plcuda rows",
												  ALLOCSET_DEFAULT_SIZES);
	row_reader	  r = begin_rows(row, window);
	plcuda_bytes  rows, bytes;

	for (;;)
	{
		const uint64 count = open_piece(&r, &rows, &bytes);

		for (uint64 i = 0; i < count; i++)
		{
			MemoryContext before = MemoryContextSwitchTo(context);

			CHECK_FOR_INTERRUPTS();
			read_row(&r, rows, i, bytes);
			MemoryContextSwitchTo(before);
			tuplestore_putvalues(store, row->desc, r.values, r.nulls);
			MemoryContextReset(context);
		}
		if (r.left == 0)
			break;
		r.window = plcuda_fetch_rows();
	}
	MemoryContextDelete(context);
}

/* Where the executor finds the rows. */
static Tuplestorestate *
begin_set(const plcuda_row *row, FunctionCallInfo fcinfo)
{
	ReturnSetInfo *info = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext  before;

	if (info == NULL || !IsA(info, ReturnSetInfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	if ((info->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("materialize mode required, but it is not allowed in this context")));
	before = MemoryContextSwitchTo(info->econtext->ecxt_per_query_memory);
	info->returnMode = SFRM_Materialize;
	info->setResult = tuplestore_begin_heap((info->allowedModes & SFRM_Materialize_Random) != 0,
											false, work_mem);
	info->setDesc = CreateTupleDescCopy(row->desc);
	MemoryContextSwitchTo(before);
	return info->setResult;
}

/* ---- the whole */

/* store: of a set; NULL: it is none. */
static Datum
take_rows(const plcuda_row *row, plcuda_window *window, Tuplestorestate *store, bool *null)
{
	Datum result = (Datum) 0;

	PG_TRY();
	{
		if (store != NULL)
			take_set(row, window, store);
		else
			result = take_result(row, window, null);
	}
	PG_CATCH();
	{
		plcuda_end_call(false);
		PG_RE_THROW();
	}
	PG_END_TRY();
	plcuda_end_call(true);
	return result;
}

/* False: the function asks for its CPU fallback. */
static bool
run_on_gpu(const plcuda_function *f, FunctionCallInfo fcinfo, Tuplestorestate *store, Datum *result)
{
	const char	  *text = plcuda_call_text(f, fcinfo);
	request		  *r;
	plcuda_window *window;

	plcuda_gstore()->wait_ready();
	r = make_request(f, fcinfo, text);
	r->window.used = r->bytes;
	window = plcuda_begin_call(r->bytes);
	memcpy(window, &r->window, sizeof *window);
	for (int i = 0; i < r->count; i++)
		memcpy((char *) window + r->spans[i].at, r->parts[i], r->spans[i].bytes);
	window = plcuda_run_call(PLCUDA_CALL, text);
	if (window == NULL)
		return false;
	*result = take_rows(&f->row, window, store, &fcinfo->isnull);
	return true;
}

/* A set of the CPU fallback, with the snapshot of the query where the function is not volatile. */
static void
fall_back_to_set(const plcuda_function *f, FunctionCallInfo fcinfo, Tuplestorestate *store)
{
	ReturnSetInfo	 *info = (ReturnSetInfo *) fcinfo->resultinfo;
	DestReceiver	 *receiver = CreateDestReceiver(DestTuplestore);
	SPIExecuteOptions options = {.params = makeParamList(f->nargs),
								 .read_only = func_volatile(f->oid) != PROVOLATILE_VOLATILE,
								 .must_return_tuples = true,
								 .dest = receiver};
	const char		 *name = get_func_name(f->cpu_fallback);
	const char		 *schema = get_namespace_name(get_func_namespace(f->cpu_fallback));
	bool			  variadic;
	StringInfoData	  text;

	if (name == NULL || schema == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("the CPU fallback of function \"%s\" has been dropped meanwhile", f->name)));
	variadic = OidIsValid(get_func_variadictype(f->cpu_fallback));
	initStringInfo(&text);
	appendStringInfo(&text, "SELECT * FROM %s(", quote_qualified_identifier(schema, name));
	for (int i = 0; i < f->nargs; i++)
	{
		options.params->params[i] = (ParamExternData){fcinfo->args[i].value, fcinfo->args[i].isnull,
													  PARAM_FLAG_CONST, f->argument_types[i]};
		appendStringInfo(&text, "%s%s$%d", i > 0 ? ", " : "",
						 variadic && i == f->nargs - 1 ? "VARIADIC " : "", i + 1);
	}
	appendStringInfoChar(&text, ')');
	SetTuplestoreDestReceiverParams(receiver, store, info->econtext->ecxt_per_query_memory, false,
									f->row.desc, "the CPU fallback returns other columns");
	SPI_connect();
	if (SPI_execute_extended(text.data, &options) < 0)
		elog(ERROR, "the CPU fallback of function %u cannot be executed", f->oid);
	SPI_finish();
}

Datum
plcuda_call_function(const plcuda_function *f, FunctionCallInfo fcinfo)
{
	Tuplestorestate *store = f->row.set ? begin_set(&f->row, fcinfo) : NULL;
	Datum			 result = (Datum) 0;

	fcinfo->isnull = false;
	check_sanity(f, fcinfo);
	if (run_on_gpu(f, fcinfo, store, &result))
		return result;
	if (!OidIsValid(f->cpu_fallback))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("function \"%s\" cannot do this on the GPU, and has no CPU fallback", f->name),
				 errhint("Name a function that does it by #plcuda_cpu_fallback.")));
	if (store == NULL)
		return call_helper(f->cpu_fallback, f, fcinfo, &fcinfo->isnull);
	fall_back_to_set(f, fcinfo, store);
	return result;
}
