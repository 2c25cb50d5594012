/* See run.h: a query of several programs, each of which has the groups of the one before for its rows (wire.h).
 *
 * Groups become columns, so that a program reads them as it reads a table's: one for each word of a slot, which lie
 * behind each other, and then a bitmap for each key.
 */
#include <string.h>

#include "query/run.h"

static bool copy_stage(gquery_query *q, uint32_t stage)
{
    const gquery_span span = q->c->query.stages[stage];
    const void *program = gquery_at(q->c, span);

    if (program == NULL || span.bytes != sizeof(gquery_program) || span.at % GQUERY_ALIGN != 0)
        return gquery_refuse(q, "a program leaves the file");
    memcpy(&q->c->stages[stage], program, sizeof(gquery_program));
    return true;
}

static const gquery_program *program_of(const gquery_query *q, uint32_t stage)
{
    return stage == 0 ? &q->c->query.program : &q->c->stages[stage - 1];
}

/* Columns are of what the stage has for rows: a table's, or words of the groups before. */
static bool check_columns(gquery_query *q, uint32_t stage)
{
    const gquery_program *p = program_of(q, stage);
    const uint32_t words = stage == 0
                               ? 0
                               : q->shapes[stage - 1].keys + program_of(q, stage - 1)->state_words;

    for (uint32_t i = 0; i < p->column_count; i++)
        if ((p->columns[i].table == GQUERY_GROUPS) != (stage > 0) ||
            (stage > 0 && p->columns[i].number >= words))
            return gquery_refuse(q, "a column is not of what the program reads");
    return true;
}

static bool check_stage(gquery_query *q, uint32_t stage)
{
    const bool last = stage == q->c->query.stage_count;
    gquery_shape *shape = &q->shapes[stage];
    char problem[128] = "";

    if (stage > 0 && !copy_stage(q, stage - 1))
        return false;
    if (!gquery_check(program_of(q, stage), shape, problem))
        return gquery_refuse(q, problem);
    if (!last && !shape->grouped)
        return gquery_refuse(q, "a program of groups that are not there");
    if (stage > 0 && (shape->joins > 0 || shape->built))
        return gquery_refuse(q, "groups are not joined");
    if (stage > 0 && (shape->marked || q->c->query.continued != 0))
        return gquery_refuse(q, "groups are not marked, and their lists not continued");
    return check_columns(q, stage);
}

static void set_stage(gquery_query *q, uint32_t stage, uint64_t rows)
{
    q->stage = stage;
    q->program = program_of(q, stage);
    q->shape = q->shapes[stage];
    q->rows = rows;
}

bool gquery_stages_check(gquery_query *q)
{
    if (q->c->query.stage_count > GQUERY_STAGES_MAX)
        return gquery_refuse(q, "too many programs");
    for (uint32_t stage = 0; stage <= q->c->query.stage_count; stage++)
        if (!check_stage(q, stage))
            return false;
    set_stage(q, 0, q->c->query.tables[0].rows);
    return true;
}

/* ---- from one to the next */

/* Of keys, then of the words of states; which keys are NULL is a column before these. */
static void set_sources(gquery_query *q, const gquery_collect *groups)
{
    const uint32_t keys = q->shapes[q->stage - 1].keys;

    for (uint32_t i = 0; i < q->program->column_count; i++) {
        const uint32_t number = q->program->columns[i].number;

        q->scan.sources[i] = gquery_source_at(
            &q->program->columns[i],
            groups->out + (number + 1) * groups->word_pitch * sizeof(uint64_t),
            number < keys ? groups->nulls + number * groups->word_pitch / 8 : 0);
    }
}

static bool launch_columns(gquery_query *q, const gquery_collect *groups)
{
    const uint64_t bytes = q->shape.keys * groups->word_pitch / 8;

    return gquery_check_call(q, gvmi_cu->cuMemsetD8Async(groups->nulls, 0xff, bytes, q->lane->stream),
                             "cuMemsetD8Async") &&
           gquery_launch(q, q->device->collect, gquery_count_blocks(q, q->slots),
                         q->device->threads, 0, groups) &&
           gquery_batch_end(q, 0) && gquery_batch_look(q) == GQUERY_SCANNED;
}

bool gquery_stages_next(gquery_query *q)
{
    const uint64_t count = gquery_control_of(q)->groups.count, pitch = (count + 63) / 64 * 64;
    const uint32_t words = 1 + q->shape.keys + q->program->state_words;
    gquery_block before = q->columns;
    gquery_collect groups = {.groups = q->scan.groups,
                             .collected = q->lane->device + GQUERY_CONTROL_AT +
                                          offsetof(gquery_control, collected),
                             .group_pitch = 1,
                             .word_pitch = pitch,
                             .sums = gquery_double_sums(q->program),
                             .error = q->scan.error,
                             .slot_words = words,
                             .keys = q->shape.keys};

    q->columns = (gquery_block){0};
    if (count > 0) {
        const bool taken = gquery_take_block(
            q, words * pitch * sizeof(uint64_t) + q->shape.keys * pitch / 8, &q->columns);

        groups.out = q->columns.address;
        groups.nulls = groups.out + words * pitch * sizeof(uint64_t);
        if (!taken || !launch_columns(q, &groups)) {
            gquery_give_block(q, &before);
            return false;
        }
    }
    gquery_give_block(q, &before);
    gquery_give_block(q, &q->groups);
    set_stage(q, q->stage + 1, count);
    q->matches = 1;
    q->scan.dead = q->scan.deleted = q->scan.groups = 0;
    q->pitch = pitch;
    set_sources(q, &groups);
    return true;
}

/* ---- results of a list */

bool gquery_write_listed_groups(gquery_query *q, uint64_t count)
{
    const uint32_t entry_words = q->shape.keys + 1;
    const uint32_t group_words = 1 + q->shapes[q->stage - 1].keys +
                                 program_of(q, q->stage - 1)->state_words;
    const uint32_t pitch = entry_words + group_words + gquery_texts_words(q);
    gquery_listed_groups listed = {.entries = q->kept.address,
                                   .count = count,
                                   .groups = q->columns.address,
                                   .word_pitch = q->pitch,
                                   .pitch = pitch,
                                   .entry_words = entry_words,
                                   .group_words = group_words};

    if (count == 0)
        return gquery_write_records(q, NULL, 0, pitch);
    if (!gquery_take_block(q, count * pitch * sizeof(uint64_t), &q->gathered))
        return false;
    listed.out = q->gathered.address;
    return gquery_launch(q, q->device->list_groups,
                         gquery_count_blocks(q, count * (entry_words + group_words)),
                         q->device->threads, 0, &listed) &&
           gquery_texts_put(q, listed.out, count, entry_words, entry_words + group_words) &&
           gquery_write_block(q, &q->gathered, count, pitch, false);
}
