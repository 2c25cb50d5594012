/* See executor.h, run.h: a query.
 *
 * Rows go through the scan in batches of about 10 ms, so that a query ends soon after its backend has gone, and
 * can leave its turn to others (gquery_batch_look()). A batch that is not the first one is as large as the time of the one before
 * says.
 *
 * A batch is one launch. But where doubles are added up in one group, it is several of UNIT rows each: which rows a
 * launch has decides how a block's sums are rounded, and that must not depend on time. With distances it is
 * several, too (distance.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "query/run.h"

#define BATCH_NS 10000000.0
/* Rows of the first batch: a few ms at most. */
#define UNIT_SOFT (UINT64_C(64) << 10)
#define UNIT_GPU (UINT64_C(16) << 20)
#define UNIT_GROUPS (UINT64_C(1) << 20) /* which may soon be too many for their table */
#define PATTERN_STEPS 16384.0           /* of a row: with more, the first batch has fewer rows */
#define SLOTS_FIRST (UINT64_C(16) << 10)
#define SLOTS_LEAST 256
#define SLOTS_MOST (UINT64_C(1) << 32)
#define SLOTS_GROWTH 16 /* where they were too few */
#define LAUNCH_BLOCKS 8 /* of an SM, for kernels that only go through memory */

/* ---- failures */

bool gquery_succeed(gquery_query *q, gvm_status status, const char *what)
{
    if (status != GVM_OK)
        gquery_answer_status(q->answer, status, what);
    return status == GVM_OK;
}

bool gquery_check_call(gquery_query *q, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ||
           gquery_succeed(q, gvm_driver_error((int32_t)result, call, "%s has failed", call),
                          "cannot run the query");
}

bool gquery_refuse(gquery_query *q, const char *what)
{
    gquery_answer(q->answer, GQUERY_ERROR, "XX000", "the query for the GPU is malformed: %s", what);
    return false;
}

/* ---- memory */

uint64_t gquery_room(const gquery_query *q)
{
    return q->c->query.scratch_bytes_max - q->scratch_bytes;
}

/* The query's scratch memory has a bound. */
bool gquery_take_block(gquery_query *q, uint64_t bytes, gquery_block *block)
{
    if (gquery_scratch_size(bytes) > gquery_room(q)) {
        gquery_answer(q->answer, GQUERY_NO_ROOM, "53200",
                      "the query needs more than %llu bytes of scratch memory on the GPU",
                      (unsigned long long)q->c->query.scratch_bytes_max);
        return false;
    }
    if (bytes >= GQUERY_OBJECT_LEAST)
        gquery_await_other(q->c);
    if (!gquery_succeed(q, gquery_scratch_take(bytes, block), "cannot run the query"))
        return false;
    if (bytes >= GQUERY_OBJECT_LEAST)
        (void)gquery_is_closed(q->c); /* it goes on */
    q->scratch_bytes += block->bytes;
    if (q->scratch_bytes > q->cost.scratch_bytes)
        q->cost.scratch_bytes = q->scratch_bytes;
    return true;
}

void gquery_give_block(gquery_query *q, gquery_block *block)
{
    q->scratch_bytes -= block->bytes;
    gquery_scratch_give(block);
}

/* Whole words, in which the bits behind the last byte are 0. */
static bool send_dead(gquery_query *q)
{
    const gquery_span span = q->c->query.tables[0].dead;
    const uint8_t *bytes = gquery_at(q->c, span);
    const uint64_t padded = (span.bytes + 7) / 8 * 8;
    uint64_t to = q->lane->device + GQUERY_DEAD_AT;

    if (bytes == NULL)
        return gquery_refuse(q, "a bitmap leaves the file");
    if (span.bytes == 0)
        return true;
    if (span.bytes <= GQUERY_DEAD_BYTES) {
        memset(q->lane->host + GQUERY_DEAD_AT + padded - 8, 0, 8);
        memcpy(q->lane->host + GQUERY_DEAD_AT, bytes, span.bytes);
        bytes = q->lane->host + GQUERY_DEAD_AT;
    } else {
        if (!gquery_take_block(q, padded, &q->dead) ||
            !gquery_check_call(
                q, gvmi_cu->cuMemsetD8Async(q->dead.address + padded - 8, 0, 8, q->lane->stream),
                "cuMemsetD8Async"))
            return false;
        to = q->dead.address;
    }
    q->scan.dead = to;
    q->scan.dead_rows = span.bytes * 8;
    return gquery_check_call(q, gvmi_cu->cuMemcpyHtoDAsync(to, bytes, span.bytes, q->lane->stream),
                             "cuMemcpyHtoDAsync");
}

