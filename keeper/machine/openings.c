/* Openings: one client's use of one object, from open to close. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "keeper/machine/state.h"

/* ---- slots */

keep_opening *gvmi_keep_opening(gvmi_machine *m, keep_client *client, uint32_t slot)
{
    if (slot < GVM_OBJECTS_OPEN_MAX && client->slots[slot] != NULL && client->slots[slot]->welcomed)
        return client->slots[slot];
    gvmi_keep_violated(m, client, "a slot that is not open");
    return NULL;
}

static bool has_slot(const keep_client *client)
{
    return client->opening_count < GVM_OBJECTS_OPEN_MAX;
}

/* The lowest that is free; there is one. */
static uint32_t take_slot(keep_client *client)
{
    while (client->slots[client->free_slot] != NULL)
        client->free_slot++;
    return client->free_slot++;
}

uint32_t gvmi_keep_count_openings(const keep_client *client, const keep_object *object)
{
    uint32_t count = 0;

    for (const keep_opening *o = client->openings; o != NULL; o = o->own_next)
        count += o->object == object;
    return count;
}

/* ---- whose openings of an object there are */

static keep_opener *find_opener(const keep_object *object, const keep_user *user)
{
    keep_opener *opener = object->openers;

    while (opener != NULL && opener->user != user)
        opener = opener->next;
    return opener;
}

/* NULL: no memory. */
static keep_opener *take_opener(keep_object *object, keep_user *user)
{
    keep_opener *opener = find_opener(object, user);

    if (opener == NULL) {
        opener = calloc(1, sizeof *opener);
        if (opener == NULL)
            return NULL;
        opener->user = user;
        opener->next = object->openers;
        if (opener->next != NULL)
            opener->next->prev = opener;
        object->openers = opener;
    }
    opener->count++;
    return opener;
}

static void release_opener(keep_object *object, keep_opener *opener)
{
    if (--opener->count > 0)
        return;
    if (opener->prev != NULL)
        opener->prev->next = opener->next;
    else
        object->openers = opener->next;
    if (opener->next != NULL)
        opener->next->prev = opener->prev;
    free(opener);
}

/* ---- their life */

bool gvmi_keep_may_change(gvmi_machine *m, keep_client *client, const keep_opening *opening,
                          uint64_t request)
{
    if ((opening->flags & GVM_OPEN_READONLY) != 0)
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED, "the object was opened read-only");
    else if (opening->chunk_limit != UINT32_MAX)
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED,
                               "the object was opened by a link, which lets in to its bytes alone");
    else
        return true;
    return false;
}

/* What one acquire costs grows with the openings of the object. */
bool gvmi_keep_check_openings_limit(gvmi_machine *m, keep_client *client, const keep_object *object,
                                    const char *name, uint64_t request)
{
    const keep_opener *opener = find_opener(object, client->user);

    if (gvmi_keep_count_openings(client, object) >= KEEP_CLIENT_OPENINGS_MAX)
        gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT,
                               "this connection has %s open %u times, the limit: use one of them",
                               GVMI_TEXT_NAME(name), KEEP_CLIENT_OPENINGS_MAX);
    else if (opener != NULL && opener->count >= KEEP_USER_OPENINGS_MAX && !gvmi_keep_is_admin(m, client))
        gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT,
                               "user %u has %s open %u times, the limit: close some",
                               client->user->uid, GVMI_TEXT_NAME(name), KEEP_USER_OPENINGS_MAX);
    else
        return true;
    return false;
}

/* May the client open one more? If not, the reply with the reason is sent. */
bool gvmi_keep_may_open(gvmi_machine *m, keep_client *client, uint64_t request)
{
    if (!has_slot(client))
        gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT,
                               "this connection has %u objects open, the limit: close some",
                               client->opening_count);
    else if (!gvmi_keep_may_take(m, client->user, KEEP_OPENINGS, 1))
        gvmi_keep_reply_allowance(m, client, request, KEEP_OPENINGS);
    else
        return true;
    return false;
}

