/* Streams: the order in which operations of a context follow each other. */
#include "softgpu/engine.h"

#include <stdlib.h>

/* NULL: out of memory. */
static soft_stream *new_stream_locked(soft_context *context, bool blocking)
{
    soft_stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    stream->context = context;
    stream->blocking = blocking;
    stream->refs = 1;
    stream->handle = soft_handle_add_locked(SOFT_HANDLE_STREAM, stream);
    if (!stream->handle) {
        free(stream);
        return NULL;
    }
    LIST_INSERT_HEAD(&context->streams, stream, entry);
    context->stream_count++;
    return stream;
}

void soft_stream_close_locked(soft_stream *stream)
{
    if (stream->capture)
        soft_capture_leave_locked(stream);
    soft_handle_remove_locked(stream->handle);
    stream->handle = NULL;
    soft_stream_unref_locked(stream);
}

/* ---- the calling thread's own streams: CU_STREAM_PER_THREAD */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t own_key; /* of an array: a handle for each context, once used */
static bool key_made;         /* the process had one left */

static void close_own_streams(void *p)
{
    CUstream *streams = p;

    /* After a fork nothing of the driver is used any more, least of all a lock that somebody may
     * have held. */
    if (soft_enter() == CUDA_SUCCESS) {
        soft_lock();
        for (int i = 0; i < SOFT_CONTEXTS_MAX; i++) {
            soft_stream *stream = soft_handle_find_locked(SOFT_HANDLE_STREAM, streams[i]);

            if (stream)
                soft_stream_close_locked(stream);
        }
        soft_unlock();
    }
    free(streams);
}

static void make_own_key(void)
{
    key_made = pthread_key_create(&own_key, close_own_streams) == 0;
}

static CUstream *own_streams(void)
{
    CUstream *streams;

    pthread_once(&once, make_own_key);
    if (!key_made)
        return NULL;
    streams = pthread_getspecific(own_key);
    if (!streams) {
        streams = calloc(SOFT_CONTEXTS_MAX, sizeof *streams);
        if (streams && pthread_setspecific(own_key, streams)) {
            free(streams);
            streams = NULL;
        }
    }
    return streams;
}

static CUresult own_stream_locked(soft_context *context, soft_stream **out)
{
    CUstream *streams = own_streams();

    if (!streams)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = soft_handle_find_locked(SOFT_HANDLE_STREAM, streams[context->index]);
    if (*out)
        return CUDA_SUCCESS;
    *out = new_stream_locked(context, true);
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    streams[context->index] = (*out)->handle;
    return CUDA_SUCCESS;
}

/* ---- finding */

CUresult soft_stream_find_locked(CUstream handle, soft_stream **out)
{
    soft_context *context;
    CUresult result;

    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        *out = soft_handle_find_locked(SOFT_HANDLE_STREAM, handle);
        return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == CU_STREAM_PER_THREAD)
        return own_stream_locked(context, out);
    *out = context->legacy;
    return CUDA_SUCCESS;
}

