/* Random operations on buffers, vectors, pieces and shares, checked against a model of them.
 *
 *     buffer_model [COUNT [SEED]]
 *
 * Goal: whatever the order of calls, valid or not, every call answers what its contract says, every
 * buffer is what its operations made it, no driver call breaks its contract, and at the end nothing
 * is held. Method: see model.h. A run is a child process, so that crashes and failed assertions
 * count as failures; a failing list of operations is cut down by running parts of it, and printed.
 *
 * A second run does the same on several threads: each with a model of its own, and all with one
 * more under a lock of the test.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/registry.h"
#include "driver/driver.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/prop/model.h"

#ifdef __SANITIZE_THREAD__ /* 3 minutes for as many as below */
#define COUNT_DEFAULT 4000
#else
#define COUNT_DEFAULT 10000
#endif
#define COUNT_MAX 100000000
#define THREADS 4
#define COMPARE_EVERY 500  /* operations between comparisons of everything */
#define REPLAYS_MAX 400    /* for cutting a failing list down */
#define RUN_LIMIT_S 600    /* of one child: a deadlock is a failure too */
#define STEPS_A_SECOND 100 /* at least, beside other work; alone it is 1500 */

/* The machine, unless the caller chose one: small, so that memory runs out, and with nobody else
 * on it. */
static void set_up_environment(void)
{
    fixture_machine_default("devices=2,memory=96MiB,host=80MiB,sms=2");
    setenv("GVMEM_CACHE", "16MiB", 0);
    setenv("GVMEM_CHECK", "1", 1);
    unsetenv("GVMEM_FAULT");
}

/* ---- in the child */

typedef struct report {
    uint64_t steps; /* done when it ended */
    bool failed, timed_out;
    char problem[MODEL_PROBLEM_BYTES];
} report;

static gvm_device *devices[MODEL_DEVICES_MAX];
static int device_count;

static const char *open_devices(void)
{
    static char problem[400];
    gvm_status status = gvm_device_count(&device_count);

    if (device_count > MODEL_DEVICES_MAX)
        device_count = MODEL_DEVICES_MAX;
    for (int i = 0; i < device_count && status == GVM_OK; i++)
        status = gvm_device_open(i, &devices[i]);
    if (status == GVM_OK)
        return NULL;
    gvm_error error;
    gvm_error_last(&error);
    snprintf(problem, sizeof problem, "no devices: %s", error.text);
    return problem;
}

/* After everything was destroyed: does the library still hold or know anything? */
static const char *close_devices(void)
{
    static char problem[200];
    gvmi_check_holdings held;

    for (int i = 0; i < device_count; i++)
        gvm_device_close(devices[i]);
    for (int kind = 0; kind < GVMI_KIND_COUNT; kind++)
        if (gvmi_registry_count((gvmi_kind)kind) != 0) {
            snprintf(problem, sizeof problem, "%d objects of kind %d are left",
                     (int)gvmi_registry_count((gvmi_kind)kind), kind);
            return problem;
        }
    held = gvmi_check_held();
    if (memcmp(&held, &(gvmi_check_holdings){0}, sizeof held) == 0)
        return NULL;
    snprintf(problem, sizeof problem,
             "left at the driver: %d reservations, %d handles, %d mappings, %d allocations, %d streams, %d modules",
             (int)held.reservations, (int)held.handles, (int)held.mappings, (int)held.allocations,
             (int)held.streams, (int)held.modules);
    return problem;
}

static const char *run_list(const model_op *ops, uint64_t count, volatile uint64_t *steps)
{
    model *m = model_create(devices, device_count, true);
    const char *problem = NULL;

    for (uint64_t i = 0; i < count && problem == NULL; i++) {
        *steps = i;
        problem = model_step(m, &ops[i]);
        if (problem == NULL && (i + 1 == count || i % COMPARE_EVERY == COMPARE_EVERY - 1))
            problem = model_compare_all(m);
    }
    if (problem == NULL)
        model_end(m);
    return problem;
}

typedef struct list {
    const model_op *ops;
    uint64_t count;
} list;

static const char *run_single(const void *arg, report *out)
{
    const list *all = arg;
    const char *problem = open_devices();

    if (problem == NULL)
        problem = run_list(all->ops, all->count, &out->steps);
    return problem != NULL ? problem : close_devices();
}

/* ---- several threads in the child */

static model *common;
static pthread_mutex_t common_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct worker {
    pthread_t thread;
    uint64_t seed, count;
    char problem[MODEL_PROBLEM_BYTES];
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    model *own = model_create(devices, device_count, false);
    const char *problem = NULL;

    for (uint64_t i = 0; i < w->count && problem == NULL; i++) {
        model_op op = model_random(&w->seed);

        if (op.flavour % 4 == 0) {
            pthread_mutex_lock(&common_lock);
            if ((problem = model_step(common, &op)) != NULL)
                snprintf(w->problem, sizeof w->problem, "in common: %s", problem);
            pthread_mutex_unlock(&common_lock);
        } else if ((problem = model_step(own, &op)) != NULL ||
                   (i + 1 == w->count && (problem = model_compare_all(own)) != NULL)) {
            snprintf(w->problem, sizeof w->problem, "%s", problem);
        }
    }
    if (problem == NULL)
        model_end(own);
    return NULL;
}

