/* A plain program of the driver API: one process makes memory and hands it to others over a unix socket.
 *
 *     share_sum IMAGE [IMPORTERS]
 *
 * The exporter creates device memory, maps it, fills it and sums it up; then it exports it as a file descriptor. Each
 * importer gets that with the size and the device, imports it, maps it read-only and sums it up. All sums are to be
 * alike. The importers are forked before anybody calls the driver, which does not work across a fork. A copy that the
 * exporter frees at once shows that the memory stays while an importer has it mapped.
 */
#include "tests/foreign/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)24 << 20)
#define FIRST 1000u
#define IMPORTERS_MAX 16

typedef struct offer {
    size_t size_bytes;
    int device;
} offer;

/* ---- a descriptor over a unix socket */

static void send_offer(int to, const offer *what, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec body = {(void *)(uintptr_t)what, sizeof *what};
    struct msghdr message = {
        .msg_iov = &body, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    HOLDS(sendmsg(to, &message, 0) == (ssize_t)sizeof *what);
}

static int receive_offer(int from, offer *what)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec body = {what, sizeof *what};
    struct msghdr message = {
        .msg_iov = &body, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *rights;
    int fd;

    HOLDS(recvmsg(from, &message, MSG_CMSG_CLOEXEC) == (ssize_t)sizeof *what);
    rights = CMSG_FIRSTHDR(&message);
    HOLDS(rights && rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len == CMSG_LEN(sizeof fd));
    memcpy(&fd, CMSG_DATA(rights), sizeof fd);
    return fd;
}

/* ---- both sides */

static CUdeviceptr map_handle(CUmemGenericAllocationHandle handle, size_t size, int device,
                              CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device}, .flags = flags};
    CUdeviceptr at;

    MUST(cuMemAddressReserve(&at, size, 0, 0, 0));
    MUST(cuMemMap(at, size, 0, handle, 0));
    MUST(cuMemSetAccess(at, size, &access, 1));
    return at;
}

static void unmap_handle(CUdeviceptr at, size_t size, CUmemGenericAllocationHandle handle)
{
    MUST(cuMemUnmap(at, size));
    MUST(cuMemAddressFree(at, size));
    MUST(cuMemRelease(handle));
}

static void import_and_sum(int from, const char *image)
{
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    CUdeviceptr at;
    CUdevice device;
    offer got;
    uint64_t sum;
    int fd = receive_offer(from, &got);

    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, got.device));
    context = begin_context(device, image);
    MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    at = map_handle(handle, got.size_bytes, got.device, CU_MEM_ACCESS_FLAGS_PROT_READ);
    sum = sum_words(at, got.size_bytes / sizeof(uint32_t));
    HOLDS(write(from, &sum, sizeof sum) == (ssize_t)sizeof sum);
    /* The exporter has let go of it when this returns. */
    HOLDS(read(from, &got, 1) == 0);
    HOLDS(sum_words(at, got.size_bytes / sizeof(uint32_t)) == sum);
    unmap_handle(at, got.size_bytes, handle);
    MUST(cuCtxDestroy(context));
}

static size_t whole_granules(const CUmemAllocationProp *prop)
{
    size_t granule;

    MUST(cuMemGetAllocationGranularity(&granule, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return (BYTES + granule - 1) / granule * granule;
}

static void export_to(const int *importers, int count, const char *image)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
    };
    offer mine = {0, 0};
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    CUdeviceptr at;
    CUdevice device;
    uint64_t sum, theirs;
    int fd;

    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, mine.device));
    context = begin_context(device, image);
    mine.size_bytes = whole_granules(&prop);
    MUST(cuMemCreate(&handle, mine.size_bytes, &prop, 0));
    at = map_handle(handle, mine.size_bytes, mine.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fill_words(at, mine.size_bytes / sizeof(uint32_t), FIRST);
    sum = sum_words(at, mine.size_bytes / sizeof(uint32_t));
    printf("sum of the exporter: %llu\n", (unsigned long long)sum);
    HOLDS(sum == sum_of_fill(mine.size_bytes / sizeof(uint32_t), FIRST));

    MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    for (int i = 0; i < count; i++)
        send_offer(importers[i], &mine, fd);
    close(fd);
    for (int i = 0; i < count; i++) {
        HOLDS(read(importers[i], &theirs, sizeof theirs) == (ssize_t)sizeof theirs);
        printf("sum of importer %d: %llu\n", i, (unsigned long long)theirs);
        HOLDS(theirs == sum);
    }
    unmap_handle(at, mine.size_bytes, handle);
    MUST(cuCtxDestroy(context));
}

int main(int argc, char **argv)
{
    int sockets[IMPORTERS_MAX], count = argc > 2 ? atoi(argv[2]) : 2, failed = 0, status;

    if (argc < 2 || count < 1 || count > IMPORTERS_MAX) {
        fprintf(stderr, "usage: share_sum IMAGE [IMPORTERS]\n");
        return 2;
    }
    for (int i = 0; i < count; i++) {
        int pair[2];

        HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        const pid_t child = fork();
        HOLDS(child >= 0);
        if (child == 0) {
            for (int j = 0; j < i; j++)
                close(sockets[j]);
            close(pair[0]);
            import_and_sum(pair[1], argv[1]);
            exit(0);
        }
        close(pair[1]);
        sockets[i] = pair[0];
    }
    export_to(sockets, count, argv[1]);
    for (int i = 0; i < count; i++)
        close(sockets[i]);
    while (wait(&status) > 0)
        failed += status != 0;
    HOLDS(failed == 0);
    printf("all sums are alike\n");
    return 0;
}
