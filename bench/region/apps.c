/* Ten kernels whose data fits on the device, with regions and without: time, registers, threads that run at once. What is measured is
 * what maps and their code cost, as all regions are in frames.
 *
 * Both write the same: their arrays are compared by a digest, and those of a small instance with the CPU's.
 */
#include "bench/region/apps_setup.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define SECTION "region kernels"
#define REPETITIONS 9

enum { PLAIN, REGIONS, WAYS };

typedef struct app_state {
    region_bench *r;
    const region_app *app;
    bench_app_params p[WAYS]; /* with a small of its own each */
    gvm_collection *collections[BENCH_APP_ARRAYS];
    CUdeviceptr memory;
    uint64_t array_bytes, small_bytes;
    bench_samples us[WAYS];
} app_state;

/* ---- instances */

static uint64_t round_bytes(uint64_t bytes)
{
    return (bytes + 255) & ~255ull;
}

static bool open_arrays(app_state *s)
{
    region_bench *r = s->r;
    bench_app_params *plain = &s->p[PLAIN];
    const uint64_t bytes = plain->words * sizeof(uint32_t), small = round_bytes(s->small_bytes);
    gvm_collection_options options = gvm_collection_options_init();

    options.budget_bytes = s->array_bytes;
    if (!region_open_space(r, BENCH_APP_ARRAYS * (s->array_bytes + 64 * GVMI_MIB)) ||
        !region_alloc(r, &s->memory, BENCH_APP_ARRAYS * s->array_bytes + 2 * small + 256))
        return false;
    for (int i = 0; i < BENCH_APP_ARRAYS; i++) {
        plain->plain[i] = s->memory + (uint64_t)i * s->array_bytes;
        if (!region_add(r, plain->tiles, bytes, &options, &s->collections[i], &plain->regions[i]))
            return false;
    }
    plain->small = s->memory + BENCH_APP_ARRAYS * s->array_bytes;
    plain->out = plain->small + 2 * small;
    s->p[REGIONS] = *plain;
    s->p[REGIONS].small += small;
    return true;
}

static bool launch_app(app_state *s, region_kernel kernel, const bench_app_params *p)
{
    const region_launch launch = region_shape(s->r, kernel, BENCH_BY_BLOCK, p->tiles);

    return region_launch_kernel(s->r, &launch, p);
}

/* Arrays in plain memory and at home, and what is small. */
static bool fill_arrays(app_state *s)
{
    CUresult result = gvmi_cu->cuMemsetD8Async(
        s->memory, 0, BENCH_APP_ARRAYS * s->array_bytes + 2 * round_bytes(s->small_bytes),
        s->r->timer.stream);

    if (result != CUDA_SUCCESS)
        return region_driver_failed(s->r, result, "cuMemsetD8Async");
    for (int way = 0; way < WAYS; way++) {
        bench_app_params p = s->p[way];

        for (int i = 0; i < BENCH_APP_ARRAYS && way == REGIONS; i++)
            p.plain[i] = region_homes(&p.regions[i]);
        if (!launch_app(s, KERNEL_app_fill, &p) ||
            (s->app->plain == KERNEL_sparse_plain && !launch_app(s, KERNEL_app_fill_vector, &p)))
            return false;
    }
    return true;
}

static bool start_app(app_state *s, region_bench *r, const region_app *app, uint32_t tiles,
                      uint32_t words)
{
    bench_app_params *p = &s->p[PLAIN];

    *s = (app_state){.r = r, .app = app};
    p->tiles = tiles;
    p->words = words;
    p->floats = app->floats;
    p->small_words = 2ull * tiles * words / BENCH_APP_ROW;
    for (p->across = 1; (p->across + 1) * (p->across + 1) <= tiles;)
        p->across++;
    if (app->steps == 0) /* rows, an even number */
        p->across = tiles / 8;
    s->array_bytes = (uint64_t)tiles * words * sizeof(uint32_t);
    s->small_bytes = p->small_words * sizeof(uint32_t);
    return open_arrays(s) && fill_arrays(s);
}

