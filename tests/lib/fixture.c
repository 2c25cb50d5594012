#include "tests/lib/fixture.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* TEST_MACHINE has settings for the machines of all tests, behind which come a test's own. */
static void choose_machine(const char *settings, va_list args, int anyway)
{
    const char *more = getenv("TEST_MACHINE");
    char machine[200];
    int len = snprintf(machine, sizeof machine, "instance=test-%d,%s%s", (int)getpid(),
                       more && *more ? more : "", more && *more ? "," : "");

    if (len >= (int)sizeof machine || vsnprintf(machine + len, sizeof machine - (size_t)len,
                                                settings, args) >= (int)sizeof machine - len)
        abort();
    setenv("GVMEM_SOFTGPU", machine, anyway);
}

void fixture_machine(const char *settings, ...)
{
    va_list args;

    va_start(args, settings);
    choose_machine(settings, args, 1);
    va_end(args);
    setenv("GVMEM_DRIVER", "soft", 1);
}

void fixture_machine_default(const char *settings, ...)
{
    va_list args;

    va_start(args, settings);
    choose_machine(settings, args, 0);
    va_end(args);
}

void fixture_machine_drawn(uint64_t seed)
{
    static const int warps[] = {32, 16, 8, 4, 2, 1};
    static const int threads[] = {256, 256, 256, 128, 64, 32}; /* of a block: 32 warps at most */

    fixture_machine_default("memory=512MiB,sms=2,warp=%d,threads=%d,switches=%llu", warps[seed % 6],
                            threads[seed % 6], (unsigned long long)(seed / 6 % 2));
}

const char *own_path(void)
{
    static char path[4096];

    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        abort();
    return path;
}

void fixture_raise_fd_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
    (void)setrlimit(RLIMIT_NOFILE, &files); /* refused: the library says which limit was met */
}

bool fixture_folder_make(fixture_folder *f)
{
    snprintf(f->path, sizeof f->path, "/tmp/gvmem-test-XXXXXX");
    if (mkdtemp(f->path) == NULL)
        return false;
    snprintf(f->socket, sizeof f->socket, "%s/socket", f->path);
    return true;
}

void fixture_folder_end(fixture_folder *f)
{
    char lock[sizeof f->socket + 8];

    snprintf(lock, sizeof lock, "%s.lock", f->socket); /* of a keeper that was killed, as the socket is */
    unlink(f->socket);
    unlink(lock);
    rmdir(f->path);
}

int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;

    if (folder == NULL)
        return -1;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count - 2; /* "." and ".." */
}

int count_fds(void)
{
    return count_entries("/proc/self/fd") - 1; /* the folder's own */
}

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t now_ms(void)
{
    return now_ns() / 1000000;
}

void pause_us(uint64_t us)
{
    struct timespec pause = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

    while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
        ;
}

void pause_ms(uint64_t ms)
{
    pause_us(ms * 1000);
}
