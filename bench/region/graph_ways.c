/* Passes over the edges of a graph: with regions, and in the ways that there are without. */
#include "bench/region/graphs.h"

#include <stdlib.h>

#include "base/size.h"

#define SLICES_IN_BUDGET \
    8 /* of two, one is copied while the other is used: smaller ones overlap better, and are skipped more often */
#define BLOCKS_AT_ONCE 8 /* times as many as run at once, so that those that are late are few */
#define VERTICES_EACH 8  /* of a thread, at least */

const char *const graph_way_names[GRAPH_WAYS] = {
    "in core", "zero-copy", "partition", "static share", "regions", "regions, TLB",
};

/* ---- memory */

static bool start_partition(graph_ways *w)
{
    region_bench *r = w->g->r;
    CUresult result = gvmi_cu->cuStreamCreate(&w->copies, CU_STREAM_NON_BLOCKING);
    void *pinned = NULL;

    if (!graph_cut(w->g, w->budget_bytes / SLICES_IN_BUDGET, &w->slices))
        return false;
    for (int i = 0; i < 2; i++) {
        if (result == CUDA_SUCCESS)
            result = gvmi_cu->cuEventCreate(&w->copied[i], CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS)
            result = gvmi_cu->cuEventCreate(&w->used[i], CU_EVENT_DISABLE_TIMING);
        if (!region_alloc(r, &w->buffers[i], (w->slices.edges_max + 32) * sizeof(uint32_t)))
            return false;
    }
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuMemHostAlloc(&pinned, w->slices.count * sizeof *w->marks, 0);
    w->marks = pinned;
    w->g->p.slice = w->slices.vertices;
    return (result == CUDA_SUCCESS || region_driver_failed(r, result, "cuStreamCreate")) &&
           graph_alloc(w->g, &w->g->p.marks, w->slices.count * sizeof *w->marks);
}

static bool start_share(graph_ways *w)
{
    region_graph *g = w->g;
    const uint64_t block_bytes = BENCH_SHARE_EDGES * sizeof(uint32_t);
    const uint64_t blocks = (g->edge_bytes + block_bytes - 1) / block_bytes;
    const uint64_t wanted = gvmi_min(w->budget_bytes / block_bytes, blocks);
    bench_graph_params p = g->p;

    w->share = (wanted << 32) / gvmi_max(blocks, 1);
    if (!region_alloc(g->r, &w->resident, gvmi_max(wanted, 1) * block_bytes))
        return false;
    p.share = w->share;
    p.resident = w->resident;
    p.plain = region_homes(&g->r->view);
    p.drawn = g->edge_count;
    return graph_launch(g, KERNEL_graph_share, &p, p.drawn);
}

bool graph_ways_start(graph_ways *w, region_graph *g, uint64_t budget_bytes, bool all)
{
    *w = (graph_ways){.g = g, .budget_bytes = budget_bytes};
    return !all || (start_partition(w) && start_share(w));
}

void graph_ways_end(graph_ways *w)
{
    if (w->g == NULL) /* not started */
        return;
    bench_wait(w->g->r->b);
    for (int i = 0; i < 2; i++) {
        if (w->copied[i] != NULL)
            gvmi_cu->cuEventDestroy(w->copied[i]);
        if (w->used[i] != NULL)
            gvmi_cu->cuEventDestroy(w->used[i]);
        if (w->buffers[i] != 0)
            gvmi_cu->cuMemFree(w->buffers[i]);
    }
    if (w->resident != 0)
        gvmi_cu->cuMemFree(w->resident);
    if (w->copies != NULL)
        gvmi_cu->cuStreamDestroy(w->copies);
    if (w->marks != NULL)
        gvmi_cu->cuMemFreeHost(w->marks);
    free(w->slices.begins);
    *w = (graph_ways){.g = w->g};
}

/* ---- passes */

static bool launch_pass(graph_ways *w, uint32_t kind, const bench_graph_params *p)
{
    const region_kernel kernel = w->kernels[kind];
    region_launch launch = region_shape(w->g->r, kernel, BENCH_BY_THREAD, UINT32_MAX);
    const uint64_t vertices = (uint64_t)(p->end - p->first) + 32ull * p->piece_count;

    launch.blocks = (unsigned)gvmi_min((uint64_t)launch.blocks * BLOCKS_AT_ONCE,
                                       vertices / launch.threads / VERTICES_EACH + 1);
    return region_launch_kernel(w->g->r, &launch, p);
}

