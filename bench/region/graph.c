/* Making graphs by kernels: degrees, offsets, edges in device memory and at home, long lists in pieces. */
#include "bench/region/graphs.h"

#include <stdlib.h>

#include "base/size.h"

/* Half of the longest lists that a warp reads alone; less in small graphs, so that these have longer ones as well. */
#define PIECE_EDGES 1024u
#define PIECE_EDGES_SMALL 32u
#define SMALL_VERTICES (1u << 16)

/* ---- memory, launches */

bool graph_alloc(region_graph *g, uint64_t *out, uint64_t bytes)
{
    CUdeviceptr address;

    if (g->owned_count == sizeof g->owned / sizeof g->owned[0] ||
        !region_alloc(g->r, &address, gvmi_max(bytes, 16)))
        return false;
    g->owned[g->owned_count++] = address;
    *out = address;
    return true;
}

void graph_free(region_graph *g)
{
    region_close(g->r);
    while (g->owned_count > 0)
        gvmi_cu->cuMemFree(g->owned[--g->owned_count]);
    *g = (region_graph){.r = g->r};
}

bool graph_clear(region_graph *g, uint64_t address, uint32_t value, uint64_t words)
{
    const CUresult result = gvmi_cu->cuMemsetD32Async(address, value, words, g->r->timer.stream);

    return result == CUDA_SUCCESS || region_driver_failed(g->r, result, "cuMemsetD32Async");
}

bool graph_launch(region_graph *g, region_kernel kernel, const bench_graph_params *p, uint64_t threads)
{
    const region_launch launch = region_shape(g->r, kernel, BENCH_BY_THREAD, threads);

    return region_launch_kernel(g->r, &launch, p);
}

bool graph_clear_out(region_graph *g)
{
    return graph_clear(g, g->p.out, 0, 2 * BENCH_GRAPH_WORDS);
}

bool graph_receive_out(region_graph *g, uint64_t out[BENCH_GRAPH_WORDS])
{
    return region_receive(g->r, out, g->p.out, BENCH_GRAPH_WORDS * sizeof *out);
}

bool graph_offset(region_graph *g, uint32_t vertex, uint64_t *offset)
{
    return region_receive(g->r, offset, g->p.offsets + vertex * sizeof *offset, sizeof *offset);
}

/* ---- making */

static bool make_offsets(region_graph *g)
{
    const region_launch launch = region_shape(g->r, KERNEL_graph_sums, BENCH_BY_THREAD, g->p.vertices);
    const region_launch last = {KERNEL_graph_offsets, launch.blocks, launch.threads};
    bench_graph_params p = g->p;

    p.end = launch.blocks * launch.threads / (unsigned)g->r->b->info.warp_size;
    if (!graph_alloc(g, &g->p.sums, p.end * sizeof(uint64_t)))
        return false;
    p.sums = g->p.sums;
    return region_launch_kernel(g->r, &launch, &p) &&
           graph_launch(g, KERNEL_graph_scan, &p, (uint64_t)g->r->b->info.warp_size) &&
           region_launch_kernel(g->r, &last, &p) && graph_offset(g, g->p.vertices, &g->edge_count);
}

static bool make_pieces(region_graph *g)
{
    uint64_t out[BENCH_GRAPH_WORDS];

    g->edge_bytes = g->edge_count * sizeof(uint32_t);
    if (!graph_alloc(g, &g->p.pieces, (2 * g->edge_count / g->p.piece_edges + 1) * sizeof(uint64_t)) ||
        !graph_clear_out(g) || !graph_launch(g, KERNEL_graph_pieces, &g->p, g->p.vertices) ||
        !graph_receive_out(g, out))
        return false;
    g->p.piece_count = (uint32_t)out[BENCH_GRAPH_PIECES];
    return true;
}

