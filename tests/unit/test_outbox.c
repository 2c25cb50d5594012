/* keeper/server/outbox.c and fd.c: messages arrive whole, in order and with their fds, whatever the reader
 * does; and an fd lives as long as a message waits that brings it, and no longer.
 *
 * Every test runs between a count of the open fds and a second one, which must agree.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <gvmem/buffer.h>

#include "keeper/server/outbox.h"
#include "sharing/socket.h"
#include "tests/lib/fixture.h"

#define TIMEOUT_MS 20000 /* never reached */

typedef struct fixture {
    gvmi_outbox outbox;
    int keeper, client; /* two ends of a socket */
    int fds_before;
} fixture;

static int setup(void **state)
{
    static fixture f;
    int ends[2];

    f = (fixture){.fds_before = count_fds()};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    f.keeper = ends[0];
    f.client = ends[1];
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;

    gvmi_outbox_clear(&f->outbox);
    close(f->keeper);
    if (f->client >= 0)
        close(f->client);
    return count_fds() == f->fds_before && f->outbox.bytes == 0 ? 0 : -1;
}

static gvmi_outbox_state flush(fixture *f)
{
    uint32_t left = UINT32_MAX;

    return gvmi_outbox_flush(&f->outbox, f->keeper, &left);
}

/* ---- messages */

/* A piece of memory that can be told from others by its size. */
static gvmi_fd *make_memory(off_t bytes)
{
    const int fd = memfd_create("outbox", MFD_CLOEXEC);
    gvmi_fd *shared;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    assert_int_equal(gvmi_fd_own(fd, &shared), GVM_OK);
    return shared;
}

static void add_value(fixture *f, uint64_t request, uint64_t value)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_DONE, request);
    message.body.DONE.value = value;
    assert_int_equal(gvmi_outbox_add(&f->outbox, &message, NULL), GVM_OK);
}

static void make_map(gvmi_wire_message *message, uint64_t serial, uint16_t chunks)
{
    gvmi_wire_start(message, GVMI_WIRE_MAP, 0);
    message->head.fd_count = chunks;
    message->head.tail_bytes = chunks * (uint32_t)sizeof(gvmi_wire_chunk);
    message->body.MAP.serial = serial;
    for (uint32_t i = 0; i < chunks; i++)
        message->tail.chunks[i] = (gvmi_wire_chunk){.index = i, .tier = GVM_TIER_HOST, .stamp = 1};
}

static gvm_status add_map(fixture *f, uint64_t serial, uint16_t chunks, gvmi_fd *const *fds)
{
    gvmi_wire_message message;

    make_map(&message, serial, chunks);
    return gvmi_outbox_add(&f->outbox, &message, fds);
}

/* Reads one message, with exactly fd_count fds, as far as it is there, and has more sent until it is
 * whole. */
static void receive(fixture *f, gvmi_wire_message *message, int *fds, uint32_t fd_count)
{
    uint8_t bytes[sizeof *message];
    gvmi_wire_head head;
    gvmi_socket socket;
    size_t want = sizeof head;
    int there;

    assert_int_equal(gvmi_socket_begin(f->client, TIMEOUT_MS, &socket), GVM_OK);
    for (size_t done = 0, part; done < want; done += part) {
        assert_int_equal(ioctl(f->client, FIONREAD, &there), 0);
        if (there == 0) {
            (void)flush(f);
            assert_int_equal(ioctl(f->client, FIONREAD, &there), 0);
        }
        assert_true(there > 0);
        part = (size_t)there < want - done ? (size_t)there : want - done;
        assert_int_equal(gvmi_socket_receive(&socket, bytes + done, part, done == 0 ? fds : NULL,
                                             done == 0 ? fd_count : 0),
                         GVM_OK);
        if (done + part == sizeof head) {
            memcpy(&head, bytes, sizeof head);
            assert_int_equal(gvmi_wire_check_head(&head, false), GVM_OK);
            want = head.bytes;
        }
    }
    assert_int_equal(head.fd_count, fd_count);
    assert_int_equal(gvmi_wire_decode(bytes, head.bytes, false, message), GVM_OK);
}

static off_t size_of(int fd)
{
    struct stat about;

    assert_int_equal(fstat(fd, &about), 0);
    return about.st_size;
}

/* ---- tests */

