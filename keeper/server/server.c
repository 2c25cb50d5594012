/* Running a keeper: options, devices, threads; see server.h and gvmem/keeper.h. */
#include "keeper/server/server.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "base/struct.h"
#include "base/text.h"
#include "keeper/protocol/path.h"
#include "keeper/server/budget.h"

_Static_assert(GVM_KEEPER_DEVICES_MAX == GVMI_DEVICES_MAX, "one limit");

#define REVOKE_TIMEOUT_MS 10000u
#define LEND_AFTER_MS 10000u
#define DEVICE_KEEP_BYTES (256 * GVMI_MIB)
#define FDS_APART 64      /* of the process, for what is neither a frame's nor a client's */
#define FRAME_FDS_FEW 512 /* fewer are worth a line in the log */
#define MODE_MAX 0777u
#define NOBODY UINT32_MAX /* no user has that number */
/* Accepting is for all users: a full backlog of others' connections is in the way of each. */
#define ACCEPT_WEIGHT 4

/* ---- options */

static gvm_status check_options(const gvm_keeper_options *o)
{
    if (o->listen_fd < 0 || (o->listen_fd > 0 && o->path != NULL && o->path[0] != '\0'))
        return gvm_error_set(GVM_E_INVALID, "listen_fd is %d: give either it or a path",
                             (int)o->listen_fd);
    if (o->socket_mode > MODE_MAX)
        return gvm_error_set(GVM_E_INVALID, "%#o is no mode for a socket", (unsigned)o->socket_mode);
    if (o->devices != NULL && (o->device_count == 0 || o->device_count > GVMI_DEVICES_MAX))
        return gvm_error_set(GVM_E_INVALID, "a keeper serves 1 to %d devices, not %u",
                             GVMI_DEVICES_MAX, (unsigned)o->device_count);
    for (uint32_t i = 0; o->devices != NULL && i < o->device_count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (o->devices[i] == o->devices[j])
                return gvm_error_set(GVM_E_INVALID, "device %d is given twice", (int)o->devices[i]);
    if (o->clients_max > GVMI_CLIENTS_MAX)
        return gvm_error_set(GVM_E_INVALID, "a keeper has at most %u clients, not %u",
                             GVMI_CLIENTS_MAX, (unsigned)o->clients_max);
    if (o->device_budget_bytes >= GVM_BYTES_NONE || o->host_budget_bytes >= GVM_BYTES_NONE)
        return gvm_error_set(GVM_E_INVALID,
                             "a budget is a number of bytes, or 0 for the default: GVM_BYTES_NONE and "
                             "GVM_BYTES_UNLIMITED are no budgets");
    if (o->fence > GVM_FENCE_KILL)
        return gvm_error_set(GVM_E_INVALID, "unknown fence %u", (unsigned)o->fence);
    if ((o->flags & ~(uint32_t)GVM_KEEPER_RESTRICT_OTHERS) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown keeper flags %#x", (unsigned)o->flags);
    if (o->quota_count > 0 && o->quotas == NULL)
        return gvm_error_set(GVM_E_INVALID, "quotas is NULL");
    if (o->reserved != 0)
        return gvm_error_set(GVM_E_INVALID, "reserved is %u, not 0", (unsigned)o->reserved);
    if (o->lenders == NULL && o->lender_count > 0)
        return gvm_error_set(GVM_E_INVALID, "lenders is NULL");
    for (uint32_t i = 0; i < o->quota_count; i++)
        if (o->quotas[i].reserved != 0)
            return gvm_error_set(GVM_E_INVALID, "the quota of user %u has reserved %u, not 0",
                                 (unsigned)o->quotas[i].uid, (unsigned)o->quotas[i].reserved);
    return GVM_OK;
}

static uint64_t quota_of_option(uint64_t quota_bytes)
{
    switch (quota_bytes) {
    case 0: return GVM_BYTES_UNLIMITED;
    case GVM_BYTES_NONE: return 0;
    default: return quota_bytes;
    }
}

static void fill_config(gvm_keeper *server, const gvm_keeper_options *o)
{
    gvmi_machine_config *config = &server->config;

    config->host_ahead_bytes = gvmi_amount(o->host_ahead_bytes, 0);
    config->device_keep_bytes = gvmi_amount(o->device_keep_bytes, DEVICE_KEEP_BYTES);
    config->quota_bytes = quota_of_option(o->quota_bytes);
    config->clients_max = o->clients_max != 0 ? o->clients_max : GVMI_CLIENTS_MAX;
    config->objects_max = GVMI_OBJECTS_MAX;
    config->revoke_limit_ms = o->revoke_limit_ms != 0 ? o->revoke_limit_ms : REVOKE_TIMEOUT_MS;
    config->lease_limit_ms = o->lease_limit_ms;
    config->lend_after_ms = LEND_AFTER_MS;
    config->fence_kills = o->fence == GVM_FENCE_KILL;
    config->restrict_others = (o->flags & GVM_KEEPER_RESTRICT_OTHERS) != 0;
    config->unread = gvmi_connection_has_input;
    config->unread_context = server;
    config->uid = geteuid();
    config->pid = (uint64_t)getpid();
    if (getentropy(&config->random, sizeof config->random) != 0) /* a kernel that has none yet */
        config->random = (uint64_t)gvmi_now_ns();
}

/* Each frame is one descriptor. The soft limit is 1024 on most systems, for the sake of programs that
 * use select(2). */
static int raise_descriptor_limit(void)
{
    struct rlimit limit = {0};

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return INT32_MAX;
    if (limit.rlim_cur < limit.rlim_max) {
        const rlim_t before = limit.rlim_cur;

        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = before;
    }
    return limit.rlim_cur < INT32_MAX ? (int)limit.rlim_cur : INT32_MAX;
}

/* From which number on descriptors are not for frames, which have half of them at least: of few there are as many clients as the rest
 * suffices for. */
static int frame_fd_limit(gvm_keeper *server)
{
    const int limit = raise_descriptor_limit(),
              most = (limit / 2 - FDS_APART) / (int)GVMI_CONNECTION_FDS;
    gvmi_machine_config *config = &server->config;
    int apart;

    if ((int64_t)config->clients_max > most) {
        config->clients_max = most > 1 ? (uint32_t)most : 1;
        gvmi_server_log(
            server,
            "at most %u clients may connect: raise the limit of open files (ulimit -n, LimitNOFILE=)",
            (unsigned)config->clients_max);
    }
    apart = (int)(config->clients_max * GVMI_CONNECTION_FDS) + FDS_APART;
    return apart < limit / 2 ? limit - apart : limit / 2;
}

/* A keeper with few descriptors starts all the same: a small one needs few. */
static void note_descriptors(gvm_keeper *server, int frame_limit)
{
    if (frame_limit < FRAME_FDS_FEW)
        gvmi_server_log(server,
                        "about %d file descriptors are left for memory, one for each chunk: raise the limit of "
                        "open files (ulimit -n, LimitNOFILE=), or use larger chunks",
                        frame_limit);
}

static void note_passing(gvm_keeper *server, bool others)
{
    if (others && server->passing_max > 0)
        gvmi_server_log(server,
                        "at most %u file descriptors are on their way to clients at a time, as the keeper lacks "
                        "CAP_SYS_RESOURCE: each user gets a part of them",
                        (unsigned)server->passing_max);
}

/* ---- devices */

/* Of what is free at the start. */
static uint64_t default_budget(uint64_t free_bytes, uint64_t leave_bytes)
{
    const uint64_t most = free_bytes / 10 * 9;

    if (leave_bytes > free_bytes / 2)
        leave_bytes = free_bytes / 2;
    return free_bytes - leave_bytes < most ? free_bytes - leave_bytes : most;
}

static gvm_status choose_budget(const gvm_device_info *info, const gvm_keeper_options *o,
                                uint64_t *budget_bytes)
{
    const uint64_t wanted = o->device_budget_bytes;
    const uint64_t leave_bytes = gvmi_amount(o->driver_free_bytes, 0);
    char wanted_text[32], total_text[32];

    if (leave_bytes >= info->total_bytes)
        return gvm_error_set(GVM_E_NOSPACE,
                             "%s cannot be left to other programs: device %d has %s, of which nothing would "
                             "remain for objects: leave less",
                             gvmi_size_text(leave_bytes, wanted_text), (int)info->ordinal,
                             gvmi_size_text(info->total_bytes, total_text));
    if (wanted > info->total_bytes)
        return gvm_error_set(GVM_E_NOSPACE,
                             "the budget of %s is more than the %s that device %d has: give a smaller one",
                             gvmi_size_text(wanted, wanted_text),
                             gvmi_size_text(info->total_bytes, total_text), (int)info->ordinal);
    *budget_bytes = wanted != 0
                        ? wanted
                        : default_budget(info->free_bytes, gvmi_amount(o->device_leave_bytes, 0));
    *budget_bytes = gvmi_round_down(*budget_bytes, GVM_CHUNK_BYTES_MIN);
    if (*budget_bytes == 0)
        return gvm_error_set(GVM_E_NOSPACE,
                             "device %d has no memory free, or the budget is under 2 MiB",
                             (int)info->ordinal);
    return GVM_OK;
}

static gvm_status open_device(gvm_keeper *server, int32_t ordinal, const gvm_keeper_options *o)
{
    gvmi_machine_device *about = &server->config.devices[server->config.device_count];
    gvm_device_info info = {.struct_size = sizeof info};
    gvm_device *device;
    gvm_status status = gvm_device_open(ordinal, &device);

    if (status != GVM_OK)
        return status;
    status = gvm_device_get_info(device, &info);
    if (status == GVM_OK && (!info.vmm || !info.share_fd))
        status = gvm_error_set(GVM_E_NOTSUP, "device %d %s: a keeper needs both", (int)ordinal,
                               info.vmm ? "cannot export memory as file descriptors"
                                        : "has no virtual memory management");
    if (status == GVM_OK)
        status = choose_budget(&info, o, &about->budget_bytes);
    if (status != GVM_OK) {
        gvm_device_close(device);
        return status;
    }
    memcpy(about->uuid, info.uuid, sizeof about->uuid);
    memcpy(about->name, info.name, sizeof about->name);
    about->ordinal = ordinal;
    server->devices[server->config.device_count++] = device;
    if (!info.host_tier) /* then nothing can be moved to the host */
        server->config.host_budget_bytes = 0;
    return GVM_OK;
}

static gvm_status open_devices(gvm_keeper *server, const gvm_keeper_options *o)
{
    gvmi_host_memory memory;
    int32_t count;
    gvm_status status = gvm_device_count(&count);

    if (status != GVM_OK)
        return status;
    gvmi_host_memory_read("", &memory);
    status = gvmi_host_budget(&memory, o->host_budget_bytes, gvmi_amount(o->host_ahead_bytes, 0),
                              &server->config.host_budget_bytes);
    if (status != GVM_OK)
        return status;
    if (o->devices != NULL)
        count = (int32_t)o->device_count;
    if (count == 0)
        return gvm_error_set(GVM_E_NODEVICE, "there is no device to serve");
    for (int32_t i = 0; i < count && i < GVMI_DEVICES_MAX && status == GVM_OK; i++)
        status = open_device(server, o->devices != NULL ? o->devices[i] : i, o);
    return status;
}

/* ---- lending */

static gvm_status check_lenders(const gvm_keeper *server, const gvm_keeper_options *o)
{
    for (uint32_t i = 0; o->lenders != NULL && i < o->lender_count; i++) {
        uint32_t d = 0;

        while (d < server->config.device_count && server->config.devices[d].ordinal != o->lenders[i])
            d++;
        if (d == server->config.device_count)
            return gvm_error_set(GVM_E_INVALID, "device %d is to lend memory, but is not served",
                                 (int)o->lenders[i]);
    }
    return GVM_OK;
}

static bool is_lender(const gvm_keeper_options *o, int32_t ordinal)
{
    bool found = o->lenders == NULL;

    for (uint32_t i = 0; i < o->lender_count && !found; i++)
        found = o->lenders[i] == ordinal;
    return found;
}

/* Does one device reach the other's memory, with atomics, as its own? Over a link without them, which is hardly faster than that to
 * the host, programs would find other atomics on lent memory than on their device. */
static bool reaches(const gvm_device *device, const gvm_device *other)
{
    int can = 0, atomics = 0;

    return gvmi_cu->cuDeviceCanAccessPeer(&can, device->cu, other->cu) == CUDA_SUCCESS && can != 0 &&
           gvmi_cu->cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                            device->cu, other->cu) == CUDA_SUCCESS &&
           atomics != 0;
}

/* Both ways: the lender copies what it gets, and the other what it gets back. */
static gvm_status find_lenders(gvm_keeper *server, const gvm_keeper_options *o)
{
    gvmi_machine_config *config = &server->config;
    gvm_status status = check_lenders(server, o);

    for (uint32_t d = 0; d < config->device_count && status == GVM_OK; d++)
        for (uint32_t lender = 0; lender < config->device_count; lender++)
            if (lender != d && is_lender(o, config->devices[lender].ordinal) &&
                reaches(server->devices[d], server->devices[lender]) &&
                reaches(server->devices[lender], server->devices[d]))
                config->devices[d].lenders |= 1u << lender;
    return status;
}

/* Of each device those that lend to it, and to which it lends. */
static void find_peers(const gvmi_machine_config *config, uint32_t peers[GVMI_DEVICES_MAX])
{
    memset(peers, 0, GVMI_DEVICES_MAX * sizeof peers[0]);
    for (uint32_t d = 0; d < config->device_count; d++)
        for (uint32_t other = 0; other < config->device_count; other++)
            if (((config->devices[d].lenders >> other | config->devices[other].lenders >> d) & 1) != 0)
                peers[d] |= 1u << other;
}

/* ---- threads and what they share */

/* others: more users than the keeper's own may connect. */
static gvm_status start_movers(gvm_keeper *server, bool others)
{
    const int frame_limit = frame_fd_limit(server);
    uint32_t peers[GVMI_DEVICES_MAX];
    gvm_status status;

    find_peers(&server->config, peers);
    status = gvmi_frames_create(server->devices, peers, server->config.device_count, frame_limit,
                                &server->frames);
    note_descriptors(server, frame_limit);
    gvmi_passing_start(server);
    note_passing(server, others);
    if (status == GVM_OK)
        status = gvmi_done_create(&server->done);
    for (uint32_t i = 0; i < server->config.device_count && status == GVM_OK; i++)
        status = gvmi_mover_start(server->devices[i], i, server->frames, server->done,
                                  &server->movers[i]);
    return status;
}

/* As bench/traces.h has it. Each start of a keeper begins anew with the comment, since objects are
 * numbered anew. */
static void trace_acquire(void *context, uint32_t device, uint64_t object, uint64_t bytes,
                          uint32_t count, uint32_t hint)
{
    gvm_keeper *server = context;

    fprintf(server->trace, "%u %llu %llu %u %u\n", device, (unsigned long long)object,
            (unsigned long long)bytes, count, hint);
}

static gvm_status open_trace(gvm_keeper *server, const char *path)
{
    if (path == NULL)
        return GVM_OK;
    server->trace = fopen(path, "ae");
    if (server->trace == NULL)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "fopen", "cannot append to %s",
                                GVMI_TEXT_NAME(path));
    fprintf(server->trace, "# gvmem-keeper trace 1\n");
    server->config.trace = trace_acquire;
    server->config.trace_context = server;
    return GVM_OK;
}

