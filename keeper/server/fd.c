/* File descriptors that several places have; see fd.h. */
#include "keeper/server/fd.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"

gvm_status gvmi_fd_own(int fd, gvmi_fd **out)
{
    gvmi_fd *shared = malloc(sizeof *shared);

    if (shared == NULL) {
        close(fd);
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a file descriptor");
    }
    *shared = (gvmi_fd){.fd = fd, .references = 1};
    *out = shared;
    return GVM_OK;
}

gvmi_fd *gvmi_fd_retain(gvmi_fd *shared)
{
    if (shared != NULL)
        __atomic_fetch_add(&shared->references, 1, __ATOMIC_RELAXED);
    return shared;
}

void gvmi_fd_release(gvmi_fd *shared)
{
    if (shared == NULL || __atomic_sub_fetch(&shared->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    close(shared->fd);
    free(shared);
}
