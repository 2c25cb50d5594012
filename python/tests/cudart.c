/* Of the CUDA runtime what PyTorch calls before its first kernel, over the driver of the software GPU: with it in LD_PRELOAD tensors are made on
 * "cuda" without a GPU, and no kernel runs. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int device;

static void *find(const char *name)
{
    static void *driver;

    if (driver == NULL) {
        void *context = NULL;
        int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);

        driver = dlopen(getenv("SOFT_DRIVER"), RTLD_NOW | RTLD_GLOBAL);
        if (driver == NULL) {
            fprintf(stderr, "cudart.c: %s\n", dlerror());
            abort();
        }
        *(void **)&init = dlsym(driver, "cuInit");
        *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
        *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
        if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0)
            abort();
    }
    return dlsym(driver, name);
}

#define CALL(result, name, types, ...) \
    do { \
        int(*call) types; \
\
        *(void **)&call = find(name); \
        (result) = (cudaError_t)call(__VA_ARGS__); \
    } while (0)

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *out)
{
    *out = device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal)
{
    device = ordinal;
    return ordinal == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13020;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    cudaError_t error;

    CALL(error, "cuMemGetInfo_v2", (size_t *, size_t *), free_bytes, total_bytes);
    return error;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t error;

    (void)priority;
    CALL(error, "cuStreamCreate", (cudaStream_t *, unsigned), stream, flags);
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error;

    CALL(error, "cuStreamSynchronize", (cudaStream_t), stream);
    return error;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaStreamSynchronize(NULL);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    (void)stream;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int ordinal)
{
    (void)ordinal;
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "software GPU");
    properties->major = 9;
    properties->multiProcessorCount = 1;
    properties->totalGlobalMem = (size_t)1 << 30;
    return cudaSuccess;
}
