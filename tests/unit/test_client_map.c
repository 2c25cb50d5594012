/* keeper/client*.c: what the mapper does, releases on streams, reports, many threads; see
 * keeper_script.h. */
#include "tests/unit/keeper_script.h"

#include <sys/resource.h>

#include "base/struct.h"
#include "keeper/protocol/snapshot.h"

/* ---- MAP */

static int script_moves(fake *f)
{
    TRY_LINE(greet_and_open(f, 4));
    TRY_LINE(move(f, 1, 2, 4, 4 * CHUNK));   /* chunks 1 and 2 move to frames 4 and 5 */
    TRY_LINE(map(f, 1, 2, 4, 4 * CHUNK, 1)); /* the same again: nothing to do */
    TRY_LINE(move(f, 2, 1, 2, 4 * CHUNK));   /* one moves back */
    permit(f, 1, GVMI_PERMIT_READ);
    return serve_close_and_end(f);
}

static int be_moved(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_moves, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(byte_of(object, 0) == 1 && byte_of(object, 1) == 5);
    EXPECT(byte_of(object, 2) == 3 && byte_of(object, 3) == 4);
    EXPECT(object->buffer->device_bytes == 4 * CHUNK);
    return close_all(&f, keeper, object);
}

static void map_replaces_chunks_in_place(void **state)
{
    RUN(be_moved);
}

#define BURST (GVMI_CLIENT_PENDING_MAX + 2u)

/* More MAPs than a client unmaps ahead, chunk after chunk to other frames. */
static int script_burst(fake *f)
{
    uint64_t first;

    TRY_LINE(greet_and_open(f, 4));
    TRY_LINE(receive(f, GVMI_WIRE_DROP)); /* the test stops the mapper from here on */
    TRY_LINE(done(f, 0));
    first = f->serial + 1;
    for (uint32_t i = 0; i < BURST; i++)
        TRY_LINE(send_map(f, i % 4, 1, (i % 4 + i / 4 + 1) % 4, 4 * CHUNK, 1, -1));
    permit(f, 1, GVMI_PERMIT_REVOKED);
    for (uint32_t i = 0; i < BURST; i++) {
        if (i >= GVMI_CLIENT_PENDING_MAX) {
            f->serial = first + i - GVMI_CLIENT_PENDING_MAX;
            TRY_LINE(mapped(f, GVM_OK));
        }
        f->serial = first + i;
        TRY_LINE(unmapped(f));
    }
    for (uint32_t i = BURST - GVMI_CLIENT_PENDING_MAX; i < BURST; i++) {
        f->serial = first + i;
        TRY_LINE(mapped(f, GVM_OK));
    }
    permit(f, 1, GVMI_PERMIT_READ);
    return serve_close_and_end(f);
}

static int be_moved_in_a_burst(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_burst, &keeper, &object));
    pthread_mutex_lock(&object->buffer->lock.mutex); /* not by its rank: the call takes others */
    EXPECT(gvm_object_drop(keeper, "/other") == GVM_OK);
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    pthread_mutex_unlock(&object->buffer->lock.mutex);
    while ((atomic_load(&f.permits[SLOT].word) & GVMI_PERMIT_READ) == 0)
        sched_yield();
    for (uint32_t i = BURST - 4; i < BURST; i++)
        EXPECT(byte_of(object, i % 4) == (int)((i % 4 + i / 4 + 1) % 4 + 1));
    EXPECT(object->buffer->device_bytes == 4 * CHUNK);
    return close_all(&f, keeper, object);
}

static void burst_of_maps_is_unmapped_ahead(void **state)
{
    RUN(be_moved_in_a_burst);
}

static int script_generation(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    permit(f, 2, GVMI_PERMIT_READ); /* ahead of the MAP */
    while (!gvmi_lease_any(word(f)))
        sched_yield();
    EXPECT(nothing_comes(f->socket)); /* the lease is taken, the thread waits for its own mapper */
    TRY_LINE(map(f, 1, 1, 1, CHUNK, 1)); /* the last of a growth's MAPs has its size and generation */
    EXPECT(nothing_comes(f->socket) && gvmi_lease_any(word(f)));
    TRY_LINE(map(f, 2, 1, 2, 3 * CHUNK, 2));
    return serve_close_and_end(f);
}

