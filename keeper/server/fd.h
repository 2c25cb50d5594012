/* keeper/server/fd.h - a file descriptor that several places have.
 *
 * The fd of a frame waits in the queues of many clients when the frame itself may be dropped
 * already; the last release closes it.
 *
 * Threads: any thread may retain and release.
 */
#ifndef GVMI_KEEPER_SERVER_FD_H
#define GVMI_KEEPER_SERVER_FD_H

#include <stdint.h>

#include <gvmem/status.h>

typedef struct gvmi_fd {
    int fd;
    uint32_t references; /* atomic */
} gvmi_fd;

/* Takes an fd over, with one reference for the caller; on failure it is closed. GVM_E_NOMEM */
gvm_status gvmi_fd_own(int fd, gvmi_fd **out);

/* One more reference, returned for convenience; and one less. NULL is ignored by both. */
gvmi_fd *gvmi_fd_retain(gvmi_fd *shared);
void gvmi_fd_release(gvmi_fd *shared);

#endif
