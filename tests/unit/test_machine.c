/* The keeper's machine, one behaviour a test.
 *
 * Random interleavings are tests/prop/keeper_machine.c's; here is what each rule means. */
#include "base/size.h"
#include "tests/unit/machine_fixture.h"

static void table_unknown_step_is_refused(void **state)
{
    keep_lease_state next = KEEP_SHARED;

    (void)state;
    assert_true(gvmi_keep_step(KEEP_SHARED, KEEP_WAIT, &next));
    assert_int_equal(next, KEEP_DRAINING);
    assert_false(gvmi_keep_step(KEEP_FROZEN, KEEP_GRANT_WRITE, &next));
    assert_false(gvmi_keep_step(KEEP_SHARED, KEEP_GRANT_WRITE, &next));
}

static void object_larger_than_device_is_partly_on_host(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;
    gvmi_snapshot_object i;

    (void)state;
    start_fixture(&w, 2, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/big", 5, 0, &slot), GVM_OK);
    i = info(&w, a, slot);
    assert_int_equal(i.device_bytes, 2 * CHUNK);
    assert_int_equal(i.host_bytes, 3 * CHUNK);
    assert_true(permit(a, slot) & GVMI_PERMIT_PARTIAL);
    ask(&w, a, slot, GVM_LEASE_WRITE, -1);
    assert_true(granted(a));
    end_fixture(&w);
}

static void object_larger_than_both_budgets_is_refused_whole(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 2, 2);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/big", 5, 0, &slot), GVM_E_NOSPACE);
    assert_int_equal(create(&w, a, "/big", 4, 0, &slot), GVM_OK);
    end_fixture(&w);
}

/* A chunk on its way to the device has both frames that there are; then it can do with one. */
static void growth_waits_for_what_a_move_holds_twice(void **state)
{
    for (uint64_t chunks = 1; chunks <= 2; chunks++) {
        fixture w;
        actor *a;
        uint32_t slot = 0, other = 0;
        unsigned heard;

        (void)state;
        start_fixture(&w, 1, 1);
        a = join(&w, 1);
        begin_arrival(&w, a, &slot);
        heard = a->count;
        (void)create(&w, a, "/y", chunks, 0, &other);
        assert_int_equal(a->count, heard);
        w.hold_jobs = false;
        gvmi_machine_job_done(w.machine, w.jobs[--w.job_count], GVM_OK);
        run(&w);
        assert_int_equal(a->count, heard + 1);
        assert_int_equal(reply_status(a), chunks == 1 ? GVM_OK : GVM_E_NOSPACE);
        assert_int_equal(info(&w, a, slot).device_bytes, CHUNK);
        end_fixture(&w);
    }
}

/* A chunk of a closed object waits for a frame behind the new chunks of /y. The last of those gets its host memory. */
static void growth_waits_for_what_is_closed_and_waits_for_room_itself(void **state)
{
    fixture w;
    actor *a;
    uint32_t leased = 0, closed, slot = 0;

    (void)state;
    start_fixture(&w, 2, 3);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/w", 1, 0, &slot), GVM_OK);
    assert_int_equal(create(&w, a, "/x", 1, 0, &leased), GVM_OK);
    assert_int_equal(create_of(&w, a, "", 1, 1, 0, GVM_OBJECT_HOST), GVM_OK);
    closed = a->slot;
    acquire(&w, a, leased, GVM_LEASE_READ); /* stays on the device meanwhile */
    w.hold_jobs = true;
    begin_evict(&w, a, "/w");
    a->latest.head.type = 0;
    (void)create(&w, a, "/y", 3, 0, &slot);
    assert_int_equal(last(a)->head.type, 0);
    give(&w, a, leased, GVM_LEASE_READ);
    ask_with_hint(&w, a, closed, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_int_equal(w.machine->devices[0].last_room->object->chunk_count, 1);
    close_slot(&w, a, closed);
    end_jobs(&w);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_OPENED);
    assert_int_equal(info(&w, a, a->slot).size_bytes, 3 * CHUNK);
    end_fixture(&w);
}

static void permit_of_mapped_opening_allows_reading_alone_until_a_map_fails(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot), GVM_OK);
    map_object(&w, a, slot);
    assert_true(permit(a, slot) & GVMI_PERMIT_READ);
    assert_false(permit(a, slot) & GVMI_PERMIT_WRITE);
    fail_to_map(&w, a, slot, 2 * CHUNK, a, slot); /* and is not cut off */
    assert_int_equal(permit(a, slot) & 0xffffffff, GVMI_PERMIT_BROKEN | GVMI_PERMIT_REVOKED);
    assert_true(gvmi_machine_check(w.machine));
    end_fixture(&w);
}

