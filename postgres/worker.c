/*
 * The GPU memory keeper: a background worker that owns the GPU for all backends.
 *
 * It runs a keeper as threads of itself, or uses one that others run (gstore_fdw.keeper), and the service
 * threads that carry out commands. The main thread starts and monitors them, drops stores that
 * nobody needs, and forgets old versions.
 */
#include "postgres.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinval.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/varlena.h"

#include <gvmem/gvmem.h>

#include "postgres/autoanalyze.h"
#include "postgres/clock.h"
#include "postgres/directory.h"
#include "postgres/fdw.h"
#include "postgres/lost.h"
#include "postgres/memory.h"
#include "postgres/reload.h"
#include "postgres/service.h"
#include "postgres/spawner.h"
#include "postgres/tasks.h"
#include "postgres/token.h"
#include "postgres/window.h"

#define LOOK_MS		   1000
#define RESTART_S	   1
#define RETRY_MAX_S	   60
#define LOG_EVERY_NS   (60 * 1000 * GSTORE_NS_PER_MS)
#define SOCKET_IN_DATA PG_STAT_TMP_DIR "/gstore.sock"
#define MIB			   (1024ull * 1024)

PGDLLEXPORT void gstore_worker_main(Datum argument);

void
gstore_worker_init(void)
{
	BackgroundWorker worker = {.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
							   .bgw_start_time = BgWorkerStart_ConsistentState,
							   .bgw_restart_time = RESTART_S,
							   .bgw_main_arg = 0};

	strlcpy(worker.bgw_name, "GPU memory keeper", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "gstore_fdw keeper", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "gstore_fdw", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "gstore_worker_main", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

/* ---- life */

static gvm_keeper	  *server;
static gstore_service *service;
static gstore_tasks	  *tasks;
static gstore_spawner *spawner;

static void
wake_worker(void *latch)
{
	SetLatch(latch);
}

/* Why the keeper is not ready, for statements, the view and the log. */
static bool fail_start(const char *format, ...) pg_attribute_printf(1, 2);

static bool
fail_start(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(gstore->problem, sizeof gstore->problem, format, arguments);
	va_end(arguments);
	gstore->no_driver = false;
	return false;
}

static bool
fail_start_call(const char *verb)
{
	gvm_error error;

	gvm_error_last(&error);
	(void) fail_start("cannot %s the keeper at %s: %s", verb, gstore->path, error.text);
	gstore->no_driver = error.status == GVM_E_NODRIVER;
	return false;
}

static bool
set_path(const char *path)
{
	if (strlcpy(gstore->path, path, sizeof gstore->path) < sizeof gstore->path)
		return true;
	return fail_start("the path of a socket has at most %zu bytes, not %zu: %s",
					  sizeof gstore->path - 1, strlen(path), path);
}

/* For sockets: copies of a data directory may lack it. */
static void
make_temporary_folder(void)
{
	(void) MakePGDirectory(PG_STAT_TMP_DIR);
}

/*
 * The data directory lets in the server's own user alone; from this folder of it neither pg_basebackup nor
 * pg_rewind copies anything. Where its path is too long for a socket, programs of the same user can reach it
 * as the working directory of the postmaster, too.
 */
static bool
choose_private_socket(void)
{
	char *path = psprintf("%s/" SOCKET_IN_DATA, DataDir);

	if (strlen(path) >= sizeof gstore->path)
		path = psprintf("/proc/%d/cwd/" SOCKET_IN_DATA, (int) PostmasterPid);
	make_temporary_folder();
	return set_path(path);
}

/* Where others are to come in, the socket is beside PostgreSQL's own. */
static bool
choose_shared_socket(void)
{
	List	   *list = NIL;
	const char *folder;
	struct stat found;

	if (!SplitDirectoriesString(pstrdup(Unix_socket_directories), ',', &list) || list == NIL ||
		((const char *) linitial(list))[0] != '/')
		return fail_start("gstore_fdw.readers needs a directory for the keeper's socket: set "
						  "unix_socket_directories, or gstore_fdw.readers = owner");
	folder = linitial(list);
	if (stat(folder, &found) == 0 && (found.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH)
		return fail_start("any user could put a keeper of their own into %s, which is writable by all: set its "
						  "sticky bit, or another folder in unix_socket_directories",
						  folder);
	return set_path(psprintf("%s/.gstore.%d.sock", folder, PostPortNumber));
}

/* Beside this library. False: there is none, as plcuda is not installed or has no workers. */
static bool
find_spawn_program(char path[MAXPGPATH])
{
	Dl_info library;

	if (gstore_gpu_workers == 0 || dladdr((void *) gstore_worker_main, &library) == 0)
		return false;
	strlcpy(path, library.dli_fname, MAXPGPATH);
	get_parent_directory(path);
	join_path_components(path, path, GSTORE_SPAWN_PROGRAM);
	return access(path, X_OK) == 0;
}

/* As built; NULL: it is not installed. */
static const char *
find_executor(void)
{
	return access(GSTORE_EXECUTOR, X_OK) == 0 ? GSTORE_EXECUTOR : NULL;
}

/* What workers of sessions and the executor will take of each GPU. On the software GPU they take nothing. */
static uint64
spawner_bytes(void)
{
	gvm_driver_info info = {.struct_size = sizeof info};
	char			path[MAXPGPATH];
	uint64			contexts = find_spawn_program(path) ? (uint64) gstore_gpu_workers : 0;

	if (find_executor() != NULL)
		contexts++;
	if (contexts == 0 || gvm_driver_get_info(&info) != GVM_OK || info.software)
		return 0;
	return contexts * GSTORE_SPAWN_CONTEXT_BYTES;
}

static bool
start_keeper(void)
{
	static const uint32 socket_modes[] = {0600, 0660, 0666};
	gvm_keeper_options	options = {.struct_size = sizeof options,
								   .path = gstore->path,
								   .socket_mode = socket_modes[gstore_readers],
								   .device_budget_bytes = (uint64) gstore_device_memory_mb * MIB,
								   .host_budget_bytes = (uint64) gstore_host_memory_mb * MIB,
								   .device_leave_bytes = spawner_bytes(),
								   .flags = GVM_KEEPER_RESTRICT_OTHERS};

	if (gstore_keeper_path[0] != '\0' && gstore_keeper_path[0] != '/')
		/* Tokens name it to programs, whose working directories are others. A check hook would leave it empty. */
		return fail_start("gstore_fdw.keeper must be an absolute path, not \"%s\"", gstore_keeper_path);
	if (gstore_keeper_path[0] != '\0')
		return set_path(gstore_keeper_path);
	if (!(gstore_readers == GSTORE_READERS_OWNER ? choose_private_socket() : choose_shared_socket()))
		return false;
	return gvm_keeper_start(&options, &server) == GVM_OK || fail_start_call("start");
}

static void
log_driver_info(void)
{
	gvm_driver_info info = {.struct_size = sizeof info};

	if (gvm_driver_get_info(&info) != GVM_OK)
		return;
	gstore->software = info.software != 0;
	if (gstore->software)
		ereport(
			LOG,
			(errmsg("GPU memory keeper: no GPU is used: tables are in host memory, on the software GPU"),
			 errdetail("Reason: %s.", info.reason),
			 errhint("Results are the same, but slower. To use a GPU, install its driver, give the "
					 "server's user access to /dev/nvidia*, and restart the server.")));
}

/*
 * The keeper is gone, or is not there yet. The loss is a transaction's, so that each snapshot is before it or after
 * it.
 */
static uint32
begin_epoch(void)
{
	bool		 lost;
	const uint32 epoch = gstore_begin_epoch(&lost);

	if (lost)
	{
		MemoryContext before = CurrentMemoryContext;

		StartTransactionCommand();
		gstore_lose_versions(GetTopTransactionId());
		CommitTransactionCommand();
		MemoryContextSwitchTo(before);
	}
	return epoch;
}

/* Without it tables can be used all the same. */
static void
start_spawner(void)
{
	char		path[MAXPGPATH];
	const char *program = find_spawn_program(path) ? path : NULL, *executor = find_executor();

	if (program == NULL && executor == NULL)
		return;
	make_temporary_folder();
	if (gstore_spawner_start(program, executor, gstore->path, (uint32) gstore_gpu_workers,
							 &spawner) != GVM_OK)
	{
		gvm_error error;

		gvm_error_last(&error);
		ereport(WARNING,
				(errmsg("GPU memory keeper: queries and functions in the language plcuda cannot run on the GPU: %s",
						error.text)));
	}
}

/* False: gstore->problem says why. What has been started stays. */
static bool
start_service(void)
{
	static const uint32	   link_modes[] = {0400, 0440, 0444};
	gstore_service_options options = {.path = gstore->path,
									  .threads = (uint32) gstore_service_threads,
									  .queue = &gstore->queue,
									  .windows = gstore->windows,
									  .window_count = (uint32) gstore_windows,
									  .bytes = gstore_window_bytes(0),
									  .window_bytes = (uint64) gstore_window_kb * 1024,
									  .link_mode = link_modes[gstore_readers],
									  .wake = wake_worker,
									  .give_back = gstore_window_give_back};

	if (!start_keeper())
		return false;
	/* First: from here on no transaction adds a version with a store of before. */
	options.epoch = begin_epoch();
	if (gstore_service_start(&options, &service) != GVM_OK ||
		gstore_tasks_start(service, wake_worker, MyLatch, &tasks) != GVM_OK)
		return fail_start_call("use");
	start_spawner();
	log_driver_info();
	gstore->problem[0] = '\0';
	gstore->device_count = gstore_service_device_count(service);
	gstore->ready = true;
	ConditionVariableBroadcast(&gstore->ready_changed);
	ereport(LOG, (errmsg("GPU memory keeper: ready at %s", gstore->path)));
	return true;
}

/* In pg_stat_activity: the state, and as query what is done or was done last. */
static void
report_idle(void)
{
	pgstat_report_activity(STATE_IDLE, "waiting for work");
}

/* Where there is no memory to remember a task, it is done at once. */
static void
drop_stores(void)
{
	gstore_store_name name;

	while (gstore_next_dead_store(&name))
	{
		pgstat_report_activity(STATE_RUNNING, "dropping memory of tables");
		if (name.epoch == gstore->epoch && !gstore_tasks_drop_store(tasks, &name))
			gstore_service_drop(service, &name);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
trim_stores(void)
{
	gstore_store_name name;
	gstore_extent	 *extents;
	uint32			  count;

	while (gstore_next_trim(&name, &extents, &count))
	{
		if (name.epoch == gstore->epoch)
			gstore_tasks_trim_store(tasks, &name, extents, count);
		pfree(extents);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
drop_copies(void)
{
	uint64 id;
	uint32 epoch;

	while (gstore_next_dead_copy(&id, &epoch))
		if (epoch == gstore->epoch && !gstore_tasks_drop_copy(tasks, id))
			gstore_service_drop_copy(service, id);
}

static void
drop_staged(const gstore_store_name *name)
{
	if (!gstore_tasks_drop_store(tasks, name) && gstore_service_drop(service, name))
		gstore_token_note_dropped(name);
}

static void
end_tokens(void)
{
	uint8			  secret[GSTORE_SECRET_BYTES];
	gstore_store_name name;

	while (gstore_token_next_over(secret, &name))
	{
		if (name.epoch != gstore->epoch)
			continue;
		if (!gstore_tasks_unlink(tasks, secret))
			gstore_service_unlink(service, secret);
		if (!OidIsValid(name.table))
			drop_staged(&name);
	}
	while (gstore_tasks_take_dropped(tasks, &name))
		gstore_token_note_dropped(&name);
}

/* What the views show of the keeper. */
static void
publish_report(void)
{
	static gstore_store_name ending[GSTORE_TOKENS_MAX];
	gstore_report			 report;
	gstore_store_size		*sizes;
	uint32					 size_count, ending_count;

	if (!gstore_tasks_take_report(tasks, &report, &sizes, &size_count))
		return;
	gstore_note_report(&report, sizes, size_count);
	free(sizes);
	/* What programs kept by a lease is tried again; only now, as a report shows that the tasks before it are done. */
	ending_count = gstore_token_list_ending(ending);
	for (uint32 i = 0; i < ending_count; i++)
		drop_staged(&ending[i]);
}

/*
 * After an ERROR in what the worker looks after. It must not end the worker, as all tables are empty then: it is logged, not
 * every second, and the next look tries again.
 */
static void
recover(MemoryContext before)
{
	static int64 logged_ns = 0;
	static int	 logged = 0;

	HOLD_INTERRUPTS();
	if (geterrcode() != logged || gstore_now_ns() - logged_ns > LOG_EVERY_NS)
	{
		logged = geterrcode();
		logged_ns = gstore_now_ns();
		EmitErrorReport();
	}
	FlushErrorState();
	AbortCurrentTransaction();
	LWLockReleaseAll();
	MemoryContextSwitchTo(before);
	RESUME_INTERRUPTS();
}

#define GUARDED(call)                                      \
	do                                                     \
	{                                                      \
		const MemoryContext before = CurrentMemoryContext; \
                                                           \
		PG_TRY();                                          \
		{                                                  \
			call;                                          \
		}                                                  \
		PG_CATCH();                                        \
		{                                                  \
			recover(before);                               \
		}                                                  \
		PG_END_TRY();                                      \
	} while (0)

/*
 * Also while there is no keeper: a table that is dropped then is not to be taken for a lost one later. One for which there is no
 * memory keeps no other one from being looked at.
 */
static void
forget_versions(void)
{
	static bool			failed = false; /* the latest try, which the log reports */
	const TransactionId horizon = GetOldestNonRemovableTransactionId(NULL);
	gstore_table_key   *keys;
	const int			count = gstore_list_tables(NULL, &keys);

	gstore->new_versions = 0;
	for (int i = 0; i < count; i++)
		GUARDED(gstore_forget_old_versions(keys[i], horizon));
	pfree(keys);
	gstore_forget_ended_copies(horizon);
	failed = gstore->record_stale && !gstore_record_tables(failed ? DEBUG1 : LOG);
}

/* At once, not with the next start: who looks in between sees the loss and waits for no keeper. */
static void
end_epoch(void)
{
	gstore->ready = false;
	(void) begin_epoch();
}

static void
stop_service(void)
{
	if (gstore_keeper_path[0] != '\0') /* it may be stopped: nobody is to wait for its answer */
		gstore_service_sever(service);
	gstore_spawner_stop(spawner);
	spawner = NULL;
	gstore_tasks_stop(tasks);
	tasks = NULL;
	gstore_service_stop(service);
	service = NULL;
	gvm_keeper_stop(server);
	server = NULL;
}

static void
stop_at_exit(int code, Datum argument)
{
	gstore->ready = false;
	gstore->worker_latch = NULL;
	stop_service();
}

/* True: somebody has set the latch. */
static bool
wait_latch_ms(int ms)
{
	const int events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
								 PG_WAIT_EXTENSION);

	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	if (catchupInterruptPending)
		ProcessCatchupInterrupt();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	return (events & WL_LATCH_SET) != 0;
}

/*
 * Until the next try to start: after so many seconds, or after one if a statement waits, which sets the latch
 * again and again. True: for a statement.
 */
static bool
wait_until_retry(int seconds)
{
	const int64 start_ns = gstore_now_ns(), end_ns = start_ns + seconds * 1000 * GSTORE_NS_PER_MS;
	int64		now_ns;

	while (!ShutdownRequestPending && (now_ns = gstore_now_ns()) < end_ns)
		if (wait_latch_ms((int) ((end_ns - now_ns) / GSTORE_NS_PER_MS) + 1) &&
			gstore_now_ns() - start_ns >= LOOK_MS * GSTORE_NS_PER_MS)
			return true;
	return false;
}

/*
 * What keeps the keeper from starting may last: tries become rare, and the log has a line for each that no
 * statement waits for, or that fails for another reason. False: the server shuts down.
 */
static bool
retry_start(void)
{
	char		  logged[sizeof gstore->problem] = "";
	int			  wait_s = RESTART_S;
	bool		  waited_for = false;
	MemoryContext tries = AllocSetContextCreate(TopMemoryContext, "gstore_fdw start",
												ALLOCSET_SMALL_SIZES);
	MemoryContext before = MemoryContextSwitchTo(tries);

	while (!start_service())
	{
		gstore->failed_starts++;
		ConditionVariableBroadcast(&gstore->ready_changed);
		stop_service();
		MemoryContextReset(tries);
		forget_versions();
		if (!waited_for || strcmp(logged, gstore->problem) != 0)
			ereport(WARNING,
					(errmsg("GPU memory keeper: %s; next try in %d s", gstore->problem, wait_s),
					 errhint("%s", gstore_keeper_hint())));
		strlcpy(logged, gstore->problem, sizeof logged);
		pgstat_report_activity(STATE_IDLE, "waiting to start the keeper again");
		waited_for = wait_until_retry(wait_s);
		if (ShutdownRequestPending)
			break;
		if (!waited_for)
			wait_s = Min(2 * wait_s, RETRY_MAX_S);
	}
	MemoryContextSwitchTo(before);
	MemoryContextDelete(tries);
	return !ShutdownRequestPending;
}

void
gstore_worker_main(Datum argument)
{
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, SIG_IGN); /* pg_cancel_backend(): there is no query */
	BackgroundWorkerUnblockSignals();
	/* To no database: it makes the process one that pg_stat_activity shows. */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE); /* of a catalog's */
	/* InitPostgres() has left it out, as there is no database: memberships of roles would not be read again. */
	StartTransactionCommand();
	initialize_acl();
	CommitTransactionCommand();
	before_shmem_exit(stop_at_exit, (Datum) 0);
	gstore->worker_latch = MyLatch;
	gstore->worker_pid = MyProcPid;
	pgstat_report_activity(STATE_RUNNING, "starting the keeper");
	if (!retry_start())
	{
		forget_versions();
		proc_exit(1);
	}
	while (!ShutdownRequestPending)
	{
		report_idle();
		(void) wait_latch_ms(LOOK_MS);
		if (gstore_service_is_lost(service))
		{
			end_epoch();
			ereport(
				ERROR,
				(errmsg("GPU memory keeper: the keeper is gone; tables in GPU memory are empty now"),
				 errdetail("The connection to the keeper at %s is lost.", gstore->path),
				 errhint("The connection is tried again by itself; \"ready\" in gstore_fdw_keeper_info says "
						 "whether it is there. Then load the tables that have no source.")));
		}
		GUARDED(forget_versions());
		GUARDED(drop_stores());
		GUARDED(trim_stores());
		GUARDED(drop_copies());
		GUARDED(gstore_reload_look());
		GUARDED(gstore_autoanalyze_look());
		GUARDED(end_tokens());
		GUARDED(publish_report());
	}
	forget_versions();
	end_epoch();
	proc_exit(1); /* with 0 it would not be started again while the server runs */
}
