/* Begin and finish, take and reset: what crosses to the device and back.
 *
 * begin writes the words that kernels share, finish reads them, each with one copy of a few hundred
 * bytes on the device's stream for words, so that neither waits for kernels, or for copies of buffers.
 * What is read back could have been overwritten by any kernel with an invalid pointer: it is
 * checked against the limits before it is used.
 */
#include "appender/appender.h"

#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct.h"

/* Four lanes of a warp read a word each, which warps of one lane would not notice to be others. */
_Static_assert(offsetof(gvm_append_words, end) == offsetof(gvm_append_words, ready) + 8 &&
                   offsetof(gvm_append_words, asked) == offsetof(gvm_append_words, ready) + 16 &&
                   offsetof(gvm_append_words, acked) == offsetof(gvm_append_words, ready) + 24,
               "ready, end, asked and acked follow each other");

/* Does a struct_size that the caller wrote fit? */
static bool fits_struct_size(size_t struct_size, size_t needed)
{
    return struct_size >= needed && struct_size <= GVMI_STRUCT_BYTES_MAX;
}

static gvm_status check_state(const gvm_appender *a, bool begun)
{
    if (a->begun == begun)
        return GVM_OK;
    return gvm_error_set(GVM_E_INVALID, begun ? "the appender has not begun"
                                              : "the appender has begun: finish it first");
}

static gvm_status check_whole(const gvm_appender *a)
{
    if (!a->torn)
        return GVM_OK;
    return gvm_error_set(
        GVM_E_TORN, "the last kernel did not publish all that it had claimed: reset the appender");
}

/* ---- begin */

/* Rows or units of one size of item, at most limit. */
static uint32_t count_within(uint64_t bytes, uint64_t item_bytes, uint64_t limit)
{
    return (uint32_t)gvmi_min(item_bytes > 0 ? bytes / item_bytes : limit, limit);
}

/* How far ahead of what is used memory is asked for at least. What follows the first chunk is asked for when
 * an eighth of that is used: a small result leaves it be. Where the launch before filled a chunk of
 * chunk_bytes, so much is there from the start, and the next is asked for as early. */
static uint64_t least_ahead(const gvm_appender *a, bool front)
{
    const uint64_t expected = gvmi_append_expected(a, front);
    const uint64_t first = expected < a->chunk_bytes ? gvmi_append_end_bytes(a, 1) : expected;

    return gvmi_min(first - first / 8, a->ahead_bytes);
}

static void set_limits(gvm_appender *a)
{
    const uint64_t unit = 1ull << a->unit_shift;
    const uint64_t capacity = gvmi_append_budget_bytes(a);
    gvm_append *limits = &a->limits;

    *limits = (gvm_append){
        .struct_size = sizeof *limits,
        .address = a->address,
        .reserve_bytes = a->reserve_bytes,
        .row_bytes = a->row_bytes,
        .capacity_bytes = capacity,
        .words = a->words.device,
        .mail = a->mail_address,
        .wait_ns = a->wait_ns,
        .rows_max = count_within(capacity, a->row_bytes, GVM_APPEND_FIELD_MAX),
        .units_max = a->rows_only ? 0 : count_within(capacity, unit, GVM_APPEND_FIELD_MAX),
        .unit_shift = a->unit_shift,
        .chunk_shift = capacity < a->reserve_bytes ? (uint32_t)__builtin_ctzll(a->chunk_bytes) : 0,
    };
    if (a->row_bytes > 0) {
        limits->ahead_rows_min = count_within(least_ahead(a, true), a->row_bytes, limits->rows_max);
        limits->ahead_rows_max = count_within(a->ahead_bytes, a->row_bytes, limits->rows_max);
    }
    limits->ahead_units_min = count_within(least_ahead(a, false), unit, limits->units_max);
    limits->ahead_units_max = count_within(a->ahead_bytes, unit, limits->units_max);
}

/* Moves the words between their staging and the device, and waits for that alone. */
static gvm_status copy_words(gvm_appender *a, bool to_device)
{
    gvm_device *device = a->device;
    gvm_status status = gvmi_device_enter(device);
    CUresult result;

    if (status != GVM_OK)
        return status;
    result = to_device ? gvmi_cu->cuMemcpyHtoDAsync(a->words.device, a->staging, sizeof *a->staging,
                                                    device->words_stream)
                       : gvmi_cu->cuMemcpyDtoHAsync(a->staging, a->words.device, sizeof *a->staging,
                                                    device->words_stream);
    if (result != CUDA_SUCCESS)
        status = gvmi_driver_fail(result, to_device ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync",
                                  "cannot copy an appender's words");
    /* After a failure too: what was queued before it may still touch the staging. */
    result = gvmi_cu->cuStreamSynchronize(device->words_stream);
    if (result != CUDA_SUCCESS && status == GVM_OK)
        status = gvmi_driver_fail(result, "cuStreamSynchronize", "cannot copy an appender's words");
    gvmi_device_leave();
    if (status == GVM_E_DRIVER && gvmi_device_was_reset(device))
        status = gvmi_device_fail_reset(device);
    return status;
}