static void write_permit_opens_with_taken(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot), GVM_OK);
    ask(&w, a, slot, GVM_LEASE_WRITE, -1);
    assert_true(granted(a));
    assert_false(permit(a, slot) & GVMI_PERMIT_WRITE);
    take(&w, a, slot, GVM_LEASE_WRITE);
    assert_true(permit(a, slot) & GVMI_PERMIT_WRITE);
    end_fixture(&w);
}

static void reader_waits_for_writer_and_is_granted_at_release(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_a = 0, slot_b = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot_b), GVM_OK);
    acquire(&w, a, slot_a, GVM_LEASE_WRITE);
    assert_int_equal(permit(b, slot_b) & 3, 0);
    ask(&w, b, slot_b, GVM_LEASE_READ, -1);
    assert_false(granted(b));
    assert_true(permit(a, slot_a) & GVMI_PERMIT_REVOKED);
    give(&w, a, slot_a, GVM_LEASE_WRITE);
    assert_true(granted(b));
    end_fixture(&w);
}

static void granted_lease_counts_before_it_is_taken(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_a = 0, slot_b = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot_b), GVM_OK);
    ask(&w, a, slot_a, GVM_LEASE_READ, -1);
    assert_true(granted(a));
    ask(&w, b, slot_b, GVM_LEASE_WRITE, -1);
    assert_false(granted(b));
    assert_int_equal(evict(&w, a, "/x"), 0);
    take(&w, a, slot_a, GVM_LEASE_READ);
    assert_false(granted(b));
    give(&w, a, slot_a, GVM_LEASE_READ);
    assert_true(granted(b));
    end_fixture(&w);
}

static void try_against_lease_times_out_at_once(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_a = 0, slot_b = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot_b), GVM_OK);
    acquire(&w, a, slot_a, GVM_LEASE_WRITE);
    ask(&w, b, slot_b, GVM_LEASE_READ, 0);
    assert_int_equal(reply_status(b), GVM_E_TIMEOUT);
    /* And nobody waits any more: the writer has its permit back. */
    assert_true(permit(a, slot_a) & GVMI_PERMIT_WRITE);
    ask(&w, b, slot_b, GVM_LEASE_READ, 50);
    tick(&w, 40);
    assert_int_equal(reply_status(b), GVM_OK); /* not yet */
    tick(&w, 20);
    assert_int_equal(reply_status(b), GVM_E_TIMEOUT);
    end_fixture(&w);
}

static void leased_object_is_not_moved(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 2, 0, &slot), GVM_OK);
    map_object(&w, a, slot);
    atomic_fetch_add(&a->leases[slot].word, GVMI_LEASE_READER);
    assert_int_equal(evict(&w, a, "/x"), 0);
    assert_true(permit(a, slot) & GVMI_PERMIT_READ);
    give(&w, a, slot, GVM_LEASE_READ);
    assert_int_equal(evict(&w, a, "/x"), 2 * CHUNK);
    assert_int_equal(info(&w, a, slot).host_bytes, 2 * CHUNK);
    end_fixture(&w);
}

/* The keeper hears of acquires that went the fast way later than of the eviction that followed. */
static void evicted_object_stays_out_until_acquired(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 2, 0, &slot), GVM_OK);
    for (int i = 0; i < 2; i++) {
        atomic_fetch_add(&a->leases[slot].word, GVMI_LEASE_COUNTED + GVMI_LEASE_READER);
        give(&w, a, slot, GVM_LEASE_READ);
        assert_int_equal(evict(&w, a, "/x"), 2 * CHUNK);
        for (int looks = 0; looks < 5; looks++)
            tick(&w, 200);
        assert_int_equal(info(&w, a, slot).host_bytes, 2 * CHUNK);
        atomic_fetch_add(&a->leases[slot].word, GVMI_LEASE_COUNTED + GVMI_LEASE_READER);
        give(&w, a, slot, GVM_LEASE_READ);
        tick(&w, 200);
        assert_int_equal(info(&w, a, slot).device_bytes, 2 * CHUNK);
    }
    end_fixture(&w);
}

static gvm_status list_chunks(fixture *w, actor *a, const char *name, uint64_t first)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_LIST_CHUNKS, 22);
    strcpy(m.body.LIST_CHUNKS.name, name);
    m.body.LIST_CHUNKS.value = first;
    say(w, a, &m);
    return reply_status(a);
}

