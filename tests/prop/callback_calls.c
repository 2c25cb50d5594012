/* Kernels that call functions of the host at random, from many blocks and streams at once, and create more regions than they have numbers for.
 *
 *     callback_calls [CALLS [SEED]]
 *
 * Goal: every call is made once, its words and reply arrive whole, no request of a collective function is lost, and nothing hangs.
 * Method: each run draws how many threads the server has, who calls, and how often; kernels of two streams count what they asked for,
 * functions what they were called with, and after a drain both are compared. Then a kernel creates all regions of a collection that has several
 * times as many as a segment, the host deletes some, and a kernel creates these.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "driver/driver.h"
#include "region/region.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tests/prop/callback_kernels.h"

#define CALLS 20000u
#define STREAMS 2
#define BLOCKS 8u
#define REGIONS 20000u /* numbers that kernels give to regions; a segment has 4096 */
#define OWNERS_AT 4096u

extern const unsigned char gvmi_image_soft_callback_kernels[];
extern const unsigned char *const gvmi_image_cuda_callback_kernels;

static gvm_device *device;
static CUmodule module;
static gvm_device_info info = {.struct_size = sizeof info};
static CUfunction calling, creating;
static CUstream streams[STREAMS];
static gvm_buffer *memory; /* out, owners */
static uint64_t state, calls;
static char problem[512];

static atomic_ullong mixes, notes, noted, collects, requests, wrong;

#define WRONG(...) (snprintf(problem, sizeof problem, __VA_ARGS__), false)

static bool good(gvm_status status, const char *call)
{
    gvm_error error;

    if (status == GVM_OK)
        return true;
    gvm_error_last(&error);
    return WRONG("%s: %s: %s", call, gvm_status_name(status), error.text);
}
#define GOOD(call) good(call, #call)

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

/* ---- functions */

static gvm_status mix_words(void *context, gvm_callback_args *args)
{
    (void)context;
    for (uint32_t i = 0; i < GVM_CALLBACK_WORDS; i++) {
        if (i >= args->word_count && args->words[i] != 0)
            atomic_fetch_add(&wrong, 1);
        args->words[i] = CALL_MIXED(args->words[i], i);
    }
    atomic_fetch_add(&mixes, 1);
    return GVM_OK;
}

static gvm_status note_words(void *context, gvm_callback_args *args)
{
    (void)context;
    if (args->word_count != 2 || args->words[1] != ~args->words[0] || args->is_awaited)
        atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&notes, 1);
    atomic_fetch_add(&noted, args->words[0]);
    return GVM_OK;
}

static gvm_status collect(void *context, gvm_callback_args *args)
{
    (void)context;
    atomic_fetch_add(&requests, args->requests);
    args->words[0] = atomic_fetch_add(&collects, 1) + 1;
    return GVM_OK;
}

/* ---- calls */

static bool launch(CUfunction function, unsigned threads, CUstream stream, void *params)
{
    void *arguments[] = {params};
    const CUresult result = gvmi_cu->cuLaunchKernel(function, BLOCKS, 1, 1, threads, 1, 1, 0,
                                                    stream, arguments, NULL);

    return result == CUDA_SUCCESS || WRONG("cuLaunchKernel: CUresult %d", (int)result);
}

static bool synchronize(CUstream stream)
{
    const CUresult result = gvmi_cu->cuStreamSynchronize(stream);

    return result == CUDA_SUCCESS || WRONG("cuStreamSynchronize: CUresult %d", (int)result);
}

static bool same(const char *what, uint64_t asked, uint64_t made)
{
    return asked == made || WRONG("kernels asked for %llu %s, and functions were called for %llu",
                                  (unsigned long long)asked, what, (unsigned long long)made);
}

