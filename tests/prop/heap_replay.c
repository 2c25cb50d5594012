/* What a real program allocated and freed, replayed on a heap.
 *
 *     heap_replay TRACE [MIB]
 *
 * Goal: over a trace of requests (bench/heap_trace.h) no two live blocks share a byte, what the heap
 * says it was asked for is what was asked for, gvm_heap_check() holds all the way, nothing is left at
 * the end, and memory stays near the requests: at the peak at most 1.1 times as much, by default and without a
 * what is kept; on average at most 2.4 and 1.1 times.
 *
 * Method: as allocators of frameworks do, every request is in the order of its stream. Where memory lies, and when it goes back,
 * depends on the trace alone, as calls give back themselves, so the figures are the same in every run.
 * The trace has to be one that rounding to powers of two would cost dearly: else
 * it shows nothing. With a second argument it is one that costs the program's own allocator dearly, which held so many MiB at
 * the peak; that is the limit in place of 1.1 times the requests.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gvmem/gvmem.h>

#include "base/size.h"
#include "bench/heap_trace.h"
#include "driver/driver.h"
#include "heap/heap.h"
#include "memory/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/shadow.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"

#define PEAK_RATIO_MAX 1.1
#define MEAN_RATIO_MAX 2.4
#define MEAN_RATIO_MAX_BARE 1.1 /* with none kept */
#define ROUNDED_RATIO_LEAST 1.3
#define OWN_RATIO_LEAST 1.2 /* of the program's own allocator */
#define CHECK_EVERY 500     /* events */
#define EVENTS_LEAST 100000
#define SMALL_BYTES (14 * KIB) /* such blocks share units */
#define RUN_LIMIT_S 500

static gvm_device *device;
static double peak_ratio_max = PEAK_RATIO_MAX;
static CUstream streams[HEAP_TRACE_STREAMS_MAX];
static heap_trace trace;
static void **blocks; /* by number */
static shadow used;
static char problem[400];

static bool fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    return false;
}

static bool fail_call(const char *what, size_t event)
{
    gvm_error error;

    gvm_error_last(&error);
    return fail("%s at event %zu: %s", what, event, error.text);
}

static bool mark(const void *ptr, uint64_t bytes, bool taken)
{
    const uint64_t address = (uint64_t)(uintptr_t)ptr;
    const bool shares = bytes <= SMALL_BYTES;

    return (taken ? shadow_claim(&used, address, bytes, shares, 1)
                  : shadow_give(&used, address, bytes, shares)) ||
           fail("bytes of the block of %llu at %p are in another block", (unsigned long long)bytes,
                ptr);
}

static bool step(gvm_heap *heap, size_t index)
{
    const heap_event *e = &trace.events[index];
    void **block = &blocks[e->block];

    if (e->is_free) {
        if (!mark(*block, e->bytes, false))
            return false;
        return gvm_heap_free_async(heap, *block, streams[e->stream]) == GVM_OK ||
               fail_call("free", index);
    }
    if (gvm_heap_alloc_async(heap, e->bytes, "replay", streams[e->stream], block) != GVM_OK)
        return fail_call("alloc", index);
    return mark(*block, e->bytes, true);
}

/* Chunks that get memory, which is what the driver charges for. */
static const gvmi_driver *real;
static uint64_t mapped;

static CUresult count_map(CUdeviceptr address, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    mapped++;
    return real->cuMemMap(address, bytes, offset, handle, flags);
}

typedef struct usage {
    uint64_t requested, requested_peak, committed_peak;
    double requested_sum, committed_sum;
} usage;

static bool look(gvm_heap *heap, size_t index, usage *u)
{
    gvm_heap_info info = {.struct_size = sizeof info};
    const heap_event *e = &trace.events[index];

    u->requested += e->is_free ? -e->bytes : e->bytes;
    if (gvm_heap_get_info(heap, &info) != GVM_OK)
        return fail_call("get_info", index);
    if (info.requested_bytes != u->requested)
        return fail("event %zu: %llu bytes are requested, the heap says %llu", index,
                    (unsigned long long)u->requested, (unsigned long long)info.requested_bytes);
    if (u->requested > u->requested_peak)
        u->requested_peak = u->requested;
    u->committed_peak = info.committed_peak_bytes;
    u->requested_sum += (double)u->requested;
    u->committed_sum += (double)info.committed_bytes;
    if (index % CHECK_EVERY == 0 && gvm_heap_check(heap) != GVM_OK)
        return fail_call("check", index);
    return true;
}

/* What is live at the end of the trace. */
static bool free_rest(gvm_heap *heap)
{
    gvm_heap_info info = {.struct_size = sizeof info};
    size_t count;

    if (gvm_heap_list(heap, 0, sizeof(gvm_heap_block), NULL, &count) != GVM_OK)
        return fail_call("list", trace.count);
    gvm_heap_block *left = calloc(count + 1, sizeof *left);

    if (left == NULL || gvm_heap_list(heap, count, sizeof(gvm_heap_block), left, &count) != GVM_OK) {
        free(left);
        return fail_call("list", trace.count);
    }
    for (size_t i = 0; i < count; i++)
        if (!mark(left[i].address, left[i].size_bytes, false) ||
            gvm_heap_free_async(heap, left[i].address, streams[0]) != GVM_OK) {
            free(left);
            return problem[0] != '\0' ? false : fail_call("free", trace.count);
        }
    free(left);
    if (gvm_heap_trim(heap, 0) != GVM_OK || gvm_heap_check(heap) != GVM_OK ||
        gvm_heap_get_info(heap, &info) != GVM_OK)
        return fail_call("trim", trace.count);
    return (info.blocks == 0 && info.requested_bytes == 0 && info.committed_bytes == 0) ||
           fail("%llu blocks of %llu bytes and %llu bytes of memory are left",
                (unsigned long long)info.blocks, (unsigned long long)info.requested_bytes,
                (unsigned long long)info.committed_bytes);
}

