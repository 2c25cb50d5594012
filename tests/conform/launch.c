/* Kernels for the cases: modules of each device in use, launches, and the kernel that stays. */
#include <string.h>

#include "tests/conform/conform.h"
#include "tests/conform/image.h"

static struct device_state {
    CUcontext context;
    CUmodule module;
    CUdeviceptr scratch;
} devices[CONFORM_DEVICES_MAX];
static int current;

/* The kernel that stays: its mailbox is pinned memory that lives as long as the worker. */
static struct {
    conform_mailbox *box;
    CUstream stream;
    uint32_t requests;
} serving;

static void device_open(int ordinal)
{
    struct device_state *state = &devices[ordinal];
    CUdevice device;
    REQUIRE_OK(cu->cuDeviceGet(&device, ordinal));
    REQUIRE_OK(cu->cuDevicePrimaryCtxRetain(&state->context, device));
    REQUIRE_OK(cu->cuCtxSetCurrent(state->context));
    REQUIRE_OK(cu->cuMemAlloc(&state->scratch, CONFORM_SCRATCH_BYTES));
    conform_image_load(&state->module);
}

/* First launches make a driver load code and grow its pools, which may wait for running kernels:
 * they are had here. */
static void device_warm_up(void)
{
    CUdeviceptr at = scratch();
    conform_touch touch = {at, 0, 0};
    conform_range range = {at, at, 1};
    conform_fill fill = {at, 1, 0, 0};
    conform_count count = {at, 0};
    conform_slow slow = {at, 1};
    conform_serve serve = {at, 0};
    conform_block block = {.out = at + KIB, .what = CONFORM_STATIC};
    launch("touch", 1, &touch, NULL);
    launch("peek", 1, &range, NULL);
    launch("copy", 1, &range, NULL);
    launch("sum", 1, &range, NULL);
    launch("fill", 1, &fill, NULL);
    launch("count", 1, &count, NULL);
    launch("record", 1, &count, NULL);
    launch("reverse", 1, &count, NULL);
    launch("global", 1, &count, NULL);
    launch("slow", 1, &slow, NULL);
    launch("serve", 1, &serve, NULL);
    launch("where", 1, &block, NULL);
    launch("lanes", 1, &block, NULL);
    launch("shared", 1, &block, NULL);
    launch("gather", 1, &block, NULL);
    launch("spin", 1, &block, NULL);
    REQUIRE_OK(cu->cuCtxSynchronize());
}

void conform_context_setup(void)
{
    void *box = NULL;
    device_open(0);
    machine.context = devices[0].context;
    REQUIRE_OK(cu->cuMemHostAlloc(&box, sizeof *serving.box, CU_MEMHOSTALLOC_DEVICEMAP));
    serving.box = box;
    device_warm_up();
}

void conform_context_enter(void)
{
    use_device(0);
    REQUIRE_OK(cu->cuMemsetD8(scratch(), 0, CONFORM_SCRATCH_BYTES));
    REQUIRE_OK(cu->cuCtxSynchronize());
}

void use_device(int ordinal)
{
    REQUIRE_TRUE(ordinal < CONFORM_DEVICES_MAX);
    current = ordinal;
    if (devices[ordinal].context)
        REQUIRE_OK(cu->cuCtxSetCurrent(devices[ordinal].context));
    else
        device_open(ordinal);
}

CUdeviceptr scratch(void)
{
    return devices[current].scratch;
}

CUfunction kernel(const char *name)
{
    char symbol[64] = "conform_";
    CUfunction function = NULL;
    strncat(symbol, name, 32);
    strcat(symbol, "_kernel");
    REQUIRE_OK(cu->cuModuleGetFunction(&function, devices[current].module, symbol));
    return function;
}

CUresult try_launch(const char *name, unsigned blocks, const void *params, CUstream stream)
{
    void *list[] = {(void *)(uintptr_t)params};
    return cu->cuLaunchKernel(kernel(name), blocks, 1, 1, machine.block_threads, 1, 1, 0, stream,
                              list, NULL);
}

