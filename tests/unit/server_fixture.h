/* tests/unit/server_fixture.h - a keeper in the test's process, and a client spoken by hand over its socket.
 *
 * Each test runs in a child, because a driver is started once a process; at its end no fd and no thread
 * is left of the server (stop()).
 */
#ifndef SERVER_FIXTURE_H
#define SERVER_FIXTURE_H

#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <gvmem/client.h>
#include <gvmem/keeper.h>

#include "keeper/client/client.h"
#include "keeper/protocol/snapshot.h"
#include "keeper/protocol/wire.h"
#include "keeper/protocol/words.h"
#include "sharing/socket.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define TIMEOUT_MS 20000 /* never reached */

#ifdef __SANITIZE_THREAD__
#define SANITIZER_THREADS 1 /* it starts one of its own with the first of the program's */
#else
#define SANITIZER_THREADS 0
#endif

#define LOG_LINES_MAX 64

typedef struct fixture {
    gvm_keeper *server;
    /* of its log; the server's thread writes the lines, and then the count */
    char lines[LOG_LINES_MAX][256];
    atomic_uint line_count;
    char path[64];
    int fds, threads;
} fixture;

/* No other test's: it is filled here, and must be free at the start. */
static inline void use_small_device(void)
{
    fixture_machine("memory=64MiB");
}

static inline void take_line(void *context, const char *line)
{
    fixture *w = context;
    const unsigned count = atomic_load(&w->line_count);

    if (count < LOG_LINES_MAX) {
        snprintf(w->lines[count], sizeof w->lines[count], "%s", line);
        atomic_store(&w->line_count, count + 1);
    }
}

/* How many lines so far have this in them. */
static inline unsigned count_lines(fixture *w, const char *part)
{
    const unsigned count = atomic_load(&w->line_count);
    unsigned found = 0;

    for (unsigned i = 0; i < count; i++)
        found += strstr(w->lines[i], part) != NULL;
    return found;
}

static inline int start_mode(fixture *w, uint32_t clients_max, uint32_t socket_mode)
{
    gvm_keeper_options options = {.struct_size = sizeof options,
                                  .path = w->path,
                                  .socket_mode = socket_mode,
                                  .device_budget_bytes = 16 * MIB,
                                  .clients_max = clients_max,
                                  .log = take_line,
                                  .log_context = w};
    int32_t devices;

    use_small_device();
    atomic_init(&w->line_count, 0);
    snprintf(w->path, sizeof w->path, "/tmp/gvmem-test-server-%d.sock", (int)getpid());
    CHILD_EXPECT(gvm_device_count(&devices) == GVM_OK && devices == 1);
    w->fds = count_fds();
    w->threads = count_entries("/proc/self/task");
    CHILD_EXPECT(gvm_keeper_start(&options, &w->server) == GVM_OK);
    CHILD_EXPECT(strcmp(gvm_keeper_path(w->server), w->path) == 0);
    return 0;
}

static inline int start(fixture *w, uint32_t clients_max)
{
    return start_mode(w, clients_max, 0);
}

/* A thread that was joined is seen a moment longer. */
static inline bool threads_are_gone(const fixture *w)
{
    for (int ms = 0; ms < TIMEOUT_MS; ms++) {
        if (count_entries("/proc/self/task") <= w->threads + SANITIZER_THREADS)
            return true;
        poll(NULL, 0, 1);
    }
    return false;
}

static inline int stop(fixture *w)
{
    gvm_keeper_stop(w->server);
    gvm_keeper_stop(w->server); /* a stale handle is ignored */
    CHILD_EXPECT(access(w->path, F_OK) != 0);
    CHILD_EXPECT(count_fds() == w->fds);
    CHILD_EXPECT(threads_are_gone(w));
    return 0;
}

/* ---- a client, by hand */

typedef struct client {
    int socket;
    int fds[3]; /* lease page, permit page, doorbell */
} client;

static inline int dial(const fixture *w)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, w->path, strlen(w->path));
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    return fd;
}

static inline bool tell(int fd, gvmi_wire_message *message)
{
    uint8_t bytes[sizeof *message];
    const size_t len = gvmi_wire_encode(message, bytes);
    gvmi_socket socket;

    return gvmi_socket_begin(fd, TIMEOUT_MS, &socket) == GVM_OK &&
           gvmi_socket_send(&socket, bytes, len, NULL, 0) == GVM_OK;
}

static inline bool tell_plain(int fd, gvmi_wire_type type, uint64_t request)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, type, request);
    if (type == GVMI_WIRE_HELLO)
        message.body.HELLO = (gvmi_wire_hello){.magic = GVMI_WIRE_MAGIC, .version = GVMI_WIRE_VERSION};
    if (type == GVMI_WIRE_DROP) /* answered FAILED: there is none */
        strcpy(message.body.DROP.name, "/nothing");
    return tell(fd, &message);
}

