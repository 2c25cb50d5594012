/* Clients that were cut off, or are not trusted: the frames that they may still have mapped, and
 * the fence that keeps others out of memory to which such a client may still write.
 *
 * The driver cannot take memory away from a process. So when a client is voided while its process may live,
 * every frame that it may have mapped is written down: the client *holds* it. No other object is
 * given such a frame. Once no chunk uses it, it is released to the driver, and stays counted in the
 * budget, and charged to the client's user, until the process is gone. Where the process is one of
 * the object's owner, the end of its socket is enough: its library closes the socket last.
 *
 * If the client could write at that moment (gvmi_keep_could_write()), it is a *writer* of those frames, and
 * the object is *fenced*: permits are withdrawn, and no lease is granted before every chunk in a
 * frame with writers has been copied to another frame, or the writers are gone. The copy is made once
 * a lease is asked for and none of the remaining clients holds one. It has what the interrupted writer
 * left; the object's count of interrupted writers says so. Where neither tier has room for a copy the
 * request waits, under its own time-out. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "keeper/machine/room.h"

/* ---- who holds what */

/* The client's page for the frame; NULL: no memory. */
static keep_holds *make_page(const gvmi_machine *m, keep_client *client, uint32_t frame)
{
    const uint32_t index = (frame - 1) / KEEP_HOLDS_A_PAGE;

    if (index >= client->held_pages) {
        const uint32_t count = (m->frame_capacity - 1) / KEEP_HOLDS_A_PAGE + 1;
        keep_holds **held = realloc(client->held, count * sizeof(keep_holds *));

        if (held == NULL)
            return NULL;
        memset(&held[client->held_pages], 0, (count - client->held_pages) * sizeof(keep_holds *));
        client->held = held;
        client->held_pages = count;
    }
    if (client->held[index] == NULL) {
        client->held[index] = malloc(sizeof(keep_holds));
        if (client->held[index] != NULL)
            memset(client->held[index], 0, sizeof(keep_holds));
    }
    return client->held[index];
}

/* NULL: no memory. */
static keep_hold *new_hold(const gvmi_machine *m, keep_client *client, keep_frame *frame)
{
    const uint32_t number = frame->spec.frame;
    keep_holds *page = make_page(m, client, number);
    keep_hold *hold;

    if (page == NULL)
        return NULL;
    hold = &page->holds[(number - 1) % KEEP_HOLDS_A_PAGE];
    *hold = (keep_hold){.client = client, .frame = number, .next = frame->holds};
    if (hold->next != NULL)
        hold->next->prev = hold;
    frame->holds = hold;
    frame->holders++;
    page->count++;
    client->held_count++;
    return hold;
}

keep_hold *gvmi_keep_next_hold(const keep_client *client, uint32_t *next)
{
    while (*next < client->held_pages * KEEP_HOLDS_A_PAGE) {
        const keep_holds *page = client->held[*next / KEEP_HOLDS_A_PAGE];
        const uint32_t frame = ++*next;

        if (page == NULL)
            *next = (frame - 1) / KEEP_HOLDS_A_PAGE * KEEP_HOLDS_A_PAGE + KEEP_HOLDS_A_PAGE;
        else if (page->holds[(frame - 1) % KEEP_HOLDS_A_PAGE].client != NULL)
            return gvmi_keep_find_hold(client, frame);
    }
    return NULL;
}

/* Is the end of the client's socket enough? Its library closes the socket when nothing is mapped there
 * any more; that is relied on where the user has the right to the frame's memory in any case. */
bool gvmi_keep_close_is_enough(const gvmi_machine *m, const keep_client *client, const keep_domain *owner)
{
    return gvmi_keep_is_admin(m, client) || client->who.uid == owner->uid;
}

static void hold_frame(gvmi_machine *m, keep_client *client, uint32_t number, bool writes)
{
    keep_frame *frame = number != 0 ? gvmi_keep_frame(m, number) : NULL;
    keep_hold *hold;

    if (frame == NULL)
        return;
    hold = gvmi_keep_find_hold(client, number);
    if (hold == NULL)
        hold = new_hold(m, client, frame);
    if (hold == NULL) {
        frame->tainted = true;
        frame->unsafe = frame->unsafe || writes;
        return;
    }
    frame->writers += writes && !hold->writes;
    hold->writes = hold->writes || writes;
}

/* Where the chunk was, if it is on its way and MAPs of it are sent. A frame that a copy is made to has
 * been shown to nobody. */
