/* gvmem bench heap: replaying a trace of allocations. See bench_heap.h for the format. */
#include "tools/bench_heap.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define LINE_BYTES 256
#define EVENTS_MAX 100000000u

/* ---- traces */

typedef struct live { /* a block that is live while a trace is read */
    uint64_t id;      /* first: a lone id is searched for */
    uint32_t block;
    uint64_t bytes;
    uint16_t stream;
} live;

typedef struct reader {
    bench_trace *trace;
    void *tree;
    uint32_t *spare; /* numbers of blocks that are free again */
    size_t spare_count, spare_capacity;
    uint64_t bytes;
} reader;

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static bool grow(void **array, size_t count, size_t *capacity, size_t each)
{
    void *grown;

    if (count < *capacity)
        return true;
    grown = realloc(*array, (*capacity > 0 ? 2 * *capacity : 1024) * each);
    if (grown == NULL)
        return false;
    *array = grown;
    *capacity = *capacity > 0 ? 2 * *capacity : 1024;
    return true;
}

static int stream_number(bench_trace *trace, uint64_t handle)
{
    for (unsigned i = 0; i < trace->streams; i++)
        if (trace->stream_handles[i] == handle)
            return (int)i;
    if (trace->streams == BENCH_TRACE_STREAMS_MAX)
        return -1;
    trace->stream_handles[trace->streams] = handle;
    return (int)trace->streams++;
}

/* NULL, or what is wrong. */
static const char *add_event(reader *r, bool is_free, uint64_t id, uint64_t bytes, uint64_t stream)
{
    bench_trace *trace = r->trace;
    live **node, *block;
    const int number = stream_number(trace, stream);

    if (number < 0)
        return "too many streams";
    if (trace->count == EVENTS_MAX ||
        !grow((void **)&trace->events, trace->count, &trace->capacity, sizeof *trace->events) ||
        !grow((void **)&r->spare, r->spare_count, &r->spare_capacity, sizeof *r->spare))
        return "out of memory";
    node = tfind(&id, &r->tree, compare_ids);
    if (is_free) {
        if (node == NULL)
            return NULL; /* of before the recording began */
        block = *node;
        tdelete(&id, &r->tree, compare_ids);
        r->spare[r->spare_count++] = block->block;
        r->bytes -= block->bytes;
        trace->events[trace->count++] = (bench_event){block->bytes, block->block, (uint16_t)number,
                                                      true};
        free(block);
        return NULL;
    }
    if (node != NULL)
        return "a block is allocated that is live already";
    if (bytes == 0)
        return NULL;
    block = malloc(sizeof *block);
    if (block == NULL)
        return "out of memory";
    *block = (live){.id = id, .bytes = bytes};
    block->block = r->spare_count > 0 ? r->spare[--r->spare_count] : trace->blocks_max++;
    if (tsearch(block, &r->tree, compare_ids) == NULL) {
        free(block);
        return "out of memory";
    }
    r->bytes += bytes;
    if (r->bytes > trace->peak_bytes)
        trace->peak_bytes = r->bytes;
    trace->events[trace->count++] = (bench_event){bytes, block->block, (uint16_t)number, false};
    return NULL;
}

static void end_reader(reader *r)
{
    tdestroy(r->tree, free);
    free(r->spare);
}

void bench_trace_free(bench_trace *trace)
{
    free(trace->events);
    *trace = (bench_trace){0};
}

bool bench_trace_read(const char *path, bench_trace *out)
{
    reader r = {.trace = out};
    const char *wrong = NULL;
    unsigned long number = 0;
    char line[LINE_BYTES];
    FILE *file = fopen(path, "re");

    *out = (bench_trace){0};
    if (file == NULL) {
        tool_error("cannot read %s: %s", path, strerror(errno));
        return false;
    }
    while (wrong == NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned long long id, bytes, stream;
        char kind;

        if (number++ == 0 && strcmp(line, "# gvmem heap trace 1\n") != 0)
            wrong = "not a heap trace: the first line should be \"# gvmem heap trace 1\"";
        else if (line[0] == '#')
            continue;
        else if (sscanf(line, "%c %llx %llu %llx", &kind, &id, &bytes, &stream) != 4 ||
                 (kind != 'a' && kind != 'f'))
            wrong = "not an event: a line is \"a|f ID BYTES STREAM NS\"";
        else
            wrong = add_event(&r, kind == 'f', id, bytes, stream);
    }
    if (wrong == NULL && out->count == 0)
        wrong = "no events";
    fclose(file);
    end_reader(&r);
    if (wrong == NULL)
        return true;
    tool_error("%s, line %lu: %s", path, number, wrong);
    bench_trace_free(out);
    return false;
}

