/* The keeper's machine: when it asks the policy what to bring to a device, and what comes of it. */
#include "tests/unit/machine_fixture.h"

/* What of the object is on its device, in chunks. */
static uint64_t chunks_there(fixture *w, actor *a, uint32_t slot)
{
    return info(w, a, slot).device_bytes / CHUNK;
}

static void request_that_waited_for_a_lease_has_chunks_brought_in_then(void **state)
{
    static const gvm_lease_mode held[] = {GVM_LEASE_READ, GVM_LEASE_WRITE, GVM_LEASE_WRITE};
    static const gvm_lease_mode asked[] = {GVM_LEASE_WRITE, GVM_LEASE_WRITE, GVM_LEASE_READ};

    (void)state;
    for (int i = 0; i < 3; i++) {
        fixture w;
        actor *a, *b;
        uint32_t a_slot = 0, b_slot = 0;

        start_fixture(&w, 2, 4);
        a = join(&w, 1);
        b = join(&w, 1);
        assert_int_equal(create(&w, a, "/x", 2, 0666, &a_slot), GVM_OK);
        assert_int_equal(open_object(&w, b, "/x", 0, &b_slot), GVM_OK);
        assert_int_equal(evict(&w, a, "/x"), 2 * CHUNK);
        ask(&w, a, a_slot, held[i], 0); /* takes it where it is */
        assert_true(granted(a));
        take(&w, a, a_slot, held[i]);
        ask_with_hint(&w, b, b_slot, asked[i], GVM_HINT_HOT, -1);
        assert_false(granted(b));
        assert_int_equal(chunks_there(&w, a, a_slot), 0);
        give(&w, a, a_slot, held[i]);
        assert_true(granted(b));
        take(&w, b, b_slot, asked[i]);
        assert_int_equal(chunks_there(&w, b, b_slot), 2);
        end_fixture(&w);
    }
}

static bool no_rooms; /* no memory for chunks that wait for a frame */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return no_rooms && bytes == sizeof(keep_room) ? NULL : __real_malloc(bytes);
}

static void request_is_granted_where_chunks_cannot_be_brought_in(void **state)
{
    static const gvm_lease_mode modes[] = {GVM_LEASE_READ, GVM_LEASE_WRITE};

    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture w;
        actor *a;
        uint32_t slot = 0;

        start_fixture(&w, 2, 4);
        a = join(&w, 1);
        assert_int_equal(create(&w, a, "/x", 2, 0, &slot), GVM_OK);
        assert_int_equal(evict(&w, a, "/x"), 2 * CHUNK);
        no_rooms = true;
        ask_with_hint(&w, a, slot, modes[i], GVM_HINT_HOT, -1);
        no_rooms = false;
        assert_true(granted(a));
        take(&w, a, slot, modes[i]);
        assert_int_equal(chunks_there(&w, a, slot), 0);
        end_fixture(&w);
    }
}

/* ---- what moves just then */

/* /x has the device, from which so many of its four chunks move; all of /y is on the host. */
static void start_moving(fixture *w, actor **a, uint32_t *y, uint64_t chunks)
{
    uint32_t x = 0;

    start_fixture(w, 4, 8);
    *a = join(w, 1);
    assert_int_equal(create(w, *a, "/x", 4, 0, &x), GVM_OK);
    (*a)->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(w, *a, "/y", 4, 0, y), GVM_OK);
    (*a)->create_flags = 0;
    assert_int_equal(chunks_there(w, *a, x), 4);
    w->hold_jobs = true;
    begin_evict_bytes(w, *a, "/x", chunks * CHUNK);
}

static void hot_request_waits_for_what_moves_just_then(void **state)
{
    static const gvm_lease_mode modes[] = {GVM_LEASE_READ, GVM_LEASE_WRITE};

    (void)state;
    for (uint64_t chunks = 1; chunks <= 4; chunks++) { /* 4: there is no other victim */
        fixture w;
        actor *a;
        uint32_t y = 0;

        start_moving(&w, &a, &y, chunks);
        ask_with_hint(&w, a, y, modes[chunks % 2], GVM_HINT_HOT, -1);
        assert_false(granted(a));
        assert_int_equal(w.job_count, chunks); /* no copy of /y for less than it can have */
        end_jobs(&w);
        assert_true(granted(a));
        take(&w, a, y, modes[chunks % 2]);
        assert_int_equal(chunks_there(&w, a, y), 4);
        end_fixture(&w);
    }
}

