/* gvmem/device/detail/region.h - how regions are mapped, fetched and evicted; for gvmem/device/region.h alone.
 *
 * The states of a region's word, their transitions and the invariants are in docs/design/region.md. A hit is
 * gvm_region_count_map() and a multiplication. All else is gvm_region_map_slowly(), which a warp's or a block's threads run
 * together: its leader, thread 0, decides (gvm_region_step()), and all of them copy.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_H
#define GVMEM_DEVICE_DETAIL_REGION_H

#include <gvmem/device/detail/region_table.h>

/* Threads that act together. */
enum { GVM_REGION_BY_THREAD, GVM_REGION_BY_WARP, GVM_REGION_BY_BLOCK };

#ifdef GVM_KERNEL

/* ---- threads that act together */

GVM_DEVICE uint32_t gvm_region_rank(uint32_t by)
{
    return by == GVM_REGION_BY_WARP ? gvm_lane() : by == GVM_REGION_BY_BLOCK ? gvm_thread() : 0;
}

GVM_DEVICE uint32_t gvm_region_ranks(uint32_t by)
{
    return by == GVM_REGION_BY_WARP    ? gvm_warp_size()
           : by == GVM_REGION_BY_BLOCK ? gvm_block_threads()
                                       : 1;
}

/* Copies are shared out among all lanes of a warp. */
GVM_DEVICE int gvm_region_is_whole(uint32_t by)
{
    return by == GVM_REGION_BY_THREAD || gvm_block_threads() % gvm_warp_size() == 0;
}

/* What one of them did before, the others see after. */
GVM_DEVICE void gvm_region_join(uint32_t by)
{
    if (by == GVM_REGION_BY_WARP)
        gvm_warp_sync();
    else if (by == GVM_REGION_BY_BLOCK)
        gvm_block_sync();
}

GVM_DEVICE_RARE uint64_t gvm_region_tell_block(uint64_t value)
{
    GVM_SHARED(uint64_t, told, 1);

    gvm_block_sync(); /* all have read what was told before */
    if (gvm_thread() == 0)
        told[0] = value;
    gvm_block_sync();
    return told[0];
}

/* The leader's value, to all; and a join. */
GVM_DEVICE uint64_t gvm_region_tell(uint32_t by, uint64_t value)
{
    if (by == GVM_REGION_BY_WARP)
        value = gvm_warp_get_u64(value, 0);
    if (by == GVM_REGION_BY_BLOCK)
        value = gvm_region_tell_block(value);
    else
        gvm_region_join(by);
    return value;
}

#define GVM_REGION_COPIED_AT_ONCE 4 /* loads of 16 bytes under way for each thread */

/* A thread's part of a copy of units of 16 bytes: its first unit, those that lie apart from each other behind it, and so on
 * after each step. left: units from the first on. A constant distance means one register for all addresses, and loads without
 * a condition do not wait for each other. */
GVM_DEVICE void gvm_region_copy_units(uint64_t to, uint64_t from, int32_t left, uint32_t apart,
                                      uint32_t step)
{
    uint64_t a[GVM_REGION_COPIED_AT_ONCE], b[GVM_REGION_COPIED_AT_ONCE];
    uint32_t k;

    GVM_NO_UNROLL
    for (; left > (int32_t)((GVM_REGION_COPIED_AT_ONCE - 1) * apart); left -= (int32_t)step) {
        GVM_UNROLL
        for (k = 0; k < GVM_REGION_COPIED_AT_ONCE; k++)
            gvm_stream_load_u64x2((const unsigned char *)(uintptr_t)from + k * apart * 16, &a[k],
                                  &b[k]);
        GVM_UNROLL
        for (k = 0; k < GVM_REGION_COPIED_AT_ONCE; k++)
            gvm_stream_u64x2((unsigned char *)(uintptr_t)to + k * apart * 16, a[k], b[k]);
        from += (uint64_t)step * 16;
        to += (uint64_t)step * 16;
    }
    GVM_UNROLL
    for (k = 0; k + 1 < GVM_REGION_COPIED_AT_ONCE; k++)
        if (left > (int32_t)(k * apart))
            gvm_stream_load_u64x2((const unsigned char *)(uintptr_t)from + k * apart * 16, &a[k],
                                  &b[k]);
    GVM_UNROLL
    for (k = 0; k + 1 < GVM_REGION_COPIED_AT_ONCE; k++)
        if (left > (int32_t)(k * apart))
            gvm_stream_u64x2((unsigned char *)(uintptr_t)to + k * apart * 16, a[k], b[k]);
}

GVM_DEVICE_RARE void gvm_region_copy_alone(uint64_t to, uint64_t from, int32_t left)
{
    gvm_region_copy_units(to, from, left, 1, GVM_REGION_COPIED_AT_ONCE);
}

GVM_DEVICE_RARE void gvm_region_copy_in_warp(uint64_t to, uint64_t from, int32_t left)
{
    gvm_region_copy_units(to, from, left, gvm_warp_size(), gvm_warp_size() * GVM_REGION_COPIED_AT_ONCE);
}

GVM_DEVICE_RARE void gvm_region_copy_in_block(uint64_t to, uint64_t from, int32_t left)
{
    gvm_region_copy_units(to, from, left, gvm_warp_size(),
                          gvm_block_threads() * GVM_REGION_COPIED_AT_ONCE);
}

