/* Where the keeper listens.
 *
 * Beside the socket PATH lies a lock file, PATH.lock, which the keeper keeps locked for life. Who
 * gets the lock and finds a socket there has found an abandoned one, unless a keeper answers at it
 * (the lock file may have been deleted): then it is a living keeper's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "keeper/server/server.h"

#define BACKLOG 128
#define LOCK_TRIES \
    16 /* a keeper that ends removes its lock file: then there is a new one to lock */

static gvm_status set_path(const char *path, gvmi_listener *out)
{
    const size_t len = strlen(path);

    if (len >= sizeof out->address.sun_path)
        return gvm_error_set(GVM_E_INVALID, "the path of a socket has at most %zu bytes, not %zu",
                             sizeof out->address.sun_path - 1, len);
    out->address.sun_family = AF_UNIX;
    memcpy(out->address.sun_path, path, len + 1);
    snprintf(out->lock_path, sizeof out->lock_path, "%s.lock", path);
    return GVM_OK;
}

static gvm_status make_folder(const char *path)
{
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char *slash;

    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder)
        return GVM_OK;
    *slash = '\0';
    if (mkdir(folder, 0755) == 0 || errno == EEXIST)
        return GVM_OK;
    return gvmi_fail_system(GVM_E_SYSTEM, errno, "mkdir", "cannot make the folder %s", folder);
}

/* ---- the lock */

static bool same_file(int fd, const char *path)
{
    struct stat here, there;

    return fstat(fd, &here) == 0 && lstat(path, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

static gvm_status fail_exists(const char *path)
{
    return gvm_error_set(GVM_E_EXISTS, "a keeper listens at %s already", path);
}

static gvm_status take_lock(gvmi_listener *listener)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        const int fd = open(listener->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0)
            return gvmi_fail_system(GVM_E_SYSTEM, errno, "open",
                                    "cannot open the lock file %s: its folder must exist and be writable",
                                    listener->lock_path);
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            const int code = errno;

            close(fd);
            return code == EWOULDBLOCK ? fail_exists(listener->address.sun_path)
                                       : gvmi_fail_system(GVM_E_SYSTEM, code, "flock",
                                                          "cannot lock %s", listener->lock_path);
        }
        if (same_file(fd, listener->lock_path)) {
            listener->lock = fd;
            return GVM_OK;
        }
        close(fd);
    }
    return gvm_error_set(GVM_E_SYSTEM, "the lock file %s is removed again and again by another process",
                         listener->lock_path);
}

static void give_lock(gvmi_listener *listener)
{
    if (listener->lock < 0)
        return;
    unlink(listener->lock_path); /* before it is unlocked, so that it is the one that is locked */
    close(listener->lock);
    listener->lock = -1;
}

/* ---- the socket */

/* While the file is locked: takes an abandoned socket out of the way. */
static gvm_status clear_path(const gvmi_listener *listener)
{
    const char *path = listener->address.sun_path;
    const struct sockaddr *address = (const struct sockaddr *)&listener->address;
    struct stat found;
    int fd, code;

    if (lstat(path, &found) != 0)
        return errno == ENOENT
                   ? GVM_OK
                   : gvmi_fail_system(GVM_E_SYSTEM, errno, "lstat", "cannot look at %s", path);
    if (!S_ISSOCK(found.st_mode))
        return gvmi_fail_system(GVM_E_SYSTEM, EEXIST, "bind", "%s is there and no socket", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "socket", "cannot make a socket");
    code = connect(fd, address, sizeof listener->address) == 0 ? 0 : errno;
    close(fd);
    if (code == 0 || code == EAGAIN)
        return fail_exists(path);
    if (code != ECONNREFUSED && code != ENOENT)
        return gvmi_fail_system(GVM_E_SYSTEM, code, "connect", "cannot tell who listens at %s", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "unlink",
                                "cannot remove the abandoned socket %s", path);
    return GVM_OK;
}

/* Gives back what the umask took, and notes which file is the listener's. In a folder of another user that one may have put
 * something else there meanwhile, whose rights are not changed. */
