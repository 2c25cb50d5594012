/* Memory that devices lend each other: what is lent, what counts as room, and what else is done with it. test_machine_recall.c is about how it comes back. */
#include "tests/unit/machine_lending.h"

static void object_larger_than_its_device_is_partly_lent_by_another(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_with_lent(&w, &a, &slot, 8);
    map_object(&w, a, slot);
    assert_int_equal(w.machine->host.used_bytes, 0);
    end_fixture(&w);
}

static void device_that_may_not_lend_lends_nothing(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_lending(&w, 4, 8);
    w.machine->config.devices[0].lenders = 0;
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 6, 0, &slot), GVM_OK);
    check_places(&w, a, slot, 4, 0, 2);
    end_fixture(&w);
}

static void device_keeps_a_part_that_it_does_not_lend(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_lending(&w, 4, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 10, 0, &slot), GVM_OK);
    check_places(&w, a, slot, 4, 3, 3);
    end_fixture(&w);
}

static void evicted_chunk_goes_to_a_lender_and_is_unmapped(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_lending(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 4, 0, &x), GVM_OK);
    map_object(&w, a, x);
    assert_int_equal(create(&w, a, "/y", 2, 0, &y), GVM_OK);
    ask_with_hint(&w, a, y, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_true(granted(a));
    take(&w, a, y, GVM_LEASE_READ);
    check_places(&w, a, x, 2, 2, 0);
    assert_int_equal(mapped_frame(a, x, 3), 0);
    map_object(&w, a, x);
    end_fixture(&w);
}

/* Another program has taken the lender's memory, of which its budget does not know. */
static void evicted_chunk_goes_to_the_host_where_the_lender_has_no_memory_after_all(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_lending(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 4, 0, &x), GVM_OK);
    map_object(&w, a, x);
    assert_int_equal(create(&w, a, "/y", 2, 0, &y), GVM_OK);
    check_places(&w, a, y, 0, 2, 0);
    w.hold_jobs = true;
    ask_with_hint(&w, a, y, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    end_jobs_without_memory(&w, 1);
    assert_true(granted(a));
    take(&w, a, y, GVM_LEASE_READ);
    check_places(&w, a, y, 2, 0, 0);
    check_places(&w, a, x, 2, 0, 2);
    end_fixture(&w);
}

/* It moves to the host what it has on its own device, and has lent memory meanwhile. */
static void hot_request_waits_for_an_object_that_moves_and_has_lent_memory(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t x = 0, y = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 16);
    b = join(&w, 1);
    b->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create_on_second(&w, b, "/y", 4, &y), GVM_OK);
    check_places(&w, b, y, 0, 0, 4);
    w.hold_jobs = true;
    begin_evict_bytes(&w, a, "/x", CHUNK);
    ask_with_hint(&w, b, y, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_false(granted(b));
    end_jobs(&w);
    assert_true(granted(b));
    take(&w, b, y, GVM_LEASE_READ);
    check_places(&w, b, y, 4, 0, 0);
    end_fixture(&w);
}

static void lent_memory_is_counted_as_room_as_far_as_it_is_wanted(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 8);
    assert_int_equal(gvmi_keep_own_room_bytes(w.machine, lender(&w), UINT64_MAX), 4 * CHUNK);
    assert_int_equal(gvmi_keep_own_room_bytes(w.machine, lender(&w), 3 * CHUNK), 4 * CHUNK);
    assert_int_equal(gvmi_keep_own_room_bytes(w.machine, lender(&w), 2 * CHUNK), 2 * CHUNK);
    end_fixture(&w);
}

static void lent_memory_that_has_nowhere_to_go_is_no_room(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, z = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 0);
    assert_int_equal(gvmi_keep_own_room_bytes(w.machine, lender(&w), UINT64_MAX), 2 * CHUNK);
    assert_int_equal(create_on_second(&w, a, "/z", 2, &z), GVM_OK);
    check_places(&w, a, z, 2, 0, 0);
    assert_int_equal(gvmi_keep_own_room_bytes(w.machine, lender(&w), UINT64_MAX), 0);
    end_fixture(&w);
}

