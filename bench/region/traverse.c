/* Breadth-first search and PageRank of graphs whose edges do not fit into the budget.
 *
 * A search goes level by level, a kernel for each. An iteration of PageRank reads all edges; each begins with the same
 * ranks. What there is of each vertex is in device memory, besides the budget. All ways have the same kernel, but for how it finds
 * edges; it reads the lists of vertices next to each other as one, and the lines of 128 bytes of one list from their beginning on.
 *
 * With the policy STATIC the regions that stay are chosen ahead, spread evenly. Those that a pass comes to first would be those
 * that all passes come to first: each pass would use device memory in its first half, and wait for the link in the other.
 *
 * All results of a graph are compared: levels by a digest, ranks one by one. Small graphs are compared with the CPU's as well.
 */
#include "bench/region/traverse.h"
#include "bench/region/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

static const region_kernel search_kernels[] = {
    [BENCH_EDGES_PLAIN] = KERNEL_bfs_plain,
    [BENCH_EDGES_SHARE] = KERNEL_bfs_share,
    [BENCH_EDGES_REGIONS] = KERNEL_bfs_regions,
    [BENCH_EDGES_TLB] = KERNEL_bfs_tlb,
    [BENCH_EDGES_PLAIN | BENCH_EDGES_COUNTED] = KERNEL_bfs_plain_counted,
    [BENCH_EDGES_REGIONS | BENCH_EDGES_COUNTED] = KERNEL_bfs_regions_counted,
};
static const region_kernel rank_kernels[] = {
    [BENCH_EDGES_PLAIN] = KERNEL_rank_plain,
    [BENCH_EDGES_SHARE] = KERNEL_rank_share,
    [BENCH_EDGES_REGIONS] = KERNEL_rank_regions,
    [BENCH_EDGES_TLB] = KERNEL_rank_tlb,
    [BENCH_EDGES_PLAIN | BENCH_EDGES_COUNTED] = KERNEL_rank_plain_counted,
    [BENCH_EDGES_REGIONS | BENCH_EDGES_COUNTED] = KERNEL_rank_regions_counted,
};

static const struct {
    const char *name;
    gvm_region_policy policy;
} policies[] = {
    {"LIRS", GVM_REGION_LIRS}, {"CLOCK", GVM_REGION_CLOCK},   {"FIFO", GVM_REGION_FIFO},
    {"NFU", GVM_REGION_NFU},   {"STATIC", GVM_REGION_STATIC},
};
#define POLICY_COUNT (sizeof policies / sizeof policies[0])

static const char *policy_name(gvm_region_policy policy)
{
    for (size_t i = 0; i < POLICY_COUNT; i++)
        if (policies[i].policy == policy)
            return policies[i].name;
    return "";
}

/* ---- a search */

static bool set_bit(region_graph *g, uint64_t bitmap, uint32_t vertex)
{
    return graph_clear(g, bitmap + vertex / 32 * 4ull, 1u << vertex % 32, 1);
}

bool traversal_begin_search(traversal *t, bench_graph_params *p, uint32_t source)
{
    region_graph *g = t->g;
    const uint64_t words = ((uint64_t)p->vertices + 31) / 32;

    return graph_clear(g, p->levels, BENCH_UNSEEN, p->vertices) &&
           graph_clear(g, p->visited, 0, words) && graph_clear(g, p->frontier, 0, words) &&
           graph_clear(g, p->next, 0, words) && set_bit(g, p->visited, source) &&
           set_bit(g, p->frontier, source) &&
           graph_clear(g, p->out + BENCH_GRAPH_PROGRESS * sizeof(uint64_t), 0, 2);
}

/* *more: has it found vertices? They are the frontier of the next level. */
static bool search_level(traversal *t, int way, bench_graph_params *p, bool counted, bool *more)
{
    const uint64_t next = p->next;

    if (!graph_pass(&t->w, way, p, false, counted) ||
        !region_receive(t->g->r, t->progress, p->out, sizeof *t->progress))
        return false;
    *more = *t->progress == p->level + 1;
    p->level++;
    p->next = p->frontier;
    p->frontier = next;
    return graph_clear(t->g, p->next, 0, ((uint64_t)p->vertices + 31) / 32);
}

