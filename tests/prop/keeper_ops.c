/* Random operations on a keeper's objects by several processes of several threads each.
 *
 *     keeper_ops [COUNT [SEED [PROCESSES [THREADS]]]]
 *
 * Goal: whatever everybody does at once, every call answers what its contract allows at that
 * moment, every byte is what its last writer wrote, and in the end nothing is left. Method: the
 * first process runs the keeper, with budgets so small that chunks move all the time, and takes
 * part itself; what is right is in a page that all share (keeper_ops.h). After every acquire a
 * kernel looks at all bytes. The seed makes the threads' choices the same again, not the order among
 * them.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/address.h"
#include "keeper/client/client.h"
#include "memory/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/prop/keeper_ops.h"
#include "tools/snapshot.h"

#ifdef __SANITIZE_THREAD__ /* 8 minutes for as many as below */
#define COUNT_DEFAULT 25000u
#else
#define COUNT_DEFAULT 100000u
#endif
#define PROCESSES_DEFAULT 3u
#define THREADS_DEFAULT 3u
#define DEVICE_BUDGET_CHUNKS 6u
#define HOST_BUDGET_CHUNKS 12u
#define STANDSTILL_S 60 /* without one operation done, all hang */
#define MEMORY_BACK_MS 5000
#define GPU_SLACK_BYTES (32 * MIB) /* what a real driver keeps for itself, once */

static const char *const op_names[] = {
#define NAME(kind, weight) #kind,
    KEEPER_OPS(NAME)
#undef NAME
};
static const unsigned op_weights[] = {
#define WEIGHT(kind, weight) weight,
    KEEPER_OPS(WEIGHT)
#undef WEIGHT
};

/* ---- a process that takes part */

static op_kind random_kind(uint64_t *seed)
{
    unsigned sum = 0, at;

    for (int i = 0; i < OP_COUNT; i++)
        sum += op_weights[i];
    at = (unsigned)(random_next(seed) % sum);
    for (int i = 0; i < OP_COUNT; i++) {
        if (at < op_weights[i])
            return (op_kind)i;
        at -= op_weights[i];
    }
    return OP_INVALID;
}

static bool do_op(worker *w, op_kind kind)
{
    if (w->connected && atomic_load(&w->party->reconnecting) && !release_all(w))
        return false;
    if (kind != OP_RECONNECT && !w->connected) {
        pthread_rwlock_rdlock(&w->party->connection);
        w->connected = true;
    }
    switch (kind) {
    case OP_READ: return do_read(w);
    case OP_WRITE: return do_write(w);
    case OP_RELEASE: return do_release(w);
    default: return do_object_op(w, kind);
    }
}

