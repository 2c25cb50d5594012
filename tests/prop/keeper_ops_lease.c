/* Operations under leases, and what is found there. */
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "kernels/basic.h"
#include "kernels/kernels.h"
#include "tests/lib/random.h"
#include "tests/prop/keeper_ops.h"
#include "tests/prop/keeper_ops_kernels.h"

extern const unsigned char gvmi_image_soft_keeper_ops_kernels[];
extern const unsigned char *const gvmi_image_cuda_keeper_ops_kernels;

/* A thread that holds leases waits no longer than this for another one: two such threads may wait
 * for each other. */
#define WAIT_MS_MAX 20u

/* ---- contents */

static gvm_status driver_status(CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ? GVM_OK
                                  : gvmi_driver_fail((int32_t)result, call, "in the test itself");
}
#define DRIVER(call, ...) judged(#call, driver_status(gvmi_cu->call(__VA_ARGS__), #call), 0)

bool kernels_load(party *p)
{
    gvm_device_info info = {.struct_size = sizeof info};
    bool good = judged("gvm_device_get_info", gvm_device_get_info(p->device, &info), 0);

    if (!good || !judged("gvmi_device_enter", gvmi_device_enter(p->device), 0))
        return false;
    p->blocks = info.software ? 4 : 64;
    p->block_threads = info.block_threads_max < 256 ? (unsigned)info.block_threads_max : 256;
    good = DRIVER(cuModuleLoadData, &p->kernels,
                  info.software ? gvmi_image_soft_keeper_ops_kernels
                                : gvmi_image_cuda_keeper_ops_kernels) &&
           DRIVER(cuModuleGetFunction, &p->fill, p->kernels, "keeper_ops_fill") &&
           DRIVER(cuModuleGetFunction, &p->check, p->kernels, "keeper_ops_check");
    gvmi_device_leave();
    return good;
}

void kernels_unload(party *p)
{
    if (p->kernels == NULL || gvmi_device_enter(p->device) != GVM_OK)
        return;
    gvmi_cu->cuModuleUnload(p->kernels);
    gvmi_device_leave();
}

/* What a chunk holds whose data are of that seed. */
static keeper_ops_params contents(const gvm_lease *lease, uint32_t chunk, uint8_t seed)
{
    const uint64_t which = (uint64_t)seed * CHUNKS_MAX + chunk;

    return (keeper_ops_params){
        .address = gvmi_address(lease->address) + chunk * CHUNK_BYTES,
        .words = CHUNK_BYTES / 8,
        .first = seed == 0 ? 0 : gvmi_splitmix64(which),
        .step = seed == 0 ? 0 : gvmi_splitmix64(~which) | 1,
    };
}

static gvm_status launch(const worker *w, CUfunction function, keeper_ops_params *params)
{
    void *arguments[] = {params};

    return driver_status(gvmi_cu->cuLaunchKernel(function, w->party->blocks, 1, 1,
                                                 w->party->block_threads, 1, 1, 0, w->stream,
                                                 arguments, NULL),
                         "cuLaunchKernel");
}

/* Queues kernels that look at the lease's first chunks, and adds up what they find in the result.
 * The lease keeps the seeds from changing. */
static gvm_status queue_checks(worker *w, const slot *s, const gvm_lease *lease, uint32_t chunks,
                               const gvmi_result *result)
{
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < chunks && status == GVM_OK; i++) {
        keeper_ops_params params = contents(lease, i, atomic_load(&s->record->seed[i]));

        params.result = result->words.device;
        status = launch(w, w->party->check, &params);
    }
    return status;
}

/* Every committed byte, by kernels of this process. */
static bool check_contents(worker *w, const slot *s, const gvm_lease *lease, const char *when)
{
    gvm_device *device = w->party->device;
    const uint32_t chunks = (uint32_t)(lease->size_bytes / CHUNK_BYTES);
    gvmi_result result;
    uint64_t others = 0;
    gvm_status status;

    if (!judged("gvmi_result_begin", gvmi_result_begin(device, 0, w->stream, &result), 0))
        return false;
    status = queue_checks(w, s, lease, chunks, &result);
    if (!judged("a kernel under a lease", gvmi_result_end(device, &result, status, &others), 0))
        return false;
    if (others > 0)
        return wrong("%s: %llu words of %u chunks of object %llu (serial %llu) are not what was written",
                     when, (unsigned long long)others, chunks, (unsigned long long)s->id,
                     (unsigned long long)s->serial);
    atomic_fetch_add(&page->bytes_checked, lease->size_bytes);
    return true;
}

/* Some chunks get other data. What the object holds is settled when the stream has done it, and
 * nobody else looks before, if the keeper is right. */
