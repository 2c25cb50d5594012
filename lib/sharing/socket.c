/* Bytes and fds over the caller's socket; see socket.h.
 *
 * How Linux treats fds on a stream socket, which all of this relies on: fds sent with some bytes
 * are attached to the first of them; a receive never goes on past bytes that carried fds; the fds
 * arrive with the first byte even if the rest is read later; a send that took at least one byte
 * took all its fds.
 */
#include "sharing/socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"

#ifndef SCM_PIDFD /* Linux 6.5: a pidfd of the sender, if the caller set SO_PASSPIDFD */
#define SCM_PIDFD 0x04
#endif

#define PAUSE_MS_MAX 32         /* between two tries to send fds when too many are on their way */
#define CONTROL_REST_BYTES 1024 /* for what else the caller may want: credentials, labels */

typedef union control_room {
    struct cmsghdr aligned;
    char bytes[CMSG_SPACE(sizeof(int) * GVMI_SOCKET_FDS_MAX) + CONTROL_REST_BYTES];
} control_room;

/* fds as they come in. */
typedef struct fd_basket {
    int *fds;
    uint32_t wanted, count;
    uint32_t excess; /* came beyond those wanted, closed at once */
} fd_basket;

gvm_status gvmi_socket_begin(int socket_fd, int timeout_ms, gvmi_socket *out)
{
    int domain = 0, type = 0;
    socklen_t domain_bytes = sizeof domain, type_bytes = sizeof type;

    gvm_status status = gvmi_check_timeout(timeout_ms);

    if (status != GVM_OK)
        return status;
    if (getsockopt(socket_fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) != 0 ||
        getsockopt(socket_fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) != 0)
        return gvmi_fail_system(errno == EBADF || errno == ENOTSOCK ? GVM_E_INVALID : GVM_E_SYSTEM,
                                errno, "getsockopt", "fd %d is no socket", socket_fd);
    if (domain != AF_UNIX || type != SOCK_STREAM)
        return gvmi_fail(GVM_E_INVALID,
                         "socket %d is no unix stream socket: shares travel over no other", socket_fd);
    *out = (gvmi_socket){
        .fd = socket_fd,
        .timeout_ms = timeout_ms,
        .deadline_ns = timeout_ms < 0 ? GVMI_NEVER_NS : gvmi_deadline_ns(timeout_ms),
    };
    return GVM_OK;
}

/* Until the deadline, rounded up so that waiting does not turn into spinning at the end; -1: for
 * ever. */
static int left_ms(const gvmi_socket *socket)
{
    int64_t left_ns;

    if (socket->deadline_ns == INT64_MAX)
        return -1;
    left_ns = socket->deadline_ns - gvmi_now_ns();
    return left_ns <= 0 ? 0 : (int)((left_ns + GVMI_NS_PER_MS - 1) / GVMI_NS_PER_MS);
}

static gvm_status wait_ready(const gvmi_socket *socket, short events)
{
    struct pollfd entry = {.fd = socket->fd, .events = events};

    for (;;) {
        int left = left_ms(socket);
        int count = poll(&entry, 1, left);

        if (count > 0)
            return GVM_OK;
        if (count == 0 && left == 0)
            return gvmi_fail(GVM_E_TIMEOUT, "the other process did not %s within %d ms",
                             events == POLLIN ? "send a whole share" : "read the share",
                             socket->timeout_ms);
        if (count < 0 && errno != EINTR)
            return gvmi_fail_system(GVM_E_SYSTEM, errno, "poll", "waiting for socket %d failed",
                                    socket->fd);
    }
}

/* Waits out ETOOMANYREFS: a user may have only so many fds on their way (RLIMIT_NOFILE), and
 * nothing signals when some have been read. */
static gvm_status wait_for_others(const gvmi_socket *socket, int *pause_ms)
{
    int left = left_ms(socket);

    if (left == 0)
        return gvmi_fail_system(
            GVM_E_TIMEOUT, ETOOMANYREFS, "sendmsg",
            "too many fds of this user are sent and not yet read, still after %d ms: raise ulimit -n, "
            "or let the receivers read",
            socket->timeout_ms);
    poll(NULL, 0, left < 0 || left > *pause_ms ? *pause_ms : left);
    if (*pause_ms < PAUSE_MS_MAX)
        *pause_ms *= 2;
    return GVM_OK;
}

static gvm_status not_connected(const gvmi_socket *socket, int code, const char *call)
{
    return gvmi_fail_system(GVM_E_INVALID, code, call, "socket %d is not connected", socket->fd);
}

/* What to do after a sendmsg that sent nothing: GVM_OK is to try again. */
static gvm_status after_send(const gvmi_socket *socket, int code, int *pause_ms)
{
    switch (code) {
    case EINTR: return GVM_OK;
    case EAGAIN: return wait_ready(socket, POLLOUT);
    case ETOOMANYREFS: return wait_for_others(socket, pause_ms);
    case EPIPE:
    case ECONNRESET:
        return gvmi_fail_system(GVM_E_PEER, code, "sendmsg", "the other process closed the connection");
    case ENOTCONN: return not_connected(socket, code, "sendmsg");
    default:
        return gvmi_fail_system(GVM_E_SYSTEM, code, "sendmsg", "sending over socket %d failed",
                                socket->fd);
    }
}

