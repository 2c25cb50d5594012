/* Bandwidth: copies and kernels on buffer memory against cuMemAlloc memory, and a peer reading a
 * buffer. */
#include <string.h>

#include "base/address.h"
#include "base/size.h"
#include "bench/bench.h"
#include "kernels/basic.h"

#define SEED 7u

static double gb_per_second(uint64_t bytes, double us)
{
    return us > 0 ? (double)bytes / us / 1e3 : 0;
}

/* ---- what the hardware could do at most, where that is known */

/* Data sheet figures of the memory, GB/s, by a part of the device's name; the first match
 * counts. */
static double memory_peak(const char *name)
{
    static const struct {
        const char *part;
        double peak;
    } known[] = {
        {"H200", 4800},
        {"H100 PCIe", 2039},
        {"H100 NVL", 3938},
        {"H100", 3352},
        {"A100-SXM4-80GB", 2039},
        {"A100 80GB PCIe", 1935},
        {"A100", 1555},
        {"L40S", 864},
        {"V100", 900},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strstr(name, known[i].part) != NULL)
            return known[i].peak;
    return 0;
}

static bool read_pci_number(const char *bus_id, const char *file, double *out)
{
    char path[128];
    FILE *in;
    bool good;

    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", bus_id, file);
    in = fopen(path, "re");
    if (in == NULL)
        return false;
    good = fscanf(in, "%lf", out) == 1;
    fclose(in);
    return good;
}

/* One direction of the PCI Express link as it is trained, GB/s: transfers a second, lanes, and the
 * line code (8b/10b, 128b/130b). */
static double link_peak(const gvm_device_info *info)
{
    char bus_id[sizeof info->pci_bus_id];
    double transfers, lanes;

    for (size_t i = 0; i < sizeof bus_id; i++) /* the kernel writes it in lower case */
        bus_id[i] = (char)(info->pci_bus_id[i] >= 'A' && info->pci_bus_id[i] <= 'F'
                               ? info->pci_bus_id[i] + 32
                               : info->pci_bus_id[i]);
    if (info->software || !read_pci_number(bus_id, "current_link_speed", &transfers) ||
        !read_pci_number(bus_id, "current_link_width", &lanes))
        return 0;
    return transfers * lanes / 8 * (transfers < 8 ? 0.8 : 128.0 / 130.0);
}

/* ---- copies */

typedef struct field {
    uint64_t bytes;
    gvm_buffer *from, *to;
    CUdeviceptr alloc_from, alloc_to;
    void *host;
    bench_timer timer;
} field;

static bool make_buffer(bench *b, uint64_t bytes, gvm_buffer **out)
{
    if (gvm_buffer_create(b->device, bytes, NULL, out) == GVM_OK &&
        gvm_buffer_commit(*out, 0, bytes) == GVM_OK)
        return true;
    bench_failed(b, "making a buffer to copy");
    return false;
}

/* Numbers everywhere: memory of zeros may be stored and sent compressed. */
static bool fill_field(bench *b, field *f)
{
    if (gvm_kernel_fill_random_f64(b->device, gvm_buffer_address(f->from), f->bytes / 8, 0, SEED,
                                   NULL) == GVM_OK &&
        gvm_kernel_fill_random_f64(b->device, gvmi_pointer(f->alloc_from), f->bytes / 8, 0, SEED,
                                   NULL) == GVM_OK &&
        gvm_device_synchronize(b->device) == GVM_OK)
        return true;
    bench_failed(b, "filling the memory to copy");
    return false;
}

static bool field_create(bench *b, field *f, uint64_t bytes)
{
    f->bytes = bytes;
    return make_buffer(b, bytes, &f->from) && make_buffer(b, bytes, &f->to) &&
           bench_check_driver(b, gvmi_cu->cuMemAlloc(&f->alloc_from, bytes), "cuMemAlloc") &&
           bench_check_driver(b, gvmi_cu->cuMemAlloc(&f->alloc_to, bytes), "cuMemAlloc") &&
           bench_check_driver(b, gvmi_cu->cuMemHostAlloc(&f->host, bytes, 0), "cuMemHostAlloc") &&
           bench_timer_create(b, &f->timer) && fill_field(b, f);
}

