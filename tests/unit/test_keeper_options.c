/* Every member of gvm_keeper_options, gvm_object_options and gvm_acquire_options, and every flag of
 * gvmem/client.h, has an effect that is seen through the public interface.
 *
 * tests/options.txt names the test of each; scripts/options.py sees to it that none is missing. Each test
 * runs in a child, since a driver is started once a process.
 */
#include "tests/unit/unit.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <gvmem/buffer.h>
#include <gvmem/client.h>
#include <gvmem/keeper.h>
#include <gvmem/kernels.h>

#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tools/snapshot.h"

#define CHUNK (2 * MIB)
#define TIMEOUT_MS 20000 /* never reached */
#define DEVICE_BYTES (64 * MIB)

static void use_devices(int count)
{
    fixture_machine("devices=%d,memory=64MiB", count);
}

/* ---- a keeper of this process, and a connection to it */

typedef struct fixture {
    gvm_keeper *server;
    gvm_client *keeper;
    char path[64]; /* of files that a test makes */
    char log[8192];
    atomic_uint log_len;
} fixture;

static void take_line(void *context, const char *line)
{
    fixture *w = context;
    const unsigned len = atomic_load(&w->log_len);
    const int added = snprintf(w->log + len, sizeof w->log - len, "%s\n", line);

    if (added > 0 && (size_t)added < sizeof w->log - len)
        atomic_store(&w->log_len, len + (unsigned)added);
}

static bool has_line(fixture *w, const char *part)
{
    char log[sizeof w->log];
    const unsigned len = atomic_load(&w->log_len);

    memcpy(log, w->log, len);
    log[len] = '\0';
    return strstr(log, part) != NULL;
}

static int join(const fixture *w, gvm_client **out)
{
    int fd;

    CHILD_EXPECT(gvm_keeper_open_socket(w->server, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, out) == GVM_OK);
    return 0;
}

/* Of the members of o those are given that the test is about; the others are small. */
static int start(fixture *w, gvm_keeper_options o)
{
    o.struct_size = sizeof o;
    if (o.path == NULL && o.listen_fd == 0)
        o.path = "";
    if (o.device_budget_bytes == 0)
        o.device_budget_bytes = 16 * MIB;
    if (o.host_budget_bytes == 0)
        o.host_budget_bytes = 64 * MIB;
    if (o.log == NULL) {
        o.log = take_line;
        o.log_context = w;
    }
    atomic_init(&w->log_len, 0);
    CHILD_EXPECT(gvm_keeper_start(&o, &w->server) == GVM_OK);
    return join(w, &w->keeper);
}

static int stop(fixture *w)
{
    gvm_client_close(w->keeper);
    gvm_keeper_stop(w->server);
    return 0;
}

static void choose_path(fixture *w)
{
    snprintf(w->path, sizeof w->path, "/tmp/gvmem-test-options-%d", (int)getpid());
}

static gvm_keeper_device_info device_info(const fixture *w, uint32_t index)
{
    gvm_keeper_device_info info = {0};
    snapshot_copy *snapshot;

    if (snapshot_take(w->keeper, &snapshot) == GVM_OK) {
        if (index < snapshot->keeper.devices)
            info = snapshot->devices[index];
        snapshot_free(snapshot);
    }
    return info;
}

static gvm_keeper_info keeper_info(const fixture *w)
{
    gvm_keeper_info info = {0};
    snapshot_copy *snapshot;

    if (snapshot_take(w->keeper, &snapshot) == GVM_OK) {
        info = snapshot->keeper;
        snapshot_free(snapshot);
    }
    return info;
}

/* Waits until it is so. */
#define EVENTUALLY(condition) \
    do { \
        int ms_left = TIMEOUT_MS; \
        while (!(condition) && ms_left-- > 0) \
            poll(NULL, 0, 1); \
        CHILD_EXPECT(ms_left > 0); \
    } while (0)

static gvm_status make(gvm_client *keeper, const char *name, uint32_t chunks, uint32_t flags,
                       gvm_object **out)
{
    const gvm_object_options o = {
        .struct_size = sizeof o, .chunk_bytes = CHUNK, .size_bytes = chunks * CHUNK, .flags = flags};

    return gvm_object_create(keeper, name, 64 * CHUNK, &o, out);
}

/* ---- gvm_keeper_options */

static int give_path(void *arg)
{
    fixture w;
    gvm_client *keeper;

    (void)arg;
    use_devices(1);
    choose_path(&w);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.path = w.path}) == 0);
    CHILD_EXPECT(gvm_client_connect(w.path, &keeper) == GVM_OK);
    gvm_client_close(keeper);
    return stop(&w);
}

CHILD_TEST(server_path_given_is_where_it_listens, give_path)

