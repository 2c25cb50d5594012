/* The keeper's machine: what is too long for one event and is done in turns, a part in each.
 *
 * That a part is short is shown by how much it does, not by time. */
#include "tests/unit/machine_pair.h"

/* ---- requests that can be answered at once */

/* Of a writer's object, with 600 requests of one reader's that wait. */
static void start_queue(fixture *w, actor **writer, actor **reader, uint32_t slots[2], int timeout_ms)
{
    start_users(w, 32, 64);
    *writer = join(w, 1);
    *reader = join(w, 1);
    assert_int_equal(create(w, *writer, "/x", 1, 0600, &slots[0]), GVM_OK);
    assert_int_equal(open_object(w, *reader, "/x", 0, &slots[1]), GVM_OK);
    map_object(w, *reader, slots[1]); /* or the answer to the MAPs of the first would be another event */
    acquire(w, *writer, slots[0], GVM_LEASE_WRITE);
    for (unsigned i = 0; i < 600; i++)
        ask(w, *reader, slots[1], GVM_LEASE_READ, timeout_ms);
    assert_int_equal(w->machine->taken[KEEP_WAITS], 600);
}

static void leases_for_many_are_granted_in_turns(void **state)
{
    fixture w;
    actor *writer, *reader, *other;
    uint32_t slots[2], slot = 0;
    const keep_opening *opening;

    (void)state;
    start_queue(&w, &writer, &reader, slots, 10);
    opening = w.machine->clients[reader->number - 1]->slots[slots[1]];
    give(&w, writer, slots[0], GVM_LEASE_WRITE);
    assert_int_equal(opening->granted_readers, 256);
    assert_true(gvmi_machine_check(w.machine));
    assert_int_equal(gvmi_machine_deadline(w.machine), w.now_ns);

    /* Nobody behind gets the error that it took too long. */
    other = join(&w, 1);
    assert_int_equal(open_object(&w, other, "/x", 0, &slot), GVM_OK);
    other->latest.head.type = 0;
    tick(&w, 20);
    assert_int_equal(w.machine->timeouts, 0);
    writer->latest.head.type = 0;
    ask(&w, writer, slots[0], GVM_LEASE_WRITE, -1);
    ask(&w, other, slot, GVM_LEASE_READ, 0);
    assert_false(granted(other));
    assert_int_equal(w.machine->timeouts, 0);

    while (work(&w))
        assert_int_equal(w.machine->timeouts, 0);
    assert_int_equal(opening->granted_readers, 600);
    assert_false(granted(writer)); /* in its place: behind readers, before who came later */
    tick(&w, 1);
    assert_int_equal(reply_status(other), GVM_E_TIMEOUT);
    assert_true(gvmi_machine_deadline(w.machine) > w.now_ns);
    end_fixture(&w);
}

/* One whose writer has left many waiting does not keep others waiting for all of its turns. */
static void objects_with_many_requests_are_served_in_rotation(void **state)
{
    fixture w;
    actor *writer, *reader;
    uint32_t slots[2], mine[2] = {0, 0};
    const keep_client *client;

    (void)state;
    start_queue(&w, &writer, &reader, slots, -1);
    assert_int_equal(create(&w, writer, "/y", 1, 0600, &mine[0]), GVM_OK);
    assert_int_equal(open_object(&w, reader, "/y", 0, &mine[1]), GVM_OK);
    map_object(&w, reader, mine[1]);
    acquire(&w, writer, mine[0], GVM_LEASE_WRITE);
    for (unsigned i = 0; i < 400; i++)
        ask(&w, reader, mine[1], GVM_LEASE_READ, -1);
    client = w.machine->clients[reader->number - 1];
    atomic_store(&writer->leases[slots[0]].word, 0);
    give(&w, writer, mine[0], GVM_LEASE_WRITE); /* one doorbell for both */
    assert_int_equal(w.machine->taken[KEEP_WAITS], 1000 - 256);
    assert_true(work(&w));
    assert_int_equal(w.machine->taken[KEEP_WAITS], 1000 - 2 * 256);
    assert_true(client->slots[slots[1]]->granted_readers >= 128);
    assert_true(client->slots[mine[1]]->granted_readers >= 128);
    end_fixture(&w);
}

