/* Launching kernels, and the words through which they answer.
 *
 * A result word lives on the device, where atomic operations work, and is copied to pinned memory
 * in the order of the stream. Nothing is allocated or freed per call.
 */
#include "base/error.h"
#include "kernels/set.h"

gvm_status gvmi_kernel_launch(gvm_device *device, gvmi_kernel kernel, const void *params,
                              uint64_t blocks, CUstream stream)
{
    const gvmi_kernel_entry *entry;
    void *arguments[] = {(void *)(uintptr_t)params}; /* the driver reads it only */
    unsigned grid;
    CUresult result;
    gvm_status status = gvmi_kernel_entry_get(device, kernel, &entry);

    if (status != GVM_OK)
        return status;
    grid = blocks < entry->blocks_max ? (unsigned)blocks : entry->blocks_max;
    result = gvmi_cu->cuLaunchKernel(entry->function, grid > 0 ? grid : 1, 1, 1,
                                     entry->block_threads, 1, 1, 0, stream, arguments, NULL);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuLaunchKernel", "cannot launch kernel %s on device %d",
                                gvmi_kernel_names[kernel], device->info.ordinal);
    return GVM_OK;
}

/* ---- results */

#define RESULT_BYTES 64u /* a cache line each */

static const gvmi_words_spec result_spec = {
    .what = "results of kernels",
    .to_do = "let some calls of gvmem/kernels.h return first",
    .device_bytes = RESULT_BYTES,
    .host_bytes = RESULT_BYTES,
    .slabs_max = 1024,
};

gvm_status gvmi_result_begin(gvm_device *device, uint8_t byte, CUstream stream, gvmi_result *out)
{
    CUresult result;
    gvm_status status;

    if (gvmi_stream_is_captured(stream))
        return gvmi_stream_fail_captured(stream);
    status = gvmi_words_take(device, &device->results, &result_spec, &out->words);

    if (status != GVM_OK)
        return status;
    out->stream = stream;
    result = gvmi_cu->cuMemsetD8Async(out->words.device, byte, sizeof(uint64_t), stream);
    if (result == CUDA_SUCCESS)
        return GVM_OK;
    status = gvmi_driver_fail(result, "cuMemsetD8Async",
                              "cannot queue work on a stream of device %d", device->info.ordinal);
    gvmi_words_give(&device->results, &out->words);
    return status;
}

gvm_status gvmi_result_end(gvm_device *device, const gvmi_result *result, gvm_status status,
                           uint64_t *value)
{
    CUresult copied = CUDA_SUCCESS, waited;

    if (status == GVM_OK) {
        copied = gvmi_cu->cuMemcpyDtoHAsync(result->words.host, result->words.device,
                                            sizeof(uint64_t), result->stream);
        if (copied != CUDA_SUCCESS)
            status = gvmi_driver_fail(copied, "cuMemcpyDtoHAsync",
                                      "cannot fetch the result of a kernel");
    }
    /* After a failure too: whatever was queued may still write to the words. Without a wait they stay taken. */
    waited = gvmi_cu->cuStreamSynchronize(result->stream);
    if (waited != CUDA_SUCCESS && status == GVM_OK)
        status = gvmi_driver_fail(waited, "cuStreamSynchronize",
                                  "a kernel failed on device %d: is everything it reads committed?",
                                  device->info.ordinal);
    if (status == GVM_OK)
        *value = *(const uint64_t *)result->words.host;
    if (waited == CUDA_SUCCESS)
        gvmi_words_give(&device->results, &result->words);
    return status;
}