static int give_listener(void *arg)
{
    fixture w;
    gvm_client *keeper;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)arg;
    use_devices(1);
    choose_path(&w);
    strcpy(address.sun_path, w.path);
    CHILD_EXPECT(bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
                 listen(fd, 8) == 0);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.listen_fd = fd}) == 0);
    CHILD_EXPECT(gvm_client_connect(w.path, &keeper) == GVM_OK);
    gvm_client_close(keeper);
    stop(&w);
    unlink(w.path);
    return 0;
}

CHILD_TEST(server_listen_fd_given_is_where_it_listens, give_listener)

static int give_mode(void *arg)
{
    fixture w;
    struct stat found;

    (void)arg;
    use_devices(1);
    choose_path(&w);
    for (uint32_t mode = 0; mode < 2; mode++) {
        CHILD_EXPECT(start(&w, (gvm_keeper_options){.path = w.path, .socket_mode = mode * 0640}) == 0);
        CHILD_EXPECT(stat(w.path, &found) == 0 && (found.st_mode & 0777) == (mode ? 0640 : 0600));
        stop(&w);
    }
    return 0;
}

CHILD_TEST(server_socket_mode_given_is_the_sockets, give_mode)

static int give_devices(void *arg)
{
    const int32_t second[] = {1};
    fixture w;

    (void)arg;
    use_devices(3);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.devices = second, .device_count = 1}) == 0);
    CHILD_EXPECT(keeper_info(&w).devices == 1 && device_info(&w, 0).ordinal == 1);
    stop(&w);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){0}) == 0);
    CHILD_EXPECT(keeper_info(&w).devices == 3);
    return stop(&w);
}

CHILD_TEST(server_devices_given_are_served, give_devices)

static int give_clients(void *arg)
{
    fixture w;
    gvm_client *keeper;
    int fd;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.clients_max = 2}) == 0);
    CHILD_EXPECT(join(&w, &keeper) == 0);
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, &(gvm_client *){NULL}) == GVM_E_DENIED);
    gvm_client_close(keeper);
    return stop(&w);
}

CHILD_TEST(server_clients_max_given_is_the_most, give_clients)

static int give_budgets(void *arg)
{
    fixture w;
    gvm_keeper *server = NULL;
    gvm_keeper_options o = {.struct_size = sizeof o, .path = ""};

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.device_budget_bytes = 6 * MIB,
                                                .host_budget_bytes = 10 * MIB}) == 0);
    CHILD_EXPECT(device_info(&w, 0).budget_bytes == 6 * MIB);
    CHILD_EXPECT(keeper_info(&w).host_budget_bytes == 10 * MIB);
    stop(&w);
    o.device_budget_bytes = DEVICE_BYTES + CHUNK;
    CHILD_EXPECT(gvm_keeper_start(&o, &server) == GVM_E_NOSPACE);
    o.device_budget_bytes = 0;
    o.host_budget_bytes = 1ull << 60;
    CHILD_EXPECT(gvm_keeper_start(&o, &server) == GVM_E_NOSPACE);
    o.host_budget_bytes = 8 * MIB;
    o.host_ahead_bytes = 10 * MIB;
    CHILD_EXPECT(gvm_keeper_start(&o, &server) == GVM_E_INVALID);
    o.host_ahead_bytes = 0;
    o.driver_free_bytes = DEVICE_BYTES;
    CHILD_EXPECT(gvm_keeper_start(&o, &server) == GVM_E_NOSPACE && server == NULL);
    return 0;
}

CHILD_TEST(server_budgets_given_are_in_force, give_budgets)

static uint64_t budget_of(uint64_t leave_bytes, uint64_t budget_bytes)
{
    const gvm_keeper_options o = {.struct_size = sizeof o,
                                  .path = "",
                                  .host_budget_bytes = 64 * MIB,
                                  .device_budget_bytes = budget_bytes,
                                  .device_leave_bytes = leave_bytes};
    gvm_keeper_budget budget = {.struct_size = sizeof budget};
    gvm_keeper *server;

    if (gvm_keeper_start(&o, &server) != GVM_OK)
        return 0;
    if (gvm_keeper_get_budget(server, 0, &budget) != GVM_OK)
        budget.device_bytes = 0;
    gvm_keeper_stop(server);
    return budget.device_bytes;
}

/* All of the device is free at the start. */
static int leave_at_start(void *arg)
{
    const uint64_t nine_tenths = DEVICE_BYTES / 10 * 9 / CHUNK * CHUNK;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(budget_of(0, 0) == nine_tenths);
    CHILD_EXPECT(budget_of(GVM_BYTES_NONE, 0) == nine_tenths);
    CHILD_EXPECT(budget_of(DEVICE_BYTES / 32, 0) == nine_tenths);
    CHILD_EXPECT(budget_of(DEVICE_BYTES / 4, 0) == DEVICE_BYTES / 4 * 3);
    CHILD_EXPECT(budget_of(DEVICE_BYTES * 2, 0) == DEVICE_BYTES / 2);
    CHILD_EXPECT(budget_of(DEVICE_BYTES / 4, DEVICE_BYTES) == DEVICE_BYTES);
    return 0;
}

