/* Requests to the keeper.
 *
 * A request without a deadline is on the stack of the thread that waits for it. Only the mapper ends
 * requests that were sent: a thread that could not send breaks the connection and waits for the
 * mapper to notice. So the mapper may look at a request outside the lock.
 *
 * A request with a deadline is in memory of its own (CLOSE: in its object) with a reference to its
 * object, as its thread may be gone when the reply comes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "keeper/client/client.h"

/* ---- the table of requests */

gvmi_client_request **gvmi_client_bucket_of(gvm_client *client, uint64_t number)
{
    return &client->requests[number % GVMI_CLIENT_BUCKETS];
}

static gvm_status add_request_locked(gvm_client *client, gvmi_client_request *request)
{
    gvmi_client_request **bucket = gvmi_client_bucket_of(client, request->number);

    if (client->lost) {
        gvm_error_restore(&client->loss);
        return GVM_E_KEEPER;
    }
    if (client->given_up >= GVMI_CLIENT_GIVEN_UP_MAX && request->type != GVMI_WIRE_CLOSE)
        return gvm_error_set(GVM_E_TIMEOUT,
                             "the keeper (process %u) has left %u requests without an answer",
                             client->keeper_pid, client->given_up);
    if (request->type == GVMI_WIRE_ACQUIRE) {
        if (client->acquires_waiting == GVMI_CLIENT_WAITING_MAX)
            return gvm_error_set(GVM_E_LIMIT, "%d threads of this connection wait for leases already",
                                 GVMI_CLIENT_WAITING_MAX);
        client->acquires_waiting++;
    }
    request->next = *bucket;
    *bucket = request;
    return GVM_OK;
}

static void unlink_request_locked(gvm_client *client, const gvmi_client_request *request)
{
    gvmi_client_request **place = gvmi_client_bucket_of(client, request->number);

    while (*place != request)
        place = &(*place)->next;
    *place = request->next;
    if (request->type == GVMI_WIRE_ACQUIRE)
        client->acquires_waiting--;
}

bool gvmi_client_end_request_locked(gvm_client *client, gvmi_client_request *request)
{
    const bool given_up = request->given_up;

    unlink_request_locked(client, request);
    client->given_up -= given_up;
    request->done = true;
    pthread_cond_signal(&request->ended);
    return given_up;
}

/* What a request with a deadline has, but for its memory. */
static void clear_request(gvmi_client_request *request)
{
    pthread_cond_destroy(&request->ended);
    gvmi_client_drop_object(request->object);
}

/* Of one that was given up: CLOSE is in its object's memory. */
void gvmi_client_free_request(gvmi_client_request *request)
{
    gvmi_client_request *own = request->type != GVMI_WIRE_CLOSE ? request : NULL;

    clear_request(request);
    free(own);
}

/* ---- calls */

static void give_up_locked(gvm_client *client, gvmi_client_request *request)
{
    request->given_up = true;
    client->given_up++;
}

/* Puts the request into the table, and its bytes together: from then on a reply may be written in the
 * message's place. */
static gvm_status begin_request(gvm_client *client, gvmi_wire_message *message,
                                gvmi_client_request *request, char *bytes, size_t *len)
{
    gvm_status status;

    request->number = atomic_fetch_add(&client->next_number, 1);
    request->type = (gvmi_wire_type)message->head.type;
    request->fd = -1;
    message->head.request = request->number;
    *len = gvmi_wire_encode(message, bytes);
    gvmi_lock(&client->lock);
    status = add_request_locked(client, request);
    gvmi_unlock(&client->lock);
    return status;
}

void gvmi_client_leave_slot_locked(const gvm_object *object)
{
    gvm_client *client = object->client;

    if (client->slots[object->slot] == object)
        client->slots[object->slot] = NULL;
}

/* Waits for the end of a request that was sent, unless sending said otherwise. *mine: the request is
 * out of the table, and the caller's. */
static gvm_status await_end(gvm_client *client, gvmi_client_request *request, gvm_status sent,
                            int64_t deadline_ns, bool *mine)
{
    gvm_status status;

    if (sent != GVM_OK && sent != GVM_E_TIMEOUT)
        gvmi_client_break(client);
    gvmi_lock(&client->lock);
    while (!request->done && sent != GVM_E_TIMEOUT &&
           gvmi_wait_until(&request->ended, &client->lock, deadline_ns))
        ;
    *mine = request->done;
    if (request->done) {
        status = request->error.status;
        if (status != GVM_OK)
            gvm_error_restore(&request->error);
    } else {
        if (sent == GVM_OK)
            gvm_error_set(GVM_E_TIMEOUT, "the keeper (process %u) does not answer", client->keeper_pid);
        status = GVM_E_TIMEOUT;
        *mine = sent == GVM_E_TIMEOUT && !request->answering; /* nothing of it was sent */
        if (*mine)
            unlink_request_locked(client, request);
        else
            give_up_locked(client, request);
    }
    gvmi_unlock(&client->lock);
    return status;
}

