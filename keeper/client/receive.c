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

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "keeper/client/client.h"

static gvm_status wait_readable(int socket_fd, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = socket_fd, .events = POLLIN};

    for (;;) {
        const bool for_ever = deadline_ns == INT64_MAX;
        const int64_t left_ns = for_ever ? 0 : deadline_ns - gvmi_now_ns();
        int count;

        if (!for_ever && left_ns <= 0)
            return gvm_error_set(GVM_E_TIMEOUT, "the keeper does not answer");
        count = poll(&entry, 1, for_ever ? -1 : (int)((left_ns + GVMI_NS_PER_MS - 1) / GVMI_NS_PER_MS));
        if (count > 0)
            return GVM_OK;
        if (count < 0 && errno != EINTR)
            return gvmi_fail_system(GVM_E_SYSTEM, errno, "poll", "waiting for the keeper failed");
    }
}

/* One recvmsg; *got is how many bytes came, 0 to try again. */
static gvm_status receive_part(int socket_fd, int64_t deadline_ns, void *bytes, size_t len,
                               gvmi_client_message *out, size_t *got)
{
    const ssize_t received = gvmi_fds_receive(socket_fd, bytes, len, &out->came, MSG_DONTWAIT);

    *got = 0;
    if (received < 0 && errno == EAGAIN)
        return wait_readable(socket_fd, deadline_ns);
    if (received < 0 && errno == EINTR)
        return GVM_OK;
    if (received < 0)
        return gvmi_fail_system(errno == ECONNRESET ? GVM_E_PEER : GVM_E_SYSTEM, errno, "recvmsg",
                                "receiving from the keeper failed");
    if (!GVM_CHECK(out->came.excess == 0))
        return gvm_error_set(GVM_E_FORMAT, "a message of the keeper brought %u fds",
                             GVMI_WIRE_CHUNKS_MAX + out->came.excess);
    if (received == 0)
        return gvm_error_set(GVM_E_PEER, "the keeper closed the connection");
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
        return gvm_error_set(GVM_E_FORMAT, "a message of the keeper has %u bytes", head.bytes);
    status = receive_all(socket_fd, deadline_ns, bytes + sizeof head, head.bytes - sizeof head, out);
    if (status == GVM_OK)
        status = gvmi_wire_decode(bytes, head.bytes, false, &out->wire);
    if (status == GVM_OK && !GVM_CHECK(out->came.lost || out->came.count == head.fd_count))
        status = gvm_error_set(GVM_E_FORMAT, "the keeper's message %s brought %u fds, not %u",
                               gvmi_wire_name_of(head.type), out->came.count, head.fd_count);
    return status;
}

gvm_status gvmi_client_receive(int socket_fd, int timeout_ms, gvmi_client_message *out)
{
    gvm_status status;

    out->came = (gvmi_fds){.fds = out->fds, .capacity = GVMI_WIRE_CHUNKS_MAX};
    status = receive_message(
        socket_fd, timeout_ms < 0 ? INT64_MAX : gvmi_now_ns() + timeout_ms * GVMI_NS_PER_MS, out);
    if (status != GVM_OK || out->came.lost)
        gvmi_fds_close(&out->came);
    return status;
}
