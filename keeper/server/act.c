/* What the machine decides is done here, and what comes of it is reported to the machine. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/size.h"
#include "keeper/server/server.h"

/* ---- actions */

static gvmi_connection *find_connection(const gvm_keeper *server, uint32_t client)
{
    return client < server->client_capacity ? server->by_client[client] : NULL;
}

static void release_fd_list(gvmi_fd **fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        gvmi_fd_release(fds[i]);
}

static void send_welcome(gvm_keeper *server, gvmi_connection *connection,
                         const gvmi_wire_message *message)
{
    gvmi_connection_send(server, connection, message, connection->fds);
    for (int i = 0; i < 2; i++) { /* the doorbell stays here, too */
        gvmi_fd_release(connection->fds[i]);
        connection->fds[i] = NULL;
    }
}

static void send_message(gvm_keeper *server, gvmi_connection *connection, const gvmi_action *action)
{
    const uint32_t count = action->message->head.fd_count;
    gvmi_fd *fds[GVMI_WIRE_CHUNKS_MAX];

    if (connection->state != CONNECTION_OPEN)
        return;
    if (action->message->head.type == GVMI_WIRE_WELCOME) {
        if (connection->fds[0] != NULL)
            send_welcome(server, connection, action->message);
        return;
    }
    GVM_ASSERT(count <= GVMI_WIRE_CHUNKS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = gvmi_frames_fd(server->frames, action->frames[i]);
        if (fds[i] == NULL) {
            release_fd_list(fds, i);
            connection->incomplete = true;
            gvmi_machine_violation(server->machine, connection->client,
                                   "memory it was to have is missing");
            return;
        }
    }
    gvmi_connection_send(server, connection, action->message, fds);
    release_fd_list(fds, count);
}

static void execute_client_action(gvm_keeper *server, gvmi_action *action)
{
    gvmi_connection *connection = find_connection(server, action->client);

    if (connection != NULL)
        switch (action->kind) {
        case GVMI_ACTION_SEND: send_message(server, connection, action); break;
        case GVMI_ACTION_SNAPSHOT: gvmi_connection_send_snapshot(server, connection, action); break;
        case GVMI_ACTION_CUT: gvmi_connection_cut(server, connection, action->reason); break;
        case GVMI_ACTION_KILL: gvmi_connection_kill(server, connection); break;
        default: gvmi_connection_forget(server, connection); break;
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
        status = gvmi_mover_submit(server->movers[gvmi_action_device(action)], action);
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
    const int32_t ordinal = server->config.devices[job->to.device].ordinal;
    gvm_status *failure = &server->make_failure[job->to.device][job->to.tier];
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
        gvmi_server_log(
            server,
            "device %d: its budget is lowered to %s: %s are free on it, and %s are to be left "
            "to other programs",
            (int)device->ordinal, budget, gvmi_size_text(job->memory.free_bytes, free_bytes),
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
    const uint64_t reach_bytes = job->memory.frame_bytes + job->memory.free_bytes + job->held_bytes;

    if (server->driver_free_bytes == 0)
        return budget_bytes;
    if (reach_bytes <= server->driver_free_bytes)
        return 0;
    return reach_bytes - server->driver_free_bytes < budget_bytes
               ? reach_bytes - server->driver_free_bytes
               : budget_bytes;
}

/* What clients held when this was asked for was dropped before, and is not among the frames. If it has changed since, the
 * driver may have counted it as free or as taken: the next look asks again. */
static void finish_query(gvm_keeper *server, const gvmi_job *job)
{
    const uint64_t budget_bytes = budget_now(server, job);

    if (job->status != GVM_OK ||
        job->held_bytes != gvmi_machine_held_bytes(server->machine, job->device))
        return;
    log_budget(server, job, budget_bytes);
    gvmi_machine_driver_memory(server->machine, job->device, job->memory.free_bytes,
                               job->memory.total_bytes, budget_bytes);
}

static void finish_job(gvm_keeper *server, const gvmi_job *job)
{
    if (job->status == GVM_E_LOST)
        note_device_lost(server, job);
    else if (job->kind == GVMI_JOB_ACTION)
        log_job(server, job);
    switch (job->kind) {
    case GVMI_JOB_ACTION: gvmi_machine_job_done(server->machine, job->number, job->status); break;
    case GVMI_JOB_QUERY: finish_query(server, job); break;
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
    for (gvmi_connection *connection = server->held_back_count > 0 ? server->connections : NULL;
         connection != NULL; connection = connection->next)
        gvmi_connection_send_held_back(server, connection);
}

void gvmi_server_finish_jobs(gvm_keeper *server)
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
