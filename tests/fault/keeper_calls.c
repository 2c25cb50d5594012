/* Fails the driver calls of a keeper, and of its clients, in turn.
 *
 *     keeper_calls [CALLS]     how many calls of one name are failed, spread over all of them; 0: all
 *
 * Goal: whatever fails, each call of the interface succeeds or answers a status that it lists;
 * nobody dies or hangs; what was written with success is intact for another client; all bytes are
 * accounted for, and the keeper goes on to do all it should once nothing fails any more; in the end
 * nothing is held, in neither process: memory, addresses, fds, objects.
 *
 * Method: two processes, of which one is the keeper and one a client that uses the whole interface.
 * The driver fails in this one. Threads make calls in no fixed order, so calls are counted by name;
 * what a wait asks again and again is counted, too, so no two runs have the same calls. The other
 * process has a witness, whose data and demands show what the keeper is worth.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/registry.h"
#include "driver/driver.h"
#include "memory/device.h"
#include "tests/fault/keeper_fixture.h"
#include "tests/lib/child.h"
#include "tests/lib/fixture.h"
#include "tests/lib/tap.h"

#define CALLS_OF_A_NAME 3u
#define SETTLE_MS 3000
#define ROLE "--other"
#define HANG_S 60 /* an attempt takes some 50 ms */

static char path[64];
static char doing[160] = "the start"; /* what to say of a hang */

/* ---- what can be counted */

typedef struct counts {
    gvmi_check_holdings held;
    uint64_t objects[GVMI_KIND_COUNT];
    int fds;
    uint64_t free_bytes;
} counts;

static counts count_all(void)
{
    counts c = {.held = gvmi_check_held(), .fds = count_fds(), .free_bytes = fixture_free_bytes()};

    for (int kind = 0; kind < GVMI_KIND_COUNT; kind++)
        c.objects[kind] = gvmi_registry_count((gvmi_kind)kind);
    return c;
}

static bool same(const counts *before, const counts *after, const char *whose)
{
    bool good = true;

#define NO_MORE(member, what) \
    if (after->member > before->member) { \
        printf("#   %s, which is over, has left %lld %s\n", whose, \
               (long long)(after->member - before->member), what); \
        good = false; \
    }
    NO_MORE(held.reservations, "reservations")
    NO_MORE(held.handles, "handles")
    NO_MORE(held.mappings, "mappings")
    NO_MORE(held.allocations, "allocations")
    NO_MORE(held.host_allocations, "host allocations")
    NO_MORE(held.streams, "streams")
    NO_MORE(held.events, "events")
    NO_MORE(held.contexts, "contexts")
    NO_MORE(held.modules, "modules")
    NO_MORE(fds, "fds")
    for (int kind = 0; kind < GVMI_KIND_COUNT; kind++)
        NO_MORE(objects[kind], "objects of a kind")
#undef NO_MORE
    if (after->free_bytes < before->free_bytes) {
        printf("#   %llu bytes of the device have not come back\n",
               (unsigned long long)(before->free_bytes - after->free_bytes));
        good = false;
    }
    return good;
}

static bool is_back(const counts *before, const counts *after)
{
    return after->fds <= before->fds && after->free_bytes >= before->free_bytes &&
           after->held.handles <= before->held.handles;
}

/* Drivers let go of the last of it a moment later. */
static bool all_is_back(const counts *before, const char *whose)
{
    counts after = count_all();

    for (int ms = 0; ms < SETTLE_MS && !is_back(before, &after); ms++) {
        pause_ms(1);
        after = count_all();
    }
    return same(before, &after, whose);
}

/* In the keeper's process: it has the driver's memory for its frames, and not a piece more. */
static bool has_frames(uint64_t handles_before, uint64_t frames)
{
    uint64_t handles = 0;
    gvm_device *device;

    for (int ms = 0; ms < SETTLE_MS; ms++) {
        if (gvm_device_open(0, &device) == GVM_OK) { /* once more: it is the keeper's */
            if (gvm_device_trim(device, 0) != GVM_OK)
                return false;
            gvm_device_close(device);
        }
        handles = gvmi_check_held().handles - handles_before;
        if (handles == frames)
            return true;
        pause_ms(1);
    }
    printf("#   the keeper has records of %llu pieces of memory and has %llu\n",
           (unsigned long long)frames, (unsigned long long)handles);
    return false;
}

/* ---- the other process */