/* Units next to each other, less than 2^31. rank: of a thread among as many as ranks says: one, lanes of a warp, or the block's.
 * The lanes of a warp copy units next to each other and then the next ones. */
GVM_DEVICE void gvm_region_copy_piece(uint64_t to, uint64_t from, uint32_t units, uint32_t rank,
                                      uint32_t ranks)
{
    const uint32_t lane = ranks == 1 ? 0 : rank % gvm_warp_size();
    const uint32_t first = (rank - lane) * GVM_REGION_COPIED_AT_ONCE + lane;
    const int32_t left = (int32_t)(units - first);

    to += first * 16ull;
    from += first * 16ull;
    if (ranks == 1)
        gvm_region_copy_alone(to, from, left);
    else if (ranks <= gvm_warp_size())
        gvm_region_copy_in_warp(to, from, left);
    else
        gvm_region_copy_in_block(to, from, left);
}

GVM_DEVICE uint64_t gvm_region_homes(const gvm_region_table *t)
{
    return t->address + t->home * t->stride_bytes;
}

GVM_DEVICE_RARE void *gvm_region_window(const gvm_region_table *t, uint32_t region)
{
    return (void *)(uintptr_t)(gvm_region_homes(t) + GVM_REGION_WINDOW_AT(t, region));
}

GVM_DEVICE_RARE uint64_t gvm_region_window_row(const gvm_region_table *t, uint64_t window, uint32_t row)
{
    return window + row / t->shape.height * t->shape.slice_pitch_bytes +
           row % t->shape.height * t->shape.row_pitch_bytes;
}

/* As many threads as there are units in a row of a window copy it, but not more than a warp. */
GVM_DEVICE uint32_t gvm_region_row_lanes(const gvm_region_table *t, uint32_t by)
{
    uint32_t lanes = by == GVM_REGION_BY_THREAD ? 1 : gvm_warp_size();

    GVM_NO_UNROLL
    while (lanes / 2 >= t->shape.width_bytes / 16)
        lanes /= 2;
    return lanes;
}

/* A function of its own, in which no loop keeps all of this in registers. */
GVM_DEVICE_RARE void gvm_region_copy_row(const gvm_region_table *t, uint32_t to, uint32_t from,
                                         uint32_t row, uint32_t lanes)
{
    const int fetches = to < t->home;
    const uint64_t packed = t->address + (fetches ? to : from) * t->stride_bytes +
                            row * t->shape.width_bytes;
    const uint64_t at = gvm_region_window_row(
        t, (uint64_t)(uintptr_t)gvm_region_window(t, (fetches ? from : to) - t->home), row);

    gvm_region_copy_piece(fetches ? packed : at, fetches ? at : packed,
                          (uint32_t)(t->shape.width_bytes / 16), gvm_lane() % lanes, lanes);
}

/* A collection with a shape: between a frame, whose rows are packed, and a window of the array. */
GVM_DEVICE_RARE void gvm_region_copy_window(const gvm_region_table *t, uint32_t to, uint32_t from,
                                            uint32_t by)
{
    const uint32_t lanes = gvm_region_row_lanes(t, by);
    uint32_t row;

    GVM_NO_UNROLL
    for (row = gvm_region_rank(by) / lanes; row < t->shape.height * t->shape.depth;
         row += gvm_region_ranks(by) / lanes)
        gvm_region_copy_row(t, to, from, row, lanes);
}

GVM_DEVICE_RARE void gvm_region_copy(const gvm_region_table *t, uint32_t to, uint32_t from, uint32_t by)
{
    if (t->columns != 0)
        gvm_region_copy_window(t, to, from, by);
    else
        gvm_region_copy_piece(t->address + to * t->stride_bytes,
                              t->address + from * t->stride_bytes, (uint32_t)(t->stride_bytes / 16),
                              gvm_region_rank(by), gvm_region_ranks(by));
}

/* ---- words and records */

GVM_DEVICE uint64_t *gvm_region_word(const gvm_region_table *t, uint32_t region)
{
    uint64_t *word = (uint64_t *)(uintptr_t)t->words + region;

    GVM_ASSUME_GLOBAL(word);
    return word;
}

/* A counter of the table's. */
GVM_DEVICE uint64_t gvm_region_count_up(uint64_t *counter)
{
    GVM_ASSUME_GLOBAL(counter);
    return gvm_atomic_add_u64(counter, 1);
}

GVM_DEVICE gvm_region_record *gvm_region_record_of(const gvm_region_table *t, uint32_t region)
{
    gvm_region_record *record = (gvm_region_record *)(uintptr_t)t->records + region;

    GVM_ASSUME_GLOBAL(record);
    return record;
}

GVM_DEVICE gvm_region_frame *gvm_region_frame_of(const gvm_region_table *t, uint32_t frame)
{
    gvm_region_frame *at = (gvm_region_frame *)(uintptr_t)t->frames + frame;

    GVM_ASSUME_GLOBAL(at);
    return at;
}

GVM_DEVICE uint32_t gvm_region_slot_in(uint64_t word)
{
    return (uint32_t)((word & GVM_REGION_SLOT_MASK) >> GVM_REGION_SLOT_SHIFT);
}

