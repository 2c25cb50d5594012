/* gvmem-bench appender: a kernel that fills a buffer from nothing committed, against the same kernel
 * with everything committed, against one that knows where to write, and against managed memory.
 *
 * A launch begins with small chunks, or with a large one where the program expects much or the launch before
 * wrote much: both are measured from nothing committed. Their floor is the launch with everything
 * committed: the appender can at best cost nothing. All are the same kernel between the same begin and
 * finish. The rate of a kernel is by the device's clock; what begin commits before the kernel runs is not
 * in it, but in the rate from begin to finish, which is shown beside it. What begin and the first
 * byte wait for is a commit; beside them, a chunk committed alone, by the library's own call. All
 * ways are measured in turns, on memory that the driver gave anew for the first of them.
 */
#include <string.h>
#include <time.h>

#include "base/address.h"
#include "base/size.h"
#include "bench/append.h"
#include "bench/bench.h"

#define SECTION "appender"
#define BLOCK_THREADS_WANTED 256
#define SPARE_BYTES (2 * GVMI_GIB) /* left free beside managed memory and results, on a real GPU */
#define SPARE_BYTES_SOFT (32 * GVMI_MIB)
#define RESERVE_TIMES 8 /* the reservation, in results */
#define PAUSE_MS 50     /* for what the driver does with freed memory behind the callers' backs */

extern const unsigned char gvmi_image_soft_bench_append[];
extern const unsigned char *const gvmi_image_cuda_bench_append;

enum {
    FIRST,
    NOTHING, /* with nothing committed: nothing is expected, or all */
    COMMITTED,
    FIXED,
    MANAGED,
    WAYS
};

typedef struct setup {
    bench *b;
    CUmodule module;
    CUfunction function;
    unsigned blocks, block_threads;
    CUdeviceptr words;
    bench_timer timer;
} setup;

/* One size and chunk, measured. */
typedef struct figures {
    uint64_t bytes, chunk_bytes;
    bench_samples rate[WAYS]; /* GB/s, by the device's clock */
    /* By the host's: GB/s from begin to finish, and what begin takes of it. */
    bench_samples whole[COMMITTED + 1], begin_us[COMMITTED + 1];
    bench_samples first_commits; /* of the way FIRST; commits: of NOTHING */
    bench_samples commits, commit_us, first_us, alone_us;
} figures;

/* ---- preparing */

static bool load_bench_image(setup *s)
{
    bench *b = s->b;
    const unsigned char *image = b->info.software ? gvmi_image_soft_bench_append
                                                  : gvmi_image_cuda_bench_append;
    int threads = 0, blocks = 0;
    CUresult result;

    if (image == NULL) {
        bench_note(b, "this build has no kernels for real GPUs: build it where nvcc is found");
        b->code = TOOL_FAILED;
        return false;
    }
    result = gvmi_cu->cuModuleLoadData(&s->module, image);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuModuleGetFunction(&s->function, s->module, "append_records");
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                             s->function);
    if (threads > BLOCK_THREADS_WANTED)
        threads = BLOCK_THREADS_WANTED;
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, s->function, threads, 0);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuMemAlloc(&s->words, sizeof(bench_append_words));
    if (result != CUDA_SUCCESS) {
        bench_failed_driver(b, result, "loading the kernel");
        return false;
    }
    s->block_threads = (unsigned)threads;
    s->blocks = (unsigned)blocks * (unsigned)b->info.sm_count;
    return true;
}

static void unload_bench_image(setup *s)
{
    bench_timer_destroy(&s->timer);
    if (s->words != 0)
        gvmi_cu->cuMemFree(s->words);
    if (s->module != NULL)
        gvmi_cu->cuModuleUnload(s->module);
}

/* A driver clears in the background what is given back, and does the accounts with the next allocation:
 * what is measured next does not include them. */
static void let_driver_settle(const setup *s)
{
    const struct timespec pause = {0, s->b->info.software ? 0 : PAUSE_MS * 1000000};
    void *small = NULL;

    bench_trim(s->b);
    nanosleep(&pause, NULL);
    if (gvm_alloc(s->b->device, 1, &small) == GVM_OK)
        gvm_free(small);
    bench_trim(s->b);
}

/* ---- one kernel */

