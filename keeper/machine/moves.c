/* Chunks on their way between the tiers, and informing clients where they are.
 *
 *     out:  DEVICE -(copy, unless clean)-> OUT_MAP -(all openings have answered)-> HOST
 *     in:   HOST -(room)-> -(copy)-> IN_MAP -(all openings have answered)-> DEVICE, clean
 *     renew:  either -(copy)-> RENEW_MAP -(all openings have answered)-> as before, in another frame
 *     cut:  either -> CUT -(all openings have answered)-> gone, with the others of its object (shrink.c)
 *
 * `where` changes, and a new stamp is given, at the moment the MAP is decided on: who opens the
 * object from then on maps the new frame. An answer comes in two steps: UNMAPPED, the old frame
 * is released, and MAPPED, the new one is in place. Mapping host memory takes the driver so long
 * that a device frame is worth having in between: it is free once everybody has unmapped it, while
 * the object stays FROZEN until everybody has mapped. A client unmaps ahead: UNMAPPED may come for
 * any MAP that is not answered, MAPPED comes for the first of them.
 *
 * A client whose socket is closed answers by ending (its process gone: nothing is mapped; voided:
 * its frames are written down), so its openings are counted like all others. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "keeper/machine/probes.h"
#include "keeper/machine/state.h"

/* Of one MAP of chunks that move: what it frees or brings is of use as soon as it is answered. */
#define MOVE_BYTES_MAX (256ull << 20)

static keep_device *device_of(gvmi_machine *m, const keep_object *object)
{
    return &m->devices[object->device];
}

void gvmi_keep_resident(gvmi_machine *m, keep_object *object)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < object->chunk_places; i++) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->device_frame != 0 && chunk->op != KEEP_OP_OUT_COPY && chunk->op != KEEP_OP_OUT_MAP)
            bytes += object->chunk_bytes;
    }
    gvmi_policy_resident(device_of(m, object)->policy, &object->item, bytes);
}

/* ---- MAP */

static void set_chunk_tier(gvmi_machine *m, keep_object *object, uint32_t index, gvm_tier tier)
{
    keep_chunk *chunk = &object->chunks[index];

    object->device_chunks -= chunk->where == GVM_TIER_DEVICE;
    object->device_chunks += tier == GVM_TIER_DEVICE;
    gvmi_keep_set_chunk(m, object, chunk, tier, chunk->clean);
    chunk->stamp = ++m->stamps;
    chunk->send = true;
    object->sending++;
    gvmi_keep_mark(m, object);
}

void gvmi_keep_end_move(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    if (chunk->op == KEEP_OP_IN_COPY || chunk->op == KEEP_OP_IN_MAP)
        device_of(m, object)->arriving--;
    chunk->op = KEEP_OP_NONE;
    object->moving--;
    gvmi_keep_mark(m, object);
}

void gvmi_keep_answer_evictor(gvmi_machine *m, keep_object *object)
{
    keep_client *evictor = gvmi_keep_client_of(m, object->evictor);

    object->evictor = 0;
    if (evictor == NULL)
        return;
    if (object->evict_bytes == 0 && object->evict_cause != GVM_OK)
        gvmi_keep_reply_failed(m, evictor, object->evict_request, object->evict_cause, "%s",
                               gvmi_keep_job_failure_text(object->evict_cause));
    else if (object->evict_bytes == 0 && object->evict_short)
        gvmi_keep_reply_failed(m, evictor, object->evict_request, GVM_E_NOMEM,
                               "the host budget has no room for what would leave the device");
    else
        gvmi_keep_reply_done(m, evictor, object->evict_request, object->evict_bytes);
}

/* A chunk with an OUT has no device frame any more, or keeps it for good. */
static void end_leaving(gvmi_machine *m, keep_object *object)
{
    device_of(m, object)->leaving--;
    if (--object->leaving == 0)
        gvmi_keep_answer_evictor(m, object);
}

