/* Callback servers: creation, functions, questions, end. */
#include "callback/callback.h"

#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/struct.h"

#define WAIT_MS_DEFAULT 10000u
#define SLAB_WORDS 8u /* mails are large */
#define SERVERS_MAX 512u

/* ---- creation */

static gvm_status read_server_options(const gvm_callback_server_options *options,
                                      gvm_callback_server_options *full)
{
    if (!gvmi_struct_in(full, sizeof *full, options, sizeof *full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    if (full->flags != 0 || full->reserved != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown callback server flags %#x",
                             (unsigned)(full->flags | full->reserved));
    if (full->thread_count > GVM_CALLBACK_THREADS_MAX)
        return gvm_error_set(GVM_E_INVALID, "a callback server has at most %u threads, not %u",
                             GVM_CALLBACK_THREADS_MAX, full->thread_count);
    if (full->thread_count == 0)
        full->thread_count = 1;
    return GVM_OK;
}

/* All words are 0. The context is current. */
static gvm_status clear_words(gvm_callback_server *s)
{
    const CUstream stream = s->device->words_stream;
    CUresult result, waited;

    memset(s->mail, 0, sizeof *s->mail);
    result = gvmi_cu->cuMemsetD8Async(s->words.device, 0, sizeof(gvm_callback_words), stream);
    waited = gvmi_cu->cuStreamSynchronize(stream); /* after a failure, too */
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemsetD8Async",
                                "cannot clear the words of a callback server");
    if (waited != CUDA_SUCCESS)
        return gvmi_driver_fail(waited, "cuStreamSynchronize",
                                "cannot clear the words of a callback server");
    return GVM_OK;
}

static gvm_status take_callback_words(gvm_callback_server *s)
{
    static const gvmi_words_spec spec = {
        .what = "callback servers and spaces of regions",
        .to_do = "destroy some",
        .device_bytes = sizeof(gvm_callback_words),
        .host_bytes = sizeof(gvm_callback_mail),
        .slabs_max = SERVERS_MAX / SLAB_WORDS,
        .slab_words = SLAB_WORDS,
    };
    gvm_status status = gvmi_device_enter(s->device);

    if (status != GVM_OK)
        return status;
    status = gvmi_words_take(s->device, &s->device->callbacks, &spec, &s->words);
    if (status == GVM_OK) {
        s->mail = s->words.host;
        status = clear_words(s);
        if (status != GVM_OK)
            gvmi_words_give(&s->device->callbacks, &s->words);
    }
    gvmi_device_leave();
    return status;
}

gvm_status gvmi_callback_make(gvm_device *device, uint64_t wait_ns, gvm_callback_server **out)
{
    gvm_callback_server *s = calloc(1, sizeof *s);
    gvm_status status;

    if (s == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a callback server");
    s->device = device;
    s->wait_ns = wait_ns;
    s->asked_ns = gvmi_now_ns();
    status = take_callback_words(s);
    if (status != GVM_OK) {
        free(s);
        return status;
    }
    gvmi_mutex_init(&s->lock, GVMI_RANK_CALLBACK);
    gvmi_cond_init(&s->changed);
    gvmi_device_retain(device);
    *out = s;
    return GVM_OK;
}

void gvmi_callback_unmake(gvm_callback_server *s)
{
    gvmi_words_give(&s->device->callbacks, &s->words);
    gvmi_device_release(s->device);
    gvmi_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
}

static gvm_status create_server(gvm_device *device, const gvm_callback_server_options *options,
                                gvm_callback_server **out)
{
    const uint64_t wait_ms = options->wait_ms != 0 ? options->wait_ms : WAIT_MS_DEFAULT;
    gvm_callback_server *s;
    gvm_status status = gvmi_callback_make(device, wait_ms * GVMI_NS_PER_MS, &s);
    gvm_error error;

    if (status != GVM_OK)
        return status;
    status = gvmi_callback_start(s, options->thread_count);
    if (status != GVM_OK)
        goto fail_unmake;
    status = gvmi_registry_add(GVMI_KIND_CALLBACK_SERVER, gvmi_key(s), s);
    if (status != GVM_OK)
        goto fail_close;
    *out = s;
    return GVM_OK;

fail_close:
    gvmi_callback_close(s);
fail_unmake:
    error = gvmi_error_save();
    gvmi_callback_unmake(s);
    free(s);
    gvm_error_restore(&error);
    return status;
}

gvm_status gvm_callback_server_create(gvm_device *handle, const gvm_callback_server_options *options,
                                      gvm_callback_server **out)
{
    GVMI_UNCANCELLED;
    gvm_callback_server_options full;
    gvm_device *device;
    gvm_status status = read_server_options(options, &full);

    if (status == GVM_OK && out == NULL)
        status = gvm_error_set(GVM_E_INVALID, "out is NULL");
    if (status == GVM_OK)
        status = gvmi_device_hold(handle, &device);
    if (status != GVM_OK)
        return status;
    status = create_server(device, &full, out);
    gvmi_device_release(device);
    return status;
}

/* ---- handles */

static gvm_status hold_server(const gvm_callback_server *handle, gvm_callback_server **out)
{
    void *object;
    const gvm_status status = gvmi_registry_hold(GVMI_KIND_CALLBACK_SERVER, gvmi_key(handle), &object);

    *out = object;
    return status;
}

static void drop_server(const gvm_callback_server *s)
{
    gvmi_registry_drop(GVMI_KIND_CALLBACK_SERVER, gvmi_key(s));
}

static gvm_status check_outside(const gvm_callback_server *s)
{
    if (!gvmi_callback_is_inside(s))
        return GVM_OK;
    return gvm_error_set(GVM_E_INVALID,
                         "a callback cannot wait for its own server, which waits for it");
}

/* ---- functions */

void gvmi_callback_set(gvm_callback_server *s, uint32_t number, uint32_t flags,
                       gvm_callback_function function, void *context)
{
    s->functions[number].flags = flags;
    s->functions[number].context = context;
    __atomic_store_n(&s->functions[number].run, function, __ATOMIC_RELEASE);
}

static gvm_status check_function(uint32_t number, uint32_t flags, gvm_callback_function function)
{
    const uint32_t known = GVM_CALLBACK_COLLECTIVE | GVM_CALLBACK_REENTRANT;

    if (number >= GVM_CALLBACK_FUNCTIONS)
        return gvm_error_set(GVM_E_INVALID, "callbacks have numbers below %u, not %u",
                             GVM_CALLBACK_FUNCTIONS, number);
    if ((flags & ~known) != 0 || flags == known)
        return gvm_error_set(GVM_E_INVALID,
                             flags == known
                                 ? "a collective callback is not re-entrant: requests that come meanwhile are "
                                   "served by its next call"
                                 : "unknown callback flags");
    if (function == NULL)
        return gvm_error_set(GVM_E_INVALID, "function is NULL");
    return GVM_OK;
}

gvm_status gvm_callback_register(gvm_callback_server *handle, uint32_t number, uint32_t flags,
                                 gvm_callback_function function, void *context)
{
    GVMI_UNCANCELLED;
    gvm_callback_server *s;
    gvm_status status = check_function(number, flags, function);

    if (status == GVM_OK)
        status = hold_server(handle, &s);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&s->lock);
    if (s->functions[number].run != NULL)
        status = gvm_error_set(GVM_E_EXISTS, "the server has a callback %u", number);
    else
        gvmi_callback_set(s, number, flags, function, context);
    gvmi_unlock(&s->lock);
    drop_server(s);
    return status;
}

/* ---- questions */

gvm_callback_view gvmi_callback_view(const gvm_callback_server *s)
{
    return (gvm_callback_view){.words = s->words.device,
                               .mail = s->words.host_address,
                               .wait_ns = s->wait_ns,
                               .layout = GVM_CALLBACK_LAYOUT};
}

gvm_status gvm_callback_server_get_view(gvm_callback_server *handle, gvm_callback_view *view)
{
    GVMI_UNCANCELLED;
    gvm_callback_server *s;
    gvm_status status;

    if (view == NULL)
        return gvm_error_set(GVM_E_INVALID, "view is NULL");
    status = hold_server(handle, &s);
    if (status != GVM_OK)
        return status;
    *view = gvmi_callback_view(s);
    drop_server(s);
    return GVM_OK;
}

gvm_status gvm_callback_server_get_info(gvm_callback_server *handle, gvm_callback_server_info *info)
{
    GVMI_UNCANCELLED;
    gvm_callback_server_info full;
    gvm_callback_server *s;
    gvm_status status = hold_server(handle, &s);

    if (status != GVM_OK)
        return status;
    full = (gvm_callback_server_info){
        .calls = __atomic_load_n(&s->calls, __ATOMIC_RELAXED),
        .requests = __atomic_load_n(&s->requests, __ATOMIC_RELAXED),
        .failures = __atomic_load_n(&s->failures, __ATOMIC_RELAXED),
        .running = __atomic_load_n(&s->running, __ATOMIC_RELAXED),
        .thread_count = __atomic_load_n(&s->thread_count, __ATOMIC_RELAXED),
        .wait_ms = (uint32_t)(s->wait_ns / GVMI_NS_PER_MS),
        .ordinal = s->device->info.ordinal,
        .closed = __atomic_load_n(&s->closed, __ATOMIC_ACQUIRE),
    };
    drop_server(s);
    if (!gvmi_struct_out(info, &full, sizeof full, sizeof full))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}

/* ---- drain */

/* What kernels have asked for at one moment. */
typedef struct asked {
    uint32_t uses[GVM_CALLBACK_SLOTS];
    uint64_t requests[GVM_CALLBACK_FUNCTIONS];
} asked;

static void read_asked(const gvm_callback_server *s, asked *a)
{
    for (uint32_t i = 0; i < GVM_CALLBACK_SLOTS; i++)
        a->uses[i] = GVM_CALLBACK_POSTED_USE(__atomic_load_n(&s->mail->posted[i], __ATOMIC_ACQUIRE));
    for (uint32_t i = 0; i < GVM_CALLBACK_FUNCTIONS; i++)
        a->requests[i] = __atomic_load_n(&s->mail->asked[i], __ATOMIC_ACQUIRE);
}

static uint32_t count_unmade(const gvm_callback_server *s, const asked *a)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < GVM_CALLBACK_SLOTS; i++)
        count += (int32_t)(a->uses[i] - __atomic_load_n(&s->finished[i], __ATOMIC_SEQ_CST)) > 0;
    for (uint32_t i = 0; i < GVM_CALLBACK_FUNCTIONS; i++)
        count += __atomic_load_n(&s->functions[i].served, __ATOMIC_SEQ_CST) < a->requests[i];
    return count;
}

