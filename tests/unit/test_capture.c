/* Captures and the library. While it calls the driver for its own purposes, its thread's mode of captures is relaxed, so
 * that a graph that is captured in the global mode is not ended by it. What is given to a captured stream becomes part of
 * the graph; what would have to wait for it is refused, and leaves the capture alone.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/appender_fixture.h"
#include "tests/unit/softgpu_kernels.h"

extern const unsigned char gvmi_image_soft_softgpu_kernels[];

static atomic_int calls, relaxed; /* seen; and those with the mode relaxed */

static CUstreamCaptureMode mode_now(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED, now;

    if (real->cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        return -1;
    now = mode;
    (void)real->cuThreadExchangeStreamCaptureMode(&mode);
    return now;
}

static void note(void)
{
    atomic_fetch_add(&calls, 1);
    atomic_fetch_add(&relaxed, mode_now() == CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult synchronize_noted(CUstream stream)
{
    note();
    return real->cuStreamSynchronize(stream);
}

static CUresult alloc_noted(CUdeviceptr *ptr, size_t bytes)
{
    note();
    return real->cuMemAlloc(ptr, bytes);
}

static CUresult event_noted(CUevent event)
{
    note();
    return real->cuEventQuery(event);
}

static pthread_t creator; /* who made the last chunk */

static CUresult create_noted(CUmemGenericAllocationHandle *handle, size_t bytes,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
    creator = pthread_self();
    note();
    return real->cuMemCreate(handle, bytes, prop, flags);
}

static bool only_relaxed(void)
{
    return atomic_exchange(&calls, 0) == atomic_load(&relaxed) &&
           atomic_exchange(&relaxed, 0) > 0 && mode_now() == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static int be_callers(void *arg)
{
    uint64_t word = 7;
    double sum;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(mode_now() == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHILD_EXPECT(gvm_buffer_commit(gvm_appender_buffer(appender), 0, CHUNK) == GVM_OK);
    table.cuStreamSynchronize = synchronize_noted;
    table.cuMemAlloc = alloc_noted;
    table.cuEventQuery = event_noted;
    CHILD_EXPECT(gvm_buffer_copy_in(gvm_appender_buffer(appender), 0, &word, sizeof word) == GVM_OK);
    CHILD_EXPECT(only_relaxed());
    CHILD_EXPECT(gvm_kernel_sum_f64(device, gvm_buffer_address(gvm_appender_buffer(appender)), 1,
                                    NULL, &sum) == GVM_OK);
    CHILD_EXPECT(only_relaxed());
    gvm_appender_destroy(appender);
    gvm_device_close(device);
    CHILD_EXPECT(mode_now() == CU_STREAM_CAPTURE_MODE_GLOBAL);
    return 0;
}

static int be_service(void *arg)
{
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    table.cuMemCreate = create_noted;
    CHILD_EXPECT(begin() == GVM_OK && info().front_bytes > 0);
    CHILD_EXPECT(!pthread_equal(creator, pthread_self()));
    CHILD_EXPECT(only_relaxed());
    CHILD_EXPECT(write_place(1, 0, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK);
    CHILD_EXPECT(stop());
    return 0;
}

/* A program's own mode is what it was, whatever that is. */
static int be_kept(void *arg)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(real->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHILD_EXPECT(begin() == GVM_OK && finish() == GVM_OK);
    CHILD_EXPECT(mode_now() == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHILD_EXPECT(stop());
    CHILD_EXPECT(mode_now() == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return 0;
}

/* ---- streams of the program, captured */

static CUstream stream;

static bool begin_capture(void)
{
    return real->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS;
}

static bool capture_goes_on(void)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return real->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Ends the capture; the graph has so many nodes. NULL if not. */
static CUgraphExec end_capture(size_t wanted)
{
    CUgraphExec exec = NULL;
    CUgraph graph;
    size_t nodes = 0;

    if (real->cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS)
        return NULL;
    if (real->cuGraphGetNodes(graph, NULL, &nodes) == CUDA_SUCCESS && nodes == wanted)
        (void)real->cuGraphInstantiate(&exec, graph, 0);
    return real->cuGraphDestroy(graph) == CUDA_SUCCESS ? exec : NULL;
}

static bool run(CUgraphExec exec)
{
    return real->cuGraphLaunch(exec, stream) == CUDA_SUCCESS &&
           real->cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

/* An appender, and a stream whose context is current. */
static bool start_captures(void)
{
    CUcontext context;

    return start(ROW, 64 * CHUNK, NULL) &&
           real->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
           real->cuCtxSetCurrent(context) == CUDA_SUCCESS &&
           real->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

static bool stop_captures(void)
{
    return real->cuStreamDestroy(stream) == CUDA_SUCCESS &&
           real->cuCtxSetCurrent(NULL) == CUDA_SUCCESS &&
           real->cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS && stop();
}

static bool rows_are_numbered(uint64_t rows)
{
    const char *row = gvm_buffer_address(gvm_appender_buffer(appender));

    for (uint64_t i = 0; i < rows; i++, row += ROW)
        if (*(const uint64_t *)(const void *)row != i)
            return false;
    return true;
}

/* A captured kernel fills five chunks: what it waits for is committed while its graph runs. */
static int be_captured_appender(void *arg)
{
    const uint64_t rows = 5 * CHUNK / ROW;
    softgpu_append_params params = {.rows = rows};
    void *arguments[] = {&params};
    CUmodule module;
    CUfunction function;
    CUgraphExec exec;

    (void)arg;
    CHILD_EXPECT(start_captures());
    CHILD_EXPECT(real->cuModuleLoadData(&module, gvmi_image_soft_softgpu_kernels) == CUDA_SUCCESS);
    CHILD_EXPECT(real->cuModuleGetFunction(&function, module, "softgpu_append") == CUDA_SUCCESS);
    CHILD_EXPECT(begin_capture());
    CHILD_EXPECT(begin() == GVM_OK);
    params.append = append;
    CHILD_EXPECT(real->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvm_appender_finish(appender, stream, &result) == GVM_E_INVALID);
    CHILD_EXPECT(capture_goes_on());
    CHILD_EXPECT((exec = end_capture(1)) != NULL);
    CHILD_EXPECT(real->cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    CHILD_EXPECT(gvm_appender_finish(appender, stream, &result) == GVM_OK);
    CHILD_EXPECT(result.rows == rows && result.complete && info().commits > 1);
    CHILD_EXPECT(rows_are_numbered(rows));
    CHILD_EXPECT(real->cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CHILD_EXPECT(real->cuModuleUnload(module) == CUDA_SUCCESS);
    CHILD_EXPECT(stop_captures());
    return 0;
}

/* Calls that would wait for the stream, and the words that their results are in. */
static int be_refused(void *arg)
{
    gvm_buffer *buffer = NULL;
    void *at;
    double sum = 7;
    uint64_t word = 7;

    (void)arg;
    CHILD_EXPECT(start_captures());
    CHILD_EXPECT(gvm_buffer_create(device, CHUNK, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, CHUNK) == GVM_OK);
    at = gvm_buffer_address(buffer);
    CHILD_EXPECT(begin_capture());
    for (int i = 0; i < 2000; i++) /* more than there are words */
        CHILD_EXPECT(gvm_kernel_sum_f64(device, at, 100, stream, &sum) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_kernel_checksum(device, at, 800, stream, &word) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_kernel_compare(device, at, at, 800, stream, &word) == GVM_E_INVALID);
    CHILD_EXPECT(sum == 7 && word == 7 && capture_goes_on());
    CHILD_EXPECT(real->cuGraphExecDestroy(end_capture(0)) == CUDA_SUCCESS);
    CHILD_EXPECT(gvm_kernel_sum_f64(device, at, 100, stream, &sum) == GVM_OK && sum == 0);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop_captures());
    return 0;
}

/* Behind a stream that is not the block's: an event would be needed. */
static int be_freed(void *arg)
{
    gvm_heap_info now = {.struct_size = sizeof now};
    void *plain = NULL, *own = NULL, *more = NULL;
    CUstream other;
    gvm_heap *heap;

    (void)arg;
    CHILD_EXPECT(start_captures());
    CHILD_EXPECT(real->cuStreamCreate(&other, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    CHILD_EXPECT(gvm_heap_create(device, NULL, &heap) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, CHUNK, &plain) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc_async(heap, CHUNK, NULL, other, &own) == GVM_OK);
    CHILD_EXPECT(begin_capture());
    CHILD_EXPECT(gvm_heap_free_async(heap, plain, stream) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_heap_free_async(heap, own, stream) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_heap_free_after(heap, plain, (gvm_stream[]){other, stream}, 2) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_heap_alloc(heap, CHUNK, &more) == GVM_OK); /* looks at what waits */
    CHILD_EXPECT(gvm_heap_get_info(heap, &now) == GVM_OK && now.blocks == 3 && now.pending_bytes == 0);
    CHILD_EXPECT(capture_goes_on());
    CHILD_EXPECT(real->cuGraphExecDestroy(end_capture(0)) == CUDA_SUCCESS);
    CHILD_EXPECT(gvm_heap_free_async(heap, plain, stream) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free_async(heap, own, stream) == GVM_OK);
    CHILD_EXPECT(gvm_heap_trim(heap, 0) == GVM_OK);
    CHILD_EXPECT(gvm_heap_get_info(heap, &now) == GVM_OK && now.blocks == 1 && now.pending_bytes == 0);
    gvm_heap_destroy(heap);
    CHILD_EXPECT(real->cuStreamDestroy(other) == CUDA_SUCCESS);
    CHILD_EXPECT(stop_captures());
    return 0;
}

static int be_parts(void *arg)
{
    static uint64_t words[100], back[100];
    const uint32_t pattern = 5;
    gvm_buffer *buffer = NULL;
    uint64_t before, now;
    CUgraphExec exec;
    void *at;

    (void)arg;
    CHILD_EXPECT(start_captures());
    CHILD_EXPECT(gvm_buffer_create(device, CHUNK, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, CHUNK) == GVM_OK);
    at = gvm_buffer_address(buffer);
    CHILD_EXPECT(gvm_kernel_checksum(device, at, CHUNK, NULL, &before) == GVM_OK);
    CHILD_EXPECT(begin_capture());
    CHILD_EXPECT(gvm_kernel_fill_random_f64(device, at, 1000, 0, 1, stream) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_fill_async(buffer, 8000, 8000, &pattern, 4, stream) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_in_async(buffer, 16000, words, sizeof words, stream) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_out_async(back, buffer, 16000, sizeof back, stream) == GVM_OK);
    CHILD_EXPECT(capture_goes_on());
    CHILD_EXPECT((exec = end_capture(4)) != NULL);
    CHILD_EXPECT(gvm_kernel_checksum(device, at, CHUNK, NULL, &now) == GVM_OK && now == before);
    for (uint64_t round = 1; round < 4; round++) {
        words[99] = round;
        CHILD_EXPECT(run(exec) && back[99] == round);
    }
    CHILD_EXPECT(((uint32_t *)at)[2000] == 5 && ((uint32_t *)at)[3999] == 5);
    CHILD_EXPECT(gvm_kernel_checksum(device, at, 8000, NULL, &now) == GVM_OK && now != before);
    CHILD_EXPECT(real->cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop_captures());
    return 0;
}

CHILD_TEST(call_of_the_library_relaxes_captures_and_no_more, be_callers)
CHILD_TEST(thread_of_the_library_relaxes_captures, be_service)
CHILD_TEST(mode_of_the_program_is_kept, be_kept)
CHILD_TEST(captured_appender_grows_at_launch, be_captured_appender)
CHILD_TEST(wait_for_a_captured_stream_is_refused_and_spoils_nothing, be_refused)
CHILD_TEST(free_behind_a_captured_stream_is_refused_and_spoils_nothing, be_freed)
CHILD_TEST(work_for_a_captured_stream_is_part_of_the_graph, be_parts)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_of_the_library_relaxes_captures_and_no_more),
        cmocka_unit_test(thread_of_the_library_relaxes_captures),
        cmocka_unit_test(mode_of_the_program_is_kept),
        cmocka_unit_test(captured_appender_grows_at_launch),
        cmocka_unit_test(wait_for_a_captured_stream_is_refused_and_spoils_nothing),
        cmocka_unit_test(free_behind_a_captured_stream_is_refused_and_spoils_nothing),
        cmocka_unit_test(work_for_a_captured_stream_is_part_of_the_graph),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
