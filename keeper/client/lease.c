/* Leases: one atomic operation each way while the permit allows it, a message otherwise.
 *
 * The order of operations is in keeper/protocol/words.h; all of them are sequentially consistent. After the permit
 * the fast path looks at the generation that is shown here: the mapper withdraws it before it looks
 * for leases (map.c), which is the same argument once more.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct.h"
#include "keeper/client/client.h"

/* Of a released or foreign object. A closed object's memory is kept for a while, so that this may be
 * asked of a stale pointer. */
static inline bool is_open(const gvm_object *object)
{
    return object != NULL &&
           atomic_load_explicit(&object->magic, memory_order_relaxed) == GVMI_OBJECT_MAGIC;
}

/* Why it is not to be used: it is closed, or the parent process's. */
static gvm_status fail_foreign(const gvm_object *object)
{
    gvm_object *entered;
    gvm_status status = gvmi_object_enter(object, &entered);

    if (status != GVM_OK)
        return status;
    gvmi_object_leave(entered);
    return gvm_error_set(GVM_E_FOREIGN, "the object %p is not open yet", (const void *)object);
}

static inline uint64_t unit_of(uint32_t mode)
{
    return mode == GVM_LEASE_WRITE ? GVMI_LEASE_WRITER : GVMI_LEASE_READER;
}

/* Tells the keeper that some lease word may have become zero. */
static __attribute__((noinline, cold)) void ring(const gvm_client *client)
{
    GVMI_UNCANCELLED;
    const uint64_t one = 1;
    const int before = errno;

    /* It fails only if the keeper has 2^64 - 2 rings to read, and then needs no more of them. */
    while (write(client->doorbell, &one, sizeof one) < 0 && errno == EINTR)
        ;
    errno = before;
}

static inline bool drop_fast_unit(const gvm_object *object, uint32_t mode, uint64_t *out)
{
    const uint64_t unit = unit_of(mode);
    const uint64_t before = atomic_fetch_sub(&object->lease->word, unit);
    uint64_t permit;

    if ((mode == GVM_LEASE_WRITE ? gvmi_lease_writers(before) : gvmi_lease_readers(before)) == 0) {
        atomic_fetch_add(&object->lease->word, unit);
        return false;
    }
    *out = permit = atomic_load(&object->permit->word);
    if ((permit & GVMI_PERMIT_REVOKED) != 0 &&
        (mode == GVM_LEASE_WRITE ? gvmi_lease_writers(before - unit) == 0
                                 : !gvmi_lease_any(before - unit)))
        ring(object->client); /* reads wait for writers only: the end of the last writer is a change, too */
    return true;
}

bool gvmi_client_give_back(const gvm_object *object, uint32_t mode, uint64_t *permit)
{
    return drop_fast_unit(object, mode, permit);
}

/* ---- acquire */

typedef enum attempt { TAKEN, ASK, TOO_MANY, GONE } attempt;

/* Does no other thread of this process have one? Asked where writing is permitted, once more:
 * between the addition and the load of the permit, another thread's write may have been granted and
 * taken, and the write permit opened. Where only reading is permitted, no writer can have come. */
static inline bool is_alone(const gvm_object *object, bool write)
{
    const uint64_t word = atomic_load(&object->lease->word);

    return gvmi_lease_writers(word) == write && (!write || gvmi_lease_readers(word) == 0);
}

/* Adds to the lease word and looks whether that was allowed; otherwise backs out. */
static inline attempt try_add_fast_unit(const gvm_object *object, uint32_t mode, uint32_t hint,
                                        uint32_t *generation)
{
    uint64_t seen;
    const bool write = mode == GVM_LEASE_WRITE;
    const uint64_t before = atomic_fetch_add(&object->lease->word, GVMI_LEASE_COUNTED + unit_of(mode));
    const uint64_t permit = atomic_load(&object->permit->word);
    const bool partial = (permit & GVMI_PERMIT_PARTIAL) != 0 && hint != GVM_HINT_SCAN &&
                         hint != GVM_HINT_ONCE;
    const bool conflict = write ? gvmi_lease_any(before) : gvmi_lease_writers(before) != 0;
    const bool full = gvmi_lease_readers(before) >= GVMI_LEASE_READERS_MAX;

    if (__builtin_expect((permit & (write ? GVMI_PERMIT_WRITE : GVMI_PERMIT_READ)) != 0 &&
                             !partial && !conflict && !full &&
                             ((permit & GVMI_PERMIT_WRITE) == 0 || is_alone(object, write)),
                         1)) {
        if (atomic_load_explicit(&object->lease->hint, memory_order_relaxed) != hint)
            atomic_store_explicit(&object->lease->hint, hint, memory_order_relaxed);
        *generation = gvmi_permit_generation(permit);
        return TAKEN;
    }
    drop_fast_unit(object, mode, &seen);
    if ((permit & GVMI_PERMIT_GONE) != 0)
        return GONE;
    return full ? TOO_MANY : ASK;
}

