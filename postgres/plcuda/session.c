/*
 * This session's GPU worker: connection, memory file, waiting. What a worker writes is not trusted: it runs code of users.
 *
 * A worker that does not answer is ended by closing the connection, upon which the spawner kills it (postgres/spawner.h).
 * So an ERROR while a call is under way closes it, and the next call has another worker.
 */
#include "postgres/plcuda/plcuda.h"

#include <errno.h>
#include <fcntl.h>

#include "common/file_perm.h"
#include "miscadmin.h"

#include "postgres/clock.h"
#include "postgres/peer.h"

#define KEEP_BYTES (1024 * 1024) /* of arguments and results; pages beyond go back */

#define NO_WORKER  GSTORE_PEER_NONE("a GPU worker")

static gstore_peer session = {"a GPU worker", -1, -1, NULL, 0, 0};
static uint64	   sent_bytes; /* of the call */
static bool		   is_called;  /* until plcuda_end_call() */

/* ---- starting */

static void
fail_start(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR), errmsg("no GPU worker can be started: %m"),
			 errdetail("The GPU memory keeper starts them, at \"%s\" in the data directory.",
					   GSTORE_SPAWN_SOCKET),
			 errhint("plcuda.max_workers must be above 0, and the program %s beside the server's libraries. The "
					 "server's log says more.",
					 GSTORE_SPAWN_PROGRAM)));
}

static void
start_worker(gstore_peer *w, gstore_spawn_kind kind)
{
	if (gstore_peer_connect(w, kind, 0))
		return;
	if (errno == EMFILE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("too many open files for a GPU worker"),
				 errhint("Raise the server's max_files_per_process and/or \"ulimit -n\" limits.")));
	fail_start();
}

/* ---- answers */

#define REPEAT_HINT \
	"No table has changed, and the next call has another GPU worker. If it fails again, look in the function for accesses outside of its arguments and buffers."

/* Reports how the worker ended, as the spawner's last message says. */
static void
fail_ended(const gstore_spawn_ended *ended)
{
	switch (ended->end)
	{
		case GSTORE_SPAWN_FULL:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("no GPU worker can be started: %d sessions have one", ended->number),
					 errhint("Close other sessions, or raise plcuda.max_workers.")));
			break;
		case GSTORE_SPAWN_SHARE:
			ereport(
				ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no GPU worker can be started: %d sessions of role \"%s\" have one, its share",
						ended->number, GetUserNameFromId(GetSessionUserId(), false)),
				 errdetail("A role may have %d times as many as are free.", GSTORE_SPAWN_A_FREE_ONE),
				 errhint("Close other sessions of the role, or raise plcuda.max_workers.")));
			break;
		case GSTORE_SPAWN_FAILED:
			errno = ended->number;
			fail_start();
			break;
		case GSTORE_SPAWN_KILLED:
			ereport(ERROR,
					(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
					 errmsg("the GPU worker was ended by signal %d: %s", ended->number,
							strsignal(ended->number)),
					 errhint(REPEAT_HINT)));
			break;
		case 0: /* the connection was closed without such a message */
			ereport(ERROR,
					(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
					 errmsg("the connection to the GPU worker was closed"),
					 errdetail("The GPU memory keeper has ended, or too many workers were waiting to start."),
					 errhint("Try again. The server's log has restarts of the keeper.")));
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
					 errmsg("the GPU worker has ended with status %d", ended->number),
					 errhint(REPEAT_HINT)));
	}
}

static void
fail_answer(plcuda_message *answer)
{
	answer->sqlstate[sizeof answer->sqlstate - 1] = answer->text[sizeof answer->text - 1] = '\0';
	gstore_make_printable(answer->text);
	ereport(ERROR,
			(errcode(gstore_peer_errcode(answer->sqlstate)), errmsg("%s", answer->text),
			 answer->lost ? errhint(REPEAT_HINT) : 0));
}

typedef struct time_limit
{
	const char *setting;
	int			sqlstate; /* of an error */
	int			ms;		  /* 0: none */
	int64		deadline_ns;
} time_limit;

static time_limit
begin_limit(const char *setting, int sqlstate, int ms)
{
	return (time_limit){setting, sqlstate, ms, gstore_deadline_ns(ms)};
}

