/* The keeper and its clients in gvmem-bench keeper; see keeper.h. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <gvmem/kernels.h>

#include "base/address.h"
#include "base/size.h"
#include "bench/keeper.h"

#define DAY_MS (24 * 3600 * 1000)
#define FAST_SAMPLES 100000u
#define FAST_MS 200 /* of counting pairs */
#define SLOW_SAMPLES 2000u
#define FREE_WAIT_US 5e6 /* until the driver has what was evicted */

/* ---- a client */

typedef struct client {
    const keeper_plan *plan;
    int socket;
    gvm_device *device; /* its context is current */
    gvm_keeper *server; /* of the one that runs it */
    gvm_client *keeper;
    gvm_object *objects[BENCH_SLOTS];
} client;

static gvm_status do_serve(client *c)
{
    const int32_t devices[] = {c->plan->ordinal, c->plan->lender};
    const gvm_keeper_options options = {
        .struct_size = sizeof options,
        .path = c->plan->path,
        .trace_path = c->plan->trace_path,
        .devices = devices,
        .device_count = c->plan->lender >= 0 && c->plan->lender != c->plan->ordinal ? 2 : 1,
        .device_budget_bytes = c->plan->device_budget_bytes,
        .host_budget_bytes = c->plan->host_budget_bytes,
    };

    return gvm_keeper_start(&options, &c->server);
}

static gvm_status do_connect(client *c, const keeper_order *o, keeper_answer *a)
{
    gvm_status status = gvm_device_open(c->plan->ordinal, &c->device);

    if (status == GVM_OK)
        status = gvmi_device_enter(c->device);
    if (status == GVM_OK)
        status = gvm_client_connect(o->path, &c->keeper);
    if (status == GVM_OK)
        status = gvm_kernel_sum_f64(c->device, gvmi_pointer(8), 0, NULL, &a->sum); /* no element is read */
    return status;
}

static gvm_status do_create(client *c, const keeper_order *o, keeper_answer *a)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .size_bytes = o->bytes, .chunk_bytes = o->chunk_bytes};
    const double start_us = tool_now_us();
    gvm_status status = gvm_object_create(c->keeper, o->name, o->reserve_bytes, &options,
                                          &c->objects[o->slot]);

    a->us = tool_now_us() - start_us;
    return status != GVM_OK ? status
                            : gvm_object_publish(c->objects[o->slot], o->name, GVM_PUBLISH_REPLACE);
}

static gvm_status do_grow(client *c, const keeper_order *o, keeper_answer *a)
{
    const double start_us = tool_now_us();
    const gvm_status status = gvm_object_grow(c->objects[o->slot], o->bytes);

    a->us = tool_now_us() - start_us;
    return status;
}

/* A writer fills everything with numbers, a reader sums; both as often as asked. */
static gvm_status use_leased_data(client *c, const gvm_lease *lease, const keeper_order *o,
                                  keeper_answer *a)
{
    const uint64_t words = lease->size_bytes / 8;
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < o->count && status == GVM_OK; i++)
        status = lease->mode == GVM_LEASE_WRITE
                     ? gvm_kernel_fill_random_f64(c->device, lease->address, words, 0, o->seed,
                                                  c->device->stream)
                     : gvm_kernel_sum_f64(c->device, lease->address, words, c->device->stream, &a->sum);
    if (status == GVM_OK && lease->mode == GVM_LEASE_WRITE)
        status = gvm_device_synchronize(c->device);
    return status;
}

static gvm_status do_turn(client *c, const keeper_order *o, keeper_answer *a)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = (gvm_hint)o->hint};
    gvm_object *object = c->objects[o->slot];
    const double start_us = tool_now_us();
    double acquired_us;
    gvm_lease lease;
    gvm_status status = gvm_object_acquire(object, (gvm_lease_mode)o->mode, &options, GVM_FOREVER,
                                           &lease),
               released;

    if (status != GVM_OK)
        return status;
    acquired_us = tool_now_us();
    status = use_leased_data(c, &lease, o, a);
    released = gvm_object_release(object, &lease);
    a->acquire_us = acquired_us - start_us;
    a->us = tool_now_us() - start_us;
    return status != GVM_OK ? status : released;
}

/* ---- the fast path */

