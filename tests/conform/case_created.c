/* Cases: contexts that a program creates, and the stack of current ones.
 *
 * Goal: what a plain program of the driver API relies on, from cuCtxCreate to cuCtxDestroy. Each case has a
 * process of its own, because what a real driver keeps for a context when it ends is not its business.
 */
#include "tests/conform/execution.h"

static CUcontext current(void)
{
    CUcontext context = NULL;
    REQUIRE_OK(cu->cuCtxGetCurrent(&context));
    return context;
}

/* Current when this returns. */
static CUcontext take_context(void)
{
    CUcontext context = NULL;
    REQUIRE_OK(cu->cuCtxCreate_v2(&context, 0, machine.device));
    own(OWN_CONTEXT, (uintptr_t)context, 0);
    return context;
}

static int driver_version(void)
{
    int version = 0;
    REQUIRE_OK(cu->cuDriverGetVersion(&version));
    return version;
}

static CUresult launch_function(CUfunction function, const void *params, size_t size, CUstream stream)
{
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)params,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    return cu->cuLaunchKernel(function, 1, 1, 1, machine.block_threads, 1, 1, 0, stream, NULL, extra);
}

/* ---- life */

/* There is no context then, and that none is given is found first. */
CASE(created_before_init_is_refused)
{
    CUcontext context = NULL;
    EXPECT(cu->cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_TRUE(context == NULL);
    EXPECT_INVALID(cu->cuCtxDestroy(context));
}

CASE(created_is_current_at_once)
{
    CUcontext before = current(), created = take_context();
    CUdevice device = -1;
    EXPECT_TRUE(created != NULL && created != before);
    EXPECT_TRUE(current() == created);
    EXPECT_OK(cu->cuCtxGetDevice(&device));
    EXPECT_U64(device, machine.device);
    drop(OWN_CONTEXT, (uintptr_t)created);
    EXPECT_TRUE(current() == before);
}

CASE(created_by_each_version_of_the_call)
{
    CUcontext created = NULL;
    CUctxCreateParams none = {0};
    REQUIRE_OK(cu->cuCtxCreate_v2(&created, 0, machine.device));
    EXPECT_OK(cu->cuCtxDestroy(created));
    if (driver_version() >= 11040) {
        REQUIRE_OK(cu->cuCtxCreate_v3(&created, NULL, 0, 0, machine.device));
        EXPECT_OK(cu->cuCtxDestroy(created));
    }
    if (driver_version() < 12050)
        return;
    REQUIRE_OK(cu->cuCtxCreate(&created, NULL, 0, machine.device));
    EXPECT_OK(cu->cuCtxDestroy(created));
    /* The manual wants one of its two members, if there is a structure at all; the driver does not. */
    REQUIRE_OK(cu->cuCtxCreate(&created, &none, 0, machine.device));
    EXPECT_OK(cu->cuCtxDestroy(created));
}

CASE(created_of_nonsense_is_refused)
{
    CUcontext created = NULL;
    EXPECT(cu->cuCtxCreate_v2(&created, 0, machine.device_count), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cu->cuCtxCreate_v2(&created, 0, -1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_INVALID(cu->cuCtxCreate_v2(NULL, 0, machine.device));
    EXPECT_INVALID(cu->cuCtxCreate_v2(&created, 0x100, machine.device));
    EXPECT_INVALID(cu->cuCtxCreate_v2(&created, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, machine.device));
    EXPECT_TRUE(created == NULL && current() == machine.context);
}

CASE(created_contexts_nest)
{
    CUcontext outer = take_context(), inner = take_context();
    EXPECT_TRUE(outer != inner && current() == inner);
    drop(OWN_CONTEXT, (uintptr_t)inner);
    EXPECT_TRUE(current() == outer);
    drop(OWN_CONTEXT, (uintptr_t)outer);
    EXPECT_TRUE(current() == machine.context);
}

CASE(created_many_end_in_any_order)
{
    enum { MANY = 6 };
    static const int order[MANY] = {3, 0, 5, 1, 4, 2};
    CUcontext created[MANY], popped;
    for (int i = 0; i < MANY; i++) {
        created[i] = take_context();
        REQUIRE_OK(cu->cuCtxPopCurrent(&popped));
        for (int j = 0; j < i; j++)
            EXPECT_TRUE(created[i] != created[j]);
    }
    for (int i = 0; i < MANY; i++)
        drop(OWN_CONTEXT, (uintptr_t)created[order[i]]);
    EXPECT_TRUE(current() == machine.context);
}

CASE(created_is_made_again_and_again)
{
    for (int i = 0; i < 100; i++)
        drop(OWN_CONTEXT, (uintptr_t)take_context());
    EXPECT_TRUE(current() == machine.context);
}

CASE(created_beneath_another_is_destroyed_in_place)
{
    CUcontext created = take_context(), popped = NULL;
    REQUIRE_OK(cu->cuCtxPushCurrent(machine.context));
    drop(OWN_CONTEXT, (uintptr_t)created);
    EXPECT_TRUE(current() == machine.context);
    EXPECT_OK(cu->cuCtxPopCurrent(&popped));
    EXPECT_TRUE(popped == machine.context && current() == created);
    EXPECT(cu->cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

CASE(created_destroy_of_nothing_is_refused)
{
    EXPECT_INVALID(cu->cuCtxDestroy(NULL));
}

/* The manual does not say; a primary context ends by cuDevicePrimaryCtxRelease. */
CASE(created_destroy_does_not_take_the_primary_one)
{
    EXPECT(cu->cuCtxDestroy(machine.context), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_OK(cu->cuCtxSynchronize());
    abandon_all();
}

/* ---- floating, and in other threads */

struct visit {
    CUcontext context, popped;
    CUresult push, work, pop;
};

static void visit_context(void *arg)
{
    struct visit *visit = arg;
    CUdeviceptr at = 0;
    visit->push = cu->cuCtxPushCurrent(visit->context);
    visit->work = cu->cuMemAlloc(&at, 4096);
    if (visit->work == CUDA_SUCCESS)
        visit->work = cu->cuMemFree(at);
    visit->pop = cu->cuCtxPopCurrent(&visit->popped);
}

CASE(created_floats_to_another_thread)
{
    struct visit visit = {.context = take_context()};
    CUcontext popped = NULL;
    EXPECT_OK(cu->cuCtxPopCurrent(&popped));
    EXPECT_TRUE(popped == visit.context && current() == machine.context);
    in_thread(visit_context, &visit);
    EXPECT_OK(visit.push);
    EXPECT_OK(visit.work);
    EXPECT_OK(visit.pop);
    EXPECT_TRUE(visit.popped == visit.context);
    EXPECT_OK(cu->cuCtxPushCurrent(visit.context));
    EXPECT_OK(cu->cuCtxSynchronize());
}

CASE(created_is_current_to_two_threads_at_once)
{
    struct visit visit = {.context = take_context()};
    in_thread(visit_context, &visit);
    EXPECT_OK(visit.push);
    EXPECT_OK(visit.work);
    EXPECT_OK(visit.pop);
    EXPECT_TRUE(current() == visit.context);
}

static void destroy_context(void *arg)
{
    struct visit *visit = arg;
    visit->work = cu->cuCtxDestroy(visit->context);
}

CASE(created_destroyed_elsewhere_stays_current_and_refuses)
{
    struct visit visit = {.context = take_context()};
    CUdeviceptr at = 0;
    CUstream stream = NULL;
    CUcontext popped = NULL;
    size_t free_now, total;
    disown(OWN_CONTEXT, (uintptr_t)visit.context);
    in_thread(destroy_context, &visit);
    EXPECT_OK(visit.work);
    EXPECT_TRUE(current() == visit.context);
    EXPECT(cu->cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(cu->cuMemAlloc(&at, 4096), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(cu->cuMemGetInfo(&free_now, &total), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(cu->cuStreamCreate(&stream, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_OK(cu->cuCtxPopCurrent(&popped));
    EXPECT_TRUE(popped == visit.context && current() == machine.context);
    EXPECT_OK(cu->cuCtxSynchronize());
}

CASE(created_set_current_replaces_it)
{
    CUcontext created = take_context();
    EXPECT_OK(cu->cuCtxSetCurrent(machine.context));
    EXPECT_TRUE(current() == machine.context);
    EXPECT_OK(cu->cuCtxSetCurrent(created));
    EXPECT_TRUE(current() == created);
    EXPECT_OK(cu->cuCtxSetCurrent(NULL)); /* as a pop */
    EXPECT_TRUE(current() == machine.context);
}

/* ---- what it tells */

CASE(created_tells_its_scheduling)
{
    static const unsigned wanted[] = {CU_CTX_SCHED_SPIN, CU_CTX_SCHED_YIELD,
                                      CU_CTX_SCHED_BLOCKING_SYNC};
    CUcontext created = NULL;
    unsigned flags = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        REQUIRE_OK(cu->cuCtxCreate_v2(&created, wanted[i], machine.device));
        EXPECT_OK(cu->cuCtxGetFlags(&flags));
        EXPECT_U64(flags, wanted[i]);
        EXPECT_OK(cu->cuCtxDestroy(created));
    }
    EXPECT_INVALID(cu->cuCtxGetFlags(NULL));
}

CASE(created_scheduling_can_be_changed)
{
    unsigned flags = 0;
    (void)take_context();
    EXPECT_OK(cu->cuCtxSetFlags(CU_CTX_SCHED_YIELD));
    EXPECT_OK(cu->cuCtxGetFlags(&flags));
    EXPECT_U64(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_YIELD);
    EXPECT_INVALID(cu->cuCtxSetFlags(0x100));
}

static CUresult set_byte(CUdeviceptr at)
{
    return cu->cuMemsetD8(at, 1, 1);
}

static CUresult set_half(CUdeviceptr at)
{
    return cu->cuMemsetD16(at, 1, 1);
}

static CUresult copy_within(CUdeviceptr at)
{
    return cu->cuMemcpyDtoD(at, at + 256, 4);
}

static CUresult copy_rows_within(CUdeviceptr at)
{
    const CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = at + 256,
        .srcPitch = 64,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = at,
        .dstPitch = 64,
        .WidthInBytes = 4,
        .Height = 2,
    };
    return cu->cuMemcpy2D(&copy);
}

/* They return before they are done otherwise. */
CASE(created_with_synchronous_copies_waits)
{
    static CUresult (*const calls[])(CUdeviceptr) = {set_byte, set_half, copy_within, copy_rows_within};
    CUcontext created = NULL;
    CUfunction function;
    conform_slow slow = {0, 50000000};
    CUdeviceptr at;
    REQUIRE_OK(cu->cuCtxCreate_v2(&created, CU_CTX_SYNC_MEMOPS, machine.device));
    own(OWN_CONTEXT, (uintptr_t)created, 0);
    function = module_kernel(take_module(), "conform_slow_kernel");
    at = take_alloc(4096);
    slow.out = at + 1024;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        REQUIRE_OK(launch_function(function, &slow, sizeof slow, NULL));
        EXPECT_OK(calls[i](at));
        EXPECT_OK(cu->cuStreamQuery(NULL));
    }
}

CASE(context_flags_without_one_are_refused)
{
    unsigned flags = 0;
    EXPECT(cu->cuCtxGetFlags(&flags), CUDA_ERROR_INVALID_CONTEXT);
}

CASE(context_primary_takes_flags_before_it_is_retained)
{
    CUcontext context = NULL;
    unsigned flags = 0;
    int is_active = -1;
    EXPECT_OK(cu->cuDevicePrimaryCtxSetFlags(machine.device, CU_CTX_SCHED_BLOCKING_SYNC));
    EXPECT_OK(cu->cuDevicePrimaryCtxGetState(machine.device, &flags, &is_active));
    EXPECT_U64(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
    EXPECT_U64(is_active, 0);
    REQUIRE_OK(cu->cuDevicePrimaryCtxRetain(&context, machine.device));
    REQUIRE_OK(cu->cuCtxSetCurrent(context));
    EXPECT_OK(cu->cuCtxGetFlags(&flags));
    EXPECT_U64(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
    EXPECT_INVALID(cu->cuDevicePrimaryCtxSetFlags(machine.device, 0x100));
    EXPECT(cu->cuDevicePrimaryCtxSetFlags(machine.device_count, 0), CUDA_ERROR_INVALID_DEVICE);
}

CASE(created_tells_its_api_version)
{
    CUcontext created = take_context();
    unsigned of_created = 0, of_current = 0, of_primary = 0;
    EXPECT_OK(cu->cuCtxGetApiVersion(created, &of_created));
    EXPECT_OK(cu->cuCtxGetApiVersion(NULL, &of_current));
    EXPECT_OK(cu->cuCtxGetApiVersion(machine.context, &of_primary));
    EXPECT_U64(of_created, 3020);
    EXPECT_U64(of_current, 3020);
    EXPECT_U64(of_primary, 3020);
    EXPECT_INVALID(cu->cuCtxGetApiVersion(created, NULL));
}

CASE(context_api_version_without_one_is_refused)
{
    unsigned version = 0;
    EXPECT(cu->cuCtxGetApiVersion(NULL, &version), CUDA_ERROR_INVALID_CONTEXT);
}

CASE(created_has_a_number_of_its_own)
{
    unsigned long long ids[3] = {0};
    CUcontext first = take_context(), second = take_context();
    REQUIRE_OK(cu->cuCtxGetId(machine.context, &ids[0]));
    EXPECT_OK(cu->cuCtxGetId(first, &ids[1]));
    EXPECT_OK(cu->cuCtxGetId(second, &ids[2]));
    EXPECT_TRUE(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
}

/* ---- what belongs to it */

CASE(created_memory_comes_back_with_it)
{
    size_t before = free_bytes(), size = 512 * MIB;
    CUcontext created;
    CUdeviceptr at = 0;
    if (size > before / 4)
        size = before / 4;
    created = take_context();
    REQUIRE_OK(cu->cuMemAlloc(&at, size));
    drop(OWN_CONTEXT, (uintptr_t)created);
    EXPECT_TRUE(wait_free_bytes(before - size / 2));
}

CASE(created_leaves_the_memory_of_others)
{
    CUdeviceptr at = take_alloc(64 * KIB);
    CUcontext created;
    write_word(at, 40);
    created = take_context();
    (void)cu->cuMemAlloc(&(CUdeviceptr){0}, 64 * KIB);
    drop(OWN_CONTEXT, (uintptr_t)created);
    EXPECT_U64(read_word(at), 40);
    EXPECT_OK(kernel_try_write(at, 41));
    EXPECT_U64(read_word(at), 41);
}

CASE(created_leaves_virtual_memory)
{
    CUcontext created = take_context();
    CUdeviceptr at = take_memory(machine.granule);
    write_word(at, 42);
    EXPECT_U64(read_word(at), 42);
    drop(OWN_CONTEXT, (uintptr_t)created);
    EXPECT_U64(read_word(at), 42);
    EXPECT_U64(kernel_read(at), 42);
}

CASE(created_leaves_stream_ordered_memory)
{
    CUcontext created = take_context();
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAllocAsync(&at, 64 * KIB, NULL));
    REQUIRE_OK(cu->cuCtxSynchronize());
    write_word(at, 43);
    REQUIRE_OK(cu->cuCtxSynchronize());
    drop(OWN_CONTEXT, (uintptr_t)created);
    EXPECT_U64(read_word(at), 43);
    EXPECT_OK(cu->cuMemFree(at));
}

CASE(created_memory_tells_its_context)
{
    CUcontext created = take_context(), told = NULL;
    CUdeviceptr at = take_alloc(4096);
    EXPECT_OK(cu->cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    EXPECT_TRUE(told == created);
}

CASE(created_runs_kernels_of_its_own_image)
{
    enum { WORDS = 4096 };
    CUmodule module;
    CUdeviceptr at, out;
    uint64_t sum = 0;
    (void)take_context();
    module = take_module();
    at = take_alloc(WORDS * sizeof(uint32_t));
    out = take_alloc(sizeof sum);
    conform_fill fill = {at, WORDS, 5, 0};
    conform_range range = {at, out, WORDS};
    REQUIRE_OK(cu->cuMemsetD8(out, 0, sizeof sum));
    REQUIRE_OK(launch_function(module_kernel(module, "conform_fill_kernel"), &fill, sizeof fill, NULL));
    REQUIRE_OK(launch_function(module_kernel(module, "conform_sum_kernel"), &range, sizeof range, NULL));
    EXPECT_OK(cu->cuMemcpyDtoH(&sum, out, sizeof sum));
    EXPECT_U64(sum, sum_of_fill(WORDS, 5));
}

CASE(created_kernel_is_not_launched_into_another_context)
{
    conform_touch params = {scratch(), 1, 0};
    CUstream there;
    CUcontext created = take_context();
    there = take_stream(CU_STREAM_NON_BLOCKING);
    REQUIRE_OK(cu->cuCtxPushCurrent(machine.context));
    EXPECT(try_launch("touch", 1, &params, there), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_OK(cu->cuCtxPopCurrent(NULL));
    EXPECT_TRUE(current() == created);
}

/* An event is recorded on streams of its own context alone, whichever is current; and looked at from any. */
CASE(created_event_is_recorded_in_its_context)
{
    CUcontext found = NULL, created = take_context();
    CUstream there = take_stream(CU_STREAM_NON_BLOCKING);
    CUevent of_created = take_event(CU_EVENT_DISABLE_TIMING), event;
    REQUIRE_OK(cu->cuCtxPushCurrent(machine.context));
    event = take_event(CU_EVENT_DISABLE_TIMING);
    EXPECT(cu->cuEventRecord(event, there), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_OK(cu->cuEventRecord(of_created, there));
    EXPECT_OK(cu->cuStreamGetCtx(there, &found));
    EXPECT_TRUE(found == created);
    EXPECT_OK(cu->cuStreamGetCtx(take_stream(CU_STREAM_DEFAULT), &found));
    EXPECT_TRUE(found == machine.context);
    EXPECT_OK(cu->cuStreamGetCtx(NULL, &found));
    EXPECT_TRUE(found == machine.context);
    EXPECT_INVALID(cu->cuStreamGetCtx(there, NULL));
    EXPECT_OK(cu->cuEventQuery(of_created));
    REQUIRE_OK(cu->cuCtxPopCurrent(NULL));
}

/* Memory of one context of a device, seen from another one. */
CASE(created_memory_is_copied_from_another_context)
{
    CUdeviceptr here = take_alloc(64 * KIB), there;
    write_word(here, 44);
    REQUIRE_OK(cu->cuCtxSynchronize());
    (void)take_context();
    there = take_alloc(64 * KIB);
    EXPECT_OK(cu->cuMemcpyDtoD(there, here, 4));
    EXPECT_U64(read_word(there), 44);
}

CASE(created_is_no_peer_of_a_context_of_its_device)
{
    CUcontext created = take_context();
    EXPECT(cu->cuCtxEnablePeerAccess(machine.context, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    EXPECT(cu->cuCtxEnablePeerAccess(created, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

/* ---- waiting */

CASE(created_does_not_wait_for_another_context)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    serve_start(stream);
    (void)take_context();
    EXPECT_OK(cu->cuStreamQuery(NULL));
    EXPECT_OK(cu->cuCtxSynchronize());
    REQUIRE_OK(cu->cuCtxPushCurrent(machine.context));
    EXPECT_TRUE(serve_runs());
    serve_stop();
    REQUIRE_OK(cu->cuCtxPopCurrent(NULL));
}

CASE(created_streams_of_the_thread_are_apart)
{
    CUcontext created;
    conform_slow slow = {scratch_word(0), 50000000};
    launch("slow", 1, &slow, CU_STREAM_PER_THREAD);
    created = take_context();
    EXPECT_OK(cu->cuStreamQuery(CU_STREAM_PER_THREAD));
    drop(OWN_CONTEXT, (uintptr_t)created);
    EXPECT_OK(cu->cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT_U64(read_word(scratch_word(0)), 1);
}

/* The manual does not say whether work that is queued is waited for or ended. */
CASE(created_destroyed_with_work_waits_for_it)
{
    CUcontext created = take_context();
    CUdeviceptr word = take_memory(machine.granule);
    CUmodule module;
    conform_slow slow = {word, 50000000};
    REQUIRE_OK(cu->cuMemsetD8(word, 0, 4));
    REQUIRE_OK(cu->cuModuleLoadData(&module, conform_image));
    REQUIRE_OK(launch_function(module_kernel(module, "conform_slow_kernel"), &slow, sizeof slow, NULL));
    drop(OWN_CONTEXT, (uintptr_t)created);
    EXPECT_U64(read_word(word), 1);
}

/* ---- resets and faults beside it */

/* "All resources associated with the current device", by the manual: those of its primary context. */
CASE(created_outlives_a_reset)
{
    CUdeviceptr at = 0;
    CUcontext created = take_context();
    disown(OWN_CONTEXT, (uintptr_t)created);
    REQUIRE_OK(cu->cuMemAlloc(&at, 64 * KIB));
    REQUIRE_OK(cu->cuDevicePrimaryCtxReset(machine.device));
    EXPECT_OK(cu->cuCtxSynchronize());
    abandon_all();
}

static void look_at_primary(void *arg)
{
    CUresult *results = arg;
    CUdeviceptr at = 0;
    (void)cu->cuCtxSetCurrent(machine.context);
    results[0] = cu->cuCtxSynchronize();
    results[1] = cu->cuMemAlloc(&at, 4096);
}

CASE(context_reset_is_seen_by_other_threads)
{
    CUresult results[2] = {CUDA_SUCCESS, CUDA_SUCCESS};
    abandon_all();
    REQUIRE_OK(cu->cuDevicePrimaryCtxReset(machine.device));
    in_thread(look_at_primary, results);
    EXPECT(results[0], CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(results[1], CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

CASE(context_reset_gives_all_its_memory_back)
{
    CUdeviceptr at = 0;
    void *pinned = NULL;
    CUcontext again = NULL;
    size_t before = free_bytes(), size = 512 * MIB;
    if (size > before / 4)
        size = before / 4;
    REQUIRE_OK(cu->cuMemAlloc(&at, size));
    REQUIRE_OK(cu->cuMemHostAlloc(&pinned, MIB, 0));
    abandon_all();
    REQUIRE_OK(cu->cuDevicePrimaryCtxReset(machine.device));
    REQUIRE_OK(cu->cuDevicePrimaryCtxRetain(&again, machine.device));
    EXPECT_TRUE(again == machine.context);
    EXPECT_TRUE(wait_free_bytes(before - size / 2));
    EXPECT_INVALID(cu->cuMemFree(at));
    EXPECT_INVALID(cu->cuMemFreeHost(pinned));
}

/* "Any further CUDA work will return the same error", in each context of the device; that of the fault is destroyed without
 * one. */
CASE(created_fault_is_the_error_of_the_others)
{
    CUcontext created = take_context(), another = NULL;
    CUmodule module;
    conform_touch params = {take_range(machine.granule), 1, 0};
    REQUIRE_OK(cu->cuModuleLoadData(&module, conform_image));
    REQUIRE_OK(launch_function(module_kernel(module, "conform_touch_kernel"), &params,
                               sizeof params, NULL));
    EXPECT(cu->cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    abandon_all();
    EXPECT_OK(cu->cuCtxDestroy(created));
    EXPECT_OK(cu->cuCtxSetCurrent(machine.context));
    EXPECT(cu->cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cu->cuCtxCreate_v2(&another, 0, machine.device), CUDA_ERROR_ILLEGAL_ADDRESS);
}
