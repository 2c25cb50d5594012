/* The primary context of each device, and which one each thread uses.
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

#include <stdlib.h>

typedef struct thread_state {
    void **stack; /* context handles, the current one last */
    size_t depth, capacity;
    CUstream streams[SOFT_DEVICES_MAX]; /* what CU_STREAM_PER_THREAD means, once used */
} thread_state;

static soft_context contexts[SOFT_DEVICES_MAX];
static uint64_t last_id; /* under the lock */
static soft_stream legacies[SOFT_DEVICES_MAX];
static pthread_cond_t closed = PTHREAD_COND_INITIALIZER; /* some context is CLOSING no more */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;

static void end_thread(void *p)
{
    thread_state *thread = p;

    /* After a fork nothing of the driver is used any more, least of all a lock that somebody may
     * have held. */
    if (soft_enter() == CUDA_SUCCESS) {
        soft_lock();
        for (int i = 0; i < SOFT_DEVICES_MAX; i++) {
            soft_stream *stream = soft_token_find_locked(SOFT_TOKEN_STREAM, thread->streams[i]);

            if (stream)
                soft_stream_close_locked(stream);
        }
        soft_unlock();
    }
    free(thread->stack);
    free(thread);
}

static void prepare_threads(void)
{
    pthread_key_create(&thread_key, end_thread);
    for (int i = 0; i < SOFT_DEVICES_MAX; i++) {
        soft_context *context = &contexts[i];

        context->device = i;
        context->legacy = &legacies[i];
        TAILQ_INIT(&context->unfinished);
        LIST_INIT(&context->streams);
        LIST_INIT(&context->events);
        LIST_INIT(&context->modules);
        legacies[i] = (soft_stream){.context = context, .blocking = true, .refs = 1};
        LIST_INSERT_HEAD(&context->streams, &legacies[i], entry);
        context->stream_count = 1;
    }
}

static thread_state *this_thread(void)
{
    thread_state *thread;

    pthread_once(&once, prepare_threads);
    thread = pthread_getspecific(thread_key);
    if (!thread) {
        thread = calloc(1, sizeof *thread);
        if (thread && pthread_setspecific(thread_key, thread)) {
            free(thread);
            thread = NULL;
        }
    }
    return thread;
}

CUstream *soft_thread_streams(void)
{
    thread_state *thread = this_thread();

    return thread ? thread->streams : NULL;
}

/* ---- state and errors */

