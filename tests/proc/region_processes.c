/* Processes that have the homes of regions in common, on two devices where there are two: what one has written all find after their
 * syncs, and the sudden death of some, at any step, changes nothing for the others.
 *
 * A board says of which rounds the units of each region may be: after a sync of all, of the latest in which it was written. Of the
 * regions of a process that was killed a unit may be of the latest round that the process had synced, or of the one that
 * it was in; and all that live find the same.
 *
 *     region_processes [ROUNDS [KILLS [SEED]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gvmem/gvmem.h>

#include "tests/lib/device.h"
#include "tests/lib/expect.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tests/proc/region_child.h"
#include "tests/proc/region_process_kernels.h"

#define ROUNDS 40u
#define KILLS 50u
#define MOMENT_MAX_US 30000u
#define GONE_MS 20000u
#define VICTIM 2u /* children from here on are killed */

static uint64_t state;
static int board_fd;
static board *shared;
static fixture_folder folder;
static gvm_keeper *keeper;
static gvm_client *client;
static gvm_object *object; /* of the test itself, which does not attach it */
static child children[PARTIES];

/* ---- all of them */

static bool is_good(const char *what, unsigned who, const region_answer *answer)
{
    if (answer->status == GVM_OK)
        return true;
    printf("# %s by %u: %s: %s\n", what, who, gvm_status_name(answer->status), answer->text);
    return false;
}

/* At the same time, and all succeed. */
static bool all_do(const char *what, unsigned first, unsigned end, region_verb verb, uint64_t a,
                   uint64_t b)
{
    bool good = true;

    for (unsigned i = first; i < end; i++)
        good = EXPECT(region_post(&children[i], verb, a, b)) && good;
    for (unsigned i = first; i < end; i++) {
        const region_answer answer = region_wait(&children[i]);

        good = is_good(what, i, &answer) && good;
    }
    return good;
}

static bool start_child(unsigned i)
{
    region_answer answer;

    children[i] = region_child_start(board_fd);
    answer = region_do(&children[i], REGION_ATTACH, i, i);
    return is_good("attach", i, &answer);
}

/* Twice: who syncs first has not seen what the others raise. */
static bool sync_all(unsigned end)
{
    return all_do("sync", 0, end, REGION_SYNC, 0, 0) &&
           all_do("second sync", 0, end, REGION_SYNC, 0, 0);
}

/* All find what the board says, and the same, in frames and at home. */
static bool check_all(unsigned end)
{
    const party *first = &shared->parties[0];
    bool good = all_do("check", 0, end, REGION_CHECK, 0, 0) &&
                all_do("check by CPU", 0, end, REGION_CHECK_BY_CPU, 0, 0);

    for (unsigned i = 0; i < end && good; i++)
        good = EXPECT(memcmp(shared->parties[i].digests, first->digests, sizeof first->digests) == 0) &&
               EXPECT(memcmp(shared->parties[i].at_home, first->digests, sizeof first->digests) == 0);
    return good;
}

static void expect_round(uint32_t region, uint64_t low, uint64_t high)
{
    shared->low[region] = (uint32_t)low;
    shared->high[region] = (uint32_t)high;
}

/* ---- rounds in which each writes what is its own, and all see it */

static void expect_written(uint64_t round, unsigned parties, uint32_t owned)
{
    for (uint32_t r = 0; r < REGION_COUNT; r++)
        if (writer_of(round, r, PARTIES, owned) < parties)
            expect_round(r, round, round);
}

static bool start_with_round(uint64_t round, unsigned end)
{
    const region_answer answer = region_do(&children[0], REGION_WRITE_ALL, round, 0);

    for (uint32_t r = 0; r < REGION_COUNT; r++)
        expect_round(r, round, round);
    return is_good("write all", 0, &answer) && sync_all(end) && check_all(end);
}

static bool run_rounds(uint64_t *round, uint64_t rounds)
{
    bool good = start_with_round(++*round, PARTIES);

    for (uint64_t i = 0; i < rounds && good; i++) {
        const bool by_cpu = random_next(&state) % 4 == 0;

        good = all_do("write", 0, PARTIES, by_cpu ? REGION_CPU_WRITE : REGION_WRITE, ++*round, 0) &&
               sync_all(PARTIES);
        expect_written(*round, PARTIES, 0);
        good = good && (i % 4 != 3 || check_all(PARTIES));
        if (!good)
            printf("# in round %llu\n", (unsigned long long)*round);
    }
    return good && check_all(PARTIES);
}