static uint32_t slot_words(const gquery_query *q)
{
    return 1 + q->shape.keys + q->program->state_words;
}

/* Whether there is room for q->slots, and for all groups of them behind each other, as collect_groups() puts them. */
static bool has_room_for_groups(const gquery_query *q)
{
    const uint64_t slot_bytes = slot_words(q) * sizeof(uint64_t), room = gquery_room(q);
    const uint64_t table = gquery_scratch_size(q->slots * slot_bytes);

    return table <= room && gquery_scratch_size(q->slots / 2 * slot_bytes) <= room - table;
}

/* For a table of q->slots: of fewer, where the rows cannot need so many or the query's bound does not allow them.
 * Half of the slots are used. `full` slots have been too few. */
static bool take_groups(gquery_query *q, uint64_t full)
{
    const uint64_t rows = q->matches > 1 ? UINT64_MAX : q->rows;

    while (q->slots > SLOTS_LEAST &&
           (q->slots / 4 >= rows || q->slots > SLOTS_MOST || !has_room_for_groups(q)))
        q->slots /= 2;
    if (q->slots > full && has_room_for_groups(q))
        return gquery_take_block(q, q->slots * slot_words(q) * sizeof(uint64_t), &q->groups);
    gquery_answer(q->answer, GQUERY_NO_ROOM, "53200",
                  "the groups need more than %llu bytes of scratch memory on the GPU, or are too many",
                  (unsigned long long)q->c->query.scratch_bytes_max);
    return false;
}

bool gquery_send_control(gquery_query *q, const gquery_control *control)
{
    *gquery_control_of(q) = *control;
    memcpy(q->lane->host, q->program, sizeof *q->program);
    q->scan.tests = gquery_fuse((gquery_program *)q->lane->host);
    gquery_set_resumes((const gquery_program *)q->lane->host, q->scan.hashes);
    return gquery_check_call(q,
                             gvmi_cu->cuMemcpyHtoDAsync(q->lane->device, q->lane->host,
                                                        GQUERY_CONTROL_AT + sizeof *control,
                                                        q->lane->stream),
                             "cuMemcpyHtoDAsync");
}

static bool send_groups(gquery_query *q)
{
    gquery_control c = {.groups = {.slots = q->groups.address,
                                   .mask = q->slots - 1,
                                   .max = q->slots / 2,
                                   .slot_words = slot_words(q)}};

    return (q->stage > 0 || gquery_texts_begin(q, &c)) && gquery_send_control(q, &c);
}

/* ---- launches */

bool gquery_launch(gquery_query *q, CUfunction kernel, uint64_t blocks, uint32_t threads,
                   uint64_t shared_bytes, const void *params)
{
    void *arguments[] = {(void *)(uintptr_t)params};

    return gquery_check_call(q,
                             gvmi_cu->cuLaunchKernel(kernel, (unsigned)blocks, 1, 1, threads, 1, 1,
                                                     (unsigned)shared_bytes, q->lane->stream,
                                                     arguments, NULL),
                             "cuLaunchKernel");
}

uint64_t gquery_count_blocks(const gquery_query *q, uint64_t work)
{
    const uint64_t wanted = (work + q->device->threads - 1) / q->device->threads;
    const uint64_t most = (uint64_t)q->device->info.sm_count * LAUNCH_BLOCKS;

    return wanted == 0 ? 1 : wanted < most ? wanted : most;
}