bool traversal_search(traversal *t, int way, uint32_t i, bool counted, double *us)
{
    bench *b = t->g->r->b;
    bench_graph_params p = t->g->p;
    bool more = true;

    if (!traversal_begin_search(t, &p, t->sources[i]) || !bench_timer_start(b, &t->g->r->timer))
        return false;
    while (more)
        if (!search_level(t, way, &p, counted, &more))
            return false;
    t->levels = p.level;
    return bench_timer_stop(b, &t->g->r->timer, us);
}

bool traversal_check_search(traversal *t, int way, uint32_t i)
{
    uint64_t out[BENCH_GRAPH_WORDS];

    if (!graph_clear_out(t->g) || !graph_launch(t->g, KERNEL_bfs_digest, &t->g->p, t->g->p.vertices) ||
        !graph_receive_out(t->g, out))
        return false;
    t->edges[i] = out[BENCH_GRAPH_EDGES];
    if (t->digests[i] == 0)
        t->digests[i] = out[BENCH_GRAPH_DIGEST];
    if (out[BENCH_GRAPH_DIGEST] == t->digests[i])
        return true;
    bench_note(t->g->r->b, "%s, %s: the levels from vertex %u are wrong", t->g->name,
               graph_way_names[way], t->sources[i]);
    t->g->r->b->code = TOOL_FAILED;
    return true;
}

/* ---- an iteration of PageRank */

static bool give(traversal *t, uint32_t iteration)
{
    bench_graph_params p = t->g->p;

    p.level = iteration;
    return graph_launch(t->g, KERNEL_rank_give, &p, p.vertices);
}

static bool rank_once(traversal *t, int way, bool counted, double *us)
{
    region_bench *r = t->g->r;

    return give(t, 0) && bench_timer_start(r->b, &r->timer) &&
           graph_pass(&t->w, way, &t->g->p, true, counted) && give(t, 1) &&
           bench_timer_stop(r->b, &r->timer, us);
}

static bool check_ranks(traversal *t, int way)
{
    region_graph *g = t->g;
    uint64_t out[BENCH_GRAPH_WORDS];
    CUresult result;

    if (!t->have_expected) {
        t->have_expected = true;
        result = gvmi_cu->cuMemcpyAsync(g->p.expected, g->p.given, g->p.vertices * sizeof(float),
                                        g->r->timer.stream);
        return result == CUDA_SUCCESS || region_driver_failed(g->r, result, "cuMemcpyAsync");
    }
    if (!graph_clear_out(g) || !graph_launch(g, KERNEL_rank_compare, &g->p, g->p.vertices) ||
        !graph_receive_out(g, out))
        return false;
    if (out[BENCH_GRAPH_WRONG] == 0)
        return true;
    bench_note(g->r->b, "%s, %s: %llu ranks are wrong", g->name, graph_way_names[way],
               (unsigned long long)out[BENCH_GRAPH_WRONG]);
    g->r->b->code = TOOL_FAILED;
    return true;
}

/* ---- either */

static bool run_once(traversal *t, int way, uint32_t i, bool counted, double *us)
{
    return t->search ? traversal_search(t, way, i, counted, us) : rank_once(t, way, counted, us);
}

static bool check_run(traversal *t, int way, uint32_t i)
{
    return t->search ? traversal_check_search(t, way, i) : check_ranks(t, way);
}

/* Vertices with edges, at random. */
static bool choose_sources(traversal *t)
{
    uint64_t first, end;
    uint32_t found = 0, vertex;

    for (uint64_t i = 0; found < t->runs && i < 100000; i++) {
        vertex = (uint32_t)(bench_graph_mix(~i) % t->g->p.vertices);
        if (!graph_offset(t->g, vertex, &first) || !graph_offset(t->g, vertex + 1, &end))
            return false;
        if (first < end)
            t->sources[found++] = vertex;
    }
    return found == t->runs || region_failed(t->g->r, "finding vertices with edges");
}

