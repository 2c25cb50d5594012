/* The keeper's machine: clients that were cut off, or closed their socket. What they could write goes
 * on in other memory before others are granted a lease; what they may have mapped is counted and
 * charged until they are gone; rights are looked at where shared words are read. */
#include "tests/unit/machine_pair.h"

/* ---- the fence */

static void writer_cut_off_leaves_its_frames_before_the_next_lease(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    note_frames(&p.w, before);
    cut_off(&p.w, p.b);
    assert_int_equal(permit(p.a, p.a_slot) & (GVMI_PERMIT_READ | GVMI_PERMIT_WRITE), 0);
    assert_true(has_frame(&p.w, before)); /* nobody has asked yet */
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_true(granted(p.a));
    assert_false(has_frame(&p.w, before));
    assert_int_equal(device(&p.w)->held_bytes, 2 * CHUNK);
    assert_int_equal(p.w.dropped_bytes, 2 * CHUNK); /* released, but counted */
    assert_int_equal(info(&p.w, p.a, p.a_slot).interrupted, 1);
    gvmi_machine_exited(p.w.machine, p.b->number);
    p.b->forgotten = true;
    run(&p.w);
    assert_int_equal(device(&p.w)->held_bytes, 0);
    end_fixture(&p.w);
}

static void writer_cut_off_before_it_took_its_lease_counts_as_one(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE, -1); /* TAKEN does not come */
    note_frames(&p.w, before);
    cut_off(&p.w, p.b);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_WRITE, -1);
    assert_true(granted(p.a));
    assert_false(has_frame(&p.w, before));
    end_fixture(&p.w);
}

static void reader_cut_off_shares_its_frames(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    note_frames(&p.w, before);
    cut_off(&p.w, p.b);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_WRITE, -1);
    assert_true(granted(p.a));
    assert_true(has_frame(&p.w, before));
    end_fixture(&p.w);
}

/* A client that was there before it was cut off ends its lease first: it shared the frames already. */
static void reader_of_an_untracked_object_cut_off_counts_as_writer(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_pair(&p, 8, 8, GVM_OBJECT_UNTRACKED, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    acquire(&p.w, p.a, p.a_slot, GVM_LEASE_READ);
    note_frames(&p.w, before);
    cut_off(&p.w, p.b);
    assert_false(permit(p.a, p.a_slot) & GVMI_PERMIT_READ);
    p.a->count = 0;
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_int_equal(p.a->count, 0);
    give(&p.w, p.a, p.a_slot, GVM_LEASE_READ);
    assert_true(granted(p.a));
    assert_false(has_frame(&p.w, before));
    end_fixture(&p.w);
}

/* The last writer ended its lease before the seal; so copies in both tiers stay good. */
static void reader_of_a_sealed_untracked_object_is_no_writer(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_pair(&p, 8, 8, GVM_OBJECT_UNTRACKED, OWNER, 0);
    ask_seal(&p.w, p.a, p.a_slot);
    assert_int_equal(evict(&p.w, p.a, "/x"), 2 * CHUNK);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_READ, -1); /* brings it in */
    take(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    assert_int_equal(only_object(&p.w)->duplicate_chunks, 2);
    for (uint32_t i = 0; i < 2; i++)
        before[i] = frame_of(&p.w, i);
    cut_off(&p.w, p.b);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_true(granted(p.a));
    assert_true(has_frame(&p.w, before));
    assert_int_equal(only_object(&p.w)->duplicate_chunks, 2);
    end_fixture(&p.w);
}

static void reader_of_an_untracked_object_opened_readonly_is_no_writer(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_pair(&p, 8, 8, GVM_OBJECT_UNTRACKED, OWNER, GVM_OPEN_READONLY);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    note_frames(&p.w, before);
    cut_off(&p.w, p.b);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, 0);
    assert_true(granted(p.a));
    assert_true(has_frame(&p.w, before));
    end_fixture(&p.w);
}

static void fence_without_room_on_the_device_goes_to_the_host(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 2, 2, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    cut_off(&p.w, p.b);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_WRITE, -1);
    assert_true(granted(p.a));
    assert_int_equal(info(&p.w, p.a, p.a_slot).host_bytes, 2 * CHUNK);
    assert_int_equal(device(&p.w)->held_bytes, 2 * CHUNK);
    end_fixture(&p.w);
}

