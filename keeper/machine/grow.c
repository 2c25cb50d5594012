/* New chunks: where they are put, and what happens when there is no room.
 *
 * A growth makes all its chunks, zeroed, beyond what clients know of, and then makes them known in
 * one step; if one cannot be made, all are given back. Objects grow one request at a time. The
 * policy says how many of the new chunks go to the device, of an object that is made on the host none; the others go to
 * memory that other devices lend, and to the host; and each goes to the other if its own has no room.
 *
 * All chunks of a growth have their frames at once, so that it fails at once where there is no room; but a
 * few at a time are made. So it can be given up, when who asked for it is gone and nobody has the object open. */
#include <stdlib.h>
#include <string.h>

#include "keeper/machine/lend.h"
#include "keeper/machine/plans.h"

static uint64_t new_bytes(const keep_object *object, const keep_growth *growth)
{
    return (uint64_t)(growth->new_count - growth->old_count) * object->chunk_bytes;
}

static void resize_item(gvmi_machine *m, keep_object *object, uint32_t chunk_count)
{
    gvmi_policy_resize(m->devices[object->device].policy, &object->item,
                       (uint64_t)chunk_count * object->chunk_bytes);
}

/* ---- one chunk */

static void chunk_over(gvmi_machine *m, keep_object *object, keep_chunk *chunk, gvm_status status)
{
    chunk->op = KEEP_OP_NONE;
    object->growth->left--;
    if (object->growth->failure == GVM_OK) /* only the first cause is reported */
        object->growth->failure = status;
    gvmi_keep_mark(m, object);
}

static uint32_t frame_of(const keep_chunk *chunk)
{
    return chunk->device_frame != 0 ? chunk->device_frame : chunk->away_frame;
}

/* The chunk has its frame. */
static void start_make(gvmi_machine *m, keep_object *object, uint32_t index, bool make)
{
    keep_chunk *chunk = &object->chunks[index];
    const uint32_t frame = frame_of(chunk);

    if (!gvmi_keep_start_job(m, make ? GVMI_ACTION_MAKE : GVMI_ACTION_ZERO, object, index, frame, 0,
                             make)) {
        gvmi_keep_give_frame(m, frame, !make);
        chunk->device_frame = chunk->away_frame = 0;
        chunk_over(m, object, chunk, GVM_E_NOMEM);
        return;
    }
    chunk->op = KEEP_OP_MAKE;
    object->growth->making++;
}

void gvmi_keep_make_chunk(gvmi_machine *m, keep_object *object, uint32_t index, uint32_t frame, bool make)
{
    keep_chunk *chunk = &object->chunks[index];

    if (gvmi_keep_frame(m, frame)->spec.tier == GVM_TIER_DEVICE && !gvmi_keep_is_lent(m, frame))
        chunk->device_frame = frame;
    else
        chunk->away_frame = frame;
    if (object->growth->making < KEEP_GROWTH_JOBS_MAX) {
        start_make(m, object, index, make);
        return;
    }
    chunk->op = KEEP_OP_MAKE_WAIT;
    chunk->make = make;
    object->growth->waiting++;
}

/* The frame was promised by a budget that has been lowered since, before it was made. */
static bool is_over_budget(gvmi_machine *m, const keep_chunk *chunk)
{
    const gvmi_frame_spec *spec = &gvmi_keep_frame(m, frame_of(chunk))->spec;
    const keep_place *place = gvmi_keep_place(m, (gvm_tier)spec->tier, spec->device);

    return chunk->make && place->used_bytes > place->budget_bytes;
}

static void give_frame_back(gvmi_machine *m, keep_chunk *chunk)
{
    gvmi_keep_give_frame(m, frame_of(chunk), !chunk->make);
    chunk->device_frame = chunk->away_frame = 0;
}

void gvmi_keep_refuse_chunk(gvmi_machine *m, keep_object *object, uint32_t index)
{
    chunk_over(m, object, &object->chunks[index], GVM_E_NOSPACE);
}

/* Away from the device, or on it if there is room there without anybody leaving. Else it waits, and serve_room()
 * says whether room comes. */
static void make_without_room(gvmi_machine *m, keep_object *object, uint32_t index)
{
    const bool wanted = object->growth->failure == GVM_OK;
    bool make;
    uint32_t frame = 0;

    if (wanted) {
        frame = gvmi_keep_take_away_frame(m, object, &make);
        if (frame == 0)
            frame = gvmi_keep_take_frame(m, object, GVM_TIER_DEVICE, &make);
    }
    if (frame != 0)
        gvmi_keep_make_chunk(m, object, index, frame, make);
    else if (wanted && gvmi_keep_wait_room(m, object, index))
        object->chunks[index].op = KEEP_OP_MAKE_ROOM;
    else
        gvmi_keep_refuse_chunk(m, object, index);
}

