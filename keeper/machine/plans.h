/* keeper/machine/plans.h - what the policy would move, without objects that are leased. For the files of the machine (keeper/machine/state.h).
 *
 * An object that a plan finds leased is pinned: plans pass over it without a look at it, until a look of the machine, or a plan that would have
 * too little without it, finds that its leases have ended. */
#ifndef GVMI_KEEPER_MACHINE_PLANS_H
#define GVMI_KEEPER_MACHINE_PLANS_H

#include "keeper/machine/state.h"

/* What it would bring in. */
void gvmi_keep_plan_for(gvmi_machine *m, keep_object *object, bool forced, gvmi_policy_plan *plan);
/* Freezes the object that gains most by so much room, of those that may and are not leased. NULL: none. */
typedef bool keep_may_move(const keep_object *object);
keep_object *gvmi_keep_freeze_planned(gvmi_machine *m, keep_device *device, uint64_t room_bytes,
                                      keep_may_move *may, gvmi_policy_plan *plan);
/* What is to go if so much must. */
void gvmi_keep_plan_shrink(gvmi_machine *m, keep_device *device, uint64_t bytes,
                           gvmi_policy_plan *plan);
/* Each look: plans count with it again if it is not leased. True: it was pinned until now. */
bool gvmi_keep_look_at_pin(gvmi_machine *m, keep_object *object);
/* The object goes. */
void gvmi_keep_unpin(gvmi_machine *m, keep_object *object);

#endif
