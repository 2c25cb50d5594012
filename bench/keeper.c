/* gvmem-bench keeper: leases, movement under pressure, scans, eviction, growth. Each figure is
 * beside its floor: what the hardware, measured in the same run, would need at the least. */
#include "bench/keeper.h"
#include "base/address.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/size.h"
#include "driver/driver.h"

#define ANSWER_MS 300000
#define START_DELAY_NS 30000000 /* until all clients have read their orders */
#define SEED 5u
#define DEVICE_BUDGET_BYTES (8 * GVMI_GIB)
#define QUICK_BUDGET_BYTES (256 * GVMI_MIB)
#define SOFTWARE_BUDGET_BYTES (64 * GVMI_MIB)
#define SECTION "keeper"
#define KEEPER BENCH_CLIENTS /* which process it is */
#define PROCESSES (BENCH_CLIENTS + 1)

static struct {
    keeper_plan plan;
    peer clients[PROCESSES]; /* and the keeper */
    double h2d, d2h, both;   /* GB/s of the link: alone, and each direction of both at once */
} run;

/* ---- orders */

static bool send_order_message(bench *b, int client, const keeper_order *o)
{
    if (peer_send(run.clients[client].socket, o, sizeof *o))
        return true;
    bench_note(b, "client %d has ended", client);
    b->code = TOOL_FAILED;
    return false;
}

static bool receive_answer(bench *b, int client, const char *what, keeper_answer *a)
{
    peer_answer got = peer_receive(run.clients[client].socket, a, sizeof *a, ANSWER_MS);

    if (got == PEER_OK && a->status == GVM_OK)
        return true;
    if (got == PEER_OK)
        bench_note(b, "%s: client %d failed: %.300s", what, client, a->text);
    else
        bench_note(b, "%s: client %d %s", what, client,
                   got == PEER_SILENT ? "did not answer" : "ended");
    b->code = TOOL_FAILED;
    return false;
}

static bool send_order(bench *b, int client, const char *what, const keeper_order *o, keeper_answer *a)
{
    keeper_answer own;

    return send_order_message(b, client, o) && receive_answer(b, client, what, a != NULL ? a : &own);
}

static keeper_order order_of(keeper_order_kind kind, uint32_t slot, const char *name)
{
    keeper_order o;

    memset(&o, 0, sizeof o);
    o.kind = kind;
    o.slot = slot;
    if (name != NULL)
        snprintf(o.name, sizeof o.name, "%s", name);
    memcpy(o.path, run.plan.path, sizeof run.plan.path);
    return o;
}

static bool send_simple_order(bench *b, int client, keeper_order_kind kind, uint32_t slot,
                              const char *name)
{
    const keeper_order o = order_of(kind, slot, name);

    return send_order(b, client, name != NULL ? name : "an order", &o, NULL);
}

static bool order_turn(bench *b, int client, uint32_t slot, gvm_lease_mode mode, gvm_hint hint,
                       uint32_t count, keeper_answer *a)
{
    keeper_order o = order_of(KEEPER_ORDER_TURN, slot, NULL);

    o.mode = mode;
    o.hint = hint;
    o.count = count;
    o.seed = SEED;
    return send_order(b, client, "a turn", &o, a);
}

/* An object of so many bytes with numbers in it. */
static bool make_object(bench *b, int client, uint32_t slot, const char *name, uint64_t bytes)
{
    keeper_order o = order_of(KEEPER_ORDER_CREATE, slot, name);

    o.bytes = o.reserve_bytes = bytes;
    return send_order(b, client, name, &o, NULL) &&
           order_turn(b, client, slot, GVM_LEASE_WRITE, GVM_HINT_NONE, 1, NULL);
}

static bool end_object(bench *b, int client, uint32_t slot, const char *name)
{
    return send_simple_order(b, client, KEEPER_ORDER_CLOSE, slot, NULL) &&
           send_simple_order(b, client, KEEPER_ORDER_DROP, 0, name);
}

static bool get_figures(bench *b, int client, uint32_t slot, keeper_answer *a)
{
    const keeper_order o = order_of(KEEPER_ORDER_FIGURES, slot, NULL);

    return send_order(b, client, "figures", &o, a);
}

/* ---- figures with floors */

/* Prints and records a figure, its floor, and how often the floor goes into it. Names are
 * constants. */
