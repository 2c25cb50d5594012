/* Devices: how many, what they are called, what they can do. */
#include "softgpu/engine.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define ATTRIBUTE_LAST 147 /* of CUdevice_attribute in 13.0 */
#define PCI_BUS_ID_BYTES 13

/* Attributes that are the same for every device; those not listed are 0. Kernels share words with
 * the host here as they do over PCIe, by loads and stores only: a CPU could do more, but code that
 * relied on it would break on a real GPU. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} fixed[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT_MAX},
    {6 /* MAX_GRID_DIM_Y */, 65535},
    {7 /* MAX_GRID_DIM_Z */, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, (int)SOFT_SHARED_BYTES_DEFAULT},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, (int)SOFT_PITCH_MAX},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, (int)SOFT_PITCH_BYTES},
    {15 /* GPU_OVERLAP */, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {31 /* CONCURRENT_KERNELS */, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, (int)SOFT_SHARED_BYTES_MAX},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, (int)SOFT_SHARED_BYTES_MAX},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1}, /* the test for IPC of memory too */
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {123 /* CAN_USE_STREAM_WAIT_VALUE_NOR */, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
};

static int pci_bus(CUdevice dev)
{
    return dev + 1;
}

CUresult cuDeviceGetCount(int *count)
{
    const soft_config *config;
    const char *text;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_config_get(&config, &text);
    if (result != CUDA_SUCCESS)
        return result;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = config->device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    const soft_config *config;
    CUresult result = soft_enter_device(ordinal, &config);

    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    const soft_config *config;
    CUresult result = soft_enter_device(dev, &config);

    if (result != CUDA_SUCCESS)
        return result;
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)len, "gvmem software GPU %d", dev);
    return CUDA_SUCCESS;
}

/* FNV-1a over the instance's name and the ordinal, from two starts. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    const soft_config *config;
    char text[sizeof config->instance + 16];
    uint64_t half[2] = {0xcbf29ce484222325u, 0x9ae16a3b2f90404fu};
    CUresult result = soft_enter_device(dev, &config);

    if (result != CUDA_SUCCESS)
        return result;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(text, sizeof text, "%s/%d", config->instance, dev);
    for (int i = 0; i < 2; i++)
        for (const char *p = text; *p; p++)
            half[i] = (half[i] ^ (unsigned char)*p) * 0x100000001b3u;
    memcpy(uuid->bytes, half, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *bus_id, int len, CUdevice dev)
{
    const soft_config *config;
    CUresult result = soft_enter_device(dev, &config);

    if (result != CUDA_SUCCESS)
        return result;
    if (!bus_id || len < PCI_BUS_ID_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(bus_id, (size_t)len, "0000:%02X:00.0", (unsigned)pci_bus(dev) & 0xff);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    const soft_config *config;
    CUresult result = soft_enter_device(dev, &config);

    if (result != CUDA_SUCCESS)
        return result;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = config->memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
    const soft_config *config;
    CUresult result = soft_enter_device(dev, &config);

    if (result != CUDA_SUCCESS)
        return result;
    if (!value || attribute < 1 || attribute > ATTRIBUTE_LAST)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = config->sm_count; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = pci_bus(dev); break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = config->warp_size; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case 2:  /* MAX_BLOCK_DIM_X */
    case 3:  /* MAX_BLOCK_DIM_Y */
    case 39: /* MAX_THREADS_PER_MULTIPROCESSOR: an SM runs one block at a time */
        *value = config->threads_max;
        break;
    case 4: /* MAX_BLOCK_DIM_Z */ *value = soft_block_z_max(config); break;
    }
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (fixed[i].attribute == attribute)
            *value = fixed[i].value;
    return CUDA_SUCCESS;
}

/* Between peers everything there is, at equal speed. */
CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice src, CUdevice dst)
{
    const soft_config *config;
    CUresult result = soft_enter_device(src, &config);

    if (result == CUDA_SUCCESS)
        result = soft_enter_device(dst, &config);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value || src == dst)
        return src == dst ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    switch ((int)attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = 0; return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = soft_is_peer(src, dst);
        return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
    const soft_config *config;
    CUresult result = soft_enter_device(dev, &config);

    if (result == CUDA_SUCCESS)
        result = soft_enter_device(peer, &config);
    if (result != CUDA_SUCCESS)
        return result;
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    *can = soft_is_peer(dev, peer);
    return CUDA_SUCCESS;
}
