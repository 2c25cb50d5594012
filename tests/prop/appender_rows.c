/* Kernels that append items of random size, from many SMs at once, and every byte of what they
 * wrote.
 *
 *     appender_rows [RUNS [SEED]]
 *
 * Goal: whatever memory there is and whenever it comes, each item is written once, in a place of its
 * own, whole; rows and bytes are accounted for to the last; the rows of a thread, warp or block keep
 * their order. Method: each run draws sizes, limits and ways to claim. Kernels log where each item
 * went and keep their position; what they could not write the next launch does, behind what is there
 * or in a fresh buffer, until all is done. Meanwhile the driver may fail (once or for ever, until the
 * kernel has ended) or be slow, even slower than kernels wait. Every filled buffer is copied out and
 * compared with logs and items (appender_check.c).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "appender/appender.h"
#include "base/address.h"
#include "base/clock.h"
#include "driver/driver.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tests/prop/appender_check.h"

#define CHUNK (2 * MIB)
#define ITEMS_MAX 40000u
#define WORKERS_MAX (1u << 17)
#define KERNELS_MAX 3
#define TOTAL_BYTES (20 * MIB) /* about what a run writes */
#define ROUNDS_MAX 3000        /* launches of one run: more means that it does not get on */
#define CROWD 4                /* appenders at once */
#define HISTORY 6              /* launches told when a run fails */
#define RUNS 48

extern const unsigned char gvmi_image_soft_appender_kernels[];
extern const unsigned char *const gvmi_image_cuda_appender_kernels;

/* One thread's own. */
typedef struct lane {
    gvm_device *device;
    gvm_device_info info;
    CUmodule module;
    CUfunction function;
    CUstream streams[KERNELS_MAX];
    gvm_buffer *logs, *positions, *answers;
    append_log *host_logs;
    uint64_t state;
    bool faults; /* may arm the driver's, which are the process's */
    char problem[512];
} lane;

/* What came of one begin, its kernels and its finish. */
typedef struct launched {
    gvm_status status;
    gvm_appender_result result;
    uint64_t answers[GVM_APPEND_INVALID + 1];
    gvm_append_words words; /* as finish read them */
    uint64_t begin_us, whole_us;
    bool armed, fresh; /* faults were; nothing was written in the buffer before */
    bool ran;
    uint64_t number;
} launched;

/* What a run is at. */
typedef struct run {
    lane *l;
    plan plan;
    gvm_appender *appender;
    gvm_append append;
    uint32_t launch_number;
    uint64_t written;               /* rows and bytes in the buffer, as a position's value */
    uint64_t rows, bytes;           /* in the buffer, as of the last finish */
    uint64_t last_front, last_back; /* bytes that the last launch wrote, if that is known */
    bool stuck;                     /* it was granted nothing */
    uint64_t round_count;
    launched rounds[HISTORY]; /* the latest; round n is at n % HISTORY */
} run;

static uint64_t seed;
static atomic_ullong launches, buffers, refusals, late;

/* ---- a driver that is slow now and then */

static gvmi_driver table;
static const gvmi_driver *real;
static atomic_uint slow_us; /* per handle; 0: as fast as it is */

static CUresult create_slowly(CUmemGenericAllocationHandle *handle, size_t bytes,
                              const CUmemAllocationProp *prop, unsigned long long flags)
{
    pause_us(atomic_load(&slow_us));
    return real->cuMemCreate(handle, bytes, prop, flags);
}

/* ---- small things */

static uint64_t draw(lane *l, uint64_t bound)
{
    l->state += 0x632be59bd9b4e019u;
    return append_mix(l->state) % bound;
}

static bool one_in(lane *l, uint64_t n)
{
    return draw(l, n) == 0;
}

#define LLU(n) ((unsigned long long)(n))
#define WRONG(l, ...) (snprintf((l)->problem, sizeof(l)->problem, __VA_ARGS__), false)

