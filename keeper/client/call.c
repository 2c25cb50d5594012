/* Requests to the keeper and their replies.
 *
 * A request is on the stack of the thread that waits for it. Only the mapper ends requests: a thread
 * that could not send shuts the socket down and waits for the mapper to notice. So the mapper may
 * look at a request outside the lock.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/error.h"
#include "keeper/client/client.h"
#include "sharing/socket.h"

/* ---- sending */

static gvm_status send_bytes(gvm_keeper *keeper, const void *bytes, size_t len, int timeout_ms)
{
    gvmi_socket socket = {.fd = keeper->socket, .timeout_ms = -1, .deadline_ns = INT64_MAX};
    gvm_status status = GVM_OK;

    if (timeout_ms >= 0)
        status = gvmi_socket_begin(keeper->socket, timeout_ms, &socket);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&keeper->send_lock);
    status = gvmi_socket_send(&socket, bytes, len, NULL, 0);
    gvmi_unlock(&keeper->send_lock);
    return status;
}

gvm_status gvmi_client_send(gvm_keeper *keeper, const gvmi_wire_message *message, int timeout_ms)
{
    char bytes[sizeof *message];
    const size_t len = gvmi_wire_encode(message, bytes);

    return send_bytes(keeper, bytes, len, timeout_ms);
}

/* ---- the table of requests */

static gvmi_client_request **bucket_of(gvm_keeper *keeper, uint64_t number)
{
    return &keeper->requests[number % GVMI_CLIENT_BUCKETS];
}

static gvm_status add_request_locked(gvm_keeper *keeper, gvmi_client_request *request)
{
    gvmi_client_request **bucket = bucket_of(keeper, request->number);

    if (keeper->lost) {
        gvmi_error_restore(&keeper->loss);
        return GVM_E_KEEPER;
    }
    if (request->type == GVMI_WIRE_ACQUIRE) {
        if (keeper->acquires_waiting == GVMI_CLIENT_WAITING_MAX)
            return gvmi_fail(GVM_E_LIMIT, "%d threads of this connection wait for leases already",
                             GVMI_CLIENT_WAITING_MAX);
        keeper->acquires_waiting++;
    }
    request->next = *bucket;
    *bucket = request;
    return GVM_OK;
}

/* Takes the request out and wakes its thread; after the lock is gone, so may be the request. */
static void end_request_locked(gvm_keeper *keeper, gvmi_client_request *request)
{
    gvmi_client_request **place = bucket_of(keeper, request->number);

    while (*place != request)
        place = &(*place)->next;
    *place = request->next;
    if (request->type == GVMI_WIRE_ACQUIRE)
        keeper->acquires_waiting--;
    request->done = true;
    pthread_cond_signal(&request->ended);
}

gvm_status gvmi_client_call(gvm_keeper *keeper, gvmi_wire_message *message, gvmi_client_request *request)
{
    char bytes[sizeof *message];
    size_t len;
    gvm_status status;

    request->number = atomic_fetch_add(&keeper->next_number, 1);
    request->type = (gvmi_wire_type)message->head.type;
    request->reply = message;
    request->fd = -1;
    request->done = false;
    request->error.status = GVM_OK;
    message->head.request = request->number;
    /* Before the request is in the table: from then on a reply may be written to the message. */
    len = gvmi_wire_encode(message, bytes);
    pthread_cond_init(&request->ended, NULL);
    gvmi_lock(&keeper->lock);
    status = add_request_locked(keeper, request);
    gvmi_unlock(&keeper->lock);
    if (status == GVM_OK) {
        if (send_bytes(keeper, bytes, len, -1) != GVM_OK)
            shutdown(keeper->socket, SHUT_RD); /* the mapper sees that */
        gvmi_lock(&keeper->lock);
        while (!request->done)
            pthread_cond_wait(&request->ended, &keeper->lock.mutex);
        gvmi_unlock(&keeper->lock);
        status = request->error.status;
        if (status != GVM_OK)
            gvmi_error_restore(&request->error);
    }
    pthread_cond_destroy(&request->ended);
    return status;
}

/* ---- replies */

static gvmi_wire_type reply_to(gvmi_wire_type request)
{
    switch (request) {
    case GVMI_WIRE_CREATE:
    case GVMI_WIRE_OPEN: return GVMI_WIRE_OPENED;
    case GVMI_WIRE_ACQUIRE: return GVMI_WIRE_GRANTED;
    case GVMI_WIRE_GET_METADATA: return GVMI_WIRE_METADATA;
    case GVMI_WIRE_GET_INFO: return GVMI_WIRE_INFO;
    case GVMI_WIRE_SNAPSHOT: return GVMI_WIRE_SNAPSHOT_IS;
    default: return GVMI_WIRE_DONE;
    }
}

static gvm_status unexpected(const gvmi_wire_head *head)
{
    return gvmi_fail(GVM_E_FORMAT, "the keeper's message %s answers nothing: number %llu",
                     gvmi_wire_name_of(head->type), (unsigned long long)head->request);
}