/* Waits until none is left, the server has closed, or none has ended for long. Returns how many are left. */
static uint32_t await_asked_locked(gvm_callback_server *s, const asked *a)
{
    uint64_t ended = __atomic_load_n(&s->ended, __ATOMIC_RELAXED), seen;
    int64_t until_ns = gvmi_now_ns() + (int64_t)s->wait_ns;
    bool in_time = true;
    uint32_t left;

    while ((left = count_unmade(s, a)) > 0 && in_time && !s->closed) {
        in_time = gvmi_wait_until(&s->changed, &s->lock, until_ns);
        seen = __atomic_load_n(&s->ended, __ATOMIC_RELAXED);
        if (seen == ended)
            continue;
        ended = seen;
        in_time = true;
        until_ns = gvmi_now_ns() + (int64_t)s->wait_ns;
    }
    return left;
}

static gvm_status take_error_locked(gvm_callback_server *s)
{
    const gvm_status status = s->error.status;

    if (status == GVM_OK)
        return GVM_OK;
    gvm_error_restore(&s->error);
    s->error.status = GVM_OK;
    return status;
}

gvm_status gvmi_callback_take_error(gvm_callback_server *s)
{
    gvm_status status;

    gvmi_lock(&s->lock);
    status = take_error_locked(s);
    gvmi_unlock(&s->lock);
    return status;
}

