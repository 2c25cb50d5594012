/* Kernels and the CPU that use regions at random, more than there are frames for, and every word of these.
 *
 *     region_ops [OPERATIONS | SECONDS"s" [SEED [TIMES]]]
 *
 * TIMES: the regions of each run together are that many times its budget; else they are as drawn.
 *
 * Goal: whatever is mapped, fetched, evicted and used at its home at the same time, each map finds what was written last,
 * no write is lost, and no reference is left. Method: each run draws sizes, a budget, a policy, which may change, and who maps. Kernels of several
 * streams count up each word of regions that others use as well, and write and check regions of their own; the CPU does so
 * between two syncs. Syncs, questions, evictions on advice, and collections that come and take frames, or go, fall into the middle of kernels. At last each word
 * is compared with the number of writes that were counted beside, and each table is looked at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "base/clock.h"
#include "driver/driver.h"
#include "region/region.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tests/prop/region_kernels.h"

#ifdef __SANITIZE_THREAD__ /* 1000 maps a second, in place of 60000 */
#define OPERATIONS 100000u
#else
#define OPERATIONS 1000000u
#endif
#define STREAMS 3
#define BLOCKS 8u
#define SHARED_MAX 600u
#define OWN_MAX 1024u

extern const unsigned char gvmi_image_soft_region_kernels[];
extern const unsigned char *const gvmi_image_cuda_region_kernels;

static gvm_device *device;
static CUmodule module;
static gvm_device_info info = {.struct_size = sizeof info};
static CUfunction function;
static CUstream streams[STREAMS + 1]; /* the last has no kernels of its own */
static gvm_buffer *memory;            /* writes, values, wrong */
static uint64_t state, maps, times;

#define VALUES_AT (SHARED_MAX * sizeof(uint32_t))
#define WRONG_AT (VALUES_AT + OWN_MAX * sizeof(uint32_t))

/* What a run has drawn. */
typedef struct run {
    gvm_space *space;
    gvm_collection *shared, *own;
    uint32_t shared_count, own_count, by, groups, check, clean_low;
    uint64_t region_bytes, budget_bytes;
    gvm_region_policy policy;
    uint32_t written[SHARED_MAX]; /* by the CPU */
    char problem[512];
} run;

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

static gvm_region_policy draw_policy(void)
{
    return (gvm_region_policy)draw(GVM_REGION_STATIC + 1);
}

#define WRONG(r, ...) (snprintf((r)->problem, sizeof(r)->problem, __VA_ARGS__), false)

static bool good(run *r, gvm_status status, const char *call)
{
    gvm_error error;

    if (status == GVM_OK)
        return true;
    gvm_error_last(&error);
    return WRONG(r, "%s: %s: %s", call, gvm_status_name(status), error.text);
}
#define GOOD(r, call) good(r, call, #call)

static bool cu_good(run *r, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS || WRONG(r, "%s: CUresult %d", call, (int)result);
}
#define CU(r, call) cu_good(r, gvmi_cu->call, #call)

/* ---- what the CPU does */

static bool fill_regions(run *r, gvm_collection *c, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t *words;
        void *pointer;

        if (!GOOD(r, gvm_region_map_cpu(c, i, GVM_REGION_WRITE, &pointer)))
            return false;
        words = pointer;
        for (uint64_t w = 0; w < r->region_bytes / 8; w++)
            words[w] = REGION_WORD(i, w);
        if (!GOOD(r, gvm_region_unmap_cpu(c, i)))
            return false;
    }
    return true;
}

/* The device's counts of writes; of shared regions, then of what groups wrote. */
static bool read_counts(run *r, uint32_t *writes, uint32_t *values)
{
    return GOOD(r, gvm_buffer_copy_out(writes, memory, 0, r->shared_count * sizeof *writes)) &&
           GOOD(r, gvm_buffer_copy_out(values, memory, VALUES_AT, r->own_count * sizeof *values));
}

