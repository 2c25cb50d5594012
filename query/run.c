/* See executor.h: a query.
 *
 * Rows go through the scan in batches of about 10 ms, so that a query ends soon after its backend has gone, and those of others have
 * their turn. A batch that is not the first one is as large as the time of the one before says.
 *
 * A batch is one launch. But where doubles are added up in one group, it is several of UNIT rows each: which rows a launch has decides how a
 * block's sums are rounded, and that must not depend on time.
 */
#include <stddef.h>
#include <string.h>

#include "query/executor.h"
#include "query/kernels.h"

#define BATCH_NS 10000000.0
/* Rows of the first batch: a few ms at most. */
#define UNIT_SOFT (UINT64_C(64) << 10)
#define UNIT_GPU (UINT64_C(16) << 20)
#define UNIT_GROUPS (UINT64_C(1) << 20) /* which may soon be too many for their table */
#define SLOTS_FIRST (UINT64_C(16) << 10)
#define SLOTS_LEAST 256
#define SLOTS_MOST (UINT64_C(1) << 32)
#define SLOTS_GROWTH 16 /* where they were too few */
#define LAUNCH_BLOCKS 8 /* of an SM, for kernels that only go through memory */
#define DEAD_SMALL (UINT64_C(512) << 10)

/* What kernels and this process exchange beside states. */
typedef struct control {
    uint32_t error, reserved;
    uint64_t collected;
    gquery_groups groups;
} control;

/* A lane's memory, on host and device: the program, control, states of blocks, a small bitmap. */
#define ROUND_UP(bytes) (((bytes) + 63) / 64 * 64)
#define CONTROL_AT ROUND_UP(sizeof(gquery_program))
#define STATES_AT (CONTROL_AT + ROUND_UP(sizeof(control)))
#define STATES_BYTES (UINT64_C(1) << 20)
#define DEAD_AT (STATES_AT + STATES_BYTES)
_Static_assert(DEAD_AT + DEAD_SMALL + 64 <= GQUERY_LANE_BYTES, "a lane has room for all of it");

typedef struct query {
    gquery_tables *tables;
    const gquery_device *device;
    gquery_connection *c;
    gquery_message *answer;
    gquery_lane *lane;
    gquery_shape shape;
    gquery_attached *attached; /* NULL: no rows */
    gquery_leases leases;
    gvm_table_data data[GQUERY_COLUMNS_MAX];
    gquery_block dead, groups;
    uint64_t slots;
    uint64_t unit;
    uint32_t threads, blocks; /* of a scan */
    gquery_scan scan;
    gquery_cost cost;
    uint64_t scratch_bytes; /* now */
} query;

typedef enum outcome {
    DONE,
    FULL,   /* the table of groups */
    FAILED, /* answer says why, or the backend has gone */
} outcome;

/* ---- failures */

static bool succeed(query *q, gvm_status status, const char *what)
{
    if (status != GVM_OK)
        gquery_answer_status(q->answer, status, what);
    return status == GVM_OK;
}

static bool check(query *q, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ||
           succeed(q, gvm_driver_error((int32_t)result, call, "%s has failed", call),
                   "cannot run the query");
}

static bool refuse(query *q, const char *what)
{
    gquery_answer(q->answer, GQUERY_ERROR, "XX000", "the query for the GPU is malformed: %s", what);
    return false;
}

/* ---- the table */

static const uint32_t form_bytes[GQUERY_FORMS] = {0, 1, 2, 4, 4, 8, 4, 8, 16};

static bool is_loaded(const gquery_program *p, uint32_t column)
{
    for (uint32_t i = 0; i < p->code_count; i++)
        if (p->code[i].op == GQUERY_LOAD && p->code[i].a == column)
            return true;
    return false;
}