bool gquery_count_resident(gquery_query *q, CUfunction kernel, uint32_t threads,
                           uint64_t shared_bytes, uint32_t *blocks)
{
    int each;

    if (!gquery_check_call(q,
                           gvmi_cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(
                               &each, kernel, (int)threads, shared_bytes),
                           "cuOccupancyMaxActiveBlocksPerMultiprocessor"))
        return false;
    *blocks = (uint32_t)((each > 0 ? each : 1) *
                         (q->device->info.sm_count > 0 ? q->device->info.sm_count : 1));
    return true;
}

static CUfunction scan_of(const gquery_query *q)
{
    return q->shape.joins > 0 || q->shape.built ? q->device->join : q->device->scan;
}

/* How a scan is launched: the same for equal programs and numbers of rows. */
bool gquery_choose_launch(gquery_query *q)
{
    const uint32_t warp = q->device->info.warp_size > 1 ? (uint32_t)q->device->info.warp_size : 1;
    uint64_t blocks;

    q->threads = q->device->threads;
    while (gquery_shared_bytes(&q->scan, q->threads) > q->device->shared_bytes) {
        if (q->threads / 2 < warp)
            return gquery_refuse(q, "the GPU has too little shared memory");
        q->threads = q->threads / 2 / warp * warp;
    }
    gquery_set_local(&q->scan, q->threads, q->device->shared_bytes, q->device->multiprocessor_bytes);
    if (!gquery_count_resident(q, scan_of(q), q->threads, gquery_shared_bytes(&q->scan, q->threads),
                               &q->blocks))
        return false;
    blocks = (q->rows + q->threads * GQUERY_EACH - 1) / (q->threads * GQUERY_EACH);
    if (blocks < q->blocks)
        q->blocks = blocks > 0 ? (uint32_t)blocks : 1;
    if (q->scan.state_words > 0 &&
        q->blocks > GQUERY_STATES_BYTES / sizeof(uint64_t) / q->scan.state_words)
        q->blocks = (uint32_t)(GQUERY_STATES_BYTES / sizeof(uint64_t) / q->scan.state_words);
    return true;
}

static bool launch_begin(gquery_query *q)
{
    const gquery_begin begin = {.program = q->scan.program,
                                .partial = q->scan.partial,
                                .groups = q->scan.groups,
                                .count = q->shape.grouped ? q->slots : q->blocks,
                                .keys = q->scan.keys,
                                .state_words = q->scan.state_words};

    return gquery_launch(q, q->device->begin, gquery_count_blocks(q, begin.count),
                         q->device->threads, 0, &begin);
}

/* Whether results depend on which rows a launch has. Several matches of a row have no order. */
static bool has_ordered_sums(const gquery_query *q)
{
    return !q->shape.grouped && q->matches <= 1 && gquery_double_sums(q->program) != 0;
}

bool gquery_launch_program(gquery_query *q, const gquery_scan *scan)
{
    return gquery_launch(q, scan_of(q), q->blocks, q->threads,
                         gquery_shared_bytes(scan, q->threads), scan);
}

bool gquery_launch_scan(gquery_query *q, uint64_t first, uint64_t limit)
{
    const uint64_t whole = has_ordered_sums(q) && q->unit < q->launch_rows ? q->unit : q->launch_rows;
    const uint64_t step = limit - first < whole ? limit - first : whole;

    for (; first < limit; first += step) {
        q->scan.first = first;
        q->scan.limit = limit - first < step ? limit : first + step;
        if (!gquery_distances_launch(q, q->scan.first, q->scan.limit) ||
            !gquery_texts_launch(q, q->scan.first, q->scan.limit) ||
            !gquery_launch_program(q, &q->scan))
            return false;
    }
    return true;
}

