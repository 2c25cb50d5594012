/* MAPs: openings are sent where the chunks are that they follow.
 *
 * An opening follows no chunk in the beginning. Its first acquire maps all of them, where they are by then, and
 * from then on it is sent each new place (gvmi_keep_follows()). When a chunk is evicted, it is unmapped in all
 * openings, which follow it no more; the next acquire of each maps what it is by then. So a chunk that is evicted and
 * comes back before an opening reads it costs that opening nothing, where mapping host memory would take the driver
 * 9 us a MiB, one process after the other. An opening with GVM_OPEN_MAPPED follows all chunks for ever.
 *
 * A move waits for the openings that had the chunk mapped, or were mapping it, when its new place was sent. It does not wait for
 * an opening whose first MAP is sent later: a client that opened an object again and again would otherwise delay the move without an end. Such an
 * opening has nothing to unmap. It gets no permit before it has answered (`ready`), and the next move waits for it.
 *
 * A lease is granted behind the MAPs that it needs: the client answers those before it takes the lease. So an opening with a
 * lease follows all chunks, and has mapped them.
 *
 * An answer comes in two steps: UNMAPPED, the old frame is released, and MAPPED, the new one is in place. A client
 * unmaps ahead: UNMAPPED may come for any MAP that is not answered, MAPPED comes for the first of them.
 *
 * A client whose socket is closed answers by ending (its process gone: nothing is mapped; voided:
 * its frames are written down), so its openings are counted like all others. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/size.h"
#include "keeper/machine/room.h"

/* Of one MAP of chunks that move: what it frees or brings is of use as soon as it is answered. */
#define MOVE_BYTES_MAX (256ull << 20)

/* Of an object, beyond which MAPs of all its chunks are full ones: those of a few chunks each take a client's outbox sooner. */
#define MANY_CHUNKS 4096u

/* The driver maps host memory of all processes one after the other, 9 us a MiB: what is to be mapped anywhere comes on
 * top of the revoke timeout, at four times that. But so many timeouts at most, as a client that maps nothing can have any
 * number of bytes to map, by further openings of what it has open. */
#define MAP_NS_PER_MIB 36000

