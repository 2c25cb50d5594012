/* gvmem-bench models: two objects, of which the device's budget has room for one, that several processes share. All
 * of them ask for the one that is on the host, in turns: as servers of models do that use one after the other. */
#include "base/size.h"
#include "bench/keeper.h"

#include <math.h>

#define START_DELAY_NS 30000000 /* until all clients have read their orders */
#define MODELS 2

static const char *const model_names[MODELS] = {"/model/0", "/model/1"};

/* From the start until all of the first `clients` have the model and have read of it. */
static bool swap_once(bench *b, int clients, uint32_t model, double *us, double sums[MODELS])
{
    keeper_order o = master_order_of(KEEPER_ORDER_SWAP, model, NULL);
    int64_t end_ns = 0;
    bool good = true;

    o.start_ns = bench_now_ns() + START_DELAY_NS;
    for (int i = 0; i < clients; i++)
        good = good && master_send(b, i, &o);
    for (int i = 0; i < clients && good; i++) {
        keeper_answer a;

        good = master_receive(b, i, "a swap", &a);
        if (!good)
            break;
        if (isnan(sums[model]))
            sums[model] = a.sum;
        if (a.sum != sums[model]) {
            bench_note(b, "client %d read other words of %s than the first", i, model_names[model]);
            b->code = TOOL_FAILED;
        }
        end_ns = a.end_ns > end_ns ? a.end_ns : end_ns;
    }
    *us = (double)(end_ns - o.start_ns) / 1e3;
    return good;
}

/* *in_bytes: of what the keeper brought to the device meanwhile, for one swap. */
static bool swap_often(bench *b, int clients, double sums[MODELS], bench_samples *samples,
                       double *in_bytes)
{
    const int warm = 2, count = b->quick ? 4 : 10;
    keeper_answer before = {0}, after;
    double us;

    for (int i = 0; i < warm + count; i++) {
        if (i == warm && !master_get_figures(b, 0, &before))
            return false;
        if (!swap_once(b, clients, (uint32_t)(i % MODELS), &us, sums))
            return false;
        if (i >= warm)
            bench_add(samples, us);
    }
    if (!master_get_figures(b, 0, &after))
        return false;
    *in_bytes = (double)(after.device.promoted_bytes - before.device.promoted_bytes) / count;
    return true;
}

static bool measure_swaps(bench *b)
{
    const struct {
        int clients;
        figure_names names;
    } steps[] = {
        {1, NAMES("swap, 1 process")},
        {2, NAMES("swap, 2 processes")},
        {4, NAMES("swap, 4 processes")},
        {8, NAMES("swap, 8 processes")},
    };
    double sums[MODELS] = {NAN, NAN};
    int open = 1;

    master_print_head(b, "until all processes have the other model");
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        bench_samples samples = {0};
        double in_bytes = 0;

        for (; open < steps[i].clients; open++)
            for (uint32_t model = 0; model < MODELS; model++)
                if (!master_order_simple(b, open, KEEPER_ORDER_OPEN, model, model_names[model]))
                    return false;
        if (!swap_often(b, steps[i].clients, sums, &samples, &in_bytes))
            return false;
        if (in_bytes == 0)
            bench_note(b, "%s: nothing moved, so nothing is shown", steps[i].names.name);
        master_record(b, steps[i].names, "us", master.plan.device_budget_bytes, &samples,
                      master_us_for_bytes(in_bytes, master.h2d));
    }
    if (sums[0] != sums[1])
        return true;
    bench_note(b, "both models have the same words, so it does not show whose were read");
    b->code = TOOL_FAILED;
    return false;
}

/* One process writes all of one model, another one all of the other: both directions of the link at once. */
static bool exchange_often(bench *b, bench_samples *samples, bench_samples *floors)
{
    for (int i = 0; i < 2 + (b->quick ? 4 : 8); i++) {
        keeper_answer before, after, a;
        double in, out;

        if (!master_get_figures(b, i % 2, &before) ||
            !master_order_turn(b, i % 2, (uint32_t)(i % MODELS), GVM_LEASE_WRITE, GVM_HINT_HOT, 1, &a) ||
            !master_get_figures(b, i % 2, &after))
            return false;
        if (i < 2)
            continue;
        in = (double)(after.device.promoted_bytes - before.device.promoted_bytes);
        out = (double)(after.device.evicted_bytes - before.device.evicted_bytes);
        bench_add(samples, a.acquire_us);
        bench_add(floors, master_us_for_bytes(in > out ? in : out, master.both));
    }
    return true;
}

