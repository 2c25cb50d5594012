/* What the cases about streams, copies and launches share. */
#include "tests/conform/execution.h"

#include <pthread.h>

bool ends_soon(CUstream stream)
{
    uint64_t end = now_ms() + CONFORM_SOON_MS;
    CUresult result;
    while ((result = cu->cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY && now_ms() < end)
        pause_ms(1);
    return result == CUDA_SUCCESS;
}

bool stays_busy(CUstream stream)
{
    if (cu->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
        return false;
    pause_ms(3);
    return cu->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

struct thread_work {
    void (*fn)(void *arg);
    void *arg;
};

static void *thread_run(void *arg)
{
    struct thread_work *work = arg;
    work->fn(work->arg);
    return NULL;
}

void in_thread(void (*fn)(void *arg), void *arg)
{
    struct thread_work work = {fn, arg};
    pthread_t thread;
    REQUIRE_TRUE(pthread_create(&thread, NULL, thread_run, &work) == 0);
    REQUIRE_TRUE(pthread_join(thread, NULL) == 0);
}

CUmodule take_module(void)
{
    CUmodule module = NULL;
    REQUIRE_OK(cu->cuModuleLoadData(&module, conform_image));
    own(OWN_MODULE, (uintptr_t)module, 0);
    return module;
}

CUfunction module_kernel(CUmodule module, const char *symbol)
{
    CUfunction function = NULL;
    REQUIRE_OK(cu->cuModuleGetFunction(&function, module, symbol));
    return function;
}

CUdeviceptr scratch_word(unsigned index)
{
    return scratch() + index * sizeof(uint32_t);
}

static unsigned char pattern_byte(size_t i, unsigned seed)
{
    return (unsigned char)(i * 7 + (i >> 8) * 13 + (i >> 16) * 29 + seed);
}

void pattern_write(void *at, size_t size, unsigned seed)
{
    unsigned char *bytes = at;
    for (size_t i = 0; i < size; i++)
        bytes[i] = pattern_byte(i, seed);
}

bool pattern_holds(const void *at, size_t size, unsigned seed)
{
    const unsigned char *bytes = at;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != pattern_byte(i, seed))
            return false;
    return true;
}

bool bytes_are(const void *at, size_t size, unsigned char value)
{
    const unsigned char *bytes = at;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != value)
            return false;
    return true;
}
