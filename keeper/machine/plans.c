/* What the policy would move, without victims that are leased. */
#include "keeper/machine/lend.h"

#define PLAN_TRIES_MAX 8 /* further plans of an event, when victims turned out to be leased */
#define PLAN_OBJECTS 8u  /* that a look tries to move, of each device */

/* Items pinned while plans are made. */
typedef struct keep_pins {
    uint32_t tries;
    uint32_t looks; /* at openings */
    uint32_t count;
    gvmi_policy_item *items[(PLAN_TRIES_MAX + PLAN_OBJECTS) * (GVMI_POLICY_VICTIMS_MAX + 1)];
} keep_pins;

static void pin_item(keep_pins *pins, gvmi_policy_item *item)
{
    item->pinned = true;
    pins->items[pins->count++] = item;
}

/* Pins those victims of a plan that cannot be evicted, as they are leased, for a while. Also
 * records what the others were acquired for. True: the plan is to be made again. */
static bool pin_leased_victims(gvmi_machine *m, const gvmi_policy_plan *plan, keep_pins *pins)
{
    bool again = false;

    for (uint32_t i = 0; i < plan->victim_count; i++) {
        keep_object *victim = gvmi_keep_object_of(plan->victims[i].item);

        pins->looks += 2 * victim->opening_count;
        again |= gvmi_keep_sample(m, victim);
        if (gvmi_keep_leased(victim)) {
            pin_item(pins, &victim->item);
            again = true;
        }
    }
    return again && ++pins->tries < PLAN_TRIES_MAX && pins->looks < KEEP_LOOKS_MAX;
}

static void unpin_items(keep_pins *pins)
{
    while (pins->count > 0)
        pins->items[--pins->count]->pinned = false;
}

void gvmi_keep_plan_for(gvmi_machine *m, keep_object *object, bool forced, gvmi_policy_plan *plan)
{
    keep_device *device = &m->devices[object->device];
    const uint64_t room_bytes = gvmi_keep_own_room_bytes(
        m, device, object->item.bytes - object->item.resident_bytes);
    keep_pins pins = {.count = 0};

    do
        gvmi_policy_plan_for(device->policy, &object->item, room_bytes, forced, plan);
    while (pin_leased_victims(m, plan, &pins));
    unpin_items(&pins);
}

static keep_object *plan_next(gvmi_machine *m, keep_device *device, uint64_t room_bytes,
                              gvmi_policy_plan *plan, keep_pins *pins)
{
    gvmi_policy_item *item;

    do
        item = gvmi_policy_plan_next(device->policy, room_bytes, plan);
    while (item != NULL && pin_leased_victims(m, plan, pins));
    return item != NULL && plan->bring_bytes > 0 ? gvmi_keep_object_of(item) : NULL;
}

keep_object *gvmi_keep_freeze_planned(gvmi_machine *m, keep_device *device, uint64_t room_bytes,
                                      keep_may_move *may, gvmi_policy_plan *plan)
{
    keep_object *object = NULL;
    keep_pins pins = {.count = 0};

    for (uint32_t i = 0; i < PLAN_OBJECTS && object == NULL; i++) {
        object = plan_next(m, device, room_bytes, plan, &pins);
        if (object == NULL)
            break;
        if (!may(object) || gvmi_keep_leased(object) || !gvmi_keep_freeze(m, object)) {
            pin_item(&pins, &object->item); /* for the next plan */
            object = NULL;
        }
    }
    unpin_items(&pins);
    return object;
}

void gvmi_keep_plan_shrink(gvmi_machine *m, keep_device *device, uint64_t bytes, gvmi_policy_plan *plan)
{
    keep_pins pins = {.count = 0};

    do
        (void)gvmi_policy_plan_shrink(device->policy, bytes, plan);
    while (pin_leased_victims(m, plan, &pins));
    unpin_items(&pins);
}
