/* A call: arguments into the window, the result out of it. */
#include "postgres/plcuda/plcuda.h"

#include "access/relation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lockdefs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
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
		result = call_helper(function, f, fcinfo, &null);
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

typedef struct request
{
	plcuda_window window; /* to be copied */
	Size		  bytes;  /* of the file */
	const void	 *parts[2 * PLCUDA_TABLES_MAX + PLCUDA_ARGUMENTS_MAX];
	plcuda_span	  places[2 * PLCUDA_TABLES_MAX + PLCUDA_ARGUMENTS_MAX];
	int			  count;
} request;

static plcuda_span
add_part(request *r, const void *bytes, Size len)
{
	const plcuda_span span = {r->bytes, len};

	r->parts[r->count] = bytes;
	r->places[r->count++] = span;
	r->bytes += PLCUDA_ROUND_UP(len);
	return span;
}

static plcuda_span
add_columns(request *r, Oid table)
{
	Relation			  relation = relation_open(table, AccessShareLock);
	const TupleDesc		  desc = RelationGetDescr(relation);
	plcuda_wanted_column *columns = palloc0(sizeof *columns * (Size) Max(desc->natts, 1));
	const int			  count = desc->natts;

	for (int i = 0; i < count; i++)
	{
		const Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->attisdropped)
			continue;
		strlcpy(columns[i].name, NameStr(attribute->attname), sizeof columns[i].name);
		columns[i].type = getBaseType(attribute->atttypid);
	}
	relation_close(relation, NoLock);
	return add_part(r, columns, sizeof *columns * (Size) count);
}

static uint32
add_table(request *r, Oid table)
{
	const uint32		 number = r->window.table_count;
	plcuda_wanted_table *wanted = &r->window.tables[number];
	gstore_call_table	 opened;

	if (number == PLCUDA_TABLES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a plcuda function takes at most %d tables", PLCUDA_TABLES_MAX)));
	plcuda_gstore()->open_table(table, &opened);
	if (opened.token != NULL)
		strlcpy(wanted->token, opened.token, sizeof wanted->token);
	wanted->rows = opened.rows;
	if (opened.dead != NULL)
		wanted->dead = add_part(r, opened.dead, opened.dead_bytes);
	wanted->columns = add_columns(r, table);
	return r->window.table_count++;
}

static void
add_argument(request *r, const plcuda_type *type, Datum value, bool null)
{
	plcuda_argument *argument = &r->window.arguments[r->window.argument_count++];
	plcuda_bytes	 pointed;

	argument->kind = PLCUDA_ARGUMENT_PLAIN;
	if (null)
		plcuda_null_to_slot(type, argument->slot);
	else if (type->kind == PLCUDA_KIND_TABLE)
	{
		argument->kind = PLCUDA_ARGUMENT_TABLE;
		argument->table = add_table(r, DatumGetObjectId(value));
	}
	else
	{
		plcuda_datum_to_slot(type, value, argument->slot, &pointed);
		if (type->kind == PLCUDA_KIND_BYTES)
		{
			argument->kind = PLCUDA_ARGUMENT_BYTES;
			argument->bytes = add_part(r, pointed.at, pointed.count);
		}
	}
}

/* *kernel: of which the sizes are just being evaluated. */
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
			.block_threads = (uint32) Min(
				evaluate_size(&block->block_threads, "kernel_blocksz", 0, f, fcinfo), 65536),
			.shared_block_bytes = Min(
				evaluate_size(&block->shared_block, "shmem_blocksz", 0, f, fcinfo), PG_INT32_MAX),
			.shared_thread_bytes = Min(
				evaluate_size(&block->shared_thread, "shmem_unitsz", 0, f, fcinfo), PG_INT32_MAX)};
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
	evaluate_kernels(r, f, fcinfo, text);
	for (int i = 0; i < f->nargs; i++)
		add_argument(r, f->arguments[i], fcinfo->args[i].value, fcinfo->args[i].isnull);
	plcuda_null_to_slot(f->result, r->window.result);
	r->window.returns_bytes = f->result->kind == PLCUDA_KIND_BYTES;
	return r;
}

/* The window is not checked yet. */
static Datum
take_result(const plcuda_function *f, const plcuda_window *window, bool *null)
{
	plcuda_bytes pointed = {NULL, 0};
	plcuda_span	 span;
	uint8		 slot[PLCUDA_SLOT_BYTES];
	Datum		 result;

	memcpy(slot, window->result, sizeof slot);
	memcpy(&span, &window->bytes, sizeof span);
	if (f->result->kind == PLCUDA_KIND_BYTES && !plcuda_slot_is_null(f->result, slot))
		pointed = (plcuda_bytes){plcuda_call_bytes(span), span.bytes};
	result = plcuda_slot_to_datum(f->result, slot, pointed, null);
	plcuda_end_call(span);
	return result;
}

/* ---- the whole */

/* False: the function asks for its CPU fallback. */
static bool
run_on_gpu(const plcuda_function *f, FunctionCallInfo fcinfo, Datum *result)
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
		memcpy((char *) window + r->places[i].at, r->parts[i], r->places[i].bytes);
	window = plcuda_run_call(PLCUDA_CALL, text);
	if (window == NULL)
		return false;
	*result = take_result(f, window, &fcinfo->isnull);
	return true;
}

Datum
plcuda_call_function(const plcuda_function *f, FunctionCallInfo fcinfo)
{
	Datum result;

	fcinfo->isnull = false;
	check_sanity(f, fcinfo);
	if (run_on_gpu(f, fcinfo, &result))
		return result;
	if (!OidIsValid(f->cpu_fallback))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("function \"%s\" cannot do this on the GPU, and has no CPU fallback", f->name)));
	return call_helper(f->cpu_fallback, f, fcinfo, &fcinfo->isnull);
}
