/* softgpu/created.c: what the conformance table cannot hold. Kernels of a context that is reset end, and those of
 * another context of the device go on; a fault is of all of them; the table of contexts has an end; flags that are not imitated are refused.
 *
 * Each test is a child with a machine of its own. Kernels tell when they have begun, and end when they are told.
 */
#include "tests/unit/unit.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/driver.h"
#include "tests/lib/fixture.h"
#include "tests/unit/softgpu_kernels.h"

#define LIMIT_NS 10000000000u
#define LIMIT_MS 10000
#define CONTEXTS_MAX 1000

extern const unsigned char gvmi_image_soft_softgpu_kernels[];

/* A context and the kernel that runs in it. */
typedef struct runner {
    CUcontext context;
    CUstream stream;
    CUdeviceptr memory;
    _Atomic uint32_t *words; /* stop, out */
} runner;

static int begin(CUcontext *primary)
{
    fixture_machine("memory=64MiB,sms=2");
    unsetenv("GVMEM_TRACE");
    unsetenv("GVMEM_FAULT");
    unsetenv("GVMEM_CHECK");
    CHILD_EXPECT(gvmi_driver_start() == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(primary, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(*primary) == CUDA_SUCCESS);
    return 0;
}

static bool wait_for_out(const runner *r, uint32_t value)
{
    for (int ms = 0; ms < LIMIT_MS; ms++) {
        if (atomic_load(&r->words[1]) == value)
            return true;
        pause_ms(1);
    }
    return false;
}

/* Starts a kernel in the current context that runs until it is told to stop. */
static int start_kernel(runner *r, _Atomic uint32_t *words)
{
    softgpu_watch_params params;
    void *arguments[] = {&params};
    CUmodule module;
    CUfunction function;

    r->words = words;
    CHILD_EXPECT(gvmi_cu->cuMemAlloc(&r->memory, 65536) == CUDA_SUCCESS);
    params = (softgpu_watch_params){
        .address = r->memory,
        .words = 8192,
        .stop = (uintptr_t)&words[0],
        .out = (uintptr_t)&words[1],
        .limit_ns = LIMIT_NS,
    };
    CHILD_EXPECT(gvmi_cu->cuModuleLoadData(&module, gvmi_image_soft_softgpu_kernels) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuModuleGetFunction(&function, module, "softgpu_watch") == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, r->stream, arguments, NULL) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(wait_for_out(r, 1));
    return 0;
}

static int stop_kernel(runner *r)
{
    atomic_store(&r->words[0], 1);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
    CHILD_EXPECT(atomic_load(&r->words[1]) == 2);
    return 0;
}

static int reset_beside_a_kernel(void *arg)
{
    static _Atomic uint32_t words[2][2];
    runner primary = {0}, created = {0};

    (void)arg;
    CHILD_EXPECT(begin(&primary.context) == 0);
    CHILD_EXPECT(start_kernel(&primary, words[0]) == 0);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&created.context, NULL, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(start_kernel(&created, words[1]) == 0);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamQuery(primary.stream) == CUDA_ERROR_INVALID_HANDLE);
    CHILD_EXPECT(gvmi_cu->cuMemFree(primary.memory) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuStreamQuery(created.stream) == CUDA_ERROR_NOT_READY);
    CHILD_EXPECT(stop_kernel(&created) == 0);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(created.context) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamQuery(created.stream) == CUDA_ERROR_INVALID_HANDLE);
    return 0;
}

CHILD_TEST(contexts_reset_ends_its_kernels_and_no_others, reset_beside_a_kernel)

/* The thread's own stream is another one in each context, and the same whenever it comes back to it. */
static int own_streams_apart(void *arg)
{
    static _Atomic uint32_t words[2];
    runner created = {0};
    CUcontext primary;
    CUevent event;

    (void)arg;
    CHILD_EXPECT(begin(&primary) == 0);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&created.context, NULL, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(start_kernel(&created, words) == 0);
    CHILD_EXPECT(gvmi_cu->cuEventCreate(&event, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuEventRecord(event, created.stream) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY);
    CHILD_EXPECT(gvmi_cu->cuCtxPushCurrent(primary) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxPopCurrent(NULL) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY);
    CHILD_EXPECT(stop_kernel(&created) == 0);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(created.context) == CUDA_SUCCESS);
    return 0;
}

CHILD_TEST(contexts_have_streams_of_the_thread_of_their_own, own_streams_apart)