static void lent_memory_that_has_a_place_on_the_host_is_room_as_far_as_that_goes(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 1);
    assert_int_equal(gvmi_keep_own_room_bytes(w.machine, lender(&w), UINT64_MAX), 3 * CHUNK);
    acquire(&w, a, x, GVM_LEASE_READ);
    assert_int_equal(gvmi_keep_own_room_bytes(w.machine, lender(&w), UINT64_MAX), 2 * CHUNK);
    give(&w, a, x, GVM_LEASE_READ);
    end_fixture(&w);
}

/* It may still write to all six chunks; the host has no memory, and the device none that is free. */
static void chunks_of_a_writer_that_is_cut_off_go_to_other_lent_memory(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t x = 0;

    (void)state;
    start_lending(&w, 16, 0);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 6, 0666, &x), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &b->slot), GVM_OK);
    map_object(&w, a, x);
    acquire(&w, b, b->slot, GVM_LEASE_WRITE);
    check_places(&w, a, x, 4, 2, 0);
    gvmi_machine_violation(w.machine, b->number, "the test says so");
    run(&w);
    ask(&w, a, x, GVM_LEASE_READ, -1);
    assert_true(granted(a));
    take(&w, a, x, GVM_LEASE_READ);
    check_places(&w, a, x, 0, 6, 0);
    assert_int_equal(gvmi_machine_held_bytes(w.machine, 0), 4 * CHUNK);
    assert_int_equal(gvmi_machine_held_bytes(w.machine, 1), 2 * CHUNK);
    give(&w, a, x, GVM_LEASE_READ);
    end_fixture(&w);
}

/* The lender does not have the host's frames, and there are no others for two of the chunks. */
static void chunks_of_a_writer_that_is_cut_off_go_from_the_host_to_a_lender(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t x = 0, y = 0;

    (void)state;
    start_lending(&w, 16, 2);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create_on_second(&w, a, "/y", 14, &y), GVM_OK);
    assert_int_equal(create(&w, a, "/x", 6, 0666, &x), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &b->slot), GVM_OK);
    map_object(&w, a, x);
    check_places(&w, a, x, 4, 0, 2);
    acquire(&w, b, b->slot, GVM_LEASE_WRITE);
    drop_object(&w, a, "/y");
    close_slot(&w, a, y);
    gvmi_machine_violation(w.machine, b->number, "the test says so");
    run(&w);
    ask(&w, a, x, GVM_LEASE_READ, -1);
    assert_true(granted(a));
    take(&w, a, x, GVM_LEASE_READ);
    check_places(&w, a, x, 0, 6, 0);
    assert_int_equal(gvmi_machine_held_bytes(w.machine, 0), 4 * CHUNK);
    assert_int_equal(w.machine->host.held_bytes, 2 * CHUNK);
    give(&w, a, x, GVM_LEASE_READ);
    end_fixture(&w);
}

/* The lender has room, but its own chunk waits for more. */
static void lender_lends_nothing_while_its_own_chunks_wait(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0, z = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 8);
    w.hold_jobs = true;
    a->create_device = 1;
    a->create_chunk_bytes = 4 * CHUNK;
    (void)create_of(&w, a, "/y", 16, 1, 0, GVM_OBJECT_KEEP);
    a->create_device = 0;
    a->create_chunk_bytes = 0;
    assert_true(lender(&w)->first_room != NULL && lender(&w)->leaving_bytes == 2 * CHUNK);
    (void)create_of(&w, a, "/z", 64, 1, 0, GVM_OBJECT_KEEP);
    end_jobs(&w);
    assert_null(lender(&w)->first_room);
    assert_int_equal(open_object(&w, a, "/y", 0, &y), GVM_OK);
    check_places(&w, a, y, 4, 0, 0);
    assert_int_equal(open_object(&w, a, "/z", 0, &z), GVM_OK);
    check_places(&w, a, z, 0, 0, 1);
    end_fixture(&w);
}

/* ---- from the host to memory that was to spare for a while */

/* So many seconds, with looks. */
static void pass_time(fixture *w, unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++)
        tick(w, 1000);
}

/* An object of six chunks, two of which are on the host, as the second device was full; now it is not. */
static void start_with_host(fixture *w, actor **a, uint32_t *x)
{
    uint32_t y = 0;

    start_lending(w, 8, 8);
    *a = join(w, 1);
    assert_int_equal(create_on_second(w, *a, "/y", 7, &y), GVM_OK);
    assert_int_equal(create(w, *a, "/x", 6, 0, x), GVM_OK);
    map_object(w, *a, *x);
    pass_time(w, 20);
    check_places(w, *a, *x, 4, 0, 2);
    drop_object(w, *a, "/y");
    close_slot(w, *a, y);
}

