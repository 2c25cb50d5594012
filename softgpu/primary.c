/* How contexts end, and the life of primary ones: retained, broken, released, reset.
 *
 * A context is IDLE until it is retained (created.c: created), ACTIVE while it is, and CLOSING while
 * the last release, a reset or cuCtxDestroy waits for its work and takes down what it owns: streams,
 * events, modules, and through soft_space_drop_context() its memory. The handle of a primary one is
 * good until the last release: cuDevicePrimaryCtxReset leaves it retained and IDLE, and the next
 * retain makes it ACTIVE under the same handle.
 *
 * The first failure of an operation is the sticky error of all contexts of the device. It ends what
 * runs, discards what is queued (waits for it return), and is returned by every later call that needs
 * such a context. Nothing clears it, not even a reset, as on a real device: the process has lost the
 * device. */
#include "softgpu/engine.h"

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
    for (unsigned i = 0; i < SOFT_CONTEXTS_MAX; i++)
        if (soft_context_at(i)->device == device)
            drain_locked(soft_context_at(i));
    result = soft_context_of(device)->lost;
    soft_unlock();
    return result;
}

CUresult cuCtxSynchronize(void)
{
    soft_context *context;
    int device;
    CUresult result = soft_enter_wait(&device);

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(context);
    if (result == CUDA_SUCCESS)
        result = drain_locked(context);
    soft_unlock();
    return result;
}

static bool is_unused_locked(int device)
{
    for (unsigned i = 0; i < SOFT_CONTEXTS_MAX; i++)
        if (soft_context_at(i)->device == device && soft_context_at(i)->state != SOFT_CONTEXT_IDLE)
            return false;
    return true;
}

void soft_context_close_locked(soft_context *context)
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
        if (stream->handle)
            soft_stream_close_locked(stream);
    }
    soft_unlock();
    soft_space_drop_context(context->id);
    soft_lock();
    context->peers = 0;
    for (unsigned i = 0; i < SOFT_CONTEXTS_MAX; i++)
        soft_context_at(i)->peers &= ~(UINT64_C(1) << context->index);
    context->state = SOFT_CONTEXT_IDLE;
    if (is_unused_locked(context->device))
        soft_space_drop_pools(context->device);
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
    result = ctx ? context->lost : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !soft_context_open_locked(context))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
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
            soft_context_close_locked(context);
        soft_context_forget_locked(context);
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
        soft_context_stop_locked(context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
        soft_context_close_locked(context);
        context->error = context->lost;
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
        *flags = context->flags;
        *active = context->state == SOFT_CONTEXT_ACTIVE;
    }
    soft_unlock();
    return result;
}
