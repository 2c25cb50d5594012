/* The machine's life, and the way of an event through it. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "keeper/machine/plans.h"
#include "keeper/machine/room.h"

#define LOOK_NS 100000000ll /* between two looks at lease words, timeouts and budgets */
#define LOOK_SLICE 4096u    /* openings and objects looked at in one tick */

/* ---- life */

gvm_status gvmi_machine_create(const gvmi_machine_config *config, gvmi_machine **out)
{
    gvmi_machine *m = calloc(1, sizeof *m);
    gvm_status status = GVM_OK;

    if (m == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a keeper");
    m->config = *config;
    m->random = config->random;
    m->next_wait_ns = m->later_wait_ns = INT64_MAX;
    m->host = (keep_place){.tier = GVM_TIER_HOST,
                           .budget_bytes = config->host_budget_bytes,
                           .limit_bytes = config->host_budget_bytes};
    for (uint32_t d = 0; d < config->device_count && status == GVM_OK; d++) {
        m->devices[d].place = (keep_place){.tier = GVM_TIER_DEVICE,
                                           .device = d,
                                           .budget_bytes = config->devices[d].budget_bytes,
                                           .limit_bytes = config->devices[d].budget_bytes};
        status = gvmi_policy_create(config->devices[d].budget_bytes, &m->devices[d].policy);
    }
    if (status != GVM_OK) {
        gvmi_machine_destroy(m);
        return status;
    }
    *out = m;
    return GVM_OK;
}

static void free_room_waits(keep_device *device)
{
    while (device->first_room != NULL) {
        keep_room *room = device->first_room;

        device->first_room = room->next;
        free(room);
    }
}

void gvmi_machine_destroy(gvmi_machine *m)
{
    if (m == NULL)
        return;
    /* Their processes live on, with the leases that they have: the end of one must not open what it
     * uses to those that end later. */
    for (uint32_t i = 0; i < m->client_capacity; i++)
        gvmi_machine_disconnect(m, i + 1);
    for (uint32_t i = 0; i < m->client_capacity; i++)
        if (m->clients[i] != NULL)
            gvmi_machine_exited(m, i + 1);
    while (m->objects != NULL)
        gvmi_keep_free_object(m, m->objects);
    gvmi_keep_free_ended_links(m, UINT32_MAX);
    gvmi_keep_free_actions(m);
    for (uint32_t d = 0; d < m->config.device_count; d++) {
        free_room_waits(&m->devices[d]);
        gvmi_policy_destroy(m->devices[d].policy);
    }
    free(m->clients);
    free(m->frames);
    free(m->jobs);
    gvmi_keep_free_users(m);
    free(m);
}

/* ---- actions */

static bool action_makes_frame(const gvmi_action *action)
{
    return action->kind == GVMI_ACTION_MAKE || (action->kind == GVMI_ACTION_COPY && action->make);
}

/* Frames go after the actions that may name them (which make none), and before new ones are made
 * in their place: the budget is kept to at every moment. */
bool gvmi_machine_next(gvmi_machine *m, gvmi_action *out)
{
    keep_action_node *node = m->first_action;

    if ((node == NULL || action_makes_frame(&node->action)) && gvmi_keep_next_drop(m, out))
        return true;
    if (node == NULL)
        return false;
    *out = node->action;
    m->first_action = node->next;
    if (m->first_action == NULL)
        m->last_action = NULL;
    free(node);
    return true;
}

/* ---- jobs that are over */

void gvmi_machine_job_done(gvmi_machine *m, uint64_t id, gvm_status status)
{
    keep_job job;

    if (!gvmi_keep_end_job(m, id, &job))
        return;
    if (job.object == NULL)
        gvmi_keep_ahead_done(m, job.frame, status);
    else if (job.object->chunks[job.chunk].op == KEEP_OP_MAKE)
        gvmi_keep_made(m, job.object, job.chunk, status, status == GVM_OK || !job.make);
    else
        gvmi_keep_copied(m, job.object, job.chunk, status, status == GVM_OK || !job.make);
    gvmi_keep_settle(m);
}

/* ---- messages */

typedef void handler(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message);

static void handle_hello(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    gvmi_wire_message reply;

    if (client->greeted) {
        gvmi_keep_violated(m, client, "HELLO came twice");
        return;
    }
    client->greeted = true;
    gvmi_wire_start(&reply, GVMI_WIRE_WELCOME, message->head.request);
    reply.head.fd_count = 3; /* the server knows which */
    reply.body.WELCOME = (gvmi_wire_welcome){.magic = GVMI_WIRE_MAGIC,
                                             .version = GVMI_WIRE_VERSION,
                                             .keeper_pid = (uint32_t)m->config.pid,
                                             .client = client->number,
                                             .slots = GVM_OBJECTS_OPEN_MAX};
    (void)gvmi_keep_send(m, client, &reply, NULL);
}

static void handle_restrict(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    client->restricted = true;
    gvmi_keep_reply_done(m, client, message->head.request, 0);
}

/* What a restricted client may ask for: links, and what it has open. */
static bool is_permitted(const gvmi_wire_message *message)
{
    switch (message->head.type) {
    case GVMI_WIRE_OPEN: return (message->body.OPEN.flags & GVM_OPEN_LINK) != 0;
    case GVMI_WIRE_HELLO:
    case GVMI_WIRE_RESTRICT:
    case GVMI_WIRE_GET_METADATA:
    case GVMI_WIRE_ACQUIRE:
    case GVMI_WIRE_TAKEN:
    case GVMI_WIRE_MAPPED:
    case GVMI_WIRE_UNMAPPED:
    case GVMI_WIRE_CLOSE:
    case GVMI_WIRE_GET_INFO:
    case GVMI_WIRE_SNAPSHOT_READ: /* without a reply */
    case GVMI_WIRE_BYE: return true;
    default: return false;
    }
}

static void handle_trim(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_trim *body = &message->body.TRIM;
    uint32_t d = 0;

    while (d < m->config.device_count && (uint32_t)m->config.devices[d].ordinal != body->device)
        d++;
    if (d == m->config.device_count)
        gvmi_keep_reply_failed(
            m, client, message->head.request, GVM_E_INVALID,
            "the keeper does not serve a device %u: gvmem keeper status lists those that it serves",
            body->device);
    else if (!gvmi_keep_is_admin(m, client))
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "only the keeper's own user and root may trim");
    else
        gvmi_keep_reply_done(m, client, message->head.request,
                             gvmi_keep_trim(m, &m->devices[d].place, body->keep_bytes));
}