/* Nobody has the frame any more, but those that hold it. */
static void release_duplicate_frame(gvmi_machine *m, keep_chunk *chunk)
{
    gvmi_keep_give_frame(m, chunk->twin_frame, true);
    chunk->twin_frame = 0;
}

/* Nobody has the device frame any more. */
static void demote_chunk(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    keep_device *device = device_of(m, object);

    gvmi_keep_give_frame(m, chunk->device_frame, true);
    chunk->device_frame = 0;
    gvmi_keep_set_chunk(m, object, chunk, (gvm_tier)chunk->where, false);
    object->evicted_bytes += object->chunk_bytes;
    device->evicted_bytes += object->chunk_bytes;
    device->evictions++;
    end_leaving(m, object);
}

static void note_promoted(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_device *device = device_of(m, object);

    object->promoted_bytes += object->chunk_bytes;
    device->promoted_bytes += object->chunk_bytes;
    device->promotions++;
    GVMI_PROBE_PROMOTE(object->id, index, object->chunk_bytes);
    gvmi_keep_end_move(m, object, &object->chunks[index]);
}

/* All clients to which the chunk's new place was sent have answered, perhaps. */
static void check_answers(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_chunk *chunk = &object->chunks[index];

    if (chunk->unmaps > 0 || chunk->send)
        return;
    if (chunk->op == KEEP_OP_OUT_MAP && chunk->device_frame != 0)
        demote_chunk(m, object, chunk);
    if (chunk->twin_frame != 0 && chunk->op != KEEP_OP_RENEW_COPY)
        release_duplicate_frame(m, chunk);
    if (chunk->waits > 0)
        return;
    if (chunk->op == KEEP_OP_OUT_MAP || chunk->op == KEEP_OP_RENEW_MAP || chunk->op == KEEP_OP_CUT)
        gvmi_keep_end_move(m, object, chunk);
    else if (chunk->op == KEEP_OP_IN_MAP)
        note_promoted(m, object, index);
}

/* Behind those of all, and those of the opening. */
static void list_map(gvmi_machine *m, keep_opening *opening, keep_pending *pending)
{
    pending->older = m->newest_map;
    *(m->newest_map != NULL ? &m->newest_map->newer : &m->oldest_map) = pending;
    m->newest_map = pending;
    *(opening->last_pending != NULL ? &opening->last_pending->next : &opening->first_pending) = pending;
    opening->last_pending = pending;
}

static void unlist_map(gvmi_machine *m, const keep_pending *pending)
{
    *(pending->older != NULL ? &pending->older->newer : &m->oldest_map) = pending->newer;
    *(pending->newer != NULL ? &pending->newer->older : &m->newest_map) = pending->older;
}

/* There is no memory to record which frames the opening may have then: they are never used again. */
static void taint_unrecorded(gvmi_machine *m, const keep_opening *opening, const uint32_t *indexes,
                             uint32_t count)
{
    const keep_object *object = opening->object;

    for (uint32_t i = 0; i < count; i++) {
        const keep_chunk *chunk = &object->chunks[indexes[i]];

        if (indexes[i] >= gvmi_keep_kept_chunks(object))
            gvmi_keep_taint(m, gvmi_keep_frame_where(chunk));
        gvmi_keep_taint(m, gvmi_keep_other_frame(chunk));
        gvmi_keep_taint(m, chunk->twin_frame);
    }
}

/* Size and generation as the next MAP names them. */
static void note_sent(keep_opening *opening, bool last)
{
    const keep_object *object = opening->object;

    if (last) {
        opening->sent_generation = object->generation;
        opening->sent_bytes = gvmi_keep_opened_bytes(opening, object->bytes);
    }
    if (opening->sent_bytes > object->bytes) /* the answer to any MAP of chunks being cut off counts */
        opening->sent_bytes = object->bytes;
}