/* Checks a region, and perhaps counts it up. */
static bool use_region(run *r, gvm_collection *c, uint32_t i, uint64_t count, bool writes)
{
    uint64_t *words;
    void *pointer;
    bool fine = true;

    maps++;
    if (!GOOD(r, gvm_region_map_cpu(c, i, writes ? GVM_REGION_READWRITE : GVM_REGION_READ, &pointer)))
        return false;
    words = pointer;
    for (uint64_t w = 0; w < r->region_bytes / 8 && fine; w++) {
        if (words[w] != (REGION_WORD(i, w) | count))
            fine = WRONG(r, "word %llu of region %u is 0x%llx to the CPU, which expects 0x%llx",
                         (unsigned long long)w, i, (unsigned long long)words[w],
                         (unsigned long long)(REGION_WORD(i, w) | count));
        if (writes) /* what is mapped to be read is read by kernels meanwhile */
            words[w]++;
    }
    return GOOD(r, gvm_region_unmap_cpu(c, i)) && fine;
}

static bool use_regions(run *r, bool all)
{
    static uint32_t writes[SHARED_MAX], values[OWN_MAX];
    const uint64_t part = all ? 1 : 1 + draw(20);

    if (!read_counts(r, writes, values))
        return false;
    for (uint32_t i = 0; i < r->shared_count; i++) {
        const bool counts_up = !all && draw(2) == 0;

        if (draw(part) != 0)
            continue;
        if (!use_region(r, r->shared, i, writes[i] + r->written[i], counts_up))
            return false;
        r->written[i] += counts_up;
    }
    for (uint32_t i = 0; i < r->own_count; i++)
        if (draw(part) == 0 && !use_region(r, r->own, i, values[i], false))
            return false;
    return true;
}

/* ---- what kernels do */

static bool launch(run *r, uint32_t rounds, CUstream stream, uint32_t first)
{
    const uint64_t base = gvmi_address(gvm_buffer_address(memory));
    const uint32_t threads = (uint32_t)info.block_threads_max < 64 ? (uint32_t)info.block_threads_max
                                                                   : 64;
    const uint32_t groups = r->by == GVM_REGION_BY_THREAD ? BLOCKS * threads
                            : r->by == GVM_REGION_BY_WARP ? BLOCKS * threads / (uint32_t)info.warp_size
                                                          : BLOCKS;
    region_params params = {
        .writes = base,
        .values = base + VALUES_AT,
        .wrong = base + WRONG_AT,
        .seed = random_next(&state),
        .rounds = rounds,
        .by = r->by,
        .how = (uint32_t)draw(HOW_COUNT),
        .held = 1 + (uint32_t)draw(HELD_MAX),
        .groups = first == 0 ? r->groups : 0, /* regions of groups are one kernel's */
    };
    void *arguments[] = {&params};

    maps += (uint64_t)groups * rounds * params.held + 2ull * params.groups * rounds;
    return GOOD(r, gvm_collection_get_view(r->shared, &params.shared)) &&
           GOOD(r, gvm_collection_get_view(r->own, &params.own)) &&
           CU(r, cuLaunchKernel(function, BLOCKS, 1, 1, threads, 1, 1, 0, stream, arguments, NULL));
}

static bool found_nothing_wrong(run *r)
{
    uint64_t wrong[4];

    if (!GOOD(r, gvm_buffer_copy_out(wrong, memory, WRONG_AT, sizeof wrong)))
        return false;
    return wrong[0] == 0 ||
           WRONG(r, "kernels found %llu wrong words, first %llu of region %llu: 0x%llx",
                 (unsigned long long)wrong[0], (unsigned long long)wrong[2],
                 (unsigned long long)wrong[1], (unsigned long long)wrong[3]);
}

/* Each region of the list has a slot of its own, or its home's; the same one wherever it is in the list. */
static bool check_slots(run *r, const uint32_t *regions, const uint32_t *slots, uint32_t count)
{
    const uint32_t home = r->shared->table.home;

    for (uint32_t i = 0; i < count; i++) {
        bool fine = (slots[i] == GVM_REGION_NONE) == (regions[i] == GVM_REGION_NONE) &&
                    (slots[i] == GVM_REGION_NONE || slots[i] < home || slots[i] == home + regions[i]);

        for (uint32_t k = 0; k < i; k++)
            fine = fine && (regions[k] == GVM_REGION_NONE ||
                            (regions[k] == regions[i]) == (slots[k] == slots[i]));
        if (!fine)
            return WRONG(r, "region %u has slot %u", regions[i], slots[i]);
    }
    return true;
}