static void end_app(app_state *s)
{
    bench_wait(s->r->b);
    region_close(s->r);
    if (s->memory != 0)
        gvmi_cu->cuMemFree(s->memory);
    s->memory = 0;
}

/* ---- runs */

static bool run_app(app_state *s, int way, double *us)
{
    const region_kernel kernel = way == PLAIN ? s->app->plain : s->app->regions;
    const uint32_t steps = s->app->steps != 0 ? s->app->steps : s->p[way].tiles / s->p[way].across;
    bench_app_params p = s->p[way];

    if (!bench_timer_start(s->r->b, &s->r->timer))
        return false;
    for (p.step = 0; p.step < steps; p.step++)
        if (!launch_app(s, kernel, &p))
            return false;
    return bench_timer_stop(s->r->b, &s->r->timer, us);
}

/* What a way has written: the digest of its array, and what is small. */
static bool read_result(app_state *s, int way, uint64_t *digest, void *small)
{
    const uint64_t zero[BENCH_APP_WORDS] = {0};
    bench_app_params p = s->p[way];
    uint64_t out[BENCH_APP_WORDS];

    p.step = (uint32_t)s->app->output;
    if (!region_send(s->r, p.out, zero, sizeof zero) ||
        (s->app->output >= 0 &&
         !launch_app(s, way == PLAIN ? KERNEL_digest_plain : KERNEL_digest_regions, &p)) ||
        !region_receive(s->r, out, p.out, sizeof out) ||
        !region_receive(s->r, small, p.small, s->small_bytes))
        return false;
    *digest = out[BENCH_APP_DIGEST];
    return out[BENCH_APP_WRONG] == 0 || region_failed(s->r, "mapping");
}

static bool compare_with(app_state *s, int way, uint64_t expected_digest, const void *expected_small)
{
    void *small = malloc(s->small_bytes);
    uint64_t digest;
    bool good = small != NULL && read_result(s, way, &digest, small);

    if (good && (digest != expected_digest || memcmp(small, expected_small, s->small_bytes) != 0)) {
        bench_note(s->r->b, "%s%s: the result is wrong", s->app->name,
                   way == REGIONS ? " with regions" : "");
        s->r->b->code = TOOL_FAILED;
    }
    free(small);
    return good;
}

/* ---- the CPU's results */

static bool compute_app(const app_state *s, uint64_t *digest, void *small)
{
    const bench_app_params *p = &s->p[PLAIN];
    const uint64_t words = s->array_bytes / sizeof(uint32_t), small_words = p->small_words;
    app_arrays x = {.small = small, .tiles = p->tiles, .words = p->words, .across = p->across};
    uint32_t *memory = calloc(BENCH_APP_ARRAYS, s->array_bytes);

    if (memory == NULL)
        return false;
    for (int i = 0; i < BENCH_APP_ARRAYS; i++)
        x.array[i] = memory + (uint64_t)i * words;
    for (uint64_t i = 0; i < 2 * words; i++) {
        const int array = i < words ? BENCH_APP_A : BENCH_APP_B;
        const float value = bench_app_float((uint32_t)array, i % words);

        memory[i] = bench_app_word((uint32_t)array, i % words);
        if (s->app->floats)
            memcpy(&memory[i], &value, sizeof value);
    }
    memset(small, 0, s->small_bytes);
    for (uint64_t i = 0; i < small_words / 2 && s->app->plain == KERNEL_sparse_plain; i++)
        ((float *)small)[small_words / 2 + i] = bench_app_float(BENCH_APP_C, i);
    s->app->compute(&x);
    *digest = 0;
    for (uint64_t i = 0; i < words && s->app->output >= 0; i++)
        *digest += bench_app_mix(i, x.array[s->app->output][i]);
    free(memory);
    return true;
}

static bool check_app(region_bench *r, const region_app *app)
{
    app_state s;
    uint64_t digest;
    void *small = NULL;
    double us;
    bool good = start_app(&s, r, app, 64, 1024);

    if (good) {
        small = malloc(s.small_bytes);
        good = small != NULL && compute_app(&s, &digest, small);
    }
    for (int way = 0; good && way < WAYS; way++)
        good = run_app(&s, way, &us) && compare_with(&s, way, digest, small);
    good = good && region_sync_space(r);
    free(small);
    end_app(&s);
    return good;
}