/* Starts jobs that wait, or gives up what they were for. */
static void serve_waiting(gvmi_machine *m, keep_object *object, keep_growth *growth)
{
    while (growth->waiting > 0 && (growth->failure != GVM_OK || growth->making < KEEP_GROWTH_JOBS_MAX)) {
        const uint32_t index = growth->next_waiting;
        keep_chunk *chunk = &object->chunks[index];

        growth->next_waiting = index + 1 < growth->new_count ? index + 1 : growth->old_count;
        if (chunk->op != KEEP_OP_MAKE_WAIT)
            continue;
        growth->waiting--;
        if (growth->failure != GVM_OK) {
            give_frame_back(m, chunk);
            chunk_over(m, object, chunk, GVM_OK);
        } else if (is_over_budget(m, chunk)) {
            give_frame_back(m, chunk);
            make_without_room(m, object, index);
        } else {
            start_make(m, object, index, chunk->make);
        }
    }
}

void gvmi_keep_made(gvmi_machine *m, keep_object *object, uint32_t index, gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];
    uint32_t frame = frame_of(chunk);
    const bool of_device = gvmi_keep_frame(m, frame)->spec.tier == GVM_TIER_DEVICE;
    bool make;

    object->growth->making--;
    if (status == GVM_OK) {
        chunk_over(m, object, chunk, GVM_OK);
        return;
    }
    gvmi_keep_give_frame(m, frame, made);
    chunk->device_frame = chunk->away_frame = 0;
    /* The budget promised more than the device has: other programs use it. */
    frame = of_device && object->growth->failure == GVM_OK
                ? gvmi_keep_take_frame(m, object, GVM_TIER_HOST, &make)
                : 0;
    if (frame != 0) {
        gvmi_keep_make_chunk(m, object, index, frame, make);
        return;
    }
    if (object->growth->failure == GVM_OK)
        object->growth->cause = status;
    chunk_over(m, object, chunk, status == GVM_E_NOMEM ? GVM_E_NOSPACE : status);
}

/* ---- one growth */

static bool make_places(keep_object *object, uint32_t count)
{
    keep_chunk *chunks;

    if (count <= object->chunk_places)
        return true;
    chunks = realloc(object->chunks, count * sizeof *chunks);
    if (chunks == NULL)
        return false;
    memset(&chunks[object->chunk_places], 0, (count - object->chunk_places) * sizeof *chunks);
    object->chunks = chunks;
    object->chunk_places = count;
    return true;
}

static void place_chunks(gvmi_machine *m, keep_object *object, const keep_growth *growth)
{
    gvmi_policy_plan plan;
    uint64_t bring = 0;

    resize_item(m, object, growth->new_count);
    if (!object->on_host) {
        gvmi_keep_plan_for(m, object, false, &plan);
        gvmi_keep_take_victims(m, object, &plan);
        bring = plan.bring_bytes / object->chunk_bytes;
    }
    for (uint32_t i = growth->old_count; i < growth->new_count; i++) {
        if (i - growth->old_count < bring && gvmi_keep_wait_room(m, object, i))
            object->chunks[i].op = KEEP_OP_MAKE_ROOM;
        else
            make_without_room(m, object, i);
    }
}

/* What the object could have if there were no other. */
static uint64_t most_bytes(const gvmi_machine *m, const keep_object *object)
{
    return gvmi_keep_reach_bytes(m, object) + m->host.limit_bytes;
}

static void start_growth(gvmi_machine *m, keep_object *object)
{
    keep_growth *growth = object->growth;
    const uint64_t count = (growth->bytes + object->chunk_bytes - 1) / object->chunk_bytes;

    growth->started = true;
    growth->old_count = growth->new_count = object->chunk_count;
    if (object->sealed)
        growth->failure = GVM_E_SEALED;
    if (growth->failure != GVM_OK || count <= object->chunk_count)
        return;
    growth->new_count = (uint32_t)count;
    if (!gvmi_keep_has_quota(m, object->user, new_bytes(object, growth)))
        growth->failure = GVM_E_QUOTA;
    else if (count * object->chunk_bytes > most_bytes(m, object))
        growth->failure = GVM_E_NOSPACE; /* without making what fits first */
    if (growth->failure != GVM_OK) {
        growth->new_count = growth->old_count;
        return;
    }
    gvmi_keep_charge(object->user, new_bytes(object, growth));
    m->ahead_bytes = object->chunk_bytes;
    m->ahead_device = object->device;
    if (!make_places(object, growth->new_count)) {
        growth->failure = GVM_E_NOMEM;
        return;
    }
    growth->left = growth->new_count - growth->old_count;
    growth->next_waiting = growth->old_count;
    place_chunks(m, object, growth);
}

