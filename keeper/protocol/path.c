/* Where a keeper listens; see path.h. */
#include "keeper/protocol/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"

static gvm_status fail_long(const char *path)
{
    return gvm_error_set(GVM_E_INVALID, "the path of a socket has at most %zu bytes, not %zu: %s",
                         GVMI_KEEPER_PATH_BYTES - 1, strlen(path), GVMI_TEXT_NAME(path));
}

static gvm_status check_path_owner(const char *path)
{
    struct stat found;

    if (lstat(path, &found) != 0) /* nobody made it yet: connecting or binding will tell */
        return GVM_OK;
    if (found.st_uid != geteuid() && found.st_uid != 0)
        return gvm_error_set(GVM_E_DENIED, "%s belongs to user %u: set XDG_RUNTIME_DIR or GVMEM_KEEPER",
                             path, (unsigned)found.st_uid);
    return GVM_OK;
}

gvm_status gvmi_keeper_default_path(char out[GVMI_KEEPER_PATH_BYTES], bool *anybodys)
{
    const char *setting = gvmi_option_text(GVMI_OPTION_GVMEM_KEEPER);
    const char *folder = secure_getenv("XDG_RUNTIME_DIR");
    char path[GVMI_KEEPER_PATH_BYTES];
    int len;

    *anybodys = false;
    if (setting[0] != '\0') {
        len = snprintf(path, sizeof path, "%s", setting);
        folder = setting;
    } else if (geteuid() == 0) {
        len = snprintf(path, sizeof path, "/run/gvmem/keeper.sock");
    } else if (folder != NULL && folder[0] == '/') {
        len = snprintf(path, sizeof path, "%s/gvmem.sock", folder);
    } else {
        *anybodys = true;
        len = snprintf(path, sizeof path, "/tmp/gvmem-%u.sock", (unsigned)geteuid());
    }
    if (len < 0 || (size_t)len >= sizeof path)
        return fail_long(folder);
    memcpy(out, path, (size_t)len + 1);
    return *anybodys ? check_path_owner(path) : GVM_OK;
}

gvm_status gvmi_keeper_address(const char *path, struct sockaddr_un *out)
{
    const size_t len = strlen(path);

    if (len >= sizeof out->sun_path)
        return fail_long(path);
    if (len == 0)
        return gvm_error_set(GVM_E_INVALID, "the path of a socket is empty");
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    memcpy(out->sun_path, path, len);
    return GVM_OK;
}