static void hold_replaced(gvmi_machine *m, keep_client *client, const keep_chunk *chunk, bool writes)
{
    if (chunk->op == KEEP_OP_CUT)
        hold_frame(m, client, gvmi_keep_frame_where(chunk), writes);
    if (chunk->op != KEEP_OP_OUT_MAP && chunk->op != KEEP_OP_IN_MAP && chunk->op != KEEP_OP_RENEW_MAP)
        return;
    hold_frame(m, client, gvmi_keep_other_frame(chunk), writes);
    hold_frame(m, client, chunk->twin_frame, writes);
}

/* Where a chunk is, and where it was if its MAP to the opening was not sent yet, or may not be answered by UNMAPPED. */
static void hold_opening_chunks(gvmi_machine *m, const keep_opening *opening, bool writes)
{
    const keep_object *object = opening->object;

    for (uint32_t i = 0; i < gvmi_keep_opened_chunks(opening); i++) {
        const keep_chunk *chunk = &object->chunks[i];

        if (!gvmi_keep_follows(opening, chunk))
            continue;
        if (i < gvmi_keep_kept_chunks(object))
            hold_frame(m, opening->client, gvmi_keep_frame_where(chunk), writes);
        if (chunk->send)
            hold_replaced(m, opening->client, chunk, writes);
    }
    for (const keep_pending *p = opening->first_pending; p != NULL; p = p->next)
        for (uint32_t i = 0; i < (p->unmapped ? 0 : p->count); i++)
            hold_replaced(m, opening->client, &object->chunks[p->indexes[i]], writes);
}

/* Has the server end the process, if it may. */
static void end_writer(gvmi_machine *m, const keep_client *client)
{
    const gvmi_action action = {.kind = GVMI_ACTION_KILL, .client = client->number};

    if (m->config.fence_kills)
        (void)gvmi_keep_act(m, &action); /* without memory for it the fence waits longer */
}

/* True: the object is fenced by it. */
static bool hold_opening(gvmi_machine *m, const keep_opening *opening, bool writes)
{
    keep_object *object = opening->object;

    hold_opening_chunks(m, opening, writes);
    if (!writes || object->chunk_count == 0)
        return false;
    object->fenced = true;
    object->fence_first = 0;
    if (object->lease_state == KEEP_SHARED || object->lease_state == KEEP_EXCLUSIVE)
        gvmi_keep_withdraw(m, object);
    gvmi_keep_mark(m, object);
    return true;
}

void gvmi_keep_hold_frames(gvmi_machine *m, const keep_opening *opening)
{
    const bool writes = gvmi_keep_could_write(opening);

    /* A lease that is still in its word shows that the program closed the socket, not the library: then memory
     * may be mapped. */
    if (opening->client->closed && !writes &&
        gvmi_keep_close_is_enough(m, opening->client, &opening->object->domain))
        return;
    if (hold_opening(m, opening, writes))
        end_writer(m, opening->client);
}

void gvmi_keep_hold_closed(gvmi_machine *m, const keep_opening *opening)
{
    const uint64_t word = atomic_load(&opening->lease->word);

    /* One that was granted and is not taken is no reason: the library closes after an acquire that was given up, with
     * the grant on its way. */
    if (gvmi_lease_readers(word) > 0 ||
        (opening->object->writer == opening && gvmi_lease_writers(word) > 0))
        (void)hold_opening(m, opening, gvmi_keep_could_write(opening));
}

void gvmi_keep_hold_not_mapped(gvmi_machine *m, const keep_opening *opening)
{
    /* The library says so when no lease is left, but other threads of the program add to the word for a moment before
     * they see the failure: what is there now says nothing. */
    if (!gvmi_keep_close_is_enough(m, opening->client, &opening->object->domain))
        (void)hold_opening(m, opening, gvmi_keep_could_write(opening));
}

/* ---- the end of it */

static void unlink_hold(keep_frame *frame, const keep_hold *hold)
{
    if (hold->prev != NULL)
        hold->prev->next = hold->next;
    else
        frame->holds = hold->next;
    if (hold->next != NULL)
        hold->next->prev = hold->prev;
    frame->holders--;
    frame->writers -= hold->writes;
}