static void messages_flushed_arrive_in_order(void **state)
{
    fixture *f = *state;
    gvmi_wire_message message;

    for (uint64_t i = 1; i <= 100; i++)
        add_value(f, i, i * i);
    assert_int_equal(flush(f), GVMI_OUTBOX_EMPTY);
    assert_int_equal(f->outbox.bytes, 0);
    for (uint64_t i = 1; i <= 100; i++) {
        receive(f, &message, NULL, 0);
        assert_int_equal(message.head.type, GVMI_WIRE_DONE);
        assert_int_equal(message.head.request, i);
        assert_int_equal(message.body.DONE.value, i * i);
    }
}

static void fds_dropped_while_waiting_arrive(void **state)
{
    fixture *f = *state;
    gvmi_fd *memory[GVMI_WIRE_CHUNKS_MAX];
    int fds[GVMI_WIRE_CHUNKS_MAX];
    gvmi_wire_message message;

    for (uint32_t i = 0; i < GVMI_WIRE_CHUNKS_MAX; i++)
        memory[i] = make_memory((off_t)i + 1);
    add_value(f, 1, 0);
    assert_int_equal(add_map(f, 7, GVMI_WIRE_CHUNKS_MAX, memory), GVM_OK);
    for (uint32_t i = 0; i < GVMI_WIRE_CHUNKS_MAX; i++)
        gvmi_fd_release(memory[i]);
    assert_int_equal(flush(f), GVMI_OUTBOX_EMPTY);
    receive(f, &message, NULL, 0);
    receive(f, &message, fds, GVMI_WIRE_CHUNKS_MAX);
    assert_int_equal(message.body.MAP.serial, 7);
    for (uint32_t i = 0; i < GVMI_WIRE_CHUNKS_MAX; i++) {
        assert_int_equal(size_of(fds[i]), i + 1);
        close(fds[i]);
    }
}

static void fd_in_two_messages_is_open_until_the_second_is_gone(void **state)
{
    fixture *f = *state;
    gvmi_fd *memory = make_memory(5);
    const int fd = memory->fd;

    assert_int_equal(add_map(f, 1, 1, &memory), GVM_OK);
    assert_int_equal(add_map(f, 2, 1, &memory), GVM_OK);
    assert_int_equal(memory->references, 3);
    gvmi_fd_release(memory);
    assert_int_equal(memory->references, 2);
    assert_int_equal(size_of(fd), 5);
    gvmi_outbox_clear(&f->outbox);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
}

/* Sends more than a socket holds, reading a little each time it is full. */
static void reader_slow_gets_every_message_once(void **state)
{
    enum { COUNT = 300 };
    fixture *f = *state;
    gvmi_fd *memory = make_memory(9);
    gvmi_wire_message message;
    uint64_t read = 0;
    bool blocked = false;
    int fd;

    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(add_map(f, i + 1, 1, &memory), GVM_OK);
        for (int j = 0; j < 4; j++)
            add_value(f, i + 1, i);
    }
    while (flush(f) == GVMI_OUTBOX_BLOCKED) {
        blocked = true;
        assert_true(f->outbox.first != NULL);
        receive(f, &message, &fd, 1);
        assert_int_equal(message.body.MAP.serial, ++read);
        close(fd);
        for (int j = 0; j < 4; j++)
            receive(f, &message, NULL, 0);
    }
    assert_true(blocked);
    assert_int_equal(memory->references, 1);
    while (read < COUNT) {
        receive(f, &message, &fd, 1);
        assert_int_equal(message.body.MAP.serial, ++read);
        assert_int_equal(size_of(fd), 9);
        close(fd);
        for (int j = 0; j < 4; j++)
            receive(f, &message, NULL, 0);
    }
    gvmi_fd_release(memory);
}

