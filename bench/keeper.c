/* gvmem-bench keeper: leases, movement under pressure, scans, eviction, growth. Each figure is
 * beside its floor: what the hardware, measured in the same run, would need at the least. */
#include "bench/keeper.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/size.h"
#include "driver/driver.h"

#define START_DELAY_NS 30000000 /* until all clients have read their orders */

/* ---- a) the fast path */

static void add_fast(bench *b, figure_names p50, figure_names p99, const char *rate_name,
                     const bench_samples samples[3], double floor_ns)
{
    master_record(b, p50, "ns", 0, &samples[0], floor_ns);
    master_record(b, p99, "ns", 0, &samples[1], floor_ns);
    fprintf(b->text, "  %-52s %12.4g %12.4g %8.3f  pairs/s\n", rate_name,
            bench_record(b, b->benchmark, rate_name, "pairs/s", 0, 0, &samples[2]), 1e9 / floor_ns,
            bench_median(&samples[2]) * floor_ns / 1e9);
}

/* Some clients at once, on the object in slot 0. */
static bool fast_pairs(bench *b, int clients, gvm_lease_mode mode, bench_samples samples[3],
                       double *floor_ns)
{
    keeper_order o = master_order_of(KEEPER_ORDER_FAST, 0, NULL);
    bool good = true;

    o.mode = mode;
    o.start_ns = bench_now_ns() + START_DELAY_NS;
    for (int i = 0; i < clients; i++)
        good = good && master_send(b, i, &o);
    for (int i = 0; i < clients && good; i++) {
        keeper_answer a;

        good = master_receive(b, i, "the fast path", &a);
        if (!good)
            break;
        bench_add(&samples[0], a.p50_ns);
        bench_add(&samples[1], a.p99_ns);
        bench_add(&samples[2], a.pairs_per_s);
        *floor_ns = a.floor_ns;
        if (i == 0 && clients == 1 && mode == GVM_LEASE_READ)
            bench_record_value(b, b->benchmark, "reading the clock, subtracted", "ns", 0, 0,
                               a.clock_ns);
    }
    return good;
}

static void measure_fast(bench *b)
{
    bench_samples one[3] = {{0}}, all[3] = {{0}}, writer[3] = {{0}};
    double floor_ns = 0;
    bool good = master_make_object(b, 0, 0, "/fast", master.plan.device_budget_bytes / 32, 0);

    master_print_head(b, "acquire and release of a resident object");
    for (int i = 1; i < BENCH_CLIENTS && good; i++)
        good = master_order_simple(b, i, KEEPER_ORDER_OPEN, 0, "/fast");
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
        good = master_order_simple(b, i, KEEPER_ORDER_CLOSE, 0, NULL);
    (void)(good && master_end_object(b, 0, 0, "/fast"));
}

/* ---- e) the slow path, growth */

/* Round trips of a byte to another process, of which a slow acquire needs one at the least. */
static bool echo_floor(bench *b, double *median_ns)
{
    enum { COUNT = 2000 };
    static uint64_t differences[COUNT];
    keeper_order o = master_order_of(KEEPER_ORDER_ECHO, 0, NULL);
    keeper_answer a;
    char byte = 1;

    o.count = COUNT;
    if (!master_send(b, 0, &o))
        return false;
    for (int i = 0; i < COUNT; i++) {
        const uint64_t begin = bench_stamp();

        if (send(master.clients[0].socket, &byte, 1, MSG_NOSIGNAL) != 1 ||
            recv(master.clients[0].socket, &byte, 1, 0) != 1)
            return false;
        differences[i] = bench_stamp() - begin;
    }
    *median_ns = bench_percentile_ns(differences, COUNT, 0.5);
    return master_receive(b, 0, "an echo", &a);
}

