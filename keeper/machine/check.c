/* The invariants of keeper/machine/state.h, walked. For tests and slow asserts. */
#include <string.h>

#include "keeper/machine/lend.h"

/* I2: what the frames of a place add up to. */
static bool check_place(const gvmi_machine *m, const keep_place *place)
{
    uint64_t used_bytes = 0, free_bytes = 0, held_bytes = 0, lent_bytes = 0;

    for (uint32_t i = 0; i < m->frame_capacity; i++) {
        const keep_frame *frame = &m->frames[i];

        if (frame->state == KEEP_FRAME_UNUSED || frame->state == KEEP_FRAME_DROPPED ||
            frame->spec.tier != (uint32_t)place->tier ||
            (place->tier == GVM_TIER_DEVICE && frame->spec.device != place->device))
            continue;
        used_bytes += frame->spec.bytes;
        if (frame->state == KEEP_FRAME_FREE)
            free_bytes += frame->spec.bytes;
        if (frame->state == KEEP_FRAME_HELD)
            held_bytes += frame->spec.bytes;
        if (frame->lent && frame->state != KEEP_FRAME_USED)
            return false;
        if (frame->lent)
            lent_bytes += frame->spec.bytes;
    }
    return used_bytes == place->used_bytes && free_bytes == place->free_bytes &&
           held_bytes == place->held_bytes && lent_bytes == place->lent_bytes &&
           used_bytes <= place->limit_bytes;
}

/* I1: is the frame in use, of the right device and size, and where it is to be? */
static bool check_frame(const gvmi_machine *m, const keep_object *object, uint32_t number,
                        keep_where where)
{
    const keep_frame *frame;

    if (number == 0)
        return true;
    if (number > m->frame_capacity)
        return false;
    frame = &m->frames[number - 1];
    if (frame->state != KEEP_FRAME_USED || frame->spec.bytes != object->chunk_bytes)
        return false;
    if (frame->lent)
        return where == KEEP_AWAY && frame->spec.tier == GVM_TIER_DEVICE &&
               (m->config.devices[object->device].lenders >> frame->spec.device & 1) != 0;
    return frame->spec.device == object->device &&
           frame->spec.tier == (where == KEEP_AWAY ? GVM_TIER_HOST : GVM_TIER_DEVICE);
}

static bool has_writers(const gvmi_machine *m, uint32_t number)
{
    return number != 0 && (m->frames[number - 1].writers > 0 || m->frames[number - 1].unsafe);
}

/* I11, of one chunk. */
static bool check_writers(const gvmi_machine *m, const keep_object *object, const keep_chunk *chunk)
{
    if (has_writers(m, gvmi_keep_frame_where(chunk)) && !object->fenced)
        return false;
    return !chunk->clean || chunk->op != KEEP_OP_NONE ||
           (!has_writers(m, chunk->device_frame) && !has_writers(m, chunk->away_frame));
}

/* I5, for a chunk that clients know. */
static bool check_chunk(const gvmi_machine *m, const keep_object *object, const keep_chunk *chunk)
{
    const bool lent = chunk->where == KEEP_AWAY && gvmi_keep_is_lent(m, chunk->away_frame);

    if (!check_frame(m, object, chunk->device_frame, KEEP_ON_DEVICE) ||
        !check_frame(m, object, chunk->away_frame, KEEP_AWAY) ||
        !check_frame(m, object, chunk->twin_frame,
                     chunk->op == KEEP_OP_IN_MAP ? KEEP_AWAY : (keep_where)chunk->where) ||
        !check_writers(m, object, chunk))
        return false;
    if (chunk->lent != (lent ? 1 + m->frames[chunk->away_frame - 1].spec.device : 0) ||
        (chunk->clean && gvmi_keep_is_lent(m, chunk->away_frame)))
        return false;
    if (chunk->twin_frame != 0 && chunk->op != KEEP_OP_RENEW_COPY &&
        chunk->op != KEEP_OP_RENEW_MAP && chunk->op != KEEP_OP_IN_MAP)
        return false;
    if (chunk->where != KEEP_ON_DEVICE && chunk->where != KEEP_AWAY)
        return false;
    if (chunk->clean && object->untracked && !object->sealed && object->lease_state != KEEP_FROZEN)
        return false;
    if (((chunk->op == KEEP_OP_OUT_MAP && chunk->device_frame != 0) ||
         (chunk->op != KEEP_OP_RENEW_COPY && chunk->twin_frame != 0)) &&
        chunk->unmaps == 0 && !chunk->send)
        return false;
    return gvmi_keep_frame_where(chunk) != 0 &&
           (!chunk->clean || (chunk->device_frame != 0 && chunk->away_frame != 0));
}

