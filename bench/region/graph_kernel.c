/* Device code of `gvmem-bench region bfs` and `pagerank`: making graphs, and going through them with edges in regions or not. */
#include <gvmem/device/region.h>

#include "bench/region/graph.h"

#define LOADS_AT_ONCE 4  /* of edges by each lane */
#define CHUNKS_AT_ONCE 8 /* of as many vertices as a warp has lanes, by each warp */
#define LINE_EDGES 32    /* of a line of 128 bytes */
#define TLB_LINES 32

GVM_DEVICE uint64_t *out_word(const bench_graph_params *p, uint32_t which)
{
    return (uint64_t *)(uintptr_t)p->out + which;
}

GVM_DEVICE uint64_t offset_of(const bench_graph_params *p, uint32_t vertex)
{
    return ((const uint64_t *)(uintptr_t)p->offsets)[vertex];
}

GVM_DEVICE uint32_t block_warps(void)
{
    return gvm_block_threads() / gvm_warp_size();
}

GVM_DEVICE uint64_t warp_number(void)
{
    return (uint64_t)gvm_block() * block_warps() + gvm_warp();
}

GVM_DEVICE uint64_t warp_count(void)
{
    return (uint64_t)gvm_block_count() * block_warps();
}

/* ---- making a graph: degrees, offsets, edges, pieces */

GVM_KERNEL(graph_degrees, bench_graph_params, p)
{
    uint32_t *degrees = (uint32_t *)(uintptr_t)p.cursors;
    uint32_t ends[2];
    uint64_t i;

    for (i = gvm_thread_global(); i < p.drawn; i += gvm_thread_count())
        if (bench_graph_draw(p.kind, p.bits, i, ends)) {
            gvm_atomic_add_u32(&degrees[ends[0]], 1);
            gvm_atomic_add_u32(&degrees[ends[1]], 1);
        }
}

/* The vertices of this warp. */
GVM_DEVICE uint64_t warp_share(const bench_graph_params *p, uint64_t warp)
{
    const uint64_t each = (p->vertices + warp_count() - 1) / warp_count();

    return warp * each < p->vertices ? warp * each : p->vertices;
}

/* Warps sum up the degrees of a range each, one warp adds up the sums, and all count on from there. */
GVM_KERNEL(graph_sums, bench_graph_params, p)
{
    const uint64_t end = warp_share(&p, warp_number() + 1);
    uint64_t v, sum = 0, total;

    for (v = warp_share(&p, warp_number()) + gvm_lane(); v < end; v += gvm_warp_size())
        sum += ((const uint32_t *)(uintptr_t)p.cursors)[v];
    (void)gvm_warp_before_u64(sum, &total);
    if (gvm_lane() == 0)
        ((uint64_t *)(uintptr_t)p.sums)[warp_number()] = total;
}

/* p.end: of sums. */
GVM_KERNEL(graph_scan, bench_graph_params, p)
{
    uint64_t *sums = (uint64_t *)(uintptr_t)p.sums;
    uint64_t before = 0, total, mine;
    uint32_t i, at;

    if (warp_number() != 0)
        return;
    for (i = 0; i < p.end; i += gvm_warp_size(), before += total) {
        at = i + gvm_lane();
        mine = gvm_warp_before_u64(at < p.end ? sums[at] : 0, &total);
        if (at < p.end)
            sums[at] = before + mine;
    }
}

GVM_KERNEL(graph_offsets, bench_graph_params, p)
{
    uint64_t *offsets = (uint64_t *)(uintptr_t)p.offsets;
    const uint64_t end = warp_share(&p, warp_number() + 1);
    uint64_t before = ((const uint64_t *)(uintptr_t)p.sums)[warp_number()], v, total, degree, mine;

    for (v = warp_share(&p, warp_number()); v < end; v += gvm_warp_size(), before += total) {
        const uint64_t at = v + gvm_lane();

        degree = at < end ? ((const uint32_t *)(uintptr_t)p.cursors)[at] : 0;
        mine = gvm_warp_before_u64(degree, &total);
        if (at < end)
            offsets[at] = before + mine;
        if (at < end && at + 1 == p.vertices)
            offsets[p.vertices] = before + mine + degree;
    }
}