static bool compare_counts(void)
{
    uint64_t out[OUT_WORDS];

    if (!GOOD(gvm_buffer_copy_out(out, memory, 0, sizeof out)))
        return false;
    if (out[OUT_WRONG] > 0 || atomic_load(&wrong) > 0)
        return WRONG("%llu answers were wrong, the first in way %u; %llu calls were wrong",
                     (unsigned long long)out[OUT_WRONG], (unsigned)out[OUT_FIRST_WRONG],
                     (unsigned long long)atomic_load(&wrong));
    calls += out[OUT_CALLS] + out[OUT_NOTES] + out[OUT_REQUESTS];
    return same("calls", out[OUT_CALLS], atomic_load(&mixes)) &&
           same("calls without waiting", out[OUT_NOTES], atomic_load(&notes)) &&
           same("as sum of words", out[OUT_NOTED], atomic_load(&noted)) &&
           same("requests", out[OUT_REQUESTS], atomic_load(&requests));
}

/* Two kernels at once, on a server with so many threads. */
static bool make_calls(gvm_callback_server *server, uint32_t by)
{
    const unsigned threads = (unsigned)info.warp_size * (unsigned)(1 + draw(2));
    const uint64_t groups = by == GVM_REGION_BY_THREAD ? BLOCKS * threads : BLOCKS * 2;
    callback_params params = {
        .out = gvmi_address(gvm_buffer_address(memory)),
        .rounds = (uint32_t)(1 + draw(2000) / groups),
        .by = by,
    };
    const uint64_t zeros[OUT_WORDS] = {0};

    if (!GOOD(gvm_callback_server_get_view(server, &params.server)) ||
        !GOOD(gvm_buffer_copy_in(memory, 0, zeros, sizeof zeros)))
        return false;
    mixes = notes = noted = requests = 0;
    for (int i = 0; i < STREAMS; i++) {
        params.seed = random_next(&state);
        if (!launch(calling, threads, streams[i], &params))
            return false;
    }
    for (int i = 0; i < STREAMS; i++)
        if (!synchronize(streams[i]))
            return false;
    return GOOD(gvm_callback_server_drain(server)) && compare_counts();
}

static bool run_server(void)
{
    const gvm_callback_server_options options = {
        .struct_size = sizeof options, .thread_count = (uint32_t)(1 + draw(4)), .wait_ms = 60000};
    const uint32_t flags = draw(2) == 0 ? GVM_CALLBACK_REENTRANT : 0;
    gvm_callback_server *server = NULL;
    bool fine = GOOD(gvm_callback_server_create(device, &options, &server)) &&
                GOOD(gvm_callback_register(server, CALL_MIX, flags, mix_words, NULL)) &&
                GOOD(gvm_callback_register(server, CALL_NOTE, flags, note_words, NULL)) &&
                GOOD(gvm_callback_register(server, CALL_COLLECT, GVM_CALLBACK_COLLECTIVE, collect,
                                           NULL));

    for (uint64_t i = draw(4) + 1; i > 0 && fine; i--)
        fine = make_calls(server, (uint32_t)draw(3));
    gvm_callback_server_destroy(server);
    return fine;
}

/* ---- regions */

/* A kernel creates all that are left, which are so many, and each of them once. */
static bool create_all(gvm_collection *regions, uint32_t by, uint64_t expected)
{
    static uint32_t owners[REGIONS];
    create_params params = {
        .owners = gvmi_address(gvm_buffer_address(memory)) + OWNERS_AT,
        .out = gvmi_address(gvm_buffer_address(memory)),
        .by = by,
    };
    const uint64_t zero = 0;
    const uint8_t byte = 0;
    uint64_t created, once = 0;

    if (!GOOD(gvm_collection_get_view(regions, &params.regions)) ||
        !GOOD(gvm_buffer_copy_in(memory, 0, &zero, sizeof zero)) ||
        !GOOD(gvm_buffer_fill(memory, OWNERS_AT, sizeof owners, &byte, 1)) ||
        !launch(creating, (unsigned)info.warp_size * 2, streams[0], &params) ||
        !GOOD(gvm_space_sync(regions->space, (gvm_stream)streams[0])) ||
        !GOOD(gvm_buffer_copy_out(&created, memory, 0, sizeof created)) ||
        !GOOD(gvm_buffer_copy_out(owners, memory, OWNERS_AT, sizeof owners)))
        return false;
    for (uint32_t i = 0; i < REGIONS; i++)
        once += owners[i] == 1;
    return (created == expected && once == expected) ||
           WRONG("a kernel created %llu regions, %llu of them once and empty; expected %llu",
                 (unsigned long long)created, (unsigned long long)once, (unsigned long long)expected);
}

