/* keeper/client: deadlines that are kept though the keeper does not answer, what its late answers bring,
 * how connections close, and threads that are cancelled; see keeper_script.h. Where a call is to return
 * by itself, the script waits for what the test does after it. */
#include "tests/unit/keeper_script.h"

#include "base/clock.h"

#define SHORT_WAIT_MS 100
#define SLACK_MS 5000 /* far above a deadline, for machines under load, and far below TIMEOUT_MS */

static _Atomic int step; /* of the test, for the script */

static void await_step(int wanted)
{
    while (atomic_load(&step) < wanted)
        sched_yield();
}

/* Receives requests that it does not answer; they are in out. */
static int leave_open(fake *f, gvmi_wire_type type, gvmi_wire_message *out)
{
    TRY_LINE(receive(f, type));
    *out = f->in;
    return 0;
}

static int answer_late(fake *f, const gvmi_wire_message *request)
{
    f->in = *request;
    return granted(f, SLOT);
}

static int taken_and_given_back(fake *f, uint32_t mode)
{
    TRY_LINE(receive(f, GVMI_WIRE_TAKEN));
    EXPECT(f->in.body.TAKEN.slot == SLOT && f->in.body.TAKEN.mode == mode);
    while (gvmi_lease_any(word(f)))
        sched_yield();
    while (rings(f) == 0)
        sched_yield();
    return 0;
}

/* ---- acquire */

static int script_no_grant(fake *f)
{
    gvmi_wire_message first, second, third;

    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(leave_open(f, GVMI_WIRE_ACQUIRE, &first));
    TRY_LINE(leave_open(f, GVMI_WIRE_ACQUIRE, &second));
    TRY_LINE(leave_open(f, GVMI_WIRE_ACQUIRE, &third));
    EXPECT(first.body.ACQUIRE.timeout_ms == 100 && second.body.ACQUIRE.timeout_ms == 0);
    await_step(1); /* all have returned */
    permit(f, 1, GVMI_PERMIT_REVOKED);
    (void)rings(f);
    TRY_LINE(answer_late(f, &first));
    TRY_LINE(taken_and_given_back(f, GVM_LEASE_READ));
    TRY_LINE(answer_late(f, &second));
    TRY_LINE(taken_and_given_back(f, GVM_LEASE_WRITE));
    f->in = third;
    TRY_LINE(failed(f, GVM_E_TIMEOUT, "others have it"));
    permit(f, 1, 0);
    atomic_store(&step, 2);
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE)); /* the connection is as good as ever */
    TRY_LINE(granted(f, SLOT));
    TRY_LINE(receive(f, GVMI_WIRE_TAKEN));
    return serve_close_and_end(f);
}

static int acquire_unanswered(void *arg)
{
    const int64_t start_ns = gvmi_now_ns();
    gvm_lease lease = {.mode = 99};
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_no_grant, &keeper, &object));
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, SHORT_WAIT_MS, &lease),
                      GVM_E_TIMEOUT, "does not answer"));
    EXPECT(gvmi_now_ns() - start_ns >= 100 * GVMI_NS_PER_MS);
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_TRY, &lease),
                      GVM_E_TIMEOUT, "does not answer"));
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_TRY, &lease) == GVM_E_TIMEOUT);
    EXPECT(gvmi_now_ns() - start_ns < SLACK_MS * GVMI_NS_PER_MS && lease.mode == 99);
    EXPECT(keeper->given_up == 3 && keeper->acquires_waiting == 3);
    atomic_store(&step, 1);
    await_step(2);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(keeper->given_up == 0 && keeper->acquires_waiting == 0);
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void acquire_that_is_not_answered_times_out_and_its_late_grant_is_given_back(void **state)
{
    RUN(acquire_unanswered);
}

/* The MAPs of a generation that the permit speaks of do not come. */
static int script_no_map(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    permit(f, 2, GVMI_PERMIT_READ);
    return serve_close_and_end(f);
}

static int acquire_unmapped(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_no_map, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, SHORT_WAIT_MS, &lease),
                      GVM_E_TIMEOUT, "memory"));
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_TRY, &lease),
                      GVM_E_TIMEOUT, "memory"));
    EXPECT(!gvmi_lease_any(word(&f)));
    return close_all(&f, keeper, object);
}

static void acquire_of_memory_that_is_not_mapped_times_out(void **state)
{
    RUN(acquire_unmapped);
}