static void attach_fds(struct msghdr *message, control_room *room, const int *fds, uint32_t fd_count)
{
    struct cmsghdr *header;

    memset(room, 0, sizeof *room);
    message->msg_control = room->bytes;
    message->msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
    header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
}

gvm_status gvmi_socket_send(const gvmi_socket *socket, const void *bytes, size_t len,
                            const int *fds, uint32_t fd_count)
{
    control_room room;
    int pause_ms = 1;

    GVM_ASSERT(len > 0 && fd_count <= GVMI_SOCKET_FDS_MAX);
    for (size_t done = 0; done < len;) {
        struct iovec rest = {.iov_base = (char *)(uintptr_t)bytes + done, .iov_len = len - done};
        struct msghdr message = {.msg_iov = &rest, .msg_iovlen = 1};
        ssize_t sent;

        if (done == 0 && fd_count > 0)
            attach_fds(&message, &room, fds, fd_count);
        sent = sendmsg(socket->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            gvm_status status = after_send(socket, errno, &pause_ms);

            if (status != GVM_OK)
                return status;
        } else {
            done += (size_t)sent;
        }
    }
    return GVM_OK;
}

static void keep_fd(fd_basket *basket, int fd)
{
    if (basket->count < basket->wanted) {
        basket->fds[basket->count++] = fd;
    } else {
        close(fd);
        basket->excess++;
    }
}

/* Takes the fds out of what recvmsg delivered; none may be overlooked, each is open in this process
 * now. */
static void collect_fds(struct msghdr *message, fd_basket *basket)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (header->cmsg_level != SOL_SOCKET)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (header->cmsg_type == SCM_RIGHTS)
                keep_fd(basket, fd);
            else if (header->cmsg_type == SCM_PIDFD && fd >= 0)
                close(fd);
        }
    }
}

static void close_fds(fd_basket *basket)
{
    for (uint32_t i = 0; i < basket->count; i++)
        close(basket->fds[i]);
    basket->count = 0;
}

/* What to do after a recvmsg that failed: GVM_OK is to try again. */
static gvm_status after_receive(const gvmi_socket *socket, int code)
{
    switch (code) {
    case EINTR: return GVM_OK;
    case EAGAIN: return wait_ready(socket, POLLIN);
    case ECONNRESET:
        return gvmi_fail_system(GVM_E_PEER, code, "recvmsg", "the other process closed the connection");
    case EINVAL: /* what Linux says here */
    case ENOTCONN: return not_connected(socket, code, "recvmsg");
    default:
        return gvmi_fail_system(GVM_E_SYSTEM, code, "recvmsg", "receiving over socket %d failed",
                                socket->fd);
    }
}

/* fds were lost on the way in. The room for them was large enough, so the process could not take
 * them. */
static gvm_status no_room(const gvmi_socket *socket)
{
    struct rlimit limit = {0};

    getrlimit(RLIMIT_NOFILE, &limit);
    return gvmi_fail_system(
        GVM_E_LIMIT, EMFILE, "recvmsg",
        "the share brings %u fds and this process may have %llu in all: raise ulimit -n, or have it made "
        "of larger chunks or in parts",
        socket->fds_of_message, (unsigned long long)limit.rlim_cur);
}

/* One recvmsg; *got is how many bytes came, 0 to try again. */
static gvm_status receive_some(const gvmi_socket *socket, void *bytes, size_t len,
                               fd_basket *basket, size_t *got)
{
    control_room room;
    struct iovec rest = {.iov_base = bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &rest,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    ssize_t received = recvmsg(socket->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *got = 0;
    if (received < 0)
        return after_receive(socket, errno);
    collect_fds(&message, basket);
    if (message.msg_flags & MSG_CTRUNC)
        return no_room(socket);
    if (received == 0)
        return gvmi_fail(GVM_E_PEER, "the other process closed the connection");
    if (!GVM_CHECK(basket->excess == 0))
        return gvmi_fail(GVM_E_FORMAT, "the share is malformed: %u fds came where %u belong",
                         basket->count + basket->excess, basket->wanted);
    *got = (size_t)received;
    return GVM_OK;
}

gvm_status gvmi_socket_receive(const gvmi_socket *socket, void *bytes, size_t len, int *fds,
                               uint32_t fd_count)
{
    fd_basket basket = {.fds = fds, .wanted = fd_count};
    gvm_status status;

    for (size_t done = 0, got; done < len; done += got) {
        status = receive_some(socket, (char *)bytes + done, len - done, &basket, &got);
        if (status != GVM_OK)
            goto fail_fds;
    }
    if (!GVM_CHECK(basket.count == fd_count)) {
        status = gvmi_fail(GVM_E_FORMAT, "the share is malformed: %u fds came where %u belong",
                           basket.count, fd_count);
        goto fail_fds;
    }
    return GVM_OK;

fail_fds:
    close_fds(&basket);
    return status;
}
