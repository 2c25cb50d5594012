/* The keeper's machine: which chunks are sent to whom, and when.
 *
 * An opening follows a chunk from the acquire that maps it until the chunk is evicted. That nobody gets a lease
 * with a chunk unmapped, or elsewhere than it is, machine_fixture.h checks in each test. */
#include "tests/unit/machine_pair.h"

#define CHUNKS_MAX 8

/* An object of that many chunks, which a made and b opened: neither has it mapped. */
static void start_open(pair *p, uint64_t device_chunks, uint64_t host_chunks, uint64_t chunks,
                       uint32_t uid, uint32_t open_flags)
{
    start_fixture(&p->w, device_chunks, host_chunks);
    p->a = join(&p->w, OWNER);
    p->b = join(&p->w, uid);
    assert_int_equal(create_of(&p->w, p->a, "/x", 80, chunks, 0666, GVM_OBJECT_KEEP), GVM_OK);
    p->a_slot = p->a->slot;
    assert_int_equal(open_object(&p->w, p->b, "/x", open_flags, &p->b_slot), GVM_OK);
}

/* All its chunks are on the host then, and there is room for them on the device. */
static void start_evicted(pair *p, uint64_t chunks)
{
    start_open(p, CHUNKS_MAX, CHUNKS_MAX, chunks, OWNER, 0);
    assert_int_equal(evict(&p->w, p->a, "/x"), chunks * CHUNK);
}

static uint32_t sent_count(const actor *a)
{
    return a->latest_map.message.head.tail_bytes / (uint32_t)sizeof(gvmi_wire_chunk);
}

/* Was this chunk alone sent, by the latest of count MAPs? */
static void assert_sent(const actor *a, unsigned count, uint32_t chunk, gvm_tier tier)
{
    assert_int_equal(a->map_count, count);
    assert_int_equal(sent_count(a), 1);
    assert_int_equal(a->latest_map.message.tail.chunks[0].index, chunk);
    assert_int_equal(a->latest_map.message.tail.chunks[0].tier, tier);
}

/* The latest of count MAPs had size and generation alone, as they are. */
static void assert_sent_size(const fixture *w, const actor *a, unsigned count)
{
    assert_int_equal(a->map_count, count);
    assert_int_equal(sent_count(a), 0);
    assert_int_equal(a->latest_map.message.body.MAP.bytes, only_object(w)->bytes);
    assert_int_equal(a->latest_map.message.body.MAP.generation, only_object(w)->generation);
}

static void give_all(fixture *w, actor *a, uint32_t slot)
{
    take(w, a, slot, GVM_LEASE_READ);
    give(w, a, slot, GVM_LEASE_READ);
}

static void end_copy(fixture *w, uint32_t index, gvm_status status)
{
    const uint64_t job = w->jobs[index];

    assert_true(index < w->job_count);
    w->jobs[index] = w->jobs[--w->job_count];
    gvmi_machine_job_done(w->machine, job, status);
    run(w);
}

/* ---- the first lease */

static void opening_maps_nothing(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 4, 4, 2, OWNER, 0);
    assert_int_equal(evict(&p.w, p.a, "/x"), 2 * CHUNK); /* which concerns nobody */
    tick(&p.w, 200);
    assert_int_equal(p.a->map_count, 0);
    assert_int_equal(p.b->map_count, 0);
    assert_int_equal(permit(p.a, p.a_slot) & (GVMI_PERMIT_READ | GVMI_PERMIT_WRITE), 0);
    assert_int_equal(permit(p.b, p.b_slot) & (GVMI_PERMIT_READ | GVMI_PERMIT_WRITE), 0);
    end_fixture(&p.w);
}

/* That they come before GRANTED the fixture checks. */
static void first_acquire_maps_all_chunks_before_it_is_granted(void **state)
{
    static const gvm_lease_mode modes[] = {GVM_LEASE_READ, GVM_LEASE_WRITE};
    pair p;

    (void)state;
    for (int i = 0; i < 2; i++) {
        start_open(&p, 2, 80, GVMI_MAP_ALL_CHUNKS_MAX + 1, OWNER, 0);
        ask_with_hint(&p.w, p.b, p.b_slot, modes[i], GVM_HINT_ONCE, -1);
        assert_true(granted(p.b));
        assert_int_equal(p.b->map_count, 2);
        for (uint32_t c = 0; c <= GVMI_MAP_ALL_CHUNKS_MAX; c++)
            assert_int_equal(mapped_frame(p.b, p.b_slot, c), frame_of(&p.w, c));
        assert_int_equal(p.a->map_count, 0);
        end_fixture(&p.w);
    }
}