static bool run_kernel(setup *s, const bench_append_params *params, double *us, bench_append_words *out)
{
    const bench_append_words start = {.begun = UINT64_MAX, .first = UINT64_MAX};
    void *arguments[] = {(void *)(uintptr_t)params};
    CUresult result = gvmi_cu->cuMemcpyHtoD(s->words, &start, sizeof start);

    if (result == CUDA_SUCCESS && !bench_timer_start(s->b, &s->timer))
        return false;
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuLaunchKernel(s->function, s->blocks, 1, 1, s->block_threads, 1, 1, 0,
                                         s->timer.stream, arguments, NULL);
    if (result == CUDA_SUCCESS && !bench_timer_stop(s->b, &s->timer, us))
        return false;
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuMemcpyDtoH(out, s->words, sizeof *out);
    if (result != CUDA_SUCCESS) {
        bench_failed_driver(s->b, result, "cuLaunchKernel");
        return false;
    }
    if (out->failed == 0)
        return true;
    bench_note(s->b, "a kernel got no memory");
    s->b->code = TOOL_FAILED;
    return false;
}

/* Is every record there once? */
static bool check_sum(setup *s, const void *address, uint64_t bytes)
{
    const double records = (double)(bytes / BENCH_APPEND_RECORD_BYTES);
    const double wanted = records * (records - 1) / 2 * (BENCH_APPEND_RECORD_BYTES / 8);
    double sum = 0;

    if (gvm_kernel_sum_f64(s->b->device, address, bytes / 8, s->timer.stream, &sum) != GVM_OK) {
        bench_failed(s->b, "summing what was appended");
        return false;
    }
    if (sum >= wanted && sum <= wanted)
        return true;
    bench_note(s->b, "what was appended is wrong: its sum is %.17g and not %.17g", sum, wanted);
    s->b->code = TOOL_FAILED;
    return false;
}

/* Begin, kernel, finish. */
static bool append_once(setup *s, gvm_appender *appender, figures *f, int way)
{
    bench_append_params params = {.append.struct_size = sizeof params.append,
                                  .words = s->words,
                                  .records = f->bytes / BENCH_APPEND_RECORD_BYTES};
    gvm_appender_result result = {.struct_size = sizeof result};
    bench_append_words words;
    double us, start_us = tool_now_us();

    if (gvm_appender_begin(appender, &params.append) != GVM_OK) {
        bench_failed(s->b, "beginning");
        return false;
    }
    bench_add(&f->begin_us[way], tool_now_us() - start_us);
    if (!run_kernel(s, &params, &us, &words))
        return false;
    if (gvm_appender_finish(appender, s->timer.stream, &result) != GVM_OK) {
        bench_failed(s->b, "finishing");
        return false;
    }
    bench_add(&f->whole[way], (double)f->bytes / (tool_now_us() - start_us) / 1e3);
    if (way == FIRST)
        bench_add(&f->first_commits, (double)result.commits);
    if (way == NOTHING) {
        bench_add(&f->commits, (double)result.commits);
        bench_add(&f->commit_us,
                  (double)result.commit_us / (double)(result.commits > 0 ? result.commits : 1));
        bench_add(&f->first_us, (double)(words.first - words.begun) / 1e3);
    }
    bench_add(&f->rate[way], (double)f->bytes / us / 1e3);
    return result.complete && result.rows * BENCH_APPEND_ROW_BYTES == f->bytes;
}

static bool write_fixed(setup *s, uint64_t base, figures *f, int way)
{
    const bench_append_params params = {
        .words = s->words, .base = base, .records = f->bytes / BENCH_APPEND_RECORD_BYTES};
    bench_append_words words;
    double us;

    if (!run_kernel(s, &params, &us, &words))
        return false;
    bench_add(&f->rate[way], (double)f->bytes / us / 1e3);
    return true;
}

/* ---- the ways in turn */

static bool measure_commit(setup *s, figures *f)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = f->chunk_bytes};
    gvm_buffer *buffer = NULL;
    double start_us;
    gvm_status status = gvm_buffer_create(s->b->device, f->bytes, &options, &buffer);

    start_us = tool_now_us();
    if (status == GVM_OK)
        status = gvm_buffer_commit(buffer, 0, f->chunk_bytes);
    bench_add(&f->alone_us, tool_now_us() - start_us);
    if (status != GVM_OK)
        bench_failed(s->b, "committing a chunk");
    gvm_buffer_destroy(buffer);
    let_driver_settle(s);
    return status == GVM_OK;
}

