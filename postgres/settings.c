/* See settings.h. */
#include "postgres.h"

#include <float.h>
#include <limits.h>

#include "utils/guc.h"

#include "postgres/command.h"
#include "postgres/settings.h"

int	   gstore_windows = 16;
int	   gstore_window_kb = 4096;
int	   gstore_max_relations = 512;
int	   gstore_device_memory_mb = 0;
int	   gstore_host_memory_mb = 0;
int	   gstore_service_threads = 4;
int	   gstore_start_timeout_s = 30;
char  *gstore_keeper_path = NULL;
int	   gstore_readers = GSTORE_READERS_OWNER;
int	   gstore_token_lifetime_s = 3600;
int	   gstore_gpu_workers = 8;
int	   gstore_load_memory_mb = -1;
int	   gstore_copy_memory_mb = -1;
int	   gstore_version_memory_mb = 256;
int	   gstore_lost_tables = GSTORE_LOST_EMPTY;
bool   gstore_wait_for_source = false;
bool   gstore_gpu_queries = true;
bool   gstore_gpu_aggregates = true;
bool   gstore_gpu_joins = true;
bool   gstore_gpu_filters = true;
bool   gstore_gpu_order = true;
bool   gstore_gpu_search = true;
double gstore_gpu_startup_cost = -1;
double gstore_gpu_instruction_cost = -1;
double gstore_gpu_group_cost = -1;
double gstore_gpu_probe_cost = -1;
double gstore_gpu_page_cost = -1;
int	   gstore_gpu_query_memory_mb = 1024;
int	   gstore_gpu_join_memory_mb = -1;

static const struct config_enum_entry reader_groups[] = {{"owner", GSTORE_READERS_OWNER, false},
														 {"group", GSTORE_READERS_GROUP, false},
														 {"all", GSTORE_READERS_ALL, false},
														 {NULL, 0, false}};

static const struct config_enum_entry lost_choices[] = {
	{"empty", GSTORE_LOST_EMPTY, false}, {"error", GSTORE_LOST_ERROR, false}, {NULL, 0, false}};

static void
define_cost(const char *name, const char *what, const char *unset, double *cost)
{
	DefineCustomRealVariable(name, what, unset, cost, -1, -1, DBL_MAX, PGC_USERSET, 0, NULL, NULL,
							 NULL);
}

static void
define_costs(void)
{
	define_cost("gstore_fdw.gpu_startup_cost",
				"The planner's estimate of what it costs to run a query on the GPU.",
				"-1: chosen by the device.", &gstore_gpu_startup_cost);
	define_cost("gstore_fdw.gpu_instruction_cost",
				"The planner's estimate of what a row costs on the GPU, for each operator.",
				"-1: chosen by the device.", &gstore_gpu_instruction_cost);
	define_cost("gstore_fdw.gpu_group_cost",
				"The planner's estimate of what it costs on the GPU to find a row's group.",
				"-1: gstore_fdw.gpu_instruction_cost, or chosen by the device.",
				&gstore_gpu_group_cost);
	define_cost(
		"gstore_fdw.gpu_probe_cost",
		"The planner's estimate of what it costs on the GPU to look into a hash table of a join.",
		"-1: gstore_fdw.gpu_instruction_cost, or chosen by the device.", &gstore_gpu_probe_cost);
	define_cost("gstore_fdw.gpu_page_cost",
				"The planner's estimate of what it costs the GPU to read 8 kB of columns.",
				"-1: 0 if gstore_fdw.gpu_instruction_cost is set, or chosen by the device.",
				&gstore_gpu_page_cost);
}

