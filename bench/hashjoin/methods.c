/* The join in three ways. All run the same kernel code; they differ in where the result's memory
 * comes from, and each includes that in its time.
 *
 *     appender    memory comes while the kernel writes
 *     two-pass    the join is counted first, then memory is allocated, then the join is made
 *     fixed       memory for a multiple of the estimate; if that was too little, what the first try has
 *                 counted is allocated and everything is done again
 *
 * The outer side is joined at once, or part by part: then no more of the result is in memory than that of
 * one part, or than the budget.
 */
#include <string.h>

#include "base/address.h"
#include "bench/hashjoin/hashjoin.h"

/* Addresses cost nothing. */
#define RESERVE_TIMES 4
#define HALVINGS_MAX 10
#define FIELD_MAX 0xc0000000u /* rows, and units, of one buffer */

const char *const method_names[METHODS] = {"appender", "two-pass", "fixed"};

/* Adds the time since *since, which becomes now. */
static void add_lap_time(double *since, double *sum)
{
    const double now = now_ms();

    *sum += now - *since;
    *since = now;
}

static void launch_both(gpu *g, kernel which, join_params *p)
{
    for (p->heavy_phase = 0; p->heavy_phase <= 1; p->heavy_phase++)
        gpu_launch(g, which, p);
}

static void read_state(const join_params *p, join_state *out)
{
    gpu_copy_out(out, p->state, sizeof *out);
}

