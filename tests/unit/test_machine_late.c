/* The keeper's machine: clients that do not answer, what they are sent, and when they are late. */
#include "base/size.h"
#include "tests/unit/machine_pair.h"

/* ---- what a client that does not answer is sent */

static void growth_by_bytes_sends_one_map_to_who_has_others_to_answer(void **state)
{
    pair p;
    gvmi_wire_message m;

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, 0);
    p.b->deaf = true;
    for (uint64_t i = 1; i <= 50; i++) {
        gvmi_wire_start(&m, GVMI_WIRE_GROW, 30 + i);
        m.body.GROW = (gvmi_wire_grow){.slot = p.a_slot, .bytes = 2 * CHUNK + i};
        say(&p.w, p.a, &m);
        assert_int_equal(last(p.a)->head.type, GVMI_WIRE_DONE);
    }
    assert_ptr_equal(p.b->map, p.b->maps); /* one, of the first growth, which made a chunk */
    p.b->deaf = false;
    say_mapped(&p.w, p.b, p.b->map);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    assert_true(granted(p.b));
    end_fixture(&p.w);
}

/* What b was not sent, as it has others to answer, comes before the reply that tells it the same. */
static void growth_to_a_size_that_is_reached_tells_the_size_before_it_is_answered(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    p.b->deaf = true;
    assert_int_equal(grow(&p.w, p.a, p.a_slot, 2 * CHUNK + 1), GVM_OK);
    assert_int_equal(grow(&p.w, p.a, p.a_slot, 2 * CHUNK + 2), GVM_OK);
    assert_int_equal(p.b->map->bytes, 2 * CHUNK + 1);
    assert_int_equal(grow(&p.w, p.b, p.b_slot, 2 * CHUNK + 2), GVM_OK);
    assert_int_equal(last(p.b)->head.type, GVMI_WIRE_DONE);
    assert_int_equal(p.b->map->bytes, 2 * CHUNK + 2);
    say_mapped(&p.w, p.b, &p.b->maps[0]);
    say_mapped(&p.w, p.b, &p.b->maps[1]);
    assert_ptr_equal(p.b->map, &p.b->maps[1]); /* once */
    end_fixture(&p.w);
}

static void seal_of_what_is_sealed_tells_it_before_it_is_answered(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    p.b->deaf = true;
    assert_int_equal(grow(&p.w, p.a, p.a_slot, 3 * CHUNK), GVM_OK);
    ask_seal(&p.w, p.a, p.a_slot);
    assert_int_equal(p.b->map->sealed, 0);
    ask_seal(&p.w, p.b, p.b_slot);
    assert_int_equal(last(p.b)->head.type, GVMI_WIRE_DONE);
    assert_int_equal(p.b->map->sealed, 1);
    end_fixture(&p.w);
}

static void opening_beyond_16_of_an_object_is_refused(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, OWNER);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot), GVM_OK);
    for (unsigned i = 1; i < KEEP_CLIENT_OPENINGS_MAX; i++)
        assert_int_equal(open_object(&w, a, "/x", 0, &slot), GVM_OK);
    assert_int_equal(open_object(&w, a, "/x", 0, &slot), GVM_E_LIMIT);
    end_fixture(&w);
}

/* A chunk for which what leaves the device is too little keeps nobody from the room that there is. */
static void chunk_that_gets_no_room_by_moves_does_not_wait_for_them(void **state)
{
    actor *c, *d;
    pair p;

    (void)state;
    start_pair(&p, 4, 1, 0, OWNER, 0);
    c = join(&p.w, OWNER);
    d = join(&p.w, OWNER);
    assert_int_equal(grow(&p.w, p.a, p.a_slot, 3 * CHUNK), GVM_OK);
    map_object(&p.w, p.b, p.b_slot);
    p.b->deaf = true;
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
    assert_int_equal(p.w.machine->devices[0].leaving_bytes, CHUNK);
    c->create_chunk_bytes = 4 * CHUNK;
    assert_int_equal(create_of(&p.w, c, "/large", 1, 1, 0, 0), GVM_E_NOSPACE);
    assert_int_equal(create_of(&p.w, d, "/small", 1, 1, 0, 0), GVM_OK);
    assert_int_equal(last(d)->head.type, GVMI_WIRE_OPENED);
    c->create_chunk_bytes = 2 * CHUNK; /* of this size there is room soon */
    c->latest.head.type = 0;
    close_slot(&p.w, d, d->slot);
    assert_int_equal(create_of(&p.w, c, "/medium", 1, 1, 0, 0), GVM_OK);
    assert_int_equal(last(c)->head.type, 0);
    p.b->deaf = false;
    say_mapped(&p.w, p.b, p.b->map);
    assert_int_equal(last(c)->head.type, GVMI_WIRE_OPENED);
    end_fixture(&p.w);
}