/* Of queries that run on the GPU. */
static void
define_query_settings(void)
{
	DefineCustomBoolVariable("gstore_fdw.gpu_queries",
							 "Whether queries may run on the GPU, where their rows are.", NULL,
							 &gstore_gpu_queries, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("gstore_fdw.gpu_aggregates",
							 "Whether aggregates and GROUP BY may run on the GPU.",
							 "Without effect if gstore_fdw.gpu_queries is off.",
							 &gstore_gpu_aggregates, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("gstore_fdw.gpu_joins", "Whether joins may run on the GPU.",
							 "Joins whose rows are the result need gstore_fdw.gpu_queries alone; "
							 "those below aggregates gstore_fdw.gpu_aggregates, too.",
							 &gstore_gpu_joins, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("gstore_fdw.gpu_filters",
							 "Whether conditions of scans may be evaluated on the GPU.",
							 "Without effect if gstore_fdw.gpu_queries is off.",
							 &gstore_gpu_filters, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("gstore_fdw.gpu_order", "Whether ORDER BY with LIMIT may run on the GPU.",
							 "Without effect if gstore_fdw.gpu_queries is off.", &gstore_gpu_order,
							 true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable(
		"gstore_fdw.gpu_search",
		"Whether ORDER BY a distance with LIMIT, and gstore_search(), may run on the GPU.",
		"Without effect if gstore_fdw.gpu_queries is off.", &gstore_gpu_search, true, PGC_USERSET,
		0, NULL, NULL, NULL);
	define_costs();
	DefineCustomIntVariable("gstore_fdw.gpu_query_memory",
							"Device memory that a query on the GPU may have for its results.",
							"What needs more runs without the GPU.", &gstore_gpu_query_memory_mb,
							1024, 1, INT_MAX, PGC_USERSET, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gstore_fdw.gpu_join_memory",
		"Device and host memory together that hash tables of a role may take in one GPU's executor.",
		"-1: half of the sum of the smallest GPU's budget and the host budget. "
		"What needs more runs without the GPU.",
		&gstore_gpu_join_memory_mb, -1, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MB, NULL, NULL, NULL);
}

void
gstore_settings_init(void)
{
	DefineCustomStringVariable("gstore_fdw.keeper", "Socket of a gvmem-keeper to use.",
							   "Empty: the server runs one of its own.", &gstore_keeper_path, "",
							   PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gstore_fdw.device_memory", "Memory of each GPU that tables may use.",
		"0: nine tenths of what is free at start, or less, so that there is room for queries and for "
		"functions in the language plcuda. Without effect if gstore_fdw.keeper is set.",
		&gstore_device_memory_mb, 0, 0, INT_MAX, PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gstore_fdw.host_memory", "Host memory for what does not fit on the GPUs.",
		"0: half of what is available at start. Without effect if gstore_fdw.keeper is set.",
		&gstore_host_memory_mb, 0, 0, INT_MAX, PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gstore_fdw.max_relations", "Tables in GPU memory that have rows, or have lost them.", NULL,
		&gstore_max_relations, 512, 1, 1 << 20, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gstore_fdw.windows",
							"Pieces of shared memory through which rows come and go.",
							"So many backends read or write at the same moment.", &gstore_windows,
							16, 1, GSTORE_WINDOWS_MAX, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gstore_fdw.window_size",
							"Size of one piece of shared memory through which rows come and go.",
							NULL, &gstore_window_kb, 4096, 64, 1 << 20, PGC_POSTMASTER, GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomIntVariable("gstore_fdw.service_threads",
							"Threads that move rows to and from the GPUs.", NULL,
							&gstore_service_threads, 4, 1, 16, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gstore_fdw.start_timeout", "How long a statement waits for the GPU memory keeper.", NULL,
		&gstore_start_timeout_s, 30, 0, 3600, PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomEnumVariable(
		"gstore_fdw.readers",
		"Whose programs may attach tables, and write rows to be loaded, by token.",
		"\"group\" and \"all\" also move the keeper's socket from the data directory to "
		"unix_socket_directories.",
		&gstore_readers, GSTORE_READERS_OWNER, reader_groups, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("gstore_fdw.lost_tables",
							 "What a table is whose rows were lost with the keeper or the server.",
							 "\"error\": it can be neither read nor written before TRUNCATE.",
							 &gstore_lost_tables, GSTORE_LOST_EMPTY, lost_choices, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable(
		"gstore_fdw.wait_for_source",
		"Statements on a table that is to be loaded from its source wait for its rows.", NULL,
		&gstore_wait_for_source, false, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gstore_fdw.token_lifetime",
		"How long a token of gstore_export() or gstore_load_begin() lets programs in.",
		"What they have attached stays. A token that is asked for again is good for that time again.",
		&gstore_token_lifetime_s, 3600, 1, INT_MAX, PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	/* The GPU memory keeper starts them, which does not load plcuda. */
	DefineCustomIntVariable("plcuda.max_workers",
							"Sessions that may have a process for functions in the language plcuda.",
							"0: none, and there is no such language.", &gstore_gpu_workers, 8, 0,
							1024, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gstore_fdw.load_memory",
							"Memory that a role may have by tokens of gstore_load_begin().",
							"-1: no limit but that of all tables.", &gstore_load_memory_mb, -1, -1,
							INT_MAX, PGC_SUSET, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("gstore_fdw.copy_memory",
							"Device memory that copies of a role may have under CUDA handles.",
							"-1: no limit.", &gstore_copy_memory_mb, -1, -1, INT_MAX, PGC_SUSET,
							GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("gstore_fdw.version_memory",
							"Shared memory for versions of an owner's tables that snapshots may see.",
							"-1: no limit.", &gstore_version_memory_mb, 256, -1, INT_MAX, PGC_SUSET,
							GUC_UNIT_MB, NULL, NULL, NULL);
	define_query_settings();
	MarkGUCPrefixReserved("gstore_fdw");
}
