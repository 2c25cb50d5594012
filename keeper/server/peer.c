/* Clients, as the server sees them: coming, messages, leaving, and the end of their processes.
 *
 * What comes from a client is bounded: a visit takes at most MESSAGES_A_VISIT messages, fewer when its time
 * is over, and what it does not take waits in the socket. What waits to be sent to one, and a snapshot that
 * it was sent, up to SNAPSHOT_READ, count against its user's allowance (keeper/machine/users.c). Whatever
 * descriptors of a snapshot there are then, in the client or in a socket, its memory is freed.
 */
#include <errno.h>
#include <fcntl.h>
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
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "keeper/server/server.h"

#define MESSAGES_A_VISIT 32
#define OUTBOX_BYTES_FREE (64u << 10) /* unsent bytes of a client are counted in multiples of it */
#define LAST_READS_MAX 64  /* of the socket of a process that is gone, or does not read */
#define STALL_NS 5000000ll /* until sending is tried again when the system was short */
#define REFUSED_MAX 64     /* clients to which the reason for their refusal is to be sent */
#define UNHEARD_BYTES_MAX (4u << 20) /* read of a client that was cut off, and discarded */
#define PEER_GROUPS_MAX 65536u       /* what Linux allows a process */
#define NUMBER_MAX (1u << 20)        /* clients' numbers are dense; far above any limit of them */

/* ---- who it is */

static void read_peer_groups(int socket, gvmi_credentials *who)
{
    socklen_t bytes = 0;
    gid_t *groups;

    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes) == 0 || errno != ERANGE ||
        bytes == 0 || bytes > PEER_GROUPS_MAX * sizeof *groups)
        return;
    groups = malloc(bytes);
    if (groups == NULL)
        return; /* fewer rights than it could have */
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0)
        for (size_t i = 0; i < bytes / sizeof *groups && i < GVMI_GROUPS_MAX; i++)
            who->groups[who->group_count++] = groups[i];
    free(groups);
}

static gvm_status read_credentials(const gvm_keeper *server, gvmi_peer *peer, gvmi_credentials *who)
{
    struct ucred found;
    socklen_t bytes = sizeof found;

    if (getsockopt(peer->socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "getsockopt", "cannot tell who connected");
    *who = (gvmi_credentials){.uid = found.uid, .gid = found.gid, .pid = found.pid};
    read_peer_groups(peer->socket, who);
    return gvmi_identity_judge(&server->identity, getpid(), who);
}

/* ---- coming and going */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Frees the memory of the snapshot that it was sent, though it may keep the fd. */
static void take_snapshot_back(gvmi_peer *peer)
{
    if (peer->snapshot_sent == NULL)
        return;
    gvmi_page_empty(peer->snapshot_sent);
    gvmi_fd_release(peer->snapshot_sent);
    peer->snapshot_sent = NULL;
}

/* Closes an fd that epoll watches. Closing alone takes it out only if nobody else has it, and a program
 * that runs a keeper may have forked. */
static void close_watched(const gvm_keeper *server, int *fd)
{
    if (*fd >= 0)
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, *fd, NULL);
    close_fd(fd);
}

static void schedule_peer(gvm_keeper *server, gvmi_peer *peer)
{
    gvmi_schedule_queue(&server->schedule, &peer->place);
}

static void link_peer(gvmi_peer **list, gvmi_peer *peer)
{
    peer->prev = NULL;
    peer->next = *list;
    if (peer->next != NULL)
        peer->next->prev = peer;
    *list = peer;
}

static void unlink_peer(gvmi_peer **list, const gvmi_peer *peer)
{
    if (peer->prev != NULL)
        peer->prev->next = peer->next;
    else
        *list = peer->next;
    if (peer->next != NULL)
        peer->next->prev = peer->prev;
}

