/* The library's own kernels for regions: what the host wants done to a table, and lists of regions for consumers.
 *
 * Maps and unmaps in them are those of gvmem/device/region.h; the rest uses the same words in the same way.
 */
#include <gvmem/device/region.h>

#include "region/region_kernels.h"

/* This warp's number among those of the launch, and how many they are. */
GVM_DEVICE uint64_t warp_global(void)
{
    return (uint64_t)gvm_block() * (gvm_block_threads() / gvm_warp_size()) + gvm_warp();
}
GVM_DEVICE uint64_t warp_count(void)
{
    return (uint64_t)gvm_block_count() * (gvm_block_threads() / gvm_warp_size());
}

/* Each lane maps a region, or none. Unlike gvm_region_map_lanes() it takes a reference for each lane: few entries of a list name the
 * same region, and to find those costs more than it saves. Only those that miss are compared. */
GVM_DEVICE uint64_t map_entry(const gvm_region_view *view, uint32_t region, uint32_t access)
{
    const int exists = region < view->count;
    uint32_t peers, leader;
    uint64_t word = 0, found;
    int misses;

    if (exists)
        word = gvm_atomic_add_acquire_u64((uint64_t *)(uintptr_t)view->words + region,
                                          GVM_REGION_REFERENCE + GVM_REGION_USE);
    else if (region != GVM_REGION_NONE)
        (void)GVM_FAR(gvm_region_refuse)(view->table, region);
    misses = exists && !gvm_region_is_hit(word, access);
    if (gvm_warp_ballot(~0u, misses) != 0) {
        peers = gvm_warp_match_u32(~0u, misses ? region : ~gvm_lane());
        leader = gvm_warp_first(peers);
        found = GVM_FAR(gvm_region_map_missing)(
            view->table, region, access, misses && gvm_lane() == leader ? gvm_count_ones(peers) : 0,
            word);
        found = gvm_warp_get_u64(found, leader);
        word = misses ? found : word;
    }
    return word;
}

GVM_DEVICE void tell_entry(const gvmi_region_list *p, uint64_t i, uint64_t found)
{
    if (p->slots != 0)
        ((uint32_t *)(uintptr_t)p->slots)[i] = (found & GVM_REGION_RESIDENT) != 0
                                                   ? gvm_region_slot_in(found)
                                                   : GVM_REGION_NONE;
    if (p->addresses != 0)
        ((uint64_t *)(uintptr_t)p->addresses)[i] = (uint64_t)(uintptr_t)gvm_region_pointer(&p->view,
                                                                                           found);
}

/* Maps each region of a list: a warp p.at_once of them, each by a lane. */
GVM_KERNEL(region_resolve, gvmi_region_list, p)
{
    const uint32_t *regions = (const uint32_t *)(uintptr_t)p.regions;
    uint64_t first;

    for (first = warp_global() * p.at_once; first < p.count; first += warp_count() * p.at_once) {
        const uint64_t i = first + gvm_lane();
        const int has = gvm_lane() < p.at_once && i < p.count;
        const uint64_t found = map_entry(&p.view, has ? regions[i] : GVM_REGION_NONE, p.access);

        if (has)
            tell_entry(&p, i, found);
    }
}

#define HELP_NS 20000 /* how long a block waits for copies to be opened */

/* The block takes pieces of the copy of a region, while there is one. Without a reference, so that it is not seen as a user. */
GVM_DEVICE void help_with(gvm_region_table *t, uint32_t region, uint64_t until_ns)
{
    gvm_region_search s = {.region = region};
    uint64_t job = 0, word;

    for (;;) {
        if (gvm_thread() == 0)
            do {
                word = gvm_load_acquire_u64(gvm_region_word(t, region));
                job = gvm_region_take_piece(t, &s);
                if (job == 0 && ((word & GVM_REGION_RESIDENT) != 0 || gvm_clock_ns() > until_ns))
                    job = GVM_REGION_DONE;
                if (job == 0)
                    gvm_pause();
            } while (job == 0);
        job = gvm_region_tell(GVM_REGION_BY_BLOCK, job);
        if ((job & GVM_REGION_DONE) != 0)
            return;
        gvm_region_do(t, job, GVM_REGION_BY_BLOCK);
        if (gvm_thread() == 0)
            gvm_region_finish_piece(t, &s);
    }
}

