/* Mappings: memory behind reserved addresses, and its leaving them. */
#include "tests/conform/conform.h"

static CUresult try_map(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle)
{
    CUresult result = cu->cuMemMap(at, size, offset, handle, 0);
    if (result == CUDA_SUCCESS)
        own(OWN_MAPPING, at, size);
    return result;
}

CASE(map_of_new_handle_is_written_and_read_by_kernels)
{
    size_t words = 2 * machine.granule / 4;
    CUdeviceptr at = take_memory(2 * machine.granule);
    kernel_fill(at, words, 5);
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 5));
    EXPECT_TRUE(words_are(at, words, 5, 1));
}

CASE(map_takes_no_more_memory)
{
    CUmemGenericAllocationHandle handle = take_handle(16 * MIB);
    size_t before = free_bytes();
    take_mapped(16 * MIB, handle);
    EXPECT_U64(free_bytes(), before);
}

CASE(map_at_mapped_address_is_refused)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_memory(machine.granule);
    EXPECT_INVALID(try_map(at, machine.granule, 0, handle));
    EXPECT_OK(kernel_try_write(at, 1));
}

CASE(map_over_part_of_a_mapping_is_refused)
{
    CUdeviceptr at = take_range(4 * machine.granule);
    take_mapping(at, 2 * machine.granule, take_handle(2 * machine.granule));
    EXPECT_INVALID(
        try_map(at + machine.granule, 2 * machine.granule, 0, take_handle(2 * machine.granule)));
}

CASE(map_with_offset_is_not_supported)
{
    CUmemGenericAllocationHandle handle = take_handle(2 * machine.granule);
    CUdeviceptr at = take_range(machine.granule);
    EXPECT(try_map(at, machine.granule, machine.granule, handle), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(try_map(at, machine.granule, 1, handle), CUDA_ERROR_NOT_SUPPORTED);
}

CASE(map_of_another_size_than_the_handles_is_not_supported)
{
    CUmemGenericAllocationHandle handle = take_handle(2 * machine.granule);
    CUdeviceptr at = take_range(4 * machine.granule);
    EXPECT(try_map(at, machine.granule, 0, handle), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(try_map(at, 4 * machine.granule, 0, handle), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(try_map(at, machine.granule + 4096, 0, handle), CUDA_ERROR_NOT_SUPPORTED);
}

CASE(map_of_size_zero_is_refused)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_range(machine.granule);
    EXPECT_INVALID(try_map(at, 0, 0, handle));
}

CASE(map_at_unaligned_address_is_refused)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_range(2 * machine.granule);
    EXPECT_INVALID(try_map(at + 4096, machine.granule, 0, handle));
}

CASE(map_with_unknown_flags_is_refused)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_range(machine.granule);
    EXPECT_INVALID(cu->cuMemMap(at, machine.granule, 0, handle, 1ull << 40));
}

/* NVIDIA's driver looks only where the range begins. Behind the reservation there may be anybody's
 * addresses, so the software GPU, which would put its pages over them, refuses. */
CASE(map_beyond_the_reservation)
{
    CUmemGenericAllocationHandle handle = take_handle(2 * machine.granule);
    CUdeviceptr at = take_range(2 * machine.granule);
    EXPECT_ANY(try_map(at + machine.granule, 2 * machine.granule, 0, handle), CUDA_SUCCESS,
               CUDA_ERROR_INVALID_VALUE);
}

CASE(map_outside_any_reservation_is_refused)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_range(machine.granule);
    drop(OWN_RANGE, at);
    EXPECT_INVALID(try_map(at, machine.granule, 0, handle));
    EXPECT_INVALID(try_map(0, machine.granule, 0, handle));
}

CASE(map_over_plain_allocation_is_refused)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_alloc(2 * machine.granule);
    at = (at + machine.granule - 1) / machine.granule * machine.granule;
    EXPECT_INVALID(try_map(at, machine.granule, 0, handle));
}

CASE(map_survives_release_of_its_handle)
{
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_mapped(machine.granule, handle);
    drop(OWN_HANDLE, handle);
    EXPECT_U64(before - free_bytes(), machine.granule);
    EXPECT_OK(kernel_try_write(at, 99));
    EXPECT_U64(read_word(at), 99);
    drop(OWN_MAPPING, at);
    EXPECT_U64(free_bytes(), before);
}

CASE(map_twice_shows_the_same_memory)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr one = take_mapped(machine.granule, handle);
    CUdeviceptr two = take_mapped(machine.granule, handle);
    EXPECT_OK(kernel_try_write(one + 4096, 123));
    EXPECT_U64(kernel_read(two + 4096), 123);
    EXPECT_OK(kernel_try_write(two + 4096, 456));
    EXPECT_U64(read_word(one + 4096), 456);
}

