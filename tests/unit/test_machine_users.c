/* The keeper's machine: what one user may have of what is bounded, and what a flood of one user costs.
 *
 * What an operation costs is shown by what it looks at, not by time. */
#include <sys/mman.h>

#include "base/size.h"
#include "keeper/protocol/snapshot.h"
#include "tests/unit/machine_fixture.h"

/* As many as the user may have; how many that is. */
static unsigned join_all(fixture *w, uint32_t uid)
{
    unsigned count = 0;

    while (try_join(w, uid) != NULL)
        count++;
    return count;
}

static gvm_status create_empty(fixture *w, actor *a, const char *name, uint32_t flags)
{
    return create_of(w, a, name, 64, 0, 0, flags);
}

static unsigned create_all(fixture *w, actor *a)
{
    unsigned count = 0;

    while (create_empty(w, a, "", 0) == GVM_OK)
        count++;
    assert_int_equal(reply_status(a), GVM_E_LIMIT);
    return count;
}

/* ---- allowances */

/* 32 clients, 4 of them for the keeper's own user and root. */
static void connections_of_greedy_users_leave_some_for_the_next(void **state)
{
    fixture w;

    (void)state;
    start_users(&w, 32, 64);
    assert_int_equal(join_all(&w, 1), 14);
    assert_int_equal(join_all(&w, 2), 7);
    assert_int_equal(join_all(&w, 3), 4);
    assert_int_equal(join_all(&w, 4), 2);
    assert_null(try_join(&w, 1));
    assert_int_equal(join_all(&w, 0), 1 + 4); /* all that is left, with the reserve */
    assert_null(try_join(&w, KEEPER_UID));
    leave(&w, find_actor(&w, 1));
    (void)join(&w, KEEPER_UID);
    end_fixture(&w);
}

static void connection_beyond_the_allowance_gets_an_error_with_the_limit(void **state)
{
    fixture w;
    gvm_error error;

    (void)state;
    start_users(&w, 32, 64);
    (void)join_all(&w, 1);
    assert_int_equal(gvmi_machine_admits(w.machine, 1), GVM_E_LIMIT);
    gvm_error_last(&error);
    assert_non_null(strstr(error.text, "user 1 has 14 connections, its allowance"));
    assert_non_null(strstr(
        error.text, "of 32 at this keeper 14 are in use, and 4 are kept for its own user and root"));
    assert_int_equal(gvmi_machine_admits(w.machine, 2), GVM_OK);
    end_fixture(&w);
}

/* Allowances are of use to keepers of a few clients, too. */
static void connections_of_a_small_keeper_are_not_all_reserved(void **state)
{
    static const unsigned wanted[] = {1, 1, 2, 2, 3, 3, 4, 4};
    fixture w;

    (void)state;
    for (uint32_t max = 1; max <= 8; max++) {
        start_users(&w, max, 64);
        assert_int_equal(join_all(&w, 1), max < 8 ? wanted[max - 1] : 4);
        end_fixture(&w);
        start_users(&w, max, 64);
        assert_int_equal(join_all(&w, KEEPER_UID), max);
        end_fixture(&w);
    }
}

static void objects_of_greedy_users_leave_some_for_the_next(void **state)
{
    fixture w;
    actor *a, *b, *c, *root;

    (void)state;
    start_users(&w, 32, 64); /* 8 of the objects are reserved */
    a = join(&w, 1);
    b = join(&w, 2);
    c = join(&w, 3);
    root = join(&w, 0);
    assert_int_equal(create_all(&w, a), 28);
    assert_non_null(strstr(last(a)->body.FAILED.text, "user 1 has 28 objects, its allowance"));
    assert_int_equal(create_all(&w, b), 14);
    assert_int_equal(create_all(&w, join(&w, 1)), 0); /* by user, not by connection */
    assert_int_equal(create_all(&w, c), 7);
    assert_int_equal(create_all(&w, root), 7 + 8);
    assert_int_equal(gvmi_machine_check(w.machine), true);
    end_fixture(&w);
}

/* Creates an object of so many TiB of addresses, without memory. Returns what was proposed. */
static uint64_t propose(fixture *w, actor *a, uint64_t tib)
{
    a->create_chunk_bytes = GVMI_GIB;
    assert_int_equal(create_of(w, a, "", tib << 10, 0, 0, 0), GVM_OK);
    a->create_chunk_bytes = 0;
    return last(a)->body.OPENED.home_address;
}

