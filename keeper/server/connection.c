/* Connections: coming, leaving, the end of clients' processes, and what is sent to them.
 *
 * What waits to be sent to a client, and a snapshot that it was sent, up to SNAPSHOT_READ, count against its
 * user's allowance (keeper/machine/users.c). Whatever descriptors of a snapshot there are then, in the client
 * or in a socket, its memory is freed.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/text.h"
#include "keeper/server/server.h"

#define OUTBOX_BYTES_FREE (64u << 10) /* unsent bytes of a client are counted in multiples of it */
#define STALL_NS 5000000ll            /* until sending is tried again when the system was short */
#define REFUSED_MAX 64         /* clients to which the reason for their refusal is to be sent */
#define GROUPS_READ_MAX 65536u /* what Linux allows a process */
#define NUMBER_MAX (1u << 20)  /* clients' numbers are dense; far above any limit of them */

/* ---- who it is */

static void read_groups(int socket, gvmi_credentials *who)
{
    socklen_t bytes = 0;
    gid_t *groups;

    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes) == 0 || errno != ERANGE ||
        bytes == 0 || bytes > GROUPS_READ_MAX * sizeof *groups)
        return;
    groups = malloc(bytes);
    if (groups == NULL)
        return; /* fewer rights than it could have */
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0)
        for (size_t i = 0; i < bytes / sizeof *groups && i < GVMI_GROUPS_MAX; i++)
            who->groups[who->group_count++] = groups[i];
    free(groups);
}

static gvm_status read_credentials(const gvm_keeper *server, gvmi_connection *connection,
                                   gvmi_credentials *who)
{
    struct ucred found;
    socklen_t bytes = sizeof found;

    if (getsockopt(connection->socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "getsockopt", "cannot tell who connected");
    *who = (gvmi_credentials){.uid = found.uid, .gid = found.gid, .pid = found.pid};
    read_groups(connection->socket, who);
    return gvmi_identity_judge(&server->identity, getpid(), who);
}

/* ---- coming and going */

void gvmi_connection_take_snapshot_back(gvmi_connection *connection)
{
    if (connection->snapshot_sent == NULL)
        return;
    gvmi_page_empty(connection->snapshot_sent);
    gvmi_fd_release(connection->snapshot_sent);
    connection->snapshot_sent = NULL;
}

void gvmi_connection_queue(gvm_keeper *server, gvmi_connection *connection)
{
    gvmi_schedule_queue(&server->schedule, &connection->place);
}

static void link_connection(gvmi_connection **list, gvmi_connection *connection)
{
    connection->prev = NULL;
    connection->next = *list;
    if (connection->next != NULL)
        connection->next->prev = connection;
    *list = connection;
}

static void unlink_connection(gvmi_connection **list, const gvmi_connection *connection)
{
    if (connection->prev != NULL)
        connection->prev->next = connection->next;
    else
        *list = connection->next;
    if (connection->next != NULL)
        connection->next->prev = connection->prev;
}

static gvmi_connection *new_connection(gvm_keeper *server, int socket)
{
    gvmi_connection *connection = calloc(1, sizeof *connection);
    struct ucred found = {0};
    socklen_t bytes = sizeof found;

    gvmi_incoming_begin(socket);
    if (connection == NULL || getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0 ||
        gvmi_schedule_join(&server->schedule, found.uid, connection, &connection->place) != GVM_OK) {
        gvmi_server_log_user(server, GVMI_LOG_REFUSED, found.uid,
                             "a client was refused: out of host memory");
        free(connection);
        gvmi_incoming_close_now(&socket, &(gvmi_closing *){NULL});
        return NULL;
    }
    connection->uid = found.uid;
    connection->pid = found.pid;
    connection->on_socket = (gvmi_source){GVMI_SOURCE_SOCKET, connection};
    connection->on_doorbell = (gvmi_source){GVMI_SOURCE_DOORBELL, connection};
    connection->on_process = (gvmi_source){GVMI_SOURCE_PROCESS, connection};
    connection->socket = socket;
    connection->process = connection->snapshot = -1;
    connection->since_ns = server->now_ns;
    link_connection(&server->connections, connection);
    return connection;
}

/* It is kept open while descriptors that were sent over it are not received, and while it cannot be closed. */
static bool close_socket(gvm_keeper *server, gvmi_connection *connection)
{
    if (connection->socket >= 0)
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, connection->socket, NULL);
    return gvmi_passing_settle(server, connection) &&
           gvmi_incoming_close(&connection->socket, &connection->closing);
}

