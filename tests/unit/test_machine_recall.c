/* Memory that devices lend each other: how it comes back, and that nobody waits for what does not come. */
#include "tests/unit/machine_lending.h"

static void growth_of_the_lender_recalls_what_it_lends(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 8);
    map_object(&w, a, x);
    assert_int_equal(create_on_second(&w, a, "/y", 4, &y), GVM_OK);
    check_places(&w, a, y, 4, 0, 0);
    check_places(&w, a, x, 4, 0, 2);
    assert_int_equal(mapped_frame(a, x, 4), 0);
    map_object(&w, a, x);
    assert_int_equal(lender(&w)->place.lent_bytes, 0);
    end_fixture(&w);
}

static void growth_that_fits_beside_lent_memory_recalls_nothing(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 8);
    assert_int_equal(create_on_second(&w, a, "/y", 2, &y), GVM_OK);
    check_places(&w, a, y, 2, 0, 0);
    check_places(&w, a, x, 4, 2, 0);
    end_fixture(&w);
}

static void recalled_chunk_goes_to_its_own_device_where_there_is_room(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0, z = 0;

    (void)state;
    start_lending(&w, 4, 0);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/z", 2, 0, &z), GVM_OK);
    acquire(&w, a, z, GVM_LEASE_READ); /* so that it stays */
    assert_int_equal(create(&w, a, "/x", 4, 0, &x), GVM_OK);
    give(&w, a, z, GVM_LEASE_READ);
    check_places(&w, a, x, 2, 2, 0);
    drop_object(&w, a, "/z");
    close_slot(&w, a, z);
    assert_int_equal(create_on_second(&w, a, "/y", 4, &y), GVM_OK);
    check_places(&w, a, y, 4, 0, 0);
    check_places(&w, a, x, 4, 0, 0);
    end_fixture(&w);
}

static void recalled_chunk_goes_to_the_host_where_its_own_device_has_no_memory_after_all(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, z = 0;

    (void)state;
    start_lending(&w, 4, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/z", 2, 0, &z), GVM_OK);
    acquire(&w, a, z, GVM_LEASE_READ); /* so that it stays */
    assert_int_equal(create(&w, a, "/x", 4, 0, &x), GVM_OK);
    give(&w, a, z, GVM_LEASE_READ);
    check_places(&w, a, x, 2, 2, 0);
    drop_object(&w, a, "/z");
    close_slot(&w, a, z);
    w.hold_jobs = true;
    gvmi_machine_driver_memory(w.machine, 1, CHUNK, 8 * CHUNK, CHUNK);
    for (int i = 0; i < 3; i++) {
        tick(&w, 200);
        end_jobs_without_memory(&w, 0);
    }
    check_places(&w, a, x, 2, 1, 1);
    end_fixture(&w);
}

static void leased_chunk_is_not_recalled_and_nobody_waits_for_it(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 0);
    acquire(&w, a, x, GVM_LEASE_READ);
    assert_int_equal(create_on_second(&w, a, "/y", 4, &y), GVM_E_NOSPACE);
    check_places(&w, a, x, 4, 2, 0);
    assert_int_equal(create_on_second(&w, a, "/z", 2, &y), GVM_OK);
    give(&w, a, x, GVM_LEASE_READ);
    end_fixture(&w);
}

static void recall_without_room_anywhere_ends(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 0);
    assert_int_equal(create_on_second(&w, a, "/y", 4, &y), GVM_E_NOSPACE);
    check_places(&w, a, x, 4, 2, 0);
    acquire(&w, a, x, GVM_LEASE_WRITE); /* nothing is left frozen */
    give(&w, a, x, GVM_LEASE_WRITE);
    end_fixture(&w);
}

/* Three devices, of which the second lends to the others. The first has room for the most chunks that an object may have, but for three. */
static void start_large(fixture *w, uint64_t third, uint64_t host)
{
    gvmi_machine_config config = small_config(KEEP_CHUNKS_MAX - 3, host);

    config.device_count = 3;
    for (uint8_t d = 1; d < 3; d++) {
        config.devices[d] = (gvmi_machine_device){.uuid = {(uint8_t)(7 + d)}, .ordinal = d};
        config.devices[d].budget_bytes = (d == 1 ? 8 : third) * CHUNK;
    }
    config.devices[0].lenders = config.devices[2].lenders = 2;
    start_fixture_as(w, &config);
    w->unchecked = true;
}