static bool good(lane *l, gvm_status status, const char *call)
{
    gvm_error error;

    if (status == GVM_OK)
        return true;
    gvm_error_last(&error);
    return WRONG(l, "%s: %s: %s", call, gvm_status_name(status), error.text);
}
#define GOOD(l, call) good(l, call, #call)

static bool cu_good(lane *l, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS || WRONG(l, "%s: CUresult %d", call, (int)result);
}
#define CU(l, call) cu_good(l, gvmi_cu->call, #call)

static bool make_array(lane *l, uint64_t bytes, gvm_buffer **out)
{
    return GOOD(l, gvm_buffer_create(l->device, bytes, NULL, out)) &&
           GOOD(l, gvm_buffer_commit(*out, 0, bytes));
}

static bool lane_begin(lane *l, uint64_t lane_seed, bool faults)
{
    *l = (lane){.info.struct_size = sizeof l->info, .state = lane_seed, .faults = faults};
    l->host_logs = calloc(ITEMS_MAX, sizeof *l->host_logs);
    if (l->host_logs == NULL || !GOOD(l, gvm_device_open(0, &l->device)) ||
        !GOOD(l, gvm_device_get_info(l->device, &l->info)) || !GOOD(l, gvmi_device_enter(l->device)))
        return false;
    for (int i = 0; i < KERNELS_MAX; i++)
        if (!CU(l, cuStreamCreate(&l->streams[i], CU_STREAM_NON_BLOCKING)))
            return false;
    return CU(l, cuModuleLoadData(&l->module, l->info.software ? gvmi_image_soft_appender_kernels
                                                               : gvmi_image_cuda_appender_kernels)) &&
           CU(l, cuModuleGetFunction(&l->function, l->module, "append_rows")) &&
           make_array(l, ITEMS_MAX * sizeof(append_log), &l->logs) &&
           make_array(l, KERNELS_MAX * WORKERS_MAX * 8ull, &l->positions) &&
           make_array(l, 64, &l->answers);
}

static void lane_end(lane *l)
{
    gvm_buffer_destroy(l->logs);
    gvm_buffer_destroy(l->positions);
    gvm_buffer_destroy(l->answers);
    if (l->module != NULL)
        gvmi_cu->cuModuleUnload(l->module);
    for (int i = 0; i < KERNELS_MAX; i++)
        if (l->streams[i] != NULL)
            gvmi_cu->cuStreamDestroy(l->streams[i]);
    gvmi_device_leave();
    gvm_device_close(l->device);
    free(l->host_logs);
}

/* ---- drawing a run */

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Items of any group that claims together fit a fresh buffer, at most a quarter at each end. */
static void draw_sizes(lane *l, plan *p, uint64_t limit)
{
    const uint64_t group = plan_group(p);
    const uint64_t quarter = limit / 4 / group;
    uint64_t each;

    p->row_bytes = APPEND_ROW_BYTES_MIN + 8 * draw(l, 28);
    if (one_in(l, 8)) /* rows up to more than a chunk */
        p->row_bytes = lesser(quarter, CHUNK / 2 + draw(l, 2 * CHUNK)) / 8 * 8;
    p->rows_max = (uint32_t)lesser(1 + draw(l, one_in(l, 4) ? 4000 : 40), quarter / p->row_bytes);
    p->bytes_max = (uint32_t)lesser(draw(l, one_in(l, 4) ? 300000 : 3000), quarter);
    if (one_in(l, 8)) /* and data of the back: what the groups of a real GPU take together */
        p->bytes_max = (uint32_t)lesser(quarter, draw(l, 3 * CHUNK));
    if (one_in(l, 8))
        p->bytes_max = 0;
    if (one_in(l, 8))
        p->rows_max = 0;
    each = (p->rows_max * p->row_bytes + p->bytes_max) / 10 + 64;
    p->items = 1 + draw(l, lesser(ITEMS_MAX, 2 * TOTAL_BYTES / each));
}