typedef enum verb {
    DO_COUNT,   /* what is there; the beginning of an attempt */
    DO_SERVE,   /* a keeper */
    DO_WITNESS, /* begins */
    DO_RUN_CLIENT,
    DO_CHECK, /* the witness's; result */
    DO_END,   /* of witness and keeper */
    DO_LOOK,  /* is nothing left? The end of an attempt */
    DO_BREAK,
    DO_BREAK_END,
} verb;

typedef struct command {
    verb verb;
    char path[sizeof path];
    client_result result;
    uint64_t accepted;
} command;

typedef struct answer {
    bool good;
    client_result result;
    uint64_t frames;
} answer;

static child helper;

static void on_alarm(int number)
{
    (void)number;
    (void)!write(STDOUT_FILENO, "Bail out! hang: ", 16);
    (void)!write(STDOUT_FILENO, doing, strlen(doing));
    (void)!write(STDOUT_FILENO, "\n", 1);
    _exit(1);
}

static bool lost; /* this process's driver takes nothing back any more */

static answer obey(const command *c)
{
    static counts before;
    static gvm_keeper *server;
    static fixture_witness witness;
    static uint64_t handles;
    answer a = {.good = true};

    switch (c->verb) {
    case DO_COUNT: before = count_all(); break;
    case DO_SERVE:
        handles = gvmi_check_held().handles;
        a.good = fixture_serve(c->path, &server) == GVM_OK;
        break;
    case DO_WITNESS: a.good = witness_begin(&witness, c->path); break;
    case DO_RUN_CLIENT:
        a.result = client_run(c->path, c->accepted);
        a.good = a.result.good;
        break;
    case DO_CHECK:
        a.good = witness_check(&witness, &c->result, &a.frames);
        if (a.good && server != NULL) /* the witness has its object mapped here */
            a.good = has_frames(handles, a.frames + STILL_CHUNKS);
        break;
    case DO_END:
        witness_end(&witness);
        gvm_keeper_stop(server);
        server = NULL;
        break;
    case DO_LOOK: a.good = all_is_back(&before, "the process that does not fail"); break;
    case DO_BREAK: a.good = fixture_break(c->path); break;
    case DO_BREAK_END:
        fixture_break_end();
        lost = true;
        break;
    }
    return a;
}

static int help(void)
{
    static command c;

    unsetenv("GVMEM_FAULT"); /* nothing fails here */
    signal(SIGALRM, on_alarm);
    if (gvmi_driver_start() != GVM_OK || !fixture_enter())
        return 1;
    while (child_next(&c, sizeof c, NULL)) {
        answer a;

        snprintf(doing, sizeof doing, "the other process, command %d", (int)c.verb);
        alarm(HANG_S);
        a = obey(&c);
        alarm(0);
        if (!child_answer(&a, sizeof a, -1))
            return 1;
    }
    if (lost)
        _exit(0);
    fixture_leave();
    return gvmi_check_violations() == 0 ? 0 : 1;
}

static answer order(verb what, client_result result, uint64_t accepted)
{
    static command c;
    answer a = {.good = false};

    c = (command){.verb = what, .result = result, .accepted = accepted};
    memcpy(c.path, path, sizeof path);
    if (!child_post(&helper, &c, sizeof c, -1) || child_wait(&helper, &a, sizeof a, NULL) != NULL)
        tap_bail_out("the other process is dead: %s", doing);
    return a;
}

static bool have(verb what)
{
    return order(what, (client_result){0}, 0).good;
}

/* ---- how many calls of each name there are */

static _Atomic uint64_t calls_seen[GVMI_CALL_COUNT];
static uint64_t armed_calls[GVMI_CALL_COUNT]; /* from the latest arming to disarming */
static const gvmi_driver *below;