static void say_address(fixture *w, actor *a, uint64_t address)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_MAPPED, 0);
    m.body.MAPPED = (gvmi_wire_mapped){.slot = a->slot, .address = address};
    say(w, a, &m); /* of the latest */
}

/* 48 TiB, 6 of them for the keeper's own user and root. */
static void addresses_of_greedy_users_leave_some_for_the_next(void **state)
{
    fixture w;
    actor *a, *b, *root;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    b = join(&w, 2);
    root = join(&w, 0);
    assert_int_equal(propose(&w, a, 46), 0);
    assert_int_equal(propose(&w, a, 22), 0);
    assert_int_not_equal(propose(&w, a, 20), 0);
    assert_int_equal(propose(&w, a, 2), 0);
    close_slot(&w, a, a->slot);
    assert_int_not_equal(propose(&w, b, 4), 0);
    assert_int_equal(propose(&w, b, 9), 0);
    assert_int_equal(propose(&w, root, 13), 0);
    assert_int_not_equal(propose(&w, root, 1), 0);
    leave(&w, a);
    assert_int_equal(w.machine->taken[KEEP_ADDRESSES], (uint64_t)5 << 40);
    end_fixture(&w);
}

static void addresses_that_a_creator_does_not_take_are_proposed_for_others(void **state)
{
    fixture w;
    actor *a;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    assert_int_not_equal(propose(&w, a, 20), 0);
    say_address(&w, a, last(a)->body.OPENED.home_address);
    assert_int_equal(propose(&w, a, 20), 0);
    say_address(&w, a, 77 * CHUNK);
    close_slot(&w, a, 0);
    assert_int_not_equal(propose(&w, a, 20), 0);
    say_address(&w, a, 77 * CHUNK);
    assert_int_not_equal(propose(&w, a, 20), 0);
    end_fixture(&w);
}

static void addresses_that_a_creator_names_are_not_kept_from_others(void **state)
{
    fixture w;
    actor *a;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    assert_int_equal(propose(&w, a, 60), 0);
    assert_int_not_equal(propose(&w, join(&w, 2), 1), 0); /* wherever the first may have it */
    say_address(&w, a, GVMI_OBJECT_RANGE_ADDRESS);
    assert_int_not_equal(propose(&w, join(&w, 2), 1), 0);
    end_fixture(&w);
}

/* An object counts as its owner's as long as it lives. */
static void object_that_outlives_its_creator_counts_as_its_owners(void **state)
{
    fixture w;
    actor *a;

    (void)state;
    start_users(&w, 32, 8); /* 1 is reserved */
    a = join(&w, 1);
    assert_int_equal(create_empty(&w, a, "/1", GVM_OBJECT_KEEP), GVM_OK);
    assert_int_equal(create_empty(&w, a, "/2", GVM_OBJECT_KEEP), GVM_OK);
    leave(&w, a);
    assert_true(gvmi_machine_check(w.machine));
    a = join(&w, 1);
    assert_int_equal(create_all(&w, a), 2); /* it has 4 of 7 then */
    end_fixture(&w);
}

/* Its process had no addresses for the object, so that for the program there is none. */
static void kept_object_whose_creation_fails_at_its_creator_goes(void **state)
{
    fixture w;
    actor *a;
    gvmi_wire_message m;

    (void)state;
    start_users(&w, 32, 8);
    a = join(&w, 1);
    assert_int_equal(create_empty(&w, a, "/1", GVM_OBJECT_KEEP), GVM_OK);
    gvmi_wire_start(&m, GVMI_WIRE_MAPPED, 0);
    m.body.MAPPED = (gvmi_wire_mapped){.slot = a->slot, .status = GVM_E_ADDRESS};
    say(&w, a, &m);
    close_slot(&w, a, a->slot);
    assert_null(w.machine->objects);
    assert_int_equal(create_empty(&w, a, "/1", GVM_OBJECT_KEEP), GVM_OK);
    end_fixture(&w);
}

static void account_that_counts_nothing_is_freed(void **state)
{
    fixture w;

    (void)state;
    start_users(&w, 32, 8);
    for (uint32_t uid = 1000; uid < 1100; uid++) {
        leave(&w, join(&w, uid));
        assert_int_equal(gvmi_machine_admits(w.machine, uid), GVM_OK);
        assert_null(w.machine->users);
    }
    assert_int_equal(gvmi_machine_set_quota(w.machine, 7, MIB), GVM_OK);
    leave(&w, join(&w, 7));
    assert_non_null(w.machine->users); /* its quota is remembered */
    end_fixture(&w);
}