/* All write all: one of them syncs first, and the others learn that the regions are torn. */
static bool write_the_same(uint64_t *round)
{
    unsigned torn = 0, fine = 0;
    bool good = all_do("write all", 0, PARTIES, REGION_WRITE_ALL, ++*round, 0);

    for (unsigned i = 0; i < PARTIES; i++) {
        const region_answer answer = region_do(&children[i], REGION_SYNC, 0, 0);

        torn += answer.status == GVM_E_TORN;
        fine += answer.status == GVM_OK;
    }
    for (uint32_t r = 0; r < REGION_COUNT; r++)
        expect_round(r, *round, *round);
    return EXPECT(torn == PARTIES - 1 && fine == 1) && good && sync_all(PARTIES) && check_all(PARTIES);
}

/* ---- deaths */

/* Until the keeper has seen the end of all but so many who have the object open. */
static bool wait_for_openings(uint32_t openings)
{
    gvm_object_info info = {.struct_size = sizeof info};

    for (uint32_t ms = 0; ms < GONE_MS; ms++) {
        if (!EXPECT_GVM_OK(gvm_object_get_info(object, &info)))
            return false;
        if (info.openings == openings)
            return true;
        pause_ms(1);
    }
    printf("# the object is open %u times, not %u\n", info.openings, openings);
    return false;
}

/* What a victim's regions may hold: it ran from a round on. */
static void expect_of_victim(unsigned who, uint64_t from)
{
    const uint64_t started = atomic_load(&shared->parties[who].started),
                   synced = atomic_load(&shared->parties[who].synced);

    for (uint64_t round = from; round <= synced; round++)
        for (uint32_t r = who; r < REGION_COUNT; r += PARTIES)
            if (writer_of(round, r, PARTIES, 1) == who)
                expect_round(r, round, round);
    for (uint32_t r = who; r < REGION_COUNT && started > synced; r += PARTIES)
        if (writer_of(started, r, PARTIES, 1) == who)
            expect_round(r, shared->low[r], started);
}

/* It ran, or was killed, without an error of its own. */
static bool had_no_problem(unsigned who)
{
    if (shared->parties[who].problem[0] == '\0')
        return true;
    printf("# %u: %s\n", who, shared->parties[who].problem);
    return false;
}

static void begin_victim(unsigned who, uint64_t round)
{
    shared->parties[who].problem[0] = '\0';
    atomic_store(&shared->parties[who].started, round - 1);
    atomic_store(&shared->parties[who].synced, round - 1);
}

/* The survivors write theirs, and find all of it as it may be. */
static bool survive(uint64_t *round)
{
    const uint64_t own = ++*round;

    if (!all_do("write", 0, VICTIM, REGION_WRITE, own, 1) || !sync_all(VICTIM))
        return false;
    for (uint32_t r = 0; r < REGION_COUNT; r++)
        if (writer_of(own, r, PARTIES, 1) < VICTIM)
            expect_round(r, own, own);
    return true;
}

/* Victims run, and are killed one after the other while the survivors go on. */
static bool kill_at_random(uint64_t *round, uint64_t *kills)
{
    const uint64_t from = *round + 1000; /* survivors' rounds are others */
    bool good = true;

    for (unsigned i = VICTIM; i < PARTIES && good; i++) {
        begin_victim(i, from);
        good = start_child(i) && EXPECT(region_post(&children[i], REGION_RUN, from, 0));
    }
    good = good && survive(round);
    for (unsigned i = VICTIM; i < PARTIES; i++) {
        pause_us(random_next(&state) % MOMENT_MAX_US);
        child_kill(&children[i]);
        *kills += 1;
        good = good && had_no_problem(i) && survive(round);
    }
    good = good && wait_for_openings(1 + VICTIM) && sync_all(VICTIM);
    for (unsigned i = VICTIM; i < PARTIES; i++) {
        expect_of_victim(i, from);
        if (atomic_load(&shared->parties[i].started) > *round)
            *round = atomic_load(&shared->parties[i].started);
    }
    return good && check_all(VICTIM);
}

/* A victim is killed at a step of a round; nth 0: it lives, and *steps is how many there are. */
static bool kill_at_step(uint64_t *round, uint64_t nth, uint64_t *steps)
{
    const uint64_t from = *round + 1;
    region_answer answer = {0};
    bool good = true;

    begin_victim(VICTIM, from);
    *round += 2;
    good = start_child(VICTIM) && region_do(&children[VICTIM], REGION_ARM, nth, 0).status == GVM_OK;
    if (good)
        answer = region_do(&children[VICTIM], REGION_RUN, from, 2);
    if (nth == 0)
        *steps = answer.value;
    good = good && EXPECT(answer.status == (nth == 0 ? GVM_OK : GVM_E_SYSTEM)) &&
           had_no_problem(VICTIM);
    if (nth == 0)
        good = EXPECT(child_end(&children[VICTIM]) == 0) && good;
    else
        child_kill(&children[VICTIM]);
    good = good && wait_for_openings(1 + VICTIM) && survive(round);
    expect_of_victim(VICTIM, from);
    return good && check_all(VICTIM);
}

