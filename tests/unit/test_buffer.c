/* memory/: what buffers and vectors do when the driver lacks something. (Threads that meet:
 * test_copies.c.)
 *
 * A table over the software GPU's makes the driver poor. Each test runs in a child, because a driver is
 * started once a process.
 */
#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#include <stdatomic.h>

#include <gvmem/gvmem.h>

#include "driver/driver.h"

#define CHUNK (2 * MIB)

static gvmi_driver table; /* the driver, with some of its calls replaced */
static const gvmi_driver *real;

static bool start(gvm_device **device, gvm_buffer **buffer)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    int32_t count;

    if (gvm_device_count(&count) != GVM_OK)
        return false;
    real = gvmi_cu;
    table = *real;
    gvmi_driver_install(&table);
    return gvm_device_open(0, device) == GVM_OK &&
           gvm_buffer_create(*device, 2 * CHUNK, &options, buffer) == GVM_OK &&
           gvm_buffer_commit(*buffer, 0, 2 * CHUNK) == GVM_OK;
}

static void stop(gvm_device *device, gvm_buffer *buffer)
{
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    gvmi_driver_install(real);
}

/* ---- a driver that lacks something */

static CUresult lack_mappings(CUdeviceptr address, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)address, (void)bytes, (void)offset, (void)handle, (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult lack_addresses(CUdeviceptr *address, size_t bytes, size_t alignment,
                               CUdeviceptr wanted, unsigned long long flags)
{
    (void)address, (void)bytes, (void)alignment, (void)wanted, (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static int be_mover(void *arg)
{
    gvm_device *device;
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(start(&device, &buffer));
    table.cuMemMap = lack_mappings;
    CHILD_EXPECT(gvm_buffer_move(buffer, 0, CHUNK, GVM_TIER_HOST) == GVM_E_LIMIT);
    table.cuMemMap = real->cuMemMap;
    table.cuMemAddressReserve = lack_addresses;
    CHILD_EXPECT(gvm_buffer_move(buffer, 0, CHUNK, GVM_TIER_HOST) == GVM_E_ADDRESS);
    table.cuMemAddressReserve = real->cuMemAddressReserve;
    CHILD_EXPECT(gvm_buffer_move(buffer, 0, CHUNK, GVM_TIER_HOST) == GVM_OK);
    stop(device, buffer);
    return 0;
}

CHILD_TEST(move_without_mappings_or_addresses_says_so, be_mover)

/* As NVIDIA's driver does. */
static CUresult place_units(CUdeviceptr *address, size_t bytes, size_t alignment,
                            CUdeviceptr wanted, unsigned long long flags)
{
    const bool whole = wanted % (32 * MIB) == 0 && bytes % (32 * MIB) == 0;

    return real->cuMemAddressReserve(address, bytes, alignment, whole ? wanted : 0, flags);
}

static int be_placed(void *arg)
{
    gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    gvm_buffer *large, *small, *second = NULL;
    const uint32_t in = 0x12345678;
    uint32_t out = 0;
    gvm_device *device;

    (void)arg;
    CHILD_EXPECT(start(&device, &small));
    gvm_buffer_destroy(small);
    CHILD_EXPECT(gvm_buffer_create(device, GIB, NULL, &large) == GVM_OK);
    options.address = (char *)gvm_buffer_address(large) + GIB / 2;
    gvm_buffer_destroy(large);
    table.cuMemAddressReserve = place_units;
    for (int i = 0; i < 2; i++) { /* the addresses are all free after it */
        CHILD_EXPECT(gvm_buffer_create(device, CHUNK, &options, &small) == GVM_OK);
        CHILD_EXPECT(gvm_buffer_address(small) == options.address);
        CHILD_EXPECT(gvm_buffer_create(device, CHUNK, &options, &second) == GVM_E_ADDRESS &&
                     second == NULL);
        CHILD_EXPECT(gvm_buffer_commit(small, 0, CHUNK) == GVM_OK);
        CHILD_EXPECT(gvm_buffer_copy_in(small, CHUNK - 4, &in, 4) == GVM_OK);
        CHILD_EXPECT(gvm_buffer_copy_out(&out, small, CHUNK - 4, 4) == GVM_OK && out == in);
        CHILD_EXPECT(gvm_buffer_commit(small, CHUNK, 1) == GVM_E_INVALID);
        gvm_buffer_destroy(small);
    }
    options.address = (void *)(uintptr_t)(2 * MIB); /* of the first unit, whose address is that of any */
    CHILD_EXPECT(gvm_buffer_create(device, CHUNK, &options, &second) == GVM_E_ADDRESS && second == NULL);
    options.address = NULL;
    CHILD_EXPECT(gvm_buffer_create(device, CHUNK, &options, &small) == GVM_OK);
    stop(device, small);
    return 0;
}

CHILD_TEST(buffer_has_the_address_that_is_wanted, be_placed)

static int be_without_vmm(void *arg)
{
    gvm_device *device;
    gvm_vector *vector;

    (void)arg;
    setenv("GVMEM_VMM", "0", 1);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_vector_create(device, 1, TIB, NULL, &vector) == GVM_E_NOTSUP);
    gvm_device_close(device);
    return 0;
}

/* What was in the memory before. */
static CUresult alloc_with_old_bytes(CUdeviceptr *address, size_t bytes)
{
    CUresult result = real->cuMemAlloc(address, bytes);

    if (result == CUDA_SUCCESS)
        result = real->cuMemsetD8(*address, 0x77, bytes);
    return result == CUDA_SUCCESS ? real->cuCtxSynchronize() : result;
}

static int be_exportable_without_vmm(void *arg)
{
    static uint8_t bytes[2 * CHUNK];
    gvm_device *device;
    gvm_buffer *buffer;
    int32_t count;

    (void)arg;
    setenv("GVMEM_VMM", "0", 1);
    CHILD_EXPECT(gvm_device_count(&count) == GVM_OK);
    real = gvmi_cu;
    table = *real;
    table.cuMemAlloc = alloc_with_old_bytes;
    gvmi_driver_install(&table);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_create(device, 2 * CHUNK, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_out(bytes, buffer, 0, 2 * CHUNK) == GVM_OK);
    for (size_t i = 0; i < 2 * CHUNK; i++)
        CHILD_EXPECT(bytes[i] == 0);
    stop(device, buffer);
    return 0;
}

CHILD_TEST(buffer_without_virtual_memory_shows_zeros, be_exportable_without_vmm)
CHILD_TEST(vector_without_virtual_memory_is_refused_before_allocating, be_without_vmm)

/* ---- copies */

static int copy_nothing(void *arg)
{
    const uint64_t beyond = UINT64_MAX - 1;
    gvm_device *device;
    gvm_buffer *b;

    (void)arg;
    CHILD_EXPECT(start(&device, &b));
    CHILD_EXPECT(gvm_buffer_copy_in(b, beyond, NULL, 0) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_out(NULL, b, beyond, 0) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy(b, beyond, b, beyond, 0) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_in_async(b, beyond, NULL, 0, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_out_async(NULL, b, beyond, 0, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_async(b, beyond, b, beyond, 0, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_fill(b, beyond, 0, &beyond, 1) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_fill_async(b, beyond, 0, &beyond, 1, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_in(b, beyond, &beyond, 1) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_buffer_fill(b, 0, 0, &beyond, 3) == GVM_E_INVALID);
    stop(device, b);
    CHILD_EXPECT(gvm_buffer_copy_in(b, 0, NULL, 0) == GVM_E_FOREIGN);
    return 0;
}

CHILD_TEST(copy_of_nothing_succeeds_at_any_offset, copy_nothing)

/* ---- errors */

static CUresult lose_context(CUcontext context)
{
    (void)context;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static int be_closer(void *arg)
{
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_error error;

    (void)arg;
    CHILD_EXPECT(start(&device, &buffer));
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 0) == GVM_E_INVALID);
    gvm_buffer_destroy(buffer);
    table.cuCtxPushCurrent = lose_context;
    gvm_device_close(device);
    CHILD_EXPECT(gvm_error_last(&error) == GVM_OK && error.status == GVM_E_INVALID);
    gvmi_driver_install(real);
    return 0;
}

CHILD_TEST(ending_things_keeps_the_error, be_closer)

/* ---- memory for network cards */

static atomic_int rdma_wanted, rdma_refused; /* of the chunks made; what the device says of itself */
static atomic_int host_wanted;
static atomic_int granularity_wanted; /* asked for such chunks */

static CUresult attribute_of_rdma(int *value, CUdevice_attribute attribute, CUdevice dev)
{
    if (attribute != CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)
        return real->cuDeviceGetAttribute(value, attribute, dev);
    *value = !atomic_load(&rdma_refused);
    return CUDA_SUCCESS;
}

static CUresult create_noting_rdma(CUmemGenericAllocationHandle *handle, size_t bytes,
                                   const CUmemAllocationProp *prop, unsigned long long flags)
{
    const bool host = prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE;

    atomic_fetch_add(host ? &host_wanted : &rdma_wanted, prop->allocFlags.gpuDirectRDMACapable);
    return real->cuMemCreate(handle, bytes, prop, flags);
}

static CUresult granularity_noting_rdma(size_t *bytes, const CUmemAllocationProp *prop,
                                        CUmemAllocationGranularity_flags kind)
{
    atomic_fetch_add(&granularity_wanted, prop->allocFlags.gpuDirectRDMACapable);
    return real->cuMemGetAllocationGranularity(bytes, prop, kind);
}

static int make_for_rdma(void *refused)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    gvm_device *device;
    gvm_buffer *buffer;
    int32_t count;

    atomic_store(&rdma_refused, refused != NULL);
    CHILD_EXPECT(gvm_device_count(&count) == GVM_OK);
    real = gvmi_cu;
    table = *real;
    table.cuDeviceGetAttribute = attribute_of_rdma;
    table.cuMemCreate = create_noting_rdma;
    table.cuMemGetAllocationGranularity = granularity_noting_rdma;
    gvmi_driver_install(&table);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_create(device, 2 * CHUNK, &options, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 2 * CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_move(buffer, 0, 2 * CHUNK, GVM_TIER_HOST) == GVM_OK);
    CHILD_EXPECT(atomic_load(&rdma_wanted) == (refused != NULL ? 0 : 2) &&
                 atomic_load(&host_wanted) == 0);
    CHILD_EXPECT((atomic_load(&granularity_wanted) > 0) == (refused == NULL));
    stop(device, buffer);
    return 0;
}

static void chunk_is_made_for_network_cards_where_the_device_can(void **state)
{
    (void)state;
    assert_child_succeeds(make_for_rdma, NULL);
    assert_child_succeeds(make_for_rdma, "refused");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(move_without_mappings_or_addresses_says_so),
        cmocka_unit_test(buffer_has_the_address_that_is_wanted),
        cmocka_unit_test(buffer_without_virtual_memory_shows_zeros),
        cmocka_unit_test(vector_without_virtual_memory_is_refused_before_allocating),
        cmocka_unit_test(ending_things_keeps_the_error),
        cmocka_unit_test(copy_of_nothing_succeeds_at_any_offset),
        cmocka_unit_test(chunk_is_made_for_network_cards_where_the_device_can),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