GVM_DEVICE uint32_t gvm_region_uses_in(uint64_t word)
{
    return (uint32_t)(word >> GVM_REGION_USE_SHIFT);
}

/* Has nobody BUSY or a reference, and is it in that frame, from which nothing is copied? */
GVM_DEVICE int gvm_region_is_idle_in(uint64_t word, uint32_t frame)
{
    return (word & (GVM_REGION_RESIDENT | GVM_REGION_BUSY | GVM_REGION_REMOTE | GVM_REGION_COPYING |
                    GVM_REGION_REFERENCES)) == GVM_REGION_RESIDENT &&
           gvm_region_slot_in(word) == frame;
}

/* Another word, if it is still that. */
GVM_DEVICE int gvm_region_swap(const gvm_region_table *t, uint32_t region, uint64_t word, uint64_t next)
{
    return gvm_atomic_cas_acquire_u64(gvm_region_word(t, region), word, next) == word;
}

GVM_DEVICE int gvm_region_claim(const gvm_region_table *t, uint32_t region, uint64_t word)
{
    return gvm_region_swap(t, region, word, word | GVM_REGION_BUSY);
}

/* The claim ends, and the region is where place says. taken: what the word said of that before. */
GVM_DEVICE void gvm_region_settle(const gvm_region_table *t, uint32_t region, uint64_t taken,
                                  uint64_t place)
{
    gvm_add_release_u64(gvm_region_word(t, region),
                        place - (taken & GVM_REGION_PLACE) - GVM_REGION_BUSY);
}

GVM_DEVICE void gvm_region_report(const gvm_region_table *t, uint32_t code, uint32_t region)
{
    (void)gvm_atomic_cas_u64((uint64_t *)(uintptr_t)&t->error, 0, code | (uint64_t)region << 32);
}

/* An entry of the list of changes, and the lap's number as its entries have it. */
GVM_DEVICE uint32_t *gvm_region_entry(const gvm_region_table *t, uint64_t at, uint32_t *lap)
{
    *lap = (uint32_t)((at >> t->change_shift) + 1) << GVM_REGION_SLOT_BITS;
    return (uint32_t *)(uintptr_t)t->changes + (at & ((1ull << t->change_shift) - 1));
}

/* The region is, or will be, written. Its number is in the list of changes once between two syncs. Threads that find it there
 * go on when the count has it: a sync after their unmap must see it. */
GVM_DEVICE void gvm_region_list_change(const gvm_region_table *t, uint32_t region)
{
    gvm_region_record *record = gvm_region_record_of(t, region);
    uint32_t *entry, lap;

    if ((gvm_atomic_or_u32(&record->flags, GVM_REGION_CHANGED) & GVM_REGION_CHANGED) != 0) {
        while ((gvm_load_acquire_u32(&record->flags) & (GVM_REGION_CHANGED | GVM_REGION_COUNTED)) ==
               GVM_REGION_CHANGED)
            gvm_pause();
        return;
    }
    gvm_atomic_add_u32(&record->version, 1);
    entry = gvm_region_entry(t, gvm_atomic_add_u64((uint64_t *)(uintptr_t)&t->change_count, 1), &lap);
    gvm_store_release_u32(entry, lap | region);
    gvm_fence();
    gvm_atomic_or_u32(&record->flags, GVM_REGION_COUNTED);
}

/* ---- check mode */

GVM_DEVICE gvm_region_sum *gvm_region_sum_of(const gvm_region_table *t, uint32_t frame)
{
    return (gvm_region_sum *)(uintptr_t)t->sums + frame;
}

GVM_DEVICE uint64_t gvm_region_mix(uint64_t value, uint64_t at)
{
    value = (value ^ at) * 0x9e3779b97f4a7c15ull;
    return (value ^ value >> 29) * 0xbf58476d1ce4e5b9ull;
}

/* Threads that act together sum up a frame. If it is that of a clean region it must be what it was. */
GVM_DEVICE_RARE void gvm_region_sum_up(const gvm_region_table *t, uint32_t frame, uint32_t region,
                                       uint32_t by)
{
    const unsigned char *at = (const unsigned char *)(uintptr_t)(t->address + frame * t->stride_bytes);
    gvm_region_sum *sum = gvm_region_sum_of(t, frame);
    const uint32_t units = (uint32_t)(t->stride_bytes / 16);
    uint64_t first, second, mine = 0;
    uint32_t i;

    if (gvm_region_rank(by) == 0)
        gvm_store_release_u64(&sum->found, 0);
    gvm_region_join(by);
    GVM_NO_UNROLL
    for (i = gvm_region_rank(by); i < units; i += gvm_region_ranks(by)) {
        gvm_stream_load_u64x2(at + 16ull * i, &first, &second);
        mine += gvm_region_mix(first, 2ull * i) + gvm_region_mix(second, 2ull * i + 1);
    }
    gvm_atomic_add_u64(&sum->found, mine);
    gvm_region_join(by);
    if (gvm_region_rank(by) != 0)
        return;
    mine = gvm_load_acquire_u64(&sum->found) | 1;
    if (region != GVM_REGION_NONE && sum->known != 0 && sum->known != mine)
        gvm_region_report(t, GVM_REGION_OVERWRITTEN, region);
    sum->known = mine;
}

