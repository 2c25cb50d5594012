#include "softgpu/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softgpu/memfd.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int account_of(CUmemLocation location)
{
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : SOFT_ACCOUNT_HOST;
}

/* ---- names */

static void write_name(const soft_backing *backing, char name[SOFT_MEMFD_NAME_BYTES])
{
    size_t len;
    soft_memfd_start(backing->charge.id, name);
    len = strlen(name);
    snprintf(name + len, SOFT_MEMFD_NAME_BYTES - len, ":%c:%d:%d:%d", (int)backing->use,
             backing->location.type, backing->location.id, backing->handle_types);
}

/* Takes a name apart; what is not exactly as write_name() would have written it, so also what is of
 * another instance, is refused. */
static bool read_name(const char *name, soft_backing *backing)
{
    char again[SOFT_MEMFD_NAME_BYTES], use;
    const char *rest;
    if (!soft_memfd_parse(name, &backing->charge.id, &rest) ||
        sscanf(rest, ":%c:%9d:%9d:%9d", &use, &backing->location.type, &backing->location.id,
               &backing->handle_types) != 4)
        return false;
    backing->use = (soft_use)use;
    write_name(backing, again);
    return strcmp(name, again) == 0;
}

static bool read_name_of_fd(int fd, soft_backing *backing)
{
    char path[64], link[SOFT_MEMFD_LINK_BYTES];
    const char *name;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    name = soft_memfd_name_of_link(link, readlink(path, link, sizeof link));
    return name && read_name(name, backing);
}

/* ---- file descriptors */

/* A handle costs a file descriptor here and none on the real driver. So that a program with
 * thousands of them still has room for its own, the soft limit goes to the hard one as soon as half
 * of it is used. */
static void make_room_for_fds(int newest)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max ||
        (newest >= 0 && (rlim_t)newest < limit.rlim_cur / 2))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int create_memfd(const char *name)
{
    unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(name, flags);
    return fd;
}

static int create_file(const soft_backing *backing)
{
    char name[SOFT_MEMFD_NAME_BYTES];
    int fd;
    write_name(backing, name);
    fd = create_memfd(name);
    if (fd < 0 && errno == EMFILE) {
        make_room_for_fds(-1);
        fd = create_memfd(name);
    }
    if (fd < 0)
        return -1;
    make_room_for_fds(fd);
    if (ftruncate(fd, (off_t)backing->size_bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int dup_fd(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0 && errno == EMFILE) {
        make_room_for_fds(-1);
        copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    if (copy >= 0)
        make_room_for_fds(copy);
    return copy;
}

/* ---- life */

CUresult soft_backing_charge(soft_backing *backing, CUmemLocation location, uint64_t size_bytes)
{
    *backing = (soft_backing){.size_bytes = size_bytes, .location = location, .fd = -1};
    return soft_charge_create(account_of(location), size_bytes, &backing->charge);
}

CUresult soft_backing_create(soft_backing *backing, soft_use use, CUmemLocation location,
                             CUmemAllocationHandleType handle_types, uint64_t size_bytes)
{
    CUresult rc = soft_backing_charge(backing, location, size_bytes);
    if (rc != CUDA_SUCCESS)
        return rc;
    backing->use = use;
    backing->handle_types = handle_types;
    backing->fd = create_file(backing);
    if (backing->fd >= 0)
        return CUDA_SUCCESS;
    soft_charge_leave(backing->charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* What a foreign descriptor stands for, checked: only then may it be mapped. */
static CUresult check_foreign_fd(soft_backing *backing, soft_use use)
{
    const soft_config *config;
    struct stat st;
    int seals = fcntl(backing->fd, F_GET_SEALS);

    soft_config_get(&config, NULL);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(backing->fd, &st) != 0 || st.st_size <= 0 ||
        (uint64_t)st.st_size % SOFT_GRANULARITY_BYTES != 0 ||
        !read_name_of_fd(backing->fd, backing) || backing->use != use)
        return CUDA_ERROR_INVALID_VALUE;
    if (use == SOFT_USE_HANDLE && !(backing->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_INVALID_VALUE;
    if (backing->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        /* A handle may be of a device that this process does not see, as with CUDA_VISIBLE_DEVICES. */
        const int count = use == SOFT_USE_HANDLE ? SOFT_DEVICES_MAX : config->device_count;

        if (backing->location.id < 0 || backing->location.id >= count)
            return CUDA_ERROR_INVALID_DEVICE;
    } else if (backing->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    backing->size_bytes = (uint64_t)st.st_size;
    return CUDA_SUCCESS;
}

CUresult soft_backing_adopt(soft_backing *backing, soft_use use, int fd)
{
    CUresult rc;
    /* The copy is inspected, not the original, which another thread might exchange meanwhile. */
    *backing = (soft_backing){.fd = dup_fd(fd)};
    if (backing->fd < 0)
        return errno == EBADF ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OPERATING_SYSTEM;
    rc = check_foreign_fd(backing, use);
    if (rc == CUDA_SUCCESS)
        rc = soft_charge_join(backing->charge.id, account_of(backing->location),
                              backing->size_bytes, &backing->charge);
    if (rc != CUDA_SUCCESS)
        close(backing->fd);
    return rc;
}

CUresult soft_backing_dup(const soft_backing *backing, int *fd)
{
    int copy = dup_fd(backing->fd);
    if (copy < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *fd = copy;
    return CUDA_SUCCESS;
}

void soft_backing_destroy(soft_backing *backing)
{
    if (backing->fd >= 0)
        close(backing->fd);
    soft_charge_leave(backing->charge);
    backing->fd = -1;
    backing->charge.id = 0;
}