static bool launch_reduce(gquery_query *q)
{
    const gquery_reduce reduce = {.program = q->scan.program,
                                  .partial = q->scan.partial,
                                  .error = q->scan.error,
                                  .blocks = q->blocks,
                                  .state_words = q->scan.state_words};

    return q->shape.grouped || gquery_launch(q, q->device->reduce, 1, q->device->threads, 0, &reduce);
}

/* ---- batches */

bool gquery_batch_begin(gquery_query *q)
{
    atomic_store(q->lane->halt, 0);
    return gquery_check_call(q, gvmi_cu->cuEventRecord(q->lane->start, q->lane->stream),
                             "cuEventRecord");
}

bool gquery_batch_end(gquery_query *q, uint64_t states_bytes)
{
    return gquery_check_call(q, gvmi_cu->cuEventRecord(q->lane->stop, q->lane->stream),
                             "cuEventRecord") &&
           gquery_check_call(q,
                             gvmi_cu->cuMemcpyDtoHAsync(
                                 q->lane->host + GQUERY_CONTROL_AT, q->lane->device + GQUERY_CONTROL_AT,
                                 GQUERY_STATES_AT - GQUERY_CONTROL_AT + states_bytes, q->lane->stream),
                             "cuMemcpyDtoHAsync") &&
           gquery_check_call(q, gvmi_cu->cuStreamSynchronize(q->lane->stream), "cuStreamSynchronize");
}

/* Of the batch that is over, in ns. */
static double measure_batch(gquery_query *q)
{
    float ms = 0;

    if (gvmi_cu->cuEventElapsedTime(&ms, q->lane->start, q->lane->stop) != CUDA_SUCCESS || ms <= 0)
        return 1;
    q->cost.kernel_ns += (uint64_t)(ms * 1e6F);
    return ms * 1e6;
}

/* So many rows as take BATCH_NS, in whole units; at most four times as many as before. */
uint64_t gquery_batch_adapt(gquery_query *q, uint64_t rows)
{
    const double ns = measure_batch(q), factor = BATCH_NS / ns < 4 ? BATCH_NS / ns : 4;
    const uint64_t units = (uint64_t)((double)rows * factor) / q->unit;

    return (units > 0 ? units : 1) * q->unit;
}

static bool is_full(const gquery_query *q)
{
    return q->shape.grouped && (gquery_control_of(q)->groups.full != 0 || gquery_texts_are_full(q));
}

/* Once a table is full, rows are not marked any more whose texts are numbered: any of them may have raised an error. */
static bool is_of_any_row(uint32_t error)
{
    return error == GQUERY_E_NUMBERED || error == GQUERY_E_TEXT;
}

gquery_outcome gquery_batch_look(gquery_query *q)
{
    const gquery_control *c = gquery_control_of(q);
    const bool full = is_full(q);

    if (full && is_of_any_row(c->error))
        return GQUERY_FULL;
    if (c->error == GQUERY_E_LONG) {
        q->answer->error = c->error;
        gquery_answer(q->answer, GQUERY_NO_ROOM, "53000",
                      "rows of the query would take the GPU too long at a time");
        return GQUERY_FAILED;
    }
    if (c->error != GQUERY_E_NONE) {
        q->answer->verb = GQUERY_RAISED;
        q->answer->error = c->error;
        return GQUERY_FAILED;
    }
    if (full)
        return GQUERY_FULL;
    /* Others wait for a hash table that is being built. */
    if (gquery_is_closed(q->c) || (!q->shape.built && !gquery_lane_pause(q->c, q->lane)))
        return GQUERY_FAILED;
    return GQUERY_SCANNED;
}

/* ---- scanning */

static bool run_batch(gquery_query *q, uint64_t first, uint64_t limit)
{
    const bool last = limit == q->rows;
    const bool stateless = q->shape.marked || q->shape.built;

    return gquery_batch_begin(q) && (first > 0 || stateless || launch_begin(q)) &&
           gquery_launch_scan(q, first, limit) && (!last || stateless || launch_reduce(q)) &&
           gquery_batch_end(q, q->shape.grouped ? 0 : q->scan.state_words * sizeof(uint64_t));
}

