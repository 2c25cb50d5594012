/* keeper/machine/policy.h - which objects get device memory.
 *
 * The keeper informs the policy of every object (an item) and of every acquire, and asks it, when
 * an item is wanted that is not wholly on the device, how many bytes of it to bring in and from
 * which other items to take them. The policy moves nothing: it sees what moved through
 * gvmi_policy_resident(). One policy a device.
 *
 * An acquire touches every byte of its item alike, so the value of a resident byte is how often its
 * item will be acquired; the best an oracle can do is to fill the device in that order, with one
 * item partly in. That is why a cyclic scan over more than the budget keeps a fixed part, from its
 * second round on.
 *
 * Pure: no clock (time is counted in acquires and bytes), no I/O, deterministic.
 * Threads: one at a time.
 */
#ifndef GVMI_KEEPER_MACHINE_POLICY_H
#define GVMI_KEEPER_MACHINE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/client.h>

typedef struct gvmi_policy gvmi_policy;

/* What the policy keeps of an object, besides its own tables; the object embeds it. It may read all
 * of it, and writes unit_bytes before gvmi_policy_add(), and moving. */
typedef struct gvmi_policy_item {
    uint64_t bytes;          /* committed */
    uint64_t resident_bytes; /* on the device, or on their way there */
    uint64_t unit_bytes;     /* plans take and bring multiples of it (the chunk); 0: any bytes */
    bool pinned;             /* nothing can be taken or brought now: gvmi_policy_pin() */
    bool moving;             /* likewise: its bytes move, for a while; the keeper sets it */
    uint8_t last_hint;       /* gvm_hint */
    bool fresh;              /* grew since it was last acquired */
    uint32_t index;          /* in the policy's own tables */
    uint64_t acquires;       /* seen so far */
} gvmi_policy_item;

/* From which item how many bytes are to go. */
typedef struct gvmi_policy_victim {
    gvmi_policy_item *item;
    uint64_t bytes;
} gvmi_policy_victim;

#define GVMI_POLICY_VICTIMS_MAX 64

typedef struct gvmi_policy_plan {
    uint64_t bring_bytes; /* of the item wanted; 0: leave it as it is */
    bool passed_moving; /* there were victims that move: when they have ended to, there may be more to take */
    uint32_t visits; /* of items, which it took to make it */
    uint32_t victim_count;
    gvmi_policy_victim victims[GVMI_POLICY_VICTIMS_MAX];
} gvmi_policy_plan;

/* budget_bytes: of the device; 0 counts as 1. GVM_E_NOMEM */
gvm_status gvmi_policy_create(uint64_t budget_bytes, gvmi_policy **out);
void gvmi_policy_destroy(gvmi_policy *policy);
void gvmi_policy_set_budget(gvmi_policy *policy, uint64_t budget_bytes);

/* An item comes (zeros before, but for unit_bytes, and bytes if it has memory already), changes its
 * size, goes. GVM_E_NOMEM */
gvm_status gvmi_policy_add(gvmi_policy *policy, gvmi_policy_item *item);
void gvmi_policy_resize(gvmi_policy *policy, gvmi_policy_item *item, uint64_t bytes);
void gvmi_policy_remove(gvmi_policy *policy, gvmi_policy_item *item);

/* So many bytes of it are on the device from now on. */
void gvmi_policy_resident(gvmi_policy *policy, gvmi_policy_item *item, uint64_t resident_bytes);

/* It is leased, or is so no more. While it is pinned no plan visits it, however many there are. */
void gvmi_policy_pin(gvmi_policy *policy, gvmi_policy_item *item, bool pinned);

/* count acquires of the item with a hint, since the last call. */
void gvmi_policy_acquired(gvmi_policy *policy, gvmi_policy_item *item, uint32_t count, gvm_hint hint);

/* The item is wanted now, and free_bytes of the budget are free. forced: bring in what fits,
 * for GVM_HINT_HOT, displacing whatever is not pinned, the least valuable first. Pinned and moving items are
 * no victims.
 *
 * A resident item's acquires cost no message, so its score may be old: before following a plan,
 * report acquires of the victims that the policy does not know yet, and if there were any, ask
 * again (a few times at most). If the list of victims was full, asking again may bring more.
 * Looks at a bounded number of items. */
void gvmi_policy_plan_for(gvmi_policy *policy, gvmi_policy_item *item, uint64_t free_bytes,
                          bool forced, gvmi_policy_plan *plan);

/* Without anybody asking (the periodic look): the item, neither pinned nor moving, that gains most from being brought
 * in, or NULL; its plan as above. What lost bytes and was not acquired since, GVM_HINT_ONCE aside, stays out. */
gvmi_policy_item *gvmi_policy_plan_next(gvmi_policy *policy, uint64_t free_bytes,
                                        gvmi_policy_plan *plan);

/* bytes must go whatever they are worth (the budget shrank, an administrator asks): the least
 * valuable victims. Returns the sum of what the plan takes. */
uint64_t gvmi_policy_plan_shrink(gvmi_policy *policy, uint64_t bytes, gvmi_policy_plan *plan);

/* Walks everything. */
bool gvmi_policy_check(const gvmi_policy *policy);

#endif
