/* Cases: starting the driver, its errors, its devices.
 *
 * Goal: what the library reads before it has a context is there, and is refused in the documented
 * way before cuInit.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/conform/execution.h"

/* ---- before and during cuInit */

CASE(start_calls_before_init_refused)
{
    CUdevice device = 0;
    CUcontext context = NULL;
    CUstream stream = NULL;
    CUdeviceptr at = 0;
    int count = 0;
    EXPECT(cu->cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cu->cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cu->cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cu->cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cu->cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cu->cuMemAlloc(&at, 4096), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cu->cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cu->cuStreamCreate(&stream, 0), CUDA_ERROR_NOT_INITIALIZED);
}

CASE(start_version_and_names_need_no_init)
{
    const char *text = NULL;
    int version = 0;
    EXPECT_OK(cu->cuDriverGetVersion(&version));
    EXPECT_TRUE(version >= 11040); /* the newest of the required calls */
    EXPECT_INVALID(cu->cuDriverGetVersion(NULL));
    EXPECT_OK(cu->cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EXPECT_TRUE(text && !strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
}

CASE(start_init_with_flags_refused_then_works)
{
    int count = 0;
    EXPECT_INVALID(cu->cuInit(1));
    EXPECT(cu->cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_OK(cu->cuInit(0));
    EXPECT_OK(cu->cuInit(0));
    EXPECT_OK(cu->cuDeviceGetCount(&count));
    EXPECT_TRUE(count >= 1);
}

static void *init_and_count(void *arg)
{
    CUresult *result = arg;
    int count = 0;
    *result = cu->cuInit(0);
    if (*result == CUDA_SUCCESS)
        *result = cu->cuDeviceGetCount(&count);
    return NULL;
}

CASE(start_init_from_threads_at_once_works)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    CUresult results[THREADS];
    for (int i = 0; i < THREADS; i++)
        REQUIRE_TRUE(pthread_create(&threads[i], NULL, init_and_count, &results[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE_TRUE(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT_OK(results[i]);
}

/* ---- errors */

#define ERROR_NUMBER(name, value, text) name,
#define ERROR_NAME(name, value, text) #name,

CASE(start_error_names_match_the_header)
{
    static const CUresult numbers[] = {GVMI_CUDA_RESULTS(ERROR_NUMBER)};
    static const char *const names[] = {GVMI_CUDA_RESULTS(ERROR_NAME)};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *text = NULL;
        EXPECT_OK(cu->cuGetErrorName(numbers[i], &text));
        if (!EXPECT_TRUE(text && !strcmp(text, names[i])))
            observe("%s is called %s", names[i], text ? text : "(null)");
        text = NULL;
        EXPECT_OK(cu->cuGetErrorString(numbers[i], &text));
        EXPECT_TRUE(text && text[0]);
    }
}

CASE(start_unknown_error_has_no_name)
{
    const char *text = "before";
    EXPECT_INVALID(cu->cuGetErrorName((CUresult)12345, &text));
    EXPECT_TRUE(text == NULL);
    text = "before";
    EXPECT_INVALID(cu->cuGetErrorString((CUresult)12345, &text));
    EXPECT_TRUE(text == NULL);
}

/* ---- devices */

CASE(device_queries_need_no_context)
{
    CUcontext context = (CUcontext)&machine;
    char name[256] = "";
    CUuuid uuid;
    size_t total = 0;
    int value = 0;
    EXPECT_OK(cu->cuDeviceGetName(name, sizeof name, machine.device));
    EXPECT_TRUE(name[0]);
    EXPECT_OK(cu->cuDeviceGetUuid(&uuid, machine.device));
    EXPECT_OK(cu->cuDeviceTotalMem(&total, machine.device));
    EXPECT_OK(cu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, machine.device));
    EXPECT_OK(cu->cuCtxGetCurrent(&context));
    EXPECT_TRUE(context == NULL);
}

CASE(device_ordinal_out_of_range_refused)
{
    CUdevice device = 0;
    char name[64];
    size_t total;
    int value;
    EXPECT(cu->cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cu->cuDeviceGet(&device, machine.device_count), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_INVALID(cu->cuDeviceGet(NULL, 0));
    EXPECT_INVALID(cu->cuDeviceGetCount(NULL));
    EXPECT(cu->cuDeviceGetName(name, sizeof name, machine.device_count), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cu->cuDeviceTotalMem(&total, machine.device_count), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, machine.device_count),
           CUDA_ERROR_INVALID_DEVICE);
}

CASE(device_name_is_cut_to_the_buffer)
{
    char whole[256] = "", cut[16];
    memset(cut, '#', sizeof cut);
    REQUIRE_OK(cu->cuDeviceGetName(whole, sizeof whole, machine.device));
    REQUIRE_OK(cu->cuDeviceGetName(cut, 5, machine.device));
    EXPECT_TRUE(cut[4] == '\0');
    EXPECT_TRUE(!strncmp(cut, whole, 4));
    EXPECT_TRUE(bytes_are(cut + 5, sizeof cut - 5, '#'));
}

CASE(device_uuid_is_stable_and_its_own)
{
    CUuuid first, again, other;
    REQUIRE_OK(cu->cuDeviceGetUuid(&first, 0));
    REQUIRE_OK(cu->cuDeviceGetUuid(&again, 0));
    EXPECT_TRUE(!memcmp(&first, &again, sizeof first));
    EXPECT_TRUE(!bytes_are(&first, sizeof first, 0));
    EXPECT_INVALID(cu->cuDeviceGetUuid(NULL, 0));
    if (machine.device_count > 1) {
        REQUIRE_OK(cu->cuDeviceGetUuid(&other, 1));
        EXPECT_TRUE(memcmp(&first, &other, sizeof first) != 0);
    }
}

static unsigned attribute(CUdevice_attribute which)
{
    int value = -1;
    REQUIRE_OK(cu->cuDeviceGetAttribute(&value, which, machine.device));
    return (unsigned)value;
}

CASE(device_bus_id_says_what_the_attributes_say)
{
    unsigned domain = ~0u, bus = ~0u, slot = ~0u;
    char text[32] = "";
    REQUIRE_OK(cu->cuDeviceGetPCIBusId(text, sizeof text, machine.device));
    EXPECT_U64(sscanf(text, "%x:%x:%x.0", &domain, &bus, &slot), 3);
    EXPECT_U64(domain, attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
    EXPECT_U64(bus, attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
    EXPECT_U64(slot, attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    EXPECT_OK(cu->cuDeviceGetPCIBusId(text, 13, machine.device));
    EXPECT_INVALID(cu->cuDeviceGetPCIBusId(text, 4, machine.device));
}

CASE(device_memory_total_bounds_free)
{
    size_t free_now = 0, total = 0, of_device = 0;
    REQUIRE_OK(cu->cuMemGetInfo(&free_now, &total));
    REQUIRE_OK(cu->cuDeviceTotalMem(&of_device, machine.device));
    EXPECT_U64(total, of_device);
    EXPECT_TRUE(free_now > 0 && free_now <= total);
    EXPECT_INVALID(cu->cuDeviceTotalMem(NULL, machine.device));
}

CASE(device_attributes_are_what_gvmem_relies_on)
{
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), 1);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED), 0);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED), 1);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED), 1);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED), 1);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS), 1);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH), 1);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED), 0);
    EXPECT_U64(attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS), 0);
    EXPECT_TRUE(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) >= 1);
    EXPECT_TRUE(attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT) >= 1);
    EXPECT_TRUE(attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) == 0x7fffffff);
    EXPECT_TRUE(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) >=
                attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
    EXPECT_TRUE(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) >=
                attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
}

