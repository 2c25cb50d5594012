/* gvmem-bench region --devices N bfs: one search over several devices, which have the edges in common.
 *
 * The homes of the edges are an object of a keeper, so they are in host memory once. Each device has a space of its own, and expands
 * the vertices of a range of its own; ranges have equal numbers of edges. So each maps other regions than the rest, and their frames add
 * up. What there is of each vertex, every device has.
 *
 * A level: each device copies what it has found of the others' ranges, a bit for each vertex, to host memory behind the edges; then each
 * adds what the others have found of its range. Nothing but that host memory is needed: neither peers, nor one process. With --processes a process drives each device,
 * else a thread; both run the same code, and meet in memory that they share.
 *
 * Beside it the same search over the first device alone, with the same homes and as much memory for frames as all devices have
 * together, in turns. Levels of all vertices are compared with its levels; and those with the CPU's, if the graph is small.
 */
#include "bench/region/traverse.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <gvmem/keeper.h>

#include "base/size.h"

#define DAY_MS (24 * 3600 * 1000)
#define POLL_MS 50
#define AWAKE_US 20000 /* that a wait for the other devices does not sleep */
#define EDGES "/edges"
#define REGION_BYTES (4 * GVMI_KIB)
#define CPU_VERTICES_MAX (1u << 16) /* of graphs that the CPU searches, too */

static const struct {
    const char *name;
    gvm_region_policy policy;
} policies[] = {{"STATIC", GVM_REGION_STATIC}, {"LIRS", GVM_REGION_LIRS}};
#define POLICY_COUNT (sizeof policies / sizeof policies[0])

/* What was measured with a policy. */
typedef struct device_figures {
    bench_samples one_us, all_us, merge_us; /* merge_us: of all levels of a search */
    double edges;                           /* that a search reads */
    uint64_t one_bytes;                     /* of frames */
    _Atomic uint64_t all_bytes;
} device_figures;

/* Of all threads, or processes. */
typedef struct device_plan {
    const bench *b; /* the options, as they were before any process was forked */
    int count;
    bool processes;
    char folder[64], path[100];
    char graph[64];
    uint64_t edge_bytes, budget_bytes;
    device_figures figures[POLICY_COUNT];
    _Atomic uint32_t arrived, round; /* meet() */
    _Atomic uint32_t failed;
    _Atomic uint32_t level; /* the last one at which a vertex was found */
    _Atomic uint64_t wrong; /* levels */
} device_plan;

static device_plan *plan;
static peer peers[GVM_KEEPER_DEVICES_MAX]; /* not shared: a fork writes what each side is to see */

/* One of them. What others do not have is of the first, which searches alone as well. */
typedef struct worker {
    int number;
    bench *b;
    region_bench r, alone;
    region_graph g, alone_g;
    traversal t, alone_t;
    gvm_client *client;
    gvm_object *object;
    uint64_t found_at, levels_at; /* behind the edges: bitmaps, levels of the search by one */
} worker;

/* ---- waiting for each other */

/* When all have come here, or one has failed: false. */
static bool meet(void)
{
    const struct timespec pause = {0, 50000};
    const uint32_t round = atomic_load(&plan->round);
    const double begin_us = tool_now_us();

    if (atomic_fetch_add(&plan->arrived, 1) + 1 == (uint32_t)plan->count) {
        atomic_store(&plan->arrived, 0);
        atomic_fetch_add(&plan->round, 1);
    }
    while (atomic_load(&plan->round) == round && !atomic_load(&plan->failed))
        if (tool_now_us() - begin_us < AWAKE_US)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    return !atomic_load(&plan->failed);
}

/* The same when what this one has queued is done. */
static bool finish_and_meet(worker *w)
{
    const CUresult result = gvmi_cu->cuStreamSynchronize(w->r.timer.stream);

    return (result == CUDA_SUCCESS || region_driver_failed(&w->r, result, "cuStreamSynchronize")) &&
           meet();
}

/* ---- a search */

static uint64_t bitmap_words(const worker *w)
{
    return ((uint64_t)w->g.p.vertices + 31) / 32;
}

/* Words [first, end) of an array. */
static bool copy_words(worker *w, uint64_t to, uint64_t from, uint64_t first, uint64_t end)
{
    CUresult result = CUDA_SUCCESS;

    if (first < end)
        result = gvmi_cu->cuMemcpyAsync(to + first * sizeof(uint32_t), from + first * sizeof(uint32_t),
                                        (end - first) * sizeof(uint32_t), w->r.timer.stream);
    return result == CUDA_SUCCESS || region_driver_failed(&w->r, result, "cuMemcpyAsync");
}

