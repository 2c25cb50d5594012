/* keeper/client: nothing is mapped before it is needed, and what was evicted is unmapped; see keeper_script.h. */
#include "tests/unit/keeper_script.h"

#include "base/address.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"

/* ---- before the first lease */

/* The keeper grants without waiting for MAPPED. */
static int script_first_lease(fake *f)
{
    gvmi_wire_message acquire;

    TRY_LINE(greet(f));
    TRY_LINE(serve_bare_open(f, 3, 0));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    acquire = f->in;
    for (uint32_t i = 0; i < 3; i++)
        EXPECT(access_of(f->address, i) == 0);
    TRY_LINE(send_map(f, 0, 2, 0, 3 * CHUNK, 1, -1));
    TRY_LINE(send_map(f, 2, 1, 2, 3 * CHUNK, 1, -1));
    f->in = acquire;
    TRY_LINE(granted(f, SLOT));
    for (f->serial = 1; f->serial <= 2; f->serial++)
        TRY_LINE(mapped(f, GVM_OK));
    TRY_LINE(receive(f, GVMI_WIRE_TAKEN));
    return serve_close_and_end(f);
}

static int lease_first(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_first_lease, &keeper));
    EXPECT(gvm_object_open(keeper, "/data", 0, &object) == GVM_OK);
    EXPECT(object->buffer->device_bytes == 0 && byte_of(object, 0) == -2);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(lease.size_bytes == 3 * CHUNK && lease.generation == 1);
    for (uint32_t i = 0; i < 3; i++)
        EXPECT(access_of(object->address, i) != 0 && byte_of(object, i) == (int)i + 1);
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void object_opened_has_nothing_mapped_and_its_first_lease_all(void **state)
{
    RUN(lease_first);
}

/* The MAP fails as it comes, or when its chunks are mapped. */
static int script_first_lease_fails(fake *f)
{
    const gvm_status status = f->variant == 0 ? GVM_E_FORMAT : GVM_E_DRIVER;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    gvmi_wire_message acquire;

    TRY_LINE(greet(f));
    TRY_LINE(serve_bare_open(f, 2, 0));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    acquire = f->in;
    if (f->variant != 0)
        gvmi_fault_arm(gvmi_call_cuMemMap, 2, false, CUDA_ERROR_UNKNOWN);
    TRY_LINE(send_map(f, 0, 2, 0, 2 * CHUNK, 1, f->variant == 0 ? null : -1));
    f->in = acquire;
    TRY_LINE(granted(f, SLOT));
    TRY_LINE(mapped(f, status));
    TRY_LINE(receive(f, GVMI_WIRE_TAKEN));
    close(null);
    TRY_LINE(serve_retry(f, 2, 1));
    return serve_close_and_end(f);
}

static int fail_first_lease(void *arg)
{
    (void)arg;
    setenv("GVMEM_FAULT", "cuMemMap:1000000", 1); /* stacks the decorator */
    for (int i = 0; i < 2; i++) {
        const gvm_status status = i == 0 ? GVM_E_FORMAT : GVM_E_DRIVER;
        gvm_client *keeper;
        gvm_object *object;
        gvm_lease lease = {.mode = 99};
        fake f;

        TRY_LINE(start_fake(&f, script_first_lease_fails, i));
        EXPECT(gvm_client_adopt(f.client_socket, &keeper) == GVM_OK);
        EXPECT(gvm_object_open(keeper, "/data", 0, &object) == GVM_OK);
        EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == status);
        EXPECT(lease.mode == 99 && !gvmi_lease_any(word(&f)));
        EXPECT(object->buffer->device_bytes == 0 && access_of(object->address, 0) == 0);
        EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
        EXPECT(byte_of(object, 0) == 1 && byte_of(object, 1) == 2);
        EXPECT(gvm_object_release(object, &lease) == GVM_OK);
        TRY_LINE(close_all(&f, keeper, object));
    }
    return 0;
}

static void map_that_fails_before_a_grant_fails_that_acquire_alone(void **state)
{
    RUN(fail_first_lease);
}

static _Atomic bool opened; /* gvm_object_open() has returned */

static int script_kept_mapped(fake *f)
{
    TRY_LINE(greet(f));
    TRY_LINE(serve_bare_open(f, 2, GVM_OPEN_MAPPED));
    EXPECT(nothing_comes(f->socket) && !atomic_load(&opened));
    TRY_LINE(map(f, 0, 1, 0, 2 * CHUNK, 1));
    EXPECT(nothing_comes(f->socket) && !atomic_load(&opened));
    TRY_LINE(map(f, 1, 1, 1, 2 * CHUNK, 1));
    return serve_close_and_end(f);
}