CHILD_TEST(server_device_leave_given_is_left_at_the_start, leave_at_start)

static int give_ahead(void *arg)
{
    fixture w;
    gvm_object *object;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.host_ahead_bytes = 3 * CHUNK}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 1, 0, &object) == GVM_OK);
    EVENTUALLY(keeper_info(&w).host_free_bytes == 3 * CHUNK);
    gvm_object_close(object);
    return stop(&w);
}

CHILD_TEST(server_host_ahead_given_is_made, give_ahead)

static int give_keep(void *arg)
{
    fixture w;
    gvm_object *object;

    (void)arg;
    use_devices(1);
    for (uint64_t chunks = 0; chunks <= 3; chunks++) {
        const uint64_t keep_bytes = chunks == 0 ? GVM_BYTES_NONE : chunks * CHUNK;

        CHILD_EXPECT(start(&w, (gvm_keeper_options){.device_keep_bytes = keep_bytes}) == 0);
        CHILD_EXPECT(make(w.keeper, "/x", 4, 0, &object) == GVM_OK);
        gvm_object_close(object);
        EVENTUALLY(keeper_info(&w).objects == 0);
        CHILD_EXPECT(device_info(&w, 0).free_bytes == chunks * CHUNK);
        stop(&w);
    }
    return 0;
}

CHILD_TEST(server_device_keep_given_is_kept, give_keep)

/* Another program (here: another buffer) takes memory of the device; objects give way, and get the budget
 * back when it ends. */
static int leave_free(void *arg)
{
    const uint64_t leave_bytes = 32 * MIB;
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    fixture w;
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_object *object;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.driver_free_bytes = leave_bytes}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 8, 0, &object) == GVM_OK);
    CHILD_EXPECT(device_info(&w, 0).resident_bytes == 16 * MIB && !has_line(&w, "budget"));
    CHILD_EXPECT(gvm_buffer_create(device, 24 * MIB, &options, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 24 * MIB) == GVM_OK);
    EVENTUALLY(device_info(&w, 0).driver_free_bytes >= leave_bytes &&
               device_info(&w, 0).resident_bytes < 16 * MIB);
    CHILD_EXPECT(device_info(&w, 0).budget_bytes < 16 * MIB);
    CHILD_EXPECT(has_line(&w, "device 0: its budget is lowered to "));
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(gvm_device_trim(device, 0) == GVM_OK);
    EVENTUALLY(device_info(&w, 0).budget_bytes == 16 * MIB);
    EVENTUALLY(has_line(&w, "device 0: its budget is 16 MiB again\n"));
    gvm_object_close(object);
    stop(&w);
    gvm_device_close(device);
    return 0;
}

CHILD_TEST(server_driver_free_given_is_left_to_others, leave_free)

static int give_quotas(void *arg)
{
    const gvm_quota own = {.uid = geteuid(), .quota_bytes = 3 * CHUNK};
    const gvm_quota nothing = {.uid = geteuid(), .quota_bytes = GVM_BYTES_NONE};
    const gvm_quota usual = {.uid = geteuid()};
    const gvm_quota others = {.uid = geteuid() + 1, .quota_bytes = CHUNK};
    const gvm_quota unknown = {.uid = geteuid(), .reserved = 1};
    fixture w;
    gvm_object *object;
    uint64_t bytes;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.quota_bytes = 2 * CHUNK}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 3, 0, &object) == GVM_E_QUOTA);
    CHILD_EXPECT(make(w.keeper, "/x", 2, 0, &object) == GVM_OK);
    stop(&w);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.quota_bytes = GVM_BYTES_UNLIMITED}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 3, 0, &object) == GVM_OK);
    stop(&w);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.quota_bytes = GVM_BYTES_NONE,
                                                .quotas = &others,
                                                .quota_count = 1}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 1, 0, &object) == GVM_E_QUOTA);
    CHILD_EXPECT(gvm_client_set_quota(w.keeper, geteuid(), CHUNK) == GVM_OK);
    CHILD_EXPECT(make(w.keeper, "/x", 1, 0, &object) == GVM_OK);
    CHILD_EXPECT(gvm_client_set_quota(w.keeper, geteuid(), 0) == GVM_OK);
    CHILD_EXPECT(make(w.keeper, "/y", 1, 0, &object) == GVM_E_QUOTA);
    CHILD_EXPECT(gvm_client_set_quota(w.keeper, geteuid(), GVM_BYTES_NONE) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_client_set_quota(w.keeper, geteuid(), GVM_BYTES_UNLIMITED) == GVM_OK);
    CHILD_EXPECT(make(w.keeper, "/y", 3, 0, &object) == GVM_OK);
    CHILD_EXPECT(gvm_client_evict(w.keeper, "/y", 0, &bytes) == GVM_OK && bytes == 0);
    CHILD_EXPECT(gvm_client_evict(w.keeper, "/y", CHUNK, &bytes) == GVM_OK && bytes == CHUNK);
    CHILD_EXPECT(gvm_client_evict(w.keeper, "/y", GVM_BYTES_NONE, NULL) == GVM_E_INVALID);
    stop(&w);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.quotas = &nothing, .quota_count = 1}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 1, 0, &object) == GVM_E_QUOTA);
    stop(&w);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){
                               .quota_bytes = CHUNK, .quotas = &usual, .quota_count = 1}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 3, 0, &object) == GVM_OK);
    stop(&w);
    CHILD_EXPECT(gvm_keeper_start(&(gvm_keeper_options){.struct_size = sizeof(gvm_keeper_options),
                                                        .path = "",
                                                        .quotas = &unknown,
                                                        .quota_count = 1},
                                  &w.server) == GVM_E_INVALID);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.quotas = &own, .quota_count = 1}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 4, 0, &object) == GVM_E_QUOTA);
    CHILD_EXPECT(make(w.keeper, "/x", 3, 0, &object) == GVM_OK);
    stop(&w);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.quotas = &others, .quota_count = 1}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 4, 0, &object) == GVM_OK);
    return stop(&w);
}