void gvmi_connection_end(gvm_keeper *server, gvmi_connection *connection)
{
    server->refused_count -= connection->state == CONNECTION_REFUSED;
    connection->place.user->refused -= connection->state == CONNECTION_REFUSED;
    server->held_back_count -= connection->held_back;
    connection->held_back = false;
    connection->state = CONNECTION_GONE;
    if (connection->client != 0)
        server->by_client[connection->client] = NULL;
    if (connection->fds[2] != NULL)
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, connection->fds[2]->fd, NULL);
    gvmi_server_close_watched(server, &connection->process);
    connection->unread_kept = !close_socket(server, connection);
    connection->place.user->unread += connection->unread_kept;
    unlink_connection(&server->connections, connection);
    link_connection(&server->ended, connection);
    gvmi_connection_queue(server, connection);
}

static void release_pages(gvmi_connection *connection)
{
    for (int i = 0; i < 3; i++) {
        gvmi_fd_release(connection->fds[i]);
        connection->fds[i] = NULL;
    }
    if (connection->leases != NULL)
        munmap(connection->leases, GVMI_LEASE_PAGE_BYTES);
    if (connection->permits != NULL)
        munmap(connection->permits, GVMI_PERMIT_PAGE_BYTES);
    connection->leases = NULL;
    connection->permits = NULL;
}

void gvmi_connection_look_again(gvm_keeper *server)
{
    for (gvmi_connection *connection = server->ended; connection != NULL; connection = connection->next)
        gvmi_connection_queue(server, connection);
}

void gvmi_connection_free_ended(gvm_keeper *server, gvmi_connection *connection)
{
    if (!close_socket(server, connection))
        return; /* which is tried again and again */
    connection->place.user->unread -= connection->unread_kept;
    unlink_connection(&server->ended, connection);
    gvmi_connection_free(server, connection);
}

void gvmi_connection_free(gvm_keeper *server, gvmi_connection *connection)
{
    gvmi_schedule_leave(&server->schedule, &connection->place);
    gvmi_outbox_clear(&connection->outbox);
    gvmi_connection_take_snapshot_back(connection);
    gvmi_incoming_close_now(&connection->socket, &connection->closing);
    gvmi_server_close(&connection->process);
    gvmi_server_close(&connection->snapshot);
    release_pages(connection);
    free(connection);
}

static gvm_status make_doorbell(gvmi_fd **out)
{
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (fd < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "eventfd", "cannot make a doorbell");
    return gvmi_fd_own(fd, out);
}

static gvm_status make_pages(gvmi_connection *connection)
{
    void *address;
    gvm_status status = gvmi_page_create("gvmem-leases", GVMI_LEASE_PAGE_BYTES, false, &address,
                                         &connection->fds[0]);

    if (status != GVM_OK)
        return status;
    connection->leases = address;
    status = gvmi_page_create("gvmem-permits", GVMI_PERMIT_PAGE_BYTES, true, &address,
                              &connection->fds[1]);
    if (status != GVM_OK)
        return status;
    connection->permits = address;
    return make_doorbell(&connection->fds[2]);
}

static gvm_status register_client(gvm_keeper *server, gvmi_connection *connection, uint32_t client)
{
    uint32_t capacity = server->client_capacity > 0 ? server->client_capacity : 64;
    gvmi_connection **table;

    if (client >= NUMBER_MAX)
        return gvm_error_set(GVM_E_LIMIT, "client %u is beyond any limit", client);
    while (capacity <= client)
        capacity *= 2;
    if (capacity > server->client_capacity) {
        table = realloc(server->by_client, capacity * sizeof(gvmi_connection *));
        if (table == NULL)
            return gvm_error_set(GVM_E_NOMEM, "out of host memory for a client");
        memset(table + server->client_capacity, 0,
               (capacity - server->client_capacity) * sizeof(gvmi_connection *));
        server->by_client = table;
        server->client_capacity = capacity;
    }
    server->by_client[client] = connection;
    connection->client = client;
    return GVM_OK;
}

