/* Memory with an address of its own, and what is asked of addresses. */
#include <stdlib.h>

#include "tests/conform/conform.h"

CASE(alloc_is_written_and_read_by_kernels)
{
    size_t words = MIB;
    CUdeviceptr at = take_alloc(words * 4);
    kernel_fill(at, words, 1);
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 1));
}

CASE(alloc_of_size_zero_is_refused)
{
    CUdeviceptr at;
    EXPECT_INVALID(cu->cuMemAlloc(&at, 0));
}

CASE(alloc_without_output_is_refused)
{
    EXPECT_INVALID(cu->cuMemAlloc(NULL, MIB));
}

CASE(alloc_of_any_size_is_aligned_to_256)
{
    EXPECT_U64(take_alloc(1) % 256, 0);
    EXPECT_U64(take_alloc(3) % 256, 0);
    EXPECT_U64(take_alloc(257) % 256, 0);
    EXPECT_U64(take_alloc(MIB + 1) % 256, 0);
}

CASE(alloc_takes_and_free_gives_memory)
{
    size_t before = free_bytes();
    CUdeviceptr at = take_alloc(64 * MIB);
    EXPECT_U64(before - free_bytes(), 64 * MIB);
    drop(OWN_ALLOC, at);
    EXPECT_U64(free_bytes(), before);
}

CASE(free_of_null_does_nothing)
{
    EXPECT_OK(cu->cuMemFree(0));
}

CASE(free_of_interior_is_refused)
{
    CUdeviceptr at = take_alloc(MIB);
    EXPECT_INVALID(cu->cuMemFree(at + 256));
    EXPECT_INVALID(cu->cuMemFree(at + 1));
    EXPECT_OK(kernel_try_write(at, 1));
}

CASE(free_twice_is_refused)
{
    CUdeviceptr at = take_alloc(4 * MIB);
    drop(OWN_ALLOC, at);
    EXPECT_INVALID(cu->cuMemFree(at));
}

CASE(free_of_foreign_address_is_refused)
{
    int here = 0;
    EXPECT_INVALID(cu->cuMemFree((CUdeviceptr)(uintptr_t)&here));
    EXPECT_INVALID(cu->cuMemFree(0xdead0000));
}

CASE(free_of_virtual_memory_is_refused)
{
    CUdeviceptr at = take_memory(machine.granule);
    EXPECT_INVALID(cu->cuMemFree(at));
    EXPECT_INVALID(cu->cuMemFree(take_range(machine.granule)));
    EXPECT_OK(kernel_try_write(at, 1));
}

CASE(free_of_pinned_host_memory_is_refused)
{
    EXPECT_INVALID(cu->cuMemFree((CUdeviceptr)(uintptr_t)take_host(MIB)));
}

CASE(free_memory_is_within_the_device)
{
    size_t free_now = 0, total = 0;
    REQUIRE_OK(cu->cuMemGetInfo(&free_now, &total));
    EXPECT_TRUE(free_now > 0 && free_now <= total);
    EXPECT_U64(total, machine.total_bytes);
}

CASE(free_memory_takes_missing_outputs)
{
    size_t size = 0;
    EXPECT_OK(cu->cuMemGetInfo(NULL, &size));
    EXPECT_U64(size, machine.total_bytes);
    EXPECT_OK(cu->cuMemGetInfo(&size, NULL));
    EXPECT_TRUE(size > 0 && size < machine.total_bytes);
}

/* ---- which allocation an address belongs to */

static void expect_range(CUdeviceptr at, CUdeviceptr base, size_t size)
{
    CUdeviceptr got_base = 0;
    size_t got_size = 0;
    EXPECT_OK(cu->cuMemGetAddressRange(&got_base, &got_size, at));
    EXPECT_U64(got_base, base);
    EXPECT_U64(got_size, size);
}

CASE(address_range_of_interior_is_the_allocation)
{
    CUdeviceptr at = take_alloc(3 * MIB);
    expect_range(at, at, 3 * MIB);
    expect_range(at + MIB + 1, at, 3 * MIB);
    expect_range(at + 3 * MIB - 1, at, 3 * MIB);
}

CASE(address_range_of_small_allocation_is_its_size)
{
    CUdeviceptr at = take_alloc(1000);
    expect_range(at + 999, at, 1000);
}

CASE(address_range_takes_missing_outputs)
{
    CUdeviceptr at = take_alloc(MIB), base = 0;
    size_t size = 0;
    EXPECT_OK(cu->cuMemGetAddressRange(&base, NULL, at));
    EXPECT_U64(base, at);
    EXPECT_OK(cu->cuMemGetAddressRange(NULL, &size, at));
    EXPECT_U64(size, MIB);
}

CASE(address_range_of_nothing_is_refused)
{
    CUdeviceptr base, at = take_alloc(4 * MIB);
    size_t size;
    int here = 0;
    EXPECT(cu->cuMemGetAddressRange(&base, &size, (CUdeviceptr)(uintptr_t)&here), CUDA_ERROR_NOT_FOUND);
    drop(OWN_ALLOC, at);
    EXPECT(cu->cuMemGetAddressRange(&base, &size, at), CUDA_ERROR_NOT_FOUND);
}

