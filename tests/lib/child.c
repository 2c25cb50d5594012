#define _GNU_SOURCE
#include "tests/lib/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fixture.h"
#include "tests/lib/tap.h"

#define CONTROL_FD 3
#define MORE_MAX 6

/* ---- packets. Without a descriptor, by send() and recv(): tests count sendmsg() and recvmsg(). Not by
 * base/fds.h: tests of the driver alone, of which this is part, link to no library of the project. */

typedef union fd_room {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
} fd_room;

static bool send_packet(int control, const void *bytes, size_t len, int fd)
{
    fd_room room = {.header = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec part = {(void *)(uintptr_t)bytes, len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};

    if (fd < 0)
        return send(control, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
    memcpy(CMSG_DATA(&room.header), &fd, sizeof fd);
    return sendmsg(control, &message, MSG_NOSIGNAL) == (ssize_t)len;
}

static bool receive_packet(int control, void *bytes, size_t len, int *fd)
{
    fd_room room = {0};
    struct iovec part = {bytes, len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    ssize_t received;

    do
        received = fd == NULL ? recv(control, bytes, len, 0)
                              : recvmsg(control, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (fd != NULL) {
        *fd = -1;
        if (message.msg_controllen >= CMSG_LEN(sizeof *fd) && room.header.cmsg_type == SCM_RIGHTS)
            memcpy(fd, CMSG_DATA(&room.header), sizeof *fd);
    }
    return received == (ssize_t)len;
}

/* ---- in the test */

static int spawn(const char *const args[], int socket, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);

    if (error != 0)
        return error;
    error = posix_spawn_file_actions_adddup2(&actions, socket, CONTROL_FD);
    if (error == 0) /* a descriptor of memory that came along would keep the memory */
        error = posix_spawn_file_actions_addclosefrom_np(&actions, CONTROL_FD + 1);
    if (error == 0)
        error = posix_spawn(pid, own_path(), &actions, NULL, (char **)(uintptr_t)args, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

int child_start(child *c, const char *role, const char *const more[])
{
    const char *args[MORE_MAX + 3] = {program_invocation_name, role};
    int ends[2], error;

    for (int i = 0; i < MORE_MAX && more != NULL && more[i] != NULL; i++)
        args[i + 2] = more[i];
    *c = (child){.limit_ms = CHILD_LIMIT_MS};
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return errno;
    if (ends[1] == CONTROL_FD) { /* to itself, dup2() would leave close-on-exec set */
        ends[1] = ends[0];
        ends[0] = CONTROL_FD;
    }
    error = spawn(args, ends[1], &c->pid);
    close(ends[1]);
    if (error != 0) {
        close(ends[0]);
        c->pid = 0;
    }
    c->control = ends[0];
    return error;
}

child child_must_start(const char *role)
{
    child c;
    const int error = child_start(&c, role, NULL);

    if (error != 0)
        tap_bail_out("cannot start a child: %s", strerror(error));
    return c;
}

bool child_post(child *c, const void *command, size_t len, int fd)
{
    if (c->pid == 0 || !send_packet(c->control, command, len, fd))
        return false;
    c->waiting++;
    return true;
}

const char *child_wait(child *c, void *answer, size_t len, int *fd)
{
    struct pollfd entry = {.fd = c->control, .events = POLLIN};

    if (c->pid == 0 || c->waiting == 0)
        return "the process is dead";
    c->waiting--;
    while (poll(&entry, 1, (int)c->limit_ms) < 0)
        if (errno != EINTR)
            return "poll() failed";
    if (entry.revents == 0) {
        child_kill(c);
        return "the process hangs";
    }
    return receive_packet(c->control, answer, len, fd) ? NULL : "the process is dead";
}

int child_reap(child *c)
{
    pid_t ended = 0;
    int status = -1;

    if (c->pid == 0)
        return -1;
    for (unsigned ms = 0; ended == 0 && ms < c->limit_ms; ms++) {
        ended = waitpid(c->pid, &status, WNOHANG);
        if (ended == 0)
            pause_ms(1);
    }
    if (ended == 0) {
        printf("# a child does not end\n");
        kill(c->pid, SIGKILL);
        (void)waitpid(c->pid, &status, 0);
    }
    close(c->control);
    *c = (child){0};
    return status;
}

void child_kill(child *c)
{
    if (c->pid == 0)
        return;
    kill(c->pid, SIGKILL);
    (void)child_reap(c);
}

int child_end(child *c)
{
    if (c->pid == 0)
        return -1;
    shutdown(c->control, SHUT_WR); /* answers that nobody reads do not keep it: the socket takes them */
    return child_reap(c);
}

bool child_wait_stopped(const child *c)
{
    for (unsigned ms = 0; ms < c->limit_ms; ms++) {
        struct pollfd entry = {.fd = c->control, .events = POLLIN};
        siginfo_t info = {0};

        if (waitid(P_PID, (id_t)c->pid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == c->pid)
            return info.si_code == CLD_STOPPED;
        if (poll(&entry, 1, 1) > 0)
            return false;
    }
    return false;
}

/* ---- in the child */

bool child_is(int argc, char **argv, const char *role)
{
    if (argc < 2 || strcmp(argv[1], role) != 0)
        return false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return true;
}

bool child_next(void *command, size_t len, int *fd)
{
    return receive_packet(CONTROL_FD, command, len, fd);
}

bool child_answer(const void *answer, size_t len, int fd)
{
    fflush(stdout);
    return send_packet(CONTROL_FD, answer, len, fd);
}

bool child_hold(const char *line)
{
    char byte;

    if (puts(line) < 0 || fflush(stdout) != 0)
        return false;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    return true;
}
