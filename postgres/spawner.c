/*
 * See spawner.h; executors.c has executors. One thread waits for everything, by poll():
 *
 *     FREE -> GREETING (accepted) -> WAITING (enough run, or are ending; for the keeper) -> RUNNING -> ENDING (killed) -> FREE
 *             RUNNING -> FREE (the process has ended by itself)
 *             GREETING, WAITING -> FREE (refused, passed on to an executor, or the backend has gone)
 *
 * A process is known by its pidfd, so that no signal reaches another one. The connection is also kept here, to see its end,
 * and never read after the request.
 */
#include "postgres/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "postgres/clock.h"
#include "postgres/executors.h"
#include "postgres/thread.h"

#define COMPILERS_MAX 2
#define WAITING_MAX	  64 /* connections beside those that may wait to be served, or are */
#define GREETING_MS	  1000
#define ENDING_MS	  10000
#define LOOK_MS		  1000 /* at deadlines */
#define PAUSE_US	  10000
#define EXECUTORS_AT  3 /* places in `polled` */
#define SLOTS_AT	  (EXECUTORS_AT + GSTORE_EXECUTORS_POLLED)

typedef enum state
{
	FREE,
	GREETING,
	WAITING,
	RUNNING,
	ENDING,
} state;

typedef struct slot
{
	state				 state;
	gstore_spawn_request request;
	int					 connection, memory; /* file descriptors; -1: none */
	gstore_process		 process;
	int64_t				 since_ns; /* WAITING */
	int64_t deadline_ns; /* GREETING: for the request. WAITING, of a session: for others that are ENDING */
} slot;

struct gstore_spawner
{
	pthread_t		  thread;
	char			 *program, *executor; /* paths; NULL: there is no such program */
	uint32_t		  sessions_max;
	int				  listener, stop[2]; /* a pipe: its write end closed stops the thread */
	uint32_t		  slot_count;
	slot			 *slots;
	gstore_connector *connector;
	gstore_executors  executors;
	struct pollfd	 *polled; /* stop, listener, connector, those of executors, two for each slot */
	struct pollfd	 *used;	  /* those of them that have a descriptor */
};

/* ---- slots */

static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void
free_slot(slot *s)
{
	close_fd(&s->connection);
	close_fd(&s->memory);
	close_fd(&s->process.fd);
	s->state = FREE;
}

static void
say_end(const slot *s, gstore_spawn_end end, int number)
{
	const gstore_spawn_ended ended = {GSTORE_SPAWN_MAGIC, end, number};

	(void) send(s->connection, &ended, sizeof ended, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
refuse(slot *s, gstore_spawn_end end, int number)
{
	say_end(s, end, number);
	free_slot(s);
}

static uint32_t
count_slots(const gstore_spawner *spawner, uint32_t kind, state first, state last)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < spawner->slot_count; i++)
		if (spawner->slots[i].state >= first && spawner->slots[i].state <= last &&
			spawner->slots[i].request.kind == kind)
			count++;
	return count;
}

/* ---- processes */

/*
 * What the worker is to have, as GSTORE_SPAWN_CONNECTION and the numbers that follow. 0, or an errno; EINPROGRESS: a connection to
 * the keeper is being made.
 */
static int
spawn_process(const gstore_spawner *spawner, slot *s)
{
	const bool	session = s->request.kind == GSTORE_SPAWN_SESSION;
	char		name[32];
	const char *arguments[2] = {session ? "session" : "compile", name};
	int			fds[GSTORE_SPAWN_FDS_MAX] = {s->connection, s->memory, -1}, error;

	snprintf(name, sizeof name, "for %d", (int) s->request.pid);
	if (session && (error = gstore_connector_take(spawner->connector, s->since_ns, &fds[2])) != 0)
		return error;
	error = gstore_process_start(spawner->program, arguments, fds, session ? 3 : 2, &s->process);
	close_fd(&fds[2]);
	return error;
}

static void
start_process(gstore_spawner *spawner, slot *s)
{
	const int error = spawn_process(spawner, s);

	if (error == EINPROGRESS)
		return;
	if (error != 0)
	{
		refuse(s, GSTORE_SPAWN_FAILED, error);
		return;
	}
	close_fd(&s->memory);
	s->state = RUNNING;
}

/*
 * The process has ended. The rest of its group is killed before waitpid(), after which the number may be reused; the backend
 * is sent how it ended before the process disappears from /proc.
 */
static void
end_process(slot *s)
{
	siginfo_t info = {0};

	kill(-s->process.pid, SIGKILL);
	(void) waitid(P_PID, (id_t) s->process.pid, &info, WEXITED | WNOWAIT);
	say_end(s, info.si_code == CLD_EXITED ? GSTORE_SPAWN_EXITED : GSTORE_SPAWN_KILLED, info.si_status);
	close_fd(&s->connection);
	(void) waitpid(s->process.pid, NULL, 0);
	free_slot(s);
}

