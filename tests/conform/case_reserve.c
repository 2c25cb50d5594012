/* Reservations: addresses without memory. */
#include <sys/mman.h>

#include "tests/conform/conform.h"

CASE(reserve_then_free_succeeds)
{
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAddressReserve(&at, machine.granule, 0, 0, 0));
    EXPECT_TRUE(at != 0);
    EXPECT_U64(at % machine.granule, 0);
    EXPECT_OK(cu->cuMemAddressFree(at, machine.granule));
}

CASE(reserve_takes_no_device_memory)
{
    size_t before = free_bytes();
    take_range(GIB);
    EXPECT_U64(free_bytes(), before);
}

CASE(reserve_of_size_zero_is_refused)
{
    CUdeviceptr at;
    EXPECT_INVALID(cu->cuMemAddressReserve(&at, 0, 0, 0, 0));
}

CASE(reserve_without_output_is_refused)
{
    EXPECT_INVALID(cu->cuMemAddressReserve(NULL, machine.granule, 0, 0, 0));
}

CASE(reserve_of_unaligned_size_is_refused)
{
    CUdeviceptr at;
    EXPECT_INVALID(cu->cuMemAddressReserve(&at, machine.granule + 1, 0, 0, 0));
}

/* Though the manual wants multiples of the host's page only. */
CASE(reserve_of_host_pages_is_refused)
{
    CUdeviceptr at = 0;
    EXPECT_INVALID(cu->cuMemAddressReserve(&at, machine.granule + 4096, 0, 0, 0));
}

CASE(reserve_with_unknown_flags_is_refused)
{
    CUdeviceptr at;
    EXPECT_INVALID(cu->cuMemAddressReserve(&at, machine.granule, 0, 0, 1ull << 40));
}

CASE(reserve_with_odd_alignment_is_refused)
{
    CUdeviceptr at = 0;
    EXPECT_INVALID(cu->cuMemAddressReserve(&at, machine.granule, 3 * machine.granule, 0, 0));
}

CASE(reserve_with_alignment_is_aligned)
{
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAddressReserve(&at, machine.granule, GIB, 0, 0));
    own(OWN_RANGE, at, machine.granule);
    EXPECT_U64(at % GIB, 0);
}

CASE(reserve_at_wanted_address_gets_it)
{
    CUdeviceptr wanted = take_range(4 * machine.granule), at = 0;
    drop(OWN_RANGE, wanted);
    REQUIRE_OK(cu->cuMemAddressReserve(&at, 4 * machine.granule, 0, wanted, 0));
    own(OWN_RANGE, at, 4 * machine.granule);
    EXPECT_U64(at, wanted);
}

/* In the midst of what was reserved as a whole. What becomes of less, or between units of 32 MiB, is left open. */
CASE(reserve_of_32_mib_at_wanted_address_gets_it)
{
    CUdeviceptr before = take_range(GIB), at = 0;
    drop(OWN_RANGE, before);
    REQUIRE_OK(cu->cuMemAddressReserve(&at, 32 * MIB, 0, before + GIB / 2, 0));
    own(OWN_RANGE, at, 32 * MIB);
    EXPECT_U64(at, before + GIB / 2);
}

CASE(reserve_at_occupied_address_goes_elsewhere)
{
    CUdeviceptr occupied = take_range(4 * machine.granule), at = 0;
    REQUIRE_OK(cu->cuMemAddressReserve(&at, machine.granule, 0, occupied, 0));
    own(OWN_RANGE, at, machine.granule);
    EXPECT_TRUE(at < occupied || at >= occupied + 4 * machine.granule);
}

CASE(reserve_at_unaligned_address_is_refused)
{
    CUdeviceptr free_one = take_range(4 * machine.granule), at = 0;
    drop(OWN_RANGE, free_one);
    EXPECT_INVALID(cu->cuMemAddressReserve(&at, machine.granule, 0, free_one + 1, 0));
}

CASE(reserve_many_do_not_overlap)
{
    enum { COUNT = 64 };
    CUdeviceptr at[COUNT];
    for (int i = 0; i < COUNT; i++)
        at[i] = take_range(2 * machine.granule);
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < i; j++)
            EXPECT_TRUE(at[i] + 2 * machine.granule <= at[j] || at[j] + 2 * machine.granule <= at[i]);
}