static gvm_status make_machine(gvm_keeper *server, const gvm_keeper_options *o)
{
    gvm_status status = gvmi_machine_create(&server->config, &server->machine);

    for (uint32_t i = 0; i < o->quota_count && status == GVM_OK; i++)
        status = gvmi_machine_set_quota(server->machine, o->quotas[i].uid,
                                        quota_of_option(o->quotas[i].quota_bytes));
    return status;
}

static gvm_status start_listening(gvm_keeper *server, const gvm_keeper_options *o)
{
    const mode_t mode = o->socket_mode != 0 ? (mode_t)o->socket_mode : 0600;
    char path[GVMI_KEEPER_PATH_BYTES];
    bool anybodys;
    gvm_status status;

    if (o->listen_fd > 0)
        return gvmi_listener_adopt(o->listen_fd, &server->listener);
    if (o->path != NULL)
        return o->path[0] == '\0' ? GVM_OK
                                  : gvmi_listener_open(o->path, mode, false, &server->listener);
    status = gvmi_keeper_default_path(path, &anybodys);
    return status == GVM_OK ? gvmi_listener_open(path, mode, true, &server->listener) : status;
}

static gvm_status make_loop(gvm_keeper *server)
{
    gvm_status status;

    server->on_listen.kind = GVMI_SOURCE_LISTEN;
    server->on_wake.kind = GVMI_SOURCE_WAKE;
    server->on_done.kind = GVMI_SOURCE_DONE;
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "epoll_create1", "cannot wait for clients");
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->wake < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "eventfd", "cannot wait for clients");
    status = gvmi_server_watch(server, server->wake, EPOLLIN, &server->on_wake);
    if (status == GVM_OK)
        status = gvmi_server_watch(server, gvmi_done_fd(server->done), EPOLLIN, &server->on_done);
    if (status == GVM_OK && server->listener.fd >= 0)
        status = gvmi_server_watch(server, server->listener.fd, EPOLLIN, &server->on_listen);
    if (status == GVM_OK)
        status = gvmi_schedule_join(&server->schedule, NOBODY, server, &server->newcomers);
    if (status == GVM_OK)
        server->newcomers.user->weight = ACCEPT_WEIGHT;
    return status;
}

