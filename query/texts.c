/* See run.h: texts as keys of groups. Programs load numbers in their place (GQUERY_NUMBERED), and the groups that
 * are sent have the texts of these.
 *
 * Each launch of the scan comes after launches that number the texts of its rows, into memory that the next one
 * uses again, as of distances (distance.c). Texts of inner tables are numbered before the first one: of all rows,
 * as rows of the outer table find the same ones again and again.
 *
 * Texts of rows that do not count are not numbered: a scan of the program's first filters alone marks the others
 * before. So a text that is too long ends the query only where it may be a key, and a hash table has few texts
 * where few rows pass.
 */
#include <stddef.h>

#include "query/number.h"
#include "query/run.h"

#define LAUNCH_ROWS (UINT64_C(4) << 20)
#define BITMAP_STEP 64 /* rows: bitmaps have whole words */
#define WORDS_FIRST (UINT64_C(16) << 10)
#define WORDS_LEAST 64
#define WORDS_GROWTH 16 /* where they were too few */
#define ROOM_PART 4     /* most is for groups */

static bool is_outer(const gquery_query *q, const gquery_numbers *n)
{
    return q->c->query.program.columns[n->column].table == 0;
}

static uint64_t round_rows(uint64_t rows)
{
    return (rows + BITMAP_STEP - 1) / BITMAP_STEP * BITMAP_STEP;
}

/* Of the outer table. */
static uint64_t launched_rows(const gquery_query *q)
{
    return round_rows(q->rows < q->launch_rows ? q->rows : q->launch_rows);
}

/* Rows whose numbers are in memory at a time. */
static uint64_t kept_rows(const gquery_query *q, const gquery_numbers *n)
{
    return is_outer(q, n) ? launched_rows(q) : round_rows(n->rows);
}

/* ---- checks */

/* The shape of the groups that are sent. */
static const gquery_shape *last_groups(const gquery_query *q)
{
    const uint32_t last = q->c->query.stage_count;

    return &q->shapes[q->shapes[last].emitted ? last - 1 : last];
}

bool gquery_texts_check(gquery_query *q)
{
    const gquery_window *w = &q->c->query;

    if (w->text_count > GQUERY_KEYS_MAX)
        return gquery_refuse(q, "too many texts of groups");
    for (uint32_t i = 0; i < w->text_count; i++) {
        const gquery_wanted_text *t = &w->texts[i];

        if (t->column >= w->program.column_count ||
            !gquery_is_numbered(&w->program.columns[t->column]) || t->key >= last_groups(q)->keys)
            return gquery_refuse(q, "a text is of no column, or no key");
    }
    return true;
}

/* ---- memory */

static bool list_numbers(gquery_query *q)
{
    const gquery_program *p = &q->c->query.program;

    q->numbered = 0;
    for (uint32_t i = 0; i < p->column_count; i++) {
        gquery_numbers *n = &q->numbers[q->numbered];

        if (!gquery_is_numbered(&p->columns[i]))
            continue;
        *n = (gquery_numbers){.column = i,
                              .source = q->scan.sources[i],
                              .rows = q->c->query.tables[p->columns[i].table].rows,
                              .words = WORDS_FIRST};
        q->numbered++;
        if (n->rows >= GQUERY_NUMBER_ROWS) {
            gquery_answer(q->answer, GQUERY_NO_ROOM, "53200",
                          "a table whose texts are keys has too many rows");
            return false;
        }
    }
    return true;
}

static uint64_t numbers_bytes(const gquery_query *q)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < q->numbered; i++) {
        const uint64_t rows = kept_rows(q, &q->numbers[i]);

        bytes += rows * sizeof(uint32_t) + rows / 8;
    }
    return bytes + launched_rows(q) / 8; /* marks */
}

bool gquery_texts_prepare(gquery_query *q)
{
    uint64_t at;

    if (!list_numbers(q))
        return false;
    if (q->numbered == 0 || q->rows == 0)
        return true;
    q->launch_rows = q->launch_rows < LAUNCH_ROWS ? q->launch_rows : LAUNCH_ROWS;
    while (q->launch_rows > GQUERY_SLICE_LEAST && numbers_bytes(q) > q->c->query.scratch_bytes_max / 4)
        q->launch_rows = gquery_half_rows(q->launch_rows);
    if (!gquery_take_block(q, numbers_bytes(q), &q->number_block))
        return false;
    at = q->number_block.address;
    for (uint32_t i = 0; i < q->numbered; i++) {
        gquery_numbers *n = &q->numbers[i];

        n->present = at;
        n->out = at + kept_rows(q, n) / 8;
        at = n->out + kept_rows(q, n) * sizeof(uint32_t);
    }
    q->number_marks = at;
    return true;
}