/* A list of regions, by the library's kernels. */
static bool resolve_some(run *r, CUstream stream)
{
    uint32_t regions[64], slots[64];
    const uint64_t at = WRONG_AT + 64;
    uint32_t *list = (uint32_t *)((char *)gvm_buffer_address(memory) + at);

    for (uint32_t i = 0; i < 64; i++)
        regions[i] = draw(10) == 0 ? GVM_REGION_NONE : (uint32_t)draw(r->shared_count);
    maps += 64;
    if (!GOOD(r, gvm_buffer_copy_in(memory, at, regions, sizeof regions)) ||
        !GOOD(r, gvm_region_resolve(r->shared, list, 64, GVM_REGION_READ, list + 64, NULL, stream)) ||
        !GOOD(r, gvm_region_release(r->shared, list, 64, list + 64, stream)) ||
        !CU(r, cuStreamSynchronize(stream)) ||
        !GOOD(r, gvm_buffer_copy_out(slots, memory, at + sizeof regions, sizeof slots)))
        return false;
    return check_slots(r, regions, slots, 64);
}

/* The first stream's kernel has ended, and a sync has followed: the CPU sees what its groups wrote, though others run. */
static bool check_some_own(run *r)
{
    static uint32_t values[OWN_MAX];

    if (!GOOD(r, gvm_buffer_copy_out(values, memory, VALUES_AT, r->own_count * sizeof *values)))
        return false;
    for (int i = 0; i < 8; i++) {
        const uint32_t region = (uint32_t)draw(r->own_count);

        if (!use_region(r, r->own, region, values[region], false))
            return false;
    }
    return true;
}

static bool evict_some(run *r, gvm_collection *c, CUstream stream)
{
    const uint32_t count = c == r->shared ? r->shared_count : r->own_count;
    const uint32_t first = (uint32_t)draw(count);

    return GOOD(r, gvm_region_evict(c, first, draw(count - first + 1), stream));
}

/* While kernels run. */
static bool disturb(run *r)
{
    gvm_collection_info of_collection = {.struct_size = sizeof of_collection};
    gvm_space_info of_space = {.struct_size = sizeof of_space};
    gvm_collection *third;

    if (draw(2) == 0 && !GOOD(r, gvm_space_sync(r->space, streams[draw(2)])))
        return false;
    if (draw(2) == 0 && (!GOOD(r, gvm_collection_get_info(r->shared, &of_collection)) ||
                         !GOOD(r, gvm_space_get_info(r->space, &of_space))))
        return false;
    if (draw(4) == 0 &&
        !GOOD(r, gvm_collection_set_policy(draw(2) == 0 ? r->shared : r->own, draw_policy())))
        return false;
    if (draw(4) == 0) {
        if (!GOOD(r, gvm_collection_create(r->space, 100 + draw(100), 10000, NULL, &third)) ||
            (draw(2) == 0 && !GOOD(r, gvm_space_sync(r->space, streams[0]))))
            return false;
        gvm_collection_destroy(third);
    }
    return draw(2) == 0 || (GOOD(r, gvm_space_sync(r->space, streams[0])) && check_some_own(r));
}

/* By kernels or by the copy engine; its stream has other work to do or not. */
static bool prefetch_some(run *r, gvm_collection *c, uint32_t count)
{
    const uint32_t first = (uint32_t)draw(count), some = (uint32_t)draw(count - first) / 4;

    switch (draw(4)) {
    case 0: return GOOD(r, gvm_region_prefetch(c, first, some, streams[draw(2)]));
    case 1: return GOOD(r, gvm_region_prefetch_by_engine(c, first, some, streams[draw(2)]));
    case 2: return GOOD(r, gvm_region_prefetch_by_engine(c, first, some, streams[STREAMS]));
    default: return true;
    }
}