static void object_that_ends_among_those_to_be_served_is_freed(void **state)
{
    fixture w;
    actor *writer, *reader;
    uint32_t slots[2];

    (void)state;
    start_queue(&w, &writer, &reader, slots, -1);
    give(&w, writer, slots[0], GVM_LEASE_WRITE);
    leave(&w, reader);
    assert_int_equal(w.machine->taken[KEEP_WAITS], 0);
    drop_object(&w, w.actors, "/x");
    close_slot(&w, w.actors, slots[0]);
    assert_non_null(w.machine->objects);
    assert_false(work(&w));
    assert_null(w.machine->objects);
    end_fixture(&w);
}

static void requests_that_waited_too_long_are_answered_in_slices(void **state)
{
    fixture w;
    actor *writer, *reader;
    uint32_t slots[2];

    (void)state;
    start_queue(&w, &writer, &reader, slots, 10);
    ask(&w, reader, slots[1], GVM_LEASE_READ, 20);
    tick(&w, 12);
    assert_true(w.machine->timeouts > 0 && w.machine->timeouts <= 256);
    assert_true(gvmi_machine_deadline(w.machine) <= w.now_ns);
    assert_true(gvmi_machine_check(w.machine));
    ask(&w, writer, slots[0], GVM_LEASE_WRITE, 4); /* of a client that was looked at already */
    for (unsigned ticks = 0; w.machine->timeouts < 600; ticks++) {
        assert_true(ticks < 4);
        tick(&w, 0);
    }
    tick(&w, 0);
    assert_int_equal(gvmi_machine_deadline(w.machine), w.now_ns + 4 * MS);
    tick(&w, 4);
    assert_int_equal(reply_status(writer), GVM_E_TIMEOUT);
    assert_int_equal(gvmi_machine_deadline(w.machine), w.now_ns + 4 * MS);
    tick(&w, 4);
    assert_int_equal(w.machine->timeouts, 602);
    end_fixture(&w);
}

static void reader_among_readers_changes_no_permit(void **state)
{
    const uint64_t mark = 0x5a5a;
    fixture w;
    actor *a, *b;
    uint32_t slot = 0, other = 0;
    uint64_t before;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0600, &slot), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &other), GVM_OK);
    acquire(&w, a, slot, GVM_LEASE_READ);
    before = permit(b, other);
    atomic_store(&b->permits[other].word, mark);
    acquire(&w, a, slot, GVM_LEASE_READ);
    assert_int_equal(permit(b, other), mark);
    atomic_store(&b->permits[other].word, before);
    end_fixture(&w);
}

static void growths_that_are_over_at_once_are_answered_in_turns(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0600, &slot), GVM_OK);
    w.hold_jobs = true;
    for (unsigned i = 0; i < 400; i++)
        (void)grow(&w, a, slot, 2 * CHUNK - i);
    assert_int_equal(w.job_count, 1);
    assert_int_equal(w.machine->taken[KEEP_GROWTHS], 400);
    gvmi_machine_job_done(w.machine, w.jobs[--w.job_count], GVM_OK);
    assert_int_equal(w.machine->taken[KEEP_GROWTHS], 400 - 128); /* each looks at an opening */
    run(&w);
    for (unsigned turns = 0; work(&w); turns++)
        assert_true(turns < 400 / 128 + 1);
    assert_int_equal(w.machine->taken[KEEP_GROWTHS], 0);
    end_fixture(&w);
}

