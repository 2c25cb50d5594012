/* Sharing of handles as file descriptors, within a process and between processes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/conform/conform.h"
#include "tests/conform/peer.h"

#define AS_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static const int reads = CU_MEM_ACCESS_FLAGS_PROT_READ;
static const int writes = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

static CUresult try_export(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                           unsigned long long flags)
{
    int fd = -1;
    CUresult result = cu->cuMemExportToShareableHandle(&fd, handle, type, flags);
    if (result == CUDA_SUCCESS && fd >= 0)
        own(OWN_FD, (uint64_t)fd, 0);
    return result;
}

static CUresult try_import(int fd, CUmemAllocationHandleType type)
{
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, type);
    if (result == CUDA_SUCCESS)
        own(OWN_HANDLE, handle, 0);
    return result;
}

/* ---- export */

CASE(export_gives_a_new_fd_each_time)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    int one = take_export(handle), two = take_export(handle);
    EXPECT_TRUE(one != two);
    EXPECT_TRUE(fcntl(one, F_GETFD) >= 0 && fcntl(two, F_GETFD) >= 0);
    EXPECT_TRUE(fcntl(one, F_GETFD) & FD_CLOEXEC);
}

CASE(export_of_handle_without_fd_type_is_refused)
{
    CUmemAllocationProp prop = device_prop();
    CUmemGenericAllocationHandle handle = 0;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    REQUIRE_OK(cu->cuMemCreate(&handle, machine.granule, &prop, 0));
    own(OWN_HANDLE, handle, machine.granule);
    EXPECT_INVALID(try_export(handle, AS_FD, 0));
}

CASE(export_as_another_type_is_refused)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    EXPECT_INVALID(try_export(handle, CU_MEM_HANDLE_TYPE_NONE, 0));
    EXPECT_INVALID(try_export(handle, CU_MEM_HANDLE_TYPE_WIN32, 0));
    EXPECT_INVALID(try_export(handle, 77, 0));
}

CASE(export_with_unknown_flags_is_refused)
{
    EXPECT_INVALID(try_export(take_handle(machine.granule), AS_FD, 1));
}

CASE(export_without_output_is_refused)
{
    EXPECT_INVALID(cu->cuMemExportToShareableHandle(NULL, take_handle(machine.granule), AS_FD, 0));
}

CASE(export_keeps_memory_after_release)
{
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = take_handle(16 * MIB);
    CUdeviceptr at = take_mapped(16 * MIB, handle);
    int fd = take_export(handle);
    write_word(at, 60);
    drop(OWN_MAPPING, at);
    drop(OWN_HANDLE, handle);
    EXPECT_U64(before - free_bytes(), 16 * MIB);
    at = take_mapped(16 * MIB, take_import(fd));
    EXPECT_U64(read_word(at), 60);
}

CASE(export_closed_gives_memory_back)
{
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = take_handle(16 * MIB);
    int fd = take_export(handle);
    drop(OWN_HANDLE, handle);
    drop(OWN_FD, (uint64_t)fd);
    EXPECT_TRUE(wait_free_bytes(before));
}

/* ---- import */

CASE(import_in_the_same_process_shows_the_same_memory)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule), imported;
    CUdeviceptr one = take_mapped(machine.granule, handle), two;
    imported = take_import(take_export(handle));
    two = take_mapped(machine.granule, imported);
    EXPECT_OK(kernel_try_write(one, 17));
    EXPECT_U64(kernel_read(two), 17);
    EXPECT_TRUE(imported != handle);
}

CASE(import_twice_shows_the_same_memory)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    int fd = take_export(handle);
    CUdeviceptr one = take_mapped(machine.granule, take_import(fd));
    CUdeviceptr two = take_mapped(machine.granule, take_import(fd));
    EXPECT_OK(kernel_try_write(one, 18));
    EXPECT_U64(kernel_read(two), 18);
}

CASE(import_takes_no_more_memory)
{
    CUmemGenericAllocationHandle handle = take_handle(16 * MIB);
    size_t before = free_bytes();
    take_mapped(16 * MIB, take_import(take_export(handle)));
    EXPECT_U64(free_bytes(), before);
}

