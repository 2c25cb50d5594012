/* After an event: looking again at every object that it touched, until nothing is left to do.
 *
 * Looking at an object ends moves that are over, sends what is to be mapped, starts or ends growth,
 * grants leases, and frees it when nobody needs it any more. Any of that may mark other objects.
 * It ends because every round either uses up a waiting request, a free frame or an answer, or marks
 * nothing.
 *
 * Of requests that wait for leases, or to grow, an event serves at most KEEP_SERVED_MAX. Objects at which some are
 * left are listed, and served between the turns of clients, each for a part, in rotation. */
#include "keeper/machine/state.h"

#define SERVED_EACH_MAX 32u /* of an object, before the next */

void gvmi_keep_mark(gvmi_machine *m, keep_object *object)
{
    if (object->marked)
        return;
    object->marked = true;
    object->next_marked = m->marked;
    m->marked = object;
}

static void settle_object(gvmi_machine *m, keep_object *object)
{
    gvmi_keep_grow_settle(m, object);
    gvmi_keep_send_maps(m, object);
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
            gvmi_keep_serve_room(m, &m->devices[d]);
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

void gvmi_keep_count_served(gvmi_machine *m, uint32_t count)
{
    m->serves_left -= count < m->serves_left ? count : m->serves_left;
}

void gvmi_keep_serve_later(gvmi_machine *m, keep_object *object)
{
    if (object->unserved)
        return;
    object->unserved = true;
    object->next_unserved = NULL;
    *(m->last_unserved != NULL ? &m->last_unserved->next_unserved : &m->first_unserved) = object;
    m->last_unserved = object;
}

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
        const uint32_t share = left < SERVED_EACH_MAX ? left : SERVED_EACH_MAX;

        gvmi_keep_mark(m, take_unserved(m));
        m->serves_left = share;
        settle_machine(m);
        left -= share > m->serves_left ? share - m->serves_left : 1;
    }
}