static int script_deaf(fake *f)
{
    int few = 4096;

    TRY_LINE(greet_and_open(f, 1));
    (void)setsockopt(f->client_socket, SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
    permit(f, 1, GVMI_PERMIT_REVOKED); /* the test may begin */
    await_step(1);
    for (;;) { /* all that was sent, and CLOSE behind it; answered, so that nothing stays given up */
        TRY_LINE(receive_any(f));
        if (f->in.head.type == GVMI_WIRE_CLOSE)
            break;
        EXPECT(f->in.head.type == GVMI_WIRE_ACQUIRE);
        TRY_LINE(failed(f, GVM_E_TIMEOUT, "others have it"));
    }
    EXPECT(!gvmi_lease_any(word(f)));
    TRY_LINE(done(f, 0));
    atomic_store(&step, 2);
    return serve_end(f);
}

static bool has_left_slot(gvm_client *keeper)
{
    bool left;

    gvmi_lock(&keeper->lock);
    left = keeper->slots[SLOT] == NULL;
    gvmi_unlock(&keeper->lock);
    return left;
}

/* Nothing can be sent: neither ACQUIRE nor CLOSE. The object is unmapped nevertheless; CLOSE is sent
 * when the keeper reads again. */
static int fill_socket(void *arg)
{
    gvm_status status;
    gvm_error error;
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    int64_t start_ns;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_deaf, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) == 0)
        sched_yield();
    do {
        status = gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_TRY, &lease);
        EXPECT(status == GVM_E_TIMEOUT);
        gvm_error_last(&error);
    } while (strstr(error.text, "does not read") == NULL);
    EXPECT(keeper->given_up > 0 && keeper->given_up == keeper->acquires_waiting);
    start_ns = gvmi_now_ns();
    gvm_object_close(object);
    EXPECT(gvmi_now_ns() - start_ns < SLACK_MS * GVMI_NS_PER_MS);
    EXPECT(gvmi_registry_count(GVMI_KIND_BUFFER) == 1); /* the keeper's own */
    EXPECT(!has_left_slot(keeper));
    atomic_store(&step, 1);
    await_step(2);
    while (!has_left_slot(keeper))
        sched_yield();
    return close_all(&f, keeper, NULL);
}

static void close_that_cannot_be_sent_is_sent_later(void **state)
{
    RUN(fill_socket);
}

/* ---- seal */

static int script_seal(fake *f)
{
    static const int32_t wire_ms[] = {-1, 0, 500};
    gvmi_wire_message message;

    TRY_LINE(greet_and_open(f, 1));
    for (int i = 0; i < 3; i++) {
        TRY_LINE(receive(f, GVMI_WIRE_SEAL));
        EXPECT(f->in.body.SEAL.timeout_ms == wire_ms[i]);
        TRY_LINE(failed(f, GVM_E_TIMEOUT, "others have it"));
    }
    for (int i = 0; i < 2; i++) {
        TRY_LINE(leave_open(f, GVMI_WIRE_SEAL, &message));
        await_step(i + 1);
        f->in = message;
        TRY_LINE(done(f, 0)); /* too late */
    }
    return serve_close_and_end(f);
}

static int seal(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_seal, &keeper, &object));
    EXPECT(fails_with(gvm_object_seal(object, -2), GVM_E_INVALID, "GVM_TRY"));
    EXPECT(fails_with(gvm_object_seal(object, GVM_FOREVER), GVM_E_TIMEOUT, "others"));
    EXPECT(fails_with(gvm_object_seal(object, GVM_TRY), GVM_E_TIMEOUT, "others"));
    EXPECT(fails_with(gvm_object_seal(object, 500), GVM_E_TIMEOUT, "others"));
    EXPECT(fails_with(gvm_object_seal(object, GVM_TRY), GVM_E_TIMEOUT, "does not answer"));
    atomic_store(&step, 1);
    EXPECT(fails_with(gvm_object_seal(object, 20), GVM_E_TIMEOUT, "does not answer"));
    atomic_store(&step, 2);
    return close_all(&f, keeper, object);
}

static void seal_waits_as_acquire_does(void **state)
{
    RUN(seal);
}

/* ---- closing */

/* The slot's next opening is asked for before CLOSE is answered. */
static int script_close_late(fake *f)
{
    gvmi_wire_message message;

    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(leave_open(f, GVMI_WIRE_CLOSE, &message));
    EXPECT(!gvmi_lease_any(word(f)));
    await_step(1);
    f->in = message;
    TRY_LINE(done(f, 0));
    f->serial = 0;
    TRY_LINE(serve_open(f, 1, 0));
    TRY_LINE(receive(f, GVMI_WIRE_CLOSE)); /* and this one not at all, nor BYE */
    await_step(2);
    TRY_LINE(receive(f, GVMI_WIRE_BYE));
    return 0;
}