GVM_DEVICE void put_edge(const bench_graph_params *p, uint32_t from, uint32_t to)
{
    uint32_t *cursor = (uint32_t *)(uintptr_t)p->cursors + from;

    if (from >= p->first && from < p->end)
        ((uint32_t *)(uintptr_t)
             p->stage)[offset_of(p, from) - offset_of(p, p->first) + gvm_atomic_add_u32(cursor, 1)] = to;
}

GVM_KERNEL(graph_scatter, bench_graph_params, p)
{
    uint32_t ends[2];
    uint64_t i;

    for (i = gvm_thread_global(); i < p.drawn; i += gvm_thread_count())
        if (bench_graph_draw(p.kind, p.bits, i, ends)) {
            put_edge(&p, ends[0], ends[1]);
            put_edge(&p, ends[1], ends[0]);
        }
}

GVM_DEVICE int is_long(const bench_graph_params *p, uint64_t degree)
{
    return degree > 2 * p->piece_edges;
}

GVM_KERNEL(graph_pieces, bench_graph_params, p)
{
    uint64_t v, at, i;

    for (v = gvm_thread_global(); v < p.vertices; v += gvm_thread_count()) {
        const uint64_t first = offset_of(&p, (uint32_t)v), end = offset_of(&p, (uint32_t)v + 1);
        const uint64_t count = (end + p.piece_edges - 1) / p.piece_edges - first / p.piece_edges;

        if (!is_long(&p, end - first))
            continue;
        at = gvm_atomic_add_u64(out_word(&p, BENCH_GRAPH_PIECES), count);
        for (i = 0; i < count; i++)
            ((uint64_t *)(uintptr_t)p.pieces)[at + i] = v | i << 32;
    }
}

/* ---- finding edges */

/* What a warp has mapped, and what it has counted. */
typedef struct edge_cursor {
    gvm_region_tlb *tlb;
    const uint32_t *edges; /* of the region */
    uint32_t region;       /* GVM_REGION_NONE: none */
    uint32_t maps, remote;
    uint64_t lines;
} edge_cursor;

GVM_DEVICE void leave_region(const bench_graph_params *p, uint32_t kind, edge_cursor *c)
{
    if (c->region == GVM_REGION_NONE)
        return;
    if ((kind & ~(uint32_t)BENCH_EDGES_COUNTED) == BENCH_EDGES_TLB)
        gvm_region_tlb_unmap_warp(c->tlb, c->region);
    else
        gvm_region_unmap_warp(&p->edges, c->region);
    c->region = GVM_REGION_NONE;
}

GVM_DEVICE void count_map(const bench_graph_params *p, edge_cursor *c)
{
    c->maps++;
    c->remote += gvm_region_slot(&p->edges, c->edges) >= p->edges.home;
    if (gvm_lane() == 0 && p->trace != 0) {
        const uint64_t at = gvm_atomic_add_u64(out_word(p, BENCH_GRAPH_MAPS), 1);

        if (at < p->trace_max)
            ((uint32_t *)(uintptr_t)p->trace)[at] = c->region;
    }
}

/* The region stays mapped until the warp comes to another. */
GVM_DEVICE void enter_region(const bench_graph_params *p, uint32_t kind, edge_cursor *c, uint32_t region)
{
    leave_region(p, kind, c);
    c->edges = (const uint32_t *)((kind & ~(uint32_t)BENCH_EDGES_COUNTED) == BENCH_EDGES_TLB
                                      ? gvm_region_tlb_map_warp(c->tlb, region, GVM_REGION_READ)
                                      : gvm_region_map_warp(&p->edges, region, GVM_REGION_READ));
    if (c->edges == (const uint32_t *)0) {
        if (gvm_lane() == 0)
            gvm_atomic_add_u64(out_word(p, BENCH_GRAPH_WRONG), 1);
        return;
    }
    c->region = region;
    if ((kind & BENCH_EDGES_COUNTED) != 0)
        count_map(p, c);
}

