/* Cold fetches: how many bytes a second kernels bring to frames by mapping, beside the same regions read where they are at home.
 *
 * Regions are met in an order that jumps over the whole extent of the homes, as what is slow with small pieces is the translation of
 * their addresses. Each launch fetches as much as there are frames for, of regions that were not met for a whole round; after
 * the first launches each fetch evicts a clean one. Reads without regions take the same regions, by as many threads as the device runs.
 */
#include "bench/region/setup.h"

#include "base/size.h"

#define SECTION "region fetch"
#define EXTENTS_MAX 4
#define FRAMES_PER_GROUP 4 /* so that no map finds all frames mapped */

enum { READ_WARPS, READ_BLOCKS, FETCH_WARPS, FETCH_BLOCKS, WAYS };

static const struct {
    const char *name;
    region_kernel kernel;
    uint32_t by;
} ways[WAYS] = {
    {"homes read by warps", KERNEL_region_read_homes, BENCH_BY_WARP},
    {"homes read by blocks", KERNEL_region_read_homes, BENCH_BY_BLOCK},
    {"maps by warps", KERNEL_region_fetch, BENCH_BY_WARP},
    {"maps by blocks", KERNEL_region_fetch, BENCH_BY_BLOCK},
};

typedef struct fetch_state {
    region_bench *r;
    uint64_t extent_bytes, region_bytes, count; /* of a launch */
    uint64_t first, fetched;
    bench_samples rate[WAYS];
} fetch_state;

static bool run_fetch(fetch_state *f, int way)
{
    region_bench *r = f->r;
    const bool is_read = way < FETCH_WARPS;
    const gvm_collection_info info = region_info(r);
    const region_launch launch = region_shape(
        r, ways[way].kernel, ways[way].by,
        is_read ? UINT32_MAX : gvmi_max(1, info.frame_count / FRAMES_PER_GROUP));
    const bench_region_params params = {
        .view = r->view,
        .out = r->out,
        .first = f->first,
        .count = f->count,
        .total = r->view.count,
        .by = ways[way].by,
        .access = GVM_REGION_READ,
    };
    double us;

    if (!region_time_kernel(r, &launch, &params, &us))
        return false;
    if (!is_read) {
        f->first = (f->first + f->count) % r->view.count;
        f->fetched += f->count;
    }
    bench_add(&f->rate[way], (double)(f->count * f->region_bytes) / us / 1e3);
    return true;
}

/* Was each map a fetch? */
static bool check_fetches(fetch_state *f)
{
    const gvm_collection_info info = region_info(f->r);

    if (info.fetched != f->fetched || info.remote != 0)
        bench_note(f->r->b, "of %llu maps %llu fetched, and %llu found no frame",
                   (unsigned long long)f->fetched, (unsigned long long)info.fetched,
                   (unsigned long long)info.remote);
    return region_check_out(f->r, "fetches");
}

static void record_fetches(fetch_state *f)
{
    bench *b = f->r->b;
    double median[WAYS], read, fetch;
    char extent[32], size[32];

    for (int way = 0; way < WAYS; way++)
        median[way] = bench_record(
            b, SECTION,
            bench_text(b, "%s, extent %s", ways[way].name, gvmi_size_text(f->extent_bytes, extent)),
            "GB/s", f->region_bytes, 0, &f->rate[way]);
    read = median[READ_WARPS] > median[READ_BLOCKS] ? median[READ_WARPS] : median[READ_BLOCKS];
    fetch = median[FETCH_WARPS] > median[FETCH_BLOCKS] ? median[FETCH_WARPS] : median[FETCH_BLOCKS];
    bench_record_value(
        b, SECTION,
        bench_text(b, "maps over reads, extent %s", gvmi_size_text(f->extent_bytes, extent)),
        "ratio", f->region_bytes, 0, fetch / read);
    fprintf(b->text, "  %-8s %-8s %10.2f %10.2f %10.2f %10.2f %8.3f\n",
            gvmi_size_text(f->extent_bytes, extent), gvmi_size_text(f->region_bytes, size),
            median[READ_WARPS], median[READ_BLOCKS], median[FETCH_WARPS], median[FETCH_BLOCKS],
            fetch / read);
}

static bool measure_fetch_of(region_bench *r, uint64_t extent_bytes, uint64_t region_bytes,
                             uint64_t budget_bytes)
{
    const int repetitions = r->b->quick ? 3 : 9;
    fetch_state f = {.r = r, .extent_bytes = extent_bytes, .region_bytes = region_bytes};

    if (!region_open(r, extent_bytes / region_bytes, region_bytes, budget_bytes, GVM_REGION_FIFO) ||
        !region_clear_out(r))
        return false;
    f.count = region_info(r).frame_count;
    if (r->b->quick)
        f.count = gvmi_min(f.count, 512);
    for (int i = -1; i < repetitions; i++)
        for (int way = 0; way < WAYS; way++) {
            if (i == 0)
                f.rate[way].count = 0; /* that was for warming up */
            if (!run_fetch(&f, way))
                return false;
        }
    record_fetches(&f);
    return check_fetches(&f);
}

/* The extents of a run: powers of 2. */
static int list_extents(const region_bench *r, uint64_t *out)
{
    const bench *b = r->b;
    int count = 0;

    for (unsigned i = 0; i < b->extent_count && count < EXTENTS_MAX; i++)
        out[count++] = gvmi_pow2_up(b->extent_bytes[i]);
    if (count == 0) {
        out[count++] = region_size(r, GVMI_GIB, 8 * GVMI_MIB);
        out[count++] = region_size(r, 8 * GVMI_GIB, 16 * GVMI_MIB);
    }
    return count;
}

bool region_measure_fetch(region_bench *r)
{
    static const uint64_t sizes[] = {512, 1024, 2048, 4096, 16384, 65536, 262144, GVMI_MIB};
    const uint64_t budget = r->b->budget_bytes != 0 ? r->b->budget_bytes
                                                    : region_size(r, 256 * GVMI_MIB, 2 * GVMI_MIB);
    uint64_t extents[EXTENTS_MAX];
    const int extent_count = list_extents(r, extents);
    char text[32];

    bench_note(r->b, "fetches have a budget of %s", gvmi_size_text(budget, text));
    fprintf(r->b->text,
            "\ncold fetches, GB/s (median)\n  %-8s %-8s %10s %10s %10s %10s %8s\n"
            "  %-8s %-8s %10s %10s %10s %10s %8s\n",
            "extent", "region", "homes read", "homes read", "mapped", "mapped", "ratio", "", "",
            "by warps", "by blocks", "by warps", "by blocks", "of bests");
    for (int e = 0; e < extent_count; e++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i += r->b->quick ? 7 : 1) {
            if (extents[e] < 4 * budget) {
                bench_note(r->b, "an extent of %s is left out: it is less than four budgets",
                           gvmi_size_text(extents[e], text));
                break;
            }
            if (!measure_fetch_of(r, extents[e], sizes[i], budget))
                return false;
        }
    return true;
}
