/* The master's side of what measures keepers: the processes, orders to them, figures beside their floors, and the
 * link's speed. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/size.h"
#include "bench/keeper.h"

#define ANSWER_MS 300000
#define QUICK_BUDGET_BYTES (256 * GVMI_MIB)
#define SOFTWARE_BUDGET_BYTES (64 * GVMI_MIB)
#define SEED 5u
#define KEEPER BENCH_CLIENTS /* which process it is */
#define PROCESSES (BENCH_CLIENTS + 1)

bench_master master;

/* ---- orders */

bool master_send(bench *b, int client, const keeper_order *o)
{
    if (peer_send(master.clients[client].socket, o, sizeof *o))
        return true;
    bench_note(b, "client %d has ended", client);
    b->code = TOOL_FAILED;
    return false;
}

bool master_receive(bench *b, int client, const char *what, keeper_answer *a)
{
    peer_answer got = peer_receive(master.clients[client].socket, a, sizeof *a, ANSWER_MS);

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

bool master_order(bench *b, int client, const char *what, const keeper_order *o, keeper_answer *a)
{
    keeper_answer own;

    return master_send(b, client, o) && master_receive(b, client, what, a != NULL ? a : &own);
}

keeper_order master_order_of(keeper_order_kind kind, uint32_t slot, const char *name)
{
    keeper_order o;

    memset(&o, 0, sizeof o);
    o.kind = kind;
    o.slot = slot;
    if (name != NULL)
        snprintf(o.name, sizeof o.name, "%s", name);
    memcpy(o.path, master.plan.path, sizeof master.plan.path);
    return o;
}

bool master_order_simple(bench *b, int client, keeper_order_kind kind, uint32_t slot, const char *name)
{
    const keeper_order o = master_order_of(kind, slot, name);

    return master_order(b, client, name != NULL ? name : "an order", &o, NULL);
}

bool master_order_turn(bench *b, int client, uint32_t slot, gvm_lease_mode mode, gvm_hint hint,
                       uint32_t count, keeper_answer *a)
{
    keeper_order o = master_order_of(KEEPER_ORDER_TURN, slot, NULL);

    o.mode = mode;
    o.hint = hint;
    o.count = count;
    o.seed = SEED + slot;
    return master_order(b, client, "a turn", &o, a);
}

bool master_make_object(bench *b, int client, uint32_t slot, const char *name, uint64_t bytes,
                        uint64_t chunk_bytes)
{
    keeper_order o = master_order_of(KEEPER_ORDER_CREATE, slot, name);

    o.bytes = o.reserve_bytes = bytes;
    o.chunk_bytes = chunk_bytes;
    return master_order(b, client, name, &o, NULL) &&
           master_order_turn(b, client, slot, GVM_LEASE_WRITE, GVM_HINT_NONE, 1, NULL);
}

bool master_end_object(bench *b, int client, uint32_t slot, const char *name)
{
    return master_order_simple(b, client, KEEPER_ORDER_CLOSE, slot, NULL) &&
           master_order_simple(b, client, KEEPER_ORDER_DROP, 0, name);
}

bool master_get_figures(bench *b, int client, keeper_answer *a)
{
    const keeper_order o = master_order_of(KEEPER_ORDER_FIGURES, 0, NULL);

    return master_order(b, client, "figures", &o, a);
}

/* ---- figures with floors */

void master_record(bench *b, figure_names names, const char *unit, uint64_t bytes,
                   const bench_samples *samples, double floor)
{
    const double median = bench_record(b, b->benchmark, names.name, unit, bytes, 0, samples);

    bench_record_value(b, b->benchmark, names.floor, unit, bytes, 0, floor);
    bench_record_value(b, b->benchmark, names.ratio, "ratio", bytes, 0, floor > 0 ? median / floor : 0);
    fprintf(b->text, "  %-52s %12.4g %12.4g %8.3f  %s\n", names.name, median, floor,
            floor > 0 ? median / floor : 0, unit);
}

void master_print_head(bench *b, const char *title)
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

static bool link_make(bench *b, link_ends *l)
{
    for (int i = 0; i < 2; i++) {
        if (!bench_check_driver(b, gvmi_cu->cuMemHostAlloc(&l->host[i], l->bytes, 0), "cuMemHostAlloc") ||
            !bench_check_driver(b, gvmi_cu->cuMemAlloc(&l->device[i], l->bytes), "cuMemAlloc") ||
            !bench_check_driver(b, gvmi_cu->cuStreamCreate(&l->streams[i], CU_STREAM_NON_BLOCKING),
                                "cuStreamCreate"))
            return false;
        if (gvm_kernel_fill_random_f64(b->device, gvmi_pointer(l->device[i]), l->bytes / 8, 0, SEED,
                                       NULL) != GVM_OK ||
            gvm_device_synchronize(b->device) != GVM_OK) {
            bench_failed(b, "filling the memory to copy");
            return false;
        }
        if (!bench_check_driver(
                b, gvmi_cu->cuMemcpyDtoHAsync(l->host[i], l->device[i], l->bytes, l->streams[i]),
                "cuMemcpyDtoHAsync"))
            return false;
    }
    return bench_check_driver(b, gvmi_cu->cuCtxSynchronize(), "cuCtxSynchronize");
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
        if (!bench_check_driver(b, result, "cuMemcpyAsync"))
            return false;
        if (i >= 2)
            bench_add(&samples, (double)l->bytes / (tool_now_us() - start_us) / 1e3);
    }
    *rate = bench_record(b, b->benchmark, name, "GB/s", l->bytes, 0, &samples);
    fprintf(b->text, "  %-52s %12.4g %31s\n", name, *rate, "GB/s");
    return true;
}