/* A list of large regions: the first blocks map them, one each, and then all help those that are still at it. */
GVM_KERNEL(region_resolve_large, gvmi_region_list, p)
{
    const uint32_t *regions = (const uint32_t *)(uintptr_t)p.regions;
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.view.table;
    const uint64_t until_ns = gvm_clock_ns() + HELP_NS;
    uint64_t i, found;
    uint32_t region;

    for (i = gvm_block(); i < p.count; i += gvm_block_count()) {
        found = regions[i] != GVM_REGION_NONE
                    ? gvm_region_map_as(&p.view, regions[i], p.access, GVM_REGION_BY_BLOCK)
                    : 0;
        if (gvm_thread() == 0)
            tell_entry(&p, i, found);
    }
    for (i = 0; i < p.count && t->shares != 0; i++) {
        region = regions[(gvm_block() + i) % p.count];
        if (region < p.view.count)
            help_with(t, region, until_ns);
    }
}

/* Unmaps those that were mapped: what resolve gave a slot. */
GVM_KERNEL(region_release, gvmi_region_list, p)
{
    const uint32_t *regions = (const uint32_t *)(uintptr_t)p.regions;
    const uint32_t *slots = (const uint32_t *)(uintptr_t)p.slots;
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count())
        if (regions[i] != GVM_REGION_NONE &&
            (slots == (const uint32_t *)0 || slots[i] != GVM_REGION_NONE))
            gvm_region_unmap(&p.view, regions[i]);
}

/* Brings a range of regions to frames. */
GVM_KERNEL(region_prefetch, gvmi_region_list, p)
{
    uint64_t i;

    for (i = warp_global(); i < p.count; i += warp_count())
        gvm_region_prefetch_warp(&p.view, (uint32_t)(p.first + i));
}

/* Takes a region for the caller, a warp's leader or a thread, if nobody has it mapped. Returns its word before that, or a
 * word with references. */
GVM_DEVICE uint64_t claim_idle(const gvm_region_table *t, uint32_t region)
{
    for (;;) {
        const uint64_t word = gvm_load_acquire_u64(gvm_region_word(t, region));

        if ((word & GVM_REGION_BUSY) != 0 && (word & GVM_REGION_CROWDED) == 0)
            gvm_pause();
        else if ((word & GVM_REGION_REFERENCES) != 0 || gvm_region_claim(t, region, word))
            return word;
    }
}

GVM_DEVICE int is_in_frame(uint64_t word)
{
    return (word & (GVM_REGION_RESIDENT | GVM_REGION_REMOTE)) == GVM_REGION_RESIDENT;
}

/* In check mode, with the region claimed: its frame is what it was when it was clean, and is clean from now on. */
GVM_DEVICE void check_frame(const gvm_region_table *t, uint32_t region, uint64_t word)
{
    if (t->sums == 0 || !is_in_frame(word))
        return;
    gvm_region_sum_up(t, gvm_region_slot_in(word),
                      (word & GVM_REGION_DIRTY) == 0 ? region : GVM_REGION_NONE, GVM_REGION_BY_WARP);
    gvm_region_join(GVM_REGION_BY_WARP);
}

GVM_DEVICE void poison_frame(const gvm_region_table *t, uint64_t word)
{
    if (t->sums == 0 || !is_in_frame(word))
        return;
    gvm_region_poison(t, gvm_region_slot_in(word), GVM_REGION_BY_WARP);
    gvm_region_join(GVM_REGION_BY_WARP);
}

