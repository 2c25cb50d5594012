/* gvmem/device/detail/region_policy.h - which frame a region gets: a part of gvmem/device/detail/region.h, which includes it.
 *
 * The leader of threads that map first looks for a free frame among those that nobody has looked at since frames became free last; STATIC
 * does no more. Then it takes places of the collection's hand, an atomic counter of places, until it finds a frame that is
 * free or whose region the policy evicts. A place is a frame (CLOCK, FIFO, NFU), or a group of GVM_REGION_GROUP
 * frames (LRU, LIRS), of which it takes the best. A pass is one round of the hand over all places.
 *
 * gvm_region_frame.seen has, in bits 0 to 7, the uses in the region's word as of the last look. Above these NFU has its counter; LRU and
 * LIRS have TRIAL, and the pass in which the region was last seen to have been used.
 *
 * LRU evicts what was not used for the most passes. LIRS (S. Jiang, X. Zhang, SIGMETRICS 2002) compares how far apart two uses are:
 * a region comes on trial, and what is on trial is evicted first, unless it was used meanwhile. A region without a frame
 * has, in its word's slot, the pass in which it left. If it comes back within less than half of the passes for which another of the
 * group was not used, it is not on trial. So what is read once, or in rounds longer than the budget, passes
 * through an eighth of the frames.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_POLICY_H
#define GVMEM_DEVICE_DETAIL_REGION_POLICY_H

#include <gvmem/region_view.h>

#define GVM_REGION_LOOKS_MAX 4096u
#define GVM_REGION_FRESH_MAX \
    64u /* looks for a free frame in each search of the policies that evict */
#define GVM_REGION_GROUP 8u
#define GVM_REGION_LOOKED_AT_ONCE 2 /* loads under way */

#define GVM_REGION_TRIAL (1u << 8)
#define GVM_REGION_PASS_SHIFT 9
#define GVM_REGION_PASS_MASK ((1u << (32 - GVM_REGION_PASS_SHIFT)) - 1)

#ifdef GVM_KERNEL

/* The frames of a place, and the places of so many frames. */
GVM_DEVICE uint32_t gvm_region_step_of(uint32_t policy)
{
    return policy == GVM_REGION_LRU || policy == GVM_REGION_LIRS ? GVM_REGION_GROUP : 1;
}

GVM_DEVICE uint32_t gvm_region_places(uint32_t frames, uint32_t step)
{
    return (frames + step - 1) / step;
}

GVM_DEVICE int gvm_region_takes_free(const gvm_region_table *t, uint32_t at, gvm_region_search *s)
{
    s->frame = at;
    return gvm_atomic_cas_acquire_u32(&gvm_region_frame_of(t, at)->owner, 0, s->region + 1) == 0;
}

/* The victim has the frame that its word, taken, says. A clean one leaves it at once; one that is dirty, or has a checksum to be
 * compared, is claimed. */
GVM_DEVICE int gvm_region_takes_victim(gvm_region_table *t, gvm_region_search *s)
{
    const uint64_t word = s->taken;
    const uint32_t victim = s->victim;

    s->frame = gvm_region_slot_in(word);
    if ((word & GVM_REGION_DIRTY) != 0 || t->sums != 0)
        return gvm_region_claim(t, victim, word);
    s->victim = GVM_REGION_NONE;
    if (!gvm_region_swap(t, victim, word,
                         (word & ~GVM_REGION_PLACE) | (uint64_t)s->left << GVM_REGION_SLOT_SHIFT))
        return 0;
    gvm_region_note(&gvm_region_frame_of(t, s->frame)->owner, s->region + 1);
    gvm_region_count_up(&t->evicted);
    return 1;
}

/* Frames become free seldom, and all at first: then each is looked at once, by one search or another, so that none that is free is
 * missed, as by searches that follow the hand beside each other. In the order of the hand: one of each place, then the next ones. */