CUresult soft_context_usable_locked(const soft_context *context)
{
    return context->state == SOFT_CONTEXT_ACTIVE ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult find_context_locked(CUcontext handle, soft_context **out)
{
    *out = soft_token_find_locked(SOFT_TOKEN_CONTEXT, handle);
    if (*out)
        return CUDA_SUCCESS;
    return soft_token_stale_locked(SOFT_TOKEN_CONTEXT, handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                               : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult soft_context_current_locked(soft_context **out)
{
    const thread_state *thread = this_thread();

    if (!thread || thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return find_context_locked(thread->stack[thread->depth - 1], out);
}

CUresult soft_enter_context(int *device)
{
    soft_context *context;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(context);
    if (result == CUDA_SUCCESS)
        *device = context->device;
    soft_unlock();
    return result;
}

void soft_context_break_locked(soft_context *context, CUresult error)
{
    if (context->error != CUDA_SUCCESS)
        return;
    context->error = error;
    soft_sm_interrupt_locked(context->device);
    soft_op_abandon_locked(context);
}

void soft_context_break(int device, CUresult error)
{
    soft_lock();
    if (contexts[device].state == SOFT_CONTEXT_ACTIVE)
        soft_context_break_locked(&contexts[device], error);
    soft_unlock();
}

CUresult soft_context_error(int device)
{
    return contexts[device].error;
}

bool soft_context_peer_enabled(int device, int peer)
{
    return contexts[device].peers >> peer & 1;
}

CUcontext soft_context_handle(int device)
{
    return contexts[device].handle;
}

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
    result = drain_locked(&contexts[device]);
    soft_unlock();
    return result;
}

/* ---- primary contexts */

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
        contexts[i].peers &= ~(1u << context->device);
    context->state = SOFT_CONTEXT_IDLE;
    pthread_cond_broadcast(&closed);
}

/* Gives the context of a valid device, with the lock held and the context not CLOSING; without the
 * lock on failure. */
static CUresult lock_primary(CUdevice device, soft_context **out)
{
    int count;
    CUresult result = cuDeviceGetCount(&count);

    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0 || device >= count)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_once(&once, prepare_threads);
    soft_lock();
    *out = &contexts[device];
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
        context->handle = soft_token_add_locked(SOFT_TOKEN_CONTEXT, context);
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
        soft_token_remove_locked(context->handle);
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

/* ---- the thread's stack of contexts */

static CUresult check_context(CUcontext handle)
{
    soft_context *context;
    CUresult result;

    soft_lock();
    result = find_context_locked(handle, &context);
    soft_unlock();
    return result;
}

static CUresult push_context(CUcontext handle)
{
    thread_state *thread = this_thread();

    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (thread->depth == thread->capacity) {
        size_t capacity = thread->capacity ? thread->capacity * 2 : 8;
        void **more = realloc(thread->stack, capacity * sizeof *more);

        if (!more)
            return CUDA_ERROR_OUT_OF_MEMORY;
        thread->stack = more;
        thread->capacity = capacity;
    }
    thread->stack[thread->depth++] = handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = ctx ? check_context(ctx) : CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? push_context(ctx) : result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
    CUresult result = soft_enter();
    thread_state *thread;

    if (result != CUDA_SUCCESS)
        return result;
    thread = this_thread();
    if (!thread || thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->depth--;
    if (ctx)
        *ctx = thread->stack[thread->depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    CUresult result = soft_enter();
    thread_state *thread;

    if (result == CUDA_SUCCESS && ctx)
        result = check_context(ctx);
    if (result != CUDA_SUCCESS)
        return result;
    thread = this_thread();
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (thread->depth > 0)
        thread->depth--;
    return ctx ? push_context(ctx)
               : CUDA_SUCCESS; /* push_context() needs no memory if something was replaced */
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    CUresult result = soft_enter();
    const thread_state *thread;

    if (result != CUDA_SUCCESS)
        return result;
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    thread = this_thread();
    *ctx = thread && thread->depth > 0 ? thread->stack[thread->depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
    soft_context *context;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!dev)
        return CUDA_ERROR_INVALID_VALUE;
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        *dev = context->device;
    soft_unlock();
    return result;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
    soft_context *context;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    soft_lock();
    result = ctx ? find_context_locked(ctx, &context) : soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS && context->state != SOFT_CONTEXT_ACTIVE)
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == CUDA_SUCCESS)
        *id = context->id;
    soft_unlock();
    return result;
}

CUresult cuCtxSynchronize(void)
{
    int device;
    CUresult result = soft_enter_context(&device);

    return result == CUDA_SUCCESS ? soft_device_drain(device) : result;
}

/* ---- peers */

static CUresult change_peer(CUcontext handle, bool enable)
{
    soft_context *context, *peer;
    CUresult result;
    unsigned bit;

    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(context);
    if (result == CUDA_SUCCESS)
        result = find_context_locked(handle, &peer);
    if (result == CUDA_SUCCESS && peer == context)
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (result == CUDA_SUCCESS) {
        bit = 1u << peer->device;
        if (enable && context->peers & bit)
            result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        else if (!enable && !(context->peers & bit))
            result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        else
            context->peers ^= bit;
    }
    soft_unlock();
    return result;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS && flags != 0)
        result = CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? change_peer(peer, true) : result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    CUresult result = soft_enter();

    return result == CUDA_SUCCESS ? change_peer(peer, false) : result;
}
