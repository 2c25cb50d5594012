/* The server thread. Waits for events, passes them to the machine, performs its actions.
 *
 * A turn: wait; note events; visit clients (schedule.h) for at most TURN_NS; one slice of snapshots;
 * late clients, after input that came was read. Actions are performed after every event, so few ever wait.
 * Whatever is done for a client, reading, doorbells, sending, its end, is done in a visit, and counts as
 * its user's; accepting counts for itself. So a turn is short however much clients send.
 */
#define _GNU_SOURCE /* strerrorname_np() */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "keeper/server/server.h"

#define EVENTS_A_TURN 1024              /* those of all clients are noted within three turns */
#define QUERY_NS (100 * GVMI_NS_PER_MS) /* how old figures about memory may be */
#define QUERY_IDLE_NS (1000 * GVMI_NS_PER_MS) /* while nobody is connected */
#define TURN_NS GVMI_VISIT_NS                 /* after which a turn visits nobody more */
#define GREETING_NS (10000 * GVMI_NS_PER_MS)  /* within which a client is to send something */
#define TURN_NS_MAX (50 * GVMI_NS_PER_MS)     /* counted for a turn, without its waiting */

gvm_status gvmi_server_watch(gvm_keeper *server, int fd, uint32_t events, gvmi_source *source)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return GVM_OK;
    return gvmi_fail_system(GVM_E_SYSTEM, errno, "epoll_ctl", "cannot watch fd %d", fd);
}

void gvmi_server_rewatch(gvm_keeper *server, int fd, uint32_t events, gvmi_source *source)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    (void)epoll_ctl(server->epoll, EPOLL_CTL_MOD, fd, &event); /* it is there: no memory is needed */
}

/* ---- actions */

static gvmi_peer *find_peer(const gvm_keeper *server, uint32_t client)
{
    return client < server->client_capacity ? server->by_client[client] : NULL;
}

static void release_fd_list(gvmi_fd **fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        gvmi_fd_release(fds[i]);
}

static void send_welcome(gvm_keeper *server, gvmi_peer *peer, const gvmi_wire_message *message)
{
    gvmi_peer_send(server, peer, message, peer->fds);
    for (int i = 0; i < 2; i++) { /* the doorbell stays here, too */
        gvmi_fd_release(peer->fds[i]);
        peer->fds[i] = NULL;
    }
}

static void send_message(gvm_keeper *server, gvmi_peer *peer, const gvmi_action *action)
{
    const uint32_t count = action->message->head.fd_count;
    gvmi_fd *fds[GVMI_WIRE_CHUNKS_MAX];

    if (peer->state != PEER_OPEN)
        return;
    if (action->message->head.type == GVMI_WIRE_WELCOME) {
        if (peer->fds[0] != NULL)
            send_welcome(server, peer, action->message);
        return;
    }
    GVM_ASSERT(count <= GVMI_WIRE_CHUNKS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = gvmi_frames_fd(server->frames, action->frames[i]);
        if (fds[i] == NULL) {
            release_fd_list(fds, i);
            gvmi_machine_violation(server->machine, peer->client, "memory it was to have is missing");
            return;
        }
    }
    gvmi_peer_send(server, peer, action->message, fds);
    release_fd_list(fds, count);
}

static void execute_client_action(gvm_keeper *server, gvmi_action *action)
{
    gvmi_peer *peer = find_peer(server, action->client);

    if (peer != NULL)
        switch (action->kind) {
        case GVMI_ACTION_SEND: send_message(server, peer, action); break;
        case GVMI_ACTION_SNAPSHOT: gvmi_peer_send_snapshot(server, peer, action); break;
        case GVMI_ACTION_CUT: gvmi_peer_cut(server, peer, action->reason); break;
        case GVMI_ACTION_KILL: gvmi_peer_kill(server, peer); break;
        default: gvmi_peer_forget(server, peer); break;
        }
    free(action->message);
    free(action->bytes);
}

static void drop_frame_memory(gvm_keeper *server, const gvmi_frame_spec *spec)
{
    (void)gvmi_frames_drop(server->frames, spec->frame);
    gvmi_mover_reap(server->movers[spec->device], spec->tier);
}