static gvm_status start_thread(gvm_keeper *server)
{
    const int code = pthread_create(&server->thread, NULL, gvmi_server_run, server);

    if (code != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, code, "pthread_create", "cannot start a thread");
    (void)pthread_setname_np(server->thread, "gvmem-server");
    return GVM_OK;
}

/* ---- life */

static gvm_keeper *server_new(void)
{
    gvm_keeper *server = calloc(1, sizeof *server);

    if (server == NULL)
        return NULL;
    gvmi_mutex_init(&server->lock, GVMI_RANK_QUEUE);
    server->listener = (gvmi_listener){.fd = -1, .lock = -1};
    server->epoll = server->wake = -1;
    return server;
}

static void free_connections(gvm_keeper *server)
{
    gvmi_schedule_clear(&server->schedule);
    for (gvmi_connection *connection = server->connections, *next; connection != NULL;
         connection = next) {
        next = connection->next;
        gvmi_connection_free(server, connection);
    }
    for (gvmi_connection *connection = server->ended, *next; connection != NULL; connection = next) {
        next = connection->next;
        gvmi_connection_free(server, connection);
    }
    gvmi_schedule_leave(&server->schedule, &server->newcomers);
    for (gvmi_handed *handed = server->handed, *next; handed != NULL; handed = next) {
        next = handed->next;
        close(handed->socket);
        free(handed);
    }
    free(server->by_client);
}