CASE(import_leaves_the_fd_to_the_caller)
{
    int fd = take_export(take_handle(machine.granule));
    CUmemGenericAllocationHandle imported = take_import(fd);
    CUdeviceptr at;
    EXPECT_TRUE(fcntl(fd, F_GETFD) >= 0);
    drop(OWN_FD, (uint64_t)fd);
    at = take_mapped(machine.granule, imported);
    EXPECT_OK(kernel_try_write(at, 1));
}

CASE(import_exported_again_is_refused)
{
    CUmemGenericAllocationHandle imported = take_import(take_export(take_handle(machine.granule)));
    EXPECT_INVALID(try_export(imported, AS_FD, 0));
}

CASE(import_mapped_with_another_size_is_not_supported)
{
    CUmemGenericAllocationHandle imported = take_import(take_export(take_handle(machine.granule)));
    CUdeviceptr at = take_range(2 * machine.granule);
    EXPECT(cu->cuMemMap(at, 2 * machine.granule, 0, imported, 0), CUDA_ERROR_NOT_SUPPORTED);
}

CASE(import_read_only_reads)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule), imported;
    CUdeviceptr one = take_mapped(machine.granule, handle), two = take_range(machine.granule);
    imported = take_import(take_export(handle));
    kernel_fill(one, machine.granule / 4, 4);
    take_mapping(two, machine.granule, imported);
    give_access(two, machine.granule, reads);
    EXPECT_U64(kernel_sum(two, machine.granule / 4), sum_of_fill(machine.granule / 4, 4));
}

CASE(import_of_closed_fd_is_refused)
{
    int fd = take_export(take_handle(machine.granule));
    drop(OWN_FD, (uint64_t)fd);
    EXPECT(try_import(fd, AS_FD), CUDA_ERROR_UNKNOWN);
    EXPECT(try_import(-1, AS_FD), CUDA_ERROR_UNKNOWN);
}

CASE(import_of_device_null_is_refused)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    REQUIRE_TRUE(fd >= 0);
    own(OWN_FD, (uint64_t)fd, 0);
    EXPECT(try_import(fd, AS_FD), CUDA_ERROR_UNKNOWN);
}

CASE(import_of_pipe_is_refused)
{
    int ends[2];
    REQUIRE_TRUE(pipe2(ends, O_CLOEXEC) == 0);
    own(OWN_FD, (uint64_t)ends[0], 0);
    own(OWN_FD, (uint64_t)ends[1], 0);
    EXPECT(try_import(ends[0], AS_FD), CUDA_ERROR_UNKNOWN);
}

CASE(import_of_regular_file_is_refused)
{
    char path[] = "/tmp/conform-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    REQUIRE_TRUE(fd >= 0);
    unlink(path);
    own(OWN_FD, (uint64_t)fd, 0);
    REQUIRE_TRUE(ftruncate(fd, (off_t)machine.granule) == 0);
    EXPECT(try_import(fd, AS_FD), CUDA_ERROR_UNKNOWN);
}

CASE(import_as_another_type_is_refused)
{
    int fd = take_export(take_handle(machine.granule));
    EXPECT_INVALID(try_import(fd, CU_MEM_HANDLE_TYPE_NONE));
    EXPECT(try_import(fd, CU_MEM_HANDLE_TYPE_WIN32), CUDA_ERROR_NOT_SUPPORTED);
}

CASE(import_without_output_is_refused)
{
    int fd = take_export(take_handle(machine.granule));
    EXPECT_INVALID(cu->cuMemImportFromShareableHandle(NULL, (void *)(intptr_t)fd, AS_FD));
}

/* ---- between processes */

/* The handle's memory, imported and mapped by the peer. */
static CUdeviceptr peer_has(struct peer *peer, CUmemGenericAllocationHandle handle, size_t size,
                            int access, uint64_t *imported)
{
    CUdeviceptr at = 0;
    int fd = take_export(handle);
    REQUIRE_OK(peer_import(peer, fd, imported));
    drop(OWN_FD, (uint64_t)fd);
    REQUIRE_OK(peer_map(peer, *imported, size, access, 0, &at));
    return at;
}

CASE(share_gives_a_peer_the_same_sum)
{
    size_t size = 8 * machine.granule, words = size / 4;
    CUmemGenericAllocationHandle handle = take_handle(size);
    CUdeviceptr at = take_mapped(size, handle), there;
    struct peer *peer = peer_start();
    uint64_t imported, sum = 0;
    kernel_fill(at, words, 1000);
    there = peer_has(peer, handle, size, writes, &imported);
    EXPECT_OK(peer_sum(peer, there, words, &sum));
    EXPECT_U64(sum, sum_of_fill(words, 1000));
    EXPECT_U64(kernel_sum(at, words), sum);
}