/* What it has found of others' vertices goes to its bitmap in host memory. */
static bool publish(worker *w, const bench_graph_params *p)
{
    const uint64_t words = bitmap_words(w), to = p->found + p->device * words * sizeof(uint32_t);

    return copy_words(w, to, p->next, 0, p->first / 32) &&
           copy_words(w, to, p->next, ((uint64_t)p->end + 31) / 32, words);
}

/* What others have found of this device's vertices; whether anybody has found any. */
static bool merge(worker *w, bench_graph_params *p, bool *more)
{
    region_graph *g = &w->g;
    const uint64_t words = bitmap_words(w), next = p->next;

    p->found = region_homes(&w->r.view) + w->found_at;
    p->devices = (uint32_t)plan->count;
    p->device = (uint32_t)w->number;
    if (!publish(w, p) || !finish_and_meet(w) ||
        !graph_clear(g, p->out + BENCH_GRAPH_PROGRESS * sizeof(uint64_t), 0, 2) ||
        !graph_launch(g, KERNEL_bfs_merge, p, words) ||
        !region_receive(&w->r, w->t.progress, p->out, sizeof *w->t.progress))
        return false;
    if (*w->t.progress == ++p->level)
        atomic_store(&plan->level, p->level);
    p->next = p->frontier;
    p->frontier = next;
    if (!graph_clear(g, p->next, 0, words) || !meet())
        return false;
    *more = atomic_load(&plan->level) == p->level;
    return true;
}

static bool search_together(worker *w, uint32_t i, double *us, double *merge_us)
{
    bench_graph_params p = w->g.p;
    bool more = true;
    double begin_us, passed_us;

    if (w->number == 0)
        atomic_store(&plan->level, 0);
    if (!traversal_begin_search(&w->t, &p, w->t.sources[i]) || !finish_and_meet(w))
        return false;
    begin_us = tool_now_us();
    *merge_us = 0;
    while (more) {
        if (!graph_pass(&w->t.w, GRAPH_REGIONS, &p, false, false) || !finish_and_meet(w))
            return false;
        passed_us = tool_now_us();
        if (!merge(w, &p, &more))
            return false;
        *merge_us += tool_now_us() - passed_us;
    }
    *us = tool_now_us() - begin_us;
    return true;
}

/* Its levels are what those of all devices are compared with. */
static bool search_alone(worker *w, uint32_t i, double *us)
{
    return traversal_search(&w->alone_t, GRAPH_REGIONS, i, false, us) &&
           traversal_check_search(&w->alone_t, GRAPH_REGIONS, i) &&
           copy_words(w, region_homes(&w->r.view) + w->levels_at, w->g.p.levels, 0, w->g.p.vertices);
}

static bool compare(worker *w, const char *policy, uint32_t i)
{
    bench_graph_params p = w->g.p;
    uint64_t out[BENCH_GRAPH_WORDS];

    p.expected = region_homes(&w->r.view) + w->levels_at;
    if (!graph_clear_out(&w->g) || !graph_launch(&w->g, KERNEL_bfs_compare, &p, p.end - p.first) ||
        !graph_receive_out(&w->g, out))
        return false;
    if (out[BENCH_GRAPH_WRONG] > 0)
        tool_error("%s, %s: device %d has other levels than one device alone for %llu vertices, searching from vertex %u",
                   w->g.name, policy, w->b->ordinal, (unsigned long long)out[BENCH_GRAPH_WRONG],
                   w->t.sources[i]);
    atomic_fetch_add(&plan->wrong, out[BENCH_GRAPH_WRONG]);
    return meet(); /* before others take the place of the levels that these were compared with */
}

static bool search_in_turns(worker *w, size_t policy, uint32_t i)
{
    device_figures *f = &plan->figures[policy];
    double one_us = 0, us, merge_us;

    if ((w->number == 0 && !search_alone(w, i, &one_us)) || !finish_and_meet(w) ||
        !search_together(w, i, &us, &merge_us) || !compare(w, policies[policy].name, i))
        return false;
    if (w->number == 0 && (i > 0 || w->t.runs == 1)) {
        bench_add(&f->one_us, one_us);
        bench_add(&f->all_us, us);
        bench_add(&f->merge_us, merge_us);
    }
    return true;
}