static uint64_t text_offset_of(uint64_t rows)
{
    return (rows * sizeof(result_row) + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}

static void add_piece(const piece *p, piece_taker take, void *arg, outcome *out)
{
    const uint64_t bytes = p->rows * sizeof(result_row) + p->text_bytes;

    out->rows += p->rows;
    out->text_bytes += p->text_bytes;
    if (out->piece_bytes_max < bytes)
        out->piece_bytes_max = bytes;
    out->pieces++;
    if (take != NULL)
        take(p, arg);
}

/* ---- the appender */

static gvm_appender *make_appender(gpu *g, const settings *s)
{
    const gvm_appender_options options = {
        .struct_size = sizeof options,
        .chunk_bytes = s->chunk_bytes,
        .budget_bytes = s->budget_bytes != 0 ? s->budget_bytes : g->info.total_bytes,
        .align_bytes = UNIT_BYTES,
        .expected_bytes = UINT64_MAX}; /* a join for a GPU returns much */
    gvm_appender *appender;

    must(gvm_appender_create(g->device, sizeof(result_row), RESERVE_TIMES * g->info.total_bytes,
                             &options, &appender),
         "cannot make an appender");
    return appender;
}

/* One launch and the buffer that it has filled. Returns whether the join is at its end. */
static bool append_piece(gpu *g, gvm_appender *appender, join_params *p, piece *filled,
                         gvm_buffer **buffer, outcome *out)
{
    gvm_appender_result result = {.struct_size = sizeof result};
    double since = now_ms();
    join_state state;

    p->append.struct_size = sizeof p->append;
    must(gvm_appender_begin(appender, &p->append), "cannot begin");
    add_lap_time(&since, &out->allocate_ms);
    launch_both(g, JOIN_APPEND, p);
    must(gvm_appender_finish(appender, NULL, &result), "the join failed");
    add_lap_time(&since, &out->write_ms);
    read_state(p, &state);
    if (state.stop == STOP_TOO_LARGE)
        give_up("a row and its text are larger than the budget: give it a larger one");
    /* Lists of matches that were refused are halved; when they cannot be any more, that is all. */
    out->empty = result.rows > 0 || result.complete ? 0 : out->empty + 1;
    if (out->empty > HALVINGS_MAX)
        give_up("no row fits into what memory there is: %s", gvm_status_text(result.reason));
    since = now_ms();
    must(gvm_appender_take(appender, buffer), "cannot take the buffer");
    add_lap_time(&since, &out->take_ms);
    *filled = (piece){.address = gvmi_address(gvm_buffer_address(*buffer)),
                      .rows = result.rows,
                      .text_low = p->append.reserve_bytes - result.data_bytes,
                      .text_high = p->append.reserve_bytes,
                      .text_bytes = result.data_bytes};
    out->launches++;
    out->commits += result.commits;
    out->commit_ms += (double)result.commit_us / 1e3;
    if (out->launches == 1)
        out->first_ms = (double)result.first_us / 1e3;
    return result.complete != 0;
}

/* No estimate, and nothing is done twice: where the budget is spent, every warp has saved how
 * far it is, the full buffer goes to the caller, and the next launch goes on with an empty
 * one. */
static void join_appender(gpu *g, const built *b, const settings *s, piece_taker take, void *arg,
                          outcome *out)
{
    double since = now_ms(), before;
    join_params p = b->params;
    gvm_appender *appender;
    bool done = false;

    gpu_zero(p.state, sizeof(join_state)); /* which the device does meanwhile */
    gpu_zero(p.saved, g->warps * sizeof(join_range));
    before = now_ms();
    appender = make_appender(g, s);
    add_lap_time(&before, &out->allocate_ms);
    while (!done) {
        gvm_buffer *buffer;
        piece filled;

        done = append_piece(g, appender, &p, &filled, &buffer, out);
        add_lap_time(&since, &out->ms);
        add_piece(&filled, take, arg, out);
        since = now_ms();
        gvm_buffer_destroy(buffer);
        add_lap_time(&since, &out->free_ms);
        if (!done)
            gpu_zero(p.state + offsetof(join_state, stop), sizeof(uint32_t));
    }
    gvm_appender_destroy(appender);
    add_lap_time(&since, &out->free_ms);
}

/* ---- a buffer whose size is known, or assumed to be */

/* A kernel writes into a buffer for so many rows and units, and leaves its state. */
static void *write_buffer(gpu *g, kernel which, join_params *p, uint64_t rows, uint64_t units,
                          join_state *state, outcome *out)
{
    const uint64_t bytes = text_offset_of(rows) + units * UNIT_BYTES;
    double since = now_ms();
    void *memory = NULL;

    gpu_zero(p->state, sizeof(join_state)); /* which the device does meanwhile */
    must(gvm_alloc(g->device, bytes > 0 ? bytes : 1, &memory), "no memory for the result");
    add_lap_time(&since, &out->allocate_ms);
    p->result = (uint64_t)(uintptr_t)memory;
    p->text_offset = text_offset_of(rows);
    p->rows_max = rows;
    p->units_max = units;
    launch_both(g, which, p);
    read_state(p, state);
    add_lap_time(&since, &out->write_ms);
    return memory;
}

static void pass_result_piece(const join_params *p, uint64_t rows, uint64_t units, piece_taker take,
                              void *arg, outcome *out)
{
    const piece filled = {.address = p->result,
                          .rows = rows,
                          .text_low = p->text_offset,
                          .text_high = p->text_offset + units * UNIT_BYTES,
                          .text_bytes = units * UNIT_BYTES};

    out->launches++;
    add_piece(&filled, take, arg, out);
}

static void free_result(void *memory, outcome *out)
{
    const double start = now_ms();

    must(gvm_free(memory), "cannot free the result");
    out->free_ms += now_ms() - start;
}

static void join_two_pass(gpu *g, const built *b, piece_taker take, void *arg, outcome *out)
{
    const double start = now_ms();
    double since = start;
    join_params p = b->params;
    join_state state, end;
    void *memory;

    gpu_zero(p.state, sizeof(join_state));
    gpu_zero(p.tiles, b->tiles * sizeof(uint64_t));
    launch_both(g, JOIN_COUNT, &p);
    scan(g, p.tiles, b->tiles, b->sums);
    read_state(&p, &state);
    if (state.all_rows > FIELD_MAX || state.all_units > FIELD_MAX)
        give_up("the result has more than %u rows, or 48 GiB of text", FIELD_MAX);
    add_lap_time(&since, &out->count_ms);
    memory = write_buffer(g, JOIN_TWO_PASS, &p, state.all_rows, state.all_units, &end, out);
    out->ms = now_ms() - start;
    pass_result_piece(&p, state.all_rows, state.all_units, take, arg, out);
    free_result(memory, out);
}

/* Rows that a fixed buffer is made for: never more than fill half the device. */
static uint64_t estimate_rows(const gpu *g, const settings *s)
{
    const uint64_t row_bytes = sizeof(result_row) + s->average_units * UNIT_BYTES;
    const uint64_t most = g->info.free_bytes / 2 / row_bytes;
    const double guess = s->factor * (double)s->estimate;
    uint64_t rows = guess < (double)most ? (uint64_t)guess : most;

    if (rows > FIELD_MAX / (s->average_units + 1))
        rows = FIELD_MAX / (s->average_units + 1);
    return rows > 0 ? rows : 1;
}

static void join_fixed(gpu *g, const built *b, const settings *s, piece_taker take, void *arg,
                       outcome *out)
{
    const double start = now_ms();
    uint64_t rows = estimate_rows(g, s), units = rows * s->average_units, end;
    join_params p = b->params;
    join_state state;
    void *memory;

    memory = write_buffer(g, JOIN_FIXED, &p, rows, units, &state, out);
    if (state.refused != 0) { /* all of it again, with what is known now */
        end = ~state.refused;
        out->lost_rows = state.lost_rows;
        out->first_try_ms = now_ms() - start;
        out->launches++;
        free_result(memory, out);
        out->allocate_ms += out->free_ms;
        out->free_ms = 0;
        rows = (end >> 32) + state.lost_rows;
        units = (uint32_t)end + state.lost_units;
        if (rows > FIELD_MAX || units > FIELD_MAX)
            give_up("the result has more than %u rows, or 48 GiB of text", FIELD_MAX);
        memory = write_buffer(g, JOIN_FIXED, &p, rows, units, &state, out);
        if (state.refused != 0)
            give_up("a fixed buffer of the size counted was too small");
    }
    out->ms = now_ms() - start;
    pass_result_piece(&p, state.cursor >> 32, (uint32_t)state.cursor, take, arg, out);
    free_result(memory, out);
}

static void join_part(gpu *g, method m, const built *b, const settings *s, piece_taker take,
                      void *arg, outcome *out)
{
    switch (m) {
    case APPENDER: join_appender(g, b, s, take, arg, out); break;
    case TWO_PASS: join_two_pass(g, b, take, arg, out); break;
    default: join_fixed(g, b, s, take, arg, out); break;
    }
}

static void add_outcome(const outcome *part, outcome *sum)
{
    sum->ms += part->ms;
    sum->free_ms += part->free_ms;
    sum->count_ms += part->count_ms;
    sum->allocate_ms += part->allocate_ms;
    sum->write_ms += part->write_ms;
    sum->take_ms += part->take_ms;
    sum->rows += part->rows;
    sum->text_bytes += part->text_bytes;
    sum->launches += part->launches;
    sum->commits += part->commits;
    sum->pieces += part->pieces;
    sum->commit_ms += part->commit_ms;
    sum->lost_rows += part->lost_rows;
    sum->first_try_ms += part->first_try_ms;
    if (sum->parts == 0)
        sum->first_ms = part->first_ms;
    if (sum->piece_bytes_max < part->piece_bytes_max)
        sum->piece_bytes_max = part->piece_bytes_max;
    sum->parts++;
}

/* The outer rows from first on, as many as are joined at once. */
static built part_of(const built *b, uint32_t first, uint32_t rows)
{
    const uint64_t offset_bytes = (uint64_t)first * sizeof(uint32_t);
    built part = *b;

    part.params.outer_first = first;
    part.params.outer_rows = rows;
    part.params.outer_keys += offset_bytes;
    part.params.outer_lows += offset_bytes;
    part.params.outer_highs += offset_bytes;
    return part;
}

void join_with(gpu *g, method m, const built *b, const settings *s, piece_taker take, void *arg,
               outcome *out)
{
    const uint32_t all = b->params.outer_rows, at_once = s->part_rows > 0 ? s->part_rows : all;
    uint32_t first = 0;
    double since;

    *out = (outcome){0};
    do {
        const uint32_t rows = all - first < at_once ? all - first : at_once;
        const built part = part_of(b, first, rows);
        settings of_part = *s;
        outcome done = {0};

        if (rows < all)
            of_part.estimate = (uint64_t)((double)s->estimate * rows / all);
        join_part(g, m, &part, &of_part, take, arg, &done);
        add_outcome(&done, out);
        first += rows;
    } while (first < all);
    since = now_ms();
    must(gvm_device_trim(g->device, 0), "cannot trim"); /* all that any of them had is the driver's again */
    add_lap_time(&since, &out->free_ms);
}
