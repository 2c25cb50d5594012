/* memory/device.c: a program that resets the device's primary context, as cudaDeviceReset() does; and one that forks. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <gvmem/gvmem.h>

#include "base/registry.h"
#include "driver/driver.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define CHUNK (2 * MIB)

static gvm_device *device;
static gvm_buffer *buffer;
static uint64_t free_at_first;

/* A device with a buffer, and what the library keeps in a context: kernels, words of an appender. */
static bool start(void)
{
    gvm_appender *appender;
    gvm_append append = {.struct_size = sizeof append};
    double sum;

    fixture_machine("memory=64MiB,sms=1");
    setenv("GVMEM_CHECK", "1", 1);
    return gvm_device_open(0, &device) == GVM_OK && (free_at_first = memory_free_bytes(device)) > 0 &&
           gvm_buffer_create(device, CHUNK, NULL, &buffer) == GVM_OK &&
           gvm_buffer_commit(buffer, 0, CHUNK) == GVM_OK &&
           gvm_buffer_copy_in(buffer, 0, "content", 8) == GVM_OK &&
           gvm_kernel_sum_f64(device, gvm_buffer_address(buffer), 1, NULL, &sum) == GVM_OK &&
           gvm_appender_create(device, 8, 4 * CHUNK, NULL, &appender) == GVM_OK &&
           gvm_appender_begin(appender, &append) == GVM_OK &&
           gvm_appender_finish(appender, NULL, NULL) == GVM_OK &&
           (gvm_appender_destroy(appender), true);
}

/* The reset, and a runtime that goes on. */
static bool reset(void)
{
    CUcontext context;

    return gvmi_cu->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS &&
           gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS;
}

static int be_reset(void *arg)
{
    gvm_device *again;
    char text[8];

    (void)arg;
    CHILD_EXPECT(start() && reset());
    CHILD_EXPECT(gvm_buffer_copy_out(text, buffer, 0, 8) == GVM_E_LOST);
    CHILD_EXPECT(gvm_buffer_copy_in(buffer, 0, "another", 8) == GVM_E_LOST);
    CHILD_EXPECT(gvm_device_synchronize(device) == GVM_E_LOST);
    CHILD_EXPECT(gvm_device_open(0, &again) == GVM_OK && again != device);
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    CHILD_EXPECT(gvm_buffer_create(again, CHUNK, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_in(buffer, 0, "another", 8) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_copy_out(text, buffer, 0, 8) == GVM_OK && strcmp(text, "another") == 0);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(gvm_device_trim(again, 0) == GVM_OK && memory_free_bytes(again) == free_at_first);
    gvm_device_close(again);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_DEVICE) == 0);
    CHILD_EXPECT(gvmi_check_violations() == 0);
    return 0;
}

/* What the program has allocated since may have the addresses of what the library had. */
static int be_reset_and_closed(void *arg)
{
    CUcontext context;
    CUdeviceptr at;

    (void)arg;
    CHILD_EXPECT(start() && reset());
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAlloc(&at, 4 * CHUNK) == CUDA_SUCCESS);
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    CHILD_EXPECT(gvmi_cu->cuMemsetD8Async(at, 1, 4 * CHUNK, NULL) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemFree(at) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_check_violations() == 0);
    return 0;
}

CHILD_TEST(device_after_a_reset_is_lost_and_opens_anew, be_reset)
CHILD_TEST(device_closed_after_a_reset_frees_nothing_of_the_programs, be_reset_and_closed)

/* Everything that the trace has said since the last look. */
static const char *traced(int fd)
{
    static char text[64 * 1024];
    const ssize_t bytes = read(fd, text, sizeof text - 1);

    text[bytes > 0 ? bytes : 0] = '\0';
    return text;
}

/* A driver may crash on the handle of a stream that went with its context. */
static int be_reset_and_traced(void *arg)
{
    char path[64], text[8];
    int fd;

    (void)arg;
    snprintf(path, sizeof path, "/tmp/gvmem-test-reset-%d", (int)getpid());
    setenv("GVMEM_TRACE", path, 1);
    CHILD_EXPECT(start());
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHILD_EXPECT(fd >= 0 && unlink(path) == 0);
    CHILD_EXPECT(strstr(traced(fd), "cuStreamSynchronize(") != NULL);
    CHILD_EXPECT(reset());
    CHILD_EXPECT(gvm_buffer_copy_out(text, buffer, 0, 8) == GVM_E_LOST);
    CHILD_EXPECT(gvm_device_synchronize(device) == GVM_E_LOST);
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    CHILD_EXPECT(strstr(traced(fd), "cuStream") == NULL);
    close(fd);
    return 0;
}