/* I6 */
static bool check_waits(const keep_object *object, uint32_t index)
{
    uint32_t waits = 0, unmaps = 0;

    for (const keep_opening *o = object->openings; o != NULL; o = o->next)
        for (const keep_pending *p = o->first_pending; p != NULL; p = p->next)
            for (uint32_t i = 0; i < p->count; i++) {
                waits += p->indexes[i] == index && p->awaited;
                unmaps += p->indexes[i] == index && !p->unmapped;
            }
    return waits == object->chunks[index].waits && unmaps == object->chunks[index].unmaps;
}

static bool check_object_chunks(const gvmi_machine *m, const keep_object *object)
{
    uint32_t moving = 0, leaving = 0, on_device = 0, duplicate = 0, sending = 0, lent = 0;
    uint32_t lent_by[GVMI_DEVICES_MAX] = {0};

    if (object->chunk_count > object->chunk_places ||
        object->bytes > object->chunk_count * object->chunk_bytes) /* I8 */
        return false;
    for (uint32_t i = 0; i < object->chunk_count; i++) {
        const keep_chunk *chunk = &object->chunks[i];

        if (!check_chunk(m, object, chunk) || !check_waits(object, i))
            return false;
        if (object->fenced && i < object->fence_first && has_writers(m, gvmi_keep_frame_where(chunk)))
            return false; /* I11 */
        moving += chunk->op != KEEP_OP_NONE;
        leaving += chunk->op == KEEP_OP_OUT_COPY ||
                   (chunk->op == KEEP_OP_OUT_MAP && chunk->device_frame != 0);
        on_device += chunk->where == KEEP_ON_DEVICE;
        duplicate += chunk->where == KEEP_ON_DEVICE && chunk->clean;
        if (chunk->where == KEEP_ON_DEVICE && chunk->clean && i >= object->clean_end &&
            (chunk->op == KEEP_OP_NONE ||
             (chunk->op == KEEP_OP_IN_MAP && chunk->unmaps == 0 && !chunk->send)))
            return false; /* it is not found any more */
        sending += chunk->send;
        if (chunk->send && (i < object->send_first || i >= object->send_end))
            return false;
        lent += chunk->lent != 0;
        if (chunk->lent != 0)
            lent_by[chunk->lent - 1]++;
    }
    if (gvmi_keep_kept_chunks(object) < object->chunk_count && object->lease_state != KEEP_FROZEN)
        return false; /* I8 */
    if (leaving != object->leaving || (object->evictor != 0 && leaving == 0))
        return false;
    return moving == object->moving && on_device == object->device_chunks &&
           duplicate == object->duplicate_chunks && sending == object->sending &&
           lent == object->lent_chunks && memcmp(lent_by, object->lent_by, sizeof lent_by) == 0 &&
           (moving == 0 || object->lease_state == KEEP_FROZEN); /* I3 */
}