static gvm_status begin_locked(gvm_appender *a, gvm_append *append)
{
    gvm_append_words *words = a->staging;
    gvm_status status = check_state(a, false);
    uint64_t front_chunks, back_chunks;

    if (status == GVM_OK)
        status = check_whole(a);
    if (status == GVM_OK)
        status = gvmi_append_feed_recount(a);
    if (status != GVM_OK)
        return status;
    set_limits(a);
    if (a->stuck)
        gvmi_append_feed_trim(a, true);
    front_chunks = a->feed.front_chunks;
    back_chunks = a->feed.back_chunks;
    gvmi_append_feed_begin(a);
    gvmi_append_feeder_join(a);
    *words = (gvm_append_words){
        .cursor = a->position,
        .ready = __atomic_load_n(&a->mail->ready, __ATOMIC_ACQUIRE),
        .end = GVM_APPEND_NO_END,
        .published = a->position,
    };
    status = copy_words(a, true);
    if (status != GVM_OK) {
        gvmi_append_feeder_leave(a);
        gvmi_append_feed_give_back(a, front_chunks, back_chunks, true);
        return status;
    }
    gvmi_struct_out(append, &a->limits, sizeof a->limits, sizeof a->limits);
    a->begun = true;
    a->begins++;
    return GVM_OK;
}

gvm_status gvm_appender_begin(gvm_appender *handle, gvm_append *append)
{
    GVMI_UNCANCELLED;
    gvm_appender *appender;
    gvm_status status;

    if (append == NULL || !fits_struct_size(append->struct_size, sizeof *append))
        return gvm_error_set(GVM_E_INVALID, "append is NULL or its struct_size is wrong");
    status = gvmi_appender_hold(handle, &appender);
    if (status != GVM_OK)
        return status;
    gvmi_unlock(&appender->lock); /* held still, so that the thread stays once it is there */
    status = gvmi_append_feeder_start();
    gvmi_lock(&appender->lock);
    if (status == GVM_OK)
        status = begin_locked(appender, append);
    gvmi_appender_drop(appender);
    return status;
}

/* ---- finish */

static gvm_status wait_for(gvm_appender *appender, gvm_stream stream)
{
    gvm_status status = gvmi_device_enter(appender->device);
    CUresult result;

    if (status != GVM_OK)
        return status;
    if (gvmi_stream_is_captured(stream)) {
        gvmi_device_leave();
        return gvmi_stream_fail_captured(stream);
    }
    result = gvmi_cu->cuStreamSynchronize(stream);
    gvmi_device_leave();
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuStreamSynchronize",
                                "a kernel failed on device %d: the appender can only be destroyed",
                                appender->device->info.ordinal);
    return GVM_OK;
}

/* How far everything is whole, by the words as they were read back. False: it is not known. */
static bool find_end(const gvm_appender *a, uint64_t *position)
{
    const gvm_append_words *w = a->staging;
    const uint64_t end = w->end != GVM_APPEND_NO_END ? w->end : w->cursor;

    *position = end;
    if (end == a->position) /* nothing was written; a budget set since may be less than that */
        return w->published == end;
    return end <= w->cursor && gvm_append_within(a->position, end) &&
           gvm_append_within(end, gvmi_append_ready(a)) &&
           gvm_append_possible(&a->limits, gvm_append_rows_of(end), gvm_append_units_of(end)) &&
           w->published == end;
}

static gvm_appender_result describe_position(const gvm_appender *a)
{
    const gvmi_append_feed *f = &a->feed;
    const bool complete = a->staging->end == GVM_APPEND_NO_END;

    return (gvm_appender_result){
        .rows = gvm_append_rows_of(a->position),
        .data_bytes = gvm_append_units_of(a->position) << a->unit_shift,
        .commits = f->commits,
        .commit_us = f->commit_us,
        .first_us = f->first_us,
        .reason = complete     ? GVM_OK
                  : f->refused ? f->reason
                               : GVM_E_LIMIT,
        .complete = complete,
    };
}