static inline bool hear(int fd, gvmi_wire_message *message, int *fds, uint32_t fd_count)
{
    uint8_t bytes[sizeof *message];
    gvmi_wire_head head;
    gvmi_socket socket;

    if (gvmi_socket_begin(fd, TIMEOUT_MS, &socket) != GVM_OK ||
        gvmi_socket_receive(&socket, bytes, sizeof head, fds, fd_count) != GVM_OK)
        return false;
    memcpy(&head, bytes, sizeof head);
    return gvmi_wire_check_head(&head, false) == GVM_OK &&
           gvmi_socket_receive(&socket, bytes + sizeof head, head.bytes - sizeof head, NULL, 0) ==
               GVM_OK &&
           gvmi_wire_decode(bytes, head.bytes, false, message) == GVM_OK;
}

static inline bool greet(int fd, client *c)
{
    gvmi_wire_message message;

    c->socket = fd;
    return fd >= 0 && tell_plain(fd, GVMI_WIRE_HELLO, 1) && hear(fd, &message, c->fds, 3) &&
           message.head.type == GVMI_WIRE_WELCOME && message.head.request == 1;
}

/* The next message of a type; others are passed over, and all descriptors closed. */
static inline bool hear_type(const client *c, gvmi_wire_type type, gvmi_wire_message *out)
{
    gvmi_client_message message;

    do {
        if (gvmi_client_receive(c->socket, TIMEOUT_MS, &message) != GVM_OK)
            return false;
        gvmi_fds_close(&message.came);
    } while (message.wire.head.type != type);
    *out = message.wire;
    return true;
}

static inline bool say_mapped(const client *c, uint32_t slot, uint64_t serial)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_MAPPED, 0);
    message.body.MAPPED = (gvmi_wire_mapped){.slot = slot, .serial = serial, .address = 1ull << 33};
    return tell(c->socket, &message);
}

static inline bool ask_to_read(const client *c, uint32_t slot)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_ACQUIRE, 4);
    message.body.ACQUIRE = (gvmi_wire_acquire){.slot = slot, .mode = GVM_LEASE_READ, .timeout_ms = -1};
    return tell(c->socket, &message);
}

/* It is not in the lease word, and so it has ended. */
static inline bool say_taken(const client *c, uint32_t slot)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_TAKEN, 0);
    message.body.TAKEN = (gvmi_wire_taken){.slot = slot, .mode = GVM_LEASE_READ};
    return tell(c->socket, &message);
}

/* Opens /x, asks for a lease, which ends, and says that all of it is mapped. */
static inline bool open_object(const client *c)
{
    gvmi_wire_message message;
    uint32_t slot;

    gvmi_wire_start(&message, GVMI_WIRE_OPEN, 3);
    strcpy(message.body.OPEN.name, "/x");
    if (!tell(c->socket, &message) || !hear_type(c, GVMI_WIRE_OPENED, &message))
        return false;
    slot = message.body.OPENED.slot;
    return say_mapped(c, slot, 0) && ask_to_read(c, slot) &&
           hear_type(c, GVMI_WIRE_MAP, &message) && say_mapped(c, slot, message.body.MAP.serial) &&
           hear_type(c, GVMI_WIRE_GRANTED, &message) && say_taken(c, slot);
}

static inline void hang_up(client *c)
{
    close(c->socket);
    for (int i = 0; i < 3; i++)
        close(c->fds[i]);
}

/* How many clients there are, as the keeper tells one of them; -1 if it does not. */
static inline int count_clients(const client *c)
{
    gvmi_wire_message message;
    gvmi_snapshot_head head;
    int fd;
    bool good = tell_plain(c->socket, GVMI_WIRE_SNAPSHOT, 5) && hear(c->socket, &message, &fd, 1) &&
                message.head.type == GVMI_WIRE_SNAPSHOT_IS;

    if (!good)
        return -1;
    good = pread(fd, &head, sizeof head, 0) == sizeof head && head.magic == GVMI_SNAPSHOT_MAGIC &&
           pwrite(fd, &head, sizeof head, 0) < 0; /* it is sealed */
    close(fd);
    good = tell_plain(c->socket, GVMI_WIRE_SNAPSHOT_READ, 0) && good;
    return good ? (int)head.client_count : -1;
}

/* Waits until the keeper knows of so many, which it may learn a moment later. */
static inline bool are_clients(const client *c, int count)
{
    int now = -1;

    for (int i = 0; i < TIMEOUT_MS && (now = count_clients(c)) != count && now >= 0; i++)
        pause_ms(1);
    return now == count;
}

/* The keeper has ended the connection. What it said before is passed over. */
static inline bool is_cut(int fd)
{
    char bytes[4096];
    ssize_t got;

    do {
        struct pollfd entry = {.fd = fd, .events = POLLIN};

        if (poll(&entry, 1, TIMEOUT_MS) != 1)
            return false;
        got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    } while (got > 0);
    return got == 0 || errno == ECONNRESET;
}

#endif