CHILD_TEST(server_quotas_given_are_kept, give_quotas)

/* ---- another process, which stops or keeps a lease */

typedef struct other {
    pid_t pid;
    int ready; /* a byte comes when it has done what it is for */
} other;

static int start_other(const fixture *w, bool leases, other *out)
{
    char byte;
    int ready[2];

    CHILD_EXPECT(pipe2(ready, O_CLOEXEC) == 0);
    out->pid = fork();
    CHILD_EXPECT(out->pid >= 0);
    if (out->pid == 0) { /* nothing of the keeper's threads is here; what the library had is not used */
        char leases_text[2] = {leases ? 'l' : '-', '\0'}, fd_text[16];

        snprintf(fd_text, sizeof fd_text, "%d", ready[1]);
        (void)fcntl(ready[1], F_SETFD, 0);
        execl(own_path(), "other", w->path, leases_text, fd_text, (char *)NULL);
        _exit(127);
    }
    close(ready[1]);
    CHILD_EXPECT(read(ready[0], &byte, 1) == 1);
    out->ready = ready[0];
    return 0;
}

static int end_other(const other *o)
{
    CHILD_EXPECT(kill(o->pid, SIGKILL) == 0 && waitpid(o->pid, NULL, 0) == o->pid);
    close(o->ready);
    return 0;
}

/* A signal reaches the threads of a process one after the other: until it is stopped, some go on. */
static int stop_other(const other *o)
{
    int status = 0;

    CHILD_EXPECT(kill(o->pid, SIGSTOP) == 0 && waitpid(o->pid, &status, WUNTRACED) == o->pid);
    CHILD_EXPECT(WIFSTOPPED(status));
    return 0;
}

/* The other process: opens /x, perhaps takes a lease, and does nothing more. */
static int be_other(char **argv)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;

    if (gvm_client_connect(argv[1], &keeper) != GVM_OK ||
        gvm_object_open(keeper, "/x", 0, &object) != GVM_OK ||
        gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) != GVM_OK)
        return 1;
    if (argv[2][0] != 'l' && gvm_object_release(object, &lease) != GVM_OK)
        return 1;
    if (write(atoi(argv[3]), "r", 1) != 1)
        return 1;
    for (;;)
        pause();
}

/* A stopped process does not answer MAP: eviction waits for it no longer than the timeout. */
static int give_revoke_limit(void *arg)
{
    fixture w;
    gvm_object *object;
    other o;
    uint64_t since_ms;
    uint64_t bytes = 0;

    (void)arg;
    use_devices(1);
    choose_path(&w);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){
                               .path = w.path, .revoke_limit_ms = under_valgrind() ? 3000 : 300}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 2, 0, &object) == GVM_OK);
    CHILD_EXPECT(start_other(&w, false, &o) == 0 && stop_other(&o) == 0);
    /* The keeper may read the other's message that it has taken its lease after this request: then nothing is evicted. */
    EVENTUALLY((since_ms = now_ms()) > 0 &&
               gvm_client_evict(w.keeper, "/x", GVM_BYTES_UNLIMITED, &bytes) == GVM_OK && bytes > 0);
    EVENTUALLY(keeper_info(&w).cut_offs == 1);
    CHILD_EXPECT(now_ms() - since_ms >= 250 && now_ms() - since_ms < 8000); /* the default is 10 s */
    CHILD_EXPECT(end_other(&o) == 0);
    gvm_object_close(object);
    return stop(&w);
}

CHILD_TEST(server_revoke_limit_given_is_kept, give_revoke_limit)

