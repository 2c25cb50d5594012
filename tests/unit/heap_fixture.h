/* tests/unit/heap_fixture.h - a device and a heap for each test, calls that must succeed, and
 * streams that can be held. */
#ifndef HEAP_FIXTURE_H
#define HEAP_FIXTURE_H

#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#include <sched.h>
#include <stdatomic.h>

#include <gvmem/gvmem.h>

#include "base/registry.h"
#include "driver/driver.h"
#include "heap/heap.h"
#include "memory/device.h"

#define UNIT GVM_HEAP_UNIT_BYTES
#define CHUNK (2 * MIB)

/* The driver, in which tests replace calls: before there is a device, and so a thread of the library's. */
static gvmi_driver table;
static const gvmi_driver *real;

static gvm_device *device;
static gvm_heap *heap;

static int begin(void **state)
{
    int32_t count;

    gvmi_heap_threadless = true; /* what goes back depends on the calls alone */
    (void)state;
    if (gvm_device_count(&count) != GVM_OK)
        return 1;
    if (real == NULL) {
        real = gvmi_cu;
        table = *real;
        gvmi_driver_install(&table);
    }
    return gvm_device_open(0, &device) == GVM_OK && gvm_heap_create(device, NULL, &heap) == GVM_OK
               ? 0
               : 1;
}

static atomic_bool gate; /* false: streams that hold_stream() holds wait */

static int end(void **state)
{
    (void)state;
    atomic_store(&gate, true); /* a test that has failed may have left it */
    gvm_heap_destroy(heap);
    heap = NULL;
    gvm_device_close(device);
    return gvmi_registry_count(GVMI_KIND_HEAP) == 0 && gvmi_registry_count(GVMI_KIND_BUFFER) == 0 ? 0
                                                                                                  : 1;
}

/* On a GPU others' memory and the driver's own are counted as well, to no byte that a test could know. */
static inline bool on_software_gpu(void)
{
    gvm_driver_info info = {.struct_size = sizeof info};

    return gvm_driver_get_info(&info) == GVM_OK && info.software;
}

#define SKIP_ON_GPU(why) \
    do { \
        if (!on_software_gpu()) { \
            print_message("left out on a GPU: %s\n", why); \
            skip(); \
        } \
    } while (0)

static inline void skip_without_peer(void)
{
    int32_t count = 0;

    if (gvm_device_count(&count) == GVM_OK && count < 2)
        skip();
}

/* The test's heap anew, with options. */
static void remake(const gvm_heap_options *options)
{
    gvm_heap_destroy(heap);
    heap = NULL;
    assert_int_equal(gvm_heap_create(device, options, &heap), GVM_OK);
}

/* In a child process, which the alarm ends where a call waits for ever. */
static inline bool start_child(const gvm_heap_options *options)
{
    void *state;

    end_child_after(20);
    if (begin(&state) != 0)
        return false;
    remake(options);
    return true;
}

static gvm_heap_info info(void)
{
    gvm_heap_info i = {.struct_size = sizeof i};

    assert_int_equal(gvm_heap_get_info(heap, &i), GVM_OK);
    return i;
}

static void *alloc(size_t bytes)
{
    void *ptr = NULL;

    assert_int_equal(gvm_heap_alloc(heap, bytes, &ptr), GVM_OK);
    assert_non_null(ptr);
    return ptr;
}

static inline void *alloc_on(CUstream stream, size_t bytes)
{
    void *ptr = NULL;

    assert_int_equal(gvm_heap_alloc_async(heap, bytes, "stream", stream, &ptr), GVM_OK);
    return ptr;
}

static void release(void *ptr)
{
    assert_int_equal(gvm_heap_free(heap, ptr), GVM_OK);
}

static void check(void)
{
    gvm_status status = gvm_heap_check(heap);
    gvm_error error;

    if (status == GVM_OK)
        return;
    gvm_error_last(&error);
    fail_msg("%s", error.text);
}

static inline void fails_with(gvm_status status, gvm_status wanted, const char *text)
{
    gvm_error error;

    assert_int_equal(status, wanted);
    gvm_error_last(&error);
    assert_int_equal(error.status, wanted);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, error.text);
}

static CUstream make_stream(void)
{
    CUstream stream = NULL;

    assert_int_equal(gvmi_device_enter(device), GVM_OK);
    assert_int_equal(gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    gvmi_device_leave();
    return stream;
}

/* Holds a stream until it is let go. */
static void wait_at_gate(void *arg)
{
    (void)arg;
    while (!atomic_load(&gate))
        sched_yield();
}

static inline void hold_stream(CUstream stream)
{
    atomic_store(&gate, false);
    assert_int_equal(gvmi_cu->cuLaunchHostFunc(stream, wait_at_gate, NULL), CUDA_SUCCESS);
}

static inline void let_go(CUstream stream)
{
    atomic_store(&gate, true);
    assert_int_equal(gvmi_cu->cuStreamSynchronize(stream), CUDA_SUCCESS);
}

#endif
