/* examples/graph.h - a graph whose edges lie in regions.
 *
 * It is made in place: R-MAT with the parameters of Graph 500, 2^(14 + SCALE) vertices, 16 edges each, in both
 * directions. Vertex v has the edges from offsets[v] up to offsets[v + 1].
 */
#ifndef EXAMPLES_GRAPH_H
#define EXAMPLES_GRAPH_H

#include "regions.h"

#define EDGES_EACH 1024u /* of a region: 4 KiB, since the edges of most vertices are fewer */

typedef struct graph {
    uint32_t bits, vertices;
    uint64_t *offsets;
    uint32_t **edges; /* of each region, while the CPU has it mapped */
    uint32_t regions;
    gvm_collection *collection;
} graph;

static inline uint64_t draw(uint64_t z)
{
    z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Edge i, the same whenever it is asked for. Each bit takes 16 of a random number's. */
static inline void draw_edge(const graph *g, uint64_t i, uint32_t ends[2])
{
    uint64_t random = 0;

    ends[0] = ends[1] = 0;
    for (uint32_t bit = 0; bit < g->bits; bit++, random >>= 16) {
        if (bit % 4 == 0)
            random = draw(i * 8 + bit / 4);
        ends[0] = ends[0] << 1 | ((random & 0xffff) >= 49807); /* 0.76 */
        ends[1] = ends[1] << 1 | (((random & 0xffff) >= 37356 && (random & 0xffff) < 49807) ||
                                  (random & 0xffff) >= 62259);
    }
}

static inline uint32_t *edge_at(const graph *g, uint64_t i)
{
    return &g->edges[i / EDGES_EACH][i % EDGES_EACH];
}

static inline void map_edges(const graph *g, uint32_t access)
{
    for (uint32_t i = 0; i < g->regions; i++)
        g->edges[i] = map_region(g->collection, i, access);
}

static inline void unmap_edges(const graph *g)
{
    for (uint32_t i = 0; i < g->regions; i++)
        unmap_region(g->collection, i);
}

/* All but its edges, the same for the same scale. */
static inline graph plan_graph(uint64_t scale)
{
    graph g = {.bits = (uint32_t)(14 + scale)};
    const uint64_t count = 16ull << g.bits;
    uint32_t ends[2];

    g.vertices = 1u << g.bits;
    g.regions = (uint32_t)(2 * count / EDGES_EACH);
    g.offsets = calloc(g.vertices + 1, sizeof *g.offsets);
    g.edges = calloc(g.regions, sizeof *g.edges);
    if (g.offsets == NULL || g.edges == NULL)
        give_up("out of memory");
    for (uint64_t i = 0; i < count; i++) { /* offsets[v + 1]: how many v has */
        draw_edge(&g, i, ends);
        g.offsets[ends[0] + 1]++;
        g.offsets[ends[1] + 1]++;
    }
    for (uint32_t i = 1; i <= g.vertices; i++)
        g.offsets[i] += g.offsets[i - 1];
    return g;
}

/* Writes the edges into the collection. */
static inline void fill_graph(const graph *g)
{
    uint64_t *next = malloc(g->vertices * sizeof *next); /* where the next edge of a vertex lies */
    uint32_t ends[2];

    if (next == NULL)
        give_up("out of memory");
    memcpy(next, g->offsets, g->vertices * sizeof *next);
    map_edges(g, GVM_REGION_WRITE);
    for (uint64_t i = 0; i < 16ull << g->bits; i++) {
        draw_edge(g, i, ends);
        *edge_at(g, next[ends[0]]++) = ends[1];
        *edge_at(g, next[ends[1]]++) = ends[0];
    }
    unmap_edges(g);
    free(next);
}

static inline graph make_graph(const example *e, gvm_region_policy policy)
{
    gvm_collection_options options = gvm_collection_options_init();
    graph g = plan_graph(e->scale);

    options.policy = policy;
    must(gvm_collection_create(e->space, g.regions, EDGES_EACH * sizeof(uint32_t), &options,
                               &g.collection),
         "cannot make regions for edges");
    fill_graph(&g);
    return g;
}

/* Plain device memory, filled from an array of the CPU. */
static inline uint64_t to_device(const example *e, const void *from, uint64_t bytes, gvm_buffer **out)
{
    must(gvm_buffer_create(e->device, bytes, NULL, out), "cannot make an array");
    must(gvm_buffer_commit(*out, 0, bytes), "no device memory for an array");
    must(gvm_buffer_copy_in(*out, 0, from, bytes), "cannot fill an array");
    return (uint64_t)(uintptr_t)gvm_buffer_address(*out);
}

static inline void free_graph(graph *g)
{
    free(g->offsets);
    free(g->edges);
}

#endif
