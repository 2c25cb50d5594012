/* Clients that do not answer: stopped by SIGSTOP, or keeping leases that others want. */
#include <signal.h>
#include <stdio.h>

#include "tests/proc/keeper_fixture.h"

#define LEASE_MS (300u * SLOWNESS)
#define STOPPED_REVOKE_MS (1000u * SLOWNESS) /* of a keeper that is stopped */

/* A client that has STILL_NAME mapped, in slot 0, and a lease on it. */
static bool visitor_begin_as(fixture *s, child *p, uint32_t open_flags)
{
    keeper_answer out;

    *p = keeper_child_start();
    if (!KEEPER_OK(p, CONNECT, 0, s->folder.socket, 0, 0) ||
        !KEEPER_OK(p, OPEN, 0, STILL_NAME, open_flags, 0) ||
        !KEEPER_OK(p, ACQUIRE, 0, NULL, GVM_LEASE_READ, LEASE_WAIT_MS))
        return false;
    out = keeper_do(p, KEEPER_CHECK, 0, NULL, 0, 0);
    return EXPECT(out.status == GVM_OK) && EXPECT(out.value == still_checksum);
}

static bool visitor_begin(fixture *s, child *p)
{
    return visitor_begin_as(s, p, 0);
}

static bool visitor_sees(child *p)
{
    keeper_answer out = keeper_do(p, KEEPER_CHECK, 0, NULL, 0, 0);

    if (out.status != GVM_OK)
        printf("# reading what is mapped: %s: %s\n", gvm_status_name(out.status), out.text);
    return EXPECT(out.status == GVM_OK) && EXPECT(out.value == still_checksum);
}

/* What it holds is counted until it is gone, then not. */
static bool held_until_gone(fixture *s, child *p, uint64_t least)
{
    keeper_answer now;

    if (!fixture_snapshot(s, &now))
        return false;
    if (now.device.held_bytes < least)
        printf("# held: %llu bytes, not %llu\n", (unsigned long long)now.device.held_bytes,
               (unsigned long long)least);
    return EXPECT(now.device.held_bytes >= least) && EXPECT(now.keeper.cut_offs == 1) &&
           EXPECT(child_end(p) == 0) && fixture_is_whole(s);
}

static bool stop_client(const child *visitor)
{
    return EXPECT(kill(visitor->pid, SIGSTOP) == 0) && EXPECT(child_wait_stopped(visitor));
}

static bool cut_off_stopped_client(uint32_t open_flags)
{
    fixture s;
    child visitor = {0};
    keeper_answer out = {0};
    bool good = fixture_begin(&s, 0) && visitor_begin_as(&s, &visitor, open_flags) &&
                KEEPER_OK(&visitor, RELEASE, 0, NULL, 0, 0);

    if (good) {
        good = stop_client(&visitor);
        out = keeper_do(&s.bystander, KEEPER_EVICT, 0, STILL_NAME, 0, 0);
        good = good && EXPECT(out.status == GVM_OK) &&
               EXPECT(out.value == STILL_CHUNKS * CHUNK_BYTES) && fixture_reads(&s) &&
               fixture_writes(&s, STILL_SEED) && fixture_reads(&s);
        kill(visitor.pid, SIGCONT);
    }
    good = good && KEEPER_EXPECT(&visitor, SNAPSHOT, 0, NULL, 0, 0, GVM_E_KEEPER) &&
           ((open_flags & GVM_OPEN_MAPPED) == 0 || visitor_sees(&visitor)) &&
           held_until_gone(&s, &visitor, STILL_CHUNKS * CHUNK_BYTES);
    child_kill(&visitor);
    return fixture_end(&s) && good;
}

static bool stopped_client_is_cut_off_and_others_go_on(void)
{
    return cut_off_stopped_client(0);
}

static bool stopped_client_that_keeps_all_mapped_can_read_it_after_its_cut_off(void)
{
    return cut_off_stopped_client(GVM_OPEN_MAPPED);
}

static bool stopped_client_that_is_killed_lets_go(void)
{
    fixture s;
    child visitor = {0};
    keeper_answer out = {0};
    bool good = fixture_begin(&s, 0) && visitor_begin(&s, &visitor) &&
                KEEPER_OK(&visitor, RELEASE, 0, NULL, 0, 0);

    if (good) {
        good = stop_client(&visitor);
        out = keeper_do(&s.bystander, KEEPER_EVICT, 0, STILL_NAME, 0, 0);
        good = good && EXPECT(out.status == GVM_OK) && fixture_reads(&s);
    }
    child_kill(&visitor);
    good = good && fixture_is_whole(&s);
    return fixture_end(&s) && good;
}

/* It is asked to map nothing: a lease keeps its chunks where they are. */
static bool stopped_client_with_a_lease_is_waited_for(void)
{
    fixture s;
    child visitor = {0};
    keeper_answer out = {0}, now;
    bool good = fixture_begin(&s, 0) && visitor_begin(&s, &visitor);

    if (good) {
        good = stop_client(&visitor);
        out = keeper_do(&s.bystander, KEEPER_EVICT, 0, STILL_NAME, 0, 0);
        good = good && EXPECT(out.status == GVM_OK) && EXPECT(out.value == 0) && fixture_reads(&s) &&
               KEEPER_EXPECT(&s.bystander, ACQUIRE, 0, NULL, GVM_LEASE_WRITE, 2 * REVOKE_MS,
                             GVM_E_TIMEOUT) &&
               fixture_reads(&s) && fixture_snapshot(&s, &now) && EXPECT(now.keeper.cut_offs == 0);
        kill(visitor.pid, SIGCONT);
    }
    good = good && KEEPER_OK(&visitor, RELEASE, 0, NULL, 0, 0) && fixture_writes(&s, STILL_SEED) &&
           KEEPER_OK(&visitor, ACQUIRE, 0, NULL, GVM_LEASE_READ, LEASE_WAIT_MS) &&
           visitor_sees(&visitor) && KEEPER_OK(&visitor, RELEASE, 0, NULL, 0, 0) &&
           EXPECT(child_end(&visitor) == 0) && fixture_is_whole(&s);
    child_kill(&visitor);
    return fixture_end(&s) && good;
}

