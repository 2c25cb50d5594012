/* Events: an event is the operation that recorded it last. Recording it again forgets that one; who
 * waits for it already keeps waiting for it. */
#include "softgpu/engine.h"

#include <stdlib.h>

static const soft_op_class record_class = {.type = SOFT_OP_MARK};

void soft_event_close_locked(soft_event *event)
{
    soft_handle_remove_locked(event->handle);
    LIST_REMOVE(event, entry);
    if (event->recorded)
        soft_op_unref_locked(event->recorded);
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
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    *out = soft_handle_find_locked(SOFT_HANDLE_EVENT, handle);
    if (*out)
        return CUDA_SUCCESS;
    soft_unlock();
    return CUDA_ERROR_INVALID_HANDLE;
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

CUresult cuEventRecord(CUevent handle, CUstream stream_handle)
{
    soft_op *op = soft_op_new(sizeof *op, &record_class);
    soft_event *event;
    soft_stream *stream;
    CUresult result;

    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = lock_event(handle, &event);
    if (result != CUDA_SUCCESS) {
        soft_op_discard(op);
        return result;
    }
    op->refs++; /* the event's */
    result = soft_stream_find_locked(stream_handle, &stream);
    if (result == CUDA_SUCCESS && stream->context != event->context)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = soft_op_submit_locked(op, stream, NULL);
    if (result == CUDA_SUCCESS) {
        if (event->recorded)
            soft_op_unref_locked(event->recorded);
        event->recorded = op;
    }
    soft_unlock();
    if (result != CUDA_SUCCESS)
        soft_op_discard(op);
    return result;
}

CUresult cuEventQuery(CUevent handle)
{
    soft_event *event;
    CUresult result = lock_event(handle, &event);

    if (result != CUDA_SUCCESS)
        return result;
    result = soft_context_usable_locked(event->context);
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
    result = soft_context_usable_locked(event->context);
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
    if (!end || !start->timing || !end->timing || !start->recorded || !end->recorded ||
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
