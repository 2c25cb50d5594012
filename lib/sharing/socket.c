/* Bytes and fds over the caller's socket; see socket.h. What Linux does with fds is in base/fds.h. */
#include "sharing/socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"

#define PAUSE_MS_MAX 32 /* between two tries to send fds when too many are on their way */

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
        return gvm_error_set(GVM_E_INVALID,
                             "socket %d is no unix stream socket: shares travel over no other",
                             socket_fd);
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
            return gvm_error_set(GVM_E_TIMEOUT, "the other process did not %s within %d ms",
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

gvm_status gvmi_socket_send(const gvmi_socket *socket, const void *bytes, size_t len,
                            const int *fds, uint32_t fd_count)
{
    int pause_ms = 1;

    GVM_ASSERT(len > 0 && fd_count <= GVMI_FDS_MAX);
    for (size_t done = 0; done < len;) {
        const ssize_t sent = gvmi_fds_send(socket->fd, (const char *)bytes + done, len - done, fds,
                                           done == 0 ? fd_count : 0, MSG_DONTWAIT);

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
static gvm_status receive_some(const gvmi_socket *socket, void *bytes, size_t len, gvmi_fds *in,
                               size_t *got)
{
    const ssize_t received = gvmi_fds_receive(socket->fd, bytes, len, in, MSG_DONTWAIT);

    *got = 0;
    if (received < 0)
        return after_receive(socket, errno);
    if (in->lost)
        return no_room(socket);
    if (received == 0)
        return gvm_error_set(GVM_E_PEER, "the other process closed the connection");
    if (!GVM_CHECK(in->excess == 0))
        return gvm_error_set(GVM_E_FORMAT, "the share is malformed: %u fds came where %u belong",
                             in->count + in->excess, in->capacity);
    *got = (size_t)received;
    return GVM_OK;
}

gvm_status gvmi_socket_receive(const gvmi_socket *socket, void *bytes, size_t len, int *fds,
                               uint32_t fd_count)
{
    gvmi_fds in = {.fds = fds, .capacity = fd_count};
    gvm_status status;

    for (size_t done = 0, got; done < len; done += got) {
        status = receive_some(socket, (char *)bytes + done, len - done, &in, &got);
        if (status != GVM_OK)
            goto fail_fds;
    }
    if (!GVM_CHECK(in.count == fd_count)) {
        status = gvm_error_set(GVM_E_FORMAT, "the share is malformed: %u fds came where %u belong",
                               in.count, fd_count);
        goto fail_fds;
    }
    return GVM_OK;

fail_fds:
    gvmi_fds_close(&in);
    return status;
}
