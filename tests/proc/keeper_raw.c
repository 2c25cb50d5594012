/* The keeper's protocol, spoken by hand; see keeper_raw.h. */
#include "tests/proc/keeper_raw.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fds.h"

#define PASSED_MAX 200u
#define WELCOME_WAIT_MS 10000
#define DRAINED_MAX 4096u /* messages that raw_drain() takes at once */

const gvmi_wire_type raw_types[] = {
#define FROM_C(name) GVMI_WIRE_##name,
#define FROM_K(name)
#define TYPE(name, value, from, body, tail, fds) FROM_##from(name)
    GVMI_WIRE_TABLE(TYPE)
#undef TYPE
#undef FROM_K
#undef FROM_C
};
const unsigned raw_type_count = sizeof raw_types / sizeof raw_types[0];

int raw_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error;

    if (fd < 0)
        return -1;
    memcpy(address.sun_path, path, strnlen(path, sizeof address.sun_path - 1));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

bool raw_say(int fd, const void *bytes, size_t len)
{
    const char *next = bytes;

    while (len > 0) {
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        ssize_t sent = send(fd, next, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EAGAIN && poll(&entry, 1, RAW_SEND_WAIT_MS) > 0 &&
            (entry.revents & POLLERR) == 0)
            continue;
        if (sent < 0)
            return false;
        next += sent;
        len -= (size_t)sent;
    }
    return true;
}

bool raw_say_message(int fd, const gvmi_wire_message *message)
{
    uint8_t bytes[sizeof *message];

    return raw_say(fd, bytes, gvmi_wire_encode(message, bytes));
}

bool raw_say_hello(int fd)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_HELLO, 1);
    message.body.HELLO.magic = GVMI_WIRE_MAGIC;
    message.body.HELLO.version = GVMI_WIRE_VERSION;
    return raw_say_message(fd, &message);
}

bool raw_say_with_fds(int fd, const void *bytes, size_t len, int passed, unsigned count)
{
    int all[PASSED_MAX];

    if (count == 0 || count > PASSED_MAX)
        return false;
    for (unsigned i = 0; i < count; i++)
        all[i] = passed;
    return gvmi_fds_send(fd, bytes, len, all, count, MSG_DONTWAIT) > 0;
}

/* ---- a client */

/* Reads until there are len bytes. */
static bool fill(raw_client *c, size_t len, int timeout_ms)
{
    while (c->len < len) {
        gvmi_fds in = {.fds = c->fds, .capacity = RAW_FDS_MAX, .count = c->fd_count};
        struct pollfd entry = {.fd = c->fd, .events = POLLIN};
        ssize_t got;

        if (poll(&entry, 1, timeout_ms) <= 0)
            return false;
        got = gvmi_fds_receive(c->fd, c->bytes + c->len, sizeof c->bytes - c->len, &in, MSG_DONTWAIT);
        if (got <= 0)
            return false;
        c->fd_count = in.count;
        c->len += (size_t)got;
    }
    return true;
}

/* Takes the oldest count descriptors, or fewer if fewer came. */
static unsigned take_fds(raw_client *c, unsigned count, int *out)
{
    if (count > c->fd_count)
        count = c->fd_count;
    memcpy(out, c->fds, count * sizeof *out);
    c->fd_count -= count;
    memmove(c->fds, c->fds + count, c->fd_count * sizeof *c->fds);
    return count;
}

static void close_all(const int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
}

/* A whole message and its descriptors, which become the caller's. */
static bool receive(raw_client *c, int timeout_ms, gvmi_wire_message *out, int *fds, unsigned *fd_count)
{
    gvmi_wire_head head;
    bool good;

    if (!fill(c, sizeof head, timeout_ms))
        return false;
    memcpy(&head, c->bytes, sizeof head);
    if (gvmi_wire_check_head(&head, false) != GVM_OK || !fill(c, head.bytes, timeout_ms))
        return false;
    good = gvmi_wire_decode(c->bytes, head.bytes, false, out) == GVM_OK;
    c->len -= head.bytes;
    memmove(c->bytes, c->bytes + head.bytes, c->len);
    *fd_count = take_fds(c, head.fd_count, fds);
    return good;
}