/* A warp's leader has claimed a region; word is what its word said. It is written home if it is dirty, and stays where it is, or
 * leaves its frame to that owner. */
GVM_DEVICE void write_home(gvm_region_table *t, uint32_t region, uint64_t word, int stays, uint32_t owner)
{
    const uint32_t slot = gvm_region_slot_in(word);

    if ((word & GVM_REGION_DIRTY) != 0)
        gvm_region_copy(t, t->home + region, slot, GVM_REGION_BY_WARP);
    gvm_region_join(GVM_REGION_BY_WARP);
    check_frame(t, region, word);
    if (!stays)
        poison_frame(t, word);
    if (gvm_lane() != 0)
        return;
    if ((word & GVM_REGION_DIRTY) != 0)
        gvm_region_count_up(&t->written);
    if (!stays)
        gvm_store_release_u32(&gvm_region_frame_of(t, slot)->owner, owner);
    gvm_region_settle(t, region, word,
                      stays ? word & GVM_REGION_PLACE & ~(GVM_REGION_DIRTY | GVM_REGION_LISTED) : 0);
}

/* Writes the regions of a list home, and takes them from it; those that are mapped are left. */
GVM_KERNEL(region_clean, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    uint32_t *regions = (uint32_t *)(uintptr_t)p.list;
    uint64_t i, word = 0;

    for (i = warp_global(); i < p.count; i += warp_count()) {
        if (gvm_lane() == 0)
            word = claim_idle(t, regions[i]);
        word = gvm_region_tell(GVM_REGION_BY_WARP, word);
        if ((word & GVM_REGION_REFERENCES) == 0)
            write_home(t, regions[i], word, 1, 0);
        if (gvm_lane() != 0)
            continue;
        if ((word & GVM_REGION_REFERENCES) == 0)
            regions[i] = GVM_REGION_NONE;
        else
            gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.result, 1);
    }
}

/* One thread: no batch is made from now on. Returns the turn before. */
GVM_DEVICE uint64_t stop_turn(gvm_region_table *t)
{
    for (;;) {
        const uint64_t turn = gvm_load_acquire_u64(&t->cleaning.turn);
        const uint64_t phase = turn & GVM_REGION_TURN_PHASE;

        if (phase == GVM_REGION_CLEAN_ACTING)
            gvm_pause();
        else if (gvm_atomic_cas_acquire_u64(&t->cleaning.turn, turn,
                                            turn - phase + GVM_REGION_CLEAN_STOPPED) == turn)
            return turn;
    }
}

/* A region of a batch that nobody copies is as it was. */
GVM_DEVICE void give_up_cleaning(const gvm_region_table *t, uint32_t place)
{
    const uint64_t entry = gvm_load_consume_u64((const uint64_t *)(uintptr_t)t->cleaning.list + place);
    uint64_t *at = gvm_region_word(t, GVM_REGION_OF_ENTRY(entry));

    (void)gvm_atomic_or_u64(at, GVM_REGION_DIRTY); /* first: without either it would be clean */
    gvm_add_release_u64(at, 0 - GVM_REGION_COPYING);
}

/* Ends the batch, or gives it up if it was not copied, and no other is made. The result is its number. The engine copies nothing. */
GVM_KERNEL(region_stop_cleaning, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    uint64_t turn = 0, copied, count;
    uint32_t i;

    if (warp_global() != 0)
        return;
    if (gvm_lane() == 0)
        turn = stop_turn(t);
    turn = gvm_region_tell(GVM_REGION_BY_WARP, turn);
    copied = gvm_load_acquire_u64(&t->cleaning.copied);
    count = (turn & GVM_REGION_TURN_PHASE) == GVM_REGION_CLEAN_BATCH
                ? gvm_load_acquire_u64(&t->cleaning.count)
                : 0;
    for (i = gvm_lane(); i < count; i += gvm_warp_size())
        if (copied == turn >> GVM_REGION_TURN_SHIFT)
            gvm_region_clean_end(t, i);
        else
            give_up_cleaning(t, i);
    gvm_warp_sync();
    if (gvm_lane() != 0)
        return;
    if (copied == turn >> GVM_REGION_TURN_SHIFT)
        gvm_region_clean_count(t);
    else
        gvm_store_release_u64(&t->cleaning.count, 0);
    gvm_store_release_u64((uint64_t *)(uintptr_t)p.result, turn >> GVM_REGION_TURN_SHIFT);
}

