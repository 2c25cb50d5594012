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

#include "base/clock.h"
#include "keeper/server/server.h"

#define EVENTS_A_TURN 1024              /* those of all clients are noted within three turns */
#define QUERY_NS (100 * GVMI_NS_PER_MS) /* how old figures about memory may be */
#define QUERY_IDLE_NS (1000 * GVMI_NS_PER_MS) /* while nobody is connected */
#define TURN_NS GVMI_VISIT_NS                 /* after which a turn visits nobody more */
#define GREETING_NS (10000 * GVMI_NS_PER_MS)  /* within which a client is to send something */
#define TURN_NS_MAX (50 * GVMI_NS_PER_MS)     /* counted for a turn, without its waiting */

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
            gvmi_connection_come(server, fd);
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

        gvmi_connection_come(server, handed->socket);
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
    case GVMI_SOURCE_DONE: gvmi_server_finish_jobs(server); break;
    case GVMI_SOURCE_SOCKET:
    case GVMI_SOURCE_PROCESS:
    case GVMI_SOURCE_DOORBELL: gvmi_connection_note(server, source, event->events); break;
    }
}

/* Clients that sent nothing within GREETING_NS. */
static void watch_connections(gvm_keeper *server)
{
    for (gvmi_connection *connection = server->connections, *next; connection != NULL;
         connection = next) {
        next = connection->next;
        if (!connection->greeted && server->now_ns - connection->since_ns > GREETING_NS)
            gvmi_connection_not_greeted(server, connection);
        gvmi_connection_judge_again(server, connection);
    }
    gvmi_connection_look_again(server);
}

static void query_memory(gvm_keeper *server)
{
    for (uint32_t i = 0; i < server->config.device_count; i++)
        gvmi_mover_query(server->movers[i], gvmi_machine_held_bytes(server->machine, i));
    server->query_ns = server->now_ns + (server->connections != NULL || server->driver_free_bytes > 0
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
    watch_connections(server);
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
            gvmi_connection_visit(server, owner);
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
    for (gvmi_connection *connection = server->connections; connection != NULL;
         connection = connection->next)
        gvmi_connection_retry(server, connection);
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