static void execute_action(gvm_keeper *server, gvmi_action *action)
{
    gvm_status status;

    switch (action->kind) {
    case GVMI_ACTION_SEND:
    case GVMI_ACTION_SNAPSHOT:
    case GVMI_ACTION_CUT:
    case GVMI_ACTION_KILL:
    case GVMI_ACTION_FORGET: execute_client_action(server, action); break;
    case GVMI_ACTION_MAKE:
    case GVMI_ACTION_COPY:
    case GVMI_ACTION_ZERO:
        status = gvmi_mover_submit(server->movers[action->to.device], action);
        if (status != GVM_OK)
            gvmi_machine_job_done(server->machine, action->job, status);
        break;
    case GVMI_ACTION_DROP: drop_frame_memory(server, &action->to); break;
    case GVMI_ACTION_LOG:
        gvmi_server_log_user(server, action->client != 0 ? GVMI_LOG_CUT : GVMI_LOG_ALWAYS,
                             action->uid, "%s", action->reason);
        break;
    }
}

void gvmi_server_act(gvm_keeper *server)
{
    gvmi_action action;

    while (gvmi_machine_next(server->machine, &action))
        execute_action(server, &action);
}

/* ---- jobs that are over */

/* Memory that could not be made: once for each reason, until some could be. */
static void log_job(gvm_keeper *server, const gvmi_job *job)
{
    const int32_t ordinal = server->config.devices[job->device].ordinal;
    gvm_status *failure = &server->make_failure[job->device][job->to.tier];
    const bool same = *failure == job->status;
    char size[32];

    if (job->makes && (job->status == GVM_OK || job->unmade))
        *failure = job->status;
    if (job->status == GVM_OK)
        return;
    gvmi_size_text(job->to.bytes, size);
    if (!job->unmade)
        gvmi_server_log(server, "device %d: a chunk of %s could not be copied or zeroed: %s",
                        (int)ordinal, size, job->text);
    else if (!same)
        gvmi_server_log(server, "device %d: %s of %s memory could not be made: %s", (int)ordinal,
                        size, job->to.tier == GVM_TIER_HOST ? "host" : "device", job->text);
}

/* Once when it is less than configured, and once when it is not any more. */
static void log_budget(gvm_keeper *server, const gvmi_job *job, uint64_t budget_bytes)
{
    const gvmi_machine_device *device = &server->config.devices[job->device];
    const bool lowered = budget_bytes < device->budget_bytes;
    char budget[32], free_bytes[32], leave[32];

    if (lowered == server->lowered[job->device])
        return;
    server->lowered[job->device] = lowered;
    gvmi_size_text(budget_bytes, budget);
    if (lowered)
        gvmi_server_log(server,
                        "device %d: its budget is lowered to %s: %s are free on it, and %s are to be left "
                        "to other programs",
                        (int)device->ordinal, budget, gvmi_size_text(job->free_bytes, free_bytes),
                        gvmi_size_text(server->driver_free_bytes, leave));
    else
        gvmi_server_log(server, "device %d: its budget is %s again", (int)device->ordinal, budget);
}

static void note_device_lost(gvm_keeper *server, const gvmi_job *job)
{
    if (!atomic_exchange(&server->lost, true))
        gvmi_server_log(server, "device %d is lost for this process: %s",
                        (int)server->config.devices[job->device].ordinal, job->text);
}

/* How much of its budget the keeper may use, so that other programs have what they were promised. */
static uint64_t budget_now(const gvm_keeper *server, const gvmi_job *job)
{
    const uint64_t budget_bytes = server->config.devices[job->device].budget_bytes;
    const uint64_t reach_bytes = job->frame_bytes + job->free_bytes +
                                 gvmi_machine_held_bytes(server->machine, job->device);

    if (server->driver_free_bytes == 0)
        return budget_bytes;
    if (reach_bytes <= server->driver_free_bytes)
        return 0;
    return reach_bytes - server->driver_free_bytes < budget_bytes
               ? reach_bytes - server->driver_free_bytes
               : budget_bytes;
}

