/* The calls that begin a capture, end it, and say whether there is one. */
#include "softgpu/engine.h"

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    soft_stream *stream;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    soft_lock();
    result = soft_stream_find_locked(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(stream->context);
    if (result == CUDA_SUCCESS)
        result = soft_capture_begin_locked(stream, mode);
    soft_unlock();
    return result;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    soft_stream *stream;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_stream_find_locked(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = soft_capture_end_locked(stream, out);
    soft_unlock();
    return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    return cuStreamGetCaptureInfo_v3(handle, status, NULL, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **deps,
                                   const CUgraphEdgeData **edges, size_t *count)
{
    soft_stream *stream;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!status || (edges && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    soft_lock();
    result = soft_stream_find_locked(handle, &stream);
    if (result == CUDA_SUCCESS && stream == stream->context->legacy)
        result = soft_capture_check_legacy_locked(stream->context, false);
    if (result == CUDA_SUCCESS)
        *status = stream->capture ? soft_capture_status_locked(stream->capture, id, graph)
                                  : CU_STREAM_CAPTURE_STATUS_NONE;
    if (result == CUDA_SUCCESS && stream->capture) {
        if (deps)
            *deps = stream->deps;
        if (edges)
            *edges = (const CUgraphEdgeData *)(stream->deps + stream->dep_count);
        if (count)
            *count = stream->dep_count;
    }
    soft_unlock();
    return result;
}