static gvm_status sample_pairs(gvm_object *object, gvm_lease_mode mode, keeper_answer *a)
{
    uint64_t *differences = malloc(FAST_SAMPLES * sizeof *differences);
    gvm_status status = differences != NULL ? GVM_OK : GVM_E_NOMEM;
    gvm_lease lease;

    for (uint32_t i = 0; i < FAST_SAMPLES && status == GVM_OK; i++) {
        const uint64_t begin = bench_stamp();

        status = gvm_object_acquire(object, mode, NULL, GVM_FOREVER, &lease);
        if (status == GVM_OK)
            status = gvm_object_release(object, &lease);
        differences[i] = bench_stamp() - begin;
    }
    if (status == GVM_OK) {
        a->p50_ns = bench_percentile_ns(differences, FAST_SAMPLES, 0.5) - a->clock_ns;
        a->p99_ns = bench_percentile_ns(differences, FAST_SAMPLES, 0.99) - a->clock_ns;
    }
    free(differences);
    return status;
}

static void wait_until(int64_t ns)
{
    while (bench_now_ns() < ns) {} /* all start together, awake */
}

static gvm_status count_pairs(gvm_object *object, gvm_lease_mode mode, keeper_answer *a)
{
    const int64_t begin_ns = bench_now_ns();
    gvm_status status = GVM_OK;
    uint64_t pairs = 0;
    gvm_lease lease;

    while (status == GVM_OK && bench_now_ns() - begin_ns < FAST_MS * 1000000)
        for (int i = 0; i < 1000 && status == GVM_OK; i++, pairs++) {
            status = gvm_object_acquire(object, mode, NULL, GVM_FOREVER, &lease);
            if (status == GVM_OK)
                status = gvm_object_release(object, &lease);
        }
    a->pairs_per_s = (double)pairs * 1e9 / (double)(bench_now_ns() - begin_ns);
    return status;
}

/* The least that two processes can exchange this way: an addition and a load, twice. */
static double atomic_floor_ns(void)
{
    enum { COUNT = 1000000 };
    static _Alignas(64) _Atomic uint64_t word;
    static _Alignas(64) _Atomic uint64_t permit;
    uint64_t sum = 0, begin = bench_stamp();

    for (int i = 0; i < COUNT; i++) {
        atomic_fetch_add(&word, 1);
        sum += atomic_load(&permit);
        atomic_fetch_sub(&word, 1);
        sum += atomic_load(&permit);
    }
    begin = bench_stamp() - begin;
    return sum == 0 ? (double)begin * bench_ns_per_stamp() / COUNT : 0;
}

static gvm_status do_fast(client *c, const keeper_order *o, keeper_answer *a)
{
    gvm_object *object = c->objects[o->slot];
    const gvm_lease_mode mode = (gvm_lease_mode)o->mode;
    gvm_status status;

    a->clock_ns = bench_stamp_cost_ns();
    a->floor_ns = atomic_floor_ns();
    wait_until(o->start_ns);
    status = sample_pairs(object, mode, a);
    if (status == GVM_OK)
        status = sample_pairs(object, mode, a); /* the second time it is warm */
    return status == GVM_OK ? count_pairs(object, mode, a) : status;
}

/* ---- the slow path */

static gvm_status take_turns(gvm_object *objects[2], keeper_answer *a)
{
    static uint64_t differences[SLOW_SAMPLES];
    gvm_status status = GVM_OK;
    gvm_lease lease;

    for (uint32_t i = 0; i < SLOW_SAMPLES && status == GVM_OK; i++) {
        const uint64_t begin = bench_stamp();

        status = gvm_object_acquire(objects[i & 1], GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease);
        differences[i] = bench_stamp() - begin;
        if (status == GVM_OK)
            status = gvm_object_release(objects[i & 1], &lease);
    }
    a->clock_ns = bench_stamp_cost_ns();
    a->p50_ns = bench_percentile_ns(differences, SLOW_SAMPLES, 0.5) - a->clock_ns;
    a->p99_ns = bench_percentile_ns(differences, SLOW_SAMPLES, 0.99) - a->clock_ns;
    return status;
}

static gvm_status do_slow(client *c, const keeper_order *o, keeper_answer *a)
{
    gvm_client *other = NULL;
    gvm_object *objects[2] = {NULL, NULL};
    gvm_status status = gvm_client_connect(o->path, &other);

    if (status == GVM_OK)
        status = gvm_object_open(c->keeper, o->name, 0, &objects[0]);
    if (status == GVM_OK)
        status = gvm_object_open(other, o->name, 0, &objects[1]);
    if (status == GVM_OK)
        status = take_turns(objects, a);
    gvm_object_close(objects[1]);
    gvm_object_close(objects[0]);
    gvm_client_close(other);
    return status;
}

/* ---- memory */

/* What the driver keeps of memory that left the device, at most: the page tables with which 8
 * processes reach it in host memory are on the device. */
#define PAGE_TABLES_PART 16

