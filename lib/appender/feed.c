/* Committing for one appender: how much, at which end, and what to answer.
 *
 * The device reports two positions: need, which the first of the threads that wait waits for, and
 * asked, which reaches further and is there so that nobody has to wait. Need comes first, and only a
 * need that cannot be met is refused. What is committed ahead takes nothing that is needed at the
 * other end and leaves chunk_bytes of the budget free, so that looking ahead at one end does not refuse
 * the first need at the other.
 *
 * The chunks of both ends are small at first and grow (memory/layout.h): an appender that has begun holds
 * the smallest of each end until it is used. One whose last launch wrote much has as much again from the
 * start, up to chunk_bytes: what is repeated does not begin small.
 *
 * A launch that is granted nothing although it could be in an empty buffer would, launched again,
 * fail in the same way for ever: after one, nothing is ahead of what is needed (stuck).
 *
 * Each step is at most four times the one before, up to the limit of the options: a small result commits
 * little, a large one is not kept by one call a chunk. A step that fails is tried again with a
 * single chunk, and then once what others of the process keep idle has been given back, as far as that
 * waits for no kernel, before anybody is refused. What fails and is not needed is tried again when more is asked, which is
 * at most once for each step of memory: on a full device the driver is not called again and again.
 *
 * What the device reports is data: it is brought within the limits, and never taken back.
 */
#include "appender/appender.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "memory/idle.h"

#define STEP_TIMES 4
#define ROOMY_CHUNKS 16 /* the default of chunk_bytes makes so many of a budget */

/* Fields of a position brought within the limits, and not below those of another. */
static uint64_t raise_position(const gvm_appender *a, uint64_t old, uint64_t reported)
{
    return gvm_append_position(
        gvmi_max(gvm_append_rows_of(old), gvmi_min(gvm_append_rows_of(reported), a->limits.rows_max)),
        gvmi_max(gvm_append_units_of(old),
                 gvmi_min(gvm_append_units_of(reported), a->limits.units_max)));
}

/* Chunks of an end that hold so many bytes; and chunks that so many bytes hold. */
static uint64_t chunks_for(const gvm_appender *a, uint64_t bytes)
{
    return gvmi_layout_touched(&a->layout, bytes);
}

static uint64_t chunks_within(const gvm_appender *a, uint64_t bytes)
{
    return gvmi_layout_at(&a->layout, gvmi_min(bytes, a->reserve_bytes));
}

/* Bytes of the next count chunks of an end that has so many. */
static uint64_t next_bytes(const gvm_appender *a, uint64_t has, uint64_t count)
{
    return gvmi_append_end_bytes(a, has + count) - gvmi_append_end_bytes(a, has);
}

/* How many chunks more an end that has so many gets of so many bytes. */
static uint64_t next_within(const gvm_appender *a, uint64_t has, uint64_t bytes)
{
    return chunks_within(a, gvmi_append_end_bytes(a, has) + bytes) - has;
}

/* Chunks that a position wants beyond those committed, at either end. */
static uint64_t missing_front(const gvm_appender *a, uint64_t position)
{
    const uint64_t want = chunks_for(a, gvm_append_rows_of(position) * a->row_bytes);

    return want > a->feed.front_chunks ? want - a->feed.front_chunks : 0;
}

static uint64_t missing_back(const gvm_appender *a, uint64_t position)
{
    const uint64_t want = chunks_for(a, gvm_append_units_of(position) << a->unit_shift);

    return want > a->feed.back_chunks ? want - a->feed.back_chunks : 0;
}

uint64_t gvmi_append_ready(const gvm_appender *a)
{
    const gvmi_append_feed *f = &a->feed;
    uint64_t rows = a->limits.rows_max, units = a->limits.units_max;

    /* When nothing is left between the ends, only the sum limits them, which the device checks. */
    if (f->front_chunks + f->back_chunks < a->chunk_count) {
        if (a->row_bytes > 0)
            rows = gvmi_min(rows, gvmi_append_end_bytes(a, f->front_chunks) / a->row_bytes);
        units = gvmi_min(units, gvmi_append_end_bytes(a, f->back_chunks) >> a->unit_shift);
    }
    return gvm_append_position(rows, units);
}

/* Can there be data at both ends? */
static bool has_both_ends(const gvm_appender *a)
{
    return a->row_bytes > 0 && !a->rows_only;
}

/* Bytes that may still be committed. */
static uint64_t bytes_left(const gvm_appender *a)
{
    const uint64_t committed = gvmi_append_committed_bytes(a), budget = a->feed.budget_bytes;

    return budget > committed ? gvmi_min(budget, a->reserve_bytes) - committed : 0;
}