/* Its chunks are no reason to pass over objects behind it. */
static void object_that_is_large_and_leased_does_not_hide_others_from_a_recall(void **state)
{
    fixture w;
    actor *a;
    uint32_t big = 0, x = 0, y = 0;

    (void)state;
    start_large(&w, 1, 4);
    a = join(&w, 1);
    a->create_device = 2;
    assert_int_equal(create(&w, a, "/x", 2, 0, &x), GVM_OK);
    a->create_device = 0;
    assert_int_equal(create_of(&w, a, "/big", KEEP_CHUNKS_MAX, KEEP_CHUNKS_MAX - 1, 0, 0), GVM_OK);
    big = a->slot;
    check_places(&w, a, x, 1, 1, 0);
    check_places(&w, a, big, KEEP_CHUNKS_MAX - 3, 2, 0);
    assert_int_equal(w.machine->borrowers->chunk_count, KEEP_CHUNKS_MAX - 1);
    atomic_store(&a->leases[big].word, GVMI_LEASE_READER);
    assert_int_equal(create_on_second(&w, a, "/y", 6, &y), GVM_OK);
    check_places(&w, a, y, 6, 0, 0);
    check_places(&w, a, x, 1, 0, 1);
    atomic_store(&a->leases[big].word, 0);
    w.unchecked = false;
    assert_true(gvmi_machine_check(w.machine));
    w.unchecked = true;
    end_fixture(&w);
}

/* Its device and the host are full; that of /x is not. */
static void object_that_is_large_and_has_nowhere_to_go_does_not_hide_others_from_a_recall(void **state)
{
    fixture w;
    actor *a;
    uint32_t big = 0, x = 0, y = 0, z = 0;

    (void)state;
    start_large(&w, 2, 0);
    a = join(&w, 1);
    a->create_device = 2;
    assert_int_equal(create(&w, a, "/z", 1, 0, &z), GVM_OK);
    acquire(&w, a, z, GVM_LEASE_READ); /* so that it stays */
    assert_int_equal(create(&w, a, "/x", 2, 0, &x), GVM_OK);
    a->create_device = 0;
    assert_int_equal(create_of(&w, a, "/big", KEEP_CHUNKS_MAX, KEEP_CHUNKS_MAX - 1, 0, 0), GVM_OK);
    big = a->slot;
    give(&w, a, z, GVM_LEASE_READ);
    drop_object(&w, a, "/z");
    close_slot(&w, a, z);
    check_places(&w, a, x, 1, 1, 0);
    check_places(&w, a, big, KEEP_CHUNKS_MAX - 3, 2, 0);
    assert_int_equal(w.machine->borrowers->chunk_count, KEEP_CHUNKS_MAX - 1);
    assert_int_equal(create_on_second(&w, a, "/y", 6, &y), GVM_OK);
    check_places(&w, a, y, 6, 0, 0);
    check_places(&w, a, x, 2, 0, 0);
    check_places(&w, a, big, KEEP_CHUNKS_MAX - 3, 2, 0);
    end_fixture(&w);
}

/* The second device lends to /x and /v. /v is leased, and first among those that a recall looks at, with more openings than
 * it looks at: /v. */
static keep_object *start_with_many_openings(fixture *w, actor **a, uint32_t *x, uint32_t *v)
{
    keep_object *many;

    start_lending(w, 8, 8);
    *a = join(w, 1);
    assert_int_equal(create(w, *a, "/x", 6, 0, x), GVM_OK);
    acquire(w, *a, *x, GVM_LEASE_READ); /* so that it stays */
    assert_int_equal(create(w, *a, "/v", 2, 0, v), GVM_OK);
    acquire(w, *a, *v, GVM_LEASE_READ);
    give(w, *a, *x, GVM_LEASE_READ);
    check_places(w, *a, *x, 4, 2, 0);
    check_places(w, *a, *v, 0, 2, 0);
    many = w->machine->borrowers;
    assert_string_equal(many->name, "/v");
    w->unchecked = true;
    many->opening_count += KEEP_LOOKS_MAX;
    return many;
}

/* What /x had of the second device has gone to the host, after some looks. */
static void check_recalled(fixture *w, actor *a, uint32_t x, uint32_t v, keep_object *many)
{
    for (int i = 0; i < 8; i++) /* a look takes several */
        tick(w, 200);
    many->opening_count -= KEEP_LOOKS_MAX;
    w->unchecked = false;
    check_places(w, a, x, 4, 0, 2);
    check_places(w, a, v, 0, 2, 0);
}

static void object_with_many_openings_does_not_hide_others_from_a_recall(void **state)
{
    fixture w;
    actor *a;
    keep_object *many;
    uint32_t x = 0, y = 0, v = 0;

    (void)state;
    many = start_with_many_openings(&w, &a, &x, &v);
    assert_int_equal(create_on_second(&w, a, "/y", 6, &y), GVM_OK);
    check_recalled(&w, a, x, v, many);
    check_places(&w, a, y, 6, 0, 0);
    end_fixture(&w);
}

/* The same where a lower budget has it recalled. */
static void object_with_many_openings_does_not_hide_others_from_a_lower_budget(void **state)
{
    fixture w;
    actor *a;
    keep_object *many;
    uint32_t x = 0, v = 0;

    (void)state;
    many = start_with_many_openings(&w, &a, &x, &v);
    gvmi_machine_driver_memory(w.machine, 1, CHUNK, 8 * CHUNK, 2 * CHUNK);
    check_recalled(&w, a, x, v, many);
    end_fixture(&w);
}