static void chunks_are_listed_by_where_they_are(void **state)
{
    static const uint8_t on_device[] = {GVM_CHUNK_DEVICE, GVM_CHUNK_DEVICE, GVM_CHUNK_DEVICE},
                         evicted[] = {GVM_CHUNK_DEVICE, GVM_CHUNK_DEVICE, GVM_CHUNK_HOST},
                         back[] = {GVM_CHUNK_DEVICE, GVM_CHUNK_DEVICE,
                                   GVM_CHUNK_DEVICE | GVM_CHUNK_HOST};
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 3, 0600, &slot), GVM_OK);
    assert_int_equal(list_chunks(&w, b, "/x", 0), GVM_E_DENIED);
    assert_int_equal(list_chunks(&w, a, "/y", 0), GVM_E_ABSENT);
    for (int i = 0; i < 3; i++) {
        const uint8_t *wanted = i == 0 ? on_device : i == 1 ? evicted : back;

        assert_int_equal(list_chunks(&w, a, "/x", 0), GVM_OK);
        assert_int_equal(last(a)->head.type, GVMI_WIRE_CHUNK_STATES);
        assert_int_equal(last(a)->body.CHUNK_STATES.value, 3);
        assert_int_equal(last(a)->head.tail_bytes, 3);
        assert_memory_equal(last(a)->tail.bytes, wanted, 3);
        assert_int_equal(list_chunks(&w, a, "/x", 2), GVM_OK);
        assert_int_equal(last(a)->head.tail_bytes, 1);
        assert_int_equal(last(a)->tail.bytes[0], wanted[2]);
        if (i == 0)
            begin_evict_bytes(&w, a, "/x", CHUNK);
        if (i == 1) {
            acquire(&w, a, slot, GVM_LEASE_READ); /* brings it back */
            give(&w, a, slot, GVM_LEASE_READ);
            tick(&w, 200);
        }
    }
    assert_int_equal(list_chunks(&w, a, "/x", UINT64_MAX), GVM_OK);
    assert_int_equal(last(a)->head.tail_bytes, 0);
    assert_int_equal(last(a)->body.CHUNK_STATES.value, 3);
    end_fixture(&w);
}

/* Neither a lease that the keeper grants nor one of the fast path, which it notices later. */
static void evicted_object_stays_out_when_acquired_once(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 2, 0, &slot), GVM_OK);
    begin_evict_bytes(&w, a, "/x", CHUNK);
    ask_with_hint(&w, a, slot, GVM_LEASE_WRITE, GVM_HINT_ONCE, -1);
    assert_true(granted(a));
    take(&w, a, slot, GVM_LEASE_WRITE);
    give(&w, a, slot, GVM_LEASE_WRITE);
    tick(&w, 200);
    assert_int_equal(info(&w, a, slot).host_bytes, CHUNK);
    atomic_fetch_add(&a->leases[slot].word, GVMI_LEASE_COUNTED + GVMI_LEASE_READER);
    give(&w, a, slot, GVM_LEASE_READ);
    tick(&w, 200);
    tick(&w, 200);
    assert_int_equal(info(&w, a, slot).host_bytes, CHUNK);
    ask(&w, a, slot, GVM_LEASE_READ, -1);
    assert_int_equal(info(&w, a, slot).host_bytes, 0);
    end_fixture(&w);
}

static void rest_of_an_evicted_object_gives_room_to_others(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot_x = 0, slot_y = 0;

    (void)state;
    start_fixture(&w, 2, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/y", 2, 0, &slot_y), GVM_OK);
    assert_int_equal(create(&w, a, "/x", 2, 0, &slot_x), GVM_OK);
    assert_int_equal(info(&w, a, slot_x).device_bytes, 2 * CHUNK);
    begin_evict_bytes(&w, a, "/x", CHUNK);
    assert_int_equal(info(&w, a, slot_x).device_bytes, CHUNK);
    ask_with_hint(&w, a, slot_y, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_int_equal(info(&w, a, slot_y).device_bytes, 2 * CHUNK);
    end_fixture(&w);
}

/* A client with a read lease on such an object may write: a copy that was clean may not be one any more. */
static void untracked_object_has_no_clean_copies(void **state)
{
    fixture w;
    actor *a;
    uint32_t tracked = 0, untracked = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/tracked", 2, 0, &tracked), GVM_OK);
    a->create_flags = GVM_OBJECT_UNTRACKED;
    assert_int_equal(create(&w, a, "/untracked", 2, 0, &untracked), GVM_OK);
    assert_int_equal(evict(&w, a, "/tracked"), 2 * CHUNK);
    assert_int_equal(evict(&w, a, "/untracked"), 2 * CHUNK);
    for (int i = 0; i < 2; i++) {
        const uint32_t slot = i == 0 ? tracked : untracked;

        ask(&w, a, slot, GVM_LEASE_READ, 0);
        take(&w, a, slot, GVM_LEASE_READ);
        give(&w, a, slot, GVM_LEASE_READ);
        tick(&w, 200);
        assert_int_equal(info(&w, a, slot).device_bytes, 2 * CHUNK);
    }
    assert_int_equal(info(&w, a, tracked).duplicate_bytes, 2 * CHUNK);
    assert_int_equal(info(&w, a, untracked).duplicate_bytes, 0);
    assert_int_equal(info(&w, a, untracked).dirty_bytes, 2 * CHUNK);
    end_fixture(&w);
}

static void client_that_does_not_map_is_cut_off_and_its_bytes_held(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_a = 0, slot_b = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 2, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot_b), GVM_OK);
    map_object(&w, b, slot_b);
    b->deaf = true;
    begin_evict(&w, a, "/x");
    assert_int_not_equal(last(a)->head.type, GVMI_WIRE_DONE);
    tick(&w, 1200);
    assert_true(b->cut);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_DONE);
    assert_int_equal(w.machine->devices[0].place.held_bytes, 2 * CHUNK);
    ask(&w, a, slot_a, GVM_LEASE_READ, -1);
    assert_true(granted(a));
    gvmi_machine_exited(w.machine, b->number);
    run(&w);
    assert_int_equal(w.machine->devices[0].place.held_bytes, 0);
    end_fixture(&w);
}

