/* What no client says: garbage, halves, floods, other people's slots.
 *
 * Each abuser is a process with a socket of its own. The keeper must end the connection, where what
 * was said cannot be, and lose nothing over it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/proc/keeper_fixture.h"
#include "tests/proc/keeper_raw.h"

#define END_WAIT_MS 10000 /* until the keeper has closed an abuser's socket */
#define FDS_OF_MESSAGE 200u
#define FLOOD_MESSAGES_MAX 400000u
#define CONNECTIONS 1100u /* more than */
#define CLIENTS_MAX 1024u /* a keeper takes, by default */
#define CROOKED_NAME "/crooked"

static uint64_t seed;

static int speak_to(const fixture *s)
{
    const int fd = raw_connect(s->folder.socket);

    if (fd < 0)
        printf("# connect: %s\n", strerror(errno));
    return fd;
}

/* Reads and throws away, until the keeper closes. */
static bool is_ended(int fd)
{
    char waste[65536];

    for (;;) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        ssize_t got;

        if (poll(&entry, 1, END_WAIT_MS) <= 0)
            return UNEXPECTED("the keeper ends who abuses it");
        got = recv(fd, waste, sizeof waste, 0); /* fds that come along are dropped by the kernel */
        if (got == 0 || (got < 0 && errno != EINTR))
            return true;
    }
}

/* What the keeper counts as a client's is its process's, so every abuser is a process. */
typedef struct abuser {
    pid_t pid;
    int control; /* a byte comes when it has spoken, none if it could not; closed: it is to end */
} abuser;

static void be_abuser(const fixture *s, bool (*speak)(int fd), bool must_end, int control)
{
    const int fd = speak_to(s);
    char byte;
    bool good = fd >= 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (good)
        (void)speak(fd); /* it may be closed at any moment */
    good = good && (!must_end || is_ended(fd));
    if (good) {
        (void)!send(control, "y", 1, MSG_NOSIGNAL);
        (void)!recv(control, &byte, 1, 0);
    }
    fflush(stdout);
    _exit(good ? 0 : 1);
}

static abuser abuser_start(const fixture *s, bool (*speak)(int fd), bool must_end)
{
    abuser a = {0};
    int ends[2];

    (void)random_next(&seed);
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return a;
    a.pid = fork();
    if (a.pid == 0) {
        close(ends[0]);
        be_abuser(s, speak, must_end, ends[1]);
    }
    close(ends[1]);
    a.control = ends[0];
    return a;
}

static bool abuser_has_spoken(const abuser *a)
{
    char byte;

    return EXPECT(recv(a->control, &byte, 1, 0) == 1);
}

static bool abuser_end(abuser *a)
{
    int status = -1;

    if (a->pid <= 0)
        return false;
    shutdown(a->control, SHUT_RDWR); /* abusers that came later have copies of it */
    close(a->control);
    while (waitpid(a->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return EXPECT(status == 0);
}

/* One abuser; must_end: what it says cannot be, so its socket is closed. */
static bool abuse(fixture *s, bool (*speak)(int fd), bool must_end)
{
    abuser a = abuser_start(s, speak, must_end);
    bool good = abuser_has_spoken(&a) && fixture_reads(s);

    return abuser_end(&a) && good;
}

/* ---- what they say */

static bool garbage(int fd)
{
    uint8_t bytes[5000];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)random_next(&seed);
    return raw_say(fd, bytes, sizeof bytes);
}

static bool garbage_after_hello(int fd)
{
    return raw_say_hello(fd) && garbage(fd);
}

static bool nothing(int fd)
{
    (void)fd;
    return true;
}

static bool half_a_head(int fd)
{
    return raw_say(fd, "\1\0\0\0\50\0", 6);
}

static bool half_a_message(int fd)
{
    gvmi_wire_message message;
    uint8_t bytes[sizeof message];

    gvmi_wire_start(&message, GVMI_WIRE_OPEN, 7);
    memcpy(message.body.OPEN.name, STILL_NAME, sizeof STILL_NAME);
    return raw_say_hello(fd) && raw_say(fd, bytes, gvmi_wire_encode(&message, bytes) / 2);
}

static bool another_version(int fd)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_HELLO, 1);
    message.body.HELLO.magic = GVMI_WIRE_MAGIC;
    message.body.HELLO.version = GVMI_WIRE_VERSION + 7;
    return raw_say_message(fd, &message);
}