/* Whatever of it there is; the thread is over or never was. */
static void server_free(gvm_keeper *server)
{
    gvm_error error = gvmi_error_save();

    gvmi_listener_close(&server->listener);
    for (uint32_t i = 0; i < server->config.device_count; i++)
        gvmi_mover_stop(server->movers[i]);
    if (server->machine != NULL)
        gvmi_machine_destroy(server->machine); /* it looks at the connections' pages */
    free_connections(server);
    gvmi_frames_destroy(server->frames);
    gvmi_done_destroy(server->done);
    if (server->epoll >= 0)
        close(server->epoll);
    if (server->wake >= 0)
        close(server->wake);
    if (server->trace != NULL)
        fclose(server->trace);
    for (uint32_t i = 0; i < server->config.device_count; i++)
        gvm_device_close(server->devices[i]);
    gvmi_mutex_destroy(&server->lock);
    gvmi_registry_retire(server);
    gvm_error_restore(&error);
}

static gvm_status server_start(gvm_keeper *server, const gvm_keeper_options *o)
{
    gvm_status status;

    fill_config(server, o);
    server->driver_free_bytes = gvmi_amount(o->driver_free_bytes, 0);
    gvmi_identity_read(&server->identity);
    server->log = (gvmi_log){.write = o->log, .context = o->log_context};
    status = open_devices(server, o);
    if (status == GVM_OK)
        status = find_lenders(server, o);
    if (status == GVM_OK)
        status = start_listening(server, o);
    if (status == GVM_OK)
        status = open_trace(server, o->trace_path);
    if (status == GVM_OK)
        status = start_movers(server, o->listen_fd > 0 || (o->socket_mode & 077) != 0);
    if (status == GVM_OK)
        status = make_machine(server, o);
    if (status == GVM_OK)
        status = make_loop(server);
    return status == GVM_OK ? start_thread(server) : status;
}