static void fence_without_any_room_waits_for_the_end_of_the_process(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 2, 0, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    cut_off(&p.w, p.b);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, 50);
    assert_false(granted(p.a));
    tick(&p.w, 60);
    assert_int_equal(reply_status(p.a), GVM_E_TIMEOUT);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    tick(&p.w, 5000);
    assert_int_equal(p.w.lines, 1); /* the log has it, once */
    assert_false(granted(p.a));
    assert_true(info(&p.w, p.a, p.a_slot).fenced);
    gvmi_machine_exited(p.w.machine, p.b->number);
    p.b->forgotten = true;
    run(&p.w);
    assert_true(granted(p.a));
    assert_int_equal(device(&p.w)->used_bytes, 2 * CHUNK);
    end_fixture(&p.w);
}

/* Room came: another object went. */
static void fence_is_tried_again_when_there_may_be_room(void **state)
{
    pair p;
    uint32_t slot = 0;

    (void)state;
    start_pair(&p, 4, 0, 0, OWNER, 0);
    assert_int_equal(create(&p.w, p.a, "/y", 2, 0, &slot), GVM_OK);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    cut_off(&p.w, p.b);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_false(granted(p.a));
    drop_object(&p.w, p.a, "/y");
    close_slot(&p.w, p.a, slot);
    tick(&p.w, 200);
    assert_true(granted(p.a));
    end_fixture(&p.w);
}

/* What runs meanwhile fails once: the next look tries again. */
static void fence_copy_that_fails_is_made_again(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 0, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    cut_off(&p.w, p.b);
    p.w.hold_jobs = true;
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_int_equal(p.w.job_count, 2);
    while (p.w.job_count > 0)
        gvmi_machine_job_done(p.w.machine, p.w.jobs[--p.w.job_count], GVM_E_NOSPACE);
    p.w.hold_jobs = false;
    run(&p.w);
    assert_false(granted(p.a));
    tick(&p.w, 200);
    assert_true(granted(p.a));
    end_fixture(&p.w);
}

/* Whatever the copy is, and whichever way it goes: only the next look makes it again, not the failure. */
static void fail_copies(pair *p, uint64_t device_chunks, uint64_t host_chunks, bool evicted)
{
    start_pair(p, device_chunks, host_chunks, 0, OWNER, 0);
    if (evicted)
        assert_int_equal(evict(&p->w, p->a, "/x"), 2 * CHUNK);
    ask(&p->w, p->b, p->b_slot, GVM_LEASE_WRITE, 0);
    take(&p->w, p->b, p->b_slot, GVM_LEASE_WRITE);
    cut_off(&p->w, p->b);
    p->w.hold_jobs = true;
    ask(&p->w, p->a, p->a_slot, GVM_LEASE_READ, -1);
    for (int look = 0; look < 3; look++) {
        unsigned failed = 0;

        assert_in_range(p->w.job_count, 1, 2);
        for (; p->w.job_count > 0; failed++) {
            assert_true(failed < 2);
            gvmi_machine_job_done(p->w.machine, p->w.jobs[--p->w.job_count], GVM_E_LIMIT);
            run(&p->w);
        }
        assert_false(granted(p->a));
        tick(&p->w, 200);
    }
    end_jobs(&p->w);
    assert_true(granted(p->a));
    end_fixture(&p->w);
}

static void fence_copy_that_fails_waits_for_the_next_look(void **state)
{
    pair p;

    (void)state;
    fail_copies(&p, 8, 0, false); /* to another frame of the device */
    fail_copies(&p, 2, 8, false); /* to the host */
    fail_copies(&p, 2, 2, true);  /* to the device */
    fail_copies(&p, 2, 8, true);  /* to another frame of the host */
}

/* The process is gone before the copy is over: what it wrote in between is in the host frame alone. */
static void copy_of_a_host_frame_with_writers_is_never_clean(void **state)
{
    pair p;
    gvmi_snapshot_object i;

    (void)state;
    start_pair(&p, 2, 2, 0, OWNER, 0);
    assert_int_equal(evict(&p.w, p.a, "/x"), 2 * CHUNK);
    atomic_store(&p.b->leases[p.b_slot].hint, GVM_HINT_ONCE);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE, 0); /* who does not wait takes it where it is */
    take(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    assert_int_equal(info(&p.w, p.a, p.a_slot).host_bytes, 2 * CHUNK);
    cut_off(&p.w, p.b);
    p.w.hold_jobs = true;
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1); /* no room on the host: to the device */
    assert_int_equal(p.w.job_count, 2);
    gvmi_machine_exited(p.w.machine, p.b->number);
    p.b->forgotten = true;
    while (p.w.job_count > 0)
        gvmi_machine_job_done(p.w.machine, p.w.jobs[--p.w.job_count], GVM_OK);
    p.w.hold_jobs = false;
    run(&p.w);
    assert_true(granted(p.a));
    i = info(&p.w, p.a, p.a_slot);
    assert_int_equal(i.device_bytes, 2 * CHUNK);
    assert_int_equal(i.duplicate_bytes, 0);
    end_fixture(&p.w);
}