CASE(share_shows_writes_both_ways)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_mapped(machine.granule, handle), there;
    struct peer *peer = peer_start();
    uint64_t imported;
    uint32_t value = 0;
    there = peer_has(peer, handle, machine.granule, writes, &imported);
    EXPECT_OK(peer_write(peer, there, 71));
    EXPECT_U64(kernel_read(at), 71);
    EXPECT_OK(kernel_try_write(at, 72));
    EXPECT_OK(peer_read(peer, there, &value));
    EXPECT_U64(value, 72);
}

CASE(share_read_only_reads)
{
    size_t words = machine.granule / 4;
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_mapped(machine.granule, handle), there;
    struct peer *peer = peer_start();
    uint64_t imported, sum = 0;
    kernel_fill(at, words, 12);
    there = peer_has(peer, handle, machine.granule, reads, &imported);
    EXPECT_OK(peer_sum(peer, there, words, &sum));
    EXPECT_U64(sum, sum_of_fill(words, 12));
}

CASE(share_at_the_exporters_address)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_mapped(machine.granule, handle), there = 0;
    struct peer *peer = peer_start();
    uint64_t imported;
    REQUIRE_OK(peer_import(peer, take_export(handle), &imported));
    REQUIRE_OK(peer_map(peer, imported, machine.granule, writes, at, &there));
    observe("the exporter's address was %s", there == at ? "free" : "taken");
    EXPECT_OK(peer_write(peer, there, 5));
    EXPECT_U64(kernel_read(at), 5);
}

CASE(share_of_64_handles_keeps_their_order)
{
    enum { COUNT = 64 };
    CUdeviceptr there[COUNT], at = take_range(COUNT * machine.granule);
    struct peer *peer = peer_start();
    for (uint32_t i = 0; i < COUNT; i++) {
        CUmemGenericAllocationHandle handle = take_handle(machine.granule);
        uint64_t imported;
        take_mapping(at + i * machine.granule, machine.granule, handle);
        give_access(at + i * machine.granule, machine.granule, writes);
        there[i] = peer_has(peer, handle, machine.granule, writes, &imported);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        EXPECT_OK(peer_write(peer, there[i], 300 + i));
    for (uint32_t i = 0; i < COUNT; i++)
        EXPECT_U64(kernel_read(at + i * machine.granule), 300 + i);
}

CASE(share_between_two_peers)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    struct peer *one = peer_start(), *two = peer_start();
    uint64_t imported;
    uint32_t value = 0;
    CUdeviceptr in_one = peer_has(one, handle, machine.granule, writes, &imported);
    CUdeviceptr in_two = peer_has(two, handle, machine.granule, reads, &imported);
    drop(OWN_HANDLE, handle);
    EXPECT_OK(peer_write(one, in_one, 88));
    EXPECT_OK(peer_read(two, in_two, &value));
    EXPECT_U64(value, 88);
}

CASE(share_outlives_the_owners_release)
{
    size_t size = 64 * MIB;
    struct peer *peer = peer_start();
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = take_handle(size);
    uint64_t imported, sum = 0;
    CUdeviceptr there = peer_has(peer, handle, size, writes, &imported);
    EXPECT_OK(peer_fill(peer, there, size / 4, 3));
    drop(OWN_HANDLE, handle);
    EXPECT_TRUE(free_bytes() + size <= before);
    EXPECT_OK(peer_sum(peer, there, size / 4, &sum));
    EXPECT_U64(sum, sum_of_fill(size / 4, 3));
    EXPECT_OK(peer_unmap(peer, there, size));
    EXPECT_OK(peer_release(peer, imported));
    EXPECT_TRUE(wait_free_bytes(before));
}

CASE(share_outlives_the_importers_release)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_mapped(machine.granule, handle), there;
    struct peer *peer = peer_start();
    uint64_t imported;
    there = peer_has(peer, handle, machine.granule, writes, &imported);
    EXPECT_OK(peer_write(peer, there, 90));
    EXPECT_OK(peer_unmap(peer, there, machine.granule));
    EXPECT_OK(peer_release(peer, imported));
    peer_stop(peer);
    EXPECT_U64(kernel_read(at), 90);
}