CHILD_TEST(device_after_a_reset_gives_no_stream_to_the_driver, be_reset_and_traced)

/* Virtual memory outlives a reset. What heaps of before have idle is had by the device that was opened anew: chunks of
 * streams that are gone, blocks that waited for those, and free chunks. */
static int be_reset_with_idle_memory(void *arg)
{
    gvm_heap_info info = {.struct_size = sizeof info};
    CUstream stream, another;
    CUcontext context;
    gvm_device *again;
    gvm_buffer *large;
    gvm_heap *heap;
    void *of_stream, *plain, *live;

    (void)arg;
    CHILD_EXPECT(start() && gvm_heap_create(device, NULL, &heap) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
                 gvmi_cu->cuCtxSetCurrent(context) == CUDA_SUCCESS &&
                 gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
                 gvmi_cu->cuStreamCreate(&another, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_EXPECT(gvm_heap_alloc_async(heap, 10 * CHUNK, "", stream, &of_stream) == GVM_OK &&
                 gvm_heap_alloc(heap, 8 * CHUNK, &plain) == GVM_OK &&
                 gvm_heap_alloc(heap, CHUNK, &live) == GVM_OK &&
                 gvm_heap_free_async(heap, of_stream, stream) == GVM_OK &&
                 gvm_heap_free_async(heap, plain, another) == GVM_OK);
    CHILD_EXPECT(reset() && gvm_device_open(0, &again) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_create(again, 30 * CHUNK, NULL, &large) == GVM_OK);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(gvm_buffer_commit(large, 0, 28 * CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_heap_get_info(heap, &info) == GVM_OK && info.pending_bytes == 0);
    CHILD_EXPECT(gvm_heap_stream_end(heap, stream) == GVM_OK &&
                 gvm_heap_free(heap, live) == GVM_OK && gvm_heap_check(heap) == GVM_OK);
    gvm_heap_destroy(heap);
    gvm_buffer_destroy(large);
    gvm_device_close(device);
    gvm_device_close(again);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_DEVICE) == 0 && gvmi_check_violations() == 0);
    return 0;
}

CHILD_TEST(device_opened_anew_has_what_heaps_of_before_keep_idle, be_reset_with_idle_memory)

/* Its pages are the process's, which the driver had pinned for the context. */
static int be_reset_with_pinned_memory(void *arg)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .kind = GVM_HEAP_HOST};
    unsigned char resident;
    gvm_heap *heap;
    void *block;

    (void)arg;
    CHILD_EXPECT(start() && gvm_heap_create(device, &options, &heap) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, 10 * CHUNK, &block) == GVM_OK &&
                 mincore(block, 1, &resident) == 0);
    memset(block, 1, 10 * CHUNK);
    CHILD_EXPECT(reset());
    gvm_heap_destroy(heap);
    CHILD_EXPECT(mincore(block, 1, &resident) == -1 && errno == ENOMEM);
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    CHILD_EXPECT(gvmi_check_violations() == 0);
    return 0;
}

CHILD_TEST(heap_of_pinned_memory_that_ends_after_a_reset_is_unmapped, be_reset_with_pinned_memory)

/* The library's thread reads words of the host as long as an appender has begun; calls write them. */
static int be_reset_while_begun(void *arg)
{
    gvm_append append = {.struct_size = sizeof append};
    gvm_appender_info info = {.struct_size = sizeof info};
    gvm_appender *begun, *idle;
    gvm_buffer *taken = NULL;
    double sum;

    (void)arg;
    CHILD_EXPECT(start() && gvm_appender_create(device, 8, 8 * CHUNK, NULL, &begun) == GVM_OK &&
                 gvm_appender_create(device, 8, 8 * CHUNK, NULL, &idle) == GVM_OK);
    CHILD_EXPECT(gvm_appender_begin(idle, &append) == GVM_OK &&
                 gvm_appender_finish(idle, NULL, NULL) == GVM_OK &&
                 gvm_appender_begin(begun, &append) == GVM_OK);
    CHILD_EXPECT(reset());
    pause_ms(20); /* the thread looks at least once in a millisecond */
    CHILD_EXPECT(gvm_appender_finish(begun, NULL, NULL) == GVM_E_LOST);
    CHILD_EXPECT(gvm_appender_get_info(begun, &info) == GVM_OK && info.begun);
    CHILD_EXPECT(gvm_appender_begin(idle, &append) == GVM_E_LOST);
    CHILD_EXPECT(gvm_appender_reset(idle) == GVM_OK);
    CHILD_EXPECT(gvm_appender_take(idle, &taken) == GVM_E_LOST && taken == NULL);
    CHILD_EXPECT(gvm_kernel_sum_f64(device, gvm_buffer_address(buffer), 1, NULL, &sum) == GVM_E_LOST);
    gvm_appender_destroy(begun);
    gvm_appender_destroy(idle);
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_DEVICE) == 0 && gvmi_check_violations() == 0);
    return 0;
}