/* A user of the 64 chunks of each kind has an empty object /a, and no job ends by itself. */
static actor *start_grower(fixture *w, uint32_t flags)
{
    actor *a;

    start_users(w, 32, 64);
    a = join(w, 1);
    assert_int_equal(create_empty(w, a, "/a", flags), GVM_OK);
    w->hold_jobs = true;
    return a;
}

/* ---- growths */

static void growths_that_wait_are_bounded_and_answered_in_order(void **state)
{
    fixture w;
    actor *a;
    unsigned answers;

    (void)state;
    a = start_grower(&w, 0);
    for (unsigned i = 0; i < KEEP_CLIENT_GROWTHS_MAX; i++)
        assert_int_equal(grow(&w, a, a->slot, CHUNK + i), GVM_OK);
    answers = a->count;
    assert_int_equal(grow(&w, a, a->slot, CHUNK), GVM_E_LIMIT);
    assert_non_null(strstr(last(a)->body.FAILED.text, "1024 growths of this connection"));
    assert_true(gvmi_machine_check(w.machine));
    end_jobs(&w);
    assert_int_equal(a->count, answers + 1 + KEEP_CLIENT_GROWTHS_MAX);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_DONE);
    end_fixture(&w);
}

/* Coming and going does not make them fewer: they count until they are over. */
static void growths_of_a_client_that_left_count_as_its_users(void **state)
{
    fixture w;
    actor *a;

    (void)state;
    a = start_grower(&w, GVM_OBJECT_KEEP);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(grow(&w, a, a->slot, CHUNK), GVM_OK);
    leave(&w, a);
    assert_true(gvmi_machine_check(w.machine));
    assert_int_equal(w.machine->taken[KEEP_GROWTHS], 100);
    assert_int_equal(w.machine->users->taken[KEEP_GROWTHS], 100);
    end_jobs(&w);
    assert_int_equal(w.machine->taken[KEEP_GROWTHS], 0);
    end_fixture(&w);
}

/* Each of its connections may have 1024; all together, half of what is not reserved. */
static void growths_of_greedy_users_leave_some_for_the_next(void **state)
{
    const unsigned most = (KEEP_GROWTHS_MAX - 2048) / 2;
    fixture w;
    actor *a = NULL;

    (void)state;
    start_users(&w, 128, 1024);
    w.hold_jobs = true;
    for (unsigned i = 0; i < most; i++) {
        if (i % KEEP_CLIENT_GROWTHS_MAX == 0) {
            a = join(&w, 1);
            assert_int_equal(create_empty(&w, a, "", 0), GVM_OK);
        }
        assert_int_equal(grow(&w, a, a->slot, CHUNK), GVM_OK);
    }
    a = join(&w, 1);
    assert_int_equal(create_empty(&w, a, "", 0), GVM_E_LIMIT); /* which is a growth, too */
    assert_non_null(strstr(last(a)->body.FAILED.text, "user 1 has 31744 growths under way"));
    a = join(&w, 2);
    assert_int_equal(create_empty(&w, a, "", 0), GVM_OK);
    assert_int_equal(grow(&w, a, a->slot, CHUNK), GVM_OK);
    end_fixture(&w);
}

