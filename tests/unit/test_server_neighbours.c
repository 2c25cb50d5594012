/* keeper/server/: clients that must not disturb others: those that receive nothing, and those whose end is hard
 * to see. Each test runs in a child, because a driver is started once a process. */
#include "tests/lib/units.h"
#include "tests/unit/server_fixture.h"

#include <grp.h>

/* ---- processes whose first thread has ended */

typedef struct remainder {
    const fixture *w;
    int said, held;
    pthread_t first;
} remainder;

/* The first thread has ended; this one closes the connection and goes on. */
static void *close_and_go_on(void *arg)
{
    const remainder *r = arg;
    client c;
    gvmi_wire_message m;
    const bool alone = pthread_join(r->first, NULL) == 0;
    char byte = alone && greet(dial(r->w), &c) ? 'b' : 'x';

    gvmi_wire_start(&m, GVMI_WIRE_OPEN, 3);
    strcpy(m.body.OPEN.name, "/x");
    if (!tell(c.socket, &m) || !hear(c.socket, &m, NULL, 0) || m.head.type != GVMI_WIRE_OPENED)
        byte = 'x';
    hang_up(&c);
    _exit(write(r->said, &byte, 1) == 1 && read(r->held, &byte, 1) == 0 ? 0 : 1);
}

static int end_the_first_thread(void *arg)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .size_bytes = 2 * MIB, .flags = GVM_OBJECT_KEEP};
    static fixture w;
    static remainder r;
    gvm_client *keeper;
    gvm_object *object;
    client a;
    int said[2], held[2], fd;
    char byte = 0;
    pid_t pid;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(pipe2(said, O_CLOEXEC) == 0 && pipe2(held, O_CLOEXEC) == 0);
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK &&
                 gvm_client_adopt(fd, &keeper) == GVM_OK);
    CHILD_EXPECT(gvm_object_create(keeper, "/x", 2 * MIB, &options, &object) == GVM_OK);
    gvm_client_close(keeper);
    CHILD_EXPECT(greet(dial(&w), &a));
    pid = fork();
    if (pid == 0) {
        pthread_t thread;

        close(held[1]);
        r = (remainder){&w, said[1], held[0], pthread_self()};
        if (pthread_create(&thread, NULL, close_and_go_on, &r) == 0)
            pthread_exit(NULL);
        _exit(1);
    }
    close(said[1]);
    CHILD_EXPECT(read(said[0], &byte, 1) == 1 && byte == 'b');
    CHILD_EXPECT(are_clients(&a, 1)); /* though the process lives */
    close(held[1]);
    CHILD_EXPECT(waitpid(pid, NULL, 0) == pid);
    hang_up(&a);
    gvm_keeper_stop(w.server);
    return 0;
}

static void process_whose_first_thread_has_ended_is_seen_to_close(void **state)
{
    (void)state;
    SKIP_UNDER_VALGRIND("its processes end with their first thread");
    if (SANITIZER_THREADS) /* it allows no thread in a child of a program with several */
        skip();
    assert_child_succeeds(end_the_first_thread, NULL);
}

/* ---- descriptors on their way, of a keeper without the capability to have any number of them there */

#define FDS_LIMIT 1024
#define USER_KEEPER 60010u
#define USER_UNREAD 60011u
#define USER_OTHER 60012u

static bool become(uid_t uid)
{
    return setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0;
}

static gvmi_wire_message creation(const char *name, uint32_t chunks)
{
    gvmi_wire_message m;
    gvm_device *device;

    gvmi_wire_start(&m, GVMI_WIRE_CREATE, 2);
    strcpy(m.body.CREATE.name, name);
    m.body.CREATE.reserve_bytes = 8 * 2 * MIB;
    m.body.CREATE.chunk_bytes = 2 * MIB;
    m.body.CREATE.bytes = chunks * 2 * MIB;
    if (gvm_device_open(0, &device) == GVM_OK) {
        memcpy(m.body.CREATE.device_uuid, device->info.uuid, sizeof m.body.CREATE.device_uuid);
        gvm_device_close(device);
    }
    return m;
}