static void field_destroy(field *f)
{
    bench_timer_destroy(&f->timer);
    if (f->host != NULL)
        gvmi_cu->cuMemFreeHost(f->host);
    if (f->alloc_to != 0)
        gvmi_cu->cuMemFree(f->alloc_to);
    if (f->alloc_from != 0)
        gvmi_cu->cuMemFree(f->alloc_from);
    gvm_buffer_destroy(f->to);
    gvm_buffer_destroy(f->from);
}

enum { OUT, IN, WITHIN, DIRECTIONS }; /* out comes first: it puts numbers into the host memory */
enum { BUFFER, ALLOC, KINDS };

static bool queue_copy(bench *b, field *f, int direction, int kind)
{
    CUstream stream = f->timer.stream;
    gvm_status status = GVM_OK;
    CUresult result = CUDA_SUCCESS;

    if (kind == BUFFER && direction == OUT)
        status = gvm_buffer_copy_out_async(f->host, f->from, 0, f->bytes, stream);
    else if (kind == BUFFER && direction == IN)
        status = gvm_buffer_copy_in_async(f->to, 0, f->host, f->bytes, stream);
    else if (kind == BUFFER)
        status = gvm_buffer_copy_async(f->to, 0, f->from, 0, f->bytes, stream);
    else if (direction == OUT)
        result = gvmi_cu->cuMemcpyDtoHAsync(f->host, f->alloc_from, f->bytes, stream);
    else if (direction == IN)
        result = gvmi_cu->cuMemcpyHtoDAsync(f->alloc_to, f->host, f->bytes, stream);
    else
        result = gvmi_cu->cuMemcpyDtoDAsync(f->alloc_to, f->alloc_from, f->bytes, stream);
    if (status != GVM_OK)
        bench_failed(b, "copying a buffer");
    return status == GVM_OK && bench_check_driver(b, result, "cuMemcpyAsync");
}

static bool measure_direction(bench *b, field *f, int direction)
{
    static const char *const names[DIRECTIONS][KINDS] = {{"D2H buffer", "D2H cuMemAlloc"},
                                                         {"H2D buffer", "H2D cuMemAlloc"},
                                                         {"D2D buffer", "D2D cuMemAlloc"}};
    static const char *const ratios[DIRECTIONS] = {
        "D2H buffer / cuMemAlloc", "H2D buffer / cuMemAlloc", "D2D buffer / cuMemAlloc"};
    static const char *const peaks[DIRECTIONS] = {"D2H peak of the link", "H2D peak of the link",
                                                  "D2D peak of the memory"};
    int repetitions = b->quick ? 7 : 21;
    uint64_t moved = direction == WITHIN ? 2 * f->bytes : f->bytes; /* read and written */
    double peak = direction == WITHIN ? memory_peak(b->info.name) : link_peak(&b->info);
    bench_samples samples[KINDS] = {0};
    double us, median[KINDS];

    for (int i = 0; i < 2 + repetitions; i++)
        for (int turn = 0; turn < KINDS; turn++) {
            int kind = (i + turn) % KINDS;

            if (!bench_timer_start(b, &f->timer) || !queue_copy(b, f, direction, kind) ||
                !bench_timer_stop(b, &f->timer, &us))
                return false;
            if (i >= 2)
                bench_add(&samples[kind], gb_per_second(moved, us));
        }
    for (int kind = 0; kind < KINDS; kind++)
        median[kind] = bench_record(b, "bandwidth", names[direction][kind], "GB/s", f->bytes, 0,
                                    &samples[kind]);
    bench_record_value(b, "bandwidth", ratios[direction], "ratio", f->bytes, 0,
                       median[BUFFER] / median[ALLOC]);
    fprintf(b->text, "  %.3s   %10.2f %12.2f %9.4f", names[direction][BUFFER], median[BUFFER],
            median[ALLOC], median[BUFFER] / median[ALLOC]);
    if (peak > 0) {
        bench_record_value(b, "bandwidth", peaks[direction], "GB/s", 0, 0, peak);
        fprintf(b->text, " %10.1f", peak);
    }
    fputc('\n', b->text);
    return true;
}

