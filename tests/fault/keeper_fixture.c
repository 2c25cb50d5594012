/* What the client does, and its witness; see keeper_fixture.h. */
#include "tests/fault/keeper_fixture.h"
#include "base/address.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "driver/driver.h"
#include "tests/lib/fixture.h"
#include "tools/snapshot.h"

#define STILL "/still"
#define OWN "/own"
#define PUBLIC "/public"
#define OTHER "/other"
#define STILL_WORD 0x57111000u
#define OWN_WORD 0x0e110000u
#define OTHER_WORD 0x07fe4000u
#define OWN_CHUNKS_FIRST 2u
#define OWN_CHUNKS 4u /* with STILL's more than the device may have */
#define OTHER_CHUNKS 2u
#define DEVICE_CHUNKS 4u
#define HOST_CHUNKS 16u
#define WAIT_MS 5000
#define SETTLE_MS 5000
#define REVOKE_MS 3000

static CUcontext fixture_context;

/* ---- the driver */

bool fixture_enter(void)
{
    return gvmi_cu->cuDevicePrimaryCtxRetain(&fixture_context, 0) == CUDA_SUCCESS;
}

void fixture_leave(void)
{
    gvmi_cu->cuDevicePrimaryCtxRelease(0);
}

static bool push(void)
{
    return gvmi_cu->cuCtxPushCurrent(fixture_context) == CUDA_SUCCESS;
}

static void pop(void)
{
    CUcontext context;

    gvmi_cu->cuCtxPopCurrent(&context);
}

uint64_t fixture_free_bytes(void)
{
    size_t free_bytes = 0, total_bytes;

    if (push()) {
        gvmi_cu->cuMemGetInfo(&free_bytes, &total_bytes);
        pop();
    }
    return free_bytes;
}

/* False: the driver would not; what was written of it is right. */
static bool put(uint64_t address, uint64_t first, uint64_t end, uint32_t word)
{
    bool done;

    if (!push())
        return false;
    done = true;
    for (uint64_t i = first; i < end && done; i++)
        done = gvmi_cu->cuMemsetD32Async(address + i * CHUNK_BYTES, word + (uint32_t)i,
                                         CHUNK_BYTES / sizeof word, NULL) == CUDA_SUCCESS;
    done = gvmi_cu->cuStreamSynchronize(NULL) == CUDA_SUCCESS && done;
    pop();
    return done;
}

/* Is each of these words the same, and right? */
static bool is_filled(const uint32_t *words, size_t count, uint32_t right)
{
    return words[0] == right && memcmp(words, words + 1, (count - 1) * sizeof *words) == 0;
}

/* Chunks below written have their contents, those from there on may be zeros, wholly or in part. A
 * driver that will not read shows nothing. */
static bool look(const char *name, uint64_t address, uint64_t end, uint64_t written, uint32_t word)
{
    static uint32_t words[CHUNK_BYTES / sizeof(uint32_t)];
    const size_t count = sizeof words / sizeof words[0];
    bool good = true;

    if (!push())
        return true;
    for (uint64_t i = 0; i < end && good; i++) {
        const uint32_t right = word + (uint32_t)i;

        if (gvmi_cu->cuMemcpyDtoH(words, address + i * CHUNK_BYTES, sizeof words) != CUDA_SUCCESS)
            continue;
        good = is_filled(words, count, right);
        if (!good && i >= written) {
            good = true;
            for (size_t j = 0; j < count && good; j++)
                good = words[j] == right || words[j] == 0;
        }
        if (!good)
            printf("#   chunk %llu of %s has wrong bytes\n", (unsigned long long)i, name);
    }
    pop();
    return good;
}

/* ---- the client */

/* What any call may answer when the driver fails (gvmem/client.h). */
#define ANY \
    (1ull << GVM_OK | 1ull << GVM_E_KEEPER | 1ull << GVM_E_NOMEM | 1ull << GVM_E_LOST | \
     1ull << GVM_E_DRIVER | 1ull << GVM_E_SYSTEM)
#define OR(status) (1ull << GVM_E_##status)

typedef struct client {
    gvm_client *keeper;
    gvm_object *own, *still, *other, *view;
    client_result result;
    uint64_t own_chunks;
    uint64_t accepted; /* statuses that any call may answer */
} client;

