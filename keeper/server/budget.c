/* How much memory the machine lets a keeper have; see budget.h. */
#include "keeper/server/budget.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"

#define GROUP_DEPTH_MAX 64 /* control groups above one another that are looked at */

/* ---- what is there */

static void read_machine(const char *root, uint64_t *total_bytes, uint64_t *available_bytes)
{
    char path[PATH_MAX], line[128];
    uint64_t kib;
    FILE *file;

    *total_bytes = *available_bytes = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) == 1)
            *total_bytes = kib * GVMI_KIB;
        else if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
            *available_bytes = kib * GVMI_KIB;
    }
    if (file != NULL)
        fclose(file);
}

/* The limit in a control group's file; UINT64_MAX: none ("max"; a version 1 file has a number beyond any
 * memory instead). */
static uint64_t read_limit(const char *root, const char *mount, const char *group, const char *name)
{
    char path[PATH_MAX];
    uint64_t limit_bytes;
    FILE *file;

    if ((size_t)snprintf(path, sizeof path, "%s%s%s/%s", root, mount, group, name) >= sizeof path)
        return UINT64_MAX;
    file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%" SCNu64, &limit_bytes) != 1)
        limit_bytes = UINT64_MAX;
    if (file != NULL)
        fclose(file);
    return limit_bytes;
}

/* Of a group and of all above it, up to the mount point. group is used up. In a container the path may name
 * what is not mounted there; the mount point is then the container's own group. */
static uint64_t lowest_limit(const char *root, const char *mount, char *group, const char *name)
{
    uint64_t lowest = UINT64_MAX;

    for (int depth = 0; depth < GROUP_DEPTH_MAX; depth++) {
        const uint64_t limit_bytes = read_limit(root, mount, group, name);
        char *slash = strrchr(group, '/');

        if (limit_bytes < lowest)
            lowest = limit_bytes;
        if (slash == NULL)
            break;
        *slash = '\0';
    }
    return lowest;
}

/* A line of /proc/self/cgroup is NUMBER:CONTROLLER[,CONTROLLER...]:PATH; version 2 has no controllers. */
static uint64_t limit_of_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':'), *group;
    char *rest, *word;

    if (controllers == NULL || (group = strchr(++controllers, ':')) == NULL)
        return UINT64_MAX;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (controllers[0] == '\0')
        return lowest_limit(root, "/sys/fs/cgroup", group, "memory.max");
    for (word = strtok_r(controllers, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        if (strcmp(word, "memory") == 0)
            return lowest_limit(root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
    return UINT64_MAX;
}

static uint64_t read_cgroup_limits(const char *root)
{
    uint64_t lowest = UINT64_MAX;
    char path[PATH_MAX], line[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const uint64_t limit_bytes = limit_of_line(root, line);

        if (limit_bytes < lowest)
            lowest = limit_bytes;
    }
    if (file != NULL)
        fclose(file);
    return lowest;
}

void gvmi_host_memory_read(const char *root, gvmi_host_memory *out)
{
    const uint64_t group_bytes = read_cgroup_limits(root);
    uint64_t total_bytes, available_bytes;

    read_machine(root, &total_bytes, &available_bytes);
    out->limit_bytes = total_bytes;
    if (group_bytes != UINT64_MAX && (total_bytes == 0 || group_bytes < total_bytes))
        out->limit_bytes = group_bytes;
    out->available_bytes = available_bytes;
    if (out->limit_bytes > 0 && available_bytes > out->limit_bytes)
        out->available_bytes = out->limit_bytes;
}

/* ---- what is taken of it */

gvm_status gvmi_host_budget(const gvmi_host_memory *memory, uint64_t wanted_bytes,
                            uint64_t ahead_bytes, uint64_t *budget_bytes)
{
    const uint64_t bytes = wanted_bytes != 0 ? wanted_bytes : memory->available_bytes / 2;
    char wanted[32], there[32];

    if (memory->limit_bytes > 0 && bytes > memory->limit_bytes)
        return gvm_error_set(
            GVM_E_NOSPACE,
            "the host budget of %s is more than the %s of memory that the machine, or the "
            "control group of the keeper, has: give a smaller one",
            gvmi_size_text(bytes, wanted), gvmi_size_text(memory->limit_bytes, there));
    if (ahead_bytes > bytes)
        return gvm_error_set(
            GVM_E_INVALID,
            "%s of host memory cannot be made ahead of need within a host budget of %s: make less "
            "ahead, or raise the budget",
            gvmi_size_text(ahead_bytes, wanted), gvmi_size_text(bytes, there));
    *budget_bytes = bytes;
    return GVM_OK;
}
