/* keeper/server/incoming.c: descriptors that clients send, and that take very long to close.
 *
 * Such a one is a TCP socket with SO_LINGER that has unsent data for a receiver that does not read: who closes it
 * last waits. Whatever a client sends it with, and whatever becomes of the connection, others are served, and the
 * keeper ends. In a program whose loopback device is down there is no such socket, and nothing is tested.
 */
#define _GNU_SOURCE /* prlimit() */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/fds.h"
#include "tests/lib/units.h"
#include "tests/unit/server_fixture.h"

#define LINGER_S 1000 /* beyond the time of any test */
#define TIMES \
    20 /* connections of an act of which it is a matter of luck what the keeper has read */
#define CLIENTS_MAX 4 /* two are the test's */
#define MUCH 10000    /* bytes, more than the keeper reads at once */
#define CALLS 20      /* after which the keeper has seen what was sent before */

#ifndef SO_PASSRIGHTS /* Linux 6.16 */
#define SO_PASSRIGHTS 83
#endif

/* Which sockets the keeper can have descriptors refused for. */
enum { NO_SOCKET, THOSE_NOT_CONNECTED, ALL_SOCKETS };
static atomic_int refusing;

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    struct sockaddr_un peer;
    socklen_t peer_bytes = sizeof peer;

    if (level == SOL_SOCKET && name == SO_PASSRIGHTS &&
        (refusing == NO_SOCKET || (refusing == THOSE_NOT_CONNECTED &&
                                   getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0))) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return __real_setsockopt(fd, level, name, value, bytes);
}

