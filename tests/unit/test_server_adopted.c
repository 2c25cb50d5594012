/* keeper/server: a socket that one process connects and another one uses. The process that sends HELLO is watched.
 *
 * What follows for leases and memory when either process ends is in python/tests/test_object.py.
 */
#include <stdatomic.h>
#include <sys/epoll.h>

#include "tests/unit/server_fixture.h"

#ifndef SO_PASSPIDFD /* Linux 6.5 */
#define SO_PASSPIDFD 76
#endif

#define WATCHES 3 /* of a connection: socket, doorbell, process */

typedef struct passing {
    bool restricted; /* by the process that connects */
    bool outlived;   /* that process ends before the other one greets */
    bool older;      /* no pidfd is received */
} passing;

static atomic_bool older;
static atomic_int watches_left; /* after these none can be added; negative: all can */

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes);
int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    if (older && level == SOL_SOCKET && name == SO_PASSPIDFD) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return __real_setsockopt(fd, level, name, value, bytes);
}

int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    if (op == EPOLL_CTL_ADD && watches_left >= 0 && atomic_fetch_sub(&watches_left, 1) <= 0) {
        watches_left = 0;
        errno = ENOSPC;
        return -1;
    }
    return __real_epoll_ctl(epoll, op, fd, event);
}

static void say(int fd)
{
    (void)!write(fd, "x", 1);
}

static bool has_said(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    char byte;

    return poll(&entry, 1, TIMEOUT_MS) == 1 && read(fd, &byte, 1) == 1;
}

/* A process connects, and one that it has made does `act` with the socket, says so, and waits to be killed. */
static void connect_for_another(const fixture *w, const passing *p, bool (*act)(int),
                                const int said[2], const int told[2])
{
    gvmi_wire_message reply;
    const int fd = dial(w);
    pid_t other;

    alarm(2 * TIMEOUT_MS / 1000); /* no process stays, whatever fails */
    if (p->restricted && !(tell_plain(fd, GVMI_WIRE_RESTRICT, 1) && hear(fd, &reply, NULL, 0)))
        _exit(1);
    other = fork();
    if (other == 0) {
        alarm(2 * TIMEOUT_MS / 1000);
        if (p->outlived && !has_said(told[0]))
            _exit(1);
        if (act(fd))
            say(said[1]);
        pause();
        _exit(0);
    }
    close(fd);
    if (!p->outlived && has_said(told[0]))
        kill(other, SIGKILL);
    _exit(0);
}

static bool greet_by(int fd)
{
    client c;

    return greet(fd, &c);
}

static bool leave_by(int fd)
{
    return tell_plain(fd, GVMI_WIRE_BYE, 0);
}

/* The client that is not `own`. */
static pid_t find_adopter(gvm_client *own)
{
    gvm_client_info info = {.struct_size = sizeof info};
    gvm_snapshot *snapshot;
    pid_t found = -1;

    if (gvm_client_get_snapshot(own, &snapshot) != GVM_OK)
        return -1;
    for (uint32_t i = 0; gvm_snapshot_get_client(snapshot, i, &info) == GVM_OK; i++)
        if (info.pid != getpid())
            found = info.pid;
    gvm_snapshot_destroy(snapshot);
    return found;
}

static int adopt_as(void *arg)
{
    const passing *p = arg;
    int said[2], told[2], fd, state;
    gvm_client *own;
    pid_t connector, adopter;
    fixture w;

    older = p->older;
    watches_left = -1;
    CHILD_EXPECT(start(&w, 8) == 0);
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK &&
                 gvm_client_adopt(fd, &own) == GVM_OK);
    CHILD_EXPECT(pipe(said) == 0 && pipe(told) == 0);
    connector = fork();
    if (connector == 0)
        connect_for_another(&w, p, greet_by, said, told);
    if (p->outlived) {
        CHILD_EXPECT(waitpid(connector, &state, 0) == connector && state == 0);
        pause_ms(50); /* in which the keeper may learn it, and need not */
        say(told[1]);
    }
    CHILD_EXPECT(has_said(said[0]));
    adopter = find_adopter(own);
    CHILD_EXPECT(adopter > 0 && adopter != connector);
    CHILD_EXPECT(kill(adopter, SIGKILL) == 0);
    for (int i = 0; i < TIMEOUT_MS && find_adopter(own) > 0; i++)
        pause_ms(1);
    CHILD_EXPECT(find_adopter(own) < 0);
    if (!p->outlived) {
        say(told[1]);
        CHILD_EXPECT(waitpid(connector, &state, 0) == connector && state == 0);
    }
    for (int i = 0; i < 2; i++) {
        close(said[i]);
        close(told[i]);
    }
    gvm_client_close(own);
    gvm_keeper_stop(w.server);
    return 0;
}

static void process_that_greets_is_watched(void **state)
{
    static passing ways[] = {{0},
                             {.restricted = true},
                             {.outlived = true},
                             {.restricted = true, .outlived = true},
                             {.older = true}};

    (void)state;
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++)
        assert_child_succeeds(adopt_as, &ways[i]);
}

/* The connection ends, and others go on. */
static int fail_to_watch(void *arg)
{
    static const passing plain;
    int said[2], told[2], state;
    pid_t connector;
    fixture w;
    client a;

    (void)arg;
    watches_left = -1;
    CHILD_EXPECT(start(&w, 8) == 0 && greet(dial(&w), &a));
    CHILD_EXPECT(pipe(said) == 0 && pipe(told) == 0);
    watches_left = WATCHES;
    connector = fork();
    if (connector == 0)
        connect_for_another(&w, &plain, leave_by, said, told);
    CHILD_EXPECT(has_said(said[0]));
    for (int i = 0; i < TIMEOUT_MS && count_lines(&w, "its process cannot be watched") == 0; i++)
        pause_ms(1);
    watches_left = -1;
    CHILD_EXPECT(count_lines(&w, "its process cannot be watched") == 1);
    CHILD_EXPECT(are_clients(&a, 1));
    pause_ms(200); /* the keeper looks at its connections */
    CHILD_EXPECT(are_clients(&a, 1));
    say(told[1]);
    CHILD_EXPECT(waitpid(connector, &state, 0) == connector && state == 0);
    hang_up(&a);
    gvm_keeper_stop(w.server);
    return 0;
}

CHILD_TEST(process_that_cannot_be_watched_is_refused, fail_to_watch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_that_greets_is_watched),
        cmocka_unit_test(process_that_cannot_be_watched_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