static gvm_status drain_server(gvm_callback_server *s)
{
    gvm_status status;
    uint32_t left;
    asked a;

    read_asked(s, &a);
    __atomic_add_fetch(&s->drainers, 1, __ATOMIC_SEQ_CST);
    gvmi_lock(&s->lock);
    left = await_asked_locked(s, &a);
    status = take_error_locked(s);
    if (status == GVM_OK && left > 0)
        status = gvm_error_set(
            GVM_E_TIMEOUT,
            s->closed ? "the server was closed before %u calls of kernels were made"
                      : "%u calls of kernels are not made, and no callback has returned in time",
            left);
    gvmi_unlock(&s->lock);
    __atomic_sub_fetch(&s->drainers, 1, __ATOMIC_SEQ_CST);
    return status;
}

gvm_status gvm_callback_server_drain(gvm_callback_server *handle)
{
    GVMI_UNCANCELLED;
    gvm_callback_server *s;
    gvm_status status = hold_server(handle, &s);

    if (status != GVM_OK)
        return status;
    status = check_outside(s);
    if (status == GVM_OK)
        status = drain_server(s);
    drop_server(s);
    return status;
}

/* ---- the end */

/* Another thread may be closing it: that one is waited for. */
static void close_once(gvm_callback_server *s)
{
    bool first;

    gvmi_lock(&s->lock);
    first = !s->closing;
    __atomic_store_n(&s->closing, true, __ATOMIC_RELEASE);
    while (!first && !s->closed)
        pthread_cond_wait(&s->changed, &s->lock.mutex);
    gvmi_unlock(&s->lock);
    if (first)
        gvmi_callback_close(s);
}

gvm_status gvm_callback_server_close(gvm_callback_server *handle)
{
    GVMI_UNCANCELLED;
    gvm_callback_server *s;
    gvm_status status = hold_server(handle, &s);

    if (status != GVM_OK)
        return status;
    status = check_outside(s);
    if (status == GVM_OK)
        close_once(s);
    drop_server(s);
    return status;
}

void gvm_callback_server_destroy(gvm_callback_server *handle)
{
    GVMI_UNCANCELLED;
    void *removed;

    if (handle == NULL || gvmi_callback_is_inside(handle) ||
        gvmi_registry_remove(GVMI_KIND_CALLBACK_SERVER, gvmi_key(handle), &removed) != GVM_OK)
        return;
    close_once(removed);
    gvmi_callback_unmake(removed);
    gvmi_registry_retire(removed);
}
