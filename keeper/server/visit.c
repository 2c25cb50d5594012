/* Visits: what a client sends is read, and what waits for it is sent, for a bounded time.
 *
 * A visit takes at most MESSAGES_A_VISIT messages, fewer when its time is over, and what it does not take
 * waits in the socket.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "keeper/server/server.h"

#define MESSAGES_A_VISIT 32
#define LAST_READS_MAX 64            /* of the socket of a process that is gone, or does not read */
#define UNHEARD_BYTES_MAX (4u << 20) /* read of a client that was cut off, and discarded */

/* ---- what it sends */

static void report_violation(gvm_keeper *server, gvmi_connection *connection, const char *what)
{
    gvmi_machine_violation(server->machine, connection->client, what);
    gvmi_server_act(server);
}

/* The answer to a TRIM is sent once the memory is given back to the driver: by a job that is asked for here, as what is dropped may be
 * that of a job which failed, and for which there is none. */
static void defer_trim_reply(gvm_keeper *server, gvmi_connection *connection)
{
    if (connection->state != CONNECTION_OPEN || connection->held_back)
        return;
    connection->held_back = true;
    server->held_back_count++;
    gvmi_mover_reap(server->movers[0], GVM_TIER_DEVICE);
}

/* A whole message. */
static void take_message(gvm_keeper *server, gvmi_connection *connection, const uint8_t *bytes,
                         size_t len)
{
    gvmi_wire_message message;

    if (gvmi_wire_decode(bytes, len, true, &message) != GVM_OK) {
        gvm_error error = gvmi_error_save();

        report_violation(server, connection, error.text);
        return;
    }
    connection->greeted = true;
    connection->adoptable = connection->adoptable && message.head.type != GVMI_WIRE_HELLO;
    if (message.head.type == GVMI_WIRE_SNAPSHOT_READ)
        gvmi_connection_take_snapshot_back(connection);
    server->working |= message.head.type == GVMI_WIRE_SNAPSHOT ||
                       message.head.type == GVMI_WIRE_SNAPSHOT_READ;
    if (message.head.type == GVMI_WIRE_BYE) {
        gvmi_connection_bye(server, connection);
        gvmi_server_act(server);
    } else {
        gvmi_machine_message(server->machine, connection->client, &message);
        gvmi_server_act(server);
        if (message.head.type == GVMI_WIRE_TRIM && gvmi_frames_dropped(server->frames))
            defer_trim_reply(server, connection);
    }
}

/* The message at the front of what has come. False: it is not whole, or the connection is not open any
 * more. */
static bool next_message(gvm_keeper *server, gvmi_connection *connection, uint32_t *start)
{
    const uint32_t len = connection->in_len - *start;
    gvmi_wire_head head;

    if (len < sizeof head)
        return false;
    memcpy(&head, connection->in + *start, sizeof head);
    if (connection->state == CONNECTION_REFUSED) {
        gvmi_connection_answer_refused(server, connection, head.request);
        return false;
    }
    if (gvmi_wire_check_head(&head, true) != GVM_OK ||
        !GVM_CHECK(head.bytes >= sizeof head && head.bytes <= sizeof(gvmi_wire_message))) {
        report_violation(server, connection, "it sent bytes that are no message");
        return false;
    }
    if (len < head.bytes)
        return false;
    take_message(server, connection, connection->in + *start, head.bytes);
    *start += head.bytes;
    return connection->state == CONNECTION_OPEN;
}

static void take_messages(gvm_keeper *server, gvmi_connection *connection)
{
    uint32_t start = 0;
    int count = 0;

    while (count < MESSAGES_A_VISIT && next_message(server, connection, &start)) {
        count++;
        if (gvmi_now_ns() >= server->schedule.end_ns)
            break;
    }
    if (connection->state != CONNECTION_OPEN && connection->state != CONNECTION_REFUSED)
        return;
    memmove(connection->in, connection->in + start, connection->in_len - start);
    connection->in_len -= start;
    connection->more = count > 0 && connection->in_len >= sizeof(gvmi_wire_head);
}

/* Goes on with messages that came and were left over. */
static void process_left_messages(gvm_keeper *server, gvmi_connection *connection)
{
    connection->more = false;
    take_messages(server, connection);
}

/* One read. False: there is nothing (more) to be read now, or ever. */
static bool receive_some(gvm_keeper *server, gvmi_connection *connection)
{
    const size_t room = sizeof connection->in - connection->in_len;
    gvmi_sender sender = {.pid = connection->process >= 0 ? connection->pid : 0};
    ssize_t got;

    if (room == 0) /* whole messages wait to be taken */
        return false;
    got = gvmi_incoming_receive(
        connection->socket, connection->in + connection->in_len, room,
        connection->state == CONNECTION_OPEN && connection->adoptable ? &sender : NULL);
    if (sender.other && !gvmi_connection_adopted(server, connection, &sender)) {
        report_violation(server, connection, "its process cannot be watched");
        return false;
    }
    if (got < 0 && (errno == EAGAIN || errno == ENOMEM || errno == ENOBUFS))
        return false;
    if (got < 0 && errno == EBADMSG && connection->state == CONNECTION_OPEN) {
        report_violation(server, connection, "it sent file descriptors");
        return false;
    }
    if (got < 0 && errno == EMFILE && connection->state == CONNECTION_OPEN) {
        report_violation(
            server, connection,
            "the keeper has no file descriptor or memory to watch its process: raise its limit of open files");
        return false;
    }
    if (got <= 0) {
        if (connection->state == CONNECTION_OPEN)
            gvmi_connection_silence(server, connection);
        else
            gvmi_connection_end(server, connection);
        gvmi_server_act(server);
        return false;
    }
    connection->in_len += (uint32_t)got;
    take_messages(server, connection);
    return connection->state == CONNECTION_OPEN;
}

