/* Host memory that the device reaches: pinned, registered, and HOST_NUMA handles. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "tests/conform/conform.h"
#include "tests/conform/peer.h"

#define READWRITE CU_MEM_ACCESS_FLAGS_PROT_READWRITE

static CUdeviceptr device_address(void *host)
{
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&at, host, 0));
    return at;
}

/* ---- allocated by the driver */

CASE(host_alloc_is_shared_with_kernels)
{
    uint32_t *host = take_host(MIB);
    CUdeviceptr at = device_address(host);
    host[5] = 41;
    EXPECT_U64(kernel_read(at + 20), 41);
    EXPECT_OK(kernel_try_write(at + 20, 42));
    EXPECT_U64(host[5], 42);
}

CASE(host_alloc_has_one_address)
{
    void *host = take_host(MIB);
    EXPECT_U64(device_address(host), (uintptr_t)host);
    EXPECT_U64(device_address((char *)host + 100), (uintptr_t)host + 100);
}

CASE(host_alloc_takes_each_flag)
{
    static const unsigned flags[] = {0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP,
                                     CU_MEMHOSTALLOC_WRITECOMBINED, 7};
    for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        void *host = NULL;
        EXPECT_OK(cu->cuMemHostAlloc(&host, 64 * KIB, flags[i]));
        own(OWN_HOST, (uintptr_t)host, 64 * KIB);
        EXPECT_OK(kernel_try_write(device_address(host), 1));
    }
}

CASE(host_alloc_of_nonsense_is_refused)
{
    void *host;
    EXPECT_INVALID(cu->cuMemHostAlloc(NULL, MIB, 0));
    EXPECT_INVALID(cu->cuMemHostAlloc(&host, MIB, 1u << 20));
}

CASE(host_alloc_of_size_zero_succeeds)
{
    void *host = NULL;
    EXPECT_OK(cu->cuMemHostAlloc(&host, 0, 0));
    EXPECT_OK(cu->cuMemFreeHost(host));
}

CASE(host_alloc_takes_no_device_memory)
{
    size_t before = free_bytes();
    take_host(16 * MIB);
    EXPECT_U64(free_bytes(), before);
}

CASE(host_free_of_nonsense_is_refused)
{
    char *host = take_host(MIB);
    int here = 0;
    EXPECT_INVALID(cu->cuMemFreeHost(&here));
    EXPECT_INVALID(cu->cuMemFreeHost(host + 4096));
    EXPECT_OK(kernel_try_write(device_address(host), 1));
}

CASE(host_free_of_null_does_nothing)
{
    EXPECT_OK(cu->cuMemFreeHost(NULL));
}

CASE(host_free_twice_is_refused)
{
    void *host = take_host(4 * MIB);
    drop(OWN_HOST, (uintptr_t)host);
    EXPECT_INVALID(cu->cuMemFreeHost(host));
}

CASE(host_device_pointer_of_nonsense_is_refused)
{
    CUdeviceptr at;
    void *host = take_host(MIB);
    int here = 0;
    EXPECT_INVALID(cu->cuMemHostGetDevicePointer(NULL, host, 0));
    EXPECT_INVALID(cu->cuMemHostGetDevicePointer(&at, NULL, 0));
    EXPECT_INVALID(cu->cuMemHostGetDevicePointer(&at, host, 77));
    EXPECT_INVALID(cu->cuMemHostGetDevicePointer(&at, &here, 0));
}

/* ---- the program's own, registered */

/* Lives until the end of the process, so that nothing is unmapped under a registration. */
static char *pages(void)
{
    static char *at;
    if (!at) {
        at = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE_TRUE(at != MAP_FAILED);
    }
    return at;
}

static CUresult try_register(void *at, size_t size, unsigned flags)
{
    CUresult result = cu->cuMemHostRegister(at, size, flags);
    if (result == CUDA_SUCCESS)
        own(OWN_REGISTERED, (uintptr_t)at, size);
    return result;
}