static gvm_status set_rights(gvmi_listener *listener, mode_t mode)
{
    const char *path = listener->address.sun_path;
    const int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    char by_fd[32];
    struct stat made;
    int code = 0;

    if (fd < 0 || fstat(fd, &made) != 0 || !S_ISSOCK(made.st_mode)) {
        code = fd < 0 ? errno : ENOENT;
    } else {
        listener->device = made.st_dev;
        listener->inode = made.st_ino;
        snprintf(by_fd, sizeof by_fd, "/proc/self/fd/%d", fd);
        if ((made.st_mode & 07777) != mode && chmod(by_fd, mode) != 0)
            code = errno;
    }
    if (fd >= 0)
        close(fd);
    return code == 0
               ? GVM_OK
               : gvmi_fail_system(GVM_E_SYSTEM, code, "chmod", "cannot set the rights of %s", path);
}

/* The socket file never has more rights than mode: what fchmod() says before bind() is cut by the umask. */
static gvm_status bind_and_listen(gvmi_listener *listener, mode_t mode)
{
    const char *path = listener->address.sun_path;
    const struct sockaddr *address = (const struct sockaddr *)&listener->address;
    gvm_status status;

    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "socket", "cannot make a socket");
    if (fchmod(listener->fd, mode) != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "fchmod", "cannot set the socket's rights");
    if (bind(listener->fd, address, sizeof listener->address) != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "bind", "cannot make a socket at %s", path);
    status = set_rights(listener, mode);
    if (status != GVM_OK)
        return status;
    gvmi_incoming_begin(listener->fd);
    if (listen(listener->fd, BACKLOG) != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "listen", "cannot listen at %s", path);
    return GVM_OK;
}

gvm_status gvmi_listener_open(const char *path, mode_t mode, bool folder, gvmi_listener *out)
{
    gvm_status status;

    *out = (gvmi_listener){.fd = -1, .lock = -1};
    status = set_path(path, out);
    if (status == GVM_OK && folder)
        status = make_folder(path);
    if (status == GVM_OK)
        status = take_lock(out);
    if (status == GVM_OK)
        status = clear_path(out);
    if (status == GVM_OK)
        status = bind_and_listen(out, mode);
    if (status != GVM_OK) {
        gvm_error error = gvmi_error_save();

        gvmi_listener_close(out);
        gvm_error_restore(&error);
    }
    return status;
}

gvm_status gvmi_listener_adopt(int fd, gvmi_listener *out)
{
    int listens = 0, domain = 0, type = 0;
    socklen_t listens_bytes = sizeof listens, domain_bytes = sizeof domain, type_bytes = sizeof type;
    socklen_t bytes = sizeof out->address;

    *out = (gvmi_listener){.fd = -1, .lock = -1};
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) != 0)
        return gvmi_fail_system(GVM_E_INVALID, errno, "getsockopt", "fd %d is no socket", fd);
    if (!listens || domain != AF_UNIX || type != SOCK_STREAM)
        return gvm_error_set(GVM_E_INVALID, "fd %d is no listening unix stream socket", fd);
    if (getsockname(fd, (struct sockaddr *)&out->address, &bytes) != 0 ||
        bytes <= offsetof(struct sockaddr_un, sun_path))
        out->address.sun_path[0] = '\0';
    out->address.sun_path[sizeof out->address.sun_path - 1] = '\0';
    out->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (out->fd < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "fcntl", "cannot take the listening socket");
    gvmi_incoming_begin(out->fd);
    (void)fcntl(out->fd, F_SETFL, O_NONBLOCK); /* a client may close before being accepted */
    return GVM_OK;
}

void gvmi_listener_close(gvmi_listener *listener)
{
    struct stat found;

    gvmi_incoming_close_listener(&listener->fd);
    if (listener->inode != 0 && lstat(listener->address.sun_path, &found) == 0 &&
        found.st_dev == listener->device && found.st_ino == listener->inode)
        unlink(listener->address.sun_path);
    listener->inode = 0;
    give_lock(listener);
}
