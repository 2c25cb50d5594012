/* gvmem-bench heap: replaying a trace of allocations. */
#include "bench/heap.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* ---- replaying */

typedef struct replay {
    bench *b;
    const heap_trace *trace;
    CUstream streams[HEAP_TRACE_STREAMS_MAX];
    void **blocks; /* by number */
} replay;

static bool start_replay(bench *b, const heap_trace *trace, replay *r)
{
    *r = (replay){.b = b, .trace = trace};
    r->blocks = calloc(trace->blocks_max, sizeof *r->blocks);
    if (r->blocks == NULL)
        return tool_error("out of memory") == TOOL_DONE;
    for (unsigned i = 0; i < trace->streams; i++) {
        CUresult result = gvmi_cu->cuStreamCreate(&r->streams[i], CU_STREAM_NON_BLOCKING);

        if (result != CUDA_SUCCESS) {
            bench_failed_driver(b, result, "cuStreamCreate");
            return false;
        }
    }
    return true;
}

static void end_replay(replay *r)
{
    for (unsigned i = 0; i < r->trace->streams; i++)
        if (r->streams[i] != NULL)
            gvmi_cu->cuStreamDestroy(r->streams[i]);
    free(r->blocks);
}

typedef struct usage {
    uint64_t requested;
    uint64_t units, rounded; /* in whole units; and what a buddy without virtual memory takes */
    uint64_t requested_peak, units_peak, rounded_peak, committed_peak, committed_at_peak;
    double requested_sum, committed_sum;
} usage;

static void note_event(usage *u, const heap_event *e)
{
    const uint64_t sign = e->is_free ? UINT64_MAX : 1;
    const uint64_t least = e->bytes < GVM_HEAP_UNIT_BYTES ? GVM_HEAP_UNIT_BYTES : e->bytes;

    u->requested += sign * e->bytes;
    u->rounded += sign * gvmi_pow2_up(least);
    u->units += sign * gvmi_round_up(e->bytes, GVM_HEAP_UNIT_BYTES);
    if (u->units > u->units_peak)
        u->units_peak = u->units;
    if (u->rounded > u->rounded_peak)
        u->rounded_peak = u->rounded;
}

/* What is live is remembered by the number of its block, so that it can be freed at the end. */
static bool replay_step(replay *r, const bench_subject *s, const heap_event *e)
{
    void **block = &r->blocks[e->block];
    const CUstream stream = r->streams[e->stream];
    bool good;

    if (!e->is_free)
        return bench_take(s, e->bytes, stream, block);
    good = bench_give(s, *block, e->bytes, stream);
    *block = NULL;
    return good;
}

/* Once with a look at what is held after every event. */
static bool replay_watching(replay *r, const bench_subject *s, usage *u)
{
    *u = (usage){0};
    for (size_t i = 0; i < r->trace->count; i++) {
        const heap_event *e = &r->trace->events[i];
        uint64_t committed;

        note_event(u, e);
        if (!replay_step(r, s, e))
            return false;
        committed = bench_committed_bytes(s);
        u->requested_sum += (double)u->requested;
        u->committed_sum += (double)committed;
        if (committed > u->committed_peak)
            u->committed_peak = committed;
        if (u->requested > u->requested_peak) {
            u->requested_peak = u->requested;
            u->committed_at_peak = committed;
        }
    }
    return true;
}

static bool replay_timed(replay *r, const bench_subject *s, double *us)
{
    const double start = tool_now_us();

    for (size_t i = 0; i < r->trace->count; i++)
        if (!replay_step(r, s, &r->trace->events[i]))
            return false;
    *us = tool_now_us() - start;
    return true;
}

/* The sizes of live blocks are those of the events that they come from. */
static void free_live(replay *r, const bench_subject *s)
{
    for (size_t i = r->trace->count; i-- > 0;) {
        const heap_event *e = &r->trace->events[i];

        if (!e->is_free && r->blocks[e->block] != NULL) {
            (void)bench_give(s, r->blocks[e->block], e->bytes, r->streams[e->stream]);
            r->blocks[e->block] = NULL;
        }
    }
    bench_give_back(r->b, s);
}

static void print_replay_row(bench *b, const char *name, double peak_ratio, double at_peak,
                             double mean, double us)
{
    fprintf(b->text, "  %-34s", name);
    bench_record_value(b, "trace, committed peak / requested peak", name, "ratio", 0, 0, peak_ratio);
    if (peak_ratio > 0)
        fprintf(b->text, " %9.3f", peak_ratio);
    else
        fprintf(b->text, " %9s", "-");
    if (mean > 0) {
        bench_record_value(b, "trace, committed / requested at the peak", name, "ratio", 0, 0, at_peak);
        bench_record_value(b, "trace, committed / requested, mean", name, "ratio", 0, 0, mean);
        fprintf(b->text, " %9.3f %9.3f", at_peak, mean);
    } else {
        fprintf(b->text, " %9s %9s", "-", "-");
    }
    if (us > 0) {
        bench_record_value(b, "trace, an event", name, "us", 0, 0, us);
        fprintf(b->text, " %9.3f", us);
    }
    fputc('\n', b->text);
}