static void handle_quota(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    gvm_status status;

    if (!gvmi_keep_is_admin(m, client)) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "only the keeper's own user and root may set quotas");
        return;
    }
    status = gvmi_machine_set_quota(m, message->body.SET_QUOTA.uid, message->body.SET_QUOTA.bytes);
    if (status == GVM_OK)
        gvmi_keep_reply_done(m, client, message->head.request, 0);
    else
        gvmi_keep_reply_failed(m, client, message->head.request, status,
                               "the quota of user %u cannot be kept: %s", message->body.SET_QUOTA.uid,
                               status == GVM_E_LIMIT ? "too many users have one"
                                                     : "the keeper is out of host memory");
}

/* BYE is the server's: it closes the socket and calls gvmi_machine_bye(). */
static void handle_bye(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    (void)m;
    (void)client;
    (void)message;
}

static handler *const handlers[] = {
    [GVMI_WIRE_HELLO] = handle_hello,
    [GVMI_WIRE_CREATE] = gvmi_keep_create,
    [GVMI_WIRE_OPEN] = gvmi_keep_open,
    [GVMI_WIRE_GROW] = gvmi_keep_grow,
    [GVMI_WIRE_SEAL] = gvmi_keep_seal,
    [GVMI_WIRE_PUBLISH] = gvmi_keep_publish,
    [GVMI_WIRE_DROP] = gvmi_keep_drop,
    [GVMI_WIRE_SET_MODE] = gvmi_keep_set_mode,
    [GVMI_WIRE_SET_METADATA] = gvmi_keep_set_metadata,
    [GVMI_WIRE_GET_METADATA] = gvmi_keep_get_metadata,
    [GVMI_WIRE_ACQUIRE] = gvmi_keep_acquire,
    [GVMI_WIRE_TAKEN] = gvmi_keep_taken,
    [GVMI_WIRE_MAPPED] = gvmi_keep_mapped,
    [GVMI_WIRE_CLOSE] = gvmi_keep_close,
    [GVMI_WIRE_SNAPSHOT] = gvmi_keep_snapshot,
    [GVMI_WIRE_GET_INFO] = gvmi_keep_get_info,
    [GVMI_WIRE_EVICT] = gvmi_keep_evict,
    [GVMI_WIRE_TRIM] = handle_trim,
    [GVMI_WIRE_SET_QUOTA] = handle_quota,
    [GVMI_WIRE_BYE] = handle_bye,
    [GVMI_WIRE_UNMAPPED] = gvmi_keep_unmapped,
    [GVMI_WIRE_SNAPSHOT_READ] = gvmi_keep_snapshot_read,
    [GVMI_WIRE_LINK] = gvmi_keep_link,
    [GVMI_WIRE_UNLINK] = gvmi_keep_unlink,
    [GVMI_WIRE_SHRINK] = gvmi_keep_shrink,
    [GVMI_WIRE_RESTRICT] = handle_restrict,
    [GVMI_WIRE_LIST_CHUNKS] = gvmi_keep_list_chunks,
};
#define HANDLER_COUNT (sizeof handlers / sizeof handlers[0])