/* The second in the queue may not be looked at: neither by those who ask, nor by those who leave. */
static void growth_that_is_queued_looks_at_no_other(void **state)
{
    fixture w;
    actor *a, *b;
    keep_growth *first, *second;
    void *nowhere = mmap(NULL, sizeof *first, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t slot = 0;

    (void)state;
    assert_ptr_not_equal(nowhere, MAP_FAILED);
    start_users(&w, 32, 64);
    a = join(&w, 1);
    b = join(&w, 1);
    assert_int_equal(create_empty(&w, a, "/a", GVM_OBJECT_KEEP), GVM_OK);
    assert_int_equal(open_object(&w, b, "/a", 0, &slot), GVM_OK);
    w.hold_jobs = true;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(grow(&w, i % 2 == 0 ? a : b, i % 2 == 0 ? a->slot : slot, CHUNK + i), GVM_OK);
    first = w.machine->objects->growth;
    second = first->next;
    first->next = nowhere;
    assert_int_equal(grow(&w, a, a->slot, CHUNK + 4), GVM_OK);
    leave(&w, b);
    first->next = second;
    munmap(nowhere, sizeof *first);
    assert_true(gvmi_machine_check(w.machine));
    end_jobs(&w);
    assert_int_equal(w.machine->objects->bytes, CHUNK + 4);
    end_fixture(&w);
}

static void end_job(fixture *w)
{
    assert_true(w->job_count > 0);
    gvmi_machine_job_done(w->machine, w->jobs[--w->job_count], GVM_OK);
    run(w);
}

/* A few jobs at a time, and all of them in the end. */
static void growth_makes_few_chunks_at_a_time(void **state)
{
    fixture w;
    actor *a;
    unsigned jobs = 0;

    (void)state;
    a = start_grower(&w, 0);
    assert_int_equal(grow(&w, a, a->slot, 60 * CHUNK), GVM_OK);
    assert_int_equal(w.job_count, KEEP_GROWTH_JOBS_MAX);
    assert_int_equal(device(&w)->used_bytes, 60 * CHUNK); /* the room is its own at once */
    for (; w.job_count > 0; jobs++) {
        assert_true(w.job_count <= KEEP_GROWTH_JOBS_MAX);
        end_job(&w);
    }
    assert_int_equal(jobs, 60);
    assert_int_equal(w.machine->objects->chunk_count, 60);
    end_fixture(&w);
}

/* What was promised and is not made yet is not made of a budget that was lowered meanwhile. */
static void growth_goes_to_the_host_when_the_budget_is_lowered(void **state)
{
    fixture w;
    actor *a;

    (void)state;
    a = start_grower(&w, 0);
    assert_int_equal(grow(&w, a, a->slot, 60 * CHUNK), GVM_OK);
    gvmi_machine_driver_memory(w.machine, 0, 0, 0, 40 * CHUNK);
    while (w.job_count > 0)
        end_job(&w);
    assert_int_equal(w.machine->objects->device_chunks, 40);
    assert_int_equal(w.machine->objects->chunk_count, 60);
    end_fixture(&w);
}

/* The client that asked is gone, and none has the object open. */
static void growth_that_nobody_waits_for_is_given_up(void **state)
{
    fixture w;
    actor *a;
    unsigned jobs = 0;

    (void)state;
    a = start_grower(&w, GVM_OBJECT_KEEP);
    assert_int_equal(grow(&w, a, a->slot, 60 * CHUNK), GVM_OK);
    leave(&w, a);
    assert_int_equal(device(&w)->used_bytes, KEEP_GROWTH_JOBS_MAX * CHUNK);
    for (; w.job_count > 0; jobs++)
        end_job(&w);
    assert_int_equal(jobs, KEEP_GROWTH_JOBS_MAX);
    assert_int_equal(w.machine->objects->chunk_count, 0);
    assert_int_equal(w.machine->taken[KEEP_GROWTHS], 0);
    assert_true(gvmi_machine_check(w.machine));
    end_fixture(&w);
}

static void growth_beyond_both_budgets_makes_nothing(void **state)
{
    fixture w;
    actor *a;

    (void)state;
    start_users(&w, 32, 64); /* 64 chunks on the device, 64 on the host */
    a = join(&w, 1);
    w.hold_jobs = true;
    assert_int_equal(create_of(&w, a, "/a", 1024, 0, 0, 0), GVM_OK);
    assert_int_equal(grow(&w, a, a->slot, 129 * CHUNK), GVM_E_NOSPACE);
    assert_int_equal(w.job_count, 0);
    end_fixture(&w);
}

/* What a failed growth prepared is charged to nobody, so nothing of it stays. */
static void growth_that_fails_leaves_no_places(void **state)
{
    fixture w;
    actor *a;
    const keep_object *object;
    uint32_t slot;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    assert_int_equal(create_of(&w, a, "/full", 64, 63, 0, 0), GVM_OK);
    assert_int_equal(create_of(&w, a, "/half", 64, 1, 0, 0), GVM_OK);
    slot = a->slot;
    object = w.machine->objects;
    assert_int_equal(create_of(&w, a, "/more", 64, 60, 0, 0), GVM_OK);
    assert_int_equal(grow(&w, a, slot, 60 * CHUNK), GVM_E_NOSPACE);
    assert_int_equal(object->chunk_places, 1);
    assert_int_equal(grow(&w, a, slot, 2 * CHUNK), GVM_OK);
    assert_int_equal(object->chunk_count, 2);
    end_fixture(&w);
}

/* ---- openings */

/* An object may be open very often: the end of each opening costs the same all the same. */
static void end_of_an_opening_looks_at_no_other(void **state)
{
    fixture w;
    actor *a, *b;
    const keep_object *object;
    uint32_t a_slot, b_slot = 0;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    assert_int_equal(create_of(&w, a, "/x", 64, 1, 0, 0), GVM_OK);
    a_slot = a->slot;
    object = w.machine->objects;
    b = join(&w, 1);
    a = find_actor(&w, 1);
    assert_int_equal(open_object(&w, b, "/x", 0, &b_slot), GVM_OK);
    atomic_fetch_add(&a->leases[a_slot].word, 3 * GVMI_LEASE_COUNTED);
    atomic_fetch_add(&b->leases[b_slot].word, 2 * GVMI_LEASE_COUNTED);
    close_slot(&w, b, b_slot);
    assert_int_equal(object->acquires, 2);
    tick(&w, 200);
    assert_int_equal(object->acquires, 5);
    end_fixture(&w);
}

/* What is done to an object is done for each opening: so one user has so many, however many clients. */
static void openings_of_one_object_are_bounded_by_user(void **state)
{
    fixture w;
    actor *a;
    uint32_t slot = 0;
    unsigned count = 1;

    (void)state;
    start_users(&w, 400, 64);
    a = join(&w, 1);
    assert_int_equal(create_of(&w, a, "/x", 64, 0, 0666, GVM_OBJECT_KEEP), GVM_OK);
    for (; open_object(&w, a, "/x", 0, &slot) == GVM_OK; count++)
        if ((count + 1) % KEEP_CLIENT_OPENINGS_MAX == 0)
            a = join(&w, 1);
    assert_int_equal(count, KEEP_USER_OPENINGS_MAX);
    assert_int_equal(reply_status(a), GVM_E_LIMIT);
    assert_non_null(strstr(last(a)->body.FAILED.text, "user 1 has /x open 512 times, the limit"));
    assert_int_equal(open_object(&w, join(&w, 2), "/x", 0, &slot), GVM_OK);
    assert_true(gvmi_machine_check(w.machine));
    close_slot(&w, find_actor(&w, 1), 0);
    assert_int_equal(open_object(&w, a, "/x", 0, &slot), GVM_OK);
    assert_int_equal(open_object(&w, a, "/x", 0, &slot), GVM_E_LIMIT);
    end_fixture(&w);
}

static void openings_of_the_keepers_user_are_not_bounded_so(void **state)
{
    fixture w;
    actor *a = NULL;
    uint32_t slot = 0;

    (void)state;
    start_users(&w, 400, 64);
    assert_int_equal(create_of(&w, join(&w, 1), "/x", 64, 0, 0600, GVM_OBJECT_KEEP), GVM_OK);
    for (unsigned i = 0; i < KEEP_USER_OPENINGS_MAX + 1; i++) {
        if (i % KEEP_CLIENT_OPENINGS_MAX == 0)
            a = join(&w, KEEPER_UID);
        assert_int_equal(open_object(&w, a, "/x", 0, &slot), GVM_OK);
    }
    end_fixture(&w);
}

/* A client that has no lease when the permits are withdrawn gets none before they come back: it is looked at once,
 * however often somebody rings. */
static void opening_without_a_lease_is_looked_at_once_while_others_drain(void **state)
{
    fixture w;
    actor *a, *b, *c;
    uint32_t a_slot, b_slot = 0, c_slot = 0;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    assert_int_equal(create_of(&w, a, "/x", 64, 1, 0666, 0), GVM_OK);
    a_slot = a->slot;
    b = join(&w, 1);
    c = join(&w, 1);
    assert_int_equal(open_object(&w, b, "/x", 0, &b_slot), GVM_OK);
    assert_int_equal(open_object(&w, c, "/x", 0, &c_slot), GVM_OK);
    acquire(&w, a, a_slot, GVM_LEASE_READ);
    ask(&w, b, b_slot, GVM_LEASE_WRITE, -1);
    assert_false(granted(b));
    atomic_fetch_add(&c->leases[c_slot].word, GVMI_LEASE_READER); /* without a permit: none */
    give(&w, a, a_slot, GVM_LEASE_READ);
    assert_true(granted(b));
    end_fixture(&w);
}

/* A look at very many openings is made in slices, between which clients are served. */
static void look_at_many_openings_takes_several_ticks(void **state)
{
    enum { OBJECTS = 40, USERS = 16 };
    fixture w;
    actor *a = NULL;
    uint32_t slot = 0;
    uint64_t before;
    char name[16];
    unsigned ticks = 0;

    (void)state;
    start_users(&w, 400, 512);
    for (unsigned i = 0; i < OBJECTS; i++) {
        snprintf(name, sizeof name, "/%u", i);
        assert_int_equal(create_of(&w, i == 0 ? join(&w, 1) : find_actor(&w, 1), name, 64, 0, 0666,
                                   GVM_OBJECT_KEEP),
                         GVM_OK);
    }
    for (unsigned user = 0; user < USERS; user++) {
        a = join(&w, 10 + user);
        for (unsigned i = 0; i < OBJECTS; i++) {
            snprintf(name, sizeof name, "/%u", i);
            for (unsigned j = 0; j < 8; j++)
                assert_int_equal(open_object(&w, a, name, 0, &slot), GVM_OK);
        }
        for (slot = 0; slot < OBJECTS * 8; slot++)
            atomic_fetch_add(&a->leases[slot].word, GVMI_LEASE_COUNTED);
    }
    before = w.machine->acquires;
    tick(&w, 200);
    assert_in_range(w.machine->acquires - before, 1, OBJECTS * 8 * USERS - 1);
    for (; w.machine->acquires - before < OBJECTS * 8 * USERS; ticks++) {
        assert_true(gvmi_machine_deadline(w.machine) <= w.now_ns); /* it wants to go on */
        assert_true(ticks < 4);
        tick(&w, 0);
    }
    for (; gvmi_machine_deadline(w.machine) <= w.now_ns; ticks++)
        tick(&w, 0);
    assert_true(gvmi_machine_deadline(w.machine) > w.now_ns);
    end_fixture(&w);
}

/* Many clients are late at once, and much ends with each: others are served in between. */
static void clients_late_at_once_are_cut_off_a_few_at_a_time(void **state)
{
    enum { CLIENTS = 10, OPENINGS = 400 };
    fixture w;
    actor *clients[CLIENTS];
    unsigned cut = 0, ticks = 0;

    (void)state;
    start_users(&w, 64, 32768);
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = join(&w, 1);
        for (unsigned j = 0; j < OPENINGS; j++)
            assert_int_equal(create_empty(&w, clients[i], "", 0), GVM_OK);
        assert_int_equal(create_empty(&w, clients[i], "", 0), GVM_OK);
        clients[i]->deaf = true;
        assert_int_equal(grow(&w, clients[i], clients[i]->slot, CHUNK), GVM_OK);
        assert_int_equal(clients[i]->unanswered_count, 1);
    }
    w.now_ns += 1100 * MS;
    while (cut < CLIENTS) {
        const uint64_t before = w.machine->taken[KEEP_OPENINGS];

        tick(&w, 0);
        assert_true(before - w.machine->taken[KEEP_OPENINGS] <= 2 * (OPENINGS + 1));
        cut = 0;
        for (unsigned i = 0; i < CLIENTS; i++)
            cut += clients[i]->cut;
        assert_true(++ticks <= 4 * CLIENTS); /* each look takes several */
        assert_true(cut == CLIENTS || gvmi_machine_deadline(w.machine) <= w.now_ns);
    }
    end_fixture(&w);
}

