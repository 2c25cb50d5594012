/* gvmem-bench pglz: values of compressed columns, decompressed by plcuda's library on the GPU, one by each thread or one by each warp,
 * and by PostgreSQL's own on one and on all CPU cores.
 *
 * Values are sparse: bitmaps, such as fingerprints of molecules, and arrays. One in COPIES is made and compressed by PostgreSQL, and the
 * others are copies; each has its own memory. Times are of kernels, by events, and of CPU threads from start to end. What each way writes is
 * compared with the values, what a kernel writes in the first two runs.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "bench/bench.h"
#include "bench/pglz.h"

#define SECTION "pglz"
#define BLOCK_THREADS_WANTED 256
#define COPIES 16u
#define CORES_MAX 1024u
#define CPU_REPETITIONS 3

extern const unsigned char gvmi_image_soft_bench_pglz[];
extern const unsigned char *const gvmi_image_cuda_bench_pglz;

enum { THREADS, WARPS, ONE_CORE, ALL_CORES, WAYS };

static const struct {
    const char *name;
    uint32_t raw_bytes, element_bytes; /* an element is not 0 once in so many */
    uint32_t once_in;
    const char *ways[WAYS], *ratio;
} kinds[] = {
#define KIND(name, raw_bytes, element_bytes, once_in) \
    { \
        name, raw_bytes, element_bytes, once_in, \
            {name ", a thread each", name ", a warp each", name ", one core", name ", all cores"}, \
            name ", compressed size" \
    }
    KIND("bitmaps of 256 bytes, 43 bits set", 256, 1, 6),
    KIND("bitmaps of 2048 bytes, 48 bits set", 2048, 1, 43),
    KIND("smallint[] of 256, 1 of 16 not 0", 532, 2, 16),
#undef KIND
};

typedef struct setup {
    bench *b;
    unsigned kind;
    uint64_t count, distinct; /* values; of which differ */
    uint64_t source_bytes, raw_bytes;
    char *raw; /* of the distinct ones */
    char *sources, *out;
    bench_pglz_value *values;
    CUmodule module;
    CUfunction functions[2]; /* THREADS, WARPS */
    unsigned blocks[2], block_threads[2];
    CUdeviceptr memory;
    bench_pglz_params params;
    bench_timer timer;
    bench_samples rate[WAYS];
} setup;

/* ---- values */

static void fill_value(char *to, uint32_t bytes, unsigned kind, uint64_t *state)
{
    memset(to, 0, bytes);
    for (uint32_t at = kinds[kind].raw_bytes == 532 ? 20 : 0; at < bytes;
         at += kinds[kind].element_bytes) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        if ((*state >> 33) % kinds[kind].once_in == 0)
            to[at] = (char)(kinds[kind].element_bytes == 1 ? 1u << (*state >> 60) % 8 : *state >> 50);
    }
}

/* PostgreSQL's compressor can be used by one thread only. */
static bool compress_values(setup *s)
{
    const uint32_t raw_bytes = kinds[s->kind].raw_bytes;
    uint64_t state = 1, at = 0;

    for (uint64_t i = 0; i < s->count; i++) {
        bench_pglz_value *v = &s->values[i];

        *v = (bench_pglz_value){at, i * raw_bytes, 0, (int32_t)raw_bytes};
        if (i < s->distinct) {
            fill_value(s->raw + i * raw_bytes, raw_bytes, s->kind, &state);
            v->source_bytes = postgres_pglz_compress(s->raw + i * raw_bytes, (int32_t)raw_bytes,
                                                     s->sources + at);
        } else {
            v->source_bytes = s->values[i % s->distinct].source_bytes;
            memcpy(s->sources + at, s->sources + s->values[i % s->distinct].source_at,
                   (size_t)v->source_bytes);
        }
        if (v->source_bytes < 0)
            return false;
        at += (uint64_t)v->source_bytes;
    }
    s->source_bytes = at;
    return true;
}

static bool make_values(setup *s, uint64_t bytes)
{
    const uint32_t raw_bytes = kinds[s->kind].raw_bytes;

    s->distinct = bytes / COPIES / raw_bytes;
    s->count = s->distinct * COPIES;
    s->raw_bytes = s->count * raw_bytes;
    s->raw = malloc(s->distinct * raw_bytes);
    s->sources = malloc(s->raw_bytes + 4096);
    s->out = malloc(s->raw_bytes);
    s->values = malloc(s->count * sizeof *s->values);
    if (s->raw != NULL && s->sources != NULL && s->out != NULL && s->values != NULL &&
        compress_values(s))
        return true;
    bench_note(s->b, "no values: out of memory, or they are not compressed");
    s->b->code = TOOL_FAILED;
    return false;
}