static bool replay(uint64_t keep_bytes, double mean_most)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = keep_bytes};
    gvm_heap *heap;
    double peak, mean;
    usage u = {0};
    bool good = true;

    problem[0] = '\0';
    mapped = 0;
    if (gvm_heap_create(device, &options, &heap) != GVM_OK)
        return fail_call("create", 0);
    for (size_t i = 0; i < trace.count && good; i++)
        good = step(heap, i) && look(heap, i, &u);
    good = good && free_rest(heap);
    gvm_heap_destroy(heap);
    if (!good)
        return false;
    peak = (double)u.committed_peak / (double)u.requested_peak;
    mean = u.committed_sum / u.requested_sum;
    printf("# committed / requested: %.3f at the peak, %.3f on average; %.4f chunks mapped an event\n",
           peak, mean, (double)mapped / (double)trace.count);
    if (peak > peak_ratio_max || mean > mean_most)
        return fail(
            "more than %.2f times at the peak, or %.2f on average, of what is requested is committed",
            peak_ratio_max, mean_most);
    return true;
}

/* A trace on which an allocator could look good without being so is refused. */
static bool trace_is_hard(void)
{
    uint64_t rounded = 0, peak = 0;

    for (size_t i = 0; i < trace.count; i++) {
        const heap_event *e = &trace.events[i];
        const uint64_t bytes = gvmi_pow2_up(e->bytes < 512 ? 512 : e->bytes);

        rounded += e->is_free ? -bytes : bytes;
        if (rounded > peak)
            peak = rounded;
    }
    printf("# %zu events, %u streams, %llu MiB at the peak; rounded to powers of two %.2f times that\n",
           trace.count, trace.streams, (unsigned long long)(trace.peak_bytes / MIB),
           (double)peak / (double)trace.peak_bytes);
    return (trace.count >= EVENTS_LEAST &&
            ((double)peak >= ROUNDED_RATIO_LEAST * (double)trace.peak_bytes ||
             peak_ratio_max >= OWN_RATIO_LEAST)) ||
           fail("the trace has too few events, or sizes that are powers of two already");
}

static bool start(const char *path)
{
    static gvmi_driver table;

    if (!heap_trace_read(path, &trace))
        return false;
    blocks = calloc(trace.blocks_max, sizeof *blocks);
    if (blocks == NULL || !shadow_make(&used) || gvm_device_open(0, &device) != GVM_OK ||
        gvmi_device_enter(device) != GVM_OK)
        return false;
    for (unsigned i = 0; i < trace.streams; i++)
        if (gvmi_cu->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
            return false;
    gvmi_heap_threadless = true;
    real = gvmi_cu;
    table = *real;
    table.cuMemMap = count_map;
    gvmi_driver_install(&table);
    return true;
}

/* Nothing may be left at the driver, and none of its rules broken. */
static bool stop(void)
{
    gvmi_check_holdings held;

    for (unsigned i = 0; i < trace.streams; i++)
        gvmi_cu->cuStreamDestroy(streams[i]);
    gvmi_device_leave();
    gvm_device_close(device);
    held = gvmi_check_held();
    problem[0] = '\0';
    if (memcmp(&held, &(gvmi_check_holdings){0}, sizeof held) != 0)
        return fail("left at the driver: %llu reservations, %llu handles, %llu mappings, %llu events",
                    (unsigned long long)held.reservations, (unsigned long long)held.handles,
                    (unsigned long long)held.mappings, (unsigned long long)held.events);
    return gvmi_check_violations() == 0 || fail("%llu violations of the driver's contract",
                                                (unsigned long long)gvmi_check_violations());
}

static void tell(bool good, const char *what)
{
    if (!tap_result(good, "%s", what))
        printf("# %s\n", problem);
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: heap_replay TRACE [MIB]\n");
        return 2;
    }
    fixture_machine_default("devices=1,memory=16GiB,sms=2");
    setenv("GVMEM_CHECK", "1", 1);
    alarm(RUN_LIMIT_S);
    tap_plan(4);
    if (!start(argv[1]))
        tap_bail_out("no trace, or no device");
    if (argc == 3)
        peak_ratio_max = strtod(argv[2], NULL) * MIB / (double)trace.peak_bytes;
    tell(trace_is_hard(),
         "the trace is one that rounding, or the program's own allocator, costs dearly");
    tell(replay(0, MEAN_RATIO_MAX), "as it is by default");
    tell(replay(GVM_BYTES_NONE, MEAN_RATIO_MAX_BARE), "with none kept");
    tell(stop(), "nothing is left at the driver");
    heap_trace_free(&trace);
    free(blocks);
    return tap_finish();
}