/* expected_bytes: 0 for the way FIRST; else for the other ways of an appender. */
static bool measure_appender(setup *s, figures *f, uint64_t expected_bytes)
{
    const gvm_appender_options options = {.struct_size = sizeof options,
                                          .chunk_bytes = f->chunk_bytes,
                                          .flags = GVM_APPENDER_ROWS_ONLY,
                                          .expected_bytes = expected_bytes};
    gvm_appender_info info = {.struct_size = sizeof info};
    gvm_appender *appender = NULL;
    bool good = true;

    if (gvm_appender_create(s->b->device, BENCH_APPEND_ROW_BYTES, RESERVE_TIMES * f->bytes,
                            &options, &appender) != GVM_OK ||
        gvm_appender_get_info(appender, &info) != GVM_OK) {
        bench_failed(s->b, "making an appender");
        good = false;
    }
    good = good && append_once(s, appender, f, expected_bytes > 0 ? NOTHING : FIRST) &&
           check_sum(s, info.address, f->bytes);
    if (expected_bytes > 0)
        good = good && gvm_appender_reset(appender) == GVM_OK &&
               append_once(s, appender, f, COMMITTED) &&
               write_fixed(s, gvmi_address(info.address), f, FIXED);
    gvm_appender_destroy(appender);
    let_driver_settle(s);
    return good;
}

/* First touch of managed memory. Never near the limit: it can stop the whole device. */
static bool measure_managed(setup *s, figures *f)
{
    CUdeviceptr address;
    CUresult result = gvmi_cu->cuMemAllocManaged(&address, f->bytes, CU_MEM_ATTACH_GLOBAL);
    bool good;

    if (result != CUDA_SUCCESS) {
        bench_failed_driver(s->b, result, "cuMemAllocManaged");
        return false;
    }
    good = write_fixed(s, address, f, MANAGED) && check_sum(s, gvmi_pointer(address), f->bytes);
    gvmi_cu->cuMemFree(address);
    return good;
}

static void print_append_figures(bench *b, const figures *f)
{
    static const char *const names[WAYS] = {
        "from nothing committed, nothing expected", "from nothing committed",
        "everything committed", "a fixed buffer, no appender", "managed memory, first touch"};
    double median[WAYS], whole[COMMITTED + 1], first, alone_us;
    char size[32], chunk[32];

    for (int way = 0; way < WAYS; way++)
        median[way] = bench_record(b, SECTION, names[way], "GB/s", f->bytes, f->chunk_bytes,
                                   &f->rate[way]);
    whole[NOTHING] = bench_record(b, SECTION, "from nothing committed, begin to finish", "GB/s",
                                  f->bytes, f->chunk_bytes, &f->whole[NOTHING]);
    whole[COMMITTED] = bench_record(b, SECTION, "everything committed, begin to finish", "GB/s",
                                    f->bytes, f->chunk_bytes, &f->whole[COMMITTED]);
    bench_record(b, SECTION, "begin, nothing expected", "us", f->bytes, f->chunk_bytes,
                 &f->begin_us[FIRST]);
    bench_record(b, SECTION, "commits, nothing expected", "calls", f->bytes, f->chunk_bytes,
                 &f->first_commits);
    bench_record(b, SECTION, "begin, from nothing committed", "us", f->bytes, f->chunk_bytes,
                 &f->begin_us[NOTHING]);
    bench_record(b, SECTION, "begin, everything committed", "us", f->bytes, f->chunk_bytes,
                 &f->begin_us[COMMITTED]);
    bench_record(b, SECTION, "commits", "calls", f->bytes, f->chunk_bytes, &f->commits);
    bench_record(b, SECTION, "one commit", "us", f->bytes, f->chunk_bytes, &f->commit_us);
    first = bench_record(b, SECTION, "first byte", "us", f->bytes, f->chunk_bytes, &f->first_us);
    alone_us = bench_record(b, SECTION, "a chunk committed alone", "us", f->bytes, f->chunk_bytes,
                            &f->alone_us);
    if (median[COMMITTED] > 0)
        bench_record_value(b, SECTION, "nothing expected, over everything committed", "ratio",
                           f->bytes, f->chunk_bytes, median[FIRST] / median[COMMITTED]);
    if (median[COMMITTED] > 0)
        bench_record_value(b, SECTION, "from nothing, over everything committed", "ratio", f->bytes,
                           f->chunk_bytes, median[NOTHING] / median[COMMITTED]);
    if (whole[COMMITTED] > 0)
        bench_record_value(b, SECTION, "from nothing, over everything committed, begin to finish",
                           "ratio", f->bytes, f->chunk_bytes, whole[NOTHING] / whole[COMMITTED]);
    if (median[MANAGED] > 0)
        bench_record_value(b, SECTION, "from nothing, over managed memory", "ratio", f->bytes,
                           f->chunk_bytes, median[NOTHING] / median[MANAGED]);
    fprintf(b->text, "  %-8s %-8s %9.1f %9.1f %7.3f %7.3f %7.3f %8.1f %9.1f %8.1f %8.0f %8.1f %8.1f\n",
            gvmi_size_text(f->bytes, size), gvmi_size_text(f->chunk_bytes, chunk), median[NOTHING],
            median[COMMITTED], median[COMMITTED] > 0 ? median[FIRST] / median[COMMITTED] : 0,
            median[COMMITTED] > 0 ? median[NOTHING] / median[COMMITTED] : 0,
            whole[COMMITTED] > 0 ? whole[NOTHING] / whole[COMMITTED] : 0,
            bench_median(&f->begin_us[NOTHING]), median[FIXED], median[MANAGED],
            bench_median(&f->commits), first, alone_us);
}