static void permit_to_read_opens_when_all_maps_are_answered(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 80, 0, GVMI_MAP_ALL_CHUNKS_MAX + 1, OWNER, 0);
    p.b->deaf = true;
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_READ, -1);
    assert_true(granted(p.b));
    assert_int_equal(p.b->unanswered_count, 2);
    say_unmapped(&p.w, p.b, &p.b->maps[1]);
    assert_false(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    say_mapped(&p.w, p.b, &p.b->maps[0]);
    assert_false(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    say_mapped(&p.w, p.b, &p.b->maps[1]);
    assert_true(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    assert_false(permit(p.a, p.a_slot) & GVMI_PERMIT_READ);
    end_fixture(&p.w);
}

/* ---- eviction */

static void evicted_chunk_is_unmapped_where_it_is_followed(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 4, 4, 2, OWNER, 0);
    map_object(&p.w, p.a, p.a_slot);
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
    assert_sent(p.a, 2, 1, GVM_TIER_ABSENT);
    assert_false(permit(p.a, p.a_slot) & GVMI_PERMIT_READ);
    assert_int_equal(mapped_frame(p.a, p.a_slot, 0), frame_of(&p.w, 0)); /* this one stays */
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
    assert_sent(p.a, 3, 0, GVM_TIER_ABSENT);

    /* It comes back for another client, and goes again. */
    ask_with_hint(&p.w, p.b, p.b_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    give_all(&p.w, p.b, p.b_slot);
    assert_int_equal(info(&p.w, p.b, p.b_slot).device_bytes, 2 * CHUNK);
    assert_int_equal(evict(&p.w, p.a, "/x"), 2 * CHUNK);
    assert_int_equal(p.a->map_count, 3);
    assert_int_equal(mapped_frame(p.b, p.b_slot, 0), 0);
    assert_int_equal(mapped_frame(p.b, p.b_slot, 1), 0);
    end_fixture(&p.w);
}

static void opening_that_keeps_all_mapped_is_sent_the_host_frame(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 4, 4, 2, OWNER, GVM_OPEN_MAPPED);
    assert_int_equal(p.b->map_count, 1);
    assert_int_equal(sent_count(p.b), 2);
    assert_true(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
    assert_sent(p.b, 2, 1, GVM_TIER_HOST);
    assert_int_equal(mapped_frame(p.b, p.b_slot, 1), frame_of(&p.w, 1));
    assert_true(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    map_object(&p.w, p.b, p.b_slot);
    assert_int_equal(p.b->map_count, 2);
    end_fixture(&p.w);
}

/* What is on its way is where it was until that ends, and stays there if it could not be copied. */
static void opening_that_keeps_all_mapped_has_what_is_on_its_way(void **state)
{
    static const gvm_status ends[] = {GVM_OK, GVM_E_NOMEM};
    pair p;
    actor *c;
    uint32_t slot = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        start_open(&p, 4, 4, 2, OWNER, 0);
        c = join(&p.w, OWNER);
        p.w.hold_jobs = true;
        begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
        assert_int_equal(open_object(&p.w, c, "/x", GVM_OPEN_MAPPED, &slot), GVM_OK);
        assert_int_equal(sent_count(c), 2);
        end_copy(&p.w, 0, ends[i]);
        assert_int_equal(mapped_frame(c, slot, 1), frame_of(&p.w, 1));
        assert_int_equal(info(&p.w, c, slot).host_bytes, ends[i] == GVM_OK ? CHUNK : 0);
        assert_int_equal(c->map_count, ends[i] == GVM_OK ? 2 : 1);
        map_object(&p.w, c, slot);
        end_fixture(&p.w);
    }
}

/* It does not wait for a lease. */
static void opening_that_keeps_all_mapped_has_what_comes_in_for_others(void **state)
{
    pair p;
    actor *c;
    uint32_t slot = 0;

    (void)state;
    start_evicted(&p, 2);
    c = join(&p.w, OWNER);
    p.w.hold_jobs = true;
    ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_int_equal(open_object(&p.w, c, "/x", GVM_OPEN_MAPPED, &slot), GVM_OK);
    assert_int_equal(c->map_count, 1);
    assert_int_equal(sent_count(c), 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(mapped_frame(c, slot, i), frame_of(&p.w, i));
    end_copy(&p.w, 0, GVM_OK);
    assert_sent(c, 2, 0, GVM_TIER_DEVICE);
    end_copy(&p.w, 0, GVM_E_NOMEM);
    assert_true(granted(p.a));
    map_object(&p.w, c, slot);
    end_fixture(&p.w);
}

/* Likewise of a copy for the fence. */
static void opening_that_keeps_all_mapped_has_what_could_not_be_copied(void **state)
{
    pair p;
    actor *c;
    uint32_t slot = 0;

    (void)state;
    start_open(&p, 8, 8, 2, OWNER, 0);
    c = join(&p.w, OWNER);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    cut_off(&p.w, p.b);
    p.w.hold_jobs = true;
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_int_equal(p.w.job_count, 2);
    assert_int_equal(open_object(&p.w, c, "/x", GVM_OPEN_MAPPED, &slot), GVM_OK);
    end_copy(&p.w, 0, GVM_E_NOMEM);
    end_copy(&p.w, 0, GVM_E_NOMEM);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(mapped_frame(c, slot, i), frame_of(&p.w, i));
    end_fixture(&p.w);
}

/* Each a moment before it would be cut off answers, and is closed when the next has opened the object. */
static void openings_one_after_the_other_hold_up_no_move(void **state)
{
    pair p;
    actor *c;
    uint32_t slot = 0, other = 0;

    (void)state;
    start_open(&p, 2, 4, 2, OWNER, GVM_OPEN_MAPPED);
    c = join(&p.w, OTHER);
    p.b->deaf = true;
    begin_evict(&p.w, p.a, "/x");
    tick(&p.w, 900);
    c->deaf = true;
    assert_int_equal(open_object(&p.w, c, "/x", GVM_OPEN_MAPPED, &slot), GVM_OK);
    assert_int_equal(sent_count(c), 2);
    while (p.b->unanswered_count > 0)
        say_mapped(&p.w, p.b, &p.b->unanswered[0].message.body.MAP);
    assert_int_equal(device(&p.w)->free_bytes, 2 * CHUNK);
    assert_int_equal(p.w.machine->devices[0].leaving_bytes, 0);
    assert_int_equal(only_object(&p.w)->lease_state, KEEP_SHARED);
    assert_int_equal(create(&p.w, p.a, "/y", 2, 0, &other), GVM_OK);

    /* It has no permit before it has mapped what it was sent; and the next move waits for it. */
    assert_true(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    assert_false(permit(c, slot) & GVMI_PERMIT_READ);
    ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    while (p.b->unanswered_count > 0)
        say_mapped(&p.w, p.b, &p.b->unanswered[0].message.body.MAP);
    assert_false(granted(p.a));
    while (c->unanswered_count > 0)
        say_mapped(&p.w, c, &c->unanswered[0].message.body.MAP);
    assert_true(granted(p.a));
    assert_true(permit(c, slot) & GVMI_PERMIT_READ);
    end_fixture(&p.w);
}

/* What comes in for others is where it is already. */
static void acquire_of_another_opening_holds_up_no_move(void **state)
{
    pair p;
    actor *c;
    uint32_t slot = 0;

    (void)state;
    start_evicted(&p, 2);
    c = join(&p.w, OTHER);
    p.b->deaf = c->deaf = true;
    ask_with_hint(&p.w, p.b, p.b_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_int_equal(p.b->unanswered_count, 2);
    assert_int_equal(open_object(&p.w, c, "/x", 0, &slot), GVM_OK);
    ask(&p.w, c, slot, GVM_LEASE_READ, -1);
    assert_int_equal(sent_count(c), 2);
    while (p.b->unanswered_count > 0)
        say_mapped(&p.w, p.b, &p.b->unanswered[0].message.body.MAP);
    assert_true(granted(p.b) && granted(c));
    assert_false(permit(c, slot) & GVMI_PERMIT_READ);
    end_fixture(&p.w);
}

/* ---- later leases */

static void next_acquire_maps_what_is_missing(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 4, 4, 3, OWNER, 0);
    map_object(&p.w, p.a, p.a_slot);
    begin_evict_bytes(&p.w, p.b, "/x", CHUNK);
    ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_ONCE, -1); /* it stays there */
    assert_true(granted(p.a));
    assert_sent(p.a, 3, 2, GVM_TIER_HOST);
    give_all(&p.w, p.a, p.a_slot);
    ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1); /* it comes back */
    assert_true(granted(p.a));
    assert_sent(p.a, 4, 2, GVM_TIER_DEVICE);
    end_fixture(&p.w);
}

/* The device has room for nothing else, as the other object is leased. */
static void scan_of_what_stays_on_the_host_maps_it_once(void **state)
{
    pair p;
    uint32_t other = 0;

    (void)state;
    start_evicted(&p, 2);
    assert_int_equal(create(&p.w, p.b, "/y", CHUNKS_MAX, 0, &other), GVM_OK);
    acquire(&p.w, p.b, other, GVM_LEASE_READ);
    for (int i = 0; i < 3; i++) {
        ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_SCAN, -1);
        assert_true(granted(p.a));
        give_all(&p.w, p.a, p.a_slot);
        tick(&p.w, 200);
        assert_int_equal(info(&p.w, p.a, p.a_slot).host_bytes, 2 * CHUNK);
        assert_int_equal(p.a->map_count, 1);
        /* All that the fast path asks for. */
        assert_int_equal(permit(p.a, p.a_slot) & 0xffffffff, GVMI_PERMIT_READ | GVMI_PERMIT_PARTIAL);
    }
    end_fixture(&p.w);
}

/* ---- chunks that come in */

static void chunk_that_comes_in_is_sent_to_who_waits_as_it_arrives(void **state)
{
    pair p;

    (void)state;
    start_evicted(&p, 3);
    p.w.hold_jobs = true;
    ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_int_equal(p.w.job_count, 3);
    assert_int_equal(p.a->map_count, 0);
    for (unsigned i = 1; i <= 3; i++) {
        assert_false(granted(p.a));
        end_copy(&p.w, 0, GVM_OK);
        assert_int_equal(p.a->map_count, i);
        assert_int_equal(sent_count(p.a), 1);
        assert_int_equal(p.a->latest_map.message.tail.chunks[0].tier, GVM_TIER_DEVICE);
    }
    assert_true(granted(p.a));
    assert_int_equal(p.a->map_count, 3);
    assert_int_equal(p.b->map_count, 0);
    end_fixture(&p.w);
}

static void request_that_comes_while_chunks_come_in_is_sent_the_others_at_once(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 4, 4, 2, OWNER, 0);
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
    p.w.hold_jobs = true;
    ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_int_equal(p.w.job_count, 1);
    assert_sent(p.a, 1, 0, GVM_TIER_DEVICE); /* who was there first, too */
    assert_int_equal(p.b->map_count, 0);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_READ, -1);
    assert_sent(p.b, 1, 0, GVM_TIER_DEVICE);
    assert_false(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    end_copy(&p.w, 0, GVM_OK);
    assert_sent(p.a, 2, 1, GVM_TIER_DEVICE);
    assert_sent(p.b, 2, 1, GVM_TIER_DEVICE);
    assert_true(granted(p.a) && granted(p.b));
    end_fixture(&p.w);
}