/* Though they change nothing, all chunks are looked at. */
static void evictions_and_growths_of_many_chunks_are_carried_out_in_turns(void **state)
{
    const uint32_t chunks = 1024, count = 100;
    const gvmi_machine_config config = small_config(4, chunks + 1);
    fixture w;
    actor *a;
    uint32_t slot;

    (void)state;
    start_fixture_as(&w, &config);
    w.unchecked = true;
    a = join(&w, 1);
    assert_int_equal(create_of(&w, a, "/x", chunks + 1, chunks, 0600, 0), GVM_OK);
    slot = a->slot;
    w.hold_jobs = true;
    for (unsigned i = 0; i < count; i++)
        begin_evict(&w, a, "/x");
    assert_int_equal(w.job_count, 4);
    assert_int_equal(w.machine->taken[KEEP_WAITS], count - 1);
    while (w.job_count > 0)
        gvmi_machine_job_done(w.machine, w.jobs[--w.job_count], GVM_OK);
    assert_true(w.machine->taken[KEEP_WAITS] > count - KEEP_SERVED_MAX * 256 / chunks / 2);
    for (unsigned turns = 0; work(&w); turns++)
        assert_true(turns < 4);
    assert_int_equal(w.machine->taken[KEEP_WAITS], 0);

    for (unsigned i = 0; i < count; i++)
        (void)grow(&w, a, slot, (chunks + 1) * CHUNK - i);
    gvmi_machine_job_done(w.machine, w.jobs[--w.job_count], GVM_OK);
    assert_true(w.machine->taken[KEEP_GROWTHS] > count - KEEP_SERVED_MAX * 256 / chunks);
    while (work(&w))
        continue;
    assert_int_equal(w.machine->taken[KEEP_GROWTHS], 0);
    end_fixture(&w);
}

/* Requests that awaited the end of a move and were not looked at again yet. */
static uint32_t count_unplanned(const fixture *w)
{
    uint32_t count = 0;

    for (const keep_object *o = w->machine->objects; o != NULL; o = o->next)
        for (const keep_wait *wait = o->first_wait; wait != NULL; wait = wait->next)
            count += wait->thaws == 1 && !wait->awaits_thaw && !wait->considered;
    return count;
}

/* A plan may look at many objects: it counts as several requests. */
static void hot_requests_that_a_move_kept_waiting_are_planned_in_turns(void **state)
{
    const uint32_t count = 2 * KEEP_SERVED_MAX;
    gvmi_machine_config config = small_config(4, count + 4);
    fixture w;
    actor *a;
    uint32_t slot = 0;
    char name[16];

    (void)state;
    config.objects_max = 2 * count;
    start_fixture_as(&w, &config);
    w.unchecked = true;
    a = join(&w, KEEPER_UID);
    assert_int_equal(create(&w, a, "/x", 4, 0, &slot), GVM_OK);
    a->create_flags = GVM_OBJECT_HOST;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "/y/%u", i);
        assert_int_equal(create(&w, a, name, 1, 0, &slot), GVM_OK);
    }
    w.hold_jobs = true;
    begin_evict(&w, a, "/x");
    assert_int_equal(w.job_count, 4);
    for (uint32_t i = 0; i < count; i++)
        ask_with_hint(&w, a, slot - i, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_int_equal(w.machine->taken[KEEP_WAITS], count);
    assert_true(gvmi_machine_check(w.machine));
    while (w.job_count > 1) {
        gvmi_machine_job_done(w.machine, w.jobs[--w.job_count], GVM_OK);
        run(&w);
    }
    assert_int_equal(count_unplanned(&w), 0);
    gvmi_machine_job_done(w.machine, w.jobs[--w.job_count], GVM_OK);
    run(&w);
    assert_true(count_unplanned(&w) >= count - KEEP_SERVED_MAX);
    assert_int_equal(gvmi_machine_deadline(w.machine), w.now_ns);
    end_jobs(&w);
    while (work(&w))
        ;
    assert_int_equal(w.machine->taken[KEEP_WAITS], 0);
    end_fixture(&w);
}

/* ---- links that end together */

static uint32_t count_ended_links(const fixture *w)
{
    uint32_t count = 0;

    for (const keep_links *links = w->machine->ended_links; links != NULL; links = links->next_ended)
        count += links->count;
    return count;
}

static gvm_status link_numbered(fixture *w, actor *a, uint32_t slot, uint32_t number)
{
    char name[32];

    snprintf(name, sizeof name, "/link/%u", number);
    return link_object(w, a, slot, name, 0444, CHUNK);
}

static gvm_status open_numbered(fixture *w, actor *a, uint32_t number)
{
    char name[32];
    uint32_t slot;

    snprintf(name, sizeof name, "/link/%u", number);
    return open_object(w, a, name, GVM_OPEN_LINK | GVM_OPEN_READONLY, &slot);
}