static gvm_status watch_connection(gvm_keeper *server, gvmi_connection *connection)
{
    gvm_status status = gvmi_server_watch(server, connection->socket, EPOLLIN, &connection->on_socket);

    /* Edge by edge: it is never read, since the client, who has the same eventfd, could make that
     * block. */
    if (status == GVM_OK)
        status = gvmi_server_watch(server, connection->fds[2]->fd, EPOLLIN | EPOLLET,
                                   &connection->on_doorbell);
    if (status == GVM_OK && connection->process >= 0)
        status = gvmi_server_watch(server, connection->process, EPOLLIN, &connection->on_process);
    return status;
}

/* Everything that a client needs; on failure the machine does not know it. */
static gvm_status admit_client(gvm_keeper *server, gvmi_connection *connection)
{
    gvmi_credentials who;
    uint32_t client;
    gvm_status status = read_credentials(server, connection, &who);

    if (status != GVM_OK)
        return status;
    status = gvmi_machine_admits(server->machine, who.uid);
    if (status == GVM_OK)
        status = gvmi_passing_admits(connection);
    if (status != GVM_OK)
        return status;
    status = gvmi_process_open(connection->socket, who.pid, &connection->process, &connection->certain);
    connection->adoptable = who.pid != getpid();
    if (status == GVM_OK)
        status = make_pages(connection);
    if (status == GVM_OK)
        status = gvmi_machine_connect(server->machine, &who, connection->leases,
                                      connection->permits, &client);
    if (status != GVM_OK)
        return status;
    status = register_client(server, connection, client);
    if (status == GVM_OK)
        status = watch_connection(server, connection);
    if (status != GVM_OK) {
        gvmi_machine_disconnect(server->machine, client);
        gvmi_machine_exited(server->machine, client);
        if (connection->client != 0)
            server->by_client[connection->client] = NULL;
        connection->client = 0;
    }
    return status;
}

/* Sends as much as goes now, and its user may be sent. */
static gvmi_outbox_state send_outbox(gvm_keeper *server, gvmi_connection *connection)
{
    const uint32_t most = gvmi_passing_left(server, connection);
    uint32_t left = most;
    const gvmi_outbox_state state = gvmi_outbox_flush(&connection->outbox, connection->socket, &left);

    gvmi_passing_add(server, connection, most - left);
    return state;
}

void gvmi_connection_answer_refused(gvm_keeper *server, gvmi_connection *connection, uint64_t request)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_FAILED, request);
    message.body.FAILED.status = connection->reason == GVM_E_LIMIT ? GVM_E_DENIED : connection->reason;
    gvmi_text_print(message.body.FAILED.text, sizeof message.body.FAILED.text, "refused: %s",
                    connection->refusal);
    if (gvmi_outbox_add(&connection->outbox, &message, NULL) == GVM_OK)
        (void)send_outbox(server, connection);
    gvmi_connection_end(server, connection);
}

/* Whether a client that is refused may stay until it asks, so that the answer has the number of its
 * request. Each user has an allowance of the places for that, as of everything (keeper/machine/users.c). */
static bool may_wait_refused(const gvm_keeper *server, const gvmi_connection *refused)
{
    return server->refused_count < REFUSED_MAX &&
           refused->place.user->refused < REFUSED_MAX - server->refused_count;
}

/* The latest error, with what the system said and what to do about a limit of this process. */
static void describe_refusal(const gvm_error *why, char *text, size_t text_bytes)
{
    const bool limit = strcmp(why->native_name, "EMFILE") == 0 ||
                       strcmp(why->native_name, "ENFILE") == 0;

    if (why->native_name[0] == '\0')
        gvmi_text_print(text, text_bytes, "%s", why->text);
    else
        gvmi_text_print(text, text_bytes, "%s: %s answered %s%s", why->text, why->native_call,
                        why->native_name, limit ? ": raise the keeper's limit of open files" : "");
}