/* Its readers could write before it was sealed. */
static void untracked_object_is_sealed_when_its_readers_have_ended(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, GVM_OBJECT_UNTRACKED, OWNER, 0);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_READ, -1);
    take(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    ask_seal(&p.w, p.a, p.a_slot);
    assert_int_not_equal(last(p.a)->head.type, GVMI_WIRE_DONE);
    give(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    assert_int_equal(last(p.a)->head.type, GVMI_WIRE_DONE);
    end_fixture(&p.w);
}

static void seal_of_a_fenced_object_is_on_other_frames(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    note_frames(&p.w, before);
    cut_off(&p.w, p.b);
    ask_seal(&p.w, p.a, p.a_slot);
    assert_int_equal(last(p.a)->head.type, GVMI_WIRE_DONE);
    assert_false(has_frame(&p.w, before));
    end_fixture(&p.w);
}

static void writer_cut_off_is_killed_where_that_is_wanted(void **state)
{
    gvmi_machine_config config = small_config(8, 8);
    pair p;

    (void)state;
    config.fence_kills = true;
    start_pair_as(&p, &config, 0, OWNER, 0);
    acquire(&p.w, p.a, p.a_slot, GVM_LEASE_READ);
    cut_off(&p.w, p.a);
    assert_false(p.a->killed); /* it could only read */
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    cut_off(&p.w, p.b);
    assert_true(p.b->killed);
    end_fixture(&p.w);
}

/* ---- memory for a fence that cannot be had */

static bool no_holds;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return no_holds && bytes == sizeof(keep_holds) ? NULL : __real_malloc(bytes);
}

/* b could write when it was cut off, and it cannot be written down where. The process is forgotten at once:
 * its end is not waited for. */
static void start_unknown_writer(pair *p, uint64_t chunks, uint32_t before[2])
{
    start_pair(p, chunks, 0, 0, OWNER, 0);
    acquire(&p->w, p->b, p->b_slot, GVM_LEASE_WRITE);
    note_frames(&p->w, before);
    no_holds = true;
    cut_off(&p->w, p->b);
    no_holds = false;
    assert_true(p->b->forgotten);
}

static void frames_whose_writer_could_not_be_noted_are_left(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_unknown_writer(&p, 8, before);
    acquire(&p.w, p.a, p.a_slot, GVM_LEASE_READ);
    assert_false(has_frame(&p.w, before));
    assert_int_equal(p.w.dropped_bytes, 2 * CHUNK); /* released, and given to nobody */
    assert_int_equal(device(&p.w)->free_bytes, 0);
    end_fixture(&p.w);
}

static void frames_whose_writer_could_not_be_noted_get_no_lease_ever(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_unknown_writer(&p, 2, before);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, 5000);
    assert_false(granted(p.a));
    tick(&p.w, 5100);
    assert_int_equal(reply_status(p.a), GVM_E_TIMEOUT);
    assert_true(has_frame(&p.w, before));
    end_fixture(&p.w);
}

/* ---- what is counted, and whom it is charged to */

static void frames_held_by_a_client_are_charged_to_its_user(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, GVM_OPEN_READONLY);
    assert_int_equal(used_bytes(&p.w, OWNER), 2 * CHUNK);
    cut_off(&p.w, p.b);
    assert_int_equal(used_bytes(&p.w, OTHER), 0); /* they are the object's */
    drop_object(&p.w, p.a, "/x");
    close_slot(&p.w, p.a, p.a_slot);
    assert_int_equal(used_bytes(&p.w, OWNER), 0);
    assert_int_equal(used_bytes(&p.w, OTHER), 2 * CHUNK);
    assert_int_equal(device(&p.w)->held_bytes, 2 * CHUNK);
    gvmi_machine_closed(p.w.machine, p.b->number); /* which is not believed of another user's process */
    run(&p.w);
    assert_int_equal(used_bytes(&p.w, OTHER), 2 * CHUNK);
    gvmi_machine_exited(p.w.machine, p.b->number);
    p.b->forgotten = true;
    run(&p.w);
    assert_int_equal(used_bytes(&p.w, OTHER), 0);
    assert_int_equal(device(&p.w)->used_bytes, 0);
    end_fixture(&p.w);
}

