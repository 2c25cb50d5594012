/* What the server thread waits for: descriptors in its epoll. */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"
#include "keeper/server/server.h"

gvm_status gvmi_server_watch(gvm_keeper *server, int fd, uint32_t events, gvmi_source *source)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return GVM_OK;
    return gvmi_fail_system(GVM_E_SYSTEM, errno, "epoll_ctl", "cannot watch fd %d", fd);
}

void gvmi_server_rewatch(gvm_keeper *server, int fd, uint32_t events, gvmi_source *source)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    (void)epoll_ctl(server->epoll, EPOLL_CTL_MOD, fd, &event); /* it is there: no memory is needed */
}

void gvmi_server_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Closes an fd that epoll watches. Closing alone takes it out only if nobody else has it, and a program
 * that runs a keeper may have forked. */
void gvmi_server_close_watched(const gvm_keeper *server, int *fd)
{
    if (*fd >= 0)
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, *fd, NULL);
    gvmi_server_close(fd);
}