/* What stays may leave, too, before the request is served. */
static void request_that_comes_while_chunks_leave_is_sent_nothing_yet(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 4, 4, 2, OWNER, 0);
    p.w.hold_jobs = true;
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
    ask_with_hint(&p.w, p.b, p.b_slot, GVM_LEASE_READ, GVM_HINT_ONCE, -1);
    assert_int_equal(p.b->map_count, 0);
    end_copy(&p.w, 0, GVM_OK);
    assert_true(granted(p.b));
    assert_int_equal(p.b->map_count, 1);
    assert_int_equal(sent_count(p.b), 2);
    end_fixture(&p.w);
}

static void chunk_whose_copy_failed_is_sent_where_it_is(void **state)
{
    pair p;

    (void)state;
    start_evicted(&p, 2);
    p.w.hold_jobs = true;
    ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_int_equal(p.w.job_count, 2);
    end_copy(&p.w, 1, GVM_E_NOMEM);
    assert_sent(p.a, 1, 1, GVM_TIER_HOST);
    end_copy(&p.w, 0, GVM_OK);
    assert_true(granted(p.a));
    assert_sent(p.a, 2, 0, GVM_TIER_DEVICE);
    end_fixture(&p.w);
}

/* Nothing was sent before: these MAPs are the first that it is to answer. */
static void permit_to_read_waits_for_chunks_whose_copies_failed(void **state)
{
    pair p;

    (void)state;
    start_evicted(&p, 2);
    p.w.hold_jobs = true;
    p.a->deaf = true;
    ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    end_copy(&p.w, 1, GVM_E_NOMEM);
    end_copy(&p.w, 0, GVM_E_NOMEM);
    assert_int_equal(p.a->unanswered_count, 2);
    assert_false(permit(p.a, p.a_slot) & GVMI_PERMIT_READ);
    say_mapped(&p.w, p.a, &p.a->maps[0]);
    assert_false(permit(p.a, p.a_slot) & GVMI_PERMIT_READ);
    assert_false(granted(p.a));
    say_mapped(&p.w, p.a, &p.a->maps[1]);
    assert_true(granted(p.a));
    assert_true(permit(p.a, p.a_slot) & GVMI_PERMIT_READ);
    end_fixture(&p.w);
}

