/* Preloaded into a server by plcuda.py: ends a GPU worker with SIGKILL at the step that the file named by PLCUDA_KILL_AT says,
 * "KIND STEP" or "KIND STEP after", KIND being session or compile. Other processes are left alone; but where it says "fallocate",
 * no memory can be allocated for memory files of backends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gvmem/gvmem.h>
#include <gvmem/table.h>

#include "postgres/spawner.h"

static const char *kind(void)
{
    static char words[4096];
    FILE *file = fopen("/proc/self/cmdline", "re");
    const size_t bytes = file != NULL ? fread(words, 1, sizeof words - 1, file) : 0;
    const size_t first = strnlen(words, bytes);

    if (file != NULL)
        fclose(file);
    if (strstr(words, "/gstore-gpu-worker") == NULL || first + 1 >= bytes)
        return "";
    return words + first + 1;
}

/* What the file says; "" where there is none. */
static void read_wanted(char wanted[64])
{
    const int error = errno;
    const char *path = getenv("PLCUDA_KILL_AT");
    FILE *file = path != NULL ? fopen(path, "re") : NULL;

    if (file == NULL || fgets(wanted, 64, file) == NULL)
        wanted[0] = '\0';
    if (file != NULL)
        fclose(file);
    errno = error;
}

/* Is that where the process is to end? What is wanted after a step is asked before it: the file may be written as soon as others see
 * what the step did. */
static int is_wanted(const char *step, int after)
{
    char wanted[64], here[64];

    if (*kind() == '\0')
        return 0;
    read_wanted(wanted);
    snprintf(here, sizeof here, "%.16s %s%s", kind(), step, after ? " after" : "");
    return strcmp(wanted, here) == 0;
}

static void end_if(int wanted)
{
    if (wanted)
        (void)raise(SIGKILL);
}

#define WRAP_IF(condition, returns, name, step, parameters, arguments) \
    returns name parameters \
    { \
        static returns(*next) parameters; \
        const int ends = (condition) && is_wanted(step, 1); \
        returns result; \
        if (next == NULL) \
            *(void **)(&next) = dlsym(RTLD_NEXT, #name); \
        end_if((condition) && is_wanted(step, 0)); \
        result = next arguments; \
        end_if(ends); \
        return result; \
    }
#define WRAP(returns, name, step, parameters, arguments) \
    WRAP_IF(1, returns, name, step, parameters, arguments)

WRAP_IF(fd == GSTORE_SPAWN_CONNECTION, ssize_t, recv, "receive",
        (int fd, void *to, size_t bytes, int flags), (fd, to, bytes, flags))
WRAP_IF(fd == GSTORE_SPAWN_CONNECTION, ssize_t, send, "send",
        (int fd, const void *from, size_t bytes, int flags), (fd, from, bytes, flags))
WRAP(int, rename, "store", (const char *from, const char *to), (from, to))
WRAP(pid_t, fork, "compiler", (void), ())
WRAP(gvm_status, gvm_client_adopt, "adopt", (int fd, gvm_client **out), (fd, out))
WRAP(gvm_status, gvm_table_attach_over, "attach",
     (gvm_client * keeper, const char *token, uint32_t flags, gvm_table **out),
     (keeper, token, flags, out))
WRAP(gvm_status, gvm_device_open, "device", (int32_t ordinal, gvm_device **out), (ordinal, out))
WRAP(gvm_status, gvm_table_acquire, "lease",
     (gvm_table * table, const uint32_t *columns, uint32_t count,
      const gvm_acquire_options *options, int timeout_ms, gvm_table_data *data),
     (table, columns, count, options, timeout_ms, data))
WRAP(gvm_status, gvm_table_release, "release",
     (gvm_table * table, gvm_table_data *data, uint32_t count), (table, data, count))

int posix_fallocate(int fd, off_t at, off_t len)
{
    static const char name[] = "/memfd:gstore ";
    static int (*next)(int, off_t, off_t);
    char path[64], file[sizeof name] = "", wanted[64];

    if (next == NULL)
        *(void **)(&next) = dlsym(RTLD_NEXT, "posix_fallocate");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, file, sizeof file - 1) > 0 && strcmp(file, name) == 0) {
        read_wanted(wanted);
        if (strcmp(wanted, "fallocate") == 0)
            return ENOSPC;
    }
    return next(fd, at, len);
}

/* What the driver is called by. */
typedef int (*launch_call)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, void *, void **, void **);
typedef int (*load_call)(void **, const void *);

static launch_call real_launch;
static load_call real_load;

static int launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    const int ends = is_wanted("launch", 1);
    int result;

    end_if(is_wanted("launch", 0));
    result = real_launch(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
    end_if(ends);
    return result;
}

static int load(void **module, const void *image)
{
    const int ends = is_wanted("load", 1);
    int result;

    end_if(is_wanted("load", 0));
    result = real_load(module, image);
    end_if(ends);
    return result;
}

gvm_status gvm_driver_get_call(const char *name, void (**out)(void))
{
    static gvm_status (*next)(const char *, void (**)(void));
    gvm_status status;

    if (next == NULL)
        *(void **)(&next) = dlsym(RTLD_NEXT, "gvm_driver_get_call");
    status = next(name, out);
    if (status == GVM_OK && *kind() != '\0' && strcmp(name, "cuLaunchKernel") == 0) {
        real_launch = (launch_call)*out;
        *out = (void (*)(void))launch;
    }
    if (status == GVM_OK && *kind() != '\0' && strcmp(name, "cuModuleLoadData") == 0) {
        real_load = (load_call)*out;
        *out = (void (*)(void))load;
    }
    return status;
}