static uint64_t driver_free_bytes(void)
{
    size_t free_bytes = 0, total_bytes;

    gvmi_cu->cuMemGetInfo(&free_bytes, &total_bytes);
    return free_bytes;
}

static gvm_status do_evict(client *c, const keeper_order *o, keeper_answer *a)
{
    uint64_t evicted = 0, before;
    double start_us;
    gvm_status status = gvm_client_trim(c->keeper, 0, 0, NULL); /* what was free before does not count */

    if (status != GVM_OK)
        return status;
    before = driver_free_bytes();
    start_us = tool_now_us();
    status = gvm_client_evict(c->keeper, o->name, GVM_BYTES_UNLIMITED, &evicted);
    a->acquire_us = tool_now_us() - start_us;
    if (status == GVM_OK)
        status = gvm_client_trim(c->keeper, 0, 0, NULL);
    while (status == GVM_OK && driver_free_bytes() < before + evicted - evicted / PAGE_TABLES_PART)
        if (tool_now_us() - start_us > FREE_WAIT_US)
            return gvmi_driver_fail_as(GVM_E_TIMEOUT, CUDA_SUCCESS, "cuMemGetInfo",
                                       "the driver has not got back what was evicted");
    a->us = tool_now_us() - start_us;
    a->sum = (double)evicted;
    return status;
}

static gvm_status do_figures(client *c, const keeper_order *o, keeper_answer *a)
{
    gvm_snapshot *snapshot = NULL;
    gvm_status status = gvm_client_get_snapshot(c->keeper, &snapshot);

    if (status != GVM_OK)
        return status;
    a->keeper.struct_size = sizeof a->keeper;
    a->device.struct_size = sizeof a->device;
    a->object.struct_size = sizeof a->object;
    status = gvm_snapshot_get_keeper(snapshot, &a->keeper);
    if (status == GVM_OK)
        status = gvm_snapshot_get_device(snapshot, 0, &a->device);
    gvm_snapshot_destroy(snapshot);
    if (status != GVM_OK)
        return status;
    return c->objects[o->slot] != NULL ? gvm_object_get_info(c->objects[o->slot], &a->object) : GVM_OK;
}

/* GB/s of the sum kernel over memory of a tier: the better of a few runs, after one more. */
static gvm_status sum_rate(client *c, gvm_tier tier, uint64_t bytes, double *rate)
{
    gvm_buffer *buffer = NULL;
    gvm_status status = gvm_buffer_create(c->device, bytes, NULL, &buffer);
    bench_samples samples = {0};
    double sum;

    if (status == GVM_OK)
        status = gvm_buffer_commit(buffer, 0, bytes);
    if (status == GVM_OK)
        status = gvm_kernel_fill_random_f64(c->device, gvm_buffer_address(buffer), bytes / 8, 0, 3,
                                            NULL);
    if (status == GVM_OK)
        status = gvm_device_synchronize(c->device);
    if (status == GVM_OK && tier != GVM_TIER_DEVICE)
        status = gvm_buffer_move(buffer, 0, bytes, tier);
    for (int i = 0; i < 6 && status == GVM_OK; i++) {
        const double start_us = tool_now_us();

        status = gvm_kernel_sum_f64(c->device, gvm_buffer_address(buffer), bytes / 8,
                                    c->device->stream, &sum);
        if (i > 0)
            bench_add(&samples, (double)bytes / (tool_now_us() - start_us) / 1e3);
    }
    *rate = bench_median(&samples);
    gvm_buffer_destroy(buffer);
    return status == GVM_OK ? gvm_device_trim(c->device, 0) : status;
}

static gvm_status do_host(client *c, const keeper_order *o, keeper_answer *a)
{
    gvm_status status = sum_rate(c, GVM_TIER_HOST, o->bytes, &a->host_rate);

    return status != GVM_OK ? status : sum_rate(c, GVM_TIER_DEVICE, o->bytes, &a->device_rate);
}

/* ---- swapping */

/* The sum of the first word of every 2 MiB, which depends on what each chunk has; by one copy. */
static gvm_status read_words(const gvm_lease *lease, double *sum)
{
    const size_t count = lease->size_bytes / (2 * GVMI_MIB);
    double *words = calloc(count, sizeof *words);
    const CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = gvmi_address(lease->address),
        .srcPitch = 2 * GVMI_MIB,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = words,
        .dstPitch = sizeof *words,
        .WidthInBytes = sizeof *words,
        .Height = count,
    };
    CUresult result;

    if (words == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %zu words", count);
    result = gvmi_cu->cuMemcpy2D(&copy);
    *sum = 0;
    for (size_t i = 0; i < count; i++)
        *sum += words[i];
    free(words);
    return result == CUDA_SUCCESS
               ? GVM_OK
               : gvmi_driver_fail(result, "cuMemcpy2D", "cannot read a model's words");
}