static void free_values(setup *s)
{
    free(s->raw);
    free(s->sources);
    free(s->out);
    free(s->values);
    if (s->memory != 0)
        gvmi_cu->cuMemFree(s->memory);
    s->memory = 0;
}

static bool check_values(setup *s, const char *what)
{
    const uint32_t raw_bytes = kinds[s->kind].raw_bytes;

    for (uint64_t i = 0; i < s->count; i++)
        if (memcmp(s->out + i * raw_bytes, s->raw + i % s->distinct * raw_bytes, raw_bytes) != 0) {
            bench_note(s->b, "%s: value %llu is another one", what, (unsigned long long)i);
            s->b->code = TOOL_FAILED;
            return false;
        }
    memset(s->out, 0xff, s->raw_bytes);
    return true;
}

/* ---- the GPU */

static bool load_pglz_image(setup *s)
{
    static const char *const names[] = {"pglz_threads", "pglz_warps"};
    const unsigned char *image = s->b->info.software ? gvmi_image_soft_bench_pglz
                                                     : gvmi_image_cuda_bench_pglz;
    CUresult result;

    if (image == NULL) {
        bench_note(s->b, "this build has no kernels for real GPUs: build it where nvcc is found");
        s->b->code = TOOL_FAILED;
        return false;
    }
    result = gvmi_cu->cuModuleLoadData(&s->module, image);
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++) {
        int threads = 0, blocks = 0;

        result = gvmi_cu->cuModuleGetFunction(&s->functions[i], s->module, names[i]);
        if (result == CUDA_SUCCESS)
            result = gvmi_cu->cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                                 s->functions[i]);
        threads = threads > BLOCK_THREADS_WANTED ? BLOCK_THREADS_WANTED : threads;
        if (result == CUDA_SUCCESS)
            result = gvmi_cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, s->functions[i],
                                                                          threads, 0);
        s->block_threads[i] = (unsigned)threads;
        s->blocks[i] = (unsigned)blocks * (unsigned)s->b->info.sm_count;
    }
    if (result != CUDA_SUCCESS)
        bench_failed_driver(s->b, result, "loading the kernels");
    return result == CUDA_SUCCESS;
}

/* Everything in one block of device memory. */
static bool send_values(setup *s)
{
    const uint64_t values_bytes = s->count * sizeof *s->values,
                   source_bytes = (s->source_bytes + 255) / 256 * 256;
    CUresult result = gvmi_cu->cuMemAlloc(&s->memory, values_bytes + source_bytes + s->count * 4 +
                                                          256 + s->raw_bytes);

    s->params = (bench_pglz_params){.dests = s->memory,
                                    .sources = s->memory + (s->raw_bytes + 255) / 256 * 256,
                                    .count = s->count};
    s->params.values = s->params.sources + source_bytes;
    s->params.results = s->params.values + values_bytes;
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuMemcpyHtoD(s->params.sources, s->sources, s->source_bytes);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuMemcpyHtoD(s->params.values, s->values, values_bytes);
    if (result != CUDA_SUCCESS)
        bench_failed_driver(s->b, result, "sending values");
    return result == CUDA_SUCCESS;
}

static bool run_kernel(setup *s, int way, bool check)
{
    void *arguments[] = {&s->params};
    CUresult result;
    double us;

    if (!bench_timer_start(s->b, &s->timer))
        return false;
    result = gvmi_cu->cuLaunchKernel(s->functions[way], s->blocks[way], 1, 1, s->block_threads[way],
                                     1, 1, 0, s->timer.stream, arguments, NULL);
    if (result == CUDA_SUCCESS && !bench_timer_stop(s->b, &s->timer, &us))
        return false;
    if (result == CUDA_SUCCESS && check)
        result = gvmi_cu->cuMemcpyDtoH(s->out, s->params.dests, s->raw_bytes);
    if (result == CUDA_SUCCESS && check)
        result = gvmi_cu->cuMemsetD8Async(s->params.dests, 0xff, s->raw_bytes, s->timer.stream);
    if (result != CUDA_SUCCESS) {
        bench_failed_driver(s->b, result, kinds[s->kind].ways[way]);
        return false;
    }
    bench_add(&s->rate[way], (double)s->raw_bytes / us / 1e3);
    return !check || check_values(s, kinds[s->kind].ways[way]);
}

