/* What the policy would move, without objects that are leased (plans.h). So each of those is found once, however many
 * plans are made while it is leased, and those of one user do not keep others from what lies behind them. */
#include "keeper/machine/plans.h"

#include "keeper/machine/lend.h"

#define PLAN_OBJECTS 8u /* that a look tries to move, of each device, and that may not be */
#define PLAN_LOOKS 32u  /* of each plan, besides its visits and looks at openings */

/* ---- pins */

static void pin_object(gvmi_machine *m, keep_object *object)
{
    keep_device *device = &m->devices[object->device];

    GVM_ASSERT(!object->item.pinned);
    gvmi_policy_pin(device->policy, &object->item, true);
    object->pinned_prev = NULL;
    object->pinned_next = device->pinned;
    if (device->pinned != NULL)
        device->pinned->pinned_prev = object;
    device->pinned = object;
}

void gvmi_keep_unpin(gvmi_machine *m, keep_object *object)
{
    keep_device *device = &m->devices[object->device];

    if (!object->item.pinned)
        return;
    gvmi_policy_pin(device->policy, &object->item, false);
    if (object->pinned_prev != NULL)
        object->pinned_prev->pinned_next = object->pinned_next;
    else
        device->pinned = object->pinned_next;
    if (object->pinned_next != NULL)
        object->pinned_next->pinned_prev = object->pinned_prev;
}

bool gvmi_keep_look_at_pin(gvmi_machine *m, keep_object *object)
{
    if (!object->item.pinned || gvmi_keep_leased(object))
        return false;
    gvmi_keep_unpin(m, object);
    return true;
}

/* Of the device's, those whose leases have ended, as far as the looks go. */
static bool unpin_unleased(gvmi_machine *m, const keep_device *device, uint32_t *looks)
{
    keep_object *object = device->pinned, *next;
    bool found = false;

    for (; object != NULL && *looks < KEEP_LOOKS_MAX; object = next) {
        next = object->pinned_next;
        *looks += 1 + object->opening_count;
        found |= gvmi_keep_look_at_pin(m, object);
    }
    return found;
}

/* Takes victims that are leased out of a plan, and pins them. Also records what the others were acquired for. True: the
 * plan is to be made again. */
static bool pin_leased_victims(gvmi_machine *m, gvmi_policy_plan *plan, uint32_t *looks)
{
    const uint32_t count = plan->victim_count;
    bool again = false;

    *looks += PLAN_LOOKS + plan->visits;
    plan->victim_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        keep_object *victim = gvmi_keep_object_of(plan->victims[i].item);

        *looks += 2 * victim->opening_count;
        again |= gvmi_keep_sample(m, victim);
        if (gvmi_keep_leased(victim)) {
            pin_object(m, victim);
            again = true;
        } else {
            plan->victims[plan->victim_count++] = plan->victims[i];
        }
    }
    return again && *looks < KEEP_LOOKS_MAX;
}

/* ---- plans */

void gvmi_keep_plan_for(gvmi_machine *m, keep_object *object, bool forced, gvmi_policy_plan *plan)
{
    const keep_device *device = &m->devices[object->device];
    const uint64_t wanted_bytes = object->item.bytes - object->item.resident_bytes;
    const uint64_t room_bytes = gvmi_keep_own_room_bytes(m, device, wanted_bytes);
    uint32_t looks = 0;

    do
        gvmi_policy_plan_for(device->policy, &object->item, room_bytes, forced, plan);
    while (pin_leased_victims(m, plan, &looks) ||
           (plan->bring_bytes < wanted_bytes && unpin_unleased(m, device, &looks)));
}

static keep_object *plan_next(gvmi_machine *m, const keep_device *device, uint64_t room_bytes,
                              gvmi_policy_plan *plan, uint32_t *looks)
{
    gvmi_policy_item *item;

    do
        item = gvmi_policy_plan_next(device->policy, room_bytes, plan);
    while (pin_leased_victims(m, plan, looks));
    return item != NULL ? gvmi_keep_object_of(item) : NULL;
}

keep_object *gvmi_keep_freeze_planned(gvmi_machine *m, keep_device *device, uint64_t room_bytes,
                                      keep_may_move *may, gvmi_policy_plan *plan)
{
    keep_object *passed[PLAN_OBJECTS], *object = NULL;
    uint32_t count = 0, looks = 0;

    while (count < PLAN_OBJECTS && looks < KEEP_LOOKS_MAX &&
           (object = plan_next(m, device, room_bytes, plan, &looks)) != NULL) {
        looks += object->opening_count;
        if (!may(object))
            passed[count++] = object; /* it may be a victim, and the next look may move it */
        else if (!gvmi_keep_leased(object) && gvmi_keep_freeze(m, object))
            break;
        pin_object(m, object);
        object = NULL;
    }
    while (count > 0)
        gvmi_keep_unpin(m, passed[--count]);
    return object;
}

void gvmi_keep_plan_shrink(gvmi_machine *m, keep_device *device, uint64_t bytes, gvmi_policy_plan *plan)
{
    uint32_t looks = 0;

    do
        (void)gvmi_policy_plan_shrink(device->policy, bytes, plan);
    while (pin_leased_victims(m, plan, &looks));
}
