/* examples/processes.h - a program that starts itself again, several times, and speaks with each over a socket. */
#ifndef EXAMPLES_PROCESSES_H
#define EXAMPLES_PROCESSES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"

#define CONTROL 3 /* the socket, in a process that was started */
#define ARGUMENTS 4

typedef struct process {
    pid_t pid;
    int control;
} process;

/* ---- in a process that was started */

static inline void say(const void *bytes, size_t len)
{
    if (write(CONTROL, bytes, len) != (ssize_t)len)
        give_up("the keeper's process is gone");
}

static inline void wait_for_word(void)
{
    char word;

    if (read(CONTROL, &word, 1) != 1)
        exit(0);
}

/* ---- in the one that starts them */

/* With four arguments, and its number. A program started anew, and not just a fork: a CUDA driver does not survive a fork. */
static inline process start_process(char *arguments[ARGUMENTS], int number)
{
    char text[16];
    int ends[2];
    process p;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        give_up("cannot make a socket");
    snprintf(text, sizeof text, "%d", number);
    p = (process){fork(), ends[0]};
    if (p.pid == 0) {
        dup2(ends[1], CONTROL);
        fcntl(CONTROL, F_SETFD, 0); /* also where it was that one */
        execl("/proc/self/exe", "process", arguments[0], arguments[1], arguments[2], arguments[3],
              text, (char *)NULL);
        _exit(127);
    }
    if (p.pid < 0)
        give_up("cannot start a process");
    close(ends[1]);
    return p;
}

static inline void tell(const process *p, int count)
{
    for (int i = 0; i < count; i++)
        if (write(p[i].control, "", 1) != 1)
            give_up("a process is gone");
}

static inline void hear(const process *p, void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        const ssize_t got = read(p->control, (char *)bytes + done, len - done);

        if (got <= 0)
            give_up("a process is gone");
        done += (size_t)got;
    }
}

static inline void hear_all(const process *p, int count)
{
    char word;

    for (int i = 0; i < count; i++)
        hear(&p[i], &word, 1);
}

/* Waits for their ends; 0: all were good. */
static inline int end_processes(const process *p, int count)
{
    int failed = 0, status;

    for (int i = 0; i < count; i++)
        failed |= waitpid(p[i].pid, &status, 0) < 0 || status != 0;
    return failed;
}

#endif
