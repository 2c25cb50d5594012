/* examples/bfs.h - a breadth-first search of a graph in regions, by the kernel of region_bfs_kernel.c and by the CPU. */
#ifndef EXAMPLES_BFS_H
#define EXAMPLES_BFS_H

#include "graph.h"

#define UNSEEN UINT32_MAX

/* The same in region_bfs_kernel.c. */
typedef struct bfs_params {
    gvm_region_view edges;
    uint64_t offsets, levels;
    uint64_t frontier, next, next_count;
    uint32_t frontier_count, level;
} bfs_params;

/* On the CPU; levels: what it found. Returns how many edges it looked at. */
static inline uint64_t search_cpu(const graph *g, uint32_t source, uint32_t *levels)
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

/* By the kernel, level by level. levels: all UNSEEN but the source; then what it found. */
static inline void search_gpu(example *e, const kernel *k, const graph *g, uint32_t source,
                              uint32_t *levels)
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

#endif
