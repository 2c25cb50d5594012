/* A CUDA runtime over the software GPU's driver, for PyTorch: with it in LD_PRELOAD, and the software GPU as libcuda.so.1, tensors are made on "cuda",
 * copied and captured into graphs without a GPU. Kernels do nothing. It has what PyTorch calls for that, and no more. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *load_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *context = NULL;
    int (*init)(unsigned), (*retain)(void **, int);

    if (driver == NULL) {
        fprintf(stderr, "cudart.c: %s\n", dlerror());
        abort();
    }
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    if (init(0) != 0 || retain(&context, 0) != 0)
        abort();
    return driver;
}

/* With the context made the thread's. */
static void *find(const char *name)
{
    static void *driver;
    static _Thread_local void *context;
    void *call;

    if (driver == NULL)
        driver = load_driver();
    if (context == NULL) {
        int (*retain)(void **, int), (*set)(void *);

        *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
        *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
        if (retain(&context, 0) != 0 || set(context) != 0)
            abort();
    }
    call = dlsym(driver, name);
    if (call == NULL) {
        fprintf(stderr, "cudart.c: %s is not there\n", name);
        abort();
    }
    return call;
}

/* A call of the runtime that is one of the driver. */
#define SAME(name, of, types, names) \
    cudaError_t name types \
    { \
        int(*call) types; \
\
        *(void **)&call = find(of); \
        return (cudaError_t)call names; \
    }
#define NOTHING(name, types) \
    cudaError_t name types \
    { \
        return cudaSuccess; \
    }

/* clang-format off */
SAME(cudaMemGetInfo, "cuMemGetInfo_v2", (size_t * a, size_t *b), (a, b))
SAME(cudaStreamSynchronize, "cuStreamSynchronize", (cudaStream_t a), (a))
SAME(cudaStreamQuery, "cuStreamQuery", (cudaStream_t a), (a))
SAME(cudaStreamWaitEvent, "cuStreamWaitEvent", (cudaStream_t a, cudaEvent_t b, unsigned c), (a, b, c))
SAME(cudaStreamIsCapturing, "cuStreamIsCapturing", (cudaStream_t a, enum cudaStreamCaptureStatus *b), (a, b))
SAME(cudaStreamBeginCapture, "cuStreamBeginCapture_v2", (cudaStream_t a, enum cudaStreamCaptureMode b), (a, b))
SAME(cudaStreamEndCapture, "cuStreamEndCapture", (cudaStream_t a, cudaGraph_t *b), (a, b))
SAME(cudaStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v3",
     (cudaStream_t a, enum cudaStreamCaptureStatus *b, unsigned long long *c, cudaGraph_t *d, const cudaGraphNode_t **e,
      const cudaGraphEdgeData **f, size_t *g),
     (a, b, c, d, e, f, g))
SAME(cudaThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (enum cudaStreamCaptureMode * a), (a))
SAME(cudaGraphInstantiate, "cuGraphInstantiateWithFlags", (cudaGraphExec_t * a, cudaGraph_t b, unsigned long long c), (a, b, c))
SAME(cudaGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", (cudaGraphExec_t * a, cudaGraph_t b, unsigned long long c),
     (a, b, c))
SAME(cudaGraphGetNodes, "cuGraphGetNodes", (cudaGraph_t a, cudaGraphNode_t *b, size_t *c), (a, b, c))
SAME(cudaGraphLaunch, "cuGraphLaunch", (cudaGraphExec_t a, cudaStream_t b), (a, b))
SAME(cudaGraphDestroy, "cuGraphDestroy", (cudaGraph_t a), (a))
SAME(cudaGraphExecDestroy, "cuGraphExecDestroy", (cudaGraphExec_t a), (a))
SAME(cudaEventCreateWithFlags, "cuEventCreate", (cudaEvent_t * a, unsigned b), (a, b))
SAME(cudaEventRecord, "cuEventRecord", (cudaEvent_t a, cudaStream_t b), (a, b))
SAME(cudaEventRecordWithFlags, "cuEventRecordWithFlags", (cudaEvent_t a, cudaStream_t b, unsigned c), (a, b, c))
SAME(cudaEventQuery, "cuEventQuery", (cudaEvent_t a), (a))
SAME(cudaEventSynchronize, "cuEventSynchronize", (cudaEvent_t a), (a))
SAME(cudaEventDestroy, "cuEventDestroy_v2", (cudaEvent_t a), (a))
SAME(cudaMemsetAsync, "cuMemsetD8Async", (void *a, int b, size_t c, cudaStream_t d), (a, b, c, d))
NOTHING(cudaSetDevice, (int ordinal))
NOTHING(cudaGetLastError, (void))
NOTHING(cudaPeekAtLastError, (void))
NOTHING(cudaLaunchKernel, (const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream))
NOTHING(cudaLaunchKernelExC, (const cudaLaunchConfig_t *config, const void *kernel, void **arguments))
/* clang-format on */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    int (*call)(void *, const void *, size_t, cudaStream_t);

    *(void **)&call = find("cuMemcpyAsync");
    return (cudaError_t)call(to, from, bytes, stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    int (*call)(cudaStream_t *, unsigned);

    *(void **)&call = find("cuStreamCreate");
    return (cudaError_t)call(stream, flags);
}

cudaError_t cudaDeviceSynchronize(void)
{
    int (*call)(void);

    *(void **)&call = find("cuCtxSynchronize");
    return (cudaError_t)call();
}

cudaError_t cudaGetDeviceCount(int *count)
{
    (void)find("cuInit"); /* PyTorch calls the driver itself next */
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    memset(properties, 0, sizeof *properties);
    properties->major = 9;
    properties->multiProcessorCount = 1;
    properties->maxThreadsPerMultiProcessor = 1024;
    properties->maxThreadsPerBlock = 1024;
    properties->warpSize = 32;
    for (int i = 0; i < 3; i++) {
        properties->maxThreadsDim[i] = 1024;
        properties->maxGridSize[i] = 1 << 16;
    }
    return cudaSuccess;
}
