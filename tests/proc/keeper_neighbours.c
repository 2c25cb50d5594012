/* A keeper, honest clients, and hostile clients of other users beside them.
 *
 *     keeper_neighbours [--floods] [--only ACT] [--no-stops] GVMEM-KEEPER [SECONDS [SEED]]
 *
 * Goal: whatever neighbours do, honest clients find what was written last, are answered and are not
 * cut off; and when all are gone, the keeper holds what it held at the start. Method: the daemon as a
 * process of its own, with little memory and a short revoke timeout; honest clients (keeper_honest.c),
 * hostile neighbours (keeper_hostile.c) that are killed and replaced all the time, sleepers
 * (keeper_sleeper.c), and the daemon itself stopped now and then. With --floods six users flood the
 * keeper for all of the time while another user's calls are measured, and root connects. A call's time depends
 * on what else the machine does; what the keeper works until it answers hardly does, so that is
 * judged, and 95 of 100 calls. The meter is scheduled before all but the keeper. With --only all
 * neighbours do the same (HOSTILE_ACTS), or nothing if ACT is none. With --no-stops the daemon is never
 * stopped.
 *
 * As root every party is a user of its own; otherwise there are no hostile neighbours. The seed
 * decides who does what, but not what coincides.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/proc/keeper_raw.h"
#include "tests/proc/keeper_soak.h"
#include "tools/snapshot.h"

#define SECONDS_DEFAULT 10u
#define TICK_MS 5u
#define ACT_MS_MAX 3000u          /* of a hostile act */
#define ACT_GRACE_MS 1000u        /* for one that ends by itself */
#define PAUSE_EVERY_MS 5000u      /* at most, between two stops of the keeper */
#define ROOT_EVERY_MS 200u        /* between two connections of root's in the floods */
#define LEAVE_WAIT_MS 120000u     /* for the honest to end */
#define SETTLE_WAIT_MS 20000u     /* for the keeper to be back at the start */
#define END_WAIT_MS 30000u        /* for it to exit */
#define RSS_GROWTH_KIB 16384      /* that an allocator may keep */
#define RSS_GROWTH_COLD_KIB 32768 /* where the time was too short to meet every act */
#define WARM_SECONDS 600u
#define LONG_SECONDS 60u
/* Of 95 of 100 calls by the clock, and of the server thread's work during 99 of 100. */
#define PRIORITY (-15)
#define FLOOD_ACQUIRE_MS 50u
#define FLOOD_CONNECT_MS 100u

enum {
    CHILD_METER,
    CHILD_HONEST,
    CHILD_SLEEPERS = CHILD_HONEST + HONEST,
    CHILD_HOSTILE,
    CHILDREN = CHILD_HOSTILE + FLOODERS
};

typedef struct participant {
    pid_t pid; /* 0: none */
    bool failed;
    hostile_act act; /* of a hostile one, as the next */
    uint64_t kill_ns;
} participant;

/* What the keeper has when nobody is there. */
typedef struct footprint {
    fd_counts fds;
    gvm_keeper_info keeper;
    gvm_keeper_device_info device;
} footprint;

#define ANY_ACT (-1)
#define NO_ACT (-2)

soak_page *soak;

static participant children[CHILDREN];
static pid_t keeper_pid;
static int keeper_status = -1;
static fixture_folder folder;
static uint64_t seed;
static unsigned root_refused;
static int only = ANY_ACT;
static bool stops = true; /* of the keeper */

/* ---- what all use */

