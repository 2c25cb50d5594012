/* bench/region/traverse.h - breadth-first searches and PageRank of one graph: what they need besides it, and what they find. */
#ifndef BENCH_REGION_TRAVERSE_H
#define BENCH_REGION_TRAVERSE_H

#include "bench/region/graphs.h"

#define SOURCES_MAX 16

typedef struct traversal {
    region_graph *g;
    graph_ways w;
    bool search; /* or PageRank */
    const char *section;
    uint32_t runs;
    uint32_t sources[SOURCES_MAX];
    uint64_t digests[SOURCES_MAX]; /* 0: not known yet */
    uint64_t edges[SOURCES_MAX];   /* that a run reads */
    bool have_expected;            /* of PageRank */
    uint64_t *progress;            /* pinned */
    uint32_t levels;               /* of the last search */
    uint64_t region_bytes, budget_bytes;
    const char *policy;
    bench_samples us[GRAPH_WAYS];
    double all_us[GRAPH_WAYS];
    graph_counts counts[GRAPH_WAYS];
} traversal;

/* Device memory for results; sources, which follow from the graph alone. Ending it ends the graph. */
bool traversal_start(traversal *t, region_graph *g, bool search, uint32_t runs);
void traversal_end(traversal *t);

/* The ways, when the edges are in a collection. */
bool traversal_start_ways(traversal *t, uint64_t budget_bytes, bool all);

/* Levels and bitmaps for a search from there. */
bool traversal_begin_search(traversal *t, bench_graph_params *p, uint32_t source);

/* A search from source i, in a way; whether its levels are those that were found before, or by the CPU. */
bool traversal_search(traversal *t, int way, uint32_t i, bool counted, double *us);
bool traversal_check_search(traversal *t, int way, uint32_t i);

/* Results of a small graph by the CPU, for checks from now on. */
bool traversal_expect(traversal *t, const graph_copy *copy);

/* Edges that a run reads: the median. */
double traversal_edges(const traversal *t);

#endif
