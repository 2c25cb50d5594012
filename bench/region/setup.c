/* What the parts of `gvmem-bench region` share. */
#include "bench/region/setup.h"

#include <string.h>

#include "base/size.h"

#define BLOCK_THREADS_WANTED 256u

extern const unsigned char gvmi_image_soft_bench_region[], gvmi_image_soft_bench_graph[],
    gvmi_image_soft_bench_callback[], gvmi_image_soft_bench_app[];
extern const unsigned char *const gvmi_image_cuda_bench_region,
    *const gvmi_image_cuda_bench_graph, *const gvmi_image_cuda_bench_callback, *const gvmi_image_cuda_bench_app;

uint64_t region_size(const region_bench *r, uint64_t real, uint64_t software)
{
    return r->b->info.software ? software : real;
}

bool region_failed(region_bench *r, const char *what)
{
    bench_failed(r->b, what);
    return false;
}

bool region_sync_space(region_bench *r)
{
    return gvm_space_sync(r->space, r->timer.stream) == GVM_OK ||
           region_failed(r, "a sync after the kernels");
}

bool region_driver_failed(region_bench *r, CUresult result, const char *call)
{
    bench_failed_driver(r->b, result, call);
    return false;
}

/* ---- kernels */

static bool load_images(region_bench *r)
{
    const unsigned char *const soft[IMAGE_COUNT] = {
        gvmi_image_soft_bench_region, gvmi_image_soft_bench_graph, gvmi_image_soft_bench_callback,
        gvmi_image_soft_bench_app};
    const unsigned char *const cuda[IMAGE_COUNT] = {
        gvmi_image_cuda_bench_region, gvmi_image_cuda_bench_graph, gvmi_image_cuda_bench_callback,
        gvmi_image_cuda_bench_app};
    CUresult result = CUDA_SUCCESS;

    for (int i = 0; i < IMAGE_COUNT && result == CUDA_SUCCESS; i++) {
        const unsigned char *image = r->b->info.software ? soft[i] : cuda[i];

        if (image == NULL) {
            bench_note(r->b, "this build has no kernels for real GPUs: build it where nvcc is found");
            r->b->code = TOOL_FAILED;
            return false;
        }
        result = gvmi_cu->cuModuleLoadData(&r->modules[i], image);
    }
    return result == CUDA_SUCCESS || region_driver_failed(r, result, "loading the kernels");
}

static bool load_kernels(region_bench *r)
{
#define REGION_KERNEL_NAME(image, name) {IMAGE_##image, #name},
    static const struct {
        int image;
        const char *name;
    } kernels[] = {REGION_KERNELS(REGION_KERNEL_NAME)};
#undef REGION_KERNEL_NAME
    CUresult result = CUDA_SUCCESS;

    if (!load_images(r))
        return false;
    for (int i = 0; i < KERNEL_COUNT && result == CUDA_SUCCESS; i++) {
        int threads = 0;

        result = gvmi_cu->cuModuleGetFunction(&r->functions[i], r->modules[kernels[i].image],
                                              kernels[i].name);
        if (result == CUDA_SUCCESS)
            result = gvmi_cu->cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                                 r->functions[i]);
        r->threads_max[i] = (unsigned)threads;
    }
    return result == CUDA_SUCCESS || region_driver_failed(r, result, "loading the kernels");
}

bool region_load(region_bench *r)
{
    return load_kernels(r) && bench_timer_create(r->b, &r->timer) &&
           region_alloc(r, &r->out, BENCH_OUT_WORDS * sizeof(uint64_t));
}

void region_unload(region_bench *r)
{
    if (r->out != 0)
        gvmi_cu->cuMemFree(r->out);
    bench_timer_destroy(&r->timer);
    for (int i = 0; i < IMAGE_COUNT; i++)
        if (r->modules[i] != NULL)
            gvmi_cu->cuModuleUnload(r->modules[i]);
}

