/* The 64-byte handles of cuMemAlloc memory. */
#include <string.h>

#include "tests/conform/conform.h"
#include "tests/conform/peer.h"

#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

static CUipcMemHandle take_ipc(CUdeviceptr at)
{
    CUipcMemHandle handle;
    REQUIRE_OK(cu->cuIpcGetMemHandle(&handle, at));
    return handle;
}

CASE(ipc_opened_by_a_peer_gives_the_same_sum)
{
    size_t words = 4 * MIB;
    CUdeviceptr at = take_alloc(words * 4), there = 0;
    CUipcMemHandle handle = take_ipc(at);
    struct peer *peer = peer_start();
    uint64_t sum = 0;
    kernel_fill(at, words, 6);
    REQUIRE_OK(peer_ipc_open(peer, &handle, &there));
    EXPECT_OK(peer_sum(peer, there, words, &sum));
    EXPECT_U64(sum, sum_of_fill(words, 6));
    EXPECT_OK(peer_ipc_close(peer, there));
}

CASE(ipc_shows_writes_both_ways)
{
    CUdeviceptr at = take_alloc(4 * MIB), there = 0;
    CUipcMemHandle handle = take_ipc(at);
    struct peer *peer = peer_start();
    uint32_t value = 0;
    REQUIRE_OK(peer_ipc_open(peer, &handle, &there));
    EXPECT_OK(peer_write(peer, there, 61));
    EXPECT_U64(kernel_read(at), 61);
    EXPECT_OK(kernel_try_write(at, 62));
    EXPECT_OK(peer_read(peer, there, &value));
    EXPECT_U64(value, 62);
    EXPECT_OK(peer_ipc_close(peer, there));
}

CASE(ipc_of_a_peers_memory_opens_here)
{
    struct peer *peer = peer_start();
    CUdeviceptr there = 0, at = 0;
    CUipcMemHandle handle;
    REQUIRE_OK(peer_alloc(peer, 4 * MIB, &there));
    REQUIRE_OK(peer_ipc_get(peer, there, &handle));
    EXPECT_OK(peer_write(peer, there, 63));
    REQUIRE_OK(cu->cuIpcOpenMemHandle(&at, handle, LAZY));
    EXPECT_U64(kernel_read(at), 63);
    EXPECT_OK(cu->cuIpcCloseMemHandle(at));
    EXPECT_OK(peer_free(peer, there));
}

CASE(ipc_of_small_allocations_is_each_its_own)
{
    CUdeviceptr one = take_alloc(4 * KIB), two = take_alloc(4 * KIB), there = 0;
    CUipcMemHandle handle = take_ipc(two);
    struct peer *peer = peer_start();
    uint32_t value = 0;
    write_word(one, 1);
    write_word(two, 2);
    REQUIRE_OK(peer_ipc_open(peer, &handle, &there));
    EXPECT_OK(peer_read(peer, there, &value));
    EXPECT_U64(value, 2);
    EXPECT_OK(peer_ipc_close(peer, there));
}

CASE(ipc_of_interior_address_opens_at_the_base)
{
    CUdeviceptr at = take_alloc(4 * MIB), there = 0;
    struct peer *peer = peer_start();
    CUipcMemHandle handle;
    uint32_t value = 0;
    write_word(at, 10);
    write_word(at + MIB, 20);
    REQUIRE_OK(cu->cuIpcGetMemHandle(&handle, at + MIB));
    REQUIRE_OK(peer_ipc_open(peer, &handle, &there));
    EXPECT_OK(peer_read(peer, there, &value));
    EXPECT_U64(value, 10);
    EXPECT_OK(peer_ipc_close(peer, there));
}

CASE(ipc_of_virtual_memory_is_refused)
{
    CUipcMemHandle handle;
    EXPECT_INVALID(cu->cuIpcGetMemHandle(&handle, take_memory(machine.granule)));
}

CASE(ipc_of_foreign_memory_is_refused)
{
    CUipcMemHandle handle;
    CUdeviceptr freed = take_alloc(4 * MIB);
    int here = 0;
    drop(OWN_ALLOC, freed);
    EXPECT_INVALID(cu->cuIpcGetMemHandle(&handle, freed));
    EXPECT_INVALID(cu->cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)&here));
    EXPECT_INVALID(cu->cuIpcGetMemHandle(&handle, 0));
    EXPECT_INVALID(cu->cuIpcGetMemHandle(NULL, take_alloc(MIB)));
}

CASE(ipc_of_pinned_host_memory_is_refused)
{
    CUipcMemHandle handle;
    EXPECT_INVALID(cu->cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)take_host(MIB)));
}

