/* See run.h: joined rows (GQUERY_APPEND), and the values of their columns. docs/design/query-joins.md says why so.
 *
 * A query has an *area* for the numbers of joined rows. Outer rows go through the scan in slices, which append to it. A slice that does not fit is done
 * again: by the query that goes on from its first row, if there is something in the area, or else with fewer rows, down to one. One row that has
 * more matches than the area has room for gets a larger area.
 *
 * Before the first results, it must be known that no row raises an error, and that the matches of each row fit, and do not take too long. Where the program or the
 * hash tables do not say so, the rows behind those whose results are there are counted once. Once there are results, a slice that takes too long is one that does not fit.
 */
#include "query/run.h"

#define AREA_BYTES \
    (UINT64_C(12) << 20) /* of row numbers, and of records: so that neither block is the keeper's */
#define FEWER 8          /* times, of a slice that did not fit */
#define PARTS 8          /* of the area, that a slice fills, about */
/* Of one row: at 20 us a match, more than a long program takes that looks into several tables, a thread needs 2.6 s; it has 10. */
#define MATCHES_SURE (UINT64_C(128) << 10)

typedef struct area {
    uint32_t tables, record_words;
    uint64_t max;   /* joined rows that it has room for */
    uint64_t most;  /* that it could have */
    uint64_t count; /* that are there */
    uint64_t first; /* the first outer row that is not done */
    uint64_t slice; /* outer rows of the next slice */
} area;

/* ---- memory */

static uint64_t fitting(uint64_t room, uint64_t words)
{
    return gquery_scratch_fitting(room) / (words * sizeof(uint64_t));
}

/* So many joined rows have room for both blocks. */
static uint64_t count_fitting(const area *a, uint64_t room)
{
    const uint64_t rows_room = room / (a->tables + a->record_words) * a->tables;
    const uint64_t rows = fitting(rows_room, a->tables),
                   records = fitting(room - rows_room, a->record_words);

    return rows < records ? rows : records;
}

static bool take_area(gquery_query *q, area *a, uint64_t max)
{
    a->max = max < a->most ? max : a->most;
    q->scan.appended = q->lane->device + GQUERY_CONTROL_AT + offsetof(gquery_control, joined);
    return gquery_take_block(q, a->max * a->tables * sizeof(uint64_t), &q->passed);
}

/* ---- slices */

static bool send_counts(gquery_query *q, const area *a, uint64_t count, uint64_t max, uint64_t stop)
{
    gquery_control *c = gquery_control_of(q);

    c->error = GQUERY_E_NONE; /* of a slice that took too long */
    c->joined = (gquery_appended){
        .rows = q->passed.address, .count = count, .max = max, .stop = stop, .tables = a->tables};
    return gquery_check_call(q,
                             gvmi_cu->cuMemcpyHtoDAsync(q->lane->device + GQUERY_CONTROL_AT,
                                                        q->lane->host + GQUERY_CONTROL_AT,
                                                        sizeof *c, q->lane->stream),
                             "cuMemcpyHtoDAsync");
}

/* How many joined rows there are then; above `stop`: more than that. What the rows have raised is not looked at. */
static bool run_slice(gquery_query *q, const area *a, uint64_t first, uint64_t limit, uint64_t max,
                      uint64_t stop, uint64_t *count)
{
    if (!gquery_batch_begin(q) || !send_counts(q, a, *count, max, stop) ||
        !gquery_launch_scan(q, first, limit) || !gquery_batch_end(q, 0))
        return false;
    *count = gquery_control_of(q)->joined.count;
    return true;
}

/* Fewer rows may not take too long. Where there are no results yet, the local plan has some sooner. */
static bool is_too_long(const gquery_query *q, const area *a, uint64_t rows)
{
    return gquery_control_of(q)->error == GQUERY_E_LONG && rows > 1 &&
           (q->c->query.first_row > 0 || a->count > 0) && !gquery_is_closed(q->c);
}

static uint64_t end_of_slice(const gquery_query *q, const area *a)
{
    return q->rows - a->first < a->slice ? q->rows : a->first + a->slice;
}

/* As many rows as have the first matches that are wanted, about. */
static uint64_t first_slice(const gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    const double rows = (double)w->list_max / q->matches;

    if (w->slice_rows > 0)
        return w->slice_rows;
    return w->list_max > 0 && rows < (double)q->unit ? (uint64_t)rows + 1 : q->unit;
}

/* Where a slice had fewer rows than its time says anything about, many more. */
static uint64_t longer_slice(const gquery_query *q, uint64_t rows, uint64_t adapted)
{
    if (rows >= q->unit)
        return adapted;
    return rows * FEWER < q->unit ? rows * FEWER : q->unit;
}

/* Rows that have as many matches, by those that are done, as fill a part of the area; at most as many as the time of the latest slice allows. */
static uint64_t next_slice(const gquery_query *q, const area *a, uint64_t adapted)
{
    const double done = (double)(a->first - q->c->query.first_row);
    const double rows = a->count > 0 ? done / (double)a->count * (double)a->max / PARTS
                                     : (double)adapted;

    return rows < (double)adapted ? (uint64_t)rows + 1 : adapted;
}

