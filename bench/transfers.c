/* Copies of 4 KiB to 1 GiB: memory of virtual memory management beside cuMemAlloc memory, by the same driver calls.
 *
 * Host memory is pageable or pinned, copies wait one by one or are queued, in one stream or shared out over several. A
 * sample is a number of copies back to back and one wait behind them; both kinds of memory take turns. The floor of
 * each size is what the CPU needs to copy as many bytes; that of the link and of the memory is in the section
 * "bandwidth". */
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/size.h"
#include "bench/bench.h"

#define STREAMS 4
#define SAMPLE_BYTES \
    (64 * GVMI_MIB) /* about as much a sample copies, in COPIES_MAX copies at most */
#define COPIES_MAX 64u

enum { HOST_TO_DEVICE, DEVICE_TO_HOST, WITHIN };
enum { VMM, ALLOC, KINDS };

typedef struct mode {
    const char *label, *names[KINDS], *ratio;
    int direction;
    bool pinned, queued;
    unsigned streams;
} mode;

#define MODE(label, ...) \
    { \
        label, {label " VMM", label " cuMemAlloc"}, label " VMM / cuMemAlloc", __VA_ARGS__ \
    }
static const mode modes[] = {
    MODE("H2D pageable", HOST_TO_DEVICE, false, false, 1),
    MODE("H2D pageable queued", HOST_TO_DEVICE, false, true, 1),
    MODE("H2D pageable queued, 4 streams", HOST_TO_DEVICE, false, true, STREAMS),
    MODE("H2D pinned", HOST_TO_DEVICE, true, false, 1),
    MODE("H2D pinned queued", HOST_TO_DEVICE, true, true, 1),
    MODE("H2D pinned queued, 4 streams", HOST_TO_DEVICE, true, true, STREAMS),
    MODE("D2H pageable", DEVICE_TO_HOST, false, false, 1),
    MODE("D2H pageable queued", DEVICE_TO_HOST, false, true, 1),
    MODE("D2H pageable queued, 4 streams", DEVICE_TO_HOST, false, true, STREAMS),
    MODE("D2H pinned", DEVICE_TO_HOST, true, false, 1),
    MODE("D2H pinned queued", DEVICE_TO_HOST, true, true, 1),
    MODE("D2H pinned queued, 4 streams", DEVICE_TO_HOST, true, true, STREAMS),
    MODE("D2D", WITHIN, true, false, 1),
    MODE("D2D queued", WITHIN, true, true, 1),
    MODE("D2D queued, 4 streams", WITHIN, true, true, STREAMS),
};
#define MODES (sizeof modes / sizeof modes[0])

/* Two areas of each kind, and host memory. */
typedef struct areas {
    uint64_t bytes;
    gvm_buffer *buffers[2];
    CUdeviceptr at[KINDS][2];
    void *pinned, *pageable;
    CUstream streams[STREAMS];
} areas;

static bool make_areas(bench *b, areas *a)
{
    for (int i = 0; i < 2; i++) {
        if (gvm_buffer_create(b->device, a->bytes, NULL, &a->buffers[i]) != GVM_OK ||
            gvm_buffer_commit(a->buffers[i], 0, a->bytes) != GVM_OK) {
            bench_failed(b, "making memory to copy");
            return false;
        }
        a->at[VMM][i] = gvmi_address(gvm_buffer_address(a->buffers[i]));
        if (!bench_check_driver(b, gvmi_cu->cuMemAlloc(&a->at[ALLOC][i], a->bytes), "cuMemAlloc"))
            return false;
    }
    for (int i = 0; i < STREAMS; i++)
        if (!bench_check_driver(b, gvmi_cu->cuStreamCreate(&a->streams[i], CU_STREAM_NON_BLOCKING),
                                "cuStreamCreate"))
            return false;
    a->pageable = malloc(a->bytes);
    if (a->pageable == NULL) {
        bench_note(b, "no host memory to copy from");
        return false;
    }
    if (!bench_check_driver(b, gvmi_cu->cuMemHostAlloc(&a->pinned, a->bytes, 0), "cuMemHostAlloc"))
        return false;
    for (uint64_t i = 0; i < a->bytes / 8; i++) /* numbers: zeros may be sent compressed */
        ((uint64_t *)a->pageable)[i] = i * 0x9e3779b97f4a7c15u;
    memcpy(a->pinned, a->pageable, a->bytes);
    return bench_check_driver(b, gvmi_cu->cuMemcpyHtoD(a->at[VMM][0], a->pinned, a->bytes),
                              "cuMemcpyHtoD") &&
           bench_check_driver(b, gvmi_cu->cuMemcpyHtoD(a->at[ALLOC][0], a->pinned, a->bytes),
                              "cuMemcpyHtoD");
}

static void free_areas(areas *a)
{
    for (int i = 0; i < STREAMS; i++)
        if (a->streams[i] != NULL)
            gvmi_cu->cuStreamDestroy(a->streams[i]);
    if (a->pinned != NULL)
        gvmi_cu->cuMemFreeHost(a->pinned);
    free(a->pageable);
    for (int i = 0; i < 2; i++) {
        if (a->at[ALLOC][i] != 0)
            gvmi_cu->cuMemFree(a->at[ALLOC][i]);
        gvm_buffer_destroy(a->buffers[i]);
    }
}

/* ---- one copy of a part of the areas */

