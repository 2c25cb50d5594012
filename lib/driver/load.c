/* Finding, loading and starting a driver.
 *
 * Order: what GVMEM_DRIVER names; with "auto" libcuda.so.1 if it starts and has a device, then the
 * software GPU. A library stays loaded for life: drivers keep threads, so unloading one is never
 * safe. A failure leaves everything as it was and the next call tries again, with the handle of a
 * library already loaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/options.h"
#include "base/struct.h"
#include "base/text.h"
#include "driver/driver.h"

#define CUDA_LIBRARY "libcuda.so.1"
#define SOFT_PROBLEM "gvm_softgpu_problem" /* exported by the software GPU alone */
#define SOFT_LIBRARY "libgvmem-softgpu.so"

static gvmi_mutex lock = GVMI_MUTEX_INIT(GVMI_RANK_START);
static gvmi_driver loaded;
static gvm_driver_info about;

/* What an optional call that the driver lacks returns. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define MISSING(name, symbol, since, need, params, args) \
    static CUresult missing_##name params \
    { \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
GVMI_CUDA_CALLS(MISSING)
#undef MISSING
#pragma GCC diagnostic pop

typedef struct candidate {
    const char *path;
    void *handle;
    gvm_status status; /* GVM_E_NODRIVER, or GVM_E_SETTING if that is what keeps it from starting */
    char problem[160]; /* why it cannot be used; "" while it can */
} candidate;

/* Fills table from a library. False, with the problem described, if a required entry point is
 * missing.
 */
