/* The wait for all work on a device, by calls of the driver that the library has not; of those that know nothing of Python, too. */
#include "wait.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

gvm_status driver_find_call(const char *name, void *function)
{
    void (*call)(void);
    gvm_status status = gvm_driver_get_call(name, &call);

    if (status == GVM_OK)
        memcpy(function, &call, sizeof call);
    return status;
}

/* To free memory waits for all work, and leaves captures alone, which refuse a wait for the context and are ended by it. False: there
 * is no memory to free. */
static bool free_some_memory(gvm_device *device)
{
    int (*allocate)(uint64_t * at, size_t bytes), (*release)(uint64_t at);
    bool done;
    uint64_t at;

    if (driver_find_call("cuMemAlloc_v2", &allocate) != GVM_OK ||
        driver_find_call("cuMemFree_v2", &release) != GVM_OK ||
        gvm_device_push_context(device) != GVM_OK)
        return false;
    done = allocate(&at, 1) == 0 && release(at) == 0;
    gvm_device_pop_context();
    return done;
}

gvm_status device_wait(gvm_device *device)
{
    return free_some_memory(device) ? GVM_OK : gvm_device_synchronize(device);
}