/* One row has more matches than there is room for. */
static bool take_larger_area(gquery_query *q, area *a)
{
    const uint64_t max = a->max;

    gquery_give_block(q, &q->passed);
    if (max < a->most)
        return take_area(q, a, max * FEWER);
    gquery_answer(q->answer, GQUERY_NO_ROOM, "53200",
                  "the matches of a row need more than %llu bytes of scratch memory on the GPU",
                  (unsigned long long)q->c->query.scratch_bytes_max);
    return false;
}

/* A slice that did not fit, into an area that is empty. */
static bool shorten_slice(gquery_query *q, area *a, uint64_t rows)
{
    a->slice = rows / FEWER > 0 ? rows / FEWER : 1;
    return rows > 1 || take_larger_area(q, a);
}

/* Until all rows are done, or the area is full, or so many joined rows are there as are wanted. */
static bool fill_area(gquery_query *q, area *a)
{
    const uint64_t wanted = q->c->query.list_max;

    while (a->first < q->rows && (wanted == 0 || a->count < wanted)) {
        const uint64_t limit = end_of_slice(q, a), rows = limit - a->first;
        uint64_t count = a->count, adapted;

        if (!run_slice(q, a, a->first, limit, a->max, a->max, &count))
            return false;
        if (is_too_long(q, a, rows))
            count = UINT64_MAX;
        else if (gquery_batch_look(q) != GQUERY_SCANNED)
            return false;
        adapted = gquery_batch_adapt(q, rows);
        if (count <= a->max) {
            a->first = limit;
            a->count = count;
            a->slice = next_slice(q, a, longer_slice(q, rows, adapted));
        } else if (a->count > 0) {
            a->slice = next_slice(q, a, rows / 2 > 0 ? rows / 2 : 1);
            break;
        } else if (!shorten_slice(q, a, rows)) {
            return false;
        }
    }
    return true;
}

/* ---- before the first results */

static bool is_certain(const gquery_query *q, const area *a)
{
    const uint64_t most = a->most < MATCHES_SURE ? a->most : MATCHES_SURE;

    return !gquery_may_raise(q->program) && q->matches_most <= (double)most;
}

/* Rows that are not done raise no error, and the matches of none of them are too many, or take too long. */
static bool check_rest(gquery_query *q, const area *a)
{
    uint64_t first = a->first, slice = q->unit;

    while (first < q->rows) {
        const uint64_t rows = q->rows - first < slice ? q->rows - first : slice;
        uint64_t count = 0, adapted;

        if (!run_slice(q, a, first, first + rows, 0, a->most, &count) ||
            gquery_batch_look(q) != GQUERY_SCANNED)
            return false;
        adapted = gquery_batch_adapt(q, rows);
        if (count <= a->most) {
            first += rows;
            slice = longer_slice(q, rows, adapted);
        } else if (rows > 1) {
            slice = rows / FEWER > 0 ? rows / FEWER : 1;
        } else {
            area full = *a;

            full.max = a->most;
            return take_larger_area(q, &full);
        }
    }
    return true;
}

/* ---- the whole */

static bool write_results(gquery_query *q, const area *a)
{
    gquery_window *window;

    if (a->count == 0) {
        if (!gquery_write_records(q, NULL, 0, a->record_words))
            return false;
    } else if (!gquery_take_block(q, a->count * a->record_words * sizeof(uint64_t), &q->gathered) ||
               !gquery_gather_values(q, &q->passed, a->count, a->tables, q->c->query.batched == 0) ||
               !gquery_write_block(q, &q->gathered, a->count, a->record_words, false)) {
        return false;
    }
    window = gquery_window_of(q); /* the file may be mapped anew */
    window->next_row = a->first;
    window->next_slice_rows = a->slice;
    return true;
}

bool gquery_run_appended(gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    const gquery_control c = {.error = 0};
    area a = {.tables = 1 + q->shape.joins,
              .record_words = 1 + w->gather_count + (w->batched != 0),
              .first = w->first_row,
              .slice = first_slice(q)};
    const uint64_t room = fitting(AREA_BYTES, a.tables > a.record_words ? a.tables : a.record_words);
    const double needed = (double)q->rows * q->matches_most;

    if (w->first_row > q->rows)
        return gquery_refuse(q, "there is no such row to go on from");
    if (q->rows == 0)
        return write_results(q, &a);
    a.most = count_fitting(&a, gquery_room(q));
    if (a.most == 0)
        return take_larger_area(q, &a);
    return take_area(q, &a, needed < (double)room ? (uint64_t)needed : room) &&
           gquery_choose_launch(q) && gquery_send_control(q, &c) && fill_area(q, &a) &&
           (w->first_row > 0 || is_certain(q, &a) || check_rest(q, &a)) && write_results(q, &a);
}
