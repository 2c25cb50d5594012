/* A graph captured in the global mode while calls of the library are made, by the same thread and by another.
 *
 * Goal: the capture ends well, and no call of the library fails because of it. Method: what the library does for itself
 * is done between the beginning and the end of a capture: memory, copies, kernels, the appender's thread.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include <gvmem/gvmem.h>

#include "driver/driver.h"
#include "tests/lib/device.h"
#include "tests/lib/expect.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"

static gvm_device *device;
static CUstream stream;
static CUdeviceptr memory;

static bool use_buffer(void)
{
    static char bytes[1 << 20];
    gvm_buffer *buffer;
    double sum;
    bool fine;

    if (!EXPECT_GVM_OK(gvm_buffer_create(device, 64 * MIB, NULL, &buffer)))
        return false;
    fine = EXPECT_GVM_OK(gvm_buffer_commit(buffer, 0, 64 * MIB)) &&
           EXPECT_GVM_OK(gvm_buffer_copy_in(buffer, 0, bytes, sizeof bytes)) &&
           EXPECT_GVM_OK(gvm_kernel_sum_f64(device, gvm_buffer_address(buffer), 1000, NULL, &sum)) &&
           EXPECT_GVM_OK(gvm_buffer_move(buffer, 0, 2 * MIB, GVM_TIER_HOST)) &&
           EXPECT_GVM_OK(gvm_buffer_copy_out(bytes, buffer, 0, sizeof bytes));
    gvm_buffer_destroy(buffer);
    return fine;
}

static bool use_heap(gvm_heap_kind kind)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .kind = kind};
    gvm_heap *heap;
    void *blocks[64];
    bool fine = true;

    if (!EXPECT_GVM_OK(gvm_heap_create(device, &options, &heap)))
        return false;
    for (size_t i = 0; i < 64 && fine; i++)
        fine = EXPECT_GVM_OK(gvm_heap_alloc(heap, (i + 1) << 16, &blocks[i]));
    for (size_t i = 0; i < 64 && fine; i++)
        fine = EXPECT_GVM_OK(gvm_heap_free(heap, blocks[i]));
    fine = fine && EXPECT_GVM_OK(gvm_heap_trim(heap, 0));
    gvm_heap_destroy(heap);
    return fine;
}

static bool use_appender(void)
{
    gvm_append append = {.struct_size = sizeof append};
    gvm_appender *appender;
    bool fine;

    if (!EXPECT_GVM_OK(gvm_appender_create(device, 8, 1 << 30, NULL, &appender)))
        return false;
    fine = EXPECT_GVM_OK(gvm_appender_begin(appender, &append)) &&
           EXPECT_GVM_OK(gvm_appender_finish(appender, NULL, NULL));
    gvm_appender_destroy(appender);
    return fine;
}

static void *use_library(void *unused)
{
    static bool failed = true;

    (void)unused;
    if (!use_buffer() || !use_heap(GVM_HEAP_DEVICE) || !use_heap(GVM_HEAP_HOST) ||
        !use_heap(GVM_HEAP_MANAGED) || !use_appender() || !EXPECT_GVM_OK(gvm_device_trim(device, 0)))
        return &failed;
    return NULL;
}

static bool capture_beside(bool by_other)
{
    CUgraph graph = NULL;
    void *failed = NULL;
    pthread_t thread;
    CUresult result = gvmi_cu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuMemsetD8Async(memory, 1, 4096, stream);
    if (result != CUDA_SUCCESS) {
        printf("# the capture does not begin: error %d\n", (int)result);
        return false;
    }
    if (!by_other)
        failed = use_library(NULL);
    else if (pthread_create(&thread, NULL, use_library, NULL) == 0)
        pthread_join(thread, &failed);
    result = gvmi_cu->cuMemsetD8Async(memory, 2, 4096, stream);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamEndCapture(stream, &graph);
    if (result != CUDA_SUCCESS)
        printf("# the capture does not end: error %d\n", (int)result);
    if (graph != NULL)
        gvmi_cu->cuGraphDestroy(graph);
    return result == CUDA_SUCCESS && failed == NULL;
}

int main(void)
{
    CUcontext context;

    if (gvm_device_open(0, &device) != GVM_OK) {
        tap_bail_out("there is no device");
    }
    if (gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        gvmi_cu->cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        gvmi_cu->cuMemAlloc(&memory, 4096) != CUDA_SUCCESS) {
        tap_bail_out("no stream");
    }
    tap_plan(2);
    tap_result(capture_beside(true), "capture_beside_calls_of_another_thread_goes_on");
    tap_result(capture_beside(false), "capture_beside_calls_of_its_own_thread_goes_on");
    gvmi_cu->cuMemFree(memory);
    gvmi_cu->cuStreamDestroy(stream);
    gvmi_cu->cuDevicePrimaryCtxRelease(0);
    gvm_device_close(device);
    return tap_finish();
}
