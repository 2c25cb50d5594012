/* keeper/server/rotation.c: whose turn it is. The time is the test's own, so nothing here depends on the
 * speed of the machine. */
#include "tests/unit/unit.h"

#include "keeper/server/rotation.h"

#define MANY 450
#define COST_NS (GVMI_SLICE_NS / 10) /* of a visit */

typedef struct stand {
    gvmi_rotation rotation;
    gvmi_place places[MANY + 2];
    unsigned count;
    int64_t now_ns;
} stand;

static gvmi_place *join(stand *s, uint32_t uid)
{
    gvmi_place *place = &s->places[s->count++];

    assert_int_equal(gvmi_rotation_join(&s->rotation, uid, place, place), GVM_OK);
    return place;
}

/* Visits the next, which costs time and has more to do if it is to stay. */
static gvmi_place *visit(stand *s, int64_t cost_ns, bool stays)
{
    gvmi_place *place = gvmi_rotation_next(&s->rotation, s->now_ns);

    s->now_ns += cost_ns;
    if (place != NULL && stays)
        gvmi_rotation_queue(&s->rotation, place);
    return place;
}

static void end(stand *s)
{
    gvmi_rotation_clear(&s->rotation);
    assert_false(gvmi_rotation_waits(&s->rotation));
    while (s->count > 0)
        gvmi_rotation_leave(&s->rotation, &s->places[--s->count]);
    assert_null(s->rotation.users);
}

static void client_of_another_user_waits_for_one_slice(void **state)
{
    stand s = {.now_ns = 5};
    const gvmi_place *other;
    unsigned visits = 0;

    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        gvmi_rotation_queue(&s.rotation, join(&s, 1));
    for (unsigned i = 0; i < 3; i++)
        (void)visit(&s, COST_NS, true);
    gvmi_rotation_queue(&s.rotation, join(&s, 2));
    other = &s.places[s.count - 1];
    while (visit(&s, COST_NS, true) != other)
        visits++;
    assert_int_equal(visits, 10 - 3); /* what was left of the slice */
    for (visits = 0; visit(&s, COST_NS, true) != other;)
        visits++;
    assert_int_equal(visits, 10);
    end(&s);
}

static void clients_of_a_user_are_visited_in_rotation(void **state)
{
    stand s = {0};

    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        gvmi_rotation_queue(&s.rotation, join(&s, 1));
    for (unsigned i = 0; i < 3 * MANY; i++)
        assert_ptr_equal(visit(&s, COST_NS, true), &s.places[i % MANY]);
    end(&s);
}

/* A visit that is longer than the slice ends it, and counts for no other user. */
static void slice_of_each_user_begins_with_its_first_visit(void **state)
{
    stand s = {0};
    const gvmi_place *a, *b;

    (void)state;
    a = join(&s, 1);
    b = join(&s, 2);
    gvmi_rotation_queue(&s.rotation, join(&s, 1));
    gvmi_rotation_queue(&s.rotation, &s.places[0]);
    gvmi_rotation_queue(&s.rotation, &s.places[1]);
    assert_ptr_equal(visit(&s, 7 * GVMI_SLICE_NS, true), &s.places[2]);
    assert_ptr_equal(visit(&s, COST_NS, true), b);
    assert_int_equal(s.rotation.end_ns, 8 * GVMI_SLICE_NS);
    assert_ptr_equal(visit(&s, COST_NS, true), a);
    assert_int_equal(s.rotation.end_ns, 8 * GVMI_SLICE_NS + COST_NS);
    end(&s);
}

static void client_is_queued_once(void **state)
{
    stand s = {0};
    gvmi_place *place;

    (void)state;
    place = join(&s, 1);
    gvmi_rotation_queue(&s.rotation, place);
    gvmi_rotation_queue(&s.rotation, place);
    assert_ptr_equal(visit(&s, 1, false), place);
    assert_null(visit(&s, 1, false));
    assert_false(gvmi_rotation_waits(&s.rotation));
    gvmi_rotation_queue(&s.rotation, place);
    assert_ptr_equal(visit(&s, 1, false), place);
    end(&s);
}

static void user_without_clients_is_forgotten(void **state)
{
    stand s = {0};

    (void)state;
    for (uint32_t uid = 0; uid < 100; uid++) {
        (void)join(&s, uid);
        (void)join(&s, uid);
        gvmi_rotation_leave(&s.rotation, &s.places[1]);
        assert_int_equal(s.places[0].user->places, 1);
        gvmi_rotation_leave(&s.rotation, &s.places[0]);
        gvmi_rotation_leave(&s.rotation, &s.places[0]); /* there is none any more */
        s.count = 0;
        assert_null(s.rotation.users);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_of_another_user_waits_for_one_slice),
        cmocka_unit_test(clients_of_a_user_are_visited_in_rotation),
        cmocka_unit_test(slice_of_each_user_begins_with_its_first_visit),
        cmocka_unit_test(client_is_queued_once),
        cmocka_unit_test(user_without_clients_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
