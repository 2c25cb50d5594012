/* Fails every driver, memory and system call of every public operation in turn, once and for ever.
 *
 *     every_call [NAME]     only the operations whose name begins with NAME
 *
 * Goal: whatever fails, the operation answers a status that its contract lists, and changes
 * nothing: outputs, information, contents, what is held at the driver, fds, objects, free memory of
 * the device. Invariants hold. The same call succeeds as soon as nothing fails any more. Where the
 * library copes with a failure by itself (it tries again, or does without), the operation must have
 * done all it should.
 *
 * Method: a fresh fixture for each attempt, and snapshots of all that can be counted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/registry.h"
#include "driver/driver.h"
#include "tests/fault/fault.h"
#include "tests/lib/child.h"
#include "tests/lib/fixture.h"
#include "tests/lib/tap.h"

#define ROLE "--serve"
#define SETTLE_MS 1000
#define CALLS_MAX 5000 /* of one operation: more means that it never ends */

/* ---- what can be counted */

typedef struct snapshot {
    gvmi_check_holdings held;
    uint64_t objects[GVMI_KIND_COUNT];
    int fds;
    uint64_t free_bytes[2];
    gvm_buffer_info buffer, target, imported;
    uint64_t vector_count, vector_capacity;
    uint64_t heap_blocks, heap_requested_bytes, heap_pending_bytes, heap_committed_bytes, heap_segments;
} snapshot;

static CUcontext contexts[2]; /* of the test's own, so that free memory can be asked for without the library */
static int device_count;

static void take_heap(snapshot *s, gvm_heap *heap)
{
    gvm_heap_info info = {.struct_size = sizeof info};

    if (gvm_heap_get_info(heap, &info) != GVM_OK)
        return;
    s->heap_blocks = info.blocks;
    s->heap_requested_bytes = info.requested_bytes;
    s->heap_pending_bytes = info.pending_bytes;
    s->heap_committed_bytes = info.committed_bytes;
    s->heap_segments = info.segments;
}

static void must(gvm_status status)
{
    gvm_error error;

    if (status == GVM_OK)
        return;
    (void)gvm_error_last(&error);
    printf("Bail out! cannot look at the fixture: %s\n", error.text);
    exit(1);
}

static void take(snapshot *s, fixture *w)
{
    memset(s, 0, sizeof *s);
    s->buffer.struct_size = s->target.struct_size = s->imported.struct_size = sizeof s->buffer;
    if (w->device != NULL)
        must(gvm_device_trim(w->device, 0));
    if (w->peer != NULL)
        must(gvm_device_trim(w->peer, 0));
    s->held = gvmi_check_held();
    for (int kind = 0; kind < GVMI_KIND_COUNT; kind++)
        s->objects[kind] = gvmi_registry_count((gvmi_kind)kind);
    s->fds = count_fds();
    for (int i = 0; i < device_count && i < 2; i++) {
        size_t free_bytes = 0, total;

        gvmi_cu->cuCtxPushCurrent(contexts[i]);
        gvmi_cu->cuMemGetInfo(&free_bytes, &total);
        gvmi_cu->cuCtxPopCurrent(&(CUcontext){NULL});
        s->free_bytes[i] = free_bytes;
    }
    if (w->buffer != NULL)
        must(gvm_buffer_get_info(w->buffer, &s->buffer));
    if (w->target != NULL)
        must(gvm_buffer_get_info(w->target, &s->target));
    if (w->imported != NULL)
        must(gvm_buffer_get_info(w->imported, &s->imported));
    if (w->vector != NULL) {
        s->vector_count = gvm_vector_count(w->vector);
        s->vector_capacity = gvm_vector_capacity(w->vector);
    }
    if (w->heap != NULL)
        take_heap(s, w->heap);
}

