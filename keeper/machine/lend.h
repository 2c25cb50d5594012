/* keeper/machine/lend.h - memory that devices lend each other: which of them has some to spare, and what it can have back. For the
 * files of the machine (keeper/machine/state.h). */
#ifndef GVMI_KEEPER_MACHINE_LEND_H
#define GVMI_KEEPER_MACHINE_LEND_H

#include "keeper/machine/room.h"

/* Does the device lend a frame for a chunk of the object? One, of that which has most to spare; 0: none does. */
bool gvmi_keep_may_lend(const gvmi_machine *m, uint32_t lender, const keep_object *object);
uint32_t gvmi_keep_borrow_frame(gvmi_machine *m, const keep_object *object, bool *make);
/* Likewise, of those that have had more to spare for a while. */
uint32_t gvmi_keep_borrow_settled(gvmi_machine *m, const keep_object *object, bool *make);
/* Likewise as the first, or a host frame. */
uint32_t gvmi_keep_take_away_frame(gvmi_machine *m, const keep_object *object, bool *make);
/* What lenders of the device's objects have had to spare for a while, and would lend for chunks on the host. */
uint64_t gvmi_keep_settled_bytes(const gvmi_machine *m, const keep_device *device);
/* Each look: does the device have that? */
void gvmi_keep_look_at_lender(gvmi_machine *m, keep_device *lender);
/* It wants memory back, or has none after all: it has nothing to spare for a while. */
void gvmi_keep_unsettle_lender(gvmi_machine *m, keep_device *lender);
/* What the object's device and its lenders have together. */
uint64_t gvmi_keep_reach_bytes(const gvmi_machine *m, const keep_object *object);
/* Behind this one in the ring of those that have some; NULL: it was the last. A walk that ends after many looks, and has found nothing, has the
 * next one begin where it ended, so that the objects before it hide no others. */
keep_object *gvmi_keep_next_borrower(const gvmi_machine *m, const keep_object *object);
/* What the device lends to the object, if nobody has a lease there; its room, with what can be recalled until
 * there is as much as wanted. */
uint64_t gvmi_keep_recallable_bytes(const keep_object *object, const keep_device *lender);
uint64_t gvmi_keep_own_room_bytes(gvmi_machine *m, const keep_device *device, uint64_t wanted_bytes);
/* Do chunks of an object move that has some of what it lends? When they have ended to, that can be recalled. */
bool gvmi_keep_lends_to_moving(const gvmi_machine *m, const keep_device *device);

#endif