/* The other object cannot leave: the host is full. */
static void chunk_without_room_on_the_device_is_sent_where_it_is(void **state)
{
    pair p;
    uint32_t other = 0;

    (void)state;
    start_open(&p, 2, 2, 2, OWNER, 0);
    assert_int_equal(evict(&p.w, p.a, "/x"), 2 * CHUNK);
    assert_int_equal(create(&p.w, p.b, "/y", 2, 0, &other), GVM_OK);
    ask_with_hint(&p.w, p.a, p.a_slot, GVM_LEASE_READ, GVM_HINT_HOT, -1);
    assert_true(granted(p.a));
    assert_int_equal(info(&p.w, p.a, p.a_slot).host_bytes, 2 * CHUNK);
    end_fixture(&p.w);
}

/* ---- another size */

static void growth_is_sent_to_who_follows_all(void **state)
{
    pair p;
    actor *c;
    uint32_t slot = 0;

    (void)state;
    start_open(&p, 8, 8, 2, OWNER, 0);
    c = join(&p.w, OWNER);
    assert_int_equal(open_object(&p.w, c, "/x", 0, &slot), GVM_OK);
    map_object(&p.w, c, slot);
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
    map_object(&p.w, p.b, p.b_slot);
    assert_int_equal(grow(&p.w, p.a, p.a_slot, 3 * CHUNK), GVM_OK);
    assert_sent(p.b, 2, 2, GVM_TIER_DEVICE);
    assert_true(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    assert_sent_size(&p.w, p.a, 1); /* it has no chunk, */
    assert_sent_size(&p.w, c, 3);   /* and the other not all of them */
    map_object(&p.w, p.a, p.a_slot);
    assert_int_equal(sent_count(p.a), 3);
    map_object(&p.w, c, slot);
    assert_int_equal(sent_count(c), 2);
    end_fixture(&p.w);
}

static void shrinking_is_sent_to_who_has_no_chunk_as_size_alone(void **state)
{
    gvmi_wire_message m;
    pair p;

    (void)state;
    start_open(&p, 8, 8, 2, OWNER, 0);
    map_object(&p.w, p.a, p.a_slot);
    gvmi_wire_start(&m, GVMI_WIRE_SHRINK, 14);
    m.body.SHRINK = (gvmi_wire_grow){.slot = p.a_slot, .bytes = CHUNK};
    say(&p.w, p.a, &m);
    assert_int_equal(reply_status(p.a), GVM_OK);
    assert_sent_size(&p.w, p.a, 2); /* which says what to unmap */
    assert_sent_size(&p.w, p.b, 1);
    assert_true(permit(p.a, p.a_slot) & GVMI_PERMIT_READ);
    assert_false(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    end_fixture(&p.w);
}

/* ---- clients that are cut off */

static void client_cut_off_before_it_unmapped_holds_the_device_frames(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 4, 4, 2, OTHER, 0);
    map_object(&p.w, p.b, p.b_slot);
    p.b->deaf = true;
    begin_evict(&p.w, p.a, "/x");
    assert_int_equal(device(&p.w)->held_bytes, 0);
    tick(&p.w, 1200);
    assert_true(p.b->cut);
    assert_int_equal(device(&p.w)->held_bytes, 2 * CHUNK);
    assert_int_equal(used_bytes(&p.w, OTHER), 2 * CHUNK);
    drop_object(&p.w, p.a, "/x"); /* and no frame of the host */
    close_slot(&p.w, p.a, p.a_slot);
    assert_int_equal(used_bytes(&p.w, OTHER), 2 * CHUNK);
    assert_int_equal(p.w.machine->host.held_bytes, 0);
    end_fixture(&p.w);
}

static void client_cut_off_after_it_unmapped_holds_nothing(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 4, 4, 2, OTHER, 0);
    map_object(&p.w, p.b, p.b_slot);
    assert_int_equal(evict(&p.w, p.a, "/x"), 2 * CHUNK);
    cut_off(&p.w, p.b);
    assert_int_equal(device(&p.w)->held_bytes, 0);
    drop_object(&p.w, p.a, "/x");
    close_slot(&p.w, p.a, p.a_slot);
    assert_int_equal(used_bytes(&p.w, OTHER), 0);
    end_fixture(&p.w);
}

