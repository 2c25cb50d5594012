/* Cases: launches. Goal: every block and thread of a launch runs once with the parameters of that
 * launch, what cannot run is refused when asked for, and kernels of two streams run at once.
 */
#include "tests/conform/execution.h"

static uint64_t read_long(CUdeviceptr at)
{
    uint64_t value = 0;
    REQUIRE_OK(cu->cuMemcpyDtoH(&value, at, sizeof value));
    return value;
}

static int attribute(CUdevice_attribute which)
{
    int value = 0;
    REQUIRE_OK(cu->cuDeviceGetAttribute(&value, which, machine.device));
    return value;
}

static int function_attribute(CUfunction function, CUfunction_attribute which)
{
    int value = -1;
    REQUIRE_OK(cu->cuFuncGetAttribute(&value, which, function));
    return value;
}

/* The count kernel in a grid and block of this shape. */
static CUresult count_in(const unsigned grid[3], const unsigned block[3], unsigned shared_bytes)
{
    conform_count params = {scratch(), 0};
    void *list[] = {&params};
    return cu->cuLaunchKernel(kernel("count"), grid[0], grid[1], grid[2], block[0], block[1],
                              block[2], shared_bytes, NULL, list, NULL);
}

static const unsigned one[3] = {1, 1, 1};

/* ---- grids */

CASE(launch_strides_cover_all_words)
{
    static const unsigned grids[] = {1, 3, 64, 257};
    size_t words = 100003;
    CUdeviceptr at = take_alloc(words * 4 + 4);
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        conform_fill fill = {at, words, 10 + (uint32_t)i, 0};
        REQUIRE_OK(cu->cuMemsetD8(at, 0, words * 4 + 4));
        launch("fill", grids[i], &fill, NULL);
        EXPECT_TRUE(words_are(at, words, 10 + (uint32_t)i, 1));
        EXPECT_U64(read_word(at + words * 4), 0);
    }
}

CASE(launch_runs_each_block_once)
{
    enum { BLOCKS = 5000 };
    conform_count params = {scratch(), BLOCKS};
    launch("record", BLOCKS, &params, NULL);
    EXPECT_TRUE(words_are(scratch(), BLOCKS, 1, 1));
    EXPECT_U64(read_word(scratch_word(BLOCKS)), 0);
}

CASE(launch_runs_every_thread)
{
    enum { BLOCKS = 2000 };
    conform_count params = {scratch(), 0};
    launch("count", BLOCKS, &params, NULL);
    EXPECT_U64(read_long(scratch()), (uint64_t)BLOCKS * machine.block_threads);
}

CASE(launch_grid_of_three_dimensions)
{
    static const unsigned grid[3] = {3, 5, 7};
    const unsigned block[3] = {machine.block_threads, 1, 1};
    EXPECT_OK(count_in(grid, block, 0));
    EXPECT_U64(read_long(scratch()), 105ull * machine.block_threads);
}

CASE(launch_many_small_ones)
{
    enum { LAUNCHES = 3000 };
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    conform_count params = {scratch(), 0};
    void *list[] = {&params};
    CUfunction count = kernel("count");
    for (int i = 0; i < LAUNCHES; i++)
        REQUIRE_OK(cu->cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, stream, list, NULL));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_long(scratch()), LAUNCHES);
}

/* ---- parameters */

CASE(launch_takes_parameters_by_value)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    conform_touch params = {scratch_word(0), 1, 0};
    serve_start(stream);
    for (unsigned i = 0; i < 100; i++) {
        params = (conform_touch){scratch_word(i), 500 + i, 0};
        launch("touch", 1, &params, stream);
    }
    params = (conform_touch){0, 0, 0};
    serve_stop();
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_TRUE(words_are(scratch(), 100, 500, 1));
}