static void chunk_on_the_host_goes_to_a_lender_that_has_had_room_for_a_while(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_with_host(&w, &a, &x);
    pass_time(&w, 9);
    check_places(&w, a, x, 4, 0, 2);
    pass_time(&w, 3);
    check_places(&w, a, x, 4, 2, 0);
    map_object(&w, a, x);
    pass_time(&w, 1);
    assert_false(w.machine->objects->item.pinned); /* it may be a victim */
    end_fixture(&w);
}

/* The one that is used most is leased. */
static void object_that_cannot_borrow_does_not_hide_others(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0, z = 0;

    (void)state;
    start_lending(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create_on_second(&w, a, "/y", 7, &y), GVM_OK);
    assert_int_equal(create(&w, a, "/x", 6, 0, &x), GVM_OK);
    acquire(&w, a, x, GVM_LEASE_READ);
    assert_int_equal(create(&w, a, "/z", 2, 0, &z), GVM_OK);
    drop_object(&w, a, "/y");
    close_slot(&w, a, y);
    pass_time(&w, 12);
    check_places(&w, a, x, 4, 0, 2);
    check_places(&w, a, z, 0, 2, 0);
    give(&w, a, x, GVM_LEASE_READ);
    end_fixture(&w);
}

static void chunk_that_was_recalled_stays_on_the_host_for_a_while(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_with_host(&w, &a, &x);
    pass_time(&w, 12);
    check_places(&w, a, x, 4, 2, 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(create_on_second(&w, a, "/y", 8, &y), GVM_OK);
        check_places(&w, a, y, 8, 0, 0);
        check_places(&w, a, x, 4, 0, 2);
        pass_time(&w, i * 12); /* the first time between two looks */
        drop_object(&w, a, "/y");
        close_slot(&w, a, y);
        pass_time(&w, 9);
        check_places(&w, a, x, 4, 0, 2);
        pass_time(&w, 3);
        check_places(&w, a, x, 4, 2, 0);
    }
    end_fixture(&w);
}

/* It keeps two chunks, and as many again. */
static void lender_that_has_little_to_spare_gets_nothing_from_the_host(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0, more[2] = {0};

    (void)state;
    start_lending(&w, 16, 8);
    a = join(&w, 1);
    assert_int_equal(create_on_second(&w, a, "/y", 11, &y), GVM_OK);
    assert_int_equal(create_on_second(&w, a, "/0", 2, &more[0]), GVM_OK);
    assert_int_equal(create_on_second(&w, a, "/1", 1, &more[1]), GVM_OK);
    assert_int_equal(create(&w, a, "/x", 6, 0, &x), GVM_OK);
    check_places(&w, a, x, 4, 0, 2);
    drop_object(&w, a, "/0");
    close_slot(&w, a, more[0]);
    pass_time(&w, 30);
    check_places(&w, a, x, 4, 0, 2);
    drop_object(&w, a, "/1");
    close_slot(&w, a, more[1]);
    pass_time(&w, 12);
    check_places(&w, a, x, 4, 1, 1);
    end_fixture(&w);
}

static void chunk_that_nobody_uses_stays_on_the_host(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, z = 0;

    (void)state;
    start_lending(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 2, 0, &x), GVM_OK);
    assert_int_equal(evict(&w, a, "/x"), 2 * CHUNK);
    assert_int_equal(create(&w, a, "/z", 4, 0, &z), GVM_OK);
    acquire(&w, a, z, GVM_LEASE_READ); /* so that it stays */
    pass_time(&w, 30);
    check_places(&w, a, x, 0, 0, 2);
    map_object(&w, a, x);
    pass_time(&w, 2);
    check_places(&w, a, x, 0, 2, 0);
    give(&w, a, z, GVM_LEASE_READ);
    end_fixture(&w);
}

static void leased_chunk_on_the_host_stays_there(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_with_host(&w, &a, &x);
    acquire(&w, a, x, GVM_LEASE_READ);
    pass_time(&w, 12);
    check_places(&w, a, x, 4, 0, 2);
    give(&w, a, x, GVM_LEASE_READ);
    pass_time(&w, 1);
    check_places(&w, a, x, 4, 2, 0);
    end_fixture(&w);
}