static void device_frame_is_free_when_all_have_unmapped_it(void **state)
{
    fixture w;
    actor *a, *b, *c;
    uint32_t slot_a = 0, slot_b = 0, slot_c = 0;

    (void)state;
    start_fixture(&w, 1, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    c = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot_b), GVM_OK);
    map_object(&w, a, slot_a);
    map_object(&w, b, slot_b);
    a->deaf = b->deaf = true;
    begin_evict(&w, c, "/x");
    say_unmapped(&w, a, a->map);
    say_unmapped(&w, a, a->map); /* once more: nothing */
    assert_int_equal(device(&w)->free_bytes, 0);
    assert_int_not_equal(last(c)->head.type, GVMI_WIRE_DONE);
    say_unmapped(&w, b, b->map);
    assert_int_equal(device(&w)->free_bytes, CHUNK);
    assert_int_equal(last(c)->head.type, GVMI_WIRE_DONE); /* that is what was asked for */
    assert_int_equal(last(c)->body.DONE.value, CHUNK);
    assert_int_equal(create(&w, c, "/y", 1, 0, &slot_c), GVM_OK);
    assert_int_equal(info(&w, c, slot_c).device_bytes, CHUNK);
    assert_int_equal(w.dropped_bytes, 0);
    /* But nobody may have a lease before all have mapped. */
    ask(&w, a, slot_a, GVM_LEASE_READ, -1);
    say_mapped(&w, a, a->map);
    a->deaf = false;
    assert_true(permit(a, slot_a) & GVMI_PERMIT_REVOKED);
    assert_false(granted(a));
    say_mapped(&w, b, b->map);
    assert_true(granted(a));
    end_fixture(&w);
}

static void mapped_alone_frees_the_device_frame_too(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 1, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot), GVM_OK);
    map_object(&w, a, slot);
    a->deaf = true;
    begin_evict(&w, b, "/x");
    assert_int_equal(device(&w)->free_bytes, 0);
    say_mapped(&w, a, a->map);
    assert_int_equal(device(&w)->free_bytes, CHUNK);
    say_unmapped(&w, a, a->map); /* late: nothing */
    assert_false(a->cut);
    assert_false(permit(a, slot) & GVMI_PERMIT_REVOKED);
    end_fixture(&w);
}

/* Its other MAP may bring the old frame: unmapping for that one says nothing. */
static void client_that_is_a_map_behind_may_have_the_device_frame(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_a = 0, slot_b = 0;

    (void)state;
    start_fixture(&w, 2, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot_b), GVM_OK);
    map_object(&w, b, slot_b);
    b->deaf = true;
    assert_int_equal(grow(&w, a, slot_a, 2 * CHUNK), GVM_OK);
    begin_evict_bytes(&w, a, "/x", CHUNK); /* what is new */
    assert_ptr_equal(b->map, &b->maps[1]);
    say_unmapped(&w, b, &b->maps[0]);
    assert_int_equal(device(&w)->free_bytes, 0);
    say_mapped(&w, b, &b->maps[0]);
    assert_int_equal(device(&w)->free_bytes, 0);
    say_unmapped(&w, b, &b->maps[1]);
    assert_int_equal(device(&w)->free_bytes, CHUNK);
    end_fixture(&w);
}

/* Ahead of the answers to earlier MAPs; MAPPED is for the first that is not answered. */
static void client_unmaps_ahead_but_maps_in_order(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 2, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 2, 0, &slot), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot), GVM_OK);
    map_object(&w, b, slot);
    b->deaf = true;
    begin_evict(&w, a, "/x");
    say_unmapped(&w, b, &(gvmi_wire_map){.slot = slot, .serial = 99});
    say_unmapped(&w, b, &(gvmi_wire_map){.slot = slot + 1, .serial = b->map->serial});
    assert_false(b->cut);
    assert_ptr_equal(b->map, &b->maps[1]);
    assert_int_equal(device(&w)->free_bytes, 0);
    say_unmapped(&w, b, &b->maps[1]);
    assert_int_equal(device(&w)->free_bytes, CHUNK);
    say_unmapped(&w, b, &b->maps[0]);
    assert_int_equal(device(&w)->free_bytes, 2 * CHUNK);
    assert_false(b->cut);
    say_mapped(&w, b, &b->maps[1]);
    assert_true(b->cut);
    assert_int_equal(device(&w)->held_bytes, 0);
    end_fixture(&w);
}