/* A frame is free: searches look at all frames once again. */
GVM_DEVICE void find_free_again(gvm_region_table *t)
{
    gvm_store_release_u64(&t->fresh, 0);
}

GVM_DEVICE void free_frame(gvm_region_table *t, uint32_t frame)
{
    gvm_store_release_u32(&gvm_region_frame_of(t, frame)->owner, 0);
    find_free_again(t);
}

/* Looks at one frame: takes it if it is free, or if its region is clean and the policy evicts it at once; or keeps its region in mind. */
GVM_DEVICE int look_for_clean(gvm_region_table *t, uint32_t at, gvm_region_search *s)
{
    gvm_region_frame *record = gvm_region_frame_of(t, at), frame;
    uint64_t word;

    frame.owner = gvm_load_consume_u32(&record->owner);
    frame.seen = gvm_load_consume_u32(&record->seen);
    if (frame.owner == 0 && gvm_region_takes_free(t, at, s))
        return 1;
    if (frame.owner - 1 >= t->count || t->sums != 0)
        return 0; /* in check mode a region that leaves a frame would have to be summed up */
    word = gvm_load_consume_u64(gvm_region_word(t, frame.owner - 1));
    if (!gvm_region_is_idle_in(word, at) || (word & GVM_REGION_DIRTY) != 0)
        return 0;
    if (s->step > 1) {
        gvm_region_consider(t, frame, word, s);
        return 0;
    }
    s->victim = frame.owner - 1;
    s->taken = word;
    return gvm_region_is_victim(record, frame.seen, word, s->policy) && gvm_region_takes_victim(t, s);
}

/* A place of the hand. What was used in this pass stays. */
GVM_DEVICE int look_for_clean_at(gvm_region_table *t, uint32_t place, gvm_region_search *s)
{
    uint32_t at;

    s->rank = s->kept = 0;
    for (at = place * s->step; at < s->frames && at < (place + 1) * s->step; at++)
        if (look_for_clean(t, at, s))
            return 1;
    return s->rank > 1 && gvm_region_takes_victim(t, s);
}

/* One thread: a frame without data that would have to be written home first, marked as COMING; or none. */
GVM_DEVICE uint32_t take_clean_frame(gvm_region_table *t)
{
    gvm_region_search s;
    uint32_t places, looks, i;

    s.region = GVM_REGION_COMING - 1; /* the owner, less 1 */
    s.frames = gvm_load_consume_u32(&t->frame_count);
    s.policy = gvm_load_consume_u32(&t->policy);
    s.step = gvm_region_step_of(s.policy);
    s.left = s.note = 0;
    s.victim = GVM_REGION_NONE;
    places = gvm_region_places(s.frames, s.step);
    if (gvm_region_take_fresh(t, places, &s))
        return s.frame;
    if (s.policy == GVM_REGION_STATIC)
        return GVM_REGION_NONE;
    looks = places < GVM_REGION_LOOKS_MAX / 2 ? 2 * places : GVM_REGION_LOOKS_MAX;
    for (i = 0; i < looks; i++) {
        const uint64_t drawn = gvm_region_count_up(&t->hand);

        s.pass = (uint32_t)drawn / places;
        if (s.step > 1)
            s.left = (s.pass & GVM_REGION_PASS_MASK) + 1;
        if (look_for_clean_at(t, (uint32_t)drawn % places, &s))
            return s.frame;
    }
    return GVM_REGION_NONE;
}

