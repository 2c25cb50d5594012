/* postgres/plcuda/device/pglz.h, checked against PostgreSQL's own pglz.
 *
 *     pglz [CASES [SEED]]
 *
 * Goal: for any bytes at all the device library returns what PostgreSQL returns, with the same value, and reads and writes nothing
 * outside. Method: streams of PostgreSQL's compressor, of a random encoder, which uses what the compressor never does, and random
 * bytes; half of them are damaged, or have another length than they say. Each is decompressed on the CPU between pages that
 * cannot be touched, as a thread and as a warp of one lane does; one of a hundred on the device, by threads and by whole warps, between
 * canaries. Case i of a seed is case 0 of the seed + i.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gvmem/gvmem.h>

#include "bench/pglz.h"
#include "driver/driver.h"
#include "postgres/plcuda/device/pglz.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"

#define RAW_MAX 8192
#define DEST_MAX 12288 /* whole pages */
#define SOURCE_MAX 16384
#define CANARY_BYTES 16
#define CANARY 0x5a
#define ON_DEVICE 100 /* one case of so many */
#define BATCH 256
#define BATCH_BYTES ((uint64_t)BATCH * (SOURCE_MAX + CANARY_BYTES))

extern const unsigned char gvmi_image_soft_bench_pglz[];
extern const unsigned char *const gvmi_image_cuda_bench_pglz;

typedef struct stream {
    unsigned char bytes[SOURCE_MAX + 4]; /* PostgreSQL reads 2 more */
    int32_t length, raw_bytes;
} stream;

static uint64_t state, seed;
static uint64_t valid, invalid;
static unsigned char *source_end, *dest_start, *dest_end; /* beside pages that cannot be touched */

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

/* ---- streams */

static void draw_raw(unsigned char *raw, int32_t n)
{
    const uint64_t kind = draw(4), letters = 1 + draw(40), period = 1 + draw(300);

    for (int32_t i = 0; i < n; i++)
        if (kind == 0) /* sparse */
            raw[i] = (unsigned char)(draw(letters) == 0 ? 1u << draw(8) : 0);
        else if (kind == 1)
            raw[i] = (unsigned char)draw(letters);
        else if (kind == 2)
            raw[i] = (uint64_t)i < period || draw(200) == 0 ? (unsigned char)draw(256)
                                                            : raw[i - (int32_t)period];
        else
            raw[i] = (unsigned char)(i / (int32_t)period);
}

static void compress_raw(stream *s)
{
    static unsigned char raw[RAW_MAX];
    static char compressed[RAW_MAX + 4];
    int32_t n;

    s->raw_bytes = 1 + (int32_t)draw(draw(4) == 0 ? RAW_MAX : 300);
    draw_raw(raw, s->raw_bytes);
    n = postgres_pglz_compress((const char *)raw, s->raw_bytes, compressed);
    s->length = n < 0 ? 0 : n;
    memcpy(s->bytes, compressed, (size_t)s->length);
}

/* Any items. Now and then an offset is too large. */
static void encode_items(stream *s)
{
    const uint64_t items = 1 + draw(draw(8) == 0 ? 400 : 30), matches = draw(11);
    int32_t control = 0;

    s->length = s->raw_bytes = 0;
    for (uint64_t i = 0; i < items && s->raw_bytes + 300 < RAW_MAX; i++) {
        if (i % 8 == 0) {
            control = s->length;
            s->bytes[s->length++] = (unsigned char)draw(2); /* bits without an item are ignored */
            s->bytes[control] = (unsigned char)(items - i < 8 ? draw(256) << (items - i) : 0);
        }
        if (draw(10) >= matches || s->raw_bytes == 0) {
            s->bytes[s->length++] = (unsigned char)draw(256);
            s->raw_bytes++;
        } else {
            const uint64_t back = draw(3) == 0 ? 8 : (uint64_t)s->raw_bytes;
            uint64_t offset = 1 + draw(back < 4095 ? back : 4095),
                     length = 3 + draw(draw(2) == 0 ? 271 : 20);

            if (offset > (uint64_t)s->raw_bytes && draw(20) != 0)
                offset = (uint64_t)s->raw_bytes;
            s->bytes[control] = (unsigned char)(s->bytes[control] | 1u << i % 8);
            s->bytes[s->length++] = (unsigned char)((offset >> 8) << 4 |
                                                    (length < 18 ? length - 3 : 15));
            s->bytes[s->length++] = (unsigned char)offset;
            if (length >= 18)
                s->bytes[s->length++] = (unsigned char)(length - 18);
            s->raw_bytes += (int32_t)length;
        }
    }
}