static void refuse_connection(gvm_keeper *server, gvmi_connection *connection)
{
    const bool waits = may_wait_refused(server, connection);
    const gvm_error why = gvmi_error_save();

    describe_refusal(&why, connection->refusal, sizeof connection->refusal);
    gvmi_server_log_user(server, GVMI_LOG_REFUSED, connection->uid,
                         "a client (pid %d, uid %u) was refused: %s", (int)connection->pid,
                         (unsigned)connection->uid, connection->refusal);
    connection->state = CONNECTION_REFUSED;
    server->refused_count++;
    connection->place.user->refused++;
    gvmi_server_close_watched(server, &connection->process);
    (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, connection->socket, NULL);
    release_pages(connection);
    if (!waits ||
        gvmi_server_watch(server, connection->socket, EPOLLIN, &connection->on_socket) != GVM_OK)
        gvmi_connection_answer_refused(server, connection, 0);
}

void gvmi_connection_come(gvm_keeper *server, int socket)
{
    gvmi_connection *connection = new_connection(server, socket);

    if (connection == NULL)
        return;
    connection->reason = admit_client(server, connection);
    if (connection->reason != GVM_OK)
        refuse_connection(server, connection);
}

bool gvmi_connection_adopted(gvm_keeper *server, gvmi_connection *connection, const gvmi_sender *sender)
{
    const int code = errno;
    bool watched;

    gvmi_server_close_watched(server, &connection->process);
    connection->process = sender->process;
    connection->pid = sender->pid;
    connection->certain = sender->certain;
    connection->foreign = sender->uid != connection->uid;
    if (connection->process_ended) {
        connection->process_ended = false;
        connection->ending = connection->mute;
        connection->last_reads = 0;
    }
    gvmi_machine_adopted(server->machine, connection->client, sender->pid);
    watched = connection->process < 0 || gvmi_server_watch(server, connection->process, EPOLLIN,
                                                           &connection->on_process) == GVM_OK;
    if (!watched)
        gvmi_server_close(&connection->process);
    errno = code;
    return watched;
}

void gvmi_connection_gone(gvm_keeper *server, gvmi_connection *connection)
{
    const uint32_t client = connection->client;

    gvmi_connection_end(server, connection);
    if (client != 0)
        gvmi_machine_exited(server->machine, client);
}

void gvmi_connection_leave(gvmi_connection *connection)
{
    connection->state = CONNECTION_LEAVING;
    connection->more = connection->dirty = connection->stalled = false;
    connection->counted_bytes = 0;
    gvmi_outbox_clear(&connection->outbox);
    gvmi_connection_take_snapshot_back(connection);
    gvmi_server_close(&connection->snapshot);
}

void gvmi_connection_silence(gvm_keeper *server, gvmi_connection *connection)
{
    gvmi_connection_leave(connection);
    gvmi_server_rewatch(server, connection->socket, 0, &connection->on_socket);
    gvmi_machine_disconnect(server->machine, connection->client);
}

/* Its end of the socket is closed. If the process is about to end, that is waited for. */
void gvmi_connection_judge_closed(gvm_keeper *server, gvmi_connection *connection)
{
    connection->hung_up = gvmi_process_is_ending(connection->pid);
    if (!connection->hung_up)
        gvmi_machine_closed(server->machine, connection->client);
}

/* Of a connection that is LEAVING. */
void gvmi_connection_closed(gvm_keeper *server, gvmi_connection *connection)
{
    (void)close_socket(server, connection);
    if (connection->process < 0)
        gvmi_connection_gone(server, connection);
    else
        gvmi_connection_judge_closed(server, connection);
}

void gvmi_connection_judge_again(gvm_keeper *server, gvmi_connection *connection)
{
    if (connection->hung_up && connection->state == CONNECTION_LEAVING)
        gvmi_connection_queue(server, connection);
}

void gvmi_connection_bye(gvm_keeper *server, gvmi_connection *connection)
{
    gvmi_connection_leave(connection);
    (void)close_socket(server, connection);
    if (connection->process >= 0) {
        gvmi_machine_bye(server->machine, connection->client);
    } else {
        gvmi_machine_disconnect(server->machine, connection->client);
        gvmi_connection_gone(server, connection);
    }
}

