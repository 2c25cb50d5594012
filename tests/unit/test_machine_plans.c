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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_that_waited_for_a_lease_has_chunks_brought_in_then),
        cmocka_unit_test(request_is_granted_where_chunks_cannot_be_brought_in),
        cmocka_unit_test(leased_object_that_gains_most_does_not_keep_others_from_the_room),
        cmocka_unit_test(object_that_a_look_passed_over_gives_room_to_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
