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
			(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("cannot %s memory for a GPU worker: %m", verb)));
}

/*
 * At least so long, and mapped as it is: the worker may have made it longer. Memory is got here, as a signal would come
 * where there is none when it is written to.
 */
static void
map_memory(worker *w, uint64 bytes)
{
	struct stat found;
	void	   *mapped;

	if (fstat(w->memory, &found) != 0)
		fail_memory("look at");
	if ((uint64) found.st_size < bytes)
	{
		do
			errno = posix_fallocate(w->memory, found.st_size, (off_t) bytes - found.st_size);
		while (errno == EINTR);
		if (errno != 0)
			fail_memory("get");
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
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("too many open files for a GPU worker")));
	w->memory = memfd_create("plcuda", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (w->memory < 0)
	{
		ReleaseExternalFD();
		fail_memory("make");
	}
	/* What is mapped here stays, whatever a worker does. */
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
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("too many open files for a GPU worker")));
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

/* What the spawner says last. */
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
		case 0: /* not even the spawner says */
			ereport(
				ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("the GPU worker is gone, or could not be started: too many are waited for"),
				 errhint("If the GPU memory keeper was restarted, the server's log has it. Try again.")));
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

static void
fail_answer(plcuda_message *answer)
{
	const char *state = answer->sqlstate;

	answer->sqlstate[sizeof answer->sqlstate - 1] = answer->text[sizeof answer->text - 1] = '\0';
	if (!pg_verifymbstr(answer->text, (int) strlen(answer->text), true))
		for (char *c = answer->text; *c != '\0'; c++)
			if (IS_HIGHBIT_SET(*c))
				*c = '?';
	ereport(ERROR,
			(errcode(is_sqlstate(state) ? MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4])
										: ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
			 errmsg("%s", answer->text)));
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

