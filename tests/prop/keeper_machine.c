/* Random simulations around the keeper's machine, checked against a model.
 *
 *     keeper_machine [--steps N] [--seed SEED] [--only NUMBER]
 *
 * Goal: whatever processes, movers and time do, and in whatever order, a lease shows exactly what
 * was written last, no two leases conflict, no memory gets to whom it must not, budgets and quotas
 * hold, names behave as the contract says, everybody who waits is answered, and at the end nothing
 * is left. Method: see keeper_simulation.h. Steps are divided into simulations of different shapes, each with
 * a seed of its own made from SEED and its number; --only runs that one alone.
 *
 * A simulation's end: nothing new is begun, and everything that waits must come to its end, first with
 * the processes that were left hanging still hanging, then with them gone; then everybody goes, and
 * an administrator drops what is left. One in ten is given up in the middle of everything.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/prop/keeper_simulation.h"

#define STEPS_DEFAULT 100000
#define STEPS_OF_SIMULATION 5000
#define STEPS_TO_SETTLE 200000 /* more: something goes on for ever */
#define ALIVE_MAX 9            /* processes at a time */
#define ADMIN_UID 500
#define MS 1000000ll
#define RUN_LIMIT_S 100 /* of one simulation */

static simulation *current;

/* ---- the shape of a simulation */

static void trace(void *context, uint32_t device, uint64_t id, uint64_t bytes, uint32_t count,
                  uint32_t hint)
{
    simulation *w = context;

    (void)bytes;
    (void)hint;
    w->acquires_traced += count;
    if (device >= w->config.device_count || id == 0)
        sim_wrong(w, "an acquire of object %llu on device %u is traced", (unsigned long long)id,
                  device);
}

/* A lease word that is not sampled any more, as its opening has ended, may count on; that of a dishonest process
 * counts anything. */
void sim_check_traced(simulation *w, uint64_t acquires)
{
    if (acquires != w->acquires_traced || (!w->abuse && acquires > w->acquires_counted))
        sim_wrong(w, "at the end %llu acquires are shown, %llu were traced, %llu counted",
                  (unsigned long long)acquires, (unsigned long long)w->acquires_traced,
                  (unsigned long long)w->acquires_counted);
}

static void shape_devices(simulation *w)
{
    gvmi_machine_config *c = &w->config;
    uint64_t lending;

    c->device_count = 1 + (uint32_t)sim_random(w, DEVICES_MAX);
    lending = sim_random(
        w, 6); /* 0: none lends; 1: some, to some; else all, to all; 4, 5: the first has little */
    for (uint32_t i = 0; i < c->device_count; i++) {
        c->devices[i].ordinal = (int32_t)i;
        c->devices[i].uuid[0] = (uint8_t)(i + 1);
        snprintf(c->devices[i].name, sizeof c->devices[i].name, "device %u", i);
        c->devices[i].budget_bytes = (w->wide ? 20 + sim_random(w, 100) : 1 + sim_random(w, 10)) *
                                     2 * MIB;
        if (lending >= 4)
            c->devices[i].budget_bytes = (i == 0 ? 1 + sim_random(w, 3) : 8 + sim_random(w, 16)) *
                                         2 * MIB;
        w->budget_bytes[i] = w->least_budget_bytes[i] = c->devices[i].budget_bytes;
        if (lending > 0)
            c->devices[i].lenders = (lending == 1 ? (uint32_t)sim_random(w, 1u << c->device_count)
                                                  : (1u << c->device_count) - 1) &
                                    ~(1u << i);
    }
    c->host_budget_bytes = (w->wide ? 200 + sim_random(w, 400) : sim_random(w, 60)) * 2 * MIB;
    if (sim_chance(w, 25))
        c->host_budget_bytes = sim_random(w, 10) * 2 * MIB;
    c->host_ahead_bytes = sim_chance(w, 40) ? sim_random(w, 6) * 2 * MIB : 0;
    c->device_keep_bytes = sim_random(w, 5) * 2 * MIB;
}