GVM_DEVICE const uint32_t *find_shared(const bench_graph_params *p, uint64_t first, uint32_t *count)
{
    const uint64_t block = first / BENCH_SHARE_EDGES;
    const uint32_t at = (uint32_t)first % BENCH_SHARE_EDGES;

    *count = *count < BENCH_SHARE_EDGES - at ? *count : BENCH_SHARE_EDGES - at;
    return bench_graph_is_shared(p->share, block)
               ? (const uint32_t *)(uintptr_t)p->resident +
                     bench_graph_shared_before(p->share, block) * BENCH_SHARE_EDGES + at
               : (const uint32_t *)(uintptr_t)p->plain + first;
}

/* Fills the share. */
GVM_KERNEL(graph_share, bench_graph_params, p)
{
    uint64_t i;

    for (i = gvm_thread_global(); i < p.drawn; i += gvm_thread_count()) {
        const uint64_t block = i / BENCH_SHARE_EDGES;

        if (bench_graph_is_shared(p.share, block))
            ((uint32_t *)(uintptr_t)
                 p.resident)[bench_graph_shared_before(p.share, block) * BENCH_SHARE_EDGES +
                             i % BENCH_SHARE_EDGES] = ((const uint32_t *)(uintptr_t)p.plain)[i];
    }
}

/* Where edge first is, and how many of the count that are wanted are there: *count. NULL: they cannot be mapped. */
GVM_DEVICE const uint32_t *find_edges(const bench_graph_params *p, uint32_t kind, edge_cursor *c,
                                      uint64_t first, uint32_t *count)
{
    const uint32_t region = (uint32_t)(first >> p->region_shift);
    const uint32_t each = 1u << p->region_shift, at = (uint32_t)first & (each - 1);

    if ((kind & ~(uint32_t)BENCH_EDGES_COUNTED) == BENCH_EDGES_PLAIN)
        return (const uint32_t *)(uintptr_t)p->plain + first;
    if (kind == BENCH_EDGES_SHARE)
        return find_shared(p, first, count);
    *count = *count < each - at ? *count : each - at;
    if (region != c->region)
        enter_region(p, kind, c, region);
    return c->region == region ? c->edges + at : (const uint32_t *)0;
}

/* Reads are of whole lines from their beginning on. */
GVM_DEVICE uint32_t skipped_edges(const uint32_t *edges)
{
    return (uint32_t)((uintptr_t)edges / sizeof *edges % LINE_EDGES);
}

GVM_DEVICE void count_lines(const bench_graph_params *p, uint32_t kind, edge_cursor *c, uint32_t end)
{
    if ((kind & BENCH_EDGES_COUNTED) != 0 && (kind == (BENCH_EDGES_PLAIN | BENCH_EDGES_COUNTED) ||
                                              gvm_region_slot(&p->edges, c->edges) >= p->edges.home))
        c->lines += (end + LINE_EDGES - 1) / LINE_EDGES;
}

GVM_DEVICE void end_cursor(const bench_graph_params *p, uint32_t kind, edge_cursor *c)
{
    leave_region(p, kind, c);
    if ((kind & BENCH_EDGES_COUNTED) == 0 || gvm_lane() != 0)
        return;
    if (p->trace == 0)
        gvm_atomic_add_u64(out_word(p, BENCH_GRAPH_MAPS), c->maps);
    gvm_atomic_add_u64(out_word(p, BENCH_GRAPH_REMOTE), c->remote);
    gvm_atomic_add_u64(out_word(p, BENCH_GRAPH_LINES), c->lines);
}