/* ---- connections */

static bool
is_ours(int connection)
{
	struct ucred peer;
	socklen_t	 size = sizeof peer;

	return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static void
accept_connection(gstore_spawner *spawner)
{
	const int connection = accept4(spawner->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	slot	 *s = spawner->slots, *end = spawner->slots + spawner->slot_count;

	while (s < end && s->state != FREE)
		s++;
	if (connection < 0)
	{
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			usleep(PAUSE_US); /* else poll() would return at once, again and again */
		return;
	}
	if (s == end || !is_ours(connection))
	{
		close(connection);
		return;
	}
	*s = (slot){.state = GREETING,
				.connection = connection,
				.memory = -1,
				.process = {.fd = -1},
				.deadline_ns = gstore_deadline_ns(GREETING_MS)};
}

/* With exactly one file descriptor; others that came along are closed. */
static bool
receive_request(slot *s)
{
	int			  count;
	const ssize_t bytes = gstore_spawn_receive(s->connection, &s->request, &s->memory, 1, &count);

	return bytes == sizeof s->request && count == 1 && s->request.magic == GSTORE_SPAWN_MAGIC &&
		s->request.kind >= GSTORE_SPAWN_SESSION && s->request.kind <= GSTORE_SPAWN_EXECUTOR;
}

/* Kills processes whose backends have closed their connections since the last poll. */
static void
kill_abandoned(gstore_spawner *spawner)
{
	for (uint32_t i = 0; i < spawner->slot_count; i++)
	{
		slot		 *s = &spawner->slots[i];
		struct pollfd p = {s->connection, POLLRDHUP, 0};

		if (s->state == RUNNING && poll(&p, 1, 0) == 1)
		{
			gstore_process_kill(&s->process);
			s->state = ENDING;
		}
	}
}

/* From then on the connection is the executor's alone. */
static void
pass_connection(gstore_spawner *spawner, slot *s)
{
	const int error = gstore_executors_pass(&spawner->executors, &s->request, s->connection,
											s->memory, s->since_ns);

	if (error == EINPROGRESS)
		return;
	if (error != 0)
		say_end(s, GSTORE_SPAWN_FAILED, error);
	free_slot(s);
}

/* Of the same kind and role as this one. */
static uint32_t
count_own(const gstore_spawner *spawner, const slot *own, state first)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < spawner->slot_count; i++)
	{
		const slot *s = &spawner->slots[i];

		if (s->state >= first && s->state <= RUNNING && s->request.kind == own->request.kind &&
			s->request.role == own->request.role)
			count++;
	}
	return count;
}

/* Whether there is a place for the session or the text, which is counted. False: why not. */
static bool
has_place(const gstore_spawner *spawner, const slot *s, gstore_spawn_end *end, int *number)
{
	const uint32_t most = s->request.kind == GSTORE_SPAWN_SESSION ? spawner->sessions_max
																  : GSTORE_SPAWN_TEXTS_MAX;
	const uint32_t all = count_slots(spawner, s->request.kind, WAITING, RUNNING);
	const uint32_t own = count_own(spawner, s, WAITING);

	*end = all > most ? GSTORE_SPAWN_FULL : GSTORE_SPAWN_SHARE;
	*number = (int) (*end == GSTORE_SPAWN_FULL ? most : own - 1);
	return all <= most && (own == 1 || own <= GSTORE_SPAWN_A_FREE_ONE * (most - all));
}

/* A session or a text is refused, and does not wait, where all places are taken, or those that its role may have. */
static void
greet(gstore_spawner *spawner, slot *s)
{
	gstore_spawn_end end;
	int				 number;

	/* The worker waits in its reads. */
	if (!receive_request(s) || fcntl(s->connection, F_SETFL, 0) != 0)
	{
		free_slot(s);
		return;
	}
	if (s->request.kind != GSTORE_SPAWN_EXECUTOR && spawner->program == NULL)
	{
		refuse(s, GSTORE_SPAWN_FAILED, ENOENT);
		return;
	}
	s->state = WAITING;
	s->since_ns = gstore_now_ns();
	s->deadline_ns = gstore_deadline_ns(ENDING_MS);
	if (s->request.kind == GSTORE_SPAWN_EXECUTOR)
		return;
	if (!has_place(spawner, s, &end, &number))
		kill_abandoned(spawner);
	if (!has_place(spawner, s, &end, &number))
		refuse(s, end, number);
}

/*
 * A session needs memory of the device for its context: it waits for that of processes that have been killed, which is free
 * when they are gone. One that the driver does not let end is not waited for longer than ENDING_MS.
 */