/* What is committed ahead leaves so much of the budget. */
static uint64_t spare_bytes(const gvm_appender *a)
{
    return has_both_ends(a) ? a->chunk_bytes : 0;
}

/* What was not asked for yet is committed only where a chunk more or less matters little. */
static bool has_small_chunks(const gvm_appender *a)
{
    return !a->stuck && a->feed.budget_bytes / a->chunk_bytes >= ROOMY_CHUNKS;
}

/* What the first row will ask, or the first bytes where rows take no memory. */
static uint64_t first_request_bytes(const gvm_appender *a)
{
    const gvm_append *l = &a->limits;
    const uint64_t rows = gvm_append_rows_of(a->position) + 1;
    const uint64_t units = gvm_append_units_of(a->position) + 1;

    if (!has_small_chunks(a))
        return 0;
    if (a->row_bytes > 0)
        return gvm_append_position(
            gvm_append_ahead(rows, l->ahead_rows_min, l->ahead_rows_max, l->rows_max), 0);
    return gvm_append_position(
        0, gvm_append_ahead(units, l->ahead_units_min, l->ahead_units_max, l->units_max));
}

uint64_t gvmi_append_expected(const gvm_appender *a, bool front)
{
    const uint64_t written = front ? a->front_history : a->back_history;

    return gvmi_min(gvmi_max(written, gvmi_append_end_bytes(a, 1)), a->chunk_bytes);
}

/* The same in whole chunks. */
static uint64_t first_bytes(const gvm_appender *a, bool front)
{
    return gvmi_append_end_bytes(a, chunks_for(a, gvmi_append_expected(a, front)));
}

/* May an end that has nothing be given memory before it is needed? */
static bool may_have_first(const gvm_appender *a, bool front)
{
    const gvmi_append_feed *f = &a->feed;

    if (f->ahead_over || f->ahead_failed)
        return false;
    if (front)
        return a->row_bytes > 0 && f->front_chunks == 0;
    return !a->rows_only && f->back_chunks == 0 && (a->row_bytes == 0 || has_small_chunks(a));
}

/* How many chunks an end is to have before it is needed and lacks. The last chunk_bytes of a budget are left to
 * what is needed, unless only one end can need them. */
static uint64_t lacking_first(const gvm_appender *a, bool front)
{
    const uint64_t spare = a->reserve_bytes > a->chunk_bytes ? spare_bytes(a) : 0;
    const uint64_t left = bytes_left(a);

    if (!may_have_first(a, front) || left <= spare)
        return 0;
    return gvmi_min(chunks_for(a, gvmi_append_expected(a, front)), chunks_within(a, left - spare));
}

void gvmi_append_feed_begin(gvm_appender *a)
{
    gvmi_append_feed *f = &a->feed;
    gvm_append_mail *mail = a->mail;

    f->budget_bytes = gvmi_append_budget_bytes(a);
    f->step_bytes = gvmi_max(f->step_bytes, gvmi_max(first_bytes(a, true), first_bytes(a, false)));
    f->need = 0;
    f->asked = raise_position(a, 0, first_request_bytes(a));
    f->ahead_over = a->stuck;
    f->ahead_failed = false;
    f->refused = false;
    f->reason = GVM_OK;
    f->commits = f->commit_us = f->first_us = 0;
    f->begun_us = gvmi_now_us();
    __atomic_store_n(&f->starting, lacking_first(a, true) > 0 || lacking_first(a, false) > 0,
                     __ATOMIC_RELAXED);
    /* No kernel looks yet: the launch comes after begin. */
    __atomic_store_n(&mail->asked, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&mail->need, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&mail->acked, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&mail->refused, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&mail->ready, gvmi_append_ready(a), __ATOMIC_RELEASE);
}

/* Takes the chunks [first, end) from their addresses, all or none. */
static void vacate_run(gvm_appender *a, uint64_t first, uint64_t end, bool may_wait)
{
    if (first < end)
        (void)gvmi_buffer_decommit(a->buffer, gvmi_append_end_bytes(a, first),
                                   next_bytes(a, first, end - first),
                                   a->dirty ? GVMI_RELEASE_LATER : GVMI_RELEASE_UNUSED, may_wait);
}

static bool is_committed(const gvm_appender *a, uint64_t index)
{
    return a->buffer->chunks[index].tier != GVM_TIER_ABSENT;
}

/* The ends as they are in the buffer: what the driver could not release still counts, and where
 * they had met, a chunk that served one may have become the other's. What the program decommitted
 * does not count, nor what is written behind it: that is counted when the feed has come there,
 * which commits only what is absent. */
