/* Start, version, error texts, and what a fork leaves. */
#include "softgpu/engine.h"

#include <stdatomic.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(CUresult) started = CUDA_ERROR_NOT_INITIALIZED;

/* In the child of a fork there are none of the driver's threads, and any lock may be held for ever:
 * as with the real driver, nothing works there. A program that forks starts the driver after it. */
static atomic_bool forked;

static void after_fork(void)
{
    forked = true;
}

static void start_softgpu(void)
{
    const soft_config *config;
    const char *text;
    CUresult result = soft_config_get(&config, &text);

    if (result == CUDA_SUCCESS && config->device_count == 0)
        result = CUDA_ERROR_NO_DEVICE;
    if (result == CUDA_SUCCESS)
        result = soft_charge_open();
    if (result == CUDA_SUCCESS) {
        soft_fault_install();
        pthread_atfork(NULL, NULL, after_fork);
    }
    started = result;
}

CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_once(&once, start_softgpu);
    return started;
}

CUresult soft_enter_device(CUdevice dev, const soft_config **config)
{
    const char *text;
    CUresult result = soft_enter();

    if (result == CUDA_SUCCESS)
        result = soft_config_get(config, &text);
    if (result == CUDA_SUCCESS && (dev < 0 || dev >= (*config)->device_count))
        result = CUDA_ERROR_INVALID_DEVICE;
    return result;
}

const char *gvm_softgpu_problem(void)
{
    const soft_config *config;
    const char *text;

    return soft_config_get(&config, &text) == CUDA_SUCCESS ? NULL : text;
}

static _Thread_local bool in_host_function;

CUresult soft_call_host_function(CUhostFn fn, void *data)
{
    in_host_function = true;
    fn(data);
    in_host_function = false;
    return CUDA_SUCCESS;
}

CUresult soft_enter(void)
{
    if (forked || started != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    /* "The host function must not make any CUDA API calls." */
    return in_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = SOFT_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

static const struct {
    CUresult result;
    const char *name, *text;
} results[] = {
#define RESULT(name, value, text) {name, #name, text},
    GVMI_CUDA_RESULTS(RESULT)
#undef RESULT
};

CUresult cuGetErrorName(CUresult error, const char **text)
{
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < sizeof results / sizeof results[0] && !*text; i++)
        if (results[i].result == error)
            *text = results[i].name;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < sizeof results / sizeof results[0] && !*text; i++)
        if (results[i].result == error)
            *text = results[i].text;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