bool traversal_start(traversal *t, region_graph *g, bool search, uint32_t runs)
{
    const uint64_t words = ((uint64_t)g->p.vertices + 31) / 32 * 4, vertices = g->p.vertices;
    bench_graph_params *p = &g->p;
    void *pinned = NULL;

    *t = (traversal){.g = g, .search = search, .runs = runs};
    t->section = search ? "region bfs" : "region pagerank";
    if (gvmi_cu->cuMemHostAlloc(&pinned, sizeof *t->progress, 0) != CUDA_SUCCESS)
        return region_failed(g->r, "allocating host memory");
    t->progress = pinned;
    if (!search) {
        for (uint32_t i = 0; i < runs; i++)
            t->edges[i] = g->edge_count;
        return graph_alloc(g, &p->given, vertices * sizeof(float)) &&
               graph_alloc(g, &p->received, vertices * sizeof(double)) &&
               graph_alloc(g, &p->expected, vertices * sizeof(float));
    }
    return graph_alloc(g, &p->visited, words) && graph_alloc(g, &p->frontier, words) &&
           graph_alloc(g, &p->next, words) &&
           graph_alloc(g, &p->levels, vertices * sizeof(uint32_t)) && choose_sources(t);
}

void traversal_end(traversal *t)
{
    if (t->progress != NULL)
        gvmi_cu->cuMemFreeHost(t->progress);
    graph_free(t->g);
}

bool traversal_start_ways(traversal *t, uint64_t budget_bytes, bool all)
{
    if (!graph_ways_start(&t->w, t->g, budget_bytes, all))
        return false;
    t->w.kernels = t->search ? search_kernels : rank_kernels;
    return true;
}

static bool open_regions(traversal *t, uint64_t region_bytes, uint64_t budget_bytes,
                         gvm_region_policy policy, bool all)
{
    t->region_bytes = region_bytes;
    t->budget_bytes = budget_bytes;
    t->policy = policy_name(policy);
    if (!graph_open(t->g, region_bytes, budget_bytes, policy) ||
        !traversal_start_ways(t, budget_bytes, all))
        return false;
    return policy != GVM_REGION_STATIC || graph_spread(t->g);
}

/* ---- measuring */

#define WAY(way) (1u << (way))
enum {
    WAYS_ALL = (1u << GRAPH_WAYS) - 1,
    WAYS_REGIONS = WAY(GRAPH_ZERO_COPY) | WAY(GRAPH_REGIONS) | WAY(GRAPH_REGIONS_TLB),
    WAYS_WARM = WAY(GRAPH_IN_CORE) | WAY(GRAPH_REGIONS) | WAY(GRAPH_REGIONS_TLB),
};

/* Runs from each source, all ways in turns. The first run with regions finds all frames free. */
static bool measure_ways(traversal *t, unsigned ways)
{
    double us;

    memset(t->us, 0, sizeof t->us);
    memset(t->all_us, 0, sizeof t->all_us);
    memset(t->counts, 0, sizeof t->counts);
    for (uint32_t i = 0; i < t->runs; i++)
        for (int way = 0; way < GRAPH_WAYS; way++) {
            if ((ways & WAY(way)) == 0 || (way == GRAPH_IN_CORE && t->g->edges == 0))
                continue;
            if (!run_once(t, way, i, false, &us) || !check_run(t, way, i))
                return false;
            t->all_us[way] += us;
            if (i > 0 || t->runs == 1)
                bench_add(&t->us[way], us);
        }
    return true;
}

/* Once more, with kernels that count. */
static bool count_ways(traversal *t, unsigned ways)
{
    static const int counted[] = {GRAPH_ZERO_COPY, GRAPH_PARTITION, GRAPH_REGIONS};
    gvm_collection_info before;
    double us;

    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
        const int way = counted[i];

        if ((ways & WAY(way)) != 0 && (!graph_count_begin(&t->w, &before) ||
                                       !run_once(t, way, t->runs - 1, way != GRAPH_PARTITION, &us) ||
                                       !graph_count_end(&t->w, way, &before, &t->counts[way]) ||
                                       !check_run(t, way, t->runs - 1)))
            return false;
    }
    return true;
}

double traversal_edges(const traversal *t)
{
    bench_samples samples = {0};

    for (uint32_t i = 0; i < t->runs; i++)
        bench_add(&samples, (double)t->edges[i]);
    return bench_median(&samples);
}

/* What was not counted is left out. */
static const char *counted_text(bool counted, double value, char text[32])
{
    text[0] = '\0';
    if (counted)
        snprintf(text, 32, "%.3f", value);
    return text;
}

