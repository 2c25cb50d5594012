/* keeper/machine/room.h - frames, and the budgets that they are counted in. For the files of the machine (keeper/machine/state.h). */
#ifndef GVMI_KEEPER_MACHINE_ROOM_H
#define GVMI_KEEPER_MACHINE_ROOM_H

#include "keeper/machine/state.h"

keep_place *gvmi_keep_place(gvmi_machine *m, gvm_tier tier, uint32_t device);
/* The frame that the chunk's `where` says, and the other one; 0: none. */
uint32_t gvmi_keep_frame_where(const keep_chunk *chunk);
uint32_t gvmi_keep_other_frame(const keep_chunk *chunk);
/* A client that was cut off may still write to the frame. */
bool gvmi_keep_has_writers(gvmi_machine *m, uint32_t number);
/* It is lent; 0: no. */
bool gvmi_keep_is_lent(const gvmi_machine *m, uint32_t number);
/* Changes where a chunk is, and whether its host copy is clean. Its frames are as they are to be then. */
void gvmi_keep_set_chunk(gvmi_machine *m, keep_object *object, keep_chunk *chunk, keep_where where,
                         bool clean);
/* Of the budget, what no chunk uses and nobody holds. */
uint64_t gvmi_keep_room_bytes(const keep_place *place);
/* Of a device, what chunks use and are not about to leave, and what clients hold: more than the budget, if that was lowered. */
uint64_t gvmi_keep_staying_bytes(const keep_device *device);
/* A frame for a chunk of the object, USED; *make: it does not exist yet. 0: there is no room. The second: lent. */
uint32_t gvmi_keep_take_frame(gvmi_machine *m, const keep_object *object, gvm_tier tier, bool *make);
uint32_t gvmi_keep_take_lent_frame(gvmi_machine *m, const keep_object *object, uint32_t lender,
                                   bool *make);
/* The chunk needs it no more. made: it exists. */
void gvmi_keep_give_frame(gvmi_machine *m, uint32_t number, bool made);
/* The frame goes from a chunk to those who hold it: one of their users is charged. */
void gvmi_keep_charge_holder(const keep_frame *frame);
/* A frame of a device that a chunk is about to leave, or leaves no more. */
void gvmi_keep_count_leaving(gvmi_machine *m, uint32_t frame, bool more);
/* It is never to be used again; 0: nothing. */
void gvmi_keep_taint(gvmi_machine *m, uint32_t number);
/* The opening is being sent the frame. */
void gvmi_keep_frame_seen(gvmi_machine *m, uint32_t number, const keep_opening *opening);
/* Frees what is kept for the object alone, which ends. */
void gvmi_keep_drop_foreign(gvmi_machine *m, keep_object *object);
/* HELD: nobody holds it any more. */
void gvmi_keep_free_held(gvmi_machine *m, uint32_t number);
uint64_t gvmi_keep_trim(gvmi_machine *m, keep_place *place, uint64_t keep_bytes);
void gvmi_keep_make_ahead(gvmi_machine *m);
void gvmi_keep_ahead_done(gvmi_machine *m, uint32_t frame, gvm_status status);
bool gvmi_keep_next_drop(gvmi_machine *m, gvmi_action *out);

#endif
