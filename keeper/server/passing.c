/* Descriptors on their way to clients: sent, and not received yet.
 *
 * The system counts them for the keeper's user, over all its sockets. Beyond RLIMIT_NOFILE it lets no more be
 * sent to anybody (ETOOMANYREFS), unless the keeper has CAP_SYS_RESOURCE or CAP_SYS_ADMIN. So where it
 * has neither they are shared out among users, by the rule of keeper/machine/users.c: who does not
 * receive what it is sent keeps its own user waiting, and nobody else.
 *
 * Whether a client has received what it was sent shows only when nothing is left to read in its socket:
 * until then all of it counts. A socket with something left to read is kept open after its process has
 * ended or sent BYE; a user may have UNREAD_MAX of those.
 */
#include <linux/capability.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "keeper/server/server.h"

#define UNREAD_MAX 64u
#define OTHER_PART 8u   /* of the limit, this part is for other programs of the keeper's user */
#define RESERVE_PART 8u /* and this for its own user and root */
#define FIRST_NAMESPACE_INODE 0xEFFFFFFDu /* of the user namespace that the system starts with */

/* ---- the limit */

static bool is_in_first_namespace(void)
{
    struct stat found;

    return stat("/proc/self/ns/user", &found) == 0 && found.st_ino == FIRST_NAMESPACE_INODE;
}

static bool is_exempt(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

    return syscall(SYS_capget, &head, data) == 0 &&
           (data[0].effective & (1u << CAP_SYS_RESOURCE | 1u << CAP_SYS_ADMIN)) != 0 &&
           is_in_first_namespace();
}

void gvmi_passing_start(gvm_keeper *server)
{
    struct rlimit limit;

    if (is_exempt() || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= UINT32_MAX)
        return;
    server->passing_max = (uint32_t)(limit.rlim_cur - limit.rlim_cur / OTHER_PART);
}

/* ---- what a connection may be sent */

static bool is_admin(const gvm_keeper *server, const gvmi_connection *connection)
{
    return connection->uid == 0 || connection->uid == server->config.uid;
}

uint32_t gvmi_passing_left(gvm_keeper *server, gvmi_connection *connection)
{
    if (server->passing_max == 0)
        return UINT32_MAX;
    (void)gvmi_passing_settle(server, connection);
    return (uint32_t)gvmi_allowance_left(server->passing_max, server->passing_max / RESERVE_PART,
                                         server->passing, connection->place.user->passing,
                                         is_admin(server, connection));
}

void gvmi_passing_add(gvm_keeper *server, gvmi_connection *connection, uint32_t count)
{
    if (server->passing_max == 0)
        return;
    connection->passing += count;
    connection->place.user->passing += count;
    server->passing += count;
}

/* Whether the other end has received everything, or is closed. */
static bool is_received(const gvmi_connection *connection)
{
    int bytes = 0;

    return connection->socket < 0 || ioctl(connection->socket, SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

bool gvmi_passing_settle(gvm_keeper *server, gvmi_connection *connection)
{
    if (connection->passing > 0 && is_received(connection)) {
        connection->place.user->passing -= connection->passing;
        server->passing -= connection->passing;
        connection->passing = 0;
    }
    return connection->passing == 0;
}

gvm_status gvmi_passing_admits(const gvmi_connection *connection)
{
    return connection->place.user->unread < UNREAD_MAX
               ? GVM_OK
               : gvm_error_set(GVM_E_LIMIT,
                               "user %u has %u connections that it ended without receiving the descriptors sent over "
                               "them: close the sockets",
                               (unsigned)connection->uid, (unsigned)connection->place.user->unread);
}