/* When an acquire or a seal stops waiting by itself. The keeper's own answer, which has the cause,
 * comes first if the keeper answers at all. */
int64_t gvmi_client_limit_ns(int timeout_ms)
{
    if (timeout_ms == GVM_FOREVER)
        return GVMI_NEVER_NS;
    return gvmi_deadline_ns(timeout_ms == GVM_TRY ? GVMI_CLIENT_TRY_MS
                                                  : (int64_t)timeout_ms + GVMI_CLIENT_GRACE_MS);
}

/* What a lease is asked for by. */
typedef struct lease_terms {
    uint32_t mode, hint, flags;
    int timeout_ms;
} lease_terms;

static gvm_status call_acquire(gvm_object *object, const lease_terms *terms, int64_t deadline_ns,
                               uint32_t *generation)
{
    gvmi_wire_message message;
    gvmi_client_request request = {.object = object, .mode = terms->mode};
    gvm_status status;

    gvmi_wire_start(&message, GVMI_WIRE_ACQUIRE, 0);
    message.body.ACQUIRE = (gvmi_wire_acquire){
        .slot = object->slot,
        .mode = terms->mode,
        .hint = terms->hint,
        .timeout_ms = terms->timeout_ms,
        .flags = terms->flags,
    };
    atomic_store_explicit(&object->lease->hint, terms->hint, memory_order_relaxed);
    status = deadline_ns == GVMI_NEVER_NS
                 ? gvmi_client_call(object->client, &message, &request)
                 : gvmi_client_call_until(object->client, &message, object, terms->mode, deadline_ns);
    if (status == GVM_OK)
        *generation = gvmi_permit_generation(atomic_load(&object->permit->word));
    return status;
}

static gvm_status acquire_lease(gvm_object *handle, const lease_terms *terms, int64_t deadline_ns,
                                uint32_t *generation)
{
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    if (atomic_load(&object->shown_generation) == GVMI_NOT_SHOWN && !gvmi_client_may_retry(object))
        status = gvmi_client_wait_shown(object, 0, deadline_ns);
    if (status == GVM_OK)
        status = call_acquire(object, terms, deadline_ns, generation);
    gvmi_object_leave(object);
    return status;
}

void gvmi_client_granted(gvm_object *object, uint32_t mode)
{
    /* The attempt that led here was counted. */
    atomic_fetch_add(&object->lease->word, unit_of(mode));
}