static void say_that_mapping_failed(pair *p)
{
    fail_to_map(&p->w, p->a, p->a_slot, 3 * CHUNK, p->b, p->b_slot);
}

static void end_object(pair *p)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_DROP, 30);
    strcpy(m.body.DROP.name, "/x");
    say(&p->w, p->a, &m);
    close_slot(&p->w, p->a, p->a_slot);
}

/* It has the descriptors, whatever it says of mapping them. */
static void frames_that_another_user_could_not_map_are_charged_to_it(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, GVM_OPEN_READONLY);
    say_that_mapping_failed(&p);
    assert_int_equal(evict(&p.w, p.a, "/x"), 3 * CHUNK); /* to frames that it never gets */
    assert_int_equal(device(&p.w)->held_bytes, 3 * CHUNK);
    close_slot(&p.w, p.b, p.b_slot);
    end_object(&p);
    assert_int_equal(used_bytes(&p.w, OTHER), 3 * CHUNK);
    gvmi_machine_closed(p.w.machine, p.b->number);
    run(&p.w);
    assert_int_equal(used_bytes(&p.w, OTHER), 3 * CHUNK);
    gvmi_machine_exited(p.w.machine, p.b->number);
    p.b->forgotten = true;
    run(&p.w);
    assert_int_equal(used_bytes(&p.w, OTHER), 0);
    assert_int_equal(device(&p.w)->used_bytes, 0);
    end_fixture(&p.w);
}

static void frames_that_their_owner_could_not_map_are_let_go(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    say_that_mapping_failed(&p);
    assert_int_equal(evict(&p.w, p.a, "/x"), 3 * CHUNK);
    assert_int_equal(device(&p.w)->held_bytes, 0);
    end_fixture(&p.w);
}

static void fail_under_write_lease(pair *p, uint32_t uid, uint32_t frames_before[2])
{
    start_pair(p, 8, 8, 0, uid, 0);
    acquire(&p->w, p->b, p->b_slot, GVM_LEASE_WRITE);
    note_frames(&p->w, frames_before);
    say_that_mapping_failed(p);
}

/* Another user's, which has a lease: what could write may go on doing so. */
static void writer_of_another_user_that_says_that_mapping_failed_is_a_writer(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    fail_under_write_lease(&p, OTHER, before);
    assert_true(only_object(&p.w)->fenced);
    give(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_true(granted(p.a));
    assert_false(has_frame(&p.w, before));
    end_fixture(&p.w);
}

/* The library says it when it has unmapped everything, but a thread may have taken the grant that came behind the
 * MAP, and not have seen the failure yet. */
static void owner_that_says_that_mapping_failed_is_no_writer(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    fail_under_write_lease(&p, OWNER, before);
    assert_false(only_object(&p.w)->fenced);
    assert_int_equal(device(&p.w)->held_bytes, 0);
    give(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_true(granted(p.a));
    assert_true(has_frame(&p.w, before));
    end_fixture(&p.w);
}

static void writer_that_closes_under_its_lease_is_a_writer(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    note_frames(&p.w, before);
    close_slot(&p.w, p.b, p.b_slot);
    assert_true(only_object(&p.w)->fenced);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_true(granted(p.a));
    assert_false(has_frame(&p.w, before));
    assert_int_equal(used_bytes(&p.w, OTHER), 2 * CHUNK);
    end_fixture(&p.w);
}

/* As the library does after an acquire that timed out, while the grant was on its way. */
static void client_that_closes_before_it_took_its_lease_holds_nothing(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, 0);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE, -1); /* TAKEN does not come */
    assert_true(granted(p.b));
    note_frames(&p.w, before);
    close_slot(&p.w, p.b, p.b_slot);
    assert_false(only_object(&p.w)->fenced);
    acquire(&p.w, p.a, p.a_slot, GVM_LEASE_WRITE);
    assert_true(has_frame(&p.w, before));
    assert_int_equal(used_bytes(&p.w, OTHER), 0);
    end_fixture(&p.w);
}