CHILD_TEST(appender_after_a_reset_is_lost, be_reset_while_begun)

/* Makes memory with a handle, and has it until the other end is closed. */
static int export_memory(int end)
{
    gvm_ipc_info info = {.struct_size = sizeof info};
    gvm_ipc *ipc;

    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK && gvm_ipc_create(device, CHUNK, &ipc) == GVM_OK);
    CHILD_EXPECT(gvm_ipc_get_info(ipc, &info) == GVM_OK);
    CHILD_EXPECT(write(end, &info.handle, sizeof info.handle) == (ssize_t)sizeof info.handle);
    CHILD_EXPECT(read(end, &info.handle, 1) == 0);
    return 0;
}

static int be_reset_with_an_opening(int end)
{
    gvm_ipc_handle handle;
    gvm_device *again;
    void *at, *same;

    CHILD_EXPECT(read(end, &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHILD_EXPECT(start() && gvm_ipc_open(device, &handle, &at) == GVM_OK);
    CHILD_EXPECT(gvm_ipc_open(device, &handle, &same) == GVM_OK && same == at);
    CHILD_EXPECT(reset());
    CHILD_EXPECT(gvm_ipc_close(device, at) == GVM_OK && gvm_ipc_close(device, at) == GVM_OK);
    CHILD_EXPECT(gvm_ipc_close(device, at) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_IPC_OPEN) == 0);
    CHILD_EXPECT(gvm_device_open(0, &again) == GVM_OK && gvm_ipc_open(again, &handle, &at) == GVM_OK);
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    gvm_device_close(again);
    CHILD_EXPECT(gvm_ipc_close(again, at) == GVM_OK); /* the opening has kept the device */
    CHILD_EXPECT(gvm_ipc_close(again, at) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvmi_check_violations() == 0);
    return 0;
}

static int be_reset_beside_an_exporter(void *arg)
{
    int ends[2], failed, status;
    pid_t exporter;

    (void)arg;
    fixture_machine("memory=64MiB,sms=1"); /* of both */
    CHILD_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    exporter = fork();
    CHILD_EXPECT(exporter >= 0);
    if (exporter == 0) {
        close(ends[0]);
        _exit(export_memory(ends[1]));
    }
    close(ends[1]);
    failed = be_reset_with_an_opening(ends[0]);
    close(ends[0]);
    CHILD_EXPECT(waitpid(exporter, &status, 0) == exporter && status == 0);
    return failed;
}

CHILD_TEST(memory_of_another_process_is_closed_after_a_reset, be_reset_beside_an_exporter)

/* ---- fork */

static atomic_bool over;

/* The lock of devices is mostly held by this thread. */
static void *open_and_close(void *arg)
{
    gvm_device *another;

    (void)arg;
    while (!atomic_load(&over))
        if (gvm_device_open(1, &another) == GVM_OK)
            gvm_device_close(another);
    return NULL;
}

static int be_forked_beside_openings(void *arg)
{
    pthread_t thread;
    bool ended = true;

    (void)arg;
    fixture_machine("devices=2,memory=64MiB,sms=1");
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(pthread_create(&thread, NULL, open_and_close, NULL) == 0);
    for (int round = 0; round < 20 && ended; round++) {
        int status = -1;
        const pid_t child = fork();

        if (child == 0) {
            end_child_after(20);
            gvm_device_close(device);
            (void)kill(getpid(), SIGKILL); /* at an exit valgrind would see what the thread alone had */
        }
        ended = waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
                WTERMSIG(status) == SIGKILL;
    }
    atomic_store(&over, true);
    CHILD_EXPECT(pthread_join(thread, NULL) == 0 && ended);
    gvm_device_close(device);
    return 0;
}

CHILD_TEST(child_closes_its_parents_device_and_waits_for_nobody, be_forked_beside_openings)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_after_a_reset_is_lost_and_opens_anew),
        cmocka_unit_test(device_closed_after_a_reset_frees_nothing_of_the_programs),
        cmocka_unit_test(device_opened_anew_has_what_heaps_of_before_keep_idle),
        cmocka_unit_test(heap_of_pinned_memory_that_ends_after_a_reset_is_unmapped),
        cmocka_unit_test(appender_after_a_reset_is_lost),
        cmocka_unit_test(device_after_a_reset_gives_no_stream_to_the_driver),
        cmocka_unit_test(memory_of_another_process_is_closed_after_a_reset),
        cmocka_unit_test(child_closes_its_parents_device_and_waits_for_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
