/* Lists of items for consumers that cannot map: sparse attention over a KV cache, of which each step of each request reads the best
 * 2048 items of 512 to 656 bytes.
 *
 * A request has a context of items in host memory, and slots on the device for three of its steps. A step repeats the items
 * of the step before but for a share, which was not used for longer than slots last. Each step is measured four ways in turn:
 * gvm_region_resolve() and gvm_region_release(), each captured in a graph; one block for each request that does hit test, LRU and
 * copies; a plain read of the items that are missed, by warps, where they are in host memory, which is the floor; and a kernel
 * that does nothing.
 */
#include "bench/region/setup.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define SECTION "region resolve"
#define STEPS_TO_FILL 4 /* of nothing but misses */

enum { RESOLVE, RELEASE, ONE_BLOCK, READ, NOTHING, WAYS };

static const char *const way_names[WAYS] = {"resolve", "release", "one block a request",
                                            "missed items read", "an empty kernel"};

typedef struct resolve_case {
    uint32_t item_bytes, requests;
    uint32_t step_items, context_items, slots; /* of a request */
    uint32_t count;                            /* items of a step */
    uint32_t misses;                           /* of a request in a step */
} resolve_case;

typedef struct resolve_state {
    region_bench *r;
    resolve_case c;
    uint32_t *items, *missed; /* of the step */
    uint32_t met, step;       /* items of a request that were met so far, steps */
    CUdeviceptr memory;
    CUdeviceptr device_items, device_missed, device_slots;
    bench_items_params one_block;
    CUgraphExec graphs[WAYS];
    bench_samples us[WAYS];
    bench_samples share;
} resolve_state;

/* ---- items */

/* Number i of an order that jumps within a request's context, a power of 2. */
static uint32_t jump_in_context(uint32_t i, uint32_t items)
{
    return i * 0x9e3779b1u & (items - 1);
}

/* Replaces as many items of each request as are to be missed, the longest in the list first. */
static void make_step(resolve_state *s, uint32_t misses)
{
    const resolve_case *c = &s->c;
    const uint32_t at = (uint32_t)((uint64_t)s->met % c->step_items);

    for (uint32_t q = 0; q < c->requests; q++)
        for (uint32_t m = 0; m < misses; m++) {
            const uint32_t item = q * c->context_items +
                                  jump_in_context(s->met + m + q * 77, c->context_items);

            s->items[q * c->step_items + (at + m) % c->step_items] = item;
            s->missed[q * misses + m] = item;
        }
    s->met += misses;
    s->step++;
}

/* ---- the ways */

static bool queue_way(region_bench *r, void *arg)
{
    resolve_state *s = ((void **)arg)[0];
    const int way = *(const int *)((void **)arg)[1];
    const resolve_case *c = &s->c;
    const uint32_t *items = (const uint32_t *)(uintptr_t)s->device_items;
    uint32_t *slots = (uint32_t *)(uintptr_t)s->device_slots;
    const bench_region_params params = {.view = r->view,
                                        .list = s->device_missed,
                                        .out = r->out,
                                        .count = way == READ ? c->requests * c->misses : 0,
                                        .total = r->view.count,
                                        .by = BENCH_BY_WARP};
    const region_launch launch = way == READ
                                     ? region_shape(r, KERNEL_region_read_homes, BENCH_BY_WARP,
                                                    params.count)
                                     : region_shape(r, KERNEL_region_nothing, BENCH_BY_WARP, 1);

    if (way == RESOLVE)
        return gvm_region_resolve(r->collection, items, c->count, GVM_REGION_READ, slots, NULL,
                                  r->timer.stream) == GVM_OK ||
               region_failed(r, "resolving");
    if (way == RELEASE)
        return gvm_region_release(r->collection, items, c->count, slots, r->timer.stream) == GVM_OK ||
               region_failed(r, "releasing");
    return region_launch_kernel(r, &launch, &params);
}

/* The kernel of one block a request has another argument each step, and no graph. */
static bool time_one_block(resolve_state *s, double *us)
{
    region_bench *r = s->r;
    const unsigned threads = (unsigned)gvmi_min(1024, r->threads_max[KERNEL_items_one_block]);
    const region_launch launch = {KERNEL_items_one_block, s->c.requests, threads};

    s->one_block.step = s->step;
    return region_time_kernel(r, &launch, &s->one_block, us);
}

