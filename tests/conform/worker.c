/* A worker: runs the cases that the runner names, one at a time, and says how each went. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/image.h"
#include "tests/conform/wire.h"

struct conform_machine machine;

static bool has_runner;
static const struct conform_case *running;

void conform_wire_send(char kind, const char *text)
{
    struct conform_message message = {.kind = kind};
    snprintf(message.text, sizeof message.text, "%s", text);
    if (has_runner)
        (void)child_answer(&message, sizeof message, -1); /* a runner that is gone ends this process, too */
}

size_t free_bytes(void)
{
    size_t free_now = 0, total;
    REQUIRE_OK(cu->cuMemGetInfo(&free_now, &total));
    return free_now;
}

bool wait_free_bytes(size_t at_least)
{
    uint64_t end = now_ms() + 5000;
    while (free_bytes() < at_least) {
        if (now_ms() > end)
            return false;
        pause_ms(5);
    }
    return true;
}

static int attribute(CUdevice_attribute which)
{
    int value = 0;
    REQUIRE_OK(cu->cuDeviceGetAttribute(&value, which, machine.device));
    return value;
}

/* What needs no context. */
static void machine_read(void)
{
    CUmemAllocationProp prop;
    REQUIRE_OK(cu->cuDeviceGetCount(&machine.device_count));
    REQUIRE_OK(cu->cuDeviceGet(&machine.device, 0));
    REQUIRE_OK(cu->cuDeviceTotalMem(&machine.total_bytes, machine.device));
    machine.warp_threads = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    machine.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    machine.block_threads = (unsigned)attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    if (machine.block_threads > 256)
        machine.block_threads = 256;
    if (attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
        attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        prop = device_prop();
        REQUIRE_OK(cu->cuMemGetAllocationGranularity(&machine.granule, &prop,
                                                     CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    }
    if (attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        machine.numa = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
        if (machine.numa < 0)
            machine.numa = 0;
        prop = host_prop();
        REQUIRE_OK(cu->cuMemGetAllocationGranularity(&machine.host_granule, &prop,
                                                     CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    }
}

static void tell_device(void)
{
    char text[256] = "";
    int version = 0;
    if (!has_runner)
        return;
    REQUIRE_OK(cu->cuDeviceGetName(text, sizeof text, machine.device));
    conform_wire_send(WIRE_DEVICE, text);
    REQUIRE_OK(cu->cuDriverGetVersion(&version));
    snprintf(text, sizeof text, "%d", version);
    conform_wire_send(WIRE_VERSION, text);
}

void conform_setup(unsigned flags)
{
    static enum { NOTHING, STARTED, CONTEXT } level;
    if (flags & RAW)
        return;
    if (level < STARTED) {
        REQUIRE_OK(cu->cuInit(0));
        machine_read();
        tell_device();
        level = STARTED;
    }
    if (flags & BARE)
        return;
    if (level < CONTEXT)
        conform_context_setup();
    level = CONTEXT;
    conform_context_enter();
}

static void prepare(void)
{
    conform_setup(running->flags);
    if ((running->flags & VMM) && !machine.granule)
        skip("no virtual memory management with fds");
    if ((running->flags & NUMA) == NUMA && !machine.host_granule)
        skip("no HOST_NUMA memory");
    if ((running->flags & PAIR) && machine.device_count < 2)
        skip("one device only");
}

/* What must be the same after an ordinary case as before it. */
struct held {
    size_t free_bytes;
    int fds;
};
static struct held held_now;

static void measure(void)
{
    use_device(0);
    REQUIRE_OK(cu->cuCtxSynchronize());
    held_now = (struct held){free_bytes(), count_fds()};
}

/* Peers that ended give their memory back a moment later. */
static void measure_again(void)
{
    struct held before = held_now;
    use_device(0);
    REQUIRE_OK(cu->cuCtxSynchronize());
    for (int i = 0; i < 200 && free_bytes() < before.free_bytes; i++)
        pause_ms(5);
    measure();
}

static void leaked(size_t bytes, int fds)
{
    char text[CONFORM_TEXT_BYTES];
    snprintf(text, sizeof text,
             "leak: %zu bytes of device memory and %d fds missing after each of %d runs", bytes,
             fds, CONFORM_LEAK_RUNS);
    conform_wire_send(WIRE_FAILURE, text);
}

static enum conform_outcome run_ordinary(void)
{
    size_t bytes = 0;
    int fds = 0;
    for (int run = 0; run < CONFORM_LEAK_RUNS; run++) {
        struct held before;
        enum conform_outcome outcome = conform_try(run ? prepare : measure);
        before = held_now;
        if (outcome == OUTCOME_PASSED)
            outcome = conform_try(running->run);
        if (outcome != OUTCOME_PASSED)
            return outcome;
        if (conform_try(measure_again) != OUTCOME_PASSED)
            return OUTCOME_FAILED;
        bytes = held_now.free_bytes < before.free_bytes ? before.free_bytes - held_now.free_bytes : 0;
        fds = held_now.fds - before.fds;
        if (bytes == 0 && fds <= 0)
            return OUTCOME_PASSED;
    }
    leaked(bytes, fds);
    return OUTCOME_FAILED;
}

static enum conform_outcome run_case(void)
{
    enum conform_outcome outcome = conform_try(prepare);
    if (outcome != OUTCOME_PASSED)
        return outcome;
    return running->flags & (ALONE | BARE | RAW) ? conform_try(running->run) : run_ordinary();
}

int conform_worker(void)
{
    uint32_t number;
    const char *wrong;
    signal(SIGPIPE, SIG_IGN);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* lazy loading may wait for kernels that wait for us */
    has_runner = true;
    wrong = conform_driver_load(options.driver);
    while (child_next(&number, sizeof number, NULL)) {
        enum conform_outcome outcome = OUTCOME_FAILED;
        if (number >= conform_case_count)
            return 2;
        running = &conform_cases[number];
        if (wrong)
            conform_wire_send(WIRE_FAILURE, wrong);
        else
            outcome = run_case();
        conform_wire_send(WIRE_DONE, outcome == OUTCOME_FAILED ? "leave" : "");
    }
    return 0;
}