static void shape(simulation *w)
{
    gvmi_machine_config *c = &w->config;

    w->wide = sim_chance(w, 12);
    shape_devices(w);
    c->quota_bytes = sim_chance(w, 75) ? UINT64_MAX : (2 + sim_random(w, 24)) * 2 * MIB;
    c->clients_max = sim_chance(w, 92) ? 64 : 2 + (uint32_t)sim_random(w, 6);
    c->objects_max = sim_chance(w, 92) ? 1000 : 2 + (uint32_t)sim_random(w, 6);
    c->revoke_limit_ms = 40 + (uint32_t)sim_random(w, 40);
    c->lend_after_ms = (uint32_t)sim_random(w, 3) * 50;
    c->lease_limit_ms = sim_chance(w, 20) ? 30 + (uint32_t)sim_random(w, 60) : 0;
    c->uid = ADMIN_UID;
    c->pid = 4242;
    c->trace = trace;
    c->trace_context = w;
    w->pace_ns = 10000 + (int64_t)sim_random(w, 20000);
    w->jobs_fail = sim_chance(w, 25);
    w->maps_fail = sim_chance(w, 20);
    w->abuse = sim_chance(w, 35);
    w->check_every = 4;
}

static gvmi_credentials somebody(simulation *w)
{
    static const gvmi_credentials who[] = {
        {.uid = 1001, .gid = 100},
        {.uid = 1001, .gid = 100},
        {.uid = 1002, .gid = 100},
        {.uid = 1003, .gid = 200, .group_count = 1, .groups = {100}},
        {.uid = 1003, .gid = 200},
        {.uid = 1004, .gid = 300},
        {.uid = ADMIN_UID, .gid = ADMIN_UID},
        {.uid = 0, .gid = 0},
    };
    gvmi_credentials chosen = who[sim_random(w, sizeof who / sizeof who[0])];

    chosen.pid = 1000 + (int32_t)w->process_count;
    return chosen;
}

/* ---- the life of processes */

static void birth(simulation *w)
{
    const gvmi_credentials who = somebody(w);
    const bool honest = !w->abuse || !sim_chance(w, 30);
    uint32_t alive = 0;
    process *p;

    for (uint32_t i = 0; i < w->process_count; i++)
        alive += !w->processes[i]->cut && !w->processes[i]->hung_up;
    if (alive >= ALIVE_MAX || w->process_count >= PROCESSES_MAX - 2)
        return;
    p = sim_connect(w, &who, honest);
    if (p == NULL)
        return;
    p->thread_count = honest ? 1 + (uint32_t)sim_random(w, THREADS_MAX) : 0;
    if (honest)
        client_hello(w, p);
}

/* Something befalls a process, or it ends. */
static void fate(simulation *w, process *p)
{
    const uint64_t ticket = sim_random(w, 100);

    if (p->gone) {
        return;
    } else if (p->stopped && ticket < 70) {
        p->stopped = false;
    } else if (ticket < 35) {
        p->stopped = true;
    } else if (ticket < 70 && p->honest && client_idle(p) && !p->cut && !p->hung_up && p->welcome) {
        client_bye(w, p);
    } else if (ticket < 85 && !p->hung_up) {
        sim_hang_up(w, p);
    } else if (p->hung_up || p->cut) {
        sim_gone(w, p);
    }
}

/* A process that was cut off goes on for a while (keeper_voided.c), or to the end. */
static bool may_exit(const process *p)
{
    return !p->exited && (p->gone || p->bye) && (p->disconnected || p->cut);
}

/* ---- the next step */

static bool process_step(simulation *w, process *p)
{
    const uint64_t ticket = sim_random(w, 10);

    if (p->exited)
        return false;
    if (ticket < 3) {
        if (p->out.first == NULL || p->cut || p->disconnected)
            return false;
        sim_deliver(w, p);
        return true;
    }
    if (ticket == 3) {
        if (!p->rung || p->disconnected || p->cut)
            return false;
        sim_ring(w, p);
        return true;
    }
    if (ticket == 4 && p->gone && !p->closed && (p->disconnected || p->cut) && sim_chance(w, 10)) {
        sim_closed(w, p);
        return true;
    }
    if (ticket == 4 && may_exit(p) && sim_chance(w, w->quiet ? 100 : 20)) {
        sim_exited(w, p);
        return true;
    }
    if (p->stopped)
        return false;
    if (!p->honest)
        return abuse_step(w, p);
    if (ticket < 7)
        return client_mapper_step(w, p);
    return p->thread_count > 0 && client_thread_step(w, p, (uint32_t)sim_random(w, p->thread_count));
}