/* How the worker ended, if it did. ERROR at a cancel, or when the time has passed. */
static bool
await(const gstore_peer *w, const time_limit *limit, plcuda_message *answer, gstore_spawn_ended *ended)
{
	gstore_peer_answer		a = {answer, sizeof *answer, PLCUDA_MAGIC, {0}};
	const gstore_peer_event event = gstore_peer_await(w, limit->ms > 0 ? limit->deadline_ns : 0, 0, &a);

	if (event == GSTORE_PEER_NOTHING)
		ereport(ERROR,
				(errcode(limit->sqlstate),
				 errmsg("the GPU worker was ended: it took longer than %d ms", limit->ms),
				 errhint("The setting %s limits it.", limit->setting)));
	*ended = a.ended;
	return event == GSTORE_PEER_ANSWER;
}

static void
send_verb(const gstore_peer *w, plcuda_verb verb)
{
	const plcuda_message message = {.magic = PLCUDA_MAGIC, .verb = verb};

	(void) gstore_peer_send(w, &message, sizeof message);
}

/* ---- compiling */

static void
fill_settings(plcuda_window *window, const char *text, Size at)
{
	const Size bytes = strlen(text);

	window->magic = PLCUDA_MAGIC;
	window->version = PLCUDA_WIRE_VERSION;
	window->role = GetUserId();
	window->idle_ms = plcuda_idle_timeout_s * 1000;
	window->text = (plcuda_span){at, bytes};
	memcpy((char *) window + at, text, bytes);
	strlcpy(window->cache, "pg_plcuda", sizeof window->cache); /* in the data directory, as the worker is */
	window->folder_mode = (uint32) pg_dir_create_mode;
	window->file_mode = (uint32) pg_file_create_mode;
	strlcpy(window->compiler, plcuda_compiler, sizeof window->compiler);
	strlcpy(window->nvrtc, plcuda_nvrtc, sizeof window->nvrtc);
	window->cache_bytes = (uint64) plcuda_cache_mb * 1024 * 1024;
	window->compile_s = (uint32) plcuda_compile_time_s;
	window->compile_bytes = (uint64) plcuda_compile_memory_mb * 1024 * 1024;
}

static char *
copy_log(const gstore_peer *w, plcuda_span span)
{
	char *text;

	if (span.bytes > PLCUDA_LOG_BYTES_MAX || span.at > w->len || span.bytes > w->len - span.at)
		return pstrdup("");
	text = pnstrdup((const char *) w->bytes + span.at, span.bytes);
	for (Size end = strlen(text); end > 0 && text[end - 1] == '\n'; end--)
		text[end - 1] = '\0';
	gstore_make_printable(text);
	return text;
}

static void
finish_compile(gstore_peer *w, plcuda_message *answer)
{
	plcuda_span log;

	if (answer->verb == PLCUDA_DONE)
		return;
	if (answer->verb != PLCUDA_LOG)
		fail_answer(answer);
	gstore_peer_map(w, 0);
	memcpy(&log, &((const plcuda_window *) w->bytes)->log, sizeof log);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
			 errmsg("the plcuda function cannot be compiled"), errdetail("%s", copy_log(w, log))));
}

static void
fail_compiler(const gstore_spawn_ended *ended)
{
	if (ended->end == GSTORE_SPAWN_FULL || ended->end == GSTORE_SPAWN_SHARE)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("a plcuda function cannot be compiled now: others are waiting for it"),
				 ended->end == GSTORE_SPAWN_FULL
					 ? errdetail("%d are waiting, which is the limit.", ended->number)
					 : errdetail("%d of role \"%s\" are waiting, which is its share.",
								 ended->number, GetUserNameFromId(GetSessionUserId(), false)),
				 errhint("Try again when some have been compiled.")));
	fail_ended(ended);
}