/* What is left in a frame is not to be taken for data. */
GVM_DEVICE_RARE void gvm_region_poison(const gvm_region_table *t, uint32_t frame, uint32_t by)
{
    unsigned char *at = (unsigned char *)(uintptr_t)(t->address + frame * t->stride_bytes);
    uint64_t i;

    GVM_NO_UNROLL
    for (i = gvm_region_rank(by); i < t->stride_bytes / 16; i += gvm_region_ranks(by))
        gvm_stream_u64x2(at + 16 * i, GVM_REGION_POISON, GVM_REGION_POISON);
}

/* ---- finding a frame */

/* What the leader of threads that map has done so far.
 *
 * Each stage is a function, which only gvm_region_step() calls, and which calls few that are not inline: calls within calls by one lane
 * make lanes that wait for it go on one by one afterwards, and copy so. */
typedef struct gvm_region_search {
    uint32_t region, access;
    uint32_t stage;
    uint32_t frame, victim; /* the frame found, and the region that it still has */
    uint32_t looks;
    uint32_t cleaning;                   /* the step of a batch that these threads are at */
    uint32_t has_piece, next;            /* of a copy in pieces */
    uint32_t frames, policy, step, pass; /* as the search for a frame began; the pass of the hand */
    uint32_t rank, kept; /* of the group's best victim; the most passes for which another was not used */
    uint32_t note, left; /* for the frame's record, and for the slot of a victim without a frame */
    uint64_t drawn;      /* a number of the hand, or GVM_REGION_UNDRAWN */
    uint64_t taken;      /* the victim's word when it was claimed */
    uint64_t own; /* the word of the region that is mapped, as it was seen last, or when it was claimed */
    uint64_t until_ns;
} gvm_region_search;

#define GVM_REGION_UNDRAWN (~0ull)

enum {
    GVM_REGION_LOOK,   /* at the region's word */
    GVM_REGION_CLEANS, /* others ahead of need */
    GVM_REGION_FIND,   /* a frame */
    GVM_REGION_EVICT,  /* the victim is written home */
    GVM_REGION_FILL,   /* the frame is the region's */
    GVM_REGION_END,    /* and has its data */
    GVM_REGION_MAPPED, /* the region is where own says */
    GVM_REGION_SHARE,  /* a copy in pieces; next comes after it */
    GVM_REGION_SPOIL,  /* the region was unmapped more often than mapped */
};

/* A store that orders nothing. */
GVM_DEVICE void gvm_region_note(uint32_t *at, uint32_t value)
{
    (void)gvm_atomic_exchange_u32(at, value);
}

#include <gvmem/device/detail/region_policy.h>

#include <gvmem/device/detail/region_clean.h>

/* The victim's data is at home. Its frame is the region's, unless the victim was mapped meanwhile: then it stays. */
GVM_DEVICE_RARE void gvm_region_finish_evicting(gvm_region_table *t, gvm_region_search *s)
{
    const uint64_t word = gvm_load_acquire_u64(gvm_region_word(t, s->victim));
    const int stays = (word & GVM_REGION_REFERENCES) != 0;

    if ((s->taken & GVM_REGION_DIRTY) != 0)
        gvm_region_count_up(&t->written);
    if (stays && t->sums != 0 && (s->taken & GVM_REGION_DIRTY) != 0)
        gvm_region_sum_of(t, s->frame)->known = 0;
    if (!stays) {
        gvm_region_note(&gvm_region_frame_of(t, s->frame)->owner, s->region + 1);
        gvm_region_count_up(&t->evicted);
    }
    gvm_region_settle(t, s->victim, s->taken,
                      stays ? s->taken & GVM_REGION_PLACE & ~(GVM_REGION_DIRTY | GVM_REGION_LISTED)
                            : (uint64_t)s->left << GVM_REGION_SLOT_SHIFT);
    s->stage = stays ? GVM_REGION_FIND : GVM_REGION_FILL;
}

/* ---- mapping */

/* What gvm_region_step() has all threads do: GVM_REGION_CLEAN, a copy from one slot to another, or nothing more; in check mode also to sum up the
 * frame of a clean region (from) that is evicted, or to poison it. */
#define GVM_REGION_COPY (1ull << 63)
#define GVM_REGION_SUM_UP (1ull << 61)
#define GVM_REGION_EMPTY (1ull << 60)
#define GVM_REGION_PIECE_OF (1ull << 59) /* a piece of the copy that is open for a region */
#define GVM_REGION_DONE \
    (1ull << 62) /* with RESIDENT, REMOTE and the slot, or without if the map failed */

GVM_DEVICE uint64_t gvm_region_copy_job(uint32_t to, uint32_t from)
{
    return GVM_REGION_COPY | (uint64_t)to << GVM_REGION_SLOT_BITS | from;
}

GVM_DEVICE uint32_t gvm_region_job_from(uint64_t job)
{
    return (uint32_t)job & ((1u << GVM_REGION_SLOT_BITS) - 1);
}

GVM_DEVICE uint32_t gvm_region_job_to(uint64_t job)
{
    return gvm_region_job_from(job >> GVM_REGION_SLOT_BITS);
}

#include <gvmem/device/detail/region_share.h>