static gvmi_peer *peer_new(gvm_keeper *server, int socket)
{
    gvmi_peer *peer = calloc(1, sizeof *peer);
    struct ucred found = {0};
    socklen_t bytes = sizeof found;

    if (peer == NULL || getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0 ||
        gvmi_schedule_join(&server->schedule, found.uid, peer, &peer->place) != GVM_OK) {
        gvmi_server_log_user(server, GVMI_LOG_REFUSED, found.uid,
                             "a client was refused: out of host memory");
        free(peer);
        close(socket);
        return NULL;
    }
    peer->uid = found.uid;
    peer->pid = found.pid;
    peer->on_socket = (gvmi_source){GVMI_SOURCE_SOCKET, peer};
    peer->on_doorbell = (gvmi_source){GVMI_SOURCE_DOORBELL, peer};
    peer->on_process = (gvmi_source){GVMI_SOURCE_PROCESS, peer};
    peer->socket = socket;
    peer->process = peer->snapshot = -1;
    peer->since_ns = server->now_ns;
    link_peer(&server->peers, peer);
    return peer;
}

/* It is kept open while descriptors that were sent over it are not received. */
static void close_socket(gvm_keeper *server, gvmi_peer *peer)
{
    if (gvmi_passing_settle(server, peer))
        close_watched(server, &peer->socket);
    else
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->socket, NULL);
}

/* Its memory is freed when it is visited next: callers may still use it. */
static void end_peer(gvm_keeper *server, gvmi_peer *peer)
{
    server->refused_count -= peer->state == PEER_REFUSED;
    peer->place.user->refused -= peer->state == PEER_REFUSED;
    server->held_back_count -= peer->held_back;
    peer->held_back = false;
    peer->state = PEER_GONE;
    if (peer->client != 0)
        server->by_client[peer->client] = NULL;
    if (peer->fds[2] != NULL)
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->fds[2]->fd, NULL);
    close_watched(server, &peer->process);
    close_socket(server, peer);
    peer->unread_kept = peer->passing > 0;
    peer->place.user->unread += peer->unread_kept;
    unlink_peer(&server->peers, peer);
    link_peer(&server->ended, peer);
    schedule_peer(server, peer);
}

static void release_pages(gvmi_peer *peer)
{
    for (int i = 0; i < 3; i++) {
        gvmi_fd_release(peer->fds[i]);
        peer->fds[i] = NULL;
    }
    if (peer->leases != NULL)
        munmap(peer->leases, GVMI_LEASE_PAGE_BYTES);
    if (peer->permits != NULL)
        munmap(peer->permits, GVMI_PERMIT_PAGE_BYTES);
    peer->leases = NULL;
    peer->permits = NULL;
}

void gvmi_peer_look_again(gvm_keeper *server)
{
    for (gvmi_peer *peer = server->ended; peer != NULL; peer = peer->next)
        schedule_peer(server, peer);
}

void gvmi_peer_free(gvm_keeper *server, gvmi_peer *peer)
{
    gvmi_schedule_leave(&server->schedule, &peer->place);
    gvmi_outbox_clear(&peer->outbox);
    take_snapshot_back(peer);
    close_fd(&peer->socket);
    close_fd(&peer->process);
    close_fd(&peer->snapshot);
    release_pages(peer);
    free(peer);
}

static gvm_status make_doorbell(gvmi_fd **out)
{
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (fd < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "eventfd", "cannot make a doorbell");
    return gvmi_fd_own(fd, out);
}

static gvm_status make_pages(gvmi_peer *peer)
{
    void *address;
    gvm_status status = gvmi_page_create("gvmem-leases", GVMI_LEASE_PAGE_BYTES, false, &address,
                                         &peer->fds[0]);

    if (status != GVM_OK)
        return status;
    peer->leases = address;
    status = gvmi_page_create("gvmem-permits", GVMI_PERMIT_PAGE_BYTES, true, &address, &peer->fds[1]);
    if (status != GVM_OK)
        return status;
    peer->permits = address;
    return make_doorbell(&peer->fds[2]);
}