static void recount_ends(gvm_appender *a)
{
    uint64_t front = 0, back = 0;

    while (front < a->chunk_count && is_committed(a, front))
        front++;
    while (back < a->chunk_count - front && is_committed(a, a->chunk_count - 1 - back))
        back++;
    __atomic_store_n(&a->feed.front_chunks, front, __ATOMIC_RELAXED);
    __atomic_store_n(&a->feed.back_chunks, back, __ATOMIC_RELAXED);
    __atomic_store_n(&a->mail->ready, gvmi_append_ready(a), __ATOMIC_RELEASE);
}

void gvmi_append_feed_give_back(gvm_appender *a, uint64_t front_chunks, uint64_t back_chunks,
                                bool may_wait)
{
    const gvmi_append_feed *f = &a->feed;
    const uint64_t first = front_chunks, end = a->chunk_count - gvmi_min(back_chunks, a->chunk_count);
    gvm_error error;

    if (f->front_chunks <= front_chunks && f->back_chunks <= back_chunks)
        return;
    error = gvmi_error_save();
    vacate_run(a, first, gvmi_min(f->front_chunks, end), may_wait);
    vacate_run(a, gvmi_max(a->chunk_count - f->back_chunks, first), end, may_wait);
    recount_ends(a);
    gvm_error_restore(&error);
}

/* Chunks of either end that hold what is written. */
static uint64_t written_front(const gvm_appender *a)
{
    return chunks_for(a, gvm_append_rows_of(a->position) * a->row_bytes);
}

static uint64_t written_back(const gvm_appender *a)
{
    return chunks_for(a, gvm_append_units_of(a->position) << a->unit_shift);
}

void gvmi_append_feed_trim(gvm_appender *a, bool may_wait)
{
    gvmi_append_feed_give_back(a, written_front(a), written_back(a), may_wait);
}

bool gvmi_append_is_written(const gvm_appender *a, uint64_t index)
{
    return index < written_front(a) || index >= a->chunk_count - written_back(a);
}

gvm_status gvmi_append_feed_recount(gvm_appender *a)
{
    uint64_t first, end, bytes;
    gvm_error error;
    bool sealed;

    gvmi_lock(&a->buffer->lock);
    sealed = a->buffer->sealed;
    bytes = gvmi_buffer_committed_bytes(a->buffer);
    recount_ends(a);
    gvmi_unlock(&a->buffer->lock);
    if (sealed)
        return gvm_error_set(GVM_E_SEALED,
                             "the buffer is sealed: take it, and the next one can be filled");
    if (bytes == gvmi_append_committed_bytes(a))
        return GVM_OK;
    /* Between the ends, and not written; what the driver does not release stays. */
    first = gvmi_max(a->feed.front_chunks, written_front(a));
    end = a->chunk_count - gvmi_max(a->feed.back_chunks, written_back(a));
    error = gvmi_error_save();
    vacate_run(a, first, end, true);
    gvm_error_restore(&error);
    return GVM_OK;
}

/* ---- one step */

static void refuse_rows(gvm_appender *a, gvm_status reason)
{
    a->feed.refused = true;
    a->feed.reason = reason;
    __atomic_store_n(&a->mail->refused, 1, __ATOMIC_RELEASE);
}

static void count_commit(gvmi_append_feed *f, uint64_t bytes, int64_t start_us)
{
    const int64_t now_us = gvmi_now_us();

    if (f->commits++ == 0)
        f->first_us = (uint64_t)(now_us - f->begun_us);
    f->commit_us += (uint64_t)(now_us - start_us);
    __atomic_fetch_add(&f->commits_ever, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&f->committed_bytes, bytes, __ATOMIC_RELAXED);
}

/* Commits chunks at one end and says so. needed: somebody waits for it. False: another thread has the
 * buffer's lock, and nothing was done. */
static bool commit_end(gvm_appender *a, bool front, uint64_t count, bool needed)
{
    gvmi_append_feed *f = &a->feed;
    const uint64_t first = front ? f->front_chunks : a->chunk_count - f->back_chunks - count;
    const uint64_t offset_bytes = gvmi_append_end_bytes(a, first);
    const uint64_t bytes = next_bytes(a, first, count);
    const int64_t start_us = gvmi_now_us();
    gvm_status status;

    if (!gvmi_buffer_try_commit(a->buffer, offset_bytes, bytes, &status))
        return false;
    if (status == GVM_E_NOSPACE && needed && count == 1) {
        (void)gvmi_idle_reclaim(a->device, a->step_bytes, false);
        if (!gvmi_buffer_try_commit(a->buffer, offset_bytes, bytes, &status))
            return false;
    }
    if (status == GVM_OK) {
        uint64_t *chunks = front ? &f->front_chunks : &f->back_chunks;

        __atomic_store_n(chunks, *chunks + count, __ATOMIC_RELAXED);
        GVM_ASSERT(f->front_chunks + f->back_chunks <= a->chunk_count);
        f->step_bytes = gvmi_min(STEP_TIMES * gvmi_max(f->step_bytes, bytes), a->step_bytes);
        __atomic_store_n(&a->mail->ready, gvmi_append_ready(a), __ATOMIC_RELEASE);
        count_commit(f, bytes, start_us);
    } else if (count > 1) {
        f->step_bytes = 0;
    } else if (needed) {
        refuse_rows(a, status);
    } else {
        f->ahead_failed = true;
    }
    return true;
}