typedef struct figure_names {
    const char *name, *floor, *ratio;
} figure_names;
#define NAMES(name) ((figure_names){name, name ", floor", name ", over its floor"})

static void record_with_floor(bench *b, figure_names names, const char *unit, uint64_t bytes,
                              const bench_samples *samples, double floor)
{
    const double median = bench_record(b, SECTION, names.name, unit, bytes, 0, samples);

    bench_record_value(b, SECTION, names.floor, unit, bytes, 0, floor);
    bench_record_value(b, SECTION, names.ratio, "ratio", bytes, 0, floor > 0 ? median / floor : 0);
    fprintf(b->text, "  %-52s %12.4g %12.4g %8.3f  %s\n", names.name, median, floor,
            floor > 0 ? median / floor : 0, unit);
}

static void print_keeper_head(bench *b, const char *title)
{
    fprintf(b->text, "\n%-54s %12s %12s %8s\n", title, "median", "floor", "ratio");
}

/* ---- the link, in this very run */

typedef struct link_ends {
    uint64_t bytes;
    void *host[2];
    CUdeviceptr device[2];
    CUstream streams[2];
} link_ends;

static bool good_call(bench *b, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS)
        bench_failed_driver(b, result, call);
    return result == CUDA_SUCCESS;
}

static bool link_make(bench *b, link_ends *l)
{
    for (int i = 0; i < 2; i++) {
        if (!good_call(b, gvmi_cu->cuMemHostAlloc(&l->host[i], l->bytes, 0), "cuMemHostAlloc") ||
            !good_call(b, gvmi_cu->cuMemAlloc(&l->device[i], l->bytes), "cuMemAlloc") ||
            !good_call(b, gvmi_cu->cuStreamCreate(&l->streams[i], CU_STREAM_NON_BLOCKING),
                       "cuStreamCreate"))
            return false;
        if (gvm_kernel_fill_random_f64(b->device, gvmi_pointer(l->device[i]), l->bytes / 8, 0, SEED,
                                       NULL) != GVM_OK ||
            gvm_device_synchronize(b->device) != GVM_OK) {
            bench_failed(b, "filling the memory to copy");
            return false;
        }
        if (!good_call(b, gvmi_cu->cuMemcpyDtoHAsync(l->host[i], l->device[i], l->bytes, l->streams[i]),
                       "cuMemcpyDtoHAsync"))
            return false;
    }
    return good_call(b, gvmi_cu->cuCtxSynchronize(), "cuCtxSynchronize");
}

static void link_end(link_ends *l)
{
    for (int i = 0; i < 2; i++) {
        if (l->streams[i] != NULL)
            gvmi_cu->cuStreamDestroy(l->streams[i]);
        if (l->device[i] != 0)
            gvmi_cu->cuMemFree(l->device[i]);
        if (l->host[i] != NULL)
            gvmi_cu->cuMemFreeHost(l->host[i]);
    }
}

/* GB/s of each direction that is asked for. */
static bool link_rate(bench *b, const link_ends *l, bool in, bool out, const char *name, double *rate)
{
    bench_samples samples = {0};

    for (int i = 0; i < (b->quick ? 5 : 11) + 2; i++) {
        const double start_us = tool_now_us();
        CUresult result = CUDA_SUCCESS;

        if (in)
            result = gvmi_cu->cuMemcpyHtoDAsync(l->device[0], l->host[0], l->bytes, l->streams[0]);
        if (out && result == CUDA_SUCCESS)
            result = gvmi_cu->cuMemcpyDtoHAsync(l->host[1], l->device[1], l->bytes, l->streams[1]);
        if (result == CUDA_SUCCESS)
            result = gvmi_cu->cuCtxSynchronize();
        if (!good_call(b, result, "cuMemcpyAsync"))
            return false;
        if (i >= 2)
            bench_add(&samples, (double)l->bytes / (tool_now_us() - start_us) / 1e3);
    }
    *rate = bench_record(b, SECTION, name, "GB/s", l->bytes, 0, &samples);
    fprintf(b->text, "  %-52s %12.4g %31s\n", name, *rate, "GB/s");
    return true;
}

static bool measure_link(bench *b)
{
    link_ends l = {.bytes = run.plan.device_budget_bytes / 16};
    bool good;

    print_keeper_head(b, "the link, pinned copies");
    good = link_make(b, &l) && link_rate(b, &l, true, false, "link, host to device", &run.h2d) &&
           link_rate(b, &l, false, true, "link, device to host", &run.d2h) &&
           link_rate(b, &l, true, true, "link, each of both directions at once", &run.both);
    link_end(&l);
    return good;
}