static int give_lease_limit(void *arg)
{
    fixture w;
    gvm_object *object;
    gvm_lease lease;
    other o;

    (void)arg;
    use_devices(1);
    choose_path(&w);
    for (uint32_t timeout_ms = 0; timeout_ms <= 300; timeout_ms += 300) {
        CHILD_EXPECT(start(&w, (gvm_keeper_options){.path = w.path, .lease_limit_ms = timeout_ms}) == 0);
        CHILD_EXPECT(make(w.keeper, "/x", 1, 0, &object) == GVM_OK);
        CHILD_EXPECT(start_other(&w, true, &o) == 0);
        if (timeout_ms == 0) { /* for ever */
            CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, 500, &lease) == GVM_E_TIMEOUT);
            CHILD_EXPECT(keeper_info(&w).cut_offs == 0);
        } else {
            CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) ==
                         GVM_OK);
            CHILD_EXPECT(keeper_info(&w).cut_offs == 1);
        }
        CHILD_EXPECT(end_other(&o) == 0);
        gvm_object_close(object);
        stop(&w);
    }
    return 0;
}

/* A writer that is cut off: it lives, or is killed. */
static int give_fence(void *arg)
{
    fixture w;
    gvm_object *object;
    gvm_lease lease;
    other o;
    int status;

    (void)arg;
    use_devices(1);
    choose_path(&w);
    for (uint32_t fence = GVM_FENCE_COPY; fence <= GVM_FENCE_KILL; fence++) {
        CHILD_EXPECT(start(&w, (gvm_keeper_options){
                                   .path = w.path, .lease_limit_ms = 200, .fence = fence}) == 0);
        CHILD_EXPECT(make(w.keeper, "/x", 1, 0, &object) == GVM_OK);
        CHILD_EXPECT(start_other(&w, true, &o) == 0);
        CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
        if (fence == GVM_FENCE_COPY) {
            CHILD_EXPECT(!has_line(&w, "it was killed"));
            CHILD_EXPECT(waitpid(o.pid, &status, WNOHANG) == 0 && end_other(&o) == 0);
        } else {
            EVENTUALLY(has_line(&w, "it was killed"));
            CHILD_EXPECT(waitpid(o.pid, &status, 0) == o.pid && WIFSIGNALED(status));
            CHILD_EXPECT(WTERMSIG(status) == SIGKILL);
            close(o.ready);
        }
        gvm_object_close(object);
        stop(&w);
    }
    return 0;
}

CHILD_TEST_NOT_VALGRIND(server_fence_given_decides_on_writers_cut_off, give_fence,
                        "it does not know pidfd_send_signal(), by which the keeper kills")
CHILD_TEST(server_lease_limit_given_is_kept, give_lease_limit)

/* The trace's second last number is how many acquires there were, its last one the hint. */
static int give_trace(void *arg)
{
    const gvm_acquire_options hot = {.struct_size = sizeof hot, .hint = GVM_HINT_HOT};
    fixture w;
    gvm_object *object;
    gvm_lease lease;
    char line[128], last[128] = "", *hint;
    FILE *file;

    (void)arg;
    use_devices(1);
    choose_path(&w);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.trace_path = w.path}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 1, 0, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, &hot, GVM_FOREVER, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    EVENTUALLY(keeper_info(&w).acquires == 1);
    gvm_object_close(object);
    stop(&w);
    file = fopen(w.path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        strcpy(last, line);
    CHILD_EXPECT(file != NULL && fclose(file) == 0 && unlink(w.path) == 0);
    hint = strrchr(last, ' ');
    CHILD_EXPECT(last[0] == '0' && hint != NULL && atoi(hint) == GVM_HINT_HOT);
    return 0;
}

CHILD_TEST(server_trace_path_given_has_acquires_with_hints, give_trace)

/* ---- gvm_object_options */

