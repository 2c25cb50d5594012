/* Patterns of maps by which policies differ. Each time the same, as they are made from fixed seeds; sizes are multiples of a cache's frames. */
#include "bench/region/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- chance */

#define LOG2_ENDS_A_VERTEX 5 /* of the graph: 16 edges, each with two ends */

static double next_unit(uint64_t *state)
{
    return (double)(region_random(state) >> 11) / 9007199254740992.0;
}

static void shuffle(uint32_t *numbers, uint32_t count, uint64_t *state)
{
    for (uint32_t i = count; i-- > 1;) {
        const uint32_t other = (uint32_t)(region_random(state) % (i + 1)), kept = numbers[i];

        numbers[i] = numbers[other];
        numbers[other] = kept;
    }
}

static uint32_t find_rank(const double *sums, uint32_t count, double wanted)
{
    uint32_t low = 0, high = count - 1;

    while (low < high) {
        const uint32_t middle = (low + high) / 2;

        if (sums[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The region of rank k is mapped as often as k to the power of -exponent. */
static bool draw_zipf(region_sequence *s, double exponent)
{
    double *sums = malloc(s->regions * sizeof *sums), sum = 0;
    uint32_t *order = malloc(s->regions * sizeof *order);
    const bool good = sums != NULL && order != NULL;
    uint64_t state = 3;

    for (uint32_t i = 0; good && i < s->regions; i++) {
        sums[i] = sum += pow(i + 1, -exponent);
        order[i] = i;
    }
    if (good)
        shuffle(order, s->regions, &state);
    for (uint32_t i = 0; good && i < s->count; i++)
        s->numbers[i] = order[find_rank(sums, s->regions, next_unit(&state) * sum)];
    free(sums);
    free(order);
    return good;
}

/* Nine of ten maps are of one of a few regions, which after so many maps are others: so many regions further. */
static void draw_hot_set(region_sequence *s, uint32_t hot, uint32_t maps, uint32_t further)
{
    uint64_t state = 5;

    for (uint32_t i = 0; i < s->count; i++) {
        const uint64_t first = (uint64_t)(i / maps) * further, number = region_random(&state);

        s->numbers[i] = (uint32_t)((number % 10 != 0 ? first + number / 10 % hot : number / 10) %
                                   s->regions);
    }
}

/* ---- a search in a graph */

typedef struct graph {
    uint32_t vertices, edges;
    uint32_t *from, *ends; /* the neighbours of v: ends[from[v]] to ends[from[v + 1]] */
} graph;

/* Recursive matrix (R-MAT) with the quarters 0.57, 0.19, 0.19, 0.05. */
static void draw_edge(uint32_t scale, uint64_t *state, uint32_t ends[2])
{
    ends[0] = ends[1] = 0;
    for (uint32_t i = 0; i < scale; i++) {
        const double u = next_unit(state);

        ends[0] = 2 * ends[0] + (u >= 0.76);
        ends[1] = 2 * ends[1] + ((u >= 0.57 && u < 0.76) || u >= 0.95);
    }
}

/* Counts neighbours, and with filled says who they are: the same edges are drawn each time. */
static void draw_edges(graph *g, uint32_t scale, uint32_t *filled)
{
    uint64_t state = 11;
    uint32_t ends[2];

    for (uint32_t i = 0; i < g->edges; i++) {
        draw_edge(scale, &state, ends);
        for (int k = 0; k < 2; k++)
            if (filled == NULL)
                g->from[ends[k] + 1]++;
            else
                g->ends[g->from[ends[k]] + filled[ends[k]]++] = ends[1 - k];
    }
}

static void free_graph(graph *g)
{
    free(g->from);
    free(g->ends);
}

static bool make_graph(graph *g, uint32_t scale)
{
    uint32_t *filled = calloc(1u << scale, sizeof *filled);

    g->vertices = 1u << scale;
    g->edges = g->vertices << (LOG2_ENDS_A_VERTEX - 1);
    g->from = calloc(g->vertices + 1, sizeof *g->from);
    g->ends = malloc(2 * (size_t)g->edges * sizeof *g->ends);
    if (filled == NULL || g->from == NULL || g->ends == NULL) {
        free(filled);
        return false;
    }
    draw_edges(g, scale, NULL);
    for (uint32_t v = 0; v < g->vertices; v++)
        g->from[v + 1] += g->from[v];
    draw_edges(g, scale, filled);
    free(filled);
    return true;
}

/* One search from a vertex: what is mapped for each vertex of the queue is all regions that its neighbours are in. Returns how many maps
 * there are then. */
static uint32_t search_from(region_sequence *s, const graph *g, uint32_t vertex, uint32_t *queue,
                            bool *seen, uint32_t maps)
{
    const uint32_t ends_each = (2 * g->edges + s->regions - 1) / s->regions;
    uint32_t head = 0, tail = 0;

    memset(seen, 0, g->vertices * sizeof *seen);
    queue[tail++] = vertex;
    seen[vertex] = true;
    for (; head < tail; head++) {
        const uint32_t first = g->from[queue[head]], end = g->from[queue[head] + 1];

        for (uint32_t r = first / ends_each; r * ends_each < end && first < end && maps < s->count; r++)
            s->numbers[maps++] = r;
        for (uint32_t i = first; i < end; i++)
            if (!seen[g->ends[i]]) {
                seen[g->ends[i]] = true;
                queue[tail++] = g->ends[i];
            }
    }
    return maps;
}

/* Searches, one after the other, in a graph whose edges are cut into regions of 128 ends. */
static bool draw_searches(region_sequence *s, uint32_t scale)
{
    graph g = {0};
    const bool made = make_graph(&g, scale);
    uint32_t *queue = malloc(sizeof *queue << scale), maps = 0;
    bool *seen = malloc(sizeof *seen << scale);
    const bool good = made && queue != NULL && seen != NULL;
    uint64_t state = 13;

    while (good && maps < s->count) {
        const uint32_t vertex = (uint32_t)(region_random(&state) % g.vertices);

        if (g.from[vertex] != g.from[vertex + 1])
            maps = search_from(s, &g, vertex, queue, seen, maps);
    }
    free(queue);
    free(seen);
    free_graph(&g);
    return good;
}

/* ---- the patterns, of a cache of so many frames */

static bool make_scan(region_sequence *s, uint32_t frames)
{
    if (!region_sequence_alloc(s, 12 * frames, 2 * frames))
        return false;
    region_sequence_scan(s, frames / 2);
    return true;
}

static bool make_cyclic(region_sequence *s, uint32_t frames)
{
    if (!region_sequence_alloc(s, 12 * frames, 2 * frames))
        return false;
    region_sequence_cyclic(s);
    return true;
}

static bool make_loop(region_sequence *s, uint32_t frames)
{
    if (!region_sequence_alloc(s, 12 * frames, frames + frames / 10))
        return false;
    region_sequence_cyclic(s);
    return true;
}

static bool make_zipf_08(region_sequence *s, uint32_t frames)
{
    return region_sequence_alloc(s, 48 * frames, 8 * frames) && draw_zipf(s, 0.8);
}

static bool make_zipf_10(region_sequence *s, uint32_t frames)
{
    return region_sequence_alloc(s, 48 * frames, 8 * frames) && draw_zipf(s, 1.0);
}

static bool make_searches(region_sequence *s, uint32_t frames)
{
    uint32_t scale = 8;

    while (1u << (scale + LOG2_ENDS_A_VERTEX - 7) < 2 * frames) /* twice the frames, of 128 ends */
        scale++;
    return region_sequence_alloc(s, 48 * frames, 1u << (scale + LOG2_ENDS_A_VERTEX - 7)) &&
           draw_searches(s, scale);
}

/* 40 % of the experts of a model with 128 of them in a layer fit. */
static bool make_experts(region_sequence *s, uint32_t frames)
{
    const uint32_t layers = frames * 5 / 2 / 128;

    if (layers == 0 || !region_sequence_alloc(s, layers * 8 * 120, layers * 128))
        return false;
    region_sequence_experts(s, layers, 128, 8);
    return true;
}

static bool make_shifting(region_sequence *s, uint32_t frames)
{
    if (!region_sequence_alloc(s, 48 * frames, 8 * frames))
        return false;
    draw_hot_set(s, frames / 2, 8 * frames, frames / 2);
    return true;
}

static bool make_sliding(region_sequence *s, uint32_t frames)
{
    if (!region_sequence_alloc(s, 48 * frames, 8 * frames))
        return false;
    draw_hot_set(s, frames / 2, 8, 1);
    return true;
}

const region_pattern region_patterns[REGION_PATTERNS] = {
    {"scan, hot half", "scan", make_scan},        {"cyclic scan", "cyclic", make_cyclic},
    {"loop of 1.1", "loop", make_loop},           {"Zipf 0.8", "Zipf 0.8", make_zipf_08},
    {"Zipf 1.0", "Zipf 1.0", make_zipf_10},       {"BFS", "BFS", make_searches},
    {"experts", "experts", make_experts},         {"shifting hot set", "shifting", make_shifting},
    {"sliding hot set", "sliding", make_sliding},
};