static int close_unanswered(void *arg)
{
    int64_t start_ns;
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_close_late, &keeper, &object));
    start_ns = gvmi_now_ns();
    gvm_object_close(object);
    EXPECT(gvmi_now_ns() - start_ns < SLACK_MS * GVMI_NS_PER_MS);
    EXPECT(!has_left_slot(keeper) && gvmi_registry_count(GVMI_KIND_BUFFER) == 1);
    atomic_store(&step, 1);
    TRY_LINE(open_and_lease(&f, keeper, 0, &object));
    start_ns = gvmi_now_ns();
    gvm_object_close(object);
    gvm_client_close(keeper);
    EXPECT(gvmi_now_ns() - start_ns < SLACK_MS * GVMI_NS_PER_MS);
    atomic_store(&step, 2);
    return end_fake(&f);
}

static void close_that_is_not_answered_keeps_its_slot_until_it_is(void **state)
{
    RUN(close_unanswered);
}

/* The mapper cannot send the answers to MAPs, as nobody reads. */
static int script_stopped(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    await_step(1); /* the socket is full */
    TRY_LINE(send_map(f, 0, 1, 2, CHUNK, 1, -1));
    await_step(2);
    return 0;
}

/* Fills the way to the script with BYEs, which it does not read. */
static int fill(gvm_client *keeper)
{
    gvmi_wire_message bye;
    gvm_status status;

    gvmi_wire_start(&bye, GVMI_WIRE_BYE, 0);
    do
        status = gvmi_client_send(keeper, &bye, gvmi_now_ns());
    while (status == GVM_OK);
    EXPECT(status == GVM_E_TIMEOUT);
    return 0;
}

static bool is_busy(gvm_client *keeper)
{
    bool busy;

    gvmi_lock(&keeper->lock);
    busy = keeper->busy != NULL;
    gvmi_unlock(&keeper->lock);
    return busy;
}

static int close_beside_a_stuck_mapper(void *arg)
{
    int64_t start_ns;
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_stopped, &keeper, &object));
    TRY_LINE(fill(keeper));
    atomic_store(&step, 1);
    while (!is_busy(keeper))
        sched_yield();
    start_ns = gvmi_now_ns();
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_TRY, &lease) == GVM_E_TIMEOUT);
    gvm_object_close(object);
    gvm_client_close(keeper);
    EXPECT(gvmi_now_ns() - start_ns < SLACK_MS * GVMI_NS_PER_MS);
    atomic_store(&step, 2);
    return end_fake(&f); /* all buffers are gone */
}

static void close_beside_a_mapper_that_cannot_send_returns(void **state)
{
    RUN(close_beside_a_stuck_mapper);
}

static int script_open_and_end(fake *f)
{
    TRY_LINE(greet_and_open(f, 2));
    permit(f, 1, GVMI_PERMIT_READ); /* from here on the test sends */
    TRY_LINE(receive(f, GVMI_WIRE_SET_MODE));
    TRY_LINE(done(f, 0));
    return serve_close_and_end(f);
}

static void set_ending(gvm_client *keeper, bool ending, gvm_object *object)
{
    gvmi_lock(&keeper->lock);
    keeper->ending = ending;
    keeper->slots[SLOT] = object;
    gvmi_unlock(&keeper->lock);
}

/* The slot is left, as of a keeper that did not answer an earlier CLOSE in time, and BYE is not sent yet. */
static int map_before_bye(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_open_and_end, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) != gvmi_permit(1, GVMI_PERMIT_READ))
        sched_yield();
    set_ending(keeper, true, NULL);
    TRY_LINE(send_map(&f, 0, 1, 2, 2 * CHUNK, 1, -1));
    EXPECT(gvm_object_set_mode(object, 0600) == GVM_OK); /* its reply comes behind the MAP */
    set_ending(keeper, false, object);
    gvm_client_close(keeper); /* CLOSE for what is open, and BYE */
    return end_fake(&f);
}

static void map_that_comes_before_bye_is_ignored(void **state)
{
    RUN(map_before_bye);
}

/* ---- cancellation */

static int script_cancel(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    await_step(1); /* the thread is cancelled */
    TRY_LINE(granted(f, SLOT));
    TRY_LINE(receive(f, GVMI_WIRE_TAKEN));
    return serve_close_and_end(f);
}

static int script_cancel_seal(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(receive(f, GVMI_WIRE_SEAL));
    atomic_store(&step, 1);
    await_step(2); /* the thread is cancelled */
    TRY_LINE(done(f, 0));
    return serve_close_and_end(f);
}