static void client_cut_off_after_unmapped_holds_nothing_of_it(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_a = 0, slot_b = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot_b), GVM_OK);
    map_object(&w, a, slot_a);
    map_object(&w, b, slot_b);
    a->deaf = b->deaf = true;
    begin_evict(&w, a, "/x");
    say_unmapped(&w, b, b->map);
    gvmi_machine_disconnect(w.machine, b->number);
    run(&w);
    tick(&w, 900);
    say_mapped(&w, a, a->map);
    assert_int_equal(device(&w)->free_bytes, CHUNK);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_DONE);
    assert_true(permit(a, slot_a) & GVMI_PERMIT_REVOKED); /* it may be mapping still */
    tick(&w, 200);                                        /* now it is voided */
    assert_false(permit(a, slot_a) & GVMI_PERMIT_REVOKED);
    assert_int_equal(device(&w)->held_bytes, 0);
    assert_int_equal(device(&w)->free_bytes, CHUNK);
    end_fixture(&w);
}

static void host_copy_may_go_when_all_have_unmapped_it(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_x = 0, slot_y = 0;

    (void)state;
    start_fixture(&w, 2, 1);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_x), GVM_OK);
    assert_int_equal(evict(&w, a, "/x"), CHUNK);
    map_object(&w, a, slot_x);
    assert_int_equal(create(&w, b, "/y", 1, 0, &slot_y), GVM_OK);
    a->deaf = true;
    ask(&w, a, slot_x, GVM_LEASE_READ, -1); /* brings it in */
    assert_non_null(a->map);
    begin_evict(&w, b, "/y");
    assert_int_equal(reply_status(b), GVM_E_NOMEM); /* the host is full */
    say_unmapped(&w, a, a->map);
    assert_int_equal(evict(&w, b, "/y"), CHUNK);
    assert_false(granted(a));
    say_mapped(&w, a, a->map);
    assert_true(granted(a));
    end_fixture(&w);
}

static void dead_writer_leaves_object_interrupted(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_a = 0, slot_b = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot_b), GVM_OK);
    acquire(&w, b, slot_b, GVM_LEASE_WRITE);
    ask(&w, a, slot_a, GVM_LEASE_READ, -1);
    gvmi_machine_disconnect(w.machine, b->number);
    run(&w);
    assert_false(granted(a)); /* its kernels may still write */
    gvmi_machine_exited(w.machine, b->number);
    run(&w);
    assert_true(granted(a));
    take(&w, a, slot_a, GVM_LEASE_READ);
    assert_int_equal(info(&w, a, slot_a).interrupted, 1);
    end_fixture(&w);
}

/* Who reads an untracked object may write. It must have opened it for writing, and end with a lease. */
static void dead_reader_of_an_untracked_object_leaves_it_interrupted(void **state)
{
    fixture w;
    actor *a, *b, *c, *d;
    uint32_t slot_a = 0, slot_b = 0, slot_c = 0, slot_d = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    c = join(&w, 1);
    d = join(&w, 1);
    a->create_flags = GVM_OBJECT_UNTRACKED;
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_a), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot_b), GVM_OK);
    assert_int_equal(open_object(&w, c, "/x", GVM_OPEN_READONLY, &slot_c), GVM_OK);
    assert_int_equal(open_object(&w, d, "/x", 0, &slot_d), GVM_OK);
    acquire(&w, b, slot_b, GVM_LEASE_READ);
    acquire(&w, c, slot_c, GVM_LEASE_READ);
    acquire(&w, d, slot_d, GVM_LEASE_READ);
    give(&w, d, slot_d, GVM_LEASE_READ);
    gvmi_machine_exited(w.machine, d->number);
    gvmi_machine_exited(w.machine, c->number);
    gvmi_machine_disconnect(w.machine, b->number);
    run(&w);
    assert_int_equal(info(&w, a, slot_a).interrupted, 0); /* its kernels may still write */
    gvmi_machine_exited(w.machine, b->number);
    run(&w);
    assert_int_equal(info(&w, a, slot_a).interrupted, 1);
    end_fixture(&w);
}

