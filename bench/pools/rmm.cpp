/* RMM's pool over cudaMalloc, empty at first, as bench/pool.h wants it. It keeps what it has
 * until it ends; so it is ended and made anew when it is trimmed.
 */
#include <cstring>
#include <exception>
#include <optional>

#include <cuda_runtime_api.h>

#include <rmm/aligned.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "bench/pool.h"

namespace {
std::optional<rmm::mr::pool_memory_resource> pool;

void make()
{
    pool.reset();
    pool.emplace(rmm::mr::cuda_memory_resource{}, 0);
}

cuda::stream_ref stream_of(void *stream)
{
    return cuda::stream_ref{static_cast<cudaStream_t>(stream)};
}
} // namespace

const char *bench_pool_open(int device)
{
    static char why[300];

    if (device != 0)
        return "only device 0 can be measured";
    try {
        make();
        void *ptr = pool->allocate(stream_of(nullptr), 1 << 20, rmm::CUDA_ALLOCATION_ALIGNMENT);
        pool->deallocate(stream_of(nullptr), ptr, 1 << 20, rmm::CUDA_ALLOCATION_ALIGNMENT);
        return nullptr;
    } catch (const std::exception &e) {
        std::strncpy(why, e.what(), sizeof why - 1);
        return why;
    }
}

const char *bench_pool_name(void)
{
    return "RMM pool";
}

void *bench_pool_alloc(size_t bytes, void *stream)
{
    if (!pool.has_value())
        return nullptr;
    try {
        return pool->allocate(stream_of(stream), bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
    } catch (const std::exception &) {
        return nullptr;
    }
}

void bench_pool_free(void *ptr, size_t bytes, void *stream)
{
    pool->deallocate(stream_of(stream), ptr, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
}

uint64_t bench_pool_committed_bytes(void)
{
    return pool.has_value() ? pool->pool_size() : 0;
}

void bench_pool_trim(void)
{
    try {
        make();
    } catch (const std::exception &) { /* the next request fails */
    }
}