/* Of which half is used: no more than rows need, each of which has another text, and, if fewer may do, no more than
 * a part of the memory that is left. */
static void choose_words(const gquery_query *q, gquery_numbers *n)
{
    while (n->words > WORDS_LEAST &&
           (n->words / 4 >= n->rows ||
            (n->words / 2 > n->too_few && n->words * sizeof(uint64_t) > gquery_room(q) / ROOM_PART)))
        n->words /= 2;
}

bool gquery_texts_take(gquery_query *q)
{
    for (uint32_t i = 0; i < q->numbered; i++) {
        gquery_numbers *n = &q->numbers[i];

        choose_words(q, n);
        if (n->words <= n->too_few) {
            gquery_answer(q->answer, GQUERY_NO_ROOM, "53200",
                          "too many texts have the same place in a hash table");
            return false;
        }
        if (!gquery_take_block(q, n->words * sizeof(uint64_t), &n->block))
            return false;
    }
    return true;
}

bool gquery_texts_begin(gquery_query *q, gquery_control *c)
{
    for (uint32_t i = 0; i < q->numbered; i++) {
        const gquery_numbers *n = &q->numbers[i];

        c->texts[i] = (gquery_texts){.words = n->block.address, .mask = n->words - 1};
        if (!gquery_check_call(q,
                               gvmi_cu->cuMemsetD8Async(n->block.address, 0,
                                                        n->words * sizeof(uint64_t), q->lane->stream),
                               "cuMemsetD8Async"))
            return false;
    }
    return true;
}

void gquery_texts_end(gquery_query *q, bool full)
{
    const gquery_control *c = gquery_control_of(q);

    for (uint32_t i = 0; i < q->numbered; i++) {
        gquery_numbers *n = &q->numbers[i];

        n->longest = c->texts[i].longest;
        if (full && gquery_texts_full(&c->texts[i])) {
            n->too_few = n->words;
            n->words *= WORDS_GROWTH;
        }
        gquery_give_block(q, &n->block);
    }
}

bool gquery_texts_are_full(const gquery_query *q)
{
    const gquery_control *c = gquery_control_of(q);

    for (uint32_t i = 0; i < q->numbered; i++)
        if (gquery_texts_full(&c->texts[i]))
            return true;
    return false;
}

/* ---- numbers */

/* `first` and what is before it is not in memory: addresses are those that row 0 would have. */
static void set_source(gquery_query *q, const gquery_numbers *n, uint64_t first)
{
    gquery_source *source = &q->scan.sources[n->column];

    if (n->source.values == 0) /* all are NULL */
        return;
    source->values = n->out - first * sizeof(uint32_t);
    if (n->source.form == GQUERY_TEXT_BODIES)
        source->nulls = n->present - first / 8;
    source->form = GQUERY_U32;
    source->has = source->nulls != 0 ? GQUERY_HAS_NULLS : 0;
}

/* As there is no bitmap beside the places of their bodies. */
static bool launch_present(gquery_query *q, const gquery_numbers *n, uint64_t first, uint64_t limit,
                           uint64_t base)
{
    const gquery_present present = {
        .source = n->source, .first = first, .limit = limit, .out = n->present - base / 8};

    return n->source.form != GQUERY_TEXT_BODIES ||
           gquery_launch(q, q->device->present, gquery_count_blocks(q, (limit - first + 7) / 8),
                         q->device->threads, 0, &present);
}

static bool launch_number(gquery_query *q, uint32_t i, uint64_t first, uint64_t limit,
                          uint64_t base, uint64_t marked)
{
    const gquery_numbers *n = &q->numbers[i];
    const gquery_number number = {.source = n->source,
                                  .first = first,
                                  .limit = limit,
                                  .marked = marked,
                                  .out = n->out - base * sizeof(uint32_t),
                                  .texts = q->lane->device + GQUERY_CONTROL_AT +
                                           offsetof(gquery_control, texts) + i * sizeof(gquery_texts),
                                  .error = q->scan.error,
                                  .flags = (uint32_t)q->c->query.program.columns[n->column].bias};

    return n->source.values == 0 || first >= limit ||
           (launch_present(q, n, first, limit, base) &&
            gquery_launch(q, q->device->number, gquery_count_blocks(q, limit - first),
                          q->device->threads, 0, &number));
}