/* ---- the CPU */

typedef struct part {
    setup *s;
    uint64_t from, end;
    bool failed;
    pthread_t thread;
} part;

static void *decompress_part(void *argument)
{
    part *p = argument;

    for (uint64_t i = p->from; i < p->end; i++) {
        const bench_pglz_value *v = &p->s->values[i];

        if (postgres_pglz_decompress(p->s->sources + v->source_at, v->source_bytes,
                                     p->s->out + v->dest_at, v->raw_bytes) != v->raw_bytes)
            p->failed = true;
    }
    return NULL;
}

static bool run_cores(setup *s, int way, unsigned cores)
{
    static part parts[CORES_MAX];
    const double start_us = tool_now_us();
    unsigned started = 0;
    bool failed = false;

    for (; started < cores; started++) {
        parts[started] = (part){
            .s = s, .from = s->count * started / cores, .end = s->count * (started + 1) / cores};
        if (pthread_create(&parts[started].thread, NULL, decompress_part, &parts[started]) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(parts[i].thread, NULL);
        failed = failed || parts[i].failed;
    }
    bench_add(&s->rate[way], (double)s->raw_bytes / (tool_now_us() - start_us) / 1e3);
    if (!failed && started == cores)
        return check_values(s, kinds[s->kind].ways[way]);
    bench_note(s->b, "%s: failed", kinds[s->kind].ways[way]);
    s->b->code = TOOL_FAILED;
    return false;
}

/* ---- all */

static unsigned count_cores(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : n > (long)CORES_MAX ? CORES_MAX : (unsigned)n;
}

static bool measure_kind(setup *s, uint64_t bytes)
{
    const int repetitions = s->b->quick ? 3 : 9;
    double median[WAYS];
    char text[32];

    memset(s->rate, 0, sizeof s->rate);
    if (!make_values(s, bytes) || !send_values(s))
        return false;
    memset(s->out, 0xff, s->raw_bytes); /* touched before it is measured */
    for (int i = -1; i < repetitions; i++) {
        if (i == 0)
            memset(s->rate, 0, sizeof s->rate); /* that was for warming up */
        if (!run_kernel(s, THREADS, i < 1) || !run_kernel(s, WARPS, i < 1))
            return false;
        if (i >= 0 && i < CPU_REPETITIONS &&
            (!run_cores(s, ONE_CORE, 1) || !run_cores(s, ALL_CORES, count_cores())))
            return false;
    }
    for (int way = 0; way < WAYS; way++)
        median[way] = bench_record(s->b, SECTION, kinds[s->kind].ways[way], "GB/s", s->raw_bytes, 0,
                                   &s->rate[way]);
    bench_record_value(s->b, SECTION, kinds[s->kind].ratio, "ratio", s->raw_bytes, 0,
                       (double)s->source_bytes / (double)s->raw_bytes);
    fprintf(s->b->text, "  %-36s %-8s %10.3f %10.2f %10.2f %10.2f %10.2f\n", kinds[s->kind].name,
            gvmi_size_text(bytes, text), (double)s->source_bytes / (double)s->raw_bytes,
            median[THREADS], median[WARPS], median[ONE_CORE], median[ALL_CORES]);
    return true;
}

void bench_pglz(bench *b)
{
    const uint64_t whole = b->info.software ? 32 * GVMI_MIB : GVMI_GIB;
    setup s = {.b = b};

    fprintf(b->text,
            "\npglz, GB/s of output (median), on the GPU and by PostgreSQL's own on the CPU, which has %u cores\n"
            "  %-36s %-8s %10s %10s %10s %10s %10s\n",
            count_cores(), "values", "size", "compressed", "threads", "warps", "one core",
            "all cores");
    if (load_pglz_image(&s) && bench_timer_create(b, &s.timer))
        for (s.kind = 0; s.kind < sizeof kinds / sizeof kinds[0]; s.kind++) {
            const bool good = measure_kind(&s, b->quick ? whole / 16 : whole);

            free_values(&s);
            if (!good)
                break;
        }
    bench_timer_destroy(&s.timer);
    if (s.module != NULL)
        gvmi_cu->cuModuleUnload(s.module);
}
