/* Images: shared objects made from kernel files, as the caller has them in memory or in a file.
 *
 * cuModuleLoadData does not get the length of the image, so its length is read off its own headers.
 * The image is written to a memfd and given to the dynamic loader. The loader distinguishes files
 * by name, here the number of the memfd, so that stays open as long as the image is loaded; a
 * debugger finds it by that name as well. */
#include "softgpu/engine.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gvmem/device/kernel.h>

#define IMAGE_BYTES_MAX (1ull << 30)
#define NAME_BYTES_MAX 256
#define JIT_OPTION_COUNT 35 /* of CUjit_option in 13.0 */
#if defined(__x86_64__)
#define MACHINE_HERE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE_HERE EM_AARCH64
#else
#error "the software GPU does not know this machine's ELF number"
#endif

/* A global that is registered with space.c. */
typedef struct soft_module_global {
    void *address;
    LIST_ENTRY(soft_module_global) entry;
} soft_module_global;

/* Guards the globals of all modules; taken without the engine's lock and held while space.c is
 * called. */
static pthread_mutex_t globals_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- what the image is */

typedef struct elf_image {
    const unsigned char *bytes;
    uint64_t bytes_max;  /* as much as there can be */
    uint64_t size_bytes; /* 0: it is none */
    CUresult result;
} elf_image;

/* Byte for byte, because what is no image may be shorter than any header. */
static bool starts_with(const unsigned char *bytes, const char *magic, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (unsigned char)magic[i])
            return false;
    return true;
}

/* Grows *end to the end of a table in the file. */
static bool extend_table_end(uint64_t *end, uint64_t offset, uint64_t size_bytes)
{
    if (offset > IMAGE_BYTES_MAX || size_bytes > IMAGE_BYTES_MAX)
        return false;
    if (offset + size_bytes > *end)
        *end = offset + size_bytes;
    return true;
}

static bool measure_elf(elf_image *image)
{
    Elf64_Ehdr head;
    Elf64_Phdr segment;
    uint64_t end = sizeof head;

    memcpy(&head, image->bytes, sizeof head);
    if (head.e_type != ET_DYN || head.e_phnum == 0 || head.e_phentsize != sizeof segment ||
        (head.e_shnum > 0 && head.e_shentsize != sizeof(Elf64_Shdr)) ||
        !extend_table_end(&end, head.e_phoff, (uint64_t)head.e_phnum * sizeof segment) ||
        !extend_table_end(&end, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr)))
        return false;
    for (size_t i = 0; i < head.e_phnum; i++) {
        memcpy(&segment, image->bytes + head.e_phoff + i * sizeof segment, sizeof segment);
        if (!extend_table_end(&end, segment.p_offset, segment.p_filesz))
            return false;
    }
    image->size_bytes = end;
    return end <= image->bytes_max;
}

/* Under a guard: headers may point anywhere. */
static void measure_elf_guarded(void *arg)
{
    static const char elf[] = {ELFMAG0,    ELFMAG1,     ELFMAG2,   ELFMAG3,
                               ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
    static const char fatbin[] = {'\x50', '\xED', '\x55', '\xBA'};
    static const char fatbin_wrapper[] = {'\xB1', '\x43', '\x62', '\x46'};
    elf_image *image = arg;
    uint16_t machine;

    image->result = CUDA_ERROR_INVALID_IMAGE;
    if (starts_with(image->bytes, fatbin, sizeof fatbin) ||
        starts_with(image->bytes, fatbin_wrapper, sizeof fatbin_wrapper)) {
        image->result = CUDA_ERROR_NO_BINARY_FOR_GPU;
        return;
    }
    if (!starts_with(image->bytes, elf, sizeof elf))
        return;
    memcpy(&machine, image->bytes + offsetof(Elf64_Ehdr, e_machine), sizeof machine);
    if (machine != MACHINE_HERE && machine != EM_NONE)
        image->result = CUDA_ERROR_NO_BINARY_FOR_GPU; /* a cubin, for one */
    else if (measure_elf(image))
        image->result = CUDA_SUCCESS;
}

/* ---- loading */

/* The loader keeps the text of its last error for dlerror(), which gives it out once and frees it
 * the next time. */
static void forget_loader_error(void)
{
    if (dlerror())
        (void)dlerror();
}

static CUresult write_file(int fd, const elf_image *image)
{
    uint64_t done = 0;

    while (done < image->size_bytes) {
        ssize_t n = write(fd, image->bytes + done, image->size_bytes - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return errno == EFAULT ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_OUT_OF_MEMORY;
        done += (uint64_t)n;
    }
    return CUDA_SUCCESS;
}

/* The loader opens the file once more, and says only in a text why it could not. */
static bool is_out_of_fds(int fd)
{
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (copy < 0)
        return errno == EMFILE;
    close(copy);
    return false;
}

static CUresult load_image(soft_module *module, const void *bytes, uint64_t bytes_max)
{
    elf_image image = {.bytes = bytes, .bytes_max = bytes_max};
    char path[48];
    CUresult result = soft_fault_guard(measure_elf_guarded, &image, NULL);

    if (result != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_IMAGE;
    if (image.result != CUDA_SUCCESS)
        return image.result;
    module->fd = memfd_create("gvmem-image", MFD_CLOEXEC);
    if (module->fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    result = write_file(module->fd, &image);
    if (result == CUDA_SUCCESS) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), module->fd);
        module->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!module->library) {
            forget_loader_error();
            result = is_out_of_fds(module->fd) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_INVALID_IMAGE;
        } else if (dlinfo(module->library, RTLD_DI_TLS_MODID, &module->tls_module)) {
            forget_loader_error();
        }
    }
    if (result != CUDA_SUCCESS)
        close(module->fd);
    return result;
}