void bench_copies(bench *b)
{
    uint64_t bytes = b->quick ? 64 * GVMI_MIB : GVMI_GIB, free_bytes = bench_free_bytes(b);
    field f = {0};
    char text[32];

    while (bytes > free_bytes / 6)
        bytes /= 2;
    if (bytes < 2 * GVMI_MIB)
        return;
    fprintf(b->text,
            "\nbandwidth of copies of %s, pinned host memory, GB/s (median)\n"
            "         buffer   cuMemAlloc     ratio       peak\n",
            gvmi_size_text(bytes, text));
    if (field_create(b, &f, bytes))
        for (int direction = 0; direction < DIRECTIONS; direction++)
            if (!measure_direction(b, &f, direction))
                break;
    field_destroy(&f);
}

/* ---- kernels */

/* The device's own time of one launch; the device's context is current. word: the params' member
 * for the result, or NULL. */
static bool time_kernel(bench *b, gvm_device *device, bench_timer *timer, gvmi_kernel kernel,
                        void *params, uint64_t *word, uint64_t bytes, double *us)
{
    uint64_t blocks = bytes / (GVMI_TILE_WORDS * 8) + 1, value;
    gvmi_result result;
    gvm_status status = gvmi_result_begin(device, 0, timer->stream, &result);
    bool timed;

    if (status == GVM_OK) {
        if (word != NULL)
            *word = result.words.device;
        timed = bench_timer_start(b, timer);
        status = gvmi_kernel_launch(device, kernel, params, blocks, timer->stream);
        timed = timed && status == GVM_OK && bench_timer_stop(b, timer, us);
        status = gvmi_result_end(device, &result, status, &value);
        if (status == GVM_OK)
            return timed;
    }
    bench_failed(b, "running a kernel");
    return false;
}

enum { KERNEL_REPETITIONS = 15 };

static bool measure_kernel(bench *b, bench_timer *timer, gvmi_kernel kernel, const char *name,
                           void *params, uint64_t *word, uint64_t bytes, uint64_t touched)
{
    bench_samples samples = {0};
    double us;

    for (int i = 0; i < 2 + KERNEL_REPETITIONS; i++) {
        if (!time_kernel(b, b->device, timer, kernel, params, word, bytes, &us))
            return false;
        if (i >= 2)
            bench_add(&samples, gb_per_second(touched, us));
    }
    fprintf(b->text, "  %-16s %9.1f\n", name,
            bench_record(b, "kernels", name, "GB/s", bytes, 0, &samples));
    return true;
}

void bench_kernels(bench *b)
{
    uint64_t bytes = b->quick ? 64 * GVMI_MIB : 4 * GVMI_GIB, free_bytes = bench_free_bytes(b), address;
    gvm_buffer *buffer = NULL;
    bench_timer timer = {0};
    char text[32];

    while (bytes > free_bytes / 4)
        bytes /= 2;
    if (bytes < 2 * GVMI_MIB)
        return;
    fprintf(b->text, "\nkernels over %s of buffer memory, GB/s (median)\n",
            gvmi_size_text(bytes, text));
    if (make_buffer(b, bytes, &buffer) && bench_timer_create(b, &timer)) {
        address = gvmi_address(gvm_buffer_address(buffer));
        gvmi_fill_params fill = {address, bytes / 8, 0, SEED};
        gvmi_sum_params sum = {address, bytes / 8, 0};
        gvmi_checksum_params checksum = {address, bytes, 0};
        gvmi_compare_params compare = {address, address + bytes / 2, bytes / 2, 0};

        (void)(measure_kernel(b, &timer, GVMI_KERNEL_fill_random_f64, "fill_random_f64", &fill,
                              NULL, bytes, bytes) &&
               measure_kernel(b, &timer, GVMI_KERNEL_sum_f64, "sum_f64", &sum, &sum.result, bytes,
                              bytes) &&
               measure_kernel(b, &timer, GVMI_KERNEL_checksum, "checksum", &checksum,
                              &checksum.result, bytes, bytes) &&
               gvm_buffer_copy(buffer, bytes / 2, buffer, 0, bytes / 2) == GVM_OK &&
               measure_kernel(b, &timer, GVMI_KERNEL_compare, "compare", &compare, &compare.result,
                              bytes / 2, bytes));
    }
    bench_timer_destroy(&timer);
    gvm_buffer_destroy(buffer);
}