static bool no_hello(int fd)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_SNAPSHOT, 1);
    return raw_say_message(fd, &message);
}

static bool hello_twice(int fd)
{
    return raw_say_hello(fd) && raw_say_hello(fd);
}

static bool slot_number(int fd, uint32_t slot)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_MAPPED, 0);
    message.body.MAPPED.slot = slot;
    message.body.MAPPED.serial = 99;
    return raw_say_hello(fd) && raw_say_message(fd, &message);
}

static bool slot_unmapped(int fd)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_UNMAPPED, 0);
    message.body.UNMAPPED.slot = 5;
    message.body.UNMAPPED.serial = 99;
    return raw_say_hello(fd) && raw_say_message(fd, &message);
}

static bool slot_not_opened(int fd)
{
    return slot_number(fd, 5);
}

static bool slot_beyond(int fd)
{
    return slot_number(fd, UINT32_MAX - 1);
}

static bool lease_never_granted(int fd)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_OPEN, 2);
    memcpy(message.body.OPEN.name, STILL_NAME, sizeof STILL_NAME);
    if (!raw_say_hello(fd) || !raw_say_message(fd, &message))
        return false;
    gvmi_wire_start(&message, GVMI_WIRE_TAKEN, 0);
    message.body.TAKEN.slot = 0;
    message.body.TAKEN.mode = GVM_LEASE_WRITE;
    return raw_say_message(fd, &message);
}

static bool snapshot_never_sent(int fd)
{
    gvmi_wire_message message;

    if (!raw_say_hello(fd))
        return false;
    gvmi_wire_start(&message, GVMI_WIRE_SNAPSHOT_READ, 0);
    return raw_say_message(fd, &message);
}

/* Heads of the right form, bodies of anything. */
static bool random_messages(int fd)
{
    bool open = raw_say_hello(fd);

    for (int i = 0; i < 60 && open; i++) {
        const uint64_t random = random_next(&seed);
        const gvmi_wire_type drawn = raw_types[random % raw_type_count];
        /* A quota would be heeded: the abuser is of the bystander's user. */
        const gvmi_wire_type type = drawn == GVMI_WIRE_SET_QUOTA ? GVMI_WIRE_SNAPSHOT : drawn;
        gvmi_wire_head head = {.type = (uint16_t)type,
                               .request = random >> 20 & 1 ? (uint64_t)i + 2 : 0};
        uint8_t bytes[sizeof(gvmi_wire_message)] = {0};
        size_t len;

        head.tail_bytes = random >> 24 & 1 ? 0 : (uint32_t)(random >> 32) % 64;
        len = sizeof head + gvmi_wire_body_bytes(type) + head.tail_bytes;
        head.bytes = (uint32_t)len;
        memcpy(bytes, &head, sizeof head);
        for (size_t at = sizeof(gvmi_wire_head); at < len; at++)
            if (random >> 16 & 1) /* else zeros, with a few bits */
                bytes[at] = (uint8_t)random_next(&seed);
        open = raw_say(fd, bytes, len);
    }
    return open;
}

