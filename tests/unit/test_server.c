/* keeper/server: what clients may do to a keeper, spoken by hand over its socket.
 *
 * Objects and leases are tested elsewhere, by the machine and through the client. Here it is about
 * connections: who gets in, what is answered, who is cut off, and that the others, and the keeper,
 * do not notice. Each test runs in a child, because a driver is started once a process; at its end
 * no fd and no thread is left of the server.
 */
#define _GNU_SOURCE /* unshare() */
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tests/unit/server_fixture.h"
#include "tools/snapshot.h"

#include <sys/prctl.h>

/* ---- tests */

static int come_and_go(void *arg)
{
    fixture w;
    client a, b;
    int fd;
    uint64_t *word;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a));
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK && greet(fd, &b));
    CHILD_EXPECT(are_clients(&a, 2) && are_clients(&b, 2));

    /* The permit page is for reading, and neither page changes its size. */
    CHILD_EXPECT(mmap(NULL, GVMI_PERMIT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, a.fds[1],
                      0) == MAP_FAILED);
    word = mmap(NULL, GVMI_PERMIT_PAGE_BYTES, PROT_READ, MAP_SHARED, a.fds[1], 0);
    CHILD_EXPECT(word != MAP_FAILED);
    CHILD_EXPECT(mprotect(word, GVMI_PERMIT_PAGE_BYTES, PROT_READ | PROT_WRITE) != 0);
    munmap(word, GVMI_PERMIT_PAGE_BYTES);
    word = mmap(NULL, GVMI_LEASE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, a.fds[0], 0);
    CHILD_EXPECT(word != MAP_FAILED);
    munmap(word, GVMI_LEASE_PAGE_BYTES);
    CHILD_EXPECT(ftruncate(a.fds[0], 0) != 0 && ftruncate(a.fds[1], 0) != 0);

    CHILD_EXPECT(tell_plain(b.socket, GVMI_WIRE_BYE, 0) && is_cut(b.socket));
    CHILD_EXPECT(are_clients(&a, 1));
    hang_up(&b);
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK && greet(fd, &b));
    hang_up(&b); /* without a word */
    CHILD_EXPECT(are_clients(&a, 1));
    fd = dial(&w); /* nothing but a farewell */
    CHILD_EXPECT(fd >= 0 && tell_plain(fd, GVMI_WIRE_BYE, 0) && is_cut(fd));
    close(fd);
    CHILD_EXPECT(are_clients(&a, 1));
    hang_up(&a);
    return stop(&w);
}

CHILD_TEST(client_comes_and_goes, come_and_go)

static int be_refused(void *arg)
{
    fixture w;
    client a;
    gvmi_wire_message message;
    char line[160];
    int fd, silent;

    (void)arg;
    if (start(&w, 1) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a));
    fd = dial(&w);
    CHILD_EXPECT(fd >= 0 && tell_plain(fd, GVMI_WIRE_HELLO, 77) && hear(fd, &message, NULL, 0));
    CHILD_EXPECT(message.head.type == GVMI_WIRE_FAILED && message.head.request == 77);
    CHILD_EXPECT(message.body.FAILED.status == GVM_E_DENIED && is_cut(fd));
    CHILD_EXPECT(strstr(message.body.FAILED.text, "of 1 at this keeper 1 are in use") != NULL);
    close(fd);
    snprintf(line, sizeof line, "a client (pid %d, uid %u) was refused: ", (int)getpid(),
             (unsigned)getuid());
    CHILD_EXPECT(count_lines(&w, line) == 1 && count_lines(&w, message.body.FAILED.text + 9) == 1);
    silent = dial(&w); /* is still there when the server ends */
    CHILD_EXPECT(are_clients(&a, 1));
    CHILD_EXPECT(tell_plain(a.socket, GVMI_WIRE_BYE, 0) && is_cut(a.socket));
    hang_up(&a);
    CHILD_EXPECT(greet(dial(&w), &a)); /* there is room again */
    hang_up(&a);
    close(silent);
    return stop(&w);
}

CHILD_TEST(client_too_many_gets_an_error_that_says_so, be_refused)

/* ---- floods */

/* As another user: connects, with or without a word, until it is refused; writes how often it was not. Stays
 * until the pipe that it reads is closed. */
static void connect_as(const fixture *w, uid_t uid, bool silent, int out, int in)
{
    gvmi_wire_message message;
    uint8_t count = 0;
    client c;
    char byte;

    if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
        _exit(1);
    for (int fd; count < 100 && (fd = dial(w)) >= 0; count++) {
        if (!silent && !greet(fd, &c))
            break;
        if (silent && (recv(fd, &message, 1, MSG_DONTWAIT) == 0 || count == 50))
            break;
    }
    (void)!write(out, &count, 1);
    (void)!read(in, &byte, 1);
    _exit(0);
}