static void finish_job(gvm_keeper *server, const gvmi_job *job)
{
    if (job->status == GVM_E_LOST)
        note_device_lost(server, job);
    else if (job->kind == GVMI_JOB_ACTION)
        log_job(server, job);
    switch (job->kind) {
    case GVMI_JOB_ACTION: gvmi_machine_job_done(server->machine, job->number, job->status); break;
    case GVMI_JOB_QUERY:
        if (job->status == GVM_OK) {
            log_budget(server, job, budget_now(server, job));
            gvmi_machine_driver_memory(server->machine, job->device, job->free_bytes,
                                       job->total_bytes, budget_now(server, job));
        }
        break;
    case GVMI_JOB_REAP: break;
    }
    gvmi_server_act(server);
}

/* A tier's reaping is over. What was dropped meanwhile had no job of its own: as long as something
 * is not given back, a job is under way that ends here. */
static void finish_reaping(gvm_keeper *server, gvmi_mover *mover, uint32_t tier)
{
    if (gvmi_frames_dropped(server->frames)) {
        gvmi_mover_reap(mover, tier);
        return;
    }
    for (gvmi_peer *peer = server->held_back_count > 0 ? server->peers : NULL; peer != NULL;
         peer = peer->next)
        gvmi_peer_send_held_back(server, peer);
}

static void finish_jobs(gvm_keeper *server)
{
    gvmi_job *job = gvmi_done_take(server->done);

    while (job != NULL) {
        gvmi_job *next = job->next;
        gvmi_mover *mover = server->movers[job->device];
        const bool reap = job->kind == GVMI_JOB_REAP;
        const uint32_t tier = job->to.tier;

        finish_job(server, job);
        gvmi_done_release(job);
        if (reap)
            finish_reaping(server, mover, tier);
        job = next;
    }
}

/* ---- newcomers */

static void pause_accepting(gvm_keeper *server, bool pause)
{
    server->paused = pause;
    gvmi_server_rewatch(server, server->listener.fd, pause ? 0 : EPOLLIN, &server->on_listen);
}