static void copy_to_a_lender_without_memory_is_not_repeated_at_once(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_with_host(&w, &a, &x);
    pass_time(&w, 9);
    w.hold_jobs = true;
    pass_time(&w, 2);
    assert_int_equal(w.job_count, 2);
    end_jobs_without_memory(&w, 1);
    pass_time(&w, 9);
    assert_int_equal(w.job_count, 0);
    check_places(&w, a, x, 4, 0, 2);
    pass_time(&w, 3);
    assert_int_equal(w.job_count, 2);
    end_jobs(&w);
    check_places(&w, a, x, 4, 2, 0);
    end_fixture(&w);
}

static void ask_for_cpu(fixture *w, actor *a, uint32_t slot)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_ACQUIRE, 12);
    m.body.ACQUIRE = (gvmi_wire_acquire){.slot = slot,
                                         .mode = GVM_LEASE_READ,
                                         .hint = GVM_HINT_ONCE,
                                         .timeout_ms = -1,
                                         .flags = GVM_ACQUIRE_CPU};
    say(w, a, &m);
}

static void request_for_the_cpu_has_lent_chunks_moved_to_the_host(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 6);
    ask_for_cpu(&w, a, x);
    assert_true(granted(a));
    take(&w, a, x, GVM_LEASE_READ);
    check_places(&w, a, x, 0, 0, 6);
    give(&w, a, x, GVM_LEASE_READ);
    end_fixture(&w);
}

static void request_for_the_cpu_fails_where_the_host_has_no_room_for_lent_chunks(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 5);
    ask_for_cpu(&w, a, x);
    assert_int_equal(reply_status(a), GVM_E_NOMEM);
    end_fixture(&w);
}

/* What an administrator evicts goes to the host, as the contract says. */
static void evict_moves_to_the_host(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_lending(&w, 4, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 2, 0, &x), GVM_OK);
    assert_int_equal(evict(&w, a, "/x"), 2 * CHUNK);
    check_places(&w, a, x, 0, 0, 2);
    end_fixture(&w);
}

/* It does not answer what replaces the lent chunks: they are the lender's only when its process has ended. */
static void client_that_is_cut_off_holds_memory_of_the_lender(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t x = 0, y = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 8);
    b = join(&w, 1);
    assert_int_equal(open_object(&w, b, "/x", 0, &x), GVM_OK);
    map_object(&w, b, x);
    b->deaf = true;
    a->create_device = 1;
    (void)create_of(&w, a, "/y", 64, 4, 0, 0);
    assert_int_equal(lender(&w)->leaving_bytes, 2 * CHUNK);
    tick(&w, 1100);
    assert_true(b->cut);
    assert_int_equal(lender(&w)->leaving_bytes, 0);
    assert_int_equal(gvmi_machine_held_bytes(w.machine, 1), 2 * CHUNK);
    assert_int_equal(gvmi_machine_held_bytes(w.machine, 0), 0);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_OPENED); /* two are on the host */
    y = a->slot;
    check_places(&w, a, y, 2, 0, 2);
    gvmi_machine_exited(w.machine, b->number);
    b->forgotten = true;
    run(&w);
    assert_int_equal(gvmi_machine_held_bytes(w.machine, 1), 0);
    end_fixture(&w);
}

static void object_that_ends_gives_lent_memory_back(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 0);
    drop_object(&w, a, "/x");
    close_slot(&w, a, x);
    assert_int_equal(lender(&w)->place.lent_bytes, 0);
    assert_null(w.machine->borrowers);
    end_fixture(&w);
}

static void host_object_borrows_nothing(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0;

    (void)state;
    start_lending(&w, 4, 8);
    a = join(&w, 1);
    a->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(&w, a, "/x", 4, 0, &x), GVM_OK);
    check_places(&w, a, x, 0, 0, 4);
    end_fixture(&w);
}

static void lent_chunks_are_listed_and_counted_at_the_lender(void **state)
{
    fixture w;
    actor *a;
    gvmi_wire_message m;
    gvmi_snapshot_device second = {0};
    uint32_t x = 0;

    (void)state;
    start_with_lent(&w, &a, &x, 8);
    gvmi_wire_start(&m, GVMI_WIRE_LIST_CHUNKS, 20);
    strcpy(m.body.LIST_CHUNKS.name, "/x");
    say(&w, a, &m);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_CHUNK_STATES);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(last(a)->tail.bytes[i], i < 4 ? GVM_CHUNK_DEVICE : GVM_CHUNK_LENT);
    gvmi_keep_describe_device(w.machine, 1, &second);
    assert_int_equal(second.lent_bytes, 2 * CHUNK);
    assert_int_equal(second.resident_bytes, 2 * CHUNK);
    end_fixture(&w);
}