static int keep_mapped(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_kept_mapped, &keeper));
    EXPECT(gvm_object_open(keeper, "/data", GVM_OPEN_MAPPED, &object) == GVM_OK);
    atomic_store(&opened, true);
    for (uint32_t i = 0; i < 2; i++)
        EXPECT(access_of(object->address, i) != 0 && byte_of(object, i) == (int)i + 1);
    return close_all(&f, keeper, object);
}

static void object_kept_mapped_is_open_once_all_is_mapped(void **state)
{
    RUN(keep_mapped);
}

/* ---- evicted chunks */

/* Of chunks some of which are to be absent. */
static int unmap(fake *f, uint32_t first, uint32_t count, const uint32_t *frames, uint64_t bytes)
{
    TRY_LINE(send_map_of(f, first, count, frames, bytes, 1, -1));
    TRY_LINE(unmapped(f));
    return 0;
}

/* Chunk 1 is in memory of which the client has the only handle. */
static int give_memory_away(fake *f)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    static const uint32_t stamp[] = {FRAMES}; /* none of the frames */
    gvm_buffer *buffer;
    gvm_share *share;

    EXPECT(gvm_buffer_create(f->device, CHUNK, &options, &buffer) == GVM_OK);
    EXPECT(gvm_buffer_commit(buffer, 0, CHUNK) == GVM_OK);
    EXPECT(gvm_share_export(buffer, 0, 0, &share) == GVM_OK);
    TRY_LINE(send_map_of(f, 1, 1, stamp, 2 * CHUNK, 1, share->fds[0]));
    TRY_LINE(unmapped(f));
    TRY_LINE(mapped(f, GVM_OK));
    gvm_share_destroy(share);
    gvm_buffer_destroy(buffer);
    return 0;
}

/* All that was evicted is mapped again for the next lease, where it is by then. */
static int script_evicted(fake *f)
{
    static const uint32_t none[] = {NO_FRAME, NO_FRAME};
    uint64_t free_bytes;
    gvmi_wire_message acquire;

    TRY_LINE(greet_and_open(f, 2));
    free_bytes = memory_free_bytes(f->device);
    TRY_LINE(give_memory_away(f));
    EXPECT(memory_free_bytes(f->device) == free_bytes - CHUNK);
    TRY_LINE(unmap(f, 0, 2, none, 2 * CHUNK));
    EXPECT(memory_free_bytes(f->device) == free_bytes);
    EXPECT(access_of(f->address, 0) == 0 && access_of(f->address, 1) == 0);
    TRY_LINE(mapped(f, GVM_OK));
    permit(f, 1, GVMI_PERMIT_REVOKED); /* lets the test go on */
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    acquire = f->in;
    TRY_LINE(map(f, 0, 2, 3, 2 * CHUNK, 1));
    TRY_LINE(grant(f, &acquire));
    return serve_close_and_end(f);
}