CASE(map_twice_with_different_access)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr one = take_mapped(machine.granule, handle);
    CUdeviceptr two = take_range(machine.granule);
    take_mapping(two, machine.granule, handle);
    give_access(two, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_OK(kernel_try_write(one, 31));
    EXPECT_U64(kernel_read(two), 31);
}

CASE(map_of_another_handle_after_unmap_changes_the_content)
{
    CUmemGenericAllocationHandle one = take_handle(machine.granule);
    CUmemGenericAllocationHandle two = take_handle(machine.granule);
    CUdeviceptr at = take_range(machine.granule);
    const CUmemGenericAllocationHandle order[] = {one, two, one, two};
    for (uint32_t i = 0; i < 4; i++) {
        take_mapping(at, machine.granule, order[i]);
        give_access(at, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        if (i < 2)
            write_word(at, 100 + i);
        EXPECT_U64(kernel_read(at), 100 + i % 2);
        drop(OWN_MAPPING, at);
    }
}

CASE(map_content_survives_unmap_and_map_elsewhere)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_mapped(machine.granule, handle);
    kernel_fill(at, machine.granule / 4, 77);
    drop(OWN_MAPPING, at);
    at = take_mapped(machine.granule, handle);
    EXPECT_TRUE(words_are(at, machine.granule / 4, 77, 1));
}

CASE(map_with_holes_works_around_them)
{
    CUdeviceptr at = take_range(8 * machine.granule);
    for (uint32_t i = 0; i < 8; i += 2) {
        take_mapping(at + i * machine.granule, machine.granule, take_handle(machine.granule));
        give_access(at + i * machine.granule, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        write_word(at + i * machine.granule, i);
    }
    for (uint32_t i = 0; i < 8; i += 2)
        EXPECT_U64(kernel_read(at + i * machine.granule), i);
}

CASE(map_of_neighbours_reads_as_one_array)
{
    size_t words = 4 * machine.granule / 4;
    CUdeviceptr at = take_range(4 * machine.granule);
    for (unsigned i = 0; i < 4; i++)
        take_mapping(at + i * machine.granule, machine.granule, take_handle(machine.granule));
    give_access(at, 4 * machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    kernel_fill(at, words, 9);
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 9));
    EXPECT_TRUE(words_are(at, words, 9, 1)); /* a copy over the seams */
}

CASE(unmap_of_part_of_a_handle_is_refused)
{
    CUdeviceptr at = take_memory(2 * machine.granule);
    EXPECT_INVALID(cu->cuMemUnmap(at, machine.granule));
    EXPECT_INVALID(cu->cuMemUnmap(at + machine.granule, machine.granule));
    EXPECT_OK(kernel_try_write(at + machine.granule, 1));
}

CASE(unmap_twice_succeeds)
{
    CUdeviceptr at = take_memory(machine.granule);
    drop(OWN_MAPPING, at);
    EXPECT_OK(cu->cuMemUnmap(at, machine.granule));
}

CASE(unmap_of_never_mapped_succeeds)
{
    CUdeviceptr at = take_range(machine.granule);
    EXPECT_OK(cu->cuMemUnmap(at, machine.granule));
}

CASE(unmap_outside_any_reservation_is_refused)
{
    CUdeviceptr at = take_range(machine.granule);
    drop(OWN_RANGE, at);
    EXPECT_INVALID(cu->cuMemUnmap(at, machine.granule));
    EXPECT_INVALID(cu->cuMemUnmap(0, machine.granule));
}

CASE(unmap_of_nonsense_is_refused)
{
    CUdeviceptr at = take_memory(2 * machine.granule);
    EXPECT_INVALID(cu->cuMemUnmap(at, 0));
    EXPECT_INVALID(cu->cuMemUnmap(at, machine.granule + 4096));
    EXPECT_INVALID(cu->cuMemUnmap(at + 4096, machine.granule));
}

/* As map_beyond_the_reservation; NVIDIA's driver even takes a size that wraps round. */
CASE(unmap_beyond_the_reservation)
{
    CUdeviceptr at = take_range(2 * machine.granule);
    EXPECT_ANY(cu->cuMemUnmap(at, 4 * machine.granule), CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE);
    EXPECT_ANY(cu->cuMemUnmap(at, 0 - machine.granule), CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE);
}