/* Claims a frame for each region from p.first on that is in none and that nobody has mapped, and writes which to the list. */
GVM_KERNEL(region_claim_frames, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    uint32_t *frames = (uint32_t *)(uintptr_t)p.list;
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count()) {
        const uint32_t region = (uint32_t)(p.first + i);
        const uint64_t word = gvm_load_acquire_u64(gvm_region_word(t, region));
        uint32_t frame = GVM_REGION_NONE;

        frames[i] = GVM_REGION_NONE;
        if ((word & (GVM_REGION_BUSY | GVM_REGION_REFERENCES)) != 0 || is_in_frame(word) ||
            !gvm_region_claim(t, region, word))
            continue;
        if ((gvm_load_acquire_u32(&gvm_region_record_of(t, region)->flags) & GVM_REGION_LIVE) != 0)
            frame = take_clean_frame(t);
        gvm_region_settle(t, region, word,
                          frame != GVM_REGION_NONE ? GVM_REGION_COPYING : word & GVM_REGION_PLACE);
        frames[i] = frame;
    }
}

/* For the frame's record, as of a region that was used. */
GVM_DEVICE uint32_t brought_note(const gvm_region_table *t)
{
    const uint32_t policy = gvm_load_consume_u32(&t->policy), step = gvm_region_step_of(policy);
    const uint32_t places = gvm_region_places(gvm_load_consume_u32(&t->frame_count), step);
    const uint32_t hand = (uint32_t)gvm_load_acquire_u64(&t->hand);

    if (step == 1 || places == 0)
        return 0;
    return hand / places << GVM_REGION_PASS_SHIFT;
}

/* A region that was brought, unless it was mapped since it was claimed: then the frame is free. */
GVM_DEVICE void publish_brought(gvm_region_table *t, uint32_t region, uint32_t at)
{
    gvm_region_frame *frame = gvm_region_frame_of(t, at);
    const uint64_t all = GVM_REGION_COPYING | GVM_REGION_BUSY | GVM_REGION_RESIDENT |
                         GVM_REGION_CROWDED;

    for (;;) {
        const uint64_t word = gvm_load_acquire_u64(gvm_region_word(t, region));

        if ((word & all) != GVM_REGION_COPYING)
            break;
        if (!gvm_region_claim(t, region, word))
            continue;
        if (t->sums != 0)
            gvm_region_sum_of(t, at)->known = 0;
        gvm_store_release_u32(&frame->seen, gvm_region_uses_in(word) | brought_note(t));
        gvm_store_release_u32(&frame->owner, region + 1);
        gvm_region_settle(t, region, word, GVM_REGION_RESIDENT | (uint64_t)at << GVM_REGION_SLOT_SHIFT);
        gvm_atomic_add_u64(&t->fetched, 1);
        return;
    }
    free_frame(t, at);
}

/* Says where the regions of a list are, that the copy engine has brought. */
GVM_KERNEL(region_publish, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    const uint64_t *list = (const uint64_t *)(uintptr_t)p.list;
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count())
        publish_brought(t, GVM_REGION_OF_ENTRY(list[i]), GVM_REGION_FRAME_OF_ENTRY(list[i]));
}

/* Makes those of all frames free that were claimed for regions which will not be brought. Their words stay COPYING until they are mapped
 * or claimed again. */
GVM_KERNEL(region_free_claimed, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count())
        if (gvm_load_acquire_u32(&gvm_region_frame_of(t, (uint32_t)i)->owner) == GVM_REGION_COMING)
            free_frame(t, (uint32_t)i);
}