/* Opens an object again and again and receives nothing, over several connections. */
static int leave_descriptors_unread(const fixture *w, int said, int in)
{
    enum { CONNECTIONS = 16 };
    client clients[CONNECTIONS + 1];
    gvmi_wire_message m = creation("/unread", 6);
    char byte;

    CHILD_EXPECT(become(USER_UNREAD));
    for (int i = 0; i <= CONNECTIONS; i++)
        CHILD_EXPECT(greet(dial(w), &clients[i]));
    CHILD_EXPECT(tell(clients[0].socket, &m));
    CHILD_EXPECT(hear(clients[0].socket, &m, NULL, 0) && m.head.type == GVMI_WIRE_OPENED);
    for (int i = 1; i <= CONNECTIONS; i++) {
        gvmi_wire_start(&m, GVMI_WIRE_OPEN, 3);
        strcpy(m.body.OPEN.name, "/unread");
        m.body.OPEN.flags = GVM_OPEN_MAPPED;
        for (int j = 0; j < 16; j++)
            CHILD_EXPECT(tell(clients[i].socket, &m));
    }
    for (int i = 0; i < 3; i++) { /* all others were visited in between */
        CHILD_EXPECT(tell_plain(clients[0].socket, GVMI_WIRE_DROP, 4));
        CHILD_EXPECT(hear(clients[0].socket, &m, NULL, 0) && m.head.type == GVMI_WIRE_FAILED);
    }
    CHILD_EXPECT(write(said, "u", 1) == 1);
    CHILD_EXPECT(read(in, &byte, 1) == 0); /* until the test is over */
    return 0;
}

static int create_beside(const fixture *w)
{
    gvmi_wire_message m = creation("/other", 2);
    client c;
    int fds[8];

    CHILD_EXPECT(become(USER_OTHER));
    CHILD_EXPECT(greet(dial(w), &c));
    CHILD_EXPECT(tell(c.socket, &m));
    CHILD_EXPECT(hear(c.socket, &m, NULL, 0) && m.head.type == GVMI_WIRE_OPENED);
    CHILD_EXPECT(ask_to_read(&c, m.body.OPENED.slot));
    CHILD_EXPECT(hear(c.socket, &m, fds, 2) && m.head.type == GVMI_WIRE_MAP && m.head.fd_count == 2);
    return 0;
}

static int serve_without_capability(void *arg)
{
    const struct rlimit limit = {.rlim_cur = FDS_LIMIT, .rlim_max = FDS_LIMIT};
    static fixture w;
    int said[2], go[2], held[2], status = 1; /* go: the second one begins, held: the first one ends */
    pid_t unread, other;
    char byte;

    (void)arg;
    CHILD_EXPECT(pipe2(said, O_CLOEXEC) == 0 && pipe2(held, O_CLOEXEC) == 0);
    CHILD_EXPECT(pipe2(go, O_CLOEXEC) == 0);
    snprintf(w.path, sizeof w.path, "/tmp/gvmem-test-server-%d.sock", (int)getpid());
    use_small_device();
    unread = fork();
    if (unread == 0) {
        close(held[1]);
        CHILD_EXPECT(read(held[0], &byte, 1) == 1);
        _exit(leave_descriptors_unread(&w, said[1], held[0]));
    }
    other = fork();
    if (other == 0) {
        close(held[1]); /* else the first one would outlive a test that fails */
        CHILD_EXPECT(read(go[0], &byte, 1) == 1);
        _exit(create_beside(&w));
    }
    CHILD_EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0 && become(USER_KEEPER));
    CHILD_EXPECT(start_mode(&w, 64, 0666) == 0);
    CHILD_EXPECT(write(held[1], "g", 1) == 1 && read(said[0], &byte, 1) == 1);
    CHILD_EXPECT(write(go[1], "g", 1) == 1);
    CHILD_EXPECT(waitpid(other, &status, 0) == other && status == 0);
    CHILD_EXPECT(count_lines(&w, "descriptors are on their way to clients") == 1);
    close(held[1]);
    CHILD_EXPECT(waitpid(unread, &status, 0) == unread && status == 0);
    gvm_keeper_stop(w.server);
    return 0;
}

static void descriptors_that_a_user_does_not_receive_keep_no_other_waiting(void **state)
{
    (void)state;
    SKIP_UNDER_VALGRIND(VALGRIND_FDS);
    if (geteuid() != 0)
        skip();
    assert_child_succeeds(serve_without_capability, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_whose_first_thread_has_ended_is_seen_to_close),
        cmocka_unit_test(descriptors_that_a_user_does_not_receive_keep_no_other_waiting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