static double us_for_bytes(double bytes, double gb_per_s)
{
    return gb_per_s > 0 ? bytes / gb_per_s / 1e3 : 0;
}

/* ---- a) the fast path */

static void add_fast(bench *b, figure_names p50, figure_names p99, const char *rate_name,
                     const bench_samples samples[3], double floor_ns)
{
    record_with_floor(b, p50, "ns", 0, &samples[0], floor_ns);
    record_with_floor(b, p99, "ns", 0, &samples[1], floor_ns);
    fprintf(b->text, "  %-52s %12.4g %12.4g %8.3f  pairs/s\n", rate_name,
            bench_record(b, SECTION, rate_name, "pairs/s", 0, 0, &samples[2]), 1e9 / floor_ns,
            bench_median(&samples[2]) * floor_ns / 1e9);
}

/* Some clients at once, on the object in slot 0. */
static bool fast_pairs(bench *b, int clients, gvm_lease_mode mode, bench_samples samples[3],
                       double *floor_ns)
{
    keeper_order o = order_of(KEEPER_ORDER_FAST, 0, NULL);
    bool good = true;

    o.mode = mode;
    o.start_ns = bench_now_ns() + START_DELAY_NS;
    for (int i = 0; i < clients; i++)
        good = good && send_order_message(b, i, &o);
    for (int i = 0; i < clients && good; i++) {
        keeper_answer a;

        good = receive_answer(b, i, "the fast path", &a);
        if (!good)
            break;
        bench_add(&samples[0], a.p50_ns);
        bench_add(&samples[1], a.p99_ns);
        bench_add(&samples[2], a.pairs_per_s);
        *floor_ns = a.floor_ns;
        if (i == 0 && clients == 1 && mode == GVM_LEASE_READ)
            bench_record_value(b, SECTION, "reading the clock, subtracted", "ns", 0, 0, a.clock_ns);
    }
    return good;
}

static void measure_fast(bench *b)
{
    bench_samples one[3] = {{0}}, all[3] = {{0}}, writer[3] = {{0}};
    double floor_ns = 0;
    bool good = make_object(b, 0, 0, "/fast", run.plan.device_budget_bytes / 32);

    print_keeper_head(b, "acquire and release of a resident object");
    for (int i = 1; i < BENCH_CLIENTS && good; i++)
        good = send_simple_order(b, i, KEEPER_ORDER_OPEN, 0, "/fast");
    for (int i = 0; i < (b->quick ? 3 : 7) && good; i++)
        good = fast_pairs(b, 1, GVM_LEASE_READ, one, &floor_ns) &&
               fast_pairs(b, BENCH_CLIENTS, GVM_LEASE_READ, all, &floor_ns) &&
               fast_pairs(b, 1, GVM_LEASE_WRITE, writer, &floor_ns);
    if (good) {
        add_fast(b, NAMES("read lease, p50"), NAMES("read lease, p99"), "read leases, 1 process",
                 one, floor_ns);
        add_fast(b, NAMES("write lease, p50"), NAMES("write lease, p99"), "write leases, 1 process",
                 writer, floor_ns);
        add_fast(b, NAMES("read lease, p50 of each of 8 processes"),
                 NAMES("read lease, p99 of each of 8 processes"),
                 "read leases, each of 8 processes", all, floor_ns);
        if (sysconf(_SC_NPROCESSORS_ONLN) < BENCH_CLIENTS)
            bench_note(b, "8 processes share %ld cores", sysconf(_SC_NPROCESSORS_ONLN));
    }
    for (int i = BENCH_CLIENTS - 1; i > 0 && good; i--)
        good = send_simple_order(b, i, KEEPER_ORDER_CLOSE, 0, NULL);
    (void)(good && end_object(b, 0, 0, "/fast"));
}

/* ---- e) the slow path, growth */