CASE(share_of_killed_importer_comes_back)
{
    size_t size = 64 * MIB, before = free_bytes();
    CUmemGenericAllocationHandle handle = take_handle(size);
    struct peer *peer = peer_start();
    uint64_t start, imported;
    CUdeviceptr there = peer_has(peer, handle, size, writes, &imported);
    EXPECT_OK(peer_fill(peer, there, size / 4, 3));
    drop(OWN_HANDLE, handle);
    EXPECT_TRUE(free_bytes() + size <= before);
    start = now_ms();
    peer_kill(peer);
    EXPECT_TRUE(wait_free_bytes(before));
    observe("memory was back %llu ms after SIGKILL", (unsigned long long)(now_ms() - start));
}

CASE(share_outlives_its_killed_owner)
{
    size_t words = machine.granule / 4;
    struct peer *peer = peer_start();
    CUdeviceptr there = 0, at;
    uint64_t handle;
    int fd = -1;
    REQUIRE_OK(peer_create(peer, machine.granule, &handle));
    REQUIRE_OK(peer_map(peer, handle, machine.granule, writes, 0, &there));
    REQUIRE_OK(peer_export(peer, handle, &fd));
    at = take_mapped(machine.granule, take_import(fd));
    EXPECT_OK(peer_fill(peer, there, words, 40));
    peer_kill(peer);
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 40));
}

CASE(share_from_a_broker_without_context)
{
    struct peer *peer = peer_start_bare();
    CUdeviceptr at;
    uint64_t handle;
    int fd = -1;
    REQUIRE_OK(peer_create(peer, machine.granule, &handle));
    REQUIRE_OK(peer_export(peer, handle, &fd));
    at = take_mapped(machine.granule, take_import(fd));
    EXPECT_OK(kernel_try_write(at, 55));
    EXPECT_U64(read_word(at), 55);
}

/* So a broker must keep the fd that it was given. */
CASE(share_through_a_broker_that_exports_what_it_imported_is_refused)
{
    struct peer *broker = peer_start_bare();
    uint64_t imported;
    int fd = -1;
    REQUIRE_OK(peer_import(broker, take_export(take_handle(machine.granule)), &imported));
    EXPECT_INVALID(peer_export(broker, imported, &fd));
}

CASE(share_of_memory_held_by_a_broker_alone)
{
    size_t size = 16 * MIB;
    struct peer *broker = peer_start_bare();
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = take_handle(size);
    uint64_t imported;
    int fd = take_export(handle);
    REQUIRE_OK(peer_import(broker, fd, &imported));
    drop(OWN_FD, (uint64_t)fd);
    drop(OWN_HANDLE, handle);
    EXPECT_TRUE(free_bytes() + size <= before);
    EXPECT_OK(peer_release(broker, imported));
    EXPECT_TRUE(wait_free_bytes(before));
}

CASE(share_without_fd_in_a_peer_is_refused)
{
    struct peer *peer = peer_start_bare();
    uint64_t imported;
    EXPECT(peer_import(peer, -1, &imported), CUDA_ERROR_UNKNOWN);
}

/* ---- without a context */

CASE(bare_create_export_import_release_succeed)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUmemGenericAllocationHandle imported = take_import(take_export(handle));
    drop(OWN_HANDLE, imported);
    drop(OWN_HANDLE, handle);
}

CASE(bare_reserve_map_and_set_access_succeed)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUmemAccessDesc access = device_access(writes);
    CUdeviceptr at;
    at = take_range(machine.granule);
    take_mapping(at, machine.granule, handle);
    EXPECT_OK(cu->cuMemSetAccess(at, machine.granule, &access, 1));
}

CASE(bare_host_memory_is_created_and_shared)
{
    CUmemGenericAllocationHandle handle = take_host_handle(machine.granule);
    take_import(take_export(handle));
}

CASE(bare_plain_allocation_is_refused)
{
    CUdeviceptr at;
    size_t free_now, total;
    EXPECT(cu->cuMemAlloc(&at, MIB), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cu->cuMemGetInfo(&free_now, &total), CUDA_ERROR_INVALID_CONTEXT);
}
