/* The contexts, and which one each thread uses.
 *
 * They are entries of a table that are used again: entry i below SOFT_DEVICES_MAX is the primary context of device i,
 * the others are created ones (created.c). */
#include "softgpu/engine.h"

#include <stdlib.h>

typedef struct thread_state {
    void **stack; /* context handles, the current one last */
    size_t depth, capacity;
} thread_state;

static soft_context contexts[SOFT_CONTEXTS_MAX];
static soft_stream legacies[SOFT_CONTEXTS_MAX];
static uint64_t last_id; /* under the lock */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool key_made; /* the process had one left */

static void end_thread(void *p)
{
    thread_state *thread = p;

    free(thread->stack);
    free(thread);
}

static void prepare_contexts(void)
{
    key_made = pthread_key_create(&thread_key, end_thread) == 0;
    for (unsigned i = 0; i < SOFT_CONTEXTS_MAX; i++) {
        soft_context *context = &contexts[i];

        context->device = i < SOFT_DEVICES_MAX ? (int)i : -1;
        context->index = i;
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

soft_context *soft_context_of(int device)
{
    pthread_once(&once, prepare_contexts);
    return &contexts[device];
}

soft_context *soft_context_at(unsigned index)
{
    pthread_once(&once, prepare_contexts);
    return &contexts[index];
}

void *soft_context_open_locked(soft_context *context)
{
    if (!context->handle)
        context->handle = soft_handle_add_locked(SOFT_HANDLE_CONTEXT, context);
    if (context->handle && context->state != SOFT_CONTEXT_ACTIVE) {
        context->id = ++last_id;
        context->state = SOFT_CONTEXT_ACTIVE;
    }
    return context->handle;
}

void soft_context_forget_locked(soft_context *context)
{
    soft_handle_remove_locked(context->handle);
    context->handle = NULL;
}

CUresult soft_context_find_locked(CUcontext handle, soft_context **out)
{
    *out = soft_handle_find_locked(SOFT_HANDLE_CONTEXT, handle);
    if (*out)
        return CUDA_SUCCESS;
    return soft_handle_stale_locked(SOFT_HANDLE_CONTEXT, handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                                 : CUDA_ERROR_INVALID_CONTEXT;
}

static thread_state *this_thread(void)
{
    thread_state *thread;

    pthread_once(&once, prepare_contexts);
    if (!key_made)
        return NULL;
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

/* ---- state and errors */

CUresult soft_context_usable_locked(const soft_context *context)
{
    return context->state == SOFT_CONTEXT_ACTIVE ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult soft_context_current_locked(soft_context **out)
{
    const thread_state *thread = this_thread();

    if (!thread || thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return soft_context_find_locked(thread->stack[thread->depth - 1], out);
}

CUresult soft_enter_context(int *device)
{
    uint64_t context_id;

    return soft_enter_owner(device, &context_id);
}

CUresult soft_enter_owner(int *device, uint64_t *context_id)
{
    soft_context *context;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(context);
    if (result == CUDA_SUCCESS) {
        *device = context->device;
        *context_id = context->id;
    }
    soft_unlock();
    return result;
}

CUcontext soft_context_handle(uint64_t context_id)
{
    CUcontext handle = NULL;

    soft_lock();
    for (unsigned i = 0; i < SOFT_CONTEXTS_MAX; i++)
        if (contexts[i].id == context_id)
            handle = contexts[i].handle;
    soft_unlock();
    return handle;
}

/* ---- the thread's stack of contexts */

static CUresult check_context(CUcontext handle)
{
    soft_context *context;
    CUresult result;

    soft_lock();
    result = soft_context_find_locked(handle, &context);
    soft_unlock();
    return result;
}

CUresult soft_current_push(CUcontext handle)
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

void soft_current_pop(CUcontext handle)
{
    thread_state *thread = this_thread();

    if (thread && thread->depth > 0 && thread->stack[thread->depth - 1] == handle)
        thread->depth--;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = ctx ? check_context(ctx) : CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? soft_current_push(ctx) : result;
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
    return ctx ? soft_current_push(ctx)
               : CUDA_SUCCESS; /* soft_current_push() needs no memory if something was replaced */
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
    result = ctx ? soft_context_find_locked(ctx, &context) : soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS && context->state != SOFT_CONTEXT_ACTIVE)
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == CUDA_SUCCESS)
        *id = context->id;
    soft_unlock();
    return result;
}

/* ---- peers */

static CUresult change_peer(CUcontext handle, bool enable)
{
    soft_context *context, *peer;
    CUresult result;
    uint64_t bit;

    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(context);
    if (result == CUDA_SUCCESS)
        result = soft_context_find_locked(handle, &peer);
    if (result == CUDA_SUCCESS && !soft_is_peer(context->device, peer->device))
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (result == CUDA_SUCCESS) {
        bit = UINT64_C(1) << peer->index;
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