/* ---- snapshots */

static void ask_snapshot(fixture *w, actor *a)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_SNAPSHOT, 12);
    a->count = 0;
    say(w, a, &m);
}

static void say_snapshot_read(fixture *w, actor *a)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_SNAPSHOT_READ, 0);
    say(w, a, &m);
}

static const gvmi_snapshot_head *head_of(const actor *a)
{
    return (const gvmi_snapshot_head *)(const void *)a->snapshot;
}

static const gvmi_snapshot_object *objects_of(const actor *a)
{
    return (const gvmi_snapshot_object *)(const void *)(a->snapshot + sizeof(gvmi_snapshot_head) +
                                                        sizeof(gvmi_snapshot_keeper) +
                                                        sizeof(gvmi_snapshot_device));
}

static const gvmi_snapshot_user *users_of(const actor *a)
{
    const gvmi_snapshot_head *head = head_of(a);

    return (
        const gvmi_snapshot_user *)(const void *)((const char *)(objects_of(a) + head->object_count) +
                                                  head->client_count * sizeof(gvmi_snapshot_client));
}

/* Others are served between the slices, and what they end and make does no harm. */
static void snapshot_of_many_objects_is_made_in_slices(void **state)
{
    fixture w;
    actor *a, *b;
    unsigned slices = 1;
    uint32_t first, count;

    (void)state;
    start_users(&w, 32, 8192);
    a = join(&w, 1);
    b = join(&w, KEEPER_UID);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(create_empty(&w, a, "", 0), GVM_OK);
    assert_int_equal(create_empty(&w, b, "/b", 0), GVM_OK);
    ask_snapshot(&w, a);
    assert_int_equal(a->count, 0);
    while (work(&w)) {
        first = a->slot - slices * 200; /* some that were shown, and some that were to be */
        for (uint32_t slot = first; slot < first + 50; slot++)
            close_slot(&w, a, slot);
        a->count = 0;
        assert_int_equal(create_empty(&w, b, "", 0), GVM_OK);
        slices++;
    }
    assert_int_equal(last(a)->head.type, GVMI_WIRE_SNAPSHOT_IS);
    assert_in_range(slices, 4, 8);
    count = head_of(a)->object_count; /* its own: the other's is not for it to read */
    assert_in_range(count, 800, 1000);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(objects_of(a)[i].owner_uid, 1);
    assert_int_equal(head_of(a)->client_count, 2);
    assert_int_equal(head_of(a)->user_count, 1); /* itself */
    end_fixture(&w);
}