CASE(launch_takes_parameters_as_extra)
{
    conform_touch params = {scratch(), 77, 0};
    size_t size = sizeof params;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    void *swapped[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, &params,
                       CU_LAUNCH_PARAM_END};
    void *list[] = {&params};
    CUfunction touch = kernel("touch");
    EXPECT_OK(cu->cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    EXPECT_U64(read_word(scratch()), 77);
    params.value = 78;
    EXPECT_OK(cu->cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, swapped));
    EXPECT_U64(read_word(scratch()), 78);
    params.value = 79;
    EXPECT_INVALID(cu->cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, NULL, list, extra));
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(read_word(scratch()), 78);
}

/* ---- configurations */

CASE(launch_with_a_configuration_runs)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUlaunchAttribute ignored[2] = {{.id = CU_LAUNCH_ATTRIBUTE_IGNORE},
                                    {.id = CU_LAUNCH_ATTRIBUTE_IGNORE}};
    CUlaunchConfig config = {3, 5, 7, machine.block_threads, 1, 1, 64, stream, NULL, 0};
    conform_count params = {scratch(), 0};
    size_t size = sizeof params;
    void *list[] = {&params};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    EXPECT_OK(cu->cuLaunchKernelEx(&config, kernel("count"), list, NULL));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_long(scratch()), 105ull * machine.block_threads);
    config.attrs = ignored;
    config.numAttrs = 2;
    EXPECT_OK(cu->cuLaunchKernelEx(&config, kernel("count"), NULL, extra));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_long(scratch()), 210ull * machine.block_threads);
}

/* ---- what cannot run */

CASE(launch_of_no_blocks_or_threads_refused)
{
    for (int i = 0; i < 3; i++) {
        unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
        grid[i] = 0;
        block[i] = 0;
        EXPECT_INVALID(count_in(grid, one, 0));
        EXPECT_INVALID(count_in(one, block, 0));
    }
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(read_long(scratch()), 0);
}

CASE(launch_of_too_many_threads_refused)
{
    unsigned most = (unsigned)attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    const unsigned wide[3] = {most + 1, 1, 1}, deep[3] = {most, 2, 1}, full[3] = {most, 1, 1};
    const unsigned tall_grid[3] = {1, 65536, 1}, deep_grid[3] = {1, 1, 65536};
    EXPECT_INVALID(count_in(one, wide, 0));
    EXPECT_INVALID(count_in(one, deep, 0));
    EXPECT_INVALID(count_in(tall_grid, one, 0));
    EXPECT_INVALID(count_in(deep_grid, one, 0));
    EXPECT_U64(read_long(scratch()), 0);
    EXPECT_OK(count_in(one, full, 0));
    EXPECT_U64(read_long(scratch()), most);
}

CASE(launch_of_no_function_refused)
{
    conform_touch params = {scratch(), 1, 0};
    void *list[] = {&params};
    EXPECT(cu->cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, list, NULL), CUDA_ERROR_INVALID_HANDLE);
}

CASE(launch_with_a_configuration_of_no_blocks_or_threads_refused)
{
    CUlaunchConfig config = {0, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
    conform_count params = {scratch(), 0};
    void *list[] = {&params};
    EXPECT_INVALID(cu->cuLaunchKernelEx(&config, kernel("count"), list, NULL));
    config.gridDimX = 1;
    config.blockDimY = 0;
    EXPECT_INVALID(cu->cuLaunchKernelEx(&config, kernel("count"), list, NULL));
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(read_long(scratch()), 0);
}

/* ---- shared memory */

static uint64_t reversed_sum(uint64_t words)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < words; i++)
        sum += (words - 1 - i) * (i + 1);
    return sum;
}

static CUresult reverse_in(CUfunction function, unsigned blocks, unsigned shared_bytes, uint64_t words)
{
    conform_count params = {scratch(), words};
    void *list[] = {&params};
    REQUIRE_OK(cu->cuMemsetD8(scratch(), 0, 8));
    return cu->cuLaunchKernel(function, blocks, 1, 1, machine.block_threads, 1, 1, shared_bytes,
                              NULL, list, NULL);
}

