/* Words that the host and the device share; see device.h. */
#include <errno.h>
#include <sys/mman.h>

#include "base/error.h"
#include "memory/device.h"

static gvm_status fail_pin(CUresult result, const char *call, const char *what)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return gvmi_driver_fail_as(GVM_E_NOMEM, result, call, "no pinned memory for %s", what);
    return gvmi_driver_fail(result, call, "no pinned memory for %s", what);
}

gvm_status gvmi_pinned_create(uint64_t bytes, const char *what, gvmi_pinned *out)
{
    gvmi_pinned pinned = {.bytes = bytes};
    gvm_status status;
    CUresult result;

    pinned.host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pinned.host == MAP_FAILED)
        return gvmi_fail_system(GVM_E_NOMEM, errno, "mmap", "out of host memory for %s", what);
    /* Or a write after a fork() would move the process to another page than the device has. */
    (void)madvise(pinned.host, bytes, MADV_DONTFORK);
    result = gvmi_cu->cuMemHostRegister(pinned.host, bytes,
                                        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result != CUDA_SUCCESS) {
        status = fail_pin(result, "cuMemHostRegister", what);
        goto fail_unmap;
    }
    result = gvmi_cu->cuMemHostGetDevicePointer(&pinned.address, pinned.host, 0);
    if (result != CUDA_SUCCESS) {
        status = fail_pin(result, "cuMemHostGetDevicePointer", what);
        goto fail_unregister;
    }
    *out = pinned;
    return GVM_OK;

fail_unregister:
    if (gvmi_cu->cuMemHostUnregister(pinned.host) != CUDA_SUCCESS)
        return status;
fail_unmap:
    munmap(pinned.host, bytes);
    return status;
}

void gvmi_pinned_destroy(const gvm_device *device, const gvmi_pinned *pinned)
{
    /* Pages that the driver still has pinned stay: nobody else may get their addresses. */
    if (gvmi_device_was_reset(device) || gvmi_cu->cuMemHostUnregister(pinned->host) == CUDA_SUCCESS)
        munmap(pinned->host, pinned->bytes);
}