gquery_outcome gquery_scan_rows(gquery_query *q)
{
    const uint64_t rows = q->rows;
    uint64_t first = 0, batch = q->unit;

    do {
        const uint64_t limit = rows - first < batch ? rows : first + batch;
        gquery_outcome got;

        if (!run_batch(q, first, limit))
            return GQUERY_FAILED;
        batch = gquery_batch_adapt(q, batch);
        got = gquery_batch_look(q);
        if (got != GQUERY_SCANNED)
            return got;
        first = limit;
    } while (first < rows);
    return GQUERY_SCANNED;
}

static gquery_outcome scan_once(gquery_query *q, uint64_t full)
{
    gquery_outcome got;

    if ((q->stage == 0 && !gquery_texts_take(q)) || !take_groups(q, full))
        return GQUERY_FAILED;
    q->scan.groups = q->lane->device + GQUERY_CONTROL_AT + offsetof(gquery_control, groups);
    if (!gquery_choose_launch(q) || !send_groups(q))
        return GQUERY_FAILED;
    got = q->stage > 0 ? GQUERY_SCANNED : gquery_texts_of_inner(q);
    return got == GQUERY_SCANNED ? gquery_scan_rows(q) : got;
}

/* Into one table of groups after another, until one is large enough. */
static bool scan_groups(gquery_query *q)
{
    uint64_t full = 0;

    q->slots = SLOTS_FIRST;
    for (;;) {
        const gquery_outcome got = scan_once(q, full);

        if (got == GQUERY_FAILED)
            return false;
        if (q->stage == 0)
            gquery_texts_end(q, got == GQUERY_FULL);
        if (got == GQUERY_SCANNED)
            return true;
        if (gquery_control_of(q)->groups.full != 0) {
            full = q->slots;
            q->slots *= SLOTS_GROWTH;
        }
        gquery_give_block(q, &q->groups);
    }
}

/* ---- results */

static bool fail_memory(gquery_message *answer)
{
    gquery_answer(answer, GQUERY_NO_ROOM, "53200", "out of memory for results");
    return false;
}

bool gquery_write_records(gquery_query *q, const void *records, uint64_t count, uint32_t words)
{
    gquery_window *window;
    gquery_span span;
    void *to = gquery_append(q->c, count * words * sizeof(uint64_t), &span);

    if (to == NULL)
        return fail_memory(q->answer);
    if (count > 0)
        memcpy(to, records, span.bytes);
    window = gquery_window_of(q);
    window->record_count = count;
    window->record_words = words;
    window->more = 0;
    window->gathered = 0;
    window->records = span;
    return true;
}

/* As query_collect looks at those of groups. */
static bool has_finite_moments(const gquery_query *q, const uint64_t *state)
{
    const gquery_program *p = q->program;

    for (uint32_t i = 0; i < p->code_count; i++) {
        double squares = 0;

        if (p->code[i].op == GQUERY_AGGREGATE && p->code[i].b == GQUERY_MOMENTS_F64)
            memcpy(&squares, &state[p->code[i].a + 3], sizeof squares);
        if (!isfinite(squares))
            return false;
    }
    return true;
}

/* The only record: its state, with no keys. */
static bool write_state(gquery_query *q)
{
    uint64_t record[1 + GQUERY_STATE_MAX] = {0};

    memcpy(record + 1, q->lane->host + GQUERY_STATES_AT, q->scan.state_words * sizeof(uint64_t));
    if (!has_finite_moments(q, record + 1)) {
        q->answer->verb = GQUERY_RAISED;
        q->answer->error = GQUERY_E_OVERFLOW;
        return false;
    }
    return gquery_write_records(q, record, 1, 1 + q->scan.state_words);
}

