/* gvmem/device/detail/region_clean.h - dirty regions written home ahead of need; for gvmem/device/region.h alone.
 *
 * Frames are taken in the order of the hand. A warp or block that needs one keeps those in front of the hand clean:
 * where fewer than clean_low percent of the frames have been looked at, it makes a batch of the dirty ones among the next, up to
 * clean_high percent. Each region of the batch, which nobody has mapped, gets COPYING and loses DIRTY, with one compare-and-swap. The host has
 * the copy engine copy the batch, and then write the batch's number to cleaning.copied; who needs a frame next takes COPYING away. One batch
 * at a time.
 *
 * While a region is COPYING it stays in its frame. Maps to read it are hits. A map to write it is none, as it is not LISTED, and makes it DIRTY
 * again, as of any clean region; so it is DIRTY when COPYING ends, and will be written home once more.
 *
 * Nobody waits for a batch: a search for a frame passes those that are COPYING.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_CLEAN_H
#define GVMEM_DEVICE_DETAIL_REGION_CLEAN_H

#include <gvmem/device/detail/region_table.h>

#ifdef GVM_KERNEL

/* What all of them are to do: gvm_region_clean_some() with the first frame, and below it how many. */
#define GVM_REGION_CLEAN (1ull << 58)

/* Steps of threads that act. */
enum {
    GVM_REGION_CLEAN_NOTHING,
    GVM_REGION_CLEAN_ENDS,
    GVM_REGION_CLEAN_ENDED,
    GVM_REGION_CLEAN_MAKES
};

#define GVM_REGION_LOOKS_AT_ONCE 256u /* so many frames for a batch */

/* The frames in front of the hand that a batch is to be made of, as gvm_region_clean_some() is given them; 0: none. advances: they have
 * been looked at, then. */
GVM_DEVICE_RARE uint64_t gvm_region_clean_range(gvm_region_table *t, int advances)
{
    const uint64_t hand = gvm_load_acquire_u64(&t->hand);
    const uint32_t frames = gvm_load_acquire_u32(&t->frame_count);
    const uint32_t policy = gvm_load_consume_u32(&t->policy), step = gvm_region_step_of(policy);
    const uint32_t places = gvm_region_places(frames, step);
    uint64_t ahead = gvm_load_acquire_u64(&t->cleaning.at) - hand, high;

    if (ahead > places) /* the hand has passed it, or began anew, or counts others */
        ahead = 0;
    if (policy == GVM_REGION_STATIC || ahead * step * 100 >= (uint64_t)frames * t->clean_low)
        return 0;
    high = ((uint64_t)frames * t->clean_high + 99) / 100 - ahead * step;
    if (high > GVM_REGION_LOOKS_AT_ONCE)
        high = GVM_REGION_LOOKS_AT_ONCE;
    high = (high + step - 1) / step;
    if (advances)
        gvm_store_release_u64(&t->cleaning.at, hand + ahead + high);
    return (uint64_t)((uint32_t)(hand + ahead) % places * step) << GVM_REGION_SLOT_BITS | high * step;
}

/* The batch is the host's, or there is none. */
GVM_DEVICE_RARE void gvm_region_clean_publish(gvm_region_table *t)
{
    gvm_region_mail *mail = (gvm_region_mail *)(uintptr_t)t->cleaning.mail;
    const uint64_t count = gvm_load_acquire_u64(&t->cleaning.count);
    const uint64_t turn = gvm_load_acquire_u64(&t->cleaning.turn) >> GVM_REGION_TURN_SHIFT;

    if (count == 0) {
        gvm_store_release_u64(&t->cleaning.turn, turn << GVM_REGION_TURN_SHIFT | GVM_REGION_CLEAN_IDLE);
        return;
    }
    mail->count = count;
    gvm_fence_system();
    gvm_store_release_u64_system(&mail->turn, turn + 1);
    gvm_store_release_u64(
        &t->cleaning.turn, /* last: a stop waits for this thread until then, so that the next batch has the mail alone */
        (turn + 1) << GVM_REGION_TURN_SHIFT | GVM_REGION_CLEAN_BATCH);
}

/* The turn is the caller's, if there is something to do: to make a batch, or first to end one. */
GVM_DEVICE_RARE uint32_t gvm_region_clean_begin(gvm_region_table *t)
{
    const uint64_t turn = gvm_load_acquire_u64(&t->cleaning.turn);
    const uint32_t phase = (uint32_t)turn & GVM_REGION_TURN_PHASE;

    if (phase == GVM_REGION_CLEAN_IDLE
            ? gvm_region_clean_range(t, 0) == 0
            : phase != GVM_REGION_CLEAN_BATCH ||
                  gvm_load_acquire_u64(&t->cleaning.copied) != turn >> GVM_REGION_TURN_SHIFT)
        return GVM_REGION_CLEAN_NOTHING;
    if (gvm_atomic_cas_acquire_u64(&t->cleaning.turn, turn, turn - phase + GVM_REGION_CLEAN_ACTING) !=
        turn)
        return GVM_REGION_CLEAN_NOTHING;
    return phase == GVM_REGION_CLEAN_BATCH ? GVM_REGION_CLEAN_ENDS : GVM_REGION_CLEAN_ENDED;
}