/* The socket takes less than one message: the rest comes later. */
static void message_sent_in_parts_arrives_whole(void **state)
{
    enum { COUNT = 50 };
    fixture *f = *state;
    gvmi_fd *memory = make_memory(3);
    gvmi_wire_message message;
    const int small = 1; /* the kernel makes it as small as it can */
    bool parted = false;
    int fd, there;

    assert_int_equal(setsockopt(f->keeper, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    for (uint64_t i = 1; i <= COUNT; i++) {
        assert_int_equal(add_map(f, i, 1, &memory), GVM_OK);
        gvmi_wire_start(&message, GVMI_WIRE_METADATA, i);
        message.head.tail_bytes = GVMI_WIRE_TAIL_BYTES_MAX;
        memset(message.tail.bytes, (int)i, GVMI_WIRE_TAIL_BYTES_MAX);
        assert_int_equal(gvmi_outbox_add(&f->outbox, &message, NULL), GVM_OK);
    }
    for (uint64_t i = 1; i <= COUNT; i++) {
        (void)flush(f);
        assert_int_equal(ioctl(f->client, FIONREAD, &there), 0);
        parted |= there > 1000 && there < (int)GVMI_WIRE_TAIL_BYTES_MAX; /* a MAP has under 1000 */
        receive(f, &message, &fd, 1);
        assert_int_equal(message.body.MAP.serial, i);
        assert_int_equal(size_of(fd), 3);
        close(fd);
        receive(f, &message, NULL, 0);
        assert_int_equal(message.head.request, i);
        assert_int_equal(message.tail.bytes[GVMI_WIRE_TAIL_BYTES_MAX - 1], i);
    }
    assert_true(parted);
    assert_int_equal(memory->references, 1);
    gvmi_fd_release(memory);
}

static void outbox_full_refuses_and_keeps_what_it_has(void **state)
{
    fixture *f = *state;
    gvmi_wire_message message;
    gvm_status status = GVM_OK;
    uint64_t count = 0;

    gvmi_wire_start(&message, GVMI_WIRE_METADATA, 1);
    message.head.tail_bytes = GVMI_WIRE_TAIL_BYTES_MAX;
    while (status == GVM_OK && count < 10000) {
        status = gvmi_outbox_add(&f->outbox, &message, NULL);
        count += status == GVM_OK;
        assert_true(f->outbox.bytes <= GVMI_OUTBOX_BYTES_MAX);
    }
    assert_int_equal(status, GVM_E_LIMIT);
    assert_in_range(count, GVMI_OUTBOX_BYTES_MAX / (2 * GVMI_WIRE_TAIL_BYTES_MAX),
                    GVMI_OUTBOX_BYTES_MAX / GVMI_WIRE_TAIL_BYTES_MAX);
    (void)flush(f);
    assert_int_equal(gvmi_outbox_add(&f->outbox, &message, NULL), GVM_OK);
    receive(f, &message, NULL, 0);
    assert_int_equal(message.head.tail_bytes, GVMI_WIRE_TAIL_BYTES_MAX);
}

static void reader_gone_breaks_it(void **state)
{
    fixture *f = *state;

    close(f->client);
    f->client = -1;
    add_value(f, 1, 1);
    assert_int_equal(flush(f), GVMI_OUTBOX_BROKEN);
}

/* Descriptors that may not be sent now stay where they are, and what is behind them. */
static void message_with_more_fds_than_are_left_waits(void **state)
{
    fixture *f = *state;
    gvmi_fd *fds[2] = {make_memory(1), make_memory(2)};
    gvmi_wire_message message;
    uint32_t left = 1;

    gvmi_wire_start(&message, GVMI_WIRE_MAP, 0);
    message.head.fd_count = 2;
    message.head.tail_bytes = 2 * sizeof message.tail.chunks[0];
    assert_int_equal(gvmi_outbox_add(&f->outbox, &message, fds), GVM_OK);
    gvmi_fd_release(fds[0]);
    gvmi_fd_release(fds[1]);
    assert_int_equal(gvmi_outbox_flush(&f->outbox, f->keeper, &left), GVMI_OUTBOX_SPENT);
    assert_int_equal(left, 1);
    left = 3;
    assert_int_equal(gvmi_outbox_flush(&f->outbox, f->keeper, &left), GVMI_OUTBOX_EMPTY);
    assert_int_equal(left, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(messages_flushed_arrive_in_order),
        TEST(fds_dropped_while_waiting_arrive),
        TEST(fd_in_two_messages_is_open_until_the_second_is_gone),
        TEST(reader_slow_gets_every_message_once),
        TEST(message_sent_in_parts_arrives_whole),
        TEST(outbox_full_refuses_and_keeps_what_it_has),
        TEST(reader_gone_breaks_it),
        TEST(message_with_more_fds_than_are_left_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