/* A block of so many threads, in one to three dimensions; z is at most 8 of the 64 allowed. */
static void draw_shape(lane *l, plan *p)
{
    const unsigned z = p->block_threads >= 32 ? (unsigned)draw(l, 4) : 0;
    const unsigned y = p->block_threads >= 32 && one_in(l, 2) ? (unsigned)draw(l, 3) : 0;

    p->block[2] = 1u << z;
    p->block[1] = 1u << y;
    p->block[0] = p->block_threads >> z >> y;
}

static plan draw_plan(lane *l)
{
    plan p = {.seed = draw(l, UINT64_MAX), .options.struct_size = sizeof p.options};
    gvm_appender_options *o = &p.options;
    uint64_t limit;

    p.mode = (uint32_t)draw(l, APPEND_MODES);
    p.lanes = (unsigned)l->info.warp_size;
    p.block_threads = p.lanes << draw(l, 4);
    while (p.block_threads > (unsigned)l->info.block_threads_max)
        p.block_threads /= 2;
    draw_shape(l, &p);
    p.blocks = 1 + (unsigned)draw(l, l->info.software ? 128 : 264);
    p.kernels = one_in(l, 3) ? 2 + (uint32_t)draw(l, KERNELS_MAX - 1) : 1;
    p.gather = (uint32_t)draw(l, 2);
    o->chunk_bytes = one_in(l, 2) ? CHUNK << draw(l, 5) : CHUNK;
    o->align_bytes = one_in(l, 2) ? 0 : 16u << draw(l, 9);
    o->wait_ms = 100000;
    if (one_in(l, 2))
        o->step_bytes = (1 + draw(l, 8)) * CHUNK;
    if (one_in(l, 2))
        o->ahead_bytes = one_in(l, 2) ? GVM_BYTES_NONE : draw(l, 16 * CHUNK);
    p.reserve_bytes = (one_in(l, 3) ? 4 + draw(l, 8) : 64 + draw(l, 500)) * o->chunk_bytes;
    if (one_in(l, 2))
        o->budget_bytes = (one_in(l, 4) ? 2 : 4) * o->chunk_bytes + draw(l, 16 * CHUNK);
    limit = o->budget_bytes != 0 ? lesser(o->budget_bytes, p.reserve_bytes) : p.reserve_bytes;
    draw_sizes(l, &p, lesser(limit, 128 * CHUNK));
    return p;
}

/* ---- running it */

static bool launch(run *r, uint32_t kernel, uint64_t crash)
{
    const plan *p = &r->plan;
    const uint64_t part = (p->items + p->kernels - 1) / p->kernels, first = kernel * part;
    append_rows_params params = {
        .append = r->append,
        .logs = gvmi_address(gvm_buffer_address(r->l->logs)) + first * sizeof(append_log),
        .positions = gvmi_address(gvm_buffer_address(r->l->positions)) + kernel * WORKERS_MAX * 8ull,
        .answers = gvmi_address(gvm_buffer_address(r->l->answers)),
        .first = first,
        .items = first < p->items ? lesser(part, p->items - first) : 0,
        .seed = p->seed,
        .crash = crash,
        .mode = p->mode,
        .rows_max = p->rows_max,
        .bytes_max = p->bytes_max,
        .launch_number = r->launch_number,
        .gather = p->gather,
    };
    void *arguments[] = {&params};

    return CU(r->l, cuLaunchKernel(r->l->function, p->blocks, 1, 1, p->block[0], p->block[1],
                                   p->block[2], 0, r->l->streams[kernel], arguments, NULL));
}