void gvmi_machine_message(gvmi_machine *m, uint32_t number, const gvmi_wire_message *message)
{
    keep_client *client = gvmi_keep_client(m, number);
    const uint32_t type = message->head.type;

    if (client == NULL || !client->connected)
        return;
    m->messages++;
    if (type >= HANDLER_COUNT || handlers[type] == NULL)
        gvmi_keep_violated(m, client, "a message that only the keeper sends");
    else if (!client->greeted && type != GVMI_WIRE_HELLO && type != GVMI_WIRE_RESTRICT)
        gvmi_keep_violated(m, client, "the first message was not HELLO");
    else if (client->restricted && !is_permitted(message))
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "the connection is restricted: it opens links and nothing else");
    else
        handlers[type](m, client, message);
    gvmi_keep_settle(m);
    if (!m->expire_due)
        return;
    m->expire_due = false;
    gvmi_keep_expire_waits_of(m, client);
    gvmi_keep_settle(m);
}

void gvmi_machine_violation(gvmi_machine *m, uint32_t number, const char *what)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client == NULL || !client->connected)
        return;
    gvmi_keep_violated(m, client, what);
    gvmi_keep_settle(m);
}

void gvmi_machine_doorbell(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    for (const keep_opening *o = client != NULL ? client->openings : NULL; o != NULL; o = o->own_next)
        if (o->object->lease_state == KEEP_DRAINING)
            gvmi_keep_mark(m, o->object);
    gvmi_keep_settle(m);
}

/* ---- time */

static void look_at_object(gvmi_machine *m, keep_object *object)
{
    (void)gvmi_keep_sample(m, object);
    gvmi_keep_retry_fence(m, object);
    gvmi_keep_watch_leases(m, object);
    (void)gvmi_keep_look_at_pin(m, object);
    if (object->lease_state == KEEP_DRAINING)
        gvmi_keep_mark(m, object); /* who ended the last lease may be stopped before it rings */
}

/* A slice of a look. New objects are not part of it. */
static void look_at_next_objects(gvmi_machine *m)
{
    uint32_t looked = 0;

    while (m->looked_next != NULL && looked < LOOK_SLICE) {
        keep_object *object = m->looked_next;

        m->looked_next = object->next;
        looked += 1 + object->opening_count;
        look_at_object(m, object);
    }
}

/* What the fast path did since, who is late, what moves by itself. A look at many openings takes several
 * ticks, between which clients are served. */
static void start_look(gvmi_machine *m)
{
    if (!m->looking)
        m->looked_next = m->objects;
    m->looking = true;
    look_at_next_objects(m);
    if (m->looked_next != NULL)
        return;
    m->looking = false;
    for (uint32_t d = 0; d < m->config.device_count; d++)
        m->devices[d].recall_short = false;
    gvmi_keep_watch_clients(m);
    m->next_look_ns = m->look_again ? m->now_ns : m->now_ns + LOOK_NS;
    m->look_again = false;
    gvmi_keep_settle(m);
    gvmi_keep_rebalance(m);
    gvmi_keep_make_ahead(m);
}

void gvmi_machine_clock(gvmi_machine *m, int64_t now_ns)
{
    if (m->start_ns == 0)
        m->start_ns = now_ns;
    GVM_ASSERT(now_ns >= m->now_ns);
    m->now_ns = now_ns;
}

void gvmi_machine_tick(gvmi_machine *m, int64_t now_ns)
{
    gvmi_machine_clock(m, now_ns);
    m->ended = 0;
    if (now_ns >= m->next_wait_ns)
        gvmi_keep_expire_waits(m);
    if (now_ns >= m->next_look_ns)
        start_look(m);
    gvmi_keep_settle(m);
}

/* ---- what is too long for one event */

static bool machine_has_work(const gvmi_machine *m)
{
    return m->first_busy != NULL || m->ended_links != NULL || m->first_unserved != NULL;
}

bool gvmi_machine_work(gvmi_machine *m)
{
    if (!machine_has_work(m))
        return false;
    gvmi_keep_make_snapshots(m);
    gvmi_keep_free_ended_links(m, KEEP_FREED_LINKS_MAX);
    gvmi_keep_serve_rest(m);
    gvmi_keep_settle(m);
    return machine_has_work(m);
}

int64_t gvmi_machine_deadline(const gvmi_machine *m)
{
    if (machine_has_work(m))
        return m->now_ns;
    if (m->taken[KEEP_CLIENTS] == 0 && m->objects == NULL && m->config.host_ahead_bytes == 0)
        return INT64_MAX;
    return m->next_wait_ns < m->next_look_ns ? m->next_wait_ns : m->next_look_ns;
}

uint64_t gvmi_machine_held_bytes(const gvmi_machine *m, uint32_t device)
{
    return m->devices[device].place.held_bytes;
}

void gvmi_machine_driver_memory(gvmi_machine *m, uint32_t device, uint64_t free_bytes,
                                uint64_t total_bytes, uint64_t budget_bytes)
{
    keep_device *d;

    if (device >= m->config.device_count)
        return;
    d = &m->devices[device];
    d->driver_free_bytes = free_bytes;
    d->driver_total_bytes = total_bytes;
    if (budget_bytes > d->place.limit_bytes)
        budget_bytes = d->place.limit_bytes;
    if (budget_bytes != d->place.budget_bytes) {
        d->place.budget_bytes = budget_bytes;
        gvmi_policy_set_budget(d->policy, budget_bytes);
    }
}
