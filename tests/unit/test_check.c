/* driver/check.c: the book of what is held is exact, and every misuse is counted. */
#include "tests/unit/fake.h"
#include "tests/unit/unit.h"

#define CHUNK 2097152

static const gvmi_driver *checked;
static uint64_t violations_before;
static gvmi_check_holdings held_before;

static uint64_t violations(void)
{
    return gvmi_check_violations() - violations_before;
}

static void assert_nothing_new_is_held(void)
{
    gvmi_check_holdings now = gvmi_check_held();

    assert_memory_equal(&now, &held_before, sizeof now);
}

static CUmemGenericAllocationHandle create(void)
{
    CUmemGenericAllocationHandle handle = 0;

    assert_int_equal(checked->cuMemCreate(&handle, CHUNK, NULL, 0), CUDA_SUCCESS);
    return handle;
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address = 0;

    assert_int_equal(checked->cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
}

static void check_orderly_life_is_no_violation(void **state)
{
    CUdeviceptr at = reserve(4 * CHUNK);
    CUmemGenericAllocationHandle a = create(), b = create();
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    (void)state;
    checked->cuMemMap(at, CHUNK, 0, a, 0);
    checked->cuMemMap(at + CHUNK, CHUNK, 0, b, 0);
    checked->cuMemMap(at + 3 * CHUNK, CHUNK, 0, b, 0); /* one handle at two addresses */
    assert_int_equal(gvmi_check_held().mappings, 3);
    assert_int_equal(gvmi_check_held().handles, 2);
    assert_int_equal(gvmi_check_held().reservations, 1);
    checked->cuMemSetAccess(at, 2 * CHUNK, &access, 1);
    checked->cuMemRelease(a); /* mapped memory may be released; the mapping keeps it */
    checked->cuMemUnmap(at, 2 * CHUNK);
    checked->cuMemUnmap(at + 3 * CHUNK, CHUNK);
    checked->cuMemRelease(b);
    checked->cuMemAddressFree(at, 4 * CHUNK);
    assert_int_equal(violations(), 0);
    assert_nothing_new_is_held();
}

static void check_each_thing_made_is_held_until_given_back(void **state)
{
    CUdeviceptr memory, rows, pooled;
    size_t pitch = 512;
    CUcontext contexts[3];
    void *host, *mine = &memory;
    CUstream stream;
    CUevent event;
    CUmodule modules[3];
    CUgraph graph, captured;
    CUgraphExec exec;
    gvmi_check_holdings held;

    (void)state;
    checked->cuCtxCreate(&contexts[0], NULL, 0, 0);
    checked->cuCtxCreate_v3(&contexts[1], NULL, 0, 0, 0);
    checked->cuCtxCreate_v2(&contexts[2], 0, 0);
    checked->cuMemAlloc(&memory, 100);
    checked->cuMemAllocPitch(&rows, &pitch, 100, 2, 4);
    checked->cuMemAllocFromPoolAsync(&pooled, 100, NULL, NULL);
    checked->cuMemHostAlloc(&host, 100, 0);
    checked->cuMemHostRegister(mine, 100, 0);
    checked->cuStreamCreate(&stream, 0);
    checked->cuEventCreate(&event, 0);
    checked->cuModuleLoad(&modules[0], "");
    checked->cuModuleLoadData(&modules[1], NULL);
    checked->cuModuleLoadDataEx(&modules[2], NULL, 0, NULL, NULL);
    checked->cuGraphCreate(&graph, 0);
    checked->cuStreamEndCapture(stream, &captured);
    checked->cuGraphInstantiate(&exec, graph, 0);
    held = gvmi_check_held();
    assert_int_equal(held.contexts, 3);
    assert_int_equal(held.allocations, 3);
    assert_int_equal(held.host_allocations, 2);
    assert_int_equal(held.streams, 1);
    assert_int_equal(held.events, 1);
    assert_int_equal(held.modules, 3);
    assert_int_equal(held.graphs, 3);
    for (int i = 0; i < 3; i++) {
        checked->cuModuleUnload(modules[i]);
        checked->cuCtxDestroy(contexts[i]);
    }
    checked->cuMemFree(memory);
    checked->cuMemFree(rows);
    checked->cuMemFreeAsync(pooled, NULL);
    checked->cuMemFreeHost(host);
    checked->cuMemHostUnregister(mine);
    checked->cuStreamDestroy(stream);
    checked->cuEventDestroy(event);
    checked->cuGraphExecDestroy(exec);
    checked->cuGraphDestroy(captured);
    checked->cuGraphDestroy(graph);
    assert_int_equal(violations(), 0);
    assert_nothing_new_is_held();
}

static void check_failed_calls_change_nothing(void **state)
{
    CUdeviceptr at = reserve(CHUNK), none;
    CUmemGenericAllocationHandle handle = create(), other;

    (void)state;
    checked->cuMemMap(at, CHUNK, 0, handle, 0);
    held_before = gvmi_check_held();
    fake_result = CUDA_ERROR_UNKNOWN;
    checked->cuMemCreate(&other, CHUNK, NULL, 0);
    checked->cuMemAddressReserve(&none, CHUNK, 0, 0, 0);
    checked->cuMemUnmap(at, CHUNK);
    checked->cuMemRelease(handle);
    fake_result = CUDA_SUCCESS;
    assert_nothing_new_is_held();
    checked->cuMemUnmap(at, CHUNK);
    checked->cuMemRelease(handle);
    checked->cuMemAddressFree(at, CHUNK);
    assert_int_equal(violations(), 0);
    assert_int_equal(gvmi_check_held().handles, 0);
}

static void check_broken_context_takes_what_is_given_back(void **state)
{
    CUmemGenericAllocationHandle handle = create();

    (void)state;
    fake_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    checked->cuMemRelease(handle);
    fake_result = CUDA_SUCCESS;
    assert_int_equal(violations(), 0);
    assert_nothing_new_is_held();
}

static void check_handle_given_twice_is_held_twice(void **state)
{
    CUmemGenericAllocationHandle handle = create(), same = handle;

    (void)state;
    checked->cuMemRetainAllocationHandle(&same, NULL);
    assert_int_equal(gvmi_check_held().handles, 2);
    checked->cuMemRelease(handle);
    checked->cuMemRelease(handle);
    assert_int_equal(violations(), 0);
    checked->cuMemRelease(handle);
    assert_int_equal(violations(), 1);
}

static void check_giving_back_twice_is_a_violation(void **state)
{
    CUdeviceptr memory;

    (void)state;
    checked->cuMemAlloc(&memory, 100);
    checked->cuMemFree(memory);
    checked->cuMemFree(memory);
    assert_int_equal(violations(), 1);
    checked->cuMemRelease(12345);
    checked->cuStreamDestroy((CUstream)0x77);
    checked->cuModuleUnload((CUmodule)0x77);
    checked->cuMemAddressFree(0x77, CHUNK);
    assert_int_equal(violations(), 5);
    assert_nothing_new_is_held();
}

static void check_mapping_misuse_is_a_violation(void **state)
{
    CUdeviceptr at = reserve(2 * CHUNK);
    CUmemGenericAllocationHandle handle = create();
    uint64_t expected = 0;

    (void)state;
    checked->cuMemMap(at, CHUNK, 0, handle, 0);
    checked->cuMemMap(at, CHUNK, 0, handle, 0); /* over itself */
    assert_int_equal(violations(), ++expected);
    checked->cuMemUnmap(at + CHUNK, CHUNK); /* nothing there */
    assert_int_equal(violations(), ++expected);
    checked->cuMemUnmap(at, CHUNK / 2); /* half of one: the driver would refuse */
    assert_int_equal(violations(), ++expected);
    checked->cuMemMap(at + CHUNK, CHUNK, 0, 12345, 0); /* a handle of nobody */
    assert_int_equal(violations(), ++expected);
    checked->cuMemSetAccess(at + CHUNK, 2 * CHUNK, NULL, 0); /* past what is mapped */
    assert_int_equal(violations(), ++expected);
    checked->cuMemAddressFree(at, 2 * CHUNK); /* in use */
    assert_int_equal(violations(), ++expected);
    checked->cuMemMap(0x77000000, CHUNK, 0, handle, 0); /* addresses of nobody */
    assert_int_equal(violations(), ++expected);
    checked->cuMemUnmap(0x77000000, CHUNK);
    checked->cuMemRelease(handle);
    checked->cuMemUnmap(at + CHUNK, CHUNK);
}

static CUresult no_context(CUcontext *context)
{
    *context = NULL;
    return CUDA_SUCCESS;
}

static void check_call_without_a_context_is_a_violation(void **state)
{
    static gvmi_driver below;
    CUdeviceptr memory;

    (void)state;
    below = *fake_driver();
    below.cuCtxGetCurrent = no_context;
    checked = gvmi_check_wrap(&below);
    checked->cuMemcpyHtoD(1, &memory, 1);
    assert_int_equal(violations(), 1);
    checked->cuMemAlloc(&memory, 1);
    assert_int_equal(violations(), 2);
    checked->cuMemFree(memory);
    checked = gvmi_check_wrap(fake_driver());
}

static void check_many_mappings_are_kept_apart(void **state)
{
    enum { COUNT = 3000 };
    CUdeviceptr at = reserve((size_t)COUNT * CHUNK);
    CUmemGenericAllocationHandle handle = create();

    (void)state;
    for (unsigned i = 0; i < COUNT; i++) /* out of order, so that the shelf has to sort */
        checked->cuMemMap(at + (uint64_t)((i * 1009) % COUNT) * CHUNK, CHUNK, 0, handle, 0);
    assert_int_equal(gvmi_check_held().mappings - held_before.mappings, COUNT);
    checked->cuMemSetAccess(at, (size_t)COUNT * CHUNK, NULL, 0);
    checked->cuMemUnmap(at + CHUNK, CHUNK);
    checked->cuMemSetAccess(at, 2 * CHUNK, NULL, 0); /* a hole now */
    assert_int_equal(violations(), 1);
    checked->cuMemUnmap(at, CHUNK);
    checked->cuMemUnmap(at + 2 * CHUNK, (size_t)(COUNT - 2) * CHUNK);
    checked->cuMemRelease(handle);
    checked->cuMemAddressFree(at, (size_t)COUNT * CHUNK);
    assert_int_equal(violations(), 1);
    assert_nothing_new_is_held();
}

/* The violations are made on purpose: their reports are thrown away while a test runs. */
static int stderr_kept = -1;

static int before(void **state)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)state;
    violations_before = gvmi_check_violations();
    held_before = gvmi_check_held();
    stderr_kept = dup(STDERR_FILENO);
    dup2(null, STDERR_FILENO);
    close(null);
    return 0;
}

static int after(void **state)
{
    (void)state;
    dup2(stderr_kept, STDERR_FILENO);
    close(stderr_kept);
    return 0;
}

static int start(void **state)
{
    (void)state;
    checked = gvmi_check_wrap(fake_driver());
    return checked != NULL ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, before, after)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(check_orderly_life_is_no_violation),
        TEST(check_each_thing_made_is_held_until_given_back),
        TEST(check_failed_calls_change_nothing),
        TEST(check_broken_context_takes_what_is_given_back),
        TEST(check_handle_given_twice_is_held_twice),
        TEST(check_giving_back_twice_is_a_violation),
        TEST(check_mapping_misuse_is_a_violation),
        TEST(check_call_without_a_context_is_a_violation),
        TEST(check_many_mappings_are_kept_apart),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