/* Addresses of the device are addresses of the process: a limit, or ThreadSanitizer, may leave it too few. */
static CUdeviceptr take_large_range(size_t size)
{
    void *there = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (there == MAP_FAILED)
        skip("the process has no range of addresses that large");
    munmap(there, size);
    return take_range(size);
}

CASE(reserve_of_4_tib_succeeds)
{
    take_large_range(4 * TIB);
}

CASE(reserve_of_64_tib_succeeds)
{
    take_large_range(64 * TIB);
}

CASE(reserve_of_more_than_addresses_is_refused)
{
    CUdeviceptr at;
    EXPECT(cu->cuMemAddressReserve(&at, 1ull << 60, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu->cuMemAddressReserve(&at, 0 - machine.granule, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

CASE(reserve_at_the_ends_of_a_large_range_maps)
{
    size_t size = 4 * TIB;
    CUdeviceptr at = take_large_range(size), last = at + size - machine.granule;
    take_mapping(at, machine.granule, take_handle(machine.granule));
    take_mapping(last, machine.granule, take_handle(machine.granule));
    give_access(at, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    give_access(last, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    write_word(at, 11);
    write_word(last + machine.granule - 4, 22);
    EXPECT_U64(kernel_read(at), 11);
    EXPECT_U64(kernel_read(last + machine.granule - 4), 22);
}

/* Where keepers' clients have objects: whole, and parts of it without a reservation of their own. */
CASE(reserve_of_48_tib_at_32_tib_gets_it_and_maps_in_it)
{
    CUdeviceptr wanted = 32 * TIB, at = 0;
    void *there = mmap((void *)(uintptr_t)wanted, 48 * TIB, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (there != MAP_FAILED)
        munmap(there, 48 * TIB);
    if (there != (void *)(uintptr_t)wanted)
        skip("the process does not have these addresses free");
    REQUIRE_OK(cu->cuMemAddressReserve(&at, 48 * TIB, 0, wanted, 0));
    own(OWN_RANGE, at, 48 * TIB);
    EXPECT_U64(at, wanted);
    at += 17 * TIB;
    take_mapping(at, machine.granule, take_handle(machine.granule));
    give_access(at, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    write_word(at, 33);
    EXPECT_U64(kernel_read(at), 33);
    EXPECT(cu->cuMemAddressReserve(&at, machine.granule, 0, wanted + 5 * TIB, 0), CUDA_SUCCESS);
    own(OWN_RANGE, at, machine.granule);
    EXPECT_TRUE(at < wanted || at >= wanted + 48 * TIB);
}

CASE(address_free_of_other_size_is_refused)
{
    CUdeviceptr at = take_range(4 * machine.granule);
    EXPECT_INVALID(cu->cuMemAddressFree(at, 2 * machine.granule));
    EXPECT_INVALID(cu->cuMemAddressFree(at, 8 * machine.granule));
    EXPECT_INVALID(cu->cuMemAddressFree(at, 0));
}

CASE(address_free_of_interior_is_refused)
{
    CUdeviceptr at = take_range(4 * machine.granule);
    EXPECT_INVALID(cu->cuMemAddressFree(at + machine.granule, 3 * machine.granule));
}

CASE(address_free_twice_is_refused)
{
    CUdeviceptr at = take_range(machine.granule);
    drop(OWN_RANGE, at);
    EXPECT_INVALID(cu->cuMemAddressFree(at, machine.granule));
}

CASE(address_free_of_foreign_memory_is_refused)
{
    CUdeviceptr alloc = take_alloc(machine.granule);
    EXPECT_INVALID(cu->cuMemAddressFree(alloc, machine.granule));
    EXPECT_INVALID(cu->cuMemAddressFree(0, machine.granule));
}

CASE(address_free_of_mapped_range_is_refused)
{
    CUdeviceptr at = take_memory(machine.granule);
    EXPECT_INVALID(cu->cuMemAddressFree(at, machine.granule));
    EXPECT_OK(kernel_try_write(at, 1));
}
