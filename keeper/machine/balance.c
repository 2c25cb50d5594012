/* What moves though no client asks for it: chunks in memory that a device lends and wants back, what is beyond a
 * budget, and what gains by being on its device, or by being in memory that another one lends. */
#include "keeper/machine/lend.h"
#include "keeper/machine/plans.h"

#define LEND_BYTES (256ull << 20) /* of an object, in a look: it gets no lease meanwhile */
/* Chunks of the objects that a recall moves: as many as four of the largest have. An object with more than are left is passed over, and the next
 * recall begins with it. */
#define RECALL_CHUNKS_MAX (4u * KEEP_CHUNKS_MAX)

/* ---- lent memory */

/* Is there room for a chunk of the object that is recalled? The host has none for chunks of so many bytes and more. */
static bool has_place(const gvmi_machine *m, const keep_object *object, uint64_t host_full_bytes)
{
    const keep_device *own = &m->devices[object->device];

    if (object->chunk_bytes < host_full_bytes &&
        (m->duplicated != NULL || gvmi_keep_room_bytes(&m->host) >= object->chunk_bytes))
        return true;
    return own->first_room == NULL && !object->in_failed &&
           gvmi_keep_room_bytes(&own->place) >= object->chunk_bytes;
}

/* Begins to move so many bytes of chunks, or as many as can be, out of what the device lends. Returns how many. */
static uint64_t recall(gvmi_machine *m, keep_device *lender, uint64_t bytes)
{
    keep_object *object = m->borrowers, *passed_over = NULL;
    uint64_t begun_bytes = 0, looks = 0, chunks = 0, host_full_bytes = UINT64_MAX;

    gvmi_keep_unsettle_lender(m, lender);
    for (; object != NULL && begun_bytes < bytes && looks < KEEP_LOOKS_MAX;
         object = gvmi_keep_next_borrower(m, object)) {
        bool host_full = false; /* another object's device may have room */

        looks += 1 + object->opening_count;
        if (!has_place(m, object, host_full_bytes) || gvmi_keep_recallable_bytes(object, lender) == 0)
            continue;
        if (chunks + object->chunk_count > RECALL_CHUNKS_MAX)
            passed_over = passed_over != NULL ? passed_over : object;
        else if (gvmi_keep_freeze(m, object)) {
            chunks += object->chunk_count;
            begun_bytes += gvmi_keep_recall_chunks(m, object, lender, bytes - begun_bytes, &host_full);
            if (host_full && object->chunk_bytes < host_full_bytes)
                host_full_bytes = object->chunk_bytes;
            gvmi_keep_mark(m, object); /* ends the freeze at once if nothing could be begun */
        }
    }
    object = object != NULL ? object : passed_over;
    if (object != NULL && begun_bytes < bytes)
        m->borrowers = object;
    lender->recall_short = lender->recall_short || begun_bytes < bytes;
    return begun_bytes;
}

void gvmi_keep_recall_wanted(gvmi_machine *m, keep_device *lender)
{
    const uint64_t budget_bytes = lender->place.budget_bytes;
    const uint64_t taken_bytes = gvmi_keep_staying_bytes(lender) + lender->wanted_bytes;

    if (lender->place.lent_bytes > 0 && !lender->recall_short && taken_bytes > budget_bytes)
        (void)recall(m, lender, taken_bytes - budget_bytes);
}

/* ---- budgets, and what gains */

/* What leaves the device need not be demoted, too; the rest does not wait for the answers of its clients. */
static void demote_over_budget(gvmi_machine *m, keep_device *device)
{
    keep_place *place = &device->place;
    gvmi_policy_plan plan;
    uint64_t over_bytes = place->used_bytes - place->budget_bytes;

    (void)gvmi_keep_trim(m, place, place->free_bytes > over_bytes ? place->free_bytes - over_bytes : 0);
    if (place->used_bytes <= place->budget_bytes + device->leaving_bytes)
        return;
    over_bytes = place->used_bytes - place->budget_bytes - device->leaving_bytes;
    if (place->lent_bytes > 0) {
        const uint64_t recalled_bytes = recall(m, device, over_bytes);

        if (recalled_bytes >= over_bytes)
            return;
        over_bytes -= recalled_bytes;
    }
    gvmi_keep_plan_shrink(m, device, over_bytes, &plan);
    gvmi_keep_take_victims(m, NULL, &plan);
}

static bool may_promote(const keep_object *object)
{
    return object->first_wait == NULL && !object->has_regions && !object->in_failed;
}

/* False: nothing gains that can be moved now. */
static bool promote_planned(gvmi_machine *m, keep_device *device)
{
    gvmi_policy_plan plan;
    keep_object *object = gvmi_keep_freeze_planned(
        m, device, gvmi_keep_own_room_bytes(m, device, UINT64_MAX), may_promote, &plan);

    if (object == NULL)
        return false;
    (void)gvmi_keep_bring(m, object, &plan);
    gvmi_keep_mark(m, object);
    return true;
}

/* Has the object chunks on the host alone that another device may lend memory for? */
static bool may_borrow(const keep_object *object)
{
    return object->device_chunks + object->lent_chunks < object->chunk_count && !object->on_host &&
           !object->has_regions && !object->fenced && object->first_wait == NULL;
}

/* Moves chunks from the host to memory that others lend: of the object that would be brought to the device if that were
 * larger by as much. */
static void lend_planned(gvmi_machine *m, keep_device *device)
{
    const uint64_t bytes = gvmi_keep_settled_bytes(m, device);
    gvmi_policy_plan plan;
    keep_object *object = bytes > 0 ? gvmi_keep_freeze_planned(m, device, bytes, may_borrow, &plan)
                                    : NULL;

    if (object == NULL)
        return;
    gvmi_keep_lend_chunks(m, object, LEND_BYTES);
    gvmi_keep_mark(m, object); /* ends the freeze at once if nothing could be begun */
}

void gvmi_keep_rebalance(gvmi_machine *m)
{
    for (uint32_t d = 0; d < m->config.device_count; d++) {
        keep_device *device = &m->devices[d];

        gvmi_keep_look_at_lender(m, device);
        if (device->place.used_bytes > device->place.budget_bytes)
            demote_over_budget(m, device);
        else if (device->first_room == NULL && device->leaving_bytes == 0 && !promote_planned(m, device))
            lend_planned(m, device);
    }
}