/* Round trips of a byte to another process, of which a slow acquire needs one at the least. */
static bool echo_floor(bench *b, double *median_ns)
{
    enum { COUNT = 2000 };
    static uint64_t differences[COUNT];
    keeper_order o = order_of(KEEPER_ORDER_ECHO, 0, NULL);
    keeper_answer a;
    char byte = 1;

    o.count = COUNT;
    if (!send_order_message(b, 0, &o))
        return false;
    for (int i = 0; i < COUNT; i++) {
        const uint64_t begin = bench_stamp();

        if (send(run.clients[0].socket, &byte, 1, MSG_NOSIGNAL) != 1 ||
            recv(run.clients[0].socket, &byte, 1, 0) != 1)
            return false;
        differences[i] = bench_stamp() - begin;
    }
    *median_ns = bench_percentile_ns(differences, COUNT, 0.5);
    return receive_answer(b, 0, "an echo", &a);
}

static void measure_slow(bench *b)
{
    bench_samples p50 = {0}, p99 = {0}, floors = {0};
    bool good = make_object(b, 1, 0, "/slow", run.plan.device_budget_bytes / 32);
    const keeper_order o = order_of(KEEPER_ORDER_SLOW, 0, "/slow");

    print_keeper_head(b, "a lease that the keeper must give");
    for (int i = 0; i < (b->quick ? 3 : 7) && good; i++) {
        keeper_answer a;
        double floor_ns;

        good = send_order(b, 0, "the slow path", &o, &a) && echo_floor(b, &floor_ns);
        if (!good)
            break;
        bench_add(&p50, a.p50_ns / 1e3);
        bench_add(&p99, a.p99_ns / 1e3);
        bench_add(&floors, floor_ns / 1e3);
    }
    if (good) {
        record_with_floor(b, NAMES("write lease taken from another, p50"), "us", 0, &p50,
                          bench_median(&floors));
        record_with_floor(b, NAMES("write lease taken from another, p99"), "us", 0, &p99,
                          bench_median(&floors));
    }
    (void)(good && end_object(b, 1, 0, "/slow"));
}

/* The driver's calls alone for chunks of the same size, and writing zeros over them. */
static bool bare_growth(bench *b, uint64_t bytes, uint64_t chunk_bytes, double *us)
{
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, b->ordinal};
    const CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = here};
    const uint64_t chunks = bytes / chunk_bytes;
    CUmemGenericAllocationHandle *handles = calloc(chunks, sizeof *handles);
    CUdeviceptr address = 0;
    uint64_t mapped = 0;
    double start_us;
    CUresult result = handles != NULL ? gvmi_cu->cuMemAddressReserve(&address, bytes, 0, 0, 0)
                                      : CUDA_ERROR_OUT_OF_MEMORY;

    start_us = tool_now_us();
    for (; mapped < chunks && result == CUDA_SUCCESS; mapped++) {
        result = gvmi_cu->cuMemCreate(&handles[mapped], chunk_bytes, &prop, 0);
        if (result != CUDA_SUCCESS)
            break;
        result = gvmi_cu->cuMemMap(address + mapped * chunk_bytes, chunk_bytes, 0, handles[mapped], 0);
        if (result != CUDA_SUCCESS) {
            gvmi_cu->cuMemRelease(handles[mapped]);
            break;
        }
    }
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuMemSetAccess(address, bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuMemsetD8Async(address, 0, bytes, b->device->stream);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamSynchronize(b->device->stream);
    *us = tool_now_us() - start_us;
    if (mapped > 0)
        gvmi_cu->cuMemUnmap(address, mapped * chunk_bytes);
    for (uint64_t i = 0; i < mapped; i++)
        gvmi_cu->cuMemRelease(handles[i]);
    if (address != 0)
        gvmi_cu->cuMemAddressFree(address, bytes);
    free(handles);
    return good_call(b, result, "growing by the driver's calls");
}

