/* sharing/socket.h - bytes and file descriptors over somebody else's unix stream socket.
 *
 * Each call moves exactly the bytes asked for and never reads beyond them: what the caller of the
 * library sends before and after stays intact. The socket's own mode does not matter: every system
 * call is non-blocking, and waiting is done by poll up to one deadline. A broken connection is an
 * error, never a signal.
 *
 * Threads: one thread at a time per socket and direction.
 * Ownership: fds sent stay the caller's; fds received are close-on-exec and, on failure, closed.
 */
#ifndef GVMI_SHARING_SOCKET_H
#define GVMI_SHARING_SOCKET_H

#include <stddef.h>
#include <stdint.h>

#include <gvmem/status.h>

#include "base/fds.h"

typedef struct gvmi_socket {
    int fd;
    int timeout_ms;          /* as it was asked for, for error texts */
    int64_t deadline_ns;     /* on CLOCK_MONOTONIC; INT64_MAX: none */
    uint32_t fds_of_message; /* how many fds the whole message brings, for error texts */
} gvmi_socket;

/* Checks the caller's socket and its timeout_ms, and starts the clock.
 *
 * GVM_E_INVALID */
gvm_status gvmi_socket_begin(int socket_fd, int timeout_ms, gvmi_socket *out);

/* Sends bytes, len > 0, with at most GVMI_FDS_MAX fds beside the first of them.
 *
 * GVM_E_INVALID (not connected), GVM_E_PEER, GVM_E_TIMEOUT, GVM_E_SYSTEM, GVM_E_NOMEM */
gvm_status gvmi_socket_send(const gvmi_socket *socket, const void *bytes, size_t len,
                            const int *fds, uint32_t fd_count);

/* Receives exactly len bytes and, beside them, exactly fd_count fds.
 *
 * GVM_E_INVALID (not connected), GVM_E_PEER, GVM_E_TIMEOUT, GVM_E_SYSTEM, GVM_E_NOMEM, GVM_E_FORMAT
 * (too few or too many fds),
 * GVM_E_LIMIT (no room for the fds) */
gvm_status gvmi_socket_receive(const gvmi_socket *socket, void *bytes, size_t len, int *fds,
                               uint32_t fd_count);

#endif