static void links_end_at_once_and_are_freed_in_turns(void **state)
{
    const uint32_t count = 2 * KEEP_FREED_LINKS_MAX + 1;
    fixture w;
    actor *a, *b;
    uint32_t slot = 0, other = 0;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 1, 0600, &slot), GVM_OK);
    assert_int_equal(create(&w, a, "/y", 1, 0600, &other), GVM_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(link_numbered(&w, a, slot, i), GVM_OK);
    assert_int_equal(open_numbered(&w, b, 0), GVM_OK);
    assert_false(gvmi_machine_work(w.machine));
    drop_object(&w, a, "/x");
    assert_int_equal(count_ended_links(&w), count); /* the event freed none */
    assert_int_equal(w.machine->taken[KEEP_LINKS], 0);
    assert_int_equal(gvmi_machine_deadline(w.machine), w.now_ns);
    for (uint32_t i = 0; i < count; i += 100)
        assert_int_equal(open_numbered(&w, b, i), GVM_E_ABSENT);
    assert_true(gvmi_machine_check(w.machine));

    /* Its name is free, and for each one that is made one is freed. */
    assert_int_equal(link_numbered(&w, a, other, count / 2), GVM_OK);
    assert_int_equal(open_numbered(&w, b, count / 2), GVM_OK);
    assert_int_equal(count_ended_links(&w), count - 2);
    assert_int_equal(link_numbered(&w, a, other, count), GVM_OK);
    assert_int_equal(count_ended_links(&w), count - 3);

    assert_true(gvmi_machine_work(w.machine));
    assert_int_equal(count_ended_links(&w), count - 3 - KEEP_FREED_LINKS_MAX);
    assert_true(gvmi_machine_check(w.machine));
    assert_false(gvmi_machine_work(w.machine));
    assert_int_equal(count_ended_links(&w), 0);
    assert_true(gvmi_machine_deadline(w.machine) > w.now_ns);
    assert_int_equal(open_numbered(&w, b, count / 2), GVM_OK);
    assert_int_equal(w.machine->taken[KEEP_LINKS], 2);
    end_fixture(&w);
}

/* By the end of their creator, too; what is left when the machine ends is freed with it. */
static void links_of_a_client_that_left_are_freed_with_the_machine(void **state)
{
    fixture w;
    actor *a, *b;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create_of(&w, a, "/x", 64, 1, 0600, 0), GVM_OK);
    for (uint32_t i = 0; i < 2 * KEEP_FREED_LINKS_MAX; i++)
        assert_int_equal(link_numbered(&w, a, a->slot, i), GVM_OK);
    gvmi_machine_disconnect(w.machine, a->number);
    run(&w);
    assert_int_equal(count_ended_links(&w), 2 * KEEP_FREED_LINKS_MAX);
    assert_int_equal(open_numbered(&w, b, 1), GVM_E_ABSENT);
    assert_true(gvmi_machine_work(w.machine));
    end_fixture(&w);
}

/* ---- copies that are given up one after the other */

/* The chunk behind looks as one that has a copy does: it is not looked at again. */
static void copy_is_given_up_without_a_look_at_those_that_were_given_up_before(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, slot = 0;
    keep_chunk *chunks;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 6, 0, &x), GVM_OK);
    assert_int_equal(evict(&w, a, "/x"), 6 * CHUNK);
    ask_with_hint(&w, a, x, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_true(granted(a));
    take(&w, a, x, GVM_LEASE_READ);
    chunks = w.machine->objects->chunks;
    a->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(&w, a, "/y", 4, 0, &slot), GVM_OK);
    assert_int_equal(info(&w, a, slot).host_bytes, 4 * CHUNK);
    assert_true(chunks[3].clean && !chunks[4].clean && !chunks[5].clean);
    w.unchecked = true;
    chunks[5].clean = true;
    chunks[5].away_frame = chunks[3].away_frame;
    assert_int_equal(create(&w, a, "/z", 1, 0, &slot), GVM_OK);
    assert_true(!chunks[3].clean && chunks[5].clean);
    chunks[5].clean = false;
    chunks[5].away_frame = 0;
    w.unchecked = false;
    give(&w, a, x, GVM_LEASE_READ);
    end_fixture(&w);
}

