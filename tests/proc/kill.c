/* SIGKILL of exporter or importers, at every step and at any moment.
 *
 *     kill [ROUNDS [SEED [SIZE_MIB]]]
 *
 * Goal: whichever process dies, and whenever, the others get an answer in time, what they have mapped stays
 * what it was, and when all have gone the device's memory is free again. Method: an exporter and
 * an importer go through one protocol; the matrix kills one of them after each step, whereupon the
 * other goes on, with a second importer; the rounds let both run at once and kill one or both at a
 * random moment.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/proc/buffer_child.h"

#define ROUNDS_DEFAULT 100
#define SEED_OF_DATA 7

static uint64_t size, checksum, checksum_grown;

typedef struct step {
    buffer_verb verb;
    uint64_t a, b;
} step;

/* The protocol. Each SEND of the exporter meets a RECEIVE of the importer. */
enum { EXPORTER_STEPS = 14, IMPORTER_STEPS = 7 };
static step exporter_steps[EXPORTER_STEPS], importer_steps[IMPORTER_STEPS];

static void make_steps(void)
{
    const step e[EXPORTER_STEPS] = {
        {BUFFER_OPEN, 0, 0},
        {BUFFER_CREATE, 2 * size, 0},
        {BUFFER_COMMIT, 0, size},
        {BUFFER_FILL, size, SEED_OF_DATA},
        {BUFFER_SYNC, 0, 0},
        {BUFFER_EXPORT, 0, 0},
        {BUFFER_SEND, 0, 0},
        {BUFFER_COMMIT, size, size},
        {BUFFER_FILL, 2 * size, SEED_OF_DATA}, /* the first half again with the same */
        {BUFFER_SYNC, 0, 0},
        {BUFFER_EXPORT, 0, 0},
        {BUFFER_SEND, 0, 0},
        {BUFFER_CHECKSUM, 0, 2 * size},
        {BUFFER_DESTROY, 0, 0},
    };
    const step i[IMPORTER_STEPS] = {
        {BUFFER_OPEN, 0, 0},
        {BUFFER_RECEIVE, 0, 0},
        {BUFFER_IMPORT, GVM_IMPORT_READONLY, 2 * size},
        {BUFFER_CHECKSUM, 0, size},
        {BUFFER_RECEIVE, 0, 0},
        {BUFFER_UPDATE, 0, 0},
        {BUFFER_CHECKSUM, 0, 2 * size},
    };

    memcpy(exporter_steps, e, sizeof e);
    memcpy(importer_steps, i, sizeof i);
}

/* Exporter and importer are connected from the start; the second importer comes after a death. */
typedef struct group {
    child exporter, importer, second;
} group;

static group start_group(void)
{
    group c = {buffer_child_start(), buffer_child_start(), buffer_child_start()};

    buffer_connect(&c.exporter, &c.importer);
    return c;
}

static bool end_group(group *c)
{
    (void)child_end(&c->exporter);
    (void)child_end(&c->importer);
    (void)child_end(&c->second);
    return EXPECT(memory_is_back());
}

/* Is what an importer says of its memory right? A dead exporter shows as GVM_E_PEER; what then
 * was not received cannot be imported or updated from, and a kernel that reads what never came
 * breaks its context. */
static bool importer_answer_is_right(const step *s, const answer *out, bool exporter_dies)
{
    if (out->status == GVM_OK)
        return s->verb != BUFFER_CHECKSUM ||
               EXPECT(out->value == (s->b == size ? checksum : checksum_grown));
    if (exporter_dies && s->verb == BUFFER_RECEIVE && out->status == GVM_E_PEER)
        return true;
    if (exporter_dies && s->verb != BUFFER_RECEIVE &&
        (out->status == GVM_E_FOREIGN || out->status == GVM_E_INVALID))
        return true;
    if (exporter_dies && s->verb == BUFFER_CHECKSUM && s->b != size && out->status == GVM_E_LOST)
        return true;
    printf("# %s answered %s: %s\n", buffer_verb_name(s->verb), gvm_status_name(out->status),
           out->text);
    return false;
}