static uint32_t send_frame(gvmi_machine *m, keep_opening *opening, const keep_chunk *chunk)
{
    const uint32_t frame = gvmi_keep_frame_where(chunk);

    gvmi_keep_frame_seen(m, frame, opening);
    /* Who is sent some of the object's chunks must not find another one in a frame that it kept. */
    if (opening->object->mixed || opening->chunk_limit != UINT32_MAX)
        gvmi_keep_taint(m, frame);
    return frame;
}

/* One MAP of count chunks; last: of its set, which completes size and generation. */
static void send_map(gvmi_machine *m, keep_opening *opening, const uint32_t *indexes,
                     uint32_t count, bool last)
{
    keep_object *object = opening->object;
    keep_pending *pending = malloc(sizeof *pending + count * sizeof pending->indexes[0]);
    uint32_t frames[GVMI_WIRE_CHUNKS_MAX], sent = 0;
    gvmi_wire_message message;

    if (pending == NULL) {
        taint_unrecorded(m, opening, indexes, count);
        gvmi_keep_cut_later(m, opening->client, "out of host memory for a move");
        return;
    }
    note_sent(opening, last);
    *pending = (keep_pending){
        .client = opening->client, .serial = ++m->serials, .sent_ns = m->now_ns, .count = count};
    list_map(m, opening, pending);
    gvmi_wire_start(&message, GVMI_WIRE_MAP, 0);
    message.body.MAP = (gvmi_wire_map){.slot = opening->slot,
                                       .generation = opening->sent_generation,
                                       .serial = pending->serial,
                                       .bytes = opening->sent_bytes,
                                       .sealed = object->sealed};
    for (uint32_t i = 0; i < count; i++) {
        keep_chunk *chunk = &object->chunks[indexes[i]];

        pending->indexes[i] = indexes[i];
        chunk->waits++;
        chunk->unmaps++;
        if (indexes[i] >= gvmi_keep_kept_chunks(object))
            continue;
        frames[sent] = send_frame(m, opening, chunk);
        message.tail.chunks[sent++] = (gvmi_wire_chunk){
            .index = indexes[i], .tier = chunk->where, .stamp = chunk->stamp};
    }
    message.head.fd_count = (uint16_t)sent;
    message.head.tail_bytes = (uint32_t)(sent * sizeof message.tail.chunks[0]);
    (void)gvmi_keep_send(m, opening->client, &message, frames);
}

/* Of the chunks that it may have those of which something is to be sent, or all that stay, in MAPs; at least one. */
static void send_set(gvmi_machine *m, keep_opening *opening, bool all)
{
    const keep_object *object = opening->object;
    const uint32_t chunks = gvmi_keep_opened_chunks(opening);
    uint32_t indexes[GVMI_WIRE_CHUNKS_MAX], count = 0, most = GVMI_WIRE_CHUNKS_MAX;

    if (!all && object->moving > 0 && MOVE_BYTES_MAX / object->chunk_bytes < most)
        most = object->chunk_bytes < MOVE_BYTES_MAX ? (uint32_t)(MOVE_BYTES_MAX / object->chunk_bytes)
                                                    : 1;
    for (uint32_t i = 0; i < chunks; i++) {
        if (all ? i >= gvmi_keep_kept_chunks(object) : !object->chunks[i].send)
            continue;
        if (count == most) {
            send_map(m, opening, indexes, count, false);
            count = 0;
        }
        indexes[count++] = i;
    }
    send_map(m, opening, indexes, count, true);
}

void gvmi_keep_send_maps(gvmi_machine *m, keep_object *object)
{
    if (object->sending == 0 && !object->bare_send)
        return;
    for (keep_opening *o = object->openings; o != NULL; o = o->next) {
        if (!o->welcomed || o->broken)
            continue;
        /* Else a client that grows an object byte by byte would fill the others' sockets. */
        o->behind = object->sending == 0 && o->first_pending != NULL && o->client != object->asker;
        if (!o->behind)
            send_set(m, o, false);
    }
    object->bare_send = false;
    gvmi_keep_publish_permits(object);
    for (uint32_t i = 0; i < object->chunk_count && object->sending > 0; i++) {
        if (!object->chunks[i].send)
            continue;
        object->chunks[i].send = false;
        object->sending--;
        check_answers(m, object, i);
    }
}

