/* Stream-ordered and managed memory, and the pools that cannot be shared. */
#include "tests/conform/conform.h"

static CUmemPoolProps managed_props(void)
{
    return (CUmemPoolProps){
        .allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, machine.device},
    };
}

CASE(pool_of_managed_memory_is_made)
{
    CUmemPoolProps props = managed_props();
    CUmemoryPool pool = NULL;
    REQUIRE_OK(cu->cuMemPoolCreate(&pool, &props));
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
}

CASE(pool_of_managed_memory_with_fd_is_refused)
{
    CUmemPoolProps props = managed_props();
    CUmemoryPool pool = NULL;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT_INVALID(cu->cuMemPoolCreate(&pool, &props));
}

CASE(pool_of_device_memory_with_fd_is_made)
{
    CUmemPoolProps props = managed_props();
    CUmemoryPool pool = NULL;
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    REQUIRE_OK(cu->cuMemPoolCreate(&pool, &props));
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
}

CASE(pool_of_nonsense_is_refused)
{
    CUmemPoolProps props = managed_props();
    CUmemoryPool pool = NULL;
    EXPECT_INVALID(cu->cuMemPoolCreate(NULL, &props));
    EXPECT_INVALID(cu->cuMemPoolCreate(&pool, NULL));
    props.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    EXPECT_INVALID(cu->cuMemPoolCreate(&pool, &props));
}

CASE(pool_by_default_keeps_its_release_threshold)
{
    CUmemoryPool pool = NULL, again = NULL;
    uint64_t before = 7, wanted = 64 * MIB, now = 0;
    REQUIRE_OK(cu->cuDeviceGetDefaultMemPool(&pool, machine.device));
    EXPECT_OK(cu->cuDeviceGetDefaultMemPool(&again, machine.device));
    EXPECT_U64((uintptr_t)again, (uintptr_t)pool);
    REQUIRE_OK(cu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &before));
    EXPECT_U64(before, 0);
    REQUIRE_OK(cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted));
    EXPECT_OK(cu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &now));
    EXPECT_U64(now, wanted);
    EXPECT_OK(cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &before));
    EXPECT_OK(cu->cuMemPoolTrimTo(pool, 0));
}

CASE(pool_by_default_of_nonsense_is_refused)
{
    CUmemoryPool pool = NULL;
    REQUIRE_OK(cu->cuDeviceGetDefaultMemPool(&pool, machine.device));
    EXPECT_INVALID(cu->cuDeviceGetDefaultMemPool(NULL, machine.device));
    EXPECT(cu->cuDeviceGetDefaultMemPool(&pool, 1000), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_INVALID(cu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL));
}

CASE(managed_memory_is_shared_with_the_cpu)
{
    CUdeviceptr at = 0;
    volatile uint32_t *word;
    REQUIRE_OK(cu->cuMemAllocManaged(&at, 64 * KIB, CU_MEM_ATTACH_GLOBAL));
    own(OWN_ALLOC, at, 64 * KIB);
    word = (volatile uint32_t *)(uintptr_t)at;
    word[7] = 70;
    EXPECT_U64(kernel_read(at + 28), 70);
    EXPECT_OK(kernel_try_write(at + 28, 71));
    EXPECT_U64(word[7], 71);
}

CASE(managed_memory_of_nonsense_is_refused)
{
    CUdeviceptr at;
    EXPECT_INVALID(cu->cuMemAllocManaged(NULL, 4096, CU_MEM_ATTACH_GLOBAL));
    EXPECT_INVALID(cu->cuMemAllocManaged(&at, 0, CU_MEM_ATTACH_GLOBAL));
    EXPECT_INVALID(cu->cuMemAllocManaged(&at, 4096, 0));
    EXPECT_INVALID(cu->cuMemAllocManaged(&at, 4096, 77));
}

CASE(async_alloc_and_free_in_stream_order)
{
    enum { WORDS = 1024 };
    static uint32_t words[WORDS];
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAllocAsync(&at, sizeof words, stream));
    EXPECT_OK(cu->cuMemsetD32Async(at, 77, WORDS, stream));
    EXPECT_OK(cu->cuMemcpyDtoHAsync(words, at, sizeof words, stream));
    EXPECT_OK(cu->cuMemFreeAsync(at, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    for (unsigned i = 0; i < WORDS; i += WORDS - 1)
        EXPECT_U64(words[i], 77);
}

CASE(async_memory_is_freed_by_free)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAllocAsync(&at, MIB, stream));
    REQUIRE_OK(cu->cuStreamSynchronize(stream));
    EXPECT_OK(kernel_try_write(at, 4));
    EXPECT_OK(cu->cuMemFree(at));
}

CASE(async_free_takes_plain_allocations)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = take_alloc(4 * MIB);
    REQUIRE_OK(cu->cuMemFreeAsync(at, stream));
    disown(OWN_ALLOC, at);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
}

CASE(async_free_twice_is_refused)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAllocAsync(&at, MIB, stream));
    EXPECT_OK(cu->cuMemFreeAsync(at, stream));
    EXPECT_INVALID(cu->cuMemFreeAsync(at, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
}

CASE(async_alloc_of_nonsense_is_refused)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_INVALID(cu->cuMemAllocAsync(NULL, MIB, stream));
    EXPECT_INVALID(cu->cuMemFreeAsync(0xdead0000, stream));
}

CASE(async_alloc_of_size_zero_succeeds)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at;
    EXPECT_OK(cu->cuMemAllocAsync(&at, 0, stream));
}