/* What comes in makes room on the host for what is to leave the device: neither has room for both objects at once. */
static void hot_request_changes_places_where_the_host_is_nearly_full(void **state)
{
    static const gvm_lease_mode modes[] = {GVM_LEASE_READ, GVM_LEASE_WRITE};

    (void)state;
    for (uint64_t host = 4; host <= 7; host++) { /* 4: at first there is no place for anything of /x */
        fixture w;
        actor *a;
        uint32_t x = 0, y = 0;

        start_fixture(&w, 4, host);
        a = join(&w, 1);
        assert_int_equal(create(&w, a, "/x", 3, 0, &x), GVM_OK);
        a->create_flags = GVM_OBJECT_HOST;
        assert_int_equal(create(&w, a, "/y", 4, 0, &y), GVM_OK);
        a->create_flags = 0;
        ask_with_hint(&w, a, y, modes[host % 2], GVM_HINT_HOT, -1);
        assert_true(granted(a));
        take(&w, a, y, modes[host % 2]);
        assert_int_equal(chunks_there(&w, a, y), 4);
        assert_int_equal(chunks_there(&w, a, x), 0);
        end_fixture(&w);
    }
}

static void request_without_hint_does_not_wait_for_what_moves(void **state)
{
    fixture w;
    actor *a;
    uint32_t y = 0;

    (void)state;
    start_moving(&w, &a, &y, 1);
    ask(&w, a, y, GVM_LEASE_READ, -1);
    assert_true(granted(a));
    take(&w, a, y, GVM_LEASE_READ);
    end_fixture(&w);
}

static void hot_reader_does_not_wait_for_room_while_others_have_a_lease(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t y = 0, slot = 0;

    (void)state;
    start_moving(&w, &a, &y, 1);
    b = join(&w, 1);
    assert_int_equal(open_object(&w, b, "/y", 0, &slot), GVM_OK);
    acquire(&w, a, y, GVM_LEASE_READ);
    ask_with_hint(&w, b, slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_true(granted(b));
    take(&w, b, slot, GVM_LEASE_READ);
    end_fixture(&w);
}

static void hot_request_that_waits_for_moves_keeps_nobody_waiting(void **state)
{
    static const gvm_lease_mode modes[] = {GVM_LEASE_READ, GVM_LEASE_WRITE};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const gvm_lease_mode mode = modes[i / 2];
        fixture w;
        actor *a, *b, *c;
        uint32_t y = 0, slot = 0, other = 0;

        start_moving(&w, &a, &y, 1);
        b = join(&w, 1);
        c = join(&w, 1);
        assert_int_equal(open_object(&w, b, "/y", 0, &slot), GVM_OK);
        assert_int_equal(open_object(&w, c, "/y", 0, &other), GVM_OK);
        if (i % 2 == 1) /* all begin to wait behind it */
            acquire(&w, c, other, GVM_LEASE_WRITE);
        ask_with_hint(&w, a, y, mode, GVM_HINT_HOT, -1);
        ask(&w, b, slot, GVM_LEASE_READ, i % 2 == 1 ? -1 : 0);
        if (i % 2 == 1)
            give(&w, c, other, GVM_LEASE_WRITE);
        assert_true(granted(b));
        assert_false(granted(a));
        take(&w, b, slot, GVM_LEASE_READ);
        give(&w, b, slot, GVM_LEASE_READ);
        assert_false(granted(a));
        end_jobs(&w);
        assert_true(granted(a));
        take(&w, a, y, mode);
        assert_int_equal(chunks_there(&w, a, y), 4);
        end_fixture(&w);
    }
}

static void hot_requests_that_wait_for_moves_stay_in_their_order(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t y = 0, slot = 0;

    (void)state;
    start_moving(&w, &a, &y, 1);
    b = join(&w, 1);
    assert_int_equal(open_object(&w, b, "/y", 0, &slot), GVM_OK);
    ask_with_hint(&w, a, y, GVM_LEASE_WRITE, GVM_HINT_HOT, -1);
    ask_with_hint(&w, b, slot, GVM_LEASE_WRITE, GVM_HINT_HOT, -1);
    assert_false(granted(a) || granted(b));
    end_jobs(&w);
    assert_true(granted(a));
    assert_false(granted(b));
    take(&w, a, y, GVM_LEASE_WRITE);
    give(&w, a, y, GVM_LEASE_WRITE);
    assert_true(granted(b));
    end_fixture(&w);
}