static void object_made_on_the_host_displaces_nothing(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot_x = 0, slot_y = 0, slot_z = 0;

    (void)state;
    start_fixture(&w, 4, 6);
    a = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 3, 0, &slot_x), GVM_OK);
    a->create_flags = GVM_OBJECT_HOST;
    assert_int_equal(create(&w, a, "/y", 4, 0, &slot_y), GVM_OK); /* though one would fit the device */
    assert_int_equal(info(&w, a, slot_y).host_bytes, 4 * CHUNK);
    assert_int_equal(info(&w, a, slot_x).device_bytes, 3 * CHUNK);
    assert_int_equal(create(&w, a, "/z", 3, 0, &slot_z), GVM_OK); /* the host has room for two */
    assert_int_equal(info(&w, a, slot_z).host_bytes, 2 * CHUNK);
    assert_int_equal(info(&w, a, slot_z).device_bytes, CHUNK);
    assert_int_equal(info(&w, a, slot_x).device_bytes, 3 * CHUNK);
    end_fixture(&w);
}

static void quota_counts_by_owner(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    gvmi_machine_set_quota(w.machine, 1, 3 * CHUNK);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 2, 0, &slot), GVM_OK);
    assert_int_equal(create(&w, a, "/y", 2, 0, &slot), GVM_E_QUOTA);
    assert_int_equal(create(&w, b, "/y", 2, 0, &slot), GVM_OK);
    end_fixture(&w);
}

static void mode_decides_who_opens(void **state)
{
    fixture w;
    actor *a, *b, *root;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 2);
    root = join(&w, 0);
    assert_int_equal(create(&w, a, "/private", 1, 0600, &slot), GVM_OK);
    assert_int_equal(create(&w, a, "/shown", 1, 0644, &slot), GVM_OK);
    assert_int_equal(open_object(&w, b, "/private", GVM_OPEN_READONLY, &slot), GVM_E_DENIED);
    assert_int_equal(open_object(&w, b, "/shown", 0, &slot), GVM_E_DENIED);
    assert_int_equal(open_object(&w, b, "/shown", GVM_OPEN_READONLY, &slot), GVM_OK);
    assert_int_equal(open_object(&w, root, "/private", 0, &slot), GVM_OK);
    end_fixture(&w);
}

/* What one domain saw never becomes another's. */
static void frame_of_other_domain_is_not_reused(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;
    gvmi_wire_message m;

    (void)state;
    start_fixture(&w, 2, 0);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 2, 0, &slot), GVM_OK);
    map_object(&w, a, slot);
    gvmi_wire_start(&m, GVMI_WIRE_DROP, 15);
    strcpy(m.body.DROP.name, "/x");
    say(&w, a, &m);
    gvmi_wire_start(&m, GVMI_WIRE_CLOSE, 16);
    m.body.CLOSE.slot = slot;
    say(&w, a, &m);
    assert_int_equal(w.machine->devices[0].place.free_bytes, 2 * CHUNK);
    assert_int_equal(create(&w, b, "/y", 1, 0, &slot), GVM_OK);
    assert_true(w.dropped_bytes >= CHUNK);
    w.dropped_bytes = 0;
    assert_int_equal(create(&w, a, "/z", 1, 0, &slot), GVM_OK);
    assert_int_equal(w.dropped_bytes, 0); /* its own kind again */
    end_fixture(&w);
}

/* 0: it was refused. chunk_bytes 0: the keeper's choice. */
static uint64_t created_chunk_bytes(fixture *w, actor *a, uint64_t reserve_bytes, uint64_t bytes,
                                    uint64_t chunk_bytes)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_CREATE, 10);
    m.body.CREATE.device_uuid[0] = 7;
    m.body.CREATE.reserve_bytes = reserve_bytes;
    m.body.CREATE.chunk_bytes = chunk_bytes;
    m.body.CREATE.bytes = bytes;
    say(w, a, &m);
    if (reply_status(a) != GVM_OK)
        return 0;
    chunk_bytes = last(a)->body.OPENED.chunk_bytes;
    close_slot(w, a, last(a)->body.OPENED.slot);
    return chunk_bytes;
}