bool soak_problem(const char *format, ...)
{
    char text[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (atomic_fetch_add(&soak->problems, 1) < PROBLEMS_MAX) {
        printf("# %d: %s\n", (int)getpid(), text);
        fflush(stdout);
    }
    atomic_store(&soak->stop, true);
    return false;
}

bool soak_judge(const char *call, gvm_status status, uint64_t may)
{
    gvm_error error;

    if (status == GVM_OK || (may & MAY(status)) != 0)
        return true;
    gvm_error_last(&error);
    return soak_problem("%s answered %s: %s", call, gvm_status_name(status), error.text);
}

void soak_name(uint64_t serial, char name[64])
{
    snprintf(name, 64, "/soak/%llu", (unsigned long long)serial);
}

static unsigned bucket_of(uint64_t ns)
{
    const unsigned octave = ns < 4 ? 1 : 63u - (unsigned)__builtin_clzll(ns);

    return ns < 4 ? (unsigned)ns : octave * 4 + (unsigned)(ns >> (octave - 2) & 3);
}

/* The thread that serves clients; 0: there is none. */
static int find_server_thread(void)
{
    char path[64], name[32];
    const struct dirent *entry;
    DIR *threads;
    int found = 0;

    snprintf(path, sizeof path, "/proc/%d/task", (int)soak->keeper_pid);
    threads = opendir(path);
    while (threads != NULL && found == 0 && (entry = readdir(threads)) != NULL) {
        FILE *file;

        snprintf(path, sizeof path, "/proc/%d/task/%.16s/comm", (int)soak->keeper_pid, entry->d_name);
        file = fopen(path, "re");
        if (file != NULL && fgets(name, sizeof name, file) != NULL &&
            strcmp(name, "gvmem-server\n") == 0)
            found = atoi(entry->d_name);
        if (file != NULL)
            fclose(file);
    }
    if (threads != NULL)
        closedir(threads);
    return found;
}

uint64_t soak_keeper_work_ns(void)
{
    unsigned long long ns = 0;
    char path[64];
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)soak->keeper_pid,
             soak->keeper_thread);
    file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%llu", &ns) != 1)
        ns = 0;
    if (file != NULL)
        fclose(file);
    return ns;
}

void soak_time(soak_times *times, uint64_t ns)
{
    uint64_t max = atomic_load(&times->max_ns);

    atomic_fetch_add(&times->count, 1);
    atomic_fetch_add(&times->buckets[bucket_of(ns)], 1);
    while (ns > max && !atomic_compare_exchange_weak(&times->max_ns, &max, ns))
        ;
}

/* The upper end of the bucket. */
uint64_t soak_percentile_ns(const soak_times *times, unsigned percent)
{
    const uint64_t wanted = (times->count * percent + 99) / 100;
    uint64_t seen = 0;

    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += times->buckets[i];
        if (seen >= wanted && i >= 8)
            return (4ull + i % 4 + 1) << (i / 4 - 2);
    }
    return 0;
}

/* ---- the daemon */

/* How the system shares out processors among those who flood and the others is not what is measured: the keeper and the
 * meter have them when they ask, where the test is allowed to say so. */
static void go_first(void)
{
    if (setpriority(PRIO_PROCESS, 0, PRIORITY) != 0)
        printf("# the keeper and the meter have no priority: times are the system's, too\n");
}

/* Device memory for a part of what the clients have; all quotas together are less than there is. */
static void run_keeper(const char *program, int ready)
{
    char ready_fd[16], revoke[16], lease[16], log[80];
    /* clang-format off */
    const char *const arguments[] = {
        program, "--socket", soak->path, "--socket-mode", "666", "--ready-fd", ready_fd,
        "--device-budget", "48M", "--host-budget", "192M",
        "--quota", soak->many_users ? "16M" : "160M",
        "--quota", "1001=32M", "--quota", "1002=32M", "--quota", "1009=32M",
        "--revoke-timeout", revoke, soak->lease_timeout ? "--lease-timeout" : NULL, lease, NULL,
    };
    /* clang-format on */
    char *argv[sizeof arguments / sizeof arguments[0]];
    int fd;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    go_first();
    (void)fcntl(ready, F_SETFD, 0);
    snprintf(ready_fd, sizeof ready_fd, "%d", ready);
    snprintf(revoke, sizeof revoke, "%u", soak->revoke_ms / 1000);
    snprintf(lease, sizeof lease, "%u", SOAK_LEASE_MS / 1000);
    snprintf(log, sizeof log, "%s/log", folder.path);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0)
        (void)dup2(fd, STDERR_FILENO);
    memcpy(argv, arguments, sizeof argv); /* execv() takes what it does not change */
    execv(program, argv);
    _exit(127);
}

