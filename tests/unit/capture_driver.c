/* The software GPU, with streams that a test says are captured into a graph.
 *
 * Loaded by GVMEM_DRIVER: what is not here the loader finds in the software GPU, which this library
 * needs. */
#include "driver/calls.h"
#include "driver/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

extern EXPORT CUstream capture_stream; /* the one that is captured; NULL: none */
extern EXPORT cuuint64_t capture_id;
extern EXPORT unsigned capture_asked; /* times that it was asked whether a stream is captured */

/* Without a call of it the linker would leave the software GPU out. */
CUresult cuDriverGetVersion(int *version);
extern EXPORT CUresult (*const capture_needs)(int *version);

CUresult (*const capture_needs)(int *version) = cuDriverGetVersion;
CUstream capture_stream;
cuuint64_t capture_id;
unsigned capture_asked;

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
                                          cuuint64_t *id, CUgraph *graph,
                                          const CUgraphNode **dependencies,
                                          const CUgraphEdgeData **edges, size_t *count);

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *count)
{
    (void)graph, (void)dependencies, (void)edges, (void)count;
    capture_asked++;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream != NULL && stream == capture_stream) {
        *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        *id = capture_id;
    }
    return CUDA_SUCCESS;
}