static void chunks_are_chosen_by_what_is_reserved_and_committed(void **state)
{
    gvmi_machine_config config = small_config(1, 0);
    fixture w;
    actor *a;

    (void)state;
    config.host_budget_bytes = 16 * GVMI_GIB;
    start_fixture_as(&w, &config);
    a = join(&w, 1);
    assert_int_equal(created_chunk_bytes(&w, a, 1, 0, 0), 2 * MIB);
    assert_int_equal(created_chunk_bytes(&w, a, 100 * MIB, 0, 0), 8 * MIB);
    assert_int_equal(created_chunk_bytes(&w, a, 16 * GVMI_GIB, 0, 0), 64 * MIB); /* it may stay small */
    assert_int_equal(created_chunk_bytes(&w, a, 16 * GVMI_GIB, 16 * GVMI_GIB, 0), 512 * MIB);
    assert_int_equal(created_chunk_bytes(&w, a, 4 * GVMI_GIB, 4 * GVMI_GIB, 0), 128 * MIB);
    assert_int_equal(created_chunk_bytes(&w, a, 65536 * 64 * MIB, 0, 0), 64 * MIB);
    assert_int_equal(created_chunk_bytes(&w, a, 65536 * 64 * MIB + 1, 0, 0), 128 * MIB);
    assert_int_equal(created_chunk_bytes(&w, a, 65536 * GVMI_GIB, 0, 0), GVMI_GIB);
    assert_int_equal(created_chunk_bytes(&w, a, 65536 * 2 * MIB, 0, 2 * MIB), 2 * MIB);
    assert_int_equal(created_chunk_bytes(&w, a, 65537 * 2 * MIB, 0, 2 * MIB), 0);
    assert_non_null(strstr(last(a)->body.FAILED.text, "65536 chunks"));
    end_fixture(&w);
}

static void object_has_an_address_of_its_own_until_its_creator_has_another(void **state)
{
    enum { OBJECTS = 24 }; /* of 1 TiB each in 48 */
    uint64_t addresses[OBJECTS];
    gvmi_wire_message m;
    fixture w;
    actor *a, *b;
    uint32_t slot = 0, found = 0;
    char name[16];

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    for (int i = 0; i < OBJECTS; i++) {
        gvmi_wire_start(&m, GVMI_WIRE_CREATE, 10);
        snprintf(m.body.CREATE.name, sizeof m.body.CREATE.name, "/%d", i);
        m.body.CREATE.device_uuid[0] = 7;
        m.body.CREATE.reserve_bytes = 1024 * GVMI_GIB;
        say(&w, a, &m);
        assert_int_equal(last(a)->head.type, GVMI_WIRE_OPENED);
        addresses[i] = last(a)->body.OPENED.home_address;
        assert_int_equal(addresses[i] % last(a)->body.OPENED.chunk_bytes, 0);
        found += addresses[i] != 0;
        for (int j = 0; j < i && addresses[i] != 0; j++)
            assert_true(addresses[j] == 0 || addresses[j] + 1024 * GVMI_GIB <= addresses[i] ||
                        addresses[i] + 1024 * GVMI_GIB <= addresses[j]);
    }
    assert_true(found > OBJECTS / 2); /* it does not look for long */
    for (int i = 0; i < OBJECTS; i++) {
        snprintf(name, sizeof name, "/%d", i);
        assert_int_equal(open_object(&w, b, name, 0, &slot), GVM_OK);
        assert_int_equal(last(b)->body.OPENED.home_address, addresses[i]);
        close_slot(&w, b, slot);
    }
    gvmi_wire_start(&m, GVMI_WIRE_MAPPED, 0);
    m.body.MAPPED = (gvmi_wire_mapped){.slot = a->slot, .address = 77 * CHUNK};
    say(&w, a, &m); /* of the latest */
    assert_int_equal(open_object(&w, b, name, 0, &slot), GVM_OK);
    assert_int_equal(last(b)->body.OPENED.home_address, 77 * CHUNK);
    m.body.MAPPED.address = UINT64_MAX - CHUNK + 1; /* its end is not an address */
    say(&w, a, &m);
    assert_true(a->cut);
    end_fixture(&w);
}

static void publish_and_close(fixture *w, actor *a, uint32_t flags)
{
    gvmi_wire_message m;
    uint32_t slot;

    gvmi_wire_start(&m, GVMI_WIRE_CREATE, 10);
    m.body.CREATE.device_uuid[0] = 7;
    m.body.CREATE.reserve_bytes = m.body.CREATE.chunk_bytes = m.body.CREATE.bytes = CHUNK;
    say(w, a, &m);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_OPENED);
    slot = last(a)->body.OPENED.slot;
    gvmi_wire_start(&m, GVMI_WIRE_PUBLISH, 14);
    m.body.PUBLISH = (gvmi_wire_publish){.slot = slot, .flags = flags, .name = "/x"};
    say(w, a, &m);
    assert_int_equal(reply_status(a), GVM_OK);
    gvmi_wire_start(&m, GVMI_WIRE_CLOSE, 15);
    m.body.CLOSE.slot = slot;
    say(w, a, &m);
    assert_int_equal(reply_status(a), GVM_OK);
}

static void published_object_outlives_its_creator_unless_private(void **state)
{
    gvmi_wire_message m;
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    publish_and_close(&w, a, 0);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot), GVM_OK);
    gvmi_wire_start(&m, GVMI_WIRE_PUBLISH, 16);
    m.body.PUBLISH = (gvmi_wire_publish){.slot = slot, .flags = GVM_PUBLISH_PRIVATE, .name = "/y"};
    say(&w, b, &m);
    assert_int_equal(reply_status(b), GVM_E_DENIED); /* it is not its creator */
    /* The private one takes the name, and leaves none behind. */
    publish_and_close(&w, a, GVM_PUBLISH_REPLACE | GVM_PUBLISH_PRIVATE);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot), GVM_E_ABSENT);
    end_fixture(&w);
}