#define QUOTA_USERS 1000u

/* Users whose accounts end while the snapshot is made are left out of it. */
static void snapshot_shows_users_to_administrators(void **state)
{
    fixture w;
    actor *a, *b, *c = NULL;
    uint32_t count;

    (void)state;
    start_users(&w, 32, 8192);
    a = join(&w, KEEPER_UID);
    b = join(&w, 1);
    for (uint32_t i = 0; i < QUOTA_USERS; i++) {
        if (i == QUOTA_USERS - 256)
            c = join(&w, 2); /* the first one of the second slice */
        assert_int_equal(gvmi_machine_set_quota(w.machine, 1000 + i, i), GVM_OK);
    }
    ask_snapshot(&w, a);
    assert_true(work(&w));
    gvmi_machine_disconnect(w.machine, c->number);
    gvmi_machine_exited(w.machine, c->number);
    while (work(&w)) {}
    count = head_of(a)->user_count;
    assert_int_equal(count, QUOTA_USERS + 2);
    assert_int_equal(users_of(a)[0].uid, 1000 + QUOTA_USERS - 1);
    assert_int_equal(users_of(a)[0].quota_bytes, QUOTA_USERS - 1);
    assert_int_equal(users_of(a)[count - 1].uid, KEEPER_UID);
    ask_snapshot(&w, b);
    while (work(&w)) {}
    assert_int_equal(head_of(b)->user_count, 1);
    assert_int_equal(users_of(b)[0].uid, 1);
    end_fixture(&w);
}