/* The last message, behind all others: the reason. If those cannot all be sent, it is left out. */
static void send_close_reason(gvm_keeper *server, gvmi_connection *connection, const char *reason)
{
    gvmi_wire_message message;

    if (connection->mute || connection->held_back || send_outbox(server, connection) != GVMI_OUTBOX_EMPTY)
        return;
    gvmi_wire_start(&message, GVMI_WIRE_FAILED, 0);
    message.body.FAILED.status = GVM_E_KEEPER;
    gvmi_text_print(message.body.FAILED.text, sizeof message.body.FAILED.text, "%s", reason);
    if (gvmi_outbox_add(&connection->outbox, &message, NULL) == GVM_OK)
        (void)send_outbox(server, connection);
}

void gvmi_connection_cut(gvm_keeper *server, gvmi_connection *connection, const char *reason)
{
    if (connection->state != CONNECTION_OPEN)
        return;
    gvmi_server_log_user(server, GVMI_LOG_CUT, connection->uid,
                         "client %u (pid %d, uid %u) was cut off: %s", (unsigned)connection->client,
                         (int)connection->pid, (unsigned)connection->uid, reason);
    send_close_reason(server, connection, reason);
    gvmi_connection_leave(connection);
    (void)shutdown(connection->socket, SHUT_WR);
    gvmi_server_rewatch(server, connection->socket, EPOLLIN, &connection->on_socket);
}

void gvmi_connection_kill(gvm_keeper *server, gvmi_connection *connection)
{
    const char *outcome = "it was killed";

    if (connection->foreign)
        outcome = "end it by hand, as it is a process of another user than the one that connected";
    else if (connection->process < 0 || !connection->certain)
        outcome = "end it by hand, as it is of the keeper's own process, or the system cannot tell for certain which it is";
    else if (syscall(SYS_pidfd_send_signal, connection->process, SIGKILL, NULL, 0) != 0)
        outcome = "end it by hand, as the keeper may not";
    gvmi_server_log_user(server, GVMI_LOG_ALWAYS, connection->uid,
                         "client %u (pid %d, uid %u) could write when it was cut off: %s",
                         (unsigned)connection->client, (int)connection->pid,
                         (unsigned)connection->uid, outcome);
}

void gvmi_connection_forget(gvm_keeper *server, gvmi_connection *connection)
{
    if (connection->state == CONNECTION_LEAVING)
        gvmi_connection_gone(server, connection);
}

bool gvmi_connection_has_input(void *context, uint32_t client)
{
    const gvm_keeper *server = context;
    const gvmi_connection *connection = client < server->client_capacity ? server->by_client[client]
                                                                         : NULL;
    int bytes = 0;

    if (connection == NULL || connection->state != CONNECTION_OPEN)
        return false;
    return connection->more || (ioctl(connection->socket, FIONREAD, &bytes) == 0 && bytes > 0);
}

void gvmi_connection_send_held_back(gvm_keeper *server, gvmi_connection *connection)
{
    if (!connection->held_back || gvmi_frames_dropped(server->frames))
        return;
    connection->held_back = false;
    server->held_back_count--;
    connection->dirty = true;
    gvmi_connection_queue(server, connection);
}

/* ---- what is sent to it */

/* Tells the machine how much waits. False: the user's allowance is spent. */
static bool count_outbox(gvm_keeper *server, gvmi_connection *connection)
{
    const size_t bytes = connection->outbox.bytes / OUTBOX_BYTES_FREE * OUTBOX_BYTES_FREE;

    if (bytes == connection->counted_bytes)
        return true;
    if (!gvmi_machine_queued(server->machine, connection->client, bytes))
        return false;
    connection->counted_bytes = bytes;
    return true;
}

void gvmi_connection_send(gvm_keeper *server, gvmi_connection *connection,
                          const gvmi_wire_message *message, gvmi_fd *const *fds)
{
    gvm_status status;

    if (connection->state != CONNECTION_OPEN || connection->mute || connection->incomplete)
        return;
    status = gvmi_outbox_add(&connection->outbox, message, fds);
    if (status == GVM_OK && !count_outbox(server, connection))
        status = GVM_E_LIMIT;
    if (status == GVM_OK) {
        connection->dirty = true;
        gvmi_connection_queue(server, connection);
        return;
    }
    connection->incomplete = true;
    /* The CUT that follows comes out of the machine like any other action. */
    gvmi_machine_violation(server->machine, connection->client,
                           status == GVM_E_LIMIT ? "it does not read what the keeper sends"
                                                 : "the keeper has no memory for its messages");
}