CASE(ipc_of_stream_ordered_memory_is_refused)
{
    CUipcMemHandle handle;
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAllocAsync(&at, 4 * MIB, stream));
    REQUIRE_OK(cu->cuStreamSynchronize(stream));
    EXPECT_INVALID(cu->cuIpcGetMemHandle(&handle, at));
    EXPECT_OK(cu->cuMemFreeAsync(at, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
}

CASE(ipc_opened_in_the_same_process_is_refused)
{
    CUipcMemHandle handle = take_ipc(take_alloc(4 * MIB));
    CUdeviceptr at = 0;
    EXPECT(cu->cuIpcOpenMemHandle(&at, handle, LAZY), CUDA_ERROR_INVALID_CONTEXT);
}

CASE(ipc_of_garbage_is_refused)
{
    CUipcMemHandle handle;
    CUdeviceptr at = 0;
    memset(&handle, 0, sizeof handle);
    EXPECT_INVALID(cu->cuIpcOpenMemHandle(&at, handle, LAZY));
    memset(&handle, 0xa5, sizeof handle);
    EXPECT_INVALID(cu->cuIpcOpenMemHandle(&at, handle, LAZY));
}

CASE(ipc_handle_of_freed_memory_is_refused)
{
    struct peer *peer = peer_start();
    CUdeviceptr there = 0, at = 0;
    CUipcMemHandle handle;
    REQUIRE_OK(peer_alloc(peer, 4 * MIB, &there));
    REQUIRE_OK(peer_ipc_get(peer, there, &handle));
    REQUIRE_OK(peer_free(peer, there));
    EXPECT_INVALID(cu->cuIpcOpenMemHandle(&at, handle, LAZY));
}

CASE(ipc_handle_of_dead_process_is_refused)
{
    struct peer *peer = peer_start();
    CUdeviceptr there = 0, at = 0;
    CUipcMemHandle handle;
    REQUIRE_OK(peer_alloc(peer, 4 * MIB, &there));
    REQUIRE_OK(peer_ipc_get(peer, there, &handle));
    peer_kill(peer);
    EXPECT(cu->cuIpcOpenMemHandle(&at, handle, LAZY), CUDA_ERROR_INVALID_HANDLE);
}

CASE(ipc_open_of_nonsense_is_refused)
{
    struct peer *peer = peer_start();
    CUdeviceptr there = 0, at = 0;
    CUipcMemHandle handle;
    REQUIRE_OK(peer_alloc(peer, 4 * MIB, &there));
    REQUIRE_OK(peer_ipc_get(peer, there, &handle));
    EXPECT_INVALID(cu->cuIpcOpenMemHandle(&at, handle, 1u << 20));
    EXPECT_INVALID(cu->cuIpcOpenMemHandle(NULL, handle, LAZY));
    EXPECT_INVALID(cu->cuIpcOpenMemHandle(&at, handle, 0));
}

CASE(ipc_opened_twice_is_at_one_address)
{
    struct peer *peer = peer_start();
    CUdeviceptr there = 0, one = 0, two = 0;
    CUipcMemHandle handle;
    REQUIRE_OK(peer_alloc(peer, 4 * MIB, &there));
    REQUIRE_OK(peer_ipc_get(peer, there, &handle));
    REQUIRE_OK(cu->cuIpcOpenMemHandle(&one, handle, LAZY));
    REQUIRE_OK(cu->cuIpcOpenMemHandle(&two, handle, LAZY));
    EXPECT_U64(one, two);
    EXPECT_OK(peer_write(peer, there, 33));
    EXPECT_OK(cu->cuIpcCloseMemHandle(two));
    EXPECT_U64(kernel_read(one), 33);
    EXPECT_OK(cu->cuIpcCloseMemHandle(one));
}

CASE(ipc_close_twice_is_refused)
{
    struct peer *peer = peer_start();
    CUdeviceptr there = 0, at = 0;
    CUipcMemHandle handle;
    REQUIRE_OK(peer_alloc(peer, 4 * MIB, &there));
    REQUIRE_OK(peer_ipc_get(peer, there, &handle));
    REQUIRE_OK(cu->cuIpcOpenMemHandle(&at, handle, LAZY));
    EXPECT_OK(cu->cuIpcCloseMemHandle(at));
    EXPECT_INVALID(cu->cuIpcCloseMemHandle(at));
}

CASE(ipc_close_of_foreign_memory_is_refused)
{
    CUdeviceptr at = take_alloc(4 * MIB);
    EXPECT_INVALID(cu->cuIpcCloseMemHandle(at));
    EXPECT_INVALID(cu->cuIpcCloseMemHandle(0));
    EXPECT_OK(kernel_try_write(at, 1));
}

CASE(ipc_opened_memory_is_not_freed_by_free)
{
    struct peer *peer = peer_start();
    CUdeviceptr there = 0, at = 0;
    CUipcMemHandle handle;
    REQUIRE_OK(peer_alloc(peer, 4 * MIB, &there));
    REQUIRE_OK(peer_ipc_get(peer, there, &handle));
    REQUIRE_OK(cu->cuIpcOpenMemHandle(&at, handle, LAZY));
    EXPECT_INVALID(cu->cuMemFree(at));
    EXPECT_OK(cu->cuIpcCloseMemHandle(at));
}

CASE(ipc_memory_of_killed_peer_comes_back)
{
    size_t before = free_bytes();
    struct peer *peer = peer_start();
    CUdeviceptr there = 0;
    REQUIRE_OK(peer_alloc(peer, 64 * MIB, &there));
    EXPECT_TRUE(free_bytes() + 64 * MIB <= before);
    peer_kill(peer);
    EXPECT_TRUE(wait_free_bytes(before));
}