static void measure_slow(bench *b)
{
    bench_samples p50 = {0}, p99 = {0}, floors = {0};
    bool good = master_make_object(b, 1, 0, "/slow", master.plan.device_budget_bytes / 32, 0);
    const keeper_order o = master_order_of(KEEPER_ORDER_SLOW, 0, "/slow");

    master_print_head(b, "a lease that the keeper must give");
    for (int i = 0; i < (b->quick ? 3 : 7) && good; i++) {
        keeper_answer a;
        double floor_ns;

        good = master_order(b, 0, "the slow path", &o, &a) && echo_floor(b, &floor_ns);
        if (!good)
            break;
        bench_add(&p50, a.p50_ns / 1e3);
        bench_add(&p99, a.p99_ns / 1e3);
        bench_add(&floors, floor_ns / 1e3);
    }
    if (good) {
        master_record(b, NAMES("write lease taken from another, p50"), "us", 0, &p50,
                      bench_median(&floors));
        master_record(b, NAMES("write lease taken from another, p99"), "us", 0, &p99,
                      bench_median(&floors));
    }
    (void)(good && master_end_object(b, 1, 0, "/slow"));
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
    return bench_check_driver(b, result, "growing by the driver's calls");
}

static void measure_growth(bench *b)
{
    const uint64_t budget = master.plan.device_budget_bytes;
    const uint64_t bytes = budget / 4 < GVMI_GIB ? budget / 4 : GVMI_GIB;
    keeper_order create = master_order_of(KEEPER_ORDER_CREATE, 0, "/growth"),
                 grow = master_order_of(KEEPER_ORDER_GROW, 0, NULL);
    bench_samples samples = {0}, floors = {0};
    bool good = true;
    char text[32];

    create.reserve_bytes = grow.bytes = bytes;
    for (int i = 0; i < (b->quick ? 4 : 8) && good; i++) {
        keeper_answer grown, object;
        double floor_us;

        good = master_order_simple(b, 0, KEEPER_ORDER_TRIM, 0, NULL) &&
               master_order(b, 0, "/growth", &create, NULL) &&
               master_order_turn(b, 0, 0, GVM_LEASE_READ, GVM_HINT_NONE, 0, NULL) && /* so that it is mapped */
               master_order(b, 0, "growth", &grow, &grown) && master_get_figures(b, 0, &object) &&
               master_order_turn(b, 0, 0, GVM_LEASE_WRITE, GVM_HINT_NONE, 1, NULL) &&
               master_end_object(b, 0, 0, "/growth") &&
               master_order_simple(b, 0, KEEPER_ORDER_TRIM, 0, NULL) &&
               bare_growth(b, bytes, object.object.chunk_bytes, &floor_us);
        if (!good || i == 0)
            continue;
        bench_add(&samples, grown.us);
        bench_add(&floors, floor_us);
    }
    fprintf(b->text, "\ngrowth by %s\n", gvmi_size_text(bytes, text));
    if (good)
        master_record(b, NAMES("growth of an object, memory from the driver"), "us", bytes,
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

    if (!master_get_figures(b, client, &before) ||
        !master_order_turn(b, client, 0, mode, GVM_HINT_HOT, 3, &a) ||
        !master_get_figures(b, client, &after))
        return false;
    in = (double)(after.device.promoted_bytes - before.device.promoted_bytes);
    out = (double)(after.device.evicted_bytes - before.device.evicted_bytes);
    /* Clean chunks leave without a copy. */
    floor_us = mode == GVM_LEASE_READ ? master_us_for_bytes(in, master.h2d)
                                      : master_us_for_bytes(in > out ? in : out, master.both);
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
    master_record(b, acquire, "us", whole_mib(0.75 * (double)master.plan.device_budget_bytes),
                  &t.acquire_us, bench_median(&t.floor_us));
    fprintf(b->text, "  %-52s %12.4g %31s\n", turn_name,
            bench_record(b, b->benchmark, turn_name, "us", 0, 0, &t.turn_us), "us");
    fprintf(b->text, "  %-52s %12.4g %31s\n", in_name,
            bench_record(b, b->benchmark, in_name, "bytes", 0, 0, &t.bytes_in), "bytes");
    fprintf(b->text, "  %-52s %12.4g %12.4g %18s\n", rate_name,
            bench_record(b, b->benchmark, rate_name, "GB/s", 0, 0, &t.rate),
            mode == GVM_LEASE_READ ? master.h2d : 2 * master.both, "GB/s");
    if (bench_median(&t.bytes_in) == 0)
        bench_note(b, "%s: nothing moved, so nothing is shown", turn_name);
    return true;
}

static void measure_sets(bench *b)
{
    const uint64_t bytes = whole_mib(0.75 * (double)master.plan.device_budget_bytes);
    bool good = master_make_object(b, 0, 0, "/set/0", bytes, 0) &&
                master_make_object(b, 1, 0, "/set/1", bytes, 0);

    master_print_head(b, "two processes with 0.75 of the budget each, in turns");
    (void)(good &&
           measure_turns(b, GVM_LEASE_READ, NAMES("acquire of a clean set"), "turn with a clean set",
                         "bytes brought in for a clean set", "moved during the acquire, clean") &&
           measure_turns(b, GVM_LEASE_WRITE, NAMES("acquire of a dirty set"), "turn with a dirty set",
                         "bytes brought in for a dirty set", "moved during the acquire, dirty") &&
           master_end_object(b, 0, 0, "/set/0") && master_end_object(b, 1, 0, "/set/1"));
}

/* ---- c) scans of twice the budget */

/* What is lent is compared with the device's own memory. */
static bool measure_passes(bench *b, gvm_hint hint, figure_names names, const char *share_name,
                           uint64_t bytes, const keeper_answer *rates)
{
    bench_samples samples = {0}, floors = {0}, share = {0}, lent = {0};
    const bool lends = master.plan.lender >= 0 && master.plan.lender != master.plan.ordinal;

    for (int i = 0; i < 3 + (b->quick ? 3 : 7); i++) {
        keeper_answer before, a;
        double resident;

        if (!master_get_figures(b, 0, &before) ||
            !master_order_turn(b, 0, 0, GVM_LEASE_READ, hint, 1, &a))
            return false;
        if (i < 3)
            continue;
        resident = (double)before.object.device_bytes;
        bench_add(&samples, a.us);
        bench_add(&share, resident / (double)bytes);
        bench_add(&lent, (double)before.object.lent_bytes / (double)bytes);
        bench_add(&floors, master_us_for_bytes((double)bytes - resident,
                                               lends ? rates->device_rate : rates->host_rate) +
                               master_us_for_bytes(resident, rates->device_rate));
    }
    master_record(b, names, "us", bytes, &samples, bench_median(&floors));
    fprintf(b->text, "  %-52s %12.4g %31s\n", share_name,
            bench_record(b, b->benchmark, share_name, "share", bytes, 0, &share), "of 1");
    if (lends)
        fprintf(b->text, "  %-52s %12.4g %31s\n", "lent by the other device before it",
                bench_record(b, b->benchmark, "lent by the other device before it", "share", bytes,
                             0, &lent),
                "of 1");
    return true;
}

static void measure_scans(bench *b)
{
    const uint64_t bytes = 2 * master.plan.device_budget_bytes;
    keeper_order o = master_order_of(KEEPER_ORDER_HOST, 0, NULL);
    bench_samples baseline = {0};
    keeper_answer rates;

    o.bytes = bytes / 8 > 2 * GVMI_GIB ? 2 * GVMI_GIB : bytes / 8;
    master_print_head(b, "scans of an object of twice the budget");
    if (!master_order(b, 0, "host memory", &o, &rates))
        return;
    bench_record_value(b, b->benchmark, "sum kernel over host memory", "GB/s", o.bytes, 0,
                       rates.host_rate);
    bench_record_value(b, b->benchmark, "sum kernel over device memory", "GB/s", o.bytes, 0,
                       rates.device_rate);
    fprintf(b->text, "  %-52s %12.4g %31s\n  %-52s %12.4g %31s\n", "sum kernel over host memory",
            rates.host_rate, "GB/s", "sum kernel over device memory", rates.device_rate, "GB/s");
    bench_add(&baseline, master_us_for_bytes((double)bytes, rates.host_rate));
    if (master_make_object(b, 0, 0, "/scan", bytes, 0) &&
        measure_passes(b, GVM_HINT_SCAN, NAMES("a pass with the hint SCAN"),
                       "on the device before it, SCAN", bytes, &rates) &&
        measure_passes(b, GVM_HINT_NONE, NAMES("a pass without a hint"),
                       "on the device before it, no hint", bytes, &rates)) {
        fprintf(b->text, "  %-52s %12.4g %31s\n", "the same in host memory alone",
                bench_record(b, b->benchmark, "the same in host memory alone", "us", bytes, 0, &baseline),
                "us");
        master_end_object(b, 0, 0, "/scan");
    }
}

/* ---- d) eviction of what 8 processes have mapped */

static void measure_eviction(bench *b)
{
    const uint64_t budget = master.plan.device_budget_bytes;
    const uint64_t bytes = budget / 4 < GVMI_GIB ? budget / 4 : GVMI_GIB;
    const keeper_order o = master_order_of(KEEPER_ORDER_EVICT, 0, "/evicted");
    bench_samples answered = {0}, whole = {0};
    bool good = master_make_object(b, 0, 0, "/evicted", bytes, 0);

    master_print_head(b, "eviction of what 8 processes have mapped, dirty");
    for (int i = 1; i < BENCH_CLIENTS && good; i++)
        good = master_order_simple(b, i, KEEPER_ORDER_OPEN, 0, "/evicted");
    for (int i = 0; i < (b->quick ? 4 : 8) && good; i++) {
        keeper_answer a;

        good = master_order_turn(b, 0, 0, GVM_LEASE_WRITE, GVM_HINT_HOT, 1, NULL);
        for (int j = 0; j < BENCH_CLIENTS && good; j++)
            good = master_order_turn(b, j, 0, GVM_LEASE_READ, GVM_HINT_NONE, 1, NULL);
        good = good && master_order(b, 0, "eviction", &o, &a);
        if (!good)
            break;
        if (a.sum != (double)bytes)
            bench_note(b, "%.0f of %llu bytes were evicted", a.sum, (unsigned long long)bytes);
        if (i == 0)
            bench_record_value(b, b->benchmark, "the first eviction, until the driver has the memory",
                               "us", bytes, 0, a.us);
        if (i == 0)
            continue;
        bench_add(&answered, a.acquire_us);
        bench_add(&whole, a.us);
    }
    if (good) {
        master_record(b, NAMES("eviction, until it is answered"), "us", bytes, &answered,
                      master_us_for_bytes((double)bytes, master.d2h));
        master_record(b, NAMES("eviction, until the driver has the memory"), "us", bytes, &whole,
                      master_us_for_bytes((double)bytes, master.d2h));
    }
    for (int i = BENCH_CLIENTS - 1; i > 0 && good; i--)
        good = master_order_simple(b, i, KEEPER_ORDER_CLOSE, 0, NULL);
    (void)(good && master_end_object(b, 0, 0, "/evicted"));
}

void bench_keeper(bench *b)
{
    char device[32], host[32];

    bench_record_value(b, b->benchmark, "device budget", "bytes", 0, 0,
                       (double)master.plan.device_budget_bytes);
    bench_record_value(b, b->benchmark, "host budget", "bytes", 0, 0,
                       (double)master.plan.host_budget_bytes);
    fprintf(b->text, "a keeper with %s of the device and %s of host memory, %d clients\n",
            gvmi_size_text(master.plan.device_budget_bytes, device),
            gvmi_size_text(master.plan.host_budget_bytes, host), BENCH_CLIENTS);
    if (!master_connect_all(b) || !master_measure_link(b))
        return;
    if (master.plan.lender >= 0) {
        measure_scans(b);
        return;
    }
    measure_fast(b);
    measure_slow(b);
    measure_sets(b);
    measure_scans(b);
    measure_eviction(b);
    measure_growth(b);
}
