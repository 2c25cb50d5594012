/* The pages that a client and the keeper share, as memfds.
 *
 * Seals keep a client from shrinking them under the keeper, which would then be killed by SIGBUS,
 * and from writing to what it may only read. What the keeper itself does not read (a snapshot, once it is
 * sent) may shrink: so the keeper can take its memory back from a process that keeps the fd.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "keeper/server/server.h"

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SEALS_SIZE (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* A memfd of this size. Some systems want it marked as no program; old ones do not know how. */
static gvm_status make_memfd(const char *name, size_t bytes, int *out)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "memfd_create", "cannot make memory to share");
    if (ftruncate(fd, (off_t)bytes) != 0) {
        const int code = errno;

        close(fd);
        return gvmi_fail_system(GVM_E_SYSTEM, code, "ftruncate", "cannot make memory to share");
    }
    *out = fd;
    return GVM_OK;
}

static gvm_status seal_memfd(int fd, int seals)
{
    if (fcntl(fd, F_ADD_SEALS, seals) == 0)
        return GVM_OK;
    return gvmi_fail_system(GVM_E_SYSTEM, errno, "fcntl", "cannot seal shared memory");
}

gvm_status gvmi_page_create(const char *name, size_t bytes, bool readonly, void **address, gvmi_fd **out)
{
    void *mapped;
    int fd = -1;
    gvm_status status = make_memfd(name, bytes, &fd);

    if (status != GVM_OK)
        return status;
    mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        status = gvmi_fail_system(GVM_E_SYSTEM, errno, "mmap", "cannot map shared memory");
        close(fd);
        return status;
    }
    /* Mappings that exist, as this one, stay writable. */
    status = seal_memfd(fd, readonly ? SEALS_SIZE | F_SEAL_FUTURE_WRITE : SEALS_SIZE);
    if (status == GVM_OK)
        status = gvmi_fd_own(fd, out);
    else
        close(fd);
    if (status == GVM_OK)
        *address = mapped;
    else
        munmap(mapped, bytes);
    return status;
}

static gvm_status write_all(int fd, uint64_t offset_bytes, const void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        const ssize_t written = pwrite(fd, (const char *)bytes + done, len - done,
                                       (off_t)(offset_bytes + done));

        if (written <= 0 && errno != EINTR)
            return gvmi_fail_system(GVM_E_SYSTEM, errno, "pwrite", "cannot fill shared memory");
        done += written > 0 ? (size_t)written : 0;
    }
    return GVM_OK;
}

gvm_status gvmi_page_begin(const char *name, int *fd)
{
    return make_memfd(name, 0, fd);
}

gvm_status gvmi_page_write(int fd, uint64_t offset_bytes, const void *bytes, size_t len)
{
    return write_all(fd, offset_bytes, bytes, len);
}

gvm_status gvmi_page_end(int fd, gvmi_fd **out)
{
    /* A process that has it could shrink it, and then reads less: nothing else depends on its contents. */
    const gvm_status status = seal_memfd(fd, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL);

    if (status == GVM_OK)
        return gvmi_fd_own(fd, out);
    close(fd);
    return status;
}

void gvmi_page_empty(gvmi_fd *fd)
{
    (void)!ftruncate(fd->fd, 0); /* no seal forbids it */
}
