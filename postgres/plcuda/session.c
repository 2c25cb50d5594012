/*
 * This session's GPU worker: connection, memory file, waiting. What a worker writes is not trusted: it runs code of users.
 *
 * A worker that does not answer is ended by closing the connection, upon which the spawner kills it (postgres/spawner.h).
 * So an ERROR while a call is under way closes it, and the next call has another worker.
 */
#include "postgres/plcuda/plcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "postgres/clock.h"
#include "postgres/spawner.h"

#define WINDOW_BYTES_MIN (1024 * 1024)
#define KEEP_BYTES		 (1024 * 1024) /* of results; pages beyond go back */

typedef struct worker
{
	int	   connection, memory; /* file descriptors; -1: none */
	uint8 *bytes;			   /* of the memory file, mapped */
	uint64 len;
} worker;

static worker session = {-1, -1, NULL, 0};
static uint64 sent_bytes; /* of the call */
static bool	  is_called;  /* until plcuda_end_call() */

/* ---- the memory file */

static void
close_worker(worker *w)
{
	if (w->bytes != NULL)
		munmap(w->bytes, w->len);
	if (w->memory >= 0)
	{
		close(w->memory);
		ReleaseExternalFD();
	}
	if (w->connection >= 0)
	{
		close(w->connection);
		ReleaseExternalFD();
	}
	*w = (worker){-1, -1, NULL, 0};
}

static void
fail_memory(const char *verb)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("cannot %s the memory file of a GPU worker: %m", verb)));
}

/*
 * Extends the file to at least so many bytes, and maps all of it: the worker may have made it longer. Memory is allocated
 * here: a write to a page that cannot be allocated would be a SIGBUS.
 */
static void
map_memory(worker *w, uint64 bytes)
{
	struct stat found;
	void	   *mapped;

	if (fstat(w->memory, &found) != 0)
		fail_memory("read the size of");
	if ((uint64) found.st_size < bytes)
	{
		do
			errno = posix_fallocate(w->memory, found.st_size, (off_t) bytes - found.st_size);
		while (errno == EINTR);
		if (errno != 0)
			fail_memory("extend");
	}
	bytes = Max(bytes, (uint64) found.st_size);
	if (w->bytes != NULL && w->len == bytes)
		return;
	mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->memory, 0);
	if (mapped == MAP_FAILED)
		fail_memory("map");
	if (w->bytes != NULL)
		munmap(w->bytes, w->len);
	w->bytes = mapped;
	w->len = bytes;
}

static void
make_memory(worker *w, uint64 bytes)
{
	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("too many open files for a GPU worker"),
				 errhint("Raise the server's max_files_per_process and/or \"ulimit -n\" limits.")));
	w->memory = memfd_create("plcuda", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (w->memory < 0)
	{
		ReleaseExternalFD();
		fail_memory("create");
	}
	/* A worker cannot remove what is mapped here. */
	if (fcntl(w->memory, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
		fail_memory("seal");
	map_memory(w, Max(bytes, WINDOW_BYTES_MIN));
}

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
send_request(const worker *w, gstore_spawn_kind kind)
{
	gstore_spawn_request request = {GSTORE_SPAWN_MAGIC, kind, MyProcPid};
	union
	{
		struct cmsghdr head;
		char		   bytes[CMSG_SPACE(sizeof(int))];
	} control = {{0}};
	struct iovec	part = {&request, sizeof request};
	struct msghdr	message = {.msg_iov = &part,
							   .msg_iovlen = 1,
							   .msg_control = control.bytes,
							   .msg_controllen = sizeof control.bytes};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &w->memory, sizeof(int));
	if (sendmsg(w->connection, &message, MSG_NOSIGNAL) != (ssize_t) sizeof request)
		fail_start();
}

static void
start_worker(worker *w, gstore_spawn_kind kind)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strlcpy(address.sun_path, GSTORE_SPAWN_SOCKET, sizeof address.sun_path);
	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("too many open files for a GPU worker"),
				 errhint("Raise the server's max_files_per_process and/or \"ulimit -n\" limits.")));
	w->connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (w->connection < 0)
	{
		ReleaseExternalFD();
		fail_start();
	}
	if (connect(w->connection, (const struct sockaddr *) &address, sizeof address) != 0)
		fail_start();
	send_request(w, kind);
}

