/* keeper/server/schedule.c: who is visited next. The time is the test's own, so nothing here depends on the
 * speed of the machine. */
#include "tests/unit/unit.h"

#include "keeper/server/schedule.h"

#define MANY 450
#define COST_NS (GVMI_VISIT_NS / 10)  /* of a visit */
#define WAIT_NS (100 * GVMI_VISIT_NS) /* between visits: counts as nobody's */

typedef struct fixture {
    gvmi_schedule schedule;
    gvmi_place places[MANY + 2];
    unsigned count;
    int64_t now_ns;
} fixture;

static gvmi_place *join(fixture *s, uint32_t uid)
{
    gvmi_place *place = &s->places[s->count++];

    assert_int_equal(gvmi_schedule_join(&s->schedule, uid, place, place), GVM_OK);
    return place;
}

/* Visits the next, which costs time and has more to do if it is to stay. */
static gvmi_place *visit(fixture *s, int64_t cost_ns, bool stays)
{
    gvmi_place *place = gvmi_schedule_next(&s->schedule, s->now_ns);

    s->now_ns += cost_ns;
    gvmi_schedule_visited(&s->schedule, cost_ns);
    s->now_ns += WAIT_NS;
    if (place != NULL && stays)
        gvmi_schedule_queue(&s->schedule, place);
    return place;
}

static void end(fixture *s)
{
    gvmi_schedule_clear(&s->schedule);
    assert_false(gvmi_schedule_waits(&s->schedule));
    while (s->count > 0)
        gvmi_schedule_leave(&s->schedule, &s->places[--s->count]);
    assert_null(s->schedule.users);
}

static gvmi_place *queue_new(fixture *s, uint32_t uid)
{
    gvmi_place *place = join(s, uid);

    gvmi_schedule_queue(&s->schedule, place);
    return place;
}

static void user_that_asks_for_little_is_visited_next(void **state)
{
    fixture s = {.now_ns = 5};
    gvmi_place *other;

    (void)state;
    other = join(&s, 7);
    for (unsigned i = 0; i < MANY; i++)
        (void)queue_new(&s, i % 3);
    for (unsigned i = 0; i < 100; i++) {
        for (unsigned n = 0; n < 4 + i;
             n++) /* visits of different length, so that no two users had the same */
            assert_ptr_not_equal(visit(&s, COST_NS + n * n + i, true), other);
        gvmi_schedule_queue(&s.schedule, other);
        assert_ptr_equal(visit(&s, COST_NS / 10, false), other);
    }
    end(&s);
}

/* Visits for so long, all of which are needed. The time that each of four users has. */
static void run(fixture *s, int64_t for_ns, int64_t had_ns[4])
{
    for (int64_t used_ns = 0; used_ns < for_ns;) {
        const gvmi_place *place = gvmi_schedule_next(&s->schedule, s->now_ns);
        const uint32_t uid = place->user->uid;
        const int64_t cost_ns = COST_NS * (1 + uid); /* some are visited less often */

        gvmi_schedule_queue(&s->schedule, (gvmi_place *)place->owner);
        s->now_ns += cost_ns;
        gvmi_schedule_visited(&s->schedule, cost_ns);
        had_ns[uid] += cost_ns;
        used_ns += cost_ns;
    }
}

static void users_have_the_same_time_whatever_they_have(void **state)
{
    fixture s = {0};
    int64_t had_ns[4] = {0};

    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        (void)queue_new(&s, i < MANY - 3 ? 0 : i - (MANY - 4));
    run(&s, 400 * GVMI_VISIT_NS, had_ns);
    for (unsigned uid = 0; uid < 4; uid++)
        assert_in_range(had_ns[uid], 99 * GVMI_VISIT_NS, 101 * GVMI_VISIT_NS);
    end(&s);
}

static void user_with_more_weight_has_more_time(void **state)
{
    fixture s = {0};
    int64_t had_ns[4] = {0};

    (void)state;
    for (uint32_t uid = 0; uid < 4; uid++)
        (void)queue_new(&s, uid);
    s.places[2].user->weight = 4;
    run(&s, 700 * GVMI_VISIT_NS, had_ns);
    for (unsigned uid = 0; uid < 4; uid++)
        assert_in_range(had_ns[uid], (uid == 2 ? 398 : 99) * GVMI_VISIT_NS,
                        (uid == 2 ? 402 : 101) * GVMI_VISIT_NS);
    end(&s);
}

