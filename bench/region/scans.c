/* Scans of twice the budget: how often a map finds its region in a frame, for each policy, beside the best choice that there is
 * (Belady), and how fast the data is read. */
#include "bench/region/setup.h"
#include "bench/region/trace.h"

#include "base/size.h"

#define SECTION "region scans"

static const struct {
    const char *name;
    gvm_region_policy policy;
} policies[] = {
    {"CLOCK", GVM_REGION_CLOCK},
    {"FIFO", GVM_REGION_FIFO},
    {"NFU", GVM_REGION_NFU},
    {"STATIC", GVM_REGION_STATIC},
};

typedef struct scan_state {
    region_bench *r;
    const char *name;
    region_sequence trace;
    CUdeviceptr list;
    uint32_t warm_up; /* maps before what is measured */
    double best, lru; /* hits of the rest, of 1 */
    bench_samples hits, rate;
} scan_state;

static bool run_part(scan_state *s, uint32_t first, uint32_t end, bool measured)
{
    region_bench *r = s->r;
    const gvm_collection_info info = region_info(r);
    const bench_region_params params = {.view = r->view,
                                        .list = s->list,
                                        .out = r->out,
                                        .first = first,
                                        .count = end - first,
                                        .total = r->view.count,
                                        .by = BENCH_BY_BLOCK,
                                        .access = GVM_REGION_READ};
    const region_launch launch = region_shape(r, KERNEL_region_trace, BENCH_BY_BLOCK,
                                              gvmi_max(1, info.frame_count / 8));
    uint64_t out[BENCH_OUT_WORDS];
    double us, missed;

    if (!region_clear_out(r) || !region_time_kernel(r, &launch, &params, &us) ||
        !region_check_out(r, s->name) || !region_receive(r, out, r->out, sizeof out))
        return false;
    missed = (double)(region_info(r).fetched - info.fetched + out[BENCH_OUT_REMOTE]);
    if (measured) {
        bench_add(&s->hits, 1 - missed / (double)params.count);
        bench_add(&s->rate, (double)(params.count * r->view.region_bytes) / us / 1e3);
    }
    return true;
}

static bool measure_policy(scan_state *s, size_t which, uint64_t region_bytes, uint64_t budget)
{
    bench *b = s->r->b;
    const int repetitions = b->quick ? 2 : 5;
    double hits, rate;
    char text[32];

    s->hits.count = s->rate.count = 0;
    if (!region_open(s->r, s->trace.regions, region_bytes, budget, policies[which].policy))
        return false;
    for (int i = 0; i < repetitions; i++)
        if (!run_part(s, 0, s->warm_up, false) || !run_part(s, s->warm_up, s->trace.count, true))
            return false;
    hits = bench_record(b, SECTION, bench_text(b, "%s, %s, hits", s->name, policies[which].name),
                        "ratio", region_bytes, 0, &s->hits);
    rate = bench_record(b, SECTION, bench_text(b, "%s, %s", s->name, policies[which].name), "GB/s",
                        region_bytes, 0, &s->rate);
    fprintf(b->text, "  %-16s %-8s %-8s %8.3f %8.3f %8.3f %10.2f\n", s->name, policies[which].name,
            gvmi_size_text(budget, text), hits, s->best, s->lru, rate);
    return true;
}

static bool measure_scan(region_bench *r, bool cyclic, uint64_t region_bytes, uint64_t budget)
{
    const uint32_t frames = (uint32_t)(budget / region_bytes), regions = 2 * frames;
    scan_state s = {.r = r, .name = cyclic ? "cyclic scan" : "scan, hot half"};
    bool good = region_sequence_alloc(&s.trace, 6 * regions, regions);

    s.warm_up = 2 * regions;
    if (!good) {
        bench_note(r->b, "out of memory");
        return false;
    }
    if (cyclic)
        region_sequence_cyclic(&s.trace);
    else
        region_sequence_scan(&s.trace, frames / 2);
    s.best = region_belady_hits(&s.trace, s.warm_up, frames) / (s.trace.count - s.warm_up);
    s.lru = region_lru_hits(&s.trace, s.warm_up, frames) / (s.trace.count - s.warm_up);
    bench_record_value(r->b, SECTION, bench_text(r->b, "%s, the best choice, hits", s.name),
                       "ratio", region_bytes, 0, s.best);
    bench_record_value(r->b, SECTION, bench_text(r->b, "%s, LRU, hits", s.name), "ratio",
                       region_bytes, 0, s.lru);
    good = region_alloc(r, &s.list, s.trace.count * sizeof(uint32_t)) &&
           region_send(r, s.list, s.trace.numbers, s.trace.count * sizeof(uint32_t));
    for (size_t i = 0; good && i < sizeof policies / sizeof policies[0]; i++)
        good = measure_policy(&s, i, region_bytes, budget);
    if (s.list != 0)
        gvmi_cu->cuMemFree(s.list);
    region_sequence_free(&s.trace);
    return good;
}

bool region_measure_scans(region_bench *r)
{
    const uint64_t region_bytes = region_size(r, 64 * GVMI_KIB, 16 * GVMI_KIB);
    const uint64_t budget = r->b->budget_bytes != 0 ? r->b->budget_bytes
                                                    : region_size(r, 256 * GVMI_MIB, 2 * GVMI_MIB);

    fprintf(r->b->text,
            "\nscans of twice the budget: hits of 1 (median), and reading\n"
            "  %-16s %-8s %-8s %8s %8s %8s %10s\n",
            "maps", "policy", "budget", "hits", "best", "LRU", "GB/s");
    return measure_scan(r, false, region_bytes, budget) && measure_scan(r, true, region_bytes, budget);
}
