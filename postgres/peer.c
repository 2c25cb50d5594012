/* See peer.h. */
#include "postgres.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "postgres/clock.h"
#include "postgres/peer.h"

#define MEMORY_BYTES_MIN (1024 * 1024)
#define SPIN_NS_PER_US	 1000
#define CONNECT_AGAIN_MS 10

/* ---- the memory file */

static void
close_fd(int *fd)
{
	if (*fd < 0)
		return;
	close(*fd);
	ReleaseExternalFD();
	*fd = -1;
}

void
gstore_peer_close(gstore_peer *peer)
{
	if (peer->bytes != NULL)
		munmap(peer->bytes, peer->len);
	peer->bytes = NULL;
	peer->len = peer->allocated = 0;
	close_fd(&peer->memory);
	close_fd(&peer->connection);
}

void
gstore_peer_disconnect(gstore_peer *peer)
{
	close_fd(&peer->connection);
}

/* What follows returns what could not be done, as errno says; NULL: it is done. */
static const char *
extend_memory(gstore_peer *peer, uint64 bytes, uint64 *found)
{
	struct stat file;

	if (fstat(peer->memory, &file) != 0)
		return "read the size of";
	*found = Max(bytes, (uint64) file.st_size);
	if (peer->allocated >= bytes)
		return NULL;
	do
		errno = posix_fallocate(peer->memory, (off_t) peer->allocated,
								(off_t) (bytes - peer->allocated));
	while (errno == EINTR);
	if (errno != 0)
		return "extend";
	peer->allocated = bytes;
	return NULL;
}

static const char *
make_memory(gstore_peer *peer)
{
	if (!AcquireExternalFD())
	{
		errno = EMFILE;
		return "create";
	}
	peer->memory = memfd_create("gstore", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (peer->memory < 0)
	{
		const int number = errno;

		ReleaseExternalFD();
		errno = number;
		return "create";
	}
	/* The other process cannot remove what is mapped here. */
	return fcntl(peer->memory, F_ADD_SEALS, F_SEAL_SHRINK) != 0 ? "seal" : NULL;
}

const char *
gstore_peer_try_map(gstore_peer *peer, uint64 bytes)
{
	const char *failed = peer->memory < 0 ? make_memory(peer) : NULL;
	void	   *mapped;

	if (failed == NULL)
		failed = extend_memory(peer, Max(bytes, MEMORY_BYTES_MIN), &bytes);
	if (failed != NULL || (peer->bytes != NULL && peer->len == bytes))
		return failed;
	mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, peer->memory, 0);
	if (mapped == MAP_FAILED)
		return "map";
	if (peer->bytes != NULL)
		munmap(peer->bytes, peer->len);
	peer->bytes = mapped;
	peer->len = bytes;
	return NULL;
}

void
gstore_peer_map(gstore_peer *peer, uint64 bytes)
{
	const char *failed = gstore_peer_try_map(peer, bytes);

	if (failed == NULL)
		return;
	if (errno == EMFILE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("too many open files for %s", peer->name),
				 errhint("Raise the server's max_files_per_process and/or \"ulimit -n\" limits.")));
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("cannot %s the memory file of %s: %m", failed, peer->name)));
}

/* ---- the connection */

static bool
send_request(const gstore_peer *peer, gstore_spawn_kind kind, int device)
{
	gstore_spawn_request request = {
		.magic = GSTORE_SPAWN_MAGIC, .kind = kind, .pid = MyProcPid, .device = device};

	if (kind != GSTORE_SPAWN_EXECUTOR)
		request.role = GetSessionUserId();
	return gstore_spawn_send(peer->connection, &request, &peer->memory, 1, 0) ==
		(ssize_t) sizeof request;
}