static gvm_status cancelled_status = GVM_E_INVALID;

static void *seal_and_be_cancelled(void *arg)
{
    cancelled_status = gvm_object_seal(arg, GVM_FOREVER);
    pthread_testcancel();
    cancelled_status = GVM_E_INVALID;
    return NULL;
}

static int cancel_seal(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    pthread_t thread;
    void *result;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_cancel_seal, &keeper, &object));
    EXPECT(pthread_create(&thread, NULL, seal_and_be_cancelled, object) == 0);
    await_step(1);
    EXPECT(pthread_cancel(thread) == 0);
    atomic_store(&step, 2);
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    EXPECT(cancelled_status == GVM_OK);
    return close_all(&f, keeper, object);
}

static void cancellation_in_a_seal_is_put_off_until_the_call_returns(void **state)
{
    RUN(cancel_seal);
}

/* Its frame has no variable that others point to: AddressSanitizer does not see that a cancellation ends it. */
static void *acquire_and_be_cancelled(void *arg)
{
    static gvm_lease lease;

    cancelled_status = gvm_object_acquire(arg, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease);
    pthread_testcancel();
    cancelled_status = GVM_E_INVALID;
    return NULL;
}

static int cancel(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    pthread_t thread;
    bool waits = false;
    void *result;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_cancel, &keeper, &object));
    EXPECT(pthread_create(&thread, NULL, acquire_and_be_cancelled, object) == 0);
    for (; !waits; sched_yield()) {
        gvmi_lock(&keeper->lock);
        waits = keeper->acquires_waiting == 1;
        gvmi_unlock(&keeper->lock);
    }
    EXPECT(pthread_cancel(thread) == 0);
    atomic_store(&step, 1);
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    EXPECT(cancelled_status == GVM_OK && gvmi_lease_readers(word(&f)) == 1);
    return close_all(&f, keeper, object);
}

static void cancellation_in_a_wait_is_put_off_until_the_call_returns(void **state)
{
    RUN(cancel);
}

/* ---- close beside a grant */

static int script_late_grant(fake *f)
{
    gvmi_wire_message acquire;

    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(leave_open(f, GVMI_WIRE_ACQUIRE, &acquire));
    TRY_LINE(grant(f, &acquire));
    TRY_LINE(leave_open(f, GVMI_WIRE_ACQUIRE, &acquire));
    await_step(1);
    TRY_LINE(grant(f, &acquire));
    return serve_close_and_end(f);
}

static void let_send(gvm_client *keeper, bool may)
{
    gvmi_lock(&keeper->send_lock);
    keeper->sending = !may;
    pthread_cond_broadcast(&keeper->sent);
    gvmi_unlock(&keeper->send_lock);
}

/* As a collection has the object: its lease stays. The other one was given up, and is granted while the program closes the object. */
static int close_beside_a_grant(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_late_grant, &keeper, &object));
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    gvmi_client_hold_object(object);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, SHORT_WAIT_MS, &lease) == GVM_E_TIMEOUT);
    let_send(keeper, false);
    atomic_store(&step, 1);
    while (gvmi_lease_readers(word(&f)) != 2)
        sched_yield();
    gvm_object_close(object);
    let_send(keeper, true);
    while (is_busy(keeper))
        sched_yield();
    EXPECT(gvmi_lease_readers(word(&f)) == 1);
    gvmi_client_unhold_object(object);
    gvm_client_close(keeper);
    return end_fake(&f);
}

static void lease_of_a_collection_is_there_after_a_close_beside_a_grant(void **state)
{
    RUN(close_beside_a_grant);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acquire_that_is_not_answered_times_out_and_its_late_grant_is_given_back),
        cmocka_unit_test(acquire_of_memory_that_is_not_mapped_times_out),
        cmocka_unit_test(close_that_cannot_be_sent_is_sent_later),
        cmocka_unit_test(seal_waits_as_acquire_does),
        cmocka_unit_test(close_that_is_not_answered_keeps_its_slot_until_it_is),
        cmocka_unit_test(close_beside_a_mapper_that_cannot_send_returns),
        cmocka_unit_test(map_that_comes_before_bye_is_ignored),
        cmocka_unit_test(cancellation_in_a_wait_is_put_off_until_the_call_returns),
        cmocka_unit_test(cancellation_in_a_seal_is_put_off_until_the_call_returns),
        cmocka_unit_test(lease_of_a_collection_is_there_after_a_close_beside_a_grant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
