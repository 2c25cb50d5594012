/* The extension's entry points: settings, the language's handler and validator. */
#include "postgres/plcuda/plcuda.h"

#include <limits.h>

#include "catalog/pg_proc.h"
#include "commands/event_trigger.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(plcuda_call_handler);
PG_FUNCTION_INFO_V1(plcuda_validator);
PG_FUNCTION_INFO_V1(plcuda_function_source);

int	  plcuda_time_limit_ms = 60000;
int	  plcuda_idle_timeout_s = 300;
int	  plcuda_buffer_mb = 1024;
int	  plcuda_cache_mb = 256;
int	  plcuda_compile_time_s = 60;
int	  plcuda_compile_memory_mb = 4096;
char *plcuda_compiler = NULL;
char *plcuda_nvrtc = NULL;

void _PG_init(void);

/* What is known of a function, until something changes that it may have been read from: itself, those it names, its types. */
typedef struct known_function
{
	plcuda_function *function;
	MemoryContext	 context;
	uint64			 changes;
	int				 calls; /* that use it now */
} known_function;

static uint64 catalog_changes;

static void
note_catalog_change(Datum arg, int cache, uint32 hash)
{
	catalog_changes++;
}

static void
note_relation_change(Datum arg, Oid relation)
{
	catalog_changes++; /* perhaps a composite type */
}

static bool
check_path(char **value, void **extra, GucSource source)
{
	if (strlen(*value) < PLCUDA_PATH_BYTES)
		return true;
	GUC_check_errdetail("A path has at most %d bytes.", PLCUDA_PATH_BYTES - 1);
	return false;
}

void
_PG_init(void)
{
	CacheRegisterSyscacheCallback(PROCOID, note_catalog_change, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, note_catalog_change, (Datum) 0);
	CacheRegisterRelcacheCallback(note_relation_change, (Datum) 0);
	DefineCustomIntVariable("plcuda.time_limit", "How long a call of a function may take on the GPU.",
							"Its worker process is killed then. 0: without limit.",
							&plcuda_time_limit_ms, 60000, 0, INT_MAX, PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable(
		"plcuda.idle_timeout", "How long a session's worker process stays without a call.", NULL,
		&plcuda_idle_timeout_s, 300, 1, INT_MAX / 1000, PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"plcuda.buffer_memory", "Most memory of the GPU that the buffers of one call may have.",
		NULL, &plcuda_buffer_mb, 1024, 1, INT_MAX, PGC_SUSET, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("plcuda.cache_size", "Most disk space for compiled functions.", NULL,
							&plcuda_cache_mb, 256, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL,
							NULL);
	DefineCustomIntVariable("plcuda.compile_time", "How long a function may be compiled.", NULL,
							&plcuda_compile_time_s, 60, 1, 3600, PGC_SUSET, GUC_UNIT_S, NULL, NULL,
							NULL);
	DefineCustomIntVariable("plcuda.compile_memory", "Most memory that a compiler may have.", NULL,
							&plcuda_compile_memory_mb, 4096, 64, INT_MAX, PGC_SUSET, GUC_UNIT_MB,
							NULL, NULL, NULL);
	DefineCustomStringVariable("plcuda.compiler", "C compiler for functions on the software GPU.",
							   NULL, &plcuda_compiler, "cc", PGC_SIGHUP, 0, check_path, NULL, NULL);
	DefineCustomStringVariable(
		"plcuda.nvrtc", "Library with NVIDIA's compiler, for functions on GPUs.",
		"Empty: it is searched for.", &plcuda_nvrtc, "", PGC_SIGHUP, 0, check_path, NULL, NULL);
	/* gstore_fdw, which is preloaded perhaps after this, defines some of them: their values are not to be dropped before. */
	if (!process_shared_preload_libraries_in_progress)
		MarkGUCPrefixReserved("plcuda");
}

const gstore_call_api *
plcuda_gstore(void)
{
	const gstore_call_api *api = *find_rendezvous_variable(GSTORE_CALL_VARIABLE);

	if (api == NULL || api->version != GSTORE_CALL_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("plcuda needs gstore_fdw of the same version in the server"),
				 errhint("Set shared_preload_libraries = 'gstore_fdw' and restart the server.")));
	return api;
}

static known_function *
know_function(FmgrInfo *info)
{
	known_function *known = info->fn_extra;
	MemoryContext	before;

	if (known == NULL)
		known = info->fn_extra = MemoryContextAllocZero(info->fn_mcxt, sizeof *known);
	if (known->function != NULL && (known->changes == catalog_changes || known->calls > 0))
		return known;
	if (known->context != NULL)
		MemoryContextDelete(known->context);
	known->context = NULL;
	known->function = NULL;
	known->changes = catalog_changes;
	known->context = AllocSetContextCreate(info->fn_mcxt, "plcuda function", ALLOCSET_SMALL_SIZES);
	before = MemoryContextSwitchTo(known->context);
	known->function = plcuda_read_function(info->fn_oid);
	MemoryContextSwitchTo(before);
	return known;
}

Datum
plcuda_call_handler(PG_FUNCTION_ARGS)
{
	known_function *known;
	Datum			result = (Datum) 0;

	if (CALLED_AS_TRIGGER(fcinfo) || CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a plcuda function cannot be a trigger")));
	known = know_function(fcinfo->flinfo);
	known->calls++;
	PG_TRY();
	{
		result = plcuda_call_function(known->function, fcinfo);
	}
	PG_FINALLY();
	{
		known->calls--;
	}
	PG_END_TRY();
	return result;
}

Datum
plcuda_validator(PG_FUNCTION_ARGS)
{
	const Oid	oid = PG_GETARG_OID(0);
	const char *text;

	if (!CheckFunctionValidatorAccess(fcinfo->flinfo->fn_oid, oid) || !check_function_bodies)
		PG_RETURN_VOID();
	text = plcuda_call_text(plcuda_read_function(oid), NULL);
	if (text != NULL)
		plcuda_compile_text(text, 0);
	PG_RETURN_VOID();
}

Datum
plcuda_function_source(PG_FUNCTION_ARGS)
{
	const plcuda_function *f = plcuda_read_function(PG_GETARG_OID(0));
	const char			  *text = plcuda_call_text(f, NULL);

	PG_RETURN_TEXT_P(cstring_to_text(text == NULL ? f->text : text));
}