/* 32 clients: 4 are for root, another user gets 14 of the rest. */
static int flood_with_connections(void *arg)
{
    fixture w;
    client a, b[4];
    int out[2], in[2], status;
    uint8_t count = 0;
    pid_t pids[3];

    (void)arg;
    if (start(&w, 32) != 0)
        return 1;
    CHILD_EXPECT(chmod(w.path, 0666) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(in, O_CLOEXEC) == 0);
    for (unsigned i = 0; i < 3; i++) { /* the second says nothing, and is refused as often as it tries */
        pids[i] = fork();
        if (pids[i] == 0) {
            close(in[1]);
            connect_as(&w, 60001 + i, i == 1, out[1], in[0]);
        }
        CHILD_EXPECT(read(out[0], &count, 1) == 1);
        CHILD_EXPECT(i != 0 || count == 14);
        CHILD_EXPECT(i != 2 || count >= 2);
    }
    CHILD_EXPECT(greet(dial(&w), &a));
    for (unsigned i = 0; i < 3; i++)
        CHILD_EXPECT(greet(dial(&w), &b[i]));
    for (unsigned i = 0; i < 3; i++)
        hang_up(&b[i]);
    close(in[1]);
    for (unsigned i = 0; i < 3; i++)
        CHILD_EXPECT(waitpid(pids[i], &status, 0) == pids[i] && WIFEXITED(status));
    CHILD_EXPECT(are_clients(&a, 1));
    hang_up(&a);
    close(in[0]);
    close(out[0]);
    close(out[1]);
    return stop(&w);
}

static void connections_of_users_leave_room_for_others_and_root(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_child_succeeds(flood_with_connections, NULL);
}

/* What no client says, once instead of HELLO and once after it. */
static int speak_nonsense(void *arg)
{
    static const uint8_t noise[200] = {0xff, 0x13, 0x80};
    fixture w;
    client a, b;
    gvmi_socket socket;
    int fd;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a));
    for (int greeted = 0; greeted < 2; greeted++)
        for (int kind = 0; kind < 4; kind++) {
            fd = dial(&w);
            CHILD_EXPECT(fd >= 0 && (greeted == 0 || greet(fd, &b)));
            CHILD_EXPECT(gvmi_socket_begin(fd, TIMEOUT_MS, &socket) == GVM_OK);
            if (kind == 0) {
                CHILD_EXPECT(gvmi_socket_send(&socket, noise, sizeof noise, NULL, 0) == GVM_OK);
            } else if (kind == 1) { /* half a message, with an fd, which Linux 6.16 refuses to send */
                CHILD_EXPECT(gvmi_socket_send(&socket, noise, 1, &fd, 1) == GVM_OK ||
                             gvmi_socket_send(&socket, noise, sizeof noise, NULL, 0) == GVM_OK);
            } else if (kind == 2) { /* what only the keeper says */
                CHILD_EXPECT(tell_plain(fd, GVMI_WIRE_OPENED, 3));
            } else { /* not now */
                CHILD_EXPECT(tell_plain(fd, greeted ? GVMI_WIRE_HELLO : GVMI_WIRE_SNAPSHOT, 3));
            }
            CHILD_EXPECT(is_cut(fd));
            close(fd);
            for (int i = 0; greeted && i < 3; i++)
                close(b.fds[i]);
        }
    CHILD_EXPECT(count_clients(&a) > 0);
    hang_up(&a);
    return stop(&w);
}

CHILD_TEST(client_that_speaks_nonsense_is_cut_off, speak_nonsense)

/* One asks and asks and never reads. It is cut off when what it does not read has become too much;
 * another one is served all the while. */
static int never_read(void *arg)
{
    enum { ASKED_MAX = 1000000, FULL_TURNS = 100 };
    fixture w;
    client a, b;
    gvmi_wire_message message;
    uint8_t bytes[sizeof message];
    size_t len;
    int asked = 0, full = 0;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a) && greet(dial(&w), &b));
    gvmi_wire_start(&message, GVMI_WIRE_DROP, 9);
    strcpy(message.body.DROP.name, "/nothing");
    len = gvmi_wire_encode(&message, bytes);
    /* Until the keeper takes no more: it has had turns enough if the other was answered so often. */
    while (asked < ASKED_MAX && full < FULL_TURNS) {
        const ssize_t sent = send(b.socket, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent < 0 && errno == EPIPE)
            break; /* it is cut off, and forgotten, as it never had memory */
        CHILD_EXPECT(sent == (ssize_t)len || (sent < 0 && errno == EAGAIN));
        asked += sent > 0;
        full = sent > 0 ? 0 : full + 1;
        if (sent < 0)
            CHILD_EXPECT(count_clients(&a) > 0);
    }
    CHILD_EXPECT(asked > 4000 && asked < ASKED_MAX);
    CHILD_EXPECT(is_cut(b.socket) && are_clients(&a, 1));
    CHILD_EXPECT(count_lines(&w, "was cut off: it does not read what the keeper sends") == 1);
    hang_up(&b);
    hang_up(&a);
    return stop(&w);
}