/* With nothing held in the beginning, both times. */
static bool replay_subject(replay *r, const bench_subject *s, usage *u)
{
    double us = 0;
    bool good;

    memset(r->blocks, 0, r->trace->blocks_max * sizeof(void *));
    bench_give_back(r->b, s);
    good = replay_watching(r, s, u);
    free_live(r, s);
    good = good && replay_timed(r, s, &us);
    free_live(r, s);
    if (!good) {
        bench_subject_failed(r->b, s);
        return false;
    }
    print_replay_row(r->b, s->name, (double)u->committed_peak / (double)u->requested_peak,
                     (double)u->committed_at_peak / (double)u->requested_peak,
                     u->committed_sum / u->requested_sum, us / (double)r->trace->count);
    return true;
}

static bool replay_heap(replay *r, const char *name, uint64_t keep_bytes, usage *u)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = keep_bytes};
    bench_subject subject = {.name = name, .ordered = true};
    bool good;

    if (gvm_heap_create(r->b->device, &options, &subject.heap) != GVM_OK) {
        bench_failed(r->b, "a heap");
        return false;
    }
    good = replay_subject(r, &subject, u);
    gvm_heap_destroy(subject.heap);
    return good;
}

static void replay_all(replay *r)
{
    static const struct {
        const char *name;
        uint64_t keep_bytes; /* as gvm_heap_options */
    } heaps[] = {{"gvm_heap", 0},
                 {"gvm_heap, none kept", GVM_BYTES_NONE},
                 {"gvm_heap, all kept", GVM_BYTES_UNLIMITED}};
    bench_subject driver = {.name = "cuMemAllocAsync", .ordered = true};
    const bench_foreign_pool *others;
    const size_t other_count = bench_load_pools(r->b, &others);
    bench *b = r->b;
    usage u = {0}, unused;

    for (size_t i = 0; i < sizeof heaps / sizeof heaps[0]; i++)
        if (!replay_heap(r, heaps[i].name, heaps[i].keep_bytes, &u))
            return;
    print_replay_row(b, "sizes alone, rounded to 16 KiB",
                     (double)u.units_peak / (double)u.requested_peak, 0, 0, 0);
    print_replay_row(b, "sizes alone, rounded to powers of 2",
                     (double)u.rounded_peak / (double)u.requested_peak, 0, 0, 0);
    if (bench_driver_pool_start(b, &driver.driver_pool)) {
        (void)replay_subject(r, &driver, &unused);
        bench_driver_pool_stop(driver.driver_pool);
    }
    for (size_t i = 0; i < other_count; i++)
        (void)replay_subject(
            r, &(bench_subject){.name = others[i].name(), .pool = &others[i], .ordered = true},
            &unused);
}

bool bench_heap_trace(bench *b, heap_trace *out)
{
    const uint64_t free_bytes = bench_free_bytes(b);
    const bool good = b->trace_path != NULL
                          ? heap_trace_read(b->trace_path, out)
                          : heap_trace_make(free_bytes / 2 < 16 * GVMI_GIB ? free_bytes / 2
                                                                           : 16 * GVMI_GIB,
                                            b->quick ? 3 : 20, out);

    if (!good)
        b->code = TOOL_FAILED;
    return good;
}

void bench_heap_replay(bench *b, const heap_trace *trace)
{
    char size[32];
    replay r;

    fprintf(b->text,
            "\nreplay of %s: %zu events, %u streams, peak %s\n"
            "                                     peak/peak   at peak      mean  us/event\n",
            b->trace_path != NULL ? b->trace_path : "a made-up training", trace->count,
            trace->streams, gvmi_size_text(trace->peak_bytes, size));
    bench_record_value(b, "trace", "events", "count", 0, 0, (double)trace->count);
    bench_record_value(b, "trace", "requested, peak", "bytes", 0, 0, (double)trace->peak_bytes);
    if (trace->peak_bytes + trace->peak_bytes / 4 > bench_free_bytes(b)) {
        bench_note(b, "not replayed: the device has no room for it");
        return;
    }
    if (start_replay(b, trace, &r))
        replay_all(&r);
    else
        b->code = TOOL_FAILED;
    end_replay(&r);
}