/* Kernels read so many bytes of it as the form says. */
static bool has_form(const gvm_table_column *c, uint32_t form, uint64_t rows)
{
    const uint64_t bytes = form == GQUERY_BIT ? (rows + 7) / 8 : rows * form_bytes[form];

    return c->absent || (c->width == form_bytes[form] && c->values_bytes >= bytes &&
                         (c->length > 0 || c->uniform != 0));
}

/* Where NULLs are told by a bitmap alone. */
static bool has_null_bits(const gvm_table_column *c)
{
    return c->absent || c->has_nulls || c->arrow != NULL || c->length > 0 || c->uniform != 0;
}

static bool find_column(query *q, uint32_t column, uint32_t *index)
{
    const gquery_program *p = &q->c->query.program;
    const gquery_column *wanted = &p->columns[column];
    const gquery_attached *a = q->attached;

    for (uint32_t i = 0; i < a->info.columns; i++) {
        const gvm_table_column *c = &a->columns[i];

        if (c->number != wanted->number)
            continue;
        if (c->base_type != wanted->type ||
            !(is_loaded(p, column) ? has_form(c, wanted->form, a->info.rows) : has_null_bits(c)))
            break;
        *index = i;
        return true;
    }
    gquery_answer(q->answer, GQUERY_ERROR, "55000",
                  "column %u of the table is not as the query has it", wanted->number);
    return false;
}

/* indices[i] is the place in list of the program's column i. */
static bool list_columns(query *q, uint32_t *list, uint32_t *count, uint32_t *indices)
{
    const gquery_program *p = &q->c->query.program;

    *count = 0;
    for (uint32_t i = 0; i < p->column_count; i++) {
        uint32_t index, at = 0;

        if (p->columns[i].table != 0)
            return refuse(q, "there is one table");
        if (!find_column(q, i, &index))
            return false;
        while (at < *count && list[at] != index)
            at++;
        if (at == *count)
            list[(*count)++] = index;
        indices[i] = at;
    }
    return true;
}

static bool check_table(query *q)
{
    const gquery_table *wanted = &q->c->query.tables[0];

    if (q->attached->info.device != q->device->info.ordinal)
        gquery_answer(q->answer, GQUERY_ERROR, "55000", "the table is on another GPU");
    else if (q->attached->info.rows != wanted->rows)
        gquery_answer(q->answer, GQUERY_ERROR, "55000", "the table has other rows than its token");
    else
        return true;
    return false;
}

static bool set_deleted(query *q)
{
    const gquery_table *wanted = &q->c->query.tables[0];
    const gvm_lease *lease = &q->leases.deleted;

    if (wanted->deleted_bytes == 0)
        return true;
    if (wanted->deleted_at % 8 != 0 || wanted->deleted_bytes > lease->size_bytes ||
        wanted->deleted_at > lease->size_bytes - wanted->deleted_bytes)
        return refuse(q, "the table's bitmap of deleted rows is not where it was");
    q->scan.deleted = (uint64_t)(uintptr_t)lease->address + wanted->deleted_at;
    q->scan.deleted_rows = wanted->deleted_bytes * 8;
    return true;
}

/* What goes through the kernels. */
static void count_bytes(query *q, const uint32_t *list, uint32_t count)
{
    uint64_t bytes = q->c->query.tables[0].deleted_bytes + q->c->query.tables[0].dead.bytes;

    for (uint32_t i = 0; i < count; i++)
        bytes += q->attached->columns[list[i]].nulls_bytes;
    for (uint32_t i = 0; i < count; i++)
        bytes += q->attached->columns[list[i]].values_bytes;
    q->cost.rows = q->c->query.tables[0].rows;
    q->cost.read_bytes = bytes;
}