void launch(const char *name, unsigned blocks, const void *params, CUstream stream)
{
    REQUIRE_OK(try_launch(name, blocks, params, stream));
}

CUresult kernel_try_read(CUdeviceptr at)
{
    conform_range params = {at, scratch(), 1};
    CUresult result = try_launch("peek", 1, &params, NULL);
    return result ? result : cu->cuCtxSynchronize();
}

uint32_t kernel_read(CUdeviceptr at)
{
    REQUIRE_OK(kernel_try_read(at));
    return read_word(scratch());
}

CUresult kernel_try_write(CUdeviceptr at, uint32_t value)
{
    conform_touch params = {at, value, 0};
    CUresult result = try_launch("touch", 1, &params, NULL);
    return result ? result : cu->cuCtxSynchronize();
}

void kernel_fill(CUdeviceptr at, size_t words, uint32_t first)
{
    conform_fill params = {at, words, first, 0};
    launch("fill", 64, &params, NULL);
    REQUIRE_OK(cu->cuCtxSynchronize());
}

uint64_t kernel_sum(CUdeviceptr at, size_t words)
{
    conform_range params = {at, scratch(), words};
    uint64_t sum = 0;
    REQUIRE_OK(cu->cuMemcpyHtoD(scratch(), &sum, sizeof sum));
    launch("sum", 64, &params, NULL);
    REQUIRE_OK(cu->cuMemcpyDtoH(&sum, scratch(), sizeof sum));
    return sum;
}

uint64_t sum_of_fill(size_t words, uint32_t first)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < words; i++)
        sum += (uint32_t)(first + i);
    return sum;
}

static bool serve_answered(uint32_t number)
{
    uint64_t end = now_ms() + 5000;
    while (__atomic_load_n(&serving.box->answer, __ATOMIC_ACQUIRE) != number)
        if (now_ms() > end)
            return false;
    return true;
}

void serve_start(CUstream stream)
{
    conform_serve params = {0, CONFORM_SERVE_LIMIT_S * 1000000000ull};
    CUdeviceptr box;
    memset(serving.box, 0, sizeof *serving.box);
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&box, serving.box, 0));
    params.mailbox = box;
    serving.stream = stream;
    serving.requests = 1;
    launch("serve", 1, &params, stream);
    own(OWN_SERVER, 0, 0);
    REQUIRE_TRUE(serve_answered(1));
}

bool serve_runs(void)
{
    return cu->cuStreamQuery(serving.stream) == CUDA_ERROR_NOT_READY;
}

static bool serve_ask(uint32_t what, CUdeviceptr at, uint32_t value)
{
    conform_mailbox *box = serving.box;
    __atomic_store_n(&box->what, what, __ATOMIC_RELAXED);
    __atomic_store_n(&box->address, at, __ATOMIC_RELAXED);
    __atomic_store_n(&box->value, value, __ATOMIC_RELAXED);
    __atomic_store_n(&box->request, ++serving.requests, __ATOMIC_RELEASE);
    return serve_answered(serving.requests);
}

uint32_t serve_read(CUdeviceptr at)
{
    REQUIRE_TRUE(serve_ask(CONFORM_ASK_READ, at, 0));
    return __atomic_load_n(&serving.box->result, __ATOMIC_RELAXED);
}

void serve_write(CUdeviceptr at, uint32_t value)
{
    REQUIRE_TRUE(serve_ask(CONFORM_ASK_WRITE, at, value));
}

void conform_serve_end(void)
{
    bool answered = serve_ask(CONFORM_ASK_STOP, 0, 0);
    EXPECT_OK(cu->cuStreamSynchronize(serving.stream));
    EXPECT_TRUE(answered);
}

void serve_stop(void)
{
    drop(OWN_SERVER, 0);
}