static void damage(stream *s)
{
    for (uint64_t times = 1 + draw(3); times > 0; times--)
        switch (draw(6)) {
        case 0: s->raw_bytes += (int32_t)draw(20) - 10; break;
        case 1: s->raw_bytes = (int32_t)draw(DEST_MAX); break;
        case 2: s->length -= (int32_t)draw(4); break;
        case 3:
            for (uint64_t more = draw(5); more > 0 && s->length >= 0 && s->length < SOURCE_MAX; more--)
                s->bytes[s->length++] = (unsigned char)draw(256);
            break;
        default:
            if (s->length > 0)
                s->bytes[draw((uint64_t)s->length)] = (unsigned char)(draw(2) == 0 ? draw(256)
                                                                                   : 1u << draw(8));
        }
}

static void draw_stream(stream *s)
{
    const uint64_t kind = draw(8);

    if (kind < 3) {
        compress_raw(s);
    } else if (kind < 7) {
        encode_items(s);
    } else {
        s->length = (int32_t)draw(100);
        s->raw_bytes = (int32_t)draw(draw(2) == 0 ? 20 : 2000);
        for (int32_t i = 0; i < s->length; i++)
            s->bytes[i] = (unsigned char)draw(256);
    }
    if (draw(2) == 0)
        damage(s);
}

/* ---- on the CPU */

static void report_fault(int signal)
{
    char text[100];
    const int n = snprintf(text, sizeof text,
                           "not ok - touches memory outside\n# seed %llu, signal %d\n",
                           (unsigned long long)seed, signal);

    (void)!write(1, text, (size_t)n);
    _exit(1);
}

static unsigned char *map_between_guards(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *all = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (all == MAP_FAILED || mprotect(all + page, bytes, PROT_READ | PROT_WRITE) != 0)
        tap_bail_out("no memory");
    return all + page;
}

static bool same(const char *what, int32_t wanted, int32_t got, const char *bytes, const char *dest)
{
    if (wanted == got && (wanted < 0 || memcmp(bytes, dest, (size_t)wanted) == 0))
        return true;
    printf("# seed %llu: %s returns %d, PostgreSQL %d%s\n", (unsigned long long)seed, what,
           (int)got, (int)wanted, wanted == got ? "; the bytes differ" : "");
    return false;
}

static bool canary_is_whole(const char *from)
{
    for (int i = 0; i < CANARY_BYTES; i++)
        if (from[i] != CANARY)
            return false;
    return true;
}

static bool check_on_cpu(stream *s, bool warp)
{
    static char wanted_bytes[DEST_MAX + 4];
    const int32_t wanted = postgres_pglz_decompress((const char *)s->bytes, s->length, wanted_bytes,
                                                    s->raw_bytes);
    const size_t bytes = s->raw_bytes > 0 ? (size_t)s->raw_bytes : 0;
    const bool at_end = draw(2) == 0;
    char *dest = (char *)(at_end ? dest_end - bytes : dest_start);
    char *canary = at_end ? dest - CANARY_BYTES : dest + bytes;
    const char *source = (const char *)source_end - (s->length > 0 ? s->length : 0);
    int32_t got;

    *(wanted < 0 ? &invalid : &valid) += 1;
    if (s->length > 0)
        memcpy((char *)(uintptr_t)source, s->bytes, (size_t)s->length);
    if (bytes + CANARY_BYTES > DEST_MAX)
        canary = NULL;
    else
        memset(canary, CANARY, CANARY_BYTES);
    got = warp ? pglz_decompress_warp(source, s->length, dest, s->raw_bytes)
               : pglz_decompress(source, s->length, dest, s->raw_bytes);
    if (canary != NULL && !canary_is_whole(canary)) {
        printf("# seed %llu: bytes beside the value have changed\n", (unsigned long long)seed);
        return false;
    }
    return same(warp ? "pglz_decompress_warp" : "pglz_decompress", wanted, got, wanted_bytes, dest);
}