GVM_DEVICE_RARE void gvm_region_clean_count(gvm_region_table *t)
{
    gvm_store_release_u64(&t->cleaning.written, gvm_load_acquire_u64(&t->cleaning.written) +
                                                    gvm_load_acquire_u64(&t->cleaning.count));
    gvm_store_release_u64(&t->cleaning.count, 0);
}

/* The leader of threads that need a frame: what all of them are to do first, GVM_REGION_CLEAN with a range; or 0. */
GVM_DEVICE_RARE uint64_t gvm_region_clean_next(gvm_region_table *t, uint32_t *step)
{
    uint64_t job = 0;

    if (*step == GVM_REGION_CLEAN_NOTHING) {
        *step = gvm_region_clean_begin(t);
        if (*step == GVM_REGION_CLEAN_NOTHING)
            return 0;
        if (*step == GVM_REGION_CLEAN_ENDS)
            return GVM_REGION_CLEAN;
    }
    if (*step == GVM_REGION_CLEAN_ENDS)
        gvm_region_clean_count(t);
    if (*step != GVM_REGION_CLEAN_MAKES)
        job = gvm_region_clean_range(t, 1);
    if (job != 0) {
        *step = GVM_REGION_CLEAN_MAKES;
        return GVM_REGION_CLEAN | job;
    }
    gvm_region_clean_publish(t);
    *step = GVM_REGION_CLEAN_NOTHING;
    return 0;
}

/* Would the hand take the frame from the region, or is it, where it looks at groups, one of those that it may take it from? */
GVM_DEVICE int gvm_region_is_cold(const gvm_region_table *t, const gvm_region_frame *frame, uint64_t word)
{
    const uint32_t seen = gvm_load_acquire_u32(&frame->seen);
    const uint32_t since = ((uint32_t)(word >> GVM_REGION_USE_SHIFT) - seen) & 0xff;
    const uint32_t policy = gvm_load_consume_u32(&t->policy);

    return policy == GVM_REGION_FIFO ||
           (policy == GVM_REGION_NFU ? ((seen >> 8) + since) / 2 == 0 : since == 0);
}

/* The region in that frame comes to the batch, if it is dirty and nobody uses it. */
GVM_DEVICE_RARE void gvm_region_clean_frame(gvm_region_table *t, uint32_t at)
{
    const gvm_region_frame *frame = (const gvm_region_frame *)(uintptr_t)t->frames + at;
    const uint32_t owner = gvm_load_acquire_u32(&frame->owner);
    const uint64_t all = GVM_REGION_RESIDENT | GVM_REGION_DIRTY | GVM_REGION_BUSY | GVM_REGION_REMOTE |
                         GVM_REGION_COPYING | GVM_REGION_REFERENCES | GVM_REGION_SLOT_MASK;
    uint64_t *at_word, word, entry, place;

    if (owner == 0 || owner > t->count)
        return;
    at_word = (uint64_t *)(uintptr_t)t->words + (owner - 1);
    word = gvm_load_acquire_u64(at_word);
    if ((word & all) !=
            (GVM_REGION_RESIDENT | GVM_REGION_DIRTY | (uint64_t)at << GVM_REGION_SLOT_SHIFT) ||
        !gvm_region_is_cold(t, frame, word) ||
        gvm_atomic_cas_acquire_u64(
            at_word, word, (word & ~(GVM_REGION_DIRTY | GVM_REGION_LISTED)) | GVM_REGION_COPYING) != word)
        return;
    place = gvm_atomic_add_u64(&t->cleaning.count, 1);
    entry = GVM_REGION_IN_FRAME(owner - 1, at);
    ((uint64_t *)(uintptr_t)t->cleaning.list)[place] = entry;
    ((gvm_region_mail *)(uintptr_t)t->cleaning.mail)->list[place] = entry;
}

/* A region of the batch is copied. It is clean, unless it was mapped to write since. */
GVM_DEVICE_RARE void gvm_region_clean_end(gvm_region_table *t, uint32_t place)
{
    const uint64_t entry = gvm_load_consume_u64((const uint64_t *)(uintptr_t)t->cleaning.list + place);

    if (t->sums != 0)
        ((gvm_region_sum *)(uintptr_t)t->sums)[GVM_REGION_FRAME_OF_ENTRY(entry)].known = 0;
    gvm_add_release_u64((uint64_t *)(uintptr_t)t->words + GVM_REGION_OF_ENTRY(entry),
                        0 - GVM_REGION_COPYING);
}

/* All threads that act together, their rank among them, and how many they are: makes a batch of the dirty ones of count frames, or ends it. */
GVM_DEVICE_RARE void gvm_region_clean_some(gvm_region_table *t, uint32_t first, uint32_t count,
                                           uint32_t rank, uint32_t ranks)
{
    const uint32_t todo = count != 0 ? count : (uint32_t)gvm_load_acquire_u64(&t->cleaning.count);
    uint32_t i;

    GVM_NO_UNROLL
    for (i = rank; i < todo; i += ranks)
        if (count == 0)
            gvm_region_clean_end(t, i);
        else
            gvm_region_clean_frame(t, (first + i) % gvm_load_acquire_u32(&t->frame_count));
}

#endif /* GVM_KERNEL */
#endif