/* The driver's faults until the kernels have ended. */
static bool arm(lane *l)
{
    static const gvmi_call calls[] = {gvmi_call_cuMemCreate, gvmi_call_cuMemMap,
                                      gvmi_call_cuMemSetAccess};

    if (!l->faults || !one_in(l, 3))
        return false;
    gvmi_fault_arm(calls[draw(l, 3)], 1 + draw(l, 12), one_in(l, 2),
                   one_in(l, 2) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
    return true;
}

static bool read_array(lane *l, gvm_buffer *buffer, void *out, uint64_t bytes)
{
    return GOOD(l, gvm_buffer_copy_out(out, buffer, 0, bytes));
}

/* Were the answers what finish says? */
static bool check_answers(run *r, gvm_status status, const gvm_appender_result *result)
{
    uint64_t *answers = r->rounds[r->round_count % HISTORY].answers;

    if (!read_array(r->l, r->l->answers, answers, sizeof r->rounds[0].answers))
        return false;
    if (answers[GVM_APPEND_INVALID] != 0)
        return WRONG(r->l, "a claim answered INVALID");
    if (status == GVM_E_TIMEOUT)
        return answers[GVM_APPEND_LATE] != 0 || WRONG(r->l, "GVM_E_TIMEOUT, and no claim was LATE");
    if (answers[GVM_APPEND_LATE] != 0)
        return WRONG(r->l, "a claim was LATE, and finish did not say so");
    if (result->complete != (answers[GVM_APPEND_FULL] == 0) ||
        (result->reason == GVM_OK) != (result->complete == 1))
        return WRONG(r->l, "complete is %d with reason %s, and %llu claims were FULL", result->complete,
                     gvm_status_name(result->reason), (unsigned long long)answers[GVM_APPEND_FULL]);
    return true;
}

/* What begin commits at an end that has nothing, of chunks that are graded or are all of the smallest
 * size: as much as the last launch wrote there, in whole chunks, up to one of the usual size. */
static uint64_t first_bytes(const plan *p, uint64_t last)
{
    uint64_t edge = CHUNK;

    while (edge < last && edge < p->options.chunk_bytes)
        edge *= 4;
    return lesser(edge, p->options.chunk_bytes);
}

/* Nothing fails, nobody else takes memory, the budget is ample, and the first row asks for no more. */
static bool check_begun(const run *r, bool armed)
{
    const plan *p = &r->plan;
    const uint64_t budget = p->options.budget_bytes;
    gvm_appender_info info = {.struct_size = sizeof info};

    if (!r->l->faults || armed || r->stuck || r->rows + r->bytes > 0 ||
        lesser(budget != 0 ? budget : p->reserve_bytes, p->reserve_bytes) < 16 * p->options.chunk_bytes ||
        p->row_bytes > CHUNK / 8)
        return true;
    if (!GOOD(r->l, gvm_appender_get_info(r->appender, &info)))
        return false;
    if (r->round_count > 0 && (info.front_bytes > first_bytes(p, r->last_front) ||
                               info.back_bytes > first_bytes(p, r->last_back)))
        return true; /* of a launch before in the same buffer, which wrote nothing of what it had */
    return (info.front_bytes == first_bytes(p, r->last_front) &&
            info.back_bytes == first_bytes(p, r->last_back)) ||
           WRONG(r->l, "begin has %llu and %llu bytes, after a launch that wrote %llu and %llu",
                 LLU(info.front_bytes), LLU(info.back_bytes), LLU(r->last_front), LLU(r->last_back));
}

static void remember(run *r, const gvm_appender_result *result)
{
    r->last_front = (result->rows - r->rows) * r->plan.row_bytes;
    r->last_back = result->data_bytes - r->bytes;
    r->stuck = !result->complete && r->last_front + r->last_back == 0;
    r->rows = result->rows;
    r->bytes = result->data_bytes;
}

/* One begin, all kernels, one finish. */
static bool go_round(run *r, gvm_appender_result *result)
{
    lane *l = r->l;
    launched *now = &r->rounds[r->round_count % HISTORY];
    const uint8_t zero = 0;
    int64_t start_us;
    gvm_status status;
    bool armed;

    *now = (launched){.fresh = r->written == 0, .ran = true, .number = r->round_count};
    r->append.struct_size = sizeof r->append;
    result->struct_size = sizeof *result;
    if (!GOOD(l, gvm_buffer_fill(l->answers, 0, 64, &zero, 1)))
        return false;
    armed = arm(l);
    now->armed = armed;
    start_us = gvmi_now_us();
    if (!GOOD(l, gvm_appender_begin(r->appender, &r->append)))
        return false;
    now->begin_us = (uint64_t)(gvmi_now_us() - start_us);
    if (!check_begun(r, armed))
        return false;
    for (uint32_t k = 0; k < r->plan.kernels; k++)
        if (!launch(r, k, UINT64_MAX))
            return false;
    for (uint32_t k = 0; k + 1 < r->plan.kernels; k++)
        if (!CU(l, cuStreamSynchronize(l->streams[k])))
            return false;
    status = gvm_appender_finish(r->appender, l->streams[r->plan.kernels - 1], result);
    if (armed)
        gvmi_fault_arm(gvmi_call_cuMemCreate, 0, false, CUDA_SUCCESS);
    atomic_fetch_add(&launches, r->plan.kernels);
    now->whole_us = (uint64_t)(gvmi_now_us() - start_us);
    now->status = status;
    now->result = *result;
    now->words = *r->appender->staging;
    if (status == GVM_E_TIMEOUT) {
        gvm_appender_info info = {.struct_size = sizeof info};

        if (!GOOD(l, gvm_appender_get_info(r->appender, &info)))
            return false;
        *result = (gvm_appender_result){.rows = info.rows, .data_bytes = info.data_bytes};
        now->result = *result;
        atomic_fetch_add(&late, 1);
    } else if (!GOOD(l, status)) {
        return false;
    }
    remember(r, result);
    atomic_fetch_add(&refusals, result->complete ? 0 : 1);
    return check_answers(r, status, result) &&
           (gvmi_appender_check(r->appender) || WRONG(l, "the appender's invariants do not hold"));
}

static bool check_buffer(run *r, gvm_buffer *buffer, const gvm_appender_result *result)
{
    lane *l = r->l;
    const uint64_t front_bytes = result->rows * r->plan.row_bytes;
    unsigned char *front = malloc(front_bytes + 1), *back = malloc(result->data_bytes + 1);
    gvm_buffer_info info = {.struct_size = sizeof info};
    written w = {.plan = &r->plan,
                 .logs = l->host_logs,
                 .launch_number = r->launch_number,
                 .rows = result->rows,
                 .bytes = result->data_bytes,
                 .front = front,
                 .back = back};
    bool fine = front != NULL && back != NULL && GOOD(l, gvm_buffer_get_info(buffer, &info));

    w.reserve_bytes = info.reserve_bytes;
    fine = fine && read_array(l, l->logs, l->host_logs, r->plan.items * sizeof(append_log)) &&
           GOOD(l, gvm_buffer_copy_out(front, buffer, 0, front_bytes)) &&
           GOOD(l, gvm_buffer_copy_out(back, buffer, info.reserve_bytes - result->data_bytes,
                                       result->data_bytes)) &&
           written_check(&w, l->problem);
    free(front);
    free(back);
    atomic_fetch_add(&buffers, 1);
    return fine;
}

/* A launch that was granted nothing of an empty buffer because its budget was spent: the next gets
 * on, however the threads of the kernels came. Not if the driver fails in it: its "out of memory" for a mapping is
 * GVM_E_LIMIT too. */
static bool check_progress(run *r, const gvm_appender_result *result)
{
    const launched *now = &r->rounds[r->round_count % HISTORY];
    const launched *before = &r->rounds[(r->round_count + HISTORY - 1) % HISTORY];

    r->written = result->rows + result->data_bytes;
    if (r->written == 0 && !result->complete && result->reason == GVM_E_LIMIT && now->fresh &&
        !now->armed && r->round_count > 0 && before->fresh && before->status == GVM_OK &&
        before->result.rows + before->result.data_bytes == 0 && before->result.reason == GVM_E_LIMIT)
        return WRONG(r->l, "two launches in a row were granted nothing of an empty buffer");
    r->round_count++;
    return true;
}

/* Until every item is written; each buffer is taken when it is full, or now and then before. */
static bool run_to_the_end(run *r)
{
    lane *l = r->l;
    gvm_appender_result result;

    r->launch_number = 1;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        gvm_buffer *buffer;
        bool fine;

        if (!go_round(r, &result) || !check_progress(r, &result))
            return false;
        /* On behind what is there, above all where memory comes later than kernels wait: a fresh
         * buffer would have to wait from the start. */
        if (!result.complete && result.reason != GVM_E_LIMIT &&
            !one_in(l, result.reason == GVM_OK ? 12 : 2))
            continue;
        if (!GOOD(l, gvm_appender_take(r->appender, &buffer)))
            return false;
        fine = check_buffer(r, buffer, &result);
        gvm_buffer_destroy(buffer);
        if (!fine || result.complete)
            return fine;
        r->written = r->rows = r->bytes = 0;
        r->launch_number++;
    }
    return WRONG(l, "not done after %d launches", ROUNDS_MAX);
}

