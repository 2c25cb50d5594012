/* Access rights of mappings: who may read and write, and how that is asked. What happens on a
 * breach is in case_fault.c. */
#include "tests/conform/conform.h"

static CUresult set(CUdeviceptr at, size_t size, CUmemAccessDesc access)
{
    return cu->cuMemSetAccess(at, size, &access, 1);
}

static void expect_access(CUdeviceptr at, CUmemAccessDesc want)
{
    unsigned long long flags = 77;
    EXPECT_OK(cu->cuMemGetAccess(&flags, &want.location, at));
    EXPECT_U64(flags, want.flags);
}

static const CUmemAccess_flags none = CU_MEM_ACCESS_FLAGS_PROT_NONE;
static const CUmemAccess_flags reads = CU_MEM_ACCESS_FLAGS_PROT_READ;
static const CUmemAccess_flags writes = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

/* A mapping that nobody was given access to. */
static CUdeviceptr take_closed(size_t size)
{
    CUdeviceptr at = take_range(size);
    take_mapping(at, size, take_handle(size));
    return at;
}

CASE(access_of_new_mapping_is_none)
{
    expect_access(take_closed(machine.granule), device_access(none));
}

CASE(access_set_is_what_is_asked_back)
{
    CUdeviceptr at = take_closed(machine.granule);
    give_access(at, machine.granule, reads);
    expect_access(at, device_access(reads));
    expect_access(at + machine.granule - 1, device_access(reads));
    give_access(at, machine.granule, writes);
    expect_access(at, device_access(writes));
}

CASE(access_none_takes_it_away)
{
    CUdeviceptr at = take_memory(machine.granule);
    EXPECT_OK(set(at, machine.granule, device_access(none)));
    expect_access(at, device_access(none));
}

CASE(access_read_only_in_place_keeps_content_readable)
{
    CUdeviceptr at = take_memory(machine.granule);
    kernel_fill(at, machine.granule / 4, 21);
    give_access(at, machine.granule, reads);
    EXPECT_U64(kernel_sum(at, machine.granule / 4), sum_of_fill(machine.granule / 4, 21));
    EXPECT_U64(read_word(at), 21);
}

CASE(access_read_only_then_writable_again)
{
    CUdeviceptr at = take_memory(machine.granule);
    give_access(at, machine.granule, reads);
    give_access(at, machine.granule, writes);
    EXPECT_OK(kernel_try_write(at, 8));
    EXPECT_U64(read_word(at), 8);
}

CASE(access_of_unmapped_range_is_refused)
{
    CUdeviceptr at = take_range(machine.granule);
    EXPECT_INVALID(set(at, machine.granule, device_access(writes)));
}

CASE(access_of_range_that_ends_in_a_hole_is_refused)
{
    CUdeviceptr at = take_range(2 * machine.granule);
    take_mapping(at, machine.granule, take_handle(machine.granule));
    EXPECT_INVALID(set(at, 2 * machine.granule, device_access(writes)));
    expect_access(at, device_access(none));
}

/* A trap: the driver says yes and leaves out what lies behind the hole. */
CASE(access_over_a_hole_stops_there)
{
    CUdeviceptr at = take_range(3 * machine.granule), last = at + 2 * machine.granule;
    take_mapping(at, machine.granule, take_handle(machine.granule));
    take_mapping(last, machine.granule, take_handle(machine.granule));
    EXPECT_OK(set(at, 3 * machine.granule, device_access(writes)));
    expect_access(at, device_access(writes));
    expect_access(last, device_access(none));
    EXPECT_OK(kernel_try_write(at, 1));
}

CASE(access_of_part_of_a_handle_is_refused)
{
    CUdeviceptr at = take_closed(2 * machine.granule);
    EXPECT_INVALID(set(at, machine.granule, device_access(writes)));
}

CASE(access_of_many_handles_at_once)
{
    enum { COUNT = 64 };
    size_t size = COUNT * machine.granule;
    CUdeviceptr at = take_range(size);
    for (unsigned i = 0; i < COUNT; i++)
        take_mapping(at + i * machine.granule, machine.granule, take_handle(machine.granule));
    EXPECT_OK(set(at, size, device_access(writes)));
    kernel_fill(at, size / 4, 1);
    EXPECT_U64(kernel_sum(at, size / 4), sum_of_fill(size / 4, 1));
}

CASE(access_of_neighbours_may_differ)
{
    CUdeviceptr at = take_range(2 * machine.granule);
    take_mapping(at, machine.granule, take_handle(machine.granule));
    take_mapping(at + machine.granule, machine.granule, take_handle(machine.granule));
    give_access(at, machine.granule, reads);
    give_access(at + machine.granule, machine.granule, writes);
    expect_access(at, device_access(reads));
    expect_access(at + machine.granule, device_access(writes));
}

CASE(access_is_gone_after_unmap_and_map)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_mapped(machine.granule, handle);
    drop(OWN_MAPPING, at);
    take_mapping(at, machine.granule, handle);
    expect_access(at, device_access(none));
}

