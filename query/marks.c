/* See run.h: rows that pass, as a bitmap, or, if they are few, as a list with the values of columns. */
#include "query/gather.h"
#include "query/run.h"

#define PART_WORDS 256u /* of 32 rows, that a warp counts at a time, at least */
#define BITMAP_ROWS \
    4096u /* a bitmap of so many is sent at once: to make a list of it takes longer */
#define PARTS_MAX (GQUERY_STATES_BYTES / sizeof(uint64_t))

static bool has_rows(const gquery_query *q, uint32_t table)
{
    return table < GQUERY_TABLES_MAX && (q->shape.loadable >> table & 1) != 0;
}

/* Of a table whose rows are known, and of a form that records have. */
static bool is_gathered(const gquery_query *q, uint32_t wanted)
{
    const gquery_program *p = &q->c->query.program;
    const uint32_t number = wanted & ~GQUERY_GATHER_HIGH;
    const gquery_column *column = &p->columns[number < p->column_count ? number : 0];

    if ((wanted & GQUERY_GATHER_ROW) != 0)
        return (q->shape.appended || q->c->query.nearest > 0) &&
               has_rows(q, wanted & ~GQUERY_GATHER_ROW);
    return number < p->column_count && has_rows(q, column->table) &&
           ((wanted & GQUERY_GATHER_HIGH) == 0 || column->form == GQUERY_DECIMAL) &&
           (column->form < GQUERY_DECIMAL || (q->shape.appended && !gquery_is_text(column->form)));
}

bool gquery_marks_check(gquery_query *q)
{
    const gquery_window *w = &q->c->query;

    if (w->gather_count > GQUERY_COLUMNS_MAX || (w->gather_max > 0 && !q->shape.marked))
        return gquery_refuse(q, "columns are gathered of marked rows");
    if (w->gather_vectors != 0 && w->nearest == 0)
        return gquery_refuse(q, "vectors are gathered of the nearest rows");
    for (uint32_t i = 0; i < w->gather_count; i++)
        if (!is_gathered(q, w->gather[i]))
            return gquery_refuse(q, "there is no such column to be gathered");
    return true;
}

/* Kernels write whole words of 32 bits as far as there are rows. */
bool gquery_mark(gquery_query *q)
{
    const gquery_control c = {.error = 0};
    const uint64_t words = (q->c->query.tables[0].rows + 63) / 64;

    if (!gquery_take_block(q, words * sizeof(uint64_t), &q->marked))
        return false;
    q->scan.marked = q->marked.address;
    return gquery_check_call(q,
                             gvmi_cu->cuMemsetD8Async(q->marked.address + (words - 1) * sizeof(uint64_t),
                                                      0, sizeof(uint64_t), q->lane->stream),
                             "cuMemsetD8Async") &&
           gquery_choose_launch(q) && gquery_send_control(q, &c) &&
           gquery_scan_rows(q) == GQUERY_SCANNED;
}

/* ---- a list: the bits of each part are counted, here it is added up how many are before it, and then they are listed */

static uint64_t *counts_of(const gquery_query *q)
{
    return (uint64_t *)(void *)(q->lane->host + GQUERY_STATES_AT);
}

static gquery_marks describe_marks(const gquery_query *q)
{
    gquery_marks m = {.words = q->marked.address,
                      .counts = q->lane->device + GQUERY_STATES_AT,
                      .word_count = (q->c->query.tables[0].rows + 31) / 32,
                      .each = PART_WORDS};

    while ((m.word_count + m.each - 1) / m.each > PARTS_MAX)
        m.each *= 2;
    m.parts = (uint32_t)((m.word_count + m.each - 1) / m.each);
    return m;
}

static bool launch_parts(gquery_query *q, CUfunction kernel, const gquery_marks *m)
{
    const uint64_t warp = q->device->info.warp_size > 1 ? (uint64_t)q->device->info.warp_size : 1;

    return gquery_launch(q, kernel, gquery_count_blocks(q, m->parts * warp), q->device->threads, 0, m);
}