static int give_object_options(void *arg)
{
    const gvm_object_options o = {.struct_size = sizeof o,
                                  .chunk_bytes = 4 * MIB,
                                  .size_bytes = 5 * MIB,
                                  .device = 1,
                                  .mode = 0644,
                                  .metadata = "about it",
                                  .metadata_bytes = 8};
    fixture w;
    gvm_object *object;
    gvm_object_info info = {.struct_size = sizeof info};
    char metadata[16] = "", lengthy[GVM_METADATA_START_BYTES + 1];
    uint32_t len = 0;

    (void)arg;
    use_devices(2);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){0}) == 0);
    CHILD_EXPECT(gvm_object_create(w.keeper, "/x", 32 * MIB, &o, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_get_info(object, &info) == GVM_OK);
    CHILD_EXPECT(info.chunk_bytes == 4 * MIB && info.size_bytes == 5 * MIB);
    CHILD_EXPECT(info.device == 1 && info.mode == 0644 && info.metadata_bytes == 8);
    CHILD_EXPECT(gvm_object_get_metadata(object, metadata, sizeof metadata, &len) == GVM_OK);
    CHILD_EXPECT(len == 8 && strcmp(metadata, "about it") == 0);
    CHILD_EXPECT(memcmp(info.metadata_start, "about it", 9) == 0 && info.metadata_start[63] == 0);
    memset(lengthy, 'm', sizeof lengthy);
    CHILD_EXPECT(gvm_object_set_metadata(object, lengthy, sizeof lengthy) == GVM_OK);
    CHILD_EXPECT(gvm_object_get_info(object, &info) == GVM_OK && info.metadata_bytes == 65);
    CHILD_EXPECT(memcmp(info.metadata_start, lengthy, GVM_METADATA_START_BYTES) == 0);
    gvm_object_close(object);
    CHILD_EXPECT(gvm_object_create(w.keeper, "/x", 32 * MIB, NULL, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_get_info(object, &info) == GVM_OK);
    CHILD_EXPECT(info.chunk_bytes == 2 * MIB && info.size_bytes == 0);
    CHILD_EXPECT(info.device == 0 && info.mode == 0600 && info.metadata_bytes == 0);
    return stop(&w);
}

CHILD_TEST(object_options_given_are_the_objects, give_object_options)

static int keep_objects(void *arg)
{
    fixture w;
    gvm_client *creator;
    gvm_object *object;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){0}) == 0 && join(&w, &creator) == 0);
    CHILD_EXPECT(make(creator, "/kept", 1, GVM_OBJECT_KEEP, &object) == GVM_OK);
    CHILD_EXPECT(make(creator, "/lost", 1, 0, &object) == GVM_OK);
    gvm_client_close(creator);
    EVENTUALLY(gvm_object_open(w.keeper, "/lost", 0, &object) == GVM_E_ABSENT);
    CHILD_EXPECT(gvm_object_open(w.keeper, "/kept", 0, &object) == GVM_OK);
    return stop(&w);
}

CHILD_TEST(object_kept_outlives_its_creator, keep_objects)

/* After it was moved out and in again by reading, its host copies are gone. */
static int leave_untracked(void *arg)
{
    const gvm_acquire_options hot = {.struct_size = sizeof hot, .hint = GVM_HINT_HOT};

    (void)arg;
    use_devices(1);
    for (uint32_t flags = 0; flags <= GVM_OBJECT_UNTRACKED; flags += GVM_OBJECT_UNTRACKED) {
        fixture w;
        gvm_object *object;
        gvm_object_info info = {.struct_size = sizeof info};
        gvm_lease lease;
        uint64_t bytes;

        CHILD_EXPECT(start(&w, (gvm_keeper_options){0}) == 0);
        CHILD_EXPECT(make(w.keeper, "/x", 2, flags, &object) == GVM_OK);
        CHILD_EXPECT(gvm_client_evict(w.keeper, "/x", GVM_BYTES_UNLIMITED, &bytes) == GVM_OK &&
                     bytes == 2 * CHUNK);
        CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, &hot, GVM_FOREVER, &lease) == GVM_OK);
        CHILD_EXPECT(gvm_object_release(object, &lease) == GVM_OK);
        CHILD_EXPECT(gvm_object_get_info(object, &info) == GVM_OK && info.device_bytes == 2 * CHUNK);
        CHILD_EXPECT(info.untracked == (flags != 0));
        CHILD_EXPECT(info.duplicate_bytes == (flags != 0 ? 0 : 2 * CHUNK));
        stop(&w);
    }
    return 0;
}

CHILD_TEST(object_untracked_has_no_copies, leave_untracked)

/* ---- flags of opening and publishing */

