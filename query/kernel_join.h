/* query/kernel_join.h - joins: rows of inner tables by their keys, into hash tables and out of them. Device code.
 *
 * The number of the inner row that a row has found is behind the stack, one for each table that is joined; all
 * ones: it has found none. A row with several matches goes through the program once for each: `more` has a bit for
 * each row and table, and after the program the innermost table that has another match for a row takes that; the
 * program goes on behind its GQUERY_PROBE. Tables behind that are looked up anew.
 *
 * A condition on the pair is between GQUERY_PROBE and GQUERY_MATCH. There the program ends, and begins anew behind
 * the probe for the rows that have others with the same keys, or, once no row has, behind GQUERY_MATCH for those
 * that go on. A row that takes another match of a left join comes by its GQUERY_MATCH, too, and is out if there is
 * none.
 *
 * A slot's state is FREE, CLAIMED or READY. Of READY slots only the first row of the chain changes, by an exchange:
 * nobody waits for anybody then. Tables are probed by later launches alone.
 *
 * Without GQUERY_JOINED programs have no joins, and nothing of this is in the kernel.
 *
 * Threads: any. Those of a warp may wait for each other.
 */
#ifndef GQUERY_KERNEL_JOIN_H
#define GQUERY_KERNEL_JOIN_H

#include "query/kernel_groups.h"
#include "query/kernel_machine.h"

#ifndef GQUERY_JOINED

GVM_DEVICE uint64_t row_of(const machine *m, const gquery_source *source, uint32_t r)
{
    (void)source;
    return row_at(m, r);
}
GVM_DEVICE int is_of_outer(const gquery_source *source)
{
    (void)source;
    return 1;
}
GVM_DEVICE uint32_t unmatched_rows(const machine *m, const gquery_source *source)
{
    (void)m;
    (void)source;
    return 0;
}
GVM_DEVICE void start_joins(const gquery_scan *p, machine *m)
{
    (void)p;
    (void)m;
}
GVM_DEVICE int has_too_many(const gquery_scan *p)
{
    (void)p;
    return 0;
}

#else

#define SLOT_FREE 0u
#define SLOT_CLAIMED 1u
#define SLOT_READY 2u
#define UNMATCHED (~0ull)

/* machine.search: for the table's rows EACH bits that have come to the probe, that the condition was true for once,
 * and that it is to be evaluated for with other rows of the table. */
#define SEARCH_ENTERED 0
#define SEARCH_FOUND EACH
#define SEARCH_AGAIN (2 * EACH)
#define SEARCH_TABLE (3 * EACH)
#define SEARCH_IS_ON (1u << (SEARCH_TABLE + 4))

/* ---- the rows that were found */

/* Of table 1 + t. */
GVM_DEVICE uint64_t *joined_place(const machine *m, uint32_t t, uint32_t r)
{
    return m->joined + r * gvm_warp_size() - t * EACH * gvm_warp_size();
}

GVM_DEVICE uint64_t row_of(const machine *m, const gquery_source *source, uint32_t r)
{
    return source->table == 0 ? row_at(m, r) : *joined_place(m, (uint32_t)source->table - 1, r);
}

GVM_DEVICE int is_of_outer(const gquery_source *source)
{
    return source->table == 0;
}

GVM_DEVICE uint32_t unmatched_rows(const machine *m, const gquery_source *source)
{
    uint32_t r, rows = 0;

    if (source->table == 0)
        return 0;
    GVM_UNROLL
    for (r = 0; r < EACH; r++)
        rows |= (uint32_t)(*joined_place(m, (uint32_t)source->table - 1, r) == UNMATCHED) << r;
    return rows;
}

GVM_DEVICE void start_joins(const gquery_scan *p, machine *m)
{
    m->joined = p->depth > 0 ? place(m, p->depth - 1, 0) : m->stack;
    m->more = m->search = 0;
}

/* ---- probing */

GVM_DEVICE uint64_t first_slot(const gquery_hash *h, const row_keys *keys)
{
    return (uint64_t)(((unsigned __int128)hash_keys(keys) * h->count) >> 64);
}

/* Of a sealed table. By plain loads, which the first cache serves: all rows read the same few slots of a small table. */
GVM_DEVICE int slot_has_keys(const uint64_t *slot, const row_keys *keys)
{
    uint32_t k;

    GVM_NO_UNROLL
    for (k = 0; k < keys->count; k++)
        if (slot[1 + k] != keys->values[k * keys->pitch])
            return 0;
    return 1;
}

