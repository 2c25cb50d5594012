/* Loads a CUDA driver into the table that the cases call through. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/conform/conform.h"

/* What an optional call answers where the driver does not have it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define ABSENT(name, symbol, since, need, params, args) \
    static CUresult absent_##name params \
    { \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
GVMI_CUDA_CALLS(ABSENT)
#undef ABSENT
#pragma GCC diagnostic pop

enum need { REQUIRED, OPTIONAL };

static struct conform_driver driver;
const struct conform_driver *cu = &driver;

const char *conform_driver_load(const char *path)
{
    static char text[512];
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *address;
    if (!library) {
        snprintf(text, sizeof text, "%s", dlerror());
        return text;
    }
#define FIND(name, symbol, since, need, params, args) \
    address = dlsym(library, #symbol); \
    if (address) { \
        memcpy(&driver.name, &address, sizeof address); \
    } else if ((need) == OPTIONAL) { \
        driver.name = absent_##name; \
    } else { \
        snprintf(text, sizeof text, "%s: no " #symbol, path); \
        return text; \
    }
    GVMI_CUDA_CALLS(FIND)
#undef FIND
    return NULL;
}

const char *conform_result_name(int result)
{
    const char *text = NULL;
#define NAME(name, value, description) \
    if (result == (value)) \
        return #name;
    GVMI_CUDA_RESULTS(NAME)
#undef NAME
    if (driver.cuGetErrorName && driver.cuGetErrorName((CUresult)result, &text) == 0 && text)
        return text;
    return "unknown result";
}
