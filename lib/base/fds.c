#include "base/fds.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"

#ifndef SCM_PIDFD /* Linux 6.5: a pidfd of the sender, if the socket's owner set SO_PASSPIDFD */
#define SCM_PIDFD 0x04
#endif

#define CONTROL_REST_BYTES 1024 /* for what else the socket's owner may want: credentials, labels */

typedef union control_room {
    struct cmsghdr aligned;
    char bytes[CMSG_SPACE(sizeof(int) * GVMI_FDS_MAX) + CONTROL_REST_BYTES];
} control_room;

static void attach_fds(struct msghdr *message, control_room *room, const int *fds, uint32_t count)
{
    struct cmsghdr *header;

    memset(room, 0, sizeof *room);
    message->msg_control = room->bytes;
    message->msg_controllen = CMSG_SPACE(sizeof(int) * count);
    header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
}

ssize_t gvmi_fds_send(int socket_fd, const void *bytes, size_t len, const int *fds, uint32_t count,
                      int flags)
{
    control_room room;
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    GVM_ASSERT(count <= GVMI_FDS_MAX);
    if (count > 0)
        attach_fds(&message, &room, fds, count);
    return sendmsg(socket_fd, &message, flags | MSG_NOSIGNAL);
}

static void keep_fd(gvmi_fds *in, int fd)
{
    if (in->count < in->capacity) {
        in->fds[in->count++] = fd;
    } else {
        close(fd);
        in->excess++;
    }
}

/* None may be overlooked: each is open in this process now. */
static void collect_fds(struct msghdr *message, gvmi_fds *in)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (header->cmsg_level != SOL_SOCKET)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (header->cmsg_type == SCM_RIGHTS)
                keep_fd(in, fd);
            else if (header->cmsg_type == SCM_PIDFD && fd >= 0)
                close(fd);
        }
    }
}

ssize_t gvmi_fds_receive(int socket_fd, void *bytes, size_t len, gvmi_fds *in, int flags)
{
    control_room room;
    struct iovec part = {.iov_base = bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    const ssize_t received = recvmsg(socket_fd, &message, flags | MSG_CMSG_CLOEXEC);

    if (received < 0)
        return received;
    collect_fds(&message, in);
    in->lost = in->lost || (message.msg_flags & MSG_CTRUNC) != 0;
    return received;
}

void gvmi_fds_close(gvmi_fds *in)
{
    for (uint32_t i = 0; i < in->count; i++)
        close(in->fds[i]);
    in->count = 0;
}

bool gvmi_fds_lack(uint32_t wanted)
{
    int fds[GVMI_FDS_LACK_MAX];
    bool lack = false;
    uint32_t count = 0;

    while (count < wanted && count < GVMI_FDS_LACK_MAX && !lack) {
        fds[count] = eventfd(0, EFD_CLOEXEC);
        if (fds[count] >= 0)
            count++;
        else if (errno == EMFILE || errno == ENFILE)
            lack = true;
        else
            break;
    }
    while (count > 0)
        close(fds[--count]);
    return lack;
}
