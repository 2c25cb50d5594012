/* query/kernel_partial.h - partial aggregation: groups that a block has in its shared memory, so that few groups
 * are not bound by atomic operations on the same words of device memory. Device code.
 *
 * Before the stack are the states of p->local_groups groups, then their keys, then *tags* by which a row's keys
 * find the group: open addressing, linear probing, four tags a group. Groups are numbered as they come. A state is
 * there in several *copies*, one for each so many
 * threads: lanes of a warp add to words that are beside each other, each to its own bank of shared memory. The
 * first LOCAL_MANY groups have p->local_copies, for where groups are few many lanes have the same; the others have
 * a sixteenth of that.
 *
 * Counts and sums of integers are words of 32 bits, which shared memory adds to by itself; what does not fit goes
 * to the next word. A sum's four words are signed, so that small values of both signs change the first one alone.
 * Others change by compare and swap.
 *
 * A row whose keys are not among these groups goes to the table in device memory (kernel_groups.h), and at the end
 * so do the groups. A thread whose rows mostly do so looks here no more until the next *review*, which all of the
 * block have every few tiles: where most do not look here and no group has room, the groups go to the table and
 * others begin here, if there have been many rows for each; if not, the block does without.
 *
 * Threads: any of the block; local_begin(), local_review() and local_end(): all of it.
 */
#ifndef GQUERY_KERNEL_PARTIAL_H
#define GQUERY_KERNEL_PARTIAL_H

#include "query/kernel_groups.h"
#include "query/kernel_machine.h"

#define TAG_CLAIMED 1u       /* keys are about to be there */
#define TAG_NO_ROOM 2u       /* there are as many groups as there may be */
#define TAG_READY (1u << 31) /* below: the group's number, then 8 bits, which keys are NULL */
#define TAG_PROBES 8u
/* What a thread notes: rows that were not here less those that were, in 8 bits; tiles since the review, in 8 bits;
 * rows that were here. */
#define LOCAL_MISSES 24u /* so many, and the thread looks here no more */
#define LOCAL_MISSES_MASK 0xffu
#define LOCAL_TILE (1u << 8)
#define LOCAL_HIT (1u << 16)
#define LOCAL_HITS_MAX (1u << 31) /* counts have 32 bits */
#define LOCAL_ROWS 16u            /* for each group, so that it is of use here */
/* Words behind the tags. */
enum { COUNT_GROUPS, COUNT_HITS, COUNT_AWAY, COUNTS_OFF }; /* GQUERY_LOCAL_COUNTS */

/* The first word of the states. */
GVM_DEVICE uint64_t *local_words(void)
{
    return (uint64_t *)gvm_shared();
}

GVM_DEVICE uint64_t *local_keys(const gquery_scan *p)
{
    return (uint64_t *)gvm_shared() + p->local_keys_at;
}

GVM_DEVICE uint32_t *local_tags(const gquery_scan *p)
{
    return (uint32_t *)((uint64_t *)gvm_shared() + p->local_tags_at);
}

/* COUNT_GROUPS: counts on where there is no room. COUNT_HITS: rows, since there are these groups. COUNT_AWAY:
 * threads that do not look here. COUNTS_OFF: none does any more. */
GVM_DEVICE uint32_t *local_counts(const gquery_scan *p)
{
    return local_tags(p) + p->local_groups * GQUERY_LOCAL_TAGS;
}

/* The first copy of a group's state: its words are *copies words from each other. */
GVM_DEVICE uint32_t local_state(const gquery_scan *p, uint32_t group, uint32_t *copies)
{
    const uint32_t many = GQUERY_LOCAL_MANY * p->local_copies;

    *copies = group < GQUERY_LOCAL_MANY ? p->local_copies : p->local_copies / GQUERY_LOCAL_FEWER;
    return (group < GQUERY_LOCAL_MANY ? group * p->local_copies
                                      : many + (group - GQUERY_LOCAL_MANY) * *copies) *
           p->state_words;
}