static bool lease_kept_too_long_is_cut_off(void)
{
    fixture s;
    child visitor = {0};
    bool good = fixture_begin(&s, LEASE_MS) && visitor_begin(&s, &visitor);

    /* Nobody waits: nothing happens to it. */
    pause_ms(2 * LEASE_MS);
    good = good && KEEPER_OK(&visitor, SNAPSHOT, 0, NULL, 0, 0) && fixture_writes(&s, STILL_SEED) &&
           KEEPER_EXPECT(&visitor, SNAPSHOT, 0, NULL, 0, 0, GVM_E_KEEPER) &&
           visitor_sees(&visitor) && held_until_gone(&s, &visitor, 0);
    child_kill(&visitor);
    return fixture_end(&s) && good;
}

static bool writer_that_dies_is_counted(void)
{
    fixture s;
    child visitor = {0};
    keeper_answer out = {0};
    bool good = fixture_begin(&s, 0) && visitor_begin(&s, &visitor) &&
                KEEPER_OK(&visitor, RELEASE, 0, NULL, 0, 0) &&
                KEEPER_OK(&visitor, ACQUIRE, 0, NULL, GVM_LEASE_WRITE, LEASE_WAIT_MS);

    child_kill(&visitor);
    good = good && fixture_is_whole(&s);
    if (good) {
        out = keeper_do(&s.bystander, KEEPER_INFO, 0, NULL, 0, 0);
        good = good && EXPECT(out.status == GVM_OK) && EXPECT(out.object.interrupted == 1);
    }
    return fixture_end(&s) && good;
}

/* The visitor stops when it has a MAP; then the keeper is stopped for twice the revoke timeout. If
 * first, the visitor answers meanwhile, and its answers wait in the socket; otherwise it goes on when the
 * keeper does. */
static bool keeper_is_stopped_beside(fixture *s, child *visitor, bool first)
{
    keeper_answer out = {0};
    bool good;

    /* Its next step is the end of the system call that brings the MAP. */
    (void)keeper_do(visitor, KEEPER_ARM, 0, NULL, 1, SIGSTOP);
    keeper_post(&s->bystander, KEEPER_EVICT, 0, STILL_NAME, 0, 0);
    good = EXPECT(child_wait_stopped(visitor)) && EXPECT(process_stop(s->keeper.pid));
    if (first)
        kill(visitor->pid, SIGCONT);
    pause_ms(2 * STOPPED_REVOKE_MS);
    kill(s->keeper.pid, SIGCONT);
    kill(visitor->pid, SIGCONT);
    return good && EXPECT(keeper_wait(&s->bystander, &out)) && EXPECT(out.status == GVM_OK) &&
           KEEPER_OK(visitor, ACQUIRE, 0, NULL, GVM_LEASE_READ, LEASE_WAIT_MS) &&
           visitor_sees(visitor) && KEEPER_OK(visitor, RELEASE, 0, NULL, 0, 0);
}

/* Nobody is cut off for what the keeper did not do in time. */
static bool keeper_that_was_stopped_cuts_off_nobody(void)
{
    fixture s;
    child visitor = {0};
    keeper_answer now;
    bool good = fixture_begin_timed(&s, STOPPED_REVOKE_MS, 0) && visitor_begin(&s, &visitor) &&
                KEEPER_OK(&visitor, RELEASE, 0, NULL, 0, 0);

    for (int i = 0; i < 2 && good; i++)
        good = keeper_is_stopped_beside(&s, &visitor, i == 0) && fixture_snapshot(&s, &now) &&
               EXPECT(now.keeper.cut_offs == 0);
    good = good && EXPECT(child_end(&visitor) == 0) && fixture_is_whole(&s);
    child_kill(&visitor);
    return fixture_end(&s) && good;
}

/* The process goes on, but nothing of the client is left in it. */
static bool process_that_executes_a_program_is_no_client_any_more(void)
{
    fixture s;
    child visitor = {0};
    bool good = fixture_begin(&s, 0) && visitor_begin(&s, &visitor) &&
                KEEPER_OK(&visitor, RELEASE, 0, NULL, 0, 0);

    if (good)
        keeper_post(&visitor, KEEPER_EXEC, 0, NULL, 0, 0);
    good = good && fixture_is_whole(&s) && EXPECT(kill(visitor.pid, 0) == 0);
    child_kill(&visitor);
    return fixture_end(&s) && good;
}

void test_stops(void)
{
#define TEST(name) tap_result(name(), #name)
    TEST(stopped_client_is_cut_off_and_others_go_on);
    TEST(stopped_client_that_keeps_all_mapped_can_read_it_after_its_cut_off);
    TEST(stopped_client_that_is_killed_lets_go);
    TEST(stopped_client_with_a_lease_is_waited_for);
    TEST(lease_kept_too_long_is_cut_off);
    TEST(writer_that_dies_is_counted);
    TEST(keeper_that_was_stopped_cuts_off_nobody);
    TEST(process_that_executes_a_program_is_no_client_any_more);
#undef TEST
}