/* ---- answers */

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
		case GSTORE_SPAWN_FAILED:
			errno = ended->number;
			fail_start();
			break;
		case GSTORE_SPAWN_KILLED:
			ereport(ERROR,
					(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
					 errmsg("the GPU worker was ended by signal %d: %s", ended->number,
							strsignal(ended->number)),
					 errhint("The next call has another one. No table has changed.")));
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
					 errhint("The next call has another one. No table has changed.")));
	}
}

static bool
is_sqlstate(const char *state)
{
	return strlen(state) == 5 && strspn(state, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 &&
		strncmp(state, "00", 2) != 0 && strncmp(state, "01", 2) != 0 && strncmp(state, "02", 2) != 0;
}

/* A character that was cut off at the end is removed; ? is in place of bytes that are not valid in the server's encoding. */
static void
make_printable(char *text)
{
	const int len = (int) strlen(text);

	text[pg_mbcliplen(text, len, len)] = '\0';
	if (!pg_verifymbstr(text, (int) strlen(text), true))
		for (char *c = text; *c != '\0'; c++)
			if (IS_HIGHBIT_SET(*c))
				*c = '?';
}

static void
fail_answer(plcuda_message *answer)
{
	const char *state = answer->sqlstate;

	answer->sqlstate[sizeof answer->sqlstate - 1] = answer->text[sizeof answer->text - 1] = '\0';
	make_printable(answer->text);
	ereport(
		ERROR,
		(errcode(is_sqlstate(state) ? MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4])
									: ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
		 errmsg("%s", answer->text),
		 answer->lost ? errhint("The next call has another GPU worker. No table has changed.") : 0));
}

/*
 * 0: nothing is there. 1: an answer. 2: the worker has ended. Sizes tell one from the other; a worker that sends the other
 * kind itself only ends its own call.
 */
