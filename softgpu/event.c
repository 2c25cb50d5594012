/* Events: an event is the operation that recorded it last. Recording it again forgets that one; who
 * waits for it already keeps waiting for it. */
#include "softgpu/engine.h"

#include <stdlib.h>

static const soft_op_class record_class = {.type = SOFT_OP_MARK};

void soft_event_set_locked(soft_event *event, soft_op *op)
{
    if (op)
        op->refs++;
    if (event->recorded)
        soft_op_unref_locked(event->recorded);
    event->recorded = op;
    free(event->deps);
    event->deps = NULL;
    event->dep_count = 0;
    event->capture = 0;
}

void soft_event_close_locked(soft_event *event)
{
    soft_handle_remove_locked(event->handle);
    LIST_REMOVE(event, entry);
    soft_event_set_locked(event, NULL);
    free(event);
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    soft_context *context;
    soft_event *event;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!out || flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->timing = !(flags & CU_EVENT_DISABLE_TIMING);
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(context);
    if (result == CUDA_SUCCESS) {
        event->handle = soft_handle_add_locked(SOFT_HANDLE_EVENT, event);
        if (!event->handle)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        event->context = context;
        LIST_INSERT_HEAD(&context->events, event, entry);
        *out = event->handle;
    }
    soft_unlock();
    if (result != CUDA_SUCCESS)
        free(event);
    return result;
}

/* Gives the event with the lock held; without the lock on failure. */
static CUresult lock_event(CUevent handle, soft_event **out)
{
    CUresult result;

    *out = soft_handle_lock(SOFT_HANDLE_EVENT, handle, CUDA_ERROR_INVALID_HANDLE, &result);
    return result;
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    soft_event *event;
    CUresult result = lock_event(handle, &event);

    if (result != CUDA_SUCCESS)
        return result;
    result = soft_context_usable_locked(event->context);
    soft_event_close_locked(event);
    soft_unlock();
    return result;
}

static CUresult record_captured_locked(soft_event *event, const soft_stream *stream)
{
    CUgraphNode *deps;
    uint64_t id;
    CUresult result = soft_capture_record_locked(stream, &id, &deps);

    if (result != CUDA_SUCCESS)
        return result;
    soft_event_set_locked(event, NULL);
    event->capture = id;
    event->deps = deps;
    event->dep_count = stream->dep_count;
    return CUDA_SUCCESS;
}

static CUresult record_locked(soft_event *event, soft_op *op, CUstream handle, bool external)
{
    soft_stream *stream;
    CUresult result = soft_stream_find_locked(handle, &stream);

    if (result == CUDA_SUCCESS && stream->context != event->context)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        return result;
    if (external)
        return soft_capture_external_locked(stream, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    if (stream->capture)
        return record_captured_locked(event, stream);
    op->refs++; /* the engine's */
    result = soft_op_submit_locked(op, stream, NULL);
    if (result == CUDA_SUCCESS)
        soft_event_set_locked(event, op);
    else
        soft_op_unref_locked(op);
    return result;
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags)
{
    soft_op *op;
    soft_event *event;
    CUresult result;

    if (flags > CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    result = lock_event(handle, &event);
    if (result != CUDA_SUCCESS)
        return result;
    op = soft_op_new(sizeof *op, &record_class);
    result = op ? record_locked(event, op, stream, flags == CU_EVENT_RECORD_EXTERNAL)
                : CUDA_ERROR_OUT_OF_MEMORY;
    if (op)
        soft_op_unref_locked(op);
    soft_unlock();
    return result;
}

CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    return cuEventRecordWithFlags(handle, stream, CU_EVENT_RECORD_DEFAULT);
}

/* May the event be waited for, or asked whether it is done? One that was never recorded always is. */
static CUresult check_look_locked(const soft_event *event)
{
    CUresult result = soft_context_usable_locked(event->context);

    if (result == CUDA_SUCCESS && event->capture)
        return soft_capture_refuse_event_locked(event, true);
    return result == CUDA_SUCCESS ? soft_capture_check_unsafe_locked() : result;
}

CUresult cuEventQuery(CUevent handle)
{
    soft_event *event;
    CUresult result = lock_event(handle, &event);

    if (result != CUDA_SUCCESS)
        return result;
    result = check_look_locked(event);
    if (result == CUDA_SUCCESS && event->recorded && event->recorded->state != SOFT_OP_DONE)
        result = CUDA_ERROR_NOT_READY;
    soft_unlock();
    return result;
}

CUresult cuEventSynchronize(CUevent handle)
{
    soft_event *event;
    CUresult result = lock_event(handle, &event);

    if (result != CUDA_SUCCESS)
        return result;
    result = check_look_locked(event);
    if (result == CUDA_SUCCESS && event->recorded)
        result = soft_op_wait_locked(event->recorded);
    soft_unlock();
    return result;
}

CUresult cuEventElapsedTime(float *ms, CUevent start_handle, CUevent end_handle)
{
    soft_event *start, *end;
    CUresult result;

    if (!ms) /* what the real driver returns */
        return CUDA_ERROR_INVALID_HANDLE;
    result = lock_event(start_handle, &start);
    if (result != CUDA_SUCCESS)
        return result;
    end = soft_handle_find_locked(SOFT_HANDLE_EVENT, end_handle);
    if (end && (start->capture || end->capture))
        result = soft_capture_refuse_event_locked(start->capture ? start : end, false);
    else if (!end || !start->timing || !end->timing || !start->recorded || !end->recorded ||
             start->context != end->context)
        result = CUDA_ERROR_INVALID_HANDLE;
    else
        result = soft_context_usable_locked(start->context);
    if (result == CUDA_SUCCESS &&
        (start->recorded->state != SOFT_OP_DONE || end->recorded->state != SOFT_OP_DONE))
        result = CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS) {
        int64_t ns = (int64_t)(end->recorded->finished_ns - start->recorded->finished_ns);

        *ms = (float)((double)ns / 1e6);
    }
    soft_unlock();
    return result;
}

/* What cuda.h of CUDA 13 makes of the name. */
CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime(ms, start, end);
}