/* On the device, behind each other. A sum that is not finite is an error before any of them is sent. */
static bool collect_groups(gquery_query *q)
{
    gquery_results *r = &q->c->results;
    const uint32_t words = slot_words(q) + gquery_texts_words(q);
    gquery_collect collect = {.groups = q->scan.groups,
                              .collected = q->lane->device + GQUERY_CONTROL_AT +
                                           offsetof(gquery_control, collected),
                              .group_pitch = words,
                              .word_pitch = 1,
                              .sums = gquery_double_sums(q->program),
                              .error = q->scan.error,
                              .slot_words = slot_words(q),
                              .keys = q->scan.keys};

    *r = (gquery_results){.count = gquery_control_of(q)->groups.count, .record_words = words};
    if (r->count > q->slots)
        return gquery_refuse(q, "more groups than slots");
    if (r->count == 0)
        return true;
    if (!gquery_take_block(q, r->count * r->record_words * sizeof(uint64_t), &r->block))
        return false;
    collect.out = r->block.address;
    return gquery_launch(q, q->device->collect, gquery_count_blocks(q, q->slots),
                         q->device->threads, 0, &collect) &&
           (collect.sums == 0 || (gquery_batch_end(q, 0) && gquery_batch_look(q) == GQUERY_SCANNED)) &&
           gquery_texts_put(q, r->block.address, r->count, 0, slot_words(q));
}

static CUresult copy_records(const gquery_results *r, gquery_lane *lane, uint64_t bytes, uint8_t *to)
{
    const bool small = bytes <= GQUERY_STATES_BYTES;
    CUresult result = gvmi_cu->cuMemcpyDtoHAsync(small ? lane->host + GQUERY_STATES_AT : to,
                                                 r->block.address, bytes, lane->stream);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamSynchronize(lane->stream);
    if (result == CUDA_SUCCESS && small)
        memcpy(to, lane->host + GQUERY_STATES_AT, bytes);
    return result;
}

/* Copies the next records to the file: the first ones on the query's lane, later ones, which wait, without one. */
static bool write_piece(gquery_connection *c, gquery_lane *lane, gquery_message *answer)
{
    gquery_results *r = &c->results;
    gquery_window *window;
    const uint64_t record_bytes = r->record_words * sizeof(uint64_t), left = r->count - r->sent;
    const uint64_t most = r->block.object != NULL ? GQUERY_PIECE_BYTES / record_bytes : left;
    const uint64_t count = left < most ? left : most;
    gquery_span span;
    uint8_t *to = gquery_append(c, count * record_bytes, &span);
    gvm_status status = GVM_OK;

    if (to == NULL)
        return fail_memory(answer);
    if (lane == NULL)
        status = gquery_results_copy(c, span.bytes, to);
    else if (count > 0) {
        const CUresult result = copy_records(r, lane, span.bytes, to);

        if (result != CUDA_SUCCESS)
            status = gvm_driver_error((int32_t)result, "cuMemcpyDtoHAsync", "the copy has failed");
    }
    if (status != GVM_OK) {
        gquery_answer_status(answer, status, "cannot read the results");
        return false;
    }
    r->sent += count;
    window = (gquery_window *)(void *)c->file;
    window->record_count = r->count;
    window->record_words = r->record_words;
    window->more = r->sent < r->count;
    window->gathered = r->gathered;
    window->records = span;
    return true;
}

bool gquery_write_block(gquery_query *q, gquery_block *block, uint64_t count, uint32_t words,
                        bool gathered)
{
    q->c->results = (gquery_results){
        .block = *block, .count = count, .record_words = words, .gathered = gathered};
    *block = (gquery_block){0};
    return write_piece(q->c, q->lane, q->answer);
}

/* ---- a query */

static bool check_query(gquery_query *q)
{
    if (!gquery_stages_check(q))
        return false;
    if (q->shape.built)
        return gquery_refuse(q, "a hash table is no result");
    return gquery_batch_check(q) && gquery_marks_check(q) && gquery_distances_check(q) &&
           gquery_texts_check(q) && gquery_inner_check(q);
}

