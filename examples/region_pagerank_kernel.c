/* The kernel of region_pagerank.c: an iteration. A warp sums up what the neighbours of a vertex give it. */
#include <gvmem/device/region.h>

/* The same in region_pagerank.c. Vertex v has the edges from offsets[v] up to offsets[v + 1]. */
typedef struct pagerank_params {
    gvm_region_view edges;   /* uint32_t each: the vertex at the other end */
    uint64_t offsets, given; /* uint64_t, and double: what a vertex gives each of its neighbours */
    uint64_t next;           /* double: the same in the next iteration */
    double damping;
    uint32_t vertices, reserved;
} pagerank_params;

/* This lane's part of the sum. */
GVM_DEVICE double sum_edges(const pagerank_params *p, uint64_t first, uint64_t end)
{
    const double *given = (const double *)(uintptr_t)p->given;
    const uint64_t each = p->edges.region_bytes / sizeof(uint32_t);
    double sum = 0;
    uint64_t i;

    while (first < end) {
        const uint32_t region = (uint32_t)(first / each);
        const uint64_t begin = region * each, stop = end < begin + each ? end : begin + each;
        const uint32_t *edges = (const uint32_t *)gvm_region_map_warp(&p->edges, region,
                                                                      GVM_REGION_READ);

        for (i = first + gvm_lane(); edges != (const uint32_t *)0 && i < stop; i += gvm_warp_size())
            sum += given[edges[i - begin]];
        if (edges != (const uint32_t *)0)
            gvm_region_unmap_warp(&p->edges, region);
        first = stop;
    }
    return sum;
}

GVM_KERNEL(pagerank, pagerank_params, p)
{
    const uint64_t *offsets = (const uint64_t *)(uintptr_t)p.offsets;
    const uint32_t warps = gvm_block_threads() / gvm_warp_size();
    uint32_t v, step;

    for (v = gvm_block() * warps + gvm_warp(); v < p.vertices; v += gvm_block_count() * warps) {
        const uint64_t degree = offsets[v + 1] - offsets[v];
        double sum = sum_edges(&p, offsets[v], offsets[v + 1]);

        for (step = gvm_warp_size() / 2; step > 0; step /= 2)
            sum += gvm_warp_down_f64(sum, step);
        if (gvm_lane() == 0 && degree > 0)
            ((double *)(uintptr_t)p.next)[v] = ((1 - p.damping) / p.vertices + p.damping * sum) /
                                               (double)degree;
    }
}