static gvm_status register_client(gvm_keeper *server, gvmi_peer *peer, uint32_t client)
{
    uint32_t capacity = server->client_capacity > 0 ? server->client_capacity : 64;
    gvmi_peer **table;

    if (client >= NUMBER_MAX)
        return gvmi_fail(GVM_E_LIMIT, "client %u is beyond any limit", client);
    while (capacity <= client)
        capacity *= 2;
    if (capacity > server->client_capacity) {
        table = realloc(server->by_client, capacity * sizeof(gvmi_peer *));
        if (table == NULL)
            return gvmi_fail(GVM_E_NOMEM, "out of host memory for a client");
        memset(table + server->client_capacity, 0,
               (capacity - server->client_capacity) * sizeof(gvmi_peer *));
        server->by_client = table;
        server->client_capacity = capacity;
    }
    server->by_client[client] = peer;
    peer->client = client;
    return GVM_OK;
}

static gvm_status watch_peer(gvm_keeper *server, gvmi_peer *peer)
{
    gvm_status status = gvmi_server_watch(server, peer->socket, EPOLLIN, &peer->on_socket);

    /* Edge by edge: it is never read, since the client, who has the same eventfd, could make that
     * block. */
    if (status == GVM_OK)
        status = gvmi_server_watch(server, peer->fds[2]->fd, EPOLLIN | EPOLLET, &peer->on_doorbell);
    if (status == GVM_OK && peer->process >= 0)
        status = gvmi_server_watch(server, peer->process, EPOLLIN, &peer->on_process);
    return status;
}

/* Everything that a client needs; on failure the machine does not know it. */
static gvm_status admit_client(gvm_keeper *server, gvmi_peer *peer)
{
    gvmi_credentials who;
    uint32_t client;
    gvm_status status = read_credentials(server, peer, &who);

    if (status != GVM_OK)
        return status;
    status = gvmi_machine_admits(server->machine, who.uid);
    if (status == GVM_OK)
        status = gvmi_passing_admits(peer);
    if (status != GVM_OK)
        return status;
    peer->process = gvmi_process_open(peer->socket, who.pid, &peer->certain);
    status = make_pages(peer);
    if (status == GVM_OK)
        status = gvmi_machine_connect(server->machine, &who, peer->leases, peer->permits, &client);
    if (status != GVM_OK)
        return status;
    status = register_client(server, peer, client);
    if (status == GVM_OK)
        status = watch_peer(server, peer);
    if (status != GVM_OK) {
        gvmi_machine_disconnect(server->machine, client);
        gvmi_machine_exited(server->machine, client);
        if (peer->client != 0)
            server->by_client[peer->client] = NULL;
        peer->client = 0;
    }
    return status;
}

/* Sends as much as goes now, and its user may be sent. */
static gvmi_outbox_state send_outbox(gvm_keeper *server, gvmi_peer *peer)
{
    const uint32_t most = gvmi_passing_left(server, peer);
    uint32_t left = most;
    const gvmi_outbox_state state = gvmi_outbox_flush(&peer->outbox, peer->socket, &left);

    gvmi_passing_add(server, peer, most - left);
    return state;
}

/* Says why a client is refused, and ends it. request 0: it has not asked anything yet. */
static void answer_refused(gvm_keeper *server, gvmi_peer *peer, uint64_t request)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_FAILED, request);
    message.body.FAILED.status = peer->reason == GVM_E_LIMIT ? GVM_E_DENIED : peer->reason;
    gvmi_text_print(message.body.FAILED.text, sizeof message.body.FAILED.text, "refused: %s",
                    peer->refusal);
    if (gvmi_outbox_add(&peer->outbox, &message, NULL) == GVM_OK)
        (void)send_outbox(server, peer);
    end_peer(server, peer);
}

/* Whether a client that is refused may stay until it asks, so that the answer has the number of its
 * request. Each user has an allowance of the places for that, as of everything (keeper/machine/users.c). */
static bool may_wait_refused(const gvm_keeper *server, const gvmi_peer *refused)
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