static gvm_status acquire_and_read(gvm_object *object, keeper_answer *a)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = GVM_HINT_HOT};
    gvm_lease lease;
    gvm_status status = gvm_object_acquire(object, GVM_LEASE_READ, &options, GVM_FOREVER, &lease),
               released;

    if (status != GVM_OK)
        return status;
    status = read_words(&lease, &a->sum);
    a->end_ns = bench_now_ns();
    released = gvm_object_release(object, &lease);
    return status != GVM_OK ? status : released;
}

static gvm_status do_swap(client *c, const keeper_order *o, keeper_answer *a)
{
    wait_until(o->start_ns);
    return acquire_and_read(c->objects[o->slot], a);
}

/* As a program that was started again, but for its context. */
static gvm_status do_attach(client *c, const keeper_order *o, keeper_answer *a)
{
    int64_t start_ns;
    gvm_status status;

    gvm_client_close(c->keeper); /* and what is open */
    c->keeper = NULL;
    memset(c->objects, 0, sizeof c->objects);
    start_ns = bench_now_ns();
    status = gvm_client_connect(o->path, &c->keeper);
    if (status == GVM_OK)
        status = gvm_object_open(c->keeper, o->name, GVM_OPEN_READONLY, &c->objects[o->slot]);
    if (status == GVM_OK)
        status = acquire_and_read(c->objects[o->slot], a);
    a->us = (double)(a->end_ns - start_ns) / 1e3;
    return status;
}

static gvm_status do_echo(const client *c, const keeper_order *o)
{
    char byte;

    for (uint32_t i = 0; i < o->count; i++)
        if (recv(c->socket, &byte, 1, 0) != 1 || send(c->socket, &byte, 1, MSG_NOSIGNAL) != 1)
            return GVM_E_SYSTEM;
    return GVM_OK;
}

static gvm_status execute_keeper_order(client *c, const keeper_order *o, keeper_answer *a)
{
    switch ((keeper_order_kind)o->kind) {
    case KEEPER_ORDER_SERVE: return do_serve(c);
    case KEEPER_ORDER_CONNECT: return do_connect(c, o, a);
    case KEEPER_ORDER_CREATE: return do_create(c, o, a);
    case KEEPER_ORDER_OPEN: return gvm_object_open(c->keeper, o->name, 0, &c->objects[o->slot]);
    case KEEPER_ORDER_CLOSE:
        gvm_object_close(c->objects[o->slot]);
        c->objects[o->slot] = NULL;
        return GVM_OK;
    case KEEPER_ORDER_DROP: return gvm_object_drop(c->keeper, o->name);
    case KEEPER_ORDER_GROW: return do_grow(c, o, a);
    case KEEPER_ORDER_TRIM: return gvm_client_trim(c->keeper, 0, 0, NULL);
    case KEEPER_ORDER_TURN: return do_turn(c, o, a);
    case KEEPER_ORDER_FAST: return do_fast(c, o, a);
    case KEEPER_ORDER_SLOW: return do_slow(c, o, a);
    case KEEPER_ORDER_EVICT: return do_evict(c, o, a);
    case KEEPER_ORDER_FIGURES: return do_figures(c, o, a);
    case KEEPER_ORDER_HOST: return do_host(c, o, a);
    case KEEPER_ORDER_ECHO: return do_echo(c, o);
    case KEEPER_ORDER_SWAP: return do_swap(c, o, a);
    case KEEPER_ORDER_ATTACH: return do_attach(c, o, a);
    }
    return GVM_E_INVALID;
}

int bench_keeper_client(int socket, const void *arg)
{
    client c = {.plan = arg, .socket = socket};
    keeper_order o;

    tool_raise_descriptor_limit();
    while (peer_receive(socket, &o, sizeof o, DAY_MS) == PEER_OK) {
        keeper_answer a;

        memset(&a, 0, sizeof a);
        a.status = execute_keeper_order(&c, &o, &a);
        if (a.status != GVM_OK)
            tool_failure_text(a.text, sizeof a.text);
        if (!peer_send(socket, &a, sizeof a))
            break;
    }
    gvm_client_close(c.keeper);
    gvm_keeper_stop(c.server);
    if (c.device != NULL)
        gvmi_device_leave();
    gvm_device_close(c.device);
    return TOOL_DONE;
}