/* A piece: its vertex, its first edge, and how many. None where there is no such piece, or of another slice. */
GVM_DEVICE uint32_t find_piece(const bench_graph_params *p, uint32_t at, uint32_t *vertex,
                               uint64_t *first)
{
    const uint64_t piece = at < p->piece_count ? ((const uint64_t *)(uintptr_t)p->pieces)[at] : 0;
    uint64_t begin, end;

    *vertex = (uint32_t)piece;
    *first = 0;
    if (at >= p->piece_count || *vertex < p->first || *vertex >= p->end)
        return 0;
    *first = offset_of(p, *vertex);
    end = offset_of(p, *vertex + 1);
    begin = *first / p->piece_edges * p->piece_edges + (piece >> 32) * p->piece_edges;
    *first = begin > *first ? begin : *first;
    end = end < begin + p->piece_edges ? end : begin + p->piece_edges;
    return (uint32_t)(end - *first);
}

GVM_DEVICE uint32_t chunks_at_once(void)
{
    return gvm_warp_size() < CHUNKS_AT_ONCE ? gvm_warp_size() : CHUNKS_AT_ONCE;
}

/* Groups of pieces come first, as they take longest. */
GVM_DEVICE uint32_t piece_groups(const bench_graph_params *p)
{
    return (p->piece_count + gvm_warp_size() - 1) / gvm_warp_size();
}

GVM_DEVICE uint32_t group_count(const bench_graph_params *p)
{
    const uint32_t vertices = chunks_at_once() * gvm_warp_size(), all = p->end - p->first;

    return piece_groups(p) + all / vertices + (all % vertices != 0);
}

/* ---- breadth-first search */

GVM_DEVICE uint32_t bit_of(uint64_t bitmap, uint32_t vertex)
{
    return gvm_load_consume_u32((const uint32_t *)(uintptr_t)bitmap + vertex / 32) >> vertex % 32 & 1;
}

/* 1: this thread is the first to see it. */
GVM_DEVICE int claim_vertex(const bench_graph_params *p, uint32_t vertex)
{
    const uint32_t bit = 1u << vertex % 32;

    if ((gvm_atomic_or_u32((uint32_t *)(uintptr_t)p->visited + vertex / 32, bit) & bit) != 0)
        return 0;
    gvm_atomic_or_u32((uint32_t *)(uintptr_t)p->next + vertex / 32, bit);
    return 1;
}

GVM_DEVICE int visit_edges(const bench_graph_params *p, const uint32_t *edges, uint32_t skipped,
                           uint32_t end)
{
    uint32_t vertex[LOADS_AT_ONCE], seen[LOADS_AT_ONCE], i, k, at;
    int found = 0;

    GVM_NO_UNROLL
    for (i = gvm_lane(); i < end; i += LOADS_AT_ONCE * gvm_warp_size()) {
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++) {
            at = i + k * gvm_warp_size();
            vertex[k] = at >= skipped && at < end ? edges[at] : BENCH_UNSEEN;
        }
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++)
            seen[k] = vertex[k] == BENCH_UNSEEN || bit_of(p->visited, vertex[k]);
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++)
            if (!seen[k])
                found |= claim_vertex(p, vertex[k]);
    }
    return found;
}

GVM_DEVICE int visit_list(const bench_graph_params *p, uint32_t kind, edge_cursor *c,
                          uint64_t first, uint32_t count)
{
    int found = 0;

    while (count > 0) {
        uint32_t here = count;
        const uint32_t *edges = find_edges(p, kind, c, first, &here);

        if (edges != (const uint32_t *)0) {
            const uint32_t skipped = skipped_edges(edges);

            count_lines(p, kind, c, skipped + here);
            found |= visit_edges(p, edges - skipped, skipped, skipped + here);
        }
        first += here;
        count -= here;
    }
    return found;
}