static void refuse_peer(gvm_keeper *server, gvmi_peer *peer)
{
    const bool waits = may_wait_refused(server, peer);
    const gvm_error why = gvmi_error_save();

    describe_refusal(&why, peer->refusal, sizeof peer->refusal);
    gvmi_server_log_user(server, GVMI_LOG_REFUSED, peer->uid,
                         "a client (pid %d, uid %u) was refused: %s", (int)peer->pid,
                         (unsigned)peer->uid, peer->refusal);
    peer->state = PEER_REFUSED;
    server->refused_count++;
    peer->place.user->refused++;
    close_watched(server, &peer->process);
    (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->socket, NULL);
    release_pages(peer);
    if (!waits || gvmi_server_watch(server, peer->socket, EPOLLIN, &peer->on_socket) != GVM_OK)
        answer_refused(server, peer, 0);
}

void gvmi_peer_come(gvm_keeper *server, int socket)
{
    gvmi_peer *peer = peer_new(server, socket);

    if (peer == NULL)
        return;
    peer->reason = admit_client(server, peer);
    if (peer->reason != GVM_OK)
        refuse_peer(server, peer);
}

/* Its process maps nothing any more. */
static void peer_free_closed(gvm_keeper *server, gvmi_peer *peer)
{
    const uint32_t client = peer->client;

    end_peer(server, peer);
    if (client != 0)
        gvmi_machine_exited(server->machine, client);
}

/* Nothing more is read from it or sent to it; its process may go on. */
static void peer_leave(gvmi_peer *peer)
{
    peer->state = PEER_LEAVING;
    peer->more = peer->dirty = peer->stalled = false;
    peer->counted_bytes = 0;
    gvmi_outbox_clear(&peer->outbox);
    take_snapshot_back(peer);
    close_fd(&peer->snapshot);
}

/* It sends or receives nothing more. It may have everything mapped, with kernels that use it, until its
 * end of the socket is closed; epoll reports that (EPOLLHUP) without being asked to. */
static void peer_silent(gvm_keeper *server, gvmi_peer *peer)
{
    peer_leave(peer);
    gvmi_server_rewatch(server, peer->socket, 0, &peer->on_socket);
    gvmi_machine_disconnect(server->machine, peer->client);
}

/* Its end of the socket is closed. If the process is about to end, that is waited for. */
static void judge_closed(gvm_keeper *server, gvmi_peer *peer)
{
    peer->hung_up = gvmi_process_is_ending(peer->pid);
    if (!peer->hung_up)
        gvmi_machine_closed(server->machine, peer->client);
}

/* Of a peer that is LEAVING. */
static void peer_closed(gvm_keeper *server, gvmi_peer *peer)
{
    close_socket(server, peer);
    if (peer->process < 0)
        peer_free_closed(server, peer);
    else
        judge_closed(server, peer);
}

void gvmi_peer_judge_again(gvm_keeper *server, gvmi_peer *peer)
{
    if (peer->hung_up && peer->state == PEER_LEAVING)
        schedule_peer(server, peer);
}

/* BYE says that nothing is mapped any more, which the machine checks. The process may go on. */
static void end_peer_on_bye(gvm_keeper *server, gvmi_peer *peer)
{
    peer_leave(peer);
    close_socket(server, peer);
    if (peer->process >= 0) {
        gvmi_machine_bye(server->machine, peer->client);
    } else {
        gvmi_machine_disconnect(server->machine, peer->client);
        peer_free_closed(server, peer);
    }
}

/* The last message, behind all others: the reason. If those cannot all be sent, it is left out. */
static void send_close_reason(gvm_keeper *server, gvmi_peer *peer, const char *reason)
{
    gvmi_wire_message message;

    if (peer->mute || peer->held_back || send_outbox(server, peer) != GVMI_OUTBOX_EMPTY)
        return;
    gvmi_wire_start(&message, GVMI_WIRE_FAILED, 0);
    message.body.FAILED.status = GVM_E_KEEPER;
    gvmi_text_print(message.body.FAILED.text, sizeof message.body.FAILED.text, "%s", reason);
    if (gvmi_outbox_add(&peer->outbox, &message, NULL) == GVM_OK)
        (void)send_outbox(server, peer);
}