/* Makes equal what a failure of this operation may leave different. */
static void forgive(snapshot *after, const snapshot *before, unsigned flags)
{
    const gvmi_check_holdings *b = &before->held;
    gvmi_check_holdings *a = &after->held;

    if (flags & LEAVES_PARTLY_MOVED) {
        after->buffer = before->buffer;
        memcpy(after->free_bytes, before->free_bytes, sizeof after->free_bytes);
    }
    if (flags & LEAVES_CAPACITY) {
        a->handles = b->handles;
        a->mappings = b->mappings;
        after->fds = before->fds; /* the software GPU has one for each handle */
        memcpy(after->free_bytes, before->free_bytes, sizeof after->free_bytes);
        after->vector_capacity = before->vector_capacity;
    }
    if (flags & LEAVES_COLUMNS) {
        a->reservations = b->reservations;
        a->handles = b->handles;
        a->mappings = b->mappings;
        memcpy(after->objects, before->objects, sizeof after->objects);
        after->fds = before->fds;
    }
    if (flags & LEAVES_KERNELS) {
        a->modules = b->modules;
        a->allocations = b->allocations;
        a->host_allocations = b->host_allocations;
        after->fds = before->fds;
        memcpy(after->free_bytes, before->free_bytes, sizeof after->free_bytes);
    }
}

/* A driver's threads may let go of the last fds and bytes a moment after the wait for their work
 * has returned: a snapshot for comparison is taken again until they have, or not in time. What
 * they still held in the earlier snapshot does not matter: only more is a leak. */
static void take_settled(snapshot *s, fixture *w, const snapshot *before, unsigned flags)
{
    for (int i = 0; i < SETTLE_MS; i++) {
        take(s, w);
        forgive(s, before, flags);
        if (s->fds <= before->fds && s->free_bytes[0] >= before->free_bytes[0] &&
            s->free_bytes[1] >= before->free_bytes[1])
            return;
        pause_ms(1);
    }
}

static bool complain(const char *what)
{
    printf("#   %s\n", what);
    return false;
}

static bool same_number(const char *what, uint64_t before, uint64_t after)
{
    if (before == after)
        return true;
    printf("#   %s: %llu before, %llu after\n", what, (unsigned long long)before,
           (unsigned long long)after);
    return false;
}