/* The first row with these keys; UNMATCHED: there is none. */
GVM_DEVICE uint64_t find_row(const gquery_hash *h, const row_keys *keys)
{
    const uint64_t words = 1 + keys->count;
    uint64_t at, probes;

    if (h->count == 0)
        return UNMATCHED;
    at = first_slot(h, keys);
    for (probes = 0; probes < h->count && probes < GQUERY_PROBES_MAX; probes++) {
        const uint64_t *slot = (const uint64_t *)(uintptr_t)h->slots + at * words;
        const uint64_t word = slot[0];

        if ((uint32_t)word == SLOT_FREE)
            break;
        if (slot_has_keys(slot, keys))
            return word >> 32;
        at = at + 1 < h->count ? at + 1 : 0;
    }
    return UNMATCHED;
}

/* GQUERY_NO_ROW: it is the last one. */
GVM_DEVICE uint32_t next_row(const gquery_hash *h, uint64_t row)
{
    return h->next == 0 ? GQUERY_NO_ROW : ((const uint32_t *)(uintptr_t)h->next)[row];
}

GVM_DEVICE void probe(const gquery_scan *p, machine *m, const gquery_instruction *i)
{
    const uint32_t t = i->a - 1, kind = (uint32_t)i->value % GQUERY_JOIN_CONDITION;
    const gquery_hash *h = &p->hashes[t];
    uint32_t r, k, nulls = 0, found = 0, more = 0;

    for (k = 0; k < i->b; k++)
        nulls |= nulls_of(m, k);
    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        const row_keys keys = {place(m, 0, r), EACH * gvm_warp_size(), i->b, 0};
        uint64_t row;

        if (!has(m->active, r))
            continue;
        row = has(nulls, r) ? UNMATCHED : find_row(h, &keys);
        *joined_place(m, t, r) = row;
        if (row == UNMATCHED)
            continue;
        found |= 1u << r;
        more |= (uint32_t)(next_row(h, row) != GQUERY_NO_ROW) << r;
    }
    m->depth = 0;
    if (kind <= GQUERY_JOIN_LEFT)
        m->more = (m->more & ~(m->active << t * EACH)) | more << t * EACH;
    if (i->value >= GQUERY_JOIN_CONDITION) {
        m->search = SEARCH_IS_ON | t << SEARCH_TABLE | m->active << SEARCH_ENTERED;
        m->active &= found;
    } else if (kind == GQUERY_JOIN_ANTI) {
        m->active &= ~found;
    } else if (kind != GQUERY_JOIN_LEFT) {
        m->active &= found;
    }
}

/* The condition is true of the rows that were found, or not: these take the next ones. No row goes on from here:
 * continue_search() says which do. */
GVM_DEVICE void match(const gquery_scan *p, machine *m, const gquery_instruction *i)
{
    const uint32_t t = i->a - 1, met = m->active & true_rows(m);
    uint32_t r, again = 0, more = 0;

    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        uint64_t *row = joined_place(m, t, r);
        uint32_t next;

        if (!has(m->active, r))
            continue;
        next = next_row(&p->hashes[t], *row);
        if (next == GQUERY_NO_ROW)
            continue;
        if (has(met, r)) {
            more |= 1u << r;
        } else {
            *row = next;
            again |= 1u << r;
        }
    }
    if (i->value % GQUERY_JOIN_CONDITION == GQUERY_JOIN_LEFT)
        m->more = (m->more & ~(m->active << t * EACH)) | more << t * EACH;
    m->search |= SEARCH_IS_ON | t << SEARCH_TABLE | met << SEARCH_FOUND | again << SEARCH_AGAIN;
    m->active = 0;
}

/* The rows that have become active, and where they go on: the condition of others that were found, or what is behind it. */
GVM_DEVICE uint32_t continue_search(const gquery_scan *p, machine *m)
{
    const uint32_t t = m->search >> SEARCH_TABLE & 15, found = m->search >> SEARCH_FOUND & ALL_ROWS,
                   missing = m->search >> SEARCH_ENTERED & ALL_ROWS & ~found;
    const gquery_hash *h = &p->hashes[t];
    const uint32_t kind = (uint32_t)m->program->code[h->matched - 1].value % GQUERY_JOIN_CONDITION;
    uint32_t r;

    m->active = m->search >> SEARCH_AGAIN & ALL_ROWS;
    m->search &= ~(ALL_ROWS << SEARCH_AGAIN);
    if (m->active != 0)
        return h->resume;
    m->search = 0;
    m->active = kind == GQUERY_JOIN_ANTI   ? missing
                : kind == GQUERY_JOIN_LEFT ? found | missing
                                           : found;
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(missing, r))
            *joined_place(m, t, r) = UNMATCHED;
    return h->matched;
}

/* Of the innermost table that has more: the rows that have become active then, and the instruction behind its probe. */
GVM_DEVICE uint32_t take_next_matches(const gquery_scan *p, machine *m)
{
    uint32_t t = GQUERY_JOINS_MAX - 1, r;
    const gquery_hash *h;

    while (m->more >> t * EACH == 0)
        t--;
    h = &p->hashes[t];
    m->active = m->more >> t * EACH & ALL_ROWS;
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        uint64_t *row = joined_place(m, t, r);

        if (!has(m->active, r))
            continue;
        *row = next_row(h, *row);
        if (next_row(h, *row) == GQUERY_NO_ROW)
            m->more &= ~(1u << (t * EACH + r));
    }
    return h->resume;
}

