/* The life of primary contexts: retained, broken, released, reset.
 *
 * A context is IDLE until it is retained, ACTIVE while it is, and CLOSING while the last release or
 * a reset waits for its work and takes down what it owns: streams, events, modules, and through
 * soft_space_drop_context() its memory. Its handle is good until the last release:
 * cuDevicePrimaryCtxReset leaves it retained and IDLE, and the next retain makes it ACTIVE under
 * the same handle.
 *
 * The first failure of an operation is the context's sticky error. It ends what runs, discards what
 * is queued (waits for it return), and is returned by every later call that needs the context.
 * Nothing clears it, not even a reset, as on a real device: the process has lost the device. */
#include "softgpu/engine.h"

static uint64_t last_id;                                 /* under the lock */
static pthread_cond_t closed = PTHREAD_COND_INITIALIZER; /* some context is CLOSING no more */

/* Waits for the operations that are submitted now. Newest first: waiting for it is mostly waiting
 * for all. */
static CUresult drain_locked(soft_context *context)
{
    uint64_t last = context->serial;
    CUresult result = CUDA_SUCCESS;
    soft_op *op;

    for (;;) {
        CUresult ended;

        op = TAILQ_LAST(&context->unfinished, soft_op_queue);
        while (op && op->serial > last)
            op = TAILQ_PREV(op, soft_op_queue, unfinished);
        if (!op)
            return result != CUDA_SUCCESS ? result : context->error;
        ended = soft_op_wait_locked(op);
        if (result == CUDA_SUCCESS)
            result = ended;
    }
}

CUresult soft_device_drain(int device)
{
    CUresult result;

    soft_lock();
    result = drain_locked(soft_context_of(device));
    soft_unlock();
    return result;
}

CUresult cuCtxSynchronize(void)
{
    int device;
    CUresult result = soft_enter_wait(&device);

    return result == CUDA_SUCCESS ? soft_device_drain(device) : result;
}

/* Waits for the context's work and takes down what it owns. Other threads see it CLOSING
 * meanwhile. */
static void close_locked(soft_context *context)
{
    soft_stream *stream, *next;
    soft_module *module;

    context->state = SOFT_CONTEXT_CLOSING;
    drain_locked(context);
    while ((module = LIST_FIRST(&context->modules))) {
        soft_module_close_locked(module);
        soft_unlock();
        soft_module_unref(module);
        soft_lock();
    }
    while (!LIST_EMPTY(&context->events))
        soft_event_close_locked(LIST_FIRST(&context->events));
    for (stream = LIST_FIRST(&context->streams); stream; stream = next) {
        next = LIST_NEXT(stream, entry);
        if (stream != context->legacy)
            soft_stream_close_locked(stream);
    }
    soft_unlock();
    soft_space_drop_context(context->device);
    soft_lock();
    context->peers = 0;
    for (int i = 0; i < SOFT_DEVICES_MAX; i++)
        soft_context_of(i)->peers &= ~(1u << context->device);
    context->state = SOFT_CONTEXT_IDLE;
    pthread_cond_broadcast(&closed);
}

/* Gives the context of a valid device, with the lock held and the context not CLOSING; without the
 * lock on failure. */
static CUresult lock_primary(CUdevice device, soft_context **out)
{
    const soft_config *config;
    CUresult result = soft_enter_device(device, &config);

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    *out = soft_context_of(device);
    while ((*out)->state == SOFT_CONTEXT_CLOSING)
        soft_sleep_locked(&closed);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    soft_context *context;
    CUresult result = lock_primary(dev, &context);

    if (result != CUDA_SUCCESS)
        return result;
    result = ctx ? context->error : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !context->handle) {
        context->handle = soft_handle_add_locked(SOFT_HANDLE_CONTEXT, context);
        if (!context->handle)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        if (context->state != SOFT_CONTEXT_ACTIVE)
            context->id = ++last_id;
        context->state = SOFT_CONTEXT_ACTIVE;
        context->retained++;
        *ctx = context->handle;
    }
    soft_unlock();
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    soft_context *context;
    CUresult result = lock_primary(dev, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (context->retained == 0) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--context->retained == 0) {
        if (context->state == SOFT_CONTEXT_ACTIVE)
            close_locked(context);
        soft_handle_remove_locked(context->handle);
        context->handle = NULL;
    }
    soft_unlock();
    return result;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    soft_context *context;
    CUresult result = lock_primary(dev, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (context->state == SOFT_CONTEXT_ACTIVE) {
        CUresult error = context->error;

        soft_context_break_locked(context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
        close_locked(context);
        context->error = error;
    }
    soft_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    soft_context *context;
    CUresult result = lock_primary(dev, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!flags || !active) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        *flags = 0;
        *active = context->state == SOFT_CONTEXT_ACTIVE;
    }
    soft_unlock();
    return result;
}