static void pass_time(simulation *w)
{
    w->now_ns += (int64_t)sim_random(w, 2 * (uint64_t)w->pace_ns);
    if ((gvmi_machine_deadline(w->machine) <= w->now_ns && sim_chance(w, 50)) || sim_chance(w, 3))
        sim_tick(w);
}

static void random_step(simulation *w)
{
    const uint64_t ticket = sim_random(w, 1000);

    pass_time(w);
    if (ticket < 12) {
        birth(w);
        return;
    }
    if (ticket < 20 && w->process_count > 0) {
        process *p = w->processes[sim_random(w, w->process_count)];

        if (!p->exited)
            fate(w, p);
        return;
    }
    if (ticket < 22) {
        const uint32_t device = (uint32_t)sim_random(w, w->config.device_count);
        const uint64_t most = w->config.devices[device].budget_bytes;

        sim_budget(w, device, sim_chance(w, 50) ? most : sim_random(w, most / (2 * MIB) + 1) * 2 * MIB);
        return;
    }
    if (ticket < 120 && sim_job_step(w))
        return;
    for (int i = 0; i < 12 && w->process_count > 0; i++)
        if (process_step(w, w->processes[sim_random(w, w->process_count)]))
            return;
}

/* ---- the end of a simulation */

/* Everything that can still happen happens, for so long that patience ends too. */
static bool step_any(simulation *w)
{
    const uint32_t from = (uint32_t)sim_random(w, w->process_count + 1);

    for (uint32_t i = 0; i < w->process_count; i++) {
        process *p = w->processes[(from + i) % w->process_count];

        if (p->exited)
            continue;
        if (p->out.first != NULL && !p->cut && !p->disconnected) {
            sim_deliver(w, p);
            return true;
        }
        if (p->rung && !p->cut && !p->disconnected) {
            sim_ring(w, p);
            return true;
        }
        if (may_exit(p)) {
            sim_exited(w, p);
            return true;
        }
        if (!p->honest || p->stopped)
            continue;
        if (client_mapper_step(w, p))
            return true;
        for (uint32_t k = 0; k < p->thread_count; k++)
            if (client_thread_step(w, p, k))
                return true;
    }
    return sim_job_step(w);
}

static void settle(simulation *w)
{
    const int64_t patience = (w->config.revoke_limit_ms + w->config.lease_limit_ms + 100) * MS;
    int64_t until = 0;
    uint64_t actions = w->actions;

    for (uint32_t i = 0; i < STEPS_TO_SETTLE && w->problem[0] == '\0'; i++) {
        w->step++;
        w->now_ns += 1000;
        if (gvmi_machine_deadline(w->machine) <= w->now_ns)
            sim_tick(w);
        if (step_any(w) || w->actions != actions) {
            actions = w->actions;
            until = 0;
            continue;
        }
        if (until == 0)
            until = w->now_ns + patience;
        if (w->now_ns >= until)
            return;
        w->now_ns += MS;
        sim_tick(w);
    }
    sim_wrong(w, "things go on for ever");
}

/* Who has what of an object, for the log. */
static void log_openings(simulation *w, const object *o)
{
    for (uint32_t i = 0; i < w->process_count; i++) {
        const process *p = w->processes[i];

        for (uint32_t k = 0; k < p->slot_end && !p->exited; k++)
            if (p->known[k].object == o)
                sim_log(w, "object %llu, process %u slot %u: lease word %#llx, permit %#llx, untaken %u, maps %u%s%s%s",
                        (unsigned long long)o->id, i, k,
                        (unsigned long long)atomic_load(&p->leases[k].word),
                        (unsigned long long)atomic_load(&p->permits[k].word), p->known[k].untaken,
                        p->known[k].maps, p->stopped ? ", stopped" : "",
                        p->hung_up ? ", hung up" : "", p->cut ? ", cut" : "");
    }
}

/* Does the thread wait for a lease that may be out of reach, for want of memory, until a process is gone
 * that may write to the object? */