static bool measure_exchange(bench *b)
{
    bench_samples samples = {0}, floors = {0};

    if (!exchange_often(b, &samples, &floors))
        return false;
    master_record(b, NAMES("exchange of written models"), "us", master.plan.device_budget_bytes,
                  &samples, bench_median(&floors));
    return true;
}

/* A client that was started again finds the model where it was. */
static bool measure_attach(bench *b)
{
    const keeper_order o = master_order_of(KEEPER_ORDER_ATTACH, 0, model_names[0]);
    const int client = BENCH_CLIENTS - 1;
    bench_samples samples = {0}, again = {0};

    if (!master_order_turn(b, client, 0, GVM_LEASE_READ, GVM_HINT_HOT, 1, NULL))
        return false;
    for (int i = 0; i < 2 + (b->quick ? 3 : 9); i++) {
        keeper_answer a;
        double us, sums[MODELS] = {NAN, NAN};

        if (!master_order(b, client, "attaching", &o, &a) || !swap_once(b, 1, 0, &us, sums))
            return false;
        if (i < 2)
            continue;
        bench_add(&samples, a.us);
        bench_add(&again, us);
    }
    master_print_head(b, "a model on the device, attached again");
    master_record(b, NAMES("connect, open, acquire, read"), "us", master.plan.device_budget_bytes,
                  &samples, bench_median(&again)); /* one who has it mapped acquires and reads */
    return true;
}

static bool end_models(bench *b)
{
    bool good = true;

    for (uint32_t model = 0; model < MODELS; model++) {
        for (int i = BENCH_CLIENTS - 1; i > 0 && good; i--)
            good = master_order_simple(b, i, KEEPER_ORDER_CLOSE, model, NULL);
        good = good && master_end_object(b, 0, model, model_names[model]);
    }
    return good;
}

static void record_by_chunk_size(bench *b, const char *name, uint64_t chunk_bytes,
                                 const bench_samples *samples, double floor)
{
    const double median = bench_record(b, b->benchmark, name, "us", master.plan.device_budget_bytes,
                                       chunk_bytes, samples);
    char text[32];

    fprintf(b->text, "  %-42s %9s %12.4g %12.4g %8.3f  us\n", name,
            gvmi_size_text(chunk_bytes, text), median, floor, floor > 0 ? median / floor : 0);
}

/* What the size of chunks makes of it; the keeper chooses one by itself otherwise. */
static bool measure_chunk_size(bench *b, uint64_t chunk_bytes)
{
    const uint64_t bytes = master.plan.device_budget_bytes;
    double sums[MODELS] = {NAN, NAN}, in_bytes;
    bench_samples swaps = {0}, exchanges = {0}, floors = {0};
    bool good = true;

    for (uint32_t model = 0; model < MODELS && good; model++) {
        good = master_make_object(b, 0, model, model_names[model], bytes, chunk_bytes);
        for (int i = 1; i < BENCH_CLIENTS && good; i++)
            good = master_order_simple(b, i, KEEPER_ORDER_OPEN, model, model_names[model]);
    }
    if (!good || !swap_often(b, BENCH_CLIENTS, sums, &swaps, &in_bytes) ||
        !exchange_often(b, &exchanges, &floors))
        return false;
    record_by_chunk_size(b, "swap, 8 processes, by chunk size", chunk_bytes, &swaps,
                         master_us_for_bytes(in_bytes, master.h2d));
    record_by_chunk_size(b, "exchange of written models, by chunk size", chunk_bytes, &exchanges,
                         bench_median(&floors));
    return end_models(b);
}

void bench_models(bench *b)
{
    const uint64_t bytes = master.plan.device_budget_bytes;
    char text[32];
    bool good;

    bench_record_value(b, b->benchmark, "device budget", "bytes", 0, 0, (double)bytes);
    fprintf(b->text, "two objects of %s, of which one fits on the device\n",
            gvmi_size_text(bytes, text));
    good = master_connect_all(b) && master_measure_link(b);
    for (uint32_t model = 0; model < MODELS && good; model++)
        good = master_make_object(b, 0, model, model_names[model], bytes, 0);
    good = good && measure_swaps(b) && measure_exchange(b) && measure_attach(b) && end_models(b);
    if (good)
        master_print_head(b, "chunk sizes");
    for (uint64_t chunk_bytes = gvmi_round_up(bytes / 512, GVM_CHUNK_BYTES_MIN);
         chunk_bytes <= bytes / 16 && good; chunk_bytes *= 2)
        good = measure_chunk_size(b, chunk_bytes);
}