/* The process has lost the device, whichever context the kernel was in. */
static int lose_the_device(void *arg)
{
    static _Atomic uint32_t words[2];
    runner primary = {0}, created = {0};
    CUcontext third = NULL;
    softgpu_watch_params params = {
        .words = 8, .stop = (uintptr_t)&words[0], .out = (uintptr_t)&words[1]};
    void *arguments[] = {&params};
    CUmodule module;
    CUfunction function;

    (void)arg;
    CHILD_EXPECT(begin(&primary.context) == 0);
    CHILD_EXPECT(start_kernel(&primary, words) == 0);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&created.context, NULL, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&created.memory, 2 << 20, 0, 0, 0) == CUDA_SUCCESS);
    params.address = created.memory;
    params.limit_ns = LIMIT_NS;
    CHILD_EXPECT(gvmi_cu->cuModuleLoadData(&module, gvmi_image_soft_softgpu_kernels) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuModuleGetFunction(&function, module, "softgpu_watch") == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(primary.stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&third, NULL, 0, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(created.context) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(created.context) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&third, NULL, 0, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&third, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
    return 0;
}

CHILD_TEST_NOT_VALGRIND(contexts_of_a_device_with_a_fault_are_all_lost, lose_the_device, VALGRIND_FAULT)

static int fill_the_table(void *arg)
{
    static CUcontext contexts[CONTEXTS_MAX];
    CUcontext primary, one_more = NULL;
    size_t count = 0;

    (void)arg;
    CHILD_EXPECT(begin(&primary) == 0);
    while (count < CONTEXTS_MAX && gvmi_cu->cuCtxCreate_v2(&contexts[count], 0, 0) == CUDA_SUCCESS)
        count++;
    CHILD_EXPECT(count >= 32 && count < CONTEXTS_MAX);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate_v2(&one_more, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(one_more == NULL);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(contexts[3]) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate_v2(&one_more, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(one_more != contexts[3]);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(contexts[3]) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return 0;
}

CHILD_TEST(contexts_more_than_the_table_has_are_out_of_memory, fill_the_table)

static int refuse_flags(void *arg)
{
    const unsigned core_dumps = 0x20; /* CU_CTX_COREDUMP_ENABLE */
    CUcontext primary, created = NULL;
    CUctxCreateParams params = {.cigParams = (CUctxCigParam *)(uintptr_t)8};

    (void)arg;
    CHILD_EXPECT(begin(&primary) == 0);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate_v2(&created, core_dumps, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CHILD_EXPECT(gvmi_cu->cuCtxSetFlags(core_dumps) == CUDA_ERROR_NOT_SUPPORTED);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&created, &params, 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
    params = (CUctxCreateParams){.execAffinityParams = (CUexecAffinityParam *)(uintptr_t)8,
                                 .numExecAffinityParams = 1};
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&created, &params, 0, 0) == CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate_v3(&created, NULL, 1, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(created == NULL);
    return 0;
}

CHILD_TEST(contexts_with_what_is_not_imitated_are_refused, refuse_flags)

/* ---- memory of another process */

/* Exports memory, and keeps it until the other end of the socket is closed. */
static int export_memory(void *arg)
{
    const int end = *(const int *)arg;
    CUipcMemHandle handle;
    CUcontext primary;
    CUdeviceptr memory;

    CHILD_EXPECT(gvmi_driver_start() == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(primary) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAlloc(&memory, 4096) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuIpcGetMemHandle(&handle, memory) == CUDA_SUCCESS);
    CHILD_EXPECT(write(end, &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHILD_EXPECT(read(end, &handle, 1) == 0);
    return 0;
}

static int open_in_two_contexts(int end)
{
    const unsigned int flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    CUcontext primary, first, second;
    CUdeviceptr one, two, again;
    CUipcMemHandle handle;

    CHILD_EXPECT(read(end, &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHILD_EXPECT(begin(&primary) == 0);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&first, NULL, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuIpcOpenMemHandle(&one, handle, flags) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuIpcOpenMemHandle(&again, handle, flags) == CUDA_SUCCESS && again == one);
    CHILD_EXPECT(gvmi_cu->cuCtxCreate(&second, NULL, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuIpcOpenMemHandle(&two, handle, flags) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemsetD8(one, 5, 64) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxDestroy(first) == CUDA_SUCCESS);
    CHILD_EXPECT(*(const volatile unsigned char *)(uintptr_t)two == 5);
    CHILD_EXPECT(gvmi_cu->cuMemsetD8(two, 1, 64) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuIpcCloseMemHandle(two) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuIpcCloseMemHandle(two) == CUDA_ERROR_INVALID_VALUE);
    return 0;
}

static int share_between_contexts(void *arg)
{
    int ends[2], failed, status;
    pid_t exporter;

    (void)arg;
    fixture_machine("memory=64MiB,sms=2");
    CHILD_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    exporter = fork();
    CHILD_EXPECT(exporter >= 0);
    if (exporter == 0) {
        close(ends[0]);
        _exit(export_memory(&ends[1]));
    }
    close(ends[1]);
    failed = open_in_two_contexts(ends[0]);
    close(ends[0]);
    CHILD_EXPECT(waitpid(exporter, &status, 0) == exporter && WIFEXITED(status) &&
                 WEXITSTATUS(status) == 0);
    return failed;
}

CHILD_TEST(contexts_open_the_memory_of_another_process_each_for_itself, share_between_contexts)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_reset_ends_its_kernels_and_no_others),
        cmocka_unit_test(contexts_have_streams_of_the_thread_of_their_own),
        cmocka_unit_test(contexts_of_a_device_with_a_fault_are_all_lost),
        cmocka_unit_test(contexts_more_than_the_table_has_are_out_of_memory),
        cmocka_unit_test(contexts_with_what_is_not_imitated_are_refused),
        cmocka_unit_test(contexts_open_the_memory_of_another_process_each_for_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