void gvmi_peer_cut(gvm_keeper *server, gvmi_peer *peer, const char *reason)
{
    if (peer->state != PEER_OPEN)
        return;
    gvmi_server_log_user(server, GVMI_LOG_CUT, peer->uid, "client %u (pid %d, uid %u) was cut off: %s",
                         (unsigned)peer->client, (int)peer->pid, (unsigned)peer->uid, reason);
    send_close_reason(server, peer, reason);
    peer_leave(peer);
    (void)shutdown(peer->socket, SHUT_WR);
    gvmi_server_rewatch(server, peer->socket, EPOLLIN, &peer->on_socket);
}

void gvmi_peer_kill(gvm_keeper *server, gvmi_peer *peer)
{
    const char *outcome = "it was killed";

    if (peer->process < 0 || !peer->certain)
        outcome = "end it by hand, as it is of the keeper's own process, or the system cannot tell for certain which it is";
    else if (syscall(SYS_pidfd_send_signal, peer->process, SIGKILL, NULL, 0) != 0)
        outcome = "end it by hand, as the keeper may not";
    gvmi_server_log_user(server, GVMI_LOG_ALWAYS, peer->uid,
                         "client %u (pid %d, uid %u) could write when it was cut off: %s",
                         (unsigned)peer->client, (int)peer->pid, (unsigned)peer->uid, outcome);
}

void gvmi_peer_forget(gvm_keeper *server, gvmi_peer *peer)
{
    if (peer->state == PEER_LEAVING)
        peer_free_closed(server, peer);
}

bool gvmi_peer_has_input(void *context, uint32_t client)
{
    const gvm_keeper *server = context;
    const gvmi_peer *peer = client < server->client_capacity ? server->by_client[client] : NULL;
    int bytes = 0;

    if (peer == NULL || peer->state != PEER_OPEN)
        return false;
    return peer->more || (ioctl(peer->socket, FIONREAD, &bytes) == 0 && bytes > 0);
}

/* ---- what it sends */

static void report_violation(gvm_keeper *server, gvmi_peer *peer, const char *what)
{
    gvmi_machine_violation(server->machine, peer->client, what);
    gvmi_server_act(server);
}

/* The answer to a TRIM is sent once the memory is given back to the driver. */
static void defer_trim_reply(gvm_keeper *server, gvmi_peer *peer)
{
    if (peer->state != PEER_OPEN || peer->held_back)
        return;
    peer->held_back = true;
    server->held_back_count++;
}

void gvmi_peer_send_held_back(gvm_keeper *server, gvmi_peer *peer)
{
    if (!peer->held_back || gvmi_frames_dropped(server->frames))
        return;
    peer->held_back = false;
    server->held_back_count--;
    peer->dirty = true;
    schedule_peer(server, peer);
}

/* A whole message. */
static void take_message(gvm_keeper *server, gvmi_peer *peer, const uint8_t *bytes, size_t len)
{
    gvmi_wire_message message;

    if (gvmi_wire_decode(bytes, len, true, &message) != GVM_OK) {
        gvm_error error = gvmi_error_save();

        report_violation(server, peer, error.text);
        return;
    }
    peer->greeted = true;
    if (message.head.type == GVMI_WIRE_SNAPSHOT_READ)
        take_snapshot_back(peer);
    server->working |= message.head.type == GVMI_WIRE_SNAPSHOT ||
                       message.head.type == GVMI_WIRE_SNAPSHOT_READ;
    if (message.head.type == GVMI_WIRE_BYE) {
        end_peer_on_bye(server, peer);
        gvmi_server_act(server);
    } else {
        gvmi_machine_message(server->machine, peer->client, &message);
        gvmi_server_act(server);
        if (message.head.type == GVMI_WIRE_TRIM && gvmi_frames_dropped(server->frames))
            defer_trim_reply(server, peer);
    }
}

/* The message at the front of what has come. False: it is not whole, or the peer is not open any
 * more. */
