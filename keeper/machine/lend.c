/* Memory that devices lend each other: which of them has some to spare, and what it can have back.
 *
 * A device lends what its own objects leave of its budget, but for a part (SPARE_PART) that is left for their
 * growth, and nothing while one of their chunks waits for a frame. To its own policy lent memory counts as room:
 * what is wanted of it is recalled (balance.c), as far as nobody has a lease on the objects that have chunks there, and
 * these have another place to go.
 *
 * What is on the host comes to a lender that has had twice as much to spare as it keeps, and wanted nothing back, for
 * lend_after_ms: so a recall and this do not follow each other more often than that. */
#include "keeper/machine/lend.h"

#define SPARE_PART 8    /* of its budget a device lends all but one such part */
#define SETTLED_PARTS 2 /* what is on the host comes to it while it has more than so many */

static bool lends_to(const gvmi_machine *m, uint32_t lender, uint32_t device)
{
    return (m->config.devices[device].lenders >> lender & 1) != 0;
}

/* What a device has beyond so many parts of its budget. */
static uint64_t spare_bytes(const keep_device *device, uint64_t parts)
{
    const uint64_t room_bytes = gvmi_keep_room_bytes(&device->place);
    const uint64_t kept_bytes = device->place.budget_bytes / SPARE_PART * parts;

    return device->first_room == NULL && room_bytes > kept_bytes ? room_bytes - kept_bytes : 0;
}

static uint64_t settled_bytes(const gvmi_machine *m, const keep_device *lender)
{
    return m->now_ns - lender->settled_ns >= m->config.lend_after_ms * 1000000ll
               ? spare_bytes(lender, SETTLED_PARTS)
               : 0;
}

bool gvmi_keep_may_lend(const gvmi_machine *m, uint32_t lender, const keep_object *object)
{
    return lends_to(m, lender, object->device) &&
           spare_bytes(&m->devices[lender], 1) >= object->chunk_bytes;
}

static uint32_t borrow(gvmi_machine *m, const keep_object *object, bool settled, bool *make)
{
    const keep_place *best = NULL;

    if (object->on_host || object->has_regions) /* the CPU is to have it */
        return 0;
    for (uint32_t d = 0; d < m->config.device_count; d++) {
        const keep_device *device = &m->devices[d];
        const uint64_t bytes = settled ? settled_bytes(m, device) : spare_bytes(device, 1);

        if (lends_to(m, d, object->device) && bytes >= object->chunk_bytes &&
            (best == NULL || gvmi_keep_room_bytes(&device->place) > gvmi_keep_room_bytes(best)))
            best = &device->place;
    }
    return best != NULL ? gvmi_keep_take_lent_frame(m, object, best->device, make) : 0;
}

uint32_t gvmi_keep_borrow_frame(gvmi_machine *m, const keep_object *object, bool *make)
{
    return borrow(m, object, false, make);
}

uint32_t gvmi_keep_borrow_settled(gvmi_machine *m, const keep_object *object, bool *make)
{
    return borrow(m, object, true, make);
}

uint64_t gvmi_keep_settled_bytes(const gvmi_machine *m, const keep_device *device)
{
    uint64_t bytes = 0;

    for (uint32_t d = 0; d < m->config.device_count; d++)
        if (lends_to(m, d, device->place.device))
            bytes += settled_bytes(m, &m->devices[d]);
    return bytes;
}

void gvmi_keep_unsettle_lender(gvmi_machine *m, keep_device *lender)
{
    lender->settled_ns = m->now_ns;
}

void gvmi_keep_look_at_lender(gvmi_machine *m, keep_device *lender)
{
    if (lender->leaving_bytes > 0 || spare_bytes(lender, SETTLED_PARTS) == 0)
        gvmi_keep_unsettle_lender(m, lender);
}

uint32_t gvmi_keep_take_away_frame(gvmi_machine *m, const keep_object *object, bool *make)
{
    const uint32_t frame = gvmi_keep_borrow_frame(m, object, make);

    return frame != 0 ? frame : gvmi_keep_take_frame(m, object, GVM_TIER_HOST, make);
}