#define SEE(name, symbol, since, need, params, args) \
    static CUresult see_##name params \
    { \
        atomic_fetch_add_explicit(&calls_seen[gvmi_call_##name], 1, memory_order_relaxed); \
        return below->name args; \
    }
GVMI_CUDA_CALLS(SEE)
#undef SEE

/* Puts a table of one's own on top of the stack, before any thread looks at it. */
static void watch_calls(void)
{
    static const gvmi_driver table = {
#define MEMBER(name, symbol, since, need, params, args) .name = see_##name,
        GVMI_CUDA_CALLS(MEMBER)
#undef MEMBER
    };

    below = gvmi_cu;
    gvmi_cu = &table;
}

/* ---- attempts */

typedef struct way {
    const char *name;
    CUresult result;
    uint64_t accepted; /* statuses that any call may answer: drivers do not fail every call so */
    bool for_ever;
} way;

static const way ways[] = {
    {"as they usually fail", CUDA_SUCCESS, 0, false},
    {"out of memory", CUDA_ERROR_OUT_OF_MEMORY, 1ull << GVM_E_NOSPACE, false},
    {"context broken", CUDA_ERROR_ILLEGAL_ADDRESS, 0, false},
    {"as they usually fail, for ever", CUDA_SUCCESS, 0, true},
    {"context broken, for ever", CUDA_ERROR_ILLEGAL_ADDRESS, 0, true},
};

typedef struct fault {
    gvmi_call call;
    uint64_t nth; /* 0: none, only counts */
    const way *way;
} fault;

static struct {
    uint64_t attempts, struck;
} sum;

static bool struck; /* the latest fault has */

static void arm(const fault *f)
{
    for (int call = 0; call < GVMI_CALL_COUNT; call++)
        atomic_store(&calls_seen[call], 0);
    gvmi_fault_arm(f->call, f->nth, f->way->for_ever, f->way->result);
}

static void disarm(const fault *f)
{
    struck = gvmi_fault_struck();
    gvmi_fault_arm(GVMI_CALL_COUNT, 0, false, CUDA_SUCCESS);
    for (int call = 0; call < GVMI_CALL_COUNT; call++)
        armed_calls[call] = atomic_load(&calls_seen[call]);
    sum.attempts += f->nth > 0;
    sum.struck += struck;
}

#define STARTING \
    (1ull << GVM_OK | 1ull << GVM_E_NOSPACE | 1ull << GVM_E_NODEVICE | 1ull << GVM_E_NOTSUP | \
     1ull << GVM_E_NOMEM | 1ull << GVM_E_LOST | 1ull << GVM_E_DRIVER | 1ull << GVM_E_SYSTEM)

/* A keeper that starts here while calls fail, and is then as good as any, or is not there. */
static bool start_keeper(const fault *f)
{
    gvm_keeper *server = NULL;
    gvm_status status;
    client_result result;
    bool good;

    arm(f);
    status = fixture_serve(path, &server);
    disarm(f);
    if ((STARTING >> status & 1) == 0 || (status != GVM_OK && server != NULL)) {
        printf("#   starting answered %s\n", gvm_status_name(status));
        return false;
    }
    if (status != GVM_OK)
        return true;
    good = have(DO_WITNESS);
    result = order(DO_RUN_CLIENT, (client_result){0}, 0).result;
    good = good && result.good && result.published && order(DO_CHECK, result, 0).good;
    good = have(DO_END) && good;
    gvm_keeper_stop(server);
    return good;
}

/* A keeper here fails its client there. */
static bool serve(const fault *f)
{
    const uint64_t handles = gvmi_check_held().handles;
    gvm_keeper *server = NULL;
    answer played, checked;
    bool good = fixture_serve(path, &server) == GVM_OK && have(DO_WITNESS);

    if (good) {
        arm(f);
        played = order(DO_RUN_CLIENT, (client_result){0}, f->way->accepted);
        disarm(f);
        checked = order(DO_CHECK, played.result, 0);
        good = played.good && checked.good && has_frames(handles, checked.frames);
    }
    good = have(DO_END) && good;
    gvm_keeper_stop(server);
    return good;
}

/* A client here fails. */
static bool run_client(const fault *f)
{
    bool good = have(DO_SERVE) && have(DO_WITNESS);

    if (good) {
        client_result result;

        arm(f);
        result = client_run(path, f->way->accepted);
        disarm(f);
        good = order(DO_CHECK, result, 0).good && result.good;
    }
    return have(DO_END) && good;
}

typedef struct role {
    const char *name;
    bool (*run)(const fault *f);
    uint64_t calls[GVMI_CALL_COUNT]; /* of an undisturbed run */
} role;

static role roles[] = {
    {.name = "a keeper that starts", .run = start_keeper},
    {.name = "a keeper", .run = serve},
    {.name = "a client", .run = run_client},
};

static bool attempt(const role *r, const fault *f)
{
    counts before;
    bool good;

    snprintf(doing, sizeof doing, "%s, %s call %llu of %s", r->name,
             f->call < GVMI_CALL_COUNT ? gvmi_call_names[f->call] : "any",
             (unsigned long long)f->nth, f->way->name);
    alarm(HANG_S);
    good = have(DO_COUNT);
    before = count_all();
    good = r->run(f) && good;
    good = have(DO_LOOK) && good;
    good = all_is_back(&before, "the process that fails") && good;
    alarm(0);
    return good;
}

static bool count_calls(role *r)
{
    const fault none = {.call = GVMI_CALL_COUNT, .way = &ways[0]};

    (void)attempt(r, &none); /* lets drivers grow pools of their own */
    if (!attempt(r, &none)) {
        tap_bail_out("%s fails undisturbed", r->name);
    }
    memcpy(r->calls, armed_calls, sizeof armed_calls);
    return true;
}

/* The first, the last, and so many between, evenly; most 0: all. */
static bool test_call(role *r, gvmi_call call, const way *w, uint64_t most)
{
    const uint64_t calls = r->calls[call];
    const uint64_t tries = most == 0 || calls < most ? calls : most;

    for (uint64_t i = 0; i < tries; i++) {
        const fault f = {call, tries < 2 ? 1 : 1 + i * (calls - 1) / (tries - 1), w};

        if (!attempt(r, &f)) {
            printf("#   ... when %s failed, call %llu of %llu\n", gvmi_call_names[call],
                   (unsigned long long)f.nth, (unsigned long long)calls);
            return false;
        }
        if (f.nth == 1 && !struck) { /* it gives something back: those are never failed */
            r->calls[call] = 0;
            return true;
        }
    }
    return true;
}

static bool test_role(role *r, const way *w, uint64_t most)
{
    bool good = true;

    for (gvmi_call call = 0; call < GVMI_CALL_COUNT; call++)
        good = test_call(r, call, w, most) && good;
    return good;
}

/* ---- a context that breaks behind a release */

static bool test_broken(void)
{
    gvm_keeper *server = NULL;
    fixture_witness witness;
    bool good;

    snprintf(doing, sizeof doing, "a context that breaks");
    alarm(HANG_S);
    if (fixture_serve(path, &server) != GVM_OK || !witness_begin(&witness, path))
        return false;
    good = have(DO_BREAK);
    if (!good)
        printf("#   the context did not break\n");
    if (good && witness_may_write(&witness)) {
        printf("#   a lease was released though its stream never came to it\n");
        good = false;
    }
    good = have(DO_BREAK_END) && good;
    if (good && !witness_may_write(&witness)) {
        printf("#   closing the object has not released the lease\n");
        good = false;
    }
    witness_end(&witness);
    gvm_keeper_stop(server);
    alarm(0);
    return good;
}

/* ---- all */

static bool test_all(uint64_t most)
{
    const size_t role_count = sizeof roles / sizeof roles[0], way_count = sizeof ways / sizeof ways[0];

    tap_plan((unsigned)(role_count * way_count + 2));
    for (size_t i = 0; i < role_count; i++) {
        if (!count_calls(&roles[i]))
            return false;
        for (size_t j = 0; j < way_count; j++)
            tap_result(test_role(&roles[i], &ways[j], most), "%s: %s", roles[i].name, ways[j].name);
    }
    tap_result(gvmi_check_violations() == 0 && child_end(&helper) == 0, "no contract was violated");
    setenv("GVMEM_CHECK", "0", 1);
    helper = child_must_start(ROLE);
    tap_result(test_broken(), "a lease behind a broken context");
    (void)child_end(&helper); /* its context is broken: it may well complain */
    printf("# %llu attempts, %llu failures injected\n", (unsigned long long)sum.attempts,
           (unsigned long long)sum.struck);
    return sum.struck > sum.attempts / 2;
}

int main(int argc, char **argv)
{
    bool good;

    if (child_is(argc, argv, ROLE))
        return help();
    snprintf(path, sizeof path, "/tmp/gvmem-keeper-calls-%d.sock", (int)getpid());
    fixture_machine_default("devices=1,memory=64MiB,sms=2");
    setenv("GVMEM_CHECK", "1", 1);
    signal(SIGALRM, on_alarm);
    signal(SIGPIPE, SIG_IGN);
    helper = child_must_start(ROLE);                    /* before anything is counted here */
    setenv("GVMEM_FAULT", "*:18446744073709551615", 1); /* stacked; never reached until armed */
    if (gvmi_driver_start() != GVM_OK || !fixture_enter())
        tap_bail_out("no driver");
    watch_calls();
    good = test_all(argc > 1 ? strtoull(argv[1], NULL, 10) : CALLS_OF_A_NAME);
    fixture_leave();
    return good ? tap_finish() : 1;
}