static bool
can_start_session(const gstore_spawner *spawner, const slot *s)
{
	return count_slots(spawner, GSTORE_SPAWN_SESSION, RUNNING, ENDING) < spawner->sessions_max &&
		(count_slots(spawner, GSTORE_SPAWN_SESSION, ENDING, ENDING) == 0 ||
		 gstore_now_ns() >= s->deadline_ns);
}

/* Texts of roles that have fewer compilers come first. */
static bool
can_start_compiler(const gstore_spawner *spawner, const slot *s)
{
	const uint32_t own = count_own(spawner, s, RUNNING);

	if (count_slots(spawner, GSTORE_SPAWN_COMPILE, RUNNING, ENDING) >= COMPILERS_MAX)
		return false;
	for (uint32_t i = 0; i < spawner->slot_count && own > 0; i++)
	{
		const slot *other = &spawner->slots[i];

		if (other->state == WAITING && other->request.kind == GSTORE_SPAWN_COMPILE &&
			count_own(spawner, other, RUNNING) < own)
			return false;
	}
	return true;
}

static bool
can_start(const gstore_spawner *spawner, const slot *s)
{
	return s->request.kind == GSTORE_SPAWN_SESSION ? can_start_session(spawner, s)
												   : can_start_compiler(spawner, s);
}

static void
start_waiting(gstore_spawner *spawner)
{
	for (uint32_t i = 0; i < spawner->slot_count; i++)
	{
		slot *s = &spawner->slots[i];

		if (s->state == WAITING && s->request.kind == GSTORE_SPAWN_EXECUTOR)
			pass_connection(spawner, s);
		else if (s->state == WAITING && can_start(spawner, s))
			start_process(spawner, s);
	}
}

/* ---- the thread */

static int
prepare_poll(gstore_spawner *spawner)
{
	int timeout = gstore_executors_prepare(&spawner->executors, spawner->polled + EXECUTORS_AT)
		? LOOK_MS
		: -1;

	spawner->polled[0] = (struct pollfd){spawner->stop[0], 0, 0}; /* POLLHUP comes unasked */
	spawner->polled[1] = (struct pollfd){spawner->listener, POLLIN, 0};
	spawner->polled[2] = (struct pollfd){gstore_connector_event(spawner->connector), POLLIN, 0};
	for (uint32_t i = 0; i < spawner->slot_count; i++)
	{
		const slot	  *s = &spawner->slots[i];
		struct pollfd *p = spawner->polled + SLOTS_AT + 2 * i;

		p[0] = (struct pollfd){s->state == FREE || s->state == ENDING ? -1 : s->connection,
							   s->state == GREETING ? POLLIN : POLLRDHUP, 0};
		p[1] = (struct pollfd){s->state >= RUNNING ? s->process.fd : -1, POLLIN, 0};
		if (s->state == GREETING || s->state == WAITING)
			timeout = LOOK_MS;
	}
	return timeout;
}

/* poll() refuses more entries than a process may have descriptors, and counts those without one, too. */
static int
poll_used(gstore_spawner *spawner, int timeout)
{
	const uint32_t count = SLOTS_AT + 2 * spawner->slot_count;
	uint32_t	   used = 0;
	int			   ready;

	for (uint32_t i = 0; i < count; i++)
		if (spawner->polled[i].fd >= 0)
			spawner->used[used++] = spawner->polled[i];
	ready = poll(spawner->used, used, timeout);
	for (uint32_t i = count; i-- > 0;)
		if (spawner->polled[i].fd >= 0)
			spawner->polled[i].revents = spawner->used[--used].revents;
	return ready;
}

