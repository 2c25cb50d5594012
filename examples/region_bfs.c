/* Breadth-first search of a graph whose edges do not fit in the device memory that they may use.
 *
 * The graph is made in place: R-MAT with the parameters of Graph 500, 2^(15 + SCALE) vertices, 16 edges each, in both
 * directions. Edges lie in regions of 4 KiB; what there is of each vertex is in device memory. The CPU searches as
 * well, and finds the same levels.
 *
 *     region_bfs [SCALE [BUDGET_MIB]]
 */
#include "regions.h"

#define EDGES_EACH 1024u /* of a region */
#define UNSEEN UINT32_MAX

/* The same in region_bfs_kernel.c. */
typedef struct bfs_params {
    gvm_region_view edges;
    uint64_t offsets, levels;
    uint64_t frontier, next, next_count;
    uint32_t frontier_count, level;
} bfs_params;

typedef struct graph {
    uint32_t bits, vertices;
    uint64_t *offsets;
    uint32_t **edges; /* of each region, while the CPU has it mapped */
    uint32_t regions;
    gvm_collection *collection;
} graph;

/* ---- the graph */

static uint64_t draw(uint64_t z)
{
    z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Edge i, the same whenever it is asked for. */
static void draw_edge(const graph *g, uint64_t i, uint32_t ends[2])
{
    ends[0] = ends[1] = 0;
    for (uint32_t bit = 0; bit < g->bits; bit++) {
        const uint64_t of_100 = draw(i * 64 + bit) % 100;

        ends[0] = ends[0] << 1 | (of_100 >= 76);
        ends[1] = ends[1] << 1 | ((of_100 >= 57 && of_100 < 76) || of_100 >= 95);
    }
}

static uint32_t *edge_at(const graph *g, uint64_t i)
{
    return &g->edges[i / EDGES_EACH][i % EDGES_EACH];
}

static void map_edges(const graph *g, uint32_t access)
{
    for (uint32_t i = 0; i < g->regions; i++)
        g->edges[i] = map_region(g->collection, i, access);
}

static void unmap_edges(const graph *g)
{
    for (uint32_t i = 0; i < g->regions; i++)
        unmap_region(g->collection, i);
}

static graph make_graph(const example *e)
{
    graph g = {.bits = (uint32_t)(15 + e->scale)};
    const uint64_t count = 16ull << g.bits;
    uint32_t ends[2];

    g.vertices = 1u << g.bits;
    g.regions = (uint32_t)(2 * count / EDGES_EACH);
    g.offsets = calloc(g.vertices + 2, sizeof *g.offsets);
    g.edges = calloc(g.regions, sizeof *g.edges);
    if (g.offsets == NULL || g.edges == NULL)
        give_up("out of memory");
    must(gvm_collection_create(e->space, g.regions, EDGES_EACH * sizeof(uint32_t), NULL, &g.collection),
         "cannot make regions for edges");
    for (uint64_t i = 0; i < count; i++) { /* offsets[v + 2]: how many v has */
        draw_edge(&g, i, ends);
        g.offsets[ends[0] + 2]++;
        g.offsets[ends[1] + 2]++;
    }
    for (uint32_t i = 2; i <= g.vertices; i++)
        g.offsets[i] += g.offsets[i - 1];
    map_edges(&g, GVM_REGION_WRITE);
    for (uint64_t i = 0; i < count; i++) { /* offsets[v + 1]: where the next of v lies */
        draw_edge(&g, i, ends);
        *edge_at(&g, g.offsets[ends[0] + 1]++) = ends[1];
        *edge_at(&g, g.offsets[ends[1] + 1]++) = ends[0];
    }
    unmap_edges(&g);
    return g;
}

/* ---- searches */

/* On the CPU. Returns how many edges it looked at. */
static uint64_t search_cpu(const graph *g, uint32_t source, uint32_t *levels)
{
    uint32_t *queue = malloc(g->vertices * sizeof *queue);
    uint64_t tail = 0, looked = 0;

    if (queue == NULL)
        give_up("out of memory");
    memset(levels, 0xff, g->vertices * sizeof *levels);
    map_edges(g, GVM_REGION_READ);
    levels[source] = 0;
    queue[tail++] = source;
    for (uint64_t head = 0; head < tail; head++)
        for (uint64_t i = g->offsets[queue[head]]; i < g->offsets[queue[head] + 1]; i++, looked++) {
            const uint32_t vertex = *edge_at(g, i);

            if (levels[vertex] == UNSEEN) {
                levels[vertex] = levels[queue[head]] + 1;
                queue[tail++] = vertex;
            }
        }
    unmap_edges(g);
    free(queue);
    return looked;
}

/* Plain device memory, filled from an array of the CPU. */
static uint64_t to_device(const example *e, const void *from, uint64_t bytes, gvm_buffer **out)
{
    must(gvm_buffer_create(e->device, bytes, NULL, out), "cannot make an array");
    must(gvm_buffer_commit(*out, 0, bytes), "no device memory for an array");
    must(gvm_buffer_copy_in(*out, 0, from, bytes), "cannot fill an array");
    return (uint64_t)(uintptr_t)gvm_buffer_address(*out);
}

/* By the kernel, level by level. levels: all UNSEEN but the source; then what it found. */
static void search_gpu(example *e, const kernel *k, const graph *g, uint32_t source, uint32_t *levels)
{
    const uint64_t bytes = g->vertices * sizeof *levels;
    const uint32_t zero = 0;
    gvm_buffer *buffers[5];
    bfs_params p = {.frontier_count = 1};

    must(gvm_collection_get_view(g->collection, &p.edges), "cannot pass the edges");
    p.offsets = to_device(e, g->offsets, (g->vertices + 1) * sizeof *g->offsets, &buffers[0]);
    p.levels = to_device(e, levels, bytes, &buffers[1]);
    p.frontier = to_device(e, levels, bytes, &buffers[2]);
    p.next = to_device(e, levels, bytes, &buffers[3]);
    p.next_count = to_device(e, &zero, sizeof zero, &buffers[4]);
    must(gvm_buffer_copy_in(buffers[2], 0, &source, sizeof source), "cannot pass the source");
    for (; p.frontier_count > 0; p.level++) {
        const uint64_t frontier = p.next;

        run_timed(e, k, &p);
        p.next = p.frontier;
        p.frontier = frontier;
        must(gvm_buffer_copy_out(&p.frontier_count, buffers[4], 0, sizeof zero),
             "no size of a frontier");
        must(gvm_buffer_copy_in(buffers[4], 0, &zero, sizeof zero), "cannot empty a frontier");
    }
    must(gvm_buffer_copy_out(levels, buffers[1], 0, bytes), "cannot read the levels");
    for (int i = 0; i < 5; i++)
        gvm_buffer_destroy(buffers[i]);
}

int main(int argc, char **argv)
{
    example e = start_example(argc, argv, "region_bfs", 1, 4);
    const graph g = make_graph(&e);
    const uint32_t source = 0;
    uint32_t *expected = malloc(g.vertices * sizeof *expected),
             *levels = malloc(g.vertices * sizeof *levels);
    kernel k = load_kernel(e.device, "region_bfs_kernel", "bfs");
    uint64_t looked;
    int wrong;

    if (expected == NULL || levels == NULL)
        give_up("out of memory");
    looked = search_cpu(&g, source, expected);
    memset(levels, 0xff, g.vertices * sizeof *levels);
    levels[source] = 0;
    must(gvm_space_sync(e.space, NULL), "the kernel cannot see the edges");
    search_gpu(&e, &k, &g, source, levels);
    must(gvm_space_sync(e.space, NULL), "the kernel did something wrong");
    wrong = memcmp(levels, expected, g.vertices * sizeof *levels) != 0;
    if (wrong)
        fputs("region_bfs: the kernel's levels differ from the CPU's\n", stderr);
    printf("%u vertices, %llu edges looked at, %.3g a second\n", g.vertices,
           (unsigned long long)looked, (double)looked / e.seconds);
    print_regions("edges", g.collection);
    end_example(&e, &k);
    free(g.offsets);
    free(g.edges);
    free(expected);
    free(levels);
    return wrong;
}