static bool open_table(query *q)
{
    const gquery_table *wanted = &q->c->query.tables[0];
    const gquery_program *p = &q->c->query.program;
    uint32_t list[GQUERY_COLUMNS_MAX], indices[GQUERY_COLUMNS_MAX], count;

    if (wanted->token[0] == '\0')
        return wanted->rows == 0 || refuse(q, "rows without a table");
    if (!succeed(q, gquery_tables_attach(q->tables, wanted->token, &q->attached),
                 "cannot attach a table") ||
        !check_table(q) || !list_columns(q, list, &count, indices) ||
        !succeed(q,
                 gquery_leases_take(q->tables, q->attached, list, count, wanted->deleted_bytes > 0,
                                    q->data, &q->leases),
                 "cannot read a table"))
        return false;
    for (uint32_t i = 0; i < p->column_count; i++) {
        const gvm_table_data *d = &q->data[indices[i]];

        q->scan.sources[i] = (gquery_source){(uint64_t)(uintptr_t)d->values,
                                             (uint64_t)(uintptr_t)d->nulls};
    }
    count_bytes(q, list, count);
    return set_deleted(q);
}

/* ---- memory */

/* The query's scratch memory has a bound. */
static bool take_scratch(query *q, uint64_t bytes, gquery_block *block)
{
    const uint64_t most = q->c->query.scratch_bytes_max;

    if (bytes > most || q->scratch_bytes > most - bytes) {
        gquery_answer(q->answer, GQUERY_NO_ROOM, "53200",
                      "the query needs more than %llu bytes of scratch memory on the GPU",
                      (unsigned long long)most);
        return false;
    }
    if (!succeed(q, gquery_scratch_take(bytes, block), "cannot run the query"))
        return false;
    q->scratch_bytes += block->wanted;
    if (q->scratch_bytes > q->cost.scratch_bytes)
        q->cost.scratch_bytes = q->scratch_bytes;
    return true;
}

static void give_scratch(query *q, gquery_block *block)
{
    q->scratch_bytes -= block->wanted;
    gquery_scratch_give(block);
}

/* Whole words, in which the bits behind the last byte are 0. */
static bool send_dead(query *q)
{
    const gquery_span span = q->c->query.tables[0].dead;
    const uint8_t *bytes = gquery_at(q->c, span);
    const uint64_t padded = (span.bytes + 7) / 8 * 8;
    uint64_t to = q->lane->device + DEAD_AT;

    if (bytes == NULL)
        return refuse(q, "a bitmap leaves the file");
    if (span.bytes == 0)
        return true;
    if (span.bytes <= DEAD_SMALL) {
        memset(q->lane->host + DEAD_AT + padded - 8, 0, 8);
        memcpy(q->lane->host + DEAD_AT, bytes, span.bytes);
        bytes = q->lane->host + DEAD_AT;
    } else {
        if (!take_scratch(q, padded, &q->dead) ||
            !check(q, gvmi_cu->cuMemsetD8Async(q->dead.address + padded - 8, 0, 8, q->lane->stream),
                   "cuMemsetD8Async"))
            return false;
        to = q->dead.address;
    }
    q->scan.dead = to;
    q->scan.dead_rows = span.bytes * 8;
    return check(q, gvmi_cu->cuMemcpyHtoDAsync(to, bytes, span.bytes, q->lane->stream),
                 "cuMemcpyHtoDAsync");
}

static control *control_of(const query *q)
{
    return (control *)(void *)(q->lane->host + CONTROL_AT);
}

static uint32_t slot_words(const query *q)
{
    return 1 + q->shape.keys + q->c->query.program.state_words;
}

/* For a table of q->slots: of fewer, where the rows cannot need so many or the query's bound does not allow them. Half of the slots are
 * used. `full` slots have been too few. */
static bool take_groups(query *q, uint64_t full)
{
    const uint64_t slot_bytes = slot_words(q) * sizeof(uint64_t), rows = q->c->query.tables[0].rows;

    while (q->slots > SLOTS_LEAST && (q->slots / 4 >= rows || q->slots > SLOTS_MOST ||
                                      q->slots * slot_bytes > q->c->query.scratch_bytes_max))
        q->slots /= 2;
    if (q->slots > full)
        return take_scratch(q, q->slots * slot_bytes, &q->groups);
    gquery_answer(q->answer, GQUERY_NO_ROOM, "53200",
                  "the groups need more than %llu bytes of scratch memory on the GPU, or are too many",
                  (unsigned long long)q->c->query.scratch_bytes_max);
    return false;
}

