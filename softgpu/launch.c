/* Functions and launches. The dynamic shared memory of a block is that of the SM thread which runs it. */
#include "softgpu/engine.h"

#include <string.h>

#include <gvmem/device/kernel.h>

#define GRID_X_MAX 0x7fffffffu
#define GRID_YZ_MAX 65535u
#define FUNC_ATTRIBUTE_COUNT 16 /* of CUfunction_attribute in 13.0 */
#define FUNC_ATTRIBUTE_CARVEOUT 9

/* ---- functions */

/* Gives the function with the lock held; without the lock on failure. */
static CUresult lock_function(CUfunction handle, soft_function **out)
{
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    *out = soft_handle_find_locked(SOFT_HANDLE_FUNCTION, handle);
    result = *out ? soft_context_usable_locked((*out)->module->context) : CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        soft_unlock();
    return result;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    const soft_config *config;
    const char *text;
    soft_function *function;
    CUresult result = soft_config_get(&config, &text);

    if (!value || attribute < 0 || attribute >= FUNC_ATTRIBUTE_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = lock_function(handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        *value = config->threads_max;
    else if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        *value = (int)function->shared_bytes_max;
    else
        *value = 0;
    soft_unlock();
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    soft_function *function;
    CUresult result = lock_function(handle, &function);

    if (result != CUDA_SUCCESS)
        return result;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
        value <= (int)SOFT_SHARED_BYTES_MAX)
        function->shared_bytes_max = (uint32_t)value;
    else if (attribute != FUNC_ATTRIBUTE_CARVEOUT || value < -1 || value > 100) /* a hint */
        result = CUDA_ERROR_INVALID_VALUE;
    soft_unlock();
    return result;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle,
                                                     int block_threads, size_t shared_bytes)
{
    const soft_config *config;
    const char *text;
    soft_function *function;
    CUresult result = soft_config_get(&config, &text);

    if (!blocks || block_threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = lock_function(handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    *blocks = block_threads <= config->threads_max && shared_bytes <= function->shared_bytes_max;
    soft_unlock();
    return CUDA_SUCCESS;
}

/* ---- launches */

typedef struct launch_shape {
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    bool cooperative;
} launch_shape;

static void destroy_launch(soft_op *op)
{
    soft_launch *launch = (soft_launch *)op;

    if (launch->module)
        soft_module_unref(launch->module);
}

static void share_module(soft_op *op)
{
    ((soft_launch *)op)->module->refs++;
}

static const soft_op_class launch_class = {
    .type = SOFT_OP_LAUNCH,
    .destroy = destroy_launch,
    .repeatable = true,
    .node = CU_GRAPH_NODE_TYPE_KERNEL,
    .copied = share_module,
};

/* Can so many blocks run at once? */
static CUresult check_at_once(uint64_t blocks)
{
    const soft_config *config;
    const char *text;
    CUresult result = soft_config_get(&config, &text);

    if (result == CUDA_SUCCESS && blocks > (uint64_t)config->sm_count)
        result = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return result;
}

static CUresult check_shape(const launch_shape *shape, uint32_t shared_bytes_max)
{
    const soft_config *config;
    const char *text;
    CUresult result = soft_config_get(&config, &text);
    uint64_t blocks, threads = 1;

    if (result != CUDA_SUCCESS)
        return result;
    for (int i = 0; i < 3; i++) {
        const int most = i == 2 ? soft_block_z_max(config) : config->threads_max;

        if (shape->grid[i] == 0 || shape->grid[i] > (i == 0 ? GRID_X_MAX : GRID_YZ_MAX) ||
            shape->block[i] == 0 || shape->block[i] > (unsigned)most)
            return CUDA_ERROR_INVALID_VALUE;
        threads *= shape->block[i];
    }
    if (threads > (uint64_t)config->threads_max)
        return CUDA_ERROR_INVALID_VALUE;
    if (shape->shared_bytes > shared_bytes_max)
        return CUDA_ERROR_INVALID_VALUE;
    blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2];
    return shape->cooperative ? check_at_once(blocks) : CUDA_SUCCESS;
}

/* Finds the argument in either of the two forms. */
static CUresult find_argument(void **params, void **extra, uint32_t size_bytes, const void **argument)
{
    const size_t *given_bytes = NULL;

    *argument = NULL;
    if ((params && extra) || (!params && !extra))
        return size_bytes == 0 && !params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (params) {
        *argument = params[0];
        return *argument ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    for (int i = 0; i < 2 && extra[0] != CU_LAUNCH_PARAM_END; i++, extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *argument = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            given_bytes = extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    return *argument && given_bytes && *given_bytes == size_bytes ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

static soft_launch *new_launch(const soft_function *function, const launch_shape *shape)
{
    soft_launch *launch = soft_op_new(sizeof *launch + function->kernel->params_bytes, &launch_class);

    if (!launch)
        return NULL;
    launch->kernel = function->kernel;
    for (int i = 0; i < 3; i++) {
        launch->grid[i] = shape->grid[i];
        launch->block[i] = shape->block[i];
    }
    launch->threads = shape->block[0] * shape->block[1] * shape->block[2];
    launch->shared_bytes = shape->shared_bytes;
    launch->cooperative = shape->cooperative;
    launch->blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2];
    launch->module = function->module;
    launch->module->refs++;
    return launch;
}

static CUresult submit_locked(soft_launch *launch, CUstream stream_handle)
{
    soft_context *context = launch->module->context;
    soft_stream *stream;
    CUresult result = soft_stream_find_locked(stream_handle, &stream);

    if (result == CUDA_SUCCESS && stream->context != context)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = soft_sm_start_locked(context->device);
    if (result == CUDA_SUCCESS)
        result = soft_op_submit_locked(&launch->op, stream, NULL);
    return result;
}

/* A launch that was not submitted. */
static CUresult make_launch(CUfunction handle, const launch_shape *shape, void **params,
                            void **extra, soft_launch **out)
{
    soft_launch *launch = NULL;
    soft_function *function;
    const void *argument;
    uint32_t params_bytes = 0;
    CUresult result = lock_function(handle, &function);

    if (result != CUDA_SUCCESS)
        return result;
    params_bytes = function->kernel->params_bytes;
    result = check_shape(shape, function->shared_bytes_max);
    if (result == CUDA_SUCCESS) {
        launch = new_launch(function, shape); /* from here on the module stays */
        if (!launch)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    soft_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    result = find_argument(params, extra, params_bytes, &argument);
    if (result != CUDA_SUCCESS) {
        soft_op_discard(&launch->op);
        return result;
    }
    if (argument)
        memcpy(launch->params, argument, params_bytes);
    *out = launch;
    return CUDA_SUCCESS;
}

static CUresult launch_function(CUfunction handle, const launch_shape *shape, CUstream stream,
                                void **params, void **extra)
{
    soft_launch *launch;
    int device;
    CUresult result = soft_enter_context(&device);

    if (result == CUDA_SUCCESS)
        result = make_launch(handle, shape, params, extra, &launch);
    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    result = submit_locked(launch, stream);
    soft_unlock();
    if (result != CUDA_SUCCESS)
        soft_op_discard(&launch->op);
    return result;
}

CUresult soft_launch_new(const CUDA_KERNEL_NODE_PARAMS *params, soft_launch **out)
{
    const launch_shape shape = {{params->gridDimX, params->gridDimY, params->gridDimZ},
                                {params->blockDimX, params->blockDimY, params->blockDimZ},
                                params->sharedMemBytes,
                                false};

    return make_launch(params->func, &shape, params->kernelParams, params->extra, out);
}

CUresult soft_launch_replace_locked(soft_launch *launch, const soft_launch *before)
{
    CUresult result = before->cooperative ? check_at_once(launch->blocks) : CUDA_SUCCESS;

    if (result == CUDA_SUCCESS)
        launch->cooperative = before->cooperative;
    return result;
}

void soft_launch_describe_locked(const soft_launch *launch, CUDA_KERNEL_NODE_PARAMS *params)
{
    const soft_function *function;

    params->func = NULL; /* the module was unloaded */
    LIST_FOREACH(function, &launch->module->functions, entry)
    if (function->kernel == launch->kernel && launch->module->handle)
        params->func = function->handle;
    params->gridDimX = launch->grid[0];
    params->gridDimY = launch->grid[1];
    params->gridDimZ = launch->grid[2];
    params->blockDimX = launch->block[0];
    params->blockDimY = launch->block[1];
    params->blockDimZ = launch->block[2];
    params->sharedMemBytes = launch->shared_bytes;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra)
{
    const launch_shape shape = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, false};

    return launch_function(function, &shape, stream, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **params)
{
    const launch_shape shape = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, true};

    return launch_function(function, &shape, stream, params, NULL);
}

/* Of the attributes, those that the software GPU can do. */
static CUresult apply_attribute(const CUlaunchAttribute *attribute, launch_shape *shape)
{
    switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE: return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        shape->cooperative = attribute->value.cooperative != 0;
        return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    launch_shape shape = {0};
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!config || (config->numAttrs > 0 && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    shape = (launch_shape){{config->gridDimX, config->gridDimY, config->gridDimZ},
                           {config->blockDimX, config->blockDimY, config->blockDimZ},
                           config->sharedMemBytes,
                           false};
    for (unsigned i = 0; i < config->numAttrs && result == CUDA_SUCCESS; i++)
        result = apply_attribute(&config->attrs[i], &shape);
    return result == CUDA_SUCCESS ? launch_function(function, &shape, config->hStream, params, extra)
                                  : result;
}
