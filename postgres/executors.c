/* See executors.h. */
#include "postgres/executors.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "postgres/clock.h"

void
gstore_executors_init(gstore_executors *executors, const char *program, gstore_connector *connector)
{
	executors->program = program;
	executors->connector = connector;
	for (int i = 0; i < GSTORE_EXECUTORS_MAX; i++)
		executors->all[i] = (gstore_executor){.control = -1, .process = {.fd = -1}};
}

/* ---- processes */

static int
start(const gstore_executors *executors, int32_t device, int64_t since_ns, gstore_executor *e)
{
	char		name[16];
	const char *arguments[2] = {name, "for queries"};
	int			ends[2], fds[3], error;

	error = gstore_connector_take(executors->connector, since_ns, &fds[1]);
	if (error != 0)
		return error;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
	{
		error = errno;
		close(fds[1]);
		return error;
	}
	fds[0] = ends[1];
	error = gstore_connector_connect(executors->connector, &fds[2]);
	snprintf(name, sizeof name, "%d", (int) device);
	if (error == 0)
	{
		error = gstore_process_start(executors->program, arguments, fds, 3, &e->process);
		close(fds[2]);
	}
	close(fds[1]);
	close(ends[1]);
	if (error != 0)
	{
		close(ends[0]);
		return error;
	}
	e->device = device;
	e->control = ends[0];
	e->deadline_ns = gstore_deadline_ns(GSTORE_SPAWN_HANG_MS);
	return 0;
}

/* Its connections end with it, or earlier if it closes them. */
static void
end(gstore_executor *e)
{
	if (e->control >= 0)
		close(e->control);
	e->control = -1;
	gstore_process_kill(&e->process);
}

/* The process has ended. */
static void
forget(gstore_executor *e)
{
	end(e); /* the rest of its group, before its number may be reused */
	gstore_process_forget(&e->process);
}

/* The device's, started if there is none; one that is being killed does not count. */
static int
find_or_start(gstore_executors *executors, int32_t device, int64_t since_ns, gstore_executor **out)
{
	gstore_executor *unused = NULL;

	for (int i = 0; i < GSTORE_EXECUTORS_MAX; i++)
	{
		gstore_executor *e = &executors->all[i];

		*out = e;
		if (e->control >= 0 && e->device == device)
			return 0;
		if (e->process.fd < 0)
			unused = e;
	}
	*out = unused;
	if (executors->program == NULL)
		return ENOENT;
	return unused == NULL ? EAGAIN : start(executors, device, since_ns, unused);
}

/* ---- connections */

static int
send_request(const gstore_executor *e, const gstore_spawn_request *request, const int fds[2])
{
	return gstore_spawn_send(e->control, request, fds, 2, MSG_DONTWAIT) < 0 ? errno : 0;
}

int
gstore_executors_pass(gstore_executors *executors, const gstore_spawn_request *request,
					  int connection, int memory, int64_t since_ns)
{
	const int		 fds[2] = {connection, memory};
	gstore_executor *e;
	int				 error;

	if (request->device < 0)
		return EINVAL;
	error = find_or_start(executors, request->device, since_ns, &e);
	if (error == 0)
		error = send_request(e, request, fds);
	if (error != EPIPE && error != ECONNRESET)
		return error;
	/* It has ended since: so another one is started. */
	end(e);
	error = find_or_start(executors, request->device, since_ns, &e);
	return error == 0 ? send_request(e, request, fds) : error;
}

/* ---- watching */

bool
gstore_executors_prepare(const gstore_executors *executors, struct pollfd *polled)
{
	bool any = false;

	for (int i = 0; i < GSTORE_EXECUTORS_MAX; i++)
	{
		polled[2 * i] = (struct pollfd){executors->all[i].control, POLLIN, 0};
		polled[2 * i + 1] = (struct pollfd){executors->all[i].process.fd, POLLIN, 0};
		any = any || executors->all[i].control >= 0;
	}
	return any;
}

/* False: it has closed its end. */
static bool
read_beats(gstore_executor *e)
{
	gstore_spawn_beat beat;
	ssize_t			  bytes;

	while ((bytes = recv(e->control, &beat, sizeof beat, MSG_DONTWAIT)) > 0)
		if (bytes == (ssize_t) sizeof beat && beat.still_ms >= 0)
			e->deadline_ns = gstore_deadline_ns(GSTORE_SPAWN_HANG_MS - beat.still_ms);
	return bytes < 0 && (errno == EAGAIN || errno == EINTR);
}

void
gstore_executors_look(gstore_executors *executors, const struct pollfd *polled)
{
	for (int i = 0; i < GSTORE_EXECUTORS_MAX; i++)
	{
		gstore_executor *e = &executors->all[i];

		if (e->process.fd >= 0 && polled[2 * i + 1].fd == e->process.fd &&
			polled[2 * i + 1].revents != 0)
			forget(e);
		else if (e->control >= 0 && polled[2 * i].fd == e->control && polled[2 * i].revents != 0 &&
				 !read_beats(e))
			end(e);
		else if (e->control >= 0 && gstore_now_ns() >= e->deadline_ns)
		{
			fprintf(stderr,
					"gstore_fdw: the executor of queries of GPU %d has not moved for %d s, and is killed\n",
					(int) e->device, GSTORE_SPAWN_HANG_MS / 1000);
			end(e);
		}
	}
}

void
gstore_executors_end(gstore_executors *executors)
{
	for (int i = 0; i < GSTORE_EXECUTORS_MAX; i++)
		if (executors->all[i].process.fd >= 0)
			forget(&executors->all[i]);
}