/* Everything that was made is given back. */
static void undo_growth(gvmi_machine *m, keep_object *object, const keep_growth *growth)
{
    for (uint32_t i = growth->old_count; i < growth->new_count && i < object->chunk_places; i++) {
        keep_chunk *chunk = &object->chunks[i];

        if (chunk->device_frame != 0)
            gvmi_keep_give_frame(m, chunk->device_frame, true);
        if (chunk->away_frame != 0)
            gvmi_keep_give_frame(m, chunk->away_frame, true);
        *chunk = (keep_chunk){0};
    }
    gvmi_keep_drop_places(object);
    gvmi_keep_discharge(m, object->user, new_bytes(object, growth));
    resize_item(m, object, object->chunk_count);
}

/* From here on clients know. */
static void make_known(gvmi_machine *m, keep_object *object, const keep_growth *growth)
{
    keep_client *creator;

    if (growth->bytes <= object->bytes) { /* by another growth */
        for (keep_opening *o = object->openings; o != NULL; o = o->next)
            if (o->client == growth->client)
                gvmi_keep_catch_up(m, o);
        return;
    }
    for (uint32_t i = growth->old_count; i < growth->new_count; i++) {
        keep_chunk *chunk = &object->chunks[i];

        gvmi_keep_set_chunk(m, object, chunk, chunk->device_frame != 0 ? KEEP_ON_DEVICE : KEEP_AWAY,
                            false);
        chunk->stamp = ++m->stamps;
        chunk->unmapped_mark = object->unmapped_mark; /* an opening follows it that follows all others */
        gvmi_keep_send_chunk(m, object, i);
        object->device_chunks += chunk->where == KEEP_ON_DEVICE;
    }
    creator = gvmi_keep_client(m, object->creator);
    if (creator != NULL)
        creator->committed_bytes += new_bytes(object, growth);
    object->chunk_count = growth->new_count;
    object->bytes = growth->bytes;
    object->generation++;
    object->bare_send = true; /* also if it grew within its last chunk */
    object->asker = growth->client;
    gvmi_keep_send_new(m, object, growth->old_count);
    object->asker = NULL;
}

static const char *failure_text(const keep_growth *growth)
{
    if (growth->cause != GVM_OK)
        return gvmi_keep_job_failure_text(growth->cause);
    switch (growth->failure) {
    case GVM_E_QUOTA: return "the user's quota is spent: drop objects, or ask for more";
    case GVM_E_SEALED: return "the object is sealed";
    case GVM_E_NOMEM: return "the keeper is out of host memory";
    default:
        return "neither the device budget nor the host budget has room: drop objects, or give the "
               "keeper more";
    }
}

static void reply_growth(gvmi_machine *m, keep_growth *growth)
{
    if (growth->client == NULL)
        return;
    if (growth->failure != GVM_OK) {
        gvmi_keep_reply_failed(m, growth->client, growth->request, growth->failure, "%s",
                               failure_text(growth));
        if (growth->opened_by != NULL) {
            keep_opening *opening = growth->opened_by;

            gvmi_keep_forget_creation(opening);
            opening->object->kept = false;
            gvmi_keep_unname(m, opening->object);
            gvmi_keep_end_opening(m, opening);
        }
    } else if (growth->opened_by != NULL) {
        gvmi_keep_welcome_opening(m, growth->opened_by, growth->request);
    } else {
        gvmi_keep_reply_done(m, growth->client, growth->request, 0);
    }
}

static void finish_growth(gvmi_machine *m, keep_object *object)
{
    keep_growth *growth = object->growth;

    if (object->sealed && growth->failure == GVM_OK && growth->bytes > object->bytes)
        growth->failure = GVM_E_SEALED; /* meanwhile */
    if (growth->failure != GVM_OK)
        undo_growth(m, object, growth);
    else
        make_known(m, object, growth);
    gvmi_keep_resident(m, object);
    object->growth = growth->next;
    reply_growth(m, growth);
    gvmi_keep_free_growth(m, growth);
    gvmi_keep_mark(m, object);
}

