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

static gvm_status fail_late(const gvm_client *client)
{
    return gvm_error_set(GVM_E_TIMEOUT, "the keeper (process %u) does not read what it is sent",
                         client->keeper_pid);
}

/* GVM_OK is to try again. */
static gvm_status wait_writable(const gvm_client *client, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = client->socket, .events = POLLOUT};
    int64_t left_ns = SLICE_MS * GVMI_NS_PER_MS;

    if (atomic_load(&client->severed))
        return gvm_error_set(GVM_E_PEER, "the connection was given up before the keeper read all");
    if (deadline_ns != GVMI_NEVER_NS && deadline_ns - gvmi_now_ns() < left_ns)
        left_ns = deadline_ns - gvmi_now_ns();
    if (left_ns <= 0)
        return fail_late(client);
    if (poll(&entry, 1, (int)((left_ns + GVMI_NS_PER_MS - 1) / GVMI_NS_PER_MS)) < 0 && errno != EINTR)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "poll", "waiting for the keeper failed");
    return GVM_OK;
}

static gvm_status send_all(gvm_client *client, const char *bytes, size_t len, int64_t deadline_ns)
{
    gvm_status status = GVM_OK;

    for (size_t done = 0; done < len && status == GVM_OK;) {
        const ssize_t sent = send(client->socket, bytes + done, len - done,
                                  MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent >= 0)
            done += (size_t)sent;
        else if (errno == EAGAIN)
            status = wait_writable(client, deadline_ns);
        else if (errno == EPIPE || errno == ECONNRESET)
            status = gvmi_fail_system(GVM_E_PEER, errno, "send", "the keeper closed the connection");
        else if (errno != EINTR)
            status = gvmi_fail_system(GVM_E_SYSTEM, errno, "send", "sending to the keeper failed");
        if (status == GVM_E_TIMEOUT && done > 0) /* what comes behind half a message is garbage */
            status = gvm_error_set(GVM_E_PEER, "the keeper read half of a message");
    }
    return status;
}

static bool begin_sending(gvm_client *client, int64_t deadline_ns)
{
    bool mine;

    gvmi_lock(&client->send_lock);
    while (client->sending && gvmi_wait_until(&client->sent, &client->send_lock, deadline_ns))
        ;
    mine = !client->sending;
    if (mine)
        client->sending = true;
    gvmi_unlock(&client->send_lock);
    return mine;
}

static void end_sending(gvm_client *client)
{
    gvmi_lock(&client->send_lock);
    client->sending = false;
    pthread_cond_signal(&client->sent);
    gvmi_unlock(&client->send_lock);
}

gvm_status gvmi_client_send_bytes(gvm_client *client, const void *bytes, size_t len, int64_t deadline_ns)
{
    gvm_status status;

    if (!begin_sending(client, deadline_ns))
        return fail_late(client);
    status = send_all(client, bytes, len, deadline_ns);
    end_sending(client);
    return status;
}

gvm_status gvmi_client_send(gvm_client *client, const gvmi_wire_message *message, int64_t deadline_ns)
{
    char bytes[sizeof *message];
    const size_t len = gvmi_wire_encode(message, bytes);

    return gvmi_client_send_bytes(client, bytes, len, deadline_ns);
}

void gvmi_client_break(gvm_client *client)
{
    atomic_store(&client->severed, true);
    shutdown(client->socket, SHUT_RD); /* and not both ways: see client.h */
}