/* Without the lock: unloading runs the image's destructors. */
static void unload_module(soft_module *module)
{
    soft_module_global *global;
    soft_function *function;

    while ((global = LIST_FIRST(&module->globals))) {
        LIST_REMOVE(global, entry);
        soft_space_remove_global(global->address);
        free(global);
    }
    while ((function = LIST_FIRST(&module->functions))) {
        LIST_REMOVE(function, entry);
        free(function);
    }
    dlclose(module->library);
    close(module->fd);
    free(module);
}

/* Where a thread-local variable of any image is; part of every ELF platform's C interface, and in
 * no header. */
typedef struct tls_index {
    size_t module, offset;
} tls_index;
extern void *__tls_get_addr(tls_index *index);

void soft_module_touch(const soft_module *module)
{
    if (module->tls_module != 0)
        (void)__tls_get_addr(&(tls_index){module->tls_module, 0});
}

void soft_module_close_locked(soft_module *module)
{
    soft_function *function;

    soft_handle_remove_locked(module->handle);
    module->handle = NULL;
    LIST_FOREACH(function, &module->functions, entry)
    soft_handle_remove_locked(function->handle);
    LIST_REMOVE(module, entry);
}

void soft_module_unref(soft_module *module)
{
    bool last;

    soft_lock();
    last = --module->refs == 0;
    soft_unlock();
    if (last)
        unload_module(module);
}

static CUresult load_module(CUmodule *out, const void *image, uint64_t bytes_max)
{
    soft_module *module = calloc(1, sizeof *module);
    soft_context *context;
    CUresult result;

    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->refs = 1;
    result = load_image(module, image, bytes_max);
    if (result != CUDA_SUCCESS) {
        free(module);
        return result;
    }
    soft_lock();
    result = soft_context_current_locked(&context);
    if (result == CUDA_SUCCESS)
        result = soft_context_usable_locked(context);
    if (result == CUDA_SUCCESS) {
        module->handle = soft_handle_add_locked(SOFT_HANDLE_MODULE, module);
        if (!module->handle)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        module->context = context;
        LIST_INSERT_HEAD(&context->modules, module, entry);
        *out = module->handle;
    }
    soft_unlock();
    if (result != CUDA_SUCCESS)
        unload_module(module);
    return result;
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

/* A file that is a FIFO has no size, and is not waited for. */
CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    int device, fd;
    struct stat info;
    void *bytes = MAP_FAILED;
    CUresult result = soft_enter_unsafe(&device);

    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !path)
        return CUDA_ERROR_INVALID_VALUE;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    if (fstat(fd, &info) == 0 && info.st_size >= (off_t)sizeof(Elf64_Ehdr))
        bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return CUDA_ERROR_INVALID_IMAGE;
    result = load_module(out, bytes, (uint64_t)info.st_size);
    munmap(bytes, (size_t)info.st_size);
    return result;
}

/* The value of an option is a pointer, or a number in the place of one. */
static void **find_option(CUjit_option option, unsigned count, const CUjit_option *options, void **values)
{
    for (unsigned i = 0; i < count; i++)
        if (options[i] == option)
            return &values[i];
    return NULL;
}

/* Nothing is compiled: the log is an empty string. */
static void clear_log(CUjit_option buffer, CUjit_option size, unsigned count,
                      const CUjit_option *options, void **values)
{
    void **text = find_option(buffer, count, options, values);
    void **size_bytes = find_option(size, count, options, values);

    if (!size_bytes)
        return;
    if (text && *text && (uint32_t)(uintptr_t)*size_bytes > 0)
        *(char *)*text = '\0';
    *size_bytes = NULL; /* so much was written */
}

/* Options are for the compiler and the linker of a driver; images are not compiled here, so none has an effect but those
 * that ask for an answer. */
CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count,
                            CUjit_option *options, void **values)
{
    int device;
    void **time;
    CUresult result = soft_enter_unsafe(&device);

    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !image || (count > 0 && (!options || !values)))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (options[i] < 0 || options[i] >= JIT_OPTION_COUNT)
            return CUDA_ERROR_INVALID_VALUE;
    clear_log(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, count, options, values);
    clear_log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, count, options, values);
    time = find_option(CU_JIT_WALL_TIME, count, options, values);
    if (time)
        *time = NULL; /* the bits of 0.0f */
    return load_module(out, image, IMAGE_BYTES_MAX);
}