uint64_t gvmi_keep_reach_bytes(const gvmi_machine *m, const keep_object *object)
{
    uint64_t bytes = m->devices[object->device].place.limit_bytes;

    for (uint32_t d = 0; d < m->config.device_count && !object->on_host; d++)
        if (lends_to(m, d, object->device))
            bytes += m->devices[d].place.limit_bytes;
    return bytes;
}

uint64_t gvmi_keep_recallable_bytes(const keep_object *object, const keep_device *lender)
{
    const uint32_t chunks = object->lent_by[lender->place.device];

    if (chunks == 0 || object->lease_state == KEEP_FROZEN || gvmi_keep_leased(object))
        return 0;
    return chunks * object->chunk_bytes;
}

/* What of so many bytes of the object's chunks has room, which it takes. */
static uint64_t take_room(const keep_object *object, uint64_t bytes, uint64_t *room_bytes)
{
    const uint64_t most_bytes = *room_bytes / object->chunk_bytes * object->chunk_bytes;

    bytes = bytes < most_bytes ? bytes : most_bytes;
    *room_bytes -= bytes;
    return bytes;
}

/* Where chunks that are recalled go. Clean copies on the host, which are dropped for them, are not counted: where
 * there is one, there is room. */
typedef struct recall_room {
    uint64_t host_bytes, devices_bytes[GVMI_DEVICES_MAX];
} recall_room;

static recall_room find_recall_room(const gvmi_machine *m)
{
    recall_room room = {.host_bytes = m->duplicated != NULL ? UINT64_MAX
                                                            : gvmi_keep_room_bytes(&m->host)};

    for (uint32_t d = 0; d < m->config.device_count; d++)
        room.devices_bytes[d] = m->devices[d].first_room == NULL
                                    ? gvmi_keep_room_bytes(&m->devices[d].place)
                                    : 0;
    return room;
}

keep_object *gvmi_keep_next_borrower(const gvmi_machine *m, const keep_object *object)
{
    return object->borrowers_next != m->borrowers ? object->borrowers_next : NULL;
}

uint64_t gvmi_keep_own_room_bytes(gvmi_machine *m, const keep_device *device, uint64_t wanted_bytes)
{
    const keep_place *place = &device->place;
    const uint64_t most_bytes = place->budget_bytes > wanted_bytes ? place->budget_bytes - wanted_bytes
                                                                   : 0;
    const uint64_t before_bytes = place->used_bytes - place->free_bytes;
    keep_object *o = m->borrowers;
    uint64_t taken_bytes = before_bytes, looks = 0;
    recall_room room;

    if (place->lent_bytes == 0 || device->recall_short)
        return gvmi_keep_room_bytes(place);
    room = find_recall_room(m);
    for (; o != NULL && taken_bytes > most_bytes && looks < KEEP_LOOKS_MAX;
         o = gvmi_keep_next_borrower(m, o)) {
        const uint64_t bytes = gvmi_keep_recallable_bytes(o, device);
        uint64_t in_bytes = 0;

        looks += 1 + o->opening_count;
        if (!o->in_failed)
            in_bytes = take_room(o, bytes, &room.devices_bytes[o->device]);
        taken_bytes -= in_bytes + take_room(o, bytes - in_bytes, &room.host_bytes);
    }
    if (o != NULL && taken_bytes == before_bytes && taken_bytes > most_bytes)
        m->borrowers = o; /* else the recall is to come to what was found */
    return place->budget_bytes > taken_bytes ? place->budget_bytes - taken_bytes : 0;
}

bool gvmi_keep_lends_to_moving(const gvmi_machine *m, const keep_device *device)
{
    const keep_object *object = device->place.lent_bytes > 0 && !device->recall_short ? m->borrowers
                                                                                      : NULL;

    for (uint64_t looks = 0; object != NULL && looks < KEEP_LOOKS_MAX; looks++) {
        if (object->lease_state == KEEP_FROZEN && object->lent_by[device->place.device] > 0)
            return true;
        object = gvmi_keep_next_borrower(m, object);
    }
    return false;
}
