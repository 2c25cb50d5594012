/* examples/launch.h - running a kernel of one's own, as any CUDA program does by the driver's calls.
 *
 * gvmem finds the calls, so that the same program runs on the software GPU. The kernel's image is a
 * file beside the program: NAME.fatbin for a GPU, NAME.so for the software one. Where CUDA's toolkit
 * is, cuda.h declares the types and calls.
 */
#ifndef EXAMPLES_LAUNCH_H
#define EXAMPLES_LAUNCH_H

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;

static struct {
    int (*module_load)(cu_module *module, const void *image);
    int (*module_unload)(cu_module module);
    int (*function_get)(cu_function *function, cu_module module, const char *name);
    int (*launch)(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  gvm_stream stream, void **params, void **extra);
    int (*copy_out)(void *to, uint64_t from, size_t bytes);
} cu;

typedef struct kernel {
    void *image; /* must stay in memory while the module is loaded */
    cu_module module;
    cu_function function;
} kernel;

static inline void must_cu(int result, const char *call)
{
    if (result != 0)
        must(gvm_driver_error(result, call, "it failed"), call);
}

static inline void find_call(const char *name, void *call)
{
    void (*found)(void);

    must(gvm_driver_get_call(name, &found), name);
    memcpy(call, &found, sizeof found);
}

/* Makes the device's context current for this thread, until gvm_device_pop_context(). */
static inline void use_device(gvm_device *device)
{
    must(gvm_device_push_context(device), "cannot use the device");
    find_call("cuModuleLoadData", &cu.module_load);
    find_call("cuModuleUnload", &cu.module_unload);
    find_call("cuModuleGetFunction", &cu.function_get);
    find_call("cuLaunchKernel", &cu.launch);
    find_call("cuMemcpyDtoH_v2", &cu.copy_out);
}

/* The bytes of the image NAME, from beside the program. */
static inline void *read_image(const char *name, int software)
{
    char path[4096];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 64);
    char *bytes;
    long size;
    FILE *file;

    if (len < 0)
        give_up("cannot find the folder of the program");
    path[len] = '\0';
    snprintf(strrchr(path, '/') + 1, 64, "%s.%s", name, software ? "so" : "fatbin");
    file = fopen(path, "rbe");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) <= 0)
        give_up(software ? "cannot read the kernel's .so"
                         : "cannot read the kernel's .fatbin: built without nvcc?");
    rewind(file);
    bytes = aligned_alloc(64, ((size_t)size + 63) / 64 * 64);
    if (bytes == NULL || fread(bytes, 1, (size_t)size, file) != (size_t)size)
        give_up("cannot read the kernel");
    fclose(file);
    return bytes;
}

static inline kernel load_kernel(gvm_device *device, const char *image, const char *function)
{
    gvm_device_info info = {.struct_size = sizeof info};
    kernel k;

    must(gvm_device_get_info(device, &info), "cannot ask about the device");
    k.image = read_image(image, info.software != 0);
    must_cu(cu.module_load(&k.module, k.image), "cuModuleLoadData");
    must_cu(cu.function_get(&k.function, k.module, function), "cuModuleGetFunction");
    return k;
}

/* Runs the kernel on all of the device, and waits. params: what its one argument points to. */
static inline void run_kernel(gvm_device *device, const kernel *k, void *params)
{
    gvm_device_info info = {.struct_size = sizeof info};
    void *arguments[] = {params};

    must(gvm_device_get_info(device, &info), "cannot ask about the device");
    must_cu(cu.launch(k->function, (unsigned)info.sm_count * 8, 1, 1,
                      info.block_threads_max < 256 ? (unsigned)info.block_threads_max : 256, 1, 1,
                      0, NULL, arguments, NULL),
            "cuLaunchKernel");
    must(gvm_device_synchronize(device), "the kernel failed");
}

static inline void unload_kernel(kernel *k)
{
    must_cu(cu.module_unload(k->module), "cuModuleUnload");
    free(k->image);
}

#endif
