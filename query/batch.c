/* See run.h: a batch of rows, which a backend has written to the memory file (wire.h), in the place of the outer table.
 *
 * It is copied to the device before a kernel runs: the backend can write to the file at any time, but by that it
 * changes values alone, which may be any. How many there are is of the window's copy.
 */
#include "query/run.h"

static bool is_of_batch(const gquery_column *c)
{
    return c->table == 0;
}

bool gquery_batch_check(gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    uint64_t columns = 0;

    if (w->batched == 0)
        return true;
    if (w->tables[0].rows > GQUERY_BATCH_ROWS_MAX || w->tables[0].token[0] != '\0' ||
        w->tables[0].dead.bytes > 0 || w->tables[0].deleted_bytes > 0 || w->distance_count > 0)
        return gquery_refuse(q, "a batch has too many rows, or is a table");
    for (uint32_t i = 0; i < w->program.column_count; i++) {
        const gquery_column *c = &w->program.columns[i];

        if (!is_of_batch(c))
            continue;
        columns++;
        if ((c->form != GQUERY_I64 && c->form != GQUERY_F64) || c->bias != 0)
            return gquery_refuse(q, "a batch has no such column");
    }
    if (w->batch.bytes != columns * GQUERY_BATCH_BYTES(w->tables[0].rows) ||
        gquery_at(q->c, w->batch) == NULL)
        return gquery_refuse(q, "a batch leaves the file, or has other columns");
    return true;
}

static void set_sources(gquery_query *q)
{
    const gquery_program *p = &q->c->query.program;
    uint64_t at = q->batch.address;

    for (uint32_t i = 0; i < p->column_count; i++)
        if (is_of_batch(&p->columns[i])) {
            q->scan.sources[i] = gquery_source_at(
                &p->columns[i], at, at + GQUERY_BATCH_PITCH(q->rows) * sizeof(uint64_t));
            at += GQUERY_BATCH_BYTES(q->rows);
        }
}

bool gquery_batch_send(gquery_query *q)
{
    const gquery_window *w = &q->c->query;

    if (w->batched == 0)
        return true;
    q->cost.rows += w->first_row == 0 ? q->rows : 0;
    if (w->batch.bytes == 0)
        return true;
    q->cost.read_bytes += w->first_row == 0 ? w->batch.bytes : 0;
    if (!gquery_take_block(q, w->batch.bytes, &q->batch) ||
        !gquery_check_call(q,
                           gvmi_cu->cuMemcpyHtoDAsync(q->batch.address, gquery_at(q->c, w->batch),
                                                      w->batch.bytes, q->lane->stream),
                           "cuMemcpyHtoDAsync"))
        return false;
    set_sources(q);
    return true;
}