static int open_with_flags(void *arg)
{
    fixture w;
    gvm_object *object, *view;
    gvm_lease lease;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){0}) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 1, 0, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(w.keeper, "/x", 0, &view) == GVM_OK);
    CHILD_EXPECT(gvm_object_grow(view, 2 * CHUNK) == GVM_OK);
    gvm_object_close(view);
    CHILD_EXPECT(gvm_object_open(w.keeper, "/x", GVM_OPEN_READONLY, &view) == GVM_OK);
    CHILD_EXPECT(gvm_object_grow(view, 3 * CHUNK) == GVM_E_DENIED);
    CHILD_EXPECT(gvm_object_acquire(view, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_E_READONLY);
    gvm_object_close(view);
    /* In this process the creator itself has that address. */
    CHILD_EXPECT(gvm_object_open(w.keeper, "/x", GVM_OPEN_SAME_ADDRESS, &view) == GVM_E_ADDRESS);
    CHILD_EXPECT(gvm_object_open(w.keeper, "/x", GVM_OPEN_READONLY | GVM_OPEN_LINK, &view) ==
                 GVM_E_ABSENT);
    CHILD_EXPECT(gvm_object_link(object, "/x", 0400, CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(w.keeper, "/x", GVM_OPEN_READONLY | GVM_OPEN_LINK, &view) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(view, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK &&
                 lease.size_bytes == CHUNK);
    CHILD_EXPECT(gvm_object_release(view, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_unlink(w.keeper, "/x") == GVM_OK);
    CHILD_EXPECT(gvm_object_unlink(w.keeper, "/x") == GVM_E_ABSENT);
    gvm_object_close(view);
    return stop(&w);
}

CHILD_TEST(object_opened_with_flags_obeys_them, open_with_flags)

/* How a view of an object is read by a kernel without a lease. */
typedef struct unleased {
    uint32_t flags;     /* of opening the view */
    bool leased, evict; /* beforehand */
    gvm_status status;
} unleased;

static int read_unleased(void *arg)
{
    const unleased *how = arg;
    gvm_object_info info = {.struct_size = sizeof info};
    uint64_t bytes, sum, found = 0;
    gvm_object *object, *view;
    gvm_device *device;
    gvm_lease lease;
    static fixture w; /* the server logs into it until the child ends */

    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){0}) == 0);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(make(w.keeper, "/x", 2, 0, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_kernel_fill_random_f64(device, lease.address, 2 * CHUNK / 8, 0, 1, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_kernel_checksum(device, lease.address, 2 * CHUNK, NULL, &sum) == GVM_OK);
    CHILD_EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(w.keeper, "/x", how->flags, &view) == GVM_OK);
    if (how->leased) {
        CHILD_EXPECT(gvm_object_acquire(view, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
        CHILD_EXPECT(gvm_object_release(view, &lease) == GVM_OK);
    }
    if (how->evict)
        CHILD_EXPECT(gvm_client_evict(w.keeper, "/x", GVM_BYTES_UNLIMITED, &bytes) == GVM_OK &&
                     bytes == 2 * CHUNK);
    CHILD_EXPECT(gvm_object_get_info(view, &info) == GVM_OK);
    CHILD_EXPECT(gvm_kernel_checksum(device, info.address, 2 * CHUNK, NULL, &found) == how->status);
    CHILD_EXPECT((how->status == GVM_OK) == (found == sum));
    return 0; /* a context that is lost is not given back */
}

static void object_is_readable_without_a_lease_if_opened_mapped_alone(void **state)
{
    static unleased ways[] = {
        {0, false, false, GVM_E_LOST},
        {0, true, true, GVM_E_LOST},
        {0, true, false, GVM_OK}, /* by chance */
        {GVM_OPEN_MAPPED, false, false, GVM_OK},
        {GVM_OPEN_MAPPED, false, true, GVM_OK},
        {GVM_OPEN_MAPPED | GVM_OPEN_READONLY, true, true, GVM_OK},
    };

    (void)state;
    SKIP_UNDER_VALGRIND(VALGRIND_FAULT);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        assert_child_succeeds(read_unleased, &ways[i]);
}

static int publish_with_flags(void *arg)
{
    fixture w;
    gvm_client *creator;
    gvm_object *first, *second, *found;
    gvm_object_info one = {.struct_size = sizeof one}, two = {.struct_size = sizeof two};

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){0}) == 0 && join(&w, &creator) == 0);
    CHILD_EXPECT(make(creator, NULL, 1, 0, &first) == GVM_OK &&
                 make(creator, NULL, 1, 0, &second) == GVM_OK);
    CHILD_EXPECT(gvm_object_publish(first, "/x", 0) == GVM_OK);
    CHILD_EXPECT(gvm_object_publish(second, "/x", 0) == GVM_E_EXISTS);
    CHILD_EXPECT(gvm_object_publish(second, "/x", GVM_PUBLISH_REPLACE) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(w.keeper, "/x", 0, &found) == GVM_OK);
    CHILD_EXPECT(gvm_object_get_info(found, &one) == GVM_OK &&
                 gvm_object_get_info(second, &two) == GVM_OK);
    CHILD_EXPECT(one.id == two.id);
    gvm_object_close(found);
    CHILD_EXPECT(make(creator, NULL, 1, 0, &second) == GVM_OK);
    CHILD_EXPECT(gvm_object_publish(second, "/private", GVM_PUBLISH_PRIVATE) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(w.keeper, "/private", 0, &found) == GVM_OK);
    gvm_object_close(found);
    gvm_client_close(creator);
    EVENTUALLY(gvm_object_open(w.keeper, "/private", 0, &found) == GVM_E_ABSENT);
    CHILD_EXPECT(gvm_object_open(w.keeper, "/x", 0, &found) == GVM_OK);
    return stop(&w);
}

CHILD_TEST(object_published_with_flags_obeys_them, publish_with_flags)

/* ---- whose rights a handed socket has */

#define STRANGER 65534u

/* The other process, of another user where this one is root's: what only the keeper's own user may. */
static int be_stranger(char **argv)
{
    gvm_client *client;

    if (geteuid() == 0 && setuid(STRANGER) != 0)
        return 1;
    if (gvm_client_adopt(atoi(argv[2]), &client) != GVM_OK ||
        gvm_client_set_quota(client, STRANGER, CHUNK) != GVM_OK)
        return 2;
    gvm_client_close(client);
    return 0;
}