static void frames_held_by_two_clients_are_charged_to_who_is_left(void **state)
{
    fixture w;
    actor *a, *b, *c;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, OWNER);
    b = join(&w, OTHER);
    c = join(&w, 3);
    assert_int_equal(create(&w, a, "/x", 2, 0666, &slot), GVM_OK);
    assert_int_equal(open_object(&w, b, "/x", 0, &slot), GVM_OK);
    map_object(&w, b, slot);
    assert_int_equal(open_object(&w, c, "/x", 0, &slot), GVM_OK);
    map_object(&w, c, slot);
    cut_off(&w, b);
    cut_off(&w, c);
    drop_object(&w, a, "/x");
    gvmi_machine_exited(w.machine, a->number);
    a->forgotten = true;
    run(&w);
    assert_int_equal(used_bytes(&w, 3), 2 * CHUNK);
    gvmi_machine_exited(w.machine, c->number);
    c->forgotten = true;
    run(&w);
    assert_int_equal(used_bytes(&w, OTHER), 2 * CHUNK);
    assert_int_equal(device(&w)->held_bytes, 2 * CHUNK);
    gvmi_machine_exited(w.machine, b->number);
    b->forgotten = true;
    run(&w);
    assert_int_equal(device(&w)->used_bytes, 0);
    end_fixture(&w);
}

/* It has no event of the copy, which was then not made: the frame's number may be another's. */
static void client_cut_off_during_a_copy_does_not_hold_the_frame_to_come(void **state)
{
    pair p;
    uint32_t slot = 0;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    p.b->deaf = true;
    assert_int_equal(open_object(&p.w, p.b, "/x", 0, &p.b_slot), GVM_OK);
    p.w.hold_jobs = true;
    begin_evict(&p.w, p.a, "/x");
    assert_int_equal(p.w.job_count, 2);
    cut_off(&p.w, p.b);
    while (p.w.job_count > 0)
        gvmi_machine_job_done(p.w.machine, p.w.jobs[--p.w.job_count], GVM_E_NOMEM);
    p.w.hold_jobs = false;
    run(&p.w);
    assert_int_equal(create(&p.w, p.a, "/y", 2, 0, &slot), GVM_OK); /* takes the numbers */
    gvmi_machine_exited(p.w.machine, p.b->number);
    p.b->forgotten = true;
    run(&p.w);
    end_fixture(&p.w);
}

/* What it costs when such a client ends grows with the frames, not with its openings. */
static void client_that_opened_an_object_twice_holds_its_frames_once(void **state)
{
    pair p;
    uint32_t slot = 0;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE, -1);
    take(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    assert_int_equal(open_object(&p.w, p.b, "/x", 0, &slot), GVM_OK);
    cut_off(&p.w, p.b);
    assert_int_equal(p.w.machine->clients[p.b->number - 1]->held_count, 2);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_true(granted(p.a));
    assert_int_equal(used_bytes(&p.w, OWNER), 4 * CHUNK);
    gvmi_machine_exited(p.w.machine, p.b->number);
    p.b->forgotten = true;
    run(&p.w);
    assert_int_equal(used_bytes(&p.w, OWNER), 2 * CHUNK);
    end_fixture(&p.w);
}

static void client_of_the_owner_that_closes_its_socket_holds_nothing(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    cut_off(&p.w, p.b);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_int_equal(device(&p.w)->held_bytes, 2 * CHUNK);
    atomic_store(&p.b->leases[p.b_slot].word, 0); /* as its library does before it closes */
    gvmi_machine_closed(p.w.machine, p.b->number);
    run(&p.w);
    assert_int_equal(device(&p.w)->held_bytes, 0);
    assert_true(p.b->forgotten);
    end_fixture(&p.w);
}

static void process_that_executes_another_program_ends_as_a_client(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    gvmi_machine_disconnect(p.w.machine, p.b->number);
    run(&p.w);
    assert_false(p.b->forgotten); /* it may be about to end */
    gvmi_machine_closed(p.w.machine, p.b->number);
    run(&p.w);
    assert_true(p.b->forgotten);
    end_fixture(&p.w);
}

/* The program closed the descriptor, as daemon(3) may, and what it has mapped it goes on writing. */
static void socket_closed_under_a_lease_is_not_believed(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    gvmi_machine_closed(p.w.machine, p.b->number);
    run(&p.w);
    assert_false(p.b->forgotten);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_false(granted(p.a));
    tick(&p.w, 1100);
    assert_true(granted(p.a));
    assert_int_equal(device(&p.w)->held_bytes, 2 * CHUNK);
    assert_false(p.b->forgotten);
    end_fixture(&p.w);
}

/* The second client says BYE with a lease for writing; before: the object's frames until then. */
static void start_bye_of_writer(pair *p, uint32_t uid, uint32_t before[2])
{
    start_pair(p, 8, 8, 0, uid, 0);
    acquire(&p->w, p->b, p->b_slot, GVM_LEASE_WRITE);
    note_frames(&p->w, before);
    gvmi_machine_bye(p->w.machine, p->b->number);
    run(&p->w);
}