CASE(address_range_of_virtual_memory_is_the_mapping)
{
    CUdeviceptr at = take_range(4 * machine.granule), base;
    size_t size;
    EXPECT(cu->cuMemGetAddressRange(&base, &size, at), CUDA_ERROR_NOT_FOUND);
    take_mapping(at + machine.granule, machine.granule, take_handle(machine.granule));
    give_access(at + machine.granule, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    expect_range(at + machine.granule + 4096, at + machine.granule, machine.granule);
}

/* ---- attributes of addresses */

static void expect_attribute(CUpointer_attribute which, CUdeviceptr at, uint64_t want)
{
    uint64_t value = 0; /* wide enough for every attribute, and little-endian */
    EXPECT_OK(cu->cuPointerGetAttribute(&value, which, at));
    EXPECT_U64(value, want);
}

static void expect_no_attribute(CUpointer_attribute which, CUdeviceptr at)
{
    uint64_t value = 0;
    EXPECT_INVALID(cu->cuPointerGetAttribute(&value, which, at));
}

/* What every address with memory tells: the memory, [at, at + size), belongs to the first device,
 * or to the host near it. */
static void expect_place(CUdeviceptr at, size_t size, unsigned type)
{
    expect_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 5, type);
    expect_attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at + 5, 0);
    expect_attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 5, at);
    expect_attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at + 5, size);
    expect_attribute(CU_POINTER_ATTRIBUTE_MAPPED, at + 5, 1);
}

/* Virtual memory has no context, no address for the CPU, and no CUDA IPC handle. */
static void expect_virtual(CUdeviceptr at, unsigned type)
{
    expect_place(at, machine.granule, type);
    expect_attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at, 0);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, at, 0);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at, 0);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, at);
}

CASE(attributes_of_allocation)
{
    CUdeviceptr at = take_alloc(3 * MIB);
    expect_place(at, 3 * MIB, CU_MEMORYTYPE_DEVICE);
    expect_attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at + 5, (uintptr_t)machine.context);
    expect_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 5, at + 5);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, at, 0);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at, 1);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, at);
}

CASE(attributes_of_virtual_memory)
{
    CUdeviceptr at = take_memory(machine.granule);
    expect_virtual(at, CU_MEMORYTYPE_DEVICE);
    expect_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 5, at + 5);
}

CASE(attributes_of_reservation_are_refused)
{
    CUdeviceptr at = take_range(machine.granule);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, at);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_MAPPED, at);
}

CASE(attributes_of_mapping_without_access)
{
    CUdeviceptr at = take_range(machine.granule);
    take_mapping(at, machine.granule, take_handle(machine.granule));
    expect_virtual(at, CU_MEMORYTYPE_DEVICE);
    expect_no_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at);
}

CASE(attributes_of_host_virtual_memory)
{
    CUdeviceptr at = take_mapped(machine.granule, take_host_handle(machine.granule));
    expect_virtual(at, CU_MEMORYTYPE_HOST);
    expect_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 5, at + 5);
}

CASE(attributes_of_pinned_host_memory)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)take_host(MIB);
    expect_place(at, MIB, CU_MEMORYTYPE_HOST);
    expect_attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at, (uintptr_t)machine.context);
    expect_attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, at + 5, at + 5);
    expect_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 5, at + 5);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, at, 0);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at, 0);
}

CASE(attributes_of_managed_memory)
{
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAllocManaged(&at, 64 * KIB, CU_MEM_ATTACH_GLOBAL));
    own(OWN_ALLOC, at, 64 * KIB);
    expect_place(at, 64 * KIB, CU_MEMORYTYPE_DEVICE);
    expect_attribute(CU_POINTER_ATTRIBUTE_CONTEXT, at, (uintptr_t)machine.context);
    expect_attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, at + 5, at + 5);
    expect_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 5, at + 5);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, at, 1);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at, 0);
}

CASE(attributes_of_foreign_memory_are_refused)
{
    unsigned type = 0;
    void *here = malloc(64);
    REQUIRE_TRUE(here != NULL);
    EXPECT_INVALID(cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                             (CUdeviceptr)(uintptr_t)here));
    free(here);
}

CASE(attributes_of_freed_memory_are_refused)
{
    unsigned type = 0;
    CUdeviceptr at = take_alloc(4 * MIB);
    drop(OWN_ALLOC, at);
    EXPECT_INVALID(cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
}

CASE(attributes_of_unknown_name_are_refused)
{
    uint64_t value = 0;
    CUdeviceptr at = take_alloc(MIB);
    EXPECT_INVALID(cu->cuPointerGetAttribute(&value, 9999, at));
    EXPECT_INVALID(cu->cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
}

CASE(attributes_tell_buffers_apart)
{
    CUdeviceptr one = take_alloc(MIB), two = take_alloc(MIB);
    unsigned long long id_one = 0, id_inside = 0, id_two = 0;
    EXPECT_OK(cu->cuPointerGetAttribute(&id_one, CU_POINTER_ATTRIBUTE_BUFFER_ID, one));
    EXPECT_OK(cu->cuPointerGetAttribute(&id_inside, CU_POINTER_ATTRIBUTE_BUFFER_ID, one + 100));
    EXPECT_OK(cu->cuPointerGetAttribute(&id_two, CU_POINTER_ATTRIBUTE_BUFFER_ID, two));
    EXPECT_U64(id_inside, id_one);
    EXPECT_TRUE(id_two != id_one);
}
