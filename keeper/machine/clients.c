/* Clients: coming, going, and being cut off.
 *
 * A client ends in up to three steps, which may coincide:
 *   it is silent          no more requests and replies; its unpublished objects lose their names;
 *                         what it holds stays held, as kernels of it may still run
 *   it is voided          its leases and openings end; frames that it may have mapped are written
 *                         down (fence.c). After the revoke timeout; at once when it is cut off, when
 *                         it never had memory, or when it closed its socket and had no lease
 *   its process is gone   nothing of it is left; the frames written down are free
 * If the process goes first, voiding has nothing to write down. A client that is voided, and of which
 * no frame is written down, is over: its process needs not be waited for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "keeper/machine/probes.h"
#include "keeper/machine/state.h"

/* Openings that end with clients in one look, after the first client. */
#define ENDED_A_LOOK_MAX 512u

keep_client *gvmi_keep_client(gvmi_machine *m, uint32_t number)
{
    return number >= 1 && number <= m->client_capacity ? m->clients[number - 1] : NULL;
}

keep_client *gvmi_keep_client_of(gvmi_machine *m, uint64_t id)
{
    keep_client *client = gvmi_keep_client(m, (uint32_t)id);

    return client != NULL && client->id == id ? client : NULL;
}

bool gvmi_keep_is_admin(const gvmi_machine *m, const keep_client *client)
{
    return client->who.uid == 0 || client->who.uid == m->config.uid;
}

/* ---- coming */

static gvm_status find_number(gvmi_machine *m, uint32_t *out)
{
    keep_client **clients;
    uint32_t capacity;

    for (uint32_t i = 0; i < m->client_capacity; i++)
        if (m->clients[i] == NULL) {
            *out = i + 1;
            return GVM_OK;
        }
    capacity = m->client_capacity == 0 ? 16 : m->client_capacity * 2;
    clients = realloc(m->clients, capacity * sizeof(keep_client *));
    if (clients == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a client");
    memset(&clients[m->client_capacity], 0, (capacity - m->client_capacity) * sizeof *clients);
    *out = m->client_capacity + 1;
    m->clients = clients;
    m->client_capacity = capacity;
    return GVM_OK;
}

gvm_status gvmi_machine_admits(gvmi_machine *m, uint32_t uid)
{
    keep_user *user = gvmi_keep_user(m, uid);
    char text[GVMI_WIRE_TEXT_BYTES];
    bool admitted;

    if (user == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a client");
    admitted = gvmi_keep_may_take(m, user, KEEP_CLIENTS, 1);
    if (!admitted)
        gvmi_keep_refusal(m, user, KEEP_CLIENTS, text);
    gvmi_keep_end_user(m, user);
    return admitted ? GVM_OK : gvmi_fail(GVM_E_LIMIT, "%s", text);
}

gvm_status gvmi_machine_connect(gvmi_machine *m, const gvmi_credentials *who,
                                gvmi_lease_slot *leases, gvmi_permit_slot *permits, uint32_t *number)
{
    keep_client *client;
    uint32_t found = 0;
    gvm_status status;

    status = gvmi_machine_admits(m, who->uid);
    if (status == GVM_OK)
        status = find_number(m, &found);
    if (status != GVM_OK)
        return status;
    client = calloc(1, sizeof *client);
    if (client == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a client");
    client->slots = calloc(GVM_OBJECTS_OPEN_MAX, sizeof(keep_opening *));
    client->user = client->slots != NULL ? gvmi_keep_user(m, who->uid) : NULL;
    if (client->user == NULL) {
        free(client->slots);
        free(client);
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a client");
    }
    gvmi_keep_take(m, client->user, KEEP_CLIENTS, 1);
    client->number = found;
    client->id = ++m->client_ids << 32 | found;
    client->connected = true;
    client->who = *who;
    client->leases = leases;
    client->permits = permits;
    m->clients[found - 1] = client;
    *number = found;
    return GVM_OK;
}

/* ---- going */

/* The client sends no more requests and replies. */
static void silence_client(gvmi_machine *m, keep_client *client)
{
    client->connected = false;
    client->left_ns = m->now_ns;
    gvmi_keep_end_waits(m, client, NULL);
    for (const keep_opening *o = client->openings; o != NULL; o = o->own_next)
        gvmi_keep_publish_permit(o);
    gvmi_keep_forget_grower(client);
    gvmi_keep_end_snapshots(m, client);
    gvmi_keep_forget_creator(m, client);
}

static void end_openings(gvmi_machine *m, keep_client *client, bool may_map)
{
    while (client->openings != NULL) {
        keep_opening *opening = client->openings;

        if (may_map && !opening->broken) /* what it may have of such a one is written down already */
            gvmi_keep_hold_frames(m, opening);
        gvmi_keep_end_opening(m, opening);
    }
}

static void void_client(gvmi_machine *m, keep_client *client, bool may_map)
{
    if (client->voided)
        return;
    client->voided = true;
    end_openings(m, client, may_map);
}

/* The client was voided though it broke no rule that could be reported to it. If it holds
 * something, that is reported, as it costs others memory, or a copy. */
static void report_voided(gvmi_machine *m, keep_client *client, const char *why)
{
    gvmi_action action = {.kind = GVMI_ACTION_LOG, .client = client->number, .uid = client->who.uid};

    if (!client->voided || client->cut || client->held_count == 0)
        return;
    snprintf(action.reason, sizeof action.reason, "client %u (pid %d, uid %u) was cut off: %s",
             (unsigned)client->number, (int)client->who.pid, (unsigned)client->who.uid, why);
    client->cut = gvmi_keep_act(m, &action);
    m->cut_offs += client->cut;
}

void gvmi_keep_forget_if_over(gvmi_machine *m, keep_client *client)
{
    const gvmi_action action = {.kind = GVMI_ACTION_FORGET, .client = client->number};

    if (client->voided && client->held_count == 0 && !client->over)
        client->over = gvmi_keep_act(m, &action); /* without memory for it: at the next look */
}

void gvmi_machine_disconnect(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client == NULL || !client->connected)
        return;
    silence_client(m, client);
    if (!client->mapped)
        void_client(m, client, false);
    gvmi_keep_forget_if_over(m, client);
    gvmi_keep_settle(m);
}

static bool has_leases(const keep_client *client)
{
    for (const keep_opening *o = client->openings; o != NULL; o = o->own_next)
        if (gvmi_keep_readers(o) > 0 || gvmi_keep_writers(o) > 0)
            return true;
    return false;
}

void gvmi_machine_closed(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client == NULL || client->closed)
        return;
    if (client->connected)
        silence_client(m, client);
    client->closed = true;
    if (!has_leases(client))
        void_client(m, client, true);
    if (client->voided)
        gvmi_keep_release_holds(m, client, false);
    report_voided(m, client, "it closed the connection, and its process may have memory mapped");
    gvmi_keep_forget_if_over(m, client);
    gvmi_keep_settle(m);
}

void gvmi_machine_bye(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client == NULL || !client->connected)
        return;
    silence_client(m, client);
    for (keep_opening *o = client->openings, *next; o != NULL; o = next) {
        next = o->own_next;
        if (gvmi_keep_close_is_enough(m, client, &o->object->domain))
            gvmi_keep_end_opening(m, o);
    }
    gvmi_machine_closed(m, number);
}