/* It has a right to the memory in any case: its word is enough, for its leases, too. */
static void bye_of_the_owners_process_ends_all_at_once(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_bye_of_writer(&p, OWNER, before);
    assert_true(p.b->forgotten);
    acquire(&p.w, p.a, p.a_slot, GVM_LEASE_READ);
    assert_true(has_frame(&p.w, before));
    end_fixture(&p.w);
}

/* It may say so with everything mapped. */
static void bye_of_another_users_process_ends_no_charge(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, GVM_OPEN_READONLY);
    gvmi_machine_bye(p.w.machine, p.b->number);
    run(&p.w);
    assert_false(p.b->forgotten);
    drop_object(&p.w, p.a, "/x");
    close_slot(&p.w, p.a, p.a_slot);
    assert_int_equal(used_bytes(&p.w, OTHER), 2 * CHUNK);
    assert_int_equal(device(&p.w)->held_bytes, 2 * CHUNK);
    gvmi_machine_exited(p.w.machine, p.b->number);
    p.b->forgotten = true;
    run(&p.w);
    assert_int_equal(device(&p.w)->used_bytes, 0);
    end_fixture(&p.w);
}

static void bye_of_another_users_writer_leaves_a_fence(void **state)
{
    pair p;
    uint32_t before[2];

    (void)state;
    start_bye_of_writer(&p, OTHER, before);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_READ, -1);
    assert_false(granted(p.a));
    tick(&p.w, 1100);
    assert_true(granted(p.a));
    assert_false(has_frame(&p.w, before));
    assert_false(p.b->forgotten);
    end_fixture(&p.w);
}

/* CLOSE is what tells of one object that it is not mapped any more. */
static void bye_of_another_users_process_after_its_closes_ends_it(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, 0);
    close_slot(&p.w, p.b, p.b_slot);
    gvmi_machine_bye(p.w.machine, p.b->number);
    run(&p.w);
    assert_true(p.b->forgotten);
    end_fixture(&p.w);
}

/* Its connection ended, so it gets no message; the log and the figures say that it is cut off. */
static void client_voided_after_the_revoke_timeout_is_reported(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_WRITE);
    gvmi_machine_disconnect(p.w.machine, p.b->number); /* as shutdown(2) of one direction does */
    run(&p.w);
    tick(&p.w, 500);
    assert_int_equal(p.w.lines, 0);
    tick(&p.w, 600);
    tick(&p.w, 600);
    assert_int_equal(p.w.lines, 1);
    assert_int_equal(p.w.machine->cut_offs, 1);
    assert_true(p.w.machine->clients[p.b->number - 1]->cut);
    end_fixture(&p.w);
}

static void client_that_closes_and_holds_something_is_reported(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, GVM_OPEN_READONLY);
    gvmi_machine_closed(p.w.machine, p.b->number);
    run(&p.w);
    assert_int_equal(p.w.lines, 1);
    assert_true(p.w.machine->clients[p.b->number - 1]->cut);
    gvmi_machine_closed(p.w.machine, p.a->number); /* it owns the object: believed */
    run(&p.w);
    assert_int_equal(p.w.lines, 1);
    assert_int_equal(p.w.machine->cut_offs, 1);
    end_fixture(&p.w);
}

static void client_that_never_mapped_anything_is_forgotten_at_once(void **state)
{
    fixture w;
    actor *a, *b;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, OTHER);
    gvmi_machine_disconnect(w.machine, a->number);
    run(&w);
    assert_true(a->forgotten);
    b = join(&w, OTHER);
    cut_off(&w, b);
    assert_true(b->forgotten);
    end_fixture(&w);
}

static void frames_that_another_user_had_mapped_go_to_no_other_object(void **state)
{
    pair p;
    uint32_t slot = 0;

    (void)state;
    start_pair(&p, 4, 8, 0, OTHER, GVM_OPEN_READONLY);
    close_slot(&p.w, p.b, p.b_slot);
    assert_int_equal(evict(&p.w, p.a, "/x"), 2 * CHUNK);
    assert_int_equal(device(&p.w)->free_bytes, 2 * CHUNK); /* kept, for the object itself */
    assert_int_equal(create(&p.w, p.a, "/y", 2, 0666, &slot), GVM_OK);
    assert_int_equal(device(&p.w)->free_bytes, 2 * CHUNK); /* of the same domain, and not reused */
    drop_object(&p.w, p.a, "/x");
    close_slot(&p.w, p.a, p.a_slot);
    assert_int_equal(device(&p.w)->free_bytes, 0); /* they ended with the object */
    end_fixture(&p.w);
}

/* Each writer that is cut off costs a copy. So a user whose quota has no room for what such processes
 * hold gets no more of them. c is one that has two objects open before that, /u an untracked one. */
