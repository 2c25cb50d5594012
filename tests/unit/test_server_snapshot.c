/* keeper/server/connection.c: what snapshots cost, as long as a client has not read them and afterwards. A client
 * may keep the fd of each: the memory is the keeper's to free. */
#define _GNU_SOURCE
#include "tests/lib/fixture.h"
#include "tests/unit/server_fixture.h"

#define SNAPSHOTS_ASKED 1000
#define SNAPSHOTS_MADE_MAX 17 /* one that is not read, and 16 that wait */
#define ROUNDS 50             /* of another client, while those requests are taken */

static int ask_for_snapshots_without_reading(void *arg)
{
    fixture w;
    client a, b;
    int made = 0, refused = 0, fds;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a) && greet(dial(&w), &b));
    fds = count_fds();
    for (uint64_t i = 0; i < SNAPSHOTS_ASKED; i++)
        CHILD_EXPECT(tell_plain(b.socket, GVMI_WIRE_SNAPSHOT, 100 + i));
    for (int i = 0; i < ROUNDS; i++)
        CHILD_EXPECT(count_clients(&a) == 2);
    CHILD_EXPECT(count_fds() <= fds + 2); /* the keeper is here, too */
    while (made + refused < SNAPSHOTS_ASKED) {
        gvmi_client_message message;

        CHILD_EXPECT(gvmi_client_receive(b.socket, TIMEOUT_MS, &message) == GVM_OK);
        if (message.wire.head.type == GVMI_WIRE_SNAPSHOT_IS) {
            made++;
            CHILD_EXPECT(tell_plain(b.socket, GVMI_WIRE_SNAPSHOT_READ, 0));
        } else {
            refused++;
            CHILD_EXPECT(message.wire.head.type == GVMI_WIRE_FAILED &&
                         message.wire.body.FAILED.status == GVM_E_LIMIT);
        }
        gvmi_fds_close(&message.came);
    }
    CHILD_EXPECT(made >= 1 && made <= SNAPSHOTS_MADE_MAX);
    CHILD_EXPECT(count_clients(&b) == 2); /* who reads gets more */
    hang_up(&a);
    hang_up(&b);
    return stop(&w);
}

CHILD_TEST(client_that_does_not_read_snapshots_holds_one, ask_for_snapshots_without_reading)

#define SNAPSHOTS_KEPT 40

static uint64_t bytes_of(int fd)
{
    struct stat found;

    return fstat(fd, &found) == 0 ? (uint64_t)found.st_size : UINT64_MAX;
}

/* The client cannot write it, enlarge it, or keep the keeper from truncating it. */
static bool is_sealed(int fd, uint64_t bytes)
{
    char byte = 0;

    return pwrite(fd, &byte, 1, 0) < 0 && ftruncate(fd, (off_t)bytes + 1) != 0 &&
           fallocate(fd, 0, 0, (off_t)bytes + 1) != 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0 &&
           mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED;
}

/* The keeper learns of a client's end a moment later. */
static bool becomes_empty(int fd)
{
    char byte;

    for (int i = 0; i < TIMEOUT_MS && bytes_of(fd) > 0; i++)
        pause_ms(1);
    return bytes_of(fd) == 0 && pread(fd, &byte, 1, 0) == 0;
}

/* Takes a snapshot and keeps its fd; -1 if that fails. */
static int keep_snapshot(const client *c)
{
    gvmi_wire_message message;
    int fd;

    if (!tell_plain(c->socket, GVMI_WIRE_SNAPSHOT, 5) || !hear(c->socket, &message, &fd, 1) ||
        message.head.type != GVMI_WIRE_SNAPSHOT_IS)
        return -1;
    if (bytes_of(fd) == message.body.SNAPSHOT_IS.value && is_sealed(fd, message.body.SNAPSHOT_IS.value))
        return fd;
    close(fd);
    return -1;
}

static int keep_snapshots_after_reading(void *arg)
{
    int fds[SNAPSHOTS_KEPT];
    fixture w;
    client a;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a));
    for (int i = 0; i < SNAPSHOTS_KEPT; i++) {
        fds[i] = keep_snapshot(&a);
        CHILD_EXPECT(fds[i] >= 0);
        CHILD_EXPECT(tell_plain(a.socket, GVMI_WIRE_SNAPSHOT_READ, 0));
    }
    for (int i = 0; i < SNAPSHOTS_KEPT; i++) {
        CHILD_EXPECT(becomes_empty(fds[i]));
        close(fds[i]);
    }
    hang_up(&a);
    return stop(&w);
}

