/* tests/unit/appender_fixture.h - an appender whose kernel is the test.
 *
 * The device's side is C too and the software GPU's memory can be touched: the test claims, writes
 * and publishes on a thread of its own, between begin and finish. A table over the software GPU's
 * makes the driver poor or slow. Each test runs in a child, because a driver is started once a
 * process.
 */
#ifndef APPENDER_FIXTURE_H
#define APPENDER_FIXTURE_H

#include "tests/unit/unit.h"

#include <gvmem/gvmem.h>

#include "appender/appender.h"
#include "base/registry.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tests/unit/service_threads.h"

#define CHUNK (2 * MIB)
#define ROW 64u

static gvmi_driver table; /* the driver, with some of its calls replaced */
static const gvmi_driver *real;
static gvm_device *device;
static gvm_appender *appender;
static gvm_append append;
static gvm_appender_result result;

/* A machine of the process's own: on a common one other tests would take memory. */
static void choose_machine(const char *memory)
{
    fixture_machine("devices=1,memory=%s,sms=2", memory);
}

/* A device with an appender of chunks of 2 MiB. */
static bool start_on(const char *memory, uint64_t row_bytes, uint64_t reserve_bytes,
                     const gvm_appender_options *given)
{
    gvm_appender_options options = {.struct_size = sizeof options};
    int32_t count;

    if (given != NULL)
        options = *given;
    options.struct_size = sizeof options;
    if (options.chunk_bytes == 0)
        options.chunk_bytes = CHUNK;
    append.struct_size = sizeof append;
    result.struct_size = sizeof result;
    choose_machine(memory);
    setenv("GVMEM_CHECK", "1", 1);
    if (gvm_device_count(&count) != GVM_OK)
        return false;
    real = gvmi_cu;
    table = *real;
    gvmi_driver_install(&table);
    return gvm_device_open(0, &device) == GVM_OK &&
           gvm_appender_create(device, row_bytes, reserve_bytes, &options, &appender) == GVM_OK;
}

static inline bool start(uint64_t row_bytes, uint64_t reserve_bytes, const gvm_appender_options *given)
{
    return start_on("256MiB", row_bytes, reserve_bytes, given);
}

static bool stop(void)
{
    bool good = gvmi_appender_check(appender);

    gvm_appender_destroy(appender);
    gvm_device_close(device);
    gvmi_driver_install(real);
    return good && gvmi_registry_count(GVMI_KIND_APPENDER) == 0 &&
           gvmi_registry_count(GVMI_KIND_BUFFER) == 0 && gvmi_check_violations() == 0;
}

static inline gvm_status begin(void)
{
    return gvm_appender_begin(appender, &append);
}

static inline gvm_status finish(void)
{
    return gvm_appender_finish(appender, NULL, &result);
}

/* Claims, writes every byte and publishes. */
static inline uint32_t write_place(uint64_t rows, uint64_t bytes, uint32_t align, gvm_append_place *place)
{
    const uint32_t answer = gvm_append_claim(&append, rows, bytes, align, place);

    if (answer == GVM_APPEND_OK) {
        memset(place->rows, 0x11, rows * append.row_bytes);
        memset(place->bytes, 0x22, bytes);
        gvm_append_publish(&append, place->amount);
    }
    return answer;
}

static inline gvm_appender_info info(void)
{
    gvm_appender_info i = {.struct_size = sizeof i};

    if (gvm_appender_get_info(appender, &i) != GVM_OK)
        abort();
    return i;
}

#endif
