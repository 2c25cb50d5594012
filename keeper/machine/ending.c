/* How a client ends, and when it is made to.
 *
 * A client ends in up to three steps, which may coincide:
 *   it is silent          no more requests and replies; its unpublished objects lose their names;
 *                         its leases stay, as kernels of it may still run
 *   it is voided          its leases and openings end; frames that it may have mapped are written
 *                         down (fence.c). After the revoke timeout; at once when it is cut off, when
 *                         it never had memory, or when it closed its socket and had no lease
 *   its process is gone   nothing of it is left; the frames written down are free
 * If the process goes first, voiding has nothing to write down. A client that is voided, and of which
 * no frame is written down, is over: its process needs not be waited for.
 */
#include <stdio.h>

#include "base/clock.h"
#include "keeper/machine/probes.h"
#include "keeper/machine/state.h"

/* Clients that are late, and openings that end with them, in one tick, after the first client. What a client may have
 * mapped is written down by chunk: KEEP_REQUEST_CHUNKS of them count as an opening. */
#define ENDED_A_TICK_MAX 512u

void gvmi_keep_silence(gvmi_machine *m, keep_client *client)
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

void gvmi_keep_void(gvmi_machine *m, keep_client *client, bool may_map)
{
    if (client->voided)
        return;
    client->voided = true;
    end_openings(m, client, may_map);
}

void gvmi_keep_report_voided(gvmi_machine *m, keep_client *client, const char *why)
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

/* ---- being cut off */

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
        gvmi_keep_silence(m, client);
    gvmi_keep_void(m, client, client->mapped);
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

static uint32_t count_what_ends(const keep_client *client)
{
    uint64_t chunks = 0;

    for (const keep_opening *o = client->openings; o != NULL; o = o->own_next)
        chunks += gvmi_keep_opened_chunks(o);
    return 1 + client->opening_count + (uint32_t)(chunks / KEEP_REQUEST_CHUNKS);
}

/* What ends clients in one tick is bounded, as much may end with each. False: the rest is for the next look. */
static bool may_end_client(gvmi_machine *m, const keep_client *client)
{
    const uint32_t count = m->ended < ENDED_A_TICK_MAX ? count_what_ends(client) : 0;

    if (m->ended > 0 && m->ended + count >= ENDED_A_TICK_MAX) {
        m->ended = ENDED_A_TICK_MAX;
        m->look_again = true; /* at once */
        return false;
    }
    m->ended += count;
    return true;
}

/* False as well: its answer may have come and not have been read. */
static bool is_map_overdue(const gvmi_machine *m, const keep_pending *map)
{
    const uint32_t timeout_ms = m->config.revoke_limit_ms;
    const int64_t since_ns = map->due_ns - timeout_ms * GVMI_NS_PER_MS;
    const int64_t start_ns = since_ns > map->client->delayed_ns ? since_ns : map->client->delayed_ns;

    return is_past_timeout(m, start_ns, timeout_ms) &&
           is_all_read(m, map->client, start_ns, timeout_ms);
}

/* The oldest unanswered MAP sets the deadline; a later one does not extend it. */
static void check_map_deadlines(gvmi_machine *m)
{
    const uint32_t timeout_ms = m->config.revoke_limit_ms;

    for (const keep_pending *map = m->oldest_map;
         map != NULL && is_past_timeout(m, map->sent_ns, timeout_ms); map = map->newer) {
        keep_client *client = map->client;

        if (!client->connected || client->cut_due || !is_map_overdue(m, map))
            continue;
        if (!may_end_client(m, client))
            return;
        gvmi_keep_cut_later(m, client,
                            "it did not map what the keeper moved within the revoke timeout");
    }
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
    const bool writes = gvmi_keep_writers(opening) > 0;
    const bool reads = !object->has_regions && gvmi_keep_readers(opening) > 0;
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

        if (since_ns == INT64_MAX || o->client->cut_due ||
            !is_past_timeout(m, since_ns, m->config.lease_limit_ms) ||
            !is_all_read(m, o->client, since_ns, m->config.lease_limit_ms))
            continue;
        if (!may_end_client(m, o->client))
            return;
        gvmi_keep_cut_later(
            m, o->client,
            "it kept a lease for longer than the lease timeout while others waited for it");
    }
}

void gvmi_keep_watch_clients(gvmi_machine *m)
{
    for (uint32_t i = 0; i < m->client_capacity; i++) {
        keep_client *client = m->clients[i];

        if (client == NULL)
            continue;
        m->cut_due = m->cut_due || client->cut_due;
        if (!client->connected && !client->voided &&
            is_past_timeout(m, client->left_ns, m->config.revoke_limit_ms)) {
            if (!may_end_client(m, client))
                return;
            gvmi_keep_void(m, client, client->mapped);
        }
        if (!client->connected)
            gvmi_keep_report_voided(m, client,
                                    "its connection ended, and its process has leases or memory after the revoke "
                                    "timeout");
        gvmi_keep_forget_if_over(m, client);
    }
    check_map_deadlines(m);
}