static bool do_step(child *p, const step *s, answer *out)
{
    *out = buffer_do(p, s->verb, s->a, s->b);
    if (out->status != GVM_OK)
        printf("# %s: %s: %s\n", buffer_verb_name(s->verb), gvm_status_name(out->status), out->text);
    return EXPECT(out->status == GVM_OK);
}

/* Learns what undisturbed processes find. */
static bool learn(void)
{
    group c = start_group();
    bool good = true;
    answer out = {0};

    for (int i = 0; i < EXPORTER_STEPS && good; i++) {
        if (exporter_steps[i].verb == BUFFER_SEND || exporter_steps[i].verb == BUFFER_DESTROY)
            continue;
        good = do_step(&c.exporter, &exporter_steps[i], &out);
        if (exporter_steps[i].verb == BUFFER_CHECKSUM)
            checksum_grown = out.value;
    }
    if (good)
        checksum = buffer_do(&c.exporter, BUFFER_CHECKSUM, 0, size).value;
    return end_group(&c) && good;
}

/* ---- the exporter dies after a step */

/* Up to which step of the importer an exporter that has done so many steps has fed it. */
static int importer_steps_fed(int exporter_done)
{
    int sends = 0;

    for (int i = 0; i < exporter_done; i++)
        sends += exporter_steps[i].verb == BUFFER_SEND;
    return sends == 0 ? 1 : sends == 1 ? 4 : IMPORTER_STEPS;
}

static bool kill_exporter_after(int steps)
{
    group c = start_group();
    bool good = true;
    answer out;
    int fed = importer_steps_fed(steps);

    for (int i = 0; i < steps && good; i++)
        good = do_step(&c.exporter, &exporter_steps[i], &out);
    child_kill(&c.exporter);
    for (int i = 0; i < fed && good; i++) /* also what was sent before it died and received only now */
        good = do_step(&c.importer, &importer_steps[i], &out) &&
               importer_answer_is_right(&importer_steps[i], &out, false);
    if (good && fed < IMPORTER_STEPS)
        good = EXPECT_STATUS(&c.importer, RECEIVE, 0, 0, GVM_E_PEER);
    if (good && fed > 1) /* and the memory is still there, to be passed on, too */
        good = EXPECT(buffer_do(&c.importer, BUFFER_CHECKSUM, 0, size).value == checksum);
    return end_group(&c) && good;
}

/* ---- an importer dies after a step */

static bool kill_importer_after(int steps)
{
    group c = start_group();
    bool good = true;
    answer out;
    int next = 0;

    for (int i = 0; i < EXPORTER_STEPS - 1 && good; i++) {
        const bool dead = c.importer.pid == 0;

        if (exporter_steps[i].verb == BUFFER_SEND && dead) {
            out = buffer_do(&c.exporter, BUFFER_SEND, 0, 0);
            good = EXPECT(out.status == GVM_E_PEER || out.status == GVM_OK);
            continue;
        }
        good = do_step(&c.exporter, &exporter_steps[i], &out);
        for (int fed = importer_steps_fed(i + 1); next < fed && next < steps && good; next++)
            good = do_step(&c.importer, &importer_steps[next], &out) &&
                   importer_answer_is_right(&importer_steps[next], &out, false);
        if (next == steps)
            child_kill(&c.importer);
    }
    child_kill(&c.importer);
    /* The exporter's memory is what it was, and another importer may come. */
    if (good) {
        out = buffer_do(&c.exporter, BUFFER_CHECKSUM, 0, 2 * size);
        good = EXPECT(out.status == GVM_OK) && EXPECT(out.value == checksum_grown);
    }
    if (good) {
        buffer_connect(&c.exporter, &c.second);
        good = EXPECT_OK(&c.second, OPEN, 0, 0) && EXPECT_OK(&c.exporter, SEND, 0, 0) &&
               EXPECT_OK(&c.second, RECEIVE, 0, 0) &&
               EXPECT_OK(&c.second, IMPORT, GVM_IMPORT_READONLY, 0) &&
               EXPECT(buffer_do(&c.second, BUFFER_CHECKSUM, 0, 2 * size).value == checksum_grown);
    }
    return end_group(&c) && good;
}

/* ---- all at once, and death at a random moment */