/* The ends stay open here: what reads must not read, and not end. -1: there is none. */
static int make_slow(void)
{
    const struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    static const char waste[65536];
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int slow = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &bytes) != 0 ||
        connect(slow, (struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    while (send(slow, waste, sizeof waste, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    return setsockopt(slow, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0 ? slow : -1;
}

static size_t encode_plain(gvmi_wire_type type, uint8_t *bytes)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, type, type == GVMI_WIRE_HELLO);
    if (type == GVMI_WIRE_HELLO)
        message.body.HELLO = (gvmi_wire_hello){.magic = GVMI_WIRE_MAGIC, .version = GVMI_WIRE_VERSION};
    return gvmi_wire_encode(&message, bytes);
}

static void *close_slow(void *fd)
{
    close((int)(intptr_t)fd);
    return NULL;
}

/* Gives a slow socket away. If the keeper has ended the other descriptor of it before, this process waits. */
static void send_slow(int fd, const void *bytes, size_t len, int flags)
{
    const int slow = make_slow();
    pthread_t thread;

    (void)gvmi_fds_send(fd, bytes, len, &slow, 1, flags | MSG_DONTWAIT);
    if (pthread_create(&thread, NULL, close_slow, (void *)(intptr_t)slow) == 0)
        (void)pthread_detach(thread);
}

/* ---- acts of a client; each leaves its sockets open */

static void beside_hello(const fixture *w)
{
    uint8_t bytes[sizeof(gvmi_wire_message)];

    send_slow(dial(w), bytes, encode_plain(GVMI_WIRE_HELLO, bytes), 0);
}

/* Its connection goes on until it closes, as it has memory mapped. */
static void after_cut(const fixture *w)
{
    client c;

    (void)greet(dial(w), &c);
    (void)open_object(&c);
    (void)send(c.socket, "this is no message at all", 25, MSG_NOSIGNAL);
    (void)is_cut(c.socket);
    send_slow(c.socket, "x", 1, 0);
}

static void out_of_band(const fixture *w)
{
    client c;

    (void)greet(dial(w), &c);
    send_slow(c.socket, "x", 1, MSG_OOB);
    (void)tell_plain(c.socket, GVMI_WIRE_DROP, 3);
}

static void when_refused(const fixture *w)
{
    uint8_t bytes[sizeof(gvmi_wire_message)];
    client c[CLIENTS_MAX - 2];

    for (unsigned i = 0; i < CLIENTS_MAX - 2; i++)
        (void)greet(dial(w), &c[i]);
    send_slow(dial(w), bytes, encode_plain(GVMI_WIRE_HELLO, bytes), 0);
    for (unsigned i = 0; i < CLIENTS_MAX - 2; i++)
        (void)tell_plain(c[i].socket, GVMI_WIRE_BYE, 0);
}

static void behind_bye(const fixture *w)
{
    static uint8_t bytes[MUCH];
    client c;

    for (unsigned i = 0; i < TIMES; i++) {
        (void)greet(dial(w), &c);
        (void)encode_plain(GVMI_WIRE_BYE, bytes);
        (void)send(c.socket, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        send_slow(c.socket, "x", 1, 0);
    }
}

/* The keeper, in the parent, has no descriptors to accept them with. */
static void before_accept(const fixture *w)
{
    struct rlimit limit;

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 0;
    (void)prlimit(getppid(), RLIMIT_NOFILE, &limit, NULL);
    for (unsigned i = 0; i < TIMES; i++)
        send_slow(dial(w), "x", 1, 0);
}

/* A process that acts, says so, and stays until it is killed. */
static pid_t start_act(const fixture *w, void (*act)(const fixture *))
{
    int said[2];
    pid_t pid;
    char byte;

    if (pipe2(said, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        (void)dup2(said[1], STDIN_FILENO);
        (void)close_range(STDERR_FILENO + 1, ~0u, 0); /* the keeper's among them */
        act(w);
        (void)!write(STDIN_FILENO, "x", 1);
        pause();
        _exit(0);
    }
    close(said[1]);
    if (read(said[0], &byte, 1) != 1)
        pid = -1;
    close(said[0]);
    return pid;
}

static void end_act(pid_t pid)
{
    kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static bool has_slow(void)
{
    const pid_t pid = fork();
    int status = -1;

    if (pid == 0)
        _exit(make_slow() >= 0 ? 0 : 1);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

#define TSAN_THREADS "a process that was forked by one with threads cannot make any"
#define VALGRIND_CLOSE "none of its threads runs while one closes a descriptor"

/* ---- tests */

static int serve_others(void *arg)
{
    static void (*const acts[])(const fixture *) = {beside_hello, after_cut, out_of_band,
                                                    when_refused, behind_bye};
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = 2 * MIB, .size_bytes = 2 * MIB};
    fixture w;
    client a;
    int fd;
    gvm_client *keeper;
    gvm_object *object;

    (void)arg;
    if (!has_slow())
        return 0;
    if (start(&w, CLIENTS_MAX) != 0)
        return 1;
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, &keeper) == GVM_OK);
    CHILD_EXPECT(gvm_object_create(keeper, "/x", 2 * MIB, &options, &object) == GVM_OK);
    CHILD_EXPECT(greet(dial(&w), &a));
    for (unsigned i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        const pid_t pid = start_act(&w, acts[i]);

        CHILD_EXPECT(pid > 0);
        for (unsigned n = 0; n < CALLS; n++)
            CHILD_EXPECT(count_clients(&a) >= 2);
        end_act(pid); /* which ends the waiting for it, too */
        CHILD_EXPECT(are_clients(&a, 2));
    }
    hang_up(&a);
    gvm_client_close(keeper); /* the library's own threads stay */
    gvm_keeper_stop(w.server);
    CHILD_EXPECT(count_fds() == w.fds);
    return 0;
}

static void descriptors_that_close_slowly_delay_nobody(void **state)
{
    (void)state;
    SKIP_UNDER_TSAN(TSAN_THREADS);
    SKIP_UNDER_VALGRIND(VALGRIND_CLOSE);
    assert_child_succeeds(serve_others, NULL);
}

static int end_all_the_same(void *arg)
{
    struct rlimit limit;
    fixture w;
    pid_t pid;

    (void)arg;
    if (!has_slow())
        return 0;
    if (start(&w, CLIENTS_MAX) != 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1;
    pid = start_act(&w, before_accept);
    gvm_keeper_stop(w.server);
    CHILD_EXPECT(pid > 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0 && stop(&w) == 0);
    end_act(pid);
    return 0;
}

static void descriptors_that_close_slowly_do_not_delay_the_end(void **state)
{
    (void)state;
    SKIP_UNDER_TSAN(TSAN_THREADS);
    SKIP_UNDER_VALGRIND(VALGRIND_CLOSE);
    assert_child_succeeds(end_all_the_same, NULL);
}

static bool is_refused(int fd)
{
    const int any = STDIN_FILENO;
    const bool refused = gvmi_fds_send(fd, "x", 1, &any, 1, MSG_DONTWAIT) < 0 && errno == EPERM;

    close(fd);
    return refused;
}

/* Also before a connection is accepted. */
static int refuse(void *arg)
{
    const int no = 0;
    int ends[2], fd;
    fixture w;

    (void)arg;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 ||
        __real_setsockopt(ends[0], SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no) != 0)
        return 0;
    refusing = THOSE_NOT_CONNECTED;
    if (start(&w, CLIENTS_MAX) != 0)
        return 1;
    CHILD_EXPECT(is_refused(dial(&w)));
    refusing = ALL_SOCKETS;
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK && is_refused(fd));
    return stop(&w);
}

CHILD_TEST(descriptors_are_refused_where_the_system_can, refuse)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_are_refused_where_the_system_can),
        cmocka_unit_test(descriptors_that_close_slowly_delay_nobody),
        cmocka_unit_test(descriptors_that_close_slowly_do_not_delay_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