/* In check mode, or what is no copy of a whole region. */
GVM_DEVICE_RARE void gvm_region_do_rarely(gvm_region_table *t, uint64_t job, uint32_t by)
{
    const uint32_t to = gvm_region_job_to(job), from = gvm_region_job_from(job);

    if ((job & GVM_REGION_COPY) != 0)
        gvm_region_copy(t, to, from, by);
    else if ((job & GVM_REGION_CLEAN) != 0)
        gvm_region_clean_some(t, to, from, gvm_region_rank(by), gvm_region_ranks(by));
    else if ((job & GVM_REGION_PIECE_OF) != 0)
        gvm_region_do_piece(t, job, by);
    else if ((job & GVM_REGION_SUM_UP) != 0)
        gvm_region_sum_up(t, to, from, by);
    else
        gvm_region_poison(t, to, by);
    gvm_region_join(by);
    if ((job & GVM_REGION_COPY) != 0 && to < t->home)
        gvm_region_sum_up(t, to, GVM_REGION_NONE, by);
}

GVM_DEVICE void gvm_region_do(gvm_region_table *t, uint64_t job, uint32_t by)
{
    if ((job & GVM_REGION_COPY) != 0 && t->sums == 0)
        gvm_region_copy(t, gvm_region_job_to(job), gvm_region_job_from(job), by);
    else
        gvm_region_do_rarely(t, job, by);
    gvm_region_join(by);
}

/* What is to be done before the victim's frame can be another region's. */
GVM_DEVICE uint64_t gvm_region_evict_job(const gvm_region_table *t, const gvm_region_search *s)
{
    if (s->victim == GVM_REGION_NONE)
        return 0;
    if ((s->taken & GVM_REGION_DIRTY) != 0)
        return gvm_region_copy_job(t->home + s->victim, s->frame);
    return t->sums != 0 ? GVM_REGION_SUM_UP | (uint64_t)s->frame << GVM_REGION_SLOT_BITS | s->victim
                        : 0;
}

/* The map fails: its reference goes. */
GVM_DEVICE uint64_t gvm_region_fail(const gvm_region_table *t, uint32_t region, uint32_t code)
{
    gvm_region_report(t, code, region);
    gvm_add_release_u64(gvm_region_word(t, region), 0 - GVM_REGION_REFERENCE);
    return GVM_REGION_DONE;
}

/* The region is where s->own says, and stays there. */
GVM_DEVICE_RARE uint64_t gvm_region_end_map(const gvm_region_table *t, const gvm_region_search *s)
{
    if ((s->access & GVM_REGION_WRITE) != 0) {
        gvm_region_list_change(t, s->region);
        if ((s->own & GVM_REGION_REMOTE) == 0)
            gvm_atomic_or_u64(gvm_region_word(t, s->region), GVM_REGION_DIRTY | GVM_REGION_LISTED);
    }
    return GVM_REGION_DONE | GVM_REGION_RESIDENT |
           (s->own & (GVM_REGION_SLOT_MASK | GVM_REGION_REMOTE));
}

/* Whether it is worth trying to bring a region to a frame that is used at its home: with STATIC there is none once
 * all were looked at. */
GVM_DEVICE int gvm_region_may_find_frame(const gvm_region_table *t)
{
    return gvm_load_consume_u32(&t->policy) != GVM_REGION_STATIC ||
           gvm_load_acquire_u64(&t->fresh) < gvm_load_acquire_u32(&t->frame_count);
}

/* Claims the region, if its word is still what was seen. What else will be needed is read at the same time: none of it waits for
 * another. The record is read under a reference that was taken before the word was seen without BUSY. The claim acquires nothing:
 * what the region's home has was acquired with that word. */
GVM_DEVICE uint64_t gvm_region_begin(gvm_region_table *t, gvm_region_search *s)
{
    uint64_t *at = gvm_region_word(t, s->region);
    const uint32_t flags = gvm_load_consume_u32(&gvm_region_record_of(t, s->region)->flags),
                   layout = (uint32_t)t->layout;
    uint64_t found;

    if (gvm_load_consume_u32(&t->policy) != GVM_REGION_STATIC && s->drawn == GVM_REGION_UNDRAWN)
        s->drawn = gvm_region_count_up(&t->hand);
    found = gvm_atomic_cas_u64(at, s->own, s->own | GVM_REGION_BUSY);
    if (found != s->own) {
        s->own = gvm_load_acquire_u64(at);
    } else if ((flags & GVM_REGION_LIVE) == 0 || layout != GVM_REGION_LAYOUT) {
        gvm_region_settle(t, s->region, s->own, s->own & GVM_REGION_PLACE);
        return gvm_region_fail(
            t, s->region, layout != GVM_REGION_LAYOUT ? GVM_REGION_OTHER_LAYOUT : GVM_REGION_NO_SUCH);
    } else {
        s->stage = t->clean_low != 0 ? GVM_REGION_CLEANS : GVM_REGION_FIND;
    }
    return 0;
}

