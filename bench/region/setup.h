/* bench/region/setup.h - what the parts of `gvmem-bench region` share: kernels, a space with one collection, launches. */
#ifndef BENCH_REGION_SETUP_H
#define BENCH_REGION_SETUP_H

#include <gvmem/region_object.h>

#include "bench/bench.h"
#include "bench/region/region.h"

/* The kernels: X(image, name). */
/* clang-format off */
#define REGION_KERNELS(X) \
    X(region, region_fill) X(region, region_maps_threads) X(region, region_maps_lanes) X(region, region_maps_warps) \
    X(region, region_fetch) X(region, region_read_homes) X(region, region_faults) X(region, region_copy_homes) \
    X(region, region_nothing) X(region, region_check_slots) X(region, items_one_block) X(region, experts_route) \
    X(region, experts_use) X(region, experts_next) X(region, region_trace) X(region, region_update) X(region, region_compute) \
    X(callback, callback_calls) X(callback, callback_mailbox) \
    X(graph, graph_degrees) X(graph, graph_sums) X(graph, graph_scan) X(graph, graph_offsets) X(graph, graph_scatter) \
    X(graph, graph_pieces) X(graph, graph_share) X(graph, bfs_plain) X(graph, bfs_share) X(graph, bfs_regions) X(graph, bfs_tlb) \
    X(graph, bfs_plain_counted) X(graph, bfs_regions_counted) X(graph, bfs_mark) X(graph, bfs_digest) \
    X(graph, bfs_merge) X(graph, bfs_compare) \
    X(graph, rank_plain) X(graph, rank_share) X(graph, rank_regions) X(graph, rank_tlb) X(graph, rank_plain_counted) \
    X(graph, rank_regions_counted) X(graph, rank_give) X(graph, rank_compare) \
    X(app, app_fill) X(app, app_fill_vector) X(app, digest_plain) X(app, digest_regions) X(app, triad_plain) X(app, triad_regions) \
    X(app, reduction_plain) X(app, reduction_regions) X(app, scan_plain) X(app, scan_regions) X(app, histogram_plain) \
    X(app, histogram_regions) X(app, transpose_plain) X(app, transpose_regions) X(app, hotspot_plain) X(app, hotspot_regions) \
    X(app, pathfinder_plain) X(app, pathfinder_regions) X(app, nearest_plain) X(app, nearest_regions) X(app, kmeans_plain) \
    X(app, kmeans_regions) X(app, sparse_plain) X(app, sparse_regions) X(app, matmul_fill) X(app, matmul_plain) \
    X(app, matmul_regions) X(app, matmul_digest)
/* clang-format on */
enum { IMAGE_region, IMAGE_graph, IMAGE_callback, IMAGE_app, IMAGE_COUNT };
#define REGION_KERNEL_ENUMERATOR(image, name) KERNEL_##name,
typedef enum region_kernel { REGION_KERNELS(REGION_KERNEL_ENUMERATOR) KERNEL_COUNT } region_kernel;
#undef REGION_KERNEL_ENUMERATOR

typedef struct region_bench {
    bench *b;
    bench_timer timer;
    CUmodule modules[IMAGE_COUNT];
    CUfunction functions[KERNEL_COUNT];
    unsigned threads_max[KERNEL_COUNT]; /* of a block */
    CUdeviceptr out;                    /* BENCH_OUT_WORDS */
    uint32_t clean_low;                 /* of collections that are made from now on */
    gvm_space *space;
    gvm_collection *collection;
    gvm_region_view view;
} region_bench;

/* How a kernel is launched. */
typedef struct region_launch {
    region_kernel kernel;
    unsigned blocks, threads;
} region_launch;

/* Loads the kernels, makes the timer and out; and the reverse. */
bool region_load(region_bench *r);
void region_unload(region_bench *r);

/* What the real GPU gets, and the software GPU. */
uint64_t region_size(const region_bench *r, uint64_t real, uint64_t software);

/* A space with one collection, whose homes hold the pattern; ends the one before. */
bool region_open(region_bench *r, uint64_t count, uint64_t region_bytes, uint64_t budget_bytes,
                 gvm_region_policy policy);
/* The same with homes that are all zeros. */
bool region_open_empty(region_bench *r, uint64_t count, uint64_t region_bytes,
                       uint64_t budget_bytes, gvm_region_policy policy);
/* The same with homes that are an object's. */
bool region_attach(region_bench *r, gvm_object *object, uint64_t budget_bytes,
                   gvm_region_policy policy);
void region_close(region_bench *r);

/* A space without collections; and one more collection in it, whose view is filled in. region_close() ends both. */
bool region_open_space(region_bench *r, uint64_t budget_bytes);
bool region_add(region_bench *r, uint64_t count, uint64_t region_bytes,
                const gvm_collection_options *options, gvm_collection **collection,
                gvm_region_view *view);
uint64_t region_homes(const gvm_region_view *view);

/* Of the collection so far. */
gvm_collection_info region_info(region_bench *r);

/* A launch for groups of threads (BENCH_BY_...) as many as wanted, at most as many as the device runs at once. */
region_launch region_shape(region_bench *r, region_kernel kernel, uint32_t by, uint64_t groups);

/* Queues a kernel. */
bool region_launch_kernel(region_bench *r, const region_launch *launch, const void *params);

/* Runs it alone and adds its time. */
bool region_time_kernel(region_bench *r, const region_launch *launch, const void *params, double *us);

/* Captures what make() queues on the timer's stream; runs a graph and takes its time. */
bool region_capture(region_bench *r, bool (*make)(region_bench *r, void *arg), void *arg,
                    CUgraphExec *graph);
bool region_time_graph(region_bench *r, CUgraphExec graph, double *us);

/* Device memory. Host bytes go to it, and come back, in the order of the timer's stream. */
bool region_alloc(region_bench *r, CUdeviceptr *out, uint64_t bytes);
bool region_send(region_bench *r, CUdeviceptr to, const void *from, uint64_t bytes);
bool region_receive(region_bench *r, void *to, CUdeviceptr from, uint64_t bytes);

/* Empties the words of out; says whether kernels found what was wrong since. */
bool region_clear_out(region_bench *r);
bool region_check_out(region_bench *r, const char *what);

/* Complains if it cannot. */
bool region_sync_space(region_bench *r);

/* Complains, and makes the exit status 1. */
bool region_failed(region_bench *r, const char *what);
bool region_driver_failed(region_bench *r, CUresult result, const char *call);

/* The parts. */
bool region_measure_maps(region_bench *r);
bool region_measure_fetch(region_bench *r);
bool region_measure_faults(region_bench *r);
bool region_measure_resolve(region_bench *r);
bool region_measure_experts(region_bench *r);
bool region_measure_policies(region_bench *r);
bool region_measure_clean(region_bench *r);
bool region_measure_bfs(region_bench *r);
bool region_measure_devices(region_bench *r); /* bfs over several of them */
bool region_measure_pagerank(region_bench *r);
bool region_measure_callbacks(region_bench *r);
bool region_measure_matmul(region_bench *r);
bool region_measure_kernels(region_bench *r);

#endif