static void snapshot_is_made_when_the_one_before_is_read(void **state)
{
    fixture w;
    actor *a;

    (void)state;
    start_users(&w, 32, 64);
    a = join(&w, 1);
    ask_snapshot(&w, a);
    ask_snapshot(&w, a);
    while (work(&w))
        ;
    assert_int_equal(last(a)->head.type, GVMI_WIRE_SNAPSHOT_IS);
    a->count = 0;
    assert_false(work(&w)); /* one memfd a client */
    assert_true(w.machine->taken[KEEP_QUEUED_BYTES] > 0);
    say_snapshot_read(&w, a);
    assert_int_equal(w.machine->taken[KEEP_QUEUED_BYTES], 0);
    while (work(&w))
        ;
    assert_int_equal(last(a)->head.type, GVMI_WIRE_SNAPSHOT_IS);
    for (unsigned i = 0; i < KEEP_CLIENT_SNAPSHOTS_MAX; i++)
        ask_snapshot(&w, a);
    assert_int_equal(a->count, 0);
    ask_snapshot(&w, a);
    assert_int_equal(reply_status(a), GVM_E_LIMIT);
    end_fixture(&w);
}

/* Users take turns, however many of them one user wants. */
static void snapshot_of_one_user_does_not_wait_for_those_of_another(void **state)
{
    fixture w;
    actor *greedy[10], *other;
    unsigned slices = 0;

    (void)state;
    start_users(&w, 64, 8192);
    other = join(&w, 2);
    for (unsigned i = 0; i < 10; i++)
        greedy[i] = join(&w, 1);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(create_empty(&w, greedy[0], "", 0), GVM_OK);
    for (unsigned i = 0; i < 10; i++)
        ask_snapshot(&w, greedy[i]);
    ask_snapshot(&w, other);
    while (other->count == 0) {
        assert_true(work(&w) || other->count != 0);
        slices++;
    }
    assert_int_equal(last(other)->head.type, GVMI_WIRE_SNAPSHOT_IS);
    assert_true(slices <= 2 * (4 + 1 + 1));
    end_fixture(&w);
}

