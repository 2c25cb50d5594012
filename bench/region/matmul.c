/* Matrix multiply, C = A * B, as on the slides: A is one region, B and C are collections of windows of rows and columns. In core with
 * regions and without, and with half of the memory that the matrices need.
 *
 * A block computes a tile of C. Blocks that run at the same time share columns of B, so that each window of B is fetched once; what comes
 * next is brought ahead, and a tile of C is written home while others compute.
 */
#include "bench/region/apps.h"
#include "bench/region/setup.h"

#include <stdlib.h>

#include "base/size.h"

#define SECTION "region matmul"
#define AHEAD 8u

enum { PLAIN, IN_CORE, HALF, WAYS };

static const char *const way_names[WAYS] = {"no regions", "regions, all in frames",
                                            "regions, half the memory"};

typedef struct matmul_state {
    region_bench *r;
    bench_matmul_params p;
    gvm_collection *a, *b, *c;
    uint64_t bytes; /* of a matrix */
    CUdeviceptr memory;
    uint64_t digest;
    bench_samples us[WAYS];
    double moved_bytes; /* of the last run */
} matmul_state;

static bool add_windows(matmul_state *s, uint32_t height, gvm_collection **collection,
                        gvm_region_view *view)
{
    gvm_collection_options options = gvm_collection_options_init();

    options.shape.width_bytes = BENCH_MATMUL_TILE * sizeof(float);
    options.shape.height = height;
    options.shape.row_pitch_bytes = s->p.n * sizeof(float);
    return region_add(s->r, (uint64_t)(s->p.n / BENCH_MATMUL_TILE) * (s->p.n / height), 0, &options,
                      collection, view);
}

/* A has room for all of it; B and C share what is left. */
static bool open_matrices(matmul_state *s, uint64_t budget_bytes)
{
    gvm_collection_options options = gvm_collection_options_init();
    bench_matmul_params fill = s->p;

    options.budget_bytes = s->bytes;
    if (!region_open_space(s->r, budget_bytes) ||
        !region_add(s->r, 1, s->bytes, &options, &s->a, &s->p.a) ||
        !add_windows(s, s->p.chunk, &s->b, &s->p.b) ||
        !add_windows(s, BENCH_MATMUL_TILE, &s->c, &s->p.c))
        return false;
    fill.plain_a = region_homes(&s->p.a);
    fill.plain_b = region_homes(&s->p.b);
    return region_launch_kernel(
        s->r,
        &(region_launch){KERNEL_matmul_fill, (unsigned)s->r->b->info.sm_count * 8, BENCH_MATMUL_THREADS},
        &fill);
}

static double moved_so_far(const matmul_state *s)
{
    gvm_collection *const all[] = {s->a, s->b, s->c};
    double bytes = 0;

    for (int i = 0; i < 3; i++) {
        gvm_collection_info info = {.struct_size = sizeof info};

        if (gvm_collection_get_info(all[i], &info) == GVM_OK)
            bytes += (double)((info.fetched + info.written) * info.region_bytes);
    }
    return bytes;
}

static bool run_once(matmul_state *s, int way, double *us)
{
    const unsigned across = s->p.n / BENCH_MATMUL_TILE;
    const region_launch launch = {way == PLAIN ? KERNEL_matmul_plain : KERNEL_matmul_regions,
                                  across * across, BENCH_MATMUL_THREADS};

    return region_time_kernel(s->r, &launch, &s->p, us);
}

/* Of C in plain memory, or at home after a sync that has written it there. */
static bool check_product(matmul_state *s, int way)
{
    const uint64_t zero[BENCH_APP_WORDS] = {0};
    bench_matmul_params p = s->p;
    uint64_t out[BENCH_APP_WORDS];
    void *address;

    if (way != PLAIN) {
        if (!region_receive(s->r, out, p.out, sizeof out) ||
            gvm_space_sync(s->r->space, s->r->timer.stream) != GVM_OK ||
            gvm_region_map_cpu(s->c, 0, GVM_REGION_READ, &address) != GVM_OK ||
            gvm_region_unmap_cpu(s->c, 0) != GVM_OK || out[BENCH_APP_WRONG] != 0)
            return region_failed(s->r, "bringing the product home");
        p.plain_c = region_homes(&p.c);
    }
    if (!region_send(s->r, p.out, zero, sizeof zero) ||
        !region_launch_kernel(s->r,
                              &(region_launch){KERNEL_matmul_digest, (unsigned)s->r->b->info.sm_count * 8,
                                               BENCH_MATMUL_THREADS},
                              &p) ||
        !region_receive(s->r, out, p.out, sizeof out))
        return false;
    if (s->digest == 0)
        s->digest = out[BENCH_APP_DIGEST];
    if (out[BENCH_APP_DIGEST] != s->digest) {
        bench_note(s->r->b, "%s: the product is wrong", way_names[way]);
        s->r->b->code = TOOL_FAILED;
    }
    return true;
}

/* ---- the CPU's product, of small matrices */

