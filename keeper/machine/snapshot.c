/* Snapshots: figures of everything, put together in slices.
 *
 * With many objects a snapshot is long. So an event only queues the request, and gvmi_machine_work()
 * does a slice of bounded length each time the server calls it, at the end of a turn. Each
 * record is of one moment; the whole is of several. It is sent in pieces, which the server writes to a
 * memfd: neither has more of it in its own memory than a slice.
 *
 * A user has at most one snapshot being made, and of those of several users slices are made in rotation. A client has at most
 * one memfd: after it was sent one, its next request waits for SNAPSHOT_READ. The bytes count to its
 * user until then, or until the client ends; the server frees them at the same moment.
 *
 *     request -> client's queue -> [its user is next] being made -> sent, unread -> read
 *
 * Objects come in the order of m->objects, the newest first, and users likewise: those made meanwhile are left out. */
#include <stdlib.h>
#include <string.h>

#include "keeper/machine/state.h"
#include "keeper/protocol/snapshot.h"

#define SLICE_RECORDS_MAX 256u
#define SLICE_UNITS_MAX 1024u /* records, and the openings and frames looked at for them */

struct keep_snapshot {
    keep_client *client;
    keep_object *next_object; /* NULL: the clients are next */
    uint32_t next_client;     /* index; behind the last one users are next (keep_user.next_shown) */
    uint64_t bytes;           /* made so far, with room for what comes first and is sent last */
    gvmi_snapshot_head head;
    gvmi_snapshot_device devices[]; /* only what is summed up over objects */
};

/* ---- who is next: a queue of users, in each a queue of clients */

static bool user_has_snapshots(const keep_user *user)
{
    return user->snapshot != NULL || user->first_asking != NULL;
}

static void link_user(gvmi_machine *m, keep_user *user)
{
    if (user->busy || !user_has_snapshots(user))
        return;
    user->busy = true;
    user->busy_prev = m->last_busy;
    user->busy_next = NULL;
    *(m->last_busy != NULL ? &m->last_busy->busy_next : &m->first_busy) = user;
    m->last_busy = user;
}

static void unlink_user(gvmi_machine *m, keep_user *user)
{
    if (!user->busy)
        return;
    user->busy = false;
    *(user->busy_prev != NULL ? &user->busy_prev->busy_next : &m->first_busy) = user->busy_next;
    *(user->busy_next != NULL ? &user->busy_next->busy_prev : &m->last_busy) = user->busy_prev;
}

static void link_client(gvmi_machine *m, keep_client *client)
{
    keep_user *user = client->user;

    if (client->asking || client->snapshot_count == 0 || client->snapshot_sent)
        return;
    client->asking = true;
    client->asking_prev = user->last_asking;
    client->asking_next = NULL;
    *(user->last_asking != NULL ? &user->last_asking->asking_next : &user->first_asking) = client;
    user->last_asking = client;
    link_user(m, user);
}

static void unlink_client(keep_client *client)
{
    keep_user *user = client->user;

    if (!client->asking)
        return;
    client->asking = false;
    *(client->asking_prev != NULL ? &client->asking_prev->asking_next
                                  : &user->first_asking) = client->asking_next;
    *(client->asking_next != NULL ? &client->asking_next->asking_prev
                                  : &user->last_asking) = client->asking_prev;
}

/* ---- requests, and what becomes of them */

void gvmi_keep_snapshot(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const uint64_t request = message->head.request;

    if (client->snapshot_count == KEEP_CLIENT_SNAPSHOTS_MAX) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT,
                               "%u snapshots for this connection are to be made already, the limit: wait "
                               "for one",
                               client->snapshot_count);
    } else if (!gvmi_keep_may_take(m, client->user, KEEP_SNAPSHOTS, 1)) {
        gvmi_keep_reply_allowance(m, client, request, KEEP_SNAPSHOTS);
    } else {
        gvmi_keep_take(m, client->user, KEEP_SNAPSHOTS, 1);
        client->snapshot_requests[client->snapshot_count++] = request;
        if (client->user->snapshot == NULL || client->user->snapshot->client != client)
            link_client(m, client);
    }
}

