/* See spawn_process.h. */
#include "postgres/spawn_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* File descriptors for the process, with numbers above those that it has: no move overwrites what is moved next. */
typedef struct inherited
{
	uint32_t count;
	int		 fds[GSTORE_SPAWN_FDS_MAX];
} inherited;

static void
close_inherited(inherited *i)
{
	while (i->count > 0)
		close(i->fds[--i->count]);
}

static int
collect_inherited(const int *fds, uint32_t count, inherited *i)
{
	while (i->count < count)
	{
		const int above = fcntl(fds[i->count], F_DUPFD_CLOEXEC,
								GSTORE_SPAWN_FIRST + GSTORE_SPAWN_FDS_MAX);

		if (above < 0)
			return errno;
		i->fds[i->count++] = above;
	}
	return 0;
}

/* actions, attributes: initialised. */
static int
describe_process(const inherited *i, posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes)
{
	sigset_t none, all;
	int		 error = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);

	sigemptyset(&none);
	sigfillset(&all);
	for (uint32_t n = 0; n < i->count && error == 0; n++)
		error = posix_spawn_file_actions_adddup2(actions, i->fds[n], GSTORE_SPAWN_FIRST + (int) n);
	if (error == 0 && (error = posix_spawnattr_setsigmask(attributes, &none)) == 0 &&
		(error = posix_spawnattr_setsigdefault(attributes, &all)) == 0 &&
		(error = posix_spawnattr_setpgroup(attributes, 0)) == 0)
		error = posix_spawnattr_setflags(
			attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	return error;
}

static int
spawn(const char *program, const char *const arguments[2], const inherited *i, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t		   attributes;
	char					   parent[16];
	char *all[] = {(char *) program, (char *) arguments[0], (char *) arguments[1], parent, NULL};
	int	  error = posix_spawn_file_actions_init(&actions);

	if (error != 0)
		return error;
	snprintf(parent, sizeof parent, "%d", (int) getpid());
	error = posix_spawnattr_init(&attributes);
	if (error == 0)
	{
		error = describe_process(i, &actions, &attributes);
		if (error == 0)
			error = posix_spawn(pid, program, &actions, &attributes, all, environ);
		posix_spawnattr_destroy(&attributes);
	}
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

int
gstore_process_start(const char *program, const char *const arguments[2], const int *fds,
					 uint32_t count, gstore_process *out)
{
	inherited	   i = {0};
	gstore_process p;
	int			   error = collect_inherited(fds, count, &i);

	if (error == 0)
		error = spawn(program, arguments, &i, &p.pid);
	close_inherited(&i);
	if (error != 0)
		return error;
	p.fd = (int) syscall(SYS_pidfd_open, p.pid, 0);
	if (p.fd < 0)
	{
		error = errno;
		kill(-p.pid, SIGKILL);
		kill(p.pid, SIGKILL);
		waitpid(p.pid, NULL, 0);
		return error;
	}
	*out = p;
	return 0;
}

void
gstore_process_kill(const gstore_process *p)
{
	/* Its number is not reused before waitpid(). */
	kill(-p->pid, SIGKILL);
	(void) syscall(SYS_pidfd_send_signal, p->fd, SIGKILL, NULL, 0);
}

void
gstore_process_forget(gstore_process *p)
{
	(void) waitpid(p->pid, NULL, WNOHANG); /* else a zombie stays while this process runs */
	close(p->fd);
	p->fd = -1;
}