GVM_DEVICE void local_begin(const gquery_scan *p)
{
    const gquery_program *program = (const gquery_program *)(uintptr_t)p->program;
    const uint32_t states = GQUERY_LOCAL_STATES(p->local_groups, p->local_copies);
    const uint32_t many = GQUERY_LOCAL_MANY * p->local_copies;
    uint32_t *tags = local_tags(p), *halves = (uint32_t *)local_words(), i, at;

    for (i = gvm_thread(); i < p->local_groups * GQUERY_LOCAL_TAGS + GQUERY_LOCAL_COUNTS;
         i += gvm_block_threads())
        tags[i] = 0;
    for (i = gvm_thread(); i < 2 * states * p->state_words; i += gvm_block_threads())
        halves[i] = 0;
    gvm_block_sync();
    for (at = 0; at < program->code_count; at++) {
        const gquery_instruction in = program->code[at];

        if ((in.op & GQUERY_OPERATION) != GQUERY_AGGREGATE || in.b <= GQUERY_SUM_I64)
            continue;
        for (i = gvm_thread(); i < states; i += gvm_block_threads()) {
            const uint32_t copies = i < many ? p->local_copies : p->local_copies / GQUERY_LOCAL_FEWER;
            const uint32_t copy = (i - (i < many ? 0 : many)) & (copies - 1);

            local_words()[(i - copy) * p->state_words + in.a * copies + copy] = first_word(in.b);
        }
    }
    gvm_block_sync();
}

/* ---- which group */

/* Where a group's tag is, if not behind that: of 12 bits of a hash. */
GVM_DEVICE uint32_t mix_local(uint32_t hash, uint64_t key)
{
    hash = (hash ^ (uint32_t)key ^ (uint32_t)(key >> 32) * 0x85ebca6bu) * 0x9e3779b1u;
    return hash ^ hash >> 15;
}

GVM_DEVICE uint32_t first_tag(const gquery_scan *p, uint32_t hash)
{
    return hash >> 20 & (p->local_groups * GQUERY_LOCAL_TAGS - 1);
}

/* The tag was 0: what it is now. */
GVM_DEVICE uint32_t claim_tag(const gquery_scan *p, uint32_t *tag, const row_keys *keys)
{
    uint32_t group, k;
    const uint32_t old = gvm_atomic_cas_u32(tag, 0, TAG_CLAIMED);
    uint64_t *own;

    if (old != 0)
        return old;
    group = gvm_atomic_add_u32(&local_counts(p)[COUNT_GROUPS], 1);
    if (group >= p->local_groups) {
        gvm_store_release_u32_block(tag, TAG_NO_ROOM);
        return TAG_NO_ROOM;
    }
    own = local_keys(p) + group * p->keys;
    GVM_NO_UNROLL
    for (k = 0; k < keys->count; k++)
        own[k] = keys->values[k * keys->pitch];
    gvm_store_release_u32_block(tag, TAG_READY | keys->nulls << 16 | group);
    return TAG_READY | keys->nulls << 16 | group;
}

GVM_DEVICE int has_local_keys(const gquery_scan *p, uint32_t group, const row_keys *keys)
{
    const uint64_t *own = local_keys(p) + group * p->keys;
    uint32_t k;

    GVM_NO_UNROLL
    for (k = 0; k < keys->count; k++)
        if (own[k] != keys->values[k * keys->pitch])
            return 0;
    return 1;
}

/* What stands for this thread's copy of a group's state, in place of an address: those are multiples of 8. */
GVM_DEVICE uint64_t local_handle(const gquery_scan *p, uint32_t group)
{
    uint32_t copies;
    const uint32_t first = local_state(p, group, &copies);

    return (uint64_t)(first + (gvm_thread() & (copies - 1))) << 32 | copies << 1 | 1;
}

