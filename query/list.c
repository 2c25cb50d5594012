/* See run.h: the first k entries of an ordered list (GQUERY_EMIT).
 *
 * Rows go through the scan in slices. Two lists are on the device. The scan appends to `appended`, which has at
 * most k entries before a slice. After it the bound becomes the k-th entry, so that the next slice appends few, and
 * the entries up to that are put into `kept`, from where they become the beginning of `appended` before the next
 * slice.
 *
 * A slice may have more rows beneath the bound than the list has room for. The k-th of those that have found room
 * is a bound all the same: the list is set back to what it was before the slice, which is done again with that
 * bound and at most half of the rows. A slice of GQUERY_SLICE_LEAST rows always has room, so each one is over after
 * a few turns.
 *
 * Of joined rows an entry has the rows of all tables. One row may have more matches than the list has room for:
 * then, too, the bound that those with room have given leaves fewer the next time.
 *
 * Of rows in random order k / r are beneath a bound that r rows have given. The next slice is expected to have as
 * many times more as the latest one had: so rows in the opposite order of the list go through in slices that fit.
 * But the bound that a slice with too many rows has given may leave none of its first rows and all of the next
 * ones: after it slices grow slowly at first. So the rows that are done again are about as many as the others.
 */
#include "query/run.h"

#define ROOM_LEAST \
    UINT64_C(32768) /* for entries of a slice, where there is memory for that; half is made use of */
#define ENTRIES_MOST (UINT64_C(1) << 60)
#define GROWTH_MOST 64 /* a slice is so many times as large as the one before, at most */

typedef struct list {
    uint64_t k, max;
    uint64_t entries; /* that there may be, at most */
    uint32_t words;
    uint64_t tail;  /* rows at the table's end that come first */
    uint64_t count; /* entries before the slice */
    double excess; /* how many times more rows passed in the latest slice than in random order; 1 at least */
    uint64_t growth; /* of the next slice, at most: 1 after one with too many rows, and then twice as much each time */
} list;

/* ---- memory */

static bool take_list(gquery_query *q, list *l)
{
    const uint64_t bytes = l->words * sizeof(int64_t), others = l->entries - l->k;
    const uint64_t kept = gquery_scratch_size(l->k * bytes), left = gquery_room(q);
    const uint64_t most = left > kept ? gquery_scratch_fitting(left - kept) / bytes : 0;
    const uint64_t least = l->k + (others < GQUERY_SLICE_LEAST ? others : GQUERY_SLICE_LEAST);
    const uint64_t room = 8 * l->k > ROOM_LEAST ? 8 * l->k : ROOM_LEAST;

    l->max = l->k + (others < room ? others : room);
    if (l->max > most)
        l->max = most > least ? most : least;
    return gquery_take_block(q, l->max * bytes, &q->list) &&
           gquery_take_block(q, l->k * bytes, &q->kept);
}

static bool send_first(gquery_query *q, const list *l)
{
    const gquery_window *w = &q->c->query;
    gquery_control c = {.error = 0};

    c.appended = (gquery_list){.entries = q->list.address,
                               .max = l->max,
                               .words = l->words,
                               .continued = w->continued != 0,
                               .tables = q->shape.loadable};
    for (uint32_t i = 0; i < l->words; i++)
        c.appended.after[i] = w->after[i];
    c.kept = c.appended;
    c.kept.entries = q->kept.address;
    c.kept.max = l->k;
    return gquery_send_control(q, &c);
}

/* ---- slices */

/* What the slice before has kept becomes the beginning of the list, unless it is done again. */
static bool send_lists(gquery_query *q, const list *l, bool again)
{
    const uint64_t at = GQUERY_CONTROL_AT + offsetof(gquery_control, appended);
    const uint64_t bytes = l->count * l->words * sizeof(int64_t);
    gquery_control *c = gquery_control_of(q);

    c->appended.count = l->count;
    c->kept.count = 0;
    if (!again && bytes > 0 &&
        !gquery_check_call(
            q, gvmi_cu->cuMemcpyDtoDAsync(q->list.address, q->kept.address, bytes, q->lane->stream),
            "cuMemcpyDtoDAsync"))
        return false;
    return gquery_check_call(q,
                             gvmi_cu->cuMemcpyHtoDAsync(q->lane->device + at, q->lane->host + at,
                                                        2 * sizeof(gquery_list), q->lane->stream),
                             "cuMemcpyHtoDAsync");
}

static bool launch_select(gquery_query *q, const list *l)
{
    const uint64_t control = q->lane->device + GQUERY_CONTROL_AT;
    const gquery_select select = {.from = control + offsetof(gquery_control, appended),
                                  .to = control + offsetof(gquery_control, kept),
                                  .k = l->k < l->entries ? l->k : UINT64_MAX}; /* all of them */

    return gquery_launch(q, q->device->select, 1, q->device->select_threads, 0, &select) &&
           gquery_launch(q, q->device->keep, gquery_count_blocks(q, l->max), q->device->threads, 0,
                         &select);
}

static bool is_small(const list *l)
{
    return l->k * l->words * sizeof(int64_t) <= GQUERY_STATES_BYTES;
}

/* After the last slice a list that is small comes with it. */
static bool copy_small(gquery_query *q, const list *l)
{
    return gquery_check_call(
        q,
        gvmi_cu->cuMemcpyDtoHAsync(q->lane->host + GQUERY_STATES_AT, q->kept.address,
                                   l->k * l->words * sizeof(int64_t), q->lane->stream),
        "cuMemcpyDtoHAsync");
}