static bool next_message(gvm_keeper *server, gvmi_peer *peer, uint32_t *start)
{
    const uint32_t len = peer->in_len - *start;
    gvmi_wire_head head;

    if (len < sizeof head)
        return false;
    memcpy(&head, peer->in + *start, sizeof head);
    if (peer->state == PEER_REFUSED) {
        answer_refused(server, peer, head.request);
        return false;
    }
    if (gvmi_wire_check_head(&head, true) != GVM_OK ||
        !GVM_CHECK(head.bytes >= sizeof head && head.bytes <= sizeof(gvmi_wire_message))) {
        report_violation(server, peer, "it sent bytes that are no message");
        return false;
    }
    if (len < head.bytes)
        return false;
    take_message(server, peer, peer->in + *start, head.bytes);
    *start += head.bytes;
    return peer->state == PEER_OPEN;
}

static void take_messages(gvm_keeper *server, gvmi_peer *peer)
{
    uint32_t start = 0;
    int count = 0;

    while (count < MESSAGES_A_VISIT && next_message(server, peer, &start)) {
        count++;
        if (gvmi_now_ns() >= server->schedule.end_ns)
            break;
    }
    if (peer->state != PEER_OPEN && peer->state != PEER_REFUSED)
        return;
    memmove(peer->in, peer->in + start, peer->in_len - start);
    peer->in_len -= start;
    peer->more = count > 0 && peer->in_len >= sizeof(gvmi_wire_head);
}

/* Goes on with messages that came and were left over. */
static void process_left_messages(gvm_keeper *server, gvmi_peer *peer)
{
    peer->more = false;
    take_messages(server, peer);
}

/* One read. False: there is nothing (more) to be read now, or ever. */
static bool receive_from_peer(gvm_keeper *server, gvmi_peer *peer)
{
    struct iovec room = {.iov_base = peer->in + peer->in_len,
                         .iov_len = sizeof peer->in - peer->in_len};
    /* Without room for fds the kernel closes those that come and sets MSG_CTRUNC. */
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1};
    ssize_t got;

    if (room.iov_len == 0) /* whole messages wait to be taken */
        return false;
    do
        got = recvmsg(peer->socket, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == ENOMEM || errno == ENOBUFS))
        return false;
    if (got <= 0) {
        if (peer->state == PEER_OPEN)
            peer_silent(server, peer);
        else
            end_peer(server, peer);
        gvmi_server_act(server);
        return false;
    }
    peer->in_len += (uint32_t)got;
    if (peer->state == PEER_OPEN && (message.msg_flags & MSG_CTRUNC) != 0) {
        report_violation(server, peer, "it sent file descriptors");
        return false;
    }
    take_messages(server, peer);
    return peer->state == PEER_OPEN;
}

/* Of a client that was cut off: what its threads still send is read and discarded, so that they do not
 * block. True: it has closed its end, or sent too much. */
static bool has_closed(gvm_keeper *server, gvmi_peer *peer, uint32_t events)
{
    ssize_t got;

    if ((events & (EPOLLHUP | EPOLLERR)) != 0 || peer->unheard_bytes >= UNHEARD_BYTES_MAX)
        return true;
    got = recv(peer->socket, peer->in, sizeof peer->in, MSG_DONTWAIT);
    if (got < 0)
        return errno != EAGAIN && errno != EINTR && errno != ENOMEM && errno != ENOBUFS;
    peer->unheard_bytes += (uint32_t)got;
    if (peer->unheard_bytes >= UNHEARD_BYTES_MAX)
        gvmi_server_rewatch(server, peer->socket, EPOLLRDHUP, &peer->on_socket);
    return got == 0;
}

void gvmi_peer_silent(gvm_keeper *server, gvmi_peer *peer)
{
    if (peer->state == PEER_REFUSED)
        end_peer(server, peer);
    else if (peer->state == PEER_OPEN)
        report_violation(server, peer, "it sent nothing within 10 s after it had connected");
}

/* ---- what is sent to it */

/* Tells the machine how much waits. False: the user's allowance is spent. */
static bool count_outbox(gvm_keeper *server, gvmi_peer *peer)
{
    const size_t bytes = peer->outbox.bytes / OUTBOX_BYTES_FREE * OUTBOX_BYTES_FREE;

    if (bytes == peer->counted_bytes)
        return true;
    if (!gvmi_machine_queued(server->machine, peer->client, bytes))
        return false;
    peer->counted_bytes = bytes;
    return true;
}