region_launch region_shape(region_bench *r, region_kernel kernel, uint32_t by, uint64_t groups)
{
    const unsigned warp = (unsigned)r->b->info.warp_size, sms = (unsigned)r->b->info.sm_count;
    unsigned threads = (unsigned)gvmi_min(BLOCK_THREADS_WANTED, r->threads_max[kernel]);
    uint64_t blocks = groups;
    int at_once = 1;

    if (by == BENCH_BY_WARP) { /* few warps are spread over the multiprocessors */
        threads = (unsigned)gvmi_min(threads, warp * gvmi_max(1, (groups + sms - 1) / sms));
        blocks = groups / (threads / warp);
    } else if (by == BENCH_BY_THREAD) {
        blocks = (groups + threads - 1) / threads;
    }
    (void)gvmi_cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, r->functions[kernel],
                                                               (int)threads, 0);
    blocks = gvmi_min(blocks, (uint64_t)at_once * sms);
    return (region_launch){kernel, (unsigned)gvmi_max(blocks, 1), threads};
}

bool region_launch_kernel(region_bench *r, const region_launch *launch, const void *params)
{
    void *arguments[] = {(void *)(uintptr_t)params};
    const CUresult result = gvmi_cu->cuLaunchKernel(r->functions[launch->kernel], launch->blocks, 1,
                                                    1, launch->threads, 1, 1, 0, r->timer.stream,
                                                    arguments, NULL);

    return result == CUDA_SUCCESS || region_driver_failed(r, result, "cuLaunchKernel");
}

bool region_time_kernel(region_bench *r, const region_launch *launch, const void *params, double *us)
{
    return bench_timer_start(r->b, &r->timer) && region_launch_kernel(r, launch, params) &&
           bench_timer_stop(r->b, &r->timer, us);
}

/* ---- graphs */