static void client_that_never_had_a_lease_holds_nothing(void **state)
{
    pair p;

    (void)state;
    start_open(&p, 4, 4, 2, OTHER, 0);
    map_object(&p.w, p.a, p.a_slot);
    cut_off(&p.w, p.b);
    assert_true(p.b->forgotten);
    drop_object(&p.w, p.a, "/x");
    close_slot(&p.w, p.a, p.a_slot);
    assert_int_equal(used_bytes(&p.w, OTHER), 0);
    assert_int_equal(device(&p.w)->used_bytes, device(&p.w)->free_bytes);
    end_fixture(&p.w);
}

/* ---- links */

static void link_follows_its_chunks_alone(void **state)
{
    pair p;
    actor *c;
    uint32_t slot = 0;

    (void)state;
    start_open(&p, 8, 8, 3, OWNER, 0);
    c = join(&p.w, OTHER);
    assert_int_equal(link_object(&p.w, p.a, p.a_slot, "/secret", 0444, CHUNK + 1), GVM_OK);
    assert_int_equal(open_object(&p.w, c, "/secret", GVM_OPEN_LINK | GVM_OPEN_READONLY, &slot), GVM_OK);
    assert_int_equal(c->map_count, 0);
    map_object(&p.w, c, slot);
    assert_int_equal(c->map_count, 1);
    assert_int_equal(sent_count(c), 2);
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK); /* the last one, which is not its own */
    map_object(&p.w, c, slot);
    assert_int_equal(c->map_count, 1);
    assert_true(permit(c, slot) & GVMI_PERMIT_READ);
    begin_evict_bytes(&p.w, p.a, "/x", CHUNK);
    assert_sent(c, 2, 1, GVM_TIER_ABSENT);
    map_object(&p.w, c, slot);
    assert_sent(c, 3, 1, GVM_TIER_HOST);
    end_fixture(&p.w);
}