GVM_DEVICE uint64_t probe_local(const gquery_scan *p, const row_keys *keys)
{
    const uint32_t mask = p->local_groups * GQUERY_LOCAL_TAGS - 1;
    uint32_t probes, k, at, hash = 0;

    GVM_NO_UNROLL
    for (k = 0; k < keys->count; k++)
        hash = mix_local(hash, keys->values[k * keys->pitch]);
    at = first_tag(p, hash);
    for (probes = 0; probes < TAG_PROBES; probes++) {
        uint32_t *tag = local_tags(p) + at, word = gvm_load_acquire_u32_block(tag);

        if (word == 0)
            word = claim_tag(p, tag, keys);
        while (word == TAG_CLAIMED) {
            gvm_pause();
            word = gvm_load_acquire_u32_block(tag);
        }
        if (word == TAG_NO_ROOM)
            break;
        if ((word >> 16 & 0xff) == keys->nulls && has_local_keys(p, word & 0xffff, keys))
            return local_handle(p, word & 0xffff);
        at = (at + 1) & mask;
    }
    return 0;
}

/* Whether the counts have bits for the rows of another tile before the next review. With joins a row counts once
 * for each of its matches: when a thread's note is full, it adds it to the block's count. */
GVM_DEVICE int has_count(const gquery_scan *p, machine *m)
{
#ifdef GQUERY_JOINED
    uint32_t *hits = &local_counts(p)[COUNT_HITS];

    if (m->local < 0u - EACH * LOCAL_HIT)
        return 1;
    if (gvm_load_consume_u32(hits) >= LOCAL_HITS_MAX)
        return 0;
    gvm_atomic_add_u32(hits, m->local / LOCAL_HIT);
    m->local %= LOCAL_HIT;
#else
    (void)p;
    (void)m;
#endif
    return 1;
}

/* Whether the thread searches shared memory for groups. */
GVM_DEVICE int looks_here(const gquery_scan *p, machine *m)
{
    return p->local_groups > 0 && (m->local & LOCAL_MISSES_MASK) < LOCAL_MISSES && has_count(p, m);
}

/* The groups of so many rows were in shared memory. */
GVM_DEVICE void note_hits(machine *m, uint32_t rows)
{
    const uint32_t misses = m->local & LOCAL_MISSES_MASK;

    m->local += rows * LOCAL_HIT - (rows < misses ? rows : misses);
}

/* The handle of the group with these keys, which is there now if there was room; otherwise 0. */
GVM_DEVICE uint64_t find_local(const gquery_scan *p, machine *m, const row_keys *keys)
{
    uint64_t handle;

    if (!looks_here(p, m))
        return 0;
    handle = probe_local(p, keys);
    if (handle == 0)
        m->local += 1;
    else
        note_hits(m, 1);
    return handle;
}

/* Looks for the groups of all active rows at once, without a branch, at the first tag of each row's keys, which are
 * on the stack from `first` on. Returns the rows whose groups are there; their handles are behind the stack. */
GVM_DEVICE uint32_t find_local_rows(const gquery_scan *p, machine *m, uint32_t first, uint32_t count)
{
    uint32_t tags[EACH] = {0}, r, k, found = m->active;

    GVM_NO_UNROLL
    for (k = 0; k < count; k++) {
        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            tags[r] = mix_local(tags[r], *place(m, first + k, r));
    }
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        tags[r] = gvm_load_acquire_u32_block(local_tags(p) + first_tag(p, tags[r]));
    GVM_NO_UNROLL
    for (k = 0; k < count; k++) {
        const uint32_t nulls = nulls_of(m, first + k);

        GVM_UNROLL
        for (r = 0; r < EACH; r++)
            found &= ~(
                (uint32_t)((local_keys(p)[(tags[r] & 0xffff) * count + k] != *place(m, first + k, r)) |
                           ((tags[r] >> (16 + k) & 1) != (nulls >> r & 1)))
                << r);
    }
    GVM_UNROLL
    for (r = 0; r < EACH; r++) {
        if ((tags[r] & TAG_READY) == 0)
            found &= ~(1u << r);
        if (has(found, r))
            *place(m, p->depth, r) = local_handle(p, tags[r] & 0xffff);
    }
    note_hits(m, gvm_count_ones(found));
    return found;
}