/* The instructions up to the last filter before joins and groups. */
static uint32_t count_filters(const gquery_query *q)
{
    const gquery_program *p = (const gquery_program *)q->lane->host;
    uint32_t count = q->scan.tests.end;

    for (uint32_t at = count; at < p->code_count; at++) {
        const uint32_t op = p->code[at].op & GQUERY_OPERATION;

        if (op == GQUERY_PROBE || op == GQUERY_GROUP)
            break;
        if ((p->code[at].op & GQUERY_THEN_FILTER) != 0)
            count = at + 1;
    }
    return count;
}

/* Rows of [first, limit) that are seen and pass the first filters. marked: where row 0's bit would be; 0: all rows do. */
static bool mark_rows(gquery_query *q, uint64_t first, uint64_t limit, uint64_t *marked)
{
    gquery_scan scan = q->scan;

    *marked = 0;
    scan.tests.code_count = count_filters(q);
    if (scan.tests.code_count == 0 && scan.dead == 0 && scan.deleted == 0)
        return true;
    *marked = scan.marked = q->number_marks - first / 8;
    scan.first = first;
    scan.limit = limit;
    gquery_place_local(&scan, 0, 0);
    return gquery_launch_program(q, &scan);
}

bool gquery_texts_launch(gquery_query *q, uint64_t first, uint64_t limit)
{
    bool is_marked = false;
    uint64_t marked = 0;

    if (q->stage > 0)
        return true;
    for (uint32_t i = 0; i < q->numbered; i++) {
        if (!is_outer(q, &q->numbers[i]))
            continue;
        if ((!is_marked && !mark_rows(q, first, limit, &marked)) ||
            !launch_number(q, i, first, limit, first, marked))
            return false;
        is_marked = true;
        set_source(q, &q->numbers[i], first);
    }
    return true;
}

static gquery_outcome number_inner(gquery_query *q, uint32_t i)
{
    const uint64_t rows = q->numbers[i].rows;
    gquery_outcome got = GQUERY_SCANNED;
    uint64_t first = 0, batch = q->unit;

    while (got == GQUERY_SCANNED && first < rows) {
        const uint64_t limit = rows - first < batch ? rows : first + batch;

        if (!gquery_batch_begin(q) || !launch_number(q, i, first, limit, 0, 0) ||
            !gquery_batch_end(q, 0))
            return GQUERY_FAILED;
        batch = gquery_batch_adapt(q, batch);
        got = gquery_batch_look(q);
        first = limit;
    }
    set_source(q, &q->numbers[i], 0);
    return got;
}

gquery_outcome gquery_texts_of_inner(gquery_query *q)
{
    gquery_outcome got = GQUERY_SCANNED;

    for (uint32_t i = 0; q->rows > 0 && i < q->numbered && got == GQUERY_SCANNED; i++)
        if (!is_outer(q, &q->numbers[i]))
            got = number_inner(q, i);
    return got;
}

/* ---- results */

static const gquery_numbers *numbers_of(const gquery_query *q, uint32_t column)
{
    uint32_t i = 0;

    while (q->numbers[i].column != column)
        i++;
    return &q->numbers[i];
}

static uint32_t text_words(const gquery_numbers *n)
{
    return 1 + (n->longest + 7) / 8;
}

uint32_t gquery_texts_words(gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    uint32_t words = 0;

    for (uint32_t i = 0; i < w->text_count; i++) {
        const uint32_t each = text_words(numbers_of(q, w->texts[i].column));

        gquery_window_of(q)->text_words[i] = each;
        words += each;
    }
    return words;
}

bool gquery_texts_put(gquery_query *q, uint64_t records, uint64_t count, uint32_t nulls, uint32_t at)
{
    const gquery_window *w = &q->c->query;
    const uint32_t pitch = at + gquery_texts_words(q);

    for (uint32_t i = 0; i < w->text_count; i++) {
        const gquery_numbers *n = numbers_of(q, w->texts[i].column);
        const gquery_put_texts put = {.source = n->source,
                                      .rows = n->rows,
                                      .records = records,
                                      .count = count,
                                      .error = q->scan.error,
                                      .flags = (uint32_t)w->program.columns[n->column].bias,
                                      .pitch = pitch,
                                      .nulls = nulls,
                                      .null_bit = w->texts[i].key,
                                      .key = nulls + 1 + w->texts[i].key,
                                      .at = at,
                                      .words = text_words(n)};

        if (!gquery_launch(q, q->device->put_texts, gquery_count_blocks(q, count * put.words),
                           q->device->threads, 0, &put))
            return false;
        at += put.words;
    }
    return w->text_count == 0 || (gquery_batch_end(q, 0) && gquery_batch_look(q) == GQUERY_SCANNED);
}