static void measure_growth(bench *b)
{
    const uint64_t budget = run.plan.device_budget_bytes;
    const uint64_t bytes = budget / 4 < GVMI_GIB ? budget / 4 : GVMI_GIB;
    keeper_order create = order_of(KEEPER_ORDER_CREATE, 0, "/growth"),
                 grow = order_of(KEEPER_ORDER_GROW, 0, NULL);
    bench_samples samples = {0}, floors = {0};
    bool good = true;
    char text[32];

    create.reserve_bytes = grow.bytes = bytes;
    for (int i = 0; i < (b->quick ? 4 : 8) && good; i++) {
        keeper_answer grown, object;
        double floor_us;

        good = send_simple_order(b, 0, KEEPER_ORDER_TRIM, 0, NULL) &&
               send_order(b, 0, "/growth", &create, NULL) &&
               order_turn(b, 0, 0, GVM_LEASE_READ, GVM_HINT_NONE, 0, NULL) && /* so that it is mapped */
               send_order(b, 0, "growth", &grow, &grown) && get_figures(b, 0, 0, &object) &&
               order_turn(b, 0, 0, GVM_LEASE_WRITE, GVM_HINT_NONE, 1, NULL) &&
               end_object(b, 0, 0, "/growth") && send_simple_order(b, 0, KEEPER_ORDER_TRIM, 0, NULL) &&
               bare_growth(b, bytes, object.object.chunk_bytes, &floor_us);
        if (!good || i == 0)
            continue;
        bench_add(&samples, grown.us);
        bench_add(&floors, floor_us);
    }
    fprintf(b->text, "\ngrowth by %s\n", gvmi_size_text(bytes, text));
    if (good)
        record_with_floor(b, NAMES("growth of an object, memory from the driver"), "us", bytes,
                          &samples, bench_median(&floors));
}

/* ---- b) two working sets that do not fit together */

static uint64_t whole_mib(double bytes)
{
    return (uint64_t)bytes / (2 * GVMI_MIB) * (2 * GVMI_MIB);
}

typedef struct turns {
    bench_samples turn_us, acquire_us, bytes_in, rate, floor_us;
} turns;

/* One turn of one of the two; what moved for it, and what the link would need for that. */
static bool measure_one_turn(bench *b, int client, gvm_lease_mode mode, turns *t)
{
    keeper_answer before, after, a;
    double in, out, floor_us;

    if (!get_figures(b, client, 0, &before) ||
        !order_turn(b, client, 0, mode, GVM_HINT_HOT, 3, &a) || !get_figures(b, client, 0, &after))
        return false;
    in = (double)(after.device.promoted_bytes - before.device.promoted_bytes);
    out = (double)(after.device.evicted_bytes - before.device.evicted_bytes);
    /* Clean chunks leave without a copy. */
    floor_us = mode == GVM_LEASE_READ ? us_for_bytes(in, run.h2d)
                                      : us_for_bytes(in > out ? in : out, run.both);
    if (t == NULL)
        return true;
    bench_add(&t->turn_us, a.us);
    bench_add(&t->acquire_us, a.acquire_us);
    bench_add(&t->bytes_in, in);
    bench_add(&t->rate, (in + (mode == GVM_LEASE_READ ? 0 : out)) / a.acquire_us / 1e3);
    bench_add(&t->floor_us, floor_us);
    return true;
}

static bool measure_turns(bench *b, gvm_lease_mode mode, figure_names acquire,
                          const char *turn_name, const char *in_name, const char *rate_name)
{
    turns t = {{0}, {0}, {0}, {0}, {0}};
    bool good = true;

    for (int i = 0; i < 4 + 2 * (b->quick ? 3 : 8) && good; i++)
        good = measure_one_turn(b, i & 1, mode, i < 4 ? NULL : &t);
    if (!good)
        return false;
    record_with_floor(b, acquire, "us", whole_mib(0.75 * (double)run.plan.device_budget_bytes),
                      &t.acquire_us, bench_median(&t.floor_us));
    fprintf(b->text, "  %-52s %12.4g %31s\n", turn_name,
            bench_record(b, SECTION, turn_name, "us", 0, 0, &t.turn_us), "us");
    fprintf(b->text, "  %-52s %12.4g %31s\n", in_name,
            bench_record(b, SECTION, in_name, "bytes", 0, 0, &t.bytes_in), "bytes");
    fprintf(b->text, "  %-52s %12.4g %12.4g %18s\n", rate_name,
            bench_record(b, SECTION, rate_name, "GB/s", 0, 0, &t.rate),
            mode == GVM_LEASE_READ ? run.h2d : 2 * run.both, "GB/s");
    if (bench_median(&t.bytes_in) == 0)
        bench_note(b, "%s: nothing moved, so nothing is shown", turn_name);
    return true;
}

