/* See connector.h. Lock: `lock` guards all but what never changes; no system call that waits is made under it. */
#include "postgres/connector.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <gvmem/client.h>

#include "postgres/clock.h"
#include "postgres/thread.h"

#define FRESH_MS \
	1000 /* one that nobody has taken for so long is not used: the keeper may have closed it */

struct gstore_connector
{
	pthread_t		thread;
	char		   *keeper;
	int				event;
	pthread_mutex_t lock;
	pthread_cond_t	changed; /* wanted, or stopped */
	bool			wanted, stopped;
	int				fd; /* -1: there is none */
	int				error;
	int64_t			made_ns, failed_ns; /* fd, error; 0: none */
};

/* -1, and errno. */
static int
connect_restricted(const char *path)
{
	const struct timeval limit = {.tv_sec = GSTORE_KEEPER_WAIT_S};
	struct sockaddr_un	 address = {.sun_family = AF_UNIX};
	const int			 fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int					 error = 0;
	gvm_status			 status;

	if (fd < 0)
		return -1;
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
		connect(fd, (const struct sockaddr *) &address, sizeof address) != 0)
		error = errno;
	else if ((status = gvm_client_restrict(fd)) != GVM_OK)
		error = status == GVM_E_TIMEOUT ? ETIMEDOUT : ECONNREFUSED;
	if (error == 0)
		return fd;
	close(fd);
	errno = error;
	return -1;
}

/* ---- the thread. The lock is held, but while it connects */

static void
connect_once(gstore_connector *c)
{
	const uint64_t one = 1;
	int			   fd, error;

	pthread_mutex_unlock(&c->lock);
	fd = connect_restricted(c->keeper);
	error = errno;
	pthread_mutex_lock(&c->lock);
	c->wanted = false;
	if (fd >= 0)
	{
		c->fd = fd;
		c->made_ns = gstore_now_ns();
	}
	else
	{
		c->error = error;
		c->failed_ns = gstore_now_ns();
	}
	(void) !write(c->event, &one, sizeof one);
}

static void *
connector_main(void *argument)
{
	gstore_connector *c = argument;

	pthread_mutex_lock(&c->lock);
	while (!c->stopped)
		if (c->wanted)
			connect_once(c);
		else
			pthread_cond_wait(&c->changed, &c->lock);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- the spawner's side */

static void
drop_connection(gstore_connector *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

int
gstore_connector_take(gstore_connector *c, int64_t since_ns, int *out)
{
	int error = EINPROGRESS;

	pthread_mutex_lock(&c->lock);
	if (c->fd >= 0 && gstore_now_ns() - c->made_ns > FRESH_MS * GSTORE_NS_PER_MS)
		drop_connection(c);
	if (c->fd >= 0)
	{
		*out = c->fd;
		c->fd = -1;
		error = 0;
	}
	else if (c->failed_ns >= since_ns)
		error = c->error;
	else if (!c->wanted)
	{
		c->wanted = true;
		pthread_cond_signal(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
	return error;
}

int
gstore_connector_event(const gstore_connector *c)
{
	return c->event;
}

void
gstore_connector_clear(const gstore_connector *c)
{
	uint64_t times;

	(void) !read(c->event, &times, sizeof times);
}

int
gstore_connector_connect(const gstore_connector *c, int *out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int		   fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int				   error = 0;

	if (fd < 0)
		return errno;
	snprintf(address.sun_path, sizeof address.sun_path, "%s", c->keeper);
	if (connect(fd, (const struct sockaddr *) &address, sizeof address) != 0 ||
		fcntl(fd, F_SETFL, 0) != 0)
		error = errno;
	if (error != 0)
		close(fd);
	else
		*out = fd;
	return error;
}

/* ---- life */

static void
free_connector(gstore_connector *c)
{
	drop_connection(c);
	if (c->event >= 0)
		close(c->event);
	free(c->keeper);
	free(c);
}

int
gstore_connector_start(const char *keeper, gstore_connector **out)
{
	gstore_connector *c = calloc(1, sizeof *c);
	int				  error;

	if (c == NULL)
		return ENOMEM;
	c->fd = -1;
	c->failed_ns = -1;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	c->keeper = strdup(keeper);
	c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	error = c->keeper == NULL ? ENOMEM
		: c->event < 0		  ? errno
							  : gstore_thread_start(&c->thread, connector_main, c);
	if (error == 0)
		*out = c;
	else
		free_connector(c);
	return error;
}

void
gstore_connector_stop(gstore_connector *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	c->stopped = true;
	pthread_cond_signal(&c->changed);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	free_connector(c);
}
