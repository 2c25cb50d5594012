/* SIGKILL of clients and keepers at every step and at any moment, SIGSTOP of clients at every step,
 * clients that break the protocol.
 *
 *     keeper_kill [lending] [ROUNDS [STRIDE [SEED]]]
 *
 * Goal: whichever process dies, and whenever, no byte, descriptor, lease or name is lost or left, and what
 * every other client has is what it was. Method: a keeper and a bystander (keeper_fixture.h); a victim
 * lives a whole client's life and kills itself at its Nth step, for every STRIDEth N; then a keeper
 * does so while it serves one. Another victim stops itself there, and runs on when the keeper has cut
 * it off and the bystander has written what it wrote. In the rounds two clients act at random while
 * chunks move, until one of them, both, or the keeper is killed at a random moment. With lending the keeper serves two
 * devices, of which the second has no objects, and lends memory to those of the first.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fixture.h"
#include "tests/proc/keeper_fixture.h"

#ifdef __SANITIZE_THREAD__ /* 12 minutes for as many as below */
#define ROUNDS_DEFAULT 20u
#define STRIDE_DEFAULT 29u
#else
#define ROUNDS_DEFAULT 60u
#define STRIDE_DEFAULT 7u
#endif
#define KEEPER_EVERY 10u /* rounds: then it is the keeper that dies */
#define MOMENT_MAX_US 60000u

static uint64_t stride, seed, lent_looks; /* lent_looks: at the keeper, which found memory lent */

static bool is_end_of_a_keeper(gvm_status status)
{
    return status == GVM_E_KEEPER || status == GVM_E_PEER || status == GVM_E_TIMEOUT;
}

/* ---- a client dies at its Nth step */

/* Moves chunks under the victim's hands, while it lives. */
static bool disturb(fixture *s, child *victim)
{
    keeper_answer out;
    bool good = true;

    keeper_post(victim, KEEPER_SCENARIO, 0, s->folder.socket, 0, 0);
    for (int i = 0; i < 3 && good; i++) {
        out = keeper_do(&s->bystander, KEEPER_EVICT, 0, STILL_NAME, 0, 0);
        good = EXPECT(out.status == GVM_OK) && fixture_reads(s);
    }
    return good;
}

typedef struct life_steps {
    uint64_t all;
    uint64_t wrote_from, wrote_until; /* within a write lease */
} life_steps;

static life_steps client_steps(fixture *s)
{
    child victim = keeper_child_start();
    keeper_answer out, armed = {0}, written = {0};

    keeper_do(&victim, KEEPER_ARM, 0, NULL, 0, 0);
    out = keeper_do(&victim, KEEPER_SCENARIO, 0, s->folder.socket, 0, 0);
    if (out.status == GVM_OK) {
        armed = keeper_do(&victim, KEEPER_ARM, 0, NULL, 0, 0);
        written = keeper_do(&victim, KEEPER_WRITTEN, 0, NULL, 0, 0);
    } else {
        printf("# a life undisturbed: %s: %s\n", gvm_status_name(out.status), out.text);
    }
    if (child_end(&victim) != 0)
        return (life_steps){0};
    return (life_steps){armed.value, written.value, written.until};
}

static bool client_dies_at(fixture *s, uint64_t nth)
{
    child victim = keeper_child_start();
    keeper_answer out;
    bool good;
    int status;

    keeper_do(&victim, KEEPER_ARM, 0, NULL, nth, 0);
    good = disturb(s, &victim);
    if (keeper_wait(&victim, &out)) { /* it came through: fewer steps this time */
        good = EXPECT(out.status == GVM_OK) && good;
        if (out.status != GVM_OK)
            printf("# a victim that lived: %s: %s\n", gvm_status_name(out.status), out.text);
        (void)keeper_do(&victim, KEEPER_ARM, 0, NULL, 0, 0); /* or dies at what is left */
        status = child_end(&victim);
        good = EXPECT(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) && good;
    } else {
        child_reap(&victim);
    }
    return good && fixture_is_whole(s);
}

static bool client_dies_at_every_step(uint64_t *kills)
{
    fixture s;
    bool good = fixture_begin(&s, 0) && fixture_is_whole(&s);
    const uint64_t steps = good ? client_steps(&s).all : 0;

    good = EXPECT(steps > 50) && fixture_is_whole(&s);
    for (uint64_t nth = 1; nth <= steps && good; nth += stride, (*kills)++) {
        good = client_dies_at(&s, nth);
        if (!good)
            printf("# a client was killed at step %llu of %llu\n", (unsigned long long)nth,
                   (unsigned long long)steps);
    }
    return fixture_end(&s) && good;
}