/* Judges an answer. */
static bool did(client *p, const char *what, gvm_status status, uint64_t documented)
{
    gvm_error error;

    if (status == GVM_OK)
        return true;
    gvm_error_last(&error);
    if (((p->accepted | documented) >> status & 1) == 0) {
        printf("#   %s answered %s, which the interface does not list: %s\n", what,
               gvm_status_name(status), error.text);
        p->result.good = false;
    }
    if (error.status != status || error.text[0] == '\0') {
        printf("#   %s answered %s, but the thread's error is %s: %s\n", what,
               gvm_status_name(status), gvm_status_name(error.status), error.text);
        p->result.good = false;
    }
    return false;
}

static bool acquire(client *p, gvm_object *object, gvm_lease_mode mode, gvm_hint hint, gvm_lease *lease)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = hint};

    /* Nobody holds a lease for long: TIMEOUT would be a lease that was lost. */
    return did(p, mode == GVM_LEASE_WRITE ? "acquire for writing" : "acquire",
               gvm_object_acquire(object, mode, &options, WAIT_MS, lease), OR(LIMIT));
}

static void release(client *p, gvm_object *object, gvm_lease *lease)
{
    if (lease->mode != 0 && gvm_object_release(object, lease) != GVM_OK) {
        printf("#   a lease could not be released\n");
        p->result.good = false;
    }
}

static bool write_all(client *p, gvm_object *object, uint64_t chunks, uint32_t word)
{
    gvm_lease lease;
    bool written;

    if (!acquire(p, object, GVM_LEASE_WRITE, GVM_HINT_NONE, &lease))
        return false;
    written = lease.size_bytes >= chunks * CHUNK_BYTES &&
              put(gvmi_address(lease.address), 0, chunks, word);
    release(p, object, &lease);
    return written;
}

static void read_all(client *p, gvm_object *object, const char *name, gvm_hint hint,
                     uint64_t written, uint32_t word)
{
    gvm_lease lease;

    if (!acquire(p, object, GVM_LEASE_READ, hint, &lease))
        return;
    if (lease.size_bytes < written * CHUNK_BYTES) {
        printf("#   a lease on %s has %llu bytes\n", name, (unsigned long long)lease.size_bytes);
        p->result.good = false;
    }
    p->result.good = look(name, gvmi_address(lease.address), lease.size_bytes / CHUNK_BYTES,
                          written, word) &&
                     p->result.good;
    release(p, object, &lease);
}

static gvm_status create(gvm_client *keeper, const char *name, uint64_t chunks, gvm_object **out)
{
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = CHUNK_BYTES,
                                        .size_bytes = chunks * CHUNK_BYTES};

    return gvm_object_create(keeper, name, 2 * chunks * CHUNK_BYTES, &options, out);
}

#define OPEN_ERRORS (OR(NOSPACE) | OR(ADDRESS) | OR(LIMIT))
#define CREATE_ERRORS OPEN_ERRORS

static void make_own(client *p)
{
    if (!did(p, "create", create(p->keeper, OWN, OWN_CHUNKS_FIRST, &p->own), CREATE_ERRORS))
        return;
    p->own_chunks = OWN_CHUNKS_FIRST;
    if (write_all(p, p->own, p->own_chunks, OWN_WORD))
        p->result.written_chunks = p->own_chunks;
    if (did(p, "grow", gvm_object_grow(p->own, OWN_CHUNKS * CHUNK_BYTES), CREATE_ERRORS))
        p->own_chunks = OWN_CHUNKS;
    if (write_all(p, p->own, p->own_chunks, OWN_WORD))
        p->result.written_chunks = p->own_chunks;
    if (did(p, "publish", gvm_object_publish(p->own, PUBLIC, 0), OR(EXISTS))) {
        p->result.published = true;
        p->result.public_chunks = p->own_chunks;
    }
}

static void move_own(client *p)
{
    uint64_t bytes = 0;

    (void)did(p, "evict", gvm_client_evict(p->keeper, PUBLIC, GVM_BYTES_UNLIMITED, &bytes),
              OR(LIMIT) | (p->result.published ? 0 : OR(ABSENT)));
    if (p->own == NULL)
        return;
    for (int i = 0; i < 2; i++)
        read_all(p, p->own, PUBLIC, GVM_HINT_HOT, p->result.written_chunks, OWN_WORD);
    if (write_all(p, p->own, p->own_chunks, OWN_WORD))
        p->result.written_chunks = p->own_chunks;
}