typedef struct crowd {
    uint64_t seed, count;
} crowd;

static const char *run_crowd(const void *arg, report *out)
{
    static worker workers[THREADS];
    const crowd *all = arg;
    const char *problem = open_devices();

    if (problem != NULL)
        return problem;
    common = model_create(devices, device_count, false);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i].seed = all->seed + i * 1000003;
        workers[i].count = all->count / THREADS;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return "cannot start a thread";
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].problem[0] != '\0')
            problem = workers[i].problem;
    }
    out->steps = all->count;
    if (problem == NULL)
        problem = model_compare_all(common);
    if (problem != NULL)
        return problem;
    model_end(common);
    return close_devices();
}

/* ---- in the parent */

/* Runs something of that many steps in a child; false if it failed or died. */
static bool run_in_child(const char *(*run)(const void *arg, report *out), const void *arg,
                         uint64_t steps, report *out)
{
    int ends[2], status;
    pid_t pid;

    memset(out, 0, sizeof *out);
    fflush(stdout);
    if (pipe(ends) != 0 || (pid = fork()) < 0) {
        perror("buffer_model");
        exit(2);
    }
    if (pid == 0) {
        const char *problem;

        close(ends[0]);
        alarm((unsigned)(RUN_LIMIT_S + steps / STEPS_A_SECOND));
        problem = run(arg, out);
        out->failed = problem != NULL;
        snprintf(out->problem, sizeof out->problem, "%s", problem != NULL ? problem : "");
        _exit(write(ends[1], out, sizeof *out) == (ssize_t)sizeof *out ? 0 : 2);
    }
    close(ends[1]);
    if (read(ends[0], out, sizeof *out) != (ssize_t)sizeof *out)
        out->failed = true;
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (out->problem[0] == '\0' && (status != 0 || out->failed)) {
        out->failed = true;
        out->steps = UINT64_MAX; /* who knows */
        out->timed_out = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        snprintf(out->problem, sizeof out->problem, "died: %s",
                 WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit status");
    }
    return !out->failed;
}

static bool list_fails(const model_op *ops, uint64_t count, report *out)
{
    list all = {ops, count};

    return !run_in_child(run_single, &all, count, out);
}

/* Cuts a failing list down in place: first behind the failing operation, then by leaving parts
 * out, half of it, a quarter, and so on. Returns the new count. */
static uint64_t shrink(model_op *ops, uint64_t count, report *last)
{
    model_op *tried = malloc(count * sizeof *tried);
    unsigned replays = 0;
    report out;

    if (last->steps < count)
        count = last->steps + 1;
    for (uint64_t part = (count + 1) / 2; tried != NULL && part > 0 && replays < REPLAYS_MAX;
         part /= 2) {
        for (uint64_t at = 0; at < count && replays < REPLAYS_MAX;) {
            uint64_t gone = part < count - at ? part : count - at;

            memcpy(tried, ops, at * sizeof *ops);
            memcpy(tried + at, ops + at + gone, (count - at - gone) * sizeof *ops);
            replays++;
            if (count > gone && list_fails(tried, count - gone, &out)) {
                count -= gone;
                if (out.steps < count)
                    count = out.steps + 1;
                memcpy(ops, tried, count * sizeof *ops);
                *last = out;
            } else {
                at += gone;
            }
        }
    }
    free(tried);
    return count;
}

static void test_single(uint64_t count, uint64_t seed)
{
    model_op *ops = malloc(count * sizeof *ops);
    uint64_t state = seed, few;
    char line[96];
    report out;

    if (ops == NULL)
        tap_bail_out("no memory for %llu operations", (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++)
        ops[i] = model_random(&state);
    if (!list_fails(ops, count, &out)) {
        tap_result(true, "model of %llu random operations, seed %llu", (unsigned long long)count,
                   (unsigned long long)seed);
        free(ops);
        return;
    }
    tap_result(false, "model of %llu random operations, seed %llu", (unsigned long long)count,
               (unsigned long long)seed);
    printf("# after %lld: %s\n", (long long)out.steps, out.problem);
    if (out.timed_out) { /* each replay would take as long */
        free(ops);
        return;
    }
    few = shrink(ops, count, &out);
    printf("# cut down to %llu operations, then: %s\n", (unsigned long long)few, out.problem);
    for (uint64_t i = 0; i < few && i < 200; i++)
        printf("#   %s\n", model_describe(&ops[i], line));
    free(ops);
}

static void test_crowd(uint64_t count, uint64_t seed)
{
    crowd all = {seed, count};
    report out;

    if (!tap_result(run_in_child(run_crowd, &all, count, &out),
                    "model of %llu random operations on %d threads, seed %llu",
                    (unsigned long long)count, THREADS, (unsigned long long)seed))
        printf("# %s\n", out.problem);
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : COUNT_DEFAULT;
    uint64_t seed;

    seed = random_seed(argc > 2 ? argv[2] : NULL);
    if (argc > 3 || count == 0 || count > COUNT_MAX) {
        fprintf(stderr, "usage: buffer_model [COUNT [SEED]]\n");
        return 2;
    }
    set_up_environment();
    tap_plan(2);
    test_single(count, seed);
    test_crowd(count / 2 > THREADS ? count / 2 : THREADS, seed);
    return tap_finish();
}
