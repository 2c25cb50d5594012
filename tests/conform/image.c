/* Finds the kernels: a fatbin for a real GPU, a shared object for the software one. The driver
 * itself says which it takes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/conform/image.h"

const void *conform_image;
char conform_image_path[512];

/* Stays mapped for the life of the process: a driver may keep reading it. */
static const void *map_file(const char *path)
{
    struct stat info;
    void *bytes = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0)
        bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        close(fd);
    return bytes == MAP_FAILED ? NULL : bytes;
}

static void set_image_path(const char *name)
{
    const char *slash = strrchr(options.self, '/');
    if (options.image)
        snprintf(conform_image_path, sizeof conform_image_path, "%s", options.image);
    else
        snprintf(conform_image_path, sizeof conform_image_path, "%.*s/%s",
                 slash ? (int)(slash - options.self) : 1, slash ? options.self : ".", name);
}

void conform_image_load(CUmodule *module)
{
    static const char *const names[] = {"conform-kernels.fatbin", "conform-kernels.so"};
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (conform_image) {
        REQUIRE_OK(cu->cuModuleLoadData(module, conform_image));
        return;
    }
    for (unsigned i = 0; i < (options.image ? 1u : 2u) && result; i++) {
        set_image_path(names[i]);
        conform_image = map_file(conform_image_path);
        if (conform_image)
            result = cu->cuModuleLoadData(module, conform_image);
    }
    if (result)
        conform_image = NULL;
    REQUIRE_OK(result); /* an image of the kernels that this driver takes */
}