static int await_generation(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_generation, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(lease.size_bytes == 3 * CHUNK && lease.generation == 2);
    EXPECT(byte_of(object, 2) == 3);
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void lease_of_a_newer_generation_waits_for_its_maps(void **state)
{
    RUN(await_generation);
}

static int script_bad_map(fake *f)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    TRY_LINE(greet_and_open(f, 2));
    permit(f, 1, GVMI_PERMIT_READ);
    while (!gvmi_lease_any(word(f)))
        sched_yield();
    TRY_LINE(send_map(f, 2, 1, 0, 3 * CHUNK, 2, null)); /* a growth, while there is a lease */
    EXPECT(nothing_comes(f->socket));
    TRY_LINE(send_map(f, 2, 1, 0, 3 * CHUNK, 2, -1)); /* put off likewise */
    EXPECT(nothing_comes(f->socket) && gvmi_lease_any(word(f)));
    permit(f, 2, GVMI_PERMIT_READ); /* lets the test go on */
    f->serial--;
    TRY_LINE(mapped(f, GVM_E_FORMAT));
    f->serial++;
    TRY_LINE(mapped(f, GVM_E_FORMAT));
    TRY_LINE(send_map(f, 2, 1, 0, 3 * CHUNK, 2, -1));
    TRY_LINE(mapped(f, GVM_E_FORMAT));
    close(null);
    permit(f, 3, 0); /* lets the test end */
    TRY_LINE(serve_retry(f, 3, 3));
    return serve_close_and_end(f);
}

/* The mapper notes that the object may be asked for again after it has sent the failure, which a keeper may act on at once. */
static void await_retriable(gvm_object *object)
{
    while (!gvmi_client_may_retry(object))
        sched_yield();
}

static int be_mapped_badly(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease, other;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_bad_map, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    while (gvmi_permit_generation(atomic_load(&f.permits[SLOT].word)) < 2)
        sched_yield();
    EXPECT(byte_of(object, 0) == 1 && byte_of(object, 1) == 2); /* nothing went under the lease */
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &other),
                      GVM_E_FORMAT, "no memory"));
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    while (gvmi_permit_generation(atomic_load(&f.permits[SLOT].word)) < 3)
        sched_yield();
    EXPECT(object->buffer->device_bytes == 0);
    await_retriable(object);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &other) == GVM_OK);
    EXPECT(byte_of(object, 0) == 1 && byte_of(object, 2) == 3);
    EXPECT(gvm_object_release(object, &other) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void map_that_fails_vacates_when_leases_have_ended(void **state)
{
    RUN(be_mapped_badly);
}

static int script_vacated(fake *f)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    TRY_LINE(greet_and_open(f, 2));
    TRY_LINE(receive(f, GVMI_WIRE_DROP)); /* the object is open */
    TRY_LINE(done(f, 0));
    TRY_LINE(send_map(f, 0, 2, 2, 2 * CHUNK, 1, null)); /* a move */
    TRY_LINE(mapped(f, GVM_E_FORMAT));
    close(null);
    permit(f, 1, GVMI_PERMIT_READ);
    TRY_LINE(serve_retry(f, 2, 1));
    return serve_close_and_end(f);
}

static int be_vacated(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_vacated, &keeper, &object));
    EXPECT(gvm_object_drop(keeper, "/other") == GVM_OK);
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(object->buffer->device_bytes == 0 && byte_of(object, 0) == -2);
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                      GVM_E_FORMAT, "no memory"));
    await_retriable(object);
    permit(&f, 1, GVMI_PERMIT_BROKEN | GVMI_PERMIT_REVOKED); /* as the keeper does when it hears of it */
    EXPECT(!gvmi_lease_any(word(&f)));
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(byte_of(object, 0) == 1 && gvm_object_release(object, &lease) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void map_that_fails_leaves_nothing_mapped(void **state)
{
    RUN(be_vacated);
}

/* Fails a driver call in the middle of a MAP. Once UNMAPPED was said, there is no way back. */
static int script_driver_fails(fake *f)
{
    static const gvmi_call calls[] = {gvmi_call_cuMemImportFromShareableHandle, gvmi_call_cuMemMap,
                                      gvmi_call_cuMemSetAccess};

    TRY_LINE(greet_and_open(f, 3));
    TRY_LINE(receive(f, GVMI_WIRE_DROP)); /* the object is open */
    TRY_LINE(done(f, 0));
    gvmi_fault_arm(calls[f->variant], f->variant == 2 ? 1 : 2, false, CUDA_ERROR_UNKNOWN);
    TRY_LINE(send_map(f, 0, 3, 3, 3 * CHUNK, 1, -1));
    if (calls[f->variant] == gvmi_call_cuMemImportFromShareableHandle) {
        TRY_LINE(mapped(f, GVM_E_FORMAT));
    } else {
        TRY_LINE(unmapped(f));
        TRY_LINE(mapped(f, GVM_E_DRIVER));
    }
    EXPECT(gvmi_fault_struck());
    permit(f, 1, GVMI_PERMIT_READ);
    return serve_close_and_end(f);
}

static int meet_driver_failures(void *arg)
{
    (void)arg;
    setenv("GVMEM_FAULT", "cuMemMap:1000000", 1); /* stacks the decorator */
    for (int i = 0; i < 3; i++) {
        gvm_client *keeper;
        gvm_object *object;
        gvm_lease lease;
        fake f;

        TRY_LINE(start_fake(&f, script_driver_fails, i));
        EXPECT(gvm_client_adopt(f.client_socket, &keeper) == GVM_OK);
        TRY_LINE(open_and_lease(&f, keeper, 0, &object));
        EXPECT(gvm_object_drop(keeper, "/other") == GVM_OK);
        while (atomic_load(&f.permits[SLOT].word) == 0)
            sched_yield();
        EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) != GVM_OK);
        EXPECT(object->buffer->device_bytes == 0);
        TRY_LINE(close_all(&f, keeper, object));
        EXPECT(gvmi_check_violations() == 0);
    }
    return 0;
}