/* Of the whole list: do the slots hold the items? In the second way: of the cache without regions. */
static bool check_slots(resolve_state *s, int way)
{
    region_bench *r = s->r;
    bench_region_params params = {.view = r->view,
                                  .list = s->device_items,
                                  .slots = way == RESOLVE ? s->device_slots : s->one_block.slots,
                                  .out = r->out,
                                  .count = s->c.count};
    const region_launch launch = region_shape(r, KERNEL_region_check_slots, BENCH_BY_THREAD,
                                              s->c.count);

    if (way == ONE_BLOCK)
        params.view.address = s->one_block.cache;
    return region_launch_kernel(r, &launch, &params) && region_check_out(r, way_names[way]);
}

static bool run_way(resolve_state *s, int way, bool check)
{
    double us;

    if (way == ONE_BLOCK ? !time_one_block(s, &us) : !region_time_graph(s->r, s->graphs[way], &us))
        return false;
    bench_add(&s->us[way], us);
    return !check || (way != RESOLVE && way != ONE_BLOCK) || check_slots(s, way);
}

/* measured: with all ways, and the samples count. */
static bool run_step(resolve_state *s, uint32_t misses, bool measured, bool check)
{
    region_bench *r = s->r;
    const uint64_t fetched = region_info(r).fetched;

    make_step(s, misses);
    if (!region_send(r, s->device_items, s->items, s->c.count * sizeof(uint32_t)) ||
        !region_send(r, s->device_missed, s->missed, s->c.requests * misses * sizeof(uint32_t)))
        return false;
    for (int way = 0; way < WAYS; way++)
        if ((measured || way < READ) && !run_way(s, way, check))
            return false;
    bench_add(&s->share, 100 * (double)(region_info(r).fetched - fetched) / (double)s->c.count);
    return true;
}

/* ---- memory */

static uint64_t place(CUdeviceptr base, uint64_t *at, uint64_t bytes)
{
    const uint64_t offset = *at;

    *at += gvmi_round_up(bytes, 256);
    return base + offset;
}

static uint64_t place_all(resolve_state *s)
{
    const resolve_case *c = &s->c;
    const uint64_t regions = (uint64_t)c->requests * c->context_items;
    const uint64_t slots = (uint64_t)c->requests * c->slots;
    const gvm_region_view *view = &s->r->view;
    uint64_t at = 0;

    s->device_items = place(s->memory, &at, c->count * 4);
    s->device_missed = place(s->memory, &at, c->count * 4);
    s->device_slots = place(s->memory, &at, c->count * 4);
    s->one_block = (bench_items_params){
        .homes = view->address + view->home * view->stride_bytes,
        .stride_bytes = view->stride_bytes,
        .items = s->device_items,
        .slots = place(s->memory, &at, c->count * 4),
        .order = {place(s->memory, &at, slots * 4), place(s->memory, &at, slots * 4)},
        .used = place(s->memory, &at, slots * 4),
        .slot_of = place(s->memory, &at, regions * 4),
        .item_of = place(s->memory, &at, slots * 4),
        .cache = place(s->memory, &at, slots * view->stride_bytes),
        .count = c->step_items,
        .slot_count = c->slots,
    };
    return at;
}

static bool set_words(resolve_state *s, CUdeviceptr at, unsigned char byte, uint64_t words)
{
    const CUresult result = gvmi_cu->cuMemsetD8Async(at, byte, words * sizeof(uint32_t),
                                                     s->r->timer.stream);

    return result == CUDA_SUCCESS || region_driver_failed(s->r, result, "cuMemsetD8Async");
}

/* An empty cache: no item has a slot, and the slots of each request are in their order. */
static bool empty_cache(resolve_state *s)
{
    const resolve_case *c = &s->c;
    const uint32_t slots = c->requests * c->slots;
    uint32_t *order = malloc(slots * sizeof *order);
    bool good = order != NULL;

    for (uint32_t i = 0; good && i < slots; i++)
        order[i] = i;
    for (int i = 0; good && i < 2; i++)
        good = region_send(s->r, s->one_block.order[i], order, slots * sizeof *order);
    free(order);
    return good && set_words(s, s->one_block.used, 0, slots) &&
           set_words(s, s->one_block.item_of, 0xff, slots) &&
           set_words(s, s->one_block.slot_of, 0xff, (uint64_t)c->requests * c->context_items);
}

static void drop_graphs(resolve_state *s)
{
    for (int way = 0; way < WAYS; way++) {
        if (s->graphs[way] != NULL)
            gvmi_cu->cuGraphExecDestroy(s->graphs[way]);
        s->graphs[way] = NULL;
    }
}

static bool make_graphs(resolve_state *s)
{
    drop_graphs(s);
    for (int way = 0; way < WAYS; way++) {
        void *arg[] = {s, &way};

        if (way != ONE_BLOCK && !region_capture(s->r, queue_way, arg, &s->graphs[way]))
            return false;
    }
    return true;
}