static void record_way(traversal *t, int way, const char *budget)
{
    bench *b = t->g->r->b;
    const bool regions = way >= GRAPH_REGIONS;
    const graph_counts *counts = &t->counts[way];
    const double zero_copy = bench_median(&t->us[GRAPH_ZERO_COPY]);
    const double in_core = bench_median(&t->us[GRAPH_IN_CORE]);
    const double base = zero_copy > 0 ? zero_copy : in_core;
    const uint64_t bytes = t->region_bytes; /* also of what was measured beside them */
    char text[32], moved[32], hits[32];
    const char *name = bench_text(b, "%s, budget %s, %s, %s", t->g->name, budget, t->policy,
                                  graph_way_names[way]);
    const double us = bench_record(b, t->section, name, "us", bytes, 0, &t->us[way]);
    const double edges = traversal_edges(t) / us / 1e3;

    bench_record_value(b, t->section, name, "G edges read/s", bytes, 0, edges);
    if (t->search) /* an edge of the graph is read in both directions */
        bench_record_value(b, t->section, name, "GTEPS", bytes, 0, edges / 2);
    if (counts->moved_bytes > 0)
        bench_record_value(b, t->section, name, "bytes moved", bytes, 0, counts->moved_bytes);
    if (counts->maps > 0)
        bench_record_value(b, t->section, name, "hit ratio", bytes, 0, counts->hits);
    bench_record_value(b, t->section, name, zero_copy > 0 ? "times zero-copy" : "times in core",
                       bytes, 0, base / us);
    bench_record_value(
        b, t->section, name,
        zero_copy > 0 ? "times zero-copy, with the first" : "times in core, with the first", bytes,
        0, t->all_us[zero_copy > 0 ? GRAPH_ZERO_COPY : GRAPH_IN_CORE] / t->all_us[way]);
    fprintf(b->text, "  %-18s %-9s %-14s %-7s %-8s %11.3f %9.3f %9s %7s %7.3f %7.3f\n", t->g->name,
            budget, graph_way_names[way], regions ? t->policy : "",
            regions ? gvmi_size_text(t->region_bytes, text) : "", us / 1e3, edges,
            counted_text(counts->moved_bytes > 0, counts->moved_bytes / (double)GVMI_MIB, moved),
            counted_text(counts->maps > 0, counts->hits, hits), base / us,
            t->all_us[zero_copy > 0 ? GRAPH_ZERO_COPY : GRAPH_IN_CORE] / t->all_us[way]);
}

/* One collection: its regions in all of the wanted ways. */
static bool measure_regions(traversal *t, uint64_t region_bytes, uint64_t budget_bytes,
                            gvm_region_policy policy, unsigned ways)
{
    const bool warm = (ways & WAY(GRAPH_ZERO_COPY)) == 0;
    char budget[32];
    bool good = open_regions(t, region_bytes, budget_bytes, policy, ways == WAYS_ALL) &&
                measure_ways(t, ways) && count_ways(t, ways);

    if (good && gvm_space_sync(t->g->r->space, t->g->r->timer.stream) != GVM_OK)
        good = region_failed(t->g->r, "a sync after the kernels");
    for (int way = 0; good && way < GRAPH_WAYS; way++)
        if (t->us[way].count > 0)
            record_way(t, way, warm ? "all" : gvmi_size_text(budget_bytes, budget));
    graph_ways_end(&t->w);
    return good;
}

static void print_head(region_bench *r, bool search)
{
    fprintf(r->b->text,
            "\n%s (medians; in M edges of 4 bytes; the last columns: time of zero-copy, or in core, over this, and with the first run)\n"
            "  %-18s %-9s %-14s %-7s %-8s %11s %9s %9s %7s %7s %7s\n",
            search ? "breadth-first search, one source" : "an iteration of PageRank", "graph",
            "budget", "way", "policy", "region", "ms", "G edges/s", "MiB moved", "hits", "times", "");
}

/* ---- beside the CPU */

bool traversal_expect(traversal *t, const graph_copy *copy)
{
    region_graph *g = t->g;
    float *given;
    bool good;

    if (t->search) {
        for (uint32_t i = 0; i < t->runs; i++)
            if (!graph_search_copy(g, copy, t->sources[i], &t->digests[i]))
                return false;
        return true;
    }
    given = malloc(g->p.vertices * sizeof *given);
    good = given != NULL && graph_rank_copy(g, copy, given) &&
           region_send(g->r, g->p.expected, given, g->p.vertices * sizeof *given);
    t->have_expected = true;
    free(given);
    return good || region_failed(g->r, "ranking on the CPU");
}