/* Device 0 of the keeper is the second that it was started with. */
static void trim_names_the_device_by_its_ordinal(void **state)
{
    gvmi_machine_config config = small_config(4, 4);
    gvmi_wire_message m;
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    config.device_count = 2;
    config.devices[1] = config.devices[0];
    config.devices[0].ordinal = 3;
    config.devices[1].uuid[0] = 8;
    start_fixture_as(&w, &config);
    a = join(&w, KEEPER_UID);
    assert_int_equal(create_on_second(&w, a, "/x", 2, &slot), GVM_OK);
    close_slot(&w, a, slot);
    drop_object(&w, a, "/x");
    assert_int_equal(lender(&w)->place.free_bytes, 2 * CHUNK);
    gvmi_wire_start(&m, GVMI_WIRE_TRIM, 20);
    for (m.body.TRIM.device = 1; m.body.TRIM.device < 4; m.body.TRIM.device++) {
        say(&w, a, &m);
        assert_int_equal(reply_status(a), m.body.TRIM.device == 3 ? GVM_OK : GVM_E_INVALID);
        assert_int_equal(lender(&w)->place.free_bytes, 2 * CHUNK);
    }
    m.body.TRIM.device = 0;
    say(&w, a, &m);
    assert_int_equal(last(a)->body.DONE.value, 2 * CHUNK);
    assert_int_equal(lender(&w)->place.used_bytes, 0);
    end_fixture(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(object_larger_than_its_device_is_partly_lent_by_another),
        cmocka_unit_test(device_that_may_not_lend_lends_nothing),
        cmocka_unit_test(device_keeps_a_part_that_it_does_not_lend),
        cmocka_unit_test(evicted_chunk_goes_to_a_lender_and_is_unmapped),
        cmocka_unit_test(evicted_chunk_goes_to_the_host_where_the_lender_has_no_memory_after_all),
        cmocka_unit_test(hot_request_waits_for_an_object_that_moves_and_has_lent_memory),
        cmocka_unit_test(lent_memory_is_counted_as_room_as_far_as_it_is_wanted),
        cmocka_unit_test(lent_memory_that_has_nowhere_to_go_is_no_room),
        cmocka_unit_test(lent_memory_that_has_a_place_on_the_host_is_room_as_far_as_that_goes),
        cmocka_unit_test(chunks_of_a_writer_that_is_cut_off_go_to_other_lent_memory),
        cmocka_unit_test(chunks_of_a_writer_that_is_cut_off_go_from_the_host_to_a_lender),
        cmocka_unit_test(lender_lends_nothing_while_its_own_chunks_wait),
        cmocka_unit_test(chunk_on_the_host_goes_to_a_lender_that_has_had_room_for_a_while),
        cmocka_unit_test(object_that_cannot_borrow_does_not_hide_others),
        cmocka_unit_test(chunk_that_was_recalled_stays_on_the_host_for_a_while),
        cmocka_unit_test(lender_that_has_little_to_spare_gets_nothing_from_the_host),
        cmocka_unit_test(chunk_that_nobody_uses_stays_on_the_host),
        cmocka_unit_test(leased_chunk_on_the_host_stays_there),
        cmocka_unit_test(copy_to_a_lender_without_memory_is_not_repeated_at_once),
        cmocka_unit_test(request_for_the_cpu_has_lent_chunks_moved_to_the_host),
        cmocka_unit_test(request_for_the_cpu_fails_where_the_host_has_no_room_for_lent_chunks),
        cmocka_unit_test(evict_moves_to_the_host),
        cmocka_unit_test(client_that_is_cut_off_holds_memory_of_the_lender),
        cmocka_unit_test(object_that_ends_gives_lent_memory_back),
        cmocka_unit_test(host_object_borrows_nothing),
        cmocka_unit_test(lent_chunks_are_listed_and_counted_at_the_lender),
        cmocka_unit_test(trim_names_the_device_by_its_ordinal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