CASE(launch_shared_memory_belongs_to_each_block)
{
    CUfunction reverse = kernel("reverse");
    EXPECT_OK(reverse_in(reverse, 40, 4000, 1000));
    EXPECT_U64(read_long(scratch()), 40 * reversed_sum(1000));
    EXPECT_OK(reverse_in(reverse, 1, 32 * KIB, 8 * KIB));
    EXPECT_U64(read_long(scratch()), reversed_sum(8 * KIB));
}

CASE(launch_shared_memory_is_limited)
{
    unsigned limit = (unsigned)attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    CUfunction count = module_kernel(take_module(), "conform_count_kernel"); /* has none of its own */
    conform_count params = {scratch(), 0};
    void *list[] = {&params};
    EXPECT_OK(cu->cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, limit, NULL, list, NULL));
    EXPECT_INVALID(cu->cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, limit + 16, NULL, list, NULL));
    EXPECT_U64(read_long(scratch()), 1);
}

CASE(launch_shared_memory_limit_can_be_raised)
{
    int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    CUfunction reverse = module_kernel(take_module(), "conform_reverse_kernel");
    int room = most - function_attribute(reverse, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    uint64_t words = (uint64_t)room / 4;
    EXPECT_INVALID(reverse_in(reverse, 1, (unsigned)room, words));
    EXPECT_INVALID(
        cu->cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most + 1));
    EXPECT_OK(cu->cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, room));
    EXPECT_U64(function_attribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), room);
    EXPECT_OK(reverse_in(reverse, 2, (unsigned)room, words));
    EXPECT_U64(read_long(scratch()), 2 * reversed_sum(words));
}

CASE(launch_function_attributes_are_plausible)
{
    CUfunction sum = kernel("sum");
    int value = 0;
    EXPECT_TRUE(function_attribute(sum, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) >=
                (int)machine.block_threads);
    EXPECT_TRUE(function_attribute(sum, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) >= 0);
    EXPECT_TRUE(function_attribute(sum, CU_FUNC_ATTRIBUTE_NUM_REGS) >= 0);
    EXPECT_TRUE(function_attribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) > 0);
    EXPECT_INVALID(cu->cuFuncGetAttribute(&value, -1, sum));
    EXPECT_INVALID(cu->cuFuncGetAttribute(&value, 1000, sum));
    EXPECT_INVALID(cu->cuFuncGetAttribute(NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, sum));
    EXPECT_INVALID(cu->cuFuncSetAttribute(sum, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
}

/* ---- blocks that wait for each other */

#define MEET_LIMIT_NS 5000000000ull

static int blocks_at_once(CUfunction function)
{
    int blocks = 0;
    REQUIRE_OK(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function,
                                                               (int)machine.block_threads, 0));
    return blocks * machine.sm_count;
}

CASE(launch_occupancy_counts_blocks)
{
    CUfunction meet = kernel("meet");
    int blocks = 0, fewer = 0;
    size_t most = (size_t)attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    int threads = (int)machine.block_threads;
    EXPECT_OK(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, meet, threads, 0));
    EXPECT_TRUE(blocks >= 1 && blocks <= attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
    EXPECT_OK(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&fewer, meet, threads, most));
    EXPECT_TRUE(fewer >= 1 && fewer <= blocks);
    EXPECT_INVALID(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, meet, threads, 0));
    EXPECT_INVALID(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, meet, 0, 0));
    blocks = -1;
    EXPECT_OK(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, meet, threads, 64 * MIB));
    EXPECT_U64(blocks, 0); /* more shared memory than there is */
}

static CUresult meet_cooperatively(unsigned blocks, CUstream stream)
{
    conform_meet params = {scratch(), scratch() + 8, MEET_LIMIT_NS, blocks, 10};
    void *list[] = {&params};
    return cu->cuLaunchCooperativeKernel(kernel("meet"), blocks, 1, 1, machine.block_threads, 1, 1,
                                         0, stream, list);
}