GVM_DEVICE int is_local(uint64_t handle)
{
    return (handle & 1) != 0;
}

/* ---- values into states */

/* What goes to the next word of a sum, when v was added to a word of 32 bits that was `old`. */
GVM_DEVICE int64_t carry_of(uint32_t old, int64_t v)
{
    const int32_t low = (int32_t)(uint32_t)v;
    const int64_t sum = (int64_t)(int32_t)old + low;

    return (v >> 32) + (low < 0) + ((sum - (int32_t)(uint32_t)sum) >> 32);
}

/* To the words of a sum behind its first one; those of one copy are so far from each other. */
GVM_DEVICE void add_carry(uint32_t *word, uint32_t pitch, int64_t v)
{
    uint32_t i;

    GVM_NO_UNROLL
    for (i = 1; i < 4 && v != 0; i++)
        v = carry_of(gvm_atomic_add_u32(word + i * pitch, (uint32_t)v), v);
}

/* The place of the word `first` of a state, or of the first 32 bits of it. */
GVM_DEVICE uint32_t *local_half(uint64_t handle, uint32_t first)
{
    const uint32_t copies = (uint32_t)handle >> 1, at = (uint32_t)(handle >> 32);
    const uint32_t copy = at & (copies - 1);

    return (uint32_t *)(local_words() + at - copy + first * copies) + copy;
}

/* Adds to counts and sums of integers, of these rows those whose groups are in shared memory. Returns the others. */
GVM_DEVICE uint32_t add_local_rows(const gquery_scan *p, machine *m, uint32_t first,
                                   uint32_t aggregate, uint32_t rows)
{
    uint32_t r, rest = rows;

    GVM_UNROLL
    for (r = 0; r < EACH; r++) {
        const uint64_t handle = *place(m, p->depth, r);
        const uint32_t copies = (uint32_t)handle >> 1;
        const uint32_t v = aggregate <= GQUERY_COUNT ? 1 : (uint32_t)m->top[r];
        uint32_t *half, old;
        int64_t carry;

        if (!has(rows, r) || !is_local(handle))
            continue;
        rest &= ~(1u << r);
        half = local_half(handle, first);
        old = gvm_atomic_add_u32(half, v);
        if (aggregate <= GQUERY_COUNT)
            continue;
        carry = carry_of(old, (int64_t)m->top[r]);
        if (carry != 0)
            add_carry(half, copies, carry);
    }
    return rest;
}

/* Of the other aggregates. */
GVM_DEVICE void add_to_local(uint64_t handle, uint32_t first, uint32_t aggregate, uint64_t v)
{
    const uint32_t copies = (uint32_t)handle >> 1, at = (uint32_t)(handle >> 32);
    uint64_t *word = local_words() + at + first * copies, old, next, wanted;

    if (aggregate == GQUERY_SUM_F64) {
        gvm_atomic_add_f64((double *)(void *)word, to_double(v));
    } else if (aggregate == GQUERY_MOMENTS_F64) {
        add_moments(word, copies, moments_of(v));
    } else {
        for (old = gvm_load_consume_u64(word);; old = next) {
            wanted = fold(aggregate, old, v);
            if (wanted == old)
                break;
            next = gvm_atomic_cas_u64(word, old, wanted);
            if (next == old)
                break;
        }
    }
}

/* ---- the end */

