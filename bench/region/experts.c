/* A decode loop over a mixture of experts, of which 40 % fit on the device: for each token and layer the experts that the layer has
 * chosen are read, as fast as memory allows.
 *
 * The model's shape is that of Qwen3-30B-A3B: 48 layers of 128 experts of 2.65 MB (3 matrices of 2048 x 768, 4.5 bits a weight), of which
 * 8 are used by a token. Which these are is a generated trace; a kernel gives them out layer by layer, so that those of a layer are
 * not known before its turn. The ways are
 *
 *   - all experts on the device;
 *   - regions, by gvm_region_resolve() in a graph of the whole token;
 *   - the same with two groups of tokens in two streams, of which one reads while the other waits for what it misses;
 *   - a cache that the host manages with LRU, which waits for the numbers of each layer and queues copies of whole experts.
 *
 * All read the same, by the same kernel, and their sums are compared.
 */
#include "bench/region/setup.h"
#include "bench/region/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define SECTION "region experts"
#define EXPERTS 128u
#define CHOSEN 8u
#define EXPERT_BYTES 2654208u
#define BUDGET_PERCENT 40u

enum { RESIDENT, REGIONS, TWO_GROUPS, HOST_LRU, WAYS };

static const char *const way_names[WAYS] = {"all resident", "regions", "regions, 2 groups",
                                            "LRU on the host"};

typedef struct expert_state {
    region_bench *r;
    uint32_t layers, pieces, frames; /* frames: of whole experts */
    uint32_t warm_up, tokens;        /* before what is measured, and of a measured run */
    uint64_t expert_bytes;
    region_sequence trace;
    CUdeviceptr memory;
    CUdeviceptr resident, cache;         /* all experts; the slots of LRU on the host */
    bench_experts_params params, second; /* second: of the second group */
    CUgraphExec graphs[HOST_LRU];        /* of TWO_GROUPS: the second group's */
    CUstream second_stream;
    CUevent fork, join;
    uint32_t *numbers, *slots; /* pinned: of a layer */
    uint32_t *slot_of, *expert_in;
    uint64_t *used; /* of slots: when */
    uint64_t time, host_misses;
    bench_samples us[WAYS], missed[WAYS]; /* of a token; % */
    uint64_t sums[WAYS];
} expert_state;

/* ---- a token's kernels */

static bool use_experts(expert_state *s, bench_experts_params *params)
{
    const region_launch use = region_shape(s->r, KERNEL_experts_use, BENCH_BY_THREAD,
                                           params->region_bytes / 16 * params->chosen * params->pieces);

    return region_launch_kernel(s->r, &use, params);
}

static bool route_layer(expert_state *s, const bench_experts_params *params)
{
    const region_launch route = region_shape(s->r, KERNEL_experts_route, BENCH_BY_THREAD,
                                             params->chosen * params->pieces);

    return region_launch_kernel(s->r, &route, params);
}

static bool next_token(expert_state *s, const bench_experts_params *params)
{
    const region_launch next = {KERNEL_experts_next, 1, (unsigned)s->r->b->info.warp_size};

    return region_launch_kernel(s->r, &next, params);
}

static bool queue_token(region_bench *r, void *arg)
{
    expert_state *s = ((void **)arg)[0];
    const int way = *(const int *)((void **)arg)[1];
    const bench_experts_params *group = way == TWO_GROUPS ? &s->second : &s->params;
    const uint32_t *list = (const uint32_t *)(uintptr_t)group->list;
    uint32_t *slots = (uint32_t *)(uintptr_t)group->slots;
    bool good = true;

    for (uint32_t layer = 0; good && layer < s->layers; layer++) {
        bench_experts_params params = *group;

        params.layer = layer;
        if (way == RESIDENT) {
            params.address = s->resident;
            params.slots = params.list;
        }
        good = route_layer(s, &params);
        if (good && way != RESIDENT)
            good = gvm_region_resolve(r->collection, list, CHOSEN * s->pieces, GVM_REGION_READ,
                                      slots, NULL, r->timer.stream) == GVM_OK;
        good = good && use_experts(s, &params);
        if (good && way != RESIDENT)
            good = gvm_region_release(r->collection, list, CHOSEN * s->pieces, slots,
                                      r->timer.stream) == GVM_OK;
    }
    return good && next_token(s, group);
}