GVM_DEVICE int gvm_region_take_fresh(gvm_region_table *t, uint32_t places, gvm_region_search *s)
{
    const uint32_t looks = s->policy == GVM_REGION_STATIC ? GVM_REGION_LOOKS_MAX : GVM_REGION_FRESH_MAX;
    uint32_t i, k, at;

    for (i = 0; i < looks && gvm_load_consume_u64(&t->fresh) < (uint64_t)places * s->step; i++) {
        k = (uint32_t)gvm_region_count_up(&t->fresh);
        at = k % places * s->step + k / places;
        if (k / places < s->step && at < s->frames &&
            gvm_load_consume_u32(&gvm_region_frame_of(t, at)->owner) == 0 &&
            gvm_region_takes_free(t, at, s))
            return 1;
    }
    return 0;
}

/* ---- a frame at a time */

/* May what is in the frame be evicted? */
GVM_DEVICE int gvm_region_is_victim(gvm_region_frame *frame, uint32_t seen, uint64_t word,
                                    uint32_t policy)
{
    const uint32_t uses = gvm_region_uses_in(word), since = (uses - seen) & 0xff;
    uint32_t counter;

    if (policy == GVM_REGION_FIFO)
        return 1;
    counter = policy == GVM_REGION_NFU ? ((seen >> 8) + since) / 2 : since;
    gvm_region_note(&frame->seen, policy == GVM_REGION_NFU ? uses | counter << 8 : uses);
    return counter == 0;
}

/* Takes the frame if it is free or its region may be evicted; 1: it is the caller's. */
GVM_DEVICE_RARE int gvm_region_take_frame(gvm_region_table *t, uint32_t at, gvm_region_search *s)
{
    gvm_region_frame *frame = gvm_region_frame_of(t, at);
    const uint32_t owner = gvm_load_consume_u32(&frame->owner),
                   seen = gvm_load_consume_u32(&frame->seen);
    uint64_t word;

    if (owner == 0)
        return gvm_region_takes_free(t, at, s);
    if (owner > t->count)
        return 0;
    word = gvm_load_consume_u64(gvm_region_word(t, owner - 1));
    s->victim = owner - 1;
    s->taken = word;
    return gvm_region_is_idle_in(word, at) && gvm_region_is_victim(frame, seen, word, s->policy) &&
           gvm_region_takes_victim(t, s);
}

/* ---- a group of frames */

/* Looks at one frame, whose owner has that word: if it was used since the last look it is not on trial any more. It is the victim if it is better
 * than the last one. */
GVM_DEVICE void gvm_region_consider(const gvm_region_table *t, gvm_region_frame frame,
                                    uint64_t word, gvm_region_search *s)
{
    const uint32_t uses = gvm_region_uses_in(word), at = gvm_region_slot_in(word), pass = s->pass;
    uint32_t age;

    if (uses != (frame.seen & 0xff)) {
        frame.seen = uses | pass << GVM_REGION_PASS_SHIFT;
        gvm_region_note(&gvm_region_frame_of(t, at)->seen, frame.seen);
    }
    if (!gvm_region_is_idle_in(word, at))
        return;
    age = (pass - (frame.seen >> GVM_REGION_PASS_SHIFT)) & GVM_REGION_PASS_MASK;
    if ((frame.seen & GVM_REGION_TRIAL) != 0)
        age |= GVM_REGION_PASS_MASK + 1;
    else if (age > s->kept)
        s->kept = age;
    if (age < s->rank)
        return;
    s->rank = age + 1;
    s->victim = frame.owner - 1;
    s->taken = word;
}

/* Looks at frames from first on, at most so many: those that have regions; or takes one that is free. */
GVM_DEVICE int gvm_region_look_at(const gvm_region_table *t, uint32_t first, uint32_t count,
                                  gvm_region_search *s)
{
    gvm_region_frame frames[GVM_REGION_LOOKED_AT_ONCE];
    uint64_t words[GVM_REGION_LOOKED_AT_ONCE];
    uint32_t k;

    GVM_UNROLL
    for (k = 0; k < GVM_REGION_LOOKED_AT_ONCE; k++) {
        const gvm_region_frame *frame = gvm_region_frame_of(t, first + (k < count ? k : 0));

        frames[k].owner = gvm_load_consume_u32(&frame->owner);
        frames[k].seen = gvm_load_consume_u32(&frame->seen);
    }
    GVM_UNROLL
    for (k = 0; k < GVM_REGION_LOOKED_AT_ONCE; k++)
        words[k] = frames[k].owner - 1 < t->count
                       ? gvm_load_consume_u64(gvm_region_word(t, frames[k].owner - 1))
                       : 0;
    GVM_UNROLL
    for (k = 0; k < GVM_REGION_LOOKED_AT_ONCE; k++) {
        if (k < count && frames[k].owner == 0 && gvm_region_takes_free(t, first + k, s))
            return 1;
        if ((words[k] & GVM_REGION_RESIDENT) != 0 && gvm_region_slot_in(words[k]) == first + k)
            gvm_region_consider(t, frames[k], words[k], s);
    }
    return 0;
}