CUresult soft_stream_device(CUstream handle, int *device)
{
    soft_stream *stream;
    CUresult result;

    soft_lock();
    result = soft_stream_find_locked(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(stream->context);
    if (result == CUDA_SUCCESS)
        *device = stream->context->device;
    soft_unlock();
    return result;
}

bool soft_stream_is_captured(CUstream handle)
{
    soft_stream *stream;
    bool captured;

    soft_lock();
    captured = soft_stream_find_locked(handle, &stream) == CUDA_SUCCESS && stream->capture;
    soft_unlock();
    return captured;
}

/* A wait in the legacy stream, or for any stream or event, is what captures forbid; one that a call makes only because
 * memory is pageable is not. */
static CUresult check_wait_locked(const soft_stream *stream, bool wait)
{
    CUresult result = CUDA_SUCCESS;

    if (!wait || stream != stream->context->legacy)
        return CUDA_SUCCESS;
    result = soft_capture_check_legacy_locked(stream->context, true);
    return result == CUDA_SUCCESS ? soft_capture_check_unsafe_locked() : result;
}

CUresult soft_op_submit(soft_op *op, CUstream handle, bool wait)
{
    soft_stream *stream;
    CUresult result;

    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    soft_lock();
    op->refs++; /* ours, for the wait */
    op->by_caller |= wait && op->class->type == SOFT_OP_WORK;
    result = soft_stream_find_locked(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = check_wait_locked(stream, wait);
    if (result == CUDA_SUCCESS)
        result = soft_op_submit_locked(op, stream, NULL);
    if (result != CUDA_SUCCESS) {
        soft_unlock();
        soft_op_discard(op);
        return result;
    }
    soft_op_run_locked(op);
    if (wait && op->stream) /* else it is in a graph */
        result = soft_op_wait_locked(op);
    soft_op_unref_locked(op);
    soft_unlock();
    return result;
}

/* ---- life */

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    soft_context *context;
    soft_stream *created;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(context);
    if (result == CUDA_SUCCESS) {
        created = new_stream_locked(context, !(flags & CU_STREAM_NON_BLOCKING));
        if (created)
            *stream = created->handle;
        else
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    soft_unlock();
    return result;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    (void)priority; /* there is one only: CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED is 0 */
    return cuStreamCreate(stream, flags);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    soft_stream *stream;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    stream = soft_handle_find_locked(SOFT_HANDLE_STREAM, handle);
    if (stream) {
        result = soft_context_usable_locked(stream->context);
        soft_stream_close_locked(stream);
    } else {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    soft_unlock();
    return result;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *ctx)
{
    soft_stream *stream;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    soft_lock();
    result = soft_stream_find_locked(handle, &stream);
    if (result == CUDA_SUCCESS)
        *ctx = stream->context->handle;
    soft_unlock();
    return result;
}

/* ---- waiting */

static const soft_op_class mark_class = {.type = SOFT_OP_MARK};

/* May the stream be waited for, or asked how far it is? */
static CUresult check_look_locked(soft_stream *stream)
{
    CUresult result = soft_context_usable_locked(stream->context);

    if (result == CUDA_SUCCESS && stream->capture)
        return soft_capture_refuse_locked(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (result == CUDA_SUCCESS && stream == stream->context->legacy)
        result = soft_capture_check_legacy_locked(stream->context, true);
    return result == CUDA_SUCCESS ? soft_capture_check_unsafe_locked() : result;
}

CUresult cuStreamSynchronize(CUstream handle)
{
    soft_stream *stream;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    /* A mark waits for exactly what the stream is behind; only the legacy stream is behind more
     * than its own tail. */
    if (!handle || handle == CU_STREAM_LEGACY)
        return soft_op_submit(soft_op_new(sizeof(soft_op), &mark_class), handle, true);
    soft_lock();
    result = soft_stream_find_locked(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = check_look_locked(stream);
    if (result == CUDA_SUCCESS && stream->tail)
        result = soft_op_wait_locked(stream->tail);
    soft_unlock();
    return result;
}

CUresult cuStreamQuery(CUstream handle)
{
    soft_stream *stream, *other;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_stream_find_locked(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = check_look_locked(stream);
    if (result == CUDA_SUCCESS) {
        LIST_FOREACH(other, &stream->context->streams, entry)
        {
            bool behind = other == stream || (stream == stream->context->legacy && other->blocking);

            if (behind && other->tail)
                result = CUDA_ERROR_NOT_READY;
        }
    }
    soft_unlock();
    return result;
}

static CUresult wait_event_locked(soft_op *op, CUstream handle, CUevent event_handle, bool external)
{
    soft_stream *stream;
    const soft_event *event;
    CUresult result = soft_stream_find_locked(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    event = soft_handle_find_locked(SOFT_HANDLE_EVENT, event_handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (external)
        return soft_capture_external_locked(stream, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    if (event->capture || stream->capture)
        return soft_capture_wait_locked(stream, event);
    return soft_op_submit_locked(op, stream, event->recorded);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags)
{
    soft_op *op;
    bool submitted;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS && flags > CU_EVENT_WAIT_EXTERNAL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    op = soft_op_new(sizeof *op, &mark_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    soft_lock();
    op->refs++; /* ours: only a wait that runs has another use for it */
    result = wait_event_locked(op, handle, event_handle, flags == CU_EVENT_WAIT_EXTERNAL);
    submitted = result == CUDA_SUCCESS && op->stream;
    if (!submitted)
        soft_op_unref_locked(op);
    soft_op_unref_locked(op);
    soft_unlock();
    return result;
}

/* ---- functions on the host, in stream order */

typedef struct call_op {
    soft_op op;
    CUresult (*fn)(void *arg);
    CUhostFn host_fn;
    void *arg;
} call_op;

static CUresult run_call(soft_op *op)
{
    call_op *self = (call_op *)op;

    return self->fn(self->arg);
}

static CUresult run_host_call(soft_op *op)
{
    call_op *self = (call_op *)op;

    return soft_call_host_function(self->host_fn, self->arg);
}

static const soft_op_class call_class = {.type = SOFT_OP_WORK, .always = true, .run = run_call};
static const soft_op_class host_call_class = {
    .type = SOFT_OP_WORK,
    .run = run_host_call,
    .repeatable = true,
    .node = CU_GRAPH_NODE_TYPE_HOST,
};

CUresult soft_stream_submit(CUstream stream, CUresult (*fn)(void *arg), void *arg)
{
    call_op *op = soft_op_new(sizeof *op, &call_class);

    if (op) {
        op->fn = fn;
        op->arg = arg;
    }
    return soft_op_submit(op ? &op->op : NULL, stream, false);
}

soft_op *soft_host_call_new(CUhostFn fn, void *data)
{
    call_op *op = soft_op_new(sizeof *op, &host_call_class);

    if (!op)
        return NULL;
    op->host_fn = fn;
    op->arg = data;
    return &op->op;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    return soft_op_submit(soft_host_call_new(fn, data), stream, false);
}