typedef struct full_user {
    fixture w;
    actor *a, *b, *c;
    uint32_t slot, untracked_slot; /* c's */
} full_user;

static void start_full_user(full_user *u)
{
    gvmi_machine_config config = small_config(16, 16);
    uint32_t a_slot = 0, slot = 0;

    config.clients_max = 32;
    start_fixture_as(&u->w, &config);
    u->a = join(&u->w, OWNER);
    u->c = join(&u->w, OTHER);
    assert_int_equal(gvmi_machine_set_quota(u->w.machine, OTHER, 2 * CHUNK), GVM_OK);
    u->a->create_flags = GVM_OBJECT_UNTRACKED;
    assert_int_equal(create(&u->w, u->a, "/u", 1, 0666, &a_slot), GVM_OK);
    u->a->create_flags = 0;
    assert_int_equal(create(&u->w, u->a, "/x", 2, 0666, &a_slot), GVM_OK);
    assert_int_equal(open_object(&u->w, u->c, "/x", 0, &u->slot), GVM_OK);
    assert_int_equal(open_object(&u->w, u->c, "/u", 0, &u->untracked_slot), GVM_OK);
    for (int i = 0; i < 2; i++) {
        u->b = join(&u->w, OTHER);
        assert_int_equal(open_object(&u->w, u->b, "/x", 0, &slot), GVM_OK);
        acquire(&u->w, u->b, slot, GVM_LEASE_WRITE);
        cut_off(&u->w, u->b);
        acquire(&u->w, u->a, a_slot, GVM_LEASE_WRITE);
        give(&u->w, u->a, a_slot, GVM_LEASE_WRITE);
    }
    assert_int_equal(device(&u->w)->held_bytes, 4 * CHUNK);
}

/* Nobody was cut off, and so nobody gets a message of it. */
static void user_that_could_not_map_and_holds_more_than_its_quota_opens_nothing(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 8, 8, 0, OTHER, GVM_OPEN_READONLY);
    assert_int_equal(gvmi_machine_set_quota(p.w.machine, OTHER, CHUNK), GVM_OK);
    say_that_mapping_failed(&p);
    assert_int_equal(evict(&p.w, p.a, "/x"), 3 * CHUNK);
    ask(&p.w, p.b, p.b_slot, GVM_LEASE_READ, -1); /* all would be sent to it again */
    assert_int_equal(reply_status(p.b), GVM_E_QUOTA);
    close_slot(&p.w, p.b, p.b_slot);
    assert_int_equal(open_object(&p.w, p.b, "/x", GVM_OPEN_READONLY, &p.b_slot), GVM_E_QUOTA);
    assert_non_null(strstr(last(p.b)->body.FAILED.text, "could not map"));
    end_fixture(&p.w);
}

static void end_one_of_full_user(full_user *u)
{
    gvmi_machine_exited(u->w.machine, u->b->number);
    u->b->forgotten = true;
    run(&u->w);
}

static void user_that_holds_more_than_its_quota_opens_nothing(void **state)
{
    full_user u;
    actor *d;
    uint32_t slot = 0;

    (void)state;
    start_full_user(&u);
    d = join(&u.w, OTHER);
    assert_int_equal(open_object(&u.w, d, "/x", 0, &slot), GVM_E_QUOTA);
    end_one_of_full_user(&u);
    assert_int_equal(open_object(&u.w, d, "/x", 0, &slot), GVM_OK);
    end_fixture(&u.w);
}

static void user_that_holds_more_than_its_quota_gets_no_leases_for_writing(void **state)
{
    full_user u;

    (void)state;
    start_full_user(&u);
    ask(&u.w, u.c, u.slot, GVM_LEASE_WRITE, -1);
    assert_int_equal(reply_status(u.c), GVM_E_QUOTA);
    ask(&u.w, u.c, u.untracked_slot, GVM_LEASE_READ, -1); /* who may write, too */
    assert_int_equal(reply_status(u.c), GVM_E_QUOTA);
    acquire(&u.w, u.c, u.slot, GVM_LEASE_READ);
    give(&u.w, u.c, u.slot, GVM_LEASE_READ);
    end_one_of_full_user(&u);
    acquire(&u.w, u.c, u.slot, GVM_LEASE_WRITE);
    acquire(&u.w, u.c, u.untracked_slot, GVM_LEASE_READ);
    end_fixture(&u.w);
}

/* ---- rights, where shared words are read */