/* What was made of it takes no memory any more, and the next may begin. */
static void release_snapshot(gvmi_machine *m, keep_client *client)
{
    const uint64_t bytes = client->snapshot_bytes;

    client->snapshot_bytes = 0;
    client->snapshot_sent = false;
    gvmi_keep_give(m, client->user, KEEP_QUEUED_BYTES, bytes);
    gvmi_keep_give(m, client->user, KEEP_SNAPSHOTS, 1);
}

static void remove_request(keep_client *client)
{
    memmove(client->snapshot_requests, client->snapshot_requests + 1,
            --client->snapshot_count * sizeof client->snapshot_requests[0]);
}

static void end_snapshot(keep_user *user)
{
    free(user->snapshot);
    user->snapshot = NULL;
    user->next_shown = NULL;
}

void gvmi_keep_end_snapshots(gvmi_machine *m, keep_client *client)
{
    keep_user *user = client->user;

    unlink_client(client);
    if (user->snapshot != NULL && user->snapshot->client == client)
        end_snapshot(user);
    if (client->snapshot_sent)
        release_snapshot(m, client);
    gvmi_keep_give(m, user, KEEP_QUEUED_BYTES, client->snapshot_bytes + client->outbox_bytes);
    gvmi_keep_give(m, user, KEEP_SNAPSHOTS, client->snapshot_count);
    client->snapshot_bytes = client->outbox_bytes = 0;
    client->snapshot_count = 0;
    if (!user_has_snapshots(user))
        unlink_user(m, user);
}

void gvmi_keep_snapshot_read(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    (void)message;
    if (!client->snapshot_sent) {
        gvmi_keep_violated(m, client, "SNAPSHOT_READ without SNAPSHOT_IS");
        return;
    }
    release_snapshot(m, client);
    link_client(m, client);
}

void gvmi_machine_snapshot_read(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    if (client != NULL && client->snapshot_sent)
        gvmi_keep_snapshot_read(m, client, NULL);
}

bool gvmi_machine_queued(gvmi_machine *m, uint32_t number, uint64_t bytes)
{
    keep_client *client = gvmi_keep_client(m, number);
    const uint64_t before = client != NULL ? client->outbox_bytes : 0;

    if (client == NULL || !client->connected)
        return true;
    if (bytes > before && !gvmi_keep_may_take(m, client->user, KEEP_QUEUED_BYTES, bytes - before))
        return false;
    if (bytes > before)
        gvmi_keep_take(m, client->user, KEEP_QUEUED_BYTES, bytes - before);
    else
        gvmi_keep_give(m, client->user, KEEP_QUEUED_BYTES, before - bytes);
    client->outbox_bytes = bytes;
    return true;
}

/* ---- making one */

static uint64_t leading_bytes(const gvmi_machine *m)
{
    return sizeof(gvmi_snapshot_head) + sizeof(gvmi_snapshot_keeper) +
           m->config.device_count * sizeof(gvmi_snapshot_device);
}

/* Sends a piece, and what it is the last piece of with its message. Takes over bytes. False: no memory;
 * message is untouched. */
static bool send_piece(gvmi_machine *m, keep_client *client, uint64_t offset_bytes, void *bytes,
                       size_t len, const gvmi_wire_message *message)
{
    gvmi_action action = {.kind = GVMI_ACTION_SNAPSHOT,
                          .client = client->number,
                          .offset_bytes = offset_bytes,
                          .bytes = bytes,
                          .len = len};

    if (message != NULL) {
        action.message = malloc(sizeof *message);
        if (action.message != NULL)
            *action.message = *message;
    }
    if ((message == NULL || action.message != NULL) && gvmi_keep_act(m, &action))
        return true;
    free(action.message);
    free(bytes);
    return false;
}

/* The snapshot under way is given up. */
static void fail_snapshot(gvmi_machine *m, keep_user *user, gvm_status status)
{
    keep_client *client = user->snapshot->client;
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_FAILED, client->snapshot_requests[0]);
    message.body.FAILED.status = (uint32_t)status;
    if (status == GVM_E_LIMIT)
        gvmi_keep_refusal(m, user, KEEP_QUEUED_BYTES, message.body.FAILED.text);
    else
        strcpy(message.body.FAILED.text, "the keeper is out of host memory");
    if (!send_piece(m, client, 0, NULL, 0, &message))
        gvmi_keep_cut_later(m, client, "out of host memory for an answer");
    end_snapshot(user);
    remove_request(client);
    release_snapshot(m, client);
    link_client(m, client);
}