/* Where the system refuses them (Linux 6.16), garbage. */
static bool flood_of_fds(int fd)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    gvmi_wire_message message;
    uint8_t bytes[sizeof message];
    bool sent = true, refused;

    gvmi_wire_start(&message, GVMI_WIRE_HELLO, 1);
    message.body.HELLO.magic = GVMI_WIRE_MAGIC;
    message.body.HELLO.version = GVMI_WIRE_VERSION;
    for (int i = 0; i < 50 && sent; i++) {
        sent = raw_say_with_fds(fd, bytes, gvmi_wire_encode(&message, bytes), null, FDS_OF_MESSAGE);
        gvmi_wire_start(&message, GVMI_WIRE_SNAPSHOT, 2 + (uint64_t)i);
    }
    refused = !sent && errno == EPERM;
    close(null);
    return refused ? garbage(fd) : sent;
}

/* Asks and asks and never reads: what waits for it must stay bounded. */
static bool flood_of(int fd, gvmi_wire_type type)
{
    gvmi_wire_message message;
    uint8_t bytes[sizeof message];
    bool open = raw_say_hello(fd);

    for (unsigned i = 0; i < FLOOD_MESSAGES_MAX && open; i++) {
        gvmi_wire_start(&message, type, i + 2u);
        open = raw_say(fd, bytes, gvmi_wire_encode(&message, bytes));
    }
    return open;
}

static bool flood_of_snapshots(int fd)
{
    return flood_of(fd, GVMI_WIRE_SNAPSHOT);
}

static bool flood_of_infos(int fd)
{
    return flood_of(fd, GVMI_WIRE_GET_INFO);
}

static uint8_t device_uuid[16];

/* An object for all, where no chunk can be. */
static bool crooked_address(int fd)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_CREATE, 2);
    memcpy(message.body.CREATE.name, CROOKED_NAME, sizeof CROOKED_NAME);
    memcpy(message.body.CREATE.device_uuid, device_uuid, sizeof device_uuid);
    message.body.CREATE.reserve_bytes = message.body.CREATE.chunk_bytes = CHUNK_BYTES;
    message.body.CREATE.mode = 0666;
    message.body.CREATE.flags = GVM_OBJECT_KEEP;
    if (!raw_say_hello(fd) || !raw_say_message(fd, &message))
        return false;
    gvmi_wire_start(&message, GVMI_WIRE_MAPPED, 0);
    message.body.MAPPED.address = 0x1001;
    return raw_say_message(fd, &message);
}

/* ---- the tests */

static bool one_abuse(bool (*speak)(int fd), bool must_end, int times)
{
    fixture s;
    bool good = fixture_begin(&s, 0);

    for (int i = 0; i < times && good; i++)
        good = abuse(&s, speak, must_end);
    good = good && fixture_is_whole(&s);
    return fixture_end(&s) && good;
}

/* A client that stays silent in the middle of a word holds up nobody. */
static bool unfinished_messages_hold_up_nobody(void)
{
    static bool (*const ways[])(int fd) = {nothing, half_a_head, half_a_message};
    fixture s;
    abuser all[3] = {{0}};
    bool good = fixture_begin(&s, 0);

    for (int i = 0; i < 3 && good; i++) {
        all[i] = abuser_start(&s, ways[i], false);
        good = abuser_has_spoken(&all[i]) && fixture_reads(&s);
    }
    good = good && KEEPER_OK(&s.bystander, EVICT, 0, STILL_NAME, 0, 0) && fixture_reads(&s);
    for (int i = 0; i < 3; i++)
        good = abuser_end(&all[i]) && good;
    good = good && fixture_is_whole(&s);
    return fixture_end(&s) && good;
}