/* Takes regions of a range out of their frames. Those that are mapped, or just on their way, stay. */
GVM_KERNEL(region_evict, gvmi_region_list, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.view.table;
    uint64_t i, word = 0;

    for (i = warp_global(); i < p.count; i += warp_count()) {
        const uint32_t region = (uint32_t)(p.first + i);

        if (gvm_lane() == 0) {
            word = gvm_load_acquire_u64(gvm_region_word(t, region));
            if (!gvm_region_is_idle_in(word, gvm_region_slot_in(word)) ||
                !gvm_region_claim(t, region, word))
                word = 0;
        }
        word = gvm_region_tell(GVM_REGION_BY_WARP, word);
        if (word == 0)
            continue;
        write_home(t, region, word, 0, 0);
        if (gvm_lane() == 0) {
            gvm_region_count_up(&t->evicted);
            find_free_again(t);
        }
    }
}

/* p.first is the policy from now on. What the one before has noted in the records of frames means nothing to it. */
GVM_KERNEL(region_set_policy, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count()) {
        uint32_t *seen = &gvm_region_frame_of(t, (uint32_t)i)->seen;

        gvm_store_release_u32(seen, gvm_load_acquire_u32(seen) & 0xff);
    }
    if (gvm_thread_global() == 0) {
        gvm_store_release_u32(&t->policy, (uint32_t)p.first);
        find_free_again(t);
    }
}

/* What became of a frame that is to be retired. */
enum { RETIRED, MAPPED, CLAIMED };

/* The warp's leader: retires a frame, or claims the region that has it. */
GVM_DEVICE uint32_t begin_retiring(const gvm_region_table *t, uint32_t at, uint32_t *region,
                                   uint64_t *word)
{
    gvm_region_frame *frame = gvm_region_frame_of(t, at);

    for (;;) {
        const uint32_t owner = gvm_load_acquire_u32(&frame->owner);

        if (owner == GVM_REGION_RETIRED ||
            (owner == 0 && gvm_atomic_cas_u32(&frame->owner, 0, GVM_REGION_RETIRED) == 0))
            return RETIRED;
        if (owner == GVM_REGION_COMING)
            return MAPPED;
        if (owner == 0)
            continue;
        *region = owner - 1;
        *word = claim_idle(t, *region);
        if ((*word & GVM_REGION_REFERENCES) != 0 && gvm_load_acquire_u32(&frame->owner) == owner)
            return MAPPED;
        if ((*word & GVM_REGION_REFERENCES) != 0)
            continue;
        if (gvm_region_is_idle_in(*word, at))
            return CLAIMED;
        gvm_region_settle(t, *region, *word, *word & GVM_REGION_PLACE); /* it has just left the frame */
    }
}

/* Takes frames from p.first on out of use. The result is how many of them are mapped, and stay. */
GVM_KERNEL(region_retire_frames, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    uint32_t what = RETIRED, region = 0;
    uint64_t i, word = 0;

    if (gvm_thread_global() == 0)
        gvm_store_release_u32(&t->frame_count, (uint32_t)p.first);
    for (i = warp_global(); i < p.count; i += warp_count()) {
        if (gvm_lane() == 0)
            what = begin_retiring(t, (uint32_t)(p.first + i), &region, &word);
        if (gvm_region_tell(GVM_REGION_BY_WARP, what) == CLAIMED) {
            region = (uint32_t)gvm_region_tell(GVM_REGION_BY_WARP, region);
            word = gvm_region_tell(GVM_REGION_BY_WARP, word);
            write_home(t, region, word, 0, GVM_REGION_RETIRED);
        } else if (gvm_lane() == 0 && what == MAPPED) {
            gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.result, 1);
        }
    }
}

/* Frames from p.first on have memory, and are free; those that had it stay as they are. */
GVM_KERNEL(region_open_frames, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    uint64_t i;

    if (gvm_thread_global() == 0)
        gvm_store_release_u32(&t->frame_count, (uint32_t)(p.first + p.count));
    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count())
        gvm_atomic_cas_u32(&gvm_region_frame_of(t, (uint32_t)(p.first + i))->owner,
                           GVM_REGION_RETIRED, 0);
    find_free_again(t); /* by each thread: searches may have passed its frames before */
}