/* The i-th of the slices that are copied goes to buffer i % 2, when what was there has been used. */
static bool pass_slice(graph_ways *w, const bench_graph_params *p, uint32_t slice, uint32_t i)
{
    const uint64_t begin = w->slices.begins[slice], count = w->slices.begins[slice + 1] - begin;
    const uint64_t shifted = begin & 31; /* lines stay lines */
    const CUstream stream = w->g->r->timer.stream;
    const uint32_t b = i % 2;
    bench_graph_params part = *p;
    CUresult result = gvmi_cu->cuStreamWaitEvent(w->copies, w->used[b], 0);

    if (result == CUDA_SUCCESS && count > 0)
        result = gvmi_cu->cuMemcpyAsync(w->buffers[b] + shifted * sizeof(uint32_t),
                                        region_homes(&w->g->r->view) + begin * sizeof(uint32_t),
                                        count * sizeof(uint32_t), w->copies);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventRecord(w->copied[b], w->copies);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamWaitEvent(stream, w->copied[b], 0);
    if (result != CUDA_SUCCESS)
        return region_driver_failed(w->g->r, result, "copying a slice");
    w->moved_bytes += count * sizeof(uint32_t);
    part.first = slice * w->slices.vertices;
    part.end = (uint32_t)gvmi_min(part.first + (uint64_t)w->slices.vertices, p->vertices);
    part.plain = w->buffers[b] + shifted * sizeof(uint32_t) - begin * sizeof(uint32_t);
    if (!launch_pass(w, BENCH_EDGES_PLAIN, &part))
        return false;
    result = gvmi_cu->cuEventRecord(w->used[b], stream);
    return result == CUDA_SUCCESS || region_driver_failed(w->g->r, result, "cuEventRecord");
}

/* Slices without any of the frontier are left out. Copies begin behind all that was queued before. */
static bool pass_slices(graph_ways *w, const bench_graph_params *p, bool all)
{
    region_bench *r = w->g->r;
    uint32_t copied = 0;
    CUresult result = CUDA_SUCCESS;

    if (!all && (!graph_clear(w->g, p->marks, 0, w->slices.count) ||
                 !graph_launch(w->g, KERNEL_bfs_mark, p, p->vertices / 32 + 1) ||
                 !region_receive(r, w->marks, p->marks, w->slices.count * sizeof *w->marks)))
        return false;
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++)
        result = gvmi_cu->cuEventRecord(w->used[i], r->timer.stream);
    if (result != CUDA_SUCCESS)
        return region_driver_failed(r, result, "cuEventRecord");
    for (uint32_t i = 0; i < w->slices.count; i++)
        if ((all || w->marks[i] != 0) && !pass_slice(w, p, i, copied++))
            return false;
    return true;
}

bool graph_pass(graph_ways *w, int way, const bench_graph_params *p, bool all, bool counted)
{
    bench_graph_params pass = *p;

    if (way == GRAPH_PARTITION)
        return pass_slices(w, p, all);
    pass.plain = way == GRAPH_IN_CORE ? w->g->edges : region_homes(&w->g->r->view);
    pass.resident = w->resident;
    pass.share = w->share;
    return launch_pass(w,
                       (way == GRAPH_SHARE         ? (uint32_t)BENCH_EDGES_SHARE
                        : way == GRAPH_REGIONS     ? (uint32_t)BENCH_EDGES_REGIONS
                        : way == GRAPH_REGIONS_TLB ? (uint32_t)BENCH_EDGES_TLB
                                                   : (uint32_t)BENCH_EDGES_PLAIN) |
                           (counted ? (uint32_t)BENCH_EDGES_COUNTED : 0),
                       &pass);
}

/* ---- what was moved */

bool graph_count_begin(graph_ways *w, gvm_collection_info *before)
{
    *before = region_info(w->g->r);
    w->moved_bytes = 0;
    return graph_clear_out(w->g);
}

bool graph_count_end(graph_ways *w, int way, const gvm_collection_info *before, graph_counts *counts)
{
    const gvm_collection_info after = region_info(w->g->r);
    const double fetched = (double)(after.fetched - before->fetched);
    uint64_t out[BENCH_GRAPH_WORDS];

    if (!graph_receive_out(w->g, out))
        return false;
    *counts = (graph_counts){0};
    counts->maps = (double)out[BENCH_GRAPH_MAPS];
    counts->moved_bytes = (double)w->moved_bytes + 128 * (double)out[BENCH_GRAPH_LINES];
    if (way != GRAPH_REGIONS)
        return true;
    counts->moved_bytes += fetched * (double)after.region_bytes;
    counts->hits = counts->maps > 0 ? 1 - (fetched + (double)out[BENCH_GRAPH_REMOTE]) / counts->maps
                                    : 0;
    return true;
}