bool master_measure_link(bench *b)
{
    link_ends l = {.bytes = master.plan.device_budget_bytes / 16};
    bool good;

    master_print_head(b, "the link, pinned copies");
    good = link_make(b, &l) && link_rate(b, &l, true, false, "link, host to device", &master.h2d) &&
           link_rate(b, &l, false, true, "link, device to host", &master.d2h) &&
           link_rate(b, &l, true, true, "link, each of both directions at once", &master.both);
    link_end(&l);
    return good;
}

double master_us_for_bytes(double bytes, double gb_per_s)
{
    return gb_per_s > 0 ? bytes / gb_per_s / 1e3 : 0;
}

/* ---- the processes */

/* How much of the device may be the keeper's: known before any driver is, because the processes
 * are forked first. */
static uint64_t choose_budget(const bench *b, uint64_t usual_bytes)
{
    const char *driver = getenv("GVMEM_DRIVER");

    if (b->max_bytes != 0)
        return gvmi_round_down(b->max_bytes, 32 * GVMI_MIB);
    if ((driver != NULL && strcmp(driver, "soft") == 0) || access("/dev/nvidiactl", F_OK) != 0)
        return SOFTWARE_BUDGET_BYTES;
    return b->quick ? QUICK_BUDGET_BYTES : usual_bytes;
}

bool master_start(bench *b, uint64_t usual_bytes)
{
    master.plan.ordinal = b->ordinal;
    master.plan.lender = b->lender;
    master.plan.trace_path = b->trace_path;
    master.plan.device_budget_bytes = choose_budget(b, usual_bytes);
    master.plan.host_budget_bytes = 4 * master.plan.device_budget_bytes;
    snprintf(master.plan.folder, sizeof master.plan.folder, "/tmp/gvmem-bench-XXXXXX");
    if (mkdtemp(master.plan.folder) == NULL)
        return tool_error("cannot make a folder in /tmp") == TOOL_DONE;
    snprintf(master.plan.path, sizeof master.plan.path, "%s/socket", master.plan.folder);
    return peer_start(master.clients, PROCESSES, bench_keeper_client, &master.plan);
}

bool master_connect_all(bench *b)
{
    bool good = master_order_simple(b, KEEPER, KEEPER_ORDER_SERVE, 0, "the keeper");

    for (int i = 0; i < BENCH_CLIENTS && good; i++)
        good = master_order_simple(b, i, KEEPER_ORDER_CONNECT, 0, NULL);
    return good;
}

int master_finish(void)
{
    int code = TOOL_DONE;
    char how[80];

    for (int i = 0; i < PROCESSES; i++)
        if (!peer_finish(&master.clients[i], 10000, how, sizeof how))
            code = tool_error("%s %d %s", i == KEEPER ? "the keeper, process" : "client", i, how);
    unlink(master.plan.path);
    rmdir(master.plan.folder);
    return code;
}
