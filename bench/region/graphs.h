/* bench/region/graphs.h - graphs, and the ways in which kernels get at edges that do not fit into the budget. */
#ifndef BENCH_REGION_GRAPHS_H
#define BENCH_REGION_GRAPHS_H

#include "bench/region/graph.h"
#include "bench/region/setup.h"

/* What is measured for each graph. Those without regions have the same kernels, the same data in host memory and, but for the first
 * two, as much device memory for edges. */
enum {
    GRAPH_IN_CORE, /* all edges in device memory */
    GRAPH_ZERO_COPY, /* all edges read over the link, in whole lines next to each other, as EMOGI does */
    GRAPH_PARTITION, /* slices of edges copied by the copy engine, one while another is read */
    GRAPH_SHARE,     /* some edges in device memory, the others read over the link */
    GRAPH_REGIONS,
    GRAPH_REGIONS_TLB,
    GRAPH_WAYS
};
extern const char *const graph_way_names[GRAPH_WAYS];

typedef struct region_graph {
    region_bench *r;
    const char *name;
    bench_graph_params p; /* as kernels get them, but for what a way or a benchmark fills in */
    uint64_t edge_count, edge_bytes;
    uint64_t edges; /* all of them, at this address on the device; 0: too many */
    CUdeviceptr owned[24];
    unsigned owned_count;
} region_graph;

/* Draws a graph of 1 << bits vertices with so many edges each, on average. With stage_bytes it has no edges until
 * graph_open(), which makes them in parts of that size. */
bool graph_draw(region_bench *r, region_graph *g, uint32_t kind, uint32_t bits, uint32_t degree,
                uint64_t stage_bytes);

/* Reads a file: METIS, or Matrix Market if it begins with %%MatrixMarket. */
bool graph_read(region_bench *r, region_graph *g, const char *path);

/* Makes a graph of lists in host memory. name must be a constant. */
bool graph_adopt(region_bench *r, region_graph *g, const char *name, uint32_t vertices,
                 const uint64_t *offsets, const uint32_t *edges);

/* A collection with its edges: as many regions of region_bytes as they need. */
bool graph_open(region_graph *g, uint64_t region_bytes, uint64_t budget_bytes,
                gvm_region_policy policy);

/* Both steps of that, once there is a collection: kernels find the edges there; the homes get them. */
void graph_use_view(region_graph *g);
bool graph_fill_homes(region_graph *g);

/* Brings as many regions to frames as there are, spread evenly over those of the vertices that are dealt with. */
bool graph_spread(region_graph *g);

/* A small graph as the CPU sees it. */
typedef struct graph_copy {
    uint64_t *offsets;
    uint32_t *edges;
} graph_copy;

/* What the homes hold; and whether that is what the CPU draws. */
bool graph_copy_homes(region_graph *g, graph_copy *copy);
bool graph_check_drawn(region_graph *g, graph_copy *copy);
void graph_copy_free(graph_copy *copy);

/* The CPU's levels, as kernels sum them up; and what each vertex gives after one iteration. */
bool graph_search_copy(const region_graph *g, const graph_copy *copy, uint32_t source,
                       uint64_t *digest);
bool graph_rank_copy(const region_graph *g, const graph_copy *copy, float *given);

void graph_free(region_graph *g);

/* Device memory that lives as long as the graph. */
bool graph_alloc(region_graph *g, uint64_t *out, uint64_t bytes);
bool graph_clear(region_graph *g, uint64_t address, uint32_t value, uint64_t words);

/* Launches a kernel over all of the device. */
bool graph_launch(region_graph *g, region_kernel kernel, const bench_graph_params *p, uint64_t threads);

/* What kernels count; and a word of an array on the device. */
bool graph_clear_out(region_graph *g);
bool graph_receive_out(region_graph *g, uint64_t out[BENCH_GRAPH_WORDS]);
bool graph_offset(region_graph *g, uint32_t vertex, uint64_t *offset);

/* ---- ways */

/* Equal numbers of vertices, whose edges are less than a size each. */
typedef struct graph_slices {
    uint32_t count, vertices;
    uint64_t *begins; /* first edges, and the end */
    uint64_t edges_max;
} graph_slices;
bool graph_cut(region_graph *g, uint64_t bytes_max, graph_slices *slices);

typedef struct graph_ways {
    region_graph *g;
    uint64_t budget_bytes;
    uint64_t share; /* see bench_graph_is_shared() */
    graph_slices slices;
    CUdeviceptr resident, buffers[2];
    CUstream copies;
    CUevent copied[2], used[2];
    uint32_t *marks;              /* pinned: of slices */
    const region_kernel *kernels; /* by BENCH_EDGES_... */
    uint64_t moved_bytes;         /* by copies of slices */
} graph_ways;

bool graph_ways_start(graph_ways *w, region_graph *g, uint64_t budget_bytes, bool all);
void graph_ways_end(graph_ways *w);

/* Queues one pass over the edges: those of the frontier, or all. */
bool graph_pass(graph_ways *w, int way, const bench_graph_params *p, bool all, bool counted);

/* ---- what was moved */

typedef struct graph_counts {
    double hits, moved_bytes, maps;
} graph_counts;

/* Before and after a pass or several with counted kernels. */
bool graph_count_begin(graph_ways *w, gvm_collection_info *before);
bool graph_count_end(graph_ways *w, int way, const gvm_collection_info *before, graph_counts *counts);

#endif
