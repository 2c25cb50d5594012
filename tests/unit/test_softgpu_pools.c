/* softgpu/pool.c: what the conformance table cannot hold, because it was not measured on a real device, or is
 * otherwise there. Memory that a peer was not granted is not copied by it; pools of host and managed memory give such memory;
 * what a limit or a reset takes away is there again.
 *
 * Each test is a child with a machine of its own.
 */
#include "tests/unit/unit.h"

#include "driver/driver.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define CHUNK (2 * MIB)

static int begin(CUcontext contexts[2])
{
    fixture_machine("devices=2,memory=64MiB,host=32MiB,sms=1");
    unsetenv("GVMEM_TRACE");
    unsetenv("GVMEM_FAULT");
    unsetenv("GVMEM_CHECK");
    CHILD_EXPECT(gvmi_driver_start() == GVM_OK);
    for (int device = 1; device >= 0; device--) {
        CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&contexts[device], device) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(contexts[device]) == CUDA_SUCCESS);
    }
    return 0;
}

static CUresult make_pool(CUmemoryPool *pool, CUmemAllocationType type, CUmemLocationType where,
                          size_t limit)
{
    const CUmemPoolProps props = {.allocType = type, .location = {where, 0}, .maxSize = limit};

    return gvmi_cu->cuMemPoolCreate(pool, &props);
}

static CUresult grant(CUmemoryPool pool, CUmemLocationType who, int id, CUmemAccess_flags flags)
{
    const CUmemAccessDesc desc = {{who, id}, flags};

    return gvmi_cu->cuMemPoolSetAccess(pool, &desc, 1);
}