/* What leaves brings the device no further than to its budget. */
static void chunk_beyond_a_lowered_budget_does_not_wait_for_moves(void **state)
{
    actor *c;
    pair p;

    (void)state;
    start_pair(&p, 4, 1, 0, OWNER, 0);
    c = join(&p.w, OWNER);
    assert_int_equal(grow(&p.w, p.a, p.a_slot, 4 * CHUNK), GVM_OK);
    map_object(&p.w, p.b, p.b_slot);
    p.b->deaf = true;
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
    c->latest.head.type = 0;
    assert_int_equal(create_of(&p.w, c, "/small", 1, 1, 0, 0), GVM_OK);
    assert_int_equal(last(c)->head.type, 0); /* it waits */
    gvmi_machine_driver_memory(p.w.machine, 0, 0, 0, 3 * CHUNK);
    tick(&p.w, 0);
    assert_int_equal(reply_status(c), GVM_E_NOSPACE);
    p.b->deaf = false;
    say_mapped(&p.w, p.b, p.b->map);
    end_fixture(&p.w);
}

/* ---- who is late */

static bool something_unread;

static bool is_unread(void *context, uint32_t client)
{
    (void)context;
    (void)client;
    return something_unread;
}

/* The second client does not answer the MAP of an eviction, and the keeper has not read all that it sent. */
static void start_unread_evict(pair *p)
{
    gvmi_machine_config config = small_config(8, 8);

    config.unread = is_unread;
    start_pair_as(p, &config, 0, OWNER, 0);
    p->b->deaf = true;
    begin_evict(&p->w, p->a, "/x");
    something_unread = true;
}

static void client_whose_answer_is_not_read_yet_has_twice_the_time(void **state)
{
    pair p;

    (void)state;
    start_unread_evict(&p);
    tick(&p.w, 1100);
    assert_false(p.b->cut);
    tick(&p.w, 1000); /* a client must not put it off for ever */
    assert_true(p.b->cut);
    end_fixture(&p.w);
}

/* Later MAPs do not extend the deadline of an earlier one. */
static void client_that_is_asked_ever_more_has_no_more_than_twice_the_time(void **state)
{
    pair p;
    uint32_t slot = 0;

    (void)state;
    start_unread_evict(&p);
    assert_int_equal(create(&p.w, p.b, "/y", 1, 0, &slot), GVM_OK);
    tick(&p.w, 900);
    ask(&p.w, p.b, slot, GVM_LEASE_READ, -1); /* its MAP is not answered, too */
    assert_int_equal(p.b->map->slot, slot);
    tick(&p.w, 1000);
    assert_false(p.b->cut);
    tick(&p.w, 200); /* the later one is late now, but not by twice the time */
    assert_true(p.b->cut);
    end_fixture(&p.w);
}

/* The system lets it be sent nothing: that is not its doing. */
static void client_that_could_not_be_sent_its_map_is_not_late(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    p.b->deaf = true;
    begin_evict(&p.w, p.a, "/x");
    for (int i = 0; i < 30; i++) {
        gvmi_machine_delayed(p.w.machine, p.b->number);
        tick(&p.w, 100);
    }
    assert_false(p.b->cut);
    tick(&p.w, 850);
    assert_false(p.b->cut); /* it has its time from when it was sent it */
    tick(&p.w, 200);
    assert_true(p.b->cut);
    end_fixture(&p.w);
}

/* What others have to map, too, as the driver maps for one process after the other. */
static void client_that_has_much_host_memory_to_map_has_longer(void **state)
{
    enum { GIBS = GVMI_MAP_ALL_CHUNKS_MAX, ALLOWED_MS = 295 }; /* for each client, of one MAP */
    gvmi_machine_config config = small_config(1, 0);
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    config.host_budget_bytes = GIBS * GVMI_GIB;
    start_fixture_as(&w, &config);
    a = join(&w, OWNER);
    b = join(&w, OWNER);
    a->create_chunk_bytes = GVMI_GIB;
    assert_int_equal(create(&w, a, "/x", GIBS, 0666, &slot), GVM_OK);
    a->deaf = b->deaf = true;
    ask(&w, a, slot, GVM_LEASE_READ, -1);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot), GVM_OK);
    ask(&w, b, slot, GVM_LEASE_READ, -1);
    tick(&w, 1000 + ALLOWED_MS - 100);
    assert_false(a->cut);
    assert_false(b->cut);
    tick(&w, 200);
    assert_true(a->cut);
    assert_false(b->cut); /* a was to map at the same time */
    tick(&w, ALLOWED_MS);
    assert_true(b->cut);
    end_fixture(&w);
}

