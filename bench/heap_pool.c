/* gvmem-bench heap: heaps, the driver's pool and pools of libraries behind the same few calls. */
#include "bench/heap.h"

#include <dlfcn.h>
#include <string.h>

bool bench_take(const bench_subject *s, uint64_t bytes, CUstream stream, void **out)
{
    CUdeviceptr at = 0;

    if (s->heap != NULL)
        return s->ordered ? gvm_heap_alloc_async(s->heap, bytes, NULL, stream, out) == GVM_OK
                          : gvm_heap_alloc(s->heap, bytes, out) == GVM_OK;
    if (s->pool != NULL) {
        *out = s->pool->alloc(bytes, stream);
        return *out != NULL;
    }
    if (gvmi_cu->cuMemAllocAsync(&at, bytes, stream) != CUDA_SUCCESS)
        return false;
    *out = (void *)(uintptr_t)at;
    return true;
}

bool bench_give(const bench_subject *s, void *ptr, uint64_t bytes, CUstream stream)
{
    if (s->heap != NULL)
        return s->ordered ? gvm_heap_free_async(s->heap, ptr, stream) == GVM_OK
                          : gvm_heap_free(s->heap, ptr) == GVM_OK;
    if (s->pool != NULL) {
        s->pool->free(ptr, bytes, stream);
        return true;
    }
    return gvmi_cu->cuMemFreeAsync((CUdeviceptr)(uintptr_t)ptr, stream) == CUDA_SUCCESS;
}

void bench_subject_failed(bench *b, const bench_subject *s)
{
    if (s->heap != NULL)
        bench_failed(b, s->name);
    else
        bench_note(b, "%s failed: too little memory for it", s->name);
}

uint64_t bench_committed_bytes(const bench_subject *s)
{
    gvm_heap_info info = {.struct_size = sizeof info};
    uint64_t reserved = 0;

    if (s->heap != NULL)
        return gvm_heap_get_info(s->heap, &info) == GVM_OK ? info.committed_bytes : 0;
    if (s->pool != NULL)
        return s->pool->committed_bytes();
    (void)gvmi_cu->cuMemPoolGetAttribute(s->driver_pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                         &reserved);
    return reserved;
}

void bench_give_back(bench *b, const bench_subject *s)
{
    bench_wait(b);
    if (s->heap != NULL && gvm_heap_trim(s->heap, 0) != GVM_OK)
        bench_failed(b, "giving back what a heap keeps");
    if (s->heap != NULL)
        return;
    if (s->pool != NULL)
        s->pool->trim();
    else
        (void)gvmi_cu->cuMemPoolTrimTo(s->driver_pool, 0);
}

bool bench_driver_pool_start(bench *b, CUmemoryPool *pool)
{
    uint64_t all = UINT64_MAX;
    CUresult result = gvmi_cu->cuDeviceGetDefaultMemPool(pool, b->ordinal);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuMemPoolSetAttribute(*pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
    if (result != CUDA_SUCCESS)
        bench_note(b, "no memory pool here: the driver's pool is left out");
    return result == CUDA_SUCCESS;
}

void bench_driver_pool_stop(CUmemoryPool pool)
{
    uint64_t none = 0;

    (void)gvmi_cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none);
    (void)gvmi_cu->cuMemPoolTrimTo(pool, 0);
}

/* ---- pools of libraries */

/* A symbol is an object to dlsym(), and a function to us. */
static bool find_pool_symbol(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);

    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* NULL, or why it cannot be used. The library stays loaded: what it has started may go on. */
static const char *load_pool_library(const char *path, int device, bench_foreign_pool *out)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return dlerror();
    if (!find_pool_symbol(library, "bench_pool_open", &out->open) ||
        !find_pool_symbol(library, "bench_pool_name", &out->name) ||
        !find_pool_symbol(library, "bench_pool_alloc", &out->alloc) ||
        !find_pool_symbol(library, "bench_pool_free", &out->free) ||
        !find_pool_symbol(library, "bench_pool_committed_bytes", &out->committed_bytes) ||
        !find_pool_symbol(library, "bench_pool_trim", &out->trim))
        return "it does not have the functions of bench/pool.h";
    return out->open(device);
}

size_t bench_load_pools(bench *b, const bench_foreign_pool **out)
{
    static bench_foreign_pool pools[BENCH_POOLS_MAX];
    static size_t count;

    for (; b->pools_loaded < b->pool_count; b->pools_loaded++) {
        const char *path = b->pool_paths[b->pools_loaded],
                   *why = load_pool_library(path, b->ordinal, &pools[count]);

        if (why == NULL) {
            count++;
            continue;
        }
        bench_note(b, "%s is left out: %.300s", path, why);
        tool_error("%s is left out: %s", path, why);
        b->code = TOOL_FAILED;
    }
    *out = pools;
    return count;
}