/* ---- a cache of the host's */

/* The slot of an expert, which is copied there if it is new. */
static bool find_expert(expert_state *s, uint32_t expert, uint32_t *slot)
{
    const gvm_region_view *view = &s->r->view;
    const uint64_t home = view->address +
                          (view->home + (uint64_t)expert * s->pieces) * view->stride_bytes;
    CUresult result = CUDA_SUCCESS;

    *slot = s->slot_of[expert];
    if (*slot == GVM_REGION_NONE) {
        *slot = 0;
        for (uint32_t i = 1; i < s->frames; i++)
            if (s->used[i] < s->used[*slot])
                *slot = i;
        if (s->expert_in[*slot] != GVM_REGION_NONE)
            s->slot_of[s->expert_in[*slot]] = GVM_REGION_NONE;
        s->expert_in[*slot] = expert;
        s->slot_of[expert] = *slot;
        s->host_misses++;
        result = gvmi_cu->cuMemcpyAsync(s->cache + *slot * s->expert_bytes, home, s->expert_bytes,
                                        s->r->timer.stream);
    }
    s->used[*slot] = ++s->time;
    return result == CUDA_SUCCESS || region_driver_failed(s->r, result, "cuMemcpyAsync");
}

static bool run_layer_from_host(expert_state *s, uint32_t layer)
{
    region_bench *r = s->r;
    bench_experts_params params = s->params;

    params.layer = layer;
    params.address = s->cache;
    params.pieces = 1;
    params.stride_bytes = params.region_bytes = s->expert_bytes;
    if (!route_layer(s, &params) ||
        !region_receive(r, s->numbers, params.list, CHOSEN * sizeof *s->numbers))
        return false;
    for (uint32_t i = 0; i < CHOSEN; i++)
        if (!find_expert(s, s->numbers[i], &s->slots[i]))
            return false;
    if (gvmi_cu->cuMemcpyHtoDAsync(params.slots, s->slots, CHOSEN * sizeof *s->slots,
                                   r->timer.stream) != CUDA_SUCCESS)
        return region_failed(r, "sending slots");
    return use_experts(s, &params);
}

static bool run_token_from_host(expert_state *s)
{
    for (uint32_t layer = 0; layer < s->layers; layer++)
        if (!run_layer_from_host(s, layer))
            return false;
    return next_token(s, &s->params);
}

/* ---- runs */

/* The first half of the tokens in the timer's stream, the others in a second one between its start and its end. */
static bool run_groups(expert_state *s, uint32_t tokens)
{
    const CUstream stream = s->r->timer.stream;
    CUresult result = gvmi_cu->cuEventRecord(s->fork, stream);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamWaitEvent(s->second_stream, s->fork, 0);
    for (uint32_t i = 0; i < tokens / 2 && result == CUDA_SUCCESS; i++) {
        result = gvmi_cu->cuGraphLaunch(s->graphs[REGIONS], stream);
        if (result == CUDA_SUCCESS)
            result = gvmi_cu->cuGraphLaunch(s->graphs[TWO_GROUPS], s->second_stream);
    }
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventRecord(s->join, s->second_stream);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamWaitEvent(stream, s->join, 0);
    return result == CUDA_SUCCESS || region_driver_failed(s->r, result, "cuGraphLaunch");
}

static bool queue_tokens(expert_state *s, int way, uint32_t tokens)
{
    bool good = true;

    if (way == TWO_GROUPS)
        return run_groups(s, tokens);
    for (uint32_t i = 0; good && i < tokens; i++)
        good = way == HOST_LRU
                   ? run_token_from_host(s)
                   : gvmi_cu->cuGraphLaunch(s->graphs[way], s->r->timer.stream) == CUDA_SUCCESS;
    return good || region_failed(s->r, way_names[way]);
}