static void answer(raw_client *c, const gvmi_wire_message *message)
{
    gvmi_wire_message mapped;

    if (message->head.type == GVMI_WIRE_SNAPSHOT_IS) {
        gvmi_wire_start(&mapped, GVMI_WIRE_SNAPSHOT_READ, 0);
        (void)raw_say_message(c->fd, &mapped);
        return;
    }
    gvmi_wire_start(&mapped, GVMI_WIRE_MAPPED, 0);
    mapped.body.MAPPED.address = RAW_ADDRESS;
    if (message->head.type == GVMI_WIRE_OPENED) {
        mapped.body.MAPPED.slot = message->body.OPENED.slot;
    } else if (message->head.type == GVMI_WIRE_MAP) {
        mapped.body.MAPPED.slot = message->body.MAP.slot;
        mapped.body.MAPPED.serial = message->body.MAP.serial;
    } else {
        return;
    }
    (void)raw_say_message(c->fd, &mapped);
}

bool raw_receive(raw_client *c, int timeout_ms, gvmi_wire_message *out)
{
    int fds[RAW_FDS_MAX];
    unsigned fd_count;

    if (!receive(c, timeout_ms, out, fds, &fd_count))
        return false;
    if (!c->keeps)
        close_all(fds, fd_count);
    if (!c->silent)
        answer(c, out);
    return true;
}

bool raw_call(raw_client *c, gvmi_wire_message *request, int timeout_ms, gvmi_wire_message *reply)
{
    request->head.request = ++c->requests;
    if (!raw_say_message(c->fd, request))
        return false;
    do
        if (!raw_receive(c, timeout_ms, reply))
            return false;
    while (reply->head.request != request->head.request);
    return true;
}

bool raw_drain(raw_client *c)
{
    gvmi_wire_message message;

    for (unsigned i = 0; i < DRAINED_MAX; i++)
        if (!raw_receive(c, 0, &message))
            break;
    return !raw_is_closed(c);
}

bool raw_is_closed(raw_client *c)
{
    struct pollfd entry = {.fd = c->fd, .events = POLLIN};
    char byte;

    return c->fd < 0 ||
           (poll(&entry, 1, 0) > 0 && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) ||
           (entry.revents & (POLLERR | POLLHUP)) != 0;
}

static void *map_page(int fd, size_t bytes, int rights)
{
    void *page = mmap(NULL, bytes, rights, MAP_SHARED, fd, 0);

    return page == MAP_FAILED ? NULL : page;
}

bool raw_begin(raw_client *c, const char *path)
{
    gvmi_wire_message message;
    int fds[RAW_FDS_MAX];
    unsigned fd_count;

    memset(c, 0, sizeof *c);
    c->doorbell = -1;
    c->requests = 1; /* HELLO's */
    c->fd = raw_connect(path);
    if (c->fd < 0 || !raw_say_hello(c->fd) || !receive(c, WELCOME_WAIT_MS, &message, fds, &fd_count))
        return false;
    if (message.head.type != GVMI_WIRE_WELCOME || fd_count != 3) {
        close_all(fds, fd_count);
        return false;
    }
    c->leases = map_page(fds[0], GVMI_LEASE_PAGE_BYTES, PROT_READ | PROT_WRITE);
    c->permits = map_page(fds[1], GVMI_PERMIT_PAGE_BYTES, PROT_READ);
    c->doorbell = fds[2];
    close_all(fds, 2);
    return c->leases != NULL && c->permits != NULL;
}

void raw_end(raw_client *c)
{
    close_all(c->fds, c->fd_count);
    if (c->leases != NULL)
        munmap(c->leases, GVMI_LEASE_PAGE_BYTES);
    if (c->permits != NULL)
        munmap((void *)(uintptr_t)c->permits, GVMI_PERMIT_PAGE_BYTES);
    if (c->doorbell >= 0)
        close(c->doorbell);
    if (c->fd >= 0)
        close(c->fd);
    memset(c, 0, sizeof *c);
    c->fd = c->doorbell = -1;
}