static void map_that_the_driver_fails_leaves_nothing_mapped(void **state)
{
    RUN(meet_driver_failures);
}

static int script_no_fds(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(receive(f, GVMI_WIRE_DROP)); /* the test has used up its fds */
    TRY_LINE(send_map(f, 1, 2, 1, 3 * CHUNK, 2, -1));
    TRY_LINE(done(f, 0));
    TRY_LINE(mapped(f, GVM_E_LIMIT));
    TRY_LINE(receive(f, GVMI_WIRE_GROW));
    TRY_LINE(done(f, 0)); /* nothing is sent to be mapped until the object is asked for again */
    return serve_close_and_end(f);
}

static int run_out_of_fds(void *arg)
{
    struct rlimit before, none;
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_no_fds, &keeper, &object));
    getrlimit(RLIMIT_NOFILE, &before);
    none = before, none.rlim_cur = 4;
    EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    EXPECT(gvm_object_drop(keeper, "/other") == GVM_OK); /* so the connection is good */
    EXPECT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    permit(&f, 2, GVMI_PERMIT_READ);
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                      GVM_E_LIMIT, "ulimit"));
    while (!gvmi_client_may_retry(object))
        sched_yield();
    EXPECT(gvm_object_grow(object, 3 * CHUNK) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void map_without_room_for_fds_fails_its_object_alone(void **state)
{
    SKIP_UNDER_VALGRIND(VALGRIND_FDS);
    RUN(run_out_of_fds);
}

static int script_seal(fake *f)
{
    gvmi_wire_message message;

    TRY_LINE(greet_and_open(f, 2));
    TRY_LINE(receive(f, GVMI_WIRE_SEAL));
    EXPECT(f->in.body.SEAL.timeout_ms == 500);
    gvmi_wire_start(&message, GVMI_WIRE_MAP, 0);
    message.body.MAP = (gvmi_wire_map){
        .slot = SLOT, .generation = 2, .serial = ++f->serial, .bytes = 2 * CHUNK, .sealed = 1};
    {
        const gvmi_wire_message seal = f->in;

        TRY_LINE(send_message(f, &message, NULL, 0));
        TRY_LINE(mapped(f, GVM_OK));
        f->in = seal;
    }
    TRY_LINE(done(f, 0));
    TRY_LINE(receive(f, GVMI_WIRE_DROP)); /* the test has looked whether access was set */
    TRY_LINE(done(f, 0));
    TRY_LINE(move(f, 0, 1, 4, 2 * CHUNK));
    permit(f, 2, GVMI_PERMIT_READ);
    return serve_close_and_end(f);
}

/* Rights of what is mapped stay: a kernel that reads there would fault on a real device. */
static int be_sealed(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    setenv("GVMEM_FAULT", "cuMemSetAccess:1000000", 1); /* stacks the decorator */
    TRY_LINE(connect_and_open(&f, script_seal, &keeper, &object));
    EXPECT(gvm_object_seal(object, -2) == GVM_E_INVALID);
    gvmi_fault_arm(gvmi_call_cuMemSetAccess, 1, true, CUDA_ERROR_UNKNOWN);
    EXPECT(gvm_object_seal(object, 500) == GVM_OK);
    EXPECT(!gvmi_fault_struck());
    gvmi_fault_arm(gvmi_call_cuMemSetAccess, 0, false, CUDA_SUCCESS);
    EXPECT(gvm_object_drop(keeper, "/other") == GVM_OK);
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(access_of(object->address, 0) == CU_MEM_ACCESS_FLAGS_PROT_READ); /* it has moved since */
    EXPECT(access_of(object->address, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_E_SEALED);
    EXPECT(gvm_object_grow(object, 3 * CHUNK) == GVM_E_SEALED);
    EXPECT(gvm_object_set_metadata(object, "a", 1) == GVM_E_SEALED);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK &&
           lease.generation == 2);
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    EXPECT(gvm_buffer_fill(object->buffer, 0, CHUNK, "x", 1) == GVM_E_SEALED);
    EXPECT(object->buffer->access == GVM_ACCESS_READ && byte_of(object, 1) == 2);
    return close_all(&f, keeper, object);
}

static void map_that_seals_leaves_rights_of_what_is_mapped(void **state)
{
    RUN(be_sealed);
}

static int script_read_only(fake *f)
{
    TRY_LINE(greet(f));
    TRY_LINE(serve_open(f, 1, GVM_OPEN_READONLY));
    return serve_close_and_end(f);
}

static int open_read_only(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_read_only, &keeper));
    TRY_LINE(open_and_lease(&f, keeper, GVM_OPEN_READONLY, &object));
    permit(&f, 1, GVMI_PERMIT_READ | GVMI_PERMIT_WRITE);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_E_READONLY);
    EXPECT(gvm_object_grow(object, 2 * CHUNK) == GVM_E_DENIED);
    EXPECT(gvm_object_seal(object, GVM_TRY) == GVM_E_DENIED);
    EXPECT(object->buffer->access == GVM_ACCESS_READ && byte_of(object, 0) == 1);
    return close_all(&f, keeper, object);
}