static bool send_control(query *q)
{
    control *c = control_of(q);

    *c = (control){.groups = {.slots = q->groups.address,
                              .mask = q->slots - 1,
                              .max = q->slots / 2,
                              .slot_words = slot_words(q)}};
    memcpy(q->lane->host, &q->c->query.program, sizeof q->c->query.program);
    q->scan.tests = gquery_fuse((gquery_program *)q->lane->host);
    return check(q,
                 gvmi_cu->cuMemcpyHtoDAsync(q->lane->device, q->lane->host, CONTROL_AT + sizeof *c,
                                            q->lane->stream),
                 "cuMemcpyHtoDAsync");
}

/* ---- launches */

static bool launch(query *q, CUfunction kernel, uint64_t blocks, uint32_t threads,
                   uint64_t shared_bytes, const void *params)
{
    void *arguments[] = {(void *)(uintptr_t)params};

    return check(q,
                 gvmi_cu->cuLaunchKernel(kernel, (unsigned)blocks, 1, 1, threads, 1, 1,
                                         (unsigned)shared_bytes, q->lane->stream, arguments, NULL),
                 "cuLaunchKernel");
}

/* Blocks that `work` threads are, but no more than the device runs at once. */
static uint64_t count_blocks(const query *q, uint64_t work)
{
    const uint64_t wanted = (work + q->device->threads - 1) / q->device->threads;
    const uint64_t most = (uint64_t)q->device->info.sm_count * LAUNCH_BLOCKS;

    return wanted == 0 ? 1 : wanted < most ? wanted : most;
}

/* How a scan is launched: the same for equal programs and numbers of rows. */
static bool choose_launch(query *q)
{
    const uint64_t rows = q->c->query.tables[0].rows < q->unit ? q->c->query.tables[0].rows : q->unit;
    const uint32_t warp = q->device->info.warp_size > 1 ? (uint32_t)q->device->info.warp_size : 1;
    uint64_t blocks;
    int each;

    q->threads = q->device->threads;
    while (gquery_shared_bytes(&q->scan, q->threads) > q->device->shared_bytes) {
        if (q->threads / 2 < warp)
            return refuse(q, "the GPU has too little shared memory");
        q->threads = q->threads / 2 / warp * warp;
    }
    gquery_set_local(&q->scan, q->threads, q->device->shared_bytes, q->device->multiprocessor_bytes);
    if (!check(q,
               gvmi_cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(
                   &each, q->device->scan, (int)q->threads, gquery_shared_bytes(&q->scan, q->threads)),
               "cuOccupancyMaxActiveBlocksPerMultiprocessor"))
        return false;
    q->blocks = (uint32_t)((each > 0 ? each : 1) *
                           (q->device->info.sm_count > 0 ? q->device->info.sm_count : 1));
    blocks = (rows + q->threads * GQUERY_EACH - 1) / (q->threads * GQUERY_EACH);
    if (blocks < q->blocks)
        q->blocks = blocks > 0 ? (uint32_t)blocks : 1;
    if (q->scan.state_words > 0 && q->blocks > STATES_BYTES / sizeof(uint64_t) / q->scan.state_words)
        q->blocks = (uint32_t)(STATES_BYTES / sizeof(uint64_t) / q->scan.state_words);
    return true;
}

static bool launch_begin(query *q)
{
    const gquery_begin begin = {.program = q->scan.program,
                                .partial = q->scan.partial,
                                .groups = q->scan.groups,
                                .count = q->shape.grouped ? q->slots : q->blocks,
                                .keys = q->scan.keys,
                                .state_words = q->scan.state_words};

    return launch(q, q->device->begin, count_blocks(q, begin.count), q->device->threads, 0, &begin);
}