/* ---- edges */

/* The first vertex, of those that begin a word of bitmaps, at or behind which a part of the edges has gone by. */
static bool find_boundary(region_graph *g, uint64_t edge, uint32_t *vertex)
{
    uint64_t low = 0, high = ((uint64_t)g->p.vertices + 31) / 32, offset;

    while (low < high) {
        const uint64_t middle = (low + high) / 2;

        if (!graph_offset(g, (uint32_t)middle * 32, &offset))
            return false;
        if (offset < edge)
            low = middle + 1;
        else
            high = middle;
    }
    *vertex = (uint32_t)gvmi_min(low * 32, g->p.vertices);
    return true;
}

static bool draw(worker *w)
{
    const bench *b = w->b;
    const uint32_t runs = b->quick || b->info.software ? 2 : SOURCES_MAX;
    const uint64_t count = (uint64_t)plan->count, number = (uint64_t)w->number;
    region_graph *g = &w->g;
    bool good;

    if (b->graph_path != NULL)
        good = graph_read(&w->r, g, b->graph_path);
    else /* the edges are the first one's to make */
        good = graph_draw(&w->r, g, BENCH_GRAPH_RMAT,
                          b->info.software ? 13
                          : b->quick       ? 22
                                           : 26,
                          b->info.software ? 256 : 16, number == 0 ? 0 : REGION_BYTES);
    return good && traversal_start(&w->t, g, true, runs) &&
           find_boundary(g, g->edge_count * number / count, &g->p.first) &&
           find_boundary(g, g->edge_count * (number + 1) / count, &g->p.end);
}

/* What one searches alone with: the same graph, all of its vertices, another space. */
static void share_graph(worker *w)
{
    w->alone = w->r;
    w->alone_g = w->g;
    w->alone_g.r = &w->alone;
    w->alone_g.p.first = 0;
    w->alone_g.p.end = w->g.p.vertices;
    w->alone_t = w->t;
    w->alone_t.g = &w->alone_g;
}

static bool make_object(worker *w)
{
    const uint64_t bytes = w->levels_at + w->g.p.vertices * sizeof(uint32_t);

    snprintf(plan->graph, sizeof plan->graph, "%s", w->g.name);
    plan->edge_bytes = w->g.edge_bytes;
    plan->budget_bytes = gvmi_round_up(w->b->budget_bytes != 0 ? w->b->budget_bytes
                                                               : w->g.edge_bytes / 2,
                                       (uint64_t)plan->count * 2 * GVMI_MIB);
    return gvm_region_object_create(w->client, EDGES, bytes / REGION_BYTES + 1, REGION_BYTES, NULL,
                                    NULL, &w->object) == GVM_OK ||
           region_failed(&w->r, "making homes for the edges");
}

static bool open_object(worker *w)
{
    if (gvm_client_connect(plan->path, &w->client) != GVM_OK)
        return region_failed(&w->r, "connecting to the keeper");
    w->found_at = gvmi_round_up(w->g.edge_bytes, REGION_BYTES);
    w->levels_at = w->found_at + (uint64_t)plan->count * bitmap_words(w) * sizeof(uint32_t);
    if ((w->number == 0 && !make_object(w)) || !meet())
        return false;
    return w->number == 0 || gvm_object_open(w->client, EDGES, 0, &w->object) == GVM_OK ||
           region_failed(&w->r, "opening the edges");
}

/* The edges, once; and what the CPU finds. */
static bool fill(worker *w)
{
    graph_copy copy = {0};
    bool good = graph_fill_homes(&w->alone_g);

    if (good && w->g.p.vertices <= CPU_VERTICES_MAX)
        good = graph_copy_homes(&w->alone_g, &copy) && traversal_expect(&w->alone_t, &copy);
    graph_copy_free(&copy);
    return good;
}

static bool attach(region_graph *g, traversal *t, gvm_object *object, uint64_t budget_bytes,
                   gvm_region_policy policy)
{
    if (!region_attach(g->r, object, budget_bytes, policy))
        return false;
    graph_use_view(g);
    return traversal_start_ways(t, budget_bytes, false);
}