/* The edges of vertices from first on. */
static bool scatter(region_graph *g, uint64_t stage, uint32_t first, uint32_t end)
{
    bench_graph_params p = g->p;

    p.first = first;
    p.end = end;
    p.stage = stage;
    return graph_clear(g, p.cursors, 0, p.vertices) &&
           graph_launch(g, KERNEL_graph_scatter, &p, p.drawn);
}

static bool start_graph(region_bench *r, region_graph *g, uint32_t vertices)
{
    *g = (region_graph){.r = r};
    g->p.vertices = g->p.end = vertices;
    g->p.piece_edges = vertices <= SMALL_VERTICES ? PIECE_EDGES_SMALL : PIECE_EDGES;
    return graph_alloc(g, &g->p.out, BENCH_GRAPH_WORDS * sizeof(uint64_t)) &&
           graph_alloc(g, &g->p.offsets, (vertices + 1ull) * sizeof(uint64_t)) &&
           graph_alloc(g, &g->p.cursors, vertices * sizeof(uint32_t));
}

bool graph_draw(region_bench *r, region_graph *g, uint32_t kind, uint32_t bits, uint32_t degree,
                uint64_t stage_bytes)
{
    static const char *const names[] = {"R-MAT", "uniform", "grid"};

    if (!start_graph(r, g, 1u << bits))
        return false;
    g->name = kind == BENCH_GRAPH_GRID ? bench_text(r->b, "grid %u", bits)
                                       : bench_text(r->b, "%s %u x %u", names[kind], bits, degree);
    g->p.kind = kind;
    g->p.bits = bits;
    g->p.drawn = ((uint64_t)(kind == BENCH_GRAPH_GRID ? 4 : degree) << bits) / 2;
    g->p.stage = stage_bytes;
    if (!graph_clear(g, g->p.cursors, 0, g->p.vertices) ||
        !graph_launch(g, KERNEL_graph_degrees, &g->p, g->p.drawn) || !make_offsets(g) ||
        !make_pieces(g))
        return false;
    return stage_bytes != 0 ||
           (graph_alloc(g, &g->edges, g->edge_bytes) && scatter(g, g->edges, 0, g->p.vertices));
}

bool graph_adopt(region_bench *r, region_graph *g, const char *name, uint32_t vertices,
                 const uint64_t *offsets, const uint32_t *edges)
{
    if (!start_graph(r, g, vertices))
        return false;
    g->name = name;
    g->p.kind = BENCH_GRAPH_FILE;
    g->edge_count = offsets[vertices];
    return region_send(r, g->p.offsets, offsets, (vertices + 1ull) * sizeof *offsets) &&
           make_pieces(g) && graph_alloc(g, &g->edges, g->edge_bytes) &&
           region_send(r, g->edges, edges, g->edge_bytes);
}

/* ---- edges at home */

bool graph_cut(region_graph *g, uint64_t bytes_max, graph_slices *slices)
{
    const uint32_t vertices = g->p.vertices;
    uint32_t count = (uint32_t)gvmi_max(1, (g->edge_bytes + bytes_max - 1) / bytes_max);

    for (;; count *= 2) {
        slices->vertices = (uint32_t)gvmi_round_up((vertices + count - 1) / count, 32);
        slices->count = (vertices + slices->vertices - 1) / slices->vertices;
        slices->edges_max = 0;
        free(slices->begins);
        slices->begins = malloc((slices->count + 1) * sizeof *slices->begins);
        if (slices->begins == NULL)
            return region_failed(g->r, "out of memory");
        for (uint32_t i = 0; i <= slices->count; i++) {
            const uint32_t at = (uint32_t)gvmi_min((uint64_t)i * slices->vertices, vertices);

            if (!graph_offset(g, at, &slices->begins[i]))
                return false;
            if (i > 0)
                slices->edges_max = gvmi_max(slices->edges_max,
                                             slices->begins[i] - slices->begins[i - 1]);
        }
        if (slices->edges_max * sizeof(uint32_t) <= bytes_max || slices->vertices == 32)
            return true;
    }
}