/* Who opens an object keeps its connection and its leases, wherever the object's creator says that it is. */
static bool address_that_cannot_be_ends_its_creator_alone(void)
{
    fixture s;
    keeper_answer now;
    bool good = fixture_begin(&s, 0) && fixture_snapshot(&s, &now);
    abuser a;
    bool ended;

    if (good)
        memcpy(device_uuid, now.device.uuid, sizeof device_uuid);
    a = abuser_start(&s, crooked_address, true);
    ended = abuser_has_spoken(&a);
    good = good && KEEPER_OK(&s.bystander, ACQUIRE, 0, NULL, GVM_LEASE_READ, LEASE_WAIT_MS) &&
           KEEPER_OK(&s.bystander, OPEN, 1, CROOKED_NAME, 0, 0) &&
           KEEPER_OK(&s.bystander, CLOSE, 1, NULL, 0, 0) &&
           KEEPER_OK(&s.bystander, DROP, 1, CROOKED_NAME, 0, 0) &&
           KEEPER_OK(&s.bystander, RELEASE, 0, NULL, 0, 0) && fixture_reads(&s);
    good = abuser_end(&a) && ended && good && fixture_is_whole(&s);
    return fixture_end(&s) && good;
}

static fixture *crowded;

/* Connects more often than a keeper takes; each is greeted or refused. */
static bool crowd(int unused)
{
    static int fds[CONNECTIONS];
    unsigned refused = 0;

    (void)unused;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        fds[i] = speak_to(crowded);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        if (fds[i] >= 0)
            (void)raw_say_hello(fds[i]);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct pollfd entry = {.fd = fds[i], .events = POLLIN};
        uint8_t head[sizeof(gvmi_wire_head)] = {0};
        uint16_t type;

        if (fds[i] < 0 || poll(&entry, 1, END_WAIT_MS) <= 0 || recv(fds[i], head, sizeof head, 0) <= 0) {
            refused++;
        } else {
            memcpy(&type, head, sizeof type);
            refused += type != GVMI_WIRE_WELCOME;
        }
    }
    if (refused >= CONNECTIONS - CLIENTS_MAX && refused < CONNECTIONS)
        return true;
    printf("# %u of %u connections were refused\n", refused, CONNECTIONS);
    fflush(stdout);
    _exit(1);
}

static bool connections_beyond_the_limit_are_refused(void)
{
    fixture s;
    bool good = fixture_begin(&s, 0);

    crowded = &s;
    good = good && abuse(&s, crowd, false) && fixture_is_whole(&s);
    return fixture_end(&s) && good;
}

void test_abuses(uint64_t first_seed)
{
    static const struct {
        const char *name;
        bool (*speak)(int fd);
        bool must_end;
        int times;
    } ways[] = {
        {"garbage", garbage, true, 20},
        {"garbage after HELLO", garbage_after_hello, true, 20},
        {"nothing", nothing, false, 5},
        {"half a head", half_a_head, false, 5},
        {"half a message", half_a_message, false, 5},
        {"another version", another_version, true, 2},
        {"a message before HELLO", no_hello, true, 2},
        {"HELLO twice", hello_twice, true, 2},
        {"MAPPED of a slot that is not open", slot_not_opened, false, 2},
        {"MAPPED of a slot that cannot be", slot_beyond, true, 2},
        {"UNMAPPED of a slot that is not open", slot_unmapped, false, 2},
        {"TAKEN of a lease never granted", lease_never_granted, true, 2},
        {"SNAPSHOT_READ of a snapshot never sent", snapshot_never_sent, true, 2},
        {"messages of random contents", random_messages, false, 100},
        {"messages with hundreds of fds", flood_of_fds, true, 3},
        {"snapshots asked for and never read", flood_of_snapshots, true, 1},
        {"requests without end, answers never read", flood_of_infos, true, 1},
    };

    seed = first_seed;
    printf("# abuse: seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        tap_result(one_abuse(ways[i].speak, ways[i].must_end, ways[i].times), "abuse: %s",
                   ways[i].name);
    tap_result(unfinished_messages_hold_up_nobody(), "unfinished_messages_hold_up_nobody");
    tap_result(address_that_cannot_be_ends_its_creator_alone(),
               "address_that_cannot_be_ends_its_creator_alone");
    tap_result(connections_beyond_the_limit_are_refused(), "connections_beyond_the_limit_are_refused");
}
