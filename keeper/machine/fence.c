/* Clients that were cut off: the frames that they may still have mapped, and the fence that keeps
 * others out of memory to which such a client may still write.
 *
 * The driver cannot take memory away from a process. So when a client is voided while its process may live,
 * every frame that it may have mapped is written down: the client *holds* it. No other object is
 * given such a frame. Once no chunk uses it, it is released to the driver, and stays counted in the
 * budget, and charged to the client's user, until the process is gone. Where the process is one of
 * the object's owner, the end of its socket is enough: its library closes the socket last.
 *
 * If the client could write at that moment (could_write()), it is a *writer* of those frames, and
 * the object is *fenced*: permits are withdrawn, and no lease is granted before every chunk in a
 * frame with writers has been copied to another frame, or the writers are gone. The copy is made when
 * a lease is asked for, and when nobody who is left holds one; by then the content is that of a
 * writer that was interrupted, which the object's count of those tells. Where neither tier has room
 * for a copy the request waits, under its own time-out. */
#include <stdlib.h>

#include "base/assert.h"
#include "keeper/machine/state.h"

/* ---- who holds what */

static bool note_hold(keep_client *client, uint32_t number, bool writes)
{
    if (client->held_count == client->held_capacity) {
        const uint32_t capacity = client->held_capacity == 0 ? 64 : client->held_capacity * 2;
        keep_hold *held = realloc(client->held, capacity * sizeof *held);

        if (held == NULL)
            return false;
        client->held = held;
        client->held_capacity = capacity;
    }
    client->held[client->held_count++] = (keep_hold){.frame = number, .writes = writes};
    return true;
}

/* Is the end of the client's socket enough? Its library closes the socket when nothing is mapped there
 * any more; that is relied on where the user has the right to the frame's memory in any case. */
static bool trusts_close(const gvmi_machine *m, const keep_client *client, const keep_domain *owner)
{
    return gvmi_keep_is_admin(m, client) || client->who.uid == owner->uid;
}

static void hold_frame(gvmi_machine *m, keep_client *client, uint32_t number, bool writes)
{
    keep_frame *frame;

    if (number == 0)
        return;
    frame = gvmi_keep_frame(m, number);
    if (!note_hold(client, number, writes)) {
        frame->tainted = true;
        frame->unsafe = frame->unsafe || writes;
        return;
    }
    frame->holders++;
    frame->writers += writes;
    frame->holder = client->number;
}

/* Where a chunk is, and where it was if the opening was not told yet or may not have unmapped it. */
static void hold_all(gvmi_machine *m, const keep_opening *opening, bool writes)
{
    const keep_object *object = opening->object;

    for (uint32_t i = 0; i < object->chunk_count; i++) {
        const keep_chunk *chunk = &object->chunks[i];

        hold_frame(m, opening->client, gvmi_keep_frame_where(chunk), writes);
        if (chunk->send) {
            hold_frame(m, opening->client, gvmi_keep_other_frame(chunk), writes);
            hold_frame(m, opening->client, chunk->twin_frame, writes);
        }
    }
    for (const keep_pending *p = opening->first_pending; p != NULL; p = p->next)
        for (uint32_t i = 0; i < (p->unmapped ? 0 : p->count); i++) {
            const keep_chunk *chunk = &object->chunks[p->indexes[i]];

            hold_frame(m, opening->client, gvmi_keep_other_frame(chunk), writes);
            hold_frame(m, opening->client, chunk->twin_frame, writes);
        }
}

/* FROZEN: nobody holds a lease, whatever the lease word says. */
static bool could_write(const keep_opening *opening)
{
    const keep_object *object = opening->object;

    if ((opening->flags & GVM_OPEN_READONLY) != 0 || object->lease_state == KEEP_FROZEN)
        return false;
    return gvmi_keep_writers(opening) > 0 || (object->untracked && gvmi_keep_readers(opening) > 0);
}

/* Has the server end the process, if it may. */
static void kill_writer(gvmi_machine *m, const keep_client *client)
{
    const gvmi_action action = {.kind = GVMI_ACTION_KILL, .client = client->number};

    if (m->config.fence_kills)
        (void)gvmi_keep_act(m, &action); /* without memory for it the fence waits longer */
}