static void opening_that_could_not_map_is_sent_all_by_its_next_lease(void **state)
{
    pair p;

    (void)state;
    start_open(&p, CHUNKS_MAX, CHUNKS_MAX, 2, OWNER, 0);
    map_object(&p.w, p.b, p.b_slot);
    assert_false(p.b->latest_map.message.body.MAP.anew);
    fail_to_map(&p.w, p.a, p.a_slot, 3 * CHUNK, p.b, p.b_slot);
    assert_int_equal(p.b->map_count, 2);
    assert_int_equal(evict(&p.w, p.a, "/x"), 3 * CHUNK);
    assert_int_equal(p.b->map_count, 2); /* nothing before it asks */
    map_object(&p.w, p.b, p.b_slot);
    assert_int_equal(p.b->map_count, 3);
    assert_int_equal(sent_count(p.b), 3);
    assert_true(p.b->latest_map.message.body.MAP.anew);
    assert_true(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    end_fixture(&p.w);
}

/* The client says of each MAP that was on its way that it failed, when the keeper has begun anew. */
static void failure_of_an_earlier_map_is_not_that_of_a_later_one(void **state)
{
    pair p;
    gvmi_wire_message m;

    (void)state;
    start_open(&p, CHUNKS_MAX, CHUNKS_MAX, 2, OWNER, 0);
    map_object(&p.w, p.b, p.b_slot);
    fail_to_map(&p.w, p.a, p.a_slot, 3 * CHUNK, p.b, p.b_slot);
    gvmi_wire_start(&m, GVMI_WIRE_MAPPED, 0);
    m.body.MAPPED = (gvmi_wire_mapped){
        .slot = p.b_slot, .serial = p.b->latest_map.message.body.MAP.serial, .status = GVM_E_LIMIT};
    map_object(&p.w, p.b, p.b_slot);
    say(&p.w, p.b, &m);
    assert_true(permit(p.b, p.b_slot) & GVMI_PERMIT_READ);
    assert_false(p.b->cut);
    end_fixture(&p.w);
}

/* Other chunks may take the place of those that are cut off, and must not be taken for them. */
static void shrinking_waits_for_who_follows_no_chunk(void **state)
{
    pair p;
    gvmi_wire_message m;

    (void)state;
    start_open(&p, CHUNKS_MAX, CHUNKS_MAX, 4, OWNER, 0);
    p.b->deaf = true;
    gvmi_wire_start(&m, GVMI_WIRE_SHRINK, 31);
    m.body.SHRINK = (gvmi_wire_grow){.slot = p.a_slot, .bytes = CHUNK};
    p.a->latest.head.type = 0;
    say(&p.w, p.a, &m);
    assert_int_equal(last(p.a)->head.type, 0);
    assert_int_equal(p.b->unanswered_count, 1);
    say_mapped(&p.w, p.b, p.b->map);
    assert_int_equal(last(p.a)->head.type, GVMI_WIRE_DONE);
    end_fixture(&p.w);
}

/* A thread that was granted behind the MAP that failed waits for the last of those that follow. */
static void maps_anew_have_no_generation_before_the_last(void **state)
{
    const uint64_t chunks = GVMI_MAP_ALL_CHUNKS_MAX + 1;
    pair p;

    (void)state;
    start_open(&p, chunks + 1, 1, chunks, OWNER, 0);
    map_object(&p.w, p.b, p.b_slot);
    fail_to_map(&p.w, p.a, p.a_slot, (chunks + 1) * CHUNK, p.b, p.b_slot);
    p.b->deaf = true;
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_READ, -1);
    assert_int_equal(p.b->unanswered_count, 2);
    assert_int_equal(p.b->unanswered[0].message.body.MAP.generation, 0);
    assert_true(p.b->unanswered[0].message.body.MAP.anew);
    assert_int_equal(p.b->unanswered[1].message.body.MAP.generation, only_object(&p.w)->generation);
    assert_false(p.b->unanswered[1].message.body.MAP.anew);
    end_fixture(&p.w);
}