/* Writing there means writing what is there, so that a failure in the middle changes nothing. */
static void visit_still(client *p)
{
    if (!did(p, "open", gvm_object_open(p->keeper, STILL, 0, &p->still), OPEN_ERRORS))
        return;
    read_all(p, p->still, STILL, GVM_HINT_HOT, STILL_CHUNKS, STILL_WORD);
    (void)write_all(p, p->still, STILL_CHUNKS, STILL_WORD);
    read_all(p, p->still, STILL, GVM_HINT_NONE, STILL_CHUNKS, STILL_WORD);
}

static void seal_other(client *p)
{
    uint64_t written = 0;

    if (!did(p, "create", create(p->keeper, OTHER, OTHER_CHUNKS, &p->other), CREATE_ERRORS))
        return;
    if (write_all(p, p->other, OTHER_CHUNKS, OTHER_WORD))
        written = OTHER_CHUNKS;
    (void)did(p, "set_metadata", gvm_object_set_metadata(p->other, "metadata", 8), 0);
    (void)did(p, "seal", gvm_object_seal(p->other, WAIT_MS), 0);
    read_all(p, p->other, OTHER, GVM_HINT_NONE, written, OTHER_WORD);
    (void)did(p, "drop", gvm_object_drop(p->keeper, OTHER), 0);
    read_all(p, p->other, OTHER, GVM_HINT_HOT, written, OTHER_WORD);
}

/* A second opening, and a release behind a stream. */
static void view_own(client *p)
{
    gvm_lease lease;
    gvm_status status;

    if (!did(p, "open", gvm_object_open(p->keeper, PUBLIC, GVM_OPEN_READONLY, &p->view),
             OPEN_ERRORS | (p->result.published ? 0 : OR(ABSENT))))
        return;
    read_all(p, p->view, PUBLIC, GVM_HINT_SCAN, p->result.written_chunks, OWN_WORD);
    if (!acquire(p, p->view, GVM_LEASE_READ, GVM_HINT_NONE, &lease))
        return;
    status = gvm_object_release_async(p->view, &lease, NULL);
    (void)did(p, "release_async", status, 0);
    if ((lease.mode == 0) != (status == GVM_OK || status == GVM_E_LOST)) {
        printf("#   release_async answered %s and has %sreleased the lease\n",
               gvm_status_name(status), lease.mode == 0 ? "" : "not ");
        p->result.good = false;
    }
    release(p, p->view, &lease);
    if (push()) {
        (void)gvmi_cu->cuStreamSynchronize(NULL);
        pop();
    }
}

static void ask(client *p)
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_snapshot *snapshot;

    (void)did(p, "trim", gvm_client_trim(p->keeper, 0, 0, NULL), 0);
    if (did(p, "snapshot", gvm_client_get_snapshot(p->keeper, &snapshot), 0))
        gvm_snapshot_destroy(snapshot);
    if (p->own != NULL)
        (void)did(p, "info", gvm_object_get_info(p->own, &info), 0);
}

client_result client_run(const char *path, uint64_t accepted)
{
    client p = {.result.good = true, .accepted = ANY | accepted};

    if (did(&p, "connect", gvm_client_connect(path, &p.keeper), OR(LIMIT) | OR(TIMEOUT))) {
        make_own(&p);
        visit_still(&p);
        move_own(&p);
        seal_other(&p);
        view_own(&p);
        ask(&p);
        gvm_object_close(p.view);
        gvm_object_close(p.still);
        gvm_object_close(p.other);
    }
    gvm_client_close(p.keeper); /* the rest */
    return p.result;
}

/* ---- the witness */

static bool must(const char *what, gvm_status status)
{
    gvm_error error;

    if (status == GVM_OK)
        return true;
    gvm_error_last(&error);
    printf("#   the witness: %s: %s: %s\n", what, gvm_status_name(status), error.text);
    return false;
}

static bool witness_acquire(gvm_object *object, gvm_lease_mode mode, int timeout_ms, gvm_lease *lease)
{
    const gvm_acquire_options options = {
        .struct_size = sizeof options, .hint = mode == GVM_LEASE_READ ? GVM_HINT_HOT : GVM_HINT_NONE};

    return must(mode == GVM_LEASE_READ ? "acquire" : "acquire for writing",
                gvm_object_acquire(object, mode, &options, timeout_ms, lease));
}

static bool witness_write(gvm_object *object, uint64_t chunks, uint32_t word)
{
    gvm_lease lease;
    bool good;

    if (!witness_acquire(object, GVM_LEASE_WRITE, WAIT_MS, &lease))
        return false;
    good = put(gvmi_address(lease.address), 0, chunks, word);
    return must("release", gvm_object_release(object, &lease)) && good;
}