static int be_evicted(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    fixture_machine("memory=64MiB"); /* of which no other process takes memory */
    TRY_LINE(connect_and_open(&f, script_evicted, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(object->buffer->device_bytes == 0 && gvmi_buffer_check(object->buffer));
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(lease.address == gvmi_pointer(f.address) && lease.size_bytes == 2 * CHUNK);
    for (uint32_t i = 0; i < 2; i++)
        EXPECT(access_of(f.address, i) != 0 && byte_of(object, i) == (int)(4 + i));
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void chunks_evicted_are_unmapped_and_their_memory_is_given_back(void **state)
{
    RUN(be_evicted);
}

static const gvmi_driver *real;
static gvmi_driver altered;
static _Atomic bool unmap_fails; /* once */

static CUresult unmap_or_fail(CUdeviceptr address, size_t bytes)
{
    return atomic_exchange(&unmap_fails, false) ? CUDA_ERROR_UNKNOWN
                                                : real->cuMemUnmap(address, bytes);
}

/* UNMAPPED is what the keeper frees memory by. */
static int script_not_unmapped(fake *f)
{
    static const uint32_t none[] = {NO_FRAME, NO_FRAME};

    TRY_LINE(greet_and_open(f, 2));
    atomic_store(&unmap_fails, true);
    TRY_LINE(send_map_of(f, 0, 2, none, 2 * CHUNK, 1, -1));
    TRY_LINE(mapped(f, GVM_E_DRIVER)); /* and not UNMAPPED */
    EXPECT(access_of(f->address, 0) == 0);
    permit(f, 1, GVMI_PERMIT_REVOKED); /* lets the test go on */
    TRY_LINE(serve_retry(f, 2, 1));
    return serve_close_and_end(f);
}

static int be_not_unmapped(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(start_fake(&f, script_not_unmapped, 0));
    real = gvmi_cu;
    altered = *real;
    altered.cuMemUnmap = unmap_or_fail;
    gvmi_cu = &altered;
    EXPECT(gvm_client_adopt(f.client_socket, &keeper) == GVM_OK);
    TRY_LINE(open_and_lease(&f, keeper, 0, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(object->buffer->device_bytes == 0);
    while (!gvmi_client_may_retry(object)) /* until then an acquire fails as that MAP did */
        sched_yield();
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void chunks_that_the_driver_does_not_unmap_are_not_said_to_be(void **state)
{
    RUN(be_not_unmapped);
}

/* Absent, moved, absent, new. */
static int script_mixed(fake *f)
{
    static const uint32_t mixed[] = {NO_FRAME, 4, NO_FRAME, 5};

    TRY_LINE(greet_and_open(f, 3));
    TRY_LINE(unmap(f, 0, 4, mixed, 4 * CHUNK));
    TRY_LINE(mapped(f, GVM_OK));
    permit(f, 1, GVMI_PERMIT_REVOKED); /* lets the test go on */
    return serve_close_and_end(f);
}

static int be_mixed(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_mixed, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(object->buffer->device_bytes == 2 * CHUNK);
    for (uint32_t i = 0; i < 4; i++)
        EXPECT((access_of(f.address, i) != 0) == (i % 2 == 1));
    EXPECT(byte_of(object, 1) == 5 && byte_of(object, 3) == 6);
    return close_all(&f, keeper, object);
}

static void map_of_absent_and_present_chunks_has_both(void **state)
{
    RUN(be_mixed);
}

/* The object is open, and nothing was ever mapped. */
static int script_never_mapped(fake *f)
{
    static const uint32_t none[] = {NO_FRAME, NO_FRAME};
    gvmi_wire_message acquire;

    TRY_LINE(greet(f));
    TRY_LINE(serve_bare_open(f, 2, 0));
    for (int again = 0; again < 2; again++) {
        TRY_LINE(unmap(f, 0, 2, none, 2 * CHUNK));
        TRY_LINE(mapped(f, GVM_OK));
    }
    permit(f, 1, GVMI_PERMIT_REVOKED); /* lets the test go on */
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    acquire = f->in;
    TRY_LINE(map(f, 0, 2, 0, 2 * CHUNK, 1));
    TRY_LINE(grant(f, &acquire));
    return serve_close_and_end(f);
}

static int be_never_mapped(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_never_mapped, &keeper));
    EXPECT(gvm_object_open(keeper, "/data", 0, &object) == GVM_OK);
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(object->buffer->device_bytes == 0);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(byte_of(object, 0) == 1 && byte_of(object, 1) == 2);
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void absent_chunk_that_was_never_mapped_does_no_harm(void **state)
{
    RUN(be_never_mapped);
}

/* A chunk that is evicted while the MAP that brings it is pending. */
static int script_overtaken(fake *f)
{
    static const uint32_t none[] = {NO_FRAME};

    TRY_LINE(greet_and_open(f, 2));
    TRY_LINE(receive(f, GVMI_WIRE_DROP)); /* the test stops the mapper from here on */
    TRY_LINE(done(f, 0));
    TRY_LINE(send_map(f, 0, 2, 2, 2 * CHUNK, 1, -1)); /* serial 2 */
    TRY_LINE(send_map_of(f, 1, 1, none, 2 * CHUNK, 1, -1));
    permit(f, 1, GVMI_PERMIT_REVOKED);
    for (f->serial = 2; f->serial <= 3; f->serial++)
        TRY_LINE(unmapped(f));
    for (f->serial = 2; f->serial <= 3; f->serial++)
        TRY_LINE(mapped(f, GVM_OK));
    permit(f, 1, GVMI_PERMIT_REVOKED | GVMI_PERMIT_PARTIAL);
    return serve_close_and_end(f);
}

static int be_overtaken(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_overtaken, &keeper, &object));
    pthread_mutex_lock(&object->buffer->lock.mutex); /* not by its rank: the call takes others */
    EXPECT(gvm_object_drop(keeper, "/other") == GVM_OK);
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    pthread_mutex_unlock(&object->buffer->lock.mutex);
    while ((atomic_load(&f.permits[SLOT].word) & GVMI_PERMIT_PARTIAL) == 0)
        sched_yield();
    EXPECT(object->buffer->device_bytes == CHUNK && byte_of(object, 0) == 3);
    EXPECT(access_of(f.address, 0) != 0 && access_of(f.address, 1) == 0);
    return close_all(&f, keeper, object);
}

static void chunk_evicted_before_it_is_mapped_is_not_mapped(void **state)
{
    RUN(be_overtaken);
}

static gvm_object *_Atomic mapped_object; /* whose mapper the script stops */

/* What a MAP cuts off goes before the chunks of a later one come, though the mapper makes the second step of the first
 * after the first step of the second. In variant 1 the object had shrunk after a MAP had failed. */
static int script_regrown(fake *f)
{
    gvmi_wire_message acquire;
    gvm_object *object;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    TRY_LINE(greet(f));
    TRY_LINE(serve_bare_open(f, 4, 0));
    if (f->variant == 1) {
        TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
        acquire = f->in;
        TRY_LINE(send_map(f, 0, 4, 0, 4 * CHUNK, 1, null));
        f->in = acquire;
        TRY_LINE(granted(f, SLOT));
        TRY_LINE(mapped(f, GVM_E_FORMAT));
        TRY_LINE(receive(f, GVMI_WIRE_TAKEN));
        f->anew = true;
    }
    close(null);
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    acquire = f->in;
    while ((object = atomic_load(&mapped_object)) == NULL)
        sched_yield();
    gvmi_lock(&object->buffer->lock); /* the mapper waits in the first step */
    TRY_LINE(send_map(f, 0, f->variant == 1, 0, 1 * CHUNK, 2, -1));
    TRY_LINE(send_map(f, f->variant == 1, f->variant == 1 ? 2 : 3, f->variant == 1, 3 * CHUNK, 3, -1));
    permit(f, 3, 0);
    f->in = acquire;
    TRY_LINE(granted(f, SLOT));
    gvmi_unlock(&object->buffer->lock);
    do
        TRY_LINE(receive_any(f));
    while (f->in.head.type != GVMI_WIRE_TAKEN);
    return serve_close_and_end(f);
}

static int be_regrown(void *arg)
{
    (void)arg;
    for (int variant = 0; variant < 2; variant++) {
        gvm_client *keeper;
        gvm_object *object;
        gvm_lease lease;
        fake f;

        atomic_store(&mapped_object, NULL);
        TRY_LINE(start_fake(&f, script_regrown, variant));
        EXPECT(gvm_client_adopt(f.client_socket, &keeper) == GVM_OK);
        EXPECT(gvm_object_open(keeper, "/data", 0, &object) == GVM_OK);
        atomic_store(&mapped_object, object);
        if (variant == 1)
            EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) ==
                   GVM_E_FORMAT);
        EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
        EXPECT(lease.size_bytes == 3 * CHUNK);
        for (uint32_t i = 0; i < 3; i++)
            EXPECT(access_of(object->address, i) != 0 && byte_of(object, i) == (int)i + 1);
        EXPECT(gvm_object_release(object, &lease) == GVM_OK);
        TRY_LINE(close_all(&f, keeper, object));
    }
    return 0;
}

static void chunks_behind_a_cut_are_mapped(void **state)
{
    RUN(be_regrown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(object_opened_has_nothing_mapped_and_its_first_lease_all),
        cmocka_unit_test(map_that_fails_before_a_grant_fails_that_acquire_alone),
        cmocka_unit_test(object_kept_mapped_is_open_once_all_is_mapped),
        cmocka_unit_test(chunks_evicted_are_unmapped_and_their_memory_is_given_back),
        cmocka_unit_test(chunks_that_the_driver_does_not_unmap_are_not_said_to_be),
        cmocka_unit_test(map_of_absent_and_present_chunks_has_both),
        cmocka_unit_test(absent_chunk_that_was_never_mapped_does_no_harm),
        cmocka_unit_test(chunk_evicted_before_it_is_mapped_is_not_mapped),
        cmocka_unit_test(chunks_behind_a_cut_are_mapped),
    };

    gvmi_client_slice_bytes = CHUNK;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
