/* Handles: memory without an address.
 *
 * Undefined and not tested, here and in the other files: using a handle value that was released, or
 * that is nonsense. NVIDIA's driver takes the value for an address and dies by SIGSEGV sooner or
 * later; the software GPU answers CUDA_ERROR_INVALID_VALUE.
 */
#include "tests/conform/conform.h"

static CUresult try_create(size_t size, CUmemAllocationProp prop)
{
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cu->cuMemCreate(&handle, size, &prop, 0);
    if (result == CUDA_SUCCESS)
        own(OWN_HANDLE, handle, size);
    return result;
}

CASE(granularity_is_2_mib)
{
    CUmemAllocationProp prop = device_prop();
    size_t least = 0, best = 0;
    EXPECT_OK(cu->cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT_OK(cu->cuMemGetAllocationGranularity(&best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    EXPECT_U64(least, 2 * MIB);
    EXPECT_U64(best, 2 * MIB);
}

CASE(granularity_without_handle_type_is_2_mib)
{
    CUmemAllocationProp prop = device_prop();
    size_t least = 0;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    EXPECT_OK(cu->cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT_U64(least, 2 * MIB);
}

CASE(granularity_of_host_memory_is_2_mib)
{
    EXPECT_U64(machine.host_granule, 2 * MIB);
}

CASE(granularity_of_nonsense_is_refused)
{
    CUmemAllocationProp prop = device_prop();
    size_t size;
    EXPECT_INVALID(cu->cuMemGetAllocationGranularity(NULL, &prop, 0));
    EXPECT_INVALID(cu->cuMemGetAllocationGranularity(&size, NULL, 0));
    EXPECT_INVALID(cu->cuMemGetAllocationGranularity(&size, &prop, 7));
}

CASE(granularity_does_not_look_at_the_location)
{
    CUmemAllocationProp prop = device_prop();
    size_t size;
    prop.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    EXPECT_OK(cu->cuMemGetAllocationGranularity(&size, &prop, 0));
}

CASE(vmm_create_takes_and_release_gives_memory)
{
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = take_handle(64 * MIB);
    EXPECT_U64(before - free_bytes(), 64 * MIB);
    drop(OWN_HANDLE, handle);
    EXPECT_U64(free_bytes(), before);
}

/* The library shows new memory to other processes and does not fill it first. */
CASE(vmm_create_after_release_gives_zeros)
{
    const size_t size = 16 * MIB, words = size / sizeof(uint32_t);
    const size_t all = free_bytes() / 2 / size;

    for (int round = 0; round < 2; round++) /* the second is given what the first has written */
        for (size_t i = 0; i < all && i < 8; i++) {
            CUmemGenericAllocationHandle handle = take_handle(size);
            CUdeviceptr at = take_mapped(size, handle);

            EXPECT_TRUE(words_are(at, words, 0, 0));
            EXPECT_OK(cu->cuMemsetD32Async(at, 0xABABABABu, words, NULL));
            EXPECT_OK(cu->cuStreamSynchronize(NULL));
            drop(OWN_MAPPING, at);
            drop(OWN_RANGE, at);
            drop(OWN_HANDLE, handle);
        }
}

CASE(vmm_create_of_size_zero_is_refused)
{
    EXPECT_INVALID(try_create(0, device_prop()));
}

CASE(vmm_create_of_unaligned_size_is_refused)
{
    EXPECT_INVALID(try_create(machine.granule + 1, device_prop()));
    EXPECT_INVALID(try_create(machine.granule / 2, device_prop()));
    EXPECT_INVALID(try_create(machine.granule + 4096, device_prop()));
}

CASE(vmm_create_of_odd_granules_succeeds)
{
    EXPECT_OK(try_create(3 * machine.granule, device_prop()));
    EXPECT_OK(try_create(7 * machine.granule, device_prop()));
}

CASE(vmm_create_without_output_is_refused)
{
    CUmemAllocationProp prop = device_prop();
    EXPECT_INVALID(cu->cuMemCreate(NULL, machine.granule, &prop, 0));
}

CASE(vmm_create_without_properties_is_refused)
{
    CUmemGenericAllocationHandle handle;
    EXPECT_INVALID(cu->cuMemCreate(&handle, machine.granule, NULL, 0));
}

CASE(vmm_create_with_unknown_flags_is_refused)
{
    CUmemAllocationProp prop = device_prop();
    CUmemGenericAllocationHandle handle;
    EXPECT_INVALID(cu->cuMemCreate(&handle, machine.granule, &prop, 1ull << 40));
}

CASE(vmm_create_of_invalid_type_is_refused)
{
    CUmemAllocationProp prop = device_prop();
    prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    EXPECT_INVALID(try_create(machine.granule, prop));
    prop.type = 77;
    EXPECT_INVALID(try_create(machine.granule, prop));
}

CASE(vmm_create_of_managed_type_is_refused)
{
    CUmemAllocationProp prop = device_prop();
    prop.type = CU_MEM_ALLOCATION_TYPE_MANAGED;
    EXPECT_INVALID(try_create(machine.granule, prop));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    EXPECT_INVALID(try_create(machine.granule, prop));
}

CASE(vmm_create_at_invalid_location_is_refused)
{
    CUmemAllocationProp prop = device_prop();
    prop.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    EXPECT_INVALID(try_create(machine.granule, prop));
    prop.location.type = 77;
    EXPECT_INVALID(try_create(machine.granule, prop));
}

CASE(vmm_create_on_missing_device_is_refused)
{
    CUmemAllocationProp prop = device_prop();
    prop.location.id = machine.device_count;
    EXPECT(try_create(machine.granule, prop), CUDA_ERROR_INVALID_DEVICE);
    prop.location.id = -1;
    EXPECT(try_create(machine.granule, prop), CUDA_ERROR_INVALID_DEVICE);
}

CASE(vmm_create_for_win32_is_refused)
{
    CUmemAllocationProp prop = device_prop();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32;
    EXPECT_INVALID(try_create(machine.granule, prop));
}

/* A device that says that it can, does; the handle tells. */
CASE(vmm_create_for_rdma_is_told_by_the_handle)
{
    CUmemAllocationProp prop = device_prop(), told;
    CUmemGenericAllocationHandle handle;
    int can = 0;
    EXPECT_OK(cu->cuDeviceGetAttribute(
        &can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, machine.device));
    if (!can)
        return;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    REQUIRE_OK(cu->cuMemCreate(&handle, machine.granule, &prop, 0));
    EXPECT_OK(cu->cuMemGetAllocationPropertiesFromHandle(&told, handle));
    EXPECT_U64(told.allocFlags.gpuDirectRDMACapable, 1);
    EXPECT_OK(cu->cuMemRelease(handle));
}

/* The manual knows 0 and 1. */
CASE(vmm_create_for_rdma_of_another_value_succeeds)
{
    CUmemAllocationProp prop = device_prop();
    prop.allocFlags.gpuDirectRDMACapable = 2;
    EXPECT_OK(try_create(machine.granule, prop));
}

/* What an importer gets is reached by network cards as it was made, but its handle does not say so. */
CASE(vmm_create_for_rdma_is_shared_as_any_other)
{
    CUmemAllocationProp prop = device_prop(), told;
    CUmemGenericAllocationHandle handle, imported;
    CUmemAccessDesc access = device_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr at;
    size_t granule = 0;
    int can = 0;
    EXPECT_OK(cu->cuDeviceGetAttribute(
        &can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, machine.device));
    if (!can)
        return;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    EXPECT_OK(cu->cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT_TRUE(granule > 0 && granule % machine.granule == 0);
    REQUIRE_OK(cu->cuMemCreate(&handle, granule, &prop, 0));
    own(OWN_HANDLE, handle, granule);
    at = take_range(granule);
    take_mapping(at, granule, handle);
    EXPECT_OK(cu->cuMemSetAccess(at, granule, &access, 1));
    write_word(at, 46);
    EXPECT_U64(read_word(at), 46);
    imported = take_import(take_export(handle));
    EXPECT_OK(cu->cuMemGetAllocationPropertiesFromHandle(&told, imported));
    EXPECT_U64(told.allocFlags.gpuDirectRDMACapable, 0);
}

/* Only device memory is what the flag is for. */
CASE(vmm_create_for_rdma_of_host_memory_is_refused)
{
    CUmemAllocationProp prop = host_prop();
    prop.allocFlags.gpuDirectRDMACapable = 1;
    EXPECT_INVALID(try_create(machine.host_granule, prop));
}

/* Depends on the machine: a fabric handle wants a fabric that is set up. An H100 in a virtual
 * machine says NOT_PERMITTED; the software GPU has no such attribute and says NOT_SUPPORTED. */
CASE(vmm_create_for_fabric)
{
    CUmemAllocationProp prop = device_prop();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT_ANY(try_create(machine.granule, prop), CUDA_SUCCESS, CUDA_ERROR_NOT_PERMITTED,
               CUDA_ERROR_NOT_SUPPORTED);
}

CASE(vmm_create_at_host_location_works_without_fd_only)
{
    CUmemAllocationProp prop = device_prop();
    prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0};
    EXPECT_INVALID(try_create(machine.granule, prop));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    EXPECT_OK(try_create(machine.granule, prop));
}

CASE(vmm_create_at_current_numa_node_is_refused)
{
    CUmemAllocationProp prop = host_prop();
    prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0};
    EXPECT_INVALID(try_create(machine.granule, prop));
}

CASE(vmm_create_at_missing_numa_node_is_refused)
{
    CUmemAllocationProp prop = host_prop();
    prop.location.id = 1000;
    EXPECT_INVALID(try_create(machine.granule, prop));
    prop.location.id = -1;
    EXPECT_INVALID(try_create(machine.granule, prop));
}

CASE(vmm_create_of_host_memory_takes_no_device_memory)
{
    size_t before = free_bytes();
    take_host_handle(16 * MIB);
    EXPECT_U64(free_bytes(), before);
}

CASE(vmm_create_gives_different_handles)
{
    CUmemGenericAllocationHandle one = take_handle(machine.granule);
    CUmemGenericAllocationHandle two = take_handle(machine.granule);
    EXPECT_TRUE(one != two);
}

CASE(vmm_create_256_handles_counts_each)
{
    size_t before = free_bytes();
    for (int i = 0; i < 256; i++)
        take_handle(machine.granule);
    EXPECT_U64(before - free_bytes(), 256 * machine.granule);
}

CASE(vmm_release_of_null_is_refused)
{
    EXPECT_INVALID(cu->cuMemRelease(0));
}

static void expect_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp want)
{
    CUmemAllocationProp got = {0};
    REQUIRE_OK(cu->cuMemGetAllocationPropertiesFromHandle(&got, handle));
    EXPECT_U64(got.type, want.type);
    EXPECT_U64(got.requestedHandleTypes, want.requestedHandleTypes);
    EXPECT_U64(got.location.type, want.location.type);
    EXPECT_U64(got.location.id, want.location.id);
}

CASE(properties_of_device_handle_are_those_asked_for)
{
    expect_properties(take_handle(machine.granule), device_prop());
}

CASE(properties_of_handle_without_fd_are_those_asked_for)
{
    CUmemAllocationProp prop = device_prop();
    CUmemGenericAllocationHandle handle = 0;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    REQUIRE_OK(cu->cuMemCreate(&handle, machine.granule, &prop, 0));
    own(OWN_HANDLE, handle, machine.granule);
    expect_properties(handle, prop);
}

CASE(properties_of_host_handle_are_those_asked_for)
{
    expect_properties(take_host_handle(machine.granule), host_prop());
}

CASE(properties_of_imported_handle_have_no_handle_type)
{
    CUmemAllocationProp want = device_prop();
    want.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    expect_properties(take_import(take_export(take_handle(machine.granule))), want);
}

CASE(properties_of_imported_host_handle_have_no_handle_type)
{
    CUmemAllocationProp want = host_prop();
    want.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    expect_properties(take_import(take_export(take_host_handle(machine.granule))), want);
}

CASE(properties_without_output_are_refused)
{
    EXPECT_INVALID(cu->cuMemGetAllocationPropertiesFromHandle(NULL, take_handle(machine.granule)));
}

CASE(retain_of_mapped_address_gives_the_handle)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule), again = 0;
    CUdeviceptr at = take_mapped(machine.granule, handle);
    REQUIRE_OK(cu->cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 4096)));
    own(OWN_HANDLE, again, machine.granule);
    EXPECT_U64(again, handle);
}

CASE(retain_keeps_memory_after_release_and_unmap)
{
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = take_handle(machine.granule), again = 0;
    CUdeviceptr range = take_range(machine.granule), at;
    take_mapping(range, machine.granule, handle);
    give_access(range, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    write_word(range, 4711);
    REQUIRE_OK(cu->cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)range));
    drop(OWN_HANDLE, handle);
    own(OWN_HANDLE, again, machine.granule);
    drop(OWN_MAPPING, range);
    EXPECT_U64(before - free_bytes(), machine.granule);
    at = take_mapped(machine.granule, again);
    EXPECT_U64(read_word(at), 4711);
}

CASE(retain_of_unmapped_address_is_refused)
{
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr range = take_range(machine.granule);
    EXPECT_INVALID(cu->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)range));
}

CASE(retain_of_plain_allocation_is_refused)
{
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = take_alloc(machine.granule);
    EXPECT_INVALID(cu->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at));
    EXPECT_INVALID(cu->cuMemRetainAllocationHandle(NULL, (void *)(uintptr_t)at));
}
