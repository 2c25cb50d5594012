/* The device, and kernels on it.
 *
 * Kernels of one's own are loaded and launched by calls of the driver that gvmem has loaded, so that
 * the same program runs on the software GPU. The image is a file beside the program:
 * hashjoin_kernels.fatbin for a GPU, hashjoin_kernels.so for the software one.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/hashjoin/hashjoin.h"

#define BLOCK_WARPS 4 /* as many as the kernels have shared memory for */
#define BLOCKS_PER_SM 16

/* ---- giving up */

void give_up(const char *format, ...)
{
    va_list args;

    fputs("hashjoin: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void must(gvm_status status, const char *what)
{
    gvm_error error;

    if (status == GVM_OK)
        return;
    gvm_error_last(&error);
    give_up("%s: %s: %s", what, gvm_status_text(status), error.text);
}

void *must_have(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    if (memory == NULL)
        give_up("out of memory for %zu times %zu bytes", count, bytes);
    return memory;
}

double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- the CUDA driver, as far as kernels need it; with CUDA's toolkit, cuda.h declares it */

typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;

static struct {
    int (*synchronize)(void);
    int (*module_load)(cu_module *module, const void *image);
    int (*module_unload)(cu_module module);
    int (*function_get)(cu_function *function, cu_module module, const char *name);
    int (*launch)(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  gvm_stream stream, void **params, void **extra);
    int (*copy_in)(uint64_t to, const void *from, size_t bytes);
    int (*copy_out)(void *to, uint64_t from, size_t bytes);
    int (*fill)(uint64_t to, unsigned char value, size_t count, gvm_stream stream);
} cu;

static struct {
    cu_module module;
    void *image;
    cu_function kernels[KERNELS];
} loaded;

static void require_cu(int code, const char *what)
{
    if (code != 0)
        give_up("%s: CUDA error %d", what, code);
}

static void find_call(const char *name, void *call)
{
    void (*found)(void);

    must(gvm_driver_get_call(name, &found), name);
    memcpy(call, &found, sizeof found);
}

static void find_calls(void)
{
    find_call("cuCtxSynchronize", &cu.synchronize);
    find_call("cuModuleLoadData", &cu.module_load);
    find_call("cuModuleUnload", &cu.module_unload);
    find_call("cuModuleGetFunction", &cu.function_get);
    find_call("cuLaunchKernel", &cu.launch);
    find_call("cuMemcpyHtoD_v2", &cu.copy_in);
    find_call("cuMemcpyDtoH_v2", &cu.copy_out);
    find_call("cuMemsetD8Async", &cu.fill);
}

/* ---- the kernels' image */

/* It stays in memory as long as it is loaded. */
static void *read_image(const char *name)
{
    char path[4096];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 64);
    char *bytes;
    long size;
    FILE *file;

    if (len < 0)
        give_up("cannot find the folder of the program");
    path[len] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    file = fopen(path, "rbe");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) <= 0)
        give_up("cannot read %s: was it built without nvcc?", path);
    rewind(file);
    bytes = aligned_alloc(64, ((size_t)size + 63) / 64 * 64);
    if (bytes == NULL || fread(bytes, 1, (size_t)size, file) != (size_t)size)
        give_up("cannot read %s", path);
    fclose(file);
    return bytes;
}

static void load_kernels(bool software)
{
    static const char *const names[KERNELS] = {
        [BUILD_COUNT] = "build_count", [BUILD_STARTS] = "build_starts",
        [BUILD_FILL] = "build_fill",   [SCAN_SUMS] = "scan_sums",
        [SCAN_WRITE] = "scan_write",   [JOIN_APPEND] = "join_append",
        [JOIN_COUNT] = "join_count",   [JOIN_TWO_PASS] = "join_two_pass",
        [JOIN_FIXED] = "join_fixed",   [CHECK_ROWS] = "check_rows",
    };

    loaded.image = read_image(software ? "hashjoin_kernels.so" : "hashjoin_kernels.fatbin");
    require_cu(cu.module_load(&loaded.module, loaded.image), "cannot load the kernels");
    for (int i = 0; i < KERNELS; i++)
        require_cu(cu.function_get(&loaded.kernels[i], loaded.module, names[i]), names[i]);
}

/* ---- the device */

void gpu_open(gpu *g)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .flags = GVM_HEAP_UNSHARED};
    unsigned most;

    g->info.struct_size = sizeof g->info;
    must(gvm_device_open(g->info.ordinal, &g->device), "cannot open the device");
    must(gvm_device_get_info(g->device, &g->info), "cannot ask about the device");
    find_calls();
    must(gvm_device_push_context(g->device), "cannot use the device");
    load_kernels(g->info.software != 0);
    most = (unsigned)g->info.block_threads_max;
    g->block_threads = BLOCK_WARPS * (unsigned)g->info.warp_size;
    if (g->block_threads > most)
        g->block_threads = most;
    g->blocks = (unsigned)g->info.sm_count * BLOCKS_PER_SM;
    g->warps = g->blocks * (g->block_threads / (unsigned)g->info.warp_size);
    must(gvm_heap_create(g->device, &options, &g->heap), "cannot make a heap");
}

void gpu_close(gpu *g)
{
    gvm_heap_block block;
    size_t left = 0;

    must(gvm_heap_list(g->heap, 1, sizeof(gvm_heap_block), &block, &left), "cannot ask about the heap");
    if (left > 0)
        give_up("%zu blocks of the heap were not freed, the first one is '%s'", left, block.tag);
    gvm_heap_destroy(g->heap);
    cu.module_unload(loaded.module);
    free(loaded.image);
    gvm_device_pop_context();
    gvm_device_close(g->device);
}

void gpu_launch(gpu *g, kernel which, const void *params)
{
    void *arguments[] = {(void *)(uintptr_t)params};

    require_cu(cu.launch(loaded.kernels[which], g->blocks, 1, 1, g->block_threads, 1, 1, 0, NULL,
                         arguments, NULL),
               "cannot launch a kernel");
}

void gpu_synchronize(void)
{
    require_cu(cu.synchronize(), "a kernel failed");
}

void gpu_zero(uint64_t address, uint64_t bytes)
{
    if (bytes > 0)
        require_cu(cu.fill(address, 0, bytes, NULL), "cannot clear memory");
}

void gpu_copy_in(uint64_t to, const void *from, uint64_t bytes)
{
    if (bytes > 0)
        require_cu(cu.copy_in(to, from, bytes), "cannot copy to the device");
}

void gpu_copy_out(void *to, uint64_t from, uint64_t bytes)
{
    if (bytes > 0)
        require_cu(cu.copy_out(to, from, bytes), "cannot copy from the device");
}

uint64_t gpu_block(gpu *g, uint64_t bytes, const char *tag)
{
    void *block;

    must(gvm_heap_alloc_tagged(g->heap, bytes > 0 ? bytes : 1, tag, &block), tag);
    return (uint64_t)(uintptr_t)block;
}

void gpu_free(gpu *g, uint64_t block)
{
    must(gvm_heap_free(g->heap, (void *)(uintptr_t)block), "cannot free a block");
}