static void hot_request_waits_for_moves_no_longer_than_it_may(void **state)
{
    fixture w;
    actor *a;
    uint32_t y = 0;

    (void)state;
    start_moving(&w, &a, &y, 1);
    ask_with_hint(&w, a, y, GVM_LEASE_WRITE, GVM_HINT_HOT, 0); /* who cannot wait has what there is */
    assert_true(granted(a));
    take(&w, a, y, GVM_LEASE_WRITE);
    give(&w, a, y, GVM_LEASE_WRITE);
    ask_with_hint(&w, a, y, GVM_LEASE_WRITE, GVM_HINT_HOT, 50);
    tick(&w, 40);
    assert_int_equal(last(a)->head.type, 0);
    tick(&w, 20);
    assert_int_equal(reply_status(a), GVM_E_TIMEOUT);
    assert_non_null(strstr(last(a)->body.FAILED.text, "GVM_HINT_HOT"));
    assert_null(w.machine->thaw_waits);
    end_jobs(&w);
    for (const keep_object *o = w.machine->objects; o != NULL; o = o->next)
        assert_true(o->lease_state == KEEP_SHARED || o->lease_state == KEEP_EXCLUSIVE);
    end_fixture(&w);
}

static void hot_request_waits_for_a_few_moves_alone(void **state)
{
    const uint64_t count = KEEP_THAWS_MAX + 2;
    fixture w;
    actor *a, *evictor;
    uint32_t slot = 0, y = 0;
    char name[] = "/0";

    (void)state;
    start_fixture(&w, count, 2 * count);
    a = join(&w, 1);
    evictor = join(&w, 1);
    a->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(&w, a, "/y", count, 0, &y), GVM_OK);
    a->create_flags = 0;
    for (uint64_t i = 0; i < count; i++, name[1]++)
        assert_int_equal(create(&w, a, name, 1, 0, &slot), GVM_OK);
    w.hold_jobs = true;
    for (name[1] = '0'; w.job_count < count; name[1]++)
        begin_evict(&w, evictor, name);
    ask_with_hint(&w, a, y, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    for (unsigned i = 0; i < KEEP_THAWS_MAX; i++) {
        assert_non_null(w.machine->thaw_waits);
        gvmi_machine_job_done(w.machine, w.jobs[--w.job_count], GVM_OK);
        run(&w);
    }
    assert_null(w.machine->thaw_waits);
    end_jobs(&w);
    assert_true(granted(a));
    take(&w, a, y, GVM_LEASE_READ);
    assert_int_equal(chunks_there(&w, a, y), KEEP_THAWS_MAX);
    end_fixture(&w);
}

/* It and its requests go while one awaits the end of a move. */
static void object_that_is_closed_awaits_no_move(void **state)
{
    fixture w;
    actor *a;
    uint32_t y = 0;

    (void)state;
    start_moving(&w, &a, &y, 1);
    ask_with_hint(&w, a, y, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    drop_object(&w, a, "/y");
    close_slot(&w, a, y);
    assert_null(w.machine->thaw_waits);
    end_fixture(&w);
}

/* ---- looks */

/* Of /x, which gains most by having more and is leased, three chunks of four are on the device, where there is room for one; all of /y are on the host. */
static void start_with_leased(fixture *w, actor **a, uint32_t *x, uint32_t *y)
{
    start_fixture(w, 4, 8);
    *a = join(w, 1);
    (*a)->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(w, *a, "/y", 4, 0, y), GVM_OK);
    (*a)->create_flags = 0;
    assert_int_equal(create(w, *a, "/x", 4, 0, x), GVM_OK);
    begin_evict_bytes(w, *a, "/x", CHUNK);
    map_object(w, *a, *x);
    ask(w, *a, *x, GVM_LEASE_READ, 0);
    assert_true(granted(*a));
    take(w, *a, *x, GVM_LEASE_READ);
    assert_int_equal(chunks_there(w, *a, *x), 3);
    assert_int_equal(chunks_there(w, *a, *y), 0);
}

static void leased_object_that_gains_most_does_not_keep_others_from_the_room(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;
    uint64_t revokes;

    (void)state;
    start_with_leased(&w, &a, &x, &y);
    tick(&w, 200);
    tick(&w, 200);
    assert_int_equal(chunks_there(&w, a, y), 1);
    revokes = w.machine->revokes;
    tick(&w, 200);
    assert_int_equal(w.machine->revokes, revokes); /* of /x no permit is withdrawn */
    end_fixture(&w);
}