/* Which of a warp's vertices are of the frontier. It is read again rather than kept, as are offsets: what a warp keeps over a call to
 * map costs registers, of which kernels with regions should need no more than others. */
GVM_DEVICE uint32_t frontier_bits(const bench_graph_params *p, uint32_t vertex)
{
    return ((const uint32_t *)(uintptr_t)p->frontier)[vertex / 32] >> vertex % 32 & gvm_warp_mask();
}

/* The lists of vertices next to each other are next to each other, and read as one; so are those that are empty. */
GVM_DEVICE int visit_chunk(const bench_graph_params *p, uint32_t kind, edge_cursor *c, uint32_t vertex)
{
    const uint32_t v = vertex + gvm_lane(), exists = v < p->vertices;
    const uint32_t mine = frontier_bits(p, vertex) >> gvm_lane() & 1;
    const uint64_t degree = exists ? offset_of(p, v + 1) - offset_of(p, v) : 0;
    uint32_t runs, begin, last, of_run;
    int found = 0;

    if (mine)
        ((uint32_t *)(uintptr_t)p->levels)[v] = p->level;
    runs = gvm_warp_ballot(~0u, exists && (degree == 0 || (mine && !is_long(p, degree))));
    while (runs != 0) {
        begin = gvm_warp_first(runs);
        last = begin + gvm_warp_first(~(runs >> begin)) - 1;
        of_run = ~0u << begin & ~0u >> (31 - last);
        runs &= ~of_run;
        if ((frontier_bits(p, vertex) & of_run) != 0)
            found |= visit_list(
                p, kind, c, offset_of(p, vertex + begin),
                (uint32_t)(offset_of(p, vertex + last + 1) - offset_of(p, vertex + begin)));
    }
    return found;
}

/* The first vertex of a group's chunk. */
GVM_DEVICE uint32_t chunk_of(const bench_graph_params *p, uint32_t group, uint32_t chunk)
{
    return p->first + (group * chunks_at_once() + chunk) * gvm_warp_size();
}

GVM_DEVICE int visit_group(const bench_graph_params *p, uint32_t kind, edge_cursor *c, uint32_t group)
{
    const uint32_t mine = chunk_of(p, group, gvm_lane());
    uint32_t left, chunk;
    int found = 0;

    left = gvm_warp_ballot(~0u, gvm_lane() < chunks_at_once() && mine < p->end &&
                                    frontier_bits(p, mine) != 0);
    while (left != 0) {
        chunk = gvm_warp_first(left);
        left &= left - 1;
        found |= visit_chunk(p, kind, c, chunk_of(p, group, chunk));
    }
    return found;
}

GVM_DEVICE int visit_pieces(const bench_graph_params *p, uint32_t kind, edge_cursor *c, uint32_t group)
{
    const uint32_t first_piece = group * gvm_warp_size();
    uint64_t first;
    uint32_t vertex, left, at, count = find_piece(p, first_piece + gvm_lane(), &vertex, &first);
    int found = 0;

    left = gvm_warp_ballot(~0u, count > 0 && bit_of(p->frontier, vertex));
    while (left != 0) {
        at = first_piece + gvm_warp_first(left);
        left &= left - 1;
        count = find_piece(p, at, &vertex, &first);
        found |= visit_list(p, kind, c, first, count);
    }
    return found;
}

/* A level. */
GVM_DEVICE void search(const bench_graph_params *p, uint32_t kind, gvm_region_tlb *tlb)
{
    edge_cursor c = {tlb, (const uint32_t *)0, GVM_REGION_NONE, 0, 0, 0};
    uint32_t group;
    int found = 0;

    for (group = (uint32_t)warp_number(); group < group_count(p); group += (uint32_t)warp_count())
        found |= group < piece_groups(p) ? visit_pieces(p, kind, &c, group)
                                         : visit_group(p, kind, &c, group - piece_groups(p));
    end_cursor(p, kind, &c);
    if (gvm_warp_any(~0u, found) && gvm_lane() == 0 &&
        gvm_load_consume_u64(out_word(p, BENCH_GRAPH_PROGRESS)) != p->level + 1)
        gvm_store_release_u64(out_word(p, BENCH_GRAPH_PROGRESS), p->level + 1);
}