/* I17: of a lender and of the chunk's device, what the chunk is about to leave. */
static uint64_t leaving_bytes(const gvmi_machine *m, const keep_object *object, uint32_t index,
                              uint32_t device)
{
    const keep_chunk *chunk = &object->chunks[index];
    const bool cut = index >= gvmi_keep_kept_chunks(object);
    const bool out = cut || chunk->op == KEEP_OP_OUT_COPY || chunk->op == KEEP_OP_OUT_MAP;
    const bool from_away = cut || chunk->op == KEEP_OP_IN_COPY ||
                           (chunk->op == KEEP_OP_RENEW_COPY && chunk->where == KEEP_AWAY);
    uint32_t frame = 0;

    if (out && chunk->device_frame != 0)
        frame = chunk->device_frame;
    else if (from_away && gvmi_keep_is_lent(m, chunk->away_frame))
        frame = chunk->away_frame;
    else if (chunk->op != KEEP_OP_RENEW_COPY && gvmi_keep_is_lent(m, chunk->twin_frame))
        frame = chunk->twin_frame;
    return frame != 0 && m->frames[frame - 1].spec.device == device ? object->chunk_bytes : 0;
}

/* I17 */
static bool check_lending(const gvmi_machine *m)
{
    uint32_t borrowers = 0, listed = 0;

    for (const keep_object *o = m->borrowers; o != NULL; o = gvmi_keep_next_borrower(m, o)) {
        if (o->lent_chunks == 0 || o->borrowers_next->borrowers_prev != o)
            return false;
        listed++;
    }
    for (const keep_object *o = m->objects; o != NULL; o = o->next)
        borrowers += o->lent_chunks > 0;
    for (uint32_t d = 0; d < m->config.device_count; d++) {
        const keep_device *device = &m->devices[d];
        uint64_t leaving = 0, wanted = 0;

        for (const keep_object *o = m->objects; o != NULL; o = o->next)
            for (uint32_t i = 0; i < o->chunk_count; i++)
                leaving += leaving_bytes(m, o, i, d);
        for (const keep_room *room = device->first_room; room != NULL; room = room->next)
            wanted += room->object->chunk_bytes;
        if (leaving != device->leaving_bytes || wanted != device->wanted_bytes)
            return false;
    }
    return borrowers == listed;
}

/* I16 */
static bool check_followed_chunks(const gvmi_machine *m, const keep_object *object)
{
    for (uint32_t i = 0; i < object->chunk_count; i++)
        if (object->chunks[i].unmapped_mark > object->unmapped_mark)
            return false;
    for (const keep_opening *o = object->openings; o != NULL; o = o->next) {
        const bool reads = (atomic_load(&o->permit->word) & GVMI_PERMIT_READ) != 0;

        if ((reads || o->granted_readers > 0 || o->granted_writers > 0) &&
            !gvmi_keep_follows_all(o) && !o->broken)
            return false;
        if ((o->flags & GVM_OPEN_MAPPED) == 0 && o->mapped_mark > m->marks)
            return false;
    }
    return object->unmapped_mark <= m->marks;
}

/* I4 */
static bool check_permits(const keep_object *object)
{
    for (const keep_opening *o = object->openings; o != NULL; o = o->next) {
        const uint64_t word = atomic_load(&o->permit->word);
        const bool reads = (word & GVMI_PERMIT_READ) != 0, writes = (word & GVMI_PERMIT_WRITE) != 0,
                   revoked = (word & GVMI_PERMIT_REVOKED) != 0;

        if ((word & (GVMI_PERMIT_GONE | GVMI_PERMIT_BROKEN)) != 0)
            continue;
        switch (object->lease_state) {
        case KEEP_SHARED:
            if (writes || revoked)
                return false;
            break;
        case KEEP_EXCLUSIVE:
            if ((reads || writes) && o != object->writer)
                return false;
            break;
        default:
            if (reads || writes || !revoked)
                return false;
        }
    }
    return (object->lease_state == KEEP_EXCLUSIVE) <= (object->writer != NULL);
}