static bool start_keeper(const char *program)
{
    int ends[2];
    char bytes[PATH_BYTES];
    bool ready = false;

    if (!fixture_folder_make(&folder) || chmod(folder.path, 0711) != 0 || pipe2(ends, O_CLOEXEC) != 0)
        return UNEXPECTED("a folder and a pipe");
    snprintf(soak->path, sizeof soak->path, "%s", folder.socket);
    fflush(stdout);
    keeper_pid = fork();
    if (keeper_pid == 0)
        run_keeper(program, ends[1]);
    close(ends[1]);
    while (read(ends[0], bytes, sizeof bytes) > 0) /* its path, a newline, the end */
        ready = true;
    close(ends[0]);
    soak->keeper_pid = keeper_pid;
    soak->keeper_thread = find_server_thread();
    return EXPECT(ready) && EXPECT(soak->keeper_thread != 0);
}

static void print_log(void)
{
    char path[80], line[300];
    FILE *log;

    snprintf(path, sizeof path, "%s/log", folder.path);
    log = fopen(path, "r");
    for (int i = 0; log != NULL && i < 100 && fgets(line, sizeof line, log) != NULL; i++)
        printf("# keeper: %s", line);
    if (log != NULL)
        fclose(log);
}

static void remove_folder(void)
{
    char path[80];

    snprintf(path, sizeof path, "%s/log", folder.path);
    unlink(path);
    fixture_folder_end(&folder);
}

/* ---- children */

/* All who have ended, also children of children. */
static void reap(void)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == keeper_pid) {
            keeper_status = status;
            keeper_pid = 0;
            continue;
        }
        for (unsigned i = 0; i < CHILDREN; i++)
            if (children[i].pid == pid) {
                children[i].pid = 0;
                children[i].failed |= i < CHILD_HOSTILE && status != 0;
                if (WIFSIGNALED(status) && (i < CHILD_HOSTILE || WTERMSIG(status) != SIGKILL))
                    (void)soak_problem("%s was killed by signal %d",
                                       i < CHILD_HOSTILE ? "a client"
                                                         : hostile_act_names[children[i].act],
                                       WTERMSIG(status));
            }
    }
}

static int run_child(unsigned which, uint64_t child_seed, uint64_t end_ns)
{
    if (which == CHILD_METER) {
        go_first();
        return meter_run();
    }
    if (which < CHILD_SLEEPERS)
        return honest_run(which - CHILD_HONEST, child_seed);
    if (which == CHILD_SLEEPERS)
        return sleepers_run(child_seed);
    if (!process_become(UID_HOSTILE + which - CHILD_HOSTILE, GID_HOSTILE + which - CHILD_HOSTILE))
        return 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return hostile_run(children[which].act, child_seed, end_ns);
}

static void start_child(unsigned which, uint64_t end_ns)
{
    const uint64_t child_seed = random_next(&seed);

    fflush(stdout);
    children[which].pid = fork();
    if (children[which].pid == 0) {
        setpgid(0, 0);
        const int status = run_child(which, child_seed, end_ns);
        fflush(stdout);
        _exit(status);
    }
    if (children[which].pid < 0)
        children[which].pid = 0;
    else
        setpgid(children[which].pid, children[which].pid);
}

static void kill_group(const participant *c)
{
    if (c->pid != 0)
        kill(-c->pid, SIGKILL);
}

static hostile_act choose_act(uint64_t random)
{
    if (only != ANY_ACT)
        return (hostile_act)only;
    /* The first is one that lasts. */
    return atomic_load(&soak->hostile_acts) == 0 ? ACT_forge_writer
                                                 : (hostile_act)(random % ACT_COUNT);
}

/* Half of the acts end by themselves, half are killed. One neighbour's forged writers stay for longer
 * than anybody should have to wait for them. */