static bool write_contents(worker *w, const slot *s, const gvm_lease *lease)
{
    const uint32_t chunks = (uint32_t)(lease->size_bytes / CHUNK_BYTES);
    const uint32_t which = (uint32_t)random_next(&w->seed); /* a bit for each chunk */

    for (uint32_t i = 0; i < chunks; i++) {
        const uint8_t seed = (uint8_t)(1 + random_next(&w->seed) % SEEDS);
        keeper_ops_params params = contents(lease, i, seed);

        if ((which >> i & 1) == 0)
            continue;
        if (!judged("a kernel that writes", launch(w, w->party->fill, &params), 0))
            return false;
        atomic_store(&s->record->seed[i], seed);
    }
    return true;
}

static bool wait_for_stream(worker *w)
{
    return gvmi_cu->cuStreamSynchronize(w->stream) == CUDA_SUCCESS ||
           wrong("cuStreamSynchronize failed");
}

/* ---- who is inside */

static bool enter(const slot *s, gvm_lease_mode mode)
{
    record *r = s->record;
    const bool alone = mode == GVM_LEASE_WRITE
                           ? (atomic_fetch_add(&r->writers, 1) | atomic_load(&r->readers)) == 0
                           : (atomic_fetch_add(&r->readers, 1), atomic_load(&r->writers) == 0);

    return alone || wrong("a %s lease on object %llu though there are %d readers and %d writers",
                          mode == GVM_LEASE_WRITE ? "write" : "read", (unsigned long long)s->id,
                          atomic_load(&r->readers), atomic_load(&r->writers));
}

static void leave(const slot *s, uint32_t mode)
{
    atomic_fetch_sub(mode == GVM_LEASE_WRITE ? &s->record->writers : &s->record->readers, 1);
}

/* ---- release */

static bool check_cleared(const slot *s, gvm_lease *lease)
{
    if (lease->mode != 0)
        return wrong("a released lease has mode %u", lease->mode);
    return judged("gvm_object_release, again", gvm_object_release(s->object, lease),
                  ONE_OF(GVM_E_INVALID) | MUST_FAIL);
}

/* Releases while a kernel that reads under the lease is queued, and looks at its answer
 * afterwards. */
static bool release_behind_kernel(worker *w, slot *s, gvm_lease *lease)
{
    gvm_device *device = w->party->device;
    gvmi_result result;
    uint64_t others = 0;
    gvm_status status = gvmi_result_begin(device, 0, w->stream, &result), released;

    if (!judged("gvmi_result_begin", status, 0))
        return false;
    status = queue_checks(w, s, lease, 1, &result);
    leave(s, lease->mode);
    released = gvm_object_release_async(s->object, lease, w->stream);
    status = gvmi_result_end(device, &result, status, &others);
    if (!judged("a kernel under a lease", status, 0) ||
        !judged("gvm_object_release_async", released, 0))
        return false;
    return others == 0 || wrong("a chunk of object %llu changed while a kernel read it under a lease",
                                (unsigned long long)s->id);
}

static bool release(worker *w, slot *s, gvm_lease *lease)
{
    const uint32_t how = (uint32_t)(random_next(&w->seed) % 8);
    bool good;

    if (how < 3 && lease->mode == GVM_LEASE_READ && lease->size_bytes > 0)
        good = release_behind_kernel(w, s, lease);
    else if (how < 4) {
        leave(s, lease->mode);
        good = judged("gvm_object_release_async",
                      gvm_object_release_async(s->object, lease, w->stream), 0);
    } else {
        good = wait_for_stream(w);
        leave(s, lease->mode);
        good = good && judged("gvm_object_release", gvm_object_release(s->object, lease), 0);
    }
    if (good && how == 5)
        good = check_cleared(s, lease);
    leave_slot(s);
    return good;
}

static bool release_nth(worker *w, unsigned nth, bool check)
{
    holding h = w->leases[nth];
    bool good;

    w->leases[nth] = w->leases[--w->lease_count];
    good = !check || check_contents(w, h.slot, &h.lease, "before a release");
    return release(w, h.slot, &h.lease) && good;
}

bool do_release(worker *w)
{
    const uint64_t random = random_next(&w->seed);

    return w->lease_count == 0 ||
           release_nth(w, (unsigned)(random % w->lease_count), random >> 32 & 1);
}

bool release_all(worker *w)
{
    bool good = true;

    while (w->lease_count > 0)
        good = release_nth(w, w->lease_count - 1, false) && good;
    if (w->connected)
        pthread_rwlock_unlock(&w->party->connection);
    w->connected = false;
    return good;
}