/* Claims the region if it is not in a frame, and this thread may bring it there. 0: go on with s->stage; else a job. */
GVM_DEVICE_RARE uint64_t gvm_region_look(gvm_region_table *t, gvm_region_search *s)
{
    uint64_t *at = gvm_region_word(t, s->region);
    const uint64_t word = s->own;
    uint64_t job = 0;

    if ((word & (GVM_REGION_CROWDED | GVM_REGION_BUSY)) != 0) {
        const uint64_t now_ns = gvm_clock_ns();

        if (t->shares != 0)
            gvm_region_finish_piece(t, s); /* its copy waits for it, also if this map ends here */
        if (s->until_ns == 0)
            s->until_ns = now_ns + t->wait_ns;
        else if (now_ns > s->until_ns)
            return gvm_region_fail(
                t, s->region, (word & GVM_REGION_CROWDED) != 0 ? GVM_REGION_SPOILT : GVM_REGION_LATE);
        s->own = gvm_load_acquire_u64(at);
        if (t->shares != 0)
            job = gvm_region_take_piece(t, s);
        if (job == 0)
            gvm_pause();
        return job;
    }
    if ((word & GVM_REGION_RESIDENT) != 0 &&
        ((word & GVM_REGION_REMOTE) == 0 ||
         (word & GVM_REGION_REFERENCES) != GVM_REGION_REFERENCE || !gvm_region_may_find_frame(t)))
        s->stage = GVM_REGION_MAPPED;
    else
        job = gvm_region_begin(t, s);
    return job;
}

/* The claim of the region ends, and it is at a place. */
GVM_DEVICE void gvm_region_place(const gvm_region_table *t, gvm_region_search *s, uint64_t place)
{
    gvm_region_settle(t, s->region, s->own, place);
    s->own = place;
    s->stage = GVM_REGION_MAPPED;
}

/* With the region claimed: 0, or a job. Without a frame the region is used at its home. */
GVM_DEVICE_RARE uint64_t gvm_region_search_frame(gvm_region_table *t, gvm_region_search *s)
{
    if (gvm_region_find_frame(t, s)) {
        s->stage = s->victim == GVM_REGION_NONE ? GVM_REGION_FILL : GVM_REGION_EVICT;
        return gvm_region_evict_job(t, s);
    }
    gvm_region_place(t, s,
                     GVM_REGION_RESIDENT | GVM_REGION_REMOTE |
                         (uint64_t)(t->home + s->region) << GVM_REGION_SLOT_SHIFT);
    gvm_region_count_up(&t->remote);
    return 0;
}

/* The frame is the region's: 0, or a job. */
GVM_DEVICE_RARE uint64_t gvm_region_fill(gvm_region_table *t, gvm_region_search *s)
{
    const int is_full = s->stage == GVM_REGION_END;

    s->stage = GVM_REGION_END;
    if (!is_full && (s->access & GVM_REGION_READWRITE) != GVM_REGION_WRITE) {
        gvm_region_count_up(&t->fetched);
        return gvm_region_copy_job(s->frame, t->home + s->region);
    }
    if (!is_full && t->sums != 0)
        return GVM_REGION_EMPTY | (uint64_t)s->frame << GVM_REGION_SLOT_BITS;
    gvm_region_note(&gvm_region_frame_of(t, s->frame)->seen, gvm_region_uses_in(s->own) | s->note);
    gvm_region_place(t, s, GVM_REGION_RESIDENT | (uint64_t)s->frame << GVM_REGION_SLOT_SHIFT);
    return 0;
}

/* What else there is to do for all who need frames. */
GVM_DEVICE_RARE uint64_t gvm_region_clean_step(gvm_region_table *t, gvm_region_search *s)
{
    const uint64_t job = gvm_region_clean_next(t, &s->cleaning);

    if (job == 0)
        s->stage = GVM_REGION_FIND;
    return job;
}

/* The map has made up for an unmap too many, and nothing says that it has a reference. The word gets the middle of what is CROWDED, where
 * maps and unmaps leave it. */
GVM_DEVICE_RARE uint64_t gvm_region_spoil(const gvm_region_table *t, uint32_t region)
{
    gvm_atomic_add_u64(gvm_region_word(t, region), GVM_REGION_CROWDED + GVM_REGION_CROWDED / 2);
    return gvm_region_fail(t, region, GVM_REGION_SPOILT);
}

/* The leader's next step: 0 if there are more, or a job. A copy of a large region comes in pieces. */
GVM_DEVICE uint64_t gvm_region_step(gvm_region_table *t, gvm_region_search *s)
{
    uint64_t job = 0;

    if (s->stage == GVM_REGION_LOOK)
        job = gvm_region_look(t, s);
    else if (s->stage == GVM_REGION_CLEANS)
        job = gvm_region_clean_step(t, s);
    else if (s->stage == GVM_REGION_FIND)
        job = gvm_region_search_frame(t, s);
    else if (s->stage == GVM_REGION_EVICT)
        gvm_region_finish_evicting(t, s);
    else if (s->stage == GVM_REGION_MAPPED)
        return gvm_region_end_map(t, s);
    else if (s->stage == GVM_REGION_SHARE)
        return gvm_region_copy_more(t, s);
    else if (s->stage == GVM_REGION_SPOIL)
        return gvm_region_spoil(t, s->region);
    else
        job = gvm_region_fill(t, s);
    if ((job & GVM_REGION_COPY) == 0 || t->shares == 0)
        return job;
    gvm_region_open_copy(t, s, job);
    return 0;
}