CHILD_TEST(client_that_never_reads_is_cut_off, never_read)

/* It hears nothing, so that what it said before is read to its end at once, BYE too; another is served. */
static int hear_nothing(void *arg)
{
    enum { CLIENTS = 100, MESSAGES = 800 };
    static uint8_t bytes[(MESSAGES + 2) * 512];
    fixture w;
    client a, b;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a));
    for (int round = 0; round < CLIENTS; round++) {
        size_t len = 0;

        CHILD_EXPECT(greet(dial(&w), &b) && shutdown(b.socket, SHUT_RD) == 0);
        for (uint32_t i = 0; i < MESSAGES + 2; i++) { /* only the first has an answer, which cannot be sent */
            gvmi_wire_message message;

            gvmi_wire_start(&message,
                            i == 0          ? GVMI_WIRE_DROP
                            : i <= MESSAGES ? GVMI_WIRE_TAKEN
                                            : GVMI_WIRE_BYE,
                            i == 0);
            if (i == 0)
                strcpy(message.body.DROP.name, "/nothing");
            else if (i <= MESSAGES)
                message.body.TAKEN.mode = GVM_LEASE_READ;
            len += gvmi_wire_encode(&message, bytes + len);
        }
        CHILD_EXPECT(send(b.socket, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
        CHILD_EXPECT(are_clients(&a, 1));
        hang_up(&b);
    }
    hang_up(&a);
    return stop(&w);
}

CHILD_TEST(client_that_hears_nothing_is_read_to_its_end, hear_nothing)

/* Many messages at once are all answered, in order, while another client gets its turns. */
static int ask_many_at_once(void *arg)
{
    enum { COUNT = 2000 };
    fixture w;
    client a, b;
    gvmi_wire_message message;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a) && greet(dial(&w), &b));
    for (uint64_t i = 1; i <= COUNT; i++)
        CHILD_EXPECT(tell_plain(b.socket, GVMI_WIRE_DROP, i));
    CHILD_EXPECT(count_clients(&a) == 2);
    for (uint64_t i = 1; i <= COUNT; i++) {
        CHILD_EXPECT(hear(b.socket, &message, NULL, 0));
        CHILD_EXPECT(message.head.type == GVMI_WIRE_FAILED && message.head.request == i);
    }
    hang_up(&a);
    hang_up(&b);
    return stop(&w);
}

CHILD_TEST(messages_at_once_are_answered_in_order, ask_many_at_once)

/* A process that ends is gone, though a child of it has the socket, too; and so is one that lives, but
 * hung up and never had memory. */
static int end_a_process(void *arg)
{
    fixture w;
    client a, b;
    int said[2], held[2]; /* from the processes; to them, by being closed */
    char byte = 0;
    pid_t pid;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a));
    for (int hangs_up = 0; hangs_up < 2; hangs_up++) {
        CHILD_EXPECT(pipe2(said, O_CLOEXEC) == 0 && pipe2(held, O_CLOEXEC) == 0);
        pid = fork();
        if (pid == 0) {
            const bool good = greet(dial(&w), &b);

            close(held[1]);
            if (!hangs_up && fork() == 0) /* has the socket, too, until the end */
                _exit(read(held[0], &byte, 1) == 0 ? 0 : 1);
            if (hangs_up)
                hang_up(&b);
            byte = good ? 'b' : 'x';
            _exit(write(said[1], &byte, 1) == 1 && read(held[0], &byte, 1) == 0 ? 0 : 1);
        }
        CHILD_EXPECT(read(said[0], &byte, 1) == 1 && byte == 'b');
        CHILD_EXPECT(are_clients(&a, hangs_up ? 1 : 2));
        CHILD_EXPECT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
        CHILD_EXPECT(are_clients(&a, 1));
        for (int i = 0; i < 2; i++) {
            close(said[i]);
            close(held[i]);
        }
    }
    hang_up(&a);
    return stop(&w);
}

CHILD_TEST(process_that_ends_is_gone, end_a_process)

/* ---- BYE */

static int adopt(gvm_keeper *server, gvm_client **out)
{
    int fd;

    CHILD_EXPECT(gvm_keeper_open_socket(server, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, out) == GVM_OK);
    return 0;
}

static uint64_t held_bytes(gvm_client *keeper)
{
    snapshot_copy *snapshot;
    uint64_t bytes = UINT64_MAX;

    if (snapshot_take(keeper, &snapshot) == GVM_OK) {
        bytes = snapshot->devices[0].held_bytes;
        snapshot_free(snapshot);
    }
    return bytes;
}