/* A graph of a file. */
static bool check_read(traversal *t)
{
    graph_copy copy = {0};
    const bool good = open_regions(t, 4 * GVMI_KIB, 2 * GVMI_MIB, GVM_REGION_CLOCK, false) &&
                      graph_copy_homes(t->g, &copy) && traversal_expect(t, &copy);

    graph_copy_free(&copy);
    graph_ways_end(&t->w);
    return good;
}

/* ---- graphs */

/* A graph, half of whose edges fit, and all of them. */
static bool measure_graph(region_graph *g, bool search, uint32_t runs, bool many)
{
    const uint64_t half = gvmi_round_up(g->edge_bytes / 2, 2 * GVMI_MIB),
                   all = 2 * g->edge_bytes + 64 * GVMI_MIB;
    const uint64_t small = 4 * GVMI_KIB, large = 64 * GVMI_KIB;
    traversal t = {.g = g};
    bool good = traversal_start(&t, g, search, runs) &&
                (g->p.kind != BENCH_GRAPH_FILE || check_read(&t)) &&
                measure_regions(&t, small, half, GVM_REGION_STATIC, WAYS_ALL) &&
                measure_regions(&t, small, half, GVM_REGION_LIRS, WAYS_REGIONS) &&
                measure_regions(&t, small, half, GVM_REGION_CLOCK, WAYS_REGIONS) &&
                (!many || (measure_regions(&t, large, half, GVM_REGION_STATIC, WAYS_REGIONS) &&
                           measure_regions(&t, large, half, GVM_REGION_LIRS, WAYS_REGIONS) &&
                           measure_regions(&t, large, half, GVM_REGION_CLOCK, WAYS_REGIONS))) &&
                (g->edges == 0 || measure_regions(&t, small, all, GVM_REGION_CLOCK, WAYS_WARM)) &&
                (g->edges == 0 || !many ||
                 measure_regions(&t, large, all, GVM_REGION_CLOCK, WAYS_WARM));

    traversal_end(&t);
    return good;
}

/* A small graph, made in one piece or in parts, in all ways. */
static bool check_small(region_bench *r, bool search, uint32_t kind, uint32_t bits, uint32_t degree,
                        uint64_t stage_bytes)
{
    const int code = r->b->code;
    graph_copy copy = {0};
    region_graph g = {.r = r};
    traversal t = {.g = &g};
    unsigned ways = WAYS_ALL;
    bool good = graph_draw(r, &g, kind, bits, degree, stage_bytes) &&
                traversal_start(&t, &g, search, 2) &&
                open_regions(&t, 512, gvmi_max(2 * GVMI_MIB, g.edge_bytes / 4), GVM_REGION_CLOCK, true) &&
                graph_copy_homes(&g, &copy) && graph_check_drawn(&g, &copy) &&
                traversal_expect(&t, &copy) && measure_ways(&t, ways) && count_ways(&t, ways);

    if (good && gvm_space_sync(r->space, r->timer.stream) != GVM_OK)
        good = region_failed(r, "a sync after the kernels");
    graph_copy_free(&copy);
    graph_ways_end(&t.w);
    traversal_end(&t);
    return good && r->b->code == code;
}

static bool check_all_small(region_bench *r, bool search)
{
    const uint32_t bits = (uint32_t)region_size(r, 15, 10);
    const bool good = /* the first has twice as many edges as the smallest budget */
        check_small(r, search, BENCH_GRAPH_RMAT, (uint32_t)region_size(r, 15, 13), 128, 0) &&
        check_small(r, search, BENCH_GRAPH_UNIFORM, bits, 16, 4ull << bits) &&
        check_small(r, search, BENCH_GRAPH_GRID, bits, 4, 0);

    return good || region_failed(r, "comparing small graphs with the CPU's");
}

/* ---- beside the best choice */

/* Maps, misses as of now. */
static bool count_misses(traversal *t, double *maps, double *missed)
{
    uint64_t out[BENCH_GRAPH_WORDS];

    if (!graph_receive_out(t->g, out))
        return false;
    *maps = (double)out[BENCH_GRAPH_MAPS];
    *missed = (double)(region_info(t->g->r).fetched + out[BENCH_GRAPH_REMOTE]);
    return true;
}