/* Copies that clients are to unmap yet are not looked at again either, until they have. */
static void copy_is_given_up_without_a_look_at_those_that_are_mapped(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t x = 0, slot = 0;
    keep_chunk *chunks;

    (void)state;
    start_fixture(&w, 8, 4);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 4, 0, &x), GVM_OK);
    assert_int_equal(evict(&w, a, "/x"), 4 * CHUNK);
    chunks = w.machine->objects->chunks;
    a->deaf = true;
    ask_with_hint(&w, a, x, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    for (int i = 0; i < 4; i++)
        assert_true(chunks[i].op == KEEP_OP_IN_MAP && chunks[i].clean && chunks[i].unmaps == 1);
    b->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(&w, b, "/y", 1, 0, &slot), GVM_OK);
    assert_int_equal(info(&w, b, slot).host_bytes, 0);
    w.unchecked = true;
    chunks[1].unmaps = 0; /* it looks as if they had */
    assert_int_equal(create(&w, b, "/z", 1, 0, &slot), GVM_OK);
    assert_true(chunks[1].clean);
    chunks[1].unmaps = 1;
    w.unchecked = false;
    a->deaf = false;
    say_unmapped(&w, a, &a->maps[2]);
    assert_true(chunks[a->unanswered[2].message.tail.chunks[0].index].op == KEEP_OP_IN_MAP);
    assert_int_equal(create(&w, b, "/u", 1, 0, &slot), GVM_OK);
    assert_int_equal(info(&w, b, slot).host_bytes, CHUNK);
    while (a->unanswered_count > 0)
        say_mapped(&w, a, &a->unanswered[0].message.body.MAP);
    assert_int_equal(create(&w, b, "/v", 1, 0, &slot), GVM_OK);
    assert_int_equal(info(&w, b, slot).host_bytes, CHUNK);
    end_fixture(&w);
}

/* ---- what moves is sent to many openings */

#define MANY_CHUNKS 1024

/* Each of the clients has /x open 16 times. */
static void start_openings(fixture *w, unsigned clients, uint32_t lease_limit_ms)
{
    gvmi_machine_config config = small_config(MANY_CHUNKS, MANY_CHUNKS);
    uint32_t slot;

    config.clients_max = 32;
    config.lease_limit_ms = lease_limit_ms;
    start_fixture_as(w, &config);
    w->unchecked = true;
    (void)join(w, 1);
    assert_int_equal(create_of(w, w->actors, "/x", MANY_CHUNKS, MANY_CHUNKS, 0, GVM_OBJECT_KEEP),
                     GVM_OK);
    for (unsigned i = 0; i < clients; i++) {
        actor *a = join(w, 1);

        for (unsigned n = 0; n < KEEP_CLIENT_OPENINGS_MAX; n++)
            assert_int_equal(open_object(w, a, "/x", 0, &slot), GVM_OK);
    }
}

static unsigned count_queued_maps(const fixture *w)
{
    unsigned count = 0;

    for (const keep_action_node *node = w->machine->first_action; node != NULL; node = node->next)
        count += node->action.kind == GVMI_ACTION_SEND &&
                 node->action.message->head.type == GVMI_WIRE_MAP;
    return count;
}

/* Of the MAPs that the message makes an event sends some, and the rest is due at once. */
static void sends_some_maps(fixture *w, const actor *a, const gvmi_wire_message *m)
{
    gvmi_machine_message(w->machine, a->number, m);
    assert_true(count_queued_maps(w) > 0 && count_queued_maps(w) <= KEEP_SERVED_MAX);
    assert_int_equal(gvmi_machine_deadline(w->machine), w->now_ns);
    assert_true(gvmi_machine_check(w->machine));
    run(w);
}