static bool all_written_once(run *r)
{
    for (uint64_t i = 0; i < r->plan.items; i++)
        if (r->l->host_logs[i].times != 1)
            return WRONG(r->l, "item %llu of %llu was written %u times", (unsigned long long)i,
                         (unsigned long long)r->plan.items, (unsigned)r->l->host_logs[i].times);
    return true;
}

/* Enough to know the cause without seeing it again: what was drawn, and the last launches. */
static void tell(const run *r)
{
    const plan *p = &r->plan;
    const gvm_appender_options *o = &p->options;
    const uint64_t first = r->round_count > HISTORY - 1 ? r->round_count - (HISTORY - 1) : 0;

    flockfile(stdout);
    printf("# %s\n", r->l->problem);
    printf("#   drawn: mode %u, %u kernels of %u blocks of %u x %u x %u, %llu items of up to %u rows of %llu and "
           "%u bytes, gather %u\n",
           p->mode, p->kernels, p->blocks, p->block[0], p->block[1], p->block[2], LLU(p->items),
           p->rows_max, LLU(p->row_bytes), p->bytes_max, p->gather);
    printf("#   reserve %llu, chunk %llu, budget %llu, step %llu, ahead %llu, align %u, wait %u ms, "
           "slow %u us, faults %d, launch %u, plan's seed %llu\n",
           LLU(p->reserve_bytes), LLU(o->chunk_bytes), LLU(o->budget_bytes), LLU(o->step_bytes),
           LLU(o->ahead_bytes), o->align_bytes, o->wait_ms, atomic_load(&slow_us), r->l->faults,
           r->launch_number, LLU(p->seed));
    for (uint64_t i = first; i <= r->round_count; i++) {
        const launched *n = &r->rounds[i % HISTORY];
        const gvm_append_words *w = &n->words;

        if (!n->ran || n->number != i)
            continue; /* it failed between launches */
        printf("#   launch %llu: %s, rows %llu, bytes %llu, complete %d, reason %s, FULL %llu, LATE "
               "%llu, INVALID %llu; begin %llu us, to finish %llu us, %llu commits of %llu us in all, "
               "first %llu us; armed %d, fresh %d\n",
               LLU(i), gvm_status_name(n->status), LLU(n->result.rows), LLU(n->result.data_bytes),
               n->result.complete, gvm_status_name(n->result.reason), LLU(n->answers[GVM_APPEND_FULL]),
               LLU(n->answers[GVM_APPEND_LATE]), LLU(n->answers[GVM_APPEND_INVALID]),
               LLU(n->begin_us), LLU(n->whole_us), LLU(n->result.commits), LLU(n->result.commit_us),
               LLU(n->result.first_us), n->armed, n->fresh);
        printf("#     cursor %llx, ready %llx, end %llx, asked %llx, acked %llx, need %llx, published "
               "%llx, state %u, poller %u\n",
               LLU(w->cursor), LLU(w->ready), LLU(w->end), LLU(w->asked), LLU(w->acked),
               LLU(w->need), LLU(w->published), w->state, w->poller);
    }
    fflush(stdout);
    funlockfile(stdout);
}

