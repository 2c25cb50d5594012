/* Patterns of maps: how often a map finds its region in a frame, for each policy, beside the best choice that there is (Belady), exact
 * LRU and S3-FIFO, which the host replays; and, on a real GPU, how fast the data is read. */
#include "bench/region/setup.h"
#include "bench/region/trace.h"

#include "base/size.h"

#define SECTION "region policies"

static const struct {
    const char *name;
    gvm_region_policy policy;
} policies[] = {
    {"LIRS", GVM_REGION_LIRS}, {"CLOCK", GVM_REGION_CLOCK}, {"LRU of 8", GVM_REGION_LRU},
    {"FIFO", GVM_REGION_FIFO}, {"NFU", GVM_REGION_NFU},     {"STATIC", GVM_REGION_STATIC},
};
#define POLICIES (sizeof policies / sizeof policies[0])

static const struct {
    const char *name;
    double (*hits)(const region_sequence *s, uint32_t first, uint32_t frames);
} replays[] = {
    {"best choice", region_belady_hits},
    {"exact LRU", region_lru_hits},
    {"S3-FIFO", region_s3fifo_hits},
};
#define REPLAYS (sizeof replays / sizeof replays[0])

typedef struct policy_state {
    region_bench *r;
    const region_pattern *pattern;
    region_sequence trace;
    CUdeviceptr list;
    uint32_t frames, warm_up; /* warm_up: maps before what is measured */
    uint64_t region_bytes;
    double replayed[REPLAYS][REGION_PATTERNS], hits[POLICIES][REGION_PATTERNS],
        rates[POLICIES][REGION_PATTERNS];
    bench_samples hit_samples, rate_samples;
} policy_state;

static bool run_part(policy_state *s, uint32_t first, uint32_t end, bool measured)
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
    const region_launch launch = region_shape(r, KERNEL_region_trace, BENCH_BY_BLOCK, s->frames / 16);
    uint64_t out[BENCH_OUT_WORDS];
    double us, missed;

    if (!region_clear_out(r) || !region_time_kernel(r, &launch, &params, &us) ||
        !region_check_out(r, s->pattern->name) || !region_receive(r, out, r->out, sizeof out))
        return false;
    missed = (double)(region_info(r).fetched - info.fetched + out[BENCH_OUT_REMOTE]);
    if (measured) {
        bench_add(&s->hit_samples, 1 - missed / (double)params.count);
        if (!r->b->info.software)
            bench_add(&s->rate_samples, (double)(params.count * r->view.region_bytes) / us / 1e3);
    }
    return true;
}

static bool measure_policy(policy_state *s, size_t which, int pattern)
{
    bench *b = s->r->b;
    const char *name = s->pattern->name, *policy = policies[which].name;

    s->hit_samples.count = s->rate_samples.count = 0;
    for (int i = 0; i < (b->quick ? 1 : 3); i++)
        if (!region_open(s->r, s->trace.regions, s->region_bytes, s->frames * s->region_bytes,
                         policies[which].policy) ||
            !run_part(s, 0, s->warm_up, false) || !run_part(s, s->warm_up, s->trace.count, true))
            return false;
    s->hits[which][pattern] = bench_record(b, SECTION, bench_text(b, "%s, %s, hits", name, policy),
                                           "ratio", s->region_bytes, 0, &s->hit_samples);
    if (!b->info.software)
        s->rates[which][pattern] = bench_record(b, SECTION, bench_text(b, "%s, %s", name, policy),
                                                "GB/s", s->region_bytes, 0, &s->rate_samples);
    return true;
}

static bool replay_pattern(policy_state *s, int pattern)
{
    for (size_t i = 0; i < REPLAYS; i++) {
        const double hits = replays[i].hits(&s->trace, s->warm_up, s->frames);

        if (hits < 0)
            return false;
        s->replayed[i][pattern] = hits / (s->trace.count - s->warm_up);
        bench_record_value(s->r->b, SECTION,
                           bench_text(s->r->b, "%s, %s, hits", s->pattern->name, replays[i].name),
                           "ratio", s->region_bytes, 0, s->replayed[i][pattern]);
    }
    return true;
}

static bool measure_pattern(policy_state *s, int pattern)
{
    region_bench *r = s->r;
    bool good;

    s->pattern = &region_patterns[pattern];
    if (!s->pattern->make(&s->trace, s->frames)) {
        bench_note(r->b, "out of memory");
        return false;
    }
    if (r->b->quick)
        s->trace.count /= 4;
    s->warm_up = s->trace.count / 3;
    good = replay_pattern(s, pattern) && region_alloc(r, &s->list, s->trace.count * sizeof(uint32_t)) &&
           region_send(r, s->list, s->trace.numbers, s->trace.count * sizeof(uint32_t));
    for (size_t i = 0; good && i < POLICIES; i++)
        good = measure_policy(s, i, pattern);
    if (s->list != 0)
        gvmi_cu->cuMemFree(s->list);
    s->list = 0;
    return good;
}

static void print_row(FILE *out, const char *name, const double figures[REGION_PATTERNS], int digits)
{
    fprintf(out, "  %-12s", name);
    for (int i = 0; i < REGION_PATTERNS; i++)
        fprintf(out, " %9.*f", digits, figures[i]);
    fputc('\n', out);
}

static void print_head(FILE *out, const char *what)
{
    fprintf(out, "  %-12s", what);
    for (int i = 0; i < REGION_PATTERNS; i++)
        fprintf(out, " %9s", region_patterns[i].column);
    fputc('\n', out);
}

static void print_tables(const policy_state *s)
{
    FILE *out = s->r->b->text;
    char budget[32], size[32];

    fprintf(out, "\npatterns of maps, with %s of frames for regions of %s\n",
            gvmi_size_text(s->frames * s->region_bytes, budget),
            gvmi_size_text(s->region_bytes, size));
    print_head(out, "hits of 1");
    for (size_t i = 0; i < REPLAYS; i++)
        print_row(out, replays[i].name, s->replayed[i], 3);
    for (size_t i = 0; i < POLICIES; i++)
        print_row(out, policies[i].name, s->hits[i], 3);
    if (!s->r->b->info.software)
        print_head(out, "read, GB/s");
    for (size_t i = 0; i < POLICIES && !s->r->b->info.software; i++)
        print_row(out, policies[i].name, s->rates[i], 2);
}

bool region_measure_policies(region_bench *r)
{
    static policy_state s;
    const uint64_t budget = r->b->budget_bytes != 0 ? r->b->budget_bytes
                                                    : region_size(r, 256 * GVMI_MIB, 2 * GVMI_MIB);
    bool good = true;

    s = (policy_state){.r = r, .region_bytes = region_size(r, 64 * GVMI_KIB, 4 * GVMI_KIB)};
    s.frames = (uint32_t)(budget / s.region_bytes);
    if (s.frames < 512) {
        bench_note(r->b, "policies: a budget of fewer than 512 frames is too small for the patterns");
        return true;
    }
    for (int i = 0; good && i < REGION_PATTERNS; i++) {
        good = measure_pattern(&s, i);
        region_sequence_free(&s.trace);
    }
    if (good)
        print_tables(&s);
    return good;
}