/* Of chunks that need no copy: each of 32 openings is sent 16 MAPs. */
static void eviction_of_clean_chunks_sends_maps_in_turns(void **state)
{
    gvmi_wire_message m;
    fixture w;
    actor *a;

    (void)state;
    start_openings(&w, 2, 0);
    a = &w.actors[0];
    begin_evict(&w, a, "/x");
    ask_with_hint(&w, a, a->slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    while (work(&w))
        ;
    assert_true(granted(a));
    take(&w, a, a->slot, GVM_LEASE_READ);
    give(&w, a, a->slot, GVM_LEASE_READ);
    assert_int_equal(w.machine->objects->duplicate_chunks, MANY_CHUNKS);
    for (unsigned i = 1; i <= 2; i++)
        for (uint32_t slot = 0; slot < KEEP_CLIENT_OPENINGS_MAX; slot++)
            map_object(&w, &w.actors[i], slot);

    gvmi_wire_start(&m, GVMI_WIRE_EVICT, 13);
    strcpy(m.body.EVICT.name, "/x");
    m.body.EVICT.value = UINT64_MAX;
    sends_some_maps(&w, a, &m);
    while (work(&w))
        ;
    assert_int_equal(last(a)->body.DONE.value, MANY_CHUNKS * CHUNK);
    assert_int_equal(w.machine->objects->lease_state, KEEP_SHARED);
    end_fixture(&w);
}

/* Growths of its client do not put off what is to be sent. */
static void shrink_behind_growths_sends_maps_in_turns(void **state)
{
    gvmi_wire_message m;
    fixture w;
    actor *a;

    (void)state;
    start_openings(&w, 2, 0);
    a = &w.actors[0];
    map_object(&w, a, a->slot);
    for (uint32_t slot = 0; slot < KEEP_CLIENT_OPENINGS_MAX; slot++)
        map_object(&w, &w.actors[1], slot);
    gvmi_wire_start(&m, GVMI_WIRE_SHRINK, 19);
    m.body.SHRINK = (gvmi_wire_grow){.slot = a->slot, .bytes = CHUNK};
    sends_some_maps(&w, a, &m);
    for (unsigned i = 0; i < 3; i++)
        (void)grow(&w, a, a->slot, 2 * CHUNK - i);
    while (work(&w))
        ;
    assert_int_equal(w.machine->objects->chunk_count, 2);
    assert_int_equal(w.machine->taken[KEEP_GROWTHS], 0);
    end_fixture(&w);
}

/* ---- clients that end together */

static unsigned count_voided(const fixture *w)
{
    unsigned count = 0;

    for (unsigned i = 0; i < w->actor_count; i++)
        count += w->actors[i].forgotten || w->machine->clients[w->actors[i].number - 1]->voided;
    return count;
}

/* What each may have mapped is written down by chunk, so that chunks count. */
static void clients_with_many_chunks_end_in_several_ticks(void **state)
{
    const unsigned clients = 8;
    fixture w;

    (void)state;
    start_openings(&w, clients, 0);
    for (unsigned i = 1; i <= clients; i++)
        map_object(&w, &w.actors[i], 0);
    for (unsigned i = 1; i <= clients; i++)
        gvmi_machine_disconnect(w.machine, w.actors[i].number);
    tick(&w, 1001);
    assert_true(count_voided(&w) > 0 && count_voided(&w) < clients);
    assert_true(gvmi_machine_deadline(w.machine) <= w.now_ns);
    tick(&w, 0);
    assert_int_equal(count_voided(&w), clients);
    end_fixture(&w);
}

static void clients_that_keep_leases_too_long_end_in_several_looks(void **state)
{
    const unsigned clients = 8;
    fixture w;

    (void)state;
    start_openings(&w, clients, 100);
    for (unsigned i = 1; i <= clients; i++)
        acquire(&w, &w.actors[i], 0, GVM_LEASE_READ);
    ask(&w, w.actors, w.actors->slot, GVM_LEASE_WRITE, -1);
    tick(&w, 101);
    assert_true(count_voided(&w) > 0 && count_voided(&w) < clients);
    assert_true(gvmi_machine_deadline(w.machine) <= w.now_ns);
    tick(&w, 0);
    assert_int_equal(count_voided(&w), clients);
    assert_true(granted(w.actors));
    end_fixture(&w);
}

/* What another client holds of the frames looks as if this one did: it is not looked at. */
static void client_that_ends_does_not_look_at_what_others_hold(void **state)
{
    pair p;
    actor *c;
    uint32_t slot = 0;
    keep_hold *holds[2];
    keep_client *holder;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    c = join(&p.w, OWNER);
    assert_int_equal(open_object(&p.w, c, "/x", 0, &slot), GVM_OK);
    map_object(&p.w, c, slot);
    cut_off(&p.w, c);
    holder = p.w.machine->clients[c->number - 1];
    p.w.unchecked = true;
    for (uint32_t i = 0; i < 2; i++) {
        holds[i] = gvmi_keep_frame(p.w.machine, frame_of(&p.w, i))->holds;
        assert_ptr_equal(holds[i]->client, holder);
        holds[i]->client = p.w.machine->clients[p.b->number - 1];
    }
    cut_off(&p.w, p.b);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(gvmi_keep_frame(p.w.machine, frame_of(&p.w, i))->holders, 2);
        holds[i]->client = holder;
    }
    p.w.unchecked = false;
    end_fixture(&p.w);
}