#define MAPPED (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)

CASE(register_lets_kernels_in)
{
    uint32_t *host = (uint32_t *)(void *)pages();
    CUdeviceptr at;
    REQUIRE_OK(try_register(host, MIB, MAPPED));
    at = device_address(host);
    EXPECT_U64(at, (uintptr_t)host);
    host[9] = 91;
    EXPECT_U64(kernel_read(at + 36), 91);
    EXPECT_OK(kernel_try_write(at + 36, 92));
    EXPECT_U64(host[9], 92);
}

CASE(register_keeps_content_after_unregister)
{
    uint32_t *host = (uint32_t *)(void *)pages();
    REQUIRE_OK(try_register(host, MIB, MAPPED));
    EXPECT_OK(kernel_try_write(device_address(host), 93));
    drop(OWN_REGISTERED, (uintptr_t)host);
    EXPECT_U64(host[0], 93);
}

static bool bytes_are(const char *host, char value)
{
    for (size_t i = 0; i < 2 * MIB; i++)
        if (host[i] != value)
            return false;
    return true;
}

/* Two registrations, one behind the other. */
static char *take_registered_neighbours(void)
{
    REQUIRE_OK(try_register(pages(), MIB, MAPPED));
    REQUIRE_OK(try_register(pages() + MIB, MIB, MAPPED));
    return pages();
}

CASE(register_neighbours_are_one_range_to_kernels)
{
    size_t words = 2 * MIB / 4;
    CUdeviceptr at = (uintptr_t)take_registered_neighbours();
    kernel_fill(at, words, 21);
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 21));
}

/* The manual says that a range is either registered entirely or not at all, and nothing of one that two registrations
 * make up. What is not refused is done. */
CASE(register_neighbours_in_one_driver_call)
{
    char *host = take_registered_neighbours();
    CUdeviceptr at = (uintptr_t)host, device = take_memory(2 * MIB);
    struct {
        const char *call;
        CUresult result;
        bool done;
    } calls[6];
    unsigned count = 0;
#define CALL(name, action, before, after, ok) \
    do { \
        memset(host, before, 2 * MIB); \
        REQUIRE_OK(cu->cuMemsetD8(device, after, 2 * MIB)); \
        calls[count].call = name; \
        calls[count].result = action; \
        REQUIRE_OK(cu->cuCtxSynchronize()); \
        calls[count++].done = ok; \
    } while (0)
    CALL("cuMemsetD8", cu->cuMemsetD8(at, 3, 2 * MIB), 1, 2, bytes_are(host, 3));
    CALL("cuMemcpyHtoD", cu->cuMemcpyHtoD(device, host, 2 * MIB), 1, 2,
         kernel_read(device + MIB) == 0x01010101);
    CALL("cuMemcpyHtoDAsync", cu->cuMemcpyHtoDAsync(device, host, 2 * MIB, NULL), 1, 2,
         kernel_read(device + MIB) == 0x01010101);
    CALL("cuMemcpyDtoHAsync", cu->cuMemcpyDtoHAsync(host, device, 2 * MIB, NULL), 1, 2,
         bytes_are(host, 2));
    CALL("cuMemcpyDtoD", cu->cuMemcpyDtoD(at, device, 2 * MIB), 1, 2, bytes_are(host, 2));
    CALL("cuMemcpyAsync", cu->cuMemcpyAsync(at, device, 2 * MIB, NULL), 1, 2, bytes_are(host, 2));
#undef CALL
    for (unsigned i = 0; i < count; i++) {
        observe("%s: %s", calls[i].call, conform_result_name(calls[i].result));
        EXPECT_TRUE(calls[i].result == CUDA_ERROR_INVALID_VALUE ||
                    (calls[i].result == CUDA_SUCCESS && calls[i].done));
    }
}

