#include "tests/lib/device.h"

#include <stdio.h>

#include "tests/lib/fixture.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"

#define MEMORY_BACK_MS 5000
#define GPU_SLACK_BYTES (32 * MIB) /* what a real driver keeps for itself, once */

gvm_device *watched_device;
bool watched_software;

static uint64_t free_before;

static _Noreturn void bail_out(const char *what)
{
    gvm_error error;

    gvm_error_last(&error);
    tap_bail_out("%s: %s", what, error.text);
}

uint64_t memory_free_bytes(gvm_device *device)
{
    gvm_device_info info = {.struct_size = sizeof info};

    if (gvm_device_get_info(device, &info) != GVM_OK)
        bail_out("cannot read the device's free memory");
    return info.free_bytes;
}

void memory_watch(void)
{
    gvm_driver_info info = {.struct_size = sizeof info};

    if (gvm_device_open(0, &watched_device) != GVM_OK || gvm_driver_get_info(&info) != GVM_OK)
        bail_out("no device");
    watched_software = info.software;
}

void memory_watch_end(void)
{
    gvm_device_close(watched_device);
    watched_device = NULL;
}

void memory_note(void)
{
    free_before = memory_free_bytes(watched_device);
}

bool memory_is_back(void)
{
    const uint64_t slack = watched_software ? 0 : GPU_SLACK_BYTES;
    uint64_t now = memory_free_bytes(watched_device);

    for (int ms = 0; ms < MEMORY_BACK_MS && now + slack < free_before; ms += 5) {
        pause_ms(5);
        now = memory_free_bytes(watched_device);
    }
    if (now + slack >= free_before)
        return true;
    printf("# %llu bytes of the device have not come back\n", (unsigned long long)(free_before - now));
    return false;
}

bool device_open_with_kernels(const unsigned char *soft, const unsigned char *real,
                              gvm_device **device, gvm_device_info *info, CUmodule *module)
{
    const unsigned char *image;
    CUcontext context;
    CUdevice cu_device;

    *module = NULL;
    if (gvm_device_open(0, device) != GVM_OK || gvm_device_get_info(*device, info) != GVM_OK ||
        gvmi_cu->cuDeviceGet(&cu_device, 0) != CUDA_SUCCESS ||
        gvmi_cu->cuDevicePrimaryCtxRetain(&context, cu_device) != CUDA_SUCCESS ||
        gvmi_cu->cuCtxPushCurrent(context) != CUDA_SUCCESS)
        return false;
    image = info->software ? soft : real;
    return image == NULL || gvmi_cu->cuModuleLoadData(module, image) == CUDA_SUCCESS;
}
