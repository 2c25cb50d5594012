/* tests/proc/process.h - a process seen, and changed, from outside; and its user.
 *
 * Threads: any. */
#ifndef PROC_PROCESS_H
#define PROC_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* Another user, with one group. What needs the first user's rights (the device) is opened before. */
bool process_become(uid_t uid, gid_t gid);

/* A process's descriptors: those of memory, by what the two drivers' look like, and all others. */
typedef struct fd_counts {
    long memory, others;
} fd_counts;

/* print: one line for each, too. */
fd_counts process_count_fds(pid_t pid, bool print);

/* Stops a process, and waits until it is stopped; false if it is gone. It is not stopped where it
 * holds the lock of the software GPU's ledger, on which every process of the machine waits: see softgpu/ledger.c.
 * Processes that are no child of the caller are not waited for. */
bool process_stop(pid_t pid);

/* May a process that has just stopped stay so? False: it holds that lock. */
bool process_may_stay_stopped(void);

#endif