GVM_DEVICE void clear_flags(gvm_region_record *record, uint32_t flags)
{
    uint32_t seen = gvm_load_acquire_u32(&record->flags), old;

    do {
        old = seen;
        seen = gvm_atomic_cas_u32(&record->flags, old, old & ~flags);
    } while (seen != old);
}

/* The region that the caller has claimed is in no frame any more, once its word says so. */
GVM_DEVICE void leave_frame(gvm_region_table *t, uint64_t word)
{
    if (is_in_frame(word))
        free_frame(t, gvm_region_slot_in(word));
}

/* One thing that the host has done to a region, which the warp's leader has claimed; word is what its word said. */
GVM_DEVICE void apply_change(gvm_region_table *t, const gvmi_region_change *change, uint64_t word)
{
    gvm_region_record *record = gvm_region_record_of(t, change->region);

    leave_frame(t, word);
    gvm_store_release_u32(&record->version, change->version);
    if (change->live)
        gvm_atomic_or_u32(&record->flags, GVM_REGION_LIVE);
    else
        clear_flags(record, GVM_REGION_LIVE);
    gvm_region_settle(t, change->region, word, 0);
}

/* What the host has done to regions since the last sync: they are new, deleted, or written. Those that are mapped
 * stay as they are, and get done = 0. */
GVM_KERNEL(region_apply, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    gvmi_region_change *changes = (gvmi_region_change *)(uintptr_t)p.list;
    const uint32_t by = t->sums != 0 ? GVM_REGION_BY_WARP : GVM_REGION_BY_THREAD; /* to poison frames */
    const uint64_t step = t->sums != 0 ? warp_count() : gvm_thread_count();
    uint64_t i, word = 0;

    for (i = t->sums != 0 ? warp_global() : gvm_thread_global(); i < p.count; i += step) {
        if (gvm_region_rank(by) == 0)
            word = claim_idle(t, changes[i].region);
        word = gvm_region_tell(by, word);
        if ((word & GVM_REGION_REFERENCES) == 0)
            poison_frame(t, word);
        if (gvm_region_rank(by) != 0)
            continue;
        changes[i].done = (word & GVM_REGION_REFERENCES) == 0;
        if (changes[i].done)
            apply_change(t, &changes[i], word);
    }
}

/* Homes may have changed: what is in frames is dropped, unless it was changed there. The result is how many clean frames are
 * mapped, and stay. */
GVM_KERNEL(region_drop, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    const uint32_t by = t->sums != 0 ? GVM_REGION_BY_WARP : GVM_REGION_BY_THREAD; /* to poison frames */
    const uint64_t step = t->sums != 0 ? warp_count() : gvm_thread_count();
    uint64_t i, word = 0;
    uint32_t region;

    for (i = t->sums != 0 ? warp_global() : gvm_thread_global(); i < p.count; i += step) {
        region = (uint32_t)(p.first + i);
        if (gvm_region_rank(by) == 0)
            word = claim_idle(t, region);
        word = gvm_region_tell(by, word);
        if ((word & (GVM_REGION_REFERENCES | GVM_REGION_DIRTY)) == 0)
            poison_frame(t, word);
        if (gvm_region_rank(by) != 0)
            continue;
        if ((word & GVM_REGION_REFERENCES) != 0) {
            if (is_in_frame(word) && (word & GVM_REGION_DIRTY) == 0)
                gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.result, 1);
        } else if ((word & GVM_REGION_DIRTY) != 0) {
            gvm_region_settle(t, region, word, word & GVM_REGION_PLACE);
        } else {
            leave_frame(t, word);
            gvm_region_settle(t, region, word, 0);
        }
    }
}

