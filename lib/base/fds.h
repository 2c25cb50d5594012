/* base/fds.h - file descriptors beside bytes over a unix socket: one sendmsg(), one recvmsg().
 *
 * How Linux treats fds on a stream socket, which callers rely on: fds sent with some bytes are attached to
 * the first of them; a receive never goes on past bytes that carried fds; the fds arrive with the first byte
 * even if the rest is read later; a send that took at least one byte took all its fds.
 *
 * Threads: any; the socket's own rules hold.
 * Ownership: fds sent stay the caller's; fds received are the caller's, and close-on-exec.
 */
#ifndef GVMI_BASE_FDS_H
#define GVMI_BASE_FDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/private.h"

#define GVMI_FDS_MAX 253u /* beside one piece of data: the kernel's SCM_MAX_FD */

/* fds as they come in, appended by each receive. */
typedef struct gvmi_fds {
    int *fds;
    uint32_t capacity, count;
    uint32_t excess; /* came beyond the capacity, and were closed */
    bool lost;       /* the process had no room for some */
} gvmi_fds;

/* As sendmsg() with these flags and no SIGPIPE, with at most GVMI_FDS_MAX fds beside the bytes. */
GVMI_API ssize_t gvmi_fds_send(int socket_fd, const void *bytes, size_t len, const int *fds,
                               uint32_t count, int flags);

/* As recvmsg() with these flags. What else comes along is discarded. */
ssize_t gvmi_fds_receive(int socket_fd, void *bytes, size_t len, gvmi_fds *in, int flags);

/* Closes them. */
void gvmi_fds_close(gvmi_fds *in);

#define GVMI_FDS_LACK_MAX 4u

/* Can this process not open so many fds more, at most GVMI_FDS_LACK_MAX? A driver call that makes or takes fds
 * fails then, and does not say why. */
GVMI_API bool gvmi_fds_lack(uint32_t wanted);

#endif