/* ---- a client stops at its Nth step, and runs on */

#define STOP_LATE_MS (REVOKE_MS + 300) /* after which the keeper has seen that a client is late */
#define STOP_FAILURES_MAX 5u
#define STOP_STRIDES \
    4u /* it is left stopped for a while, so there are fewer rounds than for SIGKILL */

static bool bystander_finds(fixture *s, uint64_t *checksum)
{
    keeper_answer out = {0};
    bool good = KEEPER_OK(&s->bystander, ACQUIRE, 0, NULL, GVM_LEASE_READ, LEASE_WAIT_MS);

    if (good) {
        out = keeper_do(&s->bystander, KEEPER_CHECK, 0, NULL, 0, 0);
        good = EXPECT(out.status == GVM_OK) && KEEPER_OK(&s->bystander, RELEASE, 0, NULL, 0, 0);
    }
    *checksum = out.value;
    return good;
}

/* While the victim is stopped: other data, and, if asked to, the chunks move. Both ways are needed:
 * chunks that have moved are out of the victim's reach, whatever the keeper does.
 * *cut: the keeper has cut it off. */
static bool act_meanwhile(fixture *s, bool move, bool *cut)
{
    keeper_answer before, after;
    bool good = fixture_snapshot(s, &before) && fixture_writes(s, OTHER_SEED) &&
                (!move || KEEPER_OK(&s->bystander, EVICT, 0, STILL_NAME, 0, 0));

    (void)keeper_do(&s->bystander, KEEPER_EVICT, 0, "/victim/public", 0, 0); /* it may not be there yet */
    pause_ms(STOP_LATE_MS); /* what the victim was asked and does not answer is late now */
    good = good && fixture_writes(s, OTHER_SEED) && fixture_snapshot(s, &after);
    *cut = good && after.keeper.cut_offs > before.keeper.cut_offs;
    return good;
}

/* A victim that was cut off changes nothing; another one may have written after the bystander. */
static bool is_content_right(fixture *s, bool cut)
{
    uint64_t checksum;

    if (!bystander_finds(s, &checksum))
        return false;
    return EXPECT(checksum == other_checksum || (!cut && checksum == still_checksum));
}

static bool client_stops_at(fixture *s, uint64_t nth, bool move, uint64_t *cuts)
{
    child victim = keeper_child_start();
    keeper_answer out;
    bool good = true, cut = false;

    keeper_do(&victim, KEEPER_ARM, 0, NULL, nth, SIGSTOP);
    keeper_post(&victim, KEEPER_SCENARIO, 0, s->folder.socket, 0, 0);
    const bool stopped = child_wait_stopped(&victim);
    if (stopped && process_may_stay_stopped())
        good = act_meanwhile(s, move, &cut);
    *cuts += cut;
    if (stopped)
        kill(victim.pid, SIGCONT);
    good = EXPECT(keeper_wait(&victim, &out)) && good;
    if (out.status != GVM_OK && (!cut || !is_end_of_a_keeper(out.status))) {
        printf("# a victim that was %s: %s: %s\n", cut ? "cut off" : "stopped in vain",
               gvm_status_name(out.status), out.text);
        good = false;
    }
    good = good && (!cut || is_content_right(s, cut));
    (void)keeper_do(&victim, KEEPER_ARM, 0, NULL, 0, 0);
    good = EXPECT(child_end(&victim) == 0) && good;
    return (!cut || is_content_right(s, cut)) && fixture_writes(s, STILL_SEED) && good &&
           fixture_is_whole(s);
}

/* The next step to stop at: few of all, more of those within the write lease. */
static uint64_t next_stop(uint64_t nth, const life_steps *steps)
{
    const uint64_t each = stride == 1 ? 1 : STOP_STRIDES * stride;
    const uint64_t each_written = (stride + 1) / 2;

    if (nth >= steps->wrote_from && nth < steps->wrote_until)
        return nth + each_written;
    return nth < steps->wrote_from && nth + each > steps->wrote_from ? steps->wrote_from : nth + each;
}