static bool kill_at_steps(uint64_t *round, uint64_t wanted, uint64_t *kills)
{
    uint64_t steps = 0;
    bool good = kill_at_step(round, 0, &steps) && EXPECT(steps > 20);
    const uint64_t stride = wanted < steps ? steps / wanted + 1 : 1;

    for (uint64_t nth = 1 + random_next(&state) % stride; nth <= steps && good;
         nth += stride, *kills += 1) {
        good = kill_at_step(round, nth, &steps);
        if (!good)
            printf("# killed at step %llu of %llu\n", (unsigned long long)nth,
                   (unsigned long long)steps);
    }
    return good;
}

/* ---- begin and end */

static bool make_board(void)
{
    board_fd = memfd_create("board", MFD_CLOEXEC);
    if (board_fd < 0 || ftruncate(board_fd, sizeof *shared) != 0)
        return false;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, board_fd, 0);
    return shared != MAP_FAILED;
}

static bool begin(void)
{
    gvm_keeper_options options = gvm_keeper_options_init();
    gvm_object_options object_options = gvm_object_options_init();
    const int32_t first = 0;
    int fd;

    if (!make_board() || !fixture_folder_make(&folder))
        return false;
    snprintf(shared->socket, sizeof shared->socket, "%s", folder.socket);
    options.path = folder.socket;
    options.devices = &first;
    options.device_count = 1;
    options.device_budget_bytes = 8 * MIB;
    options.host_budget_bytes = 64 * MIB;
    object_options.chunk_bytes = 2 * MIB;
    return EXPECT_GVM_OK(gvm_keeper_start(&options, &keeper)) &&
           EXPECT_GVM_OK(gvm_keeper_open_socket(keeper, &fd)) &&
           EXPECT_GVM_OK(gvm_client_adopt(fd, &client)) &&
           EXPECT_GVM_OK(gvm_region_object_create(client, REGIONS_NAME, REGION_COUNT, REGION_BYTES,
                                                  NULL, &object_options, &object));
}

/* What a killed process had is free again; nothing of it is held. */
static bool end(void)
{
    gvm_object_info info = {.struct_size = sizeof info};
    bool good = true;

    for (unsigned i = 0; i < VICTIM; i++)
        good = EXPECT(child_end(&children[i]) == 0) && good;
    good = wait_for_openings(1) && good;
    good = EXPECT_GVM_OK(gvm_object_get_info(object, &info)) && EXPECT(info.read_leases == 0) &&
           EXPECT(info.fenced == 0) && good;
    gvm_object_close(object);
    gvm_client_close(client);
    gvm_keeper_stop(keeper);
    fixture_folder_end(&folder);
    return memory_is_back() && good;
}

int main(int argc, char **argv)
{
    const uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : ROUNDS;
    const uint64_t wanted = argc > 2 ? strtoull(argv[2], NULL, 0) : KILLS;
    uint64_t round = 0, kills = 0, at_steps;
    bool good = true;

    region_child_main(argc, argv);
    state = random_seed(argc > 3 ? argv[3] : NULL);
    printf("# seed %llu\n", (unsigned long long)state);
    fixture_machine_default("devices=2,memory=64MiB,host=128MiB,sms=2");
    setenv("GVMEM_CACHE", "0", 0);
    fixture_raise_fd_limit();
    memory_watch();
    memory_note();
    if (!begin())
        return 2;
    for (unsigned i = 0; i < PARTIES && good; i++)
        good = start_child(i);
    tap_result(good && run_rounds(&round, rounds),
               "processes_find_what_others_have_written (%llu rounds)", (unsigned long long)rounds);
    good = good && write_the_same(&round);
    tap_result(good, "second_writer_of_a_region_is_told");
    for (unsigned i = VICTIM; i < PARTIES; i++)
        good = EXPECT(child_end(&children[i]) == 0) && good;
    good = wait_for_openings(1 + VICTIM) && good && kill_at_steps(&round, wanted / 2, &kills);
    tap_result(good, "process_killed_at_a_step_leaves_others_whole (%llu times)",
               (unsigned long long)kills);
    at_steps = kills;
    while (good && kills < wanted)
        good = kill_at_random(&round, &kills);
    tap_result(good, "process_killed_at_random_leaves_others_whole (%llu times)",
               (unsigned long long)(kills - at_steps));
    tap_result(end() && good, "nothing_is_left_of_those_killed");
    memory_watch_end();
    return tap_finish();
}