/* One chunk of it has a place on its device; the host is full. */
static void object_that_is_large_and_has_some_place_to_go_does_not_hide_others_from_a_recall(void **state)
{
    fixture w;
    actor *a;
    uint32_t big = 0, x = 0, y = 0, z[2] = {0};

    (void)state;
    start_large(&w, 2, 0);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/0", 1, 0, &z[0]), GVM_OK);
    acquire(&w, a, z[0], GVM_LEASE_READ); /* so that it stays */
    a->create_device = 2;
    assert_int_equal(create(&w, a, "/1", 1, 0, &z[1]), GVM_OK);
    acquire(&w, a, z[1], GVM_LEASE_READ);
    assert_int_equal(create(&w, a, "/x", 2, 0, &x), GVM_OK);
    a->create_device = 0;
    assert_int_equal(create_of(&w, a, "/big", KEEP_CHUNKS_MAX, KEEP_CHUNKS_MAX - 1, 0, 0), GVM_OK);
    big = a->slot;
    for (unsigned i = 0; i < 2; i++) {
        give(&w, a, z[i], GVM_LEASE_READ);
        drop_object(&w, a, i == 0 ? "/0" : "/1");
        close_slot(&w, a, z[i]);
    }
    check_places(&w, a, x, 1, 1, 0);
    check_places(&w, a, big, KEEP_CHUNKS_MAX - 4, 3, 0);
    assert_int_equal(w.machine->borrowers->chunk_count, KEEP_CHUNKS_MAX - 1);
    assert_int_equal(create_on_second(&w, a, "/y", 6, &y), GVM_OK);
    check_places(&w, a, y, 6, 0, 0);
    check_places(&w, a, x, 2, 0, 0);
    check_places(&w, a, big, KEEP_CHUNKS_MAX - 3, 2, 0);
    end_fixture(&w);
}

/* The copy to the host fails, whenever it is made. */
static void recall_that_fails_is_not_repeated_and_the_growth_ends(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;
    unsigned failed = 0;

    (void)state;
    start_lending(&w, 4, 4);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 5, 0, &x), GVM_OK);
    w.hold_jobs = true;
    a->create_device = 1;
    (void)create_of(&w, a, "/y", 64, 4, 0, 0);
    while (w.job_count > 0 && failed < 100) {
        const uint64_t job = w.jobs[--w.job_count];
        const keep_job *at = &w.machine->jobs[job & 0xffffffff];
        const bool recall = at->object->domain.uid == 1 && at->object->device == 0;

        failed += recall;
        gvmi_machine_job_done(w.machine, job, recall ? GVM_E_NOMEM : GVM_OK);
        run(&w);
    }
    assert_int_equal(failed, 1);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_OPENED);
    y = a->slot;
    check_places(&w, a, y, 3, 0, 1); /* one on the host then */
    check_places(&w, a, x, 4, 1, 0);
    end_fixture(&w);
}

static void lower_budget_of_the_lender_recalls(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 8);
    gvmi_machine_driver_memory(w.machine, 1, CHUNK, 8 * CHUNK, CHUNK);
    tick(&w, 200);
    tick(&w, 200);
    check_places(&w, a, x, 4, 1, 1);
    assert_true(lender(&w)->place.used_bytes <= CHUNK);
    end_fixture(&w);
}

/* What was lent is beyond the budget as well: as much again is recalled. */
static void growth_below_a_lowered_budget_recalls_what_is_beyond_it(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 8);
    gvmi_machine_driver_memory(w.machine, 1, 0, 8 * CHUNK, CHUNK);
    assert_int_equal(create_on_second(&w, a, "/y", 1, &y), GVM_OK);
    check_places(&w, a, y, 1, 0, 0);
    check_places(&w, a, x, 4, 0, 2);
    end_fixture(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_of_the_lender_recalls_what_it_lends),
        cmocka_unit_test(growth_that_fits_beside_lent_memory_recalls_nothing),
        cmocka_unit_test(recalled_chunk_goes_to_its_own_device_where_there_is_room),
        cmocka_unit_test(recalled_chunk_goes_to_the_host_where_its_own_device_has_no_memory_after_all),
        cmocka_unit_test(leased_chunk_is_not_recalled_and_nobody_waits_for_it),
        cmocka_unit_test(recall_without_room_anywhere_ends),
        cmocka_unit_test(object_that_is_large_and_leased_does_not_hide_others_from_a_recall),
        cmocka_unit_test(object_that_is_large_and_has_nowhere_to_go_does_not_hide_others_from_a_recall),
        cmocka_unit_test(object_with_many_openings_does_not_hide_others_from_a_recall),
        cmocka_unit_test(object_with_many_openings_does_not_hide_others_from_a_lower_budget),
        cmocka_unit_test(object_that_is_large_and_has_some_place_to_go_does_not_hide_others_from_a_recall),
        cmocka_unit_test(recall_that_fails_is_not_repeated_and_the_growth_ends),
        cmocka_unit_test(lower_budget_of_the_lender_recalls),
        cmocka_unit_test(growth_below_a_lowered_budget_recalls_what_is_beyond_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
