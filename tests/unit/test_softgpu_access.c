/* softgpu/vmm.c: memory whose access changes while a kernel reads it. On a real device the kernel
 * faults now and then (docs/design/driver-facts.md); the software GPU is to make it fault always, if
 * the kernel reads there within the gap, and not a kernel whose rights stay.
 *
 * Each test is a child with a machine of its own, whose gap is so long that a kernel that runs is
 * met by it. Kernels tell when they have begun, and end when the test says so.
 */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "driver/driver.h"
#include "tests/lib/fixture.h"
#include "tests/unit/softgpu_kernels.h"

#define CHUNK ((size_t)2 << 20)
#define CHUNKS 3
#define BYTE 0x5a
#define LIMIT_NS 10000000000u
#define LIMIT_MS 10000

extern const unsigned char gvmi_image_soft_softgpu_kernels[];

enum { NONE = CU_MEM_ACCESS_FLAGS_PROT_NONE };
enum { READ = CU_MEM_ACCESS_FLAGS_PROT_READ };
enum { WRITE = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

/* What a child has: a range of mapped chunks, and a kernel that reads one of them. */
static struct {
    CUdeviceptr range;
    CUcontext contexts[2];
    CUstream stream;
    _Atomic uint32_t *words; /* pinned: stop, out */
} fixture;

/* ---- the fixture */

static CUmemAccessDesc right_of(CUmemLocationType who, int id, int what)
{
    return (CUmemAccessDesc){.location = {who, id}, .flags = (CUmemAccess_flags)what};
}

static CUresult give(int device, size_t first, size_t count, int what)
{
    const CUmemAccessDesc desc = right_of(CU_MEM_LOCATION_TYPE_DEVICE, device, what);

    return gvmi_cu->cuMemSetAccess(fixture.range + first * CHUNK, count * CHUNK, &desc, 1);
}

static int map(CUmemLocationType where)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {where, 0}};

    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&fixture.range, CHUNKS * CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    for (size_t i = 0; i < CHUNKS; i++) {
        CUmemGenericAllocationHandle handle;

        CHILD_EXPECT(gvmi_cu->cuMemCreate(&handle, CHUNK, &prop, 0) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuMemMap(fixture.range + i * CHUNK, CHUNK, 0, handle, 0) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuMemRelease(handle) == CUDA_SUCCESS);
    }
    return 0;
}

/* Chunks that device 0 may write. */
static int begin(const char *keys, CUmemLocationType where)
{
    void *pinned;

    fixture_machine("memory=64MiB,sms=1,%s", keys);
    unsetenv("GVMEM_TRACE");
    unsetenv("GVMEM_FAULT");
    unsetenv("GVMEM_CHECK");
    CHILD_EXPECT(gvmi_driver_start() == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&fixture.contexts[0], 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(fixture.contexts[0]) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemHostAlloc(&pinned, 2 * sizeof *fixture.words, 0) == CUDA_SUCCESS);
    fixture.words = pinned;
    CHILD_EXPECT(map(where) == 0);
    CHILD_EXPECT(give(0, 0, CHUNKS, WRITE) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemsetD8(fixture.range, BYTE, CHUNKS * CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSynchronize() == CUDA_SUCCESS);
    return 0;
}

#define GAP "gap_us=50000"
/* What is to be met by it reads meanwhile, also on a busy machine. */
#define LONG_GAP "gap_us=500000"

static bool wait_for_out(uint32_t value)
{
    for (int ms = 0; ms < LIMIT_MS; ms++) {
        if (atomic_load(&fixture.words[1]) == value)
            return true;
        pause_ms(1);
    }
    return false;
}

/* Starts a kernel of the device that reads chunk after chunk. */
static int watch(int device, size_t first, size_t count)
{
    softgpu_watch_params params = {
        .address = fixture.range + first * CHUNK,
        .words = count * CHUNK / 8,
        .stop = (uintptr_t)&fixture.words[0],
        .out = (uintptr_t)&fixture.words[1],
        .limit_ns = LIMIT_NS,
    };
    void *arguments[] = {&params};
    CUmodule module;
    CUfunction function;

    if (device > 0)
        CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&fixture.contexts[device], device) ==
                     CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(fixture.contexts[device]) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuModuleLoadData(&module, gvmi_image_soft_softgpu_kernels) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuModuleGetFunction(&function, module, "softgpu_watch") == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamCreate(&fixture.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, fixture.stream, arguments,
                                         NULL) == CUDA_SUCCESS);
    CHILD_EXPECT(wait_for_out(1));
    return 0;
}