/* I14 */
static bool check_list_of_links(const gvmi_machine *m, const keep_links *links)
{
    uint32_t count = 0;

    for (const keep_link *link = links->first; link != NULL; link = link->next) {
        if (link->links != links || (link->next != NULL && link->next->prev != link) ||
            gvmi_keep_find_link(m, link->name) != (links->object != NULL ? link : NULL))
            return false;
        count++;
    }
    return count == links->count;
}

/* I14 */
static bool check_ended_links(const gvmi_machine *m)
{
    for (const keep_links *links = m->ended_links; links != NULL; links = links->next_ended)
        if (links->object != NULL || !check_list_of_links(m, links))
            return false;
    return true;
}

/* I14 */
static bool check_links(const gvmi_machine *m, const keep_object *object)
{
    if (object->links != NULL &&
        (object->links->object != object || !check_list_of_links(m, object->links)))
        return false;
    for (const keep_opening *o = object->openings; o != NULL; o = o->next)
        for (const keep_pending *p = o->first_pending; p != NULL; p = p->next)
            if (p->count > 0 && p->indexes[p->count - 1] >= o->chunk_limit) /* they rise */
                return false;
    return true;
}

/* I13 */
static bool check_openers(const keep_object *object)
{
    uint32_t count = 0;
    bool first_leased = object->lease_state != KEEP_DRAINING || object->first_leased == NULL;

    for (const keep_opener *opener = object->openers; opener != NULL; opener = opener->next) {
        uint32_t openings = 0;

        for (const keep_opening *o = object->openings; o != NULL; o = o->next)
            openings += o->opener == opener && o->client->user == opener->user;
        if (openings != opener->count || openings == 0)
            return false;
        count += openings;
    }
    for (const keep_opening *o = object->openings; o != NULL; o = o->next)
        first_leased = first_leased || o == object->first_leased;
    return count == object->opening_count && first_leased;
}

/* I13 */
static bool check_maps(const gvmi_machine *m)
{
    uint32_t listed = 0, pending = 0;
    uint64_t bytes = 0;

    for (const keep_pending *map = m->oldest_map; map != NULL; map = map->newer) {
        listed += map->newer == NULL || (map->newer->older == map && map->newer->serial > map->serial);
        bytes += map->host_bytes;
    }
    for (const keep_object *object = m->objects; object != NULL; object = object->next)
        for (const keep_opening *o = object->openings; o != NULL; o = o->next)
            for (const keep_pending *map = o->first_pending; map != NULL; map = map->next)
                pending += map->client == o->client;
    return listed == pending && bytes == m->mapping_bytes;
}

/* I12, of one frame. */
static bool check_holders(const keep_frame *frame)
{
    uint32_t holders = 0, writers = 0;

    for (const keep_hold *hold = frame->holds; hold != NULL; hold = hold->next) {
        if (hold->frame != frame->spec.frame || (hold->next != NULL && hold->next->prev != hold) ||
            gvmi_keep_find_hold(hold->client, hold->frame) != hold)
            return false;
        holders++;
        writers += hold->writes;
    }
    return holders == frame->holders && writers == frame->writers;
}

/* I12 */
static bool check_free_foreign(const gvmi_machine *m)
{
    uint32_t free_frames = 0, listed = 0;

    for (uint32_t i = 0; i < m->frame_capacity; i++)
        free_frames += m->frames[i].state == KEEP_FRAME_FREE && m->frames[i].foreign != NULL;
    for (const keep_object *o = m->objects; o != NULL; o = o->next)
        for (uint32_t n = o->first_foreign; n != 0; n = m->frames[n - 1].foreign_next) {
            if (m->frames[n - 1].state != KEEP_FRAME_FREE || m->frames[n - 1].foreign != o)
                return false;
            listed++;
        }
    return free_frames == listed;
}