static bool witness_read(gvm_object *object, const char *name, uint64_t chunks, uint64_t written,
                         uint32_t word)
{
    gvm_lease lease;
    bool good;

    if (!witness_acquire(object, GVM_LEASE_READ, WAIT_MS, &lease))
        return false;
    good = lease.size_bytes >= chunks * CHUNK_BYTES &&
           look(name, gvmi_address(lease.address), lease.size_bytes / CHUNK_BYTES, written, word);
    if (lease.size_bytes < chunks * CHUNK_BYTES)
        printf("#   %s has only %llu bytes\n", name, (unsigned long long)lease.size_bytes);
    return must("release", gvm_object_release(object, &lease)) && good;
}

bool witness_begin(fixture_witness *w, const char *path)
{
    *w = (fixture_witness){NULL, NULL};
    return must("connect", gvm_client_connect(path, &w->keeper)) &&
           must("create", create(w->keeper, STILL, STILL_CHUNKS, &w->still)) &&
           witness_write(w->still, STILL_CHUNKS, STILL_WORD) &&
           must("publish", gvm_object_publish(w->still, STILL, GVM_PUBLISH_REPLACE));
}

void witness_end(fixture_witness *w)
{
    gvm_object_close(w->still);
    gvm_client_close(w->keeper);
    *w = (fixture_witness){NULL, NULL};
}

/* What the client left behind in its own right. */
static bool look_at_public(fixture_witness *w, const client_result *result)
{
    gvm_object *object;
    gvm_status status = gvm_object_open(w->keeper, PUBLIC, 0, &object);
    bool good;

    if (status == GVM_E_ABSENT && !result->published)
        return true;
    if (!must("open " PUBLIC, status))
        return false;
    good = witness_read(object, PUBLIC, result->public_chunks,
                        result->published ? result->written_chunks : 0, OWN_WORD);
    good = must("drop", gvm_object_drop(w->keeper, PUBLIC)) && good;
    gvm_object_close(object);
    return good;
}

static bool drop_others(fixture_witness *w)
{
    static const char *const names[] = {OWN, OTHER};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        gvm_status status = gvm_object_drop(w->keeper, names[i]);

        if (status != GVM_E_ABSENT && !must("drop", status))
            return false;
    }
    return true;
}

/* All that is used is the witness's: nothing of the client is left. */
static bool is_settled(const snapshot_copy *s)
{
    const gvm_keeper_device_info *d = &s->devices[0];
    const gvm_object_info *o = s->objects;

    return s->keeper.clients == 1 && s->keeper.objects == 1 && d->held_bytes == 0 &&
           d->leased_bytes == 0 && d->free_bytes == 0 && o->openings == 1 && o->moving == 0 &&
           o->device_bytes + o->host_bytes == STILL_CHUNKS * CHUNK_BYTES &&
           d->resident_bytes == o->device_bytes &&
           s->keeper.host_used_bytes == o->host_bytes + o->duplicate_bytes;
}

static bool settle(fixture_witness *w, uint64_t *frames)
{
    snapshot_copy *s = NULL;
    bool settled = false;

    for (int ms = 0; !settled; ms += 2) {
        if (!must("trim", gvm_client_trim(w->keeper, 0, 0, NULL)) ||
            !must("snapshot", snapshot_take(w->keeper, &s)))
            return false;
        settled = is_settled(s);
        *frames = (s->devices[0].resident_bytes + s->keeper.host_used_bytes + s->keeper.host_free_bytes) /
                  CHUNK_BYTES;
        if (!settled && ms >= SETTLE_MS) {
            printf("#   left: %u clients, %u objects, %llu bytes held, %llu leased, %llu resident, "
                   "%llu free, %llu used on the host, %llu of %s there\n",
                   s->keeper.clients, s->keeper.objects, (unsigned long long)s->devices[0].held_bytes,
                   (unsigned long long)s->devices[0].leased_bytes,
                   (unsigned long long)s->devices[0].resident_bytes,
                   (unsigned long long)s->devices[0].free_bytes,
                   (unsigned long long)s->keeper.host_used_bytes,
                   (unsigned long long)(s->objects[0].host_bytes + s->objects[0].duplicate_bytes),
                   s->objects[0].name);
            snapshot_free(s);
            return false;
        }
        snapshot_free(s);
        if (!settled)
            pause_ms(2);
    }
    return true;
}