/* 1 and 2 as receive(). limit_ms 0: none. ERROR at a cancel, or when the time has passed. */
static int
await(const worker *w, int limit_ms, plcuda_message *answer, gstore_spawn_ended *ended)
{
	const int64 deadline_ns = gstore_deadline_ns(limit_ms);

	for (;;)
	{
		int		  events = WL_LATCH_SET | WL_SOCKET_READABLE | WL_EXIT_ON_PM_DEATH;
		long	  wait_ms = -1;
		const int received = receive(w, answer, ended);

		if (received != 0)
			return received;
		if (limit_ms > 0)
		{
			wait_ms = (long) ((deadline_ns - gstore_now_ns()) / GSTORE_NS_PER_MS) + 1;
			if (gstore_now_ns() >= deadline_ns)
				ereport(ERROR,
						(errcode(ERRCODE_QUERY_CANCELED),
						 errmsg("the GPU worker was ended: it took longer than %d ms", limit_ms),
						 errhint("Settings plcuda.time_limit and plcuda.compile_time.")));
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
	strlcpy(window->compiler, plcuda_compiler, sizeof window->compiler);
	strlcpy(window->nvrtc, plcuda_nvrtc, sizeof window->nvrtc);
	window->cache_bytes = (uint64) plcuda_cache_mb * 1024 * 1024;
	window->compile_s = (uint32) plcuda_compile_time_s;
	window->compile_bytes = (uint64) plcuda_compile_memory_mb * 1024 * 1024;
}

/* What the compiler has said, without bytes that no message may have. */
static char *
copy_log(const worker *w, plcuda_span span)
{
	char *text;

	if (span.bytes > PLCUDA_LOG_BYTES_MAX || span.at > w->len || span.bytes > w->len - span.at)
		return pstrdup("");
	text = pnstrdup((const char *) w->bytes + span.at, span.bytes);
	for (Size end = strlen(text); end > 0 && text[end - 1] == '\n'; end--)
		text[end - 1] = '\0';
	if (!pg_verifymbstr(text, (int) strlen(text), true))
		for (char *c = text; *c != '\0'; c++)
			if (IS_HIGHBIT_SET(*c))
				*c = '?';
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

	make_memory(w, at + len);
	window = (plcuda_window *) w->bytes;
	fill_settings(window, text, at);
	window->used = at + len;
	window->architecture = architecture;
	start_worker(w, GSTORE_SPAWN_COMPILE);
	/* If it has ended already, its last message says why. The limit is for the queue, too. */
	(void) send_verb(w, PLCUDA_COMPILE);
	if (await(w, plcuda_compile_time_s * 2000, &answer, &ended) == 2)
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

/* ---- calls */

/* One that has ended since the last call, of idleness or otherwise, is forgotten. */
static void
look_at_session(void)
{
	plcuda_message	   answer;
	gstore_spawn_ended ended;

	if (session.connection >= 0 && receive(&session, &answer, &ended) != 0)
		close_worker(&session);
}

plcuda_window *
plcuda_begin_call(Size bytes)
{
	look_at_session();
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
 * Another worker for the same call: the one before has gone before it took the call. It has its own memory file, as the
 * other one may not be quite dead.
 */
static void
replace_worker(void)
{
	worker before = session;

	session = (worker){-1, -1, NULL, 0};
	PG_TRY();
	{
		make_memory(&session, before.len);
		memcpy(session.bytes, before.bytes, before.len);
		start_worker(&session, GSTORE_SPAWN_SESSION);
	}
	PG_FINALLY();
	{
		close_worker(&before);
	}
	PG_END_TRY();
}

static void
call_once(plcuda_message *answer)
{
	gstore_spawn_ended ended;

	(void) send_verb(&session, PLCUDA_CALL);
	if (await(&session, plcuda_time_limit_ms, answer, &ended) == 1)
		return;
	if (ended.end != GSTORE_SPAWN_EXITED || ended.number != 0)
		fail_ended(&ended);
	replace_worker(); /* it was idle for too long, just now */
	(void) send_verb(&session, PLCUDA_CALL);
	if (await(&session, plcuda_time_limit_ms, answer, &ended) != 1)
		fail_ended(&ended);
}

/* False: an error of the function's own, after which the worker goes on. */
static bool
run_call(const char *text, plcuda_message *answer)
{
	call_once(answer);
	if (answer->verb == PLCUDA_NEED_IMAGE)
	{
		plcuda_compile_text(text, answer->architecture);
		call_once(answer);
	}
	if (answer->verb == PLCUDA_NEED_IMAGE)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("the GPU worker does not find the compiled function"),
				 errhint("plcuda.cache_size may be too small for it.")));
	if (answer->verb != PLCUDA_DONE && (answer->verb != PLCUDA_ERROR || answer->lost))
		fail_answer(answer);
	map_memory(&session, 0);
	return answer->verb == PLCUDA_DONE;
}

plcuda_window *
plcuda_run_call(const char *text)
{
	plcuda_window *window = (plcuda_window *) session.bytes;
	plcuda_message answer;
	volatile bool  done = false;

	fill_settings(window, text, PLCUDA_TEXT_AT);
	PG_TRY();
	{
		done = run_call(text, &answer);
	}
	PG_CATCH();
	{
		close_worker(&session);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!done && strcmp(answer.sqlstate, PLCUDA_FALL_BACK) == 0)
		return NULL;
	if (!done)
		fail_answer(&answer);
	return (plcuda_window *) session.bytes;
}

const char *
plcuda_call_bytes(plcuda_span span)
{
	if (span.bytes > PLCUDA_RESULT_BYTES_MAX || span.at > session.len ||
		span.bytes > session.len - span.at)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_INVOCATION_EXCEPTION),
				 errmsg("the GPU worker has returned no valid result")));
	return (const char *) session.bytes + span.at;
}

void
plcuda_end_call(plcuda_span bytes)
{
	if (session.memory >= 0 && bytes.bytes > KEEP_BYTES && bytes.at < session.len)
		(void) fallocate(session.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						 (off_t) bytes.at, (off_t) Min(bytes.bytes, session.len - bytes.at));
}