CASE(launch_cooperative_blocks_meet)
{
    unsigned blocks = (unsigned)blocks_at_once(kernel("meet"));
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(meet_cooperatively(blocks, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_long(scratch() + 8), blocks);
    EXPECT_U64(read_long(scratch()), 10ull * blocks);
}

CASE(launch_cooperative_too_large_refused)
{
    unsigned blocks = (unsigned)blocks_at_once(kernel("meet"));
    EXPECT(meet_cooperatively(blocks + 1, NULL), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(read_long(scratch()), 0);
}

static CUresult meet_by_attribute(unsigned blocks)
{
    conform_meet params = {scratch(), scratch() + 8, MEET_LIMIT_NS, blocks, 10};
    void *list[] = {&params};
    CUlaunchAttribute together = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {blocks, 1, 1, machine.block_threads, 1, 1, 0, NULL, &together, 1};
    return cu->cuLaunchKernelEx(&config, kernel("meet"), list, NULL);
}

CASE(launch_cooperative_by_attribute_is_the_same)
{
    unsigned blocks = (unsigned)blocks_at_once(kernel("meet"));
    EXPECT(meet_by_attribute(blocks + 1), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT_OK(meet_by_attribute(blocks));
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(read_long(scratch() + 8), blocks);
    EXPECT_U64(read_long(scratch()), 10ull * blocks);
}

CASE(launch_kernels_of_two_streams_exchange_flags)
{
    CUstream first = take_stream(CU_STREAM_NON_BLOCKING), second = take_stream(CU_STREAM_NON_BLOCKING);
    conform_meet alone = {scratch() + 16, scratch() + 24, MEET_LIMIT_NS, 1, 1};
    conform_meet params = {scratch(), scratch() + 8, MEET_LIMIT_NS, 2, 500};
    launch("meet", 1, &alone, NULL); /* has what a first launch needs made */
    REQUIRE_OK(cu->cuCtxSynchronize());
    launch("meet", 1, &params, first);
    launch("meet", 1, &params, second);
    EXPECT_OK(cu->cuStreamSynchronize(first));
    EXPECT_OK(cu->cuStreamSynchronize(second));
    EXPECT_U64(read_long(scratch() + 8), 2);
    EXPECT_U64(read_long(scratch()), 1000);
}

/* ---- with the host */

CASE(launch_kernel_and_host_see_each_others_stores)
{
    uint32_t *words = take_host(64);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&at, words, 0));
    words[0] = words[1] = 0;
    serve_start(take_stream(CU_STREAM_NON_BLOCKING));
    for (uint32_t i = 1; i <= 50; i++) {
        __atomic_store_n(&words[0], i, __ATOMIC_RELEASE);
        EXPECT_U64(serve_read(at), i);
        serve_write(at + 4, 2 * i);
        EXPECT_U64(__atomic_load_n(&words[1], __ATOMIC_ACQUIRE), 2 * i);
    }
    EXPECT_TRUE(serve_runs());
}

CASE(launch_reads_and_writes_pinned_memory)
{
    size_t words = 50000;
    uint32_t *host = take_host(words * 4);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&at, host, 0));
    kernel_fill(at, words, 6);
    EXPECT_U64(host[0], 6);
    EXPECT_U64(host[words - 1], 6 + words - 1);
    host[0] += 100;
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 6) + 100);
}

/* ---- kernels that fail */

CASE(launch_fault_ends_other_kernels)
{
    CUstream first = take_stream(CU_STREAM_NON_BLOCKING), second = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr hole = take_range(machine.granule);
    conform_slow slow = {scratch(), 20000000000ull};
    conform_touch touch = {hole, 1, 0};
    uint64_t start = now_ms();
    launch("slow", 1, &slow, first);
    launch("touch", 1, &touch, second);
    EXPECT(cu->cuStreamSynchronize(second), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cu->cuStreamSynchronize(first), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_TRUE(now_ms() - start < 10000);
    abandon_all();
}