CHILD_TEST(snapshot_that_was_read_is_taken_back_from_who_keeps_it, keep_snapshots_after_reading)

enum { ENDS_CUT_OFF, ENDS_WITH_BYE, ENDS_SILENT, ENDS_FORGED, ENDS_WITH_SERVER, WAYS_TO_END };

static int keep_snapshots_after_the_end(void *arg)
{
    int fds[WAYS_TO_END];
    fixture w;
    client c[WAYS_TO_END];

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    for (int way = 0; way < WAYS_TO_END; way++) {
        CHILD_EXPECT(greet(dial(&w), &c[way]));
        fds[way] = keep_snapshot(&c[way]);
        CHILD_EXPECT(fds[way] >= 0);
    }
    pause_ms(5); /* what was read from the socket alone stays */
    for (int way = 0; way < WAYS_TO_END; way++)
        CHILD_EXPECT(bytes_of(fds[way]) > 0);
    CHILD_EXPECT(send(c[ENDS_CUT_OFF].socket, "not a message of the keeper's", 29, 0) == 29);
    CHILD_EXPECT(tell_plain(c[ENDS_WITH_BYE].socket, GVMI_WIRE_BYE, 0));
    CHILD_EXPECT(shutdown(c[ENDS_SILENT].socket, SHUT_WR) == 0);
    CHILD_EXPECT(tell_plain(c[ENDS_FORGED].socket, GVMI_WIRE_SNAPSHOT_READ, 0) &&
                 tell_plain(c[ENDS_FORGED].socket, GVMI_WIRE_SNAPSHOT_READ, 0) &&
                 is_cut(c[ENDS_FORGED].socket));
    for (int way = 0; way < ENDS_WITH_SERVER; way++)
        CHILD_EXPECT(becomes_empty(fds[way]));
    CHILD_EXPECT(bytes_of(fds[ENDS_WITH_SERVER]) > 0);
    for (int way = 0; way < ENDS_WITH_SERVER; way++) {
        hang_up(&c[way]);
        close(fds[way]);
    }
    gvm_keeper_stop(w.server);
    CHILD_EXPECT(becomes_empty(fds[ENDS_WITH_SERVER]));
    hang_up(&c[ENDS_WITH_SERVER]);
    close(fds[ENDS_WITH_SERVER]);
    return 0;
}

CHILD_TEST(snapshot_of_client_that_ended_is_taken_back, keep_snapshots_after_the_end)

/* The fd is in no process but on its way: the last that the socket of a client brings. */
static int leave_snapshot_in_the_socket(void *arg)
{
    struct pollfd entry = {.events = POLLIN};
    gvmi_wire_message message;
    fixture w;
    client a;
    int fd;

    (void)arg;
    if (start(&w, 0) != 0)
        return 1;
    CHILD_EXPECT(greet(dial(&w), &a));
    CHILD_EXPECT(tell_plain(a.socket, GVMI_WIRE_SNAPSHOT, 5));
    entry.fd = a.socket;
    CHILD_EXPECT(poll(&entry, 1, TIMEOUT_MS) == 1);
    CHILD_EXPECT(shutdown(a.socket, SHUT_WR) == 0);
    CHILD_EXPECT(hear(a.socket, &message, &fd, 1) && message.head.type == GVMI_WIRE_SNAPSHOT_IS);
    CHILD_EXPECT(becomes_empty(fd));
    close(fd);
    hang_up(&a);
    return stop(&w);
}

CHILD_TEST(snapshot_in_the_socket_of_client_that_ended_is_taken_back, leave_snapshot_in_the_socket)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_that_does_not_read_snapshots_holds_one),
        cmocka_unit_test(snapshot_that_was_read_is_taken_back_from_who_keeps_it),
        cmocka_unit_test(snapshot_of_client_that_ended_is_taken_back),
        cmocka_unit_test(snapshot_in_the_socket_of_client_that_ended_is_taken_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