static int
receive(const worker *w, plcuda_message *answer, gstore_spawn_ended *ended)
{
	ssize_t bytes = recv(w->connection, answer, sizeof *answer, MSG_DONTWAIT);

	/* The other side has not read all that was sent. What it has sent itself comes after this error. */
	if (bytes < 0 && errno == ECONNRESET)
		bytes = recv(w->connection, answer, sizeof *answer, MSG_DONTWAIT);
	if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	if (bytes == (ssize_t) sizeof *answer && answer->magic == PLCUDA_MAGIC)
		return 1;
	memset(ended, 0, sizeof *ended);
	if (bytes == (ssize_t) sizeof *ended)
		memcpy(ended, answer, sizeof *ended);
	return 2;
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

/* 1 and 2 as receive(). ERROR at a cancel, or when the time has passed. */
static int
await(const worker *w, const time_limit *limit, plcuda_message *answer, gstore_spawn_ended *ended)
{
	for (;;)
	{
		int		  events = WL_LATCH_SET | WL_SOCKET_READABLE | WL_EXIT_ON_PM_DEATH;
		long	  wait_ms = -1;
		const int received = receive(w, answer, ended);

		if (received != 0)
			return received;
		if (limit->ms > 0)
		{
			const int64 left_ns = limit->deadline_ns - gstore_now_ns();

			if (left_ns <= 0)
				ereport(ERROR,
						(errcode(limit->sqlstate),
						 errmsg("the GPU worker was ended: it took longer than %d ms", limit->ms),
						 errhint("The setting %s limits it.", limit->setting)));
			wait_ms = (long) (left_ns / GSTORE_NS_PER_MS) + 1;
			events |= WL_TIMEOUT;
		}
		if ((WaitLatchOrSocket(MyLatch, events, w->connection, wait_ms, PG_WAIT_EXTENSION) &
			 WL_LATCH_SET) != 0)
		{
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
	}
}

static bool
send_verb(const worker *w, plcuda_verb verb)
{
	const plcuda_message message = {.magic = PLCUDA_MAGIC, .verb = verb};

	return send(w->connection, &message, sizeof message, MSG_NOSIGNAL) == (ssize_t) sizeof message;
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
copy_log(const worker *w, plcuda_span span)
{
	char *text;

	if (span.bytes > PLCUDA_LOG_BYTES_MAX || span.at > w->len || span.bytes > w->len - span.at)
		return pstrdup("");
	text = pnstrdup((const char *) w->bytes + span.at, span.bytes);
	for (Size end = strlen(text); end > 0 && text[end - 1] == '\n'; end--)
		text[end - 1] = '\0';
	make_printable(text);
	return text;
}

static void
finish_compile(worker *w, plcuda_message *answer)
{
	plcuda_span log;

	if (answer->verb == PLCUDA_DONE)
		return;
	if (answer->verb != PLCUDA_LOG)
		fail_answer(answer);
	map_memory(w, 0);
	memcpy(&log, &((const plcuda_window *) w->bytes)->log, sizeof log);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
			 errmsg("the plcuda function cannot be compiled"), errdetail("%s", copy_log(w, log))));
}

static void
compile(worker *w, const char *text, uint32 architecture)
{
	const Size		   at = PLCUDA_TEXT_AT, len = strlen(text);
	plcuda_window	  *window;
	plcuda_message	   answer;
	gstore_spawn_ended ended;
	time_limit		   limit;

	make_memory(w, at + len);
	window = (plcuda_window *) w->bytes;
	fill_settings(window, text, at);
	window->used = at + len;
	window->architecture = architecture;
	start_worker(w, GSTORE_SPAWN_COMPILE);
	/* If it has ended already, its last message says why. Twice the time: other texts may be compiled first. */
	(void) send_verb(w, PLCUDA_COMPILE);
	limit = begin_limit("plcuda.compile_time", ERRCODE_PROGRAM_LIMIT_EXCEEDED,
						plcuda_compile_time_s * 2000);
	if (await(w, &limit, &answer, &ended) == 2)
		fail_ended(&ended);
	finish_compile(w, &answer);
}

void
plcuda_compile_text(const char *text, uint32 architecture)
{
	worker w = {-1, -1, NULL, 0};

	plcuda_gstore()->wait_ready();
	PG_TRY();
	{
		compile(&w, text, architecture);
	}
	PG_FINALLY();
	{
		close_worker(&w);
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
		make_printable(text);
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
	plcuda_message	   answer;
	gstore_spawn_ended ended;

	if (session.connection >= 0 && receive(&session, &answer, &ended) != 0)
		close_worker(&session);
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
		if (session.connection < 0)
		{
			make_memory(&session, bytes);
			start_worker(&session, GSTORE_SPAWN_SESSION);
		}
		map_memory(&session, bytes);
	}
	PG_CATCH();
	{
		close_worker(&session);
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
	worker before = session;

	session = (worker){-1, -1, NULL, 0};
	PG_TRY();
	{
		make_memory(&session, sent_bytes);
		memcpy(session.bytes, before.bytes, sent_bytes);
		start_worker(&session, GSTORE_SPAWN_SESSION);
	}
	PG_FINALLY();
	{
		close_worker(&before);
	}
	PG_END_TRY();
}

static void
call_once(plcuda_verb verb, const time_limit *limit, plcuda_message *answer)
{
	gstore_spawn_ended ended;

	(void) send_verb(&session, verb);
	if (await(&session, limit, answer, &ended) == 1)
		return;
	if (ended.end != GSTORE_SPAWN_EXITED || ended.number != 0)
		fail_ended(&ended);
	replace_worker(); /* its idle timeout may have passed just before the call */
	(void) send_verb(&session, verb);
	if (await(&session, limit, answer, &ended) != 1)
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
	map_memory(&session, 0);
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
				 errhint("plcuda.cache_size may be too small for it.")));
	return take_answer(answer);
}

plcuda_window *
plcuda_run_call(plcuda_verb verb, const char *text)
{
	plcuda_window *window = (plcuda_window *) session.bytes;
	plcuda_message answer;
	volatile bool  done = false;

	fill_settings(window, text, PLCUDA_TEXT_AT);
	PG_TRY();
	{
		done = run_call(verb, text, &answer);
	}
	PG_CATCH();
	{
		copy_notes();
		close_worker(&session);
		report_notes();
		PG_RE_THROW();
	}
	PG_END_TRY();
	copy_notes();
	report_notes();
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
	(void) send_verb(&session, PLCUDA_FETCH);
	if (await(&session, &call_limit, &answer, &ended) != 1)
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
			 errmsg("the GPU worker has returned no valid result")));
}

plcuda_bytes
plcuda_call_bytes(const plcuda_span *span)
{
	plcuda_span copy;

	memcpy(&copy, span, sizeof copy);
	if (copy.bytes > PLCUDA_RESULT_BYTES_MAX || copy.at > session.len ||
		copy.bytes > session.len - copy.at)
		plcuda_fail_result();
	return (plcuda_bytes){session.bytes + copy.at, copy.bytes};
}

void
plcuda_end_call(bool complete)
{
	const uint64 from = sent_bytes + KEEP_BYTES;

	is_called = false;
	if (!complete)
		close_worker(&session);
	else if (session.len > from)
		(void) fallocate(session.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t) from,
						 (off_t) (session.len - from));
}
