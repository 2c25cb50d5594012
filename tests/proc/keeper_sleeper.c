/* Sleepers: honest clients that are stopped for so long that the keeper cuts them off, and then run on.
 *
 * A bystander owns an object; a sleeper, of another user, takes a lease on it and is stopped. The
 * bystander makes the keeper cut it off, writes, and must find what it wrote from then on, whatever
 * the sleeper writes through its old mapping when it is continued. The sleeper's calls must fail.
 */
#include <signal.h>
#include <stdio.h>

#include "tests/proc/keeper_soak.h"

#define CHUNKS 2u
#define RESERVE_CHUNKS 4u

typedef struct sleeper_round {
    child bystander, sleeper;
    char name[64];
    gvm_lease_mode mode; /* the sleeper's; 0: no lease, but it had one */
    bool dies;           /* instead of being continued */
    bool unasked;        /* without a lease, and nothing of the object was there to be moved */
    uint64_t seed;       /* of what the bystander writes */
    uint64_t checksum;
} sleeper_round;

static bool become(child *p, unsigned which)
{
    return !soak->many_users || KEEPER_OK(p, BECOME, 0, NULL, UID_SLEEPER + which, GID_HONEST);
}

static bool write_it(child *p, uint64_t seed)
{
    return KEEPER_OK(p, ACQUIRE, 0, NULL, GVM_LEASE_WRITE, soak->patience_ms) &&
           KEEPER_OK(p, FILL, 0, NULL, seed, 0) && KEEPER_OK(p, RELEASE, 0, NULL, 0, 0);
}

static bool read_it(child *p, uint64_t *checksum)
{
    keeper_answer out = {0};

    if (!KEEPER_OK(p, ACQUIRE, 0, NULL, GVM_LEASE_READ, soak->patience_ms))
        return false;
    out = keeper_do(p, KEEPER_CHECK, 0, NULL, 0, 0);
    *checksum = out.value;
    return EXPECT(out.status == GVM_OK) && KEEPER_OK(p, RELEASE, 0, NULL, 0, 0);
}

static bool is_unchanged(sleeper_round *n)
{
    uint64_t checksum = 0;

    return read_it(&n->bystander, &checksum) && EXPECT(checksum == n->checksum);
}

static bool stop_sleeper(sleeper_round *n)
{
    child *s = &n->sleeper;

    *s = keeper_child_start();
    return become(s, 1) && KEEPER_OK(s, CONNECT, 0, soak->path, 0, 0) &&
           KEEPER_OK(s, OPEN, 0, n->name, 0, 0) &&
           KEEPER_OK(s, ACQUIRE, 0, NULL, n->mode == 0 ? GVM_LEASE_READ : n->mode, soak->patience_ms) &&
           (n->mode != 0 || KEEPER_OK(s, RELEASE, 0, NULL, 0, 0)) && EXPECT(process_stop(s->pid));
}

/* Somebody must want an answer from the sleeper: a move, a growth, or its lease after all the time
 * that the keeper gives it. */
static bool have_it_cut_off(sleeper_round *n, bool by_lease_timeout)
{
    child *b = &n->bystander;

    if (n->mode == 0) {
        const keeper_answer out = keeper_do(b, KEEPER_EVICT, 0, n->name, 0, 0);

        n->unasked = out.value == 0;
        return EXPECT(out.status == GVM_OK);
    }
    return by_lease_timeout || KEEPER_OK(b, GROW, 0, NULL, CHUNKS + 1, 0);
}

static bool continue_sleeper(sleeper_round *n)
{
    child *s = &n->sleeper;
    bool good = true;

    kill(s->pid, SIGCONT);
    if (n->mode == GVM_LEASE_WRITE)
        (void)keeper_do(s, KEEPER_FILL, 0, NULL, n->seed + 1, 0); /* it was not notified of the cut-off */
    good = is_unchanged(n);
    if (n->mode != 0)
        good = KEEPER_EXPECT(s, RELEASE, 0, NULL, 0, 0, GVM_E_KEEPER) && good;
    return (n->unasked ||
            KEEPER_EXPECT(s, ACQUIRE, 0, NULL, GVM_LEASE_READ, soak->patience_ms, GVM_E_KEEPER)) &&
           EXPECT(child_end(s) == 0) && good;
}

static bool pass_round(sleeper_round *n, uint64_t random)
{
    child *b = &n->bystander;
    const bool dies_first = n->dies && random >> 8 & 1;
    bool good = stop_sleeper(n);

    if (good && dies_first)
        child_kill(&n->sleeper);
    good = good && have_it_cut_off(n, soak->lease_timeout && random >> 9 & 1) &&
           write_it(b, n->seed) && read_it(b, &n->checksum);
    if (good && n->dies)
        child_kill(&n->sleeper);
    good = good && (n->dies || continue_sleeper(n)) && is_unchanged(n);
    child_kill(&n->sleeper);
    return good;
}

/* The bystander is connected. */
static bool round_of(sleeper_round *n, uint64_t *seed, unsigned number)
{
    static const gvm_lease_mode modes[] = {GVM_LEASE_WRITE, GVM_LEASE_READ, (gvm_lease_mode)0};
    const uint64_t random = random_next(seed);
    child *b = &n->bystander;
    bool good;

    n->mode = modes[number % 3];
    n->dies = random % 4 == 0;
    n->unasked = false;
    n->seed = number * 10ull;
    snprintf(n->name, sizeof n->name, "/sleeper/%u", number);
    good = KEEPER_OK(b, CREATE, 0, n->name, RESERVE_CHUNKS, CHUNKS) &&
           KEEPER_OK(b, SET_MODE, 0, NULL, 0660, 0) && write_it(b, number) && pass_round(n, random);
    if (!good)
        printf("# sleeper %u: %s lease%s, random %llx\n", number,
               n->mode == GVM_LEASE_WRITE  ? "a write"
               : n->mode == GVM_LEASE_READ ? "a read"
                                           : "no",
               n->dies ? ", killed" : "", (unsigned long long)random);
    fflush(stdout);
    return KEEPER_OK(b, CLOSE, 0, NULL, 0, 0) && good;
}

int sleepers_run(uint64_t seed)
{
    sleeper_round n = {.bystander = keeper_child_start()};
    bool good = become(&n.bystander, 0) && KEEPER_OK(&n.bystander, CONNECT, 0, soak->path, 0, 0);

    if (!good)
        atomic_fetch_add(&soak->sleeper_problems, 1);
    for (unsigned i = 0; good && !atomic_load(&soak->stop); i++) {
        const bool right = round_of(&n, &seed, i);

        atomic_fetch_add(&soak->sleeper_rounds, 1);
        if (!right && atomic_fetch_add(&soak->sleeper_problems, 1) + 1 >= PROBLEMS_MAX)
            break;
        good = right || keeper_do(&n.bystander, KEEPER_SNAPSHOT, 0, NULL, 0, 0).status == GVM_OK;
    }
    return EXPECT(child_end(&n.bystander) == 0) ? 0 : 1;
}