static bool client_stops_at_every_step(uint64_t *stops, uint64_t *cuts)
{
    fixture s;
    bool good = fixture_begin(&s, REVOKE_MS) && fixture_is_whole(&s);
    const life_steps steps = good ? client_steps(&s) : (life_steps){0};
    unsigned wrong = 0;

    good = EXPECT(steps.all > 50) && EXPECT(steps.wrote_from < steps.wrote_until) &&
           fixture_is_whole(&s);
    for (uint64_t nth = 1; nth <= steps.all && good; nth = next_stop(nth, &steps), (*stops)++) {
        const bool right = client_stops_at(&s, nth, *stops % 2 == 1, cuts);

        wrong += !right;
        if (!right)
            printf("# a client stopped at step %llu of %llu; it writes from %llu to %llu\n",
                   (unsigned long long)nth, (unsigned long long)steps.all,
                   (unsigned long long)steps.wrote_from, (unsigned long long)steps.wrote_until);
        good = right || wrong < STOP_FAILURES_MAX;
    }
    good = EXPECT(*cuts > 0) && good; /* else nothing was shown of what such a client writes later */
    return fixture_end(&s) && wrong == 0 && good;
}

/* ---- the keeper dies at its Nth step */

#define HELD 2 /* the bystander's slot of an object on which it holds a lease all the time */

static bool begin_held(fixture *s)
{
    child *b = &s->bystander;

    return KEEPER_OK(b, CREATE, HELD, "/held", STILL_CHUNKS, STILL_CHUNKS) &&
           KEEPER_OK(b, ACQUIRE, HELD, NULL, GVM_LEASE_WRITE, LEASE_WAIT_MS) &&
           KEEPER_OK(b, FILL, HELD, NULL, STILL_SEED, 0) && KEEPER_OK(b, RELEASE, HELD, NULL, 0, 0) &&
           KEEPER_OK(b, ACQUIRE, HELD, NULL, GVM_LEASE_READ, LEASE_WAIT_MS);
}

/* Memory outlives the keeper; calls that need it say so; a new one at the same path starts empty. */
static bool life_after_the_keeper(fixture *s)
{
    child *b = &s->bystander;
    keeper_answer out = keeper_do(b, KEEPER_CHECK, HELD, NULL, 0, 0);
    bool good = EXPECT(out.status == GVM_OK) && EXPECT(out.value == still_checksum) &&
                KEEPER_EXPECT(b, SNAPSHOT, 0, NULL, 0, 0, GVM_E_KEEPER) &&
                KEEPER_EXPECT(b, OPEN, 3, STILL_NAME, 0, 0, GVM_E_KEEPER) &&
                KEEPER_OK(b, RELEASE, HELD, NULL, 0, 0);

    s->keeper = keeper_child_start();
    good = good && KEEPER_OK(&s->keeper, SERVE, 0, s->folder.socket, REVOKE_MS, 0) &&
           KEEPER_EXPECT(b, SNAPSHOT, 0, NULL, 0, 0, GVM_E_KEEPER) &&
           KEEPER_OK(b, DISCONNECT, 0, NULL, 0, 0) && fixture_begin_bystander(s) && fixture_reads(s);
    return good;
}

/* How many steps the keeper takes to serve a client's life; nth 0: none is the last. */
static bool keeper_dies_at(uint64_t nth, uint64_t *steps)
{
    fixture s;
    child victim = {0};
    keeper_answer out = {0};
    bool good = fixture_begin(&s, 0) && begin_held(&s);

    victim = keeper_child_start();
    if (good) {
        keeper_do(&s.keeper, KEEPER_ARM, 0, NULL, nth, 0);
        out = keeper_do(&victim, KEEPER_SCENARIO, 0, s.folder.socket, 0, 0);
        good = EXPECT(out.status == GVM_OK || (nth > 0 && is_end_of_a_keeper(out.status)));
        if (!good)
            printf("# all calls of a client whose keeper was killed: %s: %s\n",
                   gvm_status_name(out.status), out.text);
    }
    if (nth == 0)
        *steps = keeper_do(&s.keeper, KEEPER_ARM, 0, NULL, 0, 0).value;
    child_kill(&s.keeper);
    good = good && life_after_the_keeper(&s) && EXPECT(child_end(&victim) == 0);
    child_kill(&victim);
    return fixture_end(&s) && good;
}

static bool keeper_dies_at_every_step(uint64_t *kills)
{
    uint64_t steps = 0;
    bool good = keeper_dies_at(0, &steps) && EXPECT(steps > 50);

    for (uint64_t nth = 1; nth <= steps && good; nth += 2 * stride, (*kills)++) {
        good = keeper_dies_at(nth, &steps);
        if (!good)
            printf("# the keeper was killed at step %llu of %llu\n", (unsigned long long)nth,
                   (unsigned long long)steps);
    }
    return good;
}

/* ---- at random moments */