/* Of a client that was cut off: what its threads still send is read and discarded, so that they do not
 * block. True: it has closed its end, or sent too much. */
static bool has_closed(gvm_keeper *server, gvmi_connection *connection, uint32_t events)
{
    ssize_t got;

    if ((events & (EPOLLHUP | EPOLLERR)) != 0 || connection->unheard_bytes >= UNHEARD_BYTES_MAX)
        return true;
    got = gvmi_incoming_receive(connection->socket, connection->in, sizeof connection->in, NULL);
    if (got < 0 && errno != EBADMSG)
        return errno != EAGAIN && errno != EINTR && errno != ENOMEM && errno != ENOBUFS;
    connection->unheard_bytes += got < 0 ? UNHEARD_BYTES_MAX : (uint32_t)got;
    if (connection->unheard_bytes >= UNHEARD_BYTES_MAX)
        gvmi_server_rewatch(server, connection->socket, EPOLLRDHUP, &connection->on_socket);
    return got == 0;
}

void gvmi_connection_not_greeted(gvm_keeper *server, gvmi_connection *connection)
{
    if (connection->state == CONNECTION_REFUSED)
        gvmi_connection_end(server, connection);
    else if (connection->state == CONNECTION_OPEN)
        report_violation(server, connection, "it sent nothing within 10 s after it had connected");
}

/* ---- visits */

void gvmi_connection_note(gvm_keeper *server, gvmi_source *source, uint32_t events)
{
    gvmi_connection *connection = source->connection;

    switch (source->kind) {
    case GVMI_SOURCE_SOCKET: connection->events |= events; break;
    case GVMI_SOURCE_DOORBELL: connection->rang = true; break;
    default: connection->process_ended = connection->ending = true; break;
    }
    gvmi_connection_queue(server, connection);
}

static void handle_doorbell(gvm_keeper *server, gvmi_connection *connection)
{
    if (!connection->rang)
        return;
    connection->rang = false;
    if (connection->state != CONNECTION_OPEN && connection->state != CONNECTION_LEAVING)
        return;
    gvmi_machine_doorbell(server->machine, connection->client);
    gvmi_server_act(server);
}

/* What it sent before it ended counts. When all of that is read, it is silent or, as its process has ended,
 * gone: the end of its socket may not come, as a child of it may have the socket, too. */
static void read_to_end(gvm_keeper *server, gvmi_connection *connection)
{
    if (connection->state == CONNECTION_OPEN && connection->more) {
        process_left_messages(server, connection);
        return;
    }
    if (connection->state == CONNECTION_OPEN && connection->last_reads++ < LAST_READS_MAX &&
        receive_some(server, connection))
        return;
    connection->ending = false;
    if (!connection->process_ended) {
        if (connection->state == CONNECTION_OPEN)
            gvmi_connection_silence(server, connection);
    } else if (connection->state == CONNECTION_OPEN && connection->adoptable) {
        /* Nothing is mapped over it, and another process may have the socket. */
        gvmi_server_close_watched(server, &connection->process);
        connection->process_ended = false;
        connection->last_reads = 0;
    } else if (connection->state != CONNECTION_GONE) {
        if (connection->state == CONNECTION_OPEN) {
            gvmi_connection_leave(connection);
            gvmi_machine_disconnect(server->machine, connection->client);
        }
        gvmi_connection_gone(server, connection);
    }
    gvmi_server_act(server);
}

static void read_socket(gvm_keeper *server, gvmi_connection *connection, uint32_t events)
{
    switch (connection->state) {
    case CONNECTION_OPEN:
        if (connection->more)
            process_left_messages(server, connection);
        else if ((events & ~(uint32_t)EPOLLOUT) != 0)
            (void)receive_some(server, connection);
        break;
    case CONNECTION_REFUSED:
        if (events != 0)
            (void)receive_some(server, connection);
        break;
    case CONNECTION_LEAVING:
        if (connection->hung_up) {
            gvmi_connection_judge_closed(server, connection);
            gvmi_server_act(server);
        } else if (events != 0 && has_closed(server, connection, events)) {
            gvmi_connection_closed(server, connection);
            gvmi_server_act(server);
        }
        break;
    case CONNECTION_GONE: break;
    }
}

void gvmi_connection_visit(gvm_keeper *server, gvmi_connection *connection)
{
    const uint32_t events = connection->events;

    if (connection->state == CONNECTION_GONE) {
        gvmi_connection_free_ended(server, connection);
        return;
    }
    connection->events = 0;
    handle_doorbell(server, connection);
    if (connection->dirty || (events & EPOLLOUT) != 0)
        gvmi_connection_flush(server, connection);
    if (connection->ending)
        read_to_end(server, connection);
    else
        read_socket(server, connection, events);
    if (connection->dirty)
        gvmi_connection_flush(server, connection);
    if (connection->ending || connection->more)
        gvmi_connection_queue(server, connection);
}
