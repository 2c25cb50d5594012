/* What clients send, where descriptors may be among it; see server.h.
 *
 * The last close of a TCP socket with SO_LINGER waits until its data is sent, or for the time that its owner has set.
 * A client can send such a socket and close its own. Then it is the keeper that closes the last one: where it receives the
 * message without room for descriptors, or closes the unix socket in which the message is unread. The server thread
 * does neither. Since Linux 6.16 nobody can send descriptors to a socket that is without SO_PASSRIGHTS. Before, a TCP socket is not
 * waited for where a thread exits (PF_EXITING), so a socket in which descriptors are unread is closed by the end of a thread
 * that alone has it. The server thread does not wait for that thread, either:
 *
 *     begun       the thread makes a table of descriptors of its own, with that socket alone
 *     taken       it has it: the server thread closes its socket and says so
 *     closed      the thread frees what they share, and exits
 *
 * A file of a FUSE file system whose daemon does not answer may keep such a thread for as long. Before Linux 6.16 nothing
 * is done about that.
 */
#define _GNU_SOURCE /* unshare() */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keeper/server/server.h"

#ifndef CLOSE_RANGE_UNSHARE /* Linux 5.9 */
#define CLOSE_RANGE_UNSHARE (1u << 1)
#endif

#ifndef SO_PASSRIGHTS /* Linux 6.16 */
#define SO_PASSRIGHTS 83
#endif

#ifndef SO_PASSPIDFD /* Linux 6.5 */
#define SO_PASSPIDFD 76
#endif

#ifndef SCM_PIDFD /* likewise */
#define SCM_PIDFD 4
#endif

#define CREDENTIALS_BYTES CMSG_SPACE(sizeof(struct ucred))

void gvmi_incoming_begin(int socket)
{
    const int yes = 1, no = 0;

    (void)setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
    (void)setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
    /* A receive passes over a byte sent out of band, and ends the descriptors beside it; inline it is one of the
     * others. */
    (void)setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes);
}

/* Copies len bytes of the message's control data of a type. False: it has none. */
static bool find_beside(struct msghdr *message, int type, void *out, size_t len)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == type && c->cmsg_len >= CMSG_LEN(len)) {
            memcpy(out, CMSG_DATA(c), len);
            return true;
        }
    return false;
}

static ssize_t peek(int socket, struct msghdr *message)
{
    ssize_t got;

    do
        got = recvmsg(socket, message, MSG_PEEK | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Fills in the sender of what is to be received next, beside which are no descriptors. False: out of descriptors, or memory. */
static bool open_sender(int socket, const struct ucred *who, gvmi_sender *sender)
{
    union {
        struct cmsghdr align;
        char bytes[CREDENTIALS_BYTES + CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const int yes = 1, no = 0;
    bool received = false;
    int fd = -1;

    if (setsockopt(socket, SOL_SOCKET, SO_PASSPIDFD, &yes, sizeof yes) == 0) {
        received = peek(socket, &message) > 0 && find_beside(&message, SCM_PIDFD, &fd, sizeof fd);
        (void)setsockopt(socket, SOL_SOCKET, SO_PASSPIDFD, &no, sizeof no);
    }
    return gvmi_process_open_sender(who->pid, who->uid, received ? &fd : NULL, sender);
}

ssize_t gvmi_incoming_receive(int socket, void *bytes, size_t len, gvmi_sender *sender)
{
    union {
        struct cmsghdr align;
        char bytes[CREDENTIALS_BYTES];
    } control;
    struct iovec part = {.iov_base = bytes, .iov_len = len};
    /* Without room for descriptors, behind the credentials, the kernel sets MSG_CTRUNC where there are some. */
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const ssize_t got = peek(socket, &message);
    struct ucred found;

    if (got <= 0)
        return got;
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
        errno = EBADMSG;
        return -1;
    }
    /* pid 0: the sender is of another PID namespace, or not known; a pidfd tells. */
    if (sender != NULL && find_beside(&message, SCM_CREDENTIALS, &found, sizeof found) &&
        (found.pid == 0 || found.pid != sender->pid) && !open_sender(socket, &found, sender)) {
        errno = EMFILE;
        return -1;
    }
    return recv(socket, bytes, (size_t)got, MSG_DONTWAIT);
}

struct gvmi_closing {
    sem_t taken, closed;
    int fd;
    bool failed; /* to take it */
};

/* From here on this thread has descriptors of its own, and of those no other than fd, where the system can do that. */
static bool take_alone(int fd)
{
    if (syscall(SYS_close_range, (unsigned)fd + 1, ~0u, CLOSE_RANGE_UNSHARE) != 0)
        return unshare(CLONE_FILES) == 0;
    (void)syscall(SYS_close_range, 0u, (unsigned)fd - 1, 0u);
    return true;
}

static void *end_with_socket(void *arg)
{
    gvmi_closing *c = arg;

    c->failed = !take_alone(c->fd);
    (void)sem_post(&c->taken);
    while (sem_wait(&c->closed) != 0)
        ;
    (void)sem_destroy(&c->taken);
    (void)sem_destroy(&c->closed);
    free(c);
    return NULL;
}

/* NULL: no thread could be had. */
static gvmi_closing *begin_closing(int fd)
{
    gvmi_closing *c = calloc(1, sizeof *c);
    pthread_attr_t attributes;
    pthread_t thread;
    bool started;

    if (c == NULL)
        return NULL;
    c->fd = fd;
    (void)sem_init(&c->taken, 0, 0);
    (void)sem_init(&c->closed, 0, 0);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    started = pthread_create(&thread, &attributes, end_with_socket, c) == 0;
    (void)pthread_attr_destroy(&attributes);
    if (!started) {
        (void)sem_destroy(&c->taken);
        (void)sem_destroy(&c->closed);
        free(c);
        return NULL;
    }
    return c;
}

/* The thread has the socket, or has failed to take it, in which case it is still open. */
static void end_closing(int *socket, gvmi_closing **closing)
{
    gvmi_closing *c = *closing;

    if (!c->failed)
        gvmi_server_close(socket);
    *closing = NULL;
    (void)sem_post(&c->closed);
}

/* Receives what has no descriptors. True: nothing else was there, and nothing can be sent any more. */
static bool discard_unread(int socket)
{
    char waste[4096];
    ssize_t got;

    (void)shutdown(socket, SHUT_RD);
    do
        got = gvmi_incoming_receive(socket, waste, sizeof waste, NULL);
    while (got > 0 || (got < 0 && errno == EINTR));
    return got == 0 || errno == EAGAIN;
}

bool gvmi_incoming_close(int *socket, gvmi_closing **closing)
{
    if (*socket < 0)
        return true;
    if (*closing == NULL && discard_unread(*socket))
        gvmi_server_close(socket);
    else if (*closing == NULL)
        *closing = begin_closing(*socket);
    else if (sem_trywait(&(*closing)->taken) == 0)
        end_closing(socket, closing);
    return *socket < 0;
}

static void close_and_wait(int *socket, gvmi_closing *closing)
{
    if (closing != NULL) {
        while (sem_wait(&closing->taken) != 0)
            ;
        end_closing(socket, &closing);
    }
    gvmi_server_close(socket); /* without a thread this may wait */
}

void gvmi_incoming_close_now(int *socket, gvmi_closing **closing)
{
    if (!gvmi_incoming_close(socket, closing))
        close_and_wait(socket, *closing);
    *closing = NULL;
}

void gvmi_incoming_close_listener(int *socket)
{
    if (*socket >= 0)
        close_and_wait(socket, begin_closing(*socket));
}
