/* What the copy engine does for kernels: dirty regions that are written home ahead of need, beside misses that write them; and regions that
 * are brought while another kernel computes, beside a kernel that brings them. */
#include "bench/region/setup.h"

#include "base/clock.h"
#include "base/size.h"

#define SECTION "region clean"
#define CLEAN_LOW 25u

/* How blocks go through twice the regions that fit: each is mapped, changed and unmapped, and then nothing is done for a while. */
typedef struct clean_case {
    uint64_t region_bytes, budget_bytes;
    uint64_t blocks; /* UINT64_MAX: all that the device runs */
    uint32_t work_us;
} clean_case;

typedef struct clean_result {
    double map_us, rate, cleaned; /* of a map, GB/s, share of the writes home */
} clean_result;

static bool run_updates(region_bench *r, const clean_case *c, uint64_t passes, clean_result *out)
{
    const bench_region_params params = {.view = r->view,
                                        .out = r->out,
                                        .count = passes * r->view.count,
                                        .total = r->view.count,
                                        .access = GVM_REGION_READWRITE,
                                        .rounds = c->work_us * 1000};
    const region_launch launch = region_shape(r, KERNEL_region_update, BENCH_BY_BLOCK, c->blocks);
    const gvm_collection_info before = region_info(r);
    gvm_collection_info after;
    uint64_t words[BENCH_OUT_WORDS];
    double us;

    if (!region_clear_out(r) || !region_time_kernel(r, &launch, &params, &us) ||
        !region_check_out(r, "updates") || !region_receive(r, words, r->out, sizeof words))
        return false;
    after = region_info(r);
    out->map_us = (double)words[BENCH_OUT_SUM] / (double)params.count / 1e3;
    out->rate = (double)(params.count * c->region_bytes) / us / 1e3;
    out->cleaned = (double)(after.cleaned - before.cleaned) /
                   (double)gvmi_max(1, after.cleaned - before.cleaned + after.written - before.written);
    return true;
}

static bool measure_updates(region_bench *r, const clean_case *c, bool cleaned, clean_result *out)
{
    const uint64_t count = 2 * (c->budget_bytes / c->region_bytes);
    bool good;

    r->clean_low = cleaned ? CLEAN_LOW : 0;
    good = region_open(r, count, c->region_bytes, c->budget_bytes, GVM_REGION_CLOCK) &&
           run_updates(r, c, 1, out) && run_updates(r, c, r->b->quick ? 1 : 3, out);
    r->clean_low = 0;
    return good;
}

static bool measure_cleaning(region_bench *r, const clean_case *c)
{
    bench *b = r->b;
    clean_result by_misses, ahead;
    char text[32], blocks[32] = "all";

    if (!measure_updates(r, c, false, &by_misses) || !measure_updates(r, c, true, &ahead))
        return false;
    if (c->blocks != UINT64_MAX)
        snprintf(blocks, sizeof blocks, "%llu", (unsigned long long)c->blocks);
    fprintf(b->text, "  %-8s %6s %6u us %9.2f %8.2f %9.2f %8.2f %8.3f\n",
            gvmi_size_text(c->region_bytes, text), blocks, c->work_us, by_misses.map_us,
            by_misses.rate, ahead.map_us, ahead.rate, ahead.cleaned);
    for (int i = 0; i < 2; i++) {
        const char *name = bench_text(b, "%s blocks, %u us, %s", blocks, c->work_us,
                                      i == 0 ? "written by misses" : "cleaned");

        bench_record_value(b, SECTION, bench_text(b, "%s, a map", name), "us", c->region_bytes, 0,
                           i == 0 ? by_misses.map_us : ahead.map_us);
        bench_record_value(b, SECTION, name, "GB/s", c->region_bytes, 0,
                           i == 0 ? by_misses.rate : ahead.rate);
    }
    bench_record_value(b, SECTION,
                       bench_text(b, "%s blocks, %u us, cleaned, share", blocks, c->work_us),
                       "ratio", c->region_bytes, 0, ahead.cleaned);
    return true;
}

/* ---- brought beside a kernel that computes */

enum { ALONE, BY_KERNEL, BY_ENGINE, WAYS };
static const char *const way_names[WAYS] = {"alone", "by a kernel", "by the copy engine"};