static gvm_status finish_appender_locked(gvm_appender *a, uint64_t begins, gvm_appender_result *result)
{
    uint64_t position;
    gvm_status status = check_state(a, true);

    if (status == GVM_OK && a->begins != begins)
        status = gvm_error_set(GVM_E_INVALID,
                               "the appender was begun by another call while this one waited");
    if (status == GVM_OK)
        status = copy_words(a, false);
    if (status != GVM_OK)
        return status;
    gvmi_append_feeder_leave(a);
    a->begun = false;
    if (a->staging->end != GVM_APPEND_NO_END)
        a->dirty = true;
    if (!find_end(a, &position)) {
        a->torn = a->dirty = true;
        return gvm_error_set(GVM_E_TORN,
                             "a kernel ended without publishing all that it had claimed, or wrote over "
                             "the appender's words: reset the appender");
    }
    a->stuck = a->staging->end != GVM_APPEND_NO_END && position == a->position &&
               a->staging->state != GVM_APPEND_STATE_LATE;
    a->front_history = (gvm_append_rows_of(position) - gvm_append_rows_of(a->position)) * a->row_bytes;
    a->back_history = (gvm_append_units_of(position) - gvm_append_units_of(a->position))
                      << a->unit_shift;
    a->position = position;
    if (a->staging->state == GVM_APPEND_STATE_LATE && a->staging->end != GVM_APPEND_NO_END)
        return gvm_error_set(GVM_E_TIMEOUT,
                             "a kernel waited %llu ms for memory and gave up; %llu rows are whole",
                             (unsigned long long)(a->wait_ns / 1000000),
                             (unsigned long long)gvm_append_rows_of(position));
    if (result != NULL) {
        const gvm_appender_result full = describe_position(a);

        gvmi_struct_out(result, &full, sizeof full, sizeof full);
    }
    return GVM_OK;
}

gvm_status gvm_appender_finish(gvm_appender *handle, gvm_stream stream, gvm_appender_result *result)
{
    GVMI_UNCANCELLED;
    gvm_appender *appender;
    uint64_t begins;
    gvm_status status = gvmi_appender_hold(handle, &appender);

    if (status != GVM_OK)
        return status;
    begins = appender->begins;
    gvmi_unlock(&appender->lock); /* questions are answered meanwhile */
    status = wait_for(appender, stream);
    gvmi_lock(&appender->lock);
    if (status == GVM_OK && result != NULL && !fits_struct_size(result->struct_size, sizeof *result))
        status = gvm_error_set(GVM_E_INVALID, "result's struct_size is wrong");
    if (status == GVM_OK)
        status = finish_appender_locked(appender, begins, result);
    gvmi_appender_drop(appender);
    return status;
}

/* ---- take and reset */

static void forget_position(gvm_appender *a)
{
    a->position = 0;
    a->torn = false;
}

static gvm_status take_buffer_locked(gvm_appender *a, gvm_buffer **out)
{
    gvm_buffer *fresh, *filled = a->buffer;
    uint64_t address;
    gvm_status status = check_state(a, false);

    if (status == GVM_OK)
        status = check_whole(a);
    if (status == GVM_OK && gvmi_device_was_reset(a->device))
        status = gvmi_device_fail_reset(a->device);
    if (status == GVM_OK)
        status = gvmi_appender_new_buffer(a, &fresh, &address);
    if (status != GVM_OK)
        return status;
    gvmi_append_feed_trim(a, true);
    a->buffer = fresh;
    a->address = address;
    a->feed.step_bytes = 0;
    __atomic_store_n(&a->feed.front_chunks, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&a->feed.back_chunks, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&a->mail->ready, 0, __ATOMIC_RELEASE);
    forget_position(a);
    a->dirty = false;
    *out = filled;
    return GVM_OK;
}

gvm_status gvm_appender_take(gvm_appender *handle, gvm_buffer **out)
{
    GVMI_UNCANCELLED;
    gvm_appender *appender;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_appender_hold(handle, &appender);
    if (status != GVM_OK)
        return status;
    status = take_buffer_locked(appender, out);
    gvmi_appender_drop(appender);
    return status;
}

gvm_status gvm_appender_reset(gvm_appender *handle)
{
    GVMI_UNCANCELLED;
    gvm_appender *appender;
    gvm_status status = gvmi_appender_hold(handle, &appender);

    if (status != GVM_OK)
        return status;
    status = check_state(appender, false);
    if (status == GVM_OK) {
        forget_position(appender);
        appender->dirty = true;
    }
    gvmi_appender_drop(appender);
    return status;
}
