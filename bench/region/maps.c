/* Maps of regions that are there, beside bare atomics in the same kernel; and the time of single faults. */
#include "bench/region/setup.h"

#include <stdlib.h>

#include "base/size.h"

#define SECTION "region maps"
#define REGIONS 4096u
#define REGION_BYTES (4 * GVMI_KIB)

/* ---- maps */

static const struct {
    const char *text;
    const char *names[BENCH_MAPS_REGION + 1];
    region_kernel kernel;
    bool alone;
    uint32_t regions;
} cases[] = {
#define CASE(text, kernel, alone, regions) \
    { \
        text, {text ", two bare atomics", text ", two ordered atomics", text ", map and unmap"}, \
            KERNEL_region_maps_##kernel, alone, regions \
    }
    CASE("a lone warp", warps, true, 64),
    CASE("warps, 4096 regions", warps, false, REGIONS),
    CASE("threads, 4096 regions", threads, false, REGIONS),
    CASE("lanes, 4096 regions", lanes, false, REGIONS),
    CASE("warps, one region", warps, false, 1),
    CASE("threads, one region", threads, false, 1),
    CASE("lanes, one region", lanes, false, 1),
#undef CASE
};
#define CASES (int)(sizeof cases / sizeof cases[0])

static uint32_t count_rounds(const region_bench *r, int which, bool by_warp)
{
    if (r->b->info.software)
        return cases[which].alone ? 2000 : 20;
    return cases[which].alone ? 20000 : by_warp ? 1000 : 100;
}

/* One launch: ns for each round of a lone warp, or thousand millions of maps a second. */
static bool run_maps(region_bench *r, int which, uint32_t kind, CUdeviceptr words, bench_samples *samples)
{
    const bool by_warp = cases[which].kernel == KERNEL_region_maps_warps;
    const bench_region_params params = {
        .view = r->view,
        .words = words,
        .out = r->out,
        .total = cases[which].regions,
        .kind = kind,
        .rounds = count_rounds(r, which, by_warp),
    };
    const region_launch launch = region_shape(r, cases[which].kernel,
                                              by_warp ? BENCH_BY_WARP : BENCH_BY_THREAD,
                                              cases[which].alone ? 1 : UINT32_MAX);
    const double groups = (double)launch.blocks * launch.threads /
                          (by_warp ? (double)r->b->info.warp_size : 1);
    double us;

    if (!region_time_kernel(r, &launch, &params, &us))
        return false;
    bench_add(samples,
              cases[which].alone ? us * 1e3 / params.rounds : groups * params.rounds / us / 1e3);
    return true;
}

static bool measure_maps_of(region_bench *r, int which, CUdeviceptr words)
{
    const int repetitions = r->b->quick ? 3 : 9;
    const char *unit = cases[which].alone ? "ns" : "G/s";
    bench_samples samples[BENCH_MAPS_REGION + 1] = {0};
    double median[BENCH_MAPS_REGION + 1];

    for (int i = -1; i < repetitions; i++)
        for (uint32_t kind = 0; kind <= BENCH_MAPS_REGION; kind++) {
            if (i == 0)
                samples[kind].count = 0; /* that was for warming up */
            if (!run_maps(r, which, kind, words, &samples[kind]))
                return false;
        }
    for (int kind = 0; kind <= BENCH_MAPS_REGION; kind++)
        median[kind] = bench_record(r->b, SECTION, cases[which].names[kind], unit, REGION_BYTES, 0,
                                    &samples[kind]);
    fprintf(r->b->text, "  %-24s %-4s %12.3f %12.3f %12.3f %8.2f\n", cases[which].text, unit,
            median[0], median[1], median[2], median[2] / median[0]);
    return true;
}

bool region_measure_maps(region_bench *r)
{
    CUdeviceptr words = 0;
    bool good;

    fprintf(r->b->text,
            "\nmap and unmap of regions that are there (median)\n"
            "  %-24s %-4s %12s %12s %12s %8s\n",
            "who", "unit", "two atomics", "with orders", "regions", "ratio");
    good = region_open(r, REGIONS, REGION_BYTES, REGIONS * REGION_BYTES, GVM_REGION_CLOCK) &&
           region_clear_out(r) && region_alloc(r, &words, REGIONS * sizeof(uint64_t));
    if (good && gvm_region_prefetch(r->collection, 0, REGIONS, r->timer.stream) != GVM_OK)
        good = region_failed(r, "fetching ahead");
    if (good && gvmi_cu->cuMemsetD8Async(words, 0, REGIONS * sizeof(uint64_t), r->timer.stream) !=
                    CUDA_SUCCESS)
        good = region_failed(r, "emptying words");
    for (int which = 0; good && which < CASES; which++)
        good = measure_maps_of(r, which, words);
    good = good && region_check_out(r, "maps");
    if (words != 0)
        gvmi_cu->cuMemFree(words);
    return good;
}

