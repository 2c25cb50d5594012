/* Who a client is, where not every user has a number; see identity.h. */
#include "keeper/server/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"

#define OVERFLOW_DEFAULT 65534u
#define IDS 4294967295ull /* of users; likewise of groups: the last number is none */
#define MAP_LINES_MAX 340 /* Linux's own limit */
#define MAP_BYTES 16384   /* of so many lines of three numbers, with room to spare */

/* Ranges of a map never overlap (the kernel refuses that), so their sizes tell how much is mapped. */
bool gvmi_identity_is_whole(const char *map)
{
    uint64_t mapped = 0, inside, outside, count;
    int len;

    for (int line = 0; line < MAP_LINES_MAX; line++) {
        if (sscanf(map, " %" SCNu64 " %" SCNu64 " %" SCNu64 "%n", &inside, &outside, &count, &len) != 3)
            break;
        if (count > IDS)
            return false;
        mapped += count;
        map += len;
    }
    return mapped >= IDS;
}

/* A whole small file, as a string; false: it cannot be read, or is longer. */
static bool read_small_file(const char *path, char *out, size_t out_bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t got = -1;

    if (fd < 0)
        return false;
    while (len < out_bytes - 1 && (got = read(fd, out + len, out_bytes - 1 - len)) != 0) {
        if (got > 0)
            len += (size_t)got;
        else if (errno != EINTR)
            break;
    }
    close(fd);
    out[len] = '\0';
    return got == 0;
}

/* A kernel without user namespaces has no such file, though it has /proc: there all are mapped. */
static bool is_all_mapped(const char *path)
{
    static const char self[] = "/proc/self/stat";
    char map[MAP_BYTES];

    if (read_small_file(path, map, sizeof map))
        return gvmi_identity_is_whole(map);
    return access(path, F_OK) != 0 && errno == ENOENT && access(self, F_OK) == 0;
}

static uint32_t read_overflow(const char *path)
{
    char text[32];
    char *end;
    unsigned long value;

    if (!read_small_file(path, text, sizeof text))
        return OVERFLOW_DEFAULT;
    value = strtoul(text, &end, 10);
    return end != text && value < UINT32_MAX ? (uint32_t)value : OVERFLOW_DEFAULT;
}

void gvmi_identity_read(gvmi_identity *out)
{
    *out = (gvmi_identity){
        .overflow_uid = read_overflow("/proc/sys/kernel/overflowuid"),
        .overflow_gid = read_overflow("/proc/sys/kernel/overflowgid"),
        .all_uids = is_all_mapped("/proc/self/uid_map"),
        .all_gids = is_all_mapped("/proc/self/gid_map"),
    };
}

static void forget_groups(uint32_t overflow_gid, gvmi_credentials *who)
{
    uint32_t count = 0;

    if (who->gid == overflow_gid)
        who->gid = GVMI_GROUP_NONE;
    for (uint32_t i = 0; i < who->group_count; i++)
        if (who->groups[i] != overflow_gid)
            who->groups[count++] = who->groups[i];
    who->group_count = count;
}

gvm_status gvmi_identity_judge(const gvmi_identity *identity, int32_t self, gvmi_credentials *who)
{
    if (!identity->all_uids && who->uid == identity->overflow_uid && who->pid != self)
        return gvm_error_set(GVM_E_DENIED,
                             "the user has no number in the keeper's user namespace (all such users are %u "
                             "there): map the user there, or run the keeper outside of it",
                             (unsigned)who->uid);
    if (!identity->all_gids)
        forget_groups(identity->overflow_gid, who);
    return GVM_OK;
}
