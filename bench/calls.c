/* What one driver call costs, by size. */
#include <inttypes.h>

#include "base/size.h"
#include "bench/bench.h"

enum {
    RESERVE,
    CREATE,
    MAP,
    SET_ACCESS,
    UNMAP,
    RELEASE,
    ALLOC,
    FREE,
    ALLOC_ASYNC,
    FREE_ASYNC, /* without waiting, so that the pool keeps the memory, as it is meant to */
    COLUMNS
};

static const char *const names[COLUMNS] = {
    "reserve", "create",     "map",       "set access",      "unmap",
    "release", "cuMemAlloc", "cuMemFree", "cuMemAllocAsync", "cuMemFreeAsync"};

/* Makes a call, takes its time, and goes on only if it succeeded. */
#define TIMED(column, call, ...) \
    do { \
        double start_us = tool_now_us(); \
        CUresult result = call(__VA_ARGS__); \
        if (result != CUDA_SUCCESS) { \
            bench_failed_driver(b, result, #call); \
            return false; \
        } \
        bench_add(&samples[column], tool_now_us() - start_us); \
    } while (0)

/* One handle, put behind an address and taken away. What a failure leaves behind ends with the
 * process. */
static bool cycle_handle(bench *b, uint64_t bytes, bench_samples samples[COLUMNS])
{
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, b->ordinal};
    const CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = b->info.share_fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                 : CU_MEM_HANDLE_TYPE_NONE,
        .location = here,
    };
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    TIMED(RESERVE, gvmi_cu->cuMemAddressReserve, &address, bytes, 0, 0, 0);
    TIMED(CREATE, gvmi_cu->cuMemCreate, &handle, bytes, &prop, 0);
    TIMED(MAP, gvmi_cu->cuMemMap, address, bytes, 0, handle, 0);
    TIMED(SET_ACCESS, gvmi_cu->cuMemSetAccess, address, bytes, &access, 1);
    TIMED(UNMAP, gvmi_cu->cuMemUnmap, address, bytes);
    TIMED(RELEASE, gvmi_cu->cuMemRelease, handle);
    gvmi_cu->cuMemAddressFree(address, bytes);
    return true;
}

static bool cycle_alloc(bench *b, uint64_t bytes, bench_samples samples[COLUMNS])
{
    CUdeviceptr address;

    TIMED(ALLOC, gvmi_cu->cuMemAlloc, &address, bytes);
    TIMED(FREE, gvmi_cu->cuMemFree, address);
    return true;
}

static bool cycle_async(bench *b, CUstream stream, uint64_t bytes, bench_samples samples[COLUMNS])
{
    CUdeviceptr address;

    TIMED(ALLOC_ASYNC, gvmi_cu->cuMemAllocAsync, &address, bytes, stream);
    TIMED(FREE_ASYNC, gvmi_cu->cuMemFreeAsync, address, stream);
    return true;
}

static bool measure_calls_of_size(bench *b, CUstream stream, uint64_t bytes)
{
    enum { WARM_UP = 3 };
    int repetitions = b->quick ? 20 : 40;
    bench_samples samples[COLUMNS] = {0};
    char text[32];

    for (int i = 0; i < WARM_UP + repetitions; i++) {
        for (int c = 0; i == WARM_UP && c < COLUMNS; c++)
            samples[c].count = 0;
        if (!cycle_handle(b, bytes, samples) || !cycle_alloc(b, bytes, samples))
            return false;
    }
    for (int i = 0; i < WARM_UP + repetitions; i++) {
        if (i == WARM_UP)
            samples[ALLOC_ASYNC].count = samples[FREE_ASYNC].count = 0;
        if (!cycle_async(b, stream, bytes, samples))
            return false;
    }
    gvmi_cu->cuStreamSynchronize(stream);
    fprintf(b->text, "  %-8s", gvmi_size_text(bytes, text));
    for (int c = 0; c < COLUMNS; c++)
        fprintf(b->text, " %10.1f", bench_record(b, "calls", names[c], "us", bytes, 0, &samples[c]));
    fputc('\n', b->text);
    return true;
}

void bench_calls(bench *b)
{
    static const uint64_t sizes[] = {2 * GVMI_MIB, 32 * GVMI_MIB, 256 * GVMI_MIB, GVMI_GIB};
    uint64_t free_bytes = bench_free_bytes(b);
    bench_timer timer;

    fputs("\ndriver calls, us (median)\n"
          "  size        reserve     create        map set access      unmap    release   memAlloc"
          "    memFree allocAsync  freeAsync\n",
          b->text);
    if (!bench_timer_create(b, &timer))
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] <= free_bytes / 2 && !measure_calls_of_size(b, timer.stream, sizes[i]))
            break;
    bench_timer_destroy(&timer);
}