/* A leader begins: word is as it was before it has counted its reference and use. */
GVM_DEVICE void gvm_region_begin_map(gvm_region_search *s, uint32_t region, uint32_t access,
                                     uint64_t word)
{
    s->region = region;
    s->access = access;
    s->stage = s->next = GVM_REGION_LOOK;
    s->frame = s->looks = s->has_piece = 0;
    s->victim = GVM_REGION_NONE;
    s->until_ns = 0;
    s->cleaning = GVM_REGION_CLEAN_NOTHING;
    s->drawn = GVM_REGION_UNDRAWN;
    s->own = word + GVM_REGION_REFERENCE + GVM_REGION_USE;
    if ((word & ~s->own & GVM_REGION_CROWDED) != 0)
        s->stage = GVM_REGION_SPOIL;
}

/* A reference and a use are counted already; word: as it was before that, or as it was seen last without them. Returns RESIDENT,
 * REMOTE and the slot, or 0. */
GVM_DEVICE uint64_t gvm_region_map_slowly_by(uint64_t table, uint32_t region, uint32_t access,
                                             uint64_t word, uint32_t by)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)table;
    const int leads = gvm_region_rank(by) == 0;
    gvm_region_search s;
    uint64_t job = 0;

    gvm_region_begin_map(&s, region, access, word);
    if (leads && !gvm_region_is_whole(by))
        job = gvm_region_fail(t, region, GVM_REGION_NOT_WHOLE);
    GVM_NO_UNROLL
    for (;; job = 0) {
        while (leads && job == 0)
            job = gvm_region_step(t, &s);
        job = gvm_region_tell(by, job);
        if ((job & GVM_REGION_DONE) != 0)
            return job & ~GVM_REGION_DONE;
        gvm_region_do(t, job, by);
    }
}

GVM_DEVICE_RARE uint64_t gvm_region_map_slowly(uint64_t table, uint32_t region, uint32_t access,
                                               uint64_t word)
{
    return gvm_region_map_slowly_by(table, region, access, word, GVM_REGION_BY_THREAD);
}

GVM_DEVICE_RARE uint64_t gvm_region_map_slowly_warp(uint64_t table, uint32_t region,
                                                    uint32_t access, uint64_t word)
{
    return gvm_region_map_slowly_by(table, region, access, word, GVM_REGION_BY_WARP);
}

GVM_DEVICE_RARE uint64_t gvm_region_map_slowly_block(uint64_t table, uint32_t region,
                                                     uint32_t access, uint64_t word)
{
    return gvm_region_map_slowly_by(table, region, access, word, GVM_REGION_BY_BLOCK);
}

GVM_DEVICE uint64_t gvm_region_miss(uint64_t table, uint32_t region, uint32_t access, uint64_t word,
                                    uint32_t by)
{
    return by == GVM_REGION_BY_THREAD ? GVM_FAR(gvm_region_map_slowly)(table, region, access, word)
           : by == GVM_REGION_BY_WARP
               ? GVM_FAR(gvm_region_map_slowly_warp)(table, region, access, word)
               : GVM_FAR(gvm_region_map_slowly_block)(table, region, access, word);
}

/* A number that no region has. */
GVM_DEVICE_RARE uint64_t gvm_region_refuse(uint64_t table, uint32_t region)
{
    gvm_region_report((const gvm_region_table *)(uintptr_t)table, GVM_REGION_NO_SUCH, region);
    return 0;
}

/* What a word says if the map is over with it. */
GVM_DEVICE int gvm_region_is_hit(uint64_t word, uint32_t access)
{
    const uint64_t all = GVM_REGION_RESIDENT | GVM_REGION_BUSY | GVM_REGION_REMOTE | GVM_REGION_CROWDED;

    return (access & GVM_REGION_WRITE) != 0
               ? (word & (all | GVM_REGION_LISTED)) == (GVM_REGION_RESIDENT | GVM_REGION_LISTED)
               : (word & all) == GVM_REGION_RESIDENT;
}

/* The leader counts a reference and a use. Returns, to all, the word before; 0 where there is no such region. */
GVM_DEVICE uint64_t gvm_region_count_map(const gvm_region_view *view, uint32_t region, uint32_t by)
{
    uint64_t word = 0;

    if (region >= view->count)
        return gvm_region_rank(by) == 0 ? GVM_FAR(gvm_region_refuse)(view->table, region) : 0;
    if (gvm_region_rank(by) == 0)
        word = gvm_atomic_add_acquire_u64((uint64_t *)(uintptr_t)view->words + region,
                                          GVM_REGION_REFERENCE + GVM_REGION_USE);
    return gvm_region_tell(by, word);
}

GVM_DEVICE uint64_t gvm_region_map_as(const gvm_region_view *view, uint32_t region, uint32_t access,
                                      uint32_t by)
{
    const uint64_t word = gvm_region_count_map(view, region, by);

    return region >= view->count || gvm_region_is_hit(word, access)
               ? word
               : gvm_region_miss(view->table, region, access, word, by);
}

GVM_DEVICE const gvm_region_table *gvm_region_table_of(const gvm_region_view *view)
{
    return (const gvm_region_table *)(uintptr_t)view->table;
}

GVM_DEVICE void *gvm_region_pointer(const gvm_region_view *view, uint64_t word)
{
    if ((word & GVM_REGION_REMOTE) != 0 && (view->flags & GVM_REGION_VIEW_SHAPED) != 0)
        return GVM_FAR(gvm_region_window)(gvm_region_table_of(view),
                                          gvm_region_slot_in(word) - view->home);
    return (word & GVM_REGION_RESIDENT) != 0
               ? (void *)(uintptr_t)(view->address + gvm_region_slot_in(word) * view->stride_bytes)
               : (void *)0;
}