static bool begin_run(run *r, lane *l, const plan *p)
{
    const uint8_t zero = 0;

    *r = (run){.l = l, .plan = *p};
    return GOOD(l, gvm_buffer_fill(l->logs, 0, ITEMS_MAX * sizeof(append_log), &zero, 1)) &&
           GOOD(l, gvm_buffer_fill(l->positions, 0, KERNELS_MAX * WORKERS_MAX * 8ull, &zero, 1)) &&
           GOOD(l, gvm_appender_create(l->device, r->plan.row_bytes, r->plan.reserve_bytes,
                                       &r->plan.options, &r->appender));
}

static bool one_run(lane *l)
{
    plan p = draw_plan(l);
    run r;
    bool fine;

    if (l->faults && one_in(l, 4)) {
        atomic_store(&slow_us, 100 + (unsigned)draw(l, 3000));
        if (one_in(l, 2)) { /* slower than kernels wait */
            atomic_store(&slow_us, 8000);
            p.options.wait_ms = 2;
        }
    }
    fine = begin_run(&r, l, &p) && run_to_the_end(&r) && all_written_once(&r);
    if (!fine)
        tell(&r);
    gvm_appender_destroy(r.appender);
    if (l->faults)
        atomic_store(&slow_us, 0);
    return fine;
}