static void measure_sets(bench *b)
{
    const uint64_t bytes = whole_mib(0.75 * (double)run.plan.device_budget_bytes);
    bool good = make_object(b, 0, 0, "/set/0", bytes) && make_object(b, 1, 0, "/set/1", bytes);

    print_keeper_head(b, "two processes with 0.75 of the budget each, in turns");
    (void)(good &&
           measure_turns(b, GVM_LEASE_READ, NAMES("acquire of a clean set"), "turn with a clean set",
                         "bytes brought in for a clean set", "moved during the acquire, clean") &&
           measure_turns(b, GVM_LEASE_WRITE, NAMES("acquire of a dirty set"), "turn with a dirty set",
                         "bytes brought in for a dirty set", "moved during the acquire, dirty") &&
           end_object(b, 0, 0, "/set/0") && end_object(b, 1, 0, "/set/1"));
}

/* ---- c) scans of twice the budget */

static bool measure_passes(bench *b, gvm_hint hint, figure_names names, const char *share_name,
                           uint64_t bytes, const keeper_answer *rates)
{
    bench_samples samples = {0}, floors = {0}, share = {0};

    for (int i = 0; i < 3 + (b->quick ? 3 : 7); i++) {
        keeper_answer before, a;
        double resident;

        if (!get_figures(b, 0, 0, &before) || !order_turn(b, 0, 0, GVM_LEASE_READ, hint, 1, &a))
            return false;
        if (i < 3)
            continue;
        resident = (double)before.object.device_bytes;
        bench_add(&samples, a.us);
        bench_add(&share, resident / (double)bytes);
        bench_add(&floors, us_for_bytes((double)bytes - resident, rates->host_rate) +
                               us_for_bytes(resident, rates->device_rate));
    }
    record_with_floor(b, names, "us", bytes, &samples, bench_median(&floors));
    fprintf(b->text, "  %-52s %12.4g %31s\n", share_name,
            bench_record(b, SECTION, share_name, "share", bytes, 0, &share), "of 1");
    return true;
}

static void measure_scans(bench *b)
{
    const uint64_t bytes = 2 * run.plan.device_budget_bytes;
    keeper_order o = order_of(KEEPER_ORDER_HOST, 0, NULL);
    bench_samples baseline = {0};
    keeper_answer rates;

    o.bytes = bytes / 8 > 2 * GVMI_GIB ? 2 * GVMI_GIB : bytes / 8;
    print_keeper_head(b, "scans of an object of twice the budget");
    if (!send_order(b, 0, "host memory", &o, &rates))
        return;
    bench_record_value(b, SECTION, "sum kernel over host memory", "GB/s", o.bytes, 0, rates.host_rate);
    bench_record_value(b, SECTION, "sum kernel over device memory", "GB/s", o.bytes, 0,
                       rates.device_rate);
    fprintf(b->text, "  %-52s %12.4g %31s\n  %-52s %12.4g %31s\n", "sum kernel over host memory",
            rates.host_rate, "GB/s", "sum kernel over device memory", rates.device_rate, "GB/s");
    bench_add(&baseline, us_for_bytes((double)bytes, rates.host_rate));
    if (make_object(b, 0, 0, "/scan", bytes) &&
        measure_passes(b, GVM_HINT_SCAN, NAMES("a pass with the hint SCAN"),
                       "on the device before it, SCAN", bytes, &rates) &&
        measure_passes(b, GVM_HINT_NONE, NAMES("a pass without a hint"),
                       "on the device before it, no hint", bytes, &rates)) {
        fprintf(b->text, "  %-52s %12.4g %31s\n", "the same in host memory alone",
                bench_record(b, SECTION, "the same in host memory alone", "us", bytes, 0, &baseline),
                "us");
        end_object(b, 0, 0, "/scan");
    }
}

/* ---- d) eviction of what 8 processes have mapped */

