/* Clients: coming and going, as the server reports it. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "keeper/machine/state.h"

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
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a client");
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
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a client");
    admitted = gvmi_keep_may_take(m, user, KEEP_CLIENTS, 1);
    if (!admitted)
        gvmi_keep_refusal(m, user, KEEP_CLIENTS, text);
    gvmi_keep_end_user(m, user);
    return admitted ? GVM_OK : gvm_error_set(GVM_E_LIMIT, "%s", text);
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
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a client");
    client->slots = calloc(GVM_OBJECTS_OPEN_MAX, sizeof(keep_opening *));
    client->user = client->slots != NULL ? gvmi_keep_user(m, who->uid) : NULL;
    if (client->user == NULL) {
        free(client->slots);
        free(client);
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a client");
    }
    gvmi_keep_take(m, client->user, KEEP_CLIENTS, 1);
    client->number = found;
    client->id = ++m->client_ids << 32 | found;
    client->connected = true;
    client->who = *who;
    client->restricted = gvmi_keep_is_restricted(m, who->uid);
    client->leases = leases;
    client->permits = permits;
    m->clients[found - 1] = client;
    *number = found;
    return GVM_OK;
}

/* ---- going */

void gvmi_machine_disconnect(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client == NULL || !client->connected)
        return;
    gvmi_keep_silence(m, client);
    if (!client->mapped)
        gvmi_keep_void(m, client, false);
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
        gvmi_keep_silence(m, client);
    client->closed = true;
    if (!has_leases(client))
        gvmi_keep_void(m, client, true);
    if (client->voided)
        gvmi_keep_release_holds(m, client, false);
    gvmi_keep_report_voided(m, client,
                            "it closed the connection, and its process may have memory mapped");
    gvmi_keep_forget_if_over(m, client);
    gvmi_keep_settle(m);
}

void gvmi_machine_adopted(gvmi_machine *m, uint32_t number, int32_t pid)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client != NULL)
        client->who.pid = pid;
}

void gvmi_machine_bye(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client == NULL || !client->connected)
        return;
    gvmi_keep_silence(m, client);
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
        gvmi_keep_silence(m, client);
    gvmi_keep_void(m, client, false);
    gvmi_keep_release_holds(m, client, true);
    m->clients[number - 1] = NULL;
    gvmi_keep_give(m, client->user, KEEP_CLIENTS, 1);
    free(client->slots);
    free(client);
    gvmi_keep_settle(m);
}

void gvmi_machine_delayed(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client != NULL)
        client->delayed_ns = m->now_ns;
}