void gvmi_keep_catch_up(gvmi_machine *m, keep_opening *opening)
{
    if (!opening->behind || opening->broken)
        return;
    opening->behind = false;
    send_map(m, opening, NULL, 0, true);
}

void gvmi_keep_send_all(gvmi_machine *m, keep_opening *opening)
{
    send_set(m, opening, true);
}

static void release_pending_frames(gvmi_machine *m, const keep_opening *opening, keep_pending *pending)
{
    if (pending->unmapped)
        return;
    pending->unmapped = true;
    for (uint32_t i = 0; i < pending->count; i++) {
        opening->object->chunks[pending->indexes[i]].unmaps--;
        check_answers(m, opening->object, pending->indexes[i]);
    }
}

static void answer_first(gvmi_machine *m, keep_opening *opening)
{
    keep_pending *pending = opening->first_pending;

    release_pending_frames(m, opening, pending);
    opening->first_pending = pending->next;
    if (opening->first_pending == NULL)
        opening->last_pending = NULL;
    for (uint32_t i = 0; i < pending->count; i++) {
        opening->object->chunks[pending->indexes[i]].waits--;
        check_answers(m, opening->object, pending->indexes[i]);
    }
    unlist_map(m, pending);
    free(pending);
    gvmi_keep_mark(m, opening->object);
}

void gvmi_keep_answer_all(gvmi_machine *m, keep_opening *opening)
{
    while (opening->first_pending != NULL)
        answer_first(m, opening);
}

/* It says that it could not map, and that nothing is mapped there. What it may have is written down
 * now: later moves are not sent to it. */
static void note_broken(gvmi_machine *m, keep_opening *opening)
{
    gvmi_keep_hold_untrusted(m, opening, false);
    opening->broken = true;
    gvmi_keep_answer_all(m, opening);
    gvmi_keep_publish_permit(opening);
}

/* NULL: it was never sent, or is answered. */
static keep_pending *find_pending(const keep_opening *opening, uint64_t serial)
{
    keep_pending *pending = opening->first_pending;

    while (pending != NULL && pending->serial != serial)
        pending = pending->next;
    return pending;
}

/* NULL: closed, or given up, while the MAP was on its way. */
static keep_opening *find_answering_opening(const keep_client *client, uint32_t slot)
{
    keep_opening *opening = slot < GVM_OBJECTS_OPEN_MAX ? client->slots[slot] : NULL;

    return opening == NULL || opening->broken ? NULL : opening;
}

void gvmi_keep_unmapped(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_unmapped *body = &message->body.UNMAPPED;
    const keep_opening *opening = find_answering_opening(client, body->slot);
    keep_pending *pending;

    pending = opening == NULL ? NULL : find_pending(opening, body->serial);
    if (pending != NULL)
        release_pending_frames(m, opening, pending);
}

void gvmi_keep_mapped(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_mapped *body = &message->body.MAPPED;
    keep_opening *opening = find_answering_opening(client, body->slot);
    const keep_pending *pending;

    if (opening == NULL)
        return;
    pending = find_pending(opening, body->serial);
    if (body->status != GVM_OK) {
        note_broken(m, opening);
    } else if (body->serial == 0) {
        if (!opening->addressed && opening->object->creator == client->number &&
            opening->object->home_address == 0)
            opening->object->home_address = body->address;
        opening->addressed = true;
    } else if (pending != NULL && pending == opening->first_pending) {
        answer_first(m, opening);
        if (opening->first_pending == NULL)
            gvmi_keep_catch_up(m, opening);
        if (opening->first_pending == NULL && !opening->ready) {
            opening->ready = true;
            gvmi_keep_publish_permit(opening);
        }
    } else if (pending != NULL) {
        gvmi_keep_violated(m, client, "MAPPED out of order");
    }
}