static void
compile(gstore_peer *w, const char *text, uint32 architecture)
{
	const Size		   at = PLCUDA_TEXT_AT, len = strlen(text);
	plcuda_window	  *window;
	plcuda_message	   answer;
	gstore_spawn_ended ended;
	time_limit		   limit;

	gstore_peer_map(w, at + len);
	window = (plcuda_window *) w->bytes;
	fill_settings(window, text, at);
	window->used = at + len;
	window->architecture = architecture;
	start_worker(w, GSTORE_SPAWN_COMPILE);
	/* If it has ended already, its last message says why. Twice the time: other texts may be compiled first. */
	send_verb(w, PLCUDA_COMPILE);
	limit = begin_limit("plcuda.compile_time", ERRCODE_PROGRAM_LIMIT_EXCEEDED,
						plcuda_compile_time_s * 2000);
	if (!await(w, &limit, &answer, &ended))
		fail_compiler(&ended);
	finish_compile(w, &answer);
}

void
plcuda_compile_text(const char *text, uint32 architecture)
{
	gstore_peer w = NO_WORKER;

	plcuda_gstore()->wait_ready();
	PG_TRY();
	{
		compile(&w, text, architecture);
	}
	PG_FINALLY();
	{
		gstore_peer_close(&w);
	}
	PG_END_TRY();
}

/* ---- messages of kernels */

/* Of the last call. Copied before they are checked: the worker can still write to those of the window. */
static struct
{
	uint32		 count; /* also of those that are not here */
	plcuda_noted lines[PLCUDA_NOTES_MAX];
} noted;

static void
copy_notes(void)
{
	const plcuda_window *window = (const plcuda_window *) session.bytes;

	noted.count = window == NULL ? 0 : window->noted_count;
	if (noted.count > 0)
		memcpy(noted.lines, window->noted, sizeof noted.lines);
}

static void
report_notes(void)
{
	const uint32 count = noted.count, kept = Min(count, PLCUDA_NOTES_MAX);
	int			 most = DEBUG1;

	noted.count = 0;
	for (uint32 i = 0; i < kept; i++)
	{
		const int level = noted.lines[i].level == PLCUDA_NOTE_NOTICE ? NOTICE : DEBUG1;
		char	 *text = noted.lines[i].text;

		text[sizeof noted.lines[i].text - 1] = '\0';
		gstore_make_printable(text);
		ereport(level, (errmsg("%s", text)));
		most = Max(most, level);
	}
	if (count > kept)
		ereport(most,
				(errmsg("%u more messages of the function are not shown", count - kept),
				 errdetail("A call shows the first %d.", PLCUDA_NOTES_MAX)));
}

/* ---- calls */

/* A worker that has ended since the last call, by its idle timeout or otherwise, is closed. */
static void
check_session(void)
{
	plcuda_message	   message;
	gstore_peer_answer answer = {&message, sizeof message, PLCUDA_MAGIC, {0}};

	if (session.connection >= 0 && gstore_peer_receive(&session, &answer) != GSTORE_PEER_NOTHING)
		gstore_peer_close(&session);
}

plcuda_window *
plcuda_begin_call(Size bytes)
{
	if (is_called)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("a plcuda function cannot be called while the rows of another one are read")));
	check_session();
	sent_bytes = bytes;
	PG_TRY();
	{
		gstore_peer_map(&session, bytes);
		if (session.connection < 0)
			start_worker(&session, GSTORE_SPAWN_SESSION);
	}
	PG_CATCH();
	{
		gstore_peer_close(&session);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return (plcuda_window *) session.bytes;
}

/*
 * Another worker for the same call, which the one before has not answered. It has a memory file of its own: processes
 * that the one before has started may still write to the other, and have made it as long as they like.
 */
static void
replace_worker(void)
{
	gstore_peer before = session;

	session = NO_WORKER;
	PG_TRY();
	{
		gstore_peer_map(&session, sent_bytes);
		memcpy(session.bytes, before.bytes, sent_bytes);
		start_worker(&session, GSTORE_SPAWN_SESSION);
	}
	PG_FINALLY();
	{
		gstore_peer_close(&before);
	}
	PG_END_TRY();
}

static void
call_once(plcuda_verb verb, const time_limit *limit, plcuda_message *answer)
{
	gstore_spawn_ended ended;

	send_verb(&session, verb);
	if (await(&session, limit, answer, &ended))
		return;
	if (ended.end != GSTORE_SPAWN_EXITED || ended.number != 0)
		fail_ended(&ended);
	replace_worker(); /* its idle timeout may have passed just before the call */
	send_verb(&session, verb);
	if (!await(&session, limit, answer, &ended))
		fail_ended(&ended);
}