/* Whether the instruction looks at all bytes of a text, and how often at most. */
static uint64_t times_through_text(const gquery_program *p, const gquery_instruction *i)
{
    const uint32_t first = (uint32_t)i->value, count = (uint32_t)(i->value >> 32);
    const uint32_t kind = i->b & GQUERY_TEXT_KIND;
    uint64_t times = kind == GQUERY_TEXT_CHARACTERS ||
                     (i->b & (GQUERY_TEXT_TRIMMED | GQUERY_TEXT_ASCII)) != 0;

    for (uint32_t k = 0; k < count && kind == GQUERY_TEXT_LIKE; k++)
        times += (uint64_t)p->values[first + k] >> 32; /* bytes of its pieces */
    return times;
}

/* Bytes of texts that a row's instructions look at or compare at most, by the average length of its texts. */
static double text_steps(const gquery_query *q)
{
    const gquery_program *p = q->program;
    double steps = 0;

    for (uint32_t at = 0; at < p->code_count; at++) {
        const gquery_instruction *i = &p->code[at];
        const gquery_source *texts;
        uint64_t rows = 1;

        if (i->op != GQUERY_TEXT)
            continue;
        texts = &q->scan.sources[i->a];
        if (texts->form != GQUERY_TEXT_FIXED && q->c->query.tables[texts->table].rows > 0)
            rows = q->c->query.tables[texts->table].rows;
        steps += (double)times_through_text(p, i) * (double)texts->bytes / (double)rows;
    }
    return steps;
}

/* With joins fewer, as each of their rows goes on as often as it has matches. */
static uint64_t first_unit(const gquery_query *q)
{
    const double steps = text_steps(q);
    const uint64_t unit = q->device->info.software ? UNIT_SOFT
                          : q->shape.grouped       ? UNIT_GROUPS
                                                   : UNIT_GPU;
    const double fewer = (double)unit / (q->matches > 1 ? q->matches : 1) /
                         (steps > PATTERN_STEPS ? steps / PATTERN_STEPS : 1);

    return fewer < (double)GQUERY_SLICE_LEAST
               ? GQUERY_SLICE_LEAST
               : (uint64_t)fewer / GQUERY_SLICE_LEAST * GQUERY_SLICE_LEAST;
}

static void set_scan(gquery_query *q)
{
    q->unit = first_unit(q);
    q->launch_rows = UINT64_MAX;
    q->scan.program = q->lane->device;
    q->scan.partial = q->lane->device + GQUERY_STATES_AT;
    q->scan.error = q->lane->device + GQUERY_CONTROL_AT + offsetof(gquery_control, error);
    q->scan.halt = q->lane->halt_address;
    q->scan.depth = q->shape.depth + q->shape.joins;
    q->scan.state_words = q->program->state_words;
    q->scan.keys = q->shape.keys;
}

static bool run_groups(gquery_query *q)
{
    return scan_groups(q) && collect_groups(q) && write_piece(q->c, q->lane, q->answer);
}

static bool run_sums(gquery_query *q)
{
    const gquery_control c = {.error = 0};

    return gquery_choose_launch(q) && gquery_send_control(q, &c) &&
           gquery_scan_rows(q) == GQUERY_SCANNED && write_state(q);
}

bool gquery_run_build(gquery_query *q, gquery_build *build)
{
    const gquery_control c = {.build = *build};

    q->scan.build = q->lane->device + GQUERY_CONTROL_AT + offsetof(gquery_control, build);
    if (!gquery_choose_launch(q) || !gquery_send_control(q, &c) || gquery_scan_rows(q) != GQUERY_SCANNED)
        return false;
    *build = gquery_control_of(q)->build;
    return true;
}