/* As another user: has /x mapped, as far as the keeper can tell, says BYE and lives until it is killed. */
static void say_bye_as(const fixture *w, uid_t uid, int out)
{
    client c;

    if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0 || !greet(dial(w), &c) ||
        !open_object(&c) || !tell_plain(c.socket, GVMI_WIRE_BYE, 0) || !is_cut(c.socket))
        _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)!write(out, "b", 1);
    for (;;)
        pause();
}

static int say_bye_with_all_mapped(void *arg)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = 2 * MIB, .size_bytes = 2 * MIB, .mode = 0666};
    fixture w;
    gvm_client *keeper;
    gvm_object *object;
    int said[2];
    char byte;
    pid_t pid;

    (void)arg;
    CHILD_EXPECT(start_mode(&w, 0, 0666) == 0 && adopt(w.server, &keeper) == 0);
    CHILD_EXPECT(gvm_object_create(keeper, "/x", 2 * MIB, &options, &object) == GVM_OK);
    CHILD_EXPECT(pipe2(said, O_CLOEXEC) == 0);
    pid = fork();
    if (pid == 0)
        say_bye_as(&w, 60001, said[1]);
    close(said[1]);
    CHILD_EXPECT(read(said[0], &byte, 1) == 1);
    gvm_object_close(object); /* and so it ends */
    CHILD_EXPECT(held_bytes(keeper) == 2 * MIB);
    CHILD_EXPECT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    while (held_bytes(keeper) != 0)
        sched_yield();
    close(said[0]);
    gvm_client_close(keeper);
    gvm_keeper_stop(w.server);
    return 0;
}

static void process_of_another_user_that_says_bye_is_charged_until_it_ends(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_child_succeeds(say_bye_with_all_mapped, NULL);
}

/* ---- user namespaces */

static bool write_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    close(fd);
    return good;
}

/* A new user namespace, in which only root has a number. */
static bool enter_namespace(void)
{
    return unshare(CLONE_NEWUSER) == 0 && write_file("/proc/self/uid_map", "0 0 1") &&
           write_file("/proc/self/setgroups", "deny") && write_file("/proc/self/gid_map", "0 0 1");
}