/* Which slices have vertices of the frontier? */
GVM_KERNEL(bfs_mark, bench_graph_params, p)
{
    uint64_t word;

    for (word = gvm_thread_global(); word < ((uint64_t)p.vertices + 31) / 32;
         word += gvm_thread_count()) {
        uint32_t *mark = (uint32_t *)(uintptr_t)p.marks + word * 32 / p.slice;

        if (((const uint32_t *)(uintptr_t)p.frontier)[word] != 0 && gvm_load_consume_u32(mark) == 0)
            gvm_atomic_or_u32(mark, 1);
    }
}

/* Several devices search, each the edges of vertices of its own: what others have found of these is added to what this one has. */
GVM_KERNEL(bfs_merge, bench_graph_params, p)
{
    const uint64_t words = ((uint64_t)p.vertices + 31) / 32, end = ((uint64_t)p.end + 31) / 32;
    uint32_t device, found;
    uint64_t word;

    for (word = p.first / 32 + gvm_thread_global(); word < end; word += gvm_thread_count()) {
        uint32_t *visited = (uint32_t *)(uintptr_t)p.visited + word;
        uint32_t *next = (uint32_t *)(uintptr_t)p.next + word;

        found = 0;
        for (device = 0; device < p.devices; device++)
            if (device != p.device)
                found |= ((const uint32_t *)(uintptr_t)p.found)[device * words + word];
        found &= ~*visited;
        *visited |= found;
        *next |= found;
        if (*next != 0 && gvm_load_consume_u64(out_word(&p, BENCH_GRAPH_PROGRESS)) != p.level + 1)
            gvm_store_release_u64(out_word(&p, BENCH_GRAPH_PROGRESS), p.level + 1);
    }
}

/* Are the levels of this device's vertices those of another search? */
GVM_KERNEL(bfs_compare, bench_graph_params, p)
{
    uint64_t v;

    for (v = p.first + gvm_thread_global(); v < p.end; v += gvm_thread_count())
        if (((const uint32_t *)(uintptr_t)p.levels)[v] != ((const uint32_t *)(uintptr_t)p.expected)[v])
            gvm_atomic_add_u64(out_word(&p, BENCH_GRAPH_WRONG), 1);
}

/* What was found, in numbers that do not depend on the order. */
GVM_KERNEL(bfs_digest, bench_graph_params, p)
{
    uint64_t v, digest = 0, visited = 0, edges = 0;

    for (v = gvm_thread_global(); v < p.vertices; v += gvm_thread_count()) {
        const uint32_t level = ((const uint32_t *)(uintptr_t)p.levels)[v];

        digest += bench_graph_mix(v << 32 | level);
        if (level != BENCH_UNSEEN) {
            visited++;
            edges += offset_of(&p, (uint32_t)v + 1) - offset_of(&p, (uint32_t)v);
        }
    }
    digest = gvm_block_sum_u64(digest);
    visited = gvm_block_sum_u64(visited);
    edges = gvm_block_sum_u64(edges);
    if (gvm_thread() == 0) {
        gvm_atomic_add_u64(out_word(&p, BENCH_GRAPH_DIGEST), digest);
        gvm_atomic_add_u64(out_word(&p, BENCH_GRAPH_VISITED), visited);
        gvm_atomic_add_u64(out_word(&p, BENCH_GRAPH_EDGES), edges);
    }
}

/* ---- PageRank */

