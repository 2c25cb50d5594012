/* keeper/client: a keeper that goes, cuts the process off or talks nonsense; see keeper_script.h. */
#include "tests/unit/keeper_script.h"

/* ---- a keeper that goes */

static int script_cut(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    EXPECT(shutdown(f->socket, SHUT_RDWR) == 0);
    return 0;
}

static int lose_keeper(void *arg)
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_snapshot *snapshot;
    gvm_client *keeper;
    gvm_object *object, *other;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_cut, &keeper, &object));
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                      GVM_E_KEEPER, "closed"));
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                      GVM_E_KEEPER, "closed"));
    EXPECT(gvm_object_open(keeper, "/data", 0, &other) == GVM_E_KEEPER);
    EXPECT(gvm_object_create(keeper, NULL, CHUNK, NULL, &other) == GVM_E_KEEPER);
    EXPECT(gvm_object_grow(object, CHUNK) == GVM_E_KEEPER);
    EXPECT(gvm_object_get_info(object, &info) == GVM_E_KEEPER);
    EXPECT(gvm_client_get_snapshot(keeper, &snapshot) == GVM_E_KEEPER);
    EXPECT(gvm_client_trim(keeper, 0, 0, NULL) == GVM_E_KEEPER);
    EXPECT(byte_of(object, 0) == 1); /* what is mapped stays */
    permit(&f, 1, GVMI_PERMIT_READ); /* and so does what was permitted */
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    permit(&f, 1, GVMI_PERMIT_GONE | GVMI_PERMIT_REVOKED);
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                      GVM_E_KEEPER, "cut"));
    return close_all(&f, keeper, object);
}

static void keeper_that_goes_ends_every_slow_call(void **state)
{
    RUN(lose_keeper);
}

static gvm_client *to_sever;

static _Atomic bool looked; /* by the script, at the socket */

/* Answers nothing more; the other thread waits for it. */
static int script_silent(fake *f)
{
    struct pollfd entry = {.fd = f->socket, .events = POLLIN};
    char byte;

    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    gvm_client_abort(to_sever);
    TRY_LINE(await_deaf(f));
    EXPECT(poll(&entry, 1, 0) == 0); /* no end, as the object is mapped still */
    atomic_store(&looked, true);
    EXPECT(poll(&entry, 1, TIMEOUT_MS) == 1);
    while (recv(f->socket, &byte, 1, 0) > 0) /* CLOSE, perhaps */
        ;
    return 0;
}

static int sever_connection(void *arg)
{
    gvm_object *object, *other;
    gvm_lease lease;
    fake f;

    (void)arg;
    gvm_client_abort(NULL);
    TRY_LINE(connect_and_open(&f, script_silent, &to_sever, &object));
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                      GVM_E_KEEPER, "lost"));
    EXPECT(gvm_object_open(to_sever, "/data", 0, &other) == GVM_E_KEEPER);
    EXPECT(gvm_object_grow(object, CHUNK) == GVM_E_KEEPER);
    gvm_client_abort(to_sever);
    while (!atomic_load(&looked))
        sched_yield();
    TRY_LINE(close_all(&f, to_sever, object)); /* without an answer to CLOSE */
    gvm_client_abort(to_sever);
    return 0;
}

static void severed_connection_waits_for_no_answer(void **state)
{
    RUN(sever_connection);
}

/* ---- a keeper that cuts the process off */

#define REASON "it kept a lease for 5000 ms after others had asked for it"

static int send_cut_off_reason(fake *f)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_FAILED, 0);
    message.body.FAILED.status = GVM_E_KEEPER;
    snprintf(message.body.FAILED.text, sizeof message.body.FAILED.text, "%s", REASON);
    return send_message(f, &message, NULL, 0);
}

/* Cuts off as a keeper does: the permits first, then the reason, then the socket. */
static int cut_off(fake *f)
{
    permit(f, 1, GVMI_PERMIT_GONE | GVMI_PERMIT_REVOKED);
    TRY_LINE(send_cut_off_reason(f));
    EXPECT(shutdown(f->socket, SHUT_RDWR) == 0);
    return 0;
}

/* The test takes a lease of each kind, and sends DROP. */
static int script_cut_off_leases(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    permit(f, 1, GVMI_PERMIT_READ | GVMI_PERMIT_WRITE);
    TRY_LINE(receive(f, GVMI_WIRE_DROP));
    return cut_off(f);
}