CUresult cuModuleUnload(CUmodule handle)
{
    soft_module *module;
    CUresult result = soft_enter();

    if (result != CUDA_SUCCESS)
        return result;
    soft_lock();
    module = soft_handle_find_locked(SOFT_HANDLE_MODULE, handle);
    if (module) {
        result = soft_context_usable_locked(module->context);
        soft_module_close_locked(module);
    }
    soft_unlock();
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    soft_module_unref(module);
    return result;
}

/* ---- what is in it */

/* Finds PREFIX_NAME in the image; on success the caller has a reference to the module. */
static CUresult find_symbol(CUmodule handle, const char *prefix, const char *name,
                            soft_module **out, const void **symbol)
{
    char full[NAME_BYTES_MAX];
    soft_module *module;
    CUresult result = soft_enter();
    int length;

    if (result != CUDA_SUCCESS)
        return result;
    if (!name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    soft_lock();
    module = soft_handle_find_locked(SOFT_HANDLE_MODULE, handle);
    result = module ? soft_context_usable_locked(module->context) : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        module->refs++;
    soft_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    length = snprintf(full, sizeof full, "%s%s", prefix, name);
    *symbol = length > 0 && (size_t)length < sizeof full ? dlsym(module->library, full) : NULL;
    if (!*symbol) {
        forget_loader_error();
        soft_module_unref(module);
        return CUDA_ERROR_NOT_FOUND;
    }
    *out = module;
    return CUDA_SUCCESS;
}

/* The one function object of a kernel. */
static CUresult function_of_locked(soft_module *module, const gvm_soft_kernel *kernel,
                                   soft_function **out)
{
    soft_function *function;

    if (!module->handle)
        return CUDA_ERROR_INVALID_HANDLE; /* unloaded meanwhile */
    LIST_FOREACH(function, &module->functions, entry)
    if (function->kernel == kernel) {
        *out = function;
        return CUDA_SUCCESS;
    }
    function = calloc(1, sizeof *function);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    function->handle = soft_handle_add_locked(SOFT_HANDLE_FUNCTION, function);
    if (!function->handle) {
        free(function);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    function->module = module;
    function->kernel = kernel;
    function->shared_bytes_max = SOFT_SHARED_BYTES_DEFAULT;
    LIST_INSERT_HEAD(&module->functions, function, entry);
    *out = function;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    const gvm_soft_kernel *kernel;
    const void *symbol;
    soft_function *function;
    soft_module *module;
    CUresult result;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    result = find_symbol(handle, "gvm_soft_kernel_", name, &module, &symbol);
    if (result != CUDA_SUCCESS)
        return result;
    kernel = symbol;
    if (kernel->abi != GVM_SOFT_ABI) {
        result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    } else if (!kernel->run || kernel->params_bytes > SOFT_PARAMS_BYTES_MAX) {
        result = CUDA_ERROR_INVALID_IMAGE;
    } else {
        soft_lock();
        result = function_of_locked(module, kernel, &function);
        if (result == CUDA_SUCCESS)
            *out = function->handle;
        soft_unlock();
    }
    soft_module_unref(module);
    return result;
}

/* Makes the global known to space.c, once. */
static CUresult publish_global(soft_module *module, const gvm_soft_global *global)
{
    soft_module_global *known;
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&globals_lock);
    LIST_FOREACH(known, &module->globals, entry)
    if (known->address == global->address)
        break;
    if (!known) {
        known = calloc(1, sizeof *known);
        result = known ? soft_space_add_global(global->address, global->size_bytes,
                                               module->context->device)
                       : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) {
            known->address = global->address;
            LIST_INSERT_HEAD(&module->globals, known, entry);
        } else {
            free(known);
        }
    }
    pthread_mutex_unlock(&globals_lock);
    return result;
}

/* The name of a kernel is a bad argument, unlike one that the image does not have. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *size, CUmodule handle, const char *name)
{
    const gvm_soft_global *global;
    const void *symbol;
    soft_module *module;
    CUresult result = find_symbol(handle, "gvm_soft_global_", name, &module, &symbol);

    if (result == CUDA_ERROR_NOT_FOUND &&
        find_symbol(handle, "gvm_soft_kernel_", name, &module, &symbol) == CUDA_SUCCESS) {
        soft_module_unref(module);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS)
        return result;
    global = symbol;
    result = global->abi == GVM_SOFT_ABI ? publish_global(module, global)
                                         : CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (result == CUDA_SUCCESS && ptr)
        *ptr = (CUdeviceptr)(uintptr_t)global->address;
    if (result == CUDA_SUCCESS && size)
        *size = global->size_bytes;
    soft_module_unref(module);
    return result;
}