/* ---- out */

static bool start_copy_out(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_chunk *chunk = &object->chunks[index];
    bool make;
    const uint32_t frame = gvmi_keep_take_frame(m, object, GVM_TIER_HOST, &make);

    if (frame == 0)
        return false;
    if (!gvmi_keep_start_job(m, GVMI_ACTION_COPY, object, index, frame, chunk->device_frame, make)) {
        gvmi_keep_give_frame(m, frame, !make);
        return false;
    }
    chunk->host_frame = frame;
    chunk->op = KEEP_OP_OUT_COPY;
    return true;
}

static bool start_out(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_chunk *chunk = &object->chunks[index];

    GVMI_PROBE_EVICT(object->id, index, object->chunk_bytes, !chunk->clean);
    if (chunk->clean) {
        chunk->op = KEEP_OP_OUT_MAP;
        set_chunk_tier(m, object, index, GVM_TIER_HOST);
    } else if (!start_copy_out(m, object, index)) {
        return false;
    }
    object->moving++;
    object->leaving++;
    device_of(m, object)->leaving++;
    return true;
}

/* From the end, as gvmi_keep_bring() begins at the start: what stays is one piece. */
uint64_t gvmi_keep_evict_chunks(gvmi_machine *m, keep_object *object, uint64_t bytes, bool *host_full)
{
    uint64_t begun_bytes = 0;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    for (uint32_t i = object->chunk_count; i-- > 0 && begun_bytes < bytes;) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->where != GVM_TIER_DEVICE || chunk->op != KEEP_OP_NONE)
            continue;
        if (!start_out(m, object, i)) {
            *host_full = true;
            break;
        }
        begun_bytes += object->chunk_bytes;
    }
    gvmi_keep_resident(m, object);
    return begun_bytes;
}

void gvmi_keep_take_victims(gvmi_machine *m, const keep_object *wanting, const gvmi_policy_plan *plan)
{
    for (uint32_t i = 0; i < plan->victim_count; i++) {
        keep_object *victim = gvmi_keep_object_of(plan->victims[i].item);
        bool host_full = false;

        if (victim == wanting || !gvmi_keep_freeze(m, victim))
            continue;
        (void)gvmi_keep_evict_chunks(m, victim, plan->victims[i].bytes, &host_full);
        gvmi_keep_mark(m, victim); /* ends the freeze at once if nothing could be begun */
    }
}

/* ---- in */

bool gvmi_keep_wait_room(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_device *device = device_of(m, object);
    keep_room *room = malloc(sizeof *room);

    if (room == NULL)
        return false;
    *room = (keep_room){.object = object, .chunk = index};
    if (device->last_room != NULL)
        device->last_room->next = room;
    else
        device->first_room = room;
    device->last_room = room;
    return true;
}

bool gvmi_keep_bring(gvmi_machine *m, keep_object *object, const gvmi_policy_plan *plan)
{
    uint64_t begun_bytes = 0;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    gvmi_keep_take_victims(m, object, plan);
    for (uint32_t i = 0; i < object->chunk_count && begun_bytes < plan->bring_bytes; i++) {
        keep_chunk *chunk = &object->chunks[i];

        if (chunk->where != GVM_TIER_HOST || chunk->op != KEEP_OP_NONE)
            continue;
        if (!gvmi_keep_wait_room(m, object, i))
            break;
        chunk->op = KEEP_OP_IN_ROOM;
        object->moving++;
        begun_bytes += object->chunk_bytes;
    }
    return begun_bytes > 0;
}

void gvmi_keep_start_copy_in(gvmi_machine *m, keep_object *object, uint32_t index, uint32_t frame,
                             bool make)
{
    keep_chunk *chunk = &object->chunks[index];

    if (!gvmi_keep_start_job(m, GVMI_ACTION_COPY, object, index, frame, chunk->host_frame, make)) {
        gvmi_keep_give_frame(m, frame, !make);
        gvmi_keep_end_move(m, object, chunk);
        return;
    }
    chunk->device_frame = frame;
    chunk->op = KEEP_OP_IN_COPY;
    /* Now: what writes there may be gone when the copy is over, and the two differ. */
    chunk->unsafe = gvmi_keep_has_writers(m, chunk->host_frame);
    device_of(m, object)->arriving++;
}