static void next_act(unsigned which)
{
    const uint64_t random = random_next(&seed);
    const hostile_act act = choose_act(random >> 40);
    const bool lasts = act == ACT_forge_writer && which == CHILD_HOSTILE;
    const uint64_t ms = 50 + random % ACT_MS_MAX + (lasts ? soak->patience_ms : 0);
    const uint64_t end = now_ns() + ms * GVMI_NS_PER_MS;
    const bool killed = random >> 32 & 1;

    children[which].act = act;
    children[which].kill_ns = killed ? end : end + ACT_GRACE_MS * GVMI_NS_PER_MS;
    start_child(which, killed ? UINT64_MAX : end);
    if (children[which].pid != 0)
        atomic_fetch_add(&soak->hostile_acts, 1);
}

static void serve_hostile(void)
{
    for (unsigned i = CHILD_HOSTILE; i < CHILD_HOSTILE + HOSTILE; i++) {
        if (children[i].pid == 0)
            next_act(i);
        else if (now_ns() >= children[i].kill_ns)
            kill_group(&children[i]);
    }
}

static bool are_gone(unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++)
        if (children[i].pid != 0)
            return false;
    return true;
}

static bool wait_until_gone(unsigned first, unsigned end, uint64_t ms)
{
    const uint64_t until = now_ns() + ms * GVMI_NS_PER_MS;

    for (;;) {
        reap();
        if (are_gone(first, end))
            return true;
        if (now_ns() > until)
            return false;
        pause_ms(TICK_MS);
    }
}

/* The neighbours are killed, the honest end by themselves. */
static void end_children(void)
{
    atomic_store(&soak->stop, true);
    for (unsigned i = CHILD_HOSTILE; i < CHILDREN; i++)
        kill_group(&children[i]);
    if (!wait_until_gone(0, CHILDREN, LEAVE_WAIT_MS))
        (void)soak_problem("a client does not end within %u s", LEAVE_WAIT_MS / 1000);
    for (unsigned i = 0; i < CHILDREN; i++)
        kill_group(&children[i]);
    (void)wait_until_gone(0, CHILDREN, END_WAIT_MS);
}

/* ---- looks at the keeper */

/* Objects of clients that a problem has ended before they could drop them. */
static void drop_leftovers(gvm_client *keeper, const snapshot_copy *snapshot)
{
    for (uint32_t i = 0; i < snapshot->keeper.objects && atomic_load(&soak->problems) > 0; i++)
        if (strncmp(snapshot->objects[i].name, "/soak/", 6) == 0)
            (void)gvm_object_drop(keeper, snapshot->objects[i].name);
}

/* In a child, as this process must not have threads: it forks. Free device memory is given back. */
static bool look(void)
{
    int status = -1;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        snapshot_copy *snapshot = NULL;
        gvm_client *keeper = NULL;
        bool good = gvm_client_connect(soak->path, &keeper) == GVM_OK &&
                    gvm_client_trim(keeper, 0, 0, NULL) == GVM_OK &&
                    snapshot_take(keeper, &snapshot) == GVM_OK;

        if (good) {
            drop_leftovers(keeper, snapshot);
            soak->keeper = snapshot->keeper;
            soak->device = snapshot->devices[0];
            memcpy(soak->device_uuid, snapshot->devices[0].uuid, sizeof soak->device_uuid);
        }
        gvm_client_close(keeper);
        _exit(good ? 0 : 1);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status == 0;
}

static long keeper_kib(const char *what)
{
    char path[64], line[200];
    long kib = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)keeper_pid);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, what, strlen(what)) == 0)
            kib = strtol(line + strlen(what), NULL, 10);
    if (file != NULL)
        fclose(file);
    return kib;
}

static bool take_footprint(footprint *f)
{
    if (!EXPECT(look()))
        return false;
    *f = (footprint){
        .fds = process_count_fds(keeper_pid, false), .keeper = soak->keeper, .device = soak->device};
    return true;
}

/* Frames kept for later are descriptors, two each: one exported, one the driver's own. */
static bool is_as_before(const footprint *start, const footprint *now)
{
    const uint64_t kept = now->device.free_bytes + now->keeper.host_free_bytes;

    return now->keeper.clients == 1 && now->keeper.objects == 0 && now->device.held_bytes == 0 &&
           now->device.leased_bytes == 0 && now->device.resident_bytes == 0 &&
           now->keeper.host_used_bytes == 0 && now->fds.others <= start->fds.others &&
           now->fds.memory <= start->fds.memory + 2 * (long)(kept / CHUNK_BYTES);
}

