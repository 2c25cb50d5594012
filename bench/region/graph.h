/* bench/region/graph.h - graphs as kernels see them: compressed sparse rows whose edges lie in regions, in plain memory, or in parts.
 *
 * Vertex v has the edges from offsets[v] up to offsets[v + 1]; an edge is the number of the vertex at its other end. What there is of
 * each vertex is in device memory. Addresses are numbers.
 *
 * Graphs are drawn in place: edge i follows from i alone, so that kernels and the CPU draw the same ones, and any range of
 * vertices can be made by itself. Each edge that is drawn is there in both directions.
 */
#ifndef BENCH_REGION_GRAPH_H
#define BENCH_REGION_GRAPH_H

#include <gvmem/device/kernel.h>
#include <gvmem/region_view.h>

/* R-MAT: with the parameters of Graph 500, and vertices renumbered at random. Uniform: both ends at random. Grid: neighbours in a
 * rectangle of twice as many columns as rows, or as many, numbered row by row. */
enum { BENCH_GRAPH_RMAT, BENCH_GRAPH_UNIFORM, BENCH_GRAPH_GRID, BENCH_GRAPH_FILE };

#define BENCH_UNSEEN 0xffffffffu /* the level of a vertex that was not reached */
#define BENCH_DAMPING 0.85
#define BENCH_SHARE_EDGES 1024u /* that are resident together */

/* Where kernels find edges. With BENCH_EDGES_COUNTED they count what they ask for. */
enum {
    BENCH_EDGES_PLAIN,   /* at one address, in device or in host memory */
    BENCH_EDGES_SHARE,   /* some blocks of edges in device memory, the others in host memory */
    BENCH_EDGES_REGIONS, /* in regions, mapped by warps */
    BENCH_EDGES_TLB,     /* the same with a TLB for each block */
    BENCH_EDGES_COUNTED = 8,
};

typedef struct bench_graph_params {
    gvm_region_view edges; /* uint32_t each */
    uint64_t plain;        /* of edge 0, where edges lie at one address */
    uint64_t resident; /* of the first block of BENCH_SHARE_EDGES edges that is in device memory */
    uint64_t share;    /* which blocks are there, of 1 << 32: bench_graph_is_shared() */
    uint64_t offsets;  /* uint64_t */
    uint64_t pieces;   /* uint64_t: of long lists; a vertex, and above it the piece's number */
    uint32_t region_shift; /* a region has 1 << region_shift edges */
    uint32_t kind, bits;   /* 1 << bits vertices, if it is drawn */
    uint32_t vertices;
    uint32_t piece_count;
    uint32_t piece_edges; /* lists of more than twice as many edges are cut into pieces */
    uint32_t first, end;  /* vertices to be dealt with; multiples of 32, or all */
    /* making a graph */
    uint64_t drawn;   /* edges to draw */
    uint64_t cursors; /* uint32_t of vertices: degrees, or how many edges are in place */
    uint64_t sums;    /* uint64_t of warps */
    uint64_t stage;   /* edges of the vertices from first on */
    /* breadth-first search: bitmaps, uint32_t, of vertices */
    uint64_t visited, frontier, next;
    uint64_t found; /* what each of several devices has found, a bitmap each, one behind the other */
    uint32_t devices, device; /* how many, and which this one is */
    uint64_t levels;          /* uint32_t */
    uint32_t level;
    uint32_t slice; /* vertices of a slice, for which marks (uint32_t) say whether they have any of the frontier */
    uint64_t marks;
    /* PageRank */
    uint64_t given;    /* float: what a vertex gives each of its neighbours */
    uint64_t received; /* double: the sum of what its neighbours give it */
    uint64_t expected; /* float: to compare given with; uint32_t: to compare levels with */
    uint64_t out;      /* uint64_t: BENCH_GRAPH_... */
    uint64_t trace;    /* uint32_t: regions, as they are mapped; 0: none */
    uint64_t trace_max;
} bench_graph_params;

/* What kernels count. */
enum {
    BENCH_GRAPH_PROGRESS, /* the last level at which a vertex was found */
    BENCH_GRAPH_DIGEST,   /* of all levels */
    BENCH_GRAPH_VISITED,
    BENCH_GRAPH_EDGES, /* of vertices that were visited */
    BENCH_GRAPH_WRONG,
    BENCH_GRAPH_PIECES,
    BENCH_GRAPH_MAPS,
    BENCH_GRAPH_REMOTE, /* maps whose address was in host memory */
    BENCH_GRAPH_LINES,  /* of 128 bytes that were read where they are, in plain or in host memory */
    BENCH_GRAPH_WORDS
};

/* ---- a share of the blocks, or of regions, spread evenly: warps that run at the same time then wait for the link and for
 * device memory in equal parts, whatever order they take them in */

/* How many of the blocks before this one are in it. */
GVM_DEVICE uint64_t bench_graph_shared_before(uint64_t share, uint64_t block)
{
    return block * share >> 32;
}

GVM_DEVICE int bench_graph_is_shared(uint64_t share, uint64_t block)
{
    return bench_graph_shared_before(share, block + 1) != bench_graph_shared_before(share, block);
}

/* ---- drawing */

GVM_DEVICE uint64_t bench_graph_mix(uint64_t z)
{
    z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Another number for each vertex. */
GVM_DEVICE uint32_t bench_graph_renumber(uint32_t vertex, uint32_t bits)
{
    const uint32_t mask = (uint32_t)((1ull << bits) - 1), half = (bits + 1) / 2;

    vertex = (vertex * 0x9e3779b1u + 0x7f4a7c15u) & mask;
    vertex ^= vertex >> half;
    vertex = vertex * 0x85ebca6bu & mask;
    vertex ^= vertex >> half;
    return vertex * 0xc2b2ae35u & mask;
}

GVM_DEVICE void bench_graph_draw_rmat(uint32_t bits, uint64_t i, uint32_t ends[2])
{
    uint64_t random = 0;
    uint32_t bit, of;

    ends[0] = ends[1] = 0;
    for (bit = 0; bit < bits; bit++, random >>= 16) {
        if (bit % 4 == 0)
            random = bench_graph_mix(i * 8 + bit / 4);
        of = (uint32_t)random & 0xffff; /* quarters of 0.57, 0.19, 0.19 and 0.05 */
        ends[0] = ends[0] << 1 | (of >= 49807);
        ends[1] = ends[1] << 1 | ((of >= 37356 && of < 49807) || of >= 62259);
    }
    ends[0] = bench_graph_renumber(ends[0], bits);
    ends[1] = bench_graph_renumber(ends[1], bits);
}

/* Edge i; 0: there is none. */
GVM_DEVICE int bench_graph_draw(uint32_t kind, uint32_t bits, uint64_t i, uint32_t ends[2])
{
    const uint64_t vertices = 1ull << bits, columns = 1ull << (bits + 1) / 2;

    if (kind == BENCH_GRAPH_RMAT) {
        bench_graph_draw_rmat(bits, i, ends);
    } else if (kind == BENCH_GRAPH_UNIFORM) {
        ends[0] = (uint32_t)(bench_graph_mix(2 * i) & (vertices - 1));
        ends[1] = (uint32_t)(bench_graph_mix(2 * i + 1) & (vertices - 1));
    } else {
        ends[0] = (uint32_t)(i & (vertices - 1));
        ends[1] = (uint32_t)(ends[0] + (i < vertices ? 1 : columns));
        return i < vertices ? ends[0] % columns != columns - 1 : ends[0] + columns < vertices;
    }
    return 1;
}

#endif