/* ---- on the device */

static struct {
    gvm_device *device;
    gvm_device_info info;
    CUdevice ordinal;
    CUmodule module;
    CUfunction threads, warps;
    CUdeviceptr memory;
} gpu = {.info = {.struct_size = sizeof gpu.info}};

/* As one block of device memory. */
static struct {
    bench_pglz_value values[BATCH];
    int32_t results[BATCH];
    unsigned char sources[BATCH_BYTES];
    char dests[BATCH_BYTES];
} batch;
static stream batched[BATCH];
static unsigned batched_count;

/* False: the build has no kernels for this device. */
static bool open_gpu(void)
{
    CUcontext context;
    const unsigned char *image;

    if (gvm_device_open(0, &gpu.device) != GVM_OK || gvm_device_get_info(gpu.device, &gpu.info) != GVM_OK)
        tap_bail_out("there is no device");
    image = gpu.info.software ? gvmi_image_soft_bench_pglz : gvmi_image_cuda_bench_pglz;
    if (image == NULL)
        return false;
    if (gvmi_cu->cuDeviceGet(&gpu.ordinal, 0) != CUDA_SUCCESS ||
        gvmi_cu->cuDevicePrimaryCtxRetain(&context, gpu.ordinal) != CUDA_SUCCESS ||
        gvmi_cu->cuCtxPushCurrent(context) != CUDA_SUCCESS ||
        gvmi_cu->cuModuleLoadData(&gpu.module, image) != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&gpu.threads, gpu.module, "pglz_threads") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&gpu.warps, gpu.module, "pglz_warps") != CUDA_SUCCESS ||
        gvmi_cu->cuMemAlloc(&gpu.memory, sizeof batch) != CUDA_SUCCESS)
        tap_bail_out("the kernels cannot be loaded");
    return true;
}

static void close_gpu(void)
{
    CUcontext context;

    if (gpu.memory != 0) {
        gvmi_cu->cuMemFree(gpu.memory);
        gvmi_cu->cuModuleUnload(gpu.module);
        gvmi_cu->cuCtxPopCurrent(&context);
        gvmi_cu->cuDevicePrimaryCtxRelease(gpu.ordinal);
    }
    gvm_device_close(gpu.device);
}

/* One behind the other, at any place, with canaries between. */
static void lay_out_batch(void)
{
    uint64_t source_at = 0, dest_at = CANARY_BYTES;

    memset(batch.dests, CANARY, sizeof batch.dests);
    for (unsigned i = 0; i < batched_count; i++) {
        const stream *s = &batched[i];

        batch.values[i] = (bench_pglz_value){source_at, dest_at, s->length, s->raw_bytes};
        batch.results[i] = -2;
        if (s->length > 0)
            memcpy(batch.sources + source_at, s->bytes, (size_t)s->length);
        source_at += s->length > 0 ? (uint64_t)s->length : 0;
        dest_at += (s->raw_bytes > 0 ? (uint64_t)s->raw_bytes : 0) + CANARY_BYTES;
    }
}