static CUresult copy_waiting(const areas *a, const mode *m, int kind, uint64_t bytes)
{
    void *host = m->pinned ? a->pinned : a->pageable;
    CUresult result;

    if (m->direction == HOST_TO_DEVICE)
        return gvmi_cu->cuMemcpyHtoD(a->at[kind][0], host, bytes);
    if (m->direction == DEVICE_TO_HOST)
        return gvmi_cu->cuMemcpyDtoH(host, a->at[kind][0], bytes);
    result = gvmi_cu->cuMemcpyDtoD(a->at[kind][1], a->at[kind][0], bytes); /* which does not wait by itself */
    return result == CUDA_SUCCESS ? gvmi_cu->cuCtxSynchronize() : result;
}

static CUresult queue_part(const areas *a, const mode *m, int kind, uint64_t offset, uint64_t bytes,
                           CUstream stream)
{
    unsigned char *host = (unsigned char *)(m->pinned ? a->pinned : a->pageable) + offset;

    if (m->direction == HOST_TO_DEVICE)
        return gvmi_cu->cuMemcpyHtoDAsync(a->at[kind][0] + offset, host, bytes, stream);
    if (m->direction == DEVICE_TO_HOST)
        return gvmi_cu->cuMemcpyDtoHAsync(host, a->at[kind][0] + offset, bytes, stream);
    return gvmi_cu->cuMemcpyDtoDAsync(a->at[kind][1] + offset, a->at[kind][0] + offset, bytes, stream);
}

/* A copy is cut into as many parts as there are streams to share it. */
static CUresult queue_copy(const areas *a, const mode *m, int kind, uint64_t bytes)
{
    const uint64_t part = bytes / m->streams;
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < m->streams && result == CUDA_SUCCESS; i++)
        result = queue_part(a, m, kind, i * part, part, a->streams[i]);
    return result;
}

static unsigned copies_of_size(uint64_t bytes)
{
    const uint64_t copies = SAMPLE_BYTES / bytes;

    return copies == 0 ? 1 : copies > COPIES_MAX ? COPIES_MAX : (unsigned)copies;
}

/* GB/s of one sample: copies back to back until the last has arrived. */
static bool take_sample(bench *b, const areas *a, const mode *m, int kind, uint64_t bytes, double *out)
{
    const unsigned copies = copies_of_size(bytes);
    const int64_t start = gvmi_now_ns();
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < copies && result == CUDA_SUCCESS; i++)
        result = m->queued ? queue_copy(a, m, kind, bytes) : copy_waiting(a, m, kind, bytes);
    if (!bench_check_driver(b, result, "a copy") ||
        !bench_check_driver(b, gvmi_cu->cuCtxSynchronize(), "cuCtxSynchronize"))
        return false;
    *out = (double)bytes * copies / (double)(gvmi_now_ns() - start);
    return true;
}

/* ---- all of one size */

static bool measure_mode(bench *b, const areas *a, const mode *m, uint64_t bytes)
{
    const int repetitions = b->quick ? 3 : 11;
    bench_samples samples[KINDS] = {0};
    double value, median[KINDS];

    for (int i = 0; i < 1 + repetitions; i++)
        for (int turn = 0; turn < KINDS; turn++) {
            const int kind = (i + turn) % KINDS;

            if (!take_sample(b, a, m, kind, bytes, &value))
                return false;
            if (i > 0)
                bench_add(&samples[kind], value);
        }
    for (int kind = 0; kind < KINDS; kind++)
        median[kind] = bench_record(b, "transfers", m->names[kind], "GB/s", bytes, 0, &samples[kind]);
    bench_record_value(b, "transfers", m->ratio, "ratio", bytes, 0, median[VMM] / median[ALLOC]);
    fprintf(b->text, "  %-32s %10.3f %12.3f %9.4f\n", m->label, median[VMM], median[ALLOC],
            median[VMM] / median[ALLOC]);
    return true;
}

static void measure_floor(bench *b, const areas *a, uint64_t bytes)
{
    const unsigned copies = copies_of_size(bytes);
    bench_samples samples = {0};

    for (int i = 0; i < 5; i++) {
        const int64_t start = gvmi_now_ns();

        for (unsigned k = 0; k < copies; k++) {
            memcpy(a->pinned, a->pageable, bytes);
            __asm__ volatile("" ::: "memory");
        }
        bench_add(&samples, (double)bytes * copies / (double)(gvmi_now_ns() - start));
    }
    fprintf(b->text, "  %-32s %10.3f\n", "memcpy of the CPU",
            bench_record(b, "transfers", "memcpy of the CPU", "GB/s", bytes, 0, &samples));
}

void bench_transfers(bench *b)
{
    static const uint64_t sizes[] = {4 * GVMI_KIB,  64 * GVMI_KIB,  GVMI_MIB,
                                     16 * GVMI_MIB, 256 * GVMI_MIB, GVMI_GIB};
    const uint64_t free_bytes = bench_free_bytes(b);
    areas a = {.bytes = b->quick ? 16 * GVMI_MIB : GVMI_GIB};
    char text[32];
    bool good;

    while (a.bytes > free_bytes / 6)
        a.bytes /= 2;
    if (a.bytes < GVM_CHUNK_BYTES_MIN)
        return;
    good = make_areas(b, &a);
    for (size_t i = 0; good && i < sizeof sizes / sizeof sizes[0] && sizes[i] <= a.bytes; i++) {
        fprintf(b->text, "\ncopies of %s, GB/s (median)             VMM   cuMemAlloc     ratio\n",
                gvmi_size_text(sizes[i], text));
        for (size_t m = 0; good && m < MODES; m++)
            good = measure_mode(b, &a, &modes[m], sizes[i]);
        if (good)
            measure_floor(b, &a, sizes[i]);
    }
    free_areas(&a);
}