static void measure_eviction(bench *b)
{
    const uint64_t budget = run.plan.device_budget_bytes;
    const uint64_t bytes = budget / 4 < GVMI_GIB ? budget / 4 : GVMI_GIB;
    const keeper_order o = order_of(KEEPER_ORDER_EVICT, 0, "/evicted");
    bench_samples answered = {0}, whole = {0};
    bool good = make_object(b, 0, 0, "/evicted", bytes);

    print_keeper_head(b, "eviction of what 8 processes have mapped, dirty");
    for (int i = 1; i < BENCH_CLIENTS && good; i++)
        good = send_simple_order(b, i, KEEPER_ORDER_OPEN, 0, "/evicted");
    for (int i = 0; i < (b->quick ? 4 : 8) && good; i++) {
        keeper_answer a;

        good = order_turn(b, 0, 0, GVM_LEASE_WRITE, GVM_HINT_HOT, 1, NULL);
        for (int j = 0; j < BENCH_CLIENTS && good; j++)
            good = order_turn(b, j, 0, GVM_LEASE_READ, GVM_HINT_NONE, 1, NULL);
        good = good && send_order(b, 0, "eviction", &o, &a);
        if (!good)
            break;
        if (a.sum != (double)bytes)
            bench_note(b, "%.0f of %llu bytes were evicted", a.sum, (unsigned long long)bytes);
        if (i == 0)
            bench_record_value(b, SECTION, "the first eviction, until the driver has the memory",
                               "us", bytes, 0, a.us);
        if (i == 0)
            continue;
        bench_add(&answered, a.acquire_us);
        bench_add(&whole, a.us);
    }
    if (good) {
        record_with_floor(b, NAMES("eviction, until it is answered"), "us", bytes, &answered,
                          us_for_bytes((double)bytes, run.d2h));
        record_with_floor(b, NAMES("eviction, until the driver has the memory"), "us", bytes,
                          &whole, us_for_bytes((double)bytes, run.d2h));
    }
    for (int i = BENCH_CLIENTS - 1; i > 0 && good; i--)
        good = send_simple_order(b, i, KEEPER_ORDER_CLOSE, 0, NULL);
    (void)(good && end_object(b, 0, 0, "/evicted"));
}

/* ---- the run */

/* How much of the device may be the keeper's: known before any driver is, because the processes
 * are forked first. */
static uint64_t choose_budget(const bench *b)
{
    const char *driver = getenv("GVMEM_DRIVER");

    if (b->max_bytes != 0)
        return gvmi_round_down(b->max_bytes, 32 * GVMI_MIB);
    if ((driver != NULL && strcmp(driver, "soft") == 0) || access("/dev/nvidiactl", F_OK) != 0)
        return SOFTWARE_BUDGET_BYTES;
    return b->quick ? QUICK_BUDGET_BYTES : DEVICE_BUDGET_BYTES;
}

bool bench_keeper_start(bench *b)
{
    run.plan.ordinal = b->ordinal;
    run.plan.trace_path = b->trace_path;
    run.plan.device_budget_bytes = choose_budget(b);
    run.plan.host_budget_bytes = 4 * run.plan.device_budget_bytes;
    snprintf(run.plan.folder, sizeof run.plan.folder, "/tmp/gvmem-bench-XXXXXX");
    if (mkdtemp(run.plan.folder) == NULL)
        return tool_error("cannot make a folder in /tmp") == TOOL_DONE;
    snprintf(run.plan.path, sizeof run.plan.path, "%s/socket", run.plan.folder);
    return peer_start(run.clients, PROCESSES, bench_keeper_client, &run.plan);
}

static bool connect_all(bench *b)
{
    bool good = send_simple_order(b, KEEPER, KEEPER_ORDER_SERVE, 0, "the keeper");

    for (int i = 0; i < BENCH_CLIENTS && good; i++)
        good = send_simple_order(b, i, KEEPER_ORDER_CONNECT, 0, NULL);
    return good;
}

void bench_keeper(bench *b)
{
    char device[32], host[32];

    bench_record_value(b, SECTION, "device budget", "bytes", 0, 0,
                       (double)run.plan.device_budget_bytes);
    bench_record_value(b, SECTION, "host budget", "bytes", 0, 0, (double)run.plan.host_budget_bytes);
    fprintf(b->text, "a keeper with %s of the device and %s of host memory, %d clients\n",
            gvmi_size_text(run.plan.device_budget_bytes, device),
            gvmi_size_text(run.plan.host_budget_bytes, host), BENCH_CLIENTS);
    if (!connect_all(b) || !measure_link(b))
        return;
    measure_fast(b);
    measure_slow(b);
    measure_sets(b);
    measure_scans(b);
    measure_eviction(b);
    measure_growth(b);
}

int bench_keeper_finish(void)
{
    int code = TOOL_DONE;
    char how[80];

    for (int i = 0; i < PROCESSES; i++)
        if (!peer_finish(&run.clients[i], 10000, how, sizeof how))
            code = tool_error("%s %d %s", i == KEEPER ? "the keeper, process" : "client", i, how);
    unlink(run.plan.path);
    rmdir(run.plan.folder);
    return code;
}