static bool run_sink(gquery_query *q)
{
    if (q->c->query.nearest > 0)
        return gquery_run_nearest(q);
    if (!gquery_distances_prepare(q) || !gquery_texts_prepare(q))
        return false;
    while (q->stage < q->c->query.stage_count) {
        if (!scan_groups(q) || !gquery_stages_next(q))
            return false;
        set_scan(q);
    }
    if (q->shape.marked)
        return gquery_run_marks(q);
    if (q->shape.appended)
        return gquery_run_appended(q);
    if (q->shape.emitted)
        return gquery_run_list(q);
    return q->shape.grouped ? run_groups(q) : run_sums(q);
}

/* What a query or a part of one uses is free then. */
void gquery_end_part(gquery_query *q, bool done)
{
    if (!done && q->lane != NULL)
        (void)gvmi_cu->cuStreamSynchronize(q->lane->stream); /* what was launched before a failure */
    gquery_give_block(q, &q->groups);
    gquery_give_block(q, &q->dead);
    gquery_give_block(q, &q->batch);
    gquery_give_block(q, &q->distances);
    gquery_give_block(q, &q->number_block);
    for (uint32_t i = 0; i < q->numbered; i++)
        gquery_give_block(q, &q->numbers[i].block);
    gquery_give_block(q, &q->marked);
    gquery_give_block(q, &q->passed);
    gquery_give_block(q, &q->gathered);
    gquery_give_block(q, &q->list);
    gquery_give_block(q, &q->kept);
    gquery_give_block(q, &q->columns);
    free(q->staged);
    gquery_leases_release(&q->leases);
    gquery_tables_release(q->tables, q->attached);
    if (q->lane != NULL)
        gquery_lane_give(q->lane);
}

bool gquery_begin_part(gquery_query *q)
{
    if (!gquery_open_table(q) || !gquery_begin_reading(q))
        return false;
    set_scan(q);
    return send_dead(q) && gquery_batch_send(q);
}

static void end_query(gquery_query *q, bool done)
{
    gquery_end_part(q, done);
    gquery_inner_close(q); /* after what reads its hash tables */
    if (done && q->c->results.sent < q->c->results.count)
        gquery_results_rest(q->c);
    else
        gquery_forget(q->c);
}

/* The thread has the device's context from its first query on. */
static bool enter_device(gquery_query *q, int32_t ordinal)
{
    if (!gquery_succeed(q, gquery_device_open(ordinal, &q->device), "cannot open the GPU"))
        return false;
    if (!q->c->has_context)
        q->c->has_context = gquery_succeed(q, gvm_device_push_context(q->device->handle),
                                           "cannot use the GPU");
    return q->c->has_context;
}

static void run_once(gquery_tables *tables, int32_t ordinal, gquery_connection *c, gquery_message *answer)
{
    const int64_t start_ns = gquery_now_ns();
    gquery_query q = {.tables = tables, .c = c, .answer = answer};
    bool done;

    if (!check_query(&q) || !enter_device(&q, ordinal)) {
        gquery_inner_close(&q);
        return;
    }
    done = gquery_inner_open(&q) && gquery_begin_part(&q) && run_sink(&q);
    if (done) {
        q.cost.total_ns = (uint64_t)(gquery_now_ns() - start_ns);
        gquery_window_of(&q)->cost = q.cost;
    }
    end_query(&q, done);
}

/* One that goes on waits for tables that can be open as long as it takes. Between tries it has none open, so of two that
 * wait for each other's one goes on. */
void gquery_run(gquery_tables *tables, int32_t ordinal, gquery_connection *c, gquery_message *answer)
{
    do {
        c->crowded = false;
        answer->verb = GQUERY_DONE;
        run_once(tables, ordinal, c, answer);
    } while (c->crowded && gquery_goes_on(c) && !gquery_is_closed(c));
}

void gquery_fetch(gquery_connection *c, gquery_message *answer)
{
    if (c->results.sent == c->results.count) {
        gquery_answer(answer, GQUERY_ERROR, "XX000", "there are no results to be fetched");
        return;
    }
    if (!write_piece(c, NULL, answer) || c->results.sent == c->results.count)
        gquery_forget(c);
}