/* ---- out of frames that have writers */

static bool start_renew(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_chunk *chunk = &object->chunks[index];
    const gvm_tier tier = (gvm_tier)chunk->where;
    bool make;
    uint32_t frame = gvmi_keep_take_frame(m, object, tier, &make);

    if (frame == 0 && tier == GVM_TIER_DEVICE)
        return start_out(m, object, index);
    if (frame == 0) { /* to the device, if there is room without anybody leaving */
        frame = gvmi_keep_take_frame(m, object, GVM_TIER_DEVICE, &make);
        if (frame == 0)
            return false;
        object->moving++;
        gvmi_keep_start_copy_in(m, object, index, frame, make);
        return chunk->op != KEEP_OP_NONE;
    }
    if (!gvmi_keep_start_job(m, GVMI_ACTION_COPY, object, index, frame,
                             gvmi_keep_frame_where(chunk), make)) {
        gvmi_keep_give_frame(m, frame, !make);
        return false;
    }
    chunk->twin_frame = frame;
    chunk->op = KEEP_OP_RENEW_COPY;
    object->moving++;
    return true;
}

bool gvmi_keep_renew_chunks(gvmi_machine *m, keep_object *object)
{
    bool begun = false;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    for (uint32_t i = 0; i < object->chunk_count; i++) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->op != KEEP_OP_NONE || !gvmi_keep_has_writers(m, gvmi_keep_frame_where(chunk)))
            continue;
        if (!start_renew(m, object, i))
            break;
        begun = true;
    }
    gvmi_keep_resident(m, object);
    return begun;
}

bool gvmi_keep_room_comes(const gvmi_machine *m, const keep_device *device)
{
    return device->leaving > 0 || device->arriving > 0 || m->ahead_jobs > 0;
}

/* ---- copies that ended */

/* The machine has less memory than the budget says. A copy that the fence needs is made again at the next
 * look: at once it would fail in the same way. */
static void copy_failed(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    object->fence_waits = object->fenced;
    gvmi_keep_end_move(m, object, chunk);
}

static void copied_out(gvmi_machine *m, keep_object *object, uint32_t index, gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];

    if (status == GVM_OK) {
        gvmi_keep_set_chunk(m, object, chunk, (gvm_tier)chunk->where, true);
        chunk->op = KEEP_OP_OUT_MAP;
        set_chunk_tier(m, object, index, GVM_TIER_HOST);
        return;
    }
    gvmi_keep_give_frame(m, chunk->host_frame, made);
    chunk->host_frame = 0;
    object->evict_short = true;
    object->evict_cause = status;
    if (object->evictor != 0 && object->evict_bytes >= object->chunk_bytes)
        object->evict_bytes -= object->chunk_bytes;
    end_leaving(m, object);
    copy_failed(m, object, chunk);
}

static void copied_in(gvmi_machine *m, keep_object *object, uint32_t index, gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];

    if (status == GVM_OK) {
        if (chunk->unsafe) {
            chunk->twin_frame = chunk->host_frame;
            chunk->host_frame = 0;
        }
        gvmi_keep_set_chunk(m, object, chunk, (gvm_tier)chunk->where, !chunk->unsafe);
        chunk->op = KEEP_OP_IN_MAP;
        set_chunk_tier(m, object, index, GVM_TIER_DEVICE);
        return;
    }
    gvmi_keep_give_frame(m, chunk->device_frame, made);
    chunk->device_frame = 0;
    copy_failed(m, object, chunk);
}