static void opening_that_fails_after_its_answer_breaks_the_protocol(void **state)
{
    pair p;
    gvmi_wire_message m;

    (void)state;
    start_open(&p, CHUNKS_MAX, CHUNKS_MAX, 2, OWNER, 0);
    gvmi_wire_start(&m, GVMI_WIRE_MAPPED, 0);
    m.body.MAPPED = (gvmi_wire_mapped){.slot = p.b_slot, .status = GVM_E_ADDRESS};
    say(&p.w, p.b, &m);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_READ, -1);
    assert_true(granted(p.b) && p.b->latest_map.message.body.MAP.anew);
    assert_false(p.b->cut);
    say(&p.w, p.b, &m); /* it could have all sent again and again */
    assert_true(p.b->cut);
    end_fixture(&p.w);
}

/* Chunks that are marked though nothing is to be sent of them stay so: those that the event did not move are not looked at. */
static void event_looks_for_what_is_to_be_sent_among_chunks_that_it_moved(void **state)
{
    pair p;
    keep_chunk *chunks;

    (void)state;
    start_open(&p, CHUNKS_MAX, CHUNKS_MAX, CHUNKS_MAX, OWNER, 0);
    map_object(&p.w, p.a, p.a_slot);
    p.w.hold_jobs = true;
    begin_evict_bytes(&p.w, p.a, "/x", 3 * CHUNK);
    assert_int_equal(p.w.job_count, 3);
    p.a->map_count = 0;
    chunks = p.w.machine->objects->chunks;
    chunks[0].send = chunks[CHUNKS_MAX - 1].send = true;
    p.w.unchecked = true;
    end_copy(&p.w, 1, GVM_OK);
    assert_sent(p.a, 1, CHUNKS_MAX - 2, GVM_TIER_ABSENT);
    assert_true(chunks[0].send && chunks[CHUNKS_MAX - 1].send);
    chunks[0].send = chunks[CHUNKS_MAX - 1].send = false;
    p.w.unchecked = false;
    end_fixture(&p.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_maps_nothing),
        cmocka_unit_test(first_acquire_maps_all_chunks_before_it_is_granted),
        cmocka_unit_test(permit_to_read_opens_when_all_maps_are_answered),
        cmocka_unit_test(evicted_chunk_is_unmapped_where_it_is_followed),
        cmocka_unit_test(opening_that_keeps_all_mapped_is_sent_the_host_frame),
        cmocka_unit_test(opening_that_keeps_all_mapped_has_what_is_on_its_way),
        cmocka_unit_test(opening_that_keeps_all_mapped_has_what_comes_in_for_others),
        cmocka_unit_test(opening_that_keeps_all_mapped_has_what_could_not_be_copied),
        cmocka_unit_test(openings_one_after_the_other_hold_up_no_move),
        cmocka_unit_test(acquire_of_another_opening_holds_up_no_move),
        cmocka_unit_test(next_acquire_maps_what_is_missing),
        cmocka_unit_test(scan_of_what_stays_on_the_host_maps_it_once),
        cmocka_unit_test(chunk_that_comes_in_is_sent_to_who_waits_as_it_arrives),
        cmocka_unit_test(request_that_comes_while_chunks_come_in_is_sent_the_others_at_once),
        cmocka_unit_test(request_that_comes_while_chunks_leave_is_sent_nothing_yet),
        cmocka_unit_test(chunk_whose_copy_failed_is_sent_where_it_is),
        cmocka_unit_test(permit_to_read_waits_for_chunks_whose_copies_failed),
        cmocka_unit_test(chunk_without_room_on_the_device_is_sent_where_it_is),
        cmocka_unit_test(growth_is_sent_to_who_follows_all),
        cmocka_unit_test(shrinking_is_sent_to_who_has_no_chunk_as_size_alone),
        cmocka_unit_test(client_cut_off_before_it_unmapped_holds_the_device_frames),
        cmocka_unit_test(client_cut_off_after_it_unmapped_holds_nothing),
        cmocka_unit_test(client_that_never_had_a_lease_holds_nothing),
        cmocka_unit_test(link_follows_its_chunks_alone),
        cmocka_unit_test(opening_that_could_not_map_is_sent_all_by_its_next_lease),
        cmocka_unit_test(failure_of_an_earlier_map_is_not_that_of_a_later_one),
        cmocka_unit_test(shrinking_waits_for_who_follows_no_chunk),
        cmocka_unit_test(maps_anew_have_no_generation_before_the_last),
        cmocka_unit_test(opening_that_fails_after_its_answer_breaks_the_protocol),
        cmocka_unit_test(event_looks_for_what_is_to_be_sent_among_chunks_that_it_moved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
