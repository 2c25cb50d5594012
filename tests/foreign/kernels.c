/* What the programs share: errors, a context, kernels of an image. One context at a time has the kernels. */
#include "tests/foreign/kernels.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct range_params {
    uint64_t address, out, words;
} range_params;

typedef struct fill_params {
    uint64_t address, words;
    uint32_t first, unused;
} fill_params;

static CUfunction fill_kernel, sum_kernel;
static unsigned block_threads;

void must(CUresult result, const char *call, const char *file, int line)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    (void)cuGetErrorName(result, &name);
    fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, call, name ? name : "unknown result",
            (int)result);
    exit(1);
}

void holds(bool condition, const char *text, const char *file, int line)
{
    if (condition)
        return;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, text);
    exit(1);
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *bytes;
    long size;

    HOLDS(file != NULL);
    HOLDS(fseek(file, 0, SEEK_END) == 0);
    size = ftell(file);
    HOLDS(size > 0 && fseek(file, 0, SEEK_SET) == 0);
    bytes = malloc((size_t)size + 1);
    HOLDS(bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size);
    bytes[size] = 0; /* an image that is text ends there */
    fclose(file);
    return bytes;
}

CUcontext begin_context(CUdevice device, const char *image)
{
    CUcontext context, current = NULL;
    CUmodule module;
    char *bytes;
    int threads;

#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&context, NULL, CU_CTX_SCHED_AUTO, device));
#else
    MUST(cuCtxCreate(&context, CU_CTX_SCHED_AUTO, device));
#endif
    MUST(cuCtxGetCurrent(&current));
    HOLDS(current == context);
    bytes = read_file(image);
    MUST(cuModuleLoadData(&module, bytes));
    free(bytes);
    MUST(cuModuleGetFunction(&fill_kernel, module, "conform_fill_kernel"));
    MUST(cuModuleGetFunction(&sum_kernel, module, "conform_sum_kernel"));
    MUST(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
    block_threads = threads < 256 ? (unsigned)threads : 256;
    return context;
}

/* Runs the kernel, and times it as programs do. */
static void run(CUfunction kernel, void *params)
{
    void *arguments[] = {params};
    CUevent begin, end;
    float ms = -1;

    MUST(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    MUST(cuEventCreate(&end, CU_EVENT_DEFAULT));
    MUST(cuEventRecord(begin, NULL));
    MUST(cuLaunchKernel(kernel, 8, 1, 1, block_threads, 1, 1, 0, NULL, arguments, NULL));
    MUST(cuEventRecord(end, NULL));
    MUST(cuEventSynchronize(end));
    MUST(cuEventElapsedTime(&ms, begin, end));
    HOLDS(ms >= 0);
    MUST(cuEventDestroy(begin));
    MUST(cuEventDestroy(end));
}

void fill_words(CUdeviceptr at, size_t words, uint32_t first)
{
    fill_params params = {at, words, first, 0};

    run(fill_kernel, &params);
}

uint64_t sum_words(CUdeviceptr at, size_t words)
{
    range_params params = {at, 0, words};
    CUdeviceptr out;
    uint64_t sum = 0;

    MUST(cuMemAlloc(&out, sizeof sum));
    MUST(cuMemsetD8(out, 0, sizeof sum));
    params.out = out;
    run(sum_kernel, &params);
    MUST(cuMemcpyDtoH(&sum, out, sizeof sum));
    MUST(cuMemFree(out));
    return sum;
}

uint64_t sum_of_fill(size_t words, uint32_t first)
{
    return words * (uint64_t)first + (uint64_t)words * (words - 1) / 2;
}