static void time_that_was_not_asked_for_is_not_saved_up(void **state)
{
    fixture s = {0};
    int64_t had_ns[4] = {0};
    gvmi_place *late;

    (void)state;
    for (uint32_t uid = 0; uid < 3; uid++)
        (void)queue_new(&s, uid);
    late = join(&s, 3);
    run(&s, 900 * GVMI_VISIT_NS, had_ns);
    memset(had_ns, 0, sizeof had_ns);
    gvmi_schedule_queue(&s.schedule, late);
    run(&s, 400 * GVMI_VISIT_NS, had_ns);
    for (unsigned uid = 0; uid < 4; uid++)
        assert_in_range(had_ns[uid], 99 * GVMI_VISIT_NS, 101 * GVMI_VISIT_NS);
    end(&s);
}

static void clients_of_a_user_are_visited_in_rotation(void **state)
{
    fixture s = {0};

    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        gvmi_schedule_queue(&s.schedule, join(&s, 1));
    for (unsigned i = 0; i < 3 * MANY; i++)
        assert_ptr_equal(visit(&s, COST_NS, true), &s.places[i % MANY]);
    end(&s);
}

/* Its accounts go with its connections, so each time it seems to be a new user. */
static void user_that_comes_again_and_again_keeps_no_other_waiting(void **state)
{
    fixture s = {0};
    gvmi_place *other, *place;
    unsigned visits = 0;

    (void)state;
    other = queue_new(&s, 1);
    (void)visit(&s, 5 * GVMI_VISIT_NS, true); /* which it is behind, at first */
    for (unsigned i = 0; i < 100; i++) {
        place = queue_new(&s, 2);
        while (visit(&s, COST_NS, true) == other)
            visits++;
        gvmi_schedule_clear(&s.schedule);
        gvmi_schedule_leave(&s.schedule, place);
        s.count--;
        gvmi_schedule_queue(&s.schedule, other);
    }
    assert_in_range(visits, 900, 1100); /* it has had the same time as the newcomers' first visits stand for */
    end(&s);
}

/* As one that is cut off in its visit. */
static void user_that_leaves_in_its_visit_is_forgotten(void **state)
{
    fixture s = {0};
    gvmi_place *place;

    (void)state;
    (void)queue_new(&s, 1);
    place = queue_new(&s, 2);
    assert_ptr_equal(visit(&s, COST_NS, true), &s.places[0]);
    assert_ptr_equal(gvmi_schedule_next(&s.schedule, s.now_ns), place);
    assert_int_equal(s.schedule.end_ns, s.now_ns + GVMI_VISIT_NS);
    gvmi_schedule_leave(&s.schedule, place);
    gvmi_schedule_visited(&s.schedule, COST_NS);
    assert_ptr_equal(visit(&s, COST_NS, true), &s.places[0]);
    end(&s);
}

static void client_is_queued_once(void **state)
{
    fixture s = {0};
    gvmi_place *place;

    (void)state;
    place = join(&s, 1);
    gvmi_schedule_queue(&s.schedule, place);
    gvmi_schedule_queue(&s.schedule, place);
    assert_ptr_equal(visit(&s, 1, false), place);
    assert_null(visit(&s, 1, false));
    assert_false(gvmi_schedule_waits(&s.schedule));
    gvmi_schedule_queue(&s.schedule, place);
    assert_ptr_equal(visit(&s, 1, false), place);
    end(&s);
}

static void user_without_clients_is_forgotten(void **state)
{
    fixture s = {0};

    (void)state;
    for (uint32_t uid = 0; uid < 100; uid++) {
        (void)join(&s, uid);
        (void)join(&s, uid);
        gvmi_schedule_leave(&s.schedule, &s.places[1]);
        assert_int_equal(s.places[0].user->places, 1);
        gvmi_schedule_leave(&s.schedule, &s.places[0]);
        gvmi_schedule_leave(&s.schedule, &s.places[0]); /* there is none any more */
        s.count = 0;
        assert_null(s.schedule.users);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(user_that_asks_for_little_is_visited_next),
        cmocka_unit_test(users_have_the_same_time_whatever_they_have),
        cmocka_unit_test(user_with_more_weight_has_more_time),
        cmocka_unit_test(time_that_was_not_asked_for_is_not_saved_up),
        cmocka_unit_test(clients_of_a_user_are_visited_in_rotation),
        cmocka_unit_test(user_that_comes_again_and_again_keeps_no_other_waiting),
        cmocka_unit_test(user_that_leaves_in_its_visit_is_forgotten),
        cmocka_unit_test(client_is_queued_once),
        cmocka_unit_test(user_without_clients_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