/* What all copies have of an aggregate, into the group's state in device memory. */
GVM_DEVICE void flush_aggregate(const gquery_scan *p, uint32_t group, gquery_instruction in,
                                uint64_t *to)
{
    uint32_t copies, copy, i;
    const uint64_t *word = local_words() + local_state(p, group, &copies) + in.a * copies;
    const uint32_t *half = (const uint32_t *)word;
    uint64_t v = first_word(in.b);
    unsigned __int128 sum = 0;

    GVM_ASSUME_GLOBAL(to);
    if (in.b == GQUERY_SUM_I64) {
        for (copy = 0; copy < copies; copy++)
            for (i = 0; i < 4; i++)
                sum += (unsigned __int128)(int32_t)half[i * copies + copy] << 32 * i;
        add_wide(to, (uint64_t)sum, (uint64_t)(sum >> 64));
        return;
    }
    if (in.b == GQUERY_MOMENTS_F64) {
        GVM_NO_UNROLL
        for (copy = 0; copy < copies; copy++)
            add_moments(to, 1, load_moments(word + copy, copies));
        return;
    }
    for (copy = 0; copy < copies; copy++)
        v = fold(in.b, v, in.b <= GQUERY_COUNT ? half[copy] : word[copy]);
    if (in.b <= GQUERY_COUNT)
        gvm_atomic_add_u64(to, v);
    else
        add_to_group(in.b, to, v);
}

/* A group's slot in device memory: its address is where its keys were. */
GVM_DEVICE void flush_keys(const gquery_scan *p)
{
    const uint32_t *tags = local_tags(p);
    uint32_t i;

    for (i = gvm_thread(); i < p->local_groups * GQUERY_LOCAL_TAGS; i += gvm_block_threads())
        if ((tags[i] & TAG_READY) != 0) {
            uint64_t *own = local_keys(p) + (tags[i] & 0xffff) * p->keys;
            const row_keys keys = {own, 1, p->keys, tags[i] >> 16 & 0xff};

            *own = find_group((gquery_groups *)(uintptr_t)p->groups, &keys, hash_keys(&keys));
        }
}

/* Where the device's table is full, groups are left out as rows are. */
GVM_DEVICE void local_end(const gquery_scan *p)
{
    const gquery_program *program = (const gquery_program *)(uintptr_t)p->program;
    uint32_t groups, i;

    gvm_block_sync();
    groups = local_counts(p)[COUNT_GROUPS];
    groups = groups < p->local_groups ? groups : p->local_groups;
    flush_keys(p);
    gvm_block_sync();
    for (i = gvm_thread(); i < groups * program->code_count; i += gvm_block_threads()) {
        const uint32_t group = i / program->code_count;
        const gquery_instruction in = program->code[i % program->code_count];
        const uint64_t to = local_keys(p)[group * p->keys];

        if ((in.op & GQUERY_OPERATION) == GQUERY_AGGREGATE && to != 0)
            flush_aggregate(p, group, in, (uint64_t *)(uintptr_t)to + in.a);
    }
}

/* ---- reviews */

/* Other groups may come: those that are here are in the table. */
GVM_DEVICE_RARE void local_restart(const gquery_scan *p)
{
    local_end(p);
    gvm_block_sync();
    local_begin(p);
}

/* Before each tile: what the thread notes from now on. */
GVM_DEVICE uint32_t local_review(const gquery_scan *p, uint32_t notes)
{
    uint32_t *counts = local_counts(p), is_left, hits;

    notes += LOCAL_TILE;
    if (notes / LOCAL_TILE % (LOCAL_HIT / LOCAL_TILE) < p->local_tiles)
        return notes;
    if (counts[COUNTS_OFF] != 0)
        return LOCAL_MISSES;
    gvm_atomic_add_u32(&counts[COUNT_HITS], notes / LOCAL_HIT);
    gvm_atomic_add_u32(&counts[COUNT_AWAY], (notes & LOCAL_MISSES_MASK) >= LOCAL_MISSES);
    gvm_block_sync();
    hits = counts[COUNT_HITS];
    is_left = counts[COUNT_GROUPS] > p->local_groups && 2 * counts[COUNT_AWAY] > gvm_block_threads();
    if (hits >= LOCAL_HITS_MAX || (is_left && hits >= LOCAL_ROWS * p->local_groups)) {
        local_restart(p);
        return 0;
    }
    gvm_block_sync();
    if (gvm_thread() == 0) {
        counts[COUNT_AWAY] = 0;
        counts[COUNTS_OFF] = is_left;
    }
    gvm_block_sync();
    return is_left ? LOCAL_MISSES : 0;
}

#endif