/* One limit for all that a call waits for its worker. */
static time_limit call_limit;
static int64	  answered_ns;

/* False: a kernel has raised an error; the worker goes on. */
static bool
take_answer(plcuda_message *answer)
{
	if (answer->verb != PLCUDA_DONE && (answer->verb != PLCUDA_ERROR || answer->lost))
		fail_answer(answer);
	gstore_peer_map(&session, 0);
	answered_ns = gstore_now_ns();
	return answer->verb == PLCUDA_DONE;
}

/* As take_answer(). One limit for all attempts, in which compiling does not count. */
static bool
run_call(plcuda_verb verb, const char *text, plcuda_message *answer)
{
	call_limit = begin_limit("plcuda.time_limit", ERRCODE_QUERY_CANCELED, plcuda_time_limit_ms);
	call_once(verb, &call_limit, answer);
	if (answer->verb == PLCUDA_NEED_IMAGE)
	{
		const int64 start_ns = gstore_now_ns();

		plcuda_compile_text(text, answer->architecture);
		call_limit.deadline_ns += gstore_now_ns() - start_ns;
		call_once(verb, &call_limit, answer);
	}
	if (answer->verb == PLCUDA_NEED_IMAGE)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("the GPU worker does not find the compiled function"),
				 errhint("Raise plcuda.cache_size: it may be too small for the function.")));
	return take_answer(answer);
}

/* A call writes anew all that it sends. */
static void
give_memory_back(void)
{
	if (session.len <= KEEP_BYTES)
		return;
	(void) fallocate(session.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, KEEP_BYTES,
					 (off_t) (session.len - KEEP_BYTES));
	session.allocated = Min(session.allocated, KEEP_BYTES);
}

plcuda_window *
plcuda_run_call(plcuda_verb verb, const char *text)
{
	plcuda_window *window = (plcuda_window *) session.bytes;
	plcuda_message answer;
	volatile bool  done = false, noting = false;

	fill_settings(window, text, PLCUDA_TEXT_AT);
	PG_TRY();
	{
		done = run_call(verb, text, &answer);
		copy_notes();
		noting = true;
		report_notes(); /* a cancel may come there */
	}
	PG_CATCH();
	{
		if (!noting)
			copy_notes();
		gstore_peer_close(&session);
		if (!noting)
			report_notes();
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!done)
		give_memory_back();
	if (!done && strcmp(answer.sqlstate, PLCUDA_FALL_BACK) == 0)
		return NULL;
	if (!done)
		fail_answer(&answer);
	is_called = true;
	return (plcuda_window *) session.bytes;
}

plcuda_window *
plcuda_fetch_rows(void)
{
	plcuda_message	   answer;
	gstore_spawn_ended ended;

	/* What was done here meanwhile does not count. */
	call_limit.deadline_ns += gstore_now_ns() - answered_ns;
	send_verb(&session, PLCUDA_FETCH);
	if (!await(&session, &call_limit, &answer, &ended))
		fail_ended(&ended);
	if (!take_answer(&answer))
		fail_answer(&answer);
	return (plcuda_window *) session.bytes;
}

void
plcuda_fail_result(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_EXTERNAL_ROUTINE_INVOCATION_EXCEPTION),
			 errmsg("the GPU worker has returned no valid result"),
			 errhint("A kernel that writes outside of its memory on the software GPU may be "
					 "the reason.")));
}

plcuda_bytes
plcuda_call_bytes(const plcuda_span *span)
{
	plcuda_span copy;

	memcpy(&copy, span, sizeof copy);
	if (copy.bytes > PLCUDA_RESULT_BYTES_MAX + PLCUDA_GATHERED_AT || copy.at > session.len ||
		copy.bytes > session.len - copy.at)
		plcuda_fail_result();
	return (plcuda_bytes){session.bytes + copy.at, copy.bytes};
}

void
plcuda_end_call(bool complete)
{
	is_called = false;
	if (complete)
		give_memory_back();
	else
		gstore_peer_close(&session);
}