/* The lease is in the lease word before TAKEN can be seen, whatever the permit says now. */
static gvm_status answer_granted(gvm_keeper *keeper, const gvmi_client_request *request,
                                 const gvmi_client_message *message)
{
    gvmi_wire_message taken;

    if (!GVM_CHECK(message->wire.body.GRANTED.slot == request->object->slot))
        return gvmi_fail(GVM_E_FORMAT, "the keeper granted slot %u when slot %u was asked for",
                         message->wire.body.GRANTED.slot, request->object->slot);
    gvmi_client_granted(request->object, request->mode);
    gvmi_wire_start(&taken, GVMI_WIRE_TAKEN, 0);
    taken.body.TAKEN.slot = request->object->slot;
    taken.body.TAKEN.mode = request->mode;
    return gvmi_client_send(keeper, &taken, -1);
}

/* What is to be done before the waiting thread may go on. */
static gvm_status answer_good(gvm_keeper *keeper, gvmi_client_request *request,
                              gvmi_client_message *message)
{
    switch (request->type) {
    case GVMI_WIRE_CREATE:
    case GVMI_WIRE_OPEN: return gvmi_client_opened(request->object, &message->wire.body.OPENED);
    case GVMI_WIRE_ACQUIRE: return answer_granted(keeper, request, message);
    case GVMI_WIRE_CLOSE: /* from here on the slot may be another object's */
        gvmi_lock(&keeper->lock);
        keeper->slots[request->object->slot] = NULL;
        gvmi_unlock(&keeper->lock);
        return GVM_OK;
    case GVMI_WIRE_SNAPSHOT:
        if (!message->fds_lost) {
            request->fd = message->fds[0];
            message->fd_count = 0;
        }
        return GVM_OK;
    default: return GVM_OK;
    }
}

/* NULL: there is none. Nobody but the mapper ends it. */
static gvmi_client_request *find_request(gvm_keeper *keeper, uint64_t number)
{
    gvmi_client_request *request;

    gvmi_lock(&keeper->lock);
    for (request = *bucket_of(keeper, number); request != NULL && request->number != number;
         request = request->next)
        ;
    gvmi_unlock(&keeper->lock);
    return request;
}

bool gvmi_client_may_overtake(gvm_keeper *keeper, const gvmi_wire_head *head)
{
    const gvmi_client_request *request = find_request(keeper, head->request);

    return request != NULL && (request->type == GVMI_WIRE_EVICT || request->type == GVMI_WIRE_TRIM ||
                               request->type == GVMI_WIRE_SNAPSHOT);
}

gvm_status gvmi_client_answer(gvm_keeper *keeper, gvmi_client_message *message)
{
    const gvmi_wire_head *head = &message->wire.head;
    gvmi_client_request *request = find_request(keeper, head->request);
    gvm_status status = GVM_OK;

    if (!GVM_CHECK(request != NULL))
        return unexpected(head);
    if (head->type == GVMI_WIRE_FAILED && request->type != GVMI_WIRE_CLOSE) {
        const gvmi_wire_failed *failed = &message->wire.body.FAILED;

        gvmi_fail((gvm_status)failed->status, "%.*s", GVMI_WIRE_TEXT_BYTES, failed->text);
        request->error = gvmi_error_save();
    } else if (GVM_CHECK(head->type == reply_to(request->type))) {
        status = answer_good(keeper, request, message);
        memcpy(request->reply, &message->wire, sizeof message->wire);
    } else {
        status = unexpected(head);
    }
    if (status != GVM_OK) /* losing the connection ends the request */
        return status;
    gvmi_lock(&keeper->lock);
    end_request_locked(keeper, request);
    gvmi_unlock(&keeper->lock);
    return GVM_OK;
}

void gvmi_client_lose(gvm_keeper *keeper)
{
    const gvm_error cause = gvmi_error_save();

    /* If it was we who found fault, the keeper is to know. But the other direction stays open until the
     * connection is closed: to a keeper that has no other sign of our end, that says that nothing is
     * mapped here any more. */
    if (cause.status != GVM_E_PEER)
        shutdown(keeper->socket, SHUT_WR);
    gvmi_fail_native(GVM_E_KEEPER, cause.native_code, cause.native_call, cause.native_name,
                     "the connection to the keeper (process %u) is lost, connect anew: %s",
                     keeper->keeper_pid, cause.text);
    gvmi_lock(&keeper->lock);
    keeper->loss = gvmi_error_save();
    keeper->lost = true;
    for (uint32_t i = 0; i < GVMI_CLIENT_BUCKETS; i++)
        while (keeper->requests[i] != NULL) {
            keeper->requests[i]->error = keeper->loss;
            end_request_locked(keeper, keeper->requests[i]);
        }
    pthread_cond_broadcast(&keeper->changed);
    gvmi_unlock(&keeper->lock);
}
