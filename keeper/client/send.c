/* Messages on their way out to the keeper.
 *
 * A keeper that is stopped reads nothing, and a socket has room for a few hundred messages. So every
 * wait is bounded: by the caller's deadline, and for those that have none by the connection's being
 * severed, for which they look every SLICE_MS.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "keeper/client/client.h"

#define SLICE_MS 100

static gvm_status fail_late(const gvm_client *keeper)
{
    return gvmi_fail(GVM_E_TIMEOUT, "the keeper (process %u) does not read what it is sent",
                     keeper->keeper_pid);
}

/* GVM_OK is to try again. */
static gvm_status wait_writable(const gvm_client *keeper, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = keeper->socket, .events = POLLOUT};
    int64_t left_ns = SLICE_MS * GVMI_NS_PER_MS;

    if (atomic_load(&keeper->severed))
        return gvmi_fail(GVM_E_PEER, "the connection was given up before the keeper read all");
    if (deadline_ns != GVMI_NEVER_NS && deadline_ns - gvmi_now_ns() < left_ns)
        left_ns = deadline_ns - gvmi_now_ns();
    if (left_ns <= 0)
        return fail_late(keeper);
    if (poll(&entry, 1, (int)((left_ns + GVMI_NS_PER_MS - 1) / GVMI_NS_PER_MS)) < 0 && errno != EINTR)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "poll", "waiting for the keeper failed");
    return GVM_OK;
}

static gvm_status send_all(gvm_client *keeper, const char *bytes, size_t len, int64_t deadline_ns)
{
    gvm_status status = GVM_OK;

    for (size_t done = 0; done < len && status == GVM_OK;) {
        const ssize_t sent = send(keeper->socket, bytes + done, len - done,
                                  MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent >= 0)
            done += (size_t)sent;
        else if (errno == EAGAIN)
            status = wait_writable(keeper, deadline_ns);
        else if (errno == EPIPE || errno == ECONNRESET)
            status = gvmi_fail_system(GVM_E_PEER, errno, "send", "the keeper closed the connection");
        else if (errno != EINTR)
            status = gvmi_fail_system(GVM_E_SYSTEM, errno, "send", "sending to the keeper failed");
        if (status == GVM_E_TIMEOUT && done > 0) /* what comes behind half a message is garbage */
            status = gvmi_fail(GVM_E_PEER, "the keeper read half of a message");
    }
    return status;
}

static bool begin_turn(gvm_client *keeper, int64_t deadline_ns)
{
    bool mine;

    gvmi_lock(&keeper->send_lock);
    while (keeper->sending && gvmi_wait_until(&keeper->sent, &keeper->send_lock, deadline_ns))
        ;
    mine = !keeper->sending;
    if (mine)
        keeper->sending = true;
    gvmi_unlock(&keeper->send_lock);
    return mine;
}

static void end_turn(gvm_client *keeper)
{
    gvmi_lock(&keeper->send_lock);
    keeper->sending = false;
    pthread_cond_signal(&keeper->sent);
    gvmi_unlock(&keeper->send_lock);
}

gvm_status gvmi_client_send_bytes(gvm_client *keeper, const void *bytes, size_t len, int64_t deadline_ns)
{
    gvm_status status;

    if (!begin_turn(keeper, deadline_ns))
        return fail_late(keeper);
    status = send_all(keeper, bytes, len, deadline_ns);
    end_turn(keeper);
    return status;
}

gvm_status gvmi_client_send(gvm_client *keeper, const gvmi_wire_message *message, int64_t deadline_ns)
{
    char bytes[sizeof *message];
    const size_t len = gvmi_wire_encode(message, bytes);

    return gvmi_client_send_bytes(keeper, bytes, len, deadline_ns);
}

void gvmi_client_break(gvm_client *keeper)
{
    atomic_store(&keeper->severed, true);
    shutdown(keeper->socket, SHUT_RD); /* and not both ways: see client.h */
}
