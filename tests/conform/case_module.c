/* Cases: images, their kernels and their globals. Goal: each load of an image is a module of its
 * own, and what is no image is refused. */
#include <string.h>

#include "tests/conform/execution.h"

static void expect_kernels(CUmodule module)
{
    CUfunction function = module_kernel(module, "conform_touch_kernel");
    conform_touch touch = {scratch(), 12, 0};
    void *list[] = {&touch};
    EXPECT_OK(cu->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, list, NULL));
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_U64(read_word(scratch()), 12);
}

CASE(module_load_gives_kernels)
{
    expect_kernels(take_module());
}

CASE(module_load_of_a_file_gives_kernels)
{
    CUmodule module = NULL;
    REQUIRE_OK(cu->cuModuleLoad(&module, conform_image_path));
    own(OWN_MODULE, (uintptr_t)module, 0);
    expect_kernels(module);
}

CASE(module_load_of_no_file_refused)
{
    CUmodule module = NULL;
    EXPECT(cu->cuModuleLoad(&module, "/nonexistent/conform.fatbin"), CUDA_ERROR_FILE_NOT_FOUND);
    EXPECT_INVALID(cu->cuModuleLoad(&module, NULL));
    EXPECT_INVALID(cu->cuModuleLoad(NULL, conform_image_path));
    EXPECT_TRUE(module == NULL);
}

CASE(module_load_with_compiler_options_gives_kernels)
{
    char info[512] = "", errors[512] = "";
    CUjit_option wanted[] = {CU_JIT_MAX_REGISTERS,
                             CU_JIT_OPTIMIZATION_LEVEL,
                             CU_JIT_WALL_TIME,
                             CU_JIT_INFO_LOG_BUFFER,
                             CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                             CU_JIT_ERROR_LOG_BUFFER,
                             CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                             CU_JIT_LOG_VERBOSE};
    void *values[] = {
        (void *)64, (void *)4, NULL, info, (void *)sizeof info, errors, (void *)sizeof errors,
        (void *)1};
    CUmodule module = NULL, plain = NULL;
    REQUIRE_OK(cu->cuModuleLoadDataEx(&module, conform_image, 8, wanted, values));
    own(OWN_MODULE, (uintptr_t)module, 0);
    expect_kernels(module);
    EXPECT_U64(errors[0], 0);
    REQUIRE_OK(cu->cuModuleLoadDataEx(&plain, conform_image, 0, NULL, NULL));
    own(OWN_MODULE, (uintptr_t)plain, 0);
    expect_kernels(plain);
}

CASE(module_load_with_options_bad_arguments_refused)
{
    CUmodule module = NULL;
    EXPECT_INVALID(cu->cuModuleLoadDataEx(&module, NULL, 0, NULL, NULL));
    EXPECT_INVALID(cu->cuModuleLoadDataEx(NULL, conform_image, 0, NULL, NULL));
    EXPECT_TRUE(module == NULL);
}

CASE(module_symbol_unknown_not_found)
{
    CUmodule module = take_module();
    CUfunction function = NULL;
    CUdeviceptr at = 0;
    size_t size = 0;
    EXPECT(cu->cuModuleGetFunction(&function, module, "conform_no_kernel"), CUDA_ERROR_NOT_FOUND);
    EXPECT(cu->cuModuleGetFunction(&function, module, CONFORM_GLOBAL_NAME), CUDA_ERROR_NOT_FOUND);
    EXPECT(cu->cuModuleGetGlobal(&at, &size, module, "conform_no_word"), CUDA_ERROR_NOT_FOUND);
    EXPECT_TRUE(function == NULL && at == 0);
}

CASE(module_symbol_nonsense_refused)
{
    CUmodule module = take_module();
    CUfunction function = NULL;
    CUdeviceptr at = 0;
    size_t size = 0;
    EXPECT_INVALID(cu->cuModuleGetFunction(&function, module, ""));
    EXPECT_INVALID(cu->cuModuleGetGlobal(&at, &size, module, "conform_touch_kernel"));
    EXPECT_INVALID(cu->cuModuleGetFunction(&function, module, NULL));
    EXPECT_INVALID(cu->cuModuleGetFunction(NULL, module, "conform_touch_kernel"));
    EXPECT_TRUE(function == NULL && at == 0);
}