static bool use_by_kernels(run *r)
{
    const uint32_t rounds = r->by == GVM_REGION_BY_THREAD ? 2 : 8;

    for (uint32_t i = 0; i < STREAMS; i++)
        if (draw(3) != 0 && !launch(r, rounds, streams[i], i))
            return false;
    if (draw(2) == 0 && !resolve_some(r, streams[0]))
        return false;
    if (!prefetch_some(r, r->shared, r->shared_count) || !prefetch_some(r, r->own, r->own_count))
        return false;
    if (draw(4) == 0 && !evict_some(r, draw(2) == 0 ? r->shared : r->own, streams[draw(STREAMS)]))
        return false;
    if (draw(2) == 0 && !disturb(r))
        return false;
    for (uint32_t i = 1; i <= STREAMS; i++)
        if (!CU(r, cuStreamSynchronize(streams[i])))
            return false;
    return GOOD(r, gvm_space_sync(r->space, streams[0])) && found_nothing_wrong(r);
}

/* ---- runs */

/* No region is mapped or claimed, and each frame in use has the region that says so. */
static bool check_table(run *r, gvm_collection *c)
{
    const uint64_t base = gvmi_address(gvm_buffer_address(c->meta));
    gvm_region_table t;
    uint64_t words[OWN_MAX];
    gvm_region_frame *frames = malloc((c->frames_max + 1) * sizeof *frames);
    bool fine = frames != NULL && GOOD(r, gvmi_region_read_table(c, &t)) &&
                GOOD(r, gvm_buffer_copy_out(words, c->meta, t.words - base, t.count * sizeof *words)) &&
                GOOD(r, gvm_buffer_copy_out(frames, c->meta, t.frames - base,
                                            c->frames_max * sizeof *frames));

    for (uint32_t i = 0; fine && i < t.count; i++) {
        const uint64_t slot = (words[i] & GVM_REGION_SLOT_MASK) >> GVM_REGION_SLOT_SHIFT;

        if ((words[i] & (GVM_REGION_REFERENCES | GVM_REGION_BUSY)) != 0)
            fine = WRONG(r, "the word of region %u is 0x%llx at the end", i,
                         (unsigned long long)words[i]);
        else if ((words[i] & GVM_REGION_REMOTE) != 0
                     ? slot != t.home + i
                     : (words[i] & GVM_REGION_RESIDENT) != 0 &&
                           (slot >= c->frames_max || frames[slot].owner != i + 1))
            fine = WRONG(r, "region %u is in slot %llu, which is not its own", i,
                         (unsigned long long)slot);
    }
    for (uint64_t i = 0; fine && i < c->frames_max; i++)
        if (frames[i].owner - 1 < t.count &&
            (words[frames[i].owner - 1] &
             (GVM_REGION_RESIDENT | GVM_REGION_REMOTE | GVM_REGION_SLOT_MASK)) !=
                (GVM_REGION_RESIDENT | i << GVM_REGION_SLOT_SHIFT))
            fine = WRONG(r, "frame %llu says that it has region %u", (unsigned long long)i,
                         frames[i].owner - 1);
    free(frames);
    return fine;
}

/* A few runs have large regions, which are copied in pieces. */
static void draw_sizes(run *r)
{
    if (draw(16) == 0) {
        r->shared_count = 8 + (uint32_t)draw(32);
        r->own_count = r->groups * (1 + (uint32_t)draw(2));
        r->region_bytes = 2 * GVM_REGION_PIECE + 8 * draw(8000);
    } else {
        r->shared_count = 20 + (uint32_t)draw(SHARED_MAX - 20);
        r->own_count = r->groups * (1 + (uint32_t)draw(OWN_MAX / 8));
        r->region_bytes = 8 * (1 + draw(draw(2) == 0 ? 64 : 2000));
    }
}