static void object_opened_read_only_is_mapped_so(void **state)
{
    RUN(open_read_only);
}

/* ---- release on a stream */

static _Atomic int gate; /* 0: closed; 1: the stream is inside; 2: open */

static void wait_at_gate(void *arg)
{
    (void)arg;
    atomic_store(&gate, 1);
    while (atomic_load(&gate) != 2)
        sched_yield();
}

static int submit_gate(const fake *f, CUstream *stream)
{
    EXPECT(gvmi_device_enter(f->device) == GVM_OK);
    EXPECT(gvmi_cu->cuStreamCreate(stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    atomic_store(&gate, 0);
    EXPECT(gvmi_cu->cuLaunchHostFunc(*stream, wait_at_gate, NULL) == CUDA_SUCCESS);
    while (atomic_load(&gate) != 1)
        sched_yield();
    return 0;
}

static int open_gate(CUstream stream)
{
    atomic_store(&gate, 2);
    EXPECT(gvmi_cu->cuStreamSynchronize(stream) == CUDA_SUCCESS);
    EXPECT(gvmi_cu->cuStreamDestroy(stream) == CUDA_SUCCESS);
    gvmi_device_leave();
    return 0;
}

static int release_behind(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease, copy;
    CUstream stream;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ);
    TRY_LINE(submit_gate(&f, &stream));
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    copy = lease;
    permit(&f, 1, GVMI_PERMIT_REVOKED);
    EXPECT(gvm_object_release_async(object, NULL, stream) == GVM_E_INVALID);
    EXPECT(gvm_object_release_async(object, &lease, stream) == GVM_OK && lease.mode == 0);
    EXPECT(gvm_object_release_async(object, &lease, stream) == GVM_E_INVALID);
    EXPECT(gvmi_lease_readers(word(&f)) == 1 && rings(&f) == 0);
    TRY_LINE(open_gate(stream));
    EXPECT(!gvmi_lease_any(word(&f)) && rings(&f) == 1);
    EXPECT(gvm_object_release(object, &copy) == GVM_E_INVALID);
    permit(&f, 1, GVMI_PERMIT_READ); /* the default stream */
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(gvm_object_release_async(object, &lease, NULL) == GVM_OK);
    EXPECT(gvm_device_synchronize(f.device) == GVM_OK && !gvmi_lease_any(word(&f)));
    return close_all(&f, keeper, object);
}

static void release_on_a_stream_comes_behind_its_work(void **state)
{
    RUN(release_behind);
}

/* The stream itself, and the default one, which waits for it. */
static int release_captured(void *arg)
{
    CUstreamCaptureStatus status;
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    CUstream stream;
    CUgraph graph;
    size_t nodes = 1;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ);
    EXPECT(gvmi_device_enter(f.device) == GVM_OK);
    EXPECT(gvmi_cu->cuStreamCreate(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(gvmi_cu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    EXPECT(fails_with(gvm_object_release_async(object, &lease, stream), GVM_E_INVALID, "captured"));
    EXPECT(fails_with(gvm_object_release_async(object, &lease, NULL), GVM_E_INVALID, "captured"));
    EXPECT(lease.mode == GVM_LEASE_READ && gvmi_lease_readers(word(&f)) == 1);
    EXPECT(gvmi_cu->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT(gvmi_cu->cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    EXPECT(gvmi_cu->cuGraphGetNodes(graph, NULL, &nodes) == CUDA_SUCCESS && nodes == 0);
    EXPECT(gvm_object_release_async(object, &lease, stream) == GVM_OK && lease.mode == 0);
    EXPECT(gvmi_cu->cuStreamSynchronize(stream) == CUDA_SUCCESS && !gvmi_lease_any(word(&f)));
    EXPECT(gvmi_cu->cuGraphDestroy(graph) == CUDA_SUCCESS);
    EXPECT(gvmi_cu->cuStreamDestroy(stream) == CUDA_SUCCESS);
    gvmi_device_leave();
    return close_all(&f, keeper, object);
}

static void release_on_a_captured_stream_is_refused(void **state)
{
    RUN(release_captured);
}

static int close_before_release(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    CUstream stream;
    uint64_t reservations;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    reservations = gvmi_check_held().reservations;
    permit(&f, 1, GVMI_PERMIT_READ);
    TRY_LINE(submit_gate(&f, &stream));
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(gvm_object_release_async(object, &lease, stream) == GVM_OK);
    gvm_object_close(object); /* does not wait; the script sees that the lease has ended */
    atomic_store(&f.leases[SLOT].word, GVMI_LEASE_READER); /* of the slot's next object */
    gvm_client_close(keeper);
    TRY_LINE(open_gate(stream));
    EXPECT(word(&f) == GVMI_LEASE_READER);                      /* not touched by the release */
    EXPECT(gvmi_check_held().reservations == reservations - 1); /* the release may not call the driver */
    return end_fake(&f);
}

static void release_on_a_stream_outlives_its_object(void **state)
{
    RUN(close_before_release);
}

static int release_on_broken_context(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    setenv("GVMEM_FAULT", "cuLaunchHostFunc:1000000", 1); /* stacks the decorator */
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    gvmi_fault_arm(gvmi_call_cuLaunchHostFunc, 1, false, CUDA_ERROR_INVALID_HANDLE);
    EXPECT(gvm_object_release_async(object, &lease, NULL) == GVM_E_DRIVER);
    EXPECT(lease.mode == GVM_LEASE_READ && gvmi_lease_readers(word(&f)) == 1); /* still there */
    gvmi_fault_arm(gvmi_call_cuLaunchHostFunc, 1, false, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(gvm_object_release_async(object, &lease, NULL) == GVM_E_LOST);
    EXPECT(lease.mode == 0 && !gvmi_lease_any(word(&f)));
    permit(&f, 1, GVMI_PERMIT_READ);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    gvmi_fault_arm(gvmi_call_cuLaunchHostFunc, 1, false, CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(gvm_object_release_async(object, &lease, NULL) == GVM_OK); /* waited for */
    EXPECT(lease.mode == 0 && !gvmi_lease_any(word(&f)));
    gvmi_fault_arm(GVMI_CALL_COUNT, 0, false, CUDA_SUCCESS);
    return close_all(&f, keeper, object);
}

static void release_on_a_broken_context_is_done_at_once(void **state)
{
    RUN(release_on_broken_context);
}

/* ---- the other calls */

static int script_two_devices(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(receive(f, GVMI_WIRE_DROP));
    TRY_LINE(done(f, 0));
    TRY_LINE(move(f, 0, 2, 3, 2 * CHUNK)); /* replaces one, brings one */
    permit(f, 1, GVMI_PERMIT_READ);
    return serve_close_and_end(f);
}

static int grant_to_peer(void *arg)
{
    gvm_device *peer;
    gvm_client *keeper;
    gvm_object *object;
    unsigned long long flags = 0;
    fake f;

    (void)arg;
    setenv("GVMEM_SOFTGPU", "devices=2", 1);
    TRY_LINE(connect_and_open(&f, script_two_devices, &keeper, &object));
    EXPECT(gvm_device_open(1, &peer) == GVM_OK);
    EXPECT(gvm_object_grant(object, peer, GVM_ACCESS_READ) == GVM_OK);
    EXPECT(gvm_object_drop(keeper, "/other") == GVM_OK); /* lets the script go on */
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    for (uint32_t i = 0; i < 2; i++) {
        const CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, 1};

        EXPECT(gvmi_cu->cuMemGetAccess(&flags, &where, object->address + i * CHUNK) == CUDA_SUCCESS);
        EXPECT(flags == GVM_ACCESS_READ && byte_of(object, i) == (int)(4 + i));
    }
    gvm_device_close(peer);
    return close_all(&f, keeper, object);
}

static void grant_follows_the_object_through_its_moves(void **state)
{
    RUN(grant_to_peer);
}

/* ---- snapshots */

#define GROWTH 24

/* Two objects, one device, no client. Records are so many bytes longer, or shorter, than those known here; what
 * is behind those is not zero. */
static size_t write_snapshot(char *to, int grow, const gvmi_snapshot_head *over)
{
    const gvmi_snapshot_head head = {
        .magic = GVMI_SNAPSHOT_MAGIC,
        .head_bytes = (uint32_t)sizeof head + (grow > 0 ? (uint32_t)grow : 0),
        .keeper_bytes = (uint32_t)((int)sizeof(gvmi_snapshot_keeper) + grow),
        .device_bytes = (uint32_t)((int)sizeof(gvmi_snapshot_device) + grow),
        .object_bytes = (uint32_t)((int)sizeof(gvmi_snapshot_object) + grow),
        .client_bytes = (uint32_t)((int)sizeof(gvmi_snapshot_client) + grow),
        .user_bytes = (uint32_t)((int)sizeof(gvmi_snapshot_user) + grow),
        .device_count = 1,
        .object_count = 2,
    };
    const gvmi_snapshot_keeper keeper = {.pid = 5, .faults = 6, .objects = 99 /* a lie */};
    gvmi_snapshot_device device = {.ordinal = 3, .driver_total_bytes = 7};
    gvmi_snapshot_object object = {.foreign = 1, .metadata_start[63] = 1};
    char *at = to;

    memset(device.name, 'x', sizeof device.name); /* does not end */
    memset(object.name, 'y', sizeof object.name);
    memcpy(at, &head, sizeof head);
    if (over != NULL)
        memcpy(at, over, sizeof head);
    at += head.head_bytes;
    memcpy(at, &keeper, sizeof keeper);
    at += head.keeper_bytes;
    memcpy(at, &device, sizeof device);
    at += head.device_bytes;
    for (object.id = 1; object.id <= 2; object.id++) {
        memcpy(at, &object, sizeof object);
        at += head.object_bytes;
    }
    return (size_t)(at - to);
}

static const gvmi_snapshot_head good_head = {
    .magic = GVMI_SNAPSHOT_MAGIC,
    .head_bytes = sizeof good_head,
    .keeper_bytes = sizeof(gvmi_snapshot_keeper),
    .device_bytes = sizeof(gvmi_snapshot_device),
    .object_bytes = sizeof(gvmi_snapshot_object),
    .client_bytes = sizeof(gvmi_snapshot_client),
    .user_bytes = sizeof(gvmi_snapshot_user),
    .device_count = 1,
    .object_count = 2,
};

enum { HOSTILE_COUNT = 15 };

/* A head that lies in one way. */
static gvmi_snapshot_head hostile_head(int how)
{
    gvmi_snapshot_head head = good_head;

    switch (how) {
    case 0: head.magic++; break;
    case 1: head.head_bytes = 8; break;
    case 2: head.head_bytes = UINT32_MAX; break;
    case 3: head.keeper_bytes = 0; break;
    case 4: head.object_bytes = UINT32_MAX; break;
    case 5: head.client_bytes = 0; break;
    case 6: head.object_count = 3; break;
    case 7: head.object_count = UINT32_MAX; break;
    case 8: head.device_count = UINT32_MAX, head.device_bytes = GVMI_STRUCT_BYTES_MAX; break;
    case 9: head.client_count = 1; break;
    case 10: head.object_bytes = GVMI_STRUCT_BYTES_MAX; break;
    case 11: head.user_count = 1; break;
    case 12: head.user_bytes = 0; break;
    case 13: head.user_count = UINT32_MAX; break;
    default: head.keeper_bytes += 16; break;
    }
    return head;
}

static int send_snapshot(fake *f, const char *bytes, size_t len, uint64_t value)
{
    gvmi_wire_message message;
    int fd = memfd_create("snapshot", MFD_CLOEXEC);

    TRY_LINE(receive(f, GVMI_WIRE_SNAPSHOT));
    EXPECT(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    message = reply(f, GVMI_WIRE_SNAPSHOT_IS);
    message.body.SNAPSHOT_IS.value = value;
    TRY_LINE(send_message(f, &message, &fd, 1));
    TRY_LINE(receive(f, GVMI_WIRE_SNAPSHOT_READ));
    close(fd);
    return 0;
}

static int script_snapshots(fake *f)
{
    static _Alignas(8) char bytes[1 << 16];
    gvmi_wire_message message;
    size_t len;
    int ends[2];

    TRY_LINE(greet(f));
    for (int grow = -GROWTH; grow <= GROWTH; grow += GROWTH) {
        memset(bytes, 0x5a, sizeof bytes);
        len = write_snapshot(bytes, grow, NULL);
        TRY_LINE(send_snapshot(f, bytes, len, len));
    }
    for (int i = 0; i < HOSTILE_COUNT; i++) {
        const gvmi_snapshot_head head = hostile_head(i);

        memset(bytes, 0, sizeof bytes);
        len = write_snapshot(bytes, 0, &head);
        TRY_LINE(send_snapshot(f, bytes, len, len));
    }
    TRY_LINE(send_snapshot(f, bytes, 40, 8));
    TRY_LINE(send_snapshot(f, bytes, 40, UINT64_MAX));
    TRY_LINE(receive(f, GVMI_WIRE_SNAPSHOT)); /* no file */
    EXPECT(pipe2(ends, O_CLOEXEC) == 0);
    message = reply(f, GVMI_WIRE_SNAPSHOT_IS);
    message.body.SNAPSHOT_IS.value = 4096;
    TRY_LINE(send_message(f, &message, ends, 1));
    TRY_LINE(receive(f, GVMI_WIRE_SNAPSHOT_READ));
    close(ends[0]), close(ends[1]);
    TRY_LINE(send_snapshot(f, bytes, 40, 4096)); /* the file is shorter than said: it was taken back */
    TRY_LINE(send_snapshot(f, bytes, 0, 4096));
    return serve_end(f);
}

static int check_records(const gvm_snapshot *s, bool shorter)
{
    gvm_keeper_info keeper = {.struct_size = sizeof keeper};
    gvm_keeper_device_info device = {.struct_size = sizeof device};
    gvm_object_info object = {.struct_size = sizeof object};
    gvm_client_info client = {.struct_size = sizeof client, .id = 99};
    struct {
        gvm_object_info known;
        uint64_t later;
    } larger = {.known = {.struct_size = sizeof larger}, .later = 99};

    EXPECT(gvm_snapshot_get_keeper(s, &keeper) == GVM_OK && keeper.struct_size == sizeof keeper);
    EXPECT(keeper.pid == 5 && keeper.faults == (shorter ? 0 : 6));
    EXPECT(keeper.objects == 2 && keeper.devices == 1 && keeper.clients == 0);
    EXPECT(gvm_snapshot_get_device(s, 0, &device) == GVM_OK && strlen(device.name) == 95);
    EXPECT(device.ordinal == 3 && device.driver_total_bytes == (shorter ? 0 : 7));
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(gvm_snapshot_get_object(s, i, &object) == GVM_OK && object.id == i + 1);
        EXPECT(object.foreign == 1 && object.metadata_start[63] == !shorter && object.address == NULL);
        EXPECT(strlen(object.name) == GVM_NAME_BYTES_MAX - 1);
    }
    EXPECT(gvm_snapshot_get_device(s, 1, &device) == GVM_E_INVALID);
    EXPECT(fails_with(gvm_snapshot_get_object(s, 2, &object), GVM_E_INVALID, "has 2"));
    EXPECT(gvm_snapshot_get_object(s, UINT32_MAX, &object) == GVM_E_INVALID && object.id == 2);
    EXPECT(gvm_snapshot_get_client(s, 0, &client) == GVM_E_INVALID && client.id == 99);
    EXPECT(gvm_snapshot_get_object(s, 0, NULL) == GVM_E_INVALID);
    object.struct_size -= 8; /* of no version that there was */
    EXPECT(gvm_snapshot_get_object(s, 0, &object) == GVM_E_INVALID && object.id == 2);
    EXPECT(gvm_snapshot_get_object(s, 0, &larger.known) == GVM_OK && larger.known.id == 1);
    EXPECT(larger.known.struct_size == sizeof larger && larger.later == 0);
    return 0;
}

static int take_snapshots(void *arg)
{
    gvm_keeper_info info = {.struct_size = sizeof info};
    gvm_snapshot *snapshot = NULL;
    gvm_client *keeper;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_snapshots, &keeper));
    EXPECT(gvm_client_get_snapshot(keeper, NULL) == GVM_E_INVALID);
    for (int grow = -GROWTH; grow <= GROWTH; grow += GROWTH) { /* of an older keeper, and of a newer one */
        EXPECT(gvm_client_get_snapshot(keeper, &snapshot) == GVM_OK);
        TRY_LINE(check_records(snapshot, grow < 0));
        gvm_snapshot_destroy(snapshot);
        EXPECT(gvm_snapshot_get_keeper(snapshot, &info) == GVM_E_FOREIGN);
        gvm_snapshot_destroy(snapshot);
    }
    EXPECT(gvm_snapshot_get_keeper(NULL, &info) == GVM_E_FOREIGN);
    snapshot = NULL;
    for (int i = 0; i < HOSTILE_COUNT + 3; i++)
        EXPECT(fails_with(gvm_client_get_snapshot(keeper, &snapshot), GVM_E_FORMAT, "snapshot"));
    for (int i = 0; i < 2; i++)
        EXPECT(fails_with(gvm_client_get_snapshot(keeper, &snapshot), GVM_E_KEEPER,
                          "took its snapshot back"));
    EXPECT(snapshot == NULL);
    gvm_snapshot_destroy(NULL);
    return close_all(&f, keeper, NULL);
}

static void snapshot_that_lies_is_refused(void **state)
{
    RUN(take_snapshots);
}

/* ---- many threads */

#define THREADS 4
#define ROUNDS 300

typedef struct crowd {
    gvm_object *object;
    _Atomic int failures;
} crowd;

static void *lease_often(void *arg)
{
    crowd *c = arg;

    for (int i = 0; i < ROUNDS; i++) {
        gvm_lease lease;

        if (gvm_object_acquire(c->object, i % 3 == 0 ? GVM_LEASE_WRITE : GVM_LEASE_READ, NULL,
                               GVM_FOREVER, &lease) != GVM_OK ||
            gvm_object_release(c->object, &lease) != GVM_OK)
            atomic_fetch_add(&c->failures, 1);
    }
    return NULL;
}

/* Grants whatever is asked for, one at a time, and opens and withdraws the permits in between. */
static int script_crowd(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    for (uint32_t i = 0;; i++) {
        uint64_t others;

        permit(f, 1, i % 2 == 0 ? GVMI_PERMIT_READ | GVMI_PERMIT_WRITE : GVMI_PERMIT_REVOKED);
        TRY_LINE(receive_any(f));
        if (f->in.head.type == GVMI_WIRE_CLOSE)
            break;
        EXPECT(f->in.head.type == GVMI_WIRE_ACQUIRE);
        {
            const uint32_t mode = f->in.body.ACQUIRE.mode;
            const gvmi_wire_message asked = f->in;

            permit(f, 1, GVMI_PERMIT_REVOKED);
            do { /* what a grant of this mode waits for; transient attempts come and go */
                others = word(f);
            } while (mode == GVM_LEASE_WRITE ? gvmi_lease_any(others)
                                             : gvmi_lease_writers(others) != 0);
            TRY_LINE(granted(f, SLOT));
            do { /* others ask meanwhile: answered as well, but later */
                TRY_LINE(receive_any(f));
                if (f->in.head.type == GVMI_WIRE_ACQUIRE)
                    TRY_LINE(failed(f, GVM_E_TIMEOUT, "later"));
            } while (f->in.head.type != GVMI_WIRE_TAKEN);
            f->in = asked;
        }
    }
    EXPECT(!gvmi_lease_any(word(f)));
    TRY_LINE(done(f, 0));
    return serve_end(f);
}

static int be_a_crowd(void *arg)
{
    crowd c = {0};
    gvm_client *keeper;
    pthread_t threads[THREADS];
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_crowd, &keeper, &c.object));
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, lease_often, &c) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    EXPECT(atomic_load(&c.failures) < THREADS * ROUNDS); /* those told "later" */
    EXPECT(!gvmi_lease_any(word(&f)));
    return close_all(&f, keeper, c.object);
}

static void leases_of_many_threads_all_come_back(void **state)
{
    RUN(be_a_crowd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_replaces_chunks_in_place),
        cmocka_unit_test(burst_of_maps_is_unmapped_ahead),
        cmocka_unit_test(lease_of_a_newer_generation_waits_for_its_maps),
        cmocka_unit_test(map_that_fails_vacates_when_leases_have_ended),
        cmocka_unit_test(map_that_fails_leaves_nothing_mapped),
        cmocka_unit_test(map_that_the_driver_fails_leaves_nothing_mapped),
        cmocka_unit_test(map_without_room_for_fds_fails_its_object_alone),
        cmocka_unit_test(map_that_seals_leaves_rights_of_what_is_mapped),
        cmocka_unit_test(object_opened_read_only_is_mapped_so),
        cmocka_unit_test(release_on_a_stream_comes_behind_its_work),
        cmocka_unit_test(release_on_a_captured_stream_is_refused),
        cmocka_unit_test(release_on_a_stream_outlives_its_object),
        cmocka_unit_test(release_on_a_broken_context_is_done_at_once),
        cmocka_unit_test(grant_follows_the_object_through_its_moves),
        cmocka_unit_test(snapshot_that_lies_is_refused),
        cmocka_unit_test(leases_of_many_threads_all_come_back),
    };
    gvmi_client_slice_bytes = CHUNK;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