static void finish_duplicate_copy(gvmi_machine *m, keep_object *object, uint32_t index,
                                  gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];
    uint32_t *own = chunk->where == GVM_TIER_DEVICE ? &chunk->device_frame : &chunk->host_frame;
    const uint32_t old = *own;

    GVM_ASSERT(!chunk->clean);
    if (status != GVM_OK) {
        gvmi_keep_give_frame(m, chunk->twin_frame, made);
        chunk->twin_frame = 0;
        copy_failed(m, object, chunk);
        return;
    }
    *own = chunk->twin_frame;
    chunk->twin_frame = old;
    chunk->op = KEEP_OP_RENEW_MAP;
    set_chunk_tier(m, object, index, (gvm_tier)chunk->where);
}

void gvmi_keep_copied(gvmi_machine *m, keep_object *object, uint32_t index, gvm_status status, bool made)
{
    switch ((keep_op)object->chunks[index].op) {
    case KEEP_OP_OUT_COPY: copied_out(m, object, index, status, made); break;
    case KEEP_OP_IN_COPY: copied_in(m, object, index, status, made); break;
    case KEEP_OP_RENEW_COPY: finish_duplicate_copy(m, object, index, status, made); break;
    default: GVM_ASSERT(false); /* a chunk that is not being copied */
    }
}

/* ---- writes to come make host copies stale */

void gvmi_keep_stale_copies(gvmi_machine *m, keep_object *object)
{
    for (uint32_t i = 0; i < object->chunk_count && object->duplicate_chunks > 0; i++) {
        keep_chunk *chunk = &object->chunks[i];

        if (!chunk->clean)
            continue;
        GVM_ASSERT(chunk->where == GVM_TIER_DEVICE && chunk->op == KEEP_OP_NONE);
        gvmi_keep_give_frame(m, chunk->host_frame, true);
        chunk->host_frame = 0;
        gvmi_keep_set_chunk(m, object, chunk, (gvm_tier)chunk->where, false);
    }
}

/* ---- the end of a freeze */

void gvmi_keep_thaw(gvmi_machine *m, keep_object *object)
{
    GVM_ASSERT(object->moving == 0);
    gvmi_keep_end_cut(m, object);
    if (object->untracked && !object->sealed)
        gvmi_keep_stale_copies(m, object);
    object->item.pinned = false;
    gvmi_keep_resident(m, object);
    gvmi_keep_check_fence(m, object);
    gvmi_keep_end_freeze(m, object);
    gvmi_keep_mark(m, object);
}

/* ---- what moves though nobody asks */

static void demote_over_budget(gvmi_machine *m, keep_device *device)
{
    gvmi_policy_plan plan;
    uint64_t over_bytes = device->place.used_bytes - device->place.budget_bytes;

    over_bytes -= gvmi_keep_trim(
        m, &device->place,
        device->place.free_bytes > over_bytes ? device->place.free_bytes - over_bytes : 0);
    if (device->place.used_bytes <= device->place.budget_bytes)
        return;
    gvmi_keep_plan_shrink(m, device, over_bytes, &plan);
    gvmi_keep_take_victims(m, NULL, &plan);
}

static void promote_planned(gvmi_machine *m, keep_device *device)
{
    gvmi_policy_plan plan;
    keep_object *object = gvmi_keep_plan_next(m, device, &plan);

    if (object == NULL)
        return;
    if (object->first_wait != NULL || !gvmi_keep_freeze(m, object)) {
        object->item.pinned = true; /* until the next look: others may gain, too */
        return;
    }
    (void)gvmi_keep_bring(m, object, &plan);
    gvmi_keep_mark(m, object);
}

void gvmi_keep_rebalance(gvmi_machine *m)
{
    for (uint32_t d = 0; d < m->config.device_count; d++) {
        keep_device *device = &m->devices[d];

        if (device->first_room != NULL || device->leaving > 0)
            continue;
        if (device->place.used_bytes > device->place.budget_bytes)
            demote_over_budget(m, device);
        else
            promote_planned(m, device);
    }
}
