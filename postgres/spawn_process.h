/*
 * postgres/spawn_process.h - processes that the spawner starts: each a group of its own, known by its pidfd, so that no signal
 * reaches another one.
 */
#ifndef GSTORE_SPAWN_PROCESS_H
#define GSTORE_SPAWN_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

#define GSTORE_SPAWN_FIRST \
	3 /* the number of the first descriptor that a process has beside the standard ones */
#define GSTORE_SPAWN_FDS_MAX 3

typedef struct gstore_process
{
	pid_t pid;
	int	  fd; /* pidfd; -1: there is none */
} gstore_process;

/*
 * Starts a program with two arguments and, as the third, this process's number. It has duplicates of the descriptors, from
 * GSTORE_SPAWN_FIRST on. 0, or an errno.
 */
extern int gstore_process_start(const char *program, const char *const arguments[2], const int *fds,
								uint32_t count, gstore_process *out);

/* Its group too: a compiler has children. */
extern void gstore_process_kill(const gstore_process *p);

/* After its end, or a kill: collects its status if it is there, and closes the descriptor. */
extern void gstore_process_forget(gstore_process *p);

#endif
