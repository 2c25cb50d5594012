/* After an event: looking again at every object that it touched, until nothing is left to do.
 *
 * Looking at an object ends moves that are over, sends what is to be mapped, starts or ends growth,
 * grants leases, and frees it when nobody needs it any more. Any of that may mark other objects.
 * It ends because every round either uses up a waiting request, a free frame or an answer, or marks
 * nothing. */
#include "keeper/machine/state.h"

void gvmi_keep_mark(gvmi_machine *m, keep_object *object)
{
    if (object->marked)
        return;
    object->marked = true;
    object->next_marked = m->marked;
    m->marked = object;
}

static void look_at(gvmi_machine *m, keep_object *object)
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

void gvmi_keep_settle(gvmi_machine *m)
{
    do {
        while (m->marked != NULL) {
            keep_object *object = m->marked;

            m->marked = object->next_marked;
            object->marked = false;
            look_at(m, object);
        }
        for (uint32_t d = 0; d < m->config.device_count; d++)
            gvmi_keep_serve_room(m, &m->devices[d]);
        gvmi_keep_make_due_cuts(m);
    } while (m->marked != NULL || m->cut_due);
    for (uint32_t d = 0; d < m->config.device_count; d++)
        if (m->devices[d].first_room == NULL)
            (void)gvmi_keep_trim(m, &m->devices[d].place, m->config.device_keep_bytes);
}