/* In check mode: the frames of clean regions that nobody has mapped are what they were. */
GVM_KERNEL(region_check, gvmi_region_work, p)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)p.table;
    uint64_t i, word = 0;
    uint32_t owner = 0;

    for (i = warp_global(); i < p.count; i += warp_count()) {
        if (gvm_lane() == 0) {
            owner = gvm_load_acquire_u32(&gvm_region_frame_of(t, (uint32_t)i)->owner);
            word = owner != 0 && owner <= t->count
                       ? gvm_load_acquire_u64(gvm_region_word(t, owner - 1))
                       : 0;
            if (!gvm_region_is_idle_in(word, (uint32_t)i) || (word & GVM_REGION_DIRTY) != 0 ||
                !gvm_region_claim(t, owner - 1, word))
                owner = 0;
        }
        owner = (uint32_t)gvm_region_tell(GVM_REGION_BY_WARP, owner);
        if (owner == 0)
            continue;
        word = gvm_region_tell(GVM_REGION_BY_WARP, word);
        check_frame(t, owner - 1, word);
        if (gvm_lane() == 0)
            gvm_region_settle(t, owner - 1, word, word & GVM_REGION_PLACE);
    }
}

/* Copies entries of the list of changes to one for the host. Threads that have counted an entry are about to write it. */
GVM_KERNEL(region_collect, gvmi_region_work, p)
{
    const gvm_region_table *t = (const gvm_region_table *)(uintptr_t)p.table;
    gvmi_region_change *out = (gvmi_region_change *)(uintptr_t)p.list;
    uint32_t entry, lap;
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count()) {
        const uint32_t *at = gvm_region_entry(t, p.first + i, &lap);

        for (;;) {
            entry = gvm_load_acquire_u32(at);
            if ((entry & ~GVM_REGION_ENTRY_REGION) == lap)
                break;
            gvm_pause();
        }
        entry &= GVM_REGION_ENTRY_REGION;
        out[i].region = entry != GVM_REGION_ENTRY_REGION ? entry : GVM_REGION_NONE;
        out[i].version = entry != GVM_REGION_ENTRY_REGION
                             ? gvm_load_acquire_u32(&gvm_region_record_of(t, entry)->version)
                             : 0;
    }
}

/* The next write of a region is to be listed again. The order matters: a word that is LISTED after its record is not
 * CHANGED any more would hide later writes, had they not been mapped when the region was collected. */
GVM_DEVICE void unlist(const gvm_region_table *t, uint32_t region)
{
    gvm_region_record *record = gvm_region_record_of(t, region);
    uint64_t word;

    while ((gvm_load_acquire_u32(&record->flags) & GVM_REGION_COUNTED) == 0)
        gvm_pause();
    clear_flags(record, GVM_REGION_CHANGED | GVM_REGION_COUNTED);
    for (;;) {
        word = gvm_load_acquire_u64(gvm_region_word(t, region));
        if ((word & GVM_REGION_CROWDED) != 0)
            return;
        if ((word & GVM_REGION_BUSY) != 0)
            gvm_pause();
        else if (gvm_atomic_cas_acquire_u64(gvm_region_word(t, region), word,
                                            word & ~GVM_REGION_LISTED) == word)
            return;
    }
}

/* The host has what was collected. Once for each entry, however often the host tries. */
GVM_KERNEL(region_unlist, gvmi_region_work, p)
{
    const gvm_region_table *t = (const gvm_region_table *)(uintptr_t)p.table;
    uint32_t entry, lap;
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count()) {
        uint32_t *at = gvm_region_entry(t, p.first + i, &lap);

        entry = gvm_load_acquire_u32(at);
        if (entry != (lap | GVM_REGION_ENTRY_REGION) &&
            gvm_atomic_cas_u32(at, entry, lap | GVM_REGION_ENTRY_REGION) == entry)
            unlist(t, entry & GVM_REGION_ENTRY_REGION);
    }
}