static bool bind_calls(candidate *library, gvmi_driver *table)
{
    enum { OPTIONAL, REQUIRED };

#define BIND(name, symbol, since, need, params, args) \
    table->name = (CUresult(*) params)dlsym(library->handle, #symbol); \
    if (table->name == NULL && need == REQUIRED) { \
        snprintf(library->problem, sizeof library->problem, \
                 "%s lacks %s: a driver of version %d.%d or later is needed", library->path, \
                 #symbol, since / 1000, since % 1000 / 10); \
        return false; \
    } \
    if (table->name == NULL) \
        table->name = missing_##name;
    GVMI_CUDA_CALLS(BIND)
#undef BIND
    return true;
}

/* Opens a library and fills the table. */
static bool open_library(candidate *library, gvmi_driver *table)
{
    library->handle = dlopen(library->path, RTLD_NOW | RTLD_LOCAL);
    if (library->handle == NULL) {
        const char *problem = dlerror();

        gvmi_text_print(library->problem, sizeof library->problem, "%s",
                        problem != NULL ? problem : "cannot be loaded");
        return false;
    }
    return bind_calls(library, table);
}

/* What the software GPU has against GVMEM_SOFTGPU; NULL for any other driver. */
static const char *soft_config_error(const candidate *library)
{
    const char *(*problem)(void) = (const char *(*)(void))dlsym(library->handle, SOFT_PROBLEM);

    return problem != NULL ? problem() : NULL;
}

/* Starts the driver and requires at least one device. */
static bool start_driver(candidate *library, const gvmi_driver *table)
{
    int count = 0;
    CUresult result = table->cuInit(0);

    if (result == CUDA_SUCCESS)
        result = table->cuDeviceGetCount(&count);
    if (result == CUDA_SUCCESS && count > 0)
        return true;
    if (soft_config_error(library) != NULL) {
        library->status = GVM_E_SETTING;
        gvmi_text_print(library->problem, sizeof library->problem, "%s", soft_config_error(library));
    } else if (result == CUDA_SUCCESS) {
        snprintf(library->problem, sizeof library->problem, "%s has no device", library->path);
    } else {
        snprintf(library->problem, sizeof library->problem, "%s does not start: %s", library->path,
                 gvmi_driver_result_name(table, result));
    }
    return false;
}

static bool try_library(candidate *library, gvmi_driver *table)
{
    library->status = GVM_E_NODRIVER;
    return open_library(library, table) && start_driver(library, table);
}

/* The software GPU lies beside libgvmem, in a build tree one folder further, or where the loader
 * looks. */
static bool try_soft(candidate *library, gvmi_driver *table, char path[PATH_MAX])
{
    static const char *const places[] = {"/" SOFT_LIBRARY, "/softgpu/" SOFT_LIBRARY,
                                         "/../softgpu/" SOFT_LIBRARY};
    Dl_info self;

    const char *slash = NULL;

    /* A name without a slash is a program's that was found by PATH. Nothing is loaded from wherever
     * it happens to be started. */
    if (dladdr((void *)&gvmi_cu, &self) != 0 && self.dli_fname != NULL)
        slash = strrchr(self.dli_fname, '/');
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof places[0]; i++) {
        const int folder_len = (int)(slash - self.dli_fname);

        if (snprintf(path, PATH_MAX, "%.*s%s", folder_len, self.dli_fname, places[i]) >= PATH_MAX)
            continue;
        library->path = path;
        if (access(path, R_OK) == 0)
            return try_library(library, table);
    }
    library->path = SOFT_LIBRARY;
    return try_library(library, table);
}

/* Chooses by GVMEM_DRIVER; says in about->reason why. */
static gvm_status choose_driver(gvmi_driver *table, candidate *library, char path[PATH_MAX])
{
    const char *wanted = gvmi_option_text(GVMI_OPTION_GVMEM_DRIVER);
    candidate cuda = {.path = CUDA_LIBRARY};
    char no_gpu[100], no_soft[100]; /* halves of a sentence */

    if (strcmp(wanted, "cuda") == 0 || strchr(wanted, '/') != NULL) {
        library->path = strcmp(wanted, "cuda") == 0 ? CUDA_LIBRARY : wanted;
        gvmi_text_print(about.reason, sizeof about.reason, "GVMEM_DRIVER=%s", GVMI_TEXT_NAME(wanted));
        if (try_library(library, table))
            return GVM_OK;
        return gvm_error_set(library->status, "GVMEM_DRIVER=%s cannot be used: %s",
                             GVMI_TEXT_NAME(wanted), library->problem);
    }
    if (strcmp(wanted, "soft") == 0) {
        snprintf(about.reason, sizeof about.reason, "GVMEM_DRIVER=soft");
        if (try_soft(library, table, path))
            return GVM_OK;
        return gvm_error_set(library->status, "the software GPU cannot be used: %s", library->problem);
    }
    if (strcmp(wanted, "auto") != 0 && wanted[0] != '\0')
        return gvm_error_set(
            GVM_E_SETTING,
            "GVMEM_DRIVER must be auto, cuda, soft or a path with a slash in it, not \"%s\"",
            GVMI_TEXT_NAME(wanted));
    if (try_library(&cuda, table)) {
        *library = cuda;
        snprintf(about.reason, sizeof about.reason, "a GPU was found");
        return GVM_OK;
    }
    gvmi_text_print(about.reason, sizeof about.reason, "no GPU: %s", cuda.problem);
    if (try_soft(library, table, path))
        return GVM_OK;
    gvmi_text_print(no_gpu, sizeof no_gpu, "%s", cuda.problem);
    gvmi_text_print(no_soft, sizeof no_soft, "%s", library->problem);
    return gvm_error_set(library->status, "no GPU (%s) and no software GPU (%s)", no_gpu, no_soft);
}

/* Stacks the decorators that the settings ask for: check nearest to the driver, then trace, then
 * fault, so that a failed call is not traced as if the driver had seen it. */
static gvm_status stack_decorators(const gvmi_driver *base, const gvmi_driver **top)
{
    const char *trace = gvmi_option_text(GVMI_OPTION_GVMEM_TRACE);
    const char *fault = gvmi_option_text(GVMI_OPTION_GVMEM_FAULT);
    bool check;
    gvm_status status = gvmi_option_bool(GVMI_OPTION_GVMEM_CHECK, &check);

    if (status != GVM_OK)
        return status;
    *top = base;
    if (check)
        *top = gvmi_check_wrap(*top);
    if (*top != NULL && trace[0] != '\0')
        *top = gvmi_trace_wrap(*top, trace);
    if (*top != NULL && fault[0] != '\0')
        *top = gvmi_fault_wrap(*top, fault);
    if (*top == NULL) {
        gvm_error error = gvmi_error_save();

        return error.status;
    }
    return GVM_OK;
}

static gvm_status start_driver_locked(void)
{
    candidate library = {0};
    const gvmi_driver *top;
    char path[PATH_MAX];
    gvm_status status = choose_driver(&loaded, &library, path);

    if (status == GVM_OK)
        status = stack_decorators(&loaded, &top);
    if (status != GVM_OK)
        return status;
    snprintf(about.path, sizeof about.path, "%s", library.path);
    about.software = dlsym(library.handle, SOFT_PROBLEM) != NULL;
    if (loaded.cuDriverGetVersion(&about.version) != CUDA_SUCCESS)
        about.version = 0;
    __atomic_store_n(&gvmi_cu, top, __ATOMIC_RELEASE);
    return GVM_OK;
}

gvm_status gvmi_driver_start(void)
{
    gvm_status status = GVM_OK;

    if (__atomic_load_n(&gvmi_cu, __ATOMIC_ACQUIRE) != NULL)
        return GVM_OK;
    gvmi_lock(&lock);
    if (gvmi_cu == NULL)
        status = start_driver_locked();
    gvmi_unlock(&lock);
    return status;
}

gvm_status gvm_driver_get_info(gvm_driver_info *info)
{
    GVMI_UNCANCELLED;
    gvm_status status = gvmi_driver_start();

    if (status != GVM_OK)
        return status;
    if (!gvmi_struct_out(info, &about, sizeof about, sizeof about))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}

/* The loaded library is never closed, so its handle is found again by its path. */
gvm_status gvm_driver_get_call(const char *name, void (**call)(void))
{
    GVMI_UNCANCELLED;
    void (*found)(void) = NULL;
    void *library;
    gvm_status status;

    if (name == NULL || call == NULL)
        return gvm_error_set(GVM_E_INVALID, "name or call is NULL");
    status = gvmi_driver_start();
    if (status != GVM_OK)
        return status;
#define FIND(row, symbol, since, need, params, args) \
    if (strcmp(name, #symbol) == 0) \
        found = (void (*)(void))gvmi_cu->row;
    GVMI_CUDA_CALLS(FIND)
#undef FIND
    library = dlopen(about.path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library != NULL) {
        if (dlsym(library, name) == NULL)
            found = NULL; /* the table has a substitute for it */
        else if (found == NULL)
            found = (void (*)(void))dlsym(library, name);
        dlclose(library);
    }
    if (found == NULL)
        return gvm_error_set(GVM_E_NOTSUP, "the driver %s has no call %s", about.path, name);
    *call = found;
    return GVM_OK;
}
