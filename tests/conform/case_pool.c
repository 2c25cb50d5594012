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

/* ---- what is allocated from a pool, and who may access it */

static CUmemoryPool make_pool(size_t limit)
{
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, machine.device},
        .maxSize = limit,
    };
    CUmemoryPool pool = NULL;
    REQUIRE_OK(cu->cuMemPoolCreate(&pool, &props));
    return pool;
}

static uint64_t pool_figure(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    uint64_t value = 0;
    REQUIRE_OK(cu->cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

CASE(pool_gives_memory_and_counts_it)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool = make_pool(0);
    CUdeviceptr at = 0;
    uint64_t zero = 0, one = 1;
    REQUIRE_OK(cu->cuMemAllocFromPoolAsync(&at, 4 * MIB, pool, stream));
    EXPECT_OK(cu->cuMemsetD32Async(at, 7, MIB, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(at + 4 * MIB - 4), 7);
    EXPECT_U64(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4 * MIB);
    EXPECT_TRUE(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * MIB);
    EXPECT_OK(cu->cuMemFreeAsync(at, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    EXPECT_U64(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 4 * MIB);
    EXPECT_OK(cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    EXPECT_U64(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    EXPECT_INVALID(cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &one));
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
}

CASE(pool_gives_no_more_than_its_limit)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool = make_pool(64 * MIB);
    CUdeviceptr at = 0;
    EXPECT(cu->cuMemAllocFromPoolAsync(&at, 256 * MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE_OK(cu->cuMemAllocFromPoolAsync(&at, MIB, pool, stream));
    EXPECT_OK(cu->cuMemFreeAsync(at, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
}

CASE(pool_destroyed_keeps_what_is_allocated)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool = make_pool(0);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAllocFromPoolAsync(&at, MIB, pool, stream));
    REQUIRE_OK(cu->cuStreamSynchronize(stream));
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
    write_word(at, 8);
    EXPECT_U64(read_word(at), 8);
    EXPECT_OK(cu->cuMemFreeAsync(at, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
}

CASE(pool_of_the_device_can_be_replaced)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool = make_pool(0), by_default = NULL, now = NULL;
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuDeviceGetDefaultMemPool(&by_default, machine.device));
    REQUIRE_OK(cu->cuDeviceGetMemPool(&now, machine.device));
    EXPECT_TRUE(now == by_default);
    REQUIRE_OK(cu->cuDeviceSetMemPool(machine.device, pool));
    EXPECT_OK(cu->cuDeviceGetMemPool(&now, machine.device));
    EXPECT_TRUE(now == pool);
    REQUIRE_OK(cu->cuMemAllocAsync(&at, MIB, stream));
    REQUIRE_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
    EXPECT_OK(cu->cuMemFreeAsync(at, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
    EXPECT_OK(cu->cuDeviceGetMemPool(&now, machine.device));
    EXPECT_TRUE(now == by_default);
}

CASE(pool_calls_with_nonsense_are_refused)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool = make_pool(0), none = NULL;
    CUmemAccessDesc desc = device_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemAccess_flags flags = 0;
    EXPECT_INVALID(cu->cuMemAllocFromPoolAsync(NULL, MIB, pool, stream));
    EXPECT_INVALID(cu->cuDeviceGetMemPool(NULL, machine.device));
    EXPECT_INVALID(cu->cuDeviceGetMemPool(&none, 1000));
    EXPECT_INVALID(cu->cuDeviceSetMemPool(1000, pool));
    EXPECT_INVALID(cu->cuMemPoolGetAccess(NULL, pool, &desc.location));
    EXPECT_INVALID(cu->cuMemPoolSetAccess(pool, NULL, 1));
    desc.location.id = machine.device_count;
    EXPECT(cu->cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_INVALID(cu->cuMemPoolGetAccess(&flags, pool, &desc.location));
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
}

CASE(pool_by_default_is_not_destroyed)
{
    CUmemoryPool pool = NULL;
    REQUIRE_OK(cu->cuDeviceGetDefaultMemPool(&pool, machine.device));
    EXPECT_INVALID(cu->cuMemPoolDestroy(pool));
}

CASE(pool_is_accessed_by_its_own_device)
{
    CUmemoryPool pool = make_pool(0);
    CUmemAccessDesc desc = device_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemAccess_flags flags = 7;
    EXPECT_OK(cu->cuMemPoolGetAccess(&flags, pool, &desc.location));
    EXPECT_U64(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_OK(cu->cuMemPoolSetAccess(pool, &desc, 1));
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE; /* not the manual's word, but nothing could use it then */
    EXPECT(cu->cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
}

CASE(pool_is_accessed_by_a_peer_that_was_granted_it)
{
    CUmemoryPool pool = make_pool(0);
    CUmemAccessDesc desc = device_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemAccess_flags flags = 7;
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAllocFromPoolAsync(&at, MIB, pool, NULL));
    REQUIRE_OK(cu->cuCtxSynchronize());
    write_word(at, 9);
    REQUIRE_OK(cu->cuCtxSynchronize());
    desc.location.id = 1;
    EXPECT_OK(cu->cuMemPoolGetAccess(&flags, pool, &desc.location));
    EXPECT_U64(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    REQUIRE_OK(cu->cuMemPoolSetAccess(pool, &desc, 1));
    EXPECT_OK(cu->cuMemPoolGetAccess(&flags, pool, &desc.location));
    EXPECT_U64(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    use_device(1);
    EXPECT_U64(kernel_read(at), 9);
    EXPECT_OK(kernel_try_write(at, 10));
    use_device(0);
    EXPECT_U64(read_word(at), 10);
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    EXPECT_OK(cu->cuMemPoolSetAccess(pool, &desc, 1));
    EXPECT_OK(cu->cuMemPoolGetAccess(&flags, pool, &desc.location));
    EXPECT_U64(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT_OK(cu->cuMemFree(at));
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
}

/* Not seen on two real devices: the copy may go by way of the host. */
CASE(pool_without_access_copied_by_a_peer)
{
    CUmemoryPool pool = make_pool(0);
    CUdeviceptr at = 0, there;
    REQUIRE_OK(cu->cuMemAllocFromPoolAsync(&at, MIB, pool, NULL));
    REQUIRE_OK(cu->cuCtxSynchronize());
    use_device(1);
    there = take_alloc(MIB);
    EXPECT_ANY(cu->cuMemcpyDtoD(there, at, MIB), CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS);
    EXPECT_OK(cu->cuCtxSynchronize());
    use_device(0);
    EXPECT_OK(cu->cuMemFree(at));
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
}

CASE(pool_of_another_device_is_not_the_devices_own)
{
    CUmemoryPool pool = make_pool(0);
    EXPECT_ANY(cu->cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE);
    EXPECT_OK(cu->cuMemPoolDestroy(pool));
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