/* NULL: no memory. There is a slot. */
keep_opening *gvmi_keep_new_opening(gvmi_machine *m, keep_client *client, keep_object *object,
                                    uint32_t flags, uint32_t chunk_limit)
{
    keep_opening *opening = calloc(1, sizeof *opening);
    uint32_t slot;

    if (opening != NULL)
        opening->opener = take_opener(object, client->user);
    if (opening == NULL || opening->opener == NULL) {
        free(opening);
        return NULL;
    }
    slot = take_slot(client);
    opening->client = client;
    opening->object = object;
    opening->slot = slot;
    opening->flags = flags;
    opening->chunk_limit = chunk_limit;
    opening->lease = &client->leases[slot];
    opening->permit = &client->permits[slot];
    opening->next = object->openings;
    if (object->openings != NULL)
        object->openings->prev = opening;
    object->openings = opening;
    object->opening_count++;
    client->slots[slot] = opening;
    opening->own_next = client->openings;
    if (opening->own_next != NULL)
        opening->own_next->own_prev = opening;
    client->openings = opening;
    client->opening_count++;
    gvmi_keep_take(m, client->user, KEEP_OPENINGS, 1);
    /* The client does not use the slot before OPENED. */
    atomic_store(&opening->lease->word, 0);
    atomic_store(&opening->lease->hint, GVM_HINT_NONE);
    gvmi_keep_publish_permit(opening);
    return opening;
}

void gvmi_keep_forget_creation(keep_opening *opening)
{
    if (opening->creation != NULL)
        opening->creation->opened_by = NULL;
    opening->creation = NULL;
}

void gvmi_keep_end_opening(gvmi_machine *m, keep_opening *opening)
{
    keep_object *object = opening->object;
    keep_client *client = opening->client;

    (void)gvmi_keep_sample_opening(m, opening); /* the object may have very many others */
    gvmi_keep_end_waits(m, client, opening);
    gvmi_keep_writer_gone(m, opening);
    gvmi_keep_answer_all(m, opening);
    gvmi_keep_forget_creation(opening);
    if (opening->prev != NULL)
        opening->prev->next = opening->next;
    else
        object->openings = opening->next;
    if (opening->next != NULL)
        opening->next->prev = opening->prev;
    if (object->first_leased == opening)
        object->first_leased = opening->next;
    release_opener(object, opening->opener);
    object->opening_count--;
    client->slots[opening->slot] = NULL;
    if (opening->slot < client->free_slot)
        client->free_slot = opening->slot;
    if (opening->own_prev != NULL)
        opening->own_prev->own_next = opening->own_next;
    else
        client->openings = opening->own_next;
    if (opening->own_next != NULL)
        opening->own_next->own_prev = opening->own_prev;
    client->opening_count--;
    gvmi_keep_give(m, client->user, KEEP_OPENINGS, 1);
    atomic_store(&opening->permit->word, gvmi_permit(object->generation, GVMI_PERMIT_GONE));
    free(opening);
    gvmi_keep_mark(m, object);
}

void gvmi_keep_welcome_opening(gvmi_machine *m, keep_opening *opening, uint64_t request)
{
    const keep_object *object = opening->object;
    gvmi_wire_message reply;

    gvmi_wire_start(&reply, GVMI_WIRE_OPENED, request);
    reply.body.OPENED = (gvmi_wire_opened){
        .slot = opening->slot,
        .generation = object->generation,
        .id = object->id,
        .reserve_bytes = gvmi_keep_opened_bytes(opening, object->reserve_bytes),
        .chunk_bytes = object->chunk_bytes,
        .bytes = gvmi_keep_opened_bytes(opening, object->bytes),
        .home_address = object->home_address,
        .open_flags = opening->flags,
        .sealed = object->sealed};
    memcpy(reply.body.OPENED.device_uuid, m->config.devices[object->device].uuid,
           sizeof reply.body.OPENED.device_uuid);
    opening->welcomed = true;
    opening->sent_generation = object->generation;
    opening->sent_bytes = reply.body.OPENED.bytes;
    if (gvmi_keep_send(m, opening->client, &reply, NULL) && (opening->flags & GVM_OPEN_MAPPED) != 0)
        gvmi_keep_map_all(m, opening);
}
