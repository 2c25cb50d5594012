/* Appenders: creation, questions, end; what options mean. */
#include "appender/appender.h"

#include <stdlib.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "base/struct.h"

#define CHUNKS_WANTED 64 /* of the reservation; the header says why large ones */
#define CHUNKS_BUDGET_MIN 16
#define CHUNK_BYTES_CHOSEN_MAX (512ull << 20)
#define STEP_BYTES_DEFAULT (256ull << 20)
#define WAIT_MS_DEFAULT 10000
#define UNIT_SHIFT_MIN 4
#define UNIT_SHIFT_CHOSEN_MAX 16

/* ---- options */

/* What can ever be committed: by the reservation, the budget, and the device. */
static uint64_t reachable_bytes(const gvm_device *device, uint64_t reserve_bytes, uint64_t budget_bytes)
{
    const uint64_t reach = gvmi_min(reserve_bytes, device->info.total_bytes);

    return gvmi_min(reach, budget_bytes);
}

static uint64_t choose_append_chunk_bytes(const gvm_device *device, uint64_t reserve_bytes,
                                          uint64_t budget_bytes)
{
    const uint64_t most = reachable_bytes(device, reserve_bytes, budget_bytes) / CHUNKS_BUDGET_MIN;
    uint64_t chunk_bytes = gvmi_min(gvmi_pow2_up(reserve_bytes / CHUNKS_WANTED),
                                    CHUNK_BYTES_CHOSEN_MAX);

    while (chunk_bytes > most && chunk_bytes > GVM_CHUNK_BYTES_MIN)
        chunk_bytes /= 2;
    return gvmi_max(gvmi_max(chunk_bytes, GVM_CHUNK_BYTES_MIN), device->info.granularity_bytes);
}

static uint32_t choose_unit_shift(const gvm_device *device, uint64_t reserve_bytes,
                                  const gvm_appender_options *options)
{
    const uint64_t reach = reachable_bytes(device, reserve_bytes, options->budget_bytes);
    uint32_t shift = UNIT_SHIFT_MIN;

    if (options->align_bytes != 0)
        return (uint32_t)__builtin_ctz(options->align_bytes);
    while (reach >> shift > GVM_APPEND_FIELD_MAX && shift < UNIT_SHIFT_CHOSEN_MAX)
        shift++;
    return shift;
}