/* ---- measuring */

static unsigned registers_of(const region_bench *r, region_kernel kernel)
{
    int registers = 0;

    (void)gvmi_cu->cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, r->functions[kernel]);
    return (unsigned)registers; /* 0: not known, as on the software GPU */
}

static unsigned threads_at_once(region_bench *r, region_kernel kernel)
{
    const region_launch launch = region_shape(r, kernel, BENCH_BY_BLOCK, UINT32_MAX);

    return launch.blocks / (unsigned)r->b->info.sm_count * launch.threads;
}

static void record_app(app_state *s)
{
    bench *b = s->r->b;
    const uint64_t bytes = s->p[PLAIN].words * sizeof(uint32_t);
    const region_kernel kernels[WAYS] = {s->app->plain, s->app->regions};
    double us[WAYS];

    for (int way = 0; way < WAYS; way++) {
        const char *name = bench_text(b, "%s, %s", s->app->name, way == PLAIN ? "plain" : "regions");

        us[way] = bench_record(b, SECTION, name, "us", bytes, 0, &s->us[way]);
        bench_record_value(b, SECTION, name, "registers", bytes, 0, registers_of(s->r, kernels[way]));
        bench_record_value(b, SECTION, name, "threads of an SM", bytes, 0,
                           threads_at_once(s->r, kernels[way]));
    }
    bench_record_value(b, SECTION, s->app->name, "ratio", bytes, 0, us[PLAIN] / us[REGIONS]);
    fprintf(b->text, "  %-12s %11.1f %11.1f %8.3f %6u %6u %8u %8u\n", s->app->name, us[PLAIN],
            us[REGIONS], us[PLAIN] / us[REGIONS], registers_of(s->r, kernels[PLAIN]),
            registers_of(s->r, kernels[REGIONS]), threads_at_once(s->r, kernels[PLAIN]),
            threads_at_once(s->r, kernels[REGIONS]));
}

static bool measure_app(region_bench *r, const region_app *app, uint32_t tiles, uint32_t words)
{
    app_state s;
    uint64_t digest;
    void *small = NULL;
    double us;
    bool good = start_app(&s, r, app, tiles, words);

    for (int i = -2; good && i < REPETITIONS; i++) /* the first fetches */
        for (int way = 0; good && way < WAYS; way++) {
            good = run_app(&s, way, &us);
            if (i >= 0)
                bench_add(&s.us[way], us);
        }
    if (good) {
        small = malloc(s.small_bytes);
        good = small != NULL && read_result(&s, PLAIN, &digest, small) &&
               compare_with(&s, REGIONS, digest, small) && region_sync_space(r);
    }
    if (good)
        record_app(&s);
    free(small);
    end_app(&s);
    return good;
}

bool region_measure_kernels(region_bench *r)
{
    const uint32_t tiles = (uint32_t)region_size(r, r->b->quick ? 1024 : 4096, 64);
    const uint32_t words = (uint32_t)region_size(r, 16384, 1024);
    char text[32];

    for (unsigned i = 0; i < region_app_count; i++)
        if (!check_app(r, &region_apps[i]))
            return region_failed(r, "comparing kernels with the CPU");
    fprintf(r->b->text,
            "\nkernels with all data in frames, arrays of %s in regions of %u KiB (medians)\n"
            "  %-12s %11s %11s %8s %6s %6s %8s %8s\n"
            "  %-12s %11s %11s %8s %6s %6s %8s %8s\n",
            gvmi_size_text((uint64_t)tiles * words * 4, text), words / 256, "kernel", "plain us",
            "regions us", "ratio", "regs", "regs", "threads", "threads", "", "", "", "", "plain",
            "region", "plain", "region");
    for (unsigned i = 0; i < region_app_count; i++)
        if (!measure_app(r, &region_apps[i], tiles, words))
            return false;
    return true;
}
