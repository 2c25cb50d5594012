/* The context of a device: made current, or found to be reset, with captures relaxed meanwhile. */
#include "base/error.h"
#include "memory/device.h"

static _Thread_local struct {
    unsigned depth;
    bool relaxed;
    CUstreamCaptureMode before;
} capture;

/* A driver that cannot exchange the mode is older than captures, or about to fail otherwise. */
void gvmi_capture_relax(void)
{
    if (capture.depth++ > 0)
        return;
    capture.before = CU_STREAM_CAPTURE_MODE_RELAXED;
    capture.relaxed = gvmi_cu->cuThreadExchangeStreamCaptureMode(&capture.before) == CUDA_SUCCESS;
}

void gvmi_capture_restore(void)
{
    if (--capture.depth == 0 && capture.relaxed)
        (void)gvmi_cu->cuThreadExchangeStreamCaptureMode(&capture.before);
}

bool gvmi_stream_is_captured(CUstream stream)
{
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = gvmi_cu->cuStreamIsCapturing(stream, &state);

    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           (result == CUDA_SUCCESS && state != CU_STREAM_CAPTURE_STATUS_NONE);
}

gvm_status gvmi_stream_fail_captured(CUstream stream)
{
    return gvm_error_set(GVM_E_INVALID,
                         "stream %p is being captured into a graph: its work cannot be waited for",
                         (void *)stream);
}

static CUresult push_context(const gvm_device *device)
{
    const CUresult result = gvmi_cu->cuCtxPushCurrent(device->context);

    if (result == CUDA_SUCCESS)
        gvmi_capture_relax();
    return result;
}

gvm_status gvmi_device_fail_reset(const gvm_device *device)
{
    return gvm_error_set(GVM_E_LOST,
                         "the context of device %d was reset: destroy what was made on the device, close and "
                         "open it",
                         device->info.ordinal);
}

bool gvmi_context_is_gone(CUcontext context, uint64_t id)
{
    unsigned long long now = id;
    CUresult result;

    if (id == 0)
        return false;
    result = gvmi_cu->cuCtxGetId(context, &now);
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT ||
           now != id;
}

/* A stream of the context must not be asked: where the context was reset, the driver may crash on its handle. */
bool gvmi_device_was_reset(const gvm_device *device)
{
    return gvmi_context_is_gone(device->context, device->context_id);
}

gvm_status gvmi_device_enter(const gvm_device *device)
{
    CUresult result;

    if (gvmi_device_was_reset(device))
        return gvmi_device_fail_reset(device);
    result = push_context(device);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuCtxPushCurrent", "cannot use the context of device %d",
                                device->info.ordinal);
    return GVM_OK;
}

bool gvmi_device_enter_to_free(const gvm_device *device, bool *entered)
{
    CUresult result;

    *entered = false;
    if (gvmi_device_was_reset(device))
        return false;
    result = push_context(device);
    *entered = result == CUDA_SUCCESS;
    return result != CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void gvmi_device_leave(void)
{
    CUcontext context;

    gvmi_capture_restore();
    gvmi_cu->cuCtxPopCurrent(&context);
}

/* While any stream of the context is captured into a graph the driver refuses to wait for all, and the capture is lost; to free memory
 * waits for kernels even then. */
void gvmi_device_drain(const gvm_device *device)
{
    CUdeviceptr at;

    if (gvmi_device_enter(device) != GVM_OK)
        return;
    if (gvmi_cu->cuCtxSynchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
        gvmi_cu->cuMemAlloc(&at, 1) == CUDA_SUCCESS)
        gvmi_cu->cuMemFree(at);
    gvmi_device_leave();
}

uint64_t gvmi_device_free_bytes(const gvm_device *device)
{
    size_t free_bytes = 0, total_bytes = 0;

    if (gvmi_device_enter(device) != GVM_OK)
        return 0;
    if (gvmi_cu->cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS)
        free_bytes = 0;
    gvmi_device_leave();
    return free_bytes;
}
