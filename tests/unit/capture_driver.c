/* The software GPU, which counts how often it is asked whether a stream is captured.
 *
 * Loaded by GVMEM_DRIVER: what is not here the loader finds in the software GPU, which this library
 * needs. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "driver/calls.h"
#include "driver/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

extern EXPORT unsigned capture_asked;

/* Without a call of it the linker would leave the software GPU out. */
CUresult cuDriverGetVersion(int *version);
extern EXPORT CUresult (*const capture_needs)(int *version);

CUresult (*const capture_needs)(int *version) = cuDriverGetVersion;
unsigned capture_asked;

typedef CUresult ask_fn(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                        CUgraph *graph, const CUgraphNode **dependencies,
                        const CUgraphEdgeData **edges, size_t *count);

EXPORT ask_fn cuStreamGetCaptureInfo_v3;

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *count)
{
    ask_fn *ask;

    *(void **)&ask = dlsym(RTLD_NEXT, "cuStreamGetCaptureInfo_v3");
    capture_asked++;
    return ask == NULL ? CUDA_ERROR_NOT_SUPPORTED
                       : ask(stream, status, id, graph, dependencies, edges, count);
}