/* ---- the tests */

static unsigned run_count;

static void report(const char *name, bool fine, const char *problem)
{
    if (!tap_result(fine, "%s", name))
        printf("# seed %llu: %s\n", (unsigned long long)seed, problem);
}

static bool start_driver(void)
{
    int32_t count;

    setenv("GVMEM_CHECK", "1", 1);
    setenv("GVMEM_FAULT", "*:18446744073709551615", 1); /* stacked; never reached until armed */
    if (gvm_device_count(&count) != GVM_OK)
        return false;
    real = gvmi_cu;
    table = *real;
    table.cuMemCreate = create_slowly;
    gvmi_driver_install(&table);
    return true;
}

/* Asked in a child: the first test wants to fork before there is a driver. */
static bool has_kernels(void)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        gvm_driver_info info = {.struct_size = sizeof info};

        _exit(gvm_driver_get_info(&info) == GVM_OK && !info.software &&
              gvmi_image_cuda_appender_kernels == NULL);
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid || status == 0;
}

/* A kernel writes where nothing is: its appender can be destroyed, and leaves nothing. */
static int die_half_way(void)
{
    const plan p = {.seed = seed,
                    .row_bytes = 64,
                    .reserve_bytes = 64 * CHUNK,
                    .items = 2000,
                    .options = {.struct_size = sizeof p.options, .chunk_bytes = CHUNK},
                    .mode = APPEND_BY_THREAD,
                    .rows_max = 300,
                    .bytes_max = 3000,
                    .kernels = 1,
                    .blocks = 64,
                    .block_threads = 1,
                    .lanes = 1,
                    .block = {1, 1, 1}};
    gvm_appender_result result = {.struct_size = sizeof result};
    gvmi_check_holdings before, after;
    lane l;
    run r;
    bool fine;

    fine = start_driver() && lane_begin(&l, seed, false);
    before = gvmi_check_held();
    fine = fine && begin_run(&r, &l, &p);
    r.append.struct_size = sizeof r.append;
    r.launch_number = 1;
    fine = fine && GOOD(&l, gvm_appender_begin(r.appender, &r.append)) && launch(&r, 0, 700);
    if (fine && gvm_appender_finish(r.appender, l.streams[0], &result) != GVM_E_LOST)
        fine = WRONG(&l, "finish did not say GVM_E_LOST");
    if (fine && gvm_appender_finish(r.appender, l.streams[0], &result) != GVM_E_LOST)
        fine = WRONG(&l, "finish did not say GVM_E_LOST again");
    gvm_appender_destroy(r.appender);
    if (fine && gvm_device_trim(l.device, 0) != GVM_OK)
        fine = WRONG(&l, "what is cached was not given back");
    after = gvmi_check_held();
    if (fine && (after.handles != before.handles || after.mappings != before.mappings ||
                 after.reservations != before.reservations))
        fine = WRONG(&l, "%llu handles more than before",
                     (unsigned long long)(after.handles - before.handles));
    if (!fine)
        printf("# in the child: %s\n", l.problem);
    fflush(stdout);
    return fine ? 0 : 1;
}