static bool copy_edges(region_graph *g, uint64_t first, CUdeviceptr from, uint64_t count)
{
    const CUresult result = gvmi_cu->cuMemcpyAsync(
        region_homes(&g->r->view) + first * sizeof(uint32_t), from, count * sizeof(uint32_t),
        g->r->timer.stream);

    return result == CUDA_SUCCESS || region_driver_failed(g->r, result, "cuMemcpyAsync");
}

static bool make_edges_in_parts(region_graph *g)
{
    graph_slices slices = {0};
    CUdeviceptr stage = 0;
    bool good = graph_cut(g, g->p.stage, &slices) &&
                region_alloc(g->r, &stage, gvmi_max(16, slices.edges_max * sizeof(uint32_t)));

    for (uint32_t i = 0; good && i < slices.count; i++) {
        const uint32_t first = i * slices.vertices;

        good = scatter(g, stage, first,
                       (uint32_t)gvmi_min(first + (uint64_t)slices.vertices, g->p.vertices)) &&
               copy_edges(g, slices.begins[i], stage, slices.begins[i + 1] - slices.begins[i]);
    }
    bench_wait(g->r->b);
    if (stage != 0)
        gvmi_cu->cuMemFree(stage);
    free(slices.begins);
    return good;
}

bool graph_open(region_graph *g, uint64_t region_bytes, uint64_t budget_bytes, gvm_region_policy policy)
{
    const uint64_t count = (g->edge_bytes + region_bytes - 1) / region_bytes;

    if (!region_open_empty(g->r, gvmi_max(1, count), region_bytes, budget_bytes, policy))
        return false;
    graph_use_view(g);
    return graph_fill_homes(g);
}

void graph_use_view(region_graph *g)
{
    g->p.edges = g->r->view;
    for (g->p.region_shift = 0; (4ull << g->p.region_shift) < g->r->view.stride_bytes;)
        g->p.region_shift++;
}

bool graph_fill_homes(region_graph *g)
{
    if (g->edges == 0 ? !make_edges_in_parts(g) : !copy_edges(g, 0, g->edges, g->edge_count))
        return false;
    bench_wait(g->r->b);
    return true;
}

/* Maps them once, as a list. */
static bool bring_list(region_graph *g, const uint32_t *regions, uint64_t count)
{
    const CUstream stream = g->r->timer.stream;
    CUdeviceptr list = 0;
    bool good = region_alloc(g->r, &list, gvmi_max(count, 1) * sizeof *regions) &&
                region_send(g->r, list, regions, count * sizeof *regions);

    if (good && (gvm_region_resolve(g->r->collection, (const uint32_t *)(uintptr_t)list, count,
                                    GVM_REGION_READ, NULL, NULL, stream) != GVM_OK ||
                 gvm_region_release(g->r->collection, (const uint32_t *)(uintptr_t)list, count,
                                    NULL, stream) != GVM_OK))
        good = region_failed(g->r, "bringing regions to frames");
    bench_wait(g->r->b);
    if (list != 0)
        gvmi_cu->cuMemFree(list);
    return good;
}

bool graph_spread(region_graph *g)
{
    const uint64_t each = 1ull << g->p.region_shift, frames = region_info(g->r).frame_count;
    uint64_t first, end, all, share, count = 0;
    uint32_t *regions;
    bool good;

    if (!graph_offset(g, g->p.first, &first) || !graph_offset(g, g->p.end, &end))
        return false;
    first /= each;
    all = gvmi_max(1, (end + each - 1) / each - first);
    share = (gvmi_min(frames, all) << 32) / all;
    regions = malloc(all * sizeof *regions);
    if (regions == NULL)
        return region_failed(g->r, "out of memory");
    for (uint32_t i = 0; i < all; i++)
        if (bench_graph_is_shared(share, i))
            regions[count++] = (uint32_t)first + i;
    good = bring_list(g, regions, count);
    free(regions);
    return good;
}
