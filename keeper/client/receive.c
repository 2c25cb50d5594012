/* Messages as they come in from the keeper.
 *
 * Unlike a share (sharing/socket.c), a message whose fds the process has no room for is not the end:
 * its bytes are read to their end, and the message is marked: its fds are lost. A
 * program near its limit of open files then loses an object, not its connection.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "keeper/client/client.h"

#ifndef SCM_PIDFD /* Linux 6.5: a pidfd of the sender, if the socket's owner set SO_PASSPIDFD */
#define SCM_PIDFD 0x04
#endif

#define CONTROL_REST_BYTES 1024 /* for what else an adopted socket may bring along */

typedef union control_room {
    struct cmsghdr aligned;
    char bytes[CMSG_SPACE(sizeof(int) * GVMI_WIRE_CHUNKS_MAX) + CONTROL_REST_BYTES];
} control_room;

static gvm_status wait_readable(int socket_fd, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = socket_fd, .events = POLLIN};

    for (;;) {
        const bool for_ever = deadline_ns == INT64_MAX;
        const int64_t left_ns = for_ever ? 0 : deadline_ns - gvmi_now_ns();
        int count;

        if (!for_ever && left_ns <= 0)
            return gvmi_fail(GVM_E_TIMEOUT, "the keeper does not answer");
        count = poll(&entry, 1, for_ever ? -1 : (int)((left_ns + GVMI_NS_PER_MS - 1) / GVMI_NS_PER_MS));
        if (count > 0)
            return GVM_OK;
        if (count < 0 && errno != EINTR)
            return gvmi_fail_system(GVM_E_SYSTEM, errno, "poll", "waiting for the keeper failed");
    }
}

static void keep_fd(gvmi_client_message *out, int fd, uint32_t *excess)
{
    if (out->fd_count < GVMI_WIRE_CHUNKS_MAX) {
        out->fds[out->fd_count++] = fd;
    } else {
        close(fd);
        ++*excess;
    }
}

/* None may be overlooked: each is open in this process now. */
static void collect_fds(struct msghdr *header, gvmi_client_message *out, uint32_t *excess)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (c->cmsg_type == SCM_RIGHTS)
                keep_fd(out, fd, excess);
            else if (c->cmsg_type == SCM_PIDFD && fd >= 0)
                close(fd);
        }
    }
}

/* One recvmsg; *got is how many bytes came, 0 to try again. */
static gvm_status receive_part(int socket_fd, int64_t deadline_ns, void *bytes, size_t len,
                               gvmi_client_message *out, size_t *got)
{
    control_room room;
    struct iovec rest = {.iov_base = bytes, .iov_len = len};
    struct msghdr header = {.msg_iov = &rest,
                            .msg_iovlen = 1,
                            .msg_control = room.bytes,
                            .msg_controllen = sizeof room.bytes};
    const ssize_t received = recvmsg(socket_fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    uint32_t excess = 0;

    *got = 0;
    if (received < 0 && errno == EAGAIN)
        return wait_readable(socket_fd, deadline_ns);
    if (received < 0 && errno == EINTR)
        return GVM_OK;
    if (received < 0)
        return gvmi_fail_system(errno == ECONNRESET ? GVM_E_PEER : GVM_E_SYSTEM, errno, "recvmsg",
                                "receiving from the keeper failed");
    collect_fds(&header, out, &excess);
    if (!GVM_CHECK(excess == 0))
        return gvmi_fail(GVM_E_FORMAT, "a message of the keeper brought %u fds",
                         GVMI_WIRE_CHUNKS_MAX + excess);
    if (received == 0)
        return gvmi_fail(GVM_E_PEER, "the keeper closed the connection");
    out->fds_lost |= (header.msg_flags & MSG_CTRUNC) != 0;
    *got = (size_t)received;
    return GVM_OK;
}

static gvm_status receive_all(int socket_fd, int64_t deadline_ns, void *bytes, size_t len,
                              gvmi_client_message *out)
{
    gvm_status status = GVM_OK;

    for (size_t done = 0, got; done < len && status == GVM_OK; done += got)
        status = receive_part(socket_fd, deadline_ns, (char *)bytes + done, len - done, out, &got);
    return status;
}

static gvm_status receive_message(int socket_fd, int64_t deadline_ns, gvmi_client_message *out)
{
    _Alignas(gvmi_wire_head) char bytes[sizeof(gvmi_wire_message)];
    gvmi_wire_head head;
    gvm_status status = receive_all(socket_fd, deadline_ns, bytes, sizeof head, out);

    if (status != GVM_OK)
        return status;
    memcpy(&head, bytes, sizeof head);
    status = gvmi_wire_check_head(&head, false);
    if (status != GVM_OK)
        return status;
    if (!GVM_CHECK(head.bytes >= sizeof head && head.bytes <= sizeof bytes))
        return gvmi_fail(GVM_E_FORMAT, "a message of the keeper has %u bytes", head.bytes);
    status = receive_all(socket_fd, deadline_ns, bytes + sizeof head, head.bytes - sizeof head, out);
    if (status == GVM_OK)
        status = gvmi_wire_decode(bytes, head.bytes, false, &out->wire);
    if (status == GVM_OK && !GVM_CHECK(out->fds_lost || out->fd_count == head.fd_count))
        status = gvmi_fail(GVM_E_FORMAT, "the keeper's message %s brought %u fds, not %u",
                           gvmi_wire_name_of(head.type), out->fd_count, head.fd_count);
    return status;
}

gvm_status gvmi_client_receive(int socket_fd, int timeout_ms, gvmi_client_message *out)
{
    gvm_status status;

    out->fd_count = 0;
    out->fds_lost = false;
    status = receive_message(
        socket_fd, timeout_ms < 0 ? INT64_MAX : gvmi_now_ns() + timeout_ms * GVMI_NS_PER_MS, out);
    if (status != GVM_OK || out->fds_lost)
        gvmi_client_close_fds(out);
    return status;
}

void gvmi_client_close_fds(gvmi_client_message *message)
{
    for (uint32_t i = 0; i < message->fd_count; i++)
        close(message->fds[i]);
    message->fd_count = 0;
}