static int release_when_gone(void *arg)
{
    const gvm_lease_mode *mode = arg;
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    TRY_LINE(connect_and_open(&f, script_cut_off_leases, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(gvm_object_acquire(object, *mode, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(fails_with(gvm_object_drop(keeper, "/data"), GVM_E_KEEPER, REASON));
    EXPECT(fails_with(gvm_object_release(object, &lease), GVM_E_KEEPER, REASON));
    EXPECT(fails_with(GVM_E_KEEPER, GVM_E_KEEPER,
                      *mode == GVM_LEASE_WRITE ? "written under this lease may be lost"
                                               : "read under this lease may be out of date"));
    EXPECT(lease.mode == 0 && !gvmi_lease_any(word(&f)));
    EXPECT(gvm_object_release(object, &lease) == GVM_E_INVALID);
    EXPECT(fails_with(gvm_object_acquire(object, *mode, NULL, GVM_FOREVER, &lease), GVM_E_KEEPER,
                      REASON));
    EXPECT(!gvmi_lease_any(word(&f)));
    EXPECT(fails_with(gvm_object_get_info(object, &info), GVM_E_KEEPER, REASON));
    EXPECT(fails_with(gvm_object_grow(object, CHUNK), GVM_E_KEEPER, REASON));
    EXPECT(fails_with(gvm_object_seal(object, GVM_TRY), GVM_E_KEEPER, REASON));
    EXPECT(fails_with(gvm_object_grant(object, f.device, GVM_ACCESS_READ), GVM_E_KEEPER, REASON));
    return close_all(&f, keeper, object);
}

static void release_after_a_cut_off_tells_so(void **state)
{
    static gvm_lease_mode modes[] = {GVM_LEASE_READ, GVM_LEASE_WRITE};

    (void)state;
    setenv("GVMEM_DRIVER", "soft", 1);
    setenv("GVMEM_CHECK", "1", 1);
    for (int i = 0; i < 2; i++)
        assert_child_succeeds(release_when_gone, &modes[i]);
}

static int release_behind_when_gone(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_cut_off_leases, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(gvm_object_drop(keeper, "/data") == GVM_E_KEEPER);
    EXPECT(fails_with(gvm_object_release_async(object, &lease, NULL), GVM_E_KEEPER, REASON));
    EXPECT(lease.mode == 0);
    EXPECT(gvm_device_synchronize(f.device) == GVM_OK && !gvmi_lease_any(word(&f)));
    return close_all(&f, keeper, object);
}

static void release_on_a_stream_after_a_cut_off_tells_so(void **state)
{
    RUN(release_behind_when_gone);
}

static _Atomic bool leased; /* by the test */

/* The permit is withdrawn, but nothing comes over the socket until the test has released. */
static int script_cut_off_late(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    permit(f, 1, GVMI_PERMIT_WRITE);
    while (!atomic_exchange(&leased, false))
        sched_yield();
    permit(f, 1, GVMI_PERMIT_GONE | GVMI_PERMIT_REVOKED);
    while (gvmi_lease_any(word(f)))
        sched_yield();
    if (f->variant == 0)
        return cut_off(f);
    while ((atomic_load(&f->permits[SLOT].word) & GVMI_PERMIT_GONE) != 0)
        sched_yield();
    return cut_off(f);
}

static int release_before_the_reason(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) {
        gvm_client *keeper;
        gvm_object *object;
        gvm_lease lease;
        fake f;

        TRY_LINE(start_fake(&f, script_cut_off_late, i));
        EXPECT(gvm_client_adopt(f.client_socket, &keeper) == GVM_OK);
        TRY_LINE(open_and_lease(&f, keeper, 0, &object));
        while (atomic_load(&f.permits[SLOT].word) == 0)
            sched_yield();
        EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_OK);
        atomic_store(&leased, true);
        while ((atomic_load(&f.permits[SLOT].word) & GVMI_PERMIT_GONE) == 0)
            sched_yield();
        /* The second time the reason does not come within GVMI_CLIENT_REASON_MS. */
        EXPECT(fails_with(gvm_object_release(object, &lease), GVM_E_KEEPER,
                          i == 0 ? REASON : "cut this process off"));
        permit(&f, 1, 0);
        TRY_LINE(close_all(&f, keeper, object));
    }
    return 0;
}

static void release_waits_a_while_for_the_reason_of_a_cut_off(void **state)
{
    RUN(release_before_the_reason);
}

/* As a process that was stopped finds it: MAPs that it answers in vain, then the reason. */
static int script_cut_off_behind_maps(fake *f)
{
    TRY_LINE(greet_and_open(f, 2));
    TRY_LINE(receive(f, GVMI_WIRE_DROP)); /* the test stops the mapper from here on */
    TRY_LINE(done(f, 0));
    for (uint32_t i = 0; i < 3; i++)
        TRY_LINE(send_map(f, 0, 2, i % 2 == 0 ? 2 : 0, 2 * CHUNK, 1, -1));
    TRY_LINE(send_cut_off_reason(f));
    close(f->socket);
    permit(f, 1, GVMI_PERMIT_GONE | GVMI_PERMIT_REVOKED);
    return 0;
}

static int be_cut_off_behind_maps(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_cut_off_behind_maps, &keeper, &object));
    pthread_mutex_lock(&object->buffer->lock.mutex); /* not by its rank: the call takes others */
    EXPECT(gvm_object_drop(keeper, "/other") == GVM_OK);
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    pthread_mutex_unlock(&object->buffer->lock.mutex);
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                      GVM_E_KEEPER, REASON));
    return close_all(&f, keeper, object);
}