static bool
try_connect(gstore_peer *peer)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strlcpy(address.sun_path, GSTORE_SPAWN_SOCKET, sizeof address.sun_path);
	if (!AcquireExternalFD())
	{
		errno = EMFILE;
		return false;
	}
	peer->connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (peer->connection < 0)
	{
		ReleaseExternalFD();
		return false;
	}
	return connect(peer->connection, (const struct sockaddr *) &address, sizeof address) == 0 &&
		fcntl(peer->connection, F_SETFL, 0) == 0;
}

/* In connect() it could not be cancelled. */
static void
await_room(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, CONNECT_AGAIN_MS,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

bool
gstore_peer_connect(gstore_peer *peer, gstore_spawn_kind kind, int device)
{
	while (!try_connect(peer))
	{
		if (errno != EAGAIN)
			return false;
		gstore_peer_disconnect(peer); /* many wait to be accepted */
		await_room();
	}
	return send_request(peer, kind, device);
}

bool
gstore_peer_send(const gstore_peer *peer, const void *message, Size bytes)
{
	return send(peer->connection, message, bytes, MSG_NOSIGNAL) == (ssize_t) bytes;
}

/*
 * Sizes tell an answer from what the spawner says; a process that sends the other kind itself only ends its own call.
 */
gstore_peer_event
gstore_peer_receive(const gstore_peer *peer, gstore_peer_answer *answer)
{
	ssize_t bytes = recv(peer->connection, answer->message, answer->bytes, MSG_DONTWAIT);

	/* The other side has not read all that was sent. What it has sent itself comes after this error. */
	if (bytes < 0 && errno == ECONNRESET)
		bytes = recv(peer->connection, answer->message, answer->bytes, MSG_DONTWAIT);
	if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return GSTORE_PEER_NOTHING;
	if (bytes == (ssize_t) answer->bytes &&
		memcmp(answer->message, &answer->magic, sizeof answer->magic) == 0)
		return GSTORE_PEER_ANSWER;
	memset(&answer->ended, 0, sizeof answer->ended);
	if (bytes == (ssize_t) sizeof answer->ended)
		memcpy(&answer->ended, answer->message, sizeof answer->ended);
	return GSTORE_PEER_ENDED;
}

gstore_peer_event
gstore_peer_await(const gstore_peer *peer, int64 deadline_ns, int spin_us, gstore_peer_answer *answer)
{
	const int64 spin_ns = spin_us > 0 ? gstore_now_ns() + spin_us * SPIN_NS_PER_US : 0;

	for (;;)
	{
		int						events = WL_LATCH_SET | WL_SOCKET_READABLE | WL_EXIT_ON_PM_DEATH;
		long					wait_ms = -1;
		const gstore_peer_event event = gstore_peer_receive(peer, answer);

		if (event != GSTORE_PEER_NOTHING)
			return event;
		if (spin_ns > 0 && gstore_now_ns() < spin_ns)
			continue;
		if (deadline_ns > 0)
		{
			const int64 left_ns = deadline_ns - gstore_now_ns();

			if (left_ns <= 0)
				return GSTORE_PEER_NOTHING;
			wait_ms = (long) (left_ns / GSTORE_NS_PER_MS) + 1;
			events |= WL_TIMEOUT;
		}
		if ((WaitLatchOrSocket(MyLatch, events, peer->connection, wait_ms, PG_WAIT_EXTENSION) &
			 WL_LATCH_SET) != 0)
		{
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
	}
}

/* ---- errors that the other process reports */

int
gstore_peer_errcode(const char *state)
{
	if (strlen(state) == 5 && strspn(state, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 &&
		strncmp(state, "00", 2) != 0 && strncmp(state, "01", 2) != 0 && strncmp(state, "02", 2) != 0)
		return MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]);
	return ERRCODE_EXTERNAL_ROUTINE_EXCEPTION;
}

void
gstore_make_printable(char *text)
{
	const int len = (int) strlen(text);

	text[pg_mbcliplen(text, len, len)] = '\0';
	if (!pg_verifymbstr(text, (int) strlen(text), true))
		for (char *c = text; *c != '\0'; c++)
			if (IS_HIGHBIT_SET(*c))
				*c = '?';
}