/* I12 */
static bool check_holds(const gvmi_machine *m)
{
    uint64_t holders = 0, writers = 0, noted = 0, noted_writers = 0;

    for (uint32_t i = 0; i < m->frame_capacity; i++) {
        const keep_frame *frame = &m->frames[i];

        if (frame->state == KEEP_FRAME_UNUSED)
            continue;
        if (!check_holders(frame) || (frame->state == KEEP_FRAME_HELD) > (frame->holders > 0))
            return false;
        holders += frame->holders;
        writers += frame->writers;
    }
    for (uint32_t i = 0; i < m->client_capacity; i++) {
        const keep_client *client = m->clients[i];

        uint32_t next = 0, found = 0;

        if (client == NULL)
            continue;
        for (const keep_hold *h; (h = gvmi_keep_next_hold(client, &next)) != NULL; found++) {
            if (h->client != client || h->frame != next)
                return false;
            noted_writers += h->writes;
        }
        if (found != client->held_count)
            return false;
        noted += found;
    }
    return holders == noted && writers == noted_writers;
}

/* I10 */
static bool check_client(const gvmi_machine *m, const keep_client *client)
{
    uint32_t openings = 0, slots = 0, waits = 0, growths = 0;
    uint64_t committed_bytes = 0;

    for (const keep_opening *o = client->openings; o != NULL; o = o->own_next)
        openings += client->slots[o->slot] == o;
    for (uint32_t slot = 0; slot < GVM_OBJECTS_OPEN_MAX; slot++) {
        slots += client->slots[slot] != NULL;
        if (slot < client->free_slot && client->slots[slot] == NULL)
            return false;
    }
    for (const keep_wait *wait = client->waits; wait != NULL; wait = wait->own_next)
        waits += wait->client == client;
    for (const keep_growth *growth = client->growths; growth != NULL; growth = growth->own_next)
        growths += growth->client == client;
    for (const keep_object *o = m->objects; o != NULL; o = o->next)
        if (o->creator == client->number)
            committed_bytes += o->chunk_count * o->chunk_bytes;
    for (const keep_object *o = client->created; o != NULL; o = o->created_next)
        committed_bytes -= o->chunk_count * o->chunk_bytes;
    return openings == client->opening_count && slots == openings && waits == client->wait_count &&
           growths == client->growth_count && growths <= KEEP_CLIENT_GROWTHS_MAX &&
           waits <= KEEP_CLIENT_WAITS_MAX && committed_bytes == 0;
}

/* I7, and of I9 what is the user's. */
static bool check_user(const gvmi_machine *m, const keep_user *user)
{
    uint64_t used_bytes = 0, taken[KEEP_ALLOWANCES] = {0};
    bool counts = user->limited || user->used_bytes > 0;

    for (uint32_t i = 0; i < m->frame_capacity; i++) {
        const keep_frame *frame = &m->frames[i];

        if (frame->state == KEEP_FRAME_HELD && frame->holds->client->user == user)
            used_bytes += frame->spec.bytes;
    }

    for (const keep_object *o = m->objects; o != NULL; o = o->next) {
        for (const keep_growth *growth = o->growth; growth != NULL; growth = growth->next)
            taken[KEEP_GROWTHS] += growth->user == user;
        if (o->user == user) {
            taken[KEEP_OBJECTS]++;
            taken[KEEP_ADDRESSES] += o->proposed ? o->reserve_bytes : 0;
            taken[KEEP_LINKS] += o->links != NULL ? o->links->count : 0;
            used_bytes += o->chunk_count * o->chunk_bytes;
            if (o->growth != NULL && o->growth->started)
                used_bytes += (o->growth->new_count - o->growth->old_count) * o->chunk_bytes;
        }
    }
    for (uint32_t i = 0; i < m->client_capacity; i++)
        if (m->clients[i] != NULL && m->clients[i]->user == user) {
            taken[KEEP_CLIENTS]++;
            taken[KEEP_OPENINGS] += m->clients[i]->opening_count;
            taken[KEEP_WAITS] += m->clients[i]->wait_count;
            taken[KEEP_SNAPSHOTS] += m->clients[i]->snapshot_count + m->clients[i]->snapshot_sent;
            taken[KEEP_QUEUED_BYTES] += m->clients[i]->snapshot_bytes + m->clients[i]->outbox_bytes;
        }
    for (int i = 0; i < KEEP_ALLOWANCES; i++)
        counts = counts || taken[i] > 0;
    return counts && used_bytes == user->used_bytes && memcmp(taken, user->taken, sizeof taken) == 0;
}