static void object_that_a_look_passed_over_gives_room_to_others(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_with_leased(&w, &a, &x, &y);
    tick(&w, 200);
    give(&w, a, x, GVM_LEASE_READ);
    ask_with_hint(&w, a, y, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_true(granted(a));
    take(&w, a, y, GVM_LEASE_READ);
    assert_int_equal(chunks_there(&w, a, y), 4);
    end_fixture(&w);
}

/* On the host, and for as long as the objects are read. */
static void lease_many(fixture *w, actor *a, unsigned count)
{
    uint32_t slot = 0;
    char name[8];

    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "/l%u", i);
        assert_int_equal(create(w, a, name, 1, 0, &slot), GVM_OK);
        ask_with_hint(w, a, slot, GVM_LEASE_READ, GVM_HINT_SCAN, -1);
        assert_true(granted(a));
        take(w, a, slot, GVM_LEASE_READ);
    }
}

static void leased_objects_that_gain_most_do_not_keep_others_from_the_room(void **state)
{
    fixture w;
    actor *a;
    uint32_t y = 0, f = 0;

    (void)state;
    start_fixture(&w, 1, 16);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/f", 1, 0, &f), GVM_OK);
    a->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(&w, a, "/y", 1, 0, &y), GVM_OK);
    lease_many(&w, a, 12);
    drop_object(&w, a, "/f");
    close_slot(&w, a, f);
    assert_int_equal(chunks_there(&w, a, y), 0);
    tick(&w, 200);
    assert_int_equal(chunks_there(&w, a, y), 1);
    end_fixture(&w);
}

static uint64_t ask_hot(fixture *w, actor *a, uint32_t slot)
{
    uint64_t chunks;

    ask_with_hint(w, a, slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_true(granted(a));
    take(w, a, slot, GVM_LEASE_READ);
    chunks = chunks_there(w, a, slot);
    give(w, a, slot, GVM_LEASE_READ);
    return chunks;
}

static void leased_objects_do_not_keep_others_from_what_is_worth_more(void **state)
{
    fixture w;
    actor *a;
    uint32_t y = 0, u = 0;

    (void)state;
    start_fixture(&w, 13, 16);
    a = join(&w, 1);
    a->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(&w, a, "/y", 1, 0, &y), GVM_OK);
    a->create_flags = 0;
    lease_many(&w, a, 12);
    assert_int_equal(create(&w, a, "/u", 1, 0, &u), GVM_OK);
    for (int i = 0; i < 4; i++)
        map_object(&w, a, u);
    assert_int_equal(ask_hot(&w, a, y), 1);
    assert_int_equal(chunks_there(&w, a, u), 0);
    end_fixture(&w);
}

static void object_is_a_victim_as_soon_as_its_lease_has_ended(void **state)
{
    fixture w;
    actor *a;
    uint32_t y = 0, v = 0;

    (void)state;
    start_fixture(&w, 2, 8);
    a = join(&w, 1);
    a->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(&w, a, "/y", 2, 0, &y), GVM_OK);
    a->create_flags = 0;
    assert_int_equal(create(&w, a, "/v", 2, 0, &v), GVM_OK);
    acquire(&w, a, v, GVM_LEASE_READ);
    assert_int_equal(ask_hot(&w, a, y), 0);
    give(&w, a, v, GVM_LEASE_READ);
    assert_int_equal(ask_hot(&w, a, y), 2);
    end_fixture(&w);
}

/* Of /v, which is leased, and /u one is to go; all of /y is on the host. Looks how much of it two HOT leases find on the device. */
static void bring_in_place_of_leased(uint32_t openings_of_leased, uint64_t first, uint64_t second)
{
    fixture w;
    actor *a;
    uint32_t y = 0, v = 0, u = 0, openings;
    keep_object *leased;

    start_fixture(&w, 4, 8);
    a = join(&w, 1);
    a->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(&w, a, "/y", 2, 0, &y), GVM_OK);
    a->create_flags = 0;
    assert_int_equal(create(&w, a, "/v", 2, 0, &v), GVM_OK);
    leased = w.machine->objects;
    assert_int_equal(create(&w, a, "/u", 2, 0, &u), GVM_OK);
    acquire(&w, a, v, GVM_LEASE_READ);
    for (int i = 0; i < 4; i++)
        map_object(&w, a, u); /* /v goes first */
    openings = leased->opening_count;
    w.unchecked = true;
    leased->opening_count += openings_of_leased;
    assert_int_equal(ask_hot(&w, a, y), first);
    assert_int_equal(ask_hot(&w, a, y), second);
    leased->opening_count = openings;
    w.unchecked = false;
    end_fixture(&w);
}