void gvmi_connection_flush(gvm_keeper *server, gvmi_connection *connection)
{
    gvmi_outbox_state state;
    bool blocked;

    connection->dirty = false;
    if (connection->state != CONNECTION_OPEN || connection->held_back)
        return;
    state = send_outbox(server, connection);
    connection->stalled = state == GVMI_OUTBOX_LATER || state == GVMI_OUTBOX_SPENT;
    if (state == GVMI_OUTBOX_LATER) /* which is not the client's doing */
        gvmi_machine_delayed(server->machine, connection->client);
    if (connection->stalled && server->stall_ns == 0)
        server->stall_ns = server->now_ns + STALL_NS;
    (void)count_outbox(server, connection);
    blocked = state == GVMI_OUTBOX_BLOCKED;
    if (blocked != connection->writing) {
        connection->writing = blocked;
        gvmi_server_rewatch(server, connection->socket, blocked ? EPOLLIN | EPOLLOUT : EPOLLIN,
                            &connection->on_socket);
    }
    if (state == GVMI_OUTBOX_BROKEN) {
        /* It has closed its end, or reads no more. BYE may be among what it sent before that. */
        connection->mute = true;
        gvmi_outbox_clear(&connection->outbox);
        connection->ending = true;
    }
}

void gvmi_connection_retry(gvm_keeper *server, gvmi_connection *connection)
{
    (void)gvmi_passing_settle(server, connection);
    if (!connection->stalled)
        return;
    connection->dirty = true;
    gvmi_connection_queue(server, connection);
}

/* ---- snapshots */

static gvm_status write_piece(gvmi_connection *connection, const gvmi_action *action)
{
    gvm_status status = connection->snapshot < 0
                            ? gvmi_page_begin("gvmem-snapshot", &connection->snapshot)
                            : GVM_OK;

    return status == GVM_OK ? gvmi_page_write(connection->snapshot, action->offset_bytes,
                                              action->bytes, action->len)
                            : status;
}

/* All of it is written. */
static gvm_status finish_snapshot(gvm_keeper *server, gvmi_connection *connection,
                                  const gvmi_wire_message *message)
{
    gvmi_fd *fd;
    const gvm_status status = gvmi_page_end(connection->snapshot, &fd);

    connection->snapshot = -1;
    if (status != GVM_OK)
        return status;
    GVM_ASSERT(connection->snapshot_sent == NULL); /* the machine makes one at a time */
    connection->snapshot_sent = fd;
    gvmi_connection_send(server, connection, message, &fd);
    return GVM_OK;
}

void gvmi_connection_send_snapshot(gvm_keeper *server, gvmi_connection *connection,
                                   const gvmi_action *action)
{
    const gvmi_wire_message *message = action->message;
    gvmi_wire_message failed;
    gvm_status status = GVM_OK;

    if (connection->state != CONNECTION_OPEN)
        return;
    if (action->len > 0 && !connection->snapshot_lost)
        connection->snapshot_lost = write_piece(connection, action) != GVM_OK;
    if (message == NULL)
        return;
    if (message->head.type == GVMI_WIRE_FAILED)
        gvmi_connection_send(server, connection, message, NULL);
    else if (connection->snapshot_lost ||
             (status = finish_snapshot(server, connection, message)) != GVM_OK) {
        gvmi_wire_start(&failed, GVMI_WIRE_FAILED, message->head.request);
        failed.body.FAILED.status = GVM_E_SYSTEM;
        snprintf(failed.body.FAILED.text, sizeof failed.body.FAILED.text,
                 "the keeper has no memory or file descriptors for a snapshot");
        gvmi_connection_send(server, connection, &failed, NULL);
        gvmi_machine_snapshot_read(server->machine, connection->client);
        server->working = true;
    }
    gvmi_server_close(&connection->snapshot);
    connection->snapshot_lost = false;
}