void gvmi_peer_send(gvm_keeper *server, gvmi_peer *peer, const gvmi_wire_message *message,
                    gvmi_fd *const *fds)
{
    gvm_status status;

    if (peer->state != PEER_OPEN || peer->mute)
        return;
    status = gvmi_outbox_add(&peer->outbox, message, fds);
    if (status == GVM_OK && !count_outbox(server, peer))
        status = GVM_E_LIMIT;
    if (status == GVM_OK) {
        peer->dirty = true;
        schedule_peer(server, peer);
        return;
    }
    /* The CUT that follows comes out of the machine like any other action. */
    gvmi_machine_violation(server->machine, peer->client,
                           status == GVM_E_LIMIT ? "it does not read what the keeper sends"
                                                 : "the keeper has no memory for its messages");
}

/* Sends as much as goes now. */
static void flush_outbox(gvm_keeper *server, gvmi_peer *peer)
{
    gvmi_outbox_state state;
    bool blocked;

    peer->dirty = false;
    if (peer->state != PEER_OPEN || peer->held_back)
        return;
    state = send_outbox(server, peer);
    peer->stalled = state == GVMI_OUTBOX_LATER || state == GVMI_OUTBOX_SPENT;
    if (state == GVMI_OUTBOX_LATER) /* which is not the client's doing */
        gvmi_machine_delayed(server->machine, peer->client);
    if (peer->stalled && server->stall_ns == 0)
        server->stall_ns = server->now_ns + STALL_NS;
    (void)count_outbox(server, peer);
    blocked = state == GVMI_OUTBOX_BLOCKED;
    if (blocked != peer->writing) {
        peer->writing = blocked;
        gvmi_server_rewatch(server, peer->socket, blocked ? EPOLLIN | EPOLLOUT : EPOLLIN,
                            &peer->on_socket);
    }
    if (state == GVMI_OUTBOX_BROKEN) {
        /* It has closed its end, or reads no more. BYE may be among what it sent before that. */
        peer->mute = true;
        gvmi_outbox_clear(&peer->outbox);
        peer->ending = true;
    }
}

void gvmi_peer_retry(gvm_keeper *server, gvmi_peer *peer)
{
    (void)gvmi_passing_settle(server, peer);
    if (!peer->stalled)
        return;
    peer->dirty = true;
    schedule_peer(server, peer);
}

/* ---- snapshots */

static gvm_status write_piece(gvmi_peer *peer, const gvmi_action *action)
{
    gvm_status status = peer->snapshot < 0 ? gvmi_page_begin("gvmem-snapshot", &peer->snapshot)
                                           : GVM_OK;

    return status == GVM_OK
               ? gvmi_page_write(peer->snapshot, action->offset_bytes, action->bytes, action->len)
               : status;
}

/* All of it is written. */
static gvm_status finish_snapshot(gvm_keeper *server, gvmi_peer *peer, const gvmi_wire_message *message)
{
    gvmi_fd *fd;
    const gvm_status status = gvmi_page_end(peer->snapshot, &fd);

    peer->snapshot = -1;
    if (status != GVM_OK)
        return status;
    GVM_ASSERT(peer->snapshot_sent == NULL); /* the machine makes one at a time */
    peer->snapshot_sent = fd;
    gvmi_peer_send(server, peer, message, &fd);
    return GVM_OK;
}