/* However many openings of one client have how much to map. */
static void mapping_adds_three_revoke_timeouts_at_most(void **state)
{
    gvmi_machine_config config = small_config(1, 0);
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    config.host_budget_bytes = GVMI_MAP_ALL_CHUNKS_MAX * GVMI_GIB;
    config.revoke_limit_ms = 100;
    start_fixture_as(&w, &config);
    a = join(&w, OWNER);
    b = join(&w, OTHER);
    a->create_chunk_bytes = GVMI_GIB;
    assert_int_equal(create(&w, a, "/x", GVMI_MAP_ALL_CHUNKS_MAX, 0666, &slot), GVM_OK);
    a->deaf = b->deaf = true;
    for (int i = 0; i < 3; i++) /* 295 ms each */
        assert_int_equal(open_object(&w, a, "/x", GVM_OPEN_MAPPED, &slot), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", GVM_OPEN_MAPPED, &slot), GVM_OK);
    tick(&w, 350);
    assert_false(b->cut);
    tick(&w, 100);
    assert_true(b->cut);
    end_fixture(&w);
}

/* Its own request, which waits for its own lease, does not spare a client. */
static void lease_kept_too_long_is_cut_off_though_its_client_waits_first(void **state)
{
    gvmi_machine_config config = small_config(8, 8);
    pair p;

    (void)state;
    config.lease_limit_ms = 500;
    start_pair_as(&p, &config, 0, OWNER, 0);
    acquire(&p.w, p.a, p.a_slot, GVM_LEASE_WRITE);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1); /* another thread's */
    tick(&p.w, 600);
    assert_false(p.a->cut); /* it keeps nobody else waiting */
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_READ, -1);
    tick(&p.w, 400);
    assert_false(p.a->cut); /* only b's waiting counts */
    tick(&p.w, 200);
    assert_true(p.a->cut);
    assert_true(granted(p.b));
    end_fixture(&p.w);
}

/* Its writer waits for its own reader, and another's reader behind that. */
static void read_lease_kept_too_long_is_cut_off_though_its_client_wants_to_write(void **state)
{
    gvmi_machine_config config = small_config(8, 8);
    pair p;

    (void)state;
    config.lease_limit_ms = 500;
    start_pair_as(&p, &config, 0, OWNER, 0);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    take(&p.w, p.a, p.a_slot, GVM_LEASE_READ);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_WRITE, -1);
    tick(&p.w, 600);
    assert_false(p.a->cut);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_READ, -1);
    tick(&p.w, 600);
    assert_true(p.a->cut);
    assert_true(granted(p.b));
    end_fixture(&p.w);
}

/* ---- leases of collections */

#define REGIONS (GVM_OBJECT_UNTRACKED | GVM_OBJECT_HOST | GVM_OBJECT_REGIONS)

static bool failed_with(const actor *a, const char *text)
{
    return last(a)->head.type == GVMI_WIRE_FAILED && reply_status(a) == GVM_E_TIMEOUT &&
           strstr(last(a)->body.FAILED.text, text) != NULL;
}

static void who_wants_to_write_regions_does_not_wait_for_collections(void **state)
{
    gvmi_machine_config config = small_config(8, 8);
    pair p;

    (void)state;
    config.lease_limit_ms = 500;
    start_pair_as(&p, &config, REGIONS, OTHER, 0);
    acquire(&p.w, p.a, p.a_slot, GVM_LEASE_READ);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE, -1);
    assert_true(failed_with(p.b, "has attached"));
    ask_seal(&p.w, p.a, p.a_slot);
    assert_true(failed_with(p.a, "has attached"));
    tick(&p.w, 2000);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_READ); /* nobody waits ahead of it */
    assert_false(p.a->cut || p.b->cut);
    give(&p.w, p.a, p.a_slot, GVM_LEASE_READ);
    give(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    tick(&p.w, 600);
    assert_true(p.b->cut && granted(p.a)); /* a lease to write is as any other */
    end_fixture(&p.w);
}