/* Matches of a thread's rows, or rows that may be some, between two reads of p->halt, which is in host memory. */
#define HALT_ROUNDS 1024u

/* Whether further matches are left out. round: how many of the tile there have been. */
GVM_DEVICE int is_halted(const gquery_scan *p, machine *m, uint32_t round)
{
    if (round % HALT_ROUNDS != 0 || !end_if_halted(p, m))
        return 0;
    m->more = m->search = 0;
    return 1;
}

/* ---- building */

/* The chain of the row's keys has it as its first row now. False: there is no slot for them. */
GVM_DEVICE int enter_row(gquery_build *b, const row_keys *keys, uint32_t row)
{
    const gquery_hash *h = &b->hash;
    uint32_t *next = (uint32_t *)(uintptr_t)h->next + row;
    uint64_t at = first_slot(h, keys), probes = 0;

    while (probes < h->count && probes < GQUERY_PROBES_MAX) {
        uint64_t *slot = (uint64_t *)(uintptr_t)h->slots + at * (1 + keys->count);
        uint32_t *state = (uint32_t *)(void *)slot, was = gvm_load_consume_u32(state), k;

        if (was == SLOT_FREE && gvm_atomic_cas_u32(state, SLOT_FREE, SLOT_CLAIMED) == SLOT_FREE) {
            for (k = 0; k < keys->count; k++)
                slot[1 + k] = keys->values[k * keys->pitch];
            state[1] = row;
            *next = GQUERY_NO_ROW;
            gvm_store_release_u32(state, SLOT_READY);
            return 1;
        }
        if (was != SLOT_READY) { /* it has keys soon */
            gvm_pause();
            continue;
        }
        if (has_keys(slot, keys)) {
            *next = gvm_atomic_exchange_u32(state + 1, row);
            gvm_atomic_add_u64(&b->repeated, 1);
            return 1;
        }
        at = at + 1 < h->count ? at + 1 : 0;
        probes++;
    }
    return 0;
}

GVM_DEVICE void build(const gquery_scan *p, machine *m, uint32_t count)
{
    gquery_build *b = (gquery_build *)(uintptr_t)p->build;
    const uint32_t first = m->depth - count;
    uint32_t r, k;

    for (k = 0; k < count; k++)
        m->active &= ~nulls_of(m, first + k);
    if (b->hash.count == 0) {
        gvm_atomic_add_u64(&b->rows, gvm_count_ones(m->active));
        return;
    }
    store_top(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        const row_keys keys = {place(m, first, r), EACH * gvm_warp_size(), count, 0};

        if (has(m->active, r) && m->error == 0 && !enter_row(b, &keys, (uint32_t)(row_at(m, r))))
            m->error = GQUERY_E_LONG;
    }
}

/* ---- joined rows as results */

GVM_DEVICE int has_too_many(const gquery_scan *p)
{
    const gquery_appended *a = (const gquery_appended *)(uintptr_t)p->appended;

    return a != 0 && gvm_load_consume_u64(&a->count) > a->stop;
}

/* Places for the rows of the lanes that are here, by one of them; those of a lane are behind each other. */
GVM_DEVICE uint64_t take_places(uint64_t *count, uint32_t rows)
{
    const uint32_t lanes = gvm_warp_active(), before = (1u << gvm_lane()) - 1,
                   first = gvm_count_ones((lanes & (0 - lanes)) - 1);
    uint32_t r, rank = 0, total = 0;
    uint64_t at = 0;

    GVM_UNROLL
    for (r = 0; r < EACH; r++) {
        const uint32_t all = gvm_warp_ballot(lanes, has(rows, r));

        rank += gvm_count_ones(all & before);
        total += gvm_count_ones(all);
    }
    if (gvm_lane() == first && total > 0)
        at = gvm_atomic_add_u64(count, total);
    return gvm_warp_shuffle_u64(lanes, at, first, gvm_warp_size()) + rank;
}

GVM_DEVICE void append_rows(const gquery_scan *p, machine *m)
{
    gquery_appended *a = (gquery_appended *)(uintptr_t)p->appended;
    uint64_t at = take_places(&a->count, m->active);
    uint32_t r, t;

    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        uint64_t *to = (uint64_t *)(uintptr_t)a->rows + at * a->tables;

        if (!has(m->active, r) || at++ >= a->max)
            continue;
        to[0] = row_at(m, r);
        for (t = 1; t < a->tables; t++)
            to[t] = *joined_place(m, t - 1, r);
    }
}

#endif
#endif