static bool check_region(gvm_collection *regions, uint32_t region)
{
    void *word;

    return GOOD(gvm_region_map_cpu(regions, region, GVM_REGION_READ, &word)) &&
           (*(uint64_t *)word == region + 1ull ||
            WRONG("region %u holds %llu", region, (unsigned long long)*(uint64_t *)word)) &&
           GOOD(gvm_region_unmap_cpu(regions, region));
}

static bool create_regions(void)
{
    gvm_space_options options = gvm_space_options_init();
    gvm_collection_options details = gvm_collection_options_init();
    gvm_collection_info regions_info = {.struct_size = sizeof regions_info};
    gvm_collection *regions = NULL;
    gvm_space *space = NULL;
    uint64_t deleted = 0;
    bool fine;

    options.budget_bytes = 2 * MIB;
    details.unused_count = REGIONS;
    fine = GOOD(gvm_space_create(device, &options, &space)) &&
           GOOD(gvm_collection_create(space, REGIONS, 64, &details, &regions)) &&
           create_all(regions, GVM_REGION_BY_WARP, REGIONS);
    for (uint32_t i = 0; i < REGIONS && fine; i += 1 + (uint32_t)draw(3)) {
        fine = check_region(regions, i) && GOOD(gvm_region_delete(regions, i));
        deleted++;
    }
    fine = fine && GOOD(gvm_space_sync(space, NULL)) &&
           create_all(regions, GVM_REGION_BY_BLOCK, deleted) &&
           create_all(regions, GVM_REGION_BY_WARP, 0) &&
           GOOD(gvm_collection_get_info(regions, &regions_info)) &&
           (regions_info.live_count == REGIONS || WRONG("not all regions exist"));
    gvm_space_destroy(space);
    return fine;
}

/* ---- all */

static bool open_device(void)
{
    if (!device_open_with_kernels(gvmi_image_soft_callback_kernels,
                                  gvmi_image_cuda_callback_kernels, &device, &info, &module))
        return false;
    if (module == NULL)
        return true;
    if (gvmi_cu->cuModuleGetFunction(&calling, module, "callback_calls") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&creating, module, "callback_create") != CUDA_SUCCESS ||
        gvm_buffer_create(device, 2 * MIB, NULL, &memory) != GVM_OK ||
        gvm_buffer_commit(memory, 0, 2 * MIB) != GVM_OK)
        return false;
    for (int i = 0; i < STREAMS; i++)
        if (gvmi_cu->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    const uint64_t wanted = argc > 1 ? strtoull(argv[1], NULL, 0) : CALLS;
    const uint64_t seed = random_seed(argc > 2 ? argv[2] : NULL);
    uint64_t runs = 0;
    bool fine = true;

    state = seed;
    fixture_machine_default("memory=256MiB,sms=16,warp=%u,switches=%llu", draw(2) == 0 ? 32 : 8,
                            (unsigned long long)draw(4));
    if (!open_device())
        tap_bail_out("there is no device");
    if (module == NULL)
        return tap_skip_all("this build has no kernels for real GPUs");
    for (; fine && calls < wanted; runs++)
        fine = run_server();
    tap_result(fine, "every_call_is_made_once (%llu calls in %llu runs, seed %llu)%s%s",
               (unsigned long long)calls, (unsigned long long)runs, (unsigned long long)seed,
               fine ? "" : ": ", problem);
    fine = create_regions();
    tap_result(fine, "kernels_create_more_regions_than_they_have_numbers (seed %llu)%s%s",
               (unsigned long long)seed, fine ? "" : ": ", fine ? "" : problem);
    gvm_buffer_destroy(memory);
    gvm_device_close(device);
    return tap_finish();
}
