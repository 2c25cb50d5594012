/* What clients send, where descriptors may be among it; see server.h.
 *
 * The close that ends a descriptor can take as long as its sender wants: that of a TCP socket waits SO_LINGER, for
 * a receiver that does not read. It is the receiver of the message who waits, or who closes the unix socket in
 * which the message lies. So the server thread does neither. A thread that exits does not wait (PF_EXITING), and
 * so a socket with unread messages is closed by the end of a thread that alone has it.
 */
#define _GNU_SOURCE /* unshare() */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keeper/server/server.h"

#ifndef CLOSE_RANGE_UNSHARE /* Linux 5.9 */
#define CLOSE_RANGE_UNSHARE (1u << 1)
#endif

void gvmi_incoming_begin(int socket)
{
    const int yes = 1;

    /* A receive passes over a byte sent out of band, and ends the descriptors beside it; inline it is one of the
     * others. */
    (void)setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes);
}

ssize_t gvmi_incoming_receive(int socket, void *bytes, size_t len)
{
    struct iovec room = {.iov_base = bytes, .iov_len = len};
    /* Without room for descriptors the kernel sets MSG_CTRUNC where there are some. */
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1};
    ssize_t got;

    do
        got = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return got;
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
        errno = EBADMSG;
        return -1;
    }
    return recv(socket, bytes, (size_t)got, MSG_DONTWAIT);
}

typedef struct closing {
    pthread_barrier_t turn;
    int fd;
    bool taken;
} closing;

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
    closing *c = arg;

    c->taken = take_alone(c->fd);
    pthread_barrier_wait(&c->turn);
    pthread_barrier_wait(&c->turn); /* the server thread has closed its own */
    return NULL;
}

/* False: no thread could be had. */
static bool close_by_thread(int *socket)
{
    closing c = {.fd = *socket};
    pthread_t thread;

    if (pthread_barrier_init(&c.turn, NULL, 2) != 0)
        return false;
    if (pthread_create(&thread, NULL, end_with_socket, &c) != 0) {
        pthread_barrier_destroy(&c.turn);
        return false;
    }
    pthread_barrier_wait(&c.turn);
    if (c.taken)
        gvmi_server_close(socket);
    pthread_barrier_wait(&c.turn);
    pthread_join(thread, NULL); /* which returns before the thread's descriptors are closed */
    pthread_barrier_destroy(&c.turn);
    return c.taken;
}

bool gvmi_incoming_close(int *socket)
{
    int unread = 0;

    if (*socket < 0)
        return true;
    (void)shutdown(*socket, SHUT_RD); /* nothing more can be sent over it */
    if (ioctl(*socket, FIONREAD, &unread) == 0 && unread > 0)
        return close_by_thread(socket);
    gvmi_server_close(socket);
    return true;
}

void gvmi_incoming_close_listener(int *socket)
{
    if (*socket >= 0 && !close_by_thread(socket))
        gvmi_server_close(socket);
}
