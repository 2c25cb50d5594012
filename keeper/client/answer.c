/* Replies of the keeper to requests (call.c), which the mapper alone ends. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "keeper/client/client.h"

static gvmi_wire_type reply_to(gvmi_wire_type request)
{
    switch (request) {
    case GVMI_WIRE_CREATE:
    case GVMI_WIRE_OPEN: return GVMI_WIRE_OPENED;
    case GVMI_WIRE_ACQUIRE: return GVMI_WIRE_GRANTED;
    case GVMI_WIRE_GET_METADATA: return GVMI_WIRE_METADATA;
    case GVMI_WIRE_GET_INFO: return GVMI_WIRE_INFO;
    case GVMI_WIRE_SNAPSHOT: return GVMI_WIRE_SNAPSHOT_IS;
    case GVMI_WIRE_LIST_CHUNKS: return GVMI_WIRE_CHUNK_STATES;
    default: return GVMI_WIRE_DONE;
    }
}

static gvm_status fail_unexpected_reply(const gvmi_wire_head *head)
{
    return gvm_error_set(GVM_E_FORMAT, "the keeper's message %s answers nothing: number %llu",
                         gvmi_wire_name_of(head->type), (unsigned long long)head->request);
}

/* The lease is in the lease word before TAKEN can be seen, whatever the permit says now. Of an object
 * that is closed, CLOSE informs the keeper that the lease is not taken. */
static gvm_status finish_request_granted(gvm_client *client, const gvmi_client_request *request,
                                         const gvmi_client_message *message)
{
    gvmi_wire_message taken;

    if (!GVM_CHECK(message->wire.body.GRANTED.slot == request->object->slot))
        return gvm_error_set(GVM_E_FORMAT, "the keeper granted slot %u when slot %u was asked for",
                             message->wire.body.GRANTED.slot, request->object->slot);
    gvmi_client_granted(request->object, request->mode);
    gvmi_wire_start(&taken, GVMI_WIRE_TAKEN, 0);
    taken.body.TAKEN.slot = request->object->slot;
    taken.body.TAKEN.mode = request->mode;
    return gvmi_client_send(client, &taken, GVMI_NEVER_NS);
}

/* What is to be done before the waiting thread may go on. */
static gvm_status finish_request_ok(gvm_client *client, gvmi_client_request *request,
                                    gvmi_client_message *message)
{
    switch (request->type) {
    case GVMI_WIRE_CREATE:
    case GVMI_WIRE_OPEN: return gvmi_client_opened(request->object, &message->wire.body.OPENED);
    case GVMI_WIRE_ACQUIRE: return finish_request_granted(client, request, message);
    case GVMI_WIRE_CLOSE: /* from here on the slot may be another object's */
        gvmi_lock(&client->lock);
        client->slots[request->object->slot] = NULL;
        gvmi_unlock(&client->lock);
        return GVM_OK;
    case GVMI_WIRE_SNAPSHOT:
        if (!message->came.lost) {
            request->fd = message->fds[0];
            message->came.count = 0;
        }
        return GVM_OK;
    default: return GVM_OK;
    }
}

/* NULL: there is none. Nobody but the mapper ends it. */
static gvmi_client_request *find_request(gvm_client *client, uint64_t number)
{
    gvmi_client_request *request;

    gvmi_lock(&client->lock);
    for (request = *gvmi_client_bucket_of(client, number);
         request != NULL && request->number != number; request = request->next)
        ;
    if (request != NULL)
        request->answering = true;
    gvmi_unlock(&client->lock);
    return request;
}

bool gvmi_client_may_overtake(gvm_client *client, const gvmi_wire_head *head)
{
    const gvmi_client_request *request = find_request(client, head->request);

    return request != NULL && (request->type == GVMI_WIRE_EVICT || request->type == GVMI_WIRE_TRIM ||
                               request->type == GVMI_WIRE_SNAPSHOT);
}

static gvm_status fail_answer(gvmi_client_request *request, const gvmi_wire_failed *failed)
{
    gvm_error_set((gvm_status)failed->status, "%.*s", GVMI_WIRE_TEXT_BYTES, failed->text);
    request->error = gvmi_error_save();
    return GVM_OK;
}

/* Ends a request whose reply is dealt with. leased: a lease was taken for it, of an object that is
 * worked on. */
static void finish_answer(gvm_client *client, gvmi_client_request *request, bool leased)
{
    gvm_object *object = request->object;
    const uint32_t mode = request->mode;
    bool given_up;
    uint64_t permit;

    gvmi_lock(&client->lock);
    given_up = gvmi_client_end_request_locked(client, request);
    gvmi_unlock(&client->lock);
    if (given_up && leased)
        (void)gvmi_client_give_back(object, mode, &permit);
    if (leased)
        gvmi_client_end_work(client);
    if (given_up)
        gvmi_client_free_request(request);
}

gvm_status gvmi_client_answer(gvm_client *client, gvmi_client_message *message)
{
    const gvmi_wire_head *head = &message->wire.head;
    gvmi_client_request *request = find_request(client, head->request);
    gvm_status status = GVM_OK;
    bool leased = false;

    if (!GVM_CHECK(request != NULL))
        return fail_unexpected_reply(head);
    if (head->type == GVMI_WIRE_FAILED && request->type != GVMI_WIRE_CLOSE) {
        status = fail_answer(request, &message->wire.body.FAILED);
    } else if (GVM_CHECK(head->type == reply_to(request->type))) {
        leased = head->type == GVMI_WIRE_GRANTED && gvmi_client_begin_work(request->object);
        if (leased || head->type != GVMI_WIRE_GRANTED)
            status = finish_request_ok(client, request, message);
        if (request->reply != NULL)
            memcpy(request->reply, &message->wire, sizeof message->wire);
    } else {
        status = fail_unexpected_reply(head);
    }
    if (status == GVM_OK)
        finish_answer(client, request, leased);
    else if (leased) /* losing the connection ends the request */
        gvmi_client_end_work(client);
    return status;
}

static void fail_lost(const gvm_client *client)
{
    const gvm_error cause = gvmi_error_save();

    if (client->reason[0] != '\0')
        gvm_error_set(GVM_E_KEEPER, "the keeper (process %u) cut this process off, connect anew: %s",
                      client->keeper_pid, client->reason);
    else
        gvmi_fail_native(GVM_E_KEEPER, cause.native_code, cause.native_call, cause.native_name,
                         "the connection to the keeper (process %u) is lost, connect anew: %s",
                         client->keeper_pid, cause.text);
}

void gvmi_client_lose(gvm_client *client)
{
    gvmi_client_request *given_up = NULL;

    fail_lost(client);
    gvmi_client_break(client); /* if it was we who found fault, the keeper is to know */
    gvmi_lock(&client->lock);
    client->loss = gvmi_error_save();
    client->lost = true;
    for (uint32_t i = 0; i < GVMI_CLIENT_BUCKETS; i++)
        for (gvmi_client_request *request; (request = client->requests[i]) != NULL;) {
            request->error = client->loss;
            if (request->type == GVMI_WIRE_CLOSE)
                gvmi_client_leave_slot_locked(request->object);
            if (gvmi_client_end_request_locked(client, request)) {
                request->next = given_up;
                given_up = request;
            }
        }
    pthread_cond_broadcast(&client->changed);
    gvmi_unlock(&client->lock);
    while (given_up != NULL) {
        gvmi_client_request *request = given_up;

        given_up = request->next;
        gvmi_client_free_request(request);
    }
}