static bool run_slice(gquery_query *q, const list *l, uint64_t first, uint64_t limit, bool last)
{
    return gquery_batch_begin(q) && gquery_launch_scan(q, first, limit) && launch_select(q, l) &&
           (!last || !is_small(l) || copy_small(q, l)) && gquery_batch_end(q, 0);
}

/* ---- how large slices are */

static uint64_t whole(uint64_t rows)
{
    const uint64_t least = GQUERY_SLICE_LEAST;

    return rows < least ? least : rows / least * least;
}

/* Rows of the first slice: enough for a bound that leaves few of the next one. */
static uint64_t first_rows(const list *l, uint64_t rows)
{
    const uint64_t enough = whole(4 * l->k);

    if (rows / 4 <= enough && rows <= l->max)
        return rows;
    return enough < l->max ? enough : whole(l->max);
}

/* Of the slice after the one of [first, limit). */
static uint64_t next_rows(list *l, uint64_t first, uint64_t limit, uint64_t passed)
{
    const double k = (double)l->k, in_slice = (double)(limit - first);
    const double most = in_slice * (double)l->growth;
    double density, rows;

    if (first > 0)
        l->excess = (double)passed / in_slice * (double)first / k;
    l->excess = l->excess < 1 ? 1 : l->excess;
    l->growth = l->growth < GROWTH_MOST ? l->growth * 2 : GROWTH_MOST;
    density = l->excess * k / (double)limit;
    rows = (double)(l->max - l->k) / 2 / (density < 1 ? density : 1);
    return whole((uint64_t)(rows < most ? rows : most));
}

/* Of one that had too many: as many as had room, if the others are like them. */
static uint64_t fewer_rows(const list *l, uint64_t rows, uint64_t passed)
{
    const double fitting = (double)rows * (double)(l->max - l->count) / (double)passed;

    return whole(fitting < (double)rows / 2 ? (uint64_t)fitting : rows / 2);
}

/* The last rows come first: in a table that is in order, they or those at its beginning are the first ones of the
 * list, and the bound is right then. first, limit count rows as they come. */
static bool run_next(gquery_query *q, const list *l, uint64_t first, uint64_t limit)
{
    const uint64_t rows = q->rows;
    const bool last = limit == rows;

    return first < l->tail ? run_slice(q, l, rows - l->tail + first, rows - l->tail + limit, last)
                           : run_slice(q, l, first - l->tail, limit - l->tail, last);
}

static uint64_t end_of_slice(const list *l, uint64_t first, uint64_t rows, uint64_t most)
{
    const uint64_t end = first < l->tail ? l->tail : rows;

    if (end == l->tail && end <= l->max && end - first < most + GQUERY_SLICE_LEAST)
        return end; /* not a few rows alone */
    return end - first < most ? end : first + most;
}

static gquery_outcome scan_slices(gquery_query *q, list *l)
{
    const uint64_t rows = q->rows;
    uint64_t first = 0, slice = first_rows(l, rows), batch = q->unit;
    bool again = false;

    l->tail = slice < rows ? rows - (rows - slice) / GQUERY_SLICE_LEAST * GQUERY_SLICE_LEAST : rows;
    while (first < rows) {
        const gquery_control *c = gquery_control_of(q);
        const uint64_t limit = end_of_slice(l, first, rows, slice < batch ? slice : batch);
        gquery_outcome got;
        uint64_t passed, adapted;

        if (((first > 0 || again) && !send_lists(q, l, again)) || !run_next(q, l, first, limit))
            return GQUERY_FAILED;
        got = gquery_batch_look(q);
        if (got != GQUERY_SCANNED)
            return got;
        adapted = gquery_batch_adapt(q, limit - first);
        batch = limit - first < q->unit ? batch : adapted; /* a short one says little */
        passed = c->appended.count - l->count;
        again = c->appended.count > l->max;
        if (again) {
            l->growth = 1;
            slice = fewer_rows(l, limit - first, passed);
            continue;
        }
        slice = limit <= l->tail ? slice : next_rows(l, first, limit, passed);
        l->count = c->kept.count < l->k ? c->kept.count : l->k;
        first = limit;
    }
    return GQUERY_SCANNED;
}

/* ---- the whole */

static bool check_list(gquery_query *q)
{
    const uint64_t k = q->c->query.list_max;

    return (k > 0 && (k <= GQUERY_LIST_MAX || q->stage > 0)) ||
           gquery_refuse(q, "there is no list of so many entries");
}

static bool write_list(gquery_query *q, const list *l)
{
    if (q->stage > 0)
        return gquery_write_listed_groups(q, l->count);
    if (is_small(l))
        return gquery_write_records(q, q->lane->host + GQUERY_STATES_AT, l->count, l->words);
    return gquery_write_block(q, &q->kept, l->count, l->words, false);
}

/* A row may have several matches. */
static uint64_t count_entries(const gquery_query *q)
{
    const double most = (double)q->rows * q->matches_most;

    if (q->shape.joins == 0)
        return q->rows;
    return most < (double)ENTRIES_MOST ? (uint64_t)most : ENTRIES_MOST;
}

bool gquery_run_list(gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    list l = {.entries = count_entries(q),
              .words = q->shape.keys + 1 + q->shape.joins,
              .excess = 1,
              .growth = GROWTH_MOST};

    l.k = w->list_max < l.entries ? w->list_max : l.entries;
    if (!check_list(q))
        return false;
    if (l.entries == 0)
        return write_list(q, &l);
    if (!take_list(q, &l))
        return false;
    q->scan.list = q->lane->device + GQUERY_CONTROL_AT + offsetof(gquery_control, appended);
    if (!gquery_choose_launch(q) || !send_first(q, &l) || scan_slices(q, &l) != GQUERY_SCANNED)
        return false;
    return write_list(q, &l);
}
