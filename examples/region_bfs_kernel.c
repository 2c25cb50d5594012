/* The kernel of region_bfs.c: a level of a breadth-first search. A warp takes a vertex of the frontier, its lanes the
 * vertex's neighbours, which lie in one region or several. */
#include <gvmem/device/region.h>

#define UNSEEN 0xffffffffu

/* The same in region_bfs.c. Vertex v has the edges from offsets[v] up to offsets[v + 1]. */
typedef struct bfs_params {
    gvm_region_view edges;    /* uint32_t each: the vertex at the other end */
    uint64_t offsets, levels; /* uint64_t and uint32_t of each vertex */
    uint64_t frontier, next, next_count;
    uint32_t frontier_count, level;
} bfs_params;

/* A neighbour that nobody has seen is in the next frontier. */
GVM_DEVICE void visit(const bfs_params *p, uint32_t vertex)
{
    uint32_t *level = (uint32_t *)(uintptr_t)p->levels + vertex;

    if (gvm_load_consume_u32(level) == UNSEEN &&
        gvm_atomic_cas_u32(level, UNSEEN, p->level + 1) == UNSEEN)
        ((uint32_t *)(uintptr_t)p->next)[gvm_atomic_add_u32((uint32_t *)(uintptr_t)p->next_count, 1)] = vertex;
}

GVM_DEVICE void visit_edges(const bfs_params *p, uint64_t first, uint64_t end)
{
    const uint64_t each = p->edges.region_bytes / sizeof(uint32_t);
    uint64_t i;

    while (first < end) {
        const uint32_t region = (uint32_t)(first / each);
        const uint64_t begin = region * each, stop = end < begin + each ? end : begin + each;

        GVM_REGION_SCOPE_WARP(const uint32_t *, edges, &p->edges, region, GVM_REGION_READ)
            for (i = first + gvm_lane(); i < stop; i += gvm_warp_size())
                visit(p, edges[i - begin]);
        first = stop;
    }
}

GVM_KERNEL(bfs, bfs_params, p)
{
    const uint64_t *offsets = (const uint64_t *)(uintptr_t)p.offsets;
    const uint32_t warps = gvm_block_threads() / gvm_warp_size();
    uint32_t i;

    for (i = gvm_block() * warps + gvm_warp(); i < p.frontier_count; i += gvm_block_count() * warps) {
        const uint32_t vertex = ((const uint32_t *)(uintptr_t)p.frontier)[i];

        visit_edges(&p, offsets[vertex], offsets[vertex + 1]);
    }
}
