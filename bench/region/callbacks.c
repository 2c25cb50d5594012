/* Callbacks: how long a kernel waits for a function of the host, beside a bare exchange of two words; and how many calls and requests a second
 * get through. */
#include "bench/region/setup.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define SECTION "region callbacks"
#define LONE_CALLS 4000u
#define MAILBOX_WORDS (2 * BENCH_MAILBOX_ANSWER)
#define WAIT_MS 60000u /* the software GPU's warps wait for each other, too */

enum { ECHO, COUNT, COLLECT };

static uint64_t counted; /* of the one thread of the server */

static gvm_status echo(void *context, gvm_callback_args *args)
{
    (void)context;
    args->words[0]++;
    return GVM_OK;
}

static gvm_status count(void *context, gvm_callback_args *args)
{
    *(uint64_t *)context += args->requests;
    args->words[0] = 1;
    return GVM_OK;
}

static int compare_waits(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* ---- one thread that waits */

/* Answers each word of the device with the same, until the kernel ends. */
static bool answer_mailbox(region_bench *r, uint64_t *mailbox)
{
    CUresult result = CUDA_ERROR_NOT_READY;

    for (uint32_t looks = 0; result == CUDA_ERROR_NOT_READY; looks++) {
        const uint64_t asked = __atomic_load_n(&mailbox[0], __ATOMIC_ACQUIRE);

        __atomic_store_n(&mailbox[BENCH_MAILBOX_ANSWER], asked, __ATOMIC_RELEASE);
        if (looks % 1024 == 0 || r->b->info.software)
            result = gvmi_cu->cuStreamQuery(r->timer.stream);
    }
    return result == CUDA_SUCCESS || region_driver_failed(r, result, "cuStreamQuery");
}

static bool record_waits(region_bench *r, const char *text, const char *p50_name,
                         const char *p99_name, CUdeviceptr times, uint64_t calls)
{
    uint64_t *waits = calloc(calls, sizeof *waits);
    double p50, p99;

    if (waits == NULL || !region_receive(r, waits, times, calls * sizeof *waits)) {
        free(waits);
        return region_failed(r, "reading how long calls took");
    }
    qsort(waits, calls, sizeof *waits, compare_waits);
    p50 = (double)waits[(calls - 1) / 2] / 1e3;
    p99 = (double)waits[(calls - 1) * 99 / 100] / 1e3;
    free(waits);
    bench_record_value(r->b, SECTION, p50_name, "us", 0, 0, p50);
    bench_record_value(r->b, SECTION, p99_name, "us", 0, 0, p99);
    fprintf(r->b->text, "  %-44s %10.2f %10.2f us\n", text, p50, p99);
    return true;
}

static bool measure_mailbox(region_bench *r, const bench_callback_params *given)
{
    const region_launch launch = {KERNEL_callback_mailbox, 1, (unsigned)r->b->info.warp_size};
    bench_callback_params params = *given;
    CUdeviceptr address;
    void *mailbox;
    bool good;

    if (gvmi_cu->cuMemHostAlloc(&mailbox, MAILBOX_WORDS * sizeof(uint64_t), 0) != CUDA_SUCCESS)
        return region_failed(r, "making a mailbox");
    memset(mailbox, 0, MAILBOX_WORDS * sizeof(uint64_t));
    good = gvmi_cu->cuMemHostGetDevicePointer(&address, mailbox, 0) == CUDA_SUCCESS;
    params.mailbox = address;
    good = good && region_launch_kernel(r, &launch, &params) && answer_mailbox(r, mailbox) &&
           record_waits(r, "two words of host memory, and no more", "a bare mailbox, p50",
                        "a bare mailbox, p99", params.times, params.rounds);
    gvmi_cu->cuMemFreeHost(mailbox);
    return good;
}

static bool measure_lone_calls(region_bench *r, const bench_callback_params *given)
{
    const region_launch launch = {KERNEL_callback_calls, 1, (unsigned)r->b->info.warp_size};
    double us;

    return region_time_kernel(r, &launch, given, &us) &&
           record_waits(r, "a call that waits, by a lone thread", "a lone call that waits, p50",
                        "a lone call that waits, p99", given->times, given->rounds);
}

/* ---- many warps */

static const struct {
    const char *text, *name;
    uint32_t kind, function;
    bool all; /* as many warps as the device runs, else one for each multiprocessor */
} crowds[] = {
    {"calls that wait, a warp a multiprocessor", "calls that wait, a warp a multiprocessor",
     BENCH_CALL, ECHO, false},
    {"calls that wait, all warps", "calls that wait, all warps", BENCH_CALL, ECHO, true},
    {"calls that do not wait, all warps", "calls that do not wait, all warps", BENCH_POST, COUNT, true},
    {"requests of a collective function, all warps", "collective requests that wait, all warps",
     BENCH_JOIN, COLLECT, true},
    {"signals of a collective function, all warps", "collective signals, all warps", BENCH_SIGNAL,
     COLLECT, true},
};

/* Millions of calls a second, from the launch until all functions have returned. */
static bool run_crowd(region_bench *r, gvm_callback_server *server, int which,
                      const bench_callback_params *given, bench_samples *samples)
{
    const region_launch launch = region_shape(r, KERNEL_callback_calls, BENCH_BY_WARP,
                                              crowds[which].all ? UINT32_MAX
                                                                : (uint64_t)r->b->info.sm_count);
    const uint64_t warps = (uint64_t)launch.blocks * launch.threads / (uint64_t)r->b->info.warp_size;
    const uint64_t start = (uint64_t)gvmi_now_ns(), before = counted;
    bench_callback_params params = *given;
    double us;

    params.kind = crowds[which].kind;
    params.function = crowds[which].function;
    params.times = 0;
    params.rounds = r->b->info.software ? 2 : crowds[which].all ? 20 : 500;
    if (!region_time_kernel(r, &launch, &params, &us) || gvm_callback_server_drain(server) != GVM_OK)
        return region_failed(r, crowds[which].name);
    bench_add(samples,
              (double)(warps * params.rounds) / ((double)((uint64_t)gvmi_now_ns() - start) / 1e3));
    if (crowds[which].function == ECHO || counted - before == warps * params.rounds)
        return true;
    return region_failed(r, "counting calls: some were lost");
}

static bool measure_crowds(region_bench *r, gvm_callback_server *server,
                           const bench_callback_params *params)
{
    const int repetitions = r->b->quick ? 3 : 9;

    for (int which = 0; which < (int)(sizeof crowds / sizeof crowds[0]); which++) {
        bench_samples samples = {0};
        double median;

        for (int i = -1; i < repetitions; i++) {
            if (i == 0)
                samples.count = 0; /* that was for warming up */
            if (!run_crowd(r, server, which, params, &samples))
                return false;
        }
        median = bench_record(r->b, SECTION, crowds[which].name, "M/s", 0, 0, &samples);
        fprintf(r->b->text, "  %-44s %21.3f M/s\n", crowds[which].text, median);
    }
    return true;
}

/* ---- all */

static bool open_server(region_bench *r, gvm_callback_server **server, gvm_callback_view *view)
{
    const gvm_callback_server_options options = {.struct_size = sizeof options, .wait_ms = WAIT_MS};

    return gvm_callback_server_create(r->b->device, &options, server) == GVM_OK &&
           gvm_callback_register(*server, ECHO, 0, echo, NULL) == GVM_OK &&
           gvm_callback_register(*server, COUNT, 0, count, &counted) == GVM_OK &&
           gvm_callback_register(*server, COLLECT, GVM_CALLBACK_COLLECTIVE, count, &counted) == GVM_OK &&
           gvm_callback_server_get_view(*server, view) == GVM_OK;
}

bool region_measure_callbacks(region_bench *r)
{
    bench_callback_params params = {.out = r->out,
                                    .rounds = r->b->info.software ? 200 : LONE_CALLS,
                                    .kind = BENCH_CALL,
                                    .function = ECHO};
    gvm_callback_server *server = NULL;
    CUdeviceptr times = 0;
    bool good = region_clear_out(r) && region_alloc(r, &times, LONE_CALLS * sizeof(uint64_t));

    fprintf(r->b->text,
            "\ncalls of a function of the host by kernels that run, a server of one thread\n");
    params.times = times;
    if (good && !open_server(r, &server, &params.server))
        good = region_failed(r, "making a callback server");
    good = good && measure_mailbox(r, &params) && measure_lone_calls(r, &params) &&
           measure_crowds(r, server, &params) && region_check_out(r, "callbacks");
    gvm_callback_server_destroy(server);
    if (times != 0)
        gvmi_cu->cuMemFree(times);
    return good;
}
