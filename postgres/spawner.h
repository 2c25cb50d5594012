/*
 * postgres/spawner.h - starts GPU worker processes and executors of queries for backends, watches them, and ends them.
 *
 * A backend connects to the socket and sends one gstore_spawn_request with a file descriptor, that of a memory
 * file. The spawner starts the program with the connection as descriptor 3 and the memory file as 4: from then
 * on backend and worker talk over it, and the spawner only watches. A worker of a session has a connection to
 * the keeper as descriptor 5, which is restricted before the program starts (gvm_client_restrict()): it opens
 * what a token leads to, and nothing else. The worker is killed at once when the backend closes its end, as it
 * does at a cancel, a time limit, or its own end. When the worker has ended, for whatever reason, the backend
 * reads a gstore_spawn_ended, and then the end of file.
 *
 * An executor (query/executor.c) is one process for all backends' queries on a device. GSTORE_SPAWN_EXECUTOR asks for a
 * connection to it: the spawner starts it if there is none, passes the request's connection and memory file on to it over its
 * control connection, and closes both. The backend need not wait: it may send its first message (query/wire.h) right after
 * the request. A gstore_spawn_ended is sent only where the executor cannot be started (GSTORE_SPAWN_FAILED). The end of file
 * alone means that the executor has ended, possibly by its idle timeout before it read the first message: the backend asks
 * once more then, if the memory file says so (gquery_window.begun).
 *
 * It is a thread of the GPU memory keeper and, as all of the service, uses nothing of PostgreSQL. Workers end with it.
 * Where it cannot wait for connections any more, the log says so, they end, and connections are refused.
 */
#ifndef GSTORE_SPAWN_H
#define GSTORE_SPAWN_H

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gvmem/status.h>

#define GSTORE_SPAWN_SOCKET	 "pg_stat_tmp/gstore_spawn.sock" /* in the data directory */
#define GSTORE_SPAWN_PROGRAM "plcuda/gstore-gpu-worker"		 /* beside the library */
/* Device memory of a worker of a session, beside its buffers: its context. bench/bench-plcuda.py measures it. */
#define GSTORE_SPAWN_CONTEXT_BYTES (600ull << 20)
#define GSTORE_SPAWN_MAGIC		   0x776f7267u
#define GSTORE_SPAWN_A_FREE_ONE	   3
#define GSTORE_SPAWN_TEXTS_MAX	   64
#define GSTORE_SPAWN_CONNECTION	   3 /* file descriptors of the worker */
#define GSTORE_SPAWN_MEMORY		   4
#define GSTORE_SPAWN_KEEPER		   5 /* of a session */
/*
 * An executor has instead of these a connection to the spawner, over which it receives requests, each with two descriptors, that
 * of the backend's connection and that of its memory file; and sends a gstore_spawn_beat at least each GSTORE_SPAWN_BEAT_MS. It is
 * killed after GSTORE_SPAWN_HANG_MS without one, or in which one of its queries has not gone on.
 */
#define GSTORE_SPAWN_CONTROL		  3
#define GSTORE_SPAWN_EXECUTOR_KEEPER  4 /* restricted, for tables */
#define GSTORE_SPAWN_EXECUTOR_OBJECTS 5 /* for objects of its own */
#define GSTORE_SPAWN_BEAT_MS		  5000
#define GSTORE_SPAWN_HANG_MS		  30000
#define GSTORE_EXECUTORS_MAX		  32 /* at a time */

typedef struct gstore_spawn_beat
{
	int32_t still_ms; /* for how long the query that went on before all others has not */
} gstore_spawn_beat;

typedef enum gstore_spawn_kind
{
	/*
	 * Runs functions of one session; at most sessions_max at a time. Of these a role has one, or more as long as they are at most
	 * GSTORE_SPAWN_A_FREE_ONE times as many as are free: so there is one for a role that comes later.
	 */
	GSTORE_SPAWN_SESSION = 1,
	/* Compiles one text; others wait until one is done: GSTORE_SPAWN_TEXTS_MAX, shared by roles in the same way. */
	GSTORE_SPAWN_COMPILE,
	GSTORE_SPAWN_EXECUTOR, /* a connection to the executor of a device */
} gstore_spawn_kind;

typedef struct gstore_spawn_request
{
	uint32_t magic;
	uint32_t kind;
	int32_t	 pid; /* of the backend, for the worker's name */
	union
	{
		int32_t	 device; /* of GSTORE_SPAWN_EXECUTOR: the ordinal, as gvm_table_info has it */
		uint32_t role;	 /* of the others: the session's user */
	};
} gstore_spawn_request;

/* As sendmsg() with these flags and no SIGPIPE, with two descriptors at most. */
static inline ssize_t
gstore_spawn_send(int socket, const gstore_spawn_request *request, const int *fds, uint32_t count,
				  int flags)
{
	union
	{
		struct cmsghdr head;
		char		   bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = {{0}};
	struct iovec	part = {(void *) (uintptr_t) request, sizeof *request};
	struct msghdr	message = {.msg_iov = &part,
							   .msg_iovlen = 1,
							   .msg_control = control.bytes,
							   .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(head), fds, count * sizeof(int));
	return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

/*
 * As recvmsg() without waiting. *count: how many descriptors came along; the first most of them, four at most, are in fds, and
 * the others are closed.
 */
static inline ssize_t
gstore_spawn_receive(int socket, gstore_spawn_request *request, int *fds, int most, int *count)
{
	union
	{
		struct cmsghdr head;
		char		   bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec	part = {request, sizeof *request};
	struct msghdr	message = {.msg_iov = &part,
							   .msg_iovlen = 1,
							   .msg_control = control.bytes,
							   .msg_controllen = sizeof control.bytes};
	const ssize_t	bytes = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *head = bytes >= 0 ? CMSG_FIRSTHDR(&message) : NULL;

	*count = 0;
	for (; head != NULL; head = CMSG_NXTHDR(&message, head))
		if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
			for (size_t at = 0; at + sizeof(int) <= head->cmsg_len - CMSG_LEN(0); at += sizeof(int))
			{
				int fd;

				memcpy(&fd, CMSG_DATA(head) + at, sizeof fd);
				if (*count < most)
					fds[*count] = fd;
				else
					close(fd);
				(*count)++;
			}
	return bytes;
}

typedef enum gstore_spawn_end
{
	GSTORE_SPAWN_EXITED = 1, /* number: its status */
	GSTORE_SPAWN_KILLED,	 /* number: the signal */
	GSTORE_SPAWN_FULL,		 /* it was not started: so many run or wait; number: the limit */
	GSTORE_SPAWN_FAILED,	 /* it could not be started; number: errno */
	GSTORE_SPAWN_SHARE, /* it was not started: so many others of the role run or wait, its share; number: how many */
} gstore_spawn_end;

typedef struct gstore_spawn_ended
{
	uint32_t magic;
	uint32_t end;
	int32_t	 number;
} gstore_spawn_ended;

typedef struct gstore_spawner gstore_spawner;

/*
 * program, executor: paths of the programs of workers and of executors; NULL: there is none. keeper: of its socket.
 * sessions_max: of GSTORE_SPAWN_SESSION.
 */
gvm_status gstore_spawner_start(const char *program, const char *executor, const char *keeper,
								uint32_t sessions_max, gstore_spawner **out);

/* Kills all workers and executors, and does not wait for their memory. NULL is ignored. */
void gstore_spawner_stop(gstore_spawner *spawner);

#endif