GVM_DEVICE double sum_edges(const bench_graph_params *p, const uint32_t *edges, uint32_t skipped,
                            uint32_t end)
{
    const float *given = (const float *)(uintptr_t)p->given;
    uint32_t vertex[LOADS_AT_ONCE], i, k, at;
    double sum = 0;

    GVM_NO_UNROLL
    for (i = gvm_lane(); i < end; i += LOADS_AT_ONCE * gvm_warp_size()) {
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++) {
            at = i + k * gvm_warp_size();
            vertex[k] = at >= skipped && at < end ? edges[at] : BENCH_UNSEEN;
        }
        GVM_UNROLL
        for (k = 0; k < LOADS_AT_ONCE; k++)
            sum += vertex[k] != BENCH_UNSEEN ? (double)given[vertex[k]] : 0;
    }
    return sum;
}

/* This lane's part. */
GVM_DEVICE double sum_list(const bench_graph_params *p, uint32_t kind, edge_cursor *c,
                           uint64_t first, uint32_t count)
{
    double sum = 0;

    while (count > 0) {
        uint32_t here = count;
        const uint32_t *edges = find_edges(p, kind, c, first, &here);

        if (edges != (const uint32_t *)0) {
            const uint32_t skipped = skipped_edges(edges);

            count_lines(p, kind, c, skipped + here);
            sum += sum_edges(p, edges - skipped, skipped, skipped + here);
        }
        first += here;
        count -= here;
    }
    return sum;
}

/* To lane 0, of all lanes. */
GVM_DEVICE double sum_warp(double sum)
{
    uint32_t step;

    for (step = gvm_warp_size() / 2; step > 0; step /= 2)
        sum += gvm_warp_down_f64(sum, step);
    return sum;
}

/* Vertices without edges have received nothing. */
GVM_DEVICE void rank_chunk(const bench_graph_params *p, uint32_t kind, edge_cursor *c, uint32_t vertex)
{
    const uint32_t v = vertex + gvm_lane();
    const uint64_t degree = v < p->end ? offset_of(p, v + 1) - offset_of(p, v) : 0;
    uint32_t left = gvm_warp_ballot(~0u, degree > 0 && !is_long(p, degree)), at;
    double sum;

    while (left != 0) {
        at = vertex + gvm_warp_first(left);
        sum = sum_warp(sum_list(p, kind, c, offset_of(p, at),
                                (uint32_t)(offset_of(p, at + 1) - offset_of(p, at))));
        if (gvm_lane() == 0)
            ((double *)(uintptr_t)p->received)[vertex + gvm_warp_first(left)] = sum;
        left &= left - 1;
    }
}

GVM_DEVICE void rank_group(const bench_graph_params *p, uint32_t kind, edge_cursor *c, uint32_t group)
{
    uint32_t chunk;

    GVM_NO_UNROLL
    for (chunk = 0; chunk < chunks_at_once(); chunk++)
        rank_chunk(p, kind, c, chunk_of(p, group, chunk));
}

GVM_DEVICE void rank_pieces(const bench_graph_params *p, uint32_t kind, edge_cursor *c, uint32_t group)
{
    uint32_t vertex, left, at = group * gvm_warp_size() + gvm_lane(), count;
    uint64_t first;
    double sum;

    left = gvm_warp_ballot(~0u, find_piece(p, at, &vertex, &first) > 0);
    while (left != 0) {
        at = group * gvm_warp_size() + gvm_warp_first(left);
        count = find_piece(p, at, &vertex, &first);
        sum = sum_warp(sum_list(p, kind, c, first, count));
        if (gvm_lane() == 0) {
            at = group * gvm_warp_size() + gvm_warp_first(left);
            (void)find_piece(p, at, &vertex, &first);
            gvm_atomic_add_f64((double *)(uintptr_t)p->received + vertex, sum);
        }
        left &= left - 1;
    }
}