CASE(module_function_is_the_same_each_time)
{
    CUmodule module = take_module();
    EXPECT_TRUE(module_kernel(module, "conform_touch_kernel") ==
                module_kernel(module, "conform_touch_kernel"));
    EXPECT_TRUE(module_kernel(module, "conform_touch_kernel") !=
                module_kernel(module, "conform_peek_kernel"));
}

static uint64_t run_global(CUmodule module, uint64_t add)
{
    conform_count params = {scratch(), add};
    void *list[] = {&params};
    uint64_t seen = 0;
    REQUIRE_OK(cu->cuLaunchKernel(module_kernel(module, "conform_global_kernel"), 1, 1, 1, 1, 1, 1,
                                  0, NULL, list, NULL));
    REQUIRE_OK(cu->cuMemcpyDtoH(&seen, scratch(), sizeof seen));
    return seen;
}

CASE(module_global_is_shared_with_its_kernels)
{
    CUmodule module = take_module();
    CUdeviceptr at = 0, again = 0;
    size_t size = 0;
    uint64_t value = 1000;
    EXPECT_U64(run_global(module, 7), 7);
    REQUIRE_OK(cu->cuModuleGetGlobal(&at, &size, module, CONFORM_GLOBAL_NAME));
    EXPECT_U64(size, sizeof value);
    EXPECT_OK(cu->cuMemcpyHtoD(at, &value, sizeof value));
    EXPECT_U64(run_global(module, 7), 1007);
    EXPECT_OK(cu->cuModuleGetGlobal(&again, NULL, module, CONFORM_GLOBAL_NAME));
    EXPECT_TRUE(again == at);
    EXPECT_OK(cu->cuModuleGetGlobal(NULL, &size, module, CONFORM_GLOBAL_NAME));
    EXPECT_OK(cu->cuMemsetD8(at, 0, sizeof value));
    EXPECT_U64(run_global(module, 7), 7);
}

CASE(module_globals_differ_between_loads)
{
    CUmodule first = take_module(), second = take_module();
    CUdeviceptr at = 0, other = 0;
    size_t size = 0;
    uint64_t value = 50;
    EXPECT_TRUE(first != second);
    REQUIRE_OK(cu->cuModuleGetGlobal(&at, &size, first, CONFORM_GLOBAL_NAME));
    REQUIRE_OK(cu->cuModuleGetGlobal(&other, &size, second, CONFORM_GLOBAL_NAME));
    EXPECT_TRUE(at != other);
    EXPECT_OK(cu->cuMemcpyHtoD(at, &value, sizeof value));
    EXPECT_U64(run_global(first, 1), 51);
    EXPECT_U64(run_global(second, 1), 1);
}

CASE(module_garbage_refused)
{
    static const char text[256] = "this is no image of any kind";
    static const char nothing[256];
    static char elf[4096] = "\177ELF\2\1\1";
    CUmodule module = NULL;
    EXPECT(cu->cuModuleLoadData(&module, text), CUDA_ERROR_INVALID_IMAGE);
    EXPECT(cu->cuModuleLoadData(&module, nothing), CUDA_ERROR_INVALID_IMAGE);
    EXPECT(cu->cuModuleLoadData(&module, elf), CUDA_ERROR_INVALID_IMAGE);
    EXPECT_INVALID(cu->cuModuleLoadData(&module, NULL));
    EXPECT_INVALID(cu->cuModuleLoadData(NULL, conform_image));
    EXPECT_TRUE(module == NULL);
}

CASE(module_unload_gives_everything_back)
{
    for (int i = 0; i < 12; i++) {
        CUmodule module = take_module();
        EXPECT_U64(run_global(module, 3), 3);
        drop(OWN_MODULE, (uintptr_t)module);
    }
}

CASE(module_unload_waits_for_its_kernels)
{
    CUmodule module = take_module();
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    conform_slow slow = {scratch(), 30000000};
    void *list[] = {&slow};
    REQUIRE_OK(cu->cuLaunchKernel(module_kernel(module, "conform_slow_kernel"), 1, 1, 1, 1, 1, 1, 0,
                                  stream, list, NULL));
    drop(OWN_MODULE, (uintptr_t)module);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch()), 1);
}

CASE(module_null_unload_refused)
{
    EXPECT(cu->cuModuleUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
}