/* Of the frame. */
static void release_hold(gvmi_machine *m, const keep_hold *hold)
{
    keep_frame *frame = gvmi_keep_frame(m, hold->frame);
    const bool was_charged = frame->state == KEEP_FRAME_HELD && frame->holds == hold;

    unlink_hold(frame, hold);
    if (!was_charged)
        return;
    hold->client->user->held_bytes -= frame->spec.bytes;
    gvmi_keep_discharge(m, hold->client->user, frame->spec.bytes);
    if (frame->holds != NULL)
        gvmi_keep_charge_holder(frame);
    else
        gvmi_keep_free_held(m, hold->frame);
}

/* The library ends all leases in their words before it closes the socket. Where they stand there yet, the
 * program closed the descriptor itself, and what it has mapped is mapped. */
static bool shows_leases(const keep_client *client)
{
    for (uint32_t slot = 0; slot < GVM_OBJECTS_OPEN_MAX && client->held_count > 0; slot++)
        if (gvmi_lease_any(atomic_load(&client->leases[slot].word)))
            return true;
    return false;
}

/* Of the client: its page goes with the last one there. */
static void forget_hold(keep_client *client, keep_hold *hold)
{
    keep_holds **page = &client->held[(hold->frame - 1) / KEEP_HOLDS_A_PAGE];

    *hold = (keep_hold){0};
    client->held_count--;
    if (--(*page)->count > 0)
        return;
    free(*page);
    *page = NULL;
}

void gvmi_keep_release_holds(gvmi_machine *m, keep_client *client, bool gone)
{
    const bool leases = !gone && shows_leases(client);
    bool wrote = false;
    uint32_t next = 0;

    for (keep_hold *hold; (hold = gvmi_keep_next_hold(client, &next)) != NULL;) {
        if (!gone && ((hold->writes && leases) ||
                      !gvmi_keep_close_is_enough(m, client, &gvmi_keep_frame(m, hold->frame)->domain)))
            continue;
        wrote = wrote || hold->writes;
        release_hold(m, hold);
        forget_hold(client, hold);
    }
    if (client->held_count == 0) {
        free(client->held);
        client->held = NULL;
        client->held_pages = 0;
    }
    for (keep_object *object = wrote ? m->objects : NULL; object != NULL; object = object->next)
        gvmi_keep_retry_fence(m, object);
}

/* ---- the fence */

/* The first chunk that is in a frame with writers; chunk_count or more: none is. While the object is fenced no chunk
 * below comes into such a frame, so all looks together cost one walk. */
static uint32_t find_fenced_chunk(gvmi_machine *m, keep_object *object)
{
    while (object->fence_first < object->chunk_count &&
           !gvmi_keep_has_writers(m, gvmi_keep_frame_where(&object->chunks[object->fence_first])))
        object->fence_first++;
    return object->fence_first;
}

void gvmi_keep_check_fence(gvmi_machine *m, keep_object *object)
{
    bool needed;

    if (!object->fenced)
        return;
    needed = find_fenced_chunk(m, object) < object->chunk_count;
    object->fenced = needed;
    object->fence_waits = object->fence_waits && needed;
    object->fence_logged = object->fence_logged && needed;
}

void gvmi_keep_retry_fence(gvmi_machine *m, keep_object *object)
{
    if (!object->fenced)
        return;
    object->fence_waits = false;
    gvmi_keep_mark(m, object);
}

int32_t gvmi_keep_fence_writer(gvmi_machine *m, keep_object *object)
{
    for (uint32_t i = find_fenced_chunk(m, object); i < object->chunk_count; i++) {
        const uint32_t number = gvmi_keep_frame_where(&object->chunks[i]);
        const keep_frame *frame;

        if (!gvmi_keep_has_writers(m, number))
            continue;
        frame = gvmi_keep_frame(m, number);
        if (frame->unsafe)
            return 0; /* nobody could be written down */
        for (const keep_hold *h = frame->writers > 0 ? frame->holds : NULL; h != NULL; h = h->next)
            if (h->writes)
                return h->client->who.pid;
    }
    return 0;
}

void gvmi_keep_log_no_room(gvmi_machine *m, keep_object *object)
{
    gvmi_action action = {.kind = GVMI_ACTION_LOG};

    if (object->fence_logged || !object->fenced)
        return;
    gvmi_text_print(action.reason, sizeof action.reason,
                    "object %s gets no lease: process %d, which was cut off, may still write to it, and "
                    "neither budget has room for a copy; end that process, or give the keeper more",
                    object->name[0] != '\0' ? GVMI_TEXT_NAME(object->name) : "without a name",
                    (int)gvmi_keep_fence_writer(m, object));
    object->fence_logged = gvmi_keep_act(m, &action);
}