/* Records that were made. */
static void append_records(gvmi_machine *m, keep_user *user, void *records, size_t len)
{
    keep_snapshot *snapshot = user->snapshot;

    if (len == 0 || !gvmi_keep_may_take(m, user, KEEP_QUEUED_BYTES, len)) {
        free(records);
        if (len > 0)
            fail_snapshot(m, user, GVM_E_LIMIT);
        return;
    }
    gvmi_keep_take(m, user, KEEP_QUEUED_BYTES, len);
    snapshot->client->snapshot_bytes += len;
    if (!send_piece(m, snapshot->client, snapshot->bytes, records, len, NULL))
        fail_snapshot(m, user, GVM_E_NOMEM);
    else
        snapshot->bytes += len;
}

static void add_to_device(const gvmi_snapshot_object *object, gvmi_snapshot_device *device)
{
    device->objects++;
    device->host_backed_bytes += object->host_bytes;
    device->dirty_bytes += object->dirty_bytes;
    if (object->read_leases + object->write_leases > 0)
        device->leased_bytes += object->device_bytes;
}

/* Returns how much was looked at. */
static uint32_t append_objects(gvmi_machine *m, keep_user *user)
{
    keep_snapshot *snapshot = user->snapshot;
    gvmi_snapshot_object *records = malloc(SLICE_RECORDS_MAX * sizeof *records);
    uint32_t count = 0, looked = 0, units = 0;

    if (records == NULL) {
        fail_snapshot(m, user, GVM_E_NOMEM);
        return 0;
    }
    for (; snapshot->next_object != NULL && looked < SLICE_RECORDS_MAX && units < SLICE_UNITS_MAX;
         looked++) {
        keep_object *object = snapshot->next_object;

        gvmi_keep_describe_object(m, object, &records[count]);
        add_to_device(&records[count], &snapshot->devices[object->device]);
        count += gvmi_keep_may_read(m, snapshot->client, object);
        units += 1 + object->opening_count;
        snapshot->next_object = object->next;
    }
    snapshot->head.object_count += count;
    append_records(m, user, records, count * sizeof *records);
    return units;
}

static uint32_t append_clients(gvmi_machine *m, keep_user *user)
{
    keep_snapshot *snapshot = user->snapshot;
    gvmi_snapshot_client *records = malloc(SLICE_RECORDS_MAX * sizeof *records);
    uint32_t count = 0, units = 0;

    if (records == NULL) {
        fail_snapshot(m, user, GVM_E_NOMEM);
        return 0;
    }
    for (; snapshot->next_client < m->client_capacity && count < SLICE_RECORDS_MAX &&
           units < SLICE_UNITS_MAX;
         snapshot->next_client++) {
        const keep_client *client = m->clients[snapshot->next_client];

        if (client == NULL)
            continue;
        gvmi_keep_describe_client(m, client, &records[count++]);
        units += 1 + client->opening_count + client->held_count;
    }
    snapshot->head.client_count += count;
    append_records(m, user, records, count * sizeof *records);
    return units;
}

/* Administrators see all, others themselves. */
static uint32_t append_users(gvmi_machine *m, keep_user *user)
{
    keep_snapshot *snapshot = user->snapshot;
    const bool all = gvmi_keep_is_admin(m, snapshot->client);
    gvmi_snapshot_user *records = malloc(SLICE_RECORDS_MAX * sizeof *records);
    uint32_t count = 0, looked = 0;

    if (records == NULL) {
        fail_snapshot(m, user, GVM_E_NOMEM);
        return 0;
    }
    for (; user->next_shown != NULL && looked < SLICE_RECORDS_MAX; looked++) {
        if (all || user->next_shown == user)
            gvmi_keep_describe_user(m, user->next_shown, &records[count++]);
        user->next_shown = user->next_shown->next;
    }
    snapshot->head.user_count += count;
    if (count > 0)
        append_records(m, user, records, count * sizeof *records);
    else
        free(records);
    return looked;
}