void gvmi_machine_exited(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client == NULL)
        return;
    if (client->connected)
        silence_client(m, client);
    void_client(m, client, false);
    gvmi_keep_release_holds(m, client, true);
    m->clients[number - 1] = NULL;
    gvmi_keep_give(m, client->user, KEEP_CLIENTS, 1);
    free(client->slots);
    free(client);
    gvmi_keep_settle(m);
}

/* ---- being cut off */

void gvmi_keep_cut_later(gvmi_machine *m, keep_client *client, const char *reason)
{
    if (client->cut_due || client->cut)
        return;
    client->cut_due = true;
    m->cut_due = true;
    gvmi_text_print(client->reason, sizeof client->reason, "%s", reason);
}

void gvmi_keep_violated(gvmi_machine *m, keep_client *client, const char *how)
{
    m->faults++;
    gvmi_keep_cut_later(m, client, how);
}

static bool cut_client(gvmi_machine *m, keep_client *client)
{
    gvmi_action action = {.kind = GVMI_ACTION_CUT, .client = client->number};

    snprintf(action.reason, sizeof action.reason, "%s", client->reason);
    if (client->connected && !gvmi_keep_act(m, &action))
        return false; /* again at the next look */
    client->cut_due = false;
    client->cut = true;
    m->cut_offs++;
    GVMI_PROBE_CUT(client->number);
    if (client->connected)
        silence_client(m, client);
    void_client(m, client, client->mapped);
    gvmi_keep_forget_if_over(m, client);
    return true;
}

void gvmi_keep_make_due_cuts(gvmi_machine *m)
{
    if (!m->cut_due)
        return;
    m->cut_due = false;
    for (uint32_t i = 0; i < m->client_capacity; i++) {
        keep_client *client = m->clients[i];

        if (client != NULL && client->cut_due && !cut_client(m, client))
            return;
    }
}

/* ---- those who are late */

static bool is_past_timeout(const gvmi_machine *m, int64_t since_ns, uint32_t timeout_ms)
{
    return m->now_ns - since_ns >= timeout_ms * GVMI_NS_PER_MS;
}