/* I9 */
static bool check_users(const gvmi_machine *m)
{
    uint64_t taken[KEEP_ALLOWANCES] = {0};
    uint32_t quota_count = 0;

    for (const keep_user *user = m->users; user != NULL; user = user->next) {
        if (!check_user(m, user))
            return false;
        for (int i = 0; i < KEEP_ALLOWANCES; i++)
            taken[i] += user->taken[i];
        quota_count += user->limited;
    }
    return memcmp(taken, m->taken, sizeof taken) == 0 && quota_count == m->quota_count;
}

/* I15 */
static bool check_unserved(const gvmi_machine *m)
{
    uint32_t listed = 0, unserved = 0;

    for (const keep_object *o = m->first_unserved; o != NULL; o = o->next_unserved) {
        if (!o->unserved || (o->next_unserved == NULL && o != m->last_unserved))
            return false;
        listed++;
    }
    for (const keep_object *o = m->objects; o != NULL; o = o->next)
        unserved += o->unserved;
    return listed == unserved;
}

/* I18 */
static bool check_thaw_waits(const gvmi_machine *m)
{
    uint32_t listed = 0, waits = 0;
    bool frozen = m->thaw_waits == NULL;

    for (const keep_wait *wait = m->thaw_waits; wait != NULL; wait = wait->thaw_next)
        listed += wait->awaits_thaw;
    for (const keep_object *o = m->objects; o != NULL; o = o->next) {
        const keep_wait *first = NULL;

        frozen = frozen || o->lease_state == KEEP_FROZEN;
        for (const keep_wait *wait = o->first_wait; wait != NULL; wait = wait->next) {
            first = first == NULL && wait->awaits_thaw ? wait : first;
            if (first != NULL && !wait->awaits_thaw)
                return false;
            waits += wait->awaits_thaw;
        }
        if (first != o->first_thaw)
            return false;
    }
    return listed == waits && frozen;
}

/* I19 */
static bool check_pins(const gvmi_machine *m)
{
    uint32_t listed = 0, pinned = 0;

    for (uint32_t d = 0; d < m->config.device_count; d++)
        for (const keep_object *o = m->devices[d].pinned; o != NULL; o = o->pinned_next) {
            if (!o->item.pinned || o->device != d)
                return false;
            listed++;
        }
    for (const keep_object *o = m->objects; o != NULL; o = o->next)
        pinned += o->item.pinned;
    return listed == pinned;
}

bool gvmi_machine_check(const gvmi_machine *m)
{
    for (uint32_t d = 0; d < m->config.device_count; d++)
        if (!check_place(m, &m->devices[d].place) || !gvmi_policy_check(m->devices[d].policy))
            return false;
    if (!check_place(m, &m->host) || !check_holds(m) || !check_free_foreign(m) || !check_lending(m))
        return false;
    for (const keep_object *o = m->objects; o != NULL; o = o->next)
        if (o->marked || !check_object_chunks(m, o) || !check_permits(o) || !check_openers(o) ||
            !check_links(m, o) || !check_followed_chunks(m, o) ||
            o->item.moving != (o->lease_state == KEEP_FROZEN) ||
            (o->fenced && o->lease_state != KEEP_DRAINING && o->lease_state != KEEP_FROZEN))
            return false;
    for (uint32_t i = 0; i < m->client_capacity; i++)
        if (m->clients[i] != NULL && !check_client(m, m->clients[i]))
            return false;
    return check_users(m) && check_maps(m) && check_ended_links(m) && check_unserved(m) &&
           check_thaw_waits(m) && check_pins(m);
}
