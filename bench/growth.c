/* Growing an array by doubling: gvm_vector, the driver's own calls for the same chunks, and
 * cuMemAlloc with copying.
 *
 * The driver's loop is the least that puts the same chunks behind one address: create and map each
 * new chunk, then one set-access over all that a step adds. Each run starts from nothing: the
 * library's cache of chunks is emptied, nothing is left mapped, and the driver has had time for
 * what it does with freed memory behind the callers' backs.
 *
 * Only the growing is timed. After each step the part that is new is filled with numbers, so that
 * no way copies, or is spared, memory that was never written.
 */
#include <stdlib.h>
#include <time.h>

#include "base/address.h"
#include "base/size.h"
#include "bench/bench.h"

#define FIRST_BYTES (2 * GVMI_MIB)

typedef struct growth {
    uint64_t max_bytes, chunk_bytes;
} growth;

static bool fill_new(bench *b, uint64_t address, uint64_t from, uint64_t to)
{
    if (gvm_kernel_fill_random_f64(b->device, gvmi_pointer(address + from), (to - from) / 8,
                                   from / 8, 1, NULL) == GVM_OK &&
        gvm_device_synchronize(b->device) == GVM_OK)
        return true;
    bench_failed(b, "filling what has grown");
    return false;
}

/* The size before the step that reaches bytes. */
static uint64_t size_before(uint64_t bytes)
{
    return bytes == FIRST_BYTES ? 0 : bytes / 2;
}

static bool grow_vector(bench *b, const growth *g, double *us)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = g->chunk_bytes};
    double start_us = tool_now_us();
    gvm_vector *vector = NULL;
    gvm_status status = gvm_vector_create(b->device, 8, g->max_bytes / 8, &options, &vector);

    bool filled = true;

    *us = tool_now_us() - start_us;
    for (uint64_t bytes = FIRST_BYTES; bytes <= g->max_bytes && status == GVM_OK && filled; bytes *= 2) {
        start_us = tool_now_us();
        status = gvm_vector_resize(vector, bytes / 8);
        *us += tool_now_us() - start_us;
        filled = status == GVM_OK &&
                 fill_new(b, gvmi_address(gvm_vector_address(vector)), size_before(bytes), bytes);
    }
    if (status != GVM_OK)
        bench_failed(b, "growing a vector");
    gvm_vector_destroy(vector);
    bench_trim(b);
    return status == GVM_OK && filled;
}

/* What the driver's loop holds. */
typedef struct bare {
    CUdeviceptr address;
    uint64_t reserve_bytes, chunk_bytes, mapped;
    CUmemGenericAllocationHandle *handles;
} bare;

static CUresult bare_grow(bench *b, bare *a, uint64_t bytes)
{
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, b->ordinal};
    const CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = b->info.share_fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                 : CU_MEM_HANDLE_TYPE_NONE,
        .location = here,
    };
    uint64_t first = a->mapped, chunk = a->chunk_bytes;
    CUresult result = CUDA_SUCCESS;

    for (; a->mapped * chunk < bytes && result == CUDA_SUCCESS; a->mapped++) {
        result = gvmi_cu->cuMemCreate(&a->handles[a->mapped], chunk, &prop, 0);
        if (result != CUDA_SUCCESS)
            break;
        result = gvmi_cu->cuMemMap(a->address + a->mapped * chunk, chunk, 0, a->handles[a->mapped], 0);
        if (result != CUDA_SUCCESS) {
            gvmi_cu->cuMemRelease(a->handles[a->mapped]);
            break;
        }
    }
    if (result == CUDA_SUCCESS && a->mapped > first)
        result = gvmi_cu->cuMemSetAccess(a->address + first * chunk, (a->mapped - first) * chunk,
                                         &access, 1);
    return result;
}

static void bare_end(bare *a)
{
    if (a->mapped > 0)
        gvmi_cu->cuMemUnmap(a->address, a->mapped * a->chunk_bytes);
    for (uint64_t i = 0; i < a->mapped; i++)
        gvmi_cu->cuMemRelease(a->handles[i]);
    if (a->address != 0)
        gvmi_cu->cuMemAddressFree(a->address, a->reserve_bytes);
    free(a->handles);
}

static bool grow_bare(bench *b, const growth *g, double *us)
{
    bare a = {.chunk_bytes = g->chunk_bytes,
              .reserve_bytes = gvmi_round_up(g->max_bytes, g->chunk_bytes)};
    double start_us = tool_now_us();
    bool filled = true;
    CUresult result;

    a.handles = calloc(a.reserve_bytes / a.chunk_bytes, sizeof *a.handles);
    if (a.handles == NULL) {
        gvmi_driver_fail(CUDA_ERROR_OUT_OF_MEMORY, "calloc", "out of host memory");
        bench_failed(b, "growing by the driver's calls");
        return false;
    }
    result = gvmi_cu->cuMemAddressReserve(&a.address, a.reserve_bytes, 0, 0, 0);
    *us = tool_now_us() - start_us;
    for (uint64_t bytes = FIRST_BYTES; bytes <= g->max_bytes && result == CUDA_SUCCESS && filled;
         bytes *= 2) {
        start_us = tool_now_us();
        result = bare_grow(b, &a, bytes);
        *us += tool_now_us() - start_us;
        filled = result == CUDA_SUCCESS && fill_new(b, a.address, size_before(bytes), bytes);
    }
    if (result != CUDA_SUCCESS)
        bench_failed_driver(b, result, "growing by the driver's calls");
    bare_end(&a);
    return result == CUDA_SUCCESS && filled;
}