void gvmi_keep_grow_settle(gvmi_machine *m, keep_object *object)
{
    while (object->growth != NULL) {
        keep_growth *growth = object->growth;

        if (growth->client == NULL && object->opening_count == 0 && growth->failure == GVM_OK)
            growth->failure = GVM_E_KEEPER; /* which is not reported */
        if (!growth->started && gvmi_keep_kept_chunks(object) < object->chunk_count)
            return; /* the places are still those of chunks that are being cut off */
        if (!growth->started)
            start_growth(m, object);
        serve_waiting(m, object, growth);
        if (growth->left > 0)
            return;
        if (m->serves_left == 0) {
            gvmi_keep_serve_later(m, object);
            return;
        }
        gvmi_keep_count_served(m, 1 + object->opening_count); /* each is looked at */
        finish_growth(m, object);
    }
}

/* ---- requests */

gvm_status gvmi_keep_grow_to(gvmi_machine *m, keep_object *object, keep_client *client,
                             keep_opening *opened_by, uint64_t request, uint64_t bytes)
{
    keep_growth *growth = calloc(1, sizeof *growth);

    if (growth == NULL)
        return GVM_E_NOMEM;
    growth->user = client->user;
    growth->client = client;
    growth->own_next = client->growths;
    if (growth->own_next != NULL)
        growth->own_next->own_prev = growth;
    client->growths = growth;
    client->growth_count++;
    gvmi_keep_take(m, growth->user, KEEP_GROWTHS, 1);
    growth->opened_by = opened_by;
    if (opened_by != NULL)
        opened_by->creation = growth;
    growth->request = request;
    growth->bytes = bytes;
    *(object->growth != NULL ? &object->last_growth->next : &object->growth) = growth;
    object->last_growth = growth;
    gvmi_keep_mark(m, object);
    return GVM_OK;
}

/* The growth ends without a reply. */
static void forget_client(keep_growth *growth)
{
    keep_client *client = growth->client;

    if (client == NULL)
        return;
    if (growth->own_prev != NULL)
        growth->own_prev->own_next = growth->own_next;
    else
        client->growths = growth->own_next;
    if (growth->own_next != NULL)
        growth->own_next->own_prev = growth->own_prev;
    client->growth_count--;
    growth->client = NULL;
    if (growth->opened_by != NULL)
        growth->opened_by->creation = NULL;
    growth->opened_by = NULL;
}

void gvmi_keep_free_growth(gvmi_machine *m, keep_growth *growth)
{
    forget_client(growth);
    gvmi_keep_give(m, growth->user, KEEP_GROWTHS, 1);
    free(growth);
}

bool gvmi_keep_may_grow(gvmi_machine *m, keep_client *client, uint64_t request)
{
    if (client->growth_count >= KEEP_CLIENT_GROWTHS_MAX)
        gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT,
                               "%u growths of this connection are under way, the limit: wait for some of "
                               "them",
                               client->growth_count);
    else if (!gvmi_keep_may_take(m, client->user, KEEP_GROWTHS, 1))
        gvmi_keep_reply_allowance(m, client, request, KEEP_GROWTHS);
    else
        return true;
    return false;
}

void gvmi_keep_grow(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_grow *body = &message->body.GROW;
    const uint64_t request = message->head.request;
    keep_opening *opening = gvmi_keep_opening(m, client, body->slot);

    if (opening == NULL)
        return;
    if (!gvmi_keep_may_change(m, client, opening, request))
        return;
    if (body->bytes > opening->object->reserve_bytes)
        gvmi_keep_reply_failed(
            m, client, request, GVM_E_INVALID, "%llu bytes are beyond the reservation of %llu",
            (unsigned long long)body->bytes, (unsigned long long)opening->object->reserve_bytes);
    else if (gvmi_keep_may_grow(m, client, request) &&
             gvmi_keep_grow_to(m, opening->object, client, NULL, request, body->bytes) != GVM_OK)
        gvmi_keep_reply_failed(m, client, request, GVM_E_NOMEM, "the keeper is out of host memory");
}

void gvmi_keep_forget_grower(keep_client *client)
{
    while (client->growths != NULL) {
        if (client->growths->opened_by != NULL) /* a creation without a reply: the name is removed, too */
            client->growths->opened_by->object->kept = false;
        forget_client(client->growths);
    }
}