gvm_status gvmi_client_call(gvm_client *client, gvmi_wire_message *message, gvmi_client_request *request)
{
    char bytes[sizeof *message];
    size_t len;
    bool mine = true;
    gvm_status status;

    request->reply = message;
    request->answering = request->given_up = request->done = false;
    request->error.status = GVM_OK;
    gvmi_cond_init(&request->ended);
    status = begin_request(client, message, request, bytes, &len);
    if (status == GVM_OK) {
        status = gvmi_client_send_bytes(client, bytes, len, GVMI_NEVER_NS);
        status = await_end(client, request, status, GVMI_NEVER_NS, &mine);
    }
    GVM_ASSERT(mine);
    pthread_cond_destroy(&request->ended);
    return status;
}

/* The request's object is referenced for it. *mine: the request is cleared, and the caller's. */
static gvm_status call_until(gvm_client *client, gvmi_wire_message *message,
                             gvmi_client_request *request, int64_t deadline_ns, bool *sent, bool *mine)
{
    char bytes[sizeof *message];
    size_t len;
    gvm_status status;

    *sent = false;
    *mine = true;
    atomic_fetch_add(&request->object->references, 1);
    gvmi_cond_init(&request->ended);
    status = begin_request(client, message, request, bytes, &len);
    if (status == GVM_OK) {
        status = gvmi_client_send_bytes(client, bytes, len, deadline_ns);
        *sent = status != GVM_E_TIMEOUT;
        status = await_end(client, request, status, deadline_ns, mine);
    }
    if (*mine)
        clear_request(request);
    return status;
}

/* A request whose thread may be gone when the reply comes. */
typedef struct own_request {
    gvmi_client_request request; /* first: who frees it frees both */
    gvmi_wire_message reply;
} own_request;

gvm_status gvmi_client_call_until(gvm_client *client, gvmi_wire_message *message,
                                  gvm_object *object, uint32_t mode, int64_t deadline_ns)
{
    own_request *own = malloc(sizeof *own);
    bool sent, mine;
    gvm_status status;

    if (own == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a request to the keeper");
    own->request = (gvmi_client_request){.object = object, .mode = mode, .reply = &own->reply};
    status = call_until(client, message, &own->request, deadline_ns, &sent, &mine);
    if (status == GVM_OK)
        memcpy(message, &own->reply, sizeof *message);
    if (mine)
        free(own);
    return status;
}

static void write_close(gvm_object *object, gvmi_wire_message *message)
{
    object->closing = (gvmi_client_request){.object = object};
    gvmi_wire_start(message, GVMI_WIRE_CLOSE, 0);
    message->body.CLOSE.slot = object->slot;
}

gvm_status gvmi_client_call_close(gvm_object *object, int64_t deadline_ns, bool *sent)
{
    gvmi_wire_message message;
    bool mine;

    write_close(object, &message);
    return call_until(object->client, &message, &object->closing, deadline_ns, sent, &mine);
}

void gvmi_client_post_close(gvm_object *object)
{
    gvm_client *client = object->client;
    gvmi_client_request *request = &object->closing;
    gvmi_wire_message message;
    char bytes[sizeof message];
    size_t len;
    gvm_status status;

    write_close(object, &message);
    atomic_fetch_add(&object->references, 1);
    gvmi_cond_init(&request->ended);
    status = begin_request(client, &message, request, bytes, &len);
    gvmi_lock(&client->lock);
    if (status != GVM_OK) { /* the connection is lost */
        gvmi_client_leave_slot_locked(object);
        gvmi_unlock(&client->lock);
        clear_request(request);
        return;
    }
    give_up_locked(client, request); /* before it is sent; the mapper, who calls this, answers it */
    gvmi_unlock(&client->lock);
    if (gvmi_client_send_bytes(client, bytes, len, GVMI_NEVER_NS) != GVM_OK)
        gvmi_client_break(client); /* losing the connection frees it */
}

gvm_status gvmi_client_fail_cut_off(gvm_client *client)
{
    const int64_t deadline_ns = gvmi_deadline_ns(GVMI_CLIENT_REASON_MS);

    gvmi_lock(&client->lock);
    while (!client->lost && gvmi_wait_until(&client->changed, &client->lock, deadline_ns))
        ;
    if (client->lost && client->reason[0] != '\0')
        gvm_error_restore(&client->loss);
    else
        gvm_error_set(GVM_E_KEEPER, "the keeper (process %u) cut this process off; connect anew",
                      client->keeper_pid);
    gvmi_unlock(&client->lock);
    return GVM_E_KEEPER;
}