/* While the visit lasts; epoll reports when there are more. */
static void accept_some(gvm_keeper *server)
{
    while (!server->paused && gvmi_now_ns() < server->schedule.end_ns) {
        const int fd = accept4(server->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            if (server->short_of_fds)
                gvmi_server_log(server, "new clients are accepted again");
            server->short_of_fds = false;
            gvmi_peer_come(server, fd);
            gvmi_server_act(server);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            if (!server->short_of_fds)
                gvmi_server_log(server,
                                "new clients must wait: the keeper has no file descriptors or memory for "
                                "them (%s): raise its limit of open files, or use larger chunks",
                                strerrorname_np(errno));
            server->short_of_fds = true;
            pause_accepting(server, true); /* they wait at the socket */
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void accept_handed(gvm_keeper *server)
{
    gvmi_handed *handed;
    uint64_t count;

    (void)!read(server->wake, &count, sizeof count); /* ours alone, and non-blocking */
    gvmi_lock(&server->lock);
    handed = server->handed;
    server->handed = NULL;
    gvmi_unlock(&server->lock);
    while (handed != NULL) {
        gvmi_handed *next = handed->next;

        gvmi_peer_come(server, handed->socket);
        gvmi_server_act(server);
        free(handed);
        handed = next;
    }
}

/* ---- turns */

static void dispatch_event(gvm_keeper *server, const struct epoll_event *event)
{
    gvmi_source *source = event->data.ptr;

    switch (source->kind) {
    case GVMI_SOURCE_LISTEN: gvmi_schedule_queue(&server->schedule, &server->newcomers); break;
    case GVMI_SOURCE_WAKE: accept_handed(server); break;
    case GVMI_SOURCE_DONE: finish_jobs(server); break;
    case GVMI_SOURCE_SOCKET:
    case GVMI_SOURCE_PROCESS:
    case GVMI_SOURCE_DOORBELL: gvmi_peer_note(server, source, event->events); break;
    }
}

/* Clients that sent nothing within GREETING_NS. */
static void watch_peers(gvm_keeper *server)
{
    for (gvmi_peer *peer = server->peers, *next; peer != NULL; peer = next) {
        next = peer->next;
        if (!peer->greeted && server->now_ns - peer->since_ns > GREETING_NS)
            gvmi_peer_silent(server, peer);
        gvmi_peer_judge_again(server, peer);
    }
    gvmi_peer_look_again(server);
}

static void query_memory(gvm_keeper *server)
{
    for (uint32_t i = 0; i < server->config.device_count; i++)
        gvmi_mover_query(server->movers[i]);
    server->query_ns = server->now_ns + (server->peers != NULL || server->driver_free_bytes > 0
                                             ? QUERY_NS
                                             : QUERY_IDLE_NS);
}

/* Of the time that passed since the last look, what this thread could have used. */
static void look_at_clock(gvm_keeper *server, int waited_ms)
{
    const int64_t clock_ns = gvmi_now_ns(), most_ns = waited_ms * GVMI_NS_PER_MS + TURN_NS_MAX;
    const int64_t passed_ns = clock_ns - server->clock_ns;

    server->clock_ns = clock_ns;
    server->now_ns += passed_ns < most_ns ? passed_ns : most_ns;
    gvmi_machine_clock(server->machine, server->now_ns);
}

static void tick_machine(gvm_keeper *server)
{
    gvmi_machine_tick(server->machine, server->now_ns);
    gvmi_server_act(server);
    gvmi_log_tick(&server->log, server->now_ns);
    if (server->now_ns < server->query_ns)
        return;
    query_memory(server);
    watch_peers(server);
    if (server->paused)
        pause_accepting(server, false);
}

static int64_t thread_ns(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000 * GVMI_NS_PER_MS + t.tv_nsec;
}

/* Clients, and who wants to become one, as the schedule has it. */
static void serve_clients(gvm_keeper *server)
{
    const int64_t end_ns = server->clock_ns + TURN_NS;
    int64_t now_ns = server->clock_ns, since_ns = thread_ns(), spent_ns;

    do {
        void *owner = gvmi_schedule_next(&server->schedule, now_ns);

        if (owner == NULL)
            break;
        if (owner == server)
            accept_some(server);
        else
            gvmi_peer_visit(server, owner);
        spent_ns = thread_ns() - since_ns;
        since_ns += spent_ns;
        now_ns = gvmi_now_ns();
        gvmi_schedule_visited(&server->schedule, spent_ns);
    } while (now_ns < end_ns);
}

static void retry_stalled(gvm_keeper *server)
{
    if (server->stall_ns == 0 || server->now_ns < server->stall_ns)
        return;
    server->stall_ns = 0; /* sockets are looked at as well: what was received lets others be sent more */
    for (gvmi_peer *peer = server->peers; peer != NULL; peer = peer->next)
        gvmi_peer_retry(server, peer);
}

/* In ms, for epoll; rounded up, so that waiting does not turn into spinning at the end. */
static int wait_ms(const gvm_keeper *server)
{
    const int64_t deadline_ns = gvmi_machine_deadline(server->machine);
    const int64_t now_ns = server->now_ns + gvmi_now_ns() - server->clock_ns;
    int64_t next_ns = deadline_ns < server->query_ns ? deadline_ns : server->query_ns;
    int64_t left_ns;

    if (server->working || gvmi_schedule_waits(&server->schedule))
        return 0;
    if (server->stall_ns != 0 && server->stall_ns < next_ns)
        next_ns = server->stall_ns;
    left_ns = next_ns - now_ns;
    return left_ns <= 0 ? 0 : (int)((left_ns + GVMI_NS_PER_MS - 1) / GVMI_NS_PER_MS);
}

void *gvmi_server_run(void *arg)
{
    gvm_keeper *server = arg;
    struct epoll_event events[EVENTS_A_TURN];

    server->clock_ns = server->now_ns = gvmi_now_ns();
    while (!atomic_load(&server->stop)) {
        const int waited_ms = wait_ms(server);
        const int count = epoll_wait(server->epoll, events, EVENTS_A_TURN, waited_ms);

        look_at_clock(server, waited_ms);
        for (int i = 0; i < count; i++)
            dispatch_event(server, &events[i]);
        retry_stalled(server);
        serve_clients(server);
        server->working = gvmi_machine_work(server->machine);
        gvmi_server_act(server);
        tick_machine(server);
    }
    return NULL;
}