static bool run_tokens(expert_state *s, int way, uint64_t first, uint32_t tokens)
{
    region_bench *r = s->r;
    const bool by_regions = way == REGIONS || way == TWO_GROUPS;
    const uint64_t before = by_regions ? region_info(r).fetched : s->host_misses;
    const uint64_t half = first + tokens / 2;
    uint64_t out[BENCH_OUT_WORDS], missed;
    double us;

    if (!region_send(r, s->params.token, &first, sizeof first) ||
        !region_send(r, s->second.token, &half, sizeof half) || !region_clear_out(r) ||
        !bench_timer_start(r->b, &r->timer) || !queue_tokens(s, way, tokens) ||
        !bench_timer_stop(r->b, &r->timer, &us) || !region_receive(r, out, r->out, sizeof out))
        return false;
    missed = by_regions ? (region_info(r).fetched - before) / s->pieces : s->host_misses - before;
    bench_add(&s->us[way], us / tokens);
    bench_add(&s->missed[way],
              way == RESIDENT ? 0 : 100 * (double)missed / (double)tokens / CHOSEN / s->layers);
    s->sums[way] = out[BENCH_OUT_SUM];
    return true;
}

/* Has it read the same as all resident? */
static bool check_sum(const expert_state *s, int way)
{
    if (s->sums[way] == s->sums[RESIDENT])
        return true;
    bench_note(s->r->b, "%s: the sum of what was read is %llx, and should be %llx", way_names[way],
               (unsigned long long)s->sums[way], (unsigned long long)s->sums[RESIDENT]);
    return false;
}

static bool run_in_turn(expert_state *s, uint64_t first, uint32_t tokens)
{
    return run_tokens(s, RESIDENT, first, tokens) && run_tokens(s, REGIONS, first, tokens) &&
           check_sum(s, REGIONS) && run_tokens(s, HOST_LRU, first, tokens) && check_sum(s, HOST_LRU);
}

/* Two groups have tokens of their own, as the cache is that of regions in one group. */
static bool run_groups_in_turn(expert_state *s, uint64_t first, uint32_t tokens)
{
    return run_tokens(s, RESIDENT, first, tokens) && run_tokens(s, TWO_GROUPS, first, tokens) &&
           check_sum(s, TWO_GROUPS);
}

/* ---- memory */

static bool alloc_host(expert_state *s)
{
    const uint32_t experts = s->layers * EXPERTS;
    void *pinned = NULL;

    s->slot_of = malloc(experts * sizeof *s->slot_of);
    s->expert_in = malloc(s->frames * sizeof *s->expert_in);
    s->used = calloc(s->frames, sizeof *s->used);
    if (s->slot_of == NULL || s->expert_in == NULL || s->used == NULL ||
        gvmi_cu->cuMemHostAlloc(&pinned, 2 * CHOSEN * sizeof *s->numbers, 0) != CUDA_SUCCESS)
        return false;
    s->numbers = pinned;
    s->slots = s->numbers + CHOSEN;
    memset(s->slot_of, 0xff, experts * sizeof *s->slot_of);
    memset(s->expert_in, 0xff, s->frames * sizeof *s->expert_in);
    return true;
}