CASE(access_without_descriptor_is_refused)
{
    CUdeviceptr at = take_closed(machine.granule);
    CUmemAccessDesc access = device_access(writes);
    EXPECT_INVALID(cu->cuMemSetAccess(at, machine.granule, NULL, 1));
    EXPECT_INVALID(cu->cuMemSetAccess(at, machine.granule, &access, 0));
}

CASE(access_of_nonsense_range_is_refused)
{
    CUdeviceptr at = take_closed(machine.granule);
    EXPECT_INVALID(set(at, 0, device_access(writes)));
    EXPECT_INVALID(set(at, 4096, device_access(writes)));
    EXPECT_INVALID(set(at + 4096, machine.granule, device_access(writes)));
    EXPECT_INVALID(set(at, 2 * machine.granule, device_access(writes)));
    EXPECT_INVALID(set(0, machine.granule, device_access(writes)));
}

CASE(access_with_unknown_right_is_refused)
{
    CUdeviceptr at = take_closed(machine.granule);
    EXPECT_INVALID(set(at, machine.granule, device_access(2)));
    EXPECT_INVALID(set(at, machine.granule, device_access(77)));
}

CASE(access_for_missing_device_is_refused)
{
    CUdeviceptr at = take_closed(machine.granule);
    CUmemAccessDesc access = device_access(writes);
    access.location.id = machine.device_count;
    EXPECT_INVALID(set(at, machine.granule, access));
    access.location.id = -1;
    EXPECT_INVALID(set(at, machine.granule, access));
}

CASE(access_for_invalid_location_is_refused)
{
    CUdeviceptr at = take_closed(machine.granule);
    CUmemAccessDesc access = device_access(writes);
    access.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    EXPECT_INVALID(set(at, machine.granule, access));
}

CASE(access_of_plain_allocation_is_refused)
{
    CUdeviceptr at = take_alloc(2 * machine.granule);
    EXPECT_INVALID(set(at, 2 * machine.granule, device_access(reads)));
}

CASE(access_of_cpu_to_device_memory_is_not_supported)
{
    CUdeviceptr at = take_memory(machine.granule);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_HOST, 0}, writes};
    EXPECT(set(at, machine.granule, access), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(set(at, machine.granule, host_access(writes)), CUDA_ERROR_NOT_SUPPORTED);
    /* On a real device it cannot. The software GPU's kernels run on the CPU: what they may read, it
     * may. */
    observe("the CPU can %s", cpu_can_read((void *)(uintptr_t)at) ? "read" : "not read");
    expect_access(at, device_access(writes));
}

CASE(access_asked_of_cpu_to_device_memory_is_none)
{
    CUdeviceptr at = take_memory(machine.granule);
    CUmemAccessDesc cpu = host_access(none);
    expect_access(at, cpu);
}

CASE(access_asked_of_unmapped_address_is_refused)
{
    CUmemAccessDesc access = device_access(none);
    CUdeviceptr at = take_range(machine.granule);
    unsigned long long flags = 77;
    EXPECT_INVALID(cu->cuMemGetAccess(&flags, &access.location, at));
    EXPECT_U64(flags, none); /* written though refused */
}

/* Though its device may do anything to it. */
CASE(access_asked_of_plain_allocation_is_none)
{
    expect_access(take_alloc(machine.granule), device_access(none));
}

CASE(access_asked_without_output_is_refused)
{
    CUmemAccessDesc access = device_access(none);
    CUdeviceptr at = take_memory(machine.granule);
    unsigned long long flags;
    EXPECT_INVALID(cu->cuMemGetAccess(NULL, &access.location, at));
    EXPECT_INVALID(cu->cuMemGetAccess(&flags, NULL, at));
}

CASE(access_twice_for_one_device_means_the_last)
{
    CUmemAccessDesc access[2] = {device_access(writes), device_access(reads)};
    CUdeviceptr at = take_closed(machine.granule);
    EXPECT_OK(cu->cuMemSetAccess(at, machine.granule, access, 2));
    expect_access(at, device_access(reads));
}

CASE(access_of_second_device_is_granted_by_set)
{
    CUdeviceptr at = take_memory(machine.granule);
    CUmemAccessDesc second = device_access(reads);
    second.location.id = 1;
    kernel_fill(at, machine.granule / 4, 7);
    EXPECT_OK(set(at, machine.granule, second));
    expect_access(at, second);
    expect_access(at, device_access(writes));
    use_device(1);
    EXPECT_U64(kernel_sum(at, machine.granule / 4), sum_of_fill(machine.granule / 4, 7));
}

CASE(access_of_second_device_is_none_by_default)
{
    CUmemAccessDesc second = device_access(none);
    second.location.id = 1;
    expect_access(take_memory(machine.granule), second);
}

CASE(access_of_second_device_may_write)
{
    CUdeviceptr at = take_memory(machine.granule);
    CUmemAccessDesc second = device_access(writes);
    second.location.id = 1;
    EXPECT_OK(set(at, machine.granule, second));
    use_device(1);
    EXPECT_OK(kernel_try_write(at, 64));
    use_device(0);
    EXPECT_U64(kernel_read(at), 64);
}