/* The hits of all runs but the first, and their trace, in which these begin at *first. */
static bool trace_runs(traversal *t, uint32_t *first, double *hits)
{
    double us, maps[2] = {0}, missed[2] = {0};

    if (!graph_clear_out(t->g))
        return false;
    for (uint32_t i = 0; i < t->runs; i++)
        if (!run_once(t, GRAPH_REGIONS, i, true, &us) ||
            (i == 0 && !count_misses(t, &maps[0], &missed[0])))
            return false;
    if (!count_misses(t, &maps[1], &missed[1]))
        return false;
    if (maps[1] > (double)t->g->p.trace_max)
        return region_failed(t->g->r, "recording maps: there are more than the trace holds");
    *first = (uint32_t)maps[0];
    *hits = 1 - (missed[1] - missed[0]) / (maps[1] - maps[0]);
    t->w.moved_bytes = (uint64_t)maps[1]; /* maps that the trace has */
    return true;
}

static bool replay_trace(traversal *t, uint32_t first, double hits)
{
    bench *b = t->g->r->b;
    const uint32_t frames = (uint32_t)region_info(t->g->r).frame_count;
    const char *name = bench_text(b, "%s, %s, beside the best choice", t->g->name, t->policy);
    region_sequence trace;
    double best, lru;

    if (!region_sequence_alloc(&trace, (uint32_t)t->w.moved_bytes, t->g->r->view.count) ||
        !region_receive(t->g->r, trace.numbers, t->g->p.trace, trace.count * sizeof(uint32_t)))
        return region_failed(t->g->r, "reading a trace");
    best = region_belady_hits(&trace, first, frames) / (trace.count - first);
    lru = region_lru_hits(&trace, first, frames) / (trace.count - first);
    region_sequence_free(&trace);
    bench_record_value(b, t->section, name, "hit ratio", t->region_bytes, 0, hits);
    bench_record_value(b, t->section, name, "hit ratio, best", t->region_bytes, 0, best);
    bench_record_value(b, t->section, name, "hit ratio, LRU", t->region_bytes, 0, lru);
    fprintf(b->text, "  %-18s %-8s %8.3f %8.3f %8.3f\n", t->g->name, t->policy, hits, best, lru);
    return true;
}

/* Hits of each policy with half of the edges, beside those of the best choice (Belady) and of LRU for the same maps. */
static bool measure_hits(region_bench *r, bool search)
{
    const uint32_t bits = (uint32_t)region_size(r, 18, 13);
    region_graph g = {.r = r};
    traversal t = {.g = &g};
    uint32_t first = 0;
    double hits = 0;
    bool good = graph_draw(r, &g, BENCH_GRAPH_RMAT, bits, (uint32_t)region_size(r, 16, 128), 0) &&
                traversal_start(&t, &g, search, (uint32_t)region_size(r, 3, 2));

    g.p.trace_max = 64 * g.edge_bytes / (4 * GVMI_KIB);
    good = good && graph_alloc(&g, &g.p.trace, g.p.trace_max * sizeof(uint32_t));
    fprintf(r->b->text,
            "\nhits of maps with half of the edges in frames, after the first run\n  %-18s %-8s %8s %8s %8s\n",
            "graph", "policy", "hits", "best", "LRU");
    for (size_t i = 0; good && i < POLICY_COUNT; i++) {
        good = open_regions(&t, 4 * GVMI_KIB, g.edge_bytes / 2, policies[i].policy, false) &&
               trace_runs(&t, &first, &hits) && replay_trace(&t, first, hits) &&
               check_run(&t, GRAPH_REGIONS, t.runs - 1);
        graph_ways_end(&t.w);
    }
    traversal_end(&t);
    return good;
}

/* ---- the slides' series */

/* The time of a level without vertices: what each kernel costs besides edges. */
static bool time_empty_level(traversal *t, int way, double *us)
{
    region_bench *r = t->g->r;
    bench_samples samples = {0};
    bench_graph_params p = t->g->p;
    bool more;

    for (int i = 0; i < 21; i++) {
        if (!graph_clear(t->g, p.frontier, 0, ((uint64_t)p.vertices + 31) / 32) ||
            !bench_timer_start(r->b, &r->timer) || !search_level(t, way, &p, false, &more) ||
            !bench_timer_stop(r->b, &r->timer, us))
            return false;
        bench_add(&samples, *us);
    }
    *us = bench_median(&samples);
    return true;
}