/* ---- acquire */

static bool check_lease(const slot *s, const gvm_lease *lease, gvm_lease_mode mode,
                        uint32_t chunks_before)
{
    const uint32_t most = atomic_load(&s->record->chunks_asked);

    if (lease->mode != mode || gvmi_address(lease->address) != s->address)
        return wrong("a lease of mode %u at %llx, not %u at %llx", lease->mode,
                     (unsigned long long)gvmi_address(lease->address), (unsigned)mode,
                     (unsigned long long)s->address);
    if (lease->size_bytes % CHUNK_BYTES != 0 || lease->size_bytes < chunks_before * CHUNK_BYTES ||
        lease->size_bytes > most * CHUNK_BYTES)
        return wrong("a lease of %llu bytes on an object of %u to %u chunks",
                     (unsigned long long)lease->size_bytes, chunks_before, most);
    return true;
}

/* The first and the last word of each chunk, by the processor: each write lease by a CPU writes them again. */
static bool touch_by_cpu(const slot *s, const gvm_lease *lease)
{
    for (uint32_t i = 0; i < lease->size_bytes / CHUNK_BYTES; i++) {
        const keeper_ops_params params = contents(lease, i, atomic_load(&s->record->seed[i]));
        volatile uint64_t *words = gvmi_pointer(params.address);

        for (uint64_t word = 0; word < params.words; word += params.words - 1) {
            if (words[word] != params.first + word * params.step)
                return wrong("the processor reads another word of chunk %u", i);
            if (lease->mode == GVM_LEASE_WRITE)
                words[word] = params.first + word * params.step;
        }
    }
    return true;
}

/* What acquire may answer besides success. */
static uint64_t acquire_errors(const slot *s, gvm_lease_mode mode, bool sealed_before,
                               bool for_ever, bool cpu)
{
    uint64_t may = (for_ever ? 0 : ONE_OF(GVM_E_TIMEOUT)) | (cpu ? ONE_OF(GVM_E_NOMEM) : 0);

    if (mode != GVM_LEASE_WRITE)
        return may;
    if (s->readonly)
        may |= ONE_OF(GVM_E_READONLY) | MUST_FAIL;
    if (atomic_load(&s->record->seal_asked))
        may |= ONE_OF(GVM_E_SEALED);
    return sealed_before ? may | MUST_FAIL : may;
}

static bool acquire(worker *w, gvm_lease_mode mode)
{
    gvm_acquire_options options = {.struct_size = sizeof options};
    const uint64_t random = random_next(&w->seed);
    const bool for_ever = w->lease_count == 0 && random % 8 < 5;
    slot *s = w->lease_count < LEASES ? pick_slot(w) : NULL;
    gvm_lease lease = {0};
    uint32_t chunks_before;
    const gvm_acquire_options *given;
    bool sealed_before, good, cpu;
    int timeout_ms;
    gvm_status status;

    if (s == NULL)
        return true;
    options.hint = (gvm_hint)(random >> 8 & 3);
    options.flags = options.hint == GVM_HINT_NONE ? random >> 48 & GVM_ACQUIRE_CPU : 0;
    timeout_ms = for_ever           ? GVM_FOREVER
                 : random >> 16 & 1 ? GVM_TRY
                                    : (int)(1 + (random >> 24) % WAIT_MS_MAX);
    chunks_before = atomic_load(&s->record->chunks_done);
    sealed_before = atomic_load(&s->record->seal_done);
    given = for_ever && random >> 17 & 1 ? NULL : &options;
    cpu = given != NULL && given->flags != 0;
    status = gvm_object_acquire(s->object, mode, given, timeout_ms, &lease);
    if (!judged("gvm_object_acquire", status, acquire_errors(s, mode, sealed_before, for_ever, cpu)) ||
        status != GVM_OK) {
        leave_slot(s);
        return status != GVM_OK && !atomic_load(&page->stop);
    }
    good = enter(s, mode) && check_lease(s, &lease, mode, chunks_before) &&
           (!cpu || touch_by_cpu(s, &lease)) && check_contents(w, s, &lease, "after an acquire") &&
           (mode != GVM_LEASE_WRITE || write_contents(w, s, &lease));
    if (!good) {
        leave_slot(s);
        return false;
    }
    if (random >> 40 & 1) {
        w->leases[w->lease_count++] = (holding){s, lease};
        return true;
    }
    return release(w, s, &lease);
}

bool do_read(worker *w)
{
    return acquire(w, GVM_LEASE_READ);
}

bool do_write(worker *w)
{
    return acquire(w, GVM_LEASE_WRITE);
}
