/* Contexts that the program creates beside the primary ones, and what can be asked about a context.
 *
 * A created context is an entry of the table in context.c, ACTIVE from cuCtxCreate to cuCtxDestroy. It has streams,
 * events, modules and memory of its own; the device and its SM threads it shares with the others. An entry is used
 * again once nothing of its last use is left, streams that were destroyed with work in them included. */
#include "softgpu/engine.h"

#define CONTEXT_API_VERSION 3020 /* the last one that broke what was before it */
#define FLAGS_SUPPORTED \
    (CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_SYNC_MEMOPS)

/* Scheduling is a choice of one; what is not supported would have an effect on a real device. */
static CUresult check_flags(unsigned int flags)
{
    unsigned int scheduling = flags & CU_CTX_SCHED_MASK;

    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK || (scheduling & (scheduling - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return flags & ~(unsigned int)FLAGS_SUPPORTED ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* ---- life */

static soft_context *free_entry_locked(void)
{
    for (unsigned i = SOFT_DEVICES_MAX; i < SOFT_CONTEXTS_MAX; i++) {
        soft_context *context = soft_context_at(i);

        if (!context->handle && context->state == SOFT_CONTEXT_IDLE && context->stream_count == 1 &&
            TAILQ_EMPTY(&context->unfinished))
            return context;
    }
    return NULL;
}

static CUresult open_created_locked(CUdevice dev, unsigned int flags, CUcontext *out)
{
    CUresult result = soft_context_of(dev)->lost;
    soft_context *context = free_entry_locked();

    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = soft_context_open_locked(context);
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->device = dev;
    context->flags = flags;
    context->error = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

static void close_created_locked(soft_context *context)
{
    soft_context_close_locked(context);
    soft_context_forget_locked(context);
    context->device = -1;
}

static CUresult create_context(CUcontext *out, unsigned int flags, CUdevice dev)
{
    const soft_config *config;
    soft_context *context;
    CUcontext created;
    CUresult result = soft_enter_device(dev, &config);

    if (result == CUDA_SUCCESS)
        result = out ? check_flags(flags) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = open_created_locked(dev, flags, &created);
    soft_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    result = soft_current_push(created);
    if (result == CUDA_SUCCESS) {
        *out = created;
        return result;
    }
    soft_lock();
    if (soft_context_find_locked(created, &context) == CUDA_SUCCESS)
        close_created_locked(context);
    soft_unlock();
    return result;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
    return create_context(ctx, flags, dev);
}

/* A share of the SMs is what MPS gives, and there is none. */
CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *affinities, int count,
                        unsigned int flags, CUdevice dev)
{
    if (count < 0 || (count > 0 && !affinities))
        return CUDA_ERROR_INVALID_VALUE;
    return count > 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create_context(ctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
    if (params && params->cigParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    return params ? cuCtxCreate_v3(ctx, params->execAffinityParams, params->numExecAffinityParams,
                                   flags, dev)
                  : create_context(ctx, flags, dev);
}

/* One that is broken is destroyed as any other, and its error is not told. */
CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    soft_context *context;
    CUresult result = ctx ? soft_enter() : CUDA_ERROR_INVALID_VALUE; /* before cuInit, too */

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_context_find_locked(ctx, &context);
    if (result == CUDA_SUCCESS &&
        (context->index < SOFT_DEVICES_MAX || context->state != SOFT_CONTEXT_ACTIVE))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        close_created_locked(context);
    soft_unlock();
    if (result == CUDA_SUCCESS)
        soft_current_pop(ctx);
    return result;
}

/* ---- questions */

CUresult cuCtxGetFlags(unsigned int *flags)
{
    soft_context *context;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS && !flags)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        *flags = context->flags;
    soft_unlock();
    return result;
}

bool soft_current_syncs(void)
{
    soft_context *context;
    bool syncs;

    soft_lock();
    syncs = soft_context_current_locked(&context) == CUDA_SUCCESS &&
            (context->flags & CU_CTX_SYNC_MEMOPS) != 0;
    soft_unlock();
    return syncs;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    soft_context *context;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = check_flags(flags);
    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        context->flags = flags;
    soft_unlock();
    return result;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    const soft_config *config;
    CUresult result = soft_enter_device(dev, &config);

    if (result == CUDA_SUCCESS)
        result = check_flags(flags);
    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    soft_context_of(dev)->flags = flags;
    soft_unlock();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    soft_context *context;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS && !version)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = ctx ? soft_context_find_locked(ctx, &context) : soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        *version = CONTEXT_API_VERSION;
    soft_unlock();
    return result;
}