/* False: the client's answer may have come and not have been read. */
static bool is_all_read(const gvmi_machine *m, const keep_client *client, int64_t since_ns,
                        uint32_t timeout_ms)
{
    return m->config.unread == NULL || !m->config.unread(m->config.unread_context, client->number) ||
           is_past_timeout(m, since_ns + timeout_ms * GVMI_NS_PER_MS, timeout_ms);
}

/* What ends clients in one look is bounded, as much may end with each. False: the rest is for the next look,
 * which comes at once. */
static bool may_end_client(gvmi_machine *m, const keep_client *client, uint32_t *ended)
{
    const bool first = *ended == 0;

    *ended += 1 + client->opening_count;
    if (first || *ended <= ENDED_A_LOOK_MAX)
        return true;
    m->next_look_ns = m->now_ns;
    return false;
}

/* The oldest unanswered MAP sets the deadline; a later one does not extend it. */
static void check_map_deadlines(gvmi_machine *m, uint32_t *ended)
{
    const uint32_t timeout_ms = m->config.revoke_limit_ms;

    for (const keep_pending *map = m->oldest_map;
         map != NULL && is_past_timeout(m, map->sent_ns, timeout_ms); map = map->newer) {
        keep_client *client = map->client;
        const int64_t since_ns = map->sent_ns > client->delayed_ns ? map->sent_ns : client->delayed_ns;

        if (!client->connected || client->cut_due || !is_past_timeout(m, since_ns, timeout_ms) ||
            !is_all_read(m, client, since_ns, timeout_ms))
            continue;
        if (!may_end_client(m, client, ended))
            return;
        gvmi_keep_cut_later(m, client,
                            "it did not map what the keeper moved within the revoke timeout");
    }
}

void gvmi_machine_delayed(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client != NULL)
        client->delayed_ns = m->now_ns;
}

/* The first in the queue that is not the client's own; NULL: nobody. *for_readers: it, or one before it,
 * waits for leases for reading to end. */
static const keep_wait *first_foreign_wait(const keep_object *object, const keep_client *client,
                                           bool *for_readers)
{
    const keep_wait *wait = object->first_wait;

    *for_readers = wait != NULL && gvmi_keep_waits_for_readers(wait);
    while (wait != NULL && wait->client == client) {
        wait = wait->next;
        *for_readers = *for_readers || (wait != NULL && gvmi_keep_waits_for_readers(wait));
    }
    return wait;
}

/* Since when others have been waiting for a lease of the opening to end; INT64_MAX: nobody waits. */
static int64_t oldest_wait_behind(const keep_opening *opening)
{
    const keep_object *object = opening->object;
    const bool writes = gvmi_keep_writers(opening) > 0, reads = gvmi_keep_readers(opening) > 0;
    bool readers_wait = false;
    const keep_wait *wait = writes || reads
                                ? first_foreign_wait(object, opening->client, &readers_wait)
                                : NULL;

    if (wait == NULL || !(writes || readers_wait))
        return INT64_MAX;
    return wait->since_ns > object->draining_since_ns ? wait->since_ns : object->draining_since_ns;
}

/* Clients that keep a lease for which others have waited too long. */
void gvmi_keep_watch_leases(gvmi_machine *m, const keep_object *object)
{
    if (m->config.lease_limit_ms == 0 || object->lease_state != KEEP_DRAINING ||
        object->first_wait == NULL ||
        !is_past_timeout(m, object->draining_since_ns, m->config.lease_limit_ms))
        return;
    for (keep_opening *o = object->openings; o != NULL; o = o->next) {
        const int64_t since_ns = oldest_wait_behind(o);

        if (since_ns != INT64_MAX && is_past_timeout(m, since_ns, m->config.lease_limit_ms) &&
            is_all_read(m, o->client, since_ns, m->config.lease_limit_ms))
            gvmi_keep_cut_later(
                m, o->client,
                "it kept a lease for longer than the lease timeout while others waited for it");
    }
}

void gvmi_keep_watch_clients(gvmi_machine *m)
{
    uint32_t ended = 0;

    for (uint32_t i = 0; i < m->client_capacity; i++) {
        keep_client *client = m->clients[i];

        if (client == NULL)
            continue;
        m->cut_due = m->cut_due || client->cut_due;
        if (!client->connected && !client->voided &&
            is_past_timeout(m, client->left_ns, m->config.revoke_limit_ms)) {
            if (!may_end_client(m, client, &ended))
                return;
            void_client(m, client, client->mapped);
        }
        if (!client->connected)
            report_voided(m, client,
                          "its connection ended, and its process has leases or memory after the revoke "
                          "timeout");
        gvmi_keep_forget_if_over(m, client);
    }
    check_map_deadlines(m, &ended);
}