/* The keeper does what it did before: in both directions, and with new memory. */
static bool works(fixture_witness *w)
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_object *object;
    uint64_t bytes = 0;
    bool good;

    if (!must("evict", gvm_client_evict(w->keeper, STILL, GVM_BYTES_UNLIMITED, &bytes)) ||
        !must("info", gvm_object_get_info(w->still, &info)))
        return false;
    if (info.device_bytes != 0) {
        printf("#   evicting has left %llu bytes on the device\n",
               (unsigned long long)info.device_bytes);
        return false;
    }
    if (!witness_read(w->still, STILL, STILL_CHUNKS, STILL_CHUNKS, STILL_WORD) ||
        !must("info", gvm_object_get_info(w->still, &info)))
        return false;
    if (info.host_bytes != 0) {
        printf("#   a hot read has left %llu bytes on the host\n", (unsigned long long)info.host_bytes);
        return false;
    }
    if (!must("create", create(w->keeper, NULL, OWN_CHUNKS, &object)))
        return false;
    good = witness_write(object, OWN_CHUNKS, OWN_WORD) &&
           witness_read(object, "a new object", OWN_CHUNKS, OWN_CHUNKS, OWN_WORD);
    gvm_object_close(object);
    return good && witness_write(w->still, STILL_CHUNKS, STILL_WORD);
}

bool witness_check(fixture_witness *w, const client_result *result, uint64_t *frames)
{
    return witness_read(w->still, STILL, STILL_CHUNKS, STILL_CHUNKS, STILL_WORD) &&
           look_at_public(w, result) && drop_others(w) && settle(w, frames) && works(w) &&
           settle(w, frames);
}

/* ---- a context that breaks */

static struct {
    gvm_device *device;
    gvm_client *keeper;
    gvm_object *object;
    sem_t go;
} broken;

static void wait_for_go(void *arg)
{
    while (sem_wait(arg) != 0)
        ;
}

/* A stream that waits, then breaks, then would release the lease. */
static bool break_behind(gvm_lease *lease)
{
    CUstream stream = NULL;
    bool good = gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    const uint64_t nowhere = gvmi_address(lease->address) + 2 * CHUNK_BYTES; /* reserved, not committed */

    good = good && gvmi_cu->cuLaunchHostFunc(stream, wait_for_go, &broken.go) == CUDA_SUCCESS;
    good = good && must("fill", gvm_kernel_fill_random_f64(broken.device, gvmi_pointer(nowhere),
                                                           1024, 0, 1, stream));
    good = good && must("release_async", gvm_object_release_async(broken.object, lease, stream));
    sem_post(&broken.go);
    return good && gvmi_cu->cuStreamSynchronize(stream) != CUDA_SUCCESS;
}

bool fixture_break(const char *path)
{
    gvm_lease lease;
    bool good = false;

    sem_init(&broken.go, 0, 0);
    if (!must("open a device", gvm_device_open(0, &broken.device)) ||
        !must("connect", gvm_client_connect(path, &broken.keeper)) ||
        !must("create", create(broken.keeper, PUBLIC, 2, &broken.object)) ||
        !must("publish", gvm_object_publish(broken.object, PUBLIC, GVM_PUBLISH_REPLACE)) ||
        !witness_acquire(broken.object, GVM_LEASE_WRITE, WAIT_MS, &lease))
        return false;
    /* So that no module is loaded later, for which a driver may wait for all streams. */
    if (must("fill", gvm_kernel_fill_random_f64(broken.device, lease.address, 1024, 0, 1, NULL)) &&
        push()) {
        good = gvmi_cu->cuStreamSynchronize(NULL) == CUDA_SUCCESS && break_behind(&lease);
        pop();
    }
    return good;
}

void fixture_break_end(void)
{
    gvm_object_close(broken.object);
}

bool witness_may_write(fixture_witness *w)
{
    gvm_object *object;
    gvm_lease lease;
    bool may;

    if (!must("open", gvm_object_open(w->keeper, PUBLIC, 0, &object)))
        return false;
    may = gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, 200, &lease) == GVM_OK;
    gvm_object_close(object);
    return may;
}

/* ---- the keeper */

gvm_status fixture_serve(const char *path, gvm_keeper **out)
{
    const int32_t device = 0;
    const gvm_keeper_options options = {
        .struct_size = sizeof options,
        .path = path,
        .devices = &device,
        .device_count = 1,
        .device_budget_bytes = DEVICE_CHUNKS * CHUNK_BYTES,
        .host_budget_bytes = HOST_CHUNKS * CHUNK_BYTES,
        .revoke_limit_ms = REVOKE_MS,
    };

    return gvm_keeper_start(&options, out);
}