/* Has the region come back in less than half of the passes for which a region of the group was not used? */
GVM_DEVICE int gvm_region_came_back(const gvm_region_search *s)
{
    const uint32_t left = (s->own & GVM_REGION_RESIDENT) == 0 ? gvm_region_slot_in(s->own) : 0;

    return left != 0 && 2 * ((s->left - left) & GVM_REGION_PASS_MASK) < s->kept;
}

/* Takes one of so many frames from first on, if one is free or has a region that may be evicted; 1: it is the caller's. */
GVM_DEVICE_RARE int gvm_region_take_of_group(gvm_region_table *t, uint32_t first, uint32_t count,
                                             gvm_region_search *s)
{
    s->rank = s->kept = 0;
    s->left = (s->pass & GVM_REGION_PASS_MASK) + 1;
    s->note = s->pass << GVM_REGION_PASS_SHIFT;
    GVM_NO_UNROLL
    for (; (int32_t)count > 0; first += GVM_REGION_LOOKED_AT_ONCE, count -= GVM_REGION_LOOKED_AT_ONCE)
        if (gvm_region_look_at(t, first, count, s)) {
            s->victim = GVM_REGION_NONE;
            return 1;
        }
    if (s->policy == GVM_REGION_LIRS && !gvm_region_came_back(s))
        s->note |= GVM_REGION_TRIAL;
    return s->rank != 0 && gvm_region_takes_victim(t, s);
}

/* ---- all */

/* A place of the hand. */
GVM_DEVICE int gvm_region_take_place(gvm_region_table *t, uint32_t at, uint32_t places,
                                     gvm_region_search *s)
{
    const uint32_t first = at % places * s->step, left = s->frames - first;

    s->victim = GVM_REGION_NONE;
    s->pass = at / places;
    return s->step == 1 ? gvm_region_take_frame(t, first, s)
                        : gvm_region_take_of_group(t, first, s->step < left ? s->step : left, s);
}

/* Takes places of the hand until a frame is taken. */
GVM_DEVICE int gvm_region_find_frame(gvm_region_table *t, gvm_region_search *s)
{
    uint32_t places, looks_max;

    s->frames = gvm_load_consume_u32(&t->frame_count);
    s->policy = gvm_load_consume_u32(&t->policy);
    s->step = gvm_region_step_of(s->policy);
    s->left = s->note = 0;
    s->victim = GVM_REGION_NONE;
    places = gvm_region_places(s->frames, s->step);
    if (places > 0 && s->step > 1)
        s->note = (uint32_t)(s->drawn != GVM_REGION_UNDRAWN ? s->drawn : gvm_load_consume_u64(&t->hand)) / places
                  << GVM_REGION_PASS_SHIFT;
    if (gvm_region_take_fresh(t, places, s))
        return 1;
    if (s->policy == GVM_REGION_STATIC)
        return 0;
    looks_max = 2 * (places + s->step - 1); /* more than two passes where others look at the same few */
    if (looks_max > GVM_REGION_LOOKS_MAX / s->step)
        looks_max = GVM_REGION_LOOKS_MAX / s->step;
    while (places > 0 && s->looks++ < looks_max) {
        const uint64_t at = s->drawn != GVM_REGION_UNDRAWN ? s->drawn : gvm_region_count_up(&t->hand);

        s->drawn = GVM_REGION_UNDRAWN;
        if (gvm_region_take_place(t, (uint32_t)at, places, s))
            return 1;
    }
    return 0;
}

#endif /* GVM_KERNEL */
#endif
