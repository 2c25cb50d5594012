/* Requests that cannot be met: they must answer so, change nothing, and leave the driver usable.
 * Large reservations are in case_reserve.c. */
#include "tests/conform/conform.h"

#define HUGE (1ull << 50) /* more than any machine has, less than a size that overflows */

static CUresult try_create(size_t size)
{
    CUmemAllocationProp prop = device_prop();
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cu->cuMemCreate(&handle, size, &prop, 0);
    if (result == CUDA_SUCCESS)
        own(OWN_HANDLE, handle, size);
    return result;
}

static size_t more_than_the_device(void)
{
    return machine.total_bytes / machine.granule * machine.granule + machine.granule;
}

/* Surely more than is free: NVIDIA's driver keeps some MiB that cuMemGetInfo does not count as free
 * and cuMemCreate may take. */
static size_t more_than_is_free(void)
{
    return free_bytes() / machine.granule * machine.granule + 256 * MIB;
}

CASE(create_of_more_than_the_device_is_out_of_memory)
{
    size_t before = free_bytes();
    EXPECT(try_create(more_than_the_device()), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_U64(free_bytes(), before);
    EXPECT_OK(try_create(machine.granule));
}

CASE(create_of_more_than_is_free_is_out_of_memory)
{
    size_t before = free_bytes();
    EXPECT(try_create(more_than_is_free()), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_U64(free_bytes(), before);
}

CASE(create_of_absurd_size_is_out_of_memory)
{
    EXPECT(try_create(HUGE), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(try_create(1ull << 63), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(try_create(0 - machine.granule), CUDA_ERROR_OUT_OF_MEMORY);
}

CASE(create_after_out_of_memory_succeeds)
{
    for (int i = 0; i < 5; i++)
        EXPECT(try_create(more_than_the_device()), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_OK(kernel_try_write(take_memory(64 * MIB), 1));
}

CASE(alloc_of_more_than_the_device_is_out_of_memory)
{
    size_t before = free_bytes();
    CUdeviceptr at;
    EXPECT(cu->cuMemAlloc(&at, more_than_the_device()), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TRUE(free_bytes() >= before); /* the driver may give up some of its own before it refuses */
    EXPECT_OK(kernel_try_write(take_alloc(MIB), 1));
}

CASE(alloc_of_absurd_size_is_out_of_memory)
{
    CUdeviceptr at;
    EXPECT(cu->cuMemAlloc(&at, HUGE), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu->cuMemAlloc(&at, ~(size_t)0), CUDA_ERROR_OUT_OF_MEMORY);
}

CASE(async_alloc_of_more_than_the_device_is_out_of_memory)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at;
    EXPECT(cu->cuMemAllocAsync(&at, more_than_the_device(), stream), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
}

CASE(host_alloc_of_absurd_size_is_out_of_memory)
{
    void *at;
    EXPECT(cu->cuMemHostAlloc(&at, HUGE, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

CASE(create_of_more_than_is_left_is_out_of_memory)
{
    size_t size = GIB;
    CUmemGenericAllocationHandle handle = take_handle(size);
    size_t left = free_bytes();
    EXPECT(try_create(more_than_is_free()), CUDA_ERROR_OUT_OF_MEMORY);
    drop(OWN_HANDLE, handle);
    EXPECT_U64(free_bytes(), left + size);
}

CASE(reservation_may_exceed_the_device)
{
    CUdeviceptr at = take_range(2 * more_than_the_device());
    take_mapping(at + more_than_the_device() / machine.granule * machine.granule, machine.granule,
                 take_handle(machine.granule));
}