static bool grow_copying(bench *b, const growth *g, double *us)
{
    CUdeviceptr old = 0, next = 0;
    CUresult result = CUDA_SUCCESS;
    bool filled = true;

    *us = 0;
    for (uint64_t bytes = FIRST_BYTES; bytes <= g->max_bytes && result == CUDA_SUCCESS && filled;
         bytes *= 2) {
        double start_us = tool_now_us();

        result = gvmi_cu->cuMemAlloc(&next, bytes);
        if (result == CUDA_SUCCESS && old != 0) {
            result = gvmi_cu->cuMemcpyDtoD(next, old, bytes / 2);
            gvmi_cu->cuMemFree(old); /* waits for the copy */
        }
        *us += tool_now_us() - start_us;
        old = next;
        filled = result == CUDA_SUCCESS && fill_new(b, old, size_before(bytes), bytes);
    }
    if (result != CUDA_SUCCESS)
        bench_failed_driver(b, result, "growing by copying");
    if (old != 0)
        gvmi_cu->cuMemFree(old);
    return result == CUDA_SUCCESS && filled;
}

/* Gives the driver time to clean what was freed: measured on an H100, allocating right after
 * freeing many gigabytes waits for that. */
static void wait_for_driver_cleanup(bench *b)
{
    const struct timespec pause = {0, b->quick ? 1000 * 1000 : 100 * 1000 * 1000};

    bench_wait(b);
    nanosleep(&pause, NULL);
}

typedef bool grow_fn(bench *b, const growth *g, double *us);

/* In turns, in every order, because what one way leaves behind (memory that the driver still has to
 * clean) is the next one's start. Without copies the third way is left out. */
static bool measure_chunk(bench *b, const growth *g, bool copies)
{
    static grow_fn *const ways[] = {grow_vector, grow_bare, grow_copying};
    static const char *const names[] = {"gvm_vector", "driver calls", "cuMemAlloc + copy"};
    enum { VECTOR, BARE, COPYING };
    static const int orders[6][3] = {{VECTOR, BARE, COPYING}, {BARE, VECTOR, COPYING},
                                     {COPYING, VECTOR, BARE}, {COPYING, BARE, VECTOR},
                                     {VECTOR, COPYING, BARE}, {BARE, COPYING, VECTOR}};
    int repetitions = b->quick ? 3 : 12;
    bench_samples samples[3] = {0};
    double us, median[3];
    char text[32];

    for (int i = 0; i < 1 + repetitions; i++)
        for (int turn = 0; turn < 3; turn++) {
            int way = orders[i % 6][turn];

            if (way == COPYING && !copies)
                continue;
            wait_for_driver_cleanup(b);
            if (!ways[way](b, g, &us))
                return false;
            if (i > 0)
                bench_add(&samples[way], us);
        }
    for (int way = 0; way < 3; way++)
        median[way] = bench_record(b, "growth", names[way], "us", g->max_bytes, g->chunk_bytes,
                                   &samples[way]);
    bench_record_value(b, "growth", "gvm_vector / driver calls", "ratio", g->max_bytes,
                       g->chunk_bytes, median[VECTOR] / median[BARE]);
    fprintf(b->text, "  %-8s %12.0f %14.0f %8.3f", gvmi_size_text(g->chunk_bytes, text),
            median[VECTOR], median[BARE], median[VECTOR] / median[BARE]);
    if (copies) {
        bench_record_value(b, "growth", "cuMemAlloc + copy / gvm_vector", "ratio", g->max_bytes,
                           g->chunk_bytes, median[COPYING] / median[VECTOR]);
        fprintf(b->text, " %14.0f %10.2f", median[COPYING], median[COPYING] / median[VECTOR]);
    }
    fputc('\n', b->text);
    return true;
}

void bench_growth(bench *b)
{
    static const uint64_t chunks[] = {2 * GVMI_MIB, 32 * GVMI_MIB, 128 * GVMI_MIB, GVMI_GIB};
    uint64_t free_bytes = bench_free_bytes(b), max_bytes = FIRST_BYTES, limit = b->max_bytes;
    bool copies;
    char text[32];

    if (limit == 0) /* three fifths leave room for the copying way, which needs half as much again */
        limit = free_bytes / 5 * 3 < 32 * GVMI_GIB ? free_bytes / 5 * 3 : 32 * GVMI_GIB;
    if (limit == 0)
        return;
    while (max_bytes <= limit / 2)
        max_bytes *= 2;
    copies = max_bytes / 2 * 3 <= free_bytes;
    fprintf(b->text,
            "\ngrowing an array from 2 MiB to %s by doubling, us (median)\n"
            "  chunk      gvm_vector   driver calls    ratio   alloc + copy   copy/gvm\n",
            gvmi_size_text(max_bytes, text));
    if (!copies)
        bench_note(b, "no memory for growing by copies, which needs half as much again");
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        const growth g = {max_bytes, chunks[i]};

        if (chunks[i] <= max_bytes && !measure_chunk(b, &g, copies))
            break;
    }
}