static bool waits_for_voided(const simulation *w, const process *p, const thread *t)
{
    for (uint32_t i = 0; i < p->request_count; i++)
        if (p->requests[i].number == t->request && p->requests[i].object != NULL)
            return voided_may_write(w, p->requests[i].object);
    return false;
}

/* Of processes that can act, no thread may be left waiting. */
static void check_answered(simulation *w, const char *when)
{
    for (uint32_t i = 0; i < w->process_count; i++) {
        const process *p = w->processes[i];
        uint32_t waiting = 0;

        if (p->exited || p->hung_up || p->gone || p->stopped || !p->honest)
            continue;
        for (uint32_t k = 0; k < p->request_count && w->problem[0] == '\0'; k++)
            if (p->requests[k].object != NULL)
                log_openings(w, p->requests[k].object);
        for (uint32_t k = 0; k < p->thread_count; k++) {
            waiting += p->threads[k].phase == PHASE_WAIT && waits_for_voided(w, p, &p->threads[k]);
            if ((p->threads[k].leased || p->threads[k].phase != PHASE_IDLE) &&
                !waits_for_voided(w, p, &p->threads[k]))
                sim_wrong(w, "%s, process %u thread %u waits for ever (phase %d, %s %llu)", when, i,
                          k, (int)p->threads[k].phase, gvmi_wire_name_of(p->threads[k].request_type),
                          (unsigned long long)p->threads[k].request);
        }
        if (!p->cut && p->request_count > waiting)
            sim_wrong(w, "%s, %s %llu of process %u was never answered", when,
                      gvmi_wire_name_of(p->requests[0].type),
                      (unsigned long long)p->requests[0].number, i);
    }
}

/* Stopped with a lease, or a promise of one, or about to be given one: without a lease timeout, that
 * lasts. */
static bool keeps_others_waiting(const process *p)
{
    for (const packet *at = p->out.first; at != NULL; at = at->next)
        if (at->message != NULL && at->message->head.type == GVMI_WIRE_ACQUIRE)
            return true;
    for (uint32_t i = 0; i < p->request_count; i++)
        if (p->requests[i].type == GVMI_WIRE_ACQUIRE)
            return true;
    for (uint32_t i = 0; i < p->slot_end; i++)
        if (p->known[i].object != NULL &&
            (p->known[i].untaken > 0 || gvmi_lease_any(atomic_load(&p->leases[i].word))))
            return true;
    return false;
}

static void drop_all(simulation *w)
{
    const gvmi_credentials admin = {.uid = ADMIN_UID, .gid = ADMIN_UID, .pid = 77};
    process *p = sim_connect(w, &admin, true);

    if (p == NULL) {
        sim_wrong(w, "the administrator cannot connect");
        return;
    }
    client_hello(w, p);
    settle(w);
    for (int i = 0; i < NAMES; i++) {
        gvmi_wire_message *m = sim_message(w, p, GVMI_WIRE_DROP);

        strcpy(m->body.DROP.name, keeper_names[i]);
        sim_send(w, p, m);
        while (p->out.first != NULL)
            sim_deliver(w, p);
        while (p->in.first != NULL)
            sim_packet_free(w, sim_receive(w, p));
    }
    settle(w);
    w->empty = w->problem[0] == '\0';
    sim_send(w, p, sim_message(w, p, GVMI_WIRE_SNAPSHOT));
    sim_deliver(w, p);
    while (p->in.first != NULL)
        sim_packet_free(w, sim_receive(w, p));
    client_bye(w, p);
    settle(w);
}

static void check_nothing_left(simulation *w)
{
    for (uint32_t i = 0; i < w->config.device_count; i++)
        if (w->used_bytes[i] > w->config.device_keep_bytes)
            sim_wrong(w, "at the end %llu MiB of device %u are in use, though at most %llu may be kept",
                      (unsigned long long)(w->used_bytes[i] / MIB), i,
                      (unsigned long long)(w->config.device_keep_bytes / MIB));
    if (w->job_count > 0)
        sim_wrong(w, "at the end %u jobs are left", w->job_count);
    for (uint32_t i = 0; i < w->process_count; i++)
        if (!w->processes[i]->exited)
            sim_wrong(w, "at the end process %u is there", i);
}