static bool random_keeper_death(void)
{
    fixture s;
    child others[2] = {{0}, {0}};
    keeper_answer out;
    bool good = fixture_begin(&s, 0) && begin_held(&s);

    for (int i = 0; i < 2; i++) {
        others[i] = keeper_child_start();
        keeper_post(&others[i], KEEPER_RANDOM, 0, s.folder.socket, random_next(&seed), 0);
    }
    pause_us(30000 + random_next(&seed) % MOMENT_MAX_US);
    child_kill(&s.keeper);
    for (int i = 0; i < 2; i++) {
        good = EXPECT(keeper_wait(&others[i], &out)) && EXPECT(is_end_of_a_keeper(out.status)) && good;
        if (!is_end_of_a_keeper(out.status))
            printf("# a client whose keeper was killed: %s: %s\n", gvm_status_name(out.status),
                   out.text);
    }
    good = good && life_after_the_keeper(&s);
    for (int i = 0; i < 2; i++)
        good = EXPECT(child_end(&others[i]) == 0) && good;
    return fixture_end(&s) && good;
}

/* victims: bits. A victim that is not killed at the moment chosen is killed later, with nothing special. */
static bool random_client_death(fixture *s, unsigned victims)
{
    child both[2];
    const uint64_t moment = 30000 + random_next(&seed) % MOMENT_MAX_US;
    keeper_answer out;
    bool good = true;

    for (int i = 0; i < 2; i++) {
        both[i] = keeper_child_start();
        keeper_post(&both[i], KEEPER_RANDOM, 0, s->folder.socket, random_next(&seed), 0);
    }
    out = keeper_do(&s->bystander, KEEPER_EVICT, 0, STILL_NAME, 0, 0);
    good = EXPECT(out.status == GVM_OK) && fixture_reads(s);
    pause_us(moment);
    good = good && fixture_snapshot(s, &out);
    lent_looks += out.device.lent_bytes > 0;
    for (int i = 0; i < 2; i++)
        if (victims >> i & 1)
            child_kill(&both[i]);
    good = good && fixture_reads(s);
    for (int i = 0; i < 2; i++)
        child_kill(&both[i]);
    return good && fixture_is_whole(s);
}

static bool random_rounds(uint64_t rounds)
{
    bool good = true;

    for (uint64_t i = 0; i < rounds && good;) {
        fixture s;

        good = fixture_begin(&s, 0);
        for (; i % KEEPER_EVERY != KEEPER_EVERY - 1 && i < rounds && good; i++)
            good = random_client_death(&s, 1 + (unsigned)(random_next(&seed) % 3));
        good = fixture_end(&s) && good;
        if (good && i < rounds) {
            good = random_keeper_death();
            i++;
        }
        if (!good)
            printf("# in round %llu\n", (unsigned long long)i);
    }
    return good;
}

int main(int argc, char **argv)
{
    const bool lending = argc > 1 && strcmp(argv[1], "lending") == 0;
    uint64_t rounds, kills = 0, cuts = 0;
    bool good;

    keeper_child_main(argc, argv);
    argc -= lending;
    argv += lending;
    rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : ROUNDS_DEFAULT;
    stride = argc > 2 ? strtoull(argv[2], NULL, 0) : STRIDE_DEFAULT;
    seed = random_seed(argc > 3 ? argv[3] : NULL);
    if (argc > 4 || stride == 0) {
        fprintf(stderr, "usage: keeper_kill [lending] [ROUNDS [STRIDE [SEED]]]\n");
        return 2;
    }
    fixture_machine_default("devices=%d,memory=128MiB,host=192MiB,sms=1", lending ? 2 : 1);
    if (lending)
        setenv(LENDING, "1", 1);
    setenv("GVMEM_CACHE", "0", 0);
    fixture_raise_fd_limit();
    memory_watch();
    if (!fixture_learn())
        return 2;
    memory_note();
    test_stops();
    test_abuses(seed);
    good = client_dies_at_every_step(&kills);
    tap_result(good, "client killed at %llu of its steps", (unsigned long long)kills);
    kills = 0;
    good = client_stops_at_every_step(&kills, &cuts);
    tap_result(good,
               "client stopped and continued at %llu of its steps, cut off meanwhile at %llu of them",
               (unsigned long long)kills, (unsigned long long)cuts);
    kills = 0;
    good = keeper_dies_at_every_step(&kills);
    tap_result(good, "keeper killed at %llu of its steps", (unsigned long long)kills);
    tap_result(random_rounds(rounds), "killed at random moments: %llu rounds, seed %llu",
               (unsigned long long)rounds, (unsigned long long)seed);
    if (lending)
        tap_result(lent_looks > 0, "memory was lent in %llu of them", (unsigned long long)lent_looks);
    memory_watch_end();
    return tap_finish();
}