static bool attach_all(worker *w, size_t policy)
{
    const gvm_region_policy of = policies[policy].policy;
    const bool spread = of == GVM_REGION_STATIC;

    if (!attach(&w->g, &w->t, w->object, plan->budget_bytes / (uint64_t)plan->count, of) ||
        (w->number == 0 && !attach(&w->alone_g, &w->alone_t, w->object, plan->budget_bytes, of)) ||
        (w->number == 0 && policy == 0 && !fill(w)) || !meet())
        return false;
    return !spread || (graph_spread(&w->g) && (w->number != 0 || graph_spread(&w->alone_g)));
}

/* ---- one of the threads or processes */

static uint64_t frame_bytes(region_bench *r)
{
    return region_info(r).frame_count * REGION_BYTES;
}

static bool measure(worker *w, size_t policy)
{
    device_figures *f = &plan->figures[policy];
    bool good = attach_all(w, policy);

    for (uint32_t i = 0; good && i < w->t.runs; i++)
        good = search_in_turns(w, policy, i);
    good = good && region_sync_space(&w->r) && (w->number != 0 || region_sync_space(&w->alone));
    if (good)
        atomic_fetch_add(&f->all_bytes, frame_bytes(&w->r));
    if (good && w->number == 0) {
        f->one_bytes = frame_bytes(&w->alone);
        f->edges = traversal_edges(&w->alone_t);
    }
    bench_wait(w->b); /* also after what failed */
    region_close(&w->alone);
    region_close(&w->r);
    return good;
}

static bool search_all(worker *w)
{
    bool good = draw(w) && open_object(w);

    if (good && w->number == 0)
        share_graph(w);
    for (size_t i = 0; good && i < POLICY_COUNT; i++)
        good = measure(w, i);
    gvm_object_close(w->object);
    gvm_client_close(w->client);
    if (w->t.g != NULL)
        traversal_end(&w->t);
    return good;
}

/* All are over, or none: who fails keeps the others from waiting for it. */
static int work(int number)
{
    worker *w = calloc(1, sizeof *w);
    bool good = false;

    if (w != NULL)
        w->b = malloc(sizeof *w->b);
    if (w != NULL && w->b != NULL) {
        *w->b = *plan->b;
        w->b->text = stderr;
        w->b->ordinal += number;
        w->number = number;
        w->r.b = w->b;
        good = bench_open_device(w->b);
        if (good) {
            good = region_load(&w->r) && search_all(w) && w->b->code == TOOL_DONE;
            region_unload(&w->r);
            bench_close_device(w->b);
        }
        free(w->b);
    }
    free(w);
    if (!good)
        atomic_store(&plan->failed, 1);
    return good ? TOOL_DONE : TOOL_FAILED;
}

static void *run_thread(void *number)
{
    (void)work((int)(intptr_t)number);
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[GVM_KEEPER_DEVICES_MAX];
    int count = 0;

    while (count < plan->count &&
           pthread_create(&threads[count], NULL, run_thread, (void *)(intptr_t)count) == 0)
        count++;
    if (count < plan->count)
        atomic_store(&plan->failed, 1);
    while (count > 0)
        pthread_join(threads[--count], NULL);
}

/* It begins when it gets its number; if it does not, the benchmark ends before. */
static int run_process(int socket, const void *arg)
{
    int number, code;

    (void)arg;
    if (peer_receive(socket, &number, sizeof number, DAY_MS) != PEER_OK)
        return TOOL_DONE;
    code = work(number);
    (void)peer_send(socket, &code, sizeof code);
    return code;
}

/* One that ends without an answer has failed, and the others need not wait for it. */
static void run_processes(void)
{
    bool answered[GVM_KEEPER_DEVICES_MAX] = {false};
    int left = plan->count, code;

    for (int i = 0; i < plan->count; i++)
        if (!peer_send(peers[i].socket, &i, sizeof i))
            atomic_store(&plan->failed, 1);
    for (int i = 0; left > 0; i = (i + 1) % plan->count) {
        const peer_answer got = answered[i]
                                    ? PEER_SILENT
                                    : peer_receive(peers[i].socket, &code, sizeof code, POLL_MS);

        if (got == PEER_CLOSED)
            atomic_store(&plan->failed, 1);
        if (got != PEER_SILENT) {
            answered[i] = true;
            left--;
        }
    }
}