static void try_namespace(bool *possible)
{
    int status = 1;
    const pid_t pid = fork();

    if (pid == 0)
        _exit(geteuid() == 0 && enter_namespace() ? 0 : 1);
    *possible = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* A user with a number in this namespace, but not in the keeper's, who connects once the test says so. */
static int connect_as_stranger(const fixture *w, int said)
{
    gvmi_wire_message message;
    char byte;
    int fd;

    CHILD_EXPECT(read(said, &byte, 1) == 1); /* the keeper serves */
    CHILD_EXPECT(setgid(1234) == 0 && setuid(1234) == 0);
    fd = dial(w);
    CHILD_EXPECT(fd >= 0 && tell_plain(fd, GVMI_WIRE_HELLO, 5) && hear(fd, &message, NULL, 0));
    CHILD_EXPECT(message.head.type == GVMI_WIRE_FAILED && message.body.FAILED.status == GVM_E_DENIED);
    CHILD_EXPECT(strstr(message.body.FAILED.text, "no number in the keeper's user namespace") != NULL);
    return 0;
}

static int serve_in_namespace(void *arg)
{
    static fixture w;
    client a;
    int said[2], status = 1;
    pid_t pid;

    (void)arg;
    snprintf(w.path, sizeof w.path, "/tmp/gvmem-test-server-%d.sock", (int)getpid());
    CHILD_EXPECT(pipe2(said, O_CLOEXEC) == 0);
    pid = fork();
    if (pid == 0)
        _exit(connect_as_stranger(&w, said[0]));
    CHILD_EXPECT(enter_namespace() && start_mode(&w, 0, 0666) == 0);
    CHILD_EXPECT(greet(dial(&w), &a)); /* root has a number */
    CHILD_EXPECT(write(said[1], "s", 1) == 1);
    CHILD_EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    CHILD_EXPECT(count_lines(&w, "was refused: the user has no number") == 1);
    hang_up(&a);
    close(said[0]);
    close(said[1]);
    w.fds -= 2;
    return stop(&w);
}

static void user_without_number_in_the_namespace_is_refused(void **state)
{
    bool possible;

    (void)state;
    try_namespace(&possible);
    if (!possible) {
        print_message("user namespaces are not available here, or this is not root\n");
        skip();
    }
    assert_child_succeeds(serve_in_namespace, NULL);
}

/* ---- descriptors */

static int64_t cpu_ms(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
}

/* No fd can be had from here on; before is what puts that right. */
static int forbid_fds(struct rlimit *before)
{
    const int lowest = eventfd(0, EFD_CLOEXEC);
    struct rlimit none;

    CHILD_EXPECT(lowest >= 0 && getrlimit(RLIMIT_NOFILE, before) == 0);
    close(lowest);
    none = (struct rlimit){.rlim_cur = (rlim_t)lowest, .rlim_max = before->rlim_max};
    CHILD_EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHILD_EXPECT(eventfd(0, EFD_CLOEXEC) < 0 && errno == EMFILE);
    return 0;
}

/* Without descriptors nobody gets in, those who are in are served, and the keeper does not spin. */
static int run_out_of_fds(void *arg)
{
    enum { WAITING = 8 };
    fixture w;
    client a, b;
    gvmi_wire_message message;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int waiting[WAITING];
    struct rlimit before;
    int64_t before_ms;

    (void)arg;
    if (start(&w, 16) != 0)
        return 1;
    memcpy(address.sun_path, w.path, strlen(w.path));
    CHILD_EXPECT(greet(dial(&w), &a));
    for (int i = 0; i < WAITING; i++)
        waiting[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* After another turn the keeper has closed what it sent in greeting. */
    CHILD_EXPECT(tell_plain(a.socket, GVMI_WIRE_DROP, 2) && hear(a.socket, &message, NULL, 0));
    CHILD_EXPECT(forbid_fds(&before) == 0);
    before_ms = cpu_ms();
    for (int i = 0; i < WAITING; i++)
        CHILD_EXPECT(connect(waiting[i], (const struct sockaddr *)&address, sizeof address) == 0);
    pause_ms(500);
    CHILD_EXPECT(cpu_ms() - before_ms < 250);
    CHILD_EXPECT(count_lines(&w, "new clients must wait: ") == 1);
    CHILD_EXPECT(tell_plain(a.socket, GVMI_WIRE_DROP, 3) && hear(a.socket, &message, NULL, 0));
    CHILD_EXPECT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    for (int i = 0; i < WAITING; i++) {
        CHILD_EXPECT(greet(waiting[i], &b)); /* they waited in the listen queue */
        hang_up(&b);
    }
    CHILD_EXPECT(count_lines(&w, "new clients are accepted again") == 1);
    CHILD_EXPECT(count_lines(&w, "new clients must wait: ") == 1);
    hang_up(&a);
    return stop(&w);
}

static void keeper_out_of_fds_waits_for_some(void **state)
{
    (void)state;
    SKIP_UNDER_VALGRIND(VALGRIND_FDS);
    assert_child_succeeds(run_out_of_fds, NULL);
}

static gvm_status make(gvm_client *keeper, const char *name, uint32_t flags, gvm_object **out)
{
    const gvm_object_options o = {
        .struct_size = sizeof o, .chunk_bytes = 2 * MIB, .size_bytes = 2 * MIB, .flags = flags};

    return gvm_object_create(keeper, name, 128 * MIB, &o, out);
}

static bool is_leased_whole(gvm_object *object, uint64_t bytes)
{
    gvm_lease lease;
    bool whole;

    if (gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) != GVM_OK)
        return false;
    whole = lease.size_bytes == bytes;
    return gvm_object_release(object, &lease) == GVM_OK && whole;
}

static int lease_many_chunks(void *arg)
{
    const uint64_t bytes = (GVMI_WIRE_CHUNKS_MAX + 1) * 2 * MIB;
    const gvm_object_options o = {.struct_size = sizeof o, .chunk_bytes = 2 * MIB, .size_bytes = bytes};
    const gvm_keeper_options options = {.struct_size = sizeof options,
                                        .path = "",
                                        .device_budget_bytes = 16 * MIB,
                                        .host_budget_bytes = 2 * bytes};
    gvm_keeper *server;
    gvm_client *keeper;
    gvm_object *created, *opened;

    (void)arg;
    use_small_device();
    CHILD_EXPECT(gvm_keeper_start(&options, &server) == GVM_OK && adopt(server, &keeper) == 0);
    CHILD_EXPECT(gvm_object_create(keeper, "/x", bytes, &o, &created) == GVM_OK);
    CHILD_EXPECT(is_leased_whole(created, bytes));
    CHILD_EXPECT(gvm_object_open(keeper, "/x", 0, &opened) == GVM_OK);
    CHILD_EXPECT(is_leased_whole(opened, bytes));
    gvm_client_close(keeper);
    gvm_keeper_stop(server);
    return 0;
}

CHILD_TEST(object_of_more_chunks_than_a_message_is_leased_whole, lease_many_chunks)

/* Objects that memory cannot be made for, as the process may have no more descriptors: the cause is
 * answered, and logged. What is there can be used. */
static int run_out_of_descriptors(void *arg)
{
    const struct rlimit few = {.rlim_cur = 100, .rlim_max = 100};
    fixture w;
    const gvm_keeper_options options = {.struct_size = sizeof options,
                                        .path = "",
                                        .device_budget_bytes = 62 * MIB,
                                        .host_budget_bytes = 128 * MIB,
                                        .clients_max = 8,
                                        .log = take_line,
                                        .log_context = &w};
    gvm_client *keeper;
    gvm_object *objects[64];
    gvm_error error;
    gvm_status status = GVM_OK;
    uint64_t bytes;
    int count = 0;

    (void)arg;
    use_small_device();
    atomic_init(&w.line_count, 0);
    CHILD_EXPECT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHILD_EXPECT(gvm_keeper_start(&options, &w.server) == GVM_OK && adopt(w.server, &keeper) == 0);
    while (status == GVM_OK && count < 64) {
        char name[16];

        snprintf(name, sizeof name, "/%d", count);
        status = make(keeper, name, GVM_OBJECT_KEEP, &objects[count]);
        count += status == GVM_OK;
    }
    CHILD_EXPECT(status == GVM_E_LIMIT && count > 8 && count < 31);
    gvm_error_last(&error);
    CHILD_EXPECT(strstr(error.text, "no file descriptors") != NULL &&
                 strstr(error.text, "larger chunks") != NULL);
    CHILD_EXPECT(count_lines(&w, "device 0: 2 MiB of device memory could not be made: ") > 0);
    CHILD_EXPECT(gvm_client_evict(keeper, "/0", GVM_BYTES_UNLIMITED, &bytes) == GVM_E_LIMIT);
    gvm_error_last(&error);
    CHILD_EXPECT(strstr(error.text, "no file descriptors") != NULL);
    CHILD_EXPECT(count_lines(&w, "device 0: 2 MiB of host memory could not be made: ") > 0);
    CHILD_EXPECT(gvm_object_drop(keeper, "/1") == GVM_OK);
    gvm_object_close(objects[1]);
    CHILD_EXPECT(make(keeper, "/again", 0, &objects[1]) == GVM_OK);
    gvm_client_close(keeper);
    gvm_keeper_stop(w.server);
    return 0;
}

static void server_without_descriptors_answers_the_cause(void **state)
{
    (void)state;
    SKIP_UNDER_VALGRIND(VALGRIND_FDS);
    assert_child_succeeds(run_out_of_descriptors, NULL);
}

/* ---- texts */

/* The longest name still leaves the sentence whole, and can be told from others by its end. */
static int miss_a_long_name(void *arg)
{
    fixture w;
    gvm_client *keeper;
    gvm_object *object;
    gvm_error error;
    char name[GVM_NAME_BYTES_MAX];

    (void)arg;
    memset(name, 'n', sizeof name);
    name[0] = '/';
    strcpy(name + sizeof name - 9, "/2026/q3");
    CHILD_EXPECT(start(&w, 0) == 0 && adopt(w.server, &keeper) == 0);
    CHILD_EXPECT(gvm_object_drop(keeper, name) == GVM_E_ABSENT);
    gvm_error_last(&error);
    CHILD_EXPECT(strstr(error.text, "there is no object /nnn") == error.text);
    CHILD_EXPECT(strcmp(error.text + strlen(error.text) - 8, "/2026/q3") == 0);
    CHILD_EXPECT(gvm_object_create(keeper, name, 2 * MIB, NULL, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_create(keeper, name, 2 * MIB, NULL, &object) == GVM_E_EXISTS);
    gvm_error_last(&error);
    CHILD_EXPECT(strstr(error.text, "/2026/q3 already") != NULL);
    gvm_client_close(keeper);
    gvm_keeper_stop(w.server);
    return 0;
}

CHILD_TEST(name_too_long_for_a_text_keeps_its_end, miss_a_long_name)

/* ---- options */

static int start_badly(void *arg)
{
    const int32_t twice[] = {0, 0}, absent[] = {7};
    int ends[2];
    gvm_keeper *server = NULL;
    gvm_keeper_options o = {.struct_size = sizeof o, .path = ""};
    gvm_keeper_budget budget = {.struct_size = sizeof budget};
    int fd;

    (void)arg;
    use_small_device();
    CHILD_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
#define REFUSED(status, ...) \
    do { \
        gvm_keeper_options bad = {.struct_size = sizeof bad, .path = "", __VA_ARGS__}; \
        CHILD_EXPECT(gvm_keeper_start(&bad, &server) == (status) && server == NULL); \
    } while (0)
    CHILD_EXPECT(gvm_keeper_start(&o, NULL) == GVM_E_INVALID);
    o.struct_size = 8;
    CHILD_EXPECT(gvm_keeper_start(&o, &server) == GVM_E_INVALID);
    o.struct_size = offsetof(gvm_keeper_options, log) - 8;
    CHILD_EXPECT(gvm_keeper_start(&o, &server) == GVM_E_INVALID);
    o.struct_size = offsetof(gvm_keeper_options, log); /* as the first version had it */
    CHILD_EXPECT(gvm_keeper_start(&o, &server) == GVM_OK);
    gvm_keeper_stop(server);
    server = NULL;
    o.struct_size = sizeof o;
    REFUSED(GVM_E_INVALID, .listen_fd = -1);
    REFUSED(GVM_E_INVALID, .listen_fd = ends[0]); /* it does not listen */
    REFUSED(GVM_E_INVALID, .socket_mode = 01000);
    REFUSED(GVM_E_INVALID, .devices = twice, .device_count = 2);
    REFUSED(GVM_E_INVALID, .devices = twice);
    REFUSED(GVM_E_INVALID, .clients_max = 1025);
    REFUSED(GVM_E_INVALID, .quota_count = 1);
    REFUSED(GVM_E_INVALID, .flags = 2);
    REFUSED(GVM_E_INVALID, .device_budget_bytes = GVM_BYTES_NONE);
    REFUSED(GVM_E_INVALID, .device_budget_bytes = GVM_BYTES_UNLIMITED);
    REFUSED(GVM_E_INVALID, .host_budget_bytes = GVM_BYTES_NONE);
    REFUSED(GVM_E_NODEVICE, .devices = absent, .device_count = 1);
    REFUSED(GVM_E_NOSPACE, .device_budget_bytes = 65 * MIB);
    REFUSED(GVM_E_SYSTEM, .trace_path = "/nonexistent/trace");
#undef REFUSED
    o.device_budget_bytes = 16 * MIB;
    o.host_budget_bytes = 8 * MIB;
    CHILD_EXPECT(gvm_keeper_start(&o, &server) == GVM_OK);
    CHILD_EXPECT(strcmp(gvm_keeper_path(server), "") == 0);
    CHILD_EXPECT(gvm_keeper_open_socket(server, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_keeper_check(server) == GVM_OK);
    CHILD_EXPECT(gvm_keeper_get_budget(server, 0, &budget) == GVM_OK && budget.ordinal == 0);
    CHILD_EXPECT(budget.device_bytes == o.device_budget_bytes &&
                 budget.host_bytes == o.host_budget_bytes);
    CHILD_EXPECT(gvm_keeper_get_budget(server, 1, &budget) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_keeper_get_budget(server, 0, NULL) == GVM_E_INVALID);
    gvm_keeper_stop(server);
    CHILD_EXPECT(gvm_keeper_check(server) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_keeper_get_budget(server, 0, &budget) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_keeper_open_socket(server, &fd) == GVM_E_FOREIGN);
    CHILD_EXPECT(strcmp(gvm_keeper_path(server), "") == 0);
    gvm_keeper_stop(NULL);
    return 0;
}

CHILD_TEST(options_out_of_range_are_refused, start_badly)

/* ---- clients in the keeper's own process */

/* What it has mapped is not given to others before it closes: kernels of it may run. */
static int keep_a_lease(void *arg)
{
    const gvm_keeper_options server_options = {.struct_size = sizeof server_options,
                                               .path = "",
                                               .device_budget_bytes = 16 * MIB,
                                               .host_budget_bytes = 16 * MIB,
                                               .lease_limit_ms = 200};
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = 2 * MIB,
                                        .size_bytes = 2 * MIB,
                                        .flags = GVM_OBJECT_KEEP};
    gvm_keeper *server;
    gvm_client *keeps_lease, *other;
    gvm_object *kept, *object;
    gvm_lease lease, next;
    uint64_t bytes = 0;

    (void)arg;
    CHILD_EXPECT(gvm_keeper_start(&server_options, &server) == GVM_OK);
    CHILD_EXPECT(adopt(server, &keeps_lease) == 0 && adopt(server, &other) == 0);
    CHILD_EXPECT(gvm_object_create(keeps_lease, "/x", 2 * MIB, &options, &kept) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(kept, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(other, "/x", 0, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &next) ==
                 GVM_OK); /* cuts it off */
    CHILD_EXPECT(gvm_object_release(object, &next) == GVM_OK);
    CHILD_EXPECT(gvm_object_grow(kept, 2 * MIB) == GVM_E_KEEPER); /* its connection shows the cut-off */
    CHILD_EXPECT(gvm_client_evict(other, "/x", GVM_BYTES_UNLIMITED, &bytes) == GVM_OK &&
                 bytes == 2 * MIB);
    CHILD_EXPECT(held_bytes(other) == 2 * MIB);
    gvm_client_close(keeps_lease);
    while (held_bytes(other) != 0)
        sched_yield();
    gvm_client_close(other);
    gvm_keeper_stop(server);
    return 0;
}

CHILD_TEST(client_of_the_same_process_that_is_cut_off_keeps_its_frames, keep_a_lease)

/* What a client holds is counted beside what the driver says is free. The client ends after the driver has answered, and
 * before the server has looked at the answer. */
static struct {
    gvmi_driver altered;
    const gvmi_driver *real;
    atomic_bool delay; /* the next answer, in which the client has its memory yet */
    atomic_bool given, go_on;
    atomic_uint answers;
} driver;

static CUresult get_info_late(size_t *free_bytes, size_t *total_bytes)
{
    const CUresult result = driver.real->cuMemGetInfo(free_bytes, total_bytes);

    atomic_fetch_add(&driver.answers, 1);
    if (atomic_exchange(&driver.delay, false)) {
        *free_bytes -= 2 * MIB;
        atomic_store(&driver.given, true);
        while (!atomic_load(&driver.go_on))
            pause_ms(1);
    }
    return result;
}

static bool driver_is_asked(unsigned times)
{
    const unsigned until = atomic_load(&driver.answers) + times;

    for (int ms = 0; ms < TIMEOUT_MS && atomic_load(&driver.answers) < until; ms++)
        pause_ms(1);
    return atomic_load(&driver.answers) >= until;
}

static int end_while_memory_is_asked_for(void *arg)
{
    fixture w = {.path = ""};
    const gvm_keeper_options server_options = {.struct_size = sizeof server_options,
                                               .path = "",
                                               .device_budget_bytes = 16 * MIB,
                                               .host_budget_bytes = 16 * MIB,
                                               .driver_free_bytes = 48 * MIB,
                                               .log = take_line,
                                               .log_context = &w};
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = 2 * MIB, .size_bytes = 2 * MIB, .mode = 0666};
    gvm_client *keeper;
    gvm_object *object;
    int32_t devices, fd;
    client c;

    (void)arg;
    use_small_device();
    CHILD_EXPECT(gvm_device_count(&devices) == GVM_OK);
    driver.real = gvmi_cu;
    driver.altered = *gvmi_cu;
    driver.altered.cuMemGetInfo = get_info_late;
    gvmi_cu = &driver.altered;
    CHILD_EXPECT(gvm_keeper_start(&server_options, &w.server) == GVM_OK);
    CHILD_EXPECT(adopt(w.server, &keeper) == 0);
    CHILD_EXPECT(gvm_object_create(keeper, "/x", 2 * MIB, &options, &object) == GVM_OK);
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK && greet(fd, &c));
    CHILD_EXPECT(open_object(&c) && tell_plain(fd, GVMI_WIRE_OPENED, 3) && is_cut(fd));
    gvm_object_close(object);                                          /* and so it ends */
    CHILD_EXPECT(held_bytes(keeper) == 2 * MIB && driver_is_asked(2)); /* once since then */
    atomic_store(&driver.delay, true);
    while (!atomic_load(&driver.given))
        pause_ms(1);
    hang_up(&c);
    while (held_bytes(keeper) != 0)
        sched_yield();
    atomic_store(&driver.go_on, true);
    CHILD_EXPECT(driver_is_asked(2) && count_lines(&w, "budget") == 0);
    gvm_client_close(keeper);
    gvm_keeper_stop(w.server);
    gvmi_cu = driver.real;
    return 0;
}

CHILD_TEST(client_that_ends_while_free_memory_is_asked_for_lowers_no_budget,
           end_while_memory_is_asked_for)

/* It speaks no more, and has not closed its end; but it never had memory. */
static int fall_silent(void *arg)
{
    fixture w;
    client a, b;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a) && greet(dial(&w), &b));
    CHILD_EXPECT(shutdown(b.socket, SHUT_WR) == 0);
    CHILD_EXPECT(are_clients(&a, 1));
    hang_up(&b);
    hang_up(&a);
    return stop(&w);
}