static bool count(gquery_query *q, const gquery_marks *m, uint64_t *total)
{
    uint64_t *counts = counts_of(q);

    if (!launch_parts(q, q->device->count_marks, m) ||
        !gquery_check_call(
            q, gvmi_cu->cuMemcpyDtoHAsync(counts, m->counts, m->parts * sizeof *counts, q->lane->stream),
            "cuMemcpyDtoHAsync") ||
        !gquery_check_call(q, gvmi_cu->cuStreamSynchronize(q->lane->stream), "cuStreamSynchronize"))
        return false;
    *total = 0;
    for (uint32_t i = 0; i < m->parts; i++) {
        const uint64_t ones = counts[i];

        counts[i] = *total;
        *total += ones;
    }
    return true;
}

static bool list(gquery_query *q, gquery_marks *m)
{
    m->rows = q->passed.address;
    return gquery_check_call(q,
                             gvmi_cu->cuMemcpyHtoDAsync(m->counts, counts_of(q),
                                                        m->parts * sizeof(uint64_t), q->lane->stream),
                             "cuMemcpyHtoDAsync") &&
           launch_parts(q, q->device->list_marks, m);
}

uint32_t gquery_gathered_words(const gquery_query *q)
{
    const gquery_window *w = &q->c->query;

    return 2 + w->gather_count + (w->gather_vectors != 0 ? (w->distances[0].stride + 7) / 8 : 0);
}

bool gquery_gather_values(gquery_query *q, const gquery_block *rows, uint64_t count,
                          uint32_t tables, uint32_t skipped)
{
    const gquery_window *w = &q->c->query;
    const uint32_t keyed = w->nearest > 0;
    gquery_gather g = {.rows = rows->address,
                       .count = count,
                       .out = q->gathered.address,
                       .tables = tables,
                       .skipped = skipped,
                       .columns = w->gather_count,
                       .vectors = {.values = q->vectors[0].launch.values, .table = keyed},
                       .vector_bytes = w->distances[0].stride,
                       .vector_words = gquery_gathered_words(q) - 2 - w->gather_count};

    for (uint32_t i = 0; i < g.columns; i++) {
        const uint32_t number = w->gather[i] & ~GQUERY_GATHER_HIGH;
        const gquery_column *column;

        if ((number & GQUERY_GATHER_ROW) != 0) {
            g.forms[i] = GQUERY_ROW_NUMBER;
            g.sources[i] = (gquery_source){.values = g.rows,
                                           .table = (number & ~GQUERY_GATHER_ROW) + keyed};
            continue;
        }
        column = &w->program.columns[number];
        g.forms[i] = number == w->gather[i] ? column->form : GQUERY_DECIMAL_HIGH;
        g.biases[i] = column->form == GQUERY_I32 || column->form == GQUERY_I64 ? column->bias : 0;
        g.sources[i] = q->scan.sources[number];
        g.sources[i].table += keyed;
    }
    return gquery_launch(q, q->device->gather,
                         gquery_count_blocks(q, count * gquery_gathered_words(q)),
                         q->device->threads, 0, &g);
}

/* For row numbers and records. */
static bool has_room(const gquery_query *q, uint64_t rows)
{
    return gquery_scratch_size(rows * sizeof(uint64_t)) +
               gquery_scratch_size(rows * gquery_gathered_words(q) * sizeof(uint64_t)) <=
           gquery_room(q);
}

static bool write_list(gquery_query *q, gquery_marks *m, uint64_t rows)
{
    const uint32_t words = gquery_gathered_words(q);

    if (rows == 0) {
        if (!gquery_write_records(q, NULL, 0, words))
            return false;
        gquery_window_of(q)->gathered = 1;
        return true;
    }
    return gquery_take_block(q, rows * sizeof(uint64_t), &q->passed) &&
           gquery_take_block(q, rows * words * sizeof(uint64_t), &q->gathered) && list(q, m) &&
           gquery_gather_values(q, &q->passed, rows, 1, 0) &&
           gquery_write_block(q, &q->gathered, rows, words, true);
}

bool gquery_run_marks(gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    const uint64_t rows = w->tables[0].rows, words = (rows + 63) / 64;
    gquery_marks m;
    uint64_t total;

    if (words == 0)
        return gquery_write_records(q, NULL, 0, 1);
    if (!gquery_mark(q))
        return false;
    if (w->gather_max > 0 && rows > BITMAP_ROWS) {
        m = describe_marks(q);
        if (!count(q, &m, &total))
            return false;
        if (total <= w->gather_max && has_room(q, total))
            return write_list(q, &m, total);
    }
    return gquery_write_block(q, &q->marked, words, 1, false);
}
