/* After an event: looking again at every object that it touched, until nothing is left to do.
 *
 * Looking at an object ends moves that are over, sends what is to be mapped, starts or ends growth,
 * grants leases, and frees it when nobody needs it any more. Any of that may mark other objects.
 * It ends because every round either uses up a waiting request, a free frame or an answer, or marks
 * nothing.
 *
 * Of requests that wait for leases, or to grow, an event serves at most KEEP_SERVED_MAX. MAPs count as such; those of
 * chunks that move are sent as far as that lasts. Objects at which some are left are listed, and served after the visits of a turn, each for a part, in rotation. */
#include <stdlib.h>

#include "base/clock.h"
#include "keeper/machine/lend.h"

#define SERVED_EACH_MAX 32u /* of an object, before the next */

/* ---- chunks that wait for a frame of a device */

/* The chunk at the head of the queue has a frame, or (0) will not get one. */
static void end_room_wait(gvmi_machine *m, keep_device *device, uint32_t frame, bool make)
{
    keep_room *room = device->first_room;
    keep_object *object = room->object;
    keep_chunk *chunk = &object->chunks[room->chunk];

    device->first_room = room->next;
    if (device->first_room == NULL)
        device->last_room = NULL;
    device->wanted_bytes -= object->chunk_bytes;
    if (chunk->op == KEEP_OP_IN_ROOM && frame != 0)
        gvmi_keep_start_copy_in(m, object, room->chunk, frame, make);
    else if (chunk->op == KEEP_OP_IN_ROOM)
        gvmi_keep_stay(m, object, chunk);
    else if (frame != 0)
        gvmi_keep_make_chunk(m, object, room->chunk, frame, make);
    else
        gvmi_keep_refuse_chunk(m, object, room->chunk);
    free(room);
}

/* Moves the new chunks at the head of the queue to its end, so that a chunk that is to be moved to the device is at the
 * head. Without a frame that chunk stays on the host; if its object was closed meanwhile, the object is freed then, with
 * its frames. False: there is no such chunk. */
static bool put_moves_first(keep_device *device)
{
    keep_room *last = NULL, *room = device->first_room;

    while (room != NULL && room->object->chunks[room->chunk].op != KEEP_OP_IN_ROOM) {
        last = room;
        room = room->next;
    }
    if (room == NULL)
        return false;
    if (last != NULL) {
        device->last_room->next = device->first_room;
        device->last_room = last;
        last->next = NULL;
        device->first_room = room;
    }
    return true;
}

/* An arrival on any device may make room on the host. As more may always follow, a growth waits no longer than one may take. */
static bool waits_for_others(const gvmi_machine *m, const keep_object *object)
{
    keep_growth *growth = object->growth;

    if (!gvmi_keep_room_comes(m, object->chunk_bytes))
        return false;
    if (growth->room_since_ns == 0)
        growth->room_since_ns = m->now_ns;
    return m->now_ns - growth->room_since_ns <
           m->config.revoke_limit_ms * GVMI_NS_PER_MS * (1 + KEEP_MAP_TIMEOUTS_MAX);
}

static void serve_room(gvmi_machine *m, keep_device *device)
{
    while (device->first_room != NULL) {
        const keep_object *object = device->first_room->object;
        const bool grows = object->chunks[device->first_room->chunk].op == KEEP_OP_MAKE_ROOM &&
                           object->growth->failure == GVM_OK;
        bool make = false;
        uint32_t frame = 0;

        if (object->chunks[device->first_room->chunk].op == KEEP_OP_MAKE_ROOM && !grows) {
            end_room_wait(m, device, 0, false); /* it is given up */
            continue;
        }
        frame = gvmi_keep_take_frame(m, object, GVM_TIER_DEVICE, &make);
        if (frame == 0)
            gvmi_keep_recall_wanted(m, device);
        if (frame == 0 && gvmi_keep_device_room_comes(device, object->chunk_bytes))
            return; /* some will be free soon */
        if (frame == 0 && grows)
            frame = gvmi_keep_take_away_frame(m, object, &make);
        if (frame == 0 && grows && m->marked != NULL)
            return; /* it may be freed */
        if (frame == 0 && grows && put_moves_first(device))
            continue;
        if (frame == 0 && grows && waits_for_others(m, object))
            return;
        if (grows)
            object->growth->room_since_ns = 0;
        end_room_wait(m, device, frame, make);
    }
}

/* ---- the look */

static void settle_object(gvmi_machine *m, keep_object *object)
{
    gvmi_keep_send_maps(m, object); /* first: growths, which clients ask for, do not put off what moves */
    gvmi_keep_grow_settle(m, object);
    if (object->lease_state == KEEP_FROZEN && object->moving == 0)
        gvmi_keep_thaw(m, object);
    if (object->lease_state != KEEP_FROZEN)
        gvmi_keep_serve(m, object);
    gvmi_keep_send_maps(m, object);
    if (!object->marked && gvmi_keep_is_over(object))
        gvmi_keep_free_object(m, object);
}

static void settle_machine(gvmi_machine *m)
{
    do {
        while (m->marked != NULL) {
            keep_object *object = m->marked;

            m->marked = object->next_marked;
            object->marked = false;
            settle_object(m, object);
        }
        for (uint32_t d = 0; d < m->config.device_count; d++)
            serve_room(m, &m->devices[d]);
        gvmi_keep_make_due_cuts(m);
    } while (m->marked != NULL || m->cut_due);
    for (uint32_t d = 0; d < m->config.device_count; d++)
        if (m->devices[d].first_room == NULL)
            (void)gvmi_keep_trim(m, &m->devices[d].place, m->config.device_keep_bytes);
}

void gvmi_keep_settle(gvmi_machine *m)
{
    m->serves_left = KEEP_SERVED_MAX;
    settle_machine(m);
}

/* ---- objects with requests that an event did not come to */

static keep_object *take_unserved(gvmi_machine *m)
{
    keep_object *object = m->first_unserved;

    m->first_unserved = object->next_unserved;
    if (m->first_unserved == NULL)
        m->last_unserved = NULL;
    object->unserved = false;
    return object;
}

void gvmi_keep_serve_rest(gvmi_machine *m)
{
    uint32_t left = KEEP_SERVED_MAX;

    while (left > 0 && m->first_unserved != NULL) {
        const uint32_t part = left < SERVED_EACH_MAX ? left : SERVED_EACH_MAX;

        gvmi_keep_mark(m, take_unserved(m));
        m->serves_left = part;
        m->served = 0;
        settle_machine(m);
        left -= m->served == 0 ? 1 : m->served < left ? m->served : left;
    }
}
