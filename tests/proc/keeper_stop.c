/* Clients that do not answer: stopped by SIGSTOP, or keeping leases that others want. */
#include <signal.h>
#include <stdio.h>

#include "tests/proc/keeper_stage.h"

#define LEASE_MS (300u * PROC_SLOWNESS)
#define STOPPED_REVOKE_MS (1000u * PROC_SLOWNESS) /* of a keeper that is stopped */

/* A client that has STILL_NAME mapped, in slot 0. */
static bool visitor_begin(stage *s, keeper_puppet *p)
{
    keeper_answer out;

    *p = keeper_puppet_start();
    if (!KP_OK(p, CONNECT, 0, s->path, 0, 0) || !KP_OK(p, OPEN, 0, STILL_NAME, 0, 0) ||
        !KP_OK(p, ACQUIRE, 0, NULL, GVM_LEASE_READ, LEASE_WAIT_MS))
        return false;
    out = keeper_do(p, KP_CHECK, 0, NULL, 0, 0);
    return EXPECT(out.status == GVM_OK) && EXPECT(out.value == still_checksum);
}

static bool visitor_sees(keeper_puppet *p)
{
    keeper_answer out = keeper_do(p, KP_CHECK, 0, NULL, 0, 0);

    if (out.status != GVM_OK)
        printf("# reading what is mapped: %s: %s\n", gvm_status_name(out.status), out.text);
    return EXPECT(out.status == GVM_OK) && EXPECT(out.value == still_checksum);
}

/* What it holds is counted until it is gone, then not. */
static bool held_until_gone(stage *s, keeper_puppet *p, uint64_t least)
{
    keeper_answer now;

    if (!stage_snapshot(s, &now))
        return false;
    if (now.device.held_bytes < least)
        printf("# held: %llu bytes, not %llu\n", (unsigned long long)now.device.held_bytes,
               (unsigned long long)least);
    return EXPECT(now.device.held_bytes >= least) && EXPECT(now.keeper.cut_offs == 1) &&
           EXPECT(keeper_puppet_end(p) == 0) && stage_is_whole(s);
}

static bool stopped_client_is_cut_off_and_others_go_on(void)
{
    stage s;
    keeper_puppet visitor = {0};
    keeper_answer out = {0};
    bool good = stage_begin(&s, 0) && visitor_begin(&s, &visitor) &&
                KP_OK(&visitor, RELEASE, 0, NULL, 0, 0);

    if (good) {
        kill(visitor.pid, SIGSTOP);
        out = keeper_do(&s.bystander, KP_EVICT, 0, STILL_NAME, 0, 0);
        good = EXPECT(out.status == GVM_OK) && EXPECT(out.value == STILL_CHUNKS * CHUNK_BYTES) &&
               stage_reads(&s) && stage_writes(&s, STILL_SEED) && stage_reads(&s);
        kill(visitor.pid, SIGCONT);
    }
    good = good && KP_EXPECT(&visitor, SNAPSHOT, 0, NULL, 0, 0, GVM_E_KEEPER) &&
           visitor_sees(&visitor) && held_until_gone(&s, &visitor, STILL_CHUNKS * CHUNK_BYTES);
    keeper_puppet_kill(&visitor);
    return stage_end(&s) && good;
}

static bool stopped_client_that_is_killed_lets_go(void)
{
    stage s;
    keeper_puppet visitor = {0};
    keeper_answer out = {0};
    bool good = stage_begin(&s, 0) && visitor_begin(&s, &visitor) &&
                KP_OK(&visitor, RELEASE, 0, NULL, 0, 0);

    if (good) {
        kill(visitor.pid, SIGSTOP);
        out = keeper_do(&s.bystander, KP_EVICT, 0, STILL_NAME, 0, 0);
        good = EXPECT(out.status == GVM_OK) && stage_reads(&s);
    }
    keeper_puppet_kill(&visitor);
    good = good && stage_is_whole(&s);
    return stage_end(&s) && good;
}

/* It is asked to map nothing: a lease keeps its chunks where they are. */
static bool stopped_client_with_a_lease_is_waited_for(void)
{
    stage s;
    keeper_puppet visitor = {0};
    keeper_answer out = {0}, now;
    bool good = stage_begin(&s, 0) && visitor_begin(&s, &visitor);

    if (good) {
        kill(visitor.pid, SIGSTOP);
        out = keeper_do(&s.bystander, KP_EVICT, 0, STILL_NAME, 0, 0);
        good = EXPECT(out.status == GVM_OK) && EXPECT(out.value == 0) && stage_reads(&s) &&
               KP_EXPECT(&s.bystander, ACQUIRE, 0, NULL, GVM_LEASE_WRITE, 2 * REVOKE_MS, GVM_E_TIMEOUT) &&
               stage_reads(&s) && stage_snapshot(&s, &now) && EXPECT(now.keeper.cut_offs == 0);
        kill(visitor.pid, SIGCONT);
    }
    good = good && KP_OK(&visitor, RELEASE, 0, NULL, 0, 0) && stage_writes(&s, STILL_SEED) &&
           KP_OK(&visitor, ACQUIRE, 0, NULL, GVM_LEASE_READ, LEASE_WAIT_MS) &&
           visitor_sees(&visitor) && KP_OK(&visitor, RELEASE, 0, NULL, 0, 0) &&
           EXPECT(keeper_puppet_end(&visitor) == 0) && stage_is_whole(&s);
    keeper_puppet_kill(&visitor);
    return stage_end(&s) && good;
}