/* The kernel reads to this day, and is well. */
static int watched_well(void)
{
    atomic_store(&fixture.words[1], 0);
    CHILD_EXPECT(wait_for_out(1));
    atomic_store(&fixture.words[0], 1);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(fixture.stream) == CUDA_SUCCESS);
    CHILD_EXPECT(atomic_load(&fixture.words[1]) == 2);
    return 0;
}

/* The kernel has met its end, and so has its context; the memory is as the case says. */
static int watched_ill(int access)
{
    unsigned long long found = NONE;
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(fixture.stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHILD_EXPECT(atomic_load(&fixture.words[1]) == 1);
    CHILD_EXPECT(gvmi_cu->cuMemGetAccess(&found, &here, fixture.range) == CUDA_SUCCESS);
    CHILD_EXPECT(found == (unsigned long long)access);
    CHILD_EXPECT(*(const unsigned char *)(uintptr_t)fixture.range == BYTE); /* open again */
    return 0;
}

/* ---- kernels that read where rights change */

static int lose_writing(void *arg)
{
    (void)arg;
    CHILD_EXPECT(begin(LONG_GAP, CU_MEM_LOCATION_TYPE_DEVICE) == 0);
    CHILD_EXPECT(watch(0, 0, 1) == 0);
    CHILD_EXPECT(give(0, 0, CHUNKS, READ) == CUDA_SUCCESS);
    return watched_ill(READ);
}

static int gain_writing(void *arg)
{
    (void)arg;
    CHILD_EXPECT(begin(LONG_GAP, CU_MEM_LOCATION_TYPE_DEVICE) == 0);
    CHILD_EXPECT(give(0, 0, 2, READ) == CUDA_SUCCESS);
    CHILD_EXPECT(watch(0, 0, 1) == 0);
    CHILD_EXPECT(give(0, 0, CHUNKS, WRITE) == CUDA_SUCCESS);
    return watched_ill(WRITE);
}

CHILD_TEST(access_taken_under_a_kernel_faults_it, lose_writing)
CHILD_TEST(access_given_under_a_kernel_faults_it, gain_writing)

/* What a stream does itself is no better off: it reads the word until it is another one. */
static int change_under_a_wait(void *arg)
{
    CUstream stream;

    (void)arg;
    end_child_after(60);
    CHILD_EXPECT(begin(LONG_GAP, CU_MEM_LOCATION_TYPE_DEVICE) == 0);
    CHILD_EXPECT(gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamWriteValue32(stream, (uintptr_t)&fixture.words[1], 1, 0) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamWaitValue32(stream, fixture.range, 7, CU_STREAM_WAIT_VALUE_EQ) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(wait_for_out(1));
    CHILD_EXPECT(gvmi_cu->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    CHILD_EXPECT(give(0, 0, 1, READ) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    return 0;
}

CHILD_TEST(access_changed_under_a_stream_operation_faults_it, change_under_a_wait)

static int change_without_gap(void *arg)
{
    (void)arg;
    CHILD_EXPECT(begin("gap_us=0", CU_MEM_LOCATION_TYPE_DEVICE) == 0);
    CHILD_EXPECT(watch(0, 0, CHUNKS) == 0);
    for (int i = 0; i < 1000; i++)
        CHILD_EXPECT(give(0, 0, CHUNKS, i % 2 == 0 ? READ : WRITE) == CUDA_SUCCESS);
    return watched_well();
}

static void access_changed_without_a_gap_does_no_harm(void **state)
{
    (void)state;
    SKIP_UNDER_VALGRIND(
        "threads take turns there: one waits seconds for what another shows at most times");
    assert_child_succeeds(change_without_gap, NULL);
}

/* ---- kernels whose rights stay */

static int set_the_same(void *arg)
{
    const CUmemAccessDesc twice[] = {
        right_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, READ),
        right_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, WRITE),
    };

    (void)arg;
    CHILD_EXPECT(begin(GAP, CU_MEM_LOCATION_TYPE_DEVICE) == 0);
    CHILD_EXPECT(watch(0, 0, CHUNKS) == 0);
    for (int i = 0; i < 20; i++) {
        CHILD_EXPECT(give(0, 0, CHUNKS, WRITE) == CUDA_SUCCESS);
        CHILD_EXPECT(gvmi_cu->cuMemSetAccess(fixture.range, CHUNKS * CHUNK, twice, 2) == CUDA_SUCCESS);
    }
    return watched_well();
}

CHILD_TEST(access_set_again_does_no_harm, set_the_same)

/* The kernel reads the chunk in the middle. */
static int change_beside(void *arg)
{
    (void)arg;
    CHILD_EXPECT(begin(GAP, CU_MEM_LOCATION_TYPE_DEVICE) == 0);
    CHILD_EXPECT(watch(0, 1, 1) == 0);
    for (int i = 0; i < 4; i++) {
        CHILD_EXPECT(give(0, 0, 1, READ) == CUDA_SUCCESS);
        CHILD_EXPECT(give(0, 2, 1, i % 2 == 0 ? READ : NONE) == CUDA_SUCCESS);
        /* In one call: the first is closed, the middle left as it is, the last opened. */
        CHILD_EXPECT(give(0, 0, CHUNKS, WRITE) == CUDA_SUCCESS);
    }
    return watched_well();
}

CHILD_TEST(access_changed_beside_a_kernel_does_no_harm, change_beside)

/* All devices of a process share its addresses, but not their rights. */
static int change_for_another_device(void *arg)
{
    (void)arg;
    CHILD_EXPECT(begin("devices=2," GAP, CU_MEM_LOCATION_TYPE_DEVICE) == 0);
    CHILD_EXPECT(give(1, 0, CHUNKS, READ) == CUDA_SUCCESS);
    CHILD_EXPECT(watch(1, 0, CHUNKS) == 0);
    CHILD_EXPECT(give(0, 0, CHUNKS, READ) == CUDA_SUCCESS);
    CHILD_EXPECT(give(0, 0, CHUNKS, NONE) == CUDA_SUCCESS);
    CHILD_EXPECT(give(0, 0, CHUNKS, WRITE) == CUDA_SUCCESS);
    return watched_well();
}

static int change_for_both_devices(void *arg)
{
    const CUmemAccessDesc both[] = {
        right_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, READ),
        right_of(CU_MEM_LOCATION_TYPE_DEVICE, 1, READ),
    };

    (void)arg;
    CHILD_EXPECT(begin("devices=2," LONG_GAP, CU_MEM_LOCATION_TYPE_DEVICE) == 0);
    CHILD_EXPECT(give(1, 0, CHUNKS, WRITE) == CUDA_SUCCESS);
    CHILD_EXPECT(watch(1, 0, CHUNKS) == 0);
    CHILD_EXPECT(gvmi_cu->cuMemSetAccess(fixture.range, CHUNKS * CHUNK, both, 2) == CUDA_SUCCESS);
    return watched_ill(READ);
}

static void access_of_another_device_does_no_harm(void **state)
{
    (void)state;
    assert_child_succeeds(change_for_another_device, NULL);
    assert_child_succeeds(change_for_both_devices, NULL);
}

static void *read_by_cpu(void *arg)
{
    const volatile unsigned char *bytes = arg;

    while (atomic_load(&fixture.words[0]) == 0)
        if (bytes[0] != BYTE)
            return arg;
    return NULL;
}

/* Nothing would catch the program's own thread, whichever processor's rights change. */
static int change_under_the_cpu(void *arg)
{
    const CUmemAccessDesc cpu = right_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, READ);
    const CUmemAccessDesc swap[] = {
        right_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, WRITE),
        right_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, READ),
    };
    pthread_t thread;
    void *wrong = arg;

    CHILD_EXPECT(begin("host=64MiB," GAP, CU_MEM_LOCATION_TYPE_HOST_NUMA) == 0);
    CHILD_EXPECT(gvmi_cu->cuMemSetAccess(fixture.range, CHUNK, &cpu, 1) == CUDA_SUCCESS);
    CHILD_EXPECT(pthread_create(&thread, NULL, read_by_cpu, (void *)(uintptr_t)fixture.range) == 0);
    CHILD_EXPECT(give(0, 0, 1, READ) == CUDA_SUCCESS);
    CHILD_EXPECT(give(0, 0, 1, WRITE) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemSetAccess(fixture.range, CHUNK, swap, 2) == CUDA_SUCCESS);
    atomic_store(&fixture.words[0], 1);
    CHILD_EXPECT(pthread_join(thread, &wrong) == 0 && wrong == NULL);
    return 0;
}

CHILD_TEST(access_changed_under_the_cpu_does_no_harm, change_under_the_cpu)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(access_taken_under_a_kernel_faults_it),
        cmocka_unit_test(access_given_under_a_kernel_faults_it),
        cmocka_unit_test(access_changed_under_a_stream_operation_faults_it),
        cmocka_unit_test(access_changed_without_a_gap_does_no_harm),
        cmocka_unit_test(access_set_again_does_no_harm),
        cmocka_unit_test(access_changed_beside_a_kernel_does_no_harm),
        cmocka_unit_test(access_of_another_device_does_no_harm),
        cmocka_unit_test(access_changed_under_the_cpu_does_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