/* What each vertex receives. */
GVM_DEVICE void rank(const bench_graph_params *p, uint32_t kind, gvm_region_tlb *tlb)
{
    edge_cursor c = {tlb, (const uint32_t *)0, GVM_REGION_NONE, 0, 0, 0};
    uint32_t group;

    for (group = (uint32_t)warp_number(); group < group_count(p); group += (uint32_t)warp_count())
        if (group < piece_groups(p))
            rank_pieces(p, kind, &c, group);
        else
            rank_group(p, kind, &c, group - piece_groups(p));
    end_cursor(p, kind, &c);
}

/* What each vertex gives: at level 0 its part of one, else what follows from what it has received, which is set to 0. */
GVM_KERNEL(rank_give, bench_graph_params, p)
{
    double *received = (double *)(uintptr_t)p.received;
    uint64_t v;

    for (v = gvm_thread_global(); v < p.vertices; v += gvm_thread_count()) {
        const uint64_t degree = offset_of(&p, (uint32_t)v + 1) - offset_of(&p, (uint32_t)v);
        const double has = p.level == 0
                               ? 1.0 / p.vertices
                               : (1 - BENCH_DAMPING) / p.vertices + BENCH_DAMPING * received[v];

        ((float *)(uintptr_t)p.given)[v] = degree > 0 ? (float)(has / (double)degree) : 0;
        received[v] = 0;
    }
}

/* Sums are of another order: equal but for what rounding makes of that. */
GVM_KERNEL(rank_compare, bench_graph_params, p)
{
    uint64_t v;

    for (v = gvm_thread_global(); v < p.vertices; v += gvm_thread_count()) {
        const float expected = ((const float *)(uintptr_t)p.expected)[v];
        const float off = ((const float *)(uintptr_t)p.given)[v] - expected;

        if (!(off <= 2e-6f * expected && -off <= 2e-6f * expected))
            gvm_atomic_add_u64(out_word(&p, BENCH_GRAPH_WRONG), 1);
    }
}

/* ---- the kernels */

#define GRAPH_KERNEL(function, name, kind) \
    GVM_KERNEL(name, bench_graph_params, p) \
    { \
        function(&p, kind, (gvm_region_tlb *)0); \
    }
#define GRAPH_KERNEL_TLB(function, name) \
    GVM_KERNEL_BOUNDED(name, bench_graph_params, p, 256, 6) \
    { \
        GVM_SHARED(gvm_region_line, lines, TLB_LINES); \
        GVM_SHARED(gvm_region_tlb, tlb, 1); \
\
        gvm_region_tlb_begin(tlb, &p.edges, lines, TLB_LINES); \
        function(&p, BENCH_EDGES_TLB, tlb); \
        gvm_region_tlb_end(tlb); \
    }

GRAPH_KERNEL(search, bfs_plain, BENCH_EDGES_PLAIN)
GRAPH_KERNEL(search, bfs_share, BENCH_EDGES_SHARE)
GRAPH_KERNEL(search, bfs_regions, BENCH_EDGES_REGIONS)
GRAPH_KERNEL_TLB(search, bfs_tlb)
GRAPH_KERNEL(search, bfs_plain_counted, BENCH_EDGES_PLAIN | BENCH_EDGES_COUNTED)
GRAPH_KERNEL(search, bfs_regions_counted, BENCH_EDGES_REGIONS | BENCH_EDGES_COUNTED)
GRAPH_KERNEL(rank, rank_plain, BENCH_EDGES_PLAIN)
GRAPH_KERNEL(rank, rank_share, BENCH_EDGES_SHARE)
GRAPH_KERNEL(rank, rank_regions, BENCH_EDGES_REGIONS)
GRAPH_KERNEL_TLB(rank, rank_tlb)
GRAPH_KERNEL(rank, rank_plain_counted, BENCH_EDGES_PLAIN | BENCH_EDGES_COUNTED)
GRAPH_KERNEL(rank, rank_regions_counted, BENCH_EDGES_REGIONS | BENCH_EDGES_COUNTED)