CHILD_TEST(client_of_the_same_process_that_falls_silent_is_forgotten, fall_silent)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_comes_and_goes),
        cmocka_unit_test(client_too_many_gets_an_error_that_says_so),
        cmocka_unit_test(connections_of_users_leave_room_for_others_and_root),
        cmocka_unit_test(client_that_speaks_nonsense_is_cut_off),
        cmocka_unit_test(client_that_never_reads_is_cut_off),
        cmocka_unit_test(messages_at_once_are_answered_in_order),
        cmocka_unit_test(client_that_hears_nothing_is_read_to_its_end),
        cmocka_unit_test(process_that_ends_is_gone),
        cmocka_unit_test(process_of_another_user_that_says_bye_is_charged_until_it_ends),
        cmocka_unit_test(user_without_number_in_the_namespace_is_refused),
        cmocka_unit_test(keeper_out_of_fds_waits_for_some),
        cmocka_unit_test(object_of_more_chunks_than_a_message_is_leased_whole),
        cmocka_unit_test(server_without_descriptors_answers_the_cause),
        cmocka_unit_test(name_too_long_for_a_text_keeps_its_end),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(client_of_the_same_process_that_is_cut_off_keeps_its_frames),
        cmocka_unit_test(client_that_ends_while_free_memory_is_asked_for_lowers_no_budget),
        cmocka_unit_test(client_of_the_same_process_that_falls_silent_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