/* Whether results depend on which rows a launch has. */
static bool has_ordered_sums(const query *q)
{
    const gquery_program *p = &q->c->query.program;

    for (uint32_t i = 0; i < p->code_count && !q->shape.grouped; i++)
        if (p->code[i].op == GQUERY_AGGREGATE && p->code[i].b == GQUERY_SUM_F64)
            return true;
    return false;
}

static bool launch_scan(query *q, uint64_t first, uint64_t limit)
{
    const uint64_t step = has_ordered_sums(q) ? q->unit : limit - first;

    for (; first < limit; first += step) {
        q->scan.first = first;
        q->scan.limit = limit - first < step ? limit : first + step;
        if (!launch(q, q->device->scan, q->blocks, q->threads,
                    gquery_shared_bytes(&q->scan, q->threads), &q->scan))
            return false;
    }
    return true;
}

static bool launch_reduce(query *q)
{
    const gquery_reduce reduce = {.program = q->scan.program,
                                  .partial = q->scan.partial,
                                  .error = q->scan.error,
                                  .blocks = q->blocks,
                                  .state_words = q->scan.state_words};

    return q->shape.grouped || launch(q, q->device->reduce, 1, q->device->threads, 0, &reduce);
}

static bool launch_batch(query *q, uint64_t first, uint64_t limit)
{
    const bool last = limit == q->c->query.tables[0].rows;
    const uint64_t bytes = STATES_AT - CONTROL_AT +
                           (q->shape.grouped ? 0 : q->scan.state_words * sizeof(uint64_t));

    return check(q, gvmi_cu->cuEventRecord(q->lane->start, q->lane->stream), "cuEventRecord") &&
           (first > 0 || launch_begin(q)) && launch_scan(q, first, limit) &&
           (!last || launch_reduce(q)) &&
           check(q, gvmi_cu->cuEventRecord(q->lane->stop, q->lane->stream), "cuEventRecord") &&
           check(q,
                 gvmi_cu->cuMemcpyDtoHAsync(q->lane->host + CONTROL_AT,
                                            q->lane->device + CONTROL_AT, bytes, q->lane->stream),
                 "cuMemcpyDtoHAsync") &&
           check(q, gvmi_cu->cuStreamSynchronize(q->lane->stream), "cuStreamSynchronize");
}

/* ---- scanning */

/* Of the batch that is over, in ns. */
static double measure_batch(query *q)
{
    float ms = 0;

    if (gvmi_cu->cuEventElapsedTime(&ms, q->lane->start, q->lane->stop) != CUDA_SUCCESS || ms <= 0)
        return 1;
    q->cost.kernel_ns += (uint64_t)(ms * 1e6F);
    return ms * 1e6;
}

/* So many rows as take BATCH_NS, in whole units; at most four times as many as before. */
static uint64_t adapt_batch(const query *q, uint64_t rows, double ns)
{
    const double factor = BATCH_NS / ns < 4 ? BATCH_NS / ns : 4;
    const uint64_t units = (uint64_t)((double)rows * factor) / q->unit;

    return (units > 0 ? units : 1) * q->unit;
}

static outcome look_at_batch(query *q)
{
    const control *c = control_of(q);

    if (c->error != GQUERY_E_NONE) {
        q->answer->verb = GQUERY_RAISED;
        q->answer->error = c->error;
        return FAILED;
    }
    if (q->shape.grouped && c->groups.full != 0)
        return FULL;
    return gquery_is_closed(q->c) ? FAILED : DONE;
}

static outcome scan_rows(query *q)
{
    const uint64_t rows = q->c->query.tables[0].rows;
    uint64_t first = 0, batch = q->unit;

    do {
        const uint64_t limit = rows - first < batch ? rows : first + batch;
        outcome got;

        if (!launch_batch(q, first, limit))
            return FAILED;
        batch = adapt_batch(q, batch, measure_batch(q));
        got = look_at_batch(q);
        if (got != DONE)
            return got;
        first = limit;
    } while (first < rows);
    return DONE;
}