static bool same(const snapshot *before, const snapshot *after)
{
    bool good = true;

#define HELD(member) \
    good = same_number(#member " held", before->held.member, after->held.member) && good
    HELD(reservations);
    HELD(handles);
    HELD(mappings);
    HELD(allocations);
    HELD(host_allocations);
    HELD(streams);
    HELD(events);
    HELD(modules);
#undef HELD
    for (int kind = 0; kind < GVMI_KIND_COUNT; kind++)
        good = same_number("objects of a kind", before->objects[kind], after->objects[kind]) && good;
    if (after->fds > before->fds)
        good = same_number("fds", (uint64_t)before->fds, (uint64_t)after->fds);
    for (int i = 0; i < 2; i++)
        if (after->free_bytes[i] < before->free_bytes[i])
            good = same_number("free bytes", before->free_bytes[i], after->free_bytes[i]);
    good = same_number("elements", before->vector_count, after->vector_count) && good;
    good = same_number("capacity", before->vector_capacity, after->vector_capacity) && good;
    good = same_number("heap's blocks", before->heap_blocks, after->heap_blocks) && good;
    good = same_number("heap's bytes", before->heap_requested_bytes, after->heap_requested_bytes) &&
           good;
    good = same_number("waiting bytes", before->heap_pending_bytes, after->heap_pending_bytes) && good;
    good = same_number("heap's memory", before->heap_committed_bytes, after->heap_committed_bytes) &&
           good;
    good = same_number("heap's segments", before->heap_segments, after->heap_segments) && good;
    if (memcmp(&before->buffer, &after->buffer, sizeof after->buffer) != 0 ||
        memcmp(&before->target, &after->target, sizeof after->target) != 0 ||
        memcmp(&before->imported, &after->imported, sizeof after->imported) != 0)
        good = complain("a buffer's information has changed");
    return good;
}

/* ---- one attempt */

typedef struct tally {
    uint64_t attempts, coped;
} tally;

/* The operation failed: it must have said so properly and changed nothing, and must succeed now. */
static bool look_after_failure(const scenario *s, uint64_t documented, fixture *w,
                               const fixture *before_run, gvm_status status, const snapshot *before)
{
    snapshot after;
    gvm_error error;
    bool good = true;

    gvm_error_last(&error);
    if ((documented >> status & 1) == 0) {
        printf("#   answered %s (%s), which its contract does not list\n", gvm_status_name(status),
               error.text);
        good = false;
    }
    if (error.status != status || error.text[0] == '\0')
        good = complain("the thread's error is not that of the call");
    if (memcmp(w->sockets, before_run->sockets, sizeof w->sockets) != 0 ||
        w->out != before_run->out || w->device != before_run->device ||
        w->target != before_run->target || w->vector != before_run->vector ||
        w->piece != before_run->piece || w->share != before_run->share ||
        w->later != before_run->later || w->imported != before_run->imported ||
        w->ipc != before_run->ipc || w->heap != before_run->heap || w->block != before_run->block ||
        w->stream_block != before_run->stream_block || w->opened != before_run->opened ||
        w->appender != before_run->appender || w->taken != before_run->taken ||
        w->made != before_run->made || w->server != before_run->server ||
        w->other != before_run->other || w->row != before_run->row ||
        w->number != before_run->number || w->count != before_run->count)
        good = complain("an output was written");
    if (!fixture_intact(w))
        good = complain("contents or invariants are broken");
    /* Pinned memory that was committed before the failure stays: to let it go may wait for kernels. */
    if ((s->flags & NEEDS_HOST_HEAP) && gvm_heap_trim(w->heap, 0) != GVM_OK)
        good = complain("the heap cannot be trimmed");
    if ((s->flags & LEAVES_STREAM) && !fixture_renew_sockets(w, s->flags))
        return complain("no new sockets");
    take_settled(&after, w, before, s->flags);
    return same(before, &after) && good;
}

static bool look_after_success(const scenario *s, fixture *w)
{
    if (s->shows != NULL && !s->shows(w))
        return complain("it succeeded and did not do all it should");
    return fixture_intact(w) || complain("contents or invariants are broken after success");
}

static bool attempt(const scenario *s, const injector *how, uint64_t nth, bool for_ever, tally *sum)
{
    static fixture w, before_run;
    snapshot base, before, end;
    gvm_status status;
    bool good = true, struck;

    take(&base, &(fixture){.device = NULL});
    if (!fixture_begin(&w, s->flags))
        return false;
    take(&before, &w);
    before_run = w;
    how->arm(nth, for_ever);
    status = s->run(&w);
    struck = how->struck();
    how->arm(0, false);
    sum->attempts++;
    if (status == GVM_OK) {
        sum->coped += struck;
    } else {
        if (!struck)
            good = complain("failed, though nothing was made to fail");
        good = look_after_failure(s, s->statuses | how->statuses, &w, &before_run, status, &before) &&
               good;
        if (status == GVM_E_KEEPER && (s->flags & LEAVES_COLUMNS) != 0)
            good = fixture_reattach(&w, s->flags) && good;
        status = s->run(&w);
        if (status != GVM_OK) {
            gvm_error error;

            gvm_error_last(&error);
            printf("#   repeated, it returns %s: %s\n", gvm_status_name(status), error.text);
            good = false;
        }
    }
    if (status == GVM_OK)
        good = look_after_success(s, &w) && good;
    fixture_end(&w);
    take_settled(&end, &(fixture){.device = NULL}, &base, 0);
    if (!same(&base, &end))
        good = complain("... after the end of the fixture");
    return good;
}

/* How many calls of the kind an undisturbed run makes. */
static bool count_calls(const scenario *s, const injector *how, uint64_t *calls)
{
    static fixture w;
    gvm_status status;

    if (!fixture_begin(&w, s->flags))
        return false;
    how->arm(0, false);
    status = s->run(&w);
    *calls = how->calls();
    if (status != GVM_OK) {
        gvm_error error;

        gvm_error_last(&error);
        printf("#   undisturbed, it returns %s: %s\n", gvm_status_name(status), error.text);
    }
    fixture_end(&w);
    return status == GVM_OK && *calls <= CALLS_MAX;
}

static bool test_pair(const scenario *s, const injector *how, tally *sum)
{
    uint64_t calls;

    if (!count_calls(s, how, &calls))
        return complain("cannot be counted");
    for (uint64_t nth = 1; nth <= calls; nth++)
        for (int for_ever = 0; for_ever <= (how->for_ever_too ? 1 : 0); for_ever++)
            if (!attempt(s, how, nth, for_ever != 0, sum)) {
                printf("#   ... when call %llu of %llu failed %s: %s\n", (unsigned long long)nth,
                       (unsigned long long)calls, for_ever ? "for ever" : "once", how->name);
                return false;
            }
    return true;
}

/* ---- the other process, whose CUDA IPC handle is opened and whose table is read */

typedef struct foreign {
    gvm_ipc_handle handle;
    char token[GVM_TABLE_TOKEN_BYTES_MAX];
} foreign;

static int serve_foreign(void)
{
    static foreign f;
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_ipc_info info = {.struct_size = sizeof info};
    gvm_ipc *ipc;
    char command;

    if (gvm_device_open(0, &device) != GVM_OK ||
        gvm_buffer_create(device, CHUNK, NULL, &buffer) != GVM_OK ||
        gvm_buffer_commit(buffer, 0, CHUNK) != GVM_OK ||
        gvm_ipc_export(buffer, 0, PART, &ipc) != GVM_OK || gvm_ipc_get_info(ipc, &info) != GVM_OK ||
        !table_serve(f.token))
        return 1;
    f.handle = info.handle;
    if (child_next(&command, sizeof command, NULL) && child_answer(&f, sizeof f, -1))
        (void)child_next(&command, sizeof command, NULL); /* there is none: it ends */
    table_serve_end();
    gvm_ipc_destroy(ipc);
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    return 0;
}

static child start_server(void)
{
    static foreign f;
    child server = child_must_start(ROLE);

    if (child_post(&server, "", 1, -1) && child_wait(&server, &f, sizeof f, NULL) == NULL) {
        foreign_handle = &f.handle;
        foreign_token = f.token;
    }
    return server;
}

/* ---- all */

static bool start(void)
{
    gvm_status status = gvmi_driver_start();
    gvm_error error;

    if (status == GVM_OK && gvmi_cu->cuDeviceGetCount(&device_count) == CUDA_SUCCESS) {
        for (int i = 0; i < device_count && i < 2; i++)
            if (gvmi_cu->cuDevicePrimaryCtxRetain(&contexts[i], i) != CUDA_SUCCESS)
                return false;
        return true;
    }
    gvm_error_last(&error);
    tap_bail_out("no driver: %s", error.text);
}

static bool is_possible(const scenario *s)
{
    if ((s->flags & NEEDS_PEER) != 0 && device_count < 2)
        return false;
    return foreign_handle != NULL ||
           ((s->flags & (NEEDS_OPENED | NEEDS_TABLE | NEEDS_COMMON)) == 0 &&
            strcmp(s->name, "ipc_open") != 0 && strncmp(s->name, "table_", 6) != 0 &&
            strcmp(s->name, "collection_attach") != 0);
}

static void test_all(const char *only)
{
    tally sum = {0};
    fixture w;

    /* Drivers grow pools of their own at first use, of the context and of the process. */
    for (size_t i = 0; i < scenario_count; i++)
        if (is_possible(&scenarios[i]) && fixture_begin(&w, scenarios[i].flags)) {
            (void)scenarios[i].run(&w);
            fixture_end(&w);
        }
    tap_plan((unsigned)scenario_count + 1);
    for (size_t i = 0; i < scenario_count; i++) {
        const scenario *s = &scenarios[i];
        bool good = true;

        if (!is_possible(s) || strncmp(s->name, only, strlen(only)) != 0) {
            tap_skip(s->name, is_possible(s) ? "another was asked for" : "not on this machine");
            continue;
        }
        for (size_t j = 0; j < injector_count; j++)
            good = test_pair(s, &injectors[j], &sum) && good;
        tap_result(good, "%s", s->name);
    }
    printf("# %llu attempts, %llu coped with\n", (unsigned long long)sum.attempts,
           (unsigned long long)sum.coped);
    tap_result(gvmi_check_violations() == 0, "%llu violations of the driver's contract",
               (unsigned long long)gvmi_check_violations());
}

int main(int argc, char **argv)
{
    child server;

    if (child_is(argc, argv, ROLE))
        return serve_foreign();
    fixture_machine_default("devices=2,memory=256MiB,sms=2");
    server = start_server(); /* before anything here is counted; without the decorators */
    setenv("GVMEM_CHECK", "1", 1);
    setenv("GVMEM_FAULT", "*:18446744073709551615", 1); /* stacked; never reached until armed */
    if (!start())
        return 1;
    test_all(argc > 1 ? argv[1] : "");
    (void)child_end(&server);
    for (int i = 0; i < device_count && i < 2; i++)
        gvmi_cu->cuDevicePrimaryCtxRelease(i);
    return tap_finish();
}