/* ---- a made-up one */

#define LAYERS 24
#define SMALL_KEPT 256 /* small tensors that outlive steps */

typedef struct maker {
    reader r;
    uint64_t random, next_id;
    bool failed;
} maker;

static uint64_t draw(maker *m, uint64_t end)
{
    uint64_t x = m->random += 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (x ^ x >> 31) % end;
}

static uint64_t make_block(maker *m, uint64_t bytes)
{
    m->failed = m->failed || add_event(&m->r, false, ++m->next_id, bytes, 0) != NULL;
    return m->next_id;
}

static void end_block(maker *m, uint64_t id)
{
    if (id != 0)
        m->failed = m->failed || add_event(&m->r, true, id, 0, 0) != NULL;
}

/* 512 B to 64 KiB, as many of each order of size. */
static uint64_t small_bytes(maker *m)
{
    const uint64_t order = 9 + draw(m, 7);

    return ((1ull << order) + draw(m, 1ull << order) + 511) / 512 * 512;
}

/* Temporaries of one operation: live while it runs. */
static void use_workspace(maker *m, uint64_t bytes)
{
    uint64_t small[4], large = make_block(m, bytes);

    for (int i = 0; i < 4; i++)
        small[i] = make_block(m, small_bytes(m));
    for (int i = 4; i-- > 0;)
        end_block(m, small[i]);
    end_block(m, large);
}

/* hidden: the width of the network, on which the sizes of everything depend. */
static void make_steps(maker *m, uint64_t hidden, unsigned steps)
{
    enum { PARTS = 6, SAVED = 9 };
    static const unsigned widths[PARTS] = {3, 1, 4, 4,
                                           0, 0}; /* matrices of hidden x widths * hidden; biases */
    static const unsigned saved_widths[SAVED] = {1, 3, 2, 1, 1, 4, 4, 1, 0};
    uint64_t activations[LAYERS][SAVED], gradients[LAYERS][PARTS], kept[SMALL_KEPT] = {0};
    unsigned next_kept = 0;

    for (int layer = 0; layer < LAYERS; layer++) /* parameters, and two moments of each */
        for (int part = 0; part < 3 * PARTS; part++)
            make_block(m, widths[part % PARTS] > 0 ? hidden * hidden * widths[part % PARTS] * 4
                                                   : hidden * 4);
    make_block(m, hidden * 50000 * 2); /* the embedding */
    for (unsigned step = 0; step < steps; step++) {
        /* Sequences differ from batch to batch. */
        const uint64_t tokens = 8 * (384 + draw(m, 640));

        for (int layer = 0; layer < LAYERS; layer++) {
            for (int i = 0; i < SAVED; i++)
                activations[layer][i] = make_block(
                    m, saved_widths[i] > 0 ? tokens * hidden * saved_widths[i] * 2 : tokens * 8);
            use_workspace(m, tokens * hidden * (1 + draw(m, 3)));
            for (int i = 0; i < 8; i++)
                end_block(m, make_block(m, small_bytes(m)));
        }
        const uint64_t logits = make_block(m, tokens * 12800);

        for (int layer = LAYERS; layer-- > 0;) {
            for (int i = SAVED; i-- > 0;) {
                use_workspace(m, tokens * hidden * 2);
                end_block(m, activations[layer][i]);
            }
            for (int part = 0; part < PARTS; part++)
                gradients[layer][part] = make_block(
                    m, widths[part] > 0 ? hidden * hidden * widths[part] * 2 : hidden * 2);
        }
        end_block(m, logits);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int part = 0; part < PARTS; part++) {
                use_workspace(m, small_bytes(m));
                end_block(m, gradients[layer][part]);
            }
        for (int i = 0; i < 16; i++) { /* metrics */
            end_block(m, kept[next_kept % SMALL_KEPT]);
            kept[next_kept++ % SMALL_KEPT] = make_block(m, small_bytes(m));
        }
    }
}