CASE(register_twice_is_refused)
{
    REQUIRE_OK(try_register(pages(), MIB, MAPPED));
    EXPECT(try_register(pages(), MIB, MAPPED), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

CASE(register_of_overlapping_range_is_refused)
{
    REQUIRE_OK(try_register(pages(), MIB, MAPPED));
    EXPECT(try_register(pages() + MIB / 2, MIB, MAPPED), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

CASE(register_of_pinned_memory_is_refused)
{
    EXPECT_INVALID(try_register(take_host(MIB), MIB, MAPPED));
}

CASE(register_of_unaligned_range_succeeds)
{
    EXPECT_OK(try_register(pages() + 100, 10000, MAPPED));
}

CASE(register_of_nonsense_is_refused)
{
    EXPECT_INVALID(try_register(NULL, MIB, MAPPED));
    EXPECT_INVALID(try_register(pages(), 0, MAPPED));
    EXPECT_INVALID(try_register(pages(), MIB, 1u << 20));
}

CASE(register_of_unmapped_memory_is_refused)
{
    void *at = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE_TRUE(at != MAP_FAILED);
    REQUIRE_TRUE(munmap(at, MIB) == 0);
    EXPECT_INVALID(try_register(at, MIB, MAPPED));
}

CASE(unregister_twice_is_refused)
{
    REQUIRE_OK(try_register(pages(), MIB, MAPPED));
    drop(OWN_REGISTERED, (uintptr_t)pages());
    EXPECT(cu->cuMemHostUnregister(pages()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CASE(unregister_of_nonsense_is_refused)
{
    REQUIRE_OK(try_register(pages(), MIB, MAPPED));
    EXPECT_INVALID(cu->cuMemHostUnregister(pages() + 4096)); /* not where it begins */
    EXPECT_INVALID(cu->cuMemHostUnregister(NULL));
    EXPECT_INVALID(cu->cuMemHostUnregister(take_host(MIB)));
}

/* ---- HOST_NUMA handles */

/* Mapped for the device and the CPU. */
static CUdeviceptr take_host_memory(size_t size)
{
    CUmemAccessDesc access[2] = {device_access(READWRITE), host_access(READWRITE)};
    CUdeviceptr at = take_range(size);
    take_mapping(at, size, take_host_handle(size));
    REQUIRE_OK(cu->cuMemSetAccess(at, size, access, 2));
    return at;
}

CASE(host_handle_is_written_and_read_by_kernels)
{
    size_t words = 2 * machine.granule / 4;
    CUdeviceptr at = take_mapped(2 * machine.granule, take_host_handle(2 * machine.granule));
    kernel_fill(at, words, 5);
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 5));
    EXPECT_TRUE(words_are(at, words, 5, 1));
}

CASE(host_handle_is_shared_with_the_cpu)
{
    CUdeviceptr at = take_host_memory(machine.granule);
    volatile uint32_t *word = (volatile uint32_t *)(uintptr_t)at;
    word[3] = 13;
    EXPECT_U64(kernel_read(at + 12), 13);
    EXPECT_OK(kernel_try_write(at + 12, 14));
    EXPECT_U64(word[3], 14);
}

/* On a real device the CPU cannot read. The software GPU's kernels run on the CPU: what they may
 * read, it may. */
CASE(host_handle_without_cpu_access)
{
    CUdeviceptr at = take_mapped(machine.granule, take_host_handle(machine.granule));
    observe("the CPU can %s", cpu_can_read((void *)(uintptr_t)at) ? "read" : "not read");
}

CASE(host_handle_for_the_cpu_alone)
{
    CUdeviceptr at = take_range(machine.granule);
    CUmemAccessDesc access = host_access(READWRITE);
    take_mapping(at, machine.granule, take_host_handle(machine.granule));
    EXPECT_OK(cu->cuMemSetAccess(at, machine.granule, &access, 1));
    EXPECT_TRUE(cpu_can_read((void *)(uintptr_t)at));
    EXPECT_TRUE(cpu_can_write((void *)(uintptr_t)at));
}

/* On a real device the CPU cannot write. The software GPU's kernels may here, and they run on the
 * CPU. */
CASE(host_handle_read_only_for_the_cpu)
{
    CUdeviceptr at = take_host_memory(machine.granule);
    CUmemAccessDesc access = host_access(CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_OK(cu->cuMemSetAccess(at, machine.granule, &access, 1));
    EXPECT_TRUE(cpu_can_read((void *)(uintptr_t)at));
    observe("the CPU can %s", cpu_can_write((void *)(uintptr_t)at) ? "write" : "not write");
}

CASE(host_handle_access_is_asked_back)
{
    CUdeviceptr at = take_host_memory(machine.granule);
    CUmemAccessDesc device = device_access(0), cpu = host_access(0);
    unsigned long long flags = 77;
    EXPECT_OK(cu->cuMemGetAccess(&flags, &device.location, at));
    EXPECT_U64(flags, READWRITE);
    flags = 77;
    EXPECT_OK(cu->cuMemGetAccess(&flags, &cpu.location, at));
    EXPECT_U64(flags, READWRITE);
}

CASE(host_handle_accessed_by_location_host)
{
    CUdeviceptr at = take_range(machine.granule);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_HOST, 0}, READWRITE};
    take_mapping(at, machine.granule, take_host_handle(machine.granule));
    EXPECT_OK(cu->cuMemSetAccess(at, machine.granule, &access, 1));
    EXPECT_TRUE(cpu_can_read((void *)(uintptr_t)at));
}

CASE(host_handle_mapped_twice_shows_the_same_memory)
{
    CUmemGenericAllocationHandle handle = take_host_handle(machine.granule);
    CUdeviceptr one = take_mapped(machine.granule, handle);
    CUdeviceptr two = take_mapped(machine.granule, handle);
    EXPECT_OK(kernel_try_write(one, 15));
    EXPECT_U64(kernel_read(two), 15);
}

CASE(host_handle_imported_here_shows_the_same_memory)
{
    CUmemGenericAllocationHandle handle = take_host_handle(machine.granule);
    CUdeviceptr one = take_mapped(machine.granule, handle);
    CUdeviceptr two = take_mapped(machine.granule, take_import(take_export(handle)));
    EXPECT_OK(kernel_try_write(one, 16));
    EXPECT_U64(kernel_read(two), 16);
}

CASE(host_handle_is_shared_with_a_peers_gpu_and_cpu)
{
    CUmemGenericAllocationHandle handle = take_host_handle(machine.granule);
    CUdeviceptr at = take_mapped(machine.granule, handle), there = 0;
    struct peer *peer = peer_start();
    uint64_t imported;
    uint32_t value = 0;
    REQUIRE_OK(peer_import(peer, take_export(handle), &imported));
    REQUIRE_OK(peer_map_host(peer, imported, machine.granule, &there));
    EXPECT_OK(kernel_try_write(at, 17));
    EXPECT_OK(peer_cpu_read(peer, there, &value));
    EXPECT_U64(value, 17);
    EXPECT_OK(peer_cpu_write(peer, there, 18));
    EXPECT_U64(kernel_read(at), 18);
    EXPECT_OK(peer_write(peer, there, 19));
    EXPECT_U64(kernel_read(at), 19);
}

CASE(host_handle_copies_to_and_from_device_memory)
{
    size_t words = machine.granule / 4;
    CUdeviceptr host = take_mapped(machine.granule, take_host_handle(machine.granule));
    CUdeviceptr device = take_memory(machine.granule);
    kernel_fill(device, words, 30);
    EXPECT_OK(cu->cuMemcpyDtoD(host, device, machine.granule));
    EXPECT_U64(kernel_sum(host, words), sum_of_fill(words, 30));
    kernel_fill(host, words, 31);
    EXPECT_OK(cu->cuMemcpyDtoD(device, host, machine.granule));
    EXPECT_U64(kernel_sum(device, words), sum_of_fill(words, 31));
}
