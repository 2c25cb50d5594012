/* tests/postgres/probe_cuda.h - the calls of the CUDA driver that the probes make, as a program does that is
 * built without CUDA's toolkit. */
#ifndef TESTS_POSTGRES_PROBE_CUDA_H
#define TESTS_POSTGRES_PROBE_CUDA_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <gvmem/device.h>

static struct {
    int (*cuMemcpyDtoH)(void *to, uint64_t from, size_t bytes);
    int (*cuMemcpyHtoD)(uint64_t to, const void *from, size_t bytes);
    int (*cuMemGetAddressRange)(uint64_t *base, size_t *bytes, uint64_t address);
    int (*cuMemAlloc)(uint64_t *address, size_t bytes);
    int (*cuMemFree)(uint64_t address);
    int (*cuIpcGetMemHandle)(gvm_ipc_handle *handle, uint64_t address);
} cu;

static inline bool find_call(const char *name, void *call)
{
    void (*found)(void);

    if (gvm_driver_get_call(name, &found) != GVM_OK)
        return false;
    memcpy(call, &found, sizeof found);
    return true;
}

/* In the context of the device, until the program ends. */
static inline bool enter_device(int32_t ordinal, gvm_device **device)
{
    return gvm_device_open(ordinal, device) == GVM_OK && gvm_device_push_context(*device) == GVM_OK &&
           find_call("cuMemcpyDtoH_v2", &cu.cuMemcpyDtoH) &&
           find_call("cuMemcpyHtoD_v2", &cu.cuMemcpyHtoD) &&
           find_call("cuMemGetAddressRange_v2", &cu.cuMemGetAddressRange) &&
           find_call("cuMemAlloc_v2", &cu.cuMemAlloc) && find_call("cuMemFree_v2", &cu.cuMemFree) &&
           find_call("cuIpcGetMemHandle", &cu.cuIpcGetMemHandle);
}

#endif
