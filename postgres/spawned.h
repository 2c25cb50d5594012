/*
 * postgres/spawned.h - the start of a process that the spawner starts (spawn_process.h): it keeps the descriptors that it was
 * given, and ends with the spawner.
 */
#ifndef GSTORE_SPAWNED_H
#define GSTORE_SPAWNED_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "postgres/spawn_process.h"

/*
 * Closes files of the server that this process has inherited, all above the last descriptor that it was given. parent: its third
 * argument. False: the spawner has ended.
 */
static inline bool
gstore_spawned_begin(int last, const char *parent)
{
	if (syscall(SYS_close_range, (unsigned) last + 1, ~0u, 0) != 0)
		for (int fd = last + 1, end = (int) sysconf(_SC_OPEN_MAX); fd < end; fd++)
			close(fd);
	for (int fd = GSTORE_SPAWN_FIRST; fd <= last; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	/* The spawner cannot end it when it is killed itself. */
	return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == (pid_t) atol(parent);
}

#endif