static bool keeper_is_as_before(const footprint *start, long warm_kib, unsigned seconds)
{
    const long growth_kib = seconds < WARM_SECONDS ? RSS_GROWTH_COLD_KIB : RSS_GROWTH_KIB;
    footprint now = {0};
    long kib = 0;

    for (uint64_t ms = 0; ms < SETTLE_WAIT_MS; ms += 50) {
        if (!take_footprint(&now))
            return false;
        kib = keeper_kib("RssAnon:");
        if (is_as_before(start, &now) && (warm_kib < 0 || kib <= warm_kib + growth_kib))
            break;
        pause_ms(50);
    }
    printf("# at the end: %u clients, %u objects, %llu bytes held, %llu leased, %llu resident, %llu used on the host; descriptors %ld + %ld of memory, at the start %ld + %ld; RSS %ld KiB, warm %ld\n",
           now.keeper.clients - 1, now.keeper.objects, (unsigned long long)now.device.held_bytes,
           (unsigned long long)now.device.leased_bytes, (unsigned long long)now.device.resident_bytes,
           (unsigned long long)now.keeper.host_used_bytes, now.fds.others, now.fds.memory,
           start->fds.others, start->fds.memory, kib, warm_kib);
    if (!is_as_before(start, &now)) {
        (void)process_count_fds(keeper_pid, now.fds.others < start->fds.others + 50);
        return false;
    }
    return warm_kib < 0 || EXPECT(kib <= warm_kib + growth_kib);
}

static bool keeper_ends_well(void)
{
    const uint64_t until = now_ns() + END_WAIT_MS * GVMI_NS_PER_MS;

    if (keeper_pid == 0)
        return UNEXPECTED("the keeper runs until it is asked to end");
    kill(keeper_pid, SIGTERM);
    while (keeper_pid != 0 && now_ns() < until) {
        reap();
        pause_ms(TICK_MS);
    }
    if (keeper_pid == 0)
        return EXPECT(keeper_status == 0);
    kill(keeper_pid, SIGKILL);
    return UNEXPECTED("the keeper ends within 30 s");
}

/* ---- the course of it */

/* Nobody is cut off for what the keeper itself did not do in time. */
static void pause_keeper(void)
{
    const uint64_t ms = 100 + random_next(&seed) % (2 * soak->revoke_ms - 100);

    kill(keeper_pid, SIGSTOP);
    pause_ms(ms);
    kill(keeper_pid, SIGCONT);
}

static void connect_as_root(void)
{
    raw_client c;
    const uint64_t since = now_ns();
    const bool welcome = raw_begin(&c, soak->path);

    if (welcome)
        soak_time(&soak->root_connect, now_ns() - since);
    root_refused += !welcome;
    raw_end(&c);
}

static void run_for(unsigned seconds, bool floods, long *warm_kib)
{
    const uint64_t start = now_ns(), end = start + seconds * 1000ull * GVMI_NS_PER_MS;
    uint64_t next_pause = start + 1000 * GVMI_NS_PER_MS, next_root = start, now;

    while ((now = now_ns()) < end && !atomic_load(&soak->stop) && keeper_pid != 0) {
        reap();
        if (floods && now >= next_root) {
            connect_as_root();
            next_root = now_ns() + ROOT_EVERY_MS * GVMI_NS_PER_MS;
        }
        if (!floods && soak->many_users && only != NO_ACT)
            serve_hostile();
        if (!floods && stops && now >= next_pause) {
            pause_keeper();
            next_pause = now_ns() + (1000 + random_next(&seed) % PAUSE_EVERY_MS) * GVMI_NS_PER_MS;
        }
        /* A keeper that is checked while it runs keeps what it has freed for a while. */
        if (SLOWNESS == 1 && *warm_kib < 0 && now - start > (end - start) / 4)
            *warm_kib = keeper_kib("RssAnon:");
        pause_ms(TICK_MS);
    }
    for (unsigned i = CHILD_HOSTILE; i < CHILDREN && atomic_load(&soak->stop); i++)
        if (children[i].pid != 0)
            printf("# neighbour %u does %s\n", i - CHILD_HOSTILE, hostile_act_names[children[i].act]);
    if (keeper_pid == 0)
        (void)soak_problem("the keeper ended with status %x", (unsigned)keeper_status);
}