/* A neighbour that was cut off and lives on. */
static void collection_is_not_cut_off_for_who_waits_behind_a_fence(void **state)
{
    gvmi_machine_config config = small_config(8, 8);
    uint32_t slot = 0;
    actor *c;
    pair p;

    (void)state;
    config.lease_limit_ms = 500;
    start_pair_as(&p, &config, REGIONS, OTHER, 0);
    c = join(&p.w, OTHER);
    assert_int_equal(open_object(&p.w, c, "/x", 0, &slot), GVM_OK);
    map_object(&p.w, c, slot);
    acquire(&p.w, p.a, p.a_slot, GVM_LEASE_READ);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    cut_off(&p.w, p.b);
    ask(&p.w, c, slot, GVM_LEASE_READ, 1000);
    tick(&p.w, 600);
    assert_false(granted(c));
    tick(&p.w, 600);
    assert_true(failed_with(c, "was cut off and may still write to the object"));
    assert_true(failed_with(c, "while others have leases on it"));
    assert_false(p.a->cut);
    ask(&p.w, c, slot, GVM_LEASE_READ, -1);
    gvmi_machine_exited(p.w.machine, p.b->number);
    run(&p.w);
    assert_true(granted(c));
    end_fixture(&p.w);
}

/* ---- who ends a lease and is stopped before it rings */

static void lease_that_ended_without_a_doorbell_is_found_at_the_next_look(void **state)
{
    static const gvm_lease_mode modes[] = {GVM_LEASE_READ, GVM_LEASE_WRITE};
    pair p;

    (void)state;
    for (int i = 0; i < 2; i++) {
        start_pair(&p, 8, 8, 0, OTHER, 0);
        acquire(&p.w, p.a, p.a_slot, modes[i]);
        ask(&p.w, p.b, p.b_slot, i == 0 ? GVM_LEASE_WRITE : GVM_LEASE_READ, -1);
        tick(&p.w, 200);
        assert_false(granted(p.b));
        atomic_fetch_sub(&p.a->leases[p.a_slot].word, i == 0 ? GVMI_LEASE_READER : GVMI_LEASE_WRITER);
        tick(&p.w, 100);
        assert_true(granted(p.b));
        end_fixture(&p.w);
    }
}

/* ---- who gives up an acquire that is granted just then */

static void opening_that_is_closed_with_a_grant_on_its_way_was_no_writer(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_a = 0, slot_b = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/w", 2, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/w", 0, &slot_b), GVM_OK);
    ask(&w, b, slot_b, GVM_LEASE_WRITE, -1);
    assert_true(granted(b));
    close_slot(&w, b, slot_b);
    assert_int_equal(info(&w, a, slot_a).interrupted, 0);
    acquire(&w, a, slot_a, GVM_LEASE_WRITE);
    end_fixture(&w);
}

/* The reply was never sent, so the object is not kept. */
static void creation_whose_client_ends_leaves_nothing(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 4, 4);
    a = join(&w, 1);
    b = join(&w, 1);
    w.hold_jobs = true;
    (void)create(&w, b, "/x", 2, 0, &slot);
    gvmi_machine_disconnect(w.machine, b->number);
    run(&w);
    gvmi_machine_exited(w.machine, b->number);
    end_jobs(&w);
    assert_null(w.machine->objects);
    assert_int_equal(create(&w, a, "/x", 4, 0, &slot), GVM_OK);
    end_fixture(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_by_bytes_sends_one_map_to_who_has_others_to_answer),
        cmocka_unit_test(growth_to_a_size_that_is_reached_tells_the_size_before_it_is_answered),
        cmocka_unit_test(seal_of_what_is_sealed_tells_it_before_it_is_answered),
        cmocka_unit_test(opening_beyond_16_of_an_object_is_refused),
        cmocka_unit_test(chunk_that_gets_no_room_by_moves_does_not_wait_for_them),
        cmocka_unit_test(chunk_beyond_a_lowered_budget_does_not_wait_for_moves),
        cmocka_unit_test(client_whose_answer_is_not_read_yet_has_twice_the_time),
        cmocka_unit_test(client_that_is_asked_ever_more_has_no_more_than_twice_the_time),
        cmocka_unit_test(client_that_could_not_be_sent_its_map_is_not_late),
        cmocka_unit_test(client_that_has_much_host_memory_to_map_has_longer),
        cmocka_unit_test(mapping_adds_three_revoke_timeouts_at_most),
        cmocka_unit_test(lease_kept_too_long_is_cut_off_though_its_client_waits_first),
        cmocka_unit_test(read_lease_kept_too_long_is_cut_off_though_its_client_wants_to_write),
        cmocka_unit_test(who_wants_to_write_regions_does_not_wait_for_collections),
        cmocka_unit_test(collection_is_not_cut_off_for_who_waits_behind_a_fence),
        cmocka_unit_test(lease_that_ended_without_a_doorbell_is_found_at_the_next_look),
        cmocka_unit_test(opening_that_is_closed_with_a_grant_on_its_way_was_no_writer),
        cmocka_unit_test(creation_whose_client_ends_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