static void plan_is_not_made_again_after_many_looks_at_openings(void **state)
{
    (void)state;
    bring_in_place_of_leased(0, 2, 2);
    bring_in_place_of_leased(KEEP_LOOKS_MAX / 2, 0, 2);
}

static void lower_budget_does_not_wait_for_what_leaves_the_device(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t x = 0, y = 0;

    (void)state;
    start_fixture(&w, 4, 8);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 1, 0, &x), GVM_OK);
    map_object(&w, a, x);
    assert_int_equal(create(&w, b, "/y", 3, 0, &y), GVM_OK);
    map_object(&w, b, y);
    a->deaf = true;
    begin_evict(&w, a, "/x");
    assert_int_equal(w.machine->devices[0].leaving_bytes, CHUNK);
    gvmi_machine_driver_memory(w.machine, 0, 0, 0, 3 * CHUNK);
    tick(&w, 200);
    assert_int_equal(chunks_there(&w, b, y), 3); /* what leaves is enough */
    gvmi_machine_driver_memory(w.machine, 0, 0, 0, 2 * CHUNK);
    tick(&w, 200);
    assert_int_equal(chunks_there(&w, b, y), 2);
    tick(&w, 200);
    assert_int_equal(chunks_there(&w, b, y), 2);
    a->deaf = false;
    say_mapped(&w, a, a->map);
    tick(&w, 200);
    assert_int_equal(w.machine->devices[0].place.used_bytes, 2 * CHUNK);
    end_fixture(&w);
}

/* A growth waits for a chunk that arrives, but four revoke timeouts at most. The counter of job ids wraps during the test. */
static void growth_waits_for_moves_for_a_while(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0, other = 0;
    unsigned heard;

    (void)state;
    start_fixture(&w, 1, 1);
    w.machine->job_ids = UINT32_MAX;
    a = join(&w, 1);
    begin_arrival(&w, a, &slot);
    heard = a->count;
    (void)create(&w, a, "/y", 1, 0, &other);
    tick(&w, (1 + KEEP_MAP_TIMEOUTS_MAX) * w.machine->config.revoke_limit_ms - 1);
    assert_int_equal(a->count, heard);
    tick(&w, 1);
    assert_int_equal(a->count, heard + 1);
    assert_int_equal(reply_status(a), GVM_E_NOSPACE);
    w.hold_jobs = false;
    gvmi_machine_job_done(w.machine, w.jobs[--w.job_count], GVM_OK);
    run(&w);
    assert_int_equal(info(&w, a, slot).device_bytes, CHUNK);
    end_fixture(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_waits_for_moves_for_a_while),
        cmocka_unit_test(request_that_waited_for_a_lease_has_chunks_brought_in_then),
        cmocka_unit_test(request_is_granted_where_chunks_cannot_be_brought_in),
        cmocka_unit_test(hot_request_waits_for_what_moves_just_then),
        cmocka_unit_test(hot_request_changes_places_where_the_host_is_nearly_full),
        cmocka_unit_test(request_without_hint_does_not_wait_for_what_moves),
        cmocka_unit_test(hot_reader_does_not_wait_for_room_while_others_have_a_lease),
        cmocka_unit_test(hot_request_that_waits_for_moves_keeps_nobody_waiting),
        cmocka_unit_test(hot_requests_that_wait_for_moves_stay_in_their_order),
        cmocka_unit_test(hot_request_waits_for_moves_no_longer_than_it_may),
        cmocka_unit_test(hot_request_waits_for_a_few_moves_alone),
        cmocka_unit_test(object_that_is_closed_awaits_no_move),
        cmocka_unit_test(leased_object_that_gains_most_does_not_keep_others_from_the_room),
        cmocka_unit_test(object_that_a_look_passed_over_gives_room_to_others),
        cmocka_unit_test(leased_objects_that_gain_most_do_not_keep_others_from_the_room),
        cmocka_unit_test(leased_objects_do_not_keep_others_from_what_is_worth_more),
        cmocka_unit_test(object_is_a_victim_as_soon_as_its_lease_has_ended),
        cmocka_unit_test(plan_is_not_made_again_after_many_looks_at_openings),
        cmocka_unit_test(lower_budget_does_not_wait_for_what_leaves_the_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