static gvm_status read_appender_options(const gvm_appender_options *options, gvm_appender_options *full)
{
    if (!gvmi_struct_in(full, sizeof *full, options, sizeof *full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    full->budget_bytes = gvmi_amount(full->budget_bytes, GVM_BYTES_UNLIMITED);
    if ((full->flags & ~(uint32_t)(GVM_BUFFER_UNSHARED | GVM_APPENDER_ROWS_ONLY)) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown appender flags %#x", (unsigned)full->flags);
    if (full->reserved != 0)
        return gvm_error_set(GVM_E_INVALID, "reserved is %u among the appender options, not 0",
                             (unsigned)full->reserved);
    if (full->align_bytes != 0 &&
        (!gvmi_is_pow2(full->align_bytes) || full->align_bytes > GVM_APPEND_ALIGN_MAX))
        return gvm_error_set(GVM_E_INVALID, "align_bytes is a power of two up to %u, not %u",
                             GVM_APPEND_ALIGN_MAX, (unsigned)full->align_bytes);
    return GVM_OK;
}

static gvm_status check_appender_sizes(uint64_t row_bytes, uint64_t reserve_bytes)
{
    char size[32];

    if (reserve_bytes == 0 || reserve_bytes > GVMI_SPAN_BYTES_MAX)
        return gvm_error_set(GVM_E_INVALID, "an appender reserves between 1 byte and 128 TiB, not %s",
                             gvmi_size_text(reserve_bytes, size));
    if (row_bytes > reserve_bytes)
        return gvm_error_set(GVM_E_INVALID, "a row of %llu bytes is larger than the reservation",
                             (unsigned long long)row_bytes);
    return GVM_OK;
}

static gvm_status check_budget(uint64_t budget_bytes, uint64_t chunk_bytes)
{
    char budget[32], chunk[32];

    if (budget_bytes >= chunk_bytes)
        return GVM_OK;
    return gvm_error_set(GVM_E_INVALID,
                         "the budget of %s is less than a chunk of %s: use smaller chunks",
                         gvmi_size_text(budget_bytes, budget), gvmi_size_text(chunk_bytes, chunk));
}

/* ---- creation */

/* Pinned words of one appender. */
typedef struct host_words {
    gvm_append_mail mail;
    gvm_append_words staging;
} host_words;

gvm_status gvmi_appender_new_buffer(const gvm_appender *appender, gvm_buffer **out, uint64_t *address)
{
    gvm_status status = gvmi_buffer_create(appender->device, &appender->spec, out);

    if (status == GVM_OK)
        *address = (*out)->address;
    return status;
}

static void set_options(gvm_appender *a, const gvm_appender_options *options)
{
    a->layout = a->buffer->layout;
    a->reserve_bytes = a->buffer->reserve_bytes;
    a->chunk_bytes = a->layout.chunk_bytes;
    a->chunk_count = a->buffer->chunk_count;
    a->budget_bytes = options->budget_bytes;
    a->step_bytes = gvmi_min(
        gvmi_max(gvmi_amount(options->step_bytes, STEP_BYTES_DEFAULT), a->chunk_bytes),
        GVMI_SPAN_BYTES_MAX);
    a->ahead_bytes = gvmi_amount(options->ahead_bytes, 2 * a->step_bytes);
    a->wait_ns = (options->wait_ms != 0 ? options->wait_ms : WAIT_MS_DEFAULT) * 1000000ull;
    a->unit_shift = choose_unit_shift(a->device, a->buffer->reserve_bytes, options);
    a->rows_only = (options->flags & GVM_APPENDER_ROWS_ONLY) != 0;
    a->front_history = a->back_history = gvmi_amount(options->expected_bytes, 0);
}

/* What is beyond what is written, and may be wanted again, goes only when the device is full. The lock may
 * be held by a begin, which waits for the thread that comes here. */
static uint64_t reclaim_append_chunks(gvmi_idle *idle, uint64_t wanted_bytes, bool may_wait)
{
    gvm_appender *a = (gvm_appender *)idle;
    uint64_t bytes = 0;

    (void)wanted_bytes;
    if (may_wait)
        gvmi_lock(&a->lock);
    else if (!gvmi_try_lock(&a->lock))
        return 0;
    if (!a->begun) {
        bytes = gvmi_append_committed_bytes(a);
        gvmi_append_feed_trim(a, may_wait);
        bytes -= gvmi_append_committed_bytes(a);
    }
    gvmi_unlock(&a->lock);
    return bytes;
}

/* The context is current. */
static gvm_status take_append_words(gvm_appender *a)
{
    static const gvmi_words_spec spec = {
        .what = "appenders' words",
        .to_do = "destroy some appenders",
        .device_bytes = sizeof(gvm_append_words),
        .host_bytes = sizeof(host_words),
        .slabs_max = 64,
    };
    gvm_status status = gvmi_words_take(a->device, &a->device->appends, &spec, &a->words);
    host_words *host = a->words.host;

    if (status != GVM_OK)
        return status;
    a->mail = &host->mail;
    a->mail_address = a->words.host_address + offsetof(host_words, mail);
    a->staging = &host->staging;
    return GVM_OK;
}

/* The device is held and its context current. */
static gvm_status make_appender(gvm_device *device, uint64_t row_bytes, const gvmi_buffer_spec *spec,
                                const gvm_appender_options *options, gvm_appender **out)
{
    static const gvmi_idle_calls calls = {.reclaim = reclaim_append_chunks};
    gvm_appender *appender = calloc(1, sizeof *appender);
    gvm_status status;

    if (appender == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for an appender");
    appender->device = device;
    appender->spec = *spec;
    appender->row_bytes = row_bytes;
    status = take_append_words(appender);
    if (status != GVM_OK)
        goto fail_free;
    status = gvmi_appender_new_buffer(appender, &appender->buffer, &appender->address);
    if (status != GVM_OK)
        goto fail_give_words;
    set_options(appender, options);
    gvmi_mutex_init(&appender->lock, GVMI_RANK_APPENDER);
    status = gvmi_registry_add(GVMI_KIND_APPENDER, gvmi_key(appender), appender);
    if (status != GVM_OK)
        goto fail_destroy_buffer;
    gvmi_device_retain(device);
    gvmi_idle_join(device, &appender->idle, &calls);
    *out = appender;
    return GVM_OK;

fail_destroy_buffer:
    gvmi_mutex_destroy(&appender->lock);
    gvm_buffer_destroy(appender->buffer);
fail_give_words:
    gvmi_words_give(&device->appends, &appender->words);
fail_free:
    free(appender);
    return status;
}

static gvm_status make_on(gvm_device *device, uint64_t row_bytes, uint64_t reserve_bytes,
                          const gvm_appender_options *options, gvm_appender **out)
{
    gvmi_buffer_spec spec = {
        .reserve_bytes = reserve_bytes,
        .chunk_bytes = options->chunk_bytes,
        .graded = true,
        .unshared = (options->flags & GVM_BUFFER_UNSHARED) != 0,
    };
    gvm_status status;

    if (!device->info.vmm)
        return gvm_error_set(GVM_E_NOTSUP,
                             "device %d has no virtual memory management: appenders cannot grow there",
                             device->info.ordinal);
    if (spec.chunk_bytes == 0)
        spec.chunk_bytes = choose_append_chunk_bytes(device, reserve_bytes, options->budget_bytes);
    status = check_budget(options->budget_bytes, spec.chunk_bytes);
    if (status == GVM_OK)
        status = gvmi_device_enter(device);
    if (status != GVM_OK)
        return status;
    status = make_appender(device, row_bytes, &spec, options, out);
    gvmi_device_leave();
    return status;
}

gvm_status gvm_appender_create(gvm_device *handle, uint64_t row_bytes, uint64_t reserve_bytes,
                               const gvm_appender_options *options, gvm_appender **out)
{
    GVMI_UNCANCELLED;
    gvm_appender_options full;
    gvm_device *device;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = read_appender_options(options, &full);
    if (status == GVM_OK)
        status = check_appender_sizes(row_bytes, reserve_bytes);
    if (status == GVM_OK)
        status = gvmi_device_hold(handle, &device);
    if (status != GVM_OK)
        return status;
    status = make_on(device, row_bytes, reserve_bytes, &full, out);
    gvmi_device_release(device);
    return status;
}

/* ---- handles */

gvm_status gvmi_appender_hold(const gvm_appender *handle, gvm_appender **out)
{
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_APPENDER, gvmi_key(handle), &object);

    *out = object;
    if (status == GVM_OK)
        gvmi_lock(&(*out)->lock);
    return status;
}

void gvmi_appender_drop(gvm_appender *appender)
{
    gvmi_unlock(&appender->lock);
    gvmi_registry_drop(GVMI_KIND_APPENDER, gvmi_key(appender));
}

/* ---- budget and questions */

gvm_status gvm_appender_set_budget(gvm_appender *handle, uint64_t budget_bytes)
{
    GVMI_UNCANCELLED;
    gvm_appender *appender;
    gvm_status status = gvmi_appender_hold(handle, &appender);

    if (status != GVM_OK)
        return status;
    if (appender->begun)
        status = gvm_error_set(GVM_E_INVALID,
                               "the appender has begun: finish it before its budget is set");
    else
        status = check_budget(budget_bytes, appender->chunk_bytes);
    if (status == GVM_OK)
        appender->budget_bytes = budget_bytes;
    gvmi_appender_drop(appender);
    return status;
}

gvm_buffer *gvm_appender_buffer(gvm_appender *handle)
{
    gvm_appender *appender;
    gvm_buffer *buffer;

    if (gvmi_appender_hold(handle, &appender) != GVM_OK)
        return NULL;
    buffer = appender->buffer;
    appender->dirty = true; /* the program may write anywhere in it */
    gvmi_appender_drop(appender);
    return buffer;
}

gvm_status gvm_appender_get_info(gvm_appender *handle, gvm_appender_info *info)
{
    GVMI_UNCANCELLED;
    gvm_appender_info full;
    gvm_appender *a;
    gvm_status status = gvmi_appender_hold(handle, &a);

    if (status != GVM_OK)
        return status;
    full = (gvm_appender_info){
        .address = gvmi_pointer(a->address),
        .reserve_bytes = a->reserve_bytes,
        .chunk_bytes = a->chunk_bytes,
        .row_bytes = a->row_bytes,
        .budget_bytes = gvmi_append_budget_bytes(a),
        .rows = gvm_append_rows_of(a->position),
        .data_bytes = gvm_append_units_of(a->position) << a->unit_shift,
        .front_bytes = gvmi_append_end_bytes(a, __atomic_load_n(&a->feed.front_chunks, __ATOMIC_RELAXED)),
        .back_bytes = gvmi_append_end_bytes(a, __atomic_load_n(&a->feed.back_chunks, __ATOMIC_RELAXED)),
        .commits = __atomic_load_n(&a->feed.commits_ever, __ATOMIC_RELAXED),
        .committed_bytes = __atomic_load_n(&a->feed.committed_bytes, __ATOMIC_RELAXED),
        .align_bytes = 1u << a->unit_shift,
        .ordinal = a->device->info.ordinal,
        .begun = a->begun,
        .torn = a->torn,
    };
    gvmi_appender_drop(a);
    if (!gvmi_struct_out(info, &full, sizeof full, sizeof full))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}

/* ---- end */

void gvm_appender_destroy(gvm_appender *handle)
{
    GVMI_UNCANCELLED;
    gvm_error error = gvmi_error_save();
    void *object;
    gvm_appender *appender;

    if (handle == NULL || gvmi_registry_remove(GVMI_KIND_APPENDER, gvmi_key(handle), &object) != GVM_OK)
        return;
    appender = object;
    if (appender->begun)
        gvmi_append_feeder_leave(appender);
    gvmi_idle_leave(&appender->idle);
    gvm_buffer_destroy(appender->buffer);
    gvmi_words_give(&appender->device->appends, &appender->words);
    gvmi_device_release(appender->device);
    gvmi_mutex_destroy(&appender->lock);
    gvmi_registry_retire(appender);
    gvm_error_restore(&error);
}

/* ---- invariants */

static bool check_appender_locked(const gvm_appender *a)
{
    const gvmi_append_feed *f = &a->feed;
    const uint64_t ready = __atomic_load_n(&a->mail->ready, __ATOMIC_ACQUIRE);

    if (f->front_chunks + f->back_chunks > a->chunk_count)
        return false;
    for (uint64_t i = 0; i < a->chunk_count; i++) {
        const bool counts = i < f->front_chunks || i >= a->chunk_count - f->back_chunks;
        const bool written = gvmi_append_is_written(a, i);

        if ((a->buffer->chunks[i].tier != GVM_TIER_ABSENT) != counts && (counts || !written))
            return false;
    }
    return a->limits.struct_size == 0 || gvm_append_within(ready, gvmi_append_ready(a));
}

bool gvmi_appender_check(gvm_appender *handle)
{
    gvm_appender *appender;
    bool good;

    if (gvmi_appender_hold(handle, &appender) != GVM_OK)
        return false;
    good = gvmi_buffer_check(appender->buffer) && check_appender_locked(appender);
    gvmi_appender_drop(appender);
    return good;
}