/* ---- who may write to a fenced object */

/* Frames that have no writer, or had none at an earlier look, look as if another client wrote there. */
static void writer_is_looked_for_from_the_first_frame_that_has_one(void **state)
{
    keep_client other = {.who.pid = 99}, *writer;
    pair p;
    keep_object *object;
    keep_frame *frame;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    cut_off(&p.w, p.b);
    object = p.w.machine->objects;
    assert_true(object->fenced);
    frame = gvmi_keep_frame(p.w.machine, frame_of(&p.w, 0));
    writer = frame->holds->client;
    frame->holds->client = &other;
    frame->writers = 0;
    assert_int_equal(gvmi_keep_fence_writer(p.w.machine, object), 1);
    frame->writers = 1;
    assert_int_equal(gvmi_keep_fence_writer(p.w.machine, object), 1);
    frame->holds->client = writer;
    object->fence_first = 0;
    end_fixture(&p.w);
}

/* ---- frames that are kept for an object alone */

/* One of no object looks as if it were kept for the object that ends. */
static void object_that_ends_does_not_look_at_all_free_frames(void **state)
{
    pair p;
    uint32_t slot = 0, number;
    keep_frame *frame;

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, 0); /* foreign: a process of another user has its frames */
    assert_int_equal(create(&p.w, p.a, "/y", 1, 0, &slot), GVM_OK);
    number = gvmi_keep_frame_where(&p.w.machine->objects->chunks[0]);
    drop_object(&p.w, p.a, "/y");
    close_slot(&p.w, p.a, slot);
    frame = gvmi_keep_frame(p.w.machine, number);
    assert_int_equal(frame->state, KEEP_FRAME_FREE);
    p.w.unchecked = true;
    frame->foreign = p.w.machine->objects;
    drop_object(&p.w, p.a, "/x");
    close_slot(&p.w, p.a, p.a_slot);
    close_slot(&p.w, p.b, p.b_slot);
    assert_null(p.w.machine->objects);
    assert_int_equal(p.w.dropped_bytes, 2 * CHUNK);
    frame->foreign = NULL;
    p.w.unchecked = false;
    end_fixture(&p.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_for_many_are_granted_in_turns),
        cmocka_unit_test(objects_with_many_requests_are_served_in_rotation),
        cmocka_unit_test(object_that_ends_among_those_to_be_served_is_freed),
        cmocka_unit_test(requests_that_waited_too_long_are_answered_in_slices),
        cmocka_unit_test(reader_among_readers_changes_no_permit),
        cmocka_unit_test(growths_that_are_over_at_once_are_answered_in_turns),
        cmocka_unit_test(evictions_and_growths_of_many_chunks_are_carried_out_in_turns),
        cmocka_unit_test(hot_requests_that_a_move_kept_waiting_are_planned_in_turns),
        cmocka_unit_test(links_end_at_once_and_are_freed_in_turns),
        cmocka_unit_test(links_of_a_client_that_left_are_freed_with_the_machine),
        cmocka_unit_test(copy_is_given_up_without_a_look_at_those_that_were_given_up_before),
        cmocka_unit_test(copy_is_given_up_without_a_look_at_those_that_are_mapped),
        cmocka_unit_test(eviction_of_clean_chunks_sends_maps_in_turns),
        cmocka_unit_test(shrink_behind_growths_sends_maps_in_turns),
        cmocka_unit_test(clients_with_many_chunks_end_in_several_ticks),
        cmocka_unit_test(clients_that_keep_leases_too_long_end_in_several_looks),
        cmocka_unit_test(client_that_ends_does_not_look_at_what_others_hold),
        cmocka_unit_test(writer_is_looked_for_from_the_first_frame_that_has_one),
        cmocka_unit_test(object_that_ends_does_not_look_at_all_free_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
