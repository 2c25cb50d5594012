/* tests/lib/child.h - processes that do what the test commands.
 *
 * A child is this very program, executed again, that reads commands from a socket, does each, and
 * answers. The test decides step by step which process does what, posts commands without waiting
 * where processes are to run at once, and kills any of them at any time. Nothing sleeps: an answer
 * says that a step is done. What commands and answers are is the test's matter: a packet of a size
 * that both sides know, with at most one descriptor.
 *
 * Threads: one for each child. A child ends with the thread that started it.
 * Ownership: child_start() gives a child to the caller; child_end(), child_kill() or child_reap() ends it.
 */
#ifndef LIB_CHILD_H
#define LIB_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CHILD_LIMIT_MS 60000 /* a child that says nothing for so long, or does not end, hangs */

typedef struct child {
    pid_t pid; /* 0: none */
    int control;
    unsigned waiting;  /* commands without an answer */
    unsigned limit_ms; /* CHILD_LIMIT_MS, unless changed */
} child;

/* ---- in the test */

/* Starts the program again with the role as its first argument and more, which ends with NULL, behind
 * it. Open descriptors do not come along. 0 or an errno. */
int child_start(child *c, const char *role, const char *const more[]);
/* The same with no more arguments; the test cannot go on without the child. */
child child_must_start(const char *role);

/* A command without waiting for its answer; fd: -1, or a descriptor to come along. False if the child is
 * dead. */
bool child_post(child *c, const void *command, size_t len, int fd);

/* The answer to the oldest command without one. fd: NULL, or where a descriptor that comes with it goes,
 * -1 if there is none. NULL, or what is wrong: the process is dead, or hangs, and was killed. */
const char *child_wait(child *c, void *answer, size_t len, int *fd);

void child_kill(child *c); /* SIGKILL, and waits until it is gone */
int child_end(child *c); /* lets it finish its commands, and exit; its wait status, -1 if there is none */
int child_reap(child *c); /* it ends by itself: waits until it is gone; likewise */

/* Waits until a child with a command has stopped; false if it has answered, or ended, before. */
bool child_wait_stopped(const child *c);

/* ---- in the child */

/* Is this program a child of the role? main() asks first. */
bool child_is(int argc, char **argv, const char *role);

/* The next command, false when there is no more; the answer, false if the test is gone. */
bool child_next(void *command, size_t len, int *fd);
bool child_answer(const void *answer, size_t len, int fd);

/* For programs that hold something for a shell script: prints a line, then waits for the end of
 * standard input. */
bool child_hold(const char *line);

#endif