/* Whether it may write at all or not: the lease for writing is another's. */
static void forge_writer(uint32_t open_flags)
{
    pair p;

    start_pair(&p, 8, 8, 0, OTHER, open_flags);
    atomic_store(&p.b->leases[p.b_slot].word, GVMI_LEASE_WRITER);
    ask(&p.w, p.a, p.a_slot, GVM_LEASE_WRITE, -1);
    assert_true(granted(p.a));
    assert_int_equal(info(&p.w, p.a, p.a_slot).write_leases, 1); /* a's, granted and not taken yet */
    cut_off(&p.w, p.b);
    assert_int_equal(info(&p.w, p.a, p.a_slot).interrupted, 0);
    assert_false(only_object(&p.w)->fenced);
    end_fixture(&p.w);
}

static void writer_forged_in_a_lease_word_is_none(void **state)
{
    (void)state;
    forge_writer(GVM_OPEN_READONLY);
    forge_writer(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writer_cut_off_leaves_its_frames_before_the_next_lease),
        cmocka_unit_test(writer_cut_off_before_it_took_its_lease_counts_as_one),
        cmocka_unit_test(reader_cut_off_shares_its_frames),
        cmocka_unit_test(reader_of_an_untracked_object_cut_off_counts_as_writer),
        cmocka_unit_test(reader_of_a_sealed_untracked_object_is_no_writer),
        cmocka_unit_test(reader_of_an_untracked_object_opened_readonly_is_no_writer),
        cmocka_unit_test(fence_without_room_on_the_device_goes_to_the_host),
        cmocka_unit_test(fence_without_any_room_waits_for_the_end_of_the_process),
        cmocka_unit_test(fence_is_tried_again_when_there_may_be_room),
        cmocka_unit_test(fence_copy_that_fails_is_made_again),
        cmocka_unit_test(fence_copy_that_fails_waits_for_the_next_look),
        cmocka_unit_test(copy_of_a_host_frame_with_writers_is_never_clean),
        cmocka_unit_test(untracked_object_is_sealed_when_its_readers_have_ended),
        cmocka_unit_test(seal_of_a_fenced_object_is_on_other_frames),
        cmocka_unit_test(writer_cut_off_is_killed_where_that_is_wanted),
        cmocka_unit_test(frames_whose_writer_could_not_be_noted_are_left),
        cmocka_unit_test(frames_whose_writer_could_not_be_noted_get_no_lease_ever),
        cmocka_unit_test(frames_held_by_a_client_are_charged_to_its_user),
        cmocka_unit_test(frames_that_another_user_could_not_map_are_charged_to_it),
        cmocka_unit_test(frames_that_their_owner_could_not_map_are_let_go),
        cmocka_unit_test(writer_of_another_user_that_says_that_mapping_failed_is_a_writer),
        cmocka_unit_test(owner_that_says_that_mapping_failed_is_no_writer),
        cmocka_unit_test(writer_that_closes_under_its_lease_is_a_writer),
        cmocka_unit_test(client_that_closes_before_it_took_its_lease_holds_nothing),
        cmocka_unit_test(frames_held_by_two_clients_are_charged_to_who_is_left),
        cmocka_unit_test(client_cut_off_during_a_copy_does_not_hold_the_frame_to_come),
        cmocka_unit_test(client_that_opened_an_object_twice_holds_its_frames_once),
        cmocka_unit_test(client_of_the_owner_that_closes_its_socket_holds_nothing),
        cmocka_unit_test(process_that_executes_another_program_ends_as_a_client),
        cmocka_unit_test(socket_closed_under_a_lease_is_not_believed),
        cmocka_unit_test(bye_of_the_owners_process_ends_all_at_once),
        cmocka_unit_test(bye_of_another_users_process_ends_no_charge),
        cmocka_unit_test(bye_of_another_users_writer_leaves_a_fence),
        cmocka_unit_test(bye_of_another_users_process_after_its_closes_ends_it),
        cmocka_unit_test(client_voided_after_the_revoke_timeout_is_reported),
        cmocka_unit_test(client_that_closes_and_holds_something_is_reported),
        cmocka_unit_test(client_that_never_mapped_anything_is_forgotten_at_once),
        cmocka_unit_test(frames_that_another_user_had_mapped_go_to_no_other_object),
        cmocka_unit_test(user_that_could_not_map_and_holds_more_than_its_quota_opens_nothing),
        cmocka_unit_test(user_that_holds_more_than_its_quota_opens_nothing),
        cmocka_unit_test(user_that_holds_more_than_its_quota_gets_no_leases_for_writing),
        cmocka_unit_test(writer_forged_in_a_lease_word_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
