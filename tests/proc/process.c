/* See process.h. */
#include "tests/proc/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fixture.h"

#define LEDGER_LOCK_BYTE (1ll << 40) /* softgpu/ledger.c */
#define LEDGER_WAIT_MS 50 /* sections take microseconds; a stopped holder's does not end */
#define STOP_TRIES 100

bool process_become(uid_t uid, gid_t gid)
{
    return setgroups(0, NULL) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0;
}

fd_counts process_count_fds(pid_t pid, bool print)
{
    char path[64], what[300];
    fd_counts counts = {0, 0};
    struct dirent *entry;
    DIR *folder;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const ssize_t len = readlinkat(dirfd(folder), entry->d_name, what, sizeof what - 1);
        bool memory;

        if (len < 0)
            continue;
        what[len] = '\0';
        memory = strncmp(what, "/memfd:gvmem-softgpu:", 21) == 0 ||
                 strncmp(what, "/dev/nvidia", 11) == 0;
        counts.memory += memory;
        counts.others += !memory;
        if (print)
            printf("#   %s %s\n", entry->d_name, what);
    }
    if (folder != NULL)
        closedir(folder);
    return counts;
}

/* Of the instance that GVMEM_SOFTGPU names; -1: there is none. */
static int open_ledger(void)
{
    const char *machine = getenv("GVMEM_SOFTGPU");
    const char *instance = machine != NULL ? strstr(machine, "instance=") : NULL;
    char path[200];

    if (instance == NULL)
        return -1;
    instance += strlen("instance=");
    snprintf(path, sizeof path, "/dev/shm/gvmem-softgpu-%.*s", (int)strcspn(instance, ","), instance);
    return open(path, O_RDWR | O_CLOEXEC);
}

bool process_may_stay_stopped(void)
{
    const int fd = open_ledger();
    bool free_now = fd < 0;

    for (int ms = 0; ms < LEDGER_WAIT_MS && !free_now; ms++) {
        struct flock range = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LEDGER_LOCK_BYTE, .l_len = 1};

        free_now = fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type == F_UNLCK;
        if (!free_now)
            pause_ms(1);
    }
    if (fd >= 0)
        close(fd);
    return free_now;
}

bool process_stop(pid_t pid)
{
    siginfo_t info;

    for (int i = 0; i < STOP_TRIES; i++) {
        if (kill(pid, SIGSTOP) != 0)
            return false;
        while (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR)
            ;
        if (process_may_stay_stopped())
            return true;
        kill(pid, SIGCONT);
        pause_ms(1);
    }
    return false;
}
