/* A driver that does nothing; see fake.h. */
#include "tests/unit/fake.h"

CUresult fake_result = CUDA_SUCCESS;
uint64_t fake_calls[GVMI_CALL_COUNT];

static uint64_t last_made = 0x100000000;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define FAKE(name, symbol, since, need, params, args) \
    static CUresult fake_##name params \
    { \
        __atomic_fetch_add(&fake_calls[gvmi_call_##name], 1, __ATOMIC_RELAXED); \
        return fake_result; \
    }
GVMI_CUDA_CALLS(FAKE)
#undef FAKE

/* X(call, params, what it writes): the calls that make something. */
/* clang-format off */
#define MAKERS(X) \
    X(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags), *handle) \
    X(cuMemAddressReserve, (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags), *ptr) \
    X(cuMemAlloc, (CUdeviceptr *ptr, size_t size), *ptr) \
    X(cuMemAllocPitch, (CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned int element), *ptr) \
    X(cuMemAllocFromPoolAsync, (CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream), *ptr) \
    X(cuCtxCreate, (CUcontext *ctx, CUctxCreateParams *create, unsigned int flags, CUdevice dev), *ctx) \
    X(cuCtxCreate_v3, (CUcontext *ctx, CUexecAffinityParam *affinities, int count, unsigned int flags, CUdevice dev), *ctx) \
    X(cuCtxCreate_v2, (CUcontext *ctx, unsigned int flags, CUdevice dev), *ctx) \
    X(cuMemHostAlloc, (void **ptr, size_t size, unsigned int flags), *ptr) \
    X(cuStreamCreate, (CUstream *stream, unsigned int flags), *stream) \
    X(cuEventCreate, (CUevent *event, unsigned int flags), *event) \
    X(cuModuleLoad, (CUmodule *module, const char *fname), *module) \
    X(cuModuleLoadData, (CUmodule *module, const void *image), *module) \
    X(cuModuleLoadDataEx, (CUmodule *module, const void *image, unsigned int count, CUjit_option *jit_options, void **values), *module) \
    X(cuGraphCreate, (CUgraph *graph, unsigned int flags), *graph) \
    X(cuStreamEndCapture, (CUstream stream, CUgraph *graph), *graph) \
    X(cuGraphInstantiate, (CUgraphExec *exec, CUgraph graph, unsigned long long flags), *exec) \
    X(cuGraphInstantiateWithParams, (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), *exec) \
    X(cuCtxGetCurrent, (CUcontext *ctx), *ctx)

/* clang-format on */
#define MAKE(name, params, out) \
    static CUresult make_##name params \
    { \
        __atomic_fetch_add(&fake_calls[gvmi_call_##name], 1, __ATOMIC_RELAXED); \
        if (fake_result == CUDA_SUCCESS) \
            out = (__typeof__(out))(uintptr_t)(last_made += 0x1000000); \
        return fake_result; \
    }
MAKERS(MAKE)
#undef MAKE
#pragma GCC diagnostic pop

static CUresult name_of(CUresult error, const char **text)
{
    switch (error) {
#define CASE(name, value, sentence) \
    case name: *text = #name; return CUDA_SUCCESS;
        GVMI_CUDA_RESULTS(CASE)
#undef CASE
    }
    return CUDA_ERROR_INVALID_VALUE;
}

const gvmi_driver *fake_driver(void)
{
    static gvmi_driver table = {
#define MEMBER(name, symbol, since, need, params, args) .name = fake_##name,
        GVMI_CUDA_CALLS(MEMBER)
#undef MEMBER
    };
#define MEMBER(name, params, out) table.name = make_##name;
    MAKERS(MEMBER)
#undef MEMBER
    table.cuGetErrorName = name_of;
    return &table;
}