/* Into one table of groups after another, until one is large enough. */
static bool scan_groups(query *q)
{
    uint64_t full = 0;

    for (q->slots = SLOTS_FIRST;; q->slots *= SLOTS_GROWTH) {
        outcome got;

        if (!take_groups(q, full))
            return false;
        q->scan.groups = q->lane->device + CONTROL_AT + offsetof(control, groups);
        if (!choose_launch(q) || !send_control(q))
            return false;
        got = scan_rows(q);
        if (got != FULL)
            return got == DONE;
        full = q->slots;
        give_scratch(q, &q->groups);
    }
}

/* ---- results */

static gquery_window *window_of(const query *q)
{
    return (gquery_window *)(void *)q->c->file;
}

static bool fail_memory(gquery_message *answer)
{
    gquery_answer(answer, GQUERY_NO_ROOM, "53200", "out of memory for results");
    return false;
}

/* The only record: its state, with no keys. */
static bool write_state(query *q)
{
    const uint64_t bytes = q->scan.state_words * sizeof(uint64_t);
    gquery_span span;
    uint64_t *record = gquery_append(q->c, sizeof *record + bytes, &span);

    if (record == NULL)
        return fail_memory(q->answer);
    record[0] = 0;
    memcpy(record + 1, q->lane->host + STATES_AT, bytes);
    window_of(q)->record_count = 1;
    window_of(q)->record_words = 1 + q->scan.state_words;
    window_of(q)->more = 0;
    window_of(q)->records = span;
    return true;
}

/* On the device, behind each other. */
static bool collect(query *q)
{
    gquery_results *r = &q->c->results;
    const gquery_collect params = {.groups = q->scan.groups,
                                   .out = 0,
                                   .collected = q->lane->device + CONTROL_AT +
                                                offsetof(control, collected),
                                   .slot_words = slot_words(q)};
    gquery_collect full = params;

    *r = (gquery_results){.count = control_of(q)->groups.count, .record_words = slot_words(q)};
    if (r->count > q->slots)
        return refuse(q, "more groups than slots");
    if (r->count == 0)
        return true;
    if (!take_scratch(q, r->count * r->record_words * sizeof(uint64_t), &r->block))
        return false;
    full.out = r->block.address;
    return launch(q, q->device->collect, count_blocks(q, q->slots), q->device->threads, 0, &full);
}

/* Copies the next records to the file. */
static bool write_piece(gquery_connection *c, gquery_lane *lane, gquery_message *answer)
{
    gquery_results *r = &c->results;
    gquery_window *window;
    const uint64_t record_bytes = r->record_words * sizeof(uint64_t);
    const uint64_t most = GQUERY_PIECE_BYTES / record_bytes;
    const uint64_t count = r->count - r->sent < most ? r->count - r->sent : most;
    const uint64_t bytes = count * record_bytes, from = r->block.address + r->sent * record_bytes;
    const bool small = bytes <= STATES_BYTES;
    gquery_span span;
    uint8_t *to = gquery_append(c, bytes, &span);
    CUresult result = CUDA_SUCCESS;

    if (to == NULL)
        return fail_memory(answer);
    if (count > 0)
        result = gvmi_cu->cuMemcpyDtoHAsync(small ? lane->host + STATES_AT : to, from, bytes,
                                            lane->stream);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamSynchronize(lane->stream);
    if (result != CUDA_SUCCESS) {
        gquery_answer_status(
            answer, gvm_driver_error((int32_t)result, "cuMemcpyDtoHAsync", "the copy has failed"),
            "cannot read the results");
        return false;
    }
    if (small)
        memcpy(to, lane->host + STATES_AT, bytes);
    r->sent += count;
    window = (gquery_window *)(void *)c->file;
    window->record_count = r->count;
    window->record_words = r->record_words;
    window->more = r->sent < r->count;
    window->records = span;
    return true;
}