static void reason_of_a_cut_off_is_found_behind_maps(void **state)
{
    RUN(be_cut_off_behind_maps);
}

/* ---- what is no message, or none that belongs here */

enum {
    NONSENSE_BYTES,
    NONSENSE_WELCOME,
    NONSENSE_NUMBER,
    NONSENSE_TYPE,
    NONSENSE_GRANT,
    NONSENSE_SLOT,
    NONSENSE_SERIAL,
    NONSENSE_INDEX,
    NONSENSE_SIZE,
    NONSENSE_OPENED,
    NONSENSE_COUNT
};

static int send_nonsense(fake *f)
{
    gvmi_wire_message message = reply(f, GVMI_WIRE_DONE);

    switch (f->variant) {
    case NONSENSE_BYTES:
        EXPECT(write(f->socket, "GET / HTTP/1.0\r\nHost: x\r\n\r\n", 28) == 28);
        return 0;
    case NONSENSE_WELCOME: return welcome(f);
    case NONSENSE_NUMBER: message.head.request += 5; return send_message(f, &message, NULL, 0);
    case NONSENSE_TYPE: return send_message(f, &message, NULL, 0);
    case NONSENSE_GRANT: return granted(f, SLOT + 1);
    case NONSENSE_SLOT:
        gvmi_wire_start(&message, GVMI_WIRE_MAP, 0);
        message.body.MAP.slot = SLOT + 1;
        message.body.MAP.serial = 100;
        return send_message(f, &message, NULL, 0);
    case NONSENSE_SERIAL: f->serial = 0; return send_map(f, 0, 1, 2, CHUNK, 1, -1);
    case NONSENSE_INDEX: return send_map(f, OBJECT_CHUNKS - 1, 2, 2, CHUNK, 1, -1);
    case NONSENSE_SIZE: return send_map(f, 0, 1, 2, OBJECT_CHUNKS * CHUNK + 1, 1, -1);
    default: return send_opened(f, CHUNK, 0);
    }
}

static int script_nonsense(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(receive(f, f->variant == NONSENSE_OPENED ? GVMI_WIRE_OPEN : GVMI_WIRE_ACQUIRE));
    TRY_LINE(send_nonsense(f));
    return await_deaf(f); /* without an answer */
}

static int hear_nonsense(void *arg)
{
    (void)arg;
    for (int i = 0; i < NONSENSE_COUNT; i++) {
        gvm_object *object, *other = NULL;
        gvm_client *keeper;
        gvm_lease lease;
        fake f;

        TRY_LINE(start_fake(&f, script_nonsense, i));
        EXPECT(gvm_client_adopt(f.client_socket, &keeper) == GVM_OK);
        TRY_LINE(open_and_lease(&f, keeper, 0, &object));
        if (i == NONSENSE_OPENED)
            EXPECT(fails_with(gvm_object_open(keeper, "/data", 0, &other), GVM_E_KEEPER, "taken"));
        else
            EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                              GVM_E_KEEPER, "lost"));
        EXPECT(other == NULL && byte_of(object, 0) == 1);
        TRY_LINE(close_all(&f, keeper, object));
    }
    return 0;
}

static void nonsense_loses_the_connection(void **state)
{
    RUN(hear_nonsense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeper_that_goes_ends_every_slow_call),
        cmocka_unit_test(severed_connection_waits_for_no_answer),
        cmocka_unit_test(release_after_a_cut_off_tells_so),
        cmocka_unit_test(release_on_a_stream_after_a_cut_off_tells_so),
        cmocka_unit_test(release_waits_a_while_for_the_reason_of_a_cut_off),
        cmocka_unit_test(reason_of_a_cut_off_is_found_behind_maps),
        cmocka_unit_test(nonsense_loses_the_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