void gvmi_peer_send_snapshot(gvm_keeper *server, gvmi_peer *peer, const gvmi_action *action)
{
    const gvmi_wire_message *message = action->message;
    gvmi_wire_message failed;
    gvm_status status = GVM_OK;

    if (peer->state != PEER_OPEN)
        return;
    if (action->len > 0 && !peer->snapshot_lost)
        peer->snapshot_lost = write_piece(peer, action) != GVM_OK;
    if (message == NULL)
        return;
    if (message->head.type == GVMI_WIRE_FAILED)
        gvmi_peer_send(server, peer, message, NULL);
    else if (peer->snapshot_lost || (status = finish_snapshot(server, peer, message)) != GVM_OK) {
        gvmi_wire_start(&failed, GVMI_WIRE_FAILED, message->head.request);
        failed.body.FAILED.status = GVM_E_SYSTEM;
        snprintf(failed.body.FAILED.text, sizeof failed.body.FAILED.text,
                 "the keeper has no memory or file descriptors for a snapshot");
        gvmi_peer_send(server, peer, &failed, NULL);
        gvmi_machine_snapshot_read(server->machine, peer->client);
        server->working = true;
    }
    close_fd(&peer->snapshot);
    peer->snapshot_lost = false;
}

/* ---- visits */

void gvmi_peer_note(gvm_keeper *server, gvmi_source *source, uint32_t events)
{
    gvmi_peer *peer = source->peer;

    switch (source->kind) {
    case GVMI_SOURCE_SOCKET: peer->events |= events; break;
    case GVMI_SOURCE_DOORBELL: peer->rang = true; break;
    default: peer->process_ended = peer->ending = true; break;
    }
    schedule_peer(server, peer);
}

static void handle_doorbell(gvm_keeper *server, gvmi_peer *peer)
{
    if (!peer->rang)
        return;
    peer->rang = false;
    if (peer->state != PEER_OPEN && peer->state != PEER_LEAVING)
        return;
    gvmi_machine_doorbell(server->machine, peer->client);
    gvmi_server_act(server);
}

/* What it sent before it ended counts. When all of that is read, it is silent or, as its process has ended,
 * gone: the end of its socket may not come, as a child of it may have the socket, too. */
static void read_to_end(gvm_keeper *server, gvmi_peer *peer)
{
    if (peer->state == PEER_OPEN && peer->more) {
        process_left_messages(server, peer);
        return;
    }
    if (peer->state == PEER_OPEN && peer->last_reads++ < LAST_READS_MAX &&
        receive_from_peer(server, peer))
        return;
    peer->ending = false;
    if (!peer->process_ended) {
        if (peer->state == PEER_OPEN)
            peer_silent(server, peer);
    } else if (peer->state != PEER_GONE) {
        if (peer->state == PEER_OPEN) {
            peer_leave(peer);
            gvmi_machine_disconnect(server->machine, peer->client);
        }
        peer_free_closed(server, peer);
    }
    gvmi_server_act(server);
}

static void read_socket(gvm_keeper *server, gvmi_peer *peer, uint32_t events)
{
    switch (peer->state) {
    case PEER_OPEN:
        if (peer->more)
            process_left_messages(server, peer);
        else if ((events & ~(uint32_t)EPOLLOUT) != 0)
            (void)receive_from_peer(server, peer);
        break;
    case PEER_REFUSED:
        if (events != 0)
            (void)receive_from_peer(server, peer);
        break;
    case PEER_LEAVING:
        if (peer->hung_up) {
            judge_closed(server, peer);
            gvmi_server_act(server);
        } else if (events != 0 && has_closed(server, peer, events)) {
            peer_closed(server, peer);
            gvmi_server_act(server);
        }
        break;
    case PEER_GONE: break;
    }
}

void gvmi_peer_visit(gvm_keeper *server, gvmi_peer *peer)
{
    const uint32_t events = peer->events;

    if (peer->state == PEER_GONE) {
        if (!gvmi_passing_settle(server, peer))
            return; /* its socket is looked at again and again */
        peer->place.user->unread -= peer->unread_kept;
        unlink_peer(&server->ended, peer);
        gvmi_peer_free(server, peer);
        return;
    }
    peer->events = 0;
    handle_doorbell(server, peer);
    if (peer->dirty || (events & EPOLLOUT) != 0)
        flush_outbox(server, peer);
    if (peer->ending)
        read_to_end(server, peer);
    else
        read_socket(server, peer, events);
    if (peer->dirty)
        flush_outbox(server, peer);
    if (peer->ending || peer->more)
        schedule_peer(server, peer);
}