/* A kernel of many short blocks on the timer's stream, and a prefetch of all frames on another: when both are over. */
static bool run_beside(region_bench *r, int way, uint32_t rounds, CUstream stream,
                       double *compute_us, double *all_us)
{
    const bench_region_params params = {.view = r->view, .out = r->out, .rounds = rounds};
    region_launch launch = region_shape(r, KERNEL_region_compute, BENCH_BY_BLOCK, UINT64_MAX);
    const uint64_t frames = region_info(r).frame_count;
    const int64_t start_ns = gvmi_now_ns();
    gvm_status status = GVM_OK;

    launch.blocks *= r->b->info.software ? 1 : 64;
    if (!region_launch_kernel(r, &launch, &params))
        return false;
    if (way == BY_KERNEL)
        status = gvm_region_prefetch(r->collection, 0, frames, stream);
    else if (way == BY_ENGINE)
        status = gvm_region_prefetch_by_engine(r->collection, 0, frames, stream);
    if (status != GVM_OK)
        return region_failed(r, "a prefetch");
    if (gvmi_cu->cuStreamSynchronize(r->timer.stream) != CUDA_SUCCESS)
        return region_failed(r, "a kernel");
    *compute_us = (double)(gvmi_now_ns() - start_ns) / 1e3;
    if (gvmi_cu->cuStreamSynchronize(stream) != CUDA_SUCCESS)
        return region_failed(r, "a prefetch");
    *all_us = (double)(gvmi_now_ns() - start_ns) / 1e3;
    return true;
}

static bool measure_way(region_bench *r, int way, uint64_t region_bytes, uint64_t budget_bytes,
                        CUstream stream)
{
    const uint32_t rounds = r->b->info.software ? 100 : 4000;
    const int repetitions = r->b->quick ? 2 : 9;
    bench_samples compute = {.count = 0}, all = {.count = 0};
    double compute_us = 0, all_us = 0;
    char text[32];

    for (int i = 0; i < repetitions; i++) {
        if (!region_open(r, budget_bytes / region_bytes, region_bytes, budget_bytes, GVM_REGION_CLOCK) ||
            !run_beside(r, way, rounds, stream, &compute_us, &all_us))
            return false;
        if (way != ALONE && region_info(r).fetched != region_info(r).frame_count)
            return region_failed(r, "regions that were not brought");
        bench_add(&compute, compute_us);
        bench_add(&all, all_us);
    }
    compute_us = bench_record(r->b, SECTION, bench_text(r->b, "%s, the kernel", way_names[way]),
                              "us", region_bytes, 0, &compute);
    all_us = bench_record(r->b, SECTION, bench_text(r->b, "%s, both", way_names[way]), "us",
                          region_bytes, 0, &all);
    fprintf(r->b->text, "  %-8s %-20s %12.1f %12.1f\n", gvmi_size_text(region_bytes, text),
            way_names[way], compute_us, all_us);
    return true;
}

bool region_measure_clean(region_bench *r)
{
    const uint64_t budget = region_size(r, 256 * GVMI_MIB, 2 * GVMI_MIB);
    const uint64_t sizes[] = {region_size(r, 64 * GVMI_KIB, 32 * GVMI_KIB),
                              region_size(r, GVMI_MIB, 128 * GVMI_KIB)};
    const uint64_t blocks[] = {1, 8, UINT64_MAX};
    CUstream stream;
    bool good = true;

    fprintf(r->b->text,
            "\nregions changed one after the other, twice as many as frames: us for a map, and GB/s\n"
            "  %-8s %6s %9s %18s %18s %8s\n",
            "region", "blocks", "work", "written by misses", "cleaned", "share");
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 3; k++)
            for (uint32_t work_us = 0; good && work_us <= 100; work_us += 100)
                good = measure_cleaning(r, &(clean_case){sizes[i], budget, blocks[k], work_us});
    if (!good)
        return false;
    fprintf(r->b->text,
            "\nall frames filled while a kernel computes: us until that has ended, and both (median)\n"
            "  %-8s %-20s %12s %12s\n",
            "region", "brought", "the kernel", "both");
    if (gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return region_failed(r, "a stream");
    for (size_t i = 0; i < 2; i++)
        for (int way = 0; good && way < WAYS; way++)
            good = measure_way(r, way, sizes[i], budget, stream);
    gvmi_cu->cuStreamDestroy(stream);
    return good;
}