static int hand_socket_over(void *arg)
{
    char fd_text[16];
    int fd, status = -1;
    fixture w;
    pid_t pid;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){0}) == 0);
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK);
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    pid = fork();
    CHILD_EXPECT(pid >= 0);
    if (pid == 0) { /* nothing of the keeper's threads is here; what the library had is not used */
        (void)fcntl(fd, F_SETFD, 0);
        execl(own_path(), "other", "stranger", fd_text, (char *)NULL);
        _exit(127);
    }
    close(fd);
    CHILD_EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHILD_EXPECT(gvm_keeper_open_socket(NULL, &fd) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, NULL) == GVM_E_INVALID);
    return stop(&w);
}

CHILD_TEST(socket_handed_over_has_the_keepers_own_rights, hand_socket_over)

/* ---- defaults */

static int use_defaults(void *arg)
{
    const gvm_object_options object_options = gvm_object_options_init();
    const gvm_acquire_options acquire_options = gvm_acquire_options_init();
    gvm_keeper_options options = gvm_keeper_options_init();
    const gvm_keeper_options zeros = {.struct_size = sizeof zeros};
    gvm_object *object;
    gvm_lease lease;
    fixture w;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(memcmp(&options, &zeros, sizeof zeros) == 0);
    CHILD_EXPECT(object_options.struct_size == sizeof object_options && object_options.size_bytes == 0);
    options.path = "";
    CHILD_EXPECT(gvm_keeper_start(&options, &w.server) == GVM_OK && join(&w, &w.keeper) == 0);
    CHILD_EXPECT(gvm_object_create(w.keeper, NULL, CHUNK, &object_options, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_grow(object, CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, &acquire_options, GVM_FOREVER, &lease) ==
                 GVM_OK);
    CHILD_EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    return stop(&w);
}

CHILD_TEST(options_initialised_are_all_defaults, use_defaults)

/* ---- time-outs of calls */

static int acquire_with_timeouts(void *arg)
{
    fixture w;
    gvm_object *object, *view;
    gvm_lease lease, second;
    gvm_client *keeper;
    uint64_t since_ms;

    (void)arg;
    use_devices(1);
    CHILD_EXPECT(start(&w, (gvm_keeper_options){0}) == 0 && join(&w, &keeper) == 0);
    CHILD_EXPECT(make(w.keeper, "/x", 1, 0, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(keeper, "/x", 0, &view) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_OK);
    since_ms = now_ms();
    CHILD_EXPECT(gvm_object_acquire(view, GVM_LEASE_READ, NULL, 300, &second) == GVM_E_TIMEOUT);
    CHILD_EXPECT(now_ms() - since_ms >= 300);
    CHILD_EXPECT(gvm_object_acquire(view, GVM_LEASE_READ, NULL, GVM_TRY, &second) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    gvm_client_close(keeper);
    return stop(&w);
}

CHILD_TEST(acquire_timeout_given_is_kept, acquire_with_timeouts)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_path_given_is_where_it_listens),
        cmocka_unit_test(server_listen_fd_given_is_where_it_listens),
        cmocka_unit_test(server_socket_mode_given_is_the_sockets),
        cmocka_unit_test(server_devices_given_are_served),
        cmocka_unit_test(server_clients_max_given_is_the_most),
        cmocka_unit_test(server_budgets_given_are_in_force),
        cmocka_unit_test(server_device_leave_given_is_left_at_the_start),
        cmocka_unit_test(server_host_ahead_given_is_made),
        cmocka_unit_test(server_device_keep_given_is_kept),
        cmocka_unit_test(server_driver_free_given_is_left_to_others),
        cmocka_unit_test(server_quotas_given_are_kept),
        cmocka_unit_test(server_revoke_limit_given_is_kept),
        cmocka_unit_test(server_lease_limit_given_is_kept),
        cmocka_unit_test(server_fence_given_decides_on_writers_cut_off),
        cmocka_unit_test(server_trace_path_given_has_acquires_with_hints),
        cmocka_unit_test(object_options_given_are_the_objects),
        cmocka_unit_test(object_kept_outlives_its_creator),
        cmocka_unit_test(object_untracked_has_no_copies),
        cmocka_unit_test(object_opened_with_flags_obeys_them),
        cmocka_unit_test(object_is_readable_without_a_lease_if_opened_mapped_alone),
        cmocka_unit_test(object_published_with_flags_obeys_them),
        cmocka_unit_test(socket_handed_over_has_the_keepers_own_rights),
        cmocka_unit_test(options_initialised_are_all_defaults),
        cmocka_unit_test(acquire_timeout_given_is_kept),
    };

    if (argc == 3)
        return be_stranger(argv);
    return argc == 4 ? be_other(argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