/* managed: with managed memory in the buffer's place, too. */
static bool measure_append(setup *s, uint64_t bytes, uint64_t chunk_bytes, bool managed)
{
    const int warm_up = 1, repetitions = s->b->quick ? 3 : 9;
    figures f = {.bytes = bytes, .chunk_bytes = chunk_bytes};

    for (int i = 0; i < warm_up + repetitions; i++) {
        if (i == warm_up)
            f = (figures){.bytes = bytes, .chunk_bytes = chunk_bytes};
        if (!measure_commit(s, &f) || !measure_appender(s, &f, f.bytes) ||
            !measure_appender(s, &f, 0) || (managed && i >= warm_up && !measure_managed(s, &f))) {
            s->b->code = TOOL_FAILED;
            return false;
        }
    }
    print_append_figures(s->b, &f);
    return true;
}

static void measure_all_appends(setup *s)
{
    static const uint64_t real[] = {8 * GVMI_GIB, 32 * GVMI_GIB};
    static const uint64_t software[] = {32 * GVMI_MIB, 128 * GVMI_MIB};
    static const uint64_t real_chunks[] = {64 * GVMI_MIB, 256 * GVMI_MIB, 512 * GVMI_MIB, GVMI_GIB};
    static const uint64_t software_chunks[] = {2 * GVMI_MIB, 8 * GVMI_MIB, 16 * GVMI_MIB,
                                               32 * GVMI_MIB};
    const bool soft = s->b->info.software;
    const uint64_t *sizes = soft ? software : real, *chunks = soft ? software_chunks : real_chunks;
    const uint64_t spare = soft ? SPARE_BYTES_SOFT : SPARE_BYTES;
    const uint64_t limit = s->b->max_bytes != 0 ? s->b->max_bytes : UINT64_MAX;
    unsigned measured = 0;

    for (int i = 0; i < (s->b->quick ? 1 : 2); i++)
        for (size_t c = 0; c < sizeof real_chunks / sizeof real_chunks[0]; c++) {
            const uint64_t free_bytes = bench_free_bytes(s->b);
            /* What is asked ahead comes on top: at most two steps, each at least a chunk. */
            const uint64_t wanted = sizes[i] + 3 * chunks[c] + spare;
            char text[32];

            if (sizes[i] > limit)
                continue;
            if (free_bytes < wanted) {
                bench_note(s->b, "%s are not measured: too little memory is free",
                           gvmi_size_text(sizes[i], text));
                break;
            }
            if (!measure_append(s, sizes[i], chunks[c],
                                i == 0 && c == 0 && free_bytes / 2 >= sizes[i] + spare))
                return;
            measured++;
        }
    if (measured == 0)
        bench_note(s->b, "nothing was measured");
}

void bench_appender(bench *b)
{
    setup s = {.b = b};

    fprintf(b->text,
            "\nblocks append records of 64 KiB, GB/s (median)\n"
            "  size     chunk      nothing committed   first   ratio   whole    begin     fixed  managed  "
            "commits    first    alone\n"
            "                    committed  before    launch           ratio       us                      "
            "             us       us\n");
    if (load_bench_image(&s) && bench_timer_create(b, &s.timer))
        measure_all_appends(&s);
    unload_bench_image(&s);
}