CASE(device_attribute_unknown_refused)
{
    int value = 7;
    EXPECT_INVALID(cu->cuDeviceGetAttribute(&value, -1, machine.device));
    EXPECT_INVALID(cu->cuDeviceGetAttribute(&value, 100000, machine.device));
    EXPECT_INVALID(cu->cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, machine.device));
    EXPECT_U64(value, 7);
}

CASE(device_is_no_peer_of_itself)
{
    int can = -1;
    EXPECT_OK(cu->cuDeviceCanAccessPeer(&can, machine.device, machine.device));
    EXPECT_U64(can, 0);
    EXPECT(cu->cuDeviceCanAccessPeer(&can, machine.device, machine.device_count),
           CUDA_ERROR_INVALID_DEVICE);
}

CASE(device_peer_attributes_are_not_of_one_device)
{
    int value = 7;
    EXPECT(cu->cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                       machine.device, machine.device),
           CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cu->cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                       machine.device, machine.device_count),
           CUDA_ERROR_INVALID_DEVICE);
    EXPECT_U64(value, 7);
}

CASE(device_peers_reach_each_other)
{
    int there = -1, back = -1;
    EXPECT_OK(cu->cuDeviceCanAccessPeer(&there, 0, 1));
    EXPECT_OK(cu->cuDeviceCanAccessPeer(&back, 1, 0));
    EXPECT_U64(there, 1);
    EXPECT_U64(back, 1);
}