static bool start_resolve(resolve_state *s)
{
    const resolve_case *c = &s->c;
    const uint64_t slots = (uint64_t)c->requests * c->slots;

    s->items = calloc(c->count, sizeof *s->items);
    s->missed = calloc(c->count, sizeof *s->missed);
    if (s->items == NULL || s->missed == NULL)
        return bench_note(s->r->b, "out of memory"), false;
    if (!region_open(s->r, (uint64_t)c->requests * c->context_items, c->item_bytes,
                     slots * c->item_bytes, GVM_REGION_CLOCK) ||
        !region_clear_out(s->r) || !region_alloc(s->r, &s->memory, place_all(s)))
        return false;
    place_all(s);
    return empty_cache(s);
}

static void end_resolve(resolve_state *s)
{
    drop_graphs(s);
    if (s->memory != 0)
        gvmi_cu->cuMemFree(s->memory);
    free(s->items);
    free(s->missed);
}

/* ---- all */

static void record_resolve(resolve_state *s, double share)
{
    bench *b = s->r->b;
    const resolve_case *c = &s->c;
    double median[WAYS];

    for (int way = 0; way < WAYS; way++)
        median[way] = bench_record(
            b, SECTION,
            bench_text(b, "%s, %g %% missed, %u requests", way_names[way], share, c->requests),
            "us", c->item_bytes, 0, &s->us[way]);
    bench_record(b, SECTION,
                 bench_text(b, "missed of %g %%, %u requests, by count", share, c->requests), "%",
                 c->item_bytes, 0, &s->share);
    fprintf(b->text, "  %6u %8u %8g %8.2f %10.1f %10.1f %10.1f %10.1f %10.1f %8.3f %8.3f\n",
            c->item_bytes, c->requests, share, bench_median(&s->share), median[RESOLVE],
            median[RELEASE], median[ONE_BLOCK], median[READ], median[NOTHING],
            median[READ] / median[RESOLVE], median[ONE_BLOCK] / (median[RESOLVE] + median[RELEASE]));
}

static bool measure_share(resolve_state *s, double share)
{
    const int repetitions = s->r->b->quick ? 3 : 9;

    s->c.misses = (uint32_t)gvmi_max(1, (uint64_t)(s->c.step_items * share / 100));
    if (!make_graphs(s))
        return false;
    for (int i = -1; i < repetitions; i++) {
        if (i == 0) {
            memset(s->us, 0, sizeof s->us); /* that was for warming up */
            s->share.count = 0;
        }
        if (!run_step(s, s->c.misses, true, i < 1))
            return false;
    }
    record_resolve(s, share);
    return true;
}

static bool measure_resolve_of(region_bench *r, uint32_t item_bytes, uint32_t requests)
{
    static const double shares[] = {100, 20, 0.1};
    const bool soft = r->b->info.software;
    resolve_state s = {.r = r,
                       .c = {.item_bytes = item_bytes,
                             .requests = requests,
                             .step_items = soft ? 64 : BENCH_ITEMS_MAX,
                             .context_items = soft ? 1024 : 32768,
                             .slots = soft ? 192 : 6144}};
    bool good;

    s.c.count = requests * s.c.step_items;
    good = start_resolve(&s);
    for (int i = 0; good && i < STEPS_TO_FILL; i++) {
        s.c.misses = s.c.step_items;
        good = (i > 0 || make_graphs(&s)) && run_step(&s, s.c.step_items, false, true);
    }
    for (size_t i = 0; good && i < sizeof shares / sizeof shares[0]; i++)
        good = measure_share(&s, shares[i]);
    end_resolve(&s);
    return good;
}

bool region_measure_resolve(region_bench *r)
{
    static const uint32_t items[] = {512, 576, 656}, real[] = {1, 2, 8, 64, 256}, software[] = {1, 2};
    const bool soft = r->b->info.software;
    const uint32_t *requests = soft ? software : real;
    const size_t request_count = soft ? 2 : 5;

    fprintf(r->b->text,
            "\nlists of %u items a request, which has %u slots and a context of %u; us (median)\n"
            "  %6s %8s %8s %8s %10s %10s %10s %10s %10s %8s %8s\n",
            soft ? 64 : BENCH_ITEMS_MAX, soft ? 192 : 6144, soft ? 1024 : 32768, "bytes",
            "requests", "missed", "counted", "resolve", "release", "one block", "read", "empty",
            "read/res.", "block/both");
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
        for (size_t q = 0; q < request_count; q += r->b->quick && !soft ? 2 : 1)
            if (!measure_resolve_of(r, items[i], requests[q]))
                return false;
    return true;
}
