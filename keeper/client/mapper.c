/* The mapper: the connection's own thread. It reads what the keeper sends, and ends what other threads
 * cannot end in time. */
#include <poll.h>
#include <stdio.h>

#include "base/error.h"
#include "keeper/client/client.h"

/* False: there is nothing to read yet, but time for MAPs that are pending or for failing objects. */
static bool wait_message(const gvm_client *client)
{
    struct pollfd entry = {.fd = client->socket, .events = POLLIN};

    if (client->pending_count > 0)
        return poll(&entry, 1, 0) != 0;
    return client->failing == NULL || poll(&entry, 1, GVMI_CLIENT_RETRY_MS) != 0;
}

/* Is it the message with the reason, FAILED without a request? Takes the reason over. */
static bool is_cut_off_reason(gvm_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_failed *failed = &message->body.FAILED;

    if (message->head.type != GVMI_WIRE_FAILED || message->head.request != 0)
        return false;
    snprintf(client->reason, sizeof client->reason, "%.*s", GVMI_WIRE_TEXT_BYTES,
             failed->text[0] != '\0' ? failed->text : gvm_status_text((gvm_status)failed->status));
    return true;
}

/* When the connection has broken: what is left in the socket may end with the reason, behind MAPs
 * whose answers could not be sent. */
static void read_close_reason(gvm_client *client)
{
    gvmi_client_message message;

    for (uint32_t i = 0; i < GVMI_CLIENT_LAST_MESSAGES && client->reason[0] == '\0'; i++) {
        if (gvmi_client_receive(client->socket, 0, &message) != GVM_OK)
            break;
        (void)is_cut_off_reason(client, &message.wire);
        gvmi_fds_close(&message.came);
    }
}

static gvm_status handle_message(gvm_client *client, gvmi_client_message *message)
{
    const gvmi_wire_head *head = &message->wire.head;
    gvm_status status;

    if (is_cut_off_reason(client, &message->wire))
        return gvm_error_set(GVM_E_PEER, "the keeper ended the connection");
    if (head->type == GVMI_WIRE_MAP)
        return gvmi_client_handle_map(client, message);
    status = gvmi_client_may_overtake(client, head) ? GVM_OK
                                                    : gvmi_client_finish_pending_maps(client, 0);
    if (status != GVM_OK)
        return status;
    return gvmi_client_answer(client, message);
}

static gvm_status handle_next(gvm_client *client)
{
    gvmi_client_message message;
    gvm_status status = gvmi_client_receive(client->socket, -1, &message);

    if (status == GVM_OK) {
        status = handle_message(client, &message);
        gvmi_fds_close(&message.came);
    }
    return status;
}

void *gvmi_client_run_mapper(void *arg)
{
    gvm_client *client = arg;
    gvm_status status = GVM_OK;
    gvm_error reason;

    while (status == GVM_OK) {
        gvmi_client_end_leaving(client);
        status = gvmi_client_answer_failing_maps(client);
        if (status != GVM_OK)
            break;
        if (wait_message(client))
            status = handle_next(client);
        else if (client->pending_count > 0)
            status = gvmi_client_continue_oldest_map(client, true);
    }
    reason = gvmi_error_save();
    if (status == GVM_E_PEER)
        read_close_reason(client);
    while (client->pending_count > 0)
        (void)gvmi_client_continue_oldest_map(client, false);
    gvm_error_restore(&reason);
    gvmi_client_lose(client);
    gvmi_client_end_leaving(client); /* after that none is left to the mapper any more */
    while (client->failing != NULL) {
        gvm_object *object = client->failing;

        client->failing = object->next_failing;
        gvmi_client_drop_object(object);
    }
    return NULL;
}