/* ---- faults */

#undef SECTION
#define SECTION "region faults"
#define FAULT_BYTES (64 * GVMI_KIB)
#define FAULTS_MAX 2048u

enum { COPY, FREE_FRAME, CLEAN_VICTIM, DIRTY_VICTIM, FAULT_WAYS };

/* How they are named, by a warp and by a block. */
static const struct {
    const char *text;
    const char *p50[2], *p99[2];
} faults[FAULT_WAYS] = {
#define FAULT(text) \
    { \
        text, {"a warp, " text ", p50", "a block, " text ", p50"}, \
        { \
            "a warp, " text ", p99", "a block, " text ", p99" \
        } \
    }
    FAULT("a copy without regions"),
    FAULT("to a free frame"),
    FAULT("a clean one evicted"),
    FAULT("a dirty one evicted"),
#undef FAULT
};

static int compare_times(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Faults from number first on of the order, one after the other. Times in ns, sorted. */
static bool run_faults(region_bench *r, int way, uint32_t by, CUdeviceptr memory, uint64_t first,
                       uint64_t count, uint64_t *times)
{
    const bench_region_params params = {
        .view = r->view,
        .scratch = memory,
        .out = memory + FAULT_BYTES,
        .first = first,
        .count = count,
        .total = r->view.count,
        .by = by,
        .access = way == DIRTY_VICTIM ? GVM_REGION_READWRITE : GVM_REGION_READ,
    };
    const region_kernel kernel = way == COPY ? KERNEL_region_copy_homes : KERNEL_region_faults;
    const region_launch launch = region_shape(r, kernel, by, 1);
    double us;

    if (!region_time_kernel(r, &launch, &params, &us) ||
        !region_receive(r, times, params.out, count * sizeof *times))
        return false;
    qsort(times, count, sizeof *times, compare_times);
    if (times[0] > 0)
        return true;
    bench_note(r->b, "a fault found no region, or the clock stood still");
    return way == COPY || r->b->info.software;
}

static void record_faults(region_bench *r, int way, uint32_t by, const uint64_t *times, uint64_t count)
{
    const int name = by == BENCH_BY_BLOCK;
    const double p50 = (double)times[(count - 1) / 2] / 1e3,
                 p99 = (double)times[(count - 1) * 99 / 100] / 1e3;

    bench_record_value(r->b, SECTION, faults[way].p50[name], "us", FAULT_BYTES, 0, p50);
    bench_record_value(r->b, SECTION, faults[way].p99[name], "us", FAULT_BYTES, 0, p99);
    fprintf(r->b->text, "  %-8s %-26s %10.2f %10.2f %10llu\n", name ? "block" : "warp",
            faults[way].text, p50, p99, (unsigned long long)count);
}

/* The frames are filled by the faults to free ones; from then on each fault evicts. The dirty ones are first made so. */
static bool measure_faults_by(region_bench *r, uint32_t by, CUdeviceptr memory, uint64_t *times)
{
    const uint64_t regions = region_size(r, 4096, 256), frames = region_size(r, 512, 32);
    const uint64_t count[FAULT_WAYS] = {frames, frames, 2 * frames, 2 * frames};
    uint64_t first = 0;

    if (!region_open(r, regions, FAULT_BYTES, frames * FAULT_BYTES, GVM_REGION_FIFO))
        return false;
    for (int way = 0; way < FAULT_WAYS; way++) {
        if (way == DIRTY_VICTIM) {
            if (!run_faults(r, way, by, memory, first, frames, times))
                return false;
            first += frames;
        }
        if (!run_faults(r, way, by, memory, first, count[way], times))
            return false;
        first += way == COPY ? 0 : count[way];
        record_faults(r, way, by, times, count[way]);
    }
    if (region_info(r).fetched == first)
        return true;
    bench_note(r->b, "%llu faults fetched %llu regions", (unsigned long long)first,
               (unsigned long long)region_info(r).fetched);
    return false;
}

bool region_measure_faults(region_bench *r)
{
    uint64_t *times = calloc(FAULTS_MAX, sizeof *times);
    CUdeviceptr memory = 0;
    bool good = times != NULL && region_alloc(r, &memory, FAULT_BYTES + FAULTS_MAX * sizeof *times);

    fprintf(r->b->text,
            "\nsingle faults of 64 KiB, a block having %u threads\n  %-8s %-26s %10s %10s %10s\n",
            region_shape(r, KERNEL_region_faults, BENCH_BY_BLOCK, 1).threads, "by", "how",
            "p50, us", "p99, us", "faults");
    good = good && measure_faults_by(r, BENCH_BY_BLOCK, memory, times) &&
           measure_faults_by(r, BENCH_BY_WARP, memory, times);
    if (memory != 0)
        gvmi_cu->cuMemFree(memory);
    free(times);
    return good;
}