bool bench_trace_make(uint64_t peak_bytes, unsigned steps, bench_trace *out)
{
    uint64_t hidden = 2048;
    bool failed;

    /* Parameters take about 12 * 4 * 3 * LAYERS bytes of hidden^2; find the width that fits. */
    for (;; hidden = hidden * 7 / 8 / 64 * 64) {
        maker m = {.r = {.trace = out}, .random = 1};

        *out = (bench_trace){0};
        make_steps(&m, hidden, steps);
        failed = m.failed;
        end_reader(&m.r);
        if (failed || out->peak_bytes <= peak_bytes || hidden <= 64)
            break;
        bench_trace_free(out);
    }
    if (failed)
        bench_trace_free(out);
    return !failed;
}

/* ---- replaying */

typedef struct replay {
    bench *b;
    const bench_trace *trace;
    CUstream streams[BENCH_TRACE_STREAMS_MAX];
    void **blocks; /* by number */
} replay;

static bool start_replay(bench *b, const bench_trace *trace, replay *r)
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
    uint64_t requested_peak, units_peak, rounded_peak, committed_peak, committed_at_peak, allocs,
        commits, decommits;
    double requested_sum, committed_sum;
} usage;

static void note_event(usage *u, const bench_event *e)
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

static bool step_heap(replay *r, gvm_heap *heap, const bench_event *e)
{
    void **block = &r->blocks[e->block];

    return e->is_free
               ? gvm_heap_free_async(heap, *block, r->streams[e->stream]) == GVM_OK
               : gvm_heap_alloc_async(heap, e->bytes, NULL, r->streams[e->stream], block) == GVM_OK;
}

/* Once with a look at the heap after every event. */
static bool replay_watching(replay *r, gvm_heap *heap, usage *u)
{
    gvm_heap_info info = {.struct_size = sizeof info};

    *u = (usage){0};
    for (size_t i = 0; i < r->trace->count; i++) {
        const bench_event *e = &r->trace->events[i];

        note_event(u, e);
        if (!step_heap(r, heap, e) || gvm_heap_get_info(heap, &info) != GVM_OK)
            return false;
        u->requested_sum += (double)u->requested;
        u->committed_sum += (double)info.committed_bytes;
        if (u->requested > u->requested_peak) {
            u->requested_peak = u->requested;
            u->committed_at_peak = info.committed_bytes;
        }
    }
    u->committed_peak = info.committed_peak_bytes;
    return true;
}

static bool replay_timed(replay *r, gvm_heap *heap, double *us)
{
    const double start = tool_now_us();

    for (size_t i = 0; i < r->trace->count; i++)
        if (!step_heap(r, heap, &r->trace->events[i]))
            return false;
    *us = tool_now_us() - start;
    return true;
}

/* reserve_bytes: as gvm_heap_options. */
static bool replay_heap(replay *r, uint64_t reserve_bytes, usage *u, double *us)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .reserve_bytes = reserve_bytes};
    bool good = true;

    for (int timed = 0; timed < 2 && good; timed++) {
        gvm_heap *heap;

        good = gvm_heap_create(r->b->device, &options, &heap) == GVM_OK;
        if (!good)
            break;
        good = timed ? replay_timed(r, heap, us) : replay_watching(r, heap, u);
        gvm_heap_destroy(heap);
    }
    if (!good)
        bench_failed(r->b, "replaying on a heap");
    return good;
}