static void stop_thread(gvm_keeper *server)
{
    const uint64_t one = 1;

    atomic_store(&server->stop, true);
    (void)!write(server->wake, &one, sizeof one);
    pthread_join(server->thread, NULL);
    gvmi_log_end(&server->log);
}

gvm_status gvm_keeper_start(const gvm_keeper_options *options, gvm_keeper **out)
{
    GVMI_UNCANCELLED;
    gvm_keeper_options full;
    sigset_t all, before;
    gvm_keeper *server;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    if (!gvmi_struct_in(&full, sizeof full, options, offsetof(gvm_keeper_options, log)))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    status = check_options(&full);
    if (status != GVM_OK)
        return status;
    server = server_new();
    if (server == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a keeper");
    /* Threads inherit the mask: the program's signals are the program's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    status = server_start(server, &full);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status != GVM_OK)
        goto fail_free;
    status = gvmi_registry_add(GVMI_KIND_SERVER, gvmi_key(server), server);
    if (status != GVM_OK)
        goto fail_stop;
    *out = server;
    return GVM_OK;

fail_stop:
    stop_thread(server);
fail_free:
    server_free(server);
    return status;
}

void gvm_keeper_stop(gvm_keeper *handle)
{
    GVMI_UNCANCELLED;
    void *server;

    if (handle == NULL || gvmi_registry_remove(GVMI_KIND_SERVER, gvmi_key(handle), &server) != GVM_OK)
        return;
    stop_thread(server);
    server_free(server);
}

/* ---- calls of other threads */

static void queue_handed_socket(gvm_keeper *server, gvmi_handed *handed)
{
    const uint64_t one = 1;

    gvmi_lock(&server->lock);
    handed->next = server->handed;
    server->handed = handed;
    gvmi_unlock(&server->lock);
    (void)!write(server->wake, &one, sizeof one);
}

static gvm_status make_handed_pair(gvm_keeper *server, int *socket_fd)
{
    gvmi_handed *handed = malloc(sizeof *handed);
    int ends[2];

    if (handed == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a connection");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        const int code = errno;

        free(handed);
        return gvmi_fail_system(GVM_E_SYSTEM, code, "socketpair", "cannot make a socket");
    }
    gvmi_incoming_begin(ends[0]);
    handed->socket = ends[0];
    queue_handed_socket(server, handed);
    *socket_fd = ends[1];
    return GVM_OK;
}

static gvm_status hold_server(const gvm_keeper *handle, gvm_keeper **out)
{
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_SERVER, gvmi_key(handle), &object);

    *out = object;
    return status;
}

static void drop_server(gvm_keeper *server)
{
    gvmi_registry_drop(GVMI_KIND_SERVER, gvmi_key(server));
}

gvm_status gvm_keeper_open_socket(gvm_keeper *handle, int *socket_fd)
{
    GVMI_UNCANCELLED;
    gvm_keeper *server;
    gvm_status status;

    if (socket_fd == NULL)
        return gvm_error_set(GVM_E_INVALID, "socket_fd is NULL");
    status = hold_server(handle, &server);
    if (status != GVM_OK)
        return status;
    status = make_handed_pair(server, socket_fd);
    drop_server(server);
    return status;
}

const char *gvm_keeper_path(const gvm_keeper *handle)
{
    gvm_keeper *server;
    const char *path;

    if (hold_server(handle, &server) != GVM_OK)
        return "";
    path = server->listener.address.sun_path;
    drop_server(server);
    return path;
}

gvm_status gvm_keeper_get_budget(gvm_keeper *handle, uint32_t index, gvm_keeper_budget *budget)
{
    GVMI_UNCANCELLED;
    gvm_keeper_budget out = {0};
    const gvmi_machine_device *device;
    gvm_keeper *server;
    gvm_status status = hold_server(handle, &server);

    if (status != GVM_OK)
        return status;
    if (index >= server->config.device_count) {
        status = gvm_error_set(GVM_E_INVALID, "there is no device %u: the keeper serves %u", index,
                               server->config.device_count);
        goto leave;
    }
    device = &server->config.devices[index];
    memcpy(out.name, device->name, sizeof out.name);
    memcpy(out.uuid, device->uuid, sizeof out.uuid);
    out.ordinal = device->ordinal;
    out.device_bytes = device->budget_bytes;
    out.host_bytes = server->config.host_budget_bytes;
    if (!gvmi_struct_out(budget, &out, sizeof out, sizeof out))
        status = gvm_error_set(GVM_E_INVALID, "budget is NULL or its struct_size is too small");
leave:
    drop_server(server);
    return status;
}

gvm_status gvm_keeper_check(gvm_keeper *handle)
{
    GVMI_UNCANCELLED;
    gvm_keeper *server;
    gvm_status status = hold_server(handle, &server);

    if (status != GVM_OK)
        return status;
    if (atomic_load(&server->lost))
        status = gvm_error_set(GVM_E_LOST,
                               "a device is broken for this process, which ends; a new one may be "
                               "able to use it");
    drop_server(server);
    return status;
}
