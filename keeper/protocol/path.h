/* keeper/protocol/path.h - where a keeper listens, by one rule for clients and servers. */
#ifndef GVMI_KEEPER_PROTOCOL_PATH_H
#define GVMI_KEEPER_PROTOCOL_PATH_H

#include <stdbool.h>
#include <sys/un.h>

#include <gvmem/status.h>

#include "base/private.h"

#define GVMI_KEEPER_PATH_BYTES sizeof(((struct sockaddr_un *)0)->sun_path) /* with the NUL */

/* The path that a NULL stands for: the setting GVMEM_KEEPER; if that is empty
 * /run/gvmem/keeper.sock for root, $XDG_RUNTIME_DIR/gvmem.sock for others, and where that variable
 * is missing /tmp/gvmem-UID.sock. In /tmp anybody may make a file of any name: *anybodys says so,
 * and who connects there must look whose process answers; a file of another user's is refused here.
 *
 * GVM_E_INVALID  the path is too long for a socket
 * GVM_E_DENIED   there is a file in /tmp, of another user */
GVMI_API gvm_status gvmi_keeper_default_path(char out[GVMI_KEEPER_PATH_BYTES], bool *anybodys);

/* A path as the address of a socket. GVM_E_INVALID */
gvm_status gvmi_keeper_address(const char *path, struct sockaddr_un *out);

#endif