bool region_capture(region_bench *r, bool (*make)(region_bench *r, void *arg), void *arg,
                    CUgraphExec *exec)
{
    CUgraph graph = NULL;
    CUresult result = gvmi_cu->cuStreamBeginCapture(r->timer.stream,
                                                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    bool good = result == CUDA_SUCCESS && make(r, arg);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamEndCapture(r->timer.stream, &graph);
    if (result == CUDA_SUCCESS && good)
        result = gvmi_cu->cuGraphInstantiate(exec, graph, 0);
    if (graph != NULL)
        gvmi_cu->cuGraphDestroy(graph);
    return good && (result == CUDA_SUCCESS || region_driver_failed(r, result, "capturing a graph"));
}

bool region_time_graph(region_bench *r, CUgraphExec graph, double *us)
{
    CUresult result;

    if (!bench_timer_start(r->b, &r->timer))
        return false;
    result = gvmi_cu->cuGraphLaunch(graph, r->timer.stream);
    return result == CUDA_SUCCESS ? bench_timer_stop(r->b, &r->timer, us)
                                  : region_driver_failed(r, result, "cuGraphLaunch");
}

/* ---- memory */

bool region_alloc(region_bench *r, CUdeviceptr *out, uint64_t bytes)
{
    const CUresult result = gvmi_cu->cuMemAlloc(out, bytes);

    return result == CUDA_SUCCESS || region_driver_failed(r, result, "cuMemAlloc");
}

bool region_send(region_bench *r, CUdeviceptr to, const void *from, uint64_t bytes)
{
    CUresult result = gvmi_cu->cuMemcpyHtoDAsync(to, from, bytes, r->timer.stream);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamSynchronize(r->timer.stream);
    return result == CUDA_SUCCESS || region_driver_failed(r, result, "cuMemcpyHtoDAsync");
}

bool region_receive(region_bench *r, void *to, CUdeviceptr from, uint64_t bytes)
{
    CUresult result = gvmi_cu->cuMemcpyDtoHAsync(to, from, bytes, r->timer.stream);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamSynchronize(r->timer.stream);
    return result == CUDA_SUCCESS || region_driver_failed(r, result, "cuMemcpyDtoHAsync");
}

bool region_clear_out(region_bench *r)
{
    static const uint64_t zeros[BENCH_OUT_WORDS];

    return region_send(r, r->out, zeros, sizeof zeros);
}

bool region_check_out(region_bench *r, const char *what)
{
    uint64_t out[BENCH_OUT_WORDS];

    if (!region_receive(r, out, r->out, sizeof out))
        return false;
    if (out[BENCH_OUT_WRONG] == 0)
        return true;
    bench_note(r->b, "%s: %llu regions were not mapped, or do not hold what they should", what,
               (unsigned long long)out[BENCH_OUT_WRONG]);
    r->b->code = TOOL_FAILED;
    return false;
}

/* ---- the collection */

static bool fill_homes(region_bench *r)
{
    const bench_region_params params = {.view = r->view, .count = r->view.count};
    const region_launch launch = region_shape(r, KERNEL_region_fill, BENCH_BY_THREAD,
                                              params.count * r->view.stride_bytes / 16);
    double us;

    return region_time_kernel(r, &launch, &params, &us);
}

uint64_t region_homes(const gvm_region_view *view)
{
    return view->address + view->home * view->stride_bytes;
}

bool region_open_space(region_bench *r, uint64_t budget_bytes)
{
    gvm_space_options options = gvm_space_options_init();

    region_close(r);
    options.budget_bytes = budget_bytes;
    return gvm_space_create(r->b->device, &options, &r->space) == GVM_OK ||
           region_failed(r, "making a space");
}

bool region_add(region_bench *r, uint64_t count, uint64_t region_bytes,
                const gvm_collection_options *options, gvm_collection **collection,
                gvm_region_view *view)
{
    if (gvm_collection_create(r->space, count, region_bytes, options, collection) != GVM_OK ||
        gvm_collection_get_view(*collection, view) != GVM_OK)
        return region_failed(r, "making a collection");
    return true;
}

static gvm_collection_options plan_frames(const region_bench *r, uint64_t budget_bytes,
                                          gvm_region_policy policy)
{
    gvm_collection_options options = gvm_collection_options_init();

    options.budget_bytes = budget_bytes;
    options.policy = policy;
    options.clean_low = r->clean_low;
    return options;
}

bool region_open_empty(region_bench *r, uint64_t count, uint64_t region_bytes,
                       uint64_t budget_bytes, gvm_region_policy policy)
{
    const gvm_collection_options options = plan_frames(r, budget_bytes, policy);

    return region_open_space(r, budget_bytes + 64 * GVMI_MIB) && /* whole chunks are committed */
           region_add(r, count, region_bytes, &options, &r->collection, &r->view);
}

bool region_attach(region_bench *r, gvm_object *object, uint64_t budget_bytes, gvm_region_policy policy)
{
    const gvm_collection_options options = plan_frames(r, budget_bytes, policy);

    if (!region_open_space(r, budget_bytes + 64 * GVMI_MIB))
        return false;
    if (gvm_collection_attach(r->space, object, &options, GVM_FOREVER, &r->collection) != GVM_OK ||
        gvm_collection_get_view(r->collection, &r->view) != GVM_OK)
        return region_failed(r, "attaching a collection");
    return true;
}

bool region_open(region_bench *r, uint64_t count, uint64_t region_bytes, uint64_t budget_bytes,
                 gvm_region_policy policy)
{
    return region_open_empty(r, count, region_bytes, budget_bytes, policy) && fill_homes(r);
}

void region_close(region_bench *r)
{
    gvm_space_destroy(r->space);
    r->space = NULL;
    r->collection = NULL;
    memset(&r->view, 0, sizeof r->view);
}

gvm_collection_info region_info(region_bench *r)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    if (gvm_collection_get_info(r->collection, &info) != GVM_OK)
        region_failed(r, "asking a collection");
    return info;
}