GVM_DEVICE void *gvm_region_map(const gvm_region_view *view, uint32_t region, uint32_t access)
{
    return gvm_region_pointer(view, gvm_region_map_as(view, region, access, GVM_REGION_BY_THREAD));
}

GVM_DEVICE void *gvm_region_map_warp(const gvm_region_view *view, uint32_t region, uint32_t access)
{
    return gvm_region_pointer(view, gvm_region_map_as(view, region, access, GVM_REGION_BY_WARP));
}

GVM_DEVICE void *gvm_region_map_block(const gvm_region_view *view, uint32_t region, uint32_t access)
{
    return gvm_region_pointer(view, gvm_region_map_as(view, region, access, GVM_REGION_BY_BLOCK));
}

/* ---- unmapping */

/* In check mode: was it mapped so often? If not, its word stays as it is. */
GVM_DEVICE_RARE void gvm_region_drop_checked(uint64_t table, uint32_t region, uint32_t count)
{
    const gvm_region_table *t = (const gvm_region_table *)(uintptr_t)table;
    const uint64_t references = count * GVM_REGION_REFERENCE;
    uint64_t *at = gvm_region_word(t, region), word, seen = gvm_load_consume_u64(at);

    do {
        word = seen;
        if ((word & GVM_REGION_REFERENCES) < references) {
            gvm_region_report(t, GVM_REGION_NOT_MAPPED, region);
            return;
        }
        seen = gvm_atomic_cas_release_u64(at, word, word - references);
    } while (seen != word);
}

/* One thread: takes back references. */
GVM_DEVICE void gvm_region_drop(const gvm_region_view *view, uint32_t region, uint32_t count)
{
    if (region >= view->count)
        (void)GVM_FAR(gvm_region_refuse)(view->table, region);
    else if ((view->flags & GVM_REGION_VIEW_CHECKED) != 0)
        GVM_FAR(gvm_region_drop_checked)(view->table, region, count);
    else
        gvm_add_release_u64((uint64_t *)(uintptr_t)view->words + region,
                            0 - count * GVM_REGION_REFERENCE);
}

GVM_DEVICE void gvm_region_unmap_as(const gvm_region_view *view, uint32_t region, uint32_t by)
{
    gvm_region_join(by);
    if (gvm_region_rank(by) == 0)
        gvm_region_drop(view, region, 1);
}

GVM_DEVICE void gvm_region_unmap(const gvm_region_view *view, uint32_t region)
{
    gvm_region_unmap_as(view, region, GVM_REGION_BY_THREAD);
}

GVM_DEVICE void gvm_region_unmap_warp(const gvm_region_view *view, uint32_t region)
{
    gvm_region_unmap_as(view, region, GVM_REGION_BY_WARP);
}

GVM_DEVICE void gvm_region_unmap_block(const gvm_region_view *view, uint32_t region)
{
    gvm_region_unmap_as(view, region, GVM_REGION_BY_BLOCK);
}

/* ---- places */

GVM_DEVICE int gvm_region_is_window(const gvm_region_view *view, const void *address)
{
    return (view->flags & GVM_REGION_VIEW_SHAPED) != 0 &&
           (uint64_t)(uintptr_t)address >= view->address + view->home * view->stride_bytes;
}

GVM_DEVICE_RARE uint32_t gvm_region_window_slot(const gvm_region_table *t, uint64_t address)
{
    uint64_t at = address - gvm_region_homes(t), number;

    number = at / t->shape.slice_pitch_bytes / t->shape.depth * t->rows;
    at %= t->shape.slice_pitch_bytes;
    number = (number + at / t->shape.row_pitch_bytes / t->shape.height) * t->columns;
    at %= t->shape.row_pitch_bytes;
    return t->home + (uint32_t)(number + at / t->shape.width_bytes);
}

GVM_DEVICE uint32_t gvm_region_slot(const gvm_region_view *view, const void *address)
{
    if (gvm_region_is_window(view, address))
        return GVM_FAR(gvm_region_window_slot)(gvm_region_table_of(view), (uint64_t)(uintptr_t)address);
    return (uint32_t)(((uint64_t)(uintptr_t)address - view->address) / view->stride_bytes);
}

GVM_DEVICE uint64_t gvm_region_pitch(const gvm_region_view *view, const void *address)
{
    const gvm_region_shape *shape = &gvm_region_table_of(view)->shape;

    if ((view->flags & GVM_REGION_VIEW_SHAPED) == 0)
        return view->region_bytes;
    return gvm_region_is_window(view, address) ? shape->row_pitch_bytes : shape->width_bytes;
}

GVM_DEVICE uint64_t gvm_region_slice_pitch(const gvm_region_view *view, const void *address)
{
    const gvm_region_shape *shape = &gvm_region_table_of(view)->shape;

    if ((view->flags & GVM_REGION_VIEW_SHAPED) == 0)
        return view->region_bytes;
    return gvm_region_is_window(view, address) ? shape->slice_pitch_bytes
                                               : shape->width_bytes * shape->height;
}

#endif /* GVM_KERNEL */
#endif