static void violation_cuts_off_one_client_alone(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot), GVM_OK);
    ask(&w, b, 17, GVM_LEASE_READ, -1);
    assert_true(b->cut);
    ask(&w, a, slot, GVM_LEASE_READ, -1);
    assert_true(granted(a));
    end_fixture(&w);
}

typedef struct onlooker {
    const actor *actor;
    uint32_t slot, looks;
    bool may; /* it was let in */
} onlooker;

static void look_at_permit(void *context, uint32_t d, uint64_t object, uint64_t bytes,
                           uint32_t count, uint32_t hint)
{
    onlooker *o = context;

    (void)d, (void)object, (void)bytes, (void)count, (void)hint;
    o->looks++;
    o->may = o->may || (permit(o->actor, o->slot) & (GVMI_PERMIT_READ | GVMI_PERMIT_WRITE)) != 0;
}

/* The machine looks at the second object when the first's opening has ended. */
static void end_of_the_machine_opens_no_permit(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot_a = 0, other = 0;
    onlooker o = {0};

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create(&w, a, "/x", 1, 0, &slot_a), GVM_OK);
    assert_int_equal(create(&w, a, "/y", 1, 0, &other), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &o.slot), GVM_OK);
    acquire(&w, a, slot_a, GVM_LEASE_WRITE);
    o.actor = b;
    w.machine->config.trace = look_at_permit;
    w.machine->config.trace_context = &o;
    atomic_fetch_add(&a->leases[other].word, GVMI_LEASE_COUNTED);
    gvmi_machine_destroy(w.machine);
    assert_true(slot_a < other && o.looks > 0 && !o.may);
    assert_int_equal(permit(b, o.slot) & 0xffffffff, GVMI_PERMIT_GONE);
    for (unsigned i = 0; i < w.actor_count; i++)
        free_actor(&w.actors[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_unknown_step_is_refused),
        cmocka_unit_test(object_larger_than_device_is_partly_on_host),
        cmocka_unit_test(object_larger_than_both_budgets_is_refused_whole),
        cmocka_unit_test(growth_waits_for_what_a_move_holds_twice),
        cmocka_unit_test(growth_waits_for_what_is_closed_and_waits_for_room_itself),
        cmocka_unit_test(permit_of_mapped_opening_allows_reading_alone_until_a_map_fails),
        cmocka_unit_test(write_permit_opens_with_taken),
        cmocka_unit_test(reader_waits_for_writer_and_is_granted_at_release),
        cmocka_unit_test(granted_lease_counts_before_it_is_taken),
        cmocka_unit_test(try_against_lease_times_out_at_once),
        cmocka_unit_test(leased_object_is_not_moved),
        cmocka_unit_test(evicted_object_stays_out_until_acquired),
        cmocka_unit_test(chunks_are_listed_by_where_they_are),
        cmocka_unit_test(evicted_object_stays_out_when_acquired_once),
        cmocka_unit_test(rest_of_an_evicted_object_gives_room_to_others),
        cmocka_unit_test(untracked_object_has_no_clean_copies),
        cmocka_unit_test(client_that_does_not_map_is_cut_off_and_its_bytes_held),
        cmocka_unit_test(device_frame_is_free_when_all_have_unmapped_it),
        cmocka_unit_test(mapped_alone_frees_the_device_frame_too),
        cmocka_unit_test(client_that_is_a_map_behind_may_have_the_device_frame),
        cmocka_unit_test(client_unmaps_ahead_but_maps_in_order),
        cmocka_unit_test(client_cut_off_after_unmapped_holds_nothing_of_it),
        cmocka_unit_test(host_copy_may_go_when_all_have_unmapped_it),
        cmocka_unit_test(dead_writer_leaves_object_interrupted),
        cmocka_unit_test(dead_reader_of_an_untracked_object_leaves_it_interrupted),
        cmocka_unit_test(object_made_on_the_host_displaces_nothing),
        cmocka_unit_test(quota_counts_by_owner),
        cmocka_unit_test(mode_decides_who_opens),
        cmocka_unit_test(frame_of_other_domain_is_not_reused),
        cmocka_unit_test(object_has_an_address_of_its_own_until_its_creator_has_another),
        cmocka_unit_test(chunks_are_chosen_by_what_is_reserved_and_committed),
        cmocka_unit_test(published_object_outlives_its_creator_unless_private),
        cmocka_unit_test(violation_cuts_off_one_client_alone),
        cmocka_unit_test(end_of_the_machine_opens_no_permit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