static bool measure_degree(region_bench *r, uint32_t bits, uint32_t degree, uint32_t runs)
{
    static const int ways[] = {GRAPH_IN_CORE, GRAPH_REGIONS};
    region_graph g = {.r = r};
    traversal t = {.g = &g};
    double empty, us, teps, setup;
    bool good = graph_draw(r, &g, BENCH_GRAPH_RMAT, bits, degree, 0) &&
                traversal_start(&t, &g, true, runs) &&
                open_regions(&t, 4 * GVMI_KIB, 2 * g.edge_bytes + 64 * GVMI_MIB, GVM_REGION_CLOCK,
                             false) &&
                measure_ways(&t, WAY(GRAPH_IN_CORE) | WAY(GRAPH_REGIONS));

    for (size_t i = 0; good && i < sizeof ways / sizeof ways[0]; i++) {
        const char *name = bench_text(r->b, "series, %u edges a vertex, %s", degree,
                                      graph_way_names[ways[i]]);

        good = time_empty_level(&t, ways[i], &empty);
        us = bench_record(r->b, t.section, name, "us", 0, 0, &t.us[ways[i]]);
        teps = traversal_edges(&t) / 2 / us / 1e3;
        setup = t.levels * empty / us;
        bench_record_value(r->b, t.section, name, "GTEPS", 0, 0, teps);
        bench_record_value(r->b, t.section, name, "set-up, ratio", 0, 0, setup);
        fprintf(r->b->text, "  %8u %8u %-12s %10.3f %10.3f %10.3f\n", 1u << bits, degree,
                graph_way_names[ways[i]], us / 1e3, teps, setup);
    }
    graph_ways_end(&t.w);
    traversal_end(&t);
    return good;
}

static bool measure_series(region_bench *r)
{
    const uint32_t bits = (uint32_t)region_size(r, r->b->quick ? 18 : 22, 9);
    bool good = true;

    fprintf(r->b->text,
            "\nedges a vertex, all edges in frames; set-up: part of the time that levels without vertices would take\n"
            "  %8s %8s %-12s %10s %10s %10s\n",
            "vertices", "edges", "way", "ms", "GTEPS", "set-up");
    for (uint32_t degree = 4; good && degree <= 64; degree *= 2)
        good = measure_degree(r, bits, degree, r->b->quick ? 3 : 9);
    return good;
}

/* ---- all */

static bool measure_drawn(region_bench *r, bool search, uint32_t kind, uint32_t bits,
                          uint32_t degree, uint32_t runs, bool many)
{
    region_graph g = {.r = r};
    const bool good = graph_draw(r, &g, kind, bits, degree, 0) &&
                      measure_graph(&g, search, runs, many);

    graph_free(&g);
    return good;
}

static bool measure_file(region_bench *r, bool search)
{
    region_graph g = {.r = r};
    const bool good = graph_read(r, &g, r->b->graph_path) && measure_graph(&g, search, 4, true);

    graph_free(&g);
    return good;
}

static bool measure_all(region_bench *r, bool search)
{
    const bool quick = r->b->quick || r->b->info.software;
    const uint32_t less = r->b->info.software ? 14
                          : quick             ? 4
                                              : 0,
                   runs = quick    ? 2
                          : search ? 16
                                   : 6;

    if (r->b->graph_path == NULL && !check_all_small(r, search))
        return false;
    print_head(r, search);
    if (r->b->graph_path != NULL)
        return measure_file(r, search);
    return measure_drawn(r, search, BENCH_GRAPH_RMAT, 26 - less, 16, runs, !quick) &&
           measure_drawn(r, search, BENCH_GRAPH_UNIFORM, 24 - less, 16, (runs + 1) / 2, false) &&
           measure_drawn(r, search, BENCH_GRAPH_GRID, 20 - less, 4, (runs + 3) / 4 + 1, false) &&
           measure_hits(r, search);
}

bool region_measure_bfs(region_bench *r)
{
    return measure_all(r, true) && (r->b->graph_path != NULL || measure_series(r));
}

bool region_measure_pagerank(region_bench *r)
{
    return measure_all(r, false);
}