static bool check_batch(CUfunction function, const char *name)
{
    static char wanted_bytes[DEST_MAX + 4];
    bench_pglz_params params = {
        .sources = gpu.memory + ((uint64_t)(batch.sources - (unsigned char *)&batch)),
        .dests = gpu.memory + (uint64_t)(batch.dests - (char *)&batch),
        .values = gpu.memory,
        .results = gpu.memory + (uint64_t)((char *)batch.results - (char *)&batch),
        .count = batched_count};
    void *arguments[] = {&params};

    lay_out_batch();
    if (gvmi_cu->cuMemcpyHtoD(gpu.memory, &batch, sizeof batch) != CUDA_SUCCESS ||
        gvmi_cu->cuLaunchKernel(function, 3, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL) != CUDA_SUCCESS ||
        gvmi_cu->cuMemcpyDtoH(&batch, gpu.memory, sizeof batch) != CUDA_SUCCESS) {
        printf("# a call of the driver failed\n");
        return false;
    }
    for (unsigned i = 0; i < batched_count; i++) {
        const stream *s = &batched[i];
        const char *dest = batch.dests + batch.values[i].dest_at;
        const int32_t wanted = postgres_pglz_decompress((const char *)s->bytes, s->length,
                                                        wanted_bytes, s->raw_bytes);

        if (!same(name, wanted, batch.results[i], wanted_bytes, dest))
            return false;
        if (!canary_is_whole(dest + (s->raw_bytes > 0 ? s->raw_bytes : 0))) {
            printf("# %s has changed bytes behind a value\n", name);
            return false;
        }
    }
    return true;
}

/* ---- all */

enum { THREAD, LANE, GPU_THREADS, GPU_WARPS, WAYS };

static void check_on_device(const stream *s, bool last, bool good[WAYS])
{
    if (s != NULL)
        batched[batched_count++] = *s;
    if (batched_count == BATCH || (last && batched_count > 0)) {
        good[GPU_THREADS] = check_batch(gpu.threads, "a thread") && good[GPU_THREADS];
        good[GPU_WARPS] = check_batch(gpu.warps, "a warp") && good[GPU_WARPS];
        batched_count = 0;
    }
}

static void run_cases(uint64_t cases, uint64_t first, bool on_device, bool good[WAYS])
{
    stream s;

    for (uint64_t i = 0; i < cases && good[THREAD] && good[LANE]; i++) {
        seed = first + i;
        state = random_mix(seed);
        memset(&s, 0, sizeof s);
        draw_stream(&s);
        if (s.raw_bytes > DEST_MAX)
            s.raw_bytes = DEST_MAX;
        good[THREAD] = check_on_cpu(&s, false);
        good[LANE] = check_on_cpu(&s, true);
        if (on_device && i % ON_DEVICE == 0)
            check_on_device(&s, false, good);
    }
    if (on_device)
        check_on_device(NULL, true, good);
}

int main(int argc, char **argv)
{
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 0) : 300000;
    const uint64_t first = random_seed(argc > 2 ? argv[2] : NULL);
    bool good[WAYS] = {true, true, true, true}, on_device;

    if (argc > 3 || cases == 0)
        return 2;
    fixture_machine_default("memory=64MiB,sms=2");
    signal(SIGSEGV, report_fault);
    signal(SIGBUS, report_fault);
    source_end = map_between_guards(SOURCE_MAX) + SOURCE_MAX;
    dest_start = map_between_guards(DEST_MAX);
    dest_end = dest_start + DEST_MAX;
    on_device = open_gpu();
    tap_plan(WAYS + 1);
    printf("# seed %llu\n", (unsigned long long)first);
    run_cases(cases, first, on_device, good);
    close_gpu();
    printf("# %llu valid, %llu not\n", (unsigned long long)valid, (unsigned long long)invalid);
    tap_result(good[THREAD], "pglz_decompress_of_any_bytes_is_postgresql_s");
    tap_result(good[LANE], "pglz_decompress_warp_of_one_lane_is_postgresql_s");
    if (on_device) {
        tap_result(good[GPU_THREADS], "pglz_decompress_on_the_device_is_postgresql_s");
        tap_result(good[GPU_WARPS], "pglz_decompress_warp_on_the_device_is_postgresql_s");
    } else {
        tap_skip("pglz_decompress_on_the_device_is_postgresql_s", "built without nvcc");
        tap_skip("pglz_decompress_warp_on_the_device_is_postgresql_s", "built without nvcc");
    }
    tap_result(cases < 1000 || (valid > cases / 2 && invalid > cases / 2),
               "of_the_cases_many_are_valid_and_many_are_not");
    return tap_finish();
}