static void print_times(const char *what, const soak_times *times)
{
    printf("# %s: %llu times, median %.3f ms, 95 %% within %.3f, 99 %% within %.3f, maximum %.3f ms\n",
           what, (unsigned long long)times->count, (double)soak_percentile_ns(times, 50) / 1e6,
           (double)soak_percentile_ns(times, 95) / 1e6, (double)soak_percentile_ns(times, 99) / 1e6,
           (double)times->max_ns / 1e6);
}

static void print_figures(bool floods)
{
    print_times("acquire", &soak->acquire);
    print_times("the meter's acquire", &soak->meter_acquire);
    print_times("connect", &soak->connect);
    print_times("the meter's connect", &soak->meter_connect);
    if (floods) {
        print_times("root's connect", &soak->root_connect);
        print_times("the server thread's work during an acquire", &soak->acquire_work);
        print_times("the server thread's work during a connect", &soak->connect_work);
    }
    printf("# %llu writes, %llu reads, %llu time-outs, %llu refusals, %llu sleepers, %llu hostile acts\n",
           (unsigned long long)soak->writes, (unsigned long long)soak->reads,
           (unsigned long long)soak->timeouts, (unsigned long long)soak->refusals,
           (unsigned long long)soak->sleeper_rounds, (unsigned long long)soak->hostile_acts);
}

/* The slowest one says more of the machine, and is printed. */
static bool is_quick(const soak_times *times, const soak_times *work, uint64_t ms)
{
    const uint64_t limit_ns = ms * GVMI_NS_PER_MS;

    if (SLOWNESS > 1) /* the times of programs that are checked while they run say nothing */
        return EXPECT(times->count > 0);
    return EXPECT(times->count > 0) && EXPECT(soak_percentile_ns(times, 95) <= limit_ns) &&
           EXPECT(soak_percentile_ns(work, 99) <= limit_ns);
}

static bool honest_clients_passed(void)
{
    bool good = EXPECT(atomic_load(&soak->problems) == 0);

    for (unsigned i = 0; i < CHILD_SLEEPERS; i++)
        good = EXPECT(!children[i].failed) && good;
    return good;
}

static void start_flood(unsigned which, hostile_act act, uint64_t end_ns)
{
    children[which].act = act;
    start_child(which, end_ns);
}

static void start_parties(bool floods, uint64_t end_ns)
{
    start_child(CHILD_METER, 0);
    for (unsigned i = 0; i < FLOODERS && floods; i++)
        start_flood(CHILD_HOSTILE + i, (hostile_act)i, end_ns);
    for (unsigned i = 0; i < (floods ? 1 : HONEST); i++)
        start_child(CHILD_HONEST + i, 0);
    if (!floods)
        start_child(CHILD_SLEEPERS, 0);
}

static void report(bool floods, unsigned seconds)
{
    print_figures(floods);
    tap_result(honest_clients_passed(),
               "honest clients find what was written, and none is cut off%s: %u s",
               floods ? " while six users flood" : "", seconds);
    if (floods) {
        tap_result(is_quick(&soak->acquire, &soak->acquire_work, FLOOD_ACQUIRE_MS) &&
                       is_quick(&soak->meter_acquire, &soak->acquire_work, FLOOD_ACQUIRE_MS),
                   "acquire under floods is quick");
        tap_result(is_quick(&soak->connect, &soak->connect_work, FLOOD_CONNECT_MS) &&
                       is_quick(&soak->meter_connect, &soak->connect_work, FLOOD_CONNECT_MS),
                   "connect under floods is quick");
        if (root_refused > 0)
            printf("# root was refused %u times\n", root_refused);
        tap_result(root_refused == 0, "root can connect under floods");
    } else {
        tap_result(EXPECT(atomic_load(&soak->sleeper_problems) == 0) &&
                       EXPECT(!children[CHILD_SLEEPERS].failed) && EXPECT(soak->sleeper_rounds > 0),
                   "sleepers that were cut off change nothing, and get the reason");
        if (soak->many_users)
            tap_result(EXPECT(soak->hostile_acts > 0), "hostile neighbours");
        else
            tap_skip("hostile neighbours", "only root can be several users");
    }
}