static void read_mail(gvm_appender *a, uint64_t *reported)
{
    gvmi_append_feed *f = &a->feed;
    const gvm_append_mail *mail = a->mail;
    const uint64_t asked = f->asked;

    *reported = __atomic_load_n(&mail->asked, __ATOMIC_ACQUIRE);
    f->asked = raise_position(a, asked, *reported);
    if (f->asked != asked)
        f->ahead_failed = false;
    f->need = raise_position(a, f->need, __atomic_load_n(&mail->need, __ATOMIC_ACQUIRE));
}

/* So many of the next chunks of an end that has so many as a step takes, but one at least. */
static uint64_t limit_step(const gvm_appender *a, uint64_t has, uint64_t count)
{
    return gvmi_max(gvmi_min(count, next_within(a, has, a->feed.step_bytes)), 1);
}

/* The first chunks of one end, before any kernel of the appender runs; starting ends with the last.
 * A failure to commit them is no error: the first need tries again. */
static bool commit_first(gvm_appender *a)
{
    const bool front = lacking_first(a, true) > 0;
    const bool committed = commit_end(a, front, limit_step(a, 0, lacking_first(a, front)), false);

    if (lacking_first(a, true) == 0 && lacking_first(a, false) == 0)
        __atomic_store_n(&a->feed.starting, false, __ATOMIC_RELEASE);
    return committed;
}

/* Bytes of the next chunks of both ends; where these meet the last serves both. */
static uint64_t both_bytes(const gvm_appender *a, uint64_t front, uint64_t back)
{
    const gvmi_append_feed *f = &a->feed;

    if (f->front_chunks + front + f->back_chunks + back >= a->chunk_count)
        return a->reserve_bytes - gvmi_append_committed_bytes(a);
    return next_bytes(a, f->front_chunks, front) + next_bytes(a, f->back_chunks, back);
}

bool gvmi_append_feed_step(gvm_appender *a)
{
    gvmi_append_feed *f = &a->feed;
    uint64_t reported, left, space, front, back, has, beyond = 0, ahead_front, ahead_back;
    bool needed, unmet, at_front;

    if (__atomic_load_n(&f->starting, __ATOMIC_RELAXED))
        return commit_first(a);
    read_mail(a, &reported);
    left = bytes_left(a);
    space = a->chunk_count - f->front_chunks - f->back_chunks;
    front = gvmi_min(missing_front(a, f->need), space);
    back = gvmi_min(missing_back(a, f->need), space);
    needed = front > 0 || back > 0;
    unmet = both_bytes(a, front, back) > left;
    if (f->refused || space == 0 || unmet) {
        if (!f->refused && unmet)
            refuse_rows(a, GVM_E_LIMIT);
        __atomic_store_n(&a->mail->acked, reported, __ATOMIC_RELEASE);
        return false;
    }
    /* What is asked ahead takes nothing that is needed, and goes with what is needed at its end. */
    if (!f->ahead_over && !f->ahead_failed && left > both_bytes(a, front, back) + spare_bytes(a))
        beyond = left - both_bytes(a, front, back) - spare_bytes(a);
    ahead_front = gvmi_min(
        missing_front(a, f->asked),
        next_within(a, f->front_chunks, next_bytes(a, f->front_chunks, front) + beyond));
    ahead_back = gvmi_min(missing_back(a, f->asked),
                          next_within(a, f->back_chunks, next_bytes(a, f->back_chunks, back) + beyond));
    if (!needed && ahead_front == 0 && ahead_back == 0) {
        __atomic_store_n(&a->mail->acked, reported, __ATOMIC_RELEASE);
        return false;
    }
    at_front = needed ? front > 0 : ahead_front > 0 && (ahead_back == 0 || !f->front_last);
    f->front_last = at_front;
    has = at_front ? f->front_chunks : f->back_chunks;
    front = at_front ? gvmi_max(front, ahead_front) : gvmi_max(back, ahead_back);
    return commit_end(a, at_front, limit_step(a, has, gvmi_min(front, space)), needed);
}