static bool begin(run *r)
{
    gvm_space_options space = gvm_space_options_init();
    gvm_collection_options options = gvm_collection_options_init(), own = options;
    const uint8_t zero = 0;

    r->by = (uint32_t)draw(3);
    r->groups = 1 + (uint32_t)draw(8);
    r->check = (uint32_t)draw(2);
    draw_sizes(r);
    r->policy = draw_policy();
    r->clean_low = (uint32_t)(draw(2) * draw(101));
    r->budget_bytes = draw(8) == 0 ? 2 * MIB : 2 * MIB * (1 + draw(6));
    if (times != 0)
        r->region_bytes = times * r->budget_bytes / (r->shared_count + r->own_count) / 8 * 8;
    space.budget_bytes = r->budget_bytes;
    space.flags = r->check;
    space.wait_ms = 60000 * SLOWNESS;
    options.policy = r->policy;
    options.clean_low = r->clean_low;
    own.clean_low = draw(2) == 0 ? r->clean_low : 0;
    options.budget_bytes = draw(2) == 0 ? 0 : 2 * MIB;
    return GOOD(r, gvm_buffer_fill(memory, 0, 2 * MIB, &zero, 1)) &&
           GOOD(r, gvm_space_create(device, &space, &r->space)) &&
           GOOD(r, gvm_collection_create(r->space, r->shared_count, r->region_bytes, &options,
                                         &r->shared)) &&
           GOOD(r, gvm_collection_create(r->space, r->own_count, r->region_bytes, &own, &r->own)) &&
           fill_regions(r, r->shared, r->shared_count) && fill_regions(r, r->own, r->own_count) &&
           GOOD(r, gvm_space_sync(r->space, NULL));
}

static bool run_once(run *r)
{
    const uint64_t passes = 1 + draw(6);

    if (!begin(r))
        return false;
    for (uint64_t i = 0; i < passes; i++)
        if (!use_by_kernels(r) || !use_regions(r, false) || !GOOD(r, gvm_space_sync(r->space, NULL)))
            return false;
    return use_by_kernels(r) && use_regions(r, true) && check_table(r, r->shared) &&
           check_table(r, r->own);
}

static bool open_device(void)
{
    if (!device_open_with_kernels(gvmi_image_soft_region_kernels, gvmi_image_cuda_region_kernels,
                                  &device, &info, &module))
        return false;
    if (module == NULL)
        return true;
    if (gvmi_cu->cuModuleGetFunction(&function, module, "region_ops") != CUDA_SUCCESS ||
        gvm_buffer_create(device, 2 * MIB, NULL, &memory) != GVM_OK ||
        gvm_buffer_commit(memory, 0, 2 * MIB) != GVM_OK)
        return false;
    for (uint32_t i = 0; i <= STREAMS; i++)
        if (gvmi_cu->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    char *unit = (char *)"";
    const uint64_t wanted = argc > 1 ? strtoull(argv[1], &unit, 0) : OPERATIONS;
    const uint64_t seed = random_seed(argc > 2 ? argv[2] : NULL);
    const int64_t begun_ns = gvmi_now_ns();
    static run r;
    uint64_t runs = 0;
    bool fine = true;

    state = seed;
    times = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
    fixture_machine_default("memory=256MiB,sms=16,warp=%u,switches=%llu", draw(2) == 0 ? 32 : 8,
                            (unsigned long long)draw(4));
    if (!open_device())
        tap_bail_out("there is no device");
    if (module == NULL)
        return tap_skip_all("this build has no kernels for real GPUs");
    while (fine && (*unit == 's' ? (uint64_t)(gvmi_now_ns() - begun_ns) / (1000 * GVMI_NS_PER_MS)
                                 : maps) < wanted) {
        memset(&r, 0, sizeof r);
        fine = run_once(&r);
        if (!fine)
            printf("# run %llu of seed %llu: %s\n# %u + %u regions of %llu bytes, budget %llu, policy %d, by %u, check %u, clean %u\n",
                   (unsigned long long)runs, (unsigned long long)seed, r.problem, r.shared_count,
                   r.own_count, (unsigned long long)r.region_bytes,
                   (unsigned long long)r.budget_bytes, (int)r.policy, r.by, r.check, r.clean_low);
        gvm_space_destroy(r.space);
        runs++;
    }
    tap_result(fine, "every_map_finds_what_was_written_last (%llu maps in %llu runs, seed %llu)",
               (unsigned long long)maps, (unsigned long long)runs, (unsigned long long)seed);
    gvm_buffer_destroy(memory);
    gvm_device_close(device);
    return tap_finish();
}