static void end_orderly(simulation *w)
{
    w->quiet = true;
    w->check_every = 1;
    for (uint32_t i = 0; i < w->config.device_count; i++)
        sim_budget(w, i, w->config.devices[i].budget_bytes);
    for (uint32_t i = 0; i < w->process_count; i++) {
        process *p = w->processes[i];

        if (p->exited)
            continue;
        if (!p->honest)
            sim_gone(w, p);
        if (p->stopped && keeps_others_waiting(p))
            p->stopped = false;
    }
    settle(w);
    check_answered(w, "with processes left hanging");
    for (uint32_t i = 0; i < w->process_count && w->problem[0] == '\0'; i++) {
        process *p = w->processes[i];

        p->stopped = false;
        if (!p->exited && (p->hung_up || p->cut))
            sim_gone(w, p);
    }
    settle(w);
    check_answered(w, "with everybody at work");
    for (uint32_t i = 0; i < w->process_count && w->problem[0] == '\0'; i++) {
        process *p = w->processes[i];

        if (p->exited || p->gone)
            continue;
        if (p->cut || sim_chance(w, 30))
            sim_gone(w, p);
        else
            client_bye(w, p);
    }
    settle(w);
    if (w->problem[0] == '\0')
        drop_all(w);
    if (w->problem[0] == '\0')
        check_nothing_left(w);
}

/* ---- a simulation */

static void free_process(simulation *w, process *p)
{
    packet *at;

    while ((at = sim_queue_take(&p->in)) != NULL)
        sim_packet_free(w, at);
    p->in = p->out;
    while ((at = sim_queue_take(&p->in)) != NULL)
        sim_packet_free(w, at);
    p->in = p->pending;
    while ((at = sim_queue_take(&p->in)) != NULL)
        sim_packet_free(w, at);
    if (p->mapping != NULL)
        sim_packet_free(w, p->mapping);
    client_drop_openings(w, p);
    for (uint32_t i = 0; i < p->request_count; i++)
        free(p->requests[i].message);
    free(p->leases);
    free(p->permits);
    free(p->snapshot);
    free(p->known);
    free(p->openings);
    free(p);
}

static void sim_free(simulation *w)
{
    gvmi_machine_destroy(w->machine);
    for (uint32_t i = 0; i < w->process_count; i++)
        free_process(w, w->processes[i]);
    for (uint32_t i = 0; i < DEVICES_MAX * 2; i++)
        for (job *j = w->movers[i / 2][i % 2], *next; j != NULL; j = next) {
            next = j->next;
            free(j);
        }
    for (uint32_t i = 0; i < w->object_count; i++)
        free(w->objects[i]);
    for (uint32_t i = 0; i < w->orphan_count; i++)
        free(w->orphans[i].message);
    for (uint32_t i = 0; i < w->all_count; i++)
        free(w->all[i]);
    free(w->all);
    free(w);
}

static void print_log(const simulation *w)
{
    const uint64_t from = w->log_count > LOG_LINES ? w->log_count - LOG_LINES : 0;

    for (uint64_t i = from; i < w->log_count; i++)
        printf("#   %s\n", w->log[i % LOG_LINES]);
    fflush(stdout);
}

typedef struct totals {
    uint64_t steps, fast, slow, for_cpu, failed, copies, cuts, writes, voided, lent, recalls,
        lent_later;
    uint64_t answered[80][64];
} totals;