static gvm_status read_options(const gvm_acquire_options *options, gvm_acquire_options *full)
{
    if (!gvmi_struct_in(full, sizeof *full, options, sizeof *full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    if ((full->flags & ~(uint32_t)GVM_ACQUIRE_CPU) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown flags %#x", (unsigned)full->flags);
    if ((uint32_t)full->hint > GVM_HINT_ONCE)
        return gvm_error_set(GVM_E_INVALID, "unknown hint %d", (int)full->hint);
    if (full->flags != 0 && full->hint != GVM_HINT_NONE)
        return gvm_error_set(GVM_E_INVALID, "GVM_ACQUIRE_CPU cannot be combined with a hint");
    if (full->flags != 0)
        full->hint = GVM_HINT_ONCE;
    return GVM_OK;
}

static gvm_status check_lease_mode(const gvm_object *object, gvm_lease_mode mode)
{
    if (mode == GVM_LEASE_READ)
        return GVM_OK;
    if (mode != GVM_LEASE_WRITE)
        return gvm_error_set(GVM_E_INVALID, "lease mode %d is neither GVM_LEASE_READ nor WRITE",
                             (int)mode);
    if (atomic_load(&object->sealed))
        return gvm_error_set(GVM_E_SEALED, "the object is sealed: there are only read leases");
    if (object->readonly)
        return gvm_error_set(GVM_E_READONLY, "the object was opened GVM_OPEN_READONLY");
    return GVM_OK;
}

/* The lease is taken, but the mapper has still to map what the permit names, or failed to. */
static gvm_status await_mapping(gvm_object *object, uint32_t mode, uint32_t generation,
                                int64_t deadline_ns)
{
    gvm_status status = gvmi_client_wait_shown(object, generation, deadline_ns);
    const gvm_error error = gvmi_error_save();
    uint64_t permit;

    if (status != GVM_OK) {
        drop_fast_unit(object, mode, &permit);
        gvm_error_restore(&error);
    }
    return status;
}

/* Under a lease that is for the CPU: *bytes of it may be used, as what the object has grown by since the keeper granted it is on
 * the device. If there can be no access, the lease ends. */
static gvm_status open_to_cpu(gvm_object *handle, uint32_t mode, uint64_t *bytes)
{
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);
    gvm_error error;
    uint64_t permit;

    if (status != GVM_OK)
        return status;
    status = gvmi_buffer_open_to_cpu(object->buffer, bytes);
    if (status != GVM_OK) {
        error = gvmi_error_save();
        drop_fast_unit(object, mode, &permit);
        gvm_error_restore(&error);
    }
    gvmi_object_leave(object);
    return status;
}

static void fill_lease(gvm_object *object, uint32_t mode, uint32_t hint, uint64_t generation,
                       gvm_lease *lease)
{
    *lease = (gvm_lease){
        .address = gvmi_pointer(object->address),
        .size_bytes = atomic_load(&object->shown_bytes),
        .generation = generation,
        .mode = mode,
        .hint = hint,
    };
}

/* What the words alone do not decide: the keeper, or the mapper, is waited for. */
static gvm_status acquire_slowly(gvm_object *object, const lease_terms *terms, attempt how,
                                 uint32_t generation, gvm_lease *lease)
{
    GVMI_UNCANCELLED;
    const int64_t deadline_ns = gvmi_client_limit_ns(terms->timeout_ms);
    uint64_t cpu_bytes = UINT64_MAX;
    gvm_status status;

    if (how == GONE)
        return gvmi_client_fail_cut_off(object->client);
    if (how == ASK) {
        status = acquire_lease(object, terms, deadline_ns, &generation);
        if (status != GVM_OK)
            return status;
    }
    status = await_mapping(object, terms->mode, generation, deadline_ns);
    if (status == GVM_OK && terms->flags != 0)
        status = open_to_cpu(object, terms->mode, &cpu_bytes);
    if (status != GVM_OK)
        return status;
    fill_lease(object, terms->mode, terms->hint, (uint64_t)atomic_load(&object->shown_generation),
               lease);
    lease->size_bytes = gvmi_min(lease->size_bytes, cpu_bytes);
    return GVM_OK;
}

gvm_status gvm_object_acquire(gvm_object *object, gvm_lease_mode mode,
                              const gvm_acquire_options *options, int timeout_ms, gvm_lease *lease)
{
    gvm_acquire_options full = {0};
    uint32_t generation = 0;
    uint64_t permit;
    int64_t shown;
    attempt how;
    gvm_status status;

    if (!is_open(object))
        return fail_foreign(object);
    if (lease == NULL)
        return gvm_error_set(GVM_E_INVALID, "lease is NULL");
    if (options != NULL && (status = read_options(options, &full)) != GVM_OK)
        return status;
    if (timeout_ms < GVM_FOREVER)
        return gvmi_check_timeout(timeout_ms);
    if (mode != GVM_LEASE_READ && (status = check_lease_mode(object, mode)) != GVM_OK)
        return status;

    how = try_add_fast_unit(object, mode, (uint32_t)full.hint, &generation);
    if (__builtin_expect(how == TOO_MANY, 0))
        return gvm_error_set(GVM_E_LIMIT, "the process has %u leases on the object",
                             GVMI_LEASE_READERS_MAX);
    if (__builtin_expect(how == TAKEN && full.flags != 0, 0)) { /* where the object is, the keeper knows */
        (void)drop_fast_unit(object, mode, &permit);
        how = ASK;
    }
    shown = atomic_load(&object->shown_generation);
    if (__builtin_expect(how != TAKEN || shown < (int64_t)generation, 0))
        return acquire_slowly(
            object, &(lease_terms){(uint32_t)mode, (uint32_t)full.hint, full.flags, timeout_ms},
            how, generation, lease);
    fill_lease(object, mode, (uint32_t)full.hint, (uint64_t)shown, lease);
    return GVM_OK;
}

/* ---- release */

static gvm_status check_lease(const gvm_object *object, const gvm_lease *lease)
{
    if (lease == NULL)
        return gvm_error_set(GVM_E_INVALID, "lease is NULL");
    if (lease->mode != GVM_LEASE_READ && lease->mode != GVM_LEASE_WRITE)
        return gvm_error_set(GVM_E_INVALID, "the lease was released already, or never taken");
    if (gvmi_address(lease->address) != object->address)
        return gvm_error_set(GVM_E_INVALID, "the lease is on another object");
    return GVM_OK;
}

/* The lease has ended, but the keeper had cut the process off before. */
static gvm_status fail_release(const gvm_object *object, uint32_t mode)
{
    GVMI_UNCANCELLED;
    gvm_error cause;

    (void)gvmi_client_fail_cut_off(object->client);
    cause = gvmi_error_save();
    return gvm_error_set(GVM_E_KEEPER, "what was %s under this lease may be %s: %s",
                         mode == GVM_LEASE_WRITE ? "written" : "read",
                         mode == GVM_LEASE_WRITE ? "lost" : "out of date", cause.text);
}

static gvm_status release_lease(const gvm_object *object, gvm_lease *lease)
{
    const uint32_t mode = lease->mode;
    uint64_t permit = 0;
    const bool given_back = drop_fast_unit(object, mode, &permit);

    memset(lease, 0, sizeof *lease);
    if (__builtin_expect(!given_back, 0))
        return gvm_error_set(GVM_E_INVALID, "the lease was released already, through a copy of it");
    return __builtin_expect((permit & GVMI_PERMIT_GONE) != 0, 0) ? fail_release(object, mode) : GVM_OK;
}

gvm_status gvm_object_release(gvm_object *object, gvm_lease *lease)
{
    gvm_status status;

    if (!is_open(object))
        return fail_foreign(object);
    status = check_lease(object, lease);
    return status == GVM_OK ? release_lease(object, lease) : status;
}

/* A release that a stream will come to. It keeps the object's memory, and the pages of words, but
 * not the opening: closing ends the lease, without waiting, since what the stream waits for may be
 * the closing thread's to do. */
typedef struct coming_release {
    gvm_object *object; /* referenced */
    uint32_t mode;
} coming_release;

/* Called by the driver, and may not call it. */
static void run_coming_release(void *arg)
{
    coming_release *coming = arg;
    gvm_object *object = coming->object;
    gvm_client *client = object->client;
    uint64_t permit;

    gvmi_lock(&client->lock); /* against the closing thread */
    if (!object->closed && !object->left)
        (void)drop_fast_unit(object, coming->mode, &permit);
    gvmi_unlock(&client->lock);
    gvmi_client_drop_object(object);
    free(coming);
}

/* Has the stream call run_coming_release(). A driver that cannot (none with virtual memory management) is
 * waited for. */
static gvm_status launch_release(coming_release *coming, CUstream stream)
{
    const char *call = "cuLaunchHostFunc";
    CUresult result = gvmi_cu->cuLaunchHostFunc(stream, run_coming_release, coming);

    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        call = "cuStreamSynchronize";
        result = gvmi_cu->cuStreamSynchronize(stream);
        if (result == CUDA_SUCCESS)
            run_coming_release(coming);
    }
    return result == CUDA_SUCCESS
               ? GVM_OK
               : gvmi_driver_fail(result, call, "cannot release a lease behind the stream's work");
}

static gvm_status release_after_stream(gvm_object *object, gvm_lease *lease, CUstream stream)
{
    coming_release *coming = malloc(sizeof *coming);
    gvm_status status;

    if (coming == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a release");
    *coming = (coming_release){object, lease->mode};
    atomic_fetch_add(&object->references, 1);
    status = gvmi_device_enter(object->buffer->device); /* for the default stream */
    if (status == GVM_OK) {
        if (gvmi_stream_is_captured(stream)) /* each launch of the graph would call it */
            status = gvmi_stream_fail_captured(stream);
        else
            status = launch_release(coming, stream);
        gvmi_device_leave();
        if (status == GVM_OK) {
            memset(lease, 0, sizeof *lease);
            return GVM_OK;
        }
    }
    if (status == GVM_E_LOST) { /* nothing runs there any more, so nothing uses the lease */
        const gvm_error error = gvmi_error_save();

        (void)release_lease(object, lease);
        gvm_error_restore(&error);
    }
    gvmi_client_drop_object(object);
    free(coming);
    return status;
}

gvm_status gvm_object_release_async(gvm_object *handle, gvm_lease *lease, gvm_stream stream)
{
    GVMI_UNCANCELLED;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);
    uint32_t mode;

    if (status != GVM_OK)
        return status;
    status = check_lease(object, lease);
    if (status == GVM_OK) {
        mode = lease->mode;
        status = release_after_stream(object, lease, stream);
        if (status == GVM_OK && (atomic_load(&object->permit->word) & GVMI_PERMIT_GONE) != 0)
            status = fail_release(object, mode);
    }
    gvmi_object_leave(object);
    return status;
}

gvm_status gvm_object_get_host_bytes(gvm_object *handle, const gvm_lease *lease, uint64_t len_bytes,
                                     uint64_t *host_bytes)
{
    GVMI_UNCANCELLED;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    status = host_bytes == NULL ? gvm_error_set(GVM_E_INVALID, "host_bytes is NULL")
                                : check_lease(object, lease);
    if (status == GVM_OK && len_bytes > lease->size_bytes)
        status = gvm_error_set(GVM_E_INVALID, "there is no lease of %llu bytes",
                               (unsigned long long)len_bytes);
    if (status == GVM_OK)
        *host_bytes = gvmi_buffer_host_bytes(object->buffer, len_bytes);
    gvmi_object_leave(object);
    return status;
}
