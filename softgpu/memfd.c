#include "softgpu/memfd.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "gvmem-softgpu:"
#define ID_DIGITS 16

/* ---- names */

void soft_memfd_start(uint64_t id, char start[SOFT_MEMFD_START_BYTES])
{
    const soft_config *config;
    soft_config_get(&config, NULL);
    snprintf(start, SOFT_MEMFD_START_BYTES, PREFIX "%s:%016" PRIx64, config->instance, id);
}

bool soft_memfd_parse(const char *name, uint64_t *id, const char **rest)
{
    const size_t prefix_len = sizeof PREFIX - 1;
    char digits[ID_DIGITS + 1];
    const char *instance_end;
    if (strncmp(name, PREFIX, prefix_len) != 0)
        return false;
    instance_end = strchr(name + prefix_len, ':');
    if (!instance_end || strspn(instance_end + 1, "0123456789abcdef") != ID_DIGITS)
        return false;
    memcpy(digits, instance_end + 1, ID_DIGITS);
    digits[ID_DIGITS] = '\0';
    *id = strtoull(digits, NULL, 16);
    *rest = instance_end + 1 + ID_DIGITS;
    return *id != 0;
}

const char *soft_memfd_name_of_link(char link[SOFT_MEMFD_LINK_BYTES], ssize_t len)
{
    static const char before[] = "/memfd:", after[] = " (deleted)";
    const size_t before_len = sizeof before - 1, after_len = sizeof after - 1;
    size_t end;
    if (len < (ssize_t)(before_len + after_len) || len >= SOFT_MEMFD_LINK_BYTES)
        return NULL;
    end = (size_t)len - after_len;
    if (memcmp(link, before, before_len) != 0 || memcmp(link + end, after, after_len) != 0)
        return NULL;
    link[end] = '\0';
    return link + before_len;
}

/* ---- /proc */

static int compare_orphans(const void *a, const void *b)
{
    const soft_orphan *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void scan_process_fds(const char *pid, soft_orphan *orphans, size_t count)
{
    char path[sizeof "/proc//fd" + NAME_MAX], link[SOFT_MEMFD_LINK_BYTES];
    struct dirent *entry;
    DIR *fds;
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    fds = opendir(path);
    if (!fds)
        return;
    while ((entry = readdir(fds))) {
        soft_orphan key = {0}, *found = NULL;
        const char *rest;
        const char *name = soft_memfd_name_of_link(
            link, readlinkat(dirfd(fds), entry->d_name, link, sizeof link));
        if (name && soft_memfd_parse(name, &key.id, &rest))
            found = bsearch(&key, orphans, count, sizeof *orphans, compare_orphans);
        if (found)
            found->seen = true;
    }
    closedir(fds);
}

void soft_memfd_look(soft_orphan *orphans, size_t count, pid_t ignored_pid)
{
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    qsort(orphans, count, sizeof *orphans, compare_orphans);
    for (size_t i = 0; !proc && i < count; i++)
        orphans[i].seen = true;
    if (!proc)
        return;
    while ((entry = readdir(proc))) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid > 0 && pid != ignored_pid)
            scan_process_fds(entry->d_name, orphans, count);
    }
    closedir(proc);
}
