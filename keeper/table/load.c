/* Opening the memory of a token of gstore_load_begin(). */
#include <gvmem/load.h>

#include "base/cancel.h"
#include "base/error.h"
#include "keeper/client/client.h"
#include "keeper/table/table.h"

static gvm_status fail_ended(void)
{
    return gvm_error_set(
        GVM_E_ABSENT,
        "the token has ended: its rows were loaded, it was revoked or expired, or the session that "
        "made it has ended; call gstore_load_begin() anew");
}

/* Once a token has ended, the name of its link is free. */
static gvm_status open_owned_link(gvm_client *client, const gvmi_token *token, gvm_object **out)
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_object *object;
    gvm_status status = gvm_object_open(client, token->links, GVM_OPEN_LINK, &object);

    if (status != GVM_OK)
        return status == GVM_E_ABSENT ? fail_ended() : status;
    status = gvm_object_get_info(object, &info);
    if (status == GVM_OK && info.owner_uid != token->owner)
        status = fail_ended();
    if (status == GVM_OK)
        *out = object;
    else
        gvm_object_close(object);
    return status;
}

gvm_status gvm_load_open(const char *token, gvm_client **client, gvm_object **object)
{
    GVMI_UNCANCELLED;
    gvmi_token parsed;
    gvm_client *connected;
    gvm_status status;

    if (token == NULL || client == NULL || object == NULL)
        return gvm_error_set(GVM_E_INVALID, "token, client or object is NULL");
    status = gvmi_load_token_parse(token, &parsed);
    if (status == GVM_OK)
        status = gvmi_client_connect_restricted(parsed.socket, &connected);
    if (status != GVM_OK)
        return status;
    status = open_owned_link(connected, &parsed, object);
    if (status == GVM_OK)
        *client = connected;
    else
        gvm_client_close(connected); /* keeps the error */
    return status;
}