static bool test_death(void)
{
    int status = -1;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(die_half_way());
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void *crowd_member(void *arg)
{
    lane *l = arg;
    unsigned left = run_count / CROWD + 1;
    bool fine = lane_begin(l, seed + (uint64_t)(uintptr_t)l->problem[0], false);

    while (fine && left-- > 0)
        fine = one_run(l);
    lane_end(l);
    return fine ? NULL : l;
}

/* Several appenders on one device, each with kernels of its own, by a thread of its own. */
static bool test_crowd(char problem[512])
{
    static lane lanes[CROWD];
    pthread_t threads[CROWD];
    bool fine = true;

    for (int i = 0; i < CROWD; i++) {
        lanes[i].problem[0] = (char)(i + 1); /* its seed */
        if (pthread_create(&threads[i], NULL, crowd_member, &lanes[i]) != 0)
            return false;
    }
    for (int i = 0; i < CROWD; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        if (failed != NULL) {
            memcpy(problem, lanes[i].problem, sizeof lanes[i].problem);
            fine = false;
        }
    }
    return fine;
}

static bool test_alone(char problem[512])
{
    static lane l;
    bool fine = lane_begin(&l, seed, true);

    for (unsigned i = 0; i < run_count && fine; i++)
        fine = one_run(&l);
    memcpy(problem, l.problem, sizeof l.problem);
    lane_end(&l);
    return fine;
}

int main(int argc, char **argv)
{
    char problem[512] = "";

    run_count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : RUNS;
    seed = random_seed(argc > 2 ? argv[2] : NULL);
    if (argc > 3 || run_count == 0) {
        fprintf(stderr, "usage: appender_rows [RUNS [SEED]]\n");
        return 2;
    }
#ifdef __SANITIZE_THREAD__ /* to which each fiber of each SM is a thread with tables of its own: minutes for 4096 */
    fixture_machine_default("memory=2GiB,sms=64,threads=8,warp=4");
#else
    fixture_machine_default("memory=2GiB,sms=64");
#endif
    if (!has_kernels())
        return tap_skip_all("this build has no kernels for real GPUs");
    tap_plan(4);
    printf("# seed %llu\n", (unsigned long long)seed);
    report("kernel_that_faults_leaves_nothing_behind", test_death(), "see above");
    if (!start_driver())
        tap_bail_out("no driver");
    report("items_are_written_once_and_whole", test_alone(problem), problem);
    report("appenders_at_once_do_not_mix", test_crowd(problem), problem);
    printf("# %llu launches, %llu buffers, %llu ends before the end, %llu of them late\n",
           atomic_load(&launches), atomic_load(&buffers), atomic_load(&refusals), atomic_load(&late));
    report("driver_was_used_as_it_wants", gvmi_check_violations() == 0, "see stderr");
    return tap_finish();
}