static bool alloc_device(expert_state *s)
{
    region_bench *r = s->r;
    const uint64_t trace_bytes = gvmi_round_up(s->trace.count * sizeof(uint32_t), 256);
    const uint64_t list_bytes = gvmi_round_up(CHOSEN * s->pieces * sizeof(uint32_t), 256);
    const uint64_t all_bytes = (uint64_t)s->layers * EXPERTS * s->expert_bytes;
    const gvm_region_view *view = &r->view;

    if (!region_alloc(r, &s->memory, trace_bytes + 4 * list_bytes + 512) ||
        !region_alloc(r, &s->resident, all_bytes) ||
        !region_alloc(r, &s->cache, s->frames * s->expert_bytes))
        return false;
    s->params = (bench_experts_params){
        .trace = s->memory,
        .list = s->memory + trace_bytes,
        .slots = s->memory + trace_bytes + list_bytes,
        .token = s->memory + trace_bytes + 4 * list_bytes,
        .address = view->address,
        .stride_bytes = view->stride_bytes,
        .region_bytes = view->region_bytes,
        .out = r->out,
        .layers = s->layers,
        .chosen = CHOSEN,
        .pieces = s->pieces,
    };
    s->second = s->params;
    s->second.list += 2 * list_bytes;
    s->second.slots += 2 * list_bytes;
    s->second.token += 256;
    if (gvmi_cu->cuMemcpyAsync(s->resident, view->address + view->home * view->stride_bytes,
                               all_bytes, r->timer.stream) != CUDA_SUCCESS)
        return region_failed(r, "copying all experts");
    return region_send(r, s->params.trace, s->trace.numbers, s->trace.count * sizeof(uint32_t));
}