static int copy_by_a_peer(void *arg)
{
    CUcontext contexts[2];
    CUmemoryPool pool;
    CUdeviceptr from, to;

    (void)arg;
    CHILD_EXPECT(begin(contexts) == 0);
    CHILD_EXPECT(make_pool(&pool, CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAllocFromPoolAsync(&from, CHUNK, pool, NULL) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(contexts[1]) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAlloc(&to, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemcpyDtoD(to, from, CHUNK) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(grant(pool, CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemcpyDtoD(to, from, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(grant(pool, CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemcpyDtoD(to, from, CHUNK) == CUDA_ERROR_INVALID_VALUE);
    /* All or nothing: the second is of no device. */
    const CUmemAccessDesc both[] = {
        {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {{CU_MEM_LOCATION_TYPE_DEVICE, 2}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    CHILD_EXPECT(gvmi_cu->cuMemPoolSetAccess(pool, both, 2) == CUDA_ERROR_INVALID_DEVICE);
    CHILD_EXPECT(gvmi_cu->cuMemcpyDtoD(to, from, CHUNK) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(grant(pool, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE) ==
                 CUDA_ERROR_INVALID_DEVICE);
    CHILD_EXPECT(grant(pool, CU_MEM_LOCATION_TYPE_HOST, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ==
                 CUDA_ERROR_NOT_SUPPORTED);
    return 0;
}

CHILD_TEST(pool_without_a_grant_is_not_copied_by_a_peer, copy_by_a_peer)

static int take_other_kinds(void *arg)
{
    CUcontext contexts[2];
    CUmemoryPool host, managed;
    CUdeviceptr at;
    int is_managed = 0;

    (void)arg;
    CHILD_EXPECT(begin(contexts) == 0);
    CHILD_EXPECT(make_pool(&host, CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST, 0) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(make_pool(&managed, CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE,
                           0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuDeviceSetMemPool(0, host) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuMemAllocFromPoolAsync(&at, CHUNK, host, NULL) == CUDA_SUCCESS);
    *(volatile uint32_t *)(uintptr_t)at = 3;
    CHILD_EXPECT(gvmi_cu->cuMemAllocFromPoolAsync(&at, 64 * MIB, host, NULL) ==
                 CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(gvmi_cu->cuMemAllocFromPoolAsync(&at, 128 * MIB, managed, NULL) == CUDA_SUCCESS);
    *(volatile uint32_t *)(uintptr_t)at = 4;
    CHILD_EXPECT(gvmi_cu->cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(is_managed == 1);
    CHILD_EXPECT(gvmi_cu->cuMemFreeAsync(at, NULL) == CUDA_SUCCESS);
    return 0;
}

CHILD_TEST(pool_of_host_and_managed_memory_gives_such_memory, take_other_kinds)

static int come_back(void *arg)
{
    CUcontext contexts[2], again;
    CUmemoryPool pool;
    CUdeviceptr at;
    uint64_t used = 1;

    (void)arg;
    CHILD_EXPECT(begin(contexts) == 0);
    CHILD_EXPECT(make_pool(&pool, CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE,
                           48 * MIB) == CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) { /* a failure takes nothing off the limit */
        CHILD_EXPECT(gvmi_cu->cuMemAllocFromPoolAsync(&at, 49 * MIB, pool, NULL) ==
                     CUDA_ERROR_OUT_OF_MEMORY);
        CHILD_EXPECT(gvmi_cu->cuMemAllocFromPoolAsync(&at, 48 * MIB, pool, NULL) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuMemFreeAsync(at, NULL) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuCtxSynchronize() == CUDA_SUCCESS);
    }
    CHILD_EXPECT(gvmi_cu->cuMemAllocFromPoolAsync(&at, 48 * MIB, pool, NULL) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAllocAsync(&at, 48 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&again, 0) == CUDA_SUCCESS && again == contexts[0]);
    CHILD_EXPECT(gvmi_cu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(used == 0);
    CHILD_EXPECT(gvmi_cu->cuMemAllocAsync(&at, 48 * MIB, NULL) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemPoolDestroy(pool) == CUDA_ERROR_INVALID_VALUE);
    return 0;
}

CHILD_TEST(pool_memory_taken_by_failures_and_a_reset_is_there_again, come_back)

static int fail_to_allocate(void *arg)
{
    CUcontext contexts[2];
    CUmemoryPool pool;
    CUdeviceptr at;
    uint64_t used = 0, reserved = 0;

    (void)arg;
    CHILD_EXPECT(begin(contexts) == 0);
    CHILD_EXPECT(gvmi_cu->cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAllocAsync(&at, CHUNK, NULL) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAllocAsync(&at, 128 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(gvmi_cu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &reserved) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(used == CHUNK && reserved == CHUNK);
    return 0;
}

CHILD_TEST(pool_counts_no_failed_allocation_as_its_highest_use, fail_to_allocate)

static uint64_t used_by(CUmemoryPool pool)
{
    uint64_t used = UINT64_MAX;

    (void)gvmi_cu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    return used;
}

/* A pool is its device's: its memory goes with the last context that can use it. */
static int end_the_primary_first(void *arg)
{
    CUcontext contexts[2], created;
    CUmemoryPool pool;
    CUdeviceptr at;

    (void)arg;
    CHILD_EXPECT(begin(contexts) == 0);
    CHILD_EXPECT(gvmi_cu->cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&created, NULL, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAllocAsync(&at, CHUNK, NULL) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemsetD8(at, 1, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemsetD8(at, 2, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(used_by(pool) == CHUNK);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(created) == CUDA_SUCCESS);
    CHILD_EXPECT(used_by(pool) == 0);
    return 0;
}

CHILD_TEST(pool_memory_stays_as_long_as_its_device_has_a_context, end_the_primary_first)

/* What is queued waits for this thread. */
static int fail_beside_a_wait(void *arg)
{
    CUcontext contexts[2];
    CUstream waiting, other;
    CUdeviceptr at;
    uint32_t *gate;

    (void)arg;
    CHILD_EXPECT(begin(contexts) == 0);
    CHILD_EXPECT(gvmi_cu->cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemHostAlloc((void **)&gate, sizeof *gate, 0) == CUDA_SUCCESS);
    *gate = 0;
    CHILD_EXPECT(gvmi_cu->cuStreamWaitValue32(waiting, (CUdeviceptr)(uintptr_t)gate, 1,
                                              CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) { /* the second time after a free that has ended */
        CHILD_EXPECT(gvmi_cu->cuMemAllocAsync(&at, 1ull << 40, other) == CUDA_ERROR_OUT_OF_MEMORY);
        CHILD_EXPECT(gvmi_cu->cuMemAllocAsync(&at, CHUNK, other) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuMemFreeAsync(at, other) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(other) == CUDA_SUCCESS);
    }
    CHILD_EXPECT(gvmi_cu->cuStreamQuery(waiting) == CUDA_ERROR_NOT_READY);
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(waiting) == CUDA_SUCCESS);
    return 0;
}

CHILD_TEST(pool_without_queued_frees_refuses_what_does_not_fit_at_once, fail_beside_a_wait)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_without_a_grant_is_not_copied_by_a_peer),
        cmocka_unit_test(pool_of_host_and_managed_memory_gives_such_memory),
        cmocka_unit_test(pool_memory_taken_by_failures_and_a_reset_is_there_again),
        cmocka_unit_test(pool_counts_no_failed_allocation_as_its_highest_use),
        cmocka_unit_test(pool_memory_stays_as_long_as_its_device_has_a_context),
        cmocka_unit_test(pool_without_queued_frees_refuses_what_does_not_fit_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