static bool replay_pool(replay *r, CUmemoryPool pool, double *us, uint64_t *reserved)
{
    const double start = tool_now_us();
    CUresult result = CUDA_SUCCESS;
    uint64_t zero = 0;

    (void)gvmi_cu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero);
    memset(r->blocks, 0, r->trace->blocks_max * sizeof *r->blocks);
    for (size_t i = 0; i < r->trace->count && result == CUDA_SUCCESS; i++) {
        const bench_event *e = &r->trace->events[i];
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)r->blocks[e->block];

        result = e->is_free ? gvmi_cu->cuMemFreeAsync(at, r->streams[e->stream])
                            : gvmi_cu->cuMemAllocAsync(&at, e->bytes, r->streams[e->stream]);
        r->blocks[e->block] = e->is_free ? NULL : (void *)(uintptr_t)at;
    }
    *us = tool_now_us() - start;
    *reserved = 0;
    (void)gvmi_cu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, reserved);
    for (uint32_t i = 0; i < r->trace->blocks_max; i++)
        if (r->blocks[i] != NULL)
            (void)gvmi_cu->cuMemFreeAsync((CUdeviceptr)(uintptr_t)r->blocks[i], r->streams[0]);
    (void)gvm_device_synchronize(r->b->device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        bench_note(r->b, "cuMemAllocAsync finds too little memory for the trace");
    else if (result != CUDA_SUCCESS)
        bench_failed_driver(r->b, result, "cuMemAllocAsync");
    return result == CUDA_SUCCESS;
}

static void show(bench *b, const char *name, double peak_ratio, double at_peak, double mean, double us)
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

static void replay_all(replay *r)
{
    static const struct {
        const char *name;
        uint64_t reserve_bytes;
    } heaps[] = {{"gvm_heap, reserve a sixteenth", 0},
                 {"gvm_heap, no reserve", 1},
                 {"gvm_heap, all in reserve", UINT64_MAX}};
    const double events = (double)r->trace->count;
    bench *b = r->b;
    CUmemoryPool pool;
    uint64_t reserved;
    usage u = {0};
    double us;

    for (size_t i = 0; i < sizeof heaps / sizeof heaps[0]; i++) {
        if (!replay_heap(r, heaps[i].reserve_bytes, &u, &us))
            return;
        show(b, heaps[i].name, (double)u.committed_peak / (double)u.requested_peak,
             (double)u.committed_at_peak / (double)u.requested_peak,
             u.committed_sum / u.requested_sum, us / events);
    }
    show(b, "sizes alone, rounded to 16 KiB", (double)u.units_peak / (double)u.requested_peak, 0, 0, 0);
    show(b, "sizes alone, rounded to powers of 2",
         (double)u.rounded_peak / (double)u.requested_peak, 0, 0, 0);
    if (!bench_pool_start(b, &pool))
        return;
    if (replay_pool(r, pool, &us, &reserved))
        show(b, "cuMemAllocAsync", (double)reserved / (double)u.requested_peak, 0, 0, us / events);
    bench_pool_stop(pool);
}

void bench_heap_replay(bench *b)
{
    const uint64_t free_bytes = bench_free_bytes(b);
    bench_trace trace;
    char size[32];
    replay r;

    if (b->trace_path != NULL
            ? !bench_trace_read(b->trace_path, &trace)
            : !bench_trace_make(free_bytes / 2 < 16 * GVMI_GIB ? free_bytes / 2 : 16 * GVMI_GIB,
                                b->quick ? 3 : 20, &trace)) {
        b->code = TOOL_FAILED;
        return;
    }
    fprintf(b->text,
            "\nreplay of %s: %zu events, %u streams, peak %s\n"
            "                                     peak/peak   at peak      mean  us/event\n",
            b->trace_path != NULL ? b->trace_path : "a made-up training", trace.count,
            trace.streams, gvmi_size_text(trace.peak_bytes, size));
    bench_record_value(b, "trace", "events", "count", 0, 0, (double)trace.count);
    bench_record_value(b, "trace", "requested, peak", "bytes", 0, 0, (double)trace.peak_bytes);
    if (trace.peak_bytes + trace.peak_bytes / 4 > free_bytes)
        bench_note(b, "not replayed: the device has no room for it");
    else {
        if (start_replay(b, &trace, &r))
            replay_all(&r);
        else
            b->code = TOOL_FAILED;
        end_replay(&r);
    }
    bench_trace_free(&trace);
}
