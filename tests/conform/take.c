/* Taking memory, streams and events for a case: each must succeed, and is owned by the case. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

#include "tests/conform/conform.h"

CUmemAllocationProp device_prop(void)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, machine.device},
    };
}

CUmemAllocationProp host_prop(void)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, machine.numa},
    };
}

CUmemAccessDesc device_access(CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, machine.device}, flags};
}

CUmemAccessDesc host_access(CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_HOST_NUMA, machine.numa}, flags};
}

CUdeviceptr take_range(size_t size)
{
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAddressReserve(&at, size, 0, 0, 0));
    own(OWN_RANGE, at, size);
    return at;
}

static CUmemGenericAllocationHandle take_handle_of(size_t size, CUmemAllocationProp prop)
{
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE_OK(cu->cuMemCreate(&handle, size, &prop, 0));
    own(OWN_HANDLE, handle, size);
    return handle;
}

CUmemGenericAllocationHandle take_handle(size_t size)
{
    return take_handle_of(size, device_prop());
}

CUmemGenericAllocationHandle take_host_handle(size_t size)
{
    return take_handle_of(size, host_prop());
}

void take_mapping(CUdeviceptr at, size_t size, CUmemGenericAllocationHandle handle)
{
    REQUIRE_OK(cu->cuMemMap(at, size, 0, handle, 0));
    own(OWN_MAPPING, at, size);
}

void give_access(CUdeviceptr at, size_t size, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = device_access(flags);
    REQUIRE_OK(cu->cuMemSetAccess(at, size, &access, 1));
}

CUdeviceptr take_mapped(size_t size, CUmemGenericAllocationHandle handle)
{
    CUdeviceptr at = take_range(size);
    take_mapping(at, size, handle);
    give_access(at, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return at;
}

CUdeviceptr take_memory(size_t size)
{
    return take_mapped(size, take_handle(size));
}

int take_export(CUmemGenericAllocationHandle handle)
{
    int fd = -1;
    REQUIRE_OK(
        cu->cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    REQUIRE_TRUE(fd >= 0);
    own(OWN_FD, (uint64_t)fd, 0);
    return fd;
}

CUmemGenericAllocationHandle take_import(int fd)
{
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE_OK(cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    own(OWN_HANDLE, handle, 0);
    return handle;
}

CUdeviceptr take_alloc(size_t size)
{
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAlloc(&at, size));
    own(OWN_ALLOC, at, size);
    return at;
}

void *take_host(size_t size)
{
    void *at = NULL;
    REQUIRE_OK(cu->cuMemHostAlloc(&at, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    own(OWN_HOST, (uintptr_t)at, size);
    return at;
}

CUstream take_stream(unsigned flags)
{
    CUstream stream = NULL;
    REQUIRE_OK(cu->cuStreamCreate(&stream, flags));
    own(OWN_STREAM, (uintptr_t)stream, 0);
    return stream;
}

CUevent take_event(unsigned flags)
{
    CUevent event = NULL;
    REQUIRE_OK(cu->cuEventCreate(&event, flags));
    own(OWN_EVENT, (uintptr_t)event, 0);
    return event;
}

uint32_t read_word(CUdeviceptr at)
{
    uint32_t value = 0;
    REQUIRE_OK(cu->cuMemcpyDtoH(&value, at, sizeof value));
    return value;
}

/* A copy from pageable memory may return before the bytes have arrived, and kernels of non-blocking
 * streams do not wait for it. */
void write_word(CUdeviceptr at, uint32_t value)
{
    REQUIRE_OK(cu->cuMemcpyHtoD(at, &value, sizeof value));
    REQUIRE_OK(cu->cuStreamSynchronize(NULL));
}

bool words_are(CUdeviceptr at, size_t words, uint32_t first, uint32_t step)
{
    enum { CHUNK = 4096 };
    uint32_t chunk[CHUNK];
    for (size_t start = 0; start < words; start += CHUNK) {
        size_t count = words - start < CHUNK ? words - start : CHUNK;
        REQUIRE_OK(cu->cuMemcpyDtoH(chunk, at + start * 4, count * 4));
        for (size_t i = 0; i < count; i++)
            if (chunk[i] != first + (uint32_t)(start + i) * step)
                return false;
    }
    return true;
}

/* The kernel reads or writes user memory for a pipe; it answers EFAULT where the CPU may not. */
bool cpu_can_read(const void *at)
{
    int ends[2];
    bool can;
    REQUIRE_TRUE(pipe2(ends, O_CLOEXEC) == 0);
    can = write(ends[1], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return can;
}

bool cpu_can_write(void *at)
{
    int ends[2];
    bool can;
    char byte = 0;
    REQUIRE_TRUE(pipe2(ends, O_CLOEXEC) == 0);
    REQUIRE_TRUE(write(ends[1], &byte, 1) == 1);
    can = read(ends[0], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return can;
}