static void post_all(child *p, const step *steps, int count)
{
    for (int i = 0; i < count; i++)
        buffer_post(p, steps[i].verb, steps[i].a, steps[i].b);
}

/* Reads what a survivor answers to all its steps. */
static bool judge_importer(child *p, bool exporter_dies)
{
    answer out;

    for (int i = 0; i < IMPORTER_STEPS; i++) {
        if (!buffer_wait(p, &out))
            return UNEXPECTED("a survivor still runs");
        if (!importer_answer_is_right(&importer_steps[i], &out, exporter_dies))
            return false;
    }
    return true;
}

static bool judge_exporter(child *p, bool importer_dies)
{
    answer out;

    for (int i = 0; i < EXPORTER_STEPS; i++) {
        if (!buffer_wait(p, &out))
            return UNEXPECTED("a survivor still runs");
        if (out.status == GVM_E_PEER && importer_dies && exporter_steps[i].verb == BUFFER_SEND)
            continue;
        if (!EXPECT(out.status == GVM_OK))
            return printf("# %s: %s\n", buffer_verb_name(exporter_steps[i].verb), out.text) < 0;
        if (exporter_steps[i].verb == BUFFER_CHECKSUM && !EXPECT(out.value == checksum_grown))
            return false;
    }
    return true;
}

static uint64_t whole_run_ns;

/* victim 0: nobody, 1: the exporter, 2: the importer, 3: both. */
static bool run_at_once(int victim, uint64_t delay_ns)
{
    group c = start_group();
    const uint64_t begin = now_ns();
    bool good = true;

    post_all(&c.exporter, exporter_steps, EXPORTER_STEPS);
    post_all(&c.importer, importer_steps, IMPORTER_STEPS);
    if (victim != 0)
        pause_us(delay_ns / 1000);
    if (victim & 1)
        child_kill(&c.exporter);
    if (victim & 2)
        child_kill(&c.importer);
    if ((victim & 2) == 0)
        good = judge_importer(&c.importer, (victim & 1) != 0) && good;
    if ((victim & 1) == 0)
        good = judge_exporter(&c.exporter, (victim & 2) != 0) && good;
    if (victim == 0)
        whole_run_ns = now_ns() - begin;
    return end_group(&c) && good;
}

static bool random_rounds(uint64_t rounds, uint64_t seed)
{
    for (uint64_t i = 0; i < rounds; i++) {
        const int victim = 1 + (int)(random_next(&seed) % 3);
        const uint64_t delay_ns = random_next(&seed) % (whole_run_ns + whole_run_ns / 8);

        if (!run_at_once(victim, delay_ns)) {
            printf("# in round %llu: victim %d after %llu us\n", (unsigned long long)i, victim,
                   (unsigned long long)(delay_ns / 1000));
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : ROUNDS_DEFAULT, seed = 0;

    buffer_child_main(argc, argv);
    seed = random_seed(argc > 2 ? argv[2] : NULL);
    size = (argc > 3 ? strtoull(argv[3], NULL, 0) : 8) * MIB;
    if (argc > 4 || size == 0) {
        fprintf(stderr, "usage: kill [ROUNDS [SEED [SIZE_MIB]]]\n");
        return 2;
    }
    make_steps();
    buffer_test_begin(8 * size);
    memory_note();
    tap_result(learn(), "processes undisturbed find what they should");
    tap_result(run_at_once(0, 0), "processes undisturbed find the same at once");
    memory_note();
    for (int steps = 0; steps <= EXPORTER_STEPS; steps++) {
        tap_result(kill_exporter_after(steps), "exporter killed after step %d (%s)", steps,
                   steps > 0 ? buffer_verb_name(exporter_steps[steps - 1].verb) : "start");
    }
    for (int steps = 0; steps <= IMPORTER_STEPS; steps++) {
        tap_result(kill_importer_after(steps), "importer killed after step %d (%s)", steps,
                   steps > 0 ? buffer_verb_name(importer_steps[steps - 1].verb) : "start");
    }
    tap_result(random_rounds(rounds, seed), "killed at random moments: %llu rounds, seed %llu",
               (unsigned long long)rounds, (unsigned long long)seed);
    memory_watch_end();
    return tap_finish();
}