static bool make_second_stream(expert_state *s)
{
    CUresult result = gvmi_cu->cuStreamCreate(&s->second_stream, CU_STREAM_NON_BLOCKING);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventCreate(&s->fork, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventCreate(&s->join, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS || region_driver_failed(s->r, result, "cuStreamCreate");
}

static void end_experts(expert_state *s)
{
    for (int way = 0; way < HOST_LRU; way++)
        if (s->graphs[way] != NULL)
            gvmi_cu->cuGraphExecDestroy(s->graphs[way]);
    if (s->fork != NULL)
        gvmi_cu->cuEventDestroy(s->fork);
    if (s->join != NULL)
        gvmi_cu->cuEventDestroy(s->join);
    if (s->second_stream != NULL)
        gvmi_cu->cuStreamDestroy(s->second_stream);
    if (s->numbers != NULL)
        gvmi_cu->cuMemFreeHost(s->numbers);
    if (s->memory != 0)
        gvmi_cu->cuMemFree(s->memory);
    if (s->resident != 0)
        gvmi_cu->cuMemFree(s->resident);
    if (s->cache != 0)
        gvmi_cu->cuMemFree(s->cache);
    free(s->slot_of);
    free(s->expert_in);
    free(s->used);
    region_sequence_free(&s->trace);
}

static bool start_experts(expert_state *s, unsigned repetitions)
{
    region_bench *r = s->r;
    const uint32_t experts = s->layers * EXPERTS, tokens = s->warm_up + 2 * repetitions * s->tokens;

    if (!region_sequence_alloc(&s->trace, tokens * s->layers * CHOSEN, experts) || !alloc_host(s)) {
        bench_note(r->b, "out of memory");
        return false;
    }
    region_sequence_experts(&s->trace, s->layers, EXPERTS, CHOSEN);
    if (!region_open(r, (uint64_t)experts * s->pieces, s->expert_bytes / s->pieces,
                     s->frames * s->expert_bytes, GVM_REGION_CLOCK) ||
        !alloc_device(s) || !make_second_stream(s))
        return false;
    for (int way = 0; way < HOST_LRU; way++) {
        void *arg[] = {s, &way};

        if (!region_capture(r, queue_token, arg, &s->graphs[way]))
            return region_failed(r, "capturing a token");
    }
    return true;
}

/* ---- all */

static void record_trace(const expert_state *s)
{
    bench *b = s->r->b;
    const uint32_t first = s->warm_up * s->layers * CHOSEN;
    const double maps = s->trace.count - first;
    const double reuse = region_sequence_reuse(&s->trace, s->layers * CHOSEN);
    const double lru = 100 - 100 * region_lru_hits(&s->trace, first, s->frames) / maps;
    const double best = 100 - 100 * region_belady_hits(&s->trace, first, s->frames) / maps;

    bench_record_value(b, SECTION, "trace, median reuse distance", "tokens", 0, 0, reuse);
    bench_record_value(b, SECTION, "trace, missed by LRU", "%", s->expert_bytes, 0, lru);
    bench_record_value(b, SECTION, "trace, missed by the best choice", "%", s->expert_bytes, 0, best);
    fprintf(b->text,
            "  trace: median reuse distance %g tokens, missed by LRU %.2f %%, by the best choice %.2f %%\n",
            reuse, lru, best);
}

static void record_experts(const expert_state *s)
{
    bench *b = s->r->b;
    double us[WAYS], missed[WAYS];

    for (int way = 0; way < WAYS; way++) {
        us[way] = bench_record(b, SECTION,
                               bench_text(b, "%s, %u regions an expert", way_names[way], s->pieces),
                               "us", s->expert_bytes, 0, &s->us[way]);
        missed[way] = bench_record(
            b, SECTION, bench_text(b, "%s, %u regions an expert, missed", way_names[way], s->pieces),
            "%", s->expert_bytes, 0, &s->missed[way]);
        fprintf(b->text, "  %8u %-18s %12.1f %8.3f %10.2f\n", s->pieces, way_names[way], us[way],
                us[RESIDENT] / us[way], missed[way]);
    }
    bench_record_value(b, SECTION,
                       bench_text(b, "regions over resident, %u regions an expert", s->pieces),
                       "ratio", s->expert_bytes, 0, us[RESIDENT] / us[REGIONS]);
    bench_record_value(
        b, SECTION,
        bench_text(b, "regions in 2 groups over resident, %u regions an expert", s->pieces),
        "ratio", s->expert_bytes, 0, us[RESIDENT] / us[TWO_GROUPS]);
    bench_record_value(b, SECTION,
                       bench_text(b, "regions over LRU on the host, %u regions an expert", s->pieces),
                       "ratio", s->expert_bytes, 0, us[HOST_LRU] / us[REGIONS]);
}

static bool measure_experts_in(region_bench *r, uint32_t pieces, bool first)
{
    const bool soft = r->b->info.software;
    const unsigned repetitions = r->b->quick ? 3 : 9;
    const uint64_t scale = r->b->scale != 0 ? (uint64_t)r->b->scale : soft ? 256 : 1;
    const uint64_t piece_bytes = gvmi_max(16, gvmi_round_down(EXPERT_BYTES / scale / pieces, 16));
    expert_state s = {
        .r = r,
        .layers = soft ? 2 : 48,
        .pieces = pieces,
        .warm_up = soft ? 24 : 128,
        .tokens = soft ? 2 : 32,
        .expert_bytes = piece_bytes * pieces,
    };
    bool good;

    s.frames = s.layers * EXPERTS * BUDGET_PERCENT / 100;
    good = start_experts(&s, repetitions) && run_in_turn(&s, 0, s.warm_up);
    memset(s.us, 0, sizeof s.us);
    memset(s.missed, 0, sizeof s.missed);
    for (unsigned i = 0; good && i < repetitions; i++)
        good = run_in_turn(&s, s.warm_up + i * s.tokens, s.tokens);
    for (unsigned i = repetitions; good && i < 2 * repetitions; i++)
        good = run_groups_in_turn(&s, s.warm_up + i * s.tokens, s.tokens);
    if (good && first)
        record_trace(&s);
    if (good)
        record_experts(&s);
    end_experts(&s);
    return good;
}

bool region_measure_experts(region_bench *r)
{
    fprintf(r->b->text,
            "\nexperts: %u of %u a layer, a budget of %u %% of them; a token's time (median)\n"
            "  %8s %-18s %12s %8s %10s\n",
            CHOSEN, EXPERTS, BUDGET_PERCENT, "regions", "way", "us", "speed", "missed, %");
    return measure_experts_in(r, 1, true) &&
           measure_experts_in(r, r->b->info.software ? 4 : 64, false);
}