static bool run_simulation(uint64_t seed, uint64_t number, uint64_t steps, totals *sum)
{
    simulation *w = calloc(1, sizeof *w);
    bool good;

    if (w == NULL)
        abort();
    w->seed = seed;
    w->number = number;
    w->random = seed * 0x2545f4914f6cdd1dull + number;
    current = w;
    shape(w);
    if (gvmi_machine_create(&w->config, &w->machine) != GVM_OK)
        abort();
    sim_tick(w);
    while (w->step < steps && w->problem[0] == '\0') {
        w->step++;
        random_step(w);
    }
    if (w->problem[0] == '\0' && !sim_chance(w, 10))
        end_orderly(w);
    good = w->problem[0] == '\0';
    if (!good) {
        tap_result(false, "seed %llu, simulation %llu, step %llu: %s", (unsigned long long)seed,
                   (unsigned long long)number, (unsigned long long)w->step, w->problem);
        print_log(w);
    }
    sum->steps += w->step;
    sum->fast += w->acquires_fast;
    sum->slow += w->acquires_slow;
    sum->for_cpu += w->acquires_for_cpu;
    sum->failed += w->acquires_failed;
    sum->copies += w->copies;
    sum->cuts += w->cuts;
    sum->writes += w->grants_write;
    sum->voided += w->voided_writes;
    sum->lent += w->shown_lent;
    sum->recalls += w->recalls;
    sum->lent_later += w->lent_later;
    for (int i = 0; i < 80; i++)
        for (int k = 0; k < 64; k++)
            sum->answered[i][k] += w->answered[i][k];
    sim_free(w);
    current = NULL;
    return good;
}

/* A failed assertion, a crash, an endless loop: say where. */
static void on_signal(int number)
{
    const simulation *w = current;

    if (w != NULL) {
        tap_result(false, "seed %llu, simulation %llu, step %llu: signal %d",
                   (unsigned long long)w->seed, (unsigned long long)w->number,
                   (unsigned long long)w->step, number);
        print_log(w);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void print_totals(const totals *sum)
{
    printf("# %llu steps; acquires: %llu fast, %llu slow, %llu granted for the CPU, %llu failed; %llu shown for writing; "
           "%llu copies, %llu cut off, %llu writes by voided processes; %llu lent chunks shown, %llu moved to the host, %llu from there\n",
           (unsigned long long)sum->steps, (unsigned long long)sum->fast,
           (unsigned long long)sum->slow, (unsigned long long)sum->for_cpu,
           (unsigned long long)sum->failed, (unsigned long long)sum->writes,
           (unsigned long long)sum->copies, (unsigned long long)sum->cuts,
           (unsigned long long)sum->voided, (unsigned long long)sum->lent,
           (unsigned long long)sum->recalls, (unsigned long long)sum->lent_later);
    for (uint32_t i = 0; i < 80; i++) {
        bool any = false;

        for (uint32_t k = 0; k < 64; k++) {
            if (sum->answered[i][k] == 0)
                continue;
            printf("%s %s %llu", any ? "," : "#   ",
                   any ? gvm_status_name((gvm_status)k) : gvmi_wire_name_of(i),
                   (unsigned long long)sum->answered[i][k]);
            any = true;
        }
        if (any)
            printf("\n");
    }
}

int main(int argc, char **argv)
{
    uint64_t steps = STEPS_DEFAULT, seed = 0, only = UINT64_MAX, simulations;
    static totals sum;
    bool good = true, seeded = false;

    for (int i = 1; i < argc; i += 2) {
        const uint64_t value = i + 1 < argc ? strtoull(argv[i + 1], NULL, 0) : 0;

        if (i + 1 < argc && strcmp(argv[i], "--steps") == 0) {
            steps = value;
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            seed = value;
            seeded = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--only") == 0) {
            only = value;
        } else {
            fprintf(stderr, "usage: keeper_machine [--steps N] [--seed SEED] [--only NUMBER]\n");
            return 2;
        }
    }
    if (!seeded)
        seed = random_seed(NULL);
    for (int i = 0; i < 4; i++)
        signal((const int[]){SIGABRT, SIGSEGV, SIGALRM, SIGFPE}[i], on_signal);
    simulations = (steps + STEPS_OF_SIMULATION - 1) / STEPS_OF_SIMULATION;
    tap_plan(1);
    printf("# seed %llu, %llu simulations of %d steps\n", (unsigned long long)seed,
           (unsigned long long)simulations, STEPS_OF_SIMULATION);
    for (uint64_t i = only != UINT64_MAX ? only : 0;
         good && (only != UINT64_MAX ? i == only : i < simulations); i++) {
        alarm(RUN_LIMIT_S);
        good = run_simulation(seed, i, STEPS_OF_SIMULATION, &sum);
    }
    print_totals(&sum);
    if (good)
        tap_result(true, "simulations around the machine, seed %llu", (unsigned long long)seed);
    return tap_finish();
}
