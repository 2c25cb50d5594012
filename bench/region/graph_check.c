/* Small graphs on the CPU: drawn, searched and ranked, to compare. */
#include "bench/region/graphs.h"

#include <stdlib.h>
#include <string.h>

void graph_copy_free(graph_copy *copy)
{
    free(copy->offsets);
    free(copy->edges);
    *copy = (graph_copy){0};
}

bool graph_copy_homes(region_graph *g, graph_copy *copy)
{
    const uint64_t bytes = (g->p.vertices + 1ull) * sizeof *copy->offsets;

    *copy = (graph_copy){malloc(bytes), malloc(g->edge_bytes + 1)};
    if (copy->offsets == NULL || copy->edges == NULL)
        return region_failed(g->r, "out of memory");
    return region_receive(g->r, copy->offsets, g->p.offsets, bytes) &&
           region_receive(g->r, copy->edges, region_homes(&g->r->view), g->edge_bytes);
}

/* ---- drawing */

static int compare_edges(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* offsets: two more than those of a graph, all 0. */
static void draw_again(const region_graph *g, uint64_t *offsets, uint32_t *edges)
{
    uint32_t ends[2];

    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < g->p.drawn; i++)
            for (int k = 0; k < 2 && bench_graph_draw(g->p.kind, g->p.bits, i, ends); k++)
                if (pass == 0)
                    offsets[ends[k] + 2]++;
                else
                    edges[offsets[ends[k] + 1]++] = ends[1 - k];
        for (uint32_t v = 2; pass == 0 && v <= g->p.vertices; v++)
            offsets[v] += offsets[v - 1];
    }
}

static void sort_lists(const region_graph *g, const uint64_t *offsets, uint32_t *edges)
{
    for (uint32_t v = 0; v < g->p.vertices; v++)
        qsort(edges + offsets[v], offsets[v + 1] - offsets[v], sizeof *edges, compare_edges);
}

bool graph_check_drawn(region_graph *g, graph_copy *copy)
{
    uint64_t *offsets = calloc(g->p.vertices + 3ull, sizeof *offsets);
    uint32_t *edges = malloc(g->edge_bytes + 1);
    bool good = false;

    if (offsets != NULL && edges != NULL) {
        draw_again(g, offsets, edges);
        good = memcmp(offsets, copy->offsets, (g->p.vertices + 1ull) * sizeof *offsets) == 0;
    }
    if (good) {
        sort_lists(g, offsets, edges);
        sort_lists(g, offsets, copy->edges);
        good = memcmp(edges, copy->edges, g->edge_bytes) == 0;
    }
    if (!good)
        bench_note(g->r->b, "%s: kernels and the CPU have drawn different graphs", g->name);
    free(offsets);
    free(edges);
    return good;
}

/* ---- searching and ranking */

static void search_lists(const region_graph *g, const graph_copy *copy, uint32_t source,
                         uint32_t *levels, uint32_t *queue)
{
    uint32_t tail = 0;

    memset(levels, 0xff, g->p.vertices * sizeof *levels);
    levels[source] = 0;
    queue[tail++] = source;
    for (uint32_t head = 0; head < tail; head++)
        for (uint64_t i = copy->offsets[queue[head]]; i < copy->offsets[queue[head] + 1]; i++)
            if (levels[copy->edges[i]] == BENCH_UNSEEN) {
                levels[copy->edges[i]] = levels[queue[head]] + 1;
                queue[tail++] = copy->edges[i];
            }
}

bool graph_search_copy(const region_graph *g, const graph_copy *copy, uint32_t source, uint64_t *digest)
{
    uint32_t *levels = malloc(g->p.vertices * sizeof *levels);
    uint32_t *queue = malloc(g->p.vertices * sizeof *queue);
    const bool good = levels != NULL && queue != NULL;

    *digest = 0;
    if (good)
        search_lists(g, copy, source, levels, queue);
    for (uint64_t v = 0; good && v < g->p.vertices; v++)
        *digest += bench_graph_mix(v << 32 | levels[v]);
    free(levels);
    free(queue);
    return good || region_failed(g->r, "out of memory");
}

bool graph_rank_copy(const region_graph *g, const graph_copy *copy, float *given)
{
    const uint64_t *offsets = copy->offsets;
    float *before = malloc(g->p.vertices * sizeof *before);

    if (before == NULL)
        return region_failed(g->r, "out of memory");
    for (uint32_t v = 0; v < g->p.vertices; v++)
        before[v] = offsets[v + 1] > offsets[v]
                        ? (float)(1.0 / g->p.vertices / (double)(offsets[v + 1] - offsets[v]))
                        : 0;
    for (uint32_t v = 0; v < g->p.vertices; v++) {
        double sum = 0;

        for (uint64_t i = offsets[v]; i < offsets[v + 1]; i++)
            sum += (double)before[copy->edges[i]];
        given[v] = offsets[v + 1] > offsets[v]
                       ? (float)(((1 - BENCH_DAMPING) / g->p.vertices + BENCH_DAMPING * sum) /
                                 (double)(offsets[v + 1] - offsets[v]))
                       : 0;
    }
    free(before);
    return true;
}