void gvmi_keep_hold_frames(gvmi_machine *m, const keep_opening *opening)
{
    keep_object *object = opening->object;
    const bool writes = could_write(opening);

    if (opening->client->closed && trusts_close(m, opening->client, &object->domain))
        return;
    hold_all(m, opening, writes);
    if (!writes || object->chunk_count == 0)
        return;
    object->fenced = true;
    gvmi_keep_stale_copies(m, object); /* of an untracked object that was sealed there may be some */
    if (object->lease_state == KEEP_SHARED || object->lease_state == KEEP_EXCLUSIVE)
        gvmi_keep_withdraw(m, object);
    gvmi_keep_mark(m, object);
    kill_writer(m, opening->client);
}

/* ---- who is charged for a frame that only such clients hold */

static keep_user *payer_of(gvmi_machine *m, const keep_frame *frame)
{
    return gvmi_keep_client(m, frame->holder)->user;
}

void gvmi_keep_charge_holder(gvmi_machine *m, const keep_frame *frame)
{
    gvmi_keep_charge(payer_of(m, frame), frame->spec.bytes);
}

/* Another client that holds the frame; 0: none. */
static uint32_t find_holder(const gvmi_machine *m, uint32_t frame, const keep_client *but)
{
    for (uint32_t i = 0; i < m->client_capacity; i++) {
        const keep_client *client = m->clients[i];

        for (uint32_t h = 0; client != NULL && client != but && h < client->held_count; h++)
            if (client->held[h].frame == frame)
                return client->number;
    }
    return 0;
}

/* ---- the end of it */

static void let_go(gvmi_machine *m, keep_client *client, const keep_hold *hold)
{
    keep_frame *frame = gvmi_keep_frame(m, hold->frame);

    frame->holders--;
    frame->writers -= hold->writes;
    if (frame->holders == 0) {
        if (frame->state != KEEP_FRAME_HELD)
            return;
        gvmi_keep_discharge(m, payer_of(m, frame), frame->spec.bytes);
        gvmi_keep_free_held(m, hold->frame);
    } else if (frame->holder == client->number) {
        const uint32_t other = find_holder(m, hold->frame, client);

        if (other == 0) /* it holds the frame twice */
            return;
        if (frame->state == KEEP_FRAME_HELD)
            gvmi_keep_discharge(m, payer_of(m, frame), frame->spec.bytes);
        frame->holder = other;
        if (frame->state == KEEP_FRAME_HELD)
            gvmi_keep_charge_holder(m, frame);
    }
}

void gvmi_keep_let_go_frames(gvmi_machine *m, keep_client *client, bool gone)
{
    bool wrote = false;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < client->held_count; i++) {
        const keep_hold hold = client->held[i];

        if (!gone && !trusts_close(m, client, &gvmi_keep_frame(m, hold.frame)->domain)) {
            client->held[kept++] = hold;
            continue;
        }
        wrote = wrote || hold.writes;
        let_go(m, client, &hold);
    }
    client->held_count = kept;
    if (kept == 0) {
        free(client->held);
        client->held = NULL;
        client->held_capacity = 0;
    }
    for (keep_object *object = wrote ? m->objects : NULL; object != NULL; object = object->next)
        gvmi_keep_retry_fence(m, object);
}

/* ---- the fence */

void gvmi_keep_check_fence(gvmi_machine *m, keep_object *object)
{
    bool needed = false;

    if (!object->fenced)
        return;
    for (uint32_t i = 0; i < object->chunk_count && !needed; i++)
        needed = gvmi_keep_has_writers(m, gvmi_keep_frame_where(&object->chunks[i]));
    object->fenced = needed;
    object->fence_waits = object->fence_waits && needed;
}

void gvmi_keep_retry_fence(gvmi_machine *m, keep_object *object)
{
    if (!object->fenced)
        return;
    object->fence_waits = false;
    gvmi_keep_mark(m, object);
}

bool gvmi_keep_pass_fence(gvmi_machine *m, keep_object *object)
{
    gvmi_keep_check_fence(m, object);
    if (!object->fenced)
        return true;
    if (object->fence_waits || !gvmi_keep_freeze(m, object))
        return false;
    if (!gvmi_keep_renew_chunks(m, object)) {
        object->fence_waits = true;
        gvmi_keep_thaw(m, object);
    }
    return false;
}