bool bench_region_start(bench *b)
{
    if (b->devices == 0)
        return true;
    plan = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (plan == MAP_FAILED) {
        plan = NULL;
        return tool_error("out of memory") == TOOL_DONE;
    }
    plan->b = b;
    plan->count = b->devices;
    plan->processes = b->processes;
    snprintf(plan->folder, sizeof plan->folder, "/tmp/gvmem-bench-XXXXXX");
    if (mkdtemp(plan->folder) == NULL)
        return tool_error("cannot make a folder in /tmp") == TOOL_DONE;
    snprintf(plan->path, sizeof plan->path, "%s/socket", plan->folder);
    return !b->processes || peer_start(peers, plan->count, run_process, NULL);
}

int bench_region_finish(bench *b)
{
    int code = TOOL_DONE;
    char how[80];

    if (plan == NULL)
        return code;
    for (int i = 0; b->processes && i < plan->count; i++)
        if (!peer_finish(&peers[i], 10000, how, sizeof how))
            code = tool_error("the process of device %d %s", b->ordinal + i, how);
    unlink(plan->path);
    rmdir(plan->folder);
    munmap(plan, sizeof *plan);
    plan = NULL;
    return code;
}

/* ---- all */

static void record(bench *b, size_t policy)
{
    static const char section[] = "region bfs";
    device_figures *f = &plan->figures[policy];
    char budget[32];
    const char *name = bench_text(b, "%s, budget %s, %s", plan->graph,
                                  gvmi_size_text(plan->budget_bytes, budget), policies[policy].name);
    const char *one = bench_text(b, "%s, one device", name);
    const char *all = bench_text(b, "%s, %d %s", name, plan->count,
                                 plan->processes ? "devices, a process each" : "devices");
    const double one_us = bench_record(b, section, one, "us", REGION_BYTES, 0, &f->one_us);
    const double all_us = bench_record(b, section, all, "us", REGION_BYTES, 0, &f->all_us);
    const double merge_us = bench_record(b, section, bench_text(b, "%s, merging", all), "us",
                                         REGION_BYTES, 0, &f->merge_us);
    const double all_bytes = (double)atomic_load(&f->all_bytes);

    bench_record_value(b, section, one, "G edges read/s", REGION_BYTES, 0, f->edges / one_us / 1e3);
    bench_record_value(b, section, all, "G edges read/s", REGION_BYTES, 0, f->edges / all_us / 1e3);
    bench_record_value(b, section, one, "bytes of frames", REGION_BYTES, 0, (double)f->one_bytes);
    bench_record_value(b, section, all, "bytes of frames", REGION_BYTES, 0, all_bytes);
    bench_record_value(b, section, all, "times one device", REGION_BYTES, 0, one_us / all_us);
    fprintf(b->text, "  %-18s %-9s %-7s %11.3f %11.3f %11.3f %9.3f %9.3f\n", plan->graph, budget,
            policies[policy].name, one_us / 1e3, all_us / 1e3, merge_us / 1e3,
            f->edges / all_us / 1e3, one_us / all_us);
}

static void record_all(bench *b)
{
    bench_record_value(b, "region bfs", bench_text(b, "%s, edges", plan->graph), "bytes", 0, 0,
                       (double)plan->edge_bytes);
    fprintf(b->text,
            "\nbreadth-first search, one source, over %d devices%s, edges in common (medians, ms; levels are those of one device)\n"
            "  %-18s %-9s %-7s %11s %11s %11s %9s %9s\n",
            plan->count, plan->processes ? ", a process each" : "", "graph", "budget", "policy",
            "one device", "all", "merging", "G edges/s", "times");
    for (size_t i = 0; i < POLICY_COUNT; i++)
        record(b, i);
}

bool region_measure_devices(region_bench *r)
{
    const int32_t device = r->b->ordinal;
    gvm_keeper_options options = gvm_keeper_options_init();
    gvm_keeper *keeper;

    options.path = plan->path;
    options.devices = &device;
    options.device_count = 1;
    options.device_budget_bytes = 64 * GVMI_MIB; /* of which homes take nothing */
    if (gvm_keeper_start(&options, &keeper) != GVM_OK)
        return region_failed(r, "starting a keeper");
    if (plan->processes)
        run_processes();
    else
        run_threads();
    gvm_keeper_stop(keeper);
    if (atomic_load(&plan->failed))
        return false;
    record_all(r->b);
    if (atomic_load(&plan->wrong) == 0)
        return true;
    bench_note(r->b, "%s: %llu levels are not those of one device", plan->graph,
               (unsigned long long)atomic_load(&plan->wrong));
    return false;
}