static void
look_at_slot(gstore_spawner *spawner, slot *s, const struct pollfd *p)
{
	const bool gone = (p[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;

	if (s->state == GREETING && (p[0].revents & POLLIN) != 0)
		greet(spawner, s);
	else if (s->state == GREETING && (gone || gstore_now_ns() >= s->deadline_ns))
		free_slot(s);
	else if (s->state == WAITING && gone)
		free_slot(s);
	else if (s->state >= RUNNING && p[1].revents != 0)
		end_process(s);
	else if (s->state == RUNNING && gone)
	{
		gstore_process_kill(&s->process);
		s->state = ENDING;
	}
}

/* From then on connections are refused, so that statements use their local plans. */
static void
end_all(gstore_spawner *spawner)
{
	(void) unlink(GSTORE_SPAWN_SOCKET);
	close_fd(&spawner->listener);
	for (uint32_t i = 0; i < spawner->slot_count; i++)
	{
		slot *s = &spawner->slots[i];

		if (s->state >= RUNNING)
		{
			gstore_process_kill(&s->process);
			gstore_process_forget(&s->process);
		}
		free_slot(s);
	}
	gstore_executors_end(&spawner->executors);
}

static void *
spawner_main(void *argument)
{
	gstore_spawner *spawner = argument;

	while ((spawner->polled[0].revents & (POLLHUP | POLLERR)) == 0)
	{
		if (poll_used(spawner, prepare_poll(spawner)) < 0)
		{
			if (errno == EINTR || errno == EAGAIN || errno == ENOMEM)
				continue;
			fprintf(stderr,
					"gstore_fdw: queries and functions in the language plcuda no longer run on the GPU: cannot wait for connections: %s\n",
					strerror(errno));
			break;
		}
		if ((spawner->polled[2].revents & POLLIN) != 0)
			gstore_connector_clear(spawner->connector);
		/* First: with a connection another executor may be started. */
		gstore_executors_look(&spawner->executors, spawner->polled + EXECUTORS_AT);
		for (uint32_t i = 0; i < spawner->slot_count; i++)
			look_at_slot(spawner, &spawner->slots[i], spawner->polled + SLOTS_AT + 2 * i);
		start_waiting(spawner);
		if ((spawner->polled[1].revents & POLLIN) != 0)
			accept_connection(spawner);
	}
	end_all(spawner);
	return NULL;
}

/* ---- life */

static gvm_status
listen_at(const char *path, int *out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int		   fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return gvm_error_set(GVM_E_SYSTEM, "cannot make a socket: %s", strerror(errno));
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	(void) unlink(path);
	/* Other users cannot enter the folder, and each connection's user is checked. */
	if (bind(fd, (const struct sockaddr *) &address, sizeof address) != 0 ||
		chmod(path, 0600) != 0 || listen(fd, WAITING_MAX) != 0)
	{
		const int error = errno;

		close(fd);
		return gvm_error_set(GVM_E_SYSTEM, "cannot listen at %s: %s", path, strerror(error));
	}
	*out = fd;
	return GVM_OK;
}

static void
free_spawner(gstore_spawner *spawner)
{
	close_fd(&spawner->listener);
	close_fd(&spawner->stop[0]);
	close_fd(&spawner->stop[1]);
	gstore_connector_stop(spawner->connector);
	free(spawner->program);
	free(spawner->executor);
	free(spawner->slots);
	free(spawner->polled);
	free(spawner->used);
	free(spawner);
}

gvm_status
gstore_spawner_start(const char *program, const char *executor, const char *keeper,
					 uint32_t sessions_max, gstore_spawner **out)
{
	gstore_spawner *spawner = calloc(1, sizeof *spawner);
	gvm_status		status = GVM_E_NOMEM;
	int				error;

	if (spawner == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for GPU workers");
	spawner->listener = spawner->stop[0] = spawner->stop[1] = -1;
	spawner->sessions_max = sessions_max;
	spawner->slot_count = sessions_max + GSTORE_SPAWN_TEXTS_MAX + WAITING_MAX;
	spawner->program = program != NULL ? strdup(program) : NULL;
	spawner->executor = executor != NULL ? strdup(executor) : NULL;
	spawner->slots = calloc(spawner->slot_count, sizeof *spawner->slots);
	spawner->polled = calloc(SLOTS_AT + 2 * (size_t) spawner->slot_count, sizeof *spawner->polled);
	spawner->used = calloc(SLOTS_AT + 2 * (size_t) spawner->slot_count, sizeof *spawner->used);
	if ((spawner->program == NULL) != (program == NULL) ||
		(spawner->executor == NULL) != (executor == NULL) || spawner->slots == NULL ||
		spawner->polled == NULL || spawner->used == NULL)
	{
		status = gvm_error_set(GVM_E_NOMEM, "out of host memory for GPU workers");
		goto fail;
	}
	for (uint32_t i = 0; i < spawner->slot_count; i++)
		spawner->slots[i].connection = spawner->slots[i].memory = spawner->slots[i].process.fd = -1;
	if (pipe2(spawner->stop, O_CLOEXEC) != 0)
	{
		status = gvm_error_set(GVM_E_SYSTEM, "cannot make a pipe: %s", strerror(errno));
		goto fail;
	}
	status = listen_at(GSTORE_SPAWN_SOCKET, &spawner->listener);
	if (status != GVM_OK)
		goto fail;
	error = gstore_connector_start(keeper, &spawner->connector);
	gstore_executors_init(&spawner->executors, spawner->executor, spawner->connector);
	if (error == 0)
		error = gstore_thread_start(&spawner->thread, spawner_main, spawner);
	if (error != 0)
	{
		status = gvm_error_set(GVM_E_SYSTEM, "cannot start a thread: %s", strerror(error));
		goto fail;
	}
	*out = spawner;
	return GVM_OK;
fail:
	free_spawner(spawner);
	return status;
}

void
gstore_spawner_stop(gstore_spawner *spawner)
{
	if (spawner == NULL)
		return;
	close_fd(&spawner->stop[1]);
	pthread_join(spawner->thread, NULL);
	free_spawner(spawner);
}
