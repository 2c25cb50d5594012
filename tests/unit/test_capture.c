/* memory/device.c: while the library calls the driver for its own purposes, its thread's mode of captures is relaxed, so
 * that a graph that another thread captures in the global mode is not ended by it.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/appender_fixture.h"

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

CHILD_TEST(call_of_the_library_relaxes_captures_and_no_more, be_callers)
CHILD_TEST(thread_of_the_library_relaxes_captures, be_service)
CHILD_TEST(mode_of_the_program_is_kept, be_kept)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_of_the_library_relaxes_captures_and_no_more),
        cmocka_unit_test(thread_of_the_library_relaxes_captures),
        cmocka_unit_test(mode_of_the_program_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