void gquery_forget(gquery_connection *c)
{
    gquery_scratch_give(&c->results.block);
    c->results = (gquery_results){0};
}

/* ---- a query */

static bool check_query(query *q)
{
    const gquery_window *w = &q->c->query;
    char problem[128] = "";

    if (w->table_count != 1)
        return refuse(q, "there is one table");
    if (!gquery_check(&w->program, &q->shape, problem))
        return refuse(q, problem);
    for (uint32_t i = 0; i < w->program.code_count; i++)
        if (w->program.code[i].op == GQUERY_MARK || w->program.code[i].op == GQUERY_EMIT)
            return refuse(q, "its results are neither sums nor groups");
    return true;
}

static void set_scan(query *q)
{
    const bool software = q->device->info.software;

    q->unit = software ? UNIT_SOFT : q->shape.grouped ? UNIT_GROUPS : UNIT_GPU;
    q->scan.program = q->lane->device;
    q->scan.partial = q->lane->device + STATES_AT;
    q->scan.error = q->lane->device + CONTROL_AT + offsetof(control, error);
    q->scan.depth = q->shape.depth;
    q->scan.state_words = q->c->query.program.state_words;
    q->scan.keys = q->shape.keys;
}

static bool run_groups(query *q)
{
    return scan_groups(q) && collect(q) && write_piece(q->c, q->lane, q->answer);
}

static bool run_sums(query *q)
{
    return choose_launch(q) && send_control(q) && scan_rows(q) == DONE && write_state(q);
}

/* All that it uses is free then. */
static void end_query(query *q, bool done)
{
    if (!done && q->lane != NULL)
        (void)gvmi_cu->cuStreamSynchronize(q->lane->stream); /* what was launched before a failure */
    give_scratch(q, &q->groups);
    give_scratch(q, &q->dead);
    gquery_leases_release(&q->leases);
    gquery_tables_release(q->tables, q->attached);
    if (q->lane != NULL)
        gquery_lane_give(q->lane);
    if (!done || q->c->results.sent == q->c->results.count)
        gquery_forget(q->c);
}

/* The thread has the device's context from its first query on. */
static bool enter_device(query *q, int32_t ordinal)
{
    if (!succeed(q, gquery_device_open(ordinal, &q->device), "cannot open the GPU"))
        return false;
    if (!q->c->has_context)
        q->c->has_context = succeed(q, gvm_device_push_context(q->device->handle),
                                    "cannot use the GPU");
    return q->c->has_context;
}

void gquery_run(gquery_tables *tables, int32_t ordinal, gquery_connection *c, gquery_message *answer)
{
    const int64_t start_ns = gquery_now_ns();
    query q = {.tables = tables, .c = c, .answer = answer};
    bool done;

    if (c->has_context)
        gquery_forget(c); /* what the backend has not fetched of the query before */
    if (!check_query(&q) || !enter_device(&q, ordinal))
        return;
    done = succeed(&q, gquery_lane_take(c, &q.lane), "cannot run the query");
    if (done)
        set_scan(&q);
    done = done && open_table(&q) && send_dead(&q) &&
           (q.shape.grouped ? run_groups(&q) : run_sums(&q));
    if (done) {
        q.cost.total_ns = (uint64_t)(gquery_now_ns() - start_ns);
        window_of(&q)->cost = q.cost;
    }
    end_query(&q, done);
}

void gquery_fetch(gquery_connection *c, gquery_message *answer)
{
    gquery_lane *lane;
    gvm_status status;
    bool done;

    if (c->results.sent == c->results.count) {
        gquery_answer(answer, GQUERY_ERROR, "XX000", "there are no results to be fetched");
        return;
    }
    status = gquery_lane_take(c, &lane);
    if (status != GVM_OK) {
        gquery_answer_status(answer, status, "cannot read the results");
        return;
    }
    done = write_piece(c, lane, answer);
    gquery_lane_give(lane);
    if (!done || c->results.sent == c->results.count)
        gquery_forget(c);
}