static void *work(void *arg)
{
    worker *w = arg;
    bool good = true;

    if (gvmi_device_enter(w->party->device) != GVM_OK ||
        gvmi_cu->cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        good = wrong("a thread cannot make a stream");
    while (good && !atomic_load(&page->stop) &&
           atomic_fetch_add(&page->started, 1) < atomic_load(&page->wanted)) {
        const op_kind kind = random_kind(&w->seed);

        atomic_store(&page->now[w->party->index][w->index], (int)kind);
        good = do_op(w, kind);
        atomic_fetch_add(&page->done[kind], 1);
    }
    atomic_store(&page->now[w->party->index][w->index], OP_COUNT);
    (void)release_all(w);
    if (w->stream != NULL && gvmi_cu->cuStreamSynchronize(w->stream) != CUDA_SUCCESS)
        (void)wrong("a stream is broken at the end");
    if (w->stream != NULL)
        gvmi_cu->cuStreamDestroy(w->stream);
    gvmi_device_leave();
    return NULL;
}

static void party_prepare(party *p, unsigned index)
{
    pthread_rwlockattr_t attributes;

    memset(p, 0, sizeof *p);
    p->index = index;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&p->connection, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    pthread_rwlock_init(&p->opening, NULL);
    for (unsigned i = 0; i < SLOTS; i++)
        pthread_rwlock_init(&p->slots[i].lock, NULL);
}

static void wait_for_all(void)
{
    atomic_fetch_sub(&page->working, 1);
    while (atomic_load(&page->working) > 0 && !atomic_load(&page->stop))
        pause_ms(1);
}

bool party_run(unsigned index, unsigned threads, uint64_t seed)
{
    static party p;
    static worker workers[THREADS_MAX];
    unsigned started = 0;

    party_prepare(&p, index);
    if (judged("gvm_device_open", gvm_device_open(0, &p.device), 0) && kernels_load(&p) &&
        judged("gvm_client_connect", gvm_client_connect(page->path, &p.keeper), 0))
        for (; started < threads; started++) {
            worker *w = &workers[started];

            *w = (worker){.party = &p, .index = started};
            w->seed = seed + (index * THREADS_MAX + started + 1) * 1000000007ull;
            if (pthread_create(&w->thread, NULL, work, w) != 0) {
                (void)wrong("cannot start a thread");
                break;
            }
        }
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    wait_for_all();
    gvm_client_close(p.keeper); /* with what is still open, which ends names that others know */
    kernels_unload(&p);
    gvm_device_close(p.device);
    return !atomic_load(&page->stop);
}

/* ---- the others, and the thread that looks whether they get on */

static struct {
    unsigned processes, threads;
    uint64_t seed;
    int gate; /* closed: the keeper listens */
    pid_t pids[PROCESSES_MAX];
} crowd;

static void start_others(void)
{
    const pid_t parent = getpid();
    int gate[2];

    /* They start when the keeper listens: then the gate closes. */
    if (pipe(gate) != 0)
        exit(2);
    fflush(stdout);
    for (unsigned i = 1; i < crowd.processes; i++) {
        crowd.pids[i] = fork();
        if (crowd.pids[i] == 0) {
            char byte;

            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            close(gate[1]);
            while (read(gate[0], &byte, 1) < 0 && errno == EINTR)
                ;
            close(gate[0]);
            exit(party_run(i, crowd.threads, crowd.seed) ? 0 : 1);
        }
    }
    close(gate[0]);
    crowd.gate = gate[1];
}

static bool reap_others(void)
{
    bool good = true;

    for (unsigned i = 1; i < crowd.processes; i++) {
        int status = -1;

        while (waitpid(crowd.pids[i], &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFSIGNALED(status))
            good = wrong("process %u died: %s", i, strsignal(WTERMSIG(status)));
        else
            good = status == 0 && good;
    }
    return good;
}

static uint64_t operations_done(void)
{
    uint64_t done = 0;

    for (int i = 0; i < OP_COUNT; i++)
        done += atomic_load(&page->done[i]);
    return done;
}

static void tell_where_all_are(void)
{
    printf("# nothing has moved for %d s after %llu operations\n", STANDSTILL_S,
           (unsigned long long)operations_done());
    for (unsigned i = 0; i < crowd.processes; i++)
        for (unsigned j = 0; j < crowd.threads; j++) {
            const int kind = atomic_load(&page->now[i][j]);

            printf("# process %u, thread %u: %s\n", i, j, kind < OP_COUNT ? op_names[kind] : "done");
        }
    if (page->problem[0] != '\0')
        printf("# %s\n", page->problem);
    tap_result(false, "the processes hang");
    (void)tap_finish();
}

/* A thread of the first process. Ends the program if the others hang, or one of them died and its
 * peers wait for it in vain. */
static void *watch(void *arg)
{
    uint64_t last = UINT64_MAX;
    int still = 0;

    (void)arg;
    for (;;) {
        const struct timespec second = {.tv_sec = 1};
        const uint64_t done = operations_done();

        still = done == last ? still + 1 : 0;
        last = done;
        if (still > STANDSTILL_S) {
            tell_where_all_are();
            _exit(1); /* the others die with it */
        }
        nanosleep(&second, NULL);
        pthread_testcancel();
    }
    return NULL;
}

/* ---- the keeper */

typedef struct state_of_things {
    uint64_t free_bytes;
    int fds;
} state_of_things;

static state_of_things look(gvm_device *device)
{
    gvm_device_info info = {.struct_size = sizeof info};

    if (gvm_device_trim(device, 0) != GVM_OK || gvm_device_get_info(device, &info) != GVM_OK)
        (void)wrong("cannot read the device's free memory");
    return (state_of_things){info.free_bytes, count_fds()};
}

static bool all_is_back(gvm_device *device, state_of_things before)
{
    gvm_driver_info driver = {.struct_size = sizeof driver};
    uint64_t slack = GPU_SLACK_BYTES;
    state_of_things now = look(device);

    if (gvm_driver_get_info(&driver) == GVM_OK && driver.software)
        slack = 0;
    for (int ms = 0; ms < MEMORY_BACK_MS; ms += 5) {
        if (now.free_bytes + slack >= before.free_bytes && now.fds <= before.fds)
            return true;
        pause_ms(5);
        now = look(device);
    }
    return wrong("left at the end: %lld bytes of the device, %d descriptors",
                 (long long)(before.free_bytes - now.free_bytes), now.fds - before.fds);
}

/* With everybody gone and every name dropped, the keeper has nothing. */
static bool keeper_is_empty(void)
{
    gvm_client *keeper = NULL;
    snapshot_copy *n = NULL;
    bool good = judged("gvm_client_connect, at the end", gvm_client_connect(page->path, &keeper), 0);

    if (!good)
        return false;
    for (unsigned i = 0; i < NAMES; i++)
        (void)gvm_object_drop(keeper, name_text(i));
    for (int ms = 0;; ms += 5) {
        uint64_t freed;

        if (gvm_client_trim(keeper, 0, 0, &freed) != GVM_OK || snapshot_take(keeper, &n) != GVM_OK) {
            good = wrong("no snapshot at the end");
            break;
        }
        good = n->keeper.objects == 0 && n->keeper.clients == 1 &&
               n->devices[0].resident_bytes == 0 && n->devices[0].free_bytes == 0 &&
               n->devices[0].leased_bytes == 0 && n->keeper.host_used_bytes == 0;
        if (good || ms > MEMORY_BACK_MS)
            break;
        snapshot_free(n);
        n = NULL;
        pause_ms(5);
    }
    if (!good && n != NULL)
        (void)wrong(
            "left at the keeper: %u objects, %u clients, %llu bytes resident, %llu free, %llu on the host, %llu free there",
            n->keeper.objects, n->keeper.clients, (unsigned long long)n->devices[0].resident_bytes,
            (unsigned long long)n->devices[0].free_bytes, (unsigned long long)n->keeper.host_used_bytes,
            (unsigned long long)n->keeper.host_free_bytes);
    if (good)
        printf("# %llu acquires, %llu slow, %llu revokes, %llu timeouts; %llu chunks evicted, %llu promoted\n",
               (unsigned long long)n->keeper.acquires, (unsigned long long)n->keeper.slow_acquires,
               (unsigned long long)n->keeper.revokes, (unsigned long long)n->keeper.timeouts,
               (unsigned long long)n->devices[0].evictions,
               (unsigned long long)n->devices[0].promotions);
    /* A run in which nothing moved has shown nothing. */
    if (good && operations_done() > 10000 &&
        (n->devices[0].evictions == 0 || n->devices[0].promotions == 0))
        good = wrong("no chunk ever moved");
    snapshot_free(n);
    gvm_client_close(keeper);
    return good;
}

static bool start_keeper(gvm_keeper **server)
{
    const int32_t first = 0;
    gvm_keeper_options options = {
        .struct_size = sizeof options,
        .path = page->path,
        .devices = &first,
        .device_count = 1,
        .device_budget_bytes = page->device_budget_bytes,
        .host_budget_bytes = page->host_budget_bytes,
        .device_keep_bytes = 2 * CHUNK_BYTES,
    };

    return judged("gvm_keeper_start", gvm_keeper_start(&options, server), 0);
}

static bool run(void)
{
    gvm_keeper *server = NULL;
    gvm_device *device = NULL;
    pthread_t watcher;
    state_of_things before;
    double sum;
    bool good;

    start_others();
    if (!judged("gvm_device_open", gvm_device_open(0, &device), 0) || !start_keeper(&server))
        return false;
    /* What first uses leave behind is not counted: kernels, memory for their results. */
    if (!judged("gvm_kernel_sum_f64", gvm_kernel_sum_f64(device, gvmi_pointer(8), 0, NULL, &sum), 0))
        return false;
    gvm_keeper_stop(server);
    before = look(device);
    if (!start_keeper(&server) || pthread_create(&watcher, NULL, watch, NULL) != 0)
        return false;
    close(crowd.gate);
    good = party_run(0, crowd.threads, crowd.seed);
    good = reap_others() && good;
    good = good && keeper_is_empty();
    gvm_keeper_stop(server);
    pthread_cancel(watcher);
    pthread_join(watcher, NULL);
    good = good && all_is_back(device, before);
    gvm_device_close(device);
    return good;
}

/* ---- start */

static void set_up_environment(void)
{
    fixture_machine_default("devices=1,memory=96MiB,host=128MiB,sms=1");
    setenv("GVMEM_CACHE", "0", 0);
    unsetenv("GVMEM_FAULT");
    fixture_raise_fd_limit();
}

static bool read_arguments(int argc, char **argv, uint64_t *count)
{
    *count = argc > 1 ? strtoull(argv[1], NULL, 0) : COUNT_DEFAULT;
    crowd.seed = random_seed(argc > 2 ? argv[2] : NULL);
    crowd.processes = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : PROCESSES_DEFAULT;
    crowd.threads = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 0) : THREADS_DEFAULT;
    return argc <= 5 && *count > 0 && crowd.processes >= 1 && crowd.processes <= PROCESSES_MAX &&
           crowd.threads >= 1 && crowd.threads <= THREADS_MAX;
}

int main(int argc, char **argv)
{
    fixture_folder folder;
    uint64_t count;
    bool good;

    if (!read_arguments(argc, argv, &count)) {
        fprintf(stderr, "usage: keeper_ops [COUNT [SEED [PROCESSES [THREADS]]]]\n");
        return 2;
    }
    set_up_environment();
    gvmi_client_slice_bytes = CHUNK_BYTES; /* the objects are small */
    page = model_page_create();
    if (page == NULL || !fixture_folder_make(&folder)) {
        perror("keeper_ops");
        return 2;
    }
    snprintf(page->path, sizeof page->path, "%s", folder.socket);
    page->device_budget_bytes = DEVICE_BUDGET_CHUNKS * CHUNK_BYTES;
    page->host_budget_bytes = HOST_BUDGET_CHUNKS * CHUNK_BYTES;
    page->budget_chunks = DEVICE_BUDGET_CHUNKS + HOST_BUDGET_CHUNKS;
    atomic_store(&page->wanted, count);
    atomic_store(&page->working, crowd.processes);
    good = run();
    fixture_folder_end(&folder);
    if (page->problem[0] != '\0')
        printf("# %s\n", page->problem);
    for (int i = 0; i < 64; i++)
        if (atomic_load(&page->answered[i]) > 0)
            printf("# %-17s %llu\n", gvm_status_name((gvm_status)i),
                   (unsigned long long)atomic_load(&page->answered[i]));
    printf("# %llu GiB checked\n", (unsigned long long)(atomic_load(&page->bytes_checked) >> 30));
    tap_result(good, "%llu operations of %u processes with %u threads each, seed %llu",
               (unsigned long long)operations_done(), crowd.processes, crowd.threads,
               (unsigned long long)crowd.seed);
    return tap_finish();
}
