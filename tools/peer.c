/* Helper processes: fork, messages, the end. */
#include "tools/peer.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/tool.h"

/* In the child. */
static void become_peer(const peer *others, int other_count, int socket, pid_t parent,
                        int (*run)(int socket, const void *arg), const void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(TOOL_FAILED);
    for (int i = 0; i < other_count; i++) /* or they would not see the parent close */
        close(others[i].socket);
    exit(run(socket, arg));
}

bool peer_start(peer *peers, int count, int (*run)(int socket, const void *arg), const void *arg)
{
    pid_t parent = getpid();
    char how[80];

    fflush(NULL);
    for (int i = 0; i < count; i++) {
        int ends[2] = {-1, -1};

        peers[i].pid = -1;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0)
            peers[i].pid = fork();
        if (peers[i].pid == 0) {
            close(ends[0]);
            become_peer(peers, i, ends[1], parent, run, arg);
        }
        if (peers[i].pid < 0) {
            tool_error("cannot start process %d of %d: %s", i + 1, count, strerror(errno));
            if (ends[0] >= 0) {
                close(ends[0]);
                close(ends[1]);
            }
            while (i-- > 0)
                peer_finish(&peers[i], 0, how, sizeof how);
            return false;
        }
        close(ends[1]);
        peers[i].socket = ends[0];
    }
    return true;
}

bool peer_send(int socket, const void *message, size_t bytes)
{
    const char *next = message;

    while (bytes > 0) {
        ssize_t sent = send(socket, next, bytes, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        next += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

peer_answer peer_receive(int socket, void *message, size_t bytes, int timeout_ms)
{
    double end_us = tool_now_us() + timeout_ms * 1e3;
    char *next = message;

    while (bytes > 0) {
        struct pollfd waited = {.fd = socket, .events = POLLIN};
        double left_us = end_us - tool_now_us();
        int ready = poll(&waited, 1, left_us > 0 ? (int)(left_us / 1e3) + 1 : 0);
        ssize_t got;

        if (ready == 0)
            return PEER_SILENT;
        if (ready < 0 && errno != EINTR)
            return PEER_CLOSED;
        if (ready < 0)
            continue;
        got = recv(socket, next, bytes, 0);
        if (got < 0 && (errno == EINTR ||
                        errno == ECONNRESET)) /* the reset is reported once, before what was sent earlier */
            continue;
        if (got <= 0)
            return PEER_CLOSED;
        next += got;
        bytes -= (size_t)got;
    }
    return PEER_OK;
}

void peer_linger(int socket)
{
    char waste[256];
    ssize_t got;

    shutdown(socket, SHUT_WR);
    do
        got = recv(socket, waste, sizeof waste, 0);
    while (got > 0 || (got < 0 && errno == EINTR));
}

/* Waits for the process until then; false if it still runs. */
static bool wait_for_child(pid_t pid, int timeout_ms, int *status)
{
    const struct timespec pause = {0, 2000000};
    double end_us = tool_now_us() + timeout_ms * 1e3;

    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);

        if (got == pid)
            return true;
        if (got < 0 && errno != EINTR) {
            *status = 0;
            return true;
        }
        if (tool_now_us() >= end_us)
            return false;
        nanosleep(&pause, NULL);
    }
}

bool peer_finish(peer *p, int timeout_ms, char *how, size_t how_bytes)
{
    int status = 0;
    bool ended, killed = false;

    if (p->pid <= 0)
        return true;
    close(p->socket);
    ended = wait_for_child(p->pid, timeout_ms, &status);
    if (!ended) {
        kill(p->pid, SIGKILL);
        killed = true;
        while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    p->pid = 0;
    if (killed)
        snprintf(how, how_bytes, "did not end in time and was killed");
    else if (WIFSIGNALED(status))
        snprintf(how, how_bytes, "died of signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, how_bytes, "exited with status %d", WEXITSTATUS(status));
    return !killed && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