static bool prepare(bool floods, unsigned seconds)
{
    soak = mmap(NULL, sizeof *soak, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (soak == MAP_FAILED)
        return UNEXPECTED("memory for the page");
    fixture_raise_fd_limit();
    fixture_machine("devices=1,memory=128MiB,host=512MiB,sms=1");
    setenv("GVMEM_CACHE", "0", 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    soak->many_users = geteuid() == 0;
    soak->patience_ms = seconds < LONG_SECONDS ? PATIENCE_MS : PATIENCE_LONG_MS;
    soak->revoke_ms = seconds < LONG_SECONDS ? REVOKE_MS : REVOKE_LONG_MS;
    soak->lease_timeout = !floods && seed & 1;
    return true;
}

static bool parse_only(const char *name)
{
    only = strcmp(name, "none") == 0 ? NO_ACT : ANY_ACT;
    for (int i = 0; i < ACT_COUNT; i++)
        if (strcmp(name, hostile_act_names[i]) == 0)
            only = i;
    return only != ANY_ACT;
}

static void usage(void)
{
    fprintf(stderr,
            "usage: keeper_neighbours [--floods] [--only ACT] [--no-stops] GVMEM-KEEPER [SECONDS [SEED]]\n");
    exit(2);
}

static int run(const char *program, bool floods, unsigned seconds)
{
    footprint start;
    long warm_kib = -1;

    if (!start_keeper(program) || !take_footprint(&start)) {
        print_log();
        remove_folder();
        printf("Bail out! the keeper does not start\n");
        return 2; /* which ends it */
    }
    start_parties(floods, now_ns() + seconds * 1000ull * GVMI_NS_PER_MS);
    run_for(seconds, floods, &warm_kib);
    end_children();
    report(floods, seconds);
    tap_result(keeper_pid != 0 && keeper_is_as_before(&start, warm_kib, seconds),
               "the keeper is back at the start");
    tap_result(keeper_ends_well(), "the keeper ends with status 0");
    print_log();
    remove_folder();
    return tap_finish();
}

int main(int argc, char **argv)
{
    bool floods = false;
    unsigned seconds = SECONDS_DEFAULT;
    int next = 1;

    keeper_child_main(argc, argv);
    for (; next < argc && argv[next][0] == '-'; next++)
        if (strcmp(argv[next], "--floods") == 0)
            floods = true;
        else if (strcmp(argv[next], "--no-stops") == 0)
            stops = false;
        else if (strcmp(argv[next], "--only") != 0 || next + 1 == argc || !parse_only(argv[++next]))
            usage();
    if (argc - next < 1 || argc - next > 3)
        usage();
    if (argc - next > 1)
        seconds = (unsigned)strtoul(argv[next + 1], NULL, 0);
    seed = random_seed(argc - next > 2 ? argv[next + 2] : NULL);
    if (seconds == 0)
        usage();
    printf("# %u s, seed %llu\n", seconds, (unsigned long long)seed);
    if (!prepare(floods, seconds))
        return 2;
    if (getenv("GVMEM_DRIVER") != NULL && strcmp(getenv("GVMEM_DRIVER"), "cuda") == 0) {
        printf("1..0 # SKIP the processor writes the objects, which only the software GPU's allow\n");
        return 0;
    }
    if (floods && !soak->many_users) {
        printf("1..0 # SKIP only root can be several users\n");
        return 0;
    }
    return run(argv[next], floods, seconds);
}