/* The memory behind what is not read counts to the user that does not read it. */
static void snapshots_that_are_not_read_are_bounded_by_user(void **state)
{
    fixture w;
    actor *a;
    unsigned made = 0;

    (void)state;
    start_users(&w, 64, 8192);
    a = join(&w, 1);
    assert_true(gvmi_machine_queued(w.machine, a->number, KEEP_QUEUED_BYTES_MAX / 2 - (17 << 20)));
    for (unsigned i = 0; i < 2000; i++)
        assert_int_equal(create_empty(&w, a, "", 0), GVM_OK);
    assert_false(gvmi_machine_queued(w.machine, a->number, KEEP_QUEUED_BYTES_MAX / 2));
    do {
        a = join(&w, 1);
        ask_snapshot(&w, a);
        while (work(&w))
            ;
        made += last(a)->head.type == GVMI_WIRE_SNAPSHOT_IS;
    } while (last(a)->head.type == GVMI_WIRE_SNAPSHOT_IS);
    assert_int_equal(reply_status(a), GVM_E_LIMIT);
    assert_in_range(made, 1, 2); /* of 0.8 MB each, of the 1 MiB that its allowance left */
    a = join(&w, 2);
    ask_snapshot(&w, a);
    while (work(&w))
        ;
    assert_int_equal(last(a)->head.type, GVMI_WIRE_SNAPSHOT_IS);
    end_fixture(&w);
}

/* The keeper stops while memory is being made: no job ends any more. */
static void machine_ends_while_an_object_grows(void **state)
{
    fixture w;
    actor *a;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    w.hold_jobs = true;
    (void)create_of(&w, a, "/x", 4, 2, 0, 0);
    assert_int_equal(w.job_count, 2);
    w.job_count = 0;
    end_fixture(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_of_greedy_users_leave_some_for_the_next),
        cmocka_unit_test(connection_beyond_the_allowance_gets_an_error_with_the_limit),
        cmocka_unit_test(connections_of_a_small_keeper_are_not_all_reserved),
        cmocka_unit_test(objects_of_greedy_users_leave_some_for_the_next),
        cmocka_unit_test(addresses_of_greedy_users_leave_some_for_the_next),
        cmocka_unit_test(addresses_that_a_creator_does_not_take_are_proposed_for_others),
        cmocka_unit_test(addresses_that_a_creator_names_are_not_kept_from_others),
        cmocka_unit_test(object_that_outlives_its_creator_counts_as_its_owners),
        cmocka_unit_test(kept_object_whose_creation_fails_at_its_creator_goes),
        cmocka_unit_test(account_that_counts_nothing_is_freed),
        cmocka_unit_test(growths_that_wait_are_bounded_and_answered_in_order),
        cmocka_unit_test(growths_of_a_client_that_left_count_as_its_users),
        cmocka_unit_test(growths_of_greedy_users_leave_some_for_the_next),
        cmocka_unit_test(growth_that_is_queued_looks_at_no_other),
        cmocka_unit_test(growth_makes_few_chunks_at_a_time),
        cmocka_unit_test(growth_goes_to_the_host_when_the_budget_is_lowered),
        cmocka_unit_test(growth_that_nobody_waits_for_is_given_up),
        cmocka_unit_test(growth_beyond_both_budgets_makes_nothing),
        cmocka_unit_test(growth_that_fails_leaves_no_places),
        cmocka_unit_test(end_of_an_opening_looks_at_no_other),
        cmocka_unit_test(openings_of_one_object_are_bounded_by_user),
        cmocka_unit_test(openings_of_the_keepers_user_are_not_bounded_so),
        cmocka_unit_test(opening_without_a_lease_is_looked_at_once_while_others_drain),
        cmocka_unit_test(look_at_many_openings_takes_several_ticks),
        cmocka_unit_test(clients_late_at_once_are_cut_off_a_few_at_a_time),
        cmocka_unit_test(snapshot_of_many_objects_is_made_in_slices),
        cmocka_unit_test(snapshot_shows_users_to_administrators),
        cmocka_unit_test(snapshot_is_made_when_the_one_before_is_read),
        cmocka_unit_test(snapshot_of_one_user_does_not_wait_for_those_of_another),
        cmocka_unit_test(snapshots_that_are_not_read_are_bounded_by_user),
        cmocka_unit_test(machine_ends_while_an_object_grows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
