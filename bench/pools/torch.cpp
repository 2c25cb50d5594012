/* PyTorch's caching allocator as bench/pool.h wants it, called as PyTorch's own C++ code calls
 * it: no Python is on the way, and threads do not meet at the GIL.
 *
 * It keeps what is freed. With PYTORCH_ALLOC_CONF=expandable_segments:True it is over virtual memory,
 * too; the name shows that.
 */
#include <cstdlib>
#include <cstring>
#include <exception>

#include <c10/cuda/CUDACachingAllocator.h>

#include "bench/pool.h"

namespace caching = c10::cuda::CUDACachingAllocator;

const char *bench_pool_open(int device)
{
    static char why[300];

    if (device != 0)
        return "only device 0 can be measured";
    try {
        if (!caching::get()->initialized()) /* PyTorch does so when CUDA is first used */
            caching::init(1);
        caching::raw_delete(caching::raw_alloc_with_stream(1 << 20, nullptr));
        return nullptr;
    } catch (const std::exception &e) {
        std::strncpy(why, e.what(), sizeof why - 1);
        why[std::strcspn(why, "\n")] = '\0'; /* a stack of calls follows */
        return why;
    }
}

const char *bench_pool_name(void)
{
    const char *setting = std::getenv("PYTORCH_ALLOC_CONF");

    return setting != nullptr && std::strstr(setting, "expandable_segments:True") != nullptr
               ? "PyTorch, expandable segments"
               : "PyTorch";
}

void *bench_pool_alloc(size_t bytes, void *stream)
{
    try {
        return caching::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
    } catch (const std::exception &) {
        return nullptr;
    }
}

void bench_pool_free(void *ptr, size_t, void *)
{
    caching::raw_delete(ptr);
}

uint64_t bench_pool_committed_bytes(void)
{
    const auto stats = caching::getDeviceStats(0);

    return static_cast<uint64_t>(stats.reserved_bytes[0].current); /* 0: the sum of its pools */
}

void bench_pool_trim(void)
{
    try {
        caching::emptyCache();
    } catch (const std::exception &) { /* then what is held stays */
    }
}