/* What comes first is made and sent last, as it counts the rest. */
static void finish_head(gvmi_machine *m, keep_user *user)
{
    keep_snapshot *snapshot = user->snapshot;
    keep_client *client = snapshot->client;
    const uint64_t len = leading_bytes(m);
    char *bytes = calloc(1, len), *devices;
    gvmi_wire_message message;

    if (bytes == NULL) {
        fail_snapshot(m, user, GVM_E_NOMEM);
        return;
    }
    memcpy(bytes, &snapshot->head, sizeof snapshot->head);
    gvmi_keep_describe_keeper(m, (gvmi_snapshot_keeper *)(void *)(bytes + sizeof snapshot->head));
    devices = bytes + sizeof snapshot->head + sizeof(gvmi_snapshot_keeper);
    for (uint32_t d = 0; d < m->config.device_count; d++) {
        gvmi_keep_describe_device(m, d, &snapshot->devices[d]);
        memcpy(devices + d * sizeof snapshot->devices[d], &snapshot->devices[d],
               sizeof snapshot->devices[d]);
    }
    gvmi_wire_start(&message, GVMI_WIRE_SNAPSHOT_IS, client->snapshot_requests[0]);
    message.head.fd_count = 1;
    message.body.SNAPSHOT_IS.value = snapshot->bytes;
    if (!send_piece(m, client, 0, bytes, len, &message)) {
        fail_snapshot(m, user, GVM_E_NOMEM);
        return;
    }
    end_snapshot(user);
    remove_request(client);
    client->snapshot_sent = true;
}

/* For the client that has waited longest. */
static void begin_snapshot(gvmi_machine *m, keep_user *user)
{
    keep_client *client = user->first_asking;
    keep_snapshot *snapshot = calloc(1, sizeof *snapshot +
                                            m->config.device_count * sizeof snapshot->devices[0]);

    if (snapshot == NULL) {
        gvmi_keep_cut_later(m, client, "out of host memory for a snapshot");
        unlink_client(client);
        return;
    }
    unlink_client(client);
    snapshot->client = client;
    snapshot->next_object = m->objects;
    user->next_shown = m->users;
    snapshot->bytes = leading_bytes(m);
    snapshot->head = (gvmi_snapshot_head){.magic = GVMI_SNAPSHOT_MAGIC,
                                          .head_bytes = sizeof(gvmi_snapshot_head),
                                          .keeper_bytes = sizeof(gvmi_snapshot_keeper),
                                          .device_bytes = sizeof(gvmi_snapshot_device),
                                          .object_bytes = sizeof(gvmi_snapshot_object),
                                          .client_bytes = sizeof(gvmi_snapshot_client),
                                          .user_bytes = sizeof(gvmi_snapshot_user),
                                          .device_count = m->config.device_count};
    user->snapshot = snapshot;
}

/* A slice: what is short is made in one, and so of one moment. */
static void make_slice(gvmi_machine *m, keep_user *user)
{
    uint32_t units = 0;

    while (user->snapshot != NULL && units < SLICE_RECORDS_MAX) {
        if (user->snapshot->next_object != NULL)
            units += append_objects(m, user);
        else if (user->snapshot->next_client < m->client_capacity)
            units += append_clients(m, user);
        else if (user->next_shown != NULL)
            units += append_users(m, user);
        else
            finish_head(m, user);
    }
}

void gvmi_keep_make_snapshots(gvmi_machine *m)
{
    keep_user *user = m->first_busy;

    if (user == NULL)
        return;
    if (user->snapshot == NULL)
        begin_snapshot(m, user);
    make_slice(m, user);
    unlink_user(m, user);
    link_user(m, user); /* at the end of the queue, if there is more */
}

void gvmi_keep_skip_object(gvmi_machine *m, const keep_object *object)
{
    for (keep_user *user = m->first_busy; user != NULL; user = user->busy_next)
        if (user->snapshot != NULL && user->snapshot->next_object == object)
            user->snapshot->next_object = object->next;
}