static int64_t find_due_time(const gvmi_machine *m)
{
    const int64_t timeout_ns = m->config.revoke_limit_ms * GVMI_NS_PER_MS;
    const int64_t map_ns = (int64_t)(m->mapping_bytes / GVMI_MIB) * MAP_NS_PER_MIB;

    return m->now_ns + timeout_ns +
           (map_ns < KEEP_MAP_TIMEOUTS_MAX * timeout_ns ? map_ns : KEEP_MAP_TIMEOUTS_MAX * timeout_ns);
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
    m->mapping_bytes -= pending->host_bytes;
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

/* The chunk is being evicted, or leaves lent memory, and the opening is to unmap it. */
static bool is_to_unmap(const gvmi_machine *m, const keep_opening *opening, const keep_chunk *chunk)
{
    return (chunk->op == KEEP_OP_OUT_MAP || gvmi_keep_leaves_lent(m, chunk)) && chunk->send &&
           (opening->flags & GVM_OPEN_MAPPED) == 0;
}

typedef struct map_set {
    keep_opening *opening;
    bool first; /* of chunks that it did not follow: nothing is replaced, and no move waits for the answer */
    uint32_t indexes[GVMI_WIRE_CHUNKS_MAX], count, most;
} map_set;

/* One MAP of the set; last: it completes size and generation. */
static void send_map(gvmi_machine *m, const map_set *set, bool last)
{
    keep_opening *opening = set->opening;
    const uint32_t *indexes = set->indexes, count = set->count;
    keep_object *object = opening->object;
    keep_pending *pending = malloc(sizeof *pending + count * sizeof pending->indexes[0]);
    uint32_t frames[GVMI_WIRE_CHUNKS_MAX], sent = 0, listed = 0;
    gvmi_wire_message message;

    if (pending == NULL) {
        taint_unrecorded(m, opening, indexes, count);
        gvmi_keep_cut_later(m, opening->client, "out of host memory for a move");
        return;
    }
    note_sent(opening, last);
    *pending = (keep_pending){.client = opening->client,
                              .serial = ++m->serials,
                              .sent_ns = m->now_ns,
                              .awaited = !set->first,
                              .unmapped = set->first,
                              .count = count};
    list_map(m, opening, pending);
    gvmi_keep_count_served(m, 1);
    gvmi_wire_start(&message, GVMI_WIRE_MAP, 0);
    message.body.MAP = (gvmi_wire_map){.slot = opening->slot,
                                       .generation = opening->sent_generation,
                                       .serial = pending->serial,
                                       .bytes = opening->sent_bytes,
                                       .sealed = object->sealed,
                                       .anew = opening->anew};
    opening->anew = false;
    for (uint32_t i = 0; i < count; i++) {
        keep_chunk *chunk = &object->chunks[indexes[i]];

        pending->indexes[i] = indexes[i];
        chunk->waits += pending->awaited;
        chunk->unmaps += pending->awaited;
        if (indexes[i] >= gvmi_keep_kept_chunks(object))
            continue;
        message.tail.chunks[listed] = (gvmi_wire_chunk){.index = indexes[i], .tier = GVM_TIER_ABSENT};
        if (!is_to_unmap(m, opening, chunk)) {
            const uint32_t frame = frames[sent++] = send_frame(m, opening, chunk);
            const uint32_t tier = gvmi_keep_frame(m, frame)->spec.tier; /* DEVICE, too, where it is lent */

            message.tail.chunks[listed].tier = tier;
            message.tail.chunks[listed].stamp = chunk->stamp;
            pending->host_bytes += tier == GVM_TIER_HOST ? object->chunk_bytes : 0;
        }
        listed++;
    }
    m->mapping_bytes += pending->host_bytes;
    pending->due_ns = find_due_time(m);
    message.head.fd_count = (uint16_t)sent;
    message.head.tail_bytes = (uint32_t)(listed * sizeof message.tail.chunks[0]);
    (void)gvmi_keep_send(m, opening->client, &message, frames);
}

/* One more chunk, which the last MAP may have to leave to the next. */
static void add_to_set(gvmi_machine *m, map_set *set, uint32_t index)
{
    if (set->count == set->most) {
        send_map(m, set, false);
        set->count = 0;
    }
    set->indexes[set->count++] = index;
}

static uint32_t most_chunks_of_map(const keep_object *object)
{
    if (object->moving == 0 || MOVE_BYTES_MAX / object->chunk_bytes >= GVMI_WIRE_CHUNKS_MAX)
        return GVMI_WIRE_CHUNKS_MAX;
    return object->chunk_bytes < MOVE_BYTES_MAX ? (uint32_t)(MOVE_BYTES_MAX / object->chunk_bytes) : 1;
}

/* Of the chunks from first to end that it follows those of which something is to be sent; and, to all, those that are cut
 * off: in their place others may come, which must not be taken for those. */
static void send_changes(gvmi_machine *m, keep_opening *opening, uint32_t first, uint32_t end)
{
    const keep_object *object = opening->object;
    const uint32_t chunks = gvmi_keep_opened_chunks(opening);
    map_set set = {.opening = opening, .most = most_chunks_of_map(object)};

    for (uint32_t i = first; i < end && i < chunks && object->sending > 0; i++)
        if (object->chunks[i].send &&
            (object->chunks[i].op == KEEP_OP_CUT || gvmi_keep_follows(opening, &object->chunks[i])))
            add_to_set(m, &set, i);
    if (set.count == 0 && !object->bare_send)
        return;
    /* Else a client that grows an object byte by byte would fill the others' sockets. */
    opening->behind = set.count == 0 && opening->first_pending != NULL &&
                      opening->client != object->asker;
    if (!opening->behind)
        send_map(m, &set, true);
}

/* It was sent. */
static void end_send(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_chunk *chunk = &object->chunks[index];

    if (chunk->op == KEEP_OP_OUT_MAP || gvmi_keep_leaves_lent(m, chunk))
        object->unmapped_mark = chunk->unmapped_mark = ++m->marks;
    chunk->send = false;
    object->sending--;
    gvmi_keep_check_answers(m, object, index);
}

static void send_range(gvmi_machine *m, keep_object *object, uint32_t first, uint32_t end)
{
    const uint64_t looks = (uint64_t)(end - first) * object->opening_count;

    gvmi_keep_count_served(m, (uint32_t)(looks / KEEP_REQUEST_CHUNKS));
    for (keep_opening *o = object->openings; o != NULL; o = o->next)
        if (o->welcomed && !o->broken)
            send_changes(m, o, first, end);
    object->bare_send = false;
    for (uint32_t i = first; i < end && object->sending > 0; i++)
        if (object->chunks[i].send)
            end_send(m, object, i);
    gvmi_keep_publish_permits(object);
}

/* Where the event is to end sending: a MAP counts as a request, and all openings are sent the same chunks. */
static uint32_t find_range_end(const gvmi_machine *m, const keep_object *object)
{
    const uint32_t openings = object->opening_count > 0 ? object->opening_count : 1;
    const uint32_t maps = m->serves_left > openings ? m->serves_left / openings : m->serves_left > 0;
    const uint32_t chunks = maps * most_chunks_of_map(object);

    return chunks < object->send_end - object->send_first ? object->send_first + chunks
                                                          : object->send_end;
}

void gvmi_keep_send_maps(gvmi_machine *m, keep_object *object)
{
    const uint32_t first = object->send_first;

    if (object->sending == 0 && !object->bare_send)
        return;
    if (object->sending == 0) {
        send_range(m, object, 0, 0);
        return;
    }
    object->send_first = find_range_end(m, object);
    if (object->send_first > first)
        send_range(m, object, first, object->send_first);
    if (object->sending > 0)
        gvmi_keep_serve_later(m, object);
}

void gvmi_keep_send_new(gvmi_machine *m, keep_object *object, uint32_t first)
{
    send_range(m, object, first, object->chunk_count);
}

/* It is sent at the end of the event, or in the next turns, or where it comes in for those who wait. */
static bool is_sent_later(const keep_opening *opening, const keep_chunk *chunk)
{
    const bool waits = opening->object->bringing && (opening->flags & GVM_OPEN_MAPPED) == 0;

    return chunk->send || (waits && (chunk->op == KEEP_OP_IN_ROOM || chunk->op == KEEP_OP_IN_COPY));
}

void gvmi_keep_map_all(gvmi_machine *m, keep_opening *opening)
{
    const keep_object *object = opening->object;
    const uint32_t chunks = gvmi_keep_opened_chunks(opening), kept = gvmi_keep_kept_chunks(object),
                   end = chunks < kept ? chunks : kept;
    map_set set = {.opening = opening,
                   .first = true,
                   .most = end > MANY_CHUNKS ? GVMI_WIRE_CHUNKS_MAX : GVMI_MAP_ALL_CHUNKS_MAX};

    if (gvmi_keep_follows_all(opening) && !opening->broken)
        return;
    if (opening->broken) {
        opening->broken = opening->ready = false;
        opening->anew = true;
        opening->mapped_mark = 0;
        opening->sent_generation = 0; /* until the last of these MAPs: leases wait for all of them */
    }
    for (uint32_t i = 0; i < end; i++)
        if (!gvmi_keep_follows(opening, &object->chunks[i]) &&
            !is_sent_later(opening, &object->chunks[i]))
            add_to_set(m, &set, i);
    opening->mapped_mark = (opening->flags & GVM_OPEN_MAPPED) != 0 ? UINT64_MAX : ++m->marks;
    if (set.count > 0 || opening->anew) {
        opening->ready = false;
        send_map(m, &set, true);
    }
    opening->ready = opening->ready || opening->first_pending == NULL;
    gvmi_keep_publish_permit(opening);
}

void gvmi_keep_map_for_waits(gvmi_machine *m, keep_object *object)
{
    object->bringing = true;
    /* The first one in any case: the chunks are brought for it. */
    for (const keep_wait *wait = object->first_wait;
         wait != NULL && (wait == object->first_wait || m->serves_left > 0); wait = wait->next)
        if (wait->kind == KEEP_WAIT_READ || wait->kind == KEEP_WAIT_WRITE)
            gvmi_keep_map_all(m, wait->opening);
}

void gvmi_keep_catch_up(gvmi_machine *m, keep_opening *opening)
{
    const map_set none = {.opening = opening};

    if (!opening->behind || opening->broken)
        return;
    opening->behind = false;
    send_map(m, &none, true);
}

static void release_pending_frames(gvmi_machine *m, const keep_opening *opening, keep_pending *pending)
{
    if (pending->unmapped)
        return;
    pending->unmapped = true;
    for (uint32_t i = 0; i < pending->count; i++) {
        opening->object->chunks[pending->indexes[i]].unmaps--;
        gvmi_keep_check_answers(m, opening->object, pending->indexes[i]);
    }
}

static void answer_first(gvmi_machine *m, keep_opening *opening)
{
    keep_pending *pending = opening->first_pending;

    release_pending_frames(m, opening, pending);
    opening->first_pending = pending->next;
    if (opening->first_pending == NULL)
        opening->last_pending = NULL;
    for (uint32_t i = 0; i < (pending->awaited ? pending->count : 0); i++) {
        opening->object->chunks[pending->indexes[i]].waits--;
        gvmi_keep_check_answers(m, opening->object, pending->indexes[i]);
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
 * now: later moves are not sent to it, until it asks for a lease again. */
static void note_broken(gvmi_machine *m, keep_opening *opening)
{
    gvmi_keep_hold_not_mapped(m, opening);
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
    if (body->status != GVM_OK && body->serial == 0 && opening->addressed) {
        gvmi_keep_violated(m, client, "an opening that fails after its answer");
    } else if (body->status != GVM_OK) {
        opening->addressed = opening->addressed || body->serial == 0;
        /* For the creator its creation has failed, and nobody else has the object. */
        if (body->serial == 0 && !opening->object->homed &&
            opening->object->creator == client->number && opening->object->opening_count == 1)
            opening->object->kept = false;
        if (body->serial == 0 || pending != NULL) /* not another one sent before that was known */
            note_broken(m, opening);
    } else if (body->serial == 0 && body->address > UINT64_MAX - opening->object->reserve_bytes) {
        gvmi_keep_violated(m, client, "an object beyond the last address");
    } else if (body->serial == 0) {
        if (!opening->object->homed && opening->object->creator == client->number) {
            if (body->address != opening->object->home_address)
                gvmi_keep_end_proposal(m, opening->object);
            opening->object->home_address = body->address;
            opening->object->homed = true;
        }
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