static bool compute_digest(matmul_state *s)
{
    const uint32_t n = s->p.n;
    float *matrices = malloc(2 * s->bytes);
    bool good = matrices != NULL && region_receive(s->r, matrices, s->p.plain_a, s->bytes) &&
                region_receive(s->r, matrices + (uint64_t)n * n, s->p.plain_b, s->bytes);

    s->digest = 0;
    for (uint64_t i = 0; good && i < (uint64_t)n * n; i++) {
        const float *row = matrices + i / n * n, *column = matrices + (uint64_t)n * n + i % n;
        double sum = 0;

        for (uint32_t k = 0; k < n; k++)
            sum += (double)row[k] * column[(uint64_t)k * n];
        s->digest += bench_app_mix(i, (uint32_t)(int32_t)sum);
    }
    free(matrices);
    return good;
}

/* ---- measuring */

static bool start_matmul(matmul_state *s, region_bench *r, uint32_t n, uint32_t chunk)
{
    const region_launch fill = {KERNEL_matmul_fill, (unsigned)r->b->info.sm_count * 8,
                                BENCH_MATMUL_THREADS};
    const uint64_t zero[BENCH_APP_WORDS] = {0};

    *s = (matmul_state){.r = r, .bytes = (uint64_t)n * n * sizeof(float)};
    s->p.n = n;
    s->p.chunk = chunk;
    s->p.ahead = AHEAD;
    if (!region_alloc(r, &s->memory, 3 * s->bytes + 256))
        return false;
    s->p.plain_a = s->memory;
    s->p.plain_b = s->memory + s->bytes;
    s->p.plain_c = s->memory + 2 * s->bytes;
    s->p.out = s->memory + 3 * s->bytes;
    return region_send(r, s->p.out, zero, sizeof zero) && region_launch_kernel(r, &fill, &s->p);
}

/* Beside the kernel without regions. In core the first run fetches, and is not counted; with half of the memory all fetch. */
static bool measure_way(matmul_state *s, int way, int repetitions)
{
    const uint64_t all = 3 * s->bytes + 256 * GVMI_MIB;
    double us, before;

    if (!open_matrices(s, way == HALF ? 3 * s->bytes / 2 : all))
        return false;
    for (int i = -1; i < repetitions; i++) {
        if (!run_once(s, PLAIN, &us))
            return false;
        if (i >= 0 && way == IN_CORE)
            bench_add(&s->us[PLAIN], us);
        before = moved_so_far(s);
        if (!run_once(s, way, &us))
            return false;
        s->moved_bytes = moved_so_far(s) - before;
        if (i >= 0)
            bench_add(&s->us[way], us);
    }
    return check_product(s, PLAIN) && check_product(s, way);
}

static void record_way(matmul_state *s, int way)
{
    bench *b = s->r->b;
    const double us = bench_record(b, SECTION, way_names[way], "us", s->bytes, 0, &s->us[way]);
    const double ratio = bench_median(&s->us[PLAIN]) / us,
                 flops = 2.0 * s->p.n * s->p.n * s->p.n / us / 1e6;

    bench_record_value(b, SECTION, way_names[way], "TFLOP/s", s->bytes, 0, flops);
    if (way != PLAIN) {
        bench_record_value(b, SECTION, way_names[way], "ratio to no regions", s->bytes, 0, ratio);
        bench_record_value(b, SECTION, way_names[way], "bytes moved", s->bytes, 0, s->moved_bytes);
    }
    if (way == HALF)
        bench_record_value(b, SECTION, "overhead of swapping", "%", s->bytes, 0,
                           100 * (us / bench_median(&s->us[IN_CORE]) - 1));
    fprintf(b->text, "  %-26s %11.3f %9.2f %8.3f %11.1f\n", way_names[way], us / 1e3, flops, ratio,
            way == PLAIN ? 0 : s->moved_bytes / (double)GVMI_MIB);
}

static bool multiply_matrices(region_bench *r, uint32_t n, uint32_t chunk, int repetitions, bool check)
{
    matmul_state s;
    bool good = start_matmul(&s, r, n, chunk) && (!check || compute_digest(&s));

    for (int way = IN_CORE; good && way < WAYS; way++) {
        good = measure_way(&s, way, repetitions);
        if (good && !check && way == IN_CORE)
            record_way(&s, PLAIN);
        if (good && !check)
            record_way(&s, way);
    }
    bench_wait(r->b);
    region_close(r);
    if (s.memory != 0)
        gvmi_cu->cuMemFree(s.memory);
    return good;
}

bool region_measure_matmul(region_bench *r)
{
    const uint32_t n = (uint32_t)region_size(r, r->b->quick ? 4096 : 16384, 256);
    const int code = r->b->code, repetitions = (int)region_size(r, r->b->quick ? 3 : 5, 1);

    if (r->threads_max[KERNEL_matmul_regions] < BENCH_MATMUL_THREADS) {
        bench_note(r->b, "matrices are not multiplied: the device has blocks of fewer than %u threads",
                   BENCH_MATMUL_THREADS);
        return true;
    }
    if (!multiply_matrices(r, (uint32_t)region_size(r, 1024, 128), 32, 1, true) || r->b->code != code)
        return region_failed(r, "comparing a product with the CPU's");
    fprintf(r->b->text, "\nmatrix multiply, n = %u (medians)\n  %-26s %11s %9s %8s %11s\n", n,
            "way", "ms", "TFLOP/s", "ratio", "MiB moved");
    return multiply_matrices(r, n, (uint32_t)region_size(r, 512, 64), repetitions, false);
}