static bool lease_kept_too_long_is_cut_off(void)
{
    stage s;
    keeper_puppet visitor = {0};
    bool good = stage_begin(&s, LEASE_MS) && visitor_begin(&s, &visitor);

    /* Nobody waits: nothing happens to it. */
    proc_pause_ms(2 * LEASE_MS);
    good = good && KP_OK(&visitor, SNAPSHOT, 0, NULL, 0, 0) && stage_writes(&s, STILL_SEED) &&
           KP_EXPECT(&visitor, SNAPSHOT, 0, NULL, 0, 0, GVM_E_KEEPER) && visitor_sees(&visitor) &&
           held_until_gone(&s, &visitor, 0);
    keeper_puppet_kill(&visitor);
    return stage_end(&s) && good;
}

static bool writer_that_dies_is_counted(void)
{
    stage s;
    keeper_puppet visitor = {0};
    keeper_answer out = {0};
    bool good = stage_begin(&s, 0) && visitor_begin(&s, &visitor) &&
                KP_OK(&visitor, RELEASE, 0, NULL, 0, 0) &&
                KP_OK(&visitor, ACQUIRE, 0, NULL, GVM_LEASE_WRITE, LEASE_WAIT_MS);

    keeper_puppet_kill(&visitor);
    good = good && stage_is_whole(&s);
    if (good) {
        out = keeper_do(&s.bystander, KP_INFO, 0, NULL, 0, 0);
        good = EXPECT(out.status == GVM_OK) && EXPECT(out.object.interrupted == 1);
    }
    return stage_end(&s) && good;
}

/* The visitor stops when it has a MAP; then the keeper is stopped for twice the revoke timeout. If
 * first, the visitor answers meanwhile, and its answers wait in the socket; otherwise it goes on when the
 * keeper does. */
static bool keeper_is_stopped_beside(stage *s, keeper_puppet *visitor, bool first)
{
    keeper_answer out = {0};
    bool good;

    /* Its next step is the end of the system call that brings the MAP. */
    (void)keeper_do(visitor, KP_ARM, 0, NULL, 1, SIGSTOP);
    keeper_post(&s->bystander, KP_EVICT, 0, STILL_NAME, 0, 0);
    good = EXPECT(keeper_wait_stopped(visitor)) && EXPECT(proc_stop(s->keeper.pid));
    if (first)
        kill(visitor->pid, SIGCONT);
    proc_pause_ms(2 * STOPPED_REVOKE_MS);
    kill(s->keeper.pid, SIGCONT);
    kill(visitor->pid, SIGCONT);
    return good && EXPECT(keeper_wait(&s->bystander, &out)) && EXPECT(out.status == GVM_OK) &&
           KP_OK(visitor, ACQUIRE, 0, NULL, GVM_LEASE_READ, LEASE_WAIT_MS) &&
           visitor_sees(visitor) && KP_OK(visitor, RELEASE, 0, NULL, 0, 0);
}

/* Nobody is cut off for what the keeper did not do in time. */
static bool keeper_that_was_stopped_cuts_off_nobody(void)
{
    stage s;
    keeper_puppet visitor = {0};
    keeper_answer now;
    bool good = stage_begin_timed(&s, STOPPED_REVOKE_MS, 0) && visitor_begin(&s, &visitor) &&
                KP_OK(&visitor, RELEASE, 0, NULL, 0, 0);

    for (int i = 0; i < 2 && good; i++)
        good = keeper_is_stopped_beside(&s, &visitor, i == 0) && stage_snapshot(&s, &now) &&
               EXPECT(now.keeper.cut_offs == 0);
    good = good && EXPECT(keeper_puppet_end(&visitor) == 0) && stage_is_whole(&s);
    keeper_puppet_kill(&visitor);
    return stage_end(&s) && good;
}

/* The process goes on, but nothing of the client is left in it. */
static bool process_that_executes_a_program_is_no_client_any_more(void)
{
    stage s;
    keeper_puppet visitor = {0};
    bool good = stage_begin(&s, 0) && visitor_begin(&s, &visitor) &&
                KP_OK(&visitor, RELEASE, 0, NULL, 0, 0);

    if (good)
        keeper_post(&visitor, KP_EXEC, 0, NULL, 0, 0);
    good = good && stage_is_whole(&s) && EXPECT(kill(visitor.pid, 0) == 0);
    keeper_puppet_kill(&visitor);
    return stage_end(&s) && good;
}

void test_stops(void)
{
#define TEST(name) proc_result(name(), #name)
    TEST(stopped_client_is_cut_off_and_others_go_on);
    TEST(stopped_client_that_is_killed_lets_go);
    TEST(stopped_client_with_a_lease_is_waited_for);
    TEST(lease_kept_too_long_is_cut_off);
    TEST(writer_that_dies_is_counted);
    TEST(keeper_that_was_stopped_cuts_off_nobody);
    TEST(process_that_executes_a_program_is_no_client_any_more);
#undef TEST
}