/* ---- a peer */

static bool measure_peer(bench *b, gvm_device *other, uint64_t address, uint64_t bytes)
{
    gvmi_sum_params sum = {address, bytes / 8, 0};
    bench_samples samples = {0};
    bench_timer timer = {0};
    bool good = bench_timer_create(b, &timer);
    double us;

    for (int i = 0; good && i < 2 + KERNEL_REPETITIONS; i++) {
        good = time_kernel(b, other, &timer, GVMI_KERNEL_sum_f64, &sum, &sum.result, bytes, &us);
        if (good && i >= 2)
            bench_add(&samples, gb_per_second(bytes, us));
    }
    bench_timer_destroy(&timer);
    if (good)
        fprintf(b->text, "  %-16s %9.1f\n", "sum_f64",
                bench_record(b, "peer", "sum_f64 by a peer", "GB/s", bytes, 0, &samples));
    return good;
}

void bench_peers(bench *b)
{
    int32_t count = 0, ordinal = b->ordinal == 0 ? 1 : 0;
    uint64_t bytes = b->quick ? 64 * GVMI_MIB : GVMI_GIB, free_bytes = bench_free_bytes(b);
    gvm_device *other = NULL;
    gvm_buffer *buffer = NULL;
    double own, theirs;

    while (bytes > free_bytes / 4)
        bytes /= 2;
    if (gvm_device_count(&count) != GVM_OK || count < 2 || bytes < 2 * GVMI_MIB)
        return;
    fprintf(b->text, "\na buffer of device %d read by device %d, GB/s (median)\n", b->ordinal,
            (int)ordinal);
    if (gvm_device_open(ordinal, &other) != GVM_OK) {
        bench_failed(b, "opening the peer");
        return;
    }
    if (make_buffer(b, bytes, &buffer)) {
        gvm_status status = gvm_buffer_grant(buffer, other, GVM_ACCESS_READ);
        uint64_t address = gvmi_address(gvm_buffer_address(buffer));

        if (status == GVM_E_NOTSUP)
            bench_note(b, "the devices cannot reach each other");
        else if (status != GVM_OK ||
                 gvm_kernel_fill_random_f64(b->device, gvmi_pointer(address), bytes / 8, 0, SEED,
                                            NULL) != GVM_OK ||
                 gvm_kernel_sum_f64(b->device, gvmi_pointer(address), bytes / 8, NULL, &own) != GVM_OK ||
                 gvm_kernel_sum_f64(other, gvmi_pointer(address), bytes / 8, NULL, &theirs) != GVM_OK ||
                 gvmi_device_enter(other) != GVM_OK)
            bench_failed(b, "reading a peer's buffer");
        else {
            measure_peer(b, other, address, bytes);
            gvmi_device_leave();
            if (own - theirs > 1e-9 * own || theirs - own > 1e-9 * own)
                bench_note(b, "the peer's sum is %.6f and not %.6f", theirs, own);
        }
    }
    gvm_buffer_destroy(buffer);
    gvm_device_close(other);
}