CASE(unmap_of_plain_allocation_is_refused)
{
    CUdeviceptr at = take_alloc(2 * machine.granule);
    EXPECT_INVALID(cu->cuMemUnmap(at, 2 * machine.granule));
}

CASE(unmap_once_of_many_handles_succeeds)
{
    enum { COUNT = 64 };
    size_t before = free_bytes(), size = COUNT * machine.granule;
    CUdeviceptr at = take_range(size);
    CUmemGenericAllocationHandle handles[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        handles[i] = take_handle(machine.granule);
        REQUIRE_OK(cu->cuMemMap(at + i * machine.granule, machine.granule, 0, handles[i], 0));
    }
    EXPECT_OK(cu->cuMemUnmap(at, size));
    for (unsigned i = 0; i < COUNT; i++)
        drop(OWN_HANDLE, handles[i]);
    EXPECT_U64(free_bytes(), before);
}

CASE(unmap_of_some_of_many_handles_keeps_the_others)
{
    CUdeviceptr at = take_range(4 * machine.granule);
    for (unsigned i = 0; i < 4; i++)
        take_mapping(at + i * machine.granule, machine.granule, take_handle(machine.granule));
    give_access(at, 4 * machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    write_word(at, 1);
    write_word(at + 3 * machine.granule, 4);
    REQUIRE_OK(cu->cuMemUnmap(at + machine.granule, 2 * machine.granule));
    disown(OWN_MAPPING, at + machine.granule);
    disown(OWN_MAPPING, at + 2 * machine.granule);
    EXPECT_U64(kernel_read(at), 1);
    EXPECT_U64(kernel_read(at + 3 * machine.granule), 4);
}

CASE(unmap_over_a_hole_succeeds)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr at = take_range(3 * machine.granule);
    size_t before = free_bytes();
    take_mapping(at, machine.granule, handle);
    take_mapping(at + 2 * machine.granule, machine.granule, handle);
    drop(OWN_HANDLE, handle);
    EXPECT_U64(free_bytes(), before);
    EXPECT_OK(cu->cuMemUnmap(at, 3 * machine.granule));
    disown(OWN_MAPPING, at);
    disown(OWN_MAPPING, at + 2 * machine.granule);
    EXPECT_U64(free_bytes(), before + machine.granule);
}

CASE(unmap_cutting_the_last_handle_is_refused)
{
    CUdeviceptr at = take_range(3 * machine.granule);
    take_mapping(at, machine.granule, take_handle(machine.granule));
    take_mapping(at + machine.granule, 2 * machine.granule, take_handle(2 * machine.granule));
    EXPECT_INVALID(cu->cuMemUnmap(at, 2 * machine.granule));
}

CASE(map_of_device_then_host_then_device_keeps_the_address)
{
    CUmemGenericAllocationHandle device = take_handle(machine.granule);
    CUmemGenericAllocationHandle host = take_host_handle(machine.granule);
    CUdeviceptr at = take_range(machine.granule);
    const CUmemGenericAllocationHandle order[] = {device, host, device};
    for (uint32_t i = 0; i < 3; i++) {
        take_mapping(at, machine.granule, order[i]);
        give_access(at, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        if (i < 2)
            EXPECT_OK(kernel_try_write(at + 8, 500 + i));
        EXPECT_U64(kernel_read(at + 8), i == 1 ? 501 : 500);
        EXPECT_U64(read_word(at + 8), i == 1 ? 501 : 500);
        drop(OWN_MAPPING, at);
    }
}

CASE(map_of_device_and_host_neighbours_reads_as_one_array)
{
    size_t words = 2 * machine.granule / 4;
    CUdeviceptr at = take_range(2 * machine.granule);
    take_mapping(at, machine.granule, take_handle(machine.granule));
    take_mapping(at + machine.granule, machine.granule, take_host_handle(machine.granule));
    give_access(at, 2 * machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    kernel_fill(at, words, 3);
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 3));
}

CASE(copy_over_the_seam_of_device_and_host_memory_works)
{
    uint32_t words[4] = {1, 2, 3, 4}, back[4] = {0};
    CUdeviceptr at = take_range(2 * machine.granule), seam = at + machine.granule - 8;
    take_mapping(at, machine.granule, take_handle(machine.granule));
    take_mapping(at + machine.granule, machine.granule, take_host_handle(machine.granule));
    give_access(at, 2 * machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_OK(cu->cuMemcpyHtoD(seam, words, sizeof words));
    EXPECT_OK(cu->cuMemcpyDtoH(back, seam, sizeof back));
    for (unsigned i = 0; i < 4; i++)
        EXPECT_U64(back[i], words[i]);
}
